// check_run.c - runs a plan's instructions in an order that the events allow, and looks at what
// each one finds in the bytes that it uses.
//
// Any such order will do: two instructions that use the same bytes, one of them writing, must be
// ordered by streams and events, so what every read finds is the same in all of them. Each stream
// carries a vector clock: how many instructions of each stream it knows to be done.
// SPDX-License-Identifier: Apache-2.0
#include "sched/check.h"

#include <inttypes.h>
#include <string.h>

typedef struct run {
    zx_check *c;
    uint32_t (*event_known)[ZX_STREAM_COUNT]; // by event: the clock it brings
    bool *signalled;                          // by event
    uint32_t *seen;      // by node and micro-batch: the instruction that executes it; ZX_NONE
    uint32_t *loss_seen; // by micro-batch
    uint32_t *reduced;   // by unit: micro-batches in its gradient
    uint32_t *packed, *bucketed; // by unit: micro-batches whose gradient was copied (in order: one
                                 // stream does either)
    bool *updated;               // by unit
    bool *committed;             // by buffer
    bool *gathered;              // by slot: a unit is there that wasn't freed
    uint32_t norm;               // instruction; ZX_NONE
} run;

static const zx_insn *insn(const run *r, uint32_t i)
{
    return &r->c->p->insns[i];
}

// What a slot has to hold for somebody to read `value` of a micro-batch from it.
static zx_status expected(const zx_check *c, uint32_t i, uint32_t value, uint32_t micro,
                          uint32_t slot, zx_content *want)
{
    const zx_graph *g = c->g;
    const zx_plan *p = c->p;
    const uint32_t root = c->root[value];
    const zx_value *v = &g->values[root];
    const zx_slot *s = &p->slots[slot];
    *want = (zx_content){ZX_HOLDS_VALUE, root, micro};
    switch (v->role) {
    case ZX_R_PARAM: {
        const zx_unit *u = &p->units[v->index];
        const bool whole = slot == u->param_slot && (u->param_whole || u->numel == 0);
        if (!whole && (s->kind != ZX_SLOT_UNIT || s->what != v->index))
            return ZX_BROKEN(c, "%s reads parameter '%s' from %s, which is not for it whole",
                             zx_check_insn_text(c, i),
                             zx_text_safe(c->mem, g->params[v->index].name),
                             zx_check_slot_text(c, slot));
        *want = (zx_content){whole ? ZX_HOLDS_PARAM : ZX_HOLDS_UNIT, v->index, 0};
        return ZX_OK;
    }
    case ZX_R_BUFFER:
        *want = (zx_content){ZX_HOLDS_WORKING, v->index, micro};
        break;
    case ZX_R_CONST:
        *want = (zx_content){ZX_HOLDS_CONST, root, 0};
        break;
    case ZX_R_INPUT:
        break;
    case ZX_R_MADE:
        if (c->next_of[root] != ZX_NONE)
            *want = (zx_content){ZX_HOLDS_WORKING, c->next_of[root], micro + 1};
        break;
    }
    if (v->role == ZX_R_BUFFER) {
        const uint32_t next = g->buffers[v->index].next;
        if (next == ZX_NONE || c->root[next] == root) want->version = 0; // it never changes
    }
    if (s->bytes != zx_type_bytes(&v->type))
        return ZX_BROKEN(c, "%s reads '%s' from %s, which has another size",
                         zx_check_insn_text(c, i), zx_text_safe(c->mem, v->name),
                         zx_check_slot_text(c, slot));
    return ZX_OK;
}

static zx_status read_value(run *r, uint32_t i, uint32_t value, uint32_t micro, uint32_t slot)
{
    zx_content want;
    ZX_TRY(expected(r->c, i, value, micro, slot, &want));
    return zx_shadow_read(r->c, i, slot, &want);
}

// ---- one function a handler of insns.def
// ----------------------------------------------------------------
typedef zx_status handler(run *r, uint32_t i);

static zx_status run_feed(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const zx_slot *s = &c->p->slots[insn(r, i)->a];
    if (s->kind != ZX_SLOT_INPUT)
        return ZX_BROKEN(c, "%s feeds %s, which is not for an input", zx_check_insn_text(c, i),
                         zx_check_slot_text(c, insn(r, i)->a));
    const zx_content now = {ZX_HOLDS_VALUE, c->g->inputs[s->what], insn(r, i)->b};
    return zx_shadow_write(c, i, insn(r, i)->a, &now, false);
}

// Where a unit lands: by its gather, or when that is unpacked. The parameter is of `version`.
static zx_status land(run *r, uint32_t i, const zx_member *m, uint32_t version)
{
    zx_check *c = r->c;
    const zx_unit *u = &c->p->units[m->unit];
    const zx_slot *s = &c->p->slots[m->slot];
    if (m->slot == u->param_slot && u->param_whole) { // stages 1 and 2, after the update
        const zx_content was = {ZX_HOLDS_PARAM, m->unit, 2}, now = {ZX_HOLDS_PARAM, m->unit, 1};
        ZX_TRY(zx_shadow_read(c, i, m->slot, &was));
        return zx_shadow_write(c, i, m->slot, &now, true);
    }
    if (s->kind != ZX_SLOT_UNIT || s->what != m->unit || u->param_whole)
        return ZX_BROKEN(c, "%s gathers '%s' into %s, which is not for it",
                         zx_check_insn_text(c, i), zx_text_safe(c->mem, c->g->params[m->unit].name),
                         zx_check_slot_text(c, m->slot));
    if (r->gathered[m->slot])
        return ZX_BROKEN(c, "%s gathers into %s, which holds a unit that was never freed",
                         zx_check_insn_text(c, i), zx_check_slot_text(c, m->slot));
    const zx_content now = {ZX_HOLDS_UNIT, m->unit, version};
    ZX_TRY(zx_shadow_write(c, i, m->slot, &now, false));
    r->gathered[m->slot] = true;
    return ZX_OK;
}

// What this rank has of a parameter for the others: its shard, as updated or not yet.
static zx_status read_shard(run *r, uint32_t i, uint32_t unit, uint32_t *version)
{
    const zx_unit *u = &r->c->p->units[unit];
    *version = u->param_whole ? 2 : r->updated[unit];
    const zx_content shard = {ZX_HOLDS_PARAM, unit, *version};
    return zx_shadow_read(r->c, i, u->param_slot, &shard);
}

static zx_status run_gather(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t launch = insn(r, i)->a;
    const zx_launch *l = &c->p->launches[launch];
    if (l->flat != ZX_NONE) {
        const uint32_t version = zx_shadow_look(c, l->flat).version;
        const zx_content row = {ZX_HOLDS_SHARDS, launch, version},
                         all = {ZX_HOLDS_ROWS, launch, version};
        ZX_TRY(zx_shadow_read(c, i, l->flat, &row));
        return zx_shadow_write(c, i, l->flat, &all, true);
    }
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        uint32_t version;
        ZX_TRY(read_shard(r, i, c->p->members[k].unit, &version));
        ZX_TRY(land(r, i, &c->p->members[k], version));
    }
    return ZX_OK;
}

static zx_status needs_flat(const run *r, uint32_t i, bool reduces)
{
    const zx_check *c = r->c;
    const uint32_t launch = insn(r, i)->a;
    if (c->p->launches[launch].flat == ZX_NONE)
        return ZX_BROKEN(c, "%s: launch %u goes through no flat slot", zx_check_insn_text(c, i),
                         launch);
    if (c->reduces[launch] != reduces)
        return ZX_BROKEN(c, "%s on the %s stream: launch %u %s", zx_check_insn_text(c, i),
                         zx_stream_words[insn(r, i)->stream], launch,
                         reduces ? "isn't reduced" : "is reduced");
    return ZX_OK;
}

static zx_status run_unpack(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t launch = insn(r, i)->a;
    const zx_launch *l = &c->p->launches[launch];
    ZX_TRY(needs_flat(r, i, false));
    const zx_content rows = {ZX_HOLDS_ROWS, launch, zx_shadow_look(c, l->flat).version};
    ZX_TRY(zx_shadow_read(c, i, l->flat, &rows));
    for (uint32_t k = l->member; k < l->member + l->n_members; k++)
        ZX_TRY(land(r, i, &c->p->members[k], rows.version));
    return ZX_OK;
}

static zx_status pack_shards(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t launch = insn(r, i)->a;
    const zx_launch *l = &c->p->launches[launch];
    zx_content row = {ZX_HOLDS_SHARDS, launch, 0};
    for (uint32_t k = 0; k < l->n_members; k++) {
        uint32_t version;
        const uint32_t unit = c->p->members[l->member + k].unit;
        ZX_TRY(read_shard(r, i, unit, &version));
        if (k > 0 && version != row.version)
            return ZX_BROKEN(c, "%s: '%s' is updated already, or others are",
                             zx_check_insn_text(c, i),
                             zx_text_safe(c->mem, c->g->params[unit].name));
        row.version = version;
    }
    return zx_shadow_write(c, i, l->flat, &row, false);
}

// The micro-batch whose gradient of a unit is copied now; counted in *so_far.
static zx_status next_gradient(const run *r, uint32_t i, uint32_t unit, uint32_t *so_far)
{
    const zx_check *c = r->c;
    const char *name = zx_text_safe(c->mem, c->g->params[unit].name);
    if (!zx_param_trained(c->g, unit))
        return ZX_BROKEN(c, "%s copies the gradient of '%s', which has none",
                         zx_check_insn_text(c, i), name);
    if (*so_far >= c->p->micro_batches)
        return ZX_BROKEN(c, "%s copies the gradient of '%s' once more than there are micro-batches",
                         zx_check_insn_text(c, i), name);
    ++*so_far;
    return ZX_OK;
}

static zx_status pack_gradients(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t launch = insn(r, i)->a;
    const zx_launch *l = &c->p->launches[launch];
    const uint32_t micro = r->packed[c->p->members[l->member].unit];
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *m = &c->p->members[k];
        const zx_content part = {ZX_HOLDS_PART, m->unit, micro};
        if (r->packed[m->unit] != micro)
            return ZX_BROKEN(c, "%s: gradients of micro-batches %u and %u in one launch",
                             zx_check_insn_text(c, i), micro, r->packed[m->unit]);
        ZX_TRY(next_gradient(r, i, m->unit, &r->packed[m->unit]));
        if (m->part != ZX_NONE)
            ZX_TRY(zx_shadow_read(c, i, m->part, &part));
        else
            ZX_TRY(read_value(r, i, c->g->params[m->unit].grad, micro, m->slot));
    }
    const zx_content now = {ZX_HOLDS_GRADS, launch, micro};
    return zx_shadow_write(c, i, l->flat, &now, false);
}

static zx_status run_pack(run *r, uint32_t i)
{
    const bool reduces = insn(r, i)->stream == ZX_S_BUCKET;
    ZX_TRY(needs_flat(r, i, reduces));
    return reduces ? pack_gradients(r, i) : pack_shards(r, i);
}

static zx_status run_bucket(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const zx_member *m = &c->p->members[c->p->launches[insn(r, i)->a].member + insn(r, i)->b];
    if (m->part == ZX_NONE)
        return ZX_BROKEN(c, "%s: '%s' has no part of the bucket", zx_check_insn_text(c, i),
                         zx_text_safe(c->mem, c->g->params[m->unit].name));
    const uint32_t micro = r->bucketed[m->unit];
    ZX_TRY(next_gradient(r, i, m->unit, &r->bucketed[m->unit]));
    ZX_TRY(read_value(r, i, c->g->params[m->unit].grad, micro, m->slot));
    const zx_content now = {ZX_HOLDS_PART, m->unit, micro};
    return zx_shadow_write(c, i, m->part, &now, false);
}

// Where output `o` of a step goes, and what it is then.
static zx_status written(run *r, uint32_t i, const zx_plan_step *t, uint32_t value, uint32_t slot,
                         zx_content *now)
{
    const zx_check *c = r->c;
    const zx_plan *p = c->p;
    const zx_slot *s = &p->slots[slot];
    const char *name = zx_text_safe(c->mem, c->g->values[value].name);
    if (s->bytes != zx_type_bytes(&c->g->values[value].type))
        return ZX_BROKEN(c, "%s writes '%s' to %s, which has another size",
                         zx_check_insn_text(c, i), name, zx_check_slot_text(c, slot));
    const uint32_t b = c->next_of[value];
    *now = (zx_content){ZX_HOLDS_VALUE, value, t->micro};
    if (b != ZX_NONE) {
        *now = (zx_content){ZX_HOLDS_WORKING, b, t->micro + 1};
        if (slot == c->working_slot[b]) return ZX_OK;
    } else if (s->kind == ZX_SLOT_VALUE)
        return ZX_OK;
    // Alone, with one micro-batch, a gradient may be made where UPDATE reads it.
    else if (s->kind == ZX_SLOT_GRAD && p->ranks == 1 && p->micro_batches == 1)
        return ZX_OK;
    return ZX_BROKEN(c, "%s writes '%s' to %s, which is not for it", zx_check_insn_text(c, i), name,
                     zx_check_slot_text(c, slot));
}

static bool same_bytes(const zx_plan *p, uint32_t a, uint32_t b)
{
    return p->slots[a].offset == p->slots[b].offset && p->slots[a].bytes == p->slots[b].bytes;
}

// Whether an output has the bytes of inputs, and may have those of each of them.
static bool may_overwrite(const run *r, const zx_plan_step *t, uint32_t out)
{
    const zx_check *c = r->c;
    const zx_node *n = &c->g->nodes[t->node];
    const uint32_t *args = c->p->args + t->arg;
    bool some = false;
    for (uint32_t k = 0; k < t->n_in; k++) {
        if (args[k] == ZX_NONE || !same_bytes(c->p, args[k], args[t->n_in + out])) continue;
        if (!zx_node_may_overwrite(c->g, n, k, out)) return false;
        some = true;
    }
    return some;
}

static zx_status run_exec(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const zx_plan_step *t = &c->p->steps[insn(r, i)->a];
    const zx_node *n = &c->g->nodes[t->node];
    const uint32_t *args = c->p->args + t->arg;
    uint32_t *seen = &r->seen[(size_t)t->node * c->p->micro_batches + t->micro];
    if (r->norm != ZX_NONE) // which tells the others of faults, and that what they read is final
        return ZX_BROKEN(c, "%s comes after the norm", zx_check_insn_text(c, i));
    if (*seen != ZX_NONE)
        return ZX_BROKEN(c, "%s: %s has executed it already", zx_check_insn_text(c, i),
                         zx_check_insn_text(c, *seen));
    *seen = i;
    for (uint32_t k = 0; k < t->n_in; k++)
        if (args[k] != ZX_NONE) ZX_TRY(read_value(r, i, zx_node_in(c->g, n, k), t->micro, args[k]));
    if (t->work != ZX_NONE) {
        const zx_content scratch = {ZX_HOLDS_WORK, insn(r, i)->a, 0};
        if (c->p->slots[t->work].kind != ZX_SLOT_WORK)
            return ZX_BROKEN(c, "%s has its scratch in %s", zx_check_insn_text(c, i),
                             zx_check_slot_text(c, t->work));
        ZX_TRY(zx_shadow_write(c, i, t->work, &scratch, false));
    }
    for (uint32_t k = 0; k < t->n_out; k++) {
        const uint32_t slot = args[t->n_in + k];
        if (slot == ZX_NONE) continue;
        zx_content now;
        ZX_TRY(written(r, i, t, zx_node_out(c->g, n, k), slot, &now));
        ZX_TRY(zx_shadow_write(c, i, slot, &now, may_overwrite(r, t, k)));
    }
    return ZX_OK;
}

static zx_status run_reduce(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const zx_plan *p = c->p;
    const zx_launch *l = &p->launches[insn(r, i)->a];
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *m = &p->members[k];
        const zx_unit *u = &p->units[m->unit];
        const char *name = zx_text_safe(c->mem, c->g->params[m->unit].name);
        const uint32_t micro = r->reduced[m->unit];
        if (!zx_param_trained(c->g, m->unit))
            return ZX_BROKEN(c, "%s reduces '%s', which has no gradient", zx_check_insn_text(c, i),
                             name);
        if (u->grad_whole != (insn(r, i)->id == ZX_I_ALLREDUCE))
            return ZX_BROKEN(c, "%s: the gradient of '%s' is %s", zx_check_insn_text(c, i), name,
                             u->grad_whole ? "whole on every rank" : "sharded");
        if (micro >= p->micro_batches)
            return ZX_BROKEN(c, "%s reduces '%s' once more than there are micro-batches",
                             zx_check_insn_text(c, i), name);
        if ((insn(r, i)->b != 0) != (micro > 0))
            return ZX_BROKEN(c, "%s has to %s the gradient of micro-batch %u of '%s'",
                             zx_check_insn_text(c, i), micro > 0 ? "add" : "write", micro, name);
        const zx_content rows = {ZX_HOLDS_GRADS, insn(r, i)->a, micro};
        if (l->flat != ZX_NONE)
            ZX_TRY(zx_shadow_read(c, i, l->flat, &rows));
        else
            ZX_TRY(read_value(r, i, c->g->params[m->unit].grad, micro, m->slot));
        if (micro > 0) {
            const zx_content was = {ZX_HOLDS_GRAD, m->unit, micro};
            ZX_TRY(zx_shadow_read(c, i, u->grad_slot, &was));
        }
        const zx_content now = {ZX_HOLDS_GRAD, m->unit, micro + 1};
        ZX_TRY(zx_shadow_write(c, i, u->grad_slot, &now,
                               l->flat != ZX_NONE || m->slot != u->grad_slot));
        r->reduced[m->unit]++;
    }
    return ZX_OK;
}
#define run_allreduce run_reduce

static zx_status run_free(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t slot = insn(r, i)->a;
    const zx_slot *s = &c->p->slots[slot];
    if (s->kind < ZX_SLOT_HELD || s->kind == ZX_SLOT_BUCKET)
        return ZX_BROKEN(c, "%s frees %s, which lives across steps", zx_check_insn_text(c, i),
                         zx_check_slot_text(c, slot));
    if (s->kind == ZX_SLOT_UNIT) {
        if (!r->gathered[slot])
            return ZX_BROKEN(c, "%s frees %s, where nothing was gathered", zx_check_insn_text(c, i),
                             zx_check_slot_text(c, slot));
        const zx_content is = {ZX_HOLDS_UNIT, s->what, zx_shadow_look(c, slot).version};
        ZX_TRY(zx_shadow_read(c, i, slot, &is));
        r->gathered[slot] = false;
    }
    return zx_shadow_write(c, i, slot, &(zx_content){ZX_HOLDS_FREED, 0, 0}, true);
}

static zx_status run_mark(run *r ZX_UNUSED, uint32_t i ZX_UNUSED)
{
    return ZX_OK;
}
#define run_hook run_mark
#define run_wait run_mark // the clocks are moved for all alike, below

static zx_status run_loss(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t micro = insn(r, i)->b;
    if (r->loss_seen[micro] != ZX_NONE)
        return ZX_BROKEN(c, "%s: %s has recorded the loss of micro-batch %u already",
                         zx_check_insn_text(c, i), zx_check_insn_text(c, r->loss_seen[micro]),
                         micro);
    if (r->norm != ZX_NONE)
        return ZX_BROKEN(c, "%s comes after the norm", zx_check_insn_text(c, i));
    r->loss_seen[micro] = i;
    return read_value(r, i, c->g->loss, micro, insn(r, i)->a);
}

// What NORM and UPDATE find in a gradient's slot.
static zx_content whole_gradient(const run *r, uint32_t unit)
{
    const zx_plan *p = r->c->p;
    if (r->reduced[unit] == 0 && p->ranks == 1 && p->micro_batches == 1) // made in place
        return (zx_content){ZX_HOLDS_VALUE, r->c->root[r->c->g->params[unit].grad], 0};
    return (zx_content){ZX_HOLDS_GRAD, unit, p->micro_batches};
}

static zx_status run_norm(run *r, uint32_t i)
{
    zx_check *c = r->c;
    if (r->norm != ZX_NONE)
        return ZX_BROKEN(c, "%s: the norm is taken once, by %s", zx_check_insn_text(c, i),
                         zx_check_insn_text(c, r->norm));
    r->norm = i;
    for (uint32_t m = 0; m < c->p->micro_batches; m++)
        if (r->loss_seen[m] == ZX_NONE)
            return ZX_BROKEN(c, "%s: the loss of micro-batch %u was not recorded before",
                             zx_check_insn_text(c, i), m);
    for (uint32_t u = 0; u < c->p->n_units; u++) {
        if (!zx_param_trained(c->g, u)) continue;
        const zx_content want = whole_gradient(r, u);
        ZX_TRY(zx_shadow_read(c, i, c->p->units[u].grad_slot, &want));
    }
    return ZX_OK;
}

static zx_status after_norm(const run *r, uint32_t i)
{
    if (r->norm == ZX_NONE)
        return ZX_BROKEN(r->c, "%s comes before the norm", zx_check_insn_text(r->c, i));
    return ZX_OK;
}

static zx_status run_update(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t unit = insn(r, i)->a;
    const zx_unit *u = &c->p->units[unit];
    const char *name = zx_text_safe(c->mem, c->g->params[unit].name);
    ZX_TRY(after_norm(r, i));
    if (!zx_param_trained(c->g, unit))
        return ZX_BROKEN(c, "%s updates '%s', which has no gradient", zx_check_insn_text(c, i),
                         name);
    if (r->updated[unit])
        return ZX_BROKEN(c, "%s updates '%s' a second time", zx_check_insn_text(c, i), name);
    r->updated[unit] = true;
    const zx_content gradient = whole_gradient(r, unit), state = {ZX_HOLDS_STATE, unit, 0};
    const zx_content was = {ZX_HOLDS_PARAM, unit, 0};
    const bool part = u->param_whole && !u->state_whole && c->p->ranks > 1;
    const zx_content now = {ZX_HOLDS_PARAM, unit, part ? 2 : 1};
    ZX_TRY(zx_shadow_read(c, i, u->grad_slot, &gradient));
    for (uint32_t k = 0; k < c->p->optimizer_states; k++) {
        ZX_TRY(zx_shadow_read(c, i, u->state_slot[k], &state));
        ZX_TRY(zx_shadow_write(c, i, u->state_slot[k], &state, true));
    }
    if (u->master_slot != ZX_NONE) {
        const zx_content copy = {ZX_HOLDS_MASTER, unit, 0};
        ZX_TRY(zx_shadow_read(c, i, u->master_slot, &copy));
        ZX_TRY(zx_shadow_write(c, i, u->master_slot, &copy, true));
    }
    ZX_TRY(zx_shadow_read(c, i, u->param_slot, &was));
    return zx_shadow_write(c, i, u->param_slot, &now, true);
}

static bool changes(const zx_check *c, uint32_t buffer)
{
    const zx_buffer *b = &c->g->buffers[buffer];
    return b->next != ZX_NONE && c->root[b->next] != b->value;
}

static zx_status run_commit(run *r, uint32_t i)
{
    zx_check *c = r->c;
    const uint32_t b = insn(r, i)->a;
    const char *name = zx_text_safe(c->mem, c->g->buffers[b].name);
    ZX_TRY(after_norm(r, i));
    if (!changes(c, b))
        return ZX_BROKEN(c, "%s commits '%s', which never changes", zx_check_insn_text(c, i), name);
    if (r->committed[b])
        return ZX_BROKEN(c, "%s commits '%s' a second time", zx_check_insn_text(c, i), name);
    r->committed[b] = true;
    const zx_content copy = {ZX_HOLDS_WORKING, b, c->p->micro_batches};
    const zx_content was = {ZX_HOLDS_BUFFER, b, 0}, now = {ZX_HOLDS_BUFFER, b, 1};
    ZX_TRY(zx_shadow_read(c, i, c->working_slot[b], &copy));
    ZX_TRY(zx_shadow_read(c, i, c->buffer_slot[b], &was));
    ZX_TRY(zx_shadow_write(c, i, c->buffer_slot[b], &now, true));
    return zx_shadow_write(c, i, c->working_slot[b], &(zx_content){ZX_HOLDS_WORKING, b, 0}, true);
}

static handler *const handlers[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, name, what) [ZX_I_##id] = run_##name,
#include "sched/insns.def"
#undef ZX_INSN
};

// ---- the run
// ----------------------------------------------------------------------------------------------

static void fill_held(run *r)
{
    static const uint8_t holds[ZX_SLOT_HELD] = {
        [ZX_SLOT_PARAM] = ZX_HOLDS_PARAM,     [ZX_SLOT_STATE] = ZX_HOLDS_STATE,
        [ZX_SLOT_MASTER] = ZX_HOLDS_MASTER,   [ZX_SLOT_BUFFER] = ZX_HOLDS_BUFFER,
        [ZX_SLOT_WORKING] = ZX_HOLDS_WORKING,
        [ZX_SLOT_CONST] = ZX_HOLDS_CONST, // a gradient holds what the step before left
    };
    for (uint32_t i = 0; i < r->c->p->n_slots; i++) {
        const zx_slot *s = &r->c->p->slots[i];
        if (s->kind >= ZX_SLOT_HELD) continue;
        const zx_content x = {holds[s->kind], s->what, 0};
        (void)zx_shadow_write(r->c, ZX_NONE, i, &x, false);
    }
}

static zx_status step_stream(run *r, const uint32_t *order, uint32_t *next, uint32_t end,
                             bool *moved)
{
    zx_check *c = r->c;
    for (; *next < end; (*next)++, *moved = true) {
        const uint32_t i = order[*next];
        const zx_insn *in = insn(r, i);
        uint32_t *known = c->known[in->stream];
        if (in->id == ZX_I_WAIT) {
            if (!r->signalled[in->a]) return ZX_OK;
            for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
                if (r->event_known[in->a][k] > known[k]) known[k] = r->event_known[in->a][k];
        }
        ZX_TRY(handlers[in->id](r, i));
        known[in->stream] = c->place[i] + 1;
        if (in->c == ZX_NONE) continue;
        r->signalled[in->c] = true;
        memcpy(r->event_known[in->c], known, sizeof c->known[0]);
        if (in->stream != ZX_S_COMPUTE) continue;
        (*next)++;
        *moved = true;
        return ZX_OK; // let the others go as far as this lets them
    }
    return ZX_OK;
}

static zx_status run_all(run *r, uint32_t *stream_count)
{
    zx_check *c = r->c;
    const zx_plan *p = c->p;
    uint32_t *order = ZX_NEW(c->mem, uint32_t, p->n_insns),
             *place = ZX_NEW(c->mem, uint32_t, p->n_insns);
    uint32_t next[ZX_STREAM_COUNT], end[ZX_STREAM_COUNT], n = 0;
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) {
        next[s] = n;
        for (uint32_t i = 0; i < p->n_insns; i++)
            if (p->insns[i].stream == s) {
                place[i] = n - next[s];
                order[n++] = i;
            }
        end[s] = n;
        stream_count[s] = end[s] - next[s];
    }
    c->place = place;
    for (bool moved = true; moved;) {
        moved = false; // transfers run ahead: one that isn't waited for then reads as that
        for (uint32_t s = ZX_STREAM_COUNT; s-- > 0;)
            ZX_TRY(step_stream(r, order, &next[s], end[s], &moved));
    }
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++)
        if (next[s] < end[s])
            return ZX_BROKEN(c, "%s waits for ever: the event comes only after it",
                             zx_check_insn_text(c, order[next[s]]));
    return ZX_OK;
}

static zx_status check_complete(const run *r, const uint32_t *stream_count)
{
    const zx_check *c = r->c;
    const zx_graph *g = c->g;
    const zx_plan *p = c->p;
    for (uint32_t m = 0; m < p->micro_batches; m++)
        for (uint32_t n = 0; n < g->n_nodes; n++)
            if (zx_node_runs(&g->nodes[n]) && r->seen[(size_t)n * p->micro_batches + m] == ZX_NONE)
                return ZX_BROKEN(c, "node '%s' is not executed in micro-batch %u",
                                 zx_text_safe(c->mem, g->nodes[n].name), m);
    if (r->norm == ZX_NONE) return ZX_BROKEN(c, "the norm is never taken");
    for (uint32_t u = 0; u < p->n_units; u++) {
        const char *name = zx_text_safe(c->mem, g->params[u].name);
        if (!zx_param_trained(g, u)) continue;
        if (!r->updated[u]) return ZX_BROKEN(c, "parameter '%s' is never updated", name);
        if (zx_shadow_look(c, p->units[u].param_slot).version == 2)
            return ZX_BROKEN(
                c, "parameter '%s' is updated on each rank's shard, but not gathered again", name);
    }
    for (uint32_t b = 0; b < g->n_buffers; b++)
        if (changes(c, b) && !r->committed[b])
            return ZX_BROKEN(c, "buffer '%s' is never committed",
                             zx_text_safe(c->mem, g->buffers[b].name));
    for (uint32_t s = 0; s < p->n_slots; s++)
        if (r->gathered[s])
            return ZX_BROKEN(c, "%s is gathered and never freed", zx_check_slot_text(c, s));
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++)
        if (c->known[ZX_S_COMPUTE][s] != stream_count[s])
            return ZX_BROKEN(c, "the step ends without waiting for the %s stream",
                             zx_stream_words[s]);
    return ZX_OK;
}

zx_status zx_check_run(zx_check *c)
{
    const zx_graph *g = c->g;
    const zx_plan *p = c->p;
    uint64_t cells = 0;
    if (!zx_mul_u64(g->n_nodes, p->micro_batches, &cells) || cells > UINT32_MAX)
        return ZX_BROKEN(c, "%u micro-batches are too many", p->micro_batches);
    run r = {
        .c = c,
        .event_known =
            zx_arena_alloc(c->mem, p->n_events, sizeof *r.event_known, _Alignof(uint32_t)),
        .signalled = ZX_NEW(c->mem, bool, p->n_events),
        .seen = ZX_NEW(c->mem, uint32_t, cells),
        .loss_seen = ZX_NEW(c->mem, uint32_t, p->micro_batches),
        .reduced = ZX_NEW(c->mem, uint32_t, p->n_units),
        .packed = ZX_NEW(c->mem, uint32_t, p->n_units),
        .bucketed = ZX_NEW(c->mem, uint32_t, p->n_units),
        .updated = ZX_NEW(c->mem, bool, p->n_units),
        .committed = ZX_NEW(c->mem, bool, g->n_buffers),
        .gathered = ZX_NEW(c->mem, bool, p->n_slots),
        .norm = ZX_NONE,
    };
    memset(r.seen, 0xff, (size_t)cells * sizeof *r.seen); // ZX_NONE
    memset(r.loss_seen, 0xff, p->micro_batches * sizeof *r.loss_seen);
    zx_shadow_make(c);
    fill_held(&r);
    uint32_t stream_count[ZX_STREAM_COUNT];
    ZX_TRY(run_all(&r, stream_count));
    return check_complete(&r, stream_count);
}

// check.c - proves a plan for a train graph. Nothing is believed, least of all a plan's own words:
//
//  1. The plan is for this graph, and its numbers make sense.
//  2. Every parameter is one unit, cut and held as the stage says, of elements as the graph's; one
//     of 16 bits has an f32 copy if it is trained.
//  3. Slots are aligned, have the size of what they are for, and lie in the reservation, which is
//     within the budget; those that live across steps share bytes with nobody; parts lie in a
//     bucket.
//  4. Launches and steps refer to what there is (check_bounds.c); a step has the operands of its
//  node. A launch's
//     members follow one another in its flat slot, which has room for a row a rank.
//  5. Instructions have the operands that insns.def states, on a stream that may run them.
//  6. Each event happens once, and what is waited for happens.
// And by a run over the instructions (check_run.c):
//  7. Waits have no cycle; all streams are joined at the end, so two steps never overlap.
//  8. Two instructions that use the same bytes, one of them writing, are ordered by events.
//  9. Every read finds what it is meant to find, of the right micro-batch; bytes are rewritten only
//     after every reader of what they held is done; a step overwrites its input only where its
//     operator may. What goes through a flat slot is packed into it before its collective, by the
//     same launch, and a gathered unit is there once it is unpacked.
// 10. Each node runs once a micro-batch; every gradient is reduced once a micro-batch, after it was
//     made, the first written and the others added in order (or made in place: one rank, one
//     micro-batch); losses are recorded; the norm comes after all of these, updates and commits
//     (which read what the other ranks have made) after the norm, once each; what is updated in
//     shards is whole again; every gather is freed.
// No operand can depend on the rank: the plan has none, and all ranks compare its hash.
// SPDX-License-Identifier: Apache-2.0
#include "sched/check.h"

#include <inttypes.h>
#include <stdlib.h>

#define NONE ZX_OPERAND_NONE
#define SLOT ZX_OPERAND_SLOT
#define MICRO ZX_OPERAND_MICRO
#define LAUNCH ZX_OPERAND_LAUNCH
#define EVENT ZX_OPERAND_EVENT
#define STEP ZX_OPERAND_STEP
#define FLAG ZX_OPERAND_FLAG
#define UNIT ZX_OPERAND_UNIT
#define BUFFER ZX_OPERAND_BUFFER
#define MEMBER ZX_OPERAND_MEMBER
#define NUMBER ZX_OPERAND_NUMBER
const zx_insn_row zx_insn_rows[ZX_INSN_COUNT] = {
#define ZX_INSN(id, word, a, b, c, handler, what) [ZX_I_##id] = {word, {a, b, c}},
#include "sched/insns.def"
#undef ZX_INSN
};
#undef NONE
#undef SLOT
#undef MICRO
#undef LAUNCH
#undef EVENT
#undef STEP
#undef FLAG
#undef UNIT
#undef BUFFER
#undef MEMBER
#undef NUMBER

const char *const zx_stream_words[ZX_STREAM_COUNT] = {"compute", "gather", "reduce", "copy",
                                                      "bucket"};

// ---- sentences
// --------------------------------------------------------------------------------------------

static const char *value_name(const zx_check *c, uint32_t v)
{
    return zx_text_safe(c->mem, c->g->values[v].name);
}
static const char *param_name(const zx_check *c, uint32_t u)
{
    return zx_text_safe(c->mem, c->g->params[u].name);
}
static const char *buffer_name(const zx_check *c, uint32_t b)
{
    return zx_text_safe(c->mem, c->g->buffers[b].name);
}

const char *zx_check_insn_text(const zx_check *c, uint32_t i)
{
    if (i == ZX_NONE) return "the step before";
    const zx_insn *in = &c->p->insns[i];
    if (in->id == ZX_I_EXEC) {
        const zx_plan_step *t = &c->p->steps[in->a];
        return zx_arena_printf(c->mem, "instruction %u (exec '%s' of micro-batch %u)", i,
                               zx_text_safe(c->mem, c->g->nodes[t->node].name), t->micro);
    }
    return zx_arena_printf(c->mem, "instruction %u (%s)", i, zx_insn_rows[in->id].word);
}

const char *zx_check_content_text(const zx_check *c, const zx_content *x)
{
    switch ((zx_holds)x->holds) {
    case ZX_HOLDS_NOTHING:
        return "nothing whole";
    case ZX_HOLDS_FREED:
        return "freed bytes";
    case ZX_HOLDS_VALUE:
        return zx_arena_printf(c->mem, "'%s' of micro-batch %u", value_name(c, x->what),
                               x->version);
    case ZX_HOLDS_UNIT:
        return zx_arena_printf(c->mem, "the gathered '%s'%s", param_name(c, x->what),
                               x->version ? " as updated" : "");
    case ZX_HOLDS_PARAM:
        return zx_arena_printf(c->mem, "parameter '%s'%s", param_name(c, x->what),
                               x->version == 0   ? ""
                               : x->version == 1 ? " as updated"
                                                 : " as updated in this rank's shard");
    case ZX_HOLDS_GRAD:
        return zx_arena_printf(c->mem, "the gradient of '%s' after %u micro-batches",
                               param_name(c, x->what), x->version);
    case ZX_HOLDS_STATE:
        return zx_arena_printf(c->mem, "an optimizer state of '%s'", param_name(c, x->what));
    case ZX_HOLDS_BUFFER:
        return zx_arena_printf(c->mem, "buffer '%s'%s", buffer_name(c, x->what),
                               x->version ? " as committed" : "");
    case ZX_HOLDS_WORKING:
        return zx_arena_printf(c->mem, "buffer '%s' after %u micro-batches",
                               buffer_name(c, x->what), x->version);
    case ZX_HOLDS_CONST:
        return zx_arena_printf(c->mem, "constant '%s'", value_name(c, x->what));
    case ZX_HOLDS_WORK:
        return zx_arena_printf(c->mem, "scratch of step %u", x->what);
    case ZX_HOLDS_MASTER:
        return zx_arena_printf(c->mem, "the f32 copy of '%s'", param_name(c, x->what));
    case ZX_HOLDS_SHARDS:
        return zx_arena_printf(c->mem, "this rank's row of launch %u%s", x->what,
                               x->version ? " as updated" : "");
    case ZX_HOLDS_ROWS:
        return zx_arena_printf(c->mem, "the gathered rows of launch %u%s", x->what,
                               x->version ? " as updated" : "");
    case ZX_HOLDS_GRADS:
        return zx_arena_printf(c->mem, "gradients of launch %u of micro-batch %u", x->what,
                               x->version);
    case ZX_HOLDS_PART:
        return zx_arena_printf(c->mem, "the gradient of '%s' of micro-batch %u in the bucket",
                               param_name(c, x->what), x->version);
    }
    return "?";
}

const char *zx_check_slot_text(const zx_check *c, uint32_t slot)
{
    static const char *const words[] = {[ZX_SLOT_PARAM] = "parameter",
                                        [ZX_SLOT_GRAD] = "gradient",
                                        [ZX_SLOT_STATE] = "state",
                                        [ZX_SLOT_BUFFER] = "buffer",
                                        [ZX_SLOT_WORKING] = "buffer copy",
                                        [ZX_SLOT_CONST] = "constant",
                                        [ZX_SLOT_HELD] = "?",
                                        [ZX_SLOT_INPUT] = "input",
                                        [ZX_SLOT_UNIT] = "gathered unit",
                                        [ZX_SLOT_VALUE] = "value",
                                        [ZX_SLOT_WORK] = "scratch",
                                        [ZX_SLOT_MASTER] = "f32 copy",
                                        [ZX_SLOT_FLAT] = "flat buffer",
                                        [ZX_SLOT_BUCKET] = "bucket",
                                        [ZX_SLOT_PART] = "part of the bucket"};
    const zx_slot *s = &c->p->slots[slot];
    return zx_arena_printf(c->mem, "slot %u (%s, %" PRIu64 " bytes at %" PRIu64 ")", slot,
                           s->kind < ZX_COUNT(words) ? words[s->kind] : "?", s->bytes, s->offset);
}

// ---- 1: numbers
// -------------------------------------------------------------------------------------------

static zx_status check_numbers(const zx_check *c)
{
    const zx_plan *p = c->p;
    if (p->graph_hash != zx_graph_hash(c->g))
        return ZX_BROKEN(c, "the plan was made for another graph");
    if (p->n_units != c->g->n_params)
        return ZX_BROKEN(c, "%u units for %u parameters", p->n_units, c->g->n_params);
    if (c->g->loss == ZX_NONE) return ZX_BROKEN(c, "the graph has no loss");
    if (p->arena_bytes > p->budget)
        return ZX_BROKEN(c, "the plan takes %" PRIu64 " bytes, its budget is %" PRIu64,
                         p->arena_bytes, p->budget);
    return ZX_OK;
}

// ---- 2: units
// ---------------------------------------------------------------------------------------------

static zx_status check_unit_slot(const zx_check *c, uint32_t u, uint32_t slot, uint32_t kind,
                                 bool wanted, uint32_t whole, uint32_t size, const char *what)
{
    const zx_plan *p = c->p;
    if (!wanted && slot == ZX_NONE) return ZX_OK;
    if (!wanted || slot == ZX_NONE || p->slots[slot].kind != kind || p->slots[slot].what != u)
        return ZX_BROKEN(c, "parameter '%s' has %s slot for its %s", param_name(c, u),
                         wanted ? "no" : "a", what);
    const uint64_t elements = (uint64_t)p->units[u].shard * (whole ? p->ranks : 1);
    if (p->slots[slot].bytes != elements * size)
        return ZX_BROKEN(c, "parameter '%s' has %" PRIu64 " bytes for its %s, it needs %" PRIu64,
                         param_name(c, u), p->slots[slot].bytes, what, elements * size);
    return ZX_OK;
}

// Bytes of an element of the gradient that a step makes.
static uint32_t made_bytes(const zx_check *c, uint32_t u)
{
    const uint32_t v = zx_param_trained(c->g, u) ? c->g->params[u].grad : c->g->params[u].value;
    return (uint32_t)zx_dtype_bytes(c->g->values[v].type.dtype);
}

// Accumulators are never shorter than what is added to them.
static zx_status check_elements(const zx_check *c, uint32_t i)
{
    const zx_unit *u = &c->p->units[i];
    const size_t size = zx_dtype_bytes(c->g->values[c->g->params[i].value].type.dtype);
    if (u->param_bytes != size || (size != 2 && size != 4))
        return ZX_BROKEN(c,
                         "parameter '%s' has elements of %u bytes in the plan, of %zu in the "
                         "graph",
                         param_name(c, i), u->param_bytes, size);
    if (u->grad_bytes != 4 && (u->grad_bytes != 2 || made_bytes(c, i) != 2))
        return ZX_BROKEN(c, "the gradient of '%s' is accumulated in elements of %u bytes",
                         param_name(c, i), u->grad_bytes);
    return ZX_OK;
}

static zx_status check_units(const zx_check *c)
{
    const zx_plan *p = c->p;
    for (uint32_t i = 0; i < p->n_units; i++) {
        const zx_unit *u = &p->units[i];
        const zx_param *param = &c->g->params[i];
        const int64_t n = zx_shape_count(&c->g->values[param->value].type.shape);
        const int64_t shard = n / p->ranks + (n % p->ranks != 0);
        if (u->param != i || u->numel != n || u->shard != shard)
            return ZX_BROKEN(c,
                             "unit %u has %" PRId64 " elements in shards of %" PRId64
                             "; parameter '%s' has %" PRId64 " in shards of %" PRId64,
                             i, u->numel, u->shard, param_name(c, i), n, shard);
        if (u->param_whole != (p->stage < 3 || p->ranks == 1) || u->grad_whole != (p->stage < 2) ||
            u->state_whole != (p->stage < 1))
            return ZX_BROKEN(c, "parameter '%s' is not held as stage %u says", param_name(c, i),
                             p->stage);
        ZX_TRY(check_elements(c, i));
        const bool trained = param->grad != ZX_NONE;
        ZX_TRY(check_unit_slot(c, i, u->param_slot, ZX_SLOT_PARAM, true, u->param_whole,
                               u->param_bytes, "values"));
        ZX_TRY(check_unit_slot(c, i, u->grad_slot, ZX_SLOT_GRAD, trained, u->grad_whole,
                               u->grad_bytes, "gradient"));
        ZX_TRY(check_unit_slot(c, i, u->master_slot, ZX_SLOT_MASTER, trained && u->param_bytes == 2,
                               u->state_whole, 4, "f32 copy"));
        for (uint32_t k = 0; k < 2; k++)
            ZX_TRY(check_unit_slot(c, i, u->state_slot[k], ZX_SLOT_STATE,
                                   trained && k < p->optimizer_states, u->state_whole, 4,
                                   "optimizer state"));
        if (u->state_slot[0] != ZX_NONE && u->state_slot[0] == u->state_slot[1])
            return ZX_BROKEN(c, "parameter '%s' has one slot for two optimizer states",
                             param_name(c, i));
    }
    return ZX_OK;
}

// ---- 3: slots
// ---------------------------------------------------------------------------------------------

// Of a flat slot: a row a rank, each with a shard of every member.
static uint64_t flat_bytes(const zx_check *c, uint32_t launch)
{
    const zx_launch *l = &c->p->launches[launch];
    const zx_member *last = &c->p->members[l->member + l->n_members - 1];
    const uint32_t size =
        c->reduces[launch] ? made_bytes(c, last->unit) : c->p->units[last->unit].param_bytes;
    uint64_t row, bytes;
    if (!zx_add_u64(last->at, (uint64_t)c->p->units[last->unit].shard, &row) ||
        !zx_mul_u64(row, (uint64_t)size * c->p->ranks, &bytes))
        return UINT64_MAX; // which is no slot's
    return bytes;
}

// The bytes of what a slot is for, into *bytes; false where there is no such thing.
static bool slot_wants(const zx_check *c, uint32_t i, uint64_t *bytes)
{
    const zx_plan *p = c->p;
    const zx_graph *g = c->g;
    const zx_slot *s = &p->slots[i];
    *bytes = s->bytes;
    switch ((zx_slot_kind)s->kind) {
    case ZX_SLOT_PARAM:
        return p->units[s->what].param_slot == i;
    case ZX_SLOT_GRAD:
        return p->units[s->what].grad_slot == i;
    case ZX_SLOT_STATE:
        return p->units[s->what].state_slot[0] == i || p->units[s->what].state_slot[1] == i;
    case ZX_SLOT_BUFFER:
    case ZX_SLOT_WORKING:
        if (s->what >= g->n_buffers) return false;
        *bytes = zx_type_bytes(&g->values[g->buffers[s->what].value].type);
        return true;
    case ZX_SLOT_INPUT:
        if (s->what >= g->n_inputs) return false;
        *bytes = zx_type_bytes(&g->values[g->inputs[s->what]].type);
        return true;
    case ZX_SLOT_UNIT:
        *bytes = zx_unit_room(p, &p->units[s->what], 1) * p->units[s->what].param_bytes;
        return true;
    case ZX_SLOT_CONST:
    case ZX_SLOT_VALUE:
        if (s->what >= g->n_values) return false;
        if ((s->kind == ZX_SLOT_CONST) != (g->values[s->what].role == ZX_R_CONST)) return false;
        *bytes = zx_type_bytes(&g->values[s->what].type);
        return true;
    case ZX_SLOT_WORK:
        return true;
    case ZX_SLOT_MASTER:
        return p->units[s->what].master_slot == i;
    case ZX_SLOT_FLAT:
        if (p->launches[s->what].flat != i) return false;
        *bytes = flat_bytes(c, s->what);
        return true;
    case ZX_SLOT_PART:
        if (!zx_param_trained(g, s->what)) return false;
        *bytes = zx_unit_room(p, &p->units[s->what], 1) * made_bytes(c, s->what);
        return true;
    case ZX_SLOT_BUCKET:
        return s->what == 0;
    case ZX_SLOT_HELD:
        break;
    }
    return false;
}

typedef struct extent {
    uint64_t from, to;
    uint32_t slot, kind;
} extent;

static int by_from(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1; // a bucket before its parts
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

// In order of address: a held slot meets neither the held nor the furthest of the others before it,
// and the bucket that reaches furthest ends after a part that begins in one.
static zx_status check_places(const zx_check *c)
{
    const zx_plan *p = c->p;
    extent *list = ZX_NEW(c->mem, extent, p->n_slots);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        if (s->bytes > 0) list[n++] = (extent){s->offset, s->offset + s->bytes, i, s->kind};
    }
    qsort(list, n, sizeof *list, by_from);
    const extent *held = NULL, *any = NULL, *bucket = NULL; // those so far that reach furthest
    for (uint32_t i = 0; i < n; i++) {
        const bool is_held = list[i].kind < ZX_SLOT_HELD;
        const extent *before = is_held ? any : held;
        if (before && before->to > list[i].from)
            return ZX_BROKEN(c, "%s and %s share bytes; one of them lives across steps",
                             zx_check_slot_text(c, before->slot),
                             zx_check_slot_text(c, list[i].slot));
        if (!any || list[i].to > any->to) any = &list[i];
        if (is_held && (!held || list[i].to > held->to)) held = &list[i];
        if (list[i].kind == ZX_SLOT_BUCKET && (!bucket || list[i].to > bucket->to))
            bucket = &list[i];
        if (list[i].kind == ZX_SLOT_PART && (!bucket || bucket->to < list[i].to))
            return ZX_BROKEN(c, "%s lies in no bucket", zx_check_slot_text(c, list[i].slot));
    }
    return ZX_OK;
}

static zx_status check_slots(zx_check *c)
{
    const zx_plan *p = c->p;
    uint64_t top = 0, held = 0;
    for (uint32_t b = 0; b < c->g->n_buffers; b++) c->buffer_slot[b] = c->working_slot[b] = ZX_NONE;
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const zx_slot *s = &p->slots[i];
        uint64_t bytes, end;
        if (!slot_wants(c, i, &bytes))
            return ZX_BROKEN(c, "slot %u is for nothing that there is (kind %u, %u)", i, s->kind,
                             s->what);
        if (bytes != s->bytes)
            return ZX_BROKEN(c, "%s should have %" PRIu64 " bytes", zx_check_slot_text(c, i),
                             bytes);
        if (s->offset % ZX_ALIGN != 0)
            return ZX_BROKEN(c, "%s is not aligned to %d", zx_check_slot_text(c, i), ZX_ALIGN);
        if (!zx_add_u64(s->offset, s->bytes, &end) || end > p->arena_bytes)
            return ZX_BROKEN(c, "%s ends after the reservation of %" PRIu64 " bytes",
                             zx_check_slot_text(c, i), p->arena_bytes);
        if (s->bytes > 0 && end > top) top = end;
        if (s->kind < ZX_SLOT_HELD && !zx_add_u64(held, s->bytes, &held))
            return ZX_BROKEN(c, "the held slots' bytes overflow");
        if (s->kind == ZX_SLOT_BUFFER || s->kind == ZX_SLOT_WORKING) {
            uint32_t *one = s->kind == ZX_SLOT_BUFFER ? c->buffer_slot : c->working_slot;
            if (one[s->what] != ZX_NONE)
                return ZX_BROKEN(c, "buffer '%s' has two slots of a kind", buffer_name(c, s->what));
            one[s->what] = i;
        }
    }
    for (uint32_t b = 0; b < c->g->n_buffers; b++)
        if (c->buffer_slot[b] == ZX_NONE || c->working_slot[b] == ZX_NONE)
            return ZX_BROKEN(c, "buffer '%s' has no slot", buffer_name(c, b));
    if (top != p->arena_bytes || held != p->held_bytes)
        return ZX_BROKEN(c,
                         "the slots end at %" PRIu64 " and hold %" PRIu64
                         " bytes across steps, the plan says %" PRIu64 " and %" PRIu64,
                         top, held, p->arena_bytes, p->held_bytes);
    return check_places(c);
}

// ---- 4: launches and steps
// --------------------------------------------------------------------------------

static zx_status check_members(const zx_check *c)
{
    const zx_plan *p = c->p;
    for (uint32_t i = 0; i < p->n_members; i++)
        if (p->units[p->members[i].unit].numel == 0)
            return ZX_BROKEN(c, "parameter '%s' has no elements, but is in a launch",
                             param_name(c, p->members[i].unit));
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const zx_launch *l = &p->launches[i];
        uint64_t at = 0;
        for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
            const zx_member *m = &p->members[k];
            if (m->at != at)
                return ZX_BROKEN(c,
                                 "launch %u: '%s' is at element %" PRIu64
                                 " of a row, those before it end at %" PRIu64,
                                 i, param_name(c, m->unit), m->at, at);
            if (!zx_add_u64(at, (uint64_t)p->units[m->unit].shard, &at))
                return ZX_BROKEN(c, "the elements of launch %u overflow", i);
        }
    }
    return ZX_OK;
}

// What goes through a flat slot, once slots are known to be sound.
static zx_status check_flat(const zx_check *c, uint32_t i)
{
    const zx_plan *p = c->p;
    const zx_launch *l = &p->launches[i];
    const uint32_t first = p->members[l->member].unit;
    if (l->flat != ZX_NONE) {
        if (p->slots[l->flat].kind != ZX_SLOT_FLAT)
            return ZX_BROKEN(c, "launch %u goes through no flat slot", i);
        if (p->slots[l->flat].bytes != flat_bytes(c, i))
            return ZX_BROKEN(c, "launch %u goes through %s, it needs %" PRIu64 " bytes", i,
                             zx_check_slot_text(c, l->flat), flat_bytes(c, i));
    }
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *m = &p->members[k];
        const bool alike = c->reduces[i]
                               ? made_bytes(c, m->unit) == made_bytes(c, first)
                               : p->units[m->unit].param_bytes == p->units[first].param_bytes;
        if (l->flat != ZX_NONE && !alike)
            return ZX_BROKEN(c, "launch %u: elements of '%s' and '%s' differ in size", i,
                             param_name(c, first), param_name(c, m->unit));
        if (m->part == ZX_NONE) continue;
        if (l->flat == ZX_NONE || !c->reduces[i] || p->slots[m->part].kind != ZX_SLOT_PART ||
            p->slots[m->part].what != m->unit)
            return ZX_BROKEN(c, "launch %u: '%s' has a part of the bucket that isn't for it", i,
                             param_name(c, m->unit));
    }
    return ZX_OK;
}

static zx_status check_launches(const zx_check *c)
{
    for (uint32_t i = 0; i < c->p->n_launches; i++) ZX_TRY(check_flat(c, i));
    return ZX_OK;
}

static const bool *find_reduces(const zx_check *c)
{
    const zx_plan *p = c->p;
    bool *reduces = ZX_NEW(c->mem, bool, p->n_launches);
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if (in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE) reduces[in->a] = true;
    }
    return reduces;
}

static zx_status check_steps(const zx_check *c)
{
    const zx_plan *p = c->p;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const zx_plan_step *t = &p->steps[i];
        if (t->node >= c->g->n_nodes)
            return ZX_BROKEN(c, "step %u is of no node or micro-batch", i);
        const zx_node *n = &c->g->nodes[t->node];
        const char *name = zx_text_safe(c->mem, n->name);
        if (!zx_node_runs(n))
            return ZX_BROKEN(c, "step %u executes '%s', which is a view", i, name);
        if (t->n_in != n->n_in || t->n_out != n->n_out)
            return ZX_BROKEN(c, "step %u has %u inputs and %u outputs, node '%s' has %u and %u", i,
                             t->n_in, t->n_out, name, n->n_in, n->n_out);
        for (uint32_t k = 0; k < t->n_in + t->n_out; k++) {
            const uint32_t slot = p->args[t->arg + k];
            const bool is_in = k < t->n_in;
            const uint32_t v = is_in ? zx_node_in(c->g, n, k) : zx_node_out(c->g, n, k - t->n_in);
            if ((slot != ZX_NONE && v == ZX_NONE) ||
                (slot == ZX_NONE && v != ZX_NONE && (is_in || k == t->n_in)))
                return ZX_BROKEN(c, "step %u: %s %u of node '%s' is %s", i,
                                 is_in ? "input" : "output", is_in ? k : k - t->n_in, name,
                                 slot == ZX_NONE ? "missing" : "omitted, but has a slot");
        }
    }
    return ZX_OK;
}

// ---- 5 and 6: instructions and events
// ---------------------------------------------------------------------

#define ON(stream) (1u << ZX_S_##stream)
#define ANY ((1u << ZX_STREAM_COUNT) - 1)
static const uint8_t streams_of[ZX_INSN_COUNT] = {
    [ZX_I_FEED] = ON(COMPUTE),
    [ZX_I_GATHER] = ON(GATHER),
    [ZX_I_PACK] = ON(COPY) | ON(BUCKET), // of a gather, of a reduce
    [ZX_I_UNPACK] = ON(COPY),
    [ZX_I_BUCKET] = ON(BUCKET),
    [ZX_I_HOOK] = ON(COMPUTE),
    [ZX_I_EXEC] = ON(COMPUTE),
    [ZX_I_REDUCE] = ON(REDUCE) | ON(GATHER),
    [ZX_I_ALLREDUCE] = ON(REDUCE) | ON(GATHER),
    [ZX_I_FREE] = ON(COMPUTE),
    [ZX_I_MARK] = ANY,
    [ZX_I_WAIT] = ANY,
    [ZX_I_LOSS] = ON(COMPUTE),
    [ZX_I_NORM] = ON(COMPUTE),
    [ZX_I_UPDATE] = ON(COMPUTE),
    [ZX_I_COMMIT] = ON(COMPUTE),
};
#undef ON
#undef ANY

static zx_status check_insns(const zx_check *c)
{
    const zx_plan *p = c->p;
    uint32_t *by =
        ZX_NEW(c->mem, uint32_t, p->n_events); // the instruction that makes it happen, plus one
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        if ((streams_of[in->id] >> in->stream & 1) == 0)
            return ZX_BROKEN(c, "instruction %u (%s) is on the wrong stream", i,
                             zx_insn_rows[in->id].word);
        if (in->id == ZX_I_COMMIT && in->a >= c->g->n_buffers)
            return ZX_BROKEN(c, "instruction %u (%s): operand a is out of range (%u)", i,
                             zx_insn_rows[in->id].word, in->a);
        if (in->c == ZX_NONE) continue;
        if (by[in->c] != 0)
            return ZX_BROKEN(c, "event %u happens twice: %s and %s", in->c,
                             zx_check_insn_text(c, by[in->c] - 1), zx_check_insn_text(c, i));
        by[in->c] = i + 1;
    }
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id == ZX_I_WAIT && by[p->insns[i].a] == 0)
            return ZX_BROKEN(c, "%s waits for event %u, which never happens",
                             zx_check_insn_text(c, i), p->insns[i].a);
    return ZX_OK;
}

// ---- all of it
// --------------------------------------------------------------------------------------------

static zx_status check_all(zx_check *c)
{
    ZX_TRY(check_numbers(c));
    ZX_TRY(zx_plan_bounds(c->p, c->err));
    const zx_graph *g = c->g;
    c->root = zx_trace_roots(g, c->mem);
    uint32_t *next_of = ZX_NEW(c->mem, uint32_t, g->n_values);
    for (uint32_t v = 0; v < g->n_values; v++) next_of[v] = ZX_NONE;
    for (uint32_t b = 0; b < g->n_buffers; b++) {
        const zx_buffer *x = &g->buffers[b];
        if (x->next != ZX_NONE && g->values[c->root[x->next]].role == ZX_R_MADE)
            next_of[c->root[x->next]] = b;
    }
    c->next_of = next_of;
    c->buffer_slot = ZX_NEW(c->mem, uint32_t, g->n_buffers);
    c->working_slot = ZX_NEW(c->mem, uint32_t, g->n_buffers);
    c->reduces = find_reduces(c);
    ZX_TRY(check_units(c));
    ZX_TRY(check_members(c));
    ZX_TRY(check_slots(c));
    ZX_TRY(check_launches(c));
    ZX_TRY(check_steps(c));
    ZX_TRY(check_insns(c));
    return zx_check_run(c);
}

zx_status zx_plan_check(const zx_graph *train, const zx_plan *p, zx_err *err)
{
    zx_arena mem = {0};
    zx_check c = {.g = train, .p = p, .mem = &mem, .err = err};
    const zx_status st = check_all(&c);
    zx_arena_free(&mem);
    return st;
}

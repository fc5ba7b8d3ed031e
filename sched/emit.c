// emit.c - turns a schedule into a Plan: slots, launches and steps; the instructions are
// emit_insns.c's.
// SPDX-License-Identifier: Apache-2.0
#include "sched/emit.h"

#include <string.h>

// ---- slots --------------------------------------------------------------------------------------

static uint32_t add_slot(zx_emitter *e, uint32_t kind, uint32_t what, uint64_t bytes,
                         uint64_t offset)
{
    ZX_GROW(e->mem, e->slots, e->p->n_slots, e->cap_slots);
    e->slots[e->p->n_slots] = (zx_slot){offset, bytes, kind, what};
    return e->p->n_slots++;
}

static uint32_t add_held(zx_emitter *e, uint32_t kind, uint32_t what, uint64_t bytes, uint64_t *end)
{
    const uint32_t s = add_slot(e, kind, what, bytes, *end);
    *end += zx_align_up(bytes, ZX_ALIGN);
    e->p->held_bytes += bytes;
    return s;
}

static uint64_t room(const zx_plan_options *o, const zx_unit *u, uint32_t whole, uint32_t size)
{
    return (uint64_t)u->shard * (whole != 0 ? o->ranks : 1) * size;
}

static void make_unit(const zx_emitter *e, uint32_t i)
{
    const zx_graph *g = e->t->graph;
    const zx_plan_options *o = e->o;
    const zx_type *type = &g->values[g->params[i].value].type;
    const int64_t n = zx_shape_count(&type->shape);
    const uint32_t size = (uint32_t)zx_dtype_bytes(type->dtype);
    e->units[i] = (zx_unit){.param = i,
                            .grad_slot = ZX_NONE,
                            .state_slot = {ZX_NONE, ZX_NONE},
                            .master_slot = ZX_NONE,
                            .param_whole = o->stage < 3 || o->ranks == 1,
                            .grad_whole = o->stage < 2,
                            .state_whole = o->stage < 1,
                            .param_bytes = size,
                            .grad_bytes = o->accumulate_bytes != 0 ? o->accumulate_bytes : size,
                            .numel = n,
                            .shard = n / o->ranks + (n % o->ranks != 0)};
}

static uint64_t add_held_slots(zx_emitter *e)
{
    const zx_trace *t = e->t;
    const zx_graph *g = t->graph;
    const zx_plan_options *o = e->o;
    uint64_t end = 0;
    for (uint32_t i = 0; i < g->n_params; i++) {
        zx_unit *u = &e->units[i];
        make_unit(e, i);
        u->param_slot =
            add_held(e, ZX_SLOT_PARAM, i, room(o, u, u->param_whole, u->param_bytes), &end);
    }
    for (uint32_t i = 0; i < g->n_params; i++) {
        zx_unit *u = &e->units[i];
        if (g->params[i].grad != ZX_NONE)
            u->grad_slot =
                add_held(e, ZX_SLOT_GRAD, i, room(o, u, u->grad_whole, u->grad_bytes), &end);
    }
    for (uint32_t i = 0; i < g->n_params; i++) { // 16-bit parameters are trained in 32
        zx_unit *u = &e->units[i];
        if (g->params[i].grad != ZX_NONE && u->param_bytes < sizeof(float))
            u->master_slot =
                add_held(e, ZX_SLOT_MASTER, i, room(o, u, u->state_whole, sizeof(float)), &end);
    }
    for (uint32_t k = 0; k < o->optimizer_states; k++)
        for (uint32_t i = 0; i < g->n_params; i++) {
            zx_unit *u = &e->units[i];
            if (g->params[i].grad != ZX_NONE)
                u->state_slot[k] =
                    add_held(e, ZX_SLOT_STATE, i, room(o, u, u->state_whole, sizeof(float)), &end);
        }
    for (uint32_t b = 0; b < g->n_buffers; b++) {
        const uint64_t bytes = zx_type_bytes(&g->values[g->buffers[b].value].type);
        add_held(e, ZX_SLOT_BUFFER, b, bytes, &end);
        e->slot_of_working[b] = add_held(e, ZX_SLOT_WORKING, b, bytes, &end);
    }
    for (uint32_t c = 0; c < t->n_consts; c++)
        e->slot_of_const[c] = add_held(e, ZX_SLOT_CONST, t->consts[c],
                                       zx_type_bytes(&g->values[t->consts[c]].type), &end);
    return end;
}

static void start(zx_emitter *e, const zx_trace *t, const zx_plan_options *o, zx_arena *mem,
                  zx_plan *p)
{
    *e = (zx_emitter){.t = t, .o = o, .mem = mem, .p = p};
    e->units = ZX_NEW(mem, zx_unit, t->graph->n_params + 1);
    e->slot_of_working = ZX_NEW(mem, uint32_t, t->graph->n_buffers + 1);
    e->slot_of_const = ZX_NEW(mem, uint32_t, t->n_consts + 1);
}

uint64_t zx_held_bytes(const zx_trace *t, const zx_plan_options *o)
{
    zx_arena mem = {0};
    zx_plan p = {0};
    zx_emitter e;
    start(&e, t, o, &mem, &p);
    const uint64_t end = add_held_slots(&e);
    zx_arena_free(&mem);
    return end;
}

static void add_spans(zx_emitter *e, uint64_t held)
{
    const zx_schedule *s = e->s;
    const zx_trace *t = e->t;
    for (uint32_t i = 0; i < t->n_storages; i++)
        e->slot_of_storage[i] =
            s->made_in[i] != ZX_NONE ? e->units[s->made_in[i]].grad_slot : ZX_NONE;
    for (uint32_t i = 0; i < t->n_steps; i++) e->slot_of_work[i] = ZX_NONE;
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const zx_span *x = &s->spans[i];
        const uint64_t at = held + x->offset;
        const zx_storage *made = x->kind == ZX_SPAN_STORAGE ? &t->storages[x->index] : NULL;
        switch ((zx_span_kind)x->kind) {
        case ZX_SPAN_STORAGE:
            e->slot_of_span[i] = e->slot_of_storage[x->index] =
                made->input != ZX_NONE ? add_slot(e, ZX_SLOT_INPUT, made->input, x->bytes, at)
                                       : add_slot(e, ZX_SLOT_VALUE, made->value, x->bytes, at);
            break;
        case ZX_SPAN_WORK:
            e->slot_of_work[x->index] = add_slot(e, ZX_SLOT_WORK, x->index, x->bytes, at);
            break;
        case ZX_SPAN_STAY: // index: the unit
            e->slot_of_span[i] = add_slot(e, ZX_SLOT_UNIT, x->index, x->bytes, at);
            break;
        case ZX_SPAN_FLAT: // `what` is set with its first launch
            e->slot_of_span[i] = add_slot(e, ZX_SLOT_FLAT, ZX_NONE, x->bytes, at);
            break;
        case ZX_SPAN_BUCKET:
            e->bucket = add_slot(e, ZX_SLOT_BUCKET, 0, x->bytes, at);
            break;
        }
    }
    for (uint32_t i = 0; i < t->n_storages; i++) { // values without bytes
        const zx_storage *x = &t->storages[i];
        if (e->slot_of_storage[i] == ZX_NONE)
            e->slot_of_storage[i] = x->input != ZX_NONE
                                        ? add_slot(e, ZX_SLOT_INPUT, x->input, x->bytes, held)
                                        : add_slot(e, ZX_SLOT_VALUE, x->value, x->bytes, held);
    }
}

static void add_slots(zx_emitter *e)
{
    const zx_trace *t = e->t;
    const uint64_t held = add_held_slots(e);
    e->slot_of_storage = ZX_NEW(e->mem, uint32_t, t->n_storages + 1);
    e->slot_of_work = ZX_NEW(e->mem, uint32_t, t->n_steps + 1);
    e->slot_of_span = ZX_NEW(e->mem, uint32_t, e->s->n_spans + 1);
    e->bucket = ZX_NONE;
    add_spans(e, held);
}

// The slot of a value as step `step` of a micro-batch reads it.
static uint32_t slot_of(const zx_emitter *e, uint32_t value, uint32_t micro, uint32_t step)
{
    const zx_trace *t = e->t;
    const zx_where w = t->where[value];
    switch ((zx_where_kind)w.kind) {
    case ZX_AT_STORAGE:
        if (e->s->grad_row[w.index] == ZX_NONE) return e->slot_of_storage[w.index];
        return e->slot_of_span[e->s->grad_spans[(size_t)e->s->grad_row[w.index] * t->micro_batches +
                                                micro]];
    case ZX_AT_CONST:
        return e->slot_of_const[w.index];
    case ZX_AT_BUFFER:
        return e->slot_of_working[w.index];
    case ZX_AT_UNIT:
        if (e->units[w.index].param_whole || e->units[w.index].numel == 0)
            return e->units[w.index].param_slot;
        for (uint32_t i = t->use_at[step]; i < t->use_at[step + 1]; i++)
            if (t->uses[i].unit == w.index)
                return e
                    ->slot_of_span[e->s->holds[e->s->reads[(size_t)micro * t->n_uses + i]].span];
        zx_bug(__FILE__, __LINE__, "a step reads a unit without a use");
    case ZX_AT_NOWHERE:
        break;
    }
    return ZX_NONE;
}

uint32_t zx_emit_loss_slot(const zx_emitter *e, uint32_t micro)
{
    return slot_of(e, e->t->graph->loss, micro, e->t->loss_ready);
}

// ---- steps --------------------------------------------------------------------------------------

// Whether an operand of a step may lie elsewhere in another micro-batch.
static bool moves(const zx_emitter *e, uint32_t s)
{
    const zx_trace *t = e->t;
    const zx_node *x = &t->graph->nodes[t->node[s]];
    if (!e->s->whole_params && t->use_at[s] < t->use_at[s + 1]) return true;
    for (uint32_t i = 0; i < x->n_in + x->n_out; i++) {
        const uint32_t v =
            i < x->n_in ? zx_node_in(t->graph, x, i) : zx_node_out(t->graph, x, i - x->n_in);
        if (v == ZX_NONE || t->where[v].kind != ZX_AT_STORAGE) continue;
        if (e->s->grad_row[t->where[v].index] != ZX_NONE) return true;
    }
    return false;
}

// A step has the operands of the same step in the micro-batch before, unless one lies elsewhere.
static void add_steps(zx_emitter *e)
{
    const zx_trace *t = e->t;
    const zx_graph *g = t->graph;
    const uint32_t n = t->n_steps;
    zx_plan_step *steps = ZX_NEW(e->mem, zx_plan_step, (size_t)n * t->micro_batches);
    uint32_t *args = NULL, n_args = 0, cap = 0;
    for (uint32_t m = 0; m < t->micro_batches; m++)
        for (uint32_t s = 0; s < n; s++) {
            const zx_node *x = &g->nodes[t->node[s]];
            zx_plan_step *step = &steps[m * n + s];
            if (m > 0 && !moves(e, s)) {
                *step = steps[s];
                step->micro = m;
                continue;
            }
            *step = (zx_plan_step){t->node[s], m, n_args, x->n_in, x->n_out, e->slot_of_work[s]};
            for (uint32_t i = 0; i < x->n_in + x->n_out; i++) {
                const uint32_t v =
                    i < x->n_in ? zx_node_in(g, x, i) : zx_node_out(g, x, i - x->n_in);
                ZX_GROW(e->mem, args, n_args, cap);
                args[n_args++] = v == ZX_NONE ? ZX_NONE : slot_of(e, v, m, s);
            }
            if (m == 0) continue;
            const zx_plan_step *was = step - n;
            if (memcmp(args + was->arg, args + step->arg, (x->n_in + x->n_out) * sizeof *args) != 0)
                continue;
            n_args = step->arg;
            step->arg = was->arg;
        }
    e->p->steps = steps;
    e->p->args = args;
    e->p->n_steps = n * t->micro_batches;
    e->p->n_args = n_args;
}

// ---- launches -----------------------------------------------------------------------------------

uint32_t zx_emit_open_launch(zx_emitter *e)
{
    ZX_GROW(e->mem, e->launches, e->p->n_launches, e->cap_launches);
    e->launches[e->p->n_launches] = (zx_launch){e->p->n_members, 0, ZX_NONE};
    return e->p->n_launches++;
}

void zx_emit_add_member(zx_emitter *e, uint32_t unit, uint32_t slot, uint32_t part)
{
    zx_launch *l = &e->launches[e->p->n_launches - 1];
    ZX_GROW(e->mem, e->members, e->p->n_members, e->cap_members);
    const zx_member *last = &e->members[e->p->n_members] - 1;
    const uint64_t at = l->n_members == 0 ? 0 : last->at + (uint64_t)e->units[last->unit].shard;
    e->members[e->p->n_members++] = (zx_member){unit, slot, part, 0, at};
    l->n_members++;
}

// Where a gradient of the launch that is being made lies in the bucket.
static uint32_t part_slot(zx_emitter *e, uint32_t unit)
{
    const zx_launch *l = &e->launches[e->p->n_launches - 1];
    const zx_member *last = &e->members[e->p->n_members] - 1;
    const zx_unit *u = &e->units[unit];
    uint64_t offset = e->slots[e->bucket].offset;
    if (l->n_members > 0)
        offset = zx_align_up(e->slots[last->part].offset + e->slots[last->part].bytes, ZX_ALIGN);
    uint32_t *slot = &e->part_of[unit];
    if (*slot == ZX_NONE || e->slots[*slot].offset != offset)
        *slot = add_slot(e, ZX_SLOT_PART, unit, room(e->o, u, 1, u->param_bytes), offset);
    return *slot;
}

static bool same_members(const zx_emitter *e, const zx_launch *a, const zx_launch *b)
{
    return a->n_members == b->n_members && a->flat == b->flat &&
           memcmp(e->members + a->member, e->members + b->member,
                  a->n_members * sizeof *e->members) == 0;
}

// Equal launches, of other micro-batches mostly, are one row.
static uint32_t close_launch(zx_emitter *e)
{
    const uint32_t row = e->p->n_launches - 1;
    const zx_launch *l = &e->launches[row];
    uint32_t h = 2166136261u;
    for (uint32_t i = 0; i < l->n_members; i++) {
        const zx_member *m = &e->members[l->member + i];
        h = (h ^ m->unit) * 16777619u;
        h = (h ^ m->slot) * 16777619u;
    }
    for (;; h++) {
        uint32_t *at = &e->rows[h & (e->n_rows - 1)];
        if (*at == ZX_NONE) {
            *at = row;
            return row;
        }
        if (!same_members(e, &e->launches[*at], l)) continue;
        e->p->n_members = l->member;
        e->p->n_launches--;
        return *at;
    }
}

static void add_launches(zx_emitter *e)
{
    const zx_schedule *s = e->s;
    const zx_graph *g = e->t->graph;
    e->n_rows = 16;
    while (e->n_rows < 4 * s->n_transfers) e->n_rows *= 2;
    e->rows = ZX_NEW(e->mem, uint32_t, e->n_rows);
    for (uint32_t i = 0; i < e->n_rows; i++) e->rows[i] = ZX_NONE;
    e->part_of = ZX_NEW(e->mem, uint32_t, g->n_params + 1);
    for (uint32_t u = 0; u < g->n_params; u++) e->part_of[u] = ZX_NONE;
    e->row_of = ZX_NEW(e->mem, uint32_t, s->n_transfers + 1);
    for (uint32_t i = 0; i < s->n_transfers; i++) {
        const zx_transfer *x = &s->transfers[i];
        const uint32_t row = zx_emit_open_launch(e);
        if (x->flat) e->launches[row].flat = e->slot_of_span[x->span];
        for (uint32_t k = 0; k < x->n; k++) {
            if (!x->reduce) {
                const zx_hold *h = &s->holds[x->first + k];
                zx_emit_add_member(e, h->unit, e->slot_of_span[h->span], ZX_NONE);
                continue;
            }
            const zx_gradient *d = &s->gradients[x->first + k];
            const uint32_t part = x->bucket ? part_slot(e, d->unit) : ZX_NONE;
            zx_emit_add_member(
                e, d->unit, slot_of(e, g->params[d->unit].grad, d->micro, e->t->n_steps - 1), part);
        }
        e->row_of[i] = close_launch(e);
        if (x->flat && e->slots[e->slot_of_span[x->span]].what == ZX_NONE)
            e->slots[e->slot_of_span[x->span]].what = e->row_of[i];
    }
}

static void measure(zx_emitter *e)
{
    for (uint32_t i = 0; i < e->p->n_slots; i++) {
        const uint64_t end = e->slots[i].offset + e->slots[i].bytes;
        if (e->slots[i].bytes > 0 && end > e->p->arena_bytes) e->p->arena_bytes = end;
    }
}

void zx_schedule_emit(const zx_schedule *s, zx_arena *mem, zx_plan *out)
{
    const zx_trace *t = s->trace;
    const zx_plan_options *o = s->options;
    *out = (zx_plan){.ranks = o->ranks,
                     .stage = o->stage,
                     .micro_batches = t->micro_batches,
                     .optimizer_states = o->optimizer_states,
                     .n_units = t->graph->n_params,
                     .graph_hash = zx_graph_hash(t->graph),
                     .budget = o->budget};
    memcpy(out->policy, s->policy, sizeof out->policy);
    zx_emitter e;
    start(&e, t, o, mem, out);
    e.s = s;
    add_slots(&e);
    add_launches(&e);
    add_steps(&e);
    zx_emit_insns(&e);
    measure(&e);
    out->insns = e.insns;
    out->slots = e.slots;
    out->units = e.units;
    out->launches = e.launches;
    out->members = e.members;
}

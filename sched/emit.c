// emit.c - turns a draft into a Plan: slots, launches, instructions and events, micro-batch by
// micro-batch.
//
// Compute is the clock. What happens at the boundary before step p, in this order: reduces whose
// last contribution is there are issued; compute waits for the reduces whose bytes are given away
// here; units that were read for the last time are freed; gathers are issued. What a transfer
// overwrites is therefore done with once compute has passed the mark that the transfer waits for.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <stdlib.h>

typedef struct sending {  // one execution of a gather launch
    int64_t issue, first; // boundary it is issued at, step that reads it
    uint32_t launch, event;
} sending;

typedef struct timed { // something that happens at a boundary
    int64_t at;
    uint32_t what, step;
} timed;

typedef struct emitter {
    const zx_draft *d;
    zx_arena *mem;
    zx_plan *p;
    zx_insn *insns;
    zx_slot *slots;
    zx_unit *units;
    zx_launch *launches;
    zx_member *members;
    uint32_t cap_insns, cap_launches, cap_members;
    uint32_t *slot_of_storage, *slot_of_const, *slot_of_working, *slot_of_stay, *slot_of_work;
    uint32_t *stay_of_use;
    uint32_t first_reduce; // launch rows of the reduces begin here
    uint32_t n_sendings, n_frees;
    sending *sendings; // by issue
    timed *frees;      // slots, by boundary
} emitter;

// ---- slots
// ------------------------------------------------------------------------------------------------

static uint32_t add_slot(emitter *e, uint32_t kind, uint32_t what, uint64_t bytes, uint64_t offset)
{
    e->slots[e->p->n_slots] = (zx_slot){offset, bytes, kind, what};
    return e->p->n_slots++;
}

static uint32_t add_held(emitter *e, uint32_t kind, uint32_t what, uint64_t bytes, uint64_t *end)
{
    const uint32_t s = add_slot(e, kind, what, bytes, *end);
    *end += zx_align_up(bytes, ZX_ALIGN);
    e->p->held_bytes += bytes;
    return s;
}

static bool buffer_changes(const zx_trace *t, uint32_t b)
{
    const zx_buffer *x = &t->graph->buffers[b];
    return x->next != ZX_NONE && t->root[x->next] != x->value;
}

static uint64_t room(const zx_plan_options *o, const zx_unit *u, uint32_t whole, uint32_t size)
{
    return (uint64_t)u->shard * (whole != 0 ? o->ranks : 1) * size;
}

static uint64_t add_held_slots(emitter *e)
{
    const zx_trace *t = e->d->trace;
    const zx_graph *g = t->graph;
    const zx_plan_options *o = e->d->options;
    uint64_t end = 0;
    for (uint32_t i = 0; i < g->n_params; i++) {
        zx_unit *u = &e->units[i];
        const zx_type *type = &g->values[g->params[i].value].type;
        const int64_t n = zx_shape_count(&type->shape);
        const uint32_t size = (uint32_t)zx_dtype_bytes(type->dtype);
        *u = (zx_unit){.param = i,
                       .grad_slot = ZX_NONE,
                       .state_slot = {ZX_NONE, ZX_NONE},
                       .param_whole = o->stage < 3 || o->ranks == 1,
                       .grad_whole = o->stage < 2,
                       .state_whole = o->stage < 1,
                       .master_slot = ZX_NONE,
                       .param_bytes = size,
                       .grad_bytes = o->accumulate_bytes != 0 ? o->accumulate_bytes : size,
                       .numel = n,
                       .shard = n / o->ranks + (n % o->ranks != 0)};
        u->param_slot =
            add_held(e, ZX_SLOT_PARAM, i, room(o, u, u->param_whole, u->param_bytes), &end);
    }
    for (uint32_t i = 0; i < g->n_params; i++) {
        zx_unit *u = &e->units[i];
        if (g->params[i].grad != ZX_NONE)
            u->grad_slot =
                add_held(e, ZX_SLOT_GRAD, i, room(o, u, u->grad_whole, u->grad_bytes), &end);
    }
    for (uint32_t k = 0; k < o->optimizer_states; k++)
        for (uint32_t i = 0; i < g->n_params; i++) {
            zx_unit *u = &e->units[i];
            if (g->params[i].grad != ZX_NONE)
                u->state_slot[k] =
                    add_held(e, ZX_SLOT_STATE, i, room(o, u, u->state_whole, 4), &end);
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

static uint32_t held_slots_most(const zx_trace *t)
{
    return 4 * t->graph->n_params + 2 * t->graph->n_buffers + t->n_consts;
}

uint64_t zx_held_bytes(const zx_trace *t, const zx_plan_options *o)
{
    zx_arena mem = {0};
    zx_plan p = {0};
    const zx_draft d = {.trace = t, .options = o};
    emitter e = {.d = &d, .p = &p};
    e.slots = ZX_NEW(&mem, zx_slot, held_slots_most(t));
    e.units = ZX_NEW(&mem, zx_unit, t->graph->n_params);
    e.slot_of_working = ZX_NEW(&mem, uint32_t, t->graph->n_buffers);
    e.slot_of_const = ZX_NEW(&mem, uint32_t, t->n_consts);
    const uint64_t end = add_held_slots(&e);
    zx_arena_free(&mem);
    return end;
}

static void add_slots(emitter *e)
{
    const zx_draft *d = e->d;
    const zx_trace *t = d->trace;
    const uint32_t most = held_slots_most(t) + t->n_storages + t->n_steps + d->n_stays;
    e->slots = ZX_NEW(e->mem, zx_slot, most);
    e->units = ZX_NEW(e->mem, zx_unit, t->graph->n_params);
    e->slot_of_working = ZX_NEW(e->mem, uint32_t, t->graph->n_buffers);
    e->slot_of_const = ZX_NEW(e->mem, uint32_t, t->n_consts);
    const uint64_t held = add_held_slots(e);
    uint64_t *storage_at = ZX_NEW(e->mem, uint64_t, t->n_storages);
    uint64_t *stay_at = ZX_NEW(e->mem, uint64_t, d->n_stays);
    uint64_t *work_at = ZX_NEW(e->mem, uint64_t, t->n_steps);
    uint64_t *const at[] = {
        [ZX_SPAN_STORAGE] = storage_at, [ZX_SPAN_STAY] = stay_at, [ZX_SPAN_WORK] = work_at};
    for (uint32_t i = 0; i < d->n_spans; i++)
        at[d->spans[i].kind][d->spans[i].index] = d->spans[i].offset;
    e->slot_of_storage = ZX_NEW(e->mem, uint32_t, t->n_storages);
    e->slot_of_stay = ZX_NEW(e->mem, uint32_t, d->n_stays);
    e->slot_of_work = ZX_NEW(e->mem, uint32_t, t->n_steps);
    for (uint32_t i = 0; i < t->n_storages; i++) {
        const zx_storage *s = &t->storages[i];
        if (d->made_in[i] != ZX_NONE)
            e->slot_of_storage[i] = e->units[d->made_in[i]].grad_slot;
        else if (s->input != ZX_NONE)
            e->slot_of_storage[i] =
                add_slot(e, ZX_SLOT_INPUT, s->input, s->bytes, held + storage_at[i]);
        else
            e->slot_of_storage[i] =
                add_slot(e, ZX_SLOT_VALUE, s->value, s->bytes, held + storage_at[i]);
    }
    for (uint32_t i = 0; i < d->n_stays; i++) {
        const zx_unit *u = &e->units[d->stays[i].unit];
        e->slot_of_stay[i] = add_slot(e, ZX_SLOT_UNIT, u->param,
                                      room(d->options, u, 1, u->param_bytes), held + stay_at[i]);
    }
    for (uint32_t s = 0; s < t->n_steps; s++)
        e->slot_of_work[s] =
            t->work[s] == 0 ? ZX_NONE : add_slot(e, ZX_SLOT_WORK, s, t->work[s], held + work_at[s]);
    for (uint32_t i = 0; i < e->p->n_slots; i++) {
        const uint64_t end = e->slots[i].offset + e->slots[i].bytes;
        if (e->slots[i].bytes > 0 && end > e->p->arena_bytes) e->p->arena_bytes = end;
    }
}

// The slot of a value as step `step` reads it.
static uint32_t slot_of(const emitter *e, uint32_t value, uint32_t step)
{
    const zx_trace *t = e->d->trace;
    const zx_where w = t->where[value];
    switch ((zx_where_kind)w.kind) {
    case ZX_AT_STORAGE:
        return e->slot_of_storage[w.index];
    case ZX_AT_CONST:
        return e->slot_of_const[w.index];
    case ZX_AT_BUFFER:
        return e->slot_of_working[w.index];
    case ZX_AT_UNIT:
        if (e->units[w.index].param_whole || e->units[w.index].numel == 0)
            return e->units[w.index].param_slot;
        for (uint32_t i = t->use_at[step]; i < t->use_at[step + 1]; i++)
            if (t->uses[i].unit == w.index) return e->slot_of_stay[e->stay_of_use[i]];
        zx_bug(__FILE__, __LINE__, "a step reads a unit without a use");
    case ZX_AT_NOWHERE:
        break;
    }
    return ZX_NONE;
}

static void add_steps(emitter *e)
{
    const zx_trace *t = e->d->trace;
    const zx_graph *g = t->graph;
    uint32_t n_args = 0;
    for (uint32_t s = 0; s < t->n_steps; s++)
        n_args += g->nodes[t->node[s]].n_in + g->nodes[t->node[s]].n_out;
    uint32_t *args = ZX_NEW(e->mem, uint32_t, n_args);
    const uint32_t n_steps = t->n_steps * t->micro_batches;
    zx_plan_step *steps = ZX_NEW(e->mem, zx_plan_step, n_steps);
    n_args = 0;
    for (uint32_t s = 0; s < t->n_steps; s++) {
        const zx_node *n = &g->nodes[t->node[s]];
        steps[s] = (zx_plan_step){t->node[s], 0, n_args, n->n_in, n->n_out, e->slot_of_work[s]};
        for (uint32_t i = 0; i < n->n_in + n->n_out; i++) {
            const uint32_t v = i < n->n_in ? zx_node_in(g, n, i) : zx_node_out(g, n, i - n->n_in);
            args[n_args++] = v == ZX_NONE ? ZX_NONE : slot_of(e, v, s);
        }
    }
    for (uint32_t s = t->n_steps; s < n_steps; s++) { // the other micro-batches: the same operands
        steps[s] = steps[s % t->n_steps];
        steps[s].micro = s / t->n_steps;
    }
    e->p->steps = steps;
    e->p->args = args;
    e->p->n_steps = n_steps;
    e->p->n_args = n_args;
}

// ---- launches
// ---------------------------------------------------------------------------------------------

static uint32_t open_launch(emitter *e)
{
    ZX_GROW(e->mem, e->launches, e->p->n_launches, e->cap_launches);
    e->launches[e->p->n_launches] = (zx_launch){e->p->n_members, 0, ZX_NONE};
    return e->p->n_launches++;
}

static void add_member(emitter *e, uint32_t unit, uint32_t slot)
{
    ZX_GROW(e->mem, e->members, e->p->n_members, e->cap_members);
    const zx_launch *l = &e->launches[e->p->n_launches - 1];
    const zx_member *last = &e->members[e->p->n_members - 1];
    const uint64_t at = l->n_members == 0 ? 0 : last->at + (uint64_t)e->units[last->unit].shard;
    e->members[e->p->n_members++] = (zx_member){unit, slot, ZX_NONE, 0, at};
    e->launches[e->p->n_launches - 1].n_members++;
}

typedef struct resident { // a unit that is in place only before the first micro-batch: a stay and
                          // its
    uint32_t stay;        // first read there
    int64_t first, last;
} resident;

static int by_first(const void *a, const void *b)
{
    const resident *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->stay < y->stay ? -1 : x->stay > y->stay;
}

static int by_use(const void *a, const void *b)
{
    const sending *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->launch < y->launch ? -1 : x->launch > y->launch;
}

static int by_issue(const void *a, const void *b)
{
    const sending *x = a, *y = b;
    if (x->issue != y->issue) return x->issue < y->issue ? -1 : 1;
    return by_use(a, b);
}

static int by_time(const void *a, const void *b)
{
    const timed *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->what < y->what ? -1 : x->what > y->what;
}

static uint64_t launch_bytes(const emitter *e, uint32_t launch)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < e->launches[launch].n_members; i++)
        bytes += e->d->unit_bytes[e->members[e->launches[launch].member + i].unit];
    return bytes;
}

static void add_free(emitter *e, uint32_t stay, int64_t last)
{
    e->frees[e->n_frees++] = (timed){last + 1, e->slot_of_stay[stay], (uint32_t)last};
}

// What the first micro-batch gathers beside what every one does: units that are there already in
// the later ones.
static void send_residents(emitter *e)
{
    const zx_draft *d = e->d;
    const zx_trace *t = d->trace;
    const int64_t n = t->n_steps;
    resident *list = ZX_NEW(e->mem, resident, d->n_stays);
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->n_stays; i++) {
        const zx_stay *s = &d->stays[i];
        if (s->always)
            list[count++] = (resident){i, s->first, s->last + n * ((int64_t)t->micro_batches - 1)};
        if (!s->wraps) continue;
        int64_t at = s->first;
        for (uint32_t u = s->use; at < n; u = t->uses[u].next) at += (int64_t)t->uses[u].steps + 1;
        list[count++] = (resident){i, at - n, s->last - n};
    }
    qsort(list, count, sizeof *list, by_first);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t unit = d->stays[list[i].stay].unit;
        if (i == 0 || bytes + d->unit_bytes[unit] > d->knobs.launch_bytes) {
            e->sendings[e->n_sendings++] =
                (sending){.issue = -1, .first = list[i].first, .launch = open_launch(e)};
            bytes = 0;
        }
        bytes += d->unit_bytes[unit];
        add_member(e, unit, e->slot_of_stay[list[i].stay]);
        add_free(e, list[i].stay, list[i].last);
    }
    // When they leave: backwards from their uses, between the launches that leave anyway. Their
    // bytes are theirs from the start.
    double after = 1e300;
    qsort(e->sendings, e->n_sendings, sizeof *e->sendings, by_use);
    for (uint32_t i = e->n_sendings; i-- > 0;) {
        sending *s = &e->sendings[i];
        if (s->first >= n) continue;
        const double use = t->at[s->first];
        const double takes =
            zx_gather_seconds(&d->options->machine, d->options->ranks, launch_bytes(e, s->launch));
        const double start = (use < after ? use : after) - takes * d->knobs.eager;
        after = start;
        if (s->issue >= 0) continue;
        int64_t a = 0, b = s->first;
        while (a < b) {
            const int64_t mid = a + (b - a + 1) / 2;
            if (t->at[mid] <= start)
                a = mid;
            else
                b = mid - 1;
        }
        s->issue = d->knobs.eager > 0 ? a : s->first;
    }
}

static void add_gathers(emitter *e)
{
    const zx_draft *d = e->d;
    const zx_trace *t = d->trace;
    const int64_t n = t->n_steps;
    const size_t most = ((size_t)t->micro_batches + 1) * d->n_stays;
    e->stay_of_use = ZX_NEW(e->mem, uint32_t, t->n_uses);
    for (uint32_t i = 0; i < d->n_stays; i++)
        for (uint32_t k = 0, u = d->stays[i].use; k < d->stays[i].n_uses; k++, u = t->uses[u].next)
            e->stay_of_use[u] = i;
    e->sendings = ZX_NEW(e->mem, sending, most);
    e->frees = ZX_NEW(e->mem, timed, most);
    uint32_t *row = ZX_NEW(e->mem, uint32_t, d->n_stays); // by the pass's launch
    for (uint32_t i = 0, last = ZX_NONE; i < d->n_stays; i++) {
        const zx_stay *s = &d->stays[i];
        if (s->always) continue;
        if (s->launch != last) row[s->launch] = open_launch(e);
        last = s->launch;
        add_member(e, s->unit, e->slot_of_stay[i]);
    }
    for (uint32_t m = 0; m < t->micro_batches; m++) {
        const int64_t base = n * (int64_t)m;
        for (uint32_t i = 0, last = ZX_NONE; i < d->n_stays; i++) {
            const zx_stay *s = &d->stays[i];
            if (s->always) continue;
            if (s->launch != last) {
                const int64_t issue = base + s->issue;
                e->sendings[e->n_sendings++] =
                    (sending){issue < 0 ? 0 : issue, base + s->first, row[s->launch], ZX_NONE};
            }
            last = s->launch;
            int64_t end = s->first; // in the last micro-batch there is nothing to stay for
            for (uint32_t u = s->use; m + 1 == t->micro_batches && s->wraps; u = t->uses[u].next) {
                const int64_t next = end + (int64_t)t->uses[u].steps + 1;
                if (next >= n) break;
                end = next;
            }
            add_free(e, i, base + (m + 1 == t->micro_batches && s->wraps ? end : s->last));
        }
    }
    send_residents(e);
    qsort(e->sendings, e->n_sendings, sizeof *e->sendings, by_issue);
    qsort(e->frees, e->n_frees, sizeof *e->frees, by_time);
}

static void add_reduces(emitter *e)
{
    const zx_draft *d = e->d;
    const zx_graph *g = d->trace->graph;
    e->first_reduce = e->p->n_launches;
    for (uint32_t i = 0; i < d->n_flows; i++) {
        const zx_flow *f = &d->flows[i];
        if (i == 0 || f->launch != d->flows[i - 1].launch) open_launch(e);
        add_member(e, f->unit, slot_of(e, g->params[f->unit].grad, d->trace->n_steps - 1));
    }
}

// ---- instructions
// -----------------------------------------------------------------------------------------

static void put(emitter *e, zx_insn_id id, zx_stream stream, zx_pass_id by, uint32_t step,
                uint32_t a, uint32_t b, uint32_t c)
{
    ZX_GROW(e->mem, e->insns, e->p->n_insns, e->cap_insns);
    e->insns[e->p->n_insns++] =
        (zx_insn){(uint8_t)id, (uint8_t)stream, (uint16_t)by, step, a, b, c};
}

static uint32_t put_mark(emitter *e, uint32_t step)
{
    const uint32_t event = e->p->n_events++;
    put(e, ZX_I_MARK, ZX_S_COMPUTE, ZX_PASS_emit, step, ZX_NONE, ZX_NONE, event);
    return event;
}

static void put_wait(emitter *e, zx_stream stream, uint32_t step, uint32_t event)
{
    put(e, ZX_I_WAIT, stream, ZX_PASS_emit, step, event, ZX_NONE, ZX_NONE);
}

typedef struct cursor {        // how far the boundaries have come
    uint32_t sent, freed;      // of sendings and frees
    uint32_t awaited;          // sendings whose gather compute has waited for
    uint32_t reduced, drained; // reduces issued, waited for
    uint32_t mark;             // compute has done nothing since this one; ZX_NONE
    uint32_t *event;           // by reduce
    const timed *due, *over;   // reduces in order: when they are issued, when waited for
    uint32_t n_reduces;
} cursor;

static uint32_t mark_here(emitter *e, cursor *c, uint32_t step)
{
    if (c->mark == ZX_NONE) c->mark = put_mark(e, step);
    return c->mark;
}

static void issue_reduces(emitter *e, cursor *c, int64_t p, uint32_t step)
{
    const zx_plan_options *o = e->d->options;
    bool first = true;
    for (; c->reduced < c->n_reduces && c->due[c->reduced].at == p; c->reduced++) {
        if (first) put_wait(e, ZX_S_REDUCE, step, mark_here(e, c, step));
        first = false;
        const timed *r = &c->due[c->reduced];
        c->event[c->reduced] = e->p->n_events++;
        put(e, o->stage < 2 ? ZX_I_ALLREDUCE : ZX_I_REDUCE, ZX_S_REDUCE, ZX_PASS_gradients, r->step,
            r->what, r->step >= e->d->trace->n_steps, c->event[c->reduced]);
    }
}

// The stream runs in order: waiting for the last of several is waiting for all.
static void drain_reduces(emitter *e, cursor *c, int64_t p, uint32_t step)
{
    uint32_t upto = c->drained;
    while (upto < c->n_reduces && c->over[upto].at <= p) upto++;
    if (upto == c->drained) return;
    put_wait(e, ZX_S_COMPUTE, step, c->event[upto - 1]);
    c->drained = upto;
    c->mark = ZX_NONE;
}

static void free_units(emitter *e, cursor *c, int64_t p)
{
    for (; c->freed < e->n_frees && e->frees[c->freed].at == p; c->freed++) {
        put(e, ZX_I_FREE, ZX_S_COMPUTE, ZX_PASS_residency, e->frees[c->freed].step,
            e->frees[c->freed].what, ZX_NONE, e->p->n_events++);
        c->mark = ZX_NONE;
    }
}

static void issue_gathers(emitter *e, cursor *c, int64_t p, uint32_t step)
{
    bool first = true;
    for (; c->sent < e->n_sendings && e->sendings[c->sent].issue == p; c->sent++) {
        sending *s = &e->sendings[c->sent];
        if (first) put_wait(e, ZX_S_GATHER, step, mark_here(e, c, step));
        first = false;
        s->event = e->p->n_events++;
        put(e, ZX_I_GATHER, ZX_S_GATHER, s->issue < s->first ? ZX_PASS_prefetch : ZX_PASS_residency,
            (uint32_t)s->first, s->launch, ZX_NONE, s->event);
    }
}

static void await_gathers(emitter *e, cursor *c, int64_t p, uint32_t step,
                          const uint32_t *last_sent)
{
    const uint32_t upto = last_sent[p]; // sendings that this step needs, with those before them
    if (upto <= c->awaited) return;
    put_wait(e, ZX_S_COMPUTE, step, e->sendings[upto - 1].event);
    c->awaited = upto;
    c->mark = ZX_NONE;
}

static void put_micro_batches(emitter *e)
{
    const zx_draft *d = e->d;
    const zx_trace *t = d->trace;
    const zx_graph *g = t->graph;
    const int64_t n = t->n_steps, end = n * (int64_t)t->micro_batches;
    const uint32_t n_launches = e->p->n_launches - e->first_reduce;
    cursor c = {.mark = ZX_NONE, .n_reduces = n_launches * t->micro_batches};
    c.event = ZX_NEW(e->mem, uint32_t, c.n_reduces);
    timed *due = ZX_NEW(e->mem, timed, c.n_reduces), *over = ZX_NEW(e->mem, timed, c.n_reduces);
    for (uint32_t m = 0, k = 0; m < t->micro_batches; m++)
        for (uint32_t i = 0; i < d->n_flows; i++) {
            if (i + 1 < d->n_flows && d->flows[i].launch == d->flows[i + 1].launch) continue;
            const int64_t base = n * (int64_t)m;
            const int64_t drained = base + d->flows[i].drained + 1;
            const uint32_t row = e->first_reduce + d->flows[i].launch;
            const uint32_t step = (uint32_t)(base + d->flows[i].ready);
            due[k] = (timed){base + d->flows[i].ready + 1, row, step};
            over[k++] = (timed){drained < end ? drained : end, row, step};
        }
    // A reduce can't be over later than one that is issued after it.
    for (uint32_t k = c.n_reduces; k-- > 1;)
        if (over[k - 1].at > over[k].at) over[k - 1].at = over[k].at;
    c.due = due;
    c.over = over;
    uint32_t *last_sent = ZX_NEW(e->mem, uint32_t, (size_t)end + 1);
    for (uint32_t i = 0; i < e->n_sendings; i++)
        if (last_sent[e->sendings[i].first] < i + 1) last_sent[e->sendings[i].first] = i + 1;
    uint32_t *feeds = ZX_NEW(e->mem, uint32_t, t->n_steps); // by step: how many inputs begin there
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (t->input_at[i] != ZX_NONE) feeds[t->storages[t->input_at[i]].born]++;

    for (int64_t p = 0; p <= end; p++) {
        const uint32_t step = p < end ? (uint32_t)p : ZX_NONE;
        issue_reduces(e, &c, p, step);
        drain_reduces(e, &c, p, step);
        free_units(e, &c, p);
        issue_gathers(e, &c, p, step);
        if (p == end) break;
        const uint32_t s = step % t->n_steps, m = step / t->n_steps;
        for (uint32_t i = 0; feeds[s] > 0 && i < g->n_inputs; i++)
            if (t->input_at[i] != ZX_NONE && t->storages[t->input_at[i]].born == s)
                put(e, ZX_I_FEED, ZX_S_COMPUTE, ZX_PASS_emit, step,
                    e->slot_of_storage[t->input_at[i]], m, ZX_NONE);
        await_gathers(e, &c, p, step, last_sent);
        put(e, ZX_I_EXEC, ZX_S_COMPUTE, ZX_PASS_emit, step, step, ZX_NONE, ZX_NONE);
        if (s == t->loss_ready)
            put(e, ZX_I_LOSS, ZX_S_COMPUTE, ZX_PASS_emit, step, slot_of(e, g->loss, s), m, ZX_NONE);
        c.mark = ZX_NONE;
    }
}

// Stages 1 and 2 keep parameters whole: what each rank updated goes to all.
static void put_updates(emitter *e)
{
    const zx_draft *d = e->d;
    const zx_graph *g = d->trace->graph;
    const zx_plan_options *o = d->options;
    const bool spread = (o->stage == 1 || o->stage == 2) && o->ranks > 1;
    uint32_t last_event = ZX_NONE;
    for (uint32_t u = 0; u < g->n_params;) {
        uint64_t bytes = 0;
        uint32_t launch = ZX_NONE;
        for (; u < g->n_params; u++) {
            if (!zx_param_trained(g, u)) continue;
            if (launch != ZX_NONE && bytes + d->unit_bytes[u] > d->knobs.launch_bytes) break;
            put(e, ZX_I_UPDATE, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, u, ZX_NONE, ZX_NONE);
            bytes += d->unit_bytes[u];
            if (!spread) continue;
            if (launch == ZX_NONE) launch = open_launch(e);
            add_member(e, u, e->units[u].param_slot);
        }
        if (launch == ZX_NONE) continue;
        put_wait(e, ZX_S_GATHER, ZX_NONE, put_mark(e, ZX_NONE));
        last_event = e->p->n_events++;
        put(e, ZX_I_GATHER, ZX_S_GATHER, ZX_PASS_prefetch, ZX_NONE, launch, ZX_NONE, last_event);
        if (!o->no_overlap) continue;
        put_wait(e, ZX_S_COMPUTE, ZX_NONE, last_event);
        last_event = ZX_NONE;
    }
    if (last_event != ZX_NONE) put_wait(e, ZX_S_COMPUTE, ZX_NONE, last_event);
}

void zx_emit(const zx_draft *d, zx_arena *mem, zx_plan *out)
{
    const zx_trace *t = d->trace;
    const zx_plan_options *o = d->options;
    *out = (zx_plan){.ranks = o->ranks,
                     .stage = o->stage,
                     .micro_batches = o->micro_batches,
                     .optimizer_states = o->optimizer_states,
                     .n_units = t->graph->n_params,
                     .graph_hash = zx_graph_hash(t->graph),
                     .budget = o->budget,
                     .policy = "zerox"};
    emitter e = {.d = d, .mem = mem, .p = out};
    add_slots(&e);
    add_gathers(&e);
    add_steps(&e);
    add_reduces(&e);
    put_micro_batches(&e);
    put(&e, ZX_I_NORM, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, ZX_NONE, ZX_NONE, ZX_NONE);
    for (uint32_t b = 0; b < t->graph->n_buffers; b++)
        if (buffer_changes(t, b))
            put(&e, ZX_I_COMMIT, ZX_S_COMPUTE, ZX_PASS_emit, ZX_NONE, b, ZX_NONE, ZX_NONE);
    put_updates(&e);
    out->insns = e.insns;
    out->slots = e.slots;
    out->units = e.units;
    out->launches = e.launches;
    out->members = e.members;
}

// problem.c - the problem of a trace, and what is wrong with a solution; see problem.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/problem.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sched/pass.h"

// ---- making it ----------------------------------------------------------------------------------

typedef struct maker {
    const zx_trace *t;
    const zx_plan_options *o;
    const zx_times *times; // never NULL
    zx_arena *mem;
    zx_problem *p;
    const uint32_t *made_in;
} maker;

static void find_seconds(const maker *k)
{
    const zx_trace *t = k->t;
    double *seconds = ZX_NEW(k->mem, double, t->n_steps + 1);
    for (uint32_t s = 0; s < t->n_steps; s++)
        seconds[s] = k->times->node != NULL ? k->times->node[t->node[s]] : t->seconds[s];
    for (uint32_t i = 0; i < t->graph->n_inputs; i++) {
        if (t->input_at[i] == ZX_NONE) continue;
        const zx_storage *x = &t->storages[t->input_at[i]];
        seconds[x->born] +=
            k->times->feed > 0 ? k->times->feed : 2 * (double)x->bytes / k->p->machine.memory;
    }
    k->p->seconds = seconds;
}

static void find_base(const maker *k)
{
    const zx_trace *t = k->t;
    uint64_t *base = ZX_NEW(k->mem, uint64_t, t->n_steps + 1);
    for (uint32_t i = 0; i < t->n_storages; i++) {
        if (k->made_in[i] != ZX_NONE) continue;
        const uint64_t bytes = zx_align_up(t->storages[i].bytes, ZX_ALIGN);
        base[t->storages[i].born] += bytes;
        base[t->storages[i].dies + 1] -= bytes; // wraps, and back again
    }
    for (uint32_t s = 1; s < t->n_steps; s++) base[s] += base[s - 1];
    for (uint32_t s = 0; s < t->n_steps; s++) base[s] += zx_align_up(t->work[s], ZX_ALIGN);
    k->p->base = base;
}

static void find_units(const maker *k)
{
    const zx_graph *g = k->t->graph;
    const uint64_t ranks = k->o->ranks;
    uint64_t *bytes = ZX_NEW(k->mem, uint64_t, g->n_params + 1);
    uint64_t *wire = ZX_NEW(k->mem, uint64_t, g->n_params + 1);
    uint64_t *elements = ZX_NEW(k->mem, uint64_t, g->n_params + 1);
    for (uint32_t u = 0; u < g->n_params; u++) {
        const zx_type *type = &g->values[g->params[u].value].type;
        elements[u] = (uint64_t)zx_shape_count(&type->shape);
        wire[u] = (elements[u] / ranks + (elements[u] % ranks != 0)) * ranks *
                  zx_dtype_bytes(type->dtype);
        bytes[u] = zx_align_up(wire[u], ZX_ALIGN);
    }
    k->p->n_units = g->n_params;
    k->p->unit_bytes = bytes;
    k->p->unit_wire = wire;
    k->p->unit_elements = elements;
}

static void find_reads(const maker *k)
{
    const zx_trace *t = k->t;
    zx_problem *p = k->p;
    p->read_at = t->use_at;
    if (k->o->stage < 3 || k->o->ranks == 1) {
        p->read_at = ZX_NEW(k->mem, uint32_t, t->n_steps + 1);
        return;
    }
    zx_read *reads = ZX_NEW(k->mem, zx_read, t->n_uses + 1);
    for (uint32_t i = 0; i < t->n_uses; i++) reads[i] = (zx_read){t->uses[i].step, t->uses[i].unit};
    p->n_reads = t->n_uses;
    p->reads = reads;
}

static int by_ready(const void *a, const void *b)
{
    const zx_grad *x = a, *y = b;
    if (x->ready != y->ready) return x->ready < y->ready ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static void find_grads(const maker *k)
{
    const zx_trace *t = k->t;
    const zx_graph *g = t->graph;
    const int64_t n = t->n_steps;
    zx_grad *grads = ZX_NEW(k->mem, zx_grad, g->n_params + 1);
    uint32_t count = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (t->grad_ready[u] == ZX_NONE) continue;
        const zx_where w = t->where[g->params[u].grad];
        const bool stored = w.kind == ZX_AT_STORAGE;
        if (stored && k->made_in[w.index] != ZX_NONE) continue;
        zx_grad x = {.unit = u, .storage = ZX_NONE, .ready = (int64_t)t->grad_ready[u] + 1};
        x.spare = x.ready;
        x.latest = n;
        if (stored) {
            const zx_storage *s = &t->storages[w.index];
            x.storage = w.index;
            x.bytes = zx_align_up(s->bytes, ZX_ALIGN);
            if (s->dies + 1 > x.ready) x.spare = s->dies + 1;
            if (t->micro_batches > 1) x.latest = n + s->born;
        } else if (w.kind == ZX_AT_UNIT && k->p->n_reads > 0)
            x.latest = x.ready; // the unit leaves after that step
        grads[count++] = x;
    }
    qsort(grads, count, sizeof *grads, by_ready);
    k->p->n_grads = count;
    k->p->grads = grads;
}

// Norm, updates and commits, as the simulator prices them.
static double after(const maker *k)
{
    const zx_graph *g = k->t->graph;
    const zx_problem *p = k->p;
    const zx_machine *m = &p->machine;
    const double word = m->wire > 0 || p->ranks == 1 ? 0
                                                     : zx_wire_seconds(m, ZX_ALL_GATHER, p->ranks,
                                                                       p->ranks * sizeof(double));
    const zx_dtype type = zx_trace_param_type(g);
    double seconds = word, norm = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (!zx_param_trained(g, u)) continue;
        const uint32_t size = (uint32_t)zx_dtype_bytes(g->values[g->params[u].value].type.dtype);
        const uint32_t sum = k->o->accumulate_bytes != 0 ? k->o->accumulate_bytes : size;
        const double shard = (double)(p->unit_wire[u] / size / p->ranks);
        const double own = k->o->stage > 0 ? shard : (double)p->unit_elements[u];
        const uint32_t element = zx_update_bytes(size, sum, k->o->optimizer_states);
        norm += shard * sum / zx_machine_norm(m, sum == 2 ? type : ZX_F32);
        seconds += k->times->update != NULL ? k->times->update[u]
                                            : own * element / m->update + m->op_seconds;
    }
    return seconds + (k->times->norm > 0 ? k->times->norm : norm);
}

// As many elements as the step reads that reads most.
static uint64_t most_read(const zx_problem *p)
{
    uint64_t most = 1;
    for (uint32_t q = 0; q < p->n_steps; q++) {
        uint64_t elements = 0;
        for (uint32_t i = p->read_at[q]; i < p->read_at[q + 1]; i++)
            elements += p->unit_elements[p->reads[i].unit];
        if (elements > most) most = elements;
    }
    return most;
}

void zx_problem_make(const zx_trace *t, const zx_plan_options *o, zx_arena *mem, zx_problem *out)
{
    static const zx_times none = {0};
    *out = (zx_problem){.n_steps = t->n_steps,
                        .micro_batches = t->micro_batches,
                        .ranks = o->ranks,
                        .pinned = o->pinned,
                        .max_live = o->max_live_elements,
                        .max_reduce = o->reduce_bucket_elements,
                        .no_overlap = o->no_overlap,
                        .machine = zx_machine_in(&o->machine, zx_trace_param_type(t->graph)),
                        .all_reduce = o->stage < 2};
    maker k = {t, o, o->times != NULL ? o->times : &none, mem, out, zx_made_in(t, o, mem)};
    if (k.times->copy > 0) out->machine.copy = k.times->copy;
    if (k.times->sum > 0) out->machine.sum = k.times->sum;
    out->handoff = k.times->handoff;
    const uint64_t held = zx_held_bytes(t, o);
    out->limit = o->budget == UINT64_MAX ? UINT64_MAX : o->budget > held ? o->budget - held : 0;
    find_seconds(&k);
    find_base(&k);
    find_units(&k);
    find_reads(&k);
    if (out->max_live == ZX_LIVE_LEAST) out->max_live = most_read(out);
    find_grads(&k);
    out->after = after(&k);
}

zx_launch_cost zx_problem_launch(const zx_problem *p, bool reduce, uint64_t bytes)
{
    const zx_collective what = !reduce         ? ZX_ALL_GATHER
                               : p->all_reduce ? ZX_ALL_REDUCE
                                               : ZX_REDUCE_SCATTER;
    zx_launch_cost c = {zx_wire_seconds(&p->machine, what, p->ranks, bytes),
                        zx_core_seconds(&p->machine, what, p->ranks, bytes) +
                            zx_refill_seconds(&p->machine, (double)bytes)};
    if (p->machine.cores <= 0) {
        c.wire += c.core;
        c.core = 0;
    }
    return c;
}

// ---- what is wrong ------------------------------------------------------------------------------

typedef struct judge {
    const zx_problem *p;
    const zx_solution *s;
    zx_arena *mem;
    const char *why;
} judge;

static void check_ranges(judge *j)
{
    const int64_t n = j->p->n_steps, end = zx_problem_end(j->p);
    for (uint32_t i = 0; i < j->s->n_moves && j->why == NULL; i++) {
        const zx_move *x = &j->s->moves[i];
        if (x->n == 0 || x->first > j->s->n_parts || x->n > j->s->n_parts - x->first)
            j->why = zx_arena_printf(j->mem, "move %u has no such parts", i);
        else if (x->gate < 0 || x->over < x->gate || x->over > end ||
                 (!x->reduce && x->over >= end))
            j->why = zx_arena_printf(j->mem, "move %u goes from %" PRId64 " to %" PRId64, i,
                                     x->gate, x->over);
        for (uint32_t k = x->first; j->why == NULL && k < x->first + x->n; k++) {
            const zx_part *a = &j->s->parts[k];
            if (!x->reduce && (a->what >= j->p->n_units || a->gone <= x->over || a->gone > end))
                j->why = zx_arena_printf(j->mem, "move %u gathers unit %u until %" PRId64, i,
                                         a->what, a->gone);
            if (!x->reduce || j->why != NULL) continue;
            if (a->what >= j->p->n_grads || a->micro >= j->p->micro_batches) {
                j->why = zx_arena_printf(j->mem, "move %u reduces gradient %u", i, a->what);
                continue;
            }
            const zx_grad *g = &j->p->grads[a->what];
            const int64_t base = n * a->micro;
            int64_t latest = base + g->latest < end ? base + g->latest : end;
            if (x->gate < base + g->ready || x->over > latest ||
                a->micro != j->s->parts[x->first].micro)
                j->why = zx_arena_printf(
                    j->mem,
                    "move %u reduces gradient %u of micro-batch %u from %" PRId64 " to %" PRId64, i,
                    a->what, a->micro, x->gate, x->over);
        }
    }
}

typedef struct stay {
    uint32_t unit;
    int64_t over, gone;
} stay;

static int by_unit(const void *a, const void *b)
{
    const stay *x = a, *y = b;
    if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
    return x->over < y->over ? -1 : x->over > y->over;
}

static void check_reads(judge *j)
{
    const zx_problem *p = j->p;
    stay *all = ZX_NEW(j->mem, stay, j->s->n_parts + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < j->s->n_moves; i++)
        for (uint32_t k = 0; k < j->s->moves[i].n && !j->s->moves[i].reduce; k++) {
            const zx_part *a = &j->s->parts[j->s->moves[i].first + k];
            all[n++] = (stay){a->what, j->s->moves[i].over, a->gone};
        }
    qsort(all, n, sizeof *all, by_unit);
    uint32_t *at = ZX_NEW(j->mem, uint32_t, p->n_units + 1); // the stay of each unit so far
    for (uint32_t i = n; i-- > 0;) at[all[i].unit] = i;
    for (int64_t m = 0; m < p->micro_batches; m++)
        for (uint32_t r = 0; r < p->n_reads && j->why == NULL; r++) {
            const int64_t step = m * p->n_steps + p->reads[r].step;
            const uint32_t u = p->reads[r].unit;
            while (at[u] + 1 < n && all[at[u] + 1].unit == u && all[at[u]].gone <= step) at[u]++;
            const stay *x = &all[at[u]];
            if (n == 0 || x->unit != u || x->over > step || x->gone <= step)
                j->why = zx_arena_printf(j->mem, "unit %u isn't whole at step %" PRId64, u, step);
        }
}

static void check_reduced(judge *j)
{
    const zx_problem *p = j->p;
    uint32_t *count = ZX_NEW(j->mem, uint32_t, (size_t)p->n_grads + 1);
    for (uint32_t i = 0; i < j->s->n_moves; i++) {
        uint64_t elements = 0;
        const zx_move *x = &j->s->moves[i];
        for (uint32_t k = 0; k < x->n && x->reduce && j->why == NULL; k++) {
            const zx_part *a = &j->s->parts[x->first + k];
            if (count[a->what]++ != a->micro)
                j->why = zx_arena_printf(j->mem, "gradient %u isn't reduced once a micro-batch",
                                         a->what);
            elements += p->unit_elements[p->grads[a->what].unit];
        }
        if (p->max_reduce > 0 && x->n > 1 && elements > p->max_reduce)
            j->why = zx_arena_printf(j->mem, "move %u reduces too many elements", i);
    }
    for (uint32_t g = 0; g < p->n_grads && j->why == NULL; g++)
        if (count[g] != p->micro_batches)
            j->why = zx_arena_printf(j->mem, "gradient %u is reduced %u times", g, count[g]);
}

static void check_live(judge *j)
{
    const zx_problem *p = j->p;
    const int64_t end = zx_problem_end(p);
    if (p->max_live == 0) return;
    int64_t *change = ZX_NEW(j->mem, int64_t, (size_t)end + 1), now = 0;
    for (uint32_t i = 0; i < j->s->n_moves; i++)
        for (uint32_t k = 0; k < j->s->moves[i].n && !j->s->moves[i].reduce; k++) {
            const zx_part *a = &j->s->parts[j->s->moves[i].first + k];
            change[j->s->moves[i].gate] += (int64_t)p->unit_elements[a->what];
            change[a->gone] -= (int64_t)p->unit_elements[a->what];
        }
    for (int64_t q = 0; q < end && j->why == NULL; q++)
        if ((now += change[q]) > (int64_t)p->max_live)
            j->why = zx_arena_printf(j->mem, "too many elements live at step %" PRId64, q);
}

const char *zx_problem_wrong(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    judge j = {p, s, mem, NULL};
    check_ranges(&j);
    if (j.why == NULL && p->n_reads > 0) check_reads(&j);
    if (j.why == NULL) check_reduced(&j);
    if (j.why == NULL) check_live(&j);
    if (j.why != NULL) return j.why;
    zx_price price;
    zx_problem_price(p, s, &price);
    if (price.peak > p->limit)
        return zx_arena_printf(mem, "%" PRIu64 " bytes at step %" PRId64 ", the limit is %" PRIu64,
                               price.peak, price.peak_at, p->limit);
    if (price.seconds > 1e299) return "compute and wire wait for each other";
    return NULL;
}

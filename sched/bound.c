// bound.c - see bound.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound.h"

#include <math.h>
#include <stdlib.h>

#include "sched/pass.h"

typedef struct bounder {
    const zx_plan_options *o;
    zx_machine m; // with the rates that were measured
    const zx_times *times;
    zx_trace t;
    zx_arena mem;
    double *at;             // n_steps + 1: seconds of the steps before one
    uint64_t *whole;        // by unit: bytes of all shards
    uint64_t *load;         // by step: activations alive, and its scratch
    uint32_t *first, *last; // by unit: steps that read it; ZX_NONE: none does
    uint64_t held;          // sharded as far as it goes
    bool may_stay;          // ddp fits: no parameter need ever be gathered
} bounder;

// ---- facts --------------------------------------------------------------------------------------

static void find_seconds(bounder *k)
{
    const zx_trace *t = &k->t;
    k->at = ZX_NEW(&k->mem, double, t->n_steps + 1);
    for (uint32_t s = 0; s < t->n_steps; s++)
        k->at[s + 1] =
            k->at[s] + (k->times->node != NULL ? k->times->node[t->node[s]] : t->seconds[s]);
}

static void find_load(bounder *k)
{
    const zx_trace *t = &k->t;
    k->load = ZX_NEW(&k->mem, uint64_t, t->n_steps + 1);
    for (uint32_t i = 0; i < t->n_storages; i++) {
        k->load[t->storages[i].born] += t->storages[i].bytes;
        k->load[t->storages[i].dies + 1] -= t->storages[i].bytes; // wraps, and back again
    }
    for (uint32_t s = 1; s < t->n_steps; s++) k->load[s] += k->load[s - 1];
    for (uint32_t s = 0; s < t->n_steps; s++) k->load[s] += t->work[s];
}

static void find_units(bounder *k)
{
    const zx_trace *t = &k->t;
    const zx_graph *g = t->graph;
    const uint32_t ranks = k->o->ranks;
    k->whole = ZX_NEW(&k->mem, uint64_t, g->n_params + 1);
    k->first = ZX_NEW(&k->mem, uint32_t, g->n_params + 1);
    k->last = ZX_NEW(&k->mem, uint32_t, g->n_params + 1);
    for (uint32_t u = 0; u < g->n_params; u++) {
        const zx_type *type = &g->values[g->params[u].value].type;
        const uint64_t n = (uint64_t)zx_shape_count(&type->shape);
        k->whole[u] = (n / ranks + (n % ranks != 0)) * ranks * zx_dtype_bytes(type->dtype);
        k->first[u] = ZX_NONE;
    }
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const zx_use *x = &t->uses[i];
        if (k->first[x->unit] == ZX_NONE) k->first[x->unit] = x->step;
        k->last[x->unit] = x->step;
    }
}

static void find_room(bounder *k)
{
    zx_plan_options o = *k->o;
    uint64_t most = 0;
    for (uint32_t s = 0; s < k->t.n_steps; s++)
        if (k->load[s] > most) most = k->load[s];
    o.stage = 3;
    k->held = zx_held_bytes(&k->t, &o);
    o.stage = 0;
    const uint64_t whole = zx_held_bytes(&k->t, &o);
    k->may_stay = o.budget >= whole && o.budget - whole >= most;
}

// Whether it is gathered at least once a step, if anything is.
static bool gathered(const bounder *k, uint32_t unit)
{
    return k->first[unit] != ZX_NONE && zx_param_trained(k->t.graph, unit);
}

// ---- memory -------------------------------------------------------------------------------------

static uint64_t over_room(const bounder *k, uint32_t step, uint64_t spans, uint64_t read)
{
    if (k->o->budget == UINT64_MAX) return 0;
    const uint64_t taken = k->held + k->load[step] + read;
    const uint64_t room = k->o->budget > taken ? k->o->budget - taken : 0;
    return spans > room ? spans - room : 0;
}

// Bytes that a rank receives again because they can't have stayed. A whole parameter takes what the
// other ranks hold of it beside what is held anyway, and that is also what gathering it moves.
static uint64_t regathered(const bounder *k)
{
    const zx_trace *t = &k->t;
    const uint32_t n_units = t->graph->n_params;
    zx_arena mem = {0};
    uint64_t *around =
        ZX_NEW(&mem, uint64_t, t->n_steps + 1); // by step: units read up to it and on
    uint64_t all = 0, within = 0, between = 0;
    for (uint32_t u = 0; u < n_units; u++) {
        if (k->first[u] == ZX_NONE) continue;
        const uint64_t bytes = zx_gather_wire(k->o->ranks, k->whole[u]);
        around[k->first[u]] += bytes;
        around[k->last[u] + 1] -= bytes;
        all += bytes;
    }
    for (uint32_t s = 0; s < t->n_steps; s++) {
        if (s > 0) around[s] += around[s - 1];
        uint64_t read = 0;
        for (uint32_t i = t->use_at[s]; i < t->use_at[s + 1]; i++)
            read += zx_gather_wire(k->o->ranks, k->whole[t->uses[i].unit]);
        const uint64_t in = over_room(k, s, around[s] - read, read);
        const uint64_t out = over_room(k, s, all - around[s], read);
        if (in > within) within = in;
        if (out > between) between = out;
    }
    zx_arena_free(&mem);
    const uint64_t micros = k->o->micro_batches;
    return micros * within + (micros - 1) * between;
}

// ---- seconds ------------------------------------------------------------------------------------

// The least that collectives over this many bytes in all take of the wire, however they are cut.
static double wire_least(const bounder *k, zx_collective what, uint64_t bytes, uint32_t launches)
{
    const zx_machine *m = &k->m;
    const zx_curve *c = what == ZX_ALL_GATHER ? &m->gather : &m->reduce;
    double seconds = 0;
    if (bytes == 0 || k->o->ranks == 1) return 0;
    if (m->wire > 0) {
        seconds = (double)zx_gather_wire(k->o->ranks, bytes) / m->wire;
    } else if (c->n > 0) { // at the best rate of any size up to all of it
        double rate = (double)bytes / zx_curve_seconds(c, (double)bytes);
        for (uint32_t i = 0; i < c->n && c->bytes[i] <= (double)bytes; i++)
            rate = fmax(rate, c->bytes[i] / c->seconds[i]);
        seconds = fmax((double)bytes / rate, launches * c->seconds[0]);
    }
    if (what == ZX_REDUCE_SCATTER && m->cores <= 0)
        seconds += zx_core_seconds(m, what, k->o->ranks, bytes);
    return seconds + launches * m->latency;
}

// Of a rank's shards, as sim_costs.c prices them.
static double update_seconds(const bounder *k)
{
    const zx_graph *g = k->t.graph;
    double seconds = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (!zx_param_trained(g, u)) continue;
        if (k->times->update != NULL) {
            seconds += k->times->update[u];
            continue;
        }
        const uint32_t size = (uint32_t)zx_dtype_bytes(g->values[g->params[u].value].type.dtype);
        const uint32_t own = size < 4 ? 4 : size, sum = k->o->accumulate_bytes;
        const uint32_t element =
            (sum != 0 ? sum : size) + 2 * own + 8 * k->o->optimizer_states + (size < 4 ? size : 0);
        seconds +=
            (double)(k->whole[u] / size / k->o->ranks) * element / k->m.update + k->m.op_seconds;
    }
    return seconds;
}

static double norm_seconds(const bounder *k)
{
    const zx_graph *g = k->t.graph;
    double bytes = 0;
    if (k->times->norm > 0) return k->times->norm;
    for (uint32_t u = 0; u < g->n_params; u++)
        if (g->params[u].grad != ZX_NONE) bytes += (double)k->whole[u] / k->o->ranks;
    return bytes / k->m.memory;
}

static double feed_seconds(const bounder *k)
{
    const zx_trace *t = &k->t;
    double seconds = 0;
    for (uint32_t i = 0; i < t->graph->n_inputs; i++) {
        if (t->input_at[i] == ZX_NONE) continue;
        seconds += k->times->feed > 0 ? k->times->feed
                                      : 2 * (double)t->storages[t->input_at[i]].bytes / k->m.memory;
    }
    return seconds * k->o->micro_batches;
}

// ---- the path -----------------------------------------------------------------------------------

// From the norm to a first use: how much later it is than the seconds of compute before it.
static double find_start(const bounder *k)
{
    const zx_trace *t = &k->t;
    double most = 0;
    uint64_t bytes = 0;
    if (k->may_stay || k->o->ranks == 1) return 0;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const zx_use *x = &t->uses[i];
        if (x->step != k->first[x->unit] || !gathered(k, x->unit)) continue;
        bytes += k->whole[x->unit];
        most = fmax(most, wire_least(k, ZX_ALL_GATHER, bytes, 1) - k->at[x->step]);
    }
    return most;
}

// From the last gradients to the norm: how much later it is than the last step.
static double find_tail(const bounder *k)
{
    const zx_trace *t = &k->t;
    const zx_graph *g = t->graph;
    uint64_t *made = ZX_NEW((zx_arena *)(uintptr_t)&k->mem, uint64_t, t->n_steps + 1);
    double most = 0;
    uint64_t bytes = 0;
    if (k->o->ranks == 1) return 0;
    for (uint32_t u = 0; u < g->n_params; u++)
        if (zx_param_trained(g, u)) made[t->grad_ready[u]] += k->whole[u];
    for (uint32_t s = t->n_steps; s-- > 0;) {
        if (made[s] == 0) continue;
        bytes += made[s];
        most = fmax(most, wire_least(k, ZX_REDUCE_SCATTER, bytes, 1) -
                              (k->at[t->n_steps] - k->at[s + 1]));
    }
    return most;
}

// ---- all of it ----------------------------------------------------------------------------------

static void add_up(bounder *k, zx_bound *b)
{
    const zx_graph *g = k->t.graph;
    const zx_machine *m = &k->m;
    const uint32_t micros = k->o->micro_batches, ranks = k->o->ranks;
    const double update = update_seconds(k), norm = norm_seconds(k);
    const double steps = k->at[k->t.n_steps] * micros;
    uint64_t gradients = 0, parameters = 0;
    for (uint32_t u = 0; u < g->n_params && ranks > 1; u++) {
        if (zx_param_trained(g, u)) gradients += k->whole[u];
        if (gathered(k, u)) parameters += k->whole[u];
    }
    b->regather_bytes = ranks > 1 ? regathered(k) : 0;
    const uint64_t gathers = zx_gather_wire(ranks, parameters) + b->regather_bytes;
    b->wire_bytes = micros * zx_gather_wire(ranks, gradients) + gathers;
    b->wire = micros * wire_least(k, ZX_REDUCE_SCATTER, gradients, 1);
    if (ranks > 1)
        b->wire += wire_least(k, ZX_ALL_GATHER, gathers / (ranks - 1) * ranks, !k->may_stay);
    b->compute = steps + update + norm + feed_seconds(k);
    if (m->cores > 0) {
        b->moving = (double)gathers / m->copy + (double)micros * (double)gradients / m->sum;
        b->compute = fmax(b->compute, (b->compute * m->threads + b->moving) / m->cores);
    } else {
        b->compute += b->wire * m->interference / (1 + m->interference);
    }
    b->start = fmax(0, find_start(k) - update);
    b->tail = find_tail(k);
    b->path = steps + update + norm + b->start + b->tail;
    b->seconds = fmax(b->compute, fmax(b->wire, b->path));
}

zx_status zx_bound_make(const zx_graph *train, const zx_plan_options *o, const zx_times *times,
                        zx_bound *out, zx_err *err)
{
    static const zx_times none = {0};
    bounder k = {.o = o, .m = o->machine, .times = times != NULL ? times : &none};
    *out = (zx_bound){0};
    if (k.times->copy > 0) k.m.copy = k.times->copy;
    if (k.times->sum > 0) k.m.sum = k.times->sum;
    const zx_status st = zx_trace_make(train, o, &k.mem, &k.t, err);
    if (st == ZX_OK) {
        find_seconds(&k);
        find_load(&k);
        find_units(&k);
        find_room(&k);
        add_up(&k, out);
    }
    zx_arena_free(&k.mem);
    return st;
}

const char *zx_bound_binds(const zx_bound *b)
{
    if (b->seconds <= b->compute) return "compute";
    return b->seconds <= b->wire ? "wire" : "start and tail";
}

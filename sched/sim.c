// sim.c - runs a plan on a machine that is only numbers, event by event.
//
// A rank has its streams, each in plan order, one wire and a host. The host walks the plan and
// enqueues; nothing starts before that. A collective is eligible once its stream has come to it;
// the wire serves them one at a time, in the order of issue, ties by plan position. Where `cores`
// is given, the compute threads and the threads that move bytes share the rank's cores, and a
// collective is over when both its wire and its thread are done. Otherwise bytes are moved by
// engines of their own, and compute is slower by the machine's interference while a collective is
// in flight. Ranks are taken to be alike, so that one is run; or each has times of its own: then a
// collective is eligible when all have come to it, the wire is free when all are through, and they
// meet where they exchange a word (NORM, COMMIT) and at the end.
//
// The step's time is the period of a run of steps: at the end of each all streams are joined, the
// host runs on. So a step depends on the one before only in how far the host is ahead.
// SPDX-License-Identifier: Apache-2.0
#include "sched/sim.h"

#define STEPS 3 // the last one is told
#define NEVER 1e300

typedef struct running { // what a stream does at the moment
    uint32_t insn;       // ZX_NONE: nothing
    double end, rate;    // of its threads' work at this rate
    double wire_end;     // SEND
} running;

typedef struct side { // a rank
    const zx_sim_cost *cost;
    double *start, *seconds, *event; // by instruction, by event; < 0: not yet
    double *enqueued;                // by instruction, where hosted
    double ahead;                    // of the step's begin the host begins
    // One step:
    double host;                    // when the host has done what it did so far
    double arrived;                 // when it came to where it waits
    uint32_t upto;                  // instructions that it has enqueued
    bool late;                      // something had to wait for it
    uint32_t next[ZX_STREAM_COUNT]; // in `order`
    double free[ZX_STREAM_COUNT];   // when the stream was done with what it did so far
    double timer[ZX_STREAM_COUNT];  // when the host will have enqueued what comes next
    running at[ZX_STREAM_COUNT];
    uint32_t wire; // the stream whose collective is on it; ZX_NONE
    double compute, exposed;
    uint64_t wire_bytes;
} side;

typedef struct sim {
    const zx_machine *m;
    const zx_plan *p;
    const uint32_t *order; // instructions by stream, each in plan order
    uint32_t first[ZX_STREAM_COUNT], end[ZX_STREAM_COUNT]; // in `order`
    double crowd;   // threads of compute for each core, at least 1
    double handoff; // seconds until a stream that waited goes on
    bool hosted;    // the host takes time, or waits
    double now;
    uint32_t n;
    side *sides;
} sim;

// ---- the host -----------------------------------------------------------------------------------

static bool holds_host(const sim *s, uint32_t i)
{
    return s->p->insns[i].id == ZX_I_WAIT && s->p->insns[i].by == ZX_PASS_sync;
}

// Waits at which the host stands are enqueued when it comes to them, what follows when it goes on.
static void walk_host(const sim *s, side *d)
{
    for (; d->upto < s->p->n_insns; d->upto++) {
        const uint32_t i = d->upto;
        const bool holds = holds_host(s, i);
        if (!holds || i == 0 || !holds_host(s, i - 1)) d->arrived = d->host;
        if (holds) {
            const double over = d->event[s->p->insns[i].a];
            if (over < 0) return;
            if (over > d->host) d->host = over;
        }
        d->host += d->cost[i].host;
        d->enqueued[i] = holds ? d->arrived : d->host;
    }
}

static bool enqueued(const sim *s, side *d, uint32_t stream, uint32_t i)
{
    d->timer[stream] = NEVER;
    if (!s->hosted) return true;
    if (i < d->upto && d->enqueued[i] <= s->now) return true;
    d->late = true;
    if (i < d->upto) d->timer[stream] = d->enqueued[i];
    return false;
}

// When the stream came to its next instruction.
static double came(const sim *s, const side *d, uint32_t stream, uint32_t i)
{
    return s->hosted && d->enqueued[i] > d->free[stream] ? d->enqueued[i] : d->free[stream];
}

// ---- streams ------------------------------------------------------------------------------------

static void finish(const sim *s, side *d, uint32_t stream, uint32_t i)
{
    const zx_insn *in = &s->p->insns[i];
    d->seconds[i] = s->now - d->start[i];
    d->free[stream] = s->now;
    d->next[stream]++;
    d->at[stream].insn = ZX_NONE;
    if (in->id == ZX_I_WAIT && stream == ZX_S_COMPUTE) d->exposed += d->seconds[i];
    if (in->c == ZX_NONE) return;
    d->event[in->c] = s->now;
    if (s->hosted) walk_host(s, d);
}

static void begin(const sim *s, side *d, uint32_t stream, uint32_t i)
{
    const zx_sim_cost *c = &d->cost[i];
    const bool sends = c->kind == ZX_SIM_SEND;
    d->start[i] = s->now;
    d->at[stream] = (running){.insn = i, .rate = 1, .end = s->now + (sends ? c->core : c->alone)};
    d->wire_bytes += c->wire_bytes;
    if (zx_sim_computes(c)) d->compute += c->alone * s->crowd;
    if (!sends) return;
    d->at[stream].wire_end = s->now + c->alone;
    d->wire = stream;
}

// Whether every rank has come to the stream's instruction that is at `next` in `order`.
static bool all_came(const sim *s, uint32_t stream, uint32_t next)
{
    for (uint32_t r = 0; r < s->n; r++)
        if (s->sides[r].next[stream] < next) return false;
    return true;
}

// Goes as far as the stream goes at this moment: up to what takes time, an event that hasn't
// happened, another rank, the wire, or the host. False: not at all.
static bool advance(const sim *s, side *d, uint32_t stream)
{
    bool moved = false;
    while (d->at[stream].insn == ZX_NONE && d->next[stream] < s->end[stream]) {
        const uint32_t i = s->order[d->next[stream]];
        if (!enqueued(s, d, stream, i)) return moved;
        switch ((zx_sim_kind)d->cost[i].kind) {
        case ZX_SIM_WAIT:
            if (d->event[s->p->insns[i].a] < 0) return moved;
            d->start[i] = came(s, d, stream, i);
            if (s->handoff > 0 && d->start[i] < d->event[s->p->insns[i].a]) // it slept
                d->at[stream] = (running){.insn = i, .rate = 1, .end = s->now + s->handoff};
            else
                finish(s, d, stream, i);
            break;
        case ZX_SIM_NOTHING:
            d->start[i] = s->now;
            finish(s, d, stream, i);
            break;
        case ZX_SIM_SEND:
            return moved; // waits for the wire
        case ZX_SIM_MEET:
            if (!all_came(s, stream, d->next[stream])) return moved;
            begin(s, d, stream, i);
            break;
        case ZX_SIM_COMPUTE:
        case ZX_SIM_MOVE:
            begin(s, d, stream, i);
            break;
        }
        moved = true;
    }
    return moved;
}

// Whether all ranks wait with the stream's next collective; when the last one came to it.
static bool eligible(const sim *s, uint32_t stream, double *issued)
{
    const uint32_t next = s->sides->next[stream];
    if (next == s->end[stream]) return false;
    const uint32_t i = s->order[next];
    *issued = -NEVER;
    for (uint32_t r = 0; r < s->n; r++) {
        side *d = &s->sides[r];
        if (d->next[stream] != next || d->at[stream].insn != ZX_NONE) return false;
        if (d->cost[i].kind != ZX_SIM_SEND || !enqueued(s, d, stream, i)) return false;
        const double at = came(s, d, stream, i);
        if (at > *issued) *issued = at;
    }
    return true;
}

static void serve_wire(const sim *s)
{
    uint32_t best = ZX_NONE;
    double at, issued = 0;
    for (uint32_t r = 0; r < s->n; r++)
        if (s->sides[r].wire != ZX_NONE) return;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        if (!eligible(s, k, &at)) continue;
        const uint32_t i = s->order[s->sides->next[k]];
        if (best != ZX_NONE &&
            (at > issued || (at == issued && i > s->order[s->sides->next[best]])))
            continue;
        best = k;
        issued = at;
    }
    if (best == ZX_NONE) return;
    const uint32_t i = s->order[s->sides->next[best]];
    for (uint32_t r = 0; r < s->n; r++) begin(s, &s->sides[r], best, i);
}

// ---- time ---------------------------------------------------------------------------------------

// Whether a stream's threads are at work: of a collective only until its bytes are moved.
static bool works(const sim *s, const side *d, uint32_t stream)
{
    const running *r = &d->at[stream];
    return r->insn != ZX_NONE && r->end > s->now && d->cost[r->insn].kind != ZX_SIM_WAIT;
}

static void set_rates(const sim *s, side *d)
{
    const zx_machine *m = s->m;
    double share = 1, compute = 1;
    if (m->cores > 0) {
        double threads = 0;
        for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
            if (works(s, d, k))
                threads += zx_sim_computes(&d->cost[d->at[k].insn]) ? m->threads : 1;
        if (threads > m->cores) share = compute = m->cores / threads;
    } else if (d->wire != ZX_NONE)
        compute = 1 / (1 + m->interference);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        running *r = &d->at[k];
        if (!works(s, d, k)) continue;
        const double rate = zx_sim_computes(&d->cost[r->insn]) ? compute : share;
        if (rate == r->rate) continue;
        r->end = s->now + (r->end - s->now) * r->rate / rate;
        r->rate = rate;
    }
}

static double next_moment(const sim *s, const side *d)
{
    double at = NEVER;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        const running *r = &d->at[k];
        if (r->insn == ZX_NONE) {
            if (d->timer[k] < at) at = d->timer[k];
            continue;
        }
        if (r->end > s->now && r->end < at) at = r->end;
        if (d->wire == k && r->wire_end > s->now && r->wire_end < at) at = r->wire_end;
        if (r->end <= s->now && (d->wire != k || r->wire_end <= s->now)) at = s->now;
    }
    return at;
}

static void finish_due(const sim *s, side *d)
{
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        const running *r = &d->at[k];
        if (r->insn == ZX_NONE || r->end > s->now) continue;
        if (d->wire == k) {
            if (r->wire_end > s->now) continue;
            d->wire = ZX_NONE;
        }
        finish(s, d, k, r->insn);
    }
}

static void start_step(const sim *s, side *d)
{
    for (uint32_t i = 0; i < s->p->n_events; i++) d->event[i] = -1;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        d->next[k] = s->first[k];
        d->free[k] = 0;
        d->timer[k] = NEVER;
        d->at[k].insn = ZX_NONE;
    }
    d->compute = d->exposed = 0;
    d->wire_bytes = 0;
    d->wire = ZX_NONE;
    d->host = -d->ahead;
    d->upto = 0;
    d->late = false;
    if (s->hosted) walk_host(s, d);
}

static void run_step(sim *s)
{
    s->now = 0;
    for (uint32_t r = 0; r < s->n; r++) start_step(s, &s->sides[r]);
    for (;;) {
        bool moved = true;
        while (moved) {
            moved = false;
            for (uint32_t r = 0; r < s->n; r++)
                for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) moved |= advance(s, &s->sides[r], k);
        }
        serve_wire(s);
        double at = NEVER;
        for (uint32_t r = 0; r < s->n; r++) {
            set_rates(s, &s->sides[r]);
            const double next = next_moment(s, &s->sides[r]);
            if (next < at) at = next;
        }
        if (at == NEVER) return;
        s->now = at;
        for (uint32_t r = 0; r < s->n; r++) finish_due(s, &s->sides[r]);
    }
}

// ---- a plan -------------------------------------------------------------------------------------

static void sort_by_stream(sim *s, zx_arena *mem)
{
    uint32_t *order = ZX_NEW(mem, uint32_t, s->p->n_insns);
    uint32_t n = 0;
    for (uint32_t stream = 0; stream < ZX_STREAM_COUNT; stream++) {
        s->first[stream] = n;
        for (uint32_t i = 0; i < s->p->n_insns; i++)
            if (s->p->insns[i].stream == stream) order[n++] = i;
        s->end[stream] = n;
    }
    s->order = order;
}

static bool has_host(const sim *s)
{
    for (uint32_t i = 0; i < s->p->n_insns; i++)
        if (s->sides->cost[i].host > 0 || holds_host(s, i)) return true;
    return false;
}

// Whether the next step is as this one was: no host is further ahead of its streams than before.
static bool settled(const sim *s)
{
    bool same = true;
    for (uint32_t r = 0; r < s->n && s->hosted; r++) {
        side *d = &s->sides[r];
        const double was = d->ahead;
        d->ahead = s->now - d->host;
        same &= !d->late && d->ahead >= was;
    }
    return same;
}

void zx_sim_run(const zx_machine *m, double handoff, const zx_sim_cost *const *cost, uint32_t ranks,
                zx_plan *p, zx_arena *mem)
{
    sim s = {.m = m, .p = p, .crowd = 1, .handoff = handoff, .n = ranks};
    if (m->cores > 0 && m->threads > m->cores) s.crowd = m->threads / m->cores;
    double *start = ZX_NEW(mem, double, p->n_insns), *seconds = ZX_NEW(mem, double, p->n_insns);
    const zx_mark scratch = zx_arena_mark(mem);
    s.sides = ZX_NEW(mem, side, ranks);
    for (uint32_t r = 0; r < ranks; r++) s.sides[r].cost = cost[r];
    s.hosted = has_host(&s);
    for (uint32_t r = 0; r < ranks; r++) {
        side *d = &s.sides[r];
        d->start = r == 0 ? start : ZX_NEW(mem, double, p->n_insns);
        d->seconds = r == 0 ? seconds : ZX_NEW(mem, double, p->n_insns);
        d->event = ZX_NEW(mem, double, p->n_events);
        d->enqueued = s.hosted ? ZX_NEW(mem, double, p->n_insns) : NULL;
    }
    sort_by_stream(&s, mem);
    for (int step = 0; step < STEPS; step++) {
        run_step(&s);
        if (settled(&s)) break;
    }
    p->start = start;
    p->seconds = seconds;
    p->step_seconds = s.now;
    p->compute_seconds = s.sides->compute;
    p->exposed_seconds = s.sides->exposed;
    p->wire_bytes = s.sides->wire_bytes;
    zx_arena_rewind(mem, scratch);
}

void zx_plan_simulate(const zx_graph *train, const zx_machine *m, const zx_times *times, zx_plan *p,
                      zx_arena *mem)
{
    zx_plan_simulate_ranks(train, m, times, 1, p, mem);
}

void zx_plan_simulate_ranks(const zx_graph *train, const zx_machine *m, const zx_times *times,
                            uint32_t ranks, zx_plan *p, zx_arena *mem)
{
    zx_arena scratch = {0};
    const zx_sim_cost **cost = ZX_NEW(&scratch, const zx_sim_cost *, ranks);
    for (uint32_t r = 0; r < ranks; r++)
        cost[r] = zx_sim_costs(train, m, times != NULL ? &times[r] : NULL, p, &scratch);
    zx_sim_run(m, times != NULL ? times->handoff : 0, cost, ranks, p, mem);
    zx_arena_free(&scratch);
}

// sim.c - runs a plan on a machine that is only numbers, event by event.
//
// A rank has its streams, each in plan order, one wire and a host. The host walks the plan and
// enqueues; nothing starts before that. A collective is eligible once its stream has come to it;
// the wire serves them one at a time, in the order of issue, ties by plan position. Where `cores`
// is given, the compute threads and the threads that move bytes share the rank's cores, and a
// collective is over when both its wire and its thread are done. Otherwise bytes are moved by
// engines of their own, and compute is slower by the machine's interference while a collective is
// in flight. All ranks are taken to be alike.
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

typedef struct sim {
    const zx_machine *m;
    const zx_plan *p;
    const zx_sim_cost *cost;
    const uint32_t *order; // instructions by stream, each in plan order
    uint32_t first[ZX_STREAM_COUNT], end[ZX_STREAM_COUNT]; // in `order`
    double *start, *seconds, *event;                       // by instruction, by event; < 0: not yet
    double crowd;     // threads of compute for each core, at least 1
    double handoff;   // seconds until a stream that waited goes on
    bool hosted;      // the host takes time, or waits
    double *enqueued; // by instruction, where hosted
    // One step:
    double now;
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
} sim;

// ---- the host -----------------------------------------------------------------------------------

static bool holds_host(const sim *s, uint32_t i)
{
    return s->p->insns[i].id == ZX_I_WAIT && s->p->insns[i].by == ZX_PASS_sync;
}

// Waits at which the host stands are enqueued when it comes to them, what follows when it goes on.
static void walk_host(sim *s)
{
    for (; s->upto < s->p->n_insns; s->upto++) {
        const uint32_t i = s->upto;
        const bool holds = holds_host(s, i);
        if (!holds || i == 0 || !holds_host(s, i - 1)) s->arrived = s->host;
        if (holds) {
            const double over = s->event[s->p->insns[i].a];
            if (over < 0) return;
            if (over > s->host) s->host = over;
        }
        s->host += s->cost[i].host;
        s->enqueued[i] = holds ? s->arrived : s->host;
    }
}

static bool enqueued(sim *s, uint32_t stream, uint32_t i)
{
    s->timer[stream] = NEVER;
    if (!s->hosted) return true;
    if (i < s->upto && s->enqueued[i] <= s->now) return true;
    s->late = true;
    if (i < s->upto) s->timer[stream] = s->enqueued[i];
    return false;
}

// When the stream came to its next instruction.
static double came(const sim *s, uint32_t stream, uint32_t i)
{
    return s->hosted && s->enqueued[i] > s->free[stream] ? s->enqueued[i] : s->free[stream];
}

// ---- streams ------------------------------------------------------------------------------------

static void finish(sim *s, uint32_t stream, uint32_t i)
{
    const zx_insn *in = &s->p->insns[i];
    s->seconds[i] = s->now - s->start[i];
    s->free[stream] = s->now;
    s->next[stream]++;
    s->at[stream].insn = ZX_NONE;
    if (in->id == ZX_I_WAIT && stream == ZX_S_COMPUTE) s->exposed += s->seconds[i];
    if (in->c == ZX_NONE) return;
    s->event[in->c] = s->now;
    if (s->hosted) walk_host(s);
}

static void begin(sim *s, uint32_t stream, uint32_t i)
{
    const zx_sim_cost *c = &s->cost[i];
    const bool sends = c->kind == ZX_SIM_SEND;
    s->start[i] = s->now;
    s->at[stream] = (running){.insn = i, .rate = 1, .end = s->now + (sends ? c->core : c->alone)};
    s->wire_bytes += c->wire_bytes;
    if (c->kind == ZX_SIM_COMPUTE) s->compute += c->alone * s->crowd;
    if (!sends) return;
    s->at[stream].wire_end = s->now + c->alone;
    s->wire = stream;
}

// Goes as far as the stream goes at this moment: up to what takes time, an event that hasn't
// happened, the wire, or the host. False: not at all.
static bool advance(sim *s, uint32_t stream)
{
    bool moved = false;
    while (s->at[stream].insn == ZX_NONE && s->next[stream] < s->end[stream]) {
        const uint32_t i = s->order[s->next[stream]];
        if (!enqueued(s, stream, i)) return moved;
        switch ((zx_sim_kind)s->cost[i].kind) {
        case ZX_SIM_WAIT:
            if (s->event[s->p->insns[i].a] < 0) return moved;
            s->start[i] = came(s, stream, i);
            if (s->handoff > 0 && s->start[i] < s->event[s->p->insns[i].a]) // it slept
                s->at[stream] = (running){.insn = i, .rate = 1, .end = s->now + s->handoff};
            else
                finish(s, stream, i);
            break;
        case ZX_SIM_NOTHING:
            s->start[i] = s->now;
            finish(s, stream, i);
            break;
        case ZX_SIM_SEND:
            return moved; // waits for the wire
        case ZX_SIM_COMPUTE:
        case ZX_SIM_MOVE:
            begin(s, stream, i);
            break;
        }
        moved = true;
    }
    return moved;
}

static void serve_wire(sim *s)
{
    uint32_t best = ZX_NONE;
    double issued = 0;
    if (s->wire != ZX_NONE) return;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        if (s->at[k].insn != ZX_NONE || s->next[k] == s->end[k]) continue;
        const uint32_t i = s->order[s->next[k]];
        if (s->cost[i].kind != ZX_SIM_SEND || !enqueued(s, k, i)) continue;
        const double at = came(s, k, i);
        if (best != ZX_NONE && (at > issued || (at == issued && i > s->order[s->next[best]])))
            continue;
        best = k;
        issued = at;
    }
    if (best != ZX_NONE) begin(s, best, s->order[s->next[best]]);
}

// ---- time ---------------------------------------------------------------------------------------

// Whether a stream's threads are at work: of a collective only until its bytes are moved.
static bool works(const sim *s, uint32_t stream)
{
    const running *r = &s->at[stream];
    return r->insn != ZX_NONE && r->end > s->now && s->cost[r->insn].kind != ZX_SIM_WAIT;
}

static void set_rates(sim *s)
{
    const zx_machine *m = s->m;
    double share = 1, compute = 1;
    if (m->cores > 0) {
        double threads = 0;
        for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++)
            if (works(s, k))
                threads += s->cost[s->at[k].insn].kind == ZX_SIM_COMPUTE ? m->threads : 1;
        if (threads > m->cores) share = compute = m->cores / threads;
    } else if (s->wire != ZX_NONE)
        compute = 1 / (1 + m->interference);
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        running *r = &s->at[k];
        if (!works(s, k)) continue;
        const double rate = s->cost[r->insn].kind == ZX_SIM_COMPUTE ? compute : share;
        if (rate == r->rate) continue;
        r->end = s->now + (r->end - s->now) * r->rate / rate;
        r->rate = rate;
    }
}

static double next_moment(const sim *s)
{
    double at = NEVER;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        const running *r = &s->at[k];
        if (r->insn == ZX_NONE) {
            if (s->timer[k] < at) at = s->timer[k];
            continue;
        }
        if (r->end > s->now && r->end < at) at = r->end;
        if (s->wire == k && r->wire_end > s->now && r->wire_end < at) at = r->wire_end;
        if (r->end <= s->now && (s->wire != k || r->wire_end <= s->now)) at = s->now;
    }
    return at;
}

static void finish_due(sim *s)
{
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        const running *r = &s->at[k];
        if (r->insn == ZX_NONE || r->end > s->now) continue;
        if (s->wire == k) {
            if (r->wire_end > s->now) continue;
            s->wire = ZX_NONE;
        }
        finish(s, k, r->insn);
    }
}

// One step; the host begins `ahead` seconds before it.
static void run_step(sim *s, double ahead)
{
    for (uint32_t i = 0; i < s->p->n_events; i++) s->event[i] = -1;
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        s->next[k] = s->first[k];
        s->free[k] = 0;
        s->timer[k] = NEVER;
        s->at[k].insn = ZX_NONE;
    }
    s->now = s->compute = s->exposed = 0;
    s->wire_bytes = 0;
    s->wire = ZX_NONE;
    s->host = -ahead;
    s->upto = 0;
    s->late = false;
    if (s->hosted) walk_host(s);
    for (;;) {
        bool moved = true;
        while (moved) {
            moved = false;
            for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) moved |= advance(s, k);
        }
        serve_wire(s);
        set_rates(s);
        const double at = next_moment(s);
        if (at == NEVER) return;
        s->now = at;
        finish_due(s);
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
        if (s->cost[i].host > 0 || holds_host(s, i)) return true;
    return false;
}

void zx_sim_run(const zx_machine *m, double handoff, const zx_sim_cost *cost, zx_plan *p,
                zx_arena *mem)
{
    sim s = {.m = m, .p = p, .cost = cost, .crowd = 1, .handoff = handoff};
    if (m->cores > 0 && m->threads > m->cores) s.crowd = m->threads / m->cores;
    s.start = ZX_NEW(mem, double, p->n_insns);
    s.seconds = ZX_NEW(mem, double, p->n_insns);
    const zx_mark scratch = zx_arena_mark(mem);
    s.event = ZX_NEW(mem, double, p->n_events);
    s.hosted = has_host(&s);
    s.enqueued = s.hosted ? ZX_NEW(mem, double, p->n_insns) : NULL;
    sort_by_stream(&s, mem);
    double ahead = 0;
    for (int step = 0; step < STEPS; step++) {
        run_step(&s, ahead);
        const double was = ahead;
        ahead = s.now - s.host;
        if (!s.hosted || (!s.late && ahead >= was)) break; // the next ones are the same
    }
    zx_arena_rewind(mem, scratch);
    p->start = s.start;
    p->seconds = s.seconds;
    p->step_seconds = s.now;
    p->compute_seconds = s.compute;
    p->exposed_seconds = s.exposed;
    p->wire_bytes = s.wire_bytes;
}

void zx_plan_simulate(const zx_graph *train, const zx_machine *m, const zx_times *times, zx_plan *p,
                      zx_arena *mem)
{
    zx_arena scratch = {0};
    const zx_sim_cost *cost = zx_sim_costs(train, m, times, p, &scratch);
    zx_sim_run(m, times != NULL ? times->handoff : 0, cost, p, mem);
    zx_arena_free(&scratch);
}

// price.c - a solution as the least Plan that does it, and what the simulator says of that.
//
// Compute is one stream, all launches are another one, in their order. At a position compute
// marks that it came (what was computed is whole: reduces may go), waits for the reduces that are
// over there, marks that their bytes are free (gathers may go), waits for the gathers that are over
// there, and runs the step. No host: it costs nothing here.
// SPDX-License-Identifier: Apache-2.0
#include "sched/sim.h"
#include "tests/sched/truth/truth.h"

#define MOST_INSNS (3 * TRUTH_MOVES + 3 * TRUTH_LINE + 8)

typedef struct writer {
    const zx_problem *p;
    const zx_solution *s;
    zx_plan plan;
    zx_insn insns[MOST_INSNS];
    zx_sim_cost cost[MOST_INSNS];
    uint32_t came[TRUTH_LINE + 1], freed[TRUTH_LINE + 1]; // events by position
} writer;

static void put(writer *w, zx_insn_id id, zx_stream stream, uint32_t a, uint32_t event,
                zx_sim_cost cost)
{
    ZX_ASSERT(w->plan.n_insns < MOST_INSNS);
    w->cost[w->plan.n_insns] = cost;
    w->insns[w->plan.n_insns++] = (zx_insn){
        .id = (uint8_t)id, .stream = (uint8_t)stream, .step = ZX_NONE, .a = a, .c = event};
}

static void wait(writer *w, zx_stream stream, uint32_t event)
{
    put(w, ZX_I_WAIT, stream, event, ZX_NONE, (zx_sim_cost){.kind = ZX_SIM_WAIT});
}

static uint32_t mark(writer *w)
{
    const uint32_t event = w->plan.n_events++;
    put(w, ZX_I_MARK, ZX_S_COMPUTE, ZX_NONE, event, (zx_sim_cost){.kind = ZX_SIM_NOTHING});
    return event;
}

static bool gates(const writer *w, bool reduce, int64_t at)
{
    for (uint32_t i = 0; i < w->s->n_moves; i++)
        if (w->s->moves[i].reduce == reduce && w->s->moves[i].gate == at) return true;
    return false;
}

// The event of a launch is its number.
static void put_waits(writer *w, bool reduce, int64_t at)
{
    for (uint32_t i = 0; i < w->s->n_moves; i++)
        if (w->s->moves[i].reduce == reduce && w->s->moves[i].over == at) wait(w, ZX_S_COMPUTE, i);
}

static void put_compute(writer *w)
{
    const int64_t end = zx_problem_end(w->p);
    for (int64_t at = 0; at <= end; at++) {
        if (gates(w, true, at)) w->came[at] = mark(w);
        put_waits(w, true, at);
        if (gates(w, false, at)) w->freed[at] = mark(w);
        put_waits(w, false, at);
        if (at == end) return;
        const double seconds = w->p->seconds[at % w->p->n_steps];
        put(w, ZX_I_EXEC, ZX_S_COMPUTE, 0, ZX_NONE,
            (zx_sim_cost){.kind = ZX_SIM_COMPUTE, .alone = seconds});
    }
}

static zx_sim_cost send(const writer *w, const zx_move *x)
{
    const zx_problem *p = w->p;
    uint64_t bytes = 0;
    for (uint32_t i = x->first; i < x->first + x->n; i++) {
        const uint32_t what = w->s->parts[i].what;
        bytes += p->unit_wire[x->reduce ? p->grads[what].unit : what];
    }
    const zx_collective what = !x->reduce      ? ZX_ALL_GATHER
                               : p->all_reduce ? ZX_ALL_REDUCE
                                               : ZX_REDUCE_SCATTER;
    const double wire = zx_wire_seconds(&p->machine, what, p->ranks, bytes);
    const double core = zx_core_seconds(&p->machine, what, p->ranks, bytes);
    const bool cores = p->machine.cores > 0; // else what cores would do is a part of the wire's
    return (zx_sim_cost){
        .kind = ZX_SIM_SEND, .alone = cores ? wire : wire + core, .core = cores ? core : 0};
}

static void put_wire(writer *w)
{
    for (uint32_t i = 0; i < w->s->n_moves; i++) {
        const zx_move *x = &w->s->moves[i];
        wait(w, ZX_S_GATHER, x->reduce ? w->came[x->gate] : w->freed[x->gate]);
        put(w, x->reduce ? ZX_I_REDUCE : ZX_I_GATHER, ZX_S_GATHER, 0, i, send(w, x));
    }
}

double truth_price(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    ZX_ASSERT(zx_problem_end(p) <= TRUTH_LINE && s->n_moves <= TRUTH_MOVES);
    writer w = {.p = p, .s = s};
    w.plan.n_events = s->n_moves;
    w.plan.insns = w.insns;
    put_compute(&w);
    double all = 0;
    for (int64_t at = 0; at < zx_problem_end(p); at++) all += p->seconds[at % p->n_steps];
    const uint32_t last = w.plan.n_insns;
    mark(&w);
    put_wire(&w);
    const zx_mark scratch = zx_arena_mark(mem);
    const zx_sim_cost *const cost = w.cost;
    zx_sim_run(&p->machine, p->handoff, &cost, 1, &w.plan, mem);
    const double came = w.plan.start[last], seconds = w.plan.step_seconds;
    zx_arena_rewind(mem, scratch);
    // What is stuck hasn't run (its start is 0) or not all before it.
    if (came < seconds || w.plan.compute_seconds < all * (1 - 1e-9)) return TRUTH_NEVER;
    return seconds + p->after;
}

// problem.h - what there is to decide about one optimizer step, as numbers only: no graph, no
// names. The planner (solve*.c), the certified bound and the tests' enumerator all read this.
//
// The line of a step is n_steps steps (executions), micro_batches times. Position p is the boundary
// before line step p; `end` is n_steps * micro_batches. Per-step facts are kept once, for the
// circle of one micro-batch: those of line step q are those of step q % n_steps.
//
// Compute runs the steps in order. All launches go over one wire, one at a time, in the order of
// the solution. When compute comes to a position, gradients that are whole there may leave; then it
// waits for the reduces that are over there (their bytes are given away), then it passes the mark
// that gates of gathers wait for, then it waits for the gathers that are over there (their first
// use), then it runs the step.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_PROBLEM_H
#define ZX_SCHED_PROBLEM_H

#include "sched/trace.h"

typedef struct zx_read { // a step reads a unit; reads are in order of step, then of unit
    uint32_t step, unit;
} zx_read;

typedef struct zx_grad { // a unit's gradient in one micro-batch; in order of `ready`
    uint32_t unit;
    uint32_t storage; // gradients with the same one share their bytes
    int64_t ready;  // the position (of the circle) at which it is whole: 1 + the step that ends it
    int64_t spare;  // its bytes are in `base` up to this position; >= ready
    int64_t latest; // the position at which they are given away at the latest, since they are
                    // made again or belong to something else; may be > n_steps; >= spare
    uint64_t bytes; // that are held from `spare` until the reduce is over
} zx_grad;

typedef struct zx_problem {
    uint32_t n_steps, micro_batches, ranks;
    const double *seconds; // by step: alone, communication off; feeds included
    const uint64_t *base;  // by step: bytes alive whatever is decided (activations, gradients until
                           // `spare`, scratch)
    uint64_t limit;        // bytes that may be alive at any step, beside what is held across steps
    uint32_t n_units, n_reads, n_grads;
    const zx_read *reads;    // none where nothing is gathered (stages below 3, one rank)
    const uint32_t *read_at; // n_steps + 1: reads of step t are [read_at[t], read_at[t + 1])
    const zx_grad *grads;
    const uint64_t *unit_bytes; // by unit: whole on the device, aligned
    const uint64_t *unit_wire;  // by unit: whole, as collectives count
    const uint64_t *unit_elements;
    const bool *pinned; // by unit: once gathered it stays for the rest of the step; NULL: none
    // Limits that a configuration names; 0: none.
    uint64_t max_live;   // elements of whole units at any step
    uint64_t max_reduce; // elements of a reduce launch (a larger gradient goes alone)
    bool no_overlap;     // a launch is waited for at once
    // The machine, with the rates that were measured.
    zx_machine machine;
    bool all_reduce; // stages 0 and 1
    double handoff;  // seconds until who slept for an event goes on
    double after;    // seconds of compute after the last reduce: norm, updates
} zx_problem;

typedef struct zx_move { // a launch; moves are in the order in which they take the wire
    bool reduce;
    uint32_t first, n; // range of parts
    int64_t gate;      // GATHER: compute comes here before it starts: its bytes are its own then.
                       // REDUCE: here its last gradient is whole
    int64_t over;      // compute waits for it here. GATHER: first use. REDUCE: bytes given away
} zx_move;

typedef struct zx_part {
    uint32_t what;  // GATHER: the unit. REDUCE: of problem->grads
    uint32_t micro; // REDUCE: micro-batch of the gradient
    int64_t gone;   // GATHER: the position at which its bytes are free again
} zx_part;

typedef struct zx_solution {
    uint32_t n_moves, n_parts;
    zx_move *moves;
    zx_part *parts;
} zx_solution;

typedef struct zx_price {
    double seconds;             // of the step
    double exposed;             // of it, that compute waited
    double wire;                // that the wire was busy
    uint64_t peak;              // bytes alive at most (of problem.limit's kind)
    int64_t peak_at;            // a line step where that is so
    uint64_t gathered, reduced; // bytes, whole units
} zx_price;

static inline int64_t zx_problem_end(const zx_problem *p)
{
    return (int64_t)p->n_steps * p->micro_batches;
}

// From a trace. `o->times` (NULL: the machine's model) replaces the model's times. Arrays are in
// mem or the trace's.
void zx_problem_make(const zx_trace *t, const zx_plan_options *o, zx_arena *mem, zx_problem *out);

// What a launch over `bytes` whole bytes takes: of the wire, and of one core beside it (0 where
// engines of their own move bytes).
typedef struct zx_launch_cost {
    double wire, core;
} zx_launch_cost;
zx_launch_cost zx_problem_launch(const zx_problem *p, bool reduce, uint64_t bytes);

// Times a solution as the simulator times the Plan that it becomes (host time apart), and adds up
// its bytes. Doesn't check anything else. n log n.
void zx_problem_price(const zx_problem *p, const zx_solution *s, zx_price *out);
// The first rule that a solution breaks, as a sentence in mem; NULL: none. Every read finds its
// unit whole and the bytes of no step exceed the limit, each gradient is reduced once a
// micro-batch, micro-batches of a unit in order, positions are in range, named limits are kept.
const char *zx_problem_wrong(const zx_problem *p, const zx_solution *s, zx_arena *mem);

// The planner: the best solution that it finds within the limit; false: none fits (then *least is
// the limit that would do).
bool zx_solve(const zx_problem *p, zx_arena *mem, zx_solution *out, uint64_t *least);

#endif

// bound.h - seconds that no schedule of a training step takes less than: what plans and tables of
// policies are measured against.
//
// Given are the steps in their order, with what is recomputed; left free are residency, launches,
// their order and when they are issued, addresses. Whatever a schedule does, between two positions
// i < j of the line pass at least the seconds of
//
// - compute: its steps, slower by the machine's interference for as long as the wire is busy; where
//   cores move the bytes, what they move and add shares them with the steps.
// - wire: the gradients that become whole in between, but for what may wait at j for want of room;
//   and what is read in between, but for what can be whole at i already and what can stay from one
//   read to the next. Both are bounded by the room that the limit leaves at each step (the most
//   that can stay is Belady's choice: what is read last leaves first). No launch is larger than the
//   most room between i and j, so each byte costs its share of a launch's latency.
//
// Windows that don't overlap add up: the bound is the best chain of them, from the first step, when
// nothing is whole, to the last reduce, when nothing waits. Where launches wait for room windows
// say little; so the line is also walked along from launch to launch, by the shortest of all ways
// (bound_walk.c). `zx_bound_certify` solves a linear program besides, in which what passes from one
// window to the next is one and the same.
//
// Not counted: room that is lost between addresses, handoffs, limits that a configuration names
// beside the budget.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_BOUND_H
#define ZX_SCHED_BOUND_H

#include "sched/problem.h"

typedef enum zx_bound_kind {
    ZX_BOUND_COMPUTE,
    ZX_BOUND_WIRE,
    ZX_BOUND_ENDS,
    ZX_BOUND_WINDOWS
} zx_bound_kind;

typedef struct zx_bound_span { // of the chain that binds: line steps [from, to)
    int64_t from, to;          // the last one's `to` is the end: until all is reduced
    bool wire;                 // the wire binds there; false: compute
    double seconds;
} zx_bound_span;
#define ZX_BOUND_SPANS 16

typedef struct zx_bound {
    double seconds;          // the greatest of what follows
    double compute;          // all steps, slowed by what the wire has to carry at least
    double wire;             // all that it has to carry, and what comes after
    double path;             // compute, with start and tail
    double start, tail;      // of path: before compute can go on, after it has nothing left
    double chain;            // the best chain of windows
    double walk;             // along the line from launch to launch
    double certified;        // what takes longer to find: the linear program's, or the walk's in
                             // smaller quanta; 0: not asked for
    double moving;           // of compute: seconds of one thread that moves and adds bytes
    double latency;          // of wire: what launches cost beside their bytes
    double saved;            // seconds that 64 MiB more would take off the chain
    uint64_t wire_bytes;     // that a rank receives at least, and sends
    uint64_t regather_bytes; // of them: what can't stay whole
    uint32_t launches;       // at least so many
    zx_bound_kind kind;      // which row binds
    uint32_t n_spans;        // of the chain; the longest are kept, in order
    zx_bound_span spans[ZX_BOUND_SPANS];
} zx_bound;
#define ZX_BOUND_MORE (64ull << 20) // bytes, for `saved`

// Of a problem: what every solution takes. n log n.
void zx_bound_problem(const zx_problem *p, zx_bound *out);
// The same by the linear program and a finer walk too; seconds, not milliseconds. E_UNSUPPORTED
// where the program was built without a solver.
zx_status zx_bound_certify(const zx_problem *p, zx_bound *out, zx_err *err);

// Of every policy that adds gradients in the order in which zerox adds them, at any stage whose
// held bytes fit: `o` as for a plan, its stage and its named limits don't matter. A whole
// parameter takes what the other ranks hold of it beside what is held anyway. times: measured with
// communication off; NULL: the machine's model.
zx_status zx_bound_make(const zx_graph *train, const zx_plan_options *o, const zx_times *times,
                        zx_bound *out, zx_err *err);
// "compute", "wire", "start and tail", "memory-coupled windows": the row that binds.
const char *zx_bound_binds(const zx_bound *b);

#endif

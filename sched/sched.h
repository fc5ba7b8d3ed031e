// sched.h - the planner's front door: train graph + machine + budget -> Plan.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SCHED_H
#define ZX_SCHED_SCHED_H

#include "graph/graph.h"
#include "sched/machine.h"
#include "sched/plan.h"

// Times that were measured on the machine, in place of its model of them; zeroed: none were.
typedef struct zx_times {
    const double *node;   // by node of the train graph: seconds of an execution
    const double *update; // by unit
    double norm, feed;    // seconds: of NORM's own work, of one FEED
    double copy, sum;     // bytes a second of one thread, as in zx_machine
    double handoff;       // seconds until a thread that sleeps for an event goes on
} zx_times;

#define ZX_LIVE_LEAST UINT64_MAX

typedef struct zx_plan_options {
    uint32_t ranks, stage, micro_batches; // micro_batches: accumulation steps of a rank
    uint32_t optimizer_states;            // floats kept per parameter: 0 SGD, 1 momentum, 2 Adam
    const uint64_t *work_bytes;           // scratch by node of the train graph
    uint32_t accumulate_bytes;            // of an element of the gradient's accumulator; 0: as the
                                          // parameter's
    zx_machine machine;
    const zx_times *times;      // NULL: the machine's model
    uint64_t budget;            // bytes of a rank's reservation; UINT64_MAX: none
    bool least;                 // --budget min: the least this planner finds a plan for
    bool roomy;                 // no budget was asked for: least memory within 5 % of the best time
    bool no_overlap;            // every launch issued at its first use and waited for at once
    const bool *pinned;         // by unit: once gathered it stays for the rest of the step; NULL
    uint64_t max_live_elements; // stage3_max_live_parameters where the file states it; 0: none,
                                // ZX_LIVE_LEAST: as few as one step reads
    uint64_t reduce_bucket_elements; // reduce_bucket_size where the file states it; 0: none
} zx_plan_options;

// Makes and checks a plan. E_BUDGET names the least budget that would do and what dominates it.
zx_status zx_plan_make(const zx_graph *train, const zx_plan_options *o, zx_arena *mem, zx_plan *out,
                       zx_err *err);

// Proves a plan for a train graph, rule by rule (the rules are listed in check.c); the first broken
// one is the cause. Nothing is believed: indices, ranges, addresses, happens-before, completeness.
zx_status zx_plan_check(const zx_graph *train, const zx_plan *p, zx_err *err);

// Fills start, seconds and the predictions by simulating the plan on a machine: three steps in a
// row, of which the third is told. times NULL: the machine's model of all.
void zx_plan_simulate(const zx_graph *train, const zx_machine *m, const zx_times *times, zx_plan *p,
                      zx_arena *mem);
// The same where ranks take times of their own, times[0..ranks), and wait for each other: what is
// filled in is rank 0's, the step's time is until the last is done. handoff: times[0]'s.
void zx_plan_simulate_ranks(const zx_graph *train, const zx_machine *m, const zx_times *times,
                            uint32_t ranks, zx_plan *p, zx_arena *mem);

// ---- looking at a plan (everything goes to `out`)
// --------------------------------------------------
void zx_explain_gathers(const zx_graph *train, const zx_plan *p, const char *unit_glob,
                        zx_text *out);
void zx_explain_instructions(const zx_graph *train, const zx_plan *p, zx_text *out);
void zx_explain_states(const zx_graph *train, const zx_plan *p, const char *unit_glob,
                       zx_text *out);
// `more`: members to add, as JSON; NULL: none.
void zx_explain_json(const zx_graph *train, const zx_plan *p, const char *more, zx_text *out);
// `whose`: what is said of the budget in brackets; NULL: nothing.
void zx_explain_summary(const zx_plan *p, const char *whose, zx_text *out);

#endif

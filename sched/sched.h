// sched.h - the planner's front door: train graph + machine + budget -> Plan.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SCHED_H
#define ZX_SCHED_SCHED_H

#include "graph/graph.h"
#include "sched/plan.h"

// How fast things are; a row of machine.c, or measured.
typedef struct zx_machine {
    const char *name;
    double flops;          // of a matrix product, one rank, f32, per second
    double memory;         // bytes a second that elementwise kernels move, one rank
    double op_seconds;     // overhead of an execution
    double wire;           // bytes a second a rank receives in a collective
    double launch_seconds; // of one collective, whatever its size
    double sum;            // bytes a second that adding gradients reads
} zx_machine;
const zx_machine *zx_machine_find(const char *name); // NULL: no such row
zx_machine zx_machine_host(uint32_t threads);        // this host, from constants; not measured yet

typedef struct zx_plan_options {
    uint32_t ranks, stage, micro_batches; // micro_batches: accumulation steps of a rank
    uint32_t optimizer_states;            // floats kept per parameter: 0 SGD, 1 momentum, 2 Adam
    const uint64_t *work_bytes;           // scratch by node of the train graph
    zx_machine machine;
    uint64_t budget;            // bytes of a rank's reservation; UINT64_MAX: none
    bool least;                 // --budget min: the least this planner finds a plan for
    bool roomy;                 // no budget was asked for: least memory within 5 % of the best time
    bool no_overlap;            // every launch issued at its first use and waited for at once
    uint64_t max_live_elements; // stage3_max_live_parameters where the file states it; 0: none
    uint64_t reduce_bucket_elements; // reduce_bucket_size where the file states it; 0: none
} zx_plan_options;

// Makes and checks a plan. E_BUDGET names the least budget that would do and what dominates it.
zx_status zx_plan_make(const zx_graph *train, const zx_plan_options *o, zx_arena *mem, zx_plan *out,
                       zx_err *err);

// Proves a plan for a train graph, rule by rule (the rules are listed in check.c); the first broken
// one is the cause. Nothing is believed: indices, ranges, addresses, happens-before, completeness.
zx_status zx_plan_check(const zx_graph *train, const zx_plan *p, zx_err *err);

// Fills start, seconds and the predictions by simulating the plan on a machine.
void zx_plan_simulate(const zx_graph *train, const zx_machine *m, zx_plan *p, zx_arena *mem);

// ---- looking at a plan (everything goes to `out`)
// --------------------------------------------------
void zx_explain_gathers(const zx_graph *train, const zx_plan *p, const char *unit_glob,
                        zx_text *out);
void zx_explain_instructions(const zx_graph *train, const zx_plan *p, zx_text *out);
void zx_explain_states(const zx_graph *train, const zx_plan *p, const char *unit_glob,
                       zx_text *out);
void zx_explain_json(const zx_graph *train, const zx_plan *p, zx_text *out);
void zx_explain_summary(const zx_graph *train, const zx_plan *p, zx_text *out);

#endif

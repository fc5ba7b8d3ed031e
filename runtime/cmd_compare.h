// cmd_compare.h - the parts of zerox compare: what is asked, the plans, and their execution.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_COMPARE_H
#define ZX_RUNTIME_CMD_COMPARE_H

#include "runtime/cmd.h"
#include "runtime/compare.h"

#define ZX_COMPARE_WARM 2  // steps of each policy before those that are timed
#define ZX_COMPARE_TIMED 9 // and of those, at least
// Where --steps doesn't say how many, more are timed until each median is known to this (95 %), or
// for so many seconds.
#define ZX_COMPARE_KNOWN 0.025
#define ZX_COMPARE_SECONDS 240
#define ZX_COMPARE_MOST 199
#define ZX_COMPARE_PART 0.8 // of the memory that is available, for all that is open at once

typedef struct zx_compare_ask { // the command line
    uint32_t n;
    zx_policy_id ids[ZX_POLICY_COUNT];
    bool execute, json;
    uint32_t least_steps, steps; // to be timed, at least and at most
    double bandwidth, latency;   // 0: not given
    const char *report;
    uint32_t n_values; // of a sweep; 0: none
    bool budgets;      // over budgets, not bandwidths
    const double *values;
    const char **typed; // the words that they are
} zx_compare_ask;

// Measured times differ where ranks keep different parts: by what stage 0, 1, and 2 or 3 update.
#define ZX_COMPARE_KINDS 3
static inline uint32_t zx_compare_kind(uint32_t stage)
{
    return stage < 2 ? stage : 2;
}

typedef struct zx_comparing { // a rank's, or the only one
    zx_job job;
    zx_compare_ask ask;
    zx_policy_input in;
    zx_plan_options options; // in.options
    zx_times times[ZX_COMPARE_KINDS];
    bool timed[ZX_COMPARE_KINDS]; // were measured
    // By kind: turns of the rounds that were measured, [n_turns][ranks]; NULL: none.
    const zx_times *turns[ZX_COMPARE_KINDS];
    uint32_t n_turns; // of every kind
    zx_compare c;
    // Of a run, for the report: by row, instructions of a step, and all of it; NULL.
    double **measured_start, **measured_seconds, *measured_step;
} zx_comparing;

// ---- cmd_compare.c ------------------------------------------------------------------------------
zx_status zx_compare_open(zx_comparing *k, const zx_options *o, const zx_compare_ask *ask,
                          uint32_t ranks, zx_err *err); // the job, up to its train graph
// Table or JSON on stdout, the report; E_DIVERGED where losses differ.
zx_status zx_compare_show(zx_comparing *k, zx_err *err);

// ---- cmd_compare_plan.c -------------------------------------------------------------------------
// The machine with its link, the budget, which policies: all that plans are made from.
zx_status zx_compare_prepare(zx_comparing *k, zx_err *err);
// The least budget that the planner finds a plan for.
zx_status zx_compare_least(const zx_comparing *k, uint64_t *bytes, zx_err *err);
// A plan for each policy, into c (in k->job.mem), with the times that were measured, and the bound.
// What can't be planned becomes a note; an error where nothing can.
zx_status zx_compare_plans(zx_comparing *k, zx_compare *c, zx_err *err);
// Predicted again: from turns where there are any, each simulated with the times that every rank
// had in it: the median, and the step nearest to it. Else from k->times.
zx_status zx_compare_predict(zx_comparing *k, zx_compare *c, zx_err *err);
// A plan that times of a kind are measured with; false: none that fits this host.
bool zx_compare_measured(zx_comparing *k, uint32_t kind, zx_plan *out);
// Bytes a rank that is to be executed may take, where nothing else is open.
uint64_t zx_compare_room(const zx_comparing *k);

// ---- cmd_compare_run.c --------------------------------------------------------------------------
// --execute: starts the ranks; returns the exit code.
int zx_compare_run(const zx_options *o, const zx_compare_ask *ask, zx_err *err);

#endif

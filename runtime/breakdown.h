// breakdown.h - where a measured step went: by phase, and by module of the exported model.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_BREAKDOWN_H
#define ZX_RUNTIME_BREAKDOWN_H

#include "graph/graph.h"
#include "sched/plan.h"

typedef struct zx_breakdown { // seconds of a rank's step, without what it waited for
    double forward, backward; // kernels
    double update;            // norm, optimizer, buffers
} zx_breakdown;
// seconds: by instruction, as zx_session_profile tells.
void zx_breakdown_make(const zx_graph *train, const zx_plan *p, const double *seconds,
                       zx_breakdown *out);

// What such a table begins with, and nothing else.
#define ZX_PROFILER_HEAD "-------------------------- Flops Profiler --------------------------\n"
// A table in the manner of DeepSpeed's flops profiler, of a micro-batch (the mean of the step's).
typedef struct zx_profiler {
    const char *title;
    uint64_t step;        // 1-based: the one that was measured
    double step_seconds;  // of it
    int64_t module_depth; // of the tree, and of the levels in the list of the largest; -1: all
    int64_t top_modules;  // of each level in that list
    bool detailed;        // the tree as well
} zx_profiler;
void zx_profiler_text(const zx_profiler *o, const zx_graph *train, const zx_plan *p,
                      const double *seconds, zx_text *out);

#endif

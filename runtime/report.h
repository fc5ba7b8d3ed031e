// report.h - a plan, and a run of it, as one HTML file: what people look at.
//
// The file needs no network and no other file. Names are text in it, whatever they say.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_REPORT_H
#define ZX_RUNTIME_REPORT_H

#include "sched/bound.h"

typedef struct zx_report_policy {               // a row of a comparison
    const char *policy, *form;                  // "hooks", "as DeepSpeed"; form "": there is one
    double predicted_seconds, measured_seconds; // measured 0: it wasn't executed
    uint64_t peak_bytes, over_bytes;            // over 0: within the budget, and ranked
    bool here;                                  // the one whose plan is shown
} zx_report_policy;

typedef struct zx_report_point { // of the curve of time against budget
    const char *policy;          // "hooks, as DeepSpeed"
    uint64_t budget_bytes;
    double seconds;
} zx_report_point;

// Zeroed members are left out; the plan must have been simulated (start, seconds).
typedef struct zx_report {
    const char *title;   // the model
    const char *machine; // "h100x32"; NULL: this host
    const zx_graph *train;
    const zx_plan *plan;
    const zx_bound *bound; // NULL: made of the plan's own predictions
    uint32_t n_policies, n_points;
    const zx_report_policy *policies;
    const zx_report_point *points;
    // As rank 0 measured the plan's instructions; NULL: it wasn't run.
    const double *measured_start, *measured_seconds;
    double measured_step_seconds;
    double measured_median_seconds; // of all steps that were timed; 0: there is only that one
} zx_report;

void zx_report_html(const zx_report *r, zx_text *out);

#endif

// diff.h - two plans side by side: what they are, what their units do, where they part.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_DIFF_H
#define ZX_SCHED_DIFF_H

#include "sched/plan.h"

// One side. The plan has sound indices (zx_plan_bounds); names are shown as they are.
typedef struct zx_diff_side {
    const zx_plan *plan;
    const char *name;         // of the plan, over its column
    const char *const *units; // names of the units
} zx_diff_side;

// Tells how two plans differ; false, and nothing told, where they don't.
bool zx_plan_diff(const zx_diff_side *a, const zx_diff_side *b, zx_text *out);

#endif

// ways_out.h - what to do where a budget is too small: the nearest changes that would do, each
// planned, with the bytes that it needs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_WAYS_OUT_H
#define ZX_RUNTIME_WAYS_OUT_H

#include "runtime/cmd.h"

// After zx_plan_make refused a budget: puts into found's hint up to three ways out, of which each
// alone is enough, nearest first, that is by how far the bytes that are needed then are from what
// is needed now. Leaves the hint as it is where there is none.
void zx_job_ways_out(zx_job *job, const zx_plan_options *o, zx_err *found);

#endif

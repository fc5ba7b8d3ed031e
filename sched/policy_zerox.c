// policy_zerox.c - policy: our own planner (make.c).
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_make.h"

zx_status zx_policy_zerox(zx_policy_id id ZX_UNUSED, const zx_policy_input *in,
                          const zx_trace *t ZX_UNUSED, const zx_plan_options *o, zx_arena *mem,
                          zx_policy_result *out, zx_err *err)
{
    zx_plan_options mine = *o;
    mine.times = in->times;
    return zx_plan_make(in->train, &mine, mem, &out->plan, err);
}

// policy_hooks.h - from the coordinator's decisions to a schedule (policy_hooks.c), and where in
// the executed steps they fall (policy_hooks_at.c); policy_hooks_tuned.c and policy_hooks_fit.c
// search over both.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_POLICY_HOOKS_H
#define ZX_SCHED_POLICY_HOOKS_H

#include "sched/policy_make.h"

// By event: its boundary in the steps of a micro-batch, 0..n_steps. They never decrease. An event
// that falls inside one executed node happens before it if it is a fetch, else after it.
const int64_t *zx_hooks_boundaries(const zx_trace *t, const zx_hooks *h, zx_arena *mem);

// Writes down what is decided in the first optimizer step that contains neither the recorded
// micro-batch nor the first replayed one. s has been started; `copies`: as DeepSpeed.
zx_status zx_hooks_write(zx_schedule *s, const zx_hooks *h, const zx_hook_limits *l,
                         const int64_t *boundaries, bool copies, zx_err *err);

// The largest of in->limits with which bytes (before placement) are at most `room`.
zx_status zx_hooks_fit(const zx_policy_input *in, const zx_trace *t, const zx_plan_options *o,
                       const int64_t *boundaries, bool copies, uint64_t room,
                       zx_hook_limits *limits, bool *fits, zx_err *err);
// "prefetch 5e7, live 1e9, reuse 1e9, reduce bucket 5e8, persist 1e5 (elements)"
void zx_hooks_put_limits(const zx_hook_limits *l, char *out, size_t size);

#endif

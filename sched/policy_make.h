// policy_make.h - what makers of policies share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_POLICY_MAKE_H
#define ZX_SCHED_POLICY_MAKE_H

#include "sched/policy.h"

typedef struct zx_ready { // a gradient as backward makes it
    uint32_t unit, step;  // the step after which it is whole
    uint64_t elements, bytes;
} zx_ready;

// A unit whose gradient is reduced: it is trained, and its gradient isn't made where it is kept.
bool zx_policy_reduced(const zx_schedule *s, uint32_t unit);
// These, in the order in which they become whole within a micro-batch; into s->mem.
const zx_ready *zx_policy_ready(const zx_schedule *s, uint32_t *n);
// The first step of backward.
uint32_t zx_policy_turn(const zx_trace *t);
// Bytes that a policy that looks at memory may take: the budget, or where there is none 0.9 of the
// device, as DeepCompile's margin has it; UINT64_MAX: neither is known.
uint64_t zx_policy_room(const zx_plan_options *o);
// Limits are looked for again with less room, since placement took more than the load: so often at
// most, and by twice as much each time.
#define ZX_POLICY_SHRINKS 6
uint64_t zx_policy_less(uint64_t room, const zx_policy_result *over, const zx_plan_options *o,
                        int nth);
// Rounded down to two digits: what is printed is what runs.
int64_t zx_policy_rounded(int64_t x);
// "2.5e8", "any" from ZX_POLICY_ANY on: a limit that binds nothing.
#define ZX_POLICY_ANY (INT64_MAX / 16)
void zx_policy_put_elements(zx_text *out, int64_t x);
// Adds to the knobs: a reduce bucket that was lowered.
void zx_policy_put_bucket(zx_policy_result *out, int64_t elements);

// Reduces as DeepSpeed's buckets make them: gradients gather in a bucket until the next one doesn't
// fit; then they leave, and compute waits for the bucket before (there are two). What is left at
// the end of the micro-batch leaves there. `most`: elements; flat: they are copied. Returns the
// last launch; ZX_NONE: there is none.
uint32_t zx_policy_buckets(zx_schedule *s, uint32_t micro, const zx_ready *list, uint32_t n,
                           uint64_t most, bool flat);

#endif

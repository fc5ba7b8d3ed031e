// sums.h - sums of the first i of n numbers that change (a binary indexed tree). For reuse
// distances: each unit's bytes count at the place where it was read last, so the sum between two
// places is that of the distinct units read there.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SUMS_H
#define ZX_SCHED_SUMS_H

#include "graph/base/zx.h"

// `sums` has n + 1 elements, all 0 at first. Unsigned: adding 0 - x takes x away.
static inline void zx_sums_add(uint64_t *sums, uint32_t n, uint32_t i, uint64_t x)
{
    for (i++; i <= n; i += i & (~i + 1)) sums[i] += x;
}
static inline uint64_t zx_sums_before(const uint64_t *sums, uint32_t i)
{
    uint64_t s = 0;
    for (; i > 0; i -= i & (~i + 1)) s += sums[i];
    return s;
}

#endif

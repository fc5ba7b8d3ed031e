// scores.c - passes over a tile of scores (tile.h).
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vmath.h"

// e^x for x <= 0, up to rounding: one factor, and 0 where that would not be normal.
static inline __attribute__((always_inline)) float exp_below(float x)
{
    float r, tail;
    const int32_t n = vm_reduce(x < -87.0f ? -87.0f : x, &r, &tail);
    const float e = (1.0f + (r + tail)) * vm_float((uint32_t)(n + 127) << 23);
    return x < -87.0f ? 0.0f : e;
}

#if defined(__x86_64__) && defined(__GNUC__)
#define NAME(word) word##_512
#if defined(__clang__)
#define TARGET __attribute__((target("arch=x86-64-v4")))
#else // which takes half of a vector unless asked
#define TARGET __attribute__((target("arch=x86-64-v4,prefer-vector-width=512")))
#endif
#include "kernels/cpu/scores_block.h"
#define NAME(word) word##_256
#define TARGET __attribute__((target("arch=x86-64-v3")))
#include "kernels/cpu/scores_block.h"
#endif
#define NAME(word) word##_any
#define TARGET
#include "kernels/cpu/scores_block.h"

const zx_scores_passes *zx_scores_at(zx_tile_level level)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (level == ZX_TILE_512) return &passes_512;
    if (level == ZX_TILE_256) return &passes_256;
#endif
    (void)level;
    return &passes_any;
}

void zx_scores_most(int64_t m, int64_t n, const float *s, int64_t s_row, float *most)
{
    zx_scores_at(zx_tile_best())->most(m, n, s, s_row, most);
}

void zx_scores_exp(int64_t m, int64_t n, float *s, int64_t s_row, const float *shift, float *sum)
{
    zx_scores_at(zx_tile_best())->exp(m, n, s, s_row, shift, sum);
}

void zx_scores_slope(int64_t m, int64_t n, float *p, float *d, int64_t p_row, const float *shift,
                     const float *delta)
{
    zx_scores_at(zx_tile_best())->slope(m, n, p, d, p_row, shift, delta);
}

// rows.c - sums and maxima along one contiguous row, in lanes whose number doesn't follow the
// vector's width: the same bits on every processor, at any address.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>
#include <string.h>

static double add_lanes(const double *lane)
{
    double s = lane[0];
    for (int j = 1; j < ZX_LANES; j++) s += lane[j];
    return s;
}

// TERM is a double made from index `k`.
#define LANE_SUM(TERM)                                                                             \
    double lane[ZX_LANES] = {0};                                                                   \
    int64_t i = 0;                                                                                 \
    for (; i + ZX_LANES <= n; i += ZX_LANES) {                                                     \
        ZX_SIMD for (int j = 0; j < ZX_LANES; j++)                                                 \
        {                                                                                          \
            const int64_t k = i + j;                                                               \
            lane[j] += TERM;                                                                       \
        }                                                                                          \
    }                                                                                              \
    for (int64_t k = i; k < n; k++) lane[k - i] += TERM;                                           \
    return add_lanes(lane)

ZX_CLONES double zx_row_sum(const float *x, int64_t n)
{
    LANE_SUM((double)x[k]);
}

// Some whole rounds of the lanes, and at the end what is left.
ZX_CLONES static void add_to_lanes(double *lane, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + ZX_LANES <= n; i += ZX_LANES) {
        ZX_SIMD for (int j = 0; j < ZX_LANES; j++) lane[j] += (double)x[i + j];
    }
    for (int64_t k = i; k < n; k++) lane[k - i] += (double)x[k];
}

double zx_row_sum_of(zx_dtype t, const void *x, int64_t at, int64_t n)
{
    double lane[ZX_LANES] = {0};
    float room[ZX_BLOCK];
    if (!zx_is_16(t)) return zx_row_sum((const float *)x + at, n);
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        add_to_lanes(lane, zx_floats(t, x, at + i, m, room), m);
    }
    return add_lanes(lane);
}

// Gradients come from memory for their norm.
ZX_CLONES double zx_row_sum_square(const float *x, int64_t n)
{
    double lane[ZX_LANES] = {0};
    int64_t i = 0;
    for (; i + ZX_LANES <= n; i += ZX_LANES) {
        __builtin_prefetch(x + i + ZX_AHEAD);
        ZX_SIMD for (int j = 0; j < ZX_LANES; j++) lane[j] += (double)x[i + j] * (double)x[i + j];
    }
    for (int64_t k = i; k < n; k++) lane[k - i] += (double)x[k] * (double)x[k];
    return add_lanes(lane);
}

ZX_CLONES double zx_row_dot(const float *a, const float *b, int64_t n)
{
    LANE_SUM((double)a[k] * (double)b[k]);
}

ZX_CLONES double zx_row_deviation(const float *x, int64_t n, double mean)
{
    LANE_SUM(((double)x[k] - mean) * ((double)x[k] - mean));
}

ZX_CLONES float zx_row_max(const float *x, int64_t n)
{
    float lane[ZX_LANES];
    int64_t i = 0;
    for (int j = 0; j < ZX_LANES; j++) lane[j] = -INFINITY;
    for (; i + ZX_LANES <= n; i += ZX_LANES) {
        ZX_SIMD for (int j = 0; j < ZX_LANES; j++) lane[j] =
            x[i + j] > lane[j] ? x[i + j] : lane[j];
    }
    for (int64_t k = i; k < n; k++) lane[k - i] = x[k] > lane[k - i] ? x[k] : lane[k - i];
    float m = lane[0];
    for (int j = 1; j < ZX_LANES; j++) m = lane[j] > m ? lane[j] : m;
    return m;
}

ZX_CLONES bool zx_any_above(const float *x, int64_t n, uint32_t limit)
{
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        any |= (u & 0x7fffffffu) > limit;
    }
    return any != 0;
}

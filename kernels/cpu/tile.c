// tile.c - see tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tile.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define NAME(word) word##_512
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define LANES 16
#define ROWS 8
#include "kernels/cpu/tile_block.h"
#define NAME(word) word##_256
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define LANES 8
#define ROWS 4
#include "kernels/cpu/tile_block.h"
#endif
#define NAME(word) word##_any
#define TARGET
#define LANES 4
#define ROWS 4
#include "kernels/cpu/tile_block.h"

zx_tile_level zx_tile_best(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd"))
        return ZX_TILE_512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2"))
        return ZX_TILE_256;
#endif
    return ZX_TILE_ANY;
}

void zx_tile_product_at(zx_tile_level level, int64_t m, int64_t n, int64_t k, zx_tile a,
                        const float *b, int64_t b_row, float *c, int64_t c_row, bool add)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (level == ZX_TILE_512) {
        product_512(m, n, k, a, b, b_row, c, c_row, add);
        return;
    }
    if (level == ZX_TILE_256) {
        product_256(m, n, k, a, b, b_row, c, c_row, add);
        return;
    }
#endif
    (void)level;
    product_any(m, n, k, a, b, b_row, c, c_row, add);
}

void zx_tile_product(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                     float *c, int64_t c_row, bool add)
{
    zx_tile_product_at(zx_tile_best(), m, n, k, a, b, b_row, c, c_row, add);
}

void zx_tile_transpose(int64_t rows, int64_t cols, const float *x, int64_t x_row, float *y,
                       int64_t y_row)
{
    enum { SIDE = 16 };
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t j = 0; j < cols; j += SIDE)
            for (int64_t r = i; r < zx_min_i64(rows, i + SIDE); r++)
                for (int64_t c = j; c < zx_min_i64(cols, j + SIDE); c++)
                    y[c * y_row + r] = x[r * x_row + c];
}

// tile.c - see tile.h.
//
// A block of c is summed in registers: 6 rows of as many vectors as leave one for each of b's and
// one for what a's element is repeated in.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tile.h"

#include <string.h>

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

// How many of n things come next where at most `most` do at once: the last two shares are even.
static inline int64_t share(int64_t n, int64_t most)
{
    if (n >= 2 * most || n == most) return most;
    return n > most ? (n + 1) / 2 : n;
}

typedef float four __attribute__((vector_size(16)));
typedef float loose_four __attribute__((vector_size(16), aligned(4), may_alias));

// In place where it is called: a call would put all sums out of their registers and back.
static inline __attribute__((always_inline)) void put_some(float *c, const four *s, int64_t n,
                                                           bool add)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
        loose_four *to = (loose_four *)(c + j);
        *to = add ? s[j / 4] + *to : s[j / 4];
    }
    for (int64_t i = j; i < n; i++) c[i] = add ? s[j / 4][i - j] + c[i] : s[j / 4][i - j];
}

#if defined(__x86_64__) && defined(__GNUC__)
#define NAME(word) word##_512
#if defined(__clang__) // which halves vectors unless told
#define TARGET __attribute__((target("arch=x86-64-v4"), min_vector_width(512)))
#else
#define TARGET __attribute__((target("arch=x86-64-v4")))
#endif
#define LANES 16
#define VECTORS 4
#include "kernels/cpu/tile_block.h"
#define NAME(word) word##_256
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define LANES 8
#define VECTORS 2
#include "kernels/cpu/tile_block.h"
#endif
#define NAME(word) word##_any
#define TARGET
#define LANES 4
#define VECTORS 2
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

ZX_CLONES void zx_tile_copy(int64_t rows, int64_t cols, const float *x, int64_t x_row, float scale,
                            float *y, int64_t y_row)
{
    for (int64_t r = 0; r < rows; r++) {
        ZX_SIMD for (int64_t j = 0; j < cols; j++) y[r * y_row + j] = x[r * x_row + j] * scale;
    }
}

// Four rows of four are four vectors, turned by shuffles.
static void turn_four(const float *x, int64_t x_row, float *y, int64_t y_row)
{
    const four a = *(const loose_four *)x, b = *(const loose_four *)(x + x_row);
    const four c = *(const loose_four *)(x + 2 * x_row), d = *(const loose_four *)(x + 3 * x_row);
    const four ac = __builtin_shufflevector(a, c, 0, 4, 1, 5);
    const four ac2 = __builtin_shufflevector(a, c, 2, 6, 3, 7);
    const four bd = __builtin_shufflevector(b, d, 0, 4, 1, 5);
    const four bd2 = __builtin_shufflevector(b, d, 2, 6, 3, 7);
    *(loose_four *)y = __builtin_shufflevector(ac, bd, 0, 4, 1, 5);
    *(loose_four *)(y + y_row) = __builtin_shufflevector(ac, bd, 2, 6, 3, 7);
    *(loose_four *)(y + 2 * y_row) = __builtin_shufflevector(ac2, bd2, 0, 4, 1, 5);
    *(loose_four *)(y + 3 * y_row) = __builtin_shufflevector(ac2, bd2, 2, 6, 3, 7);
}

void zx_tile_transpose(int64_t rows, int64_t cols, const float *x, int64_t x_row, float *y,
                       int64_t y_row)
{
    for (int64_t i = 0; i < rows; i += 4)
        for (int64_t j = 0; j < cols; j += 4) {
            if (i + 4 <= rows && j + 4 <= cols) {
                turn_four(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
                continue;
            }
            for (int64_t r = i; r < zx_min_i64(rows, i + 4); r++)
                for (int64_t c = j; c < zx_min_i64(cols, j + 4); c++)
                    y[c * y_row + r] = x[r * x_row + c];
        }
}

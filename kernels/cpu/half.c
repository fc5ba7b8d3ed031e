// half.c - f16 and bf16 as float32 and back, by the vector: what the plain functions of block.c say
// of one number. Widening is exact; narrowing rounds once, to nearest, ties to even.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/vmath.h"

// Branches that both sides of are cheap, so that the loops become vectors.
static inline float from_f16(uint16_t h)
{
    const uint32_t rest = (uint32_t)(h & 0x7fff) << 13, exponent = rest & (0x1fu << 23);
    const uint32_t normal = rest + (112u << 23);
    const uint32_t infinite = rest + (224u << 23);
    const float small = vm_float(rest + (113u << 23)) - 0x1p-14f; // a subnormal, renormalized
    uint32_t u = exponent == 0 ? vm_bits(small) : normal;
    u = exponent == 0x1fu << 23 ? infinite : u;
    return vm_float(u | (uint32_t)(h & 0x8000) << 16);
}

static inline uint16_t to_f16(float x)
{
    const uint32_t u = vm_bits(x), a = u & 0x7fffffff;
    const uint32_t round = a + 0xfff + ((a >> 13) & 1); // half an ulp, less one where even
    const uint32_t small = vm_bits(vm_float(a) + 0.5f) - vm_bits(0.5f); // rounds at bit 2^-24
    uint32_t r = a < 0x38800000 ? small : (round >> 13) - (112u << 10);
    r = a >= 0x477ff000 ? 0x7c00 : r; // 65520 and more round to infinity
    r = a > 0x7f800000 ? (0x7e00 | ((a >> 13) & 0x3ff)) : r;
    return (uint16_t)(r | ((u >> 16) & 0x8000));
}

static inline float from_bf16(uint16_t h)
{
    return vm_float((uint32_t)h << 16);
}

static inline uint16_t to_bf16(float x)
{
    const uint32_t u = vm_bits(x), round = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 0x40 : round);
}

ZX_CLONES static void widen_bf16(const uint16_t *x, float *y, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = from_bf16(x[i]);
}
ZX_CLONES static void widen_f16(const uint16_t *x, float *y, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = from_f16(x[i]);
}
ZX_CLONES static void narrow_bf16(const float *x, uint16_t *y, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = to_bf16(x[i]);
}
ZX_CLONES static void narrow_f16(const float *x, uint16_t *y, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = to_f16(x[i]);
}

void zx_cpu_widen(zx_dtype t, const void *x, float *y, int64_t n)
{
    if (t == ZX_BF16)
        widen_bf16(x, y, n);
    else
        widen_f16(x, y, n);
}

void zx_cpu_narrow(zx_dtype t, const float *x, void *y, int64_t n)
{
    if (t == ZX_BF16)
        narrow_bf16(x, y, n);
    else
        narrow_f16(x, y, n);
}

// ---- rows ---------------------------------------------------------------------------------------
#define WIDEN_ROWS(name, get)                                                                      \
    ZX_CLONES static void name(int64_t rows, int64_t cols, const uint16_t *x, int64_t x_row,       \
                               float scale, float *y, int64_t y_row)                               \
    {                                                                                              \
        for (int64_t r = 0; r < rows; r++, x += x_row, y += y_row) {                               \
            ZX_SIMD for (int64_t j = 0; j < cols; j++) y[j] = get(x[j]) * scale;                   \
        }                                                                                          \
    }
#define NARROW_ROWS(name, put)                                                                     \
    ZX_CLONES static void name(int64_t rows, int64_t cols, const float *x, int64_t x_row,          \
                               float scale, uint16_t *y, int64_t y_row)                            \
    {                                                                                              \
        for (int64_t r = 0; r < rows; r++, x += x_row, y += y_row) {                               \
            ZX_SIMD for (int64_t j = 0; j < cols; j++) y[j] = put(x[j] * scale);                   \
        }                                                                                          \
    }
WIDEN_ROWS(widen_rows_bf16, from_bf16)
WIDEN_ROWS(widen_rows_f16, from_f16)
NARROW_ROWS(narrow_rows_bf16, to_bf16)
NARROW_ROWS(narrow_rows_f16, to_f16)

void zx_widen_rows(zx_dtype t, int64_t rows, int64_t cols, const void *x, int64_t x_row,
                   float scale, float *y, int64_t y_row)
{
    (t == ZX_BF16 ? widen_rows_bf16 : widen_rows_f16)(rows, cols, x, x_row, scale, y, y_row);
}

void zx_narrow_rows(zx_dtype t, int64_t rows, int64_t cols, const float *x, int64_t x_row,
                    float scale, void *y, int64_t y_row)
{
    (t == ZX_BF16 ? narrow_rows_bf16 : narrow_rows_f16)(rows, cols, x, x_row, scale, y, y_row);
}

// ---- by all threads -----------------------------------------------------------------------------
typedef struct copying {
    zx_dtype type;
    const void *from;
    void *to;
} copying;

static void widen_range(void *ctx, int64_t from, int64_t to)
{
    const copying *c = ctx;
    zx_cpu_widen(c->type, (const uint16_t *)c->from + from, (float *)c->to + from, to - from);
}
static void narrow_range(void *ctx, int64_t from, int64_t to)
{
    const copying *c = ctx;
    zx_cpu_narrow(c->type, (const float *)c->from + from, (uint16_t *)c->to + from, to - from);
}

void zx_widen_all(zx_dtype t, const void *x, float *y, int64_t n, int threads)
{
    copying c = {t, x, y};
    zx_split(threads, n, 64, 4 * ZX_GRAIN, widen_range, &c);
}
void zx_narrow_all(zx_dtype t, const float *x, void *y, int64_t n, int threads)
{
    copying c = {t, x, y};
    zx_split(threads, n, 64, 4 * ZX_GRAIN, narrow_range, &c);
}

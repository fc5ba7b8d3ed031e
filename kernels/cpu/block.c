// block.c - elements of any dtype, read into and written from the four types kernels compute in.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>
#include <string.h>

static uint32_t bits32(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static float float32(uint32_t u)
{
    float x;
    memcpy(&x, &u, 4);
    return x;
}

// ---- two-byte floats ----------------------------------------------------------------------------
// Double to float rounding to odd: a later rounding to fewer bits is then as if done once.
static float to_odd(double x)
{
    const float f = (float)x;
    if (!isfinite(x)) return f;
    if (isinf(f)) return float32(bits32(f) - 1); // overflowed: the largest float, which is odd
    uint32_t u = bits32(f);
    if ((double)f == x || (u & 1)) return f;
    // f is even and inexact: take the neighbour on the other side of x.
    return fabs((double)f) > fabs(x) ? float32(u - 1) : float32(u + 1);
}

float zx_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    const uint32_t exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return float32(sign | 0x7f800000 | mantissa << 13);
    if (exponent == 0) { // mantissa * 2^-24
        const float x = (float)mantissa * 0x1p-24f;
        return float32(sign | bits32(x));
    }
    return float32(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t zx_f64_to_f16(double d)
{
    const float x = to_odd(d);
    const uint32_t u = bits32(x), sign = (u >> 16) & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return (uint16_t)(sign | 0x7e00 | ((a >> 13) & 0x3ff)); // NaN
    if (a >= 0x477ff000) return (uint16_t)(sign | 0x7c00); // 65520 and more round to infinity
    if (a < 0x38800000) { // below 2^-14: a subnormal; adding 0.5 rounds at bit 2^-24
        const float r = float32(a) + 0.5f;
        return (uint16_t)(sign | (bits32(r) - bits32(0.5f)));
    }
    const uint32_t r = a + 0xfff + ((a >> 13) & 1); // half an ulp, less one where even
    return (uint16_t)(sign | ((r >> 13) - (112u << 10)));
}

float zx_bf16_to_f32(uint16_t h)
{
    return float32((uint32_t)h << 16);
}

uint16_t zx_f64_to_bf16(double d)
{
    const uint32_t u = bits32(to_odd(d));
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// ---- conversions --------------------------------------------------------------------------------
// Truncates towards 0 and saturates; NaN is 0.
static int64_t f64_to_i64(double x)
{
    if (!(x == x)) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    if (x < -0x1p63) return INT64_MIN;
    return (int64_t)x;
}
static uint64_t f64_to_u64(double x)
{
    if (!(x > 0)) return 0;
    if (x >= 0x1p64) return UINT64_MAX;
    return (uint64_t)x;
}

zx_class zx_class_of(zx_dtype t)
{
    switch (t) {
    case ZX_F32:
    case ZX_F16:
    case ZX_BF16:
        return ZX_CLASS_F32;
    case ZX_F64:
        return ZX_CLASS_F64;
    case ZX_U64:
        return ZX_CLASS_U64;
    default:
        return ZX_CLASS_I64;
    }
}

// Each dtype: its C type, and how an element becomes a double (or float) and an integer.
#define SAME(v) (v)
#define FLOATS(X)                                                                                  \
    X(F32, float, SAME)                                                                            \
    X(F64, double, SAME)                                                                           \
    X(F16, uint16_t, zx_f16_to_f32)                                                                \
    X(BF16, uint16_t, zx_bf16_to_f32)
#define INTEGERS(X)                                                                                \
    X(I8, int8_t)                                                                                  \
    X(I16, int16_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(I64, int64_t)                                                                                \
    X(U8, uint8_t)                                                                                 \
    X(U16, uint16_t)                                                                               \
    X(U32, uint32_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(BOOL, uint8_t)

#define EACH(TO, EXPR)                                                                             \
    for (int64_t i = 0; i < n; i++) to->TO[i] = EXPR;                                              \
    break;

void zx_load(zx_dtype t, const void *x, int64_t at, int64_t stride, int64_t n, zx_class c,
             zx_block *to)
{
    if (zx_is_16(t) && c == ZX_CLASS_F32 && stride == 1) {
        zx_cpu_widen(t, (const uint16_t *)x + at, to->f32, n);
        return;
    }
    switch (t) {
#define X(id, type, get)                                                                           \
    case ZX_##id: {                                                                                \
        const type *p = (const type *)x + at;                                                      \
        switch (c) {                                                                               \
        case ZX_CLASS_F32:                                                                         \
            EACH(f32, (float)get(p[i * stride]))                                                   \
        case ZX_CLASS_F64:                                                                         \
            EACH(f64, (double)get(p[i * stride]))                                                  \
        case ZX_CLASS_I64:                                                                         \
            EACH(i64, f64_to_i64((double)get(p[i * stride])))                                      \
        case ZX_CLASS_U64:                                                                         \
            EACH(u64, f64_to_u64((double)get(p[i * stride])))                                      \
        }                                                                                          \
        break;                                                                                     \
    }
        FLOATS(X)
#undef X
#define X(id, type)                                                                                \
    case ZX_##id: {                                                                                \
        const type *p = (const type *)x + at;                                                      \
        switch (c) {                                                                               \
        case ZX_CLASS_F32:                                                                         \
            EACH(f32, (float)p[i * stride])                                                        \
        case ZX_CLASS_F64:                                                                         \
            EACH(f64, (double)p[i * stride])                                                       \
        case ZX_CLASS_I64:                                                                         \
            EACH(i64, (int64_t)p[i * stride])                                                      \
        case ZX_CLASS_U64:                                                                         \
            EACH(u64, (uint64_t)p[i * stride])                                                     \
        }                                                                                          \
        break;                                                                                     \
    }
        INTEGERS(X)
#undef X
    default:
        zx_bug(__FILE__, __LINE__, "a dtype of dtypes.def");
    }
}
#undef EACH

// A double as an integer of `type`, saturated at its ends.
#define SATURATE(type, lo, hi)                                                                     \
    static type f64_to_##type(double x)                                                            \
    {                                                                                              \
        const int64_t v = f64_to_i64(x);                                                           \
        return (type)(v < (lo) ? (lo) : v > (hi) ? (hi) : v);                                      \
    }
SATURATE(int8_t, INT8_MIN, INT8_MAX)
SATURATE(int16_t, INT16_MIN, INT16_MAX)
SATURATE(int32_t, INT32_MIN, INT32_MAX)
SATURATE(uint8_t, 0, UINT8_MAX)
SATURATE(uint16_t, 0, UINT16_MAX)
SATURATE(uint32_t, 0, (int64_t)UINT32_MAX)
static int64_t f64_to_int64_t(double x)
{
    return f64_to_i64(x);
}
static uint64_t f64_to_uint64_t(double x)
{
    return f64_to_u64(x);
}

#define EACH(EXPR)                                                                                 \
    for (int64_t i = 0; i < n; i++) p[i] = EXPR;                                                   \
    break;

void zx_store(zx_dtype t, void *y, int64_t at, int64_t n, zx_class c, const zx_block *from)
{
    if (zx_is_16(t) && c == ZX_CLASS_F32) {
        zx_cpu_narrow(t, from->f32, (uint16_t *)y + at, n);
        return;
    }
    switch (t) {
#define X(id, type, PUT)                                                                           \
    case ZX_##id: {                                                                                \
        type *p = (type *)y + at;                                                                  \
        switch (c) {                                                                               \
        case ZX_CLASS_F32:                                                                         \
            EACH(PUT(from->f32[i]))                                                                \
        case ZX_CLASS_F64:                                                                         \
            EACH(PUT(from->f64[i]))                                                                \
        case ZX_CLASS_I64:                                                                         \
            EACH(PUT(from->i64[i]))                                                                \
        case ZX_CLASS_U64:                                                                         \
            EACH(PUT(from->u64[i]))                                                                \
        }                                                                                          \
        break;                                                                                     \
    }
#define TO_F32(v) ((float)(v))
#define TO_F64(v) ((double)(v))
#define TO_F16(v) zx_f64_to_f16((double)(v))
#define TO_BF16(v) zx_f64_to_bf16((double)(v))
        X(F32, float, TO_F32)
        X(F64, double, TO_F64)
        X(F16, uint16_t, TO_F16)
        X(BF16, uint16_t, TO_BF16)
#undef X
    case ZX_BOOL: {
        uint8_t *p = (uint8_t *)y + at;
        switch (c) {
        case ZX_CLASS_F32:
            EACH(from->f32[i] != 0)
        case ZX_CLASS_F64:
            EACH(from->f64[i] != 0)
        case ZX_CLASS_I64:
            EACH(from->i64[i] != 0)
        case ZX_CLASS_U64:
            EACH(from->u64[i] != 0)
        }
        break;
    }
#define X(id, type)                                                                                \
    case ZX_##id: {                                                                                \
        type *p = (type *)y + at;                                                                  \
        switch (c) {                                                                               \
        case ZX_CLASS_F32:                                                                         \
            EACH(f64_to_##type((double)from->f32[i]))                                              \
        case ZX_CLASS_F64:                                                                         \
            EACH(f64_to_##type(from->f64[i]))                                                      \
        case ZX_CLASS_I64:                                                                         \
            EACH((type)from->i64[i])                                                               \
        case ZX_CLASS_U64:                                                                         \
            EACH((type)from->u64[i])                                                               \
        }                                                                                          \
        break;                                                                                     \
    }
        X(I8, int8_t)
        X(I16, int16_t)
        X(I32, int32_t)
        X(I64, int64_t)
        X(U8, uint8_t)
        X(U16, uint16_t)
        X(U32, uint32_t)
        X(U64, uint64_t)
#undef X
    default:
        zx_bug(__FILE__, __LINE__, "a dtype of dtypes.def");
    }
}

double zx_read_f64(zx_dtype t, const void *x, int64_t at)
{
    zx_block b;
    zx_load(t, x, at, 0, 1, ZX_CLASS_F64, &b);
    return b.f64[0];
}

int64_t zx_read_i64(zx_dtype t, const void *x, int64_t at)
{
    zx_block b;
    zx_load(t, x, at, 0, 1, ZX_CLASS_I64, &b);
    return b.i64[0];
}

static zx_status need(const zx_call *call, bool or_16, zx_err *err)
{
    for (uint32_t i = 0; i < call->n_in; i++) {
        const zx_dtype t = call->in[i].type.dtype;
        if (call->in[i].data && zx_dtype_is_float(t) && t != ZX_F32 && !(or_16 && zx_is_16(t)))
            return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no kernel for %s, only for float32",
                           zx_dtypes[t].word);
    }
    return ZX_OK;
}

zx_status zx_need_f32(const zx_call *call, zx_err *err)
{
    return need(call, false, err);
}

zx_status zx_need_f32_or_16(const zx_call *call, zx_err *err)
{
    return need(call, true, err);
}

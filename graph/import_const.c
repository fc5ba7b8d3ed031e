// import_const.c - constants while importing: made from numbers or taken from the file, and read as
// the sizes, axes and factors that lowerings need.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

static uint16_t half_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t sign = (u >> 16) & 0x8000u, mag = u & 0x7FFFFFFFu;
    if (mag > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
    if (mag >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); // rounds to infinity
    if (mag < 0x33000001u) return (uint16_t)sign;
    const int exp = (int)(mag >> 23) - 112;
    uint32_t frac = (mag & 0x7FFFFFu) | 0x800000u;
    const int shift = exp > 0 ? 13 : 14 - exp;
    const uint32_t rest = frac & ((1u << shift) - 1), mid = 1u << (shift - 1);
    frac >>= shift;
    if (rest > mid || (rest == mid && (frac & 1))) frac++;
    return (uint16_t)(sign | (exp > 0 ? frac + ((uint32_t)(exp - 1) << 10) : frac));
}

static double double_of_half(uint16_t h)
{
    const int exp = (h >> 10) & 31;
    const double sign = h & 0x8000 ? -1 : 1, frac = h & 1023;
    if (exp == 31) return frac != 0 ? (double)__builtin_nan("") : sign * __builtin_inf();
    const double m = exp ? frac + 1024 : frac;
    return sign * __builtin_ldexp(m, (exp ? exp : 1) - 25);
}

void zx_put(void *bytes, zx_dtype t, int64_t i, double x)
{
    const float f = (float)x;
    switch (t) {
    case ZX_F32:
        ((float *)bytes)[i] = f;
        break;
    case ZX_F64:
        ((double *)bytes)[i] = x;
        break;
    case ZX_F16:
        ((uint16_t *)bytes)[i] = half_of(f);
        break;
    case ZX_BF16: {
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        if ((u & 0x7FFFFFFFu) <= 0x7F800000u) u += 0x7FFFu + ((u >> 16) & 1); // half to even
        ((uint16_t *)bytes)[i] = (uint16_t)(u >> 16);
        break;
    }
    case ZX_I8:
        ((int8_t *)bytes)[i] = (int8_t)zx_int_of(x);
        break;
    case ZX_I16:
        ((int16_t *)bytes)[i] = (int16_t)zx_int_of(x);
        break;
    case ZX_I32:
        ((int32_t *)bytes)[i] = (int32_t)zx_int_of(x);
        break;
    case ZX_I64:
        ((int64_t *)bytes)[i] = zx_int_of(x);
        break;
    case ZX_U8:
        ((uint8_t *)bytes)[i] = (uint8_t)zx_int_of(x);
        break;
    case ZX_U16:
        ((uint16_t *)bytes)[i] = (uint16_t)zx_int_of(x);
        break;
    case ZX_U32:
        ((uint32_t *)bytes)[i] = (uint32_t)zx_int_of(x);
        break;
    case ZX_U64:
        ((uint64_t *)bytes)[i] = x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)zx_int_of(x);
        break;
    case ZX_BOOL:
        ((uint8_t *)bytes)[i] = x != 0;
        break;
    case ZX_DTYPE_COUNT:
        break;
    }
}

#define LOAD(T)                                                                                    \
    do {                                                                                           \
        T x_;                                                                                      \
        memcpy(&x_, at, sizeof x_);                                                                \
        return (double)x_;                                                                         \
    } while (0)

static double load(const void *bytes, zx_dtype t, int64_t i)
{
    const unsigned char *at = (const unsigned char *)bytes + (uint64_t)i * zx_dtype_bytes(t);
    switch (t) {
    case ZX_F32:
        LOAD(float);
    case ZX_F64:
        LOAD(double);
    case ZX_F16: {
        uint16_t h;
        memcpy(&h, at, sizeof h);
        return double_of_half(h);
    }
    case ZX_BF16: {
        uint32_t u = 0;
        float f;
        memcpy((unsigned char *)&u + 2, at, 2);
        memcpy(&f, &u, sizeof f);
        return (double)f;
    }
    case ZX_I8:
        LOAD(int8_t);
    case ZX_I16:
        LOAD(int16_t);
    case ZX_I32:
        LOAD(int32_t);
    case ZX_I64:
        LOAD(int64_t);
    case ZX_U8:
        LOAD(uint8_t);
    case ZX_U16:
        LOAD(uint16_t);
    case ZX_U32:
        LOAD(uint32_t);
    case ZX_U64:
        LOAD(uint64_t);
    case ZX_BOOL:
        return *at != 0;
    case ZX_DTYPE_COUNT:
        break;
    }
    return 0;
}

uint32_t zx_k_fill(zx_imp *c, const zx_type *t, double x)
{
    void *bytes;
    const uint32_t v = zx_k_new(c, t, &bytes);
    const uint64_t size = zx_type_bytes(t), one = zx_dtype_bytes(t->dtype);
    if (v == ZX_NONE || size == 0 || x == 0) return v;
    zx_put(bytes, t->dtype, 0, x);
    for (uint64_t done = one; done < size; done *= 2) // what is filled fills as much again
        memcpy((char *)bytes + done, bytes, done < size - done ? done : size - done);
    return v;
}

uint32_t zx_k(zx_imp *c, zx_dtype t, double x)
{
    const zx_type type = {.dtype = t};
    return zx_k_fill(c, &type, x);
}

uint32_t zx_k_ints(zx_imp *c, const int64_t *x, uint32_t n)
{
    const zx_type type = {.dtype = ZX_I64, .shape = {.rank = 1, .dim = {n}}};
    void *bytes;
    const uint32_t v = zx_k_new(c, &type, &bytes);
    if (v != ZX_NONE && n > 0) memcpy(bytes, x, n * sizeof *x);
    return v;
}

uint32_t zx_k_int(zx_imp *c, int64_t x)
{
    const zx_type type = {.dtype = ZX_I64};
    void *bytes;
    const uint32_t v = zx_k_new(c, &type, &bytes);
    if (v != ZX_NONE) memcpy(bytes, &x, sizeof x);
    return v;
}

uint32_t zx_k_file(zx_imp *c, const Onnx__TensorProto *t, const char *name)
{
    if (!zx_ok(c)) return ZX_NONE;
    zx_type type;
    const void *data;
    if (t == NULL) return zx_fail(c, ZX_E_FORMAT, "it holds no tensor");
    if (!zx_did(c, zx_onnx_tensor(c->file, t, c->mem, &type, &data, &c->one))) return ZX_NONE;
    return zx_build_const(&c->b, name, &type, data);
}

// ---- reading constants
// -----------------------------------------------------------------------------------

static bool readable(zx_imp *c, uint32_t v, const char *what)
{
    if (!zx_ok(c)) return false;
    if (v == ZX_NONE) {
        zx_fail(c, ZX_E_FORMAT, "%s is missing", what);
    } else if (!zx_is_const(c, v)) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "%s depends on data or on a parameter: sizes must be known before training starts",
                what);
    }
    return zx_ok(c);
}

double zx_const_at(const zx_imp *c, uint32_t v, int64_t i)
{
    const zx_value *x = &c->b.values[v];
    return load(x->data, x->type.dtype, i);
}

const int64_t *zx_const_ints(zx_imp *c, uint32_t v, const char *what, uint32_t *n)
{
    *n = 0;
    if (!readable(c, v, what)) return NULL;
    const zx_value *x = &c->b.values[v];
    if (zx_dtype_is_float(x->type.dtype) || x->type.dtype == ZX_BOOL || x->type.shape.rank > 1) {
        zx_fail(c, ZX_E_SHAPE, "%s must be a list of integers", what);
        return NULL;
    }
    const int64_t count = zx_shape_count(&x->type.shape);
    if (count > 1 << 20) {
        zx_fail(c, ZX_E_SHAPE, "%s has %" PRId64 " numbers", what, count);
        return NULL;
    }
    int64_t *out = ZX_NEW(&c->tmp, int64_t, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        if (x->type.dtype == ZX_I64)
            memcpy(&out[i], (const char *)x->data + i * 8, 8);
        else
            out[i] = zx_int_of(load(x->data, x->type.dtype, i));
    }
    *n = (uint32_t)count;
    return out;
}

int64_t zx_const_int(zx_imp *c, uint32_t v, const char *what)
{
    uint32_t n;
    const int64_t *x = zx_const_ints(c, v, what, &n);
    if (x && n != 1) zx_fail(c, ZX_E_SHAPE, "%s has %u numbers where one is wanted", what, n);
    return x && n == 1 ? x[0] : 0;
}

double zx_const_float(zx_imp *c, uint32_t v, const char *what)
{
    if (!readable(c, v, what)) return 0;
    if (zx_shape_count(zx_s(c, v)) != 1) {
        zx_fail(c, ZX_E_SHAPE, "%s must be one number", what);
        return 0;
    }
    return zx_const_at(c, v, 0);
}

const double *zx_const_floats(zx_imp *c, uint32_t v, const char *what, uint32_t *n)
{
    *n = 0;
    if (!readable(c, v, what)) return NULL;
    const int64_t count = zx_shape_count(zx_s(c, v));
    if (zx_rank(c, v) > 1 || count > 1 << 20) {
        zx_fail(c, ZX_E_SHAPE, "%s must be a short list of numbers", what);
        return NULL;
    }
    double *out = ZX_NEW(&c->tmp, double, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) out[i] = zx_const_at(c, v, i);
    *n = (uint32_t)count;
    return out;
}

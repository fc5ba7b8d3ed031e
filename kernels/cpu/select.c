// select.c - Cast, Where, Clip: elementwise ops that choose or convert.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

// ---- Cast ---------------------------------------------------------------------------------------
static void cast_range(void *ctx, int64_t from, int64_t to)
{
    const zx_call *call = ctx;
    const zx_dtype tx = call->in[0].type.dtype, ty = call->out[0].type.dtype;
    const zx_class c = zx_class_of(tx);
    zx_block b;
    for (int64_t at = from; at < to; at += ZX_BLOCK) {
        const int64_t n = zx_min_i64(ZX_BLOCK, to - at);
        zx_load(tx, call->in[0].data, at, 1, n, c, &b);
        zx_store(ty, call->out[0].data, at, n, c, &b);
    }
}

static zx_status cast(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const zx_type *t = &call->in[0].type;
    zx_call c = *call;
    if (t->dtype == call->out[0].type.dtype)
        memcpy(call->out[0].data, call->in[0].data, (size_t)zx_type_bytes(t));
    else
        zx_split(call->threads, zx_shape_count(&t->shape), 64, ZX_GRAIN / 2, cast_range, &c);
    return ZX_OK;
}
const zx_kernel zx_cpu_cast = {.run = cast};

// ---- Where --------------------------------------------------------------------------------------
struct where_job {
    const zx_call *call;
    zx_broadcast b;
};

#define WHERE_RUN(type)                                                                            \
    ZX_CLONES static void where_##type(const uint8_t *c, int64_t sc, const void *av, int64_t sa,   \
                                       const void *bv, int64_t sb, void *yv, int64_t n)            \
    {                                                                                              \
        const type *a = av, *b = bv;                                                               \
        type *y = yv;                                                                              \
        if (sc == 1 && sa == 1 && sb == 1) {                                                       \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : b[i];                             \
        } else if (sc == 1 && sa == 1) {                                                           \
            const type no = *b;                                                                    \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? a[i] : no;                               \
        } else if (sc == 1 && sb == 1) {                                                           \
            const type yes = *a;                                                                   \
            for (int64_t i = 0; i < n; i++) y[i] = c[i] ? yes : b[i];                              \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++) y[i] = c[i * sc] ? a[i * sa] : b[i * sb];              \
        }                                                                                          \
    }
WHERE_RUN(uint8_t)
WHERE_RUN(uint16_t)
WHERE_RUN(uint32_t)
WHERE_RUN(uint64_t)

static void where_run(void *ctx, int64_t at, const int64_t pos[3], int64_t n)
{
    const struct where_job *j = ctx;
    const uint32_t last = j->b.rank - 1;
    const int64_t size = zx_dtype_bytes(j->call->in[1].type.dtype);
    const uint8_t *c = (const uint8_t *)j->call->in[0].data + pos[0];
    const char *a = (const char *)j->call->in[1].data + pos[1] * size;
    const char *b = (const char *)j->call->in[2].data + pos[2] * size;
    char *y = (char *)j->call->out[0].data + at * size;
    const int64_t sc = j->b.stride[0][last], sa = j->b.stride[1][last], sb = j->b.stride[2][last];
    switch (size) {
    case 1:
        where_uint8_t(c, sc, a, sa, b, sb, y, n);
        break;
    case 2:
        where_uint16_t(c, sc, a, sa, b, sb, y, n);
        break;
    case 4:
        where_uint32_t(c, sc, a, sa, b, sb, y, n);
        break;
    default:
        where_uint64_t(c, sc, a, sa, b, sb, y, n);
        break;
    }
}

static zx_status where(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct where_job j = {.call = call};
    zx_broadcast_make(&j.b, &call->out[0].type.shape, call->in, 3);
    zx_broadcast_runs(&j.b, call->threads, where_run, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_where = {.run = where};

// ---- Clip ---------------------------------------------------------------------------------------
struct clip_job {
    const zx_call *call;
    zx_class c;
    bool has_lo, has_hi;
    zx_block lo, hi; // one element each
};

ZX_CLONES static void clip_f32(const float *x, float *y, int64_t n, float lo, float hi)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float v = x[i] < lo ? lo : x[i];
        y[i] = v > hi ? hi : v;
    }
}

#define CLIP_BLOCK(field)                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                              \
        if (j->has_lo && b.field[i] < j->lo.field[0]) b.field[i] = j->lo.field[0];                 \
        if (j->has_hi && b.field[i] > j->hi.field[0]) b.field[i] = j->hi.field[0];                 \
    }                                                                                              \
    break;

static void clip_range(void *ctx, int64_t from, int64_t to)
{
    const struct clip_job *j = ctx;
    const zx_dtype t = j->call->in[0].type.dtype;
    const void *x = j->call->in[0].data;
    void *y = j->call->out[0].data;
    if (t == ZX_F32) {
        clip_f32((const float *)x + from, (float *)y + from, to - from, j->lo.f32[0], j->hi.f32[0]);
        return;
    }
    zx_block b;
    for (int64_t at = from; at < to; at += ZX_BLOCK) {
        const int64_t n = zx_min_i64(ZX_BLOCK, to - at);
        zx_load(t, x, at, 1, n, j->c, &b);
        switch (j->c) {
        case ZX_CLASS_F32:
            CLIP_BLOCK(f32)
        case ZX_CLASS_F64:
            CLIP_BLOCK(f64)
        case ZX_CLASS_I64:
            CLIP_BLOCK(i64)
        case ZX_CLASS_U64:
            CLIP_BLOCK(u64)
        }
        zx_store(t, y, at, n, j->c, &b);
    }
}

static zx_status clip(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct clip_job j = {.call = call, .c = zx_class_of(call->in[0].type.dtype)};
    j.has_lo = zx_has(call, 1);
    j.has_hi = zx_has(call, 2);
    j.lo.f32[0] = -__builtin_inff();
    j.hi.f32[0] = __builtin_inff();
    if (j.has_lo) zx_load(call->in[1].type.dtype, call->in[1].data, 0, 0, 1, j.c, &j.lo);
    if (j.has_hi) zx_load(call->in[2].type.dtype, call->in[2].data, 0, 0, 1, j.c, &j.hi);
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN, clip_range, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_clip = {.run = clip};

struct clip_grad_job {
    const float *dy, *x;
    float *dx;
    float lo, hi;
};

ZX_CLONES static void clip_grad_range(void *ctx, int64_t from, int64_t to)
{
    const struct clip_grad_job *j = ctx;
    const float *dy = j->dy, *x = j->x;
    float *dx = j->dx;
    const float lo = j->lo, hi = j->hi;
    ZX_SIMD for (int64_t i = from; i < to; i++) dx[i] =
        ((x[i] >= lo) & (x[i] <= hi)) ? dy[i] : 0.0f;
}

static zx_status clip_grad(const zx_call *call, zx_err *err)
{
    struct clip_grad_job j = {.dy = call->in[0].data,
                              .x = call->in[1].data,
                              .dx = call->out[0].data,
                              .lo = -__builtin_inff(),
                              .hi = __builtin_inff()};
    ZX_TRY(zx_need_f32(call, err));
    if (zx_has(call, 2)) j.lo = *(const float *)call->in[2].data;
    if (zx_has(call, 3)) j.hi = *(const float *)call->in[3].data;
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN, clip_grad_range, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_clip_grad = {.run = clip_grad};

// glu.c - gated linear units, y = f(a) b with f SiLU or GELU, and both gradients in one pass,
// float32 and, some at a time, 16 bits.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/vmath.h"

// f(x) = x * s(x) in each mode: s, and q = x * s'(x). Then f'(x) = s + q.
static inline float silu_s(float x, float alpha)
{
    return vm_sigmoid(alpha * x);
}
static inline float silu_q(float x, float s, float alpha)
{
    return (alpha * x) * (s * (1.0f - s));
}
static inline float gelu_s(float x, float alpha ZX_UNUSED)
{
    return 0.5f * (1.0f + vm_erf(x * 0.70710678f));
}
static inline float gelu_q(float x, float s ZX_UNUSED, float alpha ZX_UNUSED)
{
    return x * (0.39894228f * vm_exp(-0.5f * (x * x)));
}
static inline float gelu_tanh_s(float x, float alpha ZX_UNUSED)
{
    return vm_sigmoid(x * (1.59576912f + 0.07135481283f * (x * x)));
}
static inline float gelu_tanh_q(float x, float s, float alpha ZX_UNUSED)
{
    const float q = s * (1.0f - s) * (1.59576912f + 0.2140644385f * (x * x));
    // far out s is 0 or 1 and x times the slope may overflow: the product is 0 there
    return vm_abs(x) > 100.0f ? 0.0f : x * q;
}

#define MODES(X) X(silu) X(gelu) X(gelu_tanh) // in the order of MODE

// clang-format off
#define X(f)                                                                                       \
    ZX_CLONES static void f##_gate(const float *a, const float *b, float *y, int64_t n,            \
                                   float alpha)                                                    \
    {                                                                                              \
        ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = a[i] * f##_s(a[i], alpha) * b[i];           \
    }                                                                                              \
    static inline void f##_some(const float *dys, const float *as, const float *bs, float *da,     \
                                float *db, int64_t n, float alpha)                                 \
    {                                                                                              \
        ZX_SIMD for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const float dy = dys[i], a = as[i], b = bs[i], s = f##_s(a, alpha);                    \
            da[i] = dy * b * (s + f##_q(a, s, alpha));                                             \
            db[i] = dy * (a * s);                                                                  \
        }                                                                                          \
    }                                                                                              \
    ZX_CLONES static void f##_gate_grad(const float *dys, const float *as, const float *bs,        \
                                        float *da, float *db, int64_t n, float alpha)              \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + ZX_LINE <= n; i += ZX_LINE) {                                                   \
            __builtin_prefetch(dys + i + ZX_AHEAD);                                                \
            __builtin_prefetch(as + i + ZX_AHEAD);                                                 \
            __builtin_prefetch(bs + i + ZX_AHEAD);                                                 \
            __builtin_prefetch(da + i + ZX_AHEAD, 1);                                              \
            __builtin_prefetch(db + i + ZX_AHEAD, 1);                                              \
            f##_some(dys + i, as + i, bs + i, da + i, db + i, ZX_LINE, alpha);                     \
        }                                                                                          \
        f##_some(dys + i, as + i, bs + i, da + i, db + i, n - i, alpha);                           \
    }
// clang-format on
MODES(X)
#undef X

static const struct {
    void (*forward)(const float *, const float *, float *, int64_t, float);
    void (*backward)(const float *, const float *, const float *, float *, float *, int64_t, float);
} rows[] = {
#define X(f) {f##_gate, f##_gate_grad},
    MODES(X)
#undef X
};

struct job {
    const zx_call *call;
    int64_t mode;
    float alpha;
};

static struct job job_of(const zx_call *call)
{
    return (struct job){call, zx_attr_int(call->attrs, ZX_A_MODE, 0),
                        (float)zx_attr_float(call->attrs, ZX_A_ALPHA, 1)};
}

static void forward_range(void *ctx, int64_t from, int64_t to)
{
    const struct job *j = ctx;
    const zx_view *a = &j->call->in[0], *b = &j->call->in[1], *y = &j->call->out[0];
    const int64_t most = zx_has_16(j->call) ? ZX_BLOCK : to - from;
    float room[3][ZX_BLOCK];
    for (int64_t at = from, n; at < to; at += n) {
        n = zx_min_i64(most, to - at);
        float *out = zx_floats_to(y->type.dtype, y->data, at, room[2]);
        rows[j->mode].forward(zx_floats(a->type.dtype, a->data, at, n, room[0]),
                              zx_floats(b->type.dtype, b->data, at, n, room[1]), out, n, j->alpha);
        zx_floats_put(y->type.dtype, out, y->data, at, n);
    }
}

static zx_status glu(const zx_call *call, zx_err *err)
{
    struct job job = job_of(call);
    ZX_TRY(zx_need_f32_or_16(call, err));
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN / 4, forward_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_glu = {.run = glu};

static void backward_range(void *ctx, int64_t from, int64_t to)
{
    const struct job *j = ctx;
    const zx_view *dy = &j->call->in[0], *a = &j->call->in[1], *b = &j->call->in[2];
    const zx_view *da = &j->call->out[0], *db = &j->call->out[1];
    const bool unread = db->data == NULL;
    const int64_t most = unread || zx_has_16(j->call) ? ZX_BLOCK : to - from;
    float room[5][ZX_BLOCK];
    for (int64_t at = from, n; at < to; at += n) {
        n = zx_min_i64(most, to - at);
        float *to_a = zx_floats_to(da->type.dtype, da->data, at, room[3]);
        float *to_b = unread ? room[4] : zx_floats_to(db->type.dtype, db->data, at, room[4]);
        rows[j->mode].backward(zx_floats(dy->type.dtype, dy->data, at, n, room[0]),
                               zx_floats(a->type.dtype, a->data, at, n, room[1]),
                               zx_floats(b->type.dtype, b->data, at, n, room[2]), to_a, to_b, n,
                               j->alpha);
        zx_floats_put(da->type.dtype, to_a, da->data, at, n);
        if (!unread) zx_floats_put(db->type.dtype, to_b, db->data, at, n);
    }
}

static zx_status glu_grad(const zx_call *call, zx_err *err)
{
    struct job job = job_of(call);
    ZX_TRY(zx_need_f32_or_16(call, err));
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN / 4, backward_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_glu_grad = {.run = glu_grad};

// glu.c - gated linear units, y = f(a) b with f SiLU or GELU, and both gradients in one pass,
// float32.
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
    const float *a = j->call->in[0].data, *b = j->call->in[1].data;
    float *y = j->call->out[0].data;
    rows[j->mode].forward(a + from, b + from, y + from, to - from, j->alpha);
}

static zx_status glu(const zx_call *call, zx_err *err)
{
    struct job job = job_of(call);
    ZX_TRY(zx_need_f32(call, err));
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN / 4, forward_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_glu = {.run = glu};

static void backward_range(void *ctx, int64_t from, int64_t to)
{
    const struct job *j = ctx;
    const float *dy = j->call->in[0].data, *a = j->call->in[1].data, *b = j->call->in[2].data;
    float *da = j->call->out[0].data, *db = j->call->out[1].data, unread[ZX_BLOCK];
    for (int64_t at = from, n; at < to; at += n) {
        n = db != NULL ? to - at : zx_min_i64(ZX_BLOCK, to - at);
        rows[j->mode].backward(dy + at, a + at, b + at, da + at, db != NULL ? db + at : unread, n,
                               j->alpha);
    }
}

static zx_status glu_grad(const zx_call *call, zx_err *err)
{
    struct job job = job_of(call);
    ZX_TRY(zx_need_f32(call, err));
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN / 4, backward_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_glu_grad = {.run = glu_grad};

// unary_grad.c - dx = dy * f'(x) of the functions in unary.c, float32 and, some at a time, 16 bits.
// `x` is the operand or, where ops.def says unary_y, the result.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/vmath.h"

typedef struct args {
    float a, b, g; // alpha, beta, gamma
} args;

#define LIBM(f, x) (float)f((double)(x))

static inline float gelu_grad(float x) // Phi(x) + x phi(x)
{
    const float cdf = 0.5f * (1.0f + vm_erf(x * 0.70710678f));
    return cdf + x * (0.39894228f * vm_exp(-0.5f * (x * x)));
}
static inline float
gelu_tanh_grad(float x) // x s(u), s the sigmoid, u = 2 sqrt(2/pi) (x + 0.044715 x^3)
{
    const float xx = x * x;
    const float s = vm_sigmoid(x * (1.59576912f + 0.07135481283f * xx));
    const float du = 1.59576912f + 0.2140644385f * xx;
    const float q = s * (1.0f - s) * du;
    // far out s is 0 or 1 and x * du may overflow: the product is 0 there
    return vm_abs(x) > 100.0f ? s : s + x * q;
}
static inline float mish_grad(float x)
{
    const float e = vm_exp(x > 20.0f ? 20.0f : x), w = e * (e + 2.0f), t = w / (w + 2.0f);
    return t + x * vm_sigmoid(x) * (1.0f - t * t);
}
static inline float square(float x)
{
    return x * x;
}

static inline float silu_grad(float x, float a)
{
    const float s = vm_sigmoid(a * x);
    return s + (a * x) * (s * (1.0f - s));
}

#define R(c) ((float)(c))
#define ABS(x) vm_abs(x)
#define SQRT(x) sqrtf(x)
#define EXP(x) vm_exp(x)
#define SIN(x) vm_sin(x)
#define COS(x) vm_cos(x)
#define SIGMOID(x) vm_sigmoid(x)
#define SQUARE(x) square(x)
#define GELU_D(x) gelu_grad(x)
#define GELU_TANH_D(x) gelu_tanh_grad(x)
#define SILU_D(x, a) silu_grad(x, a)
#define MISH_D(x) mish_grad(x)
#define ZX_UNARY(id, alpha, f)
#define ZX_UNARY_GRAD(id, alpha, f, expr)                                                          \
    static inline void some_##id(const float *dys, const float *xs, float *out, int64_t n,         \
                                 const args *p ZX_UNUSED)                                          \
    {                                                                                              \
        const float A ZX_UNUSED = p->a, B ZX_UNUSED = p->b, G ZX_UNUSED = p->g;                    \
        ZX_SIMD for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const float dy = dys[i], x = xs[i];                                                    \
            out[i] = expr;                                                                         \
        }                                                                                          \
    }                                                                                              \
    ZX_CLONES static void grad_##id(const float *dys, const float *xs, float *out, int64_t n,      \
                                    const args *p)                                                 \
    {                                                                                              \
        int64_t i = 0;                                                                             \
        for (; i + ZX_LINE <= n; i += ZX_LINE) {                                                   \
            __builtin_prefetch(dys + i + ZX_AHEAD);                                                \
            __builtin_prefetch(xs + i + ZX_AHEAD);                                                 \
            __builtin_prefetch(out + i + ZX_AHEAD, 1);                                             \
            some_##id(dys + i, xs + i, out + i, ZX_LINE, p);                                       \
        }                                                                                          \
        some_##id(dys + i, xs + i, out + i, n - i, p);                                             \
    }
#include "kernels/unary.def"
#undef ZX_UNARY_GRAD

typedef void grad_fn(const float *, const float *, float *, int64_t, const args *);
static const struct {
    uint32_t op;
    grad_fn *f;
    double alpha; // where absent
} rows[] = {
#define ZX_K_GELU_TANH_GRAD ZX_K_GELU_GRAD // the next row, by MODE
#define ZX_UNARY_GRAD(id, alpha, f, g) {ZX_K_##id##_GRAD, grad_##id, alpha},
#include "kernels/unary.def"
#undef ZX_UNARY_GRAD
};

struct job {
    const zx_call *call;
    grad_fn *f;
    args args;
};

static void grad_some(const struct job *job, const float *dy, const float *x, float *dx, int64_t to)
{
    const uint32_t op = job->call->op;
    const bool is_sin = op == ZX_K_SIN_GRAD, trig = is_sin || op == ZX_K_COS_GRAD;
    for (int64_t at = 0; at < to;) {
        // Large operands of sin and cos go through the C library, one by one.
        int64_t n = trig ? 0 : to - at;
        while (trig && at + n < to && vm_abs(x[at + n]) <= VM_TRIG_MOST) n++;
        job->f(dy + at, x + at, dx + at, n, &job->args);
        at += n;
        if (at == to) break;
        dx[at] = dy[at] * (float)(is_sin ? cos((double)x[at]) : -sin((double)x[at]));
        at++;
    }
}

static void grad_range(void *ctx, int64_t from, int64_t to)
{
    const struct job *job = ctx;
    const zx_view *dy = &job->call->in[0], *x = &job->call->in[1], *dx = &job->call->out[0];
    const zx_dtype ty = dy->type.dtype, tx = x->type.dtype, to_type = dx->type.dtype;
    const bool some = zx_is_16(ty) || zx_is_16(tx) || zx_is_16(to_type);
    float room[3][ZX_BLOCK];
    for (int64_t at = from, n; at < to; at += n) {
        n = some ? zx_min_i64(ZX_BLOCK, to - at) : to - at;
        float *out = zx_floats_to(to_type, dx->data, at, room[2]);
        grad_some(job, zx_floats(ty, dy->data, at, n, room[0]),
                  zx_floats(tx, x->data, at, n, room[1]), out, n);
        zx_floats_put(to_type, out, dx->data, at, n);
    }
}

static zx_status unary_grad(const zx_call *call, zx_err *err)
{
    struct job job = {.call = call};
    ZX_TRY(zx_need_f32_or_16(call, err));
    const bool tanh_form =
        call->op == ZX_K_GELU_GRAD && zx_attr_int(call->attrs, ZX_A_MODE, 0) == 1;
    uint32_t i = 0;
    while (i < ZX_COUNT(rows) && rows[i].op != call->op) i++;
    ZX_ASSERT(i < ZX_COUNT(rows));
    job.f = rows[i + (tanh_form ? 1 : 0)].f;
    job.args.a = (float)zx_attr_float(call->attrs, ZX_A_ALPHA, rows[i].alpha);
    job.args.b = (float)zx_attr_float(call->attrs, ZX_A_BETA, 0.5);
    job.args.g = (float)zx_attr_float(call->attrs, ZX_A_GAMMA, 1.05070102214813232421875);
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN / 4, grad_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_unary_grad = {.run = unary_grad};

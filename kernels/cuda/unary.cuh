// unary.cuh - the words that kernels/unary.def is written in, as float on the device, and what the
// family's launches share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_UNARY_CUH
#define ZX_KERNELS_CUDA_UNARY_CUH

#include "kernels/cuda/common.cuh"

#define R(c) ((float)(c))
#define ABS(x) fabsf(x)
#define FLOOR(x) floorf(x)
#define CEIL(x) ceilf(x)
#define ROUND(x) rintf(x)
#define SQRT(x) sqrtf(x)
#define EXP(x) expf(x)
#define EXPM1(x) expm1f(x)
#define LOG(x) logf(x)
#define LOG1P(x) log1pf(x)
#define SIN(x) sinf(x)
#define COS(x) cosf(x)
#define ERF(x) erff(x)
#define TANH(x) tanhf(x)
#define LIBM(fn, x) fn##f(x)
#define SIGMOID(x) zx_sigmoid(x)
#define CLAMP01(x) zx_clamp01(x)
#define MISH(x) zx_mish(x)
#define SQUARE(x) zx_square(x)
#define GELU_D(x) zx_gelu_d(x)
#define GELU_TANH_D(x) zx_gelu_tanh_d(x)
#define SILU_D(x, a) zx_silu_d(x, a)
#define MISH_D(x) zx_mish_d(x)

static __device__ inline float zx_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}
static __device__ inline float zx_clamp01(float x) // NaN stays
{
    const float y = x < 0.0f ? 0.0f : x;
    return y > 1.0f ? 1.0f : y;
}
static __device__ inline float zx_mish_tanh(float x) // tanh(log(1 + e^x)), with w = e^x (e^x + 2)
{
    const float e = expf(x > 20.0f ? 20.0f : x), w = e * (e + 2.0f);
    return w / (w + 2.0f);
}
static __device__ inline float zx_mish(float x)
{
    return x * zx_mish_tanh(x);
}
static __device__ inline float zx_square(float x)
{
    return x * x;
}
static __device__ inline float zx_gelu_d(float x) // Phi(x) + x phi(x)
{
    const float cdf = 0.5f * (1.0f + erff(x * 0.70710678f));
    return cdf + x * (0.39894228f * expf(-0.5f * (x * x)));
}
static __device__ inline float zx_gelu_tanh_d(float x) // see kernels/cpu/unary_grad.c
{
    const float xx = x * x;
    const float s = zx_sigmoid(x * (1.59576912f + 0.07135481283f * xx));
    const float du = 1.59576912f + 0.2140644385f * xx;
    const float q = s * (1.0f - s) * du;
    return fabsf(x) > 100.0f ? s : s + x * q;
}
static __device__ inline float zx_silu_d(float x, float a)
{
    const float s = zx_sigmoid(a * x);
    return s + (a * x) * (s * (1.0f - s));
}
static __device__ inline float zx_mish_d(float x)
{
    const float t = zx_mish_tanh(x);
    return t + x * zx_sigmoid(x) * (1.0f - t * t);
}

typedef struct zx_unary_args { // attributes
    float a, b, g;
} zx_unary_args;

static inline zx_unary_args zx_unary_args_of(const zx_call *call, double absent_alpha)
{
    zx_unary_args p;
    p.a = (float)zx_attr_float(call->attrs, ZX_A_ALPHA, absent_alpha);
    p.b = (float)zx_attr_float(call->attrs, ZX_A_BETA, 0.5);
    p.g = (float)zx_attr_float(call->attrs, ZX_A_GAMMA, 1.05070102214813232421875);
    return p;
}

typedef struct zx_unary_row {
    uint32_t op;
    double alpha; // where absent
    cudaError_t (*launch)(const zx_call *, zx_unary_args);
} zx_unary_row;

// NULL: the op isn't among the rows. GELU's next row is the same op, by MODE.
static inline const zx_unary_row *zx_unary_find(const zx_unary_row *rows, size_t n,
                                                const zx_call *call)
{
    const bool gelu = call->op == ZX_K_GELU || call->op == ZX_K_GELU_GRAD;
    const bool tanh_form = gelu && zx_attr_int(call->attrs, ZX_A_MODE, 0) == 1;
    for (size_t i = 0; i < n; i++)
        if (rows[i].op == call->op) return &rows[i + (tanh_form ? 1 : 0)];
    return NULL;
}

#endif

// glu.cu - gated linear units, y = f(a) b with f SiLU or GELU, and both gradients in one pass,
// float32.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/unary.cuh"

namespace
{

enum { SILU, GELU, GELU_TANH }; // MODE

// f(x) = x * s(x): s, and f'(x).
template <int MODE> static __device__ inline float gate(float x, float alpha)
{
    return MODE == SILU   ? zx_sigmoid(alpha * x)
           : MODE == GELU ? 0.5f * (1.0f + erff(x * 0.70710678f))
                          : zx_sigmoid(x * (1.59576912f + 0.07135481283f * (x * x)));
}
template <int MODE> static __device__ inline float slope(float x, float alpha)
{
    return MODE == SILU ? zx_silu_d(x, alpha) : MODE == GELU ? zx_gelu_d(x) : zx_gelu_tanh_d(x);
}

template <int MODE>
__global__ void __launch_bounds__(ZX_BLOCK)
    glu(const float *a, const float *b, float *y, int64_t n, float alpha)
{
    ZX_FOR_EACH(i, n) y[i] = a[i] * gate<MODE>(a[i], alpha) * b[i];
}
template <int MODE>
__global__ void __launch_bounds__(ZX_BLOCK)
    glu_grad(const float *dys, const float *as, const float *bs, float *da, float *db, int64_t n,
             float alpha)
{
    ZX_FOR_EACH(i, n)
    {
        const float dy = dys[i], a = as[i], b = bs[i];
        da[i] = dy * b * slope<MODE>(a, alpha);
        if (db != NULL) db[i] = dy * (a * gate<MODE>(a, alpha));
    }
}

template <int MODE> cudaError_t launch(const zx_call *c)
{
    const float alpha = (float)zx_attr_float(c->attrs, ZX_A_ALPHA, 1);
    const int64_t n = zx_count(&c->in[0]);
    const float *x = (const float *)c->in[0].data, *y = (const float *)c->in[1].data;
    if (c->op == ZX_K_GLU)
        return zx_launch_each(c, n, glu<MODE>, x, y, (float *)c->out[0].data, n, alpha);
    return zx_launch_each(c, n, glu_grad<MODE>, x, y, (const float *)c->in[2].data,
                          (float *)c->out[0].data, (float *)c->out[1].data, n, alpha);
}
zx_status run(const zx_call *c, zx_err *err)
{
    const int64_t mode = zx_attr_int(c->attrs, ZX_A_MODE, SILU);
    const cudaError_t e = mode == SILU   ? launch<SILU>(c)
                          : mode == GELU ? launch<GELU>(c)
                                         : launch<GELU_TANH>(c);
    return zx_cuda_check(e, "glu", err);
}

} // namespace

const zx_kernel zx_cuda_glu = {zx_prepare_f32, NULL, run};
const zx_kernel zx_cuda_glu_grad = {zx_prepare_f32, NULL, run};

// unary_grad.cu - dx = dy * f'(x) of the functions in kernels/unary.def, on f32, f16 and bf16.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/unary.cuh"

namespace
{

#define ZX_UNARY(id, alpha, f)
#define ZX_UNARY_GRAD(id, alpha, f, expr)                                                          \
    struct g_##id {                                                                                \
        static __device__ float at(float dy, float x, zx_unary_args p)                             \
        {                                                                                          \
            const float A = p.a, B = p.b, G = p.g;                                                 \
            (void)A, (void)B, (void)G;                                                             \
            return expr;                                                                           \
        }                                                                                          \
    };
#include "kernels/unary.def"
#undef ZX_UNARY_GRAD

template <class F, class T>
__global__ void __launch_bounds__(ZX_BLOCK)
    unary_grad(const T *dy, const T *x, T *dx, int64_t n, zx_unary_args p)
{
    ZX_FOR_EACH(i, n) dx[i] = zx_from_float<T>(F::at(zx_to_float(dy[i]), zx_to_float(x[i]), p));
}

template <class F> cudaError_t launch(const zx_call *c, zx_unary_args p)
{
    const zx_view *in = c->in;
    return zx_of_float(in[0].type.dtype, [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, zx_count(&in[0]), unary_grad<F, T>, (const T *)in[0].data,
                              (const T *)in[1].data, (T *)c->out[0].data, zx_count(&in[0]), p);
    });
}

#define ZX_K_GELU_TANH_GRAD ZX_K_GELU_GRAD // the next row, by MODE
const zx_unary_row rows[] = {
#define ZX_UNARY_GRAD(id, alpha, f, g) {ZX_K_##id##_GRAD, alpha, launch<g_##id>},
#include "kernels/unary.def"
#undef ZX_UNARY_GRAD
};

zx_status run(const zx_call *call, zx_err *err)
{
    const zx_unary_row *r = zx_unary_find(rows, ZX_COUNT(rows), call);
    ZX_ASSERT(r != NULL);
    return zx_cuda_check(r->launch(call, zx_unary_args_of(call, r->alpha)), "unary_grad", err);
}

} // namespace

const zx_kernel zx_cuda_unary_grad = {zx_prepare_not_f64, NULL, run};

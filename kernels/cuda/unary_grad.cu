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

template <class F, class T> cudaError_t launch_as(const zx_call *c, zx_unary_args p)
{
    const int64_t n = zx_count(&c->in[0]);
    return zx_launch(unary_grad<F, T>, zx_blocks(n), ZX_BLOCK, 0, c->cuda->stream,
                     (const T *)c->in[0].data, (const T *)c->in[1].data, (T *)c->out[0].data, n, p);
}
template <class F> cudaError_t launch(const zx_call *c, zx_unary_args p)
{
    switch (c->in[0].type.dtype) {
    case ZX_F16:
        return launch_as<F, __half>(c, p);
    case ZX_BF16:
        return launch_as<F, __nv_bfloat16>(c, p);
    default:
        return launch_as<F, float>(c, p);
    }
}

struct row {
    uint32_t op;
    double alpha; // where absent
    cudaError_t (*launch)(const zx_call *, zx_unary_args);
};
#define ZX_K_GELU_TANH_GRAD ZX_K_GELU_GRAD // the next row, by MODE
const row rows[] = {
#define ZX_UNARY_GRAD(id, alpha, f, g) {ZX_K_##id##_GRAD, alpha, launch<g_##id>},
#include "kernels/unary.def"
#undef ZX_UNARY_GRAD
};

zx_status prepare(const zx_call *call, uint64_t *work_bytes, void **state, zx_err *err)
{
    (void)work_bytes, (void)state;
    const zx_dtype t = call->in[0].type.dtype;
    if (t != ZX_F32 && t != ZX_F16 && t != ZX_BF16)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel for %s", zx_dtypes[t].word);
    return ZX_OK;
}

zx_status run(const zx_call *call, zx_err *err)
{
    const bool tanh_form =
        call->op == ZX_K_GELU_GRAD && zx_attr_int(call->attrs, ZX_A_MODE, 0) == 1;
    uint32_t i = 0;
    if (zx_count(&call->in[0]) == 0) return ZX_OK;
    while (i < ZX_COUNT(rows) && rows[i].op != call->op) i++;
    ZX_ASSERT(i < ZX_COUNT(rows));
    const row *r = &rows[i + (tanh_form ? 1 : 0)];
    return zx_cuda_check(r->launch(call, zx_unary_args_of(call, r->alpha)), "unary_grad", err);
}

} // namespace

const zx_kernel zx_cuda_unary_grad = {prepare, NULL, run};

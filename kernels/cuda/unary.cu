// unary.cu - elementwise ops of one operand: the functions of kernels/unary.def on f32, f16 and
// bf16 (computed in float), what integers know of them, IsNaN and IsInf. f64 is for folding
// constants only.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/unary.cuh"

namespace
{

// One struct a row: what the kernel is compiled with.
#define ZX_UNARY_GRAD(id, alpha, f, g) ZX_UNARY(id, alpha, f)
#define ZX_UNARY(id, alpha, expr)                                                                  \
    struct f_##id {                                                                                \
        static __device__ float at(float x, zx_unary_args p)                                       \
        {                                                                                          \
            const float A = p.a, B = p.b, G = p.g;                                                 \
            (void)A, (void)B, (void)G;                                                             \
            return expr;                                                                           \
        }                                                                                          \
    };
#include "kernels/unary.def"
#undef ZX_UNARY

template <class F, class T>
__global__ void __launch_bounds__(ZX_BLOCK) unary(const T *x, T *y, int64_t n, zx_unary_args p)
{
    ZX_FOR_EACH(i, n) y[i] = zx_from_float<T>(F::at(zx_to_float(x[i]), p));
}

template <class F> cudaError_t launch(const zx_call *c, zx_unary_args p)
{
    const zx_view *x = &c->in[0];
    return zx_of_float(x->type.dtype, [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, zx_count(x), unary<F, T>, (const T *)x->data, (T *)c->out[0].data,
                              zx_count(x), p);
    });
}

#define ZX_K_GELU_TANH ZX_K_GELU // the same op, by MODE
const zx_unary_row rows[] = {
#define ZX_UNARY(id, alpha, expr) {ZX_K_##id, alpha, launch<f_##id>},
#include "kernels/unary.def"
#undef ZX_UNARY
};

const zx_unary_row *find(const zx_call *call)
{
    return zx_unary_find(rows, ZX_COUNT(rows), call);
}

// ---- integers and bools: wrapping ---------------------------------------------------------------

// T is unsigned; negative: its sign bit is one.
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK)
    integers(uint32_t op, bool is_signed, const T *x, T *y, int64_t n)
{
    ZX_FOR_EACH(i, n)
    {
        const T u = x[i];
        const bool negative = is_signed && (u >> (8 * sizeof(T) - 1)) != 0;
        y[i] = op == ZX_K_NEG    ? (T)(0 - u)
               : op == ZX_K_ABS  ? (negative ? (T)(0 - u) : u)
               : op == ZX_K_SIGN ? (negative ? (T)-1 : (T)(u != 0))
               : op == ZX_K_RELU ? (negative ? (T)0 : u)
                                 : (T)~u;
    }
}
__global__ void __launch_bounds__(ZX_BLOCK) negation(const uint8_t *x, uint8_t *y, int64_t n)
{
    ZX_FOR_EACH(i, n) y[i] = x[i] == 0;
}

bool integers_know(uint32_t op, bool is_bool)
{
    return is_bool ? op == ZX_K_NOT
                   : op == ZX_K_NEG || op == ZX_K_ABS || op == ZX_K_SIGN || op == ZX_K_RELU ||
                         op == ZX_K_NOT;
}
cudaError_t run_integers(const zx_call *c)
{
    const zx_dtype t = c->in[0].type.dtype;
    const int64_t n = zx_count(&c->in[0]);
    const void *x = c->in[0].data;
    if (t == ZX_BOOL)
        return zx_launch_each(c, n, negation, (const uint8_t *)x, (uint8_t *)c->out[0].data, n);
    return zx_of_bytes(zx_dtype_bytes(t), [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, integers<T>, c->op, zx_dtypes[t].kind == ZX_KIND_INT,
                              (const T *)x, (T *)c->out[0].data, n);
    });
}

zx_status prepare(const zx_call *call, uint64_t *work_bytes, void **state, zx_err *err)
{
    (void)work_bytes, (void)state;
    const zx_dtype t = call->in[0].type.dtype;
    const bool there = zx_dtype_is_float(t) ? t != ZX_F64 && find(call) != NULL
                                            : integers_know(call->op, t == ZX_BOOL);
    if (!there) return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel for %s", zx_dtypes[t].word);
    return ZX_OK;
}

zx_status run(const zx_call *call, zx_err *err)
{
    if (!zx_dtype_is_float(call->in[0].type.dtype))
        return zx_cuda_check(run_integers(call), "unary", err);
    const zx_unary_row *r = find(call);
    return zx_cuda_check(r->launch(call, zx_unary_args_of(call, r->alpha)), "unary", err);
}

// ---- IsNaN, IsInf -------------------------------------------------------------------------------

enum { PLUS = 1, MINUS = 2, NOT_A_NUMBER = 4 };

template <class T> static __device__ inline double wide(T x)
{
    return (double)zx_to_float(x);
}
static __device__ inline double wide(double x)
{
    return x;
}
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK) which(int64_t what, const T *x, uint8_t *y, int64_t n)
{
    ZX_FOR_EACH(i, n)
    {
        const double v = wide(x[i]);
        y[i] = ((what & NOT_A_NUMBER) && v != v) || ((what & PLUS) && v == (double)INFINITY) ||
               ((what & MINUS) && v == -(double)INFINITY);
    }
}
zx_status run_which(const zx_call *c, int64_t what, zx_err *err)
{
    const zx_view *x = &c->in[0];
    const int64_t n = zx_count(x);
    const auto launch_as = [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, which<T>, what, (const T *)x->data, (uint8_t *)c->out[0].data,
                              n);
    };
    const cudaError_t e =
        x->type.dtype == ZX_F64 ? launch_as(0.0) : zx_of_float(x->type.dtype, launch_as);
    return zx_cuda_check(e, what == NOT_A_NUMBER ? "is_nan" : "is_inf", err);
}
zx_status run_is_nan(const zx_call *call, zx_err *err)
{
    return run_which(call, NOT_A_NUMBER, err);
}
zx_status run_is_inf(const zx_call *call, zx_err *err)
{
    return run_which(call, zx_attr_int(call->attrs, ZX_A_MODE, 3) & 3, err);
}

} // namespace

const zx_kernel zx_cuda_unary = {prepare, NULL, run};
const zx_kernel zx_cuda_is_nan = {NULL, NULL, run_is_nan};
const zx_kernel zx_cuda_is_inf = {NULL, NULL, run_is_inf};

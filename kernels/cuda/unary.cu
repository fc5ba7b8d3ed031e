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

template <class F, class T> cudaError_t launch_as(const zx_call *c, zx_unary_args p)
{
    const int64_t n = zx_count(&c->in[0]);
    return zx_launch(unary<F, T>, zx_blocks(n), ZX_BLOCK, 0, c->cuda->stream,
                     (const T *)c->in[0].data, (T *)c->out[0].data, n, p);
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
#define ZX_K_GELU_TANH ZX_K_GELU // the same op, by MODE
const row rows[] = {
#define ZX_UNARY(id, alpha, expr) {ZX_K_##id, alpha, launch<f_##id>},
#include "kernels/unary.def"
#undef ZX_UNARY
};

const row *find(const zx_call *call)
{
    const bool tanh_form = call->op == ZX_K_GELU && zx_attr_int(call->attrs, ZX_A_MODE, 0) == 1;
    for (uint32_t i = 0; i < ZX_COUNT(rows); i++)
        if (rows[i].op == call->op) return &rows[i + (tanh_form ? 1 : 0)];
    return NULL;
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

template <class T> cudaError_t launch_integers(const zx_call *c)
{
    const int64_t n = zx_count(&c->in[0]);
    const bool is_signed = zx_dtypes[c->in[0].type.dtype].kind == ZX_KIND_INT;
    return zx_launch(integers<T>, zx_blocks(n), ZX_BLOCK, 0, c->cuda->stream, c->op, is_signed,
                     (const T *)c->in[0].data, (T *)c->out[0].data, n);
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
    if (t == ZX_BOOL)
        return zx_launch(negation, zx_blocks(zx_count(&c->in[0])), ZX_BLOCK, 0, c->cuda->stream,
                         (const uint8_t *)c->in[0].data, (uint8_t *)c->out[0].data,
                         zx_count(&c->in[0]));
    switch (zx_dtype_bytes(t)) {
    case 1:
        return launch_integers<uint8_t>(c);
    case 2:
        return launch_integers<uint16_t>(c);
    case 4:
        return launch_integers<uint32_t>(c);
    default:
        return launch_integers<uint64_t>(c);
    }
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
    if (zx_count(&call->in[0]) == 0) return ZX_OK;
    if (!zx_dtype_is_float(call->in[0].type.dtype))
        return zx_cuda_check(run_integers(call), "unary", err);
    const row *r = find(call);
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
template <class T> cudaError_t launch_which(const zx_call *c, int64_t what)
{
    const int64_t n = zx_count(&c->in[0]);
    return zx_launch(which<T>, zx_blocks(n), ZX_BLOCK, 0, c->cuda->stream, what,
                     (const T *)c->in[0].data, (uint8_t *)c->out[0].data, n);
}
zx_status run_which(const zx_call *c, int64_t what, zx_err *err)
{
    if (zx_count(&c->in[0]) == 0) return ZX_OK;
    const zx_dtype t = c->in[0].type.dtype;
    const cudaError_t e = t == ZX_F64    ? launch_which<double>(c, what)
                          : t == ZX_F16  ? launch_which<__half>(c, what)
                          : t == ZX_BF16 ? launch_which<__nv_bfloat16>(c, what)
                                         : launch_which<float>(c, what);
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

// binary.cu - elementwise ops of two operands with broadcasting: f32, f16 and bf16 in float,
// integers and mixed types in what kernels/cpu/binary.c computes them in; comparisons; PowGradX.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/any.cuh"
#include "kernels/cuda/broadcast.cuh"

namespace
{

// ---- the functions ------------------------------------------------------------------------------
struct env {
    bool fmod;
    zx_fault *fault;
};
#define SAME(id, expr)                                                                             \
    struct f_##id {                                                                                \
        template <class C> static __device__ C at(C a, C b, env)                                   \
        {                                                                                          \
            return expr;                                                                           \
        }                                                                                          \
    };
SAME(ADD, a + b)
SAME(SUB, a - b)
SAME(MUL, a *b)
SAME(AND, a &b)
SAME(OR, a | b)
SAME(XOR, a ^ b)
SAME(MAX, a > b || a != a ? a : b) // NaN wins: where b is one, a > b is false
SAME(MIN, a < b || a != a ? a : b)

// Integers: a division by 0 is a fault and gives 0.
struct f_DIV {
    static __device__ float at(float a, float b, env)
    {
        return a / b;
    }
    static __device__ int64_t at(int64_t a, int64_t b, env e)
    {
        if (b == 0) zx_fault_device(e.fault, ZX_FAULT_DIVIDE, a, b);
        return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
    }
    static __device__ uint64_t at(uint64_t a, uint64_t b, env e)
    {
        if (b == 0) zx_fault_device(e.fault, ZX_FAULT_DIVIDE, (int64_t)a, 0);
        return b == 0 ? 0 : a / b;
    }
};
struct f_MOD {
    static __device__ float at(float a, float b, env e)
    {
        const float r = fmodf(a, b);
        return !e.fmod && r != 0.0f && (r < 0.0f) != (b < 0.0f) ? r + b : r;
    }
    static __device__ int64_t at(int64_t a, int64_t b, env e)
    {
        if (b == 0) zx_fault_device(e.fault, ZX_FAULT_DIVIDE, a, b);
        const int64_t r = b == 0 || b == -1 ? 0 : a % b;
        return !e.fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    static __device__ uint64_t at(uint64_t a, uint64_t b, env e)
    {
        if (b == 0) zx_fault_device(e.fault, ZX_FAULT_DIVIDE, (int64_t)a, 0);
        return b == 0 ? 0 : a % b;
    }
};
struct f_POW { // exponents that models really use are exact or correctly rounded steps
    static __device__ float at(float a, float b, env)
    {
        return b == 2.0f    ? a * a
               : b == 3.0f  ? a * a * a
               : b == 0.5f  ? sqrtf(a)
               : b == -1.0f ? 1.0f / a
                            : powf(a, b);
    }
    static __device__ double at(double a, double b, env)
    {
        return pow(a, b);
    }
    static __device__ uint64_t at(uint64_t a, uint64_t n, env)
    {
        uint64_t y = 1;
        for (; n > 0; n >>= 1, a *= a)
            if (n & 1) y *= a;
        return y;
    }
    static __device__ int64_t at(int64_t a, int64_t n, env e)
    {
        if (n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0;
        return (int64_t)at((uint64_t)a, (uint64_t)n, e);
    }
};

// ---- launches -----------------------------------------------------------------------------------
template <class F, class T, class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    binary(const T *a, const T *b, T *y, int64_t n, zx_walk<I> w, bool fmod)
{
    ZX_FOR_EACH(i, n)
    {
        I at[2];
        zx_walk_at(w, (I)i, at);
        y[i] =
            zx_from_float<T>(F::at(zx_to_float(a[at[0]]), zx_to_float(b[at[1]]), env{fmod, NULL}));
    }
}
// Of any types, computed in C.
template <class F, class C, class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    binary_any(zx_dtype ta, const void *a, zx_dtype tb, const void *b, zx_dtype ty, void *y,
               int64_t n, zx_walk<I> w, bool fmod, zx_fault *fault)
{
    ZX_FOR_EACH(i, n)
    {
        I at[2];
        zx_walk_at(w, (I)i, at);
        zx_put<C>(ty, y, i,
                  F::at(zx_get<C>(ta, a, at[0]), zx_get<C>(tb, b, at[1]), env{fmod, fault}));
    }
}

bool fmod_of(const zx_call *c)
{
    return zx_attr_int(c->attrs, ZX_A_FMOD, 0) != 0;
}
template <class F> cudaError_t floats(const zx_call *c)
{
    return zx_of_walk(c, 2, [&](auto w, int64_t n) {
        return zx_of_float(c->in[0].type.dtype, [&](auto zero) {
            using T = decltype(zero);
            using I = typename decltype(w)::index;
            return zx_launch_each(c, n, (binary<F, T, I>), (const T *)c->in[0].data,
                                  (const T *)c->in[1].data, (T *)c->out[0].data, n, w, fmod_of(c));
        });
    });
}
template <class F, class C> cudaError_t in_class(const zx_call *c)
{
    return zx_of_walk(c, 2, [&](auto w, int64_t n) {
        using I = typename decltype(w)::index;
        return zx_launch_each(c, n, (binary_any<F, C, I>), c->in[0].type.dtype,
                              (const void *)c->in[0].data, c->in[1].type.dtype,
                              (const void *)c->in[1].data, c->out[0].type.dtype, c->out[0].data, n,
                              w, fmod_of(c), c->fault);
    });
}
// Wrapping: the low bits are right whatever the sign.
template <class F> cudaError_t bits(const zx_call *c)
{
    return in_class<F, uint64_t>(c);
}
template <class F> cudaError_t integers(const zx_call *c)
{
    return c->in[0].type.dtype == ZX_U64 ? in_class<F, uint64_t>(c) : in_class<F, int64_t>(c);
}
cudaError_t powers(const zx_call *c) // an integer to the power of a float is computed in double
{
    return zx_dtype_is_float(c->in[0].type.dtype)   ? in_class<f_POW, float>(c)
           : zx_dtype_is_float(c->in[1].type.dtype) ? in_class<f_POW, double>(c)
                                                    : integers<f_POW>(c);
}

const struct {
    uint32_t op;
    cudaError_t (*floats)(const zx_call *); // both of one type; NULL: none
    cudaError_t (*others)(const zx_call *);
} rows[] = {
#define X(id, others) {ZX_K_##id, floats<f_##id>, others<f_##id>},
    X(ADD, bits) X(SUB, bits) X(MUL, bits) X(DIV, integers) X(MOD, integers) X(MAX, integers)
        X(MIN, integers)
#undef X
            {ZX_K_POW, floats<f_POW>, powers},
#define X(id) {ZX_K_##id, NULL, bits<f_##id>},
    X(AND) X(OR) X(XOR)
#undef X
};

zx_status run(const zx_call *call, zx_err *err)
{
    const zx_dtype ta = call->in[0].type.dtype, tb = call->in[1].type.dtype;
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        if (rows[i].op != call->op) continue;
        const bool fast = zx_dtype_is_float(ta) && ta == tb;
        return zx_cuda_check(fast ? rows[i].floats(call) : rows[i].others(call), "binary", err);
    }
    zx_bug(__FILE__, __LINE__, "an op of two operands");
}

// ---- comparisons --------------------------------------------------------------------------------
template <class C> static __device__ inline bool holds(uint32_t op, C a, C b)
{
    return op == ZX_K_EQUAL        ? a == b
           : op == ZX_K_LESS       ? a < b
           : op == ZX_K_LESS_EQUAL ? a <= b
           : op == ZX_K_GREATER    ? a > b
                                   : a >= b;
}
template <class C, class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    compare(uint32_t op, zx_dtype t, const void *a, const void *b, uint8_t *y, int64_t n,
            zx_walk<I> w)
{
    ZX_FOR_EACH(i, n)
    {
        I at[2];
        zx_walk_at(w, (I)i, at);
        y[i] = holds(op, zx_get<C>(t, a, at[0]), zx_get<C>(t, b, at[1]));
    }
}
zx_status run_compare(const zx_call *c, zx_err *err)
{
    const zx_dtype t = c->in[0].type.dtype;
    const cudaError_t e = zx_of_walk(c, 2, [&](auto w, int64_t n) {
        return zx_of_class(t, [&](auto zero) {
            using C = decltype(zero);
            using I = typename decltype(w)::index;
            return zx_launch_each(c, n, (compare<C, I>), c->op, t, (const void *)c->in[0].data,
                                  (const void *)c->in[1].data, (uint8_t *)c->out[0].data, n, w);
        });
    });
    return zx_cuda_check(e, "compare", err);
}

// ---- PowGradX -----------------------------------------------------------------------------------
// dy p x^(p-1), 0 where p is 0.
static __device__ inline float pow_grad(float dy, float x, float p)
{
    return p == 0.0f   ? 0.0f
           : p == 1.0f ? dy
           : p == 2.0f ? dy * (2.0f * x)
           : p == 3.0f ? dy * (3.0f * (x * x))
                       : dy * (float)((double)p * pow((double)x, (double)p - 1.0));
}
template <class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    pow_grad_x(const float *dy, const float *x, zx_dtype tp, const void *p, float *dx, int64_t n,
               zx_walk<I> w)
{
    ZX_FOR_EACH(i, n)
    {
        I at[3];
        zx_walk_at(w, (I)i, at);
        dx[i] = pow_grad(dy[at[0]], x[at[1]], zx_get<float>(tp, p, at[2]));
    }
}
zx_status prepare_pow_grad_x(const zx_call *call, uint64_t *, void **, zx_err *err)
{
    if (call->in[0].type.dtype != ZX_F32 || call->in[1].type.dtype != ZX_F32)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel but for float32");
    return ZX_OK;
}
zx_status run_pow_grad_x(const zx_call *c, zx_err *err)
{
    const cudaError_t e = zx_of_walk(c, 3, [&](auto w, int64_t n) {
        using I = typename decltype(w)::index;
        return zx_launch_each(c, n, pow_grad_x<I>, (const float *)c->in[0].data,
                              (const float *)c->in[1].data, c->in[2].type.dtype,
                              (const void *)c->in[2].data, (float *)c->out[0].data, n, w);
    });
    return zx_cuda_check(e, "pow_grad_x", err);
}

} // namespace

const zx_kernel zx_cuda_binary = {zx_prepare_not_f64, NULL, run};
const zx_kernel zx_cuda_compare = {NULL, NULL, run_compare};
const zx_kernel zx_cuda_pow_grad_x = {prepare_pow_grad_x, NULL, run_pow_grad_x};

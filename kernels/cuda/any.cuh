// any.cuh - elements of any type, read as and written from the types that kernels compute in: float
// (of halves), double, 64-bit integers of either sign. The same rules as kernels/cpu/block.c:
// floats truncate to integers and saturate, NaN is 0, integers wrap into narrower ones.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_ANY_CUH
#define ZX_KERNELS_CUDA_ANY_CUH

#include "kernels/cuda/common.cuh"

// ---- numbers ------------------------------------------------------------------------------------
static __device__ inline int64_t zx_saturate(double x, int64_t least, int64_t most)
{
    if (!(x == x)) return 0;
    return x >= (double)most ? most : x <= (double)least ? least : (int64_t)x;
}
template <class C> static __device__ inline C zx_as(double x); // to what is computed in
template <> __device__ inline float zx_as<float>(double x)
{
    return (float)x;
}
template <> __device__ inline double zx_as<double>(double x)
{
    return x;
}
template <> __device__ inline int64_t zx_as<int64_t>(double x)
{
    return zx_saturate(x, INT64_MIN, INT64_MAX);
}
template <> __device__ inline uint64_t zx_as<uint64_t>(double x)
{
    return !(x > 0) ? 0 : x >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)x;
}
// To float, rounded to odd: a later rounding to fewer bits is then as if done once.
static __device__ inline float zx_to_odd(double x)
{
    const float f = (float)x;
    const unsigned u = __float_as_uint(f);
    if (!(fabs(x) < (double)INFINITY)) return f;
    if (fabsf(f) == INFINITY) return __uint_as_float(u - 1);
    if ((double)f == x || (u & 1)) return f;
    return __uint_as_float(fabs((double)f) > fabs(x) ? u - 1 : u + 1);
}

template <class C> static __device__ inline C zx_plus(C a, C b)
{
    return a + b;
}
template <> __device__ inline int64_t zx_plus(int64_t a, int64_t b) // wrapping
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
template <class C> static __device__ inline C zx_minus(C x)
{
    return -x;
}
template <> __device__ inline int64_t zx_minus(int64_t x)
{
    return (int64_t)(0 - (uint64_t)x);
}
template <class C> static __device__ inline C zx_times(C a, C b)
{
    return a * b;
}
template <> __device__ inline int64_t zx_times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

// ---- elements -----------------------------------------------------------------------------------
template <class C> static __device__ inline C zx_get(zx_dtype t, const void *x, int64_t i)
{
    switch (t) {
    case ZX_F32:
        return zx_as<C>((double)((const float *)x)[i]);
    case ZX_F64:
        return zx_as<C>(((const double *)x)[i]);
    case ZX_F16:
        return zx_as<C>((double)zx_to_float(((const __half *)x)[i]));
    case ZX_BF16:
        return zx_as<C>((double)zx_to_float(((const __nv_bfloat16 *)x)[i]));
#define X(id, T)                                                                                   \
    case ZX_##id:                                                                                  \
        return (C)((const T *)x)[i];
        X(I8, int8_t)
        X(I16, int16_t)
        X(I32, int32_t)
        X(I64, int64_t)
        X(U16, uint16_t)
        X(U32, uint32_t)
        X(U64, uint64_t)
#undef X
    default: // u8, bool
        return (C)((const uint8_t *)x)[i];
    }
}

// An integer type's element of a number that is computed in.
template <class C> static __device__ inline int64_t zx_narrow(C v, int64_t least, int64_t most)
{
    return zx_saturate((double)v, least, most);
}
template <> __device__ inline int64_t zx_narrow<int64_t>(int64_t v, int64_t, int64_t)
{
    return v;
}
template <> __device__ inline int64_t zx_narrow<uint64_t>(uint64_t v, int64_t, int64_t)
{
    return (int64_t)v;
}
static __device__ inline uint64_t zx_unsigned(double v)
{
    return zx_as<uint64_t>(v);
}
static __device__ inline uint64_t zx_unsigned(int64_t v)
{
    return (uint64_t)v;
}
static __device__ inline uint64_t zx_unsigned(uint64_t v)
{
    return v;
}

template <class C> static __device__ inline void zx_put(zx_dtype t, void *y, int64_t i, C v)
{
    switch (t) {
    case ZX_F32:
        ((float *)y)[i] = (float)v;
        break;
    case ZX_F64:
        ((double *)y)[i] = (double)v;
        break;
    case ZX_F16:
        ((__half *)y)[i] = zx_from_float<__half>(zx_to_odd((double)v));
        break;
    case ZX_BF16:
        ((__nv_bfloat16 *)y)[i] = zx_from_float<__nv_bfloat16>(zx_to_odd((double)v));
        break;
#define X(id, T, least, most)                                                                      \
    case ZX_##id:                                                                                  \
        ((T *)y)[i] = (T)zx_narrow(v, least, most);                                                \
        break;
        X(I8, int8_t, INT8_MIN, INT8_MAX)
        X(I16, int16_t, INT16_MIN, INT16_MAX)
        X(I32, int32_t, INT32_MIN, INT32_MAX)
        X(I64, int64_t, INT64_MIN, INT64_MAX)
        X(U8, uint8_t, 0, UINT8_MAX)
        X(U16, uint16_t, 0, UINT16_MAX)
        X(U32, uint32_t, 0, UINT32_MAX)
#undef X
    case ZX_U64:
        ((uint64_t *)y)[i] = zx_unsigned(v);
        break;
    default: // bool
        ((uint8_t *)y)[i] = v != (C)0;
        break;
    }
}

// The type that elements of t are computed in, as zx_of_float: half floats in float.
template <class F> static inline auto zx_of_class(zx_dtype t, F f)
{
    if (t == ZX_F64) return f(0.0);
    if (t == ZX_U64) return f((uint64_t)0);
    if (zx_dtype_is_float(t)) return f(0.0f);
    return f((int64_t)0);
}

// ---- indices ------------------------------------------------------------------------------------
static __device__ inline int64_t zx_index_at(zx_dtype t, const void *x, int64_t i)
{
    return t == ZX_I64 ? ((const int64_t *)x)[i] : (int64_t)((const int32_t *)x)[i];
}
// Index i of a dim of n; negative ones count from the end. -1 and a fault where it is outside.
static __device__ inline int64_t zx_index_of(zx_dtype t, const void *x, int64_t i, int64_t n,
                                             zx_fault *fault)
{
    const int64_t k = zx_index_at(t, x, i);
    if (k >= 0 && k < n) return k;
    if (k < 0 && k >= -n) return k + n;
    zx_fault_device(fault, ZX_FAULT_INDEX, k, n);
    return -1;
}

#endif

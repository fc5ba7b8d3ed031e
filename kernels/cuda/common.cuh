// common.cuh - what the CUDA kernels share: launches, shared memory, element types.
// What of CUDA they may use is in README.md.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_COMMON_CUH
#define ZX_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/cuda.h"
#include "kernels/dims.h"
#include "kernels/op_ids.h"

// ---- launches -----------------------------------------------------------------------------------
// zx_launch(kernel, grid, block, shared bytes, stream, arguments...): a cudaError_t. Arguments are
// turned into the kernel's parameter types. A grid of 0 blocks is an error: don't launch for
// nothing.
#if defined(ZX_CUDA_STANDIN)
template <class... P, class... A>
static cudaError_t zx_launch_as(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                                size_t shared, cudaStream_t stream, A... args)
{
    return zx_standin_launch_kernel<P...>(name, kernel, grid, block, shared, stream,
                                          zx_standin_pack<P...>(static_cast<P>(args)...));
}
#else
template <class... P>
static cudaError_t zx_launch_typed(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                   cudaStream_t stream, P... args)
{
    void *list[] = {static_cast<void *>(&args)..., NULL};
    if (shared > 48 * 1024) { // more than that is given only when asked for
        const cudaError_t e = cudaFuncSetAttribute(
            (const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
        if (e != cudaSuccess) return e;
    }
    return cudaLaunchKernel((const void *)kernel, grid, block, list, shared, stream);
}
template <class... P, class... A>
static cudaError_t zx_launch_as(const char *, void (*kernel)(P...), dim3 grid, dim3 block,
                                size_t shared, cudaStream_t stream, A... args)
{
    return zx_launch_typed<P...>(kernel, grid, block, shared, stream, static_cast<P>(args)...);
}
#endif
#define zx_launch(...) zx_launch_as(#__VA_ARGS__, __VA_ARGS__)

// A loop over what a thread has in registers: n is a constant, and nothing is looked up by i.
#if defined(ZX_CUDA_STANDIN)
#define ZX_EVERY(i, n) for (int i = 0; i < (n); i++)
#else
#define ZX_EVERY(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)
#endif

// The dynamic shared memory of the block, as an array of T.
#if defined(ZX_CUDA_STANDIN)
#define ZX_SHARED(T, name) T *const name = static_cast<T *>(zx_standin_shared())
#else
#define ZX_SHARED(T, name)                                                                         \
    extern __shared__ __align__(16) unsigned char zx_dynamic_shared[];                             \
    T *const name = reinterpret_cast<T *>(zx_dynamic_shared)
#endif

// ---- elementwise --------------------------------------------------------------------------------
// A thread does ZX_EACH elements a block apart, so that loads are coalesced and several are under
// way.
#define ZX_BLOCK 256
#define ZX_EACH 4
static inline unsigned zx_blocks(int64_t n) // of an elementwise launch over n > 0 elements
{
    return (unsigned)((n + ZX_BLOCK * ZX_EACH - 1) / (ZX_BLOCK * ZX_EACH));
}
// zx_launch_each(call, n, kernel, arguments...): such a launch on the call's stream; none where n
// is 0.
template <class... P, class... A>
static cudaError_t zx_launch_each_as(const char *name, const zx_call *call, int64_t n,
                                     void (*kernel)(P...), A... args)
{
    if (n == 0) return cudaSuccess;
    return zx_launch_as(name, kernel, zx_blocks(n), ZX_BLOCK, 0, call->cuda->stream, args...);
}
#define zx_launch_each(...) zx_launch_each_as(#__VA_ARGS__, __VA_ARGS__)
#define ZX_FOR_EACH(i, n)                                                                          \
    for (int64_t                                                                                   \
             i = (int64_t)blockIdx.x * (ZX_BLOCK * ZX_EACH) + threadIdx.x,                         \
             i##_end_ = min((long long)(n), ((long long)blockIdx.x + 1) * (ZX_BLOCK * ZX_EACH));   \
         i < i##_end_; i += ZX_BLOCK)

// ---- element types ------------------------------------------------------------------------------
// Halves are computed in float: load turns them into it, store rounds to nearest even.
static __device__ inline float zx_to_float(float x)
{
    return x;
}
static __device__ inline float zx_to_float(__half x)
{
    return __half2float(x);
}
static __device__ inline float zx_to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
template <class T> static __device__ inline T zx_from_float(float x);
template <> __device__ inline float zx_from_float<float>(float x)
{
    return x;
}
template <> __device__ inline __half zx_from_float<__half>(float x)
{
    return __float2half_rn(x);
}
template <> __device__ inline __nv_bfloat16 zx_from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}

// What f answers for a 0 of the C type: of a float type that is computed in float, and of an
// unsigned integer of that many bytes, for what only moves elements.
template <class F> static inline auto zx_of_float(zx_dtype t, F f)
{
    if (t == ZX_F16) return f(__half());
    if (t == ZX_BF16) return f(__nv_bfloat16());
    return f(0.0f);
}
template <class F> static inline auto zx_of_bytes(uint32_t bytes, F f)
{
    if (bytes == 1) return f((uint8_t)0);
    if (bytes == 2) return f((uint16_t)0);
    if (bytes == 4) return f((uint32_t)0);
    return f((uint64_t)0);
}

// ---- checks -------------------------------------------------------------------------------------
// prepare of kernels that are there for float32 alone, and need nothing made. Integers pass.
static inline zx_status zx_prepare_f32(const zx_call *call, uint64_t *, void **, zx_err *err)
{
    for (uint32_t i = 0; i < call->n_in; i++) {
        const zx_dtype t = call->in[i].type.dtype;
        if (zx_dtype_is_float(t) && t != ZX_F32) // what is omitted is zeroed: f32
            return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel for %s, only for float32",
                           zx_dtypes[t].word);
    }
    return ZX_OK;
}
static inline zx_status zx_prepare_not_f64(const zx_call *call, uint64_t *, void **, zx_err *err)
{
    if (call->in[0].type.dtype != ZX_F64) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel for %s", zx_dtypes[ZX_F64].word);
}

// ---- faults -------------------------------------------------------------------------------------
// Keeps the fault if it is the first of the rank's.
static __device__ inline void zx_fault_device(zx_fault *f, zx_fault_kind kind, int64_t a, int64_t b)
{
    if (atomicCAS(&f->kind, (uint32_t)ZX_FAULT_NONE, (uint32_t)kind) != ZX_FAULT_NONE) return;
    f->a = a;
    f->b = b;
}

#endif

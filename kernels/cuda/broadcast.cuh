// broadcast.cuh - where the operands of an element of a broadcast result lie.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_BROADCAST_CUH
#define ZX_KERNELS_CUDA_BROADCAST_CUH

#include "kernels/cuda/common.cuh"

// A zx_broadcast in I: divisions of 32 bits take a fraction of the time of those of 64.
template <class I> struct zx_walk {
    typedef I index;
    uint32_t rank;
    I dim[ZX_MAX_RANK], stride[3][ZX_MAX_RANK];
};
template <class I> static inline zx_walk<I> zx_walk_of(const zx_broadcast *b)
{
    zx_walk<I> w;
    w.rank = b->rank;
    for (uint32_t d = 0; d < ZX_MAX_RANK; d++) {
        w.dim[d] = (I)b->dim[d];
        for (int k = 0; k < 3; k++) w.stride[k][d] = (I)b->stride[k][d];
    }
    return w;
}
// at[k] = the place in operand k < N of element i.
template <int N, class I>
static __device__ inline void zx_walk_at(const zx_walk<I> &w, I i, I (&at)[N])
{
    for (int k = 0; k < N; k++) at[k] = 0;
    for (uint32_t d = w.rank - 1; d > 0; d--) {
        const I rest = i / w.dim[d], pos = i - rest * w.dim[d];
        for (int k = 0; k < N; k++) at[k] += pos * w.stride[k][d];
        i = rest;
    }
    for (int k = 0; k < N; k++) at[k] += i * w.stride[k][0];
}

// What f answers for the walk over a call's first n operands.
template <class F> static inline auto zx_of_walk(const zx_call *call, uint32_t n, F f)
{
    zx_broadcast b;
    zx_broadcast_make(&b, &call->out[0].type.shape, call->in, n);
    if (b.count <= UINT32_MAX) return f(zx_walk_of<uint32_t>(&b), b.count);
    return f(zx_walk_of<uint64_t>(&b), b.count);
}

#endif

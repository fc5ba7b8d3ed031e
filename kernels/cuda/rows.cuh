// rows.cuh - sums and maxima over the threads that share a row: a warp, or a block of 256. What is
// joined is joined in one order, a tree: the same bits every time, and for every thread.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_ROWS_CUH
#define ZX_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/common.cuh"

#define ZX_WARP 32
#define ZX_ALL 0xffffffffu

template <class A> static __device__ inline A zx_shuffle_xor(A a, int with)
{
    return __shfl_xor_sync(ZX_ALL, a, with);
}
template <class A, class J> static __device__ inline A zx_warp_join(A a, J join)
{
    for (int with = 1; with < ZX_WARP; with *= 2) {
        const A other = zx_shuffle_xor(a, with);
        a = threadIdx.x & with ? join(other, a) : join(a, other);
    }
    return a;
}

// N threads that share a row: 32 or ZX_BLOCK, of blocks of ZX_BLOCK. All of them call it.
template <int N, class A, class J> static __device__ inline A zx_team_join(A a, J join)
{
    __shared__ A part[N / ZX_WARP];
    a = zx_warp_join(a, join);
    if (N == ZX_WARP) return a;
    __syncthreads(); // the last call's parts are read
    if (threadIdx.x % ZX_WARP == 0) part[threadIdx.x / ZX_WARP] = a;
    __syncthreads();
    a = part[0];
    for (int w = 1; w < N / ZX_WARP; w++) a = join(a, part[w]);
    return a;
}
template <int N> static __device__ inline double zx_team_sum(double x)
{
    return zx_team_join<N>(x, [](double a, double b) { return a + b; });
}
template <int N> static __device__ inline float zx_team_max(float x) // NaNs are passed over
{
    return zx_team_join<N>(x, [](float a, float b) { return a > b ? a : b; });
}
// The team's row, and the thread's place in the team.
template <int N> static __device__ inline int64_t zx_team_row()
{
    return (int64_t)blockIdx.x * (ZX_BLOCK / N) + threadIdx.x / N;
}
template <int N> static __device__ inline int zx_team_place()
{
    return (int)(threadIdx.x % N);
}

// Where the i-th index tuple of these dims lies, in elements.
static __device__ inline int64_t zx_dims_place(const zx_dims &d, int64_t i)
{
    int64_t at = 0;
    for (uint32_t k = d.rank; k-- > 1;) {
        const int64_t rest = i / d.dim[k];
        at += (i - rest * d.dim[k]) * d.stride[k];
        i = rest;
    }
    return d.rank > 0 ? at + i * d.stride[0] : 0;
}

// Rows that are longer are a block's.
#define ZX_WARP_ROW 1024
template <int N> static inline unsigned zx_team_blocks(int64_t rows)
{
    return (unsigned)((rows + ZX_BLOCK / N - 1) / (ZX_BLOCK / N));
}
// zx_launch_rows(call, rows, n, kernel, arguments...): kernel<32> or kernel<256> by the rows'
// length n, a team a row; nothing where there are no rows.
#define zx_launch_rows(call, rows, n, kernel, ...)                                                 \
    ((rows) == 0          ? cudaSuccess                                                            \
     : (n) <= ZX_WARP_ROW ? zx_launch(kernel<ZX_WARP>, zx_team_blocks<ZX_WARP>(rows), ZX_BLOCK, 0, \
                                      (call)->cuda->stream, __VA_ARGS__)                           \
                          : zx_launch(kernel<ZX_BLOCK>, zx_team_blocks<ZX_BLOCK>(rows), ZX_BLOCK,  \
                                      0, (call)->cuda->stream, __VA_ARGS__))

#endif

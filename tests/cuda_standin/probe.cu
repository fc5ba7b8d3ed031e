// probe.cu - see probe.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/probe.h"

#include "kernels/cuda/common.cuh"

namespace
{

__global__ void index_of(int *x)
{
    const unsigned b = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    const unsigned i = b * (blockDim.x * blockDim.y * blockDim.z) + t;
    x[i] = (int)i;
}

__global__ void add_to(float *y, const float *x, float add)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __ldg(&x[i]) + add;
}

__global__ void __launch_bounds__(256) reverse(int *x)
{
    __shared__ int part[256];
    int *mine = x + blockIdx.x * 256;
    part[threadIdx.x] = mine[threadIdx.x];
    __syncthreads();
    mine[threadIdx.x] = part[255 - threadIdx.x];
}

__global__ void sum(const float *x, float *sums)
{
    ZX_SHARED(float, part);
    const unsigned t = threadIdx.x;
    part[t] = x[blockIdx.x * blockDim.x + t];
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 0) sums[blockIdx.x] = part[0];
}

__global__ void warp(const int *x, int (*out)[64])
{
    const unsigned t = threadIdx.x, lane = t % warpSize, all = 0xffffffffu;
    int v = x[t];
    for (int with = 16; with > 0; with /= 2) v += __shfl_xor_sync(all, v, with);
    out[PROBE_XOR_SUM][t] = v;
    v = x[t];
    for (unsigned by = 1; by < 32; by *= 2) {
        const int below = __shfl_up_sync(all, v, by);
        if (lane >= by) v += below;
    }
    out[PROBE_PREFIX][t] = v;
    __syncwarp();
    out[PROBE_DOWN][t] = __shfl_down_sync(all, x[t], 3);
    out[PROBE_BROADCAST][t] = __shfl_sync(all, x[t], 5);
    out[PROBE_HALF_WARP][t] = (int)__shfl_xor_sync(all, (double)x[t], 15, 16);
    out[PROBE_BALLOT][t] = (int)__ballot_sync(all, x[t] > 0);
    out[PROBE_ANY_ALL][t] =
        (__any_sync(all, lane == 7) ? 1 : 0) + (__all_sync(all, lane != 7) ? 2 : 0);
    out[PROBE_COUNT][t] = __syncthreads_count(x[t] > 0) + (__syncthreads_or(t == 63) ? 1000 : 0);
}

__global__ void atomics(int *r, float *f)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&r[0], i);
    for (int seen = atomicAdd(&r[1], 0);;) {
        const int was = atomicCAS(&r[1], seen, seen + i);
        if (was == seen) break;
        seen = was;
    }
    atomicMax(&r[2], i);
    atomicMin(&r[3], -i);
    atomicExch(&r[4], i);
    atomicAdd(f, (float)i);
}

__global__ void wrong(int what, int *x, unsigned n)
{
    const unsigned t = threadIdx.x;
    __shared__ int part[64];
    switch (what) {
    case PROBE_RETURNS:
        if (t == 17) return;
        __syncthreads();
        break;
    case PROBE_ELSEWHERE:
        if (t % 2 == 0)
            __syncthreads();
        else
            __syncthreads();
        break;
    case PROBE_LANE_RETURNS:
        if (t == 17) return;
        x[t] = __shfl_sync(0xffffffffu, 1, 0);
        break;
    case PROBE_MASK:
        if (t < 16) x[t] = __shfl_sync(0xffffu, (int)t, 0);
        break;
    case PROBE_PART_OF_WARP:
        x[t] = __shfl_sync(0xffffffffu, (int)t, 0);
        break;
    case PROBE_WRITES_BEHIND:
        x[n + 1024 + t] = 1;
        break;
    case PROBE_WRITES_SLACK:
        if (t == 0) x[n] = 1;
        break;
    case PROBE_NO_BARRIER:
        part[t] = (int)t;
        x[t] = part[(t + 1) % 64];
        break;
    }
}

__global__ void many(float *x, int with_barrier)
{
    const float v = x[threadIdx.x % 32];
    if (with_barrier) __syncthreads();
    if (v < 0) x[threadIdx.x % 32] = 0;
}

} // namespace

cudaError_t probe_index(int *x, cudaStream_t s)
{
    return zx_launch(index_of, dim3(3, 2, 2), dim3(4, 3, 2), 0, s, x);
}
cudaError_t probe_add(float *y, const float *x, float add, unsigned blocks, cudaStream_t s)
{
    return zx_launch(add_to, blocks, 128, 0, s, y, x, add);
}
cudaError_t probe_reverse(int *x, unsigned blocks, cudaStream_t s)
{
    return zx_launch(reverse, blocks, 256, 0, s, x);
}
cudaError_t probe_sum(const float *x, float *sums, unsigned blocks, unsigned threads,
                      cudaStream_t s)
{
    return zx_launch(sum, blocks, threads, threads * sizeof(float), s, x, sums);
}
cudaError_t probe_warp(const int *x, int (*out)[64], cudaStream_t s)
{
    return zx_launch(warp, 1, 64, 0, s, x, out);
}
cudaError_t probe_atomics(int *r, float *f, unsigned blocks, cudaStream_t s)
{
    return zx_launch(atomics, blocks, 64, 0, s, r, f);
}
cudaError_t probe_wrong(int what, int *x, unsigned n, cudaStream_t s)
{
    return zx_launch(wrong, 2, what == PROBE_PART_OF_WARP ? 40 : 64, 0, s, what, x, n);
}
cudaError_t probe_many(float *x, int with_barrier, cudaStream_t s)
{
    return zx_launch(many, 391, 256, 0, s, x, with_barrier);
}

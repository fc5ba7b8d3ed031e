// probe.h - small kernels for the tests of the stand-in.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_PROBE_H
#define ZX_STANDIN_PROBE_H

#include <cuda_runtime.h>

#if defined(__cplusplus)
extern "C" {
#endif

// x[i] = i over a grid of 3 dimensions in blocks of 3 dimensions.
cudaError_t probe_index(int *x, cudaStream_t s);
#define PROBE_INDEX_COUNT (3 * 2 * 2 * 4 * 3 * 2)
// y[i] = x[i] + add; `blocks` blocks of 128 threads, one element each.
cudaError_t probe_add(float *y, const float *x, float add, unsigned blocks, cudaStream_t s);
// Each block of 256 turns its part round through static shared memory.
cudaError_t probe_reverse(int *x, unsigned blocks, cudaStream_t s);
// Each block of `threads` (a power of 2) adds its part up through dynamic shared memory.
cudaError_t probe_sum(const float *x, float *sums, unsigned blocks, unsigned threads,
                      cudaStream_t s);
// One block of 64: out[w][l] for each of these, of x[thread].
enum {
    PROBE_XOR_SUM,
    PROBE_PREFIX,
    PROBE_DOWN,
    PROBE_BROADCAST,
    PROBE_HALF_WARP,
    PROBE_BALLOT,
    PROBE_ANY_ALL,
    PROBE_COUNT,
    PROBE_WARP_ROWS
};
cudaError_t probe_warp(const int *x, int (*out)[64], cudaStream_t s);
// r: sum, sum by CAS, max, min, exchanged last; f: sum as float.
cudaError_t probe_atomics(int *r, float *f, unsigned blocks, cudaStream_t s);
// Wrong on purpose.
enum {
    PROBE_RETURNS,       // a thread returns before a barrier
    PROBE_ELSEWHERE,     // half a block waits at another barrier
    PROBE_LANE_RETURNS,  // a lane returns before a shuffle
    PROBE_MASK,          // half a warp shuffles
    PROBE_PART_OF_WARP,  // a block of 40 threads shuffles
    PROBE_WRITES_BEHIND, // writes a page behind x
    PROBE_WRITES_SLACK,  // writes one element behind x
    PROBE_NO_BARRIER     // reads a neighbour's shared element without __syncthreads
};
cudaError_t probe_wrong(int what, int *x, unsigned n, cudaStream_t s);
// Blocks of 100,000 threads in all that do next to nothing, and others with a barrier each.
cudaError_t probe_many(float *x, int with_barrier, cudaStream_t s);

#if defined(__cplusplus)
}
#endif

#endif

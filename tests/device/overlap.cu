// overlap.cu - what a GPU does at the same time: copies to it, copies from it and a kernel, each alone
// and all together. Prints seconds of each, the least of a few turns; wrong bytes are an error.
//
// overlap [MIB [ROUNDS]]: bytes of a copy, and rounds of the kernel in place of so many that it takes
// about as long as a copy.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"

#define N (1 << 20) // floats of the kernel
#define TURNS 5
#define DO(call)                                                                                   \
    do {                                                                                           \
        const cudaError_t e_ = (call);                                                             \
        if (e_ != cudaSuccess) {                                                                   \
            fprintf(stderr, "overlap: %s: %s\n", #call, cudaGetErrorString(e_));                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

namespace
{

enum { TO, FROM, KERNEL, WAYS };

struct rig {
    size_t bytes;
    int rounds;
    unsigned char *in, *out, *to, *from; // pinned; of the device
    float *x;
    cudaStream_t stream[WAYS];
    cudaEvent_t begin, end, done[WAYS];
};

__global__ void halve(float *x, int rounds)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = x[i];
    for (int k = 0; k < rounds; k++) v = v * 0.5f + 1.0f; // exact, fused or not
    x[i] = v;
}

void queue(const rig *r, int way)
{
    const cudaStream_t s = r->stream[way];
    if (way == TO) DO(cudaMemcpyAsync(r->to, r->in, r->bytes, cudaMemcpyHostToDevice, s));
    if (way == FROM) DO(cudaMemcpyAsync(r->out, r->from, r->bytes, cudaMemcpyDeviceToHost, s));
    if (way == KERNEL) DO(zx_launch(halve, N / 256, 256, 0, s, r->x, r->rounds));
}

// Seconds from one begin on, until all of `ways` (bits) are done.
double turn(const rig *r, unsigned ways)
{
    const cudaStream_t first = r->stream[0];
    float ms = 0;
    DO(cudaEventRecord(r->begin, first));
    for (int k = 0; k < WAYS; k++) {
        if (!(ways >> k & 1)) continue;
        DO(cudaStreamWaitEvent(r->stream[k], r->begin, 0));
        queue(r, k);
        DO(cudaEventRecord(r->done[k], r->stream[k]));
    }
    for (int k = 0; k < WAYS; k++)
        if (ways >> k & 1) DO(cudaStreamWaitEvent(first, r->done[k], 0));
    DO(cudaEventRecord(r->end, first));
    DO(cudaEventSynchronize(r->end));
    DO(cudaEventElapsedTime(&ms, r->begin, r->end));
    return 1e-3 * ms;
}

double least(const rig *r, unsigned ways)
{
    double best = turn(r, ways);
    for (int k = 1; k < TURNS; k++) {
        const double t = turn(r, ways);
        if (t < best) best = t;
    }
    return best;
}

void open_rig(rig *r)
{
    DO(cudaHostAlloc((void **)&r->in, r->bytes, cudaHostAllocPortable));
    DO(cudaHostAlloc((void **)&r->out, r->bytes, cudaHostAllocPortable));
    DO(cudaMalloc((void **)&r->to, r->bytes));
    DO(cudaMalloc((void **)&r->from, r->bytes));
    DO(cudaMalloc((void **)&r->x, N * sizeof(float)));
    for (int k = 0; k < WAYS; k++) {
        DO(cudaStreamCreateWithFlags(&r->stream[k], cudaStreamNonBlocking));
        DO(cudaEventCreateWithFlags(&r->done[k], cudaEventDisableTiming));
    }
    DO(cudaEventCreateWithFlags(&r->begin, cudaEventDefault));
    DO(cudaEventCreateWithFlags(&r->end, cudaEventDefault));
    for (size_t i = 0; i < r->bytes; i++) r->in[i] = (unsigned char)(i * 7 + i / 251);
    DO(cudaMemsetAsync(r->x, 0, N * sizeof(float), r->stream[0]));
    DO(cudaMemsetAsync(r->from, 0x5a, r->bytes, r->stream[0]));
    DO(cudaStreamSynchronize(r->stream[0]));
}

// What went there comes back; what was there has come; the kernel went towards 2.
bool is_right(const rig *r)
{
    float x[2] = {0, 0};
    for (size_t i = 0; i < r->bytes; i++)
        if (r->out[i] != 0x5a) return false;
    DO(cudaMemcpyAsync(r->out, r->to, r->bytes, cudaMemcpyDeviceToHost, r->stream[0]));
    DO(cudaMemcpyAsync(&x[0], r->x, sizeof(float), cudaMemcpyDeviceToHost, r->stream[0]));
    DO(cudaMemcpyAsync(&x[1], r->x + N - 1, sizeof(float), cudaMemcpyDeviceToHost, r->stream[0]));
    DO(cudaStreamSynchronize(r->stream[0]));
    return memcmp(r->in, r->out, r->bytes) == 0 && x[0] == x[1] && x[0] > 1 && x[0] <= 2;
}

} // namespace

int main(int argc, char **argv)
{
    rig r = {};
    r.bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20;
    r.rounds = argc > 2 ? atoi(argv[2]) : 1 << 12;
    if (r.bytes == 0 || r.rounds <= 0) return 2;
    open_rig(&r);
    const double to = least(&r, 1u << TO), from = least(&r, 1u << FROM);
    double kernel = least(&r, 1u << KERNEL);
    if (argc <= 2 && kernel > 0) {
        const double rounds = r.rounds * (to > from ? to : from) / kernel;
        r.rounds = rounds < 1 ? 1 : rounds > 1e9 ? 1000000000 : (int)rounds;
        kernel = least(&r, 1u << KERNEL);
    }
    const double together = least(&r, 1u << TO | 1u << FROM | 1u << KERNEL);
    if (!is_right(&r)) {
        fprintf(stderr, "overlap: wrong bytes\n");
        return 1;
    }
    printf("bytes %zu\nto %.9f\nfrom %.9f\nkernel %.9f\ntogether %.9f\n", r.bytes, to, from, kernel,
           together);
    return 0;
}

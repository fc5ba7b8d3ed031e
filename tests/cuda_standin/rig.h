// rig.h - device memory and streams for the tests of the stand-in; a failed call ends the test.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_RIG_H
#define ZX_STANDIN_RIG_H

#include "tests/test.h"

#include <string.h>

#if defined(ZX_ON_DEVICE) // tests/device.sh
#include "tests/device/real.h"
#else
#include "tests/cuda_standin/probe.h"
#include "tests/cuda_standin/standin.h"
#endif

#define assert_cuda(call, want)                                                                    \
    do {                                                                                           \
        const cudaError_t got_ = (call);                                                           \
        if (got_ != (want))                                                                        \
            fail_msg("%s: %s, want %s (%s)", #call, cudaGetErrorName(got_), #want,                 \
                     zx_standin_said());                                                           \
    } while (0)
#define assert_ok(call) assert_cuda(call, cudaSuccess)

static inline cudaStream_t a_stream(void)
{
    cudaStream_t s = NULL;
    assert_ok(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    return s;
}
static inline cudaEvent_t an_event(void)
{
    cudaEvent_t e = NULL;
    assert_ok(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    return e;
}
static inline void *on_device(size_t bytes)
{
    void *at = NULL;
    assert_ok(cudaMalloc(&at, bytes));
    return at;
}
static inline void *pinned(size_t bytes)
{
    void *at = NULL;
    assert_ok(cudaHostAlloc(&at, bytes, cudaHostAllocPortable));
    return at;
}
static inline int fresh(void **state ZX_UNUSED) // before and after each test
{
    zx_standin_reset();
    zx_standin_seed(0);
    return 0;
}

#endif

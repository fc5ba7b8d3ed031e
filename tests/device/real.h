// real.h - for tests of the stand-in's that run on a GPU as well: nothing stands in there.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_DEVICE_REAL_H
#define ZX_TESTS_DEVICE_REAL_H

#include <cuda_runtime.h>
#include <stdbool.h>

static inline void zx_standin_seed(uint64_t seed ZX_UNUSED)
{
}
static inline const char *zx_standin_said(void)
{
    return "";
}
// A device that has failed is begun anew; what tests leave on one that hasn't stays there.
static inline uint32_t zx_standin_reset(void)
{
    if (cudaDeviceSynchronize() != cudaSuccess) cudaDeviceReset();
    cudaGetLastError();
    return 0;
}

#endif

// standin_launch.h - what a kernel launch hands to the stand-in.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_LAUNCH_H
#define ZX_STANDIN_LAUNCH_H

#include <cuda_runtime.h>

#if defined(__cplusplus)
extern "C" {
#endif

typedef struct zx_standin_kernel {
    const char *name;                 // the launch's text, kernel first
    void (*thread)(const void *args); // runs the kernel once, for the thread in threadIdx
    const void *args;                 // copied
    size_t args_bytes;
    const void *const *pointers; // those among the arguments
    uint32_t n_pointers;
    uint32_t grid[3], block[3];
    size_t shared_bytes;
} zx_standin_kernel;
cudaError_t zx_standin_launch(const zx_standin_kernel *k, cudaStream_t stream);

#if defined(__cplusplus)
}
#endif

#endif

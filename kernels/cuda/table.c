// table.c - from an op to its CUDA kernel; errors of CUDA as statuses.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/cuda.h"

#include <string.h>

static const struct {
    const char *name;
    const zx_kernel *kernel;
} kernels[] = {
#define X(name) {#name, &zx_cuda_##name},
    ZX_CUDA_KERNELS(X)
#undef X
};

const zx_kernel *zx_cuda_kernel(uint32_t op)
{
    static const char *const names[] = {
#define ZX_OP(id, word, lo, hi, outs, flags, infer, grad, cost, kern) #kern,
#include "graph/ops.def"
#undef ZX_OP
    };
    for (uint32_t i = 0; op < ZX_COUNT(names) && i < ZX_COUNT(kernels); i++)
        if (strcmp(names[op], kernels[i].name) == 0) return kernels[i].kernel;
    return NULL;
}

zx_status zx_cuda_check(cudaError_t e, const char *what, zx_err *err)
{
    if (e == cudaSuccess) return ZX_OK;
    return ZX_FAIL(err, ZX_E_DEVICE, "%s: %s: %s", what, cudaGetErrorName(e),
                   cudaGetErrorString(e));
}

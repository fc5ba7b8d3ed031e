// collect.h - the arithmetic of collectives that only GPUs have as a kernel of its own.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_COLLECT_H
#define ZX_KERNELS_CUDA_COLLECT_H

#include "kernels/cuda/cuda.h"

ZX_BEGIN_C

zx_status zx_cuda_divide(float *x, int64_t n, float by, const struct zx_cuda *cuda, zx_err *err);

ZX_END_C

#endif

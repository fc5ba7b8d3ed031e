// collect.cu - see collect.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/collect.h"
#include "kernels/cuda/common.cuh"

namespace
{

__global__ void __launch_bounds__(ZX_BLOCK) divide(float *x, int64_t n, float by)
{
    ZX_FOR_EACH(i, n) x[i] = x[i] / by;
}

} // namespace

zx_status zx_cuda_divide(float *x, int64_t n, float by, const struct zx_cuda *cuda, zx_err *err)
{
    if (n == 0) return ZX_OK;
    return zx_cuda_check(zx_launch(divide, zx_blocks(n), ZX_BLOCK, 0, cuda->stream, x, n, by),
                         "divide", err);
}

// random.cu - Dropout, float32: the numbers of kernels/random.h, so the same elements are kept as
// on the CPU. A thread makes the four words of a block, for elements 16 apart.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common.cuh"
#include "kernels/random.h"

namespace
{

__global__ void __launch_bounds__(ZX_BLOCK)
    dropout(const float *x, float *y, int64_t n, int64_t blocks, zx_dropout d)
{
    ZX_FOR_EACH(block, blocks)
    {
        uint32_t word[4];
        zx_philox(d.key, (uint64_t)block, d.stream, word);
        for (int k = 0; k < 4; k++) {
            const int64_t i = block / 16 * ZX_GROUP + 16 * k + block % 16;
            if (i < n) y[i] = word[k] >= d.threshold ? x[i] * d.scale : 0.0f;
        }
    }
}

zx_status run(const zx_call *c, zx_err *err)
{
    const int64_t n = zx_count(&c->in[0]), blocks = (n + ZX_GROUP - 1) / ZX_GROUP * 16;
    return zx_cuda_check(zx_launch_each(c, blocks, dropout, (const float *)c->in[0].data,
                                        (float *)c->out[0].data, n, blocks, zx_dropout_of(c)),
                         "dropout", err);
}

} // namespace

const zx_kernel zx_cuda_dropout = {zx_prepare_f32, NULL, run};

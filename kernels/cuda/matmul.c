// matmul.c - MATMUL: cuBLASLt for f32, f16 and bf16.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product.h"

static zx_status matmul_prepare(const zx_call *call, uint64_t *work_bytes, void **state,
                                zx_err *err)
{
    const zx_product p = zx_product_of(call);
    const zx_dtype t = call->in[0].type.dtype;
    if (t != ZX_F32 && t != ZX_F16 && t != ZX_BF16)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "MatMul of %s isn't done on a GPU",
                       zx_dtypes[t].word);
    zx_cuda_product *o;
    ZX_TRY(zx_cuda_product_open(call->cuda, &p, t, false, &o, err));
    *work_bytes = zx_cuda_product_work(o);
    *state = o;
    return ZX_OK;
}

static zx_status matmul_run(const zx_call *call, zx_err *err)
{
    return zx_cuda_product_run(call->state, call->cuda, call->in[0].data, call->in[1].data,
                               call->n_in > 2 ? call->in[2].data : NULL, call->out[0].data,
                               call->work, err);
}

static void matmul_release(void *state)
{
    zx_cuda_product_close(state);
}

const zx_kernel zx_cuda_matmul = {
    .prepare = matmul_prepare, .release = matmul_release, .run = matmul_run};

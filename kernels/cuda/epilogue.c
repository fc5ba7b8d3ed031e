// epilogue.c - MATMUL_GELU, MATMUL_DGELU, MATMUL_SUM: by an epilogue of cuBLASLt where it has one,
// which is for the GELU by tanh alone; else the product, and our own kernels over it in place.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cuda/product.h"
#include "kernels/part.h"

typedef struct products {
    zx_cuda_product *plain;       // nothing beside
    zx_cuda_product *all, *alone; // with all that is beside, and without the sums; NULL: none
    void *sums;                   // state of our own sums
    uint64_t product_bytes;       // of scratch
} products;

static zx_cuda_beside beside_of(const zx_call *c, bool with_sums)
{
    const bool mode = zx_attr_int(c->attrs, ZX_A_MODE, 0) != 0;
    if (c->op == ZX_K_MATMUL_SUM)
        return !with_sums ? ZX_BESIDE_NOTHING : mode ? ZX_BESIDE_SUM_A : ZX_BESIDE_SUM_B;
    if (!mode) return ZX_BESIDE_NOTHING; // the GELU by erf
    if (c->op == ZX_K_MATMUL_GELU) return ZX_BESIDE_GELU;
    return with_sums ? ZX_BESIDE_DGELU_SUM : ZX_BESIDE_DGELU;
}

static void release(void *state)
{
    products *p = state;
    if (p == NULL) return;
    zx_cuda_product_close(p->plain);
    zx_cuda_product_close(p->all);
    zx_cuda_product_close(p->alone);
    free(p);
}

static zx_status open_products(const zx_call *c, products *p, zx_err *err)
{
    const zx_product product = zx_product_of(c);
    const zx_dtype t = c->in[0].type.dtype;
    const zx_cuda_beside all = beside_of(c, true), alone = beside_of(c, false);
    ZX_TRY(zx_cuda_product_open(c->cuda, &product, t, false, &p->plain, err));
    if (all != ZX_BESIDE_NOTHING)
        ZX_TRY(zx_cuda_product_open_beside(c->cuda, &product, t, all, &p->all, err));
    if (alone != ZX_BESIDE_NOTHING && alone != all)
        ZX_TRY(zx_cuda_product_open_beside(c->cuda, &product, t, alone, &p->alone, err));
    zx_cuda_product *const each[] = {p->plain, p->all, p->alone};
    for (size_t i = 0; i < ZX_COUNT(each); i++) {
        const uint64_t bytes = zx_cuda_product_work(each[i]);
        if (bytes > p->product_bytes) p->product_bytes = bytes;
    }
    return ZX_OK;
}

static zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    const zx_dtype t = c->in[0].type.dtype;
    uint64_t sums_bytes = 0;
    zx_part sums;
    if (t != ZX_F32 && t != ZX_F16 && t != ZX_BF16)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s isn't multiplied on a GPU", zx_dtypes[t].word);
    products *p = calloc(1, sizeof *p);
    if (p == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    zx_status st = open_products(c, p, err);
    zx_part_start_sums(&sums, c);
    if (st == ZX_OK && c->op != ZX_K_MATMUL_GELU)
        st = zx_cuda_sum_to.prepare(&sums.call, &sums_bytes, &p->sums, err);
    *work_bytes = p->product_bytes > sums_bytes ? p->product_bytes : sums_bytes;
    if (st == ZX_OK)
        *state = p;
    else
        release(p);
    return st;
}

// What an epilogue would have done, over what the product gave.
static zx_status finish(const zx_call *c, void *product, zx_err *err)
{
    const products *p = c->state;
    zx_part part;
    if (c->op == ZX_K_MATMUL_GELU) {
        zx_part_start(&part, c, ZX_K_GELU, 1);
        part.in[0] = (zx_view){product, c->out[0].type};
        return zx_cuda_unary.run(&part.call, err);
    }
    if (c->op == ZX_K_MATMUL_DGELU) {
        zx_part_start(&part, c, ZX_K_GELU_GRAD, 2);
        part.in[0] = c->out[0];
        part.in[1] = c->in[2];
        ZX_TRY(zx_cuda_unary_grad.run(&part.call, err));
    }
    if (c->out[1].data == NULL) return ZX_OK;
    zx_part_start_sums(&part, c);
    part.call.state = p->sums;
    return zx_cuda_sum_to.run(&part.call, err);
}

static zx_status run(const zx_call *c, zx_err *err)
{
    const products *p = c->state;
    const bool second = c->out[1].data != NULL, gelu = c->op == ZX_K_MATMUL_GELU;
    const zx_cuda_product *beside = second ? p->all : p->alone;
    const void *a = c->in[0].data, *b = c->in[1].data;
    const void *row = gelu && c->n_in > 2 ? c->in[2].data : NULL;
    if (beside != NULL) {
        void *aux = gelu ? c->out[1].data : c->op == ZX_K_MATMUL_DGELU ? c->in[2].data : NULL;
        return zx_cuda_product_run_beside(beside, c->cuda, a, b, row, c->out[0].data, aux,
                                          gelu ? NULL : c->out[1].data, c->work, err);
    }
    void *to = gelu && second ? c->out[1].data : c->out[0].data;
    ZX_TRY(zx_cuda_product_run(p->plain, c->cuda, a, b, row, to, c->work, err));
    return finish(c, to, err);
}

const zx_kernel zx_cuda_matmul_gelu = {prepare, release, run};
const zx_kernel zx_cuda_matmul_dgelu = {prepare, release, run};
const zx_kernel zx_cuda_matmul_sum = {prepare, release, run};

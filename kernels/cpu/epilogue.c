// epilogue.c - MATMUL_GELU, MATMUL_DGELU, MATMUL_SUM: on a CPU the kernels that they are made of,
// one after the other and in place. They are for GPUs, whose library does it all at once; here they
// say what that has to give.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cpu/common.h"
#include "kernels/part.h"

typedef struct parts { // calls of other kernels
    void *product;     // state of its
    uint64_t product_bytes;
} parts;

// Where the product goes: what is kept of it, or else where the result will be.
static void start_product(zx_part *to, const zx_call *c)
{
    zx_part_start(to, c, ZX_K_MATMUL, c->op == ZX_K_MATMUL_GELU ? c->n_in : 2);
    if (c->op == ZX_K_MATMUL_GELU && c->out[1].data != NULL) to->out[0].data = c->out[1].data;
}

static zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    zx_part product, sums;
    uint64_t sums_bytes = 0;
    ZX_TRY(zx_need_f32(c, err));
    parts *p = calloc(1, sizeof *p);
    if (p == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    start_product(&product, c);
    zx_part_start_sums(&sums, c);
    zx_status st = zx_cpu_matmul.prepare(&product.call, &p->product_bytes, &p->product, err);
    if (st == ZX_OK && c->op != ZX_K_MATMUL_GELU)
        st = zx_cpu_sum_to.prepare(&sums.call, &sums_bytes, NULL, err);
    *work_bytes = p->product_bytes > sums_bytes ? p->product_bytes : sums_bytes;
    if (st == ZX_OK)
        *state = p;
    else
        free(p);
    return st;
}

static void release(void *state)
{
    parts *p = state;
    if (p != NULL) zx_cpu_matmul.release(p->product);
    free(p);
}

static zx_status run(const zx_call *c, zx_err *err)
{
    zx_part part;
    start_product(&part, c);
    part.call.state = ((const parts *)c->state)->product;
    ZX_TRY(zx_cpu_matmul.run(&part.call, err));
    if (c->op == ZX_K_MATMUL_GELU) {
        const zx_view product = part.out[0];
        zx_part_start(&part, c, ZX_K_GELU, 1);
        part.in[0] = product;
        return zx_cpu_unary.run(&part.call, err);
    }
    if (c->op == ZX_K_MATMUL_DGELU) {
        zx_part_start(&part, c, ZX_K_GELU_GRAD, 2);
        part.in[0] = c->out[0];
        part.in[1] = c->in[2];
        ZX_TRY(zx_cpu_unary_grad.run(&part.call, err));
    }
    if (c->out[1].data == NULL) return ZX_OK;
    zx_part_start_sums(&part, c);
    return zx_cpu_sum_to.run(&part.call, err);
}

const zx_kernel zx_cpu_matmul_gelu = {prepare, release, run};
const zx_kernel zx_cpu_matmul_dgelu = {prepare, release, run};
const zx_kernel zx_cpu_matmul_sum = {prepare, release, run};

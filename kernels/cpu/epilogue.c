// epilogue.c - MATMUL_GELU, MATMUL_DGELU, MATMUL_SUM: on a CPU the kernels that they are made of,
// one after the other and in place. They are for GPUs, whose library does it all at once; here they
// say what that has to give.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cpu/common.h"

typedef struct parts { // calls of other kernels
    void *product;     // state of its
    uint64_t product_bytes;
} parts;

typedef struct call { // of another op over views of this one
    zx_call call;
    zx_view in[3], out[1];
} call;

static void start(call *to, const zx_call *c, uint32_t op, uint32_t n_in)
{
    to->call = *c;
    to->call.op = op;
    to->call.n_in = n_in;
    to->call.n_out = 1;
    to->call.in = to->in;
    to->call.out = to->out;
    to->call.state = NULL;
    for (uint32_t i = 0; i < n_in && i < c->n_in; i++) to->in[i] = c->in[i];
    to->out[0] = c->out[0];
}

// Where the product goes: what is kept of it, or else where the result will be.
static void start_product(call *to, const zx_call *c)
{
    start(to, c, ZX_K_MATMUL, c->op == ZX_K_MATMUL_GELU ? c->n_in : 2);
    if (c->op == ZX_K_MATMUL_GELU && c->out[1].data != NULL) to->out[0].data = c->out[1].data;
}

// Sums of the result's columns, or of an operand's over the inner dimension.
static void start_sums(call *to, const zx_call *c)
{
    const uint32_t of = zx_attr_int(c->attrs, ZX_A_MODE, 0) != 0 ? 0 : 1;
    const bool turned = zx_attr_int(c->attrs, of == 0 ? ZX_A_TRANS_A : ZX_A_TRANS_B, 0) != 0;
    start(to, c, ZX_K_SUM_TO, 1);
    to->in[0] = c->op == ZX_K_MATMUL_SUM ? c->in[of] : c->out[0];
    to->out[0] = c->out[1];
    // Where the inner dimension is the last one, the sums are a column.
    const bool along = c->op == ZX_K_MATMUL_SUM && (of == 0 ? !turned : turned);
    if (along) to->out[0].type.shape = (zx_shape){2, {c->out[1].type.shape.dim[0], 1}};
}

static zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    call product, sums;
    uint64_t sums_bytes = 0;
    ZX_TRY(zx_need_f32(c, err));
    parts *p = calloc(1, sizeof *p);
    if (p == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    start_product(&product, c);
    start_sums(&sums, c);
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
    call part;
    start_product(&part, c);
    part.call.state = ((const parts *)c->state)->product;
    ZX_TRY(zx_cpu_matmul.run(&part.call, err));
    if (c->op == ZX_K_MATMUL_GELU) {
        const zx_view product = part.out[0];
        start(&part, c, ZX_K_GELU, 1);
        part.in[0] = product;
        return zx_cpu_unary.run(&part.call, err);
    }
    if (c->op == ZX_K_MATMUL_DGELU) {
        start(&part, c, ZX_K_GELU_GRAD, 2);
        part.in[0] = c->out[0];
        part.in[1] = c->in[2];
        ZX_TRY(zx_cpu_unary_grad.run(&part.call, err));
    }
    if (c->out[1].data == NULL) return ZX_OK;
    start_sums(&part, c);
    return zx_cpu_sum_to.run(&part.call, err);
}

const zx_kernel zx_cpu_matmul_gelu = {prepare, release, run};
const zx_kernel zx_cpu_matmul_dgelu = {prepare, release, run};
const zx_kernel zx_cpu_matmul_sum = {prepare, release, run};

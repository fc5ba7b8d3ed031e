// part.h - a kernel that is made of others calls them over views of its own: what MATMUL_GELU,
// MATMUL_DGELU and MATMUL_SUM are made of, for cores and GPUs alike.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_PART_H
#define ZX_KERNELS_PART_H

#include "kernels/kernel.h"
#include "kernels/op_ids.h"

ZX_BEGIN_C

typedef struct zx_part { // a call of another op; not copied: it points into itself
    zx_call call;
    zx_view in[3], out[1];
} zx_part;

// Of the whole's first inputs and its result, without a state.
static inline void zx_part_start(zx_part *to, const zx_call *c, uint32_t op, uint32_t n_in)
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

// SUM_TO of the result's columns, or of an operand's (MODE: which) over the inner dimension.
static inline void zx_part_start_sums(zx_part *to, const zx_call *c)
{
    const bool of_operand = c->op == ZX_K_MATMUL_SUM;
    const uint32_t of = zx_attr_int(c->attrs, ZX_A_MODE, 0) != 0 ? 0 : 1;
    const bool turned = zx_attr_int(c->attrs, of == 0 ? ZX_A_TRANS_A : ZX_A_TRANS_B, 0) != 0;
    zx_part_start(to, c, ZX_K_SUM_TO, 1);
    to->in[0] = of_operand ? c->in[of] : c->out[0];
    to->out[0].data = c->out[1].data;
    // Where the inner dimension is the last one, the sums are a column.
    const zx_shape *s = &to->in[0].type.shape;
    const zx_shape column = {2, {s->dim[0], 1}}, row = {1, {s->dim[s->rank - 1]}};
    to->out[0].type.shape = of_operand && turned == (of == 1) ? column : row;
}

ZX_END_C

#endif

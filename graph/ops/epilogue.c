// epilogue.c - a product with what is done to its result or an operand on the way.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

// The product of the first two inputs, and of a row that is added where `row`.
static zx_status product(const zx_op_args *args, bool row, zx_type *y, zx_err *err)
{
    zx_op_args a = *args;
    int64_t mode;
    ZX_TRY(zx_args_check(args, err));
    ZX_TRY(zx_args_wants(args, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_int(args, ZX_A_MODE, 0, 0, 1, &mode, err));
    a.op = ZX_OP_MATMUL;
    if (!row) a.n_in = 2;
    return zx_infer_matmul(&a, y, err);
}

zx_status zx_infer_matmul_gelu(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(product(a, true, out, err));
    out[1] = out[0];
    return ZX_OK;
}

// One number for each of the last dimension of x.
static zx_type columns_of(const zx_type *x)
{
    const zx_shape *s = &x->shape;
    return (zx_type){.dtype = x->dtype, .shape = {1, {s->dim[s->rank - 1]}}};
}

zx_status zx_infer_matmul_dgelu(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(product(a, false, out, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 0, err));
    ZX_TRY(zx_args_shape_is(a, 2, &out[0].shape, err));
    out[1] = columns_of(&out[0]);
    return ZX_OK;
}

zx_status zx_infer_matmul_sum(const zx_op_args *a, zx_type *out, zx_err *err)
{
    const bool of_a = zx_attr_int(a->attrs, ZX_A_MODE, 0) != 0;
    ZX_TRY(product(a, false, out, err));
    if (out[0].shape.rank != 2)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s takes matrices, not batches of them", zx_arg_op(a));
    out[1] = out[0];
    out[1].shape = (zx_shape){1, {out[0].shape.dim[of_a ? 0 : 1]}};
    return ZX_OK;
}

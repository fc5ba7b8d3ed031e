// linear_loss.c - a linear layer and the cross entropy of its scores as one operator.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// x [.., H] with w [V, H] and labels [..] or [rows]; says what the loss' shape is.
static zx_status classes_fit(const zx_op_args *a, uint32_t x, uint32_t w, uint32_t labels,
                             zx_shape *loss, zx_err *err)
{
    const zx_shape *sx = &a->in[x]->shape, *sw = &a->in[w]->shape, *sl = &a->in[labels]->shape;
    char tx[ZX_SHAPE_TEXT], tw[ZX_SHAPE_TEXT], tl[ZX_SHAPE_TEXT];
    int64_t reduction;
    if (sx->rank < 2 || sw->rank != 2 || sx->dim[sx->rank - 1] != sw->dim[1])
        return ZX_FAIL(err, ZX_E_SHAPE,
                       "%s of %s and %s: [.., inner size] and [classes, inner size] are wanted",
                       zx_arg_op(a), zx_shape_text(sx, tx), zx_shape_text(sw, tw));
    zx_shape rows = *sx;
    rows.rank--;
    const zx_shape flat = {1, {zx_shape_span(sx, 0, sx->rank - 1)}};
    ZX_TRY(zx_args_wants(a, labels, ZX_WANTS_INDEX, err));
    if (!zx_shape_equal(sl, &rows) && !zx_shape_equal(sl, &flat))
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s wants one label a row, not %s", zx_arg_op(a),
                       zx_shape_text(sx, tx), zx_shape_text(sl, tl));
    ZX_TRY(zx_args_int(a, ZX_A_REDUCTION, 1, 0, 2, &reduction, err));
    *loss = reduction == 0 ? *sl : (zx_shape){.rank = 0};
    return ZX_OK;
}

zx_status zx_infer_linear_cross_entropy(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(classes_fit(a, 0, 1, 2, &loss, err));
    out[0] = (zx_type){.dtype = ZX_F32, .shape = loss};
    out[1] = (zx_type){.dtype = ZX_F32, .shape = a->in[2]->shape};
    return ZX_OK;
}

// dloss, x, w, labels, lse
zx_status zx_infer_linear_cross_entropy_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 1, err));
    ZX_TRY(zx_args_wants(a, 4, ZX_WANTS_FLOAT, err));
    ZX_TRY(classes_fit(a, 1, 2, 3, &loss, err));
    ZX_TRY(zx_args_shape_is(a, 0, &loss, err));
    ZX_TRY(zx_args_same_shape(a, 4, 3, err));
    out[0] = *a->in[1];
    out[1] = *a->in[2];
    return ZX_OK;
}

// `products` of all rows with all classes.
static zx_cost products_cost(const zx_op_args *a, uint32_t x, uint32_t w, double products)
{
    const double classes = (double)a->in[w]->shape.dim[0];
    return (zx_cost){.flops = 2 * products * classes * (double)zx_shape_count(&a->in[x]->shape),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

zx_cost zx_cost_linear_cross_entropy(const zx_op_args *a)
{
    return products_cost(a, 0, 1, 1);
}

zx_cost zx_cost_linear_cross_entropy_grad(const zx_op_args *a)
{
    return products_cost(a, 1, 2, 3); // the scores again, dx, dw
}

zx_status zx_grad_linear_cross_entropy(zx_builder *b, uint32_t node, const uint32_t *dy,
                                       const bool *need, uint32_t *dx, zx_err *err)
{
    uint32_t out[2];
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_in(b, node, 1),
                           zx_grad_in(b, node, 2), zx_grad_out(b, node, 1)};
    ZX_TRY(zx_build_node(b, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD, in, 5, zx_grad_attrs(b, node), NULL,
                         out, err));
    for (uint32_t i = 0; i < 2; i++)
        if (need[i]) dx[i] = out[i];
    return ZX_OK;
}

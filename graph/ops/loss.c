// loss.c - losses over classes.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// logits [N, C, d..] with labels [N, d..] and [weights C]; says what the loss' shape is.
static zx_status classes_fit(const zx_op_args *a, const zx_shape *logits, uint32_t labels,
                             uint32_t weights, zx_shape *loss, zx_err *err)
{
    int64_t reduction;
    if (logits->rank < 2)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s over a tensor with %u dimensions: [N, C, ..] is wanted",
                       zx_arg_op(a), logits->rank);
    zx_shape want = {.rank = logits->rank - 1, .dim = {logits->dim[0]}};
    for (uint32_t d = 1; d < want.rank; d++) want.dim[d] = logits->dim[d + 1];
    ZX_TRY(zx_args_wants(a, labels, ZX_WANTS_INDEX, err));
    ZX_TRY(zx_args_shape_is(a, labels, &want, err));
    ZX_TRY(zx_args_same_dtype(a, weights, 0, err));
    ZX_TRY(zx_args_shape_is(a, weights, &(zx_shape){1, {logits->dim[1]}}, err));
    ZX_TRY(zx_args_int(a, ZX_A_REDUCTION, 1, 0, 2, &reduction, err));
    *loss = reduction == 0 ? want : (zx_shape){.rank = 0};
    return ZX_OK;
}

static zx_status smoothing_fits(const zx_op_args *a, zx_err *err)
{
    const double s = zx_attr_float(a->attrs, ZX_A_SMOOTHING, 0);
    if (s >= 0 && s <= 1) return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE, "%s: label smoothing %g is not in [0, 1]", zx_arg_op(a), s);
}

zx_status zx_infer_cross_entropy(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(classes_fit(a, &a->in[0]->shape, 1, 2, &loss, err));
    ZX_TRY(smoothing_fits(a, err));
    out[0] = (zx_type){.dtype = a->in[0]->dtype, .shape = loss};
    out[1] = (zx_type){.dtype = a->in[0]->dtype, .shape = a->in[1]->shape};
    return ZX_OK;
}

// dloss, logits, labels, lse, [weights]
zx_status zx_infer_cross_entropy_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(zx_args_same_dtype(a, 3, 0, err));
    ZX_TRY(classes_fit(a, &a->in[1]->shape, 2, 4, &loss, err));
    ZX_TRY(smoothing_fits(a, err));
    ZX_TRY(zx_args_shape_is(a, 0, &loss, err));
    ZX_TRY(zx_args_same_shape(a, 3, 2, err));
    *out = *a->in[1];
    return ZX_OK;
}

zx_status zx_infer_nll_loss(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(classes_fit(a, &a->in[0]->shape, 1, 2, &loss, err));
    *out = (zx_type){.dtype = a->in[0]->dtype, .shape = loss};
    return ZX_OK;
}

// dloss, labels, [weights]; the log-probabilities' shape is given.
zx_status zx_infer_nll_loss_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(classes_fit(a, &out->shape, 1, 2, &loss, err));
    return zx_args_shape_is(a, 0, &loss, err);
}

zx_status zx_grad_cross_entropy(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                                uint32_t *dx, zx_err *err)
{
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_in(b, node, 1),
                           zx_grad_out(b, node, 1), zx_grad_in(b, node, 2)};
    if (b->nodes[node].n_in > 2 && need[2])
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "class weights of a loss are not differentiable");
    if (!need[0]) return ZX_OK;
    return zx_build_node(b, ZX_OP_CROSS_ENTROPY_GRAD, in, in[4] == ZX_NONE ? 4 : 5,
                         zx_grad_attrs(b, node), NULL, &dx[0], err);
}

zx_status zx_grad_nll_loss(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                           uint32_t *dx, zx_err *err)
{
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 1), zx_grad_in(b, node, 2)};
    if (b->nodes[node].n_in > 2 && need[2])
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "class weights of a loss are not differentiable");
    if (!need[0]) return ZX_OK;
    return zx_build_node(b, ZX_OP_NLL_LOSS_GRAD, in, in[2] == ZX_NONE ? 2 : 3,
                         zx_grad_attrs_shape(b, node, 0), NULL, &dx[0], err);
}

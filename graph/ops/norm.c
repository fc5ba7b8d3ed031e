// norm.c - normalisation: layer, RMS and batch norm, and softmax.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

// ---- shapes
// --------------------------------------------------------------------------------------

// x split at AXIS: the dims that are normalised, and [outer dims, 1s], one statistic a row.
static zx_status split(const zx_op_args *a, const zx_shape *x, zx_shape *inner, zx_shape *stat,
                       zx_err *err)
{
    uint32_t axis;
    ZX_TRY(zx_args_axis(a, x->rank, &axis, err));
    *inner = (zx_shape){.rank = x->rank - axis};
    *stat = (zx_shape){.rank = x->rank};
    for (uint32_t d = 0; d < x->rank; d++) {
        stat->dim[d] = d < axis ? x->dim[d] : 1;
        if (d >= axis) inner->dim[d - axis] = x->dim[d];
    }
    return ZX_OK;
}

static zx_status all_floats_alike(const zx_op_args *a, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    for (uint32_t i = 1; i < a->n_in; i++) ZX_TRY(zx_args_same_dtype(a, i, 0, err));
    return ZX_OK;
}

// LayerNormalization (y, mean, invstd) and RMSNormalization (y, invrms).
zx_status zx_infer_layer_norm(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape inner, stat;
    ZX_TRY(all_floats_alike(a, err));
    ZX_TRY(split(a, &a->in[0]->shape, &inner, &stat, err));
    for (uint32_t i = 1; i < a->n_in; i++) ZX_TRY(zx_args_shape_is(a, i, &inner, err));
    out[0] = *a->in[0];
    for (uint32_t i = 1; i < a->n_out; i++)
        out[i] = (zx_type){.dtype = a->in[0]->dtype, .shape = stat};
    return ZX_OK;
}

// dy, x, then n_stats statistics, then [scale]: dx, and the gradients of scale (and bias).
static zx_status norm_grad(const zx_op_args *a, uint32_t n_stats, zx_type *out, zx_err *err)
{
    zx_shape inner, stat;
    ZX_TRY(all_floats_alike(a, err));
    ZX_TRY(zx_args_same_shape(a, 1, 0, err));
    ZX_TRY(split(a, &a->in[0]->shape, &inner, &stat, err));
    for (uint32_t i = 2; i < 2 + n_stats; i++) ZX_TRY(zx_args_shape_is(a, i, &stat, err));
    ZX_TRY(zx_args_shape_is(a, 2 + n_stats, &inner, err));
    out[0] = *a->in[0];
    for (uint32_t i = 1; i < a->n_out; i++)
        out[i] = (zx_type){.dtype = a->in[0]->dtype, .shape = inner};
    return ZX_OK;
}

zx_status zx_infer_layer_norm_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    return norm_grad(a, 2, out, err);
}

zx_status zx_infer_rms_norm_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    return norm_grad(a, 1, out, err);
}

// Inputs `from`..4 and outputs 1.. are one number a channel of input 0.
static zx_status by_channel(const zx_op_args *a, uint32_t from, zx_type *out, zx_err *err)
{
    ZX_TRY(all_floats_alike(a, err));
    const zx_type *x = a->in[0];
    if (x->shape.rank < 2)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of a tensor with %u dimensions", zx_arg_op(a),
                       x->shape.rank);
    const zx_shape channels = {1, {x->shape.dim[1]}};
    for (uint32_t i = from; i < a->n_in; i++) ZX_TRY(zx_args_shape_is(a, i, &channels, err));
    out[0] = *x;
    for (uint32_t i = 1; i < a->n_out; i++)
        out[i] = (zx_type){.dtype = x->dtype, .shape = channels};
    return ZX_OK;
}

zx_status zx_infer_batch_norm(const zx_op_args *a, zx_type *out, zx_err *err)
{
    return by_channel(a, 1, out, err);
}

zx_status zx_infer_batch_norm_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(by_channel(a, 2, out, err));
    return zx_args_same_shape(a, 1, 0, err);
}

// Softmax and LogSoftmax, and their gradients (dy, y).
zx_status zx_infer_softmax(const zx_op_args *a, zx_type *out, zx_err *err)
{
    uint32_t axis;
    ZX_TRY(all_floats_alike(a, err));
    ZX_TRY(zx_args_same_shape(a, 1, 0, err));
    ZX_TRY(zx_args_axis(a, a->in[0]->shape.rank, &axis, err));
    *out = *a->in[0];
    return ZX_OK;
}

// A few passes over rows that stay in cache.
zx_cost zx_cost_norm(const zx_op_args *a)
{
    const double x = (double)zx_shape_count(&a->in[0]->shape);
    const double y = (double)zx_shape_count(&a->out->shape);
    return (zx_cost){.flops = 8 * (x > y ? x : y),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

// ---- gradients
// -----------------------------------------------------------------------------------

// The backward node `op` over n_in values, whose outputs are the gradients of the n_dx inputs.
static zx_status backward(zx_builder *b, uint32_t node, zx_op_id op, const uint32_t *in,
                          uint32_t n_in, const bool *need, uint32_t *dx, uint32_t n_dx, zx_err *err)
{
    uint32_t out[3];
    ZX_TRY(zx_build_node(b, op, in, n_in, zx_grad_attrs(b, node), NULL, out, err));
    for (uint32_t i = 0; i < n_dx; i++)
        if (need[i]) dx[i] = out[i];
    return ZX_OK;
}

zx_status zx_grad_layer_norm(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                             uint32_t *dx, zx_err *err)
{
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_out(b, node, 1),
                           zx_grad_out(b, node, 2), zx_grad_in(b, node, 1)};
    const uint32_t n_in = in[4] == ZX_NONE ? 4 : 5, n = b->nodes[node].n_in;
    return backward(b, node, ZX_OP_LAYER_NORM_GRAD, in, n_in, need, dx, n, err);
}

zx_status zx_grad_rms_norm(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                           uint32_t *dx, zx_err *err)
{
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_out(b, node, 1),
                           zx_grad_in(b, node, 1)};
    const uint32_t n_in = in[3] == ZX_NONE ? 3 : 4, n = b->nodes[node].n_in;
    return backward(b, node, ZX_OP_RMS_NORM_GRAD, in, n_in, need, dx, n, err);
}

zx_status zx_grad_batch_norm(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                             uint32_t *dx, zx_err *err)
{
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_in(b, node, 1),
                           zx_grad_out(b, node, 3), zx_grad_out(b, node, 4)};
    return backward(b, node, ZX_OP_BATCH_NORM_GRAD, in, 5, need, dx, 3, err);
}

static uint32_t softmax_like(zx_builder *b, uint32_t node, uint32_t dy)
{
    return zx_build1(b, zx_grad_row(zx_grad_op(b, node)), zx_grad_attrs(b, node), 2, dy,
                     zx_grad_out(b, node, 0));
}

zx_status zx_grad_softmax(zx_builder *b, uint32_t node, const uint32_t *dy,
                          const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = softmax_like(b, node, dy[0]);
    return ZX_OK;
}

zx_status zx_grad_log_softmax(zx_builder *b, uint32_t node, const uint32_t *dy,
                              const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = softmax_like(b, node, dy[0]);
    return ZX_OK;
}

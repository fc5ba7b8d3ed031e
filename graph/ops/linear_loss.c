// linear_loss.c - a linear layer and the cross entropy of its scores as one operator.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// x [.., H], w [V, H] (or [H, V]), labels [..] or [rows], [bias V], from input `x` on; says what
// the loss' shape is.
static zx_status classes_fit(const zx_op_args *a, uint32_t x, zx_shape *loss, zx_err *err)
{
    const uint32_t w = x + 1, labels = x + 2, bias = x + 3;
    const zx_shape *sx = &a->in[x]->shape, *sw = &a->in[w]->shape, *sl = &a->in[labels]->shape;
    const bool trans = zx_attr_int(a->attrs, ZX_A_TRANS_B, 1) != 0;
    char tx[ZX_SHAPE_TEXT], tw[ZX_SHAPE_TEXT], tl[ZX_SHAPE_TEXT];
    int64_t reduction;
    if (sx->rank < 2 || sw->rank != 2 || sx->dim[sx->rank - 1] != sw->dim[trans ? 1 : 0])
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s and %s: [.., inner size] and %s are wanted",
                       zx_arg_op(a), zx_shape_text(sx, tx), zx_shape_text(sw, tw),
                       trans ? "[classes, inner size]" : "[inner size, classes]");
    zx_shape rows = *sx;
    rows.rank--;
    const zx_shape flat = {1, {zx_shape_span(sx, 0, sx->rank - 1)}};
    ZX_TRY(zx_args_wants(a, labels, ZX_WANTS_INDEX, err));
    if (!zx_shape_equal(sl, &rows) && !zx_shape_equal(sl, &flat))
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s wants one label a row, not %s", zx_arg_op(a),
                       zx_shape_text(sx, tx), zx_shape_text(sl, tl));
    ZX_TRY(zx_args_same_dtype(a, w, x, err));
    ZX_TRY(zx_args_same_dtype(a, bias, x, err));
    ZX_TRY(zx_args_shape_is(a, bias, &(zx_shape){1, {sw->dim[trans ? 0 : 1]}}, err));
    ZX_TRY(zx_args_int(a, ZX_A_REDUCTION, 1, 0, 2, &reduction, err));
    *loss = reduction == 0 ? *sl : (zx_shape){.rank = 0};
    return ZX_OK;
}

zx_status zx_infer_linear_cross_entropy(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(classes_fit(a, 0, &loss, err));
    out[0] = (zx_type){.dtype = ZX_F32, .shape = loss};
    out[1] = (zx_type){.dtype = ZX_F32, .shape = a->in[2]->shape};
    return ZX_OK;
}

// dloss, then the same inputs
zx_status zx_infer_linear_cross_entropy_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape loss;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_FLOAT, err));
    ZX_TRY(classes_fit(a, 1, &loss, err));
    ZX_TRY(zx_args_shape_is(a, 0, &loss, err));
    const bool trans = zx_attr_int(a->attrs, ZX_A_TRANS_B, 1) != 0;
    out[0] = (zx_type){.dtype = ZX_F32, .shape = loss};
    out[1] = *a->in[1];
    out[2] = *a->in[2];
    out[3] = *a->in[2];
    out[3].shape = (zx_shape){1, {a->in[2]->shape.dim[trans ? 0 : 1]}};
    return ZX_OK;
}

// `products` of all rows with all classes.
static zx_cost products_cost(const zx_op_args *a, uint32_t x, double products)
{
    const bool trans = zx_attr_int(a->attrs, ZX_A_TRANS_B, 1) != 0;
    const double classes = (double)a->in[x + 1]->shape.dim[trans ? 0 : 1];
    return (zx_cost){.flops = 2 * products * classes * (double)zx_shape_count(&a->in[x]->shape),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

zx_cost zx_cost_linear_cross_entropy(const zx_op_args *a)
{
    return products_cost(a, 0, 1);
}

zx_cost zx_cost_linear_cross_entropy_grad(const zx_op_args *a)
{
    return products_cost(a, 1, 3); // the scores, dx, dw
}

// Whether the node's outputs are read by no node, and the loss is what the graph is trained on.
static bool is_all_there_is(const zx_builder *b, uint32_t node)
{
    const uint32_t loss = zx_grad_out(b, node, 0), lse = zx_grad_out(b, node, 1);
    if (b->g.loss != loss) return false;
    for (uint32_t i = 0; i < b->g.n_nodes; i++)
        for (uint32_t a = 0; a < b->nodes[i].n_in; a++) {
            const uint32_t v = zx_node_in(&b->g, &b->nodes[i], a);
            if (v != ZX_NONE && (v == loss || v == lse)) return false;
        }
    return true;
}

// The gradient makes the scores, so it has the loss as well: where nobody needs that earlier it is
// taken from there, and what was made forward, which then nobody reads, falls away. Three products,
// as without the operator.
zx_status zx_grad_linear_cross_entropy(zx_builder *b, uint32_t node, const uint32_t *dy,
                                       const bool *need, uint32_t *dx, zx_err *err)
{
    uint32_t out[4], in[5] = {dy[0]};
    const uint32_t n = b->nodes[node].n_in, loss = zx_grad_out(b, node, 0);
    ZX_TRY(zx_grad_only_first(b, node, dy, err));
    const bool all = is_all_there_is(b, node);
    for (uint32_t i = 0; i < n; i++) in[i + 1] = zx_grad_in(b, node, i);
    ZX_TRY(zx_build_node(b, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD, in, n + 1, zx_grad_attrs(b, node),
                         NULL, out, err));
    if (need[0]) dx[0] = out[1];
    if (need[1]) dx[1] = out[2];
    if (n > 3 && need[3]) dx[3] = out[3];
    if (!all) return ZX_OK;
    b->values[out[0]].name = b->values[loss].name;
    b->g.loss = out[0];
    return ZX_OK;
}

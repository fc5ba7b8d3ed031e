// conv.c - convolutions and their gradients, which are convolutions again.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

typedef struct window { // one a spatial dim; PADS has twice as many: begins, then ends
    uint32_t dims;
    const int64_t *strides, *dilations, *pads;
    int64_t groups;
} window;

static zx_status window_of(const zx_op_args *a, uint32_t rank, window *w, zx_err *err)
{
    if (rank < 3 || rank > 5)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of a tensor with %u dimensions: 3 to 5 are supported",
                       zx_arg_op(a), rank);
    w->dims = rank - 2;
    ZX_TRY(zx_args_ints(a, ZX_A_STRIDES, w->dims, 1, INT32_MAX, &w->strides, err));
    ZX_TRY(zx_args_ints(a, ZX_A_DILATIONS, w->dims, 1, INT32_MAX, &w->dilations, err));
    ZX_TRY(zx_args_ints(a, ZX_A_PADS, 2 * w->dims, 0, INT32_MAX, &w->pads, err));
    return zx_args_int(a, ZX_A_GROUP, 1, 1, INT32_MAX, &w->groups, err);
}

// The shape of x [N, C, d..] convolved with w [M, C/g, k..].
static zx_status convolved(const zx_op_args *a, const zx_shape *x, const zx_shape *w, zx_shape *y,
                           zx_err *err)
{
    char tx[ZX_SHAPE_TEXT], tw[ZX_SHAPE_TEXT];
    window win;
    ZX_TRY(window_of(a, x->rank, &win, err));
    bool fits = w->rank == x->rank;
    fits = fits && w->dim[0] % win.groups == 0 && x->dim[1] % win.groups == 0;
    fits = fits && w->dim[1] == x->dim[1] / win.groups;
    if (!fits)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s with weights %s in %" PRId64 " groups",
                       zx_arg_op(a), zx_shape_text(x, tx), zx_shape_text(w, tw), win.groups);
    *y = (zx_shape){.rank = x->rank, .dim = {x->dim[0], w->dim[0]}};
    for (uint32_t d = 0; d < win.dims; d++) {
        const int64_t k = w->dim[d + 2];
        if (k < 1 || k > INT32_MAX)
            return ZX_FAIL(err, ZX_E_SHAPE, "%s with a window of %" PRId64, zx_arg_op(a), k);
        const int64_t reach = (k - 1) * win.dilations[d] + 1;
        const int64_t have = x->dim[d + 2] + win.pads[d] + win.pads[d + win.dims];
        if (have < reach)
            return ZX_FAIL(err, ZX_E_SHAPE,
                           "%s of %s: a window that reaches over %" PRId64
                           " does not fit into %" PRId64 " padded elements",
                           zx_arg_op(a), zx_shape_text(x, tx), reach, have);
        y->dim[d + 2] = (have - reach) / win.strides[d] + 1;
    }
    return ZX_OK;
}

zx_status zx_infer_conv(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 0, err));
    ZX_TRY(convolved(a, &a->in[0]->shape, &a->in[1]->shape, &y, err));
    ZX_TRY(zx_args_shape_is(a, 2, &(zx_shape){1, {y.dim[1]}}, err));
    return zx_args_out(a, a->in[0]->dtype, &y, out, err);
}

// dy, w: x's shape is given and must lead to dy's.
zx_status zx_infer_conv_grad_x(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(convolved(a, &out->shape, &a->in[1]->shape, &y, err));
    return zx_args_shape_is(a, 0, &y, err);
}

// x, dy: w's shape is given.
zx_status zx_infer_conv_grad_w(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(convolved(a, &a->in[0]->shape, &out->shape, &y, err));
    return zx_args_shape_is(a, 1, &y, err);
}

// 2 * N * outputs of a channel * all weights, in each of the three directions.
zx_cost zx_cost_conv(const zx_op_args *a)
{
    const zx_shape *y = &a->out->shape, *w = &a->in[1]->shape;
    if (a->op == ZX_OP_CONV_GRAD_X) y = &a->in[0]->shape;
    if (a->op == ZX_OP_CONV_GRAD_W) {
        y = &a->in[1]->shape;
        w = &a->out->shape;
    }
    const double outputs = (double)y->dim[0] * (double)zx_shape_span(y, 2, y->rank);
    return (zx_cost){.flops = 2 * outputs * (double)zx_shape_count(w),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

zx_status zx_grad_conv(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                       uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const uint32_t x = zx_grad_in(b, node, 0), w = zx_grad_in(b, node, 1);
    if (need[0])
        dx[0] = zx_build1(b, ZX_OP_CONV_GRAD_X, zx_grad_attrs_shape(b, node, 0), 2, dy[0], w);
    if (need[1])
        dx[1] = zx_build1(b, ZX_OP_CONV_GRAD_W, zx_grad_attrs_shape(b, node, 1), 2, x, dy[0]);
    if (b->nodes[node].n_in > 2 && need[2]) {
        static const int64_t all_but_channels[] = {0, 2, 3, 4};
        zx_attrs attrs = zx_attrs_ints(b->mem, (zx_attrs){0}, ZX_A_AXES, all_but_channels,
                                       zx_shape_of(b, x)->rank - 1);
        attrs = zx_attrs_int(b->mem, attrs, ZX_A_KEEPDIMS, 0);
        dx[2] = zx_build1(b, ZX_OP_REDUCE_SUM, attrs, 1, dy[0]);
    }
    return ZX_OK;
}

// y = conv_grad_x(x, w) is linear in both: with g = dy, <g, y> = <conv(g, w), x>.
zx_status zx_grad_conv_grad_x(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                              uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const uint32_t x = zx_grad_in(b, node, 0), w = zx_grad_in(b, node, 1);
    if (need[0]) dx[0] = zx_build1(b, ZX_OP_CONV, zx_grad_attrs(b, node), 2, dy[0], w);
    if (need[1])
        dx[1] = zx_build1(b, ZX_OP_CONV_GRAD_W, zx_grad_attrs_shape(b, node, 1), 2, dy[0], x);
    return ZX_OK;
}

// reduce.c - reductions over axes.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// AXES of x as flags; sorted, each once.
static zx_status axes_of(const zx_op_args *a, uint32_t rank, bool reduced[ZX_MAX_RANK], zx_err *err)
{
    const zx_attr *x = zx_attr_find(a->attrs, ZX_A_AXES);
    if (x == NULL) return ZX_FAIL(err, ZX_E_SHAPE, "%s has no axes", zx_arg_op(a));
    for (uint32_t i = 0; i < ZX_MAX_RANK; i++) reduced[i] = false;
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->i[i] < 0 || x->i[i] >= (int64_t)rank)
            return ZX_FAIL(err, ZX_E_SHAPE, "%s: axis %" PRId64 " of a tensor with %u dimensions",
                           zx_arg_op(a), x->i[i], rank);
        if (i > 0 && x->i[i] <= x->i[i - 1])
            return ZX_FAIL(err, ZX_E_SHAPE, "%s: axis %" PRId64 " is given twice or out of order",
                           zx_arg_op(a), x->i[i]);
        reduced[x->i[i]] = true;
    }
    return ZX_OK;
}

static zx_shape reduced_shape(const zx_shape *x, const bool reduced[ZX_MAX_RANK], bool keep)
{
    zx_shape y = {.rank = 0};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (!reduced[d])
            y.dim[y.rank++] = x->dim[d];
        else if (keep)
            y.dim[y.rank++] = 1;
    }
    return y;
}

zx_status zx_infer_reduce(const zx_op_args *a, zx_type *out, zx_err *err)
{
    bool reduced[ZX_MAX_RANK];
    ZX_TRY(zx_args_check(a, err));
    const zx_type *x = a->in[0];
    const bool picks = a->op == ZX_OP_REDUCE_MAX || a->op == ZX_OP_REDUCE_MIN;
    if (!picks) ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_NUMBER, err));
    ZX_TRY(axes_of(a, x->shape.rank, reduced, err));
    const bool keep = zx_attr_int(a->attrs, ZX_A_KEEPDIMS, 1) != 0;
    *out = (zx_type){.dtype = x->dtype, .shape = reduced_shape(&x->shape, reduced, keep)};
    if (picks && zx_shape_count(&x->shape) == 0 && zx_shape_count(&out->shape) > 0 &&
        !zx_dtype_is_float(x->dtype))
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of no elements", zx_arg_op(a));
    return ZX_OK;
}

// dy, x, y with the reduced dims kept as 1: like x.
zx_status zx_infer_reduce_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    bool reduced[ZX_MAX_RANK];
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 0, err));
    ZX_TRY(axes_of(a, a->in[1]->shape.rank, reduced, err));
    const zx_shape y = reduced_shape(&a->in[1]->shape, reduced, true);
    ZX_TRY(zx_args_shape_is(a, 0, &y, err));
    ZX_TRY(zx_args_shape_is(a, 2, &y, err));
    *out = *a->in[1];
    return ZX_OK;
}

zx_cost zx_cost_reduce(const zx_op_args *a)
{
    double n = (double)zx_shape_count(&a->out->shape);
    for (uint32_t i = 0; i < a->n_in; i++) {
        const double in = (double)zx_shape_count(&a->in[i]->shape);
        if (in > n) n = in;
    }
    return (zx_cost){.flops = n, .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

// ---- gradients
// -----------------------------------------------------------------------------------

// A reduction's node as its gradient sees it.
typedef struct reduction {
    zx_attrs attrs;        // AXES alone: KEEPDIMS 1
    uint32_t x, y, dy;     // y and dy with the reduced dims kept as 1
    const zx_shape *shape; // x's
    double n;              // elements in each sum
} reduction;

static reduction look(zx_builder *b, uint32_t node, uint32_t dy, bool wants_y)
{
    reduction r = {.x = zx_grad_in(b, node, 0), .y = ZX_NONE, .n = 1};
    const zx_attrs attrs = zx_grad_attrs(b, node);
    r.shape = zx_shape_of(b, r.x);
    uint32_t n;
    const int64_t *axes = zx_attr_ints(&attrs, ZX_A_AXES, &n);
    zx_shape kept = *r.shape;
    for (uint32_t i = 0; i < n; i++) {
        r.n *= (double)kept.dim[axes[i]];
        kept.dim[axes[i]] = 1;
    }
    r.attrs = zx_attrs_ints(b->mem, (zx_attrs){0}, ZX_A_AXES, axes, n);
    r.dy = zx_build_reshape(b, dy, &kept);
    if (wants_y) r.y = zx_build_reshape(b, zx_grad_out(b, node, 0), &kept);
    return r;
}

static uint32_t mul(zx_builder *b, uint32_t x, uint32_t y)
{
    return zx_build1(b, ZX_OP_MUL, (zx_attrs){0}, 2, x, y);
}

zx_status zx_grad_reduce_sum(zx_builder *b, uint32_t node, const uint32_t *dy,
                             const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const reduction r = look(b, node, dy[0], false);
    dx[0] = zx_build_expand(b, r.dy, r.shape);
    return ZX_OK;
}

zx_status zx_grad_reduce_mean(zx_builder *b, uint32_t node, const uint32_t *dy,
                              const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const reduction r = look(b, node, dy[0], false);
    // n is 0 only where x is empty, and so is its gradient.
    dx[0] = zx_build_expand(b, zx_grad_scale(b, r.dy, r.n > 0 ? 1 / r.n : 1), r.shape);
    return ZX_OK;
}

// Max, Min, Prod, L2: a row of their own, given dy, x and y.
static zx_status own_row(zx_builder *b, uint32_t node, zx_op_id op, const uint32_t *dy,
                         uint32_t *dx)
{
    const reduction r = look(b, node, dy[0], true);
    dx[0] = zx_build1(b, op, r.attrs, 3, r.dy, r.x, r.y);
    return ZX_OK;
}

zx_status zx_grad_reduce_max(zx_builder *b, uint32_t node, const uint32_t *dy,
                             const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    return own_row(b, node, ZX_OP_REDUCE_PICK_GRAD, dy, dx);
}

zx_status zx_grad_reduce_min(zx_builder *b, uint32_t node, const uint32_t *dy,
                             const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    return own_row(b, node, ZX_OP_REDUCE_PICK_GRAD, dy, dx);
}

zx_status zx_grad_reduce_prod(zx_builder *b, uint32_t node, const uint32_t *dy,
                              const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    return own_row(b, node, ZX_OP_REDUCE_PROD_GRAD, dy, dx);
}

zx_status zx_grad_reduce_l2(zx_builder *b, uint32_t node, const uint32_t *dy,
                            const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    return own_row(b, node, ZX_OP_REDUCE_L2_GRAD, dy, dx);
}

zx_status zx_grad_reduce_l1(zx_builder *b, uint32_t node, const uint32_t *dy,
                            const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const reduction r = look(b, node, dy[0], false);
    dx[0] = mul(b, zx_build1(b, ZX_OP_SIGN, (zx_attrs){0}, 1, r.x), r.dy);
    return ZX_OK;
}

zx_status zx_grad_reduce_sum_square(zx_builder *b, uint32_t node, const uint32_t *dy,
                                    const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const reduction r = look(b, node, dy[0], false);
    dx[0] = mul(b, r.x, zx_grad_scale(b, r.dy, 2));
    return ZX_OK;
}

zx_status zx_grad_reduce_log_sum_exp(zx_builder *b, uint32_t node, const uint32_t *dy,
                                     const bool *need ZX_UNUSED, uint32_t *dx,
                                     zx_err *err ZX_UNUSED)
{
    const reduction r = look(b, node, dy[0], true);
    const uint32_t below = zx_build1(b, ZX_OP_SUB, (zx_attrs){0}, 2, r.x, r.y);
    dx[0] = mul(b, zx_build1(b, ZX_OP_EXP, (zx_attrs){0}, 1, below), r.dy);
    return ZX_OK;
}

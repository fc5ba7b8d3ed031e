// layout.c - operators that move elements by position alone: reshape, transpose, expand, slice,
// concat, pad, cumulative sums and triangles.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

#define MOST ((int64_t)1 << 59) // more than any dimension

// ---- shapes
// --------------------------------------------------------------------------------------

// Any type, any input shape; the result's shape is an attribute. For gradients that scatter.
zx_status zx_infer_shape_attr(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape s;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_shape(a, &s, err));
    return zx_args_out(a, a->in[0]->dtype, &s, out, err);
}

zx_status zx_infer_reshape(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    if (zx_shape_count(&out->shape) == zx_shape_count(&a->in[0]->shape)) return ZX_OK;
    char from[ZX_SHAPE_TEXT], to[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "Reshape of %s to %s: %" PRId64 " elements are not %" PRId64,
                   zx_shape_text(&a->in[0]->shape, from), zx_shape_text(&out->shape, to),
                   zx_shape_count(&a->in[0]->shape), zx_shape_count(&out->shape));
}

zx_status zx_infer_transpose(const zx_op_args *a, zx_type *out, zx_err *err)
{
    const int64_t *perm;
    ZX_TRY(zx_args_check(a, err));
    const zx_shape *x = &a->in[0]->shape;
    ZX_TRY(zx_args_ints(a, ZX_A_PERM, x->rank, 0, (int64_t)x->rank - 1, &perm, err));
    zx_shape y = {.rank = x->rank};
    bool taken[ZX_MAX_RANK] = {false};
    for (uint32_t i = 0; i < x->rank; i++) {
        if (taken[perm[i]])
            return ZX_FAIL(err, ZX_E_SHAPE, "Transpose: dimension %" PRId64 " is in perm twice",
                           perm[i]);
        taken[perm[i]] = true;
        y.dim[i] = x->dim[perm[i]];
    }
    *out = (zx_type){.dtype = a->in[0]->dtype, .shape = y};
    return ZX_OK;
}

static zx_status not_to(const zx_op_args *a, const zx_shape *to, zx_err *err)
{
    char tx[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s to %s", zx_arg_op(a),
                   zx_shape_text(&a->in[0]->shape, tx), zx_shape_text(to, ty));
}

zx_status zx_infer_expand(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape both;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    if (zx_shape_broadcast(&a->in[0]->shape, &out->shape, &both, NULL) != ZX_OK ||
        !zx_shape_equal(&both, &out->shape))
        return not_to(a, &out->shape, err);
    return ZX_OK;
}

zx_status zx_infer_sum_to(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape both;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    if (zx_shape_broadcast(&a->in[0]->shape, &out->shape, &both, NULL) != ZX_OK ||
        !zx_shape_equal(&both, &a->in[0]->shape))
        return not_to(a, &out->shape, err);
    return ZX_OK;
}

// That every start + i*step with i < n of `part` lies in `whole`.
static zx_status strides_fit(const zx_op_args *a, const zx_shape *whole, const zx_shape *part,
                             zx_err *err)
{
    const int64_t *start, *step;
    ZX_TRY(zx_args_ints(a, ZX_A_STARTS, whole->rank, INT64_MIN, INT64_MAX, &start, err));
    ZX_TRY(zx_args_ints(a, ZX_A_STEPS, whole->rank, INT64_MIN, INT64_MAX, &step, err));
    if (part->rank != whole->rank) return not_to(a, part, err);
    for (uint32_t d = 0; d < whole->rank; d++) {
        const int64_t n = part->dim[d], last = whole->dim[d] - 1;
        if (step[d] == 0) return ZX_FAIL(err, ZX_E_SHAPE, "%s: step 0", zx_arg_op(a));
        if (n == 0) continue;
        bool fits = start[d] >= 0 && start[d] <= last;
        if (fits && n > 1)
            fits = step[d] > 0 ? n - 1 <= (last - start[d]) / step[d]
                               : step[d] != INT64_MIN && n - 1 <= start[d] / -step[d];
        if (!fits)
            return ZX_FAIL(err, ZX_E_SHAPE,
                           "%s: %" PRId64 " elements from %" PRId64 " in steps of %" PRId64
                           " do not lie in a dimension of %" PRId64,
                           zx_arg_op(a), n, start[d], step[d], whole->dim[d]);
    }
    return ZX_OK;
}

zx_status zx_infer_slice(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    return strides_fit(a, &a->in[0]->shape, &out->shape, err);
}

zx_status zx_infer_slice_scatter(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    return strides_fit(a, &out->shape, &a->in[0]->shape, err);
}

zx_status zx_infer_concat(const zx_op_args *a, zx_type *out, zx_err *err)
{
    uint32_t axis;
    ZX_TRY(zx_args_check(a, err));
    zx_shape y = a->in[0]->shape;
    ZX_TRY(zx_args_axis(a, y.rank, &axis, err));
    for (uint32_t i = 1; i < a->n_in; i++) {
        const zx_shape *x = &a->in[i]->shape;
        ZX_TRY(zx_args_same_dtype(a, i, 0, err));
        bool fits = x->rank == y.rank;
        for (uint32_t d = 0; fits && d < y.rank; d++) fits = d == axis || x->dim[d] == y.dim[d];
        if (!fits) {
            char tx[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
            return ZX_FAIL(err, ZX_E_SHAPE, "Concat along axis %u of %s and %s", axis,
                           zx_shape_text(&a->in[0]->shape, ty), zx_shape_text(x, tx));
        }
        if (__builtin_add_overflow(y.dim[axis], x->dim[axis], &y.dim[axis]))
            return ZX_FAIL(err, ZX_E_SHAPE, "Concat: the result is too big");
    }
    return zx_args_out(a, a->in[0]->dtype, &y, out, err);
}

// 2*rank PADS that can be had from a dimension of this size in this MODE.
static zx_status padded(const zx_op_args *a, const zx_shape *x, zx_shape *y, zx_err *err)
{
    const int64_t *pads;
    int64_t mode;
    ZX_TRY(zx_args_ints(a, ZX_A_PADS, 2 * x->rank, 0, MOST, &pads, err));
    ZX_TRY(zx_args_int(a, ZX_A_MODE, 0, 0, 3, &mode, err));
    *y = (zx_shape){.rank = x->rank};
    for (uint32_t d = 0; d < x->rank; d++) {
        const int64_t before = pads[d], after = pads[d + x->rank], n = x->dim[d];
        y->dim[d] = before + n + after; // each at most 2^59
        if (mode == 0 || before + after == 0) continue;
        if (n == 0)
            return ZX_FAIL(err, ZX_E_SHAPE,
                           "Pad: an empty dimension has nothing to be padded with");
        if (mode == 1 && (before >= n || after >= n))
            return ZX_FAIL(err, ZX_E_SHAPE,
                           "Pad: a dimension of %" PRId64 " cannot be reflected by %" PRId64, n,
                           before > after ? before : after);
    }
    return ZX_OK;
}

zx_status zx_infer_pad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(zx_args_one(a, 1, err));
    ZX_TRY(padded(a, &a->in[0]->shape, &y, err));
    return zx_args_out(a, a->in[0]->dtype, &y, out, err);
}

zx_status zx_infer_pad_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(padded(a, &out->shape, &y, err));
    return zx_args_shape_is(a, 0, &y, err);
}

zx_status zx_infer_cum_sum(const zx_op_args *a, zx_type *out, zx_err *err)
{
    uint32_t axis;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_NUMBER, err));
    ZX_TRY(zx_args_axis(a, a->in[0]->shape.rank, &axis, err));
    *out = *a->in[0];
    return ZX_OK;
}

zx_status zx_infer_trilu(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t k;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_int(a, ZX_A_K, 0, -MOST, MOST, &k, err));
    if (a->in[0]->shape.rank < 2)
        return ZX_FAIL(err, ZX_E_SHAPE, "Trilu of a tensor with %u dimensions",
                       a->in[0]->shape.rank);
    *out = *a->in[0];
    return ZX_OK;
}

zx_cost zx_cost_free(const zx_op_args *a ZX_UNUSED)
{
    return (zx_cost){0};
}

// What is moved is the smaller of input and output, read and written once; indices are read.
zx_cost zx_cost_move(const zx_op_args *a)
{
    double bytes = zx_cost_bytes_out(a);
    for (uint32_t i = 0; i < a->n_in; i++) {
        if (a->in[i] == NULL) continue;
        const double in = (double)zx_type_bytes(a->in[i]), out = (double)zx_type_bytes(a->out);
        bytes += in < out || zx_ops[a->op].max_in < 0 ? in : out;
    }
    return (zx_cost){.bytes = bytes};
}

// ---- gradients
// -----------------------------------------------------------------------------------

zx_status zx_grad_reshape(zx_builder *b, uint32_t node, const uint32_t *dy,
                          const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build_reshape(b, dy[0], zx_grad_shape(b, node, 0));
    return ZX_OK;
}

zx_status zx_grad_transpose(zx_builder *b, uint32_t node, const uint32_t *dy,
                            const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const zx_attrs attrs = zx_grad_attrs(b, node);
    uint32_t rank;
    const int64_t *perm = zx_attr_ints(&attrs, ZX_A_PERM, &rank);
    int64_t back[ZX_MAX_RANK] = {0};
    for (uint32_t i = 0; i < rank; i++) back[perm[i]] = i;
    dx[0] = zx_build_transpose(b, dy[0], back);
    return ZX_OK;
}

zx_status zx_grad_expand(zx_builder *b, uint32_t node, const uint32_t *dy,
                         const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build_sum_to(b, dy[0], zx_grad_shape(b, node, 0));
    return ZX_OK;
}

zx_status zx_grad_sum_to(zx_builder *b, uint32_t node, const uint32_t *dy,
                         const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build_expand(b, dy[0], zx_grad_shape(b, node, 0));
    return ZX_OK;
}

zx_status zx_grad_slice(zx_builder *b, uint32_t node, const uint32_t *dy,
                        const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_SLICE_SCATTER, zx_grad_attrs_shape(b, node, 0), 1, dy[0]);
    return ZX_OK;
}

zx_status zx_grad_slice_scatter(zx_builder *b, uint32_t node, const uint32_t *dy,
                                const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_SLICE, zx_grad_attrs_shape(b, node, 0), 1, dy[0]);
    return ZX_OK;
}

// dy's part of this shape that begins at `start`.
static uint32_t part(zx_builder *b, uint32_t dy, const int64_t *start, const zx_shape *shape)
{
    static const int64_t ones[ZX_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (zx_shape_equal(zx_shape_of(b, dy), shape)) return dy;
    zx_attrs attrs = zx_attrs_ints(b->mem, (zx_attrs){0}, ZX_A_STARTS, start, shape->rank);
    attrs = zx_attrs_ints(b->mem, attrs, ZX_A_STEPS, ones, shape->rank);
    return zx_build1(b, ZX_OP_SLICE, zx_attrs_shape(b->mem, attrs, ZX_A_SHAPE, shape), 1, dy);
}

zx_status zx_grad_concat(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                         uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const zx_attrs attrs = zx_grad_attrs(b, node);
    const uint32_t n_in = b->nodes[node].n_in;
    const int64_t axis = zx_attr_int(&attrs, ZX_A_AXIS, 0);
    int64_t start[ZX_MAX_RANK] = {0};
    for (uint32_t i = 0; i < n_in; i++) {
        const zx_shape *x = zx_grad_shape(b, node, i);
        if (need[i]) dx[i] = part(b, dy[0], start, x);
        start[axis] += x->dim[axis];
    }
    return ZX_OK;
}

zx_status zx_grad_pad(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const zx_attrs attrs = zx_grad_attrs(b, node);
    const zx_shape *x = zx_grad_shape(b, node, 0);
    const bool constant = zx_attr_int(&attrs, ZX_A_MODE, 0) == 0;
    const uint32_t d =
        constant ? part(b, dy[0], zx_attr_ints(&attrs, ZX_A_PADS, NULL), x)
                 : zx_build1(b, ZX_OP_PAD_GRAD, zx_grad_attrs_shape(b, node, 0), 1, dy[0]);
    if (need[0]) dx[0] = d;
    if (constant && b->nodes[node].n_in > 1 && need[1]) { // the value fills what x doesn't
        const zx_shape *one = zx_grad_shape(b, node, 1);
        const uint32_t all = zx_build_sum_to(b, dy[0], &(zx_shape){0});
        const uint32_t inner = zx_build_sum_to(b, d, &(zx_shape){0});
        dx[1] = zx_build_reshape(b, zx_build1(b, ZX_OP_SUB, (zx_attrs){0}, 2, all, inner), one);
    }
    return ZX_OK;
}

// Each x[i] is in the sums that come after it: the same sums, run the other way.
zx_status zx_grad_cum_sum(zx_builder *b, uint32_t node, const uint32_t *dy,
                          const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const zx_attrs attrs = zx_grad_attrs(b, node);
    const int64_t reverse = zx_attr_int(&attrs, ZX_A_REVERSE, 0);
    dx[0] = zx_build1(b, ZX_OP_CUM_SUM, zx_attrs_int(b->mem, attrs, ZX_A_REVERSE, reverse == 0), 1,
                      dy[0]);
    return ZX_OK;
}

zx_status zx_grad_trilu(zx_builder *b, uint32_t node, const uint32_t *dy,
                        const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_TRILU, zx_grad_attrs(b, node), 1, dy[0]);
    return ZX_OK;
}

// index.c - operators that move elements by indices: Gather and Scatter in their kinds, OneHot,
// TopK, ArgMax.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

static zx_status too_many_dims(const zx_op_args *a, uint32_t rank, zx_err *err)
{
    return ZX_FAIL(err, ZX_E_SHAPE, "%s makes %u dimensions: at most %d are supported",
                   zx_arg_op(a), rank, ZX_MAX_RANK);
}

static zx_status misfit(const zx_op_args *a, const zx_shape *x, const zx_shape *y, zx_err *err)
{
    char tx[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "%s: shapes %s and %s do not fit", zx_arg_op(a),
                   zx_shape_text(x, tx), zx_shape_text(y, ty));
}

// ---- shapes
// --------------------------------------------------------------------------------------

// data[..axis..] with the indices' shape in the axis' place.
static zx_status gathered(const zx_op_args *a, const zx_shape *data, const zx_shape *indices,
                          zx_shape *y, zx_err *err)
{
    uint32_t axis;
    ZX_TRY(zx_args_axis(a, data->rank, &axis, err));
    *y = (zx_shape){.rank = data->rank - 1 + indices->rank};
    if (y->rank > ZX_MAX_RANK) return too_many_dims(a, y->rank, err);
    uint32_t d = 0;
    for (uint32_t i = 0; i < axis; i++) y->dim[d++] = data->dim[i];
    for (uint32_t i = 0; i < indices->rank; i++) y->dim[d++] = indices->dim[i];
    for (uint32_t i = axis + 1; i < data->rank; i++) y->dim[d++] = data->dim[i];
    return ZX_OK;
}

zx_status zx_infer_gather(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_INDEX, err));
    ZX_TRY(gathered(a, &a->in[0]->shape, &a->in[1]->shape, &y, err));
    return zx_args_out(a, a->in[0]->dtype, &y, out, err);
}

zx_status zx_infer_gather_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape dy;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_INDEX, err));
    ZX_TRY(gathered(a, &out->shape, &a->in[1]->shape, &dy, err));
    ZX_TRY(zx_args_shape_is(a, 0, &dy, err));
    if (zx_arg(a, 2) == NULL) return ZX_OK;
    ZX_TRY(zx_args_same_dtype(a, 2, 0, err));
    return zx_args_shape_is(a, 2, &out->shape, err);
}

// Added to a sum in place, only the rows that are pointed to are read and written.
zx_cost zx_cost_gather_grad(const zx_op_args *a)
{
    if (zx_arg(a, 2) == NULL) return zx_cost_move(a);
    const double rows = (double)zx_shape_count(&a->in[0]->shape);
    return (zx_cost){.flops = rows, .bytes = 3 * rows * zx_dtype_bytes(a->in[0]->dtype)};
}

// The indices' dims are no greater than the data's, except along the axis.
static zx_status elements_fit(const zx_op_args *a, const zx_shape *data, const zx_shape *indices,
                              zx_err *err)
{
    uint32_t axis;
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_INDEX, err));
    ZX_TRY(zx_args_axis(a, data->rank, &axis, err));
    if (indices->rank != data->rank) return misfit(a, data, indices, err);
    for (uint32_t d = 0; d < data->rank; d++)
        if (d != axis && indices->dim[d] > data->dim[d]) return misfit(a, data, indices, err);
    return ZX_OK;
}

zx_status zx_infer_gather_elements(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(elements_fit(a, &a->in[0]->shape, &a->in[1]->shape, err));
    *out = (zx_type){.dtype = a->in[0]->dtype, .shape = a->in[1]->shape};
    return ZX_OK;
}

zx_status zx_infer_scatter_add_elements(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(elements_fit(a, &out->shape, &a->in[1]->shape, err));
    return zx_args_same_shape(a, 0, 1, err);
}

static zx_status reduction_fits(const zx_op_args *a, zx_err *err)
{
    int64_t reduction;
    ZX_TRY(zx_args_int(a, ZX_A_REDUCTION, 0, 0, 4, &reduction, err));
    return reduction == 0 ? ZX_OK : zx_args_wants(a, 0, ZX_WANTS_NUMBER, err);
}

zx_status zx_infer_scatter_elements(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(reduction_fits(a, err));
    ZX_TRY(elements_fit(a, &a->in[0]->shape, &a->in[1]->shape, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 0, err));
    ZX_TRY(zx_args_same_shape(a, 2, 1, err));
    *out = *a->in[0];
    return ZX_OK;
}

// indices [.., k]: each row picks data[batch, i0 .. ik-1, rest].
static zx_status nd_picked(const zx_op_args *a, const zx_shape *data, const zx_shape *indices,
                           uint32_t batch, zx_shape *y, zx_err *err)
{
    if (a->in[1]->dtype != ZX_I64)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s wants int64 indices, not %s", zx_arg_op(a),
                       zx_dtypes[a->in[1]->dtype].word);
    if (indices->rank < 1 || batch >= indices->rank || batch >= data->rank)
        return misfit(a, data, indices, err);
    const int64_t k = indices->dim[indices->rank - 1];
    if (k < 0 || k > (int64_t)(data->rank - batch)) return misfit(a, data, indices, err);
    for (uint32_t d = 0; d < batch; d++)
        if (data->dim[d] != indices->dim[d]) return misfit(a, data, indices, err);
    const uint32_t rest = batch + (uint32_t)k;
    *y = (zx_shape){.rank = indices->rank - 1 + data->rank - rest};
    if (y->rank > ZX_MAX_RANK) return too_many_dims(a, y->rank, err);
    uint32_t n = 0;
    for (uint32_t d = 0; d + 1 < indices->rank; d++) y->dim[n++] = indices->dim[d];
    for (uint32_t d = rest; d < data->rank; d++) y->dim[n++] = data->dim[d];
    return ZX_OK;
}

zx_status zx_infer_gather_nd(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t batch;
    zx_shape y;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_int(a, ZX_A_BATCH_DIMS, 0, 0, ZX_MAX_RANK, &batch, err));
    ZX_TRY(nd_picked(a, &a->in[0]->shape, &a->in[1]->shape, (uint32_t)batch, &y, err));
    return zx_args_out(a, a->in[0]->dtype, &y, out, err);
}

zx_status zx_infer_gather_nd_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t batch;
    zx_shape y;
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_int(a, ZX_A_BATCH_DIMS, 0, 0, ZX_MAX_RANK, &batch, err));
    ZX_TRY(nd_picked(a, &out->shape, &a->in[1]->shape, (uint32_t)batch, &y, err));
    return zx_args_shape_is(a, 0, &y, err);
}

zx_status zx_infer_scatter_nd(const zx_op_args *a, zx_type *out, zx_err *err)
{
    zx_shape y;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(reduction_fits(a, err));
    ZX_TRY(nd_picked(a, &a->in[0]->shape, &a->in[1]->shape, 0, &y, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 0, err));
    ZX_TRY(zx_args_shape_is(a, 2, &y, err));
    *out = *a->in[0];
    return ZX_OK;
}

zx_status zx_infer_one_hot(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t depth;
    uint32_t axis;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_INDEX, err));
    ZX_TRY(zx_args_shape_is(a, 1, &(zx_shape){1, {2}}, err));
    ZX_TRY(zx_args_int(a, ZX_A_DEPTH, -1, 0, INT32_MAX, &depth, err));
    const zx_shape *x = &a->in[0]->shape;
    zx_shape y = {.rank = x->rank + 1};
    if (y.rank > ZX_MAX_RANK) return too_many_dims(a, y.rank, err);
    ZX_TRY(zx_args_axis(a, y.rank, &axis, err));
    for (uint32_t d = 0; d < y.rank; d++)
        y.dim[d] = d == axis ? depth : x->dim[d < axis ? d : d - 1];
    return zx_args_out(a, a->in[1]->dtype, &y, out, err);
}

zx_status zx_infer_top_k(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t k;
    uint32_t axis;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_NUMBER, err));
    zx_shape y = a->in[0]->shape;
    ZX_TRY(zx_args_axis(a, y.rank, &axis, err));
    ZX_TRY(zx_args_int(a, ZX_A_K, -1, 0, y.dim[axis], &k, err));
    y.dim[axis] = k;
    out[0] = (zx_type){.dtype = a->in[0]->dtype, .shape = y};
    out[1] = (zx_type){.dtype = ZX_I64, .shape = y};
    return ZX_OK;
}

zx_status zx_infer_arg(const zx_op_args *a, zx_type *out, zx_err *err)
{
    uint32_t axis;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_NUMBER, err));
    const zx_shape *x = &a->in[0]->shape;
    ZX_TRY(zx_args_axis(a, x->rank, &axis, err));
    if (x->dim[axis] == 0)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s over an empty dimension", zx_arg_op(a));
    const bool keep = zx_attr_int(a->attrs, ZX_A_KEEPDIMS, 1) != 0;
    zx_shape y = {.rank = 0};
    for (uint32_t d = 0; d < x->rank; d++) {
        if (d != axis)
            y.dim[y.rank++] = x->dim[d];
        else if (keep)
            y.dim[y.rank++] = 1;
    }
    *out = (zx_type){.dtype = ZX_I64, .shape = y};
    return ZX_OK;
}

// ---- gradients
// -----------------------------------------------------------------------------------

// A node of `op` over dy and the indices, with SHAPE the data's where it needs one.
static uint32_t by_indices(zx_builder *b, uint32_t node, zx_op_id op, uint32_t dy, uint32_t indices)
{
    return zx_build1(b, op, zx_grad_attrs_shape(b, node, 0), 2, dy, indices);
}

zx_status zx_grad_gather(zx_builder *b, uint32_t node, const uint32_t *dy,
                         const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = by_indices(b, node, ZX_OP_GATHER_GRAD, dy[0], zx_grad_in(b, node, 1));
    return ZX_OK;
}

zx_status zx_grad_gather_elements(zx_builder *b, uint32_t node, const uint32_t *dy,
                                  const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = by_indices(b, node, ZX_OP_SCATTER_ADD_ELEMENTS, dy[0], zx_grad_in(b, node, 1));
    return ZX_OK;
}

zx_status zx_grad_scatter_add_elements(zx_builder *b, uint32_t node, const uint32_t *dy,
                                       const bool *need ZX_UNUSED, uint32_t *dx,
                                       zx_err *err ZX_UNUSED)
{
    dx[0] = by_indices(b, node, ZX_OP_GATHER_ELEMENTS, dy[0], zx_grad_in(b, node, 1));
    return ZX_OK;
}

zx_status zx_grad_gather_nd(zx_builder *b, uint32_t node, const uint32_t *dy,
                            const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = by_indices(b, node, ZX_OP_GATHER_ND_GRAD, dy[0], zx_grad_in(b, node, 1));
    return ZX_OK;
}

// data keeps its gradient where no update went (everywhere, if updates were added to it); the
// updates get the gradient of where they went.
static zx_status scatter(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                         uint32_t *dx, zx_op_id gather, zx_err *err)
{
    const zx_op_id op = zx_grad_op(b, node);
    const zx_attrs attrs = zx_grad_attrs(b, node);
    const int64_t reduction = zx_attr_int(&attrs, ZX_A_REDUCTION, 0);
    const uint32_t indices = zx_grad_in(b, node, 1);
    if (reduction > 1) {
        static const char *const words[] = {"none", "add", "mul", "max", "min"};
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s with reduction %s has no gradient",
                       zx_ops[op].word, words[reduction]);
    }
    if (need[0] && reduction == 1) dx[0] = dy[0];
    if (need[0] && reduction == 0) {
        const uint32_t zeros = zx_build_expand(b, zx_grad_zero_f32(b), zx_grad_shape(b, node, 2));
        dx[0] = zx_build1(b, op, attrs, 3, dy[0], indices, zeros);
    }
    if (need[2]) dx[2] = zx_build1(b, gather, attrs, 2, dy[0], indices);
    return ZX_OK;
}

zx_status zx_grad_scatter_elements(zx_builder *b, uint32_t node, const uint32_t *dy,
                                   const bool *need, uint32_t *dx, zx_err *err)
{
    return scatter(b, node, dy, need, dx, ZX_OP_GATHER_ELEMENTS, err);
}

zx_status zx_grad_scatter_nd(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                             uint32_t *dx, zx_err *err)
{
    return scatter(b, node, dy, need, dx, ZX_OP_GATHER_ND, err);
}

zx_status zx_grad_top_k(zx_builder *b, uint32_t node, const uint32_t *dy,
                        const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = by_indices(b, node, ZX_OP_SCATTER_ADD_ELEMENTS, dy[0], zx_grad_out(b, node, 1));
    return ZX_OK;
}

// pool.c - pooling and resizing over the spatial dims.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// x [N, C, d..] pooled to y: rounding is in y's shape, so all that is asked is that every window
// begins inside x or its padding before, and that padding is shorter than a window.
static zx_status pool_fits(const zx_op_args *a, const zx_shape *x, const zx_shape *y, zx_err *err)
{
    const int64_t *kernel, *strides, *dilations, *pads;
    char tx[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
    if (x->rank < 3 || x->rank > 5)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s of a tensor with %u dimensions: 3 to 5 are supported",
                       zx_arg_op(a), x->rank);
    const uint32_t dims = x->rank - 2;
    ZX_TRY(zx_args_ints(a, ZX_A_KERNEL_SHAPE, dims, 1, INT32_MAX, &kernel, err));
    ZX_TRY(zx_args_ints(a, ZX_A_STRIDES, dims, 1, INT32_MAX, &strides, err));
    ZX_TRY(zx_args_ints(a, ZX_A_DILATIONS, dims, 1, INT32_MAX, &dilations, err));
    ZX_TRY(zx_args_ints(a, ZX_A_PADS, 2 * dims, 0, INT32_MAX, &pads, err));
    bool fits = y->rank == x->rank && y->dim[0] == x->dim[0] && y->dim[1] == x->dim[1];
    for (uint32_t d = 0; fits && d < dims; d++) {
        const int64_t reach = (kernel[d] - 1) * dilations[d] + 1;
        const int64_t n = x->dim[d + 2], begin = n + pads[d] - 1; // the last place to begin
        fits = pads[d] < reach && pads[d + dims] < reach;
        // (n_out - 1) * stride <= begin
        fits = fits && (y->dim[d + 2] == 0 || (n > 0 && y->dim[d + 2] - 1 <= begin / strides[d]));
    }
    if (fits) return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s to %s: windows, padding and shapes do not fit",
                   zx_arg_op(a), zx_shape_text(x, tx), zx_shape_text(y, ty));
}

zx_status zx_infer_avg_pool(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    return pool_fits(a, &a->in[0]->shape, &out->shape, err);
}

zx_status zx_infer_avg_pool_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    return pool_fits(a, &out->shape, &a->in[0]->shape, err);
}

zx_status zx_infer_max_pool(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_avg_pool(a, out, err));
    const zx_shape *x = &a->in[0]->shape;
    if (zx_shape_span(x, 2, x->rank) > INT32_MAX)
        return ZX_FAIL(err, ZX_E_SHAPE, "MaxPool: a plane has more than 2^31 elements");
    out[1] = (zx_type){.dtype = ZX_I32, .shape = out[0].shape};
    return ZX_OK;
}

// dy and index: one index in an x plane for each dy.
zx_status zx_infer_max_pool_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_same_shape(a, 1, 0, err));
    const zx_shape *y = &a->in[0]->shape, *x = &out->shape;
    if (a->in[1]->dtype == ZX_I32 && x->rank == y->rank && x->rank >= 3 && x->dim[0] == y->dim[0] &&
        x->dim[1] == y->dim[1])
        return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE, "MaxPoolGrad: shapes do not fit");
}

static zx_status resize_fits(const zx_op_args *a, const zx_shape *x, const zx_shape *y, zx_err *err)
{
    int64_t mode, coord, nearest;
    ZX_TRY(zx_args_int(a, ZX_A_MODE, 0, 0, 2, &mode, err));
    ZX_TRY(zx_args_int(a, ZX_A_COORD, 0, 0, 4, &coord, err));
    ZX_TRY(zx_args_int(a, ZX_A_NEAREST, 0, 0, 3, &nearest, err));
    const zx_attr *scales = zx_attr_find(a->attrs, ZX_A_SCALES);
    bool fits = y->rank == x->rank && scales != NULL && scales->n == x->rank;
    for (uint32_t d = 0; fits && d < x->rank; d++)
        fits = scales->f[d] > 0 && scales->f[d] < 1e9 && (x->dim[d] > 0 || y->dim[d] == 0);
    if (fits) return ZX_OK;
    char tx[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "%s of %s to %s: scales and shapes do not fit", zx_arg_op(a),
                   zx_shape_text(x, tx), zx_shape_text(y, ty));
}

zx_status zx_infer_resize(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    return resize_fits(a, &a->in[0]->shape, &out->shape, err);
}

zx_status zx_infer_resize_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_infer_shape_attr(a, out, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    return resize_fits(a, &out->shape, &a->in[0]->shape, err);
}

// Every element of the pooled side looks at one window of the other.
zx_cost zx_cost_pool(const zx_op_args *a)
{
    const double out = (double)zx_shape_count(&a->out->shape);
    const double in = (double)zx_shape_count(&a->in[0]->shape);
    const zx_attr *kernel = zx_attr_find(a->attrs, ZX_A_KERNEL_SHAPE);
    double looks = 1;
    for (uint32_t d = 0; kernel != NULL && d < kernel->n; d++) looks *= (double)kernel->i[d];
    return (zx_cost){.flops = (kernel != NULL && in > out ? out
                               : in > out                 ? in
                                                          : out) *
                              looks,
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

zx_status zx_grad_max_pool(zx_builder *b, uint32_t node, const uint32_t *dy,
                           const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_MAX_POOL_GRAD, zx_grad_attrs_shape(b, node, 0), 2, dy[0],
                      zx_grad_out(b, node, 1));
    return ZX_OK;
}

zx_status zx_grad_avg_pool(zx_builder *b, uint32_t node, const uint32_t *dy,
                           const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_AVG_POOL_GRAD, zx_grad_attrs_shape(b, node, 0), 1, dy[0]);
    return ZX_OK;
}

zx_status zx_grad_resize(zx_builder *b, uint32_t node, const uint32_t *dy,
                         const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_RESIZE_GRAD, zx_grad_attrs_shape(b, node, 0), 1, dy[0]);
    return ZX_OK;
}

// layout.cu - kernels that only move elements, of any dtype: each is one or a few strided copies.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/move.cuh"

namespace
{

uint32_t size_of(const zx_view *v)
{
    return zx_dtype_bytes(v->type.dtype);
}
zx_move move_of(const zx_view *x, const zx_view *y, const zx_shape *dims)
{
    zx_move m;
    m.rank = dims->rank;
    m.bytes = size_of(x);
    for (uint32_t d = 0; d < ZX_MAX_RANK; d++) {
        m.dim[d] = d < dims->rank ? dims->dim[d] : 1;
        m.xs[d] = m.ys[d] = 0;
    }
    m.x = (const char *)x->data;
    m.y = (char *)y->data;
    return m;
}

zx_status copy(const zx_call *c, zx_err *err)
{
    const size_t bytes = (size_t)zx_type_bytes(&c->in[0].type);
    if (bytes == 0 || c->in[0].data == c->out[0].data) return ZX_OK;
    return zx_cuda_check(cudaMemcpyAsync(c->out[0].data, c->in[0].data, bytes,
                                         cudaMemcpyDeviceToDevice, c->cuda->stream),
                         "copy", err);
}

zx_status transpose(const zx_call *c, zx_err *err)
{
    const int64_t *perm = zx_attr_ints(c->attrs, ZX_A_PERM, NULL);
    const zx_shape *s = &c->out[0].type.shape;
    int64_t xs[ZX_MAX_RANK];
    zx_move m = move_of(&c->in[0], &c->out[0], s);
    zx_strides(&c->in[0].type.shape, xs);
    zx_strides(s, m.ys);
    for (uint32_t i = 0; i < s->rank; i++) m.xs[i] = xs[perm[i]];
    return zx_cuda_check(zx_move_run(c, m), "transpose", err);
}

zx_status expand(const zx_call *c, zx_err *err)
{
    const zx_shape *s = &c->out[0].type.shape, *x = &c->in[0].type.shape;
    const uint32_t lead = s->rank - x->rank;
    int64_t xs[ZX_MAX_RANK];
    zx_move m = move_of(&c->in[0], &c->out[0], s);
    zx_strides(x, xs);
    zx_strides(s, m.ys);
    for (uint32_t i = lead; i < s->rank; i++)
        if (x->dim[i - lead] != 1) m.xs[i] = xs[i - lead];
    return zx_cuda_check(zx_move_run(c, m), "expand", err);
}

// The copy between a whole tensor and its slice: strides within the whole, times the steps, and the
// offset in bytes of its first element.
int64_t slice_strides(const zx_call *c, const zx_view *whole, int64_t stride[ZX_MAX_RANK])
{
    const int64_t *start = zx_attr_ints(c->attrs, ZX_A_STARTS, NULL);
    const int64_t *step = zx_attr_ints(c->attrs, ZX_A_STEPS, NULL);
    int64_t offset = 0;
    zx_strides(&whole->type.shape, stride);
    for (uint32_t i = 0; i < whole->type.shape.rank; i++) {
        offset += start[i] * stride[i];
        stride[i] *= step[i];
    }
    return offset * (int64_t)size_of(whole);
}
zx_status slice(const zx_call *c, zx_err *err)
{
    const zx_shape *s = &c->out[0].type.shape;
    zx_move m = move_of(&c->in[0], &c->out[0], s);
    if (zx_shape_count(s) == 0) return ZX_OK;
    m.x += slice_strides(c, &c->in[0], m.xs);
    zx_strides(s, m.ys);
    return zx_cuda_check(zx_move_run(c, m), "slice", err);
}
zx_status slice_scatter(const zx_call *c, zx_err *err)
{
    const zx_shape *s = &c->in[0].type.shape;
    const size_t bytes = (size_t)zx_type_bytes(&c->out[0].type);
    zx_move m = move_of(&c->in[0], &c->out[0], s);
    if (bytes == 0) return ZX_OK;
    ZX_TRY(zx_cuda_check(cudaMemsetAsync(c->out[0].data, 0, bytes, c->cuda->stream),
                         "slice_scatter", err));
    if (zx_shape_count(s) == 0) return ZX_OK;
    m.y += slice_strides(c, &c->out[0], m.ys);
    zx_strides(s, m.xs);
    return zx_cuda_check(zx_move_run(c, m), "slice_scatter", err);
}

zx_status concat(const zx_call *c, zx_err *err)
{
    const zx_view *y = &c->out[0];
    const uint32_t axis = (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    const uint32_t rank = y->type.shape.rank;
    const int64_t run = zx_shape_span(&y->type.shape, axis, rank);
    int64_t at = 0;
    for (uint32_t i = 0; i < c->n_in; i++) {
        const int64_t own = zx_shape_span(&c->in[i].type.shape, axis, rank);
        const zx_shape dims = {2, {zx_shape_span(&y->type.shape, 0, axis), own}};
        zx_move m = move_of(&c->in[i], y, &dims);
        m.xs[0] = own;
        m.ys[0] = run;
        m.xs[1] = m.ys[1] = 1;
        m.y += at * (int64_t)size_of(y);
        ZX_TRY(zx_cuda_check(zx_move_run(c, m), "concat", err));
        at += own;
    }
    return ZX_OK;
}

} // namespace

const zx_kernel zx_cuda_copy = {NULL, NULL, copy};
const zx_kernel zx_cuda_transpose = {NULL, NULL, transpose};
const zx_kernel zx_cuda_expand = {NULL, NULL, expand};
const zx_kernel zx_cuda_slice = {NULL, NULL, slice};
const zx_kernel zx_cuda_slice_scatter = {NULL, NULL, slice_scatter};
const zx_kernel zx_cuda_concat = {NULL, NULL, concat};

// layout.c - kernels that only move elements, of any dtype: each is one or a few strided copies.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

static int64_t size_of(const zx_view *v)
{
    return zx_dtype_bytes(v->type.dtype);
}

struct copy_job {
    const char *x;
    char *y;
};
static void copy_range(void *ctx, int64_t from, int64_t to)
{
    const struct copy_job *j = ctx;
    memmove(j->y + from, j->x + from, (size_t)(to - from));
}

static zx_status copy(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct copy_job j = {call->in[0].data, call->out[0].data};
    if (j.x != j.y)
        zx_split(call->threads, (int64_t)zx_type_bytes(&call->in[0].type), 4096, 4 * ZX_GRAIN,
                 copy_range, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_copy = {.run = copy};

static zx_status transpose(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const int64_t *perm = zx_attr_ints(call->attrs, ZX_A_PERM, NULL);
    const zx_shape *s = &call->out[0].type.shape;
    int64_t xs[ZX_MAX_RANK];
    zx_move m = {.rank = s->rank, .bytes = (uint32_t)size_of(&call->in[0])};
    zx_strides(&call->in[0].type.shape, xs);
    zx_strides(s, m.ys);
    for (uint32_t i = 0; i < s->rank; i++) {
        m.dim[i] = s->dim[i];
        m.xs[i] = xs[perm[i]];
    }
    m.x = call->in[0].data;
    m.y = call->out[0].data;
    zx_move_run(m, call->threads);
    return ZX_OK;
}
const zx_kernel zx_cpu_transpose = {.run = transpose};

static zx_status expand(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const zx_shape *s = &call->out[0].type.shape, *x = &call->in[0].type.shape;
    int64_t xs[ZX_MAX_RANK];
    zx_move m = {.rank = s->rank, .bytes = (uint32_t)size_of(&call->in[0])};
    zx_strides(x, xs);
    zx_strides(s, m.ys);
    for (uint32_t i = 0; i < s->rank; i++) {
        m.dim[i] = s->dim[i];
        const uint32_t lead = s->rank - x->rank;
        m.xs[i] = i < lead || x->dim[i - lead] == 1 ? 0 : xs[i - lead];
    }
    m.x = call->in[0].data;
    m.y = call->out[0].data;
    zx_move_run(m, call->threads);
    return ZX_OK;
}
const zx_kernel zx_cpu_expand = {.run = expand};

// The copy between a whole tensor and its slice: strides within the whole, times the steps, and the
// offset of its first element.
static int64_t slice_strides(const zx_call *call, const zx_shape *whole,
                             int64_t stride[ZX_MAX_RANK])
{
    const int64_t *start = zx_attr_ints(call->attrs, ZX_A_STARTS, NULL);
    const int64_t *step = zx_attr_ints(call->attrs, ZX_A_STEPS, NULL);
    int64_t offset = 0;
    zx_strides(whole, stride);
    for (uint32_t i = 0; i < whole->rank; i++) {
        offset += start[i] * stride[i];
        stride[i] *= step[i];
    }
    return offset;
}

static zx_status slice(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const zx_shape *s = &call->out[0].type.shape;
    zx_move m = {.rank = s->rank, .bytes = (uint32_t)size_of(&call->in[0])};
    if (zx_shape_count(s) == 0) return ZX_OK;
    const int64_t offset = slice_strides(call, &call->in[0].type.shape, m.xs);
    zx_strides(s, m.ys);
    memcpy(m.dim, s->dim, sizeof m.dim);
    m.x = (const char *)call->in[0].data + offset * size_of(&call->in[0]);
    m.y = call->out[0].data;
    zx_move_run(m, call->threads);
    return ZX_OK;
}
const zx_kernel zx_cpu_slice = {.run = slice};

static zx_status slice_scatter(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const zx_shape *s = &call->in[0].type.shape;
    zx_move m = {.rank = s->rank, .bytes = (uint32_t)size_of(&call->in[0])};
    zx_fill_zero(call->out[0].data, zx_type_bytes(&call->out[0].type), call->threads);
    if (zx_shape_count(s) == 0) return ZX_OK;
    const int64_t offset = slice_strides(call, &call->out[0].type.shape, m.ys);
    zx_strides(s, m.xs);
    memcpy(m.dim, s->dim, sizeof m.dim);
    m.x = call->in[0].data;
    m.y = (char *)call->out[0].data + offset * size_of(&call->in[0]);
    zx_move_run(m, call->threads);
    return ZX_OK;
}
const zx_kernel zx_cpu_slice_scatter = {.run = slice_scatter};

static zx_status concat(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const zx_view *y = &call->out[0];
    const uint32_t axis = (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0);
    const uint32_t rank = y->type.shape.rank;
    const int64_t outer = zx_shape_span(&y->type.shape, 0, axis);
    const int64_t run = zx_shape_span(&y->type.shape, axis, rank);
    int64_t at = 0;
    for (uint32_t i = 0; i < call->n_in; i++) {
        const int64_t own = zx_shape_span(&call->in[i].type.shape, axis, rank);
        const zx_move m = {.rank = 2,
                           .bytes = (uint32_t)size_of(y),
                           .dim = {outer, own},
                           .xs = {own, 1},
                           .ys = {run, 1},
                           .x = call->in[i].data,
                           .y = (char *)y->data + at * size_of(y)};
        zx_move_run(m, call->threads);
        at += own;
    }
    return ZX_OK;
}
const zx_kernel zx_cpu_concat = {.run = concat};

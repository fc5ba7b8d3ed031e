// naive_conv.c - CONV and its two gradients as plain loops, and how shapes become a zx_conv.
//
// The loops are in naive_conv_loops.h, expanded here for float and double.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/naive.h"

#include <inttypes.h>

zx_status zx_conv_of(const zx_attrs *attrs, const zx_shape *x, const zx_shape *w, const zx_shape *y,
                     zx_conv *out, zx_err *err)
{
    if (x->rank < 3 || x->rank > 5)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "convolution of rank %u: 1 to 3 spatial dims",
                       x->rank);
    const int spatial = (int)x->rank - 2;
    uint32_t n_stride, n_dilation, n_pad;
    const int64_t *stride = zx_attr_ints(attrs, ZX_A_STRIDES, &n_stride);
    const int64_t *dilation = zx_attr_ints(attrs, ZX_A_DILATIONS, &n_dilation);
    const int64_t *pad = zx_attr_ints(attrs, ZX_A_PADS, &n_pad);
    zx_conv g = {.n = x->dim[0], .groups = zx_attr_int(attrs, ZX_A_GROUP, 1), .spatial = spatial};
    if (w->rank != x->rank || y->rank != x->rank || (int)n_stride != spatial ||
        (int)n_dilation != spatial || (int)n_pad != 2 * spatial)
        return ZX_FAIL(err, ZX_E_SHAPE,
                       "convolution: ranks %u, %u and %u, %u strides, %u dilations, "
                       "%u pads",
                       x->rank, w->rank, y->rank, n_stride, n_dilation, n_pad);
    if (g.groups < 1 || x->dim[1] % g.groups != 0 || w->dim[0] % g.groups != 0)
        return ZX_FAIL(err, ZX_E_SHAPE,
                       "convolution: %" PRId64 " groups do not divide %" PRId64 " and %" PRId64
                       " channels",
                       g.groups, x->dim[1], w->dim[0]);
    g.c = x->dim[1] / g.groups;
    g.m = w->dim[0] / g.groups;
    if (w->dim[1] != g.c || y->dim[0] != g.n || y->dim[1] != w->dim[0])
        return ZX_FAIL(err, ZX_E_SHAPE, "convolution: sizes of x, w and y do not fit");
    for (int i = 0; i < 3; i++) {
        const int from = i - (3 - spatial); // which of the given dims; < 0: one that is missing
        const bool given = from >= 0;
        g.x[i] = given ? x->dim[from + 2] : 1;
        g.y[i] = given ? y->dim[from + 2] : 1;
        g.k[i] = given ? w->dim[from + 2] : 1;
        g.stride[i] = given ? stride[from] : 1;
        g.dilation[i] = given ? dilation[from] : 1;
        g.before[i] = given ? pad[from] : 0;
        g.after[i] = given ? pad[from + spatial] : 0;
        if (g.stride[i] < 1 || g.dilation[i] < 1)
            return ZX_FAIL(err, ZX_E_SHAPE, "convolution: strides and dilations must be positive");
    }
    *out = g;
    return ZX_OK;
}

static inline int64_t volume(const int64_t d[3])
{
    return d[0] * d[1] * d[2];
}

// Where in its plane of x tap k of output o reads; -1: in the padding.
static inline int64_t input_of(const zx_conv *g, const int64_t o[3], const int64_t k[3])
{
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t x = o[i] * g->stride[i] + k[i] * g->dilation[i] - g->before[i];
        if (x < 0 || x >= g->x[i]) return -1;
        at = at * g->x[i] + x;
    }
    return at;
}

// Where in its plane of y the output is whose tap k reads x; -1: there is none.
static inline int64_t output_of(const zx_conv *g, const int64_t x[3], const int64_t k[3])
{
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t y = x[i] + g->before[i] - k[i] * g->dilation[i];
        if (y < 0 || y % g->stride[i] != 0 || y / g->stride[i] >= g->y[i]) return -1;
        at = at * g->y[i] + y / g->stride[i];
    }
    return at;
}

// Row-major walk over a 3-D box: `at` runs from 0, i[0..2] are the coordinates.
#define EACH(i, at, box)                                                                           \
    for (int64_t at = 0, i[3] = {0}; at < volume(box); at++, i[0] = at / ((box)[1] * (box)[2]),    \
                 i[1] = at / (box)[2] % (box)[1], i[2] = at % (box)[2])

typedef struct job {
    const zx_conv *g;
    const void *in0, *in1, *in2;
    void *out;
} job;

#define T float
#define FOR_T(name) name##_float
#include "kernels/cpu/naive_conv_loops.h"
#undef T
#undef FOR_T
#define T double
#define FOR_T(name) name##_double
#include "kernels/cpu/naive_conv_loops.h"
#undef T
#undef FOR_T

static void split(const zx_call *call, const zx_conv *g, int64_t planes, zx_range_fn *f32,
                  zx_range_fn *f64)
{
    job j = {g, call->in[0].data, call->in[1].data, g->bias ? call->in[2].data : NULL,
             call->out[0].data};
    zx_split(call->threads, planes, 1, 2, call->in[0].type.dtype == ZX_F64 ? f64 : f32, &j);
}

void zx_naive_conv(const zx_call *call, const zx_conv *g)
{
    split(call, g, g->n * g->groups * g->m, forward_float, forward_double);
}

void zx_naive_conv_grad_x(const zx_call *call, const zx_conv *g)
{
    split(call, g, g->n * g->groups * g->c, backward_x_float, backward_x_double);
}

void zx_naive_conv_grad_w(const zx_call *call, const zx_conv *g)
{
    split(call, g, g->groups * g->m * g->c, backward_w_float, backward_w_double);
}

// pad.c - Pad and its gradient.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

// Which element of a dim of n elements a padded position i (< 0 or >= n outside) shows.
static int64_t source_of(int64_t i, int64_t n, int64_t mode)
{
    if (n == 1 || mode == PAD_EDGE) return i < 0 ? 0 : i >= n ? n - 1 : i;
    if (mode == PAD_WRAP) return (i % n + n) % n;
    const int64_t period = 2 * (n - 1); // reflect, as often as it takes
    const int64_t k = (i % period + period) % period;
    return k < n ? k : period - k;
}

struct pad_job {
    const zx_view *x; // unpadded
    const zx_view *y; // padded
    const int64_t *pads;
    int64_t mode;
    int64_t xs[ZX_MAX_RANK];
};

// Offset in x of the element that y's row (its index without the last dim) shows.
static int64_t row_source(const struct pad_job *j, int64_t row)
{
    const zx_shape *sx = &j->x->type.shape, *sy = &j->y->type.shape;
    int64_t offset = 0;
    for (uint32_t d = sy->rank - 1; d-- > 0;) {
        const int64_t i = row % sy->dim[d];
        row /= sy->dim[d];
        offset += source_of(i - j->pads[d], sx->dim[d], j->mode) * j->xs[d];
    }
    return offset;
}

static void pad_rows(void *ctx, int64_t from, int64_t to)
{
    const struct pad_job *j = ctx;
    const uint32_t last = j->y->type.shape.rank - 1;
    const int64_t n = j->x->type.shape.dim[last], width = j->y->type.shape.dim[last];
    const size_t size = zx_dtype_bytes(j->x->type.dtype);
    const char *x = j->x->data;
    for (int64_t row = from; row < to; row++) {
        const char *in = x + row_source(j, row) * (int64_t)size;
        char *out = (char *)j->y->data + row * width * (int64_t)size;
        for (int64_t i = 0; i < width; i++)
            memcpy(out + i * (int64_t)size,
                   in + source_of(i - j->pads[last], n, j->mode) * (int64_t)size, size);
    }
}

static zx_status pad_constant(const zx_call *call)
{
    const zx_shape *sx = &call->in[0].type.shape, *sy = &call->out[0].type.shape;
    const int64_t *pads = zx_attr_ints(call->attrs, ZX_A_PADS, NULL);
    const uint32_t size = zx_dtype_bytes(call->in[0].type.dtype);
    if (zx_has(call, 1)) { // the value everywhere
        const zx_move fill = {.rank = 1,
                              .bytes = size,
                              .dim = {zx_shape_count(sy)},
                              .xs = {0},
                              .ys = {1},
                              .x = call->in[1].data,
                              .y = call->out[0].data};
        zx_move_run(fill, call->threads);
    } else {
        zx_fill_zero(call->out[0].data, zx_type_bytes(&call->out[0].type), call->threads);
    }
    zx_move m = {.rank = sx->rank, .bytes = size, .x = call->in[0].data};
    int64_t offset = 0;
    zx_strides(sx, m.xs);
    zx_strides(sy, m.ys);
    for (uint32_t i = 0; i < sx->rank; i++) {
        m.dim[i] = sx->dim[i];
        offset += pads[i] * m.ys[i];
    }
    m.y = (char *)call->out[0].data + offset * (int64_t)size;
    zx_move_run(m, call->threads);
    return ZX_OK;
}

static zx_status pad(const zx_call *call, zx_err *err)
{
    struct pad_job j = {.x = &call->in[0],
                        .y = &call->out[0],
                        .pads = zx_attr_ints(call->attrs, ZX_A_PADS, NULL),
                        .mode = zx_attr_int(call->attrs, ZX_A_MODE, PAD_CONSTANT)};
    const zx_shape *sy = &j.y->type.shape;
    if (sy->rank == 0) return zx_cpu_copy.run(call, err);
    if (j.mode == PAD_CONSTANT) return pad_constant(call);
    if (zx_count(j.y) == 0) return ZX_OK;
    if (zx_count(j.x) == 0)
        return ZX_FAIL(err, ZX_E_SHAPE, "Pad can't repeat elements of an empty tensor");
    zx_strides(&j.x->type.shape, j.xs);
    const int64_t width = sy->dim[sy->rank - 1];
    zx_split(call->threads, zx_count(j.y) / width, 1, ZX_GRAIN / 8 / width + 2, pad_rows, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_pad = {.run = pad};

// Adds dy in row-major order on one thread: several of its elements meet in one of dx.
static zx_status pad_grad(const zx_call *call, zx_err *err)
{
    struct pad_job j = {.x = &call->out[0],
                        .y = &call->in[0],
                        .pads = zx_attr_ints(call->attrs, ZX_A_PADS, NULL),
                        .mode = zx_attr_int(call->attrs, ZX_A_MODE, PAD_REFLECT)};
    ZX_TRY(zx_need_f32(call, err));
    if (j.y->type.shape.rank == 0) return zx_cpu_copy.run(call, err);
    zx_fill_zero(j.x->data, zx_type_bytes(&j.x->type), call->threads);
    if (zx_count(j.y) == 0 || zx_count(j.x) == 0) return ZX_OK;
    zx_strides(&j.x->type.shape, j.xs);
    const uint32_t last = j.y->type.shape.rank - 1;
    const int64_t n = j.x->type.shape.dim[last], width = j.y->type.shape.dim[last];
    const float *dy = j.y->data;
    for (int64_t row = 0; row < zx_count(j.y) / width; row++) {
        float *dx = (float *)j.x->data + row_source(&j, row);
        for (int64_t i = 0; i < width; i++)
            dx[source_of(i - j.pads[last], n, j.mode)] += dy[row * width + i];
    }
    return ZX_OK;
}
const zx_kernel zx_cpu_pad_grad = {.run = pad_grad};

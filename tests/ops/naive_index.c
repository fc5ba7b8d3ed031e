// naive_index.c - moving elements by indices; see naive.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

#include <string.h>

static void fill(const naive_tensor *t, double value)
{
    for (int64_t i = 0; i < naive_count(t); i++) t->x[i] = value;
}

static void copy(const naive_call *c)
{
    memcpy(c->out->x, c->in->x, (size_t)naive_count(c->out) * sizeof(double));
}

void naive_gather(const naive_call *c)
{
    const uint32_t axis = (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    const zx_shape *data = &c->in[0].type.shape, *by = &c->in[1].type.shape;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t to[ZX_MAX_RANK], from[ZX_MAX_RANK] = {0};
        naive_index(&c->out->type.shape, i, to);
        for (uint32_t d = 0; d < data->rank; d++)
            if (d != axis) from[d] = to[d < axis ? d : d + by->rank - 1];
        from[axis] = naive_wrap(c->in[1].x[naive_flat(by, to + axis)], data->dim[axis]);
        c->out->x[i] = c->in->x[naive_flat(data, from)];
    }
}

// The element of `data` that element i of the indices points to.
static int64_t pointed(const naive_call *c, const zx_shape *data, int64_t i)
{
    const int64_t axis = zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    int64_t index[ZX_MAX_RANK];
    naive_index(&c->in[1].type.shape, i, index);
    index[axis] = naive_wrap(c->in[1].x[i], data->dim[axis]);
    return naive_flat(data, index);
}

void naive_gather_elements(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++)
        c->out->x[i] = c->in->x[pointed(c, &c->in->type.shape, i)];
}

void naive_scatter_add_elements(const naive_call *c)
{
    fill(c->out, 0);
    for (int64_t i = 0; i < naive_count(c->in); i++)
        c->out->x[pointed(c, &c->out->type.shape, i)] += c->in->x[i];
}

static double combined(const naive_call *c, double old, double update)
{
    switch (zx_attr_int(c->attrs, ZX_A_REDUCTION, 0)) {
    case 1:
        return old + update;
    case 2:
        return old * update;
    case 3:
        return old > update ? old : update;
    case 4:
        return old < update ? old : update;
    default:
        return update;
    }
}

void naive_scatter_elements(const naive_call *c)
{
    copy(c);
    for (int64_t i = 0; i < naive_count(&c->in[2]); i++) {
        double *y = &c->out->x[pointed(c, &c->out->type.shape, i)];
        *y = combined(c, *y, c->in[2].x[i]);
    }
}

// Element i of what GatherND makes: which element of data it is.
static int64_t nd_pointed(const naive_call *c, const zx_shape *data, const zx_shape *made,
                          int64_t i)
{
    const zx_shape *by = &c->in[1].type.shape;
    const uint32_t batch = (uint32_t)zx_attr_int(c->attrs, ZX_A_BATCH_DIMS, 0);
    const uint32_t k = (uint32_t)by->dim[by->rank - 1];
    int64_t to[ZX_MAX_RANK], row[ZX_MAX_RANK], from[ZX_MAX_RANK] = {0};
    naive_index(made, i, to);
    for (uint32_t d = 0; d + 1 < by->rank; d++) row[d] = to[d];
    for (uint32_t d = 0; d < batch; d++) from[d] = to[d];
    for (uint32_t d = 0; d < k; d++) {
        row[by->rank - 1] = d;
        from[batch + d] = naive_wrap(c->in[1].x[naive_flat(by, row)], data->dim[batch + d]);
    }
    for (uint32_t d = batch + k; d < data->rank; d++) from[d] = to[by->rank - 1 + d - batch - k];
    return naive_flat(data, from);
}

void naive_gather_nd(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++)
        c->out->x[i] = c->in->x[nd_pointed(c, &c->in->type.shape, &c->out->type.shape, i)];
}

void naive_scatter_nd(const naive_call *c)
{
    copy(c);
    for (int64_t i = 0; i < naive_count(&c->in[2]); i++) {
        double *y = &c->out->x[nd_pointed(c, &c->out->type.shape, &c->in[2].type.shape, i)];
        *y = combined(c, *y, c->in[2].x[i]);
    }
}

void naive_one_hot(const naive_call *c)
{
    const uint32_t axis = (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    const zx_shape *y = &c->out->type.shape;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t to[ZX_MAX_RANK], from[ZX_MAX_RANK];
        naive_index(y, i, to);
        for (uint32_t d = 0; d < y->rank; d++)
            if (d != axis) from[d < axis ? d : d - 1] = to[d];
        const double want = c->in->x[naive_flat(&c->in->type.shape, from)];
        const bool on = naive_wrap(want, y->dim[axis]) == to[axis];
        c->out->x[i] = c->in[1].x[on];
    }
}

// The rank of element `at` in its row: how many come before it, ties in index order.
static int64_t place(const naive_call *c, const int64_t *index, int64_t axis, bool largest)
{
    const zx_shape *s = &c->in->type.shape;
    int64_t other[ZX_MAX_RANK], before = 0;
    memcpy(other, index, sizeof other);
    const double x = c->in->x[naive_flat(s, index)];
    for (other[axis] = 0; other[axis] < s->dim[axis]; other[axis]++) {
        const double y = c->in->x[naive_flat(s, other)];
        before += (largest ? y > x : y < x) || (y == x && other[axis] < index[axis]);
    }
    return before;
}

void naive_top_k(const naive_call *c)
{
    const int64_t axis = zx_attr_int(c->attrs, ZX_A_AXIS, 0), k = zx_attr_int(c->attrs, ZX_A_K, 0);
    const bool largest = zx_attr_int(c->attrs, ZX_A_LARGEST, 1) != 0;
    for (int64_t i = 0; i < naive_count(c->in); i++) {
        int64_t index[ZX_MAX_RANK] = {0};
        naive_index(&c->in->type.shape, i, index);
        const int64_t at = index[axis];
        index[axis] = place(c, index, axis, largest);
        if (index[axis] >= k) continue;
        const int64_t to = naive_flat(&c->out->type.shape, index);
        c->out[0].x[to] = c->in->x[i];
        c->out[1].x[to] = (double)at;
    }
}

void naive_arg(const naive_call *c)
{
    const int64_t axis = zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    const bool last = zx_attr_int(c->attrs, ZX_A_SELECT_LAST, 0) != 0, max = c->op == ZX_OP_ARG_MAX;
    const zx_shape *s = &c->in->type.shape;
    zx_shape kept = *s;
    kept.dim[axis] = 1;
    for (int64_t i = 0; i < zx_shape_count(&kept); i++) {
        int64_t index[ZX_MAX_RANK] = {0}, best = 0;
        naive_index(&kept, i, index);
        double most = c->in->x[naive_flat(s, index)];
        for (index[axis] = 1; index[axis] < s->dim[axis]; index[axis]++) {
            const double x = c->in->x[naive_flat(s, index)];
            if ((max ? x > most : x < most) || (last && x == most)) {
                most = x;
                best = index[axis];
            }
        }
        c->out->x[i] = (double)best;
    }
}

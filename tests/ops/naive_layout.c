// naive_layout.c - moving elements by position; see naive.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

void naive_reshape(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++) c->out->x[i] = c->in->x[i];
}

void naive_transpose(const naive_call *c)
{
    const int64_t *perm = zx_attr_ints(c->attrs, ZX_A_PERM, NULL);
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t to[ZX_MAX_RANK], from[ZX_MAX_RANK];
        naive_index(&c->out->type.shape, i, to);
        for (uint32_t d = 0; d < c->out->type.shape.rank; d++) from[perm[d]] = to[d];
        c->out->x[i] = c->in->x[naive_flat(&c->in->type.shape, from)];
    }
}

void naive_expand(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t index[ZX_MAX_RANK];
        naive_index(&c->out->type.shape, i, index);
        c->out->x[i] = c->in->x[naive_from(&c->in->type.shape, &c->out->type.shape, index)];
    }
}

void naive_sum_to(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++) c->out->x[i] = 0;
    for (int64_t i = 0; i < naive_count(c->in); i++) {
        int64_t index[ZX_MAX_RANK];
        naive_index(&c->in->type.shape, i, index);
        c->out->x[naive_from(&c->out->type.shape, &c->in->type.shape, index)] += c->in->x[i];
    }
}

// The element of `whole` that element i of `part` stands for.
static int64_t strided(const naive_call *c, const zx_shape *part, const zx_shape *whole, int64_t i)
{
    const int64_t *start = zx_attr_ints(c->attrs, ZX_A_STARTS, NULL);
    const int64_t *step = zx_attr_ints(c->attrs, ZX_A_STEPS, NULL);
    int64_t index[ZX_MAX_RANK];
    naive_index(part, i, index);
    for (uint32_t d = 0; d < part->rank; d++) index[d] = start[d] + index[d] * step[d];
    return naive_flat(whole, index);
}

void naive_slice(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++)
        c->out->x[i] = c->in->x[strided(c, &c->out->type.shape, &c->in->type.shape, i)];
}

void naive_slice_scatter(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++) c->out->x[i] = 0;
    for (int64_t i = 0; i < naive_count(c->in); i++)
        c->out->x[strided(c, &c->in->type.shape, &c->out->type.shape, i)] = c->in->x[i];
}

void naive_concat(const naive_call *c)
{
    const int64_t axis = zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t index[ZX_MAX_RANK];
        naive_index(&c->out->type.shape, i, index);
        uint32_t k = 0;
        while (index[axis] >= c->in[k].type.shape.dim[axis])
            index[axis] -= c->in[k++].type.shape.dim[axis];
        c->out->x[i] = c->in[k].x[naive_flat(&c->in[k].type.shape, index)];
    }
}

// Where padded position i of a dimension of n comes from; -1: from the padding value.
static int64_t unpadded(int64_t mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) return i;
    if (mode == 1) return i < 0 ? -i : 2 * (n - 1) - i;
    if (mode == 2) return i < 0 ? 0 : n - 1;
    if (mode == 3) return ((i % n) + n) % n;
    return -1;
}

void naive_pad(const naive_call *c)
{
    const int64_t *pads = zx_attr_ints(c->attrs, ZX_A_PADS, NULL);
    const int64_t mode = zx_attr_int(c->attrs, ZX_A_MODE, 0);
    const zx_shape *x = &c->in->type.shape;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t index[ZX_MAX_RANK];
        bool inside = true;
        naive_index(&c->out->type.shape, i, index);
        for (uint32_t d = 0; d < x->rank; d++) {
            index[d] = unpadded(mode, index[d] - pads[d], x->dim[d]);
            inside = inside && index[d] >= 0;
        }
        c->out->x[i] = inside ? c->in->x[naive_flat(x, index)] : c->in[1].x ? *c->in[1].x : 0;
    }
}

void naive_cum_sum(const naive_call *c)
{
    const int64_t axis = zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    const bool exclusive = zx_attr_int(c->attrs, ZX_A_EXCLUSIVE, 0) != 0;
    const bool reverse = zx_attr_int(c->attrs, ZX_A_REVERSE, 0) != 0;
    const zx_shape *s = &c->in->type.shape;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t index[ZX_MAX_RANK];
        naive_index(s, i, index);
        const int64_t at = index[axis];
        double sum = 0;
        for (index[axis] = 0; index[axis] < s->dim[axis]; index[axis]++) {
            const int64_t ahead = reverse ? index[axis] - at : at - index[axis];
            if (ahead > 0 || (ahead == 0 && !exclusive)) sum += c->in->x[naive_flat(s, index)];
        }
        c->out->x[i] = sum;
    }
}

void naive_trilu(const naive_call *c)
{
    const bool upper = zx_attr_int(c->attrs, ZX_A_UPPER, 1) != 0;
    const int64_t k = zx_attr_int(c->attrs, ZX_A_K, 0);
    const zx_shape *s = &c->in->type.shape;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t index[ZX_MAX_RANK];
        naive_index(s, i, index);
        const int64_t off = index[s->rank - 1] - index[s->rank - 2];
        c->out->x[i] = (upper ? off >= k : off <= k) ? c->in->x[i] : 0;
    }
}

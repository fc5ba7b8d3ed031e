// dims.h - how kernels walk over the dims of tensors, on the CPU and on GPUs alike: strides,
// broadcasting, strided copies, dims that are reduced, one axis.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_DIMS_H
#define ZX_KERNELS_DIMS_H

#include "kernels/kernel.h"

ZX_BEGIN_C

static inline int64_t zx_count(const zx_view *v)
{
    return zx_shape_count(&v->type.shape);
}
static inline bool zx_has(const zx_call *call, uint32_t i) // input i is there
{
    return i < call->n_in && call->in[i].data != NULL;
}
// In prepare, where there is no data: an omitted input in the middle has rank 0 and no data either,
// so sizes must come from inputs that can't be omitted.

// Strides of a contiguous tensor, in elements.
static inline void zx_strides(const zx_shape *s, int64_t stride[ZX_MAX_RANK])
{
    int64_t n = 1;
    for (uint32_t i = s->rank; i-- > 0;) {
        stride[i] = n;
        n *= s->dim[i];
    }
}

// ---- one axis: a tensor seen as [outer][n][inner] -----------------------------------------------
typedef struct zx_axis {
    int64_t outer, n, inner;
} zx_axis;
static inline zx_axis zx_axis_of(const zx_shape *s, uint32_t axis)
{
    zx_axis a;
    a.outer = zx_shape_span(s, 0, axis);
    a.n = s->dim[axis];
    a.inner = zx_shape_span(s, axis + 1, s->rank);
    return a;
}

// ---- broadcasting -------------------------------------------------------------------------------
// Up to three operands broadcast to one shape, with dims merged where all of them allow it. The
// last dim's strides are 0 or 1.
typedef struct zx_broadcast {
    uint32_t rank; // >= 1
    int64_t count; // elements of the result
    int64_t dim[ZX_MAX_RANK];
    int64_t stride[3][ZX_MAX_RANK]; // in elements
} zx_broadcast;

static inline void zx_broadcast_make(zx_broadcast *b, const zx_shape *result,
                                     const zx_view *operand, uint32_t n)
{
    static const zx_broadcast none = {0, 0, {0}, {{0}}};
    int64_t stride[3][ZX_MAX_RANK] = {{0}};
    *b = none;
    b->count = zx_shape_count(result);
    for (uint32_t k = 0; k < n; k++) {
        const zx_shape *s = &operand[k].type.shape;
        int64_t own[ZX_MAX_RANK];
        zx_strides(s, own);
        for (uint32_t i = 0; i < s->rank; i++)
            if (s->dim[i] != 1) stride[k][result->rank - s->rank + i] = own[i];
    }
    // From the outermost dim: drop ones, and merge a dim into the one outside it where every
    // operand's strides run on.
    for (uint32_t i = 0; i < result->rank; i++) {
        if (result->dim[i] == 1) continue;
        bool merge = b->rank > 0;
        for (uint32_t k = 0; merge && k < n; k++)
            merge = b->stride[k][b->rank - 1] == stride[k][i] * result->dim[i];
        if (!merge) b->rank++;
        const uint32_t at = b->rank - 1;
        b->dim[at] = (merge ? b->dim[at] : 1) * result->dim[i];
        for (uint32_t k = 0; k < n; k++) b->stride[k][at] = stride[k][i];
    }
    if (b->rank == 0) {
        b->rank = 1;
        b->dim[0] = 1;
    }
}

// ---- strided copies -----------------------------------------------------------------------------
typedef struct zx_move { // y[sum i*ys] = x[sum i*xs] for all index tuples i < dim
    uint32_t rank;
    uint32_t bytes;                                             // of an element: 1, 2, 4 or 8
    int64_t dim[ZX_MAX_RANK], xs[ZX_MAX_RANK], ys[ZX_MAX_RANK]; // strides in elements
    const char *x;
    char *y;
} zx_move;

// Drops dims of one and merges neighbours that run on in both tensors; two dims are left at least.
static inline void zx_move_merge(zx_move *m)
{
    uint32_t r = 0;
    for (uint32_t i = 0; i < m->rank; i++) {
        if (m->dim[i] == 1) continue;
        if (r > 0 && m->xs[r - 1] == m->xs[i] * m->dim[i] && m->ys[r - 1] == m->ys[i] * m->dim[i]) {
            m->dim[r - 1] *= m->dim[i];
        } else {
            m->dim[r] = m->dim[i];
            r++;
        }
        m->xs[r - 1] = m->xs[i];
        m->ys[r - 1] = m->ys[i];
    }
    m->rank = r;
    while (m->rank < 2) { // a tile needs two dims: put ones outside
        for (uint32_t i = m->rank; i > 0; i--) {
            m->dim[i] = m->dim[i - 1];
            m->xs[i] = m->xs[i - 1];
            m->ys[i] = m->ys[i - 1];
        }
        m->dim[0] = 1;
        m->xs[0] = m->ys[0] = 0;
        m->rank++;
    }
}

// The dim along which x is read in steps of one goes next to the last, so that a tile of the last
// two dims holds whole lines of memory of both tensors.
static inline void zx_move_put_reads_second(zx_move *m)
{
    const uint32_t to = m->rank - 2;
    if (m->xs[m->rank - 1] == 1 || m->xs[m->rank - 1] == 0) return;
    for (uint32_t d = 0; d < to; d++) {
        if (m->xs[d] != 1) continue;
        const int64_t dim = m->dim[d], xs = m->xs[d], ys = m->ys[d];
        m->dim[d] = m->dim[to], m->xs[d] = m->xs[to], m->ys[d] = m->ys[to];
        m->dim[to] = dim, m->xs[to] = xs, m->ys[to] = ys;
        return;
    }
}

// ---- dims that stay and dims that are reduced ---------------------------------------------------
typedef struct zx_dims { // some dims of a tensor, outermost first, neighbours merged
    uint32_t rank;
    int64_t count; // product of dim
    int64_t dim[ZX_MAX_RANK], stride[ZX_MAX_RANK];
} zx_dims;
typedef struct zx_reduction {
    zx_dims kept, reduced;
    bool last_reduced; // the innermost dim of more than one element is a reduced one
} zx_reduction;

// Where the i-th index tuple of these dims lies, in elements.
static inline int64_t zx_dims_at(const zx_dims *d, int64_t i)
{
    int64_t at = 0;
    for (uint32_t k = d->rank; k-- > 0; i /= d->dim[k]) at += i % d->dim[k] * d->stride[k];
    return at;
}
// The innermost reduced dim as a run; `outer` is left with the rest.
static inline void zx_dims_inner(const zx_dims *d, zx_dims *outer, int64_t *n, int64_t *stride)
{
    *outer = *d;
    *n = 1;
    *stride = 0;
    if (d->rank == 0) return;
    *n = d->dim[d->rank - 1];
    *stride = d->stride[d->rank - 1];
    outer->rank--;
    outer->count = 1;
    for (uint32_t k = 0; k < outer->rank; k++) outer->count *= outer->dim[k];
}
static inline void zx_dims_add(zx_dims *d, int64_t dim, int64_t stride)
{
    if (d->rank > 0 && d->stride[d->rank - 1] == dim * stride) {
        d->dim[d->rank - 1] *= dim;
        d->stride[d->rank - 1] = stride;
    } else {
        d->dim[d->rank] = dim;
        d->stride[d->rank++] = stride;
    }
    d->count *= dim;
}
// is_reduced: one bit a dim.
static inline zx_reduction zx_reduction_make(const zx_shape *x, uint32_t is_reduced)
{
    const zx_dims none = {0, 1, {0}, {0}};
    zx_reduction r = {none, none, false};
    int64_t stride[ZX_MAX_RANK];
    zx_strides(x, stride);
    for (uint32_t i = 0; i < x->rank; i++) {
        if (x->dim[i] == 1) continue;
        r.last_reduced = (is_reduced >> i & 1) != 0;
        zx_dims_add(r.last_reduced ? &r.reduced : &r.kept, x->dim[i], stride[i]);
    }
    return r;
}
static inline uint32_t zx_axes_bits(const zx_call *call, uint32_t rank) // AXES; absent: all dims
{
    const zx_attr *axes = zx_attr_find(call->attrs, ZX_A_AXES);
    uint32_t bits = 0;
    if (axes == NULL) return (1u << rank) - 1;
    for (uint32_t i = 0; i < axes->n; i++) bits |= 1u << axes->i[i];
    return bits;
}
// What SumTo reduces: the dims that broadcasting y to x repeats.
static inline zx_reduction zx_sum_to_reduction(const zx_shape *x, const zx_shape *y)
{
    const uint32_t lead = x->rank - y->rank;
    uint32_t bits = (1u << lead) - 1;
    for (uint32_t i = 0; i < y->rank; i++)
        if (y->dim[i] == 1 && x->dim[lead + i] != 1) bits |= 1u << (lead + i);
    return zx_reduction_make(x, bits);
}

ZX_END_C

#endif

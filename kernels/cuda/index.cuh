// index.cuh - where indices point: GatherElements' rule and GatherND's, read and written through.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_INDEX_CUH
#define ZX_KERNELS_CUDA_INDEX_CUH

#include "kernels/cuda/any.cuh"

// ---- elements -----------------------------------------------------------------------------------
// The indices' shape leads; the other tensor (`wide`) has its own dims, larger or equal but along
// the axis.
typedef struct zx_elements {
    uint32_t rank, axis;
    int64_t dim[ZX_MAX_RANK], own[ZX_MAX_RANK]; // of the indices, and their strides
    int64_t stride[ZX_MAX_RANK];                // of wide
    int64_t n;                                  // of wide, along the axis
} zx_elements;
static inline zx_elements zx_elements_of(const zx_call *c, const zx_shape *wide)
{
    const zx_shape *s = &c->in[1].type.shape;
    zx_elements e;
    e.rank = s->rank;
    e.axis = (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    for (uint32_t d = 0; d < ZX_MAX_RANK; d++) e.dim[d] = s->dim[d];
    zx_strides(s, e.own);
    zx_strides(wide, e.stride);
    e.n = wide->dim[e.axis];
    return e;
}

// ---- tuples -------------------------------------------------------------------------------------
typedef struct zx_tuples { // a tuple of q indices names `run` elements
    uint32_t q;
    int64_t count, per_batch; // tuples in all, and for one batch element
    int64_t run, batch_stride;
    int64_t dim[ZX_MAX_RANK], stride[ZX_MAX_RANK]; // of the q indexed dims
} zx_tuples;
static inline zx_tuples zx_tuples_of(const zx_call *c, const zx_shape *whole)
{
    const zx_shape *s = &c->in[1].type.shape;
    const uint32_t batch = (uint32_t)zx_attr_int(c->attrs, ZX_A_BATCH_DIMS, 0);
    const int64_t batches = zx_shape_span(whole, 0, batch);
    int64_t stride[ZX_MAX_RANK];
    zx_tuples t;
    t.q = (uint32_t)s->dim[s->rank - 1];
    t.count = zx_shape_span(s, 0, s->rank - 1);
    t.per_batch = batches > 0 ? t.count / batches : 0;
    t.run = zx_shape_span(whole, batch + t.q, whole->rank);
    t.batch_stride = zx_shape_span(whole, batch, whole->rank);
    zx_strides(whole, stride);
    for (uint32_t i = 0; i < t.q; i++) {
        t.dim[i] = whole->dim[batch + i];
        t.stride[i] = stride[batch + i];
    }
    return t;
}
// Where tuple k points, in elements; -1 and a fault: outside.
static __device__ inline int64_t zx_tuple_at(const zx_tuples &t, zx_dtype ti, const void *index,
                                             int64_t k, zx_fault *fault)
{
    int64_t at = k / t.per_batch * t.batch_stride;
    for (uint32_t i = 0; i < t.q; i++) {
        const int64_t pos = zx_index_of(ti, index, k * (int64_t)t.q + i, t.dim[i], fault);
        if (pos < 0) return -1;
        at += pos * t.stride[i];
    }
    return at;
}

#endif

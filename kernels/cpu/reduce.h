// reduce.h - a tensor's dims split into those that stay and those that are reduced.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_REDUCE_H
#define ZX_KERNELS_CPU_REDUCE_H

#include "kernels/cpu/common.h"

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

// is_reduced: one bit a dim.
zx_reduction zx_reduction_make(const zx_shape *x, uint32_t is_reduced);
uint32_t zx_axes_bits(const zx_call *call, uint32_t rank); // AXES; all dims where absent

#endif

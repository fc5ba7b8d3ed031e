// index.h - what the kernels that read indices share.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_INDEX_H
#define ZX_KERNELS_CPU_INDEX_H

#include "kernels/cpu/common.h"

static inline int64_t zx_index_at(const zx_view *v, int64_t i)
{
    if (v->type.dtype == ZX_I64) return ((const int64_t *)v->data)[i];
    if (v->type.dtype == ZX_I32) return ((const int32_t *)v->data)[i];
    return zx_read_i64(v->type.dtype, v->data, i);
}
// Index i of a dim of n; negative ones count from the end. -1 and a fault where it is outside.
static inline int64_t zx_index_of(const zx_call *call, const zx_view *v, int64_t i, int64_t n)
{
    const int64_t k = zx_index_at(v, i);
    if (k >= 0 && k < n) return k;
    if (k < 0 && k >= -n) return k + n;
    zx_fault_set(call->fault, ZX_FAULT_INDEX, k, n);
    return -1;
}

#endif

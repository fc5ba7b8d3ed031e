// table.c - which kernel an op runs: the last column of ops.def.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

static const zx_kernel *const kernels[ZX_K_COUNT] = {
#define ZX_OP(id, word, lo, hi, outs, flags, infer, grad, cost, kern) &zx_cpu_##kern,
#include "graph/ops.def"
#undef ZX_OP
};

const zx_kernel *zx_cpu_kernel(uint32_t op)
{
    ZX_ASSERT(op < ZX_K_COUNT);
    return kernels[op];
}

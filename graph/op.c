// op.c - ops.def turned into a table.
// SPDX-License-Identifier: Apache-2.0
#include "graph/op.h"

#define zx_grad_none NULL

const zx_op zx_ops[ZX_OP_COUNT] = {
#define ZX_OP(id, word, lo, hi, outs, flags, i, g, c, k)                                           \
    [ZX_OP_##id] = {word, lo, hi, outs, flags, zx_infer_##i, zx_grad_##g, zx_cost_##c},
#include "graph/ops.def"
#undef ZX_OP
};

// op_ids.h - the numbers of the ops, call->op: as in graph/op.h, which kernels may not include.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_OP_IDS_H
#define ZX_KERNELS_OP_IDS_H

enum {
#define ZX_OP(id, ...) ZX_K_##id,
#include "graph/ops.def"
#undef ZX_OP
    ZX_K_COUNT
};

#endif

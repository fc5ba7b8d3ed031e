// precision.h - pass: the train graph under mixed precision.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_PRECISION_H
#define ZX_GRAPH_PRECISION_H

#include "graph/graph.h"

typedef enum zx_precision { ZX_PREC_F32, ZX_PREC_BF16, ZX_PREC_F16 } zx_precision;

// An output that stays f32: the table in precision.c.
bool zx_precision_stays(zx_op_id op, uint32_t out);
// Parameters (the working copies), constants, activations and gradients that were f32 get 16 bits;
// inputs, buffers and their next values, the loss, the seed, and what the table in precision.c
// lists stay f32. A view has the type of what it shows, a gradient that of its parameter. Nodes,
// values and their order stay; what doesn't change is shared with `train`, which must outlive
// `out`.
void zx_precision_apply(const zx_graph *train, zx_precision p, zx_arena *mem, zx_graph *out);

#endif

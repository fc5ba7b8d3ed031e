// recompute.h - pass: activations that backward needs are made again rather than kept (activation
// checkpointing). The result computes the same bits.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_RECOMPUTE_H
#define ZX_GRAPH_RECOMPUTE_H

#include "graph/graph.h"

typedef enum zx_recompute_kind {
    ZX_RECOMPUTE_NONE,
    ZX_RECOMPUTE_FULL,
    ZX_RECOMPUTE_BLOCKS
} zx_recompute_kind;

// FULL: every block (blocks.h) keeps only its inputs; those of its forward nodes that its backward
// needs run again right before it. BLOCKS: only blocks with again[b], numbered as zx_blocks_make
// does for `train`. `train` is what zx_autodiff made, and must outlive `out`.
// E_UNSUPPORTED where the model has no blocks.
zx_status zx_recompute_apply(const zx_graph *train, zx_recompute_kind kind, const bool *again,
                             zx_arena *mem, zx_graph *out, zx_err *err);

#endif

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

// What is made again together: a block of the model (blocks.h). Where it has none, or they would
// save nothing, a segment: a run of forward nodes, about as many segments as the square root of how
// many nodes save something, with about the same bytes in each.
typedef struct zx_recompute_parts {
    uint32_t n;              // 0: backward reads nothing that could be made again
    bool segments;           // of the forward line, since there are no blocks
    const uint32_t *of_node; // by node: its part; ZX_NONE
    // If all of them are made again:
    const uint64_t *bytes; // by part: that are kept no more from forward to backward
    const bool *again;     // by node: forward nodes that run again
} zx_recompute_parts;

// Of what zx_autodiff made. `train` may have had its precision changed.
void zx_recompute_look(const zx_graph *train, zx_arena *mem, zx_recompute_parts *out);

// FULL: every part keeps only its inputs; those of its forward nodes that its backward needs run
// again right before it. The last segment is left as it is: its backward comes at once. BLOCKS:
// only parts with again[part], numbered as zx_recompute_look does for `train`. `train` is what
// zx_autodiff made, and must outlive `out`. *from (NULL: not wanted): by node of `out`, the node of
// `train` that it is or repeats. Where there is nothing to make again, `out` is `train`.
zx_status zx_recompute_make(const zx_graph *train, zx_recompute_kind kind, const bool *again,
                            zx_arena *mem, zx_graph *out, const uint32_t **from, zx_err *err);

static inline zx_status zx_recompute_apply(const zx_graph *train, zx_recompute_kind kind,
                                           const bool *again, zx_arena *mem, zx_graph *out,
                                           zx_err *err)
{
    return zx_recompute_make(train, kind, again, mem, out, NULL, err);
}

#endif

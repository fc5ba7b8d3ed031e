// count_loss.h - a loss that is a mean over labels, told as a sum and the number of labels in it,
// so that means of micro-batches with unlike numbers of labels can be put together.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_COUNT_LOSS_H
#define ZX_GRAPH_COUNT_LOSS_H

#include "graph/graph.h"

typedef struct zx_counted {
    bool counts;     // false: the loss is no mean over labels, or one with weights of classes
    uint64_t labels; // of a micro-batch, those that are ignored included
    int64_t ignored; // a label that doesn't count
} zx_counted;

// *out: the forward graph with [sum, count] (float32) as its loss where info->counts, else as it
// is. The count is made in the graph, whatever that does to its labels. pads: a loss that ignores
// no label ignores info->ignored from now on.
zx_status zx_loss_count(const zx_graph *forward, bool pads, zx_arena *mem, zx_graph *out,
                        zx_counted *info, zx_err *err);

// Whether a graph's loss is such a pair.
static inline bool zx_loss_is_counted(const zx_graph *g)
{
    return g->loss != ZX_NONE && zx_shape_count(&g->values[g->loss].type.shape) == 2;
}

// What a graph is differentiated from: its loss, of a pair the sum.
uint32_t zx_loss_differentiated(const zx_graph *g);
// Marks, by value, what such a pair is counted by: exact only in float32.
void zx_loss_mark_count(const zx_graph *g, bool *marks);

#endif

// fuse.h - pass over the forward graph: groups of nodes are replaced by operators that do the same
// at once, so that less is stored and less is moved. Equal within rounding. fuse.def lists the
// passes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_FUSE_H
#define ZX_GRAPH_FUSE_H

#include "graph/graph.h"

typedef enum zx_fuse_id {
#define ZX_FUSE(id, ...) ZX_FUSE_##id,
#include "graph/fuse.def"
#undef ZX_FUSE
    ZX_FUSE_COUNT
} zx_fuse_id;

typedef struct zx_fuse_row {
    const char *word, *help;
} zx_fuse_row;
extern const zx_fuse_row zx_fuses[ZX_FUSE_COUNT];

// `off` by pass, NULL: all run. counts[ZX_FUSE_COUNT] (NULL: not wanted) is how often each replaced
// something. The graph's inputs, parameters, buffers, loss and sources stay; a value that is
// replaced keeps its name. Before autodiff.
void zx_fuse(const zx_graph *forward, const bool *off, zx_arena *mem, zx_graph *out,
             uint32_t *counts);

#endif

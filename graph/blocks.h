// blocks.h - which repeated part of the model (a transformer's layer) each node belongs to, read
// from the module paths.
//
// A block is the outermost module whose path ends in an index ("model.layers.3") and that has at
// least one sibling: another index below the same module. A model with several such lists has the
// blocks of all of them. Where the file has no module paths for any of its nodes, import has made
// them of the nodes' names; a node without a path belongs where all its producers do.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_BLOCKS_H
#define ZX_GRAPH_BLOCKS_H

#include "graph/graph.h"

typedef struct zx_blocks {
    uint32_t n;               // blocks, in order of first use; 0: the model has no repeated part
    const char *const *names; // "model.layers.3"
    const uint32_t *of_node;  // by node of the graph: its block; ZX_NONE: outside (embedding,
                              // final norm, head, loss)
    const uint32_t *of_param; // by parameter: the block that alone reads it; ZX_NONE: outside, or
                              // read by several, or never
} zx_blocks;

// Of a forward or a train graph: backward nodes belong where their forward node does. A graph that
// was built and not imported is read by its nodes' names: "layers.0/gelu".
void zx_blocks_make(const zx_graph *g, zx_arena *mem, zx_blocks *out);

// A scope as exporters spell it, as a path: "a.b" of "a@2.b@1" (a module has one path, however
// often it is called). `scope` itself where nothing had to change, else into mem.
const char *zx_scope_path(const char *scope, zx_arena *mem);
// False where the exporter says that it doesn't know the node's module, or nothing.
bool zx_source_has_module(const zx_source *s);

#endif

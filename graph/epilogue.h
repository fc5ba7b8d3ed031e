// epilogue.h - pass over the train graph, for GPUs: a product takes along what is done to its
// result (GELU by tanh, its gradient and the sums of its columns: a bias' gradient) or to an
// operand (those sums). Equal within rounding; fusions of the forward graph come before (fuse.h).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_EPILOGUE_H
#define ZX_GRAPH_EPILOGUE_H

#include "graph/graph.h"

typedef struct zx_epilogue_counts {
    uint32_t gelu, dgelu, sums; // nodes of each kind that were made
} zx_epilogue_counts;

// After autodiff and zx_simplify. Parameters, inputs, buffers, loss and gradients stay the graph's;
// *out may be `train`.
zx_epilogue_counts zx_epilogues(const zx_graph *train, zx_arena *mem, zx_graph *out);

#endif

// autodiff.h - the train graph: a forward graph with its backward nodes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_AUTODIFF_H
#define ZX_GRAPH_AUTODIFF_H

#include "graph/graph.h"

// Adds to `forward` the gradient of its loss with respect to every parameter that the loss depends
// on and that isn't frozen, starting from d(loss) = seed, which is 1/(ranks x accumulation). Each
// parameter's `grad` is set. Nothing is added that only frozen parameters would need.
// Contributions to one gradient are added in the order of the forward nodes that make them, last
// first; slices that make up a whole tensor are put together before. Fails listing every node
// at once that lies on a path from a parameter to the loss and has no gradient (E_UNSUPPORTED), and
// float values on such a path that aren't f32.
zx_status zx_autodiff(const zx_graph *forward, double seed, zx_arena *mem, zx_graph *out,
                      zx_err *err);

// Removes nodes, values and constants that neither the loss, nor a gradient, nor a buffer's next
// value needs. Inputs, parameters and buffers stay, used or not. Values keep their names.
void zx_simplify(const zx_graph *g, zx_arena *mem, zx_graph *out);

#endif

// save.h - model.safetensors: whole tensors, read from the shards of all ranks chunk by chunk.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_SAVE_H
#define ZX_RUNTIME_SAVE_H

#include "graph/graph.h"
#include "proto/safetensors.h"
#include "runtime/session.h"

// All ranks call; rank 0 writes `path` (others may pass NULL). Parameters under the graph's names,
// then buffers; the bytes depend on names, shapes and values only. The file is whole or not there.
// Parameters of 16 bits are written as their float32 copies, or as they are `kept`.
zx_status zx_save_weights(zx_session *s, zx_world *world, const zx_graph *g, const char *path,
                          bool kept, zx_err *err);
// The first step's averaged gradients before clipping, parameters only; zeros where none arrives.
zx_status zx_save_grads(zx_session *s, zx_world *world, const zx_graph *g, const char *path,
                        zx_err *err);

// The names, types and shapes of a file in its order, and what its __metadata__ says; with
// `buffers` also these. Exposed for tests.
void zx_save_list(const zx_graph *g, bool buffers, zx_arena *mem, uint32_t *n,
                  zx_safe_tensor **tensors, uint32_t *n_meta, const char *const (**meta)[2]);

#endif

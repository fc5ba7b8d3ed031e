// preset_net.h - what the files of the presets share: the sizes, and who writes which part.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_PRESET_NET_H
#define ZX_GRAPH_PRESET_NET_H

#include "graph/build_net.h"
#include "graph/preset.h"

typedef struct zx_preset zx_preset;
typedef void zx_preset_build_fn(zx_net *n, const zx_preset *p);

struct zx_preset {
    const char *name;
    zx_preset_build_fn *build;
    int64_t experts, chosen; // feed-forward parts of a layer, and how many a token is sent to;
                             // 0: one that all tokens go through
    zx_new_sizes s;
};

zx_preset_build_fn zx_preset_llama, zx_preset_gpt;
// The feed-forward part of a layer made of experts. x and the result are [B, T, C].
const char *zx_preset_experts(zx_net *n, const char *x, const zx_preset *p);
// x [.., in] to [.., out] by the weight of a module without bias.
const char *zx_preset_linear(zx_net *n, const char *module, const char *x, int64_t in, int64_t out);
// act(w_in(x)) * w_up(x): [.., C] to [.., F]; the modules of the two products, the activation's is
// act_fn.
const char *zx_preset_gated(zx_net *n, const char *x, const char *gate, const char *up,
                            const zx_new_sizes *s);
// zx_preset_make of sizes that need not be in the table. `p->s` with batch and sequence.
zx_status zx_preset_write(const zx_preset *p, uint64_t seed, zx_text *onnx_bytes, zx_err *err);
void zx_preset_count(const zx_preset *p, zx_preset_info *info);

#endif

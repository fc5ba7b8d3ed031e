// preset.h - models that are simulated by name: no file on the disk, no weights.
//
// Published models of today's sizes as ONNX, in the operators that fuse what training fuses:
// Attention, RMSNormalization and RotaryEmbedding of operator set 23, and zerox's own
// LinearCrossEntropy, so that neither scores nor logits exist as a whole. Nodes say in which of
// Hugging Face's modules they stand, modules without parameters included.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_PRESET_H
#define ZX_GRAPH_PRESET_H

#include "graph/base/text.h"

typedef struct zx_preset_sizes { // of one micro-batch on one rank
    int64_t sequence, batch;
} zx_preset_sizes;

typedef struct zx_preset_info {
    const char *name;
    uint64_t params;
    uint64_t active_params;    // that work on a token: all but the experts it isn't sent to
    uint64_t embedding_params; // of the input's table where that is nothing but a table; 0: it is
                               // the head's weight, too
} zx_preset_info;

// The ONNX file of a preset, appended to *onnx_bytes. E_USAGE: no such preset (the hint names a
// near one), or sizes that it can't have.
zx_status zx_preset_make(const char *name, const zx_preset_sizes *s, zx_text *onnx_bytes,
                         zx_preset_info *info, zx_err *err);
// E_USAGE where there is no such preset.
zx_status zx_preset_known(const char *name, zx_err *err);

// Name, sizes and parameters, a line each.
void zx_preset_list(zx_text *out);

#endif

// build_model.h - new models from a family and a few sizes, as ONNX (`zerox new`).
//
// A weight is no data: it is the output of a RandomNormal or ConstantOfShape node with a static
// shape. So the file of a model with billions of parameters is small, other tools can read and run
// it, and each rank makes only its own shards of the weights.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_BUILD_MODEL_H
#define ZX_GRAPH_BUILD_MODEL_H

#include "graph/base/text.h"

#define ZX_NEW_SYMBOLIC (-1)

typedef struct zx_new_options { // 0: as the preset says
    int64_t layers, width, heads;
    int64_t kv_heads; // heads of keys and values
    int64_t hidden;   // width inside the feed-forward part
    int64_t vocab;    // mlp: classes
    int64_t context;  // positions that the model knows; at least `sequence`
    int64_t sequence; // of the inputs; ZX_NEW_SYMBOLIC: left open
    int64_t inputs;   // mlp: numbers a sample
    int64_t batch;    // 0: symbolic
    uint64_t seed;    // 0: none in the file
} zx_new_options;

// The ONNX file of a new model, appended to *onnx_bytes. `preset` NULL: the family's first.
// E_USAGE: no such family or preset, sizes that the family doesn't have or that don't fit.
zx_status zx_new_model(const char *family, const char *preset, const zx_new_options *o,
                       zx_text *onnx_bytes, zx_err *err);

// "gpt2 tiny, 121k parameters" of such a model.
zx_status zx_new_describe(const char *family, const char *preset, const zx_new_options *o,
                          zx_text *out, zx_err *err);

// Sets one size by its name ("layers", "width", ...). "batch" and "sequence" 0: symbolic.
zx_status zx_new_set(zx_new_options *o, const char *name, int64_t value, zx_err *err);

// The families, their presets with sizes and parameters, and the names of sizes, as lines of text.
void zx_new_list(zx_text *out);

#endif

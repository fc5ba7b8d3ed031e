// data_priv.h - what the files of data share: the inputs with their sources.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_DATA_PRIV_H
#define ZX_RUNTIME_DATA_PRIV_H

#include "runtime/data.h"
#include "runtime/data_source.h"

typedef struct zx_data_input {
    const char *name;
    const zx_input_decl *decl; // NULL: the label input that a zerox.loss adds
    zx_data_source source;     // kind NONE: it has none
    const char *why;           // what chose the source where the user didn't; NULL
    // From zx_data_bind on:
    struct zx_data_input *from; // whose source feeds it: itself, unless that is a copy
    bool in_graph;
    zx_type type;
    uint64_t rows, n_each; // rows (samples) in a micro-batch and elements in each
    uint64_t samples;      // 0: generated
    uint64_t below;        // synthetic integers lie in [0, below)
    uint64_t key;          // synthetic: of the name
} zx_data_input;

struct zx_data {
    zx_arena *mem;
    bool shuffle, optional;
    uint64_t seed;
    uint32_t n;
    zx_data_input *inputs;
    uint32_t n_shapes;
    zx_input_shape *shapes;
    uint32_t n_graph; // graph->n_inputs
    zx_data_input **by_graph;
    uint64_t micro, per_step, samples, epoch_steps;
};

zx_data_input *zx_data_find(const zx_data *d, const char *name); // NULL: there is no such input
// "float32 [batch, 8, 8]", as declared.
const char *zx_data_decl_text(const zx_input_decl *decl, zx_arena *mem);

#endif

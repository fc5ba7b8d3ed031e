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
    bool beside;               // found beside the model: it may belong to another one
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
    const char *model;   // its path
    const char *command; // that hints give data to
    bool shuffle, optional;
    bool keep_all; // samples that don't fill a step are an error
    bool lacking;  // inputs have no source, and that is an error
    bool eval;     // of what is evaluated: every sample once
    bool pads;     // then: samples that there aren't have labels `ignored`, which don't count
    int64_t ignored;
    uint64_t seed;
    uint32_t n;
    zx_data_input *inputs;
    uint32_t n_shapes;
    zx_input_shape *shapes;
    uint32_t n_graph; // graph->n_inputs
    zx_data_input **by_graph;
    uint64_t micro, per_step, samples, epoch_steps;
    const zx_data_input *labels, *tokens; // of the loss, of an embedding; NULL: there are none
};

// What the values of an input are used for, as sizes; 0: not that.
typedef struct zx_data_uses {
    int64_t index;   // the smallest table or class count that they index
    int64_t table;   // likewise, of tables that all of the values index, whatever they are
    int64_t label;   // class count of the loss
    int64_t classes; // the same where all of the values are labels of one loss, whatever they are
    bool ignores;    // which takes `ignored` as well
    int64_t ignored;
} zx_data_uses;
zx_data_uses zx_data_find_uses(const zx_graph *g, uint32_t input, zx_arena *mem);
// Which inputs are labels and tokens; E_DATA for values that the graph has no class or row for.
zx_status zx_data_check_uses(zx_data *d, const zx_graph *g, zx_notes *notes, zx_err *err);
// The sample that is number j of a micro-batch.
uint64_t zx_data_sample_of(const zx_data *d, uint64_t micro, uint64_t j);

zx_data_input *zx_data_find(const zx_data *d, const char *name); // NULL: there is no such input
// Whether tokens may go to it: whole numbers [batch, sequence].
bool zx_data_takes_tokens(const zx_input_decl *decl);
// Labels by their usual names, or those of zerox.loss; NULL: none.
zx_data_input *zx_data_labels(const zx_data *d);
// Leaves out, with a note, a file beside the model that doesn't fit it: it is another one's.
void zx_data_leave_out(zx_data *d, zx_data_input *in, const zx_err *why, zx_notes *notes);
// "float32 [batch, 8, 8]", as declared.
const char *zx_data_decl_text(const zx_input_decl *decl, zx_arena *mem);

#endif

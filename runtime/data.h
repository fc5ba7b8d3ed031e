// data.h - where the inputs of the model come from: files, other inputs, or nowhere (generated).
//
// Opened in two phases. zx_data_open matches sources with the inputs that the model file declares,
// maps files and says which shapes they give; the model is then imported with these shapes; and
// zx_data_bind checks everything against the graph, so that feeding can't fail during a run.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_DATA_H
#define ZX_RUNTIME_DATA_H

#include "graph/import.h"
#include "runtime/config.h"
#include "runtime/session.h"

typedef struct zx_data zx_data;

typedef struct zx_data_request {
    const char *model; // its path: INPUT.npy and INPUT.bin are looked for beside it
    uint32_t n_inputs;
    const zx_input_decl *inputs; // as the file declares them
    uint32_t n_given;
    const char *const *given; // --data arguments
    const zx_config *config;  // zerox.data, and zerox.loss.label where the config names a loss
    uint64_t seed;
    bool shuffle;
    const char *command; // that hints give data to: "zerox train MODEL.onnx"
    bool optional;       // an input without a source is no error (plan, check)
    // Of what is evaluated: the training data, whose sources that are no files serve where nothing
    // else is said. Then sources come from zerox.eval.data, nothing beside the model is looked for,
    // and `given` are --eval-data arguments.
    const zx_data *trained;
} zx_data_request;

// E_USAGE for what is written wrongly, E_DATA for inputs without a source (all of them listed) and
// files that aren't data, E_IO. What was chosen without being asked for becomes a note.
zx_status zx_data_open(const zx_data_request *request, zx_arena *mem, zx_data **out,
                       zx_notes *notes, zx_err *err);
void zx_data_close(zx_data *d); // accepts NULL

// The shapes that the files give, for zx_import_options.
uint32_t zx_data_shapes(const zx_data *d, const zx_input_shape **out);

// Closes the files that were only found beside the model, and forgets their shapes; false: there
// are none.
bool zx_data_leave_out_beside(zx_data *d);

// Checks types, shapes and sample counts against the graph. micro: samples of a micro-batch;
// per_step: micro-batches of a step over all ranks. E_DATA with both sides shown.
zx_status zx_data_bind(zx_data *d, const zx_graph *forward, int64_t micro, uint32_t per_step,
                       zx_notes *notes, zx_err *err);

// The same of what is evaluated: every sample once, in order, in as many micro-batches as that
// takes. Where the last one isn't full its samples repeat the last one with labels `ignored`; pads
// false: it has to be full, E_DATA. An index of a micro-batch beyond is one of nothing but such
// samples.
zx_status zx_data_bind_eval(zx_data *d, const zx_graph *forward, int64_t micro, bool pads,
                            int64_t ignored, zx_notes *notes, zx_err *err);
uint64_t zx_data_micro_batches(const zx_data *d); // of zx_data_bind_eval

// Whether this file (of stat) is one that the data come from: nothing may write into it.
struct stat;
bool zx_data_reads(const zx_data *d, const struct stat *file);

// After zx_data_bind.
uint64_t zx_data_samples(const zx_data *d); // 0: every input is generated, there is no end
uint64_t zx_data_epoch(const zx_data *d);   // steps of an epoch; 0: there is no end
zx_feed zx_data_feed(const zx_data *d);     // lives as long as d
// Tokens of a sample: the length of a rank-2 integer input, 0 where there is none.
int64_t zx_data_tokens(const zx_data *d);
// Where a step met a label or an index that the model doesn't know: which file it came from, as the
// hint.
void zx_data_explain(const zx_data *d, zx_err *err);
// Where inputs had no source: a hint that has them generated, for `command`.
void zx_data_suggest(const zx_data *d, const char *command, zx_err *err);
// "x: x.npy, labels: copy:input_ids" and how samples make steps; without newline at the end.
void zx_data_describe(const zx_data *d, zx_text *out);
// {"x": "/data/x.npy", ...}: the sources as zerox.data takes them, files by their full paths, so
// that they mean the same wherever the config lies.
void zx_data_json(const zx_data *d, zx_text *out);

// i's place in a permutation of [0, n) that (seed, epoch) chooses; needs no memory.
uint64_t zx_data_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#endif

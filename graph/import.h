// import.h - an ONNX file becomes a forward graph.
//
// One walk over the nodes in topological order. All dims are bound before it starts, so every shape
// is known; a node whose inputs are all constants is evaluated at once and leaves no node, and what
// shapes, axes and sizes need is therefore always a constant. What can't be folded and isn't an
// operator of ours is refused by node name, all at once.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_IMPORT_H
#define ZX_GRAPH_IMPORT_H

#include "graph/graph.h"

struct zx_onnx_file; // proto/onnx_file.h

// A tensor whose bytes are known.
typedef struct zx_tensor {
    zx_type type;
    const void *data; // C order; 64-byte aligned where an evaluator reads or writes it
} zx_tensor;

// Runs one op on constants. `runtime` hands the CPU kernels in; `graph` knows no kernel.
typedef struct zx_eval {
    // in[i].data == NULL: omitted. Outputs' types are inferred, their bytes given, 64-byte aligned.
    zx_status (*run)(const struct zx_eval *self, zx_op_id op, const zx_attrs *attrs,
                     const zx_tensor *in, uint32_t n_in, const zx_tensor *out, uint32_t n_out,
                     zx_err *err);
} zx_eval;

typedef struct zx_bind { // the size of a symbolic dimension, or the shape that data gives an input
    const char *name;
    int64_t size;
} zx_bind;

typedef struct zx_input_shape { // for one graph input, as far as its data says
    const char *name;
    uint32_t rank;            // of one sample, without axis 0
    int64_t dim[ZX_MAX_RANK]; // dims 1.. of the input; -1: the data doesn't say
} zx_input_shape;

typedef enum zx_loss_kind { ZX_LOSS_GRAPH, ZX_LOSS_CROSS_ENTROPY, ZX_LOSS_MSE } zx_loss_kind;

typedef struct zx_import_options {
    const zx_eval *eval;
    int64_t micro_batch; // what the first dim of the inputs is bound to where it is symbolic; 0:
                         // not given, use 1
    uint32_t n_dims, n_shapes;
    const zx_bind *dims;          // --dim seq=1024
    const zx_input_shape *shapes; // from the data
    uint32_t n_parameters, n_buffers;
    const char *const *parameters; // zerox.parameters, zerox.buffers: name patterns that override
    const char *const *buffers;
    bool keep_ties;              // don't split merged equal weights
    bool batch_norm_as_exported; // zerox.batch_norm: "as_exported"
    bool inference;    // for evaluation: nothing is dropped, batches are normalised by the running
                       // statistics, also where the export trains
    zx_loss_kind loss; // GRAPH: the graph's scalar output
    const char *loss_prediction,
        *loss_label;           // names, for the other kinds; the label may be a new input
    int64_t loss_ignore_index; // cross_entropy; -100 by default
    double loss_smoothing;
    bool forward_only;   // `zerox check`: a graph without a loss is fine
    uint64_t seed;       // for parameters that RandomNormal and its like make
    uint64_t fold_bytes; // live bytes of folded constants at most; 0: 8 GiB
} zx_import_options;

typedef struct zx_notes { // what a user should know, one sentence each: warnings and traps
    uint32_t n, cap;
    const char **text;
} zx_notes;
void zx_note(zx_notes *notes, zx_arena *mem, const char *fmt, ...) ZX_PRINTF(3, 4);

// An input as the file declares it, for matching data before any dim is bound.
typedef struct zx_input_decl {
    const char *name;
    zx_dtype dtype;
    uint32_t rank;
    int64_t dim[ZX_MAX_RANK];        // -1: symbolic
    const char *symbol[ZX_MAX_RANK]; // its name; NULL where fixed; "" where it has none
} zx_input_decl;
// The data inputs of the graph (initialisers that are also listed as inputs are not).
zx_status zx_import_inputs(const struct zx_onnx_file *file, zx_arena *mem, uint32_t *n,
                           zx_input_decl **out, zx_err *err);

zx_status zx_import(const struct zx_onnx_file *file, const zx_import_options *options,
                    zx_arena *mem, zx_graph *out, zx_notes *notes, zx_err *err);

// True if the graph shifts its labels itself (the labels input reaches the loss through a Slice or
// Pad along the sequence axis): then labels = tokens; otherwise labels are tokens moved on by one.
// *found false: there is no label input to speak of.
bool zx_import_shifts_labels(const zx_graph *g, bool *found);

#endif

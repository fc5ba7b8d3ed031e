// import_priv.h - what the files of the importer share: the file as a flat program, what the walk
// knows of every tensor, and the few verbs that lowerings are written in.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_IMPORT_PRIV_H
#define ZX_GRAPH_IMPORT_PRIV_H

#include "graph/base/text.h"
#include "graph/import.h"
#include "graph/onnx_ops.h"
#include "proto/onnx_file.h"

// ---- the file as a flat program: names resolved, functions inlined, nodes in an order that runs
// ---

typedef enum zx_ikind { // where a tensor of the file comes from
    ZX_I_UNSET,         // a name that nothing makes
    ZX_I_INPUT,         // an input of the graph, or of a loop's body
    ZX_I_INIT,          // an initialiser
    ZX_I_NODE,          // a node's output
} zx_ikind;

typedef enum zx_iclass { ZX_I_PLAIN, ZX_I_PARAM, ZX_I_BUFFER } zx_iclass;

typedef enum zx_iknow { // what the walk knows of it
    ZX_I_UNKNOWN,
    ZX_I_VALUE,    // a value of the builder, constants included
    ZX_I_SEQUENCE, // a list of values; exists while importing only
    ZX_I_FAILED,   // made by a node that was refused: whoever reads it says nothing more
} zx_iknow;

typedef struct zx_iseq {
    uint32_t n;
    const uint32_t *v;
} zx_iseq;

typedef struct zx_inode zx_inode;

typedef struct zx_ival { // a tensor of the file
    const char *name;
    zx_ikind kind;
    const Onnx__TensorProto *init;
    const Onnx__ValueInfoProto *info; // what the file says about it, if anything
    zx_inode *by;                     // NODE
    uint32_t uses;                    // by live nodes; the walk counts down
    bool pinned;                      // read from within a branch or loop: never released
    bool reach;                       // a gradient can come back to it from the loss
    zx_iclass cls;
    uint32_t entry; // PARAM, BUFFER: place in zx_imp's params or buffers
    zx_iknow know;
    uint32_t v; // VALUE
    zx_iseq seq;
} zx_ival;

typedef struct zx_iregion { // the graph itself, or the body of a branch or loop
    uint32_t n_nodes, n_in, n_out, n_captured, cap_captured;
    zx_inode **nodes;
    uint32_t *in, *out;
    uint32_t *captured; // tensors of enclosing regions that are read in here
} zx_iregion;

typedef struct zx_iattr {
    const char *name;
    const Onnx__AttributeProto *a;
    zx_iregion *body; // of a graph attribute
} zx_iattr;

struct zx_inode {
    const char *name; // for messages: the node's name, or operator and output
    const char *domain, *op;
    const zx_onnx_op *row; // NULL: an operator that zerox doesn't have
    int64_t opset;
    uint32_t source; // graph->sources
    uint32_t n_in, n_out, n_attrs;
    uint32_t *in, *out; // zx_ival; ZX_NONE where omitted
    const zx_iattr *attrs;
    const zx_iregion *region;
    bool live;
    uint8_t mark; // used while ordering
};

// ---- the state of an import
// -------------------------------------------------------------------------

typedef struct zx_iblock { // bytes that folding made, shared by constants that are views of each
                           // other
    void *memory, *bytes;  // as allocated, and aligned
    uint64_t size;
    uint32_t refs;
} zx_iblock;

typedef struct zx_iaux { // beside every value of the builder
    uint32_t block;      // of a constant; ZX_NONE: its bytes are the file's or live in `tmp`
    uint32_t shrunk; // the constant without the repetition along `shrunk_axes`; ZX_NONE: not made
    uint32_t shrunk_axes,
        repeats; // bit an axis: all slices are equal. repeats_known says whether it was looked at
    bool repeats_known;
    bool used;      // a node of the graph reads it: stays
    uint32_t bound; // tensors of the file that it stands for
    bool trained;   // depends on a parameter
} zx_iaux;

typedef struct zx_iparam { // a parameter or buffer to be
    uint32_t ival;
    const char *name, *why;
    zx_type type;
    zx_init init;
    uint32_t order; // place in the exporter's signature, or after all of those by first use
    uint32_t n_aliases, cap_aliases;
    const char **aliases;
    bool changes; // a buffer that normalisation updates
    uint32_t v;   // the builder's value
    uint32_t now; // a buffer's value after what was walked so far
} zx_iparam;

typedef struct zx_imp {
    const zx_onnx_file *file;
    const zx_import_options *options;
    zx_arena tmp;  // everything here ends with the import
    zx_arena *mem; // the result's
    zx_notes *notes;
    zx_builder b; // in tmp
    zx_err *err;  // all causes

    uint32_t n_vals, cap_vals;
    zx_ival *vals;
    zx_iregion *main;
    uint32_t n_flat; // nodes of all regions

    bool has_kinds; // a tensor says what it is (InputSpec.kind)
    uint32_t n_signature;
    const char **signature; // PARAMETER targets, in the exporter's order

    uint32_t n_params, cap_params, n_buffers, cap_buffers;
    zx_iparam *params, *buffers;
    uint32_t n_odd; // parameters of types that can't be trained, with the first few of their names
    zx_dtype odd;   // of the first
    bool odd_mixed; // others have another type
    zx_text odd_names;

    uint32_t n_roots, cap_roots;
    uint32_t *roots;     // tensors that must be made: the loss, or all outputs
    uint32_t loss_ival;  // the graph's own loss; ZX_NONE
    uint32_t prediction; // tensor that an appended loss compares; ZX_NONE

    uint32_t n_blocks, cap_blocks, cap_aux, n_used, cap_used;
    uint32_t *used; // constants that nodes of the graph read
    zx_iblock *blocks;
    uint64_t block_bytes;
    zx_iaux *aux;

    // the node at hand
    const zx_inode *node;
    uint32_t first_value; // values from here on were made for it
    uint32_t n_walked;    // nodes so far, each iteration of a loop counted
    uint32_t unroll;      // iteration of the innermost unrolled loop, part of random streams' keys
    zx_status st;         // sticky: verbs do nothing once it isn't ZX_OK
    zx_err one;           // what is wrong with it
} zx_imp;

// ---- steps, in order
// ---------------------------------------------------------------------------------

zx_status zx_import_flatten(zx_imp *c);  // import_flat.c: fills vals, main and the sources
zx_status zx_import_roots(zx_imp *c);    // import_loss.c: what must be made
void zx_import_live(zx_imp *c);          // import_flat.c: marks nodes and counts uses
zx_status zx_import_classify(zx_imp *c); // import_params.c: parameters and buffers
void zx_import_ties(zx_imp *c);          // import_ties.c: aliases; merged equal weights split
zx_status zx_import_bind(zx_imp *c);     // import_bind.c: inputs with all dims known
void zx_import_walk(zx_imp *c, const zx_iregion *r); // import.c
zx_status zx_import_loss(zx_imp *c);                 // import_loss.c: the loss value
void zx_import_finish(zx_imp *c, zx_graph *out);     // import_finish.c: what is needed, in `mem`

void zx_ival_load(zx_imp *c, uint32_t i); // import.c: an initialiser gets its value
uint32_t zx_ival_add(zx_imp *c, const char *name, zx_ikind kind);
const char *zx_ival_meta(const zx_imp *c, const zx_ival *v, const char *key); // NULL: not said
// The module that a node stands in, and its own words for messages.
const char *zx_inode_module(const zx_imp *c, const zx_inode *n);
// The tensor that a Constant node, or an initialiser, holds; NULL if it isn't a plain tensor.
const Onnx__TensorProto *zx_ival_tensor(const zx_imp *c, const zx_ival *v);
const zx_iattr *zx_inode_attr(const zx_inode *n, const char *name);
// Adds a cause about a node (or, node NULL, the whole file).
zx_status zx_import_fail(zx_imp *c, const zx_inode *n, zx_status code, const char *fmt, ...)
    ZX_PRINTF(4, 5);

// ---- verbs of lowerings. Once one fails, c->st says so and the others return ZX_NONE
// ---------------------

static inline bool zx_ok(const zx_imp *c)
{
    return c->st == ZX_OK;
}
uint32_t zx_fail(zx_imp *c, zx_status code, const char *fmt, ...) ZX_PRINTF(3, 4); // ZX_NONE
// Takes over what a function that writes to c->one returned; true if all is well.
bool zx_did(zx_imp *c, zx_status st);

uint32_t zx_in(zx_imp *c, uint32_t i); // the value of the node's input i; ZX_NONE: omitted
bool zx_given(const zx_imp *c, uint32_t i);
bool zx_wanted(const zx_imp *c, uint32_t i); // output i is named by the node
void zx_out(zx_imp *c, uint32_t i, uint32_t v);
void zx_out_seq(zx_imp *c, uint32_t i, uint32_t n, const uint32_t *v);
const zx_iseq *zx_in_seq(zx_imp *c, uint32_t i); // NULL and failed if it isn't one

const zx_shape *zx_s(const zx_imp *c, uint32_t v); // shape; rank 0 for ZX_NONE
uint32_t zx_rank(const zx_imp *c, uint32_t v);
int64_t zx_dim(const zx_imp *c, uint32_t v, uint32_t axis);
zx_dtype zx_t(const zx_imp *c, uint32_t v);
bool zx_is_const(const zx_imp *c, uint32_t v);
// -rank <= axis < rank becomes 0 <= axis < rank.
uint32_t zx_axis(zx_imp *c, int64_t axis, uint32_t rank);

// Attributes of the node; wrong types are failures.
bool zx_has(const zx_imp *c, const char *name);
int64_t zx_int(zx_imp *c, const char *name, int64_t absent);
double zx_float(zx_imp *c, const char *name, double absent);
const char *zx_string(zx_imp *c, const char *name, const char *absent);
const int64_t *zx_ints(zx_imp *c, const char *name, uint32_t *n); // NULL: absent
const double *zx_floats(zx_imp *c, const char *name, uint32_t *n);
bool zx_need(zx_imp *c, const char *name); // fails if the attribute is missing
// The index of attribute `name` (a string) among `words`.
uint32_t zx_choice(zx_imp *c, const char *name, uint32_t absent, const char *const *words,
                   uint32_t n);

// Attributes of IR nodes, in tmp.
zx_attrs zx_with_int(zx_imp *c, zx_attrs a, zx_attr_id id, int64_t x);
zx_attrs zx_with_ints(zx_imp *c, zx_attrs a, zx_attr_id id, const int64_t *x, uint32_t n);
zx_attrs zx_with_float(zx_imp *c, zx_attrs a, zx_attr_id id, double x);
zx_attrs zx_with_shape(zx_imp *c, zx_attrs a, const zx_shape *s); // SHAPE
#define ZX_NO_ATTRS ((zx_attrs){0})

// Constants. `what` names it in the message for one that isn't constant.
const int64_t *zx_const_ints(zx_imp *c, uint32_t v, const char *what,
                             uint32_t *n); // any integer type
int64_t zx_const_int(zx_imp *c, uint32_t v, const char *what);
double zx_const_float(zx_imp *c, uint32_t v, const char *what); // any type, one element
const double *zx_const_floats(zx_imp *c, uint32_t v, const char *what, uint32_t *n);
double zx_const_at(const zx_imp *c, uint32_t v, int64_t i);  // element i of a constant as a double
uint32_t zx_k(zx_imp *c, zx_dtype t, double x);              // scalars
uint32_t zx_k_ints(zx_imp *c, const int64_t *x, uint32_t n); // int64 [n]
uint32_t zx_k_int(zx_imp *c, int64_t x);                     // int64 []
uint32_t zx_k_file(zx_imp *c, const Onnx__TensorProto *t, const char *name); // a tensor of the file
// A new constant of this type; its bytes, zeroed, to be filled in by the caller.
uint32_t zx_k_new(zx_imp *c, const zx_type *t, void **bytes);
uint32_t zx_k_fill(zx_imp *c, const zx_type *t, double x);
void zx_put(void *bytes, zx_dtype t, int64_t i, double x); // element i = x

// One IR node, folded if all its inputs are constants.
void zx_ir_emit(zx_imp *c, zx_op_id op, zx_attrs attrs, const uint32_t *in, uint32_t n_in,
                uint32_t *out);
uint32_t zx_e1(zx_imp *c, zx_op_id op, zx_attrs attrs, uint32_t a);
uint32_t zx_e2(zx_imp *c, zx_op_id op, zx_attrs attrs, uint32_t a, uint32_t b);
uint32_t zx_e3(zx_imp *c, zx_op_id op, zx_attrs attrs, uint32_t a, uint32_t b, uint32_t d);
uint32_t zx_reshape(zx_imp *c, uint32_t v, const zx_shape *to);
uint32_t zx_reshape_to(zx_imp *c, uint32_t v, uint32_t rank, const int64_t *dim);
uint32_t zx_expand(zx_imp *c, uint32_t v, const zx_shape *to); // v broadcasts to it
uint32_t zx_transpose(zx_imp *c, uint32_t v, const int64_t *perm);
uint32_t zx_slice(zx_imp *c, uint32_t v, uint32_t axis, int64_t start, int64_t n);
uint32_t zx_concat(zx_imp *c, const uint32_t *v, uint32_t n, uint32_t axis);
uint32_t zx_cast(zx_imp *c, uint32_t v, zx_dtype to);
uint32_t zx_reduce(zx_imp *c, zx_op_id op, uint32_t v, const int64_t *axes, uint32_t n, bool keep);
uint32_t zx_scale(zx_imp *c, uint32_t v, double by); // v * by, v itself for 1
// The node that makes v if it is of this op (through no other), else NULL.
const zx_node *zx_made_by(const zx_imp *c, uint32_t v, zx_op_id op);
uint32_t zx_matmul(zx_imp *c, uint32_t a, uint32_t b, bool ta, bool tb, double alpha,
                   uint32_t bias);
// A scale or bias of one element a channel, [M] to [M, 1, 1..] so that it broadcasts from axis 1.
uint32_t zx_channel(zx_imp *c, uint32_t v, uint32_t rank);

void zx_release(zx_imp *c);           // drops constants of the node at hand that nothing stands for
void zx_hold(zx_imp *c, uint32_t v);  // a tensor of the file needs v
void zx_drop(zx_imp *c, uint32_t v);  // and no longer does
void zx_train(zx_imp *c, uint32_t v); // v is a parameter
uint32_t zx_use(zx_imp *c,
                uint32_t v); // v, kept for the graph; an equal constant where there is one
void zx_blocks_free(zx_imp *c);
bool zx_all_equal(const void *data, int64_t n); // n float32

#endif

// graph.h - a model as flat arrays that refer to each other by index. The same type holds the
// forward graph that import makes and the train graph that autodiff makes of it.
//
// Everything a graph points to lives in the arena it was made in, or in the mapped model file
// (constants' and parameters' bytes), which must outlive it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_GRAPH_H
#define ZX_GRAPH_GRAPH_H

#include "graph/base/arena.h"
#include "graph/base/text.h"
#include "graph/op.h"

typedef enum zx_phase { ZX_FORWARD, ZX_BACKWARD } zx_phase;
typedef enum zx_role { ZX_R_INPUT, ZX_R_PARAM, ZX_R_BUFFER, ZX_R_CONST, ZX_R_MADE } zx_role;

typedef struct zx_value { // a tensor
    const char *name;     // the file's name, or one made up; never NULL
    zx_type type;
    zx_role role;
    uint32_t by;      // MADE: the node that makes it, else ZX_NONE
    uint32_t index;   // INPUT, PARAM, BUFFER: place in graph->inputs, params, buffers; else ZX_NONE
    const void *data; // CONST: its bytes, C order, at any alignment; else NULL
} zx_value;

typedef struct zx_node { // one use of an op
    const char *name;    // the file's node name; what autodiff adds is named after its forward node
    uint8_t op;          // zx_op_id
    uint8_t phase;       // zx_phase
    uint32_t in, n_in;   // range of graph->refs: values; ZX_NONE: an omitted optional input
    uint32_t out, n_out;
    zx_attrs attrs;
    // The imported node it comes from, the last where it does the work of several: graph->sources;
    // ZX_NONE. And the first of them.
    uint32_t source, first_source;
} zx_node;

// How a tensor gets its first bytes. Every element is a function of (seed, name, index in C order),
// so that a rank can make only its shard.
typedef enum zx_init_kind {
    ZX_INIT_DATA,
    ZX_INIT_FILL,
    ZX_INIT_NORMAL,
    ZX_INIT_UNIFORM
} zx_init_kind;
typedef struct zx_init {
    zx_init_kind kind;
    const void *data; // DATA: f32, C order, any alignment
    double a, b;      // FILL: a. NORMAL: mean a, deviation b. UNIFORM: [a, b)
    uint64_t seed;
} zx_init;

typedef struct zx_param { // what the optimizer trains, one unit each
    uint32_t value;
    const char *name; // the name it is saved under
    zx_init init;
    uint32_t grad; // the value that holds one micro-batch's gradient; ZX_NONE before autodiff, and
                   // after it where no gradient reaches the parameter or it is frozen: saved, never
                   // trained
    uint32_t n_aliases;
    const char *const *aliases; // other names of the same tensor
    const char *why;            // what made it a parameter, for `zerox check`
    bool frozen;                // it is to stay as it is: autodiff leaves it out
} zx_param;

typedef struct zx_buffer { // state that training changes without a gradient (running statistics)
    uint32_t value;
    const char *name;
    zx_init init;
    uint32_t next; // the value that holds it after one more micro-batch; ZX_NONE: never changes
    const char *why;
} zx_buffer;

// A node as the exporter wrote it, before any folding: the hook-driven baseline replays these.
typedef struct zx_source {
    const char *name, *op;
    uint32_t n_in, n_out, n_scopes;
    const char *const *in, *const *out; // tensor names, "" where omitted
    const char *const *scopes; // module path, outermost first, from pkg.torch.onnx.name_scopes
    const char *part;          // the exporter's operator that it is part of, the last of its
                               // scopes; "" where it doesn't say
    const char *types;         // of those modules, as the exporter lists them: "path: class/..."
    // The tensors themselves, numbered over the file (graph->tensor_params), since inlined
    // functions repeat names; NULL in a graph that no file was imported for.
    const uint32_t *in_ids, *out_ids; // ZX_NONE: omitted
    uint32_t diff;                    // bit i: a gradient passes to input i; bit 31: to all further
} zx_source;

typedef struct zx_graph {
    const char *name; // the file, for messages
    uint32_t n_nodes, n_values, n_refs, n_inputs, n_params, n_buffers, n_sources;
    const zx_node *nodes; // in an order that runs
    const zx_value *values;
    const uint32_t *refs;
    const uint32_t *inputs; // values, in the file's order; unused ones included
    const zx_param *params; // in the order of the exporter's signature, else of first use
    const zx_buffer *buffers;
    const zx_source *sources;
    uint32_t loss; // scalar f32 value; ZX_NONE until there is one
    uint32_t seed; // the f32 constant that the backward pass starts from, read by nothing else:
                   // every gradient is proportional to it. ZX_NONE before autodiff
    // Tensors of the sources: which parameter each is (merged ones split), else ZX_NONE; and the
    // one that the backward pass starts from: the loss, or what a loss of ours was put behind.
    uint32_t n_tensors, source_loss;
    const uint32_t *tensor_params;
} zx_graph;

static inline uint32_t zx_node_in(const zx_graph *g, const zx_node *n, uint32_t i)
{
    return i < n->n_in ? g->refs[n->in + i] : ZX_NONE;
}
static inline uint32_t zx_node_out(const zx_graph *g, const zx_node *n, uint32_t i)
{
    return i < n->n_out ? g->refs[n->out + i] : ZX_NONE;
}
// "a/b" for messages: the node's module path joined by dots, "" if it has none.
const char *zx_node_module(const zx_graph *g, const zx_node *n, zx_arena *mem);
// Views followed to the value that has the bytes: root[n_values], into mem.
const uint32_t *zx_graph_roots(const zx_graph *g, zx_arena *mem);
// A 64-bit FNV-1a hash over everything that decides a plan and its results (not constants' bytes).
uint64_t zx_graph_hash(const zx_graph *g);

// ---- writing a graph
// ------------------------------------------------------------------------------
//
// A builder is a graph whose arrays grow. Import, autodiff and tests write through it; nothing else
// changes a graph. zx_builder_done hands the arrays over and ends the builder.
struct zx_builder {
    zx_arena *mem; // where all of it lives
    zx_graph g;    // const arrays below, seen through g for reading
    zx_node *nodes;
    zx_value *values;
    uint32_t *refs;
    uint32_t *inputs;
    zx_param *params;
    zx_buffer *buffers;
    zx_source *sources;
    uint32_t cap_nodes, cap_values, cap_refs, cap_inputs, cap_params, cap_buffers, cap_sources;
    // Distinct scalar constants among the first n_seen values, for zx_build_scalar.
    uint32_t *scalars;
    uint32_t n_scalars, cap_scalars, n_seen;
    // Stamped on every node that is added; set them before a run of zx_build calls.
    const char *at_name;
    uint32_t at_source, at_first_source;
    zx_phase at_phase;
    // Evaluates a node whose inputs are all constants (see import.h); NULL: nothing is folded here.
    const struct zx_eval *eval;
};

void zx_builder_start(zx_builder *b, zx_arena *mem, const char *name);
// A builder that goes on where `g` ends: all its arrays are copied, indices stay valid.
void zx_builder_continue(zx_builder *b, zx_arena *mem, const zx_graph *g);
void zx_builder_done(zx_builder *b, zx_graph *out);

uint32_t zx_build_value(zx_builder *b, const char *name, zx_role role, const zx_type *type);
uint32_t zx_build_input(zx_builder *b, const char *name, const zx_type *type); // returns the value
uint32_t zx_build_const(zx_builder *b, const char *name, const zx_type *type, const void *data);
uint32_t zx_build_scalar(zx_builder *b, zx_dtype t, double x); // rank 0; the same value shared
uint32_t zx_build_param(zx_builder *b, const zx_type *type, const zx_param *p);   // value is set
uint32_t zx_build_buffer(zx_builder *b, const zx_type *type, const zx_buffer *x); // value is set

// Adds a node: checks the count of inputs, infers the outputs' types, makes the output values
// (named after the node unless `names` gives names) and writes their indices to out[0..n_out of the
// op). Fails with the op's own words for shapes or types that don't fit. Nothing is folded or
// removed.
zx_status zx_build_node(zx_builder *b, zx_op_id op, const uint32_t *in, uint32_t n_in,
                        zx_attrs attrs, const char *const *names, uint32_t *out, zx_err *err);
// The same for ops with one output whose inputs are known to fit (autodiff): returns that output.
uint32_t zx_build1(zx_builder *b, zx_op_id op, zx_attrs attrs, uint32_t n_in, ...); // uint32_t each
// Shorthands: what grad_ functions mostly write. Each returns the new value, or the old one where
// nothing is to be done.
uint32_t zx_build_reshape(zx_builder *b, uint32_t x, const zx_shape *to);
uint32_t zx_build_expand(zx_builder *b, uint32_t x, const zx_shape *to);
uint32_t zx_build_sum_to(zx_builder *b, uint32_t x, const zx_shape *to);
uint32_t zx_build_transpose(zx_builder *b, uint32_t x, const int64_t *perm);
static inline const zx_shape *zx_shape_of(const zx_builder *b, uint32_t value)
{
    return &b->values[value].type.shape;
}

#endif

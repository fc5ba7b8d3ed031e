// op.h - the operator table that ops.def becomes, as the graph layer sees it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_OP_H
#define ZX_GRAPH_OP_H

#include "graph/base/attr.h"

typedef enum zx_op_id {
#define ZX_OP(id, ...) ZX_OP_##id,
#include "graph/ops.def"
#undef ZX_OP
    ZX_OP_COUNT
} zx_op_id;

enum {
    ZX_OP_VIEW = 1 << 0,    // output 0 is input 0's bytes under another shape: never executed
    ZX_OP_INPLACE = 1 << 1, // output 0 may share the bytes of an input of the same type and size
                            // that is read here for the last time
};

typedef struct zx_cost { // of one execution
    double flops;
    double bytes; // read and written
} zx_cost;

typedef struct zx_builder zx_builder; // the graph being written, see graph.h

// One node with the types of its inputs; `out` is known once `infer` has run.
typedef struct zx_op_args {
    zx_op_id op;
    const zx_attrs *attrs;
    uint32_t n_in, n_out;
    const zx_type *const *in; // NULL: an omitted optional input
    const zx_type *out;
} zx_op_args;

// Writes the n_out output types, or says which shapes or dtypes don't fit (E_SHAPE).
typedef zx_status zx_infer_fn(const zx_op_args *args, zx_type *out, zx_err *err);
typedef zx_cost zx_cost_fn(const zx_op_args *args);
// Adds nodes that turn dy (one an output; ZX_NONE: no gradient arrived) into dx (one an input, set
// to ZX_NONE by the caller). Only entries with need[i] have to be made. The gradient has exactly
// the shape of the input.
typedef zx_status zx_grad_fn(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                             uint32_t *dx, zx_err *err);

typedef struct zx_op {
    const char *word;
    int8_t min_in, max_in; // max_in -1: any number
    uint8_t n_out, flags;
    zx_infer_fn *infer;
    zx_grad_fn *grad; // NULL: not differentiable
    zx_cost_fn *cost;
} zx_op;

extern const zx_op zx_ops[ZX_OP_COUNT];

#define ZX_OP(id, word, lo, hi, outs, flags, infer, grad, cost, kern)                              \
    zx_infer_fn zx_infer_##infer;                                                                  \
    zx_grad_fn zx_grad_##grad;                                                                     \
    zx_cost_fn zx_cost_##cost;
#include "graph/ops.def"
#undef ZX_OP

#endif

// onnx_ops.h - which ONNX operators zerox imports, and how: onnx_ops.def as a table.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_ONNX_OPS_H
#define ZX_GRAPH_ONNX_OPS_H

#include "graph/op.h"

struct zx_imp;
typedef void zx_lower_fn(struct zx_imp *c); // turns the node at hand into IR nodes or constants

typedef struct zx_onnx_op {
    const char *domain, *name;
    int16_t first, last;    // opset versions that are imported
    int16_t min_in, max_in; // the first min_in inputs can't be omitted; -1: any number
    int16_t max_out;        // -1: any number
    uint32_t diff; // bit i: a gradient passes through input i; bit 31: and all further ones
    zx_lower_fn *lower;
    zx_op_id op; // what lowerings that serve many rows make; ZX_OP_COUNT: not used
} zx_onnx_op;

#define ZX_ONNX(domain, name, first, last, lo, hi, outs, diff, lower, op)                          \
    zx_lower_fn zx_lower_##lower;
#include "graph/onnx_ops.def"
#undef ZX_ONNX

#define ZX_ONNX_OPSET_LAST 25

extern const zx_onnx_op zx_onnx_ops[];
extern const uint32_t zx_onnx_n_ops;

// NULL: unknown. Domains "" and "ai.onnx" are one.
const zx_onnx_op *zx_onnx_op_find(const char *domain, const char *name);
// The operator whose name is nearest, for messages; NULL: none is near.
const char *zx_onnx_op_nearest(const char *name);
static inline bool zx_onnx_op_diff(const zx_onnx_op *op, uint32_t input)
{
    return (op->diff >> (input < 31 ? input : 31)) & 1;
}

#endif

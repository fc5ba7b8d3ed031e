// ops.h - what the families of operators share: checks of inputs and attributes, and short ways to
// read the node that a gradient is written for.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_OPS_OPS_H
#define ZX_GRAPH_OPS_OPS_H

#include "graph/graph.h"

// ---- for infer_: every check says what is wrong in words, prefixed with the op's
// ------------------

typedef enum zx_wants { // what element types an op takes
    ZX_WANTS_ANY,
    ZX_WANTS_NUMBER, // anything but bool
    ZX_WANTS_FLOAT,
    ZX_WANTS_BOOL,
    ZX_WANTS_LOGIC, // bool or integer
    ZX_WANTS_INDEX, // int32 or int64
} zx_wants;

static inline const zx_type *zx_arg(const zx_op_args *a, uint32_t i) // NULL: omitted
{
    return i < a->n_in ? a->in[i] : NULL;
}
static inline const char *zx_arg_op(const zx_op_args *a)
{
    return zx_ops[a->op].word;
}
// The count of inputs, and that none of those that the op can't do without is omitted.
zx_status zx_args_check(const zx_op_args *a, zx_err *err);
// Input i, if given, has the element type that is wanted.
zx_status zx_args_wants(const zx_op_args *a, uint32_t i, zx_wants wants, zx_err *err);
// Input i, if given, has the element type (or the shape) of input j.
zx_status zx_args_same_dtype(const zx_op_args *a, uint32_t i, uint32_t j, zx_err *err);
zx_status zx_args_same_shape(const zx_op_args *a, uint32_t i, uint32_t j, zx_err *err);
// Input i, if given, has exactly this shape.
zx_status zx_args_shape_is(const zx_op_args *a, uint32_t i, const zx_shape *s, zx_err *err);
// Input i, if given, is one element.
zx_status zx_args_one(const zx_op_args *a, uint32_t i, zx_err *err);
// An integer attribute that must be there with exactly n numbers, each in [least, most].
zx_status zx_args_ints(const zx_op_args *a, zx_attr_id id, uint32_t n, int64_t least, int64_t most,
                       const int64_t **v, zx_err *err);
// SHAPE, checked.
zx_status zx_args_shape(const zx_op_args *a, zx_shape *out, zx_err *err);
// AXIS, in [0, rank).
zx_status zx_args_axis(const zx_op_args *a, uint32_t rank, uint32_t *axis, zx_err *err);
// An integer attribute in [least, most]; `absent` where it isn't there.
zx_status zx_args_int(const zx_op_args *a, zx_attr_id id, int64_t absent, int64_t least,
                      int64_t most, int64_t *v, zx_err *err);
// One output's type; E_SHAPE where it would have too many elements.
zx_status zx_args_out(const zx_op_args *a, zx_dtype t, const zx_shape *s, zx_type *out,
                      zx_err *err);

// Any input; the output has the shape that SHAPE says. What most infer_ with a SHAPE begin with.
zx_infer_fn zx_infer_shape_attr;

// ---- for grad_ ---------------------------------------------------------------------------------

static inline uint32_t zx_grad_in(const zx_builder *b, uint32_t node, uint32_t i)
{
    const zx_node *n = &b->nodes[node];
    return i < n->n_in ? b->refs[n->in + i] : ZX_NONE;
}
static inline uint32_t zx_grad_out(const zx_builder *b, uint32_t node, uint32_t i)
{
    const zx_node *n = &b->nodes[node];
    return i < n->n_out ? b->refs[n->out + i] : ZX_NONE;
}
static inline const zx_shape *zx_grad_shape(const zx_builder *b, uint32_t node, uint32_t i)
{
    return zx_shape_of(b, zx_grad_in(b, node, i));
}
static inline zx_op_id zx_grad_op(const zx_builder *b, uint32_t node)
{
    return (zx_op_id)b->nodes[node].op;
}
static inline zx_attrs zx_grad_attrs(const zx_builder *b, uint32_t node)
{
    return b->nodes[node].attrs;
}
// The node's attributes with SHAPE set to that of its input i.
static inline zx_attrs zx_grad_attrs_shape(zx_builder *b, uint32_t node, uint32_t i)
{
    return zx_attrs_shape(b->mem, b->nodes[node].attrs, ZX_A_SHAPE, zx_grad_shape(b, node, i));
}
static inline uint32_t zx_grad_zero_f32(zx_builder *b)
{
    return zx_build_scalar(b, ZX_F32, 0);
}
// y = x * s for a scalar s; x itself where s is 1.
uint32_t zx_grad_scale(zx_builder *b, uint32_t x, double s);
// The row whose word is that of `op` with "Grad" behind it.
zx_op_id zx_grad_row(zx_op_id op);
// For a gradient that arrives at an output which has none to pass on.
zx_status zx_grad_only_first(const zx_builder *b, uint32_t node, const uint32_t *dy, zx_err *err);

// ---- for cost_ ---------------------------------------------------------------------------------

double zx_cost_bytes_in(const zx_op_args *a);
double zx_cost_bytes_out(const zx_op_args *a);

#endif

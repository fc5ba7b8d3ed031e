// fuse_parts.h - what the fusion passes are written with.
//
// A pass is a function that is shown every forward node once, in order, as the possible end of its
// pattern. It looks back from there with the zx_m_ functions, and if all fits it builds the new
// nodes with `m->b` (zx_build_node, zx_build1, ...) out of values of the graph, writes what takes
// the place of the node's outputs to out[0..n_out of the node] (ZX_NONE: nobody reads that one) and
// returns true. The framework puts the new nodes where the last one was, lets everybody read them
// instead, and leaves out what nobody reads any more. Where it returns false nothing must have been
// built.
//
// Values keep their indices while a pass runs: all that m->g shows may be used as an operand. An
// operand of a new node must have been made before the node that was shown.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_FUSE_PARTS_H
#define ZX_GRAPH_FUSE_PARTS_H

#include "graph/fuse.h"

typedef struct zx_match {
    const zx_graph *g;
    zx_builder *b;
    const uint32_t
        *uses;      // by value: how many operands of nodes it is, and the loss or a buffer's next
    uint32_t least; // the first source of what was recognised so far (zx_m_by)
    uint32_t *instead; // by value of the graph: what is read in its place (zx_m_also)
    zx_arena scratch;  // freed after each node that was shown
} zx_match;

typedef bool zx_fuse_fn(zx_match *m, uint32_t node, uint32_t *out);

// Shows every node of g to one pass; how often it replaced something. Where that is 0, *out isn't
// written. The train graph may be shown, too.
uint32_t zx_fuse_run(const zx_graph *g, zx_fuse_fn *function, zx_arena *mem, zx_graph *out);

#define ZX_FUSE(id, word, function, help) zx_fuse_fn zx_fuse_##function;
#include "graph/fuse.def"
#undef ZX_FUSE

// ---- looking back
// --------------------------------------------------------------------------------- The node that
// makes v if it is of this op, else NULL. _once: and nobody else reads v, so that the node can go.
const zx_node *zx_m_by(zx_match *m, uint32_t v, zx_op_id op);
const zx_node *zx_m_once(zx_match *m, uint32_t v, zx_op_id op);
// v behind any reshapes; v itself where there are none.
uint32_t zx_m_behind_views(const zx_match *m, uint32_t v);
// Whether v is a float constant whose elements are all the same: its value.
bool zx_m_number(const zx_match *m, uint32_t v, double *x);
// Whether it is, and within 1e-6 (relative) of `want`; constants are often rounded or given in f32.
bool zx_m_is(const zx_match *m, uint32_t v, double want);
// A node of two inputs of which one is such a constant: the other one and the number.
bool zx_m_with_number(const zx_match *m, const zx_node *n, uint32_t *other, double *x);
// The same where the number has to be `want`.
bool zx_m_with(const zx_match *m, const zx_node *n, double want, uint32_t *other);
// Element i of a constant of any number dtype, as a double; `v` must have data.
double zx_m_element(const zx_match *m, uint32_t v, uint64_t i);
// Two operands in either order: whether `n` is op(a, something): that something.
bool zx_m_other(const zx_match *m, const zx_node *n, uint32_t a, uint32_t *other);

// Beside the node's outputs: whoever reads v, made by a node before or behind, reads `with`. Nobody
// may have read v before the node that is shown.
void zx_m_also(zx_match *m, uint32_t v, uint32_t with);

// v as a product: constants multiplied out, and what else there is, however it is nested. Looks
// into products that nobody else reads, and divisions by constants. False: more than fits.
#define ZX_M_FACTORS 4
typedef struct zx_factors {
    double number; // of all constants; 1: none
    uint32_t n, of[ZX_M_FACTORS];
} zx_factors;
bool zx_m_factors(zx_match *m, uint32_t v, zx_factors *f); // the product itself may be read often

static inline const zx_shape *zx_m_shape(const zx_match *m, uint32_t v)
{
    return &m->g->values[v].type.shape;
}
static inline uint32_t zx_m_in(const zx_match *m, const zx_node *n, uint32_t i)
{
    return zx_node_in(m->g, n, i);
}

#endif

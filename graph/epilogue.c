// epilogue.c - see epilogue.h.
//
// A product and what follows it are one node where nobody reads what lies between, or where that is
// an output of the node. The node has the place of the last of them, so nobody may have read any of
// its outputs before. Only the GELU by tanh: a library's epilogue is no other.
// SPDX-License-Identifier: Apache-2.0
#include "graph/epilogue.h"

#include "graph/fuse_parts.h"

static bool is_tanh(const zx_node *n)
{
    return zx_attr_int(&n->attrs, ZX_A_MODE, 0) == 1;
}

// A node before `end` reads v.
static bool is_read_before(const zx_match *m, uint32_t v, uint32_t end)
{
    for (uint32_t i = m->g->values[v].by + 1; i < end; i++)
        for (uint32_t a = 0; a < m->g->nodes[i].n_in; a++)
            if (zx_m_in(m, &m->g->nodes[i], a) == v) return true;
    return false;
}

// One matrix for all rows, and rows that aren't turned.
static bool is_linear(const zx_match *m, const zx_node *n)
{
    const zx_shape *w = zx_m_shape(m, zx_m_in(m, n, 1));
    return zx_attr_int(&n->attrs, ZX_A_TRANS_A, 0) == 0 && zx_shape_span(w, 0, w->rank - 2) == 1;
}

static int64_t columns(const zx_shape *s)
{
    return s->rank > 0 ? s->dim[s->rank - 1] : 0;
}

static zx_attrs with_mode(const zx_match *m, const zx_node *product, int64_t mode)
{
    return zx_attrs_int(m->b->mem, product->attrs, ZX_A_MODE, mode);
}

static void build(zx_match *m, zx_op_id op, const zx_attrs *attrs, const uint32_t *in,
                  uint32_t n_in, uint32_t *out)
{
    zx_err err = {0};
    const zx_status st = zx_build_node(m->b, op, in, n_in, *attrs, NULL, out, &err);
    ZX_ASSERT(st == ZX_OK); // what fits a product fits these
}

// ---- Gelu(a b + c), with the product kept for the gradient --------------------------------------

static bool gelu(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op != ZX_OP_GELU || !is_tanh(n)) return false;
    const uint32_t x = zx_m_in(m, n, 0), least = m->least;
    uint32_t v = x, made[2], in[3];
    for (const zx_node *r; (r = zx_m_by(m, v, ZX_OP_RESHAPE)) != NULL;) {
        v = zx_m_in(m, r, 0);
        if (m->uses[v] != 1) break; // somebody else wants it in the product's own shape
    }
    const zx_node *p = zx_m_by(m, v, ZX_OP_MATMUL);
    const bool fits = p != NULL && is_linear(m, p) && (v == x || m->uses[v] == 1) &&
                      columns(zx_m_shape(m, v)) == columns(zx_m_shape(m, x)) &&
                      !is_read_before(m, x, node);
    m->least = fits ? m->least : least;
    if (!fits) return false;
    const zx_attrs attrs = with_mode(m, p, 1);
    for (uint32_t i = 0; i < p->n_in; i++) in[i] = zx_m_in(m, p, i);
    build(m, ZX_OP_MATMUL_GELU, &attrs, in, p->n_in, made);
    zx_m_also(m, x, zx_build_reshape(m->b, made[1], zx_m_shape(m, x)));
    out[0] = zx_build_reshape(m->b, made[0], zx_m_shape(m, x));
    return true;
}

// ---- GeluGrad(a b, x), and the sums of its columns ----------------------------------------------

// The sums of v's columns behind node `from`, one number each; ZX_NONE.
static uint32_t sums_of(const zx_match *m, uint32_t v, uint32_t from)
{
    const int64_t n = columns(zx_m_shape(m, v));
    for (uint32_t i = from + 1; i < m->g->n_nodes; i++) {
        const zx_node *s = &m->g->nodes[i];
        if (s->op != ZX_OP_SUM_TO || zx_m_behind_views(m, zx_m_in(m, s, 0)) != v) continue;
        const zx_shape *from_shape = zx_m_shape(m, zx_m_in(m, s, 0));
        const zx_shape *y = zx_m_shape(m, zx_node_out(m->g, s, 0));
        if (columns(from_shape) == n && columns(y) == n && zx_shape_count(y) == n)
            return zx_node_out(m->g, s, 0);
    }
    return ZX_NONE;
}

static bool dgelu(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op != ZX_OP_GELU_GRAD || !is_tanh(n)) return false;
    const uint32_t least = m->least, y = zx_node_out(m->g, n, 0);
    uint32_t v = zx_m_in(m, n, 0), made[2];
    for (const zx_node *r; (r = zx_m_once(m, v, ZX_OP_RESHAPE)) != NULL;) v = zx_m_in(m, r, 0);
    const zx_node *p = zx_m_once(m, v, ZX_OP_MATMUL);
    if (p == NULL || p->n_in != 2 || !is_linear(m, p) ||
        columns(zx_m_shape(m, v)) != columns(zx_m_shape(m, y))) {
        m->least = least;
        return false;
    }
    if (p->source != ZX_NONE && p->source > m->b->at_source) m->b->at_source = p->source;
    const zx_attrs attrs = with_mode(m, p, 1);
    const uint32_t x = zx_build_reshape(m->b, zx_m_in(m, n, 1), zx_m_shape(m, v));
    const uint32_t in[] = {zx_m_in(m, p, 0), zx_m_in(m, p, 1), x};
    build(m, ZX_OP_MATMUL_DGELU, &attrs, in, 3, made);
    out[0] = zx_build_reshape(m->b, made[0], zx_m_shape(m, y));
    const uint32_t sums = sums_of(m, y, node);
    if (sums != ZX_NONE) zx_m_also(m, sums, zx_build_reshape(m->b, made[1], zx_m_shape(m, sums)));
    return true;
}

// ---- a product over rows, and the sums of an operand's columns over them ------------------------

// Whether operand k of p is v, rows of it, and its rows are what the product adds up over.
static bool adds_up(const zx_match *m, const zx_node *p, uint32_t k, uint32_t v)
{
    const uint32_t x = zx_m_in(m, p, k);
    const bool turned = zx_attr_int(&p->attrs, k == 0 ? ZX_A_TRANS_A : ZX_A_TRANS_B, 0) != 0;
    const zx_shape *s = zx_m_shape(m, x);
    return zx_m_behind_views(m, x) == zx_m_behind_views(m, v) && turned == (k == 0) &&
           s->rank == 2 && columns(s) == columns(zx_m_shape(m, v)) &&
           zx_m_shape(m, zx_m_in(m, p, 1 - k))->rank == 2;
}

// The last such product before `node` whose result nobody has read so far; NULL.
static const zx_node *product_over(const zx_match *m, uint32_t node, uint32_t v, int64_t *mode)
{
    const uint32_t root = zx_m_behind_views(m, v), by = m->g->values[root].by;
    for (uint32_t i = node; i-- > 0 && (by == ZX_NONE || i > by);) {
        const zx_node *p = &m->g->nodes[i];
        if (p->op != ZX_OP_MATMUL || p->n_in != 2) continue;
        const uint32_t y = zx_node_out(m->g, p, 0);
        *mode = adds_up(m, p, 0, v) ? 1 : 0;
        if ((*mode == 1 || adds_up(m, p, 1, v)) && m->instead[y] == y &&
            !is_read_before(m, y, node))
            return p;
    }
    return NULL;
}

static bool sums(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op != ZX_OP_SUM_TO) return false;
    const uint32_t v = zx_m_in(m, n, 0), y = zx_node_out(m->g, n, 0);
    const int64_t size = columns(zx_m_shape(m, v));
    uint32_t made[2];
    int64_t mode;
    if (columns(zx_m_shape(m, y)) != size || zx_shape_count(zx_m_shape(m, y)) != size) return false;
    const zx_node *p = product_over(m, node, v, &mode);
    if (p == NULL) return false;
    const zx_attrs attrs = with_mode(m, p, mode);
    const uint32_t in[] = {zx_m_in(m, p, 0), zx_m_in(m, p, 1)};
    if (p->first_source < m->least) m->least = p->first_source;
    build(m, ZX_OP_MATMUL_SUM, &attrs, in, 2, made);
    zx_m_also(m, zx_node_out(m->g, p, 0), made[0]);
    out[0] = zx_build_reshape(m->b, made[1], zx_m_shape(m, y));
    return true;
}

zx_epilogue_counts zx_epilogues(const zx_graph *train, zx_arena *mem, zx_graph *out)
{
    static zx_fuse_fn *const passes[] = {gelu, dgelu, sums};
    zx_epilogue_counts n = {0};
    uint32_t *const counts[] = {&n.gelu, &n.dgelu, &n.sums};
    *out = *train;
    for (uint32_t i = 0; i < ZX_COUNT(passes); i++) {
        zx_graph next;
        *counts[i] = zx_fuse_run(out, passes[i], mem, &next);
        if (*counts[i] > 0) *out = next;
    }
    return n;
}

// fuse_linear.c - the bias of a linear layer into its product, also where a reshape lies between.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_parts.h"

// The product that v is, behind reshapes that keep its columns; nobody else reads any of it.
static const zx_node *product_of(zx_match *m, uint32_t v)
{
    const zx_shape *s = zx_m_shape(m, v);
    const int64_t columns = s->rank > 0 ? s->dim[s->rank - 1] : 0;
    for (const zx_node *n; (n = zx_m_once(m, v, ZX_OP_RESHAPE)) != NULL;) v = zx_m_in(m, n, 0);
    const zx_node *n = zx_m_once(m, v, ZX_OP_MATMUL);
    if (n == NULL || n->n_in != 2) return NULL;
    const zx_shape *y = zx_m_shape(m, v), *w = zx_m_shape(m, zx_m_in(m, n, 1));
    const bool linear = zx_shape_span(w, 0, w->rank - 2) == 1; // one matrix for all rows
    return linear && y->dim[y->rank - 1] == columns ? n : NULL;
}

// One number a column, however many dims of 1 stand before.
static bool is_row(const zx_shape *s, int64_t columns)
{
    return s->rank >= 1 && s->dim[s->rank - 1] == columns && zx_shape_count(s) == columns;
}

bool zx_fuse_linear(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    const zx_shape *s = zx_m_shape(m, zx_node_out(m->g, n, 0));
    if (n->op != ZX_OP_ADD || s->rank == 0) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t v = zx_m_in(m, n, i), c = zx_m_in(m, n, 1 - i);
        if (!zx_shape_equal(zx_m_shape(m, v), s) || !is_row(zx_m_shape(m, c), s->dim[s->rank - 1]))
            continue;
        const uint32_t least = m->least;
        const zx_node *product = product_of(m, v);
        if (product == NULL) {
            m->least = least;
            continue;
        }
        const zx_shape row = {1, {s->dim[s->rank - 1]}};
        const uint32_t bias = zx_build_reshape(m->b, c, &row);
        const uint32_t y = zx_build1(m->b, ZX_OP_MATMUL, product->attrs, 3, zx_m_in(m, product, 0),
                                     zx_m_in(m, product, 1), bias);
        out[0] = zx_build_reshape(m->b, y, s);
        return true;
    }
    return false;
}

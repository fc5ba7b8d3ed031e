// fuse_silu.c - SiLU written as x sigmoid(a x), and the gated units of transformers: SiLU or GELU
// of one tensor times another.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_parts.h"

// sigmoid(a x), which nobody else reads: a. False: it isn't.
static bool is_gate(zx_match *m, uint32_t v, uint32_t x, double *a)
{
    const zx_node *n = zx_m_once(m, v, ZX_OP_SIGMOID);
    const uint32_t inner = n == NULL ? ZX_NONE : zx_m_in(m, n, 0);
    zx_factors f = {0};
    if (n == NULL) return false;
    *a = 1;
    if (inner == x) return true;
    if (!zx_m_factors(m, inner, &f) || f.n != 1 || f.of[0] != x) return false;
    *a = f.number;
    return true;
}

bool zx_fuse_silu(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    double a;
    if (n->op != ZX_OP_MUL) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t x = zx_m_in(m, n, i);
        if (!is_gate(m, zx_m_in(m, n, 1 - i), x, &a)) continue;
        if (!zx_shape_equal(zx_m_shape(m, x), zx_m_shape(m, zx_node_out(m->g, n, 0)))) continue;
        zx_attrs attrs = {0};
        if (a != 1) attrs = zx_attrs_float(m->b->mem, attrs, ZX_A_ALPHA, a);
        out[0] = zx_build1(m->b, ZX_OP_SILU, attrs, 1, x);
        return true;
    }
    return false;
}

bool zx_fuse_glu(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op != ZX_OP_MUL) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t v = zx_m_in(m, n, i), b = zx_m_in(m, n, 1 - i);
        const zx_node *silu = zx_m_once(m, v, ZX_OP_SILU), *gelu = zx_m_once(m, v, ZX_OP_GELU);
        const zx_node *f = silu != NULL ? silu : gelu;
        if (f == NULL || !zx_shape_equal(zx_m_shape(m, v), zx_m_shape(m, b))) continue;
        const int64_t tanh = zx_attr_int(&f->attrs, ZX_A_MODE, 0);
        const double a = zx_attr_float(&f->attrs, ZX_A_ALPHA, 1);
        zx_attrs attrs =
            zx_attrs_int(m->b->mem, (zx_attrs){0}, ZX_A_MODE, silu != NULL ? 0 : tanh + 1);
        if (silu != NULL && a != 1) attrs = zx_attrs_float(m->b->mem, attrs, ZX_A_ALPHA, a);
        out[0] = zx_build1(m->b, ZX_OP_GLU, attrs, 2, zx_m_in(m, f, 0), b);
        return true;
    }
    return false;
}

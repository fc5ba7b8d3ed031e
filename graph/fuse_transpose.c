// fuse_transpose.c - what moves numbers about for nothing: transpositions that cancel or are one,
// whatever reshapes stand between them, and those that a product can read through.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_layout.h"

// A parameter that is read from before it was moved is read here: from where it was moved on.
static void cover(zx_match *m, const zx_layout *l)
{
    if (m->g->values[l->root].role == ZX_R_PARAM && l->first_source < m->least)
        m->least = l->first_source;
}

// All axes in their order, with the last two swapped if wanted.
static bool parts_of(const zx_layout *l, bool swapped, zx_parts *p)
{
    *p = (zx_parts){0};
    for (uint32_t d = 0; d < l->rank; d++) {
        const uint32_t at = swapped && d + 2 >= l->rank ? 2 * l->rank - 3 - d : d;
        if (!zx_parts_add(p, &l->axis[at])) return false;
    }
    return true;
}

static bool fuse_moves(zx_match *m, uint32_t v, uint32_t *out)
{
    zx_layout l;
    zx_parts p;
    zx_layout_of(m, v, 0, &l);
    if (l.moves == 0 || !parts_of(&l, false, &p) || !zx_parts_whole(m, l.root, &p)) return false;
    if (!zx_parts_in_order(&p) && l.moves < 2) return false;
    cover(m, &l);
    out[0] = zx_parts_build(m, l.root, &p, zx_m_shape(m, v));
    return true;
}

static bool fuse_views(zx_match *m, const zx_node *n, uint32_t *out)
{
    const uint32_t v = zx_node_out(m->g, n, 0), x = zx_m_in(m, n, 0);
    if (zx_m_behind_views(m, x) == x) return false;
    out[0] = zx_build_reshape(m->b, zx_m_behind_views(m, x), zx_m_shape(m, v));
    return true;
}

// Operand i read through its transposition: what is read instead, ZX_NONE if that isn't possible.
static uint32_t read_through(zx_match *m, uint32_t v)
{
    zx_layout l;
    zx_parts p;
    zx_layout_of(m, v, 0, &l);
    if (l.moves == 0 || !parts_of(&l, false, &p) || zx_parts_in_order(&p)) return ZX_NONE;
    if (!parts_of(&l, true, &p) || !zx_parts_in_order(&p) || !zx_parts_whole(m, l.root, &p))
        return ZX_NONE;
    zx_shape s = *zx_m_shape(m, v);
    const int64_t last = s.dim[s.rank - 1];
    s.dim[s.rank - 1] = s.dim[s.rank - 2];
    s.dim[s.rank - 2] = last;
    cover(m, &l);
    return zx_build_reshape(m->b, l.root, &s);
}

static bool fuse_product(zx_match *m, const zx_node *n, uint32_t *out)
{
    static const zx_attr_id which[] = {ZX_A_TRANS_A, ZX_A_TRANS_B};
    uint32_t in[] = {zx_m_in(m, n, 0), zx_m_in(m, n, 1), zx_m_in(m, n, 2)};
    zx_attrs attrs = n->attrs;
    bool any = false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t x = read_through(m, in[i]);
        if (x == ZX_NONE) continue;
        in[i] = x;
        attrs = zx_attrs_int(m->b->mem, attrs, which[i], !zx_attr_int(&attrs, which[i], 0));
        any = true;
    }
    if (any) out[0] = zx_build1(m->b, ZX_OP_MATMUL, attrs, n->n_in, in[0], in[1], in[2]);
    return any;
}

bool zx_fuse_transpose(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op == ZX_OP_MATMUL) return fuse_product(m, n, out);
    if (n->op != ZX_OP_TRANSPOSE && n->op != ZX_OP_RESHAPE) return false;
    if (fuse_moves(m, zx_node_out(m->g, n, 0), out)) return true;
    return n->op == ZX_OP_RESHAPE && fuse_views(m, n, out);
}

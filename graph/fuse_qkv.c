// fuse_qkv.c - attention over queries, keys and values that one projection made side by side: they
// are read where they lie, and their gradient is made in one piece, so neither is cut and put
// together again.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_layout.h"

// The node that cut operand v out of the last axis of something, from `start` on: nobody else reads
// it, nor how it was reshaped.
static const zx_node *cut_of(zx_match *m, uint32_t v, int64_t start)
{
    const zx_shape *s = zx_m_shape(m, v);
    const zx_node *n = zx_m_once(m, v, ZX_OP_RESHAPE);
    for (; n != NULL; n = zx_m_once(m, v, ZX_OP_RESHAPE)) v = zx_m_in(m, n, 0);
    n = zx_m_once(m, v, ZX_OP_SLICE);
    if (n == NULL || s->rank != 3) return NULL;
    const uint32_t last = zx_m_shape(m, v)->rank - 1;
    const bool fits = zx_m_sliced_axis(m, n) == last && zx_m_shape(m, v)->dim[last] == s->dim[2] &&
                      zx_attr_ints(&n->attrs, ZX_A_STEPS, NULL)[last] == 1 &&
                      zx_attr_ints(&n->attrs, ZX_A_STARTS, NULL)[last] == start;
    return fits ? n : NULL;
}

bool zx_fuse_qkv(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    const uint32_t least = m->least; // how the operands were laid out belongs to who made them
    if (n->op != ZX_OP_ATTENTION) return false;
    zx_shape s = *zx_m_shape(m, zx_m_in(m, n, 0));
    uint32_t from = ZX_NONE;
    int64_t size = 0;
    bool fits = zx_m_shape(m, zx_m_in(m, n, 1))->dim[1] == s.dim[1];
    for (uint32_t i = 0; fits && i < 3; i++) {
        const zx_node *cut = cut_of(m, zx_m_in(m, n, i), size);
        fits = cut != NULL && (i == 0 || zx_m_in(m, cut, 0) == from);
        if (fits) from = zx_m_in(m, cut, 0);
        size += zx_m_shape(m, zx_m_in(m, n, i))->dim[2];
    }
    m->least = least;
    if (!fits) return false;
    s.dim[2] = size;
    const int64_t heads = zx_attr_int(&n->attrs, ZX_A_HEADS, 1);
    const int64_t kv_heads = zx_attr_int(&n->attrs, ZX_A_KV_HEADS, 1);
    const int64_t q = zx_m_shape(m, zx_m_in(m, n, 0))->dim[2];
    const int64_t v = zx_m_shape(m, zx_m_in(m, n, 2))->dim[2];
    if (q / heads != v / kv_heads) return false; // heads of one size
    if (zx_shape_count(zx_m_shape(m, from)) != zx_shape_count(&s) || zx_shape_count(&s) == 0)
        return false; // something lies behind them
    const uint32_t mask = n->n_in > 3 ? zx_m_in(m, n, 3) : ZX_NONE;
    const uint32_t in[] = {zx_build_reshape(m->b, from, &s), mask};
    zx_err err = {0};
    const zx_status st = zx_build_node(m->b, ZX_OP_PACKED_ATTENTION, in, mask == ZX_NONE ? 1 : 2,
                                       n->attrs, NULL, out, &err);
    ZX_ASSERT(st == ZX_OK);
    return true;
}

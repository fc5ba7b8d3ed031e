// fuse_norm.c - LayerNorm and RMSNorm written out: (x - mean) / sqrt(variance + eps), x / sqrt(mean
// square + eps), by division, reciprocal or power, with a scale among the factors and a bias.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_parts.h"

typedef struct norm {
    bool centred; // a layer norm
    uint32_t x, axis;
    double epsilon;
    uint32_t scale, bias; // ZX_NONE
} norm;

// ---- statistics ---------------------------------------------------------------------------------

// v is one number for each row of `of`'s trailing dims: which is the first of those.
static bool is_statistic(const zx_match *m, uint32_t v, uint32_t of, uint32_t *axis)
{
    const zx_shape *s = zx_m_shape(m, v), *x = zx_m_shape(m, of);
    if (s->rank != x->rank || x->rank == 0) return false;
    *axis = x->rank;
    while (*axis > 0 && s->dim[*axis - 1] == 1) --*axis;
    // A dim of 1 before the normalised ones is reduced, or not: the reduction says.
    for (uint32_t d = 0; d < *axis; d++)
        if (s->dim[d] != x->dim[d]) return false;
    return *axis < x->rank;
}

// Whether n reduces the dims from *axis on of its operand; *axis comes as the least that it can be.
static bool reduces_from(const zx_match *m, const zx_node *n, uint32_t *axis)
{
    uint32_t count;
    const int64_t *axes = zx_attr_ints(&n->attrs, ZX_A_AXES, &count);
    const uint32_t rank = zx_m_shape(m, zx_m_in(m, n, 0))->rank;
    if (count == 0 || count > rank || rank - count < *axis) return false;
    *axis = rank - count;
    for (uint32_t i = 0; i < count; i++)
        if (axes[i] != (int64_t)(*axis + i)) return false;
    return true;
}

// The mean over trailing dims, also as a sum that is divided: of what.
static uint32_t mean_of(zx_match *m, uint32_t v, uint32_t *axis)
{
    const uint32_t flat = zx_m_behind_views(m, v);
    const zx_node *n = zx_m_by(m, flat, ZX_OP_REDUCE_MEAN);
    zx_factors f = {0};
    double times = 1;
    if (n == NULL) {
        if (!zx_m_factors(m, flat, &f) || f.n != 1 || f.of[0] == flat) return ZX_NONE;
        n = zx_m_by(m, f.of[0], ZX_OP_REDUCE_SUM);
        times = f.number;
    }
    if (n == NULL) return ZX_NONE;
    const uint32_t x = zx_m_in(m, n, 0);
    if (!is_statistic(m, v, x, axis) || !reduces_from(m, n, axis)) return ZX_NONE;
    const zx_shape *s = zx_m_shape(m, x);
    const double size = (double)zx_shape_span(s, *axis, s->rank);
    const bool fits =
        n->op == ZX_OP_REDUCE_MEAN || (times * size > 1 - 1e-6 && times * size < 1 + 1e-6);
    return fits ? x : ZX_NONE;
}

// x^2: of what.
static uint32_t square_of(zx_match *m, uint32_t v)
{
    const zx_node *n = zx_m_by(m, v, ZX_OP_POW);
    if (n != NULL) return zx_m_is(m, zx_m_in(m, n, 1), 2) ? zx_m_in(m, n, 0) : ZX_NONE;
    n = zx_m_by(m, v, ZX_OP_MUL);
    return n != NULL && zx_m_in(m, n, 0) == zx_m_in(m, n, 1) ? zx_m_in(m, n, 0) : ZX_NONE;
}

// x - mean(x): of what. Some exporters write it once for the variance and once more.
static uint32_t centred_of(zx_match *m, uint32_t v, uint32_t *axis)
{
    const uint32_t least = m->least; // a difference that isn't this one is no part of the pattern
    const zx_node *n = zx_m_by(m, v, ZX_OP_SUB);
    const uint32_t x = n == NULL ? ZX_NONE : zx_m_in(m, n, 0);
    if (n != NULL && mean_of(m, zx_m_in(m, n, 1), axis) == x) return x;
    m->least = least;
    return ZX_NONE;
}

// mean(d^2) + eps: of what d.
static uint32_t power_of(zx_match *m, uint32_t v, norm *o)
{
    uint32_t mean = ZX_NONE;
    if (!zx_m_with_number(m, zx_m_by(m, v, ZX_OP_ADD), &mean, &o->epsilon)) return ZX_NONE;
    if (!(o->epsilon >= 0)) return ZX_NONE;
    const uint32_t square = mean_of(m, mean, &o->axis);
    return square == ZX_NONE ? ZX_NONE : square_of(m, square);
}

// sqrt(v): of what.
static uint32_t root_of(zx_match *m, uint32_t v)
{
    const zx_node *n = zx_m_by(m, v, ZX_OP_SQRT);
    if (n != NULL) return zx_m_in(m, n, 0);
    n = zx_m_by(m, v, ZX_OP_POW);
    return n != NULL && zx_m_is(m, zx_m_in(m, n, 1), 0.5) ? zx_m_in(m, n, 0) : ZX_NONE;
}

// 1/sqrt(v): of what.
static uint32_t inverse_root_of(zx_match *m, uint32_t v)
{
    const zx_node *n = zx_m_by(m, v, ZX_OP_RECIPROCAL);
    if (n != NULL) return root_of(m, zx_m_in(m, n, 0));
    n = zx_m_by(m, v, ZX_OP_DIV);
    if (n != NULL && zx_m_is(m, zx_m_in(m, n, 0), 1)) return root_of(m, zx_m_in(m, n, 1));
    n = zx_m_by(m, v, ZX_OP_POW);
    if (n != NULL && zx_m_is(m, zx_m_in(m, n, 1), -0.5)) return zx_m_in(m, n, 0);
    n = zx_m_by(m, v, ZX_OP_SQRT);
    const zx_node *inner = n == NULL ? NULL : zx_m_by(m, zx_m_in(m, n, 0), ZX_OP_RECIPROCAL);
    return inner != NULL ? zx_m_in(m, inner, 0) : ZX_NONE;
}

// ---- the whole ----------------------------------------------------------------------------------

// d, which is divided by the root of `power`: x, or x - mean(x).
static bool fits(zx_match *m, uint32_t d, uint32_t power, norm *o)
{
    uint32_t axis;
    if (power == ZX_NONE) return false;
    const uint32_t under = power_of(m, power, o);
    if (under == ZX_NONE) return false;
    const uint32_t x = centred_of(m, under, &axis);
    o->centred = x != ZX_NONE && axis == o->axis;
    if (o->centred) {
        o->x = x;
        return d == under || (centred_of(m, d, &axis) == x && axis == o->axis);
    }
    o->x = d;
    return d == under;
}

// Whether v is what norms are scaled with: one number for each of the normalised ones.
static bool is_inner(const zx_match *m, uint32_t v, const norm *o)
{
    const zx_shape *s = zx_m_shape(m, v), *x = zx_m_shape(m, o->x);
    const uint32_t rank = x->rank - o->axis;
    if (s->rank < rank || m->g->values[v].type.dtype != m->g->values[o->x].type.dtype) return false;
    for (uint32_t d = 0; d < s->rank; d++)
        if (s->dim[d] != (d < s->rank - rank ? 1 : x->dim[o->axis + d - (s->rank - rank)]))
            return false;
    return true;
}

// The factors of v without the one that divides by a root: what it is the root of.
static uint32_t take_root(zx_match *m, uint32_t v, zx_factors *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const uint32_t at = f->of[i], power = inverse_root_of(m, at);
        if (power != ZX_NONE) {
            f->of[i] = f->of[--f->n];
            return power;
        }
        const zx_node *div = at == v ? zx_m_by(m, at, ZX_OP_DIV) : zx_m_once(m, at, ZX_OP_DIV);
        const uint32_t root = div == NULL ? ZX_NONE : root_of(m, zx_m_in(m, div, 1));
        if (root == ZX_NONE) continue;
        zx_factors top = {.number = 1, .n = 1, .of = {zx_m_in(m, div, 0)}};
        if (m->uses[top.of[0]] == 1 && !zx_m_factors(m, top.of[0], &top)) return ZX_NONE;
        f->of[i] = f->of[--f->n];
        f->number *= top.number;
        if (f->n + top.n > ZX_M_FACTORS) return ZX_NONE;
        for (uint32_t k = 0; k < top.n; k++) f->of[f->n++] = top.of[k];
        return root;
    }
    return ZX_NONE;
}

// x / sqrt(..) or x * 1/sqrt(..), with a scale among the factors.
static bool is_scaled(zx_match *m, uint32_t v, norm *o)
{
    zx_factors f = {0};
    if (!zx_m_factors(m, v, &f)) return false;
    const uint32_t power = take_root(m, v, &f);
    if (power == ZX_NONE || f.n == 0 || f.n > 2 || f.number != 1) return false;
    for (uint32_t i = 0; i < f.n; i++) {
        if (!fits(m, f.of[i], power, o)) continue;
        o->scale = f.n == 2 ? f.of[1 - i] : ZX_NONE;
        o->bias = ZX_NONE;
        return zx_shape_equal(zx_m_shape(m, o->x), zx_m_shape(m, v)) &&
               (f.n == 1 || is_inner(m, o->scale, o));
    }
    return false;
}

// The same with a bias.
static bool is_norm(zx_match *m, const zx_node *n, norm *o)
{
    const uint32_t v = zx_node_out(m->g, n, 0);
    if (n->op == ZX_OP_MUL || n->op == ZX_OP_DIV) return is_scaled(m, v, o);
    if (n->op != ZX_OP_ADD) return false;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t product = zx_m_in(m, n, i), bias = zx_m_in(m, n, 1 - i);
        if (m->uses[product] != 1 || !is_scaled(m, product, o) || !o->centred) continue;
        if (!is_inner(m, bias, o) || !zx_shape_equal(zx_m_shape(m, v), zx_m_shape(m, o->x)))
            continue;
        o->bias = bias;
        return true;
    }
    return false;
}

// Whether what reads n's output takes it in as well: then that is the end of the pattern.
static bool goes_on(zx_match *m, uint32_t node, const norm *o)
{
    const uint32_t v = zx_node_out(m->g, &m->g->nodes[node], 0);
    norm longer = {0};
    if (m->uses[v] != 1) return false;
    for (uint32_t i = node + 1; i < m->g->n_nodes; i++) {
        const zx_node *next = &m->g->nodes[i];
        for (uint32_t a = 0; a < next->n_in; a++)
            if (zx_m_in(m, next, a) == v) return is_norm(m, next, &longer) && longer.x == o->x;
    }
    return false;
}

static uint32_t as_inner(zx_match *m, uint32_t v, const norm *o)
{
    const zx_shape *x = zx_m_shape(m, o->x);
    zx_shape inner = {.rank = x->rank - o->axis};
    for (uint32_t d = 0; d < inner.rank; d++) inner.dim[d] = x->dim[o->axis + d];
    return v == ZX_NONE ? v : zx_build_reshape(m->b, v, &inner);
}

bool zx_fuse_norm(zx_match *m, uint32_t node, uint32_t *out)
{
    norm o = {0};
    uint32_t made[3];
    if (!is_norm(m, &m->g->nodes[node], &o) || goes_on(m, node, &o)) return false;
    const uint32_t in[] = {o.x, as_inner(m, o.scale, &o), as_inner(m, o.bias, &o)};
    zx_attrs a = zx_attrs_int(m->b->mem, (zx_attrs){0}, ZX_A_AXIS, o.axis);
    a = zx_attrs_float(m->b->mem, a, ZX_A_EPSILON, o.epsilon);
    const zx_status st = zx_build_node(m->b, o.centred ? ZX_OP_LAYER_NORM : ZX_OP_RMS_NORM, in,
                                       o.centred ? 3 : 2, a, NULL, made, NULL);
    ZX_ASSERT(st == ZX_OK);
    out[0] = made[0];
    return true;
}

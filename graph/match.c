// match.c - looking back over a graph for the fusion passes; see fuse_parts.h.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "graph/fuse_parts.h"

#define ROUNDED 1e-6 // of a constant: written in f32, or with few digits

const zx_node *zx_m_by(zx_match *m, uint32_t v, zx_op_id op)
{
    if (v == ZX_NONE || m->g->values[v].by == ZX_NONE) return NULL;
    const zx_node *n = &m->g->nodes[m->g->values[v].by];
    if (n->op != op || zx_node_out(m->g, n, 0) != v) return NULL;
    if (n->first_source < m->least) m->least = n->first_source;
    return n;
}

const zx_node *zx_m_once(zx_match *m, uint32_t v, zx_op_id op)
{
    return v != ZX_NONE && m->uses[v] == 1 ? zx_m_by(m, v, op) : NULL;
}

uint32_t zx_m_behind_views(const zx_match *m, uint32_t v)
{
    while (v != ZX_NONE && m->g->values[v].by != ZX_NONE) {
        const zx_node *n = &m->g->nodes[m->g->values[v].by];
        if ((zx_ops[n->op].flags & ZX_OP_VIEW) == 0) break;
        v = zx_node_in(m->g, n, 0);
    }
    return v;
}

double zx_m_element(const zx_match *m, uint32_t v, uint64_t i)
{
    const zx_value *x = &m->g->values[v];
    const unsigned char *at = (const unsigned char *)x->data + i * zx_dtype_bytes(x->type.dtype);
    float f;
    double d;
    int64_t n = 0;
    switch (x->type.dtype) {
    case ZX_F32:
        memcpy(&f, at, sizeof f);
        return f;
    case ZX_F64:
        memcpy(&d, at, sizeof d);
        return d;
    case ZX_I64:
        memcpy(&n, at, sizeof n);
        return (double)n;
    case ZX_I32: {
        int32_t w;
        memcpy(&w, at, sizeof w);
        return w;
    }
    case ZX_BOOL:
        return *at != 0;
    default:
        return (double)NAN;
    }
}

bool zx_m_number(const zx_match *m, uint32_t v, double *x)
{
    if (v == ZX_NONE) return false;
    const zx_value *c = &m->g->values[v];
    const int64_t n = zx_shape_count(&c->type.shape);
    if (c->role != ZX_R_CONST || c->data == NULL || n < 1 || !zx_dtype_is_float(c->type.dtype))
        return false;
    const double first = zx_m_element(m, v, 0);
    const uint32_t bytes = zx_dtype_bytes(c->type.dtype);
    for (int64_t i = 1; i < n; i++)
        if (memcmp(c->data, (const unsigned char *)c->data + (size_t)i * bytes, bytes) != 0)
            return false;
    *x = first;
    return !isnan(first);
}

static bool near(double x, double want)
{
    return fabs(x - want) <= ROUNDED * fabs(want);
}

bool zx_m_is(const zx_match *m, uint32_t v, double want)
{
    double x;
    return zx_m_number(m, v, &x) && near(x, want);
}

bool zx_m_with_number(const zx_match *m, const zx_node *n, uint32_t *other, double *x)
{
    if (n == NULL || n->n_in != 2) return false;
    for (uint32_t i = 0; i < 2; i++) {
        *other = zx_m_in(m, n, 1 - i);
        if (*other != ZX_NONE && zx_m_number(m, zx_m_in(m, n, i), x)) return true;
    }
    return false;
}

bool zx_m_with(const zx_match *m, const zx_node *n, double want, uint32_t *other)
{
    double x;
    return zx_m_with_number(m, n, other, &x) && near(x, want);
}

bool zx_m_other(const zx_match *m, const zx_node *n, uint32_t a, uint32_t *other)
{
    if (n == NULL || n->n_in != 2) return false;
    if (zx_m_in(m, n, 0) != a && zx_m_in(m, n, 1) != a) return false;
    *other = zx_m_in(m, n, zx_m_in(m, n, 0) == a ? 1 : 0);
    return *other != ZX_NONE;
}

static bool add_factors(zx_match *m, uint32_t v, bool top, zx_factors *f)
{
    double x;
    if (zx_m_number(m, v, &x)) {
        f->number *= x;
        return true;
    }
    const zx_node *n = top ? zx_m_by(m, v, ZX_OP_MUL) : zx_m_once(m, v, ZX_OP_MUL);
    if (n != NULL)
        return add_factors(m, zx_m_in(m, n, 0), false, f) &&
               add_factors(m, zx_m_in(m, n, 1), false, f);
    n = top ? zx_m_by(m, v, ZX_OP_DIV) : zx_m_once(m, v, ZX_OP_DIV);
    if (n != NULL && zx_m_number(m, zx_m_in(m, n, 1), &x) && x != 0) {
        f->number /= x;
        return add_factors(m, zx_m_in(m, n, 0), false, f);
    }
    if (f->n == ZX_M_FACTORS) return false;
    f->of[f->n++] = v;
    return true;
}

bool zx_m_factors(zx_match *m, uint32_t v, zx_factors *f)
{
    *f = (zx_factors){.number = 1};
    return add_factors(m, v, true, f);
}

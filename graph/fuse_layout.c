// fuse_layout.c - layouts of values; see fuse_layout.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_layout.h"

// Adds a part inside the others; one that goes on where the last ended is one with it.
static bool push(zx_parts *p, zx_part x)
{
    if (x.size == 1) return true;
    if (p->n > 0) {
        zx_part *last = &p->part[p->n - 1];
        if (last->stride == x.stride * x.size && (x.stride > 0 || last->stride == 0)) {
            *last = (zx_part){last->size * x.size, x.stride};
            return true;
        }
    }
    if (p->n == ZX_LAYOUT_PARTS) return false;
    p->part[p->n++] = x;
    return true;
}

bool zx_parts_add(zx_parts *a, const zx_parts *b)
{
    bool fits = true;
    for (uint32_t i = 0; i < b->n; i++) fits = fits && push(a, b->part[i]);
    return fits;
}

int64_t zx_parts_count(const zx_parts *p)
{
    int64_t n = 1;
    for (uint32_t i = 0; i < p->n; i++) n *= p->part[i].size;
    return n;
}

bool zx_parts_cut(zx_parts *from, int64_t size, zx_parts *cut)
{
    *cut = (zx_parts){0};
    zx_parts rest = {0};
    for (uint32_t i = 0; i < from->n; i++) {
        const zx_part x = from->part[i];
        if (size % x.size == 0) {
            size /= x.size;
            if (!push(cut, x)) return false;
            continue;
        }
        if (size > 1) {
            if (x.size % size != 0) return false;
            const int64_t inner = x.size / size;
            if (!push(cut, (zx_part){size, x.stride * inner})) return false;
            if (!push(&rest, (zx_part){inner, x.stride})) return false;
            size = 1;
            continue;
        }
        if (!push(&rest, x)) return false;
    }
    *from = rest;
    return size == 1;
}

bool zx_parts_in_order(const zx_parts *p)
{
    zx_parts all = {0};
    return zx_parts_add(&all, p) && (all.n == 0 || (all.n == 1 && all.part[0].stride == 1));
}

// ---- looking back
// ---------------------------------------------------------------------------------

typedef struct axes { // what the root of so far is made of: an axis's size, stride, new stride
    uint32_t n;
    int64_t size[2 * ZX_MAX_RANK], stride[2 * ZX_MAX_RANK], to[2 * ZX_MAX_RANK];
} axes;

// One part in terms of the axes that it runs along, outermost first.
static bool along(const axes *x, zx_part p, zx_parts *out)
{
    if (p.stride == 0) return push(out, p);
    for (uint32_t i = x->n; i-- > 0;) {
        const int64_t whole = x->stride[i] * x->size[i];
        if (p.stride >= whole) continue;
        if (p.stride % x->stride[i] != 0 || whole % p.stride != 0) return false;
        const int64_t left = whole / p.stride; // as many steps until the axis ends
        zx_part inner = {p.size, p.stride / x->stride[i] * x->to[i]};
        if (p.size > left) {
            if (p.size % left != 0 || !along(x, (zx_part){p.size / left, whole}, out)) return false;
            inner.size = left;
        }
        return push(out, inner);
    }
    return false;
}

// The layout over a root that makes the root of so far.
static bool step(zx_layout *l, uint32_t root, axes *x)
{
    zx_layout next = *l;
    int64_t stride = 1;
    for (uint32_t i = x->n; i-- > 0;) {
        x->stride[i] = stride;
        stride *= x->size[i];
    }
    for (uint32_t d = 0; d < l->rank; d++) {
        next.axis[d].n = 0;
        for (uint32_t i = 0; i < l->axis[d].n; i++)
            if (!along(x, l->axis[d].part[i], &next.axis[d])) return false;
    }
    next.root = root;
    *l = next;
    return true;
}

static void strides(const zx_shape *s, int64_t *stride)
{
    int64_t n = 1;
    for (uint32_t i = s->rank; i-- > 0; n *= s->dim[i]) stride[i] = n;
}

static bool through_transpose(const zx_match *m, const zx_node *n, zx_layout *l)
{
    const uint32_t x = zx_m_in(m, n, 0);
    const zx_shape *s = zx_m_shape(m, x);
    const int64_t *perm = zx_attr_ints(&n->attrs, ZX_A_PERM, NULL);
    int64_t stride[ZX_MAX_RANK];
    axes a = {.n = s->rank};
    strides(s, stride);
    for (uint32_t i = 0; i < s->rank; i++) {
        a.size[i] = s->dim[perm[i]];
        a.to[i] = stride[perm[i]];
    }
    if (!step(l, x, &a)) return false;
    l->moves++;
    return true;
}

static bool through_expand(const zx_match *m, const zx_node *n, zx_layout *l)
{
    const uint32_t x = zx_m_in(m, n, 0);
    const zx_shape *s = zx_m_shape(m, x), *y = zx_m_shape(m, zx_node_out(m->g, n, 0));
    int64_t stride[ZX_MAX_RANK];
    axes a = {.n = y->rank};
    strides(s, stride);
    for (uint32_t i = 0; i < y->rank; i++) {
        const uint32_t at = i + s->rank - y->rank; // wraps where x has no such axis
        a.size[i] = y->dim[i];
        a.to[i] = i + s->rank < y->rank || s->dim[at] != y->dim[i] ? 0 : stride[at];
    }
    return step(l, x, &a);
}

// An axis read in pieces: `outer` times `inner` numbers of it; to_ is how far each step goes on it.
static bool through_axis(const zx_match *m, uint32_t x, uint32_t axis, zx_part outer, zx_part inner,
                         zx_layout *l)
{
    const zx_shape *s = zx_m_shape(m, x);
    int64_t stride[ZX_MAX_RANK];
    axes a = {.n = s->rank + 1};
    strides(s, stride);
    for (uint32_t i = 0; i < s->rank; i++) {
        const uint32_t at = i + (i > axis);
        a.size[at] = s->dim[i];
        a.to[at] = stride[i];
    }
    a.size[axis] = outer.size;
    a.to[axis] = outer.stride * stride[axis];
    a.size[axis + 1] = inner.size;
    a.to[axis + 1] = inner.stride * stride[axis];
    return step(l, x, &a);
}

// Each of an axis's entries, in order, the same number of times.
static bool through_gather(const zx_match *m, const zx_node *n, zx_layout *l)
{
    const uint32_t x = zx_m_in(m, n, 0), at = zx_m_in(m, n, 1);
    const zx_value *index = &m->g->values[at];
    const zx_shape *s = zx_m_shape(m, x);
    const int64_t axis = zx_attr_int(&n->attrs, ZX_A_AXIS, 0);
    if (index->role != ZX_R_CONST || index->data == NULL || index->type.shape.rank != 1)
        return false;
    const int64_t all = index->type.shape.dim[0], have = s->dim[axis];
    if (have < 1 || all < have || all % have != 0) return false;
    const int64_t times = all / have;
    for (int64_t i = 0; i < all; i++) {
        const double want = (double)(i / times), is = zx_m_element(m, at, (uint64_t)i);
        if (!(is >= want && is <= want)) return false;
    }
    return through_axis(m, x, (uint32_t)axis, (zx_part){have, 1}, (zx_part){times, 0}, l);
}

// The same thing several times.
static bool through_concat(const zx_match *m, const zx_node *n, zx_layout *l)
{
    const uint32_t x = zx_m_in(m, n, 0);
    const int64_t axis = zx_attr_int(&n->attrs, ZX_A_AXIS, 0);
    for (uint32_t i = 1; i < n->n_in; i++)
        if (zx_m_in(m, n, i) != x) return false;
    return through_axis(m, x, (uint32_t)axis, (zx_part){n->n_in, 0},
                        (zx_part){zx_m_shape(m, x)->dim[axis], 1}, l);
}

static bool through_scale(const zx_match *m, const zx_node *n, zx_layout *l)
{
    uint32_t x = ZX_NONE;
    double by = 1;
    if (n->op == ZX_OP_DIV) {
        x = zx_m_in(m, n, 0);
        if (!zx_m_number(m, zx_m_in(m, n, 1), &by) || by == 0) return false;
        by = 1 / by;
    } else if (!zx_m_with_number(m, n, &x, &by)) {
        return false;
    }
    const zx_shape *y = zx_m_shape(m, zx_node_out(m->g, n, 0));
    if (zx_shape_count(zx_m_shape(m, x)) != zx_shape_count(y)) return false;
    l->scale *= by;
    l->root = x;
    return true;
}

static bool back(const zx_match *m, uint32_t through, zx_layout *l)
{
    const uint32_t by = m->g->values[l->root].by;
    if (by == ZX_NONE) return false;
    const zx_node *n = &m->g->nodes[by];
    bool did = false;
    switch ((zx_op_id)n->op) {
    case ZX_OP_RESHAPE:
        did = true;
        l->root = zx_m_in(m, n, 0);
        l->views++;
        break;
    case ZX_OP_TRANSPOSE:
        did = through_transpose(m, n, l);
        break;
    case ZX_OP_EXPAND:
        did = (through & ZX_LAYOUT_REPEATS) != 0 && through_expand(m, n, l);
        break;
    case ZX_OP_GATHER:
        did = (through & ZX_LAYOUT_REPEATS) != 0 && through_gather(m, n, l);
        break;
    case ZX_OP_CONCAT:
        did = (through & ZX_LAYOUT_REPEATS) != 0 && through_concat(m, n, l);
        break;
    case ZX_OP_MUL:
    case ZX_OP_DIV:
        did = (through & ZX_LAYOUT_SCALES) != 0 && through_scale(m, n, l);
        break;
    default:
        break;
    }
    if (did && n->first_source < l->first_source) l->first_source = n->first_source;
    return did;
}

uint32_t zx_m_sliced_axis(const zx_match *m, const zx_node *slice)
{
    const zx_shape *x = zx_m_shape(m, zx_m_in(m, slice, 0));
    const zx_shape *y = zx_m_shape(m, zx_node_out(m->g, slice, 0));
    const int64_t *step = zx_attr_ints(&slice->attrs, ZX_A_STEPS, NULL);
    uint32_t axis = x->rank, found = 0;
    for (uint32_t d = 0; d < x->rank; d++) {
        if (x->dim[d] == y->dim[d] && step[d] == 1) continue;
        axis = d;
        found++;
    }
    return found == 1 ? axis : x->rank;
}

// The axis of a shape along which `len` runs of `inner` numbers lie, each run whole.
static uint32_t axis_of(const zx_shape *s, int64_t len, int64_t inner)
{
    for (uint32_t d = 0; d < s->rank; d++) {
        const int64_t within = zx_shape_span(s, d + 1, s->rank);
        if (inner % within == 0 && s->dim[d] * within == len * inner) return d;
    }
    return s->rank;
}

// The root is cut out of something that was moved: as if it was cut first, where an axis of what
// was moved can be cut so.
static bool through_slice(const zx_match *m, zx_layout *l)
{
    const uint32_t by = m->g->values[l->root].by;
    const zx_node *n = by == ZX_NONE ? NULL : &m->g->nodes[by];
    zx_layout x;
    if (n == NULL || n->op != ZX_OP_SLICE) return false;
    const uint32_t d = zx_m_sliced_axis(m, n);
    zx_layout_of(m, zx_m_in(m, n, 0), 0, &x);
    if (d == x.rank || x.moves == 0 || x.axis[d].n != 1) return false;
    if (zx_attr_ints(&n->attrs, ZX_A_STEPS, NULL)[d] != 1) return false;
    const int64_t size = zx_m_shape(m, l->root)->dim[d];
    const zx_part cut = x.axis[d].part[0];
    const zx_shape *from = zx_m_shape(m, x.root);
    const uint32_t axis = axis_of(from, cut.size, cut.stride);
    if (axis == from->rank) return false;
    const int64_t run = cut.stride / zx_shape_span(from, axis + 1, from->rank);
    axes a = {0};
    for (uint32_t i = 0; i < x.rank; i++)
        for (uint32_t k = 0; k < x.axis[i].n; k++, a.n++) {
            const zx_part p = x.axis[i].part[k];
            if (a.n == ZX_COUNT(a.size)) return false;
            a.size[a.n] = i == d ? size : p.size;
            a.to[a.n] = p.stride > cut.stride ? p.stride / cut.size * size : p.stride;
        }
    if (!step(l, l->root, &a)) return false;
    l->of = x.root;
    l->cut_axis = axis;
    l->start = zx_attr_ints(&n->attrs, ZX_A_STARTS, NULL)[d] * run;
    l->n = size * run;
    l->moves += x.moves;
    return true;
}

void zx_layout_of(const zx_match *m, uint32_t v, uint32_t through, zx_layout *l)
{
    const zx_shape *s = zx_m_shape(m, v);
    int64_t stride[ZX_MAX_RANK];
    *l =
        (zx_layout){.root = v, .rank = s->rank, .scale = 1, .of = ZX_NONE, .first_source = ZX_NONE};
    strides(s, stride);
    if (zx_shape_count(s) < 1) return; // nothing moves
    for (uint32_t i = 0; i < s->rank; i++) push(&l->axis[i], (zx_part){s->dim[i], stride[i]});
    while (back(m, through, l)) continue;
    if ((through & ZX_LAYOUT_SLICES) != 0) through_slice(m, l);
}

// ---- writing
// ------------------------------------------------------------------------------------

uint32_t zx_layout_root(zx_match *m, const zx_layout *l)
{
    if (l->of == ZX_NONE) return l->root;
    zx_arena *mem = m->b->mem;
    zx_shape s = *zx_m_shape(m, l->of);
    int64_t starts[ZX_MAX_RANK] = {0}, steps[ZX_MAX_RANK];
    for (uint32_t d = 0; d < s.rank; d++) steps[d] = 1;
    starts[l->cut_axis] = l->start;
    s.dim[l->cut_axis] = l->n;
    zx_attrs a = zx_attrs_ints(mem, (zx_attrs){0}, ZX_A_STARTS, starts, s.rank);
    a = zx_attrs_ints(mem, a, ZX_A_STEPS, steps, s.rank);
    return zx_build1(m->b, ZX_OP_SLICE, zx_attrs_shape(mem, a, ZX_A_SHAPE, &s), 1, l->of);
}

// Places of the parts in the root, outermost first.
static void sort(const zx_parts *p, uint32_t *order)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t at = i;
        for (; at > 0 && p->part[order[at - 1]].stride < p->part[i].stride; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

bool zx_parts_whole(const zx_match *m, uint32_t root, const zx_parts *p)
{
    uint32_t order[ZX_LAYOUT_PARTS];
    int64_t next = 1;
    sort(p, order);
    for (uint32_t i = p->n; i-- > 0; next *= p->part[order[i]].size)
        if (p->part[order[i]].stride != next) return false;
    return p->n <= ZX_MAX_RANK && next == zx_shape_count(zx_m_shape(m, root));
}

uint32_t zx_parts_build(zx_match *m, uint32_t root, const zx_parts *p, const zx_shape *as)
{
    uint32_t order[ZX_LAYOUT_PARTS];
    int64_t perm[ZX_LAYOUT_PARTS];
    zx_shape s = {.rank = p->n};
    sort(p, order);
    for (uint32_t i = 0; i < p->n; i++) {
        s.dim[i] = p->part[order[i]].size;
        perm[order[i]] = i;
    }
    if (p->n < 2) return zx_build_reshape(m->b, root, as);
    uint32_t x = zx_build_reshape(m->b, root, &s);
    x = zx_build_transpose(m->b, x, perm);
    return zx_build_reshape(m->b, x, as);
}

// ---- who reads, what was made
// -----------------------------------------------------------------------------

const zx_node *zx_m_reader(const zx_match *m, uint32_t v)
{
    if (m->uses[v] != 1) return NULL;
    const uint32_t by = m->g->values[v].by;
    for (uint32_t i = by == ZX_NONE ? 0 : by + 1; i < m->g->n_nodes; i++) {
        const zx_node *n = &m->g->nodes[i];
        for (uint32_t a = 0; a < n->n_in; a++)
            if (zx_m_in(m, n, a) == v) return n;
    }
    return NULL; // the loss, or a buffer's next
}

uint32_t zx_m_made(const zx_match *m, zx_op_id op, uint32_t x, uint32_t y, uint32_t z)
{
    const zx_graph *g = &m->b->g;
    for (uint32_t i = m->g->n_nodes; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if (n->op == op && zx_node_in(g, n, 0) == x && zx_node_in(g, n, 1) == y &&
            zx_node_in(g, n, 2) == z)
            return zx_node_out(g, n, 0);
    }
    return ZX_NONE;
}

bool zx_m_trained(zx_match *m, uint32_t v)
{
    const zx_graph *g = m->g;
    if (g->values[v].role == ZX_R_CONST || g->values[v].role == ZX_R_INPUT) return false;
    bool *seen = ZX_NEW(&m->scratch, bool, g->n_values + 1);
    uint32_t *todo = ZX_NEW(&m->scratch, uint32_t, g->n_values + 1), n = 0;
    todo[n++] = v;
    while (n > 0) {
        const zx_value *x = &g->values[todo[--n]];
        // As in autodiff: integers and bools carry nothing.
        if (!zx_dtype_is_float(x->type.dtype)) continue;
        if (x->role == ZX_R_PARAM) return true;
        if (x->by == ZX_NONE) continue;
        const zx_node *by = &g->nodes[x->by];
        for (uint32_t i = 0; i < by->n_in; i++) {
            const uint32_t in = zx_m_in(m, by, i);
            if (in == ZX_NONE || seen[in]) continue;
            seen[in] = true;
            todo[n++] = in;
        }
    }
    return false;
}

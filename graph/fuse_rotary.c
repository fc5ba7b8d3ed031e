// fuse_rotary.c - rotary positions: pairs of a head's numbers turned by their row's angles.
//
// Written as x cos + turned(x) sin, where turned(x) is (-x2, x1), or as (x1 cos - x2 sin, x2 cos +
// x1 sin); x1 and x2 are the halves of a head or its even and odd numbers, and may be the first
// numbers of a head only, with the others put behind as they are. What part of a tensor a value is,
// is counted in numbers, so reshapes between don't matter.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "graph/fuse_layout.h"

// [lead, n] numbers of base [lead, len]: start, start + step, ... of each of its lines.
typedef struct span {
    uint32_t base;
    int64_t lead, len, start, step, n;
} span;

static int64_t count(const zx_match *m, uint32_t v)
{
    return zx_shape_count(zx_m_shape(m, v));
}

// v as [lead, n], as deep as slices of lines go.
static span span_of(const zx_match *m, uint32_t v, int64_t n)
{
    const uint32_t w = zx_m_behind_views(m, v), by = m->g->values[w].by;
    const span whole = {w, count(m, w) / n, n, 0, 1, n};
    if (by == ZX_NONE || m->g->nodes[by].op != ZX_OP_SLICE) return whole;
    const zx_node *s = &m->g->nodes[by];
    const uint32_t x = zx_m_in(m, s, 0), axis = zx_m_sliced_axis(m, s);
    const zx_shape *from = zx_m_shape(m, x), *to = zx_m_shape(m, w);
    if (axis == from->rank || count(m, w) < 1) return whole;
    const int64_t inner = zx_shape_span(from, axis + 1, from->rank);
    const int64_t start = zx_attr_ints(&s->attrs, ZX_A_STARTS, NULL)[axis];
    const int64_t step = zx_attr_ints(&s->attrs, ZX_A_STEPS, NULL)[axis];
    const int64_t len = from->dim[axis] * inner;
    span y = {x, count(m, x) / len, len, start * inner, step, to->dim[axis] * inner};
    if (step != 1 && inner != 1) return whole;
    if (y.n == 1) // a number of each short line: lines are made of those
        y = (span){x, count(m, w) / n, n * len, y.start, len, n};
    if (y.n != n || y.lead != whole.lead) return whole;
    const span deep = span_of(m, x, y.len);
    if (deep.n == y.len && deep.lead == y.lead)
        return (span){deep.base,          y.lead, deep.len, deep.start + y.start * deep.step,
                      y.step * deep.step, n};
    return whole;
}

static bool same_lines(const span *a, const span *b)
{
    return a->base == b->base && a->lead == b->lead && a->len == b->len;
}

typedef struct turn {
    uint32_t cos, sin;
    span x;          // what is turned: R numbers of each line
    uint32_t part;   // the value that is these alone, if there is one
    bool neighbours; // pairs are neighbours, not halves
    bool half;       // the angles are given once a pair, not twice
    uint32_t least;  // the first source of all this
} turn;

// x from its first and second of each pair; sets `neighbours`.
static bool join(const span *a, const span *b, turn *t)
{
    if (!same_lines(a, b) || a->n != b->n || a->step != b->step) return false;
    t->x = (span){a->base, a->lead, a->len, a->start, 1, 2 * a->n};
    t->neighbours = a->step == 2;
    if (t->neighbours) return b->start == a->start + 1;
    return a->step == 1 && b->start == a->start + a->n;
}

static bool is_last_axis(const zx_match *m, const zx_node *concat)
{
    const int64_t rank = zx_m_shape(m, zx_node_out(m->g, concat, 0))->rank;
    return zx_attr_int(&concat->attrs, ZX_A_AXIS, -1) == rank - 1;
}

// Behind views that only they read.
static uint32_t behind_own_views(zx_match *m, uint32_t v)
{
    for (const zx_node *n; (n = zx_m_once(m, v, ZX_OP_RESHAPE)) != NULL;) v = zx_m_in(m, n, 0);
    return v;
}

static void cover(turn *t, const zx_node *n)
{
    if (n->first_source < t->least) t->least = n->first_source;
}

// Neighbours are put side by side as columns, halves behind each other.
static bool lie_so(const zx_match *m, const zx_node *concat, bool neighbours)
{
    const zx_shape *s = zx_m_shape(m, zx_m_in(m, concat, 0));
    return s->rank > 0 && (s->dim[s->rank - 1] == 1) == neighbours;
}

// (-x2, x1)
static bool is_turned(zx_match *m, uint32_t v, int64_t n, turn *t)
{
    const zx_node *c = zx_m_once(m, behind_own_views(m, v), ZX_OP_CONCAT);
    if (c == NULL || c->n_in != 2 || !is_last_axis(m, c) || n % 2 != 0 || n < 4) return false;
    const zx_node *minus = zx_m_once(m, behind_own_views(m, zx_m_in(m, c, 0)), ZX_OP_NEG);
    if (minus == NULL) return false;
    const span a = span_of(m, zx_m_in(m, c, 1), n / 2), b = span_of(m, zx_m_in(m, minus, 0), n / 2);
    cover(t, minus);
    cover(t, c);
    return join(&a, &b, t) && lie_so(m, c, t->neighbours);
}

// x cos + turned(x) sin
static bool find_sum(zx_match *m, uint32_t v, turn *t)
{
    const zx_node *sum = zx_m_by(m, v, ZX_OP_ADD);
    if (sum == NULL) return false;
    const zx_shape *s = zx_m_shape(m, v);
    const int64_t n = s->rank < 2 ? 0 : s->dim[s->rank - 1];
    for (uint32_t way = 0; n > 0 && way < 8; way++) {
        const zx_node *a = zx_m_once(m, zx_m_in(m, sum, way & 1), ZX_OP_MUL);
        const zx_node *b = zx_m_once(m, zx_m_in(m, sum, 1 - (way & 1)), ZX_OP_MUL);
        if (a == NULL || b == NULL) return false;
        const uint32_t x = zx_m_in(m, a, way >> 1 & 1), r = zx_m_in(m, b, way >> 2 & 1);
        turn is = {.part = x, .least = sum->first_source};
        if (!zx_shape_equal(zx_m_shape(m, x), s) || !is_turned(m, r, n, &is)) continue;
        const span all = span_of(m, x, n);
        if (!same_lines(&all, &is.x) || all.start != is.x.start || all.step != 1 || all.n != n)
            continue;
        cover(&is, a);
        cover(&is, b);
        is.cos = zx_m_in(m, a, 1 - (way >> 1 & 1));
        is.sin = zx_m_in(m, b, 1 - (way >> 2 & 1));
        *t = is;
        return true;
    }
    return false;
}

// a cos -+ b sin, by all ways to write the products; v [.., n].
static bool find_part(zx_match *m, uint32_t v, zx_op_id op, int64_t n, uint32_t cos, uint32_t sin,
                      turn *t, span *of_cos, span *of_sin)
{
    const zx_node *sum = zx_m_once(m, v, op);
    if (sum == NULL) return false;
    for (uint32_t way = 0; way < 8; way++) {
        const uint32_t first = op == ZX_OP_ADD ? way & 1 : 0;
        const zx_node *a = zx_m_once(m, zx_m_in(m, sum, first), ZX_OP_MUL);
        const zx_node *b = zx_m_once(m, zx_m_in(m, sum, 1 - first), ZX_OP_MUL);
        if (a == NULL || b == NULL) return false;
        const uint32_t i = way >> 1 & 1, k = way >> 2 & 1;
        t->cos = zx_m_in(m, a, 1 - i);
        t->sin = zx_m_in(m, b, 1 - k);
        if (cos != ZX_NONE && (t->cos != cos || t->sin != sin)) continue;
        *of_cos = span_of(m, zx_m_in(m, a, i), n);
        *of_sin = span_of(m, zx_m_in(m, b, k), n);
        if (!same_lines(of_cos, of_sin) || of_cos->len <= n) continue;
        cover(t, a);
        cover(t, b);
        return true;
    }
    return false;
}

// The two put together: (x1 cos - x2 sin, x2 cos + x1 sin), and maybe what isn't turned.
static bool find_halves(zx_match *m, const zx_node *c, turn *t)
{
    if (c->n_in < 2 || !is_last_axis(m, c)) return false;
    const uint32_t p = behind_own_views(m, zx_m_in(m, c, 0));
    const uint32_t q = behind_own_views(m, zx_m_in(m, c, 1));
    const zx_shape *s = zx_m_shape(m, p);
    if (s->rank < 2 || s->dim[s->rank - 1] < 2 || !zx_shape_equal(s, zx_m_shape(m, q)))
        return false;
    const int64_t n = s->dim[s->rank - 1];
    span x1, x2, y1, y2;
    *t = (turn){.half = true, .least = c->first_source};
    if (!find_part(m, p, ZX_OP_SUB, n, ZX_NONE, ZX_NONE, t, &x1, &x2)) return false;
    const uint32_t cos = t->cos, sin = t->sin;
    if (!find_part(m, q, ZX_OP_ADD, n, cos, sin, t, &y2, &y1)) return false;
    if (!join(&x1, &x2, t) || y1.start != x1.start || y2.start != x2.start ||
        !same_lines(&x1, &y1) || y1.step != x1.step || y2.step != x1.step)
        return false;
    return lie_so(m, c, t->neighbours);
}

// Whether v is what lies behind the turned numbers of each line.
static bool is_rest(const zx_match *m, uint32_t v, const turn *t)
{
    const zx_shape *s = zx_m_shape(m, v);
    const int64_t n = s->dim[s->rank - 1];
    if (n < 1 || t->x.start != 0 || n != t->x.len - t->x.n) return false;
    const span rest = span_of(m, v, n);
    return same_lines(&rest, &t->x) && rest.start == t->x.n && rest.step == 1;
}

// ---- angles
// --------------------------------------------------------------------------------------

static bool last_dim_kept(const zx_match *m, uint32_t v, uint32_t x)
{
    const zx_shape *a = zx_m_shape(m, v), *b = zx_m_shape(m, x);
    return a->rank > 0 && b->rank > 0 && a->dim[a->rank - 1] == b->dim[b->rank - 1];
}

static bool const_twice(const zx_match *m, uint32_t v, bool neighbours)
{
    const zx_value *c = &m->g->values[v];
    const int64_t n = c->type.shape.dim[c->type.shape.rank - 1], all = count(m, v);
    const unsigned char *data = c->data;
    if (data == NULL || c->type.dtype != ZX_F32 || n % 2 != 0) return false;
    for (int64_t i = 0; i < all; i++) {
        const int64_t row = i / n * n, k = i - row;
        const int64_t twin = neighbours ? k / 2 * 2 : k % (n / 2);
        if (memcmp(data + i * 4, data + (row + twin) * 4, 4) != 0) return false;
    }
    return true;
}

// Whether each angle of the last axis is there twice: for both halves, or for both neighbours.
static bool is_twice(const zx_match *m, uint32_t v, bool neighbours)
{
    const zx_value *x = &m->g->values[v];
    if (x->type.shape.rank == 0) return false;
    if (x->role == ZX_R_CONST) return const_twice(m, v, neighbours);
    if (x->by == ZX_NONE) return false;
    const zx_node *n = &m->g->nodes[x->by];
    const uint32_t in = zx_m_in(m, n, 0);
    const zx_shape *s = zx_m_shape(m, in);
    uint32_t other = ZX_NONE;
    double by;
    switch ((zx_op_id)n->op) {
    case ZX_OP_COS:
    case ZX_OP_SIN:
    case ZX_OP_NEG:
        return is_twice(m, in, neighbours);
    case ZX_OP_MUL:
        return zx_m_with_number(m, n, &other, &by) && last_dim_kept(m, v, other) &&
               is_twice(m, other, neighbours);
    case ZX_OP_RESHAPE:
    case ZX_OP_EXPAND:
        if (last_dim_kept(m, v, in)) return is_twice(m, in, neighbours);
        if (n->op == ZX_OP_EXPAND) // [.., n, 1] to [.., n, 2], seen through a reshape
            return neighbours && s->rank > 0 && s->dim[s->rank - 1] == 1 &&
                   x->type.shape.dim[x->type.shape.rank - 1] == 2;
        return neighbours && s->rank > 1 && s->dim[s->rank - 1] == 2 && is_twice(m, in, true);
    case ZX_OP_CONCAT:
        return n->n_in == 2 && in == zx_m_in(m, n, 1) && is_last_axis(m, n) &&
               (s->dim[s->rank - 1] == 1) == neighbours;
    default:
        return false;
    }
}

// ---- the operator's shapes
// --------------------------------------------------------------------------------

typedef struct form {
    int64_t batch, heads, rows, size;
    bool rows_first;    // lines lie [batch, rows, heads]
    int64_t of_batches; // that the angles are given for: 1 or batch
} form;

static int64_t dim_at(const zx_shape *s, uint32_t rank, uint32_t d)
{
    return d + s->rank < rank ? 1 : s->dim[d + s->rank - rank];
}

// Which axis of `lines` [.., n] has the angles' rows, and whether batches have their own.
static bool read_form(const zx_match *m, const zx_shape *lines, const turn *t, form *f)
{
    const zx_shape *c = zx_m_shape(m, t->cos), *s = zx_m_shape(m, t->sin);
    const uint32_t rank = lines->rank, lead = rank - 1;
    const int64_t want = t->half ? t->x.n / 2 : t->x.n;
    if (rank < 2 || c->rank > rank || c->rank < 1 || c->dim[c->rank - 1] != want) return false;
    for (uint32_t d = 0; d < rank; d++)
        if (dim_at(c, rank, d) != dim_at(s, rank, d)) return false;
    *f = (form){.size = t->x.len, .of_batches = 1};
    f->rows_first = rank >= 3 && dim_at(c, rank, lead - 1) == 1 && dim_at(c, rank, lead - 2) > 1 &&
                    (rank > 3 || lines->dim[lead - 1] > 1);
    const uint32_t row = f->rows_first ? lead - 2 : lead - 1;
    f->rows = lines->dim[row];
    if (dim_at(c, rank, row) != f->rows) return false;
    // rows first: all before are batches; else the first is, and the rest are heads
    const uint32_t batches = f->rows_first ? row : row > 0;
    f->batch = zx_shape_span(lines, 0, batches);
    f->heads = f->rows_first ? lines->dim[lead - 1] : zx_shape_span(lines, batches, row);
    for (uint32_t d = 0; d < batches; d++) f->of_batches *= dim_at(c, rank, d);
    for (uint32_t d = batches; d < row; d++)
        if (dim_at(c, rank, d) != 1) return false;
    return (f->of_batches == 1 || f->of_batches == f->batch) && zx_shape_count(lines) > 0;
}

static uint32_t find_const(const zx_match *m, const zx_value *of, const zx_shape *s)
{
    for (uint32_t v = m->g->n_values; v < m->b->g.n_values; v++) {
        const zx_value *x = &m->b->values[v];
        if (x->role == ZX_R_CONST && x->name == of->name && zx_shape_equal(&x->type.shape, s))
            return v;
    }
    return ZX_NONE;
}

static uint32_t const_angles(zx_match *m, uint32_t v, const turn *t, const zx_shape *to)
{
    const zx_value *c = &m->g->values[v];
    const zx_type type = {.dtype = ZX_F32, .shape = *to};
    const uint32_t have = find_const(m, c, to);
    if (have != ZX_NONE) return have;
    if (t->half) return zx_build_const(m->b, c->name, &type, c->data);
    const int64_t n = to->dim[2], rows = zx_shape_count(to) / n;
    float *data = zx_arena_alloc(m->b->mem, (size_t)(rows * n), sizeof *data, ZX_ALIGN);
    for (int64_t i = 0; i < rows * n; i++) {
        const int64_t k = i % n, from = i / n * 2 * n + (t->neighbours ? 2 * k : k);
        memcpy(data + i, (const unsigned char *)c->data + from * 4, sizeof *data);
    }
    return zx_build_const(m->b, c->name, &type, data);
}

// [1 or batch, rows, pairs], once for all who turn by the same angles.
static uint32_t angles(zx_match *m, uint32_t v, const turn *t, const form *f)
{
    const zx_shape to = {3, {f->of_batches, f->rows, t->x.n / 2}};
    if (m->g->values[v].role == ZX_R_CONST) return const_angles(m, v, t, &to);
    uint32_t x = v;
    if (!t->half) {
        zx_shape s = *zx_m_shape(m, v);
        int64_t starts[ZX_MAX_RANK] = {0}, steps[ZX_MAX_RANK];
        for (uint32_t d = 0; d < s.rank; d++) steps[d] = 1;
        s.dim[s.rank - 1] /= 2;
        if (t->neighbours) steps[s.rank - 1] = 2;
        zx_attrs a = zx_attrs_ints(m->b->mem, (zx_attrs){0}, ZX_A_STARTS, starts, s.rank);
        a = zx_attrs_ints(m->b->mem, a, ZX_A_STEPS, steps, s.rank);
        a = zx_attrs_shape(m->b->mem, a, ZX_A_SHAPE, &s);
        x = zx_m_made(m, ZX_OP_SLICE, v, ZX_NONE, ZX_NONE);
        if (x == ZX_NONE) x = zx_build1(m->b, ZX_OP_SLICE, a, 1, v);
    }
    return zx_build_reshape(m->b, x, &to);
}

// The lines as they lay before they were moved, in an order that the operator takes: 4 dims, or
// rows first and 3. What is in neither stays as it is.
static bool read_lines(const zx_match *m, const form *f, zx_layout *l, zx_parts *axis, bool *flat)
{
    const int64_t size[] = {f->batch, f->rows_first ? f->rows : f->heads,
                            f->rows_first ? f->heads : f->rows, f->size};
    zx_parts all = {0}, p = {0};
    for (uint32_t d = 0; d < l->rank; d++)
        if (!zx_parts_add(&all, &l->axis[d])) return false;
    for (uint32_t i = 0; i < 4; i++) {
        zx_parts *to = &axis[i == 1 && f->rows_first ? 2 : i == 2 && f->rows_first ? 1 : i];
        if (!zx_parts_cut(&all, size[i], to)) return false;
    }
    *flat = false;
    if (all.n > 0) return false;
    for (uint32_t i = 0; i < 4; i++)
        if (!zx_parts_add(&p, &axis[i])) return false;
    if (zx_parts_in_order(&p)) return zx_parts_whole(m, l->root, &p);
    *flat = true;
    const uint32_t order[] = {0, 2, 1, 3};
    p.n = 0;
    for (uint32_t i = 0; i < 4; i++)
        if (!zx_parts_add(&p, &axis[order[i]])) return false;
    return zx_parts_in_order(&p) && zx_parts_whole(m, l->root, &p);
}

// What the operator made, as the node had it.
static uint32_t put_back(zx_match *m, const form *f, bool flat, uint32_t y, const zx_shape *as)
{
    const int64_t b = f->batch, h = f->heads, r = f->rows, d = f->size;
    if (flat == f->rows_first) return zx_build_reshape(m->b, y, as);
    const zx_part batch = {b, h * r * d}, last = {d, 1};
    const zx_part rows = {r, flat ? h * d : d}, heads = {h, flat ? d : r * d};
    const zx_part parts[] = {batch, f->rows_first ? rows : heads, f->rows_first ? heads : rows,
                             last};
    zx_parts p = {0};
    for (uint32_t i = 0; i < 4; i++) {
        const zx_parts one = {.n = parts[i].size > 1, .part = {parts[i]}};
        zx_parts_add(&p, &one);
    }
    return zx_parts_build(m, y, &p, as);
}

// lines: the shape [.., n] of the turned numbers, where n may be shown as [n/2, 2].
static bool build(zx_match *m, const turn *t, const zx_shape *lines, uint32_t v, uint32_t *out)
{
    const uint32_t least = m->g->nodes[m->g->values[v].by].first_source;
    form f;
    zx_layout l;
    zx_parts axis[4];
    bool flat;
    if (t->x.start != 0 || m->g->values[v].type.dtype != ZX_F32) return false;
    if (!read_form(m, lines, t, &f) || f.batch * f.heads * f.rows != t->x.lead) return false;
    if (!t->half && (!is_twice(m, t->cos, t->neighbours) || !is_twice(m, t->sin, t->neighbours)))
        return false;
    if (zx_m_trained(m, t->cos) || zx_m_trained(m, t->sin)) return false;
    zx_layout_of(m, t->x.base, ZX_LAYOUT_SLICES, &l);
    const bool before = read_lines(m, &f, &l, axis, &flat);
    if (!before) flat = f.rows_first;
    const uint32_t x = before ? zx_layout_root(m, &l) : t->x.base;
    m->least = t->least < least ? t->least : least;
    const zx_shape four = {4, {f.batch, f.heads, f.rows, f.size}};
    const zx_shape three = {3, {f.batch, f.rows, f.heads * f.size}};
    const uint32_t cos = angles(m, t->cos, t, &f), sin = angles(m, t->sin, t, &f);
    zx_attrs a = {0};
    if (flat) a = zx_attrs_int(m->b->mem, a, ZX_A_HEADS, f.heads);
    if (t->neighbours) a = zx_attrs_int(m->b->mem, a, ZX_A_INTERLEAVED, 1);
    const uint32_t y = zx_build1(m->b, ZX_OP_ROTARY_EMBEDDING, a, 3,
                                 zx_build_reshape(m->b, x, flat ? &three : &four), cos, sin);
    out[0] = put_back(m, &f, flat, y, zx_m_shape(m, v));
    return true;
}

// The rest of each line is put behind what ADD made: that is where it ends.
static bool ends_later(const zx_match *m, uint32_t v, const turn *t)
{
    const zx_node *c = zx_m_reader(m, v);
    return c != NULL && c->op == ZX_OP_CONCAT && c->n_in == 2 && zx_m_in(m, c, 0) == v &&
           is_last_axis(m, c) && is_rest(m, zx_m_in(m, c, 1), t);
}

static bool fuse_sum(zx_match *m, uint32_t v, uint32_t *out)
{
    turn t;
    if (!find_sum(m, v, &t) || ends_later(m, v, &t)) return false;
    if (t.x.n != t.x.len) // a part of each line is turned as lines of its own
        t.x = (span){zx_m_behind_views(m, t.part), t.x.lead, t.x.n, 0, 1, t.x.n};
    return build(m, &t, zx_m_shape(m, v), v, out);
}

static bool fuse_concat(zx_match *m, const zx_node *c, uint32_t *out)
{
    const uint32_t v = zx_node_out(m->g, c, 0), first = zx_m_in(m, c, 0);
    turn t;
    zx_shape lines = *zx_m_shape(m, first);
    if (c->n_in == 2 && is_last_axis(m, c) && m->uses[first] == 1 && find_sum(m, first, &t))
        return is_rest(m, zx_m_in(m, c, 1), &t) && build(m, &t, &lines, v, out);
    if (!find_halves(m, c, &t)) return false;
    lines = *zx_m_shape(m, behind_own_views(m, first));
    lines.dim[lines.rank - 1] *= 2;
    if (c->n_in == 2) return t.x.n == t.x.len && build(m, &t, &lines, v, out);
    return c->n_in == 3 && !t.neighbours && is_rest(m, zx_m_in(m, c, 2), &t) &&
           build(m, &t, &lines, v, out);
}

bool zx_fuse_rotary(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op == ZX_OP_ADD) return fuse_sum(m, zx_node_out(m->g, n, 0), out);
    return n->op == ZX_OP_CONCAT && fuse_concat(m, n, out);
}

// fuse_attention.c - scores, softmax, values as one Attention.
//
// Looked at from the product with the values: softmax of the scores, maybe with what turns NaN into
// 0 behind it; the scores masked, maybe capped, scaled; the product of queries and keys. Factors
// are collected wherever they stand. Queries, keys and values are taken from before whatever laid
// them out as heads, and from before keys and values were repeated for several queries; the
// operator reads [batch, heads, rows, size] or [batch, rows, heads * size], whichever moves less.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_mask.h"

#include <math.h>

#define HIDES -1e4 // in place of a score: it is hidden

typedef struct found {
    zx_match *m;
    const zx_node *values, *scores; // the two products
    zx_masks masks;
    double scale, cap;
    uint32_t slices; // ZX_LAYOUT_SLICES where queries, keys and values may be cut anew
    zx_shape four;   // the scores where they have four dims or more; rank 0: nowhere
} found;

static bool same_shape(const zx_match *m, uint32_t a, uint32_t b)
{
    return zx_shape_equal(zx_m_shape(m, a), zx_m_shape(m, b));
}

static void note_shape(found *f, uint32_t v)
{
    const zx_shape *s = zx_m_shape(f->m, v);
    if (f->four.rank == 0 && s->rank >= 4) f->four = *s;
}

// Behind reshapes of what only they read that leave [.., rows, keys] as it is.
static uint32_t behind_views(found *f, uint32_t v)
{
    for (;;) {
        note_shape(f, v);
        const zx_node *n = zx_m_once(f->m, v, ZX_OP_RESHAPE);
        if (n == NULL) return v;
        const uint32_t x = zx_m_in(f->m, n, 0);
        const zx_shape *to = zx_m_shape(f->m, v), *from = zx_m_shape(f->m, x);
        if (to->rank < 2 || from->rank < 2) return v;
        for (uint32_t d = 1; d <= 2; d++)
            if (to->dim[to->rank - d] != from->dim[from->rank - d]) return v;
        v = x;
    }
}

// ---- from the softmax to the product
// ------------------------------------------------------------------

static bool find_scores(found *f, uint32_t v, bool may_mask);

static bool masked(found *f, uint32_t v, uint32_t scores, zx_mask mask)
{
    const found before = *f;
    if (!same_shape(f->m, v, scores) || f->masks.n == ZX_MASKS) return false;
    mask.scores = *zx_m_shape(f->m, v);
    f->masks.of[f->masks.n++] = mask;
    if (find_scores(f, scores, true)) return true;
    *f = before;
    return false;
}

// scores + mask, scores - mask, or the scores where a condition says so and a low number elsewhere.
static bool find_masked(found *f, uint32_t v)
{
    zx_match *m = f->m;
    const zx_node *n = zx_m_by(m, v, ZX_OP_ADD);
    for (uint32_t i = 0; n != NULL && i < 2; i++)
        if (masked(f, v, zx_m_in(m, n, i),
                   (zx_mask){.v = zx_m_in(m, n, 1 - i), .kind = ZX_MASK_ADDED}))
            return true;
    n = zx_m_by(m, v, ZX_OP_SUB);
    if (n != NULL)
        return masked(f, v, zx_m_in(m, n, 0),
                      (zx_mask){.v = zx_m_in(m, n, 1), .kind = ZX_MASK_SUBTRACTED});
    n = zx_m_by(m, v, ZX_OP_WHERE);
    for (uint32_t i = 1; n != NULL && i < 3; i++) {
        zx_mask mask = {.v = zx_m_in(m, n, 0), .kind = i == 1 ? ZX_MASK_SHOWN : ZX_MASK_HIDDEN};
        if (!zx_m_number(m, zx_m_in(m, n, 3 - i), &mask.fill) || !(mask.fill <= HIDES)) continue;
        if (masked(f, v, zx_m_in(m, n, i), mask)) return true;
    }
    return false;
}

// A factor: of what is below the cap where there is one.
static bool find_scaled(found *f, uint32_t v)
{
    zx_match *m = f->m;
    uint32_t x = ZX_NONE;
    double by = 1;
    const zx_node *n = zx_m_by(m, v, ZX_OP_MUL);
    if (n != NULL && !zx_m_with_number(m, n, &x, &by)) return false;
    if (n == NULL) {
        n = zx_m_by(m, v, ZX_OP_DIV);
        if (n == NULL || !zx_m_number(m, zx_m_in(m, n, 1), &by) || by == 0) return false;
        x = zx_m_in(m, n, 0);
        by = 1 / by;
    }
    f->scale *= by;
    return same_shape(m, v, x) && find_scores(f, x, false);
}

static bool find_scores(found *f, uint32_t v, bool may_mask)
{
    zx_match *m = f->m;
    v = behind_views(f, v);
    if (m->uses[v] != 1) return false;
    const zx_node *n = zx_m_by(m, v, ZX_OP_MATMUL);
    if (n != NULL) {
        f->scores = n;
        f->scale *= zx_attr_float(&n->attrs, ZX_A_ALPHA, 1);
        return n->n_in == 2;
    }
    if (may_mask && find_masked(f, v)) return true;
    n = zx_m_by(m, v, ZX_OP_TANH);
    if (n == NULL) return find_scaled(f, v);
    if (f->cap > 0 || !(f->scale > 0)) return false;
    f->cap = f->scale; // c tanh(s); what s is scaled by is to be c times as much
    return find_scores(f, zx_m_in(m, n, 0), false);
}

// From the probabilities, the first operand of the product with the values.
static bool find_softmax(found *f, uint32_t v)
{
    zx_match *m = f->m;
    uint32_t reads = 1;
    v = behind_views(f, v);
    const zx_node *n = zx_m_once(m, v, ZX_OP_WHERE);
    if (n != NULL) { // 0 where it is NaN: nothing was seen
        const zx_node *nan = zx_m_once(m, zx_m_in(m, n, 0), ZX_OP_IS_NAN);
        double zero = 1;
        v = zx_m_in(m, n, 2);
        if (nan == NULL || zx_m_in(m, nan, 0) != v) return false;
        if (!zx_m_number(m, zx_m_in(m, n, 1), &zero) || zero < 0 || zero > 0) return false;
        reads = 2;
    }
    n = zx_m_by(m, v, ZX_OP_SOFTMAX);
    if (n == NULL || m->uses[v] != reads) return false;
    note_shape(f, v);
    const int64_t rank = zx_m_shape(m, v)->rank;
    return zx_attr_int(&n->attrs, ZX_A_AXIS, -1) == rank - 1 &&
           find_scores(f, zx_m_in(m, n, 0), true);
}

// ---- heads
// ---------------------------------------------------------------------------------------

typedef struct side { // queries, keys or values
    zx_layout l;
    zx_parts lead, row, size; // [batch and heads], rows, size
    zx_parts batch, heads;    // lead, cut
    int64_t repeats;          // of each head, undone
    int64_t n_heads, n_rows, n_size;
} side;

// Operand `v` over scores (or values) of shape s; `row` is which of its last two dims are rows.
static bool read_side(const found *f, uint32_t v, uint32_t through, const zx_shape *s, uint32_t row,
                      side *x)
{
    *x = (side){.repeats = 1};
    zx_layout_of(f->m, v, through | f->slices, &x->l);
    const uint32_t rank = x->l.rank, off = s->rank - rank;
    const zx_shape *is = zx_m_shape(f->m, v);
    if (rank > s->rank) return false;
    for (uint32_t d = 0; d + 2 < s->rank; d++) {
        zx_parts same = {.n = s->dim[d] > 1, .part = {{s->dim[d], 0}}};
        const bool has = d >= off && is->dim[d - off] == s->dim[d];
        if (!zx_parts_add(&x->lead, has ? &x->l.axis[d - off] : &same)) return false;
    }
    x->row = x->l.axis[rank - 2 + row];
    x->size = x->l.axis[rank - 1 - row];
    x->n_rows = is->dim[rank - 2 + row];
    x->n_size = is->dim[rank - 1 - row];
    zx_parts *lead = &x->lead;
    if (lead->n > 0 && lead->part[lead->n - 1].stride == 0) x->repeats = lead->part[--lead->n].size;
    for (uint32_t i = 0; i < lead->n; i++)
        if (lead->part[i].stride == 0) return false;
    return true;
}

static bool cut_heads(side *x, int64_t batch, int64_t heads)
{
    x->heads = x->lead;
    x->n_heads = heads / x->repeats;
    return heads % x->repeats == 0 && zx_parts_cut(&x->heads, batch, &x->batch) &&
           zx_parts_count(&x->heads) == x->n_heads;
}

// In the order that the operator wants them; `flat`: rows before heads.
static bool parts_of(const side *x, bool flat, zx_parts *p)
{
    *p = x->batch;
    return zx_parts_add(p, flat ? &x->row : &x->heads) &&
           zx_parts_add(p, flat ? &x->heads : &x->row) && zx_parts_add(p, &x->size);
}

typedef struct heads {
    side q, k, v;
    int64_t batch, n;
    bool flat; // [batch, rows, heads * size]
} heads;

static bool transposed(const zx_node *n, zx_attr_id which)
{
    return zx_attr_int(&n->attrs, which, 0) != 0;
}

// Keys and values from before they were repeated, where both can be and that is the same.
static bool read_keys(const found *f, const zx_shape *scores, const zx_shape *y, heads *h)
{
    const zx_match *m = f->m;
    const uint32_t k = zx_m_in(m, f->scores, 1), v = zx_m_in(m, f->values, 1);
    const uint32_t row_k = !transposed(f->scores, ZX_A_TRANS_B);
    const uint32_t row_v = transposed(f->values, ZX_A_TRANS_B);
    if (read_side(f, k, ZX_LAYOUT_SCALES | ZX_LAYOUT_REPEATS, scores, row_k, &h->k) &&
        read_side(f, v, ZX_LAYOUT_REPEATS, y, row_v, &h->v) && h->k.repeats == h->v.repeats)
        return true;
    return read_side(f, k, ZX_LAYOUT_SCALES, scores, row_k, &h->k) &&
           read_side(f, v, 0, y, row_v, &h->v) && h->k.repeats == h->v.repeats;
}

// How many heads there are of each batch: as the scores are laid out somewhere, else as the
// queries were made.
static void count_heads(const found *f, int64_t all, heads *h)
{
    const zx_parts *q = &h->q.lead;
    h->batch = all;
    if (f->four.rank > 0)
        h->batch = f->four.dim[0];
    else if (q->n == 2)
        h->batch = q->part[0].size;
    else if (h->k.repeats > 1 && all % h->k.repeats == 0)
        h->batch = all / h->k.repeats;
    h->n = all / h->batch;
}

static bool read_heads(const found *f, heads *h)
{
    const zx_match *m = f->m;
    const zx_shape *scores = zx_m_shape(m, zx_node_out(m->g, f->scores, 0));
    const zx_shape *y = zx_m_shape(m, zx_node_out(m->g, f->values, 0));
    const uint32_t row = transposed(f->scores, ZX_A_TRANS_A);
    zx_parts p;
    *h = (heads){0};
    if (zx_shape_count(scores) < 1 || zx_shape_count(y) < 1) return false;
    if (!read_side(f, zx_m_in(m, f->scores, 0), ZX_LAYOUT_SCALES, scores, row, &h->q)) return false;
    if (h->q.repeats != 1 || !read_keys(f, scores, y, h)) return false;
    count_heads(f, zx_shape_span(scores, 0, scores->rank - 2), h);
    if (!cut_heads(&h->q, h->batch, h->n) || !cut_heads(&h->k, h->batch, h->n) ||
        !cut_heads(&h->v, h->batch, h->n))
        return false;
    const side *all[] = {&h->q, &h->k, &h->v};
    for (uint32_t i = 0; i < 3; i++) {
        // A weight would have to be moved, and stay gathered for longer.
        const uint32_t from = all[i]->l.of != ZX_NONE ? all[i]->l.of : all[i]->l.root;
        if (m->g->values[from].role == ZX_R_PARAM) return false;
        if (!parts_of(all[i], false, &p) || !zx_parts_whole(m, all[i]->l.root, &p)) return false;
    }
    return true;
}

// Whether what comes out is moved at once: its heads are put side by side again.
static bool is_moved(const found *f)
{
    const zx_node *n = f->values;
    while ((n = zx_m_reader(f->m, zx_node_out(f->m->g, n, 0))) != NULL) {
        if (n->op == ZX_OP_TRANSPOSE) return true;
        if (n->op != ZX_OP_RESHAPE) break;
    }
    return false;
}

// How many of the three lie rows first, less those that lie heads first; below -3: neither is
// known.
static int32_t flat_saves(const heads *h)
{
    const side *all[] = {&h->q, &h->k, &h->v};
    int32_t saved = 0;
    for (uint32_t i = 0; i < 3; i++) {
        zx_parts four, flat;
        if (!parts_of(all[i], false, &four) || !parts_of(all[i], true, &flat)) return -4;
        saved += zx_parts_in_order(&flat) ? 1 : 0;
        saved -= zx_parts_in_order(&four) ? 1 : 0;
    }
    return saved;
}

// One projection that was moved as a whole and then cut is cut first, if nothing is moved then.
static bool read_best(found *f, heads *h)
{
    f->slices = ZX_LAYOUT_SLICES;
    if (read_heads(f, h) && flat_saves(h) == 3) {
        h->flat = true;
        return true;
    }
    f->slices = 0;
    if (!read_heads(f, h)) return false;
    h->flat = flat_saves(h) + (is_moved(f) ? 1 : -1) > 0;
    return true;
}

// ---- writing
// -------------------------------------------------------------------------------------

static uint32_t operand(found *f, const heads *h, const side *x)
{
    const zx_shape four = {4, {h->batch, x->n_heads, x->n_rows, x->n_size}};
    const zx_shape flat = {3, {h->batch, x->n_rows, x->n_heads * x->n_size}};
    zx_parts p;
    const bool fits = parts_of(x, h->flat, &p);
    ZX_ASSERT(fits);
    return zx_parts_build(f->m, zx_layout_root(f->m, &x->l), &p, h->flat ? &flat : &four);
}

static zx_attrs attributes(const found *f, const heads *h)
{
    zx_arena *mem = f->m->b->mem;
    zx_attrs a =
        zx_attrs_float(mem, (zx_attrs){0}, ZX_A_SCALE, f->scale * h->q.l.scale * h->k.l.scale);
    if (f->cap > 0) a = zx_attrs_float(mem, a, ZX_A_SOFTCAP, f->cap);
    if (f->masks.causal) a = zx_attrs_int(mem, a, ZX_A_CAUSAL, 1);
    if (f->masks.causal && f->masks.shift > 0) a = zx_attrs_int(mem, a, ZX_A_K, f->masks.shift);
    if (f->masks.mean) a = zx_attrs_int(mem, a, ZX_A_MODE, 1);
    if (!h->flat) return a;
    a = zx_attrs_int(mem, a, ZX_A_HEADS, h->n);
    return zx_attrs_int(mem, a, ZX_A_KV_HEADS, h->k.n_heads);
}

// The result, [batch, heads, rows, size] or flat, as the product had it.
static uint32_t result(found *f, const heads *h, uint32_t y)
{
    const zx_shape *as = zx_m_shape(f->m, zx_node_out(f->m->g, f->values, 0));
    const int64_t size = h->v.n_size, line = h->n * size, rows = h->q.n_rows;
    if (!h->flat) return zx_build_reshape(f->m->b, y, as);
    const zx_part parts[] = {{h->batch, rows * line}, {h->n, size}, {rows, line}, {size, 1}};
    zx_parts p = {0};
    for (uint32_t i = 0; i < ZX_COUNT(parts); i++) {
        const zx_parts one = {.n = parts[i].size > 1, .part = {parts[i]}};
        zx_parts_add(&p, &one);
    }
    return zx_parts_build(f->m, y, &p, as);
}

bool zx_fuse_attention(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    const uint32_t least = m->least;
    found f = {.m = m, .values = n, .scale = 1};
    heads h;
    if (n->op != ZX_OP_MATMUL || n->n_in != 2 || transposed(n, ZX_A_TRANS_A)) return false;
    if (zx_attr_float(&n->attrs, ZX_A_ALPHA, 1) != 1) return false;
    if (m->g->values[zx_node_out(m->g, n, 0)].type.dtype != ZX_F32) return false;
    if (!find_softmax(&f, zx_m_in(m, n, 0)) || !read_best(&f, &h)) return false;
    if (!(fabs(f.scale * h.q.l.scale * h.k.l.scale) < 1e30) || !(f.cap < 1e30)) return false;
    if (!zx_masks_read(m, &f.masks, h.batch)) return false;
    // The products and what is between them; how the operands were laid out belongs to who made
    // them.
    m->least = f.scores->first_source < least ? f.scores->first_source : least;
    const uint32_t q = operand(&f, &h, &h.q), k = operand(&f, &h, &h.k), v = operand(&f, &h, &h.v);
    const uint32_t mask = zx_masks_build(m, &f.masks, h.batch);
    const uint32_t in[] = {q, k, v, mask};
    uint32_t made[2];
    zx_err err = {0};
    const zx_status st = zx_build_node(m->b, ZX_OP_ATTENTION, in, mask == ZX_NONE ? 3 : 4,
                                       attributes(&f, &h), NULL, made, &err);
    ZX_ASSERT(st == ZX_OK);
    out[0] = result(&f, &h, made[0]);
    return true;
}

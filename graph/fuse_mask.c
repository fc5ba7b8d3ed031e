// fuse_mask.c - masks of attentions; see fuse_mask.h.
//
// A mask that hides with -inf says the same whatever else hides a score, and so does the operator's
// own causal mask. One that hides with a number, however low, leaves a row that nothing is seen in
// a softmax of what is left: it is taken for causal only where it is the only one, and then no such
// row exists. Where a computed condition puts a number in place of scores, such a row sees all keys
// alike, which the operator can say of conditions alone; where masks are added behind it the number
// is added, too, if it is so low that a score is lost in it. A row that is hidden with -inf as a
// whole is NaN as written, and 0 fused, as other fused attentions have it.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_mask.h"

#include <math.h>
#include <string.h>

#define HIDES -1e4  // and below: e to it is 0 in f32
#define SINKS -1e30 // and below: a score added to it is lost

// ---- constants
// -----------------------------------------------------------------------------------

typedef struct table { // a constant mask over [lead.., rows, keys]
    const unsigned char *data;
    zx_dtype dtype;
    zx_mask_kind kind;
    int64_t lead, rows, keys; // its own: 1 where it is repeated
    int64_t all_rows, all_keys;
} table;

static bool table_of(const zx_match *m, const zx_mask *k, table *t)
{
    const zx_value *v = &m->g->values[k->v];
    const zx_shape *s = &v->type.shape, *scores = &k->scores;
    const zx_dtype want = k->kind == ZX_MASK_SHOWN || k->kind == ZX_MASK_HIDDEN ? ZX_BOOL : ZX_F32;
    if (v->role != ZX_R_CONST || v->data == NULL || v->type.dtype != want) return false;
    *t = (table){.data = v->data,
                 .dtype = want,
                 .kind = k->kind,
                 .lead = s->rank > 2 ? zx_shape_span(s, 0, s->rank - 2) : 1,
                 .rows = s->rank > 1 ? s->dim[s->rank - 2] : 1,
                 .keys = s->rank > 0 ? s->dim[s->rank - 1] : 1,
                 .all_rows = scores->dim[scores->rank - 2],
                 .all_keys = scores->dim[scores->rank - 1]};
    return zx_shape_count(s) > 0;
}

typedef enum shown { NO, YES, PARTLY } shown;

// Whether key j is seen in row i of a slice. `soft` becomes true where a number hides.
static shown at(const table *t, int64_t lead, int64_t i, int64_t j, bool *soft)
{
    const int64_t row = t->rows == 1 ? 0 : i, key = t->keys == 1 ? 0 : j;
    const int64_t place = (lead * t->rows + row) * t->keys + key;
    if (t->dtype == ZX_BOOL) return (t->data[place] != 0) == (t->kind == ZX_MASK_SHOWN) ? YES : NO;
    float x;
    memcpy(&x, t->data + (uint64_t)place * sizeof x, sizeof x);
    if (t->kind == ZX_MASK_SUBTRACTED) x = -x;
    if (!(x < 0) && !(x > 0) && !isnan(x)) return YES;
    if (!(x <= (float)HIDES)) return PARTLY;
    *soft = *soft || isfinite(x);
    return NO;
}

// Whether query i sees exactly the keys up to i + shift, in every slice.
static bool is_causal(const table *t, int64_t *shift, bool *soft)
{
    int64_t seen = 0;
    *soft = false;
    while (seen < t->all_keys && at(t, 0, 0, seen, soft) == YES) seen++;
    if (seen == 0) return false;
    *shift = seen - 1;
    for (int64_t l = 0; l < t->lead; l++)
        for (int64_t i = 0; i < t->all_rows; i++)
            for (int64_t j = 0; j < t->all_keys; j++)
                if (at(t, l, i, j, soft) != (j <= i + *shift ? YES : NO)) return false;
    return true;
}

// Whether every row sees something.
static bool sees_something(const table *t)
{
    bool soft = false;
    for (int64_t l = 0; l < t->lead; l++)
        for (int64_t i = 0; i < t->rows; i++) {
            bool any = false;
            for (int64_t j = 0; j < t->keys && !any; j++) any = at(t, l, i, j, &soft) != NO;
            if (!any) return false;
        }
    return true;
}

// ---- reading
// -------------------------------------------------------------------------------------

static bool is_zero(const zx_match *m, uint32_t v)
{
    double x;
    return zx_m_number(m, v, &x) && !(x < 0) && !(x > 0);
}

static bool is_minus_inf(const zx_match *m, uint32_t v)
{
    double x;
    return zx_m_number(m, v, &x) && isinf(x) && x < 0;
}

static const zx_node *made_by(const zx_match *m, uint32_t v, zx_op_id op)
{
    const uint32_t by = m->g->values[v].by;
    return by != ZX_NONE && m->g->nodes[by].op == op ? &m->g->nodes[by] : NULL;
}

static bool is_bool(const zx_mask *k)
{
    return k->kind == ZX_MASK_SHOWN || k->kind == ZX_MASK_HIDDEN;
}

static bool is_hard(const zx_mask *k)
{
    return is_bool(k) && isinf(k->fill);
}

static bool stays_bool(const zx_mask *k)
{
    return is_bool(k) && !k->is_number;
}

// Behind what only repeats it, or writes a bool as 0 and -inf, or turns it round.
static void peel(const zx_match *m, zx_mask *k)
{
    for (;;) {
        const zx_node *n = made_by(m, k->v, ZX_OP_EXPAND);
        if (n != NULL) {
            k->v = zx_m_in(m, n, 0);
            continue;
        }
        n = made_by(m, k->v, ZX_OP_NOT);
        if (n != NULL && is_bool(k)) {
            k->v = zx_m_in(m, n, 0);
            k->kind = k->kind == ZX_MASK_SHOWN ? ZX_MASK_HIDDEN : ZX_MASK_SHOWN;
            continue;
        }
        n = made_by(m, k->v, ZX_OP_WHERE);
        if (n == NULL || k->kind != ZX_MASK_ADDED) return;
        const uint32_t a = zx_m_in(m, n, 1), b = zx_m_in(m, n, 2);
        if (is_zero(m, a) && is_minus_inf(m, b))
            k->kind = ZX_MASK_SHOWN;
        else if (is_minus_inf(m, a) && is_zero(m, b))
            k->kind = ZX_MASK_HIDDEN;
        else
            return;
        k->v = zx_m_in(m, n, 0);
        k->fill = -(double)INFINITY;
    }
}

// Whether the mask is causal, and may be left to the operator.
static bool absorb(const zx_match *m, zx_masks *all, const zx_mask *k)
{
    table t;
    bool soft;
    int64_t shift;
    if (!table_of(m, k, &t) || !is_causal(&t, &shift, &soft)) return false;
    if (shift >= t.all_keys - 1) return true; // hides nothing
    if (is_bool(k)) soft = isfinite(k->fill);
    if (soft && all->n > 1) return false;
    all->shift = all->causal && all->shift < shift ? all->shift : shift;
    all->causal = true;
    return true;
}

// A and B, where one of the two is causal: the other is the mask.
static bool absorb_half(const zx_match *m, zx_masks *all, zx_mask *k)
{
    const zx_node *n = made_by(m, k->v, ZX_OP_AND);
    for (uint32_t i = 0; n != NULL && k->kind == ZX_MASK_SHOWN && is_hard(k) && i < 2; i++) {
        zx_mask half = *k;
        half.v = zx_m_in(m, n, i);
        peel(m, &half);
        if (!absorb(m, all, &half)) continue;
        k->v = zx_m_in(m, n, 1 - i);
        peel(m, k);
        return true;
    }
    return false;
}

// One of several axes that become one: 1, `full`, or -1 where it is neither.
static int64_t merged(const zx_shape *s, const zx_shape *scores, uint32_t from, uint32_t to)
{
    const uint32_t off = scores->rank - s->rank;
    int64_t n = 1, full = 1;
    for (uint32_t d = from; d < to; d++) {
        n *= d < off ? 1 : s->dim[d - off];
        full *= scores->dim[d];
    }
    return n == 1 || n == full ? n : -1;
}

// The mask's shape over [batch, heads, rows, keys]; false where it doesn't come apart so.
static bool shape_of(const zx_match *m, const zx_mask *k, int64_t batch, zx_shape *y)
{
    const zx_shape *s = zx_m_shape(m, k->v), *scores = &k->scores;
    const uint32_t lead = scores->rank - 2;
    if (s->rank > scores->rank) return false;
    *y = (zx_shape){.rank = 4, .dim = {1, 1, 1, 1}};
    for (uint32_t d = 0; d < 2 && d < s->rank; d++) y->dim[3 - d] = s->dim[s->rank - 1 - d];
    if (merged(s, scores, 0, lead) == 1) return true;
    int64_t n = 1;
    uint32_t cut = 0;
    while (cut < lead && n < batch) n *= scores->dim[cut++];
    if (n == batch) {
        y->dim[0] = merged(s, scores, 0, cut);
        y->dim[1] = merged(s, scores, cut, lead);
        return y->dim[0] >= 0 && y->dim[1] >= 0;
    }
    if (merged(s, scores, 0, lead) < 0) return false;
    y->dim[0] = batch;
    y->dim[1] = zx_shape_span(scores, 0, lead) / batch;
    return true;
}

// Whether all are conditions that put the same number in place of a score: then they are one.
static bool are_alike(const zx_masks *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (!is_bool(&k->of[i]) || k->of[i].fill < k->of[0].fill || k->of[i].fill > k->of[0].fill)
            return false;
    return true;
}

bool zx_masks_read(zx_match *m, zx_masks *k, int64_t batch)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < k->n; i++) peel(m, &k->of[i]);
    const bool alike = are_alike(k);
    for (uint32_t i = 0; i < k->n; i++) {
        zx_mask one = k->of[i];
        zx_shape s;
        table t;
        if (absorb(m, k, &one)) continue;
        while (absorb_half(m, k, &one)) continue;
        if (is_bool(&one) && !is_hard(&one)) {
            one.is_number = !alike;
            k->mean = alike && (k->n > 1 || !table_of(m, &one, &t) || !sees_something(&t));
            // Beside others it has to be what is added to first.
            if (!alike && (i + 1 < k->n || !(one.fill <= SINKS))) return false;
        }
        if (!is_bool(&one) && (m->g->values[one.v].type.dtype != ZX_F32 || zx_m_trained(m, one.v)))
            return false;
        if (!shape_of(m, &one, batch, &s)) return false;
        k->of[left++] = one;
    }
    k->n = left;
    return true;
}

// ---- writing
// -------------------------------------------------------------------------------------

static uint32_t one_of(zx_match *m, zx_op_id op, uint32_t x, uint32_t y)
{
    const uint32_t made = zx_m_made(m, op, x, y, ZX_NONE);
    if (made != ZX_NONE) return made;
    return zx_build1(m->b, op, (zx_attrs){0}, y == ZX_NONE ? 1 : 2, x, y);
}

// As something that broadcasts to [batch, heads, rows, keys], to add or, where all are, a bool.
static uint32_t as_operand(zx_match *m, const zx_mask *k, int64_t batch, bool as_bool)
{
    zx_shape s;
    uint32_t v = k->v;
    const bool fits = shape_of(m, k, batch, &s);
    ZX_ASSERT(fits);
    if (k->kind == ZX_MASK_HIDDEN) v = one_of(m, ZX_OP_NOT, v, ZX_NONE);
    if (k->kind == ZX_MASK_SUBTRACTED) v = one_of(m, ZX_OP_NEG, v, ZX_NONE);
    if (is_bool(k) && !as_bool) {
        const uint32_t zero = zx_build_scalar(m->b, ZX_F32, 0);
        const uint32_t fill = zx_build_scalar(m->b, ZX_F32, k->fill);
        const uint32_t made = zx_m_made(m, ZX_OP_WHERE, v, zero, fill);
        v = made != ZX_NONE ? made : zx_build1(m->b, ZX_OP_WHERE, (zx_attrs){0}, 3, v, zero, fill);
    }
    const zx_shape *is = zx_shape_of(m->b, v);
    bool same = is->rank <= 4;
    for (uint32_t d = 0; d < 4 && same; d++)
        same = s.dim[3 - d] == (d < is->rank ? is->dim[is->rank - 1 - d] : 1);
    return same ? v : zx_build_reshape(m->b, v, &s);
}

uint32_t zx_masks_build(zx_match *m, const zx_masks *k, int64_t batch)
{
    bool as_bool = true;
    uint32_t v = ZX_NONE;
    for (uint32_t i = 0; i < k->n; i++) as_bool = as_bool && stays_bool(&k->of[i]);
    for (uint32_t i = 0; i < k->n; i++) {
        const uint32_t x = as_operand(m, &k->of[i], batch, as_bool);
        v = v == ZX_NONE ? x : one_of(m, as_bool ? ZX_OP_AND : ZX_OP_ADD, v, x);
    }
    return v;
}

// fuse_loss.c - cross entropies written out become one operator, and one whose scores are a
// product's takes that in: then the scores of all rows are never there at once.
//
// Between the scores and the loss there may be reshapes, slices of rows (labels that are shifted)
// and the transposition that puts the classes second. What is done to rows is done to the rows of x
// instead.
// SPDX-License-Identifier: Apache-2.0
#include "graph/fuse_parts.h"

#define MOST_STEPS 8

// The operator has its weight and the weight's gradient whole at the same time, two products have
// them one after the other but keep the scores: with few rows those are the smaller. It saves time,
// so it may take something: with fewer rows than an eighth of the weight's they stay products.
#define FEW_ROWS 8

// What was done to the rows of a tensor whose last dim are the classes: nodes, the last first.
typedef struct rows {
    const zx_node *step[MOST_STEPS];
    uint32_t n, from; // the value that it was done to
} rows;

static int64_t last_dim(const zx_shape *s)
{
    return s->rank > 0 ? s->dim[s->rank - 1] : 0;
}

// Whether n, a Slice, takes all of the last dim.
static bool keeps_classes(const zx_match *m, const zx_node *n)
{
    const zx_shape *x = zx_m_shape(m, zx_m_in(m, n, 0));
    const int64_t *start = zx_attr_ints(&n->attrs, ZX_A_STARTS, NULL);
    const int64_t *step = zx_attr_ints(&n->attrs, ZX_A_STEPS, NULL);
    return start[x->rank - 1] == 0 && step[x->rank - 1] == 1;
}

// Walks back from v, which nobody else reads, over what moves rows of `classes` as a whole.
static rows rows_behind(zx_match *m, uint32_t v, int64_t classes)
{
    rows r = {.from = v};
    while (r.n < MOST_STEPS) {
        const uint32_t least = m->least;
        const zx_node *reshape = zx_m_once(m, r.from, ZX_OP_RESHAPE);
        const zx_node *slice = zx_m_once(m, r.from, ZX_OP_SLICE);
        const zx_node *n = reshape != NULL ? reshape : slice;
        const bool fits = n != NULL && last_dim(zx_m_shape(m, zx_m_in(m, n, 0))) == classes &&
                          (slice == NULL || keeps_classes(m, slice));
        if (!fits) {
            m->least = least;
            break;
        }
        r.step[r.n++] = n;
        r.from = zx_m_in(m, n, 0);
    }
    return r;
}

// The same done to x, which has as many rows of another length.
static uint32_t do_to(zx_match *m, const rows *r, uint32_t x)
{
    const int64_t size = last_dim(zx_shape_of(m->b, x));
    for (uint32_t i = r->n; i-- > 0;) {
        zx_shape to = *zx_m_shape(m, zx_node_out(m->g, r->step[i], 0));
        to.dim[to.rank - 1] = size;
        if (r->step[i]->op == ZX_OP_RESHAPE) {
            x = zx_build_reshape(m->b, x, &to);
            continue;
        }
        const zx_attrs a = zx_attrs_shape(m->b->mem, r->step[i]->attrs, ZX_A_SHAPE, &to);
        x = zx_build1(m->b, ZX_OP_SLICE, a, 1, x);
    }
    return x;
}

// ---- cross entropies ----------------------------------------------------------------------------

// The scores whose log-probabilities along `axis` v is, behind what only moved whole rows of them
// (along the last axis); ZX_NONE.
static uint32_t scores_of(zx_match *m, uint32_t v, uint32_t axis, rows *r)
{
    const zx_shape *s = zx_m_shape(m, v);
    *r = (rows){.from = v};
    if (axis == s->rank - 1) *r = rows_behind(m, v, last_dim(s));
    const zx_node *n = zx_m_once(m, r->from, ZX_OP_LOG_SOFTMAX);
    const zx_node *log = n == NULL ? zx_m_once(m, r->from, ZX_OP_LOG) : NULL;
    if (log != NULL) n = zx_m_once(m, zx_m_in(m, log, 0), ZX_OP_SOFTMAX);
    if (n == NULL) return ZX_NONE;
    const uint32_t x = zx_m_in(m, n, 0), rank = zx_m_shape(m, x)->rank;
    const uint32_t wanted = axis == s->rank - 1 ? rank - 1 : axis;
    return (uint32_t)zx_attr_int(&n->attrs, ZX_A_AXIS, -1) == wanted ? x : ZX_NONE;
}

static uint32_t cross_entropy(zx_match *m, zx_op_id op, const uint32_t *in, uint32_t n_in,
                              zx_attrs attrs)
{
    uint32_t made[2];
    const zx_status st = zx_build_node(m->b, op, in, n_in, attrs, NULL, made, NULL);
    ZX_ASSERT(st == ZX_OK);
    return made[0];
}

// NegativeLogLikelihood of log-probabilities.
static bool from_nll(zx_match *m, const zx_node *n, uint32_t *out)
{
    rows r;
    const uint32_t x = scores_of(m, zx_m_in(m, n, 0), 1, &r);
    if (x == ZX_NONE) return false;
    const uint32_t in[] = {do_to(m, &r, x), zx_m_in(m, n, 1), zx_m_in(m, n, 2)};
    out[0] = cross_entropy(m, ZX_OP_CROSS_ENTROPY, in, in[2] == ZX_NONE ? 2 : 3, n->attrs);
    return true;
}

// The log-probability that is picked from each row: the node that does, behind reshapes.
static const zx_node *picked(zx_match *m, uint32_t v)
{
    for (const zx_node *n; (n = zx_m_once(m, v, ZX_OP_RESHAPE)) != NULL;) v = zx_m_in(m, n, 0);
    const zx_node *n = zx_m_once(m, v, ZX_OP_GATHER_ELEMENTS);
    if (n == NULL) return NULL;
    const zx_shape *s = zx_m_shape(m, zx_m_in(m, n, 0)), *picks = zx_m_shape(m, v);
    const bool one = last_dim(picks) == 1 &&
                     zx_shape_span(picks, 0, s->rank - 1) == zx_shape_span(s, 0, s->rank - 1);
    return one && zx_attr_int(&n->attrs, ZX_A_AXIS, -1) == (int64_t)s->rank - 1 ? n : NULL;
}

// -mean or -sum of what labels pick from log-probabilities; the minus within or without.
static bool from_picks(zx_match *m, uint32_t end, uint32_t *out)
{
    uint32_t inner = end;
    const zx_node *outside = zx_m_by(m, end, ZX_OP_NEG);
    if (outside != NULL) inner = zx_m_in(m, outside, 0);
    const zx_node *mean = zx_m_by(m, inner, ZX_OP_REDUCE_MEAN);
    const zx_node *sum = zx_m_by(m, inner, ZX_OP_REDUCE_SUM);
    const zx_node *reduce = mean != NULL ? mean : sum;
    if (reduce == NULL || (outside != NULL && m->uses[inner] != 1)) return false;
    if (zx_shape_count(zx_m_shape(m, inner)) != 1) return false;
    uint32_t v = zx_m_in(m, reduce, 0);
    const zx_node *within = zx_m_once(m, v, ZX_OP_NEG);
    if ((within == NULL) == (outside == NULL)) return false;
    if (within != NULL) v = zx_m_in(m, within, 0);
    const zx_node *pick = picked(m, v);
    if (pick == NULL) return false;
    rows r;
    const uint32_t p = zx_m_in(m, pick, 0);
    const uint32_t x = scores_of(m, p, zx_m_shape(m, p)->rank - 1, &r);
    if (x == ZX_NONE) return false;
    const zx_shape *s = zx_m_shape(m, p);
    const int64_t n = zx_shape_span(s, 0, s->rank - 1);
    const zx_shape flat = {2, {n, last_dim(s)}}, line = {1, {n}};
    const uint32_t in[] = {zx_build_reshape(m->b, do_to(m, &r, x), &flat),
                           zx_build_reshape(m->b, zx_m_in(m, pick, 1), &line)};
    const zx_attrs a = zx_attrs_int(m->b->mem, (zx_attrs){0}, ZX_A_REDUCTION, mean != NULL ? 1 : 2);
    const uint32_t loss = cross_entropy(m, ZX_OP_CROSS_ENTROPY, in, 2, a);
    out[0] = zx_build_reshape(m->b, loss, zx_m_shape(m, end));
    return true;
}

bool zx_fuse_entropy(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op == ZX_OP_NLL_LOSS) return from_nll(m, n, out);
    const bool ends = n->op == ZX_OP_NEG || n->op == ZX_OP_REDUCE_MEAN || n->op == ZX_OP_REDUCE_SUM;
    return ends && from_picks(m, zx_node_out(m->g, n, 0), out);
}

// ---- of a linear layer --------------------------------------------------------------------------

// [N, C, d..] with the classes put last, where they came from; v itself where it is [N, C].
static uint32_t classes_last(zx_match *m, uint32_t v)
{
    const uint32_t rank = zx_m_shape(m, v)->rank;
    if (rank == 2) return v;
    const zx_node *n = zx_m_once(m, v, ZX_OP_TRANSPOSE);
    if (n == NULL) return ZX_NONE;
    const int64_t *perm = zx_attr_ints(&n->attrs, ZX_A_PERM, NULL);
    for (uint32_t d = 0; d < rank; d++)
        if (perm[d] != (d == 0 ? 0 : d == 1 ? (int64_t)rank - 1 : (int64_t)d - 1)) return ZX_NONE;
    return zx_m_in(m, n, 0);
}

// A product of rows with one matrix.
static const zx_node *layer_of(zx_match *m, uint32_t v)
{
    const zx_node *n = zx_m_once(m, v, ZX_OP_MATMUL);
    if (n == NULL) return NULL;
    const bool plain = zx_attr_int(&n->attrs, ZX_A_TRANS_A, 0) == 0 &&
                       zx_attr_float(&n->attrs, ZX_A_ALPHA, 1) == 1;
    return plain && zx_m_shape(m, zx_m_in(m, n, 1))->rank == 2 ? n : NULL;
}

bool zx_fuse_loss(zx_match *m, uint32_t node, uint32_t *out)
{
    const zx_node *n = &m->g->nodes[node];
    if (n->op != ZX_OP_CROSS_ENTROPY || zx_m_in(m, n, 2) != ZX_NONE ||
        zx_attr_float(&n->attrs, ZX_A_SMOOTHING, 0) != 0 || m->uses[zx_node_out(m->g, n, 1)] > 0)
        return false;
    const uint32_t scores = classes_last(m, zx_m_in(m, n, 0));
    if (scores == ZX_NONE) return false;
    const rows r = rows_behind(m, scores, last_dim(zx_m_shape(m, scores)));
    const zx_node *layer = layer_of(m, r.from);
    if (layer == NULL) return false;
    const zx_shape *s = zx_m_shape(m, scores), *x = zx_m_shape(m, zx_m_in(m, layer, 0));
    if (FEW_ROWS * zx_shape_span(s, 0, s->rank - 1) < last_dim(x)) return false;
    const uint32_t in[] = {do_to(m, &r, zx_m_in(m, layer, 0)), zx_m_in(m, layer, 1),
                           zx_m_in(m, n, 1), zx_m_in(m, layer, 2)};
    zx_attrs a = n->attrs;
    if (zx_attr_int(&layer->attrs, ZX_A_TRANS_B, 0) == 0)
        a = zx_attrs_int(m->b->mem, a, ZX_A_TRANS_B, 0);
    out[0] = cross_entropy(m, ZX_OP_LINEAR_CROSS_ENTROPY, in, in[3] == ZX_NONE ? 3 : 4, a);
    return true;
}

// place_match.c - every span in order of when it begins, beside what ends when it does.
//
// What lies beside each other and ends at a time leaves one hole and not two. So of all gaps that
// a span fits in it takes an end of one at which its neighbour in address ends at about the same
// time, and rather fills a gap than leaves some of it.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "sched/place_parts.h"

#define NEVER INT64_MAX // ends then: the edge of all addresses
#define FULL 1e15       // what a filled gap is worth

#define DIGIT 8 // bits
#define SPAN 24 // bits of a block that name its span

// What is placed and shares a step with the span at hand: its address in grids, then the span.
typedef uint64_t block;
#define OUT UINT64_MAX // it has no address yet

typedef struct piece {
    uint64_t bytes;
    int64_t end;
} piece;

struct zx_matcher {
    zx_placing *p;
    zx_near *near;
    block *at;     // by span
    piece *pieces; // by span
    block *blocks, *sorted;
    uint32_t n_blocks;
};

typedef struct place {
    uint64_t at;
    double score; // lower is better
} place;

zx_matcher *zx_matcher_make(zx_placing *p, zx_near *near)
{
    zx_matcher *m = ZX_NEW(p->mem, zx_matcher, 1);
    m->p = p;
    m->at = ZX_NEW(p->mem, block, p->n);
    m->pieces = ZX_NEW(p->mem, piece, p->n);
    for (uint32_t i = 0; i < p->n; i++) m->pieces[i] = (piece){p->bytes[i], p->end[i]};
    m->blocks = ZX_NEW(p->mem, block, p->n);
    m->sorted = ZX_NEW(p->mem, block, p->n);
    m->near = near;
    return m;
}

// By address, digit by digit, the last first; those with the same never share a step.
static void sort(zx_matcher *m)
{
    const uint32_t n = m->n_blocks;
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) most |= m->blocks[i];
    for (uint32_t shift = SPAN; shift < 64 && most >> shift != 0; shift += DIGIT) {
        uint32_t begin[(1 << DIGIT) + 1] = {0};
        for (uint32_t i = 0; i < n; i++) begin[(m->blocks[i] >> shift & ((1 << DIGIT) - 1)) + 1]++;
        for (uint32_t d = 0; d < 1 << DIGIT; d++) begin[d + 1] += begin[d];
        for (uint32_t i = 0; i < n; i++)
            m->sorted[begin[m->blocks[i] >> shift & ((1 << DIGIT) - 1)]++] = m->blocks[i];
        block *const was = m->blocks;
        m->blocks = m->sorted;
        m->sorted = was;
    }
}

static void find_blocks(zx_matcher *m, uint32_t span)
{
    uint32_t n;
    const uint32_t *list = zx_near_find(m->near, span, &n);
    m->n_blocks = 0;
    for (uint32_t k = 0; k < n; k++) {
        m->blocks[m->n_blocks] = m->at[list[k]];
        m->n_blocks += m->at[list[k]] != OUT;
    }
    sort(m);
    m->p->work += m->n_blocks;
}

static double apart(int64_t a, int64_t b, zx_match_rule rule)
{
    if (b == NEVER) return rule.edges ? 0 : fabs((double)a);
    return fabs((double)(a - b));
}

// A gap [lo, hi) between neighbours that end at `below` and `above`.
static void look(const zx_placing *p, uint32_t span, zx_match_rule rule, uint64_t lo, uint64_t hi,
                 int64_t below, int64_t above, place *best)
{
    const uint64_t bytes = p->bytes[span], left = hi - lo - bytes;
    const double units = (double)bytes / (double)p->grid;
    const double scale = rule.weighed ? units : 1;
    const double a = scale * apart(p->end[span], below, rule),
                 b = scale * apart(p->end[span], above, rule);
    double score = (double)left / (double)p->grid - (left == 0 ? FULL : 0);
    score += left == 0 ? fmin(a, b) / scale : 0;
    if (left > 0) score += fmin(a, b);
    if (score >= best->score) return;
    best->score = score;
    best->at = left > 0 && b < a ? hi - bytes : lo;
}

static uint64_t find(const zx_matcher *m, uint32_t span, zx_match_rule rule, uint64_t most)
{
    const uint64_t bytes = m->p->bytes[span];
    place best = {0, INFINITY};
    uint64_t at = 0, lowest = UINT64_MAX;
    int64_t below = NEVER;
    for (uint32_t k = 0; k <= m->n_blocks; k++) {
        const bool last = k == m->n_blocks;
        const piece *x = &m->pieces[last ? 0 : m->blocks[k] & ((1u << SPAN) - 1)];
        const uint64_t lo = last ? UINT64_MAX : (m->blocks[k] >> SPAN) * m->p->grid;
        const uint64_t hi = lo < most ? lo : most;
        if (lo > at && lo - at >= bytes && lowest == UINT64_MAX) lowest = at;
        if (hi > at && hi - at >= bytes)
            look(m->p, span, rule, at, hi, below, lo >= most ? NEVER : x->end, &best);
        if (last || lo + x->bytes <= at) continue;
        at = lo + x->bytes;
        below = x->end;
    }
    return best.score < INFINITY ? best.at : lowest;
}

bool zx_match(zx_matcher *m, const uint32_t *order, zx_match_rule rule, uint64_t most,
              uint64_t work)
{
    zx_placing *p = m->p;
    const uint64_t end = p->work + work;
    for (uint32_t i = 0; i < p->n; i++) m->at[i] = OUT;
    for (uint32_t k = 0; k < p->n; k++) {
        const uint32_t i = order[k];
        if (p->work > end) return false;
        p->offset[i] = 0;
        if (p->bytes[i] == 0) continue; // meets nobody
        find_blocks(m, i);
        p->offset[i] = find(m, i, rule, most);
        m->at[i] = p->offset[i] / p->grid << SPAN | i;
    }
    return true;
}

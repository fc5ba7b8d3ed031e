// place_fit.c - every span in a given order, each where it fits lowest, or tightest.
//
// What is placed is kept in trees over the columns. A node knows which addresses are taken by
// pieces that cover it (`own`) and by any piece that touches it (`all`), as runs: neighbours in
// address become one. So a span is compared with a few short lists of runs, not with every other
// span, and the better the layout, the shorter they are.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "sched/place_parts.h"

typedef struct run { // addresses [lo, hi)
    uint64_t lo, hi;
} run;

typedef struct runs { // in order, never touching
    run *at;
    uint32_t n, cap;
} runs;

typedef struct shelf {
    uint32_t leaves; // node 1 is the root, those of node v are 2v and 2v + 1
    runs *own, *all;
} shelf;

struct zx_fitter {
    zx_placing *p;
    shelf always; // on the circle: spans of every micro-batch
    shelf shadow; // on the circle: the others
    shelf line;   // on the line: the others
    uint32_t n_lists, cap_lists;
    runs *lists; // that a span may not touch: each from its next run on
};

// ---- the trees ----------------------------------------------------------------------------------

static void shelf_make(shelf *s, uint32_t columns, zx_arena *mem)
{
    s->leaves = 1;
    while (s->leaves < columns) s->leaves *= 2;
    s->own = ZX_NEW(mem, runs, 2 * (size_t)s->leaves);
    s->all = ZX_NEW(mem, runs, 2 * (size_t)s->leaves);
}

static void shelf_clear(shelf *s)
{
    for (uint32_t v = 0; v < 2 * s->leaves; v++) s->own[v].n = s->all[v].n = 0;
}

static void add_run(runs *l, run x, zx_arena *mem)
{
    uint32_t a = 0, b = l->n; // the first that ends at x.lo or after
    while (a < b) {
        const uint32_t mid = a + (b - a) / 2;
        if (l->at[mid].hi < x.lo)
            a = mid + 1;
        else
            b = mid;
    }
    for (b = a; b < l->n && l->at[b].lo <= x.hi; b++) {
        if (l->at[b].lo < x.lo) x.lo = l->at[b].lo;
        if (l->at[b].hi > x.hi) x.hi = l->at[b].hi;
    }
    if (a == b) {
        ZX_GROW(mem, l->at, l->n, l->cap);
        memmove(l->at + a + 1, l->at + a, (l->n - a) * sizeof *l->at);
        l->n++;
    } else if (b > a + 1) {
        memmove(l->at + a + 1, l->at + b, (l->n - b) * sizeof *l->at);
        l->n -= b - a - 1;
    }
    l->at[a] = x;
}

typedef struct range { // a node's columns [lo, hi]
    uint32_t node, lo, hi;
} range;

static range half(range r, uint32_t which)
{
    const uint32_t mid = r.lo + (r.hi - r.lo) / 2;
    return which == 0 ? (range){2 * r.node, r.lo, mid} : (range){2 * r.node + 1, mid + 1, r.hi};
}

static void shelf_add(shelf *s, range r, zx_piece p, run x, zx_arena *mem)
{
    if (p.hi < r.lo || p.lo > r.hi) return;
    add_run(&s->all[r.node], x, mem);
    if (p.lo <= r.lo && r.hi <= p.hi) {
        add_run(&s->own[r.node], x, mem);
        return;
    }
    shelf_add(s, half(r, 0), p, x, mem);
    shelf_add(s, half(r, 1), p, x, mem);
}

static void put_list(zx_fitter *f, const runs *l)
{
    if (l->n == 0) return;
    ZX_GROW(f->p->mem, f->lists, f->n_lists, f->cap_lists);
    f->lists[f->n_lists++] = *l;
}

static void shelf_look(zx_fitter *f, const shelf *s, range r, zx_piece p)
{
    if (p.hi < r.lo || p.lo > r.hi || s->all[r.node].n == 0) return;
    if (p.lo <= r.lo && r.hi <= p.hi) {
        put_list(f, &s->all[r.node]);
        return;
    }
    put_list(f, &s->own[r.node]);
    shelf_look(f, s, half(r, 0), p);
    shelf_look(f, s, half(r, 1), p);
}

static range root(const shelf *s)
{
    return (range){1, 0, s->leaves - 1};
}

// ---- a span -------------------------------------------------------------------------------------

// Moves *at up to where `bytes` are free in all lists; returns the address at which they end to be
// free.
static uint64_t next_gap(zx_fitter *f, uint64_t bytes, uint64_t *at)
{
    uint64_t top = UINT64_MAX;
    uint32_t i = 0, calm = 0; // so many lists have nothing in the way
    while (calm < f->n_lists) {
        runs *l = &f->lists[i];
        i = i + 1 < f->n_lists ? i + 1 : 0;
        calm++;
        f->p->work++;
        for (; l->n > 0 && l->at->lo < *at + bytes; l->at++, l->n--) {
            f->p->work++;
            if (l->at->hi <= *at) continue;
            *at = l->at->hi;
            calm = 1;
        }
        if (calm == 1) top = UINT64_MAX;
        if (l->n > 0 && l->at->lo < top) top = l->at->lo;
    }
    return top;
}

// The gap below `most` that a rule asks for; where there is none, the lowest that fits.
static uint64_t find(zx_fitter *f, uint64_t bytes, zx_fit_rule rule, uint64_t most)
{
    uint64_t at = 0, best = UINT64_MAX, room = UINT64_MAX;
    for (;;) {
        const uint64_t top = next_gap(f, bytes, &at), end = top < most ? top : most;
        const bool fits = at + bytes <= end;
        if (rule == ZX_FIT_LOWEST || (!fits && top >= most)) return best == UINT64_MAX ? at : best;
        if (fits && rule == ZX_FIT_HIGHEST)
            best = end - bytes;
        else if (fits && end - at < room) {
            room = end - at;
            best = at;
        }
        if (top >= most) return best;
        at = top;
    }
}

static void look(zx_fitter *f, uint32_t span)
{
    const zx_columns *c = &f->p->circle, *l = &f->p->line;
    f->n_lists = 0;
    for (uint32_t i = c->at[span]; i < c->at[span + 1]; i++) {
        shelf_look(f, &f->always, root(&f->always), c->pieces[i]);
        if (f->p->always[span]) shelf_look(f, &f->shadow, root(&f->shadow), c->pieces[i]);
    }
    for (uint32_t i = l->at[span]; i < l->at[span + 1]; i++)
        shelf_look(f, &f->line, root(&f->line), l->pieces[i]);
}

static void keep(zx_fitter *f, uint32_t span, run x)
{
    const zx_columns *c = &f->p->circle, *l = &f->p->line;
    shelf *s = f->p->always[span] ? &f->always : &f->shadow;
    for (uint32_t i = c->at[span]; i < c->at[span + 1]; i++)
        shelf_add(s, root(s), c->pieces[i], x, f->p->mem);
    for (uint32_t i = l->at[span]; i < l->at[span + 1]; i++)
        shelf_add(&f->line, root(&f->line), l->pieces[i], x, f->p->mem);
}

zx_fitter *zx_fitter_make(zx_placing *p)
{
    zx_fitter *f = ZX_NEW(p->mem, zx_fitter, 1);
    f->p = p;
    shelf_make(&f->always, p->circle.n, p->mem);
    shelf_make(&f->shadow, p->circle.n, p->mem);
    shelf_make(&f->line, p->line.n, p->mem);
    return f;
}

bool zx_fit(zx_fitter *f, const uint32_t *order, const uint8_t *rules, uint64_t most, uint64_t work)
{
    zx_placing *p = f->p;
    const uint64_t end = p->work + work;
    shelf_clear(&f->always);
    shelf_clear(&f->shadow);
    shelf_clear(&f->line);
    for (uint32_t k = 0; k < p->n; k++) {
        const uint32_t i = order[k];
        if (p->work > end) return false;
        p->offset[i] = 0;
        if (p->bytes[i] == 0) continue; // meets nobody
        look(f, i);
        const uint64_t at = find(f, p->bytes[i], (zx_fit_rule)rules[i], most);
        p->offset[i] = at;
        keep(f, i, (run){at, at + p->bytes[i]});
    }
    return true;
}

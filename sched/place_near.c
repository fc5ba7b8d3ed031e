// place_near.c - which spans share a step with one: found in trees, remembered while there is room.
// SPDX-License-Identifier: Apache-2.0
#include "sched/place_parts.h"

#define ROOM (UINT64_C(1) << 23) // so many neighbours are remembered

typedef struct item { // a piece
    uint32_t lo, hi, span;
} item;

typedef struct crowd { // pieces in order of lo, and a tree that knows how far those below a node go
    uint32_t n, leaves;
    item *items;
    uint32_t *begin; // by column: the first item with this lo or a later one
    uint32_t *far;   // by node: 1 + the highest hi; 0: none
} crowd;

static void crowd_make(crowd *c, const zx_placing *p, const zx_columns *columns, bool always)
{
    uint32_t *at = ZX_NEW(p->mem, uint32_t, columns->n + (size_t)2);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = columns->at[i]; p->always[i] == always && k < columns->at[i + 1]; k++)
            at[columns->pieces[k].lo + 1]++;
    for (uint32_t k = 0; k < columns->n; k++) at[k + 1] += at[k];
    c->n = at[columns->n];
    c->begin = zx_arena_copy(p->mem, at, (columns->n + (size_t)2) * sizeof *at);
    c->items = ZX_NEW(p->mem, item, c->n);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = columns->at[i]; p->always[i] == always && k < columns->at[i + 1]; k++) {
            const zx_piece x = columns->pieces[k];
            c->items[at[x.lo]++] = (item){x.lo, x.hi, i};
        }
    c->leaves = 1;
    while (c->leaves < c->n) c->leaves *= 2;
    c->far = ZX_NEW(p->mem, uint32_t, 2 * (size_t)c->leaves);
    for (uint32_t k = 0; k < c->n; k++) c->far[c->leaves + k] = c->items[k].hi + 1;
    for (uint32_t v = c->leaves - 1; v > 0; v--)
        c->far[v] = c->far[2 * v] > c->far[2 * v + 1] ? c->far[2 * v] : c->far[2 * v + 1];
}

struct zx_near {
    zx_placing *p;
    crowd always, shadow, line; // as the shelves of place_fit.c
    uint32_t *seen, now;        // by span: the last time that it was found
    uint32_t **known;           // by span: its list; NULL: it isn't remembered
    uint32_t *length, n, *list;
    uint64_t room; // for so many more
};

zx_near *zx_near_make(zx_placing *p)
{
    zx_near *f = ZX_NEW(p->mem, zx_near, 1);
    f->p = p;
    crowd_make(&f->always, p, &p->circle, true);
    crowd_make(&f->shadow, p, &p->circle, false);
    crowd_make(&f->line, p, &p->line, false);
    f->seen = ZX_NEW(p->mem, uint32_t, p->n);
    f->known = ZX_NEW(p->mem, uint32_t *, p->n);
    f->length = ZX_NEW(p->mem, uint32_t, p->n);
    f->list = ZX_NEW(p->mem, uint32_t, p->n);
    f->room = ROOM;
    return f;
}

static void find_below(zx_near *f, const crowd *c, uint32_t node, uint32_t first, uint32_t width,
                       uint32_t end, uint32_t lo)
{
    if (first >= end || c->far[node] <= lo) return;
    f->p->work++;
    if (width == 1) {
        const uint32_t i = c->items[first].span;
        if (f->seen[i] == f->now) return;
        f->seen[i] = f->now;
        f->list[f->n++] = i;
        return;
    }
    find_below(f, c, 2 * node, first, width / 2, end, lo);
    find_below(f, c, 2 * node + 1, first + width / 2, width / 2, end, lo);
}

static void find_in(zx_near *f, const crowd *c, zx_piece x)
{
    find_below(f, c, 1, 0, c->leaves, c->begin[x.hi + 1], x.lo);
}

const uint32_t *zx_near_find(zx_near *f, uint32_t span, uint32_t *n)
{
    const zx_columns *c = &f->p->circle, *l = &f->p->line;
    *n = f->length[span];
    f->p->work += *n;
    if (f->known[span] != NULL) return f->known[span];
    f->n = 0;
    f->seen[span] = ++f->now;
    for (uint32_t i = c->at[span]; i < c->at[span + 1]; i++) {
        find_in(f, &f->always, c->pieces[i]);
        if (f->p->always[span]) find_in(f, &f->shadow, c->pieces[i]);
    }
    for (uint32_t i = l->at[span]; i < l->at[span + 1]; i++) find_in(f, &f->line, l->pieces[i]);
    *n = f->n;
    if (f->n > f->room) return f->list;
    f->room -= f->n;
    f->length[span] = f->n;
    f->known[span] = zx_arena_copy(f->p->mem, f->list, f->n * sizeof *f->list);
    return f->known[span];
}

// place_mend.c - a layout that ends too high, mended.
//
// What ends too high is taken out and put where the least is in its way, which is taken out in
// turn, the largest first. What was thrown out often is thrown out ever less readily, so nothing
// goes around in circles for long. Which prices do well is chance: there are several manners.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "sched/place_parts.h"

#define DIGIT 8        // bits
#define SPAN 24        // bits of a change that name its span
#define OUT UINT64_MAX // it has no address
#define LESS 0.98      // times what was left out, to be remembered

static const struct manner {
    uint32_t bytes, steps; // quarters: powers that they have in the price of taking it out
    bool harder;           // the price grows with the square of how often it was
    bool sooner;           // what was taken out often is put back first
}
// Not bytes alone: then many small ones would go in the place of a large one, and each of them has
// to find another.
manners[] = {
    {2, 4, false, false}, {2, 4, true, true}, {3, 4, false, true}, {3, 4, true, false},
    {2, 3, false, true},  {3, 3, true, true}, {4, 4, true, true},  {2, 2, true, false},
};

// ---- taking out and putting in ------------------------------------------------------------------

// Of what is in the way, as an address rises: twice the address, and 1 where a span comes (what
// touches isn't in the way); then the span.
typedef uint64_t change;

typedef struct piece {   // a span
    uint64_t lo, grids;  // address and size
    double price, first; // of taking it out: this time, the first time
    double rank, size;   // highest first, of those that are out: now, at first
    uint32_t thrown;     // how often it was taken out
    bool out;            // it has no address now
} piece;

struct zx_mender {
    zx_placing *p;
    zx_near *all;
    piece *pieces;
    uint32_t n_heap, *heap; // spans that are out, the one to be placed next on top
    uint32_t n_near, *near; // spans that share a step with the one at hand
    change *changes, *sorted;
    uint64_t *was;
    double left; // of what is out, all sizes together
    struct manner manner;
};

static void find_near(zx_mender *m, uint32_t span)
{
    uint32_t n;
    const uint32_t *list = zx_near_find(m->all, span, &n);
    m->n_near = 0;
    for (uint32_t k = 0; k < n; k++)
        if (!m->pieces[list[k]].out) m->near[m->n_near++] = list[k];
}

static bool sooner(const zx_mender *m, uint32_t a, uint32_t b)
{
    const double x = m->pieces[a].rank, y = m->pieces[b].rank;
    return x != y ? x > y : a < b;
}

static void push(zx_mender *m, uint32_t span)
{
    uint32_t i = m->n_heap++;
    m->pieces[span].out = true;
    m->left += m->pieces[span].size;
    for (; i > 0 && sooner(m, span, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = span;
}

static uint32_t pop(zx_mender *m)
{
    const uint32_t top = m->heap[0], last = m->heap[--m->n_heap];
    uint32_t i = 0;
    for (uint32_t k = 1; k < m->n_heap; i = k, k = 2 * k + 1) {
        if (k + 1 < m->n_heap && sooner(m, m->heap[k + 1], m->heap[k])) k++;
        if (!sooner(m, m->heap[k], last)) break;
        m->heap[i] = m->heap[k];
    }
    m->heap[i] = last;
    m->left -= m->pieces[top].size;
    return top;
}

// By address, those with the same in the order in which they came: digit by digit, the last first.
static void sort(zx_mender *m, uint32_t n)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < n; i++) most |= m->changes[i];
    for (uint32_t shift = SPAN; shift < 64 && most >> shift != 0; shift += DIGIT) {
        uint32_t begin[(1 << DIGIT) + 1] = {0};
        for (uint32_t i = 0; i < n; i++) begin[(m->changes[i] >> shift & ((1 << DIGIT) - 1)) + 1]++;
        for (uint32_t d = 0; d < 1 << DIGIT; d++) begin[d + 1] += begin[d];
        for (uint32_t i = 0; i < n; i++)
            m->sorted[begin[m->changes[i] >> shift & ((1 << DIGIT) - 1)]++] = m->changes[i];
        change *const was = m->changes;
        m->changes = m->sorted;
        m->sorted = was;
    }
}

// The changes that those nearby make for a span, in order; returns how many. *count, *price: what
// is in its way at address 0.
static uint32_t list_changes(zx_mender *m, uint32_t span, uint32_t *count, double *price)
{
    const uint64_t size = m->pieces[span].grids;
    uint32_t n = 0;
    *count = 0;
    *price = 0;
    for (uint32_t k = 0; k < m->n_near; k++) {
        const uint32_t i = m->near[k];
        const piece *x = &m->pieces[i];
        if (x->lo >= size) {
            m->changes[n++] = (2 * (x->lo - size) + 1) << SPAN | i;
        } else {
            *price += x->price;
            ++*count;
        }
        m->changes[n++] = (2 * (x->lo + x->grids)) << SPAN | i;
    }
    sort(m, n);
    m->p->work += n;
    return n;
}

// The address at or below `most` at which the least is in the way: 0, or an end of somebody.
static uint64_t cheapest(zx_mender *m, uint32_t span, uint64_t most)
{
    uint32_t count;
    double price, best;
    const uint32_t n = list_changes(m, span, &count, &price);
    const zx_placing *p = m->p;
    uint64_t at = 0;
    best = price;
    for (uint32_t k = 0; k < n && count > 0; k++) {
        const uint64_t key = m->changes[k] >> SPAN;
        const uint32_t i = m->changes[k] & ((1u << SPAN) - 1);
        if (key / 2 > most / p->grid) break;
        if (key % 2 == 1) {
            price += m->pieces[i].price;
            count++;
            continue;
        }
        price -= m->pieces[i].price;
        count--;
        if (count == 0) return key / 2 * p->grid; // exactly nothing, whatever the sums say
        if (price < best) {
            best = price;
            at = key / 2 * p->grid;
        }
    }
    return at;
}

static void place(zx_mender *m, uint32_t span, uint64_t most)
{
    const zx_placing *p = m->p;
    find_near(m, span);
    const uint64_t at = cheapest(m, span, most - p->bytes[span]);
    const uint64_t lo = at / p->grid, hi = lo + m->pieces[span].grids;
    for (uint32_t k = 0; k < m->n_near; k++) {
        const uint32_t i = m->near[k];
        piece *x = &m->pieces[i];
        if (x->lo >= hi || x->lo + x->grids <= lo) continue;
        const double times = 1.0 + ++x->thrown;
        x->price = x->first * (m->manner.harder ? times * times : times);
        if (m->manner.sooner) x->rank = x->size * times;
        push(m, i);
    }
    p->offset[span] = at;
    m->pieces[span].lo = lo;
    m->pieces[span].out = false;
}

zx_mender *zx_mender_make(zx_placing *p, zx_near *near)
{
    zx_mender *m = ZX_NEW(p->mem, zx_mender, 1);
    m->p = p;
    m->all = near;
    m->pieces = ZX_NEW(p->mem, piece, p->n);
    m->heap = ZX_NEW(p->mem, uint32_t, p->n);
    m->near = ZX_NEW(p->mem, uint32_t, p->n);
    m->changes = ZX_NEW(p->mem, change, 2 * (size_t)p->n);
    m->sorted = ZX_NEW(p->mem, change, 2 * (size_t)p->n);
    m->was = ZX_NEW(p->mem, uint64_t, p->n);
    zx_mender_start(m, 0);
    return m;
}

// By roots, which are the same numbers everywhere.
static double power(double x, uint32_t quarters)
{
    double product = 1;
    if (quarters & 4) product *= x;
    if (quarters & 2) product *= sqrt(x);
    if (quarters & 1) product *= sqrt(sqrt(x));
    return product;
}

void zx_mender_start(zx_mender *m, uint32_t manner)
{
    const zx_placing *p = m->p;
    m->manner = manners[manner % ZX_COUNT(manners)];
    for (uint32_t i = 0; i < p->n; i++) {
        const double bytes = (double)p->bytes[i], steps = (double)p->steps[i];
        const double price = power(bytes, m->manner.bytes) * power(steps, m->manner.steps);
        m->pieces[i] = (piece){.grids = p->bytes[i] / p->grid,
                               .price = price,
                               .first = price,
                               .rank = bytes * steps,
                               .size = bytes * steps};
    }
}

// Takes out what ends too high. False: something never fits.
static bool begin(zx_mender *m, uint64_t most)
{
    const zx_placing *p = m->p;
    bool fits = true;
    m->n_heap = 0;
    m->left = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        m->pieces[i].out = false;
        m->pieces[i].lo = p->offset[i] / p->grid;
        fits = fits && p->bytes[i] <= most;
        if (p->offset[i] + p->bytes[i] > most) push(m, i);
    }
    return fits;
}

bool zx_mend(zx_mender *m, uint64_t most, uint64_t work)
{
    zx_placing *p = m->p;
    const uint64_t end = p->work + work;
    most -= most % p->grid;
    memcpy(m->was, p->offset, p->n * sizeof *m->was);
    if (!begin(m, most)) return false;
    while (m->n_heap > 0 && p->work < end) place(m, pop(m), most);
    if (m->n_heap == 0) return true;
    memcpy(p->offset, m->was, p->n * sizeof *m->was);
    return false;
}

// The lowest address that is free, `most` or above.
static void place_above(zx_mender *m, uint32_t span, uint64_t most)
{
    piece *x = &m->pieces[span];
    find_near(m, span);
    x->lo = most / m->p->grid;
    for (uint32_t k = 0; k < m->n_near;) { // anew after each move
        const piece *y = &m->pieces[m->near[k++]];
        m->p->work++;
        if (y->lo + y->grids <= x->lo || x->lo + x->grids <= y->lo) continue;
        x->lo = y->lo + y->grids;
        k = 0;
    }
    m->p->offset[span] = x->lo * m->p->grid;
    x->out = false;
}

void zx_mend_part(zx_mender *m, uint64_t most, uint64_t work)
{
    zx_placing *p = m->p;
    const uint64_t end = p->work + work;
    double least = INFINITY;
    most -= most % p->grid;
    if (!begin(m, most)) return;
    for (;;) {
        if (m->n_heap == 0 || m->left < least * LESS) {
            least = m->left;
            for (uint32_t i = 0; i < p->n; i++) m->was[i] = m->pieces[i].out ? OUT : p->offset[i];
        }
        if (m->n_heap == 0 || p->work >= end) break;
        place(m, pop(m), most);
    }
    m->n_heap = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        m->pieces[i].out = false;
        p->offset[i] = m->was[i];
        m->pieces[i].lo = m->was[i] / p->grid;
        if (m->was[i] == OUT) push(m, i);
    }
    while (m->n_heap > 0) place_above(m, pop(m), most);
}

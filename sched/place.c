// place.c - pass: the address of every byte that comes and goes.
//
// Spans that share a step must not share bytes. They are taken in one of a few orders, and each
// gets the lowest address at which it meets nobody (first fit); the search tries the orders.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <stdlib.h>
#include <string.h>

// Placements that are tried: for the least plan, and for others.
#define ROUNDS_LEAST 12
#define ROUNDS 3
#define MANY 4000 // spans: a placement takes time by their square

static void collect(zx_draft *d)
{
    const zx_trace *t = d->trace;
    const int64_t n = t->n_steps;
    int64_t *until = ZX_NEW(d->mem, int64_t, t->n_storages);
    for (uint32_t i = 0; i < t->n_storages; i++) until[i] = t->storages[i].dies;
    for (uint32_t i = 0; i < d->n_flows; i++) {
        const zx_where w = t->where[t->graph->params[d->flows[i].unit].grad];
        if (w.kind == ZX_AT_STORAGE && d->flows[i].drained > until[w.index])
            until[w.index] = d->flows[i].drained;
    }
    d->n_spans = 0;
    for (uint32_t i = 0; i < t->n_storages; i++) {
        const zx_storage *s = &t->storages[i];
        if (d->made_in[i] != ZX_NONE || s->bytes == 0) continue;
        d->spans[d->n_spans++] = (zx_span){ZX_SPAN_STORAGE, i, s->born, until[i], 0, s->bytes, 0};
    }
    for (uint32_t i = 0; i < d->n_stays; i++) {
        const zx_stay *s = &d->stays[i];
        const zx_graph *g = t->graph;
        const uint64_t ranks = d->options->ranks,
                       size = zx_dtype_bytes(g->values[g->params[s->unit].value].type.dtype);
        const uint64_t shard = (d->unit_elements[s->unit] + ranks - 1) / ranks;
        const int64_t from = s->always ? 0 : s->issue, to = s->always ? n - 1 : s->last;
        d->spans[d->n_spans++] = (zx_span){ZX_SPAN_STAY, i, from, to, 0, shard * ranks * size, 0};
    }
    for (uint32_t s = 0; s < t->n_steps; s++)
        if (t->work[s] > 0)
            d->spans[d->n_spans++] = (zx_span){ZX_SPAN_WORK, s, s, s, 0, t->work[s], 0};
}

// The orders. Equal spans keep the order in which they were collected, so a plan is deterministic.
typedef struct item {
    double key; // higher first
    uint32_t span;
} item;

static int higher(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->span < y->span ? -1 : x->span > y->span;
}

static double key_of(const zx_span *s, uint32_t order)
{
    const double bytes = (double)s->bytes, length = (double)(s->to - s->from + 1);
    switch (order) {
    case 0:
        return bytes;
    case 1:
        return bytes * length;
    case 2:
        return length;
    default:
        return -(double)s->from;
    }
}

typedef struct placed {
    uint64_t offset, end;
    uint32_t from, length; // around the circle
    const zx_span *span;
} placed;

typedef struct shelf { // in order of offset
    placed *at;
    uint32_t n, cap;
} shelf;

// All that is placed, and again by the part of the circle that it touches: what is short has to be
// compared with its own part only.
#define PARTS 32
#define FEW 3 // parts: for spans that touch more, all is walked through
typedef struct shelves {
    uint32_t n_steps, micro_batches, part; // steps of a part
    shelf all, by_part[PARTS];
} shelves;

static uint32_t part_of(const shelves *s, uint32_t step)
{
    return step / s->part;
}

static void insert(shelf *s, zx_arena *mem, placed x)
{
    ZX_GROW(mem, s->at, s->n, s->cap);
    uint32_t a = 0, b = s->n;
    while (a < b) { // after those with the same offset
        const uint32_t mid = a + (b - a) / 2;
        if (s->at[mid].offset > x.offset)
            b = mid;
        else
            a = mid + 1;
    }
    memmove(s->at + a + 1, s->at + a, (s->n - a) * sizeof *s->at);
    s->at[a] = x;
    s->n++;
}

static void keep(shelves *s, zx_arena *mem, placed x)
{
    insert(&s->all, mem, x);
    bool done[PARTS] = {false};
    for (uint32_t step = x.from, left = x.length; left > 0;) {
        const uint32_t p = part_of(s, step), end = (p + 1) * s->part;
        if (!done[p]) insert(&s->by_part[p], mem, x);
        done[p] = true;
        const uint32_t stop = end < s->n_steps ? end : s->n_steps;
        const uint32_t here = stop - step < left ? stop - step : left;
        left -= here;
        step = stop == s->n_steps ? 0 : stop;
    }
}

typedef struct line { // where a span is on the step's line: [from, to] moved by lo..hi rounds
    int64_t from, to, lo, hi;
} line;

static line line_of(const zx_span *s, int64_t n, int64_t micros)
{
    if (s->repeat > 0) return (line){s->from, s->to, 0, (int64_t)s->repeat - 1};
    // Around the circle: what wraps is there before the first round or after the last, too.
    return (line){s->from, s->to, s->to >= n ? -1 : 0, s->from < 0 ? micros : micros - 1};
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

// Two spans of which the circle says that they meet: whether they do, where one isn't in every
// micro-batch.
static bool meet_on_line(const zx_span *a, const zx_span *b, int64_t n, int64_t micros)
{
    if (a->repeat == 0 && b->repeat == 0) return true;
    const line x = line_of(a, n, micros), y = line_of(b, n, micros);
    int64_t lo = -floor_div(y.to - x.from, n), hi = floor_div(x.to - y.from, n);
    if (lo < y.lo - x.hi) lo = y.lo - x.hi;
    if (hi > y.hi - x.lo) hi = y.hi - x.lo;
    return lo <= hi;
}

// Moves *at up past what shares steps with [from, from + length) and lies in the way; true if it
// moved.
static bool climb(const shelves *all, const shelf *s, const placed *p, uint64_t bytes, uint64_t *at)
{
    const uint32_t n = all->n_steps, from = p->from, length = p->length;
    const uint64_t before = *at;
    for (uint32_t i = 0; i < s->n && s->at[i].offset < *at + bytes; i++) {
        const placed *x = &s->at[i];
        if (x->end <= *at) continue;
        // How far one begins after the other, around the circle.
        const uint32_t a = x->from >= from ? x->from - from : x->from + n - from;
        const uint32_t b = a == 0 ? 0 : n - a;
        if ((a < length || b < x->length) && meet_on_line(p->span, x->span, n, all->micro_batches))
            *at = zx_align_up(x->end, ZX_ALIGN);
    }
    return *at != before;
}

// First fit: the lowest address at which a span meets nobody.
static uint64_t lowest(const shelves *s, const placed *x, uint64_t bytes)
{
    uint64_t at = 0;
    const uint32_t first = part_of(s, x->from);
    const bool wraps = x->from + x->length > s->n_steps;
    const uint32_t last = wraps ? first : part_of(s, x->from + x->length - 1);
    if (wraps || last - first >= FEW) {
        climb(s, &s->all, x, bytes, &at);
        return at;
    }
    for (bool moved = true; moved;) { // until no part has anything in the way
        moved = false;
        for (uint32_t p = first; p <= last; p++) moved |= climb(s, &s->by_part[p], x, bytes, &at);
        if (first == last) break;
    }
    return at;
}

// Returns which item ends highest.
static uint32_t fit(zx_span *spans, uint32_t n_spans, const item *items, shelves *s, zx_arena *mem,
                    uint64_t *highest)
{
    const int64_t n = s->n_steps;
    uint32_t top = 0;
    *highest = 0;
    s->all.n = 0;
    for (uint32_t p = 0; p < PARTS; p++) s->by_part[p].n = 0;
    for (uint32_t k = 0; k < n_spans; k++) {
        zx_span *x = &spans[items[k].span];
        placed p = {.span = x};
        p.length = x->to - x->from + 1 >= n ? s->n_steps : (uint32_t)(x->to - x->from + 1);
        p.from = (uint32_t)((x->from % n + n) % n);
        x->offset = lowest(s, &p, x->bytes);
        p.offset = x->offset;
        p.end = x->offset + x->bytes;
        if (p.end > *highest) {
            *highest = p.end;
            top = k;
        }
        keep(s, mem, p);
    }
    return top;
}

// Where more than the limit comes out, what ends highest is taken first the next time.
uint64_t zx_place(zx_span *spans, uint32_t n, uint32_t n_steps, uint32_t micro_batches,
                  uint32_t order, int rounds, uint64_t enough, zx_arena *mem)
{
    item *items = ZX_NEW(mem, item, n);
    shelves *list = ZX_NEW(mem, shelves, 1);
    uint64_t *best = ZX_NEW(mem, uint64_t, n), least = UINT64_MAX;
    list->n_steps = n_steps;
    list->micro_batches = micro_batches;
    list->part = n_steps / PARTS + 1;
    for (uint32_t i = 0; i < n; i++) items[i] = (item){key_of(&spans[i], order), i};
    if (n > 0) qsort(items, n, sizeof *items, higher);
    if (n > MANY) rounds = 1 + rounds / 4;
    for (int round = 0; round < rounds; round++) {
        uint64_t highest;
        const uint32_t top = fit(spans, n, items, list, mem, &highest);
        if (highest < least) {
            least = highest;
            for (uint32_t i = 0; i < n; i++) best[i] = spans[i].offset;
        }
        if (highest <= enough || top == 0) break;
        const item first = items[top];
        memmove(items + 1, items, top * sizeof *items);
        items[0] = first;
    }
    for (uint32_t i = 0; i < n; i++) spans[i].offset = best[i];
    return least;
}

void zx_pass_place(zx_draft *d)
{
    const zx_trace *t = d->trace;
    collect(d);
    const int64_t load = zx_load_most(&d->bytes, 0, (int64_t)t->n_steps - 1);
    const uint64_t enough =
        load > 0 && (uint64_t)load > d->knobs.limit ? (uint64_t)load : d->knobs.limit;
    d->transient = zx_place(d->spans, d->n_spans, t->n_steps, t->micro_batches, d->knobs.order,
                            d->knobs.limit == 0 ? ROUNDS_LEAST : ROUNDS, enough, d->mem);
}

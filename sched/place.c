// place.c - addresses: orders are tried, and the best layout is mended until it is low enough.
//
// Free addresses are found by place_fit.c and place_match.c, when spans are there by
// place_columns.c, who is there at the same time by place_near.c, a layout is
// mended by place_mend.c, and place_grid.c makes spans easier to lay beside each other.
// SPDX-License-Identifier: Apache-2.0
#include "sched/place.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched/place_parts.h"

#define FORWARD 2.0 // by which a key grows
// Work a span, which is what makes the time grow as the spans do: of one try, of mending it at
// once, of all matches, of all other tries, of mending the best.
#define EACH UINT64_C(2000)
#define SOME UINT64_C(800)
#define MATCHING UINT64_C(12000)
#define TRYING UINT64_C(3000)
#define MENDING UINT64_C(5000)
#define LEAVING UINT64_C(5000) // of leaving some above
#define MATCHES 6              // rounds
#define FAR 1.2                // times enough: no rounds lead from there
#define SOONER 0.02            // of the line, by which what ends too high comes sooner
#define STEP 128               // of what is enough: how much lower is tried at once

typedef enum order_kind { BY_SIZE, BY_BYTES, BY_MIX, BY_LENGTH, BY_START } order_kind;

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

static double key_of(const zx_placing *p, uint32_t i, uint32_t kind)
{
    const double bytes = (double)p->bytes[i], steps = (double)p->steps[i];
    switch ((order_kind)kind) {
    case BY_SIZE:
        return bytes * steps;
    case BY_BYTES: // of equals the first first: together they take as little as they can
        return bytes * (1.0 + 1e-9) - (double)p->start[i];
    case BY_MIX:
        return bytes * sqrt(steps);
    case BY_LENGTH:
        return steps;
    default:
        return -(double)p->start[i];
    }
}

static void sort(item *items, uint32_t n, uint32_t *order)
{
    qsort(items, n, sizeof *items, higher);
    for (uint32_t i = 0; i < n; i++) order[i] = items[i].span;
}

static uint64_t top_of(const zx_placing *p, const zx_span *spans)
{
    uint64_t top = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->offset[i] + spans[i].bytes > top) top = p->offset[i] + spans[i].bytes;
    return top;
}

// ---- trying -------------------------------------------------------------------------------------

// Activations lie as a stack from the bottom; what is gathered comes and goes, and may lie at the
// top, out of their way. In order of start the layout grows as the step does: what doesn't fit then
// is what was thought of too late, so several rounds are worth most there.
static const struct
try {
    order_kind order;
    zx_fit_rule gathered, others;
    uint32_t rounds; // after each, what ends too high moves forward in the order
}
tries[] = {
    {BY_SIZE, ZX_FIT_LOWEST, ZX_FIT_LOWEST, 3},      {BY_BYTES, ZX_FIT_LOWEST, ZX_FIT_LOWEST, 1},
    {BY_MIX, ZX_FIT_LOWEST, ZX_FIT_LOWEST, 1},       {BY_LENGTH, ZX_FIT_HIGHEST, ZX_FIT_LOWEST, 1},
    {BY_START, ZX_FIT_TIGHTEST, ZX_FIT_TIGHTEST, 5},
};

typedef struct search {
    zx_placing p;
    zx_near *near; // with some effort
    const zx_span *spans;
    uint64_t enough, top; // top: of the best so far
    uint64_t *best;       // and its offsets
} search;

static void keep(search *s)
{
    const uint64_t top = top_of(&s->p, s->spans);
    if (top >= s->top) return;
    s->top = top;
    memcpy(s->best, s->p.offset, s->p.n * sizeof *s->best);
}

static void set_rules(const search *s, const struct try *t, uint8_t *rules)
{
    for (uint32_t i = 0; i < s->p.n; i++) {
        const uint32_t kind = s->spans[i].kind;
        const bool gathered = kind == ZX_SPAN_STAY || kind == ZX_SPAN_FLAT;
        rules[i] = (uint8_t)(gathered ? t->gathered : t->others);
    }
}

// Keys of what ends too high, nearer to the front.
static void move_forward(const search *s, item *items)
{
    for (uint32_t k = 0; k < s->p.n; k++) {
        const uint32_t i = items[k].span;
        if (s->p.offset[i] + s->p.bytes[i] > s->enough)
            items[k].key *= items[k].key > 0 ? FORWARD : 1 / FORWARD;
    }
}

static void try_orders(search *s, bool once)
{
    zx_arena *mem = s->p.mem;
    const uint32_t n = s->p.n;
    const uint64_t end = s->p.work + n * TRYING;
    const uint64_t enough = s->enough - s->enough % s->p.grid;
    zx_fitter *f = zx_fitter_make(&s->p);
    zx_mender *m = once ? NULL : zx_mender_make(&s->p, s->near);
    item *items = ZX_NEW(mem, item, n);
    uint32_t *order = ZX_NEW(mem, uint32_t, n);
    uint8_t *rules = ZX_NEW(mem, uint8_t, n);
    for (uint32_t k = 0; k < ZX_COUNT(tries); k++) {
        for (uint32_t i = 0; i < n; i++) items[i] = (item){key_of(&s->p, i, tries[k].order), i};
        set_rules(s, &tries[k], rules);
        for (uint32_t round = 0; round < tries[k].rounds; round++) {
            sort(items, n, order);
            const uint64_t left = s->p.work < end ? end - s->p.work : 0;
            // One order in which holes are left everywhere isn't worth all the time; but where
            // there is no layout yet it isn't given up.
            const uint64_t most = once ? UINT64_MAX / 2 : left < n * EACH ? left : n * EACH;
            if (!zx_fit(f, order, rules, enough, most)) break;
            keep(s);
            if (round == 0 && !once && s->top > s->enough && zx_mend(m, enough, n * SOME)) keep(s);
            if (s->top <= s->enough || once) return;
            move_forward(s, items);
        }
    }
}

// In order of start, beside what ends when it does; what ended too high comes sooner the next time.
static const zx_match_rule matches[] = {{true, false}, {false, true}, {true, true}};

static void try_matches(search *s)
{
    zx_arena *mem = s->p.mem;
    const uint32_t n = s->p.n;
    const uint64_t enough = s->enough - s->enough % s->p.grid;
    zx_matcher *m = zx_matcher_make(&s->p, s->near);
    item *items = ZX_NEW(mem, item, n);
    uint32_t *order = ZX_NEW(mem, uint32_t, n);
    const uint64_t end = s->p.work + n * MATCHING;
    double most = 1;
    for (uint32_t i = 0; i < n; i++) most = fmax(most, (double)s->p.end[i]);
    for (uint32_t k = 0; k < ZX_COUNT(matches); k++) {
        for (uint32_t i = 0; i < n; i++) {
            const double from = (double)s->p.begin[i], to = (double)s->p.end[i];
            items[i] = (item){-from + 1e-5 * (to - from), i};
        }
        for (uint32_t round = 0; round < MATCHES && s->top > s->enough; round++) {
            sort(items, n, order);
            const uint64_t left = s->p.work < end ? end - s->p.work : 0;
            if (!zx_match(m, order, matches[k], enough, left < n * EACH ? left : n * EACH)) break;
            keep(s);
            if (round > 0 && (double)top_of(&s->p, s->spans) > FAR * (double)s->enough) break;
            for (uint32_t q = 0; q < n; q++) {
                const uint32_t i = items[q].span;
                if (s->p.offset[i] + s->p.bytes[i] > s->enough)
                    items[q].key += most * SOONER * (round + 1);
            }
        }
    }
}

// Ever lower, in steps that are a part of the way down: a low layout is easier to mend from one
// that is hardly higher. What doesn't succeed is tried half as far, with more
// effort also in another manner.
static void mend(search *s, uint32_t effort)
{
    const uint64_t work = s->p.n * MENDING * effort, end = s->p.work + work;
    zx_mender *m = zx_mender_make(&s->p, s->near);
    uint64_t step = s->enough / STEP + s->p.grid;
    uint32_t manner = 0;
    while (s->top > s->enough && s->p.work < end) {
        uint64_t goal = s->top - s->enough > step ? s->top - step : s->enough;
        if (goal > s->top - 1) goal = s->top - 1;
        memcpy(s->p.offset, s->best, s->p.n * sizeof *s->best);
        const bool lower = zx_mend(m, goal, (end - s->p.work) / 2 + 1);
        if (lower) keep(s);
        if (!lower && step < s->p.grid) break;
        if (lower) continue;
        step /= 2;
        if (effort > 1) zx_mender_start(m, ++manner);
    }
}

// What is enough for most of them.
static void leave(search *s)
{
    zx_mender *m = zx_mender_make(&s->p, s->near);
    memcpy(s->p.offset, s->best, s->p.n * sizeof *s->best);
    zx_mend_part(m, s->enough, s->p.n * LEAVING);
    memcpy(s->best, s->p.offset, s->p.n * sizeof *s->best);
    s->top = top_of(&s->p, s->spans);
}

// Places them as they are; returns the highest end. UINT64_MAX: with some effort that takes too
// long, without it never.
static uint64_t place(zx_span *spans, uint32_t n, zx_place_line line, uint64_t grid,
                      uint64_t enough, uint32_t effort, bool part, uint64_t *work)
{
    zx_arena mem = {0};
    search s = {.spans = spans, .enough = enough, .top = UINT64_MAX};
    zx_placing_make(spans, n, line, grid, &mem, &s.p);
    s.best = ZX_NEW(&mem, uint64_t, n);
    if (effort > 0) s.near = zx_near_make(&s.p);
    if (effort > 0) try_matches(&s);
    if (s.top > enough) try_orders(&s, effort == 0);
    if (s.top > enough && s.top < UINT64_MAX && effort > 0) mend(&s, effort);
    if (s.top > enough && s.top < UINT64_MAX && part) leave(&s);
    for (uint32_t i = 0; i < n; i++) spans[i].offset = s.best[i];
    *work += s.p.work;
    zx_arena_free(&mem);
    return s.top;
}

uint64_t zx_place(zx_span *spans, uint32_t n, zx_place_line line, uint64_t enough, uint32_t effort,
                  uint64_t *work)
{
    return zx_place_part(spans, n, line, enough, effort, false, work);
}

uint64_t zx_place_part(zx_span *spans, uint32_t n, zx_place_line line, uint64_t enough,
                       uint32_t effort, bool part, uint64_t *work)
{
    uint64_t looked = 0, small, grid, top = 0;
    zx_arena mem = {0};
    if (work == NULL) work = &looked;
    *work = 0;
    if (n == 0) return 0;
    top = place(spans, n, line, ZX_ALIGN, enough, 0, false, work);
    if (top <= enough || effort == 0) return top;
    zx_placing_ease(spans, n, line, enough, &mem, &small, &grid);
    zx_span *again = ZX_NEW(&mem, zx_span, n);
    uint32_t k = 0, n_small = 0;
    for (uint32_t i = 0; i < n; i++)
        if (spans[i].bytes <= small) again[k++] = spans[i];
    n_small = k;
    for (uint32_t i = 0; i < n; i++)
        if (spans[i].bytes > small) again[k++] = spans[i];
    const uint64_t apart =
        zx_align_up(place(again, n_small, line, ZX_ALIGN, 0, 0, false, work), ZX_ALIGN);
    const uint64_t above = place(again + n_small, n - n_small, line, grid,
                                 enough > apart ? enough - apart : 0, effort, part, work);
    if (above < UINT64_MAX - apart && (part || apart + above < top)) {
        uint32_t a = 0, b = n_small;
        for (uint32_t i = 0; i < n; i++)
            spans[i].offset =
                spans[i].bytes <= small ? again[a++].offset : apart + again[b++].offset;
        top = apart + above;
    }
    zx_arena_free(&mem);
    return top;
}

// place.c - addresses: orders are tried, and the best layout is mended until it is low enough.
//
// Free addresses are found by place_fit.c, when spans are there by place_columns.c, and a layout is
// mended by place_mend.c.
// SPDX-License-Identifier: Apache-2.0
#include "sched/place.h"

#include <stdlib.h>
#include <string.h>

#include "sched/place_parts.h"

#define FORWARD 2.0 // by which a key grows
// Work a span, which is what makes the time grow as the spans do: of one try, of mending it, of all
// tries.
#define EACH UINT64_C(2000)
#define SOME UINT64_C(800)
#define ALL UINT64_C(9000)

typedef enum order_kind { BY_SIZE, BY_BYTES, BY_LENGTH, BY_START, N_ORDERS } order_kind;

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
    case BY_BYTES:
        return bytes;
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
    {BY_SIZE, ZX_FIT_LOWEST, ZX_FIT_LOWEST, 1},
    {BY_LENGTH, ZX_FIT_HIGHEST, ZX_FIT_LOWEST, 1},
    {BY_START, ZX_FIT_TIGHTEST, ZX_FIT_TIGHTEST, 10},
    {BY_SIZE, ZX_FIT_LOWEST, ZX_FIT_LOWEST, 3},
};

typedef struct search {
    zx_placing p;
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

static void try_orders(search *s, bool once, zx_arena *mem)
{
    const uint32_t n = s->p.n;
    const uint64_t most = zx_align_up(s->enough, ZX_ALIGN), end = s->p.work + n * ALL;
    zx_fitter *f = zx_fitter_make(&s->p);
    zx_mender *m = once ? NULL : zx_mender_make(&s->p);
    item *items = ZX_NEW(mem, item, n);
    uint32_t *order = ZX_NEW(mem, uint32_t, n);
    uint8_t *rules = ZX_NEW(mem, uint8_t, n);
    for (uint32_t k = 0; k < ZX_COUNT(tries); k++) {
        for (uint32_t i = 0; i < n; i++) items[i] = (item){key_of(&s->p, i, tries[k].order), i};
        set_rules(s, &tries[k], rules);
        for (uint32_t round = 0; round < (once ? 1 : tries[k].rounds); round++) {
            sort(items, n, order);
            const uint64_t left = s->p.work < end ? end - s->p.work : 0;
            // One order in which holes are left everywhere isn't worth all the time. But the first
            // that nests spans as they do is never given up: there is always a layout.
            const bool sure = k == 0;
            const uint64_t most_work = sure ? UINT64_MAX / 2 : left < n * EACH ? left : n * EACH;
            if (!zx_fit(f, order, rules, most, most_work)) break;
            keep(s);
            if (s->top > s->enough && round == 0 && !once && zx_mend(m, most, n * SOME)) keep(s);
            if (s->top <= s->enough) return;
            move_forward(s, items);
        }
    }
}

// All the way first, then ever shorter parts of it.
static void mend(search *s, uint32_t effort)
{
    const uint64_t work = 5000 + s->p.n * ALL / 10, end = s->p.work + 5 * work * effort;
    zx_mender *m = zx_mender_make(&s->p);
    uint64_t goal = zx_align_up(s->enough, ZX_ALIGN); // below the top: what ends there moves
    while (s->p.work < end && goal < s->top) {
        memcpy(s->p.offset, s->best, s->p.n * sizeof *s->best);
        const bool mended = zx_mend(m, goal, work);
        if (mended) {
            keep(s);
            goal = zx_align_up(s->enough, ZX_ALIGN);
        }
        goal = zx_align_up(goal + (s->top > goal ? s->top - goal : 0) / 2 + 1, ZX_ALIGN);
    }
}

uint64_t zx_place(zx_span *spans, uint32_t n, uint32_t n_steps, uint32_t micro_batches,
                  uint64_t enough, uint32_t effort, uint64_t *work)
{
    if (work != NULL) *work = 0;
    if (n == 0) return 0;
    zx_arena mem = {0};
    search s = {.spans = spans, .enough = enough, .top = UINT64_MAX};
    zx_placing_make(spans, n, n_steps, micro_batches, &mem, &s.p);
    s.best = ZX_NEW(&mem, uint64_t, n);
    try_orders(&s, effort == 0, &mem);
    if (s.top > enough && effort > 0) mend(&s, effort);
    for (uint32_t i = 0; i < n; i++) spans[i].offset = s.best[i];
    if (work != NULL) *work = s.p.work;
    zx_arena_free(&mem);
    return s.top;
}

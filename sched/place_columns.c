// place_columns.c - when spans are there, as pieces of columns (place_parts.h).
//
// Micro-batches in which the same spans are there at the same steps are looked at once: mostly the
// first, the last and one for all between them.
// SPDX-License-Identifier: Apache-2.0
#include "sched/place_parts.h"

typedef struct rounds { // micro-batches of the line, alike ones together
    int64_t n, micros;  // steps of one; how many
    uint32_t n_kinds;
    uint32_t *kind;   // by micro-batch
    int64_t *example; // by kind: the first such micro-batch
} rounds;

static int64_t length_of(const zx_span *s)
{
    return s->to < s->from ? 1 : s->to - s->from + 1;
}

static int64_t round_of(int64_t at, int64_t n)
{
    return at >= 0 ? at / n : -((n - 1 - at) / n);
}

// Micro-batches that a span of the line is in: the first in which it begins, the one in which its
// first time ends, and how often it comes back. What lasts a whole round or more never pauses.
typedef struct visits {
    int64_t begins, ends, times;
} visits;

static visits visits_of(const zx_span *s, int64_t n)
{
    const int64_t last = s->from + length_of(s) - 1, back = (int64_t)s->repeat - 1;
    if (length_of(s) >= n) return (visits){round_of(s->from, n), round_of(last + back * n, n), 1};
    return (visits){round_of(s->from, n), round_of(last, n), (int64_t)s->repeat};
}

static void mark(bool *differs, const rounds *r, int64_t round)
{
    if (round >= 0 && round < r->micros) differs[round] = true;
}

static void make_rounds(const zx_span *spans, uint32_t n_spans, rounds *r, zx_arena *mem)
{
    bool *differs = ZX_NEW(mem, bool, (size_t)r->micros); // from the round before
    differs[0] = true;
    for (uint32_t i = 0; i < n_spans; i++) {
        if (spans[i].repeat == 0) continue;
        const visits v = visits_of(&spans[i], r->n);
        mark(differs, r, v.begins);
        mark(differs, r, v.begins + 1);
        mark(differs, r, v.ends);
        mark(differs, r, v.begins + v.times);
        mark(differs, r, v.ends + v.times);
    }
    r->kind = ZX_NEW(mem, uint32_t, (size_t)r->micros);
    r->example = ZX_NEW(mem, int64_t, (size_t)r->micros);
    for (int64_t m = 0; m < r->micros; m++) {
        if (differs[m]) r->example[r->n_kinds++] = m;
        r->kind[m] = r->n_kinds - 1;
    }
}

// ---- pieces -------------------------------------------------------------------------------------

typedef struct list { // of pieces of steps, later of columns
    zx_piece *at;
    uint32_t n, cap, begin; // begin: of the span at hand
} list;

static void put(list *l, zx_arena *mem, int64_t from, int64_t to)
{
    const zx_piece x = {(uint32_t)from, (uint32_t)to};
    if (l->n > l->begin && l->at[l->n - 1].hi + 1 == x.lo) {
        l->at[l->n - 1].hi = x.hi;
        return;
    }
    ZX_GROW(mem, l->at, l->n, l->cap);
    l->at[l->n++] = x;
}

static void put_circle(list *l, zx_arena *mem, const zx_span *s, int64_t n)
{
    const int64_t length = length_of(s), a = s->from - n * round_of(s->from, n);
    if (length >= n) {
        put(l, mem, 0, n - 1);
    } else if (a + length <= n) {
        put(l, mem, a, a + length - 1);
    } else {
        put(l, mem, 0, a + length - 1 - n);
        put(l, mem, a, n - 1);
    }
}

// What is in every micro-batch, on a circle of several.
static void put_always(list *l, zx_arena *mem, const zx_span *s, int64_t n, int64_t period)
{
    for (int64_t k = 0; k < period && (k == 0 || length_of(s) < n); k++) {
        zx_span x = {.from = 0, .to = n * period - 1};
        if (length_of(s) < n) x = (zx_span){.from = s->from + k * n, .to = s->to + k * n};
        put_circle(l, mem, &x, n * period);
    }
}

// On the line of one example of each kind of round.
static void put_line(list *l, zx_arena *mem, const zx_span *s, const rounds *r)
{
    const int64_t n = r->n, length = length_of(s);
    const visits v = visits_of(s, n);
    int64_t m = v.begins < 0 ? 0 : v.begins;
    const int64_t last = v.ends + v.times - 1;
    while (m < r->micros && m <= last) {
        const uint32_t kind = r->kind[m];
        const int64_t begin = r->example[kind] * n, to_line = kind * n - begin;
        // Which of its times touch this round: with short ones at most two, in order.
        int64_t k = r->example[kind] - v.ends, most = r->example[kind] - v.begins;
        if (length >= n) {
            const int64_t end = s->from + length - 1 + n * ((int64_t)s->repeat - 1);
            put(l, mem, (s->from > begin ? s->from : begin) + to_line,
                (end < begin + n - 1 ? end : begin + n - 1) + to_line);
            most = k - 1;
        }
        if (k < 0) k = 0;
        for (; k <= most && k < v.times; k++) {
            const int64_t from = s->from + k * n, to = from + length - 1;
            put(l, mem, (from > begin ? from : begin) + to_line,
                (to < begin + n - 1 ? to : begin + n - 1) + to_line);
        }
        for (m++; m < r->micros && r->kind[m] == kind; m++) {
        }
    }
}

static void close_span(list *l, zx_columns *c, uint32_t span)
{
    c->at[span + 1] = l->begin = l->n;
}

// Steps become columns: those in which a piece begins.
static void number(zx_columns *c, list *l, int64_t steps, zx_arena *mem)
{
    uint32_t *column = ZX_NEW(mem, uint32_t, (size_t)steps + 1);
    for (uint32_t i = 0; i < l->n; i++) column[l->at[i].lo] = 1;
    for (int64_t t = 0; t < steps; t++) {
        c->n += column[t];
        column[t] = c->n - 1; // nothing is there before the first
    }
    for (uint32_t i = 0; i < l->n; i++)
        l->at[i] = (zx_piece){column[l->at[i].lo], column[l->at[i].hi]};
    c->pieces = l->at;
}

void zx_placing_make(const zx_span *spans, uint32_t n, zx_place_line line, uint64_t grid,
                     zx_arena *mem, zx_placing *out)
{
    const int64_t n_steps = line.n_steps, micros = line.micro_batches, period = line.period;
    rounds r = {.n = n_steps * period, .micros = (micros + period - 1) / period};
    list circle = {0}, straight = {0};
    *out = (zx_placing){.n = n, .grid = grid, .mem = mem};
    out->bytes = ZX_NEW(mem, uint64_t, n);
    out->steps = ZX_NEW(mem, uint64_t, n);
    out->start = ZX_NEW(mem, int64_t, n);
    out->begin = ZX_NEW(mem, int64_t, n);
    out->end = ZX_NEW(mem, int64_t, n);
    out->always = ZX_NEW(mem, bool, n);
    out->offset = ZX_NEW(mem, uint64_t, n);
    out->circle.at = ZX_NEW(mem, uint32_t, n + (size_t)1);
    out->line.at = ZX_NEW(mem, uint32_t, n + (size_t)1);
    make_rounds(spans, n, &r, mem);
    for (uint32_t i = 0; i < n; i++) {
        const zx_span *s = &spans[i];
        const uint64_t times = s->repeat == 0 ? line.micro_batches : s->repeat;
        out->bytes[i] = (s->bytes + grid - 1) / grid * grid;
        out->steps[i] = (uint64_t)length_of(s) * times;
        out->start[i] = s->from - r.n * round_of(s->from, r.n);
        out->begin[i] = micros == 1 || s->repeat == 1 ? s->from : out->start[i];
        out->end[i] = out->begin[i] + length_of(s) - 1;
        out->always[i] = s->repeat == 0;
        if (s->repeat > 0)
            put_circle(&circle, mem, s, r.n);
        else
            put_always(&circle, mem, s, n_steps, period);
        if (s->repeat > 0) put_line(&straight, mem, s, &r);
        close_span(&circle, &out->circle, i);
        close_span(&straight, &out->line, i);
    }
    number(&out->circle, &circle, r.n, mem);
    number(&out->line, &straight, r.n * r.n_kinds, mem);
}

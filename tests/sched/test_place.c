// test_place.c - addresses: nothing that shares a step shares bytes, by brute force; layouts whose
// optimum is known by hand, by construction, or by trying every order; how work grows.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/base/arena.h"
#include "sched/place.h"
#include "tests/test.h"

#define ANY UINT64_MAX

#define MOST 200  // spans of a problem
#define STEPS 110 // of its line

typedef struct problem {
    uint32_t n, n_steps, micros;
    uint32_t period; // micro-batches after which what comes back does
    zx_span spans[MOST];
} problem;

// ---- what a layout must be, by brute force ------------------------------------------------------

// By span and step of the line, whether it is there; and by two spans, whether they share a step.
static bool there[MOST][STEPS], meet[MOST][MOST];

// Around the circle there also is what a micro-batch before the first left, and what one after the
// last begins early.
static bool is_there(const zx_span *s, int64_t at, const problem *p)
{
    const int64_t micros = p->micros, n = p->n_steps * (s->repeat == 0 ? (int64_t)1 : p->period);
    const int64_t first = s->repeat == 0 ? -micros - 1 : 0;
    const int64_t last = s->repeat == 0 ? 2 * micros + 1 : (int64_t)s->repeat - 1;
    for (int64_t k = first; k <= last; k++)
        if (s->from + k * n <= at && at <= s->to + k * n) return true;
    return false;
}

static void spread(const problem *p)
{
    const uint32_t end = p->n_steps * p->micros;
    assert_true(p->n <= MOST && end <= STEPS);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t t = 0; t < end; t++) there[i][t] = is_there(&p->spans[i], t, p);
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t j = 0; j < p->n; j++) {
            meet[i][j] = false;
            for (uint32_t t = 0; t < end && !meet[i][j]; t++)
                meet[i][j] = there[i][t] && there[j][t];
        }
}

static uint64_t load_of(const problem *p) // after spread
{
    uint64_t most = 0;
    for (uint32_t t = 0; t < p->n_steps * p->micros; t++) {
        uint64_t now = 0;
        for (uint32_t i = 0; i < p->n; i++)
            if (there[i][t]) now += zx_align_up(p->spans[i].bytes, ZX_ALIGN);
        if (now > most) most = now;
    }
    return most;
}

static void check_layout(const problem *p, uint64_t top) // after spread
{
    uint64_t highest = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const zx_span *x = &p->spans[i];
        assert_int_equal(x->offset % ZX_ALIGN, 0);
        if (x->offset + x->bytes > highest) highest = x->offset + x->bytes;
        for (uint32_t j = 0; j < i; j++) {
            const zx_span *y = &p->spans[j];
            if (x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset) continue;
            if (x->bytes > 0 && y->bytes > 0 && meet[i][j])
                fail_msg("spans %u and %u share a step and bytes", j, i);
        }
    }
    assert_int_equal(top, highest);
}

static uint64_t place(problem *p, uint64_t enough, uint32_t effort, uint64_t *work)
{
    const zx_place_line line = {p->n_steps, p->micros, p->period};
    return zx_place(p->spans, p->n, line, enough, effort, work);
}

// ---- by hand ------------------------------------------------------------------------------------

static const struct hand_case {
    const char *name;
    uint32_t n_steps, micros, period, n;
    int64_t spans[6][4]; // from, to, repeat, bytes
    uint64_t want;
} hand_cases[] = {
    {"nothing comes and goes", 4, 1, 1, 0, {{0}}, 0},
    {"one after the other share bytes", 4, 1, 1, 2, {{0, 1, 0, 64}, {2, 3, 0, 64}}, 64},
    {"a common step keeps them apart", 4, 1, 1, 2, {{0, 2, 0, 64}, {2, 3, 0, 64}}, 128},
    {"the peak is exact, addresses are aligned", 4, 1, 1, 2, {{0, 2, 0, 64}, {2, 3, 0, 4}}, 68},
    {"a small one goes under a large one",
     6,
     1,
     1,
     3,
     {{0, 3, 0, 128}, {4, 5, 0, 256}, {0, 5, 0, 64}},
     320},
    {"into the next micro-batch", 4, 2, 1, 2, {{3, 4, 0, 64}, {0, 1, 0, 64}}, 128},
    {"up to the next micro-batch", 4, 2, 1, 2, {{3, 4, 0, 64}, {1, 2, 0, 64}}, 64},
    {"begun in the micro-batch before", 4, 2, 1, 2, {{-1, 0, 0, 64}, {3, 3, 0, 64}}, 128},
    {"longer than the circle", 4, 2, 1, 2, {{1, 7, 0, 64}, {0, 0, 0, 64}}, 128},
    {"in different micro-batches", 4, 2, 1, 2, {{0, 3, 1, 64}, {4, 7, 1, 64}}, 64},
    {"in one micro-batch", 4, 2, 1, 2, {{4, 5, 1, 64}, {5, 7, 1, 64}}, 128},
    {"every micro-batch meets one", 4, 3, 1, 2, {{1, 2, 0, 64}, {9, 9, 1, 64}}, 128},
    {"every micro-batch misses one", 4, 3, 1, 2, {{1, 2, 0, 64}, {8, 8, 1, 64}}, 64},
    {"comes back onto one", 4, 5, 1, 2, {{1, 2, 3, 64}, {10, 10, 1, 64}}, 128},
    {"no longer comes back", 4, 5, 1, 2, {{1, 2, 3, 64}, {13, 14, 1, 64}}, 64},
    {"not before it begins", 4, 5, 1, 2, {{9, 10, 3, 64}, {5, 6, 1, 64}}, 64},
    {"over two borders", 4, 5, 1, 2, {{3, 12, 1, 64}, {8, 8, 1, 64}}, 128},
    {"over a border, and back", 4, 5, 1, 2, {{3, 4, 3, 64}, {12, 12, 1, 64}}, 128},
    {"over a border, no longer back", 4, 5, 1, 2, {{3, 4, 3, 64}, {16, 16, 1, 64}}, 64},
    {"two that take turns", 4, 5, 1, 2, {{0, 1, 4, 64}, {2, 3, 4, 64}}, 64},
    {"two that come back and meet in one", 4, 5, 1, 2, {{0, 1, 3, 64}, {9, 9, 2, 64}}, 128},
    {"three that meet in pairs", 6, 4, 1, 3, {{5, 6, 4, 64}, {0, 3, 4, 64}, {3, 5, 4, 64}}, 192},
    {"three that meet in pairs, elsewhere in every second micro-batch",
     6,
     4,
     2,
     6,
     {{5, 6, 2, 64}, {11, 12, 2, 64}, {0, 3, 2, 64}, {6, 9, 2, 64}, {3, 5, 2, 64}, {9, 11, 2, 64}},
     128},
    {"in every second micro-batch", 4, 5, 2, 2, {{1, 2, 3, 64}, {5, 6, 2, 64}}, 64},
    {"every second one meets one", 4, 5, 2, 2, {{1, 2, 3, 64}, {9, 9, 1, 64}}, 128},
    {"every second one meets all", 4, 5, 2, 2, {{6, 6, 2, 64}, {2, 2, 0, 64}}, 128},
    {"over a border, and back in the second", 4, 5, 2, 2, {{3, 4, 2, 64}, {12, 12, 1, 64}}, 128},
    {"over a border, not back in the next", 4, 5, 2, 2, {{3, 4, 2, 64}, {8, 8, 1, 64}}, 64},
    {"all of them over a border", 4, 5, 2, 2, {{3, 4, 0, 64}, {8, 8, 1, 64}}, 128},
    {"longer than a micro-batch, back in the second",
     4,
     5,
     2,
     2,
     {{1, 6, 2, 64}, {7, 8, 2, 64}},
     64},
};

static void test_hand(void **state)
{
    const struct hand_case *k = *state;
    problem p = {.n = k->n, .n_steps = k->n_steps, .micros = k->micros, .period = k->period};
    for (uint32_t i = 0; i < k->n; i++)
        p.spans[i] = (zx_span){.from = k->spans[i][0],
                               .to = k->spans[i][1],
                               .repeat = (uint32_t)k->spans[i][2],
                               .bytes = (uint64_t)k->spans[i][3]};
    spread(&p);
    const uint64_t top = place(&p, 0, 1, NULL);
    check_layout(&p, top);
    assert_int_equal(top, k->want);
}

// ---- at random ----------------------------------------------------------------------------------

static uint32_t draw(uint64_t *seed, uint32_t n) // below n
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*seed >> 33) % n);
}

static void make_random(problem *p, uint64_t seed, uint32_t most)
{
    uint64_t r = seed * 77 + 1;
    *p = (problem){.n_steps = 1 + draw(&r, 12), .micros = 1 + draw(&r, 5)};
    p->n = 1 + draw(&r, most);
    p->period = seed % 3 == 0 ? 1 + draw(&r, p->micros) : 1;
    const uint32_t n = p->n_steps, end = n * p->micros, shape = draw(&r, 3);
    for (uint32_t i = 0; i < p->n; i++) {
        zx_span *s = &p->spans[i];
        s->kind = i % 2 == 0 ? ZX_SPAN_STORAGE : ZX_SPAN_STAY;
        s->bytes = draw(&r, 4) == 0 ? 64 * draw(&r, 40) : 1 + draw(&r, 600);
        const bool always = shape == 0 || (shape == 1 && draw(&r, 2) == 0);
        s->from = (int64_t)draw(&r, always ? n : end);
        s->to = s->from + (draw(&r, 6) == 0 ? draw(&r, 2 * n) : draw(&r, n));
        if (always) {
            if (draw(&r, 4) == 0) s->from -= n, s->to -= n;
            continue;
        }
        if (s->to >= end) s->to = end - 1;
        s->repeat = 1;
        const uint32_t left = (p->micros - 1 - (uint32_t)(s->from / n)) / p->period;
        if (s->to - s->from + 1 < n * p->period) s->repeat = 1 + draw(&r, left + 1);
    }
}

static void test_random(void **state)
{
    (void)state;
    const uint64_t seeds = test_few() ? 300 : 1500;
    double sum = 0;
    for (uint64_t seed = 0; seed < seeds; seed++) {
        problem p, q;
        uint64_t work, again;
        make_random(&p, seed, seed % 10 == 0 ? 60 : 12);
        q = p;
        spread(&p);
        const uint64_t load = load_of(&p), enough = load + seed % 100,
                       top = place(&p, enough, 1, &work);
        check_layout(&p, top);
        assert_int_equal(place(&q, enough, 1, &again), top);
        assert_int_equal(work, again);
        assert_memory_equal(p.spans, q.spans, p.n * sizeof *p.spans);
        sum += load > 0 ? (double)top / (double)load : 1;
    }
    sum /= (double)seeds;
    if (sum > 1.01) fail_msg("%.4f x the load on average", sum);
}

// ---- every order --------------------------------------------------------------------------------

static uint64_t lowest(const problem *p, const uint32_t *order, uint32_t done)
{
    const uint32_t x = order[done];
    uint64_t at = 0;
    for (uint32_t k = 0; k < done;) { // anew after each move
        const zx_span *y = &p->spans[order[k]];
        const bool way = y->offset < at + p->spans[x].bytes && at < y->offset + y->bytes;
        k++;
        if (!way || !meet[x][order[k - 1]]) continue;
        at = zx_align_up(y->offset + y->bytes, ZX_ALIGN);
        k = 0;
    }
    return at;
}

// Some order in which each span takes the lowest address that is free makes a least layout.
static uint64_t least(problem *p, uint32_t *order, uint32_t done, uint64_t top, uint64_t bound)
{
    if (done == p->n) return top;
    for (uint32_t pick = done; pick < p->n; pick++) {
        const uint32_t x = order[pick];
        order[pick] = order[done];
        order[done] = x;
        const uint64_t at = lowest(p, order, done), end = at + p->spans[x].bytes;
        p->spans[x].offset = at;
        if (end < bound && top < bound)
            bound = least(p, order, done + 1, end > top ? end : top, bound);
        order[done] = order[pick];
        order[pick] = x;
    }
    return bound;
}

static void test_least(void **state)
{
    (void)state;
    uint32_t missed = 0;
    for (uint64_t seed = 0; seed < (test_few() ? 100 : 300); seed++) {
        problem p;
        make_random(&p, 7000 + seed, 6);
        uint32_t order[6] = {0, 1, 2, 3, 4, 5};
        for (uint32_t i = 0; i < p.n; i++)
            p.spans[i].bytes = zx_align_up(p.spans[i].bytes, ZX_ALIGN);
        spread(&p);
        const uint64_t top = place(&p, load_of(&p), 1, NULL), want = least(&p, order, 0, 0, ANY);
        assert_true(top >= want);
        missed += top > want;
    }
    if (missed > 1) fail_msg("%u are above the least", missed);
}

// ---- cut out of one block: a layout without a hole exists ---------------------------------------

static void cut(problem *p, uint64_t *r, zx_span s, uint32_t left)
{
    const int64_t steps = s.to - s.from + 1;
    const uint64_t parts = s.bytes / ZX_ALIGN;
    if (left <= 1 || (steps < 2 && parts < 2)) {
        p->spans[p->n++] = s;
        return;
    }
    zx_span a = s, b = s;
    if (steps >= 2 && (parts < 2 || draw(r, 2) == 0)) {
        a.to = s.from + draw(r, (uint32_t)steps - 1);
        b.from = a.to + 1;
    } else {
        a.bytes = ZX_ALIGN * (1 + draw(r, (uint32_t)parts - 1));
        b.bytes = s.bytes - a.bytes;
    }
    cut(p, r, a, left / 2);
    cut(p, r, b, left - left / 2);
}

static void test_cut(void **state)
{
    (void)state;
    double sum = 0, longer = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        problem p = {.n_steps = 100, .micros = 1, .period = 1};
        uint64_t r = seed;
        const uint64_t block = ZX_ALIGN * 10000;
        cut(&p, &r, (zx_span){.from = 0, .to = 99, .bytes = block}, 20 + 4 * (uint32_t)seed);
        spread(&p);
        const uint64_t top = place(&p, block, 1, NULL);
        check_layout(&p, top);
        sum += (double)top / (double)block;
        const uint64_t lower = place(&p, block, 8, NULL);
        check_layout(&p, lower);
        longer += (double)lower / (double)block;
    }
    if (sum / 40 > 1.05) fail_msg("%.4f x the block on average", sum / 40);
    if (longer / 40 > 1.01) fail_msg("%.4f x with more effort", longer / 40);
}

// ---- how work grows -----------------------------------------------------------------------------

// Like a step of many blocks that are alike: activations nest around the loss, whole parameters
// come and go, and every fifth of them only in some micro-batches.
static zx_span *make_large(uint32_t n, uint32_t micros, uint32_t *n_steps, zx_arena *mem)
{
    static const uint32_t small[] = {2, 2, 7, 7, 7, 2, 1}, large[] = {64, 8, 8, 64, 224, 224, 224};
    zx_span *s = ZX_NEW(mem, zx_span, n);
    uint64_t r = n;
    const uint32_t third = n / 3;
    *n_steps = 2 * third;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = i < third ? i : (i - third) % *n_steps;
        s[i].from = at;
        s[i].to = i < third ? *n_steps - 1 - at : at + draw(&r, 8);
        s[i].bytes = 64 * (i < third ? small[i % ZX_COUNT(small)] : large[i % ZX_COUNT(large)]);
        s[i].kind = i < third ? ZX_SPAN_STORAGE : ZX_SPAN_STAY;
        if (i >= third && i % 5 == 0) {
            s[i].from += *n_steps * (int64_t)draw(&r, micros);
            s[i].to = s[i].from + draw(&r, 8);
            s[i].repeat = 1;
        }
    }
    return s;
}

static void test_work(void **state)
{
    (void)state;
    double before = 0;
    for (uint32_t n = 3000; n <= (test_few() ? 9000 : 27000); n *= 3) {
        zx_arena mem = {0};
        uint32_t n_steps;
        uint64_t work;
        zx_span *s = make_large(n, 4, &n_steps, &mem);
        zx_place(s, n, (zx_place_line){n_steps, 4, 1}, 0, 1, &work);
        const double each = (double)work / n;
        // n log n: a third more each time would be much; n * n: three times as much
        if (before > 0 && each > 1.5 * before)
            fail_msg("%u spans: %.0f looks a span, %.0f at a third of them", n, each, before);
        before = each;
        zx_arena_free(&mem);
    }
}

// Bytes by steps that end above `enough`.
static uint64_t above(const problem *p, uint64_t enough)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const zx_span *s = &p->spans[i];
        if (s->offset + s->bytes > enough) sum += s->bytes * (uint64_t)(s->to - s->from + 1);
    }
    return sum;
}

// Below the bytes alive, where not everything has room: less is left above than by what ends
// lowest.
static void test_part(void **state)
{
    (void)state;
    uint64_t most = 0, part = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        problem p = {.n_steps = 100, .micros = 1, .period = 1};
        uint64_t r = seed;
        cut(&p, &r, (zx_span){.from = 0, .to = 99, .bytes = ZX_ALIGN * 10000}, 60);
        spread(&p);
        const uint64_t enough = ZX_ALIGN * 9500;
        check_layout(&p, place(&p, enough, 1, NULL));
        most += above(&p, enough);
        check_layout(
            &p, zx_place_part(p.spans, p.n, (zx_place_line){100, 1, 1}, enough, 1, true, NULL));
        part += above(&p, enough);
    }
    if (part >= most) fail_msg("%.3f x as much above", (double)part / (double)most);
}

static void test_enough(void **state)
{
    (void)state;
    problem p = {0};
    uint64_t all, some;
    make_random(&p, 10, 60);
    const uint64_t top = place(&p, 0, 1, &all);
    assert_true(place(&p, ANY, 1, &some) >= top);
    assert_true(some < all);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(hand_cases) + 6] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_least),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_work),   cmocka_unit_test(test_enough), cmocka_unit_test(test_part)};
    for (size_t i = 0; i < ZX_COUNT(hand_cases); i++)
        tests[6 + i] = zx_case(hand_cases[i].name, test_hand, &hand_cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

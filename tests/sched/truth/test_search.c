// test_search.c - the dumb search against problems with known answers, and against all solutions
// of smaller ones, tried without leaving anything out.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "tests/sched/truth/truth.h"
#include "tests/test.h"

// ---- known answers ------------------------------------------------------------------------------

// Steps of a second; units of 10 and gradients of 10 bytes; a wire on which a byte takes 0.1 s.
typedef struct known {
    const char *name;
    const char *reads; // a letter a step's unit: "ab.a"; '.' none
    double latency;
    uint64_t limit;
    uint32_t n_grads;
    zx_grad grads[2];
    double want;
    uint64_t bytes[3]; // of units; 0: 10
    uint32_t micro_batches;
} known;

static const known rows[] = {
    {"one unit", "a", 0, 10, 0, {{0}}, 2, {0}, 0},
    {"a unit behind another one's step", "ab", 0, 20, 0, {{0}}, 3, {0}, 0},
    {"no room for both", "ab", 0, 10, 0, {{0}}, 4, {0}, 0},
    {"behind a step that reads nothing", "a.b", 0, 10, 0, {{0}}, 4, {0}, 0},
    {"one launch pays latency once", "ab", 1, 20, 0, {{0}}, 5, {0}, 0},
    {"two launches hide the second", "a..b", 1, 20, 0, {{0}}, 6, {0}, 0},
    {"it stays", "aba", 0, 20, 0, {{0}}, 4, {0}, 0},
    {"it can't stay", "aba", 0, 10, 0, {{0}}, 6, {0}, 0},
    {"the larger one doesn't stay", "ab.ba", 0, 30, 0, {{0}}, 12, {30, 10}, 0},
    {"the smaller one stays", "abcba", 0, 40, 0, {{0}}, 9, {20, 10, 20}, 0},
    {"a large one behind a small one", "ba", 0, 40, 0, {{0}}, 5, {30, 10}, 0},
    {"a reduce behind a step", "a.", 0, 20, 1, {{0, 0, 1, 1, 2, 10}}, 3, {0}, 0},
    {"a reduce at the end", "a", 0, 20, 1, {{0, 0, 1, 1, 1, 10}}, 3, {0}, 0},
    {"a reduce that has to be over at once", "a.", 0, 20, 1, {{0, 0, 1, 1, 1, 10}}, 4, {0}, 0},
    {"a gradient where the unit was", "a.a", 0, 10, 1, {{0, 0, 1, 1, 3, 10}}, 5, {0}, 0},
    {"a gradient has no room", "aaa", 0, 10, 1, {{0, 0, 1, 1, 3, 10}}, 5, {0}, 0},
    {"a gradient beside the steps", "a.a", 0, 20, 1, {{0, 0, 1, 1, 3, 10}}, 4, {0}, 0},
    {"two gradients, one latency",
     "a.",
     1,
     20,
     2,
     {{0, 0, 1, 1, 2, 10}, {0, 0, 2, 2, 2, 10}},
     7,
     {0},
     0},
    {"it stays for the next micro-batch", "a.", 0, 10, 0, {{0}}, 5, {0}, 2},
    {"gradients of two micro-batches", "a", 0, 20, 1, {{0, 0, 1, 1, 1, 10}}, 5, {0}, 2},
    {"micro-batches share no launch",
     "a.",
     3,
     100,
     2,
     {{1, 1, 1, 1, 1, 10}, {0, 0, 2, 2, 3, 10}},
     23,
     {0},
     2},
};

static zx_problem make(const known *k, zx_arena *mem)
{
    const uint32_t n = (uint32_t)strlen(k->reads);
    double *seconds = ZX_NEW(mem, double, n);
    uint64_t *base = ZX_NEW(mem, uint64_t, n), *bytes = ZX_NEW(mem, uint64_t, 3);
    zx_read *reads = ZX_NEW(mem, zx_read, n);
    uint32_t *read_at = ZX_NEW(mem, uint32_t, n + 1), n_reads = 0;
    for (uint32_t t = 0; t < n; t++) {
        seconds[t] = 1;
        read_at[t] = n_reads;
        if (k->reads[t] != '.') reads[n_reads++] = (zx_read){t, (uint32_t)(k->reads[t] - 'a')};
    }
    read_at[n] = n_reads;
    for (int u = 0; u < 3; u++) bytes[u] = k->bytes[u] > 0 ? k->bytes[u] : 10;
    // Half of the bytes come from elsewhere.
    const zx_machine m = {
        .ranks = 2, .wire = 5, .latency = k->latency, .copy = 1e300, .sum = 1e300};
    return (zx_problem){.n_steps = n,
                        .micro_batches = k->micro_batches > 0 ? k->micro_batches : 1,
                        .ranks = 2,
                        .seconds = seconds,
                        .base = base,
                        .limit = k->limit,
                        .n_units = 3,
                        .n_reads = n_reads,
                        .n_grads = k->n_grads,
                        .reads = reads,
                        .read_at = read_at,
                        .grads = k->grads,
                        .unit_bytes = bytes,
                        .unit_wire = bytes,
                        .unit_elements = bytes,
                        .machine = m};
}

static void fail_with(const char *what, const zx_problem *p, const zx_solution *s)
{
    zx_text text = {0};
    truth_put_problem(p, &text);
    if (s != NULL) truth_put_solution(p, s, &text);
    print_error("%s:\n%s", what, text.at);
    zx_text_free(&text);
    fail();
}

static bool near(double a, double b)
{
    return a - b <= 1e-9 * a && b - a <= 1e-9 * a;
}

static void test_known(void **state)
{
    const known *k = *state;
    zx_arena mem = {0};
    const zx_problem p = make(k, &mem);
    truth_found found;
    truth_search(&p, &mem, &found);
    const char *wrong = truth_wrong(&p, &found.best, &mem);
    if (wrong != NULL) fail_with(wrong, &p, &found.best);
    if (!near(found.seconds, k->want)) {
        print_error("%g seconds, want %g\n", found.seconds, k->want);
        fail_with(k->name, &p, &found.best);
    }
    zx_arena_free(&mem);
}

// ---- all solutions ------------------------------------------------------------------------------

#define PROBLEMS 200
#define PARTS 5 // reads and gradients of a problem at most; 400 with 6 took 90 s, and were the same

// Parts that are to be sent: reads of the line, each by a gather of its own or by the one before;
// gradients. Every sequence of every set of them, every gate, every end.
typedef struct all {
    const zx_problem *p;
    zx_arena *mem;
    int64_t end;
    uint32_t n_reads, n_gathers, n_reduces;
    zx_read reads[8]; // of the line
    zx_part gathers[8], reduces[8];
    int64_t first[8], ready[8];
    zx_move moves[TRUTH_MOVES];
    zx_part parts[TRUTH_PARTS];
    zx_solution made;
    double best;
    uint64_t tried;
} all;

static void try_rest(all *a, uint32_t gathers, uint32_t reduces);

static void try_this(all *a)
{
    const char *wrong = truth_wrong(a->p, &a->made, a->mem);
    a->tried++;
    // Where only the circle is wrong, the simulator has to get stuck, and else it must not.
    const bool circle = wrong != NULL && strstr(wrong, "for compute") != NULL;
    if (wrong != NULL && !circle) return;
    const double seconds = truth_price(a->p, &a->made, a->mem);
    if ((seconds >= TRUTH_NEVER) != circle) fail_with("stuck, or not", a->p, &a->made);
    if (seconds < a->best) a->best = seconds;
}

static void try_spans(all *a, uint32_t gathers, uint32_t reduces, int64_t gate, int64_t latest)
{
    zx_move *x = &a->moves[a->made.n_moves - 1];
    const int64_t over = x->over;
    for (x->gate = gate; x->gate <= (x->reduce ? gate : over); x->gate++)
        for (x->over = x->reduce ? gate : over; x->over <= latest; x->over++)
            try_rest(a, gathers, reduces);
    x->over = over;
}

static void try_set(all *a, bool reduce, uint32_t set, uint32_t gathers, uint32_t reduces)
{
    zx_move *x = &a->moves[a->made.n_moves++];
    *x = (zx_move){.reduce = reduce, .first = a->made.n_parts, .over = a->end};
    int64_t gate = 0;
    for (uint32_t i = 0; i < 8; i++) {
        if ((set >> i & 1) == 0) continue;
        a->parts[x->first + x->n++] = reduce ? a->reduces[i] : a->gathers[i];
        if (reduce && a->ready[i] > gate) gate = a->ready[i];
        if (!reduce && a->first[i] < x->over) x->over = a->first[i];
    }
    a->made.n_parts += x->n;
    try_spans(a, gathers, reduces, gate, reduce ? a->end : x->over);
    a->made.n_parts -= x->n;
    a->made.n_moves--;
}

static void try_rest(all *a, uint32_t gathers, uint32_t reduces)
{
    const zx_mark scratch = zx_arena_mark(a->mem);
    if (gathers == 0 && reduces == 0) try_this(a);
    zx_arena_rewind(a->mem, scratch);
    for (uint32_t set = gathers; set != 0; set = (set - 1) & gathers)
        try_set(a, false, set, gathers & ~set, reduces);
    for (uint32_t set = reduces; set != 0; set = (set - 1) & reduces)
        try_set(a, true, set, gathers, reduces & ~set);
}

// Read r belongs to the gather of an earlier read of the unit where bit r of `kept` is set.
static void try_kept(all *a, uint32_t kept)
{
    a->n_gathers = 0;
    for (uint32_t r = 0; r < a->n_reads; r++) {
        uint32_t of = a->n_gathers;
        for (uint32_t k = 0; k < a->n_gathers && (kept >> r & 1) != 0; k++)
            if (a->gathers[k].what == a->reads[r].unit) of = k;
        if ((kept >> r & 1) != 0 && of == a->n_gathers) return;
        if (of == a->n_gathers) a->first[a->n_gathers++] = a->reads[r].step;
        a->gathers[of] = (zx_part){a->reads[r].unit, 0, (int64_t)a->reads[r].step + 1};
    }
    try_rest(a, (1u << a->n_gathers) - 1, (1u << a->n_reduces) - 1);
}

static double try_all(const zx_problem *p, zx_arena *mem, uint64_t *tried)
{
    all a = {.p = p, .mem = mem, .end = zx_problem_end(p), .best = TRUTH_NEVER};
    a.made = (zx_solution){.moves = a.moves, .parts = a.parts};
    for (uint32_t m = 0; m < p->micro_batches; m++) {
        for (uint32_t r = 0; r < p->n_reads; r++)
            a.reads[a.n_reads++] = (zx_read){p->reads[r].step + m * p->n_steps, p->reads[r].unit};
        for (uint32_t g = 0; g < p->n_grads; g++) {
            a.ready[a.n_reduces] = p->grads[g].ready + (int64_t)m * p->n_steps;
            a.reduces[a.n_reduces++] = (zx_part){g, m, 0};
        }
    }
    for (uint32_t kept = 0; kept < 1u << a.n_reads; kept++) try_kept(&a, kept);
    *tried += a.tried;
    return a.best;
}

static void test_all(void **state ZX_UNUSED)
{
    uint64_t tried = 0;
    for (uint32_t seed = 0, n = 0; n < PROBLEMS; seed++) {
        zx_arena mem = {0};
        const zx_problem p = truth_draw(seed, &mem);
        const uint32_t reads = p.n_reads * p.micro_batches, grads = p.n_grads * p.micro_batches;
        if (zx_problem_end(&p) <= 7 && reads + grads <= PARTS) {
            truth_found found;
            truth_search(&p, &mem, &found);
            const double best = try_all(&p, &mem, &tried);
            if (!near(best, found.seconds)) {
                print_error("seed %u: %.9g seconds, all solutions: %.9g\n", seed, found.seconds,
                            best);
                fail_with("not the best", &p, &found.best);
            }
            n++;
        }
        zx_arena_free(&mem);
    }
    print_message("%llu solutions\n", (unsigned long long)tried);
}

// ---- what is drawn ------------------------------------------------------------------------------

static void test_draw(void **state ZX_UNUSED)
{
    for (uint32_t seed = 0; seed < 2000; seed++) {
        zx_arena mem = {0};
        zx_problem p = truth_draw(seed, &mem);
        const uint32_t reads = p.n_reads * p.micro_batches, grads = p.n_grads * p.micro_batches;
        assert_in_range(zx_problem_end(&p), 3, 7);
        assert_in_range(reads, 1, 8);
        assert_in_range(grads, 0, 4);
        for (uint32_t g = 0; g < p.n_grads; g++) {
            const zx_grad *x = &p.grads[g];
            assert_true(x->ready >= 1 && x->spare >= x->ready && x->latest >= x->spare);
            assert_true(x->spare <= p.n_steps && x->latest < x->ready + p.n_steps);
        }
        assert_true(p.limit >= truth_least(&p));
        zx_arena_free(&mem);
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 2] = {cmocka_unit_test(test_draw),
                                                   cmocka_unit_test(test_all)};
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i + 2] = zx_case(rows[i].name, test_known, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_planner.c - the planner against the best there is, on problems small enough to try
// everything. ZX_TRUTH=N: on N problems, with a summary; ZX_TRUTH_SHOW=1: and each on which the
// planner isn't optimal, with both solutions. ZX_TRUTH_FROM=N: the first one. ZX_TRUTH_LINES=1:
// tight lines in place of what is drawn from all there is. Problems this small the planner searches
// to the end; what its list scheduler alone gives is shown beside that.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "sched/bound.h"
#include "sched/solve.h"
#include "tests/sched/truth/truth.h"
#include "tests/test.h"

#define SAME 1e-9 // times as near as that are equal
#define FEW 60    // problems of a quick run

typedef struct verdict {
    double best, planner;  // seconds
    double lists;          // of the list scheduler
    double bound, program; // and by the linear program
    char broken[256];      // what is wrong with the planner, beside not being the best; "": nothing
    truth_found found;
    zx_solution made;
} verdict;

static bool same(double a, double b)
{
    return fabs(a - b) <= SAME * fmax(a, b);
}

// What problem.h says of a solution, against the tests' own.
static void check_words(const zx_problem *p, const zx_solution *s, double seconds,
                        const char *whose, zx_arena *mem, verdict *v)
{
    const char *rule = truth_wrong(p, s, mem), *own = zx_problem_wrong(p, s, mem);
    zx_price price;
    if (rule != NULL)
        snprintf(v->broken, sizeof v->broken, "%s solution: %s", whose, rule);
    else if (own != NULL)
        snprintf(v->broken, sizeof v->broken, "zx_problem_wrong of %s solution: %s", whose, own);
    if (rule != NULL || own != NULL) return;
    zx_problem_price(p, s, &price);
    if (!same(price.seconds, seconds))
        snprintf(v->broken, sizeof v->broken,
                 "zx_problem_price of %s solution: %.12g, the simulator: %.12g", whose,
                 price.seconds, seconds);
}

static void check_least(const zx_problem *p, zx_arena *mem, verdict *v)
{
    zx_problem less = *p;
    zx_solution s;
    uint64_t least = 0;
    less.limit = truth_least(p);
    if (!zx_solve(&less, mem, &s, &least))
        snprintf(v->broken, sizeof v->broken, "no solution within the least limit");
    if (less.limit-- == 0) return;
    if (zx_solve(&less, mem, &s, &least))
        snprintf(v->broken, sizeof v->broken, "a solution below the least limit");
    else if (least != truth_least(p))
        snprintf(v->broken, sizeof v->broken, "the least is %llu, not %llu",
                 (unsigned long long)truth_least(p), (unsigned long long)least);
}

static double lists_of(const zx_problem *p, zx_arena *mem)
{
    zx_stands stands = {0};
    zx_solution s;
    zx_price price;
    uint64_t least;
    if (!zx_solve_lists(p, &stands, 0, mem, &s, &least)) return TRUTH_NEVER;
    zx_problem_price(p, &s, &price);
    return price.seconds;
}

// Both bounds; without a solver the second one is the first.
static void check_bounds(const zx_problem *p, verdict *v)
{
    zx_bound b = {0};
    zx_err err = {0};
    zx_bound_problem(p, &b);
    v->bound = v->program = b.seconds;
    if (zx_bound_certify(p, &b, &err) == ZX_OK) v->program = b.seconds;
    if (v->bound > v->best * (1 + SAME) || v->program > v->best * (1 + SAME))
        snprintf(v->broken, sizeof v->broken, "a bound is above the best: %.9g s, program %.9g s",
                 v->bound, v->program);
}

static void compare(const zx_problem *p, zx_arena *mem, verdict *v)
{
    uint64_t least;
    *v = (verdict){.planner = TRUTH_NEVER, .lists = lists_of(p, mem)};
    truth_search(p, mem, &v->found);
    v->best = v->found.seconds;
    check_words(p, &v->found.best, v->best, "the best", mem, v);
    check_bounds(p, v);
    if (!zx_solve(p, mem, &v->made, &least)) {
        snprintf(v->broken, sizeof v->broken, "the planner finds nothing");
        return;
    }
    v->planner = truth_price(p, &v->made, mem);
    check_words(p, &v->made, v->planner, "the planner's", mem, v);
    check_least(p, mem, v);
    if (v->planner < v->best * (1 - SAME))
        snprintf(v->broken, sizeof v->broken, "the planner is better than the best");
}

static void show(uint32_t seed, const zx_problem *p, const verdict *v)
{
    zx_text text = {0};
    zx_text_put(&text, "seed %u: %s\n", seed, v->broken);
    truth_put_problem(p, &text);
    zx_text_put(&text, "  the best: %.6f ms\n", v->best * 1e3);
    truth_put_solution(p, &v->found.best, &text);
    if (v->planner < TRUTH_NEVER) {
        zx_text_put(&text, "  the planner's: %.6f ms, %.3f %% more\n", v->planner * 1e3,
                    100 * (v->planner / v->best - 1));
        truth_put_solution(p, &v->made, &text);
    }
    printf("%s\n", text.at);
    fflush(stdout);
    zx_text_free(&text);
}

typedef struct share {
    uint32_t solved, optimal, near, worst_seed;
    double worst, sum;
} share;

typedef struct summary {
    share planner, lists;
    uint32_t n, broken, above; // above: bounds above the best
    double seconds, slowest, bound, program;
    uint64_t seen, runs;
} summary;

static void count(share *s, uint32_t seed, double ratio)
{
    if (ratio > 1e9) return;
    s->solved++;
    s->optimal += ratio <= 1 + SAME;
    s->near += ratio <= 1.01;
    s->sum += ratio;
    if (ratio <= s->worst) return;
    s->worst = ratio;
    s->worst_seed = seed;
}

static void run(bool lines, uint32_t from, uint32_t n, bool shows, summary *s)
{
    *s = (summary){0};
    for (uint32_t seed = from; seed < from + n; seed++) {
        zx_arena mem = {0};
        const zx_problem p = lines ? truth_draw_line(seed, &mem) : truth_draw(seed, &mem);
        verdict v;
        const clock_t was = clock();
        compare(&p, &mem, &v);
        const double took = (double)(clock() - was) / CLOCKS_PER_SEC;
        count(&s->planner, seed, v.planner / v.best);
        count(&s->lists, seed, v.lists / v.best);
        s->n++;
        s->broken += v.broken[0] != '\0';
        s->above += v.bound > v.best * (1 + SAME) || v.program > v.best * (1 + SAME);
        s->bound += v.bound / v.best;
        s->program += v.program / v.best;
        s->seconds += took;
        s->seen += v.found.seen;
        s->runs += v.found.runs;
        if (took > s->slowest) s->slowest = took;
        if (v.broken[0] != '\0' || (shows && v.planner > v.best * (1 + SAME))) show(seed, &p, &v);
        zx_arena_free(&mem);
    }
}

static void put_share(const char *whose, const share *s, uint32_t n)
{
    printf(
        "%s: optimal %.2f %%, within 1 %% %.2f %%, unsolved %u; worst %.4f (seed %u), mean %.6f\n",
        whose, 100.0 * s->optimal / n, 100.0 * s->near / n, n - s->solved, s->worst, s->worst_seed,
        s->sum / (s->solved > 0 ? s->solved : 1));
}

static void put(const summary *s)
{
    printf("%u problems against the best of all their solutions; broken %u\n", s->n, s->broken);
    put_share("the planner", &s->planner, s->n);
    put_share("its list scheduler alone", &s->lists, s->n);
    printf("bounds above the best: %u; on average bound %.4f, linear program %.4f of the best\n",
           s->above, s->bound / s->n, s->program / s->n);
    printf("%.1f s, the slowest %.2f s; %llu beginnings, %llu runs of the simulator\n", s->seconds,
           s->slowest, (unsigned long long)s->seen, (unsigned long long)s->runs);
}

// What is asked of the planner: optimal on 99 of 100, within 1 % on the rest.
static bool holds(const summary *s)
{
    return s->planner.optimal * 100 >= s->n * 99 && s->planner.near == s->n;
}

static void test_planner(void **state)
{
    const bool *lines = *state;
    summary s;
    run(*lines, 0, FEW, true, &s);
    put(&s);
    assert_int_equal(s.broken, 0);
    assert_int_equal(s.above, 0);
    assert_true(holds(&s));
}

int main(void)
{
    static const bool kinds[] = {false, true};
    const struct CMUnitTest tests[] = {zx_case("drawn", test_planner, &kinds[0]),
                                       zx_case("tight lines", test_planner, &kinds[1])};
    const char *n = getenv("ZX_TRUTH"), *from = getenv("ZX_TRUTH_FROM");
    summary s;
    if (n == NULL) return cmocka_run_group_tests(tests, NULL, NULL);
    run(getenv("ZX_TRUTH_LINES") != NULL, from != NULL ? (uint32_t)strtoul(from, NULL, 10) : 0,
        (uint32_t)strtoul(n, NULL, 10), getenv("ZX_TRUTH_SHOW") != NULL, &s);
    put(&s);
    return s.broken > 0 || s.above > 0 || !holds(&s);
}

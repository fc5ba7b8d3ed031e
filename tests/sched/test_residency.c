// test_residency.c - the planner on lines at random: what stays between two reads is never worse
// than the best of what stays for whole steps, and what comes out is a solution. ZX_LINES=N: on N
// lines; ZX_LINES_FROM=N: the first one.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "tests/bench/bench_whole_step.h"
#include "tests/test.h"

#define FEW 30

static uint32_t number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void check_line(uint32_t seed)
{
    zx_arena mem = {0};
    zx_problem p;
    zx_solution s;
    zx_price interval, whole;
    uint64_t least = 0;
    uint32_t turn;
    assert_true(bench_random_line(seed, &mem, &p, &turn));
    assert_true(zx_solve(&p, &mem, &s, &least));
    const char *why = zx_problem_wrong(&p, &s, &mem);
    if (why != NULL) fail_msg("line %u: %s", seed, why);
    zx_problem_price(&p, &s, &interval);
    if (bench_whole_step_best(&p, turn, &whole) && interval.seconds > whole.seconds * (1 + 1e-9))
        fail_msg("line %u: %.9g s, with what stays for whole steps %.9g s", seed, interval.seconds,
                 whole.seconds);
    zx_arena_free(&mem);
}

static void test_lines(void **state ZX_UNUSED)
{
    const uint32_t from = number("ZX_LINES_FROM", 0), n = number("ZX_LINES", FEW);
    for (uint32_t seed = from; seed < from + n; seed++) check_line(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lines)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

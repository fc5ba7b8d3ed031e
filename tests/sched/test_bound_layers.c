// test_bound_layers.c - costs of neighbouring slots in layers, added on either side, against the
// sum over all heights.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "sched/bound_parts.h"
#include "tests/test.h"

#define SLOTS 9
#define HEIGHTS 4

// More between two boundaries than between them and one in the middle.
static double bytes_between(const void *of, uint32_t from, uint32_t to)
{
    const double *at = of;
    const double more = at[to] - at[from] - 1;
    return more > 0 ? more : 0;
}

// Of every height the runs of slots that cost more.
static double naive(const double *at, const uint32_t *cost, uint32_t n)
{
    double sum = 0;
    for (uint32_t h = 0; h < HEIGHTS; h++)
        for (uint32_t from = 0; from < n; from++) {
            uint32_t to = from;
            if (from > 0 && cost[from - 1] > h) continue;
            while (to < n && cost[to] > h) to++;
            if (to > from) sum += bytes_between(at, from, to);
        }
    return sum;
}

static void test_pile(void **state ZX_UNUSED)
{
    uint64_t r = 3;
    for (uint32_t i = 0; i < 500; i++) {
        double at[SLOTS + 1] = {0};
        uint32_t cost[SLOTS], back[SLOTS];
        zx_bound_run runs[2][SLOTS + 1];
        for (uint32_t k = 0; k < SLOTS; k++) {
            r = r * UINT64_C(6364136223846793005) + 1442695040888963407u;
            at[k + 1] = at[k] + (double)(r >> 40 & 3);
            cost[k] = (uint32_t)(r >> 50) % (HEIGHTS + 1);
        }
        zx_bound_pile p = {.of = at, .bytes = bytes_between, .runs = runs[0]};
        zx_bound_pile q = {.of = at, .bytes = bytes_between, .runs = runs[1]};
        zx_bound_pile_start(&p, 0);
        zx_bound_pile_start(&q, SLOTS);
        for (uint32_t k = 0; k < SLOTS; k++) { // at any time it is the window's so far
            zx_bound_pile_add(&p, cost[k], k + 1);
            assert_float_equal(zx_bound_pile_sum(&p), naive(at, cost, k + 1), 1e-9);
            zx_bound_pile_add(&q, cost[SLOTS - 1 - k], SLOTS - 1 - k);
            for (uint32_t m = 0; m <= k; m++) back[m] = cost[SLOTS - 1 - k + m];
            assert_float_equal(zx_bound_pile_sum(&q), naive(at + SLOTS - 1 - k, back, k + 1), 1e-9);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

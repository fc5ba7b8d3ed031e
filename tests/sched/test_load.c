// test_load.c - the tree of what is spoken for, against an array.
// SPDX-License-Identifier: Apache-2.0
#include "sched/load.h"
#include "tests/test.h"

static void test_load(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_load l;
    int64_t plain[13] = {0};
    zx_load_make(&l, 13, &mem);
    uint64_t r = 1;
    for (int k = 0; k < 3000; k++) {
        r = r * UINT64_C(6364136223846793005) + 1;
        const int64_t from = (int64_t)(r >> 40) % 30 - 15, n = (int64_t)(r >> 33) % 15 - 1;
        const int64_t x = (int64_t)(r >> 50) % 9 - 4;
        int64_t most = INT64_MIN;
        for (int64_t i = 0; i < n && i < 13; i++) {
            int64_t *at = &plain[((from + i) % 13 + 13) % 13];
            if (k % 2) *at += x;
            if (*at > most) most = *at;
        }
        if (k % 2) zx_load_add(&l, from, from + n - 1, x);
        assert_true(zx_load_most(&l, from, from + n - 1) == most);
    }
    int64_t values[13];
    for (int i = 0; i < 13; i++) plain[i] = values[i] = (i * 7) % 11 - 5;
    zx_load_fill(&l, values);
    for (int from = 0; from < 13; from++) {
        int64_t most = INT64_MIN;
        for (int to = from; to < 13; to++) {
            if (plain[to] > most) most = plain[to];
            assert_true(zx_load_most(&l, from, to) == most);
        }
    }
    zx_arena_free(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_load)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

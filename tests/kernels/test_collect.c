// test_collect.c - sums over ranks in rank order, square sums, the first number that isn't finite.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

enum { N = 200003, RANKS = 5 };
static float from[RANKS][N], out[N], want[N];

static void fill(void)
{
    for (uint32_t r = 0; r < RANKS; r++)
        for (int i = 0; i < N; i++) from[r][i] = some(r, i) * powf(10, (float)(i % 5) - 2);
}

// ((r0 + r1) + r2) + ..., which no other order gives for these numbers.
static void sums_in_rank_order(void **state ZX_UNUSED)
{
    fill();
    for (uint32_t n = 1; n <= RANKS; n++)
        for (int add = 0; add < 2; add++)
            for (int threads = 1; threads <= 3; threads++) {
                const float *const list[RANKS] = {from[0], from[1], from[2], from[3], from[4]};
                for (int i = 0; i < N; i++) {
                    float sum = from[0][i];
                    for (uint32_t r = 1; r < n; r++) sum += from[r][i];
                    out[i] = some(99, i);
                    want[i] = add ? out[i] + sum : sum;
                }
                zx_cpu_sum_ranks(out, list, n, N, add != 0, threads);
                assert_memory_equal(out, want, sizeof out);
            }
    const float *const swapped[2] = {from[1], from[0]};
    float a = 0;
    const float *const big[3] = {(float[]){1e8f}, (float[]){-1e8f}, (float[]){1}};
    zx_cpu_sum_ranks(&a, big, 3, 1, false, 1);
    assert_true(a == 1); // and 0 in another order
    zx_cpu_sum_ranks(out, swapped, 2, 7, false, 1);
    assert_true(out[3] == from[1][3] + from[0][3]);
}

// The result may take the place of any operand.
static void sums_in_place(void **state ZX_UNUSED)
{
    for (uint32_t at = 0; at < 3; at++) {
        fill();
        const float *const list[3] = {from[0], from[1], from[2]};
        for (int i = 0; i < N; i++) want[i] = from[0][i] + from[1][i] + from[2][i];
        zx_cpu_sum_ranks(from[at], list, 3, N, false, 2);
        assert_memory_equal(from[at], want, sizeof want);
    }
}

static void square_sums(void **state ZX_UNUSED)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 4095, 4096, 4097, N};
    fill();
    for (uint32_t s = 0; s < ZX_COUNT(sizes); s++) {
        double sum = 0;
        for (int64_t i = 0; i < sizes[s]; i++) sum += (double)from[0][i] * (double)from[0][i];
        const double one = zx_cpu_square_sum(from[0], sizes[s], 1);
        assert_near(one, sum, sum * 1e-12, (int64_t)s);
        for (int threads = 2; threads < 6; threads++)
            assert_true(zx_cpu_square_sum(from[0], sizes[s], threads) == one);
    }
    // Blocks of 4096 are summed apart and added in order.
    const double first = zx_cpu_square_sum(from[0], 4096, 1);
    const double second = zx_cpu_square_sum(from[0] + 4096, 4096, 1);
    assert_true(zx_cpu_square_sum(from[0], 8192, 2) == first + second);
}

static void finds_what_is_not_finite(void **state ZX_UNUSED)
{
    static const int64_t places[] = {0, 1, 1023, 1024, 5000, N - 1};
    fill();
    assert_int_equal(zx_cpu_find_nonfinite(from[0], N, true), -1);
    assert_int_equal(zx_cpu_find_nonfinite(from[0], 0, true), -1);
    for (uint32_t k = 0; k < ZX_COUNT(places); k++) {
        const int64_t at = places[k];
        const float was = from[0][at];
        from[0][at] = -INFINITY;
        assert_int_equal(zx_cpu_find_nonfinite(from[0], N, true), at);
        assert_int_equal(zx_cpu_find_nonfinite(from[0], N, false), -1);
        from[0][at] = NAN;
        assert_int_equal(zx_cpu_find_nonfinite(from[0], N, true), at);
        assert_int_equal(zx_cpu_find_nonfinite(from[0], N, false), at);
        assert_int_equal(zx_cpu_find_nonfinite(from[0], at, true), -1);
        from[0][at] = was;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_in_rank_order),
        cmocka_unit_test(sums_in_place),
        cmocka_unit_test(square_sums),
        cmocka_unit_test(finds_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

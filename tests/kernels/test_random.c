// test_random.c - the generator against published numbers; first values; which element a mask hits.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

#include "graph/op.h"
#include "kernels/random.h"

// From the known-answer file of Random123, the generator's reference implementation.
static const struct known_answer {
    const char *name;
    uint64_t key, block, stream;
    uint32_t want[4];
} answers[] = {
    {"zeros", 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {"ones", UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {"pi",
     0x299f31d0a4093822,
     0x85a308d3243f6a88,
     0x0370734413198a2e,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void philox(void **state)
{
    const struct known_answer *row = *state;
    uint32_t w[4];
    zx_philox(row->key, row->block, row->stream, w);
    assert_memory_equal(w, row->want, sizeof w);
}

static void dropout(float *y, const float *x, int64_t n, double ratio, int64_t key, zx_rng rng)
{
    zx_arena mem = {0};
    zx_attrs attrs = zx_attrs_float(&mem, (zx_attrs){0}, ZX_A_RATIO, ratio);
    attrs = zx_attrs_int(&mem, attrs, ZX_A_KEY, key);
    const zx_view in = {(void *)(uintptr_t)x, {ZX_F32, shape_of(1, &n)}}, out = {y, in.type};
    const zx_call call = {.op = ZX_OP_DROPOUT,
                          .n_in = 1,
                          .n_out = 1,
                          .in = &in,
                          .out = &out,
                          .attrs = &attrs,
                          .threads = 2,
                          .rng = &rng};
    zx_err err = {0};
    assert_zx_ok(zx_cpu_dropout.run(&call, &err), &err);
    zx_arena_free(&mem);
}

enum { N = 100000 };
static float ones[N], a[N], b[N];

// The bits are part of what a run can be resumed from: they may not change from version to version.
static void dropout_bits(void **state ZX_UNUSED)
{
    static const struct {
        zx_rng rng;
        int64_t key;
        uint64_t want; // bit i: element i is kept
    } rows[] = {
        {{0, 0, 0}, 0, 0x8ce18069939dab91},
        {{1, 2, 3}, 4, 0x1f09931d190949e7},
        {{1, 2, 4}, 4, 0x8b1bdb18f1f60cb0},
    };
    for (uint32_t r = 0; r < ZX_COUNT(rows); r++) {
        uint64_t kept = 0;
        dropout(a, ones, 64, 0.5, rows[r].key, rows[r].rng);
        for (int i = 0; i < 64; i++) kept |= (uint64_t)(a[i] != 0) << i;
        if (kept != rows[r].want) fail_msg("row %u: 0x%016llx", r, (unsigned long long)kept);
    }
}

static void dropout_rate(void **state ZX_UNUSED)
{
    static const double ratios[] = {0, 0.1, 0.5, 0.9, 1};
    for (uint32_t r = 0; r < ZX_COUNT(ratios); r++) {
        const double p = ratios[r];
        double kept = 0, neighbours = 0;
        dropout(a, ones, N, p, 3, (zx_rng){7, 8, 9});
        for (int i = 0; i < N; i++) {
            assert_true(a[i] == 0 || a[i] == (float)(1 / (1 - p)));
            kept += a[i] != 0;
            neighbours += i > 0 && a[i] != 0 && a[i - 1] != 0;
        }
        // five standard deviations
        assert_true(fabs(kept / N - (1 - p)) <= 5 * sqrt(p * (1 - p) / N));
        assert_true(fabs(neighbours / N - (1 - p) * (1 - p)) <= 5 * sqrt(p * (1 - p) / N) + 2e-5);
    }
}

// Another seed, step, micro-batch or node is another mask; the same ones are the same mask.
static void dropout_keys(void **state ZX_UNUSED)
{
    static const struct {
        zx_rng rng;
        int64_t key;
    } ways[] = {{{1, 2, 3}, 4}, {{2, 2, 3}, 4}, {{1, 3, 3}, 4}, {{1, 2, 4}, 4},
                {{1, 2, 3}, 5}, {{2, 1, 3}, 4}, {{1, 3, 2}, 4}};
    dropout(a, ones, N, 0.5, ways[0].key, ways[0].rng);
    for (uint32_t w = 0; w < ZX_COUNT(ways); w++) {
        int same = 0;
        dropout(b, ones, N, 0.5, ways[w].key, ways[w].rng);
        for (int i = 0; i < N; i++) same += a[i] == b[i];
        if (w == 0)
            assert_int_equal(same, N);
        else
            assert_true(abs(same - N / 2) < 5 * 158); // sqrt(N)/2 is 158
    }
}

// Any piece of a tensor gets the values that the whole has there.
static void first_values_by_pieces(void **state ZX_UNUSED)
{
    const uint64_t key = zx_cpu_init_key(5, "h.0.attn.weight");
    zx_cpu_init_normal(a, key, 1000, 300, 1, 2);
    for (int from = 0; from < 70; from++)
        for (int n = 1; n < 140; n += 23) {
            zx_cpu_init_normal(b, key, 1000 + (uint64_t)from, n, 1, 2);
            assert_memory_equal(b, a + from, (size_t)n * sizeof(float));
        }
    zx_cpu_init_uniform(a, key, 1000, 300, -1, 1);
    for (int from = 0; from < 70; from++) {
        zx_cpu_init_uniform(b, key, 1000 + (uint64_t)from, 77, -1, 1);
        assert_memory_equal(b, a + from, 77 * sizeof(float));
    }
}

static void first_values_spread(void **state ZX_UNUSED)
{
    double mean = 0, square = 0, fourth = 0, beyond = 0, lag[2] = {0};
    zx_cpu_init_normal(a, zx_cpu_init_key(0, "w"), 0, N, 0, 1);
    for (int i = 0; i < N; i++) {
        const double x = (double)a[i];
        mean += x / N;
        square += x * x / N;
        fourth += x * x * x * x / N;
        beyond += fabs(x) > 3;
        if (i >= 16) lag[0] += x * (double)a[i - 16] / N; // the two of a Box-Muller pair
        if (i >= 1) lag[1] += x * (double)a[i - 1] / N;
    }
    const double s = 5 / sqrt(N);
    assert_true(fabs(mean) < s && fabs(square - 1) < s * sqrt(2) && fabs(fourth - 3) < s * 10);
    assert_true(fabs(beyond / N - 0.0026998) < 5 * sqrt(0.0027 / N));
    assert_true(fabs(lag[0]) < s && fabs(lag[1]) < s);
    zx_cpu_init_uniform(a, zx_cpu_init_key(0, "w"), 0, N, -0.25, 0.75);
    mean = 0;
    for (int i = 0; i < N; i++) {
        assert_true(a[i] >= -0.25f && a[i] < 0.75f);
        mean += (double)a[i] / N;
    }
    assert_true(fabs(mean - 0.25) < s / sqrt(12));
}

static void keys_of_names(void **state ZX_UNUSED)
{
    assert_true(zx_cpu_init_key(1, "a") == zx_cpu_init_key(1, "a"));
    assert_true(zx_cpu_init_key(1, "a") != zx_cpu_init_key(2, "a"));
    assert_true(zx_cpu_init_key(1, "a") != zx_cpu_init_key(1, "b"));
    assert_true(zx_cpu_init_key(1, "ab") != zx_cpu_init_key(1, "ba"));
    assert_true(zx_cpu_init_key(1, "") != zx_cpu_init_key(1, "a"));
}

int main(void)
{
    for (int i = 0; i < N; i++) ones[i] = 1;
    const struct CMUnitTest tests[] = {
        zx_case("philox of zeros", philox, &answers[0]),
        zx_case("philox of ones", philox, &answers[1]),
        zx_case("philox of pi", philox, &answers[2]),
        cmocka_unit_test(dropout_bits),
        cmocka_unit_test(dropout_rate),
        cmocka_unit_test(dropout_keys),
        cmocka_unit_test(first_values_by_pieces),
        cmocka_unit_test(first_values_spread),
        cmocka_unit_test(keys_of_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

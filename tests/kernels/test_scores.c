// test_scores.c - passes over a tile of scores at every level of instructions that this processor
// has, against the same in double. Rows have lengths around a vector's, and numbers that are none.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

#include "kernels/cpu/tile.h"

static const struct scores_row {
    const char *name;
    int64_t m, n;
    float scale; // of scores, which are at most 0 after the shift
    bool odd;    // -inf and NaN among them
} rows[] = {
    {"vectors alone", 7, 64, 3, false},     {"a tail", 5, 37, 3, false},
    {"less than a vector", 3, 5, 3, false}, {"nothing", 2, 0, 1, false},
    {"far below", 4, 50, 200, false},       {"odd numbers", 9, 71, 3, true},
    {"odd numbers, few", 9, 3, 3, true},
};

enum { M = 16, ROW = 80 };
typedef struct tile_of {
    float s[M * ROW], d[M * ROW], shift[M], delta[M];
} tile_of;

static tile_of fill(const struct scores_row *t)
{
    tile_of x;
    for (int64_t i = 0; i < M * ROW; i++) {
        x.s[i] = (some(1, i) - 1) * t->scale;
        x.d[i] = some(2, i);
        if (t->odd && i % 5 == 0) x.s[i] = -INFINITY;
        if (t->odd && i / ROW == 1 && i % 7 == 1) x.s[i] = NAN;
    }
    for (int64_t r = 0; r < M; r++) {
        x.shift[r] = 0.25f * (float)r;
        x.delta[r] = some(3, r);
    }
    return x;
}

static void check_most(const struct scores_row *t, const zx_scores_passes *p)
{
    const tile_of x = fill(t);
    float got[M];
    p->most(t->m, t->n, x.s, ROW, got);
    for (int64_t r = 0; r < t->m; r++) {
        double most = -INFINITY;
        for (int64_t j = 0; j < t->n; j++) most = fmax(most, (double)x.s[r * ROW + j]);
        assert_near((double)got[r], most, 0, r);
    }
}

static void check_exp(const struct scores_row *t, const zx_scores_passes *p)
{
    const tile_of x = fill(t);
    tile_of y = x;
    float sum[M];
    p->exp(t->m, t->n, y.s, ROW, x.shift, sum);
    for (int64_t r = 0; r < M; r++) {
        double all = 0;
        for (int64_t j = 0; j < ROW; j++) {
            const int64_t i = r * ROW + j;
            const bool inside = r < t->m && j < t->n;
            const double want = inside ? exp((double)(x.s[i] - x.shift[r])) : (double)x.s[i];
            assert_near((double)y.s[i], want, inside ? 2e-7 * want + 2e-38 : 0, i);
            if (inside) all += want;
        }
        if (r < t->m) assert_near((double)sum[r], all, 1e-6 * all, r);
    }
}

static void check_slope(const struct scores_row *t, const zx_scores_passes *p)
{
    const tile_of x = fill(t);
    tile_of y = x;
    p->slope(t->m, t->n, y.s, y.d, ROW, x.shift, x.delta);
    for (int64_t i = 0; i < M * ROW; i++) {
        const int64_t r = i / ROW;
        const bool inside = r < t->m && i % ROW < t->n;
        const double e = inside ? exp((double)(x.s[i] - x.shift[r])) : (double)x.s[i];
        const double d = inside ? e * ((double)x.d[i] - (double)x.delta[r]) : (double)x.d[i];
        assert_near((double)y.s[i], e, inside ? 2e-7 * e + 2e-38 : 0, i);
        assert_near((double)y.d[i], d, inside ? 1e-6 * e + 2e-38 : 0, i);
    }
}

static void passes(void **state)
{
    const struct scores_row *t = *state;
    for (zx_tile_level level = ZX_TILE_ANY; level <= zx_tile_best(); level++) {
        check_most(t, zx_scores_at(level));
        check_exp(t, zx_scores_at(level));
        check_slope(t, zx_scores_at(level));
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, passes, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

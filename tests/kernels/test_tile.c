// test_tile.c - products of tiles at every level of instructions that this processor has: each
// element is the sum over k in order, rounded once or twice a term, whatever the shapes are.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

#include "kernels/cpu/tile.h"

static const struct tile_row {
    const char *name;
    int64_t m, n, k;
    bool turned, add; // a's columns are its rows in memory
} rows[] = {
    {"blocks alone", 16, 64, 40, false, false},
    {"blocks alone, added", 16, 64, 40, false, true},
    {"a turned", 32, 64, 33, true, true},
    {"rows are left over", 13, 96, 9, false, true},
    {"columns are left over", 8, 75, 17, false, false},
    {"both, turned", 11, 41, 5, true, true},
    {"one row", 1, 32, 64, false, false},
    {"one column", 20, 1, 64, false, true},
    {"one number", 1, 1, 1, false, false},
    {"nothing to sum", 9, 40, 0, false, true},
    {"every block of a vector's", 21, 16, 7, false, false},
    {"last blocks are even", 9, 80, 12, true, true},
    {"rows and columns by one", 7, 65, 3, false, false},
};

enum { A_ROW = 71, B_ROW = 99, C_ROW = 101, MOST = 128 * 128 };
static float a[MOST], b[MOST], first[MOST], c[MOST];

static float element(const struct tile_row *t, zx_tile from, int64_t i, int64_t j, bool once)
{
    float s = 0;
    for (int64_t l = 0; l < t->k; l++) {
        const float x = from.x[i * from.row + l * from.col], y = b[l * B_ROW + j];
        const float xy = x * y;
        s = once ? fmaf(x, y, s) : s + xy;
    }
    return t->add ? s + first[i * C_ROW + j] : s;
}

static bool is_product(const struct tile_row *t, zx_tile from, bool once)
{
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < C_ROW; j++) {
            const float want = j < t->n ? element(t, from, i, j, once) : first[i * C_ROW + j];
            if (c[i * C_ROW + j] != want) return false;
        }
    return true;
}

static void products(void **state)
{
    const struct tile_row *t = *state;
    uint32_t seed = 1;
    for (int i = 0; i < MOST; i++) {
        float *to[] = {a, b, first};
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525 + 1013904223;
            to[k][i] = (float)(int32_t)seed / 2147483648.0F;
        }
    }
    const zx_tile from = {a, t->turned ? 1 : A_ROW, t->turned ? A_ROW : 1};
    for (zx_tile_level level = ZX_TILE_ANY; level <= zx_tile_best(); level++) {
        memcpy(c, first, sizeof c);
        zx_tile_product_at(level, t->m, t->n, t->k, from, b, B_ROW, c, C_ROW, t->add);
        if (!is_product(t, from, true) && !is_product(t, from, false))
            fail_msg("level %d: not the sums in order", (int)level);
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] =
            (struct CMUnitTest){rows[i].name, products, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

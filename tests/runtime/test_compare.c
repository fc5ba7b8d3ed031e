// test_compare.c - the table of a comparison: who is called fastest, and what is said where op
// times can't be relied on.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/compare.h"
#include "tests/test.h"

#define BUSY "the machine was busy while op times were measured"

typedef struct table_row {
    const char *name;
    double measured[2]; // of ddp and of zerox; 0: not executed
    bool executed;
    uint64_t over[2];
    double drift;
    const char *has, *hasnt;
} table_row;

// The bound is 1 s, the predictions are 1.1 s and 1.2 s.
static const table_row rows[] = {
    {"two are ranked", {1.3, 1.2}, true, {0, 0}, 0.1, "20.0 %  1.00x fastest", BUSY},
    {"below the bound", {0.7, 1.2}, true, {0, 0}, 0.1, "        -  1.00x fastest", "-30"},
    {"below the bound: busy",
     {0.7, 1.2},
     true,
     {0, 0},
     0.1,
     BUSY " (before/after passes differ by 10 %): measure again on a quiet one\n",
     NULL},
    {"below the bound, one pass", {0.7, 1.2}, true, {0, 0}, 0, BUSY ": measure again", "differ"},
    {"as near as rounding", {0.9996, 1.2}, true, {0, 0}, 0, "0.0 %  1.00x fastest", BUSY},
    {"over the budget has no bound", {0.7, 1.2}, true, {1, 0}, 0.1, "alone within", BUSY},
    {"passes differ", {1.3, 1.2}, true, {0, 0}, 0.16, "passes differ by 16 %", NULL},
    {"passes differ little", {1.3, 1.2}, true, {0, 0}, 0.15, "1.00x fastest", BUSY},
    {"predicted", {0, 0}, false, {0, 0}, 0, "10.0 %  1.00x fastest", BUSY},
    {"alone", {0, 0}, false, {1, 0}, 0, "20.0 %  alone within the budget\n", "1.00x"},
    {"the other wasn't executed", {0, 1.2}, true, {0, 0}, 0, "the only one executed\n", "1.00x"},
};

static void test_table(void **state)
{
    const table_row *row = *state;
    zx_text out = {0};
    zx_compare_row r[2] = {
        {.id = ZX_POLICY_DDP, .name = "ddp", .predicted = 1.1, .over_bytes = row->over[0]},
        {.id = ZX_POLICY_ZEROX, .name = "zerox", .predicted = 1.2, .over_bytes = row->over[1]}};
    double steps[2] = {row->measured[0], row->measured[1]}, exposed[2] = {0};
    for (int i = 0; i < 2; i++) {
        r[i].n_steps = steps[i] > 0;
        r[i].steps = &steps[i];
        r[i].exposed = &exposed[i];
    }
    zx_compare c = {.model = "m",
                    .ranks = 2,
                    .budget = UINT64_MAX,
                    .bound = {.seconds = 1},
                    .n_rows = 2,
                    .rows = r,
                    .executed = row->executed,
                    .drift = row->drift};
    zx_compare_rank(&c);
    zx_compare_table(&c, &out);
    if (strstr(out.at, row->has) == NULL) fail_msg("no '%s' in\n%s", row->has, out.at);
    if (row->hasnt != NULL && strstr(out.at, row->hasnt) != NULL)
        fail_msg("'%s' in\n%s", row->hasnt, out.at);
    zx_text_free(&out);
}

// What prints alike is starred alike; what is over the budget isn't.
static void test_sweep(void **state ZX_UNUSED)
{
    zx_text out = {0};
    zx_compare_row r[4] = {
        {.id = ZX_POLICY_DDP, .name = "ddp", .predicted = 1.20001},
        {.id = ZX_POLICY_ZERO1, .name = "zero1", .predicted = 1.1, .over_bytes = 1},
        {.id = ZX_POLICY_FSDP, .name = "fsdp", .predicted = 1.3},
        {.id = ZX_POLICY_ZEROX, .name = "zerox", .predicted = 1.2}};
    zx_sweep_point point = {
        .value = 1.25e9,
        .typed = "1.25GB",
        .c = {.ranks = 2, .budget = 1250000000, .bound = {.seconds = 1}, .n_rows = 4, .rows = r}};
    const zx_sweep s = {true, 1, &point};
    zx_compare_rank(&point.c);
    zx_sweep_table(&s, &out);
    static const char *const lines[] = {
        "  1.25GB\n", "\nddp                  *1.20 s\n", "\nzero1            over 1.10 s\n",
        "\nfsdp                  1.30 s\n", "\nzerox                *1.20 s\n"};
    for (size_t i = 0; i < ZX_COUNT(lines); i++)
        if (strstr(out.at, lines[i]) == NULL) fail_msg("no '%s' in\n%s", lines[i], out.at);
    zx_text_free(&out);
}

// Ranks of the interval's ends: of 9 values the 2nd and the 8th (3.9 % lie outside), of 35 the 12th
// and the 24th; 5 are too few (2 * 0.5^5 is over 5 %).
static const struct interval_row {
    uint32_t n, from, to;
} interval_rows[] = {{1, 1, 1},   {5, 1, 5},    {6, 1, 6},    {9, 2, 8},
                     {20, 6, 15}, {35, 12, 24}, {100, 40, 61}};

static void test_interval(void **state ZX_UNUSED)
{
    double x[100];
    for (size_t i = 0; i < ZX_COUNT(interval_rows); i++) {
        const struct interval_row *row = &interval_rows[i];
        for (uint32_t k = 0; k < row->n; k++) x[k] = 1 + (k * 7 + 3) % row->n; // 1 .. n, mixed
        if (row->n == 35)
            for (uint32_t k = 0; k < row->n; k++) x[k] = row->n - k;
        double from, to;
        zx_compare_interval(x, row->n, &from, &to);
        assert_true(from == row->from && to == row->to);
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 2];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_table, &rows[i]);
    tests[n++] = zx_case("a sweep", test_sweep, NULL);
    tests[n++] = zx_case("how well a median is known", test_interval, NULL);
    return _cmocka_run_group_tests("compare", tests, n, NULL, NULL);
}

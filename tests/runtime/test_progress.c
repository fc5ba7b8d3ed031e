// test_progress.c - what a person and a program read about a step, and the sizes a budget may have.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "runtime/memory.h"
#include "runtime/monitor.h"
#include "runtime/progress.h"
#include "tests/test.h"

static const struct line_row {
    const char *name;
    zx_progress_step step;
    uint32_t width;
    const char *want;
} lines[] = {
    {"the usual line",
     {120, 1000, 3.4123, 0.9134, 3e-4, 1600, "tok/s", 0.152, 134, 0.003, 1 << 20, 0, false, 0, 0},
     80,
     "step  120/1000 loss 3.412 |g| 0.91 lr 3.0e-4 1.6k tok/s 152 ms eta 2:14"},
    {"wide terminals show more",
     {120, 1000, 3.4123, 0.9134, 3e-4, 1600, "tok/s", 0.152, 134, 0.003, 1 << 20, 0, false, 0, 0},
     120,
     "step  120/1000 loss 3.412 |g| 0.91 lr 3.0e-4 1.6k tok/s 152 ms eta 2:14 exposed 3.00 ms mem "
     "1.00 MiB"},
    {"narrow ones have fewer of them",
     {120, 1000, 3.4123, 0.9134, 3e-4, 1600, "tok/s", 0.152, 134, 0, 0, 0, false, 0, 0},
     20,
     "step  120/1000"},
    {"a clipped gradient",
     {120, 1000, 3.4123, 3.1, 3e-4, 1600, "tok/s", 0.152, 134, 0.003, 1 << 20, 0, false, 1 / 3.1,
      0},
     80,
     "step  120/1000 loss 3.412 |g| 3.10→1.00 lr 3.0e-4 1.6k tok/s 152 ms eta 2:14"},
    {"an arrow is one column wide",
     {120, 1000, 3.4123, 3.1, 3e-4, 1600, "tok/s", 0.152, 134, 0.003, 1 << 20, 0, false, 1 / 3.1,
      0},
     39,
     "step  120/1000 loss 3.412 |g| 3.10→1.00"},
    {"and a pair is kept whole",
     {120, 1000, 3.4123, 3.1, 3e-4, 1600, "tok/s", 0.152, 134, 0.003, 1 << 20, 0, false, 1 / 3.1,
      0},
     36,
     "step  120/1000 loss 3.412"},
    {"an evaluation costs a terminal the time to go",
     {120, 1000, 3.4123, 0.9134, 3e-4, 1600, "tok/s", 0.152, 134, 0, 0, 0, false, 0, 3.5},
     80,
     "step  120/1000 loss 3.412 eval 3.500 |g| 0.91 lr 3.0e-4 1.6k tok/s 152 ms"},
    {"a file has all of it",
     {120, 1000, 3.4123, 0.9134, 3e-4, 1600, "tok/s", 0.152, 134, 0, 0, 0, false, 0, 3.5},
     0,
     "step  120/1000 loss 3.412 eval 3.500 |g| 0.91 lr 3.0e-4 1.6k tok/s 152 ms eta 2:14"},
    {"one rank has no communication",
     {1000, 1000, 3.4123, 0.9134, 3e-4, 1600, "tok/s", 0.152, -1, -1, 1 << 20, 0, false, 0, 0},
     120,
     "step 1000/1000 loss 3.412 |g| 0.91 lr 3.0e-4 1.6k tok/s 152 ms mem 1.00 MiB"},
    {"no rate, no time to go",
     {1, 1, NAN, INFINITY, 0, 0, "smp/s", 12.5, -1, 0, 0, 0, false, 0, 0},
     80,
     "step 1/1 loss nan |g| inf lr 0 0.0 smp/s 12.5 s"},
    {"a step that overflowed",
     {3, 9, 2.5, INFINITY, 1e-3, 1600, "tok/s", 0.152, 134, -1, 0, 32768, false, 0, 0},
     99,
     "step 3/9 loss 2.500 |g| inf overflow, scale 32768 lr 1.0e-3 1.6k tok/s 152 ms eta 2:14"},
    {"a step that was skipped",
     {3, 9, NAN, -(double)NAN, 1e-3, 1600, "tok/s", 0.152, 134, -1, 0, 0, true, 0, 0},
     99,
     "step 3/9 loss nan |g| nan not finite, skipped lr 1.0e-3 1.6k tok/s 152 ms eta 2:14"},
    {"hours",
     {1, 9, 1, 1, 0.1, 1e6, "smp/s", 1e-4, 3725, 0, 0, 0, false, 0, 0},
     80,
     "step 1/9 loss 1.000 |g| 1.00 lr 1.0e-1 1.0M smp/s 100 us eta 1:02:05"},
};

static void test_line(void **state)
{
    const struct line_row *row = *state;
    zx_text out = {0};
    zx_progress_line(&row->step, row->width, &out);
    assert_string_equal(out.at, row->want);
    zx_text_free(&out);
}

static void log_rows_are_json(void **state)
{
    (void)state;
    zx_figures f = {.step = 3};
    zx_text out = {0};
    zx_figure_set(&f, ZX_FIGURE_LR, 1e-3); // in the table's order, whatever comes first
    zx_figure_set(&f, ZX_FIGURE_LOSS, 1.0 / 3);
    zx_figure_set(&f, ZX_FIGURE_GRAD_NORM, NAN);
    zx_figure_set(&f, ZX_FIGURE_PEAK_BYTES, 1e12);
    zx_figures_line(&f, &out);
    assert_string_equal(out.at, "{\"step\": 3, \"loss\": 0.333333333, \"grad_norm\": null, "
                                "\"lr\": 0.001, \"peak_bytes\": 1000000000000}\n");
    const zx_watched watched = {"a\"b", 0.5, INFINITY};
    out.n = 0;
    zx_figures_line(&(zx_figures){.step = 4, .n_watched = 1, .watched = &watched}, &out);
    assert_string_equal(out.at, "{\"step\": 4, \"watch\": {\"a\\\"b\": {\"weight_norm\": 0.5, "
                                "\"grad_norm\": null}}}\n");
    zx_text_free(&out);
}

static const struct budget_row {
    const char *name, *text;
    uint64_t usable;
    uint32_t ranks;
    uint64_t want; // 0: refused
    bool least, roomy;
} budgets[] = {
    {"none: 80 %", NULL, 1000, 2, 400, false, true},
    {"nothing says what there is", NULL, 0, 2, UINT64_MAX, false, true},
    {"min", "min", 1000, 2, UINT64_MAX, true, false},
    {"GB are 10^9", "24GB", 1000, 2, 24000000000u, false, false},
    {"GiB are 2^30", "2GiB", 1000, 2, UINT64_C(2) << 30, false, false},
    {"bytes", "4096", 1000, 2, 4096, false, false},
    {"half of it, shared", "50%", 1000, 5, 100, false, false},
    {"above all of it", "101%", 1000, 2, 0, false, false},
    {"nothing", "0%", 1000, 2, 0, false, false},
    {"zero bytes", "0", 1000, 2, 0, false, false},
    {"a word", "lots", 1000, 2, 0, false, false},
    {"nothing at all", "", 1000, 2, 0, false, false},
};

static void test_budget(void **state)
{
    const struct budget_row *row = *state;
    zx_budget b;
    zx_err err = {0};
    const zx_status st = zx_budget_parse(row->text, row->usable, row->ranks, &b, &err);
    if (row->want == 0) {
        assert_int_equal(st, ZX_E_USAGE);
        return;
    }
    assert_zx_ok(st, &err);
    assert_true(b.bytes == row->want && b.least == row->least && b.roomy == row->roomy);
}

static void this_host_has_something(void **state)
{
    (void)state;
    assert_true(zx_memory_usable() > (1 << 20));
    assert_true(zx_memory_pss() > (64 << 10));
    assert_in_range(zx_memory_cores(), 1, 4096);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(lines) + ZX_COUNT(budgets) + 2];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(lines); i++)
        tests[n++] = zx_case(lines[i].name, test_line, &lines[i]);
    for (size_t i = 0; i < ZX_COUNT(budgets); i++)
        tests[n++] = zx_case(budgets[i].name, test_budget, &budgets[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(log_rows_are_json);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(this_host_has_something);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

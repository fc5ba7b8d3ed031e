// test_loss_scale.c - the loss scale after each step, as DeepSpeed 0.19.6's DynamicLossScaler has
// it.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/loss_scale.h"
#include "tests/test.h"

#define LONGEST 10
static const struct row {
    const char *name;
    zx_loss_scale_rule rule;
    const char *steps; // x: overflows
    double scale[LONGEST];
    int64_t hysteresis[LONGEST]; // what is left; 0: the run ends there
} rows[] = {
    {"the second overflow halves, and every one after it",
     {0, 65536, 1, 1000, 2, false},
     "x.x.x..x",
     {65536, 65536, 32768, 32768, 16384, 16384, 16384, 8192},
     {1, 1, 1, 1, 1, 1, 1, 1}},
    {"it doubles after a window without overflow, and one step",
     {0, 256, 1, 3, 2, false},
     ".........",
     {256, 256, 256, 512, 512, 512, 1024, 1024, 1024},
     {2, 2, 2, 2, 2, 2, 2, 2, 2}},
    {"an overflow begins the window again",
     {0, 256, 1, 3, 1, false},
     "..x.......",
     {256, 256, 128, 128, 128, 128, 256, 256, 256, 512},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"a window restores the hysteresis",
     {0, 1024, 1, 2, 3, false},
     "xx...xxx",
     {1024, 1024, 1024, 1024, 2048, 2048, 2048, 1024},
     {2, 1, 1, 1, 3, 2, 1, 1}},
    {"consecutive: any step without overflow restores it",
     {0, 1024, 1, 1000, 2, true},
     "x.x.xx.",
     {1024, 1024, 1024, 1024, 1024, 512, 512},
     {1, 2, 1, 2, 1, 1, 2}},
    {"consecutive, with a window",
     {0, 64, 1, 2, 2, true},
     "x....xx...",
     {64, 64, 64, 128, 128, 128, 64, 64, 64, 128},
     {1, 2, 2, 2, 2, 1, 1, 2, 2, 2}},
    {"not below the least, which ends the run", {0, 4, 3, 1000, 1, false}, "xx", {3, 3}, {1, 0}},
    {"hysteresis is used up first", {0, 1, 1, 1000, 2, false}, "xx", {1, 1}, {1, 0}},
    {"from the least it grows again",
     {0, 8, 4, 2, 1, false},
     "x...x....x",
     {4, 4, 4, 8, 4, 4, 4, 8, 8, 4},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"at the least: consecutive overflows end it, after the hysteresis",
     {0, 8, 4, 1000, 2, true},
     "xxx",
     {8, 4, 4},
     {1, 1, 0}},
    {"a window of one step",
     {0, 16, 1, 1, 2, false},
     "..x..x....",
     {16, 32, 32, 32, 64, 64, 64, 128, 256, 512},
     {2, 2, 1, 1, 2, 1, 1, 2, 2, 2}},
    {"hysteresis of four, and a window between",
     {0, 512, 1, 3, 4, false},
     "xx....xxxx",
     {512, 512, 512, 512, 512, 1024, 1024, 1024, 1024, 512},
     {3, 2, 2, 2, 2, 4, 3, 2, 1, 1}},
    {"consecutive with a hysteresis of one",
     {0, 64, 2, 2, 1, true},
     "x.x...xx..",
     {32, 32, 16, 16, 16, 32, 16, 8, 8, 8},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"overflows in windows that begin again",
     {0, 1024, 1, 2, 2, false},
     "x..x...x..",
     {1024, 1024, 1024, 512, 512, 512, 1024, 1024, 1024, 1024},
     {1, 1, 1, 1, 1, 1, 2, 1, 1, 1}},
    {"a least that is no power of two",
     {0, 100, 30, 2, 1, false},
     "xx...x....",
     {50, 30, 30, 30, 60, 30, 30, 30, 60, 60},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"a scale that stays", {128, 0, 0, 1, 1, false}, "x.x", {128, 128, 128}, {1, 1, 1}},
};

static void test_row(void **state)
{
    const struct row *r = *state;
    zx_loss_scale s = zx_loss_scale_start(&r->rule);
    for (size_t i = 0; i < strlen(r->steps); i++) {
        const bool on = zx_loss_scale_update(&s, &r->rule, r->steps[i] == 'x');
        assert_int_equal(on, r->hysteresis[i] != 0);
        if (s.scale != r->scale[i]) fail_msg("step %zu: %g, not %g", i, s.scale, r->scale[i]);
        if (on) assert_int_equal(s.hysteresis, r->hysteresis[i]);
    }
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, (void *)(uintptr_t)&rows[i]);
    return _cmocka_run_group_tests("loss_scale", tests, ZX_COUNT(rows), NULL, NULL);
}

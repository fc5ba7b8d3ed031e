// test_calibrate.c - this host is measured once, the figures are kept, and nothing depends on that.
// SPDX-License-Identifier: Apache-2.0
#include <time.h>
#include <utime.h>

#include "runtime/calibrate.h"
#include "tests/runtime/cli.h"

#define MLP ZX_TEST_DATA "/cases/mlp/model.onnx"

static const struct row {
    const char *name;
    const char *args[CLI_ARGS];
    int code;
    const char *out, *err;
} rows[] = {
    {"a row", {"machine", "h100x32"}, 0, "h100x32: each of its ranks", NULL},
    {"a row as JSON", {"machine", "h100x32", "--format", "json"}, 0, "\"name\": \"h100x32\"", NULL},
    {"a row for ranks", {"machine", "h100-1", "--ranks", "16"}, 0, "h100-1x16", NULL},
    {"the rows", {"machine", "--list"}, 0, "b200", NULL},
    {"constants", {"machine", "constants", "--ranks", "2"}, 0, "100 GFLOP/s", NULL},
    {"its GPUs", {"machine", "--backend", "cpu"}, 0, "GPUs               none: ", NULL},
    {"a name and --backend", {"machine", "h100", "--backend", "cpu"}, 2, NULL, "names another"},
    {"no such row", {"machine", "h10"}, 2, NULL, "the nearest is 'h100'"},
    {"no such file", {"machine", "gone.json"}, 1, NULL, "gone.json"},
    {"a file that is none", {"machine", "odd.json"}, 3, NULL, "odd.json: key 'flopz' is unknown"},
    {"a name and --calibrate",
     {"machine", "h100", "--calibrate"},
     2,
     NULL,
     "another machine is named"},
    {"a format it hasn't", {"machine", "--format", "states"}, 2, NULL, "text or json"},
    {"another number of ranks", {"machine", "h100x8", "--ranks", "4"}, 2, NULL, "not 4"},
    {"ranks beyond sense", {"machine", "--ranks", "99999999"}, 2, NULL, "is too many"},
    {"a plan for it", {"plan", MLP, "--machine", "h100x8"}, 0, "predicted step", NULL},
    {"a plan for no machine", {"plan", MLP, "--machine", "h100x9"}, 2, NULL, "9 ranks don't fill"},
};

static void test_row(void **state)
{
    const struct row *row = *state;
    cli_result r;
    cli_write("odd.json", "{\"flopz\": 1}");
    cli_run(row->args, &r);
    cli_expect(&r, row->code, row->out, row->err);
}

// Measured at the first need, taken from the cache afterwards; a file that can't be read is
// measured again.
static void measured_once(void **state ZX_UNUSED)
{
    static const char *const args[CLI_ARGS] = {"machine", "--ranks", "2", "--format", "json"};
    cli_result first, again;
    zx_arena mem = {0};
    char cache[4096];
    assert_non_null(getcwd(cache, sizeof cache - 16));
    strcat(cache, "/cache/deep");
    setenv("XDG_CACHE_HOME", cache, 1);
    unsetenv("ZX_NO_CALIBRATE");
    cli_run(args, &first);
    assert_int_equal(first.code, 0);
    assert_non_null(strstr(first.err, "this host was measured in"));
    const char *path = zx_calibrate_path(2, 1, &mem);
    assert_memory_equal(path, cache, strlen(cache));
    cli_run(args, &again);
    assert_null(strstr(again.err, "measured"));
    assert_string_equal(first.out, again.out);
    static const char *const text[CLI_ARGS] = {"machine", "--ranks", "2"};
    const time_t old = time(NULL) - 3 * 86400 - 60;
    assert_int_equal(utime(path, &(struct utimbuf){old, old}), 0);
    cli_run(text, &again);
    assert_non_null(
        strstr(again.out, "\nmeasured           3 days ago for 2 x 1 threads, kept in /"));
    setenv("ZX_NO_CALIBRATE", "1", 1);
    cli_run(text, &again);
    assert_null(strstr(again.out, "\nmeasured"));
    cli_run(args, &again);
    assert_non_null(strstr(again.out, "\"name\": \"host\""));
    unsetenv("ZX_NO_CALIBRATE");
    cli_write(path, "{");
    cli_run(args, &again);
    assert_int_equal(again.code, 0);
    assert_non_null(strstr(again.err, "this host was measured in"));
    // Where nothing can be kept a plan is made all the same.
    static const char *const plan[CLI_ARGS] = {"plan", MLP};
    setenv("XDG_CACHE_HOME", "/dev/null/cache", 1);
    cli_run(plan, &again);
    assert_int_equal(again.code, 0);
    assert_non_null(strstr(again.err, "not kept: "));
    setenv("ZX_NO_CALIBRATE", "1", 1);
    zx_arena_free(&mem);
}

static void figures_make_sense(void **state ZX_UNUSED)
{
    zx_machine m;
    zx_err err = {0};
    const clock_t from = clock();
    assert_zx_ok(zx_calibrate(3, 1, &m, &err), &err);
    // Of 3 ranks that work for 2.4 s, 4 beside other load, and what it takes to begin.
    assert_true((double)(clock() - from) / CLOCKS_PER_SEC < 20);
    assert_true(m.host && m.ranks == 3 && m.threads == 1 && m.cores > 0);
    assert_true(m.flops > 1e8 && m.flops < 1e14 && m.memory > 1e7 && m.copy > 1e7 && m.sum > 1e7);
    assert_true(m.update > 1e7 && m.op_seconds < 1e-3 && m.latency > 1e-8 && m.latency < 1);
    assert_true(m.wire == ZX_MACHINE_NO_WIRE);
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++)
        if (!(m.rates[k] > 1e4 && m.rates[k] < 1e14))
            fail_msg("%s: %g a second", zx_kinds[k].word, m.rates[k]);
    const zx_rates_16 *const low[] = {&m.bf16, &m.fp16};
    for (size_t t = 0; t < ZX_COUNT(low); t++) {
        const zx_rates_16 *r = low[t];
        assert_true(r->flops > 1e8 && r->flops < 1e14 && r->flops_nt > 1e8 && r->flops_tn > 1e8);
        assert_true(r->memory > 1e7 && r->near > 1e6 && r->sum > 1e7 && r->update > 1e7);
        for (uint32_t k = 0; k < ZX_KIND_COUNT; k++)
            if (!(r->rates[k] > 1e4 && r->rates[k] < 1e14))
                fail_msg("%s in 16 bits: %g a second", zx_kinds[k].word, r->rates[k]);
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 2] = {cmocka_unit_test(measured_once),
                                                   cmocka_unit_test(figures_make_sense)};
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i + 2] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}

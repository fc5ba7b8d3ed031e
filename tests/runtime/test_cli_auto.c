// test_cli_auto.c - zerox plan --auto from outside: its rows against plans that are made one by
// one, and what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/runtime/cli_json.h"

#define AUTO "plan", "m.onnx", "--auto", "--ranks", "2", "--config", "six.json"
#define MACHINE "--machine", "h100x2"

static int setup(void **state)
{
    const char *const make[][CLI_ARGS] = {
        {"new", "mlp", "-o", "m.onnx"},
        {"new", "mlp", "--set", "batch=3", "-o", "fixed.onnx"},
        {"new", "llama", "--preset", "tiny", "--set", "sequence=16", "--set",
         test_few() ? "layers=1" : "layers=2", "-o", "tokens.onnx"},
    };
    cli_result r;
    if (cli_setup(state) != 0) return 1;
    cli_write("six.json", "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 3, "
                          "\"zero_optimization\": {\"stage\": 2}}");
    for (size_t i = 0; i < ZX_COUNT(make); i++) {
        cli_run(make[i], &r);
        if (r.code != 0) return 1;
    }
    return 0;
}

static const cli_row rows[] = {
    {"a table", {AUTO, MACHINE}, 0, "12 samples a step, budget 67.1 GiB a rank", NULL},
    {"what the config says is marked", {AUTO, MACHINE}, 0, "  as the config says\n", NULL},
    {"keys to write", {AUTO, MACHINE}, 0, "in the config: {\"train_batch_size\": 12, ", NULL},
    {"a fixed batch is told of by name",
     {"plan", "fixed.onnx", "--auto", "--ranks", "2", "--config", "six.json", MACHINE},
     0,
     "fixed.onnx has a fixed batch of 3: micro-batch and accumulation follow from it",
     NULL},
    {"by --dim, too",
     {AUTO, MACHINE, "--dim", "batch=3"},
     0,
     "m.onnx has a fixed batch of 3",
     NULL},
    {"too small a budget", {AUTO, MACHINE, "--budget", "100KB"}, 4, "", "a rank needs at least"},
    {"some don't fit",
     {AUTO, MACHINE, "--budget", "330KB"},
     0,
     " more without a plan; --format json says why\n",
     NULL},
    {"one policy",
     {AUTO, "--policy", "fsdp"},
     2,
     "",
     "--auto shows many plans: --policy is of one"},
    {"a table where a plan was meant",
     {AUTO, MACHINE, "-o", "t"},
     2,
     "",
     "--auto shows many plans: -o without --format"},
    {"one format", {AUTO, "--format", "trace"}, 2, "", "--format of plan --auto is text or json"},
    {"a machine that there isn't",
     {"plan", "m.onnx", "--auto", "--machine", "h10"},
     2,
     "",
     "there is no machine 'h10'"},
    {"a file that there isn't", {"plan", "gone.onnx", "--auto"}, 1, "", "gone.onnx"},
};

// ---- against single plans -----------------------------------------------------------------------

static int64_t int_of(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

// A way is what `plan` plans for the same config.
static void expect_plan(const json_t *row)
{
    char config[200];
    snprintf(config, sizeof config,
             "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": %d, "
             "\"zero_optimization\": {\"stage\": %d}}",
             (int)int_of(row, "micro"), (int)int_of(row, "stage"));
    cli_write("one.json", config);
    const char *again = json_string_value(json_object_get(row, "recompute"));
    const char *const args[] = {"plan",        "tokens.onnx", "--ranks",  "2",
                                "--config",    "one.json",    "--format", "json",
                                "--recompute", again,         MACHINE,    NULL};
    json_t *plan = cli_json(args);
    assert_int_equal(int_of(plan, "micro_batches"), int_of(row, "accumulate"));
    assert_int_equal(int_of(plan, "peak_bytes"), int_of(row, "peak_bytes"));
    assert_true(json_real_value(json_object_get(plan, "step_seconds")) ==
                json_real_value(json_object_get(row, "step_seconds")));
    json_decref(plan);
}

static void test_json(void **state)
{
    (void)state;
    static const char *const args[] = {"plan",     "tokens.onnx", "--auto",   "--ranks",
                                       "2",        "--config",    "six.json", MACHINE,
                                       "--format", "json",        NULL};
    json_t *root = cli_json(args);
    const json_t *list = json_object_get(root, "rows");
    const size_t n = json_array_size(list);
    int recommended = 0;
    assert_true(n >= 4 * 2 * 4); // micro-batches of 1, 2, 3 and 6
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(list, i);
        assert_int_equal(int_of(row, "micro") * int_of(row, "accumulate") * 2, 12);
        const double step = json_real_value(json_object_get(row, "step_seconds"));
        const double rate = json_real_value(json_object_get(row, "per_second"));
        assert_true(fabs(rate * step - 12 * 16) < 1e-3); // tokens of a step
        if (json_is_true(json_object_get(row, "recommended"))) {
            recommended++;
            assert_true(json_is_true(json_object_get(row, "pareto")));
            expect_plan(row);
        }
    }
    assert_int_equal(recommended, 1);
    expect_plan(json_array_get(list, 5));
    json_decref(root);
}

static void test_same_again(void **state)
{
    (void)state;
    static const char *const args[] = {AUTO, MACHINE, NULL};
    static cli_result a, b;
    cli_run(args, &a);
    cli_run(args, &b);
    assert_string_equal(a.out, b.out);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 2];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    tests[ZX_COUNT(rows)] = (struct CMUnitTest)cmocka_unit_test(test_json);
    tests[ZX_COUNT(rows) + 1] = (struct CMUnitTest)cmocka_unit_test(test_same_again);
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}

// test_cli_plans.c - plans as files from outside: plan -o, train --plan, diff.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cli.h"

#define DATA "--data", "x=synthetic", "--data", "labels=zeros", "--steps", "2", "--no-save"
#define HOOKS "plan", "m.onnx", "--ranks", "2", "--policy", "hooks", "--format", "decisions"
#define TRAIN "train", "m.onnx", DATA, "--ranks", "2", "--plan"

static int setup(void **state)
{
    static const char *const make[][CLI_ARGS] = {
        {"new", "mlp", "-o", "m.onnx"},
        {"new", "mlp", "-o", "wide.onnx", "--set", "width=96"},
        {"plan", "m.onnx", "--ranks", "2", "--budget", "1GB", "-o", "a.plan"},
        {"plan", "m.onnx", "--ranks", "2", "--budget", "min", "-o", "least.plan"},
        {"plan", "m.onnx", "--ranks", "3", "-o", "three.plan"},
        {"plan", "m.onnx", "--ranks", "2", "--dim", "batch=4", "-o", "batch.plan"},
        {"plan", "m.onnx", "--ranks", "2", "--config", "twice.json", "-o", "twice.plan"},
        {"plan", "m.onnx", "--ranks", "2", "--config", "sgd.json", "-o", "sgd.plan"},
        {"plan", "m.onnx", "--ranks", "2", "--config", "half.json", "-o", "half.plan"},
        {"plan", "m.onnx", "--ranks", "2", "--format", "json", "-o", "a.json"},
        {"plan", "m.onnx", "--ranks", "2", "--machine", "h100x2", "-o", "gpu.plan"},
        {HOOKS, "-o", "hooks.txt"},
    };
    cli_result r;
    if (cli_setup(state) != 0) return 1;
    cli_write("twice.json", "{\"gradient_accumulation_steps\": 2}");
    cli_write("sgd.json", "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}}");
    cli_write("half.json", "{\"bf16\": {\"enabled\": true}}");
    cli_write("low.json", "{\"bf16\": {\"enabled\": true}, \"data_types\": "
                          "{\"grad_accum_dtype\": \"bf16\"}}");
    cli_write("wish.json", "{\"zero_optimization\": {\"stage\": 1}, \"zerox\": {\"recompute\": "
                           "\"none\"}}");
    cli_write("not.plan", "a plan? no");
    for (size_t i = 0; i < ZX_COUNT(make); i++) {
        cli_run(make[i], &r);
        if (r.code != 0) {
            print_error("%s %s: %s\n", make[i][0], make[i][1], r.err);
            return 1;
        }
    }
    return 0;
}

static const cli_row rows[] = {
    {"what is shown is shown all the same",
     {"plan", "m.onnx", "--ranks", "2", "--budget", "1GB", "-o", "again.plan"},
     0,
     "peak ",
     NULL},
    {"made again it is the same", {"diff", "a.plan", "again.plan"}, 0, "", ""},
    {"the least is another", {"diff", "a.plan", "least.plan"}, 1, "* gathers ", NULL},
    {"names are the model's", {"diff", "a.plan", "least.plan"}, 1, "layers.1.weight\n", NULL},
    {"the model isn't overwritten",
     {"plan", "m.onnx", "-o", "m.onnx"},
     2,
     NULL,
     "-o m.onnx is the model itself"},
    {"nor by a report",
     {"plan", "m.onnx", "--report", "m.onnx"},
     2,
     NULL,
     "--report m.onnx is the model itself"},
    {"nor by decisions", {HOOKS, "-o", "m.onnx"}, 2, "", "-o m.onnx is the model itself"},
    {"nor the config",
     {"plan", "m.onnx", "--config", "sgd.json", "-o", "sgd.json"},
     2,
     NULL,
     "-o sgd.json is the config itself"},
    {"nor the plan that is trained by",
     {TRAIN, "a.plan", "--profile", "a.plan"},
     2,
     NULL,
     "--profile a.plan is the plan itself"},
    {"JSON is what --format asked for", {"diff", "a.plan", "a.json"}, 2, "", "a.json: not a plan"},
    {"a file that isn't there", {"diff", "a.plan", "b.plan"}, 2, "", "cannot open b.plan"},
    {"one plan alone", {"diff", "a.plan"}, 2, "", "diff needs PLAN PLAN"},
    {"three plans",
     {"diff", "a.plan", "a.plan", "c.plan"},
     2,
     "",
     "diff takes two: 'c.plan' is one too many"},
    {"trained by a plan", {TRAIN, "a.plan"}, 0, NULL, "done: 2 steps"},
    {"trained by the least", {TRAIN, "least.plan"}, 0, NULL, "as planned"},
    {"gradients added up in other bits",
     {TRAIN, "half.plan", "--config", "low.json"},
     2,
     NULL,
     "half.plan: made for gradients added up in 32 bits, this run adds in 16"},
    {"another stage than the config's",
     {TRAIN, "a.plan", "--config", "wish.json"},
     0,
     NULL,
     "note: the plan of --plan is of ZeRO stage 3, the config says 1\n"},
    {"what else the config wishes",
     {TRAIN, "a.plan", "--config", "wish.json"},
     0,
     NULL,
     "note: zerox.recompute: the plan of --plan is taken as it is"},
    {"other ranks", {TRAIN, "three.plan"}, 2, NULL, "three.plan: made for 3 ranks, this run has 2"},
    {"another batch",
     {TRAIN, "batch.plan"},
     2,
     NULL,
     "batch.plan: made for another train graph: batch, accumulation, recomputation or model "
     "changed"},
    {"another accumulation",
     {TRAIN, "twice.plan"},
     2,
     NULL,
     "twice.plan: made for 2 micro-batches a rank and step, this run accumulates 1"},
    {"another optimizer",
     {TRAIN, "sgd.plan"},
     2,
     NULL,
     "sgd.plan: made for an optimizer with 0 states a parameter, this run's has 2"},
    {"another model",
     {"train", "wide.onnx", DATA, "--ranks", "2", "--plan", "a.plan"},
     2,
     NULL,
     "a.plan: made for another train graph"},
    {"another stage",
     {TRAIN, "a.plan", "--stage", "1"},
     2,
     NULL,
     "a.plan: made for ZeRO stage 3, --stage says 1"},
    {"more than the budget",
     {TRAIN, "a.plan", "--budget", "100KB"},
     4,
     NULL,
     " a rank, the budget is 97.7 KiB"},
    {"another machine's scratch",
     {TRAIN, "gpu.plan"},
     2,
     NULL,
     "gpu.plan: made for other compute threads or another machine: it has 0 B of scratch for node"},
    {"what is for planning",
     {TRAIN, "a.plan", "--pin", "*"},
     2,
     NULL,
     "--pin is for planning, --plan gives a plan"},
    {"no plan", {TRAIN, "not.plan"}, 3, NULL, "not.plan: not a plan"},
    {"no such file", {TRAIN, "b.plan"}, 1, NULL, "cannot open b.plan"},
};

static void test_row(void **state)
{
    const cli_row *k = *state;
    static cli_result r;
    cli_run(k->args, &r);
    cli_expect(&r, k->code, k->out, k->err);
    if (k->out != NULL && k->out[0] == '\0') assert_string_equal(r.out, "");
}

// Decisions go where -o says.
static void test_decisions(void **state)
{
    static const char *const shown[] = {HOOKS, NULL};
    static cli_result r;
    static char text[60000];
    (void)state;
    cli_run(shown, &r);
    cli_expect(&r, 0, "== MICRO 2", NULL);
    cli_read("hooks.txt", text, sizeof text);
    assert_string_equal(text, r.out);
}

// What the same command makes again is replaced; what it measured isn't.
#define TWO "plan", "m.onnx", "--ranks", "2"
static const struct twice_row {
    const char *name, *args[CLI_ARGS];
    int again; // exit code of the same once more
} twice_rows[] = {
    {"a plan", {TWO, "-o", "w"}, 0},
    {"its text", {TWO, "--format", "text", "-o", "w"}, 0},
    {"of a single rank", {"plan", "m.onnx", "--format", "text", "-o", "w"}, 0},
    {"instructions", {TWO, "--format", "text", "--instructions", "-o", "w"}, 0},
    {"states", {TWO, "--format", "states", "-o", "w"}, 0},
    {"JSON", {TWO, "--json", "-o", "w"}, 0},
    {"a trace", {TWO, "--format", "trace", "-o", "w"}, 0},
    {"decisions", {HOOKS, "-o", "w"}, 0},
    {"all ways", {TWO, "--auto", "--format", "text", "-o", "w"}, 0},
    {"all ways as JSON", {TWO, "--auto", "--format", "json", "-o", "w"}, 0},
    {"a report", {TWO, "--report", "w"}, 0},
    {"a comparison's",
     {"compare", "m.onnx", "--ranks", "2", "--policy", "ddp", "--report", "w"},
     0},
    {"a simulation", {"simulate", "m.onnx", "--machine", "v100x4", "-o", "w"}, 0},
    {"as JSON", {"simulate", "m.onnx", "--machine", "v100x4", "--json", "-o", "w"}, 0},
    {"as a trace",
     {"simulate", "m.onnx", "--machine", "v100x4", "--format", "trace", "-o", "w"},
     0},
    {"of two policies",
     {"simulate", "m.onnx", "--machine", "v100x4", "--policy", "ddp,fsdp", "--json", "-o", "w"},
     0},
    {"a run's report", {"train", "m.onnx", DATA, "--log", "/dev/null", "--report", "w"}, 2},
    {"a run's profile", {"train", "m.onnx", DATA, "--log", "/dev/null", "--profile", "w"}, 2},
    {"gradients", {"train", "m.onnx", DATA, "--log", "/dev/null", "--dump-grads", "w"}, 2},
    {"a model", {"new", "mlp", "-o", "w"}, 2},
};

static void test_twice(void **state)
{
    const struct twice_row *k = *state;
    static cli_result r;
    unlink("w");
    cli_run(k->args, &r);
    cli_expect(&r, 0, NULL, NULL);
    assert_true(cli_exists("w"));
    cli_run(k->args, &r);
    cli_expect(&r, k->again, NULL,
               k->again == 0 ? NULL : "w exists already\ntry: another name, or --force");
    // Somebody's own notes aren't, unless that is asked for; an empty file holds nothing.
    const char *args[CLI_ARGS] = {NULL};
    size_t n = 0;
    for (; k->args[n] != NULL; n++) args[n] = k->args[n];
    cli_write("w", "first: buy milk\n");
    cli_run(args, &r);
    cli_expect(&r, 2, NULL, "w exists already");
    args[n] = "--force";
    cli_run(args, &r);
    cli_expect(&r, 0, NULL, NULL);
    args[n] = NULL;
    cli_write("w", "");
    cli_run(args, &r);
    cli_expect(&r, 0, NULL, NULL);
    if (cli_exists("runs")) assert_int_equal(system("rm -rf runs"), 0);
}

// The same losses as without the file.
static void test_same(void **state)
{
    static const char *const with[] = {TRAIN, "a.plan", "--log", "with.jsonl", NULL},
                             *const without[] = {"train", "m.onnx",        DATA, "--ranks", "2",
                                                 "--log", "without.jsonl", NULL};
    static cli_result r;
    static char a[60000], b[60000];
    (void)state;
    cli_run(with, &r);
    cli_expect(&r, 0, NULL, NULL);
    cli_run(without, &r);
    cli_expect(&r, 0, NULL, NULL);
    cli_read("with.jsonl", a, sizeof a);
    cli_read("without.jsonl", b, sizeof b);
    const char *x = a, *y = b;
    for (int k = 0; k < 2; k++) {
        x = strstr(x + 1, "\"loss\"");
        y = strstr(y + 1, "\"loss\"");
        assert_true(x != NULL && y != NULL);
        assert_memory_equal(x, y, strcspn(x, ","));
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(twice_rows) + 2];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    size_t n = ZX_COUNT(rows);
    for (size_t i = 0; i < ZX_COUNT(twice_rows); i++)
        tests[n++] = zx_case(twice_rows[i].name, test_twice, &twice_rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_same);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_decisions);
    return cmocka_run_group_tests(tests, setup, cli_teardown);
}

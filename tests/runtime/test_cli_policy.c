// test_cli_policy.c - zerox plan --policy, --recompute and mixed precision from outside: what is
// shown, what is refused, and bytes against those counted by hand.
// SPDX-License-Identifier: Apache-2.0
#include "proto/json.h"
#include "tests/runtime/cli.h"

#define MLP ZX_TEST_DATA "/cases/mlp/model.onnx"
#define BYTEGPT ZX_SOURCE "/models/bytegpt/model.onnx"
#define DIGITS ZX_SOURCE "/models/digits/model.onnx"
#define PLAN "plan", BYTEGPT, "--config", "three.json", "--ranks", "2"

static const cli_row rows[] = {
    {"ddp", {PLAN, "--policy", "ddp"}, 0, "policy: ddp\n", "'ddp' is of ZeRO stage 0"},
    {"ddp once a step",
     {PLAN, "--policy", "ddp", "--form", "once-a-step"},
     0,
     "policy: ddp, once a step\n",
     NULL},
    {"by compare's words", {PLAN, "--policies", "ddp", "--json"}, 0, "\"policy\":\"ddp\"", NULL},
    {"zero1", {PLAN, "--policy", "zero1"}, 0, "policy: zero1\n", NULL},
    {"zero2", {PLAN, "--policy", "zero2"}, 0, "policy: zero2\n", NULL},
    {"hooks", {PLAN, "--policy", "hooks"}, 0, "policy: hooks, schedule only\n", "note: assumed"},
    {"hooks as DeepSpeed",
     {PLAN, "--policy", "hooks", "--form", "as-deepspeed"},
     0,
     "policy: hooks, as DeepSpeed\n",
     NULL},
    {"hooks-tuned", {PLAN, "--policy", "hooks-tuned"}, 0, "\nknobs: prefetch ", NULL},
    {"its knobs are in elements", {PLAN, "--policy", "hooks-tuned"}, 0, " (elements)\n", NULL},
    {"a default budget", {PLAN}, 0, "iB (the default; no more of it is taken than pays)\n", NULL},
    {"a policy's", {PLAN, "--policy", "fsdp"}, 0, "iB (the default)\n", NULL},
    {"a budget that is asked for", {PLAN, "--budget", "1GiB"}, 0, ", budget 1.00 GiB\n", NULL},
    {"fsdp", {PLAN, "--policy", "fsdp"}, 0, "policy: fsdp\n", NULL},
    {"fsdp-tuned", {PLAN, "--policy", "fsdp-tuned"}, 0, "\nknobs: ", NULL},
    {"deepcompile", {PLAN, "--policy", "deepcompile"}, 0, "parameters kept\n", NULL},
    {"zerox", {PLAN, "--policy", "zerox"}, 0, "\npredicted step ", NULL},
    {"instructions of a policy", {PLAN, "--policy", "fsdp", "--instructions"}, 0, "unpack", NULL},
    {"states of a policy", {PLAN, "--policy", "fsdp", "--format", "states"}, 0, "ln_f", NULL},
    {"a trace of a policy",
     {"plan", MLP, "--ranks", "2", "--policy", "zero2", "--format", "trace"},
     0,
     "SIMULATED",
     NULL},
    {"over the budget",
     {PLAN, "--policy", "ddp", "--budget", "10MB"},
     0,
     "this policy takes no notice of the budget of 9.54 MiB\n",
     NULL},
    {"another machine",
     {"plan", BYTEGPT, "--machine", "h100x8", "--policy", "fsdp"},
     0,
     "policy: fsdp\n",
     "the budget is 0.9 of the memory of h100x8: 67.1 GiB a rank"},
    {"a machine of other ranks",
     {PLAN, "--machine", "h100x8"},
     2,
     NULL,
     "machine h100x8 is one of 8 ranks, not 2"},
    {"no modules",
     {"plan", "bare.onnx", "--policy", "hooks"},
     3,
     NULL,
     "needs the modules that the hooks sit on"},
    {"a form of another", {PLAN, "--policy", "fsdp", "--form", "as-deepspeed"}, 2, NULL, "no such"},
    {"no form", {PLAN, "--policy", "hooks", "--form", "best"}, 2, NULL, "--form is schedule-only"},
    {"a form of none", {PLAN, "--form", "as-deepspeed"}, 2, NULL, "--form needs --policy"},
    {"a list", {PLAN, "--policy", "hooks,fsdp"}, 2, NULL, "a plan is of one policy"},
    {"another order", {PLAN, "--policy", "fsdp", "--no-overlap"}, 2, NULL, "has its own order"},
    {"another stage", {PLAN, "--policy", "fsdp", "--stage", "2"}, 2, NULL, "'fsdp' is of stage 3"},
    {"recomputed", {PLAN, "--recompute", "full"}, 0, "MiB, recomputed by layer\n", NULL},
    {"nothing recomputed", {PLAN, "--recompute", "none"}, 0, "predicted step", NULL},
    {"recomputed by half",
     {PLAN, "--recompute", "half"},
     2,
     NULL,
     "--recompute is none, full or auto"},
    {"no layers",
     {"plan", "bare.onnx", "--recompute", "full"},
     0,
     "predicted step",
     "nothing that is kept for backward can be made again"},
    {"layers of one operator",
     {"plan", DIGITS, "--recompute", "full"},
     0,
     "MiB, recomputed by segment\n",
     NULL},
    {"recomputed as the budget asks",
     {PLAN, "--recompute", "auto"},
     0,
     "predicted step",
     "note: --recompute auto: nothing is recomputed"},
    {"auto is zerox's",
     {PLAN, "--recompute", "auto", "--policy", "fsdp"},
     0,
     "policy: fsdp\n",
     "'fsdp' is shown with none"},
    {"a config's",
     {"plan", BYTEGPT, "--config", "again.json", "--ranks", "2"},
     0,
     "MiB, recomputed by layer\n",
     NULL},
    {"a config's, but for this time",
     {"plan", BYTEGPT, "--config", "again.json", "--ranks", "2", "--recompute", "half"},
     2,
     NULL,
     "--recompute is none, full or auto"},
    {"precision is shown",
     {"plan", BYTEGPT, "--config", "sums.json", "--policy", "hooks"},
     0,
     "precision bf16 with fp32 copies of the parameters, gradients added up in bf16; activations",
     NULL},
    {"comparing fp16 by running it, with a scale that moves",
     {"compare", BYTEGPT, "--config", "fp16.json", "--execute"},
     2,
     NULL,
     "--execute compares fp16 with a loss scale that stays: fp16.loss_scale"},
};

// ---- bytes --------------------------------------------------------------------------------------

// The MLP's six parameters have 8192, 128, 8192, 64, 640 and 10 elements. Of three ranks each has
// 2731 + 43 + 2731 + 22 + 214 + 4 = 5745, and whole ones have room for 17235.
#define SHARDS 5745
#define WHOLE (3 * SHARDS)
static const struct bytes_row {
    const char *name, *config, *stage;
    json_int_t param, grad, master, state;
} bytes_rows[] = {
    {"float32", "three.json", "3", 4 * SHARDS, 4 * SHARDS, 0, 8 * SHARDS},
    {"bf16", "bf16.json", "3", 2 * SHARDS, 4 * SHARDS, 4 * SHARDS, 8 * SHARDS},
    {"fp16", "fp16.json", "3", 2 * SHARDS, 4 * SHARDS, 4 * SHARDS, 8 * SHARDS},
    {"sums in bf16", "sums.json", "3", 2 * SHARDS, 2 * SHARDS, 4 * SHARDS, 8 * SHARDS},
    {"stage 2", "bf16.json", "2", 2 * WHOLE, 4 * SHARDS, 4 * SHARDS, 8 * SHARDS},
    {"stage 1", "bf16.json", "1", 2 * WHOLE, 4 * WHOLE, 4 * SHARDS, 8 * SHARDS},
    {"stage 0", "bf16.json", "0", 2 * WHOLE, 4 * WHOLE, 4 * WHOLE, 8 * WHOLE},
};

static json_int_t sum_of(json_t *slots, const char *kind)
{
    json_int_t sum = 0;
    for (size_t i = 0; i < json_array_size(slots); i++) {
        const json_t *s = json_array_get(slots, i);
        if (strcmp(json_string_value(json_object_get(s, "kind")), kind) == 0)
            sum += json_integer_value(json_object_get(s, "bytes"));
    }
    return sum;
}

static void test_bytes(void **state)
{
    const struct bytes_row *row = *state;
    const char *const args[] = {"plan", MLP,       "--config", row->config, "--ranks",
                                "3",    "--stage", row->stage, "--format",  "json",
                                "-o",   "p.json",  NULL};
    cli_result r;
    zx_err err = {0};
    json_t *root = NULL;
    cli_run(args, &r);
    cli_expect(&r, 0, NULL, NULL);
    assert_int_equal(zx_json_read("p.json", &root, &err), ZX_OK);
    json_t *slots = json_object_get(root, "slots");
    assert_int_equal(sum_of(slots, "param"), row->param);
    assert_int_equal(sum_of(slots, "grad"), row->grad);
    assert_int_equal(sum_of(slots, "master"), row->master);
    assert_int_equal(sum_of(slots, "state"), row->state);
    json_decref(root);
}

static json_int_t peak_of(const char *path)
{
    zx_err err = {0};
    json_t *root = NULL;
    assert_int_equal(zx_json_read(path, &root, &err), ZX_OK);
    const json_int_t peak = json_integer_value(json_object_get(root, "peak_bytes"));
    json_decref(root);
    return peak;
}

// What is recomputed needn't be kept.
static void recomputation_saves(void **state)
{
    (void)state;
    cli_result r;
    const char *const kept[] = {PLAN,   "--budget", "min",       "--format",
                                "json", "-o",       "kept.json", NULL};
    const char *const again[] = {PLAN,       "--budget", "min", "--recompute", "full",
                                 "--format", "json",     "-o",  "full.json",   NULL};
    cli_run(kept, &r);
    cli_expect(&r, 0, NULL, NULL);
    cli_run(again, &r);
    cli_expect(&r, 0, NULL, NULL);
    assert_true(peak_of("full.json") < peak_of("kept.json") / 4 * 3);
}

#define THREE "\"zero_optimization\": {\"stage\": 3}"
static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    cli_write("three.json", "{" THREE "}");
    cli_write("again.json", "{" THREE ", \"zerox\": {\"recompute\": \"full\"}}");
    cli_write("bf16.json", "{" THREE ", \"bf16\": {\"enabled\": true}}");
    cli_write("fp16.json", "{" THREE ", \"fp16\": {\"enabled\": true}}");
    cli_write("sums.json", "{" THREE ", \"bf16\": {\"enabled\": true}, "
                           "\"data_types\": {\"grad_accum_dtype\": \"bf16\"}}");
    // The same model from an exporter that doesn't name modules.
    return system("sed s/pkg.torch/pkg.other/g " MLP " >bare.onnx") == 0 ? 0 : 1;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(bytes_rows) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(bytes_rows); i++)
        tests[n++] = zx_case(bytes_rows[i].name, test_bytes, &bytes_rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(recomputation_saves);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}

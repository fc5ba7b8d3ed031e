// test_cli_simulate.c - zerox simulate from outside: its figures against each other, its forms, and
// what it refuses.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/runtime/cli_json.h"

#define MLP ZX_TEST_DATA "/cases/mlp/model.onnx"
#define GPT2 ZX_TEST_DATA "/cases/gpt2/model.onnx"
#define BYTEGPT ZX_SOURCE "/models/bytegpt/model.onnx"
#define LLAMA "simulate", "llama3-8b", "--machine", "h100x8"

static const cli_row rows[] = {
    {"text",
     {LLAMA, "--policy", "fsdp"},
     0,
     "SIMULATED, not measured: llama3-8b on h100x8\n"
     "8 ranks, 1 micro-batch of 1 x 1024 tokens, budget 67.1 GiB a rank\n"
     "precision bf16 with fp32 copies",
     "note: the budget is 0.9 of the memory of h100x8: 67.1 GiB a rank"},
    {"what is counted",
     {LLAMA, "--policy", "fsdp", "--seq", "2048", "--batch", "2", "--accumulate", "3"},
     0,
     "TFLOP/s: 6 x 7.50G active parameters, without the embedding table, x 12.3k tokens a rank",
     NULL},
    {"a table",
     {LLAMA, "--policy", "hooks,ddp", "--recompute", "full"},
     0,
     "\n* hooks        schedule only ",
     "note: assumed"},
    {"over what a machine has",
     {"simulate", "llama3-70b", "--machine", "h100x32", "--policy", "fsdp,ddp"},
     4,
     "  OVER by ",
     NULL},
    {"nothing fits",
     {"simulate", "llama3-70b", "--machine", "h100x32", "--policy", "ddp,zero1"},
     4,
     "  OVER by ",
     "nothing fits into 67.1 GiB a rank: the least is "},
    {"compare's words", {LLAMA, "--policies", "fsdp", "--json"}, 0, "{\"simulated\":true", NULL},
    {"a trace", {LLAMA, "--policy", "fsdp", "--format", "trace", "-o", "t.json"}, 0, "", NULL},
    {"a file",
     {"simulate", MLP, "--machine", "v100x4", "--policy", "zero2", "--accumulate", "2"},
     0,
     "4 ranks, 2 micro-batches of 32 (32 samples), budget 26.8 GiB a rank\nprecision fp32\n",
     NULL},
    {"a file of tokens, and this host",
     {"simulate", GPT2, "--ranks", "2", "--policy", "fsdp"},
     0,
     " tokens), budget ",
     NULL},
    {"a policy that there is no plan of",
     {"simulate", "bare.onnx", "--machine", "h100x8", "--policy", "hooks,fsdp"},
     0,
     "no plan: hooks, schedule only: ",
     NULL},
    {"the same alone",
     {"simulate", "bare.onnx", "--machine", "h100x8", "--policy", "hooks"},
     3,
     NULL,
     "needs the modules that the hooks sit on"},
    {"the config's micro-batch is a preset's batch",
     {LLAMA, "--config", "two.json", "--policy", "fsdp"},
     0,
     "1 micro-batch of 2 x 1024 tokens",
     NULL},
    {"a batch that follows from the config's",
     {LLAMA, "--config", "four.json", "--policy", "fsdp"},
     2,
     NULL,
     "try: --batch 2\n"},
    {"a column for compute",
     {LLAMA, "--policy", "fsdp,hooks"},
     0,
     "      step    compute  TFLOP/s  exposed ",
     NULL},
    {"what is held alone is too much",
     {"simulate", "llama3-8b", "--machine", "h100x1"},
     4,
     NULL,
     "try: --machine h100x2 (needs "},
    {"no such model on no machine", {"simulate", "llama3-7b"}, 2, NULL, "did you mean llama3-8b?"},
    {"a usage error names its command",
     {LLAMA, "--format", "states"},
     2,
     NULL,
     "try: zerox simulate --help\n"},
    {"no such model",
     {"simulate", "llama3-7b", "--machine", "h100x8"},
     2,
     NULL,
     "there is no preset 'llama3-7b'\ntry: did you mean llama3-8b?"},
    {"no such file", {"simulate", "gone.onnx", "--machine", "h100x8"}, 1, NULL, "gone.onnx"},
    {"no machine",
     {"simulate", "llama3-8b"},
     2,
     NULL,
     "on which --machine?\ntry: --machine h100x32"},
    {"no such machine",
     {"simulate", "llama3-8b", "--machine", "h10x8"},
     2,
     NULL,
     "there is no machine 'h10x8'; the nearest is 'h100'"},
    {"half a node", {"simulate", "llama3-8b", "--machine", "h100x12"}, 2, NULL, "whole nodes"},
    {"other ranks", {LLAMA, "--ranks", "4"}, 2, NULL, "machine h100x8 is one of 8 ranks, not 4"},
    {"no such policy", {LLAMA, "--policy", "fsd"}, 2, NULL, "the nearest is 'fsdp'"},
    {"one of a list", {LLAMA, "--policy", "fsdp,"}, 2, NULL, "unknown policy ''"},
    {"no such form",
     {LLAMA, "--policy", "fsdp", "--form", "as-deepspeed"},
     2,
     NULL,
     "no such form"},
    {"a sequence of a file",
     {"simulate", MLP, "--machine", "h100x8", "--seq", "3"},
     2,
     NULL,
     "--seq is of a preset"},
    {"a sequence too long", {LLAMA, "--seq", "200000"}, 2, NULL, "1 to 131072 tokens"},
    {"no such format", {LLAMA, "--format", "states"}, 2, NULL, "is text, json or trace"},
    {"a trace of two", {LLAMA, "--policy", "fsdp,ddp", "--format", "trace"}, 2, NULL, "one policy"},
    {"auto is a row more",
     {"simulate", BYTEGPT, "--machine", "v100x4", "--policy", "zerox,zero2", "--recompute", "auto"},
     0,
     "\n  zerox        recompute auto ",
     NULL},
    {"auto alone",
     {"simulate", BYTEGPT, "--machine", "v100x4", "--recompute", "auto", "--budget", "min"},
     0,
     ", 2 of 3 layers recomputed\npolicy: zerox\n",
     NULL},
    {"no such recomputation", {LLAMA, "--recompute", "some"}, 2, NULL, "none, full or auto"},
    {"another batch than the file's",
     {"simulate", MLP, "--machine", "h100x8", "--batch", "3"},
     2,
     NULL,
     "fixed batch of 32"},
    {"no operand", {"simulate", "--machine", "h100x8"}, 2, NULL, "simulate needs a PRESET"},
};

static void expect_word(const json_t *o, const char *key, const char *want)
{
    const char *word = json_string_value(json_object_get(o, key));
    if (word == NULL || strcmp(word, want) != 0) fail_msg("%s is %s", key, word);
}

// Llama-3-8B has 8,030,261,248 parameters, of which the embedding table has 128,256 x 4,096.
static void figures_agree(void **state)
{
    (void)state;
    const char *const args[] = {LLAMA,  "--policy", "deepcompile", "--accumulate",
                                "2",    "--seq",    "2048",        "--recompute",
                                "full", "--format", "json",        NULL};
    json_t *o = cli_json(args);
    const double active = 8030261248.0 - 128256.0 * 4096, tokens = 2 * 2048,
                 step = cli_number(o, "step_seconds");
    assert_true(json_is_true(json_object_get(o, "simulated")));
    expect_word(o, "model", "llama3-8b");
    expect_word(o, "machine", "h100x8");
    expect_word(o, "policy", "deepcompile");
    expect_word(o, "form", "");
    expect_word(o, "precision", "bf16");
    expect_word(o, "recompute", "full");
    assert_true(cli_number(o, "ranks") == 8 && cli_number(o, "sequence") == 2048);
    assert_true(cli_number(o, "active_params") == active && cli_number(o, "tokens") == tokens);
    const double tflops = 6 * active * tokens / step / 1e12;
    assert_true(fabs(cli_number(o, "tflops_per_gpu") - tflops) < 1e-4 * tflops);
    assert_true(fabs(cli_number(o, "mfu") - tflops / 989) < 1e-4);
    assert_true(cli_number(o, "compute_seconds") + cli_number(o, "exposed_seconds") <=
                step * 1.0001);
    assert_true(cli_number(o, "compute_seconds") > step / 10);
    assert_true(cli_number(o, "budget_bytes") == 72e9 && cli_number(o, "over_bytes") == 0);
    // Parameters, gradients, copies and two moments of an eighth of the model, and more.
    const double held = cli_number(o, "held_bytes"), alive = cli_number(o, "activation_bytes");
    assert_true(held >= 18.0 * 8030261248 / 8 && held < 18.1 * 8030261248 / 8);
    assert_true(alive > 32.0 * 2048 * 4096 * 2); // at least the inputs of 32 layers
    assert_true(cli_number(o, "peak_bytes") >= held + alive);
    assert_true(cli_number(o, "wire_bytes") > 0 && cli_number(o, "collectives") > 0);
    json_decref(o);
}

static void tables_are_lists(void **state)
{
    (void)state;
    const char *const args[] = {LLAMA,          "--policy", "hooks,fsdp", "--form",
                                "as-deepspeed", "--format", "json",       NULL};
    json_t *list = cli_json(args);
    assert_int_equal(json_array_size(list), 2);
    expect_word(json_array_get(list, 0), "policy", "hooks");
    expect_word(json_array_get(list, 0), "form", "as DeepSpeed");
    expect_word(json_array_get(list, 1), "policy", "fsdp");
    const bool first = json_is_true(json_object_get(json_array_get(list, 0), "fastest"));
    const bool faster = cli_number(json_array_get(list, 0), "step_seconds") <
                        cli_number(json_array_get(list, 1), "step_seconds");
    assert_true(first == faster);
    assert_true(json_is_true(json_object_get(json_array_get(list, 1), "fastest")) != first);
    json_decref(list);
}

// A budget is the machine's, not this host's.
static void budgets_are_the_machines(void **state)
{
    (void)state;
    const char *const args[] = {LLAMA, "--policy", "fsdp", "--budget",
                                "50%", "--format", "json", NULL};
    json_t *o = cli_json(args);
    assert_true(cli_number(o, "budget_bytes") == 40e9);
    json_decref(o);
}

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    cli_write("two.json", "{\"train_micro_batch_size_per_gpu\": 2}");
    cli_write("four.json", "{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 2}");
    return system("sed s/pkg.torch/pkg.other/g " MLP " >bare.onnx") == 0 ? 0 : 1;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 3];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(figures_agree);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(tables_are_lists);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(budgets_are_the_machines);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}

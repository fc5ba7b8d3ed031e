// test_cli_config.c - zerox config from outside: what it says of a file, for how many ranks and
// which model, and how it ends.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cli.h"

#define MLP ZX_TEST_DATA "/cases/mlp/model.onnx"
#define EXPLAIN "config", "--explain"

static const cli_row rows[] = {
    {"values and where they come from",
     {EXPLAIN, "good.json", "--ranks", "2", "--seed", "7"},
     0,
     "good.json, 2 ranks\nvalues:\n",
     ""},
    {"of the command line",
     {EXPLAIN, "good.json", "--ranks", "2", "--seed", "7"},
     0,
     "command line\n",
     NULL},
    {"what only a run tells",
     {EXPLAIN, "auto.json"},
     0,
     "scheduler.params.warmup_num_steps                            -  ",
     NULL},
    {"what only a model tells",
     {EXPLAIN, "auto.json"},
     0,
     "as it is anyway:\n  zero_optimization.stage3_prefetch_bucket_size  -  ",
     NULL},
    {"and for programs",
     {EXPLAIN, "auto.json", "--format", "json"},
     0,
     "\"scheduler.params.warmup_num_steps\": {\"value\": null, \"from\": \"auto\"",
     NULL},
    {"no effect", {EXPLAIN, "good.json"}, 0, "no effect:\n  wandb.enabled  true", NULL},
    {"16 bits of float32",
     {"plan", MLP, "--config", "gather.json"},
     0,
     NULL,
     "stage3_gather_16bit_weights_on_model_save has no effect: the parameters are float32"},
    {"a normalisation that there isn't",
     {"plan", MLP, "--config", "norm.json"},
     0,
     NULL,
     "zerox.batch_norm has no effect: the model has no BatchNormalization"},
    {"an evaluation that isn't planned",
     {"plan", MLP, "--config", "eval.json", "--machine", "h100"},
     0,
     NULL,
     "zerox.eval has no effect: evaluation is planned by zerox's own planner"},
    {"beside another key, explained",
     {EXPLAIN, "gather.json"},
     0,
     "no effect:\n  zero_optimization.stage3_gather_16bit_weights_on_model_save  true  the "
     "parameters "
     "are float32",
     ""},
    {"a group of frozen parameters",
     {"plan", MLP, "--config", "frozen.json"},
     0,
     NULL,
     "zerox.param_groups[0] has no effect: all its parameters are frozen"},
    {"nothing is refused", {EXPLAIN, "good.json"}, 0, "would be refused: nothing\n", NULL},
    {"the model's batch", {EXPLAIN, "empty.json", MLP}, 0, " model", NULL},
    {"a model that contradicts",
     {EXPLAIN, "batch.json", MLP},
     2,
     "would be refused: see below",
     "train_micro_batch_size_per_gpu is 5, but the model has a fixed batch of"},
    {"no such model", {EXPLAIN, "empty.json", "gone.onnx"}, 1, "values:", "gone.onnx"},
    {"a dimension that there isn't",
     {EXPLAIN, "empty.json", MLP, "--dim", "q=3"},
     2,
     NULL,
     "no input has a dimension 'q'"},
    {"refused", {EXPLAIN, "bad.json"}, 2, "refused:\n", "zerox: bad.json: sparse_gradients = true"},
    {"all that is refused", {EXPLAIN, "bad.json"}, 2, NULL, "bad.json: unknown key 'stge'"},
    {"unknown keys that are allowed",
     {EXPLAIN, "odd.json", "--allow-unknown"},
     0,
     "unknown:\n  unknown key 'stge'",
     NULL},
    {"for programs",
     {EXPLAIN, "bad.json", "--format", "json"},
     2,
     "\"refused\": {\n",
     "sparse_gradients"},
    {"not JSON", {EXPLAIN, "broken.json"}, 2, "", "zerox: broken.json"},
    {"no such file", {EXPLAIN, "gone.json"}, 1, "", "gone.json"},
    {"another format",
     {EXPLAIN, "good.json", "--format", "trace"},
     2,
     "",
     "--format of config is text or json"},
    {"neither", {"config"}, 2, "", "config needs --explain FILE or --schema\n"},
    {"both", {EXPLAIN, "good.json", "--schema"}, 2, "", "one of them\n"},
    {"the schema", {"config", "--schema"}, 0, "\"x-zerox\": \"honoured\"", ""},
    {"help", {"config", "--help"}, 0, "--explain FILE", NULL},
};

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    cli_write("good.json", "{\"train_batch_size\": 8, \"wandb\": {\"enabled\": true}}");
    cli_write("empty.json", "{}");
    cli_write("auto.json", "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": \"auto\"}, "
                           "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                           "{\"warmup_num_steps\": \"auto\"}}}");
    cli_write("frozen.json", "{\"zerox\": {\"freeze\": \"*.bias\", \"param_groups\": "
                             "[{\"params\": \"*.bias\", \"lr\": 1}]}}");
    cli_write("gather.json",
              "{\"zero_optimization\": {\"stage3_gather_16bit_weights_on_model_save\": true}}");
    cli_write("eval.json", "{\"zerox\": {\"eval\": {\"data\": {\"x\": \"zeros\"}}}}");
    cli_write("norm.json", "{\"zerox\": {\"batch_norm\": \"as_exported\"}}");
    cli_write("batch.json", "{\"train_micro_batch_size_per_gpu\": 5}");
    cli_write("bad.json", "{\"sparse_gradients\": true, \"stge\": 3}");
    cli_write("odd.json", "{\"stge\": 3}");
    cli_write("broken.json", "{\"a\": ");
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}

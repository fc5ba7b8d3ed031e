// test_config.c - configs that can't be followed, as the program meets them: hostile files, keys
// that contradict each other, the model or the number of ranks.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"

#define M "train $IN/m.onnx "
#define C M "--config $IN/"
#define ADAM(params) "{\"optimizer\": {\"type\": \"Adam\", \"params\": {" params "}}}"
#define SGD(params) "{\"optimizer\": {\"type\": \"SGD\", \"params\": {" params "}}}"
#define OURS(keys) "{\"zerox\": {" keys "}}"
#define DONE "--steps 1 --log /dev/null --save s --force"

static const bad_row rows[] = {
    // ---- files
    {"no such file", 1, C "gone.json", NULL, {"gone.json"}, 0},
    {"a folder", 1, C "sub.json", NULL, {"sub.json"}, 0},
    {"a device without end", 1, M "--config /dev/zero", NULL, {"/dev/zero"}, 0},
    {"a pipe", 1, C "pipe.json", NULL, {"pipe.json"}, 0},
    {"nothing", 2, C "empty.json", NULL, {"empty.json"}, 0},
    {"half a file", 2, M, "{\"optimizer\": {\"type\": \"Ad", {"config.json:1:"}, 0},
    {"a list", 2, M, "[{}]", {"config.json", "object"}, 0},
    {"text behind the end", 2, M, "{} {}", {"config.json:1:"}, 0},
    {"a comment without end", 2, M, "{} /* ", {"config.json"}, 0},
    {"a key twice", 2, M, "{\"train_batch_size\": 2, \"train_batch_size\": 2}", {"duplicate"}, 0},
    {"keys without quotes", 2, M, "{train_batch_size: 2}", {"config.json:1:"}, 0},
    {"NaN", 2, M, "{\"gradient_clipping\": NaN}", {"config.json:1:"}, 0},
    {"a number without end", 2, M, "{\"gradient_clipping\": 1e999}", {"config.json:1:"}, 0},
    {"an integer of 2^64",
     2,
     M,
     "{\"train_batch_size\": 18446744073709551616}",
     {"config.json:1:"},
     0},
    {"bytes that aren't UTF-8", 2, M, "{\"\xff\xfe\": 1}", {"config.json:1:"}, 0},
    {"half a surrogate pair", 2, M, "{\"\\ud800\": 1}", {"config.json:1:"}, 0},
    {"a NUL in a key", 2, M, "{\"a\\u0000b\": 1}", {"config.json"}, 0},
    {"a key that forges a line",
     2,
     M,
     "{\"a\\nzerox: b\\u001b[2J\": 1}",
     {"a\\x0azerox: b\\x1b[2J"},
     0},
    {"100,000 lists in each other", 2, C "deep.json", NULL, {"deep.json"}, 0},
    {"100,000 objects in each other", 2, C "deeper.json", NULL, {"deeper.json"}, 0},
    {"30 unknown keys", 2, C "many.json", NULL, {"'unknown0'", "zerox: and 10 more\n"}, 0},
    {"a key of a megabyte", 2, C "long.json", NULL, {"unknown key 'kkkk"}, 0},
    // ---- keys
    {"a misspelt key", 2, M, "{\"gradient_clipp1ng\": 1}", {"'gradient_clipping'"}, 0},
    {"a key one level up",
     2,
     M,
     "{\"stage\": 3}",
     {"unknown key 'stage'", "zero_optimization.stage"},
     0},
    {"a text for a number", 2, M, "{\"train_batch_size\": \"two\"}", {"train_batch_size"}, 0},
    {"an object for a number", 2, M, "{\"train_batch_size\": {}}", {"train_batch_size"}, 0},
    {"a number for an object", 2, M, "{\"zero_optimization\": 3}", {"zero_optimization"}, 0},
    {"stage 3.5", 2, M, "{\"zero_optimization\": {\"stage\": 3.5}}", {"stage"}, 0},
    {"stage -1", 2, M, "{\"zero_optimization\": {\"stage\": -1}}", {"stage"}, 0},
    {"two kinds of 16 bits",
     2,
     M,
     "{\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}",
     {"bf16.enabled and fp16.enabled are both true"},
     0},
    {"16 bits for the optimizer",
     2,
     M,
     "{\"bf16\": {\"enabled\": true, \"bf16_optimizer_states\": true}}",
     {"bf16.bf16_optimizer_states"},
     0},
    {"a loss scale below 0",
     2,
     M,
     "{\"fp16\": {\"enabled\": true, \"loss_scale\": -1}}",
     {"fp16.loss_scale must be 0 or more"},
     0},
    {"a window of no steps",
     2,
     M,
     "{\"fp16\": {\"enabled\": true, \"loss_scale_window\": 0}}",
     {"fp16.loss_scale_window must be"},
     0},
    {"what to do with NaN", 2, M, "{\"zerox\": {\"on_nan\": \"ignore\"}}", {"zerox.on_nan"}, 0},
    {"offload",
     2,
     M,
     "{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\"}}}",
     {"offload_optimizer.device"},
     0},
    {"activation checkpointing",
     2,
     M,
     "{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}",
     {"activation_checkpointing"},
     0},
    {"tensor parallelism, both spellings",
     2,
     M,
     "{\"tensor_parallel\": {\"autotp_size\": 2, \"tp\": {\"tp_size\": 2}}}",
     {"autotp_size", "tp_size"},
     0},
    {"all that is refused at once",
     2,
     M,
     "{\"prescale_gradients\": true, \"sequence_parallel_size\": 2, \"tpyo\": 1, "
     "\"zero_optimization\": {\"stage\": 7}}",
     {"prescale_gradients", "sequence_parallel_size", "tpyo", "stage"},
     0},
    // ---- batches
    {"three numbers that contradict each other",
     2,
     M "--ranks 3",
     "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, "
     "\"gradient_accumulation_steps\": 4}",
     {"12", "2", "4", "3"},
     0},
    {"a batch that ranks can't share",
     2,
     M "--ranks 3",
     "{\"train_batch_size\": 32}",
     {"32", "3"},
     0},
    {"a batch of 0", 2, M, "{\"train_batch_size\": 0}", {"train_batch_size"}, 0},
    {"a micro-batch of 0",
     2,
     M,
     "{\"train_micro_batch_size_per_gpu\": 0}",
     {"train_micro_batch_size_per_gpu"},
     0},
    {"0 micro-batches",
     2,
     M,
     "{\"gradient_accumulation_steps\": 0}",
     {"gradient_accumulation_steps"},
     0},
    {"2^62 micro-batches",
     2,
     M,
     "{\"gradient_accumulation_steps\": 4611686018427387904}",
     {"gradient_accumulation_steps"},
     0},
    {"another micro-batch than the model's",
     2,
     M,
     "{\"train_micro_batch_size_per_gpu\": 5}",
     {"5", "2"},
     0},
    // ---- optimizer
    {"an optimizer that there isn't",
     2,
     M,
     "{\"optimizer\": {\"type\": \"Adamax\"}}",
     {"Adamax"},
     0},
    {"a rate of -1", 2, M, ADAM("\"lr\": -1"), {"lr"}, 0},
    {"a rate that is text", 2, M, ADAM("\"lr\": \"fast\""), {"lr"}, 0},
    {"three betas", 2, M, ADAM("\"betas\": [0.9, 0.99, 0.999]"), {"betas"}, 0},
    {"a beta of 1", 2, M, ADAM("\"betas\": [1, 0.999]"), {"betas"}, 0},
    {"an eps of -1", 2, M, ADAM("\"eps\": -1"), {"eps"}, 0},
    {"amsgrad", 2, M, ADAM("\"amsgrad\": true"), {"amsgrad"}, 0},
    {"momentum for Adam", 2, M, ADAM("\"momentum\": 0.9"), {"momentum"}, 0},
    {"betas for SGD", 2, M, SGD("\"betas\": [0.9, 0.99]"), {"betas"}, 0},
    {"Nesterov without momentum", 2, M, SGD("\"nesterov\": true"), {"nesterov"}, 0},
    {"clipping to -1", 2, M, "{\"gradient_clipping\": -1}", {"gradient_clipping"}, 0},
    // ---- ours
    {"an unknown key of ours", 2, M, OURS("\"paramters\": []"), {"zerox.paramters"}, 0},
    {"data for no input", 2, M, OURS("\"data\": {\"xx\": \"ones\"}"), {"'xx'"}, 0},
    {"data that isn't text", 2, M, OURS("\"data\": {\"x\": 3}"), {"zerox.data"}, 0},
    {"a dimension that there isn't", 2, M, OURS("\"dims\": {\"seq\": 8}"), {"'seq'"}, 0},
    {"a dimension of 0", 2, M, OURS("\"dims\": {\"seq\": 0}"), {"seq"}, 0},
    {"freezing what there isn't",
     2,
     M DONE,
     OURS("\"freeze\": [\"w\", \"wx\"]"),
     {"zerox.freeze: no parameter is named 'wx'; the nearest is 'w'"},
     BAD_ONCE},
    {"freezing everything",
     2,
     M DONE,
     OURS("\"freeze\": \"*\""),
     {"zerox.freeze: all 2 parameters are frozen"},
     0},
    {"groups that are no list",
     2,
     M,
     OURS("\"param_groups\": {}"),
     {"must be a list of groups"},
     0},
    {"a group that is none",
     2,
     M,
     OURS("\"param_groups\": [3]"),
     {"zerox.param_groups[0] must be an object"},
     BAD_ONCE},
    {"a group of nobody",
     2,
     M,
     OURS("\"param_groups\": [{\"lr\": 1}]"),
     {"[0] says nothing of which parameters"},
     BAD_ONCE},
    {"a group that changes nothing",
     2,
     M,
     OURS("\"param_groups\": [{\"params\": \"w\"}]"),
     {"[0] changes nothing"},
     BAD_ONCE},
    {"a misspelt member of a group",
     2,
     M,
     OURS("\"param_groups\": [{\"params\": \"w\", \"weight_decy\": 0}]"),
     {"'zerox.param_groups[0].weight_decy'; the nearest is 'weight_decay'"},
     BAD_ONCE},
    {"a negative rate of a group",
     2,
     M,
     OURS("\"param_groups\": [{\"params\": \"w\", \"lr\": -1}]"),
     {"zerox.param_groups[0].lr must be a number, 0 or more"},
     BAD_ONCE},
    {"a group of names that there aren't",
     2,
     M DONE,
     OURS("\"param_groups\": [{\"params\": [\"w\", \"bb\"], \"lr\": 1}]"),
     {"zerox.param_groups[0].params: no parameter is named 'bb'; the nearest is 'b'"},
     BAD_ONCE},
    {"a group that comes too late",
     2,
     M DONE,
     OURS("\"param_groups\": [{\"params\": \"*\", \"lr\": 1}, {\"params\": \"w\", \"lr\": 2}]"),
     {"zerox.param_groups[1]: no parameter is left for it"},
     BAD_ONCE},
    {"recomputing layers that there aren't",
     2,
     M DONE,
     OURS("\"recompute\": [\"*.h.0\"]"),
     {"zerox.recompute: no layer is named '*.h.0'"},
     BAD_ONCE},
    {"recomputing ful", 2, M, OURS("\"recompute\": \"ful\""), {"zerox.recompute is none, full"}, 0},
    {"a schedule without its steps",
     2,
     M,
     "{\"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
     {"config.json: scheduler.params.total_num_steps is missing"},
     BAD_ONCE},
    {"a budget that is none", 2, M, OURS("\"budget\": \"lots\""), {"lots"}, 0},
    {"a budget of 1 byte", 4, M, OURS("\"budget\": \"1\""), {"a rank needs at least"}, 0},
    {"a loss that there isn't", 2, M, OURS("\"loss\": {\"kind\": \"hinge\"}"), {"hinge"}, 0},
    {"what only a loss of zerox's has",
     2,
     M,
     OURS("\"loss\": {\"label_smoothing\": 0.5}"),
     {"zerox.loss.label_smoothing needs zerox.loss.kind"},
     0},
    {"parameters that there aren't",
     2,
     M DONE,
     OURS("\"parameters\": [\"nothing*\"]"),
     {"nothing*"},
     0},
    {"buffers that there aren't", 2, M DONE, OURS("\"buffers\": [\"nothing*\"]"), {"nothing*"}, 0},
    {"all parameters are buffers",
     2,
     M DONE,
     OURS("\"buffers\": [\"*\"]"),
     {"'*' leaves no parameter to train"},
     0},
    // ---- what is no error
    {"an unknown key that is allowed",
     0,
     M "--allow-unknown " DONE,
     "{\"gradient_clipp1ng\": 1, \"zero_optimization\": {\"stage\": 3}}",
     {"note: ", "gradient_clipp1ng"},
     BAD_LEAVES},
    {"a known key without effect gets one line",
     0,
     M DONE,
     "{\"zero_optimization\": {\"stage\": 3, \"contiguous_gradients\": false}}",
     {"contiguous_gradients"},
     BAD_LEAVES},
    {"numbers as people write them",
     0,
     M DONE,
     "{\"zero_optimization\": {\"stage\": \"3\", \"reduce_bucket_size\": 5e8, "
     "\"sub_group_size\": 1e9}} // done",
     {"done: 1 step"},
     BAD_LEAVES},
    {"an empty config is stage 0", 0, M DONE, "{}", {"stage 0"}, BAD_LEAVES},
};

static void repeat(const char *name, const char *before, const char *what, const char *after,
                   size_t n)
{
    const size_t a = strlen(before), w = strlen(what), z = strlen(after);
    char *text = malloc(a + w * n + z + 1);
    assert_non_null(text);
    memcpy(text, before, a);
    for (size_t i = 0; i < n; i++) memcpy(text + a + i * w, what, w);
    memcpy(text + a + n * w, after, z);
    bad_write(name, text, a + n * w + z);
    free(text);
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    model_write("m.onnx", "", NULL);
    bad_text("empty.json", "");
    repeat("deep.json", "{\"a\": ", "[", "1", 100000);
    repeat("deeper.json", "", "{\"a\":", "1", 100000);
    repeat("long.json", "{\"", "k", "\": 1}", 1 << 20);
    char many[2048] = "{\"unknown0\": 0";
    for (size_t i = 1; i < 30; i++) {
        const size_t at = strlen(many);
        snprintf(many + at, sizeof many - at, ", \"unknown%zu\": 0", i);
    }
    strcat(many, "}");
    bad_text("many.json", many);
    return mkdir(bad_path("sub.json"), 0777) != 0 || mkfifo(bad_path("pipe.json"), 0666) != 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, bad_row_test, &rows[i]);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}

// test_cli_effects.c - every key that config.def calls honoured, or an old form of one, changes
// what a run does: for each, two configs that differ in it alone, and what of them differs then. A
// key that gets no row here fails.
// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>

#include "runtime/config_row.h"
#include "tests/runtime/effects.h"

// ---- rows ---------------------------------------------------------------------------------------

// What is run with a config.
typedef enum task {
    LM,   // trains a small GPT-2; the labels of some samples don't count
    MADE, // the same with synthetic data
    BATH, // trains a model with batch normalisation in inference form
    BARE, // a model without a loss, with two outputs
    WILD, // a classifier whose first, third, ... sample overflows fp16 at a scale of 1024
    INF,  // the same with a sample that is infinite
    PLAN, // plans the small GPT-2 for two ranks
    N_TASKS
} task;

#define TRAIN(rest) "train " rest " --steps 6 --threads 1"
static const char *const tasks[N_TASKS] = {
    [LM] = TRAIN("lm/model.onnx"),
    [MADE] = TRAIN("lm/model.onnx --data input_ids=synthetic --data labels=synthetic"),
    [BATH] = TRAIN("bath.onnx --data x=x.npy --data labels=zeros"),
    [BARE] = TRAIN("bare.onnx --data x=x.npy"),
    [WILD] = TRAIN("wild.onnx --data x=wild.npy --data labels=zeros"),
    [INF] = TRAIN("wild.onnx --data x=inf.npy --data labels=zeros"),
    [PLAN] = "plan lm/model.onnx --ranks 2 --threads 1",
};

#define SCHED(type, params) "{\"scheduler\": {\"type\": \"" type "\", \"params\": {" params "}}}"
#define OPTIM(type, params) "{\"optimizer\": {\"type\": \"" type "\", \"params\": {" params "}}}"
#define FP16(keys) "{\"fp16\": {\"enabled\": true" keys "}}"
#define BF16 "{\"bf16\": {\"enabled\": true}}"
#define BUDGET "\"zerox\": {\"budget\": \"64MiB\"}" // not what the host has free, which changes
#define STAGE3 "{\"zero_optimization\": {\"stage\": 3}, " BUDGET "}"
#define SECTION(name, keys) "{\"" name "\": {\"enabled\": true" keys "}}"
#define LOSS(keys) "{\"zerox\": {\"loss\": {" keys "}, \"data\": {\"labels\": \"zeros\"}}}"
#define WARM "\"warmup_num_steps\": 3"
#define CYCLE                                                                                      \
    "\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.1, \"cycle_first_step_size\": 2, "                \
    "\"cycle_second_step_size\": 2"
#define SHORT_CYCLE                                                                                \
    "\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.1, \"cycle_first_step_size\": 1, "                \
    "\"decay_step_size\": 1"
#define LONG_CYCLE                                                                                 \
    "\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.1, \"cycle_first_step_size\": 4, "                \
    "\"cycle_second_step_size\": 4"
#define EVAL(more)                                                                                 \
    "{\"optimizer\": {\"params\": {\"lr\": 1}}, \"zerox\": {\"eval\": {\"data\": "                 \
    "{\"input_ids\": \"lm/input_ids.npy\", \"labels\": \"lm/labels.npy\"}, \"every\": 1}" more     \
    "}}"

static const struct row {
    const char *key;
    task task;
    const char *base;  // the config around it; NULL: {}
    const char *a, *b; // two values as JSON; NULL: the key isn't there
    effect_look look;
    const char *what; // of effects.h
} rows[] = {
    // ---- batches
    {"train_batch_size", LM, NULL, "1", "2", FIGURE, "loss"},
    {"train_micro_batch_size_per_gpu", LM, NULL, "1", "2", FIGURE, "loss"},
    {"gradient_accumulation_steps", LM, NULL, "1", "2", FIGURE, "loss"},
    {"dataloader_drop_last", LM, "{\"train_batch_size\": 3}", "true", "false", ENDS,
     "dataloader_drop_last is false"},
    // ---- optimizer
    {"optimizer.type", LM, NULL, "\"AdamW\"", "\"Lion\"", FIGURE, "loss"},
    {"optimizer.params.lr", LM, NULL, "1e-3", "1e-2", FIGURE, "loss"},
    {"optimizer.params.betas", LM, NULL, "[0.9, 0.999]", "[0.5, 0.999]", FIGURE, "loss"},
    {"optimizer.params.eps", LM, NULL, "1e-8", "1e-2", FIGURE, "loss"},
    {"optimizer.params.weight_decay", LM, NULL, "0", "0.5", FIGURE, "loss"},
    {"optimizer.params.bias_correction", LM, NULL, "true", "false", FIGURE, "loss"},
    {"optimizer.params.adam_w_mode", LM, OPTIM("Adam", "\"weight_decay\": 0.5"), "true", "false",
     FIGURE, "loss"},
    {"optimizer.params.torch_adam", LM, OPTIM("AdamW", "\"lr\": 0.1"), "false", "true", FIGURE,
     "loss"},
    {"optimizer.params.momentum", LM, OPTIM("SGD", "\"lr\": 0.1"), "0", "0.9", FIGURE, "loss"},
    {"optimizer.params.dampening", LM, OPTIM("SGD", "\"lr\": 0.1, \"momentum\": 0.9"), "0", "0.5",
     FIGURE, "loss"},
    {"optimizer.params.nesterov", LM, OPTIM("SGD", "\"lr\": 0.1, \"momentum\": 0.9"), "false",
     "true", FIGURE, "loss"},
    // ---- schedule
    {"scheduler.type", LM, NULL, NULL, "\"WarmupLR\"", FIGURE, "lr"},
    {"scheduler.params.total_num_steps", LM, SCHED("WarmupDecayLR", WARM), "6", "9", FIGURE, "lr"},
    {"scheduler.params.warmup_min_lr", LM, SCHED("WarmupLR", WARM), "0", "1e-4", FIGURE, "lr"},
    {"scheduler.params.warmup_max_lr", LM, SCHED("WarmupLR", WARM), "1e-3", "1e-2", FIGURE, "lr"},
    {"scheduler.params.warmup_num_steps", LM, SCHED("WarmupLR", ""), "3", "5", FIGURE, "lr"},
    {"scheduler.params.warmup_type", LM, SCHED("WarmupLR", WARM), "\"log\"", "\"linear\"", FIGURE,
     "lr"},
    {"scheduler.params.warmup_min_ratio", LM,
     SCHED("WarmupCosineLR", "\"total_num_steps\": 6, " WARM), "0", "0.1", FIGURE, "lr"},
    {"scheduler.params.cos_min_ratio", LM, SCHED("WarmupCosineLR", "\"total_num_steps\": 6, " WARM),
     "0", "0.1", FIGURE, "lr"},
    {"scheduler.params.cycle_min_lr", LM, SCHED("OneCycle", CYCLE), "0.01", "0.02", FIGURE, "lr"},
    {"scheduler.params.cycle_max_lr", LM, SCHED("OneCycle", CYCLE), "0.1", "0.2", FIGURE, "lr"},
    {"scheduler.params.cycle_first_step_size", LM, SCHED("OneCycle", CYCLE), "2", "3", FIGURE,
     "lr"},
    {"scheduler.params.cycle_second_step_size", LM, SCHED("OneCycle", CYCLE), "2", "3", FIGURE,
     "lr"},
    {"scheduler.params.cycle_first_stair_count", LM, SCHED("OneCycle", LONG_CYCLE), "0", "2",
     FIGURE, "lr"},
    {"scheduler.params.cycle_second_stair_count", LM, SCHED("OneCycle", LONG_CYCLE), "0", "2",
     FIGURE, "lr"},
    {"scheduler.params.decay_step_size", LM, SCHED("OneCycle", CYCLE ", \"decay_lr_rate\": 0.5"),
     "0", "1", FIGURE, "lr"},
    {"scheduler.params.decay_lr_rate", LM, SCHED("OneCycle", SHORT_CYCLE), "0", "0.5", FIGURE,
     "lr"},
    {"scheduler.params.cycle_momentum", LM, SCHED("OneCycle", CYCLE), "true", "false", FIGURE,
     "loss"},
    {"scheduler.params.cycle_min_mom", LM, SCHED("OneCycle", CYCLE), "0.8", "0.5", FIGURE, "loss"},
    {"scheduler.params.cycle_max_mom", LM, SCHED("OneCycle", CYCLE), "0.9", "0.95", FIGURE, "loss"},
    {"scheduler.params.decay_mom_rate", LM, SCHED("OneCycle", SHORT_CYCLE), "0", "0.01", FIGURE,
     "loss"},
    {"scheduler.params.lr_range_test_min_lr", LM, SCHED("LRRangeTest", ""), "1e-3", "1e-2", FIGURE,
     "lr"},
    {"scheduler.params.lr_range_test_step_size", LM, SCHED("LRRangeTest", ""), "2", "3", FIGURE,
     "lr"},
    {"scheduler.params.lr_range_test_step_rate", LM, SCHED("LRRangeTest", ""), "1", "2", FIGURE,
     "lr"},
    {"scheduler.params.lr_range_test_staircase", LM,
     SCHED("LRRangeTest", "\"lr_range_test_step_size\": 2"), "false", "true", FIGURE, "lr"},
    // ---- precision
    {"fp16.enabled", LM, NULL, "false", "true", FIGURE, "loss"},
    {"fp16.loss_scale", LM, FP16(""), "0", "8", FIGURE, "loss_scale"},
    {"fp16.initial_scale_power", LM, FP16(""), "16", "4", FIGURE, "loss_scale"},
    {"fp16.loss_scale_window", LM, FP16(", \"initial_scale_power\": 4"), "1000", "2", FIGURE,
     "loss_scale"},
    {"fp16.hysteresis", WILD, FP16(", \"initial_scale_power\": 10"), "1", "3", FIGURE,
     "loss_scale"},
    {"fp16.consecutive_hysteresis", WILD,
     "{\"optimizer\": {\"params\": {\"lr\": 0}}, \"fp16\": {\"enabled\": true, "
     "\"initial_scale_power\": 10}}",
     "false", "true", FIGURE, "loss_scale"},
    {"fp16.min_loss_scale", WILD, FP16(", \"initial_scale_power\": 10, \"hysteresis\": 1"), "1",
     "1024", ENDS, "the loss scale is at fp16.min_loss_scale, 1024"},
    {"bf16.enabled", LM, NULL, "false", "true", FIGURE, "loss"},
    {"data_types.grad_accum_dtype", PLAN,
     "{\"bf16\": {\"enabled\": true}, \"gradient_accumulation_steps\": 2, "
     "\"zero_optimization\": {\"stage\": 3}, " BUDGET "}",
     "\"fp32\"", "\"bf16\"", SHOWN, NULL},
    {"data_types.param_dtype", LM, BF16, "\"bf16\"", "\"fp16\"", ENDS,
     "data_types.param_dtype = \"fp16\" is not supported: parameters are bf16 here"},
    {"communication_data_type", LM, BF16, "\"bf16\"", "\"fp32\"", SAYS,
     "communication_data_type has no effect: gradients travel in the 16 bits"},
    // ---- gradients, ZeRO
    {"gradient_clipping", LM, OPTIM("SGD", "\"lr\": 0.1"), "1", "0.01", FIGURE, "loss"},
    {"zero_optimization.stage", PLAN, "{" BUDGET "}", "2", "3", SHOWN, NULL},
    {"zero_optimization.overlap_comm", PLAN, STAGE3, "true", "false", SHOWN, NULL},
    {"zero_optimization.stage3_max_live_parameters", PLAN, STAGE3, "1000000", "0", SHOWN, NULL},
    {"zero_optimization.reduce_bucket_size", PLAN, STAGE3, "1000000", "0", SHOWN, NULL},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", LM, BF16, "false", "true", SIZE,
     NULL},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", LM, BF16, "false", "true", SIZE,
     NULL},
    {"zero_optimization.cpu_offload", LM, NULL, "false", "true", ENDS,
     "zero_optimization.offload_optimizer.device = \"cpu\" is not supported"},
    {"zero_optimization.cpu_offload_param", LM, NULL, "false", "true", ENDS,
     "zero_optimization.offload_param.device = \"cpu\" is not supported"},
    {"activation_checkpointing.number_checkpoints", PLAN, STAGE3, "0", "2", SHOWN, NULL},
    // ---- logging
    {"steps_per_print", LM, NULL, "100", "2", SAYS, "step=2, skipped=0"},
    {"wall_clock_breakdown", LM, NULL, "false", "true", FIGURE, "forward_seconds"},
    {"tensorboard.enabled", LM, "{\"tensorboard\": {\"job_name\": \"tb\"}}", "false", "true", FILES,
     "tb"},
    {"tensorboard.output_path", LM, SECTION("tensorboard", ""), "\"\"", "\"t1/\"", FILES,
     "t1/DeepSpeedJobName"},
    {"tensorboard.job_name", LM, SECTION("tensorboard", ""), "\"j1\"", "\"j2\"", FILES, "j2"},
    {"csv_monitor.enabled", LM, "{\"csv_monitor\": {\"job_name\": \"csv\"}}", "false", "true",
     FILES, "csv/Train_Samples_lr.csv"},
    {"csv_monitor.output_path", LM, SECTION("csv_monitor", ""), "\"\"", "\"c1\"", FILES,
     "c1/DeepSpeedJobName/Train_Samples_lr.csv"},
    {"csv_monitor.job_name", LM, SECTION("csv_monitor", ""), "\"k1\"", "\"k2\"", FILES,
     "k2/Train_Samples_lr.csv"},
    {"flops_profiler.enabled", LM, NULL, "false", "true", SAYS, "Profile Summary at step 2"},
    {"flops_profiler.profile_step", LM, SECTION("flops_profiler", ""), "1", "3", SAYS,
     "Profile Summary at step 4"},
    {"flops_profiler.module_depth", LM, SECTION("flops_profiler", ""), "0", "-1", SAYS, "depth 1:"},
    {"flops_profiler.top_modules", LM, SECTION("flops_profiler", ""), "1", "2", SAYS, "', '"},
    {"flops_profiler.detailed", LM, SECTION("flops_profiler", ""), "false", "true", SAYS,
     "bwd ms  of time"},
    {"flops_profiler.output_file", LM, SECTION("flops_profiler", ""), NULL, "\"flops.txt\"", FILES,
     "flops.txt"},
    // ---- zerox's own
    {"zerox.parameters", BARE, LOSS("\"kind\": \"mse\", \"prediction\": \"z\""), NULL, "[\"c\"]",
     FIGURE, "loss"},
    {"zerox.buffers", BARE, LOSS("\"kind\": \"mse\", \"prediction\": \"y\""), NULL, "\"b\"", FIGURE,
     "loss"},
    {"zerox.on_nan", INF, NULL, "\"skip\"", "\"stop\"", ENDS, "step 1: "},
    {"zerox.batch_norm", BATH, "{\"train_batch_size\": 4}", "\"training\"", "\"as_exported\"",
     FIGURE, "loss"},
    {"zerox.loss.kind", BARE, LOSS("\"prediction\": \"y\""), "\"mse\"", "\"cross_entropy\"", FIGURE,
     "loss"},
    {"zerox.loss.prediction", BARE, LOSS("\"kind\": \"mse\""), "\"y\"", "\"z\"", FIGURE, "loss"},
    {"zerox.loss.label", BARE,
     "{\"zerox\": {\"loss\": {\"kind\": \"mse\", \"prediction\": \"y\"}}}", "\"x\"", "\"other\"",
     ENDS, "other"},
    {"zerox.loss.ignore_index", BARE, LOSS("\"kind\": \"cross_entropy\", \"prediction\": \"y\""),
     "1", "0", ENDS, "it ignores all that it has there"},
    {"zerox.loss.label_smoothing", BARE, LOSS("\"kind\": \"cross_entropy\", \"prediction\": \"y\""),
     "0", "0.5", FIGURE, "loss"},
    {"zerox.data", LM, NULL, NULL, "{\"input_ids\": \"zeros\", \"labels\": \"ones\"}", FIGURE,
     "loss"},
    {"zerox.dims", PLAN, STAGE3, "{\"batch\": 1}", "{\"batch\": 2}", SHOWN, NULL},
    {"zerox.seed", MADE, NULL, "0", "1", FIGURE, "loss"},
    {"zerox.budget", PLAN, STAGE3, "\"64MiB\"", "\"min\"", SHOWN, NULL},
    {"zerox.recompute", PLAN, STAGE3, "\"none\"", "\"full\"", SHOWN, NULL},
    {"zerox.loss_average", LM, "{\"gradient_accumulation_steps\": 2}", "\"micro_batches\"",
     "\"tokens\"", FIGURE, "loss"},
    {"zerox.eval.data", LM, NULL, NULL,
     "{\"input_ids\": \"lm/input_ids.npy\", \"labels\": \"lm/labels.npy\"}", FIGURE, "eval_loss"},
    {"zerox.eval.every", LM, EVAL(""), "1", "2", FIGURE, "eval_loss"},
    {"zerox.early_stop.patience", LM, EVAL(""), "0", "1", FIGURE, "loss"},
    {"zerox.early_stop.min_delta", LM, EVAL(", \"early_stop\": {\"patience\": 3}"), "0", "1000",
     FIGURE, "loss"},
    {"zerox.deterministic", LM, NULL, "true", "false", SAYS,
     "zerox.deterministic changes no gradients here"},
    {"zerox.matmul_precision", LM, NULL, "\"highest\"", "\"high\"", SAYS,
     "zerox.matmul_precision has no effect here"},
    {"zerox.freeze", LM, NULL, NULL, "\"*.wte.weight\"", FIGURE, "loss"},
    {"zerox.param_groups", LM, NULL, NULL, "[{\"max_dims\": 1, \"lr\": 0.1}]", FIGURE, "loss"},
};

// ---- configs ------------------------------------------------------------------------------------

// `base` with `value` under `path`. The caller's to free.
static char *config_with(const char *base, const char *path, const char *value)
{
    json_error_t e;
    json_t *root = json_loads(base != NULL ? base : "{}", 0, &e), *at = root;
    if (root == NULL) fail_msg("%s in: %s", e.text, base);
    for (const char *dot; value != NULL && (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        char name[80];
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        if (json_object_get(at, name) == NULL) json_object_set_new(at, name, json_object());
        at = json_object_get(at, name);
    }
    json_t *leaf = value != NULL ? json_loads(value, JSON_DECODE_ANY, &e) : NULL;
    if (value != NULL && leaf == NULL) fail_msg("%s in: %s", e.text, value);
    if (value != NULL) json_object_set_new(at, path, leaf);
    char *text = json_dumps(root, JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    return text;
}

static const effect_outcome *run(const struct row *row, const char *value)
{
    char *config = config_with(row->base, row->key, value);
    const effect_outcome *o = effect_run(tasks[row->task], config);
    free(config);
    return o;
}

static const effect_outcome *first(const void *row)
{
    return run(row, ((const struct row *)row)->a);
}

static const effect_outcome *second(const void *row)
{
    return run(row, ((const struct row *)row)->b);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    effect_expect(row->key, first, second, row, row->look, row->what);
}

// ---- the table ----------------------------------------------------------------------------------

static void every_key_has_a_row(void **state)
{
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        const zx_config_row *key = &zx_config_rows[i];
        bool has = false;
        if (key->verdict != ZX_VERDICT_HONOUR && key->verdict != ZX_VERDICT_OLD) continue;
        for (size_t k = 0; k < ZX_COUNT(rows); k++) has |= strcmp(rows[k].key, key->path) == 0;
        if (!has) fail_msg("%s: no row here shows its effect", key->path);
        n++;
    }
    assert_int_equal(n, ZX_COUNT(rows));
}

// ---- files --------------------------------------------------------------------------------------

#define LINEAR                                                                                     \
    "in x f32[batch,4];param w f32[4,4] 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.8 0.7 0.6 0.5 0.4 0.3 "  \
    "0.2 0.1;param b f32[4] 0;m = MatMul(x, w);y = Add(m, b);"
#define ENTROPY(of)                                                                                \
    "in labels i64[batch];loss = SoftmaxCrossEntropyLoss(" of ", labels) reduction='mean';"        \
    "out loss f32[]"

static int make_files(void **state)
{
    enum { WIDTH = 4 };
    float x[EFFECT_SAMPLES * WIDTH], wild[EFFECT_SAMPLES * WIDTH];
    if (effect_setup(state) != 0) return 1;
    for (int i = 0; i < EFFECT_SAMPLES * WIDTH; i++) {
        x[i] = (float)(i * 5 % 7) * 0.5f;
        wild[i] = i / WIDTH % 2 == 0 ? 1000 : 1;
    }
    effect_npy("x.npy", "<f4", EFFECT_SAMPLES, WIDTH, x);
    effect_npy("wild.npy", "<f4", EFFECT_SAMPLES, WIDTH, wild);
    wild[1] = INFINITY;
    effect_npy("inf.npy", "<f4", EFFECT_SAMPLES, WIDTH, wild);
    effect_model("bare.onnx", LINEAR "const c f32[4] 1 2 3 4;z = Add(y, c);out y f32[batch,4];"
                                     "out z f32[batch,4]");
    effect_model("wild.onnx", LINEAR ENTROPY("y"));
    effect_model("bath.onnx",
                 LINEAR "init s f32[4] 1;init t f32[4] 0;init mean f32[4] 0.5;init var f32[4] 2;"
                        "n = BatchNormalization(y, s, t, mean, var);" ENTROPY("n"));
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i += test_few() ? 3 : 1)
        tests[n++] = zx_case(rows[i].key, test_row, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_key_has_a_row);
    return _cmocka_run_group_tests("effects", tests, n, make_files, cli_teardown);
}

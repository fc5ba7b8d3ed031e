// test_cli_effects.c - every key that config.def calls honoured, or an old form of one, changes
// what a run does: for each, two configs that differ in it alone, and what of them differs then. A
// key that gets no row here fails.
// SPDX-License-Identifier: Apache-2.0
#include <jansson.h>
#include <math.h>

#include "runtime/config_row.h"
#include "tests/graph/onnx_text.h"
#include "tests/runtime/cli.h"

#define STEPS "6"

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

static const char *const tasks[N_TASKS][12] = {
    [LM] = {"train", "lm/model.onnx"},
    [MADE] = {"train", "lm/model.onnx", "--data", "input_ids=synthetic", "--data",
              "labels=synthetic"},
    [BATH] = {"train", "bath.onnx", "--data", "x=x.npy", "--data", "labels=zeros"},
    [BARE] = {"train", "bare.onnx", "--data", "x=x.npy"},
    [WILD] = {"train", "wild.onnx", "--data", "x=wild.npy", "--data", "labels=zeros"},
    [INF] = {"train", "wild.onnx", "--data", "x=inf.npy", "--data", "labels=zeros"},
    [PLAN] = {"plan", "lm/model.onnx"},
};

typedef enum look {
    FIGURE, // of log.jsonl: what the steps have under this name
    SHOWN,  // standard output
    SAYS,   // these words, with the second value alone
    FILES,  // this file of the run's folder or of the current one, with the second value alone
    SIZE,   // the size of model.safetensors
    ENDS,   // with the second value: an exit code that isn't 0, and these words
} look;

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
    look look;
    const char *what; // FIGURE: its name; SAYS, ENDS: words; FILES: a file
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

// ---- runs ---------------------------------------------------------------------------------------

// What came of a task with a config; rows that need the same one share it.
typedef struct outcome {
    char *config;
    task task;
    int code;
    char *out, *err, *log;
    long size; // of model.safetensors
    char folder[16];
} outcome;
static outcome outcomes[2 * ZX_COUNT(rows)];
static uint32_t n_outcomes;

static char *slurp(const char *path)
{
    static char text[200000];
    cli_read(path, text, sizeof text);
    return strdup(text);
}

static const outcome *run(task task, char *config)
{
    for (uint32_t i = 0; i < n_outcomes; i++)
        if (outcomes[i].task == task && strcmp(outcomes[i].config, config) == 0) {
            free(config);
            return &outcomes[i];
        }
    static cli_result r;
    outcome *o = &outcomes[n_outcomes];
    const char *args[CLI_ARGS] = {0};
    const char *const train[] = {"--steps",  STEPS,    "--out",     o->folder,
                                 "--config", "c.json", "--threads", "1"};
    const char *const plan[] = {"--ranks", "2", "--config", "c.json", "--threads", "1"};
    uint32_t n = 0;
    snprintf(o->folder, sizeof o->folder, "run%u", n_outcomes++);
    while (tasks[task][n] != NULL) {
        args[n] = tasks[task][n];
        n++;
    }
    for (uint32_t i = 0; i < (task == PLAN ? ZX_COUNT(plan) : ZX_COUNT(train)); i++)
        args[n++] = task == PLAN ? plan[i] : train[i];
    cli_write("c.json", config);
    cli_run(args, &r);
    char path[64];
    struct stat info;
    *o = (outcome){.config = config, .task = task, .code = r.code};
    snprintf(o->folder, sizeof o->folder, "run%u", n_outcomes - 1);
    o->out = strdup(r.out);
    o->err = strdup(r.err);
    snprintf(path, sizeof path, "%s/log.jsonl", o->folder);
    o->log = slurp(path);
    snprintf(path, sizeof path, "%s/model.safetensors", o->folder);
    o->size = stat(path, &info) == 0 ? (long)info.st_size : -1;
    return o;
}

// Its values, a line a step; "-" where a step hasn't it.
static void figures(const outcome *o, const char *name, char *to, size_t room)
{
    char field[64];
    size_t n = 0;
    to[0] = '\0';
    snprintf(field, sizeof field, "\"%s\": ", name);
    for (const char *line = o->log; *line != '\0'; line += strcspn(line, "\n") + 1) {
        const char *at = strstr(line, field), *end = line + strcspn(line, "\n");
        const bool has = at != NULL && at < end;
        if (has) at += strlen(field);
        n += (size_t)snprintf(to + n, room - n, "%.*s\n", has ? (int)strcspn(at, ",}") : 1,
                              has ? at : "-");
    }
}

static void expect_ok(const struct row *row, const outcome *o)
{
    if (o->code != 0) fail_msg("%s: %s ends with %d: %s", row->key, o->config, o->code, o->err);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    static char a[4096], b[4096];
    char *first = config_with(row->base, row->key, row->a),
         *second = config_with(row->base, row->key, row->b);
    const outcome *x = run(row->task, first);
    const bool before = row->look == FILES && cli_exists(row->what);
    const outcome *y = run(row->task, second);
    expect_ok(row, x);
    if (row->look != ENDS) expect_ok(row, y);
    bool same = false;
    switch (row->look) {
    case FIGURE:
        figures(x, row->what, a, sizeof a);
        figures(y, row->what, b, sizeof b);
        same = strcmp(a, b) == 0;
        break;
    case SHOWN:
        same = strcmp(x->out, y->out) == 0;
        break;
    case SAYS:
        if (strstr(x->out, row->what) != NULL || strstr(x->err, row->what) != NULL)
            fail_msg("%s: %s says it too", row->key, x->config);
        same = strstr(y->out, row->what) == NULL && strstr(y->err, row->what) == NULL;
        break;
    case FILES:
        if (before) fail_msg("%s is there without %s", row->what, row->key);
        same = !cli_exists(row->what);
        break;
    case SIZE:
        same = x->size == y->size;
        break;
    case ENDS:
        same = y->code == 0 || strstr(y->err, row->what) == NULL;
        break;
    }
    if (same)
        fail_msg("%s has no effect: %s and %s are the same in %s\nout: %s\nerr: %s", row->key,
                 x->config, y->config, row->what != NULL ? row->what : "what is shown", y->out,
                 y->err);
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

static void write_model(const char *path, const char *text)
{
    zx_arena mem = {0};
    size_t n;
    const uint8_t *bytes = ot_bytes(&mem, text, NULL, 0, &n);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(bytes, 1, n, f);
    assert_int_equal(fclose(f), 0);
    zx_arena_free(&mem);
}

// `n` samples of `each` numbers.
static void write_npy(const char *path, const char *descr, int n, int each, const void *bytes)
{
    char head[129];
    memset(head, ' ', sizeof head);
    const int k =
        snprintf(head + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }",
                 descr, n, each);
    head[10 + k] = ' ';
    head[127] = '\n';
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(head, 1, 128, f);
    fwrite(bytes, descr[1] == 'i' ? 8 : 4, (size_t)(n * each), f);
    assert_int_equal(fclose(f), 0);
}

enum { SAMPLES = 16, WORDS = 8, WIDTH = 4 };

static void write_data(void)
{
    int64_t ids[SAMPLES * WORDS], labels[SAMPLES * WORDS];
    float x[SAMPLES * WIDTH], wild[SAMPLES * WIDTH];
    for (int i = 0; i < SAMPLES * WORDS; i++) {
        ids[i] = i * 7 % 16;
        labels[i] = i % WORDS < i / WORDS % 4 ? -100 : (i * 7 + 7) % 16; // 0 to 3 don't count
    }
    for (int i = 0; i < SAMPLES * WIDTH; i++) {
        x[i] = (float)(i * 5 % 7) * 0.5f;
        wild[i] = i / WIDTH % 2 == 0 ? 1000 : 1;
    }
    write_npy("lm/input_ids.npy", "<i8", SAMPLES, WORDS, ids);
    write_npy("lm/labels.npy", "<i8", SAMPLES, WORDS, labels);
    write_npy("x.npy", "<f4", SAMPLES, WIDTH, x);
    write_npy("wild.npy", "<f4", SAMPLES, WIDTH, wild);
    wild[1] = INFINITY;
    write_npy("inf.npy", "<f4", SAMPLES, WIDTH, wild);
}

#define LINEAR                                                                                     \
    "in x f32[batch,4];param w f32[4,4] 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 0.8 0.7 0.6 0.5 0.4 0.3 "  \
    "0.2 0.1;param b f32[4] 0;m = MatMul(x, w);y = Add(m, b);"
#define ENTROPY(of)                                                                                \
    "in labels i64[batch];loss = SoftmaxCrossEntropyLoss(" of ", labels) reduction='mean';"        \
    "out loss f32[]"

static int make_files(void **state)
{
    static cli_result r;
    static const char *const args[] = {
        "new",   "gpt2",      "-o",    "lm/model.onnx", "--set", "layers=2",
        "--set", "width=8",   "--set", "heads=1",       "--set", "vocab=16",
        "--set", "context=8", "--set", "sequence=8",    NULL};
    if (cli_setup(state) != 0 || mkdir("lm", 0777) != 0) return 1;
    cli_run(args, &r);
    if (r.code != 0) return 1;
    write_data();
    write_model("bare.onnx", LINEAR "const c f32[4] 1 2 3 4;z = Add(y, c);out y f32[batch,4];"
                                    "out z f32[batch,4]");
    write_model("wild.onnx", LINEAR ENTROPY("y"));
    write_model("bath.onnx",
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

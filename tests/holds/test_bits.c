// test_bits.c - the same ranks, threads and seed give the same losses and weights, bit for bit, at
// every stage and budget, with and without overlap, run again or started by a launcher.
//
// A row compares a run with the first one of its model, optimizer and number of ranks: stage 3 by
// default. Every run's measured peak has to be its plan's, too.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

// The arguments of a case of tests/data/cases, and of a model of models/.
#define CASES ZX_TEST_DATA "/cases/"
#define CASE(name, input)                                                                          \
    CASES name "/model.onnx --data " input "=" CASES name "/" input                                \
               ".npy --data labels=" CASES name "/labels.npy"
#define BYTES ZX_SOURCE "/models/bytegpt/"

static const struct model {
    const char *name, *args;
    int samples; // of a micro-batch
} models[] = {
    {"gpt2_dynamic", CASE("gpt2_dynamic", "input_ids"), 2},
    {"convnet", CASE("convnet", "x"), 32}, // has buffers
    {"bytegpt",                            // has dropout
     BYTES "model.onnx --data input_ids=" BYTES "text.txt --data labels=" BYTES "text.txt:+1", 8},
    {"llama", CASE("llama", "input_ids"), 2},
    {"bert", CASE("bert", "x"), 8},
    {"vit", CASE("vit", "x"), 16},
    {"gpt2_hf_loss", CASE("gpt2_hf_loss", "input_ids"), 4},
};
enum { GPT2, CONVNET, BYTEGPT, LLAMA, BERT, VIT, HF_LOSS };

static const struct optimizer {
    const char *name, *json;
} optimizers[] = {
    {"AdamW", "{\"type\": \"AdamW\", \"params\": {\"lr\": 2e-3, \"weight_decay\": 0.01}}"},
    {"Adam", "{\"type\": \"Adam\", \"params\": {\"lr\": 2e-3, \"adam_w_mode\": false, "
             "\"weight_decay\": 0.01}}"},
    {"SGD", "{\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}"},
    {"momentum", "{\"type\": \"SGD\", \"params\": {\"lr\": 0.05, \"momentum\": 0.9, "
                 "\"nesterov\": true, \"weight_decay\": 0.01}}"},
};
enum { ADAMW, ADAM, SGD, MOMENTUM };

typedef enum variant {
    STAGE_0,
    STAGE_1,
    STAGE_2,
    LEAST,
    MIDDLE,
    NO_OVERLAP,
    AGAIN,
    LAUNCHER,
    LEAST_0,
    LEAST_1,
    LEAST_2,
    NO_OVERLAP_0,
    NO_OVERLAP_2,
    POISON,
    SLOW_WIRE,
    VARIANTS
} variant;

static const struct variant_row {
    const char *name, *options;
} variants[VARIANTS] = {
    [STAGE_0] = {"stage 0", "--stage 0"},
    [STAGE_1] = {"stage 1", "--stage 1"},
    [STAGE_2] = {"stage 2", "--stage 2"},
    [LEAST] = {"the least budget", "--budget min"},
    [MIDDLE] = {"a budget between", "--budget %llu"},
    [NO_OVERLAP] = {"no overlap", "--no-overlap"},
    [AGAIN] = {"a run again", ""},
    [LAUNCHER] = {"started by a launcher", ""},
    [LEAST_0] = {"stage 0, the least budget", "--stage 0 --budget min"},
    [LEAST_1] = {"stage 1, the least budget", "--stage 1 --budget min"},
    [LEAST_2] = {"stage 2, the least budget", "--stage 2 --budget min"},
    [NO_OVERLAP_0] = {"stage 0, no overlap", "--stage 0 --no-overlap"},
    [NO_OVERLAP_2] = {"stage 2, no overlap", "--stage 2 --no-overlap"},
    [POISON] = {"freed bytes are poisoned", "--budget min --poison"},
    [SLOW_WIRE] = {"a slow wire", "--wire-delay 1ms"},
};

#define BIT(v) (1u << (v))
#define ALL (BIT(VARIANTS) - 1)
#define STAGES (BIT(STAGE_0) | BIT(STAGE_1) | BIT(STAGE_2))
static const struct group {
    uint32_t model, optimizer, ranks;
    uint32_t variants; // bits
    uint32_t threads;  // 0: what is usual
    bool few;          // also where few rows are asked for
    const char *type;  // "bf16", "fp16"; NULL: float32
} groups[] = {
    {GPT2, ADAMW, 1, BIT(STAGE_0) | BIT(LEAST) | BIT(MIDDLE) | BIT(NO_OVERLAP) | BIT(AGAIN), 0,
     false, NULL},
    {GPT2, ADAMW, 2, ALL, 0, true, NULL},
    {GPT2, ADAMW, 3, STAGES | BIT(LEAST) | BIT(MIDDLE) | BIT(NO_OVERLAP) | BIT(LAUNCHER), 0, false,
     NULL},
    {CONVNET, ADAMW, 1, BIT(STAGE_0) | BIT(LEAST) | BIT(NO_OVERLAP), 0, false, NULL},
    {CONVNET, ADAMW, 2, STAGES | BIT(LEAST) | BIT(MIDDLE) | BIT(NO_OVERLAP) | BIT(POISON), 0, false,
     NULL},
    {CONVNET, ADAMW, 3, STAGES | BIT(LEAST_1) | BIT(NO_OVERLAP_0) | BIT(LAUNCHER), 0, true, NULL},
    {BYTEGPT, ADAMW, 1, BIT(STAGE_0) | BIT(LEAST), 0, true, NULL},
    {BYTEGPT, ADAMW, 2, STAGES | BIT(LEAST) | BIT(NO_OVERLAP) | BIT(AGAIN), 0, false, NULL},
    {BYTEGPT, ADAMW, 3, BIT(STAGE_0) | BIT(LEAST) | BIT(LAUNCHER), 0, false, NULL},
    {GPT2, ADAM, 3, BIT(STAGE_0) | BIT(STAGE_2), 0, true, NULL},
    {GPT2, SGD, 2, STAGES | BIT(LEAST), 0, false, NULL},
    {GPT2, MOMENTUM, 2, STAGES | BIT(LEAST), 0, true, NULL},
    {CONVNET, MOMENTUM, 3, STAGES | BIT(NO_OVERLAP), 0, false, NULL},
    {BYTEGPT, SGD, 3, BIT(STAGE_1), 0, true, NULL},
    {GPT2, ADAMW, 2, BIT(STAGE_0) | BIT(LEAST) | BIT(AGAIN), 3, false, NULL},
    {CONVNET, ADAMW, 2, BIT(STAGE_1) | BIT(LEAST), 2, true, NULL},
    {LLAMA, ADAMW, 2, BIT(STAGE_0) | BIT(LEAST), 0, false, NULL},
    {BERT, ADAMW, 3, BIT(STAGE_2) | BIT(LEAST), 0, false, NULL},
    {VIT, ADAMW, 2, BIT(STAGE_0) | BIT(LEAST), 0, false, NULL},
    {HF_LOSS, ADAMW, 3, BIT(STAGE_1) | BIT(LEAST), 0, false, NULL},
    {GPT2, ADAMW, 2, BIT(STAGE_1) | BIT(LEAST) | BIT(POISON), 0, true, "bf16"},
    {LLAMA, MOMENTUM, 3, STAGES | BIT(LEAST), 0, false, "fp16"},
    {CONVNET, ADAMW, 1, BIT(STAGE_0) | BIT(LEAST), 0, false, "bf16"},
    {CONVNET, ADAMW, 3, BIT(STAGE_1) | BIT(LEAST), 0, false, "bf16"},
};

typedef struct row {
    const struct group *group;
    variant variant;
    char name[96];
} row;

static uint64_t planned_peak(const char *args)
{
    json_t *plan = holds_plan("%s", args);
    const uint64_t peak = (uint64_t)json_integer_value(json_object_get(plan, "peak_bytes"));
    json_decref(plan);
    return peak;
}

// The first step has no moments yet; few rows look at one more, others at two.
static int steps(void)
{
    return test_few() ? 2 : 3;
}

static void expect_planned_peak(const char *name)
{
    static holds_row rows[HOLDS_ROWS];
    const uint64_t peak = holds_decided(name, "planned_peak_bytes");
    assert_true(peak <= holds_decided(name, "budget_bytes"));
    const uint32_t n = holds_log(name, rows);
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].peak_bytes != peak)
            fail_msg("%s: step %u: peak %llu, planned %llu", name, i + 1,
                     (unsigned long long)rows[i].peak_bytes, (unsigned long long)peak);
}

// The model, its data and configuration, as arguments.
static void arguments(const struct group *g, char *args, size_t room)
{
    const struct model *m = &models[g->model];
    char config[512];
    const int n = snprintf(config, sizeof config,
                           "{\"%s\": {\"enabled\": %s}, \"train_micro_batch_size_per_gpu\": %d, "
                           "\"gradient_accumulation_steps\": 2, \"gradient_clipping\": 1.0, "
                           "\"zero_optimization\": {\"stage\": 3}, \"optimizer\": %s}",
                           g->type != NULL ? g->type : "bf16", g->type != NULL ? "true" : "false",
                           m->samples, optimizers[g->optimizer].json);
    holds_write("zero.json", config, (size_t)n);
    char threads[32] = "";
    if (g->threads > 0) snprintf(threads, sizeof threads, "--threads %u", g->threads);
    snprintf(args, room, "%s %s --config zero.json --ranks %u", m->args, threads, g->ranks);
}

static void first_run(const struct group *g, const char *args, char name[64])
{
    snprintf(name, 64, "first-%d", (int)(g - groups));
    if (holds_ran(name)) return;
    holds_train(name, "%s --steps %d", args, steps());
    expect_planned_peak(name);
}

static void same_bits(void **state)
{
    const row *r = *state;
    const struct group *g = r->group;
    char args[2048], first[64], second[64], options[64];
    arguments(g, args, sizeof args);
    first_run(g, args, first);
    snprintf(second, sizeof second, "run-%d-%d", (int)(g - groups), (int)r->variant);
    snprintf(options, sizeof options, "%s", variants[r->variant].options);
    if (r->variant == MIDDLE) {
        const uint64_t most = holds_decided(first, "planned_peak_bytes");
        char least[2100];
        snprintf(least, sizeof least, "%s --budget min", args);
        const uint64_t between = (most + planned_peak(least)) / 2;
        snprintf(options, sizeof options, "--budget %llu", (unsigned long long)between);
    }
    if (r->variant == LAUNCHER) { // says itself how many ranks there are
        *strstr(args, " --ranks") = '\0';
        holds_launched(second, g->ranks, "%s --steps %d", args, steps());
    } else {
        holds_train(second, "%s --steps %d %s", args, steps(), options);
    }
    expect_planned_peak(second);
    holds_expect_same(first, second);
}

// What the comparisons above look at does change: with the seed of dropout.
static void other_seeds_differ(void **state)
{
    (void)state;
    const struct group g = {BYTEGPT, ADAMW, 2, 0, 0, false, NULL};
    char args[2048];
    arguments(&g, args, sizeof args);
    holds_train("seed-7", "%s --seed 7 --steps 1", args);
    holds_train("seed-8", "%s --seed 8 --steps 1", args);
    holds_row a[HOLDS_ROWS], b[HOLDS_ROWS];
    holds_log("seed-7", a);
    holds_log("seed-8", b);
    assert_true(a[0].loss != b[0].loss && a[0].grad_norm != b[0].grad_norm);
}

int main(void)
{
    static row rows[ZX_COUNT(groups) * VARIANTS];
    static struct CMUnitTest tests[ZX_COUNT(groups) * VARIANTS + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(groups); i++)
        for (uint32_t v = 0; v < VARIANTS; v++) {
            const struct group *g = &groups[i];
            if (!(g->variants & BIT(v)) || (test_few() && !g->few)) continue;
            rows[n] = (row){.group = g, .variant = (variant)v};
            snprintf(rows[n].name, sizeof rows[n].name, "%s%s%s, %s, %u ranks%s: %s",
                     models[g->model].name, g->type != NULL ? " in " : "",
                     g->type != NULL ? g->type : "", optimizers[g->optimizer].name, g->ranks,
                     g->threads > 0 ? " of threads" : "", variants[v].name);
            tests[n] = zx_case(rows[n].name, same_bits, &rows[n]);
            n++;
        }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(other_seeds_differ);
    return _cmocka_run_group_tests("bits", tests, n, holds_setup, holds_teardown);
}

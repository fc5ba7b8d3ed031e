// test_recompute.c - activations that run again give the same losses, gradients and weights, bit
// for bit, as those that are kept: of every model there is, with dropout and running statistics, on
// 1 to 3 ranks, at every stage and budget, by choice and as the budget asks for it; in 16 bits and
// with frozen layers, too.
//
// A row compares a run with the first one of its model and ranks, which recomputes nothing.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#define CASES ZX_TEST_DATA "/cases/"
#define CASE(name, input)                                                                          \
    CASES name "/model.onnx --data " input "=" CASES name "/" input                                \
               ".npy --data labels=" CASES name "/labels.npy"
#define BYTES ZX_SOURCE "/models/bytegpt/"
#define DIGITS ZX_SOURCE "/models/digits/"

typedef enum variant { FULL, FULL_0, FULL_1, LEAST, POISON, BETWEEN, AUTO_LEAST, VARIANTS } variant;
#define BIT(v) (1u << (v))

static const struct model {
    const char *name, *args;
    int samples, ranks; // of a micro-batch
    bool nothing;       // is saved that could be made again
    const char *more;   // keys of the configuration; NULL: none
    uint32_t variants;  // bits; 0: all
} models[] = {
    {"gpt2", CASE("gpt2", "input_ids"), 4, 2},
    {"gpt2_dynamic", CASE("gpt2_dynamic", "input_ids"), 2, 3},
    {"convnet", CASE("convnet", "x"), 32, 2}, // running statistics; in segments
    {"bytegpt",
     BYTES "model.onnx --data input_ids=" BYTES "text.txt --data labels=" BYTES "text.txt:+1", 8,
     2}, // dropout
    {"llama", CASE("llama", "input_ids"), 2, 1},
    {"bert", CASE("bert", "x"), 8, 3},
    {"vit", CASE("vit", "x"), 16, 2},
    {"mlp", CASE("mlp", "x"), 0, 2, true},
    {"digits", DIGITS "model.onnx --data x=" DIGITS "x.npy --data labels=" DIGITS "labels.npy", 0,
     2},
    {"gpt2_dynamic in bf16, a frozen layer", CASE("gpt2_dynamic", "input_ids"), 2, 2, false,
     "\"bf16\": {\"enabled\": true}, \"zerox\": {\"freeze\": [\"*.h.0.*\"]}, ",
     BIT(FULL) | BIT(POISON)},
    {"gpt2_dynamic in fp16, averaged by labels", CASE("gpt2_dynamic", "input_ids"), 2, 2, false,
     "\"fp16\": {\"enabled\": true}, \"zerox\": {\"loss_average\": "
     "\"tokens\", \"freeze\": [\"*.wpe.*\"]}, ",
     BIT(FULL_0) | BIT(LEAST)},
    {"bytegpt in bf16",
     BYTES "model.onnx --data input_ids=" BYTES "text.txt --data labels=" BYTES "text.txt:+1", 8, 2,
     false, "\"bf16\": {\"enabled\": true}, ", BIT(FULL)},
    // What runs again reads running statistics of another type, and takes other scratch.
    {"convnet in bf16", CASE("convnet", "x"), 32, 2, false, "\"bf16\": {\"enabled\": true}, ",
     BIT(AUTO_LEAST)},
};

static const struct variant_row {
    const char *name, *options;
} variants[VARIANTS] = {
    [FULL] = {"full", "--recompute full"},
    [FULL_0] = {"full, stage 0", "--recompute full --stage 0"},
    [FULL_1] = {"full, stage 1", "--recompute full --stage 1"},
    [LEAST] = {"full, stage 2, the least budget", "--recompute full --stage 2 --budget min"},
    [POISON] = {"full, freed bytes are poisoned", "--recompute full --budget min --poison"},
    [BETWEEN] = {"auto, between the least budgets", "--recompute auto --budget %llu"},
    [AUTO_LEAST] = {"auto, the least budget", "--recompute auto --budget min"},
};

// The first step has no moments yet; few rows look at one more, others at two.
static int steps(void)
{
    return test_few() ? 2 : 3;
}

typedef struct row {
    uint32_t model;
    variant variant;
    char name[96];
} row;

static void arguments(const struct model *m, char *args, size_t room)
{
    char config[768], samples[64] = "";
    if (m->samples > 0)
        snprintf(samples, sizeof samples, "\"train_micro_batch_size_per_gpu\": %d, ", m->samples);
    const int n = snprintf(config, sizeof config,
                           "{%s%s\"gradient_accumulation_steps\": 2, \"zero_optimization\": "
                           "{\"stage\": 3}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
                           "{\"lr\": 2e-3}}}",
                           samples, m->more != NULL ? m->more : "");
    holds_write("zero.json", config, (size_t)n);
    snprintf(args, room, "%s --config zero.json --ranks %d", m->args, m->ranks);
}

static uint64_t least(const char *args, const char *recompute)
{
    json_t *plan = holds_plan("%s --budget min --recompute %s", args, recompute);
    const uint64_t peak = (uint64_t)json_integer_value(json_object_get(plan, "peak_bytes"));
    json_decref(plan);
    return peak;
}

static void same_file(const char *a, const char *b, const char *suffix)
{
    char path[128];
    size_t n, m;
    snprintf(path, sizeof path, "%s%s", a, suffix);
    char *x = holds_read(path, &n);
    snprintf(path, sizeof path, "%s%s", b, suffix);
    char *y = holds_read(path, &m);
    if (n != m || memcmp(x, y, n) != 0) fail_msg("%s and %s differ", a, path);
    free(x);
    free(y);
}

static void same_bits(void **state)
{
    const row *r = *state;
    char args[2048], first[64], second[64], options[128];
    arguments(&models[r->model], args, sizeof args);
    snprintf(first, sizeof first, "first-%u", r->model);
    snprintf(second, sizeof second, "run-%u-%d", r->model, (int)r->variant);
    snprintf(options, sizeof options, "%s", variants[r->variant].options);
    if (!holds_ran(first))
        holds_train(first, "%s --steps %d --dump-grads %s.grads", args, steps(), first);
    const uint64_t none = r->variant == BETWEEN ? least(args, "none") : 0,
                   full = r->variant == BETWEEN ? least(args, "full") : 0;
    if (r->variant == BETWEEN) {
        if (full >= none) return; // nothing to choose
        const unsigned long long between = full + (none - full) / 2;
        snprintf(options, sizeof options, "--recompute auto --budget %llu", between);
        assert_int_equal(
            holds_zerox("refused", "train %s --steps 1 --budget %llu --no-save", args, between), 4);
    }
    holds_train(second, "%s --steps %d --dump-grads %s.grads %s", args, steps(), second, options);
    holds_expect_same(first, second);
    same_file(first, second, ".grads");
    char config[80];
    snprintf(config, sizeof config, "%s/config.json", second);
    const bool any = holds_says(config, "\"recomputed\": \"");
    if (any == models[r->model].nothing && r->variant != AUTO_LEAST)
        fail_msg("%s was recomputed", any ? "something" : "nothing");
}

// A plan's file says what is recomputed, and the command line has the last word.
static void a_plan_says_it(void **state ZX_UNUSED)
{
    char args[2048];
    arguments(&models[0], args, sizeof args);
    holds_train("kept", "%s --steps 2", args);
    assert_int_equal(holds_zerox("plan", "plan %s --recompute full -o full.plan", args), 0);
    const uint64_t full = least(args, "full"), none = least(args, "none");
    assert_int_equal(holds_zerox("plan", "plan %s --recompute auto --budget %llu -o auto.plan",
                                 args, (unsigned long long)(full + (none - full) / 2)),
                     0);
    holds_train("by-full", "%s --steps 2 --plan full.plan", args);
    holds_train("by-auto", "%s --steps 2 --plan auto.plan", args);
    holds_expect_same("kept", "by-full");
    holds_expect_same("kept", "by-auto");
    assert_true(holds_says("by-auto/config.json", "\"recomputed\": \""));
    assert_int_equal(
        holds_zerox("no", "train %s --steps 2 --plan full.plan --recompute none", args), 2);
    assert_true(holds_says("no.err", "recomputation or model changed"));
}

// Of those that are executed beside each other, one with its own graph.
static void compared(void **state ZX_UNUSED)
{
    char args[2048];
    arguments(&models[0], args, sizeof args);
    const uint64_t full = least(args, "full"), none = least(args, "none");
    const int code =
        holds_zerox("compare",
                    "compare %s --policies zero2,zerox --execute --steps 9 --recompute auto "
                    "--budget %llu",
                    args, (unsigned long long)(none + (none - full) / 8));
    if (code != 0) fail_msg("exit code %d: %s", code, holds_read("compare.err", &(size_t){0}));
    assert_true(holds_says("compare.out", "zerox, recompute auto"));
    assert_true(holds_says("compare.out", "losses identical: yes"));
    assert_int_equal(holds_zerox("compare",
                                 "compare %s --policies %s --execute --steps 9 --recompute full",
                                 args, test_few() ? "hooks" : "zero2,hooks,zerox"),
                     0);
    assert_true(holds_says("compare.out", "losses identical: yes"));
}

int main(void)
{
    static row rows[ZX_COUNT(models) * VARIANTS];
    static struct CMUnitTest tests[ZX_COUNT(models) * VARIANTS + 2];
    size_t n = 0;
    // Few: every variant, each with a model of its own.
    for (uint32_t k = 0; k < ZX_COUNT(rows); k += test_few() ? VARIANTS + 1 : 1) {
        const uint32_t i = k / VARIANTS, v = k % VARIANTS;
        if (models[i].variants != 0 && !(models[i].variants & BIT(v))) continue;
        rows[n] = (row){.model = i, .variant = (variant)v};
        snprintf(rows[n].name, sizeof rows[n].name, "%s, %d ranks: %s", models[i].name,
                 models[i].ranks, variants[v].name);
        tests[n] = zx_case(rows[n].name, same_bits, &rows[n]);
        n++;
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_plan_says_it);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(compared);
    return _cmocka_run_group_tests("recompute", tests, n, holds_setup, holds_teardown);
}

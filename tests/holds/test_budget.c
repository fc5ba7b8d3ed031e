// test_budget.c - budgets: every one from the least upwards is kept, one byte less than the least
// is refused, and runs say which bytes they were given.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#define CASES ZX_TEST_DATA "/cases"

static const struct row {
    const char *name, *args, *dominates;
} rows[] = {
    {"gpt2_dynamic, 2 ranks", CASES "/gpt2_dynamic/model.onnx --config 16.json --ranks 2",
     "are activations and gradients"},
    {"gpt2_dynamic, 3 ranks x 2", CASES "/gpt2_dynamic/model.onnx --config 2.json --ranks 3", ""},
    {"gpt2_dynamic, stage 0", CASES "/gpt2_dynamic/model.onnx --ranks 2 --stage 0",
     "are held parameters, gradients and optimizer states"},
    {"gpt2_dynamic, 1 rank", CASES "/gpt2_dynamic/model.onnx",
     "are held parameters, gradients and optimizer states"},
    {"convnet, 3 ranks", CASES "/convnet/model.onnx --ranks 3", "are activations and gradients"},
    {"bert, stage 1, no overlap", CASES "/bert/model.onnx --ranks 2 --stage 1 --no-overlap", ""},
    {"vit, stage 2, a slow wire", CASES "/vit/model.onnx --ranks 2 --stage 2 --wire-delay 5ms", ""},
    {"mlp, 4 ranks", CASES "/mlp/model.onnx --ranks 4", ""},
    {"few activations", "wide.onnx --ranks 16 --config sgd.json", "are gathered parameters"},
};

static uint64_t number(const json_t *plan, const char *key)
{
    const json_t *x = json_object_get(plan, key);
    if (!json_is_integer(x)) fail_msg("the plan's %s is no whole number", key);
    return (uint64_t)json_integer_value(x);
}

static uint64_t peak_of(const char *args, const char *budget)
{
    json_t *plan = holds_plan("%s --budget %s", args, budget);
    const uint64_t peak = number(plan, "peak_bytes");
    json_decref(plan);
    return peak;
}

// From the least to what a plan takes that may take all, and beyond.
static void every_budget_is_kept(void **state)
{
    const struct row *r = *state;
    const uint64_t least = peak_of(r->args, "min"), most = peak_of(r->args, "100GB");
    assert_true(least <= most);
    const uint64_t span = most - least;
    const uint64_t budgets[] = {least,
                                least + 1,
                                least + 63,
                                least + 64,
                                least + span / 16,
                                least + span / 8,
                                least + span / 4,
                                least + span / 3,
                                least + span / 2,
                                least + span * 3 / 4,
                                most,
                                most + 1000000};
    // Few: the least, one byte more, an odd one between, and more than is of use.
    static const bool few[ZX_COUNT(budgets)] = {[0] = true, [1] = true, [7] = true, [11] = true};
    for (size_t i = 0; i < ZX_COUNT(budgets); i++) {
        if (test_few() && !few[i]) continue;
        json_t *plan = holds_plan("%s --budget %llu", r->args, (unsigned long long)budgets[i]);
        const uint64_t peak = number(plan, "peak_bytes");
        if (peak > budgets[i] || peak < number(plan, "held_bytes"))
            fail_msg("peak %llu of a budget of %llu", (unsigned long long)peak,
                     (unsigned long long)budgets[i]);
        assert_int_equal(number(plan, "budget_bytes"), budgets[i]);
        json_decref(plan);
    }
}

static void less_is_refused(void **state)
{
    const struct row *r = *state;
    const uint64_t least = peak_of(r->args, "min"), budgets[] = {least - 1, least / 2, 1};
    char named[64];
    snprintf(named, sizeof named, "(%llu bytes)", (unsigned long long)least);
    for (size_t i = 0; i < ZX_COUNT(budgets); i += test_few() ? 2 : 1) {
        assert_int_equal(
            holds_zerox("less", "plan %s --budget %llu", r->args, (unsigned long long)budgets[i]),
            4);
        assert_true(holds_says("less.err", "needs at least"));
        assert_true(holds_says("less.err", named));
        assert_true(holds_says("less.err", " of it are ") || holds_says("less.err", " of it is "));
        assert_true(holds_says("less.err", r->dominates));
        assert_true(holds_says("less.err", "\ntry: "));
    }
}

// A run that was given "min", and the next one with the bytes that it wrote down, less one.
static void resolved_bytes(void **state)
{
    (void)state;
    const char *args = CASES "/convnet/model.onnx --ranks 2 --no-save --steps 1";
    holds_train("least", "%s --budget min", args);
    const uint64_t bytes = holds_decided("least", "budget_bytes");
    assert_int_equal(bytes, holds_decided("least", "planned_peak_bytes"));
    char said[64];
    snprintf(said, sizeof said, "budget %llu bytes", (unsigned long long)bytes);
    assert_true(holds_says("least/plan.txt", said));
    holds_train("same", "%s --budget %llu", args, (unsigned long long)bytes);
    assert_int_equal(holds_zerox("less", "train %s --out less --budget %llu", args,
                                 (unsigned long long)bytes - 1),
                     4);
    FILE *f = fopen("less/config.json", "r"); // refused before anything was written
    assert_null(f);
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    static const char *const configs[][2] = {
        {"2.json", "{\"gradient_accumulation_steps\": 2, \"train_micro_batch_size_per_gpu\": 3, "
                   "\"zero_optimization\": {\"stage\": 3}}"},
        {"16.json", "{\"train_micro_batch_size_per_gpu\": 16, "
                    "\"zero_optimization\": {\"stage\": 3}}"},
        {"sgd.json", "{\"optimizer\": {\"type\": \"SGD\"}, \"zero_optimization\": {\"stage\": 3}}"},
    };
    for (size_t i = 0; i < ZX_COUNT(configs); i++)
        holds_write(configs[i][0], configs[i][1], strlen(configs[i][1]));
    return holds_zerox("new", "new mlp --set inputs=64 --set width=2048 --set layers=1 "
                              "--set vocab=2048 --set batch=1 -o wide.onnx");
}

int main(void)
{
    struct CMUnitTest tests[2 * ZX_COUNT(rows) + 1];
    static char names[2 * ZX_COUNT(rows)][96];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        snprintf(names[n], sizeof names[n], "%s: every budget is kept", rows[i].name);
        tests[n] = zx_case(names[n], every_budget_is_kept, &rows[i]);
        n++;
        snprintf(names[n], sizeof names[n], "%s: less is refused", rows[i].name);
        tests[n] = zx_case(names[n], less_is_refused, &rows[i]);
        n++;
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(resolved_bytes);
    return _cmocka_run_group_tests("budget", tests, n, setup, holds_teardown);
}

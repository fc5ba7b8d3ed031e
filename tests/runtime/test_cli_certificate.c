// test_cli_certificate.c - what plan, simulate and train say of a plan's quality, what limits and
// pins cost, and ways out of a budget: each is tried.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/runtime/cli_json.h"

#define GPT2 ZX_TEST_DATA "/cases/gpt2/model.onnx"
#define PLAN "plan", GPT2, "--ranks", "2"
#define MLP8 "simulate", "m.onnx", "--machine", "h100"
#define LLAMA "simulate", "llama3-8b", "--machine", "h100x8"

static const cli_row rows[] = {
    {"a plan",
     {PLAN, "--budget", "1GB"},
     0,
     "above the lower bound for this machine model (host",
     NULL},
    {"a tight one", {PLAN, "--budget", "min"}, 0, "; 64 MiB more would save ", NULL},
    {"by a linear program, or why there is none", {PLAN, "--certify"}, 0, "certified: ", NULL},
    {"simulated",
     {LLAMA},
     0,
     "above the lower bound for this machine model (h100x8), budget,",
     NULL},
    {"trained",
     {"train", "m.onnx", "--data", "x=synthetic", "--data", "labels=zeros", "--steps", "1",
      "--no-save", "--ranks", "2"},
     0,
     NULL,
     "predicted; at most "},
    {"another policy makes no claim",
     {PLAN, "--policy", "fsdp", "--format", "json"},
     0,
     "\"certificate\":null,\n\"robust\":null",
     NULL},
    {"no certificate of it",
     {PLAN, "--policy", "fsdp", "--certify"},
     2,
     NULL,
     "--certify: policy 'fsdp' makes no claim"},
    {"but robustness", {PLAN, "--policy", "fsdp", "--jitter"}, 0, "\nrobust: p95 ", NULL},
    {"memory", {PLAN, "--objective", "memory"}, 0, "no more of it is taken than pays", NULL},
    {"memory within a budget",
     {PLAN, "--objective", "memory", "--budget", "1GB"},
     0,
     "budget 954 MiB (no more of it is taken than pays)",
     NULL},
    {"time where no budget was asked for", {PLAN, "--objective", "time"}, 0, "(the default)", NULL},
    {"another objective",
     {PLAN, "--objective", "bytes"},
     2,
     NULL,
     "--objective is time or memory, not 'bytes'"},
    {"of another policy",
     {PLAN, "--policy", "fsdp", "--objective", "time"},
     2,
     NULL,
     "--objective: policy 'fsdp' has no objective"},
    {"a pin", {PLAN, "--pin", "m.lm_head.weight"}, 0, "\n--pin 'm.lm_head.weight' costs ", NULL},
    {"several",
     {PLAN, "--pin", "*.bias", "--pin", "*ln_1*"},
     0,
     "\n--pin '*.bias' --pin '*ln_1*' costs ",
     NULL},
    {"a pin that is none",
     {PLAN, "--pin", "m.lm_head.wieght"},
     2,
     NULL,
     "--pin: no parameter is named 'm.lm_head.wieght'; the nearest is 'm.lm_head.weight'"},
    {"a tied name", {PLAN, "--pin", "*wte*"}, 2, NULL, "it is tied to 'm.lm_head.weight'"},
    {"one of two is none", {PLAN, "--pin", "*", "--pin", "q"}, 2, NULL, "is named 'q'"},
    {"a pin on one rank",
     {"plan", GPT2, "--ranks", "1", "--pin", "*"},
     2,
     NULL,
     "--pin: on one rank nothing is gathered"},
    {"a pin below stage 3",
     {PLAN, "--stage", "2", "--pin", "*"},
     2,
     NULL,
     "--pin: at ZeRO stage 2 parameters are whole anyway"},
    {"a limit that nothing fits in",
     {PLAN, "--config", "small.json"},
     4,
     NULL,
     "\ntry: a larger stage3_max_live_parameters, or none\n"},
    {"limits of the config",
     {PLAN, "--config", "limits.json"},
     0,
     "\nstage3_max_live_parameters 20000 costs ",
     NULL},
    {"all of them", {PLAN, "--config", "limits.json"}, 0, "\nreduce_bucket_size 500 costs ", NULL},
    {"as it is written", {PLAN, "--config", "limits.json"}, 0, "\noverlap_comm false costs ", NULL},
    {"on one rank they cost nothing",
     {"plan", GPT2, "--config", "limits.json"},
     0,
     "binding: compute\n",
     NULL},
    {"a budget that is too small", {PLAN, "--budget", "100KB"}, 4, NULL, "\ntry: --budget "},
};

// ---- figures ------------------------------------------------------------------------------------

// Bounds are bounds, a limit's cost is what planning without it gives, and draws are the same ones.
static void test_figures(void **state)
{
    static const char *const with[] = {PLAN,       "--budget", "1GB",  "--config", "live.json",
                                       "--jitter", "--format", "json", NULL},
                             *const without[] = {PLAN, "--budget", "1GB", "--format", "json", NULL};
    (void)state;
    json_t *a = cli_json(with), *again = cli_json(with), *b = cli_json(without);
    const json_t *c = json_object_get(a, "certificate"), *robust = json_object_get(a, "robust"),
                 *limit = json_array_get(json_object_get(c, "limits"), 0);
    const double step = cli_number(c, "step_seconds"), bound = cli_number(c, "bound_seconds"),
                 slow = cli_number(robust, "slow_rank_seconds"),
                 jitter = cli_number(robust, "op_jitter_p95_seconds");
    assert_true(bound > 0 && bound <= step * (1 + 1e-9));
    assert_true(fabs(cli_number(c, "gap") - (step / bound - 1)) < 1e-5);
    assert_true(fabs(step - cli_number(a, "step_seconds")) <= 1e-8 * step);
    assert_true(fabs(cli_number(limit, "costs_seconds") - (step - cli_number(b, "step_seconds"))) <
                1e-6 * step);
    assert_true(cli_number(limit, "saves_bytes") ==
                cli_number(b, "peak_bytes") - cli_number(a, "peak_bytes"));
    // A tenth more compute is at most a tenth of the step, and jitter of many ops is less than
    // that.
    assert_true(slow > step && slow <= 1.1001 * step);
    assert_true(jitter > step && jitter < slow);
    assert_true(json_equal(a, again));
    assert_true(json_is_null(json_object_get(c, "more_saves_seconds"))); // most of 1 GB is unused
    json_decref(a);
    json_decref(again);
    json_decref(b);
}

// The rule of docs/PLANNING.md.
static void test_objective(void **state)
{
    (void)state;
    static const char *const fast[] = {PLAN,   "--budget", "1GB",  "--objective",
                                       "time", "--format", "json", NULL},
                             *const less[] = {PLAN,     "--budget", "1GB",  "--objective",
                                              "memory", "--format", "json", NULL},
                             *const usual[] = {PLAN, "--budget", "1GB", "--format", "json", NULL};
    json_t *a = cli_json(fast), *b = cli_json(less), *c = cli_json(usual);
    assert_true(cli_number(b, "peak_bytes") < cli_number(a, "peak_bytes"));
    assert_true(cli_number(b, "step_seconds") <= 1.05 * cli_number(a, "step_seconds"));
    assert_true(json_equal(a, c));
    json_decref(a);
    json_decref(b);
    json_decref(c);
}

// ---- ways out -----------------------------------------------------------------------------------

#define MOST_WORDS 6

// The next way of a hint as arguments; NULL: there is none left.
static const char *next_way(const char *at, char words[MOST_WORDS][80], int *n)
{
    const char *end = strstr(at, " (");
    *n = 0;
    if (end == NULL) return NULL;
    while (at < end && *n < MOST_WORDS) {
        const size_t len = strcspn(at, " \n");
        snprintf(words[(*n)++], 80, "%.*s", (int)len, at);
        at += len + (at[len] == ' ');
    }
    const char *after = strchr(end, ')');
    assert_non_null(after);
    if (strncmp(after, "), ", 3) == 0) return after + 3;
    if (strncmp(after, ") or ", 5) == 0) return after + 5;
    return after + 1;
}

static const struct refused {
    const char *name;
    const char *args[CLI_ARGS];
    const char *ways[3]; // how they begin
    bool large;          // left out where few rows are asked for
} refusals[] = {
    {"a file's", {PLAN, "--budget", "100KB"}, {"--budget"}},
    {"all recomputed", {PLAN, "--budget", "2MB", "--recompute", "auto"}, {"--budget", "--ranks "}},
    {"a preset",
     {LLAMA, "--budget", "22GB"},
     {"--budget", "--recompute full", "--machine h100x16"},
     true},
    {"a batch", {MLP8, "--batch", "256", "--budget", "500KB"}, {"--budget", "--batch "}},
    {"more ranks",
     {MLP8, "--batch", "1", "--budget", "80KB"},
     {"--budget", "--machine h100 --ranks "}},
    {"a stage",
     {"plan", GPT2, "--ranks", "4", "--stage", "0", "--budget", "6MB"},
     {"--budget", "--stage "}},
};

static void test_ways(void **state)
{
    const struct refused *k = *state;
    static cli_result r, tried;
    char words[MOST_WORDS][80];
    int n = 0, ways = 0;
    cli_run(k->args, &r);
    cli_expect(&r, 4, NULL, "a rank needs at least ");
    const char *at = strstr(r.err, "\ntry: ");
    assert_non_null(at);
    at += 6;
    for (const char *next; (next = next_way(at, words, &n)) != NULL; at = next, ways++) {
        const char *args[CLI_ARGS] = {NULL};
        int argc = 0;
        assert_true(ways < 3);
        if (k->ways[ways] != NULL && strncmp(at, k->ways[ways], strlen(k->ways[ways])) != 0)
            fail_msg("not '%s': %s", k->ways[ways], at);
        while (k->args[argc] != NULL) {
            args[argc] = k->args[argc];
            argc++;
        }
        for (int i = 0; i < n; i++) args[argc++] = words[i];
        cli_run(args, &tried);
        if (tried.code != 0) fail_msg("'%s' doesn't do: %s", words[0], tried.err);
    }
    for (int i = 0; i < 3 && k->ways[i] != NULL; i++)
        if (i >= ways) fail_msg("no '%s': %s", k->ways[i], r.err);
}

// What a configuration would have to say isn't an argument.
static void test_batch_of_a_file(void **state)
{
    static const char *const args[] = {"plan",     "m.onnx", "--config", "eight.json",
                                       "--budget", "600KB",  NULL};
    static cli_result r;
    (void)state;
    cli_run(args, &r);
    cli_expect(&r, 4, NULL, "train_micro_batch_size_per_gpu ");
    cli_expect(&r, 4, NULL, " and gradient_accumulation_steps ");
}

static int make_files(void **state)
{
    static const char *const make[] = {"new", "mlp", "-o", "m.onnx", NULL};
    static cli_result r;
    if (cli_setup(state) != 0) return 1;
    cli_write("limits.json",
              "{\"zero_optimization\": {\"stage\": 3, \"stage3_max_live_parameters\": 20000, "
              "\"reduce_bucket_size\": 500, \"overlap_comm\": false}}");
    cli_write("live.json",
              "{\"zero_optimization\": {\"stage\": 3, \"stage3_max_live_parameters\": 20000}}");
    cli_write("small.json",
              "{\"zero_optimization\": {\"stage\": 3, \"stage3_max_live_parameters\": 9000}}");
    cli_write("eight.json",
              "{\"zero_optimization\": {\"stage\": 3}, \"train_micro_batch_size_per_gpu\": 256}");
    cli_run(make, &r);
    return r.code;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(refusals) + 3];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(refusals); i++)
        if (!test_few() || !refusals[i].large)
            tests[n++] = zx_case(refusals[i].name, test_ways, &refusals[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_figures);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_objective);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_batch_of_a_file);
    return _cmocka_run_group_tests("certificate", tests, n, make_files, cli_teardown);
}

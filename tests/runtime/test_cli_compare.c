// test_cli_compare.c - zerox compare from outside: what is refused, what the table says, that every
// policy executed gives the same losses, and what programs read of it.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/runtime/cli_json.h"

#define PLAIN ZX_TEST_DATA "/hooks/plain.onnx"
#define COMPARE "compare", PLAIN, "--config", "c.json", "--threads", "1"
#define TWO COMPARE, "--ranks", "2"
#define EXECUTE_MANY "--data", "ids=synthetic", "--execute"
#define EXECUTE EXECUTE_MANY, "--steps", "9"

static const cli_row rows[] = {
    {"the fastest is marked", {TWO}, 0, "1.00x fastest", NULL},
    {"what isn't executed says so", {TWO}, 0, "predicted for this host: --execute runs them", NULL},
    {"another machine is simulated",
     {COMPARE, "--machine", "h100x16"},
     0,
     "16 ranks, 1 micro-batch a step\nSIMULATED on h100x16\n",
     NULL},
    {"a link",
     {TWO, "--bandwidth", "0.5GB/s", "--latency", "0.2ms"},
     0,
     "link 0.5 GB/s and 200 us a collective",
     NULL},
    {"some policies, in the table's order", {TWO, "--policies", "zerox,fsdp"}, 0, "\nfsdp ", NULL},
    {"both forms of a word", {TWO, "--policies", "hooks"}, 0, "\nhooks, as DeepSpeed ", NULL},
    {"over the budget", {TWO, "--budget", "min"}, 0, "OVER by ", NULL},
    {"nothing fits", {TWO, "--budget", "1KB"}, 4, "bound: without a budget, as nothing", NULL},
    {"and what the least would be",
     {TWO, "--budget", "1KB"},
     4,
     NULL,
     "zerox: nothing fits into 0.98 KiB a rank: the least is "},
    {"nothing in a sweep does",
     {TWO, "--policies", "ddp,zerox", "--sweep", "budget=1KB,10KiB"},
     4,
     "        10KiB\n",
     "nothing fits into 10.0 KiB a rank: the least is "},
    {"a preset",
     {"compare", "llama3-8b", "--machine", "h100x8", "--policy", "fsdp,ddp", "--seq", "512"},
     0,
     "8 ranks, 1 micro-batch a step\nSIMULATED on h100x8\n",
     NULL},
    {"a preset on no machine",
     {"compare", "llama3-8b"},
     2,
     NULL,
     "compare llama3-8b: on which --machine?\ntry: --machine h100x32"},
    {"no such preset",
     {"compare", "llama3-7b", "--machine", "h100"},
     2,
     NULL,
     "did you mean llama3-8b?"},
    {"a preset executed",
     {"compare", "llama3-8b", "--execute"},
     2,
     NULL,
     "--execute runs a file: llama3-8b is known by name only"},
    {"a sequence of a file", {TWO, "--seq", "9"}, 2, NULL, "--seq is of a preset"},
    {"no such format", {TWO, "--format", "trace"}, 2, NULL, "--format of compare is text or json"},
    {"its words as elsewhere",
     {TWO, "--policy", "ddp,zerox", "--format", "json"},
     0,
     "\"policies\"",
     NULL},
    {"DeepSpeed's limits know no bytes",
     {TWO, "--budget", "min", "--policies", "hooks,zerox"},
     0,
     "hooks: DeepSpeed's limits count elements and take no notice of memory",
     NULL},
    {"what the planner has no plan for",
     {TWO, "--budget", "10KiB", "--policies", "ddp,zerox"},
     4,
     "zerox: no plan: a rank needs at least",
     NULL},
    {"nothing can be planned",
     {TWO, "--budget", "10KiB", "--policies", "zerox"},
     4,
     NULL,
     "a rank needs at least"},
    {"sums in another order",
     {COMPARE, "--ranks", "2", "--config", "sum.json"},
     0,
     "ddp, once a step ",
     NULL},
    {"and why",
     {COMPARE, "--ranks", "2", "--config", "sum.json"},
     0,
     "ddp and zero1 reduce in every micro-batch here",
     NULL},
    {"one rank has nothing to compare",
     {COMPARE},
     0,
     "one rank: nothing is communicated, so there is nothing to compare",
     NULL},
    {"recomputed by all",
     {TWO, "--recompute", "full", "--policies", "ddp,zerox"},
     0,
     "1.00x fastest",
     NULL},
    {"auto is a row more",
     {TWO, "--recompute", "auto", "--policies", "ddp,zerox"},
     0,
     "\nzerox, recompute auto ",
     NULL},
    {"and what it decided",
     {TWO, "--recompute", "auto", "--policies", "ddp,zerox"},
     0,
     "\nzerox, recompute auto: nothing is recomputed\n",
     NULL},
    {"in a sweep, too",
     {TWO, "--recompute", "auto", "--policies", "ddp,zerox", "--sweep", "budget=10KiB,1GB"},
     0,
     "\nzerox, recompute auto ",
     NULL},
    {"of zerox alone",
     {TWO, "--recompute", "auto", "--policies", "zerox"},
     0,
     "alone within the budget",
     NULL},
    {"budgets", {TWO, "--sweep", "budget=40KiB,1GB"}, 0, "  40KiB  ", NULL},
    {"bandwidths", {TWO, "--sweep", "bandwidth=0.1GB/s,1GB/s"}, 0, "  0.1GB/s  ", NULL},
    {"no modules in the file",
     {"compare", "mlp.onnx", "--ranks", "2", "--dim", "batch=4"},
     0,
     "1.00x fastest",
     NULL},
    {"executed, one after the other",
     {TWO, EXECUTE, "--policies", "ddp,zerox", "--memory-left", "300KiB"},
     0,
     "losses identical: yes (3 steps of 2 policies)",
     "round 9 of 9: a step of each of 2 policies; a round takes "},
    {"what doesn't fit into memory isn't executed",
     {TWO, EXECUTE, "--policies", "ddp,zerox", "--memory-left", "212KiB"},
     0,
     "not executed: takes 98.8 KiB, 0.8 of what is left is 84.8 KiB",
     NULL},
    {"nothing does",
     {TWO, EXECUTE, "--memory-left", "20KiB"},
     4,
     NULL,
     "none of the plans fits into the memory that is left"},
    {"executed on one rank", {COMPARE, EXECUTE}, 0, "9 steps of each policy timed after 2", NULL},
    {"executed by the schedule: the optimizer's own rate would diverge",
     {"compare", PLAIN, "--threads", "1", "--ranks", "2", "--config", "warm.json", EXECUTE,
      "--policies", "ddp,zerox"},
     0,
     "losses identical: yes",
     "optimizer.params.lr has no effect"},
    {"executed until medians are known",
     {TWO, EXECUTE_MANY, "--policies", "ddp,zerox"},
     0,
     "measured is the median, known to",
     NULL},
    {"opened anew, and how long that takes",
     {TWO, EXECUTE, "--policies", "ddp,zerox", "--memory-left", "300KiB"},
     0,
     NULL,
     "each is opened and warmed up anew in every round, 9 rounds"},
    {"no data to execute with", {TWO, "--execute"}, 3, NULL, "no data for 'ids'"},
    {"what gives some",
     {TWO, "--execute"},
     3,
     NULL,
     "try: zerox compare " PLAIN " --execute --data ids=synthetic"},
    {"a policy misspelt", {TWO, "--policies", "hoks"}, 2, NULL, "the nearest is 'hooks'"},
    {"no policy", {TWO, "--policies", ""}, 2, NULL, "unknown policy ''"},
    {"a rate without time",
     {TWO, "--bandwidth", "1GB"},
     2,
     NULL,
     "--bandwidth needs a rate like 0.5GB/s, not '1GB'"},
    {"no rate", {TWO, "--bandwidth", "0GB/s"}, 2, NULL, "--bandwidth needs a rate"},
    {"no time", {TWO, "--latency", "fast"}, 2, NULL, "--latency needs a time like 0.2ms"},
    {"steps of nothing", {TWO, "--steps", "10"}, 2, NULL, "--execute"},
    {"too few steps", {TWO, EXECUTE_MANY, "--steps", "8"}, 2, NULL, "9 to 100000 steps"},
    {"executed elsewhere", {TWO, EXECUTE, "--machine", "h100"}, 2, NULL, "leave --machine out"},
    {"swept and executed",
     {TWO, EXECUTE, "--sweep", "budget=1GB"},
     2,
     NULL,
     "--sweep is simulated"},
    {"a sweep over nothing",
     {TWO, "--sweep", "latency=1ms"},
     2,
     NULL,
     "--sweep is budget=SIZE,SIZE"},
    {"a sweep without values", {TWO, "--sweep", "budget="}, 2, NULL, "a size like 24GB, not ''"},
    {"a sweep with a hole",
     {TWO, "--sweep", "bandwidth=1GB/s,,2GB/s"},
     2,
     NULL,
     "a rate like 0.5GB/s, not ''"},
    {"no such machine", {TWO, "--machine", "h10"}, 2, NULL, "there is no machine 'h10'"},
    {"a report that can't be written", {TWO, "--report", "gone/r.html"}, 1, NULL, "gone/r.html"},
    {"a report of nothing",
     {TWO, "--policies", "zerox", "--sweep", "budget=10KiB", "--report", "r.html"},
     4,
     NULL,
     "there is no plan to draw"},
    {"the model isn't there", {"compare", "gone.onnx"}, 1, NULL, "gone.onnx"},
};

// ---- as JSON ------------------------------------------------------------------------------------

static const char *string(const json_t *x, const char *name)
{
    const json_t *v = json_object_get(x, name);
    if (!json_is_string(v)) fail_msg("no string '%s'", name);
    return json_string_value(v);
}

static const struct run_row {
    const char *name, *ranks, *config, *latency;
    size_t executed;
} run_rows[] = {
    {"two ranks: every policy gives the same bits", "2", "c.json", "0s", 11},
    {"three ranks, two micro-batches", "3", "sum.json", "0s", 11},
    {"two ranks behind a link", "2", "c.json", "2ms", 11},
};

// What was timed is above the wire's share of the bound (pacing only ever sleeps longer), and every
// executed policy touched all of its reservation and not more.
static void look_at_policy(const json_t *p, double wire)
{
    const json_t *m = json_object_get(p, "measured");
    const json_t *steps = json_object_get(m, "step_seconds");
    assert_int_equal(json_array_size(steps), 9);
    double least = INFINITY;
    for (size_t i = 0; i < 9; i++) least = fmin(least, json_number_value(json_array_get(steps, i)));
    assert_true(least == cli_number(m, "min_seconds"));
    assert_true(least <= cli_number(m, "median_seconds"));
    if (least < wire) fail_msg("%s took %g s, its wire alone %g", string(p, "name"), least, wire);
    assert_true(cli_number(m, "peak_bytes") == cli_number(p, "peak_bytes"));
    assert_true(cli_number(p, "predicted_seconds") > 0);
}

static void test_run(void **state)
{
    const struct run_row *row = *state;
    const char *const args[] = {"compare",    PLAIN,     "--config", row->config, "--threads",
                                "1",          "--ranks", row->ranks, EXECUTE,     "--latency",
                                row->latency, "--json",  NULL};
    json_t *all = cli_json(args);
    const json_t *e = json_object_get(all, "execution"), *list = json_object_get(all, "policies");
    assert_true(json_is_true(json_object_get(e, "losses_identical")));
    assert_true(json_is_null(json_object_get(e, "losses_differ")));
    assert_true(json_is_false(json_object_get(all, "simulated")));
    assert_int_equal(json_array_size(json_object_get(e, "losses")), 11);
    const double wire = cli_number(json_object_get(all, "bound"), "wire_seconds");
    size_t executed = 0, fastest = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        fastest += json_is_true(json_object_get(p, "fastest"));
        if (json_is_false(json_object_get(p, "executable"))) {
            assert_string_equal(string(p, "form"), "once a step");
            assert_true(json_is_null(json_object_get(p, "measured")));
            continue;
        }
        look_at_policy(p, wire);
        executed++;
    }
    assert_int_equal(executed, row->executed);
    assert_int_equal(fastest, 1);
    json_decref(all);
}

static void test_simulated(void **state ZX_UNUSED)
{
    const char *const args[] = {COMPARE, "--machine", "a100-80x8", "--budget",
                                "1GB",   "--json",    NULL};
    json_t *all = cli_json(args);
    assert_true(json_is_true(json_object_get(all, "simulated")));
    assert_true(json_is_null(json_object_get(all, "execution")));
    assert_string_equal(string(all, "machine"), "a100-80x8");
    assert_true(cli_number(all, "budget_bytes") == 1e9);
    const double bound = cli_number(json_object_get(all, "bound"), "seconds");
    const json_t *list = json_object_get(all, "policies");
    assert_int_equal(json_array_size(list), 11);
    for (size_t i = 0; i < 11; i++) {
        const json_t *p = json_array_get(list, i);
        assert_true(cli_number(p, "predicted_seconds") >= bound);
        assert_true(cli_number(p, "ratio") >= 1 && cli_number(p, "over_bound") >= 0);
    }
    json_decref(all);
}

// More memory is never slower for the planner's own, and the bound falls with it.
static void test_sweep(void **state ZX_UNUSED)
{
    const char *const args[] = {TWO,
                                "--policies",
                                "zerox,ddp",
                                "--bandwidth",
                                "0.01GB/s",
                                "--sweep",
                                "budget=20KiB,64KiB,1MiB",
                                "--json",
                                NULL};
    json_t *all = cli_json(args);
    const json_t *points = json_object_get(all, "points");
    double before = INFINITY;
    assert_string_equal(string(all, "sweep"), "budget");
    assert_int_equal(json_array_size(points), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *c = json_object_get(json_array_get(points, i), "comparison");
        const double bound = cli_number(json_object_get(c, "bound"), "seconds");
        const json_t *ddp = json_array_get(json_object_get(c, "policies"), 0);
        assert_true(cli_number(c, "budget_bytes") ==
                    cli_number(json_array_get(points, i), "value"));
        assert_string_equal(string(ddp, "policy"), "ddp");
        assert_int_equal(cli_number(ddp, "over_budget_bytes") > 0, i < 2);
        assert_true(bound <= before);
        if (i > 0) before = bound; // nothing has room in 20 KiB
    }
    json_decref(all);
}

// ---- the report, a signal -----------------------------------------------------------------------

static void test_report(void **state ZX_UNUSED)
{
    cli_result r;
    char page[60000];
    const char *const args[] = {TWO, EXECUTE, "--policies", "ddp,fsdp", "--report", "r.html", NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "losses identical: yes (11 steps of 2 policies)", "written: r.html");
    cli_read("r.html", page, sizeof page);
    assert_non_null(strstr(page, "<html"));
    const char *const swept[] = {TWO, "--sweep", "budget=80KiB,1MB", "--report", "s.html", NULL};
    cli_run(swept, &r);
    cli_expect(&r, 0, "bound", "written: s.html");
}

// What was measured by then is shown.
static void test_interrupted(void **state ZX_UNUSED)
{
    cli_result r;
    const char *const args[] = {TWO,          EXECUTE_MANY, "--steps", "100000",
                                "--policies", "ddp,zerox",  NULL};
    unlink(".err"); // the run before wrote there too
    const pid_t pid = cli_start(args);
    char err[60000] = "";
    for (wait_limit w = {0}; strstr(err, " of 2 policies\n") == NULL; wait_more(&w, "it begins"))
        cli_read(".err", err, sizeof err);
    kill(pid, SIGINT);
    cli_end(pid, &r);
    cli_expect(&r, 130, "interrupted: ", NULL);
    cli_expect(&r, 130, "1.00x fastest", NULL);
    cli_expect(&r, 130, "losses identical: yes", NULL);
}

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    setenv("ZX_NO_CALIBRATE", "1", 1);
    cli_write("c.json", "{\"zero_optimization\": {\"stage\": 3}}");
    cli_write("warm.json", "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e30}}, "
                           "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                           "{\"warmup_max_lr\": 0.001, \"warmup_num_steps\": 2}}}");
    cli_write("sum.json", "{\"zero_optimization\": {\"stage\": 3}, \"optimizer\": {\"type\": "
                          "\"AdamW\", \"params\": {\"lr\": 0.001}}, "
                          "\"gradient_accumulation_steps\": 2}");
    cli_result r;
    const char *const args[] = {"new", "mlp", "--preset", "digits", "-o", "mlp.onnx", NULL};
    cli_run(args, &r);
    return r.code;
}

int main(void)
{
    const struct CMUnitTest plain[] = {cmocka_unit_test(test_simulated),
                                       cmocka_unit_test(test_sweep), cmocka_unit_test(test_report),
                                       cmocka_unit_test(test_interrupted)};
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(run_rows) + ZX_COUNT(plain)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, cli_test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(run_rows); i++)
        tests[n++] = zx_case(run_rows[i].name, test_run, &run_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(plain); i++) tests[n++] = plain[i];
    return _cmocka_run_group_tests("tests", tests, n, make_files, cli_teardown);
}

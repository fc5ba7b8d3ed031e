// test_cli_monitor.c - what runs leave for TensorBoard and as CSV is what log.jsonl says, also
// after a crash and on a full disk.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cli.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <sys/resource.h>

#include "runtime/monitor.h"
#include "tests/runtime/cli_json.h"
#include "tests/runtime/events.h"

#define DIGITS "train", ZX_SOURCE "/models/digits/model.onnx", "--threads", "1", "--no-save"
#define CONFIG "--config", "monitors.json"
enum { BATCH = 64, STEPS = 5 };

static event_file events;

static const char *event_path(const char *folder)
{
    static char path[512];
    DIR *d = opendir(folder);
    path[0] = '\0';
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0)
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (d != NULL) closedir(d);
    if (path[0] == '\0') fail_msg("no event file in %s", folder);
    return path;
}

static void near(double a, double b, const char *what)
{
    if (!(fabs(a - b) <= 2e-7 * fabs(b))) fail_msg("%s: %.9g, not %.9g", what, a, b);
}

static double csv_get(const char *tag, uint64_t step)
{
    char path[256], line[256];
    double found = NAN;
    snprintf(path, sizeof path, "csv/job/Train_Samples_%s.csv", tag);
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("no %s", path);
    for (int i = 0; fgets(line, sizeof line, f) != NULL; i++) {
        char want[160];
        unsigned long long at;
        double v;
        snprintf(want, sizeof want, "step,%s\n", tag);
        if (i == 0) assert_string_equal(line, want);
        if (i > 0 && sscanf(line, "%llu,%lf", &at, &v) != 2) fail_msg("%s: %s", path, line);
        if (i > 0 && at == step) found = v;
    }
    fclose(f);
    return found;
}

// A figure of each of a log's first n steps.
static void read_figure(const char *path, const char *name, uint32_t n, double *to)
{
    char line[2000], key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("no %s", path);
    for (uint32_t i = 0; i < n; i++) {
        const char *at = fgets(line, sizeof line, f) != NULL ? strstr(line, key) : NULL;
        if (at == NULL) fail_msg("%s: no %s of step %u", path, name, i + 1);
        to[i] = strtod(at + strlen(key), NULL);
    }
    fclose(f);
}

static void every_sink_has_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *tag, *key;
    } rows[] = {{"train_loss", "loss"},
                {"lr", "lr"},
                {"grad_norm", "grad_norm"},
                {"clip_factor", "clip_factor"},
                {"samples_per_second", "samples_per_second"}};
    cli_result r;
    char line[1000], tag[64];
    const char *const args[] = {DIGITS, CONFIG,  "--steps", "5", "--ranks",
                                "2",    "--out", "run",     NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", "done: 5 steps");
    assert_non_null(strstr(r.err, "→1.00 lr ")); // clipped at 1
    events_read(event_path("tb/DeepSpeedJobName"), &events);
    assert_int_equal(events.n_records, STEPS + 1);
    FILE *f = fopen("run/log.jsonl", "r");
    assert_non_null(f);
    for (uint64_t step = 1; fgets(line, sizeof line, f) != NULL; step++) {
        json_t *row = json_loads(line, 0, NULL);
        const double norm = json_number_value(json_object_get(row, "grad_norm"));
        const double factor = json_number_value(json_object_get(row, "clip_factor"));
        near(factor, norm > 1 ? 1 / (norm + 1e-6) : 1, "the clip factor"); // the norm is before it
        assert_int_equal(json_integer_value(json_object_get(row, "step")), step);
        for (size_t i = 0; i < ZX_COUNT(rows); i++) {
            const double want = json_number_value(json_object_get(row, rows[i].key));
            snprintf(tag, sizeof tag, "Train/Samples/%s", rows[i].tag);
            near(events_get(&events, tag, step * BATCH), want, tag);
            near(csv_get(rows[i].tag, step * BATCH), want, tag);
        }
        json_decref(row);
    }
    fclose(f);
    assert_true(events_get(&events, "Train/Samples/clip_factor", BATCH) < 1);
}

// Runs append to CSV files and have an event file each.
static void another_run_adds_to_them(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {DIGITS, CONFIG, "--steps", "2", "--out", "second", NULL};
    const int lines = cli_lines("csv/job/Train_Samples_lr.csv");
    cli_run(args, &r);
    cli_expect(&r, 0, "", NULL);
    assert_int_equal(cli_lines("csv/job/Train_Samples_lr.csv"), lines + 2);
    assert_int_equal(system("test $(ls tb/DeepSpeedJobName | wc -l) = 2"), 0);
}

static void a_crash_leaves_whole_records(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {DIGITS,      "--config", "crash.json", "--steps",
                                "100000000", "--out",    "crash",      NULL};
    const pid_t pid = cli_start(args);
    for (wait_limit w = {0}; cli_lines("crash/log.jsonl") < 20;) wait_more(&w, "20 steps");
    kill(pid, SIGKILL);
    cli_end(pid, &r);
    assert_int_equal(r.code, 1000 + SIGKILL);
    events_read(event_path("crashed"), &events);
    assert_true(events.n_records >= 20);
}

static void a_sink_that_is_full_is_told_of(void **state)
{
    (void)state;
    cli_result r;
    if (access("/dev/full", W_OK) != 0) return;
    assert_int_equal(system("mkdir -p full && ln -sf /dev/full full/Train_Samples_lr.csv"), 0);
    const char *const args[] = {DIGITS, "--config", "full.json", "--steps",
                                "3",    "--out",    "fullrun",   NULL};
    cli_run(args, &r);
    cli_expect(
        &r, 1, "",
        "note: cannot write ./full/Train_Samples_lr.csv: No space left on device: no more is "
        "written there, training goes on\n");
    cli_expect(&r, 1, "", "done: 3 steps");
    cli_expect(&r, 1, "",
               "zerox: cannot write ./full/Train_Samples_lr.csv: No space left on "
               "device: steps 1 to 3 are missing there\ntry: room");
    assert_int_equal(cli_lines("fullrun/log.jsonl"), 3);
}

static void what_cannot_be_made_is_said_before_the_first_step(void **state)
{
    (void)state;
    cli_result r;
    cli_write("here", "");
    const char *const args[] = {DIGITS, "--config", "nowhere.json", "--steps",
                                "3",    "--out",    "nowhere",      NULL};
    cli_run(args, &r);
    cli_expect(&r, 1, "", "zerox: here is not a folder");
    assert_null(strstr(r.err, "step 1/3"));
}

// The file of a run that is gone on with is its own; that of another one isn't written over.
static void modules_are_profiled(void **state)
{
    (void)state;
    cli_result r;
    static char tables[20000];
    const char *args[] = {DIGITS,         "--config", "profile.json", "--steps",  "3",
                          "--save-every", "3",        "--out",        "profiled", NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", "done: 3 steps");
    cli_read("modules.txt", tables, sizeof tables);
    assert_non_null(strstr(tables, "fc"));
    cli_run(args, &r);
    cli_expect(&r, 2, "", "output_file: modules.txt exists already");
    const char *const on[] = {"train", "--resume", "profiled", "--steps", "5", NULL};
    const char *const on_more[] = {"train", "--resume", "profiled", "--steps", "6", NULL};
    cli_run(on, &r);
    cli_expect(&r, 0, "", "done: 5 steps");
    cli_write("modules.txt", "mine");
    cli_run(on_more, &r);
    cli_expect(&r, 0, "", "done: 6 steps, 1 of them now");
    cli_read("modules.txt", tables, sizeof tables);
    assert_string_equal(tables, "mine"); // it was measured in the run's second step, and no more
    const char *const no_folder[] = {DIGITS, "--config", "lost.json", "--steps", "3", NULL};
    cli_run(no_folder, &r);
    cli_expect(&r, 1, "", "cannot write into nowhere_at_all: No such file or directory");
    assert_null(strstr(r.err, "step 1/3"));
}

// ---- where a step goes --------------------------------------------------------------------------

// Of the table's line of a module: its parameters and operations, as they are printed.
static void expect_module(const char *table, const char *path, const char *params, const char *fwd,
                          const char *bwd)
{
    char name[80], a[32], b[32], c[32];
    for (const char *at = strstr(table, "\nmodule "); at != NULL; at = strchr(at + 1, '\n')) {
        if (sscanf(at, " %79s %31s %31s %31s", name, a, b, c) != 4 || strcmp(name, path) != 0)
            continue;
        assert_string_equal(a, params);
        assert_string_equal(b, fwd);
        assert_string_equal(c, bwd);
        return;
    }
    fail_msg("no module '%s' in: %s", path, table);
}

// 2 x 64 tokens, width 64, vocabulary 256, 2 blocks: what is fused is its own modules' all the
// same.
static void modules_have_their_own(void **state)
{
    (void)state;
    cli_result r;
    static char table[20000];
    const char *const args[] = {"train",
                                ZX_TEST_DATA "/cases/gpt2_default_export/model.onnx",
                                "--threads",
                                "1",
                                "--no-save",
                                "--config",
                                "modules.json",
                                "--steps",
                                "2",
                                NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", "done: 2 steps");
    cli_read("of_gpt2.txt", table, sizeof table);
    // A product is 2 m n k forward and twice that backward, and its bias is added up in between.
    expect_module(table, "c_attn", "12.5k", "3.15M", "6.32M"); // 2 * 128 * 64 * 192, + 128 * 192
    expect_module(table, "c_fc", "16.6k", "4.19M", "8.42M");   // 2 * 128 * 64 * 256, + 128 * 256
    expect_module(table, "wte", "0", "0", "8.19k");            // the tied weight is the head's
    expect_module(table, "lm_head", "16.4k", "0", "12.6M");    // 3 * 2 * 128 * 64 * 256
    expect_module(table, "h.1", "50.0k", "13.3M", "26.7M");    // a whole block
}

// Parts of a step's time, one line for each step that is printed; nothing else changes.
static void a_step_is_broken_down(void **state)
{
    (void)state;
    static cli_result with, without;
    const char *args[] = {DIGITS, "--config", "wall.json", "--steps",      "4", "--ranks",
                          "2",    "--out",    "wall",      "--save-every", "4", NULL};
    cli_run(args, &with);
    cli_expect(&with, 0, "", "done: 4 steps");
    uint32_t n = 0;
    double steps[5] = {0};
    read_figure("wall/log.jsonl", "step_seconds", 4, steps);
    for (const char *at = with.err; (at = strstr(at, "time (ms) | ")) != NULL; at++, n++) {
        double fwd, bwd, exposed, update;
        assert_int_equal(sscanf(at,
                                "time (ms) | fwd: %lf | bwd: %lf | exposed comm: %lf | step: %lf",
                                &fwd, &bwd, &exposed, &update),
                         4);
        assert_true(fwd > 0 && bwd > 0 && exposed >= 0 && update > 0);
        assert_true(fwd + bwd + update <= 1e3 * steps[2 * n + 1] + 0.02); // each is rounded
    }
    assert_int_equal(n, 2); // after steps 2 and 4
    args[6] = "plain.json";
    args[12] = "plain";
    cli_run(args, &without);
    cli_expect(&without, 0, "", "done: 4 steps");
    assert_null(strstr(without.err, "time (ms)"));
    double a[4], b[4];
    read_figure("wall/log.jsonl", "loss", 4, a);
    read_figure("plain/log.jsonl", "loss", 4, b);
    assert_memory_equal(a, b, sizeof a);
}

// ---- evaluation ---------------------------------------------------------------------------------

static void programs_read_of_evaluation(void **state)
{
    (void)state;
    const char *const with[] = {"plan",        ZX_SOURCE "/models/digits/model.onnx",
                                "--ranks",     "2",
                                "--format",    "json",
                                "--config",    "evaluated.json",
                                "--eval-data", "x=" ZX_SOURCE "/models/digits/x.npy",
                                "--eval-data", "labels=" ZX_SOURCE "/models/digits/labels.npy",
                                NULL};
    const char *const without[] = {
        "plan", ZX_SOURCE "/models/digits/model.onnx", "--ranks", "2", "--format", "json", NULL};
    setenv("ZX_NO_CALIBRATE", "1", 1); // whatever this host's speed
    json_t *all = cli_json(with);
    const json_t *e = json_object_get(all, "evaluation");
    assert_true(cli_number(e, "every") == 7);
    assert_true(cli_number(e, "micro_batches") >= 1);
    assert_true(cli_number(e, "peak_bytes") > 0);
    assert_true(cli_number(e, "predicted_seconds") > 0);
    json_decref(all);
    all = cli_json(without);
    assert_true(json_is_null(json_object_get(all, "evaluation")));
    json_decref(all);
    unsetenv("ZX_NO_CALIBRATE");
}

// ---- the monitor itself -------------------------------------------------------------------------

static void a_full_disk_cuts_no_record(void **state)
{
    (void)state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_monitor *m;
    struct rlimit was, less;
    const zx_monitor_options o = {.log = "/dev/null", .tensorboard = "limited"};
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    less = was;
    less.rlim_cur = 1000;
    assert_zx_ok(zx_monitor_open(&o, &mem, &m, &err), &err);
    setrlimit(RLIMIT_FSIZE, &less);
    uint64_t lost = 0;
    for (uint64_t step = 1; step <= 20; step++) {
        zx_figures f = {.step = step, .samples = 10 * step};
        zx_figure_set(&f, ZX_FIGURE_LOSS, (double)step);
        zx_figure_set(&f, ZX_FIGURE_LR, NAN);
        assert_zx_ok(zx_monitor_step(m, &f, &err), &err);
        const char *why = zx_monitor_lost(m);
        if (why == NULL) continue;
        assert_int_equal(lost, 0); // it is said once
        lost = step;
        assert_non_null(strstr(why, "File too large"));
    }
    setrlimit(RLIMIT_FSIZE, &was);
    assert_in_range(lost, 2, 19);
    assert_int_equal(zx_monitor_end(m, &err), ZX_E_IO);
    zx_monitor_close(m);
    events_read(event_path("limited"), &events);
    assert_int_equal(events.n_records, lost); // the version, and the steps before
    assert_true(isnan(events_get(&events, "Train/Samples/lr", 10)));
    zx_arena_free(&mem);
}

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    cli_write("monitors.json",
              "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 3},"
              " \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}},"
              " \"tensorboard\": {\"enabled\": true, \"output_path\": \"tb\"},"
              " \"csv_monitor\": {\"enabled\": true, \"output_path\": \"csv/\", \"job_name\": "
              "\"job\"}}");
    cli_write("crash.json", "{\"tensorboard\": {\"enabled\": true, \"job_name\": \"crashed\"}}");
    cli_write("full.json", "{\"csv_monitor\": {\"enabled\": true, \"job_name\": \"full\"}}");
    cli_write("profile.json",
              "{\"flops_profiler\": {\"enabled\": true, \"output_file\": \"modules.txt\"}}");
    cli_write("lost.json", "{\"flops_profiler\": {\"enabled\": true, \"output_file\": "
                           "\"nowhere_at_all/modules.txt\"}}");
    cli_write("modules.json",
              "{\"flops_profiler\": {\"enabled\": true, \"output_file\": \"of_gpt2.txt\"}}");
    cli_write("wall.json", "{\"wall_clock_breakdown\": true, \"steps_per_print\": 2}");
    cli_write("plain.json", "{\"steps_per_print\": 2}");
    cli_write("evaluated.json", "{\"zerox\": {\"eval\": {\"every\": 7}}}");
    cli_write("nowhere.json", "{\"csv_monitor\": {\"enabled\": true, \"output_path\": \"here\"}}");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sink_has_the_same),
        cmocka_unit_test(another_run_adds_to_them),
        cmocka_unit_test(a_crash_leaves_whole_records),
        cmocka_unit_test(a_sink_that_is_full_is_told_of),
        cmocka_unit_test(what_cannot_be_made_is_said_before_the_first_step),
        cmocka_unit_test(modules_are_profiled),
        cmocka_unit_test(modules_have_their_own),
        cmocka_unit_test(a_step_is_broken_down),
        cmocka_unit_test(programs_read_of_evaluation),
        cmocka_unit_test(a_full_disk_cuts_no_record),
    };
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}

// test_cli.c - the program from outside: exit codes, messages, where files go, and that they are
// whole or not there.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cli.h"

#define MLP ZX_TEST_DATA "/cases/mlp/model.onnx"
#define DIGITS ZX_SOURCE "/models/digits/model.onnx"

static const cli_row rows[] = {
    {"help goes to stdout", {"--help"}, 0, "usage: zerox COMMAND", NULL},
    {"help of a command", {"train", "--help"}, 0, "--budget SIZE", NULL},
    {"help with a model at hand", {"plan", "m.onnx", "-h"}, 0, "--instructions", NULL},
    {"version names libraries", {"--version"}, 0, "jansson", NULL},
    {"no command", {NULL}, 2, NULL, "zerox: no command given\nTry 'zerox --help'"},
    {"unknown option",
     {"train", "m.onnx", "--stepz", "3"},
     2,
     NULL,
     "zerox: unknown option '--stepz'; the nearest is '--steps'\nTry 'zerox train --help'"},
    {"steps and epochs", {"train", MLP, "--steps", "3", "--epochs", "2"}, 2, NULL, "give one"},
    {"no such model", {"train", "gone.onnx"}, 1, NULL, "gone.onnx"},
    {"no such config", {"train", MLP, "--config", "gone.json"}, 1, NULL, "gone.json"},
    {"not JSON", {"train", MLP, "--config", "broken.json"}, 2, NULL, "broken.json"},
    {"an unknown key",
     {"train", MLP, "--config", "odd.json"},
     2,
     NULL,
     "zerox: odd.json: unknown key 'gradient_clipp1ng'; the nearest is 'gradient_clipping'\ntry: "},
    {"a key that is refused",
     {"train", MLP, "--config", "half.json"},
     2,
     NULL,
     "half.json: fp16.fp16_master_weights_and_grads = true is not supported: "},
    {"the optimizer is judged with the rest",
     {"train", MLP, "--config", "both.json"},
     2,
     NULL,
     "is not supported: sequence parallelism isn't in this version; set it to 1 or remove "
     "it\nzerox: "
     "both.json: optimizer.type = \"Lamb\""},
    {"check judges the config too",
     {"check", MLP, "--config", "half.json"},
     2,
     NULL,
     "fp16.fp16_master_weights_and_grads"},
    {"a contradictory batch",
     {"train", MLP, "--config", "triad.json", "--ranks", "2"},
     2,
     NULL,
     "check the batch keys"},
    {"not a model", {"train", "broken.json"}, 3, NULL, "broken.json"},
    {"no data", {"train", "model.onnx"}, 3, NULL, "no data for 'x', 'labels'"},
    {"data that doesn't fit",
     {"train", MLP, "--data", "x=" ZX_TEST_DATA "/cases/mlp/labels.npy"},
     3,
     NULL,
     "labels.npy holds int64"},
    {"an unknown input", {"train", MLP, "--data", "z=ones"}, 2, NULL, "the model has no input 'z'"},
    {"an unknown dimension",
     {"train", MLP, "--dim", "sequence=4"},
     2,
     NULL,
     "no input has a dimension"},
    {"a budget that is none",
     {"train", MLP, "--budget", "lots"},
     2,
     NULL,
     "--budget: 'lots' is no size"},
    {"a budget that is too small", {"plan", MLP, "--budget", "1000"}, 4, NULL, "try: "},
    {"stage 4", {"train", MLP, "--stage", "4"}, 2, NULL, "--stage must be 0, 1, 2 or 3"},
    {"only generated data have no epoch",
     {"train", "model.onnx", "--data", "x=ones", "--data", "labels=zeros"},
     2,
     NULL,
     "--steps N"},
    {"an unknown format",
     {"plan", MLP, "--format", "xml"},
     2,
     NULL,
     "text, states, json, trace or decisions"},
    {"the plan", {"plan", MLP, "--ranks", "2"}, 0, "peak", NULL},
    {"a plan needs no data", {"plan", "model.onnx", "--ranks", "3"}, 0, "peak", NULL},
    {"nor does a check", {"check", "model.onnx"}, 0, "would be refused: nothing", NULL},
    {"the plan's instructions", {"plan", MLP, "--ranks", "2", "--instructions"}, 0, "gather", NULL},
    {"the plan as states",
     {"plan", MLP, "--ranks", "2", "--format", "states"},
     0,
     "AVAILABLE",
     NULL},
    {"the plan for programs", {"plan", MLP, "--ranks", "2", "--format", "json"}, 0, "{", NULL},
    {"the plan for Perfetto",
     {"plan", MLP, "--ranks", "2", "--format", "trace"},
     0,
     "\"name\":\"SIMULATED: ",
     NULL},
    {"a unit by name", {"plan", MLP, "--ranks", "2", "--unit", "m.1.*"}, 0, "'m.1.'", NULL},
    {"a unit that there isn't",
     {"plan", MLP, "--unit", "q*"},
     2,
     NULL,
     "no parameter is named 'q*'"},
    {"a tied name",
     {"plan", ZX_TEST_DATA "/cases/gpt2/model.onnx", "--unit", "*wte*"},
     2,
     NULL,
     "try: --unit 'm.lm_head.weight'"},
    {"what a model holds", {"check", MLP}, 0, "parameters: 17.2k in", NULL},
    {"operators", {"ops"}, 0, "LayerNormalization", NULL},
    {"families", {"new", "--list"}, 0, "gpt2", NULL},
    {"an unknown family", {"new", "gtp2"}, 2, NULL, "there is no family 'gtp2'\ntry: "},
    {"a size that is none", {"new", "mlp", "--set", "layers"}, 2, NULL, "--set needs NAME=N"},
};

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    cli_write("broken.json", "{\"a\": ");
    cli_write("odd.json", "{\"gradient_clipp1ng\": 1}");
    cli_write("half.json",
              "{\"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}}");
    cli_write("both.json", "{\"sequence_parallel_size\": 2, \"optimizer\": {\"type\": \"Lamb\"}}");
    cli_write("triad.json", "{\"train_batch_size\": 33, \"train_micro_batch_size_per_gpu\": 32}");
    return symlink(MLP, "model.onnx"); // no data lie beside it here
}

// ---- a run's files ------------------------------------------------------------------------------

#define TRAIN "train", DIGITS, "--steps", "2", "--threads", "1"

static void a_run_has_a_folder(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {TRAIN, NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", "saved: runs/digits-");
    assert_string_equal(r.out, "");
    static const char *const files[] = {"command.txt", "config.json", "plan.txt", "log.jsonl",
                                        "model.safetensors"};
    for (size_t i = 0; i < ZX_COUNT(files); i++) {
        char path[80];
        snprintf(path, sizeof path, "runs/latest/%s", files[i]);
        if (!cli_exists(path)) fail_msg("%s is missing", path);
    }
    assert_int_equal(cli_lines("runs/latest/log.jsonl"), 2);
    char text[20000];
    cli_read("runs/latest/command.txt", text, sizeof text);
    assert_non_null(strstr(text, "train " DIGITS " --steps 2 --threads 1\n"));
    cli_read("runs/latest/config.json", text, sizeof text);
    assert_non_null(strstr(text, "\"budget_bytes\": "));
    assert_non_null(strstr(text, "\"optimizer.params.lr\": \"default\""));
    cli_run(args, &r); // the second one, maybe within the same second, has its own
    cli_expect(&r, 0, "", NULL);
    // Its resolved config gives the same run.
    const char *const again[] = {TRAIN,   "--config", "runs/latest/config.json",
                                 "--out", "again",    NULL};
    cli_run(again, &r);
    cli_expect(&r, 0, "", NULL);
    assert_int_equal(system("cmp -s again/model.safetensors runs/latest/model.safetensors"), 0);
}

static void targets_of_their_own(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {TRAIN,      "--log",        "own.jsonl", "--save",
                                "own/deep", "--dump-grads", "g.st",      NULL};
    if (cli_exists("runs")) assert_int_equal(system("rm -rf runs"), 0);
    cli_run(args, &r);
    cli_expect(&r, 0, "", NULL);
    assert_int_equal(cli_lines("own.jsonl"), 2);
    assert_true(cli_exists("own/deep/model.safetensors"));
    assert_true(cli_exists("g.st"));
    assert_false(cli_exists("runs"));
    cli_run(args, &r);
    cli_expect(&r, 2, "", "own.jsonl exists already\ntry: ");
    const char *const forced[] = {TRAIN,          "--log", "own.jsonl", "--save", "own/deep",
                                  "--dump-grads", "g.st",  "--force",   NULL};
    cli_run(forced, &r);
    cli_expect(&r, 0, "", NULL);
    assert_int_equal(cli_lines("own.jsonl"), 2);
}

static void pictures_of_a_run(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {TRAIN,       "--ranks",  "2",     "--report", "run.html",
                                "--profile", "run.json", "--out", "pictures", NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", "written: run.html");
    assert_int_equal(system("grep -q 'MEASURED on rank 0' run.html"), 0);
    assert_int_equal(system("grep -q 'measured on rank 0' run.json"), 0);
    assert_int_equal(system("grep -q '\"cat\":\"gather\"' run.json"), 0);
}

static void devices_are_no_obstacle(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {TRAIN, "--log", "/dev/null", "--out", "dev", "--no-save", NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", NULL);
    assert_true(cli_exists("dev/plan.txt"));
    assert_false(cli_exists("dev/log.jsonl"));
    assert_false(cli_exists("dev/model.safetensors"));
}

static void what_cannot_be_written_is_said_before_the_first_step(void **state)
{
    (void)state;
    cli_result r;
    cli_write("file", "");
    const char *const save[] = {TRAIN, "--save", "file/deep", NULL};
    cli_run(save, &r);
    cli_expect(&r, 1, "", "file is not a folder");
    const char *const out[] = {TRAIN, "--out", "/proc/nowhere", NULL};
    cli_run(out, &r);
    cli_expect(&r, 1, "", "/proc/nowhere");
    const char *const log[] = {TRAIN, "--log", "/proc/nowhere.jsonl", NULL};
    cli_run(log, &r);
    cli_expect(&r, 1, "", "/proc");
    if (access("/dev/full", W_OK) != 0) return;
    const char *const full[] = {TRAIN, "--log", "/dev/full", "--out", "full", NULL};
    cli_run(full, &r);
    cli_expect(&r, 1, "", "cannot write /dev/full: No space left on device");
}

static void a_file_too_large_leaves_nothing_half(void **state)
{
    (void)state;
    cli_result r;
    char command[512];
    snprintf(
        command, sizeof command,
        "ulimit -f 8; trap '' XFSZ; %s train %s --steps 1 --threads 1 --out small >.out 2>.err",
        ZX_PROGRAM, DIGITS);
    const int status = system(command);
    cli_read(".err", r.err, sizeof r.err);
    if (WEXITSTATUS(status) != 1) fail_msg("exit code %d: %s", WEXITSTATUS(status), r.err);
    assert_non_null(strstr(r.err, "cannot write small/model.safetensors"));
    assert_non_null(strstr(r.err, "try: another place, or room for the"));
    assert_false(cli_exists("small/model.safetensors"));
    assert_int_equal(system("ls -a small | grep -q tmp"), 256);
}

// ---- one line of a run --------------------------------------------------------------------------

static void ranks_agree_bit_for_bit_on_a_restarted_run(void **state)
{
    (void)state;
    cli_result r;
    const char *const a[] = {TRAIN,       "--ranks", "2", "--out", "two",
                             "--shuffle", "--seed",  "4", NULL};
    const char *const b[] = {TRAIN,    "--ranks", "2",       "--out", "two2", "--shuffle",
                             "--seed", "4",       "--stage", "1",     NULL};
    cli_run(a, &r);
    cli_expect(&r, 0, "", "2 ranks x 1 thread, ZeRO stage 3");
    assert_non_null(strstr(r.err, "outside the plan"));
    assert_non_null(strstr(r.err, "step 2/2 loss "));
    cli_run(b, &r);
    cli_expect(&r, 0, "", "ZeRO stage 1");
    assert_int_equal(system("cmp -s two/model.safetensors two2/model.safetensors"), 0);
}

// How many samples a text has is known once the model has said how long one is.
static void a_text_is_shuffled(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {"train",     ZX_SOURCE "/models/bytegpt/model.onnx",
                                "--data",    ZX_SOURCE "/models/bytegpt/text.txt",
                                "--shuffle", "--steps",
                                "1",         "--threads",
                                "1",         "--no-save",
                                NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", " samples shuffled by the seed");
    assert_null(strstr(r.err, "--shuffle has no effect"));
}

static void memory_adds_up(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {TRAIN, "--threads", "2", "--out", "sizes", NULL};
    double plan = 0, all = 0, outside = 0;
    cli_run(args, &r);
    cli_expect(&r, 0, "", " before the first step\n");
    const char *at = strstr(r.err, ", peak ");
    assert_non_null(at);
    if (sscanf(at, ", peak %lf MiB as planned, resident %lf MiB, %lf MiB of it outside the plan",
               &plan, &all, &outside) != 3)
        fail_msg("%s", at);
    if (all < outside || all > plan + outside + 0.1) fail_msg("%s", at);
}

static void a_label_out_of_range_is_named(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {TRAIN, "--data", "labels=const:77", "--out", "label", NULL};
    cli_run(args, &r);
    cli_expect(&r, 3, "", "label 77 is outside the 10 classes");
}

static void not_finite_ends_the_run(void **state)
{
    (void)state;
    cli_result r;
    cli_write("hot.json", "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e38}}, "
                          "\"gradient_clipping\": 0, \"zero_optimization\": {\"stage\": 3}}");
    const char *const args[] = {"train",    DIGITS,  "--steps", "9", "--config",
                                "hot.json", "--out", "hot",     NULL};
    cli_run(args, &r);
    cli_expect(&r, 5, "", "step ");
    assert_non_null(strstr(r.err, "try: "));
    assert_true(cli_exists("hot/model.safetensors"));
}

static pid_t start_long_run(const char *out)
{
    const char *const args[] = {"train", DIGITS,    "--steps", "100000000", "--out",
                                out,     "--ranks", "2",       NULL};
    char log[64];
    snprintf(log, sizeof log, "%s/log.jsonl", out);
    const pid_t pid = cli_start(args);
    for (wait_limit w = {0}; cli_lines(log) < 3;) wait_more(&w, log);
    return pid;
}

static void a_signal_saves_and_ends(void **state)
{
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < ZX_COUNT(signals); i++) {
        cli_result r;
        char out[16], saved[64];
        snprintf(out, sizeof out, "stop%zu", i);
        snprintf(saved, sizeof saved, "saved: %s/model.safetensors", out);
        const pid_t pid = start_long_run(out);
        kill(pid, signals[i]);
        cli_end(pid, &r);
        cli_expect(&r, 128 + signals[i], "", saved);
        assert_true(cli_exists(saved + 7));
    }
}

static void a_rank_that_dies_is_named(void **state)
{
    (void)state;
    cli_result r;
    char path[64], children[256];
    const pid_t pid = start_long_run("dead");
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    cli_read(path, children, sizeof children);
    char *second = strchr(children, ' ');
    assert_non_null(second);
    const pid_t rank = (pid_t)atoi(second);
    assert_true(rank > 0);
    kill(rank, SIGKILL);
    cli_end(pid, &r);
    cli_expect(&r, 6, "", "rank 1");
    for (char *at = children; *at > ' '; at = strchr(at, ' ') + 1)
        assert_int_equal(kill(atoi(at), 0), -1);
}

static void new_models_are_checked_and_trained(void **state)
{
    (void)state;
    cli_result r;
    const char *const make[] = {"new", "mlp", "-o", "new.onnx", NULL};
    cli_run(make, &r);
    cli_expect(&r, 0, "", "wrote new.onnx");
    cli_run(make, &r);
    cli_expect(&r, 2, "", "new.onnx exists already");
    const char *const check[] = {"check", "new.onnx", NULL};
    cli_run(check, &r);
    cli_expect(&r, 0, "would be refused: nothing", NULL);
    const char *const train[] = {
        "train",   "new.onnx", "--data",  "x=synthetic", "--data", "labels=synthetic",
        "--steps", "2",        "--ranks", "3",           "--out",  "new",
        NULL};
    cli_run(train, &r);
    cli_expect(&r, 0, "", "done: 2 steps");
    const char *const language[] = {"new", "gpt2", "-o", "lm.onnx", NULL};
    cli_run(language, &r);
    cli_expect(&r, 0, "", NULL);
    cli_write("words.txt", "some words\n");
    const char *const alone[] = {"train", "lm.onnx", "--data", "input_ids=words.txt", NULL};
    cli_run(alone, &r);
    cli_expect(&r, 3, "", "no data for 'labels'");
    cli_expect(&r, 3, "", "--data words.txt, which without a name feeds tokens and labels");
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 14];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, cli_test_row, &rows[n]);
    const struct CMUnitTest runs[] = {
        cmocka_unit_test(a_run_has_a_folder),
        cmocka_unit_test(targets_of_their_own),
        cmocka_unit_test(pictures_of_a_run),
        cmocka_unit_test(devices_are_no_obstacle),
        cmocka_unit_test(what_cannot_be_written_is_said_before_the_first_step),
        cmocka_unit_test(a_file_too_large_leaves_nothing_half),
        cmocka_unit_test(ranks_agree_bit_for_bit_on_a_restarted_run),
        cmocka_unit_test(a_text_is_shuffled),
        cmocka_unit_test(memory_adds_up),
        cmocka_unit_test(a_label_out_of_range_is_named),
        cmocka_unit_test(not_finite_ends_the_run),
        cmocka_unit_test(a_signal_saves_and_ends),
        cmocka_unit_test(a_rank_that_dies_is_named),
        cmocka_unit_test(new_models_are_checked_and_trained),
    };
    memcpy(tests + n, runs, sizeof runs);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}

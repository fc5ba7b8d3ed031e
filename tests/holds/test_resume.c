// test_resume.c - a run that was stopped and gone on with is the run that wasn't: the same bits on
// the same ranks, dropout, shuffled samples and momentum included; on others the same within
// rounding; and what is said where it can't be.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/wait.h"

enum { IN = 7, OUT = 5, SAMPLES = 40 }; // three steps of 12 an epoch; 4 samples are left out

static void make_files(void)
{
    static const char config[] =
        "{\"train_batch_size\": 12, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "0.01, \"weight_decay\": 0.1}}, \"gradient_clipping\": 0.5, "
        "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 15}, \"zerox\": {\"data\": "
        "{\"x\": \"x.npy\"}}}";
    const int64_t xs[] = {2, IN}, ws[] = {IN, OUT}, bs[] = {OUT};
    const float half = 0.5f;
    const uint8_t yes = 1;
    float w[IN * OUT], b[OUT] = {0}, x[SAMPLES * IN];
    for (int i = 0; i < IN * OUT; i++) w[i] = sinf((float)i);
    for (int i = 0; i < SAMPLES * IN; i++) x[i] = cosf((float)(i * i % 101));
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    zx_onnx_initializer(&n.out, "half", &(zx_type){.dtype = ZX_F32}, &half);
    zx_onnx_initializer(&n.out, "yes", &(zx_type){.dtype = ZX_BOOL}, &yes);
    holds_net_floats(&n, "w", "PARAMETER", 2, ws, w);
    holds_net_floats(&n, "b", "PARAMETER", 1, bs, b);
    holds_net_node(&n, "MatMul", "xw", "x", "w", NULL);
    holds_net_node(&n, "Add", "y", "xw", "b", NULL);
    holds_net_node(&n, "Dropout", "d", "y", "half", "yes");
    holds_net_node(&n, "Mul", "dy", "d", "y", NULL);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceMean", "loss", "dy", NULL, NULL), "keepdims",
                     0);
    holds_net_done(&n, "loss", "m.onnx");
    holds_npy("x.npy", ZX_F32, 2, (const int64_t[]){SAMPLES, IN}, x);
    holds_write("c.json", config, sizeof config - 1);
}

#define RUN "m.onnx --config c.json --threads 1 --seed 3 --shuffle "

// `zerox train --resume ARGS`, which has to end with `code`.
static void resume(const char *name, int code, const char *args)
{
    char path[80];
    const int is = holds_zerox(name, "train --resume %s", args);
    snprintf(path, sizeof path, "%s.err", name);
    char *said = holds_read(path, &(size_t){0});
    if (is != code) fail_msg("exit code %d, not %d: %s", is, code, said);
    free(said);
}

static void expect_said(const char *name, const char *what)
{
    char path[80];
    snprintf(path, sizeof path, "%s.err", name);
    char *said = holds_read(path, &(size_t){0});
    if (strstr(said, what) == NULL) fail_msg("'%s' isn't said: %s", what, said);
    free(said);
}

static bool there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    make_files();
    holds_train("whole", RUN "--ranks 2 --steps 10");
    holds_train("note.run", RUN "--ranks 2 --steps 2 --save-every 1 --log note.txt");
    holds_write("note.txt", "mine\n", 5);
    return 0;
}

static void expect_near(const char *a, const char *b)
{
    holds_row x[HOLDS_ROWS], y[HOLDS_ROWS];
    const uint32_t n = holds_log(a, x);
    assert_int_equal(holds_log(b, y), n);
    for (uint32_t i = 0; i < n; i++)
        if (fabs(x[i].loss - y[i].loss) > 1e-5 * fmax(1, fabs(x[i].loss)) ||
            fabs(x[i].grad_norm - y[i].grad_norm) > 1e-5 * fmax(1, fabs(x[i].grad_norm)))
            fail_msg("step %u: loss %g and %g", i + 1, x[i].loss, y[i].loss);
}

// ---- half of it, and the rest -------------------------------------------------------------------

static const struct row {
    const char *name, *run, *first, *then;
    bool near; // not the same bits: sums are of other numbers
} rows[] = {
    {"on the same ranks", "same", "--ranks 2 --save-every 5", "--steps 10", false},
    {"in another stage, less memory", "stage", "--ranks 2 --save-every 5",
     "--steps 10 --stage 1 --budget min", false},
    {"from stage 0, launched again with 2", "zero", "--ranks 2 --save-every 5 --stage 0",
     "--steps 10 --ranks 2 --stage 3", false},
    {"saved beside the steps", "beside", "--ranks 2 --save-every 2 --save-async", "--steps 10",
     false},
    {"on 3 ranks", "three", "--ranks 2 --save-every 5", "--steps 10 --ranks 3", true},
    {"on 1 rank, stage 2", "one", "--ranks 2 --save-every 5", "--steps 10 --ranks 1 --stage 2",
     true},
    {"in the middle of an epoch's samples", "odd", "--ranks 2 --save-every 4", "--steps 10", false},
};

static void test_row(void **state)
{
    const struct row *r = *state;
    char args[200];
    holds_train(r->run, RUN "--steps 5 %s", r->first);
    snprintf(args, sizeof args, "%s %s", r->run, r->then);
    resume(r->run, 0, args);
    if (r->near)
        expect_near("whole", r->run);
    else
        holds_expect_same("whole", r->run);
}

// Step by step, each time from the folder that runs/latest leads to.
static void many_times(void **state)
{
    (void)state;
    assert_int_equal(holds_zerox("many", "train " RUN "--ranks 2 --steps 1 --save-every 1"), 0);
    for (int k = 2; k <= 10; k += k < 4 ? 1 : 6) {
        char args[40];
        snprintf(args, sizeof args, "--steps %d --keep 1", k);
        resume("many", 0, args);
    }
    holds_expect_same("whole", "runs/latest");
    assert_true(there("runs/latest/checkpoints/step-10"));
    assert_true(!there("runs/latest/checkpoints/step-9"));
}

// ---- interrupted, killed, damaged ---------------------------------------------------------------

static int rows_of(const char *name)
{
    char path[80];
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    FILE *f = fopen(path, "rb");
    int n = 0;
    for (int c; f != NULL && (c = fgetc(f)) != EOF;) n += c == '\n';
    if (f != NULL) fclose(f);
    return n;
}

// Starts a run that nobody waits for the end of; after some rows.
static pid_t start(const char *name, const char *options, int least)
{
    char command[600];
    snprintf(command, sizeof command,
             "exec %s train " RUN "--ranks 2 --steps 1000000 --out %s %s >/dev/null 2>%s.err",
             ZX_PROGRAM, name, options, name);
    const pid_t pid = wait_fork();
    if (pid == 0) {
        setpgid(0, 0); // the ranks are in it, too
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    for (wait_limit w = {0}; rows_of(name) < least; wait_more(&w, "rows")) {
    }
    return pid;
}

// Sends it `signal`; its exit status.
static int cut_off(const char *name, const char *options, int signal, int least)
{
    const pid_t pid = start(name, options, least);
    kill(signal == SIGKILL ? -pid : pid, signal);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

// Goes on with it for some steps; they are those of a run that was to do as many.
static void expect_same_after(const char *name)
{
    char args[80], whole[40];
    const int steps = rows_of(name) + 3;
    snprintf(args, sizeof args, "%s --steps %d", name, steps);
    resume(name, 0, args);
    snprintf(whole, sizeof whole, "%s_whole", name);
    holds_train(whole, RUN "--ranks 2 --steps %d", steps);
    size_t n, m;
    snprintf(args, sizeof args, "%s/model.safetensors", name);
    char *a = holds_read(args, &n);
    snprintf(args, sizeof args, "%s/model.safetensors", whole);
    char *b = holds_read(args, &m);
    assert_true(n == m && memcmp(a, b, n) == 0);
    free(a);
    free(b);
    assert_int_equal(rows_of(name), steps);
    snprintf(args, sizeof args, "%s/checkpoints/step-%d/manifest.json", name, steps);
    assert_true(there(args)); // the newest one is what the run came to
}

static void interrupted(void **state)
{
    (void)state;
    const int status = cut_off("term", "", SIGTERM, 3);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGTERM);
    expect_said("term", "checkpoint: term/checkpoints/step-");
    expect_same_after("term");
}

static void killed(void **state)
{
    (void)state;
    int status = cut_off("kill", "--save-every 2 --save-async", SIGKILL, 7);
    assert_true(WIFSIGNALED(status));
    usleep(100000); // all of the group were killed, one was waited for
    expect_same_after("kill");
    // Most of its time it writes, publishes and removes: the newest one alone stays.
    status = cut_off("kill1", "--save-every 1 --keep 1 --save-async", SIGKILL, 5);
    assert_true(WIFSIGNALED(status));
    usleep(100000);
    expect_same_after("kill1");
}

// One process a folder, whatever it is asked to do there; and none that is gone.
static void in_use(void **state)
{
    (void)state;
    const pid_t pid = start("busy", "--save-every 2", 5);
    resume("busy2", 2, "busy --steps 2000000");
    expect_said("busy2", "busy is the folder of a run that goes on: process ");
    assert_int_equal(holds_zerox("busy3", "train " RUN "--steps 1 --out busy --force"), 2);
    expect_said("busy3", "busy is the folder of a run that goes on: process ");
    assert_true(there("busy/checkpoints/latest") && there("busy/log.jsonl"));
    kill(-pid, SIGKILL);
    assert_int_equal(waitpid(pid, &(int){0}, 0), pid);
    expect_same_after("busy");
}

static void spoil(const char *path)
{
    size_t n;
    char *bytes = holds_read(path, &n);
    bytes[n - 1] ^= 1;
    holds_write(path, bytes, n);
    free(bytes);
}

static void damaged(void **state)
{
    (void)state;
    holds_train("bad", RUN "--ranks 2 --steps 7 --save-every 2 --keep 3"); // 4, 6, 7
    spoil("bad/checkpoints/step-7/rank-00001-of-00002.safetensors");
    resume("bad", 0, "bad --steps 10");
    expect_said("bad", "warning: bad/checkpoints/step-7 can't be gone on from: rank 1: "
                       "bad/checkpoints/step-7/rank-00001-of-00002.safetensors is damaged: ");
    expect_said("bad", "warning: trying the one before it, bad/checkpoints/step-6");
    expect_said("bad", "resumed: bad/checkpoints/step-6, step 6 of 10");
    holds_expect_same("whole", "bad");
    // The seventh row was of a step that was taken again: it is kept, too.
    size_t n;
    char *cut = holds_read("bad/log.jsonl.cut", &n);
    assert_true(strncmp(cut, "{\"step\": 7,", 11) == 0);
    free(cut);
    assert_true(there("bad/checkpoints/step-7.aside"));
    // None is whole: nothing begins.
    spoil("bad/checkpoints/step-8/manifest.json");
    spoil("bad/checkpoints/step-10/rank-00000-of-00002.safetensors");
    spoil("bad/checkpoints/step-6/rank-00000-of-00002.safetensors");
    resume("none", 3, "bad --steps 12");
    expect_said("none", "none of the 3 checkpoints in bad/checkpoints can be gone on from");
    // One that is named is the one.
    resume("exact", 3, "bad/checkpoints/step-10 --steps 12");
    expect_said("exact", "step-10/rank-00000-of-00002.safetensors is damaged");
}

// A save that fails in between is a warning, and the run has all that it had.
static void save_fails(void **state)
{
    (void)state;
    assert_int_equal(system("mkdir -p full/checkpoints && touch full/checkpoints/step-1.tmp"), 0);
    holds_train("full", RUN "--ranks 2 --steps 3 --save-every 1 --force");
    expect_said("full", "warning: no checkpoint of step 1: cannot make the folder "
                        "full/checkpoints/step-1.tmp: File exists; try: room for the ");
    assert_true(there("full/checkpoints/step-3") && !there("full/checkpoints/step-1"));
    // Something else is in the way: said before the first step.
    assert_int_equal(system("mkdir -p way && touch way/checkpoints"), 0);
    assert_int_equal(holds_zerox("way", "train " RUN "--steps 1 --save-every 1 --out way"), 2);
    assert_int_equal(holds_zerox("way", "train " RUN "--steps 1 --save-every 1 --out way --force"),
                     0);
    assert_true(there("way/checkpoints/step-1/manifest.json"));
    // Another run in the same folder, by force: none of the checkpoints of this one stay.
    assert_int_equal(holds_zerox("way", "train " RUN "--steps 1 --out way --force"), 0);
    assert_true(!there("way/checkpoints"));
}

// Samples are in another order then, and the next ones aren't those that would have come.
static void data_grow(void **state)
{
    static const float x[(SAMPLES + 2) * IN];
    (void)state;
    assert_int_equal(system("cp x.npy grow.npy"), 0);
    holds_train("grow", RUN "--steps 2 --save-every 2 --data x=grow.npy --force");
    holds_npy("grow.npy", ZX_F32, 2, (const int64_t[]){SAMPLES + 2, IN}, x);
    resume("grown", 3, "grow --steps 3");
    expect_said("grown",
                "grow/checkpoints/step-2 was saved with data of 40 samples, now they have 42");
    resume("grown", 0, "grow --steps 3 --data x=grow.npy");
}

// ---- where files are ----------------------------------------------------------------------------

// A shell's line has to end with `code`.
static void shell(int code, const char *line)
{
    const int status = system(line);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code) fail_msg("%d: %s", status, line);
}

// What isn't gone on with is as it was, whatever it is that refuses: options, data, what the
// monitors write to, or a session that can't be opened.
static void refused(void **state)
{
    static const struct {
        const char *line;
        int code;
        const char *says;
    } lines[] = {
        {"$Z --resume still --steps 2", 2, "has done 3 of 2 steps"},
        {"$Z --resume still --steps 9 --stage 4", 2, "--stage must be"},
        {"$Z --resume still --steps 9 --data x=gone.npy", 1, "gone.npy"},
        {"$Z --resume still --steps 9 --budget 1", 4, "budget"},
        {"$Z --resume still --steps 9 --config m.onnx", 2, "m.onnx"},
        {"$Z --resume still --steps 9 --log note.txt --force", 2, "note.txt is no log of a run"},
        {"$Z --resume still --steps 9 --config still.json", 1, "note.txt"},
        {"ulimit -f 1; $Z --resume still --steps 9", 4, "cannot reserve"},
    };
    static const char config[] =
        "{\"train_batch_size\": 12, \"csv_monitor\": {\"enabled\": true, \"output_path\": "
        "\"note.txt\"}, \"optimizer\": {\"type\": \"AdamW\"}, \"zerox\": {\"seed\": 3, \"data\": "
        "{\"x\": \"x.npy\"}}}";
    (void)state;
    holds_write("still.json", config, sizeof config - 1);
    holds_train("still", RUN "--ranks 2 --steps 3 --save-every 1");
    shell(0, "echo '{\"step\": 4, \"loss\": 1}' >>still/log.jsonl"); // a row that would be cut off
#define LIST "find still -type f ! -name .lock | sort | xargs cksum >"
    shell(0, LIST "still.before");
    for (size_t i = 0; i < ZX_COUNT(lines); i++) {
        char line[400];
        snprintf(line, sizeof line, "Z='%s train'; (%s) >still.out 2>still.err", ZX_PROGRAM,
                 lines[i].line);
        shell(lines[i].code, line);
        expect_said("still", lines[i].says);
        shell(0, LIST "still.after");
        if (system("cmp -s still.before still.after") != 0)
            fail_msg("%s: the run's folder has changed", lines[i].line);
    }
#undef LIST
    resume("still", 0, "still --steps 4");
    assert_int_equal(rows_of("still"), 4);
}

// Names in the config are relative to where the run began, also where it is gone on with.
static void elsewhere(void **state)
{
    static const char config[] =
        "{\"train_batch_size\": 12, \"csv_monitor\": {\"enabled\": true, \"output_path\": "
        "\"there/csv\"}, \"tensorboard\": {\"enabled\": true, \"job_name\": \"events\"}, "
        "\"flops_profiler\": {\"enabled\": true, \"profile_step\": 4, \"output_file\": "
        "\"there/flops.txt\"}, "
        "\"zerox\": {\"data\": {\"x\": \"x.npy\"}, \"eval\": {\"data\": {\"x\": \"x.npy\"}}}}";
    (void)state;
    holds_write("there.json", config, sizeof config - 1);
    shell(0, "mkdir -p there/csv elsewhere");
    holds_train("moved",
                "m.onnx --config there.json --threads 1 --ranks 2 --steps 3 --save-every 3 "
                "--log there/moved.jsonl");
    assert_false(there("there/flops.txt"));
    shell(0, "cd elsewhere && " ZX_PROGRAM " train --resume ../moved --steps 6 2>../moved2.err");
    shell(0, "test -z \"$(ls elsewhere)\"");
    shell(0, "test $(wc -l <there/csv/DeepSpeedJobName/Train_Samples_lr.csv) = 7");
    shell(0, "test $(wc -l <there/moved.jsonl) = 6 && test $(ls events | wc -l) = 2");
    assert_true(there("there/flops.txt") && !there("moved/log.jsonl"));
}

// ---- what is said -------------------------------------------------------------------------------

static const struct word_row {
    const char *name, *args;
    int code;
    const char *says;
} word_rows[] = {
    {"no such run", "gone", 2, "--resume: there is no gone"},
    {"a file", "same/model.safetensors", 2, "is a file, not the folder of a run"},
    {"a folder of something else", "runs", 2,
     "is not the folder of a run, nor a checkpoint in one"},
    {"without checkpoints", "whole", 2, "--resume: whole has no checkpoint"},
    {"all is done", "same", 2, "the run has done 10 of 10 steps"},
    {"its own folder", "same --out other", 2, "--out makes no sense with --resume"},
    {"ranks that don't divide the batch", "same --steps 12 --ranks 4", 2,
     "6 micro-batches of 2, which can't be shared evenly"},
    {"beside the steps, but none", "whole --save-async", 2, "has no checkpoint"},
    {"what is given in its place", "same --steps 11 --stage 0 --seed 4", 0,
     "note: resumed with --seed 4, where the run had 3"},
    {"other rows in its log", "note.run --steps 11", 2, "note.txt is no log of a run"},
    {"evaluated more often", "same --steps 11 --eval-every 3", 2,
     "resumed with --eval-every 3, where the run had 0"},
    {"where a link led", "runs/latest --steps 11", 0, "resumed: /"},
    {"an older one by name", "same/checkpoints/step-10 --steps 11", 0,
     "resumed: same/checkpoints/step-10, step 10 of 11"},
    {"another seed by another config", "note.run --steps 3 --config c.json", 2,
     "note: the seed is 0, note.run/checkpoints/step-2 was saved with 3: "},
};

static void test_word(void **state)
{
    const struct word_row *r = *state;
    resume("word", r->code, r->args);
    expect_said("word", r->says);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(word_rows) + 9];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i += test_few() ? 3 : 1)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(many_times);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(interrupted);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(killed);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(in_use);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(damaged);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(save_fails);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(data_grow);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(refused);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(elsewhere);
    for (size_t i = 0; i < ZX_COUNT(word_rows); i++)
        tests[n++] = zx_case(word_rows[i].name, test_word, &word_rows[i]);
    return _cmocka_run_group_tests("tests", tests, n, setup, holds_teardown);
}

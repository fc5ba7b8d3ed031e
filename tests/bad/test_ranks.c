// test_ranks.c - ranks that die, never come, or are started by somebody who got it wrong; signals;
// readers that don't read. The others end, one sentence says why, and nothing stays.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"

#define M "train $IN/m.onnx --data x=synthetic --data labels=zeros --threads 1 "
#define FOREVER M "--steps 1000000000 --out o "

// The ranks of a launcher, in their order: it starts them one after the other. 0 so far.
static uint32_t ranks_of(pid_t launcher, pid_t pid[8])
{
    char path[64];
    uint32_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *f = fopen(path, "r");
    if (f == NULL) return 0;
    for (int p; n < 8 && fscanf(f, "%d", &p) == 1;) pid[n++] = p;
    fclose(f);
    return n;
}

static bool is_stopped(pid_t pid)
{
    char path[64], line[128];
    bool yes = false;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        yes = yes || strncmp(line, "State:\tT", 8) == 0;
    if (f != NULL) fclose(f);
    return yes;
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == pid;
}

// After a first signal that was taken a second one ends a run, if it comes more than 0.1 s later
// than that: two at once are one wish. On a machine where the first was taken but not yet looked at
// for so long the second still counts as the same, and a third one ends it.
static void second_signal(pid_t pid)
{
    for (int i = 0; i < 2; i++) {
        usleep(300000);
        assert_false(i == 0 && has_ended(pid));
        kill(pid, SIGTERM);
        const double until = wait_now() + 20;
        while (!has_ended(pid) && wait_now() < until) usleep(1000);
        if (has_ended(pid)) return;
    }
}

// Every row of the log is a whole one.
static void whole_rows(const char *path)
{
    char *log = bad_read(path, NULL);
    if (log == NULL) return;
    for (char *row = log, *end; *row != '\0'; row = end + 1) {
        end = strchr(row, '\n');
        assert_non_null(end);
        assert_true(strncmp(row, "{\"step\": ", 9) == 0 && end[-1] == '}');
    }
    free(log);
}

// ---- death --------------------------------------------------------------------------------------

static void a_rank_is_killed(void **state)
{
    (void)state;
    for (uint32_t r = 0; r < 3; r++) {
        bad_result result;
        pid_t rank[8];
        char says[64];
        const pid_t pid = bad_start(FOREVER "--ranks 3");
        bad_wait_lines("o/log.jsonl", 3);
        assert_int_equal(ranks_of(pid, rank), 3);
        kill(rank[r], SIGKILL);
        bad_end(pid, &result);
        snprintf(says, sizeof says, "zerox: rank %u was killed by signal 9 (Killed)\n", r);
        bad_expect(&result, 6, says);
        assert_int_equal(bad_causes(&result), 1);
        bad_format(&result);
        bad_nothing_left(false);
        whole_rows("o/log.jsonl");
        assert_int_not_equal(access("o/model.safetensors", F_OK), 0);
        bad_clear();
    }
}

// While ranks meet, read, plan and open: whenever one dies, the others don't wait for it.
static void a_rank_is_killed_at_any_time(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 9; i++) {
        bad_result result;
        pid_t rank[8];
        const pid_t pid = bad_start(FOREVER "--ranks 3");
        for (wait_limit w = {0}; ranks_of(pid, rank) <= i % 3;) wait_more(&w, "ranks are started");
        usleep(i * i * 400);
        kill(rank[i % 3], SIGKILL);
        bad_end(pid, &result);
        bad_expect(&result, 6, "was killed by signal 9 (Killed)\n");
        bad_format(&result);
        bad_nothing_left(false);
        bad_clear();
    }
}

static void the_launcher_is_killed(void **state)
{
    (void)state;
    bad_result result;
    const pid_t pid = bad_start(FOREVER "--ranks 3");
    bad_wait_lines("o/log.jsonl", 3);
    kill(pid, SIGKILL);
    bad_end(pid, &result);
    assert_int_equal(result.code, 1000 + SIGKILL);
    bad_nothing_left(false);
    whole_rows("o/log.jsonl");
    bad_clear();
}

// A stopped rank holds the others up, but not their end.
static void a_rank_sleeps(void **state)
{
    (void)state;
    bad_result result;
    pid_t rank[8];
    const pid_t pid = bad_start(FOREVER "--ranks 3");
    bad_wait_lines("o/log.jsonl", 3);
    assert_int_equal(ranks_of(pid, rank), 3);
    kill(rank[1], SIGSTOP); // the others run into waiting for it
    for (wait_limit w = {0}; !is_stopped(rank[1]);) wait_more(&w, "a rank is stopped");
    kill(pid, SIGTERM);
    // It was passed on: to the stopped one as well, which can't take it.
    for (wait_limit w = {0}; !signal_waits(rank[1], SIGTERM);) wait_more(&w, "a rank is told");
    second_signal(pid);
    bad_end(pid, &result);
    assert_int_equal(result.code, 128 + SIGTERM);
    bad_nothing_left(false);
    bad_clear();
}

// ---- signals ------------------------------------------------------------------------------------

static const struct signal_row {
    const char *name, *ranks;
    int signal;
    int to; // the launcher: -1; else the rank
} signals[] = {
    {"SIGINT, 1 rank", "1", SIGINT, -1},    {"SIGTERM, 1 rank", "1", SIGTERM, -1},
    {"SIGHUP, 1 rank", "1", SIGHUP, -1},    {"SIGINT, 3 ranks", "3", SIGINT, -1},
    {"SIGTERM, 3 ranks", "3", SIGTERM, -1}, {"SIGTERM to rank 0", "3", SIGTERM, 0},
    {"SIGTERM to rank 2", "3", SIGTERM, 2},
};

static void first_signal_saves(void **state)
{
    const struct signal_row *row = *state;
    bad_result result;
    char args[256];
    pid_t rank[8];
    snprintf(args, sizeof args, FOREVER "--ranks %s", row->ranks);
    const pid_t pid = bad_start(args);
    bad_wait_lines("o/log.jsonl", 3);
    if (row->to >= 0) assert_int_equal(ranks_of(pid, rank), 3);
    kill(row->to < 0 ? pid : rank[row->to], row->signal);
    bad_end(pid, &result);
    bad_expect(&result, 128 + row->signal, "saved: o/model.safetensors");
    assert_int_equal(access("o/model.safetensors", F_OK), 0);
    bad_nothing_left(false);
    whole_rows("o/log.jsonl");
    bad_clear();
}

// A step of hours: the first signal waits for its end, the second doesn't.
static void second_signal_ends(void **state)
{
    (void)state;
    static const char *const args[] = {FOREVER "--ranks 3 --wire-delay 1000s",
                                       FOREVER "--ranks 2 --wire-delay 1000s"};
    for (size_t i = 0; i < ZX_COUNT(args); i++) {
        bad_result result;
        pid_t pid;
        // That the first step has begun nothing says; before it a first signal is enough.
        for (useconds_t pause = 100000;; pause *= 2) {
            pid = bad_start(args[i]);
            bad_wait_lines("o/plan.txt", 1);
            usleep(pause);
            wait_signal(pid, SIGINT);
            usleep(pause); // were that enough here too, it would have ended by now
            if (!has_ended(pid)) break;
            bad_end(pid, &result);
            bad_clear();
            if (pause > 10000000) fail_msg("one signal ends a step");
        }
        second_signal(pid);
        bad_end(pid, &result);
        bad_expect(&result, 128 + SIGINT, NULL);
        bad_nothing_left(false);
        bad_clear();
    }
}

// An evaluation of half a minute: it is left, and what was trained is saved.
static void a_signal_leaves_an_evaluation(void **state)
{
    (void)state;
    static float x[4096 * 4];
    bad_result result;
    bad_npy("many.npy", "<f4", "4096, 4", x, sizeof x);
    const pid_t pid = bad_start(FOREVER "--ranks 2 --wire-delay 20ms --eval-every 2 --eval-data "
                                        "x=$IN/many.npy");
    bad_wait_lines("o/log.jsonl", 1); // so the second step is next, and then the evaluation
    wait_signal(pid, SIGINT);
    bad_end(pid, &result);
    bad_expect(&result, 128 + SIGINT, "evaluation after step 2: left before its end");
    bad_expect(&result, 128 + SIGINT, "saved: o/model.safetensors");
    // It is made up, now without the delay, and once.
    bad_run("train --resume o --steps 3 --wire-delay 0ms", &result);
    bad_expect(&result, 0, "run: o\nevaluation: loss ");
    bad_run("train --resume o --steps 4 --wire-delay 0ms", &result);
    bad_expect(&result, 0, "run: o\nstep ");
    bad_nothing_left(false);
    whole_rows("o/log.jsonl");
    bad_clear();
}

static void before_there_is_anything_to_save(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        bad_result result;
        const pid_t pid = bad_start(i % 2 ? FOREVER "--ranks 3" : FOREVER);
        usleep(i * i * 60);
        kill(pid, SIGTERM);
        bad_end(pid, &result);
        // Before the program has said what it does with signals they do what they always do.
        if (result.code != 1000 + SIGTERM) bad_expect(&result, 128 + SIGTERM, NULL);
        bad_nothing_left(false);
        bad_clear();
    }
}

// ---- nobody reads -------------------------------------------------------------------------------

// What a run prints, here a line a step, stops in a pipe that is full; it can still be ended.
static void nobody_reads(void **state)
{
    (void)state;
    static const char *const ranks[] = {"1", "3"};
    for (size_t i = 0; i < ZX_COUNT(ranks); i++) {
        int ends[2], held = 0;
        char model[128];
        snprintf(model, sizeof model, "%s", bad_path("m.onnx"));
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(fcntl(ends[1], F_SETPIPE_SZ, 4096), 4096);
        const pid_t pid = wait_fork();
        if (pid == 0) {
            dup2(ends[1], 2);
            close(ends[0]);
            close(ends[1]);
            execl(ZX_PROGRAM, ZX_PROGRAM, "train", model, "--data", "x=synthetic", "--data",
                  "labels=zeros", "--steps", "2000", "--out", "o", "--ranks", ranks[i],
                  (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        // A line of a step has less than 100 bytes, the last ones together have more.
        for (wait_limit w = {0}; held < 4096 - 100; wait_more(&w, "the pipe is full"))
            assert_int_equal(ioctl(ends[0], FIONREAD, &held), 0);
        wait_signal(pid, SIGTERM);
        second_signal(pid);
        assert_int_equal(wait_end(pid), 128 + SIGTERM);
        close(ends[0]);
        bad_nothing_left(false);
        bad_clear();
    }
}

// ---- files that change --------------------------------------------------------------------------

// Data are read where they are mapped: a file that is cut off under a run ends it, with a sentence.
static void data_is_cut_off(void **state)
{
    (void)state;
    static const char *const args[] = {
        "train $IN/m.onnx --data x=$IN/cut.npy --data labels=zeros --steps 1000000000 --out o "
        "--threads 1 --ranks 1",
        "train $IN/m.onnx --data x=$IN/cut.npy --data labels=zeros --steps 1000000000 --out o "
        "--threads 1 --ranks 3",
    };
    for (size_t i = 0; i < ZX_COUNT(args); i++) {
        static float x[4096 * 4];
        bad_result r;
        bad_npy("cut.npy", "<f4", "4096, 4", x, sizeof x);
        const pid_t pid = bad_start(args[i]);
        bad_wait_lines("o/log.jsonl", 3);
        assert_int_equal(truncate(bad_path("cut.npy"), 0), 0);
        bad_end(pid, &r);
        bad_expect(&r, i == 0 ? 1 : 6, i == 0 ? "became shorter" : "(Bus error)");
        bad_format(&r);
        bad_nothing_left(false);
        whole_rows("o/log.jsonl");
        bad_clear();
    }
}

// ---- started by another launcher ----------------------------------------------------------------

typedef struct started { // one process of such a launcher
    const char *env[8];
    const char *args;
} started;

static const struct env_row {
    const char *name;
    started p[3];
    int code;         // of the first one
    const char *says; // said by one of them
    int causes;       // over all of them; -1: any number
} envs[] = {
#define E(rank, size)                                                                              \
    {                                                                                              \
        "RANK=" rank, "LOCAL_RANK=" rank, "WORLD_SIZE=" size, "MASTER_ADDR=here",                  \
            "MASTER_PORT=29500"                                                                    \
    }
#define T M "--steps 2 --out o"
    {"two ranks that fit", {{E("0", "2"), T}, {E("1", "2"), T}}, 0, "done: 2 steps", 0},
    {"--ranks that agree",
     {{E("0", "2"), T " --ranks 2"}, {E("1", "2"), T " --ranks 2"}},
     0,
     "done: 2 steps",
     0},
    {"--ranks that don't", {{E("0", "2"), T " --ranks 3"}}, 2, "--ranks 3", 1},
    {"only some variables",
     {{{"RANK=0", "WORLD_SIZE=2"}, T}},
     0,
     "RANK, WORLD_SIZE in the environment ignored",
     0},
    {"a rank beyond the world", {{E("2", "2"), T}}, 2, "RANK is 2 and WORLD_SIZE 2", 1},
    {"a rank of -1", {{E("-1", "2"), T}}, 2, "RANK", 1},
    {"a rank that is no number", {{E("one", "2"), T}}, 2, "RANK is 'one'", 1},
    {"a world of 0", {{E("0", "0"), T}}, 2, "WORLD_SIZE", 1},
    {"a world of a million", {{E("0", "1000000"), T}}, 2, "WORLD_SIZE is '1000000'", 1},
    {"a port that is none",
     {{{"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=here", "MASTER_PORT=99999"}, T}},
     2,
     "MASTER_PORT",
     1},
    {"a hostile address",
     {{{"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=\n\x1b[2J", "MASTER_PORT=1"}, T}},
     0,
     "done: 2 steps",
     0},
    {"two hosts",
     {{{"RANK=2", "LOCAL_RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=here", "MASTER_PORT=29500"}, T}},
     3,
     "several hosts",
     1},
    {"other models",
     {{E("0", "2"), T},
      {E("1", "2"),
       "train $IN/wide.onnx --data x=synthetic --data labels=zeros --threads 1 --steps 2 --out o"}},
     6,
     "the model or the command line differs between ranks",
     1},
    {"other steps",
     {{E("0", "2"), T}, {E("1", "2"), M "--steps 3 --out o"}},
     6,
     "the model or the command line differs between ranks",
     1},
    {"other stages",
     {{E("0", "2"), T}, {E("1", "2"), T " --stage 1"}},
     6,
     "the model or the command line differs between ranks",
     1},
    {"other seeds",
     {{E("0", "2"), T}, {E("1", "2"), T " --seed 7"}},
     6,
     "the model or the command line differs between ranks",
     1},
    {"worlds of two sizes", {{E("0", "2"), T}, {E("1", "3"), T}}, 6, NULL, -1},
    {"one without a model",
     {{E("0", "2"), T}, {E("1", "2"), "train gone.onnx --steps 2 --out o"}},
     1,
     "gone.onnx",
     1},
#undef T
#undef E
};

static pid_t start_env(const started *p, int out)
{
    static char words[4096];
    char *argv[BAD_ARGS] = {(char *)(uintptr_t)ZX_PROGRAM};
    size_t n = 1, at = 0;
    for (const char *c = p->args; *c != '\0';) {
        argv[n++] = words + at;
        for (; *c != '\0' && *c != ' '; c++) {
            if (strncmp(c, "$IN", 3) == 0) {
                at += (size_t)snprintf(words + at, sizeof words - at, "%s", bad_in);
                c += 2;
            } else {
                words[at++] = *c;
            }
        }
        words[at++] = '\0';
        while (*c == ' ') c++;
    }
    const pid_t pid = wait_fork();
    if (pid != 0) return pid;
    for (size_t i = 0; i < ZX_COUNT(p->env) && p->env[i] != NULL; i++)
        putenv((char *)(uintptr_t)p->env[i]);
    dup2(out, 1);
    dup2(out, 2);
    execv(ZX_PROGRAM, argv);
    _exit(127);
}

static void environment(void **state)
{
    const struct env_row *row = *state;
    pid_t pid[3] = {0};
    int code[3] = {0};
    bad_clear();
    const int out = open("said", O_WRONLY | O_CREAT | O_APPEND, 0666);
    for (size_t i = 0; i < 3 && row->p[i].args != NULL; i++) pid[i] = start_env(&row->p[i], out);
    close(out);
    for (size_t i = 0; i < 3 && pid[i] != 0; i++) code[i] = wait_end(pid[i]);
    char *said = bad_read("said", NULL);
    if (row->says != NULL && strstr(said, row->says) == NULL)
        fail_msg("no '%s' in: %s", row->says, said);
    if (code[0] != row->code) fail_msg("exit code %d, not %d: %s", code[0], row->code, said);
    for (size_t i = 1; i < 3 && pid[i] != 0; i++) // whoever fails, all do
        if ((code[i] == 0) != (row->code == 0)) fail_msg("rank %zu: %d: %s", i, code[i], said);
    const bad_result r = {.err = said};
    if (row->causes >= 0) assert_int_equal(bad_causes(&r), row->causes);
    if (row->code != 0) assert_true(bad_causes(&r) > 0);
    free(said);
    bad_nothing_left(false);
    bad_clear();
}

// The other rank never comes: a first signal is enough, there is nothing to save. The same rank
// once more, by mistake: whoever is second is told so.
static void a_rank_never_comes(void **state)
{
    (void)state;
    static const started one = {
        {"RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=here", "MASTER_PORT=29501"},
        M "--steps 2 --out o"};
    static const char *const files[] = {"said", "again"};
    pid_t pid[2];
    int status = 0;
    for (int i = 0; i < 2; i++) {
        const int out = open(files[i], O_WRONLY | O_CREAT | O_APPEND, 0666);
        pid[i] = start_env(&one, out);
        close(out);
    }
    pid_t ended = 0;
    for (wait_limit w = {0}; ended == 0; wait_more(&w, "the second of them ends"))
        ended = waitpid(-1, &status, WNOHANG);
    const int second = ended == pid[1];
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : 1000, 6);
    char *said = bad_read(files[second], NULL);
    assert_non_null(strstr(said, "zerox: another run uses the same address and port"));
    free(said);
    usleep(300000);
    assert_int_equal(waitpid(pid[!second], &status, WNOHANG), 0);
    kill(pid[!second], SIGTERM);
    assert_int_equal(wait_end(pid[!second]), 128 + SIGTERM);
    assert_int_not_equal(access("o", F_OK), 0);
    bad_nothing_left(false);
    bad_clear();
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    model_write("m.onnx", "", NULL);
    model_write("wide.onnx", "u:f32[3,7]=0.01; v:f32[7,3]=0.02; m=MatMul(logits,u); h=MatMul(m,v)",
                NULL);
    return 0;
}

static int clear(void **state)
{
    (void)state;
    bad_clear();
    return 0;
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test_setup(a_rank_is_killed, clear),
        cmocka_unit_test_setup(a_rank_is_killed_at_any_time, clear),
        cmocka_unit_test_setup(the_launcher_is_killed, clear),
        cmocka_unit_test_setup(a_rank_sleeps, clear),
        cmocka_unit_test_setup(second_signal_ends, clear),
        cmocka_unit_test_setup(a_signal_leaves_an_evaluation, clear),
        cmocka_unit_test_setup(before_there_is_anything_to_save, clear),
        cmocka_unit_test_setup(nobody_reads, clear),
        cmocka_unit_test_setup(data_is_cut_off, clear),
        cmocka_unit_test_setup(a_rank_never_comes, clear),
    };
    struct CMUnitTest tests[ZX_COUNT(signals) + ZX_COUNT(envs) + ZX_COUNT(others)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(signals); i++)
        tests[n++] = zx_case(signals[i].name, first_signal_saves, &signals[i]);
    for (size_t i = 0; i < ZX_COUNT(envs); i++)
        tests[n++] = zx_case(envs[i].name, environment, &envs[i]);
    memcpy(tests + n, others, sizeof others);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}

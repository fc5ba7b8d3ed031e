// test_launch.c - who a process is, and how ranks end: well, with an error, killed, asked to stop.
// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/launch.h"
#include "tests/left.h"

static void nap(double seconds)
{
    const struct timespec t = {.tv_sec = (time_t)seconds,
                               .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

// ---- who ----------------------------------------------------------------------------------------

#define MOST_VARS 7
static const struct who_case {
    const char *name;
    const char *env[MOST_VARS]; // NAME=value
    uint32_t ranks;             // --ranks
    zx_status status;
    zx_who_kind kind;
    uint32_t rank, of;
    const char *says; // in the error or the note
} who_cases[] = {
    {"nothing: alone", {NULL}, 0, ZX_OK, ZX_WHO_ALONE, 0, 1, ""},
    {"--ranks 1: alone", {NULL}, 1, ZX_OK, ZX_WHO_ALONE, 0, 1, ""},
    {"--ranks 3: launcher", {NULL}, 3, ZX_OK, ZX_WHO_LAUNCHER, 0, 3, ""},
    {"--ranks 100000", {NULL}, 100000, ZX_E_USAGE, ZX_WHO_ALONE, 0, 0, "1 to 1024"},
    {"all five: a rank",
     {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"},
     0,
     ZX_OK,
     ZX_WHO_RANK,
     1,
     4,
     ""},
    {"all five and the same --ranks",
     {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=3", "MASTER_ADDR=localhost", "MASTER_PORT=29500"},
     4,
     ZX_OK,
     ZX_WHO_RANK,
     3,
     4,
     ""},
    {"all five and another --ranks",
     {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=localhost", "MASTER_PORT=29500"},
     2,
     ZX_E_USAGE,
     0,
     0,
     0,
     "--ranks 2, but the launcher started 4"},
    {"a world of one",
     {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "MASTER_ADDR=localhost", "MASTER_PORT=29500"},
     0,
     ZX_OK,
     ZX_WHO_ALONE,
     0,
     1,
     ""},
    {"only some: ignored, said so",
     {"RANK=1", "WORLD_SIZE=4"},
     2,
     ZX_OK,
     ZX_WHO_LAUNCHER,
     0,
     2,
     "RANK, WORLD_SIZE in the environment ignored"},
    {"several hosts by LOCAL_WORLD_SIZE",
     {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=a", "MASTER_PORT=29500",
      "LOCAL_WORLD_SIZE=2"},
     0,
     ZX_E_UNSUPPORTED,
     0,
     0,
     0,
     "several hosts"},
    {"several hosts by LOCAL_RANK",
     {"RANK=2", "WORLD_SIZE=4", "LOCAL_RANK=0", "MASTER_ADDR=a", "MASTER_PORT=29500"},
     0,
     ZX_E_UNSUPPORTED,
     0,
     0,
     0,
     "several hosts"},
    {"a rank beyond the world",
     {"RANK=4", "WORLD_SIZE=4", "LOCAL_RANK=4", "MASTER_ADDR=a", "MASTER_PORT=29500"},
     0,
     ZX_E_USAGE,
     0,
     0,
     0,
     "RANK is 4"},
    {"not a number",
     {"RANK=one", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=a", "MASTER_PORT=29500"},
     0,
     ZX_E_USAGE,
     0,
     0,
     0,
     "RANK is 'one'"},
    {"a port that can't be",
     {"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "MASTER_ADDR=a", "MASTER_PORT=70000"},
     0,
     ZX_E_USAGE,
     0,
     0,
     0,
     "MASTER_PORT is '70000'"},
};

static void clear_env(void)
{
    static const char *const names[] = {"RANK",        "WORLD_SIZE",  "LOCAL_RANK",
                                        "MASTER_ADDR", "MASTER_PORT", "LOCAL_WORLD_SIZE"};
    for (size_t i = 0; i < ZX_COUNT(names); i++) unsetenv(names[i]);
}

static void set_env(const char *const *env)
{
    clear_env();
    for (size_t i = 0; i < MOST_VARS && env[i] != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", env[i]);
        char *eq = strchr(name, '=');
        *eq = '\0';
        setenv(name, eq + 1, 1);
    }
}

static void who(void **state)
{
    const struct who_case *c = *state;
    zx_who got;
    zx_err err = {0};
    set_env(c->env);
    assert_int_equal(zx_launch_who(c->ranks, &got, &err), c->status);
    clear_env();
    if (c->status != ZX_OK) {
        assert_non_null(strstr(err.cause[0], c->says));
        return;
    }
    assert_int_equal(got.kind, c->kind);
    assert_int_equal(got.rank, c->rank);
    assert_int_equal(got.ranks, c->of);
    if (c->says[0] == '\0')
        assert_string_equal(got.note, "");
    else
        assert_non_null(strstr(got.note, c->says));
}

// ---- how ranks end ------------------------------------------------------------------------------

// Shared with the ranks.
static struct together {
    _Atomic int ready;   // ranks that have come so far
    _Atomic int stopped; // that came to their own end
    pid_t pid[8];
} * together;

static int meet(zx_world *w, zx_err *err)
{
    return zx_status_exit(zx_world_agree(w, ZX_OK, err));
}

static int all_well(void *arg, zx_world *w, zx_err *err)
{
    (void)arg;
    for (int i = 0; i < 20; i++)
        if (meet(w, err) != 0) return 1;
    return 0;
}

static int one_has_no_data(void *arg, zx_world *w, zx_err *err)
{
    (void)arg;
    if (zx_world_rank(w) == 1) return zx_status_exit(ZX_FAIL(err, ZX_E_DATA, "no data"));
    return meet(w, err);
}

static int all_find_the_same(void *arg, zx_world *w, zx_err *err)
{
    (void)arg;
    const zx_status mine = zx_world_rank(w) == 2 ? ZX_FAIL(err, ZX_E_FORMAT, "not a model") : ZX_OK;
    return zx_status_exit(zx_world_agree(w, mine, err));
}

static int one_is_killed(void *arg, zx_world *w, zx_err *err)
{
    if (meet(w, err) != 0) return 1;
    if (zx_world_rank(w) == 2) {
        signal(*(const int *)arg, SIG_DFL); // cmocka handles some
        raise(*(const int *)arg);
    }
    return meet(w, err);
}

static int one_exits(void *arg, zx_world *w, zx_err *err)
{
    (void)arg;
    if (zx_world_rank(w) == 2) _exit(7);
    return meet(w, err);
}

// Rank 0 doesn't look at anything: it has to be ended.
static int one_fails_one_is_deaf(void *arg, zx_world *w, zx_err *err)
{
    (void)arg;
    if (meet(w, err) != 0) return 1;
    if (zx_world_rank(w) == 1) return zx_status_exit(ZX_FAIL(err, ZX_E_IO, "disk full"));
    if (zx_world_rank(w) == 0)
        for (;;) pause();
    return meet(w, err);
}

static const struct end_case {
    const char *name;
    uint32_t ranks;
    zx_rank_run *run;
    int number; // of a signal, for `run`
    int code;
    const char *says; // NULL: no error
} end_cases[] = {
    {"alone, well", 1, all_well, 0, 0, NULL},
    {"4 ranks, well", 4, all_well, 0, 0, NULL},
    {"one has an error of its own", 3, one_has_no_data, 0, 3, "no data"},
    {"all agree on one's error", 4, all_find_the_same, 0, 3, "rank 2: not a model"},
    {"one is killed", 3, one_is_killed, SIGKILL, 6, "rank 2 was killed by signal 9 (Killed)"},
    {"one crashes", 4, one_is_killed, SIGSEGV, 6,
     "rank 2 was killed by signal 11 (Segmentation fault)"},
    {"one exits with a code of its own", 3, one_exits, 0, 7, NULL},
    {"a deaf rank is ended", 3, one_fails_one_is_deaf, 0, 1, "disk full"},
};

static void how_it_ends(void **state)
{
    const struct end_case *c = *state;
    zx_who w;
    static zx_err err;
    err = (zx_err){0};
    assert_zx_ok(zx_launch_who(c->ranks, &w, &err), &err);
    int number = c->number;
    alarm(HANG_SECONDS);
    assert_int_equal(zx_launch_run(&w, c->run, &number, &err), c->code);
    alarm(0);
    if (c->says == NULL) {
        assert_int_equal(err.n_causes, 0);
    } else {
        assert_int_equal(err.n_causes, 1);
        assert_string_equal(err.cause[0], c->says);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); // no child is left
    assert_int_equal(errno, ECHILD);
    left_no_shm(getpid(), NULL);
}

// ---- a rank that stands still -------------------------------------------------------------------

static struct heard {
    char text[4][200];
    uint32_t n;
} heard;

static void hear(const char *sentence)
{
    if (heard.n < ZX_COUNT(heard.text))
        snprintf(heard.text[heard.n++], sizeof heard.text[0], "%s", sentence);
    if (strstr(sentence, "stopped") == NULL) return;
    atomic_store(&together->stopped, 1); // the launcher has told: rank 0 lets rank 1 go on
}

static int one_is_stopped(void *arg, zx_world *w, zx_err *err)
{
    (void)arg;
    together->pid[zx_world_rank(w)] = getpid();
    if (meet(w, err) != 0) return 1;
    if (zx_world_rank(w) == 1) {
        raise(SIGSTOP);
        nap(0.3); // it is seen to go on before it ends
    }
    if (zx_world_rank(w) == 0) {
        for (wait_limit l = {0}; atomic_load(&together->stopped) == 0; wait_more(&l, "it is said"))
            continue;
        kill(together->pid[1], SIGCONT);
    }
    return meet(w, err);
}

static void a_stopped_rank_is_told_of(void **state)
{
    (void)state;
    zx_who w;
    static zx_err err;
    char want[200];
    *together = (struct together){0};
    heard.n = 0;
    assert_zx_ok(zx_launch_who(3, &w, &err), &err);
    w.notice_seconds = 0.3;
    w.say = hear;
    alarm(HANG_SECONDS);
    assert_int_equal(zx_launch_run(&w, one_is_stopped, NULL, &err), 0);
    alarm(0);
    assert_int_equal(heard.n, 2);
    snprintf(want, sizeof want, "rank 1 (pid %d) has been stopped for ", (int)together->pid[1]);
    assert_non_null(strstr(heard.text[0], want));
    snprintf(want, sizeof want, "kill -CONT %d lets it go on", (int)together->pid[1]);
    assert_non_null(strstr(heard.text[0], want));
    snprintf(want, sizeof want, "rank 1 (pid %d) goes on", (int)together->pid[1]);
    assert_string_equal(heard.text[1], want);
}

// ---- signals ------------------------------------------------------------------------------------

enum patience { STOPS, STOPS_LATE, NEVER_STOPS, NOT_WATCHING };

static int until_asked(void *arg, zx_world *w, zx_err *err)
{
    const enum patience p = *(const enum patience *)arg;
    (void)err;
    if (p != NOT_WATCHING) zx_launch_watch(NULL);
    together->pid[zx_world_rank(w)] = getpid();
    atomic_fetch_add(&together->ready, 1);
    while (p > STOPS_LATE || zx_launch_signal() == 0) nap(0.01);
    if (p == STOPS_LATE) nap(0.3); // there is something to save
    atomic_fetch_add(&together->stopped, 1);
    return 128 + zx_launch_signal();
}

static const struct signal_case {
    const char *name;
    uint32_t ranks;
    enum patience patience;
    int first,
        second; // signals sent to the launcher; 0: none; negative: it was started ignoring it
    int code;   // exit code of the launcher; 128+9 for one that was killed
    bool twice; // the first one comes once more at once, and to the ranks too, as timeout(1) does
} signal_cases[] = {
    {"alone: SIGINT asks it to stop", 1, STOPS, SIGINT, 0, 130},
    {"alone: SIGTERM asks it to stop", 1, STOPS, SIGTERM, 0, 143},
    {"alone: a second one ends it", 1, NEVER_STOPS, SIGINT, SIGINT, 130},
    {"alone, not training yet: the first one ends it", 1, NOT_WATCHING, SIGTERM, 0, 143},
    {"3 ranks: SIGINT asks them to stop", 3, STOPS, SIGINT, 0, 130},
    {"3 ranks: SIGTERM asks them to stop", 3, STOPS, SIGTERM, 0, 143},
    {"3 ranks: SIGHUP asks them to stop", 3, STOPS, SIGHUP, 0, 129},
    {"alone: twice at once is one wish", 1, STOPS_LATE, SIGTERM, 0, 143, true},
    {"3 ranks: twice at once is one wish", 3, STOPS_LATE, SIGTERM, 0, 143, true},
    {"3 ranks under nohup: SIGHUP is none", 3, STOPS, -SIGHUP, SIGTERM, 143},
    {"3 ranks of a script: SIGINT counts although ignored", 3, STOPS, -SIGINT, 0, 130},
    {"alone under nohup: SIGHUP is none", 1, STOPS, -SIGHUP, SIGTERM, 143},
    {"3 ranks: a second one ends them", 3, NEVER_STOPS, SIGTERM, SIGINT, 143},
    {"3 ranks, not training yet: the first one ends them", 3, NOT_WATCHING, SIGINT, 0, 130},
    {"the launcher is killed: no rank stays", 3, NEVER_STOPS, SIGKILL, 0, 128 + SIGKILL},
};

static void wait_until_ready(uint32_t ranks)
{
    for (wait_limit w = {0}; atomic_load(&together->ready) < (int)ranks;)
        wait_more(&w, "ranks are ready");
    assert_int_equal(atomic_load(&together->ready), ranks);
}

static void expect_gone(uint32_t ranks)
{
    for (uint32_t r = 0; r < ranks; r++) {
        bool gone = false;
        for (wait_limit w = {0}; !gone; wait_more(&w, "a rank is gone")) {
            // Once its launcher is gone a rank is somebody else's child: it may be a zombie for
            // long.
            char path[64], line[128] = "";
            snprintf(path, sizeof path, "/proc/%d/stat", (int)together->pid[r]);
            FILE *f = fopen(path, "r");
            gone = f == NULL || fgets(line, sizeof line, f) == NULL || strstr(line, ") Z") != NULL;
            if (f != NULL) fclose(f);
        }
    }
}

static void signals(void **state)
{
    const struct signal_case *c = *state;
    memset(together, 0, sizeof *together);
    enum patience p = c->patience;
    const pid_t pid = fork();
    if (pid == 0) {
        zx_who w;
        static zx_err err;
        signal(abs(c->first), c->first < 0 ? SIG_IGN : SIG_DFL);
        if (zx_launch_who(c->ranks, &w, &err) != ZX_OK) _exit(99);
        const int code = zx_launch_run(&w, until_asked, &p, &err);
        _exit(err.n_causes == 0 ? code : 98);
    }
    wait_until_ready(c->ranks);
    wait_signal(pid, abs(c->first));
    if (c->twice) {
        kill(pid, c->first);
        for (uint32_t r = 0; r < c->ranks && c->ranks > 1; r++) kill(together->pid[r], c->first);
    }
    if (c->second != 0) {
        nap(0.2);
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); // still there
        kill(pid, c->second);
    }
    const int code = wait_end(pid);
    assert_int_equal(code > 1000 ? 128 + code - 1000 : code, c->code);
    if (c->patience <= STOPS_LATE) assert_int_equal(atomic_load(&together->stopped), c->ranks);
    expect_gone(c->ranks);
}

// ---- under another launcher ---------------------------------------------------------------------

static int some_launcher(zx_rank_run *run, void *arg, int *said)
{
    pid_t pid[3];
    int pipes[2], worst = 0;
    assert_int_equal(pipe(pipes), 0);
    for (int r = 0; r < 3; r++) {
        pid[r] = fork();
        if (pid[r] != 0) continue;
        char rank[8], port[8];
        snprintf(rank, sizeof rank, "%d", r);
        snprintf(port, sizeof port, "%d", 20000 + (int)(getppid() % 20000));
        setenv("RANK", rank, 1);
        setenv("LOCAL_RANK", rank, 1);
        setenv("WORLD_SIZE", "3", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", port, 1);
        zx_who w;
        static zx_err err;
        if (zx_launch_who(0, &w, &err) != ZX_OK) _exit(99);
        const int code = zx_launch_run(&w, run, arg, &err);
        if (err.n_causes > 0 && write(pipes[1], "!", 1) != 1) _exit(99);
        _exit(code);
    }
    close(pipes[1]);
    for (int r = 0; r < 3; r++) {
        int status = 0;
        waitpid(pid[r], &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) > worst) worst = WEXITSTATUS(status);
    }
    char text[8];
    *said = (int)read(pipes[0], text, sizeof text);
    close(pipes[0]);
    return worst;
}

static void ranks_of_another_launcher(void **state)
{
    (void)state;
    int said = -1;
    assert_int_equal(some_launcher(all_well, NULL, &said), 0);
    assert_int_equal(said, 0);
}

static void what_all_found_is_said_once(void **state)
{
    (void)state;
    int said = -1;
    assert_int_equal(some_launcher(all_find_the_same, NULL, &said), 3);
    assert_int_equal(said, 1);
}

static void a_death_is_said_once(void **state)
{
    (void)state;
    int said = -1, number = SIGKILL;
    assert_int_equal(some_launcher(one_is_killed, &number, &said), 6);
    assert_int_equal(said, 1);
}

static int prepare(void **state)
{
    (void)state;
    clear_env();
    together =
        mmap(NULL, sizeof *together, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return together == MAP_FAILED;
}

int main(void)
{
    left_begin();
    struct CMUnitTest tests[ZX_COUNT(who_cases) + ZX_COUNT(end_cases) + ZX_COUNT(signal_cases) + 4];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(who_cases); i++)
        tests[n++] = zx_case(who_cases[i].name, who, &who_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(end_cases); i++)
        tests[n++] = zx_case(end_cases[i].name, how_it_ends, &end_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(signal_cases); i++)
        tests[n++] = zx_case(signal_cases[i].name, signals, &signal_cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_stopped_rank_is_told_of);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(ranks_of_another_launcher);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(what_all_found_is_said_once);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_death_is_said_once);
    return cmocka_run_group_tests_name("launch", tests, prepare, NULL);
}

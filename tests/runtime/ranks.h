// ranks.h - test harness: the same function as every rank of a world, ranks being threads of this
// process or processes of their own.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_RUNTIME_RANKS_H
#define ZX_TESTS_RUNTIME_RANKS_H

#include <pthread.h>
#include <stdio.h>

#include "runtime/world.h"
#include "tests/wait.h"

#define MOST_RANKS 8

typedef int rank_fn(zx_world *w, void *arg); // 0: as it should be

typedef struct rank_thread {
    pthread_t thread;
    zx_world *world;
    rank_fn *run;
    void *arg;
    int result;
} rank_thread;

static inline void *rank_thread_main(void *arg)
{
    rank_thread *t = arg;
    t->result = t->run(t->world, t->arg);
    zx_world_close(t->world);
    return NULL;
}

// Runs `run` on `n` threads; fails the test if any returns non-zero.
static inline void run_threads(uint32_t n, rank_fn *run, void *arg)
{
    zx_world *worlds[MOST_RANKS];
    rank_thread t[MOST_RANKS];
    static zx_err err;
    err = (zx_err){0};
    assert_zx_ok(zx_world_local(n, worlds, &err), &err);
    for (uint32_t r = 0; r < n; r++) {
        t[r] = (rank_thread){.world = worlds[r], .run = run, .arg = arg};
        assert_int_equal(pthread_create(&t[r].thread, NULL, rank_thread_main, &t[r]), 0);
    }
    for (uint32_t r = 0; r < n; r++) pthread_join(t[r].thread, NULL);
    for (uint32_t r = 0; r < n; r++)
        if (t[r].result != 0) fail_msg("rank %u of %u threads returned %d", r, n, t[r].result);
}

static inline void socket_name(char name[64])
{
    static int n;
    snprintf(name, 64, "zerox-test-%d-%d", (int)getpid(), n++);
}

// Starts rank r of n as a process; its exit status is what `run` returns (99: it couldn't join).
static inline pid_t start_process(const char *name, uint32_t r, uint32_t n, rank_fn *run, void *arg)
{
    const pid_t pid = fork();
    if (pid != 0) return pid;
    zx_world *w = NULL;
    zx_err err = {0};
    int result = 99;
    if (zx_world_join(name, r, n, HANG_SECONDS, &w, &err) == ZX_OK) {
        result = run(w, arg);
        zx_world_close(w);
    } else {
        fprintf(stderr, "rank %u: %s\n", r, err.cause[0]);
    }
    _exit(result);
}

static inline void run_processes(uint32_t n, rank_fn *run, void *arg)
{
    char name[64];
    pid_t pid[MOST_RANKS];
    socket_name(name);
    for (uint32_t r = 0; r < n; r++) pid[r] = start_process(name, r, n, run, arg);
    int bad = 0;
    for (uint32_t r = 0; r < n; r++) {
        int status = -1;
        waitpid(pid[r], &status, 0);
        if (status != 0) {
            print_error("rank %u of %u processes ended with status %d\n", r, n, status);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

// In a rank, where cmocka's asserts can't be used: the line that isn't as it should be.
#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#endif

// wait.h - test harness: processes that are waited for and signals that are seen to arrive, with
// one limit for all of them. What is waited for takes moments on an idle machine; who hangs does so
// for ever, or for the 120 s in which ranks may come. A machine that is slow and shared is in
// between.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_WAIT_H
#define ZX_TESTS_WAIT_H

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/test.h"

#define HANG_SECONDS 100

// `for (wait_limit w = {0}; !there; wait_more(&w, "what"))`: looks again soon; fails when it hangs.
typedef struct wait_limit {
    double until;
} wait_limit;

static inline double wait_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// False: it hangs.
static inline bool wait_again(wait_limit *w)
{
    if (w->until <= 0) w->until = wait_now() + HANG_SECONDS;
    usleep(1000);
    return wait_now() < w->until;
}

static inline void wait_more(wait_limit *w, const char *what)
{
    if (!wait_again(w)) fail_msg("in vain: %s", what);
}

// A child that ends with its test, which else would be waited for: it holds the test's output.
static inline pid_t wait_fork(void)
{
    const pid_t pid = fork();
    if (pid == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

// How a child ends: its exit code; 1000 + n: killed by signal n; -1: it hung, and was killed.
static inline int wait_end(pid_t pid)
{
    int status = 0;
    bool hung = false;
    for (wait_limit w = {0}; waitpid(pid, &status, WNOHANG) == 0;) {
        if (hung || wait_again(&w)) continue;
        hung = true;
        kill(pid, SIGKILL);
    }
    if (hung) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// Whether a signal that was sent to a process waits to be taken. Of two alike that wait one is
// lost.
static inline bool signal_waits(pid_t pid, int number)
{
    char path[64], line[128];
    unsigned long long set = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "State:\tZ", 8) == 0) break; // what killed it still counts as pending
        if (sscanf(line, "ShdPnd: %llx", &set) == 1) break;
    }
    if (f != NULL) fclose(f);
    return (set >> (number - 1) & 1) != 0;
}

// Sends a signal and sees it taken.
static inline void wait_signal(pid_t pid, int number)
{
    kill(pid, number);
    for (wait_limit w = {0}; signal_waits(pid, number);) wait_more(&w, "a signal is taken");
}

#endif

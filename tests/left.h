// left.h - test harness: what runs leave behind, processes and names in /dev/shm. Only the test's
// own count: it is the parent of all whose parent has ended, and where it may mount (root) nobody
// else sees its /dev/shm; elsewhere names count that hold the number of a process it has started.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_LEFT_H
#define ZX_TESTS_LEFT_H

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

#include "tests/wait.h"

static bool left_own_shm;

// To begin a test program with.
static inline void left_begin(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    left_own_shm = unshare(CLONE_NEWNS) == 0 &&
                   mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                   mount("left", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

// Ends what a test that failed has left running, so that the next one isn't blamed for it.
static inline void left_end(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (wait_limit w = {0}; waitpid(-1, NULL, WNOHANG) >= 0;) {
        FILE *f = fopen(path, "r"); // those of a child that ends become ours
        for (int p; f != NULL && fscanf(f, "%d", &p) == 1;) kill(p, SIGKILL);
        if (f != NULL) fclose(f);
        if (!wait_again(&w)) return;
    }
}

// Fails where processes still run when `seconds` have passed, and ends them.
static inline void left_no_process(double seconds)
{
    const double until = wait_now() + seconds;
    while (waitpid(-1, NULL, WNOHANG) >= 0) {
        usleep(1000);
        if (wait_now() < until) continue;
        left_end();
        fail_msg("processes are left, after %.0f s", seconds);
    }
    assert_int_equal(errno, ECHILD);
}

// Whether the number is a part of the name.
static inline bool left_names(const char *name, int pid)
{
    char number[16];
    snprintf(number, sizeof number, "%d", pid);
    const size_t n = strlen(number);
    for (const char *at = name; (at = strstr(at, number)) != NULL; at++)
        if ((at == name || at[-1] < '0' || at[-1] > '9') && (at[n] < '0' || at[n] > '9'))
            return true;
    return false;
}

// Fails where a name is left in /dev/shm; `pid` is the last process that the test has started.
// `but`: the beginning of names that may be; NULL.
static inline void left_no_shm(int pid, const char *but)
{
    char left[300] = "";
    DIR *d = opendir("/dev/shm");
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || (but != NULL && strncmp(e->d_name, but, strlen(but)) == 0))
            continue;
        if (strncmp(e->d_name, "__KMP_", 6) == 0) continue; // of clang's OpenMP library
        if (left_own_shm || left_names(e->d_name, pid)) snprintf(left, 300, "%s", e->d_name);
    }
    if (d != NULL) closedir(d);
    if (left[0] != '\0') fail_msg("/dev/shm/%s is left", left);
}

#endif

// guard.c - see guard.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/stream.h"

#define NAP 0.02       // seconds
#define MOST (5 * NAP) // that one is counted for: a process that was stopped goes on where it was

struct zx_guard {
    double seconds;
    void (*stuck)(const zx_err *why);
    pthread_t thread;
    uint64_t calls; // so far
    zx_guard_where *where;
    const void *of;
    _Atomic uint64_t call; // the number of the one in progress; 0: there is none
    _Atomic uint32_t closing;
};

static void give_up(const zx_guard *g)
{
    zx_err why = {0};
    zx_err_hint(&why, "a longer --timeout, if this takes so long; `dmesg | grep Xid` has what the "
                      "driver saw of a device that hangs");
    ZX_FAIL(&why, ZX_E_DEVICE, "a call of CUDA hasn't come back for %g s (--timeout)", g->seconds);
    g->where(g->of, &why);
    g->stuck(&why);
}

static void *guard_main(void *arg)
{
    zx_guard *g = arg;
    uint64_t seen = 0;
    double waited = 0, last = zx_seconds();
    while (!atomic_load(&g->closing)) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * NAP)}, NULL);
        const uint64_t call = atomic_load(&g->call);
        const double now = zx_seconds(), nap = now - last < MOST ? now - last : MOST;
        waited = call != 0 && call == seen ? waited + nap : 0;
        seen = call;
        last = now;
        if (waited > g->seconds) give_up(g);
    }
    return NULL;
}

zx_status zx_guard_open(double seconds, void (*stuck)(const zx_err *why), zx_guard **out,
                        zx_err *err)
{
    sigset_t all, before; // signals are the main thread's
    zx_guard *g = calloc(1, sizeof *g);
    if (g == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    g->seconds = seconds;
    g->stuck = stuck;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int e = pthread_create(&g->thread, NULL, guard_main, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    *out = g;
    if (e == 0) return ZX_OK;
    free(g);
    *out = NULL;
    return ZX_FAIL(err, ZX_E_DEVICE, "cannot start a thread: %s", strerror(e));
}

void zx_guard_close(zx_guard *g)
{
    if (g == NULL) return;
    atomic_store(&g->closing, 1);
    pthread_join(g->thread, NULL);
    free(g);
}

void zx_guard_enter(zx_guard *g, zx_guard_where *where, const void *of)
{
    if (g == NULL) return;
    g->where = where;
    g->of = of;
    atomic_store(&g->call, ++g->calls);
}

void zx_guard_leave(zx_guard *g)
{
    if (g != NULL) atomic_store(&g->call, 0);
}

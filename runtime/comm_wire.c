// comm_wire.c - see comm_wire.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm_wire.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

// The collective that a stream is at. A rank comes to the next one only when all ranks have read
// this one's times, so one a stream is enough.
typedef struct item {
    uint32_t count, position;
    uint32_t n_issued; // ranks
    bool timed;        // from and until are there
    double issued;     // by the last of those ranks
    double seconds, from, until;
} item;

struct zx_wire {
    pthread_mutex_t lock; // robust: a process may die while it holds it
    uint32_t ranks;
    double free; // when the last collective that has its time leaves the wire
    item at[ZX_STREAM_COUNT];
};

uint64_t zx_wire_bytes(void)
{
    return sizeof(zx_wire);
}

zx_status zx_wire_start(zx_wire *w, uint32_t ranks, zx_err *err)
{
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    int e = pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
    if (e == 0) e = pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (e == 0) e = pthread_mutex_init(&w->lock, &a);
    pthread_mutexattr_destroy(&a);
    w->ranks = ranks;
    if (e != 0) return ZX_FAIL(err, ZX_E_DEVICE, "cannot make a lock: %s", strerror(e));
    return ZX_OK;
}

static bool enter(zx_wire *w)
{
    return pthread_mutex_lock(&w->lock) == 0; // EOWNERDEAD: the run is lost anyway
}

static void leave(zx_wire *w)
{
    pthread_mutex_unlock(&w->lock);
}

bool zx_wire_issue(zx_wire *w, zx_stream s, uint32_t count, uint32_t position, double issued,
                   double seconds)
{
    if (!enter(w)) return false;
    item *i = &w->at[s];
    if (i->count != count)
        *i = (item){.count = count, .position = position, .issued = issued, .seconds = seconds};
    if (issued > i->issued) i->issued = issued;
    i->n_issued++;
    leave(w);
    return true;
}

bool zx_wire_eligible(zx_wire *w, zx_stream s, double *at)
{
    if (!enter(w)) return false;
    ZX_ASSERT(w->at[s].n_issued == w->ranks);
    *at = w->at[s].issued;
    leave(w);
    return true;
}

// The first of those that wait for their time; NULL: none does.
static item *first_waiting(zx_wire *w)
{
    item *first = NULL;
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) {
        item *i = &w->at[s];
        if (i->n_issued != w->ranks || i->timed) continue;
        if (first == NULL || i->issued < first->issued ||
            (i->issued == first->issued && i->position < first->position))
            first = i;
    }
    return first;
}

bool zx_wire_turn(zx_wire *w, zx_stream s, double *from, double *until)
{
    if (!enter(w)) return false;
    item *mine = &w->at[s];
    ZX_ASSERT(mine->n_issued == w->ranks);
    while (!mine->timed) {
        item *i = first_waiting(w);
        i->from = i->issued > w->free ? i->issued : w->free;
        i->until = w->free = i->from + i->seconds;
        i->timed = true;
    }
    *from = mine->from;
    *until = mine->until;
    leave(w);
    return true;
}

bool zx_sleep_until(double at, const zx_world *w)
{
    for (;;) {
        const double now = zx_seconds(), look = now + 0.05; // is a peer gone?
        if (w != NULL && zx_world_lost(w)) return false;
        if (now >= at) return true;
        const double next = at < look ? at : look;
        struct timespec t = {.tv_sec = (time_t)next};
        t.tv_nsec = (long)(1e9 * (next - (double)t.tv_sec));
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {
        }
    }
}

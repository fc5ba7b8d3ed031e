// stream.c - see stream.h. Futexes, in their shared form: a word may lie in memory that several
// processes map.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/stream.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_NS 50000000L // a sleeper looks this often whether a peer is gone

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

double zx_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void zx_word_set(zx_word *w, uint32_t value)
{
    // Sequentially consistent on both sides: either the setter sees the waiter or the waiter the
    // value.
    atomic_store(&w->value, value);
    if (atomic_load(&w->waiters) > 0)
        syscall(SYS_futex, (uint32_t *)&w->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool zx_word_wait(zx_word *w, uint32_t value, const zx_patience *p, uint32_t peer)
{
    for (uint32_t i = 0; i <= p->spins; i++) {
        if (zx_word_reached(w, value)) return true;
        relax();
    }
    bool ok = true;
    const double since = p->world != NULL && peer != ZX_NO_PEER ? zx_seconds() : 0;
    atomic_fetch_add(&w->waiters, 1);
    for (;;) {
        const uint32_t seen = atomic_load(&w->value);
        if ((int32_t)(seen - value) >= 0) break;
        if (p->world != NULL && zx_world_lost(p->world)) {
            ok = false;
            break;
        }
        if (p->world != NULL && peer != ZX_NO_PEER && zx_world_left(p->world, peer)) {
            ok = zx_word_reached(w, value); // it may have set the word and left since
            if (!ok) zx_world_gone(p->world, peer);
            break;
        }
        if (p->world != NULL && peer != ZX_NO_PEER && zx_world_late(p->world, peer, since)) {
            ok = false;
            break;
        }
        const struct timespec nap = {.tv_nsec = LOOK_NS};
        const struct timespec *most = p->world != NULL ? &nap : NULL; // one's own threads come
        syscall(SYS_futex, (uint32_t *)&w->value, FUTEX_WAIT, seen, most, NULL, 0);
    }
    atomic_fetch_sub(&w->waiters, 1);
    return ok;
}

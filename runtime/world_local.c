// world_local.c - ranks as threads of one process: they meet at a barrier and read each other's
// memory. Also how a lone process is a world of one.
// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "runtime/world_link.h"

struct zx_local_link {
    zx_world_shared shared;
    pthread_mutex_t lock;
    pthread_cond_t moved; // the meeting went on, or somebody is gone
    uint32_t size, n_open, n_here, meeting;
    struct part {
        uint32_t call;
        const void *at;
        uint64_t n;
    } * parts; // one a rank
    struct mapping {
        struct mapping *next;
        void *at;
        uint64_t bytes;
        uint32_t users; // ranks that haven't given it up: a peer may still read it
    } * maps;           // those that some rank keeps until it closes its world
};

static bool anyone_gone(const zx_world *w)
{
    const struct zx_local_link *l = w->local;
    bool gone = zx_world_lost(w);
    for (uint32_t r = 0; r < l->size && !gone; r++) gone = atomic_load(&l->shared.left[r]) != 0;
    return gone;
}

// Waits until all ranks are here; false if that can't happen any more. The lock is held.
static bool meet(zx_world *w)
{
    struct zx_local_link *l = w->local;
    const uint32_t meeting = l->meeting;
    if (++l->n_here == l->size) {
        l->n_here = 0;
        l->meeting++;
        pthread_cond_broadcast(&l->moved);
        return true;
    }
    while (l->meeting == meeting) {
        if (anyone_gone(w)) {
            for (uint32_t r = 0; r < l->size; r++)
                if (zx_world_left(w, r)) zx_world_gone(w, r);
            return false;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += ZX_WORLD_LOOK_MS * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_nsec -= 1000000000L;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&l->moved, &l->lock, &until);
    }
    return true;
}

static zx_status copy_parts(const struct zx_local_link *l, uint32_t call, zx_parts *out,
                            zx_err *err)
{
    uint64_t *sizes = calloc(l->size, sizeof *sizes);
    if (sizes == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
    zx_status st = ZX_OK;
    for (uint32_t r = 0; r < l->size && st == ZX_OK; r++) {
        sizes[r] = l->parts[r].n;
        if (l->parts[r].call != call)
            st = ZX_FAIL(err, ZX_E_COMM, "rank %u is in another collective call (%u, not %u)", r,
                         l->parts[r].call, call);
    }
    if (st == ZX_OK) st = zx_parts_room(out, l->size, sizes, err);
    for (uint32_t r = 0; r < l->size && st == ZX_OK; r++)
        if (sizes[r] > 0) memcpy(out->bytes + out->at[r], l->parts[r].at, (size_t)sizes[r]);
    free(sizes);
    return st;
}

static zx_status local_share(zx_world *w, uint32_t call, const void *mine, uint64_t n,
                             zx_parts *out, zx_err *err)
{
    struct zx_local_link *l = w->local;
    *out = (zx_parts){0};
    pthread_mutex_lock(&l->lock);
    l->parts[w->rank] = (struct part){call, mine, n};
    bool all_here = meet(w);
    zx_status st = ZX_OK;
    if (all_here) {
        st = copy_parts(l, call, out, err);
        all_here = meet(w); // nobody's bytes go before everybody has copied them
    }
    pthread_mutex_unlock(&l->lock);
    if (!all_here && st == ZX_OK) st = zx_world_why(w, err);
    if (st != ZX_OK) zx_parts_free(out);
    return st;
}

// A mapping that lives until all ranks have given it up, or have closed.
static zx_status map_mine(struct zx_local_link *l, uint64_t bytes, void **at, zx_err *err)
{
    struct mapping *m = malloc(sizeof *m);
    if (m == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory for a list of mappings");
    const zx_status st = zx_world_map(-1, bytes, at, err);
    if (st != ZX_OK) {
        free(m);
        return st;
    }
    pthread_mutex_lock(&l->lock);
    *m = (struct mapping){l->maps, *at, bytes, l->size};
    l->maps = m;
    pthread_mutex_unlock(&l->lock);
    return ZX_OK;
}

static zx_status local_map(zx_world *w, uint64_t bytes, unsigned char **base, zx_err *err)
{
    void *mine = NULL;
    zx_parts all;
    const zx_status st = map_mine(w->local, bytes, &mine, err);
    const zx_status shared = local_share(w, UINT32_MAX, &mine, sizeof mine, &all, err);
    if (shared != ZX_OK) return st != ZX_OK ? st : shared;
    for (uint32_t r = 0; r < w->size; r++) {
        void *at;
        memcpy(&at, all.bytes + all.at[r], sizeof at);
        base[r] = at;
    }
    zx_parts_free(&all);
    return st;
}

static void local_unmap(zx_world *w, uint64_t bytes ZX_UNUSED, unsigned char **base)
{
    struct zx_local_link *l = w->local;
    pthread_mutex_lock(&l->lock);
    for (struct mapping **at = &l->maps; *at != NULL;) {
        struct mapping *m = *at;
        bool mine = false;
        for (uint32_t r = 0; r < w->size; r++) mine = mine || base[r] == m->at;
        if (!mine || --m->users > 0) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        munmap(m->at, (size_t)m->bytes);
        free(m);
    }
    pthread_mutex_unlock(&l->lock);
}

static void local_free(struct zx_local_link *l)
{
    while (l->maps != NULL) {
        struct mapping *m = l->maps;
        l->maps = m->next;
        munmap(m->at, (size_t)m->bytes);
        free(m);
    }
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    free(l->parts);
    free(l);
}

static void local_close(zx_world *w)
{
    struct zx_local_link *l = w->local;
    pthread_mutex_lock(&l->lock);
    const uint32_t n_open = --l->n_open;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    if (n_open == 0) local_free(l);
}

static const zx_link local_link = {
    .share = local_share, .map = local_map, .unmap = local_unmap, .close = local_close};

zx_status zx_world_local(uint32_t size, zx_world **worlds, zx_err *err)
{
    if (size == 0 || size > ZX_WORLD_MOST_RANKS)
        return ZX_FAIL(err, ZX_E_USAGE, "%u ranks: 1 to %d are possible", size,
                       ZX_WORLD_MOST_RANKS);
    struct zx_local_link *l = calloc(1, sizeof *l);
    struct part *parts = calloc(size, sizeof *parts);
    bool ok = l != NULL && parts != NULL;
    for (uint32_t r = 0; r < size; r++) {
        worlds[r] = ok ? zx_world_new(&local_link, r, size) : NULL;
        ok = worlds[r] != NULL;
    }
    if (!ok) {
        for (uint32_t r = 0; r < size; r++) free(worlds[r]);
        free(parts);
        free(l);
        return ZX_FAIL(err, ZX_E_DEVICE, "no memory for %u ranks", size);
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->moved, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&l->lock, NULL);
    l->size = l->n_open = size;
    l->parts = parts;
    for (uint32_t r = 0; r < size; r++) {
        worlds[r]->local = l;
        worlds[r]->shared = &l->shared;
    }
    return ZX_OK;
}

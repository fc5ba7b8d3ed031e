// world.c - what ranks agree on, over either link; see world.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/world.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "graph/base/text.h"
#include "runtime/stream.h"
#include "runtime/world_link.h"

// The collective calls, so that ranks in different ones are told apart.
enum { CALL_AGREE = 1, CALL_SEND, CALL_EXCHANGE, CALL_SAME };

// ---- pieces for the links -----------------------------------------------------------------------

zx_world *zx_world_new(const zx_link *link, uint32_t rank, uint32_t size)
{
    zx_world *w = calloc(1, sizeof *w);
    if (w == NULL) return NULL;
    w->link = link;
    w->rank = rank;
    w->size = size;
    return w;
}

void zx_parts_free(zx_parts *p)
{
    free(p->bytes);
    free(p->at);
    *p = (zx_parts){0};
}

zx_status zx_parts_room(zx_parts *p, uint32_t size, const uint64_t *sizes, zx_err *err)
{
    *p = (zx_parts){.at = calloc((size_t)size + 1, sizeof *p->at)};
    if (p->at == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
    for (uint32_t r = 0; r < size; r++)
        if (!zx_add_u64(p->at[r], sizes[r], &p->at[r + 1])) goto none;
    if (p->at[size] > SIZE_MAX / 2) goto none;
    p->bytes = malloc(p->at[size] > 0 ? (size_t)p->at[size] : 1);
    if (p->bytes != NULL) return ZX_OK;
none:
    zx_parts_free(p);
    return ZX_FAIL(err, ZX_E_DEVICE, "no memory for messages between ranks");
}

void zx_world_mark(zx_world *w, zx_lost_kind kind, uint32_t rank)
{
    if (w->shared == NULL) return;
    uint32_t none = ZX_LOST_NOT;
    atomic_compare_exchange_strong(&w->shared->lost, &none, (uint32_t)kind << 16 | rank);
}

zx_status zx_world_keep(zx_world *w, void *at, uint64_t bytes, zx_err *err)
{
    if (w->n_regions == w->cap_regions) {
        const uint32_t cap = w->cap_regions > 0 ? 2 * w->cap_regions : 8;
        struct zx_region *more = realloc(w->regions, cap * sizeof *more);
        if (more == NULL) {
            munmap(at, (size_t)bytes);
            return ZX_FAIL(err, ZX_E_DEVICE, "no memory for a list of mappings");
        }
        w->regions = more;
        w->cap_regions = cap;
    }
    w->regions[w->n_regions++] = (struct zx_region){at, bytes};
    return ZX_OK;
}

void zx_world_drop(zx_world *w, void *at)
{
    for (uint32_t i = 0; i < w->n_regions; i++) {
        if (w->regions[i].at != at) continue;
        munmap(at, (size_t)w->regions[i].bytes);
        w->regions[i] = w->regions[--w->n_regions];
        return;
    }
}

#define HUGE_FROM ((uint64_t)64 << 20) // bytes; less isn't rounded up to pages of 2 MiB

// What one process has alone may lie in huge pages; memfds rarely may (shmem_enabled).
zx_status zx_world_map(int fd, uint64_t bytes, void **at, zx_err *err)
{
    const bool huge = fd < 0 && bytes >= HUGE_FROM;
    const int flags =
        MAP_NORESERVE | (huge ? MAP_PRIVATE : MAP_SHARED) | (fd < 0 ? MAP_ANONYMOUS : 0);
    *at = bytes > SIZE_MAX / 2 ? MAP_FAILED
                               : mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (*at != MAP_FAILED) {
        if (huge) madvise(*at, (size_t)bytes, MADV_HUGEPAGE); // where there are none, small ones do
        return ZX_OK;
    }
    *at = NULL;
    char size[ZX_BYTES_TEXT];
    zx_err_hint(err, "a smaller --budget, or a higher limit on address space (ulimit -v)");
    return ZX_FAIL(err, ZX_E_BUDGET, "cannot reserve %s of memory: %s", zx_text_size(bytes, size),
                   strerror(errno));
}

void zx_world_close(zx_world *w)
{
    if (w == NULL) return;
    if (w->shared != NULL) atomic_store(&w->shared->left[w->rank], 1);
    for (uint32_t i = 0; i < w->n_regions && !w->kept; i++)
        if (w->regions[i].at != NULL) munmap(w->regions[i].at, (size_t)w->regions[i].bytes);
    free(w->regions);
    w->link->close(w);
    free(w);
}

// ---- asking -------------------------------------------------------------------------------------

uint32_t zx_world_rank(const zx_world *w)
{
    return w->rank;
}

uint32_t zx_world_size(const zx_world *w)
{
    return w->size;
}

bool zx_world_lost(const zx_world *w)
{
    return w->shared != NULL && atomic_load(&w->shared->lost) != 0;
}

bool zx_world_left(zx_world *w, uint32_t rank)
{
    return w->shared != NULL && atomic_load(&w->shared->left[rank]) != 0;
}

void zx_world_abort(zx_world *w)
{
    zx_world_mark(w, ZX_LOST_GAVE_UP, w->rank);
}

void zx_world_gone(zx_world *w, uint32_t rank)
{
    zx_world_mark(w, ZX_LOST_LEFT, rank);
}

void zx_world_keep_mapped(zx_world *w)
{
    w->kept = true;
}

void zx_world_patience(zx_world *w, double seconds)
{
    w->patience = seconds;
}

bool zx_world_late(zx_world *w, uint32_t rank, double since)
{
    if (!(w->patience > 0) || zx_seconds() - since < w->patience) return false;
    zx_world_mark(w, ZX_LOST_SILENT, rank);
    return true;
}

zx_status zx_world_why(const zx_world *w, zx_err *err)
{
    const uint32_t lost = w->shared != NULL ? atomic_load(&w->shared->lost) : 0;
    const uint32_t rank = lost & 0xffff;
    switch ((zx_lost_kind)(lost >> 16)) {
    case ZX_LOST_DIED:
        return ZX_FAIL(err, ZX_E_COMM, "rank %u died (connection closed)", rank);
    case ZX_LOST_GAVE_UP:
        return ZX_FAIL(err, ZX_E_COMM, "rank %u failed and gave up", rank);
    case ZX_LOST_LEFT:
        return ZX_FAIL(err, ZX_E_COMM, "rank %u ended before the others", rank);
    case ZX_LOST_SILENT:
        zx_err_hint(err, "look what that rank does; a longer --timeout, if it was only slow");
        return ZX_FAIL(err, ZX_E_COMM, "rank %u has not answered for %g s (--timeout)", rank,
                       w->patience);
    case ZX_LOST_NOT:
        break;
    }
    return ZX_FAIL(err, ZX_E_COMM, "a peer is gone");
}

bool zx_world_claim(zx_world *w, const char *sentence)
{
    uint64_t hash = 14695981039346656037u; // FNV-1a
    for (const char *c = sentence; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    hash |= 1;
    for (size_t i = 0; w->shared != NULL && i < ZX_COUNT(w->shared->claims); i++) {
        uint64_t there = 0;
        if (atomic_compare_exchange_strong(&w->shared->claims[i], &there, hash)) return true;
        if (there == hash) return false;
    }
    return true;
}

// ---- collective calls ---------------------------------------------------------------------------

// An outcome as bytes: status, number of causes kept, then those and the hint as C strings.
static void put_outcome(zx_text *t, zx_status mine, const zx_err *err)
{
    uint32_t head[2] = {(uint32_t)mine, 0};
    if (mine != ZX_OK && err != NULL) head[1] = err->n_causes;
    zx_text_bytes(t, head, sizeof head);
    for (uint32_t i = 0; i < head[1] && i < ZX_ERR_KEPT; i++)
        zx_text_bytes(t, err->cause[i], strlen(err->cause[i]) + 1);
    if (mine != ZX_OK && err != NULL) zx_text_bytes(t, err->hint, strlen(err->hint) + 1);
}

static void read_text(const unsigned char **at, const unsigned char *end, char to[ZX_ERR_TEXT])
{
    const size_t room = (size_t)(end - *at), n = strnlen((const char *)*at, room);
    const size_t keep = n < ZX_ERR_TEXT - 1 ? n : ZX_ERR_TEXT - 1;
    memcpy(to, *at, keep);
    to[keep] = '\0';
    *at += n < room ? n + 1 : room;
}

static zx_status status_of(const zx_parts *p, uint32_t r)
{
    uint32_t code;
    if (p->at[r + 1] - p->at[r] < 2 * sizeof code) return ZX_E_COMM;
    memcpy(&code, p->bytes + p->at[r], sizeof code);
    return code < ZX_STATUS_COUNT ? (zx_status)code : ZX_E_COMM;
}

// Puts rank r's outcome into err in place of what was there; `named` says whose it is.
static zx_status take_outcome(const zx_parts *p, uint32_t r, bool named, zx_err *err)
{
    const zx_status st = status_of(p, r);
    if (err == NULL) return st;
    zx_err got = {0};
    char text[ZX_ERR_TEXT];
    const unsigned char *at = p->bytes + p->at[r], *end = p->bytes + p->at[r + 1];
    uint32_t n = 0;
    if (end - at >= 8) {
        memcpy(&n, at + 4, sizeof n);
        at += 8;
    }
    for (uint32_t i = 0; i < n && i < ZX_ERR_KEPT && at < end; i++) {
        read_text(&at, end, text);
        ZX_FAIL(&got, st, "%s", text);
    }
    if (got.n_causes == 0) ZX_FAIL(&got, st, "%s", zx_status_text(st));
    if (got.n_causes == ZX_ERR_KEPT && n > ZX_ERR_KEPT) got.n_causes = n; // the others are counted
    if (named) zx_err_in(&got, "rank %u", r);
    if (at < end) read_text(&at, end, got.hint);
    *err = got;
    return st;
}

zx_status zx_world_agree(zx_world *w, zx_status mine, zx_err *err)
{
    if (w->size == 1) return mine;
    zx_text t = {0};
    zx_parts all = {0};
    zx_err comm = {0};
    put_outcome(&t, mine, err);
    zx_status st = w->link->share(w, CALL_AGREE, t.at, t.n, &all, &comm);
    zx_text_free(&t);
    if (st != ZX_OK) { // a peer is gone: one's own failure is the better sentence
        if (mine != ZX_OK) return mine;
        if (err != NULL) zx_err_merge(err, &comm);
        return st;
    }
    uint32_t first = 0;
    while (first < w->size && status_of(&all, first) == ZX_OK) first++;
    if (first < w->size) st = take_outcome(&all, first, first != 0, err);
    zx_parts_free(&all);
    return st;
}

zx_status zx_world_send(zx_world *w, void **bytes, size_t *n, zx_err *err)
{
    if (w->size == 1) return ZX_OK;
    zx_parts all = {0};
    const bool root = w->rank == 0;
    ZX_TRY(w->link->share(w, CALL_SEND, root ? *bytes : NULL, root ? *n : 0, &all, err));
    if (!root) { // rank 0's bytes come first
        *n = (size_t)all.at[1];
        *bytes = all.bytes;
        all.bytes = NULL;
    }
    zx_parts_free(&all);
    return ZX_OK;
}

zx_status zx_world_exchange(zx_world *w, const void *mine, size_t n, void *out, zx_err *err)
{
    if (w->size == 1) {
        if (n > 0) memmove(out, mine, n);
        return ZX_OK;
    }
    zx_parts all = {0};
    ZX_TRY(w->link->share(w, CALL_EXCHANGE, mine, n, &all, err));
    zx_status st = ZX_OK;
    for (uint32_t r = 0; r < w->size && st == ZX_OK; r++)
        if (all.at[r + 1] - all.at[r] != n)
            st = ZX_FAIL(err, ZX_E_COMM, "rank %u sent %" PRIu64 " bytes where %zu were due", r,
                         all.at[r + 1] - all.at[r], n);
    if (st == ZX_OK && n > 0) memcpy(out, all.bytes, n * w->size);
    zx_parts_free(&all);
    return st;
}

zx_status zx_world_same(zx_world *w, const char *what, uint64_t number, zx_err *err)
{
    if (w->size == 1) return ZX_OK;
    zx_parts all = {0};
    ZX_TRY(w->link->share(w, CALL_SAME, &number, sizeof number, &all, err));
    zx_status st = ZX_OK;
    uint64_t first = 0;
    for (uint32_t r = 0; r < w->size && st == ZX_OK; r++) {
        uint64_t one = 0;
        if (all.at[r + 1] - all.at[r] == sizeof one)
            memcpy(&one, all.bytes + all.at[r], sizeof one);
        if (r == 0) first = one;
        if (one != first)
            st = ZX_FAIL(err, ZX_E_COMM,
                         "%s differs between ranks: %016" PRIx64 " on rank 0, %016" PRIx64
                         " on rank %u",
                         what, first, one, r);
    }
    zx_parts_free(&all);
    return st;
}

static uint64_t whole_pages(uint64_t bytes)
{
    return zx_align_up(bytes > 0 ? bytes : 1, 4096);
}

zx_status zx_world_reserve(zx_world *w, uint64_t bytes, unsigned char **base, zx_err *err)
{
    for (uint32_t r = 0; r < w->size; r++) base[r] = NULL;
    ZX_TRY(zx_world_same(w, "the size of the reservation", bytes, err));
    const uint64_t room = whole_pages(bytes);
    zx_status st = room >= bytes
                       ? w->link->map(w, room, base, err)
                       : ZX_FAIL(err, ZX_E_BUDGET, "no machine has %" PRIu64 " bytes", bytes);
    st = zx_world_agree(w, st, err);
    if (st != ZX_OK) zx_world_release(w, bytes, base);
    return st;
}

void zx_world_release(zx_world *w, uint64_t bytes, unsigned char **base)
{
    if (!w->kept) w->link->unmap(w, whole_pages(bytes), base);
    for (uint32_t r = 0; r < w->size; r++) base[r] = NULL;
}

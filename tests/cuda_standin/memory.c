// memory.c - the stand-in's device and pinned memory: pages of their own between pages that nobody
// may touch, full of NaN, known with their bounds; freed ones stay untouchable for a while.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/cuda_standin/sanitizer.h"

#if defined(SI_ASAN)
#define FORBID(at, bytes) __asan_poison_memory_region(at, bytes)
#define ALLOW(at, bytes) __asan_unpoison_memory_region(at, bytes)
#else
#define FORBID(at, bytes) ((void)(at))
#define ALLOW(at, bytes) ((void)(at))
#endif

#define GUARD 65536u   // bytes before and behind an allocation that nobody may touch
#define QUARANTINE 256 // freed allocations whose addresses aren't given away again

typedef struct allocation {
    unsigned char *at, *map; // map: NULL where the memory is the caller's, registered
    uint64_t bytes, map_bytes;
    si_kind kind;
    int device;
} allocation;

static struct {
    si_lock lock;
    allocation *list; // live ones
    uint32_t n, room;
    struct {
        void *map;
        uint64_t bytes;
    } dead[QUARANTINE];
    uint64_t n_dead;
    uint64_t used[SI_DEVICES];
} all;

void si_poison(void *at, uint64_t bytes)
{
    uint16_t *p = at;
    for (uint64_t i = 0; i < bytes / 2; i++) p[i] = SI_POISON;
    if (bytes % 2 != 0) ((unsigned char *)at)[bytes - 1] = SI_POISON & 0xff;
}

static uint64_t whole_pages(uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void keep(allocation a) // the lock is held
{
    if (all.n == all.room) {
        all.room = all.room == 0 ? 64 : 2 * all.room;
        all.list = realloc(all.list, all.room * sizeof *all.list);
        if (all.list == NULL) abort();
    }
    all.list[all.n++] = a;
}

static cudaError_t allocate(const char *call, void **at, uint64_t bytes, si_kind kind)
{
    const int device = si_current();
    if (at == NULL) return si_wrong(cudaErrorInvalidValue, "%s: no place for the pointer", call);
    *at = NULL;
    if (bytes == 0) return cudaSuccess;
    if (bytes > (uint64_t)1 << 46) return si_return(cudaErrorMemoryAllocation);
    allocation a = {.bytes = bytes,
                    .map_bytes = whole_pages(bytes) + 2 * GUARD,
                    .kind = kind,
                    .device = device};
    si_lock_take(&all.lock);
    const bool fits = kind != SI_DEVICE || all.used[device] + bytes <= si_get()->memory;
    if (fits && kind == SI_DEVICE) all.used[device] += bytes;
    si_lock_give(&all.lock);
    if (!fits) return si_return(cudaErrorMemoryAllocation);
    void *map =
        mmap(NULL, a.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED ||
        mprotect((char *)map + GUARD, a.map_bytes - 2 * GUARD, PROT_READ | PROT_WRITE) != 0)
        return si_return(cudaErrorMemoryAllocation);
    a.map = map;
    a.at = a.map + GUARD;
    si_poison(a.at, a.map_bytes - 2 * GUARD);
    FORBID(a.at + bytes, a.map_bytes - 2 * GUARD - bytes);
    si_lock_take(&all.lock);
    keep(a);
    si_lock_give(&all.lock);
    *at = a.at;
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **at, size_t bytes)
{
    SI_BEGIN();
    return allocate(__func__, at, bytes, SI_DEVICE);
}
cudaError_t cudaHostAlloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    SI_BEGIN();
    return allocate(__func__, at, bytes, SI_PINNED);
}

// Whether the bytes between the allocation's end and its page's are as they were.
static bool slack_is_whole(const allocation *a)
{
#if !defined(SI_ASAN)
    const unsigned char *end = a->at + whole_pages(a->bytes);
    for (const unsigned char *p = a->at + a->bytes; p < end; p++)
        if (*p != ((p - a->at) % 2 == 0 ? SI_POISON & 0xff : SI_POISON >> 8)) return false;
#else
    (void)a;
#endif
    return true;
}

static void give_back(allocation *a) // the lock is held
{
    if (a->kind == SI_DEVICE) all.used[a->device] -= a->bytes;
    if (a->map == NULL) return;
    ALLOW(a->at, whole_pages(a->bytes));
    madvise(a->map, a->map_bytes, MADV_DONTNEED);
    mprotect(a->map, a->map_bytes, PROT_NONE);
    const uint64_t k = all.n_dead++ % QUARANTINE;
    if (all.dead[k].map != NULL) munmap(all.dead[k].map, all.dead[k].bytes);
    all.dead[k].map = a->map;
    all.dead[k].bytes = a->map_bytes;
}

static cudaError_t release(const char *call, void *at, si_kind kind, bool registered,
                           cudaError_t unknown)
{
    if (at == NULL) return cudaSuccess;
    for (int d = 0; d < si_get()->devices; d++) si_wait_device(d);
    bool found = false, whole = true;
    si_lock_take(&all.lock);
    for (uint32_t i = 0; i < all.n && !found; i++) {
        allocation *a = &all.list[i];
        if (a->at != at || a->kind != kind || (a->map == NULL) != registered) continue;
        found = true;
        whole = registered || slack_is_whole(a);
        give_back(a);
        all.list[i] = all.list[--all.n];
    }
    si_lock_give(&all.lock);
    if (!found) return si_wrong(unknown, "%s: %p isn't the start of such memory", call, at);
    if (!whole) {
        si_stick(si_current(), cudaErrorIllegalAddress,
                 "%s: something was written past the end of the memory at %p", call, at);
        return si_return(cudaErrorIllegalAddress);
    }
    return cudaSuccess;
}
// Waits for all devices, as CUDA's do. A device that is stuck still gives memory back.
cudaError_t cudaFree(void *at)
{
    const cudaError_t before = si_begin(__func__);
    const cudaError_t e = release(__func__, at, SI_DEVICE, false, cudaErrorInvalidValue);
    return before != cudaSuccess ? before : e;
}
cudaError_t cudaFreeHost(void *at)
{
    const cudaError_t before = si_begin(__func__);
    const cudaError_t e = release(__func__, at, SI_PINNED, false, cudaErrorInvalidValue);
    return before != cudaSuccess ? before : e;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags)
{
    (void)flags;
    SI_BEGIN();
    if (at == NULL || bytes == 0)
        return si_wrong(cudaErrorInvalidValue, "cudaHostRegister: %zu bytes at %p", bytes, at);
    bool meets = false;
    const unsigned char *from = at;
    si_lock_take(&all.lock);
    for (uint32_t i = 0; i < all.n; i++)
        meets |= from < all.list[i].at + all.list[i].bytes && all.list[i].at < from + bytes;
    if (!meets) {
        const allocation a = {.at = at, .bytes = bytes, .kind = SI_PINNED, .device = si_current()};
        keep(a);
    }
    si_lock_give(&all.lock);
    return meets ? si_wrong(cudaErrorHostMemoryAlreadyRegistered,
                            "cudaHostRegister: %p is registered already", at)
                 : cudaSuccess;
}
cudaError_t cudaHostUnregister(void *at)
{
    SI_BEGIN();
    return release(__func__, at, SI_PINNED, true, cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    SI_BEGIN();
    if (flags != 0 || si_find(host, 1).kind != SI_PINNED)
        return si_wrong(cudaErrorInvalidValue, "cudaHostGetDevicePointer: %p isn't pinned", host);
    *device = host; // one address space, as wherever unified addressing is
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    SI_BEGIN();
    si_lock_take(&all.lock);
    *total = si_get()->memory;
    *available = *total - all.used[si_current()];
    si_lock_give(&all.lock);
    return cudaSuccess;
}

si_range si_find(const void *at, uint64_t bytes)
{
    const unsigned char *p = at;
    si_range r = {SI_PAGEABLE, -1, true};
    si_lock_take(&all.lock);
    for (uint32_t i = 0; i < all.n; i++) {
        const allocation *a = &all.list[i];
        if (p < a->at || p > a->at + a->bytes) continue;
        r = (si_range){a->kind, a->device, bytes <= (uint64_t)(a->at + a->bytes - p)};
        if (r.inside) break; // the end of one may be the start of registered memory
    }
    for (uint32_t i = 0; i < QUARANTINE && r.kind == SI_PAGEABLE; i++) { // freed: of no kind
        const unsigned char *map = all.dead[i].map;
        if (map != NULL && p >= map && p < map + all.dead[i].bytes)
            r = (si_range){SI_PAGEABLE, -1, false};
    }
    si_lock_give(&all.lock);
    return r;
}

uint32_t si_memory_reset(void)
{
    si_lock_take(&all.lock);
    const uint32_t n = all.n;
    for (uint32_t i = 0; i < n; i++) give_back(&all.list[i]);
    free(all.list);
    all.list = NULL;
    all.n = all.room = 0;
    si_lock_give(&all.lock);
    return n;
}

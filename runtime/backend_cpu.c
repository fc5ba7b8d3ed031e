// backend_cpu.c - plans on this host's cores: memory that all ranks map, threads as streams.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/exec.h"
#include "runtime/memory.h"

static uint32_t cpu_count(zx_err *err ZX_UNUSED)
{
    return 0;
}
static zx_status cpu_open(uint32_t local ZX_UNUSED, const struct zx_cuda **out,
                          zx_err *err ZX_UNUSED)
{
    *out = NULL;
    return ZX_OK;
}
static void cpu_close(const struct zx_cuda *gpu ZX_UNUSED)
{
}
static uint64_t cpu_usable(const struct zx_cuda *gpu ZX_UNUSED, uint32_t ranks ZX_UNUSED)
{
    return zx_memory_usable();
}

// ---- memory -------------------------------------------------------------------------------------

// What this session takes of a rank's memory beside what a session before it gives back: at first
// its held state is there twice.
static uint64_t more_bytes(const zx_session *s)
{
    const uint64_t each = s->plan->arena_bytes, held = s->plan->held_bytes;
    const uint64_t before = s->o.from != NULL ? s->o.from->plan->arena_bytes : 0;
    if (before == 0) return each;
    return each > before + held ? each - before : held;
}

// Pages come when they are written: without this the kernel would find out in the middle of a step,
// and kill somebody. Rank 0 looks for all ranks.
static zx_status check_memory(const zx_session *s, zx_err *err)
{
    const uint64_t usable = zx_memory_usable(), each = more_bytes(s);
    if (s->rank != 0 || usable == 0 || each <= usable / s->ranks) return ZX_OK;
    char need[ZX_BYTES_TEXT], have[ZX_BYTES_TEXT];
    zx_err_hint(err, "a smaller --budget, or fewer ranks on this host");
    return ZX_FAIL(err, ZX_E_BUDGET, "the plan takes %s on each of %u ranks, this host has %s left",
                   zx_text_size(each, need), s->ranks, zx_text_size(usable, have));
}

// Pages come when they are first written; here at once, so that no step waits for them.
static void touch_pages(const zx_session *s)
{
    const size_t bytes = (size_t)s->plan->arena_bytes, page = (size_t)sysconf(_SC_PAGESIZE);
#ifdef MADV_POPULATE_WRITE
    if (bytes == 0 || madvise(s->mine, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
    for (size_t at = 0; at < bytes; at += page) { // kernels before 5.14
        volatile unsigned char *x = s->mine + at;
        *x = 0;
    }
}

static zx_status cpu_reserve(zx_session *s, zx_err *err)
{
    ZX_TRY(zx_world_agree(s->o.world, check_memory(s, err), err));
    ZX_TRY(zx_world_reserve(s->o.world, s->plan->arena_bytes, s->base, err));
    s->mine = s->base[s->rank];
    if (s->o.touch) touch_pages(s);
    return ZX_OK;
}

static void cpu_release(zx_session *s)
{
    if (s->base != NULL) zx_world_release(s->o.world, s->plan->arena_bytes, s->base);
}

static void cpu_reset_working(zx_session *s)
{
    for (uint32_t b = 0; b < s->graph->n_buffers; b++) {
        const uint32_t from = s->buffer_slot[b], to = s->working_slot[b];
        if (from == ZX_NONE || to == ZX_NONE) continue;
        const zx_type *t = &s->graph->values[s->graph->buffers[b].value].type;
        memcpy(zx_slot_at(s, to), zx_slot_at(s, from), (size_t)zx_type_bytes(t));
    }
}

static void *cpu_begin_fill(zx_session *s, const zx_slot *slot)
{
    return s->mine + slot->offset;
}
static bool cpu_end_fill(zx_session *s ZX_UNUSED, const zx_slot *slot ZX_UNUSED, void *at ZX_UNUSED)
{
    return true;
}
static const void *cpu_see(zx_session *s ZX_UNUSED, const void *at, uint64_t bytes ZX_UNUSED)
{
    return at;
}
static bool cpu_fetch(zx_session *s, uint32_t rank, uint64_t offset, void *to, uint64_t bytes)
{
    if (s->rank == 0) s->transport->fetch(s->comm, rank, offset, to, bytes);
    return true;
}

const zx_backend zx_backend_cpu = {
    .name = "cpu",
    .count = cpu_count,
    .open = cpu_open,
    .close = cpu_close,
    .usable = cpu_usable,
    .kernel = zx_cpu_kernel_of_any,
    .reserve = cpu_reserve,
    .release = cpu_release,
    .start = zx_exec_start,
    .stop = zx_exec_stop,
    .run = zx_exec_run,
    .reset_working = cpu_reset_working,
    .begin_fill = cpu_begin_fill,
    .end_fill = cpu_end_fill,
    .see = cpu_see,
    .fetch = cpu_fetch,
};

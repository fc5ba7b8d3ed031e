// item.c - what streams do: copies, fills, kernels, events and calls, checked when they are asked
// for and once more when they happen.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"

#include <stdio.h>

static _Atomic uint64_t n_pageable;
uint64_t zx_standin_pageable(void)
{
    return atomic_load(&n_pageable);
}

void si_item_reset(void)
{
    atomic_store(&n_pageable, 0);
}

static si_item *item_make(si_what what)
{
    si_item *item = calloc(1, sizeof *item);
    if (item == NULL) abort();
    item->what = what;
    item->rows = 1;
    return item;
}
void si_item_free(si_item *item)
{
    si_record_drop(item->record);
    free(item->staged);
    free(item);
}

// ---- when they happen ---------------------------------------------------------------------------

static void copy_rows(const si_item *item)
{
    const unsigned char *from = item->staged != NULL ? item->staged : item->from;
    for (uint64_t r = 0; r < item->rows; r++)
        memmove((unsigned char *)item->to + r * item->to_pitch, from + r * item->from_pitch,
                item->bytes);
}
static uint64_t reach(uint64_t rows, uint64_t pitch, uint64_t bytes)
{
    return rows == 0 ? 0 : (rows - 1) * pitch + bytes;
}
// Whether memory that was there when the item was queued was freed meanwhile.
static bool gone(cudaStream_t s, const si_item *item)
{
    const bool to = si_find(item->to, reach(item->rows, item->to_pitch, item->bytes)).inside;
    const bool from = item->what == SI_DO_SET || item->staged != NULL ||
                      si_find(item->from, reach(item->rows, item->from_pitch, item->bytes)).inside;
    if (!to || !from)
        si_stick(s->device, cudaErrorIllegalAddress, "a %s of %llu bytes: the memory was freed",
                 item->what == SI_DO_SET ? "fill" : "copy", (unsigned long long)item->bytes);
    return !to || !from;
}

static void run_kernel(cudaStream_t s, const si_item *item, uint64_t order)
{
    const zx_standin_kernel *k = &item->kernel;
    char why[300];
    for (uint32_t i = 0; i < k->n_pointers; i++) {
        const si_range r = si_find(k->pointers[i], 0);
        if (k->pointers[i] == NULL || r.kind == SI_PINNED ||
            (r.kind == SI_DEVICE && r.device == s->device))
            continue;
        si_stick(s->device, cudaErrorIllegalAddress, "kernel %s: pointer argument %u (%p) is %s",
                 k->name, i, k->pointers[i],
                 r.kind == SI_DEVICE ? "memory of another device" : "no device memory");
        return;
    }
    const cudaError_t e = si_kernel_run(s->worker, k, order, why, sizeof why);
    if (e != cudaSuccess) si_stick(s->device, e, "kernel %s: %s", k->name, why);
}

void si_item_run(cudaStream_t s, si_item *item, uint64_t order)
{
    const bool stuck = si_stuck(s->device) != cudaSuccess;
    switch (item->what) {
    case SI_DO_COPY:
        if (!stuck && !gone(s, item)) copy_rows(item);
        break;
    case SI_DO_SET:
        if (!stuck && !gone(s, item)) memset(item->to, item->byte, item->bytes);
        break;
    case SI_DO_KERNEL:
        if (!stuck) run_kernel(s, item, order);
        break;
    case SI_DO_CALL:
        if (!stuck) item->call(item->to);
        break;
    case SI_DO_WORK:
        if (!stuck) item->work(s, item->staged);
        break;
    case SI_DO_RECORD: // also where the device is stuck, so that nobody waits for ever
        item->record->at = si_seconds();
        SI_RELEASE(item->record);
        atomic_store(&item->record->done, 1);
        si_wake(&item->record->done);
        break;
    case SI_DO_WAIT:
        while (atomic_load(&item->record->done) == 0 && !atomic_load(&s->end))
            si_sleep_while(&item->record->done, 0);
        SI_ACQUIRE(item->record);
        break;
    case SI_DO_STOP:
        break;
    }
}

// ---- when they are asked for --------------------------------------------------------------------

static bool side_fits(bool wants_device, bool any, si_kind kind)
{
    return any || (wants_device ? kind == SI_DEVICE : kind != SI_DEVICE);
}

static cudaError_t copy(const char *call, si_item *item, enum cudaMemcpyKind kind,
                        cudaStream_t stream)
{
    const uint64_t to_bytes = reach(item->rows, item->to_pitch, item->bytes);
    const uint64_t from_bytes = reach(item->rows, item->from_pitch, item->bytes);
    const si_range to = si_find(item->to, to_bytes), from = si_find(item->from, from_bytes);
    const char *wrong = NULL;
    const bool any = kind == cudaMemcpyDefault;
    if ((unsigned)kind > cudaMemcpyDefault)
        wrong = "there is no such direction";
    else if (!to.inside || !from.inside)
        wrong = !to.inside ? "past the end of the memory that is written, or freed"
                           : "past the end of the memory that is read, or freed";
    else if (!side_fits(kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, any,
                        to.kind))
        wrong = "the direction isn't that of the memory that is written";
    else if (!side_fits(kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, any,
                        from.kind))
        wrong = "the direction isn't that of the memory that is read";
    if (wrong != NULL || to_bytes == 0) {
        const cudaError_t e = wrong == NULL
                                  ? cudaSuccess
                                  : si_wrong(cudaErrorInvalidValue, "%s of %llu bytes: %s", call,
                                             (unsigned long long)to_bytes, wrong);
        si_item_free(item);
        return e;
    }
    const bool waits = to.kind == SI_PAGEABLE;
    if (waits || from.kind == SI_PAGEABLE) atomic_fetch_add(&n_pageable, 1);
    if (from.kind == SI_PAGEABLE) { // read before the call returns
        item->staged = malloc(from_bytes);
        if (item->staged == NULL) abort();
        memcpy(item->staged, item->from, from_bytes);
    }
    si_enqueue(stream, item);
    // written before the call returns
    return waits ? si_return(si_wait_for(stream, atomic_load(&stream->queued))) : cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    SI_BEGIN();
    SI_STREAM(stream);
    si_item *item = item_make(SI_DO_COPY);
    item->to = to;
    item->from = from;
    item->bytes = item->to_pitch = item->from_pitch = bytes;
    return copy(__func__, item, kind, stream);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    SI_BEGIN();
    SI_STREAM(stream);
    if (width > to_pitch || width > from_pitch)
        return si_wrong(cudaErrorInvalidValue, "%s: rows are wider than pitches", __func__);
    si_item *item = item_make(SI_DO_COPY);
    item->to = to;
    item->from = from;
    item->bytes = width;
    item->to_pitch = to_pitch;
    item->from_pitch = from_pitch;
    item->rows = width == 0 ? 0 : height;
    return copy(__func__, item, kind, stream);
}

cudaError_t cudaMemsetAsync(void *at, int byte, size_t bytes, cudaStream_t stream)
{
    SI_BEGIN();
    SI_STREAM(stream);
    const si_range r = si_find(at, bytes);
    if (r.kind == SI_PAGEABLE || !r.inside)
        return si_wrong(cudaErrorInvalidValue, "cudaMemsetAsync of %zu bytes: %s", bytes,
                        r.kind == SI_PAGEABLE ? "no device memory" : "past the memory's end");
    if (bytes == 0) return cudaSuccess;
    si_item *item = item_make(SI_DO_SET);
    item->to = at;
    item->byte = byte;
    item->bytes = bytes;
    si_enqueue(stream, item);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    SI_BEGIN();
    SI_STREAM(stream);
    si_item *item = item_make(SI_DO_CALL);
    item->call = fn;
    item->to = arg;
    si_enqueue(stream, item);
    return cudaSuccess;
}

void si_enqueue_work(cudaStream_t s, void (*work)(cudaStream_t, void *), const void *args,
                     size_t bytes)
{
    si_item *item = item_make(SI_DO_WORK);
    item->work = work;
    item->staged = malloc(bytes);
    if (item->staged == NULL) abort();
    memcpy(item->staged, args, bytes);
    si_enqueue(s, item);
}

static bool is_shape(const zx_standin_kernel *k)
{
    const uint32_t *g = k->grid, *b = k->block;
    return g[0] > 0 && g[1] > 0 && g[2] > 0 && b[0] > 0 && b[1] > 0 && b[2] > 0 &&
           g[0] <= INT32_MAX && g[1] <= 65535 && g[2] <= 65535 && b[0] <= 1024 && b[1] <= 1024 &&
           b[2] <= 64 && b[0] * b[1] * b[2] <= 1024;
}
// A copy of the launch in one allocation: arguments, then pointers, then the name up to a comma.
static void keep_kernel(si_item *item, const zx_standin_kernel *k)
{
    const size_t name = strcspn(k->name, ","), args = (k->args_bytes + 15) / 16 * 16;
    const size_t pointers = k->n_pointers * sizeof *k->pointers;
    unsigned char *at = malloc(args + pointers + name + 1);
    if (at == NULL) abort();
    memcpy(at, k->args, k->args_bytes);
    if (pointers > 0) memcpy(at + args, k->pointers, pointers);
    memcpy(at + args + pointers, k->name, name);
    at[args + pointers + name] = '\0';
    item->staged = at;
    item->kernel = *k;
    item->kernel.args = at;
    item->kernel.pointers = (const void *const *)(void *)(at + args);
    item->kernel.name = (const char *)at + args + pointers;
}
cudaError_t zx_standin_launch(const zx_standin_kernel *k, cudaStream_t stream)
{
    const cudaError_t before = si_begin("launch");
    if (before != cudaSuccess) return before;
    SI_STREAM(stream);
    if (stream->device != si_current())
        return si_wrong(cudaErrorInvalidResourceHandle,
                        "kernel %s: the stream is of device %d, this thread's is %d", k->name,
                        stream->device, si_current());
    if (!is_shape(k))
        return si_wrong(cudaErrorInvalidConfiguration,
                        "kernel %s: grid %u,%u,%u of blocks %u,%u,%u", k->name, k->grid[0],
                        k->grid[1], k->grid[2], k->block[0], k->block[1], k->block[2]);
    if (k->shared_bytes > 101376)
        return si_wrong(cudaErrorInvalidValue, "kernel %s: %zu bytes of shared memory", k->name,
                        k->shared_bytes);
    si_item *item = item_make(SI_DO_KERNEL);
    keep_kernel(item, k);
    si_enqueue(stream, item);
    return si_get()->blocking ? si_return(si_wait_for(stream, atomic_load(&stream->queued)))
                              : cudaSuccess;
}

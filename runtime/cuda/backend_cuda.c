// backend_cuda.c - plans on a GPU: devices, memory, and how the host reaches it.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/gpu.h"

#define DO(call) ZX_TRY(zx_cuda_check(call, #call, err))

// ---- devices ------------------------------------------------------------------------------------

static uint32_t cuda_count(zx_err *err)
{
    int n = 0;
    const zx_status st = zx_cuda_check(cudaGetDeviceCount(&n), "cudaGetDeviceCount", err);
    return st == ZX_OK && n > 0 ? (uint32_t)n : 0;
}

// 0: this runtime doesn't know of it.
static zx_status attribute(enum cudaDeviceAttr what, int device, double *out, zx_err *err)
{
    int value = 0;
    const cudaError_t e = cudaDeviceGetAttribute(&value, what, device);
    *out = e == cudaSuccess ? (double)value : 0;
    if (e == cudaErrorInvalidValue) return cudaGetLastError(), ZX_OK;
    return zx_cuda_check(e, "cudaDeviceGetAttribute", err);
}

static zx_status ask_device(int k, zx_device *out, zx_err *err)
{
    struct cudaDeviceProp prop;
    size_t left = 0, all = 0;
    double clock, memory, bits;
    DO(cudaSetDevice(k));
    DO(cudaGetDeviceProperties(&prop, k));
    DO(cudaMemGetInfo(&left, &all));
    *out = (zx_device){.bytes = prop.totalGlobalMem,
                       .free_bytes = left,
                       .major = (uint32_t)prop.major,
                       .minor = (uint32_t)prop.minor,
                       .processors = (uint32_t)prop.multiProcessorCount,
                       .engines = (uint32_t)prop.asyncEngineCount};
    ZX_TRY(attribute(cudaDevAttrClockRate, k, &clock, err));
    ZX_TRY(attribute(cudaDevAttrMemoryClockRate, k, &memory, err));
    ZX_TRY(attribute(cudaDevAttrGlobalMemoryBusWidth, k, &bits, err));
    out->clock = 1e3 * clock;
    out->bandwidth = 2e3 * memory * bits / 8; // twice a clock; kilohertz and bits
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, prop.name);
    return ZX_OK;
}

static zx_status cuda_device(uint32_t index, zx_device *out, zx_err *err)
{
    const zx_status st = ask_device((int)index, out, err);
    if (st != ZX_OK) zx_err_in(err, "CUDA device %u", index);
    return st;
}

static zx_status open_device(struct zx_cuda *c, uint32_t local, zx_err *err)
{
    struct cudaDeviceProp prop;
    int n = 0, least = 0, greatest = 0;
    DO(cudaGetDeviceCount(&n));
    if (local >= (uint32_t)n) {
        zx_err_hint(err, "--ranks %d, or --comm shm, where ranks may share a device", n);
        return ZX_FAIL(err, ZX_E_USAGE, "rank %u has no device of its own, there are %d", local, n);
    }
    c->device = (int)local;
    DO(cudaSetDevice(c->device));
    DO(cudaGetDeviceProperties(&prop, c->device));
    c->processors = prop.multiProcessorCount;
    c->shared_bytes = prop.sharedMemPerBlockOptin;
    DO(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    DO(cudaStreamCreateWithPriority(&c->stream, cudaStreamNonBlocking, least));
    const cublasStatus_t st = cublasLtCreate(&c->blas);
    if (st != CUBLAS_STATUS_SUCCESS) {
        zx_err_hint(err, "cuBLAS of the CUDA that this zerox was built with; --backend cpu");
        return ZX_FAIL(err, ZX_E_DEVICE, "cublasLtCreate: %s: %s", cublasLtGetStatusName(st),
                       cublasLtGetStatusString(st));
    }
    return ZX_OK;
}

static void cuda_close(const struct zx_cuda *gpu)
{
    struct zx_cuda *c = (struct zx_cuda *)(uintptr_t)gpu; // ours: cuda_open made it
    if (c == NULL) return;
    // After an error nothing is waited for: the process ends, and the driver cleans up.
    const bool idle = c->stream != NULL && cudaStreamQuery(c->stream) == cudaSuccess;
    if (c->blas != NULL) cublasLtDestroy(c->blas);
    if (idle) cudaStreamDestroy(c->stream);
    free(c);
}

static zx_status cuda_open(uint32_t local, const struct zx_cuda **out, zx_err *err)
{
    struct zx_cuda *c = calloc(1, sizeof *c);
    *out = NULL;
    if (c == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    const zx_status st = open_device(c, local, err);
    if (st == ZX_OK)
        *out = c;
    else
        cuda_close(c);
    if (st != ZX_OK) zx_err_in(err, "CUDA device %u", local);
    return st;
}

static uint64_t cuda_usable(const struct zx_cuda *gpu ZX_UNUSED, uint32_t ranks)
{
    size_t left = 0, all = 0; // a device a rank
    return cudaMemGetInfo(&left, &all) == cudaSuccess ? (uint64_t)left * ranks : 0;
}

static void cuda_allow_tf32(const struct zx_cuda *gpu)
{
    ((struct zx_cuda *)(uintptr_t)gpu)->tf32 = true; // ours, as above
}

// ---- memory -------------------------------------------------------------------------------------

// Behind the plan's bytes: sums of squares, scratch of one sum, scratch of collectives.
typedef struct tail {
    uint64_t sums, work, comm, end;
} tail;

static tail tail_of(const zx_session *s)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < s->plan->n_units; u++) {
        const uint64_t each = zx_cuda_square_work(s->plan->units[u].shard);
        if (each > most) most = each;
    }
    tail t = {.sums = zx_align_up(s->plan->arena_bytes, ZX_ALIGN)};
    t.work = zx_align_up(t.sums + s->plan->n_units * sizeof(double), ZX_ALIGN);
    t.comm = zx_align_up(t.work + most, ZX_ALIGN);
    t.end = t.comm + s->gpu->comm->scratch(s);
    return t;
}

static zx_status allocate(zx_session *s, uint64_t bytes, zx_err *err)
{
    char need[ZX_BYTES_TEXT], have[ZX_BYTES_TEXT];
    size_t left = 0, all = 0;
    void *at = NULL;
    if (bytes == 0) return ZX_OK;
    DO(cudaMemGetInfo(&left, &all));
    const cudaError_t e = cudaMalloc(&at, (size_t)bytes);
    if (e == cudaErrorMemoryAllocation) {
        zx_err_hint(err, "a smaller --budget, or fewer ranks on a device");
        return ZX_FAIL(err, ZX_E_BUDGET, "the plan takes %s, the device has %s left (%s)",
                       zx_text_size(bytes, need), zx_text_size(left, have), cudaGetErrorString(e));
    }
    s->mine = at;
    return zx_cuda_check(e, "cudaMalloc", err);
}

static zx_status make_gpu(zx_session *s, zx_err *err)
{
    zx_gpu *g = s->gpu = calloc(1, sizeof *g);
    if (g == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    g->at = s->o.site.gpu;
    g->comm = s->ranks == 1 ? &zx_gpu_alone : s->o.by_host_memory ? &zx_gpu_staged : &zx_gpu_nccl;
    const tail t = tail_of(s);
    g->opening = true;
    zx_gpu_enter(s);
    DO(cudaSetDevice(g->at->device));
    ZX_TRY(allocate(s, t.end, err));
    DO(cudaHostAlloc((void **)&g->stage, ZX_GPU_WINDOW, cudaHostAllocPortable));
    g->sums = (double *)(void *)(s->mine + t.sums);
    g->work = (double *)(void *)(s->mine + t.work);
    return ZX_OK;
}

static zx_status reserve(zx_session *s, zx_err *err)
{
    zx_world *w = s->o.world;
    const zx_status made = make_gpu(s, err);
    zx_gpu_leave(s); // also where a call failed
    if (s->gpu != NULL) s->gpu->opening = false;
    ZX_TRY(zx_world_agree(w, made, err));
    if (s->ranks > 1) {
        s->gpu->window = ZX_NEW(&s->mem, unsigned char *, s->ranks);
        ZX_TRY(zx_world_reserve(w, ZX_GPU_WINDOW, s->gpu->window, err));
    }
    void *scratch = s->mine + tail_of(s).comm;
    return zx_world_agree(w, s->gpu->comm->open(s, scratch, &s->gpu->link, err), err);
}

static zx_status cuda_reserve(zx_session *s, zx_err *err)
{
    const zx_status st = reserve(s, err);
    if (st != ZX_OK) zx_err_in(err, "opening the session");
    return st;
}

static void cuda_release(zx_session *s)
{
    zx_gpu *g = s->gpu;
    if (g == NULL) return;
    const bool broken = s->fatal.code != ZX_OK || s->lane[ZX_S_COMPUTE].broken;
    if (broken) zx_world_keep_mapped(s->o.world);
    g->comm->close(g->link, broken);
    if (g->window != NULL) zx_world_release(s->o.world, ZX_GPU_WINDOW, g->window);
    // A device that is stuck would be waited for here, and for ever.
    zx_gpu_enter(s);
    if (!broken && s->mine != NULL) cudaFree(s->mine);
    if (!broken && g->stage != NULL) cudaFreeHost(g->stage);
    zx_gpu_leave(s);
    free(g->shown);
    free(g);
    s->gpu = NULL;
}

// ---- the host's view ----------------------------------------------------------------------------

static void *cuda_begin_fill(zx_session *s ZX_UNUSED, const zx_slot *slot)
{
    return calloc(1, (size_t)slot->bytes + 1);
}

// Through pinned memory a piece at a time: a copy from or to other memory keeps this thread inside
// CUDA until it is done, however long that takes.
static bool copy_in(zx_session *s, unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    const cudaStream_t q = s->gpu->at->stream;
    bool ok = true;
    zx_gpu_enter(s);
    for (uint64_t done = 0, n; done < bytes && ok; done += n) {
        n = bytes - done < ZX_GPU_WINDOW ? bytes - done : ZX_GPU_WINDOW;
        memcpy(s->gpu->stage, from + done, (size_t)n);
        ok = zx_gpu_check(
                 s, ZX_NONE,
                 cudaMemcpyAsync(to + done, s->gpu->stage, (size_t)n, cudaMemcpyHostToDevice, q)) &&
             zx_gpu_settle(s, q);
    }
    zx_gpu_leave(s);
    return ok;
}
static bool copy_out(zx_session *s, unsigned char *to, const unsigned char *from, uint64_t bytes)
{
    const cudaStream_t q = s->gpu->at->stream;
    bool ok = true;
    zx_gpu_enter(s);
    for (uint64_t done = 0, n; done < bytes && ok; done += n) {
        n = bytes - done < ZX_GPU_WINDOW ? bytes - done : ZX_GPU_WINDOW;
        ok = zx_gpu_check(s, ZX_NONE,
                          cudaMemcpyAsync(s->gpu->stage, from + done, (size_t)n,
                                          cudaMemcpyDeviceToHost, q)) &&
             zx_gpu_settle(s, q);
        if (ok) memcpy(to + done, s->gpu->stage, (size_t)n);
    }
    zx_gpu_leave(s);
    return ok;
}

static bool cuda_end_fill(zx_session *s, const zx_slot *slot, void *at)
{
    const bool ok = copy_in(s, s->mine + slot->offset, at, slot->bytes);
    free(at);
    return ok;
}

static const void *cuda_see(zx_session *s, const void *at, uint64_t bytes)
{
    zx_gpu *g = s->gpu;
    if (bytes > g->shown_bytes) {
        free(g->shown);
        g->shown = malloc((size_t)bytes);
        g->shown_bytes = g->shown != NULL ? bytes : 0;
    }
    if (g->shown == NULL && bytes > 0) return NULL;
    return copy_out(s, g->shown, at, bytes) ? g->shown : NULL;
}

// A piece of a window at a time: its rank puts it there, rank 0 takes it.
static bool fetch_piece(zx_session *s, uint32_t rank, uint64_t offset, void *to, uint64_t bytes)
{
    const zx_gpu *g = s->gpu;
    unsigned char *window = rank == 0 ? to : g->window[rank];
    if (s->rank == rank && !copy_out(s, window, s->mine + offset, bytes)) return false;
    if (rank == 0) return true;
    if (!s->transport->barrier(s->comm)) return false;
    if (s->rank == 0) memcpy(to, window, (size_t)bytes);
    return s->transport->barrier(s->comm);
}

static bool cuda_fetch(zx_session *s, uint32_t rank, uint64_t offset, void *to, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes; done += ZX_GPU_WINDOW) {
        const uint64_t n = bytes - done < ZX_GPU_WINDOW ? bytes - done : ZX_GPU_WINDOW;
        unsigned char *at = s->rank == 0 ? (unsigned char *)to + done : NULL;
        if (!fetch_piece(s, rank, offset + done, at, n)) return false;
    }
    return true;
}

extern const zx_backend zx_backend_cuda;
const zx_backend zx_backend_cuda = {
    .name = "cuda",
    .epilogues = true,
    .count = cuda_count,
    .device = cuda_device,
    .open = cuda_open,
    .close = cuda_close,
    .usable = cuda_usable,
    .kernel = zx_cuda_kernel_of_any,
    .allow_tf32 = cuda_allow_tf32,
    .reserve = cuda_reserve,
    .release = cuda_release,
    .start = zx_gpu_start,
    .stop = zx_gpu_end,
    .run = zx_gpu_run,
    .reset_working = zx_gpu_reset_working,
    .begin_fill = cuda_begin_fill,
    .end_fill = cuda_end_fill,
    .see = cuda_see,
    .fetch = cuda_fetch,
};

// test_nccl.c - the stand-in's NCCL between threads and between processes: what arrives, what waits
// for ever, and what ends that.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda_standin/rig.h"

#define RANKS 3
#define MOST 50000

// ---- ranks --------------------------------------------------------------------------------------

typedef struct rank_case {
    const char *name;
    size_t n; // floats of a piece
    bool in_place, exchanges;
} rank_case;

typedef struct rank { // one of them, with a device of its own
    const rank_case *k;
    ncclUniqueId id;
    int rank;
    ncclComm_t comm;
    cudaStream_t stream;
    float *to, *from; // on the device
    bool ok;
} rank;

static float value(int from, int to, size_t i)
{
    return (float)(from * 7 + to * 3) + (float)(i % 1000) / 1000;
}

static bool upload(const rank *r, float *to, int dest, size_t n)
{
    float *here = malloc(n * sizeof *here + 1);
    for (size_t i = 0; i < n; i++) here[i] = value(r->rank, dest, i);
    const bool ok = cudaMemcpyAsync(to, here, n * sizeof *here, cudaMemcpyHostToDevice,
                                    r->stream) == cudaSuccess;
    free(here); // pageable memory was read before the call returned
    return ok;
}

// A piece for everybody; the same for each in an all-gather.
static ncclResult_t communicate(rank *r)
{
    const size_t n = r->k->n;
    ncclResult_t e = ncclSuccess;
    if (!r->k->exchanges) {
        const float *from = r->k->in_place ? r->to + (size_t)r->rank * n : r->from;
        return ncclAllGather(from, r->to, n, ncclFloat32, r->comm, r->stream);
    }
    ncclGroupStart();
    for (int p = 0; p < RANKS && e == ncclSuccess; p++) {
        e = ncclSend(r->from + (size_t)p * n, n, ncclFloat32, p, r->comm, r->stream);
        if (e == ncclSuccess)
            e = ncclRecv(r->to + (size_t)p * n, n, ncclFloat32, p, r->comm, r->stream);
    }
    const ncclResult_t end = ncclGroupEnd();
    return e != ncclSuccess ? e : end;
}

static bool arrived(rank *r)
{
    const size_t n = r->k->n;
    float *got = malloc(RANKS * n * sizeof *got + 1);
    bool ok = cudaMemcpyAsync(got, r->to, RANKS * n * sizeof *got, cudaMemcpyDeviceToHost,
                              r->stream) == cudaSuccess;
    for (int p = 0; p < RANKS; p++)
        for (size_t i = 0; i < n && ok; i++)
            ok = got[(size_t)p * n + i] == value(p, r->k->exchanges ? r->rank : 0, i);
    free(got);
    return ok;
}

static bool be_rank(rank *r)
{
    const size_t bytes = RANKS * r->k->n * sizeof(float) + 4;
    bool ok = cudaSetDevice(r->rank) == cudaSuccess &&
              cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc((void **)&r->to, bytes) == cudaSuccess &&
              cudaMalloc((void **)&r->from, bytes) == cudaSuccess &&
              ncclCommInitRank(&r->comm, RANKS, r->id, r->rank) == ncclSuccess;
    for (int p = 0; p < RANKS && ok; p++)
        ok = upload(r, r->from + (size_t)p * r->k->n, r->k->exchanges ? p : 0, r->k->n);
    if (r->k->in_place) ok = ok && upload(r, r->to + (size_t)r->rank * r->k->n, 0, r->k->n);
    for (int again = 0; again < 2 && ok; again++) ok = communicate(r) == ncclSuccess && arrived(r);
    return ok && ncclCommDestroy(r->comm) == ncclSuccess && zx_standin_said()[0] == '\0';
}
static void *run_rank(void *arg)
{
    rank *r = arg;
    r->ok = be_rank(r);
    return NULL;
}

static void ranks_meet(void **state)
{
    const rank_case *k = *state;
    rank r[RANKS];
    pthread_t t[RANKS];
    ncclUniqueId id;
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    for (int i = 0; i < RANKS; i++) r[i] = (rank){.k = k, .id = id, .rank = i};
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, run_rank, &r[i]), 0);
    for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < RANKS; i++) assert_true(r[i].ok);
    assert_string_equal(zx_standin_said(), "");
}

static const rank_case meetings[] = {
    {"all-gather", 100, false, false},
    {"all-gather in place", 100, true, false},
    {"pieces of many chunks", MOST, true, false},
    {"no elements", 0, false, false},
    {"an exchange", 100, false, true},
    {"an exchange of many chunks", MOST, false, true},
};

// ---- sums ---------------------------------------------------------------------------------------

typedef enum sum_kind { SCATTER, ALL, TO_ONE } sum_kind;
static const struct sum_case {
    const char *name;
    sum_kind kind;
    size_t n;
    bool in_place;
} sums[] = {
    {"reduce-scatter", SCATTER, 100, false},
    {"reduce-scatter in place", SCATTER, MOST, true},
    {"reduce-scatter of nothing", SCATTER, 0, false},
    {"all-reduce", ALL, 100, false},
    {"all-reduce in place", ALL, MOST, true},
    {"reduce to a rank", TO_ONE, 100, false},
    {"reduce to a rank in place", TO_ONE, MOST, true},
};
typedef struct adder {
    const struct sum_case *k;
    ncclUniqueId id;
    int rank;
    bool ok;
} adder;

// Ranks 0, 1, 2 have i + 1e8, i - 1e8 and i + 1: in rank order their sum isn't what it is from the
// last one on, which is what the stand-in gives.
static float operand(int r, size_t i)
{
    return (float)(i % 100) + (r == 0 ? 1e8f : r == 1 ? -1e8f : 1.0f);
}
static bool adds(adder *d)
{
    const size_t n = d->k->n, all = d->k->kind == SCATTER ? RANKS * n : n;
    float *here = malloc(all * sizeof *here + 4), *from = NULL, *to = NULL;
    cudaStream_t q;
    ncclComm_t c;
    bool ok = cudaSetDevice(d->rank) == cudaSuccess &&
              cudaStreamCreateWithFlags(&q, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc((void **)&from, all * sizeof *from + 4) == cudaSuccess &&
              cudaMalloc((void **)&to, n * sizeof *to + 4) == cudaSuccess &&
              ncclCommInitRank(&c, RANKS, d->id, d->rank) == ncclSuccess;
    if (d->k->in_place) to = from + (d->k->kind == SCATTER ? (size_t)d->rank * n : 0);
    for (size_t i = 0; i < all; i++) here[i] = operand(d->rank, i);
    ok = ok &&
         cudaMemcpyAsync(from, here, all * sizeof *here, cudaMemcpyHostToDevice, q) == cudaSuccess;
    const ncclResult_t e =
        !ok                     ? ncclInternalError
        : d->k->kind == SCATTER ? ncclReduceScatter(from, to, n, ncclFloat32, ncclSum, c, q)
        : d->k->kind == ALL     ? ncclAllReduce(from, to, n, ncclFloat32, ncclSum, c, q)
                                : ncclReduce(from, to, n, ncclFloat32, ncclSum, 1, c, q);
    ok = e == ncclSuccess &&
         cudaMemcpyAsync(here, to, n * sizeof *here, cudaMemcpyDeviceToHost, q) == cudaSuccess &&
         cudaStreamSynchronize(q) == cudaSuccess;
    for (size_t i = 0; i < n && ok && (d->k->kind != TO_ONE || d->rank == 1); i++) {
        const size_t at = (d->k->kind == SCATTER ? (size_t)d->rank * n : 0) + i;
        ok = here[i] == operand(2, at) + operand(1, at) + operand(0, at);
    }
    free(here);
    return ok && ncclCommDestroy(c) == ncclSuccess && zx_standin_said()[0] == '\0';
}
static void *run_adder(void *arg)
{
    adder *d = arg;
    d->ok = adds(d);
    return NULL;
}
static void ranks_add(void **state)
{
    adder d[RANKS];
    pthread_t t[RANKS];
    ncclUniqueId id;
    assert_true(operand(2, 0) + operand(1, 0) + operand(0, 0) !=
                operand(0, 0) + operand(1, 0) + operand(2, 0));
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    for (int i = 0; i < RANKS; i++) d[i] = (adder){.k = *state, .id = id, .rank = i};
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, run_adder, &d[i]), 0);
    for (int i = 0; i < RANKS; i++) pthread_join(t[i], NULL);
    for (int i = 0; i < RANKS; i++) assert_true(d[i].ok);
    assert_string_equal(zx_standin_said(), "");
}

// Processes: nobody may have called CUDA before the fork, so rank 0's id comes over a page.
static void processes_meet(void)
{
    static const rank_case k = {"processes", 20000, false, true};
    struct page {
        ncclUniqueId id;
        _Atomic int there;
    } *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t child[RANKS];
    for (int i = 0; i < RANKS; i++) {
        child[i] = fork();
        if (child[i] != 0) continue;
        if (i == 0) {
            if (ncclGetUniqueId(&page->id) != ncclSuccess) _exit(1);
            atomic_store(&page->there, 1);
        }
        while (!atomic_load(&page->there)) usleep(1000);
        rank r = {.k = &k, .id = page->id, .rank = i};
        _exit(be_rank(&r) ? 0 : 1);
    }
    for (int i = 0; i < RANKS; i++) {
        int status = -1;
        waitpid(child[i], &status, 0);
        if (status != 0) {
            fprintf(stderr, "rank %d between processes failed\n", i);
            exit(1);
        }
    }
}

// ---- what goes wrong ----------------------------------------------------------------------------

typedef struct half { // two ranks, of which the second does something else
    ncclUniqueId id;
    int rank, device;
    ncclComm_t comm;
    cudaStream_t stream;
    float *at;
    ncclResult_t joined;
} half;

static void *join(void *arg)
{
    half *h = arg;
    if (cudaSetDevice(h->device) != cudaSuccess ||
        cudaStreamCreateWithFlags(&h->stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMalloc((void **)&h->at, 4000) != cudaSuccess)
        return NULL;
    h->joined = ncclCommInitRank(&h->comm, 2, h->id, h->rank);
    return NULL;
}
static void two(half *h, int device_of_1)
{
    pthread_t t;
    assert_int_equal(ncclGetUniqueId(&h[0].id), ncclSuccess);
    h[1] = (half){.id = h[0].id, .rank = 1, .device = device_of_1};
    assert_int_equal(pthread_create(&t, NULL, join, &h[1]), 0);
    join(&h[0]);
    pthread_join(t, NULL);
}

// The peer never calls: nothing is an error, and nothing ends, until it is aborted.
static void waits_for_ever(void **state ZX_UNUSED)
{
    half h[2] = {{.rank = 0}};
    ncclResult_t async = ncclInProgress;
    two(h, 1);
    assert_int_equal(ncclRecv(h[0].at, 10, ncclFloat32, 1, h[0].comm, h[0].stream), ncclSuccess);
    usleep(20000);
    assert_cuda(cudaStreamQuery(h[0].stream), cudaErrorNotReady);
    assert_int_equal(ncclCommGetAsyncError(h[0].comm, &async), ncclSuccess);
    assert_int_equal(async, ncclSuccess);
    assert_int_equal(ncclCommAbort(h[0].comm), ncclSuccess);
    assert_ok(cudaStreamSynchronize(h[0].stream));
    ncclCommDestroy(h[1].comm);
}

static void fails_later(void **state ZX_UNUSED)
{
    half h[2] = {{.rank = 0}};
    ncclResult_t async = ncclSuccess;
    two(h, 1);
    zx_standin_fail("nccl", 1, (cudaError_t)ncclRemoteError, 0);
    assert_int_equal(ncclSend(h[0].at, 10, ncclFloat32, 1, h[0].comm, h[0].stream), ncclSuccess);
    while (async == ncclSuccess) ncclCommGetAsyncError(h[0].comm, &async);
    assert_int_equal(async, ncclRemoteError);
    assert_cuda(cudaStreamQuery(h[0].stream), cudaErrorNotReady);
    ncclCommAbort(h[0].comm);
    assert_ok(cudaStreamSynchronize(h[0].stream));
    ncclCommDestroy(h[1].comm);
}

static void sizes_differ(void **state ZX_UNUSED)
{
    half h[2] = {{.rank = 0}};
    ncclResult_t async = ncclSuccess;
    two(h, 1);
    ncclSend(h[0].at, 10, ncclFloat32, 1, h[0].comm, h[0].stream);
    ncclRecv(h[1].at, 11, ncclFloat32, 0, h[1].comm, h[1].stream);
    while (async == ncclSuccess) ncclCommGetAsyncError(h[1].comm, &async);
    assert_non_null(strstr(zx_standin_said(), "sends 40 bytes where rank 1 receives 44"));
    ncclCommAbort(h[0].comm);
    ncclCommAbort(h[1].comm);
}

static void wrong_calls(void **state ZX_UNUSED)
{
    half h[2] = {{.rank = 0}};
    float host[4];
    two(h, 0);
    assert_int_equal(h[0].joined, ncclInvalidUsage);
    assert_non_null(strstr(zx_standin_said(), "two ranks are on one device"));
    two(h, 1);
    assert_int_equal(ncclSend(host, 4, ncclFloat32, 1, h[0].comm, h[0].stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclSend(h[0].at, 1001, ncclFloat32, 1, h[0].comm, h[0].stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclSend(h[0].at, 1, ncclFloat32, 2, h[0].comm, h[0].stream),
                     ncclInvalidArgument);
    assert_int_equal(ncclGroupEnd(), ncclInvalidUsage);
    zx_standin_fail("ncclSend", 1, (cudaError_t)ncclSystemError, -1);
    assert_int_equal(ncclSend(h[0].at, 1, ncclFloat32, 1, h[0].comm, h[0].stream), ncclSystemError);
    ncclCommDestroy(h[0].comm);
    ncclCommDestroy(h[1].comm);
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(meetings) + ZX_COUNT(sums) + 4];
    size_t n = 0;
    setenv("ZX_STANDIN_DEVICES", "3", 1);
    processes_meet();
    for (size_t i = 0; i < ZX_COUNT(meetings); i++)
        tests[n++] = zx_case(meetings[i].name, ranks_meet, &meetings[i]);
    for (size_t i = 0; i < ZX_COUNT(sums); i++)
        tests[n++] = zx_case(sums[i].name, ranks_add, &sums[i]);
    tests[n++] = zx_case("a peer that doesn't come", waits_for_ever, NULL);
    tests[n++] = zx_case("an asynchronous error", fails_later, NULL);
    tests[n++] = zx_case("sizes differ", sizes_differ, NULL);
    tests[n++] = zx_case("wrong calls", wrong_calls, NULL);
    for (size_t i = 0; i < n; i++) tests[i].setup_func = fresh;
    return _cmocka_run_group_tests("cuda_standin.nccl", tests, n, NULL, fresh);
}

// nccl.c - the stand-in's NCCL: communicators over shared memory that is named by the unique id, so
// ranks may be threads or processes. Every collective becomes sends and receives; a group is one
// item of a stream, in which all of them go on at the same time. Reductions receive every rank's
// operand and add them up at the end, last rank first: NCCL has an order of its own, and who relies
// on rank order is to see it.
//
// A peer that never comes is waited for, as NCCL does; only an abort ends that.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "tests/cuda_standin/inside.h"

#define PREFIX "standin-nccl-" // of names in shared memory, before the maker's process
#define RANKS 16
#define CHUNK 65536u

typedef struct channel { // from one rank to another: one chunk at a time
    _Atomic uint64_t sent, taken;
    uint64_t total, n; // bytes of the message, and of the chunk that lies here
    unsigned char data[CHUNK];
} channel;
typedef struct shared {
    _Atomic uint32_t came;
    _Atomic int32_t device[RANKS]; // + 1; 0: not here yet
    channel at[];                  // [from * ranks + to]
} shared;

struct ncclComm {
    int rank, ranks, device;
    shared *mem;
    size_t bytes;
    _Atomic uint32_t abort, refs; // refs: the caller's, and a queued item each
    _Atomic uint32_t error;       // ncclResult_t
    _Atomic uint32_t over;        // groups: they go one after the other, on whatever streams
    uint32_t queued;
    char words[200];
};

typedef struct op { // of a group
    bool sends;
    int peer;
    const unsigned char *from;
    unsigned char *to;
    uint64_t bytes, done;
    bool inner; // `to` is a row of a sum
} op;
typedef struct sum { // over all ranks; a row a rank
    float *to, *rows;
    uint64_t n;
} sum;
typedef struct group {
    ncclComm_t comm;
    cudaStream_t stream;
    uint32_t n, room, turn, n_sums, room_sums;
    op *ops;
    sum *sums;
} group;

static _Thread_local struct {
    int depth;
    ncclResult_t failed;
    group g;
} mine;

static const struct {
    ncclResult_t result;
    const char *words;
} rows[] = {
#define X(name, number, words) {name, words},
    ZX_STANDIN_NCCL_RESULTS(X)
#undef X
};
const char *ncclGetErrorString(ncclResult_t result)
{
    return (unsigned)result < sizeof rows / sizeof rows[0] ? rows[result].words : "unknown";
}
const char *ncclGetLastError(ncclComm_t comm)
{
    return comm != NULL ? comm->words : "";
}

#define BEGIN()                                                                                    \
    do {                                                                                           \
        const uint32_t e_ = si_begin_library(__func__, ncclUnhandledCudaError);                    \
        if (e_ != 0) return (ncclResult_t)e_;                                                      \
    } while (0)
#define WRONG(result, ...) (si_wrong(cudaSuccess, "NCCL: " __VA_ARGS__), result)

// ---- communicators ------------------------------------------------------------------------------

// What is left of communicators that never came about, since ranks died: their maker has ended.
static void sweep(void)
{
    DIR *d = opendir("/dev/shm");
    if (d == NULL) return;
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        char name[300];
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        const pid_t maker = (pid_t)strtol(e->d_name + strlen(PREFIX), NULL, 10);
        if (maker <= 0 || kill(maker, 0) == 0 || errno != ESRCH) continue;
        snprintf(name, sizeof name, "/%s", e->d_name);
        shm_unlink(name);
    }
    closedir(d);
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    BEGIN();
    sweep();
    uint64_t x[2] = {0};
    if (getrandom(x, sizeof x, 0) != sizeof x) return ncclSystemError;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/" PREFIX "%ld-%016llx%016llx", (long)getpid(),
             (unsigned long long)x[0], (unsigned long long)x[1]);
    return ncclSuccess;
}

static shared *map(const char *name, size_t bytes)
{
    const int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd < 0) return NULL;
    void *at = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return at == MAP_FAILED ? NULL : at;
}

// Two ranks on one device are none that NCCL would have.
static bool shares_device(const struct ncclComm *c)
{
    for (int r = 0; r < c->ranks; r++)
        for (int q = 0; q < r; q++)
            if (atomic_load(&c->mem->device[r]) == atomic_load(&c->mem->device[q])) return true;
    return false;
}

static void let_go(ncclComm_t c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1) return;
    munmap(c->mem, c->bytes);
    free(c);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    BEGIN();
    if (ranks < 1 || ranks > RANKS || rank < 0 || rank >= ranks)
        return WRONG(ncclInvalidArgument, "rank %d of %d", rank, ranks);
    ncclComm_t c = calloc(1, sizeof *c);
    if (c == NULL) return ncclSystemError;
    *c = (struct ncclComm){.rank = rank, .ranks = ranks, .device = si_current()};
    c->bytes = sizeof *c->mem + (size_t)(ranks * ranks) * sizeof(channel);
    c->mem = map(id.internal, c->bytes);
    if (c->mem == NULL) {
        free(c);
        return ncclSystemError;
    }
    atomic_store(&c->refs, 1);
    atomic_store(&c->mem->device[rank], c->device + 1);
    atomic_fetch_add(&c->mem->came, 1);
    while (atomic_load(&c->mem->came) < (uint32_t)ranks) usleep(100);
    if (rank == 0) shm_unlink(id.internal);
    if (shares_device(c)) {
        let_go(c);
        return WRONG(ncclInvalidUsage, "two ranks are on one device");
    }
    *comm = c;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    const uint32_t e = si_begin_library(__func__, 0);
    if (comm == NULL) return ncclInvalidArgument;
    if (atomic_load(&comm->refs) > 1)
        si_wrong(cudaSuccess, "NCCL: a communicator is destroyed while it is in use");
    let_go(comm);
    return (ncclResult_t)e;
}
ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (comm == NULL) return ncclInvalidArgument;
    atomic_store(&comm->abort, 1);
    si_aborted();
    let_go(comm);
    return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    BEGIN();
    *error = (ncclResult_t)atomic_load(&comm->error);
    return ncclSuccess;
}

// ---- what a stream does -------------------------------------------------------------------------

static void give_up(ncclComm_t c, ncclResult_t e, const char *words)
{
    uint32_t none = ncclSuccess;
    snprintf(c->words, sizeof c->words, "%s", words);
    atomic_compare_exchange_strong(&c->error, &none, e);
}

static bool push(ncclComm_t c, op *o)
{
    channel *at = &c->mem->at[c->rank * c->ranks + o->peer];
    if (atomic_load(&at->sent) != atomic_load(&at->taken)) return false;
    const uint64_t n = o->bytes - o->done < CHUNK ? o->bytes - o->done : CHUNK;
    SI_READS(o->from + o->done, n);
    memcpy(at->data, o->from + o->done, n);
    at->n = n;
    at->total = o->bytes;
    o->done += n;
    atomic_fetch_add(&at->sent, 1);
    return true;
}

static bool pull(ncclComm_t c, op *o)
{
    channel *at = &c->mem->at[o->peer * c->ranks + c->rank];
    if (atomic_load(&at->sent) == atomic_load(&at->taken)) return false;
    if (at->total != o->bytes) {
        si_wrong(cudaSuccess, "NCCL: rank %d sends %llu bytes where rank %d receives %llu", o->peer,
                 (unsigned long long)at->total, c->rank, (unsigned long long)o->bytes);
        give_up(c, ncclInvalidUsage, "sizes differ between ranks");
        return false;
    }
    SI_WRITES(o->to + o->done, at->n);
    memcpy(o->to + o->done, at->data, at->n);
    o->done += at->n;
    atomic_fetch_add(&at->taken, 1);
    return true;
}

// A turn over all that isn't done; messages of one pair go one after the other.
static bool turn(group *g, bool *all)
{
    uint32_t busy[2] = {0, 0}; // peers
    bool moved = false;
    *all = true;
    for (uint32_t i = 0; i < g->n; i++) {
        op *o = &g->ops[i];
        const uint32_t bit = 1u << o->peer;
        if (o->done == o->bytes) continue;
        *all = false;
        if (busy[o->sends] & bit) continue;
        busy[o->sends] |= bit;
        moved |= o->sends ? push(g->comm, o) : pull(g->comm, o);
    }
    return moved;
}

static const char *bad_memory(const group *g)
{
    for (uint32_t i = 0; i < g->n; i++) {
        const op *o = &g->ops[i];
        if (o->inner) continue;
        const si_range r = si_find(o->sends ? (const void *)o->from : o->to, o->bytes);
        if (r.kind != SI_DEVICE || r.device != g->comm->device || !r.inside)
            return o->sends ? "what is sent" : "where is received";
    }
    for (uint32_t i = 0; i < g->n_sums; i++) {
        const si_range r = si_find(g->sums[i].to, g->sums[i].n * sizeof(float));
        if (r.kind != SI_DEVICE || r.device != g->comm->device || !r.inside)
            return "where a sum goes";
    }
    return NULL;
}

static void add_up(const group *g)
{
    for (uint32_t k = 0; k < g->n_sums; k++) {
        const sum *x = &g->sums[k];
        SI_WRITES(x->to, x->n * sizeof *x->to);
        for (uint64_t i = 0; i < x->n; i++) {
            float y = x->rows[(uint64_t)(g->comm->ranks - 1) * x->n + i];
            for (int r = g->comm->ranks - 2; r >= 0; r--) y += x->rows[(uint64_t)r * x->n + i];
            x->to[i] = y;
        }
    }
}
static void drop(group *g)
{
    for (uint32_t k = 0; k < g->n_sums; k++) free(g->sums[k].rows);
    free(g->sums);
    free(g->ops);
    free(g);
}

static bool is_over(cudaStream_t s, ncclComm_t c)
{
    return atomic_load(&c->abort) || atomic_load(&s->end);
}

static void run(cudaStream_t s, void *args)
{
    group *g = *(group **)args;
    ncclComm_t c = g->comm;
    bool all = false;
    const char *bad = bad_memory(g);
    const uint32_t fault = si_library_fault("nccl", s->device);
    if (fault != 0) give_up(c, (ncclResult_t)fault, "as asked");
    if (bad != NULL)
        si_stick(s->device, cudaErrorIllegalAddress, "NCCL: %s isn't memory of device %d", bad,
                 s->device);
    while (atomic_load(&c->over) != g->turn && !is_over(s, c)) usleep(20);
    while (bad == NULL && !is_over(s, c)) {
        const bool moved = atomic_load(&c->error) == ncclSuccess && turn(g, &all);
        if (all) break;
        if (!moved) usleep(20);
    }
    if (all) add_up(g);
    atomic_store(&c->over, g->turn + 1);
    drop(g);
    let_go(c);
}

// ---- calls --------------------------------------------------------------------------------------

static ncclResult_t add(ncclComm_t c, cudaStream_t s, op o)
{
    group *g = &mine.g;
    if (c == NULL || si_stream(s) == NULL || s->device != c->device)
        return WRONG(ncclInvalidArgument, "no communicator, or no stream of its device");
    if (o.peer < 0 || o.peer >= c->ranks) return WRONG(ncclInvalidArgument, "no rank %d", o.peer);
    if (g->n > 0 && (g->comm != c || g->stream != s))
        return WRONG(ncclInvalidUsage, "a group of several communicators or streams");
    g->comm = c;
    g->stream = s;
    if (o.bytes == 0) return ncclSuccess;
    if (g->n == g->room) {
        g->room = g->room == 0 ? 64 : 2 * g->room;
        g->ops = realloc(g->ops, g->room * sizeof *g->ops);
        if (g->ops == NULL) abort();
    }
    g->ops[g->n++] = o;
    return ncclSuccess;
}

static ncclResult_t queue_group(void)
{
    group *g = malloc(sizeof *g);
    const ncclResult_t failed = mine.failed;
    if (g == NULL) abort();
    *g = mine.g;
    mine.g = (group){0};
    mine.failed = ncclSuccess;
    const char *bad = failed == ncclSuccess ? bad_memory(g) : NULL;
    if (failed != ncclSuccess || g->n == 0 || bad != NULL) {
        drop(g);
        if (bad == NULL) return failed;
        return WRONG(ncclInvalidArgument, "%s isn't memory of the device", bad);
    }
    g->turn = g->comm->queued++;
    atomic_fetch_add(&g->comm->refs, 1);
    si_enqueue_work(g->stream, run, &g, sizeof g);
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    BEGIN();
    mine.depth++;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void)
{
    const uint32_t e = si_begin_library(__func__, ncclUnhandledCudaError);
    if (e != 0) mine.failed = (ncclResult_t)e;
    if (mine.depth == 0) return WRONG(ncclInvalidUsage, "no group was begun");
    return --mine.depth == 0 ? queue_group() : ncclSuccess;
}

// Within a group it waits for its end; alone it is a group.
static ncclResult_t done(ncclResult_t e)
{
    if (e != ncclSuccess) mine.failed = e;
    if (mine.depth > 0) return e;
    return queue_group();
}

static uint64_t bytes_of(size_t count, ncclDataType_t type)
{
    const uint64_t size = type == ncclFloat32                           ? 4
                          : type == ncclFloat16 || type == ncclBfloat16 ? 2
                                                                        : 1;
    return size * count;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    BEGIN();
    const uint64_t bytes = bytes_of(count, type);
    ncclResult_t e = comm != NULL ? ncclSuccess : ncclInvalidArgument;
    for (int r = 0; e == ncclSuccess && r < comm->ranks; r++) {
        unsigned char *piece = (unsigned char *)to + (uint64_t)r * bytes;
        if (r == comm->rank && piece == from) continue;
        e = add(comm, stream, (op){true, r, from, NULL, bytes, 0, false});
        if (e == ncclSuccess) e = add(comm, stream, (op){false, r, NULL, piece, bytes, 0, false});
    }
    return done(e);
}

// Everybody's `count` floats to rank `root`, who adds them up at `to`.
static ncclResult_t reduce_to(const float *from, float *to, size_t count, int root, ncclComm_t c,
                              cudaStream_t s)
{
    const uint64_t bytes = count * sizeof(float);
    ncclResult_t e =
        add(c, s, (op){true, root, (const unsigned char *)from, NULL, bytes, 0, false});
    if (e != ncclSuccess || c->rank != root || count == 0) return e;
    group *g = &mine.g;
    float *each = malloc((size_t)c->ranks * bytes);
    if (g->n_sums == g->room_sums) {
        g->room_sums = g->room_sums == 0 ? 16 : 2 * g->room_sums;
        g->sums = realloc(g->sums, g->room_sums * sizeof *g->sums);
    }
    if (each == NULL || g->sums == NULL) abort();
    g->sums[g->n_sums++] = (sum){to, each, count};
    for (int r = 0; r < c->ranks && e == ncclSuccess; r++)
        e = add(c, s,
                (op){false, r, NULL, (unsigned char *)(each + (size_t)r * count), bytes, 0, true});
    return e;
}
static ncclResult_t sums_only(ncclDataType_t type, ncclRedOp_t what, ncclComm_t c)
{
    if (c != NULL && type == ncclFloat32 && what == ncclSum) return ncclSuccess;
    return WRONG(ncclInvalidArgument, "no communicator, or a reduction that isn't a sum of floats");
}

ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                        ncclRedOp_t what, int root, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN();
    ncclResult_t e = sums_only(type, what, comm);
    if (e == ncclSuccess) e = reduce_to(from, to, count, root, comm, stream);
    return done(e);
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t what, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN();
    const float *x = from;
    ncclResult_t e = sums_only(type, what, comm);
    for (int r = 0; e == ncclSuccess && r < comm->ranks; r++)
        e = reduce_to(x + (size_t)r * count, to, count, r, comm, stream);
    return done(e);
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t what, ncclComm_t comm, cudaStream_t stream)
{
    BEGIN();
    ncclResult_t e = sums_only(type, what, comm);
    for (int r = 0; e == ncclSuccess && r < comm->ranks; r++)
        e = reduce_to(from, to, count, r, comm, stream);
    return done(e);
}
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    BEGIN();
    return done(add(comm, stream, (op){true, peer, from, NULL, bytes_of(count, type), 0, false}));
}
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    BEGIN();
    return done(add(comm, stream, (op){false, peer, NULL, to, bytes_of(count, type), 0, false}));
}

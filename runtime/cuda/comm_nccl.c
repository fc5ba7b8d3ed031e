// comm_nccl.c - collectives by NCCL: a launch of many units is one group call, each unit in place.
//
// Gathers and reductions have a communicator each, so that neither waits for the other's turn. NCCL
// adds in an order of its own; so gradients are exchanged, and added here in rank order, which
// gives the same bits whatever is reduced with what. It moves as many bytes as a reduce-scatter
// would. Where any order will do (zerox.deterministic: false) NCCL adds them, but those of 16 bits:
// it would round each of the sums on its way, here they are made in float32.
// SPDX-License-Identifier: Apache-2.0
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/collect.h"
#include "runtime/cuda/gpu.h"

enum { GATHERS, REDUCTIONS, COMMS };

struct zx_gpu_link {
    zx_session *s;
    ncclComm_t comm[COMMS];
    // The guard, a thread: NCCL may keep this rank inside a call for as long as a peer is silent.
    pthread_t guard;
    bool guarded;
    _Atomic uint64_t since; // nanoseconds: when the call in progress began; 0: there is none
    _Atomic uint32_t given_up, closing;
    unsigned char *rows[ZX_STREAM_COUNT]; // a row a rank, of what is summed on that stream
};

static zx_status nccl_check(ncclResult_t r, const char *what, ncclComm_t c, zx_err *err)
{
    if (r == ncclSuccess) return ZX_OK;
    const char *last = c != NULL ? ncclGetLastError(c) : "";
    zx_err_hint(err,
                r == ncclRemoteError
                    ? "the run again: another rank ended, or the way to it"
                    : "NCCL_DEBUG=WARN before the command, where NCCL says more; --comm shm, which "
                      "goes without it");
    return ZX_FAIL(err, ZX_E_DEVICE, "NCCL: %s: %s%s%s", what, ncclGetErrorString(r),
                   last[0] != '\0' ? ": " : "", last);
}
static zx_status late(const zx_session *s, const char *what, zx_err *err)
{
    zx_err_hint(err, "look what the other ranks do; a longer --timeout, if they were only slow");
    return ZX_FAIL(err, ZX_E_DEVICE, "NCCL: %s hasn't come back for %g s (--timeout)", what,
                   s->o.timeout_seconds);
}
static bool went(zx_session *s, uint32_t at, ncclResult_t r, const char *what, ncclComm_t c)
{
    zx_err why = {0};
    if (r == ncclSuccess) return true;
    if (!atomic_load(&s->gpu->link->given_up)) {
        nccl_check(r, what, c, &why);
        return zx_gpu_fail(s, at, &why);
    }
    if (zx_world_lost(s->o.world)) return zx_gpu_fail_peer(s, at);
    late(s, what, &why);
    return zx_gpu_fail(s, at, &why);
}

static ncclComm_t comm_of(const zx_session *s, uint32_t at)
{
    return s->gpu->link->comm[s->plan->insns[at].stream == ZX_S_REDUCE ? REDUCTIONS : GATHERS];
}

static ncclDataType_t type_of(const zx_session *s, uint32_t bytes)
{
    const zx_dtype t = zx_unit_type(s, bytes);
    return t == ZX_F16 ? ncclFloat16 : t == ZX_BF16 ? ncclBfloat16 : ncclFloat32;
}

// ---- scratch ------------------------------------------------------------------------------------

// Bytes of the rows of each stream; they begin one after the other.
static uint64_t layout(const zx_session *s, uint64_t at[ZX_STREAM_COUNT])
{
    const zx_plan *p = s->plan;
    uint64_t most[ZX_STREAM_COUNT] = {0}, end = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *insn = &p->insns[i];
        uint64_t bytes = 0;
        if (insn->id == ZX_I_REDUCE || insn->id == ZX_I_ALLREDUCE)
            bytes = zx_gpu_row(p, &p->launches[insn->a]);
        if (insn->id == ZX_I_COMMIT)
            bytes = zx_type_bytes(&s->graph->values[s->graph->buffers[insn->a].value].type);
        if (bytes > most[insn->stream]) most[insn->stream] = bytes;
    }
    for (uint32_t k = 0; k < ZX_STREAM_COUNT; k++) {
        at[k] = end;
        end = zx_align_up(end + most[k] * s->ranks, ZX_ALIGN);
    }
    return end;
}

static uint64_t nccl_scratch(const zx_session *s)
{
    uint64_t at[ZX_STREAM_COUNT];
    return layout(s, at);
}

// ---- gathers ------------------------------------------------------------------------------------

static ncclResult_t gather_unit(const zx_session *s, const zx_member *m, ncclComm_t c,
                                cudaStream_t q)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const int64_t from = u->param_whole ? (int64_t)s->rank * u->shard : 0;
    return ncclAllGather(zx_gpu_element(s, u->param_slot, from, u->param_bytes),
                         zx_slot_at(s, m->slot), (size_t)u->shard, type_of(s, u->param_bytes), c,
                         q);
}

// Of an element of a flat slot; its members are of one type.
static uint32_t flat_bytes(const zx_session *s, const zx_launch *l)
{
    if (l->n_members == 0) return sizeof(float);
    return s->plan->units[s->plan->members[l->member].unit].param_bytes;
}

static bool nccl_gather(zx_session *s, uint32_t at, const zx_launch *l, cudaStream_t q)
{
    const ncclComm_t c = comm_of(s, at);
    if (l->flat != ZX_NONE) {
        const uint64_t row = zx_launch_row(s->plan, l);
        const uint32_t size = flat_bytes(s, l);
        const void *mine = zx_gpu_element(s, l->flat, (int64_t)(s->rank * row), size);
        return went(
            s, at, ncclAllGather(mine, zx_slot_at(s, l->flat), (size_t)row, type_of(s, size), c, q),
            "ncclAllGather", c);
    }
    ncclResult_t r = ncclGroupStart();
    for (uint32_t i = l->member; i < l->member + l->n_members && r == ncclSuccess; i++)
        r = gather_unit(s, &s->plan->members[i], c, q);
    const ncclResult_t end = ncclGroupEnd();
    return went(s, at, r != ncclSuccess ? r : end, "ncclAllGather", c);
}

// ---- reductions ---------------------------------------------------------------------------------

// Everybody's pieces of what this rank adds up, its own among them, into `rows`.
static ncclResult_t exchange(zx_session *s, const zx_launch *l, unsigned char *rows, ncclComm_t c,
                             cudaStream_t q)
{
    const uint64_t row = zx_gpu_row(s->plan, l);
    uint64_t place = 0;
    ncclResult_t e = ncclGroupStart();
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_member *m = &s->plan->members[i];
        const zx_unit *u = &s->plan->units[m->unit];
        const ncclDataType_t type = type_of(s, u->param_bytes);
        int64_t own, theirs;
        const int64_t n = zx_unit_piece(u, s->rank, &own);
        for (uint32_t r = 0; r < s->ranks && e == ncclSuccess; r++) {
            const int64_t k = zx_unit_piece(u, r, &theirs);
            if (k > 0)
                e = ncclSend(zx_gpu_operand(s, l, m, r, theirs), (size_t)k, type, (int)r, c, q);
            if (n > 0 && e == ncclSuccess)
                e = ncclRecv(rows + r * row + place, (size_t)n, type, (int)r, c, q);
        }
        place += zx_gpu_place(u);
    }
    const ncclResult_t end = ncclGroupEnd();
    return e != ncclSuccess ? e : end;
}

// The pieces that each rank has added up, to all.
static ncclResult_t spread(zx_session *s, const zx_launch *l, ncclComm_t c, cudaStream_t q)
{
    ncclResult_t e = ncclGroupStart();
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_unit *u = &s->plan->units[s->plan->members[i].unit];
        const ncclDataType_t type = type_of(s, u->grad_bytes);
        int64_t own, theirs;
        const int64_t n = zx_unit_piece(u, s->rank, &own);
        for (uint32_t r = 0; r < s->ranks && e == ncclSuccess; r++) {
            const int64_t k = zx_unit_piece(u, r, &theirs);
            if (r == s->rank) continue;
            if (n > 0)
                e = ncclSend(zx_gpu_element(s, u->grad_slot, own, u->grad_bytes), (size_t)n, type,
                             (int)r, c, q);
            if (k > 0 && e == ncclSuccess)
                e = ncclRecv(zx_gpu_element(s, u->grad_slot, theirs, u->grad_bytes), (size_t)k,
                             type, (int)r, c, q);
        }
    }
    const ncclResult_t end = ncclGroupEnd();
    return e != ncclSuccess ? e : end;
}

// ---- reductions in NCCL's own order: of float32 -------------------------------------------------

static bool is_single(const zx_session *s, const zx_launch *l)
{
    bool all = true;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_unit *u = &s->plan->units[s->plan->members[i].unit];
        all = all && u->param_bytes == sizeof(float) && u->grad_bytes == sizeof(float);
    }
    return all;
}

typedef struct sum { // of a member over the ranks: where it goes, and where NCCL leaves it
    float *to, *at;
    int64_t n;
} sum;

// NCCL leaves it where it goes unless it is added to what is there, or meets its operand but for
// this rank's piece of it.
static sum sum_of(const zx_session *s, const zx_member *m, bool add, bool all, float *row)
{
    const zx_unit *u = &s->plan->units[m->unit];
    float *from = zx_slot_at(s, m->slot), *whole = zx_slot_at(s, u->grad_slot);
    int64_t own;
    sum x = {.n = zx_unit_piece(u, s->rank, &own)};
    x.to = whole + (u->grad_whole && !all ? own : 0);
    if (all) x.n = u->numel;
    const bool apart = x.to + x.n <= from || from + u->numel <= x.to;
    const bool in_place = x.to == from + (all ? 0 : own);
    x.at = add || !(apart || in_place) ? row : x.to;
    return x;
}

// Pieces that aren't all of one size are a reduction to each rank.
static ncclResult_t sum_member(const zx_session *s, const zx_member *m, const sum *x, bool all,
                               ncclComm_t c, cudaStream_t q)
{
    const zx_unit *u = &s->plan->units[m->unit];
    const float *from = zx_slot_at(s, m->slot);
    ncclResult_t e = ncclSuccess;
    if (all) return ncclAllReduce(from, x->at, (size_t)u->numel, ncclFloat32, ncclSum, c, q);
    if (u->numel == u->shard * (int64_t)s->ranks)
        return ncclReduceScatter(from, x->at, (size_t)u->shard, ncclFloat32, ncclSum, c, q);
    for (uint32_t r = 0; r < s->ranks && e == ncclSuccess; r++) {
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        if (n > 0) e = ncclReduce(from + at, x->at, (size_t)n, ncclFloat32, ncclSum, (int)r, c, q);
    }
    return e;
}

static bool put(zx_session *s, uint32_t at, float *to, const float *from, int64_t n, bool add,
                cudaStream_t q)
{
    struct zx_cuda here = *s->gpu->at;
    here.stream = q;
    return n <= 0 || to == from ||
           zx_cuda_sum_ranks(to, from, n, 1, n, add, &here, &s->kernel_err) == ZX_OK ||
           zx_gpu_fail(s, at, &s->kernel_err);
}

static bool sum_members(zx_session *s, uint32_t at, const zx_launch *l, bool add, bool all,
                        cudaStream_t q)
{
    const ncclComm_t c = comm_of(s, at);
    const uint64_t ranks = all ? s->ranks : 1;
    float *const rows = (float *)(void *)s->gpu->link->rows[s->plan->insns[at].stream];
    float *row = rows;
    bool ok = true;
    ncclResult_t e = ncclGroupStart();
    for (uint32_t i = l->member; i < l->member + l->n_members && e == ncclSuccess; i++) {
        const zx_member *m = &s->plan->members[i];
        const sum x = sum_of(s, m, add, all, row);
        e = sum_member(s, m, &x, all, c, q);
        row += (uint64_t)s->plan->units[m->unit].shard * ranks;
    }
    const ncclResult_t end = ncclGroupEnd();
    if (!went(s, at, e != ncclSuccess ? e : end, all ? "ncclAllReduce" : "ncclReduceScatter", c))
        return false;
    row = rows;
    for (uint32_t i = l->member; i < l->member + l->n_members && ok; i++) {
        const zx_member *m = &s->plan->members[i];
        const sum x = sum_of(s, m, add, all, row);
        ok = put(s, at, x.to, x.at, x.n, add, q);
        row += (uint64_t)s->plan->units[m->unit].shard * ranks;
    }
    return ok;
}

// The flat slot as a whole, in place; then each member's pieces to where they belong.
static bool sum_flat(zx_session *s, uint32_t at, const zx_launch *l, bool add, bool all,
                     cudaStream_t q)
{
    const ncclComm_t c = comm_of(s, at);
    const uint64_t row = zx_launch_row(s->plan, l);
    float *flat = zx_slot_at(s, l->flat), *mine = flat + s->rank * row;
    bool ok = true;
    const ncclResult_t e =
        all ? ncclAllReduce(flat, flat, (size_t)(row * s->ranks), ncclFloat32, ncclSum, c, q)
            : ncclReduceScatter(flat, mine, (size_t)row, ncclFloat32, ncclSum, c, q);
    if (!went(s, at, e, all ? "ncclAllReduce" : "ncclReduceScatter", c)) return false;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_member *m = &s->plan->members[i];
        const zx_unit *u = &s->plan->units[m->unit];
        float *whole = zx_slot_at(s, u->grad_slot);
        for (uint32_t r = 0; r < s->ranks && ok; r++) {
            int64_t from;
            const int64_t n = zx_unit_piece(u, r, &from);
            if (all || r == s->rank)
                ok = put(s, at, whole + (u->grad_whole ? from : 0), flat + r * row + m->at, n, add,
                         q);
        }
    }
    return ok;
}

static bool nccl_reduce(zx_session *s, uint32_t at, const zx_launch *l, bool add, bool all,
                        cudaStream_t q)
{
    const ncclComm_t c = comm_of(s, at);
    unsigned char *rows = s->gpu->link->rows[s->plan->insns[at].stream];
    if (s->o.any_order && is_single(s, l))
        return l->flat == ZX_NONE ? sum_members(s, at, l, add, all, q)
                                  : sum_flat(s, at, l, add, all, q);
    return went(s, at, exchange(s, l, rows, c, q), "ncclSend", c) &&
           zx_gpu_add_up(s, at, l, rows, add, q) &&
           (!all || went(s, at, spread(s, l, c, q), "ncclSend", c));
}

// ---- buffers ------------------------------------------------------------------------------------

// Of other types than f32: rank 0's.
static ncclResult_t share(const zx_session *s, const void *from, void *to, size_t bytes,
                          ncclComm_t c, cudaStream_t q)
{
    ncclResult_t e = ncclGroupStart();
    for (uint32_t r = 0; s->rank == 0 && r < s->ranks && e == ncclSuccess; r++)
        e = ncclSend(from, bytes, ncclUint8, (int)r, c, q);
    if (e == ncclSuccess) e = ncclRecv(to, bytes, ncclUint8, 0, c, q);
    const ncclResult_t end = ncclGroupEnd();
    return e != ncclSuccess ? e : end;
}

static bool nccl_mean(zx_session *s, uint32_t at, uint32_t from, uint32_t to, const zx_type *type,
                      cudaStream_t q)
{
    const ncclComm_t c = comm_of(s, at);
    const uint64_t bytes = zx_type_bytes(type);
    const int64_t n = zx_shape_count(&type->shape);
    struct zx_cuda here = *s->gpu->at;
    zx_err *err = &s->kernel_err;
    float *y = zx_slot_at(s, to);
    float *rows = (float *)(void *)s->gpu->link->rows[s->plan->insns[at].stream];
    here.stream = q;
    if (bytes == 0) return true;
    if (type->dtype != ZX_F32)
        return went(s, at, share(s, zx_slot_at(s, from), y, (size_t)bytes, c, q), "ncclSend", c);
    const bool added = s->o.any_order;
    const ncclResult_t e =
        added ? ncclAllReduce(zx_slot_at(s, from), y, (size_t)n, ncclFloat32, ncclSum, c, q)
              : ncclAllGather(zx_slot_at(s, from), rows, (size_t)n, ncclFloat32, c, q);
    if (!went(s, at, e, added ? "ncclAllReduce" : "ncclAllGather", c)) return false;
    if ((!added && zx_cuda_sum_ranks(y, rows, n, s->ranks, n, false, &here, err) != ZX_OK) ||
        zx_cuda_divide(y, n, (float)s->ranks, &here, err) != ZX_OK)
        return zx_gpu_fail(s, at, err);
    return true;
}

// ---- the guard ----------------------------------------------------------------------------------

// A call that a lost rank, or a silent one, keeps from coming back is given up from outside, by
// aborting the communicators. It returns an error then.
static void *guard_main(void *arg)
{
    zx_gpu_link *k = arg;
    const zx_session *s = k->s;
    while (!atomic_load(&k->closing) && !atomic_load(&k->given_up)) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        const uint64_t since = atomic_load(&k->since);
        const double seconds = since == 0 ? 0 : zx_seconds() - 1e-9 * (double)since;
        const double most = s->o.timeout_seconds;
        if (!(most > 0 && seconds > most) && !(seconds > 1 && zx_world_lost(s->o.world))) continue;
        atomic_store(&k->given_up, 1);
        for (int i = 0; i < COMMS; i++) ncclCommAbort(k->comm[i]);
    }
    return NULL;
}

static zx_status start_guard(zx_gpu_link *k, zx_err *err)
{
    sigset_t all, before; // signals are the main thread's
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int e = pthread_create(&k->guard, NULL, guard_main, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    k->guarded = e == 0;
    if (e == 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_DEVICE, "cannot start a thread: %s", strerror(e));
}

static void begin(zx_session *s)
{
    zx_gpu_leave(s); // what waits for peers is this guard's
    atomic_store(&s->gpu->link->since, (uint64_t)(1e9 * zx_seconds()));
}
static bool end(zx_session *s, bool ok)
{
    atomic_store(&s->gpu->link->since, 0);
    zx_gpu_enter(s);
    return ok;
}

static bool guarded_gather(zx_session *s, uint32_t at, const zx_launch *l, cudaStream_t q)
{
    begin(s);
    return end(s, nccl_gather(s, at, l, q));
}
static bool guarded_reduce(zx_session *s, uint32_t at, const zx_launch *l, bool add, bool all,
                           cudaStream_t q)
{
    begin(s);
    return end(s, nccl_reduce(s, at, l, add, all, q));
}
static bool guarded_mean(zx_session *s, uint32_t at, uint32_t from, uint32_t to,
                         const zx_type *type, cudaStream_t q)
{
    begin(s);
    return end(s, nccl_mean(s, at, from, to, type, q));
}

// ---- opening ------------------------------------------------------------------------------------

// NCCL waits for all ranks for ever: on a thread of its own, beside which this rank sees whether
// one of them is lost.
typedef struct joining {
    const zx_session *s;
    ncclUniqueId id[COMMS];
    ncclComm_t comm[COMMS];
    ncclResult_t result;
    zx_word over;
} joining;

static void *join_main(void *arg)
{
    joining *j = arg;
    j->result =
        cudaSetDevice(j->s->gpu->at->device) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
    for (int k = 0; k < COMMS && j->result == ncclSuccess; k++)
        j->result = ncclCommInitRank(&j->comm[k], (int)j->s->ranks, j->id[k], (int)j->s->rank);
    zx_word_set(&j->over, 1);
    return NULL;
}

// `j` is given up, with its thread, where a rank is lost: the process ends.
static zx_status join(const zx_session *s, joining *j, zx_err *err)
{
    pthread_t thread;
    const int e = pthread_create(&thread, NULL, join_main, j);
    if (e != 0) return ZX_FAIL(err, ZX_E_DEVICE, "cannot start a thread: %s", strerror(e));
    const double since = zx_seconds(), most = s->o.timeout_seconds;
    while (!zx_word_reached(&j->over, 1)) {
        const bool lost = zx_world_lost(s->o.world);
        if (lost || (most > 0 && zx_seconds() - since > most)) {
            pthread_detach(thread);
            return lost ? zx_world_why(s->o.world, err) : late(s, "ncclCommInitRank", err);
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    pthread_join(thread, NULL);
    const zx_status st = nccl_check(j->result, "ncclCommInitRank", NULL, err);
    if (st != ZX_OK) zx_world_abort(s->o.world); // the others wait in there
    return st;
}

static zx_status make_ids(const zx_session *s, joining *j, zx_err *err)
{
    zx_status st = ZX_OK;
    for (int k = 0; k < COMMS && s->rank == 0 && st == ZX_OK; k++)
        st = nccl_check(ncclGetUniqueId(&j->id[k]), "ncclGetUniqueId", NULL, err);
    ZX_TRY(zx_world_agree(s->o.world, st, err));
    void *bytes = j->id;
    size_t n = sizeof j->id;
    ZX_TRY(zx_world_send(s->o.world, &bytes, &n, err));
    if (bytes == j->id) return ZX_OK;
    const bool whole = n == sizeof j->id;
    if (whole) memcpy(j->id, bytes, n);
    free(bytes);
    return whole ? ZX_OK : ZX_FAIL(err, ZX_E_COMM, "rank 0 sent no ids of NCCL");
}

static zx_status nccl_open(zx_session *s, void *scratch, zx_gpu_link **out, zx_err *err)
{
    uint64_t at[ZX_STREAM_COUNT];
    joining *j = calloc(1, sizeof *j);
    zx_gpu_link *k = calloc(1, sizeof *k);
    ZX_ASSERT(j != NULL && k != NULL);
    j->s = s;
    layout(s, at);
    for (uint32_t i = 0; i < ZX_STREAM_COUNT; i++) k->rows[i] = (unsigned char *)scratch + at[i];
    k->s = s;
    *out = k;
    zx_status st = make_ids(s, j, err);
    if (st == ZX_OK) st = join(s, j, err);
    memcpy(k->comm, j->comm, sizeof k->comm);
    if (st == ZX_OK || zx_word_reached(&j->over, 1)) free(j); // else its thread is still in there
    if (st != ZX_OK) return st;
    return start_guard(k, err);
}

static void nccl_close(zx_gpu_link *k, bool broken)
{
    if (k == NULL) return;
    atomic_store(&k->closing, 1);
    if (k->guarded) pthread_join(k->guard, NULL);
    for (int i = 0; i < COMMS && !atomic_load(&k->given_up); i++)
        if (k->comm[i] != NULL) (broken ? ncclCommAbort : ncclCommDestroy)(k->comm[i]);
    free(k);
}

static zx_status nccl_well(zx_gpu_link *k, zx_err *err)
{
    for (int i = 0; i < COMMS; i++) {
        ncclResult_t later = ncclSuccess;
        ZX_TRY(nccl_check(ncclCommGetAsyncError(k->comm[i], &later), "ncclCommGetAsyncError",
                          k->comm[i], err));
        ZX_TRY(nccl_check(later, i == GATHERS ? "of gathers" : "of reductions", k->comm[i], err));
    }
    return ZX_OK;
}

const zx_gpu_comm zx_gpu_nccl = {.name = "nccl",
                                 .scratch = nccl_scratch,
                                 .open = nccl_open,
                                 .close = nccl_close,
                                 .gather = guarded_gather,
                                 .reduce = guarded_reduce,
                                 .mean = guarded_mean,
                                 .check = nccl_well};

// comm_shm.c - collectives between ranks of one host, whose reservations all of them map: plans are
// equal, so a peer's slot lies at the same offset, and pieces are read where they are.
//
// Each stream has a word a rank, which counts the barriers that the rank has come to. A collective
// is a barrier (all operands are final), copies or sums, a barrier (nobody reads them any more). A
// rank has one wire, taken after the first barrier only: who holds it needs nobody else, so the
// order in which streams take it can't lock ranks up.
// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cpu/cpu.h"
#include "runtime/comm.h"

#define BOARD_AT 4096 // bytes into a rank's block; before it, a line a stream

typedef struct line { // a cache line of its own: words of other streams aren't disturbed
    _Alignas(64) zx_word came;
} line;
static_assert(sizeof(line) * ZX_STREAM_COUNT <= BOARD_AT, "the words lie before the board");

struct zx_comm {
    zx_comm_args args;
    uint32_t rank, size;
    unsigned char **block;               // one a rank: lines, then the board
    uint32_t barriers[ZX_STREAM_COUNT];  // that this rank has come to
    const float **from[ZX_STREAM_COUNT]; // room for one pointer a rank
    pthread_mutex_t wire;
};

static zx_word *word_of(const zx_comm *c, uint32_t rank, zx_stream s)
{
    return &((line *)(void *)c->block[rank])[s].came;
}

static bool meet(zx_comm *c, zx_stream s)
{
    const uint32_t n = ++c->barriers[s];
    zx_word_set(word_of(c, c->rank, s), n);
    for (uint32_t r = 0; r < c->size; r++)
        if (r != c->rank && !zx_word_wait(word_of(c, r, s), n, &c->args.patience, r)) return false;
    return true;
}

static void take_wire(zx_comm *c)
{
    pthread_mutex_lock(&c->wire);
    if (c->args.wire_delay_seconds <= 0 || c->size == 1) return;
    const double whole = (double)(time_t)c->args.wire_delay_seconds;
    const struct timespec nap = {.tv_sec = (time_t)whole,
                                 .tv_nsec = (long)(1e9 * (c->args.wire_delay_seconds - whole))};
    nanosleep(&nap, NULL);
}

static void leave_wire(zx_comm *c)
{
    pthread_mutex_unlock(&c->wire);
}

static float *slot_at(const zx_comm *c, uint32_t rank, uint32_t slot)
{
    return (float *)(void *)(c->args.base[rank] + c->args.plan->slots[slot].offset);
}

// ---- gather -------------------------------------------------------------------------------------

static void gather_unit(zx_comm *c, const zx_member *m)
{
    const zx_unit *u = &c->args.plan->units[m->unit];
    float *to = slot_at(c, c->rank, m->slot);
    for (uint32_t k = 0; k < c->size; k++) {
        const uint32_t r = (c->rank + k) % c->size; // each begins elsewhere
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        const float *from = slot_at(c, r, u->param_slot) + (u->param_whole ? at : 0);
        if (n > 0 && from != to + at) memcpy(to + at, from, (size_t)n * sizeof *to);
    }
    const int64_t pad = (int64_t)c->size * u->shard - u->numel;
    if (pad > 0) memset(to + u->numel, 0, (size_t)pad * sizeof *to);
}

static bool shm_gather(zx_comm *c, zx_stream s, const zx_launch *l)
{
    if (!meet(c, s)) return false;
    take_wire(c);
    for (uint32_t i = 0; i < l->n_members; i++)
        gather_unit(c, &c->args.plan->members[l->member + i]);
    leave_wire(c);
    return meet(c, s);
}

// ---- reduce -------------------------------------------------------------------------------------

static void reduce_unit(zx_comm *c, zx_stream s, const zx_member *m, bool add)
{
    const zx_unit *u = &c->args.plan->units[m->unit];
    int64_t at;
    const int64_t n = zx_unit_piece(u, c->rank, &at);
    for (uint32_t r = 0; r < c->size; r++) c->from[s][r] = slot_at(c, r, m->slot) + at;
    float *to = slot_at(c, c->rank, u->grad_slot) + (u->grad_whole ? at : 0);
    if (n > 0) zx_cpu_sum_ranks(to, c->from[s], c->size, n, add, 1);
}

static bool shm_reduce(zx_comm *c, zx_stream s, const zx_launch *l, bool add)
{
    if (!meet(c, s)) return false;
    take_wire(c);
    for (uint32_t i = 0; i < l->n_members; i++)
        reduce_unit(c, s, &c->args.plan->members[l->member + i], add);
    leave_wire(c);
    return meet(c, s);
}

// The slices that peers have summed.
static void collect_sums(zx_comm *c, const zx_member *m)
{
    const zx_unit *u = &c->args.plan->units[m->unit];
    for (uint32_t r = 0; r < c->size; r++) {
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        if (r == c->rank || n == 0) continue;
        memcpy(slot_at(c, c->rank, u->grad_slot) + at, slot_at(c, r, u->grad_slot) + at,
               (size_t)n * sizeof(float));
    }
}

static bool shm_allreduce(zx_comm *c, zx_stream s, const zx_launch *l, bool add)
{
    if (!shm_reduce(c, s, l, add)) return false;
    if (c->size == 1) return true;
    pthread_mutex_lock(&c->wire); // still the same launch: no second delay
    for (uint32_t i = 0; i < l->n_members; i++)
        collect_sums(c, &c->args.plan->members[l->member + i]);
    leave_wire(c);
    return meet(c, s);
}

// ---- small things -------------------------------------------------------------------------------

static bool shm_exchange(zx_comm *c, const void *mine, void *all)
{
    const size_t n = (size_t)c->args.board_bytes;
    memcpy(c->block[c->rank] + BOARD_AT, mine, n);
    if (!meet(c, ZX_S_COMPUTE)) return false;
    for (uint32_t r = 0; r < c->size; r++)
        memcpy((unsigned char *)all + r * n, c->block[r] + BOARD_AT, n);
    return meet(c, ZX_S_COMPUTE);
}

static bool shm_barrier(zx_comm *c)
{
    return meet(c, ZX_S_COMPUTE);
}

static void shm_mean(zx_comm *c, uint32_t from, uint32_t to, const zx_type *type)
{
    float *y = slot_at(c, c->rank, to);
    if (type->dtype != ZX_F32 || c->size == 1) {
        memcpy(y, slot_at(c, 0, from), (size_t)zx_type_bytes(type));
        return;
    }
    const float ranks = (float)c->size;
    const int64_t n = zx_shape_count(&type->shape);
    for (uint32_t r = 0; r < c->size; r++) c->from[ZX_S_COMPUTE][r] = slot_at(c, r, from);
    if (n > 0) zx_cpu_sum_ranks(y, c->from[ZX_S_COMPUTE], c->size, n, false, 1);
    for (int64_t i = 0; i < n; i++) y[i] /= ranks;
}

static void shm_fetch(zx_comm *c, uint32_t rank, uint64_t offset, void *to, uint64_t bytes)
{
    memcpy(to, c->args.base[rank] + offset, (size_t)bytes);
}

// ---- opening ------------------------------------------------------------------------------------

static void shm_close(zx_comm *c)
{
    if (c == NULL) return;
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) free(c->from[s]);
    free(c->block);
    pthread_mutex_destroy(&c->wire);
    free(c);
}

static zx_status shm_begin(const zx_comm_args *a, zx_comm **out, zx_err *err)
{
    zx_world *w = a->patience.world;
    zx_comm *c = calloc(1, sizeof *c);
    if (c == NULL) return zx_world_agree(w, ZX_FAIL(err, ZX_E_DEVICE, "no memory"), err);
    pthread_mutex_init(&c->wire, NULL);
    c->args = *a;
    c->rank = zx_world_rank(w);
    c->size = zx_world_size(w);
    c->block = calloc(c->size, sizeof *c->block);
    bool ok = c->block != NULL;
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) {
        c->from[s] = calloc(c->size, sizeof *c->from[s]);
        ok = ok && c->from[s] != NULL;
    }
    zx_status st = ok ? ZX_OK : ZX_FAIL(err, ZX_E_DEVICE, "no memory for %u ranks", c->size);
    st = zx_world_agree(w, st, err);
    if (st == ZX_OK) st = zx_world_reserve(w, BOARD_AT + a->board_bytes, c->block, err);
    if (st == ZX_OK)
        *out = c;
    else
        shm_close(c);
    return st;
}

const zx_transport zx_comm_shm = {
    .name = "shm",
    .open = shm_begin,
    .close = shm_close,
    .gather = shm_gather,
    .reduce = shm_reduce,
    .allreduce = shm_allreduce,
    .exchange = shm_exchange,
    .barrier = shm_barrier,
    .mean = shm_mean,
    .fetch = shm_fetch,
};

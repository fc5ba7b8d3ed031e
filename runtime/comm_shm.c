// comm_shm.c - collectives between ranks of one host, whose reservations all of them map: plans are
// equal, so a peer's slot lies at the same offset, and pieces are read where they are.
//
// Each stream has a word a rank, which counts the barriers that the rank has come to. A collective
// is a barrier (all operands are final), copies or sums, a barrier (nobody reads them any more). A
// rank moves the bytes of one collective at a time, and waits for nobody meanwhile, so the order in
// which streams come to it can't lock ranks up. An emulated link says when, and how long it takes.
// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "runtime/comm.h"
#include "runtime/comm_wire.h"
#include "sched/machine.h"

#define BOARD_AT 4096 // bytes into a rank's block; before it, a line a stream

typedef struct line { // a cache line of its own: words of other streams aren't disturbed
    _Alignas(64) zx_word came;
} line;
static_assert(sizeof(line) * ZX_STREAM_COUNT <= BOARD_AT, "the words lie before the board");

struct zx_comm {
    zx_comm_args args;
    uint32_t rank, size;
    uint64_t block_bytes;
    unsigned char **block;              // one a rank: lines, the board, the link (rank 0's counts)
    zx_wire *link;                      // NULL: none is emulated
    uint32_t barriers[ZX_STREAM_COUNT]; // that this rank has come to
    uint32_t sent[ZX_STREAM_COUNT];     // collectives over the emulated link
    const void **from[ZX_STREAM_COUNT]; // room for one pointer a rank
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

static unsigned char *slot_at(const zx_comm *c, uint32_t rank, uint32_t slot)
{
    return c->args.base[rank] + c->args.plan->slots[slot].offset;
}

// ---- the wire -----------------------------------------------------------------------------------

// Of the emulated link; `passes`: 2 of an all-reduce.
static double link_seconds(const zx_comm *c, const zx_launch *l, double passes)
{
    const zx_plan *p = c->args.plan;
    uint64_t bytes = 0;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++)
        bytes += zx_unit_room(p, &p->units[p->members[i].unit], 1) *
                 p->units[p->members[i].unit].param_bytes;
    if (!(c->args.bandwidth > 0)) return c->args.latency_seconds;
    return c->args.latency_seconds +
           passes * (double)zx_gather_wire(c->size, bytes) / c->args.bandwidth;
}

// When the link serves it, and there.
static bool await_turn(zx_comm *c, zx_stream s, double seconds, zx_sent *t)
{
    const double grace = seconds / 2 < ZX_WIRE_GRACE ? seconds / 2 : ZX_WIRE_GRACE;
    double eligible;
    return zx_wire_eligible(c->link, s, &eligible) &&
           zx_sleep_until(eligible + grace, c->args.patience.world) &&
           zx_wire_turn(c->link, s, &t->from, &t->until) &&
           zx_sleep_until(t->from, c->args.patience.world);
}

static bool take_wire(zx_comm *c, zx_stream s, const zx_launch *l, double passes, zx_sent *t)
{
    double seconds = 0;
    if (c->link != NULL) {
        seconds = link_seconds(c, l, passes);
        if (!zx_wire_issue(c->link, s, ++c->sent[s], t->position, t->issued, seconds)) return false;
    }
    if (!meet(c, s)) return false;
    if (c->link != NULL && !await_turn(c, s, seconds, t)) return false;
    pthread_mutex_lock(&c->wire);
    if (c->link == NULL && t->timed) t->from = zx_seconds();
    return true;
}

static bool leave_wire(zx_comm *c, zx_stream s, zx_sent *t)
{
    pthread_mutex_unlock(&c->wire);
    if (c->link != NULL) { // on time, unless moving the bytes took longer
        const double now = zx_seconds();
        if (now > t->until) t->until = now;
        return zx_sleep_until(t->until, c->args.patience.world) && meet(c, s);
    }
    if (!meet(c, s)) return false;
    if (t->timed) t->until = zx_seconds();
    return true;
}

// ---- gather -------------------------------------------------------------------------------------

static void gather_unit(zx_comm *c, const zx_member *m)
{
    const zx_unit *u = &c->args.plan->units[m->unit];
    const int64_t size = u->param_bytes;
    unsigned char *to = slot_at(c, c->rank, m->slot);
    for (uint32_t k = 0; k < c->size; k++) {
        const uint32_t r = (c->rank + k) % c->size; // each begins elsewhere
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        const unsigned char *from = slot_at(c, r, u->param_slot) + (u->param_whole ? at * size : 0);
        if (n > 0 && from != to + at * size) memcpy(to + at * size, from, (size_t)(n * size));
    }
    const int64_t pad = (int64_t)c->size * u->shard - u->numel;
    if (pad > 0) memset(to + u->numel * size, 0, (size_t)(pad * size));
}

static void gather_rows(zx_comm *c, const zx_launch *l)
{
    const zx_plan *p = c->args.plan;
    if (l->n_members == 0) return;
    const uint64_t row =
        zx_launch_row(p, l) * p->units[p->members[l->member].unit].param_bytes; // bytes
    for (uint32_t k = 1; k < c->size; k++) {
        const uint32_t r = (c->rank + k) % c->size;
        if (row > 0)
            memcpy(slot_at(c, c->rank, l->flat) + r * row, slot_at(c, r, l->flat) + r * row,
                   (size_t)row);
    }
}

static bool shm_gather(zx_comm *c, zx_stream s, const zx_launch *l, zx_sent *t)
{
    if (!take_wire(c, s, l, 1, t)) return false;
    if (l->flat != ZX_NONE) gather_rows(c, l);
    for (uint32_t i = 0; i < l->n_members && l->flat == ZX_NONE; i++)
        gather_unit(c, &c->args.plan->members[l->member + i]);
    return leave_wire(c, s, t);
}

// ---- reduce -------------------------------------------------------------------------------------

static zx_dtype type_of(const zx_comm *c, uint32_t bytes)
{
    return bytes == sizeof(float) ? ZX_F32 : c->args.half;
}

// In place, the gradient lies whole in every rank's slot; else in rows, cut as the ranks are. It is
// of its parameter's type; what it is added up in may be wider.
static void reduce_units(zx_comm *c, zx_stream s, const zx_launch *l, bool add)
{
    const zx_plan *p = c->args.plan;
    const uint64_t row = zx_launch_row(p, l);
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_member *m = &p->members[i];
        const zx_unit *u = &p->units[m->unit];
        int64_t at;
        const int64_t n = zx_unit_piece(u, c->rank, &at);
        const uint64_t place = l->flat == ZX_NONE ? (uint64_t)at : c->rank * row + m->at;
        for (uint32_t r = 0; r < c->size; r++)
            c->from[s][r] =
                slot_at(c, r, l->flat == ZX_NONE ? m->slot : l->flat) + place * u->param_bytes;
        unsigned char *to =
            slot_at(c, c->rank, u->grad_slot) + (u->grad_whole ? at * (int64_t)u->grad_bytes : 0);
        if (n > 0)
            zx_cpu_sum_ranks_of(type_of(c, u->grad_bytes), to, type_of(c, u->param_bytes),
                                c->from[s], c->size, n, add, 1);
    }
}

static bool shm_reduce(zx_comm *c, zx_stream s, const zx_launch *l, bool add, zx_sent *t)
{
    if (!take_wire(c, s, l, 1, t)) return false;
    reduce_units(c, s, l, add);
    return leave_wire(c, s, t);
}

// The slices that peers have summed.
static void collect_sums(zx_comm *c, const zx_member *m)
{
    const zx_unit *u = &c->args.plan->units[m->unit];
    for (uint32_t r = 0; r < c->size; r++) {
        int64_t at;
        const int64_t n = zx_unit_piece(u, r, &at);
        const int64_t size = u->grad_bytes;
        if (r == c->rank || n == 0) continue;
        memcpy(slot_at(c, c->rank, u->grad_slot) + at * size,
               slot_at(c, r, u->grad_slot) + at * size, (size_t)(n * size));
    }
}

static bool shm_allreduce(zx_comm *c, zx_stream s, const zx_launch *l, bool add, zx_sent *t)
{
    if (!take_wire(c, s, l, 2, t)) return false;
    reduce_units(c, s, l, add);
    pthread_mutex_unlock(&c->wire); // not held while waiting for peers
    if (!meet(c, s)) return false;
    pthread_mutex_lock(&c->wire);
    for (uint32_t i = 0; i < l->n_members; i++)
        collect_sums(c, &c->args.plan->members[l->member + i]);
    return leave_wire(c, s, t);
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
    float *y = (float *)(void *)slot_at(c, c->rank, to);
    if (type->dtype != ZX_F32 || c->size == 1) {
        memcpy(y, slot_at(c, 0, from), (size_t)zx_type_bytes(type));
        return;
    }
    const float ranks = (float)c->size;
    const int64_t n = zx_shape_count(&type->shape);
    for (uint32_t r = 0; r < c->size; r++) c->from[ZX_S_COMPUTE][r] = slot_at(c, r, from);
    if (n > 0) zx_cpu_sum_ranks_of(ZX_F32, y, ZX_F32, c->from[ZX_S_COMPUTE], c->size, n, false, 1);
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
    if (c->block != NULL) zx_world_release(c->args.patience.world, c->block_bytes, c->block);
    free(c->block);
    pthread_mutex_destroy(&c->wire);
    free(c);
}

// The blocks that all ranks see; on rank 0's, the link.
static zx_status open_blocks(zx_comm *c, zx_err *err)
{
    zx_world *w = c->args.patience.world;
    const uint64_t link_at = zx_align_up(BOARD_AT + c->args.board_bytes, ZX_ALIGN);
    const bool emulated = (c->args.bandwidth > 0 || c->args.latency_seconds > 0) && c->size > 1;
    c->block_bytes = link_at + (emulated ? zx_wire_bytes() : 0);
    ZX_TRY(zx_world_reserve(w, c->block_bytes, c->block, err));
    if (!emulated) return ZX_OK;
    c->link = (zx_wire *)(void *)(c->block[0] + link_at);
    const zx_status st = c->rank == 0 ? zx_wire_start(c->link, c->size, err) : ZX_OK;
    return zx_world_agree(w, st, err);
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
    if (st == ZX_OK) st = open_blocks(c, err);
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

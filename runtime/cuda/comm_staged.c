// comm_staged.c - collectives through the host's memory (--comm shm), for ranks that share a device
// or have no NCCL: each rank puts what others want into its window, which all map, and takes what
// it wants out of theirs.
//
// The host waits for every copy, so nothing overlaps: it is for trying things out. Sums are those
// of comm_nccl.c, in rank order.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cuda/collect.h"
#include "runtime/cuda/gpu.h"

struct zx_gpu_link {
    zx_world *world;
    uint64_t bytes;         // of a window
    unsigned char **window; // [rank]
    bool pinned;            // this rank's
    unsigned char *rows;    // on the device: a row a rank
};

// ---- sizes --------------------------------------------------------------------------------------

// Of the sums of a launch, in the type that they are kept in.
static uint64_t sums_row(const zx_plan *p, const zx_launch *l)
{
    uint64_t n = 0;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_unit *u = &p->units[p->members[i].unit];
        n += (uint64_t)u->shard * u->grad_bytes;
    }
    return n;
}

// The most bytes of a rank's row: what it adds up of a launch, or has of a gather, of sums or of a
// buffer.
static uint64_t most_row(const zx_session *s)
{
    const zx_plan *p = s->plan;
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *insn = &p->insns[i];
        uint64_t bytes = 0;
        if (insn->id == ZX_I_GATHER || insn->id == ZX_I_REDUCE || insn->id == ZX_I_ALLREDUCE)
            bytes = zx_gpu_row(p, &p->launches[insn->a]);
        if (insn->id == ZX_I_ALLREDUCE && sums_row(p, &p->launches[insn->a]) > bytes)
            bytes = sums_row(p, &p->launches[insn->a]);
        if (insn->id == ZX_I_COMMIT)
            bytes = zx_type_bytes(&s->graph->values[s->graph->buffers[insn->a].value].type);
        if (bytes > most) most = bytes;
    }
    return zx_align_up(most, ZX_ALIGN);
}

static uint64_t staged_scratch(const zx_session *s)
{
    return most_row(s) * s->ranks;
}

// ---- copies -------------------------------------------------------------------------------------

typedef struct move { // of one collective on this rank
    zx_session *s;
    uint32_t at;
    cudaStream_t q;
} move;

static bool copy(const move *m, void *to, const void *from, uint64_t bytes,
                 enum cudaMemcpyKind kind)
{
    return bytes == 0 ||
           zx_gpu_check(m->s, m->at, cudaMemcpyAsync(to, from, (size_t)bytes, kind, m->q));
}
static unsigned char *window_at(const zx_session *s, uint32_t rank, uint64_t place)
{
    return s->gpu->link->window[rank] + place;
}

// What was queued has happened on every rank.
static bool meet(const move *m)
{
    if (!zx_gpu_settle(m->s, m->q)) return false;
    zx_gpu_leave(m->s); // peers may take their time
    const bool met = m->s->transport->barrier(m->s->comm);
    zx_gpu_enter(m->s);
    return met;
}

static const zx_unit *unit_of(const zx_session *s, const zx_launch *l, uint32_t k)
{
    return &s->plan->units[s->plan->members[l->member + k].unit];
}

// ---- gathers ------------------------------------------------------------------------------------

static bool put_shards(const move *m, const zx_launch *l)
{
    const zx_session *s = m->s;
    uint64_t place = 0;
    bool ok = true;
    for (uint32_t k = 0; k < l->n_members && ok; k++) {
        const zx_unit *u = unit_of(s, l, k);
        const int64_t from = u->param_whole ? (int64_t)s->rank * u->shard : 0;
        ok = copy(m, window_at(s, s->rank, place),
                  zx_gpu_element(s, u->param_slot, from, u->param_bytes),
                  (uint64_t)u->shard * u->param_bytes, cudaMemcpyDeviceToHost);
        place += zx_gpu_place(u);
    }
    return ok;
}
static bool take_shards(const move *m, const zx_launch *l)
{
    const zx_session *s = m->s;
    uint64_t place = 0;
    bool ok = true;
    for (uint32_t k = 0; k < l->n_members; k++) {
        const zx_unit *u = unit_of(s, l, k);
        const uint64_t shard = (uint64_t)u->shard * u->param_bytes;
        unsigned char *to = zx_slot_at(s, s->plan->members[l->member + k].slot);
        for (uint32_t r = 0; r < s->ranks && ok; r++)
            ok = copy(m, to + r * shard, window_at(s, r, place), shard, cudaMemcpyHostToDevice);
        place += zx_gpu_place(u);
    }
    return ok;
}

static bool gather_flat(const move *m, const zx_launch *l)
{
    const zx_session *s = m->s;
    const uint64_t bytes =
        l->n_members > 0 ? zx_launch_row(s->plan, l) * unit_of(s, l, 0)->param_bytes : 0;
    unsigned char *flat = zx_slot_at(s, l->flat);
    bool ok =
        copy(m, window_at(s, s->rank, 0), flat + s->rank * bytes, bytes, cudaMemcpyDeviceToHost) &&
        meet(m);
    for (uint32_t r = 0; r < s->ranks && ok; r++)
        if (r != s->rank)
            ok = copy(m, flat + r * bytes, window_at(s, r, 0), bytes, cudaMemcpyHostToDevice);
    return ok && meet(m);
}

static bool staged_gather(zx_session *s, uint32_t at, const zx_launch *l, cudaStream_t q)
{
    const move m = {s, at, q};
    if (l->flat != ZX_NONE) return gather_flat(&m, l);
    return put_shards(&m, l) && meet(&m) && take_shards(&m, l) && meet(&m);
}

// ---- reductions ---------------------------------------------------------------------------------

// A row for each rank, of what it is to add up.
static bool put_operands(const move *m, const zx_launch *l)
{
    const zx_session *s = m->s;
    const uint64_t row = zx_gpu_row(s->plan, l);
    uint64_t place = 0;
    bool ok = true;
    for (uint32_t k = 0; k < l->n_members; k++) {
        const zx_unit *u = unit_of(s, l, k);
        for (uint32_t r = 0; r < s->ranks && ok; r++) {
            int64_t from;
            const int64_t n = zx_unit_piece(u, r, &from);
            ok = n <= 0 || copy(m, window_at(s, s->rank, r * row + place),
                                zx_gpu_operand(s, l, &s->plan->members[l->member + k], r, from),
                                (uint64_t)n * u->param_bytes, cudaMemcpyDeviceToHost);
        }
        place += zx_gpu_place(u);
    }
    return ok;
}
static bool take_operands(const move *m, const zx_launch *l)
{
    const zx_session *s = m->s;
    const uint64_t row = zx_gpu_row(s->plan, l);
    bool ok = true;
    for (uint32_t r = 0; r < s->ranks && ok; r++)
        ok = copy(m, s->gpu->link->rows + r * row, window_at(s, r, s->rank * row), row,
                  cudaMemcpyHostToDevice);
    return ok;
}

static bool pass_sums(const move *m, const zx_launch *l, bool put)
{
    const zx_session *s = m->s;
    uint64_t place = 0;
    bool ok = true;
    for (uint32_t k = 0; k < l->n_members; k++) {
        const zx_unit *u = unit_of(s, l, k);
        for (uint32_t r = 0; r < s->ranks && ok; r++) {
            int64_t from;
            const int64_t n = zx_unit_piece(u, r, &from);
            const uint64_t bytes = (uint64_t)(n > 0 ? n : 0) * u->grad_bytes;
            unsigned char *here = zx_gpu_element(s, u->grad_slot, from, u->grad_bytes);
            if (put != (r == s->rank)) continue;
            ok = put ? copy(m, window_at(s, r, place), here, bytes, cudaMemcpyDeviceToHost)
                     : copy(m, here, window_at(s, r, place), bytes, cudaMemcpyHostToDevice);
        }
        place += (uint64_t)u->shard * u->grad_bytes;
    }
    return ok;
}

static bool staged_reduce(zx_session *s, uint32_t at, const zx_launch *l, bool add, bool all,
                          cudaStream_t q)
{
    const move m = {s, at, q};
    if (!put_operands(&m, l) || !meet(&m) || !take_operands(&m, l) ||
        !zx_gpu_add_up(s, at, l, s->gpu->link->rows, add, q) || !meet(&m))
        return false;
    return !all || (pass_sums(&m, l, true) && meet(&m) && pass_sums(&m, l, false) && meet(&m));
}

static bool staged_mean(zx_session *s, uint32_t at, uint32_t from, uint32_t to, const zx_type *type,
                        cudaStream_t q)
{
    const move m = {s, at, q};
    const uint64_t bytes = zx_type_bytes(type);
    const int64_t n = zx_shape_count(&type->shape);
    struct zx_cuda here = *s->gpu->at;
    zx_err *err = &s->kernel_err;
    float *y = zx_slot_at(s, to), *rows = (float *)(void *)s->gpu->link->rows;
    here.stream = q;
    if (!copy(&m, window_at(s, s->rank, 0), zx_slot_at(s, from), bytes, cudaMemcpyDeviceToHost) ||
        !meet(&m))
        return false;
    if (type->dtype != ZX_F32)
        return copy(&m, y, window_at(s, 0, 0), bytes, cudaMemcpyHostToDevice) && meet(&m);
    bool ok = true;
    for (uint32_t r = 0; r < s->ranks && ok; r++)
        ok = copy(&m, rows + (int64_t)r * n, window_at(s, r, 0), bytes, cudaMemcpyHostToDevice);
    if (!ok || !meet(&m)) return false;
    if (zx_cuda_sum_ranks(y, rows, n, s->ranks, n, false, &here, err) != ZX_OK ||
        zx_cuda_divide(y, n, (float)s->ranks, &here, err) != ZX_OK)
        return zx_gpu_fail(s, at, err);
    return true;
}

// ---- opening ------------------------------------------------------------------------------------

static zx_status staged_open(zx_session *s, void *scratch, zx_gpu_link **out, zx_err *err)
{
    zx_gpu_link *k = calloc(1, sizeof *k);
    ZX_ASSERT(k != NULL);
    *out = k;
    k->world = s->o.world;
    k->rows = scratch;
    k->bytes = most_row(s) * s->ranks;
    k->window = ZX_NEW(&s->mem, unsigned char *, s->ranks);
    ZX_TRY(zx_world_reserve(k->world, k->bytes, k->window, err));
    if (k->bytes == 0) return ZX_OK;
    ZX_TRY(zx_cuda_check(
        cudaHostRegister(k->window[s->rank], (size_t)k->bytes, cudaHostRegisterPortable),
        "cudaHostRegister", err));
    k->pinned = true;
    return ZX_OK;
}

static void staged_close(zx_gpu_link *k, bool broken)
{
    if (k == NULL) return;
    if (k->pinned && !broken) cudaHostUnregister(k->window[zx_world_rank(k->world)]);
    if (k->window != NULL && !broken) zx_world_release(k->world, k->bytes, k->window);
    free(k);
}

static zx_status staged_well(zx_gpu_link *k ZX_UNUSED, zx_err *err ZX_UNUSED)
{
    return ZX_OK;
}

const zx_gpu_comm zx_gpu_staged = {.name = "shm",
                                   .scratch = staged_scratch,
                                   .open = staged_open,
                                   .close = staged_close,
                                   .gather = staged_gather,
                                   .reduce = staged_reduce,
                                   .mean = staged_mean,
                                   .check = staged_well};

// comm_sum.c - sums over ranks on a GPU, in rank order, whatever brought the operands.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/gpu.h"

uint64_t zx_gpu_row(const zx_plan *p, const zx_launch *l)
{
    uint64_t n = 0;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++)
        n += (uint64_t)p->units[p->members[i].unit].shard;
    return n;
}

const float *zx_gpu_operand(const zx_session *s, const zx_launch *l, const zx_member *m, uint32_t r,
                            int64_t from)
{
    if (l->flat == ZX_NONE) return (const float *)zx_slot_at(s, m->slot) + from;
    return (const float *)zx_slot_at(s, l->flat) + r * zx_launch_row(s->plan, l) + m->at;
}

bool zx_gpu_add_up(zx_session *s, uint32_t at, const zx_launch *l, const float *rows, bool add,
                   cudaStream_t q)
{
    struct zx_cuda here = *s->gpu->at;
    const uint64_t row = zx_gpu_row(s->plan, l);
    uint64_t place = 0;
    here.stream = q;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_unit *u = &s->plan->units[s->plan->members[i].unit];
        int64_t from;
        const int64_t n = zx_unit_piece(u, s->rank, &from);
        float *to = (float *)zx_slot_at(s, u->grad_slot) + (u->grad_whole ? from : 0);
        if (n > 0 && zx_cuda_sum_ranks(to, rows + place, (int64_t)row, s->ranks, n, add, &here,
                                       &s->kernel_err) != ZX_OK)
            return zx_gpu_fail(s, at, &s->kernel_err);
        place += (uint64_t)u->shard;
    }
    return true;
}

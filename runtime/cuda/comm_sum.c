// comm_sum.c - sums over ranks on a GPU, in rank order, whatever brought the operands.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/gpu.h"

#define PLACE_ALIGN 16 // of a member in a row: its elements lie right, and copies go by vectors

uint64_t zx_gpu_place(const zx_unit *u)
{
    return zx_align_up((uint64_t)u->shard * u->param_bytes, PLACE_ALIGN);
}

uint64_t zx_gpu_row(const zx_plan *p, const zx_launch *l)
{
    uint64_t n = 0;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++)
        n += zx_gpu_place(&p->units[p->members[i].unit]);
    return n;
}

const void *zx_gpu_operand(const zx_session *s, const zx_launch *l, const zx_member *m, uint32_t r,
                           int64_t from)
{
    const uint32_t size = s->plan->units[m->unit].param_bytes;
    if (l->flat == ZX_NONE) return zx_gpu_element(s, m->slot, from, size);
    const uint64_t row = zx_launch_row(s->plan, l);
    return zx_gpu_element(s, l->flat, (int64_t)(r * row + m->at), size);
}

bool zx_gpu_add_up(zx_session *s, uint32_t at, const zx_launch *l, const unsigned char *rows,
                   bool add, cudaStream_t q)
{
    struct zx_cuda here = *s->gpu->at;
    const uint64_t row = zx_gpu_row(s->plan, l);
    uint64_t place = 0;
    here.stream = q;
    for (uint32_t i = l->member; i < l->member + l->n_members; i++) {
        const zx_unit *u = &s->plan->units[s->plan->members[i].unit];
        int64_t from;
        const int64_t n = zx_unit_piece(u, s->rank, &from);
        void *to = zx_gpu_element(s, u->grad_slot, u->grad_whole ? from : 0, u->grad_bytes);
        if (n > 0 && zx_cuda_sum_ranks_of(zx_unit_type(s, u->grad_bytes), to,
                                          zx_unit_type(s, u->param_bytes), rows + place,
                                          (int64_t)(row / u->param_bytes), s->ranks, n, add, &here,
                                          &s->kernel_err) != ZX_OK)
            return zx_gpu_fail(s, at, &s->kernel_err);
        place += zx_gpu_place(u);
    }
    return true;
}

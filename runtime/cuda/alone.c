// alone.c - the collectives of one rank: everything is here already.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/gpu.h"

static uint64_t alone_scratch(const zx_session *s ZX_UNUSED)
{
    return 0;
}
static zx_status alone_open(zx_session *s ZX_UNUSED, void *scratch ZX_UNUSED, zx_gpu_link **out,
                            zx_err *err ZX_UNUSED)
{
    *out = NULL;
    return ZX_OK;
}
static void alone_close(zx_gpu_link *k ZX_UNUSED, bool broken ZX_UNUSED)
{
}
static zx_status alone_check(zx_gpu_link *k ZX_UNUSED, zx_err *err ZX_UNUSED)
{
    return ZX_OK;
}

static bool copy(zx_session *s, uint32_t at, void *to, const void *from, uint64_t bytes,
                 cudaStream_t q)
{
    if (bytes == 0 || to == from) return true;
    return zx_gpu_check(s, at,
                        cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, q));
}

static bool alone_gather(zx_session *s, uint32_t at, const zx_launch *l, cudaStream_t q)
{
    bool ok = true;
    for (uint32_t k = l->member; k < l->member + l->n_members && l->flat == ZX_NONE && ok; k++) {
        const zx_member *m = &s->plan->members[k];
        const zx_unit *u = &s->plan->units[m->unit];
        ok = copy(s, at, zx_slot_at(s, m->slot), zx_slot_at(s, u->param_slot),
                  (uint64_t)u->shard * u->param_bytes, q);
    }
    return ok;
}

static bool alone_reduce(zx_session *s, uint32_t at, const zx_launch *l, bool add,
                         bool all ZX_UNUSED, cudaStream_t q)
{
    const struct zx_cuda here = {.device = s->gpu->at->device, .stream = q};
    for (uint32_t k = l->member; k < l->member + l->n_members; k++) {
        const zx_member *m = &s->plan->members[k];
        const zx_unit *u = &s->plan->units[m->unit];
        if (zx_cuda_sum_ranks_of(zx_unit_type(s, u->grad_bytes), zx_slot_at(s, u->grad_slot),
                                 zx_unit_type(s, u->param_bytes), zx_gpu_operand(s, l, m, 0, 0), 0,
                                 1, u->numel, add, &here, &s->kernel_err) != ZX_OK)
            return zx_gpu_fail(s, at, &s->kernel_err);
    }
    return true;
}

static bool alone_mean(zx_session *s, uint32_t at, uint32_t from, uint32_t to, const zx_type *type,
                       cudaStream_t q)
{
    return copy(s, at, zx_slot_at(s, to), zx_slot_at(s, from), zx_type_bytes(type), q);
}

const zx_gpu_comm zx_gpu_alone = {.name = "alone",
                                  .scratch = alone_scratch,
                                  .open = alone_open,
                                  .close = alone_close,
                                  .gather = alone_gather,
                                  .reduce = alone_reduce,
                                  .mean = alone_mean,
                                  .check = alone_check};

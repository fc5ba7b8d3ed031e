// policy_dp.c - policies: parameters whole on every rank. ddp, zero1 and zero2 differ in what the
// ranks divide up (policies.def: stages 0 to 2) and in how gradients share a launch.
//
// All of them reduce in place: the copies into and out of buckets that the originals make by
// default are left out, which is to their advantage.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_make.h"

// DistributedDataParallel (torch/nn/parallel/distributed.py): bucket_cap_mb is 25, the first bucket
// holds 1 MiB, so that communication starts early; a bucket is closed once it has reached its size.
// Buckets are in the order of gradients from the second step on, when they were rebuilt.
#define DDP_FIRST (UINT64_C(1) << 20)
#define DDP_BUCKET (UINT64_C(25) << 20)
// DeepSpeed's allgather_bucket_size, elements.
#define ALLGATHER_BUCKET UINT64_C(500000000)

static void reduce_ddp(zx_schedule *s, uint32_t micro, const zx_ready *list, uint32_t n)
{
    uint32_t *units = ZX_NEW(s->mem, uint32_t, n + 1);
    uint64_t bytes = 0, most = DDP_FIRST;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        units[count++] = list[i].unit;
        bytes += list[i].bytes;
        if (bytes < most && i + 1 < n) continue;
        const int64_t at = zx_schedule_grad_at(s, micro, list[i].unit);
        zx_schedule_reduce(s, at, micro, units, count, false, false);
        bytes = count = 0;
        most = DDP_BUCKET;
    }
}

zx_status zx_policy_ddp(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                        const zx_plan_options *o, zx_arena *mem, zx_policy_result *out, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    uint32_t n;
    zx_schedule_start(&s, t, o, &scratch);
    const zx_ready *list = zx_policy_ready(&s, &n);
    s.local = id == ZX_POLICY_DDP_ONCE;
    for (uint32_t m = s.local ? o->micro_batches - 1 : 0; m < o->micro_batches; m++)
        reduce_ddp(&s, m, list, n); // what isn't drained is at the end of the micro-batch
    const zx_status st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

uint32_t zx_policy_buckets(zx_schedule *s, uint32_t micro, const zx_ready *list, uint32_t n,
                           uint64_t most, bool flat)
{
    uint32_t *units = ZX_NEW(s->mem, uint32_t, n + 1);
    const int64_t end = (int64_t)s->trace->n_steps * (micro + 1);
    uint32_t count = 0, last = ZX_NONE;
    uint64_t elements = 0;
    for (uint32_t i = 0; i <= n; i++) {
        const bool full = i == n || (count > 0 && elements + list[i].elements > most);
        const int64_t at = i == n ? end : zx_schedule_grad_at(s, micro, list[i].unit);
        if (full && count > 0) {
            if (last != ZX_NONE) zx_schedule_drain(s, at, last);
            last = zx_schedule_reduce(s, at, micro, units, count, flat, false);
            elements = count = 0;
        }
        if (i == n) break;
        units[count++] = list[i].unit;
        elements += list[i].elements;
    }
    return last;
}

static zx_status make_zero(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                           const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                           zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    uint32_t n;
    zx_schedule_start(&s, t, o, &scratch);
    const zx_ready *list = zx_policy_ready(&s, &n);
    s.local = id == ZX_POLICY_ZERO1_ONCE;
    s.update_launch = ALLGATHER_BUCKET * (n > 0 ? list[0].bytes / list[0].elements : 1);
    for (uint32_t m = s.local ? o->micro_batches - 1 : 0; m < o->micro_batches; m++)
        zx_policy_buckets(&s, m, list, n, (uint64_t)in->limits.reduce_bucket, false);
    const zx_status st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

zx_status zx_policy_zero1(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                          const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                          zx_err *err)
{
    return make_zero(id, in, t, o, mem, out, err);
}

zx_status zx_policy_zero2(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                          const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                          zx_err *err)
{
    return make_zero(id, in, t, o, mem, out, err);
}

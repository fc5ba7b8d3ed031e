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
#define RAISES 5 // bisections of a bucket that is lowered to the budget

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

static void write_zero(zx_schedule *s, zx_policy_id id, const zx_trace *t, const zx_plan_options *o,
                       uint64_t bucket, zx_arena *mem)
{
    uint32_t n;
    zx_schedule_start(s, t, o, mem);
    const zx_ready *list = zx_policy_ready(s, &n);
    s->local = id == ZX_POLICY_ZERO1_ONCE;
    s->update_launch = ALLGATHER_BUCKET * (n > 0 ? list[0].bytes / list[0].elements : 1);
    for (uint32_t m = s->local ? o->micro_batches - 1 : 0; m < o->micro_batches; m++)
        zx_policy_buckets(s, m, list, n, bucket, false);
}

static zx_status make_zero(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                           const zx_plan_options *o, uint64_t bucket, zx_arena *mem,
                           zx_policy_result *out, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    write_zero(&s, id, t, o, bucket, &scratch);
    const zx_status st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

// Whether a bucket fits in `room`, before placement.
static zx_status try_bucket(const zx_trace *t, const zx_plan_options *o, uint64_t bucket,
                            uint64_t room, bool *fits, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    uint32_t mended;
    write_zero(&s, ZX_POLICY_ZERO2, t, o, bucket, &scratch);
    const zx_status st = zx_schedule_finish(&s, &mended, err);
    if (st == ZX_OK) *fits = zx_schedule_load(&s) <= room;
    zx_arena_free(&scratch);
    return st;
}

// The largest that fits, to two digits; 0: none does.
static zx_status fit_bucket(const zx_trace *t, const zx_plan_options *o, uint64_t own,
                            uint64_t room, uint64_t *bucket, zx_err *err)
{
    uint64_t low = own, high = own;
    bool fits = false;
    for (; !fits && low > 0; low /= 2) {
        high = low;
        const uint64_t half = (uint64_t)zx_policy_rounded((int64_t)(low / 2));
        ZX_TRY(try_bucket(t, o, half, room, &fits, err));
        *bucket = fits ? half : 0;
    }
    for (int i = 0; fits && i < RAISES; i++) {
        const uint64_t middle = (uint64_t)zx_policy_rounded((int64_t)((*bucket + high) / 2));
        bool more;
        ZX_TRY(try_bucket(t, o, middle, room, &more, err));
        if (more) *bucket = middle;
        if (!more) high = middle;
    }
    return ZX_OK;
}

// Where a rank's gradients are sharded, what waits in a bucket takes memory of its own.
static zx_status make_fitting(const zx_policy_input *in, const zx_trace *t,
                              const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                              zx_err *err)
{
    const zx_graph *g = t->graph;
    uint64_t own = 1, room = o->budget;
    for (uint32_t u = 0; u < g->n_params; u++)
        own += (uint64_t)zx_shape_count(&g->values[g->params[u].value].type.shape);
    if ((uint64_t)in->limits.reduce_bucket < own) own = (uint64_t)in->limits.reduce_bucket;
    for (int i = 0; i < ZX_POLICY_SHRINKS; i++) {
        uint64_t bucket = 0;
        zx_policy_result r = {0};
        ZX_TRY(fit_bucket(t, o, own, room, &bucket, err));
        if (bucket == 0) return ZX_OK;
        const zx_mark mark = zx_arena_mark(mem);
        ZX_TRY(make_zero(ZX_POLICY_ZERO2, in, t, o, bucket, mem, &r, err));
        if (!r.over) {
            zx_policy_put_bucket(&r, (int64_t)bucket);
            *out = r;
            return ZX_OK;
        }
        room = zx_policy_less(room, &r, o, i);
        zx_arena_rewind(mem, mark);
    }
    return ZX_OK;
}

zx_status zx_policy_zero1(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                          const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                          zx_err *err)
{
    return make_zero(id, in, t, o, (uint64_t)in->limits.reduce_bucket, mem, out, err);
}

zx_status zx_policy_zero2(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                          const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                          zx_err *err)
{
    ZX_TRY(make_zero(id, in, t, o, (uint64_t)in->limits.reduce_bucket, mem, out, err));
    if (!out->over || in->own_limits || o->ranks == 1) return ZX_OK;
    return make_fitting(in, t, o, mem, out, err);
}

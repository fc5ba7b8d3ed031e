// reduce_grad.c - gradients of the reductions that aren't plain sums. float32; dy and y keep the
// reduced dims as ones, so they are indexed by the kept dims alone.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>

typedef struct job {
    const zx_call *call;
    zx_reduction r;
    const float *dy, *x, *y;
    float *dx;
} job;

static job job_make(const zx_call *call)
{
    const zx_shape *s = &call->in[1].type.shape;
    return (job){.call = call,
                 .r = zx_reduction_make(s, zx_axes_bits(call, s->rank)),
                 .dy = call->in[0].data,
                 .x = call->in[1].data,
                 .y = call->in[2].data,
                 .dx = call->out[0].data};
}

// DO for every reduced element of output o, in row-major order: `at` is its place in x.
#define EACH(j, o, ...)                                                                            \
    do {                                                                                           \
        zx_dims outer;                                                                             \
        int64_t n, stride;                                                                         \
        const int64_t base = zx_dims_at(&(j)->r.kept, (o));                                        \
        zx_dims_inner(&(j)->r.reduced, &outer, &n, &stride);                                       \
        for (int64_t k = 0; k < outer.count; k++) {                                                \
            const int64_t row = base + zx_dims_at(&outer, k);                                      \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const int64_t at = row + i * stride;                                               \
                __VA_ARGS__                                                                        \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static zx_status run(job *j, zx_range_fn *fn, zx_err *err)
{
    ZX_TRY(zx_need_f32(j->call, err));
    const bool small = zx_count(&j->call->in[1]) < ZX_GRAIN / 4;
    zx_split(small ? 1 : j->call->threads, j->r.kept.count, 1, 2, fn, j);
    return ZX_OK;
}

static void pick_range(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    for (int64_t o = from; o < to; o++) {
        const float y = j->y[o];
        bool found = false;
        EACH(j, o, {
            const bool hit = !found && (j->x[at] == y || (y != y && j->x[at] != j->x[at]));
            j->dx[at] = hit ? j->dy[o] : 0.0f;
            found = found || hit;
        });
    }
}
static zx_status pick(const zx_call *call, zx_err *err)
{
    job j = job_make(call);
    return run(&j, pick_range, err);
}
const zx_kernel zx_cpu_reduce_pick_grad = {.run = pick};

// dy times the product of the others: of all elements but a single zero, where there is one.
static void prod_range(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    for (int64_t o = from; o < to; o++) {
        int64_t zeros = 0;
        double others = 1;
        EACH(j, o, {
            if (j->x[at] == 0)
                zeros++;
            else
                others *= (double)j->x[at];
        });
        EACH(j, o, {
            const double x = (double)j->x[at], dy = (double)j->dy[o];
            j->dx[at] = (float)(zeros == 0               ? dy * (others / x)
                                : zeros == 1 && x == 0.0 ? dy * others
                                                         : 0.0);
        });
    }
}
static zx_status prod(const zx_call *call, zx_err *err)
{
    job j = job_make(call);
    return run(&j, prod_range, err);
}
const zx_kernel zx_cpu_reduce_prod_grad = {.run = prod};

static void l2_range(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    for (int64_t o = from; o < to; o++) {
        const float y = j->y[o], dy = j->dy[o];
        EACH(j, o, { j->dx[at] = y == 0.0f ? 0.0f : dy * (j->x[at] / y); });
    }
}
static zx_status l2(const zx_call *call, zx_err *err)
{
    job j = job_make(call);
    return run(&j, l2_range, err);
}
const zx_kernel zx_cpu_reduce_l2_grad = {.run = l2};

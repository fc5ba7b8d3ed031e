// resize.c - RESIZE and its gradient, one axis after the other.
//
// Interpolation is separable: along each axis that changes, an output is a weighted sum of at most
// four inputs, from a table that prepare makes. The gradient walks the same tables backwards.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/naive.h"
#include "kernels/resize.h"

#include <stdlib.h>
#include <string.h>

typedef struct resize {
    zx_resize r;
    zx_tap *taps[ZX_MAX_RANK]; // [big], an axis each
    uint64_t between;          // bytes of the largest tensor between two passes
} resize;

static zx_status resize_make(const zx_call *call, const zx_shape *x, const zx_shape *y, resize *r,
                             zx_err *err)
{
    ZX_TRY(zx_resize_make(call, x, y, &r->r, err));
    for (uint32_t i = 0; i < r->r.n; i++) {
        const zx_resize_axis *a = &r->r.list[i];
        r->taps[i] = calloc((size_t)a->big + 1, sizeof *r->taps[i]);
        if (!r->taps[i]) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
        for (int64_t o = 0; o < a->big; o++) r->taps[i][o] = zx_resize_tap(a, o);
    }
    return ZX_OK;
}

// ---- passes
// -----------------------------------------------------------------------------------------
typedef struct job {
    const zx_resize_axis *a;
    const zx_tap *taps;
    int n_taps;
    const void *from;
    void *to;
} job;

#define PASS(T)                                                                                    \
    static void up_##T(void *ctx, int64_t begin, int64_t end)                                      \
    {                                                                                              \
        const job *j = ctx;                                                                        \
        const int64_t n = j->a->inner;                                                             \
        for (int64_t row = begin; row < end; row++) {                                              \
            const zx_tap *t = &j->taps[row % j->a->big];                                           \
            const T *x = (const T *)j->from + row / j->a->big * j->a->small * n;                   \
            T *y = (T *)j->to + row * n;                                                           \
            if (j->n_taps == 1) {                                                                  \
                memcpy(y, x + t->index[0] * n, (size_t)n * sizeof *y);                             \
                continue;                                                                          \
            }                                                                                      \
            memset(y, 0, (size_t)n * sizeof *y);                                                   \
            for (int k = 0; k < j->n_taps; k++) {                                                  \
                const T w = (T)t->weight[k], *at = x + t->index[k] * n;                            \
                if (w == 0) continue; /* so that 0 times infinity isn't NaN */                     \
                for (int64_t i = 0; i < n; i++) y[i] += w * at[i];                                 \
            }                                                                                      \
        }                                                                                          \
    }
PASS(float)
PASS(double)
#undef PASS

static void down(void *ctx, int64_t begin, int64_t end)
{
    const job *j = ctx;
    const zx_resize_axis *a = j->a;
    for (int64_t o = begin; o < end; o++) {
        float *dx = (float *)j->to + o * a->small * a->inner;
        const float *dy = (const float *)j->from + o * a->big * a->inner;
        memset(dx, 0, (size_t)(a->small * a->inner) * sizeof *dx);
        for (int64_t row = 0; row < a->big; row++, dy += a->inner) {
            for (int k = 0; k < j->n_taps; k++) {
                const float w = (float)j->taps[row].weight[k];
                float *at = dx + j->taps[row].index[k] * a->inner;
                if (w == 0) continue;
                for (int64_t i = 0; i < a->inner; i++) at[i] += w * dy[i];
            }
        }
    }
}

// Runs all passes; what lies between two of them alternates between two parts of the scratch.
static zx_status run_passes(const zx_call *call, bool grad)
{
    const resize *r = call->state;
    const zx_view *in = &call->in[0], *out = &call->out[0];
    const bool wide = in->type.dtype == ZX_F64;
    const void *from = in->data;
    if (zx_count(out) == 0) return ZX_OK;
    const uint32_t n = r->r.n;
    if (n == 0) memcpy(out->data, in->data, zx_type_bytes(&out->type));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t at = grad ? n - 1 - i : i;
        const zx_resize_axis *a = &r->r.list[at];
        void *to = i + 1 == n ? out->data : (unsigned char *)call->work + (i % 2) * r->between;
        job j = {a, r->taps[at], r->r.n_taps, from, to};
        if (grad)
            zx_split(call->threads, a->outer, 1, 2, down, &j);
        else
            zx_split(call->threads, a->outer * a->big, 1, 2, wide ? up_double : up_float, &j);
        from = to;
    }
    return ZX_OK;
}

static zx_status resize_loops(const zx_call *call, zx_err *err ZX_UNUSED)
{
    return run_passes(call, false);
}

static uint64_t passes_bytes(const resize *r)
{
    return zx_resize_work(&r->r, r->between);
}

static void release(void *state)
{
    resize *r = state;
    if (!r) return;
    for (uint32_t i = 0; i < r->r.n; i++) free(r->taps[i]);
    free(r);
}

static zx_status prepare(const zx_call *call, bool grad, uint64_t *work_bytes, void **state,
                         zx_err *err)
{
    const zx_view *x = grad ? &call->out[0] : &call->in[0],
                  *y = grad ? &call->in[0] : &call->out[0];
    resize *r = calloc(1, sizeof *r);
    if (!r) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    const zx_status st = resize_make(call, &x->type.shape, &y->type.shape, r, err);
    if (st != ZX_OK) {
        release(r);
        return st;
    }
    const uint64_t size = call->in[0].type.dtype == ZX_F64 ? sizeof(double) : sizeof(float);
    r->between = zx_align_up(r->r.between * size, ZX_ALIGN);
    *work_bytes = passes_bytes(r) + (zx_is_half(call) ? zx_half_bytes(call) : 0);
    *state = r;
    return ZX_OK;
}

static zx_status resize_prepare(const zx_call *call, uint64_t *work_bytes, void **state,
                                zx_err *err)
{
    ZX_TRY(zx_floats_check(call, "Resize", err));
    return prepare(call, false, work_bytes, state, err);
}

static zx_status resize_run(const zx_call *call, zx_err *err)
{
    unsigned char *work = call->work;
    if (zx_is_half(call))
        return zx_half_run(call, work + passes_bytes(call->state), resize_loops, err);
    return resize_loops(call, err);
}

static zx_status grad_prepare(const zx_call *call, uint64_t *work_bytes, void **state, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    return prepare(call, true, work_bytes, state, err);
}

static zx_status grad_run(const zx_call *call, zx_err *err ZX_UNUSED)
{
    return run_passes(call, true);
}

const zx_kernel zx_cpu_resize = {.prepare = resize_prepare, .release = release, .run = resize_run};
const zx_kernel zx_cpu_resize_grad = {.prepare = grad_prepare, .release = release, .run = grad_run};

// resize.c - RESIZE and its gradient, one axis after the other.
//
// Interpolation is separable: along each axis that changes, an output is a weighted sum of at most
// four inputs, from a table that prepare makes. The gradient walks the same tables backwards.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/naive.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEAREST, LINEAR, CUBIC };                                               // MODE
enum { HALF_PIXEL, PYTORCH_HALF_PIXEL, ALIGN_CORNERS, ASYMMETRIC, SYMMETRIC }; // COORD
enum { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };                               // NEAREST

#define MOST_TAPS 4

typedef struct tap {
    int64_t index[MOST_TAPS]; // clamped to the axis: what lies outside repeats the edge
    double weight[MOST_TAPS]; // 0: not read
} tap;

typedef struct axis { // one that changes
    uint32_t dim;
    int64_t outer, small, big, inner; // forward: [outer][small][inner] to [outer][big][inner]
    tap *taps;                        // [big]
} axis;

typedef struct resize {
    uint32_t n;
    int n_taps;
    axis list[ZX_MAX_RANK];
    uint64_t between; // bytes of the largest tensor between two passes
} resize;

// ---- tables: ONNX Resize's formulas
// ---------------------------------------------------------------- Where output o lies on the
// input's axis. Nearest rounds it, so there it is computed in float as ONNX Runtime does: 1 /
// (float)(1/3.) is 3 in float and less in double.
static double place(int coord, bool in_float, int64_t o, int64_t in, int64_t out, double scale)
{
    const double at = (double)o;
    if (coord == ALIGN_CORNERS) {
        // Of the sizes, as the standard's text, ONNX Runtime and PyTorch have it, also where a
        // scale that isn't their ratio made them (ONNX's reference evaluator takes scale * in for
        // out).
        return out == 1 ? 0.0 : at * (double)(in - 1) / (double)(out - 1);
    } else if (coord == ASYMMETRIC) {
        return in_float ? (double)((float)o / (float)scale) : at / scale;
    } else if (coord == PYTORCH_HALF_PIXEL && out == 1) {
        return 0.0;
    }
    double shift = 0;
    if (coord == SYMMETRIC) shift = (double)in / 2 * (1 - (double)out / (scale * (double)in));
    if (in_float) return shift + (double)(((float)o + 0.5f) / (float)scale - 0.5f);
    return shift + (at + 0.5) / scale - 0.5;
}

static double pick(int nearest, double x)
{
    switch (nearest) {
    case PREFER_FLOOR:
        return ceil(x - 0.5);
    case PREFER_CEIL:
        return floor(x + 0.5);
    case FLOOR:
        return floor(x);
    default:
        return ceil(x);
    }
}

static tap tap_of(int mode, int nearest, double x, int64_t in, double a)
{
    tap t = {{0}, {0}};
    const double base = mode == NEAREST ? pick(nearest, x) : floor(x), s = x - base, r = 1 - s;
    int64_t first = (int64_t)base;
    if (mode == NEAREST) {
        t.weight[0] = 1;
    } else if (mode == LINEAR) {
        t.weight[0] = r;
        t.weight[1] = s;
    } else {
        first--;
        t.weight[0] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
        t.weight[1] = ((a + 2) * s - (a + 3)) * s * s + 1;
        t.weight[2] = ((a + 2) * r - (a + 3)) * r * r + 1;
        t.weight[3] = ((a * (r + 1) - 5 * a) * (r + 1) + 8 * a) * (r + 1) - 4 * a;
    }
    for (int i = 0; i < MOST_TAPS; i++) t.index[i] = zx_max_i64(0, zx_min_i64(first + i, in - 1));
    return t;
}

static zx_status resize_make(const zx_call *call, const zx_shape *x, const zx_shape *y, resize *r,
                             zx_err *err)
{
    const zx_attr *scales = zx_attr_find(call->attrs, ZX_A_SCALES);
    const int mode = (int)zx_attr_int(call->attrs, ZX_A_MODE, NEAREST);
    const int coord = (int)zx_attr_int(call->attrs, ZX_A_COORD, HALF_PIXEL);
    const int nearest = (int)zx_attr_int(call->attrs, ZX_A_NEAREST, PREFER_FLOOR);
    const double cubic = zx_attr_float(call->attrs, ZX_A_ALPHA, -0.75);
    if (x->rank != y->rank || !scales || scales->n != x->rank)
        return ZX_FAIL(err, ZX_E_SHAPE, "Resize: one size and one scale a dimension are needed");
    r->n_taps = mode == NEAREST ? 1 : mode == LINEAR ? 2 : 4;
    for (uint32_t d = 0; d < x->rank; d++) {
        const int64_t in = x->dim[d], out = y->dim[d];
        double scale = scales->f[d];
        if (!(scale > 0)) return ZX_FAIL(err, ZX_E_SHAPE, "Resize: scale %g of dim %u", scale, d);
        if (in == out && scale == 1.0) continue;
        if (in == 0 && out > 0)
            return ZX_FAIL(err, ZX_E_SHAPE, "Resize: dim %u has no elements to repeat", d);
        // Files hold scales in float; where sizes were meant, the exact ratio is meant.
        if (mode != NEAREST && (float)((double)out / (double)in) == (float)scale)
            scale = (double)out / (double)in;
        axis *a = &r->list[r->n++];
        *a = (axis){.dim = d, .small = in, .big = out, .inner = zx_shape_span(x, d + 1, x->rank)};
        a->outer = zx_shape_span(y, 0, d);
        a->taps = calloc((size_t)out + 1, sizeof *a->taps);
        if (!a->taps) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
        for (int64_t o = 0; o < out; o++)
            a->taps[o] =
                tap_of(mode, nearest, place(coord, mode == NEAREST, o, in, out, scale), in, cubic);
        const uint64_t read = (uint64_t)(a->outer * a->small * a->inner); // what this pass reads
        if (r->n > 1 && r->between < read) r->between = read;
    }
    return ZX_OK;
}

// ---- passes
// -----------------------------------------------------------------------------------------
typedef struct job {
    const axis *a;
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
            const tap *t = &j->a->taps[row % j->a->big];                                           \
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
    const axis *a = j->a;
    for (int64_t o = begin; o < end; o++) {
        float *dx = (float *)j->to + o * a->small * a->inner;
        const float *dy = (const float *)j->from + o * a->big * a->inner;
        memset(dx, 0, (size_t)(a->small * a->inner) * sizeof *dx);
        for (int64_t row = 0; row < a->big; row++, dy += a->inner) {
            for (int k = 0; k < j->n_taps; k++) {
                const float w = (float)a->taps[row].weight[k];
                float *at = dx + a->taps[row].index[k] * a->inner;
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
    if (r->n == 0) memcpy(out->data, in->data, zx_type_bytes(&out->type));
    for (uint32_t i = 0; i < r->n; i++) {
        const axis *a = &r->list[grad ? r->n - 1 - i : i];
        void *to = i + 1 == r->n ? out->data : (unsigned char *)call->work + (i % 2) * r->between;
        job j = {a, r->n_taps, from, to};
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
    return r->n < 3 ? r->between : 2 * r->between;
}

static void release(void *state)
{
    resize *r = state;
    if (!r) return;
    for (uint32_t i = 0; i < r->n; i++) free(r->list[i].taps);
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
    r->between = zx_align_up(r->between * size, ZX_ALIGN);
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

// pool.c - MAX_POOL and AVG_POOL with their gradients: own loops, a plane (image and channel) at a
// time, so that the order of every sum is fixed by the shapes.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/naive.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Three spatial dims, missing ones in front with size 1.
typedef struct window {
    int64_t planes;
    int64_t x[3], y[3], k[3], stride[3], dilation[3], before[3], after[3];
    bool count_pads;
} window;

// The taps of output o along dimension i that lie in the plane: [from, to), tap k reads at +
// k*dilation.
typedef struct span {
    int64_t at, from, to;
    int64_t counted; // taps that an average divides by, this dimension's factor
} span;

static span span_of(const window *w, int i, int64_t o)
{
    const int64_t step = w->dilation[i];
    span s = {.at = o * w->stride[i] - w->before[i]};
    s.from = s.at < 0 ? (-s.at + step - 1) / step : 0;
    s.to = s.at < w->x[i] ? zx_min_i64(w->k[i], (w->x[i] - s.at + step - 1) / step) : 0;
    s.from = zx_min_i64(s.from, s.to);
    s.counted = s.to - s.from;
    // Cells past the padding are never counted: there a window that was rounded up hangs over.
    const int64_t end = w->x[i] + w->after[i];
    if (w->count_pads)
        s.counted = s.at < end ? zx_min_i64(w->k[i], (end - s.at + step - 1) / step) : 0;
    return s;
}

// The spans of the output at row-major place `at` of its plane.
static void spans_of(const window *w, int64_t at, span s[3])
{
    s[2] = span_of(w, 2, at % w->y[2]);
    s[1] = span_of(w, 1, at / w->y[2] % w->y[1]);
    s[0] = span_of(w, 0, at / (w->y[1] * w->y[2]));
}

// For every cell of x under the window: `p` is its place in the plane.
#define EACH_CELL(w, s, p)                                                                         \
    for (int64_t k0_ = (s)[0].from; k0_ < (s)[0].to; k0_++)                                        \
        for (int64_t k1_ = (s)[1].from; k1_ < (s)[1].to; k1_++)                                    \
            for (int64_t k2_ = (s)[2].from,                                                        \
                         row_ = (((s)[0].at + k0_ * (w)->dilation[0]) * (w)->x[1] + (s)[1].at +    \
                                 k1_ * (w)->dilation[1]) *                                         \
                                    (w)->x[2] +                                                    \
                                (s)[2].at,                                                         \
                         p = row_ + k2_ * (w)->dilation[2];                                        \
                 k2_ < (s)[2].to; k2_++, p += (w)->dilation[2])

static inline int64_t volume(const int64_t d[3])
{
    return d[0] * d[1] * d[2];
}

typedef struct job {
    const window *w;
    const void *in;
    const int32_t *index_in;
    void *out;
    int32_t *index_out; // NULL: nobody reads it
} job;

// Divides by the cells counted; a window that covers none gives 0.
static double share(const span s[3])
{
    const int64_t n = s[0].counted * s[1].counted * s[2].counted;
    return n > 0 ? 1.0 / (double)n : 0.0;
}

// Outputs [from, to) of a row whose tap k along it lies in the plane: those before `from` reach
// over its near end.
static int64_t covered(const window *w, int64_t k, int64_t from, int64_t *to)
{
    const int64_t at = k * w->dilation[2] - w->before[2]; // where output 0 reads
    const int64_t last = w->x[2] - 1 - at;
    *to = last < 0 ? from : zx_min_i64(*to, last / w->stride[2] + 1);
    return at < 0 ? zx_max_i64(from, (-at + w->stride[2] - 1) / w->stride[2]) : from;
}

// The greatest of outputs side by side: one tap of all of them at a time. Of equals the first, and
// a NaN beats numbers.
#define FORWARD(T)                                                                                 \
    ZX_CLONES static void max_tap_##T(const T *x, int32_t at, int32_t stride, int64_t n, T *best,  \
                                      int32_t *where)                                              \
    {                                                                                              \
        ZX_SIMD for (int32_t o = 0; o < (int32_t)n; o++)                                           \
        {                                                                                          \
            const T v = x[o * stride], b = best[o];                                                \
            const bool take = (where[o] < 0) | (v > b) | ((v != v) & (b == b));                    \
            best[o] = take ? v : b;                                                                \
            where[o] = take ? at + o * stride : where[o];                                          \
        }                                                                                          \
    }                                                                                              \
    /* Outputs [from, to) of the row that `s` spans in the outer dimensions. */                    \
    static void max_row_##T(const window *w, const span s[2], const T *x, int64_t from,            \
                            int64_t to, T *best, int32_t *where)                                   \
    {                                                                                              \
        for (int64_t i = 0; i < to - from; i++) {                                                  \
            best[i] = (T)-INFINITY;                                                                \
            where[i] = -1;                                                                         \
        }                                                                                          \
        for (int64_t k0 = s[0].from; k0 < s[0].to; k0++)                                           \
            for (int64_t k1 = s[1].from; k1 < s[1].to; k1++)                                       \
                for (int64_t k2 = 0; k2 < w->k[2]; k2++) {                                         \
                    int64_t end = to;                                                              \
                    const int64_t o = covered(w, k2, from, &end);                                  \
                    const int64_t row =                                                            \
                        (s[0].at + k0 * w->dilation[0]) * w->x[1] + s[1].at + k1 * w->dilation[1]; \
                    const int64_t p =                                                              \
                        row * w->x[2] + o * w->stride[2] - w->before[2] + k2 * w->dilation[2];     \
                    if (o < end)                                                                   \
                        max_tap_##T(x + p, (int32_t)p, (int32_t)w->stride[2], end - o,             \
                                    best + (o - from), where + (o - from));                        \
                }                                                                                  \
    }                                                                                              \
    static void max_##T(void *ctx, int64_t from, int64_t to)                                       \
    {                                                                                              \
        const job *j = ctx;                                                                        \
        const window *w = j->w;                                                                    \
        const int64_t rows = w->y[0] * w->y[1], cols = w->y[2];                                    \
        T best[ZX_BLOCK];                                                                          \
        int32_t where[ZX_BLOCK];                                                                   \
        for (int64_t r = from * rows; r < to * rows; r++) {                                        \
            const T *x = (const T *)j->in + r / rows * volume(w->x);                               \
            const span s[2] = {span_of(w, 0, r % rows / w->y[1]), span_of(w, 1, r % w->y[1])};     \
            for (int64_t c = 0; c < cols; c += ZX_BLOCK) {                                         \
                const int64_t n = zx_min_i64(ZX_BLOCK, cols - c);                                  \
                max_row_##T(w, s, x, c, c + n, best, where);                                       \
                memcpy((T *)j->out + r * cols + c, best, (size_t)n * sizeof *best);                \
                if (j->index_out)                                                                  \
                    memcpy(j->index_out + r * cols + c, where, (size_t)n * sizeof *where);         \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void average_##T(void *ctx, int64_t from, int64_t to)                                   \
    {                                                                                              \
        const job *j = ctx;                                                                        \
        const int64_t in = volume(j->w->x), out = volume(j->w->y);                                 \
        for (int64_t i = from * out; i < to * out; i++) {                                          \
            const T *x = (const T *)j->in + i / out * in;                                          \
            span s[3];                                                                             \
            double sum = 0;                                                                        \
            spans_of(j->w, i % out, s);                                                            \
            EACH_CELL(j->w, s, p) sum += (double)x[p];                                             \
            ((T *)j->out)[i] = (T)(sum * share(s));                                                \
        }                                                                                          \
    }
FORWARD(float)
FORWARD(double)
#undef FORWARD

static void max_grad(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    const int64_t in = volume(j->w->x), out = volume(j->w->y);
    const float *dy = j->in;
    for (int64_t plane = from; plane < to; plane++) {
        float *dx = (float *)j->out + plane * in;
        memset(dx, 0, (size_t)in * sizeof *dx);
        for (int64_t i = plane * out; i < (plane + 1) * out; i++) {
            const int64_t where = j->index_in[i];
            if (where >= 0 && where < in) dx[where] += dy[i];
        }
    }
}

static void average_grad(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    const int64_t in = volume(j->w->x), out = volume(j->w->y);
    for (int64_t plane = from; plane < to; plane++) {
        const float *dy = (const float *)j->in + plane * out;
        float *dx = (float *)j->out + plane * in;
        memset(dx, 0, (size_t)in * sizeof *dx);
        for (int64_t i = 0; i < out; i++) {
            span s[3];
            spans_of(j->w, i, s);
            const float part = (float)((double)dy[i] * share(s));
            EACH_CELL(j->w, s, p) dx[p] += part;
        }
    }
}

// ---- kernels
// --------------------------------------------------------------------------------------
static zx_status window_of(const zx_call *call, const zx_shape *x, const zx_shape *y, window *out,
                           zx_err *err)
{
    uint32_t n[4];
    const int64_t *kernel = zx_attr_ints(call->attrs, ZX_A_KERNEL_SHAPE, &n[0]);
    const int64_t *stride = zx_attr_ints(call->attrs, ZX_A_STRIDES, &n[1]);
    const int64_t *dilation = zx_attr_ints(call->attrs, ZX_A_DILATIONS, &n[2]);
    const int64_t *pad = zx_attr_ints(call->attrs, ZX_A_PADS, &n[3]);
    if (x->rank < 3 || x->rank > 5)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "pooling of rank %u: 1 to 3 spatial dims", x->rank);
    const uint32_t spatial = x->rank - 2;
    if (y->rank != x->rank || n[0] != spatial || n[1] != spatial || n[2] != spatial ||
        n[3] != 2 * spatial || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1])
        return ZX_FAIL(err, ZX_E_SHAPE, "pooling: sizes of x, y and attributes do not fit");
    window w = {.planes = x->dim[0] * x->dim[1]};
    w.count_pads = zx_attr_int(call->attrs, ZX_A_COUNT_INCLUDE_PAD, 0) != 0;
    for (uint32_t i = 0; i < 3; i++) {
        w.x[i] = w.y[i] = w.k[i] = w.stride[i] = w.dilation[i] = 1;
        if (i < 3 - spatial) continue;
        const uint32_t from = i - (3 - spatial);
        w.x[i] = x->dim[from + 2];
        w.y[i] = y->dim[from + 2];
        w.k[i] = kernel[from];
        w.stride[i] = stride[from];
        w.dilation[i] = dilation[from];
        w.before[i] = pad[from];
        w.after[i] = pad[from + spatial];
        if (w.k[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1)
            return ZX_FAIL(err, ZX_E_SHAPE, "pooling: kernel, strides, dilations must be positive");
    }
    if (volume(w.x) > INT32_MAX)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "pooling over a plane of %" PRId64 " elements",
                       volume(w.x));
    *out = w;
    return ZX_OK;
}

// x is the larger side: the input forward, the result of a gradient.
static zx_status prepare(const zx_call *call, const char *word, bool grad, uint64_t *work_bytes,
                         void **state, zx_err *err)
{
    const zx_view *x = grad ? &call->out[0] : &call->in[0],
                  *y = grad ? &call->in[0] : &call->out[0];
    window w;
    ZX_TRY(zx_floats_check(call, word, err));
    if (grad) ZX_TRY(zx_need_f32(call, err));
    ZX_TRY(window_of(call, &x->type.shape, &y->type.shape, &w, err));
    if (zx_is_half(call)) *work_bytes = zx_half_bytes(call);
    window *kept = malloc(sizeof *kept);
    if (!kept) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    *kept = w;
    *state = kept;
    return ZX_OK;
}

static zx_status run(const zx_call *call, zx_range_fn *f32, zx_range_fn *f64)
{
    const window *w = call->state;
    job j = {.w = w, .in = call->in[0].data, .out = call->out[0].data};
    if (call->n_in > 1) j.index_in = call->in[1].data;
    if (call->n_out > 1) j.index_out = call->out[1].data;
    const int64_t cells = zx_max_i64(1, volume(w->x) + volume(w->y) * volume(w->k));
    zx_split(call->threads, w->planes, 1, zx_max_i64(2, ZX_GRAIN / cells),
             call->in[0].type.dtype == ZX_F64 ? f64 : f32, &j);
    return ZX_OK;
}

#define KERNEL(name, word, grad, f32, f64)                                                         \
    static zx_status name##_prepare(const zx_call *call, uint64_t *work_bytes, void **state,       \
                                    zx_err *err)                                                   \
    {                                                                                              \
        return prepare(call, word, grad, work_bytes, state, err);                                  \
    }                                                                                              \
    static zx_status name##_loops(const zx_call *call, zx_err *err ZX_UNUSED)                      \
    {                                                                                              \
        return run(call, f32, f64);                                                                \
    }                                                                                              \
    static zx_status name##_run(const zx_call *call, zx_err *err)                                  \
    {                                                                                              \
        if (zx_is_half(call)) return zx_half_run(call, call->work, name##_loops, err);             \
        return name##_loops(call, err);                                                            \
    }                                                                                              \
    const zx_kernel zx_cpu_##name = {.prepare = name##_prepare, .release = free, .run = name##_run};
KERNEL(max_pool, "MaxPool", false, max_float, max_double)
KERNEL(max_pool_grad, "MaxPoolGrad", true, max_grad, NULL)
KERNEL(avg_pool, "AveragePool", false, average_float, average_double)
KERNEL(avg_pool_grad, "AveragePoolGrad", true, average_grad, NULL)

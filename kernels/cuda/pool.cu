// pool.cu - MaxPool and AveragePool with their gradients, float32: a thread an element of the
// result, so that the order of every sum is fixed by the shapes.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common.cuh"

namespace
{

// Three spatial dims, missing ones in front with size 1.
typedef struct window {
    int64_t planes;
    int64_t x[3], y[3], k[3], stride[3], dilation[3], before[3], after[3];
    bool count_pads;
} window;

// x is the larger side: the input forward, the result of a gradient.
zx_status window_of(const zx_call *c, bool grad, window *w, zx_err *err)
{
    const zx_shape *x = &(grad ? c->out[0] : c->in[0]).type.shape;
    const zx_shape *y = &(grad ? c->in[0] : c->out[0]).type.shape;
    uint32_t n[4];
    const int64_t *kernel = zx_attr_ints(c->attrs, ZX_A_KERNEL_SHAPE, &n[0]);
    const int64_t *stride = zx_attr_ints(c->attrs, ZX_A_STRIDES, &n[1]);
    const int64_t *dilation = zx_attr_ints(c->attrs, ZX_A_DILATIONS, &n[2]);
    const int64_t *pad = zx_attr_ints(c->attrs, ZX_A_PADS, &n[3]);
    const uint32_t spatial = x->rank - 2;
    if (x->rank < 3 || x->rank > 5)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "pooling of rank %u: 1 to 3 spatial dims", x->rank);
    if (y->rank != x->rank || n[0] != spatial || n[1] != spatial || n[2] != spatial ||
        n[3] != 2 * spatial)
        return ZX_FAIL(err, ZX_E_SHAPE, "pooling: sizes of x, y and attributes do not fit");
    w->planes = x->dim[0] * x->dim[1];
    w->count_pads = zx_attr_int(c->attrs, ZX_A_COUNT_INCLUDE_PAD, 0) != 0;
    for (uint32_t i = 0; i < 3; i++) {
        const bool given = i >= 3 - spatial;
        const uint32_t from = given ? i - (3 - spatial) : 0;
        w->x[i] = given ? x->dim[from + 2] : 1;
        w->y[i] = given ? y->dim[from + 2] : 1;
        w->k[i] = given ? kernel[from] : 1;
        w->stride[i] = given ? stride[from] : 1;
        w->dilation[i] = given ? dilation[from] : 1;
        w->before[i] = given ? pad[from] : 0;
        w->after[i] = given ? pad[from + spatial] : 0;
        if (w->k[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1)
            return ZX_FAIL(err, ZX_E_SHAPE, "pooling: kernel, strides, dilations must be positive");
    }
    if (w->x[0] * w->x[1] * w->x[2] > INT32_MAX)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "pooling over a plane of %lld elements",
                       (long long)(w->x[0] * w->x[1] * w->x[2]));
    return ZX_OK;
}

// The taps of output o along dimension i that lie in the plane: [from, to), tap k reads at +
// k*dilation.
typedef struct span {
    int64_t at, from, to, counted; // counted: taps that an average divides by
} span;
static __device__ inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static __device__ inline span span_of(const window &w, int i, int64_t o)
{
    const int64_t step = w.dilation[i];
    span s;
    s.at = o * w.stride[i] - w.before[i];
    s.from = s.at < 0 ? (-s.at + step - 1) / step : 0;
    s.to = s.at < w.x[i] ? least(w.k[i], (w.x[i] - s.at + step - 1) / step) : 0;
    s.from = least(s.from, s.to);
    s.counted = s.to - s.from;
    // Cells past the padding are never counted: there a window that was rounded up hangs over.
    const int64_t end = w.x[i] + w.after[i];
    if (w.count_pads) s.counted = s.at < end ? least(w.k[i], (end - s.at + step - 1) / step) : 0;
    return s;
}
static __device__ inline int64_t volume(const int64_t d[3])
{
    return d[0] * d[1] * d[2];
}
static __device__ inline void spans_of(const window &w, int64_t at, span s[3])
{
    s[2] = span_of(w, 2, at % w.y[2]);
    s[1] = span_of(w, 1, at / w.y[2] % w.y[1]);
    s[0] = span_of(w, 0, at / (w.y[1] * w.y[2]));
}
// For every cell of x under the window: `p` is its place in the plane.
#define EACH_CELL(w, s, p)                                                                         \
    for (int64_t k0 = s[0].from; k0 < s[0].to; k0++)                                               \
        for (int64_t k1 = s[1].from; k1 < s[1].to; k1++)                                           \
            for (int64_t k2 = s[2].from, p = ((s[0].at + k0 * w.dilation[0]) * w.x[1] + s[1].at +  \
                                              k1 * w.dilation[1]) *                                \
                                                 w.x[2] +                                          \
                                             s[2].at + k2 * w.dilation[2];                         \
                 k2 < s[2].to; k2++, p += w.dilation[2])
// Divides by the cells counted; a window that covers none gives 0.
static __device__ inline double share(const span s[3])
{
    const int64_t n = s[0].counted * s[1].counted * s[2].counted;
    return n > 0 ? 1.0 / (double)n : 0.0;
}

__global__ void __launch_bounds__(ZX_BLOCK)
    max_pool(const float *x, float *y, int32_t *index, int64_t n, window w)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t plane = i / volume(w.y);
        const float *from = x + plane * volume(w.x);
        float best = -INFINITY;
        int32_t where = -1;
        span s[3];
        spans_of(w, i - plane * volume(w.y), s);
        EACH_CELL(w, s, p)
        {
            const float v = from[p]; // of equals the first, and a NaN beats numbers
            const bool take = where < 0 || v > best || (v != v && best == best);
            best = take ? v : best;
            where = take ? (int32_t)p : where;
        }
        y[i] = best;
        if (index != NULL) index[i] = where;
    }
}
__global__ void __launch_bounds__(ZX_BLOCK) avg_pool(const float *x, float *y, int64_t n, window w)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t plane = i / volume(w.y);
        const float *from = x + plane * volume(w.x);
        double sum = 0;
        span s[3];
        spans_of(w, i - plane * volume(w.y), s);
        EACH_CELL(w, s, p) sum += (double)from[p];
        y[i] = (float)(sum * share(s));
    }
}

// Outputs [from, to) along dimension i whose windows may reach x: all between the ends.
static __device__ inline void reach(const window &w, int i, int64_t x, int64_t *from, int64_t *to)
{
    const int64_t last = x + w.before[i], first = last - (w.k[i] - 1) * w.dilation[i];
    *from = first <= 0 ? 0 : (first + w.stride[i] - 1) / w.stride[i];
    *to = least(w.y[i], last / w.stride[i] + 1);
}
static __device__ inline bool taps(const window &w, int i, int64_t x, int64_t o)
{
    return (x + w.before[i] - o * w.stride[i]) % w.dilation[i] == 0;
}
// Sums what the outputs that reach an element give it, in order of the outputs.
template <bool MAX>
__global__ void __launch_bounds__(ZX_BLOCK)
    pool_grad(const float *dy, const int32_t *index, float *dx, int64_t n, window w)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t plane = i / volume(w.x), at = i - plane * volume(w.x);
        const int64_t x[3] = {at / (w.x[1] * w.x[2]), at / w.x[2] % w.x[1], at % w.x[2]};
        int64_t from[3], to[3];
        float sum = 0;
        for (int d = 0; d < 3; d++) reach(w, d, x[d], &from[d], &to[d]);
        for (int64_t a = from[0]; a < to[0]; a++)
            for (int64_t b = from[1]; b < to[1]; b++)
                for (int64_t c = from[2]; c < to[2]; c++) {
                    const int64_t o = plane * volume(w.y) + (a * w.y[1] + b) * w.y[2] + c;
                    if (MAX) {
                        if (index[o] == at) sum += dy[o];
                        continue;
                    }
                    if (!taps(w, 0, x[0], a) || !taps(w, 1, x[1], b) || !taps(w, 2, x[2], c))
                        continue;
                    span s[3] = {span_of(w, 0, a), span_of(w, 1, b), span_of(w, 2, c)};
                    sum += (float)((double)dy[o] * share(s));
                }
        dx[i] = sum;
    }
}

zx_status prepare(const zx_call *c, bool grad, zx_err *err)
{
    window w;
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    return window_of(c, grad, &w, err);
}
zx_status prepare_forward(const zx_call *c, uint64_t *, void **, zx_err *err)
{
    return prepare(c, false, err);
}
zx_status prepare_grad(const zx_call *c, uint64_t *, void **, zx_err *err)
{
    return prepare(c, true, err);
}

zx_status run_max(const zx_call *c, zx_err *err)
{
    window w;
    const int64_t n = zx_count(&c->out[0]);
    ZX_TRY(window_of(c, false, &w, err));
    return zx_cuda_check(zx_launch_each(c, n, max_pool, (const float *)c->in[0].data,
                                        (float *)c->out[0].data, (int32_t *)c->out[1].data, n, w),
                         "max_pool", err);
}
zx_status run_avg(const zx_call *c, zx_err *err)
{
    window w;
    const int64_t n = zx_count(&c->out[0]);
    ZX_TRY(window_of(c, false, &w, err));
    return zx_cuda_check(
        zx_launch_each(c, n, avg_pool, (const float *)c->in[0].data, (float *)c->out[0].data, n, w),
        "avg_pool", err);
}
zx_status run_max_grad(const zx_call *c, zx_err *err)
{
    window w;
    const int64_t n = zx_count(&c->out[0]);
    ZX_TRY(window_of(c, true, &w, err));
    return zx_cuda_check(zx_launch_each(c, n, pool_grad<true>, (const float *)c->in[0].data,
                                        (const int32_t *)c->in[1].data, (float *)c->out[0].data, n,
                                        w),
                         "max_pool_grad", err);
}
zx_status run_avg_grad(const zx_call *c, zx_err *err)
{
    window w;
    const int64_t n = zx_count(&c->out[0]);
    ZX_TRY(window_of(c, true, &w, err));
    return zx_cuda_check(zx_launch_each(c, n, pool_grad<false>, (const float *)c->in[0].data,
                                        (const int32_t *)NULL, (float *)c->out[0].data, n, w),
                         "avg_pool_grad", err);
}

} // namespace

const zx_kernel zx_cuda_max_pool = {prepare_forward, NULL, run_max};
const zx_kernel zx_cuda_avg_pool = {prepare_forward, NULL, run_avg};
const zx_kernel zx_cuda_max_pool_grad = {prepare_grad, NULL, run_max_grad};
const zx_kernel zx_cuda_avg_pool_grad = {prepare_grad, NULL, run_avg_grad};

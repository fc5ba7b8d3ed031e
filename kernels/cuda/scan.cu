// scan.cu - kernels that walk along one axis, CumSum, TopK, ArgMax and ArgMin, OneHot; and Trilu.
// A line along the axis is a warp's or a block's.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/any.cuh"
#include "kernels/cuda/rows.cuh"

// An element's rank among others, and its place: see order_key.
typedef struct ordered {
    unsigned long long key;
    long long index;
} ordered;
template <> __device__ inline ordered zx_shuffle_xor(ordered a, int with)
{
    return ordered{__shfl_xor_sync(ZX_ALL, a.key, with), __shfl_xor_sync(ZX_ALL, a.index, with)};
}

namespace
{

zx_axis axis_of(const zx_call *c, const zx_view *v)
{
    return zx_axis_of(&v->type.shape, (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0));
}
// Lines are numbered outer * inner; the first element of one that has n.
static __device__ inline int64_t start_of(const zx_axis &a, int64_t line, int64_t n)
{
    return line / a.inner * n * a.inner + line % a.inner;
}

// ---- CumSum: a warp a line, 32 elements at a time -----------------------------------------------
template <class C>
__global__ void __launch_bounds__(ZX_BLOCK)
    cum_sum(zx_dtype t, const void *x, void *y, int64_t lines, zx_axis a, bool exclusive,
            bool reverse)
{
    const int64_t line = zx_team_row<ZX_WARP>();
    const int lane = zx_team_place<ZX_WARP>();
    if (line >= lines) return;
    const int64_t start = start_of(a, line, a.n);
    C before = 0; // all that came before these 32
    for (int64_t base = 0; base < a.n; base += ZX_WARP) {
        const int64_t i = base + lane, at = start + (reverse ? a.n - 1 - i : i) * a.inner;
        const C own = i < a.n ? zx_get<C>(t, x, at) : 0;
        C sum = own;
        for (int by = 1; by < ZX_WARP; by *= 2) {
            const C other = __shfl_up_sync(ZX_ALL, sum, by);
            if (lane >= by) sum += other;
        }
        C up = __shfl_up_sync(ZX_ALL, sum, 1);
        if (lane == 0) up = 0;
        if (i < a.n) zx_put<C>(t, y, at, before + (exclusive ? up : sum));
        before += __shfl_sync(ZX_ALL, sum, ZX_WARP - 1);
    }
}
zx_status run_cum_sum(const zx_call *c, zx_err *err)
{
    const zx_dtype t = c->in[0].type.dtype;
    const zx_axis a = axis_of(c, &c->in[0]);
    const int64_t lines = a.n > 0 ? a.outer * a.inner : 0;
    const bool exclusive = zx_attr_int(c->attrs, ZX_A_EXCLUSIVE, 0) != 0;
    const bool reverse = zx_attr_int(c->attrs, ZX_A_REVERSE, 0) != 0;
    const void *x = c->in[0].data;
    if (lines == 0) return ZX_OK;
    const auto as = [&](auto zero) {
        return zx_launch(cum_sum<decltype(zero)>, zx_team_blocks<ZX_WARP>(lines), ZX_BLOCK, 0,
                         c->cuda->stream, t, x, c->out[0].data, lines, a, exclusive, reverse);
    };
    return zx_cuda_check(zx_dtype_is_float(t) ? as(0.0) : as((uint64_t)0), "cum_sum", err);
}

// ---- an order of all numbers --------------------------------------------------------------------
// Element `at` as an integer that orders as the number does: -0 equals 0, NaN is above all.
static __device__ inline unsigned long long order_key(zx_dtype t, bool is_float, const void *x,
                                                      int64_t at)
{
    const unsigned long long top = 1ull << 63;
    if (is_float) {
        const double v = zx_get<double>(t, x, at) + 0.0;
        if (v != v) return UINT64_MAX;
        const unsigned long long u = (unsigned long long)__double_as_longlong(v);
        return u & top ? ~u : u | top;
    }
    if (t == ZX_U64) return zx_get<uint64_t>(t, x, at);
    return (unsigned long long)zx_get<int64_t>(t, x, at) ^ top;
}

typedef struct line_args {
    zx_dtype dtype;
    bool is_float, largest, last; // ArgMax: the last of equals
    int64_t lines, k;
    zx_axis a;
} line_args;
line_args args_of(const zx_call *c, bool largest)
{
    line_args l;
    l.dtype = c->in[0].type.dtype;
    l.is_float = zx_dtype_is_float(l.dtype);
    l.largest = largest;
    l.last = zx_attr_int(c->attrs, ZX_A_SELECT_LAST, 0) != 0;
    l.k = zx_attr_int(c->attrs, ZX_A_K, 1);
    l.a = axis_of(c, &c->in[0]);
    l.lines = l.a.outer * l.a.inner;
    return l;
}

// ---- ArgMax, ArgMin -----------------------------------------------------------------------------
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK) arg(const void *x, int64_t *y, line_args l)
{
    const int64_t line = zx_team_row<N>();
    if (line >= l.lines) return; // a warp as a whole: blocks have a line each
    const int64_t start = start_of(l.a, line, l.a.n);
    const bool last = l.last;
    const auto better = [last](ordered a, ordered b) { // index -1: none
        if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
        if (a.key != b.key) return a.key > b.key ? a : b;
        return (a.index < b.index) != last ? a : b;
    };
    ordered best = {0, -1};
    for (int64_t i = zx_team_place<N>(); i < l.a.n; i += N) {
        unsigned long long key = order_key(l.dtype, l.is_float, x, start + i * l.a.inner);
        if (!l.largest && key != UINT64_MAX) key = ~key; // NaN wins there too
        best = better(best, ordered{key, (long long)i});
    }
    best = zx_team_join<N>(best, better);
    if (zx_team_place<N>() == 0) y[line] = best.index < 0 ? 0 : best.index;
}
zx_status run_arg(const zx_call *c, zx_err *err)
{
    const line_args l = args_of(c, c->op == ZX_K_ARG_MAX);
    return zx_cuda_check(zx_launch_rows(c, l.lines, l.a.n, arg, (const void *)c->in[0].data,
                                        (int64_t *)c->out[0].data, l),
                         "arg", err);
}

// ---- TopK: one after the other, the best of those behind the last -------------------------------
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    top_k(const void *x, void *values, int64_t *indices, line_args l)
{
    const int64_t line = zx_team_row<N>();
    if (line >= l.lines) return;
    const int64_t start = start_of(l.a, line, l.a.n), out = start_of(l.a, line, l.k);
    const auto better = [](ordered a, ordered b) { // ties: the lower index
        if (a.index < 0 || b.index < 0) return a.index < 0 ? b : a;
        return a.key != b.key ? (a.key > b.key ? a : b) : (a.index < b.index ? a : b);
    };
    ordered done = {UINT64_MAX, -1};
    for (int64_t k = 0; k < l.k; k++) {
        ordered best = {0, -1};
        for (int64_t i = zx_team_place<N>(); i < l.a.n; i += N) {
            const unsigned long long key = order_key(l.dtype, l.is_float, x, start + i * l.a.inner);
            const ordered e = {l.largest ? key : ~key, (long long)i};
            if (e.key < done.key || (e.key == done.key && e.index > done.index))
                best = better(best, e);
        }
        done = best = zx_team_join<N>(best, better);
        if (zx_team_place<N>() != 0 || best.index < 0) continue;
        const int64_t from = start + best.index * l.a.inner, to = out + k * l.a.inner;
        if (l.is_float)
            zx_put<double>(l.dtype, values, to, zx_get<double>(l.dtype, x, from));
        else
            zx_put<uint64_t>(l.dtype, values, to, zx_get<uint64_t>(l.dtype, x, from));
        if (indices != NULL) indices[to] = best.index;
    }
}
zx_status run_top_k(const zx_call *c, zx_err *err)
{
    const line_args l = args_of(c, zx_attr_int(c->attrs, ZX_A_LARGEST, 1) != 0);
    return zx_cuda_check(zx_launch_rows(c, l.k > 0 ? l.lines : 0, l.a.n, top_k,
                                        (const void *)c->in[0].data, c->out[0].data,
                                        (int64_t *)c->out[1].data, l),
                         "top_k", err);
}

// ---- OneHot -------------------------------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK)
    one_hot(zx_dtype ti, const void *index, const T *values, T *y, int64_t n, zx_axis a)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t inside = i % a.inner, c = i / a.inner % a.n, o = i / a.inner / a.n;
        const int64_t k = zx_index_at(ti, index, o * a.inner + inside);
        y[i] = values[c == (k < 0 ? k + a.n : k) ? 1 : 0];
    }
}
zx_status run_one_hot(const zx_call *c, zx_err *err)
{
    const zx_view *y = &c->out[0];
    const zx_axis a = axis_of(c, y);
    const int64_t n = zx_count(y);
    const cudaError_t e = zx_of_bytes(zx_dtype_bytes(y->type.dtype), [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, one_hot<T>, c->in[0].type.dtype, (const void *)c->in[0].data,
                              (const T *)c->in[1].data, (T *)y->data, n, a);
    });
    return zx_cuda_check(e, "one_hot", err);
}

// ---- Trilu --------------------------------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK)
    trilu(const T *x, T *y, int64_t n, int64_t h, int64_t w, int64_t k, bool upper)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t over = i % w - i / w % h - k; // columns right of the diagonal
        y[i] = (upper ? over >= 0 : over <= 0) ? x[i] : T();
    }
}
zx_status run_trilu(const zx_call *c, zx_err *err)
{
    const zx_shape *s = &c->in[0].type.shape;
    const int64_t h = s->dim[s->rank - 2], w = s->dim[s->rank - 1], n = zx_shape_count(s);
    const bool upper = zx_attr_int(c->attrs, ZX_A_UPPER, 1) != 0;
    // Clamped so that the sum can't overflow.
    const int64_t k =
        max(-(long long)h - 1, min((long long)w + 1, (long long)zx_attr_int(c->attrs, ZX_A_K, 0)));
    const cudaError_t e = zx_of_bytes(zx_dtype_bytes(c->in[0].type.dtype), [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, trilu<T>, (const T *)c->in[0].data, (T *)c->out[0].data, n, h,
                              w, k, upper);
    });
    return zx_cuda_check(e, "trilu", err);
}

} // namespace

const zx_kernel zx_cuda_cum_sum = {NULL, NULL, run_cum_sum};
const zx_kernel zx_cuda_arg = {NULL, NULL, run_arg};
const zx_kernel zx_cuda_top_k = {NULL, NULL, run_top_k};
const zx_kernel zx_cuda_one_hot = {NULL, NULL, run_one_hot};
const zx_kernel zx_cuda_trilu = {NULL, NULL, run_trilu};

// scatter.cu - writing through indices, in order of the indices: the gradients of the gathers, and
// ScatterElements and ScatterND.
//
// Sums have one order, so nothing is added by atomics. Rows of a table are shared out in tiles: a
// block reads all indices, keeps those of its tile in order, and adds their rows, a thread a
// column. Elements along an axis meet only within their line: a thread a line.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/index.cuh"

namespace
{

enum { PUT, ADD, MUL, MAX, MIN }; // REDUCTION

template <class C> static __device__ inline C join(int reduction, C a, C b)
{
    return reduction == PUT   ? b
           : reduction == ADD ? zx_plus(a, b)
           : reduction == MUL ? zx_times(a, b)
           : reduction == MAX ? (b > a || !(b == b) ? b : a)
                              : (b < a || !(b == b) ? b : a);
}

// ---- rows of a table ----------------------------------------------------------------------------
#define LIST ZX_BLOCK // indices that a block looks at together
#define LEAST 64      // rows of a tile
#define TILES 1024    // at most: each reads all indices

struct by_index { // item k goes to row index[k]
    int64_t n;
    __device__ int64_t row(zx_dtype ti, const void *index, int64_t k, zx_fault *fault) const
    {
        return zx_index_of(ti, index, k, n, fault);
    }
};
struct by_tuple {
    zx_tuples t;
    __device__ int64_t row(zx_dtype ti, const void *index, int64_t k, zx_fault *fault) const
    {
        const int64_t at = zx_tuple_at(t, ti, index, k, fault);
        return at < 0 ? -1 : at / t.run;
    }
};

typedef struct table {
    zx_dtype dtype;
    int64_t items, rows, run; // of one outer index
    int64_t tile, tiles;      // rows of one, and how many
    int reduction;
} table;

// Items of the tile among LIST from `base` on, in order: how many. All threads get there.
template <class W>
static __device__ int list_items(const W &where, zx_dtype ti, const void *index, const table &t,
                                 int64_t first, int64_t base, int64_t *item, int64_t *row,
                                 zx_fault *fault)
{
    __shared__ int of_warp[LIST / 32];
    const int64_t k = base + threadIdx.x;
    const int64_t r = k < t.items ? where.row(ti, index, k, fault) : -1;
    const bool mine = r >= first && r < first + t.tile;
    const unsigned ballot = __ballot_sync(0xffffffffu, mine), warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) of_warp[warp] = __popc(ballot);
    const int n = __syncthreads_count(mine);
    if (n == 0) return 0;
    int at = __popc(ballot & ((1u << threadIdx.x % 32) - 1));
    for (unsigned w = 0; w < warp; w++) at += of_warp[w];
    if (mine) {
        item[at] = k;
        row[at] = r;
    }
    __syncthreads();
    return n;
}

template <class W, class C>
__global__ void __launch_bounds__(LIST) scatter_rows(const void *x, zx_dtype ti, const void *index,
                                                     void *y, W where, table t, zx_fault *fault)
{
    __shared__ int64_t item[LIST], row[LIST];
    const int64_t outer = blockIdx.x / t.tiles, first = blockIdx.x % t.tiles * t.tile;
    const int64_t from = outer * t.items * t.run, to = outer * t.rows * t.run;
    for (int64_t base = 0; base < t.items; base += LIST) {
        const int n = list_items(where, ti, index, t, first, base, item, row, fault);
        if (n == 0) continue;
        for (int64_t col = blockIdx.y * LIST + threadIdx.x; col < t.run;
             col += (int64_t)gridDim.y * LIST) {
            int64_t at = to + row[0] * t.run + col;
            C sum = zx_get<C>(t.dtype, y, at);
            for (int j = 0; j < n; j++) {
                const int64_t next = to + row[j] * t.run + col;
                if (next != at) {
                    zx_put<C>(t.dtype, y, at, sum);
                    at = next;
                    sum = zx_get<C>(t.dtype, y, at);
                }
                sum = join(t.reduction, sum, zx_get<C>(t.dtype, x, from + item[j] * t.run + col));
            }
            zx_put<C>(t.dtype, y, at, sum);
        }
        __syncthreads();
    }
}

// x is the items' rows, y the table, which holds what they are joined to.
template <class W>
cudaError_t launch_rows(const zx_call *c, const zx_view *x, W where, int64_t outer, table t)
{
    if (t.items == 0 || t.rows == 0 || t.run == 0 || outer == 0) return cudaSuccess;
    const int64_t most = min((long long)TILES, ((long long)t.rows + LEAST - 1) / LEAST);
    t.tile = (t.rows + most - 1) / most;
    t.tiles = (t.rows + t.tile - 1) / t.tile;
    const int64_t columns = min(((long long)t.run + LIST - 1) / LIST, 65535LL);
    return zx_of_class(t.dtype, [&](auto zero) {
        using C = decltype(zero);
        return zx_launch((scatter_rows<W, C>), dim3((unsigned)(outer * t.tiles), (unsigned)columns),
                         LIST, 0, c->cuda->stream, (const void *)x->data, c->in[1].type.dtype,
                         (const void *)c->in[1].data, c->out[0].data, where, t, c->fault);
    });
}

// The output before anything is added: a copy of `first`, or zeros.
zx_status start(const zx_call *c, const zx_view *first, const char *what, zx_err *err)
{
    const zx_view *y = &c->out[0];
    const size_t bytes = (size_t)zx_type_bytes(&y->type);
    if (bytes == 0 || (first != NULL && first->data == y->data)) return ZX_OK;
    return zx_cuda_check(first == NULL ? cudaMemsetAsync(y->data, 0, bytes, c->cuda->stream)
                                       : cudaMemcpyAsync(y->data, first->data, bytes,
                                                         cudaMemcpyDeviceToDevice, c->cuda->stream),
                         what, err);
}

zx_status gather_grad(const zx_call *c, zx_err *err)
{
    const zx_axis a =
        zx_axis_of(&c->out[0].type.shape, (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0));
    const table t = {ZX_F32, zx_count(&c->in[1]), a.n, a.inner, 0, 0, ADD};
    ZX_TRY(start(c, zx_has(c, 2) ? &c->in[2] : NULL, "gather_grad", err));
    return zx_cuda_check(launch_rows(c, &c->in[0], by_index{a.n}, a.outer, t), "gather_grad", err);
}
cudaError_t launch_tuples(const zx_call *c, const zx_view *x, int reduction)
{
    const zx_tuples u = zx_tuples_of(c, &c->out[0].type.shape);
    const int64_t rows = u.run > 0 ? zx_count(&c->out[0]) / u.run : 0;
    const table t = {x->type.dtype, u.count, rows, u.run, 0, 0, reduction};
    return launch_rows(c, x, by_tuple{u}, 1, t);
}
zx_status gather_nd_grad(const zx_call *c, zx_err *err)
{
    ZX_TRY(start(c, NULL, "gather_nd_grad", err));
    return zx_cuda_check(launch_tuples(c, &c->in[0], ADD), "gather_nd_grad", err);
}
zx_status scatter_nd(const zx_call *c, zx_err *err)
{
    const int reduction = (int)zx_attr_int(c->attrs, ZX_A_REDUCTION, PUT);
    ZX_TRY(start(c, &c->in[0], "scatter_nd", err));
    return zx_cuda_check(launch_tuples(c, &c->in[2], reduction), "scatter_nd", err);
}

// ---- elements -----------------------------------------------------------------------------------
template <class C>
__global__ void __launch_bounds__(ZX_BLOCK)
    scatter_lines(zx_dtype dtype, const void *x, zx_dtype ti, const void *index, void *y,
                  int64_t lines, zx_elements e, int reduction, zx_fault *fault)
{
    ZX_FOR_EACH(line, lines)
    {
        int64_t rest = line, from = 0, to = 0;
        for (uint32_t d = e.rank; d-- > 0;) {
            if (d == e.axis) continue;
            from += rest % e.dim[d] * e.own[d];
            to += rest % e.dim[d] * e.stride[d];
            rest /= e.dim[d];
        }
        for (int64_t i = 0; i < e.dim[e.axis]; i++) {
            const int64_t k = zx_index_of(ti, index, from + i * e.own[e.axis], e.n, fault);
            if (k < 0) continue;
            const int64_t at = to + k * e.stride[e.axis];
            zx_put<C>(dtype, y, at,
                      join(reduction, zx_get<C>(dtype, y, at),
                           zx_get<C>(dtype, x, from + i * e.own[e.axis])));
        }
    }
}
cudaError_t launch_lines(const zx_call *c, const zx_view *x, int reduction)
{
    const zx_elements e = zx_elements_of(c, &c->out[0].type.shape);
    const zx_dtype t = x->type.dtype;
    const int64_t n = zx_count(&c->in[1]);
    if (n == 0) return cudaSuccess;
    return zx_of_class(t, [&](auto zero) {
        using C = decltype(zero);
        const int64_t lines = n / e.dim[e.axis];
        return zx_launch_each(c, lines, scatter_lines<C>, t, (const void *)x->data,
                              c->in[1].type.dtype, (const void *)c->in[1].data, c->out[0].data,
                              lines, e, reduction, c->fault);
    });
}
zx_status scatter_add_elements(const zx_call *c, zx_err *err)
{
    ZX_TRY(start(c, NULL, "scatter_add_elements", err));
    return zx_cuda_check(launch_lines(c, &c->in[0], ADD), "scatter_add_elements", err);
}
zx_status scatter_elements(const zx_call *c, zx_err *err)
{
    const int reduction = (int)zx_attr_int(c->attrs, ZX_A_REDUCTION, PUT);
    ZX_TRY(start(c, &c->in[0], "scatter_elements", err));
    return zx_cuda_check(launch_lines(c, &c->in[2], reduction), "scatter_elements", err);
}

} // namespace

const zx_kernel zx_cuda_gather_grad = {zx_prepare_f32, NULL, gather_grad};
const zx_kernel zx_cuda_gather_nd_grad = {zx_prepare_f32, NULL, gather_nd_grad};
const zx_kernel zx_cuda_scatter_nd = {NULL, NULL, scatter_nd};
const zx_kernel zx_cuda_scatter_add_elements = {zx_prepare_f32, NULL, scatter_add_elements};
const zx_kernel zx_cuda_scatter_elements = {NULL, NULL, scatter_elements};

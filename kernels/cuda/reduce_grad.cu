// reduce_grad.cu - gradients of the reductions that aren't plain sums, float32. dy and y keep the
// reduced dims as ones, so they are indexed by the kept dims alone; a warp or a block has a result.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

typedef struct parts {
    zx_dims kept, reduced;
} parts;
parts parts_of(const zx_call *c)
{
    const zx_shape *s = &c->in[1].type.shape;
    const zx_reduction r = zx_reduction_make(s, zx_axes_bits(c, s->rank));
    const parts p = {r.kept, r.reduced};
    return p;
}

// dy to the first element (in row-major order) equal to y, or NaN where y is.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    pick(const float *dy, const float *x, const float *y, float *dx, parts p)
{
    const int64_t o = zx_team_row<N>();
    if (o >= p.kept.count) return; // a warp as a whole: blocks have a result each
    const int64_t base = zx_dims_place(p.kept, o);
    const float most = y[o];
    long long first = INT64_MAX;
    for (int64_t r = zx_team_place<N>(); r < p.reduced.count && first == INT64_MAX; r += N) {
        const float v = x[base + zx_dims_place(p.reduced, r)];
        if (v == most || (most != most && v != v)) first = r;
    }
    first = zx_team_join<N>(first, [](long long a, long long b) { return a < b ? a : b; });
    for (int64_t r = zx_team_place<N>(); r < p.reduced.count; r += N)
        dx[base + zx_dims_place(p.reduced, r)] = r == first ? dy[o] : 0.0f;
}

// dy times the product of the others: of all elements but a single zero, where there is one.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    product(const float *dy, const float *x, const float *, float *dx, parts p)
{
    const int64_t o = zx_team_row<N>();
    if (o >= p.kept.count) return;
    const int64_t base = zx_dims_place(p.kept, o);
    double zeros = 0, others = 1;
    for (int64_t r = zx_team_place<N>(); r < p.reduced.count; r += N) {
        const double v = (double)x[base + zx_dims_place(p.reduced, r)];
        if (v == 0)
            zeros++;
        else
            others *= v;
    }
    zeros = zx_team_sum<N>(zeros);
    others = zx_team_join<N>(others, [](double a, double b) { return a * b; });
    for (int64_t r = zx_team_place<N>(); r < p.reduced.count; r += N) {
        const int64_t at = base + zx_dims_place(p.reduced, r);
        const double v = (double)x[at], d = (double)dy[o];
        dx[at] = (float)(zeros == 0 ? d * (others / v) : zeros == 1 && v == 0 ? d * others : 0.0);
    }
}

template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    length(const float *dy, const float *x, const float *y, float *dx, parts p)
{
    const int64_t o = zx_team_row<N>();
    if (o >= p.kept.count) return;
    const int64_t base = zx_dims_place(p.kept, o);
    for (int64_t r = zx_team_place<N>(); r < p.reduced.count; r += N) {
        const int64_t at = base + zx_dims_place(p.reduced, r);
        dx[at] = y[o] == 0.0f ? 0.0f : dy[o] * (x[at] / y[o]);
    }
}

#define KERNEL(name, kernel)                                                                       \
    zx_status run_##kernel(const zx_call *c, zx_err *err)                                          \
    {                                                                                              \
        const parts p = parts_of(c);                                                               \
        return zx_cuda_check(                                                                      \
            zx_launch_rows(c, p.kept.count, p.reduced.count, kernel, (const float *)c->in[0].data, \
                           (const float *)c->in[1].data, (const float *)c->in[2].data,             \
                           (float *)c->out[0].data, p),                                            \
            name, err);                                                                            \
    }
KERNEL("reduce_pick_grad", pick)
KERNEL("reduce_prod_grad", product)
KERNEL("reduce_l2_grad", length)

} // namespace

const zx_kernel zx_cuda_reduce_pick_grad = {zx_prepare_f32, NULL, run_pick};
const zx_kernel zx_cuda_reduce_prod_grad = {zx_prepare_f32, NULL, run_product};
const zx_kernel zx_cuda_reduce_l2_grad = {zx_prepare_f32, NULL, run_length};

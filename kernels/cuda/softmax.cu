// softmax.cu - Softmax, LogSoftmax and their gradients along any axis, float32.
//
// Along the last axis a warp or a block has a row. Along another one a thread has a column, and its
// neighbours' columns lie beside it.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

// ---- rows ---------------------------------------------------------------------------------------
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    softmax_rows(const float *x, float *y, int64_t rows, int64_t n, bool log_form)
{
    const int64_t row = zx_team_row<N>();
    if (row >= rows) return; // a warp as a whole: blocks have a row each
    x += row * n;
    y += row * n;
    float most = -INFINITY;
    for (int64_t i = zx_team_place<N>(); i < n; i += N) most = x[i] > most ? x[i] : most;
    most = zx_team_max<N>(most);
    double sum = 0;
    for (int64_t i = zx_team_place<N>(); i < n; i += N) sum += (double)expf(x[i] - most);
    sum = zx_team_sum<N>(sum);
    const float rest = log_form ? (float)log(sum) : (float)(1.0 / sum);
    for (int64_t i = zx_team_place<N>(); i < n; i += N)
        y[i] = log_form ? (x[i] - most) - rest : expf(x[i] - most) * rest;
}

// A row that was masked out as a whole is NaN, and whoever knows puts zeros in its place: then no
// gradient arrives, and none leaves. 0 * NaN would say otherwise.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    grad_rows(const float *dy, const float *y, float *dx, int64_t rows, int64_t n, bool log_form)
{
    const int64_t row = zx_team_row<N>();
    if (row >= rows) return;
    dy += row * n;
    y += row * n;
    dx += row * n;
    const bool undefined = y[0] != y[0];
    float any = 0;
    double sum = 0;
    for (int64_t i = zx_team_place<N>(); i < n; i += N) {
        sum += log_form ? (double)dy[i] : (double)dy[i] * (double)y[i];
        if (dy[i] != 0) any = 1;
    }
    const float total = (float)zx_team_sum<N>(sum);
    const bool none = zx_team_max<N>(any) == 0 && undefined;
    for (int64_t i = zx_team_place<N>(); i < n; i += N)
        dx[i] = none ? 0.0f : log_form ? dy[i] - expf(y[i]) * total : y[i] * (dy[i] - total);
}

// ---- columns ------------------------------------------------------------------------------------
__global__ void __launch_bounds__(ZX_BLOCK)
    softmax_columns(const float *x, float *y, int64_t columns, int64_t n, int64_t inner,
                    bool log_form)
{
    ZX_FOR_EACH(c, columns)
    {
        const int64_t start = c / inner * n * inner + c % inner, end = start + n * inner;
        float most = -INFINITY;
        for (int64_t i = start; i < end; i += inner) most = x[i] > most ? x[i] : most;
        double sum = 0;
        for (int64_t i = start; i < end; i += inner) sum += (double)expf(x[i] - most);
        const float rest = log_form ? (float)log(sum) : (float)(1.0 / sum);
        for (int64_t i = start; i < end; i += inner)
            y[i] = log_form ? (x[i] - most) - rest : expf(x[i] - most) * rest;
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    grad_columns(const float *dy, const float *y, float *dx, int64_t columns, int64_t n,
                 int64_t inner, bool log_form)
{
    ZX_FOR_EACH(c, columns)
    {
        const int64_t start = c / inner * n * inner + c % inner, end = start + n * inner;
        bool none = y[start] != y[start];
        double sum = 0;
        for (int64_t i = start; i < end; i += inner) {
            sum += log_form ? (double)dy[i] : (double)dy[i] * (double)y[i];
            if (dy[i] != 0) none = false;
        }
        const float total = (float)sum;
        for (int64_t i = start; i < end; i += inner)
            dx[i] = none ? 0.0f : log_form ? dy[i] - expf(y[i]) * total : y[i] * (dy[i] - total);
    }
}

// ---- launches -----------------------------------------------------------------------------------
zx_axis axis_of(const zx_call *c)
{
    const zx_shape *s = &c->in[0].type.shape;
    const zx_axis one = {1, 1, 1};
    if (s->rank == 0) return one;
    return zx_axis_of(s, (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, s->rank - 1));
}
zx_status softmax(const zx_call *c, zx_err *err)
{
    const zx_axis a = axis_of(c);
    const bool log_form = c->op == ZX_K_LOG_SOFTMAX;
    const float *x = (const float *)c->in[0].data;
    float *y = (float *)c->out[0].data;
    const int64_t lines = a.n > 0 ? a.outer * a.inner : 0;
    const cudaError_t e =
        a.inner == 1
            ? zx_launch_rows(c, lines, a.n, softmax_rows, x, y, lines, a.n, log_form)
            : zx_launch_each(c, lines, softmax_columns, x, y, lines, a.n, a.inner, log_form);
    return zx_cuda_check(e, "softmax", err);
}
zx_status softmax_grad(const zx_call *c, zx_err *err)
{
    const zx_axis a = axis_of(c);
    const bool log_form = c->op == ZX_K_LOG_SOFTMAX_GRAD;
    const float *dy = (const float *)c->in[0].data, *y = (const float *)c->in[1].data;
    float *dx = (float *)c->out[0].data;
    const int64_t lines = a.n > 0 ? a.outer * a.inner : 0;
    const cudaError_t e =
        a.inner == 1
            ? zx_launch_rows(c, lines, a.n, grad_rows, dy, y, dx, lines, a.n, log_form)
            : zx_launch_each(c, lines, grad_columns, dy, y, dx, lines, a.n, a.inner, log_form);
    return zx_cuda_check(e, "softmax_grad", err);
}

} // namespace

const zx_kernel zx_cuda_softmax = {zx_prepare_f32, NULL, softmax};
const zx_kernel zx_cuda_softmax_grad = {zx_prepare_f32, NULL, softmax_grad};

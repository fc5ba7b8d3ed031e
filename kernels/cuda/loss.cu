// loss.cu - softmax cross entropy and negative log likelihood with their gradients, float32.
//
// Scores are [N][C][inner] and labels [N][inner]: a line is the C scores of one label, and a warp's
// or a block's. Labels that are ignored or wrong (a fault) have no loss and no gradient.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/loss.cuh"

namespace
{

// ---- cross entropy ------------------------------------------------------------------------------
// With weights w, smoothing s: (1 - s) w_y (lse - x_y) + s / C sum of w (lse - x).
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    entropy(const float *x, const void *labels, const float *weights, float *lses, double *of_line,
            lines l, zx_fault *fault)
{
    const int64_t line = zx_team_row<N>();
    if (line >= l.count) return; // a warp as a whole: blocks have a line each
    const int64_t y = class_of(l, labels, line, zx_team_place<N>() == 0 ? fault : NULL);
    x += start_of(l, line);
    float most = -INFINITY;
    for (int64_t c = zx_team_place<N>(); c < l.classes; c += N)
        most = x[c * l.inner] > most ? x[c * l.inner] : most;
    most = zx_team_max<N>(most);
    double sum = 0, of_weights = 0, of_scores = 0;
    for (int64_t c = zx_team_place<N>(); c < l.classes; c += N) {
        const float s = x[c * l.inner];
        sum += (double)expf(s - most);
        if (l.smoothing == 0) continue;
        of_weights += weight_of(weights, c);
        of_scores += weight_of(weights, c) * (double)s;
    }
    const double lse = (double)most + log(zx_team_sum<N>(sum));
    if (l.smoothing != 0) {
        of_weights = zx_team_sum<N>(of_weights);
        of_scores = zx_team_sum<N>(of_scores);
    }
    if (zx_team_place<N>() != 0) return;
    if (lses != NULL) lses[line] = (float)lse;
    double loss = y < 0 ? 0 : weight_of(weights, y) * (lse - (double)x[y * l.inner]);
    if (y >= 0 && l.smoothing != 0)
        loss = (1 - l.smoothing) * loss +
               l.smoothing / (double)l.classes * (lse * of_weights - of_scores);
    of_line[line] = loss;
}

zx_status prepare_loss(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    const zx_axis a = zx_axis_of(&c->in[0].type.shape, 1);
    *work_bytes = (uint64_t)(a.outer * a.inner) * sizeof(double);
    return zx_prepare_f32(c, work_bytes, state, err);
}
zx_status prepare_grad(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    *work_bytes = sizeof(double); // the divisor
    return zx_prepare_f32(c, work_bytes, state, err);
}
const float *weights_of(const zx_call *c, uint32_t i)
{
    return zx_has(c, i) ? (const float *)c->in[i].data : NULL;
}

zx_status cross_entropy(const zx_call *c, zx_err *err)
{
    const lines l = lines_of(c, &c->in[0].type.shape, &c->in[1]);
    const float *weights = weights_of(c, 2);
    const void *labels = c->in[1].data;
    ZX_TRY(zx_cuda_check(zx_launch_rows(c, l.count, l.classes, entropy,
                                        (const float *)c->in[0].data, labels, weights,
                                        (float *)c->out[1].data, (double *)c->work, l, c->fault),
                         "cross_entropy", err));
    return zx_cuda_check(finish(c, l, labels, weights, (const double *)c->work), "cross_entropy",
                         err);
}

// With targets q (one at the label, smoothed): dx = f (Q softmax(x) - q), Q the sum of q.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    entropy_grad(const float *dloss, const float *x, const void *labels, const float *lses,
                 const float *weights, const double *divisor, float *dx, lines l, zx_fault *fault)
{
    const int64_t line = zx_team_row<N>(), start = start_of(l, line);
    if (line >= l.count) return;
    const int64_t y = class_of(l, labels, line, zx_team_place<N>() == 0 ? fault : NULL);
    double all = l.smoothing != 0 && weights == NULL ? (double)l.classes : 0;
    if (l.smoothing != 0 && weights != NULL) {
        for (int64_t c = zx_team_place<N>(); c < l.classes; c += N) all += (double)weights[c];
        all = zx_team_sum<N>(all);
    }
    const double over = l.reduction == REDUCTION_MEAN ? *divisor : 1.0;
    const double f = (double)dloss[l.reduction == REDUCTION_NONE ? line : 0] / over;
    const double own = y < 0 ? 0 : (1 - l.smoothing) * weight_of(weights, y);
    const double even = l.smoothing / (double)l.classes;
    const float factor = (float)(f * (own + even * all)), minus = (float)(f * even);
    const float at_label = (float)(f * own), lse = lses[line];
    for (int64_t c = zx_team_place<N>(); c < l.classes; c += N) {
        const int64_t at = start + c * l.inner;
        float d = factor * expf(x[at] - lse);
        if (l.smoothing != 0) d -= weights != NULL ? minus * weights[c] : minus;
        if (c == y) d -= at_label;
        dx[at] = y < 0 ? 0.0f : d;
    }
}
zx_status cross_entropy_grad(const zx_call *c, zx_err *err)
{
    const lines l = lines_of(c, &c->in[1].type.shape, &c->in[2]);
    const float *weights = weights_of(c, 4);
    const void *labels = c->in[2].data;
    ZX_TRY(
        zx_cuda_check(divide(c, l, labels, weights, (double *)c->work), "cross_entropy_grad", err));
    return zx_cuda_check(
        zx_launch_rows(c, l.count, l.classes, entropy_grad, (const float *)c->in[0].data,
                       (const float *)c->in[1].data, labels, (const float *)c->in[3].data, weights,
                       (const double *)c->work, (float *)c->out[0].data, l, c->fault),
        "cross_entropy_grad", err);
}

// ---- negative log likelihood --------------------------------------------------------------------
__global__ void __launch_bounds__(ZX_BLOCK)
    likelihood(const float *x, const void *labels, const float *weights, double *of_line, lines l,
               zx_fault *fault)
{
    ZX_FOR_EACH(i, l.count)
    {
        const int64_t y = class_of(l, labels, i, fault);
        of_line[i] = y < 0 ? 0 : -weight_of(weights, y) * (double)x[start_of(l, i) + y * l.inner];
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    likelihood_grad(const float *dloss, const void *labels, const float *weights,
                    const double *divisor, float *dx, lines l, zx_fault *fault)
{
    ZX_FOR_EACH(i, l.count)
    {
        const int64_t y = class_of(l, labels, i, fault);
        if (y < 0) continue;
        const double over = l.reduction == REDUCTION_MEAN ? *divisor : 1.0;
        const double f = (double)dloss[l.reduction == REDUCTION_NONE ? i : 0] / over;
        dx[start_of(l, i) + y * l.inner] = (float)(-f * weight_of(weights, y));
    }
}
zx_status nll_loss(const zx_call *c, zx_err *err)
{
    const lines l = lines_of(c, &c->in[0].type.shape, &c->in[1]);
    const float *weights = weights_of(c, 2);
    const void *labels = c->in[1].data;
    ZX_TRY(zx_cuda_check(zx_launch_each(c, l.count, likelihood, (const float *)c->in[0].data,
                                        labels, weights, (double *)c->work, l, c->fault),
                         "nll_loss", err));
    return zx_cuda_check(finish(c, l, labels, weights, (const double *)c->work), "nll_loss", err);
}
zx_status nll_loss_grad(const zx_call *c, zx_err *err)
{
    const zx_view *dx = &c->out[0];
    const lines l = lines_of(c, &dx->type.shape, &c->in[1]);
    const float *weights = weights_of(c, 2);
    const void *labels = c->in[1].data;
    const size_t bytes = (size_t)zx_type_bytes(&dx->type);
    if (bytes == 0) return ZX_OK;
    ZX_TRY(
        zx_cuda_check(cudaMemsetAsync(dx->data, 0, bytes, c->cuda->stream), "nll_loss_grad", err));
    ZX_TRY(zx_cuda_check(divide(c, l, labels, weights, (double *)c->work), "nll_loss_grad", err));
    return zx_cuda_check(zx_launch_each(c, l.count, likelihood_grad, (const float *)c->in[0].data,
                                        labels, weights, (const double *)c->work, (float *)dx->data,
                                        l, c->fault),
                         "nll_loss_grad", err);
}

} // namespace

const zx_kernel zx_cuda_cross_entropy = {prepare_loss, NULL, cross_entropy};
const zx_kernel zx_cuda_cross_entropy_grad = {prepare_grad, NULL, cross_entropy_grad};
const zx_kernel zx_cuda_nll_loss = {prepare_loss, NULL, nll_loss};
const zx_kernel zx_cuda_nll_loss_grad = {prepare_grad, NULL, nll_loss_grad};

// batch_norm.c - BatchNormalization in training form and its gradient, float32. x is [N][C][inner];
// threads share the channels.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>

typedef struct bn_job {
    int64_t n, c, inner;
    const float *x, *dy, *scale, *bias, *mean_in, *inv_in;
    const float *run_mean, *run_var;
    float *y, *new_mean, *new_var, *mean, *inv, *dx, *dscale, *dbias;
    double epsilon, momentum;
    bool unbiased;
} bn_job;

static void bn_sizes(bn_job *j, const zx_shape *s)
{
    j->n = s->dim[0];
    j->c = s->dim[1];
    j->inner = zx_shape_span(s, 2, s->rank);
}

ZX_CLONES static void scale_row(const float *x, float *y, int64_t n, float mean, float factor,
                                float bias)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * factor + bias;
}

static void bn_channels(void *ctx, int64_t from, int64_t to)
{
    const bn_job *j = ctx;
    const double count = (double)j->n * (double)j->inner;
    for (int64_t c = from; c < to; c++) {
        double sum = 0, dev = 0;
        for (int64_t b = 0; b < j->n; b++)
            sum += zx_row_sum(j->x + (b * j->c + c) * j->inner, j->inner);
        const double mean = sum / count;
        for (int64_t b = 0; b < j->n; b++)
            dev += zx_row_deviation(j->x + (b * j->c + c) * j->inner, j->inner, mean);
        const double var = dev / count;
        const float inv = (float)(1.0 / sqrt(var + j->epsilon));
        const float scale = j->scale[c], bias = j->bias[c];
        const float old_mean = j->run_mean[c], old_var = j->run_var[c];
        for (int64_t b = 0; b < j->n; b++) {
            const int64_t at = (b * j->c + c) * j->inner;
            scale_row(j->x + at, j->y + at, j->inner, (float)mean, inv * scale, bias);
        }
        const double kept = j->unbiased ? dev / (count - 1) : var;
        if (j->new_mean)
            j->new_mean[c] = (float)((double)old_mean * j->momentum + mean * (1 - j->momentum));
        if (j->new_var)
            j->new_var[c] = (float)((double)old_var * j->momentum + kept * (1 - j->momentum));
        if (j->mean) j->mean[c] = (float)mean;
        if (j->inv) j->inv[c] = inv;
    }
}

static zx_status batch_norm(const zx_call *call, zx_err *err)
{
    bn_job j = {.x = call->in[0].data,
                .scale = call->in[1].data,
                .bias = call->in[2].data,
                .run_mean = call->in[3].data,
                .run_var = call->in[4].data,
                .y = call->out[0].data,
                .new_mean = call->out[1].data,
                .new_var = call->out[2].data,
                .mean = call->out[3].data,
                .inv = call->out[4].data,
                .epsilon = zx_attr_float(call->attrs, ZX_A_EPSILON, 1e-5),
                .momentum = zx_attr_float(call->attrs, ZX_A_MOMENTUM, 0.9),
                .unbiased = zx_attr_int(call->attrs, ZX_A_UNBIASED, 0) != 0};
    ZX_TRY(zx_need_f32(call, err));
    bn_sizes(&j, &call->in[0].type.shape);
    const bool small = zx_count(&call->in[0]) < ZX_GRAIN / 4;
    zx_split(small ? 1 : call->threads, j.c, 1, 2, bn_channels, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_batch_norm = {.run = batch_norm};

// With h = (x - mean) inv: dbias = sum dy; dscale = sum dy h; dx = scale inv (dy - dbias/m - h
// dscale/m).
ZX_CLONES static void add_sums(const float *dy, const float *x, int64_t n, float mean, float inv,
                               double s[2])
{
    double g_lane[ZX_LANES] = {0}, h_lane[ZX_LANES] = {0};
    int64_t i = 0;
    for (; i + ZX_LANES <= n; i += ZX_LANES) {
        ZX_SIMD for (int k = 0; k < ZX_LANES; k++)
        {
            g_lane[k] += (double)dy[i + k];
            h_lane[k] += (double)dy[i + k] * (double)((x[i + k] - mean) * inv);
        }
    }
    for (int64_t k = i; k < n; k++) {
        g_lane[k - i] += (double)dy[k];
        h_lane[k - i] += (double)dy[k] * (double)((x[k] - mean) * inv);
    }
    double g = 0, h = 0;
    for (int k = 0; k < ZX_LANES; k++) {
        g += g_lane[k];
        h += h_lane[k];
    }
    s[0] += g;
    s[1] += h;
}

ZX_CLONES static void dx_row(const float *dy, const float *x, float *dx, int64_t n, float mean,
                             float inv, float factor, float g_avg, float h_avg)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] =
        factor * ((dy[i] - g_avg) - (x[i] - mean) * inv * h_avg);
}

static void bn_grad_channels(void *ctx, int64_t from, int64_t to)
{
    const bn_job *j = ctx;
    const double count = (double)j->n * (double)j->inner;
    for (int64_t c = from; c < to; c++) {
        const float mean = j->mean_in[c], inv = j->inv_in[c];
        double s[2] = {0, 0};
        for (int64_t b = 0; b < j->n; b++) {
            const int64_t at = (b * j->c + c) * j->inner;
            add_sums(j->dy + at, j->x + at, j->inner, mean, inv, s);
        }
        for (int64_t b = 0; j->dx && b < j->n; b++) {
            const int64_t at = (b * j->c + c) * j->inner;
            dx_row(j->dy + at, j->x + at, j->dx + at, j->inner, mean, inv, j->scale[c] * inv,
                   (float)(s[0] / count), (float)(s[1] / count));
        }
        if (j->dscale) j->dscale[c] = (float)s[1];
        if (j->dbias) j->dbias[c] = (float)s[0];
    }
}

static zx_status batch_norm_grad(const zx_call *call, zx_err *err)
{
    bn_job j = {.dy = call->in[0].data,
                .x = call->in[1].data,
                .scale = call->in[2].data,
                .mean_in = call->in[3].data,
                .inv_in = call->in[4].data,
                .dx = call->out[0].data,
                .dscale = call->out[1].data,
                .dbias = call->out[2].data};
    ZX_TRY(zx_need_f32(call, err));
    bn_sizes(&j, &call->in[1].type.shape);
    const bool small = zx_count(&call->in[1]) < ZX_GRAIN / 4;
    zx_split(small ? 1 : call->threads, j.c, 1, 2, bn_grad_channels, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_batch_norm_grad = {.run = batch_norm_grad};

// norm.c - LayerNormalization and RMSNormalization with their gradients, float32.
//
// x is [rows][n]. Statistics are made in double lanes, the variance in a second pass over the row.
// x, y, dy and dx may be of 16 bits: a row of them is made float32 in scratch.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>

typedef struct norm_job norm_job;
struct norm_job {
    const zx_call *call;
    int64_t rows, n;
    double epsilon;
    const zx_view *x, *dy;     // [rows][n]
    const float *scale, *bias; // [n] or NULL
    const zx_view *y;          // [rows][n]: y or dx
    float *mean, *inv;         // [rows]; may be NULL
    const float *mean_in, *inv_in;
    float *rooms; // [pieces][2][n]: of each piece of the rows, where some are of 16 bits
    int64_t pieces;
    void (*rows_of)(const norm_job *j, int64_t from, int64_t to, float *const room[2]);
};

static void norm_sizes(norm_job *j, const zx_view *x)
{
    const zx_shape *s = &x->type.shape;
    const uint32_t axis = (uint32_t)zx_attr_int(j->call->attrs, ZX_A_AXIS, s->rank - 1);
    j->rows = zx_shape_span(s, 0, axis);
    j->n = zx_shape_span(s, axis, s->rank);
    j->epsilon = zx_attr_float(j->call->attrs, ZX_A_EPSILON, 1e-5);
}

static uint64_t rooms_bytes(const zx_call *call, int64_t n)
{
    return zx_has_16(call) ? (uint64_t)call->threads * 2 * (uint64_t)n * sizeof(float) : 0;
}

static void norm_pieces(void *ctx, int64_t from, int64_t to)
{
    const norm_job *j = ctx;
    for (int64_t piece = from; piece < to; piece++) {
        float *room[2] = {NULL, NULL};
        for (int k = 0; k < 2 && j->rooms != NULL; k++) room[k] = j->rooms + (2 * piece + k) * j->n;
        j->rows_of(j, j->rows * piece / j->pieces, j->rows * (piece + 1) / j->pieces, room);
    }
}

static void run_rows(norm_job *j)
{
    const int threads = j->rows < ZX_GRAIN / 4 / (j->n + 1) + 2 ? 1 : j->call->threads;
    j->pieces = zx_max_i64(1, zx_min_i64(threads, j->rows));
    zx_split(threads, j->pieces, 1, 2, norm_pieces, j);
}

static const float *row_of(const zx_view *v, int64_t r, int64_t n, float *room)
{
    return zx_floats(v->type.dtype, v->data, r * n, n, room);
}

// ---- forward ------------------------------------------------------------------------------------
ZX_CLONES static void normalise(const float *x, float *y, int64_t n, float mean, float inv,
                                const float *scale, const float *bias)
{
    if (scale && bias) {
        ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv * scale[i] + bias[i];
    } else if (scale) {
        ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv * scale[i];
    } else if (bias) {
        ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv + bias[i];
    } else {
        ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * inv;
    }
}

static void layer_norm_rows(const norm_job *j, int64_t from, int64_t to, float *const room[2])
{
    for (int64_t r = from; r < to; r++) {
        const float *x = row_of(j->x, r, j->n, room[0]);
        float *y = zx_floats_to(j->y->type.dtype, j->y->data, r * j->n, room[1]);
        const double mean = zx_row_sum(x, j->n) / (double)j->n;
        const double var = zx_row_deviation(x, j->n, mean) / (double)j->n;
        const float inv = (float)(1.0 / sqrt(var + j->epsilon));
        normalise(x, y, j->n, (float)mean, inv, j->scale, j->bias);
        zx_floats_put(j->y->type.dtype, y, j->y->data, r * j->n, j->n);
        if (j->mean) j->mean[r] = (float)mean;
        if (j->inv) j->inv[r] = inv;
    }
}

static zx_status norm_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                              zx_err *err ZX_UNUSED)
{
    norm_job j = {.call = call};
    norm_sizes(&j, &call->in[0]);
    *work_bytes = rooms_bytes(call, j.n);
    return ZX_OK;
}

static zx_status norm_run(norm_job *j, zx_err *err)
{
    ZX_TRY(zx_need_f32_or_16(j->call, err));
    norm_sizes(j, &j->call->in[0]);
    if (zx_has_16(j->call)) j->rooms = j->call->work;
    run_rows(j);
    return ZX_OK;
}

static zx_status layer_norm(const zx_call *call, zx_err *err)
{
    norm_job j = {.call = call,
                  .rows_of = layer_norm_rows,
                  .x = &call->in[0],
                  .scale = zx_has(call, 1) ? call->in[1].data : NULL,
                  .bias = zx_has(call, 2) ? call->in[2].data : NULL,
                  .y = &call->out[0],
                  .mean = call->out[1].data,
                  .inv = call->out[2].data};
    return norm_run(&j, err);
}
const zx_kernel zx_cpu_layer_norm = {.prepare = norm_prepare, .run = layer_norm};

static void rms_norm_rows(const norm_job *j, int64_t from, int64_t to, float *const room[2])
{
    for (int64_t r = from; r < to; r++) {
        const float *x = row_of(j->x, r, j->n, room[0]);
        float *y = zx_floats_to(j->y->type.dtype, j->y->data, r * j->n, room[1]);
        const double ms = zx_row_sum_square(x, j->n) / (double)j->n;
        const float inv = (float)(1.0 / sqrt(ms + j->epsilon));
        normalise(x, y, j->n, 0.0f, inv, j->scale, NULL);
        zx_floats_put(j->y->type.dtype, y, j->y->data, r * j->n, j->n);
        if (j->inv) j->inv[r] = inv;
    }
}

static zx_status rms_norm(const zx_call *call, zx_err *err)
{
    norm_job j = {.call = call,
                  .rows_of = rms_norm_rows,
                  .x = &call->in[0],
                  .scale = zx_has(call, 1) ? call->in[1].data : NULL,
                  .y = &call->out[0],
                  .inv = call->out[1].data};
    return norm_run(&j, err);
}
const zx_kernel zx_cpu_rms_norm = {.prepare = norm_prepare, .run = rms_norm};

// ---- backward -----------------------------------------------------------------------------------
// With g = dy * scale and h = (x - mean) * inv: dx = inv * (g - avg(g) - h * avg(g h)), without
// avg(g) for RMS;  dscale = sum dy h;  dbias = sum dy. Leaves sum g and sum g h of one row in s[2].
ZX_CLONES static void row_sums(const float *dy, const float *x, const float *scale, int64_t n,
                               float mean, float inv, double s[2])
{
    double g_lane[ZX_LANES] = {0}, h_lane[ZX_LANES] = {0};
    int64_t i = 0;
    s[0] = s[1] = 0;
    if (scale) {
        for (; i + ZX_LANES <= n; i += ZX_LANES) {
            ZX_SIMD for (int k = 0; k < ZX_LANES; k++)
            {
                const double g = (double)(dy[i + k] * scale[i + k]);
                g_lane[k] += g;
                h_lane[k] += g * (double)((x[i + k] - mean) * inv);
            }
        }
    } else {
        for (; i + ZX_LANES <= n; i += ZX_LANES) {
            ZX_SIMD for (int k = 0; k < ZX_LANES; k++)
            {
                const double g = (double)dy[i + k];
                g_lane[k] += g;
                h_lane[k] += g * (double)((x[i + k] - mean) * inv);
            }
        }
    }
    for (int64_t k = i; k < n; k++) {
        const double g = (double)(scale ? dy[k] * scale[k] : dy[k]);
        g_lane[k - i] += g;
        h_lane[k - i] += g * (double)((x[k] - mean) * inv);
    }
    for (int k = 0; k < ZX_LANES; k++) {
        s[0] += g_lane[k];
        s[1] += h_lane[k];
    }
}

ZX_CLONES static void row_dx(const float *dy, const float *x, const float *scale, float *dx,
                             int64_t n, float mean, float inv, float g_avg, float h_avg)
{
    if (scale) {
        ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] =
            inv * ((dy[i] * scale[i] - g_avg) - (x[i] - mean) * inv * h_avg);
    } else {
        ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] =
            inv * ((dy[i] - g_avg) - (x[i] - mean) * inv * h_avg);
    }
}

// dx lies over dy's row where both are made float32: it is written element by element.
static void norm_grad_rows(const norm_job *j, int64_t from, int64_t to, float *const room[2])
{
    for (int64_t r = from; r < to; r++) {
        const float *dy = row_of(j->dy, r, j->n, room[0]), *x = row_of(j->x, r, j->n, room[1]);
        float *dx = zx_floats_to(j->y->type.dtype, j->y->data, r * j->n, room[0]);
        const float mean = j->mean_in ? j->mean_in[r] : 0.0f, inv = j->inv_in[r];
        double s[2];
        row_sums(dy, x, j->scale, j->n, mean, inv, s);
        const float g_avg = j->mean_in ? (float)(s[0] / (double)j->n) : 0.0f;
        row_dx(dy, x, j->scale, dx, j->n, mean, inv, g_avg, (float)(s[1] / (double)j->n));
        zx_floats_put(j->y->type.dtype, dx, j->y->data, r * j->n, j->n);
    }
}

ZX_CLONES static void add_row(const float *dy, const float *x, int64_t n, float mean, float inv,
                              double *dscale, double *dbias)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        dscale[i] += (double)(dy[i] * ((x[i] - mean) * inv));
        dbias[i] += (double)dy[i];
    }
}
static void add_rows(void *ctx, int64_t from, int64_t to, int64_t col, int64_t n,
                     double *const *sum)
{
    const norm_job *j = ctx;
    float room[2][ZX_COLUMNS_TILE];
    for (int64_t r = from; r < to; r++) {
        const int64_t at = r * j->n + col;
        add_row(zx_floats(j->dy->type.dtype, j->dy->data, at, n, room[0]),
                zx_floats(j->x->type.dtype, j->x->data, at, n, room[1]), n,
                j->mean_in ? j->mean_in[r] : 0.0f, j->inv_in[r], sum[0], sum[1]);
    }
}

static uint64_t sums_bytes(const norm_job *j)
{
    return zx_align_up(zx_columns_work(j->rows, j->n, 2), ZX_ALIGN);
}

static zx_status norm_grad_run(norm_job *j, float *dscale, float *dbias, zx_err *err)
{
    ZX_TRY(zx_need_f32_or_16(j->call, err));
    norm_sizes(j, &j->call->in[1]);
    j->rows_of = norm_grad_rows;
    if (zx_has_16(j->call)) j->rooms = (float *)j->call->work + sums_bytes(j) / sizeof(float);
    if (j->y->data) run_rows(j);
    if (!dscale && !dbias) return ZX_OK;
    const zx_columns c = {j->rows, j->n, 2, add_rows, j};
    const double *sum = zx_columns_run(&c, j->call->work, j->call->threads);
    for (int64_t i = 0; dscale && i < j->n; i++) dscale[i] = (float)sum[i];
    for (int64_t i = 0; dbias && i < j->n; i++) dbias[i] = (float)sum[j->n + i];
    return ZX_OK;
}

static zx_status norm_grad_prepare(const zx_call *call, uint64_t *work_bytes,
                                   void **state ZX_UNUSED, zx_err *err ZX_UNUSED)
{
    norm_job j = {.call = call};
    norm_sizes(&j, &call->in[1]);
    *work_bytes = sums_bytes(&j) + rooms_bytes(call, j.n);
    return ZX_OK;
}

static zx_status layer_norm_grad(const zx_call *call, zx_err *err)
{
    norm_job j = {.call = call,
                  .dy = &call->in[0],
                  .x = &call->in[1],
                  .mean_in = call->in[2].data,
                  .inv_in = call->in[3].data,
                  .scale = zx_has(call, 4) ? call->in[4].data : NULL,
                  .y = &call->out[0]};
    return norm_grad_run(&j, call->out[1].data, call->out[2].data, err);
}
const zx_kernel zx_cpu_layer_norm_grad = {.prepare = norm_grad_prepare, .run = layer_norm_grad};

static zx_status rms_norm_grad(const zx_call *call, zx_err *err)
{
    norm_job j = {.call = call,
                  .dy = &call->in[0],
                  .x = &call->in[1],
                  .inv_in = call->in[2].data,
                  .scale = zx_has(call, 3) ? call->in[3].data : NULL,
                  .y = &call->out[0]};
    return norm_grad_run(&j, call->out[1].data, NULL, err);
}
const zx_kernel zx_cpu_rms_norm_grad = {.prepare = norm_grad_prepare, .run = rms_norm_grad};

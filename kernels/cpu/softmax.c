// softmax.c - Softmax, LogSoftmax and their gradients along any axis, float32.
//
// Rows are contiguous where the axis is the last dim. Otherwise the axis is walked with a tile of
// neighbouring columns side by side.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/index.h"
#include "kernels/cpu/vmath.h"

#define TILE 64 // columns side by side

typedef struct softmax_job {
    zx_axis a;
    bool log;
    int64_t tiles; // of inner
    const float *x, *dy;
    float *y;
} softmax_job;

// ---- rows ---------------------------------------------------------------------------------------
ZX_CLONES static void exp_row(const float *x, float *y, int64_t n, float shift)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = vm_exp(x[i] - shift);
}
ZX_CLONES static void scale_row(float *y, int64_t n, float factor)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] *= factor;
}
ZX_CLONES static void shift_row(const float *x, float *y, int64_t n, float shift, float shift2)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = (x[i] - shift) - shift2;
}

// Sum of e^(x - shift).
static double exp_sum(const float *x, int64_t n, float shift)
{
    float e[ZX_BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        exp_row(x + i, e, m, shift);
        sum += zx_row_sum(e, m);
    }
    return sum;
}

static void softmax_rows(void *ctx, int64_t from, int64_t to)
{
    const softmax_job *j = ctx;
    const int64_t n = j->a.n;
    for (int64_t r = from; r < to; r++) {
        const float *x = j->x + r * n;
        float *y = j->y + r * n;
        const float most = zx_row_max(x, n);
        if (j->log) {
            shift_row(x, y, n, most, (float)log(exp_sum(x, n, most)));
        } else {
            exp_row(x, y, n, most);
            scale_row(y, n, (float)(1.0 / zx_row_sum(y, n)));
        }
    }
}

ZX_CLONES static void grad_row(const float *dy, const float *y, float *dx, int64_t n, float dot)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot);
}
ZX_CLONES static void log_grad_row(const float *dy, const float *y, float *dx, int64_t n, float sum)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] = dy[i] - vm_exp(y[i]) * sum;
}

// A row that was masked out as a whole is NaN, and whoever knows puts zeros in its place: then no
// gradient arrives, and none leaves, as in PyTorch's own attention. 0 * NaN would say otherwise.
static bool is_masked_out(const float *dy, const float *y, int64_t n, int64_t inner)
{
    if (n == 0 || y[0] == y[0]) return false;
    for (int64_t i = 0; i < n; i++)
        if (dy[i * inner] != 0) return false;
    return true;
}

static void grad_rows(void *ctx, int64_t from, int64_t to)
{
    const softmax_job *j = ctx;
    const int64_t n = j->a.n;
    for (int64_t r = from; r < to; r++) {
        const float *dy = j->dy + r * n, *y = j->x + r * n;
        if (is_masked_out(dy, y, n, 1))
            memset(j->y + r * n, 0, (size_t)n * sizeof *j->y);
        else if (j->log)
            log_grad_row(dy, y, j->y + r * n, n, (float)zx_row_sum(dy, n));
        else
            grad_row(dy, y, j->y + r * n, n, (float)zx_row_dot(dy, y, n));
    }
}

// ---- columns: `w` of them, n steps of `inner` elements ------------------------------------------
ZX_CLONES static void softmax_tile(const float *x, float *y, int64_t n, int64_t inner, int64_t w,
                                   bool log_form)
{
    float most[TILE];
    double sum[TILE];
    for (int64_t c = 0; c < w; c++) {
        most[c] = -INFINITY;
        sum[c] = 0;
    }
    for (int64_t i = 0; i < n; i++) {
        ZX_SIMD for (int64_t c = 0; c < w; c++) most[c] =
            x[i * inner + c] > most[c] ? x[i * inner + c] : most[c];
    }
    for (int64_t i = 0; i < n; i++) {
        float e[TILE];
        ZX_SIMD for (int64_t c = 0; c < w; c++) e[c] = vm_exp(x[i * inner + c] - most[c]);
        ZX_SIMD for (int64_t c = 0; c < w; c++) sum[c] += (double)e[c];
    }
    for (int64_t c = 0; c < w; c++) sum[c] = log_form ? log(sum[c]) : 1.0 / sum[c];
    for (int64_t i = 0; i < n; i++) {
        if (log_form) {
            ZX_SIMD for (int64_t c = 0; c < w; c++) y[i * inner + c] =
                (x[i * inner + c] - most[c]) - (float)sum[c];
        } else {
            ZX_SIMD for (int64_t c = 0; c < w; c++) y[i * inner + c] =
                vm_exp(x[i * inner + c] - most[c]) * (float)sum[c];
        }
    }
}

ZX_CLONES static void grad_tile(const float *dy, const float *y, float *dx, int64_t n,
                                int64_t inner, int64_t w, bool log_form)
{
    double sum[TILE] = {0};
    bool masked_out[TILE];
    for (int64_t c = 0; c < w; c++) masked_out[c] = is_masked_out(dy + c, y + c, n, inner);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * inner;
        if (log_form) {
            ZX_SIMD for (int64_t c = 0; c < w; c++) sum[c] += (double)dy[at + c];
        } else {
            ZX_SIMD for (int64_t c = 0; c < w; c++) sum[c] +=
                (double)dy[at + c] * (double)y[at + c];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * inner;
        if (log_form) {
            ZX_SIMD for (int64_t c = 0; c < w; c++) dx[at + c] =
                dy[at + c] - vm_exp(y[at + c]) * (float)sum[c];
        } else {
            ZX_SIMD for (int64_t c = 0; c < w; c++) dx[at + c] =
                y[at + c] * (dy[at + c] - (float)sum[c]);
        }
        for (int64_t c = 0; c < w; c++)
            if (masked_out[c]) dx[at + c] = 0;
    }
}

static void tiles(void *ctx, int64_t from, int64_t to)
{
    const softmax_job *j = ctx;
    for (int64_t t = from; t < to; t++) {
        const int64_t col = t % j->tiles * TILE, w = zx_min_i64(TILE, j->a.inner - col);
        const int64_t at = t / j->tiles * j->a.n * j->a.inner + col;
        if (j->dy)
            grad_tile(j->dy + at, j->x + at, j->y + at, j->a.n, j->a.inner, w, j->log);
        else
            softmax_tile(j->x + at, j->y + at, j->a.n, j->a.inner, w, j->log);
    }
}

static void softmax_run(softmax_job *j, const zx_call *call)
{
    const zx_shape *s = &call->in[0].type.shape;
    const uint32_t last = s->rank ? s->rank - 1 : 0;
    const int64_t all = zx_shape_count(s);
    if (s->rank == 0) { // one element
        j->a = (zx_axis){1, 1, 1};
    } else {
        j->a = zx_axis_of(s, (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, last));
    }
    if (all == 0) return;
    const int threads = all < ZX_GRAIN / 8 ? 1 : call->threads;
    j->tiles = (j->a.inner + TILE - 1) / TILE;
    if (j->a.inner == 1)
        zx_split(threads, j->a.outer, 1, 2, j->dy ? grad_rows : softmax_rows, j);
    else
        zx_split(threads, j->a.outer * j->tiles, 1, 2, tiles, j);
}

static zx_status softmax(const zx_call *call, zx_err *err)
{
    softmax_job j = {
        .log = call->op == ZX_K_LOG_SOFTMAX, .x = call->in[0].data, .y = call->out[0].data};
    ZX_TRY(zx_need_f32(call, err));
    softmax_run(&j, call);
    return ZX_OK;
}
const zx_kernel zx_cpu_softmax = {.run = softmax};

static zx_status softmax_grad(const zx_call *call, zx_err *err)
{
    softmax_job j = {.log = call->op == ZX_K_LOG_SOFTMAX_GRAD,
                     .dy = call->in[0].data,
                     .x = call->in[1].data,
                     .y = call->out[0].data};
    ZX_TRY(zx_need_f32(call, err));
    softmax_run(&j, call);
    return ZX_OK;
}
const zx_kernel zx_cpu_softmax_grad = {.run = softmax_grad};

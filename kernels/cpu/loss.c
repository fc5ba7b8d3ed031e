// loss.c - softmax cross entropy and negative log likelihood with their gradients, float32.
//
// Scores are [N][C][inner] and labels [N][inner]: a line is the C scores of one label. Where inner
// isn't 1 a line is gathered into scratch first. Labels that are ignored or wrong (a fault) have no
// loss and no gradient.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/index.h"
#include "kernels/cpu/vmath.h"

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

typedef struct loss_job {
    const zx_call *call;
    zx_axis a; // outer N, n C, inner
    int64_t lines;
    int64_t lines_per_piece;
    const zx_view *labels;
    const float *weights; // [C] or NULL
    double weight_sum;    // of all classes
    int64_t reduction, ignore;
    bool has_ignore;
    double smoothing;
    const float *x, *lse_in, *dloss;
    float *loss, *lse, *dx;
    double divisor;    // mean: weights of the valid labels
    double *line_loss; // [lines]
    float *scratch;    // [pieces][C] where inner isn't 1
} loss_job;

static loss_job loss_make(const zx_call *call, const zx_shape *scores, const zx_view *labels,
                          uint32_t weights)
{
    loss_job j = {.call = call, .labels = labels, .a = zx_axis_of(scores, 1)};
    const zx_attr *ignore = zx_attr_find(call->attrs, ZX_A_IGNORE_INDEX);
    j.lines = j.a.outer * j.a.inner;
    j.lines_per_piece = zx_max_i64(1, (j.lines + call->threads - 1) / call->threads);
    j.reduction = zx_attr_int(call->attrs, ZX_A_REDUCTION, REDUCTION_MEAN);
    j.smoothing = zx_attr_float(call->attrs, ZX_A_SMOOTHING, 0);
    j.has_ignore = ignore != NULL;
    if (ignore) j.ignore = ignore->i[0];
    if (zx_has(call, weights)) j.weights = call->in[weights].data;
    j.weight_sum = j.weights ? zx_row_sum(j.weights, j.a.n) : (double)j.a.n;
    return j;
}

static uint64_t scratch_bytes(const loss_job *j)
{
    return j->a.inner == 1 ? 0 : (uint64_t)j->call->threads * (uint64_t)j->a.n * sizeof(float);
}

// Runs fn over pieces of lines: as many as there are threads, so that each has scratch of its own.
static void run_pieces(loss_job *j, zx_range_fn *fn)
{
    const int64_t pieces = (j->lines + j->lines_per_piece - 1) / j->lines_per_piece;
    const bool small = j->lines * j->a.n < ZX_GRAIN / 4;
    zx_split(small ? 1 : j->call->threads, pieces, 1, 2, fn, j);
}

// The class of a line; -1: ignored or wrong.
static int64_t class_of(const loss_job *j, int64_t line)
{
    const int64_t y = zx_index_at(j->labels, line);
    if (j->has_ignore && y == j->ignore) return -1;
    if (y >= 0 && y < j->a.n) return y;
    zx_fault_set(j->call->fault, ZX_FAULT_LABEL, y, j->a.n);
    return -1;
}
static double weight_of(const loss_job *j, int64_t class)
{
    return j->weights ? (double)j->weights[class] : 1.0;
}
static double divisor_of(const loss_job *j)
{
    double sum = 0;
    for (int64_t i = 0; i < j->lines; i++) {
        const int64_t y = class_of(j, i);
        if (y >= 0) sum += weight_of(j, y);
    }
    return sum;
}
static int64_t line_start(const loss_job *j, int64_t line)
{
    return line / j->a.inner * j->a.n * j->a.inner + line % j->a.inner;
}

// The scores of a line, contiguous.
static const float *line_scores(const loss_job *j, int64_t line, float *scratch)
{
    const float *x = j->x + line_start(j, line);
    if (j->a.inner == 1) return x;
    for (int64_t c = 0; c < j->a.n; c++) scratch[c] = x[c * j->a.inner];
    return scratch;
}

// Adds the lines' losses up in order and writes the result.
static void reduce_lines(const loss_job *j)
{
    if (j->reduction == REDUCTION_NONE) {
        for (int64_t i = 0; i < j->lines; i++) j->loss[i] = (float)j->line_loss[i];
        return;
    }
    double sum = 0;
    for (int64_t i = 0; i < j->lines; i++) sum += j->line_loss[i];
    j->loss[0] = (float)(j->reduction == REDUCTION_MEAN ? sum / divisor_of(j) : sum);
}

// ---- cross entropy ------------------------------------------------------------------------------
ZX_CLONES static void exp_block(const float *x, float *e, int64_t n, float shift)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) e[i] = vm_exp(x[i] - shift);
}

static double log_sum_exp(const float *x, int64_t n)
{
    const float most = zx_row_max(x, n);
    float e[ZX_BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        exp_block(x + i, e, m, most);
        sum += zx_row_sum(e, m);
    }
    return (double)most + log(sum);
}

static double line_loss(const loss_job *j, const float *x, double lse, int64_t y)
{
    double loss = weight_of(j, y) * (lse - (double)x[y]);
    if (j->smoothing == 0) return loss;
    const double scores = j->weights ? zx_row_dot(j->weights, x, j->a.n) : zx_row_sum(x, j->a.n);
    const double smooth = lse * j->weight_sum - scores;
    return (1 - j->smoothing) * loss + j->smoothing / (double)j->a.n * smooth;
}

static void entropy_pieces(void *ctx, int64_t from, int64_t to)
{
    const loss_job *j = ctx;
    for (int64_t piece = from; piece < to; piece++) {
        float *scratch = j->scratch != NULL ? j->scratch + piece * j->a.n : NULL;
        const int64_t first = piece * j->lines_per_piece;
        for (int64_t i = first; i < zx_min_i64(j->lines, first + j->lines_per_piece); i++) {
            const int64_t y = class_of(j, i);
            const float *x = line_scores(j, i, scratch);
            const double lse = log_sum_exp(x, j->a.n);
            if (j->lse) j->lse[i] = (float)lse;
            j->line_loss[i] = y < 0 ? 0 : line_loss(j, x, lse, y);
        }
    }
}

static zx_status entropy_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                                 zx_err *err ZX_UNUSED)
{
    const zx_axis a = zx_axis_of(&call->in[0].type.shape, 1);
    const loss_job j = {.call = call, .a = a};
    *work_bytes = (uint64_t)(a.outer * a.inner) * sizeof(double) + scratch_bytes(&j);
    return ZX_OK;
}

static zx_status cross_entropy(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    loss_job j = loss_make(call, &call->in[0].type.shape, &call->in[1], 2);
    j.x = call->in[0].data;
    j.loss = call->out[0].data;
    j.lse = call->out[1].data;
    j.line_loss = call->work;
    j.scratch = (float *)((double *)call->work + j.lines);
    run_pieces(&j, entropy_pieces);
    reduce_lines(&j);
    return ZX_OK;
}
const zx_kernel zx_cpu_cross_entropy = {.prepare = entropy_prepare, .run = cross_entropy};

// With targets q (one at the label, smoothed): dx = f (Q softmax(x) - q), Q the sum of q.
ZX_CLONES static void grad_line(const float *x, float *dx, int64_t n, float lse, float factor,
                                float minus, const float *weights)
{
    if (weights) {
        ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] =
            factor * vm_exp(x[i] - lse) - minus * weights[i];
    } else {
        ZX_SIMD for (int64_t i = 0; i < n; i++) dx[i] = factor * vm_exp(x[i] - lse) - minus;
    }
}

static void entropy_grad_pieces(void *ctx, int64_t from, int64_t to)
{
    const loss_job *j = ctx;
    const double even = j->smoothing / (double)j->a.n;
    for (int64_t piece = from; piece < to; piece++) {
        float *scratch = j->scratch != NULL ? j->scratch + piece * j->a.n : NULL;
        const int64_t first = piece * j->lines_per_piece;
        for (int64_t i = first; i < zx_min_i64(j->lines, first + j->lines_per_piece); i++) {
            const int64_t y = class_of(j, i);
            float *dx = j->dx + line_start(j, i);
            if (y < 0) {
                for (int64_t c = 0; c < j->a.n; c++) dx[c * j->a.inner] = 0;
                continue;
            }
            const double f = (double)j->dloss[j->reduction == REDUCTION_NONE ? i : 0] / j->divisor;
            const double own = (1 - j->smoothing) * weight_of(j, y);
            const float *x = line_scores(j, i, scratch);
            float *row = j->a.inner == 1 ? dx : scratch;
            grad_line(x, row, j->a.n, j->lse_in[i], (float)(f * (own + even * j->weight_sum)),
                      (float)(f * even), j->smoothing != 0 ? j->weights : NULL);
            row[y] -= (float)(f * own);
            if (j->a.inner != 1)
                for (int64_t c = 0; c < j->a.n; c++) dx[c * j->a.inner] = scratch[c];
        }
    }
}

static zx_status entropy_grad_prepare(const zx_call *call, uint64_t *work_bytes,
                                      void **state ZX_UNUSED, zx_err *err ZX_UNUSED)
{
    const loss_job j = {.call = call, .a = zx_axis_of(&call->in[1].type.shape, 1)};
    *work_bytes = scratch_bytes(&j);
    return ZX_OK;
}

static zx_status cross_entropy_grad(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    loss_job j = loss_make(call, &call->in[1].type.shape, &call->in[2], 4);
    j.dloss = call->in[0].data;
    j.x = call->in[1].data;
    j.lse_in = call->in[3].data;
    j.dx = call->out[0].data;
    j.scratch = call->work;
    j.divisor = j.reduction == REDUCTION_MEAN ? divisor_of(&j) : 1.0;
    run_pieces(&j, entropy_grad_pieces);
    return ZX_OK;
}
const zx_kernel zx_cpu_cross_entropy_grad = {.prepare = entropy_grad_prepare,
                                             .run = cross_entropy_grad};

// ---- negative log likelihood --------------------------------------------------------------------
static zx_status nll_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                             zx_err *err ZX_UNUSED)
{
    const zx_axis a = zx_axis_of(&call->in[0].type.shape, 1);
    *work_bytes = (uint64_t)(a.outer * a.inner) * sizeof(double);
    return ZX_OK;
}

static zx_status nll_loss(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    loss_job j = loss_make(call, &call->in[0].type.shape, &call->in[1], 2);
    const float *x = call->in[0].data;
    j.loss = call->out[0].data;
    j.line_loss = call->work;
    for (int64_t i = 0; i < j.lines; i++) {
        const int64_t y = class_of(&j, i);
        j.line_loss[i] =
            y < 0 ? 0 : -weight_of(&j, y) * (double)x[line_start(&j, i) + y * j.a.inner];
    }
    reduce_lines(&j);
    return ZX_OK;
}
const zx_kernel zx_cpu_nll_loss = {.prepare = nll_prepare, .run = nll_loss};

static zx_status nll_loss_grad(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    loss_job j = loss_make(call, &call->out[0].type.shape, &call->in[1], 2);
    const float *dloss = call->in[0].data;
    float *dx = call->out[0].data;
    j.divisor = j.reduction == REDUCTION_MEAN ? divisor_of(&j) : 1.0;
    zx_fill_zero(dx, zx_type_bytes(&call->out[0].type), call->threads);
    for (int64_t i = 0; i < j.lines; i++) {
        const int64_t y = class_of(&j, i);
        if (y < 0) continue;
        const double f = (double)dloss[j.reduction == REDUCTION_NONE ? i : 0] / j.divisor;
        dx[line_start(&j, i) + y * j.a.inner] = (float)(-f * weight_of(&j, y));
    }
    return ZX_OK;
}
const zx_kernel zx_cpu_nll_loss_grad = {.run = nll_loss_grad};

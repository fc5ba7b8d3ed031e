// linear_loss.c - the cross entropy of a linear layer's scores, float32, without the scores ever
// being whole: they are made for a chunk of the classes at a time, and made again for the gradient.
//
// Forward keeps, for each row, the greatest score so far and the sum of the exponentials against
// it. Backward turns a chunk of scores into their gradients in place and multiplies those with the
// weight (dx) and with x (dw). Rows and classes are shared out over the threads in turn; sums run
// in one order, so results don't depend on the threads.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "kernels/cpu/index.h"
#include "kernels/cpu/tile.h"
#include "kernels/cpu/vmath.h"

#define CHUNK 256 // classes
#define ROWS 32   // whose scores forward makes at a time
enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

typedef struct linear_loss {
    const zx_call *call;
    int64_t rows, size, classes;
    const float *x, *w, *dloss, *lse_in;
    const zx_view *labels;
    int64_t reduction, ignore;
    bool has_ignore;
    double divisor;
    int64_t first, n;  // classes of the chunk
    float *wt;         // [size][CHUNK]: the chunk of w, transposed
    double *sum;       // forward [rows]: of e^(score - most)
    float *most, *own; // forward [rows]: greatest score, the label's
    float *scores;     // forward [threads][ROWS][CHUNK], backward [rows][CHUNK]
    float *dx, *dw;
} linear_loss;

static linear_loss loss_of(const zx_call *call, uint32_t x)
{
    const zx_shape *sx = &call->in[x].type.shape;
    const zx_attr *ignore = zx_attr_find(call->attrs, ZX_A_IGNORE_INDEX);
    return (linear_loss){.call = call,
                         .rows = zx_shape_span(sx, 0, sx->rank - 1),
                         .size = sx->dim[sx->rank - 1],
                         .classes = call->in[x + 1].type.shape.dim[0],
                         .x = call->in[x].data,
                         .w = call->in[x + 1].data,
                         .labels = &call->in[x + 2],
                         .reduction = zx_attr_int(call->attrs, ZX_A_REDUCTION, REDUCTION_MEAN),
                         .has_ignore = ignore != NULL,
                         .ignore = ignore ? ignore->i[0] : 0};
}

// The class of a row; -1: ignored or wrong (a fault): no loss, no gradient.
static int64_t class_of(const linear_loss *j, int64_t row)
{
    const int64_t y = zx_index_at(j->labels, row);
    if (j->has_ignore && y == j->ignore) return -1;
    if (y >= 0 && y < j->classes) return y;
    zx_fault_set(j->call->fault, ZX_FAULT_LABEL, y, j->classes);
    return -1;
}

static double count_valid(const linear_loss *j)
{
    int64_t n = 0;
    for (int64_t i = 0; i < j->rows; i++) n += class_of(j, i) >= 0;
    return (double)n;
}

static int64_t rows_each(const linear_loss *j)
{
    return zx_max_i64(1, (j->rows + j->call->threads - 1) / j->call->threads);
}

// ---- chunks -------------------------------------------------------------------------------------
static void transpose_part(void *ctx, int64_t from, int64_t to)
{
    const linear_loss *j = ctx;
    zx_tile_transpose(j->n, to - from, j->w + j->first * j->size + from, j->size,
                      j->wt + from * CHUNK, CHUNK);
}

// Calls `fn`, which reads wt, once a chunk of the classes.
static void each_chunk(linear_loss *j, int64_t n, int64_t align, zx_range_fn *fn, zx_range_fn *then)
{
    const int threads = j->rows * j->size < ZX_GRAIN / 4 ? 1 : j->call->threads;
    for (j->first = 0; j->first < j->classes; j->first += CHUNK) {
        j->n = zx_min_i64(CHUNK, j->classes - j->first);
        zx_split(threads, j->size, 16, 2, transpose_part, j);
        zx_split(threads, n, align, 2, fn, j);
        if (then) zx_split(threads, j->n, 4, 2, then, j);
    }
}

static void make_scores(const linear_loss *j, int64_t row, int64_t n, float *scores)
{
    zx_tile_product(n, j->n, j->size, (zx_tile){j->x + row * j->size, j->size, 1}, j->wt, CHUNK,
                    scores, CHUNK, false);
}

// ---- forward ------------------------------------------------------------------------------------
ZX_CLONES static void exp_row(float *s, int64_t n, float shift)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) s[i] = vm_exp(s[i] - shift);
}

static void take_scores(const linear_loss *j, int64_t row, float *s)
{
    const int64_t own = class_of(j, row) - j->first;
    if (own >= 0 && own < j->n) j->own[row] = s[own];
    const float before = j->most[row], here = zx_row_max(s, j->n);
    const float most = here > before ? here : before;
    // Where all are -inf so far, not -inf + inf: a later chunk may have others.
    const float shift = most == -INFINITY ? 0 : most;
    const double kept =
        before == most ? j->sum[row] : j->sum[row] * exp((double)before - (double)most);
    exp_row(s, j->n, shift);
    j->sum[row] = kept + zx_row_sum(s, j->n);
    j->most[row] = most;
}

static void forward_pieces(void *ctx, int64_t from, int64_t to)
{
    const linear_loss *j = ctx;
    for (int64_t piece = from; piece < to; piece++) {
        float *s = j->scores + piece * ROWS * CHUNK;
        const int64_t first = piece * rows_each(j), end = zx_min_i64(j->rows, first + rows_each(j));
        for (int64_t row = first; row < end; row += ROWS) {
            const int64_t n = zx_min_i64(ROWS, end - row);
            make_scores(j, row, n, s);
            for (int64_t r = 0; r < n; r++) take_scores(j, row + r, s + r * CHUNK);
        }
    }
}

static void finish(const linear_loss *j, float *loss, float *lse)
{
    double sum = 0;
    for (int64_t i = 0; i < j->rows; i++) {
        const double l = (double)j->most[i] + log(j->sum[i]);
        const double one = class_of(j, i) < 0 ? 0 : l - (double)j->own[i];
        if (lse) lse[i] = (float)l;
        if (j->reduction == REDUCTION_NONE) loss[i] = (float)one;
        sum += one;
    }
    if (j->reduction == REDUCTION_NONE) return;
    loss[0] = (float)(j->reduction == REDUCTION_MEAN ? sum / count_valid(j) : sum);
}

static zx_status forward_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                                 zx_err *err ZX_UNUSED)
{
    const linear_loss j = loss_of(call, 0);
    const uint64_t rows = (uint64_t)j.rows;
    *work_bytes = rows * (sizeof *j.sum + sizeof *j.most + sizeof *j.own) +
                  ((uint64_t)j.size + (uint64_t)call->threads * ROWS) * CHUNK * sizeof(float);
    return ZX_OK;
}

static zx_status linear_cross_entropy(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    linear_loss j = loss_of(call, 0);
    j.sum = call->work;
    j.wt = (float *)(j.sum + j.rows);
    j.scores = j.wt + j.size * CHUNK;
    j.most = j.scores + (int64_t)call->threads * ROWS * CHUNK;
    j.own = j.most + j.rows;
    for (int64_t i = 0; i < j.rows; i++) {
        j.sum[i] = 0;
        j.most[i] = -INFINITY;
        j.own[i] = 0;
    }
    each_chunk(&j, (j.rows + rows_each(&j) - 1) / rows_each(&j), 1, forward_pieces, NULL);
    finish(&j, call->out[0].data, call->out[1].data);
    return ZX_OK;
}
const zx_kernel zx_cpu_linear_cross_entropy = {.prepare = forward_prepare,
                                               .run = linear_cross_entropy};

// ---- backward -----------------------------------------------------------------------------------
ZX_CLONES static void slope_row(float *s, int64_t n, float lse, float factor)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) s[i] = factor * vm_exp(s[i] - lse);
}

// The gradients of the rows' scores, and dx.
static void row_slopes(void *ctx, int64_t from, int64_t to)
{
    const linear_loss *j = ctx;
    float *s = j->scores + from * CHUNK;
    make_scores(j, from, to - from, s);
    for (int64_t row = from; row < to; row++) {
        float *g = j->scores + row * CHUNK;
        const int64_t y = class_of(j, row), own = y - j->first;
        if (y < 0) {
            memset(g, 0, (size_t)j->n * sizeof *g);
            continue;
        }
        const double f = (double)j->dloss[j->reduction == REDUCTION_NONE ? row : 0] / j->divisor;
        slope_row(g, j->n, j->lse_in[row], (float)f);
        if (own >= 0 && own < j->n) g[own] -= (float)f;
    }
    if (j->dx)
        zx_tile_product(to - from, j->size, j->n, (zx_tile){s, CHUNK, 1}, j->w + j->first * j->size,
                        j->size, j->dx + from * j->size, j->size, j->first > 0);
}

static void class_slopes(void *ctx, int64_t from, int64_t to)
{
    const linear_loss *j = ctx;
    zx_tile_product(to - from, j->size, j->rows, (zx_tile){j->scores + from, 1, CHUNK}, j->x,
                    j->size, j->dw + (j->first + from) * j->size, j->size, false);
}

static zx_status backward_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                                  zx_err *err ZX_UNUSED)
{
    const linear_loss j = loss_of(call, 1);
    *work_bytes = (uint64_t)(j.size + j.rows) * CHUNK * sizeof(float);
    return ZX_OK;
}

static zx_status linear_cross_entropy_grad(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    linear_loss j = loss_of(call, 1);
    j.dloss = call->in[0].data;
    j.lse_in = call->in[4].data;
    j.dx = call->out[0].data;
    j.dw = call->out[1].data;
    j.wt = call->work;
    j.scores = j.wt + j.size * CHUNK;
    j.divisor = j.reduction == REDUCTION_MEAN ? count_valid(&j) : 1.0;
    if (j.dx && j.classes == 0)
        zx_fill_zero(j.dx, zx_type_bytes(&call->out[0].type), call->threads);
    each_chunk(&j, j.rows, 4, row_slopes, j.dw ? class_slopes : NULL);
    return ZX_OK;
}
const zx_kernel zx_cpu_linear_cross_entropy_grad = {.prepare = backward_prepare,
                                                    .run = linear_cross_entropy_grad};

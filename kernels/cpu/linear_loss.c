// linear_loss.c - the cross entropy of a linear layer's scores, without the scores of all rows ever
// being there: they are made for some rows at a time.
//
// Those rows' scores are all there, so their log-sum-exps are known at once and the scores become
// their own gradients in place, which are multiplied with the weight (dx) and with x (dw, added to
// what other rows gave). Three products in all; by oneDNN where it can. In bf16 scores are float32
// all the same; their gradients are rounded before they are multiplied, and sums over chunks are
// float32.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/index.h"
#include "kernels/cpu/vmath.h"

#define MOST_BYTES ((int64_t)64 << 20) // of scores at a time, but ROWS rows at least
#define ROWS 64
enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

typedef struct linear_loss {
    const zx_call *call;
    int64_t rows, size, classes;
    int64_t stride; // of the scores: a row begins on a line of the cache, rows not in the same ones
    int64_t at_once; // rows
    bool trans;      // w is [classes, size]
    bool backward, bf16;
    const void *x, *w, *bias;
    const float *dloss;
    const zx_view *labels;
    int64_t reduction, ignore;
    bool has_ignore;
    double divisor;
    double *line;             // [rows]: losses
    float *scores, *lse, *db; // scores [at_once][stride]; the rest may be NULL
    void *dx, *dw;            // likewise
    uint16_t *halves;         // bf16: the scores' gradients [at_once][stride]
    unsigned char *library;   // scratch of oneDNN
    int64_t first, n;         // rows of the chunk
} linear_loss;

static linear_loss loss_of(const zx_call *call, bool backward)
{
    const uint32_t x = backward ? 1 : 0;
    const zx_shape *sx = &call->in[x].type.shape, *sw = &call->in[x + 1].type.shape;
    const zx_attr *ignore = zx_attr_find(call->attrs, ZX_A_IGNORE_INDEX);
    linear_loss j = {.call = call,
                     .rows = zx_shape_span(sx, 0, sx->rank - 1),
                     .size = sx->dim[sx->rank - 1],
                     .trans = zx_attr_int(call->attrs, ZX_A_TRANS_B, 1) != 0,
                     .backward = backward,
                     .bf16 = zx_library_takes_bf16(call),
                     .x = call->in[x].data,
                     .w = call->in[x + 1].data,
                     .labels = &call->in[x + 2],
                     .bias = call->n_in > x + 3 ? call->in[x + 3].data : NULL,
                     .reduction = zx_attr_int(call->attrs, ZX_A_REDUCTION, REDUCTION_MEAN),
                     .has_ignore = ignore != NULL,
                     .ignore = ignore ? ignore->i[0] : 0};
    j.classes = sw->dim[j.trans ? 0 : 1];
    j.stride = (j.classes + 15) / 16 * 16;
    if (j.stride % 1024 == 0) j.stride += 16;
    const int64_t most = zx_max_i64(ROWS, MOST_BYTES / (int64_t)sizeof(float) / j.stride);
    const int64_t chunks = zx_max_i64(1, (j.rows + most - 1) / most);
    j.at_once = zx_min_i64(j.rows, ((j.rows + chunks - 1) / chunks + 15) / 16 * 16);
    return j;
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

// ---- products -----------------------------------------------------------------------------------
typedef enum part { SCORES, DX, DW, PARTS } part;

typedef struct matrix {
    void *at;
    int64_t rows, cols, row, col; // sizes, strides
    bool bf16;
} matrix;

typedef struct product { // y = a b + c, or y += a b; y's columns are neighbours
    matrix a, b, y;
    const void *c;
    bool add;
} product;

// From row `first` on.
static matrix matrix_of(const void *at, bool bf16, int64_t first, int64_t rows, int64_t cols,
                        int64_t row)
{
    const char *from = at;
    if (from != NULL) from += first * row * (bf16 ? 2 : 4);
    return (matrix){(void *)(uintptr_t)from, rows, cols, row, 1, bf16};
}
static matrix turned(matrix m)
{
    return (matrix){m.at, m.cols, m.rows, m.col, m.row, m.bf16};
}

// Whether dw is added up beside its 16 bits.
static bool sums_dw(const linear_loss *j)
{
    return j->bf16 && j->at_once < j->rows;
}

static product product_of(const linear_loss *j, part p)
{
    const bool h = j->bf16;
    const int64_t f = j->first, n = j->n, size = j->size, classes = j->classes;
    const matrix x = matrix_of(j->x, h, f, n, size, size);
    const matrix dx = matrix_of(j->dx, h, f, n, size, size);
    const matrix s = matrix_of(j->scores, false, 0, n, classes, j->stride);
    const matrix ds = h ? matrix_of(j->halves, true, 0, n, classes, j->stride) : s;
    const matrix w = j->trans ? matrix_of(j->w, h, 0, classes, size, size)
                              : matrix_of(j->w, h, 0, size, classes, classes);
    const matrix dw = {j->dw, w.rows, w.cols, w.row, w.col, h && !sums_dw(j)};
    if (p == SCORES) return (product){x, j->trans ? turned(w) : w, s, j->bias, false};
    if (p == DX) return (product){ds, j->trans ? w : turned(w), dx, NULL, false};
    return (product){turned(j->trans ? ds : x), j->trans ? x : ds, dw, NULL, j->first > 0};
}

static void loop_rows(void *ctx, int64_t from, int64_t to)
{
    const product *p = ctx;
    const int64_t n = p->y.cols;
    const float *as = p->a.at, *bs = p->b.at, *c = p->c;
    for (int64_t i = from; i < to; i++) {
        float *y = (float *)p->y.at + i * p->y.row;
        for (int64_t k = 0; k < n && !p->add; k++) y[k] = c ? c[k] : 0;
        for (int64_t l = 0; l < p->a.cols; l++) {
            const float a = as[i * p->a.row + l * p->a.col];
            for (int64_t k = 0; k < n; k++) y[k] += a * bs[l * p->b.row + k * p->b.col];
        }
    }
}

// The library's programs for the first chunk, those in the middle, which add to dw, and the last.
enum { FIRST, MIDDLE, LAST, CHUNKS };
typedef struct programs {
    uint64_t work_bytes;
#ifndef ZX_NAIVE
    zx_dnnl *of[CHUNKS][PARTS]; // NULL: by loops
#endif
} programs;

static void release(void *state)
{
    programs *l = state;
#ifndef ZX_NAIVE
    for (int c = 0; l && c < CHUNKS; c++)
        for (int p = 0; p < PARTS; p++) zx_dnnl_free(l->of[c][p]);
#endif
    free(l);
}

#ifndef ZX_NAIVE
static int chunk_of(const linear_loss *j)
{
    return j->first == 0 ? FIRST : j->first + j->at_once < j->rows ? MIDDLE : LAST;
}

static zx_dnnl_tensor tensor_of(const matrix *m, uint32_t outside)
{
    return (zx_dnnl_tensor){.rank = 2,
                            .dim = {m->rows, m->cols},
                            .stride = {m->row, m->col},
                            .bf16 = m->bf16,
                            .outside = outside};
}

static zx_status library_product(const product *p, bool has_bias, int threads, zx_dnnl **out,
                                 zx_err *err)
{
    enum { A, B, C, Y };
    const zx_dnnl_tensor a = tensor_of(&p->a, A), b = tensor_of(&p->b, B), y = tensor_of(&p->y, Y);
    zx_dnnl_tensor c = {.outside = C};
    if (has_bias) c = zx_dnnl_plain(2, (int64_t[]){1, p->y.cols}, false, C);
    c.bf16 = p->a.bf16;
    zx_err refused = {0};
    const zx_status st = zx_dnnl_matmul(&a, &b, &c, &y, 1.0f, p->add, threads, out, &refused);
    const bool looped = st == ZX_E_UNSUPPORTED && !p->a.bf16; // loops are of float32
    return st == ZX_OK || looped ? ZX_OK : zx_err_merge(err, &refused);
}

static zx_status make_programs(linear_loss *j, programs *l, zx_err *err)
{
    const uint32_t bias = j->backward ? 4 : 3;
    for (j->first = 0; j->first < j->rows; j->first += j->at_once) {
        const int chunk = chunk_of(j);
        j->n = zx_min_i64(j->at_once, j->rows - j->first);
        for (part p = SCORES; p < (j->backward ? PARTS : DX); p++) {
            zx_dnnl **d = &l->of[chunk][p];
            if (*d) continue; // of another chunk in the middle
            const product made = product_of(j, p);
            const bool added = p == SCORES && j->call->n_in > bias;
            ZX_TRY(library_product(&made, added, j->call->threads, d, err));
            const uint64_t bytes = *d ? zx_dnnl_work_bytes(*d) : 0;
            if (bytes > l->work_bytes) l->work_bytes = bytes;
        }
    }
    return ZX_OK;
}
#endif

static zx_status multiply(const linear_loss *j, part p, zx_err *err)
{
    product made = product_of(j, p);
#ifndef ZX_NAIVE
    const programs *l = j->call->state;
    const zx_dnnl *d = l ? l->of[chunk_of(j)][p] : NULL;
    if (d) {
        void *const outside[] = {made.a.at, made.b.at, (void *)(uintptr_t)made.c, made.y.at};
        zx_call call = *j->call;
        call.work = j->library;
        return zx_dnnl_run(d, outside, &call, err);
    }
#else
    (void)err;
#endif
    zx_split(j->call->threads, made.y.rows, 1, 2, loop_rows, &made);
    return ZX_OK;
}

// ---- rows ---------------------------------------------------------------------------------------
ZX_CLONES static void exp_block(float *s, int64_t n, float shift)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) s[i] = vm_exp(s[i] - shift);
}
ZX_CLONES static void scale_row(float *s, int64_t n, float factor)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) s[i] *= factor;
}

// Turns a row's scores into exponentials; says what they add up to, and what was taken from each.
static double exp_row(float *s, int64_t n, float *shift)
{
    double sum = 0;
    const float most = zx_row_max(s, n);
    *shift = most == -INFINITY ? 0 : most; // not -inf + inf
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        exp_block(s + i, m, *shift);
        sum += zx_row_sum(s + i, m);
    }
    return sum;
}

// A row's loss, and backward its scores' gradients in the scores' place.
static void take_row(const linear_loss *j, int64_t row, float *s)
{
    const int64_t y = class_of(j, row);
    float shift;
    j->line[row] = 0;
    if (y < 0 && !j->lse) {
        memset(s, 0, (size_t)j->classes * sizeof *s);
        return;
    }
    const double own = y < 0 ? 0 : (double)s[y];
    const double sum = exp_row(s, j->classes, &shift), lse = (double)shift + log(sum);
    if (j->lse) j->lse[row] = (float)lse;
    if (y < 0) return;
    j->line[row] = lse - own;
    if (!j->backward) return;
    const double f = (double)j->dloss[j->reduction == REDUCTION_NONE ? row : 0] / j->divisor;
    scale_row(s, j->classes, (float)(f / sum));
    s[y] -= (float)f;
}

static void take_rows(void *ctx, int64_t from, int64_t to)
{
    const linear_loss *j = ctx;
    for (int64_t r = from; r < to; r++) {
        float *s = j->scores + r * j->stride;
        take_row(j, j->first + r, s);
        if (j->halves) zx_cpu_narrow(ZX_BF16, s, j->halves + r * j->stride, j->classes);
    }
}

// Column sums of the gradients of the scores, in order of the rows.
static void bias_range(void *ctx, int64_t from, int64_t to)
{
    const linear_loss *j = ctx;
    double sum[ZX_BLOCK];
    for (int64_t at = from; at < to; at += ZX_BLOCK) {
        const int64_t n = zx_min_i64(ZX_BLOCK, to - at);
        for (int64_t i = 0; i < n; i++) sum[i] = j->first > 0 ? (double)j->db[at + i] : 0;
        for (int64_t r = 0; r < j->n; r++)
            for (int64_t i = 0; i < n; i++) sum[i] += (double)j->scores[r * j->stride + at + i];
        for (int64_t i = 0; i < n; i++) j->db[at + i] = (float)sum[i];
    }
}

// ---- the whole ----------------------------------------------------------------------------------
static uint64_t layout(linear_loss *j, void *work, uint64_t library_bytes)
{
    const bool halves = j->bf16 && j->backward;
    const int64_t n = j->at_once * j->stride;
    const uint64_t line = zx_align_up((uint64_t)j->rows * sizeof(double), ZX_ALIGN),
                   scores = zx_align_up((uint64_t)n * sizeof(float), ZX_ALIGN),
                   half = zx_align_up(halves ? (uint64_t)n * sizeof(uint16_t) : 0, ZX_ALIGN),
                   dw = zx_align_up(
                       halves && sums_dw(j) ? (uint64_t)(j->classes * j->size) * sizeof(float) : 0,
                       ZX_ALIGN),
                   db = zx_align_up(halves ? (uint64_t)j->classes * sizeof(float) : 0, ZX_ALIGN);
    unsigned char *at = work;
    if (at == NULL) return line + scores + half + dw + db + library_bytes;
    j->line = work;
    j->scores = (float *)(void *)(at + line);
    if (halves) j->halves = (uint16_t *)(void *)(at + line + scores);
    if (dw > 0 && j->dw) j->dw = at + line + scores + half;
    if (halves && j->db) j->db = (float *)(void *)(at + line + scores + half + dw);
    j->library = at + line + scores + half + dw + db;
    return line + scores + half + dw + db + library_bytes;
}

static zx_status prepare(const zx_call *call, bool backward, uint64_t *work_bytes, void **state,
                         zx_err *err)
{
    linear_loss j = loss_of(call, backward);
    programs *l = calloc(1, sizeof *l);
    if (!l) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    zx_status st = ZX_OK;
#ifndef ZX_NAIVE
    const bool empty = j.rows == 0 || j.size == 0 || j.classes == 0;
    if (!empty && (j.bf16 || call->in[backward ? 1 : 0].type.dtype == ZX_F32))
        st = make_programs(&j, l, err);
#endif
    *work_bytes = layout(&j, NULL, l->work_bytes);
    if (st == ZX_OK)
        *state = l;
    else
        release(l);
    return st;
}

static void finish(const linear_loss *j, float *loss)
{
    double sum = 0;
    for (int64_t i = 0; i < j->rows; i++) {
        if (j->reduction == REDUCTION_NONE) loss[i] = (float)j->line[i];
        sum += j->line[i];
    }
    if (j->reduction == REDUCTION_NONE) return;
    loss[0] = (float)(j->reduction == REDUCTION_MEAN ? sum / count_valid(j) : sum);
}

static zx_status run(linear_loss *j, zx_err *err)
{
    if (!j->bf16) ZX_TRY(zx_need_f32(j->call, err));
    const int threads = j->rows * j->classes < ZX_GRAIN / 4 ? 1 : j->call->threads;
    layout(j, j->call->work, 0);
    for (j->first = 0; j->first < j->rows; j->first += j->at_once) {
        j->n = zx_min_i64(j->at_once, j->rows - j->first);
        ZX_TRY(multiply(j, SCORES, err));
        zx_split(threads, j->n, 1, 2, take_rows, j);
        if (j->dx) ZX_TRY(multiply(j, DX, err));
        if (j->dw) ZX_TRY(multiply(j, DW, err));
        if (j->db) zx_split(threads, j->classes, 16, ZX_BLOCK, bias_range, j);
    }
    finish(j, j->call->out[0].data);
    const zx_view *dw = &j->call->out[2], *db = &j->call->out[3];
    if (j->dw && sums_dw(j)) zx_narrow_all(ZX_BF16, j->dw, dw->data, zx_count(dw), threads);
    if (j->db && j->bf16) zx_cpu_narrow(ZX_BF16, j->db, db->data, zx_count(db));
    return ZX_OK;
}

static zx_status forward_prepare(const zx_call *call, uint64_t *work_bytes, void **state,
                                 zx_err *err)
{
    return prepare(call, false, work_bytes, state, err);
}

static zx_status linear_cross_entropy(const zx_call *call, zx_err *err)
{
    linear_loss j = loss_of(call, false);
    j.lse = call->out[1].data;
    return run(&j, err);
}
const zx_kernel zx_cpu_linear_cross_entropy = {
    .prepare = forward_prepare, .release = release, .run = linear_cross_entropy};

static zx_status backward_prepare(const zx_call *call, uint64_t *work_bytes, void **state,
                                  zx_err *err)
{
    return prepare(call, true, work_bytes, state, err);
}

static zx_status linear_cross_entropy_grad(const zx_call *call, zx_err *err)
{
    linear_loss j = loss_of(call, true);
    j.dloss = call->in[0].data;
    j.divisor = j.reduction == REDUCTION_MEAN ? count_valid(&j) : 1.0;
    j.dx = call->out[1].data;
    j.dw = call->out[2].data;
    j.db = call->out[3].data;
    if (j.rows == 0) { // nothing adds to them
        if (j.dw) zx_fill_zero(j.dw, zx_type_bytes(&call->out[2].type), call->threads);
        if (j.db) zx_fill_zero(j.db, zx_type_bytes(&call->out[3].type), call->threads);
        j.dw = NULL;
        j.db = NULL;
    }
    return run(&j, err);
}
const zx_kernel zx_cpu_linear_cross_entropy_grad = {
    .prepare = backward_prepare, .release = release, .run = linear_cross_entropy_grad};

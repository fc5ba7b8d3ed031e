// linear_loss.cu - the cross entropy of a linear layer's scores, without the scores of all rows
// ever being there: see kernels/cpu/linear_loss.c. The products are cuBLASLt's. Where x and w are
// of 16 bits scores are float32 all the same; their gradients are rounded before they are
// multiplied, and sums over chunks are float32.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/product.h"

namespace
{

#ifndef ZX_LINEAR_LOSS_BYTES                      // a test has few rows at a time
#define ZX_LINEAR_LOSS_BYTES ((int64_t)128 << 20) // of scores at a time, but so many rows at least:
#define ZX_LINEAR_LOSS_ROWS 64
#endif

// ---- rows ---------------------------------------------------------------------------------------
// The scores' gradients as they are multiplied, in 16 bits.
typedef struct low_type {
    zx_dtype type;
    bool alone; // nothing reads them in float32
} low_type;
static __device__ inline void put_low(void *low, zx_dtype type, int64_t i, float x)
{
    if (type == ZX_BF16)
        ((__nv_bfloat16 *)low)[i] = zx_from_float<__nv_bfloat16>(x);
    else
        ((__half *)low)[i] = zx_from_float<__half>(x);
}

// The losses of rows [first, first + n), and backward the scores' gradients, in the scores' place
// and where there is one in `low`.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    take_rows(float *scores, const void *labels, const float *dloss, const double *divisor,
              float *lses, double *of_line, void *low, low_type as, int64_t first, int64_t n,
              lines l, zx_fault *fault)
{
    const int64_t row = zx_team_row<N>(), line = first + row;
    if (row >= n) return; // a warp as a whole: blocks have a row each
    const int64_t y = class_of(l, labels, line, zx_team_place<N>() == 0 ? fault : NULL);
    float *s = scores + row * l.classes, most = -INFINITY;
    for (int64_t c = zx_team_place<N>(); c < l.classes; c += N) most = s[c] > most ? s[c] : most;
    most = zx_team_max<N>(most);
    const double own = y < 0 ? 0 : (double)s[y];
    const float shift = most == -INFINITY ? 0.0f : most; // not -inf + inf
    double sum = 0;
    for (int64_t c = zx_team_place<N>(); c < l.classes; c += N) sum += (double)expf(s[c] - shift);
    sum = zx_team_sum<N>(sum);
    const double lse = (double)shift + log(sum);
    if (zx_team_place<N>() == 0) {
        if (lses != NULL) lses[line] = (float)lse;
        of_line[line] = y < 0 ? 0 : lse - own;
    }
    if (dloss == NULL) return;
    const double over = l.reduction == REDUCTION_MEAN ? *divisor : 1.0;
    const double f = (double)dloss[l.reduction == REDUCTION_NONE ? line : 0] / over;
    const float factor = (float)(f / sum);
    for (int64_t c = zx_team_place<N>(); c < l.classes; c += N) {
        const float d = expf(s[c] - shift) * factor - (c == y ? (float)f : 0.0f);
        const float g = y < 0 ? 0.0f : d;
        if (low == NULL || !as.alone) s[c] = g;
        if (low != NULL) put_low(low, as.type, row * l.classes + c, g);
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    round_to(const float *x, void *y, zx_dtype type, int64_t n)
{
    ZX_FOR_EACH(i, n) put_low(y, type, i, x[i]);
}
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK) widen_row(const T *x, float *y, int64_t n)
{
    ZX_FOR_EACH(i, n) y[i] = zx_to_float(x[i]);
}
// Column sums of the gradients of the scores, in order of the rows, added to those of rows before.
__global__ void __launch_bounds__(ZX_BLOCK)
    add_bias(const float *scores, float *db, int64_t n, int64_t classes, bool first)
{
    ZX_FOR_EACH(c, classes)
    {
        double sum = first ? 0 : (double)db[c];
        for (int64_t r = 0; r < n; r++) sum += (double)scores[r * classes + c];
        db[c] = (float)sum;
    }
}

// ---- products: of the first rows, those in the middle, which add to dw, and the last ------------
typedef enum part { SCORES, DX, DW, PARTS } part;
enum { FIRST, MIDDLE, LAST, CHUNKS };

typedef struct job {
    const zx_call *call;
    zx_dtype type; // of x, w and the bias, and their gradients
    uint32_t x;    // input
    int64_t rows, size, classes, at_once;
    bool trans; // w is [classes, size]
} job;
typedef struct products {
    zx_cuda_product *of[CHUNKS][PARTS];
    uint64_t work_bytes;
} products;

job job_of(const zx_call *c)
{
    job j;
    j.call = c;
    j.x = c->op == ZX_K_LINEAR_CROSS_ENTROPY_GRAD ? 1 : 0;
    j.type = c->in[j.x].type.dtype;
    const zx_shape *x = &c->in[j.x].type.shape, *w = &c->in[j.x + 1].type.shape;
    j.rows = zx_shape_span(x, 0, x->rank - 1);
    j.size = x->dim[x->rank - 1];
    j.trans = zx_attr_int(c->attrs, ZX_A_TRANS_B, 1) != 0;
    j.classes = w->dim[j.trans ? 0 : 1];
    const int64_t room = j.classes > 0 ? ZX_LINEAR_LOSS_BYTES / 4 / j.classes : j.rows;
    const int64_t most = room > ZX_LINEAR_LOSS_ROWS ? room : ZX_LINEAR_LOSS_ROWS;
    const int64_t chunks = (j.rows + most - 1) / most;
    const int64_t even = chunks > 0 ? (j.rows + chunks - 1) / chunks : 1;
    const int64_t step = ZX_ALIGN / zx_dtype_bytes(j.type); // every address is a multiple of it
    j.at_once = (even + step - 1) / step * step;
    return j;
}
bool is_half(const job &j)
{
    return j.type != ZX_F32;
}
// Whether dw is added up beside its 16 bits.
bool sums_dw(const job &j)
{
    return is_half(j) && j.at_once < j.rows;
}
bool has_bias(const job &j)
{
    return j.call->n_in > j.x + 3 && // an omitted view is zeroed
           j.call->in[j.x + 3].type.shape.rank == 1;
}
int64_t rows_at(const job &j, int64_t first)
{
    return j.rows - first < j.at_once ? j.rows - first : j.at_once;
}
int chunk_at(const job &j, int64_t first)
{
    return first == 0 ? FIRST : first + j.at_once < j.rows ? MIDDLE : LAST;
}

// y [m][n] = a [m][k] by b [k][n]; a row or a column of an operand is one number apart.
zx_product product_of(int64_t m, int64_t k, int64_t n, bool a_turned, bool b_turned)
{
    zx_product p = zx_product();
    p.m = m;
    p.k = k;
    p.n = n;
    p.a_row = a_turned ? 1 : k;
    p.a_col = a_turned ? m : 1;
    p.b_row = b_turned ? 1 : n;
    p.b_col = b_turned ? k : 1;
    p.alpha = 1;
    return p;
}
zx_product product_for(const job &j, part of, int64_t n)
{
    zx_product p = of == SCORES ? product_of(n, j.size, j.classes, false, j.trans)
                   : of == DX   ? product_of(n, j.classes, j.size, false, !j.trans)
                   : j.trans    ? product_of(j.classes, n, j.size, true, false)
                                : product_of(j.size, n, j.classes, true, false);
    p.bias = of == SCORES && has_bias(j);
    return p;
}

void release(void *state)
{
    products *p = (products *)state;
    for (int c = 0; p != NULL && c < CHUNKS; c++)
        for (int k = 0; k < PARTS; k++) zx_cuda_product_close(p->of[c][k]);
    free(p);
}
zx_status open_products(const job &j, products *p, zx_err *err)
{
    for (int64_t first = 0; first < j.rows; first += j.at_once) {
        const int c = chunk_at(j, first);
        for (int k = SCORES; k < (j.x == 1 ? PARTS : DX); k++) {
            zx_cuda_product **o = &p->of[c][k];
            if (*o != NULL) continue; // of other rows in the middle
            const zx_product made = product_for(j, (part)k, rows_at(j, first));
            const bool wide = k == SCORES || (k == DW && sums_dw(j));
            ZX_TRY(zx_cuda_product_open_to(j.call->cuda, &made, j.type, wide ? ZX_F32 : j.type,
                                           k == DW && first > 0, o, err));
            const uint64_t bytes = zx_cuda_product_work(*o);
            if (bytes > p->work_bytes) p->work_bytes = bytes;
        }
    }
    return ZX_OK;
}

// ---- the whole ----------------------------------------------------------------------------------
typedef struct scratch { // divisor, [rows] losses, [at_once][classes] scores, the library's
    double *divisor, *of_line;
    float *scores;
    // Of 16 bits, else NULL: the scores' gradients, and in float32 the bias, its gradient and dw.
    void *low;
    float *bias, *db, *dw;
    void *library;
    uint64_t bytes;
} scratch;
void *take(unsigned char *work, uint64_t *at, uint64_t bytes)
{
    unsigned char *from = work != NULL && bytes > 0 ? work + *at : NULL;
    *at += zx_align_up(bytes, ZX_ALIGN);
    return from;
}
scratch scratch_of(const job &j, void *work, uint64_t library_bytes)
{
    const uint64_t scores = (uint64_t)(j.at_once * j.classes), bias = (uint64_t)j.classes;
    const uint64_t dw = (uint64_t)(j.classes * j.size);
    const bool half = is_half(j), backward = half && j.x == 1;
    unsigned char *from = (unsigned char *)work;
    uint64_t at = 0;
    scratch s = scratch();
    s.divisor = (double *)take(from, &at, sizeof *s.divisor);
    s.of_line = (double *)take(from, &at, (uint64_t)j.rows * sizeof *s.of_line);
    s.scores = (float *)take(from, &at, scores * sizeof *s.scores);
    s.low = take(from, &at, backward ? scores * sizeof(uint16_t) : 0);
    s.bias = (float *)take(from, &at, half && has_bias(j) ? bias * sizeof *s.bias : 0);
    s.db = (float *)take(from, &at, backward ? bias * sizeof *s.db : 0);
    s.dw = (float *)take(from, &at, backward && sums_dw(j) ? dw * sizeof *s.dw : 0);
    s.library = take(from, &at, library_bytes);
    s.bytes = at;
    return s;
}

// x, w, the bias and their gradients are of one type, losses and log-sum-exps float32, as what
// isn't read is, too: it is zeroed.
zx_status check_types(const job &j, zx_err *err)
{
    const zx_call *c = j.call;
    bool fine = j.type == ZX_F32 || j.type == ZX_F16 || j.type == ZX_BF16;
    fine = fine && c->in[j.x + 1].type.dtype == j.type &&
           (!has_bias(j) || c->in[j.x + 3].type.dtype == j.type) &&
           (j.x == 0 || c->in[0].type.dtype == ZX_F32);
    for (uint32_t i = 0; i < c->n_out; i++) {
        const zx_type *t = &c->out[i].type;
        const bool grad = j.x == 1 && i > 0 && t->shape.rank > 0;
        fine = fine && t->dtype == (grad ? j.type : ZX_F32);
    }
    if (fine) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no CUDA kernel for operands of several types");
}

zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    const job j = job_of(c);
    ZX_TRY(check_types(j, err));
    products *p = (products *)calloc(1, sizeof *p);
    if (p == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    const zx_status st = open_products(j, p, err);
    *work_bytes = scratch_of(j, NULL, p->work_bytes).bytes;
    if (st == ZX_OK)
        *state = p;
    else
        release(p);
    return st;
}

const char *row_of(const job &j, const void *x, int64_t first)
{
    return (const char *)x + first * j.size * zx_dtype_bytes(j.type);
}
zx_status run_chunk(const job &j, const scratch &s, const lines &l, int64_t first, zx_err *err)
{
    const zx_call *c = j.call;
    const products *p = (const products *)c->state;
    zx_cuda_product *const *of = p->of[chunk_at(j, first)];
    const bool backward = j.x == 1;
    const int64_t n = rows_at(j, first);
    const void *x = row_of(j, c->in[j.x].data, first), *w = c->in[j.x + 1].data;
    const float *dloss = backward ? (const float *)c->in[0].data : NULL;
    const void *bias = !zx_has(c, j.x + 3) ? NULL : s.bias != NULL ? s.bias : c->in[j.x + 3].data;
    float *lses = backward ? NULL : (float *)c->out[1].data;
    void *dx = backward ? c->out[1].data : NULL, *dw = backward ? c->out[2].data : NULL;
    float *db = backward ? (float *)c->out[3].data : NULL;
    if (db != NULL && s.db != NULL) db = s.db;
    if (dw != NULL && s.dw != NULL) dw = s.dw;
    const low_type as = {j.type, db == NULL};
    const void *grads = s.low != NULL ? s.low : s.scores;
    ZX_TRY(zx_cuda_product_run(of[SCORES], c->cuda, x, w, bias, s.scores, s.library, err));
    ZX_TRY(zx_cuda_check(zx_launch_rows(c, n, j.classes, take_rows, s.scores, c->in[j.x + 2].data,
                                        dloss, (const double *)s.divisor, lses, s.of_line, s.low,
                                        as, first, n, l, c->fault),
                         "linear_cross_entropy", err));
    if (dx != NULL)
        ZX_TRY(zx_cuda_product_run(of[DX], c->cuda, grads, w, NULL,
                                   (void *)(uintptr_t)row_of(j, dx, first), s.library, err));
    if (dw != NULL)
        ZX_TRY(zx_cuda_product_run(of[DW], c->cuda, j.trans ? grads : x, j.trans ? x : grads, NULL,
                                   dw, s.library, err));
    if (db == NULL) return ZX_OK;
    return zx_cuda_check(zx_launch_each(c, j.classes, add_bias, (const float *)s.scores, db, n,
                                        j.classes, first == 0),
                         "linear_cross_entropy", err);
}
// Without rows nothing adds to dw and dbias.
zx_status clear(const zx_call *c, uint32_t i, zx_err *err)
{
    const size_t bytes = (size_t)zx_type_bytes(&c->out[i].type);
    if (c->out[i].data == NULL || bytes == 0) return ZX_OK;
    return zx_cuda_check(cudaMemsetAsync(c->out[i].data, 0, bytes, c->cuda->stream),
                         "linear_cross_entropy", err);
}

// The bias as the library adds it to scores of float32.
zx_status widen_bias(const job &j, const scratch &s, zx_err *err)
{
    const zx_call *c = j.call;
    if (s.bias == NULL || !zx_has(c, j.x + 3)) return ZX_OK;
    const void *x = c->in[j.x + 3].data;
    const cudaError_t e =
        j.type == ZX_BF16
            ? zx_launch_each(c, j.classes, widen_row<__nv_bfloat16>, (const __nv_bfloat16 *)x,
                             s.bias, j.classes)
            : zx_launch_each(c, j.classes, widen_row<__half>, (const __half *)x, s.bias, j.classes);
    return zx_cuda_check(e, "linear_cross_entropy", err);
}
// What was added up in float32, rounded.
zx_status round_sums(const job &j, const scratch &s, zx_err *err)
{
    const zx_call *c = j.call;
    const float *const sums[] = {s.dw, s.db};
    if (j.rows == 0) return ZX_OK;
    for (uint32_t i = 0; j.x == 1 && i < 2; i++) {
        const int64_t n = zx_count(&c->out[2 + i]);
        if (sums[i] == NULL || c->out[2 + i].data == NULL) continue;
        ZX_TRY(zx_cuda_check(zx_launch_each(c, n, round_to, sums[i], c->out[2 + i].data, j.type, n),
                             "linear_cross_entropy", err));
    }
    return ZX_OK;
}

zx_status run(const zx_call *c, zx_err *err)
{
    const job j = job_of(c);
    const products *p = (const products *)c->state;
    const scratch s = scratch_of(j, c->work, p->work_bytes);
    const void *labels = c->in[j.x + 2].data;
    const zx_shape scores = {2, {j.rows, j.classes}};
    const lines l = lines_of(c, &scores, &c->in[j.x + 2]);
    if (j.x == 1)
        ZX_TRY(zx_cuda_check(divide(c, l, labels, NULL, s.divisor), "linear_cross_entropy", err));
    ZX_TRY(widen_bias(j, s, err));
    for (int64_t first = 0; first < j.rows; first += j.at_once)
        ZX_TRY(run_chunk(j, s, l, first, err));
    ZX_TRY(round_sums(j, s, err));
    for (uint32_t i = 2; j.x == 1 && j.rows == 0 && i < 4; i++) ZX_TRY(clear(c, i, err));
    return zx_cuda_check(finish(c, l, labels, NULL, s.of_line), "linear_cross_entropy", err);
}

} // namespace

const zx_kernel zx_cuda_linear_cross_entropy = {prepare, release, run};
const zx_kernel zx_cuda_linear_cross_entropy_grad = {prepare, release, run};

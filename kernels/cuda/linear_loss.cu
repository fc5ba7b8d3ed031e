// linear_loss.cu - the cross entropy of a linear layer's scores, float32, without the scores of all
// rows ever being there: see kernels/cpu/linear_loss.c. The products are cuBLASLt's.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cuda/loss.cuh"
#include "kernels/cuda/product.h"

namespace
{

#define MOST_BYTES ((int64_t)128 << 20) // of scores at a time, but LEAST rows at least
#define LEAST 64

// ---- rows ---------------------------------------------------------------------------------------
// The losses of rows [first, first + n), and backward the scores' gradients in the scores' place.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    take_rows(float *scores, const void *labels, const float *dloss, const double *divisor,
              float *lses, double *of_line, int64_t first, int64_t n, lines l, zx_fault *fault)
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
        s[c] = y < 0 ? 0.0f : d;
    }
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
    uint32_t x; // input
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
    const zx_shape *x = &c->in[j.x].type.shape, *w = &c->in[j.x + 1].type.shape;
    j.rows = zx_shape_span(x, 0, x->rank - 1);
    j.size = x->dim[x->rank - 1];
    j.trans = zx_attr_int(c->attrs, ZX_A_TRANS_B, 1) != 0;
    j.classes = w->dim[j.trans ? 0 : 1];
    const int64_t room = j.classes > 0 ? MOST_BYTES / 4 / j.classes : j.rows;
    const int64_t most = room > LEAST ? room : LEAST, chunks = (j.rows + most - 1) / most;
    const int64_t even = chunks > 0 ? (j.rows + chunks - 1) / chunks : 1;
    j.at_once = (even + 15) / 16 * 16; // so that every address is a multiple of ZX_ALIGN
    return j;
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
    p.bias = of == SCORES && j.call->n_in > j.x + 3 && // an omitted view is zeroed
             j.call->in[j.x + 3].type.shape.rank == 1;
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
            ZX_TRY(zx_cuda_product_open(j.call->cuda, &made, ZX_F32, k == DW && first > 0, o, err));
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
    void *library;
    uint64_t bytes;
} scratch;
scratch scratch_of(const job &j, void *work, uint64_t library_bytes)
{
    const uint64_t losses = zx_align_up((uint64_t)j.rows * sizeof(double), ZX_ALIGN);
    const uint64_t scores =
        zx_align_up((uint64_t)(j.at_once * j.classes) * sizeof(float), ZX_ALIGN);
    unsigned char *at = (unsigned char *)work;
    scratch s = {NULL, NULL, NULL, NULL, ZX_ALIGN + losses + scores + library_bytes};
    if (at == NULL) return s;
    s.divisor = (double *)at;
    s.of_line = (double *)(at + ZX_ALIGN);
    s.scores = (float *)(at + ZX_ALIGN + losses);
    s.library = at + ZX_ALIGN + losses + scores;
    return s;
}

zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    const job j = job_of(c);
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

float *output(const zx_call *c, uint32_t i)
{
    return (float *)c->out[i].data;
}
zx_status run_chunk(const job &j, const scratch &s, const lines &l, int64_t first, zx_err *err)
{
    const zx_call *c = j.call;
    const products *p = (const products *)c->state;
    zx_cuda_product *const *of = p->of[chunk_at(j, first)];
    const bool backward = j.x == 1;
    const int64_t n = rows_at(j, first);
    const float *x = (const float *)c->in[j.x].data + first * j.size;
    const float *w = (const float *)c->in[j.x + 1].data;
    const float *dloss = backward ? (const float *)c->in[0].data : NULL;
    const void *bias = zx_has(c, j.x + 3) ? c->in[j.x + 3].data : NULL;
    float *lses = backward ? NULL : output(c, 1), *dx = backward ? output(c, 1) : NULL;
    float *dw = backward ? output(c, 2) : NULL, *db = backward ? output(c, 3) : NULL;
    ZX_TRY(zx_cuda_product_run(of[SCORES], c->cuda, x, w, bias, s.scores, s.library, err));
    ZX_TRY(zx_cuda_check(zx_launch_rows(c, n, j.classes, take_rows, s.scores, c->in[j.x + 2].data,
                                        dloss, (const double *)s.divisor, lses, s.of_line, first, n,
                                        l, c->fault),
                         "linear_cross_entropy", err));
    if (dx != NULL)
        ZX_TRY(zx_cuda_product_run(of[DX], c->cuda, s.scores, w, NULL, dx + first * j.size,
                                   s.library, err));
    if (dw != NULL)
        ZX_TRY(zx_cuda_product_run(of[DW], c->cuda, j.trans ? s.scores : x, j.trans ? x : s.scores,
                                   NULL, dw, s.library, err));
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
    for (int64_t first = 0; first < j.rows; first += j.at_once)
        ZX_TRY(run_chunk(j, s, l, first, err));
    for (uint32_t i = 2; j.x == 1 && j.rows == 0 && i < 4; i++) ZX_TRY(clear(c, i, err));
    return zx_cuda_check(finish(c, l, labels, NULL, s.of_line), "linear_cross_entropy", err);
}

} // namespace

const zx_kernel zx_cuda_linear_cross_entropy = {prepare, release, run};
const zx_kernel zx_cuda_linear_cross_entropy_grad = {prepare, release, run};

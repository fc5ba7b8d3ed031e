// naive_matmul.c - MATMUL as plain loops, and how a MATMUL's shapes become one product.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/naive.h"

#define TILE 64 // columns summed side by side: the sums stay in the first-level cache

// Size of dimension `i` of `n` batch dims, aligned at the right; missing ones are 1.
static int64_t batch_dim(const zx_shape *s, uint32_t i, uint32_t n)
{
    const uint32_t have = s->rank - 2, missing = n - have;
    return i < missing ? 1 : s->dim[i - missing];
}

// Drops batch dims of size 1 and joins neighbours in which each operand either moves in both or
// stays in both; strides follow from both operands being C order.
static void join_batch(zx_product *p, const zx_shape *a, const zx_shape *b, uint32_t n)
{
    int64_t a_step = p->m * p->k, b_step = p->k * p->n; // of the dim at hand, from the right
    uint32_t top = ZX_MAX_RANK;                         // p->batch[top..] filled from the right
    for (uint32_t i = n; i-- > 0;) {
        const int64_t da = batch_dim(a, i, n), db = batch_dim(b, i, n), size = da == 1 ? db : da;
        const int64_t sa = da == 1 ? 0 : a_step, sb = db == 1 ? 0 : b_step;
        a_step *= da;
        b_step *= db;
        if (size == 1) continue;
        if (top < ZX_MAX_RANK && (p->a_batch[top] == 0) == (sa == 0) &&
            (p->b_batch[top] == 0) == (sb == 0)) {
            p->batch[top] *= size; // the strides of the inner one serve both
            continue;
        }
        top--;
        p->batch[top] = size;
        p->a_batch[top] = sa;
        p->b_batch[top] = sb;
    }
    p->n_batch = ZX_MAX_RANK - top;
    for (uint32_t i = 0; i < p->n_batch; i++) {
        p->batch[i] = p->batch[top + i];
        p->a_batch[i] = p->a_batch[top + i];
        p->b_batch[i] = p->b_batch[top + i];
    }
}

zx_product zx_product_of(const zx_call *call)
{
    const zx_shape *a = &call->in[0].type.shape, *b = &call->in[1].type.shape;
    const zx_shape *y = &call->out[0].type.shape;
    const bool trans_a = zx_attr_int(call->attrs, ZX_A_TRANS_A, 0) != 0;
    const bool trans_b = zx_attr_int(call->attrs, ZX_A_TRANS_B, 0) != 0;
    ZX_ASSERT(a->rank >= 2 && b->rank >= 2 && y->rank >= 2);
    zx_product p = {0};
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (trans_a ? 2 : 1)];
    ZX_ASSERT(a->dim[a->rank - (trans_a ? 1 : 2)] == p.m);
    ZX_ASSERT(b->dim[b->rank - (trans_b ? 1 : 2)] == p.k);
    p.a_row = trans_a ? 1 : p.k;
    p.a_col = trans_a ? p.m : 1;
    p.b_row = trans_b ? 1 : p.n;
    p.b_col = trans_b ? p.k : 1;
    p.alpha = zx_attr_float(call->attrs, ZX_A_ALPHA, 1.0);
    p.bias = call->n_in > 2 && call->in[2].type.shape.rank == 1; // an omitted view is zeroed
    join_batch(&p, a, b, y->rank - 2);
    // Rows of a over which b stays the same are just more rows.
    if (p.n_batch > 0 && !trans_a && p.b_batch[p.n_batch - 1] == 0) {
        p.n_batch--;
        p.m *= p.batch[p.n_batch];
    }
    return p;
}

// Row i of batch `at`, for float and double.
#define ROW(T)                                                                                     \
    static void row_##T(const zx_product *p, const T *a, const T *b, const T *c, T *y)             \
    {                                                                                              \
        for (int64_t from = 0; from < p->n; from += TILE) {                                        \
            const int64_t n = p->n - from < TILE ? p->n - from : TILE;                             \
            double sum[TILE] = {0};                                                                \
            for (int64_t k = 0; k < p->k; k++) {                                                   \
                const double left = (double)a[k * p->a_col];                                       \
                const T *right = b + k * p->b_row + from * p->b_col;                               \
                for (int64_t j = 0; j < n; j++) sum[j] += left * (double)right[j * p->b_col];      \
            }                                                                                      \
            for (int64_t j = 0; j < n; j++)                                                        \
                y[from + j] = (T)(p->alpha * sum[j] + (c ? (double)c[from + j] : 0.0));            \
        }                                                                                          \
    }
ROW(float)
ROW(double)
#undef ROW

typedef struct job {
    zx_product p;
    bool wide;
    const void *a, *b, *c;
    void *y;
} job;

static void rows(void *ctx, int64_t from, int64_t to)
{
    const job *j = ctx;
    const zx_product *p = &j->p;
    for (int64_t row = from; row < to; row++) {
        int64_t at = row / p->m, a = row % p->m * p->a_row, b = 0;
        for (uint32_t i = p->n_batch; i-- > 0; at /= p->batch[i]) {
            a += at % p->batch[i] * p->a_batch[i];
            b += at % p->batch[i] * p->b_batch[i];
        }
        if (j->wide)
            row_double(p, (const double *)j->a + a, (const double *)j->b + b, j->c,
                       (double *)j->y + row * p->n);
        else
            row_float(p, (const float *)j->a + a, (const float *)j->b + b, j->c,
                      (float *)j->y + row * p->n);
    }
}

void zx_naive_matmul(const zx_call *call)
{
    job j = {.p = zx_product_of(call), .wide = call->in[0].type.dtype == ZX_F64};
    j.a = call->in[0].data;
    j.b = call->in[1].data;
    j.c = j.p.bias ? call->in[2].data : NULL;
    j.y = call->out[0].data;
    int64_t n = j.p.m;
    for (uint32_t i = 0; i < j.p.n_batch; i++) n *= j.p.batch[i];
    if (j.p.n > 0) zx_split(call->threads, n, 1, 2, rows, &j);
}

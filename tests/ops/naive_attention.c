// naive_attention.c - attention, rotary positions and the loss of a linear layer; see naive.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

// ---- attention
// -------------------------------------------------------------------------------------

typedef struct operand { // [B,H,T,D], or [B,T,H*D] with the heads said by an attribute
    const naive_tensor *t;
    int64_t heads, rows, size;
} operand;

static operand operand_of(const naive_call *c, const naive_tensor *t, zx_attr_id heads)
{
    const int64_t *d = t->type.shape.dim;
    if (t->type.shape.rank == 4) return (operand){t, d[1], d[2], d[3]};
    const int64_t n = zx_attr_int(c->attrs, heads, 0);
    return (operand){t, n, d[1], d[2] / n};
}

static double *number_at(const operand *o, int64_t b, int64_t h, int64_t t, int64_t i)
{
    return o->t->x + (o->t->type.shape.rank == 4
                          ? ((b * o->heads + h) * o->rows + t) * o->size + i
                          : ((b * o->rows + t) * o->heads + h) * o->size + i);
}

// What is added to the score at [b,h,i,j].
static double bias_of(const naive_call *c, const zx_shape *scores, const int64_t *at)
{
    const naive_tensor *mask = &c->in[3];
    if (zx_attr_int(c->attrs, ZX_A_CAUSAL, 0) && at[3] > at[2] + zx_attr_int(c->attrs, ZX_A_K, 0))
        return -INFINITY;
    if (c->n_in < 4 || mask->x == NULL) return 0;
    const double m = mask->x[naive_from(&mask->type.shape, scores, at)];
    return mask->type.dtype != ZX_BOOL ? m : m != 0 ? 0 : -INFINITY;
}

void naive_attention(const naive_call *c)
{
    const operand q = operand_of(c, &c->in[0], ZX_A_HEADS), y = operand_of(c, c->out, ZX_A_HEADS);
    const operand k = operand_of(c, &c->in[1], ZX_A_KV_HEADS);
    const operand v = operand_of(c, &c->in[2], ZX_A_KV_HEADS);
    const zx_shape scores = {4, {c->in[0].type.shape.dim[0], q.heads, q.rows, k.rows}};
    const double cap = zx_attr_float(c->attrs, ZX_A_SOFTCAP, 0);
    double s[256];
    for (int64_t row = 0; row < zx_shape_span(&scores, 0, 3); row++) {
        int64_t at[4] = {row / (q.heads * q.rows), row / q.rows % q.heads, row % q.rows, 0};
        const int64_t b = at[0], h = at[1], i = at[2], kv = h / (q.heads / k.heads);
        double most = -INFINITY, sum = 0;
        // A row that is masked as a whole gives zeros, or the mean.
        const bool mean = zx_attr_int(c->attrs, ZX_A_MODE, 0) != 0;
        bool open = false;
        for (int64_t j = at[3] = 0; j < k.rows; at[3] = ++j) {
            s[j] = 0;
            for (int64_t d = 0; d < q.size; d++)
                s[j] += *number_at(&q, b, h, i, d) * *number_at(&k, b, kv, j, d);
            s[j] *= zx_attr_float(c->attrs, ZX_A_SCALE, 1);
            if (cap > 0) s[j] = cap * tanh(s[j] / cap);
            const double bias = bias_of(c, &scores, at);
            open = open || bias != -INFINITY;
            s[j] += bias;
            most = fmax(most, s[j]);
        }
        for (int64_t j = 0; j < k.rows && open; j++) sum += exp(s[j] - most);
        for (int64_t d = 0; d < v.size; d++) {
            double out = 0;
            for (int64_t j = 0; j < k.rows && open; j++)
                out += exp(s[j] - most) / sum * *number_at(&v, b, kv, j, d);
            for (int64_t j = 0; j < k.rows && !open && mean; j++)
                out += *number_at(&v, b, kv, j, d) / (double)k.rows;
            *number_at(&y, b, h, i, d) = out;
        }
        c->out[1].x[row] = most + log(sum);
    }
}

// q, k and v cut out of one tensor.
void naive_packed_attention(const naive_call *c)
{
    enum { MOST = 4096 };
    const int64_t nq = zx_attr_int(c->attrs, ZX_A_HEADS, 0);
    const int64_t heads[] = {nq, zx_attr_int(c->attrs, ZX_A_KV_HEADS, 0), 0};
    const int64_t *d = c->in[0].type.shape.dim, size = d[2] / (nq + 2 * heads[1]);
    double x[3][MOST];
    naive_tensor in[4] = {[3] = c->n_in > 1 ? c->in[1] : (naive_tensor){0}};
    for (int64_t i = 0, at = 0; i < 3; at += in[i++].type.shape.dim[2]) {
        in[i] = (naive_tensor){c->in[0].type, x[i]};
        in[i].type.shape.dim[2] = heads[i > 0] * size;
        const int64_t n = in[i].type.shape.dim[2];
        for (int64_t row = 0; row < d[0] * d[1]; row++)
            for (int64_t k = 0; k < n && row * n + k < MOST; k++)
                x[i][row * n + k] = c->in[0].x[row * d[2] + at + k];
    }
    const naive_call cut = {ZX_OP_ATTENTION, c->attrs, 4, c->n_out, in, c->out};
    naive_attention(&cut);
}

// ---- rotary positions
// ------------------------------------------------------------------------------

void naive_rotary_embedding(const naive_call *c)
{
    const operand x = operand_of(c, &c->in[0], ZX_A_HEADS), y = operand_of(c, c->out, ZX_A_HEADS);
    const zx_shape *cache = &c->in[1].type.shape;
    const int64_t batch = c->in[0].type.shape.dim[0], half = cache->dim[cache->rank - 1];
    const bool pairs = zx_attr_int(c->attrs, ZX_A_INTERLEAVED, 0) != 0;
    const double sign = zx_attr_int(c->attrs, ZX_A_REVERSE, 0) != 0 ? -1 : 1;
    const naive_tensor *where = c->n_in > 3 ? &c->in[3] : &c->in[1];
    for (int64_t n = 0; n < batch * x.heads * x.rows; n++) {
        const int64_t b = n / (x.heads * x.rows), h = n / x.rows % x.heads, t = n % x.rows;
        int64_t at = (where->type.shape.dim[0] == 1 ? 0 : b) * x.rows + t;
        if (c->n_in > 3) at = (int64_t)where->x[at];
        for (int64_t d = 0; d < x.size; d++)
            *number_at(&y, b, h, t, d) = *number_at(&x, b, h, t, d);
        for (int64_t i = 0; i < half; i++) {
            const int64_t first = pairs ? 2 * i : i, second = pairs ? 2 * i + 1 : i + half;
            const double re = *number_at(&x, b, h, t, first);
            const double im = *number_at(&x, b, h, t, second);
            const double cos = c->in[1].x[at * half + i], sin = sign * c->in[2].x[at * half + i];
            *number_at(&y, b, h, t, first) = re * cos - im * sin;
            *number_at(&y, b, h, t, second) = re * sin + im * cos;
        }
    }
}

// ---- the loss of a linear layer
// --------------------------------------------------------------------

// The scores, and what CrossEntropy makes of them.
void naive_linear_cross_entropy(const naive_call *c)
{
    static double scores[1 << 17];
    const bool trans = zx_attr_int(c->attrs, ZX_A_TRANS_B, 1) != 0;
    const int64_t *w = c->in[1].type.shape.dim, classes = w[trans ? 0 : 1], size = w[trans ? 1 : 0];
    const int64_t rows = naive_count(&c->in[2]);
    for (int64_t i = 0; i < rows * classes; i++) {
        scores[i] = c->n_in > 3 ? c->in[3].x[i % classes] : 0;
        for (int64_t d = 0; d < size; d++)
            scores[i] += c->in[0].x[i / classes * size + d] *
                         c->in[1].x[trans ? i % classes * size + d : d * classes + i % classes];
    }
    const naive_tensor in[] = {{{ZX_F32, {2, {rows, classes}}}, scores}, c->in[2], {{0}, NULL}};
    naive_call entropy = *c;
    entropy.in = in;
    naive_cross_entropy(&entropy);
}

// naive_reduce.c - reductions, normalisation, losses; see naive.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

// ---- reductions
// ------------------------------------------------------------------------------------

// One row's values in order: `n` of them.
typedef double row_fn(const double *x, int64_t n);

static double row_sum(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}
static double row_mean(const double *x, int64_t n)
{
    return row_sum(x, n) / (double)n;
}
static double row_max(const double *x, int64_t n)
{
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = isnan(x[i]) || x[i] > most ? x[i] : most;
    return most;
}
static double row_min(const double *x, int64_t n)
{
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++) least = isnan(x[i]) || x[i] < least ? x[i] : least;
    return least;
}
static double row_prod(const double *x, int64_t n)
{
    double product = 1;
    for (int64_t i = 0; i < n; i++) product *= x[i];
    return product;
}
static double row_l1(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs(x[i]);
    return sum;
}
static double row_sum_square(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}
static double row_l2(const double *x, int64_t n)
{
    return sqrt(row_sum_square(x, n));
}
static double row_log_sum_exp(const double *x, int64_t n)
{
    const double most = row_max(x, n);
    double sum = 0;
    if (isinf(most)) return most;
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - most);
    return log(sum) + most;
}

// The elements of x that share their index outside `reduced` with element `at`, in order.
static int64_t row_of(const naive_tensor *t, const bool *reduced, const int64_t *at, double *row)
{
    const zx_shape *s = &t->type.shape;
    int64_t n = 0;
    for (int64_t i = 0; i < naive_count(t); i++) {
        int64_t index[ZX_MAX_RANK];
        bool same = true;
        naive_index(s, i, index);
        for (uint32_t d = 0; d < s->rank; d++) same = same && (reduced[d] || index[d] == at[d]);
        if (same) row[n++] = t->x[i];
    }
    return n;
}

void naive_reduce(const naive_call *c)
{
    static row_fn *const f[ZX_OP_COUNT] = {
        [ZX_OP_REDUCE_SUM] = row_sum,
        [ZX_OP_REDUCE_MEAN] = row_mean,
        [ZX_OP_REDUCE_MAX] = row_max,
        [ZX_OP_REDUCE_MIN] = row_min,
        [ZX_OP_REDUCE_PROD] = row_prod,
        [ZX_OP_REDUCE_L1] = row_l1,
        [ZX_OP_REDUCE_L2] = row_l2,
        [ZX_OP_REDUCE_SUM_SQUARE] = row_sum_square,
        [ZX_OP_REDUCE_LOG_SUM_EXP] = row_log_sum_exp,
    };
    static double row[1 << 20];
    bool reduced[ZX_MAX_RANK] = {false};
    uint32_t n_axes;
    const int64_t *axes = zx_attr_ints(c->attrs, ZX_A_AXES, &n_axes);
    zx_shape kept = c->in->type.shape;
    for (uint32_t i = 0; i < n_axes; i++) {
        reduced[axes[i]] = true;
        kept.dim[axes[i]] = 1;
    }
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        int64_t at[ZX_MAX_RANK] = {0};
        naive_index(&kept, i, at);
        c->out->x[i] = f[c->op](row, row_of(c->in, reduced, at, row));
    }
}

// ---- normalisation
// ---------------------------------------------------------------------------------

// LayerNormalization, and RMSNormalization, which has no mean and no bias.
void naive_layer_norm(const naive_call *c)
{
    const bool rms = c->op == ZX_OP_RMS_NORM;
    const zx_shape *s = &c->in->type.shape;
    const int64_t n = zx_shape_span(s, (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0), s->rank);
    const double epsilon = zx_attr_float(c->attrs, ZX_A_EPSILON, 1e-5);
    for (int64_t r = 0; n > 0 && r < naive_count(c->in) / n; r++) {
        const double *x = c->in->x + r * n;
        const double mean = rms ? 0 : row_mean(x, n);
        double variance = 0;
        for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
        const double inv = 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < n; i++) {
            double y = (x[i] - mean) * inv;
            if (c->in[1].x) y *= c->in[1].x[i];
            if (!rms && c->in[2].x) y += c->in[2].x[i];
            c->out->x[r * n + i] = y;
        }
        if (!rms) c->out[1].x[r] = mean;
        c->out[rms ? 1 : 2].x[r] = inv;
    }
}

void naive_batch_norm(const naive_call *c)
{
    const zx_shape *s = &c->in->type.shape;
    const int64_t planes = s->dim[1], inner = zx_shape_span(s, 2, s->rank);
    const int64_t n = s->dim[0] * inner;
    const double momentum = zx_attr_float(c->attrs, ZX_A_MOMENTUM, 0.9);
    const double epsilon = zx_attr_float(c->attrs, ZX_A_EPSILON, 1e-5);
    const bool unbiased = zx_attr_int(c->attrs, ZX_A_UNBIASED, 0) != 0;
    for (int64_t p = 0; p < planes; p++) {
        double mean = 0, variance = 0;
#define EACH(at)                                                                                   \
    for (int64_t b_ = 0; b_ < s->dim[0]; b_++)                                                     \
        for (int64_t at = (b_ * planes + p) * inner; at < (b_ * planes + p + 1) * inner; at++)
        EACH(i) mean += c->in->x[i] / (double)n;
        EACH(i) variance += (c->in->x[i] - mean) * (c->in->x[i] - mean) / (double)n;
        const double inv = 1 / sqrt(variance + epsilon);
        EACH(i) c->out->x[i] = (c->in->x[i] - mean) * inv * c->in[1].x[p] + c->in[2].x[p];
        const double kept = unbiased && n > 1 ? variance * (double)n / (double)(n - 1) : variance;
        c->out[1].x[p] = c->in[3].x[p] * momentum + mean * (1 - momentum);
        c->out[2].x[p] = c->in[4].x[p] * momentum + kept * (1 - momentum);
        c->out[3].x[p] = mean;
        c->out[4].x[p] = inv;
#undef EACH
    }
}

void naive_softmax(const naive_call *c)
{
    const int64_t axis = zx_attr_int(c->attrs, ZX_A_AXIS, 0);
    const zx_shape *s = &c->in->type.shape;
    for (int64_t i = 0; i < naive_count(c->in); i++) {
        int64_t index[ZX_MAX_RANK];
        double most = -INFINITY, sum = 0;
        naive_index(s, i, index);
        for (index[axis] = 0; index[axis] < s->dim[axis]; index[axis]++)
            most = fmax(most, c->in->x[naive_flat(s, index)]);
        for (index[axis] = 0; index[axis] < s->dim[axis]; index[axis]++)
            sum += exp(c->in->x[naive_flat(s, index)] - most);
        const double log_y = c->in->x[i] - most - log(sum);
        c->out->x[i] = c->op == ZX_OP_SOFTMAX ? exp(log_y) : log_y;
    }
}

// ---- losses
// ------------------------------------------------------------------------------------------

// The loss over rows of log-probabilities logp(i, class), as PyTorch defines it.
static void class_loss(const naive_call *c, const double *logp)
{
    const zx_shape *s = &c->in->type.shape;
    const int64_t classes = s->dim[1], inner = zx_shape_span(s, 2, s->rank);
    const zx_attr *ignore = zx_attr_find(c->attrs, ZX_A_IGNORE_INDEX);
    const int64_t reduction = zx_attr_int(c->attrs, ZX_A_REDUCTION, 1);
    const double smoothing = zx_attr_float(c->attrs, ZX_A_SMOOTHING, 0);
    const double *weights = c->in[2].x;
    double sum = 0, total = 0;
    for (int64_t i = 0; i < naive_count(&c->in[1]); i++) {
        const int64_t first = i / inner * classes * inner + i % inner; // class 0 of this label
        const int64_t label = (int64_t)c->in[1].x[i];
        double loss = 0;
        if (ignore == NULL || label != ignore->i[0]) {
            const double w = weights ? weights[label] : 1;
            loss = -(1 - smoothing) * w * logp[first + label * inner];
            for (int64_t k = 0; smoothing > 0 && k < classes; k++)
                loss -= smoothing / (double)classes * (weights ? weights[k] : 1) *
                        logp[first + k * inner];
            total += w;
        }
        sum += loss;
        if (reduction == 0) c->out->x[i] = loss;
    }
    if (reduction != 0) c->out->x[0] = reduction == 1 ? sum / total : sum;
}

void naive_nll_loss(const naive_call *c)
{
    class_loss(c, c->in->x);
}

void naive_cross_entropy(const naive_call *c)
{
    static double logp[1 << 17];
    const zx_shape *s = &c->in->type.shape;
    const int64_t classes = s->dim[1], inner = zx_shape_span(s, 2, s->rank);
    for (int64_t i = 0; i < naive_count(&c->in[1]); i++) {
        const int64_t first = i / inner * classes * inner + i % inner;
        double row[4096];
        for (int64_t k = 0; k < classes; k++) row[k] = c->in->x[first + k * inner];
        const double lse = row_log_sum_exp(row, classes);
        for (int64_t k = 0; k < classes; k++) logp[first + k * inner] = row[k] - lse;
        c->out[1].x[i] = lse;
    }
    class_loss(c, logp);
}

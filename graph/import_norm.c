// import_norm.c - lowering of normalisations, softmax, dropout and losses.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

static double epsilon(zx_imp *c)
{
    const double e = zx_float(c, "epsilon", 9.999999747378752e-06);
    if (!(e >= 0 && e < 1e30)) zx_fail(c, ZX_E_FORMAT, "the attribute 'epsilon' is %g", e);
    return e;
}

static void stash_type(zx_imp *c)
{
    const int64_t t = zx_int(c, "stash_type", 1);
    if (zx_ok(c) && t != 1)
        zx_fail(c, ZX_E_UNSUPPORTED,
                "the attribute 'stash_type' is %" PRId64 ", only 1 is supported", t);
}

static uint32_t mul(zx_imp *c, uint32_t a, uint32_t b)
{
    return zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, a, b);
}

static uint32_t add(zx_imp *c, uint32_t a, uint32_t b)
{
    return zx_e2(c, ZX_OP_ADD, ZX_NO_ATTRS, a, b);
}

// ---- layers
// ---------------------------------------------------------------------------------------------

// v in exactly the shape of x's dims from `axis` on, where it broadcasts within them; else ZX_NONE.
static uint32_t as_normalised(zx_imp *c, uint32_t v, const zx_shape *x, uint32_t axis)
{
    const zx_shape s = *zx_s(c, v);
    zx_shape in = {.rank = x->rank - axis}, own = in;
    for (uint32_t i = 0; i < in.rank; i++) in.dim[i] = x->dim[axis + i];
    for (uint32_t i = 0; i < s.rank; i++) {
        const uint32_t from_end = s.rank - i;
        if (from_end > in.rank) {
            if (s.dim[i] != 1) return ZX_NONE;
            continue;
        }
        if (s.dim[i] != 1 && s.dim[i] != in.dim[in.rank - from_end]) return ZX_NONE;
    }
    for (uint32_t i = 0; i < own.rank; i++)
        own.dim[i] = own.rank - i <= s.rank ? s.dim[s.rank - (own.rank - i)] : 1;
    return zx_expand(c, zx_reshape(c, v, &own), &in);
}

// The node's scale (and bias) applied by hand, where they don't fit the fused form.
static uint32_t apply(zx_imp *c, uint32_t y, uint32_t scale, uint32_t bias)
{
    const zx_shape want = *zx_s(c, y);
    if (scale != ZX_NONE) y = mul(c, y, scale);
    if (bias != ZX_NONE) y = add(c, y, bias);
    if (zx_ok(c) && !zx_shape_equal(zx_s(c, y), &want))
        zx_fail(c, ZX_E_SHAPE, "the scale or bias doesn't broadcast to the input");
    return y;
}

static void layer_norm(zx_imp *c, zx_op_id op, uint32_t x, uint32_t scale, uint32_t bias,
                       uint32_t axis, double eps, uint32_t out[8])
{
    const zx_shape s = *zx_s(c, x);
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis);
    a = zx_with_float(c, a, ZX_A_EPSILON, eps);
    const uint32_t g = scale == ZX_NONE ? ZX_NONE : as_normalised(c, scale, &s, axis);
    const uint32_t b = bias == ZX_NONE ? ZX_NONE : as_normalised(c, bias, &s, axis);
    const bool fits = (scale == ZX_NONE || g != ZX_NONE) && (bias == ZX_NONE || b != ZX_NONE);
    const bool fused = fits && (scale != ZX_NONE || bias == ZX_NONE);
    zx_ir_emit(c, op, a, (uint32_t[]){x, fused ? g : ZX_NONE, fused ? b : ZX_NONE},
               op == ZX_OP_LAYER_NORM ? 3 : 2, out);
    if (!fused) out[0] = apply(c, out[0], scale, bias);
    if (fused && op == ZX_OP_RMS_NORM && bias != ZX_NONE) out[0] = apply(c, out[0], ZX_NONE, bias);
}

void zx_lower_layer_norm(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), axis = zx_axis(c, zx_int(c, "axis", -1), zx_rank(c, x));
    const double eps = epsilon(c);
    stash_type(c);
    if (!zx_ok(c)) return;
    uint32_t out[8];
    layer_norm(c, ZX_OP_LAYER_NORM, x, zx_in(c, 1), zx_in(c, 2), axis, eps, out);
    for (uint32_t i = 0; i < 3 && zx_ok(c); i++)
        if (i == 0 || zx_wanted(c, i)) zx_out(c, i, out[i]);
}

void zx_lower_rms_norm(zx_imp *c) // also SimplifiedLayerNormalization
{
    const uint32_t x = zx_in(c, 0), axis = zx_axis(c, zx_int(c, "axis", -1), zx_rank(c, x));
    const double eps = epsilon(c);
    stash_type(c);
    if (!zx_ok(c)) return;
    uint32_t out[8];
    layer_norm(c, ZX_OP_RMS_NORM, x, zx_in(c, 1), ZX_NONE, axis, eps, out);
    zx_out(c, 0, out[0]);
    if (zx_ok(c) && zx_wanted(c, 1)) zx_out(c, 1, out[1]);
}

// SkipLayerNormalization and SkipSimplifiedLayerNormalization of com.microsoft: the norm of
// x + skip (+ bias).
void zx_lower_skip_layer_norm(zx_imp *c)
{
    const bool rms = c->node->row->op == ZX_OP_RMS_NORM;
    uint32_t sum = add(c, zx_in(c, 0), zx_in(c, 1));
    const uint32_t beta = rms ? ZX_NONE : zx_in(c, 3), bias = zx_in(c, rms ? 3 : 4);
    if (bias != ZX_NONE) sum = add(c, sum, bias);
    const double eps = zx_float(c, "epsilon", 1e-12);
    if (!zx_ok(c)) return;
    if (zx_rank(c, sum) < 1) {
        zx_fail(c, ZX_E_SHAPE, "it wants at least one dimension");
        return;
    }
    uint32_t out[8];
    layer_norm(c, c->node->row->op, sum, zx_in(c, 2), beta, zx_rank(c, sum) - 1, eps, out);
    zx_out(c, 0, out[0]);
    if (zx_ok(c) && zx_wanted(c, 3)) zx_out(c, 3, sum);
}

// x [N, C, d..] normalised over each of `groups` of channels and all d.
static uint32_t group_norm(zx_imp *c, uint32_t x, int64_t groups, double eps)
{
    const zx_shape s = *zx_s(c, x);
    if (!zx_ok(c)) return ZX_NONE;
    if (s.rank < 2 || groups < 1 || s.dim[1] % groups != 0)
        return zx_fail(c, ZX_E_SHAPE, "%" PRId64 " groups of %" PRId64 " channels", groups,
                       s.rank < 2 ? 0 : s.dim[1]);
    const int64_t inner = zx_shape_span(&s, 1, s.rank) / groups;
    uint32_t out[8];
    const uint32_t flat = zx_reshape_to(c, x, 3, (int64_t[]){s.dim[0], groups, inner});
    layer_norm(c, ZX_OP_LAYER_NORM, flat, ZX_NONE, ZX_NONE, 2, eps, out);
    return out[0];
}

void zx_lower_group_norm(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), scale = zx_in(c, 1), bias = zx_in(c, 2);
    if (!zx_need(c, "num_groups")) return;
    const int64_t groups = zx_int(c, "num_groups", 1);
    const zx_shape s = *zx_s(c, x);
    stash_type(c);
    uint32_t y = group_norm(c, x, groups, epsilon(c));
    if (c->node->opset < 21) { // one number a group, then
        y = mul(c, y, zx_channel(c, scale, 3));
        y = add(c, y, zx_channel(c, bias, 3));
        zx_out(c, 0, zx_reshape(c, y, &s));
        return;
    }
    y = zx_reshape(c, y, &s);
    y = mul(c, y, zx_channel(c, scale, s.rank));
    zx_out(c, 0, add(c, y, zx_channel(c, bias, s.rank)));
}

void zx_lower_instance_norm(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const zx_shape s = *zx_s(c, x);
    uint32_t y = group_norm(c, x, s.rank > 1 ? s.dim[1] : 1, epsilon(c));
    y = zx_reshape(c, y, &s);
    y = mul(c, y, zx_channel(c, zx_in(c, 1), s.rank));
    zx_out(c, 0, add(c, y, zx_channel(c, zx_in(c, 2), s.rank)));
}

// ---- batches
// --------------------------------------------------------------------------------------------

static zx_iparam *statistic(zx_imp *c, uint32_t input)
{
    const zx_ival *v = &c->vals[c->node->in[input]];
    return v->cls == ZX_I_BUFFER && c->buffers[v->entry].changes ? &c->buffers[v->entry] : NULL;
}

void zx_lower_batch_norm(zx_imp *c)
{
    uint32_t in[5];
    for (uint32_t i = 0; i < 5; i++) in[i] = zx_in(c, i);
    const double eps = epsilon(c), momentum = zx_float(c, "momentum", 0.9);
    // Before opset 14 further outputs stand for training form.
    const bool as_exported = c->options->batch_norm_as_exported || c->options->inference;
    const bool exported =
        c->node->opset < 14 ? c->node->n_out > 1 : zx_int(c, "training_mode", 0) != 0;
    const bool training = exported && !c->options->inference;
    if (!zx_ok(c)) return;
    zx_iparam *mean = statistic(c, 3), *var = statistic(c, 4);
    // A module that is called twice updates its statistics twice.
    if (mean) in[3] = mean->now;
    if (var) in[4] = var->now;
    const uint32_t rank = zx_rank(c, in[0]);
    if (!training && as_exported) {
        uint32_t y = zx_e2(c, ZX_OP_SUB, ZX_NO_ATTRS, in[0], zx_channel(c, in[3], rank));
        const uint32_t shifted = add(c, in[4], zx_k(c, zx_t(c, in[4]), eps));
        const uint32_t inv =
            zx_e1(c, ZX_OP_RECIPROCAL, ZX_NO_ATTRS, zx_e1(c, ZX_OP_SQRT, ZX_NO_ATTRS, shifted));
        y = mul(c, y, zx_channel(c, mul(c, inv, in[1]), rank));
        zx_out(c, 0, add(c, y, zx_channel(c, in[2], rank)));
        return;
    }
    const zx_shape *s = zx_s(c, in[0]);
    if (!training && !c->options->forward_only && rank >= 2 && zx_shape_count(s) == s->dim[1]) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "one value a channel has no variance: a larger micro-batch is needed, or "
                "\"batch_norm\": \"as_exported\"");
        return;
    }
    zx_attrs a = zx_with_float(c, ZX_NO_ATTRS, ZX_A_EPSILON, eps);
    a = zx_with_float(c, a, ZX_A_MOMENTUM, momentum);
    a = zx_with_int(c, a, ZX_A_UNBIASED, !training); // what the framework does that exported it
    uint32_t out[8];
    zx_ir_emit(c, ZX_OP_BATCH_NORM, a, in, 5, out);
    if (!zx_ok(c)) return;
    if (mean) mean->now = out[1];
    if (var) var->now = out[2];
    for (uint32_t i = 0; i < 3 && i < c->node->n_out; i++) zx_out(c, i, out[i]);
}

// ---- without parameters
// ------------------------------------------------------------------------------------

void zx_lower_lp_norm(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const int64_t axis = zx_axis(c, zx_int(c, "axis", -1), zx_rank(c, x)), p = zx_int(c, "p", 2);
    if (zx_ok(c) && p != 1 && p != 2) zx_fail(c, ZX_E_FORMAT, "the attribute 'p' is %" PRId64, p);
    uint32_t n = zx_reduce(c, p == 1 ? ZX_OP_REDUCE_L1 : ZX_OP_REDUCE_L2, x, &axis, 1, true);
    // Zeros stay zeros.
    const uint32_t none = zx_e2(c, ZX_OP_EQUAL, ZX_NO_ATTRS, n, zx_k(c, zx_t(c, x), 0));
    n = zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, none, zx_k(c, zx_t(c, x), 1), n);
    zx_out(c, 0, zx_e2(c, ZX_OP_DIV, ZX_NO_ATTRS, x, n));
}

void zx_lower_mean_variance_norm(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    static const int64_t usual[] = {0, 2, 3};
    uint32_t n = 3;
    const int64_t *given = zx_has(c, "axes") ? zx_ints(c, "axes", &n) : usual;
    int64_t axes[ZX_MAX_RANK];
    bool on[ZX_MAX_RANK] = {0};
    for (uint32_t i = 0; i < n && zx_ok(c); i++) on[zx_axis(c, given[i], zx_rank(c, x))] = true;
    n = 0;
    for (uint32_t i = 0; i < ZX_MAX_RANK; i++)
        if (on[i]) axes[n++] = i;
    const uint32_t d =
        zx_e2(c, ZX_OP_SUB, ZX_NO_ATTRS, x, zx_reduce(c, ZX_OP_REDUCE_MEAN, x, axes, n, true));
    const uint32_t var = zx_reduce(c, ZX_OP_REDUCE_MEAN, mul(c, d, d), axes, n, true);
    const uint32_t dev = add(c, zx_e1(c, ZX_OP_SQRT, ZX_NO_ATTRS, var), zx_k(c, zx_t(c, x), 1e-9));
    zx_out(c, 0, zx_e2(c, ZX_OP_DIV, ZX_NO_ATTRS, d, dev));
}

void zx_lower_softmax(zx_imp *c)
{
    uint32_t x = zx_in(c, 0);
    const zx_shape s = *zx_s(c, x);
    const bool old = c->node->opset < 13; // a matrix, then: everything from the axis on is one row
    const int64_t given = zx_int(c, "axis", old ? 1 : -1);
    if (!zx_ok(c)) return;
    if (s.rank == 0) {
        zx_fail(c, ZX_E_SHAPE, "%s of a single number", c->node->op);
        return;
    }
    uint32_t axis = zx_axis(c, given, s.rank + (old && given == (int64_t)s.rank));
    if (!zx_ok(c)) return;
    if (old) {
        x = zx_reshape_to(c, x, 2,
                          (int64_t[]){zx_shape_span(&s, 0, axis), zx_shape_span(&s, axis, s.rank)});
        axis = 1;
    }
    x = zx_e1(c, c->node->row->op, zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis), x);
    zx_out(c, 0, zx_reshape(c, x, &s));
}

void zx_lower_dropout(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const bool old = c->node->opset < 12;
    double ratio = 0.5;
    bool training = old; // older files leave it to the program
    if (old)
        ratio = zx_float(c, "ratio", 0.5);
    else if (zx_given(c, 1))
        ratio = zx_const_float(c, zx_in(c, 1), "the ratio");
    if (!old && zx_given(c, 2)) training = zx_const_float(c, zx_in(c, 2), "training_mode") != 0;
    if (!zx_ok(c)) return;
    if (!(ratio >= 0 && ratio < 1)) {
        zx_fail(c, ZX_E_FORMAT, "Dropout with a ratio of %g", ratio);
        return;
    }
    if (zx_wanted(c, 1)) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "Dropout's mask is read by another node: that isn't supported");
        return;
    }
    if (!training || ratio == 0 || c->options->inference) {
        zx_out(c, 0, x);
        return;
    }
    zx_attrs a = zx_with_float(c, ZX_NO_ATTRS, ZX_A_RATIO, ratio);
    const int64_t key = (int64_t)c->node->source | ((int64_t)c->unroll << 32);
    zx_out(c, 0, zx_e1(c, ZX_OP_DROPOUT, zx_with_int(c, a, ZX_A_KEY, key), x));
}

// ---- losses
// ---------------------------------------------------------------------------------------------------

static zx_attrs loss_attrs(zx_imp *c)
{
    static const char *const reductions[] = {"none", "mean", "sum"};
    const uint32_t r = zx_choice(c, "reduction", 1, reductions, 3);
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_REDUCTION, r);
    if (zx_has(c, "ignore_index"))
        a = zx_with_int(c, a, ZX_A_IGNORE_INDEX, zx_int(c, "ignore_index", 0));
    return a;
}

static uint32_t labels(zx_imp *c, uint32_t input)
{
    const uint32_t y = zx_in(c, input);
    return zx_ok(c) && zx_t(c, y) != ZX_I32 && zx_t(c, y) != ZX_I64 ? zx_cast(c, y, ZX_I64) : y;
}

void zx_lower_cross_entropy(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), y = labels(c, 1), w = zx_in(c, 2);
    const zx_attrs a = loss_attrs(c);
    if (!zx_wanted(c, 1)) {
        zx_out(c, 0, zx_e3(c, ZX_OP_CROSS_ENTROPY, a, x, y, w));
        return;
    }
    // The second output is the log-probabilities: made first, then read by the loss.
    if (zx_ok(c) && zx_rank(c, x) < 2)
        zx_fail(c, ZX_E_SHAPE, "the scores must be [N, classes, ..]");
    const uint32_t p = zx_e1(c, ZX_OP_LOG_SOFTMAX, zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, 1), x);
    zx_out(c, 0, zx_e3(c, ZX_OP_NLL_LOSS, a, p, y, w));
    zx_out(c, 1, p);
}

void zx_lower_nll_loss(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), y = labels(c, 1), w = zx_in(c, 2);
    zx_out(c, 0, zx_e3(c, ZX_OP_NLL_LOSS, loss_attrs(c), x, y, w));
}

// zerox' own: hidden states, the weight of the last layer [classes, inner size], labels.
void zx_lower_linear_cross_entropy(zx_imp *c)
{
    uint32_t out[8];
    const uint32_t in[] = {zx_in(c, 0), zx_in(c, 1), labels(c, 2)};
    zx_ir_emit(c, ZX_OP_LINEAR_CROSS_ENTROPY, loss_attrs(c), in, 3, out);
    for (uint32_t i = 0; i < 2 && zx_ok(c); i++)
        if (i == 0 || zx_wanted(c, 1)) zx_out(c, i, out[i]);
}

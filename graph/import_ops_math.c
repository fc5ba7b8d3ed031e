// import_ops_math.c - lowering of elementwise operators: arithmetic, activations, comparisons,
// casts.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

void zx_lower_identity(zx_imp *c)
{
    const zx_ival *v = zx_given(c, 0) ? &c->vals[c->node->in[0]] : NULL;
    if (v && v->know == ZX_I_SEQUENCE)
        zx_out_seq(c, 0, v->seq.n, v->seq.v);
    else
        zx_out(c, 0, zx_in(c, 0));
}

void zx_lower_unary(zx_imp *c)
{
    zx_out(c, 0, zx_e1(c, c->node->row->op, ZX_NO_ATTRS, zx_in(c, 0)));
}

// Activations with up to three numbers; the standard's defaults.
void zx_lower_activation(zx_imp *c)
{
    static const struct {
        zx_op_id op;
        double alpha, beta, gamma; // NaN: has none
    } rows[] = {
        {ZX_OP_LEAKY_RELU, 0.01, __builtin_nan(""), __builtin_nan("")},
        {ZX_OP_ELU, 1, __builtin_nan(""), __builtin_nan("")},
        {ZX_OP_CELU, 1, __builtin_nan(""), __builtin_nan("")},
        {ZX_OP_SELU, 1.67326319217681884765625, __builtin_nan(""), 1.05070102214813232421875},
        {ZX_OP_THRESHOLDED_RELU, 1, __builtin_nan(""), __builtin_nan("")},
        {ZX_OP_HARD_SIGMOID, 0.2, 0.5, __builtin_nan("")},
        {ZX_OP_SILU, 1, __builtin_nan(""), __builtin_nan("")},
    };
    const zx_op_id op = c->node->row->op;
    zx_attrs a = ZX_NO_ATTRS;
    for (uint32_t i = 0; i < ZX_COUNT(rows); i++) {
        if (rows[i].op != op) continue;
        a = zx_with_float(c, a, ZX_A_ALPHA, zx_float(c, "alpha", rows[i].alpha));
        if (rows[i].beta == rows[i].beta)
            a = zx_with_float(c, a, ZX_A_BETA, zx_float(c, "beta", rows[i].beta));
        if (rows[i].gamma == rows[i].gamma)
            a = zx_with_float(c, a, ZX_A_GAMMA, zx_float(c, "gamma", rows[i].gamma));
    }
    zx_out(c, 0, zx_e1(c, op, a, zx_in(c, 0)));
}

void zx_lower_gelu(zx_imp *c)
{
    static const char *const words[] = {"none", "tanh"};
    const uint32_t mode = zx_choice(c, "approximate", 0, words, 2);
    zx_out(c, 0, zx_e1(c, ZX_OP_GELU, zx_with_int(c, ZX_NO_ATTRS, ZX_A_MODE, mode), zx_in(c, 0)));
}

// slope * x below 0; the slope is a parameter.
void zx_lower_prelu(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    uint32_t slope = zx_in(c, 1);
    // Before opset 7 a list of slopes meant the channels.
    if (zx_ok(c) && c->node->opset < 7 && zx_rank(c, slope) == 1 && zx_rank(c, x) > 2)
        slope = zx_dim(c, slope, 0) == 1 ? slope : zx_channel(c, slope, zx_rank(c, x));
    const uint32_t above = zx_e2(c, ZX_OP_GREATER, ZX_NO_ATTRS, x, zx_k(c, zx_t(c, x), 0));
    const uint32_t y =
        zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, above, x, zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, slope, x));
    if (zx_ok(c) && !zx_shape_equal(zx_s(c, y), zx_s(c, x)))
        zx_fail(c, ZX_E_SHAPE, "the slope doesn't broadcast to the input");
    zx_out(c, 0, y);
}

// Before opset 7 the second operand's dims could stand at an axis of the first's.
static uint32_t at_axis(zx_imp *c, uint32_t a, uint32_t b)
{
    if (c->node->opset >= 7 || !zx_has(c, "axis") || !zx_ok(c)) return b;
    const uint32_t ra = zx_rank(c, a), rb = zx_rank(c, b),
                   axis = zx_axis(c, zx_int(c, "axis", 0), ra);
    if (zx_ok(c) && axis + rb > ra)
        zx_fail(c, ZX_E_SHAPE, "axis %u for %u and %u dimensions", axis, ra, rb);
    if (!zx_ok(c)) return ZX_NONE;
    int64_t dim[ZX_MAX_RANK];
    for (uint32_t i = 0; i < rb; i++) dim[i] = zx_dim(c, b, i);
    for (uint32_t i = rb; i < ra - axis; i++) dim[i] = 1;
    return zx_reshape_to(c, b, ra - axis, dim);
}

// True if the constant v holds nothing but x, and adding it to (or multiplying it with) `other`
// changes neither a value nor the shape: masks that mask nothing are such.
static bool is_neutral(zx_imp *c, uint32_t v, double x, uint32_t other)
{
    if (!zx_ok(c) || !zx_is_const(c, v) || zx_is_const(c, other) || zx_t(c, v) != zx_t(c, other) ||
        zx_t(c, v) != ZX_F32)
        return false;
    const zx_shape *s = zx_s(c, v), *o = zx_s(c, other);
    if (s->rank > o->rank) return false;
    for (uint32_t i = 1; i <= s->rank; i++)
        if (s->dim[s->rank - i] != 1 && s->dim[s->rank - i] != o->dim[o->rank - i]) return false;
    const int64_t n = zx_shape_count(s);
    for (int64_t i = 0; i < n; i++)
        if (zx_const_at(c, v, i) != x) return false;
    return true;
}

void zx_lower_binary(zx_imp *c)
{
    const uint32_t a = zx_in(c, 0), b = at_axis(c, a, zx_in(c, 1));
    const zx_op_id op = c->node->row->op;
    const bool sum = op == ZX_OP_ADD || op == ZX_OP_SUB,
               product = op == ZX_OP_MUL || op == ZX_OP_DIV;
    if ((sum || product) && is_neutral(c, b, product, a)) {
        zx_out(c, 0, a);
        return;
    }
    if ((op == ZX_OP_ADD || op == ZX_OP_MUL) && is_neutral(c, a, product, b)) {
        zx_out(c, 0, b);
        return;
    }
    zx_out(c, 0, zx_e2(c, c->node->row->op, ZX_NO_ATTRS, a, b));
}

void zx_lower_mod(zx_imp *c)
{
    const int64_t fmod = zx_int(c, "fmod", 0);
    const uint32_t a = zx_in(c, 0);
    if (zx_ok(c) && fmod == 0 && zx_dtype_is_float(zx_t(c, a)))
        zx_fail(c, ZX_E_FORMAT, "Mod of floats wants fmod=1");
    const zx_attrs at = zx_with_int(c, ZX_NO_ATTRS, ZX_A_FMOD, fmod != 0);
    zx_out(c, 0, zx_e2(c, ZX_OP_MOD, at, a, zx_in(c, 1)));
}

// Max, Min, Sum, Mean of any number of inputs: a chain, first to last.
void zx_lower_variadic(zx_imp *c)
{
    uint32_t y = zx_in(c, 0);
    for (uint32_t i = 1; i < c->node->n_in; i++) {
        if (!zx_given(c, i)) {
            zx_fail(c, ZX_E_FORMAT, "its input %u is left out", i);
            return;
        }
        y = zx_e2(c, c->node->row->op, ZX_NO_ATTRS, y, zx_in(c, i));
    }
    if (strcmp(c->node->op, "Mean") == 0) y = zx_scale(c, y, 1.0 / c->node->n_in);
    zx_out(c, 0, y);
}

void zx_lower_bitwise_not(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const zx_type t = {.dtype = zx_t(c, x)};
    void *bytes;
    const uint32_t ones = zx_k_new(c, &t, &bytes);
    if (zx_ok(c)) memset(bytes, 0xFF, zx_dtype_bytes(t.dtype));
    if (zx_ok(c) && (zx_dtype_is_float(t.dtype) || t.dtype == ZX_BOOL))
        zx_fail(c, ZX_E_SHAPE, "it wants integers, not %s", zx_dtypes[t.dtype].word);
    zx_out(c, 0, zx_e2(c, ZX_OP_XOR, ZX_NO_ATTRS, x, ones));
}

void zx_lower_where(zx_imp *c)
{
    zx_out(c, 0, zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, zx_in(c, 0), zx_in(c, 1), zx_in(c, 2)));
}

void zx_lower_is_inf(zx_imp *c)
{
    const int64_t mode =
        (zx_int(c, "detect_positive", 1) ? 1 : 0) | (zx_int(c, "detect_negative", 1) ? 2 : 0);
    const zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_MODE, mode);
    zx_out(c, 0, zx_e1(c, ZX_OP_IS_INF, a, zx_in(c, 0)));
}

static uint32_t bound(zx_imp *c, uint32_t v)
{
    const zx_shape scalar = {0};
    if (!zx_ok(c) || v == ZX_NONE) return v;
    if (zx_shape_count(zx_s(c, v)) != 1)
        return zx_fail(c, ZX_E_SHAPE, "a bound must be one number");
    return zx_reshape(c, v, &scalar);
}

void zx_lower_clip(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    uint32_t lo = bound(c, zx_in(c, 1)), hi = bound(c, zx_in(c, 2));
    if (c->node->opset < 11) { // attributes, then
        if (zx_has(c, "min")) lo = zx_k(c, zx_t(c, x), zx_float(c, "min", 0));
        if (zx_has(c, "max")) hi = zx_k(c, zx_t(c, x), zx_float(c, "max", 0));
    }
    if (lo == ZX_NONE && hi == ZX_NONE) {
        zx_out(c, 0, x);
        return;
    }
    zx_out(c, 0, zx_e3(c, ZX_OP_CLIP, ZX_NO_ATTRS, x, lo, hi));
}

void zx_lower_cast(zx_imp *c)
{
    if (!zx_need(c, "to")) return;
    const int64_t to = zx_int(c, "to", 0);
    const zx_dtype t = zx_dtype_of_onnx(to);
    if (zx_ok(c) && t == ZX_DTYPE_COUNT) {
        zx_fail(c, ZX_E_UNSUPPORTED, "Cast to the element type %" PRId64 " isn't supported", to);
        return;
    }
    zx_out(c, 0, zx_cast(c, zx_in(c, 0), t));
}

void zx_lower_cast_like(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), like = zx_in(c, 1);
    zx_out(c, 0, zx_cast(c, x, zx_t(c, like)));
}

// x + bias where there is one, and x * lambda beyond +-lambda.
void zx_lower_shrink(zx_imp *c)
{
    const double lambda = zx_float(c, "lambd", 0.5), bias = zx_float(c, "bias", 0);
    const uint32_t x = zx_in(c, 0);
    const zx_dtype t = zx_t(c, x);
    const uint32_t low = zx_e2(c, ZX_OP_LESS, ZX_NO_ATTRS, x, zx_k(c, t, -lambda)),
                   high = zx_e2(c, ZX_OP_GREATER, ZX_NO_ATTRS, x, zx_k(c, t, lambda)),
                   up = zx_e2(c, ZX_OP_ADD, ZX_NO_ATTRS, x, zx_k(c, t, bias)),
                   down = zx_e2(c, ZX_OP_SUB, ZX_NO_ATTRS, x, zx_k(c, t, bias)),
                   inner = zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, high, down, zx_k(c, t, 0));
    zx_out(c, 0, zx_e3(c, ZX_OP_WHERE, ZX_NO_ATTRS, low, up, inner));
}

// ---- reductions
// ----------------------------------------------------------------------------------------

static int axis_order(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

// Axes by attribute (older opsets) or input, resolved and sorted.
static uint32_t reduce_axes(zx_imp *c, uint32_t rank, int64_t axes[ZX_MAX_RANK], bool *all)
{
    uint32_t n = 0;
    const int64_t *given = zx_given(c, 1) ? zx_const_ints(c, zx_in(c, 1), "the list of axes", &n)
                                          : zx_ints(c, "axes", &n);
    *all = given == NULL || n == 0;
    if (n > rank) {
        zx_fail(c, ZX_E_SHAPE, "%u axes of a tensor with %u dimensions", n, rank);
        return 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        axes[i] = zx_axis(c, given[i], rank);
        for (uint32_t k = i; k > 0 && axis_order(axes[k - 1], axes[k]) > 0; k--) {
            const int64_t t = axes[k];
            axes[k] = axes[k - 1];
            axes[k - 1] = t;
        }
    }
    for (uint32_t i = 1; i < n; i++)
        if (axes[i] == axes[i - 1])
            zx_fail(c, ZX_E_SHAPE, "axis %" PRId64 " is given twice", axes[i]);
    return n;
}

void zx_lower_reduce(zx_imp *c)
{
    uint32_t x = zx_in(c, 0);
    const bool keep = zx_int(c, "keepdims", 1) != 0,
               noop = zx_int(c, "noop_with_empty_axes", 0) != 0;
    const uint32_t rank = zx_rank(c, x);
    int64_t axes[ZX_MAX_RANK];
    bool all;
    uint32_t n = reduce_axes(c, rank, axes, &all);
    if (!zx_ok(c)) return;
    if (all && noop) {
        zx_out(c, 0, x);
        return;
    }
    if (all)
        for (n = 0; n < rank; n++) axes[n] = n;
    if (rank == 0) { // one number: reduced as a list of one
        x = zx_reshape_to(c, x, 1, (int64_t[]){1});
        axes[n++] = 0;
    }
    uint32_t y = zx_reduce(c, c->node->row->op, x, axes, n, keep && rank > 0);
    if (strcmp(c->node->op, "ReduceLogSum") == 0) y = zx_e1(c, ZX_OP_LOG, ZX_NO_ATTRS, y);
    zx_out(c, 0, y);
}

void zx_lower_arg(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    zx_attrs a =
        zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, zx_axis(c, zx_int(c, "axis", 0), zx_rank(c, x)));
    a = zx_with_int(c, a, ZX_A_KEEPDIMS, zx_int(c, "keepdims", 1) != 0);
    a = zx_with_int(c, a, ZX_A_SELECT_LAST, zx_int(c, "select_last_index", 0) != 0);
    zx_out(c, 0, zx_e1(c, c->node->row->op, a, x));
}

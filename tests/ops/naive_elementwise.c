// naive_elementwise.c - see naive.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

static double alpha(const zx_attrs *a, double absent)
{
    return zx_attr_float(a, ZX_A_ALPHA, absent);
}
static double between(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}
static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

#define UNARY_MAP(X)                                                                               \
    X(NEG, -x)                                                                                     \
    X(ABS, fabs(x))                                                                                \
    X(SIGN, (x > 0) - (x < 0))                                                                     \
    X(FLOOR, floor(x))                                                                             \
    X(CEIL, ceil(x))                                                                               \
    X(ROUND, rint(x))                                                                              \
    X(SQRT, sqrt(x))                                                                               \
    X(RECIPROCAL, 1 / x)                                                                           \
    X(EXP, exp(x))                                                                                 \
    X(LOG, log(x))                                                                                 \
    X(SIN, sin(x))                                                                                 \
    X(COS, cos(x))                                                                                 \
    X(TAN, tan(x))                                                                                 \
    X(ASIN, asin(x))                                                                               \
    X(ACOS, acos(x))                                                                               \
    X(ATAN, atan(x))                                                                               \
    X(SINH, sinh(x))                                                                               \
    X(COSH, cosh(x))                                                                               \
    X(ERF, erf(x))                                                                                 \
    X(TANH, tanh(x))                                                                               \
    X(SIGMOID, 1 / (1 + exp(-x)))                                                                  \
    X(RELU, x < 0 ? 0 : x)                                                                         \
    X(GELU, zx_attr_int(a, ZX_A_MODE, 0) == 0                                                      \
                ? x * erfc(-x * M_SQRT1_2) / 2                                                     \
                : x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2)                 \
    X(SILU, x / (1 + exp(-alpha(a, 1) * x)))                                                       \
    X(SOFTPLUS, softplus(x))                                                                       \
    X(SOFTSIGN, x / (1 + fabs(x)))                                                                 \
    X(ELU, x < 0 ? alpha(a, 1) * expm1(x) : x)                                                     \
    X(SELU, zx_attr_float(a, ZX_A_GAMMA, 0) * (x < 0 ? alpha(a, 0) * expm1(x) : x))                \
    X(CELU, x < 0 ? alpha(a, 1) * expm1(x / alpha(a, 1)) : x)                                      \
    X(LEAKY_RELU, x < 0 ? alpha(a, 0.01) * x : x)                                                  \
    X(THRESHOLDED_RELU, x > alpha(a, 1) ? x : 0)                                                   \
    X(HARD_SIGMOID, between(alpha(a, 0.2) * x + zx_attr_float(a, ZX_A_BETA, 0.5), 0, 1))           \
    X(HARD_SWISH, x *between(x / 6 + 0.5, 0, 1))                                                   \
    X(MISH, x *tanh(softplus(x)))                                                                  \
    X(NOT, x == 0)                                                                                 \
    X(IS_NAN, isnan(x) != 0)                                                                       \
    X(IS_INF, isinf(x) && ((zx_attr_int(a, ZX_A_MODE, 3) >> (x < 0)) & 1))

#define X(id, expression)                                                                          \
    static double unary_##id(double x, const zx_attrs *a ZX_UNUSED)                                \
    {                                                                                              \
        return expression;                                                                         \
    }
UNARY_MAP(X)
#undef X

void naive_unary(const naive_call *c)
{
    static double (*const f[ZX_OP_COUNT])(double, const zx_attrs *) = {
#define X(id, expression) [ZX_OP_##id] = unary_##id,
        UNARY_MAP(X)
#undef X
    };
    for (int64_t i = 0; i < naive_count(c->out); i++)
        c->out->x[i] = f[c->op](c->in->x[i], c->attrs);
}

static double divide(const naive_call *c, double x, double y)
{
    return zx_dtype_is_float(c->in->type.dtype) ? x / y : trunc(x / y);
}
static double modulo(const naive_call *c, double x, double y)
{
    return zx_attr_int(c->attrs, ZX_A_FMOD, 0) ? fmod(x, y) : x - floor(x / y) * y;
}
static double bits(const naive_call *c, int64_t x, int64_t y)
{
    return (double)(c->op == ZX_OP_AND ? x & y : c->op == ZX_OP_OR ? x | y : x ^ y);
}

#define BINARY_MAP(X)                                                                              \
    X(ADD, x + y)                                                                                  \
    X(SUB, x - y)                                                                                  \
    X(MUL, x *y)                                                                                   \
    X(DIV, divide(c, x, y))                                                                        \
    X(POW, pow(x, y))                                                                              \
    X(MOD, modulo(c, x, y))                                                                        \
    X(MAX, isnan(x) ? x : isnan(y) ? y : x > y ? x : y)                                            \
    X(MIN, isnan(x) ? x : isnan(y) ? y : x < y ? x : y)                                            \
    X(EQUAL, x == y)                                                                               \
    X(LESS, x < y)                                                                                 \
    X(LESS_EQUAL, x <= y)                                                                          \
    X(GREATER, x > y)                                                                              \
    X(GREATER_EQUAL, x >= y)                                                                       \
    X(AND, bits(c, (int64_t)x, (int64_t)y))                                                        \
    X(OR, bits(c, (int64_t)x, (int64_t)y))                                                         \
    X(XOR, bits(c, (int64_t)x, (int64_t)y))

#define X(id, expression)                                                                          \
    static double binary_##id(double x, double y, const naive_call *c ZX_UNUSED)                   \
    {                                                                                              \
        return expression;                                                                         \
    }
BINARY_MAP(X)
#undef X

// Element i of the result's operand k.
static double operand(const naive_call *c, uint32_t k, int64_t i)
{
    int64_t index[ZX_MAX_RANK];
    naive_index(&c->out->type.shape, i, index);
    return c->in[k].x[naive_from(&c->in[k].type.shape, &c->out->type.shape, index)];
}

void naive_binary(const naive_call *c)
{
    static double (*const f[ZX_OP_COUNT])(double, double, const naive_call *) = {
#define X(id, expression) [ZX_OP_##id] = binary_##id,
        BINARY_MAP(X)
#undef X
    };
    for (int64_t i = 0; i < naive_count(c->out); i++)
        c->out->x[i] = f[c->op](operand(c, 0, i), operand(c, 1, i), c);
}

void naive_where(const naive_call *c)
{
    for (int64_t i = 0; i < naive_count(c->out); i++)
        c->out->x[i] = operand(c, operand(c, 0, i) != 0 ? 1 : 2, i);
}

void naive_clip(const naive_call *c)
{
    const double *lo = c->in[1].x, *hi = c->in[2].x;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        double x = c->in->x[i];
        if (lo && x < *lo) x = *lo;
        if (hi && x > *hi) x = *hi;
        c->out->x[i] = x;
    }
}

void naive_cast(const naive_call *c)
{
    const zx_dtype t = c->out->type.dtype;
    const double width = 8.0 * zx_dtype_bytes(t);
    const bool sign = zx_dtypes[t].kind == ZX_KIND_INT;
    const double most = sign ? exp2(width - 1) - 1 : exp2(width) - 1;
    const double least = sign ? -exp2(width - 1) : 0;
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        double x = c->in->x[i];
        if (t == ZX_BOOL)
            x = x != 0;
        else if (!zx_dtype_is_float(t))
            x = isnan(x) ? 0 : between(trunc(x), least, most);
        c->out->x[i] = x;
    }
}

void naive_glu(const naive_call *c)
{
    const int64_t mode = zx_attr_int(c->attrs, ZX_A_MODE, 0);
    for (int64_t i = 0; i < naive_count(c->out); i++) {
        const double x = c->in[0].x[i], tanh_of = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
        const double f = mode == 0   ? x / (1 + exp(-alpha(c->attrs, 1) * x))
                         : mode == 1 ? x * erfc(-x * M_SQRT1_2) / 2
                                     : x * (1 + tanh(tanh_of)) / 2;
        c->out[0].x[i] = f * c->in[1].x[i];
    }
}

// binary.c - elementwise ops of two operands with broadcasting, on every dtype; comparisons too.
//
// Operands' runs have stride 0 or 1 (see zx_broadcast), so each function is three loops: both run,
// or one of them stands still. float32 runs read the tensors in place, all else goes by blocks.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/vmath.h"

typedef struct job {
    const zx_call *call;
    zx_broadcast b;
    zx_dtype ta, tb, ty;
    zx_class c;  // computed in
    uint32_t fn; // row
    bool fmod;
} job;

// ---- the functions, once a class ----------------------------------------------------------------
#define LOOPS(EXPR)                                                                                \
    if (sa && sb) {                                                                                \
        ZX_SIMD for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const T a = as[i], b ZX_UNUSED = bs[i];                                                \
            y[i] = EXPR;                                                                           \
        }                                                                                          \
    } else if (sa) {                                                                               \
        const T b ZX_UNUSED = *bs;                                                                 \
        ZX_SIMD for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const T a = as[i];                                                                     \
            y[i] = EXPR;                                                                           \
        }                                                                                          \
    } else {                                                                                       \
        const T a = *as;                                                                           \
        ZX_SIMD for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const T b ZX_UNUSED = bs[i]; /* both stand still: n is 1 */                            \
            y[i] = EXPR;                                                                           \
        }                                                                                          \
    }
#define FUNCTION(prefix, id, EXPR)                                                                 \
    static void prefix##_##id(const T *as, int64_t sa, const T *bs, int64_t sb, T *y, int64_t n,   \
                              const job *j ZX_UNUSED)                                              \
    {                                                                                              \
        LOOPS(EXPR)                                                                                \
    }
#define FUNCTION_CLONED(prefix, id, EXPR) ZX_CLONES FUNCTION(prefix, id, EXPR)

#define ARITHMETIC(X, p)                                                                           \
    X(p, ADD, a + b)                                                                               \
    X(p, SUB, a - b)                                                                               \
    X(p, MUL, a *b)
#define FLOAT_FUNCTIONS(X, p)                                                                      \
    ARITHMETIC(X, p)                                                                               \
    X(p, DIV, a / b)                                                                               \
    X(p, MAX, ((a > b) | (a != a)) ? a : b)                                                        \
    X(p, MIN, ((a < b) | (a != a)) ? a : b)
// NaN wins in MAX and MIN: where a is no NaN but b is, a > b is false and b is taken.

#define T float
FLOAT_FUNCTIONS(FUNCTION_CLONED, f32)
static float mod_f32(float a, float b, bool fmod_form)
{
    float r = fmodf(a, b);
    if (!fmod_form && r != 0.0f && (r < 0.0f) != (b < 0.0f)) r += b;
    return r;
}
FUNCTION(f32, MOD, mod_f32(a, b, j->fmod))
FUNCTION(f32, POW_ANY, (float)pow((double)a, (double)b))
FUNCTION_CLONED(f32, SQUARE, a *a)
FUNCTION_CLONED(f32, CUBE, a *a *a)
FUNCTION_CLONED(f32, ROOT, sqrtf(a))
FUNCTION_CLONED(f32, INVERSE, 1.0f / a)
// The exponents that models really use, exact or correctly rounded steps; chosen by the (one)
// exponent alone, never by position.
static void f32_POW(const float *as, int64_t sa, const float *bs, int64_t sb, float *y, int64_t n,
                    const job *j)
{
    const float p = *bs;
    if (sb != 0)
        f32_POW_ANY(as, sa, bs, sb, y, n, j);
    else if (p == 2.0f)
        f32_SQUARE(as, 1, bs, 0, y, n, j);
    else if (p == 3.0f)
        f32_CUBE(as, 1, bs, 0, y, n, j);
    else if (p == 0.5f)
        f32_ROOT(as, 1, bs, 0, y, n, j);
    else if (p == -1.0f)
        f32_INVERSE(as, 1, bs, 0, y, n, j);
    else
        f32_POW_ANY(as, sa, bs, sb, y, n, j);
}
#undef T

#define T double
FLOAT_FUNCTIONS(FUNCTION, f64)
static double mod_f64(double a, double b, bool fmod_form)
{
    double r = fmod(a, b);
    if (!fmod_form && r != 0.0 && (r < 0.0) != (b < 0.0)) r += b;
    return r;
}
FUNCTION(f64, MOD, mod_f64(a, b, j->fmod))
FUNCTION(f64, POW, pow(a, b))
#undef T

// Integers wrap. A division by 0 is a fault and gives 0.
static int64_t div_i64(const job *j, int64_t a, int64_t b)
{
    if (b == 0) {
        zx_fault_set(j->call->fault, ZX_FAULT_DIVIDE, a, b);
        return 0;
    }
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static int64_t mod_i64(const job *j, int64_t a, int64_t b)
{
    if (b == 0) {
        zx_fault_set(j->call->fault, ZX_FAULT_DIVIDE, a, b);
        return 0;
    }
    const int64_t r = b == -1 ? 0 : a % b;
    return !j->fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static uint64_t div_u64(const job *j, uint64_t a, uint64_t b)
{
    if (b == 0) zx_fault_set(j->call->fault, ZX_FAULT_DIVIDE, (int64_t)a, 0);
    return b == 0 ? 0 : a / b;
}
static uint64_t mod_u64(const job *j, uint64_t a, uint64_t b)
{
    if (b == 0) zx_fault_set(j->call->fault, ZX_FAULT_DIVIDE, (int64_t)a, 0);
    return b == 0 ? 0 : a % b;
}
static uint64_t pow_u64(uint64_t a, uint64_t n)
{
    uint64_t y = 1;
    for (; n > 0; n >>= 1, a *= a)
        if (n & 1) y *= a;
    return y;
}
// A negative exponent leaves something only of 1 and -1.
static int64_t pow_i64(int64_t a, int64_t n)
{
    if (n < 0) return a == 1 ? 1 : a == -1 ? (n & 1 ? -1 : 1) : 0;
    return (int64_t)pow_u64((uint64_t)a, (uint64_t)n);
}

#define T int64_t
#define WRAP(op) (int64_t)((uint64_t)a op(uint64_t) b)
FUNCTION(i64, ADD, WRAP(+))
FUNCTION(i64, SUB, WRAP(-))
FUNCTION(i64, MUL, WRAP(*))
FUNCTION(i64, DIV, div_i64(j, a, b))
FUNCTION(i64, MOD, mod_i64(j, a, b))
FUNCTION(i64, POW, pow_i64(a, b))
FUNCTION(i64, MAX, a > b ? a : b)
FUNCTION(i64, MIN, a < b ? a : b)
FUNCTION(i64, AND, a &b)
FUNCTION(i64, OR, a | b)
FUNCTION(i64, XOR, a ^ b)
#undef T
#define T uint64_t
ARITHMETIC(FUNCTION, u64)
FUNCTION(u64, DIV, div_u64(j, a, b))
FUNCTION(u64, MOD, mod_u64(j, a, b))
FUNCTION(u64, POW, pow_u64(a, b))
FUNCTION(u64, MAX, a > b ? a : b)
FUNCTION(u64, MIN, a < b ? a : b)
#undef T

typedef void f32_fn(const float *, int64_t, const float *, int64_t, float *, int64_t, const job *);
typedef void f64_fn(const double *, int64_t, const double *, int64_t, double *, int64_t,
                    const job *);
typedef void i64_fn(const int64_t *, int64_t, const int64_t *, int64_t, int64_t *, int64_t,
                    const job *);
typedef void u64_fn(const uint64_t *, int64_t, const uint64_t *, int64_t, uint64_t *, int64_t,
                    const job *);

static const struct {
    uint32_t op;
    f32_fn *f32;
    f64_fn *f64;
    i64_fn *i64;
    u64_fn *u64;
} rows[] = {
#define X(id) {ZX_K_##id, f32_##id, f64_##id, i64_##id, u64_##id},
    X(ADD) X(SUB) X(MUL) X(DIV) X(POW) X(MOD) X(MAX) X(MIN)
#undef X
#define X(id) {ZX_K_##id, NULL, NULL, i64_##id, NULL},
        X(AND) X(OR) X(XOR)
#undef X
};

// A block of a standing operand needs one element only.
static void load(const job *j, uint32_t k, zx_dtype t, int64_t at, int64_t stride, int64_t n,
                 zx_block *to)
{
    zx_load(t, j->call->in[k].data, at, stride, stride ? n : 1, j->c, to);
}

static void binary_run(void *ctx, int64_t at, const int64_t pos[3], int64_t n)
{
    const job *j = ctx;
    const uint32_t last = j->b.rank - 1;
    const int64_t sa = j->b.stride[0][last], sb = j->b.stride[1][last];
    if (j->ta == ZX_F32 && j->tb == ZX_F32 && j->ty == ZX_F32) {
        rows[j->fn].f32((const float *)j->call->in[0].data + pos[0], sa,
                        (const float *)j->call->in[1].data + pos[1], sb,
                        (float *)j->call->out[0].data + at, n, j);
        return;
    }
    zx_block a, b;
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        load(j, 0, j->ta, pos[0] + i * sa, sa, m, &a);
        load(j, 1, j->tb, pos[1] + i * sb, sb, m, &b);
        switch (j->c) { // into `a` where it runs, else into `b`: never over a standing operand
        case ZX_CLASS_F32:
            rows[j->fn].f32(a.f32, sa, b.f32, sb, sa ? a.f32 : b.f32, m, j);
            break;
        case ZX_CLASS_F64:
            rows[j->fn].f64(a.f64, sa, b.f64, sb, sa ? a.f64 : b.f64, m, j);
            break;
        case ZX_CLASS_I64:
            rows[j->fn].i64(a.i64, sa, b.i64, sb, sa ? a.i64 : b.i64, m, j);
            break;
        case ZX_CLASS_U64:
            rows[j->fn].u64(a.u64, sa, b.u64, sb, sa ? a.u64 : b.u64, m, j);
            break;
        }
        zx_store(j->ty, j->call->out[0].data, at + i, m, j->c, sa ? &a : &b);
    }
}

static zx_status binary(const zx_call *call, zx_err *err)
{
    job j = {.call = call,
             .ta = call->in[0].type.dtype,
             .tb = call->in[1].type.dtype,
             .ty = call->out[0].type.dtype,
             .fmod = zx_attr_int(call->attrs, ZX_A_FMOD, 0) != 0};
    j.c = zx_class_of(j.ta);
    // An integer to the power of a float is computed in double.
    if (call->op == ZX_K_POW && !zx_dtype_is_float(j.ta) && zx_dtype_is_float(j.tb))
        j.c = ZX_CLASS_F64;
    // AND, OR, XOR do not care for signs.
    const bool bits = call->op == ZX_K_AND || call->op == ZX_K_OR || call->op == ZX_K_XOR;
    if (bits && j.c == ZX_CLASS_U64) j.c = ZX_CLASS_I64;
    while (rows[j.fn].op != call->op) {
        j.fn++;
        ZX_ASSERT(j.fn < ZX_COUNT(rows));
    }
    if (bits && j.c != ZX_CLASS_I64)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no kernel for %s", zx_dtypes[j.ta].word);
    zx_broadcast_make(&j.b, &call->out[0].type.shape, call->in, 2);
    zx_broadcast_runs(&j.b, call->threads, binary_run, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_binary = {.run = binary};

// ---- comparisons: bool results ------------------------------------------------------------------
#define COMPARE(field, op)                                                                         \
    for (int64_t k = 0; k < m; k++) y[k] = a.field[sa ? k : 0] op b.field[sb ? k : 0];             \
    break;
#define COMPARE_CLASS(field)                                                                       \
    switch (j->call->op) {                                                                         \
    case ZX_K_EQUAL:                                                                               \
        COMPARE(field, ==)                                                                         \
    case ZX_K_LESS:                                                                                \
        COMPARE(field, <)                                                                          \
    case ZX_K_LESS_EQUAL:                                                                          \
        COMPARE(field, <=)                                                                         \
    case ZX_K_GREATER:                                                                             \
        COMPARE(field, >)                                                                          \
    default:                                                                                       \
        COMPARE(field, >=)                                                                         \
    }                                                                                              \
    break;

static void compare_run(void *ctx, int64_t at, const int64_t pos[3], int64_t n)
{
    const job *j = ctx;
    const uint32_t last = j->b.rank - 1;
    const int64_t sa = j->b.stride[0][last], sb = j->b.stride[1][last];
    zx_block a, b;
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        uint8_t *y = (uint8_t *)j->call->out[0].data + at + i;
        load(j, 0, j->ta, pos[0] + i * sa, sa, m, &a);
        load(j, 1, j->tb, pos[1] + i * sb, sb, m, &b);
        switch (j->c) {
        case ZX_CLASS_F32:
            COMPARE_CLASS(f32)
        case ZX_CLASS_F64:
            COMPARE_CLASS(f64)
        case ZX_CLASS_I64:
            COMPARE_CLASS(i64)
        case ZX_CLASS_U64:
            COMPARE_CLASS(u64)
        }
    }
}

static zx_status compare(const zx_call *call, zx_err *err ZX_UNUSED)
{
    job j = {.call = call, .ta = call->in[0].type.dtype, .tb = call->in[1].type.dtype};
    j.c = zx_class_of(j.ta);
    zx_broadcast_make(&j.b, &call->out[0].type.shape, call->in, 2);
    zx_broadcast_runs(&j.b, call->threads, compare_run, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_compare = {.run = compare};

// ---- PowGradX -----------------------------------------------------------------------------------
// dy p x^(p-1), 0 where p is 0.
static float pow_grad(float dy, float x, float p)
{
    if (p == 0.0f) return 0.0f;
    if (p == 1.0f) return dy;
    if (p == 2.0f) return dy * (2.0f * x);
    if (p == 3.0f) return dy * (3.0f * (x * x));
    return dy * (float)((double)p * pow((double)x, (double)p - 1.0));
}

static void pow_grad_run(void *ctx, int64_t at, const int64_t pos[3], int64_t n)
{
    const job *j = ctx;
    const uint32_t last = j->b.rank - 1;
    const int64_t *const s[3] = {&j->b.stride[0][last], &j->b.stride[1][last],
                                 &j->b.stride[2][last]};
    const zx_dtype tp = j->call->in[2].type.dtype;
    const float *dy = (const float *)j->call->in[0].data + pos[0];
    const float *x = (const float *)j->call->in[1].data + pos[1];
    float *dx = (float *)j->call->out[0].data + at;
    if (*s[2] == 0) { // one exponent for the run
        const float p = (float)zx_read_f64(tp, j->call->in[2].data, pos[2]);
        for (int64_t i = 0; i < n; i++) dx[i] = pow_grad(dy[i * *s[0]], x[i * *s[1]], p);
        return;
    }
    zx_block p;
    for (int64_t i = 0; i < n; i += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
        zx_load(tp, j->call->in[2].data, pos[2] + i, 1, m, ZX_CLASS_F32, &p);
        for (int64_t k = 0; k < m; k++)
            dx[i + k] = pow_grad(dy[(i + k) * *s[0]], x[(i + k) * *s[1]], p.f32[k]);
    }
}

static zx_status pow_grad_x(const zx_call *call, zx_err *err ZX_UNUSED)
{
    job j = {.call = call};
    if (call->in[0].type.dtype != ZX_F32 || call->in[1].type.dtype != ZX_F32)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no kernel but for float32");
    zx_broadcast_make(&j.b, &call->out[0].type.shape, call->in, 3);
    zx_broadcast_runs(&j.b, call->threads, pow_grad_run, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_pow_grad_x = {.run = pow_grad_x};

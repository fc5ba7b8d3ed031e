// unary.c - elementwise ops of one operand, on every dtype.
//
// Each function is one row of kernels/unary.def: its expression is compiled once in float32, with
// vector math, and once in double with the C library's.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/vmath.h"

#include <string.h>

typedef struct args { // attributes in the type of the loop
    float a, b, g;
    double da, db, dg;
} args;

static inline float round_even_f32(float x) // to the nearest integer, halves to even
{
    const float a = vm_abs(x), r = (a + 0x1p23f) - 0x1p23f;
    return a < 0x1p23f ? vm_copysign(r, x) : x;
}
static inline float floor_f32(float x)
{
    const float r = round_even_f32(x);
    return vm_copysign(r > x ? r - 1.0f : r, x);
}
static inline float clamp01_f32(float x)
{
    return vm_clamp(x, 0.0f, 1.0f);
}
static inline float mish_f32(float x) // x tanh(log(1 + e^x)), with w = e^x (e^x + 2)
{
    const float e = vm_exp(x > 20.0f ? 20.0f : x), w = e * (e + 2.0f);
    return x * (w / (w + 2.0f));
}
static double sigmoid_f64(double x)
{
    return 1.0 / (1.0 + exp(-x));
}
static double clamp01_f64(double x)
{
    return x < 0.0 ? 0.0 : x > 1.0 ? 1.0 : x;
}
static double mish_f64(double x)
{
    return x * tanh((x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))));
}

#define R(c) ((float)(c))
#define ABS(x) vm_abs(x)
#define FLOOR(x) floor_f32(x)
#define CEIL(x) (-floor_f32(-(x)))
#define ROUND(x) round_even_f32(x)
#define SQRT(x) sqrtf(x)
#define EXP(x) vm_exp(x)
#define SIN(x) vm_sin(x)
#define COS(x) vm_cos(x)
#define EXPM1(x) vm_expm1(x)
#define LOG(x) vm_log(x)
#define LOG1P(x) vm_log1p(x)
#define ERF(x) vm_erf(x)
#define TANH(x) vm_tanh(x)
#define SIGMOID(x) vm_sigmoid(x)
#define CLAMP01(x) clamp01_f32(x)
#define MISH(x) mish_f32(x)
#define LIBM(f, x) (float)f((double)(x))
#define ZX_UNARY_GRAD(id, alpha, f, g) ZX_UNARY(id, alpha, f)
#define ZX_UNARY(id, alpha, expr)                                                                  \
    ZX_CLONES static void f32_##id(const float *in, float *out, int64_t n,                         \
                                   const args *p ZX_UNUSED)                                        \
    {                                                                                              \
        const float A ZX_UNUSED = p->a, B ZX_UNUSED = p->b, G ZX_UNUSED = p->g;                    \
        ZX_SIMD for (int64_t i = 0; i < n; i++)                                                    \
        {                                                                                          \
            const float x = in[i];                                                                 \
            out[i] = expr;                                                                         \
        }                                                                                          \
    }
#include "kernels/unary.def"
#undef ZX_UNARY
#undef R
#undef ABS
#undef FLOOR
#undef CEIL
#undef ROUND
#undef SQRT
#undef EXP
#undef SIN
#undef COS
#undef EXPM1
#undef LOG
#undef LOG1P
#undef ERF
#undef TANH
#undef SIGMOID
#undef CLAMP01
#undef MISH
#undef LIBM

#define R(c) ((double)(c))
#define ABS(x) fabs(x)
#define FLOOR(x) floor(x)
#define CEIL(x) ceil(x)
#define ROUND(x) nearbyint(x)
#define SQRT(x) sqrt(x)
#define EXP(x) exp(x)
#define SIN(x) sin(x)
#define COS(x) cos(x)
#define EXPM1(x) expm1(x)
#define LOG(x) log(x)
#define LOG1P(x) log1p(x)
#define ERF(x) erf(x)
#define TANH(x) tanh(x)
#define SIGMOID(x) sigmoid_f64(x)
#define CLAMP01(x) clamp01_f64(x)
#define MISH(x) mish_f64(x)
#define LIBM(f, x) f(x)
#define ZX_UNARY(id, alpha, expr)                                                                  \
    static void f64_##id(const double *in, double *out, int64_t n, const args *p ZX_UNUSED)        \
    {                                                                                              \
        const double A ZX_UNUSED = p->da, B ZX_UNUSED = p->db, G ZX_UNUSED = p->dg;                \
        for (int64_t i = 0; i < n; i++) {                                                          \
            const double x = in[i];                                                                \
            out[i] = expr;                                                                         \
        }                                                                                          \
    }
#include "kernels/unary.def"
#undef ZX_UNARY

typedef struct row {
    uint32_t op;
    void (*f32)(const float *, float *, int64_t, const args *);
    void (*f64)(const double *, double *, int64_t, const args *);
    double alpha; // where absent
} row;
#define ZX_K_GELU_TANH ZX_K_GELU // the same op, by MODE
static const row rows[] = {
#define ZX_UNARY(id, alpha, expr) {ZX_K_##id, f32_##id, f64_##id, alpha},
#include "kernels/unary.def"
#undef ZX_UNARY
#undef ZX_UNARY_GRAD
};

static const row *find(uint32_t op, bool tanh_form)
{
    for (uint32_t i = 0; i < ZX_COUNT(rows); i++)
        if (rows[i].op == op)
            return &rows[i + (tanh_form ? 1 : 0)]; // GELU's two rows are neighbours
    return NULL;
}

// What integers and bools know: wrapping in 64 bits.
static void integers(uint32_t op, bool is_bool, zx_class c, zx_block *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const uint64_t u = b->u64[i];
        const bool negative = c == ZX_CLASS_I64 && b->i64[i] < 0;
        switch (op) {
        case ZX_K_NEG:
            b->u64[i] = 0 - u;
            break;
        case ZX_K_ABS:
            b->u64[i] = negative ? 0 - u : u;
            break;
        case ZX_K_SIGN:
            b->i64[i] = negative ? -1 : u != 0;
            break;
        case ZX_K_RELU:
            b->u64[i] = negative ? 0 : u;
            break;
        case ZX_K_NOT:
            b->u64[i] = is_bool ? u == 0 : ~u;
            break;
        default:
            break; // FLOOR, CEIL, ROUND: as it is
        }
    }
}

struct job {
    const zx_call *call;
    const row *row;
    args args;
    zx_class c;
};

// sin and cos of large numbers need more bits of pi than a vector loop has.
static void run_f32(const struct job *j, const float *x, float *y, int64_t n)
{
    const bool is_sin = j->row->op == ZX_K_SIN;
    if (!is_sin && j->row->op != ZX_K_COS) {
        j->row->f32(x, y, n, &j->args);
        return;
    }
    for (int64_t at = 0; at < n; at += ZX_BLOCK) {
        const int64_t m = zx_min_i64(ZX_BLOCK, n - at);
        if (!zx_any_above(x + at, m, vm_bits(VM_TRIG_MOST))) {
            j->row->f32(x + at, y + at, m, &j->args);
            continue;
        }
        for (int64_t i = at; i < at + m; i++) {
            if (vm_abs(x[i]) <= VM_TRIG_MOST)
                j->row->f32(x + i, y + i, 1, &j->args);
            else
                y[i] = (float)(is_sin ? sin((double)x[i]) : cos((double)x[i]));
        }
    }
}

static void unary_range(void *ctx, int64_t from, int64_t to)
{
    const struct job *job = ctx;
    const zx_dtype t = job->call->in[0].type.dtype;
    const void *x = job->call->in[0].data;
    void *y = job->call->out[0].data;
    if (t == ZX_F32) {
        run_f32(job, (const float *)x + from, (float *)y + from, to - from);
        return;
    }
    zx_block b;
    for (int64_t at = from; at < to; at += ZX_BLOCK) {
        const int64_t n = zx_min_i64(ZX_BLOCK, to - at);
        zx_load(t, x, at, 1, n, job->c, &b);
        if (job->c == ZX_CLASS_F32)
            run_f32(job, b.f32, b.f32, n);
        else if (job->c == ZX_CLASS_F64)
            job->row->f64(b.f64, b.f64, n, &job->args);
        else
            integers(job->call->op, t == ZX_BOOL, job->c, &b, n);
        zx_store(t, y, at, n, job->c, &b);
    }
}

static bool integers_know(uint32_t op)
{
    return op == ZX_K_NEG || op == ZX_K_ABS || op == ZX_K_SIGN || op == ZX_K_RELU ||
           op == ZX_K_NOT || op == ZX_K_FLOOR || op == ZX_K_CEIL || op == ZX_K_ROUND;
}

static zx_status unary(const zx_call *call, zx_err *err)
{
    struct job job = {.call = call, .c = zx_class_of(call->in[0].type.dtype)};
    const bool tanh_form = call->op == ZX_K_GELU && zx_attr_int(call->attrs, ZX_A_MODE, 0) == 1;
    job.row = find(call->op, tanh_form);
    const bool floats = job.c == ZX_CLASS_F32 || job.c == ZX_CLASS_F64;
    if (floats ? job.row == NULL : !integers_know(call->op))
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "no kernel for %s",
                       zx_dtypes[call->in[0].type.dtype].word);
    job.args.da = zx_attr_float(call->attrs, ZX_A_ALPHA, job.row != NULL ? job.row->alpha : 1.0);
    job.args.db = zx_attr_float(call->attrs, ZX_A_BETA, 0.5);
    job.args.dg = zx_attr_float(call->attrs, ZX_A_GAMMA, 1.05070102214813232421875);
    job.args.a = (float)job.args.da;
    job.args.b = (float)job.args.db;
    job.args.g = (float)job.args.dg;
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN / 4, unary_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_unary = {.run = unary};

// ---- IsNaN, IsInf -------------------------------------------------------------------------------
struct test_job {
    const zx_call *call;
    bool nan, plus, minus;
};

static void test_range(void *ctx, int64_t from, int64_t to)
{
    const struct test_job *job = ctx;
    uint8_t *y = job->call->out[0].data;
    zx_block b;
    for (int64_t at = from; at < to; at += ZX_BLOCK) {
        const int64_t n = zx_min_i64(ZX_BLOCK, to - at);
        zx_load(job->call->in[0].type.dtype, job->call->in[0].data, at, 1, n, ZX_CLASS_F64, &b);
        for (int64_t i = 0; i < n; i++) {
            const double x = b.f64[i];
            y[at + i] = (job->nan && x != x) || (job->plus && x == (double)INFINITY) ||
                        (job->minus && x == -(double)INFINITY);
        }
    }
}

static zx_status is_nan(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct test_job job = {.call = call, .nan = true};
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN, test_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_is_nan = {.run = is_nan};

static zx_status is_inf(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const int64_t mode = zx_attr_int(call->attrs, ZX_A_MODE, 3);
    struct test_job job = {.call = call, .plus = (mode & 1) != 0, .minus = (mode & 2) != 0};
    zx_split(call->threads, zx_count(&call->in[0]), 64, ZX_GRAIN, test_range, &job);
    return ZX_OK;
}
const zx_kernel zx_cpu_is_inf = {.run = is_inf};

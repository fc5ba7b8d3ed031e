// reduce.c - reductions over any set of axes.
//
// Sums of float32 (plain, of sizes, of squares; SumTo's also of 16 bits) are made in double by one
// of two loops: along rows where the innermost dim is reduced, down columns where it stays. All
// else goes element by element.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>
#include <string.h>

// ---- sums of float32 ----------------------------------------------------------------------------
typedef enum sum_kind { SUM_PLAIN, SUM_ABS, SUM_SQUARE } sum_kind;

typedef struct sum_job {
    zx_reduction r;
    sum_kind kind;
    bool root;
    double scale;
    zx_dtype type; // of x: f32, and 16 bits where the sums are plain
    const void *x;
    float *y;
    int64_t base, cols; // columns: where they start in x, and how many
    int64_t tiles;
} sum_job;

static float finish(const sum_job *j, double sum)
{
    return (float)(j->root ? sqrt(sum) : sum * j->scale);
}

ZX_CLONES static double row_sum_abs(const float *x, int64_t n)
{
    double lane[ZX_LANES] = {0}, s = 0;
    int64_t i = 0;
    for (; i + ZX_LANES <= n; i += ZX_LANES) {
        ZX_SIMD for (int k = 0; k < ZX_LANES; k++) lane[k] += (double)fabsf(x[i + k]);
    }
    for (int64_t k = i; k < n; k++) lane[k - i] += (double)fabsf(x[k]);
    for (int k = 0; k < ZX_LANES; k++) s += lane[k];
    return s;
}

static void sum_along(void *ctx, int64_t from, int64_t to)
{
    const sum_job *j = ctx;
    zx_dims outer;
    int64_t n, stride;
    zx_dims_inner(&j->r.reduced, &outer, &n, &stride);
    for (int64_t o = from; o < to; o++) {
        const int64_t base = zx_dims_at(&j->r.kept, o);
        double sum = 0;
        for (int64_t k = 0; k < outer.count; k++) {
            const int64_t at = base + zx_dims_at(&outer, k);
            sum += j->kind == SUM_PLAIN ? zx_row_sum_of(j->type, j->x, at, n)
                   : j->kind == SUM_ABS ? row_sum_abs((const float *)j->x + at, n)
                                        : zx_row_sum_square((const float *)j->x + at, n);
        }
        j->y[o] = finish(j, sum);
    }
}

#define ADD_COLUMNS(name, TERM)                                                                    \
    ZX_CLONES static void name(double *sum, const float *x, int64_t n)                             \
    {                                                                                              \
        ZX_SIMD for (int64_t i = 0; i < n; i++) sum[i] += TERM;                                    \
    }
ADD_COLUMNS(add_plain, (double)x[i])
ADD_COLUMNS(add_abs, (double)fabsf(x[i]))
ADD_COLUMNS(add_square, (double)x[i] * (double)x[i])

static void add_columns(void *ctx, int64_t from, int64_t to, int64_t col, int64_t n,
                        double *const *sum)
{
    const sum_job *j = ctx;
    float room[ZX_COLUMNS_TILE];
    for (int64_t row = from; row < to; row++) {
        const int64_t at = j->base + zx_dims_at(&j->r.reduced, row) + col;
        const float *x = zx_floats(j->type, j->x, at, n, room);
        (j->kind == SUM_PLAIN ? add_plain
         : j->kind == SUM_ABS ? add_abs
                              : add_square)(sum[0], x, n);
    }
}

#define TILE 256
// Many tiles of columns: each is one thread's from first row to last.
static bool many_tiles(const zx_reduction *r, int64_t cols)
{
    return r->kept.count / cols * ((cols + TILE - 1) / TILE) >= 16;
}

static void sum_down(void *ctx, int64_t from, int64_t to)
{
    sum_job j = *(const sum_job *)ctx;
    for (int64_t task = from; task < to; task++) {
        double sum[TILE] = {0}, *const sums[] = {sum};
        const int64_t outer = task / j.tiles, col = task % j.tiles * TILE;
        const int64_t n = zx_min_i64(TILE, j.cols - col);
        j.base = zx_dims_at(&j.r.kept, outer * j.cols);
        add_columns(&j, 0, j.r.reduced.count, col, n, sums);
        for (int64_t i = 0; i < n; i++) j.y[outer * j.cols + col + i] = finish(&j, sum[i]);
    }
}

// Columns of x: the run of the innermost kept dim.
static int64_t columns(const zx_reduction *r)
{
    return r->kept.rank ? r->kept.dim[r->kept.rank - 1] : 1;
}

static uint64_t sum_work(const zx_reduction *r)
{
    if (r->last_reduced || r->kept.count == 0) return 0;
    if (r->reduced.count <= 1 || many_tiles(r, columns(r))) return 0;
    return zx_columns_work(r->reduced.count, columns(r), 1);
}

static void sum_f32(sum_job *j, void *work, int threads)
{
    const int64_t all = j->r.kept.count * j->r.reduced.count;
    if (all < ZX_GRAIN) threads = 1;
    if (j->r.kept.count == 0) return;
    if (j->r.last_reduced) {
        zx_split(threads, j->r.kept.count, 1, 2, sum_along, j);
        return;
    }
    j->cols = columns(&j->r);
    j->tiles = (j->cols + TILE - 1) / TILE;
    if (j->r.reduced.count <= 1 || many_tiles(&j->r, j->cols)) {
        zx_split(threads, j->r.kept.count / j->cols * j->tiles, 1, 2, sum_down, j);
        return;
    }
    for (int64_t o = 0; o < j->r.kept.count / j->cols; o++) {
        const zx_columns c = {j->r.reduced.count, j->cols, 1, add_columns, j};
        j->base = zx_dims_at(&j->r.kept, o * j->cols);
        const double *sum = zx_columns_run(&c, work, threads);
        for (int64_t i = 0; i < j->cols; i++) j->y[o * j->cols + i] = finish(j, sum[i]);
    }
}

// ---- any dtype, any reduction -------------------------------------------------------------------
typedef struct any_job {
    const zx_call *call;
    zx_reduction r;
    zx_class c;
} any_job;

// One step of a reduction of integers; the accumulator is the bits of either sign.
static uint64_t step_int(uint32_t op, zx_class c, uint64_t acc, uint64_t x, bool first)
{
    const bool less = c == ZX_CLASS_U64 ? x < acc : (int64_t)x < (int64_t)acc;
    switch (op) {
    case ZX_K_REDUCE_MAX:
        return first || (!less && x != acc) ? x : acc;
    case ZX_K_REDUCE_MIN:
        return first || less ? x : acc;
    case ZX_K_REDUCE_PROD:
        return first ? x : acc * x;
    case ZX_K_REDUCE_L1:
        return acc + (c == ZX_CLASS_I64 && (int64_t)x < 0 ? 0 - x : x);
    case ZX_K_REDUCE_L2:
    case ZX_K_REDUCE_SUM_SQUARE:
        return acc + x * x;
    default:
        return acc + x;
    }
}
static uint64_t finish_int(uint32_t op, zx_class c, uint64_t acc, int64_t n)
{
    if (n == 0) return op == ZX_K_REDUCE_PROD ? 1 : acc;
    if (op == ZX_K_REDUCE_MEAN)
        return c == ZX_CLASS_U64 ? acc / (uint64_t)n : (uint64_t)((int64_t)acc / n);
    if (op == ZX_K_REDUCE_L2) return (uint64_t)sqrt((double)acc);
    return acc;
}

static double start_float(uint32_t op)
{
    return op == ZX_K_REDUCE_MAX    ? -(double)INFINITY
           : op == ZX_K_REDUCE_MIN  ? (double)INFINITY
           : op == ZX_K_REDUCE_PROD ? 1
                                    : 0;
}
static double step_float(uint32_t op, double acc, double x)
{
    switch (op) {
    case ZX_K_REDUCE_MAX:
        return x > acc || x != x ? x : acc; // a NaN that came in stays
    case ZX_K_REDUCE_MIN:
        return x < acc || x != x ? x : acc;
    case ZX_K_REDUCE_PROD:
        return acc * x;
    case ZX_K_REDUCE_L1:
        return acc + fabs(x);
    case ZX_K_REDUCE_L2:
    case ZX_K_REDUCE_SUM_SQUARE:
        return acc + x * x;
    default:
        return acc + x;
    }
}

static double reduce_floats(const any_job *j, int64_t base, uint32_t op, double shift)
{
    const zx_view *x = &j->call->in[0];
    zx_dims outer;
    int64_t n, stride;
    double acc = start_float(op);
    zx_block b;
    zx_dims_inner(&j->r.reduced, &outer, &n, &stride);
    for (int64_t k = 0; k < outer.count; k++) {
        const int64_t at = base + zx_dims_at(&outer, k);
        for (int64_t i = 0; i < n; i += ZX_BLOCK) {
            const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
            zx_load(x->type.dtype, x->data, at + i * stride, stride, m, ZX_CLASS_F64, &b);
            for (int64_t l = 0; l < m; l++)
                acc = op == ZX_K_REDUCE_LOG_SUM_EXP ? acc + exp(b.f64[l] - shift)
                                                    : step_float(op, acc, b.f64[l]);
        }
    }
    return acc;
}

static void reduce_ints(const any_job *j, int64_t base, zx_block *result)
{
    const zx_view *x = &j->call->in[0];
    zx_dims outer;
    int64_t n, stride;
    uint64_t acc = 0;
    bool first = true;
    zx_block b;
    zx_dims_inner(&j->r.reduced, &outer, &n, &stride);
    for (int64_t k = 0; k < outer.count; k++) {
        const int64_t at = base + zx_dims_at(&outer, k);
        for (int64_t i = 0; i < n; i += ZX_BLOCK) {
            const int64_t m = zx_min_i64(ZX_BLOCK, n - i);
            zx_load(x->type.dtype, x->data, at + i * stride, stride, m, j->c, &b);
            for (int64_t l = 0; l < m; l++, first = false)
                acc = step_int(j->call->op, j->c, acc, b.u64[l], first);
        }
    }
    result->u64[0] = finish_int(j->call->op, j->c, acc, j->r.reduced.count);
}

static void any_range(void *ctx, int64_t from, int64_t to)
{
    const any_job *j = ctx;
    const zx_dtype t = j->call->in[0].type.dtype;
    const uint32_t op = j->call->op;
    for (int64_t o = from; o < to; o++) {
        const int64_t base = zx_dims_at(&j->r.kept, o);
        zx_block y;
        if (!zx_dtype_is_float(t)) {
            reduce_ints(j, base, &y);
            zx_store(t, j->call->out[0].data, o, 1, j->c, &y);
            continue;
        }
        if (op == ZX_K_REDUCE_LOG_SUM_EXP) {
            const double most = reduce_floats(j, base, ZX_K_REDUCE_MAX, 0);
            const double shift = isinf(most) ? 0 : most;
            y.f64[0] = shift + log(reduce_floats(j, base, op, shift));
        } else {
            y.f64[0] = reduce_floats(j, base, op, 0);
        }
        if (op == ZX_K_REDUCE_MEAN) y.f64[0] /= (double)j->r.reduced.count;
        if (op == ZX_K_REDUCE_L2) y.f64[0] = sqrt(y.f64[0]);
        zx_store(t, j->call->out[0].data, o, 1, ZX_CLASS_F64, &y);
    }
}

static bool is_sum(const zx_call *call)
{
    return call->in[0].type.dtype == ZX_F32 &&
           (call->op == ZX_K_REDUCE_SUM || call->op == ZX_K_REDUCE_MEAN ||
            call->op == ZX_K_REDUCE_L1 || call->op == ZX_K_REDUCE_L2 ||
            call->op == ZX_K_REDUCE_SUM_SQUARE);
}

static zx_reduction reduction_of(const zx_call *call)
{
    const zx_shape *s = &call->in[0].type.shape;
    return zx_reduction_make(s, zx_axes_bits(call, s->rank));
}

static zx_status reduce_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                                zx_err *err ZX_UNUSED)
{
    const zx_reduction r = reduction_of(call);
    *work_bytes = is_sum(call) ? sum_work(&r) : 0;
    return ZX_OK;
}

static zx_status reduce(const zx_call *call, zx_err *err ZX_UNUSED)
{
    if (is_sum(call)) {
        sum_job j = {
            .r = reduction_of(call), .type = ZX_F32, .x = call->in[0].data, .y = call->out[0].data};
        j.kind = call->op == ZX_K_REDUCE_L1                                         ? SUM_ABS
                 : call->op == ZX_K_REDUCE_L2 || call->op == ZX_K_REDUCE_SUM_SQUARE ? SUM_SQUARE
                                                                                    : SUM_PLAIN;
        j.root = call->op == ZX_K_REDUCE_L2;
        // A mean of nothing is 0 * inf: NaN.
        j.scale = call->op == ZX_K_REDUCE_MEAN ? 1.0 / (double)j.r.reduced.count : 1.0;
        sum_f32(&j, call->work, call->threads);
        return ZX_OK;
    }
    any_job j = {.call = call, .r = reduction_of(call)};
    j.c = zx_class_of(call->in[0].type.dtype);
    const bool small = zx_count(&call->in[0]) < ZX_GRAIN / 4;
    zx_split(small ? 1 : call->threads, j.r.kept.count, 1, 2, any_range, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_reduce = {.prepare = reduce_prepare, .run = reduce};

// ---- SumTo: undoes a broadcast ------------------------------------------------------------------
static zx_status sum_to_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                                zx_err *err ZX_UNUSED)
{
    const zx_reduction r = zx_sum_to_reduction(&call->in[0].type.shape, &call->out[0].type.shape);
    *work_bytes = sum_work(&r);
    return ZX_OK;
}

static zx_status sum_to(const zx_call *call, zx_err *err)
{
    sum_job j = {.r = zx_sum_to_reduction(&call->in[0].type.shape, &call->out[0].type.shape),
                 .kind = SUM_PLAIN,
                 .scale = 1.0,
                 .type = call->in[0].type.dtype,
                 .x = call->in[0].data,
                 .y = call->out[0].data};
    ZX_TRY(zx_need_f32_or_16(call, err));
    sum_f32(&j, call->work, call->threads);
    return ZX_OK;
}
const zx_kernel zx_cpu_sum_to = {.prepare = sum_to_prepare, .run = sum_to};

// scan.c - kernels that walk along one axis: CumSum, TopK, ArgMax and ArgMin, OneHot; and Trilu.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/index.h"

#include <string.h>

struct axis_job {
    const zx_call *call;
    zx_axis a;
    int64_t k;          // TopK
    bool largest, last; // TopK, ArgMax: largest; ArgMax: the last of equals
    struct entry *work;
    int64_t lines_per_piece;
};

static struct axis_job axis_make(const zx_call *call)
{
    const uint32_t axis = (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0);
    return (struct axis_job){.call = call, .a = zx_axis_of(&call->in[0].type.shape, axis)};
}
// Lines are numbered outer * inner; the first element of one.
static int64_t line_start(const zx_axis *a, int64_t line)
{
    return line / a->inner * a->n * a->inner + line % a->inner;
}
static int64_t grain(const zx_axis *a) // lines worth a second thread
{
    return ZX_GRAIN / 4 / (a->n + 1) + 2;
}

// ---- CumSum -------------------------------------------------------------------------------------
static void cum_sum_lines(void *ctx, int64_t from, int64_t to)
{
    const struct axis_job *j = ctx;
    const zx_view *x = &j->call->in[0];
    const bool exclusive = zx_attr_int(j->call->attrs, ZX_A_EXCLUSIVE, 0) != 0;
    const bool reverse = zx_attr_int(j->call->attrs, ZX_A_REVERSE, 0) != 0;
    const bool floats = zx_dtype_is_float(x->type.dtype);
    const zx_class c = floats ? ZX_CLASS_F64 : ZX_CLASS_U64; // wrapping sums need no sign
    for (int64_t line = from; line < to; line++) {
        const int64_t start = line_start(&j->a, line);
        double f = 0;
        uint64_t u = 0;
        for (int64_t i = 0; i < j->a.n; i++) {
            const int64_t at = start + (reverse ? j->a.n - 1 - i : i) * j->a.inner;
            zx_block b;
            zx_load(x->type.dtype, x->data, at, 1, 1, floats ? ZX_CLASS_F64 : ZX_CLASS_I64, &b);
            const double before_f = f;
            const uint64_t before_u = u;
            if (floats)
                f += b.f64[0];
            else
                u += b.u64[0];
            if (floats)
                b.f64[0] = exclusive ? before_f : f;
            else
                b.u64[0] = exclusive ? before_u : u;
            zx_store(x->type.dtype, j->call->out[0].data, at, 1, c, &b);
        }
    }
}

static zx_status cum_sum(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct axis_job j = axis_make(call);
    zx_split(call->threads, j.a.outer * j.a.inner, 1, grain(&j.a), cum_sum_lines, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_cum_sum = {.run = cum_sum};

// ---- an order of all numbers --------------------------------------------------------------------
// Element `at` as an integer that orders as the number does: -0 equals 0, NaN is above all.
static uint64_t order_key(const zx_view *x, int64_t at)
{
    const zx_dtype t = x->type.dtype;
    if (zx_dtypes[t].kind == ZX_KIND_FLOAT) {
        const double v = zx_read_f64(t, x->data, at) + 0.0;
        uint64_t u;
        if (v != v) return UINT64_MAX;
        memcpy(&u, &v, sizeof u);
        return u >> 63 ? ~u : u | (uint64_t)1 << 63;
    }
    if (t == ZX_U64) return ((const uint64_t *)x->data)[at];
    return (uint64_t)zx_read_i64(t, x->data, at) ^ (uint64_t)1 << 63;
}

// ---- ArgMax, ArgMin -----------------------------------------------------------------------------
static void arg_lines(void *ctx, int64_t from, int64_t to)
{
    const struct axis_job *j = ctx;
    int64_t *y = j->call->out[0].data;
    for (int64_t line = from; line < to; line++) {
        const int64_t start = line_start(&j->a, line);
        int64_t best = 0;
        uint64_t best_key = 0;
        for (int64_t i = 0; i < j->a.n; i++) {
            uint64_t key = order_key(&j->call->in[0], start + i * j->a.inner);
            if (!j->largest && key != UINT64_MAX) key = ~key; // NaN wins there too
            if (i > 0 && (j->last ? key < best_key : key <= best_key)) continue;
            best = i;
            best_key = key;
        }
        y[line] = best;
    }
}

static zx_status arg(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct axis_job j = axis_make(call);
    j.largest = call->op == ZX_K_ARG_MAX;
    j.last = zx_attr_int(call->attrs, ZX_A_SELECT_LAST, 0) != 0;
    zx_split(call->threads, j.a.outer * j.a.inner, 1, grain(&j.a), arg_lines, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_arg = {.run = arg};

// ---- TopK ---------------------------------------------------------------------------------------
// A heap of the k best so far, the worst of them on top.
struct entry {
    uint64_t key;
    int64_t index;
};
static bool worse(struct entry a, struct entry b) // ties: the lower index is better
{
    return a.key != b.key ? a.key < b.key : a.index > b.index;
}
static void sift_down(struct entry *heap, int64_t n, int64_t i)
{
    for (;;) {
        int64_t child = 2 * i + 1;
        if (child >= n) return;
        if (child + 1 < n && worse(heap[child + 1], heap[child])) child++;
        if (!worse(heap[child], heap[i])) return;
        const struct entry t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
        i = child;
    }
}

static void top_k_line(const struct axis_job *j, int64_t line, struct entry *heap)
{
    const zx_view *x = &j->call->in[0];
    const int64_t start = line_start(&j->a, line), size = zx_dtype_bytes(x->type.dtype);
    int64_t n = 0;
    for (int64_t i = 0; i < j->a.n; i++) {
        const uint64_t key = order_key(x, start + i * j->a.inner);
        const struct entry e = {j->largest ? key : ~key, i};
        if (n < j->k) {
            heap[n++] = e;
            if (n == j->k)
                for (int64_t k = n / 2; k-- > 0;) sift_down(heap, n, k);
        } else if (j->k > 0 && worse(heap[0], e)) {
            heap[0] = e;
            sift_down(heap, n, 0);
        }
    }
    const int64_t out = line / j->a.inner * j->k * j->a.inner + line % j->a.inner;
    for (; n > 0; n--) { // the worst goes last
        const int64_t to = out + (n - 1) * j->a.inner;
        memcpy((char *)j->call->out[0].data + to * size,
               (const char *)x->data + (start + heap[0].index * j->a.inner) * size, (size_t)size);
        if (j->call->out[1].data) ((int64_t *)j->call->out[1].data)[to] = heap[0].index;
        heap[0] = heap[n - 1];
        sift_down(heap, n - 1, 0);
    }
}

static void top_k_pieces(void *ctx, int64_t from, int64_t to)
{
    const struct axis_job *j = ctx;
    const int64_t lines = j->a.outer * j->a.inner;
    for (int64_t piece = from; piece < to; piece++)
        for (int64_t line = piece * j->lines_per_piece;
             line < zx_min_i64(lines, (piece + 1) * j->lines_per_piece); line++)
            top_k_line(j, line, j->work + piece * j->k);
}

static zx_status top_k_prepare(const zx_call *call, uint64_t *work_bytes, void **state ZX_UNUSED,
                               zx_err *err ZX_UNUSED)
{
    const int64_t k = zx_attr_int(call->attrs, ZX_A_K, 1);
    *work_bytes = (uint64_t)call->threads * (uint64_t)k * sizeof(struct entry);
    return ZX_OK;
}
static zx_status top_k(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct axis_job j = axis_make(call);
    j.k = zx_attr_int(call->attrs, ZX_A_K, 1);
    j.largest = zx_attr_int(call->attrs, ZX_A_LARGEST, 1) != 0;
    j.work = call->work;
    const int64_t lines = j.a.outer * j.a.inner;
    j.lines_per_piece = (lines + call->threads - 1) / call->threads;
    if (lines == 0) return ZX_OK;
    zx_split(call->threads, (lines + j.lines_per_piece - 1) / j.lines_per_piece, 1, 2, top_k_pieces,
             &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_top_k = {.prepare = top_k_prepare, .run = top_k};

// ---- OneHot -------------------------------------------------------------------------------------
static zx_status one_hot(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const zx_view *y = &call->out[0];
    const zx_axis a = zx_axis_of(&y->type.shape, (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0));
    const int64_t size = zx_dtype_bytes(y->type.dtype);
    const char *values = call->in[1].data;
    const zx_move fill = {.rank = 1,
                          .bytes = (uint32_t)size,
                          .dim = {zx_count(y)},
                          .xs = {0},
                          .ys = {1},
                          .x = values,
                          .y = y->data};
    zx_move_run(fill, call->threads);
    for (int64_t i = 0; i < a.outer * a.inner; i++) {
        int64_t k = zx_index_at(&call->in[0], i);
        if (k < 0) k += a.n;
        if (k < 0 || k >= a.n) continue;
        const int64_t at = (i / a.inner * a.n + k) * a.inner + i % a.inner;
        memcpy((char *)y->data + at * size, values + size, (size_t)size);
    }
    return ZX_OK;
}
const zx_kernel zx_cpu_one_hot = {.run = one_hot};

// ---- Trilu --------------------------------------------------------------------------------------
static void trilu_rows(void *ctx, int64_t from, int64_t to)
{
    const zx_call *call = ctx;
    const zx_shape *s = &call->in[0].type.shape;
    const int64_t h = s->dim[s->rank - 2], w = s->dim[s->rank - 1];
    const int64_t size = zx_dtype_bytes(call->in[0].type.dtype);
    const bool upper = zx_attr_int(call->attrs, ZX_A_UPPER, 1) != 0;
    const int64_t diagonal = zx_attr_int(call->attrs, ZX_A_K, 0);
    // Kept columns of row r: from r + k on (upper), or up to r + k (lower). k is clamped so that
    // the sum can't overflow.
    const int64_t k = zx_max_i64(-h - 1, zx_min_i64(w + 1, diagonal));
    for (int64_t row = from; row < to; row++) {
        const int64_t edge = row % h + k + (upper ? 0 : 1);
        const int64_t cut = zx_max_i64(0, zx_min_i64(w, edge));
        const char *x = (const char *)call->in[0].data + row * w * size;
        char *y = (char *)call->out[0].data + row * w * size;
        const int64_t keep_from = upper ? cut : 0, keep_to = upper ? w : cut;
        memset(y, 0, (size_t)(keep_from * size));
        memcpy(y + keep_from * size, x + keep_from * size, (size_t)((keep_to - keep_from) * size));
        memset(y + keep_to * size, 0, (size_t)((w - keep_to) * size));
    }
}

static zx_status trilu(const zx_call *call, zx_err *err ZX_UNUSED)
{
    zx_call c = *call;
    const zx_shape *s = &call->in[0].type.shape;
    const int64_t w = s->dim[s->rank - 1];
    if (zx_shape_count(s) == 0) return ZX_OK;
    zx_split(call->threads, zx_shape_count(s) / w, 1, ZX_GRAIN / w + 2, trilu_rows, &c);
    return ZX_OK;
}
const zx_kernel zx_cpu_trilu = {.run = trilu};

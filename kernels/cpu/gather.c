// gather.c - Gather, GatherElements, GatherND and what carries their gradients back.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/index.h"

#include <string.h>

// ---- Gather -------------------------------------------------------------------------------------
struct gather_job {
    const zx_call *call;
    zx_axis a; // of the table
    int64_t n_indices;
    int64_t run; // Gather: bytes of a row
};

static void gather_rows(void *ctx, int64_t from, int64_t to)
{
    const struct gather_job *j = ctx;
    const char *x = j->call->in[0].data;
    char *y = (char *)j->call->out[0].data;
    for (int64_t row = from; row < to; row++) {
        const int64_t o = row / j->n_indices, k = row % j->n_indices;
        const int64_t i = zx_index_of(j->call, &j->call->in[1], k, j->a.n);
        if (i < 0)
            memset(y + row * j->run, 0, (size_t)j->run);
        else
            memcpy(y + row * j->run, x + (o * j->a.n + i) * j->run, (size_t)j->run);
    }
}

static zx_status gather(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct gather_job j = {.call = call, .n_indices = zx_count(&call->in[1])};
    j.a = zx_axis_of(&call->in[0].type.shape, (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0));
    j.run = j.a.inner * (int64_t)zx_dtype_bytes(call->in[0].type.dtype);
    zx_split(call->threads, j.a.outer * j.n_indices, 1, 4 * ZX_GRAIN / (j.run + 8) + 2, gather_rows,
             &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_gather = {.run = gather};

// Every element of the table's gradient receives its terms in order of the indices, whoever adds
// them: threads share the columns. What they are added to is zeros, or a sum that comes in.
static void gather_grad_columns(void *ctx, int64_t from, int64_t to)
{
    const struct gather_job *j = ctx;
    const float *dy = j->call->in[0].data;
    float *dx = j->call->out[0].data;
    for (int64_t row = 0; row < j->a.outer * j->n_indices; row++) {
        const int64_t o = row / j->n_indices, k = row % j->n_indices;
        const int64_t i = zx_index_of(j->call, &j->call->in[1], k, j->a.n);
        if (i < 0) continue;
        float *to_row = dx + (o * j->a.n + i) * j->a.inner;
        const float *from_row = dy + row * j->a.inner;
        ZX_SIMD for (int64_t c = from; c < to; c++) to_row[c] += from_row[c];
    }
}

static void copy_range(void *ctx, int64_t from, int64_t to)
{
    const struct gather_job *j = ctx;
    memcpy((char *)j->call->out[0].data + from, (const char *)j->call->in[2].data + from,
           (size_t)(to - from));
}

// 16 bits: the terms of a row of the table are added up in float32, in the same order, and rounded
// once. `chain` of the scratch links them: by row of the table its first term, then by term the
// next.
static void chain_terms(const struct gather_job *j)
{
    int64_t *first = j->call->work, *next = first + j->a.outer * j->a.n;
    memset(first, 0xff, (size_t)(j->a.outer * j->a.n) * sizeof *first); // -1: none
    for (int64_t row = j->a.outer * j->n_indices; row-- > 0;) {
        const int64_t o = row / j->n_indices, k = row % j->n_indices;
        const int64_t i = zx_index_of(j->call, &j->call->in[1], k, j->a.n);
        if (i < 0) continue;
        next[row] = first[o * j->a.n + i];
        first[o * j->a.n + i] = row;
    }
}

static void gather_grad_halves(void *ctx, int64_t from, int64_t to)
{
    const struct gather_job *j = ctx;
    const zx_dtype t = j->call->out[0].type.dtype;
    const int64_t *first = j->call->work, *next = first + j->a.outer * j->a.n;
    const uint16_t *dy = j->call->in[0].data;
    uint16_t *dx = j->call->out[0].data;
    for (int64_t row = 0; row < j->a.outer * j->a.n; row++) {
        for (int64_t c = from; c < to && first[row] >= 0; c += ZX_BLOCK) {
            const int64_t n = zx_min_i64(ZX_BLOCK, to - c);
            float sum[ZX_BLOCK], term[ZX_BLOCK];
            zx_cpu_widen(t, dx + row * j->a.inner + c, sum, n);
            for (int64_t k = first[row]; k >= 0; k = next[k]) {
                zx_cpu_widen(t, dy + k * j->a.inner + c, term, n);
                ZX_SIMD for (int64_t i = 0; i < n; i++) sum[i] += term[i];
            }
            zx_cpu_narrow(t, sum, dx + row * j->a.inner + c, n);
        }
    }
}

static zx_status gather_grad_prepare(const zx_call *call, uint64_t *work_bytes,
                                     void **state ZX_UNUSED, zx_err *err ZX_UNUSED)
{
    const zx_axis a =
        zx_axis_of(&call->out[0].type.shape, (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0));
    if (zx_is_16(call->out[0].type.dtype))
        *work_bytes = (uint64_t)(a.outer * (a.n + zx_count(&call->in[1]))) * sizeof(int64_t);
    return ZX_OK;
}

static zx_status gather_grad(const zx_call *call, zx_err *err)
{
    const uint64_t bytes = zx_type_bytes(&call->out[0].type);
    const bool halves = zx_is_16(call->out[0].type.dtype);
    struct gather_job j = {.call = call, .n_indices = zx_count(&call->in[1])};
    if (!halves) ZX_TRY(zx_need_f32(call, err));
    j.a = zx_axis_of(&call->out[0].type.shape, (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0));
    if (!zx_has(call, 2))
        zx_fill_zero(call->out[0].data, bytes, call->threads);
    else if (call->in[2].data != call->out[0].data)
        zx_split(call->threads, (int64_t)bytes, 4096, 4 * ZX_GRAIN, copy_range, &j);
    if (halves) chain_terms(&j);
    const bool small = zx_count(&call->in[0]) < ZX_GRAIN;
    zx_split(small ? 1 : call->threads, j.a.inner, 16, 64,
             halves ? gather_grad_halves : gather_grad_columns, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_gather_grad = {.prepare = gather_grad_prepare, .run = gather_grad};

// ---- GatherElements -----------------------------------------------------------------------------
// The indices' shape leads; the other tensor (`wide`) has its own dims, larger or equal but along
// AXIS.
struct elements_job {
    const zx_call *call;
    const zx_view *index;
    const zx_shape *wide;
    uint32_t axis;
    int64_t stride[ZX_MAX_RANK]; // of wide
};

// Offset in wide of row `row` (all dims of the indices but the last), AXIS left out.
static int64_t elements_row(const struct elements_job *j, int64_t row)
{
    const zx_shape *s = &j->index->type.shape;
    int64_t offset = 0;
    for (uint32_t d = s->rank - 1; d-- > 0;) {
        if (d != j->axis) offset += row % s->dim[d] * j->stride[d];
        row /= s->dim[d];
    }
    return offset;
}

// Calls DO for each element `at` of the indices in rows [from, to), with `pos` its place in wide
// or -1.
#define EACH_ELEMENT(j, from, to, DO)                                                              \
    do {                                                                                           \
        const uint32_t last = (j)->index->type.shape.rank - 1;                                     \
        const int64_t width = (j)->index->type.shape.dim[last];                                    \
        for (int64_t row = (from); row < (to); row++) {                                            \
            const int64_t base = elements_row((j), row);                                           \
            for (int64_t i = 0; i < width; i++) {                                                  \
                const int64_t at = row * width + i;                                                \
                const int64_t k =                                                                  \
                    zx_index_of((j)->call, (j)->index, at, (j)->wide->dim[(j)->axis]);             \
                const int64_t pos =                                                                \
                    k < 0 ? -1 : base + k * (j)->stride[(j)->axis] + ((j)->axis == last ? 0 : i);  \
                DO                                                                                 \
            }                                                                                      \
        }                                                                                          \
    } while (0)

static struct elements_job elements_make(const zx_call *call, const zx_view *index,
                                         const zx_shape *wide)
{
    struct elements_job j = {.call = call, .index = index, .wide = wide};
    j.axis = (uint32_t)zx_attr_int(call->attrs, ZX_A_AXIS, 0);
    zx_strides(wide, j.stride);
    return j;
}
static int64_t elements_rows(const struct elements_job *j)
{
    const zx_shape *s = &j->index->type.shape;
    return zx_shape_span(s, 0, s->rank - 1);
}

static void gather_elements_rows(void *ctx, int64_t from, int64_t to)
{
    const struct elements_job *j = ctx;
    const int64_t size = zx_dtype_bytes(j->call->in[0].type.dtype);
    const char *x = j->call->in[0].data;
    char *y = j->call->out[0].data;
    EACH_ELEMENT(j, from, to, {
        if (pos < 0)
            memset(y + at * size, 0, (size_t)size);
        else
            memcpy(y + at * size, x + pos * size, (size_t)size);
    });
}

static zx_status gather_elements(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct elements_job j = elements_make(call, &call->in[1], &call->in[0].type.shape);
    zx_split(zx_count(&call->in[1]) < ZX_GRAIN ? 1 : call->threads, elements_rows(&j), 1, 2,
             gather_elements_rows, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_gather_elements = {.run = gather_elements};

static zx_status scatter_add_elements(const zx_call *call, zx_err *err)
{
    struct elements_job j = elements_make(call, &call->in[1], &call->out[0].type.shape);
    const float *dy = call->in[0].data;
    float *y = call->out[0].data;
    ZX_TRY(zx_need_f32(call, err));
    zx_fill_zero(y, zx_type_bytes(&call->out[0].type), call->threads);
    EACH_ELEMENT(&j, 0, elements_rows(&j), {
        if (pos >= 0) y[pos] += dy[at];
    });
    return ZX_OK;
}
const zx_kernel zx_cpu_scatter_add_elements = {.run = scatter_add_elements};

// ---- reductions of the scatters: one element at a time, any dtype -------------------------------
enum { REDUCE_NONE, REDUCE_ADD, REDUCE_MUL, REDUCE_MAX, REDUCE_MIN };

#define REDUCE(field, ADD, MUL)                                                                    \
    switch (reduction) {                                                                           \
    case REDUCE_ADD:                                                                               \
        a.field[0] = ADD;                                                                          \
        break;                                                                                     \
    case REDUCE_MUL:                                                                               \
        a.field[0] = MUL;                                                                          \
        break;                                                                                     \
    case REDUCE_MAX:                                                                               \
        if (b.field[0] > a.field[0] || b.field[0] != b.field[0]) a.field[0] = b.field[0];          \
        break;                                                                                     \
    default:                                                                                       \
        if (b.field[0] < a.field[0] || b.field[0] != b.field[0]) a.field[0] = b.field[0];          \
        break;                                                                                     \
    }                                                                                              \
    break;

static void put_element(zx_dtype t, void *y, int64_t to, const void *x, int64_t from,
                        int64_t reduction)
{
    const zx_class c = zx_class_of(t);
    zx_block a, b;
    zx_load(t, y, to, 1, 1, c, &a);
    zx_load(t, x, from, 1, 1, c, &b);
    switch (c) {
    case ZX_CLASS_F32:
        REDUCE(f32, a.f32[0] + b.f32[0], a.f32[0] * b.f32[0])
    case ZX_CLASS_F64:
        REDUCE(f64, a.f64[0] + b.f64[0], a.f64[0] * b.f64[0])
    case ZX_CLASS_I64:
        REDUCE(i64, (int64_t)(a.u64[0] + b.u64[0]), (int64_t)(a.u64[0] * b.u64[0]))
    case ZX_CLASS_U64:
        REDUCE(u64, a.u64[0] + b.u64[0], a.u64[0] * b.u64[0])
    }
    zx_store(t, y, to, 1, c, &a);
}

static void put_run(zx_dtype t, void *y, int64_t to, const void *x, int64_t from, int64_t n,
                    int64_t reduction)
{
    const int64_t size = zx_dtype_bytes(t);
    if (reduction == REDUCE_NONE)
        memcpy((char *)y + to * size, (const char *)x + from * size, (size_t)(n * size));
    else
        for (int64_t i = 0; i < n; i++) put_element(t, y, to + i, x, from + i, reduction);
}

static zx_status scatter_elements(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct elements_job j = elements_make(call, &call->in[1], &call->in[0].type.shape);
    const int64_t reduction = zx_attr_int(call->attrs, ZX_A_REDUCTION, REDUCE_NONE);
    const zx_dtype t = call->in[0].type.dtype;
    memmove(call->out[0].data, call->in[0].data, (size_t)zx_type_bytes(&call->in[0].type));
    EACH_ELEMENT(&j, 0, elements_rows(&j), {
        if (pos >= 0) put_run(t, call->out[0].data, pos, call->in[2].data, at, 1, reduction);
    });
    return ZX_OK;
}
const zx_kernel zx_cpu_scatter_elements = {.run = scatter_elements};

// ---- GatherND -----------------------------------------------------------------------------------
struct nd {
    const zx_call *call;
    const zx_view *index;
    uint32_t batch, q;         // batch dims; length of an index tuple
    int64_t tuples, per_batch; // in all, and for one batch element
    int64_t run;               // elements that one tuple names
    int64_t batch_stride;      // elements of the indexed tensor for one batch element
    int64_t dim[ZX_MAX_RANK], stride[ZX_MAX_RANK]; // of the q indexed dims
};

static struct nd nd_make(const zx_call *call, const zx_view *index, const zx_shape *whole)
{
    const zx_shape *si = &index->type.shape;
    struct nd d = {.call = call, .index = index, .q = (uint32_t)si->dim[si->rank - 1]};
    int64_t stride[ZX_MAX_RANK];
    d.batch = (uint32_t)zx_attr_int(call->attrs, ZX_A_BATCH_DIMS, 0);
    zx_strides(whole, stride);
    d.tuples = zx_shape_span(si, 0, si->rank - 1);
    const int64_t batches = zx_shape_span(whole, 0, d.batch);
    d.per_batch = batches ? d.tuples / batches : 0;
    d.run = zx_shape_span(whole, d.batch + d.q, whole->rank);
    d.batch_stride = zx_shape_span(whole, d.batch, whole->rank);
    for (uint32_t i = 0; i < d.q; i++) {
        d.dim[i] = whole->dim[d.batch + i];
        d.stride[i] = stride[d.batch + i];
    }
    return d;
}

// Where tuple t points, in elements; -1 and a fault: outside.
static int64_t nd_at(const struct nd *d, int64_t t)
{
    int64_t at = d->batch ? t / d->per_batch * d->batch_stride : 0;
    for (uint32_t i = 0; i < d->q; i++) {
        const int64_t k = zx_index_of(d->call, d->index, t * (int64_t)d->q + i, d->dim[i]);
        if (k < 0) return -1;
        at += k * d->stride[i];
    }
    return at;
}

static void gather_nd_rows(void *ctx, int64_t from, int64_t to)
{
    const struct nd *d = ctx;
    const int64_t size = zx_dtype_bytes(d->call->in[0].type.dtype), bytes = d->run * size;
    const char *x = d->call->in[0].data;
    char *y = d->call->out[0].data;
    for (int64_t t = from; t < to; t++) {
        const int64_t at = nd_at(d, t);
        if (at < 0)
            memset(y + t * bytes, 0, (size_t)bytes);
        else
            memcpy(y + t * bytes, x + at * size, (size_t)bytes);
    }
}

static zx_status gather_nd(const zx_call *call, zx_err *err ZX_UNUSED)
{
    struct nd d = nd_make(call, &call->in[1], &call->in[0].type.shape);
    zx_split(call->threads, d.tuples, 1, ZX_GRAIN / (d.run + 1) + 2, gather_nd_rows, &d);
    return ZX_OK;
}
const zx_kernel zx_cpu_gather_nd = {.run = gather_nd};

static zx_status gather_nd_grad(const zx_call *call, zx_err *err)
{
    const struct nd d = nd_make(call, &call->in[1], &call->out[0].type.shape);
    const float *dy = call->in[0].data;
    float *dx = call->out[0].data;
    ZX_TRY(zx_need_f32(call, err));
    zx_fill_zero(dx, zx_type_bytes(&call->out[0].type), call->threads);
    for (int64_t t = 0; t < d.tuples; t++) {
        const int64_t at = nd_at(&d, t);
        if (at < 0) continue;
        ZX_SIMD for (int64_t i = 0; i < d.run; i++) dx[at + i] += dy[t * d.run + i];
    }
    return ZX_OK;
}
const zx_kernel zx_cpu_gather_nd_grad = {.run = gather_nd_grad};

static zx_status scatter_nd(const zx_call *call, zx_err *err ZX_UNUSED)
{
    const struct nd d = nd_make(call, &call->in[1], &call->in[0].type.shape);
    const int64_t reduction = zx_attr_int(call->attrs, ZX_A_REDUCTION, REDUCE_NONE);
    memmove(call->out[0].data, call->in[0].data, (size_t)zx_type_bytes(&call->in[0].type));
    for (int64_t t = 0; t < d.tuples; t++) {
        const int64_t at = nd_at(&d, t);
        if (at >= 0)
            put_run(call->in[0].type.dtype, call->out[0].data, at, call->in[2].data, t * d.run,
                    d.run, reduction);
    }
    return ZX_OK;
}
const zx_kernel zx_cpu_scatter_nd = {.run = scatter_nd};

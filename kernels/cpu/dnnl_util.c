// dnnl_util.c - see dnnl_util.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/dnnl_util.h"

#ifndef ZX_NAIVE

#include <math.h>
#include <omp.h>
#include <stdlib.h>

#include <oneapi/dnnl/dnnl.h>

#include "kernels/cpu/common.h"

// Pieces of a product that threads share: what makes it worth it, and where it is cut.
#define SPLIT_FLOPS 4e6 // multiplications
#define LEAST_ROWS 32
#define LEAST_COLS 128
#define ROW_ALIGN 16
#define COL_ALIGN 64

// A memory descriptor that we own, and one that we look at: a struct and a pointer to it in oneDNN
// 2, one opaque pointer in oneDNN 3.
#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t own_desc;
typedef const_dnnl_memory_desc_t see_desc;
#define SEE(own) (own)
#else
typedef dnnl_memory_desc_t own_desc;
typedef const dnnl_memory_desc_t *see_desc;
#define SEE(own) (&(own))
#endif

enum { MOST_STEPS = 4, MOST_ARGS = 6 }; // reorders of two inputs and a result beside the primitive

typedef struct step {
    dnnl_primitive_t primitive;
    int n;
    dnnl_exec_arg_t arg[MOST_ARGS]; // their memories are ours
    uint32_t outside[MOST_ARGS];    // ZX_NONE: at[] bytes into the scratch
    uint64_t at[MOST_ARGS];
} step;

enum { MOST_OUTSIDE = 4 };
typedef struct part {
    zx_dnnl *program;
    uint64_t at[MOST_OUTSIDE], work_at; // bytes into the outside operands and the scratch
} part;

struct zx_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    step steps[MOST_STEPS];
    uint32_t n_steps;
    uint64_t work_bytes;
    int threads;
    part *parts; // in place of steps: a program of one thread for each thread, side by side
};

// An operand of the primitive being added: its name there, and where it lies outside.
typedef struct operand {
    int arg;
    const zx_dnnl_tensor *tensor;
    bool written;
} operand;

static zx_status check(dnnl_status_t s, const char *what, zx_err *err)
{
    if (s == dnnl_success) return ZX_OK;
    const bool refused = s == dnnl_unimplemented || s == dnnl_invalid_arguments;
    return ZX_FAIL(err, refused ? ZX_E_UNSUPPORTED : ZX_E_DEVICE,
                   "oneDNN: %s failed with status %d", what, (int)s);
}
#define CHECK(call, what) ZX_TRY(check((call), (what), err))

zx_dnnl_tensor zx_dnnl_plain(int rank, const int64_t *dim, bool any, uint32_t outside)
{
    zx_dnnl_tensor t = {.rank = rank, .any = any, .outside = outside};
    int64_t stride = 1;
    for (int i = rank; i-- > 0; stride *= dim[i]) {
        t.dim[i] = dim[i];
        t.stride[i] = stride;
    }
    return t;
}

// ---- descriptors
// ----------------------------------------------------------------------------------
static dnnl_status_t desc_make(own_desc *out, const zx_dnnl_tensor *t, bool any)
{
    dnnl_dims_t dim = {0}, stride = {0};
    const dnnl_data_type_t type = t->bf16 ? dnnl_bf16 : dnnl_f32;
    for (int i = 0; i < t->rank; i++) {
        dim[i] = t->dim[i];
        stride[i] = t->stride[i];
    }
#if DNNL_VERSION_MAJOR >= 3
    if (t->rank == 0) {
        *out = NULL;
        return dnnl_success;
    }
    return any ? dnnl_memory_desc_create_with_tag(out, t->rank, dim, type, dnnl_format_tag_any)
               : dnnl_memory_desc_create_with_strides(out, t->rank, dim, type, stride);
#else
    *out = (own_desc){0};
    if (t->rank == 0) return dnnl_success;
    return any ? dnnl_memory_desc_init_by_tag(out, t->rank, dim, type, dnnl_format_tag_any)
               : dnnl_memory_desc_init_by_strides(out, t->rank, dim, type, stride);
#endif
}

static void desc_free(own_desc *d)
{
#if DNNL_VERSION_MAJOR >= 3
    if (*d) dnnl_memory_desc_destroy(*d);
#else
    (void)d;
#endif
}

static dnnl_status_t append_scale(dnnl_post_ops_t ops, float alpha)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_linear, alpha, 0.0f);
#else
    return dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_linear, alpha, 0.0f);
#endif
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
#else
    return dnnl_post_ops_append_sum(ops, 1.0f);
#endif
}

// ---- programs
// -------------------------------------------------------------------------------------
static zx_status start(int threads, zx_dnnl **out, zx_err *err)
{
    zx_dnnl *d = calloc(1, sizeof *d);
    if (!d) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    *out = d; // the caller's to free from here on
    d->threads = threads;
    CHECK(dnnl_engine_create(&d->engine, dnnl_cpu, 0), "making an engine");
    CHECK(dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags), "making a stream");
    return ZX_OK;
}

static uint64_t reserve(zx_dnnl *d, see_desc desc)
{
    const uint64_t at = d->work_bytes;
    d->work_bytes += zx_align_up(dnnl_memory_desc_get_size(desc), ZX_ALIGN);
    return at;
}

static zx_status add_arg(zx_dnnl *d, step *s, int arg, see_desc desc, uint32_t outside, uint64_t at,
                         zx_err *err)
{
    ZX_ASSERT(s->n < MOST_ARGS);
    const int i = s->n;
    CHECK(dnnl_memory_create(&s->arg[i].memory, desc, d->engine, DNNL_MEMORY_NONE),
          "making a memory object");
    s->arg[i].arg = arg;
    s->outside[i] = outside;
    s->at[i] = at;
    s->n++;
    return ZX_OK;
}

static zx_status add_scratchpad(zx_dnnl *d, step *s, const_dnnl_primitive_desc_t pd, zx_err *err)
{
    see_desc desc = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (!desc || dnnl_memory_desc_get_size(desc) == 0) return ZX_OK;
    return add_arg(d, s, DNNL_ARG_SCRATCHPAD, desc, ZX_NONE, reserve(d, desc), err);
}

static step *next_step(zx_dnnl *d)
{
    ZX_ASSERT(d->n_steps < MOST_STEPS);
    return &d->steps[d->n_steps++];
}

// One step that copies an operand between its outside layout and `inside` at `at` of the scratch.
static zx_status add_reorder(zx_dnnl *d, const operand *o, see_desc outside, see_desc inside,
                             uint64_t at, const_dnnl_primitive_attr_t attr, zx_err *err)
{
    see_desc from = o->written ? inside : outside, to = o->written ? outside : inside;
    dnnl_primitive_desc_t pd = NULL;
    CHECK(dnnl_reorder_primitive_desc_create(&pd, from, d->engine, to, d->engine, attr),
          "planning a reorder");
    step *s = next_step(d);
    const uint32_t tensor = o->tensor->outside;
    zx_status st = check(dnnl_primitive_create(&s->primitive, pd), "making a reorder", err);
    if (st == ZX_OK)
        st = add_arg(d, s, DNNL_ARG_FROM, from, o->written ? ZX_NONE : tensor, at, err);
    if (st == ZX_OK) st = add_arg(d, s, DNNL_ARG_TO, to, o->written ? tensor : ZX_NONE, at, err);
    if (st == ZX_OK) st = add_scratchpad(d, s, pd, err);
    dnnl_primitive_desc_destroy(pd);
    return st;
}

// The primitive of `pd` with its operands, and the reorders that its layouts ask for around it.
static zx_status add_primitive(zx_dnnl *d, dnnl_primitive_desc_t pd, const operand *list, int n,
                               const_dnnl_primitive_attr_t plain_attr, zx_err *err)
{
    step main_step = {0};
    own_desc outside[MOST_ARGS];
    uint64_t at[MOST_ARGS] = {0};
    bool moved[MOST_ARGS] = {false};
    int made = 0;
    zx_status st = ZX_OK;
    for (; st == ZX_OK && made < n; made++) {
        const operand *o = &list[made];
        see_desc inside = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, o->arg);
        st = check(desc_make(&outside[made], o->tensor, false), "describing a tensor", err);
        if (st != ZX_OK) break;
        moved[made] = !dnnl_memory_desc_equal(inside, SEE(outside[made]));
        if (moved[made]) at[made] = reserve(d, inside);
        if (moved[made] && !o->written)
            st = add_reorder(d, o, SEE(outside[made]), inside, at[made], plain_attr, err);
        if (st == ZX_OK)
            st = add_arg(d, &main_step, o->arg, inside, moved[made] ? ZX_NONE : o->tensor->outside,
                         at[made], err);
    }
    if (st == ZX_OK) st = add_scratchpad(d, &main_step, pd, err);
    if (st == ZX_OK)
        st = check(dnnl_primitive_create(&main_step.primitive, pd), "making a primitive", err);
    *next_step(d) = main_step; // owned by d from here on, whole or half
    for (int i = 0; st == ZX_OK && i < n; i++) {
        if (!moved[i] || !list[i].written) continue;
        see_desc inside = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, list[i].arg);
        st = add_reorder(d, &list[i], SEE(outside[i]), inside, at[i], plain_attr, err);
    }
    for (int i = 0; i < made; i++) desc_free(&outside[i]);
    return st;
}

static zx_status attr_make(dnnl_primitive_attr_t *out, zx_err *err)
{
    CHECK(dnnl_primitive_attr_create(out), "making attributes");
    CHECK(dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user),
          "asking for a scratchpad");
    return ZX_OK;
}

// The library asks OpenMP how many threads there are, in the thread that calls it.
static int threads_set(int threads)
{
    const int before = omp_get_max_threads();
    if (before != threads) omp_set_num_threads(threads);
    return before;
}

// ---- MATMUL
// ---------------------------------------------------------------------------------------
// attr scales the product and, where both a scale and c are there, adds c after it (the library
// would scale its own bias too); then what y held.
static zx_status matmul_attr(dnnl_primitive_attr_t attr, float alpha, see_desc c, bool add,
                             zx_err *err)
{
    dnnl_post_ops_t ops = NULL;
    CHECK(dnnl_post_ops_create(&ops), "making post-ops");
    zx_status st = ZX_OK;
    if (alpha != 1.0f) st = check(append_scale(ops, alpha), "scaling", err);
    if (st == ZX_OK && c)
        st = check(dnnl_post_ops_append_binary(ops, dnnl_binary_add, c), "adding", err);
    if (st == ZX_OK && add) st = check(append_sum(ops), "adding to what is there", err);
    if (st == ZX_OK)
        st = check(dnnl_primitive_attr_set_post_ops(attr, ops), "setting post-ops", err);
    dnnl_post_ops_destroy(ops);
    return st;
}

static dnnl_status_t matmul_plan(dnnl_primitive_desc_t *out, dnnl_engine_t engine, see_desc a,
                                 see_desc b, see_desc c, see_desc y,
                                 const_dnnl_primitive_attr_t attr)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(out, engine, a, b, c, y, attr);
#else
    dnnl_matmul_desc_t desc;
    const dnnl_status_t s = dnnl_matmul_desc_init(&desc, a, b, c, y);
    return s != dnnl_success ? s : dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
#endif
}

static zx_status matmul_build(zx_dnnl *d, const zx_dnnl_tensor *t[4], float alpha, bool add,
                              zx_err *err)
{
    enum { A, B, C, Y };
    own_desc desc[4];
    dnnl_primitive_attr_t attr = NULL, plain = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int made = 0;
    zx_status st = ZX_OK;
    for (; st == ZX_OK && made < 4; made++)
        st = check(desc_make(&desc[made], t[made], t[made]->any), "describing a matrix", err);
    const bool added = t[C]->rank > 0, scaled = alpha != 1.0f;
    if (st == ZX_OK) st = attr_make(&attr, err);
    if (st == ZX_OK) st = attr_make(&plain, err);
    if (st == ZX_OK && (scaled || add))
        st = matmul_attr(attr, alpha, added && scaled ? SEE(desc[C]) : NULL, add, err);
    if (st == ZX_OK) {
        see_desc c = added && !scaled ? SEE(desc[C]) : NULL;
        st = check(matmul_plan(&pd, d->engine, SEE(desc[A]), SEE(desc[B]), c, SEE(desc[Y]), attr),
                   "planning a product", err);
    }
    if (st == ZX_OK) {
        const int c_arg =
            scaled ? DNNL_ARG_ATTR_MULTIPLE_POST_OP(1) | DNNL_ARG_SRC_1 : DNNL_ARG_BIAS;
        const operand list[] = {{DNNL_ARG_SRC, t[A], false},
                                {DNNL_ARG_WEIGHTS, t[B], false},
                                {DNNL_ARG_DST, t[Y], true},
                                {c_arg, t[C], false}};
        st = add_primitive(d, pd, list, added ? 4 : 3, plain, err);
    }
    for (int i = 0; i < made; i++) desc_free(&desc[i]);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    if (plain) dnnl_primitive_attr_destroy(plain);
    return st;
}

static zx_status matmul_whole(const zx_dnnl_tensor *a, const zx_dnnl_tensor *b,
                              const zx_dnnl_tensor *c, const zx_dnnl_tensor *y, float alpha,
                              bool add, int threads, zx_dnnl **out, zx_err *err)
{
    const zx_dnnl_tensor *t[4] = {a, b, c, y};
    const int before = threads_set(threads);
    zx_status st = start(threads, out, err);
    if (st == ZX_OK) st = matmul_build(*out, t, alpha, add, err);
    threads_set(before);
    if (st == ZX_OK) return ZX_OK;
    zx_dnnl_free(*out);
    *out = NULL;
    return st;
}

// How the threads share y: `rows` x `cols` pieces of it, the threads' number of them.
typedef struct grid {
    int64_t rows, cols;
} grid;

// With the fewest numbers read; 1 x 1 where the library shares the work: where products are many,
// small, or don't divide.
static grid grid_of(const zx_dnnl_tensor *y, int64_t k, int threads)
{
    const int64_t m = y->dim[0], n = y->dim[1];
    grid best = {1, 1};
    double least = INFINITY;
    if (y->rank != 2 || (double)m * (double)n * (double)k < SPLIT_FLOPS) return best;
    for (int64_t rows = 1; rows <= threads; rows++) {
        const int64_t cols = threads / rows;
        const double reads = (double)cols * (double)m + (double)rows * (double)n;
        if (rows * cols != threads || m < rows * LEAST_ROWS || n < cols * LEAST_COLS) continue;
        if (reads < least) best = (grid){rows, cols};
        if (reads < least) least = reads;
    }
    return best;
}

// The i-th of `parts` cuts of n at multiples of `align`.
static int64_t cut_at(int64_t n, int64_t parts, int64_t i, int64_t align)
{
    const int64_t at = (n * i / parts + align / 2) / align * align;
    return i == parts || at > n ? n : at;
}

// Of a matrix, `n` rows (dim 0) or columns (dim 1) from `from` on; moves *at by as much. What is
// repeated stays.
static void cut(zx_dnnl_tensor *t, int dim, int64_t from, int64_t n, uint64_t *at)
{
    if (t->rank == 0 || t->dim[dim] == 1) return;
    t->dim[dim] = n;
    at[t->outside] += (uint64_t)(from * t->stride[dim]) * (t->bf16 ? 2 : 4);
}

static zx_status matmul_part(const zx_dnnl_tensor *const from[4], grid g, int64_t i, float alpha,
                             bool add, part *p, zx_err *err)
{
    zx_dnnl_tensor a = *from[0], b = *from[1], c = *from[2], y = *from[3];
    const int64_t row = i / g.cols, col = i % g.cols, m = y.dim[0], n = y.dim[1];
    const int64_t r = cut_at(m, g.rows, row, ROW_ALIGN);
    const int64_t s = cut_at(n, g.cols, col, COL_ALIGN);
    const int64_t nr = cut_at(m, g.rows, row + 1, ROW_ALIGN) - r;
    const int64_t ns = cut_at(n, g.cols, col + 1, COL_ALIGN) - s;
    cut(&a, 0, r, nr, p->at);
    cut(&b, 1, s, ns, p->at);
    cut(&c, 1, s, ns, p->at);
    cut(&y, 0, r, nr, p->at);
    cut(&y, 1, s, ns, p->at);
    b.any = false;
    return matmul_whole(&a, &b, &c, &y, alpha, add, 1, &p->program, err);
}

// Where the library shares a product out, threads reach less than each would alone; one product
// each that knows nothing of the others doesn't lose that (docs/PERF.md). b isn't reordered then:
// every piece would do that again for few rows or columns.
static zx_status matmul_split(const zx_dnnl_tensor *const t[4], grid g, float alpha, bool add,
                              zx_dnnl *d, zx_err *err)
{
    d->parts = calloc((size_t)d->threads, sizeof *d->parts);
    if (!d->parts) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    for (int i = 0; i < d->threads; i++) {
        ZX_TRY(matmul_part(t, g, i, alpha, add, &d->parts[i], err));
        d->parts[i].work_at = d->work_bytes;
        d->work_bytes += zx_align_up(d->parts[i].program->work_bytes, ZX_ALIGN);
    }
    return ZX_OK;
}

zx_status zx_dnnl_matmul(const zx_dnnl_tensor *a, const zx_dnnl_tensor *b, const zx_dnnl_tensor *c,
                         const zx_dnnl_tensor *y, float alpha, bool add, int threads, zx_dnnl **out,
                         zx_err *err)
{
    const grid g = grid_of(y, a->dim[1], threads);
    if (g.rows * g.cols == 1) return matmul_whole(a, b, c, y, alpha, add, threads, out, err);
    const zx_dnnl_tensor *const t[4] = {a, b, c, y};
    zx_dnnl *d = calloc(1, sizeof *d);
    if (!d) return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    d->threads = threads;
    const zx_status st = matmul_split(t, g, alpha, add, d, err);
    if (st != ZX_OK) zx_dnnl_free(d);
    *out = st == ZX_OK ? d : NULL;
    return st;
}

// ---- convolutions
// ---------------------------------------------------------------------------------
typedef struct conv_shape { // what the library's calls take beside the descriptors
    dnnl_dims_t stride, dilation, before, after;
} conv_shape;

static dnnl_status_t conv_plan(dnnl_primitive_desc_t *out, dnnl_engine_t engine,
                               zx_dnnl_conv_kind kind, see_desc x, see_desc w, see_desc b,
                               see_desc y, const conv_shape *s, const_dnnl_primitive_attr_t attr)
{
    const dnnl_alg_kind_t how = dnnl_convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
    // A gradient wants the forward primitive as a hint.
    dnnl_primitive_desc_t forward = NULL;
    dnnl_status_t r = dnnl_convolution_forward_primitive_desc_create(
        kind == ZX_DNNL_FORWARD ? out : &forward, engine, dnnl_forward_training, how, x, w, b, y,
        s->stride, s->dilation, s->before, s->after, attr);
    if (r == dnnl_success && kind == ZX_DNNL_GRAD_X)
        r = dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, how, x, w, y, s->stride, s->dilation, s->before, s->after, forward, attr);
    if (r == dnnl_success && kind == ZX_DNNL_GRAD_W)
        r = dnnl_convolution_backward_weights_primitive_desc_create(
            out, engine, how, x, w, NULL, y, s->stride, s->dilation, s->before, s->after, forward,
            attr);
    if (forward) dnnl_primitive_desc_destroy(forward);
    return r;
#else
    dnnl_convolution_desc_t desc;
    dnnl_status_t r =
        kind == ZX_DNNL_FORWARD
            ? dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, how, x, w, b,
                                                         y, s->stride, s->dilation, s->before,
                                                         s->after)
        : kind == ZX_DNNL_GRAD_X
            ? dnnl_dilated_convolution_backward_data_desc_init(&desc, how, x, w, y, s->stride,
                                                               s->dilation, s->before, s->after)
            : dnnl_dilated_convolution_backward_weights_desc_init(
                  &desc, how, x, w, NULL, y, s->stride, s->dilation, s->before, s->after);
    return r != dnnl_success ? r : dnnl_primitive_desc_create(out, &desc, attr, engine, NULL);
#endif
}

// The operands' names in each of the three products.
static const struct {
    int x, w, y;
} conv_args[] = {
    [ZX_DNNL_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    [ZX_DNNL_GRAD_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
    [ZX_DNNL_GRAD_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
};

static zx_status conv_build(zx_dnnl *d, zx_dnnl_conv_kind kind, const zx_dnnl_tensor *t[4],
                            const zx_dnnl_window *window, zx_err *err)
{
    enum { X, W, B, Y };
    conv_shape s = {0};
    for (int i = 0; i + 2 < t[X]->rank; i++) {
        s.stride[i] = window->stride[i];
        s.dilation[i] = window->dilation[i] - 1; // the library counts the gaps
        s.before[i] = window->before[i];
        s.after[i] = window->after[i];
    }
    own_desc desc[4];
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    int made = 0;
    zx_status st = ZX_OK;
    for (; st == ZX_OK && made < 4; made++)
        st = check(desc_make(&desc[made], t[made], t[made]->any), "describing a tensor", err);
    const bool added = t[B]->rank > 0;
    if (st == ZX_OK) st = attr_make(&attr, err);
    if (st == ZX_OK)
        st = check(conv_plan(&pd, d->engine, kind, SEE(desc[X]), SEE(desc[W]),
                             added ? SEE(desc[B]) : NULL, SEE(desc[Y]), &s, attr),
                   "planning a convolution", err);
    if (st == ZX_OK) {
        const operand list[] = {{conv_args[kind].x, t[X], kind == ZX_DNNL_GRAD_X},
                                {conv_args[kind].w, t[W], kind == ZX_DNNL_GRAD_W},
                                {conv_args[kind].y, t[Y], kind == ZX_DNNL_FORWARD},
                                {DNNL_ARG_BIAS, t[B], false}};
        st = add_primitive(d, pd, list, added ? 4 : 3, attr, err);
    }
    for (int i = 0; i < made; i++) desc_free(&desc[i]);
    if (pd) dnnl_primitive_desc_destroy(pd);
    if (attr) dnnl_primitive_attr_destroy(attr);
    return st;
}

zx_status zx_dnnl_conv(zx_dnnl_conv_kind kind, const zx_dnnl_tensor *x, const zx_dnnl_tensor *w,
                       const zx_dnnl_tensor *b, const zx_dnnl_tensor *y,
                       const zx_dnnl_window *window, int threads, zx_dnnl **out, zx_err *err)
{
    const zx_dnnl_tensor *t[4] = {x, w, b, y};
    const int before = threads_set(threads);
    zx_status st = start(threads, out, err);
    if (st == ZX_OK) st = conv_build(*out, kind, t, window, err);
    threads_set(before);
    if (st == ZX_OK) return ZX_OK;
    zx_dnnl_free(*out);
    *out = NULL;
    return st;
}

bool zx_dnnl_has_bf16(void)
{
    const unsigned has = (unsigned)dnnl_get_effective_cpu_isa(),
                   want = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    return (has & want) == want;
}

// ---- running
// --------------------------------------------------------------------------------------
uint64_t zx_dnnl_work_bytes(const zx_dnnl *d)
{
    return d->work_bytes;
}

static dnnl_status_t run_step(const zx_dnnl *d, const step *s, void *const *outside, void *work)
{
    for (int i = 0; i < s->n; i++) {
        void *at =
            s->outside[i] == ZX_NONE ? (unsigned char *)work + s->at[i] : outside[s->outside[i]];
        const dnnl_status_t r = dnnl_memory_set_data_handle(s->arg[i].memory, at);
        if (r != dnnl_success) return r;
    }
    return dnnl_primitive_execute(s->primitive, d->stream, s->n, s->arg);
}

static dnnl_status_t run_steps(const zx_dnnl *d, void *const *outside, void *work, uint32_t *at)
{
    dnnl_status_t r = dnnl_success;
    for (*at = 0; r == dnnl_success && *at < d->n_steps; ++*at)
        r = run_step(d, &d->steps[*at], outside, work);
    return r == dnnl_success ? dnnl_stream_wait(d->stream) : r;
}

typedef struct parts_run {
    const zx_dnnl *d;
    void *const *outside;
    void *work;
    zx_fault failed; // of the first that did
} parts_run;

static void run_parts(void *ctx, int64_t from, int64_t to)
{
    parts_run *run = ctx;
    for (int64_t i = from; i < to; i++) {
        const part *p = &run->d->parts[i];
        void *outside[MOST_OUTSIDE];
        uint32_t at;
        for (int k = 0; k < MOST_OUTSIDE; k++)
            outside[k] = run->outside[k] ? (unsigned char *)run->outside[k] + p->at[k] : NULL;
        const dnnl_status_t r =
            run_steps(p->program, outside, (unsigned char *)run->work + p->work_at, &at);
        if (r != dnnl_success) zx_fault_set(&run->failed, ZX_FAULT_LIBRARY, r, at);
    }
}

zx_status zx_dnnl_run(const zx_dnnl *d, void *const *outside, const zx_call *call, zx_err *err)
{
    ZX_ASSERT(call->threads == d->threads); // layouts and scratch were chosen for them
    parts_run parts = {.d = d, .outside = outside, .work = call->work};
    dnnl_status_t r = dnnl_success;
    uint32_t at = 0;
    if (d->parts) {
        zx_split(d->threads, d->threads, 1, 2, run_parts, &parts);
        if (parts.failed.kind != ZX_FAULT_NONE) r = (dnnl_status_t)parts.failed.a;
    } else {
        const int before = threads_set(d->threads);
        r = run_steps(d, outside, call->work, &at);
        threads_set(before);
    }
    if (r == dnnl_success) return ZX_OK;
    if (!call->fault) return check(r, "running a primitive", err);
    zx_fault_set(call->fault, ZX_FAULT_LIBRARY, r, at); // no rank returns early past a collective
    return ZX_OK;
}

void zx_dnnl_free(zx_dnnl *d)
{
    if (!d) return;
    for (int i = 0; d->parts && i < d->threads; i++) zx_dnnl_free(d->parts[i].program);
    free(d->parts);
    for (uint32_t i = 0; i < d->n_steps; i++) {
        step *s = &d->steps[i];
        for (int a = 0; a < s->n; a++) dnnl_memory_destroy(s->arg[a].memory);
        if (s->primitive) dnnl_primitive_destroy(s->primitive);
    }
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    free(d);
}

#endif

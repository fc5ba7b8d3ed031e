// widen.c - every kernel on f16 and bf16. Those of the tables below take them as they are; another
// one is given copies in float32, in scratch, and what it makes is rounded once. So norms, softmax,
// losses and sums are float32, whatever their operands are kept in.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>

#include "kernels/cpu/common.h"
#include "kernels/cpu/dnnl_util.h"

// What moves elements without looking at them, computes in blocks of float32 (block.c), or keeps
// its own sums.
static const zx_kernel *const takers[] = {
    &zx_cpu_copy,          &zx_cpu_transpose,   &zx_cpu_expand,  &zx_cpu_slice,
    &zx_cpu_slice_scatter, &zx_cpu_concat,      &zx_cpu_gather,  &zx_cpu_gather_elements,
    &zx_cpu_gather_nd,     &zx_cpu_gather_grad, &zx_cpu_trilu,   &zx_cpu_cast,
    &zx_cpu_unary,         &zx_cpu_binary,      &zx_cpu_compare, &zx_cpu_where,
    &zx_cpu_is_nan,        &zx_cpu_is_inf,
};

static bool takes_16(const zx_kernel *k)
{
    for (uint32_t i = 0; i < ZX_COUNT(takers); i++)
        if (takers[i] == k) return true;
    return false;
}

// What computes in float32, but reads and writes the operands of these bits a few at a time: they
// may be of 16 bits, each for itself. The others are small.
static const struct mixer {
    const zx_kernel *kernel;
    uint32_t in, out;
} mixers[] = {
    {&zx_cpu_unary_grad, 3, 1},
    {&zx_cpu_glu, 3, 1},
    {&zx_cpu_glu_grad, 7, 3},
    {&zx_cpu_sum_to, 1, 0},
    {&zx_cpu_layer_norm, 1, 1},            // x; y
    {&zx_cpu_layer_norm_grad, 3, 1},       // dy, x; dx
    {&zx_cpu_rms_norm, 1, 1},              // x; y
    {&zx_cpu_rms_norm_grad, 3, 1},         // dy, x; dx
    {&zx_cpu_attention, 7, 1},             // q, k, v; y
    {&zx_cpu_attention_grad, 31, 7},       // dy, q, k, v, y; dq, dk, dv
    {&zx_cpu_packed_attention, 1, 1},      // qkv; y
    {&zx_cpu_packed_attention_grad, 7, 1}, // dy, qkv, y; dqkv
};

static struct mixer mixer_of(const zx_kernel *k)
{
    for (uint32_t i = 0; i < ZX_COUNT(mixers); i++)
        if (mixers[i].kernel == k) return mixers[i];
    return (struct mixer){k, 0, 0};
}

#ifndef ZX_NAIVE
// Products by the library, of bf16 alone; a bit an operand that is float32 all the same.
static const struct product {
    uint32_t op, in_f32, out_f32;
} products[] = {
    {ZX_K_MATMUL, 0, 0},
    {ZX_K_CONV, 0, 0},
    {ZX_K_CONV_GRAD_X, 0, 0},
    {ZX_K_CONV_GRAD_W, 0, 0},
    {ZX_K_LINEAR_CROSS_ENTROPY, 0, 3},      // its loss and log-sum-exps
    {ZX_K_LINEAR_CROSS_ENTROPY_GRAD, 1, 1}, // the loss's gradient, the loss
};

static bool types_are(const zx_view *v, uint32_t n, uint32_t f32)
{
    for (uint32_t i = 0; i < n; i++) {
        const zx_dtype t = v[i].type.dtype, want = (f32 >> i & 1) != 0 ? ZX_F32 : ZX_BF16;
        if (zx_dtype_is_float(t) && t != want) return false;
    }
    return true;
}

bool zx_library_takes_bf16(const zx_call *c)
{
    for (uint32_t i = 0; i < ZX_COUNT(products); i++)
        if (products[i].op == c->op)
            return zx_dnnl_has_bf16() && types_are(c->in, c->n_in, products[i].in_f32) &&
                   types_are(c->out, c->n_out, products[i].out_f32);
    return false;
}
#else
bool zx_library_takes_bf16(const zx_call *c ZX_UNUSED)
{
    return false;
}
#endif

enum { MOST = 64 }; // operands, in and out

typedef struct widened { // of a node
    const zx_kernel *kernel;
    void *state;           // of its
    struct mixer takes;    // operands that aren't copied
    bool wide;             // some are
    uint64_t work_bytes;   // of its
    uint64_t at[2 * MOST]; // by operand, from MOST on by result: where its copy is in the scratch
} widened;

// Whether the kernel has to be given copies: some are of 16 bits, and it doesn't take those, or not
// beside float32.
static bool needs_copies(const zx_call *c)
{
    bool half = false, single = false;
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) {
        const zx_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        half = half || zx_is_16(v->type.dtype);
        single = single || v->type.dtype == ZX_F32;
    }
    if (!half || c->op == ZX_K_CAST || zx_library_takes_bf16(c)) return false;
    return single || !takes_16(zx_cpu_kernel(c->op));
}

// An operand, or result, of the call is copied.
static bool in_is_copied(const widened *w, uint32_t i, const zx_view *v)
{
    return zx_is_16(v->type.dtype) && (i >= 32 || (w->takes.in >> i & 1) == 0);
}
static bool out_is_copied(const widened *w, uint32_t i, const zx_view *v)
{
    return zx_is_16(v->type.dtype) && (i >= 32 || (w->takes.out >> i & 1) == 0);
}

// The call over float32: types, and where the copies are in the scratch, if there is one yet.
static uint64_t widen_views(const zx_call *c, widened *w, zx_view view[2 * MOST])
{
    uint64_t end = zx_align_up(w->work_bytes, ZX_ALIGN);
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) {
        const uint32_t k = i < c->n_in ? i : MOST + i - c->n_in;
        view[k] = i < c->n_in ? c->in[i] : c->out[i - c->n_in];
        if (i < c->n_in ? !in_is_copied(w, i, &view[k]) : !out_is_copied(w, i - c->n_in, &view[k]))
            continue;
        view[k].type.dtype = ZX_F32;
        w->at[k] = end;
        end = zx_align_up(end + zx_type_bytes(&view[k].type), ZX_ALIGN);
    }
    return end;
}

static void release(void *state)
{
    widened *w = state;
    if (w != NULL && w->state != NULL && w->kernel->release != NULL) w->kernel->release(w->state);
    free(w);
}

static zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    zx_view view[2 * MOST];
    zx_call inner = *c;
    widened *w = calloc(1, sizeof *w);
    if (w == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    *state = w;
    w->kernel = zx_cpu_kernel(c->op);
    w->wide = needs_copies(c);
    w->takes = mixer_of(w->kernel);
    if (w->wide && (c->n_in > MOST || c->n_out > MOST)) {
        release(w);
        *state = NULL;
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "more than %d operands in 16 bits", MOST);
    }
    if (w->wide) {
        widen_views(c, w, view);
        inner.in = view;
        inner.out = view + MOST;
    }
    zx_status st = ZX_OK;
    if (w->kernel->prepare != NULL) st = w->kernel->prepare(&inner, &w->work_bytes, &w->state, err);
    *work_bytes = w->wide ? widen_views(c, w, view) : w->work_bytes;
    if (st == ZX_OK) return ZX_OK;
    release(w);
    *state = NULL;
    return st;
}

static zx_status run_wide(const zx_call *c, const widened *w, zx_err *err)
{
    zx_view view[2 * MOST], *out = view + MOST;
    zx_call inner = *c;
    unsigned char *work = c->work;
    inner.state = w->state;
    inner.in = view;
    inner.out = out;
    for (uint32_t i = 0; i < c->n_in; i++) {
        const zx_dtype t = c->in[i].type.dtype;
        view[i] = c->in[i];
        if (!in_is_copied(w, i, &view[i]) || view[i].data == NULL) continue;
        view[i].type.dtype = ZX_F32;
        view[i].data = work + w->at[i];
        zx_widen_all(t, c->in[i].data, view[i].data, zx_count(&view[i]), c->threads);
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        out[i] = c->out[i];
        if (!out_is_copied(w, i, &out[i]) || out[i].data == NULL) continue;
        out[i].type.dtype = ZX_F32;
        out[i].data = work + w->at[MOST + i];
        for (uint32_t k = 0; k < c->n_in; k++) // over an operand: over its copy
            if (c->in[k].data == c->out[i].data && in_is_copied(w, k, &c->in[k]))
                out[i].data = view[k].data;
    }
    ZX_TRY(w->kernel->run(&inner, err));
    for (uint32_t i = 0; i < c->n_out; i++) {
        const zx_view *y = &c->out[i];
        if (out_is_copied(w, i, y) && y->data != NULL)
            zx_narrow_all(y->type.dtype, out[i].data, y->data, zx_count(y), c->threads);
    }
    return ZX_OK;
}

static zx_status run(const zx_call *c, zx_err *err)
{
    const widened *w = c->state;
    if (w->wide) return run_wide(c, w, err);
    zx_call inner = *c;
    inner.state = w->state;
    return w->kernel->run(&inner, err);
}

static const zx_kernel widening = {prepare, release, run};

const zx_kernel *zx_cpu_kernel_of_any(uint32_t op)
{
    ZX_ASSERT(op < ZX_K_COUNT);
    return &widening;
}

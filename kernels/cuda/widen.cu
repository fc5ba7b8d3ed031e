// widen.cu - every kernel on f16 and bf16: one that refuses them is given copies in float32, in
// scratch, and what it makes is rounded once. Slower than a kernel of its own by the copies; sums
// are float32 either way.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/common.cuh"

namespace
{

#define MOST 64 // operands, in and out

typedef struct widened { // of a node
    const zx_kernel *kernel;
    void *state;            // of its
    bool wide;              // operands are copied
    uint64_t work_bytes;    // of its
    uint64_t at[2 * MOST];  // by operand, from MOST on by result: where its copy is in the scratch
    zx_view view[2 * MOST]; // the copies' types, in prepare with the call's data
} widened;

bool is_half(const zx_view *v)
{
    return v->type.dtype == ZX_F16 || v->type.dtype == ZX_BF16;
}
// What operands and results are: of 16 bits, float32 (or omitted).
typedef struct kinds {
    bool half, single;
} kinds;
kinds kinds_of(const zx_call *c)
{
    kinds k = kinds();
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) {
        const zx_view *v = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
        k.half = k.half || is_half(v);
        k.single = k.single || v->type.dtype == ZX_F32;
    }
    return k;
}

// The call over float32, copies behind the kernel's scratch; bytes of all.
uint64_t widen_views(const zx_call *c, widened *w)
{
    uint64_t end = zx_align_up(w->work_bytes, ZX_ALIGN);
    for (uint32_t i = 0; i < c->n_in + c->n_out; i++) {
        const uint32_t k = i < c->n_in ? i : MOST + i - c->n_in;
        w->view[k] = i < c->n_in ? c->in[i] : c->out[i - c->n_in];
        if (!is_half(&w->view[k])) continue;
        w->view[k].type.dtype = ZX_F32;
        w->at[k] = end;
        end = zx_align_up(end + zx_type_bytes(&w->view[k].type), ZX_ALIGN);
    }
    return end;
}
zx_call inner_of(const zx_call *c, const widened *w)
{
    zx_call inner = *c;
    inner.state = w->state;
    if (!w->wide) return inner;
    inner.in = w->view;
    inner.out = w->view + MOST;
    return inner;
}

zx_status prepare_inner(const zx_call *c, widened *w, zx_err *err)
{
    const zx_call inner = inner_of(c, w);
    w->work_bytes = 0;
    w->state = NULL;
    return w->kernel->prepare == NULL ? ZX_OK
                                      : w->kernel->prepare(&inner, &w->work_bytes, &w->state, err);
}

// Those say themselves which types they take.
bool takes_both(uint32_t op)
{
    return op == ZX_K_CAST || op == ZX_K_LINEAR_CROSS_ENTROPY ||
           op == ZX_K_LINEAR_CROSS_ENTROPY_GRAD;
}

void release(void *state)
{
    widened *w = (widened *)state;
    if (w != NULL && w->kernel->release != NULL) w->kernel->release(w->state);
    free(w);
}

zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    widened *w = (widened *)calloc(1, sizeof *w);
    zx_err refused;
    memset(&refused, 0, sizeof refused);
    if (w == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    w->kernel = zx_cuda_kernel(c->op);
    // Forms for 16 bits are of one type throughout. Where float32 is among them, which losses and
    // what gradients are made with are, the form for float32 is the one, but of a few.
    const kinds k = kinds_of(c);
    const bool mixed = k.half && k.single && !takes_both(c->op);
    zx_status st =
        mixed ? ZX_FAIL(&refused, ZX_E_UNSUPPORTED, "more than %d operands in 16 bits", MOST)
              : prepare_inner(c, w, &refused);
    if (st == ZX_E_UNSUPPORTED && k.half && c->n_in <= MOST && c->n_out <= MOST) {
        w->wide = true;
        memset(&refused, 0, sizeof refused);
        widen_views(c, w);
        st = prepare_inner(c, w, &refused); // which says how much scratch it wants
    }
    *work_bytes = w->wide ? widen_views(c, w) : w->work_bytes;
    if (st == ZX_OK)
        *state = w;
    else
        free(w);
    return st == ZX_OK ? ZX_OK : zx_err_merge(err, &refused);
}

// ---- copies -------------------------------------------------------------------------------------
template <class A, class B>
__global__ void __launch_bounds__(ZX_BLOCK) convert(const A *x, B *y, int64_t n)
{
    ZX_FOR_EACH(i, n) y[i] = zx_from_float<B>(zx_to_float(x[i]));
}
cudaError_t to_wide(const zx_call *c, const zx_view *x, void *y)
{
    const int64_t n = zx_count(x);
    if (x->type.dtype == ZX_F16)
        return zx_launch_each(c, n, (convert<__half, float>), (const __half *)x->data, (float *)y,
                              n);
    return zx_launch_each(c, n, (convert<__nv_bfloat16, float>), (const __nv_bfloat16 *)x->data,
                          (float *)y, n);
}
cudaError_t from_wide(const zx_call *c, const void *x, const zx_view *y)
{
    const int64_t n = zx_count(y);
    if (y->type.dtype == ZX_F16)
        return zx_launch_each(c, n, (convert<float, __half>), (const float *)x, (__half *)y->data,
                              n);
    return zx_launch_each(c, n, (convert<float, __nv_bfloat16>), (const float *)x,
                          (__nv_bfloat16 *)y->data, n);
}

zx_status run_wide(const zx_call *c, const widened *w, zx_err *err)
{
    zx_view in[MOST], out[MOST];
    zx_call inner = inner_of(c, w);
    unsigned char *work = (unsigned char *)c->work;
    for (uint32_t i = 0; i < c->n_in; i++) {
        in[i] = w->view[i];
        in[i].data = c->in[i].data;
        if (!is_half(&c->in[i]) || in[i].data == NULL) continue;
        in[i].data = work + w->at[i];
        ZX_TRY(zx_cuda_check(to_wide(c, &c->in[i], in[i].data), "widen", err));
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        out[i] = w->view[MOST + i];
        out[i].data = c->out[i].data;
        if (!is_half(&c->out[i]) || out[i].data == NULL) continue;
        out[i].data = work + w->at[MOST + i];
        for (uint32_t k = 0; k < c->n_in; k++) // over an operand: over its copy
            if (c->in[k].data == c->out[i].data && is_half(&c->in[k])) out[i].data = in[k].data;
    }
    inner.in = in;
    inner.out = out;
    ZX_TRY(w->kernel->run(&inner, err));
    for (uint32_t i = 0; i < c->n_out; i++)
        if (is_half(&c->out[i]) && c->out[i].data != NULL)
            ZX_TRY(zx_cuda_check(from_wide(c, out[i].data, &c->out[i]), "widen", err));
    return ZX_OK;
}

zx_status run(const zx_call *c, zx_err *err)
{
    const widened *w = (const widened *)c->state;
    const zx_call inner = inner_of(c, w);
    return w->wide ? run_wide(c, w, err) : w->kernel->run(&inner, err);
}

const zx_kernel widening = {prepare, release, run};

} // namespace

const zx_kernel *zx_cuda_kernel_of_any(uint32_t op)
{
    return zx_cuda_kernel(op) != NULL ? &widening : NULL;
}

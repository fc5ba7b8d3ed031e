// conv.c - CONV and its two gradients: oneDNN for f32 and bf16, own loops for the rest.
//
// Every operand lets the library choose its layout and is reordered through the node's scratch
// where that differs from C order: the blocked kernels win that back many times (docs/PERF.md).
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/dnnl_util.h"
#include "kernels/cpu/naive.h"

#include <stdlib.h>

// The three products differ in which operand is made of which: x, w, y as indices into the call's
// views, in[0], in[1] and (2) out[0].
typedef struct role {
    const char *word;
    int x, w, y;
    void (*loops)(const zx_call *call, const zx_conv *g);
} role;
static const role roles[] = {
    {"Conv", 0, 1, 2, zx_naive_conv},
    {"ConvGradX", 2, 1, 0, zx_naive_conv_grad_x},
    {"ConvGradW", 0, 2, 1, zx_naive_conv_grad_w},
};
enum { FORWARD, GRAD_X, GRAD_W };

typedef struct conv_state {
    zx_conv g;
#ifndef ZX_NAIVE
    zx_dnnl *library; // NULL: own loops
#endif
} conv_state;

static const zx_view *view(const zx_call *call, int which)
{
    return which == 2 ? &call->out[0] : &call->in[which];
}

#ifndef ZX_NAIVE
enum { X, W, B, Y }; // outside operands of the program

// {first, second, the given spatial dims}, preceded by the groups unless 0.
static zx_dnnl_tensor tensor(const zx_conv *g, int64_t groups, int64_t first, int64_t second,
                             const int64_t spatial[3], uint32_t outside)
{
    int64_t dim[ZX_DNNL_RANK];
    int rank = 0;
    if (groups > 0) dim[rank++] = groups;
    dim[rank++] = first;
    dim[rank++] = second;
    for (int i = 3 - g->spatial; i < 3; i++) dim[rank++] = spatial[i];
    return zx_dnnl_plain(rank, dim, true, outside);
}

static bool is_empty(const zx_conv *g)
{
    bool empty = g->n == 0 || g->m == 0 || g->c == 0;
    for (int i = 0; i < 3; i++) empty = empty || g->x[i] == 0 || g->y[i] == 0 || g->k[i] == 0;
    return empty;
}

static zx_status library_conv(const zx_conv *g, bool bf16, zx_dnnl_conv_kind kind, int threads,
                              zx_dnnl **out, zx_err *err)
{
    zx_dnnl_tensor x = tensor(g, 0, g->n, g->groups * g->c, g->x, X);
    zx_dnnl_tensor w = tensor(g, g->groups > 1 ? g->groups : 0, g->m, g->c, g->k, W);
    zx_dnnl_tensor y = tensor(g, 0, g->n, g->groups * g->m, g->y, Y);
    const int64_t filters = g->groups * g->m;
    zx_dnnl_tensor b = {.outside = B};
    if (g->bias) b = zx_dnnl_plain(1, &filters, false, B);
    x.bf16 = w.bf16 = b.bf16 = y.bf16 = bf16;
    zx_dnnl_window window = {{0}, {0}, {0}, {0}};
    for (int i = 0, from = 3 - g->spatial; i < g->spatial; i++, from++) {
        window.stride[i] = g->stride[from];
        window.dilation[i] = g->dilation[from];
        window.before[i] = g->before[from];
        window.after[i] = g->after[from];
    }
    zx_err refused = {0};
    const zx_status st = zx_dnnl_conv(kind, &x, &w, &b, &y, &window, threads, out, &refused);
    return st == ZX_OK || st == ZX_E_UNSUPPORTED ? ZX_OK : zx_err_merge(err, &refused);
}
#endif

static zx_status prepare(const zx_call *call, int kind, uint64_t *work_bytes, void **state,
                         zx_err *err)
{
    const role *r = &roles[kind];
    ZX_TRY(zx_floats_check(call, r->word, err));
    conv_state made = {0};
    ZX_TRY(zx_conv_of(call->attrs, &view(call, r->x)->type.shape, &view(call, r->w)->type.shape,
                      &view(call, r->y)->type.shape, &made.g, err));
    made.g.bias = kind == FORWARD && call->n_in > 2 && call->in[2].type.shape.rank == 1;
    if (zx_is_half(call)) *work_bytes = zx_half_bytes(call);
#ifndef ZX_NAIVE
    const bool bf16 = zx_library_takes_bf16(call);
    if ((call->in[0].type.dtype == ZX_F32 || bf16) && !is_empty(&made.g)) {
        ZX_TRY(library_conv(&made.g, bf16, (zx_dnnl_conv_kind)kind, call->threads, &made.library,
                            err));
        if (made.library) *work_bytes = zx_dnnl_work_bytes(made.library);
    }
#endif
    conv_state *kept = malloc(sizeof *kept);
    if (!kept) {
#ifndef ZX_NAIVE
        zx_dnnl_free(made.library);
#endif
        return ZX_FAIL(err, ZX_E_DEVICE, "out of memory");
    }
    *kept = made;
    *state = kept;
    return ZX_OK;
}

static void release(void *state)
{
#ifndef ZX_NAIVE
    if (state) zx_dnnl_free(((conv_state *)state)->library);
#endif
    free(state);
}

static zx_status run(const zx_call *call, int kind, zx_status (*loops)(const zx_call *, zx_err *),
                     zx_err *err)
{
#ifndef ZX_NAIVE
    const role *r = &roles[kind];
    const conv_state *state = call->state;
    if (state->library) {
        void *const outside[] = {view(call, r->x)->data, view(call, r->w)->data,
                                 call->n_in > 2 ? call->in[2].data : NULL, view(call, r->y)->data};
        return zx_dnnl_run(state->library, outside, call, err);
    }
#else
    (void)kind;
#endif
    if (zx_is_half(call)) return zx_half_run(call, call->work, loops, err);
    return loops(call, err);
}

// The kernel of one role: its loops as zx_half_run wants them, prepare and run.
#define KERNEL(name, kind)                                                                         \
    static zx_status name##_loops(const zx_call *call, zx_err *err ZX_UNUSED)                      \
    {                                                                                              \
        roles[kind].loops(call, &((const conv_state *)call->state)->g);                            \
        return ZX_OK;                                                                              \
    }                                                                                              \
    static zx_status name##_prepare(const zx_call *call, uint64_t *work_bytes, void **state,       \
                                    zx_err *err)                                                   \
    {                                                                                              \
        return prepare(call, kind, work_bytes, state, err);                                        \
    }                                                                                              \
    static zx_status name##_run(const zx_call *call, zx_err *err)                                  \
    {                                                                                              \
        return run(call, kind, name##_loops, err);                                                 \
    }                                                                                              \
    const zx_kernel zx_cpu_##name = {                                                              \
        .prepare = name##_prepare, .release = release, .run = name##_run};
KERNEL(conv, FORWARD)
KERNEL(conv_grad_x, GRAD_X)
KERNEL(conv_grad_w, GRAD_W)

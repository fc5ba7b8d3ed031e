// naive_half.c - f16 and bf16 operands by way of f32 copies; only constant folding comes here.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/naive.h"

#define MOST_VIEWS 4 // operands of the ops that use this

static bool half_type(zx_dtype t)
{
    return t == ZX_F16 || t == ZX_BF16;
}

static uint64_t copy_bytes(const zx_view *v)
{
    return zx_align_up((uint64_t)zx_count(v) * sizeof(float), ZX_ALIGN);
}

static void widen(const zx_view *from, float *to)
{
    const uint16_t *h = from->data;
    const int64_t n = zx_count(from);
    const bool brain = from->type.dtype == ZX_BF16;
    for (int64_t i = 0; i < n; i++) to[i] = brain ? zx_bf16_to_f32(h[i]) : zx_f16_to_f32(h[i]);
}

static void narrow(const float *from, const zx_view *to)
{
    uint16_t *h = to->data;
    const int64_t n = zx_count(to);
    const bool brain = to->type.dtype == ZX_BF16;
    for (int64_t i = 0; i < n; i++)
        h[i] = brain ? zx_f64_to_bf16((double)from[i]) : zx_f64_to_f16((double)from[i]);
}

zx_status zx_floats_check(const zx_call *call, const char *word, zx_err *err)
{
    const zx_dtype t = call->in[0].type.dtype;
    if (t != ZX_F32 && t != ZX_F64 && !half_type(t))
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s of %s is not supported", word, zx_dtypes[t].word);
    return ZX_OK;
}

bool zx_is_half(const zx_call *call)
{
    return half_type(call->in[0].type.dtype);
}

uint64_t zx_half_bytes(const zx_call *call)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < call->n_in; i++) bytes += copy_bytes(&call->in[i]);
    for (uint32_t i = 0; i < call->n_out; i++) bytes += copy_bytes(&call->out[i]);
    return bytes;
}

zx_status zx_half_run(const zx_call *call, void *work,
                      zx_status (*run)(const zx_call *call, zx_err *err), zx_err *err)
{
    zx_view in[MOST_VIEWS], out[MOST_VIEWS];
    unsigned char *at = work;
    ZX_ASSERT(call->n_in <= MOST_VIEWS && call->n_out <= MOST_VIEWS);
    for (uint32_t i = 0; i < call->n_in; i++) {
        in[i] = call->in[i];
        if (!in[i].data || !half_type(in[i].type.dtype)) continue;
        widen(&call->in[i], (float *)(void *)at);
        in[i].data = at;
        in[i].type.dtype = ZX_F32;
        at += copy_bytes(&call->in[i]);
    }
    for (uint32_t i = 0; i < call->n_out; i++) {
        out[i] = call->out[i];
        if (!out[i].data || !half_type(out[i].type.dtype)) continue;
        out[i].data = at;
        out[i].type.dtype = ZX_F32;
        at += copy_bytes(&call->out[i]);
    }
    zx_call wide = *call;
    wide.in = in;
    wide.out = out;
    ZX_TRY(run(&wide, err));
    for (uint32_t i = 0; i < call->n_out; i++) {
        const zx_view *to = &call->out[i];
        if (!to->data || !half_type(to->type.dtype)) continue;
        narrow(out[i].data, to);
    }
    return ZX_OK;
}

// import_ops_ms.c - operators of runtimes (com.microsoft and ai.onnx.ml) that are plain
// combinations of standard ones.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <string.h>

static uint32_t biased(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), b = zx_in(c, 1);
    return b == ZX_NONE ? x : zx_e2(c, ZX_OP_ADD, ZX_NO_ATTRS, x, b);
}

void zx_lower_bias_gelu(zx_imp *c)
{
    const zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_MODE, 0);
    zx_out(c, 0, zx_e1(c, ZX_OP_GELU, a, biased(c)));
}

void zx_lower_fast_gelu(zx_imp *c)
{
    const zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_MODE, 1);
    zx_out(c, 0, zx_e1(c, ZX_OP_GELU, a, biased(c)));
}

void zx_lower_quick_gelu(zx_imp *c)
{
    const zx_attrs a = zx_with_float(c, ZX_NO_ATTRS, ZX_A_ALPHA, zx_float(c, "alpha", 1.702));
    zx_out(c, 0, zx_e1(c, ZX_OP_SILU, a, zx_in(c, 0)));
}

void zx_lower_fused_matmul(zx_imp *c)
{
    if (zx_int(c, "transBatchA", 0) || zx_int(c, "transBatchB", 0))
        zx_fail(c, ZX_E_UNSUPPORTED, "FusedMatMul with transposed batches isn't supported");
    const uint32_t a = zx_in(c, 0), b = zx_in(c, 1);
    if (zx_ok(c) && (zx_rank(c, a) < 2 || zx_rank(c, b) < 2))
        zx_fail(c, ZX_E_UNSUPPORTED, "FusedMatMul of vectors isn't supported");
    zx_out(c, 0,
           zx_matmul(c, a, b, zx_int(c, "transA", 0) != 0, zx_int(c, "transB", 0) != 0,
                     zx_float(c, "alpha", 1), ZX_NONE));
}

static uint32_t floats(zx_imp *c, const char *name, double absent)
{
    uint32_t n;
    const double *x = zx_floats(c, name, &n);
    if (x == NULL) return zx_k(c, ZX_F32, absent);
    const zx_type t = {.dtype = ZX_F32, .shape = {.rank = n == 1 ? 0 : 1, .dim = {n == 1 ? 0 : n}}};
    void *bytes;
    const uint32_t v = zx_k_new(c, &t, &bytes);
    for (uint32_t i = 0; i < n && zx_ok(c); i++) zx_put(bytes, ZX_F32, i, x[i]);
    return v;
}

void zx_lower_scaler(zx_imp *c) // (x - offset) * scale
{
    const uint32_t x = zx_cast(c, zx_in(c, 0), ZX_F32);
    const uint32_t y = zx_e2(c, ZX_OP_SUB, ZX_NO_ATTRS, x, floats(c, "offset", 0));
    zx_out(c, 0, zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, y, floats(c, "scale", 1)));
}

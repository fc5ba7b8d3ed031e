// rig_half.c - kernels on operands of 16 bits against themselves on float32.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "tests/ops/rig.h"
#include "tests/test.h"

// The library rounds sums of products in bf16 in its own order.
static bool is_product(uint32_t op)
{
    return op == ZX_OP_MATMUL || op == ZX_OP_CONV || op == ZX_OP_CONV_GRAD_X ||
           op == ZX_OP_CONV_GRAD_W || op == ZX_OP_LINEAR_CROSS_ENTROPY ||
           op == ZX_OP_LINEAR_CROSS_ENTROPY_GRAD;
}

static zx_view narrow(zx_arena *mem, zx_dtype t, const zx_view *x)
{
    const zx_type type = {t, x->type.shape};
    zx_view y = rig_view(mem, &type);
    zx_cpu_narrow(t, x->data, y.data, zx_shape_count(&type.shape));
    return y;
}

static zx_view widen(zx_arena *mem, const zx_view *x)
{
    const zx_type type = {ZX_F32, x->type.shape};
    zx_view y = rig_view(mem, &type);
    zx_cpu_widen(x->type.dtype, x->data, y.data, zx_shape_count(&type.shape));
    return y;
}

static void same_numbers(const zx_view *got, const zx_view *want, uint32_t o, uint32_t stays)
{
    for (int64_t i = 0; i < zx_shape_count(&got->type.shape); i++) {
        const double x = rig_get(got, i), y = rig_get(want, i);
        if (isnan(x) ? isnan(y) : x == y && signbit(x) == signbit(y)) continue;
        fail_msg("output %u, element %lld in %s (float32: %x): %.9g, by float32 %.9g", o,
                 (long long)i, zx_dtypes[got->type.dtype].word, stays, x, y);
    }
}

// The operands of `stays` are float32 in both; inputs from bit 0 on, outputs from bit 16 on.
static void run_both(uint32_t op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                     const zx_view *out, uint32_t n_out, zx_dtype t, uint32_t stays)
{
    zx_arena mem = {0};
    zx_view half[64], wide[64], made[8], want[8];
    for (uint32_t i = 0; i < n_in; i++) {
        half[i] = wide[i] = in[i];
        if (in[i].data == NULL || in[i].type.dtype != ZX_F32 || (stays >> i & 1) != 0) continue;
        half[i] = narrow(&mem, t, &in[i]);
        wide[i] = widen(&mem, &half[i]);
    }
    for (uint32_t o = 0; o < n_out; o++) {
        const bool low = out[o].type.dtype == ZX_F32 && (stays >> (16 + o) & 1) == 0;
        const zx_type type = {low ? t : out[o].type.dtype, out[o].type.shape};
        made[o] = rig_view(&mem, &type);
        want[o] = rig_view(&mem, &out[o].type);
        if (out[o].data == NULL) made[o].data = want[o].data = NULL;
    }
    rig_run((zx_op_id)op, attrs, half, n_in, made, n_out, 2);
    rig_run((zx_op_id)op, attrs, wide, n_in, want, n_out, 2);
    for (uint32_t o = 0; o < n_out; o++) {
        if (made[o].data == NULL) continue;
        const zx_view y =
            made[o].type.dtype == out[o].type.dtype ? want[o] : narrow(&mem, t, &want[o]);
        same_numbers(&made[o], &y, o, stays);
    }
    zx_arena_free(&mem);
}

void rig_run_halves(zx_op_id op, const zx_attrs *attrs, const zx_view *in, uint32_t n_in,
                    const zx_view *out, uint32_t n_out)
{
    if (is_product(op) || op == ZX_OP_CAST || n_in > 16) return;
    // All in 16 bits; statistics as precision.c has them; every second operand.
    static const uint32_t stays[] = {0, 0x6fffc, 0x5555, 0x1aaaa};
    for (uint32_t k = 0; k < ZX_COUNT(stays); k++) {
        run_both(op, attrs, in, n_in, out, n_out, ZX_BF16, stays[k]);
        run_both(op, attrs, in, n_in, out, n_out, ZX_F16, stays[k]);
    }
}

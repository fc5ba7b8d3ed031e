// glu.c - gated linear units: f(a) b, one operator so that f(a) isn't kept for the gradient.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

// GLU (a, b) and GLU_GRAD (dy, a, b): all alike, and so is what they make.
zx_status zx_infer_glu(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t mode;
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    for (uint32_t i = 1; i < a->n_in; i++) {
        ZX_TRY(zx_args_same_dtype(a, i, 0, err));
        ZX_TRY(zx_args_same_shape(a, i, 0, err));
    }
    ZX_TRY(zx_args_int(a, ZX_A_MODE, 0, 0, 2, &mode, err));
    for (uint32_t i = 0; i < a->n_out; i++) out[i] = *a->in[0];
    return ZX_OK;
}

zx_status zx_grad_glu(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err)
{
    uint32_t out[2];
    const uint32_t in[] = {dy[0], zx_grad_in(b, node, 0), zx_grad_in(b, node, 1)};
    ZX_TRY(zx_build_node(b, ZX_OP_GLU_GRAD, in, 3, zx_grad_attrs(b, node), NULL, out, err));
    for (uint32_t i = 0; i < 2; i++)
        if (need[i]) dx[i] = out[i];
    return ZX_OK;
}

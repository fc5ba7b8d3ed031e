// random.c - Dropout. Its bits depend on the seed, the step, the micro-batch and KEY alone, so the
// gradient draws the same mask again instead of keeping it.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

zx_status zx_infer_dropout(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    const double ratio = zx_attr_float(a->attrs, ZX_A_RATIO, 0.5);
    if (!(ratio >= 0 && ratio < 1))
        return ZX_FAIL(err, ZX_E_SHAPE, "Dropout: ratio %g is not in [0, 1)", ratio);
    *out = *a->in[0];
    return ZX_OK;
}

zx_status zx_grad_dropout(zx_builder *b, uint32_t node, const uint32_t *dy,
                          const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, ZX_OP_DROPOUT, zx_grad_attrs(b, node), 1, dy[0]);
    return ZX_OK;
}

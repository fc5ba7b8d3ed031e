// matmul.c - matrix products.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>

// One of the last two dims of x, 0 the rows and 1 the columns, as they are after a transposition.
static int64_t side(const zx_shape *x, bool transposed, uint32_t which)
{
    return x->dim[x->rank - 2 + (transposed ? 1 - which : which)];
}

static zx_shape leading(const zx_shape *x) // without the last two
{
    zx_shape s = {.rank = x->rank - 2};
    for (uint32_t d = 0; d < s.rank; d++) s.dim[d] = x->dim[d];
    return s;
}

// a [.., M, K] x b [.., K, N] + c [N] = [.., M, N]
zx_status zx_infer_matmul(const zx_op_args *args, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(args, err));
    ZX_TRY(zx_args_wants(args, 0, ZX_WANTS_NUMBER, err));
    ZX_TRY(zx_args_same_dtype(args, 1, 0, err));
    ZX_TRY(zx_args_same_dtype(args, 2, 0, err));
    const zx_shape *a = &args->in[0]->shape, *b = &args->in[1]->shape;
    if (a->rank < 2 || b->rank < 2)
        return ZX_FAIL(err, ZX_E_SHAPE, "MatMul of tensors with %u and %u dimensions", a->rank,
                       b->rank);
    const bool ta = zx_attr_int(args->attrs, ZX_A_TRANS_A, 0) != 0;
    const bool tb = zx_attr_int(args->attrs, ZX_A_TRANS_B, 0) != 0;
    if (side(a, ta, 1) != side(b, tb, 0)) {
        char sa[ZX_SHAPE_TEXT], sb[ZX_SHAPE_TEXT];
        return ZX_FAIL(err, ZX_E_SHAPE,
                       "MatMul of %s%s and %s%s: inner sizes %" PRId64 " and %" PRId64,
                       zx_shape_text(a, sa), ta ? " transposed" : "", zx_shape_text(b, sb),
                       tb ? " transposed" : "", side(a, ta, 1), side(b, tb, 0));
    }
    const zx_shape la = leading(a), lb = leading(b);
    zx_shape y;
    if (zx_shape_broadcast(&la, &lb, &y, NULL) != ZX_OK) {
        char sa[ZX_SHAPE_TEXT], sb[ZX_SHAPE_TEXT];
        return ZX_FAIL(err, ZX_E_SHAPE, "MatMul of %s and %s: leading dimensions do not fit",
                       zx_shape_text(a, sa), zx_shape_text(b, sb));
    }
    y.dim[y.rank++] = side(a, ta, 0);
    y.dim[y.rank++] = side(b, tb, 1);
    ZX_TRY(zx_args_shape_is(args, 2, &(zx_shape){1, {side(b, tb, 1)}}, err));
    return zx_args_out(args, args->in[0]->dtype, &y, out, err);
}

zx_cost zx_cost_matmul(const zx_op_args *args)
{
    const bool ta = zx_attr_int(args->attrs, ZX_A_TRANS_A, 0) != 0;
    const double inner = (double)side(&args->in[0]->shape, ta, 1);
    return (zx_cost){.flops = 2 * (double)zx_shape_count(&args->out->shape) * inner,
                     .bytes = zx_cost_bytes_in(args) + zx_cost_bytes_out(args)};
}

// alpha * op(x) op(y), with the forward's ALPHA.
static uint32_t product(zx_builder *b, zx_attrs forward, uint32_t x, bool tx, uint32_t y, bool ty)
{
    const double alpha = zx_attr_float(&forward, ZX_A_ALPHA, 1);
    zx_attrs attrs = {0};
    if (tx) attrs = zx_attrs_int(b->mem, attrs, ZX_A_TRANS_A, 1);
    if (ty) attrs = zx_attrs_int(b->mem, attrs, ZX_A_TRANS_B, 1);
    if (alpha != 1) attrs = zx_attrs_float(b->mem, attrs, ZX_A_ALPHA, alpha);
    return zx_build1(b, ZX_OP_MATMUL, attrs, 2, x, y);
}

// [.., R, C] as [rows, C], a view.
static uint32_t flat(zx_builder *b, uint32_t x)
{
    const zx_shape *s = zx_shape_of(b, x);
    const zx_shape two = {2, {zx_shape_span(s, 0, s->rank - 1), s->dim[s->rank - 1]}};
    return zx_build_reshape(b, x, &two);
}

// With A = op(a), B = op(b), y = alpha A B: dA = alpha dy B', dB = alpha A' dy. An operand that was
// transposed gets its gradient as the transposed product, so nothing is ever transposed afterwards.
zx_status zx_grad_matmul(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                         uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const zx_attrs attrs = zx_grad_attrs(b, node);
    const bool ta = zx_attr_int(&attrs, ZX_A_TRANS_A, 0) != 0;
    const bool tb = zx_attr_int(&attrs, ZX_A_TRANS_B, 0) != 0;
    const uint32_t va = zx_grad_in(b, node, 0), vb = zx_grad_in(b, node, 1);
    const zx_shape sa = *zx_shape_of(b, va), sb = *zx_shape_of(b, vb);
    if (need[0]) {
        const uint32_t d =
            ta ? product(b, attrs, vb, tb, dy[0], true) : product(b, attrs, dy[0], false, vb, !tb);
        dx[0] = zx_build_sum_to(b, d, &sa);
    }
    if (need[1]) {
        // One matrix for all rows of a (a weight): one product over all rows, not one a batch.
        const bool fold = !ta && zx_shape_span(&sb, 0, sb.rank - 2) == 1 && sa.rank >= sb.rank;
        const uint32_t x = fold ? flat(b, va) : va, g = fold ? flat(b, dy[0]) : dy[0];
        const uint32_t d =
            tb ? product(b, attrs, g, true, x, ta) : product(b, attrs, x, !ta, g, false);
        dx[1] = fold ? zx_build_reshape(b, d, &sb) : zx_build_sum_to(b, d, &sb);
    }
    if (b->nodes[node].n_in > 2 && need[2])
        dx[2] = zx_build_sum_to(b, dy[0], zx_grad_shape(b, node, 2));
    return ZX_OK;
}

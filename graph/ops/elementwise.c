// elementwise.c - operators that treat every element alike: one operand, two with broadcasting,
// comparisons, Where, Clip, Cast.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

// ---- shapes
// --------------------------------------------------------------------------------------

// Output 0 is like input 0, whose element type must be one of these.
static zx_status like_first(const zx_op_args *a, zx_wants wants, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, wants, err));
    *out = *a->in[0];
    return ZX_OK;
}

zx_status zx_infer_number(const zx_op_args *a, zx_type *out, zx_err *err)
{
    return like_first(a, ZX_WANTS_NUMBER, out, err);
}

zx_status zx_infer_float(const zx_op_args *a, zx_type *out, zx_err *err)
{
    return like_first(a, ZX_WANTS_FLOAT, out, err);
}

zx_status zx_infer_not(const zx_op_args *a, zx_type *out, zx_err *err)
{
    return like_first(a, ZX_WANTS_BOOL, out, err);
}

zx_status zx_infer_to_bool(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(like_first(a, ZX_WANTS_FLOAT, out, err));
    out->dtype = ZX_BOOL;
    return ZX_OK;
}

// dy and x (or y): the same type.
zx_status zx_infer_unary_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(like_first(a, ZX_WANTS_FLOAT, out, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    return zx_args_same_shape(a, 1, 0, err);
}

zx_status zx_infer_cast(const zx_op_args *a, zx_type *out, zx_err *err)
{
    int64_t to;
    ZX_TRY(like_first(a, ZX_WANTS_ANY, out, err));
    ZX_TRY(zx_args_int(a, ZX_A_TO, -1, 0, ZX_DTYPE_COUNT - 1, &to, err));
    out->dtype = (zx_dtype)to;
    return ZX_OK;
}

// The shape that the first n inputs broadcast to.
static zx_status broadcast(const zx_op_args *a, uint32_t from, uint32_t n, zx_dtype t, zx_type *out,
                           zx_err *err)
{
    zx_shape s = a->in[from]->shape;
    for (uint32_t i = from + 1; i < from + n; i++)
        if (zx_shape_broadcast(&s, &a->in[i]->shape, &s, NULL) != ZX_OK) {
            char ts[ZX_SHAPE_TEXT], ti[ZX_SHAPE_TEXT];
            return ZX_FAIL(err, ZX_E_SHAPE, "%s: cannot broadcast %s with %s", zx_arg_op(a),
                           zx_shape_text(&s, ts), zx_shape_text(&a->in[i]->shape, ti));
        }
    return zx_args_out(a, t, &s, out, err);
}

static zx_status two(const zx_op_args *a, zx_wants wants, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, wants, err));
    return zx_args_same_dtype(a, 1, 0, err);
}

zx_status zx_infer_broadcast(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(two(a, ZX_WANTS_NUMBER, err));
    return broadcast(a, 0, 2, a->in[0]->dtype, out, err);
}

zx_status zx_infer_logic(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(two(a, ZX_WANTS_LOGIC, err));
    return broadcast(a, 0, 2, a->in[0]->dtype, out, err);
}

zx_status zx_infer_equal(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(two(a, ZX_WANTS_ANY, err));
    return broadcast(a, 0, 2, ZX_BOOL, out, err);
}

zx_status zx_infer_compare(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(two(a, ZX_WANTS_NUMBER, err));
    return broadcast(a, 0, 2, ZX_BOOL, out, err);
}

zx_status zx_infer_pow(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_NUMBER, err));
    ZX_TRY(zx_args_wants(a, 1, ZX_WANTS_NUMBER, err));
    return broadcast(a, 0, 2, a->in[0]->dtype, out, err);
}

// dy, x, p: of dy's shape, to which x and p broadcast.
zx_status zx_infer_pow_grad_x(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_FLOAT, err));
    ZX_TRY(zx_args_wants(a, 2, ZX_WANTS_NUMBER, err));
    ZX_TRY(zx_args_same_dtype(a, 1, 0, err));
    ZX_TRY(broadcast(a, 0, 3, a->in[0]->dtype, out, err));
    return zx_args_shape_is(a, 0, &out->shape, err);
}

zx_status zx_infer_where(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(zx_args_check(a, err));
    ZX_TRY(zx_args_wants(a, 0, ZX_WANTS_BOOL, err));
    ZX_TRY(zx_args_same_dtype(a, 2, 1, err));
    return broadcast(a, 0, 3, a->in[1]->dtype, out, err);
}

zx_status zx_infer_clip(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(like_first(a, ZX_WANTS_NUMBER, out, err));
    for (uint32_t i = 1; i < a->n_in; i++) {
        ZX_TRY(zx_args_same_dtype(a, i, 0, err));
        ZX_TRY(zx_args_one(a, i, err));
    }
    return ZX_OK;
}

zx_status zx_infer_clip_grad(const zx_op_args *a, zx_type *out, zx_err *err)
{
    ZX_TRY(like_first(a, ZX_WANTS_FLOAT, out, err));
    ZX_TRY(zx_args_same_shape(a, 1, 0, err));
    for (uint32_t i = 1; i < a->n_in; i++) ZX_TRY(zx_args_same_dtype(a, i, 0, err));
    for (uint32_t i = 2; i < a->n_in; i++) ZX_TRY(zx_args_one(a, i, err));
    return ZX_OK;
}

zx_cost zx_cost_elwise(const zx_op_args *a)
{
    return (zx_cost){.flops = (double)zx_shape_count(&a->out->shape),
                     .bytes = zx_cost_bytes_in(a) + zx_cost_bytes_out(a)};
}

// ---- gradients
// -----------------------------------------------------------------------------------

#define NO_ATTRS ((zx_attrs){0})

static uint32_t op1(zx_builder *b, zx_op_id op, uint32_t x)
{
    return zx_build1(b, op, NO_ATTRS, 1, x);
}
static uint32_t op2(zx_builder *b, zx_op_id op, uint32_t x, uint32_t y)
{
    return zx_build1(b, op, NO_ATTRS, 2, x, y);
}
static uint32_t op3(zx_builder *b, zx_op_id op, uint32_t x, uint32_t y, uint32_t z)
{
    return zx_build1(b, op, NO_ATTRS, 3, x, y, z);
}
// The gradient of a broadcast input: summed over what was repeated.
static uint32_t to_input(zx_builder *b, uint32_t node, uint32_t i, uint32_t dx)
{
    return zx_build_sum_to(b, dx, zx_grad_shape(b, node, i));
}

// Sign, Floor, Round …: the gradient is zero everywhere, so none is passed on.
zx_status zx_grad_zero(zx_builder *b ZX_UNUSED, uint32_t node ZX_UNUSED,
                       const uint32_t *dy ZX_UNUSED, const bool *need ZX_UNUSED,
                       uint32_t *dx ZX_UNUSED, zx_err *err ZX_UNUSED)
{
    return ZX_OK;
}

zx_status zx_grad_unary_x(zx_builder *b, uint32_t node, const uint32_t *dy,
                          const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, zx_grad_row(zx_grad_op(b, node)), zx_grad_attrs(b, node), 2, dy[0],
                      zx_grad_in(b, node, 0));
    return ZX_OK;
}

zx_status zx_grad_unary_y(zx_builder *b, uint32_t node, const uint32_t *dy,
                          const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = zx_build1(b, zx_grad_row(zx_grad_op(b, node)), zx_grad_attrs(b, node), 2, dy[0],
                      zx_grad_out(b, node, 0));
    return ZX_OK;
}

zx_status zx_grad_neg(zx_builder *b, uint32_t node ZX_UNUSED, const uint32_t *dy,
                      const bool *need ZX_UNUSED, uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = op1(b, ZX_OP_NEG, dy[0]);
    return ZX_OK;
}

zx_status zx_grad_abs(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need ZX_UNUSED,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    dx[0] = op2(b, ZX_OP_MUL, dy[0], op1(b, ZX_OP_SIGN, zx_grad_in(b, node, 0)));
    return ZX_OK;
}

zx_status zx_grad_cast(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need ZX_UNUSED,
                       uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const zx_dtype from = b->values[zx_grad_in(b, node, 0)].type.dtype;
    const zx_dtype to = b->values[dy[0]].type.dtype;
    dx[0] = dy[0];
    if (from != to)
        dx[0] = zx_build1(b, ZX_OP_CAST, zx_attrs_int(b->mem, NO_ATTRS, ZX_A_TO, from), 1, dy[0]);
    return ZX_OK;
}

zx_status zx_grad_add(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    for (uint32_t i = 0; i < 2; i++)
        if (need[i]) dx[i] = to_input(b, node, i, dy[0]);
    return ZX_OK;
}

zx_status zx_grad_sub(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    if (need[0]) dx[0] = to_input(b, node, 0, dy[0]);
    if (need[1]) dx[1] = op1(b, ZX_OP_NEG, to_input(b, node, 1, dy[0]));
    return ZX_OK;
}

zx_status zx_grad_mul(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    for (uint32_t i = 0; i < 2; i++)
        if (need[i])
            dx[i] = to_input(b, node, i, op2(b, ZX_OP_MUL, dy[0], zx_grad_in(b, node, 1 - i)));
    return ZX_OK;
}

// y = a/b: dy/b and -dy*y/b.
zx_status zx_grad_div(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const uint32_t divisor = zx_grad_in(b, node, 1);
    if (need[0]) dx[0] = to_input(b, node, 0, op2(b, ZX_OP_DIV, dy[0], divisor));
    if (need[1]) {
        const uint32_t ratio = op2(b, ZX_OP_DIV, zx_grad_out(b, node, 0), divisor);
        dx[1] = op1(b, ZX_OP_NEG, to_input(b, node, 1, op2(b, ZX_OP_MUL, dy[0], ratio)));
    }
    return ZX_OK;
}

// y = x^p: dy*p*x^(p-1), and dy*y*log(x), which is 0 (not 0*inf) where x is 0 and p >= 0.
zx_status zx_grad_pow(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const uint32_t x = zx_grad_in(b, node, 0), p = zx_grad_in(b, node, 1);
    if (need[0]) dx[0] = to_input(b, node, 0, op3(b, ZX_OP_POW_GRAD_X, dy[0], x, p));
    if (need[1]) {
        const uint32_t zero = zx_grad_zero_f32(b);
        const uint32_t at_zero =
            op2(b, ZX_OP_AND, op2(b, ZX_OP_EQUAL, x, zero), op2(b, ZX_OP_GREATER_EQUAL, p, zero));
        const uint32_t y_log = op2(b, ZX_OP_MUL, zx_grad_out(b, node, 0), op1(b, ZX_OP_LOG, x));
        const uint32_t d = op3(b, ZX_OP_WHERE, at_zero, zero, op2(b, ZX_OP_MUL, dy[0], y_log));
        dx[1] = to_input(b, node, 1, d);
    }
    return ZX_OK;
}

// dy where the mask holds to one input, dy where it doesn't to the other. What isn't chosen is an
// exact 0 here; an operator before it may still make NaN of that (0 * inf), as in PyTorch.
static void choose(zx_builder *b, uint32_t node, uint32_t mask, uint32_t dy, uint32_t first,
                   const bool *need, uint32_t *dx)
{
    const uint32_t zero = zx_grad_zero_f32(b);
    if (need[first]) dx[first] = to_input(b, node, first, op3(b, ZX_OP_WHERE, mask, dy, zero));
    if (need[first + 1])
        dx[first + 1] = to_input(b, node, first + 1, op3(b, ZX_OP_WHERE, mask, zero, dy));
}

zx_status zx_grad_max(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const uint32_t mask =
        op2(b, ZX_OP_GREATER_EQUAL, zx_grad_in(b, node, 0), zx_grad_in(b, node, 1));
    choose(b, node, mask, dy[0], 0, need, dx);
    return ZX_OK;
}

zx_status zx_grad_min(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                      uint32_t *dx, zx_err *err ZX_UNUSED)
{
    const uint32_t mask = op2(b, ZX_OP_LESS_EQUAL, zx_grad_in(b, node, 0), zx_grad_in(b, node, 1));
    choose(b, node, mask, dy[0], 0, need, dx);
    return ZX_OK;
}

zx_status zx_grad_where(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                        uint32_t *dx, zx_err *err ZX_UNUSED)
{
    choose(b, node, zx_grad_in(b, node, 0), dy[0], 1, need, dx);
    return ZX_OK;
}

zx_status zx_grad_clip(zx_builder *b, uint32_t node, const uint32_t *dy, const bool *need,
                       uint32_t *dx, zx_err *err)
{
    const uint32_t n_in = b->nodes[node].n_in;
    const uint32_t in[4] = {dy[0], zx_grad_in(b, node, 0), zx_grad_in(b, node, 1),
                            zx_grad_in(b, node, 2)};
    const uint32_t zero = zx_grad_zero_f32(b);
    if (need[0])
        ZX_TRY(zx_build_node(b, ZX_OP_CLIP_GRAD, in, n_in + 1, NO_ATTRS, NULL, &dx[0], err));
    if (n_in > 1 && need[1])
        dx[1] =
            zx_build_sum_to(b, op3(b, ZX_OP_WHERE, op2(b, ZX_OP_LESS, in[1], in[2]), dy[0], zero),
                            zx_grad_shape(b, node, 1));
    if (n_in > 2 && need[2])
        dx[2] = zx_build_sum_to(
            b, op3(b, ZX_OP_WHERE, op2(b, ZX_OP_GREATER, in[1], in[3]), dy[0], zero),
            zx_grad_shape(b, node, 2));
    return ZX_OK;
}

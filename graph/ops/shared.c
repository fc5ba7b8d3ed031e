// shared.c - see ops.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

zx_status zx_args_check(const zx_op_args *a, zx_err *err)
{
    const zx_op *op = &zx_ops[a->op];
    if (a->n_in < (uint32_t)op->min_in || (op->max_in >= 0 && a->n_in > (uint32_t)op->max_in))
        return ZX_FAIL(err, ZX_E_SHAPE, "%s has %u inputs", op->word, a->n_in);
    // Where any number is taken, none may be left out.
    const uint32_t needed = op->max_in < 0 ? a->n_in : (uint32_t)op->min_in;
    for (uint32_t i = 0; i < needed; i++)
        if (a->in[i] == NULL)
            return ZX_FAIL(err, ZX_E_SHAPE, "%s needs its input %u, which is left out", op->word,
                           i);
    return ZX_OK;
}

zx_status zx_args_wants(const zx_op_args *a, uint32_t i, zx_wants wants, zx_err *err)
{
    static const char *const words[] = {
        [ZX_WANTS_ANY] = "anything",
        [ZX_WANTS_NUMBER] = "numbers",
        [ZX_WANTS_FLOAT] = "floats",
        [ZX_WANTS_BOOL] = "bools",
        [ZX_WANTS_LOGIC] = "bools or integers",
        [ZX_WANTS_INDEX] = "int32 or int64",
    };
    const zx_type *x = zx_arg(a, i);
    if (x == NULL) return ZX_OK;
    const zx_dtype_kind kind = zx_dtypes[x->dtype].kind;
    const bool ok = wants == ZX_WANTS_ANY || (wants == ZX_WANTS_NUMBER && kind != ZX_KIND_BOOL) ||
                    (wants == ZX_WANTS_FLOAT && kind == ZX_KIND_FLOAT) ||
                    (wants == ZX_WANTS_BOOL && kind == ZX_KIND_BOOL) ||
                    (wants == ZX_WANTS_LOGIC && kind != ZX_KIND_FLOAT) ||
                    (wants == ZX_WANTS_INDEX && (x->dtype == ZX_I32 || x->dtype == ZX_I64));
    if (ok) return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE, "%s wants %s as input %u, not %s", zx_arg_op(a), words[wants],
                   i, zx_dtypes[x->dtype].word);
}

zx_status zx_args_same_dtype(const zx_op_args *a, uint32_t i, uint32_t j, zx_err *err)
{
    const zx_type *x = zx_arg(a, i), *y = zx_arg(a, j);
    if (x == NULL || y == NULL || x->dtype == y->dtype) return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE,
                   "%s has inputs of different types: %s (input %u) and %s (input %u)",
                   zx_arg_op(a), zx_dtypes[y->dtype].word, j, zx_dtypes[x->dtype].word, i);
}

zx_status zx_args_shape_is(const zx_op_args *a, uint32_t i, const zx_shape *s, zx_err *err)
{
    const zx_type *x = zx_arg(a, i);
    if (x == NULL || zx_shape_equal(&x->shape, s)) return ZX_OK;
    char tx[ZX_SHAPE_TEXT], ts[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "%s wants %s as input %u, not %s", zx_arg_op(a),
                   zx_shape_text(s, ts), i, zx_shape_text(&x->shape, tx));
}

zx_status zx_args_same_shape(const zx_op_args *a, uint32_t i, uint32_t j, zx_err *err)
{
    const zx_type *y = zx_arg(a, j);
    return y == NULL ? ZX_OK : zx_args_shape_is(a, i, &y->shape, err);
}

zx_status zx_args_one(const zx_op_args *a, uint32_t i, zx_err *err)
{
    const zx_type *x = zx_arg(a, i);
    if (x == NULL || zx_shape_count(&x->shape) == 1) return ZX_OK;
    char text[ZX_SHAPE_TEXT];
    return ZX_FAIL(err, ZX_E_SHAPE, "%s wants one number as input %u, not %s", zx_arg_op(a), i,
                   zx_shape_text(&x->shape, text));
}

zx_status zx_args_ints(const zx_op_args *a, zx_attr_id id, uint32_t n, int64_t least, int64_t most,
                       const int64_t **v, zx_err *err)
{
    const zx_attr *x = zx_attr_find(a->attrs, id);
    if (x == NULL)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s has no attribute %s", zx_arg_op(a), zx_attr_word(id));
    if (x->n != n)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s: attribute %s has %u numbers where %u are wanted",
                       zx_arg_op(a), zx_attr_word(id), x->n, n);
    for (uint32_t i = 0; i < n; i++)
        if (x->i[i] < least || x->i[i] > most)
            return ZX_FAIL(err, ZX_E_SHAPE,
                           "%s: attribute %s is %" PRId64 ", which is out of range", zx_arg_op(a),
                           zx_attr_word(id), x->i[i]);
    *v = x->i;
    return ZX_OK;
}

zx_status zx_args_shape(const zx_op_args *a, zx_shape *out, zx_err *err)
{
    const zx_attr *x = zx_attr_find(a->attrs, ZX_A_SHAPE);
    if (x == NULL) return ZX_FAIL(err, ZX_E_SHAPE, "%s has no shape", zx_arg_op(a));
    if (x->n > ZX_MAX_RANK)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s to %u dimensions: at most %d are supported",
                       zx_arg_op(a), x->n, ZX_MAX_RANK);
    *out = (zx_shape){.rank = x->n};
    for (uint32_t i = 0; i < x->n; i++) out->dim[i] = x->i[i];
    return zx_shape_check(out, err);
}

zx_status zx_args_axis(const zx_op_args *a, uint32_t rank, uint32_t *axis, zx_err *err)
{
    const zx_attr *x = zx_attr_find(a->attrs, ZX_A_AXIS);
    if (x == NULL || x->n != 1) return ZX_FAIL(err, ZX_E_SHAPE, "%s has no axis", zx_arg_op(a));
    if (x->i[0] < 0 || x->i[0] >= (int64_t)rank)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s: axis %" PRId64 " of a tensor with %u dimensions",
                       zx_arg_op(a), x->i[0], rank);
    *axis = (uint32_t)x->i[0];
    return ZX_OK;
}

zx_status zx_args_int(const zx_op_args *a, zx_attr_id id, int64_t absent, int64_t least,
                      int64_t most, int64_t *v, zx_err *err)
{
    *v = zx_attr_int(a->attrs, id, absent);
    if (*v >= least && *v <= most) return ZX_OK;
    return ZX_FAIL(err, ZX_E_SHAPE,
                   "%s: attribute %s is %" PRId64 ", not in [%" PRId64 ", %" PRId64 "]",
                   zx_arg_op(a), zx_attr_word(id), *v, least, most);
}

zx_status zx_args_out(const zx_op_args *a, zx_dtype t, const zx_shape *s, zx_type *out, zx_err *err)
{
    char text[ZX_SHAPE_TEXT];
    if (zx_shape_check(s, NULL) != ZX_OK)
        return ZX_FAIL(err, ZX_E_SHAPE, "%s would make %s, more than any machine holds",
                       zx_arg_op(a), zx_shape_text(s, text));
    *out = (zx_type){.dtype = t, .shape = *s};
    return ZX_OK;
}

uint32_t zx_grad_scale(zx_builder *b, uint32_t x, double s)
{
    if (s == 1) return x;
    return zx_build1(b, ZX_OP_MUL, (zx_attrs){0}, 2, x, zx_build_scalar(b, ZX_F32, s));
}

zx_op_id zx_grad_row(zx_op_id op)
{
    const char *word = zx_ops[op].word;
    const size_t n = strlen(word);
    for (uint32_t i = 0; i < ZX_OP_COUNT; i++)
        if (strncmp(zx_ops[i].word, word, n) == 0 && strcmp(zx_ops[i].word + n, "Grad") == 0)
            return (zx_op_id)i;
    zx_bug(__FILE__, __LINE__, "an operator has no row for its gradient");
}

zx_status zx_grad_only_first(const zx_builder *b, uint32_t node, const uint32_t *dy, zx_err *err)
{
    const zx_node *n = &b->nodes[node];
    for (uint32_t i = 1; i < n->n_out; i++)
        if (dy[i] != ZX_NONE)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "%s has no gradient for its output %u, which the loss depends on",
                           zx_ops[n->op].word, i);
    return ZX_OK;
}

double zx_cost_bytes_in(const zx_op_args *a)
{
    double bytes = 0;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (a->in[i] != NULL) bytes += (double)zx_type_bytes(a->in[i]);
    return bytes;
}

double zx_cost_bytes_out(const zx_op_args *a)
{
    double bytes = 0;
    for (uint32_t i = 0; i < a->n_out; i++) bytes += (double)zx_type_bytes(&a->out[i]);
    return bytes;
}

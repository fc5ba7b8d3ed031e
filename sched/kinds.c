// kinds.c - see kinds.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/kinds.h"

// ---- amounts ------------------------------------------------------------------------------------

static double bytes(const zx_op_args *a ZX_UNUSED, const zx_cost *cost)
{
    return cost->bytes;
}

// Elements that windows look at.
static double looks(const zx_op_args *a ZX_UNUSED, const zx_cost *cost)
{
    return cost->flops;
}

static double elements(const zx_op_args *a, const zx_cost *cost ZX_UNUSED)
{
    double most = (double)zx_shape_count(&a->out[0].shape);
    for (uint32_t i = 0; i < a->n_in; i++) {
        const double in = a->in[i] == NULL ? 0 : (double)zx_shape_count(&a->in[i]->shape);
        if (in > most) most = in;
    }
    return most;
}

// A row of scores takes as long as this many more do: there is a logarithm, and operands of some
// numbers are copied in and out. Fitted: heads of 16 to 64 numbers over 16 to 1024 keys.
static double row(double numbers)
{
    return 40 + 2.5 * numbers;
}
// Where queries see half of the keys, whole tiles of scores are made along the diagonal.
#define TILE 64

// [batch, heads, rows, size], or [batch, rows, heads * size].
static double rows_of(const zx_type *t)
{
    return (double)t->shape.dim[t->shape.rank == 4 ? 2 : 1];
}

static double scores(const zx_op_args *a, const zx_cost *cost ZX_UNUSED)
{
    const bool packed = a->op == ZX_OP_PACKED_ATTENTION || a->op == ZX_OP_PACKED_ATTENTION_GRAD;
    const bool grad = a->op == ZX_OP_ATTENTION_GRAD || a->op == ZX_OP_PACKED_ATTENTION_GRAD;
    const zx_type *q = a->in[grad ? 1 : 0], *k = packed ? q : a->in[grad ? 2 : 1];
    const double heads =
        q->shape.rank == 4 ? (double)q->shape.dim[1] : (double)zx_attr_int(a->attrs, ZX_A_HEADS, 1);
    const double blocks = packed ? heads + 2 * (double)zx_attr_int(a->attrs, ZX_A_KV_HEADS, 1)
                                 : heads; // of one head's numbers in a row of q
    const double size = (double)q->shape.dim[q->shape.rank - 1] / (q->shape.rank == 4 ? 1 : blocks);
    double keys = rows_of(k);
    if (zx_attr_int(a->attrs, ZX_A_CAUSAL, 0) != 0 && keys > TILE) keys = (keys + TILE) / 2;
    return (double)q->shape.dim[0] * heads * rows_of(q) * (keys + row(size));
}

// The same of a linear layer's, whose operands stay where they are.
#define ROW 256

static double classes(const zx_op_args *a, const zx_cost *cost ZX_UNUSED)
{
    const uint32_t x = a->op == ZX_OP_LINEAR_CROSS_ENTROPY_GRAD ? 1 : 0;
    const int64_t *w = a->in[x + 1]->shape.dim;
    const double n = (double)w[zx_attr_int(a->attrs, ZX_A_TRANS_B, 1) != 0 ? 0 : 1];
    return (double)zx_shape_count(&a->in[x + 2]->shape) * (n + ROW);
}

// ---- the table ----------------------------------------------------------------------------------

const zx_kind zx_kinds[ZX_KIND_COUNT] = {
#define ZX_KIND(id, word, op, amount, attrs, operands)                                             \
    [ZX_KIND_##id] = {word, ZX_OP_##op, amount, attrs, operands},
#define ZX_KIND_OF(...)
#include "sched/kinds.def"
};

static const struct priced {
    uint32_t op;
    int64_t mode; // -1: any
    uint32_t kind;
} priced[] = {
#define ZX_KIND(...)
#define ZX_KIND_OF(op, mode, kind) {ZX_OP_##op, mode, ZX_KIND_##kind},
#include "sched/kinds.def"
};

uint32_t zx_kind_of(const zx_op_args *args)
{
    const int64_t mode = zx_attr_int(args->attrs, ZX_A_MODE, 0);
    for (uint32_t i = 0; i < ZX_COUNT(priced); i++)
        if (priced[i].op == args->op && (priced[i].mode < 0 || priced[i].mode == mode))
            return priced[i].kind;
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++)
        if (zx_kinds[k].op == args->op) return k;
    return ZX_NONE;
}

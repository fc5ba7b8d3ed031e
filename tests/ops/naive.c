// naive.c - which naive function stands for which row of ops.def.
// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/naive.h"

#include <string.h>

// By the row's kernel, which says what rows are alike; those that aren't listed have none.
naive_fn *naive_of(zx_op_id op)
{
    static const char *const kernels[ZX_OP_COUNT] = {
#define ZX_OP(id, word, lo, hi, outs, flags, infer, grad, cost, kern) [ZX_OP_##id] = #kern,
#include "graph/ops.def"
#undef ZX_OP
    };
    static const struct {
        const char *kernel;
        naive_fn *run;
    } rows[] = {
#define X(name) {#name, naive_##name},
        NAIVE_MAP(X)
#undef X
            {"copy", naive_reshape},
        {"is_nan", naive_unary},
        {"is_inf", naive_unary},
        {"compare", naive_binary},
        {"rms_norm", naive_layer_norm},
    };
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        if (strcmp(rows[i].kernel, kernels[op]) == 0) return rows[i].run;
    return NULL;
}

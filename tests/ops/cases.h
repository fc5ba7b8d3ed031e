// cases.h - the rows of cases.def as a table.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_OPS_CASES_H
#define ZX_TESTS_OPS_CASES_H

#include "graph/op.h"

typedef struct op_case {
    const char *name;
    zx_op_id op;
    const char *in, *attrs, *out, *differentiated;
} op_case;

static const op_case cases[] = {
#define ZX_CASE(op, in, attrs, out, grads)                                                         \
    {#op "(" in ") " attrs, ZX_OP_##op, in, attrs, out, grads},
#define ZX_EXCUSED(op, why)
#include "tests/ops/cases.def"
#undef ZX_CASE
#undef ZX_EXCUSED
};

#endif

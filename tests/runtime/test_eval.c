// test_eval.c - the evaluator that folding uses: kernels on constants, at any alignment, and what
// they find wrong.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "graph/op.h"
#include "runtime/eval.h"
#include "tests/test.h"

static zx_type vector(zx_dtype t, int64_t n)
{
    return (zx_type){.dtype = t, .shape = {.rank = 1, .dim = {n}}};
}

static _Alignas(64) unsigned char bytes[3][256];

static zx_status evaluate(zx_op_id op, const zx_attrs *a, const zx_tensor *in, uint32_t n_in,
                          const zx_tensor *out, zx_err *err)
{
    return zx_cpu_eval.run(&zx_cpu_eval, op, a, in, n_in, out, 1, err);
}

// Operands 4 bytes past an alignment, as external data may lie.
static void unaligned_inputs(void **state)
{
    (void)state;
    const float a[] = {1, 2, 3}, b[] = {10, 20, 30};
    memcpy(bytes[0] + 4, a, sizeof a);
    memcpy(bytes[1] + 1, b, sizeof b);
    const zx_type t = vector(ZX_F32, 3);
    const zx_tensor in[] = {{t, bytes[0] + 4}, {t, bytes[1] + 1}}, out = {t, bytes[2]};
    zx_err err = {0};
    assert_zx_ok(evaluate(ZX_OP_ADD, NULL, in, 2, &out, &err), &err);
    float y[3];
    memcpy(y, bytes[2], sizeof y);
    assert_true(y[0] == 11 && y[1] == 22 && y[2] == 33);
}

static void an_omitted_input(void **state)
{
    (void)state;
    const float x[] = {-5, 0, 5}, most = 1;
    memcpy(bytes[0], x, sizeof x);
    memcpy(bytes[1], &most, sizeof most);
    const zx_type t = vector(ZX_F32, 3), scalar = {.dtype = ZX_F32};
    const zx_tensor in[] = {{t, bytes[0]}, {scalar, NULL}, {scalar, bytes[1]}}, out = {t, bytes[2]};
    zx_err err = {0};
    assert_zx_ok(evaluate(ZX_OP_CLIP, NULL, in, 3, &out, &err), &err);
    float y[3];
    memcpy(y, bytes[2], sizeof y);
    assert_true(y[0] == -5 && y[1] == 0 && y[2] == 1);
}

static void an_index_out_of_range(void **state)
{
    (void)state;
    const int64_t index = 7;
    memcpy(bytes[1], &index, sizeof index);
    const zx_attr axis = {.id = ZX_A_AXIS, .n = 1, .i = (const int64_t[]){0}};
    const zx_attrs a = {1, &axis};
    const zx_tensor in[] = {{vector(ZX_F32, 3), bytes[0]}, {vector(ZX_I64, 1), bytes[1]}};
    const zx_tensor out = {vector(ZX_F32, 1), bytes[2]};
    zx_err err = {0};
    assert_int_equal(evaluate(ZX_OP_GATHER, &a, in, 2, &out, &err), ZX_E_DATA);
    assert_string_equal(err.cause[0], "Gather: index 7 is outside a dimension of 3");
}

static void a_division_by_zero(void **state)
{
    (void)state;
    memset(bytes, 0, sizeof bytes);
    const zx_type t = vector(ZX_I64, 2);
    const zx_tensor in[] = {{t, bytes[0]}, {t, bytes[1]}}, out = {t, bytes[2]};
    zx_err err = {0};
    assert_int_equal(evaluate(ZX_OP_DIV, NULL, in, 2, &out, &err), ZX_E_DATA);
    assert_string_equal(err.cause[0], "Div: integer division of 0 by 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unaligned_inputs),
        cmocka_unit_test(an_omitted_input),
        cmocka_unit_test(an_index_out_of_range),
        cmocka_unit_test(a_division_by_zero),
    };
    return cmocka_run_group_tests_name("eval", tests, NULL, NULL);
}

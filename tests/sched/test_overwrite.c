// test_overwrite.c - which inputs an output may be written over.
// SPDX-License-Identifier: Apache-2.0
#include "tests/op_text.h"
#include "tests/test.h"

#include "sched/trace.h"

static const struct over_case {
    const char *name;
    zx_op_id op;
    const char *in, *attrs;
    bool may[5]; // by input, for output 0
} over_cases[] = {
    {"elementwise", ZX_OP_ADD, "f32[2,3] f32[2,3]", "", {true, true}},
    {"broadcast", ZX_OP_ADD, "f32[2,3] f32[3]", "", {true, false}},
    {"product", ZX_OP_MATMUL, "f32[3,3] f32[3,3]", "", {false, false}},
    // As many lookups as the table has rows: their gradients are as large as the table's.
    {"lookups alone", ZX_OP_GATHER_GRAD, "f32[3,2] i64[3]", "AXIS=0 SHAPE=3,2", {false, false}},
    {"lookups into a sum",
     ZX_OP_GATHER_GRAD,
     "f32[3,2] i64[3] f32[3,2]",
     "AXIS=0 SHAPE=3,2",
     {false, false, true}},
};

static void written_over(void **state)
{
    const struct over_case *row = *state;
    zx_arena mem = {0};
    zx_builder b;
    zx_err err = {0};
    op_arg args[4];
    uint32_t in[4], out[4];
    const uint32_t n = op_text_args(row->in, args, 4);
    zx_builder_start(&b, &mem, "test");
    for (uint32_t i = 0; i < n; i++) in[i] = zx_build_input(&b, "x", &args[i].type);
    assert_zx_ok(
        zx_build_node(&b, row->op, in, n, op_text_attrs(row->attrs, &mem), NULL, out, &err), &err);
    zx_graph g;
    zx_builder_done(&b, &g);
    for (uint32_t i = 0; i < n; i++)
        if (zx_node_may_overwrite(&g, &g.nodes[0], i, 0) != row->may[i])
            fail_msg("input %u: %d", i, !row->may[i]);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(over_cases)];
    for (size_t i = 0; i < ZX_COUNT(over_cases); i++)
        tests[i] = zx_case(over_cases[i].name, written_over, &over_cases[i]);
    return cmocka_run_group_tests_name("overwrite", tests, NULL, NULL);
}

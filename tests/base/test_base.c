// test_base.c - errors, arenas, attributes, shapes and the graph builder.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <string.h>

#include "graph/graph.h"

static void test_causes_gather_context(void **state ZX_UNUSED)
{
    zx_err err = {0}, node = {0};
    assert_int_equal(ZX_FAIL(&node, ZX_E_SHAPE, "inner sizes %d and %d", 3, 4), ZX_E_SHAPE);
    zx_err_in(&node, "node '%s'", "fc1");
    zx_err_hint(&node, "export it again");
    ZX_FAIL(&err, ZX_E_UNSUPPORTED, "first");
    zx_err_merge(&err, &node);
    zx_err_in(&err, "model.onnx");
    assert_int_equal(err.n_causes, 2);
    assert_int_equal(err.code, ZX_E_UNSUPPORTED);
    assert_string_equal(err.cause[0], "model.onnx: first");
    assert_string_equal(err.cause[1], "model.onnx: node 'fc1': inner sizes 3 and 4");
    assert_string_equal(err.hint, "export it again");
}

static void test_many_causes_are_counted(void **state ZX_UNUSED)
{
    zx_err err = {0};
    for (int i = 0; i < 50; i++) ZX_FAIL(&err, ZX_E_FORMAT, "cause %d", i);
    assert_int_equal(err.n_causes, 50);
    assert_string_equal(err.cause[ZX_ERR_KEPT - 1], "cause 19");
}

static void test_long_context_is_cut(void **state ZX_UNUSED)
{
    zx_err err = {0};
    char longest[ZX_ERR_TEXT];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    ZX_FAIL(&err, ZX_E_FORMAT, "%s", longest);
    zx_err_in(&err, "prefix");
    assert_int_equal(strlen(err.cause[0]), ZX_ERR_TEXT - 1);
    assert_memory_equal(err.cause[0], "prefix: xxx", 11);
}

static void test_exit_codes(void **state ZX_UNUSED)
{
    assert_int_equal(zx_status_exit(ZX_OK), 0);
    assert_int_equal(zx_status_exit(ZX_E_IO), 1);
    assert_int_equal(zx_status_exit(ZX_E_USAGE), 2);
    assert_int_equal(zx_status_exit(ZX_E_SHAPE), 3);
    assert_int_equal(zx_status_exit(ZX_E_BUDGET), 4);
    assert_int_equal(zx_status_exit(ZX_E_DIVERGED), 5);
    assert_int_equal(zx_status_exit(ZX_E_COMM), 6);
}

static void test_arena(void **state ZX_UNUSED)
{
    zx_arena a = {0};
    char *small = ZX_NEW(&a, char, 3);
    const zx_mark mark = zx_arena_mark(&a);
    double *big = ZX_NEW(&a, double, 100000); // larger than a chunk
    for (int i = 0; i < 100000; i++) assert_true(big[i] == 0);
    zx_arena_rewind(&a, mark);
    assert_int_equal(small[2], 0);
    uint32_t n = 0, cap = 0, *list = NULL;
    for (uint32_t i = 0; i < 1000; i++) {
        ZX_GROW(&a, list, n, cap);
        list[n++] = i;
    }
    for (uint32_t i = 0; i < n; i++) assert_int_equal(list[i], i);
    assert_string_equal(zx_arena_printf(&a, "%s-%d", "x", 7), "x-7");
    assert_string_equal(zx_arena_strn(&a, "abcdef", 3), "abc");
    zx_arena_free(&a);
}

static void test_attributes(void **state ZX_UNUSED)
{
    zx_arena a = {0};
    zx_attrs x = {0};
    const int64_t perm[] = {1, 0};
    x = zx_attrs_int(&a, x, ZX_A_AXIS, 2);
    x = zx_attrs_ints(&a, x, ZX_A_PERM, perm, 2);
    x = zx_attrs_float(&a, x, ZX_A_EPSILON, 1e-5);
    x = zx_attrs_int(&a, x, ZX_A_AXIS, 3); // replaces
    assert_int_equal(x.n, 3);
    assert_int_equal(zx_attr_int(&x, ZX_A_AXIS, -1), 3);
    assert_int_equal(zx_attr_int(&x, ZX_A_GROUP, 7), 7);
    assert_true(zx_attr_float(&x, ZX_A_EPSILON, 0) == 1e-5);
    uint32_t n;
    assert_int_equal(zx_attr_ints(&x, ZX_A_PERM, &n)[0], 1);
    assert_int_equal(n, 2);
    zx_arena_free(&a);
}

#define DIMS(...)                                                                                  \
    {                                                                                              \
        .rank = sizeof((int64_t[]){__VA_ARGS__}) / 8, .dim = { __VA_ARGS__ }                       \
    }
static const struct broadcast_row {
    const char *name;
    zx_shape a, b, want;
    bool fits;
} broadcast_rows[] = {
    {"equal", DIMS(2, 3), DIMS(2, 3), DIMS(2, 3), true},
    {"a scalar", {0}, DIMS(2, 3), DIMS(2, 3), true},
    {"missing dims", DIMS(4), DIMS(2, 3, 4), DIMS(2, 3, 4), true},
    {"both ways", DIMS(2, 1, 4), DIMS(3, 1), DIMS(2, 3, 4), true},
    {"zero wins over one", DIMS(0, 4), DIMS(1, 4), DIMS(0, 4), true},
    {"unequal", DIMS(2, 3), DIMS(2, 4), {0}, false},
    {"zero is not two", DIMS(0), DIMS(2), {0}, false},
};

static void test_broadcast(void **state)
{
    const struct broadcast_row *k = *state;
    zx_shape out;
    assert_int_equal(zx_shape_broadcast(&k->a, &k->b, &out, NULL) == ZX_OK, k->fits);
    if (k->fits) assert_true(zx_shape_equal(&out, &k->want));
}

static void test_absurd_shapes(void **state ZX_UNUSED)
{
    const zx_shape good = DIMS(1 << 30, 1 << 20, 0), many = DIMS(1 << 30, 1 << 30),
                   hidden = DIMS(0, 1LL << 40, 1LL << 40), negative = DIMS(3, -1);
    assert_int_equal(zx_shape_check(&good, NULL), ZX_OK);
    assert_int_equal(zx_shape_check(&many, NULL), ZX_E_SHAPE);
    assert_int_equal(zx_shape_check(&hidden, NULL), ZX_E_SHAPE); // a product that ends in 0
    assert_int_equal(zx_shape_check(&negative, NULL), ZX_E_SHAPE);
}

// One value a number and type, also in a graph that is gone on with, and after it has become
// something else.
static void test_scalars(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g;
    zx_builder_start(&b, &mem, "scalars");
    const zx_type f32 = {.dtype = ZX_F32}, one = {ZX_F32, DIMS(1)};
    static const float two = 2;
    zx_build_const(&b, "a list", &one, &two);
    const uint32_t named = zx_build_const(&b, "named", &f32, &two);
    zx_build_const(&b, "again", &f32, &two);
    assert_int_equal(zx_build_scalar(&b, ZX_F32, 2), named);
    const uint32_t x = zx_build_scalar(&b, ZX_F32, 3), i = zx_build_scalar(&b, ZX_I64, 3);
    assert_int_not_equal(x, i);
    assert_int_not_equal(zx_build_scalar(&b, ZX_F32, -0.0), zx_build_scalar(&b, ZX_F32, 0));
    for (int k = 0; k < 100; k++) zx_build_input(&b, "x", &f32);
    assert_int_equal(zx_build_scalar(&b, ZX_F32, 3), x);
    assert_int_equal(zx_build_scalar(&b, ZX_I64, 3), i);
    zx_builder_done(&b, &g);
    zx_builder_continue(&b, &mem, &g);
    const uint32_t n = g.n_values;
    assert_int_equal(zx_build_scalar(&b, ZX_F32, 2), named);
    assert_int_equal(zx_build_scalar(&b, ZX_I64, 3), i);
    assert_int_equal(b.g.n_values, n);
    b.values[x].role = ZX_R_INPUT;
    assert_int_equal(zx_build_scalar(&b, ZX_F32, 3), n);
    zx_builder_done(&b, &g);
    zx_arena_free(&mem);
}

static void test_builder(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_builder b;
    zx_builder_start(&b, &mem, "test");
    const zx_type t = {ZX_F32, DIMS(2, 3)}, row = {ZX_F32, DIMS(3)};
    const uint32_t x = zx_build_input(&b, "x", &t);
    const uint32_t p = zx_build_param(&b, &row, &(zx_param){.name = "w"});
    uint32_t in[2] = {x, p}, y;
    zx_err err = {0};
    b.at_name = "add";
    assert_zx_ok(zx_build_node(&b, ZX_OP_ADD, in, 2, (zx_attrs){0}, NULL, &y, &err), &err);
    assert_int_equal(zx_build_scalar(&b, ZX_F32, 1), zx_build_scalar(&b, ZX_F32, 1));
    assert_int_equal(zx_build_reshape(&b, y, &t.shape), y);
    assert_int_equal(zx_build_node(&b, ZX_OP_ADD, in, 1, (zx_attrs){0}, NULL, &y, &err),
                     ZX_E_SHAPE);
    b.g.loss = y;
    zx_graph g;
    zx_builder_done(&b, &g);
    assert_int_equal(g.n_nodes, 1);
    assert_int_equal(g.values[y].by, 0);
    assert_int_equal(zx_node_in(&g, &g.nodes[0], 1), p);
    assert_int_equal(zx_node_in(&g, &g.nodes[0], 2), ZX_NONE);
    const uint64_t hash = zx_graph_hash(&g);
    zx_builder_continue(&b, &mem, &g);
    b.values[x].type.shape.dim[0] = 5;
    zx_builder_done(&b, &g);
    assert_int_not_equal(hash, zx_graph_hash(&g));
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(broadcast_rows) + 8] = {
        cmocka_unit_test(test_causes_gather_context),
        cmocka_unit_test(test_many_causes_are_counted),
        cmocka_unit_test(test_long_context_is_cut),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_absurd_shapes),
        cmocka_unit_test(test_builder),
        cmocka_unit_test(test_scalars),
    };
    for (size_t i = 0; i < ZX_COUNT(broadcast_rows); i++)
        tests[8 + i] = zx_case(broadcast_rows[i].name, test_broadcast, &broadcast_rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

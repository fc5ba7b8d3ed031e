// test_epilogue.c - products that take along what follows them: what the pass makes of train
// graphs, and that loss and every gradient are the same with and without, within rounding.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdarg.h>

#include "graph/autodiff.h"
#include "graph/epilogue.h"
#include "tests/ops/rig.h"
#include "tests/test.h"

#define ROWS 6
#define WIDTH 8
#define WIDER 16

// Two layers with a GELU between: x [2,3,8] w1 + b1, GELU, w2 + b2, the sum of squares.
typedef enum kind {
    PLAIN,
    BY_ERF,
    NO_BIAS,
    TURNED,      // weights are [out, in]
    RESHAPED,    // the GELU is of [6, 16]
    READ_TWICE,  // so is the product, after the GELU
    READ_BEFORE, // and before it
    SHARED,      // the first bias is added to the end, too
} kind;
static const struct row {
    const char *name;
    kind kind;
    zx_epilogue_counts want;
} rows[] = {
    {"two layers", PLAIN, {1, 1, 1}},
    {"the GELU by erf stays", BY_ERF, {0, 0, 2}},
    {"without biases", NO_BIAS, {1, 1, 0}},
    {"weights the other way round", TURNED, {1, 1, 1}},
    {"a reshape between", RESHAPED, {1, 1, 1}},
    {"the product is read behind, too", READ_TWICE, {1, 1, 2}},
    {"the product is read before, too", READ_BEFORE, {0, 1, 2}},
    {"a bias of two", SHARED, {1, 1, 1}},
};

static uint32_t make(zx_builder *b, zx_op_id op, zx_attrs attrs, uint32_t n, ...)
{
    uint32_t in[3] = {ZX_NONE, ZX_NONE, ZX_NONE};
    va_list ap;
    va_start(ap, n);
    for (uint32_t i = 0; i < n; i++) in[i] = va_arg(ap, uint32_t);
    va_end(ap);
    return zx_build1(b, op, attrs, n, in[0], in[1], in[2]);
}
static uint32_t parameter(zx_builder *b, const char *name, uint32_t rank, int64_t m, int64_t n)
{
    const zx_type t = {.dtype = ZX_F32, .shape = {rank, {m, n}}};
    return zx_build_param(b, &t, &(zx_param){.name = name});
}
static uint32_t linear(zx_builder *b, kind k, uint32_t x, int64_t from, int64_t to, char which)
{
    const bool turned = k == TURNED;
    const char *w = zx_arena_printf(b->mem, "w%c", which);
    const uint32_t weight = parameter(b, w, 2, turned ? to : from, turned ? from : to);
    zx_attrs attrs = {0};
    if (turned) attrs = zx_attrs_int(b->mem, attrs, ZX_A_TRANS_B, 1);
    if (k == NO_BIAS) return make(b, ZX_OP_MATMUL, attrs, 2, x, weight);
    const char *c = zx_arena_printf(b->mem, "b%c", which);
    return make(b, ZX_OP_MATMUL, attrs, 3, x, weight, parameter(b, c, 1, to, 0));
}

static void build(kind k, zx_arena *mem, zx_graph *train)
{
    static const int64_t all[] = {0, 1, 2};
    const zx_type t = {.dtype = ZX_F32, .shape = {3, {2, ROWS / 2, WIDTH}}};
    zx_builder b;
    zx_graph forward, full;
    zx_err err = {0};
    zx_builder_start(&b, mem, "test");
    b.at_name = "node";
    const uint32_t x = zx_build_input(&b, "x", &t);
    uint32_t h = linear(&b, k, x, WIDTH, WIDER, '1'), twice = h;
    if (k == READ_BEFORE) twice = make(&b, ZX_OP_TANH, (zx_attrs){0}, 1, h);
    if (k == RESHAPED) h = zx_build_reshape(&b, h, &(zx_shape){2, {ROWS, WIDER}});
    const zx_attrs gelu = zx_attrs_int(mem, (zx_attrs){0}, ZX_A_MODE, k == BY_ERF ? 0 : 1);
    uint32_t y = make(&b, ZX_OP_GELU, gelu, 1, h);
    if (k == RESHAPED) y = zx_build_reshape(&b, y, &(zx_shape){3, {2, ROWS / 2, WIDER}});
    y = linear(&b, k, y, WIDER, WIDTH, '2');
    const zx_attrs sum = zx_attrs_ints(mem, (zx_attrs){0}, ZX_A_AXES, all, 3);
    uint32_t loss = make(&b, ZX_OP_REDUCE_SUM_SQUARE, sum, 1, y);
    if (k == READ_TWICE || k == READ_BEFORE)
        loss = make(&b, ZX_OP_ADD, (zx_attrs){0}, 2, loss,
                    make(&b, ZX_OP_REDUCE_SUM_SQUARE, sum, 1, twice));
    if (k == SHARED) {
        const uint32_t bias = b.params[1].value;
        const zx_attrs axis = zx_attrs_ints(mem, (zx_attrs){0}, ZX_A_AXES, all, 1);
        const uint32_t one = make(&b, ZX_OP_REDUCE_SUM_SQUARE, axis, 1, bias);
        loss = make(&b, ZX_OP_ADD, (zx_attrs){0}, 2, loss,
                    zx_build_reshape(&b, one, &b.values[loss].type.shape));
    }
    b.g.loss = zx_build_reshape(&b, loss, &(zx_shape){0});
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, mem, &full, &err), &err);
    zx_simplify(&full, mem, train);
}

// A value's seed is its place among the inputs or parameters.
static zx_view *run(const zx_graph *g, zx_arena *mem)
{
    static bool seen[ZX_OP_COUNT];
    zx_view *values = ZX_NEW(mem, zx_view, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) {
        const zx_value *x = &g->values[v];
        double *numbers;
        if (x->role == ZX_R_INPUT || x->role == ZX_R_PARAM)
            values[v] = rig_fill(mem, &x->type, "", 100 * (uint64_t)x->role + x->index, &numbers);
    }
    rig_graph(g, values, mem, 1, seen);
    return values;
}

static void same(const zx_view *a, const zx_view *b, const char *name)
{
    double most = 0;
    const int64_t n = zx_shape_count(&a->type.shape);
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(rig_get(a, i)));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(rig_get(a, i) - rig_get(b, i)) <= 1e-6 * most))
            fail_msg("%s[%d] is %.9g, without epilogues %.9g", name, (int)i, rig_get(b, i),
                     rig_get(a, i));
}

static uint32_t count(const zx_graph *g, zx_op_id op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}
// Nodes read what was made before them.
static void in_order(const zx_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t a = 0; a < g->nodes[i].n_in; a++) {
            const uint32_t v = zx_node_in(g, &g->nodes[i], a);
            if (v != ZX_NONE && g->values[v].by != ZX_NONE) assert_true(g->values[v].by < i);
        }
}

static void test_row(void **state)
{
    const struct row *row = *state;
    zx_arena mem = {0};
    zx_graph plain, g;
    build(row->kind, &mem, &plain);
    const zx_epilogue_counts n = zx_epilogues(&plain, &mem, &g);
    assert_int_equal(n.gelu, row->want.gelu);
    assert_int_equal(n.dgelu, row->want.dgelu);
    assert_int_equal(n.sums, row->want.sums);
    assert_int_equal(count(&g, ZX_OP_MATMUL_GELU), n.gelu);
    assert_int_equal(count(&g, ZX_OP_MATMUL_DGELU), n.dgelu);
    assert_int_equal(count(&g, ZX_OP_MATMUL_SUM), n.sums);
    in_order(&g);
    assert_int_equal(g.n_params, plain.n_params);
    const zx_view *a = run(&plain, &mem), *b = run(&g, &mem);
    same(&a[plain.loss], &b[g.loss], "loss");
    for (uint32_t i = 0; i < g.n_params; i++)
        same(&a[plain.params[i].grad], &b[g.params[i].grad], g.params[i].name);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

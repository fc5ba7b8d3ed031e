// test_autodiff.c - the shape of train graphs: which gradients there are, what they are made of, in
// which order, and what is refused. Their numbers are checked by tests/ops.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"
#include "tests/op_text.h"

#include "graph/autodiff.h"
#include "graph/ops/ops.h"

// A graph under construction; node `i` comes from source `i` in module "m.i".
typedef struct fix {
    zx_arena mem;
    zx_builder b;
    zx_graph train;
    zx_err err;
} fix;

static void start(fix *f)
{
    memset(f, 0, sizeof *f);
    zx_builder_start(&f->b, &f->mem, "test");
}

static zx_type type_of(const char *text)
{
    return op_text_type(&text);
}

static uint32_t param(fix *f, const char *name, const char *type)
{
    const zx_type t = type_of(type);
    return zx_build_param(&f->b, &t, &(zx_param){.name = name});
}

static uint32_t input(fix *f, const char *name, const char *type)
{
    const zx_type t = type_of(type);
    return zx_build_input(&f->b, name, &t);
}

// A node of up to three inputs called `name`, in module "m.name".
static uint32_t node(fix *f, const char *name, zx_op_id op, const char *attrs, uint32_t n,
                     uint32_t x, uint32_t y, uint32_t z)
{
    const uint32_t in[] = {x, y, z};
    const char **scope = ZX_NEW(&f->mem, const char *, 1);
    scope[0] = zx_arena_printf(&f->mem, "m.%s", name);
    ZX_GROW(&f->mem, f->b.sources, f->b.g.n_sources, f->b.cap_sources);
    f->b.sources[f->b.g.n_sources] =
        (zx_source){.name = name, .op = zx_ops[op].word, .n_scopes = 1, .scopes = scope};
    f->b.at_source = f->b.g.n_sources++;
    f->b.at_name = name;
    uint32_t out[8];
    assert_zx_ok(zx_build_node(&f->b, op, in, n, op_text_attrs(attrs, &f->mem), NULL, out, &f->err),
                 &f->err);
    return out[0];
}

static uint32_t mean(fix *f, uint32_t x)
{
    static const char *const all[] = {"AXES= KEEPDIMS=0", "AXES=0 KEEPDIMS=0",
                                      "AXES=0,1 KEEPDIMS=0", "AXES=0,1,2 KEEPDIMS=0",
                                      "AXES=0,1,2,3 KEEPDIMS=0"};
    const uint32_t rank = zx_shape_of(&f->b, x)->rank;
    return node(f, "loss", ZX_OP_REDUCE_MEAN, all[rank], 1, x, 0, 0);
}

static zx_status differentiate(fix *f, uint32_t loss)
{
    zx_graph forward;
    f->b.g.loss = loss;
    zx_builder_done(&f->b, &forward);
    return zx_autodiff(&forward, 0.25, &f->mem, &f->train, &f->err);
}

static const zx_node *maker(const zx_graph *g, uint32_t value)
{
    assert_int_not_equal(value, ZX_NONE);
    assert_int_equal(g->values[value].role, ZX_R_MADE);
    return &g->nodes[g->values[value].by];
}

static uint32_t count_op(const zx_graph *g, zx_op_id op)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) n += g->nodes[i].op == op;
    return n;
}

// What holds for every train graph: forward first and unchanged, values made before they are read,
// gradients of the parameters' own type.
static void check_sound(const zx_graph *g)
{
    bool backward = false;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        assert_true(n->phase == ZX_BACKWARD || !backward);
        backward = n->phase == ZX_BACKWARD;
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = g->refs[n->in + k];
            if (v == ZX_NONE) continue;
            assert_true(v < g->n_values);
            if (g->values[v].role == ZX_R_MADE) assert_true(g->values[v].by < i);
        }
        for (uint32_t k = 0; k < n->n_out; k++)
            assert_int_equal(g->values[g->refs[n->out + k]].by, i);
    }
    for (uint32_t i = 0; i < g->n_params; i++) {
        const zx_param *p = &g->params[i];
        assert_int_equal(g->values[p->value].role, ZX_R_PARAM);
        assert_int_equal(g->values[p->value].index, i);
        if (p->grad == ZX_NONE) continue;
        assert_true(
            zx_shape_equal(&g->values[p->value].type.shape, &g->values[p->grad].type.shape));
        assert_int_equal(g->values[p->grad].type.dtype, ZX_F32);
    }
}

// A weight's gradient is one product of two matrices that comes out in the weight's own layout.
static const struct product {
    const char *name, *a, *b, *attrs;
    const char *grad_a, *grad_b; // shapes in which the products come out
} products[] = {
    {"weight [K,N]", "f32[2,5,3]", "f32[3,4]", "", "f32[2,5,3]", "f32[3,4]"},
    {"weight [N,K]", "f32[2,5,3]", "f32[4,3]", "TRANS_B=1", "f32[2,5,3]", "f32[4,3]"},
    {"weight [1,K,N]", "f32[2,5,3]", "f32[1,3,4]", "", "f32[2,5,3]", "f32[3,4]"},
    {"both transposed", "f32[3,5]", "f32[4,3]", "TRANS_A=1 TRANS_B=1 ALPHA=0.5", "f32[3,5]",
     "f32[4,3]"},
    {"left transposed", "f32[3,5]", "f32[3,4]", "TRANS_A=1", "f32[3,5]", "f32[3,4]"},
    {"batches", "f32[2,5,3]", "f32[2,3,4]", "", "f32[2,5,3]", "f32[2,3,4]"},
    {"batches repeated", "f32[6,2,5,3]", "f32[2,3,4]", "", "f32[6,2,5,3]", "f32[6,2,3,4]"},
    {"left is one matrix", "f32[5,3]", "f32[2,3,4]", "", "f32[2,5,3]", "f32[2,3,4]"},
};

static void weight_gradients(void **state)
{
    const struct product *row = *state;
    fix f;
    start(&f);
    const uint32_t a = param(&f, "a", row->a), b = param(&f, "b", row->b);
    const uint32_t y = node(&f, "mm", ZX_OP_MATMUL, row->attrs, 2, a, b, 0);
    assert_zx_ok(differentiate(&f, mean(&f, y)), &f.err);
    check_sound(&f.train);
    assert_int_equal(count_op(&f.train, ZX_OP_TRANSPOSE), 0);
    assert_int_equal(count_op(&f.train, ZX_OP_MATMUL), 3);
    for (uint32_t i = 0; i < 2; i++) {
        const zx_type want = type_of(i == 0 ? row->grad_a : row->grad_b);
        const zx_node *n = maker(&f.train, f.train.params[i].grad);
        while (n->op != ZX_OP_MATMUL) { // a sum over batches or a view may follow
            assert_true(n->op == ZX_OP_SUM_TO || n->op == ZX_OP_RESHAPE);
            n = maker(&f.train, zx_node_in(&f.train, n, 0));
        }
        assert_string_equal(n->name, "mm");
        assert_true(
            zx_shape_equal(&f.train.values[zx_node_out(&f.train, n, 0)].type.shape, &want.shape));
    }
    zx_arena_free(&f.mem);
}

static void bias_and_broadcast(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t x = input(&f, "x", "f32[2,5,3]"), w = param(&f, "w", "f32[3,4]");
    const uint32_t c = param(&f, "c", "f32[4]"), s = param(&f, "s", "f32[]");
    const uint32_t t = param(&f, "t", "f32[5,1]");
    uint32_t y = node(&f, "mm", ZX_OP_MATMUL, "", 3, x, w, c);
    y = node(&f, "mul", ZX_OP_MUL, "", 2, y, s, 0);
    y = node(&f, "sub", ZX_OP_SUB, "", 2, t, y, 0);
    assert_zx_ok(differentiate(&f, mean(&f, y)), &f.err);
    check_sound(&f.train);
    for (uint32_t i = 0; i < 4; i++) assert_int_not_equal(f.train.params[i].grad, ZX_NONE);
    assert_int_equal(maker(&f.train, f.train.params[1].grad)->op, ZX_OP_SUM_TO);
    // x is data: nothing is computed for it.
    assert_int_equal(count_op(&f.train, ZX_OP_MATMUL), 2);
    zx_arena_free(&f.mem);
}

// Embedding and head share a tensor: the embedding's rows are added into the head's contribution.
static void tied(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t e = param(&f, "e", "f32[13,8]"), ids = input(&f, "ids", "i64[2,3]");
    const uint32_t labels = input(&f, "labels", "i64[2,3]");
    uint32_t y = node(&f, "embed", ZX_OP_GATHER, "AXIS=0", 2, e, ids, 0);
    y = node(&f, "head", ZX_OP_MATMUL, "TRANS_B=1", 2, y, e, 0);
    y = node(&f, "classes", ZX_OP_TRANSPOSE, "PERM=0,2,1", 1, y, 0, 0);
    y = node(&f, "ce", ZX_OP_CROSS_ENTROPY, "REDUCTION=1 IGNORE_INDEX=-100", 2, y, labels, 0);
    assert_zx_ok(differentiate(&f, y), &f.err);
    check_sound(&f.train);
    const zx_graph *g = &f.train;
    const zx_node *sum = maker(g, g->params[0].grad);
    assert_int_equal(sum->op, ZX_OP_GATHER_GRAD);
    assert_int_equal(sum->n_in, 3);
    assert_string_equal(maker(g, zx_node_in(g, sum, 2))->name, "head");
    assert_int_equal(count_op(g, ZX_OP_GATHER_GRAD), 1);
    assert_string_equal(sum->name, "embed"); // of the node that contributed last
    zx_arena_free(&f.mem);
}

// The gradient of a split tensor: its parts side by side where they make up the whole.
static const struct split {
    const char *name;
    const char *slices[4];
    uint32_t concats, scatters, adds;
} splits[] = {
    {"three thirds",
     {"STARTS=0,0 STEPS=1,1 SHAPE=2,2", "STARTS=0,2 STEPS=1,1 SHAPE=2,2",
      "STARTS=0,4 STEPS=1,1 SHAPE=2,2"},
     1,
     0,
     0},
    {"in another order",
     {"STARTS=0,4 STEPS=1,1 SHAPE=2,2", "STARTS=0,0 STEPS=1,1 SHAPE=2,1",
      "STARTS=0,1 STEPS=1,1 SHAPE=2,3"},
     1,
     0,
     0},
    {"one is missing",
     {"STARTS=0,0 STEPS=1,1 SHAPE=2,2", "STARTS=0,4 STEPS=1,1 SHAPE=2,2"},
     0,
     2,
     1},
    {"one is read twice",
     {"STARTS=0,0 STEPS=1,1 SHAPE=2,2", "STARTS=0,0 STEPS=1,1 SHAPE=2,2",
      "STARTS=0,2 STEPS=1,1 SHAPE=2,4"},
     1,
     1,
     1},
    {"they overlap", {"STARTS=0,0 STEPS=1,1 SHAPE=2,4", "STARTS=0,2 STEPS=1,1 SHAPE=2,4"}, 0, 2, 1},
    {"other axes", {"STARTS=0,0 STEPS=1,1 SHAPE=1,6", "STARTS=0,0 STEPS=1,1 SHAPE=2,3"}, 0, 2, 1},
    {"every other one",
     {"STARTS=0,0 STEPS=1,2 SHAPE=2,3", "STARTS=0,1 STEPS=1,2 SHAPE=2,3"},
     0,
     2,
     1},
};

static void split_gradients(void **state)
{
    const struct split *row = *state;
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[2,6]");
    const uint32_t x = node(&f, "act", ZX_OP_TANH, "", 1, w, 0, 0);
    uint32_t sum = ZX_NONE;
    for (uint32_t i = 0; i < 4 && row->slices[i] != NULL; i++) {
        uint32_t y = node(&f, "slice", ZX_OP_SLICE, row->slices[i], 1, x, 0, 0);
        y = node(&f, "square", ZX_OP_REDUCE_SUM_SQUARE, "AXES=0,1 KEEPDIMS=0", 1, y, 0, 0);
        sum = sum == ZX_NONE ? y : node(&f, "sum", ZX_OP_SUB, "", 2, sum, y, 0);
    }
    assert_zx_ok(differentiate(&f, mean(&f, sum)), &f.err);
    check_sound(&f.train);
    assert_int_equal(count_op(&f.train, ZX_OP_CONCAT), row->concats);
    assert_int_equal(count_op(&f.train, ZX_OP_SLICE_SCATTER), row->scatters);
    assert_int_equal(count_op(&f.train, ZX_OP_ADD), row->adds);
    zx_arena_free(&f.mem);
}

// Used twice by one node: both count.
static void squares(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[3]");
    assert_zx_ok(differentiate(&f, mean(&f, node(&f, "sq", ZX_OP_MUL, "", 2, w, w, 0))), &f.err);
    check_sound(&f.train);
    assert_int_equal(maker(&f.train, f.train.params[0].grad)->op, ZX_OP_ADD);
    zx_arena_free(&f.mem);
}

// Backward nodes are named after the forward node, come from its source, and run in its reverse.
static void names_and_order(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[3]");
    uint32_t y = node(&f, "a", ZX_OP_TANH, "", 1, w, 0, 0);
    y = node(&f, "b", ZX_OP_GELU, "MODE=1", 1, y, 0, 0);
    y = node(&f, "c", ZX_OP_SIGMOID, "", 1, y, 0, 0);
    assert_zx_ok(differentiate(&f, mean(&f, y)), &f.err);
    check_sound(&f.train);
    const char *const want[] = {"c", "b", "a"};
    const zx_op_id ops[] = {ZX_OP_SIGMOID_GRAD, ZX_OP_GELU_GRAD, ZX_OP_TANH_GRAD};
    uint32_t seen = 0;
    for (uint32_t i = 0; i < f.train.n_nodes; i++) {
        const zx_node *n = &f.train.nodes[i];
        if (n->phase != ZX_BACKWARD || strcmp(n->name, "loss") == 0) continue;
        assert_string_equal(n->name, want[seen]);
        assert_int_equal(n->op, ops[seen]);
        assert_string_equal(f.train.sources[n->source].name, want[seen]);
        if (seen == 1) assert_int_equal(zx_attr_int(&n->attrs, ZX_A_MODE, 0), 1);
        seen++;
    }
    assert_int_equal(seen, 3);
    zx_arena_free(&f.mem);
}

// All that block, with name and module, and only those on a path from a parameter to the loss.
static void blocked(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[3,3]"), x = input(&f, "x", "f32[3,3]");
    const uint32_t free_of_w = node(&f, "harmless", ZX_OP_MOD, "FMOD=1", 2, x, x, 0);
    uint32_t y = node(&f, "first", ZX_OP_MOD, "FMOD=1", 2, w, x, 0);
    node(&f, "dead end", ZX_OP_MOD, "FMOD=1", 2, y, x, 0);
    y = node(&f, "add", ZX_OP_ADD, "", 2, y, free_of_w, 0);
    y = node(&f, "second\n", ZX_OP_MOD, "FMOD=1", 2, y, x, 0);
    assert_int_equal(differentiate(&f, mean(&f, y)), ZX_E_UNSUPPORTED);
    assert_int_equal(f.err.n_causes, 2);
    assert_string_equal(f.err.cause[0], "node 'first' (m.first): Mod has no gradient");
    assert_string_equal(f.err.cause[1], "node 'second\\x0a' (m.second\\x0a): Mod has no gradient");
    assert_true(f.err.hint[0] != '\0');
    zx_arena_free(&f.mem);
}

// A rule may refuse, too: a gradient through a statistic, a scatter that multiplies.
static void refused_by_rule(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[3,3]"), idx = input(&f, "i", "i64[3,3]");
    node(&f, "ln", ZX_OP_LAYER_NORM, "AXIS=1 EPSILON=1e-5", 1, w, 0, 0);
    const uint32_t invstd = zx_node_out(&f.b.g, &f.b.nodes[0], 2);
    const uint32_t s = node(&f, "sc", ZX_OP_SCATTER_ELEMENTS, "AXIS=0 REDUCTION=2", 3, w, idx, w);
    const uint32_t y = node(&f, "add", ZX_OP_ADD, "", 2, invstd, s, 0);
    assert_int_equal(differentiate(&f, mean(&f, y)), ZX_E_UNSUPPORTED);
    assert_int_equal(f.err.n_causes, 2);
    assert_string_equal(f.err.cause[0],
                        "node 'sc' (m.sc): ScatterElements with reduction mul has no gradient");
    assert_non_null(strstr(f.err.cause[1], "node 'ln' (m.ln): LayerNormalization has no gradient"));
    zx_arena_free(&f.mem);
}

static void not_float32(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "half", "f16[3]"), v = param(&f, "v", "f32[3]");
    uint32_t y = node(&f, "up", ZX_OP_CAST, "TO=0", 1, w, 0, 0);
    uint32_t d = node(&f, "down", ZX_OP_CAST, "TO=3", 1, v, 0, 0); // bf16 and back
    d = node(&f, "back", ZX_OP_CAST, "TO=0", 1, d, 0, 0);
    y = node(&f, "add", ZX_OP_ADD, "", 2, y, d, 0);
    assert_int_equal(differentiate(&f, mean(&f, y)), ZX_E_UNSUPPORTED);
    assert_int_equal(f.err.n_causes, 2);
    assert_non_null(strstr(f.err.cause[0], "parameter 'half' is float16"));
    assert_non_null(strstr(f.err.cause[1], "node 'down' (m.down): makes 'down' in bfloat16"));
    zx_arena_free(&f.mem);
}

// Integers, bools and flat operators carry no gradient, and don't block either.
static void ends_of_paths(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[3]"), flat = param(&f, "flat", "f32[3]");
    param(&f, "unused", "f32[3]");
    const uint32_t picked = param(&f, "picked", "f32[4]");
    const uint32_t x = input(&f, "x", "f32[3]");
    uint32_t y = node(&f, "sign", ZX_OP_SIGN, "", 1, flat, 0, 0);
    y = node(&f, "add", ZX_OP_ADD, "", 2, y, w, 0);
    const uint32_t i = node(&f, "arg", ZX_OP_ARG_MAX, "AXIS=0 KEEPDIMS=1", 1, picked, 0, 0);
    const uint32_t c = node(&f, "int", ZX_OP_CAST, "TO=0", 1, i, 0, 0);
    y = node(&f, "mul", ZX_OP_MUL, "", 2, y, c, 0);
    const uint32_t mask = node(&f, "less", ZX_OP_LESS, "", 2, y, x, 0);
    y = node(&f, "where", ZX_OP_WHERE, "", 3, mask, y, x);
    assert_zx_ok(differentiate(&f, mean(&f, y)), &f.err);
    check_sound(&f.train);
    assert_int_not_equal(f.train.params[0].grad, ZX_NONE);
    for (uint32_t p = 1; p < 4; p++) assert_int_equal(f.train.params[p].grad, ZX_NONE);
    zx_arena_free(&f.mem);
}

static void nothing_to_train(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const uint32_t w = param(&f, "w", "f32[3]");
    const uint32_t y = node(&f, "sign", ZX_OP_SIGN, "", 1, w, 0, 0);
    assert_int_equal(differentiate(&f, mean(&f, y)), ZX_E_UNSUPPORTED);
    assert_non_null(strstr(f.err.cause[0], "depends on no parameter"));
    zx_arena_free(&f.mem);
}

// What nothing needs goes; inputs, parameters and buffers stay, and a buffer's next value counts.
static void simplified(void **state ZX_UNUSED)
{
    fix f;
    start(&f);
    const zx_type three = type_of("f32[3]");
    const uint32_t w = param(&f, "w", "f32[3]"), x = input(&f, "x", "f32[3]");
    input(&f, "unread", "f32[7]");
    const uint32_t old = zx_build_buffer(&f.b, &three, &(zx_buffer){.name = "count"});
    const float ones[3] = {1, 1, 1};
    const uint32_t k = zx_build_const(&f.b, "ones", &three, ones);
    zx_build_const(&f.b, "dead", &three, ones);
    f.b.buffers[0].next = node(&f, "count", ZX_OP_ADD, "", 2, old, k, 0);
    node(&f, "dead", ZX_OP_EXP, "", 1, x, 0, 0);
    const uint32_t y = node(&f, "mul", ZX_OP_MUL, "", 2, w, x, 0);
    assert_zx_ok(differentiate(&f, mean(&f, y)), &f.err);
    check_sound(&f.train);
    const zx_graph *g = &f.train;
    assert_int_equal(count_op(g, ZX_OP_EXP), 0);
    assert_int_equal(g->n_inputs, 2);
    assert_string_equal(g->values[g->inputs[1]].name, "unread");
    assert_string_equal(maker(g, g->buffers[0].next)->name, "count");
    for (uint32_t v = 0; v < g->n_values; v++) assert_string_not_equal(g->values[v].name, "dead");
    assert_int_equal(g->values[g->loss].type.shape.rank, 0);
    zx_arena_free(&f.mem);
}

// The rows that are looked up by their word are there.
static void gradient_rows(void **state ZX_UNUSED)
{
    for (uint32_t i = 0; i < ZX_OP_COUNT; i++)
        if (zx_ops[i].grad == zx_grad_unary_x || zx_ops[i].grad == zx_grad_unary_y)
            assert_int_equal(zx_grad_row((zx_op_id)i) - ZX_OP_SQRT_GRAD, i - ZX_OP_SQRT);
    assert_int_equal(zx_grad_row(ZX_OP_SOFTMAX), ZX_OP_SOFTMAX_GRAD);
    assert_int_equal(zx_grad_row(ZX_OP_LOG_SOFTMAX), ZX_OP_LOG_SOFTMAX_GRAD);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(products) + ZX_COUNT(splits) + 11] = {
        cmocka_unit_test(bias_and_broadcast),
        cmocka_unit_test(tied),
        cmocka_unit_test(squares),
        cmocka_unit_test(names_and_order),
        cmocka_unit_test(blocked),
        cmocka_unit_test(refused_by_rule),
        cmocka_unit_test(not_float32),
        cmocka_unit_test(ends_of_paths),
        cmocka_unit_test(nothing_to_train),
        cmocka_unit_test(simplified),
        cmocka_unit_test(gradient_rows),
    };
    for (size_t i = 0; i < ZX_COUNT(products); i++)
        tests[11 + i] = zx_case(products[i].name, weight_gradients, &products[i]);
    for (size_t i = 0; i < ZX_COUNT(splits); i++)
        tests[11 + ZX_COUNT(products) + i] = zx_case(splits[i].name, split_gradients, &splits[i]);
    return cmocka_run_group_tests_name("graph.autodiff", tests, NULL, NULL);
}

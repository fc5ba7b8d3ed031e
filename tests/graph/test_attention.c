// test_attention.c - what attention and the loss of a linear layer are operators for: in a train
// graph nothing is as large as their scores, nor is the kernels' scratch; and what they are said to
// cost.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "tests/test.h"

#include "graph/autodiff.h"
#include "graph/import.h"
#include "graph/precision.h"
#include "kernels/cpu/cpu.h"

typedef struct model {
    zx_arena mem;
    zx_builder b;
    zx_graph train;
    zx_err err;
} model;

static uint32_t param(model *m, const char *name, uint32_t rank, const int64_t *dim)
{
    zx_type t = {.dtype = ZX_F32, .shape = {.rank = rank}};
    memcpy(t.shape.dim, dim, rank * sizeof *dim);
    return zx_build_param(&m->b, &t, &(zx_param){.name = name});
}

static uint32_t node(model *m, zx_op_id op, zx_attrs attrs, const uint32_t *in, uint32_t n)
{
    uint32_t out[8];
    assert_zx_ok(zx_build_node(&m->b, op, in, n, attrs, NULL, out, &m->err), &m->err);
    return out[0];
}

static zx_status finish(model *m)
{
    zx_graph forward;
    zx_builder_done(&m->b, &forward);
    return zx_autodiff(&forward, 1, &m->mem, &m->train, &m->err);
}

enum { BATCH = 2, HEADS = 6, KV_HEADS = 2, SIZE = 16 };

// The mean of attention over t positions, all of q, k, v trained.
static zx_status attention(model *m, int64_t t, bool causal, bool train_mask)
{
    memset(m, 0, sizeof *m);
    zx_builder_start(&m->b, &m->mem, "test");
    m->b.at_name = "attention";
    uint32_t in[] = {param(m, "q", 4, (int64_t[]){BATCH, HEADS, t, SIZE}),
                     param(m, "k", 4, (int64_t[]){BATCH, KV_HEADS, t, SIZE}),
                     param(m, "v", 4, (int64_t[]){BATCH, KV_HEADS, t, SIZE}), ZX_NONE};
    if (train_mask) in[3] = param(m, "mask", 2, (int64_t[]){t, t});
    zx_attrs a = zx_attrs_int(&m->mem, (zx_attrs){0}, ZX_A_CAUSAL, causal);
    const uint32_t y = node(m, ZX_OP_ATTENTION, a, in, train_mask ? 4 : 3);
    a = zx_attrs_ints(&m->mem, (zx_attrs){0}, ZX_A_AXES, (int64_t[]){0, 1, 2, 3}, 4);
    m->b.g.loss = node(m, ZX_OP_REDUCE_MEAN, zx_attrs_int(&m->mem, a, ZX_A_KEEPDIMS, 0), &y, 1);
    return finish(m);
}

enum { ROWS = 4000, WIDTH = 16, CLASSES = 16000 };

static void linear_loss(model *m, bool scaled)
{
    memset(m, 0, sizeof *m);
    zx_builder_start(&m->b, &m->mem, "test");
    const zx_type labels = {ZX_I64, {1, {ROWS}}};
    const uint32_t in[] = {param(m, "x", 2, (int64_t[]){ROWS, WIDTH}),
                           param(m, "w", 2, (int64_t[]){CLASSES, WIDTH}),
                           zx_build_input(&m->b, "labels", &labels)};
    m->b.g.loss = node(m, ZX_OP_LINEAR_CROSS_ENTROPY, (zx_attrs){0}, in, 3);
    const uint32_t half[] = {m->b.g.loss, zx_build_scalar(&m->b, ZX_F32, 0.5)};
    if (scaled) m->b.g.loss = node(m, ZX_OP_MUL, (zx_attrs){0}, half, 2);
    assert_zx_ok(finish(m), &m->err);
}

static const zx_node *find(const zx_graph *g, zx_op_id op)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op) return &g->nodes[i];
    fail_msg("no %s", zx_ops[op].word);
    return NULL;
}

static uint64_t largest(const zx_graph *g)
{
    uint64_t most = 0;
    for (uint32_t v = 0; v < g->n_values; v++) {
        const uint64_t bytes = zx_type_bytes(&g->values[v].type);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint64_t scratch(const zx_graph *g, zx_op_id op)
{
    const zx_node *n = find(g, op);
    zx_view in[8] = {0}, out[8] = {0};
    uint64_t bytes = 0;
    void *state = NULL;
    zx_err err = {0};
    for (uint32_t i = 0; i < n->n_in; i++) in[i].type = g->values[zx_node_in(g, n, i)].type;
    for (uint32_t i = 0; i < n->n_out; i++) out[i].type = g->values[zx_node_out(g, n, i)].type;
    const zx_call call = {.op = op,
                          .n_in = n->n_in,
                          .n_out = n->n_out,
                          .in = in,
                          .out = out,
                          .attrs = &n->attrs,
                          .threads = 4};
    assert_zx_ok(zx_cpu_kernel(op)->prepare(&call, &bytes, &state, &err), &err);
    if (zx_cpu_kernel(op)->release != NULL) zx_cpu_kernel(op)->release(state);
    return bytes;
}

static zx_cost cost(const zx_graph *g, zx_op_id op)
{
    const zx_node *n = find(g, op);
    const zx_type *in[8];
    zx_type out[8];
    for (uint32_t i = 0; i < n->n_in; i++) in[i] = &g->values[zx_node_in(g, n, i)].type;
    for (uint32_t i = 0; i < n->n_out; i++) out[i] = g->values[zx_node_out(g, n, i)].type;
    return zx_ops[op].cost(&(zx_op_args){op, &n->attrs, n->n_in, n->n_out, in, out});
}

static void no_scores_of_attention(void **state ZX_UNUSED)
{
    model m;
    uint64_t of_1024[2] = {0};
    for (int64_t t = 1024; t <= 2048; t += 1024) {
        assert_zx_ok(attention(&m, t, true, false), &m.err);
        // q is the largest there is; what is saved beside q, k, v and y is one float a row.
        assert_int_equal(largest(&m.train), BATCH * HEADS * t * SIZE * 4);
        const zx_node *n = find(&m.train, ZX_OP_ATTENTION_GRAD);
        assert_int_equal(n->n_in, 6);
        const uint64_t bytes[] = {scratch(&m.train, ZX_OP_ATTENTION),
                                  scratch(&m.train, ZX_OP_ATTENTION_GRAD)};
        for (uint32_t i = 0; i < 2; i++) {
            assert_true(bytes[i] < (uint64_t)(BATCH * HEADS * t * t));
            if (t == 2048) assert_true(bytes[i] <= 2 * of_1024[i]);
            of_1024[i] = bytes[i];
        }
        zx_arena_free(&m.mem);
    }
}

static void costs_of_attention(void **state ZX_UNUSED)
{
    const double product = 2.0 * BATCH * HEADS * 64 * 64 * SIZE;
    const double q = 4.0 * BATCH * HEADS * 64 * SIZE, k = 4.0 * BATCH * KV_HEADS * 64 * SIZE;
    const double lse = 4.0 * BATCH * HEADS * 64;
    for (int causal = 0; causal < 2; causal++) {
        model m;
        assert_zx_ok(attention(&m, 64, causal, false), &m.err);
        const zx_cost forward = cost(&m.train, ZX_OP_ATTENTION);
        const zx_cost backward = cost(&m.train, ZX_OP_ATTENTION_GRAD);
        assert_true(forward.flops == (causal ? 1 : 2) * product);
        assert_true(backward.flops == (causal ? 2.5 : 5) * product);
        assert_true(forward.bytes == 2 * q + 2 * k + lse);
        assert_true(backward.bytes == 4 * q + 4 * k + lse);
        zx_arena_free(&m.mem);
    }
}

static void no_gradient_of_a_mask(void **state ZX_UNUSED)
{
    model m;
    assert_int_equal(attention(&m, 8, false, true), ZX_E_UNSUPPORTED);
    assert_non_null(strstr(m.err.cause[0], "the mask of an Attention is not differentiable"));
    zx_arena_free(&m.mem);
}

static void no_scores_of_a_linear_layer(void **state ZX_UNUSED)
{
    model m;
    linear_loss(&m, true);
    assert_int_equal(largest(&m.train), CLASSES * WIDTH * 4); // the weight
    assert_true(scratch(&m.train, ZX_OP_LINEAR_CROSS_ENTROPY) < 2 * ROWS * CLASSES);
    assert_true(scratch(&m.train, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD) < 2 * ROWS * CLASSES);
    const double product = 2.0 * ROWS * WIDTH * CLASSES;
    assert_true(cost(&m.train, ZX_OP_LINEAR_CROSS_ENTROPY).flops == product);
    assert_true(cost(&m.train, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD).flops == 3 * product);
    bool found = false; // the labels are seen to be nobody's shifted ones
    assert_false(zx_import_shifts_labels(&m.train, &found));
    assert_true(found);
    zx_arena_free(&m.mem);
}

// Where the loss is all that is wanted, the gradient's is taken: three products, not four.
static void the_loss_comes_from_the_gradient(void **state ZX_UNUSED)
{
    model m;
    linear_loss(&m, false);
    for (uint32_t i = 0; i < m.train.n_nodes; i++)
        assert_int_not_equal(m.train.nodes[i].op, ZX_OP_LINEAR_CROSS_ENTROPY);
    const zx_node *n = find(&m.train, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD);
    assert_int_equal(m.train.loss, zx_node_out(&m.train, n, 0));
    zx_arena_free(&m.mem);
}

// In 16 bits, each new row infers what mixed precision made of its outputs: log-sum-exps and the
// loss stay f32.
static void sixteen_bits(void **state ZX_UNUSED)
{
    static const zx_op_id ops[] = {ZX_OP_ATTENTION, ZX_OP_ATTENTION_GRAD,
                                   ZX_OP_LINEAR_CROSS_ENTROPY, ZX_OP_LINEAR_CROSS_ENTROPY_GRAD};
    for (uint32_t k = 0; k < ZX_COUNT(ops); k++) {
        model m;
        zx_graph g;
        if (k < 2)
            assert_zx_ok(attention(&m, 8, true, false), &m.err);
        else
            linear_loss(&m, true);
        zx_precision_apply(&m.train, ZX_PREC_BF16, &m.mem, &g);
        const zx_node *n = find(&g, ops[k]);
        const zx_type *in[8];
        zx_type out[8];
        for (uint32_t i = 0; i < n->n_in; i++) in[i] = &g.values[zx_node_in(&g, n, i)].type;
        const zx_op_args args = {ops[k], &n->attrs, n->n_in, n->n_out, in, NULL};
        assert_zx_ok(zx_ops[ops[k]].infer(&args, out, &m.err), &m.err);
        for (uint32_t i = 0; i < n->n_out; i++)
            assert_int_equal(out[i].dtype, g.values[zx_node_out(&g, n, i)].type.dtype);
        const bool forward = k == 0 || k == 2;
        assert_int_equal(out[0].dtype, k >= 2 ? ZX_F32 : ZX_BF16);
        if (forward) assert_int_equal(out[1].dtype, ZX_F32);
        zx_arena_free(&m.mem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_scores_of_attention),
        cmocka_unit_test(costs_of_attention),
        cmocka_unit_test(no_gradient_of_a_mask),
        cmocka_unit_test(no_scores_of_a_linear_layer),
        cmocka_unit_test(the_loss_comes_from_the_gradient),
        cmocka_unit_test(sixteen_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

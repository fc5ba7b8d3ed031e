// test_precision.c - which values have 16 bits under mixed precision, and what becomes of
// constants.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/test.h"
#include "tests/op_text.h"

#include "graph/autodiff.h"
#include "graph/import.h"
#include "graph/precision.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"

// A small net of everything that has a rule of its own; values are named after their nodes, further
// outputs "norm.1".
static void make_net(zx_arena *mem, zx_graph *train)
{
    const zx_type x_type = {ZX_F32, {2, {4, 6}}}, row = {ZX_F32, {1, {6}}};
    const zx_type labels_type = {ZX_I64, {1, {4}}}, w_type = {ZX_F32, {2, {6, 6}}};
    const zx_attrs none = {0};
    zx_builder builder, *b = &builder;
    zx_graph forward;
    zx_err err = {0};
    uint32_t out[5];
    zx_builder_start(b, mem, "net");
    uint32_t x = zx_build_input(b, "x", &x_type);
    const uint32_t labels = zx_build_input(b, "labels", &labels_type);
    uint32_t p[5];
    for (uint32_t i = 0; i < 5; i++)
        p[i] = zx_build_param(b, i == 4 ? &w_type : &row,
                              &(zx_param){.name = zx_arena_printf(mem, "p%u", i)});
    const uint32_t mean = zx_build_buffer(b, &row, &(zx_buffer){.name = "mean"}),
                   var = zx_build_buffer(b, &row, &(zx_buffer){.name = "var"});
    b->at_name = "flat";
    x = zx_build1(b, ZX_OP_RESHAPE, op_text_attrs("SHAPE=6,4", mem), 1, x);
    b->at_name = "back";
    x = zx_build1(b, ZX_OP_RESHAPE, op_text_attrs("SHAPE=4,6", mem), 1, x);
    b->at_name = "fc";
    x = zx_build1(b, ZX_OP_MATMUL, none, 2, x, p[4]);
    b->at_name = "batch";
    const uint32_t bn[] = {x, p[0], p[1], mean, var};
    assert_zx_ok(zx_build_node(b, ZX_OP_BATCH_NORM, bn, 5,
                               op_text_attrs("EPSILON=1e-5 MOMENTUM=0.9 UNBIASED=1", mem), NULL,
                               out, &err),
                 &err);
    b->buffers[0].next = out[1];
    b->buffers[1].next = out[2];
    b->at_name = "norm";
    const uint32_t ln[] = {out[0], p[2], p[3]};
    assert_zx_ok(zx_build_node(b, ZX_OP_LAYER_NORM, ln, 3,
                               op_text_attrs("AXIS=1 EPSILON=1e-5", mem), NULL, out, &err),
                 &err);
    b->at_name = "position";
    uint32_t y = zx_build1(b, ZX_OP_CAST, zx_attrs_int(mem, none, ZX_A_TO, ZX_F32), 1, labels);
    b->at_name = "column";
    y = zx_build1(b, ZX_OP_RESHAPE, op_text_attrs("SHAPE=4,1", mem), 1, y);
    b->at_name = "sum";
    x = zx_build1(b, ZX_OP_ADD, none, 2, out[0], y);
    b->at_name = "logits";
    x = zx_build1(b, ZX_OP_MUL, none, 2, x, zx_build_scalar(b, ZX_F32, -3.40282347e38));
    b->at_name = "entropy";
    const uint32_t ce[] = {x, labels};
    assert_zx_ok(zx_build_node(b, ZX_OP_CROSS_ENTROPY, ce, 2,
                               op_text_attrs("REDUCTION=1 IGNORE_INDEX=-100", mem), NULL, out,
                               &err),
                 &err);
    b->at_name = "total";
    b->g.loss = zx_build1(b, ZX_OP_RESHAPE, op_text_attrs("SHAPE=", mem), 1, out[0]);
    zx_builder_done(b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 0.5, mem, train, &err), &err);
}

static const struct value_case {
    const char *name; // of the value
    bool is_16;
} values[] = {
    {"x", false},           {"flat", false},    {"back", false},      {"fc", true},
    {"p0", true},           {"p4", true},       {"mean", false},      {"var", false},
    {"batch", true},        {"batch.1", false}, {"batch.2", false},   {"batch.3", false},
    {"batch.4", false},     {"norm", true},     {"norm.1", false},    {"norm.2", false},
    {"position", true},     {"column", true},   {"sum", true},        {"logits", true},
    {"-3.40282e+38", true}, {"entropy", false}, {"entropy.1", false}, {"total", false},
};

static void test_values(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph train, out;
    make_net(&mem, &train);
    static const zx_dtype types[] = {
        [ZX_PREC_F32] = ZX_F32, [ZX_PREC_BF16] = ZX_BF16, [ZX_PREC_F16] = ZX_F16};
    for (uint32_t p = 0; p < ZX_COUNT(types); p++) {
        zx_precision_apply(&train, (zx_precision)p, &mem, &out);
        assert_int_equal(zx_graph_hash(&out) == zx_graph_hash(&train), p == ZX_PREC_F32);
        for (uint32_t i = 0; i < ZX_COUNT(values); i++) {
            bool found = false;
            for (uint32_t v = 0; v < out.n_values; v++) { // gradients are named alike: forward ones
                const zx_value *x = &out.values[v];
                const bool forward = x->by == ZX_NONE || out.nodes[x->by].phase == ZX_FORWARD;
                if (strcmp(x->name, values[i].name) != 0 || !forward) continue;
                const zx_dtype want = values[i].is_16 ? types[p] : ZX_F32;
                if (x->type.dtype != want)
                    fail_msg("%s is %s", x->name, zx_dtypes[x->type.dtype].word);
                found = true;
            }
            if (!found) fail_msg("no value '%s'", values[i].name);
        }
        for (uint32_t i = 0; i < out.n_nodes; i++)
            if (out.nodes[i].op == ZX_OP_CAST)
                assert_int_equal(zx_attr_int(&out.nodes[i].attrs, ZX_A_TO, -1), types[p]);
    }
    zx_arena_free(&mem);
}

// What must hold of any graph: integers are untouched, a view has the type of what it shows, a
// gradient that of its parameter, a buffer's next value the buffer's.
static void check_whole(const zx_graph *train, const zx_graph *g, zx_dtype t, zx_arena *mem)
{
    const uint32_t *root = zx_graph_roots(g, mem);
    for (uint32_t v = 0; v < g->n_values; v++) {
        const zx_dtype was = train->values[v].type.dtype, is = g->values[v].type.dtype;
        assert_true(is == was || (was == ZX_F32 && is == t));
        assert_int_equal(is, g->values[root[v]].type.dtype);
    }
    for (uint32_t p = 0; p < g->n_params; p++) {
        assert_int_equal(g->values[g->params[p].value].type.dtype, t);
        if (g->params[p].grad != ZX_NONE)
            assert_int_equal(g->values[g->params[p].grad].type.dtype, t);
    }
    for (uint32_t b = 0; b < g->n_buffers; b++) {
        assert_int_equal(g->values[g->buffers[b].value].type.dtype, ZX_F32);
        if (g->buffers[b].next != ZX_NONE)
            assert_int_equal(g->values[g->buffers[b].next].type.dtype, ZX_F32);
    }
    assert_int_equal(g->values[g->loss].type.dtype, ZX_F32);
}

static const char *const models[] = {"gpt2", "bert", "vit", "convnet", "gpt2_hf_loss"};

static void test_model(void **state)
{
    const char *name = *state;
    const zx_bind seq = {"seq", 8};
    const zx_import_options o = {.eval = &zx_cpu_eval,
                                 .micro_batch = 2,
                                 .n_dims = strcmp(name, "gpt2_hf_loss") == 0,
                                 .dims = &seq};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_onnx_file file = {0};
    zx_graph forward, train, out;
    char path[512];
    snprintf(path, sizeof path, ZX_TEST_DATA "/cases/%s/model.onnx", name);
    assert_zx_ok(zx_onnx_open(&file, path, &mem, &err), &err);
    assert_zx_ok(zx_import(&file, &o, &mem, &forward, &notes, &err), &err);
    assert_zx_ok(zx_autodiff(&forward, 1, &mem, &train, &err), &err);
    zx_precision_apply(&train, ZX_PREC_BF16, &mem, &out);
    check_whole(&train, &out, ZX_BF16, &mem);
    zx_onnx_close(&file);
    zx_arena_free(&mem);
}

// The gradient is what the table keeps f32, so the parameter is too: both or neither. (Nothing is
// removed from this graph: its values keep their places.)
static void gradient_stays(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_builder b;
    zx_graph forward, train, out;
    zx_err err = {0};
    const zx_type logits = {ZX_F32, {2, {4, 3}}}, labels = {ZX_I64, {1, {4}}};
    zx_builder_start(&b, &mem, "direct");
    const uint32_t p = zx_build_param(&b, &logits, &(zx_param){.name = "p"});
    const uint32_t q = zx_build_param(&b, &logits, &(zx_param){.name = "q"});
    const uint32_t y = zx_build_input(&b, "labels", &labels);
    const zx_attrs a = op_text_attrs("REDUCTION=1 IGNORE_INDEX=-100", &mem);
    const uint32_t one = zx_build1(&b, ZX_OP_NLL_LOSS, a, 2, p, y);
    const uint32_t neg = zx_build1(&b, ZX_OP_NEG, (zx_attrs){0}, 1, q);
    const uint32_t two = zx_build1(&b, ZX_OP_NLL_LOSS, a, 2, neg, y);
    const uint32_t sum = zx_build1(&b, ZX_OP_ADD, (zx_attrs){0}, 2, one, two);
    b.g.loss = zx_build1(&b, ZX_OP_RESHAPE, op_text_attrs("SHAPE=1", &mem), 1, sum);
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, &mem, &train, &err), &err);
    zx_precision_apply(&train, ZX_PREC_BF16, &mem, &out);
    assert_int_equal(out.values[out.loss].type.dtype, ZX_F32);
    assert_int_equal(out.values[sum].type.dtype, ZX_F32); // whose bytes the loss shows
    static const zx_dtype want[] = {ZX_F32, ZX_BF16};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(out.values[out.params[i].value].type.dtype, want[i]);
        assert_int_equal(out.values[out.params[i].grad].type.dtype, want[i]);
    }
    zx_arena_free(&mem);
}

static const struct number_case {
    float x;
    uint16_t bf16, f16;
} numbers[] = {
    {0, 0, 0},
    {-0.0f, 0x8000, 0x8000},
    {1, 0x3F80, 0x3C00},
    {-2.5f, 0xC020, 0xC100},
    {0x1.01p0f, 0x3F80, 0x3C04}, // half to even
    {0x1.03p0f, 0x3F82, 0x3C0C},
    {65504, 0x4780, 0x7BFF},
    {65520, 0x4780, 0x7BFF}, // the largest finite one, where rounding gives infinity
    {-3.40282347e38f, 0xFF7F, 0xFBFF},
    {INFINITY, 0x7F80, 0x7C00},
    {-INFINITY, 0xFF80, 0xFC00},
};

static void test_numbers(void **state ZX_UNUSED)
{
    const int64_t n = (int64_t)ZX_COUNT(numbers);
    const zx_type type = {ZX_F32, {1, {n + 1}}}, flags = {ZX_BOOL, {1, {1}}};
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g, out;
    char *data = ZX_NEW(&mem, char, sizeof(float) * (ZX_COUNT(numbers) + 2));
    char *odd = data + 1; // constants of a file lie at any address
    for (size_t i = 0; i < ZX_COUNT(numbers); i++)
        memcpy(odd + i * sizeof(float), &numbers[i].x, sizeof(float));
    const float nan = NAN;
    memcpy(odd + ZX_COUNT(numbers) * sizeof(float), &nan, sizeof nan);
    zx_builder_start(&b, &mem, "numbers");
    const uint32_t v = zx_build_const(&b, "c", &type, odd),
                   flag = zx_build_const(&b, "flag", &flags, "\1");
    zx_builder_done(&b, &g);
    zx_precision_apply(&g, ZX_PREC_BF16, &mem, &out);
    const uint16_t *got = out.values[v].data;
    for (size_t i = 0; i < ZX_COUNT(numbers); i++) assert_int_equal(got[i], numbers[i].bf16);
    assert_int_equal(got[n] & 0x7F80, 0x7F80);
    assert_int_not_equal(got[n] & 0x7F, 0);
    assert_ptr_equal(out.values[flag].data, g.values[flag].data);
    zx_precision_apply(&g, ZX_PREC_F16, &mem, &out);
    got = out.values[v].data;
    for (size_t i = 0; i < ZX_COUNT(numbers); i++) assert_int_equal(got[i], numbers[i].f16);
    assert_int_equal(got[n] & 0x7C00, 0x7C00);
    assert_int_not_equal(got[n] & 0x3FF, 0);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(models) + 3];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(models); i++)
        tests[n++] = zx_case(models[i], test_model, models[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_values);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(gradient_stays);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_numbers);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_import.c - what the import makes of whole models: inputs, parameters, ties, buffers, the
// loss, functions and control flow. Each row compares one line that sums the graph up, or the words
// of a refusal, or of a note.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import.h"
#include "runtime/eval.h"
#include "tests/graph/onnx_text.h"

typedef struct row {
    const char *name, *model;
    const char *want; // see sum_up; "!words": refused with these words; "?words": a note says them;
                      // "~words": none does
    const char *more[3]; // branches, bodies, functions
    zx_import_options o;
} row;

static const zx_bind seq_5[] = {{"seq", 5}}, sqe_5[] = {{"sqe", 5}}, seq_0[] = {{"seq", 0}};
static const zx_bind batch_3[] = {{"batch", 3}};
static const zx_input_shape data_7[] = {{.name = "x", .rank = 1, .dim = {7}}};
static const zx_input_shape data_two[] = {{.name = "x", .rank = 2, .dim = {7, 7}}};
static const zx_input_shape data_odd[] = {{.name = "x", .rank = 1, .dim = {7}},
                                          {.name = "z", .rank = 1, .dim = {6}}};
static const char *const only_w[] = {"w"}, *const none_such[] = {"nope*"},
                         *const all_names[] = {"*"}, *const both[] = {"?"};

static const row rows[] = {
#define ROW(...) {__VA_ARGS__},
#include "tests/graph/import.def"
#undef ROW
};

static void put_shape(zx_text *t, const zx_graph *g, uint32_t value)
{
    char buf[ZX_SHAPE_TEXT];
    zx_text_put(t, "%s", zx_shape_text(&g->values[value].type.shape, buf));
}

// "x[2, 3] | w[3, 3]=tied.name | mean* | MatMul' Add | loss": inputs; parameters with their other
// names; buffers, * where they change; operators, ' for each transposed operand; the loss.
static void sum_up(const zx_graph *g, zx_text *t)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        zx_text_put(t, "%s%s", i ? " " : "", g->values[g->inputs[i]].name);
        put_shape(t, g, g->inputs[i]);
    }
    zx_text_put(t, " |");
    for (uint32_t i = 0; i < g->n_params; i++) {
        assert_non_null(g->params[i].why);
        assert_int_equal(g->values[g->params[i].value].role, ZX_R_PARAM);
        assert_int_equal(g->values[g->params[i].value].index, i);
        zx_text_put(t, " %s", g->params[i].name);
        put_shape(t, g, g->params[i].value);
        for (uint32_t k = 0; k < g->params[i].n_aliases; k++)
            zx_text_put(t, "=%s", g->params[i].aliases[k]);
    }
    zx_text_put(t, " |");
    for (uint32_t i = 0; i < g->n_buffers; i++)
        zx_text_put(t, " %s%s", g->buffers[i].name, g->buffers[i].next == ZX_NONE ? "" : "*");
    zx_text_put(t, " |");
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        zx_text_put(t, " %s%s%s", zx_ops[n->op].word,
                    zx_attr_int(&n->attrs, ZX_A_TRANS_A, 0) ? "'" : "",
                    zx_attr_int(&n->attrs, ZX_A_TRANS_B, 0) ? "'" : "");
        for (uint32_t k = 0; k < n->n_out; k++)
            assert_int_equal(g->values[zx_node_out(g, n, k)].by, i);
    }
    zx_text_put(t, " | %s", g->loss == ZX_NONE ? "-" : g->values[g->loss].name);
}

static uint32_t texts(const row *r)
{
    uint32_t n = 0;
    while (n < ZX_COUNT(r->more) && r->more[n]) n++;
    return n;
}

static void test_row(void **state)
{
    const row *r = *state;
    zx_arena mem = {0};
    zx_onnx_file f = {0};
    zx_graph g;
    zx_err err = {0};
    zx_notes notes = {0};
    zx_import_options o = r->o;
    o.eval = &zx_cpu_eval;
    assert_zx_ok(ot_open(&mem, r->model, r->more, texts(r), &f, &err), &err);
    const zx_status st = zx_import(&f, &o, &mem, &g, &notes, &err);
    if (r->want[0] == '!') {
        assert_int_not_equal(st, ZX_OK);
        if (strstr(err.cause[0], r->want + 1) == NULL) fail_msg("it says: %s", err.cause[0]);
    } else if (r->want[0] == '?') {
        assert_zx_ok(st, &err);
        bool said = false;
        for (uint32_t i = 0; i < notes.n; i++) said = said || strstr(notes.text[i], r->want + 1);
        if (!said) fail_msg("%u notes, first: %s", notes.n, notes.n ? notes.text[0] : "");
    } else if (r->want[0] == '~') {
        assert_zx_ok(st, &err);
        for (uint32_t i = 0; i < notes.n; i++)
            if (strstr(notes.text[i], r->want + 1) != NULL) fail_msg("%s", notes.text[i]);
    } else {
        assert_zx_ok(st, &err);
        zx_text t = {0};
        sum_up(&g, &t);
        assert_string_equal(t.at, r->want);
        zx_text_free(&t);
    }
    zx_onnx_close(&f);
    zx_arena_free(&mem);
}

// ---- what one line doesn't show
// ------------------------------------------------------------------------

static void import(zx_arena *mem, const char *text, const zx_import_options *given, zx_graph *g)
{
    zx_onnx_file f = {0};
    zx_err err = {0};
    zx_import_options o = *given;
    o.eval = &zx_cpu_eval;
    assert_zx_ok(ot_open(mem, text, NULL, 0, &f, &err), &err);
    assert_zx_ok(zx_import(&f, &o, mem, g, NULL, &err), &err);
    // Nothing in the graph may live in what the import used for itself; bytes of the file may.
}

static const zx_node *first(const zx_graph *g, zx_op_id op)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (g->nodes[i].op == op) return &g->nodes[i];
    return NULL;
}

#define BATCH_NORM(mode)                                                                           \
    "opset 17;in x f32[4,2];init g f32[2] 1 2;init b f32[2] 3 4;init m f32[2] 0 1;init v f32[2] "  \
    "1;"                                                                                           \
    "y = BatchNormalization(x, g, b, m, v) training_mode=" mode " momentum=0.75;"                  \
    "z = ReduceMean(y) keepdims=0;out z f32"

static void test_batch_norm_form(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    const zx_import_options o = {0};
    import(&mem, BATCH_NORM("0"), &o, &g);
    const zx_node *n = first(&g, ZX_OP_BATCH_NORM);
    assert_non_null(n);
    assert_int_equal(zx_attr_int(&n->attrs, ZX_A_UNBIASED, -1), 1); // promoted: as PyTorch does
    assert_float_equal(zx_attr_float(&n->attrs, ZX_A_MOMENTUM, 0), 0.75, 0);
    assert_int_equal(g.buffers[0].next, zx_node_out(&g, n, 1));
    assert_int_equal(g.buffers[1].next, zx_node_out(&g, n, 2));
    import(&mem, BATCH_NORM("1"), &o, &g);
    n = first(&g, ZX_OP_BATCH_NORM);
    assert_int_equal(zx_attr_int(&n->attrs, ZX_A_UNBIASED, -1), 0); // ONNX's population variance
    zx_arena_free(&mem);
}

static void test_statistics_of_a_module_called_twice(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    const zx_import_options o = {0};
    import(&mem,
           "opset 17;in x f32[4,2];init g f32[2] 1 2;init b f32[2] 3 4;init m f32[2] 0 1;"
           "init v f32[2] 1;y = BatchNormalization(x, g, b, m, v);"
           "w = BatchNormalization(y, g, b, m, v);z = ReduceMean(w) keepdims=0;out z f32",
           &o, &g);
    assert_int_equal(g.n_buffers, 2);
    const zx_node *one = &g.nodes[0], *two = &g.nodes[1];
    assert_int_equal(zx_node_in(&g, one, 3), g.buffers[0].value);
    assert_int_equal(zx_node_in(&g, two, 3), zx_node_out(&g, one, 1));
    assert_int_equal(g.buffers[0].next, zx_node_out(&g, two, 1));
    zx_arena_free(&mem);
}

static void test_masks_stay_small(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    const zx_import_options o = {0};
    // Two layers that each expand the same mask over the batch: one constant without the batch.
    import(&mem,
           "in x f32[8,1,16,16];param w f32[16,16] ..;const m f32[1,1,16,16] ..;const s i64[4] 8 1 "
           "16 16;"
           "e = Expand(m, s);f = Expand(m, s);a = MatMul(x, w);b = Add(a, e);c = MatMul(b, w);"
           "d = Add(f, c);l = ReduceMean(d) keepdims=0;out l f32",
           &o, &g);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g.n_values; i++) {
        if (g.values[i].role != ZX_R_CONST) continue;
        n++;
        assert_int_equal(zx_shape_count(&g.values[i].type.shape), 16 * 16);
    }
    assert_int_equal(n, 1);
    zx_arena_free(&mem);
}

static void test_sources(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    const zx_import_options o = {0};
    import(&mem,
           "in x f32[2];param w f32[2] 1 2;dead = Neg(x) @m.unused;c = Constant() value_int=1;"
           "mul: y = Mul(x, w) @m.h.0;l = ReduceSum(y) keepdims=0;out l f32",
           &o, &g);
    assert_int_equal(g.n_sources, 4); // as imported: nothing folded, nothing dead left out
    assert_string_equal(g.sources[0].op, "Neg");
    const zx_source *s = &g.sources[2];
    assert_string_equal(s->name, "mul");
    assert_string_equal(s->in[1], "w");
    assert_string_equal(s->out[0], "y");
    assert_int_equal(s->n_scopes, 4);
    assert_string_equal(s->scopes[0], "");
    assert_string_equal(s->scopes[3], "m.h.0");
    assert_int_equal(first(&g, ZX_OP_MUL)->source, 2);
    assert_string_equal(zx_node_module(&g, first(&g, ZX_OP_MUL), &mem), "m.h.0");
    zx_arena_free(&mem);
}

static void test_weights_that_nodes_make(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    const zx_import_options o = {.seed = 7};
    import(&mem,
           "in x f32[2,3];in labels i64[2];w = RandomNormal() shape=[3,4] scale=0.5 mean=0.25;"
           "n = Constant() value_ints=[4];b = ConstantOfShape(n) value=<f32[1] 2>;"
           "mask = ConstantOfShape(n) value=<f32[1] 0>;h = Gemm(x, w, b);k = Add(h, h);"
           "q = Max(k, mask);l = SoftmaxCrossEntropyLoss(q, labels);out l f32",
           &o, &g);
    assert_int_equal(g.n_params, 2);
    assert_string_equal(g.params[0].name, "w");
    assert_int_equal(g.params[0].init.kind, ZX_INIT_NORMAL);
    assert_float_equal(g.params[0].init.a, 0.25, 0);
    assert_float_equal(g.params[0].init.b, 0.5, 0);
    assert_int_equal(g.params[0].init.seed, 7);
    assert_int_equal(g.params[1].init.kind, ZX_INIT_FILL);
    assert_float_equal(g.params[1].init.a, 2, 0);
    zx_arena_free(&mem);
}

#define LABELS(way)                                                                                \
    "in x f32[2,4,5];in labels i64[2,4];init w f32[5] 1 2 3 4 5;y = Mul(x, w);const p i64[4] 0 0 " \
    "0 1;"                                                                                         \
    "const m i64 -100;const s i64[1] 1;const e i64[1] 5;const a i64[1] 1;const r i64[1] -1;"       \
    "const q i64[2] -1 5;" way "f = Reshape(t, r);g = Reshape(y, q);"                              \
    "l = SoftmaxCrossEntropyLoss(g, f) ignore_index=-100;out l f32;param u f32[1] 1;param w2 "     \
    "f32[1] 1"

static void test_shifted_labels(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    const zx_import_options o = {.n_parameters = 1, .parameters = only_w};
    bool found;
    import(&mem, LABELS("t = Identity(labels);"), &o, &g);
    assert_false(zx_import_shifts_labels(&g, &found));
    assert_true(found);
    import(&mem, LABELS("d = Pad(labels, p, m);t = Slice(d, s, e, a);"), &o, &g);
    assert_true(zx_import_shifts_labels(&g, &found));
    assert_true(found);
    import(&mem,
           "in x f32[2];init w f32[2] 1 2;y = Mul(x, w);l = ReduceSum(y) keepdims=0;out l f32",
           &(zx_import_options){0}, &g);
    assert_false(zx_import_shifts_labels(&g, &found));
    assert_false(found);
    zx_arena_free(&mem);
}

static void test_many_causes(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_onnx_file f = {0};
    zx_graph g;
    zx_err err = {0};
    const zx_import_options o = {.eval = &zx_cpu_eval};
    // Each refused node is named once; what only reads refused ones says nothing; dead ones don't
    // count.
    assert_zx_ok(
        ot_open(&mem,
                "in x f32[2];init w f32[2] 1 2;a: p = Foo(x);b: q = Bar(w);dead: d = Baz(x);"
                "c: y = Mul(p, q);l = ReduceSum(y) keepdims=0;out l f32",
                NULL, 0, &f, &err),
        &err);
    assert_int_equal(zx_import(&f, &o, &mem, &g, NULL, &err), ZX_E_UNSUPPORTED);
    assert_int_equal(err.n_causes, 2);
    assert_non_null(strstr(err.cause[0], "node 'a'"));
    assert_non_null(strstr(err.cause[1], "node 'b'"));
    assert_int_not_equal(err.hint[0], 0);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
}

static void test_inputs(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_onnx_file f = {0};
    zx_err err = {0};
    uint32_t n;
    zx_input_decl *in;
    assert_zx_ok(ot_open(&mem, "in w f32[2];in x i64[batch,?,3];init w f32[2] 1 2;y = Neg(w);out y",
                         NULL, 0, &f, &err),
                 &err);
    assert_zx_ok(zx_import_inputs(&f, &mem, &n, &in, &err), &err);
    assert_int_equal(n, 1); // w is an initialiser
    assert_string_equal(in[0].name, "x");
    assert_int_equal(in[0].dtype, ZX_I64);
    assert_int_equal(in[0].rank, 3);
    assert_int_equal(in[0].dim[0], -1);
    assert_string_equal(in[0].symbol[0], "batch");
    assert_string_equal(in[0].symbol[1], "");
    assert_int_equal(in[0].dim[2], 3);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_batch_norm_form),
        cmocka_unit_test(test_statistics_of_a_module_called_twice),
        cmocka_unit_test(test_masks_stay_small),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_weights_that_nodes_make),
        cmocka_unit_test(test_shifted_labels),
        cmocka_unit_test(test_many_causes),
        cmocka_unit_test(test_inputs),
    };
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(others)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    memcpy(tests + ZX_COUNT(rows), others, sizeof others);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

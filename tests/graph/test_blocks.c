// test_blocks.c - which block each node belongs to, from module paths as exporters write them.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "tests/test.h"

#include "graph/autodiff.h"
#include "graph/blocks.h"
#include "graph/build_model.h"
#include "graph/import.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"

#define MOST 8

// Nodes in a line, each multiplying the one before it with a parameter of its own.
static const struct line_case {
    const char *name;
    const char *scope[MOST]; // innermost module of each node; "?": the exporter didn't know;
                             // "!name": not imported, a node of this name
    uint32_t want[MOST];
    const char *blocks; // their names, in order
} lines[] = {
    {"layers of a model",
     {"model.embed", "model.layers.0.attn", "model.layers.0", "model.layers.1.mlp", "model.norm"},
     {ZX_NONE, 0, 0, 1, ZX_NONE},
     "model.layers.0 model.layers.1"},
    {"in order of use, not of index",
     {"h.10", "h.9.a", "h.2", "h.10.b", ""},
     {0, 1, 2, 0, ZX_NONE},
     "h.10 h.9 h.2"},
    {"one layer is not repeated", {"h.0", "h.0.a", "norm"}, {ZX_NONE, ZX_NONE, ZX_NONE}, ""},
    {"two lists",
     {"encoder.layer.0", "encoder.layer.1", "decoder.layer.0.a", "decoder.layer.1"},
     {0, 1, 2, 3},
     "encoder.layer.0 encoder.layer.1 decoder.layer.0 decoder.layer.1"},
    {"experts within a layer are no blocks",
     {"layers.0.experts.0", "layers.0.experts.1", "layers.1.experts.0"},
     {0, 0, 1},
     "layers.0 layers.1"},
    {"a list within one that is not repeated",
     {"m.0.h.0", "m.0.h.1.a", "m.0.h.1.b", "m.0"},
     {0, 1, 1, ZX_NONE},
     "m.0.h.0 m.0.h.1"},
    {"a sequence at the top", {"0", "1", "1.a"}, {0, 1, 1}, "0 1"},
    {"a module that is called twice",
     {"h.0@1.a@2", "h.1", "h.0@2", "h.1@1"},
     {0, 1, 0, 1},
     "h.0 h.1"},
    {"no index: a part is digits or it isn't",
     {"ln_1", "ln_2", "conv2d.a", "layer1.b", "layer2.1x"},
     {ZX_NONE, ZX_NONE, ZX_NONE, ZX_NONE, ZX_NONE},
     ""},
    {"unknown: where all producers are", {"h.0", "?", "?", "h.1", "?"}, {0, 0, 0, 1, 1}, "h.0 h.1"},
    {"unknown at the start", {"?", "h.0", "h.1"}, {ZX_NONE, 0, 1}, "h.0 h.1"},
    {"unknown after the outside", {"h.0", "h.1", "norm", "?"}, {0, 1, ZX_NONE, ZX_NONE}, "h.0 h.1"},
    {"names of nodes",
     {"!h.0/attn/MatMul", "!/h.0/add", "!h.1.mlp", "!loss"},
     {0, 0, 1, ZX_NONE},
     "h.0 h.1"},
};

static void set_source(zx_builder *b, const char *scope)
{
    static const char *const unknown = "_empty_nn_module_stack_from_metadata_hook";
    b->at_name = scope[0] == '!' ? scope + 1 : zx_arena_printf(b->mem, "node%u", b->g.n_nodes);
    b->at_source = ZX_NONE;
    if (scope[0] == '!') return;
    const char **scopes = ZX_NEW(b->mem, const char *, 2);
    scopes[0] = "";
    scopes[1] = scope[0] == '?' ? unknown : scope;
    ZX_GROW(b->mem, b->sources, b->g.n_sources, b->cap_sources);
    b->sources[b->g.n_sources] = (zx_source){.op = "Mul", .n_scopes = 2, .scopes = scopes};
    b->at_source = b->g.n_sources++;
}

static void test_line(void **state)
{
    const struct line_case *row = *state;
    const zx_type type = {ZX_F32, {1, {4}}};
    zx_arena mem = {0};
    zx_builder b;
    zx_graph forward, train;
    zx_err err = {0};
    zx_builder_start(&b, &mem, "line");
    uint32_t x = zx_build_input(&b, "x", &type), n = 0;
    for (; n < MOST && row->scope[n] != NULL; n++) {
        const zx_param p = {.name = zx_arena_printf(&mem, "w%u", n)};
        set_source(&b, row->scope[n]);
        x = zx_build1(&b, ZX_OP_MUL, (zx_attrs){0}, 2, x, zx_build_param(&b, &type, &p));
    }
    const zx_attrs sum = zx_attrs_ints(&mem, (zx_attrs){0}, ZX_A_AXES, (int64_t[]){0}, 1);
    set_source(&b, "!loss");
    b.g.loss = zx_build1(&b, ZX_OP_REDUCE_SUM, zx_attrs_int(&mem, sum, ZX_A_KEEPDIMS, 0), 1, x);
    zx_builder_done(&b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1, &mem, &train, &err), &err);
    const zx_graph *const graphs[] = {&forward, &train};
    for (uint32_t k = 0; k < 2; k++) {
        const zx_graph *g = graphs[k];
        zx_blocks got;
        zx_text names = {0};
        zx_blocks_make(g, &mem, &got);
        for (uint32_t i = 0; i < got.n; i++)
            zx_text_put(&names, "%s%s", i > 0 ? " " : "", got.names[i]);
        assert_string_equal(got.n > 0 ? names.at : "", row->blocks);
        zx_text_free(&names);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(got.of_node[i], row->want[i]);
            assert_int_equal(got.of_param[i], row->want[i]);
        }
        uint32_t backward = 0; // nodes, named after their forward nodes
        for (uint32_t i = n; i < g->n_nodes; i++)
            for (uint32_t from = 0; from < n; from++) {
                if (strcmp(g->nodes[i].name, g->nodes[from].name) != 0) continue;
                assert_int_equal(got.of_node[i], row->want[from]);
                backward++;
            }
        assert_true(k == 0 || backward >= n);
    }
    zx_arena_free(&mem);
}

// A parameter that several blocks read, or a block and the head, is of none of them.
static void shared_parameters(void **state ZX_UNUSED)
{
    const zx_type type = {ZX_F32, {1, {4}}};
    static const char *const scopes[] = {"h.0", "h.1", "h.1", "head"};
    static const uint32_t reads[][2] = {{0, 1}, {1, 2}, {2, 3}, {3, 4}}; // parameters, by node
    static const uint32_t want[] = {0, ZX_NONE, 1, ZX_NONE, ZX_NONE, ZX_NONE};
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g;
    zx_blocks got;
    zx_builder_start(&b, &mem, "shared");
    uint32_t p[6];
    for (uint32_t i = 0; i < 6; i++)
        p[i] = zx_build_param(&b, &type, &(zx_param){.name = zx_arena_printf(&mem, "w%u", i)});
    for (uint32_t i = 0; i < 4; i++) {
        set_source(&b, scopes[i]);
        zx_build1(&b, ZX_OP_MUL, (zx_attrs){0}, 2, p[reads[i][0]], p[reads[i][1]]);
    }
    zx_builder_done(&b, &g);
    zx_blocks_make(&g, &mem, &got);
    for (uint32_t i = 0; i < 6; i++) assert_int_equal(got.of_param[i], want[i]);
    zx_arena_free(&mem);
}

// A node of unknown module between two blocks belongs to neither.
static void producers_disagree(void **state ZX_UNUSED)
{
    const zx_type type = {ZX_F32, {1, {4}}};
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g;
    zx_blocks got;
    zx_builder_start(&b, &mem, "two");
    uint32_t x = zx_build_input(&b, "x", &type), y;
    set_source(&b, "h.0");
    x = zx_build1(&b, ZX_OP_NEG, (zx_attrs){0}, 1, x);
    set_source(&b, "h.1");
    y = zx_build1(&b, ZX_OP_NEG, (zx_attrs){0}, 1, x);
    set_source(&b, "?");
    zx_build1(&b, ZX_OP_ADD, (zx_attrs){0}, 2, x, y);
    zx_builder_done(&b, &g);
    zx_blocks_make(&g, &mem, &got);
    assert_int_equal(got.of_node[1], 1);
    assert_int_equal(got.of_node[2], ZX_NONE);
    zx_arena_free(&mem);
}

// Real models: every layer has the same nodes and parameters.
static const struct model_case {
    const char *name, *family, *file;
    uint32_t n, n_params; // blocks, and parameters in each
    const char *last;
} models[] = {
    {"new gpt2", "gpt2", NULL, 2, 12, "transformer.h.1"},
    {"new llama", "llama", NULL, 2, 9, "model.layers.1"},
    {"bert by torch", NULL, "bert", 2, 16, "m.bert.encoder.layer.1"},
    {"gpt2 by torch", NULL, "gpt2", 4, 12, "m.transformer.h.3"},
    {"vit by torch", NULL, "vit", 2, 16, "m.vit.layers.1"},
};

static void test_model(void **state)
{
    const struct model_case *row = *state;
    const zx_new_options new = {.sequence = 8, .batch = 2};
    const zx_import_options o = {.eval = &zx_cpu_eval, .micro_batch = 2};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_text bytes = {0};
    zx_notes notes = {0};
    zx_onnx_file file = {0};
    zx_graph forward, train;
    zx_blocks got;
    char path[512];
    snprintf(path, sizeof path, ZX_TEST_DATA "/cases/%s/model.onnx", row->file ? row->file : "");
    if (row->family != NULL)
        assert_zx_ok(zx_new_model(row->family, NULL, &new, &bytes, &err), &err);
    assert_zx_ok(row->family != NULL
                     ? zx_onnx_open_bytes(&file, "new", bytes.at, bytes.n, &mem, &err)
                     : zx_onnx_open(&file, path, &mem, &err),
                 &err);
    assert_zx_ok(zx_import(&file, &o, &mem, &forward, &notes, &err), &err);
    assert_zx_ok(zx_autodiff(&forward, 1, &mem, &train, &err), &err);
    zx_blocks_make(&train, &mem, &got);
    assert_int_equal(got.n, row->n);
    assert_string_equal(got.names[got.n - 1], row->last);
    uint32_t n_params[8] = {0}, n_nodes[2][8] = {{0}}, outside[2] = {0};
    for (uint32_t p = 0; p < train.n_params; p++)
        if (got.of_param[p] != ZX_NONE) n_params[got.of_param[p]]++;
    for (uint32_t i = 0; i < train.n_nodes; i++) {
        const uint32_t phase = train.nodes[i].phase;
        if (got.of_node[i] != ZX_NONE)
            n_nodes[phase][got.of_node[i]]++;
        else
            outside[phase]++;
    }
    assert_true(outside[ZX_FORWARD] > 2 && outside[ZX_BACKWARD] > 2);
    for (uint32_t i = 0; i < got.n; i++) {
        assert_int_equal(n_params[i], row->n_params);
        assert_int_equal(n_nodes[ZX_FORWARD][i], n_nodes[ZX_FORWARD][0]);
        assert_int_equal(n_nodes[ZX_BACKWARD][i], n_nodes[ZX_BACKWARD][0]);
    }
    zx_onnx_close(&file);
    zx_text_free(&bytes);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(lines) + ZX_COUNT(models) + 2];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(lines); i++)
        tests[n++] = zx_case(lines[i].name, test_line, &lines[i]);
    for (size_t i = 0; i < ZX_COUNT(models); i++)
        tests[n++] = zx_case(models[i].name, test_model, &models[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(shared_parameters);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(producers_disagree);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_build_model.c - `zerox new`: the models are whole, named as published ones are, and import.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "graph/build_model.h"
#include "graph/import.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"

static const struct model_case {
    const char *name, *family, *preset;
    zx_new_options o;
    uint32_t n_params;  // tensors
    int64_t n_elements; // of all parameters
    const char *param;  // one of them
    zx_shape shape;     // and its shape
    zx_init_kind kind;  // how it begins
    double a, b;
} cases[] = {
    {"gpt2 tiny",
     "gpt2",
     "tiny",
     {0},
     28,
     120576,
     "transformer.h.1.attn.c_attn.weight",
     {2, {64, 192}},
     ZX_INIT_NORMAL,
     0,
     0.02},
    {"gpt2 124m",
     "gpt2",
     "124m",
     {.batch = 1, .sequence = 8},
     148,
     124439808,
     "transformer.h.11.mlp.c_proj.weight",
     {2, {3072, 768}},
     ZX_INIT_NORMAL,
     0,
     0.02 / 4.898979486},
    {"gpt2, sizes set",
     "gpt2",
     "tiny",
     {.layers = 3, .width = 48, .heads = 2, .vocab = 100, .sequence = 128},
     40,
     95856,
     "transformer.wpe.weight",
     {2, {128, 48}},
     ZX_INIT_NORMAL,
     0,
     0.02},
    {"gpt2, a norm's weight",
     "gpt2",
     NULL,
     {.sequence = ZX_NEW_SYMBOLIC},
     28,
     120576,
     "transformer.ln_f.weight",
     {1, {64}},
     ZX_INIT_FILL,
     1,
     0},
    {"llama tiny",
     "llama",
     "tiny",
     {0},
     21,
     125248,
     "model.layers.0.self_attn.k_proj.weight",
     {2, {32, 64}},
     ZX_INIT_NORMAL,
     0,
     0.02},
    {"llama, one head a group",
     "llama",
     "tiny",
     {.kv_heads = 4},
     21,
     133440,
     "model.layers.1.mlp.down_proj.weight",
     {2, {64, 176}},
     ZX_INIT_NORMAL,
     0,
     0.02},
    {"llama, heads set",
     "llama",
     "tiny",
     {.heads = 8, .sequence = ZX_NEW_SYMBOLIC},
     21,
     125248,
     "lm_head.weight",
     {2, {256, 64}},
     ZX_INIT_NORMAL,
     0,
     0.02},
    {"llama 1b, tied",
     "llama",
     "1b",
     {.layers = 1, .width = 64, .vocab = 300, .sequence = 8},
     11,
     78784,
     "model.embed_tokens.weight",
     {2, {300, 64}},
     ZX_INIT_NORMAL,
     0,
     0.02},
    {"mlp",
     "mlp",
     NULL,
     {0},
     6,
     26122,
     "layers.0.weight",
     {2, {128, 64}},
     ZX_INIT_NORMAL,
     0,
     0.17677669},
    {"mlp, sizes set",
     "mlp",
     "digits",
     {.layers = 1, .width = 7, .inputs = 5, .vocab = 3, .batch = 4},
     4,
     66,
     "layers.1.bias",
     {1, {3}},
     ZX_INIT_FILL,
     0,
     0},
};

static void build(const struct model_case *c, zx_text *bytes, zx_onnx_file *f, zx_arena *mem)
{
    zx_err err = {0};
    assert_zx_ok(zx_new_model(c->family, c->preset, &c->o, bytes, &err), &err);
    assert_zx_ok(zx_onnx_open_bytes(f, "new.onnx", bytes->at, bytes->n, mem, &err), &err);
}

static bool made_before(const Onnx__GraphProto *g, size_t node, const char *name)
{
    for (size_t i = 0; i < g->n_input; i++)
        if (strcmp(g->input[i]->name, name) == 0) return true;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0) return true;
    for (size_t i = 0; i < node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            if (strcmp(g->node[i]->output[k], name) == 0) return true;
    return false;
}

// Every name is made once and before it is read, nodes have names of their own and a module.
static void test_whole(void **state)
{
    const struct model_case *c = *state;
    zx_arena mem = {0};
    zx_text bytes = {0}, again = {0};
    zx_err err = {0};
    zx_onnx_file f;
    build(c, &bytes, &f, &mem);
    const Onnx__GraphProto *g = f.model->graph;
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *n = g->node[i];
        for (size_t k = 0; k < n->n_input; k++)
            if (n->input[k][0] != '\0' && !made_before(g, i, n->input[k]))
                fail_msg("node '%s' reads '%s', which nobody made", n->name, n->input[k]);
        for (size_t k = 0; k < n->n_output; k++)
            if (made_before(g, i, n->output[k])) fail_msg("'%s' is made twice", n->output[k]);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(g->node[k]->name, n->name);
        const bool maker = n->n_output == 1 && strstr(n->name, "/init") != NULL;
        assert_true(maker || zx_onnx_meta(n->metadata_props, n->n_metadata_props,
                                          "pkg.torch.onnx.name_scopes") != NULL);
    }
    assert_true(made_before(g, g->n_node, "loss"));
    // The same sizes are the same bytes.
    assert_zx_ok(zx_new_model(c->family, c->preset, &c->o, &again, &err), &err);
    assert_int_equal(bytes.n, again.n);
    assert_memory_equal(bytes.at, again.at, bytes.n);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&bytes);
    zx_text_free(&again);
}

static void test_import(void **state)
{
    const struct model_case *c = *state;
    zx_arena mem = {0};
    zx_text bytes = {0};
    zx_err err = {0};
    zx_onnx_file f;
    zx_graph g;
    zx_notes notes = {0};
    build(c, &bytes, &f, &mem);
    const zx_bind dims[] = {{"sequence", 16}};
    const zx_import_options o = {.eval = &zx_cpu_eval,
                                 .micro_batch = 2,
                                 .n_dims = c->o.sequence == ZX_NEW_SYMBOLIC,
                                 .dims = dims,
                                 .seed = 3};
    assert_zx_ok(zx_import(&f, &o, &mem, &g, &notes, &err), &err);
    int64_t elements = 0;
    const zx_param *found = NULL;
    for (uint32_t i = 0; i < g.n_params; i++) {
        elements += zx_shape_count(&g.values[g.params[i].value].type.shape);
        if (strcmp(g.params[i].name, c->param) == 0) found = &g.params[i];
    }
    assert_int_equal(g.n_params, c->n_params);
    assert_int_equal(elements, c->n_elements);
    assert_int_equal(g.n_buffers, 0);
    assert_non_null(found);
    assert_true(zx_shape_equal(&g.values[found->value].type.shape, &c->shape));
    assert_int_equal(found->init.kind, c->kind);
    assert_true(fabs(found->init.a - c->a) < 1e-6 && fabs(found->init.b - c->b) < 1e-6);
    assert_int_equal(g.values[g.loss].type.shape.rank, 0);
    // Masks and rotary tables are constants: nothing that makes them is left.
    for (uint32_t i = 0; i < g.n_nodes; i++)
        assert_true(g.nodes[i].op != ZX_OP_COS && g.nodes[i].op != ZX_OP_GREATER_EQUAL &&
                    g.nodes[i].op != ZX_OP_WHERE);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&bytes);
}

static const struct bad_case {
    const char *name, *family, *preset;
    zx_new_options o;
    const char *want, *hint;
} bad[] = {
    {"unknown family", "gtp2", NULL, {0}, "no family 'gtp2'", "gpt2"},
    {"unknown preset", "gpt2", "124", {0}, "gpt2 has no preset '124'", "124m"},
    {"another family's preset", "mlp", "124m", {0}, "mlp has no preset", ""},
    {"a size that it doesn't have", "mlp", NULL, {.heads = 2}, "mlp has no heads", ""},
    {"heads that don't divide", "gpt2", NULL, {.heads = 5}, "width 64 isn't a multiple of 5", ""},
    {"kv_heads that don't divide", "llama", NULL, {.kv_heads = 3}, "multiple of 3 kv_heads", ""},
    {"odd heads", "llama", NULL, {.width = 60, .heads = 4}, "must be even", ""},
    {"sequence beyond context", "gpt2", NULL, {.context = 8, .sequence = 9}, "exceeds", ""},
    {"negative", "gpt2", NULL, {.layers = -1}, "layers is 1 to", ""},
    {"too large", "gpt2", NULL, {.width = INT64_MAX}, "width is 1 to", ""},
};

static void test_bad(void **state)
{
    const struct bad_case *c = *state;
    zx_text bytes = {0};
    zx_err err = {0};
    assert_int_equal(zx_new_model(c->family, c->preset, &c->o, &bytes, &err), ZX_E_USAGE);
    if (strstr(err.cause[0], c->want) == NULL) fail_msg("'%s'", err.cause[0]);
    if (strstr(err.hint, c->hint) == NULL) fail_msg("hint '%s'", err.hint);
    assert_int_equal(bytes.n, 0);
}

static void test_set(void **state ZX_UNUSED)
{
    zx_new_options o = {0};
    zx_err err = {0};
    assert_zx_ok(zx_new_set(&o, "width", 96, &err), &err);
    assert_int_equal(o.width, 96);
    assert_zx_ok(zx_new_set(&o, "sequence", 0, &err), &err);
    assert_int_equal(o.sequence, ZX_NEW_SYMBOLIC);
    assert_zx_ok(zx_new_set(&o, "batch", 0, &err), &err);
    assert_int_equal(zx_new_set(&o, "widht", 96, &err), ZX_E_USAGE);
    assert_string_equal(err.hint, "width=96");
    err = (zx_err){0};
    assert_int_equal(zx_new_set(&o, "layers", 0, &err), ZX_E_USAGE);
    assert_int_equal(zx_new_set(&o, "layers", INT64_MAX, &err), ZX_E_USAGE);
}

// Every preset can be built; its list line tells the parameters.
static void test_list(void **state ZX_UNUSED)
{
    zx_text list = {0};
    zx_new_list(&list);
    uint32_t n = 0;
    for (const char *line = strchr(list.at, '\n') + 1; *line != '\n';
         line = strchr(line, '\n') + 1, n++) {
        char family[16], preset[16];
        zx_text bytes = {0};
        zx_err err = {0};
        const zx_new_options o = {0};
        assert_int_equal(sscanf(line, "%15s %15s", family, preset), 2);
        assert_zx_ok(zx_new_model(family, preset, &o, &bytes, &err), &err);
        assert_true(bytes.n > 1000);
        zx_text_free(&bytes);
    }
    assert_true(n >= 10);
    assert_non_null(strstr(list.at, "gpt2   124m       124M parameters"));
    zx_text_free(&list);
}

// The seed is in the file, another for each weight; without one there is none.
static void test_seed(void **state ZX_UNUSED)
{
    for (uint64_t seed = 0; seed < 2; seed++) {
        const struct model_case c = {.family = "mlp", .o = {.seed = seed}};
        zx_arena mem = {0};
        zx_text bytes = {0};
        zx_onnx_file f;
        float seen[8];
        uint32_t n = 0;
        build(&c, &bytes, &f, &mem);
        const Onnx__GraphProto *g = f.model->graph;
        for (size_t i = 0; i < g->n_node; i++)
            for (size_t k = 0; k < g->node[i]->n_attribute; k++)
                if (strcmp(g->node[i]->attribute[k]->name, "seed") == 0)
                    seen[n++] = g->node[i]->attribute[k]->f;
        assert_int_equal(n, seed == 0 ? 0 : 3);
        if (n == 3) assert_true(seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2]);
        zx_onnx_close(&f);
        zx_arena_free(&mem);
        zx_text_free(&bytes);
    }
}

int main(void)
{
    struct CMUnitTest tests[2 * ZX_COUNT(cases) + ZX_COUNT(bad) + 3];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, test_whole, &cases[i]);
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, test_import, &cases[i]);
    for (uint32_t i = 0; i < ZX_COUNT(bad); i++)
        tests[n++] = zx_case(bad[i].name, test_bad, &bad[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_set);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_list);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_preset.c - the presets: parameters counted, modules called in Hugging Face's order, products
// of the right size, and small models of their form computing what plain operators compute.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "graph/autodiff.h"
#include "graph/import.h"
#include "graph/preset_net.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"
#include "sched/hooks.h"

typedef struct model {
    zx_arena mem;
    zx_onnx_file file;
    zx_text bytes;
    zx_graph forward, train;
    zx_notes notes;
    zx_err err;
} model;

static void import(model *m)
{
    const zx_import_options o = {.eval = &zx_cpu_eval, .micro_batch = 1};
    assert_zx_ok(
        zx_onnx_open_bytes(&m->file, "preset.onnx", m->bytes.at, m->bytes.n, &m->mem, &m->err),
        &m->err);
    assert_zx_ok(zx_import(&m->file, &o, &m->mem, &m->forward, &m->notes, &m->err), &m->err);
    zx_graph t;
    assert_zx_ok(zx_autodiff(&m->forward, 1, &m->mem, &t, &m->err), &m->err);
    zx_simplify(&t, &m->mem, &m->train);
}

static void close_model(model *m)
{
    zx_onnx_close(&m->file);
    zx_text_free(&m->bytes);
    zx_arena_free(&m->mem);
}

static int64_t count_of(const zx_graph *g, uint32_t value)
{
    return zx_shape_count(&g->values[value].type.shape);
}

// ---- the table ----------------------------------------------------------------------------------

// Llama: 2 V C + L (2 C² + 2 C K + 3 C F + 2 C) + C; Mixtral has 8 times 3 C F and 8 C of a router,
// of which 6 times 3 C F are idle; GPT: (V + 2048) C + L (12 C² + 13 C) + 2 C.
static const struct size_row {
    const char *name;
    int64_t sequence;
    uint64_t params, active, embedding;
    const char *param; // one of them
    zx_shape shape;
} sizes[] = {
    {"llama3-8b",
     1024,
     8030261248,
     8030261248,
     525336576,
     "model.layers.31.self_attn.k_proj.weight",
     {2, {1024, 4096}}},
    {"llama3-70b",
     1024,
     70553706496,
     70553706496,
     1050673152,
     "model.layers.79.mlp.down_proj.weight",
     {2, {8192, 28672}}},
    {"llama3-405b",
     1024,
     405853388800,
     405853388800,
     2101346304,
     "model.layers.125.mlp.down_proj.weight",
     {2, {16384, 53248}}},
    {"mixtral-8x7b",
     1024,
     46702792704,
     12879925248,
     131072000,
     "model.layers.31.block_sparse_moe.experts.7.w2.weight",
     {2, {4096, 14336}}},
    {"gpt3-175b",
     2048,
     174604259328,
     174604259328,
     0,
     "transformer.h.95.attn.c_attn.weight",
     {2, {12288, 36864}}},
    {"gpt-1t",
     2048,
     1008038758400,
     1008038758400,
     0,
     "transformer.h.127.mlp.c_fc.bias",
     {1, {102400}}},
};

static void test_sizes(void **state)
{
    const struct size_row *row = *state;
    const zx_preset_sizes s = {.sequence = row->sequence, .batch = 2};
    zx_preset_info info;
    model m = {0};
    assert_zx_ok(zx_preset_make(row->name, &s, &m.bytes, &info, &m.err), &m.err);
    assert_true(m.bytes.n < 2 << 20);
    assert_string_equal(info.name, row->name);
    assert_int_equal(info.params, row->params);
    assert_int_equal(info.active_params, row->active);
    assert_int_equal(info.embedding_params, row->embedding);
    import(&m);
    const zx_graph *g = &m.train;
    uint64_t elements = 0;
    const zx_param *found = NULL;
    for (uint32_t i = 0; i < g->n_params; i++) {
        elements += (uint64_t)count_of(g, g->params[i].value);
        if (strcmp(g->params[i].name, row->param) == 0) found = &g->params[i];
        if (g->params[i].grad == ZX_NONE) fail_msg("no gradient of %s", g->params[i].name);
    }
    assert_int_equal(elements, row->params);
    assert_non_null(found);
    assert_true(zx_shape_equal(&g->values[found->value].type.shape, &row->shape));
    assert_int_equal(g->n_buffers, 0);
    assert_int_equal(m.notes.n, 0);
    close_model(&m);
}

static void test_same_bytes(void **state ZX_UNUSED)
{
    const zx_preset_sizes s = {1024, 1};
    zx_preset_info info;
    zx_text a = {0}, b = {0};
    zx_err err = {0};
    assert_zx_ok(zx_preset_make("mixtral-8x7b", &s, &a, &info, &err), &err);
    assert_zx_ok(zx_preset_make("mixtral-8x7b", &s, &b, &info, &err), &err);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    zx_text_free(&a);
    zx_text_free(&b);
}

static void test_list(void **state ZX_UNUSED)
{
    zx_text list = {0};
    zx_preset_list(&list);
    for (uint32_t i = 0; i < ZX_COUNT(sizes); i++) assert_non_null(strstr(list.at, sizes[i].name));
    assert_non_null(strstr(list.at, "llama3-70b   70.6G parameters   80 x 8192    64 heads"));
    assert_non_null(strstr(list.at, "2 of 8 experts a token: 12.9G active\n"));
    zx_text_free(&list);
}

static const struct bad_row {
    const char *what, *name;
    zx_preset_sizes s;
    const char *want, *hint;
} bad[] = {
    {"a name that is near", "llama3-7b", {64, 1}, "no preset 'llama3-7b'", "llama3-"},
    {"a name that is far", "bert", {64, 1}, "no preset 'bert'", "gpt-1t"},
    {"no tokens", "llama3-8b", {0, 1}, "1 to 131072 tokens, not 0", ""},
    {"more than the positions", "gpt3-175b", {2049, 1}, "1 to 2048 tokens, not 2049", ""},
    {"no batch", "gpt3-175b", {64, 0}, "not 0", ""},
    {"a batch beyond reason", "gpt3-175b", {64, INT64_MAX}, "a batch is 1 to", ""},
    {"unequal parts", "mixtral-8x7b", {66, 1}, "a multiple of 4, not 66", ""},
};

static void test_bad(void **state)
{
    const struct bad_row *row = *state;
    zx_text bytes = {0};
    zx_preset_info info;
    zx_err err = {0};
    assert_int_equal(zx_preset_make(row->name, &row->s, &bytes, &info, &err), ZX_E_USAGE);
    if (strstr(err.cause[0], row->want) == NULL) fail_msg("'%s'", err.cause[0]);
    if (strstr(err.hint, row->hint) == NULL) fail_msg("hint '%s'", err.hint);
    assert_int_equal(bytes.n, 0);
}

// ---- two layers of each form --------------------------------------------------------------------

// Sizes that differ from each other: width 24, 6 heads, 2 of keys, 16 tokens, batch 2.
#define LLAMA_SIZES 2, 24, 6, 2, 40, 100, 64, 16, 0, 2, 1e4, 1e-5, false
#define GPT_SIZES 2, 24, 6, 6, 96, 100, 20, 16, 0, 2, 0, 1e-5, true
static const zx_preset llama = {"llama", zx_preset_llama, 0, 0, {LLAMA_SIZES}};
static const zx_preset mixtral = {"mixtral", zx_preset_llama, 4, 2, {LLAMA_SIZES}};
static const zx_preset gpt = {"gpt", zx_preset_gpt, 0, 0, {GPT_SIZES}};

static void make(model *m, const zx_preset *p)
{
    *m = (model){0};
    assert_zx_ok(zx_preset_write(p, 0, &m->bytes, &m->err), &m->err);
    import(m);
}

#define EXPERT(i)                                                                                  \
    " m.experts." #i " m.experts." #i ".w1 m.experts." #i ".act_fn m.experts." #i                  \
    ".w3 m.experts." #i ".w2"
#define LLAMA_LAYER                                                                                \
    "l l.input_layernorm l.self_attn l.self_attn.q_proj l.self_attn.k_proj l.self_attn.v_proj "    \
    "l.self_attn.o_proj l.post_attention_layernorm m "
static const struct form_row {
    const char *name;
    const zx_preset *p;
    const char *layers, *inner;         // "l" is layer i of the first, "m" the second in it
    const char *before, *layer, *after; // modules in the order in which they are called
} forms[] = {
    {"llama", &llama, "model.layers", "mlp", "model model.embed_tokens model.rotary_emb",
     LLAMA_LAYER "m.gate_proj m.act_fn m.up_proj m.down_proj", "model.norm lm_head"},
    {"mixtral", &mixtral, "model.layers", "block_sparse_moe",
     "model model.embed_tokens model.rotary_emb",
     LLAMA_LAYER "m.gate" EXPERT(0) EXPERT(1) EXPERT(2) EXPERT(3), "model.norm lm_head"},
    {"gpt", &gpt, "transformer.h", "mlp",
     "transformer transformer.wte transformer.wpe transformer.drop",
     "l l.ln_1 l.attn l.attn.c_attn l.attn.attn_dropout l.attn.c_proj l.attn.resid_dropout l.ln_2 "
     "m m.c_fc m.act m.c_proj m.dropout",
     "transformer.ln_f lm_head"},
};

// The paths of `list`, a line each, with "l" and "m" written out.
static void put_calls(zx_text *t, const struct form_row *row, const char *list, uint32_t layer)
{
    for (const char *word = list; *word != '\0';) {
        const size_t n = strcspn(word, " ");
        const bool is_short = n == 1 || word[1] == '.';
        if (is_short) zx_text_put(t, "%s.%u", row->layers, layer);
        if (is_short && word[0] == 'm') zx_text_put(t, ".%s", row->inner);
        zx_text_put(t, "%.*s\n", (int)(n - is_short), word + is_short);
        word += n + (word[n] == ' ');
    }
}

static void test_calls(void **state)
{
    const struct form_row *row = *state;
    model m;
    zx_hooks h;
    zx_text want = {0}, got = {0};
    make(&m, row->p);
    put_calls(&want, row, row->before, 0);
    put_calls(&want, row, row->layer, 0);
    put_calls(&want, row, row->layer, 1);
    put_calls(&want, row, row->after, 0);
    assert_zx_ok(zx_hooks_make(&m.forward, &(zx_hooks_options){0}, &m.mem, &h, &m.notes, &m.err),
                 &m.err);
    for (uint32_t i = 1; i < h.n_forward; i++) // without the root, which is first
        if (h.events[i].kind == ZX_HOOK_FETCH)
            zx_text_put(&got, "%s\n", h.modules[h.events[i].id].path);
    assert_string_equal(got.at, want.at);
    zx_text_free(&want);
    zx_text_free(&got);
    close_model(&m);
}

// The operations of all products in the forward pass.
static double product_flops(const zx_graph *g)
{
    double sum = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        const zx_type *in[3] = {0};
        if (n->op != ZX_OP_MATMUL || n->phase != ZX_FORWARD) continue;
        for (uint32_t k = 0; k < n->n_in; k++) in[k] = &g->values[g->refs[n->in + k]].type;
        const zx_op_args args = {.op = ZX_OP_MATMUL,
                                 .attrs = &n->attrs,
                                 .n_in = n->n_in,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &g->values[g->refs[n->out]].type};
        sum += zx_ops[n->op].cost(&args).flops;
    }
    return sum;
}

// Two operations a token and weight that works on it; the head's are in the loss. Nothing is as
// large as the scores of a head: all logits are larger, everything else is far smaller.
static void test_products(void **state)
{
    const struct form_row *row = *state;
    zx_preset p = *row->p;
    p.s.sequence = p.s.context = 512;
    p.s.vocab = 700;
    const double rows = 512 * 2, c = (double)p.s.width, l = (double)p.s.layers;
    model m;
    zx_preset_info info;
    make(&m, &p);
    zx_preset_count(&p, &info);
    double weights = (double)(info.active_params - info.embedding_params) - 700 * c; // the head's
    if (row->p == &gpt) // positions, biases and norms
        weights -= 512 * c + l * (9 * c + (double)p.s.hidden) + 2 * c;
    else // norms
        weights -= l * 2 * c + c;
    assert_true(product_flops(&m.train) == 2 * rows * weights);
    for (uint32_t v = 0; v < m.train.n_values; v++) assert_true(count_of(&m.train, v) < 512 * 512);
    close_model(&m);
}

// ---- the same numbers as plain operators --------------------------------------------------------

// All experts get the weights of the dense part: where they come from is the other model's name.
static const char *plain_name(const char *name, zx_arena *mem)
{
    static const char *const from[] = {"w1.weight", "w3.weight", "w2.weight"},
                             *const to[] = {"gate_proj.weight", "up_proj.weight",
                                            "down_proj.weight"};
    const char *at = strstr(name, "block_sparse_moe.experts.");
    for (uint32_t i = 0; at != NULL && i < ZX_COUNT(from); i++)
        if (strcmp(name + strlen(name) - strlen(from[i]), from[i]) == 0)
            return zx_arena_printf(mem, "%.*smlp.%s", (int)(at - name), name, to[i]);
    return name;
}

static void fill(const zx_graph *g, uint32_t value, void *to, zx_arena *mem)
{
    const zx_value *v = &g->values[value];
    const int64_t n = count_of(g, value);
    if (v->role == ZX_R_CONST) memcpy(to, v->data, zx_type_bytes(&v->type));
    if (v->role == ZX_R_INPUT) { // tokens, and labels of which one doesn't count
        const bool labels = strcmp(v->name, "labels") == 0;
        for (int64_t i = 0; i < n; i++) ((int64_t *)to)[i] = (i * (labels ? 5 : 7) + 3) % 100;
        if (labels) ((int64_t *)to)[4] = -100;
    }
    if (v->role != ZX_R_PARAM) return;
    uint32_t h = 2166136261u;
    for (const char *s = plain_name(g->params[v->index].name, mem); *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    for (int64_t i = 0; i < n; i++) {
        h = h * 1664525u + 1013904223u;
        ((float *)to)[i] = ((float)(h >> 8) / 16777216.0f - 0.5f) * 0.6f;
    }
}

// The bytes of every value of a train graph.
static void **run(const zx_graph *g, zx_arena *mem)
{
    void **at = ZX_NEW(mem, void *, g->n_values + 1);
    zx_err err = {0};
    for (uint32_t v = 0; v < g->n_values; v++) {
        at[v] = zx_arena_alloc(mem, 1, zx_type_bytes(&g->values[v].type) + 64, 64);
        fill(g, v, at[v], mem);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        zx_tensor in[16] = {0}, out[4];
        assert_true(n->n_in <= ZX_COUNT(in));
        for (uint32_t k = 0; k < n->n_in; k++) {
            const uint32_t v = g->refs[n->in + k];
            if (v != ZX_NONE) in[k] = (zx_tensor){g->values[v].type, at[v]};
        }
        for (uint32_t k = 0; k < n->n_out; k++) {
            const uint32_t v = g->refs[n->out + k];
            out[k] = (zx_tensor){g->values[v].type, at[v]};
        }
        assert_zx_ok(zx_cpu_eval.run(&zx_cpu_eval, (zx_op_id)n->op, &n->attrs, in, n->n_in, out,
                                     n->n_out, &err),
                     &err);
    }
    return at;
}

static void expect_gradient(const zx_graph *a, void *const *at, const zx_graph *b, void *const *bt,
                            const char *name)
{
    const zx_param *p = NULL, *q = NULL;
    for (uint32_t i = 0; i < a->n_params; i++)
        if (strcmp(a->params[i].name, name) == 0) p = &a->params[i];
    for (uint32_t i = 0; i < b->n_params; i++)
        if (strcmp(b->params[i].name, name) == 0) q = &b->params[i];
    if (p == NULL || q == NULL) return; // experts
    const float *x = at[p->grad], *y = bt[q->grad];
    const int64_t n = count_of(a, p->value);
    assert_int_equal(n, count_of(b, q->value));
    float most = 0;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, fabsf(y[i]));
    assert_true(most > 0);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - y[i]) <= 2e-4f * most))
            fail_msg("gradient of %s[%d]: %.7g, %.7g was due", name, (int)i, (double)x[i],
                     (double)y[i]);
}

static const struct plain_row {
    const char *name;
    const zx_preset *p;
    const char *family; // of `zerox new`
} plain[] = {
    {"llama", &llama, "llama"},
    {"mixtral with equal experts", &mixtral, "llama"},
    {"gpt", &gpt, "gpt2"},
};

static void test_plain(void **state)
{
    const struct plain_row *row = *state;
    const zx_new_sizes *s = &row->p->s;
    zx_new_options o = {.layers = s->layers,
                        .width = s->width,
                        .heads = s->heads,
                        .hidden = s->hidden,
                        .vocab = s->vocab,
                        .context = s->context,
                        .sequence = s->sequence,
                        .batch = s->batch};
    if (row->p != &gpt) o.kv_heads = s->kv_heads;
    model a, b = {0};
    make(&a, row->p);
    assert_zx_ok(zx_new_model(row->family, NULL, &o, &b.bytes, &b.err), &b.err);
    import(&b);
    void **at = run(&a.train, &a.mem), **bt = run(&b.train, &b.mem);
    const float x = *(float *)at[a.train.loss], y = *(float *)bt[b.train.loss];
    assert_true(isfinite(y) && y > 4);
    if (!(fabsf(x - y) <= 2e-6f * y)) fail_msg("loss %.8g, %.8g was due", (double)x, (double)y);
    for (uint32_t i = 0; i < a.train.n_params; i++)
        expect_gradient(&a.train, at, &b.train, bt, a.train.params[i].name);
    close_model(&a);
    close_model(&b);
}

int main(void)
{
    struct CMUnitTest
        tests[ZX_COUNT(sizes) + ZX_COUNT(bad) + 2 * ZX_COUNT(forms) + ZX_COUNT(plain) + 2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(sizes); i++)
        tests[n++] = zx_case(sizes[i].name, test_sizes, &sizes[i]);
    for (uint32_t i = 0; i < ZX_COUNT(bad); i++)
        tests[n++] = zx_case(bad[i].what, test_bad, &bad[i]);
    for (uint32_t i = 0; i < ZX_COUNT(forms); i++)
        tests[n++] = zx_case(forms[i].name, test_calls, &forms[i]);
    for (uint32_t i = 0; i < ZX_COUNT(forms); i++)
        tests[n++] = zx_case(forms[i].name, test_products, &forms[i]);
    for (uint32_t i = 0; i < ZX_COUNT(plain); i++)
        tests[n++] = zx_case(plain[i].name, test_plain, &plain[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_same_bytes);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_list);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

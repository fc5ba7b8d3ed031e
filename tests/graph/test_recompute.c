// test_recompute.c - what is made again and where, that it computes the same bits, and that less
// memory is alive.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/runtime/small.h"
#include "tests/op_text.h"

#include "graph/blocks.h"
#include "graph/import.h"
#include "graph/recompute.h"
#include "kernels/cpu/cpu.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"
#include "sched/trace.h"

enum { ROWS = 6, WIDTH = 8, LAYERS = 3, ALL = 7 };

// x + fc2(drop(gelu(norm(fc1(x))))) a layer, as far as a row asks for it.
typedef struct net_options {
    bool head;    // fc1 sees tanh(x)
    bool heads;   // gelu sees another shape
    bool front;   // x is seen through two views
    bool cross;   // and that reshape stands in the next layer, the last one's in the first
    bool norm;    // batch normalisation with running statistics
    bool drop;    // dropout
    bool tail;    // tanh of the sum
    bool between; // reshaped at the end of a layer, and back outside of any
    bool counts;  // a buffer is added, and changed outside
} net_options;

static uint32_t param_of(zx_builder *b, uint32_t layer, const char *name, uint32_t rank)
{
    const zx_type t = type_of(ZX_F32, rank, WIDTH, WIDTH);
    return small_param(b, zx_arena_printf(b->mem, "layers.%u.%s", layer, name), t, 0.3);
}

static void at(zx_builder *b, uint32_t layer, const char *name)
{
    b->at_name = zx_arena_printf(b->mem, "layers.%u/%s", layer, name);
}

static uint32_t batch_norm(zx_builder *b, uint32_t layer, uint32_t x)
{
    const zx_type t = type_of(ZX_F32, 1, WIDTH, 0);
    uint32_t in[5] = {x, param_of(b, layer, "scale", 1), param_of(b, layer, "shift", 1)}, out[5];
    for (uint32_t i = 3; i < 5; i++)
        in[i] = zx_build_buffer(b, &t,
                                &(zx_buffer){.name = zx_arena_printf(b->mem, "run%u.%u", i, layer),
                                             .init = {.kind = ZX_INIT_FILL, .a = 1}});
    zx_err err = {0};
    const zx_attrs a = op_text_attrs("EPSILON=1e-5 MOMENTUM=0.9 UNBIASED=1", b->mem);
    at(b, layer, "norm");
    assert_zx_ok(zx_build_node(b, ZX_OP_BATCH_NORM, in, 5, a, NULL, out, &err), &err);
    for (uint32_t i = 3; i < 5; i++) b->buffers[b->values[in[i]].index].next = out[i - 2];
    return out[0];
}

static uint32_t layer_of(zx_builder *b, const net_options *o, uint32_t layer, uint32_t x,
                         uint32_t scale)
{
    const zx_shape rows = {2, {ROWS, WIDTH}}, other = {3, {2, ROWS / 2, WIDTH}};
    const zx_attrs none = {0};
    const uint32_t w1 = param_of(b, layer, "w1", 2), b1 = param_of(b, layer, "b1", 1),
                   w2 = param_of(b, layer, "w2", 2);
    uint32_t y = x;
    at(b, layer, "front");
    if (o->front) y = zx_build_reshape(b, zx_build_reshape(b, y, &other), &rows);
    at(b, layer, "head");
    if (o->head) y = zx_build1(b, ZX_OP_TANH, none, 1, y);
    at(b, layer, "fc1");
    y = zx_build1(b, ZX_OP_MATMUL, none, 3, y, w1, b1);
    if (o->norm) y = batch_norm(b, layer, y);
    at(b, o->cross ? (layer + 1) % LAYERS : layer, "heads");
    if (o->heads) y = zx_build_reshape(b, y, &other);
    at(b, layer, "gelu");
    y = zx_build1(b, ZX_OP_GELU, none, 1, y);
    at(b, layer, "merge");
    if (o->heads) y = zx_build_reshape(b, y, &rows);
    at(b, layer, "drop");
    if (o->drop) {
        zx_attrs a = zx_attrs_float(b->mem, none, ZX_A_RATIO, 0.25);
        y = zx_build1(b, ZX_OP_DROPOUT, zx_attrs_int(b->mem, a, ZX_A_KEY, layer), 1, y);
    }
    at(b, layer, "count");
    if (o->counts) y = zx_build1(b, ZX_OP_ADD, none, 2, y, scale);
    at(b, layer, "fc2");
    y = zx_build1(b, ZX_OP_MATMUL, none, 2, y, w2);
    at(b, layer, "add");
    y = zx_build1(b, ZX_OP_ADD, none, 2, x, y);
    at(b, layer, "tail");
    if (o->tail) y = zx_build1(b, ZX_OP_TANH, none, 1, y);
    at(b, layer, "flat");
    if (o->between) y = zx_build_reshape(b, y, &other);
    b->at_name = "between";
    return zx_build_reshape(b, y, &rows);
}

static void make_net(zx_arena *mem, const net_options *o, zx_graph *train)
{
    zx_builder builder, *b = &builder;
    zx_graph forward;
    zx_err err = {0};
    zx_builder_start(b, mem, "net");
    zx_type t = type_of(ZX_F32, 2, ROWS, WIDTH);
    uint32_t x = zx_build_input(b, "x", &t), scale = ZX_NONE;
    const zx_attrs none = {0};
    t = type_of(ZX_F32, 0, 0, 0);
    if (o->counts)
        scale = zx_build_buffer(
            b, &t, &(zx_buffer){.name = "scale", .init = {.kind = ZX_INIT_FILL, .a = 1}});
    for (uint32_t i = 0; i < LAYERS; i++) x = layer_of(b, o, i, x, scale);
    b->at_name = "more";
    if (o->counts)
        b->buffers[0].next =
            zx_build1(b, ZX_OP_ADD, none, 2, scale, zx_build_scalar(b, ZX_F32, 0.5));
    b->at_name = "loss";
    x = zx_build1(b, ZX_OP_MUL, none, 2, x, x);
    b->g.loss = zx_build1(b, ZX_OP_REDUCE_MEAN, op_text_attrs("AXES=0,1 KEEPDIMS=0", mem), 1, x);
    zx_builder_done(b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 0.5, mem, train, &err), &err);
}

// ---- evaluation ---------------------------------------------------------------------------------

static void fill(const zx_graph *g, uint32_t value, void *to)
{
    const zx_value *v = &g->values[value];
    const int64_t n = zx_shape_count(&v->type.shape);
    uint32_t salt = 0;
    for (const char *s = v->name; *s != '\0'; s++) salt = salt * 31 + (uint32_t)*s;
    for (int64_t i = 0; i < n; i++) {
        const float f = sinf((float)(salt % 1000) + (float)i * 0.7f) * 0.3f;
        if (v->type.dtype == ZX_F32)
            ((float *)to)[i] = v->role == ZX_R_BUFFER ? 1 + f : f;
        else if (v->type.dtype == ZX_I64)
            ((int64_t *)to)[i] = (i + salt) % 2;
    }
}

static void run_node(const zx_graph *g, const zx_node *n, void *const *data)
{
    zx_view in[64] = {0}, out[8] = {0};
    const zx_rng rng = {.seed = 3, .step = 2, .micro = 5};
    zx_fault fault = {0};
    zx_err err = {0};
    assert_true(n->n_in <= ZX_COUNT(in) && n->n_out <= ZX_COUNT(out));
    for (uint32_t i = 0; i < n->n_in; i++) {
        const uint32_t v = zx_node_in(g, n, i);
        if (v != ZX_NONE) in[i] = (zx_view){data[v], g->values[v].type};
    }
    for (uint32_t i = 0; i < n->n_out; i++) {
        const uint32_t v = zx_node_out(g, n, i);
        out[i] = (zx_view){data[v], g->values[v].type};
    }
    const zx_kernel *k = zx_cpu_kernel(n->op);
    zx_call call = {.op = n->op,
                    .n_in = n->n_in,
                    .n_out = n->n_out,
                    .in = in,
                    .out = out,
                    .attrs = &n->attrs,
                    .threads = 1,
                    .rng = &rng,
                    .fault = &fault};
    uint64_t work = 0;
    void *state = NULL;
    zx_arena mem = {0};
    if (k->prepare != NULL) assert_zx_ok(k->prepare(&call, &work, &state, &err), &err);
    call.state = state;
    call.work = zx_arena_alloc(&mem, work + 1, 1, ZX_ALIGN);
    assert_zx_ok(k->run(&call, &err), &err);
    assert_int_equal(fault.kind, ZX_FAULT_NONE);
    if (state != NULL && k->release != NULL) k->release(state);
    zx_arena_free(&mem);
}

// Every value of a graph, computed node by node; a node that reads what isn't made yet reads NaN.
static void **evaluate(const zx_graph *g, zx_arena *mem)
{
    void **data = ZX_NEW(mem, void *, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) {
        const uint64_t bytes = zx_type_bytes(&g->values[v].type);
        data[v] = zx_arena_alloc(mem, bytes + 1, 1, ZX_ALIGN);
        if (g->values[v].role == ZX_R_CONST)
            memcpy(data[v], g->values[v].data, bytes);
        else if (g->values[v].role == ZX_R_MADE)
            memset(data[v], 0xFF, bytes);
        else
            fill(g, v, data[v]);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) run_node(g, &g->nodes[i], data);
    return data;
}

static void same_bits(const zx_graph *a, void *const *x, uint32_t v, const zx_graph *b,
                      void *const *y, uint32_t w)
{
    const uint64_t bytes = zx_type_bytes(&a->values[v].type);
    assert_int_equal(bytes, zx_type_bytes(&b->values[w].type));
    if (memcmp(x[v], y[w], bytes) != 0) fail_msg("'%s' differs", a->values[v].name);
    for (uint64_t i = 0; i < bytes / sizeof(float); i++)
        assert_true(isfinite(((const float *)x[v])[i]));
}

static void same_results(const zx_graph *a, const zx_graph *b, zx_arena *mem)
{
    void **x = evaluate(a, mem), **y = evaluate(b, mem);
    bool any = false;
    same_bits(a, x, a->loss, b, y, b->loss);
    assert_int_equal(a->n_params, b->n_params);
    for (uint32_t p = 0; p < a->n_params; p++) {
        const uint32_t grad = a->params[p].grad;
        if (grad == ZX_NONE) continue;
        same_bits(a, x, grad, b, y, b->params[p].grad);
        any = any || ((const float *)x[grad])[0] != 0;
    }
    for (uint32_t k = 0; k < a->n_buffers; k++)
        if (a->buffers[k].next != ZX_NONE)
            same_bits(a, x, a->buffers[k].next, b, y, b->buffers[k].next);
    assert_true(any);
}

// The most bytes of inputs, activations and gradients that are alive in one step.
static uint64_t peak_of(const zx_graph *g, zx_arena *mem)
{
    const zx_plan_options o = {
        .ranks = 1, .stage = 3, .micro_batches = 1, .machine = {.flops = 1e12, .memory = 1e11}};
    zx_err err = {0};
    zx_trace t;
    assert_zx_ok(zx_trace_make(g, &o, mem, &t, &err), &err);
    uint64_t most = 0;
    for (uint32_t s = 0; s < t.n_steps; s++) {
        uint64_t now = 0;
        for (uint32_t i = 0; i < t.n_storages; i++)
            if (t.storages[i].born <= s && s <= t.storages[i].dies) now += t.storages[i].bytes;
        if (now > most) most = now;
    }
    return most;
}

// Order and phases, and copies of a block in one run right before its backward.
static void check_sound(const zx_graph *g, zx_arena *mem)
{
    zx_blocks blocks;
    zx_blocks_make(g, mem, &blocks);
    bool *begun = ZX_NEW(mem, bool, blocks.n + 1), backward = false;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        assert_true(n->phase == ZX_BACKWARD || !backward);
        backward = n->phase == ZX_BACKWARD;
        for (uint32_t a = 0; a < n->n_in; a++) {
            const uint32_t v = zx_node_in(g, n, a);
            if (v != ZX_NONE && g->values[v].role == ZX_R_MADE) assert_true(g->values[v].by < i);
        }
        for (uint32_t o = 0; o < n->n_out; o++)
            assert_int_equal(g->values[zx_node_out(g, n, o)].by, i);
        const uint32_t b = blocks.of_node[i];
        if (b == ZX_NONE || !backward) continue;
        if (strstr(n->name, "/again") == NULL) {
            begun[b] = true;
            continue;
        }
        assert_false(begun[b]);
        assert_int_equal(blocks.of_node[i + 1], b);
    }
}

// ---- what is made again -------------------------------------------------------------------------

static const struct net_case {
    const char *name;
    net_options net;
    uint32_t layers;  // bit i: layer i is chosen; ALL: FULL
    const char *want; // nodes with a copy in each of the chosen layers, in order
} nets[] = {
    {"no further than backward needs", {0}, ALL, "fc1 gelu"},
    {"only the chosen", {0}, 2, "fc1 gelu"},
    {"two of three", {.drop = true}, 5, "fc1 gelu drop"},
    {"none chosen", {0}, 0, ""},
    {"views", {.heads = true}, ALL, "fc1 heads gelu merge"},
    {"views of what is kept", {.front = true}, ALL, "fc1 gelu"},
    {"views of what only copies read", {.front = true, .head = true}, ALL, "head fc1 gelu"},
    {"the same dropout", {.drop = true}, ALL, "fc1 gelu drop"},
    {"an output that the next layer reads is there", {.tail = true}, ALL, "fc1 gelu"},
    {"an output that the next layer's backward reads is there", {.tail = true}, 2, "fc1 gelu"},
    {"an output that only the next layer's copies read is there",
     {.head = true, .tail = true},
     ALL,
     "head fc1 gelu"},
    {"a view that stands in another layer", {.heads = true, .cross = true}, 2, "gelu merge"},
    {"an output seen through views of others", {.between = true, .tail = true}, ALL, "fc1 gelu"},
    {"running statistics move once", {.norm = true}, ALL, "fc1 norm gelu"},
    {"statistics, views, dropout",
     {.norm = true, .heads = true, .drop = true, .tail = true},
     ALL,
     "fc1 norm heads gelu merge drop"},
    {"a buffer that changes is read once", {.counts = true}, ALL, "fc1"},
};

// What zx_recompute_look says of all, and where each node comes from.
static void check_look(const zx_graph *train, const zx_graph *out, const uint32_t *from,
                       zx_arena *mem)
{
    zx_recompute_parts parts;
    uint32_t copies = 0, said = 0;
    uint64_t bytes = 0;
    zx_recompute_look(train, mem, &parts);
    for (uint32_t i = 0; i < out->n_nodes; i++) {
        const zx_node *n = &out->nodes[i], *is = &train->nodes[from[i]];
        const bool copy = strstr(n->name, "/again") != NULL;
        assert_int_equal(n->op, is->op);
        assert_int_equal(strncmp(n->name, is->name, strlen(is->name)), 0);
        assert_string_equal(n->name + strlen(is->name), copy ? "/again" : "");
        assert_true(!copy || parts.again[from[i]]);
        copies += copy;
    }
    for (uint32_t i = 0; i < train->n_nodes; i++) said += parts.again[i];
    for (uint32_t p = 0; p < parts.n; p++) bytes += parts.bytes[p];
    assert_int_equal(copies, said);
    assert_true(bytes > 0);
}

static void test_net(void **state)
{
    const struct net_case *row = *state;
    bool again[LAYERS];
    zx_arena mem = {0};
    zx_err err = {0};
    zx_text want = {0}, got = {0};
    zx_graph train, out;
    make_net(&mem, &row->net, &train);
    const uint32_t *from;
    const zx_recompute_kind kind = row->layers == ALL ? ZX_RECOMPUTE_FULL : ZX_RECOMPUTE_BLOCKS;
    for (uint32_t i = 0; i < LAYERS; i++) again[i] = (row->layers >> i & 1) != 0;
    assert_zx_ok(zx_recompute_make(&train, kind, again, &mem, &out, &from, &err), &err);
    if (row->layers == ALL) check_look(&train, &out, from, &mem);
    for (uint32_t i = LAYERS; i-- > 0;) {
        const char *word = row->want;
        while (again[i] && *word != '\0') {
            const size_t n = strcspn(word, " ");
            zx_text_put(&want, "layers.%u/%.*s/again ", i, (int)n, word);
            word += n + (word[n] == ' ');
        }
    }
    for (uint32_t i = 0; i < out.n_nodes; i++)
        if (strstr(out.nodes[i].name, "/again") != NULL)
            zx_text_put(&got, "%s ", out.nodes[i].name);
    assert_string_equal(got.n > 0 ? got.at : "", want.n > 0 ? want.at : "");
    check_sound(&out, &mem);
    assert_int_equal(zx_graph_hash(&out) == zx_graph_hash(&train), row->layers == 0);
    same_results(&train, &out, &mem);
    if (row->layers == ALL) assert_true(peak_of(&out, &mem) < peak_of(&train, &mem));
    zx_text_free(&want);
    zx_text_free(&got);
    zx_arena_free(&mem);
}

// ---- real models --------------------------------------------------------------------------------

static const struct model_case {
    const char *name;
    double most; // of the peak without
} models[] = {
    {"gpt2", 0.4},  {"gpt2_hf_loss", 0.65}, {"llama", 0.45},
    {"bert", 0.65}, {"vit", 0.65},          {"convnet", 1}, // in segments
};

static void import_model(const char *name, zx_arena *mem, zx_onnx_file *file, zx_graph *train)
{
    const zx_bind seq = {"seq", 32};
    const zx_import_options o = {.eval = &zx_cpu_eval,
                                 .micro_batch = 4,
                                 .n_dims =
                                     strcmp(name, "gpt2_hf_loss") == 0 || !strcmp(name, "llama"),
                                 .dims = &seq};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_graph forward;
    char path[512];
    snprintf(path, sizeof path, ZX_TEST_DATA "/cases/%s/model.onnx", name);
    assert_zx_ok(zx_onnx_open(file, path, mem, &err), &err);
    assert_zx_ok(zx_import(file, &o, mem, &forward, &notes, &err), &err);
    assert_zx_ok(zx_autodiff(&forward, 1, mem, train, &err), &err);
}

static void test_model(void **state)
{
    const struct model_case *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file file = {0};
    zx_graph train, out;
    import_model(row->name, &mem, &file, &train);
    const uint32_t *from;
    assert_zx_ok(zx_recompute_make(&train, ZX_RECOMPUTE_FULL, NULL, &mem, &out, &from, &err), &err);
    check_look(&train, &out, from, &mem);
    check_sound(&out, &mem);
    same_results(&train, &out, &mem);
    const double ratio = (double)peak_of(&out, &mem) / (double)peak_of(&train, &mem);
    if (!(ratio <= row->most)) fail_msg("the peak is %.3f of what it was", ratio);
    zx_onnx_close(&file);
    zx_arena_free(&mem);
}

// ---- training -----------------------------------------------------------------------------------

static void feed(const void *self, uint32_t input, uint64_t micro, void *to)
{
    const zx_graph *g = self;
    (void)micro;
    fill(g, g->inputs[input], to);
}

// The weights after three steps of the program's own executor, which reuses memory in place.
static void train_net(const net_options *net, zx_recompute_kind kind, float *weights, uint32_t *n)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_world *world = NULL;
    zx_session *s = NULL;
    zx_graph train, g;
    zx_plan plan;
    make_net(&mem, net, &train);
    assert_zx_ok(zx_recompute_apply(&train, kind, NULL, &mem, &g, &err), &err);
    const run_options o = filled(&(run_options){.ranks = 1});
    assert_zx_ok(small_plan(&g, &o, &mem, &plan, &err), &err);
    assert_zx_ok(zx_world_local(1, &world, &err), &err);
    const zx_session_options so = {.world = world,
                                   .threads = 1,
                                   .seed = 11,
                                   .optim = small_adamw,
                                   .feed = {feed, &g},
                                   .poison = true};
    assert_zx_ok(zx_session_open(&g, &plan, &so, &s, &err), &err);
    for (uint32_t k = 0; k < 3; k++) {
        zx_step_report report;
        assert_zx_ok(zx_session_step(s, k, k, 0.01, &report, &err), &err);
        assert_true(report.applied);
    }
    assert_int_equal(small_read(s, &g, ZX_READ_PARAM, weights, n, &err), 0);
    zx_session_close(s);
    zx_world_close(world);
    zx_arena_free(&mem);
}

static void trains_alike(void **state ZX_UNUSED)
{
    static const net_options nets_trained[] = {
        {0},
        {.norm = true, .heads = true, .drop = true, .tail = true},
        {.between = true, .counts = true}};
    static float plain[MOST_WEIGHTS], again[MOST_WEIGHTS];
    for (uint32_t i = 0; i < ZX_COUNT(nets_trained); i++) {
        uint32_t n = 0, m = 0;
        train_net(&nets_trained[i], ZX_RECOMPUTE_NONE, plain, &n);
        train_net(&nets_trained[i], ZX_RECOMPUTE_FULL, again, &m);
        assert_int_equal(n, m);
        assert_true(n > 0);
        assert_memory_equal(plain, again, n * sizeof *plain);
    }
}

// x -> tanh -> ... -> tanh, `n` of them, times w: each is read by its own backward.
static void make_chain(zx_arena *mem, uint32_t n, zx_graph *train)
{
    zx_builder builder, *b = &builder;
    zx_graph forward;
    zx_err err = {0};
    const zx_attrs none = {0};
    zx_builder_start(b, mem, "chain");
    const zx_type t = type_of(ZX_F32, 2, ROWS, WIDTH);
    const uint32_t x = zx_build_input(b, "x", &t);
    b->at_name = "times";
    uint32_t y =
        zx_build1(b, ZX_OP_MUL, none, 2, x, small_param(b, "w", type_of(ZX_F32, 1, WIDTH, 0), 0.3));
    for (uint32_t i = 0; i < n; i++) {
        b->at_name = zx_arena_printf(mem, "tanh %c", 'a' + (char)i);
        y = zx_build1(b, ZX_OP_TANH, none, 1, y);
    }
    b->at_name = "loss";
    b->g.loss = zx_build1(b, ZX_OP_REDUCE_MEAN, op_text_attrs("AXES=0,1 KEEPDIMS=0", mem), 1, y);
    zx_builder_done(b, &forward);
    assert_zx_ok(zx_autodiff(&forward, 0.5, mem, train, &err), &err);
}

// Nine values saved: three segments of three, of which the last is left as it is. The last value of
// a segment is read by the next one's copies, so it is kept.
static void segments(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_text got = {0};
    zx_graph train, out;
    zx_recompute_parts parts;
    make_chain(&mem, 9, &train);
    zx_recompute_look(&train, &mem, &parts);
    assert_true(parts.segments);
    assert_int_equal(parts.n, 3);
    assert_zx_ok(zx_recompute_apply(&train, ZX_RECOMPUTE_FULL, NULL, &mem, &out, &err), &err);
    for (uint32_t i = 0; i < out.n_nodes; i++)
        if (strstr(out.nodes[i].name, "/again") != NULL)
            zx_text_put(&got, "%s, ", out.nodes[i].name);
    assert_string_equal(got.at, "tanh d/again, tanh e/again, tanh f/again, times/again, "
                                "tanh a/again, tanh b/again, ");
    same_results(&train, &out, &mem);
    assert_true(peak_of(&out, &mem) < peak_of(&train, &mem));
    zx_text_free(&got);
    zx_arena_free(&mem);
}

static void nothing_saved(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_graph train, out;
    make_chain(&mem, 1, &train);
    assert_zx_ok(zx_recompute_apply(&train, ZX_RECOMPUTE_NONE, NULL, &mem, &out, &err), &err);
    assert_int_equal(zx_graph_hash(&out), zx_graph_hash(&train));
    assert_zx_ok(zx_recompute_apply(&train, ZX_RECOMPUTE_FULL, NULL, &mem, &out, &err), &err);
    assert_int_equal(zx_graph_hash(&out), zx_graph_hash(&train));
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(nets) + ZX_COUNT(models) + 3];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(nets); i++)
        tests[n++] = zx_case(nets[i].name, test_net, &nets[i]);
    for (size_t i = 0; i < ZX_COUNT(models); i++)
        tests[n++] = zx_case(models[i].name, test_model, &models[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(trains_alike);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(segments);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(nothing_saved);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

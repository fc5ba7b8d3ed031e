// test_bombs.c - small files that ask for much: models that are deep, long, or multiply what they
// hold. They are refused, or trained, and in bounded memory, before it looks like a hang.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"

#define MOST_KIB (3L << 20)

// ---- putting them together ----------------------------------------------------------------------

// `n` messages inside each other, each with a length that holds the rest.
static void write_nested(uint32_t n)
{
    // A model's graph (7), a node (1), an attribute (5), its graph (6), a node (1), ...
    const size_t room = (size_t)n * 6 + 16;
    unsigned char *bytes = malloc(room), *at = bytes + room;
    assert_non_null(bytes);
    for (uint32_t i = 0; i < n; i++) {
        size_t inside = (size_t)(bytes + room - at);
        unsigned char length[5];
        size_t k = 0;
        do {
            length[k++] = (unsigned char)((inside & 127) | (inside > 127 ? 128 : 0));
            inside >>= 7;
        } while (inside > 0);
        at -= k;
        memcpy(at, length, k);
        // From the inside out: the outermost is the model's graph.
        static const unsigned char turn[3] = {0x0a, 0x2a, 0x32}; // node, attribute, graph
        *--at = i + 1 == n ? 0x3a : turn[(n - 2 - i) % 3];
    }
    bad_write("model.onnx", at, (size_t)(bytes + room - at));
    free(bytes);
}

// The last `n` nodes of the graph, taken out of it.
static Onnx__NodeProto **take_nodes(zx_onnx_out *o, size_t n)
{
    Onnx__GraphProto *g = o->model->graph;
    Onnx__NodeProto **nodes = ZX_NEW(o->mem, Onnx__NodeProto *, n);
    g->n_node -= n;
    memcpy(nodes, g->node + g->n_node, n * sizeof *nodes);
    return nodes;
}

static char **one_name(zx_onnx_out *o, const char *name)
{
    char **list = ZX_NEW(o->mem, char *, 1);
    list[0] = model_string(o, name);
    return list;
}

// F0 is a Tanh, each further function calls the one before it twice; h = the last.
static void doubling(zx_onnx_out *o, int n)
{
    o->model->functions = ZX_NEW(o->mem, Onnx__FunctionProto *, (size_t)n);
    for (int k = 0; k < n; k++) {
        Onnx__FunctionProto *f = ZX_NEW(o->mem, Onnx__FunctionProto, 1);
        onnx__function_proto__init(f);
        f->name = (char *)(uintptr_t)zx_arena_printf(o->mem, "F%d", k);
        f->domain = model_string(o, "own");
        f->input = one_name(o, "a");
        f->output = one_name(o, "c");
        f->n_input = f->n_output = f->n_opset_import = 1;
        f->opset_import = o->model->opset_import;
        const char *text =
            k == 0 ? "b=Tanh(a); c=Tanh(b)"
                   : zx_arena_printf(o->mem, "b=F%d(a){domain=own}; c=F%d(b){domain=own}", k - 1,
                                     k - 1);
        model_text(o, text);
        f->node = take_nodes(o, 2);
        f->n_node = 2;
        o->model->functions[o->model->n_functions++] = f;
    }
    model_node(o, "h")->op_type = (char *)(uintptr_t)zx_arena_printf(o->mem, "F%d", n - 1);
    model_node(o, "h")->domain = model_string(o, "own");
}
static void doubling_40(zx_onnx_out *o)
{
    doubling(o, 40);
}
static void doubling_10(zx_onnx_out *o)
{
    doubling(o, 10);
}

static Onnx__ValueInfoProto **infos(zx_onnx_out *o, size_t n, const char *const *names)
{
    Onnx__ValueInfoProto **list = ZX_NEW(o->mem, Onnx__ValueInfoProto *, n);
    for (size_t i = 0; i < n; i++) {
        list[i] = ZX_NEW(o->mem, Onnx__ValueInfoProto, 1);
        onnx__value_info_proto__init(list[i]);
        list[i]->name = model_string(o, names[i]);
    }
    return list;
}

// A loop of `trips` that holds `depth` others inside each other, the innermost a Tanh.
static Onnx__NodeProto *loop_node(zx_onnx_out *o, int depth, const char *from, const char *to)
{
    const char *const in[3] = {zx_arena_printf(o->mem, "i%d", depth),
                               zx_arena_printf(o->mem, "c%d", depth),
                               zx_arena_printf(o->mem, "v%d", depth)};
    const char *const out[2] = {zx_arena_printf(o->mem, "co%d", depth),
                                zx_arena_printf(o->mem, "vo%d", depth)};
    Onnx__GraphProto *body = ZX_NEW(o->mem, Onnx__GraphProto, 1);
    onnx__graph_proto__init(body);
    body->input = infos(o, 3, in);
    body->output = infos(o, 2, out);
    body->node = ZX_NEW(o->mem, Onnx__NodeProto *, 2);
    body->n_input = 3;
    body->n_output = body->n_node = 2;
    model_text(o, zx_arena_printf(o->mem, "%s=Identity(%s)", out[0], in[1]));
    body->node[0] = take_nodes(o, 1)[0];
    if (depth == 0) {
        model_text(o, zx_arena_printf(o->mem, "%s=Tanh(%s)", out[1], in[2]));
        body->node[1] = take_nodes(o, 1)[0];
    } else {
        body->node[1] = loop_node(o, depth - 1, in[2], out[1]);
    }
    model_text(o, zx_arena_printf(o->mem, "%s=Loop(trips,,%s)", to, from));
    Onnx__NodeProto *loop = take_nodes(o, 1)[0];
    Onnx__AttributeProto *a = ZX_NEW(o->mem, Onnx__AttributeProto, 1);
    onnx__attribute_proto__init(a);
    a->name = model_string(o, "body");
    a->has_type = true;
    a->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    a->g = body;
    loop->attribute = ZX_NEW(o->mem, Onnx__AttributeProto *, 1);
    loop->attribute[0] = a;
    loop->n_attribute = 1;
    return loop;
}
static void one_loop(zx_onnx_out *o)
{
    *model_node(o, "h") = *loop_node(o, 0, "logits", "h");
}
static void loops_of_8(zx_onnx_out *o)
{
    *model_node(o, "h") = *loop_node(o, 7, "logits", "h");
}

static void chain(zx_onnx_out *o, int n)
{
    char in[16] = "logits", out[16];
    const char *const from[1] = {in}, *const to[1] = {out};
    for (int i = 0; i < n; i++) {
        snprintf(out, sizeof out, "c%d", i);
        zx_onnx_node(o, "Tanh", out, 1, from, 1, to);
        snprintf(in, sizeof in, "%s", out);
    }
    model_node(o, "ce")->input[0] = model_string(o, in);
}
static void chain_of_100000(zx_onnx_out *o)
{
    chain(o, 100000);
}
static void chain_of_3000(zx_onnx_out *o)
{
    chain(o, 3000);
}

static void many_tensors(zx_onnx_out *o) // that are inputs as well, as in old files
{
    static const int64_t dims[1] = {2};
    static const float bytes[2] = {1, 2};
    const zx_type t = {.dtype = ZX_F32, .shape = {.rank = 1, .dim = {2}}};
    Onnx__GraphProto *g = o->model->graph;
    for (int i = 0; i < 3000; i++) {
        const char *name = zx_arena_printf(o->mem, "t%d", i);
        zx_onnx_initializer(o, name, &t, bytes);
        zx_onnx_input(o, name, ZX_F32, 1, dims, NULL);
    }
    // The same again 10 times over, without the search for equal names that initializer() makes.
    const size_t n = g->n_initializer;
    Onnx__TensorProto **list = ZX_NEW(o->mem, Onnx__TensorProto *, n * 10);
    Onnx__ValueInfoProto **inputs = ZX_NEW(o->mem, Onnx__ValueInfoProto *, n * 10);
    memcpy(list, g->initializer, n * sizeof *list);
    memcpy(inputs, g->input, g->n_input * sizeof *inputs);
    for (size_t i = n; i < n * 10; i++) {
        const char *name = zx_arena_printf(o->mem, "u%zu", i);
        list[i] = ZX_NEW(o->mem, Onnx__TensorProto, 1);
        *list[i] = *g->initializer[n - 1];
        list[i]->name = (char *)(uintptr_t)name;
        inputs[g->n_input] = ZX_NEW(o->mem, Onnx__ValueInfoProto, 1);
        *inputs[g->n_input] = *inputs[g->n_input - 1];
        inputs[g->n_input++]->name = (char *)(uintptr_t)name;
        g->n_initializer++;
    }
    g->initializer = list;
    g->input = inputs;
}

static void many_outputs(zx_onnx_out *o)
{
    Onnx__NodeProto *n = model_node(o, "h");
    char **names = ZX_NEW(o->mem, char *, 50000);
    names[0] = n->output[0];
    for (int i = 1; i < 50000; i++) names[i] = (char *)(uintptr_t)zx_arena_printf(o->mem, "o%d", i);
    n->output = names;
    n->n_output = 50000;
}

// ---- rows ---------------------------------------------------------------------------------------

static const struct row {
    const char *name, *text;
    model_break *change;
    const char *command;
    int code;
    const char *says;
} rows[] = {
    {"functions that double, 40 times", "h=F(logits)", doubling_40, "train", 3, "500000 nodes"},
    {"functions that double, 10 times", "h=F(logits)", doubling_10, "train", 0, "done: 1 step"},
    {"a loop of 200", "trips:i64[]=200; h=F(logits)", one_loop, "train", 0, "done: 1 step"},
    {"a loop of 2^62", "trips:i64[]=0x4000000000000000; h=F(logits)", one_loop, "train", 3,
     "more than 256 times"},
    {"loops of 256, 8 inside each other", "trips:i64[]=256; h=F(logits)", loops_of_8, "train", 3,
     "500000 nodes"},
    {"a chain of 100,000 nodes is imported", "", chain_of_100000, "check", 0, NULL},
    {"a chain of 3,000 is trained", "", chain_of_3000, "train", 0, "done: 1 step"},
    {"30,000 tensors that are inputs, too", "", many_tensors, "train", 0, "done: 1 step"},
    {"a split into 50,000", "h=Split(logits){num_outputs=50000}", many_outputs, "train", 3, "'ce'"},
    {"a constant of 28 TiB",
     "s:i64[2]=2500000000000,3; c=ConstantOfShape(s); k=ReduceSum(c); h=Add(logits,k)", NULL,
     "train", 3, "'c'"},
};

static void bomb(void **state)
{
    const struct row *row = *state;
    bad_result r;
    char args[256];
    struct rusage used;
    model_write("model.onnx", row->text, row->change);
    snprintf(args, sizeof args, "%s $IN/model.onnx%s", row->command,
             strcmp(row->command, "train") == 0
                 ? " --steps 1 --log /dev/null --save s --force --threads 1"
                 : "");
    bad_run(args, &r);
    bad_expect(&r, row->code, row->says);
    if (row->code != 0) bad_format(&r);
    // The largest child so far: rows that need little stand for themselves all the same.
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
    if (used.ru_maxrss > MOST_KIB) fail_msg("it took %ld MiB", used.ru_maxrss >> 10);
    bad_nothing_left(false);
    bad_clear();
}

static void nested(void **state)
{
    (void)state;
    static const uint32_t depths[] = {101, 1000, 100000};
    for (size_t i = 0; i < ZX_COUNT(depths); i++) {
        bad_result r;
        write_nested(depths[i]);
        bad_run("train $IN/model.onnx", &r);
        bad_expect(&r, 3, "deep");
        bad_format(&r);
        bad_nothing_left(true);
    }
}

// A host out of memory is said to be that, not a bug.
static void no_memory(void **state)
{
    (void)state;
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        zx_arena mem = {0};
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        zx_arena_alloc(&mem, (size_t)1 << 50, 1, 64);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 2];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, bomb, &rows[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(nested);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(no_memory);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}

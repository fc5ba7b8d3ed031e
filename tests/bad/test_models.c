// test_models.c - files that are no model, or none that can be trained: each is refused with the
// node or tensor named, by one rank and by three, and neither `plan` nor `check` stumbles over it.
// Nodes that ask for nonsense: test_nodes.c.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"
#include "proto/onnx_file.h"

// The model at hand is refused by `train`; `plan` and `check` may say what they like.
static void refuse(const char *name, int code, const char *const says[3])
{
    const bad_row row = {name,     code, "train $IN/model.onnx", NULL, {says[0], says[1], says[2]},
                         BAD_MODEL};
    bad_row_test(&(void *){(void *)(uintptr_t)&row});
}

// ---- files whose parts don't fit together -------------------------------------------------------

static void input_negative(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->shape->dim[1]->dim_value = -5;
}
static void input_huge(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->shape->dim[0]->dim_value = INT64_C(1) << 62;
}
static void input_zero(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->shape->dim[1]->dim_value = 0;
}
static void no_samples(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->shape->dim[0]->dim_value = 0;
}
static void input_without_type(zx_onnx_out *o)
{
    o->model->graph->input[0]->type = NULL;
}
static void input_without_shape(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->shape = NULL;
}
static void input_of_text(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->elem_type = 8;
}
static void input_of_no_type(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->elem_type = 77;
}
static void input_of_doubles(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->elem_type = 11;
}
static void input_of_integers(zx_onnx_out *o)
{
    o->model->graph->input[0]->type->tensor_type->elem_type = 7;
}
static void labels_of_floats(zx_onnx_out *o)
{
    o->model->graph->input[1]->type->tensor_type->elem_type = 1;
}
static void input_of_9_dims(zx_onnx_out *o)
{
    Onnx__TensorShapeProto *s = o->model->graph->input[0]->type->tensor_type->shape;
    Onnx__TensorShapeProto__Dimension **dim =
        ZX_NEW(o->mem, Onnx__TensorShapeProto__Dimension *, 9);
    for (size_t i = 0; i < 9; i++) dim[i] = s->dim[0];
    s->dim = dim;
    s->n_dim = 9;
}
static void input_twice(zx_onnx_out *o)
{
    o->model->graph->input[1]->name = o->model->graph->input[0]->name;
}
static void input_without_name(zx_onnx_out *o)
{
    o->model->graph->input[0]->name = model_string(o, "");
}
static void tensor_negative(zx_onnx_out *o)
{
    model_tensor(o, "w")->dims[0] = -4;
}
static void tensor_overflows(zx_onnx_out *o)
{
    Onnx__TensorProto *t = model_tensor(o, "w");
    t->dims[0] = t->dims[1] = INT64_C(1) << 32;
}
static void tensor_huge(zx_onnx_out *o)
{
    model_tensor(o, "w")->dims[0] = INT64_C(1) << 62;
}
static void tensor_with_zero_and_huge(zx_onnx_out *o)
{
    Onnx__TensorProto *t = model_tensor(o, "w");
    t->dims[0] = 0;
    t->dims[1] = INT64_C(1) << 62;
}
static void tensor_claims_more(zx_onnx_out *o)
{
    model_tensor(o, "w")->dims[0] = 4000;
}
static void tensor_claims_less(zx_onnx_out *o)
{
    model_tensor(o, "w")->dims[0] = 1;
}
static void tensor_without_data(zx_onnx_out *o)
{
    Onnx__TensorProto *t = model_tensor(o, "w");
    t->has_raw_data = false;
}
static void tensor_without_type(zx_onnx_out *o)
{
    model_tensor(o, "w")->has_data_type = false;
}
static void tensor_of_text(zx_onnx_out *o)
{
    model_tensor(o, "w")->data_type = 8;
}
static void tensor_of_type_99(zx_onnx_out *o)
{
    model_tensor(o, "w")->data_type = 99;
}
static void tensor_of_doubles(zx_onnx_out *o)
{
    Onnx__TensorProto *t = model_tensor(o, "w");
    t->data_type = 11;
    t->dims[0] = 2; // as many bytes
}
static void tensor_of_halves(zx_onnx_out *o)
{
    Onnx__TensorProto *t = model_tensor(o, "w");
    t->data_type = 10;
    t->dims[0] = 8;
}
static void tensor_of_4_bits(zx_onnx_out *o)
{
    model_tensor(o, "w")->data_type = 22;
}
static void tensor_twice(zx_onnx_out *o)
{
    model_tensor(o, "b")->name = model_string(o, "w");
}
static void tensor_named_as_an_output(zx_onnx_out *o)
{
    model_tensor(o, "w")->name = model_string(o, "logits");
}
static void tensor_without_name(zx_onnx_out *o)
{
    model_tensor(o, "w")->name = NULL;
}
static void outputs_of_one_name(zx_onnx_out *o)
{
    model_node(o, "ce")->output[0] = model_string(o, "logits");
}
static void output_named_as_an_input(zx_onnx_out *o)
{
    model_node(o, "fc")->output[0] = model_string(o, "x");
}
static void reads_nothing(zx_onnx_out *o)
{
    model_node(o, "fc")->input[1] = model_string(o, "nothing");
}
static void output_of_nothing(zx_onnx_out *o)
{
    o->model->graph->output[0]->name = model_string(o, "nothing");
}
static void output_without_name(zx_onnx_out *o)
{
    o->model->graph->output[0]->name = NULL;
}
static void outputs_of_q(zx_onnx_out *o)
{
    o->model->graph->output[0]->name = model_string(o, "q");
}
static void no_outputs(zx_onnx_out *o)
{
    o->model->graph->n_output = 0;
}
static void no_nodes(zx_onnx_out *o)
{
    o->model->graph->n_node = 0;
}
static void no_graph(zx_onnx_out *o)
{
    o->model->graph = NULL;
}
static void no_opset(zx_onnx_out *o)
{
    o->model->n_opset_import = 0;
}
static void opset_of_others(zx_onnx_out *o)
{
    o->model->opset_import[0]->domain = model_string(o, "com.example");
}
static void opset_4(zx_onnx_out *o)
{
    o->model->opset_import[0]->version = 4;
}
static void opset_999(zx_onnx_out *o)
{
    o->model->opset_import[0]->version = 999;
}
static void opset_negative(zx_onnx_out *o)
{
    o->model->opset_import[0]->version = INT64_MIN;
}
static void ir_2(zx_onnx_out *o)
{
    o->model->ir_version = 2;
}
static void node_without_op(zx_onnx_out *o)
{
    model_node(o, "fc")->op_type = NULL;
}
static void loss_of_vectors(zx_onnx_out *o)
{
    o->model->graph->output[0]->name = model_string(o, "logits");
}
static void no_parameters(zx_onnx_out *o) // integers aren't
{
    Onnx__NodeProto *n = model_node(o, "fc");
    n->input[1] = model_string(o, "y");
    n->n_input = 2;
}
static void attribute_of_the_caller(zx_onnx_out *o)
{
    model_node(o, "h")->attribute[0]->ref_attr_name = model_string(o, "axis");
}
static void control_characters(zx_onnx_out *o)
{
    Onnx__NodeProto *n = model_node(o, "h");
    n->name = model_string(o, "\033[2J\033]0;gone\007\r\nzerox: all is well\n\x7f\xff\xfe"
                              "e");
}
static void a_name_of_10_kB(zx_onnx_out *o)
{
    char *name = ZX_NEW(o->mem, char, 10001);
    memset(name, 'n', 10000);
    model_node(o, "h")->name = name;
}
static void names_that_format(zx_onnx_out *o)
{
    Onnx__NodeProto *n = model_node(o, "h");
    n->name = model_string(o, "%s%n%1000000d");
    n->op_type = model_string(o, "%s%s%s%n");
}
static void input_that_forges(zx_onnx_out *o)
{
    char *name = model_string(o, "x\nzerox: forged\033[31m");
    o->model->graph->input[0]->name = model_node(o, "fc")->input[0] = name;
}
static void many_unknown(zx_onnx_out *o)
{
    char text[64];
    for (int i = 0; i < 25; i++) {
        snprintf(text, sizeof text, "u%d=Unknown%d(logits)", i, i);
        model_text(o, text);
    }
    model_text(o, "h2=Sum(u0,u1,u2,u3,u4,u5,u6,u7,u8,u9,u10,u11,u12,u13,u14,u15,u16,u17,u18,u19,"
                  "u20,u21,u22,u23,u24)");
    model_node(o, "ce")->input[0] = model_string(o, "h2");
}
static void sparse(zx_onnx_out *o)
{
    Onnx__GraphProto *g = o->model->graph;
    Onnx__SparseTensorProto *t = ZX_NEW(o->mem, Onnx__SparseTensorProto, 1);
    onnx__sparse_tensor_proto__init(t);
    t->values = model_tensor(o, "w");
    t->indices = model_tensor(o, "k");
    t->n_dims = 2;
    t->dims = t->values->dims;
    g->sparse_initializer = ZX_NEW(o->mem, Onnx__SparseTensorProto *, 1);
    g->sparse_initializer[0] = t;
    g->n_sparse_initializer = 1;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (g->initializer[i] == t->values) g->initializer[i] = g->initializer[--g->n_initializer];
}
static void wide(zx_onnx_out *o)
{
    model_tensor(o, "w")->dims[1] = 0;
    model_tensor(o, "w")->raw_data.len = 0;
}
// A function of the file that is called by node h, and whose body is `op` of its own domain.
static void function_calling(zx_onnx_out *o, const char *op)
{
    Onnx__FunctionProto *f = ZX_NEW(o->mem, Onnx__FunctionProto, 1);
    onnx__function_proto__init(f);
    f->name = model_string(o, "F");
    f->domain = model_string(o, "own");
    f->n_input = f->n_output = f->n_node = f->n_opset_import = 1;
    f->input = ZX_NEW(o->mem, char *, 1);
    f->output = ZX_NEW(o->mem, char *, 1);
    f->input[0] = model_string(o, "a");
    f->output[0] = model_string(o, "c");
    f->node = ZX_NEW(o->mem, Onnx__NodeProto *, 1);
    f->opset_import = o->model->opset_import;
    model_text(o, zx_arena_printf(o->mem, "c=%s(a){domain=own,name=inner}", op));
    Onnx__GraphProto *g = o->model->graph;
    f->node[0] = g->node[--g->n_node];
    o->model->functions = ZX_NEW(o->mem, Onnx__FunctionProto *, 2);
    o->model->functions[o->model->n_functions++] = f;
}
static void function_of_itself(zx_onnx_out *o)
{
    function_calling(o, "F");
}
static void function_of_nothing(zx_onnx_out *o)
{
    function_calling(o, "G");
}
static void functions_of_one_name(zx_onnx_out *o)
{
    function_calling(o, "Relu");
    o->model->functions[o->model->n_functions++] = o->model->functions[0];
}

static void external_absolute(zx_onnx_out *o)
{
    model_external(o, "w", "/etc/passwd", "0", "48");
}
static void external_above(zx_onnx_out *o)
{
    model_external(o, "w", "sub/../../in/w.bin", "0", "48");
}
static void external_link(zx_onnx_out *o)
{
    model_external(o, "w", "link.bin", "0", "48");
}
static void external_through_link(zx_onnx_out *o)
{
    model_external(o, "w", "linked/w.bin", "0", "48");
}
static void external_gone(zx_onnx_out *o)
{
    model_external(o, "w", "gone.bin", "0", "48");
}
static void external_folder(zx_onnx_out *o)
{
    model_external(o, "w", "sub", "0", "48");
}
static void external_fifo(zx_onnx_out *o)
{
    model_external(o, "w", "fifo", "0", "48");
}
static void external_short(zx_onnx_out *o)
{
    model_external(o, "w", "w.bin", "1", "48");
}
static void external_far(zx_onnx_out *o)
{
    model_external(o, "w", "w.bin", "18446744073709551600", NULL);
}
static void external_overflow(zx_onnx_out *o)
{
    model_external(o, "w", "w.bin", "99999999999999999999999", NULL);
}
static void external_negative(zx_onnx_out *o)
{
    model_external(o, "w", "w.bin", "-1", "48");
}
static void external_length(zx_onnx_out *o)
{
    model_external(o, "w", "w.bin", "0", "44");
}
static void external_nowhere(zx_onnx_out *o)
{
    model_external(o, "w", NULL, "0", "48");
}
static void external_empty(zx_onnx_out *o)
{
    model_external(o, "w", "", "0", "48");
}
static void external_hostile(zx_onnx_out *o)
{
    model_external(o, "w", "a\nzerox: forged\033[2J", "0", "48");
}

static const struct file_row {
    const char *name, *text;
    model_break *change;
    int code;
    const char *says[3];
} files[] = {
    {"an input of -5", "", input_negative, 3, {"x", "-5"}},
    {"an input of 2^62", "", input_huge, 3, {"x"}},
    {"an input of 0 features", "", input_zero, 3, {"x", "0"}},
    {"an input of 0 samples", "", no_samples, 3, {"x", "0"}},
    {"an input without a type", "", input_without_type, 3, {"x"}},
    {"an input without a shape", "", input_without_shape, 3, {"x"}},
    {"an input of text", "", input_of_text, 3, {"x"}},
    {"an input of type 77", "", input_of_no_type, 3, {"x"}},
    {"an input of doubles", "", input_of_doubles, 3, {"x"}},
    {"an input of integers where floats go", "", input_of_integers, 3, {"x"}},
    {"labels that are floats", "", labels_of_floats, 3, {"labels"}},
    {"an input of 9 dimensions", "", input_of_9_dims, 3, {"x"}},
    {"two inputs of one name", "", input_twice, 3, {"'x'"}},
    {"an input without a name", "", input_without_name, 3, {"name"}},
    {"a tensor of -4 rows", "", tensor_negative, 3, {"'w'", "-4"}},
    {"a tensor of 2^64 elements", "", tensor_overflows, 3, {"'w'", "4294967296"}},
    {"a tensor of 2^62 rows", "", tensor_huge, 3, {"'w'"}},
    {"a tensor of 0 times 2^62 elements", "", tensor_with_zero_and_huge, 3, {"'w'"}},
    {"a tensor that claims more than it has", "", tensor_claims_more, 3, {"'w'"}},
    {"a tensor that claims less than it has", "", tensor_claims_less, 3, {"'w'"}},
    {"a tensor without data", "", tensor_without_data, 3, {"'w'"}},
    {"a tensor without a type", "", tensor_without_type, 3, {"'w'"}},
    {"a tensor of text", "", tensor_of_text, 3, {"'w'", "STRING"}},
    {"a tensor of type 99", "", tensor_of_type_99, 3, {"'w'", "99"}},
    {"a tensor of 4-bit integers", "", tensor_of_4_bits, 3, {"'w'", "INT4"}},
    {"a parameter of doubles", "", tensor_of_doubles, 3, {"w"}},
    {"a parameter of halves", "", tensor_of_halves, 3, {"w"}},
    {"a parameter of no columns", "", wide, 3, {NULL}},
    {"two tensors of one name", "", tensor_twice, 3, {"'w'"}},
    {"a tensor named as a node's output", "", tensor_named_as_an_output, 3, {"'logits'"}},
    {"a tensor without a name", "", tensor_without_name, 3, {"'fc'", "'w'"}},
    {"two outputs of one name", "", outputs_of_one_name, 3, {"'logits'"}},
    {"an output named as an input", "", output_named_as_an_input, 3, {"'x'"}},
    {"a node that reads what nothing makes", "", reads_nothing, 3, {"'fc'", "'nothing'"}},
    {"an output that nothing makes", "", output_of_nothing, 3, {"'nothing'"}},
    {"an output without a name", "", output_without_name, 3, {NULL}},
    {"a node that reads itself", "h=Add(h,logits)", NULL, 3, {"'h'"}},
    {"a cycle of three nodes", "p=Relu(h); q=Relu(p); h=Add(q,logits)", NULL, 3, {"'p'", "cycle"}},
    {"no outputs", "", no_outputs, 3, {"output"}},
    {"no nodes", "", no_nodes, 3, {NULL}},
    {"no graph", "", no_graph, 3, {"graph"}},
    {"no operator set", "", no_opset, 3, {"operator set"}},
    {"another's operator set", "", opset_of_others, 3, {"'fc'", "operator set"}},
    {"operator set 4", "", opset_4, 3, {"'fc'", "opset 4"}},
    {"operator set 999", "", opset_999, 3, {"'fc'", "999"}},
    {"operator set -2^63", "", opset_negative, 3, {"'fc'"}},
    {"IR version 2", "", ir_2, 3, {"IR version 2"}},
    {"a node without an operator", "", node_without_op, 3, {"'fc'"}},
    {"an operator that isn't there", "h=Frobnicate(logits)", NULL, 3, {"'h'", "Frobnicate"}},
    {"a misspelt operator", "h=Sofmax(logits)", NULL, 3, {"Sofmax", "Softmax"}},
    {"an operator of another domain",
     "h=NhwcConv(x,w){domain=com.microsoft}",
     NULL,
     3,
     {"com.microsoft.NhwcConv", "try: re-export"}},
    {"25 unknown operators", "", many_unknown, 3, {"'u0'", "'u19'", "zerox: and 5 more\n"}},
    {"a loss that is a matrix", "", loss_of_vectors, 3, {"logits"}},
    {"a loss that is a sequence",
     "q=SplitToSequence(logits)",
     outputs_of_q,
     3,
     {"'q'", "sequence"}},
    {"no parameters", "k:i64[4,3]=1; y=Cast(k){to=1}", no_parameters, 3, {"parameter"}},
    {"an attribute of a caller that isn't there",
     "h=Softmax(logits){axis=1}",
     attribute_of_the_caller,
     3,
     {"'h'", "axis"}},
    {"names with control characters",
     "h=Frobnicate(logits)",
     control_characters,
     3,
     {"\\x1b[2J\\x1b]0;gone\\x07\\x0d\\x0azerox: all is well"}},
    {"a name of 10 kB", "h=Frobnicate(logits)", a_name_of_10_kB, 3, {"nnnnnn", "isn't supported"}},
    {"names that are formats", "h=Frobnicate(logits)", names_that_format, 3, {"%s%n%1000000d"}},
    {"an input's name forges a line", "", input_that_forges, 3, {"x\\x0azerox: forged\\x1b[31m"}},
    {"a sparse tensor", "k:i64[4]=0,1,2,3", sparse, 3, {"sparse"}},
    {"a function that calls itself",
     "h=F(logits){domain=own}",
     function_of_itself,
     3,
     {"F", "itself"}},
    {"a function that calls nothing", "h=F(logits){domain=own}", function_of_nothing, 3, {"own.G"}},
    {"two functions of one name", "h=F(logits){domain=own}", functions_of_one_name, 3, {"F"}},
    {"external data: absolute", "", external_absolute, 3, {"'w'", "/etc/passwd", "absolute"}},
    {"external data: ..", "", external_above, 3, {"'w'", "'..'"}},
    {"external data: a link", "", external_link, 3, {"'w'", "symbolic link"}},
    {"external data: through a link", "", external_through_link, 3, {"'w'", "symbolic link"}},
    {"external data: not there", "", external_gone, 1, {"'w'", "gone.bin"}},
    {"external data: a folder", "", external_folder, 1, {"'w'", "sub"}},
    {"external data: a pipe", "", external_fifo, 1, {"'w'", "fifo"}},
    {"external data: too short", "", external_short, 3, {"'w'", "48"}},
    {"external data: beyond 2^64", "", external_far, 3, {"'w'"}},
    {"external data: no number", "", external_overflow, 3, {"'w'", "offset"}},
    {"external data: before the file", "", external_negative, 3, {"'w'", "offset"}},
    {"external data: another length", "", external_length, 3, {"'w'", "48"}},
    {"external data: no place", "", external_nowhere, 3, {"'w'", "location"}},
    {"external data: an empty place", "", external_empty, 3, {"'w'", "location"}},
    {"external data: a hostile place", "", external_hostile, 1, {"a\\x0azerox: forged\\x1b[2J"}},
};

static void file_test(void **state)
{
    const struct file_row *row = *state;
    model_write("model.onnx", row->text, row->change);
    refuse(row->name, row->code, row->says);
}

// ---- bytes that are no model --------------------------------------------------------------------

#define BYTES(s) s, sizeof(s) - 1
static const struct bytes_row {
    const char *name, *bytes;
    size_t n;
    const char *says[3];
} raws[] = {
    {"an empty file", BYTES(""), {"model.onnx", "empty"}},
    {"prose", BYTES("It was the best of times."), {"model.onnx", "byte"}},
    {"one byte", BYTES("\x08"), {"model.onnx"}},
    {"zeros", BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), {"model.onnx"}},
    {"a zip archive", BYTES("PK\3\4................"), {"zip", "torch.onnx.export"}},
    {"a pickle", BYTES("\x80\2}q\0X................"), {"pickle"}},
    {"a GGUF file", BYTES("GGUF\3\0\0\0........"), {"GGUF"}},
    {"a config", BYTES("{\"zero_optimization\": {}}"), {"JSON"}},
    {"a length of 2^63", BYTES("\x08\x08\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), {"byte"}},
    {"a varint without end", BYTES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), {"byte"}},
    {"a group, which ONNX has none of", BYTES("\x08\x08\x3b\x3c"), {"model.onnx"}},
};

static void bytes_test(void **state)
{
    const struct bytes_row *row = *state;
    bad_write("model.onnx", row->bytes, row->n);
    refuse(row->name, 3, row->says);
}

// Cut off anywhere, a model is refused: a file that lost its end is no smaller model.
static void truncated(void **state)
{
    (void)state;
    zx_text bytes = {0};
    model_make("", NULL, &bytes);
    uint32_t refused = 0;
    for (size_t n = 0; n < bytes.n; n++) {
        zx_arena mem = {0};
        zx_err err = {0};
        zx_onnx_file f;
        char *exact = malloc(n > 0 ? n : 1); // a byte read behind it is seen by sanitizers
        assert_non_null(exact);
        memcpy(exact, bytes.at, n);
        const zx_status st = zx_onnx_open_bytes(&f, "cut.onnx", exact, n, &mem, &err);
        if (st != ZX_OK) {
            refused++;
            assert_int_equal(st, ZX_E_FORMAT);
            assert_int_equal(err.n_causes, 1);
            assert_true(err.hint[0] != '\0');
        }
        zx_onnx_close(&f);
        zx_arena_free(&mem);
        free(exact);
    }
    // All but the few that end exactly behind a field of the model itself.
    assert_true(refused + 4 > bytes.n);
    static const char *const says[3] = {"model.onnx"};
    for (size_t part = 1; part < 8; part += 2) {
        bad_write("model.onnx", bytes.at, bytes.n * part / 8);
        refuse("truncated", 3, says);
    }
    zx_text_free(&bytes);
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    static const float w[12] = {0.5f};
    model_data();
    bad_write("w.bin", w, sizeof w);
    if (mkdir(bad_path("sub"), 0777) != 0 || mkfifo(bad_path("fifo"), 0666) != 0) return 1;
    if (symlink("w.bin", bad_path("link.bin")) != 0 || symlink("sub", bad_path("linked")) != 0)
        return 1;
    return 0;
}

#define TABLE(rows, test)                                                                          \
    for (size_t i = 0; i < ZX_COUNT(rows); i++) tests[n++] = zx_case(rows[i].name, test, &rows[i])

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(files) + ZX_COUNT(raws) + 1];
    size_t n = 0;
    TABLE(files, file_test);
    TABLE(raws, bytes_test);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(truncated);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}

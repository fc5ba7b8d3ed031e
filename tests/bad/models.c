// models.c - see models.h.
// SPDX-License-Identifier: Apache-2.0
#include "tests/bad/models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bad/bad.h"

// ---- text ---------------------------------------------------------------------------------------

// The next part of *at up to one of `ends`, blanks around it left out; *at moves past the end.
static char *part(zx_arena *mem, const char **at, const char *ends)
{
    const char *from = *at + strspn(*at, " ");
    size_t n = strcspn(from, ends);
    *at = from + n + (from[n] != '\0');
    while (n > 0 && from[n - 1] == ' ') n--;
    return (char *)(uintptr_t)zx_arena_strn(mem, from, n);
}

static zx_dtype dtype_of(const char *word)
{
    static const char *const words[ZX_DTYPE_COUNT] = {
        [ZX_F32] = "f32", [ZX_F64] = "f64", [ZX_F16] = "f16",  [ZX_BF16] = "bf16", [ZX_I8] = "i8",
        [ZX_I16] = "i16", [ZX_I32] = "i32", [ZX_I64] = "i64",  [ZX_U8] = "u8",     [ZX_U16] = "u16",
        [ZX_U32] = "u32", [ZX_U64] = "u64", [ZX_BOOL] = "bool"};
    for (uint32_t t = 0; t < ZX_DTYPE_COUNT; t++)
        if (strcmp(words[t], word) == 0) return (zx_dtype)t;
    fail_msg("no type '%s'", word);
    return ZX_F32;
}

static void put(void *bytes, zx_dtype t, int64_t i, const char *text)
{
    const long long n =
        text[0] == '-' ? strtoll(text, NULL, 0) : (long long)strtoull(text, NULL, 0);
    const double x = strtod(text, NULL);
    const uint32_t size = zx_dtype_bytes(t);
    const float f = (float)x;
    if (t == ZX_F32)
        memcpy((char *)bytes + i * 4, &f, 4);
    else if (t == ZX_F64)
        memcpy((char *)bytes + i * 8, &x, 8);
    else
        memcpy((char *)bytes + i * size, &n, size);
}

// name:type[dims]=values
static void initializer(zx_onnx_out *o, const char *text)
{
    zx_type t = {0};
    const char *name = part(o->mem, &text, ":");
    t.dtype = dtype_of(part(o->mem, &text, "["));
    const char *dims = part(o->mem, &text, "]");
    while (*dims != '\0') t.shape.dim[t.shape.rank++] = atoll(part(o->mem, &dims, ","));
    text += strspn(text, "= ");
    const int64_t n = zx_shape_count(&t.shape);
    void *bytes = zx_arena_alloc(o->mem, (size_t)zx_type_bytes(&t) + 8, 1, 16);
    const char *value = "0";
    const bool wild = *text == '~';
    for (int64_t i = 0; i < n; i++) {
        if (wild)
            value = zx_arena_printf(o->mem, "%.7f", 0.5 * sin((double)(i * i * 3 + i * 7 + 1)));
        if (!wild && *text != '\0') value = part(o->mem, &text, ",");
        put(bytes, t.dtype, i, value);
    }
    zx_onnx_initializer(o, name, &t, bytes);
}

static void attribute(zx_onnx_out *o, Onnx__NodeProto *n, const char *name, const char *value)
{
    int64_t ints[64];
    uint32_t k = 0;
    char *end;
    if (strcmp(name, "name") == 0) {
        n->name = model_string(o, value);
    } else if (strcmp(name, "domain") == 0) {
        n->domain = model_string(o, value);
    } else if (value[0] == '[') {
        value++;
        while (k < ZX_COUNT(ints)) {
            ints[k] = strtoll(value, &end, 0);
            if (end == value) break;
            value = end;
            k++;
        }
        zx_onnx_node_ints(o, n, name, k, ints);
    } else if (strtoll(value, &end, 0), end != value && *end == '\0') {
        zx_onnx_node_int(o, n, name, strtoll(value, NULL, 0));
    } else if (strtod(value, &end), end != value && *end == '\0') {
        zx_onnx_node_float(o, n, name, strtof(value, NULL));
    } else {
        zx_onnx_node_text(o, n, name, value);
    }
}

static uint32_t names_of(zx_onnx_out *o, const char *text, const char *to[32])
{
    uint32_t n = 0;
    const char *all = text;
    if (text[strspn(text, " ")] == '\0') return 0;
    for (;;) {
        assert_true(n < 32);
        to[n++] = part(o->mem, &all, ",");
        if (all[-1] != ',') return n;
    }
}

// outputs=Op(inputs){attributes}
static void node(zx_onnx_out *o, const char *text)
{
    const char *out[32], *in[32];
    const uint32_t n_out = names_of(o, part(o->mem, &text, "="), out);
    const char *op = part(o->mem, &text, "(");
    const uint32_t n_in = names_of(o, part(o->mem, &text, ")"), in);
    Onnx__NodeProto *n = zx_onnx_node(o, op, n_out > 0 ? out[0] : op, n_in, in, n_out, out);
    text += strspn(text, " {");
    while (*text != '\0' && *text != '}') {
        const char *name = part(o->mem, &text, "=");
        attribute(o, n, name, part(o->mem, &text, ",}"));
    }
}

void model_text(zx_onnx_out *o, const char *text)
{
    while (*text != '\0') {
        const char *statement = part(o->mem, &text, ";");
        const size_t name = strcspn(statement, ":=(");
        if (statement[0] == '\0') continue;
        if (statement[name] == ':')
            initializer(o, statement);
        else
            node(o, statement);
    }
}

// ---- looking and changing -----------------------------------------------------------------------

char *model_string(zx_onnx_out *o, const char *text)
{
    return (char *)(uintptr_t)zx_arena_str(o->mem, text);
}

Onnx__NodeProto *model_node(zx_onnx_out *o, const char *name)
{
    Onnx__GraphProto *g = o->model->graph;
    for (size_t i = 0; i < g->n_node; i++)
        if (strcmp(g->node[i]->name, name) == 0) return g->node[i];
    fail_msg("no node '%s'", name);
    return NULL;
}

Onnx__TensorProto *model_tensor(zx_onnx_out *o, const char *name)
{
    Onnx__GraphProto *g = o->model->graph;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0) return g->initializer[i];
    fail_msg("no initializer '%s'", name);
    return NULL;
}

Onnx__TensorProto *model_external(zx_onnx_out *o, const char *tensor, const char *location,
                                  const char *offset, const char *length)
{
    Onnx__TensorProto *t = model_tensor(o, tensor);
    const char *const pairs[3][2] = {
        {"location", location}, {"offset", offset}, {"length", length}};
    t->has_raw_data = false;
    t->has_data_location = true;
    t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    t->external_data = ZX_NEW(o->mem, Onnx__StringStringEntryProto *, 3);
    for (size_t i = 0; i < 3; i++) {
        if (pairs[i][1] == NULL) continue;
        Onnx__StringStringEntryProto *e = ZX_NEW(o->mem, Onnx__StringStringEntryProto, 1);
        onnx__string_string_entry_proto__init(e);
        e->key = model_string(o, pairs[i][0]);
        e->value = model_string(o, pairs[i][1]);
        t->external_data[t->n_external_data++] = e;
    }
    return t;
}

// ---- whole models -------------------------------------------------------------------------------

static bool has_output(const zx_onnx_out *o, const char *name)
{
    const Onnx__GraphProto *g = o->model->graph;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_output; k++)
            if (strcmp(g->node[i]->output[k], name) == 0) return true;
    return false;
}

void model_make(const char *text, model_break *change, zx_text *bytes)
{
    static const int64_t x_dims[2] = {2, 4};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_out o;
    zx_onnx_begin(&o, &mem, "bad");
    zx_onnx_input(&o, "x", ZX_F32, 2, x_dims, NULL);
    zx_onnx_input(&o, "labels", ZX_I64, 1, x_dims, NULL);
    model_text(&o, "w:f32[4,3]=0.5,-1,0.25,0.1,-0.2,0.3,1,0.75,-0.5,0.2,0.4,0.6;"
                   "b:f32[3]=0.5,-0.25,0.125; logits=Gemm(x,w,b){name=fc}");
    model_text(&o, text);
    model_text(&o, has_output(&o, "h") ? "loss=SoftmaxCrossEntropyLoss(h,labels){name=ce}"
                                       : "loss=SoftmaxCrossEntropyLoss(logits,labels){name=ce}");
    zx_onnx_output(&o, "loss", ZX_F32, 0, NULL, NULL);
    if (change != NULL) change(&o);
    assert_zx_ok(zx_onnx_pack(&o, bytes, &err), &err);
    zx_arena_free(&mem);
}

void model_write(const char *file, const char *text, model_break *change)
{
    zx_text bytes = {0};
    model_make(text, change, &bytes);
    bad_write(file, bytes.at, bytes.n);
    zx_text_free(&bytes);
}

void model_data(void)
{
    float x[12 * 4];
    int64_t labels[12];
    for (int i = 0; i < 48; i++) x[i] = (float)(i * 7 % 11) * 0.25f - 1;
    for (int i = 0; i < 12; i++) labels[i] = i % 3;
    bad_npy("x.npy", "<f4", "12, 4", x, sizeof x);
    bad_npy("labels.npy", "<i8", "12,", labels, sizeof labels);
}

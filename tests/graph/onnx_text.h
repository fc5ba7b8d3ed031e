// onnx_text.h - small ONNX models written as text, for the tests of the import. One statement a
// line (or between semicolons):
//
//   opset 20                          of ai.onnx; `opset DOMAIN 1` of another domain
//   in x f32[batch,8]                 an input; a dim is a number, a name or ?
//   const a f32[2,3] 1 2 3 4 5 6      a tensor that the exporter says is no parameter; one value
//   fills init w f32[3] 0.5                 a tensor about which nothing is said param w f32[3] 1 2
//   3              a tensor that the exporter calls a PARAMETER meta w KEY VALUE metadata of a
//   tensor; `sign TARGETS..` the exporter's signature n1: y, z = Op(a, , b) axis=-1 pads=[0,1]
//   alpha=0.5 mode='edge' then=$0 @m.h.0 out y f32[2]                      an output; `out y` says
//   nothing about it
//
// `$i` is the i-th of further texts: a branch or a body. A text that begins with "function DOMAIN
// NAME (a, b) -> (y) attr.." is a local function; in it `axis=&axis` refers to the caller's
// attribute.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_GRAPH_ONNX_TEXT_H
#define ZX_TESTS_GRAPH_ONNX_TEXT_H

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/onnx_file.h"
#include "tests/test.h"

#define OT_MOST 128 // entries of any list

typedef struct ot {
    zx_arena *mem;
    Onnx__ModelProto *model;
    const char *const *more; // further texts
    uint32_t n_more;
} ot;

#define OT_NEW(o, T, init)                                                                         \
    T *m = ZX_NEW((o)->mem, T, 1);                                                                 \
    init(m)
#define OT_PUSH(o, list, n, item)                                                                  \
    do {                                                                                           \
        if ((list) == NULL) (list) = zx_arena_alloc((o)->mem, OT_MOST, sizeof *(list), 16);        \
        ZX_ASSERT((n) < OT_MOST);                                                                  \
        (list)[(n)++] = (item);                                                                    \
    } while (0)

static inline void ot_space(const char **s)
{
    while (**s == ' ') ++*s;
}

// A word up to a separator; "" where there is none.
static inline char *ot_word(ot *o, const char **s, const char *ends)
{
    ot_space(s);
    const size_t n = strcspn(*s, ends);
    char *w = (char *)(uintptr_t)zx_arena_strn(o->mem, *s, n);
    *s += n;
    size_t len = strlen(w);
    while (len > 0 && w[len - 1] == ' ') w[--len] = '\0';
    return w;
}

static inline bool ot_take(const char **s, char c)
{
    ot_space(s);
    if (**s != c) return false;
    ++*s;
    return true;
}

static inline int32_t ot_dtype(const char *w)
{
    static const struct {
        const char *word;
        int32_t id;
    } rows[] = {{"f32", 1}, {"f64", 11}, {"f16", 10}, {"bf16", 16}, {"i32", 6},
                {"i64", 7}, {"u8", 2},   {"i8", 3},   {"bool", 9},  {"str", 8}};
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        if (strcmp(rows[i].word, w) == 0) return rows[i].id;
    fail_msg("no element type '%s'", w);
    return 0;
}

static inline Onnx__TypeProto *ot_type(ot *o, const char **s)
{
    Onnx__TypeProto *t = ZX_NEW(o->mem, Onnx__TypeProto, 1);
    onnx__type_proto__init(t);
    const char *word = ot_word(o, s, " [");
    if (word[0] == '\0') return NULL;
    t->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    t->tensor_type = ZX_NEW(o->mem, Onnx__TypeProto__Tensor, 1);
    onnx__type_proto__tensor__init(t->tensor_type);
    t->tensor_type->has_elem_type = 1;
    t->tensor_type->elem_type = ot_dtype(word);
    OT_NEW(o, Onnx__TensorShapeProto, onnx__tensor_shape_proto__init);
    t->tensor_type->shape = m;
    if (!ot_take(s, '[')) return t;
    while (!ot_take(s, ']')) {
        const char *w = ot_word(o, s, ",]");
        Onnx__TensorShapeProto__Dimension *d = ZX_NEW(o->mem, Onnx__TensorShapeProto__Dimension, 1);
        onnx__tensor_shape_proto__dimension__init(d);
        if (w[0] != '?' && (isdigit((unsigned char)w[0]) || w[0] == '-')) {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            d->dim_value = strtoll(w, NULL, 10);
        } else if (w[0] != '?') {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            d->dim_param = (char *)(uintptr_t)w;
        }
        OT_PUSH(o, m->dim, m->n_dim, d);
        ot_take(s, ',');
    }
    return t;
}

static inline Onnx__ValueInfoProto *ot_info(ot *o, char *name, Onnx__TypeProto *t)
{
    OT_NEW(o, Onnx__ValueInfoProto, onnx__value_info_proto__init);
    m->name = name;
    m->type = t;
    return m;
}

static inline void ot_meta(ot *o, Onnx__StringStringEntryProto ***list, size_t *n, const char *key,
                           const char *value)
{
    OT_NEW(o, Onnx__StringStringEntryProto, onnx__string_string_entry_proto__init);
    m->key = (char *)(uintptr_t)zx_arena_str(o->mem, key);
    m->value = (char *)(uintptr_t)zx_arena_str(o->mem, value);
    OT_PUSH(o, *list, *n, m);
}

// "f32[2,2] 1 2 3 4": elements in C order; one value fills, ".." counts up from 0.
static inline Onnx__TensorProto *ot_tensor(ot *o, const char **s, char *name)
{
    const Onnx__TypeProto *t = ot_type(o, s);
    ZX_ASSERT(t != NULL);
    OT_NEW(o, Onnx__TensorProto, onnx__tensor_proto__init);
    m->name = name;
    m->has_data_type = 1;
    m->data_type = t->tensor_type->elem_type;
    int64_t count = 1;
    for (size_t i = 0; i < t->tensor_type->shape->n_dim; i++) {
        OT_PUSH(o, m->dims, m->n_dims, t->tensor_type->shape->dim[i]->dim_value);
        count *= m->dims[i];
    }
    const zx_dtype dtype = zx_dtype_of_onnx(m->data_type);
    if (dtype == ZX_DTYPE_COUNT || count < 0 || count > 1 << 20) return m;
    const uint32_t e = zx_dtype_bytes(dtype);
    m->has_raw_data = 1;
    m->raw_data.len = (size_t)count * e;
    m->raw_data.data = zx_arena_alloc(o->mem, (size_t)count + 1, e, 16);
    double x = 0;
    bool counts = false;
    for (int64_t i = 0; i < count; i++) {
        ot_space(s);
        if (strncmp(*s, "..", 2) == 0) counts = true;
        int used = 0;
        double next;
        if (!counts && sscanf(*s, "%lf%n", &next, &used) == 1) {
            x = next;
            *s += used;
        } else if (counts) {
            x = (double)i;
        }
        uint8_t *at = m->raw_data.data + (size_t)i * e;
        const float f = (float)x;
        const int64_t k = x >= 9.2e18 ? INT64_MAX : x <= -9.2e18 ? INT64_MIN : (int64_t)x;
        if (dtype == ZX_F32)
            memcpy(at, &f, e);
        else if (dtype == ZX_F64)
            memcpy(at, &x, e);
        else
            memcpy(at, &k, e); // little endian; halves are written as their bits
    }
    return m;
}

static inline Onnx__GraphProto *ot_graph(ot *o, const char *text);

static inline void ot_attribute(ot *o, Onnx__NodeProto *node, const char **s)
{
    OT_NEW(o, Onnx__AttributeProto, onnx__attribute_proto__init);
    m->name = ot_word(o, s, "=");
    ot_take(s, '=');
    m->has_type = 1;
    if (ot_take(s, '$')) {
        m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
        const uint32_t i = (uint32_t)strtoul(ot_word(o, s, " "), NULL, 10);
        ZX_ASSERT(i < o->n_more);
        m->g = ot_graph(o, o->more[i]);
    } else if (ot_take(s, '&')) {
        m->has_type = 0;
        m->ref_attr_name = ot_word(o, s, " ");
    } else if (ot_take(s, '\'')) {
        m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        const char *w = ot_word(o, s, "'");
        ot_take(s, '\'');
        m->has_s = 1;
        m->s.data = (uint8_t *)(uintptr_t)w;
        m->s.len = strlen(w);
    } else if (ot_take(s, '<')) {
        m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
        m->t = ot_tensor(o, s, NULL);
        ot_take(s, '>');
    } else if (ot_take(s, '[')) {
        m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        while (!ot_take(s, ']')) {
            const char *w = ot_word(o, s, ",]");
            if (strchr(w, '.')) m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
            OT_PUSH(o, m->ints, m->n_ints, strtoll(w, NULL, 10));
            OT_PUSH(o, m->floats, m->n_floats, strtof(w, NULL));
            ot_take(s, ',');
        }
        if (m->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS)
            m->n_floats = 0;
        else
            m->n_ints = 0;
    } else {
        const char *w = ot_word(o, s, " ");
        if (strpbrk(w, ".n")) {
            m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
            m->has_f = 1;
            m->f = strtof(w, NULL);
        } else {
            m->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
            m->has_i = 1;
            m->i = strtoll(w, NULL, 10);
        }
    }
    OT_PUSH(o, node->attribute, node->n_attribute, m);
}

static inline Onnx__NodeProto *ot_node(ot *o, const char *s)
{
    OT_NEW(o, Onnx__NodeProto, onnx__node_proto__init);
    const char *equals = strchr(s, '='), *colon = strchr(s, ':');
    if (colon && equals && colon < equals && colon[1] == ' ') {
        m->name = ot_word(o, &s, ":");
        s++;
    }
    while (!ot_take(&s, '=')) {
        OT_PUSH(o, m->output, m->n_output, ot_word(o, &s, ",="));
        ot_take(&s, ',');
    }
    m->op_type = ot_word(o, &s, "(");
    char *slash = strchr(m->op_type, '/'); // domain/Op
    if (slash) {
        *slash = '\0';
        m->domain = m->op_type;
        m->op_type = slash + 1;
    }
    ot_take(&s, '(');
    ot_space(&s);
    while (*s && *s != ')') {
        OT_PUSH(o, m->input, m->n_input, ot_word(o, &s, ",)"));
        if (ot_take(&s, ',')) {
            ot_space(&s);
            if (*s == ')') OT_PUSH(o, m->input, m->n_input, (char *)(uintptr_t) "");
        }
    }
    ot_take(&s, ')');
    for (ot_space(&s); *s; ot_space(&s)) {
        if (ot_take(&s, '@')) { // the path's parts, each a module
            zx_text list = {0};
            char *w = ot_word(o, &s, " ");
            char *part = strchr(w, ':'); // "@m.h.0:linear": the exporter's operator, too
            if (part) *part++ = '\0';
            zx_text_put(&list, "['', ");
            for (const char *dot = strchr(w, '.'); dot; dot = strchr(dot + 1, '.'))
                zx_text_put(&list, "'%.*s', ", (int)(dot - w), w);
            zx_text_put(&list, "'%s', '%s']", w, part ? part : "op");
            ot_meta(o, &m->metadata_props, &m->n_metadata_props, "pkg.torch.onnx.name_scopes",
                    list.at);
            zx_text_free(&list);
        } else {
            ot_attribute(o, m, &s);
        }
    }
    return m;
}

#define OT_KIND "pkg.torch.export.graph_signature.InputSpec.kind"

static inline void ot_statement(ot *o, Onnx__GraphProto *g, const char *s)
{
    const char *rest = s;
    const char *word = ot_word(o, &rest, " ");
    if (strcmp(word, "opset") == 0) {
        Onnx__OperatorSetIdProto *m = ZX_NEW(o->mem, Onnx__OperatorSetIdProto, 1);
        onnx__operator_set_id_proto__init(m);
        char *a = ot_word(o, &rest, " "), *b = ot_word(o, &rest, " ");
        m->domain = b[0] ? a : NULL;
        m->has_version = 1;
        m->version = strtoll(b[0] ? b : a, NULL, 10);
        OT_PUSH(o, o->model->opset_import, o->model->n_opset_import, m);
    } else if (strcmp(word, "in") == 0 || strcmp(word, "out") == 0) {
        char *name = ot_word(o, &rest, " ");
        Onnx__ValueInfoProto *v = ot_info(o, name, ot_type(o, &rest));
        if (word[0] == 'i')
            OT_PUSH(o, g->input, g->n_input, v);
        else
            OT_PUSH(o, g->output, g->n_output, v);
    } else if (strcmp(word, "meta") == 0) {
        Onnx__ValueInfoProto *v = ot_info(o, ot_word(o, &rest, " "), NULL);
        const char *key = ot_word(o, &rest, " ");
        ot_meta(o, &v->metadata_props, &v->n_metadata_props, key, ot_word(o, &rest, ""));
        OT_PUSH(o, g->value_info, g->n_value_info, v);
    } else if (strcmp(word, "sign") == 0) {
        zx_text list = {0};
        for (ot_space(&rest); *rest; ot_space(&rest)) {
            const char *w = ot_word(o, &rest, " ");
            zx_text_put(&list, "p: PARAMETER target='%s'\n", w);
        }
        ot_meta(o, &g->metadata_props, &g->n_metadata_props,
                "pkg.torch.export.ExportedProgram.graph_signature", list.at);
        zx_text_free(&list);
    } else if (strcmp(word, "init") == 0 || strcmp(word, "const") == 0 ||
               strcmp(word, "param") == 0) {
        char *name = ot_word(o, &rest, " ");
        OT_PUSH(o, g->initializer, g->n_initializer, ot_tensor(o, &rest, name));
        if (word[0] == 'i') return;
        Onnx__ValueInfoProto *v = ot_info(o, name, NULL);
        ot_meta(o, &v->metadata_props, &v->n_metadata_props, OT_KIND,
                word[0] == 'p' ? "PARAMETER" : "BUFFER");
        ot_meta(o, &v->metadata_props, &v->n_metadata_props,
                "pkg.torch.export.graph_signature.InputSpec.persistent", "False");
        OT_PUSH(o, g->value_info, g->n_value_info, v);
    } else if (word[0]) {
        OT_PUSH(o, g->node, g->n_node, ot_node(o, s));
    }
}

static inline Onnx__GraphProto *ot_graph(ot *o, const char *text)
{
    OT_NEW(o, Onnx__GraphProto, onnx__graph_proto__init);
    m->name = (char *)(uintptr_t) "g";
    while (*text) {
        const char *line = ot_word(o, &text, ";\n");
        ot_statement(o, m, line);
        if (*text) text++;
    }
    return m;
}

// "function DOMAIN NAME (a, b) -> (y)" and its nodes.
static inline void ot_function(ot *o, const char *text)
{
    OT_NEW(o, Onnx__FunctionProto, onnx__function_proto__init);
    ot_word(o, &text, " ");
    m->domain = ot_word(o, &text, " ");
    m->name = ot_word(o, &text, " ");
    ot_take(&text, '(');
    while (!ot_take(&text, ')')) {
        OT_PUSH(o, m->input, m->n_input, ot_word(o, &text, ",)"));
        ot_take(&text, ',');
    }
    ot_word(o, &text, "(");
    ot_take(&text, '(');
    while (!ot_take(&text, ')')) {
        OT_PUSH(o, m->output, m->n_output, ot_word(o, &text, ",)"));
        ot_take(&text, ',');
    }
    Onnx__OperatorSetIdProto *set = ZX_NEW(o->mem, Onnx__OperatorSetIdProto, 1);
    onnx__operator_set_id_proto__init(set);
    set->has_version = 1;
    set->version = 20;
    OT_PUSH(o, m->opset_import, m->n_opset_import, set);
    set = ZX_NEW(o->mem, Onnx__OperatorSetIdProto, 1);
    onnx__operator_set_id_proto__init(set);
    set->domain = m->domain;
    set->has_version = 1;
    set->version = 1;
    OT_PUSH(o, m->opset_import, m->n_opset_import, set);
    const Onnx__GraphProto *body = ot_graph(o, text);
    m->n_node = body->n_node;
    m->node = body->node;
    OT_PUSH(o, o->model->functions, o->model->n_functions, m);
}

// The model as a file has it.
static inline uint8_t *ot_bytes(zx_arena *mem, const char *text, const char *const *more,
                                uint32_t n_more, size_t *n)
{
    ot o = {.mem = mem, .more = more, .n_more = n_more};
    o.model = ZX_NEW(mem, Onnx__ModelProto, 1);
    onnx__model_proto__init(o.model);
    o.model->has_ir_version = 1;
    o.model->ir_version = 10;
    for (uint32_t i = 0; i < n_more; i++)
        if (strncmp(more[i], "function ", 9) == 0) ot_function(&o, more[i]);
    o.model->graph = ot_graph(&o, text);
    if (o.model->n_opset_import == 0) ot_statement(&o, o.model->graph, "opset 20");
    *n = onnx__model_proto__get_packed_size(o.model);
    uint8_t *bytes = zx_arena_alloc(mem, *n + 1, 1, 16);
    onnx__model_proto__pack(o.model, bytes);
    return bytes;
}

// Writes the model into a file of its own under /tmp and opens it. The file is gone when this
// returns; what was opened stays mapped.
static inline zx_status ot_open(zx_arena *mem, const char *text, const char *const *more,
                                uint32_t n_more, zx_onnx_file *f, zx_err *err)
{
    size_t n;
    const uint8_t *bytes = ot_bytes(mem, text, more, n_more, &n);
    char folder[] = "/tmp/zx-import-XXXXXX";
    assert_non_null(mkdtemp(folder));
    const char *path = zx_arena_printf(mem, "%s/model.onnx", folder);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, n, out), n);
    fclose(out);
    const zx_status st = zx_onnx_open(f, path, mem, err);
    unlink(path);
    rmdir(folder);
    return st;
}

#endif

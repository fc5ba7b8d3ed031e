// onnx_write.c - see onnx_write.h.
// SPDX-License-Identifier: Apache-2.0
#include "proto/onnx_write.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define IR_VERSION 10
#define OPSET 20

// A message of protobuf-c, initialised, in the arena.
#define NEW_MESSAGE(o, T, init) make_message((o)->mem, sizeof(T), (ProtobufCMessageInit)(init))
// One more element in a list of pointers whose length is `n` (a size_t) and whose room is `cap`.
#define PUSH(o, list, n, cap, what)                                                                \
    do {                                                                                           \
        ZX_ASSERT((n) < UINT32_MAX / 2);                                                           \
        ZX_GROW((o)->mem, list, (uint32_t)(n), cap);                                               \
        (list)[(n)++] = (what);                                                                    \
    } while (0)

static void *make_message(zx_arena *mem, size_t size, ProtobufCMessageInit init)
{
    ProtobufCMessage *m = zx_arena_alloc(mem, 1, size, 16);
    init(m);
    return m;
}

// protobuf-c's texts aren't const, though it only reads them.
static char *text_of(zx_onnx_out *o, const char *text)
{
    return (char *)(uintptr_t)zx_arena_str(o->mem, text);
}

void zx_onnx_begin(zx_onnx_out *o, zx_arena *mem, const char *graph_name)
{
    *o = (zx_onnx_out){.mem = mem};
    o->model = NEW_MESSAGE(o, Onnx__ModelProto, onnx__model_proto__init);
    o->model->has_ir_version = true;
    o->model->ir_version = IR_VERSION;
    o->model->producer_name = text_of(o, "zerox");
    o->model->graph = NEW_MESSAGE(o, Onnx__GraphProto, onnx__graph_proto__init);
    o->model->graph->name = text_of(o, graph_name);
    zx_onnx_opset(o, "", OPSET);
}

void zx_onnx_opset(zx_onnx_out *o, const char *domain, int64_t version)
{
    Onnx__ModelProto *m = o->model;
    for (size_t i = 0; i < m->n_opset_import; i++)
        if (strcmp(m->opset_import[i]->domain, domain) == 0) {
            m->opset_import[i]->version = version;
            return;
        }
    Onnx__OperatorSetIdProto *s =
        NEW_MESSAGE(o, Onnx__OperatorSetIdProto, onnx__operator_set_id_proto__init);
    s->domain = text_of(o, domain);
    s->has_version = true;
    s->version = version;
    PUSH(o, m->opset_import, m->n_opset_import, o->cap_opsets, s);
}

static char **texts_of(zx_onnx_out *o, uint32_t n, const char *const *list)
{
    char **to = ZX_NEW(o->mem, char *, n);
    for (uint32_t i = 0; i < n; i++) to[i] = text_of(o, list[i] ? list[i] : "");
    return to;
}

Onnx__NodeProto *zx_onnx_node(zx_onnx_out *o, const char *op, const char *name, uint32_t n_in,
                              const char *const *in, uint32_t n_out, const char *const *out)
{
    Onnx__GraphProto *g = o->model->graph;
    Onnx__NodeProto *node = NEW_MESSAGE(o, Onnx__NodeProto, onnx__node_proto__init);
    while (n_in > 0 && (in[n_in - 1] == NULL || in[n_in - 1][0] == '\0')) n_in--;
    node->op_type = text_of(o, op);
    node->name = text_of(o, name);
    node->n_input = n_in;
    node->input = texts_of(o, n_in, in);
    node->n_output = n_out;
    node->output = texts_of(o, n_out, out);
    PUSH(o, g->node, g->n_node, o->cap_nodes, node);
    return node;
}

// Nodes have few attributes: the list is made anew for each.
static Onnx__AttributeProto *add_attribute(zx_onnx_out *o, Onnx__NodeProto *node, const char *name,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *a = NEW_MESSAGE(o, Onnx__AttributeProto, onnx__attribute_proto__init);
    a->name = text_of(o, name);
    a->has_type = true;
    a->type = type;
    Onnx__AttributeProto **list = ZX_NEW(o->mem, Onnx__AttributeProto *, node->n_attribute + 1);
    for (size_t i = 0; i < node->n_attribute; i++) list[i] = node->attribute[i];
    list[node->n_attribute++] = a;
    node->attribute = list;
    return a;
}

void zx_onnx_node_int(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, int64_t v)
{
    Onnx__AttributeProto *a =
        add_attribute(o, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);
    a->has_i = true;
    a->i = v;
}

void zx_onnx_node_ints(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, uint32_t n,
                       const int64_t *v)
{
    Onnx__AttributeProto *a =
        add_attribute(o, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);
    a->n_ints = n;
    a->ints = zx_arena_copy(o->mem, v, n * sizeof *v);
}

void zx_onnx_node_float(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, float v)
{
    Onnx__AttributeProto *a =
        add_attribute(o, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);
    a->has_f = true;
    a->f = v;
}

static ProtobufCBinaryData bytes_of(zx_onnx_out *o, const void *bytes, size_t n)
{
    return (ProtobufCBinaryData){.len = n, .data = zx_arena_copy(o->mem, bytes, n)};
}

void zx_onnx_node_text(zx_onnx_out *o, Onnx__NodeProto *node, const char *name, const char *v)
{
    Onnx__AttributeProto *a =
        add_attribute(o, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING);
    a->has_s = true;
    a->s = bytes_of(o, v, strlen(v));
}

static Onnx__TensorProto *tensor_of(zx_onnx_out *o, const char *name, const zx_type *type,
                                    const void *data)
{
    Onnx__TensorProto *t = NEW_MESSAGE(o, Onnx__TensorProto, onnx__tensor_proto__init);
    if (name != NULL) t->name = text_of(o, name);
    t->has_data_type = true;
    t->data_type = zx_dtypes[type->dtype].onnx;
    t->n_dims = type->shape.rank;
    t->dims = zx_arena_copy(o->mem, type->shape.dim, type->shape.rank * sizeof *t->dims);
    t->has_raw_data = true;
    t->raw_data = bytes_of(o, data, (size_t)zx_type_bytes(type));
    return t;
}

void zx_onnx_node_tensor(zx_onnx_out *o, Onnx__NodeProto *node, const char *name,
                         const zx_type *type, const void *data)
{
    Onnx__AttributeProto *a =
        add_attribute(o, node, name, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    a->t = tensor_of(o, NULL, type, data);
}

void zx_onnx_node_domain(zx_onnx_out *o, Onnx__NodeProto *node, const char *domain, int64_t version)
{
    node->domain = text_of(o, domain);
    zx_onnx_opset(o, domain, version);
}

void zx_onnx_node_meta(zx_onnx_out *o, Onnx__NodeProto *node, const char *key, const char *value)
{
    Onnx__StringStringEntryProto *e =
        NEW_MESSAGE(o, Onnx__StringStringEntryProto, onnx__string_string_entry_proto__init);
    e->key = text_of(o, key);
    e->value = text_of(o, value);
    const size_t n = node->n_metadata_props;
    Onnx__StringStringEntryProto **list = ZX_NEW(o->mem, Onnx__StringStringEntryProto *, n + 1);
    for (size_t i = 0; i < n; i++) list[i] = node->metadata_props[i];
    list[n] = e;
    node->metadata_props = list;
    node->n_metadata_props = n + 1;
}

const char *zx_onnx_initializer(zx_onnx_out *o, const char *name, const zx_type *type,
                                const void *data)
{
    Onnx__GraphProto *g = o->model->graph;
    for (size_t i = 0; i < g->n_initializer; i++)
        if (strcmp(g->initializer[i]->name, name) == 0) return g->initializer[i]->name;
    Onnx__TensorProto *t = tensor_of(o, name, type, data);
    PUSH(o, g->initializer, g->n_initializer, o->cap_initializers, t);
    return t->name;
}

static Onnx__TensorShapeProto *shape_of(zx_onnx_out *o, uint32_t rank, const int64_t *dims,
                                        const char *const *symbols)
{
    Onnx__TensorShapeProto *s =
        NEW_MESSAGE(o, Onnx__TensorShapeProto, onnx__tensor_shape_proto__init);
    s->n_dim = rank;
    s->dim = ZX_NEW(o->mem, Onnx__TensorShapeProto__Dimension *, rank);
    for (uint32_t i = 0; i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *d = NEW_MESSAGE(
            o, Onnx__TensorShapeProto__Dimension, onnx__tensor_shape_proto__dimension__init);
        if (dims[i] >= 0) {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            d->dim_value = dims[i];
        } else {
            d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            d->dim_param = text_of(o, symbols[i]);
        }
        s->dim[i] = d;
    }
    return s;
}

static Onnx__ValueInfoProto *value_of(zx_onnx_out *o, const char *name, zx_dtype dtype,
                                      uint32_t rank, const int64_t *dims,
                                      const char *const *symbols)
{
    Onnx__ValueInfoProto *v = NEW_MESSAGE(o, Onnx__ValueInfoProto, onnx__value_info_proto__init);
    v->name = text_of(o, name);
    v->type = NEW_MESSAGE(o, Onnx__TypeProto, onnx__type_proto__init);
    v->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    v->type->tensor_type = NEW_MESSAGE(o, Onnx__TypeProto__Tensor, onnx__type_proto__tensor__init);
    v->type->tensor_type->has_elem_type = true;
    v->type->tensor_type->elem_type = zx_dtypes[dtype].onnx;
    v->type->tensor_type->shape = shape_of(o, rank, dims, symbols);
    return v;
}

void zx_onnx_input(zx_onnx_out *o, const char *name, zx_dtype dtype, uint32_t rank,
                   const int64_t *dims, const char *const *symbols)
{
    Onnx__GraphProto *g = o->model->graph;
    PUSH(o, g->input, g->n_input, o->cap_inputs, value_of(o, name, dtype, rank, dims, symbols));
}

void zx_onnx_output(zx_onnx_out *o, const char *name, zx_dtype dtype, uint32_t rank,
                    const int64_t *dims, const char *const *symbols)
{
    Onnx__GraphProto *g = o->model->graph;
    PUSH(o, g->output, g->n_output, o->cap_outputs, value_of(o, name, dtype, rank, dims, symbols));
}

zx_status zx_onnx_pack(const zx_onnx_out *o, zx_text *out, zx_err *err)
{
    const size_t n = onnx__model_proto__get_packed_size(o->model);
    if (n > INT_MAX)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the model is larger than 2 GiB, ONNX's limit");
    uint8_t *bytes = malloc(n > 0 ? n : 1);
    ZX_ASSERT(bytes != NULL);
    onnx__model_proto__pack(o->model, bytes);
    zx_text_bytes(out, bytes, n);
    free(bytes);
    return ZX_OK;
}

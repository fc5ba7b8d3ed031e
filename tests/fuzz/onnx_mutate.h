// onnx_mutate.h - an ONNX model with something changed that its format allows: an operator, a name,
// a dimension, an attribute. Flipped bytes mostly hit weights or break the wire format; these get
// past both and reach the importer.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_FUZZ_ONNX_MUTATE_H
#define ZX_TESTS_FUZZ_ONNX_MUTATE_H

#include <stdlib.h>
#include <string.h>

#include "graph/onnx_ops.h"
#include "proto/wire.h"
#include "onnx.pb-c.h"

#define MUTATE_GRAPHS 64 // bodies of branches and loops that are looked at

typedef struct mutate {
    uint64_t state; // of the random numbers
    zx_arena mem;   // the decoded model
    Onnx__ModelProto *model;
    uint32_t n_graphs;
    Onnx__GraphProto *graph[MUTATE_GRAPHS];
} mutate;

static inline uint64_t mutate_random(mutate *m)
{
    uint64_t z = (m->state += UINT64_C(0x9E3779B97F4A7C15)); // splitmix64
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

static inline size_t mutate_below(mutate *m, size_t n)
{
    return n > 0 ? (size_t)(mutate_random(m) % n) : 0;
}

static inline int64_t mutate_int(mutate *m)
{
    static const int64_t odd[] = {
        0,
        1,
        2,
        3,
        4,
        5,
        7,
        8,
        9,
        16,
        64,
        100,
        255,
        65536,
        1000003,
        -1,
        -2,
        -3,
        -4,
        -8,
        -100,
        INT32_MAX,
        INT32_MIN,
        INT64_C(1) << 31,
        INT64_C(1) << 32,
        INT64_C(1) << 40,
        INT64_C(1) << 62,
        INT64_MAX,
        INT64_MIN,
        INT64_MAX - 1,
        -INT64_MAX,
        INT64_C(3037000500),
    };
    return odd[mutate_below(m, ZX_COUNT(odd))];
}

static inline float mutate_float(mutate *m)
{
    static const float odd[] = {0, 1, -1, 0.5f, 2, 1e-30f, 1e30f, -1e30f, 3.4e38f, 1e-45f};
    const size_t i = mutate_below(m, ZX_COUNT(odd) + 2);
    return i < ZX_COUNT(odd)    ? odd[i]
           : i == ZX_COUNT(odd) ? (float)__builtin_inf()
                                : (float)__builtin_nan("");
}

static inline void *mutate_alloc(void *mem, size_t n)
{
    return zx_arena_alloc(mem, n, 1, 16);
}

static inline void mutate_free(void *mem ZX_UNUSED, void *bytes ZX_UNUSED)
{
}

static inline char *mutate_text(mutate *m, const char *text)
{
    return (char *)(uintptr_t)zx_arena_str(&m->mem, text);
}

static inline void mutate_find_graphs(mutate *m, Onnx__GraphProto *g)
{
    if (m->n_graphs == MUTATE_GRAPHS) return;
    m->graph[m->n_graphs++] = g;
    for (size_t i = 0; i < g->n_node; i++)
        for (size_t k = 0; k < g->node[i]->n_attribute; k++)
            if (g->node[i]->attribute[k]->g != NULL)
                mutate_find_graphs(m, g->node[i]->attribute[k]->g);
}

// Any tensor's name: of an output, an initialiser, an input, nothing at all.
static inline char *mutate_name(mutate *m, const Onnx__GraphProto *g)
{
    const size_t from = mutate_below(m, 10);
    char *name = NULL;
    if (from == 0) return mutate_text(m, "");
    if (from == 1) return mutate_text(m, "nothing makes this");
    if (from == 2 && g->n_input > 0) {
        name = g->input[mutate_below(m, g->n_input)]->name;
    } else if (from < 5 && g->n_initializer > 0) {
        name = g->initializer[mutate_below(m, g->n_initializer)]->name;
    } else if (g->n_node > 0) {
        const Onnx__NodeProto *n = g->node[mutate_below(m, g->n_node)];
        if (n->n_output > 0) name = n->output[mutate_below(m, n->n_output)];
    }
    return name != NULL ? name : mutate_text(m, "x");
}

static inline void mutate_ints(mutate *m, size_t *n, int64_t **v)
{
    if (*n == 0 || mutate_below(m, 4) == 0) { // one more, or fewer
        if (*n > 0 && mutate_below(m, 2) == 0) {
            (*n)--;
            return;
        }
        int64_t *more = ZX_NEW(&m->mem, int64_t, *n + 1);
        if (*n > 0) memcpy(more, *v, *n * sizeof **v);
        more[(*n)++] = mutate_int(m);
        *v = more;
        return;
    }
    (*v)[mutate_below(m, *n)] = mutate_int(m);
}

static inline void mutate_tensor(mutate *m, Onnx__TensorProto *t)
{
    switch (mutate_below(m, 5)) {
    case 0:
        mutate_ints(m, &t->n_dims, &t->dims);
        break;
    case 1:
        t->has_data_type = 1;
        t->data_type = (int32_t)mutate_below(m, 30);
        break;
    case 2: // shorter
        if (t->raw_data.len > 0) t->raw_data.len = mutate_below(m, t->raw_data.len);
        break;
    default: // an element: of shapes and axes mostly
        if (t->raw_data.len >= 8 && t->data_type == 7) {
            const int64_t x = mutate_int(m);
            memcpy(t->raw_data.data + 8 * mutate_below(m, t->raw_data.len / 8), &x, 8);
        } else if (t->n_int64_data > 0) {
            t->int64_data[mutate_below(m, t->n_int64_data)] = mutate_int(m);
        } else if (t->raw_data.len >= 4 && t->data_type == 1) {
            const float x = mutate_float(m);
            memcpy(t->raw_data.data + 4 * mutate_below(m, t->raw_data.len / 4), &x, 4);
        } else if (t->raw_data.len > 0) {
            t->raw_data.data[mutate_below(m, t->raw_data.len)] = (uint8_t)mutate_random(m);
        }
    }
}

static inline void mutate_attribute(mutate *m, Onnx__AttributeProto *a)
{
    if (mutate_below(m, 8) == 0) {
        a->has_type = 1;
        a->type = (Onnx__AttributeProto__AttributeType)mutate_below(m, 15);
        return;
    }
    if (a->t != NULL) {
        mutate_tensor(m, a->t);
    } else if (a->n_ints > 0) {
        mutate_ints(m, &a->n_ints, &a->ints);
    } else if (a->has_f) {
        a->f = mutate_float(m);
    } else if (a->has_i) {
        a->i = mutate_int(m);
    } else if (a->has_s) {
        static const char *const words[] = {"", "sum", "none", "SAME_UPPER", "bilinear", "wrap"};
        a->s.data = (uint8_t *)mutate_text(m, words[mutate_below(m, ZX_COUNT(words))]);
        a->s.len = strlen((char *)a->s.data);
    } else {
        a->name = mutate_text(m, "axis");
    }
}

static inline void mutate_inputs(mutate *m, Onnx__GraphProto *g, Onnx__NodeProto *n)
{
    if (n->n_input == 0 || mutate_below(m, 6) == 0) {
        char **more = ZX_NEW(&m->mem, char *, n->n_input + 1);
        if (n->n_input > 0) memcpy(more, n->input, n->n_input * sizeof *more);
        more[n->n_input++] = mutate_name(m, g);
        n->input = more;
    } else if (mutate_below(m, 6) == 0) {
        n->n_input--;
    } else {
        n->input[mutate_below(m, n->n_input)] = mutate_name(m, g);
    }
}

static inline void mutate_node(mutate *m, Onnx__GraphProto *g)
{
    if (g->n_node == 0) return;
    const size_t at = mutate_below(m, g->n_node), other = mutate_below(m, g->n_node);
    Onnx__NodeProto *n = g->node[at];
    switch (mutate_below(m, 12)) {
    case 0:
    case 1:
        n->op_type = mutate_text(m, zx_onnx_ops[mutate_below(m, zx_onnx_n_ops)].name);
        break;
    case 2:
        n->op_type = g->node[other]->op_type;
        break;
    case 3:
    case 4:
    case 5:
        mutate_inputs(m, g, n);
        break;
    case 6:
        if (n->n_output > 0) n->output[mutate_below(m, n->n_output)] = mutate_name(m, g);
        break;
    case 7: // without it
        g->node[at] = g->node[--g->n_node];
        break;
    case 8:
        g->node[at] = g->node[other];
        g->node[other] = n;
        break;
    case 9:
        if (n->n_attribute > 0) n->attribute[0] = n->attribute[--n->n_attribute];
        break;
    default:
        if (n->n_attribute > 0) mutate_attribute(m, n->attribute[mutate_below(m, n->n_attribute)]);
    }
}

static inline void mutate_value_info(mutate *m, Onnx__ValueInfoProto *v)
{
    if (v->type == NULL || v->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE) return;
    Onnx__TypeProto__Tensor *t = v->type->tensor_type;
    const size_t what = mutate_below(m, 4);
    if (what == 0) t->elem_type = (int32_t)mutate_below(m, 24);
    if (t->shape == NULL || what == 0) return;
    if (what == 1 && t->shape->n_dim > 0) {
        t->shape->n_dim--;
    } else if (t->shape->n_dim > 0) {
        Onnx__TensorShapeProto__Dimension *d = t->shape->dim[mutate_below(m, t->shape->n_dim)];
        d->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
        d->dim_value = mutate_int(m);
    }
}

static inline void mutate_once(mutate *m)
{
    Onnx__GraphProto *g = m->graph[mutate_below(m, m->n_graphs)];
    switch (mutate_below(m, 16)) {
    case 0:
    case 1:
    case 2:
        if (g->n_initializer > 0)
            mutate_tensor(m, g->initializer[mutate_below(m, g->n_initializer)]);
        break;
    case 3:
        if (g->n_input > 0) mutate_value_info(m, g->input[mutate_below(m, g->n_input)]);
        break;
    case 4:
        if (g->n_output > 0) g->output[mutate_below(m, g->n_output)]->name = mutate_name(m, g);
        break;
    case 5:
        if (m->model->n_opset_import > 0)
            m->model->opset_import[0]->version = (int64_t)mutate_below(m, 28);
        break;
    default:
        mutate_node(m, g);
    }
}

// Writes a changed model to `out`; returns its size, 0 if `in` is no model or there is no room.
static inline size_t mutate_model(uint64_t seed, const uint8_t *in, size_t n, uint8_t *out,
                                  size_t room)
{
    mutate m = {.state = seed};
    zx_wire wire;
    size_t size = 0;
    // protobuf-c recurses as deep as the bytes say: they are looked at first.
    const zx_status st = zx_wire_cut(&onnx__model_proto__descriptor,
                                     &onnx__tensor_proto__descriptor, in, n, &m.mem, &wire, NULL);
    zx_wire_free(&wire);
    ProtobufCAllocator allocator = {mutate_alloc, mutate_free, &m.mem};
    if (st == ZX_OK) m.model = onnx__model_proto__unpack(&allocator, n, in);
    if (m.model != NULL && m.model->graph != NULL) {
        mutate_find_graphs(&m, m.model->graph);
        for (size_t k = 1 + mutate_below(&m, 2); k > 0; k--) mutate_once(&m);
        size = onnx__model_proto__get_packed_size(m.model);
        size = size <= room ? onnx__model_proto__pack(m.model, out) : 0;
    }
    zx_arena_free(&m.mem);
    return size;
}

#endif

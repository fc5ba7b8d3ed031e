// graph.c - writing a graph: arrays that grow in an arena, with the types inferred node by node.
// SPDX-License-Identifier: Apache-2.0
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// g's arrays always show what was written so far, so that readers work on an unfinished graph too.
static void show(zx_builder *b)
{
    b->g.nodes = b->nodes;
    b->g.values = b->values;
    b->g.refs = b->refs;
    b->g.inputs = b->inputs;
    b->g.params = b->params;
    b->g.buffers = b->buffers;
    b->g.sources = b->sources;
}

void zx_builder_start(zx_builder *b, zx_arena *mem, const char *name)
{
    *b = (zx_builder){.mem = mem, .at_source = ZX_NONE, .at_first_source = ZX_NONE, .at_name = ""};
    b->g.name = zx_arena_str(mem, name);
    b->g.loss = b->g.seed = b->g.source_loss = ZX_NONE;
}

#define COPY(field)                                                                                \
    do {                                                                                           \
        b->cap_##field = g->n_##field + g->n_##field / 2 + 16;                                     \
        b->field = zx_arena_alloc(mem, b->cap_##field, sizeof *b->field, ZX_ALIGN);                \
        if (g->n_##field > 0) memcpy(b->field, g->field, g->n_##field * sizeof *b->field);         \
        b->g.n_##field = g->n_##field;                                                             \
    } while (0)

void zx_builder_continue(zx_builder *b, zx_arena *mem, const zx_graph *g)
{
    zx_builder_start(b, mem, g->name);
    COPY(nodes);
    COPY(values);
    COPY(refs);
    COPY(inputs);
    COPY(params);
    COPY(buffers);
    COPY(sources);
    b->g.loss = g->loss;
    b->g.seed = g->seed;
    b->g.n_tensors = g->n_tensors;
    b->g.source_loss = g->source_loss;
    b->g.tensor_params = g->tensor_params;
    show(b);
}

void zx_builder_done(zx_builder *b, zx_graph *out)
{
    show(b);
    *out = b->g;
    *b = (zx_builder){0};
}

#define APPEND(b, field, item)                                                                     \
    do {                                                                                           \
        ZX_GROW((b)->mem, (b)->field, (b)->g.n_##field, (b)->cap_##field);                         \
        (b)->field[(b)->g.n_##field++] = (item);                                                   \
        show(b);                                                                                   \
    } while (0)

uint32_t zx_build_value(zx_builder *b, const char *name, zx_role role, const zx_type *type)
{
    const zx_value v = {.name = name, .type = *type, .role = role, .by = ZX_NONE, .index = ZX_NONE};
    APPEND(b, values, v);
    return b->g.n_values - 1;
}

uint32_t zx_build_input(zx_builder *b, const char *name, const zx_type *type)
{
    const uint32_t v = zx_build_value(b, name, ZX_R_INPUT, type);
    b->values[v].index = b->g.n_inputs;
    APPEND(b, inputs, v);
    return v;
}

uint32_t zx_build_const(zx_builder *b, const char *name, const zx_type *type, const void *data)
{
    const uint32_t v = zx_build_value(b, name, ZX_R_CONST, type);
    b->values[v].data = data;
    return v;
}

// The scalar constant of this type with these bytes among those seen; ZX_NONE. What a value was
// when it was seen may have changed.
static uint32_t find_scalar(const zx_builder *b, zx_dtype t, const void *data)
{
    for (uint32_t i = 0; i < b->n_scalars; i++) {
        const zx_value *have = &b->values[b->scalars[i]];
        if (have->role == ZX_R_CONST && have->type.dtype == t && have->type.shape.rank == 0 &&
            have->data && memcmp(have->data, data, zx_dtype_bytes(t)) == 0)
            return b->scalars[i];
    }
    return ZX_NONE;
}

// Takes note of the values that came since the last time, each once however large the graph is.
static void see_scalars(zx_builder *b)
{
    for (; b->n_seen < b->g.n_values; b->n_seen++) {
        const zx_value *v = &b->values[b->n_seen];
        if (b->n_seen == b->g.seed || v->role != ZX_R_CONST || v->type.shape.rank != 0 ||
            !v->data || find_scalar(b, v->type.dtype, v->data) != ZX_NONE)
            continue;
        ZX_GROW(b->mem, b->scalars, b->n_scalars, b->cap_scalars);
        b->scalars[b->n_scalars++] = b->n_seen;
    }
}

uint32_t zx_build_scalar(zx_builder *b, zx_dtype t, double x)
{
    uint64_t bits = 0;
    const float f = (float)x;
    const int64_t i = zx_int_of(x);
    switch (t) {
    case ZX_F32:
        memcpy(&bits, &f, sizeof f);
        break;
    case ZX_F64:
        memcpy(&bits, &x, sizeof x);
        break;
    case ZX_F16:
    case ZX_BF16:
        zx_bug(__FILE__, __LINE__, "scalars of half types are not built");
        break;
    default:
        memcpy(&bits, &i, sizeof i);
        break; // little endian: the low bytes come first
    }
    const uint32_t bytes = zx_dtype_bytes(t);
    see_scalars(b);
    const uint32_t have = find_scalar(b, t, &bits);
    if (have != ZX_NONE) return have;
    const zx_type type = {.dtype = t};
    return zx_build_const(b, zx_arena_printf(b->mem, "%g", x), &type,
                          zx_arena_copy(b->mem, &bits, bytes));
}

uint32_t zx_build_param(zx_builder *b, const zx_type *type, const zx_param *p)
{
    const uint32_t v = zx_build_value(b, p->name, ZX_R_PARAM, type);
    b->values[v].index = b->g.n_params;
    zx_param copy = *p;
    copy.value = v;
    copy.grad = ZX_NONE;
    APPEND(b, params, copy);
    return v;
}

uint32_t zx_build_buffer(zx_builder *b, const zx_type *type, const zx_buffer *x)
{
    const uint32_t v = zx_build_value(b, x->name, ZX_R_BUFFER, type);
    b->values[v].index = b->g.n_buffers;
    zx_buffer copy = *x;
    copy.value = v;
    copy.next = ZX_NONE;
    APPEND(b, buffers, copy);
    return v;
}

static zx_status infer(const zx_builder *b, zx_op_id op, const uint32_t *in, uint32_t n_in,
                       const zx_attrs *attrs, zx_type *out, zx_err *err)
{
    const zx_op *row = &zx_ops[op];
    while (n_in > 0 && in[n_in - 1] == ZX_NONE) n_in--;
    if ((int64_t)n_in < row->min_in || (row->max_in >= 0 && (int64_t)n_in > row->max_in))
        return ZX_FAIL(err, ZX_E_SHAPE, "%s with %u inputs, it takes %d to %d", row->word, n_in,
                       row->min_in, row->max_in);
    const zx_type *few[16], **types = few;
    zx_arena many = {0};
    if (n_in > ZX_COUNT(few)) types = ZX_NEW(&many, const zx_type *, n_in);
    for (uint32_t i = 0; i < n_in; i++) types[i] = in[i] == ZX_NONE ? NULL : &b->values[in[i]].type;
    const zx_op_args args = {
        .op = op, .attrs = attrs, .n_in = n_in, .n_out = row->n_out, .in = types, .out = out};
    zx_status st = row->infer(&args, out, err);
    for (uint32_t i = 0; st == ZX_OK && i < row->n_out; i++)
        st = zx_shape_check(&out[i].shape, err);
    zx_arena_free(&many);
    return st;
}

zx_status zx_build_node(zx_builder *b, zx_op_id op, const uint32_t *in, uint32_t n_in,
                        zx_attrs attrs, const char *const *names, uint32_t *out, zx_err *err)
{
    const zx_op *row = &zx_ops[op];
    zx_type types[8] = {0};
    ZX_ASSERT(row->n_out <= ZX_COUNT(types));
    ZX_TRY(infer(b, op, in, n_in, &attrs, types, err));
    while (n_in > 0 && in[n_in - 1] == ZX_NONE) n_in--;
    zx_node n = {.name = b->at_name,
                 .op = (uint8_t)op,
                 .phase = (uint8_t)b->at_phase,
                 .in = b->g.n_refs,
                 .n_in = n_in,
                 .n_out = row->n_out,
                 .attrs = attrs,
                 .source = b->at_source,
                 .first_source =
                     b->at_first_source < b->at_source ? b->at_first_source : b->at_source};
    for (uint32_t i = 0; i < n_in; i++) APPEND(b, refs, in[i]);
    n.out = b->g.n_refs;
    for (uint32_t i = 0; i < row->n_out; i++) {
        const char *name = names && names[i] ? names[i]
                           : i == 0          ? b->at_name
                                             : zx_arena_printf(b->mem, "%s.%u", b->at_name, i);
        out[i] = zx_build_value(b, name, ZX_R_MADE, &types[i]);
        b->values[out[i]].by = b->g.n_nodes;
        APPEND(b, refs, out[i]);
    }
    APPEND(b, nodes, n);
    return ZX_OK;
}

uint32_t zx_build1(zx_builder *b, zx_op_id op, zx_attrs attrs, uint32_t n_in, ...)
{
    uint32_t in[8], out[8];
    ZX_ASSERT(n_in <= ZX_COUNT(in));
    va_list ap;
    va_start(ap, n_in);
    for (uint32_t i = 0; i < n_in; i++) in[i] = va_arg(ap, uint32_t);
    va_end(ap);
    zx_err err = {0};
    if (zx_build_node(b, op, in, n_in, attrs, NULL, out, &err) != ZX_OK) {
        fprintf(stderr, "zerox: %s in '%s': %s\n", zx_ops[op].word, b->at_name, err.cause[0]);
        zx_bug(__FILE__, __LINE__, "a node of our own making does not fit its inputs");
    }
    return out[0];
}

uint32_t zx_build_reshape(zx_builder *b, uint32_t x, const zx_shape *to)
{
    if (zx_shape_equal(zx_shape_of(b, x), to)) return x;
    return zx_build1(b, ZX_OP_RESHAPE, zx_attrs_shape(b->mem, (zx_attrs){0}, ZX_A_SHAPE, to), 1, x);
}

uint32_t zx_build_expand(zx_builder *b, uint32_t x, const zx_shape *to)
{
    if (zx_shape_equal(zx_shape_of(b, x), to)) return x;
    return zx_build1(b, ZX_OP_EXPAND, zx_attrs_shape(b->mem, (zx_attrs){0}, ZX_A_SHAPE, to), 1, x);
}

uint32_t zx_build_sum_to(zx_builder *b, uint32_t x, const zx_shape *to)
{
    if (zx_shape_equal(zx_shape_of(b, x), to)) return x;
    if (zx_shape_count(zx_shape_of(b, x)) == zx_shape_count(to)) return zx_build_reshape(b, x, to);
    return zx_build1(b, ZX_OP_SUM_TO, zx_attrs_shape(b->mem, (zx_attrs){0}, ZX_A_SHAPE, to), 1, x);
}

uint32_t zx_build_transpose(zx_builder *b, uint32_t x, const int64_t *perm)
{
    const uint32_t rank = zx_shape_of(b, x)->rank;
    bool same = true;
    for (uint32_t i = 0; i < rank; i++) same = same && perm[i] == (int64_t)i;
    if (same) return x;
    return zx_build1(b, ZX_OP_TRANSPOSE,
                     zx_attrs_ints(b->mem, (zx_attrs){0}, ZX_A_PERM, perm, rank), 1, x);
}

const char *zx_node_module(const zx_graph *g, const zx_node *n, zx_arena *mem)
{
    if (n->source == ZX_NONE) return "";
    const zx_source *s = &g->sources[n->source];
    // Scopes are paths already ("transformer.h.0.attn"): the innermost says it all.
    return s->n_scopes > 0 ? zx_text_safe(mem, s->scopes[s->n_scopes - 1]) : "";
}

const uint32_t *zx_graph_roots(const zx_graph *g, zx_arena *mem)
{
    uint32_t *root = ZX_NEW(mem, uint32_t, g->n_values + 1);
    for (uint32_t v = 0; v < g->n_values; v++) root[v] = v;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        if ((zx_ops[n->op].flags & ZX_OP_VIEW) == 0) continue;
        const uint32_t out = zx_node_out(g, n, 0);
        if (out != ZX_NONE)
            root[out] = root[zx_node_in(g, n, 0)]; // nodes come in an order that runs
    }
    return root;
}

static void mix(uint64_t *h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++) *h = (*h ^ p[i]) * 0x100000001B3u;
}

static void mix_type(uint64_t *h, const zx_type *t)
{
    const uint32_t head[2] = {(uint32_t)t->dtype, t->shape.rank};
    mix(h, head, sizeof head);
    mix(h, t->shape.dim, t->shape.rank * sizeof t->shape.dim[0]);
}

static void mix_attrs(uint64_t *h, const zx_attrs *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const zx_attr *x = &a->list[i];
        mix(h, &x->id, sizeof x->id);
        if (x->n == 0) continue;
        if (x->i) mix(h, x->i, x->n * sizeof *x->i);
        if (x->f) mix(h, x->f, x->n * sizeof *x->f);
    }
}

uint64_t zx_graph_hash(const zx_graph *g)
{
    uint64_t h = 0xCBF29CE484222325u;
    const uint32_t counts[] = {g->n_nodes,  g->n_values,  g->n_refs, g->n_inputs,
                               g->n_params, g->n_buffers, g->loss};
    mix(&h, counts, sizeof counts);
    if (g->n_refs > 0) mix(&h, g->refs, g->n_refs * sizeof *g->refs);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const zx_node *n = &g->nodes[i];
        const uint32_t head[] = {n->op, n->phase, n->in, n->n_in, n->out, n->n_out};
        mix(&h, head, sizeof head);
        mix_attrs(&h, &n->attrs);
    }
    for (uint32_t i = 0; i < g->n_values; i++) {
        const zx_value *v = &g->values[i];
        const uint32_t head[] = {(uint32_t)v->role, v->by, v->index};
        mix(&h, head, sizeof head);
        mix_type(&h, &v->type);
    }
    for (uint32_t i = 0; i < g->n_params; i++) {
        const zx_param *p = &g->params[i];
        mix(&h, &p->value, sizeof p->value);
        mix(&h, &p->grad, sizeof p->grad);
        mix(&h, p->name, strlen(p->name) + 1);
    }
    for (uint32_t i = 0; i < g->n_buffers; i++) {
        mix(&h, &g->buffers[i].value, sizeof g->buffers[i].value);
        mix(&h, &g->buffers[i].next, sizeof g->buffers[i].next);
    }
    return h;
}

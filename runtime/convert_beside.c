// convert_beside.c - see convert_beside.h. The model's message is small, since its weights are not
// in it: it is packed anew as a whole, while values go from file to file some MiB at a time.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert_beside.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/outfile.h"

#define PAGE 4096 // where larger ones begin, for who maps the file

typedef struct item { // a tensor whose values lie beside the model
    Onnx__TensorProto *t;
    const void *bytes; // its own; NULL: those of tensor i
    uint32_t i;
    uint64_t at, n;
} item;

typedef struct beside {
    zx_tensors *from;
    const zx_onnx_file *file;
    Onnx__GraphProto *graph;
    zx_arena *mem;
    zx_err *err;
    uint32_t n_items, cap_items;
    item *items;
    uint64_t bytes; // of the file beside
    const char *name;
} beside;

// ---- what stays in the model --------------------------------------------------------------------

// What was left out of the decoded message lies in the mapped file: it is packed from there.
static void bring_back(beside *b, Onnx__TensorProto *t)
{
    zx_type type;
    const void *data;
    if (t == NULL || t->base.n_unknown_fields == 0) return;
    if (zx_onnx_tensor(b->file, t, b->mem, &type, &data, b->err) != ZX_OK) return;
    t->n_float_data = t->n_int32_data = t->n_int64_data = 0;
    t->n_double_data = t->n_uint64_data = 0;
    t->base.n_unknown_fields = 0;
    t->has_raw_data = true;
    t->raw_data.data = (uint8_t *)(uintptr_t)data;
    t->raw_data.len = (size_t)zx_type_bytes(&type);
}

static void walk_graph(beside *b, Onnx__GraphProto *g, bool initializers);

static void walk_sparse(beside *b, Onnx__SparseTensorProto *s)
{
    if (s == NULL) return;
    bring_back(b, s->values);
    bring_back(b, s->indices);
}

static void walk_nodes(beside *b, size_t n, Onnx__NodeProto **nodes)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
            Onnx__AttributeProto *a = nodes[i]->attribute[k];
            bring_back(b, a->t);
            for (size_t j = 0; j < a->n_tensors; j++) bring_back(b, a->tensors[j]);
            walk_sparse(b, a->sparse_tensor);
            for (size_t j = 0; j < a->n_sparse_tensors; j++) walk_sparse(b, a->sparse_tensors[j]);
            walk_graph(b, a->g, true);
            for (size_t j = 0; j < a->n_graphs; j++) walk_graph(b, a->graphs[j], true);
        }
}

static void walk_graph(beside *b, Onnx__GraphProto *g, bool initializers)
{
    if (g == NULL) return;
    walk_nodes(b, g->n_node, g->node);
    for (size_t i = 0; i < g->n_sparse_initializer; i++) walk_sparse(b, g->sparse_initializer[i]);
    for (size_t i = 0; i < g->n_initializer && initializers; i++) bring_back(b, g->initializer[i]);
}

static void walk_model(beside *b)
{
    const Onnx__ModelProto *m = b->file->model;
    walk_graph(b, m->graph, false);
    for (size_t i = 0; i < m->n_functions; i++)
        walk_nodes(b, m->functions[i]->n_node, m->functions[i]->node);
    for (size_t i = 0; i < m->n_training_info; i++) {
        walk_graph(b, m->training_info[i]->initialization, true);
        walk_graph(b, m->training_info[i]->algorithm, true);
    }
}

// ---- what lies beside it ------------------------------------------------------------------------

static void add_meta(beside *b, Onnx__StringStringEntryProto *e, const char *key, const char *value)
{
    onnx__string_string_entry_proto__init(e);
    e->key = (char *)(uintptr_t)key;
    e->value = (char *)(uintptr_t)zx_arena_str(b->mem, value);
}

// Without what it held, and with a reference to where its values will lie.
static void put_beside(beside *b, Onnx__TensorProto *t, const zx_type *type, const void *bytes,
                       uint32_t i)
{
    const uint64_t n = zx_type_bytes(type), align = n >= PAGE ? PAGE : ZX_ALIGN;
    Onnx__TensorProto clean = ONNX__TENSOR_PROTO__INIT;
    Onnx__StringStringEntryProto *e = ZX_NEW(b->mem, Onnx__StringStringEntryProto, 3);
    clean.n_dims = t->n_dims;
    clean.dims = t->dims;
    clean.has_data_type = true;
    clean.data_type = t->data_type;
    clean.name = t->name;
    clean.doc_string = t->doc_string;
    clean.n_metadata_props = t->n_metadata_props;
    clean.metadata_props = t->metadata_props;
    clean.has_data_location = true;
    clean.data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    clean.n_external_data = 3;
    clean.external_data = ZX_NEW(b->mem, Onnx__StringStringEntryProto *, 3);
    b->bytes = (b->bytes + align - 1) / align * align;
    add_meta(b, &e[0], "location", b->name);
    add_meta(b, &e[1], "offset", zx_arena_printf(b->mem, "%" PRIu64, b->bytes));
    add_meta(b, &e[2], "length", zx_arena_printf(b->mem, "%" PRIu64, n));
    for (int k = 0; k < 3; k++) clean.external_data[k] = &e[k];
    *t = clean;
    ZX_GROW(b->mem, b->items, b->n_items, b->cap_items);
    b->items[b->n_items++] = (item){t, bytes, i, b->bytes, n};
    b->bytes += n;
}

static bool is_beside(const beside *b, const Onnx__TensorProto *t)
{
    for (uint32_t k = 0; k < b->n_items; k++)
        if (b->items[k].t == t) return true;
    return false;
}

// Constants that lay in other files, or are large: as they were.
static void put_constant(beside *b, Onnx__TensorProto *t)
{
    zx_type type;
    const void *data;
    const bool outside = t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    if (!outside && t->base.n_unknown_fields == 0) return;
    if (zx_onnx_tensor(b->file, t, b->mem, &type, &data, b->err) == ZX_OK)
        put_beside(b, t, &type, data, ZX_NONE);
}

// ---- weights that nodes make --------------------------------------------------------------------

static const Onnx__AttributeProto *attribute(const Onnx__NodeProto *node, const char *name)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->name != NULL && strcmp(node->attribute[i]->name, name) == 0)
            return node->attribute[i];
    return NULL;
}

static bool makes_weights(const Onnx__NodeProto *node)
{
    static const char *const ops[] = {"RandomNormal", "RandomUniform", "ConstantOfShape"};
    for (size_t i = 0; i < ZX_COUNT(ops); i++)
        if (node->op_type != NULL && strcmp(node->op_type, ops[i]) == 0) return true;
    return false;
}

static Onnx__TensorProto *initializer(const beside *b, const char *name)
{
    for (size_t i = 0; i < b->graph->n_initializer; i++)
        if (b->graph->initializer[i]->name != NULL &&
            strcmp(b->graph->initializer[i]->name, name) == 0)
            return b->graph->initializer[i];
    return NULL;
}

// What the node makes, as far as the file says it; false: it doesn't.
static bool made_type(beside *b, const Onnx__NodeProto *node, zx_type *out)
{
    const Onnx__AttributeProto *shape = attribute(node, "shape"), *dtype = attribute(node, "dtype"),
                               *value = attribute(node, "value");
    size_t n = shape != NULL ? shape->n_ints : 0;
    const int64_t *dims = shape != NULL ? shape->ints : NULL;
    zx_type of_shape;
    const void *data;
    *out = (zx_type){.dtype = ZX_F32};
    if (dtype != NULL) out->dtype = zx_dtype_of_onnx(dtype->i);
    if (value != NULL && value->t != NULL) out->dtype = zx_dtype_of_onnx(value->t->data_type);
    if (shape == NULL && node->n_input == 1) {
        Onnx__TensorProto *t = initializer(b, node->input[0]);
        if (t == NULL || zx_onnx_tensor(b->file, t, b->mem, &of_shape, &data, NULL) != ZX_OK ||
            of_shape.dtype != ZX_I64)
            return false;
        n = (size_t)zx_shape_count(&of_shape.shape);
        int64_t *copy = ZX_NEW(b->mem, int64_t, n + 1);
        memcpy(copy, data, n * sizeof *copy);
        dims = copy;
    }
    if (dims == NULL || n > ZX_MAX_RANK || out->dtype >= ZX_DTYPE_COUNT) return false;
    out->shape.rank = (uint32_t)n;
    memcpy(out->shape.dim, dims, n * sizeof *dims);
    return true;
}

// The node that makes it under one of its names is replaced by an initializer.
static Onnx__TensorProto *replace_node(beside *b, const zx_tensor_entry *e)
{
    Onnx__GraphProto *g = b->graph;
    for (size_t i = 0; i < g->n_node; i++) {
        const Onnx__NodeProto *node = g->node[i];
        zx_type type;
        bool its = false;
        if (!makes_weights(node) || node->n_output != 1) continue;
        for (uint32_t k = 0; k <= e->n_aliases; k++)
            its |= strcmp(node->output[0], k == 0 ? e->name : e->aliases[k - 1]) == 0;
        if (!its || !made_type(b, node, &type)) continue;
        Onnx__TensorProto *t = ZX_NEW(b->mem, Onnx__TensorProto, 1);
        onnx__tensor_proto__init(t);
        t->name = node->output[0];
        t->data_type = zx_dtypes[type.dtype].onnx;
        t->n_dims = type.shape.rank;
        t->dims = ZX_NEW(b->mem, int64_t, t->n_dims + 1);
        memcpy(t->dims, type.shape.dim, t->n_dims * sizeof *t->dims);
        memmove(&g->node[i], &g->node[i + 1], (g->n_node - i - 1) * sizeof *g->node);
        g->n_node--;
        zx_convert_check(e, &type, b->mem, b->err);
        return t;
    }
    return NULL;
}

// ---- all of it ----------------------------------------------------------------------------------

// Grown initializers are a list of their own: the message's has no room.
static void add_initializer(beside *b, Onnx__TensorProto *t)
{
    Onnx__GraphProto *g = b->graph;
    Onnx__TensorProto **list = ZX_NEW(b->mem, Onnx__TensorProto *, g->n_initializer + 1);
    if (g->n_initializer > 0) memcpy(list, g->initializer, g->n_initializer * sizeof *list);
    list[g->n_initializer++] = t;
    g->initializer = list;
}

static uint32_t put_weights(beside *b, const zx_onnx_place *places, uint32_t n_places)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->from->n; i++) {
        const zx_tensor_entry *e = &b->from->at[i];
        if (zx_tensor_is_state(e)) continue;
        const zx_onnx_place *p = zx_convert_place(places, n_places, e);
        Onnx__TensorProto *t = p != NULL ? initializer(b, p->name) : replace_node(b, e);
        if (t == NULL) {
            ZX_FAIL(b->err, ZX_E_DATA, "there is no initializer '%s'",
                    zx_text_safe(b->mem, e->name));
            continue;
        }
        if (p != NULL && zx_convert_check(e, &p->type, b->mem, b->err) != ZX_OK) continue;
        if (is_beside(b, t)) {
            ZX_FAIL(b->err, ZX_E_DATA, "'%s' and another tensor are one initializer there",
                    zx_text_safe(b->mem, e->name));
            continue;
        }
        if (p == NULL) add_initializer(b, t);
        put_beside(b, t, &e->type, NULL, i);
        n++;
    }
    return n;
}

// The new file must be none that the model reads: it is read while that is written.
static void check_apart(const beside *b, const char *path)
{
    struct stat own, other;
    const char *slash = strrchr(b->file->path, '/');
    if (stat(path, &own) != 0) return;
    for (size_t i = 0; i < b->graph->n_initializer; i++) {
        const Onnx__TensorProto *t = b->graph->initializer[i];
        const char *at = zx_onnx_meta(t->external_data, t->n_external_data, "location");
        if (at == NULL) continue;
        const char *full = slash != NULL
                               ? zx_arena_printf(b->mem, "%.*s/%s", (int)(slash - b->file->path),
                                                 b->file->path, at)
                               : at;
        if (stat(full, &other) != 0 || other.st_dev != own.st_dev || other.st_ino != own.st_ino)
            continue;
        zx_err_hint(b->err, "another name for the new model");
        ZX_FAIL(b->err, ZX_E_USAGE, "%s has values of the model itself",
                zx_text_safe(b->mem, path));
        return;
    }
}

static zx_status write_values(const beside *b, const char *path, unsigned char *chunk)
{
    static const unsigned char zeros[PAGE];
    zx_outfile f = {0};
    uint64_t at = 0;
    zx_status st = zx_outfile_open(&f, path, b->mem, b->err);
    for (uint32_t k = 0; k < b->n_items && st == ZX_OK; k++) {
        const item *x = &b->items[k];
        st = zx_outfile_write(&f, zeros, (size_t)(x->at - at), b->err);
        if (st == ZX_OK && x->bytes == NULL)
            st = zx_convert_put(b->from, x->i, chunk, &f, b->err);
        else if (st == ZX_OK)
            st = zx_outfile_write(&f, x->bytes, (size_t)x->n, b->err);
        at = x->at + x->n;
    }
    if (st == ZX_OK) st = zx_outfile_commit(&f, b->err);
    zx_outfile_drop(&f);
    return st;
}

static zx_status write_model(const beside *b, const char *to)
{
    const size_t n = onnx__model_proto__get_packed_size(b->file->model);
    unsigned char *bytes = n <= INT_MAX ? malloc(n + 1) : NULL;
    if (n > INT_MAX)
        return ZX_FAIL(b->err, ZX_E_UNSUPPORTED,
                       "without its weights it has %zu bytes, 2 GiB are "
                       "the most",
                       n);
    if (bytes == NULL) return ZX_FAIL(b->err, ZX_E_IO, "out of memory");
    onnx__model_proto__pack(b->file->model, bytes);
    const zx_status st = zx_outfile_put(to, bytes, n, b->mem, b->err);
    free(bytes);
    return st;
}

zx_status zx_convert_beside(zx_tensors *from, const zx_onnx_file *file, const zx_onnx_place *places,
                            uint32_t n_places, const char *to, bool force, zx_arena *mem,
                            uint32_t *n, zx_err *err)
{
    const char *path = zx_arena_printf(mem, "%s.data", to), *slash = strrchr(path, '/');
    zx_err found = {0};
    beside b = {.from = from,
                .file = file,
                .graph = file->model->graph,
                .mem = mem,
                .err = &found,
                .name = slash != NULL ? slash + 1 : path};
    check_apart(&b, path);
    const size_t own = b.graph->n_initializer;
    *n = put_weights(&b, places, n_places);
    for (size_t i = 0; i < own; i++) {
        Onnx__TensorProto *t = b.graph->initializer[i];
        if (!is_beside(&b, t)) put_constant(&b, t);
    }
    walk_model(&b);
    if (found.code != ZX_OK) return zx_err_merge(err, &found);
    ZX_TRY(zx_outfile_spare(path, force, err));
    unsigned char *chunk = malloc(ZX_CONVERT_CHUNK);
    if (chunk == NULL) return ZX_FAIL(err, ZX_E_IO, "out of memory");
    b.err = err;
    zx_status st = write_values(&b, path, chunk);
    if (st == ZX_OK) st = write_model(&b, to); // last: what it names is there
    free(chunk);
    return st;
}

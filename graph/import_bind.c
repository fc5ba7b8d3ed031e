// import_bind.c - the graph's inputs, with every dimension bound: from the micro-batch size, from
// the data, or by name.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *text(const char *s)
{
    return s ? s : "";
}

static zx_status declare(const Onnx__ValueInfoProto *info, zx_arena *mem, zx_input_decl *d,
                         zx_err *err)
{
    const char *name = zx_text_safe(mem, text(info->name));
    *d = (zx_input_decl){.name = text(info->name)};
    const Onnx__TypeProto *t = info->type;
    if (t == NULL || t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || t->tensor_type == NULL)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "the input '%s' isn't a tensor", name);
    d->dtype = zx_dtype_of_onnx(t->tensor_type->elem_type);
    if (d->dtype == ZX_DTYPE_COUNT)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "the input '%s' has the element type %d, which isn't "
                       "supported",
                       name, t->tensor_type->elem_type);
    const Onnx__TensorShapeProto *s = t->tensor_type->shape;
    if (s == NULL)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "the file doesn't say how many dimensions the input '%s' "
                       "has",
                       name);
    if (s->n_dim > ZX_MAX_RANK)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                       "the input '%s' has %zu dimensions, at most %d are "
                       "supported",
                       name, s->n_dim, ZX_MAX_RANK);
    d->rank = (uint32_t)s->n_dim;
    for (uint32_t i = 0; i < d->rank; i++) {
        const Onnx__TensorShapeProto__Dimension *x = s->dim[i];
        d->dim[i] = -1;
        if (x->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE) {
            d->dim[i] = x->dim_value;
            if (x->dim_value <= 0)
                return ZX_FAIL(err, ZX_E_SHAPE, "dimension %u of the input '%s' is %" PRId64, i,
                               name, x->dim_value);
            if (x->dim_value > INT64_C(1) << 40)
                return ZX_FAIL(err, ZX_E_SHAPE,
                               "dimension %u of the input '%s' is %" PRId64 ", which is too large",
                               i, name, x->dim_value);
        } else {
            d->symbol[i] = x->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM
                               ? text(x->dim_param)
                               : "";
        }
    }
    return ZX_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char **sorted_initialisers(const Onnx__GraphProto *g, zx_arena *mem)
{
    const char **names = ZX_NEW(mem, const char *, g->n_initializer + 1);
    for (size_t k = 0; k < g->n_initializer; k++) names[k] = text(g->initializer[k]->name);
    qsort(names, g->n_initializer, sizeof *names, by_name);
    return names;
}

zx_status zx_import_inputs(const zx_onnx_file *file, zx_arena *mem, uint32_t *n,
                           zx_input_decl **out, zx_err *err)
{
    const Onnx__GraphProto *g = file->model->graph;
    zx_err mine = {0};
    *n = 0;
    *out = ZX_NEW(mem, zx_input_decl, g->n_input + 1);
    const char **initialised = sorted_initialisers(g, mem);
    for (size_t i = 0; i < g->n_input; i++) {
        const char *name = text(g->input[i]->name); // old files list initialisers, too
        if (bsearch(&name, initialised, g->n_initializer, sizeof name, by_name) != NULL) continue;
        if (text(g->input[i]->name)[0] == '\0') {
            ZX_FAIL(&mine, ZX_E_FORMAT, "the input %zu has no name", i);
            continue;
        }
        declare(g->input[i], mem, &(*out)[*n], &mine);
        ++*n;
    }
    if (mine.n_causes == 0) return ZX_OK;
    const char *slash = strrchr(file->path, '/');
    zx_err_in(&mine, "%s", zx_text_safe(mem, slash ? slash + 1 : file->path));
    return zx_err_merge(err, &mine);
}

// ---- binding
// ---------------------------------------------------------------------------------------------

typedef struct symbol {
    const char *name;
    int64_t size;
    const char *from; // who said so
} symbol;

typedef struct table {
    uint32_t n, cap;
    symbol *at;
} table;

static symbol *find(table *t, const char *name)
{
    for (uint32_t i = 0; i < t->n; i++)
        if (strcmp(t->at[i].name, name) == 0) return &t->at[i];
    return NULL;
}

static void set(zx_imp *c, table *t, const char *name, int64_t size, const char *from)
{
    const symbol *have = find(t, name);
    if (have == NULL) {
        ZX_GROW(&c->tmp, t->at, t->n, t->cap);
        t->at[t->n++] = (symbol){name, size, from};
    } else if (have->size != size) {
        zx_import_fail(c, NULL, ZX_E_SHAPE,
                       "the dimension '%s' is %" PRId64 " by %s, but %" PRId64 " by %s",
                       zx_text_safe(&c->tmp, name), have->size, have->from, size, from);
    }
}

static const zx_input_shape *shape_of(const zx_imp *c, const char *input)
{
    for (uint32_t i = 0; i < c->options->n_shapes; i++)
        if (strcmp(c->options->shapes[i].name, input) == 0) return &c->options->shapes[i];
    return NULL;
}

// What the data says about dims 1.. of input d: binds symbols, and checks fixed dims against it.
static void bind_by_data(zx_imp *c, table *t, const zx_input_decl *d)
{
    const zx_input_shape *s = shape_of(c, d->name);
    if (s == NULL) return;
    const char *name = zx_text_safe(&c->tmp, d->name);
    if (s->rank + 1 != d->rank) {
        zx_import_fail(c, NULL, ZX_E_DATA,
                       "the input '%s' has %u dimensions, a sample of its data %u: "
                       "they must be one fewer",
                       name, d->rank, s->rank);
        return;
    }
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0) continue;
        if (s->dim[i] == 0) {
            zx_import_fail(c, NULL, ZX_E_DATA,
                           "the data of the input '%s' has a dimension of size 0", name);
        } else if (d->dim[i + 1] >= 0 && d->dim[i + 1] != s->dim[i]) {
            zx_import_fail(c, NULL, ZX_E_DATA,
                           "dimension %u of the input '%s' is %" PRId64 ", in its data %" PRId64,
                           i + 1, name, d->dim[i + 1], s->dim[i]);
        } else if (d->dim[i + 1] < 0 && d->symbol[i + 1][0]) {
            set(c, t, d->symbol[i + 1], s->dim[i],
                zx_arena_printf(&c->tmp, "the data of '%s'", name));
        }
    }
}

static void check_names(zx_imp *c, const zx_input_decl *in, uint32_t n)
{
    const char **names = ZX_NEW(&c->tmp, const char *, (size_t)n *ZX_MAX_RANK + 1);
    uint32_t n_names = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t d = 0; d < in[i].rank; d++)
            if (in[i].dim[d] < 0 && in[i].symbol[d][0]) names[n_names++] = in[i].symbol[d];
    for (uint32_t k = 0; k < c->options->n_dims; k++) {
        const zx_bind *b = &c->options->dims[k];
        bool known = false;
        for (uint32_t i = 0; i < n_names && !known; i++) known = strcmp(names[i], b->name) == 0;
        if (known && b->size > 0) continue;
        if (known) {
            zx_import_fail(c, NULL, ZX_E_USAGE, "--dim %s=%" PRId64 ": a size must be at least 1",
                           zx_text_safe(&c->tmp, b->name), b->size);
            continue;
        }
        zx_import_fail(c, NULL, ZX_E_USAGE,
                       "--dim %s=%" PRId64 ": no input has a dimension of that name",
                       zx_text_safe(&c->tmp, b->name), b->size);
        const char *near = zx_text_nearest(b->name, names, n_names);
        if (near == NULL && n_names > 0) near = names[n_names - 1];
        if (near) zx_err_hint(c->err, "--dim %s=%" PRId64, zx_text_safe(&c->tmp, near), b->size);
    }
}

static int64_t size_of(zx_imp *c, table *t, const zx_input_decl *d, uint32_t axis)
{
    if (d->dim[axis] >= 0) return d->dim[axis];
    const char *name = d->symbol[axis];
    const symbol *known = name[0] ? find(t, name) : NULL;
    if (known) return known->size;
    const zx_input_shape *s = shape_of(c, d->name);
    if (axis == 0) return c->options->micro_batch > 0 ? c->options->micro_batch : 1;
    if (s && s->rank + 1 == d->rank && s->dim[axis - 1] > 0) return s->dim[axis - 1];
    if (name[0]) {
        zx_import_fail(c, NULL, ZX_E_USAGE,
                       "dimension %u of the input '%s' ('%s') isn't fixed by the file or by data",
                       axis, zx_text_safe(&c->tmp, d->name), zx_text_safe(&c->tmp, name));
        zx_err_hint(c->err, "--dim %s=128", zx_text_safe(&c->tmp, name));
    } else {
        zx_import_fail(
            c, NULL, ZX_E_USAGE,
            "dimension %u of the input '%s' has neither size nor name: only data can fix it", axis,
            zx_text_safe(&c->tmp, d->name));
    }
    return 1;
}

zx_status zx_import_bind(zx_imp *c)
{
    uint32_t n;
    zx_input_decl *in;
    zx_err mine = {0};
    const Onnx__GraphProto *g = c->file->model->graph;
    in = ZX_NEW(&c->tmp, zx_input_decl, g->n_input + 1);
    n = c->main->n_in;
    for (uint32_t i = 0; i < n; i++) declare(c->vals[c->main->in[i]].info, &c->tmp, &in[i], &mine);
    if (mine.n_causes > 0) return zx_err_merge(c->err, &mine);

    table t = {0};
    check_names(c, in, n);
    for (uint32_t i = 0; i < c->options->n_dims; i++)
        set(c, &t, c->options->dims[i].name, c->options->dims[i].size, "--dim");
    if (c->options->micro_batch > 0)
        for (uint32_t i = 0; i < n; i++)
            if (in[i].rank > 0 && in[i].dim[0] < 0 && in[i].symbol[0][0])
                set(c, &t, in[i].symbol[0], c->options->micro_batch, "the micro-batch size");
    for (uint32_t i = 0; i < n; i++) bind_by_data(c, &t, &in[i]);
    if (c->options->micro_batch <= 0)
        for (uint32_t i = 0; i < n; i++)
            if (in[i].rank > 0 && in[i].dim[0] < 0 && in[i].symbol[0][0] &&
                !find(&t, in[i].symbol[0]))
                set(c, &t, in[i].symbol[0], 1, "the micro-batch size");

    for (uint32_t i = 0; i < n; i++) {
        zx_type type = {.dtype = in[i].dtype, .shape = {.rank = in[i].rank}};
        for (uint32_t d = 0; d < in[i].rank; d++) type.shape.dim[d] = size_of(c, &t, &in[i], d);
        zx_err one = {0};
        if (zx_shape_check(&type.shape, &one) != ZX_OK) {
            zx_err_in(&one, "the input '%s'", zx_text_safe(&c->tmp, in[i].name));
            zx_err_merge(c->err, &one);
        }
        if (zx_dtype_is_float(type.dtype) && type.dtype != ZX_F32)
            zx_import_fail(c, NULL, ZX_E_UNSUPPORTED,
                           "the input '%s' is %s: only float32 inputs are supported so far",
                           zx_text_safe(&c->tmp, in[i].name), zx_dtypes[type.dtype].word);
        if (c->err->n_causes > 0) continue;
        zx_ival *v = &c->vals[c->main->in[i]];
        v->v = zx_build_input(&c->b, v->name, &type);
        v->know = ZX_I_VALUE;
        zx_hold(c, v->v);
    }
    return c->err->n_causes > 0 ? c->err->code : ZX_OK;
}

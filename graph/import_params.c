// import_params.c - which tensors of a file are parameters, which are buffers, and why.
//
// What the exporter states decides. A file that states nothing is read by what its tensors do: a
// float tensor from which a gradient of the loss can be taken is trained.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <math.h>
#include <string.h>

#define KIND "pkg.torch.export.graph_signature.InputSpec.kind"
#define PERSISTENT "pkg.torch.export.graph_signature.InputSpec.persistent"
#define FOLDED_FROM "pkg.onnxscript.optimizer.folded_from"
#define SIGNATURE "pkg.torch.export.ExportedProgram.graph_signature"
#define ODD_NAMED 3     // parameters of another type: how many are named
#define MASK_VALUE 1e30 // numbers this large only stand in masks

// ---- what the exporter states
// --------------------------------------------------------------------------

// Lines "p_name: PARAMETER target='name'", in the order of the module tree.
static void read_signature(zx_imp *c)
{
    const Onnx__ModelProto *m = c->file->model;
    const char *s = zx_onnx_meta(m->graph->metadata_props, m->graph->n_metadata_props, SIGNATURE);
    if (s == NULL) s = zx_onnx_meta(m->metadata_props, m->n_metadata_props, SIGNATURE);
    uint32_t cap = 0;
    static const char mark[] = ": PARAMETER target='";
    while (s && (s = strstr(s, mark)) != NULL) {
        s += sizeof mark - 1;
        const char *end = strchr(s, '\'');
        if (end == NULL) break;
        ZX_GROW(&c->tmp, c->signature, c->n_signature, cap);
        c->signature[c->n_signature++] = zx_arena_strn(&c->tmp, s, (size_t)(end - s));
        s = end;
    }
}

static uint32_t in_signature(const zx_imp *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_signature; i++)
        if (strcmp(c->signature[i], name) == 0) return i;
    return ZX_NONE;
}

// The first PARAMETER of the signature (or tensor of that kind) that a folded constant was made
// from; NULL if it was made from none. *present: that parameter is still in the file itself.
static const char *folded_from(const zx_imp *c, const zx_ival *v, bool *present)
{
    const char *s = zx_ival_meta(c, v, FOLDED_FROM);
    while (s && *s) {
        while (*s && *s != '\'') s++;
        if (*s == '\0') return NULL;
        const char *end = strchr(++s, '\'');
        if (end == NULL) return NULL;
        const size_t n = (size_t)(end - s);
        *present = false;
        const char *found = NULL;
        for (uint32_t i = 0; i < c->n_signature; i++)
            if (strncmp(c->signature[i], s, n) == 0 && c->signature[i][n] == '\0')
                found = c->signature[i];
        for (uint32_t i = 0; i < c->n_vals; i++) {
            const zx_ival *x = &c->vals[i];
            if (x->kind != ZX_I_INIT || strncmp(x->name, s, n) != 0 || x->name[n] != '\0') continue;
            const char *kind = zx_ival_meta(c, x, KIND);
            *present = true;
            if (kind && strcmp(kind, "PARAMETER") == 0) found = x->name;
        }
        if (found) return found;
        s = end + 1;
    }
    return NULL;
}

// ---- what tensors do
// -------------------------------------------------------------------------------------

static bool is_op(const zx_inode *n, const char *op)
{
    return n->domain[0] == '\0' && strcmp(n->op, op) == 0;
}

// Marks the tensors to which a gradient can come back from the loss. Cos and Sin count as ends:
// behind them stand positions and frequencies, never weights.
static void mark_reach(zx_imp *c, const zx_iregion *r)
{
    for (uint32_t i = r->n_nodes; i-- > 0;) {
        const zx_inode *n = r->nodes[i];
        bool reach = false;
        for (uint32_t k = 0; k < n->n_out; k++)
            reach = reach || (n->out[k] != ZX_NONE && c->vals[n->out[k]].reach);
        if (!reach || !n->live || is_op(n, "Cos") || is_op(n, "Sin")) continue;
        if (is_op(n, "Cast")) { // to integers and back nothing returns
            const zx_iattr *to = zx_inode_attr(n, "to");
            const zx_dtype t = to ? zx_dtype_of_onnx(to->a->i) : ZX_DTYPE_COUNT;
            if (t != ZX_DTYPE_COUNT && !zx_dtype_is_float(t)) continue;
        }
        for (uint32_t k = 0; k < n->n_in; k++)
            if (n->in[k] != ZX_NONE && (n->row == NULL || zx_onnx_op_diff(n->row, k)))
                c->vals[n->in[k]].reach = true;
        for (uint32_t k = 0; k < n->n_attrs; k++) {
            const zx_iregion *body = n->attrs[k].body;
            if (body == NULL) continue;
            for (uint32_t j = 0; j < body->n_out; j++)
                if (body->out[j] != ZX_NONE) c->vals[body->out[j]].reach = true;
            mark_reach(c, body);
        }
    }
}

// ---- values
// --------------------------------------------------------------------------------------------------

static bool has_mask_value(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float f;
        memcpy(&f, (const char *)x + i * 4, 4);
        if (fabsf(f) >= (float)MASK_VALUE) return true; // infinities, too; NaN is no mask
    }
    return false;
}

bool zx_all_equal(const void *data, int64_t n)
{
    return n > 0 && (n == 1 || memcmp(data, (const char *)data + 4, (size_t)(n - 1) * 4) == 0);
}

// ---- adding
// ----------------------------------------------------------------------------------------------------

static zx_iparam *add(zx_imp *c, zx_iparam **list, uint32_t *n, uint32_t *cap, uint32_t ival,
                      const zx_type *type, const char *why)
{
    zx_iparam *more = *list;
    ZX_GROW(&c->tmp, more, *n, *cap);
    *list = more;
    more[*n] = (zx_iparam){.ival = ival,
                           .name = c->vals[ival].name,
                           .type = *type,
                           .why = why,
                           .order = ZX_NONE,
                           .v = ZX_NONE,
                           .now = ZX_NONE};
    c->vals[ival].entry = *n;
    return &more[(*n)++];
}

// A model of halves has hundreds of such parameters: they share a line.
static void note_odd(zx_imp *c, const char *name, zx_dtype type)
{
    if (c->n_odd == 0) c->odd = type;
    c->odd_mixed = c->odd_mixed || c->odd != type;
    if (c->n_odd < ODD_NAMED)
        zx_text_put(&c->odd_names, "%s'%.100s'", c->n_odd ? ", " : "", zx_text_safe(&c->tmp, name));
    c->n_odd++;
}

static void refuse_odd(zx_imp *c)
{
    if (c->n_odd == 0) return;
    const char *more = c->n_odd > ODD_NAMED ? ", ..." : "";
    const char *names = c->odd_names.at, *type = zx_dtypes[c->odd].word;
    if (c->n_odd == 1)
        zx_import_fail(c, NULL, ZX_E_UNSUPPORTED,
                       "the parameter %s is %s: only float32 can be trained so far", names, type);
    else
        zx_import_fail(c, NULL, ZX_E_UNSUPPORTED,
                       "%u parameters are %s (%s%s): only float32 can be trained so far", c->n_odd,
                       c->odd_mixed ? "not float32" : type, names, more);
    zx_err_hint(c->err, "model.float() before exporting");
    zx_text_free(&c->odd_names);
}

static void add_param(zx_imp *c, uint32_t ival, const zx_type *type, const zx_init *init,
                      const char *why, const char *order_of)
{
    zx_ival *v = &c->vals[ival];
    if (type->dtype != ZX_F32) {
        note_odd(c, v->name, type->dtype);
        return;
    }
    v->cls = ZX_I_PARAM;
    zx_iparam *p = add(c, &c->params, &c->n_params, &c->cap_params, ival, type, why);
    p->init = *init;
    p->order = in_signature(c, order_of);
}

static void add_buffer(zx_imp *c, uint32_t ival, const zx_type *type, const void *data,
                       const char *why, bool changes)
{
    if (type->dtype != ZX_F32) return; // a constant: nothing of ours changes integers
    c->vals[ival].cls = ZX_I_BUFFER;
    zx_iparam *p = add(c, &c->buffers, &c->n_buffers, &c->cap_buffers, ival, type, why);
    p->init = (zx_init){.kind = ZX_INIT_DATA, .data = data};
    p->changes = changes;
}

// ---- tensors of the file
// -----------------------------------------------------------------------------------------

typedef struct facts {
    bool *statistic;     // read as the running mean or variance of a normalisation
    bool *hit_p, *hit_b; // patterns of zerox.parameters and zerox.buffers that matched
} facts;

static bool named(const char *name, const char *const *patterns, uint32_t n, bool *hit)
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        if (zx_text_match(patterns[i], name)) {
            any = true;
            hit[i] = true;
        }
    return any;
}

static void classify_tensor(zx_imp *c, uint32_t i, const facts *f)
{
    const Onnx__TensorProto *t = zx_ival_tensor(c, &c->vals[i]);
    if (t == NULL) return;
    const zx_dtype dtype = zx_dtype_of_onnx(t->data_type);
    const char *name = c->vals[i].name;
    const bool as_param = named(name, c->options->parameters, c->options->n_parameters, f->hit_p);
    const bool as_buffer = named(name, c->options->buffers, c->options->n_buffers, f->hit_b);
    if (dtype == ZX_DTYPE_COUNT || !zx_dtype_is_float(dtype)) return;
    const char *kind = zx_ival_meta(c, &c->vals[i], KIND);
    if (!as_param && !as_buffer && !f->statistic[i] && !kind && !c->vals[i].reach && !c->has_kinds)
        return;

    zx_type type;
    const void *data;
    zx_err one = {0};
    if (zx_onnx_tensor(c->file, t, c->mem, &type, &data, &one) != ZX_OK) {
        zx_err_in(&one, "'%s'", zx_text_safe(&c->tmp, name));
        zx_err_merge(c->err, &one);
        return;
    }
    const zx_init init = {.kind = ZX_INIT_DATA, .data = data};
    const int64_t n = zx_shape_count(&type.shape);
    if (as_buffer) {
        add_buffer(c, i, &type, data, "named in zerox.buffers", f->statistic[i]);
    } else if (as_param) {
        add_param(c, i, &type, &init, "named in zerox.parameters", name);
    } else if (kind && strcmp(kind, "PARAMETER") == 0) {
        add_param(c, i, &type, &init, "the exporter says so", name);
    } else if (f->statistic[i]) {
        add_buffer(c, i, &type, data, "running statistics of a normalisation", true);
    } else if (kind && strcmp(kind, "BUFFER") == 0) {
        const char *persistent = zx_ival_meta(c, &c->vals[i], PERSISTENT);
        if (persistent == NULL || strcmp(persistent, "False") != 0)
            add_buffer(c, i, &type, data, "the exporter says so", false);
    } else if (c->has_kinds) {
        bool present = false;
        const char *from = folded_from(c, &c->vals[i], &present);
        // Zeros made in the shape of a parameter name it, too.
        if (from && type.dtype == ZX_F32 && !(present && zx_all_equal(data, n)))
            add_param(c, i, &type, &init,
                      zx_arena_printf(c->mem, "the exporter folded it from '%s'",
                                      zx_text_safe(c->mem, from)),
                      from);
    } else if (n > 1 && type.dtype == ZX_F32) {
        // Where initialisers are trained, ones and zeros in Constant nodes fill a slot of an
        // operator.
        const bool filler =
            c->vals[i].kind == ZX_I_NODE && c->n_params > 0 && zx_all_equal(data, n);
        if (!filler && !has_mask_value(data, n))
            add_param(c, i, &type, &init,
                      c->vals[i].kind == ZX_I_INIT ? "a float initialiser that reaches the loss"
                                                   : "a float Constant that reaches the loss",
                      name);
    } else if (n > 1) {
        add_param(c, i, &type, &init, "a float initialiser that reaches the loss", name);
    }
}

// ---- weights that nodes make
// -----------------------------------------------------------------------------------

// True if some consumer reads tensor v as a weight: behind it no mask or noise is hidden.
static bool read_as_weight(const zx_imp *c, uint32_t v, uint32_t rank, const zx_iregion *r,
                           uint32_t depth)
{
    static const struct {
        const char *op;
        uint32_t slots; // bit i: input i is a weight
    } rows[] = {
        {"LinearCrossEntropy", 2}, // zerox's own
        {"MatMul", 3},
        {"Gemm", 7},
        {"Conv", 6},
        {"ConvTranspose", 6},
        {"Gather", 1},
        {"LayerNormalization", 6},
        {"RMSNormalization", 2},
        {"BatchNormalization", 6},
        {"GroupNormalization", 6},
        {"InstanceNormalization", 6},
        {"PRelu", 2},
    };
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        const zx_inode *n = r->nodes[i];
        for (uint32_t k = 0; k < n->n_in && n->live; k++) {
            if (n->in[k] != v) continue;
            const bool known = n->domain[0] == '\0' || strcmp(n->domain, "zerox") == 0;
            for (uint32_t j = 0; known && j < ZX_COUNT(rows); j++)
                if (strcmp(n->op, rows[j].op) == 0 && (rows[j].slots >> k & 1)) return true;
            if (rank == 1 && (is_op(n, "Add") || is_op(n, "Mul"))) return true;
            const bool moved = is_op(n, "Transpose") || is_op(n, "Reshape") ||
                               is_op(n, "Identity") || is_op(n, "Unsqueeze");
            if (moved && k == 0 && depth < 4 && n->out[0] != ZX_NONE &&
                read_as_weight(c, n->out[0], rank, r, depth + 1))
                return true;
        }
    }
    return false;
}

static float attr_f(const zx_inode *n, const char *name, float absent)
{
    const zx_iattr *a = zx_inode_attr(n, name);
    return a && a->a->has_f ? a->a->f : absent;
}

// A short list of int64 that the file spells out: an initialiser or a Constant node.
static const int64_t *spelled_ints(zx_imp *c, uint32_t v, size_t *n)
{
    *n = 0;
    if (v == ZX_NONE) return NULL;
    const zx_inode *by = c->vals[v].by;
    const zx_iattr *ints = by && is_op(by, "Constant") ? zx_inode_attr(by, "value_ints") : NULL;
    if (ints) {
        *n = ints->a->n_ints;
        return ints->a->ints;
    }
    const Onnx__TensorProto *t = zx_ival_tensor(c, &c->vals[v]);
    zx_type type;
    const void *data;
    if (t == NULL || zx_onnx_tensor(c->file, t, &c->tmp, &type, &data, NULL) != ZX_OK ||
        type.dtype != ZX_I64 || type.shape.rank != 1 || type.shape.dim[0] > ZX_MAX_RANK)
        return NULL;
    *n = (size_t)type.shape.dim[0];
    return zx_arena_copy(&c->tmp, data, *n * sizeof(int64_t)); // aligned
}

// The static shape that a node gives its tensor: an attribute, or a constant input.
static bool static_shape(zx_imp *c, const zx_inode *n, zx_shape *s)
{
    const zx_iattr *a = zx_inode_attr(n, "shape");
    size_t rank = a ? a->a->n_ints : 0;
    const int64_t *dims = a ? a->a->ints : NULL;
    if (is_op(n, "ConstantOfShape"))
        dims = spelled_ints(c, n->n_in > 0 ? n->in[0] : ZX_NONE, &rank);
    if (dims == NULL || rank > ZX_MAX_RANK) return false;
    *s = (zx_shape){.rank = (uint32_t)rank};
    for (size_t i = 0; i < rank; i++) s->dim[i] = dims[i];
    return zx_shape_check(s, NULL) == ZX_OK && zx_shape_count(s) > 1;
}

static void classify_made(zx_imp *c, uint32_t i, const facts *f)
{
    const zx_inode *n = c->vals[i].by;
    if (c->vals[i].kind != ZX_I_NODE || n == NULL || !c->vals[i].reach || !n->live) return;
    const bool normal = is_op(n, "RandomNormal"), uniform = is_op(n, "RandomUniform");
    if (!normal && !uniform && !is_op(n, "ConstantOfShape")) return;
    zx_type type = {.dtype = ZX_F32};
    zx_init init = {.kind = ZX_INIT_FILL, .seed = c->options->seed};
    if (normal || uniform) {
        const zx_iattr *dt = zx_inode_attr(n, "dtype");
        if (dt) type.dtype = zx_dtype_of_onnx(dt->a->i);
        init.kind = normal ? ZX_INIT_NORMAL : ZX_INIT_UNIFORM;
        init.a = (double)(normal ? attr_f(n, "mean", 0) : attr_f(n, "low", 0));
        init.b = (double)(normal ? attr_f(n, "scale", 1) : attr_f(n, "high", 1));
        const float seed =
            attr_f(n, "seed", 0); // the file's own (`zerox new --seed`), with the run's
        uint32_t bits;
        memcpy(&bits, &seed, sizeof bits);
        init.seed ^= (uint64_t)bits << 32;
    } else {
        const zx_iattr *value = zx_inode_attr(n, "value");
        zx_type one;
        const void *data;
        float x = 0;
        if (value && (value->a->t == NULL ||
                      zx_onnx_tensor(c->file, value->a->t, &c->tmp, &one, &data, NULL) != ZX_OK ||
                      one.dtype != ZX_F32 || zx_shape_count(&one.shape) != 1))
            return;
        if (value) memcpy(&x, data, sizeof x);
        init.a = (double)x;
        if (fabs(init.a) >= MASK_VALUE) return;
    }
    if (type.dtype != ZX_F32 || !static_shape(c, n, &type.shape)) return;
    if (!read_as_weight(c, i, type.shape.rank, n->region, 0)) return;
    named(c->vals[i].name, c->options->parameters, c->options->n_parameters, f->hit_p);
    if (named(c->vals[i].name, c->options->buffers, c->options->n_buffers, f->hit_b)) {
        zx_import_fail(c, NULL, ZX_E_UNSUPPORTED,
                       "zerox.buffers: '%s' has no values in the file (%s makes them): nothing "
                       "to keep it at",
                       zx_text_safe(&c->tmp, c->vals[i].name), n->op);
        return;
    }
    add_param(c, i, &type, &init, zx_arena_printf(c->mem, "a weight that %s makes", n->op),
              c->vals[i].name);
}

// ---- the order in which parameters are kept
// ------------------------------------------------------------------

static void order_params(zx_imp *c)
{
    uint32_t next = c->n_signature;
    for (uint32_t i = 0; i < c->main->n_nodes; i++) {
        const zx_inode *n = c->main->nodes[i];
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (n->in[k] == ZX_NONE || c->vals[n->in[k]].cls != ZX_I_PARAM) continue;
            zx_iparam *p = &c->params[c->vals[n->in[k]].entry];
            if (p->order == ZX_NONE) p->order = next++;
        }
    }
    for (uint32_t i = 0; i < c->n_params; i++)
        if (c->params[i].order == ZX_NONE) c->params[i].order = next++;
}

static void unmatched(zx_imp *c, const char *key, const char *const *patterns, uint32_t n,
                      const bool *hit)
{
    for (uint32_t i = 0; i < n; i++) {
        if (hit[i]) continue;
        zx_err_hint(c->err, "names as zerox check MODEL lists them, like %s",
                    c->n_params > 0 ? zx_text_safe(&c->tmp, c->params[0].name) : "\"layer1.*\"");
        zx_import_fail(c, NULL, ZX_E_USAGE, "%s: '%s' is the name of no tensor", key,
                       zx_text_safe(&c->tmp, patterns[i]));
    }
}

// Patterns for buffers that leave nothing to train were not meant so.
static void check_left(zx_imp *c)
{
    if (c->n_params > 0 || c->options->n_buffers == 0 || c->err->n_causes > 0) return;
    zx_err_hint(c->err, "patterns of what stays as it is, like \"zerox\": {\"buffers\": "
                        "[\"*.bias\"]}; zerox check MODEL without them lists the parameters");
    zx_import_fail(c, NULL, ZX_E_USAGE, "zerox.buffers: '%s' leaves no parameter to train",
                   zx_text_safe(&c->tmp, c->options->buffers[0]));
}

static void mark_statistics(zx_imp *c, const zx_iregion *r, bool *statistic)
{
    for (uint32_t i = 0; i < r->n_nodes; i++) {
        const zx_inode *n = r->nodes[i];
        if (is_op(n, "BatchNormalization"))
            for (uint32_t k = 3; k < 5 && k < n->n_in; k++)
                if (n->in[k] != ZX_NONE) statistic[n->in[k]] = true;
        for (uint32_t k = 0; k < n->n_attrs; k++)
            if (n->attrs[k].body) mark_statistics(c, n->attrs[k].body, statistic);
    }
}

zx_status zx_import_classify(zx_imp *c)
{
    read_signature(c);
    for (uint32_t i = 0; i < c->n_vals && !c->has_kinds; i++) {
        const char *kind = c->vals[i].kind == ZX_I_INIT ? zx_ival_meta(c, &c->vals[i], KIND) : NULL;
        c->has_kinds = kind && (strcmp(kind, "PARAMETER") == 0 || strcmp(kind, "BUFFER") == 0);
    }
    for (uint32_t i = 0; i < c->n_roots; i++) c->vals[c->roots[i]].reach = true;
    mark_reach(c, c->main);

    const facts f = {.statistic = ZX_NEW(&c->tmp, bool, c->n_vals + 1),
                     .hit_p = ZX_NEW(&c->tmp, bool, c->options->n_parameters + 1),
                     .hit_b = ZX_NEW(&c->tmp, bool, c->options->n_buffers + 1)};
    mark_statistics(c, c->main, f.statistic);
    for (uint32_t i = 0; i < c->n_vals; i++)
        if (c->vals[i].kind == ZX_I_INIT) classify_tensor(c, i, &f);
    for (uint32_t i = 0; i < c->n_vals; i++) {
        if (c->vals[i].kind != ZX_I_NODE) continue;
        classify_tensor(c, i, &f);
        if (!c->has_kinds) classify_made(c, i, &f);
    }
    unmatched(c, "zerox.parameters", c->options->parameters, c->options->n_parameters, f.hit_p);
    unmatched(c, "zerox.buffers", c->options->buffers, c->options->n_buffers, f.hit_b);
    check_left(c);
    refuse_odd(c);
    order_params(c);
    return c->err->n_causes > 0 ? c->err->code : ZX_OK;
}

// import_loss.c - the loss: which output it is, or how one is appended; and whether a graph shifts
// its labels itself.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

static void add_root(zx_imp *c, uint32_t v)
{
    ZX_GROW(&c->tmp, c->roots, c->n_roots, c->cap_roots);
    c->roots[c->n_roots++] = v;
}

typedef enum looks { LOOKS_OTHER, LOOKS_UNKNOWN, LOOKS_SCALAR } looks;

// What the file says about an output. Only floats can be a loss.
static looks look(const zx_ival *v)
{
    const Onnx__TypeProto *t = v->info ? v->info->type : NULL;
    if (t == NULL || t->value_case == ONNX__TYPE_PROTO__VALUE__NOT_SET) return LOOKS_UNKNOWN;
    if (t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE || t->tensor_type == NULL)
        return LOOKS_OTHER;
    if (t->tensor_type->elem_type != 0) {
        const zx_dtype e = zx_dtype_of_onnx(t->tensor_type->elem_type);
        if (e == ZX_DTYPE_COUNT || !zx_dtype_is_float(e)) return LOOKS_OTHER;
    }
    const Onnx__TensorShapeProto *s = t->tensor_type->shape;
    if (s == NULL) return LOOKS_UNKNOWN;
    for (size_t i = 0; i < s->n_dim; i++)
        if (s->dim[i]->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE ||
            s->dim[i]->dim_value != 1)
            return LOOKS_OTHER;
    return LOOKS_SCALAR;
}

static uint32_t find_output(const zx_imp *c, const char *name)
{
    for (uint32_t i = 0; i < c->main->n_out; i++)
        if (strcmp(c->vals[c->main->out[i]].name, name) == 0) return c->main->out[i];
    for (uint32_t i = 0; i < c->n_vals; i++)
        if (strcmp(c->vals[i].name, name) == 0) return i;
    return ZX_NONE;
}

static const char *output_names(zx_imp *c)
{
    const char *all = "";
    for (uint32_t i = 0; i < c->main->n_out && i < 6; i++)
        all = zx_arena_printf(&c->tmp, "%s%s'%s'", all, i ? ", " : "",
                              zx_text_safe(&c->tmp, c->vals[c->main->out[i]].name));
    return all;
}

static zx_status graph_loss(zx_imp *c)
{
    uint32_t found = ZX_NONE, n_found = 0, unknown = ZX_NONE, n_unknown = 0;
    for (uint32_t i = 0; i < c->main->n_out; i++) {
        const zx_ival *v = &c->vals[c->main->out[i]];
        const looks l = look(v);
        if (l != LOOKS_OTHER && strcmp(v->name, "loss") == 0) {
            found = c->main->out[i];
            n_found = 1;
            break;
        }
        if (l == LOOKS_SCALAR) {
            found = c->main->out[i];
            n_found++;
        } else if (l == LOOKS_UNKNOWN) {
            unknown = c->main->out[i];
            n_unknown++;
        }
    }
    if (n_found == 0 && n_unknown == 1) {
        found = unknown;
        n_found = 1;
    }
    if (n_found == 1) {
        c->loss_ival = found;
        add_root(c, found);
        return ZX_OK;
    }
    if (c->options->forward_only) {
        for (uint32_t i = 0; i < c->main->n_out; i++) add_root(c, c->main->out[i]);
        return ZX_OK;
    }
    const zx_status st = zx_import_fail(
        c, NULL, ZX_E_UNSUPPORTED,
        n_found > 1 ? "several outputs could be the loss: %s"
                    : "no output is a scalar float that could be the loss (outputs: %s)",
        output_names(c));
    zx_err_hint(c->err,
                "\"zerox\": {\"loss\": {\"kind\": \"cross_entropy\", \"prediction\": \"logits\"}} "
                "in the config, or export the model with its loss inside");
    return st;
}

zx_status zx_import_roots(zx_imp *c)
{
    if (c->main->n_out == 0)
        return zx_import_fail(c, NULL, ZX_E_FORMAT, "the graph has no outputs");
    if (c->options->loss == ZX_LOSS_GRAPH) return graph_loss(c);
    const char *name = c->options->loss_prediction;
    if (name) {
        c->prediction = find_output(c, name);
        if (c->prediction == ZX_NONE)
            return zx_import_fail(c, NULL, ZX_E_USAGE,
                                  "zerox.loss: there is no tensor '%s' (outputs: %s)",
                                  zx_text_safe(&c->tmp, name), output_names(c));
    } else {
        for (uint32_t i = 0; i < c->main->n_out && c->prediction == ZX_NONE; i++) {
            const Onnx__ValueInfoProto *info = c->vals[c->main->out[i]].info;
            const Onnx__TypeProto *t = info ? info->type : NULL;
            const bool other = t && (t->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
                                     (t->tensor_type && t->tensor_type->elem_type > 1));
            if (!other) c->prediction = c->main->out[i];
        }
        if (c->prediction == ZX_NONE)
            return zx_import_fail(c, NULL, ZX_E_UNSUPPORTED,
                                  "zerox.loss: no output is a float tensor (outputs: %s)",
                                  output_names(c));
    }
    add_root(c, c->prediction);
    return ZX_OK;
}

// ---- appending
// -------------------------------------------------------------------------------------------

// The label: an input of that name, or a new one.
static uint32_t label(zx_imp *c, const zx_type *type)
{
    const char *name = c->options->loss_label ? c->options->loss_label : "labels";
    for (uint32_t i = 0; i < c->b.g.n_inputs; i++)
        if (strcmp(c->b.values[c->b.inputs[i]].name, name) == 0) return c->b.inputs[i];
    for (uint32_t i = 0; i < c->n_vals; i++)
        if (strcmp(c->vals[i].name, name) == 0 && c->vals[i].kind != ZX_I_UNSET)
            return zx_fail(c, ZX_E_USAGE,
                           "the label '%s' is the name of a tensor that isn't an input",
                           zx_text_safe(&c->tmp, name));
    return zx_build_input(&c->b, zx_arena_str(&c->tmp, name), type);
}

// Logits [N, C], [N, T, C] or, told by the label's shape, [N, C, d..].
static uint32_t cross_entropy(zx_imp *c, uint32_t x)
{
    const zx_shape s = *zx_s(c, x);
    if (s.rank < 2)
        return zx_fail(c, ZX_E_SHAPE, "cross_entropy wants [N, classes] or [N, T, classes] logits");
    zx_type want = {.dtype = ZX_I64, .shape = s};
    want.shape.rank--; // the classes are last
    want.shape.dim[s.rank - 1] = 0;
    uint32_t y = label(c, &want);
    if (!zx_ok(c)) return ZX_NONE;
    zx_shape second = {.rank = s.rank - 1};
    for (uint32_t i = 0; i + 1 < s.rank; i++) second.dim[i] = s.dim[i == 0 ? 0 : i + 1];
    char ts[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
    if (zx_t(c, y) != ZX_I64 && zx_t(c, y) != ZX_I32)
        return zx_fail(c, ZX_E_SHAPE, "the label of cross_entropy must be int64, not %s",
                       zx_dtypes[zx_t(c, y)].word);
    if (zx_shape_equal(zx_s(c, y), &want.shape)) {
        x = zx_reshape_to(c, x, 2,
                          (int64_t[]){zx_shape_span(&s, 0, s.rank - 1), s.dim[s.rank - 1]});
        y = zx_reshape_to(c, y, 1, (int64_t[]){zx_shape_count(&want.shape)});
    } else if (!zx_shape_equal(zx_s(c, y), &second)) {
        return zx_fail(c, ZX_E_SHAPE, "the label is %s, which doesn't fit logits of %s",
                       zx_shape_text(zx_s(c, y), ty), zx_shape_text(&s, ts));
    }
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_REDUCTION, 1);
    a = zx_with_int(c, a, ZX_A_IGNORE_INDEX, c->options->loss_ignore_index);
    if (c->options->loss_smoothing != 0)
        a = zx_with_float(c, a, ZX_A_SMOOTHING, c->options->loss_smoothing);
    return zx_e2(c, ZX_OP_CROSS_ENTROPY, a, x, y);
}

static uint32_t mse(zx_imp *c, uint32_t x)
{
    const zx_type want = {.dtype = ZX_F32, .shape = *zx_s(c, x)};
    const uint32_t y = label(c, &want);
    if (!zx_ok(c)) return ZX_NONE;
    char tx[ZX_SHAPE_TEXT], ty[ZX_SHAPE_TEXT];
    if (!zx_shape_equal(zx_s(c, y), &want.shape))
        return zx_fail(c, ZX_E_SHAPE, "the label is %s, the prediction %s",
                       zx_shape_text(zx_s(c, y), ty), zx_shape_text(&want.shape, tx));
    const uint32_t d = zx_e2(c, ZX_OP_SUB, ZX_NO_ATTRS, x, y);
    int64_t axes[ZX_MAX_RANK];
    for (uint32_t i = 0; i < want.shape.rank; i++) axes[i] = i;
    return zx_reduce(c, ZX_OP_REDUCE_MEAN, zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, d, d), axes,
                     want.shape.rank, false);
}

zx_status zx_import_loss(zx_imp *c)
{
    const zx_shape scalar = {0};
    c->st = ZX_OK;
    c->one = (zx_err){0};
    c->b.at_name = "loss";
    c->b.at_source = ZX_NONE;
    uint32_t loss = ZX_NONE;
    const char *name = "loss";
    if (c->loss_ival != ZX_NONE) {
        name = c->vals[c->loss_ival].name;
        loss = c->vals[c->loss_ival].v;
        if (c->vals[c->loss_ival].know != ZX_I_VALUE)
            zx_fail(c, ZX_E_SHAPE, "the loss must be one number, it is a sequence");
    } else if (c->prediction != ZX_NONE) {
        const uint32_t x = c->vals[c->prediction].v;
        if (c->vals[c->prediction].know != ZX_I_VALUE || zx_t(c, x) != ZX_F32)
            zx_fail(c, ZX_E_SHAPE, "the prediction '%s' must be a float32 tensor",
                    zx_text_safe(&c->tmp, c->vals[c->prediction].name));
        else
            loss = c->options->loss == ZX_LOSS_MSE ? mse(c, x) : cross_entropy(c, x);
    } else {
        return ZX_OK; // forward only
    }
    char ts[ZX_SHAPE_TEXT];
    if (zx_ok(c) && zx_t(c, loss) != ZX_F32)
        zx_fail(c, ZX_E_UNSUPPORTED, "the loss is %s: only float32 is supported so far",
                zx_dtypes[zx_t(c, loss)].word);
    if (zx_ok(c) && zx_shape_count(zx_s(c, loss)) != 1)
        zx_fail(c, ZX_E_SHAPE, "the loss must be one number, it is %s",
                zx_shape_text(zx_s(c, loss), ts));
    if (zx_ok(c) && !c->options->forward_only && (zx_is_const(c, loss) || !c->aux[loss].trained))
        zx_fail(c, ZX_E_FORMAT, "the loss depends on no parameter: there is nothing to train");
    c->b.at_name = name;
    if (zx_ok(c)) loss = zx_use(c, zx_reshape(c, loss, &scalar));
    if (!zx_ok(c)) {
        zx_err_in(&c->one, "the loss '%s'", zx_text_safe(&c->tmp, name));
        return zx_err_merge(c->err, &c->one);
    }
    c->b.g.loss = loss;
    return ZX_OK;
}

// ---- labels that the graph shifts itself
// --------------------------------------------------------------------

// Walks back from the labels of a loss to an input; *moved: a Slice, Pad or Concat lay between.
static uint32_t trace_labels(const zx_graph *g, uint32_t v, bool *moved)
{
    while (v != ZX_NONE && g->values[v].role == ZX_R_MADE) {
        const zx_node *n = &g->nodes[g->values[v].by];
        *moved = *moved || n->op == ZX_OP_SLICE || n->op == ZX_OP_PAD || n->op == ZX_OP_CONCAT ||
                 n->op == ZX_OP_GATHER;
        uint32_t next = ZX_NONE; // the first operand that isn't a constant
        for (uint32_t i = 0; i < n->n_in && next == ZX_NONE; i++) {
            const uint32_t x = zx_node_in(g, n, i);
            const bool integer = x != ZX_NONE && !zx_dtype_is_float(g->values[x].type.dtype) &&
                                 g->values[x].type.dtype != ZX_BOOL;
            if (integer && g->values[x].role != ZX_R_CONST) next = x;
        }
        v = next;
    }
    return v;
}

bool zx_import_shifts_labels(const zx_graph *g, bool *found)
{
    *found = false;
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const zx_node *n = &g->nodes[i];
        if (n->op != ZX_OP_CROSS_ENTROPY && n->op != ZX_OP_NLL_LOSS &&
            n->op != ZX_OP_GATHER_ELEMENTS && n->op != ZX_OP_LINEAR_CROSS_ENTROPY)
            continue;
        bool moved = false;
        const uint32_t at = n->op == ZX_OP_LINEAR_CROSS_ENTROPY ? 2 : 1;
        const uint32_t v = trace_labels(g, zx_node_in(g, n, at), &moved);
        if (v == ZX_NONE || g->values[v].role != ZX_R_INPUT) continue;
        *found = true;
        return moved;
    }
    return false;
}

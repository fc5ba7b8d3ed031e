// import_verbs.c - attributes of the node at hand, and the small combinations of IR nodes that many
// lowerings share.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- inputs and outputs
// ------------------------------------------------------------------------------

bool zx_given(const zx_imp *c, uint32_t i)
{
    return i < c->node->n_in && c->node->in[i] != ZX_NONE &&
           c->vals[c->node->in[i]].kind != ZX_I_UNSET;
}

bool zx_wanted(const zx_imp *c, uint32_t i)
{
    if (i >= c->node->n_out || c->node->out[i] == ZX_NONE) return false;
    const zx_ival *v = &c->vals[c->node->out[i]];
    return v->uses > 0 || v->pinned;
}

uint32_t zx_in(zx_imp *c, uint32_t i)
{
    if (!zx_ok(c) || !zx_given(c, i)) return ZX_NONE;
    const zx_ival *v = &c->vals[c->node->in[i]];
    if (v->know == ZX_I_VALUE) return v->v;
    if (v->know == ZX_I_SEQUENCE)
        return zx_fail(c, ZX_E_UNSUPPORTED, "its input '%s' is a sequence, a tensor is wanted",
                       zx_text_safe(&c->tmp, v->name));
    return zx_fail(c, ZX_E_FORMAT, "its input '%s' has no value yet",
                   zx_text_safe(&c->tmp, v->name));
}

const zx_iseq *zx_in_seq(zx_imp *c, uint32_t i)
{
    if (!zx_ok(c)) return NULL;
    if (zx_given(c, i) && c->vals[c->node->in[i]].know == ZX_I_SEQUENCE)
        return &c->vals[c->node->in[i]].seq;
    zx_fail(c, ZX_E_SHAPE, "its input %u must be a sequence", i);
    return NULL;
}

static void unbind(zx_imp *c, zx_ival *v)
{
    if (v->know == ZX_I_VALUE) zx_drop(c, v->v);
    if (v->know == ZX_I_SEQUENCE)
        for (uint32_t i = 0; i < v->seq.n; i++) zx_drop(c, v->seq.v[i]);
    v->know = ZX_I_UNKNOWN;
}

void zx_out(zx_imp *c, uint32_t i, uint32_t v)
{
    if (!zx_ok(c) || i >= c->node->n_out || c->node->out[i] == ZX_NONE) return;
    ZX_ASSERT(v != ZX_NONE);
    zx_ival *to = &c->vals[c->node->out[i]];
    zx_hold(c, v); // first: v may be what `to` stood for in a loop's last iteration
    unbind(c, to);
    to->know = ZX_I_VALUE;
    to->v = v;
    // What was made for this node gets the name that the file gives it.
    if (v >= c->first_value && c->b.values[v].name == c->b.at_name) c->b.values[v].name = to->name;
}

void zx_out_seq(zx_imp *c, uint32_t i, uint32_t n, const uint32_t *v)
{
    if (!zx_ok(c) || i >= c->node->n_out || c->node->out[i] == ZX_NONE) return;
    uint32_t *copy = ZX_NEW(&c->tmp, uint32_t, n + 1);
    for (uint32_t k = 0; k < n; k++) {
        copy[k] = v[k];
        zx_hold(c, v[k]);
    }
    zx_ival *to = &c->vals[c->node->out[i]];
    unbind(c, to);
    to->know = ZX_I_SEQUENCE;
    to->seq = (zx_iseq){n, copy};
}

// ---- attributes
// ------------------------------------------------------------------------------------------

#define TYPE(name) ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__##name

// The attribute, if it is there with this type. Old files leave the type out.
static const Onnx__AttributeProto *attr(zx_imp *c, const char *name,
                                        Onnx__AttributeProto__AttributeType type, const char *word)
{
    const zx_iattr *a = zx_inode_attr(c->node, name);
    if (a == NULL || !zx_ok(c)) return NULL;
    if (!a->a->has_type || a->a->type == type || a->a->type == TYPE(UNDEFINED)) return a->a;
    zx_fail(c, ZX_E_FORMAT, "the attribute '%s' must be %s", name, word);
    return NULL;
}

bool zx_has(const zx_imp *c, const char *name)
{
    return zx_inode_attr(c->node, name) != NULL;
}

bool zx_need(zx_imp *c, const char *name)
{
    if (!zx_has(c, name)) zx_fail(c, ZX_E_FORMAT, "the attribute '%s' is missing", name);
    return zx_ok(c);
}

int64_t zx_int(zx_imp *c, const char *name, int64_t absent)
{
    const Onnx__AttributeProto *a = attr(c, name, TYPE(INT), "an integer");
    return a ? a->i : absent;
}

double zx_float(zx_imp *c, const char *name, double absent)
{
    const Onnx__AttributeProto *a = attr(c, name, TYPE(FLOAT), "a float");
    return a ? (double)a->f : absent;
}

const char *zx_string(zx_imp *c, const char *name, const char *absent)
{
    const Onnx__AttributeProto *a = attr(c, name, TYPE(STRING), "a string");
    if (a == NULL) return absent;
    return zx_arena_strn(&c->tmp, a->s.data ? (const char *)a->s.data : "", a->s.len);
}

const int64_t *zx_ints(zx_imp *c, const char *name, uint32_t *n)
{
    static const int64_t none = 0;
    *n = 0;
    const Onnx__AttributeProto *a = attr(c, name, TYPE(INTS), "a list of integers");
    if (a == NULL) return NULL;
    *n = (uint32_t)a->n_ints;
    return a->n_ints > 0 ? a->ints : &none;
}

const double *zx_floats(zx_imp *c, const char *name, uint32_t *n)
{
    *n = 0;
    const Onnx__AttributeProto *a = attr(c, name, TYPE(FLOATS), "a list of floats");
    if (a == NULL) return NULL;
    double *out = ZX_NEW(&c->tmp, double, a->n_floats + 1);
    for (size_t i = 0; i < a->n_floats; i++) out[i] = (double)a->floats[i];
    *n = (uint32_t)a->n_floats;
    return out;
}

uint32_t zx_choice(zx_imp *c, const char *name, uint32_t absent, const char *const *words,
                   uint32_t n)
{
    const char *s = zx_string(c, name, NULL);
    if (s == NULL) return absent;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(words[i], s) == 0) return i;
    zx_fail(c, ZX_E_UNSUPPORTED, "the attribute '%s' is '%s'", name, zx_text_safe(&c->tmp, s));
    return absent;
}

zx_attrs zx_with_int(zx_imp *c, zx_attrs a, zx_attr_id id, int64_t x)
{
    return zx_attrs_int(&c->tmp, a, id, x);
}

zx_attrs zx_with_ints(zx_imp *c, zx_attrs a, zx_attr_id id, const int64_t *x, uint32_t n)
{
    return zx_attrs_ints(&c->tmp, a, id, x, n);
}

zx_attrs zx_with_float(zx_imp *c, zx_attrs a, zx_attr_id id, double x)
{
    return zx_attrs_float(&c->tmp, a, id, x);
}

zx_attrs zx_with_shape(zx_imp *c, zx_attrs a, const zx_shape *s)
{
    return zx_attrs_shape(&c->tmp, a, ZX_A_SHAPE, s);
}

// ---- combinations
// --------------------------------------------------------------------------------------------

uint32_t zx_reshape(zx_imp *c, uint32_t v, const zx_shape *to)
{
    if (!zx_ok(c)) return ZX_NONE;
    if (zx_shape_equal(zx_s(c, v), to)) return v;
    const zx_node *by = zx_made_by(c, v, ZX_OP_RESHAPE);
    if (by) return zx_reshape(c, c->b.refs[by->in], to); // two in a row are one
    return zx_e1(c, ZX_OP_RESHAPE, zx_with_shape(c, ZX_NO_ATTRS, to), v);
}

uint32_t zx_reshape_to(zx_imp *c, uint32_t v, uint32_t rank, const int64_t *dim)
{
    zx_shape s = {.rank = rank};
    if (rank > ZX_MAX_RANK)
        return zx_fail(c, ZX_E_UNSUPPORTED, "it makes %u dimensions, at most %d are supported",
                       rank, ZX_MAX_RANK);
    for (uint32_t i = 0; i < rank; i++) s.dim[i] = dim[i];
    return zx_reshape(c, v, &s);
}

uint32_t zx_expand(zx_imp *c, uint32_t v, const zx_shape *to)
{
    if (!zx_ok(c)) return ZX_NONE;
    if (zx_shape_equal(zx_s(c, v), to)) return v;
    return zx_e1(c, ZX_OP_EXPAND, zx_with_shape(c, ZX_NO_ATTRS, to), v);
}

uint32_t zx_transpose(zx_imp *c, uint32_t v, const int64_t *perm)
{
    if (!zx_ok(c)) return ZX_NONE;
    const uint32_t rank = zx_rank(c, v);
    int64_t both[ZX_MAX_RANK];
    bool same = true;
    const zx_node *by = zx_made_by(c, v, ZX_OP_TRANSPOSE);
    if (by) { // two in a row are one
        const int64_t *first = zx_attr_ints(&by->attrs, ZX_A_PERM, NULL);
        for (uint32_t i = 0; i < rank; i++) both[i] = first[perm[i]];
        v = c->b.refs[by->in];
        perm = both;
    }
    for (uint32_t i = 0; i < rank; i++) same = same && perm[i] == (int64_t)i;
    if (same) return v;
    return zx_e1(c, ZX_OP_TRANSPOSE, zx_with_ints(c, ZX_NO_ATTRS, ZX_A_PERM, perm, rank), v);
}

uint32_t zx_slice(zx_imp *c, uint32_t v, uint32_t axis, int64_t start, int64_t n)
{
    if (!zx_ok(c)) return ZX_NONE;
    zx_shape s = *zx_s(c, v);
    if (start == 0 && n == s.dim[axis]) return v;
    int64_t starts[ZX_MAX_RANK] = {0}, steps[ZX_MAX_RANK];
    for (uint32_t i = 0; i < s.rank; i++) steps[i] = 1;
    starts[axis] = start;
    s.dim[axis] = n;
    zx_attrs a = zx_with_ints(c, ZX_NO_ATTRS, ZX_A_STARTS, starts, s.rank);
    a = zx_with_ints(c, a, ZX_A_STEPS, steps, s.rank);
    return zx_e1(c, ZX_OP_SLICE, zx_with_shape(c, a, &s), v);
}

uint32_t zx_concat(zx_imp *c, const uint32_t *v, uint32_t n, uint32_t axis)
{
    if (n == 1) return v[0];
    uint32_t out[8];
    zx_ir_emit(c, ZX_OP_CONCAT, zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis), v, n, out);
    return out[0];
}

uint32_t zx_cast(zx_imp *c, uint32_t v, zx_dtype to)
{
    if (!zx_ok(c) || zx_t(c, v) == to) return v;
    return zx_e1(c, ZX_OP_CAST, zx_with_int(c, ZX_NO_ATTRS, ZX_A_TO, (int64_t)to), v);
}

uint32_t zx_reduce(zx_imp *c, zx_op_id op, uint32_t v, const int64_t *axes, uint32_t n, bool keep)
{
    zx_attrs a = zx_with_ints(c, ZX_NO_ATTRS, ZX_A_AXES, axes, n);
    return zx_e1(c, op, zx_with_int(c, a, ZX_A_KEEPDIMS, keep), v);
}

uint32_t zx_scale(zx_imp *c, uint32_t v, double by)
{
    if (by == 1 || !zx_ok(c)) return v;
    return zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, v, zx_k(c, zx_t(c, v), by));
}

uint32_t zx_channel(zx_imp *c, uint32_t v, uint32_t rank)
{
    int64_t dim[ZX_MAX_RANK];
    if (!zx_ok(c)) return ZX_NONE;
    if (zx_rank(c, v) != 1 || rank < 2 || rank > ZX_MAX_RANK)
        return zx_fail(c, ZX_E_SHAPE, "a scale or bias must have one dimension, the channels");
    for (uint32_t i = 0; i < rank; i++) dim[i] = 1;
    dim[0] = zx_dim(c, v, 0);
    return zx_reshape_to(c, v, rank - 1, dim);
}

// The tensor that v is the transpose of, if only the last two dims are swapped; else ZX_NONE.
static uint32_t swapped(const zx_imp *c, uint32_t v)
{
    const zx_node *by = zx_made_by(c, v, ZX_OP_TRANSPOSE);
    if (by == NULL) return ZX_NONE;
    uint32_t n;
    const int64_t *perm = zx_attr_ints(&by->attrs, ZX_A_PERM, &n);
    if (n < 2 || perm[n - 1] != (int64_t)n - 2 || perm[n - 2] != (int64_t)n - 1) return ZX_NONE;
    for (uint32_t i = 0; i + 2 < n; i++)
        if (perm[i] != (int64_t)i) return ZX_NONE;
    return c->b.refs[by->in];
}

uint32_t zx_matmul(zx_imp *c, uint32_t a, uint32_t b, bool ta, bool tb, double alpha, uint32_t bias)
{
    if (!zx_ok(c)) return ZX_NONE;
    // A transposed weight is read transposed, never moved.
    const uint32_t from_a = swapped(c, a), from_b = swapped(c, b);
    if (from_a != ZX_NONE) {
        a = from_a;
        ta = !ta;
    }
    if (from_b != ZX_NONE) {
        b = from_b;
        tb = !tb;
    }
    zx_attrs attrs = ZX_NO_ATTRS;
    if (ta) attrs = zx_with_int(c, attrs, ZX_A_TRANS_A, 1);
    if (tb) attrs = zx_with_int(c, attrs, ZX_A_TRANS_B, 1);
    if (alpha != 1) attrs = zx_with_float(c, attrs, ZX_A_ALPHA, alpha);
    return zx_e3(c, ZX_OP_MATMUL, attrs, a, b, bias);
}

// import_ops_index.c - lowering of operators that gather, scatter, count or sort by index, and of
// those that make tensors from nothing but sizes.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// Indices that are known now are checked now, so that the message can name the node.
static bool indices_fit(zx_imp *c, uint32_t indices, int64_t dim)
{
    if (!zx_ok(c) || !zx_is_const(c, indices) || zx_dtype_is_float(zx_t(c, indices)))
        return zx_ok(c);
    const int64_t n = zx_shape_count(zx_s(c, indices));
    for (int64_t i = 0; i < n; i++) {
        const double k = zx_const_at(c, indices, i);
        if (k >= (double)-dim && k < (double)dim) continue;
        zx_fail(c, ZX_E_SHAPE, "index %.0f is outside a dimension of %" PRId64, k, dim);
        return false;
    }
    return true;
}

// True if constant indices count up by one; *first is where they begin.
static bool is_run(zx_imp *c, uint32_t v, int64_t dim, int64_t *first)
{
    if (!zx_is_const(c, v)) return false;
    const int64_t n = zx_shape_count(zx_s(c, v));
    for (int64_t i = 0; i < n; i++) {
        double k = zx_const_at(c, v, i);
        if (k < 0) k += (double)dim;
        if (i == 0) *first = (int64_t)k;
        if (k != (double)(*first + i)) return false;
    }
    return n > 0;
}

void zx_lower_gather(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), at = zx_in(c, 1), rank = zx_rank(c, x);
    const uint32_t axis = zx_axis(c, zx_int(c, "axis", 0), rank);
    if (!indices_fit(c, at, zx_dim(c, x, axis))) return;
    int64_t first = 0;
    if (!zx_is_const(c, x) && is_run(c, at, zx_dim(c, x, axis), &first)) { // a plain slice
        const zx_shape *si = zx_s(c, at), *sx = zx_s(c, x);
        zx_shape to = {.rank = rank - 1 + si->rank};
        if (to.rank > ZX_MAX_RANK) {
            zx_fail(c, ZX_E_UNSUPPORTED, "it makes %u dimensions, at most %d are supported",
                    to.rank, ZX_MAX_RANK);
            return;
        }
        for (uint32_t i = 0; i < to.rank; i++)
            to.dim[i] = i < axis              ? sx->dim[i]
                        : i < axis + si->rank ? si->dim[i - axis]
                                              : sx->dim[i - si->rank + 1];
        zx_out(c, 0, zx_reshape(c, zx_slice(c, x, axis, first, zx_shape_count(si)), &to));
        return;
    }
    zx_out(c, 0, zx_e2(c, ZX_OP_GATHER, zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis), x, at));
}

void zx_lower_gather_elements(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), at = zx_in(c, 1);
    const uint32_t axis = zx_axis(c, zx_int(c, "axis", 0), zx_rank(c, x));
    if (!indices_fit(c, at, zx_dim(c, x, axis))) return;
    zx_out(c, 0,
           zx_e2(c, ZX_OP_GATHER_ELEMENTS, zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis), x, at));
}

void zx_lower_gather_nd(zx_imp *c)
{
    const int64_t batch = zx_int(c, "batch_dims", 0);
    if (batch < 0 || batch >= ZX_MAX_RANK) zx_fail(c, ZX_E_SHAPE, "batch_dims of %" PRId64, batch);
    const zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_BATCH_DIMS, batch);
    zx_out(c, 0, zx_e2(c, ZX_OP_GATHER_ND, a, zx_in(c, 0), zx_cast(c, zx_in(c, 1), ZX_I64)));
}

static uint32_t reduction(zx_imp *c)
{
    static const char *const words[] = {"none", "add", "mul", "max", "min"};
    return zx_choice(c, "reduction", 0, words, 5);
}

void zx_lower_scatter_elements(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), at = zx_in(c, 1);
    const uint32_t axis = zx_axis(c, zx_int(c, "axis", 0), zx_rank(c, x));
    if (!indices_fit(c, at, zx_dim(c, x, axis))) return;
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis);
    a = zx_with_int(c, a, ZX_A_REDUCTION, reduction(c));
    zx_out(c, 0, zx_e3(c, ZX_OP_SCATTER_ELEMENTS, a, x, at, zx_in(c, 2)));
}

void zx_lower_scatter_nd(zx_imp *c)
{
    const zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_REDUCTION, reduction(c));
    zx_out(
        c, 0,
        zx_e3(c, ZX_OP_SCATTER_ND, a, zx_in(c, 0), zx_cast(c, zx_in(c, 1), ZX_I64), zx_in(c, 2)));
}

void zx_lower_one_hot(zx_imp *c)
{
    uint32_t at = zx_in(c, 0);
    const double depth = zx_const_float(c, zx_reshape(c, zx_in(c, 1), &(zx_shape){0}), "the depth");
    if (zx_ok(c) && !(depth >= 1 && depth < 1e12)) zx_fail(c, ZX_E_SHAPE, "a depth of %g", depth);
    if (zx_ok(c) && zx_t(c, at) != ZX_I32 && zx_t(c, at) != ZX_I64) at = zx_cast(c, at, ZX_I64);
    const uint32_t axis = zx_axis(c, zx_int(c, "axis", -1), zx_rank(c, at) + 1);
    if (!zx_ok(c)) return;
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_DEPTH, (int64_t)depth);
    a = zx_with_int(c, a, ZX_A_AXIS, axis);
    zx_out(c, 0, zx_e2(c, ZX_OP_ONE_HOT, a, at, zx_in(c, 2)));
}

void zx_lower_top_k(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), axis = zx_axis(c, zx_int(c, "axis", -1), zx_rank(c, x));
    const int64_t k =
        c->node->opset < 10 ? zx_int(c, "k", 0) : zx_const_int(c, zx_in(c, 1), "the count k");
    if (zx_ok(c) && (k < 0 || k > zx_dim(c, x, axis)))
        zx_fail(c, ZX_E_SHAPE, "the top %" PRId64 " of %" PRId64, k, zx_dim(c, x, axis));
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, axis);
    a = zx_with_int(c, a, ZX_A_K, k);
    a = zx_with_int(c, a, ZX_A_LARGEST, zx_int(c, "largest", 1) != 0);
    uint32_t out[8];
    zx_ir_emit(c, ZX_OP_TOP_K, a, &x, 1, out);
    zx_out(c, 0, out[0]);
    zx_out(c, 1, out[1]);
}

void zx_lower_cum_sum(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const int64_t axis = zx_const_int(c, zx_in(c, 1), "the axis");
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_AXIS, zx_axis(c, axis, zx_rank(c, x)));
    a = zx_with_int(c, a, ZX_A_EXCLUSIVE, zx_int(c, "exclusive", 0) != 0);
    a = zx_with_int(c, a, ZX_A_REVERSE, zx_int(c, "reverse", 0) != 0);
    zx_out(c, 0, zx_e1(c, ZX_OP_CUM_SUM, a, x));
}

void zx_lower_trilu(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    int64_t k = zx_given(c, 1) ? zx_const_int(c, zx_in(c, 1), "the diagonal k") : 0;
    const int64_t far = INT64_C(1) << 40; // beyond every matrix
    k = k > far ? far : k < -far ? -far : k;
    zx_attrs a = zx_with_int(c, ZX_NO_ATTRS, ZX_A_UPPER, zx_int(c, "upper", 1) != 0);
    zx_out(c, 0, zx_e1(c, ZX_OP_TRILU, zx_with_int(c, a, ZX_A_K, k), x));
}

// ---- tensors from sizes
// ---------------------------------------------------------------------------------

void zx_lower_shape(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const int64_t rank = zx_rank(c, x);
    int64_t start = zx_int(c, "start", 0), end = zx_int(c, "end", rank);
    if (start < 0) start = start < -rank ? 0 : start + rank;
    if (end < 0) end = end < -rank ? 0 : end + rank;
    start = start > rank ? rank : start;
    end = end > rank ? rank : end < start ? start : end;
    if (zx_ok(c)) zx_out(c, 0, zx_k_ints(c, zx_s(c, x)->dim + start, (uint32_t)(end - start)));
}

void zx_lower_size(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    zx_out(c, 0, zx_k_int(c, zx_shape_count(zx_s(c, x))));
}

// The parameter that the node's output was found to be, if it was.
static bool is_param(zx_imp *c)
{
    const zx_ival *v = c->node->out[0] == ZX_NONE ? NULL : &c->vals[c->node->out[0]];
    if (v == NULL || v->cls == ZX_I_PLAIN) return false;
    if (v->cls == ZX_I_BUFFER && !c->buffers[v->entry].changes) return false;
    zx_out(c, 0, v->cls == ZX_I_PARAM ? c->params[v->entry].v : c->buffers[v->entry].v);
    return true;
}

void zx_lower_constant(zx_imp *c)
{
    if (is_param(c)) return;
    const zx_inode *n = c->node;
    const zx_iattr *value = zx_inode_attr(n, "value");
    const char *name = n->out[0] == ZX_NONE ? "" : c->vals[n->out[0]].name;
    uint32_t k = 0;
    void *bytes;
    if (value) {
        zx_out(c, 0, zx_k_file(c, value->a->t, name));
    } else if (zx_has(c, "value_int")) {
        zx_out(c, 0, zx_k_int(c, zx_int(c, "value_int", 0)));
    } else if (zx_has(c, "value_float")) {
        zx_out(c, 0, zx_k(c, ZX_F32, zx_float(c, "value_float", 0)));
    } else if (zx_has(c, "value_ints")) {
        const int64_t *x = zx_ints(c, "value_ints", &k);
        if (x) zx_out(c, 0, zx_k_ints(c, x, k));
    } else if (zx_has(c, "value_floats")) {
        const double *x = zx_floats(c, "value_floats", &k);
        const zx_type t = {.dtype = ZX_F32, .shape = {.rank = 1, .dim = {k}}};
        const uint32_t v = zx_k_new(c, &t, &bytes);
        for (uint32_t i = 0; i < k && x && zx_ok(c); i++) zx_put(bytes, ZX_F32, i, x[i]);
        zx_out(c, 0, v);
    } else {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "Constant without a tensor, or with strings or a sparse tensor");
    }
}

void zx_lower_constant_of_shape(zx_imp *c)
{
    if (is_param(c)) return;
    uint32_t n;
    const int64_t *dims = zx_const_ints(c, zx_in(c, 0), "the shape", &n);
    zx_type t = {.dtype = ZX_F32, .shape = {.rank = n}};
    if (!zx_ok(c)) return;
    if (n > ZX_MAX_RANK) {
        zx_fail(c, ZX_E_UNSUPPORTED, "%u dimensions, at most %d are supported", n, ZX_MAX_RANK);
        return;
    }
    for (uint32_t i = 0; i < n; i++) t.shape.dim[i] = dims[i];
    const zx_iattr *value = zx_inode_attr(c->node, "value");
    if (value == NULL) {
        zx_out(c, 0, zx_k_fill(c, &t, 0));
        return;
    }
    const uint32_t one = zx_k_file(c, value->a->t, "");
    if (zx_ok(c) && zx_shape_count(zx_s(c, one)) != 1)
        zx_fail(c, ZX_E_FORMAT, "the value must be one number");
    if (!zx_ok(c)) return;
    c->st = zx_shape_check(&t.shape, &c->one);
    t.dtype = zx_t(c, one);
    zx_out(c, 0, zx_expand(c, zx_reshape(c, one, &(zx_shape){0}), &t.shape));
}

void zx_lower_range(zx_imp *c)
{
    const uint32_t v[3] = {zx_in(c, 0), zx_in(c, 1), zx_in(c, 2)};
    static const char *const words[3] = {"the start", "the limit", "the step"};
    double f[3];
    int64_t i64[3] = {0};
    for (int i = 0; i < 3; i++) {
        f[i] = zx_const_float(c, v[i], words[i]);
        if (zx_ok(c) && zx_t(c, v[i]) == ZX_I64) i64[i] = zx_const_int(c, v[i], words[i]);
    }
    if (!zx_ok(c)) return;
    zx_type t = {.dtype = zx_t(c, v[0]), .shape = {.rank = 1}};
    if (zx_t(c, v[1]) != t.dtype || zx_t(c, v[2]) != t.dtype) {
        zx_fail(c, ZX_E_SHAPE, "start, limit and step have different types");
        return;
    }
    const double n = ceil((f[1] - f[0]) / f[2]);
    if (f[2] == 0 || !(n < 2147483647.0)) {
        zx_fail(c, ZX_E_SHAPE, "Range from %g to %g by %g", f[0], f[1], f[2]);
        return;
    }
    t.shape.dim[0] = n > 0 ? (int64_t)n : 0;
    void *bytes;
    const uint32_t y = zx_k_new(c, &t, &bytes);
    for (int64_t i = 0; i < t.shape.dim[0] && zx_ok(c); i++) {
        if (t.dtype == ZX_I64)
            ((int64_t *)bytes)[i] = (int64_t)((uint64_t)i64[0] + (uint64_t)i * (uint64_t)i64[2]);
        else
            zx_put(bytes, t.dtype, i, f[0] + (double)i * f[2]);
    }
    zx_out(c, 0, y);
}

void zx_lower_eye_like(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    zx_type t = {.dtype = zx_t(c, x), .shape = *zx_s(c, x)};
    if (zx_has(c, "dtype")) t.dtype = zx_dtype_of_onnx(zx_int(c, "dtype", 0));
    const int64_t k = zx_int(c, "k", 0);
    if (zx_ok(c) && (t.shape.rank != 2 || t.dtype == ZX_DTYPE_COUNT))
        zx_fail(c, ZX_E_SHAPE, "EyeLike wants a matrix of a known type");
    if (!zx_ok(c)) return;
    void *bytes;
    const uint32_t y = zx_k_new(c, &t, &bytes);
    for (int64_t i = 0; i < t.shape.dim[0] && zx_ok(c); i++)
        if (k < t.shape.dim[1] - i && k >= -i)
            zx_put(bytes, t.dtype, i * t.shape.dim[1] + i + k, 1);
    zx_out(c, 0, y);
}

void zx_lower_non_zero(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    if (!zx_ok(c)) return;
    if (!zx_is_const(c, x)) {
        zx_fail(c, ZX_E_UNSUPPORTED,
                "NonZero of data: the size of its result would depend on the data");
        return;
    }
    const zx_shape s = *zx_s(c, x);
    const int64_t count = zx_shape_count(&s);
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) n += zx_const_at(c, x, i) != 0;
    const zx_type t = {.dtype = ZX_I64, .shape = {.rank = 2, .dim = {s.rank, n}}};
    void *bytes;
    const uint32_t y = zx_k_new(c, &t, &bytes);
    int64_t at = 0;
    for (int64_t i = 0; i < count && zx_ok(c); i++) {
        if (zx_const_at(c, x, i) == 0) continue;
        int64_t rest = i;
        for (uint32_t d = s.rank; d-- > 0;) {
            ((int64_t *)bytes)[d * n + at] = rest % s.dim[d];
            rest /= s.dim[d];
        }
        at++;
    }
    zx_out(c, 0, y);
}

void zx_lower_random(zx_imp *c)
{
    if (is_param(c)) return;
    zx_fail(c, ZX_E_UNSUPPORTED,
            "%s draws random numbers in every step, or isn't read as a weight: only Dropout draws "
            "so far",
            c->node->op);
}

// ---- lists of tensors, which exist while importing only
// -----------------------------------------------------

void zx_lower_split_to_sequence(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), axis = zx_axis(c, zx_int(c, "axis", 0), zx_rank(c, x));
    const bool keep = zx_int(c, "keepdims", 1) != 0;
    const int64_t dim = zx_dim(c, x, axis);
    const uint32_t sizes = zx_in(c, 1);
    uint32_t n = 0;
    const int64_t *size = NULL;
    int64_t each = 1;
    if (sizes != ZX_NONE && zx_rank(c, sizes) == 0)
        each = zx_const_int(c, sizes, "the size of a part");
    else if (sizes != ZX_NONE)
        size = zx_const_ints(c, sizes, "the list of sizes", &n);
    if (!zx_ok(c)) return;
    if (each < 1) {
        zx_fail(c, ZX_E_SHAPE, "parts of %" PRId64, each);
        return;
    }
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (size[i] < 0 || __builtin_add_overflow(sum, size[i], &sum)) sum = -1, n = 0;
    if (size && sum != dim) {
        zx_fail(c, ZX_E_SHAPE, "the sizes don't add up to %" PRId64, dim);
        return;
    }
    const int64_t parts = size ? n : (dim + each - 1) / each;
    if (parts > 1 << 16) {
        zx_fail(c, ZX_E_UNSUPPORTED, "a sequence of %" PRId64 " tensors", parts);
        return;
    }
    uint32_t *v = ZX_NEW(&c->tmp, uint32_t, (size_t)parts + 1);
    int64_t at = 0;
    for (int64_t i = 0; i < parts && zx_ok(c); i++) {
        const int64_t len = size ? size[i] : dim - at < each ? dim - at : each;
        v[i] = zx_slice(c, x, axis, at, len);
        at += len;
        if (keep || sizes != ZX_NONE) continue; // keepdims speaks only where no sizes are given
        zx_shape to = {0};
        for (uint32_t d = 0; d < zx_rank(c, x); d++)
            if (d != axis) to.dim[to.rank++] = zx_dim(c, x, d);
        v[i] = zx_reshape(c, v[i], &to);
    }
    zx_out_seq(c, 0, (uint32_t)parts, v);
}

// A position in a sequence of n; counts from the end if negative.
static uint32_t position(zx_imp *c, uint32_t input, uint32_t n, bool end)
{
    if (!zx_given(c, input)) return end ? n : n > 0 ? n - 1 : 0;
    const int64_t given = zx_const_int(c, zx_in(c, input), "the position");
    const int64_t p = given < 0 ? given + n : given;
    if (zx_ok(c) && (p < 0 || p >= (int64_t)n + end))
        zx_fail(c, ZX_E_SHAPE, "position %" PRId64 " in a sequence of %u", given, n);
    return zx_ok(c) ? (uint32_t)p : 0;
}

void zx_lower_sequence_at(zx_imp *c)
{
    const zx_iseq *s = zx_in_seq(c, 0);
    const uint32_t p = s ? position(c, 1, s->n, false) : 0;
    if (zx_ok(c) && s->n == 0) zx_fail(c, ZX_E_SHAPE, "the sequence is empty");
    if (zx_ok(c)) zx_out(c, 0, s->v[p]);
}

void zx_lower_sequence_length(zx_imp *c)
{
    const zx_iseq *s = zx_in_seq(c, 0);
    if (s) zx_out(c, 0, zx_k_int(c, s->n));
}

void zx_lower_sequence_construct(zx_imp *c)
{
    uint32_t *v = ZX_NEW(&c->tmp, uint32_t, c->node->n_in + 1);
    for (uint32_t i = 0; i < c->node->n_in; i++) {
        if (!zx_given(c, i)) zx_fail(c, ZX_E_FORMAT, "its input %u is left out", i);
        v[i] = zx_in(c, i);
    }
    zx_out_seq(c, 0, c->node->n_in, v);
}

void zx_lower_sequence_insert(zx_imp *c)
{
    const zx_iseq *s = zx_in_seq(c, 0);
    const uint32_t x = zx_in(c, 1), p = s ? position(c, 2, s->n, true) : 0;
    if (!zx_ok(c)) return;
    uint32_t *v = ZX_NEW(&c->tmp, uint32_t, s->n + 1);
    for (uint32_t i = 0; i <= s->n; i++) v[i] = i == p ? x : s->v[i - (i > p)];
    zx_out_seq(c, 0, s->n + 1, v);
}

void zx_lower_sequence_erase(zx_imp *c)
{
    const zx_iseq *s = zx_in_seq(c, 0);
    const uint32_t p = s ? position(c, 1, s->n, false) : 0;
    if (zx_ok(c) && s->n == 0) zx_fail(c, ZX_E_SHAPE, "the sequence is empty");
    if (!zx_ok(c)) return;
    uint32_t *v = ZX_NEW(&c->tmp, uint32_t, s->n);
    for (uint32_t i = 0; i + 1 < s->n; i++) v[i] = s->v[i + (i >= p)];
    zx_out_seq(c, 0, s->n - 1, v);
}

void zx_lower_concat_from_sequence(zx_imp *c)
{
    const zx_iseq *s = zx_in_seq(c, 0);
    if (!zx_need(c, "axis")) return;
    const bool fresh = zx_int(c, "new_axis", 0) != 0;
    if (zx_ok(c) && s->n == 0) zx_fail(c, ZX_E_SHAPE, "the sequence is empty");
    if (!zx_ok(c)) return;
    const uint32_t rank = zx_rank(c, s->v[0]) + fresh,
                   axis = zx_axis(c, zx_int(c, "axis", 0), rank);
    uint32_t *v = ZX_NEW(&c->tmp, uint32_t, s->n);
    for (uint32_t i = 0; i < s->n && zx_ok(c); i++) {
        v[i] = s->v[i];
        if (!fresh) continue;
        const zx_shape *from = zx_s(c, v[i]);
        int64_t dim[ZX_MAX_RANK + 1];
        for (uint32_t d = 0; d < rank; d++)
            dim[d] = d == axis ? 1 : d - (d > axis) < from->rank ? from->dim[d - (d > axis)] : 1;
        v[i] = zx_reshape_to(c, v[i], rank, dim);
    }
    if (zx_ok(c)) zx_out(c, 0, zx_concat(c, v, s->n, axis));
}

// import_ops_shape.c - lowering of operators that change a tensor's shape or move its parts.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <string.h>

void zx_lower_reshape(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    uint32_t n = 0;
    const int64_t *want = zx_const_ints(c, zx_in(c, 1), "the shape", &n);
    const bool allow_zero = zx_int(c, "allowzero", 0) != 0;
    if (!zx_ok(c)) return;
    if (n > ZX_MAX_RANK) {
        zx_fail(c, ZX_E_UNSUPPORTED, "Reshape to %u dimensions, at most %d are supported", n,
                ZX_MAX_RANK);
        return;
    }
    zx_shape to = {.rank = n};
    uint32_t open = ZX_NONE;
    int64_t known = 1;
    for (uint32_t i = 0; i < n; i++) {
        to.dim[i] = want[i];
        if (want[i] == 0 && !allow_zero) {
            if (i >= zx_rank(c, x)) {
                zx_fail(c, ZX_E_SHAPE, "Reshape copies dimension %u, the input has %u", i,
                        zx_rank(c, x));
                return;
            }
            to.dim[i] = zx_dim(c, x, i);
        }
        if (want[i] == -1) {
            if (open != ZX_NONE) {
                zx_fail(c, ZX_E_SHAPE, "Reshape with more than one -1");
                return;
            }
            open = i;
            continue;
        }
        if (want[i] < 0 || __builtin_mul_overflow(known, to.dim[i], &known)) {
            zx_fail(c, ZX_E_SHAPE, "Reshape to a dimension of %" PRId64, want[i]);
            return;
        }
    }
    const int64_t count = zx_shape_count(zx_s(c, x));
    char from[ZX_SHAPE_TEXT], text[ZX_SHAPE_TEXT];
    if (open != ZX_NONE && (known == 0 || count % known != 0)) {
        zx_fail(c, ZX_E_SHAPE, "Reshape of %s to %s: no size fits in place of -1",
                zx_shape_text(zx_s(c, x), from), zx_shape_text(&to, text));
        return;
    }
    if (open != ZX_NONE) to.dim[open] = count / known;
    if (open == ZX_NONE && known != count) {
        zx_fail(c, ZX_E_SHAPE, "Reshape of %s to %s", zx_shape_text(zx_s(c, x), from),
                zx_shape_text(&to, text));
        return;
    }
    zx_out(c, 0, zx_reshape(c, x, &to));
}

void zx_lower_flatten(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), rank = zx_rank(c, x);
    const int64_t given = zx_int(c, "axis", 1), axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis > rank) {
        zx_fail(c, ZX_E_SHAPE, "axis %" PRId64 " of a tensor with %u dimensions", given, rank);
        return;
    }
    const zx_shape *s = zx_s(c, x);
    zx_out(c, 0,
           zx_reshape_to(c, x, 2,
                         (int64_t[]){zx_shape_span(s, 0, (uint32_t)axis),
                                     zx_shape_span(s, (uint32_t)axis, rank)}));
}

// The axes of Squeeze and Unsqueeze: an attribute before opset 13. NULL: not given.
static const int64_t *axes_of(zx_imp *c, uint32_t *n)
{
    *n = 0;
    if (zx_given(c, 1)) return zx_const_ints(c, zx_in(c, 1), "the list of axes", n);
    return zx_ints(c, "axes", n);
}

void zx_lower_squeeze(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), rank = zx_rank(c, x);
    uint32_t n;
    const int64_t *axes = axes_of(c, &n);
    bool drop[ZX_MAX_RANK] = {0};
    if (!zx_ok(c)) return;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t a = zx_axis(c, axes[i], rank);
        if (!zx_ok(c)) return;
        if (zx_dim(c, x, a) != 1) {
            zx_fail(c, ZX_E_SHAPE, "Squeeze of dimension %u, which is %" PRId64, a,
                    zx_dim(c, x, a));
            return;
        }
        drop[a] = true;
    }
    zx_shape to = {0};
    for (uint32_t i = 0; i < rank; i++) {
        const bool gone = axes ? drop[i] : zx_dim(c, x, i) == 1;
        if (!gone) to.dim[to.rank++] = zx_dim(c, x, i);
    }
    zx_out(c, 0, zx_reshape(c, x, &to));
}

void zx_lower_unsqueeze(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    uint32_t n, at = 0;
    const int64_t *axes = axes_of(c, &n);
    if (zx_ok(c) && axes == NULL) zx_fail(c, ZX_E_FORMAT, "Unsqueeze without axes");
    const uint32_t rank = zx_rank(c, x) + n;
    bool made[ZX_MAX_RANK] = {0};
    if (zx_ok(c) && rank > ZX_MAX_RANK)
        zx_fail(c, ZX_E_UNSUPPORTED, "it makes %u dimensions, at most %d are supported", rank,
                ZX_MAX_RANK);
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        const uint32_t a = zx_axis(c, axes[i], rank);
        if (zx_ok(c) && made[a]) zx_fail(c, ZX_E_SHAPE, "axis %u is given twice", a);
        made[a] = true;
    }
    if (!zx_ok(c)) return;
    zx_shape to = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) to.dim[i] = made[i] ? 1 : zx_dim(c, x, at++);
    zx_out(c, 0, zx_reshape(c, x, &to));
}

void zx_lower_transpose(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), rank = zx_rank(c, x);
    uint32_t n;
    const int64_t *given = zx_ints(c, "perm", &n);
    int64_t perm[ZX_MAX_RANK];
    bool seen[ZX_MAX_RANK] = {0};
    if (!zx_ok(c)) return;
    if (given && n != rank) {
        zx_fail(c, ZX_E_SHAPE, "perm has %u numbers for %u dimensions", n, rank);
        return;
    }
    for (uint32_t i = 0; i < rank; i++) {
        perm[i] = given ? given[i] : (int64_t)(rank - 1 - i);
        if (perm[i] < 0 || perm[i] >= (int64_t)rank || seen[perm[i]]) {
            zx_fail(c, ZX_E_SHAPE, "perm is no permutation of %u dimensions", rank);
            return;
        }
        seen[perm[i]] = true;
    }
    // Moving dims of size 1 moves no element.
    zx_shape to = {.rank = rank};
    int64_t last = -1;
    bool moves = false;
    for (uint32_t i = 0; i < rank; i++) {
        to.dim[i] = zx_dim(c, x, (uint32_t)perm[i]);
        if (to.dim[i] == 1) continue;
        moves = moves || perm[i] < last;
        last = perm[i];
    }
    zx_out(c, 0, moves ? zx_transpose(c, x, perm) : zx_reshape(c, x, &to));
}

void zx_lower_expand(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    uint32_t n;
    const int64_t *want = zx_const_ints(c, zx_in(c, 1), "the shape", &n);
    zx_shape s = {.rank = n}, to;
    if (!zx_ok(c)) return;
    if (n > ZX_MAX_RANK) {
        zx_fail(c, ZX_E_UNSUPPORTED, "Expand to %u dimensions, at most %d are supported", n,
                ZX_MAX_RANK);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        s.dim[i] = want[i];
        if (want[i] < 0) {
            zx_fail(c, ZX_E_SHAPE, "Expand to a dimension of %" PRId64, want[i]);
            return;
        }
    }
    c->st = zx_shape_check(&s, &c->one);
    if (zx_ok(c)) c->st = zx_shape_broadcast(zx_s(c, x), &s, &to, &c->one);
    if (zx_ok(c)) zx_out(c, 0, zx_expand(c, x, &to));
}

void zx_lower_tile(zx_imp *c)
{
    uint32_t x = zx_in(c, 0), n;
    const uint32_t rank = zx_rank(c, x);
    const int64_t *times = zx_const_ints(c, zx_in(c, 1), "the list of repeats", &n);
    if (!zx_ok(c)) return;
    if (n != rank) {
        zx_fail(c, ZX_E_SHAPE, "%u repeats for %u dimensions", n, rank);
        return;
    }
    zx_shape to = *zx_s(c, x);
    for (uint32_t i = 0; i < rank && zx_ok(c); i++) {
        if (times[i] == 1) continue;
        if (times[i] < 0 || __builtin_mul_overflow(to.dim[i], times[i], &to.dim[i])) {
            zx_fail(c, ZX_E_SHAPE, "%" PRId64 " repeats", times[i]);
            return;
        }
        c->st = zx_shape_check(&to, &c->one);
        if (!zx_ok(c)) return;
        // [outer, inner] as [outer, 1, inner] to [outer, times, inner]
        const zx_shape *s = zx_s(c, x);
        const int64_t outer = zx_shape_span(s, 0, i), inner = zx_shape_span(s, i, rank);
        x = zx_reshape_to(c, x, 3, (int64_t[]){outer, 1, inner});
        x = zx_expand(c, x, &(zx_shape){.rank = 3, .dim = {outer, times[i], inner}});
        x = zx_reshape(c, x, &to);
    }
    zx_out(c, 0, x);
}

void zx_lower_concat(zx_imp *c)
{
    const uint32_t n = c->node->n_in;
    uint32_t *v = ZX_NEW(&c->tmp, uint32_t, n + 1);
    if (!zx_need(c, "axis")) return;
    for (uint32_t i = 0; i < n; i++) {
        if (!zx_given(c, i)) zx_fail(c, ZX_E_FORMAT, "its input %u is left out", i);
        v[i] = zx_in(c, i);
    }
    const uint32_t axis = zx_axis(c, zx_int(c, "axis", 0), zx_rank(c, v[0]));
    if (zx_ok(c)) zx_out(c, 0, zx_concat(c, v, n, axis));
}

// The sizes of the parts of a dimension cut into n_out, or as `split` says.
static const int64_t *parts_of(zx_imp *c, int64_t dim, uint32_t n_out)
{
    uint32_t n = 0;
    const int64_t *given = zx_given(c, 1) ? zx_const_ints(c, zx_in(c, 1), "the list of sizes", &n)
                                          : zx_ints(c, "split", &n);
    if (!zx_ok(c)) return NULL;
    if (given == NULL) {
        const int64_t parts = zx_int(c, "num_outputs", n_out);
        if (parts != (int64_t)n_out || parts < 1) {
            zx_fail(c, ZX_E_SHAPE, "Split into %" PRId64 " has %u outputs", parts, n_out);
            return NULL;
        }
        const int64_t each = (dim + parts - 1) / parts;
        if (c->node->opset < 18 && dim % parts != 0)
            zx_fail(c, ZX_E_SHAPE,
                    "a dimension of %" PRId64 " doesn't split into %" PRId64 " equal parts", dim,
                    parts);
        int64_t *sizes = ZX_NEW(&c->tmp, int64_t, n_out);
        for (uint32_t i = 0; i < n_out; i++) {
            const int64_t left = dim - each * i;
            sizes[i] = left < 0 ? 0 : left < each ? left : each;
        }
        return sizes;
    }
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (given[i] < 0 || __builtin_add_overflow(sum, given[i], &sum)) sum = -1, n = 0;
    if (n != n_out || sum != dim) {
        zx_fail(c, ZX_E_SHAPE, "Split's sizes don't add up to %" PRId64 ", or aren't %u", dim,
                n_out);
        return NULL;
    }
    return given;
}

void zx_lower_split(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), axis = zx_axis(c, zx_int(c, "axis", 0), zx_rank(c, x));
    const uint32_t n = c->node->n_out;
    const int64_t *sizes = zx_ok(c) ? parts_of(c, zx_dim(c, x, axis), n) : NULL;
    int64_t at = 0;
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        if (zx_wanted(c, i)) zx_out(c, i, zx_slice(c, x, axis, at, sizes[i]));
        at += sizes[i];
    }
}

// One axis of Slice by the standard's clamping; *n elements from *start on.
static void clamp(int64_t dim, int64_t *start, int64_t end, int64_t *step, int64_t *n)
{
    if (*step == INT64_MIN) *step = -INT64_MAX;
    const bool up = *step > 0;
    int64_t s = *start, e = end;
    if (s < 0) s = s < -dim ? -1 : s + dim; // below -dim: clamped all the same
    if (e < 0) e = e < -dim ? -1 : e + dim;
    const int64_t lo_s = 0, hi_s = up ? dim : dim - 1;
    s = s < lo_s ? lo_s : s > hi_s ? hi_s : s;
    const int64_t lo_e = up ? 0 : -1, hi_e = up ? dim : dim - 1;
    e = e < lo_e ? lo_e : e > hi_e ? hi_e : e;
    if (up)
        *n = e > s ? 1 + (e - s - 1) / *step : 0;
    else
        *n = s > e ? 1 + (s - e - 1) / -*step : 0;
    if (dim == 0) *n = 0;
    if (*n <= 1) *step = 1; // a step that is never taken may be huge
    *start = *n > 0 ? s : 0;
}

void zx_lower_slice(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), rank = zx_rank(c, x);
    uint32_t n = 0, n_ends = 0, n_axes = 0, n_steps = 0;
    const int64_t *starts, *ends, *axes, *steps = NULL;
    if (c->node->opset < 10) {
        starts = zx_ints(c, "starts", &n);
        ends = zx_ints(c, "ends", &n_ends);
        axes = zx_ints(c, "axes", &n_axes);
        if (zx_ok(c) && (starts == NULL || ends == NULL))
            zx_fail(c, ZX_E_FORMAT, "Slice without bounds");
    } else {
        starts = zx_const_ints(c, zx_in(c, 1), "the list of starts", &n);
        ends = zx_const_ints(c, zx_in(c, 2), "the list of ends", &n_ends);
        axes = zx_given(c, 3) ? zx_const_ints(c, zx_in(c, 3), "the list of axes", &n_axes) : NULL;
        steps =
            zx_given(c, 4) ? zx_const_ints(c, zx_in(c, 4), "the list of steps", &n_steps) : NULL;
    }
    if (!zx_ok(c)) return;
    if (n != n_ends || (axes && n_axes != n) || (steps && n_steps != n) || n > rank) {
        zx_fail(c, ZX_E_SHAPE, "Slice's lists have different lengths, or more than %u", rank);
        return;
    }
    zx_shape to = *zx_s(c, x);
    int64_t from[ZX_MAX_RANK] = {0}, by[ZX_MAX_RANK];
    bool seen[ZX_MAX_RANK] = {0}, whole = true;
    for (uint32_t i = 0; i < rank; i++) by[i] = 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t a = axes ? zx_axis(c, axes[i], rank) : i;
        if (!zx_ok(c)) return;
        if (seen[a] || (steps && steps[i] == 0)) {
            zx_fail(c, ZX_E_SHAPE, seen[a] ? "axis %u is given twice" : "the step of axis %u is 0",
                    a);
            return;
        }
        seen[a] = true;
        from[a] = starts[i];
        if (steps) by[a] = steps[i];
        clamp(zx_dim(c, x, a), &from[a], ends[i], &by[a], &to.dim[a]);
        whole = whole && by[a] == 1 && to.dim[a] == zx_dim(c, x, a);
    }
    if (whole) {
        zx_out(c, 0, x);
        return;
    }
    zx_attrs a = zx_with_ints(c, ZX_NO_ATTRS, ZX_A_STARTS, from, rank);
    a = zx_with_ints(c, a, ZX_A_STEPS, by, rank);
    zx_out(c, 0, zx_e1(c, ZX_OP_SLICE, zx_with_shape(c, a, &to), x));
}

void zx_lower_pad(zx_imp *c)
{
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    uint32_t x = zx_in(c, 0), n = 0, n_axes = 0;
    const uint32_t rank = zx_rank(c, x), mode = zx_choice(c, "mode", 0, modes, 4);
    const bool old = c->node->opset < 11;
    const int64_t *pads =
        old ? zx_ints(c, "pads", &n) : zx_const_ints(c, zx_in(c, 1), "the pads", &n);
    const int64_t *axes =
        zx_given(c, 3) ? zx_const_ints(c, zx_in(c, 3), "the list of axes", &n_axes) : NULL;
    uint32_t value = old ? ZX_NONE : zx_in(c, 2);
    if (!zx_ok(c)) return;
    if (old && zx_has(c, "value")) value = zx_k(c, zx_t(c, x), zx_float(c, "value", 0));
    if (value != ZX_NONE && zx_shape_count(zx_s(c, value)) == 1)
        value = zx_reshape(c, value, &(zx_shape){0});
    if (axes == NULL) n_axes = rank;
    if (pads == NULL || n != 2 * n_axes || n_axes > rank) {
        zx_fail(c, ZX_E_SHAPE, "%u pads for %u dimensions", n, n_axes);
        return;
    }
    int64_t both[2 * ZX_MAX_RANK] = {0};
    bool any = false;
    for (uint32_t i = 0; i < n_axes; i++) {
        const uint32_t a = axes ? zx_axis(c, axes[i], rank) : i;
        if (!zx_ok(c)) return;
        int64_t before = pads[i], after = pads[i + n_axes];
        const int64_t dim = zx_dim(c, x, a), limit = INT64_C(1) << 40;
        if (before > limit || after > limit || before < -dim || after < -dim ||
            before + after < -dim) {
            zx_fail(c, ZX_E_SHAPE,
                    "pads of %" PRId64 " and %" PRId64 " around a dimension of %" PRId64, before,
                    after, dim);
            return;
        }
        if (before < 0 || after < 0) { // a negative pad cuts
            const int64_t cut = before < 0 ? -before : 0, cut_end = after < 0 ? -after : 0;
            x = zx_slice(c, x, a, cut, dim - cut - cut_end);
            before = before < 0 ? 0 : before;
            after = after < 0 ? 0 : after;
        }
        const int64_t left = zx_dim(c, x, a);
        if ((mode == 1 && (before >= left || after >= left) && before + after > 0) ||
            (mode > 1 && left == 0 && before + after > 0)) {
            zx_fail(c, ZX_E_SHAPE, "mode '%s' pads a dimension of %" PRId64 " by %" PRId64,
                    modes[mode], left, before > after ? before : after);
            return;
        }
        both[a] = before;
        both[a + rank] = after;
        any = any || before > 0 || after > 0;
    }
    if (!any) {
        zx_out(c, 0, x);
        return;
    }
    zx_attrs a = zx_with_ints(c, ZX_NO_ATTRS, ZX_A_PADS, both, 2 * rank);
    a = zx_with_int(c, a, ZX_A_MODE, mode);
    zx_out(c, 0, zx_e2(c, ZX_OP_PAD, a, x, mode == 0 ? value : ZX_NONE));
}

// Depth to space: [N, C, H, W] to [N, C/b², H·b, W·b].
void zx_lower_depth_to_space(zx_imp *c)
{
    static const char *const modes[] = {"DCR", "CRD"};
    const uint32_t x = zx_in(c, 0), crd = zx_choice(c, "mode", 0, modes, 2);
    const int64_t b = zx_int(c, "blocksize", 0);
    const zx_shape s = *zx_s(c, x);
    if (!zx_ok(c)) return;
    if (s.rank != 4 || b < 1 || b > 1 << 15 || s.dim[1] % (b * b) != 0) {
        zx_fail(c, ZX_E_SHAPE,
                "%s wants [N, C, H, W] with C a multiple of blocksize², it is %" PRId64,
                c->node->op, b);
        return;
    }
    const int64_t n = s.dim[0], ch = s.dim[1] / (b * b), h = s.dim[2], w = s.dim[3];
    const int64_t dcr[6] = {n, b, b, ch, h, w}, cr[6] = {n, ch, b, b, h, w};
    const int64_t perm_dcr[6] = {0, 3, 4, 1, 5, 2}, perm_crd[6] = {0, 1, 4, 2, 5, 3};
    uint32_t y = zx_reshape_to(c, x, 6, crd ? cr : dcr);
    y = zx_transpose(c, y, crd ? perm_crd : perm_dcr);
    zx_out(c, 0, zx_reshape_to(c, y, 4, (int64_t[]){n, ch, h * b, w * b}));
}

void zx_lower_space_to_depth(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    const int64_t b = zx_int(c, "blocksize", 0);
    const zx_shape s = *zx_s(c, x);
    if (!zx_ok(c)) return;
    if (s.rank != 4 || b < 1 || s.dim[2] % b != 0 || s.dim[3] % b != 0) {
        zx_fail(c, ZX_E_SHAPE,
                "%s wants [N, C, H, W] with H and W multiples of blocksize, it is %" PRId64,
                c->node->op, b);
        return;
    }
    const int64_t n = s.dim[0], ch = s.dim[1], h = s.dim[2] / b, w = s.dim[3] / b;
    uint32_t y = zx_reshape_to(c, x, 6, (int64_t[]){n, ch, h, b, w, b});
    y = zx_transpose(c, y, (int64_t[]){0, 3, 5, 1, 2, 4});
    zx_out(c, 0, zx_reshape_to(c, y, 4, (int64_t[]){n, ch * b * b, h, w}));
}

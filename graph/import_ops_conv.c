// import_ops_conv.c - lowering of convolutions, pooling and resizing: auto_pad, ceil_mode and
// defaults become explicit numbers here.
// SPDX-License-Identifier: Apache-2.0
#include "graph/import_priv.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_SPATIAL 3

typedef struct window { // of a convolution or a pool, one number a spatial dim
    uint32_t n;
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], dilation[MAX_SPATIAL];
    int64_t pad[2 * MAX_SPATIAL]; // begins, then ends
    int64_t in[MAX_SPATIAL], out[MAX_SPATIAL];
} window;

enum { NOTSET, SAME_UPPER, SAME_LOWER, VALID };
static const char *const auto_pads[] = {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"};

// A list attribute of n numbers in [least, 2^31), all `absent` where it isn't given.
static void list(zx_imp *c, const char *name, uint32_t n, int64_t absent, int64_t least,
                 int64_t *out)
{
    uint32_t have;
    const int64_t *x = zx_ints(c, name, &have);
    for (uint32_t i = 0; i < n; i++) out[i] = absent;
    if (x == NULL) return;
    if (have != n) {
        zx_fail(c, ZX_E_SHAPE, "the attribute '%s' has %u numbers where %u are wanted", name, have,
                n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i] = x[i];
        if (x[i] < least || x[i] > INT32_MAX)
            zx_fail(c, ZX_E_SHAPE, "the attribute '%s' holds %" PRId64, name, x[i]);
    }
}

// Strides, dilations and pads of an input [N, C, d..] with a kernel that is known; and the result's
// spatial sizes. ceil: the last window may hang over.
static bool read_window(zx_imp *c, const zx_shape *x, window *w, bool ceil)
{
    if (!zx_ok(c)) return false;
    if (x->rank < 3 || x->rank > 2 + MAX_SPATIAL) {
        zx_fail(c, ZX_E_UNSUPPORTED, "%s of %u dimensions: 3 to 5 are supported", c->node->op,
                x->rank);
        return false;
    }
    w->n = x->rank - 2;
    list(c, "strides", w->n, 1, 1, w->stride);
    list(c, "dilations", w->n, 1, 1, w->dilation);
    list(c, "pads", 2 * w->n, 0, 0, w->pad);
    const uint32_t mode = zx_choice(c, "auto_pad", NOTSET, auto_pads, 4);
    for (uint32_t i = 0; i < w->n && zx_ok(c); i++) {
        w->in[i] = x->dim[2 + i];
        const int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1, s = w->stride[i];
        if (mode == SAME_UPPER || mode == SAME_LOWER) {
            const int64_t out = (w->in[i] + s - 1) / s;
            int64_t pad = (out - 1) * s + reach - w->in[i];
            pad = pad < 0 ? 0 : pad;
            w->pad[i] = mode == SAME_UPPER ? pad / 2 : pad - pad / 2;
            w->pad[w->n + i] = pad - w->pad[i];
        } else if (mode == VALID) {
            w->pad[i] = w->pad[w->n + i] = 0;
        }
        const int64_t room = w->in[i] + w->pad[i] + w->pad[w->n + i] - reach;
        if (room < 0 || w->kernel[i] < 1) {
            zx_fail(c, ZX_E_SHAPE, "a window of %" PRId64 " on a padded size of %" PRId64, reach,
                    room + reach);
            return false;
        }
        w->out[i] = (ceil ? (room + s - 1) / s : room / s) + 1;
        // A window that would begin in the padding behind the end isn't there.
        if (ceil && (w->out[i] - 1) * s >= w->in[i] + w->pad[i]) w->out[i]--;
    }
    return zx_ok(c);
}

static zx_attrs window_attrs(zx_imp *c, const window *w)
{
    zx_attrs a = zx_with_ints(c, ZX_NO_ATTRS, ZX_A_STRIDES, w->stride, w->n);
    a = zx_with_ints(c, a, ZX_A_PADS, w->pad, 2 * w->n);
    return zx_with_ints(c, a, ZX_A_DILATIONS, w->dilation, w->n);
}

// The kernel is the weight's; the attribute, if given, must agree.
static bool weight_kernel(zx_imp *c, const zx_shape *w, window *k)
{
    if (!zx_ok(c)) return false;
    if (w->rank < 3 || w->rank > 2 + MAX_SPATIAL) {
        zx_fail(c, ZX_E_UNSUPPORTED, "%s with a weight of %u dimensions: 3 to 5 are supported",
                c->node->op, w->rank);
        return false;
    }
    k->n = w->rank - 2;
    list(c, "kernel_shape", k->n, 0, 1, k->kernel);
    for (uint32_t i = 0; i < k->n && zx_ok(c); i++) {
        if (zx_has(c, "kernel_shape") && k->kernel[i] != w->dim[2 + i])
            zx_fail(c, ZX_E_SHAPE, "kernel_shape says %" PRId64 ", the weight has %" PRId64,
                    k->kernel[i], w->dim[2 + i]);
        k->kernel[i] = w->dim[2 + i];
        if (k->kernel[i] > INT32_MAX) zx_fail(c, ZX_E_SHAPE, "a kernel of %" PRId64, k->kernel[i]);
    }
    return zx_ok(c);
}

static int64_t groups(zx_imp *c)
{
    const int64_t g = zx_int(c, "group", 1);
    if (g < 1 || g > INT32_MAX) zx_fail(c, ZX_E_SHAPE, "%" PRId64 " groups", g);
    return g < 1 ? 1 : g;
}

void zx_lower_conv(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), w = zx_in(c, 1), b = zx_in(c, 2);
    window k = {0};
    if (!weight_kernel(c, zx_s(c, w), &k)) return;
    if (zx_rank(c, x) != zx_rank(c, w)) {
        zx_fail(c, ZX_E_SHAPE, "Conv of %u dimensions with a weight of %u", zx_rank(c, x),
                zx_rank(c, w));
        return;
    }
    if (!read_window(c, zx_s(c, x), &k, false)) return;
    const zx_attrs a = zx_with_int(c, window_attrs(c, &k), ZX_A_GROUP, groups(c));
    zx_out(c, 0, zx_e3(c, ZX_OP_CONV, a, x, w, b));
}

// The gradient of a convolution that would make x from the result.
void zx_lower_conv_transpose(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), w = zx_in(c, 1), b = zx_in(c, 2);
    const zx_shape sx = *zx_s(c, x), sw = *zx_s(c, w);
    window k = {0};
    int64_t extra[MAX_SPATIAL], want[MAX_SPATIAL];
    if (!weight_kernel(c, &sw, &k)) return;
    const int64_t g = groups(c);
    if (sx.rank != sw.rank || sx.dim[1] != sw.dim[0] || sx.dim[1] % g != 0) {
        zx_fail(c, ZX_E_SHAPE,
                "ConvTranspose of %" PRId64 " channels with a weight for %" PRId64 " in %" PRId64
                " groups",
                sx.rank > 1 ? sx.dim[1] : 0, sw.dim[0], g);
        return;
    }
    list(c, "strides", k.n, 1, 1, k.stride);
    list(c, "dilations", k.n, 1, 1, k.dilation);
    list(c, "pads", 2 * k.n, 0, 0, k.pad);
    list(c, "output_padding", k.n, 0, 0, extra);
    list(c, "output_shape", k.n, -1, 1, want);
    const uint32_t mode = zx_choice(c, "auto_pad", NOTSET, auto_pads, 4);
    if (!zx_ok(c)) return;
    zx_shape out = {.rank = sx.rank, .dim = {sx.dim[0], sw.dim[1] * g}};
    for (uint32_t i = 0; i < k.n; i++) {
        const int64_t reach = k.dilation[i] * (k.kernel[i] - 1) + 1;
        const int64_t full = k.stride[i] * (sx.dim[2 + i] - 1) + extra[i] + reach;
        if (mode == SAME_UPPER || mode == SAME_LOWER)
            want[i] = zx_has(c, "output_shape") ? want[i] : sx.dim[2 + i] * k.stride[i];
        if (mode == VALID) k.pad[i] = k.pad[k.n + i] = 0;
        const bool given = zx_has(c, "output_shape") || mode == SAME_UPPER || mode == SAME_LOWER;
        if (given) {
            const int64_t total = full - want[i];
            const int64_t half = total < 0 ? 0 : total / 2;
            k.pad[i] = mode == SAME_UPPER ? half : (total < 0 ? 0 : total) - half;
            k.pad[k.n + i] = (total < 0 ? 0 : total) - k.pad[i];
        }
        out.dim[2 + i] = given ? want[i] : full - k.pad[i] - k.pad[k.n + i];
        // The convolution must lead back to x.
        const int64_t room = out.dim[2 + i] + k.pad[i] + k.pad[k.n + i] - reach;
        if (out.dim[2 + i] < 1 || room < 0 || room / k.stride[i] + 1 != sx.dim[2 + i]) {
            zx_fail(c, ZX_E_SHAPE,
                    "ConvTranspose can't make a dimension of %" PRId64 " from %" PRId64,
                    out.dim[2 + i], sx.dim[2 + i]);
            return;
        }
    }
    zx_attrs a = zx_with_int(c, window_attrs(c, &k), ZX_A_GROUP, g);
    uint32_t y = zx_e2(c, ZX_OP_CONV_GRAD_X, zx_with_shape(c, a, &out), x, w);
    if (b != ZX_NONE) y = zx_e2(c, ZX_OP_ADD, ZX_NO_ATTRS, y, zx_channel(c, b, sx.rank));
    zx_out(c, 0, y);
}

// ---- pools
// ------------------------------------------------------------------------------------------

static bool pool_window(zx_imp *c, uint32_t x, window *k, zx_shape *out)
{
    *out = *zx_s(c, x);
    if (!zx_need(c, "kernel_shape")) return false;
    if (out->rank < 3 || out->rank > 2 + MAX_SPATIAL) {
        zx_fail(c, ZX_E_UNSUPPORTED, "%s of %u dimensions: 3 to 5 are supported", c->node->op,
                out->rank);
        return false;
    }
    list(c, "kernel_shape", out->rank - 2, 1, 1, k->kernel);
    if (!read_window(c, zx_s(c, x), k, zx_int(c, "ceil_mode", 0) != 0)) return false;
    for (uint32_t i = 0; i < k->n; i++) {
        if (k->pad[i] >= k->dilation[i] * (k->kernel[i] - 1) + 1 ||
            k->pad[k->n + i] >= k->dilation[i] * (k->kernel[i] - 1) + 1) {
            zx_fail(c, ZX_E_SHAPE, "%s is padded by a whole window", c->node->op);
            return false;
        }
        out->dim[2 + i] = k->out[i];
    }
    return true;
}

void zx_lower_max_pool(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    window k = {0};
    zx_shape out;
    if (!pool_window(c, x, &k, &out)) return;
    zx_attrs a = zx_with_ints(c, window_attrs(c, &k), ZX_A_KERNEL_SHAPE, k.kernel, k.n);
    uint32_t y[8];
    zx_ir_emit(c, ZX_OP_MAX_POOL, zx_with_shape(c, a, &out), &x, 1, y);
    zx_out(c, 0, y[0]);
    if (zx_wanted(c, 1)) zx_fail(c, ZX_E_UNSUPPORTED, "MaxPool's indices aren't supported");
}

void zx_lower_avg_pool(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0);
    window k = {0};
    zx_shape out;
    if (!pool_window(c, x, &k, &out)) return;
    zx_attrs a = zx_with_ints(c, window_attrs(c, &k), ZX_A_KERNEL_SHAPE, k.kernel, k.n);
    a = zx_with_int(c, a, ZX_A_COUNT_INCLUDE_PAD, zx_int(c, "count_include_pad", 0) != 0);
    zx_out(c, 0, zx_e1(c, ZX_OP_AVG_POOL, zx_with_shape(c, a, &out), x));
}

void zx_lower_global_pool(zx_imp *c)
{
    const uint32_t x = zx_in(c, 0), rank = zx_rank(c, x);
    int64_t axes[ZX_MAX_RANK];
    if (zx_ok(c) && rank < 3) zx_fail(c, ZX_E_SHAPE, "%s of %u dimensions", c->node->op, rank);
    if (!zx_ok(c)) return;
    for (uint32_t i = 2; i < rank; i++) axes[i - 2] = i;
    zx_out(c, 0, zx_reduce(c, c->node->row->op, x, axes, rank - 2, true));
}

// Local response normalisation: x / (bias + alpha * mean over `size` channels of x²)^beta, by an
// average pool over the channels as if they were a line.
void zx_lower_lrn(zx_imp *c)
{
    if (!zx_need(c, "size")) return;
    const uint32_t x = zx_in(c, 0);
    const zx_shape s = *zx_s(c, x);
    const int64_t size = zx_int(c, "size", 1);
    if (zx_ok(c) && (s.rank < 3 || size < 1 || size > 1 << 20))
        zx_fail(c, ZX_E_SHAPE, "LRN over %" PRId64 " channels of %u dimensions", size, s.rank);
    if (!zx_ok(c)) return;
    const zx_shape line = {.rank = 4, .dim = {s.dim[0], 1, s.dim[1], zx_shape_span(&s, 2, s.rank)}};
    const window k = {.n = 2,
                      .kernel = {size, 1},
                      .stride = {1, 1},
                      .dilation = {1, 1},
                      .pad = {(size - 1) / 2, 0, size / 2, 0}};
    zx_attrs a = zx_with_ints(c, window_attrs(c, &k), ZX_A_KERNEL_SHAPE, k.kernel, 2);
    a = zx_with_shape(c, zx_with_int(c, a, ZX_A_COUNT_INCLUDE_PAD, 1), &line);
    uint32_t m = zx_reshape(c, zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, x, x), &line);
    m = zx_reshape(c, zx_e1(c, ZX_OP_AVG_POOL, a, m), &s);
    m = zx_scale(c, m, zx_float(c, "alpha", 1e-4));
    m = zx_e2(c, ZX_OP_ADD, ZX_NO_ATTRS, m, zx_k(c, zx_t(c, x), zx_float(c, "bias", 1)));
    m = zx_e2(c, ZX_OP_POW, ZX_NO_ATTRS, m, zx_k(c, zx_t(c, x), -zx_float(c, "beta", 0.75)));
    zx_out(c, 0, zx_e2(c, ZX_OP_MUL, ZX_NO_ATTRS, x, m));
}

// ---- Resize
// -------------------------------------------------------------------------------------------

static void emit_resize(zx_imp *c, uint32_t x, const double *scale, const zx_shape *to,
                        uint32_t mode, uint32_t coord, uint32_t nearest, double cubic)
{
    zx_attrs a = zx_attrs_floats(&c->tmp, ZX_NO_ATTRS, ZX_A_SCALES, scale, to->rank);
    a = zx_with_int(c, a, ZX_A_MODE, mode);
    a = zx_with_int(c, a, ZX_A_COORD, coord);
    a = zx_with_int(c, a, ZX_A_NEAREST, nearest);
    a = zx_with_float(c, a, ZX_A_ALPHA, cubic);
    zx_out(c, 0, zx_e1(c, ZX_OP_RESIZE, zx_with_shape(c, a, to), x));
}

// Result size by a scale.
static bool scaled(zx_imp *c, int64_t dim, double scale, int64_t *out)
{
    const double d = floor((double)dim * scale);
    if (!(scale > 0) || !(d >= 1 && d < 1e12)) {
        zx_fail(c, ZX_E_SHAPE, "a dimension of %" PRId64 " scaled by %g", dim, scale);
        return false;
    }
    *out = (int64_t)d;
    return true;
}

void zx_lower_resize(zx_imp *c)
{
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const coords[] = {"half_pixel", "pytorch_half_pixel", "align_corners",
                                         "asymmetric", "half_pixel_symmetric"};
    static const char *const nearests[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                           "ceil"};
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller"};
    const bool old = c->node->opset < 11; // Upsample and the first Resize: x / scale, rounded down
    const uint32_t x = zx_in(c, 0), rank = zx_rank(c, x);
    const char *mode_word = zx_string(c, "mode", "nearest");
    const uint32_t mode =
        strcmp(mode_word, "bilinear") == 0 ? 1 : zx_choice(c, "mode", 0, modes, 3);
    const uint32_t coord = old ? 3 : zx_choice(c, "coordinate_transformation_mode", 0, coords, 5);
    const uint32_t nearest = old ? 2 : zx_choice(c, "nearest_mode", 0, nearests, 4);
    const uint32_t policy = zx_choice(c, "keep_aspect_ratio_policy", 0, policies, 3);
    if (zx_int(c, "antialias", 0) != 0 || (mode == 2 && zx_int(c, "exclude_outside", 0) != 0))
        zx_fail(c, ZX_E_UNSUPPORTED, "Resize with antialias or exclude_outside isn't supported");
    uint32_t n_axes = 0, n = 0;
    const int64_t *axes = zx_ints(c, "axes", &n_axes);
    const uint32_t at_scales = old ? 1 : 2;
    const bool by_size = !old && zx_given(c, 3) && zx_shape_count(zx_s(c, zx_in(c, 3))) > 0;
    const double *scales = NULL;
    const int64_t *sizes = NULL;
    if (by_size)
        sizes = zx_const_ints(c, zx_in(c, 3), "the sizes", &n);
    else if (zx_has(c, "scales"))
        scales = zx_floats(c, "scales", &n);
    else
        scales = zx_const_floats(c, zx_in(c, at_scales), "the scales", &n);
    if (!zx_ok(c)) return;
    if (n != (axes ? n_axes : rank)) {
        zx_fail(c, ZX_E_SHAPE, "%u scales or sizes for %u dimensions", n, axes ? n_axes : rank);
        return;
    }
    zx_shape to = *zx_s(c, x);
    double scale[ZX_MAX_RANK], even = policy == 1 ? INFINITY : 0;
    for (uint32_t i = 0; i < rank; i++) scale[i] = 1;
    for (uint32_t i = 0; i < n && by_size && policy > 0; i++) {
        const uint32_t a = axes ? zx_axis(c, axes[i], rank) : i;
        const double r = (double)sizes[i] / (double)zx_dim(c, x, a);
        even = policy == 1 ? fmin(even, r) : fmax(even, r);
    }
    for (uint32_t i = 0; i < n && zx_ok(c); i++) {
        const uint32_t a = axes ? zx_axis(c, axes[i], rank) : i;
        const int64_t dim = zx_dim(c, x, a);
        if (scales) {
            scale[a] = scales[i];
            if (!scaled(c, dim, scale[a], &to.dim[a])) return;
            continue;
        }
        to.dim[a] = policy ? zx_int_of(floor(even * (double)dim + 0.5)) : sizes[i];
        if (to.dim[a] < 1 || to.dim[a] > INT64_C(1) << 40) {
            zx_fail(c, ZX_E_SHAPE, "Resize to a dimension of %" PRId64, to.dim[a]);
            return;
        }
        scale[a] = policy ? even : (double)to.dim[a] / (double)dim;
    }
    if (!zx_ok(c)) return;
    bool same = true;
    for (uint32_t i = 0; i < rank; i++)
        same = same && to.dim[i] == zx_dim(c, x, i) && scale[i] == 1;
    if (same)
        zx_out(c, 0, x);
    else
        emit_resize(c, x, scale, &to, mode, coord, nearest, zx_float(c, "cubic_coeff_a", -0.75));
}

// resize.h - Resize's formulas, on the CPU and on GPUs alike: along each axis that changes, an
// output is a weighted sum of at most four inputs.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_RESIZE_H
#define ZX_KERNELS_RESIZE_H

#include <math.h>

#include "kernels/kernel.h"

ZX_BEGIN_C

enum { ZX_RESIZE_NEAREST, ZX_RESIZE_LINEAR, ZX_RESIZE_CUBIC }; // MODE
enum { ZX_HALF_PIXEL, ZX_PYTORCH_HALF_PIXEL, ZX_ALIGN_CORNERS, ZX_ASYMMETRIC, ZX_SYMMETRIC };
enum { ZX_PREFER_FLOOR, ZX_PREFER_CEIL, ZX_FLOOR, ZX_CEIL }; // NEAREST

#define ZX_TAPS 4
typedef struct zx_tap {
    int64_t index[ZX_TAPS]; // clamped to the axis: what lies outside repeats the edge
    double weight[ZX_TAPS]; // 0: not read
} zx_tap;

typedef struct zx_resize_axis { // one that changes
    uint32_t dim;
    int64_t outer, small, big, inner; // forward: [outer][small][inner] to [outer][big][inner]
    int mode, coord, nearest;
    double scale, cubic;
} zx_resize_axis;

typedef struct zx_resize {
    uint32_t n;
    int n_taps;
    zx_resize_axis list[ZX_MAX_RANK];
    uint64_t between; // elements of the largest tensor between two passes
} zx_resize;

// Where output o lies on the input's axis. Nearest rounds it, so there it is computed in float as
// ONNX Runtime does: 1 / (float)(1/3.) is 3 in float and less in double.
ZX_BOTH static inline double zx_resize_place(const zx_resize_axis *a, int64_t o)
{
    const double at = (double)o;
    const bool in_float = a->mode == ZX_RESIZE_NEAREST;
    if (a->coord == ZX_ALIGN_CORNERS) {
        // Of the sizes, as the standard's text, ONNX Runtime and PyTorch have it, also where a
        // scale that isn't their ratio made them (ONNX's reference evaluator takes scale * in for
        // out).
        return a->big == 1 ? 0.0 : at * (double)(a->small - 1) / (double)(a->big - 1);
    } else if (a->coord == ZX_ASYMMETRIC) {
        return in_float ? (double)((float)o / (float)a->scale) : at / a->scale;
    } else if (a->coord == ZX_PYTORCH_HALF_PIXEL && a->big == 1) {
        return 0.0;
    }
    double shift = 0;
    if (a->coord == ZX_SYMMETRIC)
        shift = (double)a->small / 2 * (1 - (double)a->big / (a->scale * (double)a->small));
    if (in_float) return shift + (double)(((float)o + 0.5f) / (float)a->scale - 0.5f);
    return shift + (at + 0.5) / a->scale - 0.5;
}

ZX_BOTH static inline double zx_resize_pick(int nearest, double x)
{
    return nearest == ZX_PREFER_FLOOR  ? ceil(x - 0.5)
           : nearest == ZX_PREFER_CEIL ? floor(x + 0.5)
           : nearest == ZX_FLOOR       ? floor(x)
                                       : ceil(x);
}

ZX_BOTH static inline zx_tap zx_resize_tap(const zx_resize_axis *axis, int64_t o)
{
    zx_tap t = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    const double x = zx_resize_place(axis, o), a = axis->cubic;
    const double base =
        axis->mode == ZX_RESIZE_NEAREST ? zx_resize_pick(axis->nearest, x) : floor(x);
    const double s = x - base, r = 1 - s;
    int64_t first = (int64_t)base;
    if (axis->mode == ZX_RESIZE_NEAREST) {
        t.weight[0] = 1;
    } else if (axis->mode == ZX_RESIZE_LINEAR) {
        t.weight[0] = r;
        t.weight[1] = s;
    } else {
        first--;
        t.weight[0] = ((a * (s + 1) - 5 * a) * (s + 1) + 8 * a) * (s + 1) - 4 * a;
        t.weight[1] = ((a + 2) * s - (a + 3)) * s * s + 1;
        t.weight[2] = ((a + 2) * r - (a + 3)) * r * r + 1;
        t.weight[3] = ((a * (r + 1) - 5 * a) * (r + 1) + 8 * a) * (r + 1) - 4 * a;
    }
    for (int i = 0; i < ZX_TAPS; i++) {
        const int64_t k = first + i;
        t.index[i] = k < 0 ? 0 : k >= axis->small ? axis->small - 1 : k;
    }
    return t;
}

// Of a call whose smaller side (or the one before) has shape x, the other y.
static inline zx_status zx_resize_make(const zx_call *call, const zx_shape *x, const zx_shape *y,
                                       zx_resize *r, zx_err *err)
{
    const zx_attr *scales = zx_attr_find(call->attrs, ZX_A_SCALES);
    const int mode = (int)zx_attr_int(call->attrs, ZX_A_MODE, ZX_RESIZE_NEAREST);
    if (x->rank != y->rank || !scales || scales->n != x->rank)
        return ZX_FAIL(err, ZX_E_SHAPE, "Resize: one size and one scale a dimension are needed");
    r->n = 0;
    r->between = 0;
    r->n_taps = mode == ZX_RESIZE_NEAREST ? 1 : mode == ZX_RESIZE_LINEAR ? 2 : 4;
    for (uint32_t d = 0; d < x->rank; d++) {
        const int64_t in = x->dim[d], out = y->dim[d];
        double scale = scales->f[d];
        if (!(scale > 0)) return ZX_FAIL(err, ZX_E_SHAPE, "Resize: scale %g of dim %u", scale, d);
        if (in == out && scale == 1.0) continue;
        if (in == 0 && out > 0)
            return ZX_FAIL(err, ZX_E_SHAPE, "Resize: dim %u has no elements to repeat", d);
        // Files hold scales in float; where sizes were meant, the exact ratio is meant.
        if (mode != ZX_RESIZE_NEAREST && (float)((double)out / (double)in) == (float)scale)
            scale = (double)out / (double)in;
        zx_resize_axis *a = &r->list[r->n++];
        a->dim = d;
        a->outer = zx_shape_span(y, 0, d);
        a->small = in;
        a->big = out;
        a->inner = zx_shape_span(x, d + 1, x->rank);
        a->mode = mode;
        a->coord = (int)zx_attr_int(call->attrs, ZX_A_COORD, ZX_HALF_PIXEL);
        a->nearest = (int)zx_attr_int(call->attrs, ZX_A_NEAREST, ZX_PREFER_FLOOR);
        a->scale = scale;
        a->cubic = zx_attr_float(call->attrs, ZX_A_ALPHA, -0.75);
        const uint64_t read = (uint64_t)(a->outer * a->small * a->inner); // what this pass reads
        if (r->n > 1 && r->between < read) r->between = read;
    }
    return ZX_OK;
}
// What lies between two passes alternates between parts of `between` bytes each.
static inline uint64_t zx_resize_work(const zx_resize *r, uint64_t between)
{
    return r->n < 3 ? between : 2 * between;
}

ZX_END_C

#endif

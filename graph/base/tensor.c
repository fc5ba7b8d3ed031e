// tensor.c - see tensor.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_ELEMENTS ((int64_t)1 << 59) // times 8 bytes: 2^62

const zx_dtype_row zx_dtypes[ZX_DTYPE_COUNT] = {
#define ZX_DTYPE(id, word, onnx, safe, bytes, kind)                                                \
    [ZX_##id] = {word, safe, onnx, bytes, ZX_KIND_##kind},
#include "graph/base/dtypes.def"
#undef ZX_DTYPE
};

zx_dtype zx_dtype_of_onnx(int64_t id)
{
    for (uint32_t t = 0; t < ZX_DTYPE_COUNT; t++)
        if (zx_dtypes[t].onnx == id) return (zx_dtype)t;
    return ZX_DTYPE_COUNT;
}

zx_dtype zx_dtype_of_safe(const char *name)
{
    for (uint32_t t = 0; t < ZX_DTYPE_COUNT; t++)
        if (strcmp(zx_dtypes[t].safe, name) == 0) return (zx_dtype)t;
    return ZX_DTYPE_COUNT;
}

int64_t zx_shape_span(const zx_shape *s, uint32_t from, uint32_t to)
{
    int64_t n = 1;
    for (uint32_t i = from; i < to; i++) n *= s->dim[i];
    return n;
}

int64_t zx_shape_count(const zx_shape *s)
{
    return zx_shape_span(s, 0, s->rank);
}

uint64_t zx_type_bytes(const zx_type *t)
{
    return (uint64_t)zx_shape_count(&t->shape) * zx_dtype_bytes(t->dtype);
}

bool zx_shape_equal(const zx_shape *a, const zx_shape *b)
{
    if (a->rank != b->rank) return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

zx_status zx_shape_check(const zx_shape *s, zx_err *err)
{
    int64_t n = 1; // product of the dims that aren't 0: no later product can overflow
    for (uint32_t i = 0; i < s->rank; i++) {
        if (s->dim[i] < 0)
            return ZX_FAIL(err, ZX_E_SHAPE, "dimension %u is negative (%" PRId64 ")", i, s->dim[i]);
        if (s->dim[i] > 0 && n > MOST_ELEMENTS / s->dim[i]) {
            char text[ZX_SHAPE_TEXT];
            return ZX_FAIL(err, ZX_E_SHAPE, "shape %s has more elements than any machine holds",
                           zx_shape_text(s, text));
        }
        if (s->dim[i] > 0) n *= s->dim[i];
    }
    return ZX_OK;
}

// Dimension `i` counted from the right; missing ones are 1, as in ONNX's multidirectional rule.
static int64_t dim_from_right(const zx_shape *s, uint32_t i)
{
    return i < s->rank ? s->dim[s->rank - 1 - i] : 1;
}

zx_status zx_shape_broadcast(const zx_shape *a, const zx_shape *b, zx_shape *out, zx_err *err)
{
    zx_shape y = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (uint32_t i = 0; i < y.rank; i++) {
        const int64_t m = dim_from_right(a, i), n = dim_from_right(b, i);
        if (m != n && m != 1 && n != 1) {
            char ta[ZX_SHAPE_TEXT], tb[ZX_SHAPE_TEXT];
            return ZX_FAIL(err, ZX_E_SHAPE, "cannot broadcast %s with %s", zx_shape_text(a, ta),
                           zx_shape_text(b, tb));
        }
        y.dim[y.rank - 1 - i] = m == 1 ? n : m;
    }
    *out = y;
    return ZX_OK;
}

const char *zx_shape_text(const zx_shape *s, char buf[ZX_SHAPE_TEXT])
{
    size_t at = 0;
    buf[at++] = '[';
    for (uint32_t i = 0; i < s->rank && at + 24 < ZX_SHAPE_TEXT; i++)
        at +=
            (size_t)snprintf(buf + at, ZX_SHAPE_TEXT - at, "%s%" PRId64, i ? ", " : "", s->dim[i]);
    buf[at++] = ']';
    buf[at] = '\0';
    return buf;
}

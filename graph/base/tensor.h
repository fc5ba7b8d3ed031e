// tensor.h - what a tensor looks like, without its data: element type and shape.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_TENSOR_H
#define ZX_BASE_TENSOR_H

#include "graph/base/err.h"

ZX_BEGIN_C

typedef enum zx_dtype {
#define ZX_DTYPE(id, word, onnx, safe, bytes, kind) ZX_##id,
#include "graph/base/dtypes.def"
#undef ZX_DTYPE
    ZX_DTYPE_COUNT
} zx_dtype;

typedef enum zx_dtype_kind { ZX_KIND_FLOAT, ZX_KIND_INT, ZX_KIND_UINT, ZX_KIND_BOOL } zx_dtype_kind;

typedef struct zx_dtype_row {
    const char *word, *safe;
    int32_t onnx;
    uint32_t bytes;
    zx_dtype_kind kind;
} zx_dtype_row;
extern const zx_dtype_row zx_dtypes[ZX_DTYPE_COUNT];
zx_dtype zx_dtype_of_onnx(int64_t id);       // ZX_DTYPE_COUNT: not one of ours
zx_dtype zx_dtype_of_safe(const char *name); // likewise
static inline uint32_t zx_dtype_bytes(zx_dtype t)
{
    return zx_dtypes[t].bytes;
}
static inline bool zx_dtype_is_float(zx_dtype t)
{
    return zx_dtypes[t].kind == ZX_KIND_FLOAT;
}

#define ZX_MAX_RANK 8

typedef struct zx_shape {
    uint32_t rank;
    int64_t dim[ZX_MAX_RANK]; // those beyond rank are 0
} zx_shape;

typedef struct zx_type { // element type and shape
    zx_dtype dtype;
    zx_shape shape;
} zx_type;

// Elements. Shapes in a graph were checked: the product of any of their dims fits in 2^62.
int64_t zx_shape_count(const zx_shape *s);
// Product of dims [from, to).
int64_t zx_shape_span(const zx_shape *s, uint32_t from, uint32_t to);
uint64_t zx_type_bytes(const zx_type *t);
bool zx_shape_equal(const zx_shape *a, const zx_shape *b);
// E_SHAPE for a negative dim or more than 2^62 elements (or bytes at 8 an element).
zx_status zx_shape_check(const zx_shape *s, zx_err *err);
// NumPy's multidirectional rule.
zx_status zx_shape_broadcast(const zx_shape *a, const zx_shape *b, zx_shape *out, zx_err *err);
// "[4, 32, 64]" into buf (cut if it must be); returns buf.
#define ZX_SHAPE_TEXT 192
const char *zx_shape_text(const zx_shape *s, char buf[ZX_SHAPE_TEXT]);

ZX_END_C

#endif

// attr.h - the attributes of a node: a short list of named integer or float arrays.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_ATTR_H
#define ZX_BASE_ATTR_H

#include "graph/base/arena.h"
#include "graph/base/tensor.h"

ZX_BEGIN_C

typedef enum zx_attr_id {
#define ZX_ATTR(id, word, holds) ZX_A_##id,
#include "graph/base/attrs.def"
#undef ZX_ATTR
    ZX_ATTR_COUNT
} zx_attr_id;

typedef struct zx_attr {
    uint32_t id, n;
    const int64_t *i; // one of the two, by the attribute's row
    const double *f;
} zx_attr;

typedef struct zx_attrs { // zeroed: none
    uint32_t n;
    const zx_attr *list;
} zx_attrs;

const char *zx_attr_word(zx_attr_id id);
bool zx_attr_is_float(zx_attr_id id);
const zx_attr *zx_attr_find(const zx_attrs *a, zx_attr_id id); // NULL: absent
int64_t zx_attr_int(const zx_attrs *a, zx_attr_id id, int64_t absent);
double zx_attr_float(const zx_attrs *a, zx_attr_id id, double absent);
// The integers of an attribute that must be there (a broken promise if not); *n may be NULL.
const int64_t *zx_attr_ints(const zx_attrs *a, zx_attr_id id, uint32_t *n);

// Building: each returns `a` with one attribute more (or replaced), copied into `mem`.
zx_attrs zx_attrs_int(zx_arena *mem, zx_attrs a, zx_attr_id id, int64_t value);
zx_attrs zx_attrs_float(zx_arena *mem, zx_attrs a, zx_attr_id id, double value);
zx_attrs zx_attrs_ints(zx_arena *mem, zx_attrs a, zx_attr_id id, const int64_t *v, uint32_t n);
zx_attrs zx_attrs_floats(zx_arena *mem, zx_attrs a, zx_attr_id id, const double *v, uint32_t n);
zx_attrs zx_attrs_shape(zx_arena *mem, zx_attrs a, zx_attr_id id, const zx_shape *s);

ZX_END_C

#endif

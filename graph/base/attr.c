// attr.c - see attr.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/attr.h"

#include <string.h>

static const struct {
    const char *word;
    bool is_float;
} rows[ZX_ATTR_COUNT] = {
#define I false
#define F true
#define ZX_ATTR(id, word, holds) [ZX_A_##id] = {word, holds},
#include "graph/base/attrs.def"
#undef ZX_ATTR
#undef I
#undef F
};

const char *zx_attr_word(zx_attr_id id)
{
    return rows[id].word;
}

bool zx_attr_is_float(zx_attr_id id)
{
    return rows[id].is_float;
}

const zx_attr *zx_attr_find(const zx_attrs *a, zx_attr_id id)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->list[i].id == (uint32_t)id) return &a->list[i];
    return NULL;
}

int64_t zx_attr_int(const zx_attrs *a, zx_attr_id id, int64_t absent)
{
    const zx_attr *x = zx_attr_find(a, id);
    return x && x->n > 0 ? x->i[0] : absent;
}

double zx_attr_float(const zx_attrs *a, zx_attr_id id, double absent)
{
    const zx_attr *x = zx_attr_find(a, id);
    return x && x->n > 0 ? x->f[0] : absent;
}

const int64_t *zx_attr_ints(const zx_attrs *a, zx_attr_id id, uint32_t *n)
{
    const zx_attr *x = zx_attr_find(a, id);
    ZX_ASSERT(x != NULL);
    if (n) *n = x->n;
    return x->i;
}

static zx_attrs with(zx_arena *mem, zx_attrs a, zx_attr one)
{
    zx_attr *list = ZX_NEW(mem, zx_attr, a.n + 1);
    uint32_t n = 0;
    for (uint32_t i = 0; i < a.n; i++)
        if (a.list[i].id != one.id) list[n++] = a.list[i];
    list[n++] = one;
    return (zx_attrs){n, list};
}

zx_attrs zx_attrs_ints(zx_arena *mem, zx_attrs a, zx_attr_id id, const int64_t *v, uint32_t n)
{
    ZX_ASSERT(!rows[id].is_float);
    int64_t *copy = ZX_NEW(mem, int64_t, n + 1);
    if (n > 0) memcpy(copy, v, n * sizeof *v);
    return with(mem, a, (zx_attr){(uint32_t)id, n, copy, NULL});
}

zx_attrs zx_attrs_floats(zx_arena *mem, zx_attrs a, zx_attr_id id, const double *v, uint32_t n)
{
    ZX_ASSERT(rows[id].is_float);
    double *copy = ZX_NEW(mem, double, n + 1);
    if (n > 0) memcpy(copy, v, n * sizeof *v);
    return with(mem, a, (zx_attr){(uint32_t)id, n, NULL, copy});
}

zx_attrs zx_attrs_int(zx_arena *mem, zx_attrs a, zx_attr_id id, int64_t value)
{
    return zx_attrs_ints(mem, a, id, &value, 1);
}

zx_attrs zx_attrs_float(zx_arena *mem, zx_attrs a, zx_attr_id id, double value)
{
    return zx_attrs_floats(mem, a, id, &value, 1);
}

zx_attrs zx_attrs_shape(zx_arena *mem, zx_attrs a, zx_attr_id id, const zx_shape *s)
{
    return zx_attrs_ints(mem, a, id, s->dim, s->rank);
}

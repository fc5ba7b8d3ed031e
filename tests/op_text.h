// op_text.h - nodes written as text, for tables of operator tests: types with how to fill them
// ("f32[2,3]:pos i64[4]:=0,-1,2,1 -") and attributes ("AXIS=1 SHAPE=2,3 EPSILON=1e-5").
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_OP_TEXT_H
#define ZX_TESTS_OP_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

typedef struct op_arg { // one input
    bool omitted;       // "-"
    zx_type type;
    char fill[160]; // what follows the colon, "" if nothing does
} op_arg;

static inline _Noreturn void op_text_bad(const char *what, const char *text)
{
    fprintf(stderr, "test table: %s in \"%s\"\n", what, text);
    abort();
}

static inline zx_dtype op_text_dtype(const char *word, size_t n)
{
    static const struct {
        const char *word;
        zx_dtype t;
    } words[] = {
        {"f32", ZX_F32}, {"f64", ZX_F64}, {"f16", ZX_F16},   {"bf16", ZX_BF16}, {"i8", ZX_I8},
        {"i16", ZX_I16}, {"i32", ZX_I32}, {"i64", ZX_I64},   {"u8", ZX_U8},     {"u16", ZX_U16},
        {"u32", ZX_U32}, {"u64", ZX_U64}, {"bool", ZX_BOOL},
    };
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        if (strlen(words[i].word) == n && strncmp(words[i].word, word, n) == 0) return words[i].t;
    op_text_bad("no such type", word);
}

// Reads the type at *p and moves *p past it.
static inline zx_type op_text_type(const char **p)
{
    zx_type t = {0};
    const char *open = strchr(*p, '[');
    if (open == NULL) op_text_bad("no shape", *p);
    t.dtype = op_text_dtype(*p, (size_t)(open - *p));
    char *at = (char *)(uintptr_t)open + 1;
    while (*at != ']') {
        if (t.shape.rank == ZX_MAX_RANK) op_text_bad("too many dimensions", *p);
        t.shape.dim[t.shape.rank++] = strtoll(at, &at, 10);
        if (*at == ',') at++;
    }
    *p = at + 1;
    return t;
}

// Up to `most` inputs; returns how many there are.
static inline uint32_t op_text_args(const char *text, op_arg *args, uint32_t most)
{
    uint32_t n = 0;
    for (const char *p = text; *p != '\0';) {
        if (*p == ' ') {
            p++;
            continue;
        }
        if (n == most) op_text_bad("too many inputs", text);
        op_arg *a = &args[n++];
        *a = (op_arg){0};
        if (*p == '-') {
            a->omitted = true;
            p++;
            continue;
        }
        a->type = op_text_type(&p);
        if (*p != ':') continue;
        const size_t len = strcspn(++p, " ");
        if (len >= sizeof a->fill) op_text_bad("too long a fill", text);
        memcpy(a->fill, p, len);
        p += len;
    }
    return n;
}

static inline zx_attr_id op_text_attr_id(const char *word, size_t n)
{
    static const char *const ids[] = {
#define ZX_ATTR(id, word, holds) #id,
#include "graph/base/attrs.def"
#undef ZX_ATTR
    };
    for (uint32_t i = 0; i < ZX_ATTR_COUNT; i++)
        if (strlen(ids[i]) == n && strncmp(ids[i], word, n) == 0) return (zx_attr_id)i;
    op_text_bad("no such attribute", word);
}

static inline zx_attrs op_text_attrs(const char *text, zx_arena *mem)
{
    zx_attrs attrs = {0};
    for (const char *p = text; *p != '\0';) {
        if (*p == ' ') {
            p++;
            continue;
        }
        const size_t n = strcspn(p, "=");
        const zx_attr_id id = op_text_attr_id(p, n);
        int64_t i[16];
        double f[16];
        uint32_t count = 0;
        char *at = (char *)(uintptr_t)p + n + 1;
        while (*at != ' ' && *at != '\0') {
            char *end;
            f[count] = strtod(at, &end);
            i[count] = strtoll(at, NULL, 10);
            if (end == at || count == 15) op_text_bad("not a number", at);
            at = end;
            count++;
            if (*at == ',') at++;
        }
        attrs = zx_attr_is_float(id) ? zx_attrs_floats(mem, attrs, id, f, count)
                                     : zx_attrs_ints(mem, attrs, id, i, count);
        p = at;
    }
    return attrs;
}

// "f32[2,3] i64[2]" of `n` types, as the table writes them.
static inline const char *op_text_print(const zx_type *types, uint32_t n, char *buf, size_t size)
{
    static const char *const words[ZX_DTYPE_COUNT] = {
        [ZX_F32] = "f32",   [ZX_F64] = "f64", [ZX_F16] = "f16", [ZX_BF16] = "bf16",
        [ZX_I8] = "i8",     [ZX_I16] = "i16", [ZX_I32] = "i32", [ZX_I64] = "i64",
        [ZX_U8] = "u8",     [ZX_U16] = "u16", [ZX_U32] = "u32", [ZX_U64] = "u64",
        [ZX_BOOL] = "bool",
    };
    size_t at = 0;
    buf[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        at +=
            (size_t)snprintf(buf + at, size - at, "%s%s[", i > 0 ? " " : "", words[types[i].dtype]);
        for (uint32_t d = 0; d < types[i].shape.rank; d++)
            at += (size_t)snprintf(buf + at, size - at, "%s%lld", d > 0 ? "," : "",
                                   (long long)types[i].shape.dim[d]);
        at += (size_t)snprintf(buf + at, size - at, "]");
    }
    return buf;
}

#endif

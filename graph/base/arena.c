// arena.c - a list of chunks with a bump pointer in the newest.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)64 << 10)

struct zx_chunk {
    struct zx_chunk *below;
    size_t used, size;
    _Alignas(64) unsigned char bytes[];
};

void *zx_arena_alloc(zx_arena *a, size_t n, size_t size, size_t align)
{
    ZX_ASSERT(align <= 64 && (align & (align - 1)) == 0);
    ZX_ASSERT(size == 0 || n <= SIZE_MAX / 2 / size);
    const size_t want = n * size;
    size_t at = a->top ? (a->top->used + align - 1) & ~(align - 1) : 0;
    if (a->top == NULL || at + want > a->top->size) {
        const size_t room = want > CHUNK_BYTES ? want : CHUNK_BYTES;
        const size_t total = (sizeof(struct zx_chunk) + room + 63) & ~(size_t)63;
        struct zx_chunk *c = aligned_alloc(64, total);
        if (c == NULL) zx_no_memory(total);
        c->below = a->top;
        c->size = room;
        a->top = c;
        at = 0;
    }
    a->top->used = at + want;
    return memset(a->top->bytes + at, 0, want);
}

zx_mark zx_arena_mark(const zx_arena *a)
{
    return (zx_mark){a->top, a->top ? a->top->used : 0};
}

void zx_arena_rewind(zx_arena *a, zx_mark to)
{
    while (a->top != to.top) {
        struct zx_chunk *gone = a->top;
        ZX_ASSERT(gone != NULL);
        a->top = gone->below;
        free(gone);
    }
    if (a->top) a->top->used = to.used;
}

void zx_arena_free(zx_arena *a)
{
    zx_arena_rewind(a, (zx_mark){0});
}

const char *zx_arena_strn(zx_arena *a, const char *text, size_t n)
{
    const size_t len = strnlen(text, n);
    char *to = ZX_NEW(a, char, len + 1);
    memcpy(to, text, len);
    return to;
}

const char *zx_arena_str(zx_arena *a, const char *text)
{
    return zx_arena_strn(a, text, SIZE_MAX);
}

const char *zx_arena_printf(zx_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ZX_ASSERT(n >= 0);
    char *to = ZX_NEW(a, char, (size_t)n + 1);
    vsnprintf(to, (size_t)n + 1, fmt, again);
    va_end(again);
    return to;
}

void *zx_arena_copy(zx_arena *a, const void *bytes, size_t n)
{
    void *to = zx_arena_alloc(a, n, 1, ZX_ALIGN);
    if (n > 0) memcpy(to, bytes, n);
    return to;
}

void *zx_arena_grow(zx_arena *a, void *array, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap) return array;
    const uint32_t more = *cap < 16 ? 16 : *cap * 2;
    ZX_ASSERT(more > *cap);
    void *to = zx_arena_alloc(a, more, size, ZX_ALIGN);
    if (n > 0) memcpy(to, array, n * size);
    *cap = more;
    return to;
}

// arena.h - memory that is freed all at once.
//
// Everything one stage makes (a graph, a trace, a plan) lives in the arena it was given, so no
// object has a destructor. Memory comes zeroed. It never fails: a host out of metadata memory
// stops the program, since nothing here is proportional to model weights.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_ARENA_H
#define ZX_BASE_ARENA_H

#include "graph/base/zx.h"

typedef struct zx_arena {
    struct zx_chunk *top;
} zx_arena; // zeroed is empty

typedef struct zx_mark {
    struct zx_chunk *top;
    size_t used;
} zx_mark;

#define ZX_NEW(arena, T, n) ((T *)zx_arena_alloc((arena), (n), sizeof(T), _Alignof(T)))
void *zx_arena_alloc(zx_arena *a, size_t n, size_t size, size_t align);

// Copies of text into the arena.
const char *zx_arena_str(zx_arena *a, const char *text);
const char *zx_arena_strn(zx_arena *a, const char *text, size_t n); // stops at n or at a NUL
const char *zx_arena_printf(zx_arena *a, const char *fmt, ...) ZX_PRINTF(2, 3);
void *zx_arena_copy(zx_arena *a, const void *bytes, size_t n); // aligned to ZX_ALIGN

// Makes room for one more element in an array kept in an arena: doubles *cap when *n reaches it
// and returns the array, moved if it had to grow (the old copy stays in the arena until the end).
#define ZX_GROW(arena, array, n, cap)                                                              \
    ((array) = zx_arena_grow((arena), (array), (n), &(cap), sizeof *(array)))
void *zx_arena_grow(zx_arena *a, void *array, uint32_t n, uint32_t *cap, size_t size);

zx_mark zx_arena_mark(const zx_arena *a);
void zx_arena_rewind(zx_arena *a, zx_mark to); // frees all that came after the mark
void zx_arena_free(zx_arena *a);               // frees all; `a` is empty again

#endif

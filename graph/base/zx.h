// zx.h - what every zerox file may assume: sizes, bounds, asserts.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_ZX_H
#define ZX_BASE_ZX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZX_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ZX_NONE UINT32_MAX // "no such index", for every kind of index
#define ZX_ALIGN 64        // every slot and every arena chunk starts at a multiple of this

#if defined(__GNUC__)
#define ZX_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ZX_UNUSED __attribute__((unused))
#else
#define ZX_PRINTF(fmt, args)
#define ZX_UNUSED
#endif

// Headers in graph/base/ and kernels/ are C and C++ at once, for .cu files to come: these three
// macros, and no designated initializers there.
#if defined(__cplusplus)
#define ZX_BEGIN_C extern "C" {
#define ZX_END_C }
#define ZX_NORETURN [[noreturn]]
#else
#define ZX_BEGIN_C
#define ZX_END_C
#define ZX_NORETURN _Noreturn
#endif

ZX_BEGIN_C

// A broken promise between our own functions: a bug, never bad input. Always compiled in.
#define ZX_ASSERT(cond) ((cond) ? (void)0 : zx_bug(__FILE__, __LINE__, #cond))
ZX_NORETURN void zx_bug(const char *file, int line, const char *what);
// The host has no memory for our own lists and names: said, and the end (see arena.h).
ZX_NORETURN void zx_no_memory(size_t bytes);

// True, and *out = a * b (or a + b), unless that overflows.
static inline bool zx_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool zx_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}
// Towards 0; what an int64 can't hold becomes its nearest, NaN 0: the plain cast is undefined
// there.
static inline int64_t zx_int_of(double x)
{
    if (!(x == x)) return 0;
    return x >= 0x1p63 ? INT64_MAX : x < -0x1p63 ? INT64_MIN : (int64_t)x;
}
static inline uint64_t zx_align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

ZX_END_C

#endif

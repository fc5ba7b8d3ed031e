// allocator.h - test harness: the program's own malloc and its kin stand before the C library's, so
// that a test sees who asks for how much; the work is still the C library's. For one file of a
// program, which has `test_allocates`. Not under sanitizers, which do the same.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_ALLOCATOR_H
#define ZX_TESTS_ALLOCATOR_H

#include <errno.h>

#include "tests/test.h"

#if !TEST_SANITIZED
static void test_allocates(size_t bytes, const void *caller);

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);

void *malloc(size_t n)
{
    test_allocates(n, __builtin_return_address(0));
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    test_allocates(n * size, __builtin_return_address(0));
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    test_allocates(n, __builtin_return_address(0));
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    test_allocates(n, __builtin_return_address(0));
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    test_allocates(n, __builtin_return_address(0));
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}
#endif

#endif

// test.h - cmocka with what zerox tests add to it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_TEST_H
#define ZX_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "graph/base/err.h"

// Under a sanitizer neither pages nor times nor allocations say anything about the program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

// ZX_FEW=1, for slow builds: of rows that cross one list with another, enough to meet each entry.
static inline bool test_few(void)
{
    return getenv("ZX_FEW") != NULL;
}

// One row of a table as a test of its own, so that a failure names the row.
static inline struct CMUnitTest zx_case(const char *name, CMUnitTestFunction run, const void *row)
{
    return (struct CMUnitTest){
        .name = name, .test_func = run, .initial_state = (void *)(uintptr_t)row};
}

#define assert_zx_ok(call, err)                                                                    \
    do {                                                                                           \
        const zx_status st_ = (call);                                                              \
        if (st_ != ZX_OK) fail_msg("%s: %s", zx_status_text(st_), (err)->cause[0]);                \
    } while (0)

#endif

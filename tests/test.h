// test.h - cmocka with what zerox tests add to it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_TEST_H
#define ZX_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "graph/base/err.h"

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

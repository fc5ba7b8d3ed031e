// test_mapfile.c - files as bytes.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include "tests/test.h"

#include "proto/mapfile.h"
#include "tests/proto/wire_build.h"

static void test_bytes(void **state ZX_UNUSED)
{
    char folder[64], path[128];
    zx_mapfile m;
    zx_err err = {0};
    file_write(folder_make(folder), "f", "abc", 3);
    snprintf(path, sizeof path, "%s/f", folder);
    assert_zx_ok(zx_mapfile_open(&m, path, &err), &err);
    assert_int_equal(m.size, 3);
    assert_memory_equal(m.bytes, "abc", 3);
    zx_mapfile_close(&m);
    assert_null(m.bytes);
    zx_mapfile_close(&m); // closing twice is harmless
    folder_remove(folder);
}

static void test_empty(void **state ZX_UNUSED)
{
    char folder[64], path[128];
    zx_mapfile m;
    zx_err err = {0};
    file_write(folder_make(folder), "f", "", 0);
    snprintf(path, sizeof path, "%s/f", folder);
    assert_zx_ok(zx_mapfile_open(&m, path, &err), &err);
    assert_null(m.bytes);
    assert_int_equal(m.size, 0);
    zx_mapfile_close(&m);
    folder_remove(folder);
}

static void test_refused(void **state ZX_UNUSED)
{
    char folder[64], path[128];
    zx_mapfile m;
    zx_err err = {0};
    assert_int_equal(zx_mapfile_open(&m, "/no/such", &err), ZX_E_IO);
    assert_string_equal(err.cause[0], "cannot open /no/such: No such file or directory");
    err = (zx_err){0};
    assert_int_equal(zx_mapfile_open(&m, "/tmp", &err), ZX_E_IO);
    assert_string_equal(err.cause[0], "/tmp is a folder, not a file");
    err = (zx_err){0};
    assert_int_equal(zx_mapfile_open(&m, "/dev/null", &err), ZX_E_IO);
    assert_says(&err, "not a regular file");
    snprintf(path, sizeof path, "%s/pipe", folder_make(folder));
    assert_int_equal(mkfifo(path, 0600), 0);
    err = (zx_err){0};
    assert_int_equal(zx_mapfile_open(&m, path, &err), ZX_E_IO); // must not wait for a writer
    assert_says(&err, "not a regular file");
    folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

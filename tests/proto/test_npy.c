// test_npy.c - NumPy arrays, good and hostile.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "tests/test.h"

#include "proto/npy.h"
#include "tests/proto/wire_build.h"

static const struct npy_case {
    const char *name, *header;
    uint32_t data_bytes;
    const char *want; // "type shape", or part of the error
    zx_status status;
    int version;
} cases[] = {
    {"float32", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 24, "float32 [2, 3]",
     ZX_OK, 1},
    {"version 2", "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", 16, "float64 [2]",
     ZX_OK, 2},
    {"version 3", "{'descr': '<f2', 'fortran_order': False, 'shape': (2,)}", 4, "float16 [2]",
     ZX_OK, 3},
    {"other order, other quotes", "{\"shape\":(4,1),\"descr\":\"|u1\",\"fortran_order\":False}", 4,
     "uint8 [4, 1]", ZX_OK, 1},
    {"bool", "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", 3, "bool [3]", ZX_OK, 1},
    {"long integers of Python 2", "{'descr': '<i8', 'fortran_order': False, 'shape': (2L,), }", 16,
     "int64 [2]", ZX_OK, 1},
    {"a scalar", "{'descr': '<i4', 'fortran_order': False, 'shape': (), }", 4, "int32 []", ZX_OK,
     1},
    {"no elements", "{'descr': '<i4', 'fortran_order': False, 'shape': (0, 5), }", 0,
     "int32 [0, 5]", ZX_OK, 1},
    {"column order of a vector is C order",
     "{'descr': '<u2', 'fortran_order': True, 'shape': (2,), }", 4, "uint16 [2]", ZX_OK, 1},
    {"big-endian bytes have no order", "{'descr': '>i1', 'fortran_order': False, 'shape': (2,), }",
     2, "int8 [2]", ZX_OK, 1},

    {"Fortran order", "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 24,
     "Fortran order", ZX_E_UNSUPPORTED, 1},
    {"big-endian", "{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8, "big-endian",
     ZX_E_UNSUPPORTED, 1},
    {"objects", "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", 16, "'|O'",
     ZX_E_UNSUPPORTED, 1},
    {"complex", "{'descr': '<c8', 'fortran_order': False, 'shape': (2,), }", 16, "'<c8'",
     ZX_E_UNSUPPORTED, 1},
    {"text", "{'descr': '<U7', 'fortran_order': False, 'shape': (2,), }", 56, "'<U7'",
     ZX_E_UNSUPPORTED, 1},
    {"records", "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8,
     "plain numbers", ZX_E_UNSUPPORTED, 1},
    {"promises more than it has", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 23,
     "takes 24 bytes, the file has 23", ZX_E_FORMAT, 1},
    {"more than it promises", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 25,
     "takes 24 bytes, the file has 25", ZX_E_FORMAT, 1},
    {"product overflows",
     "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }", 0,
     "more elements", ZX_E_SHAPE, 1},
    {"dimension overflows",
     "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 4, "no size",
     ZX_E_FORMAT, 1},
    {"negative dimension", "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4,
     "no size", ZX_E_FORMAT, 1},
    {"9 dimensions",
     "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1, 1, 1, 1, 1), }", 4,
     "dimensions", ZX_E_UNSUPPORTED, 1},
    {"no shape", "{'descr': '<f4', 'fortran_order': False, }", 4, "lacks", ZX_E_FORMAT, 1},
    {"shape is a number", "{'descr': '<f4', 'fortran_order': False, 'shape': 4}", 16, "no shape",
     ZX_E_FORMAT, 1},
    {"doubled key", "{'descr': '<f4', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}", 8,
     "doubled", ZX_E_FORMAT, 1},
    {"unknown key", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", 4, "unknown",
     ZX_E_FORMAT, 1},
    {"code", "__import__('os').system('x')", 4, "no dictionary", ZX_E_FORMAT, 1},
    {"no end", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,", 4, "no size", ZX_E_FORMAT,
     1},
    {"empty header", "", 4, "no dictionary", ZX_E_FORMAT, 1},
    {"unknown version", "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4, "version 9",
     ZX_E_UNSUPPORTED, 9},
};

static zx_text npy_of(const struct npy_case *c)
{
    zx_text t = {0};
    const size_t n = strlen(c->header);
    const unsigned char length[4] = {(unsigned char)n, (unsigned char)(n >> 8), 0, 0};
    zx_text_bytes(&t, "\x93NUMPY", 6);
    zx_text_bytes(&t, (unsigned char[]){(unsigned char)c->version, 0}, 2);
    zx_text_bytes(&t, length, c->version == 1 ? 2 : 4);
    zx_text_bytes(&t, c->header, n);
    for (uint32_t i = 0; i < c->data_bytes; i++) zx_text_bytes(&t, &i, 1);
    return t;
}

static void test_case(void **state)
{
    const struct npy_case *c = *state;
    char folder[64], path[128], shape[ZX_SHAPE_TEXT], got[ZX_SHAPE_TEXT + 32];
    zx_err err = {0};
    zx_npy n;
    zx_text bytes = npy_of(c);
    file_write(folder_make(folder), "a.npy", bytes.at, bytes.n);
    snprintf(path, sizeof path, "%s/a.npy", folder);
    const zx_status st = zx_npy_open(&n, path, &err);
    if (c->status == ZX_OK) {
        assert_zx_ok(st, &err);
        snprintf(got, sizeof got, "%s %s", zx_dtypes[n.type.dtype].word,
                 zx_shape_text(&n.type.shape, shape));
        assert_string_equal(got, c->want);
        for (uint32_t i = 0; i < c->data_bytes; i++) assert_int_equal(n.data[i], i);
        // Cut off anywhere, it is refused.
        for (size_t cut = 0; cut < bytes.n; cut++) {
            zx_npy half;
            zx_err why = {0};
            file_write(folder, "b.npy", bytes.at, cut);
            snprintf(path, sizeof path, "%s/b.npy", folder);
            assert_int_equal(zx_npy_open(&half, path, &why), ZX_E_FORMAT);
        }
    } else {
        assert_int_equal(st, c->status);
        assert_says(&err, c->want);
        assert_says(&err, path);
    }
    zx_npy_close(&n);
    zx_npy_close(&n);
    zx_text_free(&bytes);
    folder_remove(folder);
}

static void test_strangers(void **state ZX_UNUSED)
{
    static const struct {
        const char *bytes, *want;
    } strangers[] = {
        {"PK\3\4 and so on", "zip"}, {"", "not a .npy"}, {"1,2,3\n4,5,6\n", "not a .npy"}};
    char folder[64], path[128];
    folder_make(folder);
    for (uint32_t i = 0; i < ZX_COUNT(strangers); i++) {
        zx_npy n;
        zx_err err = {0};
        file_write(folder, "a.npy", strangers[i].bytes, strlen(strangers[i].bytes));
        snprintf(path, sizeof path, "%s/a.npy", folder);
        assert_int_equal(zx_npy_open(&n, path, &err), ZX_E_FORMAT);
        assert_says(&err, strangers[i].want);
    }
    folder_remove(folder);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, test_case, &cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_strangers);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_safetensors.c - reading hostile files, and that what we write is what we read.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "tests/test.h"

#include "proto/safetensors.h"
#include "tests/proto/wire_build.h"

static const struct read_case {
    const char *name, *header; // of a file with 8 bytes of data: 0, 1, 2, ...
    const char *want;          // part of the error; NULL: fine
    zx_status status;
} cases[] = {
    {"one tensor", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", NULL, ZX_OK},
    {"padded with blanks", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ",
     NULL, ZX_OK},
    {"not in the data's order",
     "{\"b\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[2,8]},"
     "\"a\":{\"dtype\":\"U16\",\"shape\":[],\"data_offsets\":[0,2]}}",
     NULL, ZX_OK},
    {"an empty tensor between others",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[4,4]},"
     "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     NULL, ZX_OK},
    {"metadata",
     "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"F64\",\"shape\":[1],"
     "\"data_offsets\":[0,8]}}",
     NULL, ZX_OK},

    {"overlap",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[2,8]}}",
     "'b' begins at 2", ZX_E_FORMAT},
    {"hole",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     "'b' begins at 4", ZX_E_FORMAT},
    {"data left over", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     "take 4 bytes, the file has 8", ZX_E_FORMAT},
    {"beyond the file", "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
     "'a': ends at byte 12", ZX_E_FORMAT},
    {"far beyond the file",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775807],\"data_offsets\":[0,"
     "9223372036854775807]}}",
     "'a'", ZX_E_SHAPE},
    {"end before begin", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}",
     "data_offsets", ZX_E_FORMAT},
    {"negative offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}",
     "data_offsets", ZX_E_FORMAT},
    {"fractional offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0.0,8.0]}}",
     "data_offsets", ZX_E_FORMAT},
    {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", "data_offsets",
     ZX_E_FORMAT},
    {"wrong size", "{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}",
     "takes 12 bytes, but has 8", ZX_E_FORMAT},
    {"negative dimension", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}",
     "dimension 0", ZX_E_FORMAT},
    {"product overflows",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}",
     "more elements", ZX_E_SHAPE},
    {"duplicate name",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     "duplicate", ZX_E_FORMAT},
    {"unknown type", "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}",
     "F8_E4M3", ZX_E_UNSUPPORTED},
    {"no type", "{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", "no dtype", ZX_E_FORMAT},
    {"an entry that is no object", "{\"a\":3}", "no dtype", ZX_E_FORMAT},
    {"metadata that is no text", "{\"__metadata__\":{\"k\":1}}", "no text", ZX_E_FORMAT},
    {"a header that is an array", "[1]", "not a .safetensors", ZX_E_FORMAT},
    {"a header that ends too early", "{\"a\":", "not valid JSON", ZX_E_FORMAT},
    {"a name with an escape sequence",
     "{\"\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", "\\x1b[2J",
     ZX_E_FORMAT},
};

static void test_read(void **state)
{
    const struct read_case *c = *state;
    char folder[64], path[128];
    zx_err err = {0};
    zx_arena mem = {0};
    zx_safe_file f;
    zx_text bytes = {0};
    const uint64_t n = strlen(c->header);
    zx_text_bytes(&bytes, &n, 8);
    zx_text_bytes(&bytes, c->header, (size_t)n);
    for (unsigned char i = 0; i < 8; i++) zx_text_bytes(&bytes, &i, 1);
    file_write(folder_make(folder), "a.safetensors", bytes.at, bytes.n);
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    const zx_status st = zx_safe_open(&f, path, &mem, &err);
    if (c->status == ZX_OK) {
        assert_zx_ok(st, &err);
        const zx_safe_tensor *a = zx_safe_find(&f, "a");
        assert_non_null(a);
        assert_int_equal(a->data[1], 1);
        assert_null(zx_safe_find(&f, "__metadata__"));
        for (size_t cut = 0; cut < bytes.n; cut++) {
            zx_safe_file half;
            zx_err why = {0};
            file_write(folder, "a.safetensors", bytes.at, cut);
            assert_int_not_equal(zx_safe_open(&half, path, &mem, &why), ZX_OK);
        }
    } else {
        assert_int_equal(st, c->status);
        assert_says(&err, c->want);
        assert_says(&err, path);
    }
    zx_safe_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&bytes);
    folder_remove(folder);
}

static void test_length(void **state ZX_UNUSED)
{
    static const uint64_t lengths[] = {100000001, UINT64_MAX, UINT64_MAX - 7, 1000, 0};
    char folder[64], path[128];
    zx_arena mem = {0};
    folder_make(folder);
    for (uint32_t i = 0; i < ZX_COUNT(lengths); i++) {
        zx_safe_file f;
        zx_err err = {0};
        zx_text bytes = {0};
        zx_text_bytes(&bytes, &lengths[i], 8);
        zx_text_put(&bytes, "{}  ");
        file_write(folder, "a", bytes.at, bytes.n);
        snprintf(path, sizeof path, "%s/a", folder);
        assert_int_equal(zx_safe_open(&f, path, &mem, &err), ZX_E_FORMAT);
        assert_says(&err, lengths[i] > 100000000 ? "longer than the format" : "");
        zx_text_free(&bytes);
    }
    zx_arena_free(&mem);
    folder_remove(folder);
}

static void test_round_trip(void **state ZX_UNUSED)
{
    const zx_safe_tensor tensors[] = {
        {"z.weight", {ZX_F32, {2, {2, 3}}}, NULL},
        {"a \"quoted\"\n\xC3\xA4", {ZX_BOOL, {1, {3}}}, NULL},
        {"empty", {ZX_F32, {2, {0, 7}}}, NULL},
        {"scalar", {ZX_I64, {0, {0}}}, NULL},
    };
    const char *const meta[][2] = {{"format", "pt"}, {"tied", "a=b"}};
    const void *header;
    uint64_t n, total, offsets[4];
    char folder[64], path[128];
    zx_arena mem = {0};
    zx_err err = {0};
    assert_zx_ok(zx_safe_header(4, tensors, 2, meta, &mem, &header, &n, offsets, &total, &err),
                 &err);
    assert_int_equal(n % 64, 0);
    assert_int_equal(offsets[0], n);
    assert_int_equal(total, n + 24 + 3 + 0 + 8);
    assert_memory_equal((const char *)header + 8, "{\"__metadata__\":{\"format\":\"pt\"", 29);

    zx_text bytes = {0};
    zx_text_bytes(&bytes, header, (size_t)n);
    while (bytes.n < total) zx_text_bytes(&bytes, (char[]){(char)(bytes.n - n)}, 1);
    file_write(folder_make(folder), "a", bytes.at, bytes.n);
    snprintf(path, sizeof path, "%s/a", folder);
    zx_safe_file f;
    assert_zx_ok(zx_safe_open(&f, path, &mem, &err), &err);
    assert_int_equal(f.n, 4);
    assert_int_equal(f.n_meta, 2);
    assert_string_equal(f.meta[1][1], "a=b");
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(f.tensors[i].name, tensors[i].name);
        assert_true(zx_shape_equal(&f.tensors[i].type.shape, &tensors[i].type.shape));
        assert_int_equal(f.tensors[i].data - f.file.bytes, offsets[i]);
    }
    zx_safe_close(&f);
    zx_text_free(&bytes);

    // What no reader would accept is not written.
    const zx_safe_tensor twice[] = {tensors[0], tensors[0]};
    assert_int_equal(zx_safe_header(2, twice, 0, NULL, &mem, &header, &n, offsets, &total, &err),
                     ZX_E_FORMAT);
    assert_says(&err, "duplicate");
    // No tensors at all are a file, too.
    err = (zx_err){0};
    assert_zx_ok(zx_safe_header(0, NULL, 0, NULL, &mem, &header, &n, NULL, &total, &err), &err);
    assert_int_equal(total, 64);
    zx_arena_free(&mem);
    folder_remove(folder);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + 2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, test_read, &cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_length);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_round_trip);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_onnx_tensor.c - the elements of tensors: raw, typed, external; and lies about them.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "proto/onnx_file.h"
#include "tests/proto/wire_build.h"

enum { FLOAT = 1, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE, UINT32 };
enum { UINT64 = 13, BFLOAT16 = 16, F8 = 17, INT4 = 22 };
enum { F_FLOAT = 4, F_INT32 = 5, F_INT64 = 7, F_RAW = 9, F_DOUBLE = 10, F_UINT64 = 11 };

static const struct tensor_case {
    const char *name;
    int32_t type;
    uint32_t rank;
    int64_t dims[9];
    uint32_t field;    // of the data; 0: none
    uint32_t n;        // bytes for F_RAW, else elements
    int64_t values[4]; // of the elements (F_RAW: words of 4 bytes), again and again
    const char *want;  // the result's bytes as hex (its first 32), or part of the error
    zx_status status;
} cases[] = {
    {"f32 raw", FLOAT, 1, {2}, F_RAW, 8, {0x3f800000, 0}, "0000803f00000000", ZX_OK},
    {"f32 typed", FLOAT, 1, {2}, F_FLOAT, 2, {1, -2}, "0000803f000000c0", ZX_OK},
    {"f64 typed", DOUBLE, 0, {0}, F_DOUBLE, 1, {1}, "000000000000f03f", ZX_OK},
    // 0.25 0.5 1 -2, in each way that a file may say it
    {"f16 typed",
     FLOAT16,
     1,
     {4},
     F_INT32,
     4,
     {0x3400, 0x3800, 0x3c00, 0xc000},
     "00340038003c00c0",
     ZX_OK},
    {"f16 typed, sign extended", FLOAT16, 1, {1}, F_INT32, 1, {-16384}, "00c0", ZX_OK},
    {"f16 raw", FLOAT16, 1, {4}, F_RAW, 8, {0x38003400, 0xc0003c00}, "00340038003c00c0", ZX_OK},
    {"bf16 typed",
     BFLOAT16,
     1,
     {4},
     F_INT32,
     4,
     {0x3e80, 0x3f00, 0x3f80, 0xc000},
     "803e003f803f00c0",
     ZX_OK},
    {"bf16 raw", BFLOAT16, 1, {4}, F_RAW, 8, {0x3f003e80, 0xc0003f80}, "803e003f803f00c0", ZX_OK},
    {"i8 typed", INT8, 1, {3}, F_INT32, 3, {-128, 127, -1}, "807fff", ZX_OK},
    {"u8 typed", UINT8, 1, {2}, F_INT32, 2, {255, 0}, "ff00", ZX_OK},
    {"i16 typed", INT16, 1, {2}, F_INT32, 2, {-2, 32767}, "feffff7f", ZX_OK},
    {"u16 typed", UINT16, 1, {1}, F_INT32, 1, {65535}, "ffff", ZX_OK},
    {"i32 typed", INT32, 1, {2}, F_INT32, 2, {-1, 7}, "ffffffff07000000", ZX_OK},
    {"i64 typed", INT64, 1, {2}, F_INT64, 2, {-1, 7}, "ffffffffffffffff0700000000000000", ZX_OK},
    {"u32 typed", UINT32, 1, {1}, F_UINT64, 1, {4294967295}, "ffffffff", ZX_OK},
    {"u64 typed", UINT64, 1, {1}, F_UINT64, 1, {-1}, "ffffffffffffffff", ZX_OK},
    {"bool typed", BOOL, 1, {2}, F_INT32, 2, {1, 0}, "0100", ZX_OK},
    {"bool raw", BOOL, 1, {2}, F_RAW, 2, {1}, "0100", ZX_OK},
    {"no elements, no data", FLOAT, 2, {3, 0}, 0, 0, {0}, "", ZX_OK},
    {"no elements, empty raw", FLOAT, 2, {3, 0}, F_RAW, 0, {0}, "", ZX_OK},
    // long enough to be left out of the decoded message
    {"long f32 raw",
     FLOAT,
     1,
     {1000},
     F_RAW,
     4000,
     {0x3f800000, 0x3f800000, 0x3f800000, 0x3f800000},
     "0000803f0000803f0000803f0000803f",
     ZX_OK},
    {"long f32 typed",
     FLOAT,
     1,
     {1000},
     F_FLOAT,
     1000,
     {1, -2, 1, -2},
     "0000803f000000c00000803f000000c0",
     ZX_OK},
    {"long i64 typed",
     INT64,
     1,
     {1000},
     F_INT64,
     1000,
     {-1, 7, -1, 7},
     "ffffffffffffffff0700000000000000",
     ZX_OK},
    {"long i32 typed",
     INT32,
     1,
     {2000},
     F_INT32,
     2000,
     {-1, 7, -1, 7},
     "ffffffff07000000ffffffff07000000",
     ZX_OK},
    {"long f16 typed",
     FLOAT16,
     1,
     {2000},
     F_INT32,
     2000,
     {0x3400, -16384, 0x3400, -16384},
     "003400c0003400c0003400c0003400c0",
     ZX_OK},
    {"long u64 typed",
     UINT64,
     1,
     {2000},
     F_UINT64,
     2000,
     {300, 300, 300, 300},
     "2c010000000000002c01000000000000",
     ZX_OK},
    {"long u32 typed",
     UINT32,
     1,
     {2000},
     F_UINT64,
     2000,
     {300, 300, 300, 300},
     "2c0100002c0100002c0100002c010000",
     ZX_OK},
    {"long bool typed",
     BOOL,
     1,
     {2000},
     F_INT32,
     2000,
     {1, 0, 1, 0},
     "01000100010001000100010001000100",
     ZX_OK},

    {"raw too short", FLOAT, 1, {2}, F_RAW, 7, {0}, "takes 8 bytes, raw_data has 7", ZX_E_FORMAT},
    {"raw too long", FLOAT, 1, {2}, F_RAW, 9, {0}, "raw_data has 9", ZX_E_FORMAT},
    {"long raw too short", FLOAT, 1, {2000}, F_RAW, 7996, {0}, "raw_data has 7996", ZX_E_FORMAT},
    {"typed too short",
     INT64,
     1,
     {3},
     F_INT64,
     2,
     {0},
     "2 elements, its shape wants 3",
     ZX_E_FORMAT},
    {"long typed too short", INT64, 1, {3000}, F_INT64, 2999, {0}, "3000 elements", ZX_E_FORMAT},
    {"long typed too long", INT64, 1, {3000}, F_INT64, 3001, {0}, "3000 elements", ZX_E_FORMAT},
    {"long typed, absurd shape",
     INT64,
     1,
     {(int64_t)1 << 40},
     F_INT64,
     3000,
     {0},
     "1099511627776 elements",
     ZX_E_FORMAT},
    {"data without elements", FLOAT, 1, {0}, F_RAW, 4, {0}, "raw_data has 4", ZX_E_FORMAT},
    {"elements without data", FLOAT, 1, {2}, 0, 0, {0}, "no data", ZX_E_FORMAT},
    {"wrong field", INT64, 1, {1}, F_FLOAT, 1, {0}, "int64, but it has float_data", ZX_E_FORMAT},
    {"a short that is too large", INT8, 1, {2}, F_INT32, 2, {0, 300}, "element 1", ZX_E_FORMAT},
    {"a negative unsigned", UINT16, 1, {1}, F_INT32, 1, {-1}, "element 0", ZX_E_FORMAT},
    {"a bool that is 2", BOOL, 1, {1}, F_INT32, 1, {2}, "element 0", ZX_E_FORMAT},
    {"a raw bool that is 2", BOOL, 1, {1}, F_RAW, 1, {2}, "neither true nor false", ZX_E_FORMAT},
    {"negative dimension", FLOAT, 2, {2, -3}, F_RAW, 8, {0}, "dimension 1 is negative", ZX_E_SHAPE},
    {"2^62 elements", FLOAT, 1, {(int64_t)1 << 62}, F_RAW, 8, {0}, "more elements", ZX_E_SHAPE},
    {"product overflows",
     FLOAT,
     3,
     {1 << 30, 1 << 30, 1 << 30},
     F_RAW,
     8,
     {0},
     "more elements",
     ZX_E_SHAPE},
    {"product overflows around a zero",
     FLOAT,
     4,
     {1 << 30, 1 << 30, 0, 1 << 30},
     F_RAW,
     8,
     {0},
     "more elements",
     ZX_E_SHAPE},
    {"9 dimensions",
     FLOAT,
     9,
     {1, 1, 1, 1, 1, 1, 1, 1, 1},
     F_RAW,
     4,
     {0},
     "9 dimensions",
     ZX_E_UNSUPPORTED},
    {"text", STRING, 1, {1}, 0, 0, {0}, "STRING (8) is not supported", ZX_E_UNSUPPORTED},
    {"8-bit floats",
     F8,
     1,
     {1},
     F_RAW,
     1,
     {0},
     "FLOAT8E4M3FN (17) is not supported",
     ZX_E_UNSUPPORTED},
    {"4-bit integers", INT4, 1, {2}, F_RAW, 1, {0}, "INT4 (22) is not supported", ZX_E_UNSUPPORTED},
    {"unknown type", 99, 1, {1}, F_RAW, 1, {0}, "(99) is not known", ZX_E_FORMAT},
    {"no type", 0, 1, {1}, F_RAW, 1, {0}, "no element type", ZX_E_FORMAT},
};

static void put_data(zx_text *t, uint32_t field, uint32_t n, const int64_t values[4])
{
    zx_text data = {0};
    for (uint32_t i = 0; i < (field == F_RAW ? (n + 3) / 4 : n); i++) {
        const int64_t v = values[i % 4];
        const float f = (float)v;
        const double d = (double)v;
        if (field == F_RAW)
            zx_text_bytes(&data, &v, n - 4 * i < 4 ? n - 4 * i : 4);
        else if (field == F_FLOAT)
            zx_text_bytes(&data, &f, 4);
        else if (field == F_DOUBLE)
            zx_text_bytes(&data, &d, 8);
        else
            put_varint(&data, (uint64_t)v);
    }
    put_bytes(t, field, data.at, data.n);
    zx_text_free(&data);
}

// A model whose only initializer is `tensor`, which is freed.
static zx_text model_around(zx_text *tensor)
{
    zx_text graph = {0};
    put_message(&graph, 5, tensor);
    return model_of(&graph);
}

static void test_inline(void **state)
{
    const struct tensor_case *c = *state;
    zx_text t = tensor_of("w\x1b", c->type, c->rank, c->dims);
    if (c->field != 0) put_data(&t, c->field, c->n, c->values);
    zx_text m = model_around(&t);
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    zx_type type;
    const void *data;
    assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
    const zx_status st =
        zx_onnx_tensor(&f, f.model->graph->initializer[0], &mem, &type, &data, &err);
    if (c->status == ZX_OK) {
        char hex[33] = "";
        assert_zx_ok(st, &err);
        for (uint64_t i = 0; i < zx_type_bytes(&type) && i < 16; i++)
            sprintf(hex + 2 * i, "%02x", ((const unsigned char *)data)[i]);
        assert_string_equal(hex, c->want);
        assert_non_null(data);
        assert_int_equal(type.shape.rank, c->rank);
        if (zx_type_bytes(&type) >= 1024 && c->field == F_RAW)
            assert_true((const char *)data > m.at && (const char *)data < m.at + m.n);
    } else {
        assert_int_equal(st, c->status);
        assert_says(&err, c->want);
        assert_says(&err, "tensor 'w\\x1b': ");
    }
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
}

static void test_two_fields(void **state ZX_UNUSED)
{
    static const uint32_t sizes[][2] = {{1, 1}, {500, 500}}; // both short, both left out
    for (uint32_t i = 0; i < ZX_COUNT(sizes); i++) {
        const int64_t dims[] = {sizes[i][0]}, values[4] = {1};
        zx_text t = tensor_of("w", FLOAT, 1, dims);
        put_data(&t, F_RAW, sizes[i][0] * 4, values);
        put_data(&t, F_FLOAT, sizes[i][1], values);
        zx_text m = model_around(&t);
        zx_arena mem = {0};
        zx_err err = {0};
        zx_onnx_file f;
        zx_type type;
        const void *data;
        assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
        assert_int_equal(
            zx_onnx_tensor(&f, f.model->graph->initializer[0], &mem, &type, &data, &err),
            ZX_E_FORMAT);
        assert_says(&err, "both raw_data and float_data");
        zx_onnx_close(&f);
        zx_arena_free(&mem);
        zx_text_free(&m);
    }
}

// Typed numbers one by one, as writers of old did, not packed.
static void test_unpacked(void **state ZX_UNUSED)
{
    const int64_t dims[] = {600};
    zx_text t = tensor_of("w", INT64, 1, dims);
    for (int64_t i = 0; i < 600; i++) put_int(&t, F_INT64, i - 300);
    zx_text m = model_around(&t);
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    zx_type type;
    const void *data;
    assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
    assert_zx_ok(zx_onnx_tensor(&f, f.model->graph->initializer[0], &mem, &type, &data, &err),
                 &err);
    for (int64_t i = 0; i < 600; i++) assert_int_equal(((const int64_t *)data)[i], i - 300);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
}

// In each row's folder: w.bin (16 bytes: 0, 1, 2, ...), sub/w.bin, ../secret, link -> w.bin,
// out -> .. and a folder `dir`.
static const struct external_case {
    const char *name, *location, *offset, *length;
    const char *want; // part of the error; NULL: fine
    zx_status status;
    int first; // byte of the data
} externals[] = {
    {"whole file", "w.bin", "8", "8", NULL, ZX_OK, 8},
    {"no offset, no length", "w.bin", NULL, NULL, NULL, ZX_OK, 0},
    {"in a folder below", "sub/w.bin", "4", "8", NULL, ZX_OK, 4},
    {"dots and double slashes", "./sub//./w.bin", "4", "8", NULL, ZX_OK, 4},
    {"unaligned", "w.bin", "3", "8", NULL, ZX_OK, 3},
    {"missing", "none.bin", "0", "8", "'none.bin' can't be opened", ZX_E_IO, 0},
    {"missing folder", "no/w.bin", "0", "8", "'no/w.bin' can't be opened", ZX_E_IO, 0},
    {"absolute", "/etc/passwd", "0", "8", "absolute", ZX_E_FORMAT, 0},
    {"up", "../secret", "0", "8", "'..'", ZX_E_FORMAT, 0},
    {"up and down", "sub/../w.bin", "0", "8", "'..'", ZX_E_FORMAT, 0},
    {"up at the end", "sub/..", "0", "8", "'..'", ZX_E_FORMAT, 0},
    {"a link", "link", "0", "8", "symbolic link", ZX_E_FORMAT, 0},
    {"a link on the way", "out/secret", "0", "8", "symbolic link", ZX_E_FORMAT, 0},
    {"a folder", "dir", "0", "8", "is a folder", ZX_E_IO, 0},
    {"the model's folder", ".", "0", "8", "no file", ZX_E_FORMAT, 0},
    {"empty location", "", "0", "8", "no location", ZX_E_FORMAT, 0},
    {"no location", NULL, "0", "8", "no location", ZX_E_FORMAT, 0},
    {"hostile name", "\x1b[2Jx", "0", "8", "\\x1b[2Jx", ZX_E_IO, 0},
    {"past the end", "w.bin", "9", "8", "bytes 9 and 8 on", ZX_E_FORMAT, 0},
    {"far past the end", "w.bin", "18446744073709551615", "8", "which has 16", ZX_E_FORMAT, 0},
    {"offset too large", "w.bin", "18446744073709551616", "8", "offset", ZX_E_FORMAT, 0},
    {"negative offset", "w.bin", "-1", "8", "offset", ZX_E_FORMAT, 0},
    {"offset in words", "w.bin", "0x8", "8", "offset", ZX_E_FORMAT, 0},
    {"wrong length", "w.bin", "0", "16", "takes 8 bytes, its external data has 16", ZX_E_FORMAT, 0},
    {"empty length", "w.bin", "0", "", "length", ZX_E_FORMAT, 0},
};

static void make_side_files(const char *folder, char model_folder[80])
{
    unsigned char bytes[16];
    char path[128];
    for (unsigned char i = 0; i < 16; i++) bytes[i] = i;
    file_write(folder, "secret", bytes, 16);
    snprintf(model_folder, 80, "%s/model", folder);
    assert_int_equal(mkdir(model_folder, 0700), 0);
    file_write(model_folder, "w.bin", bytes, 16);
    snprintf(path, sizeof path, "%s/sub", model_folder);
    assert_int_equal(mkdir(path, 0700), 0);
    file_write(path, "w.bin", bytes, 16);
    snprintf(path, sizeof path, "%s/dir", model_folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/link", model_folder);
    assert_int_equal(symlink("w.bin", path), 0);
    snprintf(path, sizeof path, "%s/out", model_folder);
    assert_int_equal(symlink("..", path), 0);
}

static void test_external(void **state)
{
    const struct external_case *c = *state;
    const int64_t dims[] = {2};
    char folder[64], model_folder[80], path[128];
    make_side_files(folder_make(folder), model_folder);
    zx_text t = tensor_of("w", FLOAT, 1, dims);
    if (c->location) put_entry(&t, 13, "location", c->location);
    if (c->offset) put_entry(&t, 13, "offset", c->offset);
    if (c->length) put_entry(&t, 13, "length", c->length);
    put_int(&t, 14, 1);
    zx_text m = model_around(&t);
    file_write(model_folder, "m.onnx", m.at, m.n);
    snprintf(path, sizeof path, "%s/m.onnx", model_folder);
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    zx_type type;
    const void *data, *again;
    assert_zx_ok(zx_onnx_open(&f, path, &mem, &err), &err);
    const Onnx__TensorProto *w = f.model->graph->initializer[0];
    const zx_status st = zx_onnx_tensor(&f, w, &mem, &type, &data, &err);
    assert_int_equal(st, c->status);
    if (c->status == ZX_OK) {
        for (int i = 0; i < 8; i++)
            assert_int_equal(((const unsigned char *)data)[i], c->first + i);
        assert_zx_ok(zx_onnx_tensor(&f, w, &mem, &type, &again, &err), &err);
        assert_ptr_equal(data, again); // mapped once
    } else {
        assert_says(&err, c->want);
        assert_says(&err, "tensor 'w': ");
    }
    zx_onnx_close(&f);

    // A model in memory has no folder.
    err = (zx_err){0};
    assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
    assert_int_not_equal(
        zx_onnx_tensor(&f, f.model->graph->initializer[0], &mem, &type, &data, &err), ZX_OK);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
    folder_remove(folder);
}

// 64-bit offsets: a sparse file of 5 GiB beside the model, and a model of 3 GiB itself.
static void test_large(void **state ZX_UNUSED)
{
    static const float value = 1.5f;
    const int64_t dims[] = {1}, many[] = {(int64_t)768 << 20};
    char folder[64], path[128];
    folder_make(folder);
    snprintf(path, sizeof path, "%s/big.bin", folder);
    const int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_int_equal(pwrite(fd, &value, 4, ((int64_t)4 << 30) + 4096), 4);
    assert_int_equal(ftruncate(fd, (int64_t)5 << 30), 0);
    close(fd);

    zx_text t = tensor_of("w", FLOAT, 1, dims);
    put_entry(&t, 13, "location", "big.bin");
    put_entry(&t, 13, "offset", "4294971392");
    put_int(&t, 14, 1);
    zx_text m = {0}, tail = {0}, opset = {0}, inline_tensor = tensor_of("v", FLOAT, 1, many);
    const uint64_t payload = (uint64_t)many[0] * 4;
    put_varint(&inline_tensor, F_RAW << 3 | 2);
    put_varint(&inline_tensor, payload);
    zx_text graph = {0};
    put_message(&graph, 5, &t);
    put_varint(&graph, 5 << 3 | 2);
    put_varint(&graph, inline_tensor.n + payload);
    zx_text_bytes(&graph, inline_tensor.at,
                  inline_tensor.n); // its payload is the hole that follows
    zx_text_free(&inline_tensor);
    put_int(&m, 1, 8);
    put_varint(&m, 7 << 3 | 2);
    put_varint(&m, graph.n + payload);
    zx_text_bytes(&m, graph.at, graph.n);
    zx_text_free(&graph);
    put_int(&opset, 2, 17);
    put_message(&tail, 8, &opset);
    file_write(folder, "m.onnx", m.at, m.n);
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    const int out = open(path, O_WRONLY);
    const int64_t end = (int64_t)(m.n + payload);
    assert_int_equal(pwrite(out, &value, 4, end - 4), 4);
    assert_int_equal(pwrite(out, tail.at, tail.n, end), tail.n);
    close(out);

    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    zx_type type;
    const void *data;
    assert_zx_ok(zx_onnx_open(&f, path, &mem, &err), &err);
    Onnx__TensorProto *const *w = f.model->graph->initializer;
    assert_zx_ok(zx_onnx_tensor(&f, w[0], &mem, &type, &data, &err), &err);
    assert_memory_equal(data, &value, 4);
    assert_zx_ok(zx_onnx_tensor(&f, w[1], &mem, &type, &data, &err), &err);
    assert_memory_equal((const char *)data + payload - 4, &value, 4);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
    zx_text_free(&tail);
    folder_remove(folder);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + ZX_COUNT(externals) + 3];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, test_inline, &cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_two_fields);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_unpacked);
    for (uint32_t i = 0; i < ZX_COUNT(externals); i++)
        tests[n++] = zx_case(externals[i].name, test_external, &externals[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_large);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

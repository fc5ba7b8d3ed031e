// test_onnx_file.c - opening ONNX files: whole ones, cut ones, and ones made to do harm.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "proto/onnx_file.h"
#include "tests/proto/wire_build.h"

static zx_text node_of(const char *op, const char *in, const char *out)
{
    zx_text n = {0};
    put_word(&n, 1, in);
    put_word(&n, 2, out);
    put_word(&n, 4, op);
    return n;
}

static zx_text small_model(void)
{
    zx_text graph = {0}, node = node_of("Relu", "x", "y"), info = {0};
    const int64_t dims[] = {300};
    float values[300];
    for (uint32_t i = 0; i < 300; i++) values[i] = (float)i;
    put_message(&graph, 1, &node);
    put_word(&graph, 2, "g");
    zx_text w = tensor_of("w", 1, 1, dims);
    put_bytes(&w, 9, values, sizeof values);
    put_message(&graph, 5, &w);
    put_word(&info, 1, "x");
    put_message(&graph, 11, &info);
    return model_of(&graph);
}

static void test_small(void **state ZX_UNUSED)
{
    zx_text m = small_model();
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
    const Onnx__GraphProto *g = f.model->graph;
    assert_int_equal(f.model->ir_version, 8);
    assert_string_equal(g->node[0]->op_type, "Relu");
    assert_string_equal(g->input[0]->name, "x");
    zx_type type;
    const void *data;
    assert_zx_ok(zx_onnx_tensor(&f, g->initializer[0], &mem, &type, &data, &err), &err);
    // The payload is used where it lies.
    assert_true((const char *)data > m.at && (const char *)data < m.at + m.n);
    float last;
    memcpy(&last, (const char *)data + 299 * 4, 4);
    assert_true(last == 299.0f);
    zx_onnx_close(&f);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
}

// A file that ends anywhere before its end is an error, and so is one with any byte replaced, or
// it is a model; never a crash (the sanitizers' builds see more).
static void test_cut_and_changed(void **state ZX_UNUSED)
{
    zx_text m = small_model();
    for (size_t cut = 0; cut < m.n; cut++) {
        zx_arena mem = {0};
        zx_err err = {0};
        zx_onnx_file f;
        char *copy = malloc(cut + 1); // its own block, so that a read past its end is seen
        memcpy(copy, m.at, cut);
        assert_int_equal(zx_onnx_open_bytes(&f, "m", copy, cut, &mem, &err), ZX_E_FORMAT);
        zx_onnx_close(&f);
        zx_arena_free(&mem);
        free(copy);
    }
    for (size_t at = 0; at < m.n; at++) {
        static const unsigned char bytes[] = {0, 1, 0x7F, 0x80, 0xFF};
        for (uint32_t k = 0; k < ZX_COUNT(bytes); k++) {
            zx_arena mem = {0};
            zx_err err = {0};
            zx_onnx_file f;
            const char was = m.at[at];
            m.at[at] = (char)bytes[k];
            if (zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err) == ZX_OK)
                for (size_t i = 0; i < f.model->graph->n_initializer; i++) {
                    zx_type type;
                    const void *data;
                    zx_onnx_tensor(&f, f.model->graph->initializer[i], &mem, &type, &data, &err);
                }
            zx_onnx_close(&f);
            zx_arena_free(&mem);
            m.at[at] = was;
        }
    }
    zx_text_free(&m);
}

static const struct stranger_case {
    const char *name, *bytes, *want, *hint;
    size_t n;
} strangers[] = {
    {"empty", "", "the file is empty", "again", 0},
    {"PyTorch's zip", "PK\3\4\0\0\0\0\0\0", "zip archive", "torch.onnx.export", 10},
    {"pickle", "\x80\2}q\0.", "pickle", "torch.onnx.export", 6},
    {"safetensors", "\x40\0\0\0\0\0\0\0{\"a\":", ".safetensors", "graph", 13},
    {"GGUF", "GGUF\3\0\0\0", "GGUF", "graph", 8},
    {"npy", "\x93NUMPY\1\0", ".npy", "--data", 8},
    {"JSON", "{\"a\": 1}", "JSON", "--config", 8},
    {"Git LFS", "version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull", 43},
    {"text form", "ir_version: 8\n", "as text", "onnx.save", 14},
    {"noise", "hello, world", "not a well-formed ONNX file", "again", 12},
    {"no graph", "\x08\x08", "no graph", "again", 2},
    {"no ir_version", "\x3a\x00", "no ir_version", "again", 2},
    {"old IR", "\x08\x02\x3a\x00\x42\x00", "IR version 2", "export it again", 6},
    {"no opset", "\x08\x08\x3a\x00", "no operator set", "again", 4},
    {"group", "\x0b\x0c", "wire type", "again", 2},
    {"field 0", "\x00\x01", "field number", "again", 2},
    {"tag without end", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "inside a tag", "again",
     11},
    {"length past the end", "\x3a\x05\x0a", "longer than what is left", "again", 3},
    {"length of 2^64-1", "\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than", "again",
     11},
    {"wrong wire type", "\x08\x08\x38\x01", "GraphProto", "again", 4},
    {"two graphs", "\x08\x08\x3a\x00\x3a\x00", "twice", "again", 6},
    {"half a float",
     "\x08\x08\x3a\x07\x2a\x05\x22\x03"
     "abc",
     "inside an element", "again", 11},
    {"NUL in a name", "\x08\x08\x3a\x05\x12\x03g\0h", "NUL", "again", 9},
};

static void test_stranger(void **state)
{
    const struct stranger_case *c = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    const zx_status st = zx_onnx_open_bytes(&f, "m.onnx", c->bytes, c->n, &mem, &err);
    assert_int_equal(st, strcmp(c->name, "old IR") == 0 ? ZX_E_UNSUPPORTED : ZX_E_FORMAT);
    if (strcmp(c->name, "wrong wire type") != 0) assert_says(&err, c->want);
    assert_says(&err, "m.onnx: ");
    if (strstr(err.hint, c->hint) == NULL) fail_msg("hint '%s'", err.hint);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
}

// TypeProto inside TypeProto: each level costs a few bytes of the file and a frame of the stack.
static void test_deep(void **state ZX_UNUSED)
{
    static const struct {
        uint32_t levels;
        zx_status status;
    } rows[] = {{40, ZX_OK}, {120, ZX_E_FORMAT}, {5000, ZX_E_FORMAT}, {100000, ZX_E_FORMAT}};
    for (uint32_t r = 0; r < ZX_COUNT(rows); r++) {
        // From the inside out, written back to front.
        const size_t room = 12 * (size_t)rows[r].levels + 64;
        unsigned char *bytes = malloc(room);
        size_t at = room;
        for (uint32_t i = 0; i < rows[r].levels; i++) {
            // Level by level: TypeProto.sequence_type = 4, Sequence.elem_type = 1.
            size_t n = room - at;
            unsigned char text[6], k = 0;
            text[k++] = i % 2 == 0 ? 0x0a : 0x22;
            for (; n > 0x7F; n >>= 7) text[k++] = (unsigned char)(n | 0x80);
            text[k++] = (unsigned char)n;
            at -= k;
            memcpy(bytes + at, text, k);
        }
        zx_text graph = {0}, info = {0};
        put_bytes(&info, 2, bytes + at, room - at);
        free(bytes);
        put_message(&graph, 11, &info);
        zx_text m = model_of(&graph);
        zx_arena mem = {0};
        zx_err err = {0};
        zx_onnx_file f;
        const zx_status st = zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err);
        if (rows[r].status == ZX_OK) assert_zx_ok(st, &err);
        assert_int_equal(st, rows[r].status);
        if (st != ZX_OK) assert_says(&err, "nested more than 100 deep");
        zx_onnx_close(&f);
        zx_arena_free(&mem);
        zx_text_free(&m);
    }
}

// Two bytes of the file a node: what decoding takes must not be hundreds of times the file.
static void test_growth(void **state ZX_UNUSED)
{
    zx_text graph = {0};
    for (uint32_t i = 0; i < 1000000; i++) zx_text_bytes(&graph, "\x0a\x00", 2);
    zx_text m = model_of(&graph);
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    assert_int_equal(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), ZX_E_FORMAT);
    assert_says(&err, "far more memory");
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);

    // The largest honest graphs are fine: 100000 nodes with names.
    for (uint32_t i = 0; i < 100000; i++) {
        zx_text node = node_of("Add", "some_value", "another_value");
        put_message(&graph, 1, &node);
    }
    m = model_of(&graph);
    err = (zx_err){0};
    assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
    assert_int_equal(f.model->graph->n_node, 100000);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
}

// A field that no version of ONNX has, and ones that we don't read, change nothing.
static void test_unknown(void **state ZX_UNUSED)
{
    zx_text graph = {0};
    put_word(&graph, 2, "g");
    put_int(&graph, 77, 5);
    put_word(&graph, (1 << 20) + 9, "looks like a reference"); // not one of ours
    zx_text w = tensor_of("w", 1, 0, NULL);
    const uint64_t index = 0;
    put_varint(&w, (uint64_t)((1 << 20) + 9) << 3 | 1);
    zx_text_bytes(&w, &index, 8);
    put_message(&graph, 5, &w);
    zx_text m = model_of(&graph);
    put_word(&m, 26, "a device configuration");
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    zx_type type;
    const void *data;
    assert_zx_ok(zx_onnx_open_bytes(&f, "m", m.at, m.n, &mem, &err), &err);
    assert_int_equal(f.model->base.n_unknown_fields, 0);
    assert_int_equal(f.model->graph->initializer[0]->base.n_unknown_fields, 0);
    assert_int_equal(zx_onnx_tensor(&f, f.model->graph->initializer[0], &mem, &type, &data, &err),
                     ZX_E_FORMAT);
    assert_says(&err, "tensor 'w': it has no data");
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
}

static void test_paths(void **state ZX_UNUSED)
{
    char folder[64], path[128];
    zx_text m = small_model();
    zx_arena mem = {0};
    zx_err err = {0};
    zx_onnx_file f;
    file_write(folder_make(folder), "m.onnx", m.at, m.n);
    snprintf(path, sizeof path, "%s/m.onnx", folder);
    assert_zx_ok(zx_onnx_open(&f, path, &mem, &err), &err);
    assert_string_equal(f.path, path);
    zx_onnx_close(&f);
    snprintf(path, sizeof path, "%s/none.onnx", folder);
    assert_int_equal(zx_onnx_open(&f, path, &mem, &err), ZX_E_IO);
    assert_says(&err, "none.onnx: No such file");
    zx_onnx_close(&f);
    err = (zx_err){0};
    assert_int_equal(zx_onnx_open(&f, folder, &mem, &err), ZX_E_IO);
    zx_onnx_close(&f);
    zx_arena_free(&mem);
    zx_text_free(&m);
    folder_remove(folder);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(strangers) + 6];
    uint32_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_small);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_cut_and_changed);
    for (uint32_t i = 0; i < ZX_COUNT(strangers); i++)
        tests[n++] = zx_case(strangers[i].name, test_stranger, &strangers[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_deep);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_growth);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_unknown);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_paths);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

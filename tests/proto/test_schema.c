// test_schema.c - our ONNX schema has the standard's names, numbers and types.
//
// The standard's own file is read where a package has installed it (Debian: libonnx-dev), or where
// ZX_ONNX_PROTO says; without one the comparison is skipped.
// SPDX-License-Identifier: Apache-2.0
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "graph/base/text.h"
#include "onnx.pb-c.h"

#define FIELDS_MOST 512
#define NAME_MOST 64

typedef struct row { // of the standard: a field or an enum's value
    char scope[NAME_MOST], label[NAME_MOST], type[NAME_MOST], name[NAME_MOST];
    long number;
} row;

static row rows[FIELDS_MOST];
static uint32_t n_rows;

// What came after ONNX 1.12, the oldest release whose schema may be installed.
static const struct {
    const char *scope, *name;
    long number;
} newer[] = {
    {"ValueInfoProto", "metadata_props", 4},
    {"NodeProto", "overload", 8},
    {"NodeProto", "metadata_props", 9},
    {"GraphProto", "metadata_props", 16},
    {"TensorProto", "metadata_props", 16},
    {"FunctionProto", "attribute_proto", 11},
    {"FunctionProto", "value_info", 12},
    {"FunctionProto", "overload", 13},
    {"FunctionProto", "metadata_props", 14},
    {"DataType", "FLOAT8E4M3FN", 17},
    {"DataType", "FLOAT8E4M3FNUZ", 18},
    {"DataType", "FLOAT8E5M2", 19},
    {"DataType", "FLOAT8E5M2FNUZ", 20},
    {"DataType", "UINT4", 21},
    {"DataType", "INT4", 22},
    {"DataType", "FLOAT4E2M1", 23},
    {"DataType", "FLOAT8E8M0", 24},
    {"DataType", "UINT2", 25},
    {"DataType", "INT2", 26},
    {"DataType", "FLOAT6E2M3", 27},
    {"DataType", "FLOAT6E3M2", 28},
};

static bool word_next(const char **at, char word[NAME_MOST])
{
    size_t n = 0;
    const char *p = *at;
    while (*p != '\0' && (isspace((unsigned char)*p) || (p[0] == '/' && p[1] == '/')))
        if (*p == '/')
            p += strcspn(p, "\n");
        else
            p++;
    if (*p == '\0') return false;
    if (isalnum((unsigned char)*p) || *p == '_' || *p == '"')
        while (n + 1 < NAME_MOST && (isalnum((unsigned char)*p) || strchr("_.\"", *p)) && *p)
            word[n++] = *p++;
    else
        word[n++] = *p++;
    word[n] = '\0';
    *at = p;
    return true;
}

// Reads the schema language as far as ONNX uses it: a word before '=' is a name, the words between
// the last ';', '{' or '}' and it are label and type.
static void read_schema(const char *text)
{
    char scopes[16][NAME_MOST] = {""}, words[16][NAME_MOST], word[NAME_MOST];
    uint32_t depth = 0, n = 0;
    while (word_next(&text, word)) {
        if (strcmp(word, "{") == 0) {
            assert_true(n >= 2 && depth + 1 < 16);
            depth++;
            // A oneof is no scope of its own.
            memcpy(scopes[depth], strcmp(words[0], "oneof") == 0 ? scopes[depth - 1] : words[1],
                   NAME_MOST);
            n = 0;
        } else if (strcmp(word, "}") == 0) {
            if (depth > 0) depth--;
            n = 0;
        } else if (strcmp(word, ";") == 0) {
            uint32_t is = 0;
            while (is < n && strcmp(words[is], "=") != 0) is++;
            if (is < n && is >= 1 && depth > 0 && strcmp(words[0], "option") != 0) {
                assert_true(n_rows < FIELDS_MOST);
                row *r = &rows[n_rows++];
                memcpy(r->scope, scopes[depth], NAME_MOST);
                memcpy(r->name, words[is - 1], NAME_MOST);
                if (is >= 2) memcpy(r->type, words[is - 2], NAME_MOST);
                if (is >= 3) memcpy(r->label, words[is - 3], NAME_MOST);
                r->number = strtol(words[is + 1], NULL, 0);
            }
            n = 0;
        } else if (n < 16) {
            memcpy(words[n++], word, NAME_MOST);
        }
    }
}

static bool is_newer(const char *scope, const char *name, long number)
{
    for (uint32_t i = 0; i < ZX_COUNT(newer); i++)
        if (strcmp(newer[i].scope, scope) == 0 && strcmp(newer[i].name, name) == 0)
            return newer[i].number == number;
    return false;
}

// The standard's row; NULL if it has none, and we were right to think that it is a newer one.
static const row *standard_row(const char *scope, const char *name, long number)
{
    for (uint32_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].scope, scope) != 0) continue;
        if (strcmp(rows[i].name, name) != 0 && rows[i].number != number) continue;
        if (strcmp(rows[i].name, name) != 0 || rows[i].number != number)
            fail_msg("%s: ours is %s = %ld, the standard's %s = %ld", scope, name, number,
                     rows[i].name, rows[i].number);
        return &rows[i];
    }
    if (!is_newer(scope, name, number))
        fail_msg("%s.%s = %ld is not in the standard", scope, name, number);
    return NULL;
}

static const char *type_name(const ProtobufCFieldDescriptor *f)
{
    static const char *const words[] = {
        [PROTOBUF_C_TYPE_INT32] = "int32",   [PROTOBUF_C_TYPE_INT64] = "int64",
        [PROTOBUF_C_TYPE_UINT64] = "uint64", [PROTOBUF_C_TYPE_FLOAT] = "float",
        [PROTOBUF_C_TYPE_DOUBLE] = "double", [PROTOBUF_C_TYPE_STRING] = "string",
        [PROTOBUF_C_TYPE_BYTES] = "bytes",
    };
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return ((const ProtobufCMessageDescriptor *)f->descriptor)->short_name;
    if (f->type == PROTOBUF_C_TYPE_ENUM)
        return ((const ProtobufCEnumDescriptor *)f->descriptor)->short_name;
    assert_true(f->type < ZX_COUNT(words) && words[f->type] != NULL);
    return words[f->type];
}

static void compare_enum(const ProtobufCEnumDescriptor *e)
{
    for (unsigned i = 0; i < e->n_values; i++)
        standard_row(e->short_name, e->values[i].name, e->values[i].value);
}

static uint32_t compare_message(const ProtobufCMessageDescriptor *m,
                                const ProtobufCMessageDescriptor **seen, uint32_t n_seen)
{
    for (uint32_t i = 0; i < n_seen; i++)
        if (seen[i] == m) return n_seen;
    assert_true(n_seen < 64);
    seen[n_seen++] = m;
    for (unsigned i = 0; i < m->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->fields[i];
        const row *r = standard_row(m->short_name, f->name, (long)f->id);
        if (r != NULL) assert_string_equal(r->type, type_name(f));
        if (r != NULL)
            assert_int_equal(strcmp(r->label, "repeated") == 0,
                             f->label == PROTOBUF_C_LABEL_REPEATED);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            n_seen = compare_message(f->descriptor, seen, n_seen);
        if (f->type == PROTOBUF_C_TYPE_ENUM) compare_enum(f->descriptor);
    }
    return n_seen;
}

static void test_standard(void **state ZX_UNUSED)
{
    const char *path = getenv("ZX_ONNX_PROTO");
    if (path == NULL) path = "/usr/include/onnx/onnx.proto";
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        print_message("skipped: there is no %s (Debian: libonnx-dev)\n", path);
        skip();
    }
    zx_text text = {0};
    char block[4096];
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;) zx_text_bytes(&text, block, n);
    fclose(file);
    read_schema(text.at);
    zx_text_free(&text);
    assert_true(n_rows > 100);

    const ProtobufCMessageDescriptor *seen[64];
    compare_enum(&onnx__tensor_proto__data_type__descriptor);
    const uint32_t n = compare_message(&onnx__model_proto__descriptor, seen, 0);
    assert_int_equal(n, 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_standard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

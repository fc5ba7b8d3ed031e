// test_json.c - configuration files: comments, trailing commas, and where errors are.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "tests/test.h"

#include "proto/json.h"
#include "tests/proto/wire_build.h"

static const struct good_case {
    const char *name, *text, *want; // `want`: the same as compact JSON
} good[] = {
    {"plain", "{\"a\": 1}", "{\"a\":1}"},
    {"line comments", "// x\n{\"a\": 1 # y\n}", "{\"a\":1}"},
    {"block comments", "/* {,} */{/**/\"a\"/***/:/*\n*/1}", "{\"a\":1}"},
    {"comment marks inside text stay", "{\"a\": \"//#/*,}\"}", "{\"a\":\"//#/*,}\"}"},
    {"escaped quote before a comment mark", "{\"a\": \"\\\"// \"}", "{\"a\":\"\\\"// \"}"},
    {"trailing commas", "{\"a\": [1, 2, ], \"b\": {\"c\": 3 , // x\n }, }",
     "{\"a\":[1,2],\"b\":{\"c\":3}}"},
    {"comma, comment, bracket", "[1, /* , */ ]", "[1]"},
    {"byte order mark", "\xEF\xBB\xBF[1]", "[1]"},
    {"large integers are exact", "[9223372036854775807]", "[9223372036854775807]"},
};

static const struct bad_case {
    const char *name, *text, *want;
} bad[] = {
    {"empty", "", "f.json is empty"},
    {"only a comment", "// x", "f.json:1:4:"},
    {"duplicate key", "{\"a\": 1,\n \"a\": 2}", "f.json:2:4: duplicate object key"},
    {"position after comments", "// one\n/* two\nthree */ {\"a\": }", "f.json:3:16:"},
    {"a comment counts by characters", "/* \xC3\xA4\xE2\x82\xAC */ {\"a\": x}", "f.json:1:16:"},
    {"comment without end", "{\n  /* x\n}", "f.json:2:3: this comment has no end"},
    {"comma before the first value", "[,]", "f.json:1:2:"},
    {"comma after a colon", "{\"a\":,}", "f.json:1:6:"},
    {"two commas", "[1,,]", "f.json:1:4:"},
    {"comma outside", "[1],", "f.json:1:4:"},
    {"integer too large", "[9223372036854775808]", "f.json:1:"},
    {"text without end", "{\"a", "f.json:1:"},
    {"text that ends in a backslash", "{\"a\\", "f.json:1:"},
    {"control characters are shown harmlessly", "{\"a\":\x1b}", "f.json:1:"},
    {"too deep", NULL, "f.json:1:"}, // 100000 brackets
};

static void test_good(void **state)
{
    const struct good_case *c = *state;
    zx_err err = {0};
    json_t *got;
    assert_zx_ok(zx_json_parse("f.json", c->text, strlen(c->text), &got, &err), &err);
    char *text = json_dumps(got, JSON_COMPACT);
    assert_string_equal(text, c->want);
    free(text);
    json_decref(got);
}

static void test_bad(void **state)
{
    const struct bad_case *c = *state;
    zx_err err = {0};
    json_t *got;
    zx_text deep = {0};
    const char *text = c->text;
    if (text == NULL) {
        for (uint32_t i = 0; i < 100000; i++) zx_text_bytes(&deep, "[", 1);
        text = deep.at;
    }
    assert_int_equal(zx_json_parse("f.json", text, strlen(text), &got, &err), ZX_E_USAGE);
    assert_null(got);
    assert_says(&err, c->want);
    for (const char *p = err.cause[0]; *p != '\0'; p++) assert_true((unsigned char)*p >= 0x20);
    zx_text_free(&deep);
}

static void test_file(void **state ZX_UNUSED)
{
    char folder[64], path[128];
    zx_err err = {0};
    json_t *got;
    folder_make(folder);
    snprintf(path, sizeof path, "%s/c.json", folder);
    assert_int_equal(zx_json_read(path, &got, &err), ZX_E_IO);
    assert_null(got);
    file_write(folder, "c.json", "{\"a\":1,}", 8);
    assert_zx_ok(zx_json_read(path, &got, &err), &err);
    json_decref(got);
    folder_remove(folder);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(good) + ZX_COUNT(bad) + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(good); i++)
        tests[n++] = zx_case(good[i].name, test_good, &good[i]);
    for (uint32_t i = 0; i < ZX_COUNT(bad); i++)
        tests[n++] = zx_case(bad[i].name, test_bad, &bad[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_file);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

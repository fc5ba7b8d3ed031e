// test_text.c - names made harmless, sizes read and written, nearest names, patterns.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <string.h>

#include "graph/base/text.h"

static const struct safe_row {
    const char *name, *in, *want;
} safe_rows[] = {
    {"plain names stay", "h.0/attn:1", "h.0/attn:1"},
    {"UTF-8 stays", "caf\xC3\xA9", "caf\xC3\xA9"},
    {"escape sequences are shown", "\x1b[2Jx", "\\x1b[2Jx"},
    {"newlines cannot forge a line", "a\nzerox: ok", "a\\x0azerox: ok"},
    {"C1 controls too", "a\xC2\x9B", "a\\xc2\\x9b"},
    {"overlong forms", "\xC0\x80", "\\xc0\\x80"},
    {"surrogates", "\xED\xA0\x80", "\\xed\\xa0\\x80"},
    {"a cut sequence at the end", "x\xE2\x82", "x\\xe2\\x82"},
    {"delete", "\x7f", "\\x7f"},
};

static void test_safe(void **state)
{
    const struct safe_row *k = *state;
    zx_arena mem = {0};
    assert_string_equal(zx_text_safe(&mem, k->in), k->want);
    zx_arena_free(&mem);
}

static const struct parse_row {
    const char *name, *in;
    bool ok;
    uint64_t want;
} parse_rows[] = {
    {"GB is decimal", "24GB", true, 24000000000u},
    {"GiB is binary", "24GiB", true, 25769803776u},
    {"bare bytes", "4096", true, 4096},
    {"bytes with a B", "4096B", true, 4096},
    {"a fraction", "1.5k", true, 1500},
    {"case does not matter", "2mib", true, 2097152},
    {"large counts are exact", "9007199254740993", true, 9007199254740993u},
    {"negative", "-1", false, 0},
    {"empty", "", false, 0},
    {"a word", "lots", false, 0},
    {"an unknown unit", "3 apples", false, 0},
    {"too large", "99999999999999999999", false, 0},
    {"too large with a unit", "9999999TB", false, 0},
    {"per cent is not a size", "80%", false, 0},
    {"hexadecimal is not a size", "0x10", false, 0},
};

static void test_parse(void **state)
{
    const struct parse_row *k = *state;
    uint64_t got = 0;
    assert_int_equal(zx_text_parse_size(k->in, &got), k->ok);
    if (k->ok) assert_int_equal(got, k->want);
}

static const struct size_row {
    const char *name;
    uint64_t in;
    const char *want;
} size_rows[] = {
    {"bytes", 512, "512 B"},
    {"the last byte count", 999, "999 B"},
    {"kibibytes", 1536, "1.50 KiB"},
    {"tens", 38u << 20, "38.0 MiB"},
    {"hundreds", 310u << 20, "310 MiB"},
    {"no four digits", 1000u << 20, "0.98 GiB"},
};

static void test_size(void **state)
{
    const struct size_row *k = *state;
    char buf[ZX_BYTES_TEXT];
    assert_string_equal(zx_text_size(k->in, buf), k->want);
}

static const struct near_row {
    const char *name, *in, *want;
} near_rows[] = {
    {"one letter wrong", "gradient_clipp1ng", "gradient_clipping"},
    {"letter case", "Stage", "stage"},
    {"one letter missing", "optimzer", "optimizer"},
    {"two letters swapped", "stgae", "stage"},
    {"a third of the letters", "staxe1", "stage"},
    {"more than that", "stxxx3", NULL},
    {"few letters in common", "LSTM", NULL},
    {"one letter has none", "x", NULL},
    {"half of two letters", "xs", "xy"},
    {"the dashes of options don't count", "--lr", NULL},
    {"nor do they hide a name", "--ouy", "--out"},
    {"a name that begins so", "--output", "--out"},
    {"but not one that goes on for long", "--output_folder", NULL},
    {"nor one of two letters", "xyz1", NULL},
    {"nothing near", "warp_factor", NULL},
};

static void test_near(void **state)
{
    static const char *const names[] = {
        "gradient_clipping", "stage", "optimizer", "--log", "--out", "Sum", "xy"};
    const struct near_row *k = *state;
    const char *got = zx_text_nearest(k->in, names, ZX_COUNT(names));
    if (k->want == NULL)
        assert_null(got);
    else
        assert_string_equal(got, k->want);
}

static const struct match_row {
    const char *name, *glob, *in;
    bool want;
} match_rows[] = {
    {"a literal", "wte", "wte", true},         {"the whole name", "wte", "wte.weight", false},
    {"a star", "h.*.ln", "h.10.ln", true},     {"two stars", "*attn*", "h.0.attn.q", true},
    {"a star may be empty", "a*", "a", true},  {"a question mark", "h.?", "h.1", true},
    {"just one letter", "h.?", "h.10", false}, {"backtracking", "*ab", "aab", true},
    {"empty pattern", "", "x", false},
};

static void test_match(void **state)
{
    const struct match_row *k = *state;
    assert_int_equal(zx_text_match(k->glob, k->in), k->want);
}

static void test_json(void **state ZX_UNUSED)
{
    zx_text t = {0};
    zx_text_json(&t, "a\"b\\c\n\x01\xFF\xC3\xA9");
    assert_string_equal(t.at, "\"a\\\"b\\\\c\\u000a\\u0001\xEF\xBF\xBD\xC3\xA9\"");
    zx_text_free(&t);
}

#define ROWS(rows, test)                                                                           \
    for (size_t i = 0; i < ZX_COUNT(rows); i++) tests[n++] = zx_case(rows[i].name, test, &rows[i])

int main(void)
{
    struct CMUnitTest tests[64] = {cmocka_unit_test(test_json)};
    size_t n = 1;
    ROWS(safe_rows, test_safe);
    ROWS(parse_rows, test_parse);
    ROWS(size_rows, test_size);
    ROWS(near_rows, test_near);
    ROWS(match_rows, test_match);
    return _cmocka_run_group_tests("text", tests, n, NULL, NULL);
}

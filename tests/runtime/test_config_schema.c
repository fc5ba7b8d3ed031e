// test_config_schema.c - the schema of configs against what reads them: of every key and value the
// one takes what the other takes. And what --explain makes of a file.
// SPDX-License-Identifier: Apache-2.0
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config.h"
#include "runtime/config_row.h"
#include "tests/test.h"

// ---- as much of a validator as the schema needs -------------------------------------------------

static bool valid(const json_t *root, const json_t *schema, const json_t *j);

static bool is_type(const json_t *j, const char *type)
{
    const double v = json_number_value(j);
    const bool whole = json_is_integer(j) || (json_is_real(j) && v == (double)(long long)v);
    const struct {
        const char *name;
        bool is;
    } types[] = {{"object", json_is_object(j)},
                 {"array", json_is_array(j)},
                 {"string", json_is_string(j)},
                 {"boolean", json_is_boolean(j)},
                 {"null", json_is_null(j)},
                 {"number", json_is_number(j)},
                 {"integer", whole}};
    for (size_t i = 0; i < ZX_COUNT(types); i++)
        if (strcmp(types[i].name, type) == 0) return types[i].is;
    fail_msg("a type '%s'", type);
    return false;
}

static bool is_one_of(const json_t *list, const json_t *j, bool types)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i);
        if (types ? is_type(j, json_string_value(x)) : json_equal(x, j)) return true;
    }
    return false;
}

static bool matches(const char *pattern, const json_t *j)
{
    regex_t re;
    if (!json_is_string(j)) return true;
    assert_int_equal(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    const bool is = regexec(&re, json_string_value(j), 0, NULL, 0) == 0;
    regfree(&re);
    return is;
}

static bool valid_members(const json_t *root, const json_t *schema, const json_t *j)
{
    const json_t *properties = json_object_get(schema, "properties");
    const char *key;
    json_t *member;
    if (properties == NULL || !json_is_object(j)) return true;
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    json_object_foreach((json_t *)(uintptr_t)j, key, member)
    {
        const json_t *of = json_object_get(properties, key);
        if (of == NULL || !valid(root, of, member)) return false;
    }
    return true;
}

static const char *const known[] = {"$schema",
                                    "$defs",
                                    "$ref",
                                    "title",
                                    "type",
                                    "anyOf",
                                    "enum",
                                    "const",
                                    "pattern",
                                    "minimum",
                                    "items",
                                    "properties",
                                    "default",
                                    "x-zerox",
                                    "deprecated",
                                    "description",
                                    "additionalProperties"};

static bool valid_members_of_any(const json_t *root, const json_t *list, const json_t *j)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (valid(root, json_array_get(list, i), j)) return true;
    return false;
}

static bool valid(const json_t *root, const json_t *schema, const json_t *j)
{
    const char *word;
    json_t *v;
    bool ok = true;
    if (json_is_boolean(schema)) return json_is_true(schema);
    json_object_foreach((json_t *)(uintptr_t)schema, word, v)
    {
        bool is_known = false;
        for (size_t i = 0; i < ZX_COUNT(known); i++) is_known |= strcmp(known[i], word) == 0;
        if (!is_known) fail_msg("a word '%s' in the schema", word);
        if (strcmp(word, "$ref") == 0)
            ok &= valid(root,
                        json_object_get(json_object_get(root, "$defs"),
                                        json_string_value(v) + strlen("#/$defs/")),
                        j);
        if (strcmp(word, "type") == 0)
            ok &= json_is_array(v) ? is_one_of(v, j, true) : is_type(j, json_string_value(v));
        if (strcmp(word, "anyOf") == 0) ok &= valid_members_of_any(root, v, j);
        if (strcmp(word, "enum") == 0) ok &= is_one_of(v, j, false);
        if (strcmp(word, "const") == 0) ok &= json_equal(v, j) != 0;
        if (strcmp(word, "pattern") == 0) ok &= matches(json_string_value(v), j);
        if (strcmp(word, "minimum") == 0 && json_is_number(j))
            ok &= json_number_value(j) >= json_number_value(v);
        if (strcmp(word, "items") == 0)
            for (size_t i = 0; i < json_array_size(j); i++)
                ok &= valid(root, v, json_array_get(j, i));
    }
    return ok && valid_members(root, schema, j);
}

static json_t *load_schema(void)
{
    zx_text out = {0};
    json_error_t e;
    zx_config_schema(&out);
    json_t *schema = json_loads(out.at, JSON_REJECT_DUPLICATES, &e);
    if (schema == NULL) fail_msg("the schema isn't JSON: line %d: %s", e.line, e.text);
    zx_text_free(&out);
    return schema;
}

// ---- every key with every value -----------------------------------------------------------------

static const char *const samples[] = {"true",
                                      "false",
                                      "0",
                                      "1",
                                      "3",
                                      "-1",
                                      "1.5",
                                      "5e8",
                                      "-2.0",
                                      "1e400",
                                      "null",
                                      "\"\"",
                                      "\"x\"",
                                      "\"5\"",
                                      "\"-5\"",
                                      "\"5e8\"",
                                      "\"1.\"",
                                      "\"auto\"",
                                      "\"True\"",
                                      "\"no\"",
                                      "\"fp16\"",
                                      "\"torch.BFloat16\"",
                                      "\"int8\"",
                                      "\"NONE\"",
                                      "\"cpu\"",
                                      "\"mean\"",
                                      "\"none|cpu\"",
                                      "[]",
                                      "[\"a\"]",
                                      "[0.9, \"0.999\"]",
                                      "[1, [2]]",
                                      "[null]",
                                      "{}",
                                      "{\"a\": 1}"};

// {"a": {"b": VALUE}} of the key a.b.
static const char *nested(const char *path, const char *value, zx_arena *mem)
{
    const char *dot = strchr(path, '.');
    return dot == NULL ? zx_arena_printf(mem, "{\"%s\": %s}", path, value)
                       : zx_arena_printf(mem, "{\"%.*s\": %s}", (int)(dot - path), path,
                                         nested(dot + 1, value, mem));
}

// Whether what reads configs takes it; a refusal isn't about what a value looks like.
static bool reads(const char *text, zx_arena *mem)
{
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    bool taken = true;
    zx_config_parse("z", text, strlen(text), false, mem, &c, &notes, &err);
    for (uint32_t i = 0; i < err.n_causes && i < ZX_ERR_KEPT; i++)
        taken &= strstr(err.cause[i], " is not supported: ") != NULL ||
                 strstr(err.cause[i], "must be 0, 1, 2 or 3") != NULL;
    zx_config_close(&c);
    return taken;
}

static void schema_takes_what_is_read(void **state)
{
    (void)state;
    json_t *schema = load_schema();
    zx_arena mem = {0};
    uint32_t refused = 0;
    for (uint32_t i = 0; i < zx_config_n_rows; i += test_few() ? 7 : 1)
        for (uint32_t k = 0; k < 2 * ZX_COUNT(samples); k++) {
            const zx_config_row *row = &zx_config_rows[i];
            const char *key = k % 2 == 0 ? row->path : row->other;
            if (key[0] == '\0') continue;
            const char *text = nested(key, samples[k / 2], &mem);
            json_t *j = json_loads(text, 0, NULL);
            const bool taken = j != NULL && reads(text, &mem);
            if (j != NULL && valid(schema, schema, j) != taken)
                fail_msg("%s: the schema %s it", text, taken ? "refuses" : "takes");
            refused += !taken;
            json_decref(j);
        }
    assert_true(refused > zx_config_n_rows);
    json_decref(schema);
    zx_arena_free(&mem);
}

static void schema_is_closed(void **state)
{
    (void)state;
    static const char *const odd[] = {"{\"zero_optimisation\": {}}", "{\"fp16\": {\"enable\": 1}}",
                                      "{\"fp16\": true}", "[]"};
    static const char *const even[] = {
        "{}", "{\"zero_optimization\": true}", "{\"fp16\": null}",
        "{\"zero_optimization\": {\"stage\": 3}, \"bfloat16\": {\"enabled\": \"auto\"}}"};
    json_t *schema = load_schema();
    for (size_t i = 0; i < ZX_COUNT(odd); i++) {
        json_t *a = json_loads(odd[i], 0, NULL), *b = json_loads(even[i], 0, NULL);
        if (valid(schema, schema, a)) fail_msg("taken: %s", odd[i]);
        if (!valid(schema, schema, b)) fail_msg("not taken: %s", even[i]);
        json_decref(a);
        json_decref(b);
    }
    assert_string_equal(json_string_value(json_object_get(schema, "$schema")),
                        "https://json-schema.org/draft/2020-12/schema");
    json_decref(schema);
}

// ---- explained ----------------------------------------------------------------------------------

static const struct row {
    const char *name, *json;
    const char *list, *key; // of the JSON; key NULL: a sentence of the list
    const char *says;       // in what the list has of the key
} rows[] = {
    {"what the file says", "{\"gradient_clipping\": 0.5}", "values", "gradient_clipping",
     "{\"from\": \"file\", \"value\": 0.5}"},
    {"what nobody said", "{}", "values", "optimizer.params.lr",
     "{\"from\": \"default\", \"value\": 0.001}"},
    {"by another name", "{\"bfloat16\": {\"enabled\": false}}", "values", "bf16.enabled",
     "{\"as\": \"bfloat16.enabled\", \"from\": \"file\", \"value\": false}"},
    {"an old form", "{\"zero_optimization\": {\"cpu_offload\": true}}", "mapped",
     "zero_optimization.cpu_offload",
     "\"means\": \"zero_optimization.offload_optimizer.device=cpu\""},
    {"what the old form means", "{\"zero_optimization\": {\"cpu_offload_params\": true}}",
     "refused", "zero_optimization.offload_param.device",
     "\"as\": \"zero_optimization.cpu_offload_param\""},
    {"an old form that asks for nothing", "{\"zero_optimization\": {\"cpu_offload\": false}}",
     "as_it_is", "zero_optimization.cpu_offload", "false"},
    {"the old form of ZeRO", "{\"zero_optimization\": true}", "values", "zero_optimization.stage",
     "{\"as\": \"zero_optimization\", \"from\": \"file\", \"value\": 1}"},
    {"without effect", "{\"zero_optimization\": {\"round_robin_gradients\": true}}", "no_effect",
     "zero_optimization.round_robin_gradients",
     "\"why\": \"every gradient has its place in the plan\""},
    {"as it is anyway", "{\"zero_optimization\": {\"contiguous_gradients\": true}}", "as_it_is",
     "zero_optimization.contiguous_gradients", "true"},
    {"in a section that is off", "{\"elasticity\": {\"enabled\": false, \"min_gpus\": 8}}", "off",
     "elasticity.min_gpus", "8"},
    {"refused", "{\"sparse_gradients\": true}", "refused", "sparse_gradients",
     "\"why\": \"gradients are dense\""},
    {"unknown", "{\"stge\": 3}", "unknown", NULL, "unknown key 'stge'"},
    {"what was said", "{\"stge\": 3}", "errors", NULL, "z: unknown key 'stge'"},
    {"no secrets", "{\"comet\": {\"enabled\": true, \"api_key\": \"secret\"}}", "no_effect",
     "comet.api_key", "(hidden)"},
};

static json_t *explained(const char *text, zx_text *plain)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_text out = {0};
    zx_config_parse("z", text, strlen(text), false, &mem, &c, &notes, &err);
    zx_config_explain_json(&c, NULL, 2, &err, &out);
    zx_config_explain(&c, &err, plain);
    json_t *j = json_loads(out.at, JSON_REJECT_DUPLICATES, NULL);
    if (j == NULL) fail_msg("not JSON: %s", out.at);
    zx_text_free(&out);
    zx_config_close(&c);
    zx_arena_free(&mem);
    return j;
}

static void test_row(void **state)
{
    const struct row *row = *state;
    zx_text plain = {0};
    json_t *all = explained(row->json, &plain);
    const json_t *list = json_object_get(all, row->list);
    const json_t *has = row->key != NULL ? json_object_get(list, row->key) : list;
    char *text = json_dumps(has, JSON_SORT_KEYS | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    if (text == NULL || strstr(text, row->says) == NULL) fail_msg("%s has: %s", row->list, text);
    if (row->key != NULL && strstr(plain.at, row->key) == NULL) fail_msg("text: %s", plain.at);
    assert_null(strstr(plain.at, "secret"));
    free(text);
    json_decref(all);
    zx_text_free(&plain);
}

// Each key of a file is in one list and only one.
static void keys_stand_once(void **state)
{
    (void)state;
    static const char *const others[] = {"mapped", "no_effect", "off", "as_it_is", "refused"};
    zx_arena mem = {0};
    for (uint32_t i = 0; i < zx_config_n_rows; i += test_few() ? 7 : 1)
        for (size_t k = 0; k < ZX_COUNT(samples); k++) {
            const zx_config_row *row = &zx_config_rows[i];
            const char *text = nested(row->path, samples[k], &mem);
            if (strcmp(samples[k], "null") == 0) continue;
            if (strcmp(samples[k], "1e400") == 0 || !reads(text, &mem)) continue;
            zx_text plain = {0};
            json_t *all = explained(text, &plain);
            uint32_t n = json_object_get(json_object_get(all, "values"), row->path) != NULL;
            for (size_t l = 0; l < ZX_COUNT(others); l++)
                n += json_object_get(json_object_get(all, others[l]), row->path) != NULL;
            if (n != 1) fail_msg("%s: in %u lists", text, n);
            json_decref(all);
            zx_text_free(&plain);
        }
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 3];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(schema_takes_what_is_read);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(schema_is_closed);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(keys_stand_once);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

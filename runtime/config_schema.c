// config_schema.c - config.def as a JSON Schema, for editors and for who writes configs by program.
//
// It says what a value may look like; whether this version does what it asks for is the verdict,
// which stands beside ("x-zerox"): a refused key is fine where its section is off.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "runtime/config.h"
#include "runtime/config_row.h"

#define OURS "own_" // before the name of what keys of ours refer to

// What each type takes: a value of its own, or the same in quotes. ' stands for ".
static const struct {
    const char *name;
    bool or_none; // "auto", or null for nothing
    const char *any_of;
} defs[] = {
    {"bool", true,
     "{'type': 'boolean'}, {'enum': [0, 1]}, {'type': 'string', 'pattern': "
     "'^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$'}"},
    {"int", true, "{'type': 'integer', 'minimum': 0}, {'type': 'string', 'pattern': '^[0-9]+$'}"},
    {"signed", true, "{'type': 'integer'}, {'type': 'string', 'pattern': '^-?[0-9]+$'}"},
    {"number", false,
     "{'type': 'number'}, {'type': 'string', 'pattern': "
     "'^[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?$'}"},
    {"real", true, "{'$ref': '#/$defs/number'}"},
    {"reals", true, "{'type': 'array', 'items': {'$ref': '#/$defs/number'}}"},
    {"text", true, "{'type': ['string', 'integer']}"},
    {"texts", true, "{'type': 'string'}, {'type': 'array', 'items': {'type': 'string'}}"},
    {"dtype", true,
     "{'type': 'string', 'pattern': '^([Tt][Oo][Rr][Cc][Hh][.])?([Ff][Pp](16|32)|"
     "[Ff][Ll][Oo][Aa][Tt](16|32)?|[Hh][Aa][Ll][Ff]|[Bb]([Ff][Ll][Oo][Aa][Tt]|[Ff])16)$'}"},
    {"object", true, "{'type': 'object'}"},
    {"switch", true, "{'type': ['object', 'boolean']}"},
    {"any", false, "true"},
};

static void put_def(json_t *all, size_t i, const char *before, const char *none)
{
    zx_text t = {0}, name = {0};
    zx_text_put(&t, "{'anyOf': [%s%s]}", defs[i].any_of, defs[i].or_none ? none : "");
    zx_text_put(&name, "%s%s", before, defs[i].name);
    for (size_t k = 0; k < t.n; k++)
        if (t.at[k] == '\'') t.at[k] = '"';
    json_object_set_new(all, name.at, json_loads(t.at, 0, NULL));
    zx_text_free(&t);
    zx_text_free(&name);
}

// Each twice: "auto" is for DeepSpeed's keys, not for ours.
static json_t *load_defs(void)
{
    json_t *all = json_object();
    for (size_t i = 0; i < ZX_COUNT(defs); i++) {
        put_def(all, i, "", ", {'const': 'auto'}, {'type': 'null'}");
        if (defs[i].or_none) put_def(all, i, OURS, ", {'type': 'null'}");
    }
    return all;
}

static bool is_ours(const zx_config_row *row)
{
    return strncmp(row->path, "zerox.", 6) == 0 && row->type != ZX_KEY_ANY;
}

static const char *const def_of[] = {
    [ZX_KEY_BOOL] = "bool",     [ZX_KEY_INT] = "int",       [ZX_KEY_SIGNED] = "signed",
    [ZX_KEY_REAL] = "real",     [ZX_KEY_TEXT] = "text",     [ZX_KEY_TEXTS] = "texts",
    [ZX_KEY_WORDS] = "texts",   [ZX_KEY_REALS] = "reals",   [ZX_KEY_DTYPE] = "dtype",
    [ZX_KEY_OBJECT] = "object", [ZX_KEY_SWITCH] = "switch", [ZX_KEY_ANY] = "any"};

// "a|b|c: ..." in any case of letters.
static void put_words(json_t *schema, const char *words, bool ours)
{
    zx_text pattern = {0};
    zx_text_put(&pattern, ours ? "^(" : "^(auto|");
    for (const char *at = words; *at != '\0' && *at != ':'; at++) {
        const char low = *at >= 'A' && *at <= 'Z' ? (char)(*at + 32) : *at;
        if (low >= 'a' && low <= 'z')
            zx_text_put(&pattern, "[%c%c]", low - 32, low);
        else
            zx_text_put(&pattern, "%c", *at);
    }
    zx_text_put(&pattern, ")$");
    json_object_set_new(schema, "type", json_pack("[ss]", "string", "null"));
    json_object_set_new(schema, "pattern", json_string(pattern.at));
    zx_text_free(&pattern);
}

static json_t *key_schema(const zx_config_row *row, const char *name, zx_arena *mem)
{
    json_t *schema = json_object();
    zx_config_value v;
    zx_text value = {0};
    if (row->type == ZX_KEY_CHOICE)
        put_words(schema, row->words, is_ours(row));
    else
        json_object_set_new(schema, "$ref",
                            json_string(zx_arena_printf(
                                mem, "#/$defs/%s%s", is_ours(row) ? OURS : "", def_of[row->type])));
    const bool other = strcmp(name, row->path) != 0;
    if (other || row->words[0] != '\0')
        json_object_set_new(schema, "description",
                            other ? json_string(zx_arena_printf(mem, "the same as %s", row->path))
                                  : json_string(row->words));
    zx_config_default(row, mem, &v);
    zx_config_put_value(&value, row, &v);
    json_t *json = v.has ? json_loads(value.at, JSON_DECODE_ANY, NULL) : NULL;
    if (json != NULL) json_object_set_new(schema, "default", json);
    if (row->verdict == ZX_VERDICT_OLD) json_object_set_new(schema, "deprecated", json_true());
    json_object_set_new(schema, "x-zerox", json_string(zx_config_verdict_text(row->verdict)));
    zx_text_free(&value);
    return schema;
}

// The properties of the section NAME among `properties`; made where it isn't there yet.
static json_t *section(json_t *properties, const char *name)
{
    json_t *s = json_object_get(properties, name);
    if (s == NULL) {
        // DeepSpeed's old form for stage 1 and 0.
        const bool zero = strcmp(name, "zero_optimization") == 0;
        json_t *types = json_pack("[ss]", "object", "null");
        if (zero) json_array_append_new(types, json_string("boolean"));
        s = json_pack("{s:o, s:{}, s:b}", "type", types, "properties", "additionalProperties", 0);
        json_object_set_new(properties, name, s);
    }
    return json_object_get(s, "properties");
}

// `name`: the row's path, or its other one.
static void put_key(json_t *properties, const zx_config_row *row, const char *name, zx_arena *mem)
{
    const char *leaf = name;
    if (name[0] == '\0') return;
    for (const char *dot; (dot = strchr(leaf, '.')) != NULL; leaf = dot + 1)
        properties = section(properties, zx_arena_strn(mem, leaf, (size_t)(dot - leaf)));
    json_object_set_new(properties, leaf, key_schema(row, name, mem));
}

void zx_config_schema(zx_text *out)
{
    zx_arena mem = {0};
    json_t *properties = json_object();
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        put_key(properties, &zx_config_rows[i], zx_config_rows[i].path, &mem);
        put_key(properties, &zx_config_rows[i], zx_config_rows[i].other, &mem);
    }
    json_t *all = json_pack("{s:s, s:s, s:s, s:o, s:b, s:o}", "$schema",
                            "https://json-schema.org/draft/2020-12/schema", "title",
                            "zerox: a DeepSpeed configuration", "type", "object", "properties",
                            properties, "additionalProperties", 0, "$defs", load_defs());
    ZX_ASSERT(all != NULL);
    char *text = json_dumps(all, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    zx_text_put(out, "%s\n", text);
    free(text);
    json_decref(all);
    zx_arena_free(&mem);
}

// config.c - reads a config and judges every key in it by its row in config.def.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/config_row.h"

const zx_config_row zx_config_rows[] = {
#define ZX_KEY(path, other, type, value, verdict, words)                                           \
    {path, other, ZX_KEY_##type, value, ZX_VERDICT_##verdict, words},
#include "runtime/config.def"
#undef ZX_KEY
};
const uint32_t zx_config_n_rows = ZX_COUNT(zx_config_rows);

const char *zx_config_from_text(zx_config_from from)
{
    static const char *const words[] = {"default",      "file",  "auto",
                                        "command line", "model", "other keys"};
    return words[from];
}

// ---- values -------------------------------------------------------------------------------------

static bool parse_bool(const json_t *j, bool *out)
{
    if (json_is_boolean(j)) {
        *out = json_is_true(j);
        return true;
    }
    if (json_is_integer(j) && (json_integer_value(j) == 0 || json_integer_value(j) == 1)) {
        *out = json_integer_value(j) == 1;
        return true;
    }
    const char *s = json_string_value(j);
    if (s == NULL) return false;
    *out = strcasecmp(s, "true") == 0;
    return *out || strcasecmp(s, "false") == 0;
}

// Whole numbers may be written as reals without a fraction (5e8) or as digits in quotes.
static bool parse_int(const json_t *j, int64_t *out)
{
    if (json_is_integer(j)) {
        *out = json_integer_value(j);
        return true;
    }
    if (json_is_real(j)) {
        const double v = json_real_value(j);
        if (!(v > -9.2e18 && v < 9.2e18) || floor(v) != v) return false;
        *out = (int64_t)v;
        return true;
    }
    const char *s = json_string_value(j);
    if (s == NULL || s[0] == '\0') return false;
    char *end = NULL;
    errno = 0;
    *out = strtoll(s, &end, 10);
    return errno == 0 && *end == '\0' && (s[0] == '-' || (s[0] >= '0' && s[0] <= '9'));
}

static bool parse_real(const json_t *j, double *out)
{
    if (json_is_number(j)) {
        *out = json_number_value(j);
        return isfinite(*out);
    }
    const char *s = json_string_value(j); // "1e-5" is a common way to write a learning rate
    if (s == NULL || s[0] == '\0') return false;
    char *end = NULL;
    *out = strtod(s, &end);
    return *end == '\0' && isfinite(*out);
}

static bool parse_texts(const json_t *j, zx_arena *mem, zx_config_value *v)
{
    const bool one = json_is_string(j);
    if (!one && !json_is_array(j)) return false;
    v->n = one ? 1 : (uint32_t)json_array_size(j);
    const char **texts = ZX_NEW(mem, const char *, v->n);
    for (uint32_t i = 0; i < v->n; i++) {
        texts[i] = json_string_value(one ? j : json_array_get(j, i));
        if (texts[i] == NULL) return false;
    }
    v->texts = texts;
    return true;
}

static bool parse_reals(const json_t *j, zx_arena *mem, zx_config_value *v)
{
    if (!json_is_array(j)) return false;
    v->n = (uint32_t)json_array_size(j);
    double *reals = ZX_NEW(mem, double, v->n);
    for (uint32_t i = 0; i < v->n; i++)
        if (!parse_real(json_array_get(j, i), &reals[i])) return false;
    v->reals = reals;
    return true;
}

static bool parse_dtype(const char *s, const char **out)
{
    static const struct {
        const char *name, *word;
    } names[] = {{"fp32", "fp32"},    {"float32", "fp32"}, {"float", "fp32"},    {"fp16", "fp16"},
                 {"float16", "fp16"}, {"half", "fp16"},    {"bfloat16", "bf16"}, {"bf16", "bf16"}};
    if (s == NULL) return false;
    if (strncasecmp(s, "torch.", 6) == 0) s += 6;
    for (size_t i = 0; i < ZX_COUNT(names); i++)
        if (strcasecmp(s, names[i].name) == 0) {
            *out = names[i].word;
            return true;
        }
    return false;
}

// The word of "a|b|c: ..." that `s` is, whatever its case.
static bool parse_choice(const char *words, const char *s, zx_arena *mem, const char **out)
{
    if (s == NULL) return false;
    for (const char *at = words; *at != '\0' && *at != ':';) {
        const size_t n = strcspn(at, "|:");
        if (strlen(s) == n && strncasecmp(at, s, n) == 0) {
            *out = zx_arena_strn(mem, at, n);
            return true;
        }
        at += n;
        if (*at == '|') at++;
    }
    return false;
}

// A section of another kind of training that is on: `enabled` true in it, or in any part of it.
static bool is_on(const json_t *j)
{
    if (json_is_true(j)) return true;
    const char *key;
    json_t *member;
    json_object_foreach((json_t *)(uintptr_t)j, key, member)
    {
        bool on = false;
        if (strcmp(key, "enabled") == 0 && parse_bool(member, &on) && on) return true;
        if (json_is_object(member) && is_on(member)) return true;
    }
    return false;
}

static const char *const type_words[] = {
    [ZX_KEY_BOOL] = "true or false",
    [ZX_KEY_INT] = "a whole number, 0 or more",
    [ZX_KEY_SIGNED] = "a whole number",
    [ZX_KEY_REAL] = "a number",
    [ZX_KEY_TEXT] = "a text",
    [ZX_KEY_TEXTS] = "a text or a list of texts",
    [ZX_KEY_REALS] = "a list of numbers",
    [ZX_KEY_DTYPE] = "fp32, fp16 or bf16",
    [ZX_KEY_CHOICE] = "one of",
    [ZX_KEY_WORDS] = "a text or a list of texts",
    [ZX_KEY_OBJECT] = "an object",
    [ZX_KEY_SWITCH] = "an object",
    [ZX_KEY_ANY] = "anything",
};

static bool parse_value(const zx_config_row *row, const json_t *j, zx_arena *mem,
                        zx_config_value *v)
{
    v->json = j;
    switch (row->type) {
    case ZX_KEY_BOOL:
        return parse_bool(j, &v->b);
    case ZX_KEY_INT:
        return parse_int(j, &v->i) && v->i >= 0;
    case ZX_KEY_SIGNED:
        return parse_int(j, &v->i);
    case ZX_KEY_REAL:
        return parse_real(j, &v->r);
    case ZX_KEY_TEXT: // a budget may be written as a number of bytes
        v->text = json_is_number(j) && parse_int(j, &v->i)
                      ? zx_arena_printf(mem, "%lld", (long long)v->i)
                      : json_string_value(j);
        return v->text != NULL;
    case ZX_KEY_TEXTS:
        return parse_texts(j, mem, v);
    case ZX_KEY_REALS:
        return parse_reals(j, mem, v);
    case ZX_KEY_DTYPE:
        return parse_dtype(json_string_value(j), &v->text);
    case ZX_KEY_WORDS:
        return parse_choice(row->words, json_string_value(j), mem, &v->text) ||
               parse_texts(j, mem, v);
    case ZX_KEY_CHOICE:
        return parse_choice(row->words, json_string_value(j), mem, &v->text);
    case ZX_KEY_OBJECT:
        return json_is_object(j);
    case ZX_KEY_SWITCH:
        v->b = is_on(j);
        return json_is_object(j) || json_is_boolean(j);
    case ZX_KEY_ANY:
        return true;
    }
    return false;
}

void zx_config_default(const zx_config_row *row, zx_arena *mem, zx_config_value *v)
{
    *v = (zx_config_value){.from = ZX_FROM_DEFAULT, .has = row->value[0] != '\0'};
    v->b = strcmp(row->value, "true") == 0;
    if (row->type == ZX_KEY_INT || row->type == ZX_KEY_SIGNED) v->i = strtoll(row->value, NULL, 10);
    if (row->type == ZX_KEY_REAL) v->r = strtod(row->value, NULL);
    v->text = row->value;
    if (row->type != ZX_KEY_REALS) return;
    double *reals = ZX_NEW(mem, double, 4);
    char *at = (char *)(uintptr_t)row->value;
    for (char *end = NULL; v->n < 4; at = end) {
        reals[v->n] = strtod(at, &end);
        if (end == at) break;
        v->n++;
    }
    v->reals = reals;
}

static bool is_default(const zx_config_row *row, const zx_config_value *v, zx_arena *mem)
{
    zx_config_value d;
    zx_config_default(row, mem, &d);
    if (!d.has && row->type != ZX_KEY_TEXTS) return !v->has;
    switch (row->type) {
    case ZX_KEY_BOOL:
    case ZX_KEY_SWITCH:
        return v->b == d.b;
    case ZX_KEY_INT:
    case ZX_KEY_SIGNED:
        return v->i == d.i;
    case ZX_KEY_REAL:
        return v->r == d.r;
    case ZX_KEY_TEXT:
    case ZX_KEY_CHOICE:
    case ZX_KEY_DTYPE:
        return strcasecmp(v->text, d.text) == 0;
    case ZX_KEY_TEXTS:
        return v->n == 0;
    case ZX_KEY_REALS:
        return v->n == d.n && memcmp(v->reals, d.reals, v->n * sizeof *d.reals) == 0;
    default:
        return false;
    }
}

bool zx_config_is_default(const zx_config *c, uint32_t row)
{
    return is_default(&zx_config_rows[row], &c->values[row], c->mem);
}

// ---- keys ---------------------------------------------------------------------------------------

typedef struct reading {
    zx_config *c;
    const char *name; // the file, for messages
    bool allow_unknown;
    zx_notes *notes;
    zx_err *err;
} reading;

static uint32_t find_row(const char *path, bool *by_other)
{
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        const zx_config_row *row = &zx_config_rows[i];
        *by_other = strcmp(row->other, path) == 0;
        if (*by_other || strcmp(row->path, path) == 0) return i;
    }
    return ZX_NONE;
}

const zx_config_value *zx_config_get(const zx_config *c, const char *path)
{
    bool other;
    const uint32_t i = find_row(path, &other);
    ZX_ASSERT(i != ZX_NONE);
    return &c->values[i];
}

static zx_config_value *value_of(zx_config *c, const char *path)
{
    return (zx_config_value *)(uintptr_t)zx_config_get(c, path);
}

void zx_config_set_why(zx_config *c, const char *path, const char *why)
{
    value_of(c, path)->why = why;
}

void zx_config_set_int(zx_config *c, const char *path, int64_t i, zx_config_from from)
{
    *value_of(c, path) = (zx_config_value){.from = from, .has = true, .i = i};
}

void zx_config_set_json(zx_config *c, const char *path, json_t *json, zx_config_from from)
{
    if (c->added == NULL) c->added = json_array();
    *value_of(c, path) = (zx_config_value){.from = from, .has = json != NULL, .json = json};
    json_array_append_new(c->added, json);
}

void zx_config_set_text(zx_config *c, const char *path, const char *text, zx_config_from from)
{
    *value_of(c, path) = (zx_config_value){.from = from, .has = true, .text = text};
}

// Whether some row's path begins with "PATH.".
static bool is_section(const char *path)
{
    const size_t n = strlen(path);
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        const char *p = zx_config_rows[i].path, *o = zx_config_rows[i].other;
        if (strncmp(p, path, n) == 0 && p[n] == '.') return true;
        if (strncmp(o, path, n) == 0 && o[n] == '.') return true;
    }
    return false;
}

// A known key that `path` was probably meant to be: the same name in another section, a near name
// in the same one, or, where it stands at the top, a near path.
static const char *nearest_key(const char *path, zx_arena *mem)
{
    uint32_t n = 0, cap = 0, n_leaves = 0, cap_leaves = 0, n_same = 0;
    const char **names = NULL, **leaves = NULL, *same = NULL;
    const char *dot = strrchr(path, '.');
    const char *leaf = dot != NULL ? dot + 1 : path;
    const size_t head = (size_t)(leaf - path);
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        for (int k = 0; k < 2; k++) {
            const char *p = k == 0 ? zx_config_rows[i].path : zx_config_rows[i].other;
            if (p[0] == '\0') continue;
            const char *last = strrchr(p, '.');
            last = last != NULL ? last + 1 : p;
            if (strcmp(last, leaf) == 0 && n_same++ == 0) same = p;
            ZX_GROW(mem, leaves, n_leaves, cap_leaves);
            leaves[n_leaves++] = p;
            if (strncmp(p, path, head) != 0) continue;
            ZX_GROW(mem, names, n, cap);
            names[n++] = zx_arena_strn(mem, p, head + strcspn(p + head, ".")) + head;
        }
    }
    if (n_same == 1) return same;
    const char *near = zx_text_nearest(leaf, names, n); // what they have in common makes none near
    if (near != NULL) return near - head;
    return head == 0 ? zx_text_nearest(path, leaves, n_leaves) : NULL;
}

static void unknown_key(reading *r, const char *path)
{
    zx_arena *mem = r->c->mem;
    const char *safe = zx_text_safe(mem, path), *near = nearest_key(path, mem);
    const char *words =
        near == NULL ? zx_arena_printf(mem, "unknown key '%s'", safe)
                     : zx_arena_printf(mem, "unknown key '%s'; the nearest is '%s'", safe, near);
    zx_config *c = r->c;
    ZX_GROW(mem, c->unknown, c->n_unknown, c->cap_unknown);
    c->unknown[c->n_unknown++] = words;
    if (r->allow_unknown)
        zx_note(r->notes, mem, "%s: %s", r->name, words);
    else
        ZX_FAIL(r->err, ZX_E_USAGE, "%s", words);
}

static const char *json_short(const json_t *j, zx_arena *mem)
{
    char *s = json_dumps(j, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    const char *kept = s == NULL        ? "?"
                       : strlen(s) > 60 ? zx_arena_printf(mem, "%.57s...", s)
                                        : zx_arena_str(mem, s);
    free(s);
    return zx_text_safe(mem, kept);
}

static void read_key(reading *r, uint32_t index, const char *path, bool by_other, const json_t *j)
{
    const zx_config_row *row = &zx_config_rows[index];
    zx_config_value *v = &r->c->values[index];
    if (v->from == ZX_FROM_FILE || v->from == ZX_FROM_AUTO) {
        ZX_FAIL(r->err, ZX_E_USAGE, "%s and %s are the same key; keep one of them",
                by_other ? row->path : row->other, path);
        return;
    }
    if (json_is_null(j)) return;
    const char *word = json_string_value(j), *own; // "auto" is also a word of some keys' own
    const bool choice = (row->type == ZX_KEY_CHOICE || row->type == ZX_KEY_WORDS) && word != NULL &&
                        parse_choice(row->words, word, r->c->mem, &own);
    // Hugging Face's Trainer fills in DeepSpeed's keys and knows none of ours.
    const bool filled = strncmp(path, "zerox.", 6) != 0;
    if (!choice && filled && word != NULL && strcmp(word, "auto") == 0) {
        zx_config_auto(row, r->c->mem, v);
        return;
    }
    zx_config_value got = {.from = ZX_FROM_FILE, .has = true, .as = by_other ? path : NULL};
    if (parse_value(row, j, r->c->mem, &got)) {
        *v = got;
        return;
    }
    const int n = row->type == ZX_KEY_CHOICE ? (int)strcspn(row->words, ":") : 0;
    ZX_FAIL(r->err, ZX_E_USAGE, "%s must be %s%s%.*s, not %s", path, type_words[row->type],
            n > 0 ? " " : "", n, row->words, json_short(j, r->c->mem));
}

// zero_optimization: true/false is DeepSpeed's old form for stage 1 and 0.
static bool old_zero_form(reading *r, const char *path, const json_t *j)
{
    if (strcmp(path, "zero_optimization") != 0 || !json_is_boolean(j)) return false;
    zx_config_set_int(r->c, "zero_optimization.stage", json_is_true(j) ? 1 : 0, ZX_FROM_FILE);
    value_of(r->c, "zero_optimization.stage")->as = path;
    zx_note(r->notes, r->c->mem, "%s: zero_optimization: %s is an old form: it means stage %d",
            r->name, json_is_true(j) ? "true" : "false", json_is_true(j) ? 1 : 0);
    return true;
}

// An old form's words are the key that has its place now, perhaps with the value that true means.
static void map_old(reading *r, uint32_t index)
{
    const zx_config_row *row = &zx_config_rows[index];
    const zx_config_value *v = &r->c->values[index];
    zx_arena *mem = r->c->mem;
    const size_t n = strcspn(row->words, "=");
    bool other;
    const uint32_t to = find_row(zx_arena_strn(mem, row->words, n), &other);
    ZX_ASSERT(to != ZX_NONE);
    zx_config_value *target = &r->c->values[to], got = {.from = ZX_FROM_FILE, .has = true};
    if (row->words[n] == '=' && !v->b) return;
    json_t *json = row->words[n] == '=' ? json_string(row->words + n + 1)
                                        : json_incref((json_t *)(uintptr_t)v->json);
    if (r->c->added == NULL) r->c->added = json_array();
    json_array_append_new(r->c->added, json);
    if (target->from == ZX_FROM_FILE) {
        ZX_FAIL(r->err, ZX_E_USAGE, "%s is an old form of %s; keep one of them", row->path,
                zx_config_rows[to].path);
        return;
    }
    got.as = row->path;
    ZX_ASSERT(parse_value(&zx_config_rows[to], json, mem, &got));
    *target = got;
    zx_note(r->notes, mem, "%s: %s is an old form: it means %s = %s", r->name, row->path,
            zx_config_rows[to].path, json_short(json, mem));
}

static void read_object(reading *r, const char *prefix, const json_t *object)
{
    zx_arena *mem = r->c->mem;
    const char *key;
    json_t *j;
    json_object_foreach((json_t *)(uintptr_t)object, key, j)
    {
        const char *path =
            prefix[0] == '\0' ? zx_arena_str(mem, key) : zx_arena_printf(mem, "%s.%s", prefix, key);
        bool by_other;
        const uint32_t row = strchr(key, '.') == NULL ? find_row(path, &by_other) : ZX_NONE;
        if (row != ZX_NONE) {
            read_key(r, row, path, by_other, j);
        } else if (strchr(key, '.') != NULL || !is_section(path)) {
            unknown_key(r, path);
        } else if (json_is_object(j)) {
            read_object(r, path, j);
        } else if (!json_is_null(j) && !old_zero_form(r, path, j)) {
            ZX_FAIL(r->err, ZX_E_USAGE, "%s must be an object, not %s", path, json_short(j, mem));
        }
    }
}

// ---- judging ------------------------------------------------------------------------------------

// Whether a section around the row says that it is off.
static bool switched_off(const zx_config *c, const zx_config_row *row)
{
    for (const char *dot = strchr(row->path, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        const int n = (int)(dot - row->path);
        for (int k = 0; k < 2; k++) {
            bool other;
            const char *gate =
                zx_arena_printf(c->mem, "%.*s.%s", n, row->path, k == 0 ? "enabled" : "device");
            const uint32_t i = find_row(gate, &other);
            if (i == ZX_NONE || &zx_config_rows[i] == row) continue;
            if (k == 0 ? !c->values[i].b : strcmp(c->values[i].text, "none") == 0) return true;
        }
    }
    return false;
}

// Without the choices before a colon.
const char *zx_config_reason(const zx_config_row *row)
{
    if (row->verdict == ZX_VERDICT_STEERS) return "superseded: the planner decides by itself";
    const bool words = row->type == ZX_KEY_CHOICE || row->type == ZX_KEY_WORDS;
    if (!words || strchr(row->words, ':') == NULL) return row->words;
    return strchr(row->words, ':') + 2;
}

zx_config_state zx_config_judge(const zx_config *c, uint32_t i)
{
    const zx_config_row *row = &zx_config_rows[i];
    const zx_config_value *v = &c->values[i];
    if (v->from != ZX_FROM_FILE)
        return row->verdict == ZX_VERDICT_HONOUR ? ZX_STATE_TAKEN : ZX_STATE_SILENT;
    if (row->verdict == ZX_VERDICT_SILENT) return ZX_STATE_SILENT;
    if (switched_off(c, row)) return ZX_STATE_OFF;
    if (row->verdict == ZX_VERDICT_HONOUR) return v->idle != NULL ? ZX_STATE_IDLE : ZX_STATE_TAKEN;
    if (row->verdict == ZX_VERDICT_REFUSE_OVER_1)
        return v->i > 1 ? ZX_STATE_REFUSED : ZX_STATE_SILENT;
    if (is_default(row, v, c->mem)) return ZX_STATE_SILENT;
    return row->verdict == ZX_VERDICT_REFUSE ? ZX_STATE_REFUSED
           : row->verdict == ZX_VERDICT_OLD  ? ZX_STATE_MAPPED
                                             : ZX_STATE_IDLE;
}

static void refuse(reading *r, const zx_config_row *row, const zx_config_value *v)
{
    const char *way = v->as != NULL && strcmp(v->as, row->other) != 0
                          ? zx_arena_printf(r->c->mem, "remove %s", v->as)
                      : row->value[0] != '\0' && row->type != ZX_KEY_SWITCH
                          ? zx_arena_printf(r->c->mem, "set it to %s or remove it", row->value)
                          : "remove it";
    ZX_FAIL(r->err, ZX_E_USAGE, "%s = %s is not supported: %s; %s", row->path,
            v->json != NULL ? json_short(v->json, r->c->mem) : "?", zx_config_reason(row), way);
}

// Keys without effect for the same reason share a line.
static void say_idle(reading *r, uint32_t first, bool *said)
{
    const char *why = zx_config_reason(&zx_config_rows[first]);
    zx_text keys = {0};
    for (uint32_t k = first; k < zx_config_n_rows; k++) {
        if (zx_config_judge(r->c, k) != ZX_STATE_IDLE) continue;
        if (strcmp(zx_config_reason(&zx_config_rows[k]), why) != 0) continue;
        zx_text_put(&keys, "%s%s", keys.n > 0 ? ", " : "", zx_config_rows[k].path);
        said[k] = true;
    }
    zx_note(r->notes, r->c->mem, "%s: no effect: %s (%s)", r->name, keys.at, why);
    zx_text_free(&keys);
}

static void judge(reading *r)
{
    bool *said = ZX_NEW(r->c->mem, bool, zx_config_n_rows);
    for (uint32_t i = 0; i < zx_config_n_rows; i++)
        if (zx_config_judge(r->c, i) == ZX_STATE_MAPPED) map_old(r, i);
    for (uint32_t i = 0; i < zx_config_n_rows; i++) {
        const zx_config_state state = zx_config_judge(r->c, i);
        if (state == ZX_STATE_REFUSED) refuse(r, &zx_config_rows[i], &r->c->values[i]);
        if (state == ZX_STATE_IDLE && !said[i]) say_idle(r, i, said);
    }
    zx_config_unswitched(r->c, r->name, r->notes);
    const zx_config_value *stage = zx_config_get(r->c, "zero_optimization.stage");
    if (stage->i > 3)
        ZX_FAIL(r->err, ZX_E_USAGE, "zero_optimization.stage must be 0, 1, 2 or 3, not %lld",
                (long long)stage->i);
}

// ---- reading ------------------------------------------------------------------------------------

static void start(zx_config *c, const char *path, zx_arena *mem)
{
    *c = (zx_config){.path = path, .dir = ".", .mem = mem};
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash != NULL)
        c->dir = slash == path ? "/" : zx_arena_strn(mem, path, (size_t)(slash - path));
    c->values = ZX_NEW(mem, zx_config_value, zx_config_n_rows);
    for (uint32_t i = 0; i < zx_config_n_rows; i++)
        zx_config_default(&zx_config_rows[i], mem, &c->values[i]);
}

static zx_status read_root(zx_config *c, bool allow_unknown, zx_notes *notes, zx_err *err)
{
    zx_err found = {0};
    reading r = {
        .c = c, .name = c->path, .allow_unknown = allow_unknown, .notes = notes, .err = &found};
    if (!json_is_object(c->root))
        return ZX_FAIL(err, ZX_E_USAGE, "%s: a config is a JSON object", c->path);
    read_object(&r, "", c->root);
    judge(&r);
    if (found.code == ZX_OK) return ZX_OK;
    zx_err_in(&found, "%s", c->path);
    if (c->n_unknown > 0 && !allow_unknown)
        zx_err_hint(&found, "correct the key, or --allow-unknown to go on without it");
    zx_err_hint(&found, "correct these keys; docs/CONFIG.md lists what is taken");
    return zx_err_merge(err, &found);
}

zx_status zx_config_parse(const char *path, const char *text, size_t n, bool allow_unknown,
                          zx_arena *mem, zx_config *out, zx_notes *notes, zx_err *err)
{
    start(out, path, mem);
    if (zx_json_parse(path, text, n, &out->root, err) != ZX_OK) return ZX_E_USAGE;
    return read_root(out, allow_unknown, notes, err);
}

zx_status zx_config_read(const char *path, bool allow_unknown, zx_arena *mem, zx_config *out,
                         zx_notes *notes, zx_err *err)
{
    start(out, path, mem);
    if (path == NULL) {
        zx_config_set_int(out, "zero_optimization.stage", 3, ZX_FROM_DEFAULT);
        return ZX_OK;
    }
    const zx_status st = zx_json_read(path, &out->root, err);
    if (st != ZX_OK) {
        if (st != ZX_E_IO) err->code = ZX_E_USAGE; // a config that isn't JSON is a usage error
        return err->code;
    }
    return read_root(out, allow_unknown, notes, err);
}

void zx_config_close(zx_config *c)
{
    json_decref(c->root);
    json_decref(c->added);
    *c = (zx_config){0};
}

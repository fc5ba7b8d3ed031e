// options.c - reads a command line by the rows of options.def.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { // bits of the commands' column
#define X(id, word, operand, help, example) id = 1 << ZX_CMD_##id,
    ZX_COMMAND_MAP(X)
#undef X
        ALL = (1 << ZX_CMD_COUNT) - 1
};

typedef enum option_kind { FLAG, TEXT, LIST, NUMBER, COUNT, OPTIONAL } option_kind;

static const struct option_row {
    option_kind kind;
    unsigned commands;
    const char *names, *arg, *help;
} rows[ZX_OPT_COUNT] = {
#define ZX_OPTION(id, kind, names, commands, arg, help) {kind, commands, names, arg, help},
#include "runtime/options.def"
#undef ZX_OPTION
};

static const struct {
    const char *word, *operand, *help, *example;
} commands[ZX_CMD_COUNT] = {
#define X(id, word, operand, help, example) {word, operand, help, example},
    ZX_COMMAND_MAP(X)
#undef X
};

const char *zx_command_word(zx_command c)
{
    return (unsigned)c < ZX_CMD_COUNT ? commands[c].word : "";
}

const char *zx_command_example(zx_command c)
{
    return commands[c].example;
}

bool zx_options_take(zx_command c, zx_option_id id)
{
    return (rows[id].commands & (1u << c)) != 0;
}

bool zx_parse_u64(const char *text, uint64_t *out)
{
    if (text[0] == '\0' || text[strspn(text, "0123456789")] != '\0') return false;
    errno = 0;
    const unsigned long long v = strtoull(text, NULL, 10);
    if (errno != 0) return false;
    *out = v;
    return true;
}

bool zx_parse_name_count(const char *text, size_t *name_n, uint64_t *count)
{
    const char *eq = strrchr(text, '=');
    if (eq == NULL || eq == text) return false;
    *name_n = (size_t)(eq - text);
    return zx_parse_u64(eq + 1, count) && *count >= 1 && *count <= INT64_MAX;
}

bool zx_parse_seconds(const char *text, double *out)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}};
    char *end = NULL;
    const double v = strtod(text, &end);
    if (end == text || !(v >= 0 && v < 3600)) return false;
    for (size_t i = 0; i < ZX_COUNT(units); i++)
        if (strcmp(end, units[i].unit) == 0) {
            *out = v * units[i].seconds;
            return true;
        }
    return false;
}

// Whether `name` (n bytes) is one of the words of `names`.
static bool has_name(const char *names, const char *name, size_t n)
{
    for (const char *at = names; *at != '\0'; at += strspn(at, " ")) {
        const size_t len = strcspn(at, " ");
        if (len == n && memcmp(at, name, n) == 0) return true;
        at += len;
    }
    return false;
}

// The nearest name of an option that this command takes; NULL: none is near.
static const char *nearest_option(const char *name, zx_command c, zx_arena *mem)
{
    uint32_t n = 0, cap = 0;
    const char **names = NULL;
    for (size_t i = 0; i < ZX_OPT_COUNT; i++) {
        if ((rows[i].commands & (1u << c)) == 0 || rows[i].help[0] == '\0') continue;
        for (const char *at = rows[i].names; *at != '\0'; at += strspn(at, " ")) {
            const size_t len = strcspn(at, " ");
            ZX_GROW(mem, names, n, cap);
            names[n++] = zx_arena_strn(mem, at, len);
            at += len;
        }
    }
    return zx_text_nearest(name, names, n);
}

static zx_status unknown_option(const char *name, zx_command c, zx_arena *mem, zx_err *err)
{
    const char *safe = zx_text_safe(mem, name), *near = nearest_option(name, c, mem);
    if (near != NULL) near = zx_arena_printf(mem, "; the nearest is '%s'", near);
    for (size_t i = 0; i < ZX_OPT_COUNT; i++)
        if (has_name(rows[i].names, name, strlen(name)))
            return ZX_FAIL(err, ZX_E_USAGE, "%s has no option '%s'%s", commands[c].word, safe,
                           near != NULL ? near : "");
    return ZX_FAIL(err, ZX_E_USAGE, "unknown option '%s'%s", safe, near != NULL ? near : "");
}

static zx_status add_value(zx_options *o, size_t id, const char *name, const char *arg,
                           zx_arena *mem, zx_err *err)
{
    zx_option_value *v = &o->value[id];
    const option_kind kind = rows[id].kind;
    if (kind == FLAG) {
        v->n++;
        return ZX_OK;
    }
    if (kind == NUMBER || kind == COUNT) {
        if (!zx_parse_u64(arg, &v->number) || (kind == COUNT && v->number == 0))
            return ZX_FAIL(err, ZX_E_USAGE, "%s needs a whole number%s, not '%s'", name,
                           kind == COUNT ? " of at least 1" : "", zx_text_safe(mem, arg));
    }
    ZX_GROW(mem, v->text, v->n, v->cap);
    v->text[v->n++] = arg;
    return ZX_OK;
}

// One option at argv[*at]; moves *at past its argument.
static zx_status parse_option(zx_options *o, int *at, zx_arena *mem, zx_err *err)
{
    const char *word = o->argv[*at];
    const char *eq = word[1] == '-' ? strchr(word, '=') : NULL;
    const size_t n = eq != NULL ? (size_t)(eq - word) : strlen(word);
    const char *name = zx_arena_strn(mem, word, n);
    for (size_t i = 0; i < ZX_OPT_COUNT; i++) {
        if (!has_name(rows[i].names, word, n)) continue;
        if ((rows[i].commands & (1u << o->command)) == 0) break;
        const char *arg = eq != NULL ? eq + 1 : NULL;
        if (rows[i].kind == FLAG && arg != NULL)
            return ZX_FAIL(err, ZX_E_USAGE, "%s takes no argument", name);
        const char *next = *at + 1 < o->argc ? o->argv[*at + 1] : "-";
        if (rows[i].kind == OPTIONAL) {
            if (arg == NULL && next[0] != '-') arg = o->argv[++*at];
        } else if (rows[i].kind != FLAG && arg == NULL) {
            if (*at + 1 >= o->argc)
                return ZX_FAIL(err, ZX_E_USAGE, "%s needs an argument: %s", name, rows[i].arg);
            arg = o->argv[++*at];
        }
        return add_value(o, i, name, arg, mem, err);
    }
    return unknown_option(name, o->command, mem, err);
}

static zx_status parse_command(zx_options *o, zx_arena *mem, zx_err *err)
{
    static const char *const words[] = {
#define X(id, word, operand, help, example) word,
        ZX_COMMAND_MAP(X)
#undef X
    };
    const char *word = o->argc > 1 ? o->argv[1] : "";
    for (unsigned c = 0; c < ZX_CMD_COUNT; c++)
        if (strcmp(word, commands[c].word) == 0) {
            o->command = (zx_command)c;
            return ZX_OK;
        }
    o->help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
    o->version = strcmp(word, "--version") == 0 || strcmp(word, "version") == 0;
    if (o->help || o->version) return ZX_OK;
    if (word[0] == '\0') return ZX_FAIL(err, ZX_E_USAGE, "no command given");
    const char *near = zx_text_nearest(word, words, ZX_COUNT(words));
    const char *safe = zx_text_safe(mem, word);
    if (near == NULL)
        return ZX_FAIL(err, ZX_E_USAGE, "unknown %s '%s'", word[0] == '-' ? "option" : "command",
                       safe);
    return ZX_FAIL(err, ZX_E_USAGE, "unknown command '%s'; the nearest is '%s'", safe, near);
}

static bool takes_many(zx_command c)
{
    return strstr(commands[c].operand, "...") != NULL;
}

static bool takes_two(zx_command c)
{
    return strchr(commands[c].operand, ' ') != NULL;
}

static zx_status parse_rest(zx_options *o, zx_arena *mem, zx_err *err)
{
    bool options_end = false;
    for (int at = 2; at < o->argc; at++) {
        const char *word = o->argv[at];
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
        } else if (!options_end && word[0] == '-' && word[1] != '\0') {
            ZX_TRY(parse_option(o, &at, mem, err));
        } else if (commands[o->command].operand[0] == '\0') {
            return ZX_FAIL(err, ZX_E_USAGE, "%s takes no '%s'", commands[o->command].word,
                           zx_text_safe(mem, word));
        } else if (takes_many(o->command)) {
            if (o->operands == NULL) o->operands = ZX_NEW(mem, const char *, (size_t)o->argc);
            o->operands[o->n_operands++] = word;
            if (o->operand == NULL) o->operand = word;
        } else if (o->operand != NULL && o->second == NULL && takes_two(o->command)) {
            o->second = word;
        } else if (o->operand != NULL) {
            if (takes_two(o->command))
                return ZX_FAIL(err, ZX_E_USAGE, "%s takes two: '%s' is one too many",
                               commands[o->command].word, zx_text_safe(mem, word));
            return ZX_FAIL(err, ZX_E_USAGE, "one %s is enough: '%s' and '%s' were given",
                           commands[o->command].operand, zx_text_safe(mem, o->operand),
                           zx_text_safe(mem, word));
        } else {
            o->operand = word;
        }
    }
    o->help = o->value[ZX_OPT_HELP].n > 0;
    const bool whole = o->operand != NULL && (o->second != NULL || !takes_two(o->command));
    if (o->help || whole || commands[o->command].operand[0] == '\0') return ZX_OK;
    if (commands[o->command].operand[0] == '[') return ZX_OK; // it may be left out
    if (o->command == ZX_CMD_NEW && o->value[ZX_OPT_LIST_PRESETS].n > 0) return ZX_OK;
    if (o->command == ZX_CMD_TRAIN && o->value[ZX_OPT_RESUME].n > 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "%s needs %s%s", commands[o->command].word,
                   takes_two(o->command) ? "" : "a ", commands[o->command].operand);
}

// --json is --format json.
static zx_status take_json(zx_options *o, zx_arena *mem, zx_err *err)
{
    static const char *const json[] = {"json"};
    zx_option_value *format = &o->value[ZX_OPT_FORMAT];
    if (!zx_given(o, ZX_OPT_JSON)) return ZX_OK;
    const char *given = zx_given_text(o, ZX_OPT_FORMAT);
    if (given != NULL && strcmp(given, json[0]) != 0)
        return ZX_FAIL(err, ZX_E_USAGE, "--json is --format json, and --format %s was given too",
                       zx_text_safe(mem, given));
    *format = (zx_option_value){.n = 1, .text = (const char **)(uintptr_t)json};
    return ZX_OK;
}

// What prints a list of everything chooses nothing: whatever stands beside it would have no effect.
static zx_status check_lists(const zx_options *o, zx_arena *mem, zx_err *err)
{
    static const zx_option_id lists[] = {ZX_OPT_LIST_PRESETS, ZX_OPT_SCHEMA};
    for (size_t k = 0; k < ZX_COUNT(lists); k++) {
        const zx_option_id list = lists[k];
        if (o->help || !zx_given(o, list)) continue;
        const char *beside = o->operand != NULL ? zx_text_safe(mem, o->operand) : NULL;
        for (uint32_t i = 0; i < ZX_OPT_COUNT && beside == NULL; i++)
            if (i != (uint32_t)list && i != ZX_OPT_EXPLAIN && i != ZX_OPT_HELP &&
                zx_given(o, (zx_option_id)i))
                beside = zx_option_word((zx_option_id)i, mem);
        if (beside != NULL)
            return ZX_FAIL(err, ZX_E_USAGE, "%s prints all there is: %s has no effect beside it",
                           zx_option_word(list, mem), beside);
    }
    return ZX_OK;
}

const char *zx_option_word(zx_option_id id, zx_arena *mem)
{
    return zx_arena_strn(mem, rows[id].names, strcspn(rows[id].names, " "));
}

bool zx_option_has_argument(zx_option_id id)
{
    return rows[id].kind != FLAG;
}

zx_status zx_options_add(zx_options *o, zx_option_id id, const char *arg, zx_arena *mem,
                         zx_err *err)
{
    return add_value(o, id, zx_option_word(id, mem), arg, mem, err);
}

zx_status zx_options_parse(int argc, char *const *argv, zx_arena *mem, zx_options *out, zx_err *err)
{
    *out = (zx_options){.command = ZX_CMD_NONE, .argc = argc, .argv = argv};
    zx_status st = parse_command(out, mem, err);
    if (st == ZX_OK && out->command != ZX_CMD_NONE) st = parse_rest(out, mem, err);
    if (st == ZX_OK) st = check_lists(out, mem, err);
    if (st == ZX_OK) st = take_json(out, mem, err);
    if (st == ZX_OK && out->command != ZX_CMD_NONE) st = zx_options_check_idle(out, err);
    if (st != ZX_OK && out->command == ZX_CMD_NONE) zx_err_hint(err, "'zerox --help'");
    if (st != ZX_OK) zx_err_hint(err, "'zerox %s --help'", zx_command_word(out->command));
    return st;
}

// ---- help ---------------------------------------------------------------------------------------

enum { HELP_INDENT = 30, HELP_WIDTH = 96 };

// `text` wrapped into the right-hand column; the cursor stands at `column`.
static void put_wrapped(zx_text *out, size_t column, const char *text)
{
    if (column >= HELP_INDENT) {
        zx_text_put(out, "\n");
        column = 0;
    }
    zx_text_put(out, "%*s", (int)(HELP_INDENT - column), "");
    size_t at = HELP_INDENT;
    for (bool first = true; *text != '\0'; first = false) {
        const size_t n = strcspn(text, " ");
        const bool fits = at + 1 + n <= HELP_WIDTH;
        if (!first && fits) zx_text_put(out, " ");
        if (!first && !fits) zx_text_put(out, "\n%*s", HELP_INDENT, "");
        at = first ? at + n : fits ? at + 1 + n : HELP_INDENT + n;
        zx_text_bytes(out, text, n);
        text += n;
        text += strspn(text, " ");
    }
    zx_text_put(out, "\n");
}

static void put_option(zx_text *out, const struct option_row *row)
{
    const size_t before = out->n;
    zx_text_put(out, "  ");
    for (const char *at = row->names; *at != '\0'; at += strspn(at, " ")) {
        const size_t n = strcspn(at, " ");
        zx_text_put(out, "%s%.*s", at == row->names ? "" : ", ", (int)n, at);
        at += n;
    }
    if (row->arg[0] != '\0') zx_text_put(out, " %s", row->arg);
    put_wrapped(out, out->n - before, row->help);
}

void zx_options_help(zx_command c, zx_text *out)
{
    if (c == ZX_CMD_NONE) {
        zx_text_put(out,
                    "zerox trains neural networks from ONNX files, sharded as in ZeRO stage 3, "
                    "by a plan made ahead\nof time.\n\nusage: zerox COMMAND ...\n\n");
        for (unsigned i = 0; i < ZX_CMD_COUNT; i++) {
            const size_t before = out->n;
            zx_text_put(out, "  %s %s", commands[i].word, commands[i].operand);
            put_wrapped(out, out->n - before, commands[i].help);
        }
        zx_text_put(out, "  --version");
        put_wrapped(out, 11, "zerox and the libraries that it runs on");
        zx_text_put(out, "\n'zerox COMMAND --help' lists a command's options.\n");
        return;
    }
    zx_text_put(out, "usage: zerox %s %s%s[options]\n\nzerox %s: %s\n\n", commands[c].word,
                commands[c].operand, commands[c].operand[0] != '\0' ? " " : "", commands[c].word,
                commands[c].help);
    for (size_t i = 0; i < ZX_OPT_COUNT; i++)
        if ((rows[i].commands & (1u << c)) != 0 && rows[i].help[0] != '\0')
            put_option(out, &rows[i]);
    zx_text_put(out, "\nexample:\n");
    for (const char *at = commands[c].example; *at != '\0';) {
        const size_t n = strcspn(at, "\n");
        zx_text_put(out, "  %.*s\n", (int)n, at);
        at += n + (at[n] != '\0');
    }
}

void zx_options_document(zx_text *out)
{
    for (unsigned c = 0; c < ZX_CMD_COUNT; c++)
        zx_text_put(out, "%s**zerox %s %s%s[options]**: %s.\n\n```\n%s\n```\n", c > 0 ? "\n" : "",
                    commands[c].word, commands[c].operand,
                    commands[c].operand[0] != '\0' ? " " : "", commands[c].help,
                    commands[c].example);
}

// json.c - see json.h.
// SPDX-License-Identifier: Apache-2.0
#include "proto/json.h"

#include <stdlib.h>
#include <string.h>

#include "graph/base/arena.h"
#include "graph/base/text.h"
#include "proto/mapfile.h"

#define BOM "\xEF\xBB\xBF"

typedef struct blanker { // copies JSON text, putting blanks for what JSON has no words for
    const char *in;
    size_t n, at;
    char *out; // room for n bytes
    size_t n_out;
} blanker;

// Copies one byte of a comment as a blank. Line breaks stay, and one blank is written for each
// character, not byte: line and column in errors remain those of the file.
static void blank(blanker *b)
{
    const char c = b->in[b->at++];
    if (c == '\n' || c == '\r')
        b->out[b->n_out++] = c;
    else if (((unsigned char)c & 0xC0) != 0x80)
        b->out[b->n_out++] = ' ';
}

static void copy_string(blanker *b)
{
    do {
        if (b->in[b->at] == '\\' && b->at + 1 < b->n) b->out[b->n_out++] = b->in[b->at++];
        b->out[b->n_out++] = b->in[b->at++];
    } while (b->at < b->n && b->in[b->at] != '"' && b->in[b->at] != '\n');
    if (b->at < b->n) b->out[b->n_out++] = b->in[b->at++]; // jansson complains of a raw line break
}

static void blank_line(blanker *b)
{
    while (b->at < b->n && b->in[b->at] != '\n') blank(b);
}

// False if the comment has no end.
static bool blank_block(blanker *b)
{
    blank(b);
    blank(b);
    for (; b->at < b->n; blank(b)) {
        if (b->in[b->at] != '*' || b->at + 1 >= b->n || b->in[b->at + 1] != '/') continue;
        blank(b);
        blank(b);
        return true;
    }
    return false;
}

// The text with comments and trailing commas blanked, in *b; false if a comment has no end, at
// *open. A comma is trailing if a value stands before it and a closing bracket after it.
static bool blank_comments(blanker *b, size_t *open)
{
    char before = '\0'; // last character that meant something, commas apart
    size_t comma = SIZE_MAX;
    while (b->at < b->n) {
        const char c = b->in[b->at], next = b->at + 1 < b->n ? b->in[b->at + 1] : '\0';
        if (c == '#' || (c == '/' && next == '/')) {
            blank_line(b);
        } else if (c == '/' && next == '*') {
            *open = b->at;
            if (!blank_block(b)) return false;
        } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            b->out[b->n_out++] = b->in[b->at++];
        } else if (c == ',') {
            // A second comma, or one before any value, stays for jansson to refuse. (strchr also
            // finds the '\0' that `before` is at the start.)
            comma = comma == SIZE_MAX && strchr("[{:", before) == NULL ? b->n_out : SIZE_MAX;
            b->out[b->n_out++] = b->in[b->at++];
            if (comma == SIZE_MAX) before = '[';
        } else {
            if ((c == ']' || c == '}') && comma != SIZE_MAX) b->out[comma] = ' ';
            comma = SIZE_MAX;
            before = c;
            if (c == '"')
                copy_string(b);
            else
                b->out[b->n_out++] = b->in[b->at++];
        }
    }
    return true;
}

static void line_and_column(const char *text, size_t at, int *line, int *column)
{
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else if (((unsigned char)text[i] & 0xC0) != 0x80) {
            (*column)++;
        }
    }
}

zx_status zx_json_parse(const char *what, const char *text, size_t n, json_t **out, zx_err *err)
{
    zx_status st = ZX_OK;
    zx_arena mem = {0};
    *out = NULL;
    if (n >= 3 && memcmp(text, BOM, 3) == 0) {
        text += 3;
        n -= 3;
    }
    if (n == 0) {
        zx_err_hint(err, "a JSON object, {} at least, or leave the file out");
        return ZX_FAIL(err, ZX_E_USAGE, "%s is empty", what);
    }
    blanker b = {.in = text, .n = n, .out = malloc(n)};
    ZX_ASSERT(b.out != NULL);
    size_t open = 0;
    if (!blank_comments(&b, &open)) {
        int line, column;
        line_and_column(text, open, &line, &column);
        st = ZX_FAIL(err, ZX_E_USAGE, "%s:%d:%d: this comment has no end", what, line, column);
        goto done;
    }
    json_error_t why;
    *out = json_loadb(b.out, b.n_out, JSON_REJECT_DUPLICATES, &why);
    if (*out == NULL) {
        zx_err_hint(err, "mend the JSON at or before line %d, column %d", why.line, why.column);
        st = ZX_FAIL(err, ZX_E_USAGE, "%s:%d:%d: %s", what, why.line, why.column,
                     zx_text_safe(&mem, why.text));
    }
done:
    free(b.out);
    zx_arena_free(&mem);
    return st;
}

zx_status zx_json_read(const char *path, json_t **out, zx_err *err)
{
    zx_mapfile m;
    *out = NULL;
    ZX_TRY(zx_mapfile_open(&m, path, err));
    const zx_status st = zx_json_parse(path, (const char *)m.bytes, (size_t)m.size, out, err);
    zx_mapfile_close(&m);
    return st;
}

// err.c - see err.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void zx_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "zerox: %s:%d: bug: %s\n", file, line, what);
    abort();
}

void zx_no_memory(size_t bytes)
{
    fprintf(stderr,
            "zerox: the host has no memory for another %zu bytes\n"
            "try: fewer ranks, or a host with more memory\n",
            bytes);
    _exit(1);
}

static const struct {
    int exit_code;
    const char *text;
} rows[ZX_STATUS_COUNT] = {
#define X(name, exit_code, words) [ZX_##name] = {exit_code, words},
    ZX_STATUS_MAP(X)
#undef X
};

const char *zx_status_text(zx_status code)
{
    return (size_t)code < ZX_COUNT(rows) ? rows[code].text : "unknown status";
}

int zx_status_exit(zx_status code)
{
    return (size_t)code < ZX_COUNT(rows) ? rows[code].exit_code : 1;
}

zx_status zx_err_set(zx_err *err, zx_status code, const char *file, int line, const char *fmt, ...)
{
    ZX_ASSERT(code != ZX_OK);
    if (err == NULL) return code;
    if (err->code == ZX_OK) {
        err->code = code;
        err->file = file;
        err->line = line;
    }
    const uint32_t at = err->n_causes++;
    if (at >= ZX_ERR_KEPT) return code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->cause[at], ZX_ERR_TEXT, fmt, ap);
    va_end(ap);
    return code;
}

void zx_err_in(zx_err *err, const char *fmt, ...)
{
    if (err == NULL) return;
    char prefix[ZX_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    size_t n = strlen(prefix);
    if (n > ZX_ERR_TEXT / 2) { // a name without end: the cause itself must stay readable
        n = ZX_ERR_TEXT / 2;
        while (n > 0 && ((unsigned char)prefix[n] & 0xC0) == 0x80) n--; // not within a character
        memcpy(prefix + n, "...", 4);
        n += 3;
    }
    for (uint32_t i = 0; i < err->n_causes && i < ZX_ERR_KEPT; i++) {
        char *c = err->cause[i];
        const size_t room = ZX_ERR_TEXT - n - 3, keep = strlen(c) < room ? strlen(c) : room;
        memmove(c + n + 2, c, keep);
        memcpy(c, prefix, n);
        c[n] = ':';
        c[n + 1] = ' ';
        c[n + 2 + keep] = '\0';
    }
}

void zx_err_hint(zx_err *err, const char *fmt, ...)
{
    if (err == NULL || err->hint[0] != '\0') return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->hint, sizeof err->hint, fmt, ap);
    va_end(ap);
}

zx_status zx_err_merge(zx_err *err, const zx_err *more)
{
    if (more->code == ZX_OK) return err->code;
    if (err->code == ZX_OK) {
        err->code = more->code;
        err->file = more->file;
        err->line = more->line;
    }
    for (uint32_t i = 0; i < more->n_causes; i++, err->n_causes++)
        if (i < ZX_ERR_KEPT && err->n_causes < ZX_ERR_KEPT)
            memcpy(err->cause[err->n_causes], more->cause[i], ZX_ERR_TEXT);
    if (err->hint[0] == '\0') memcpy(err->hint, more->hint, sizeof err->hint);
    return err->code;
}

// text.h - text that grows, and the few ways in which zerox writes names, sizes and times.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_BASE_TEXT_H
#define ZX_BASE_TEXT_H

#include "graph/base/arena.h"
#include "graph/base/err.h"

ZX_BEGIN_C

typedef struct zx_text { // zeroed is empty; `at` is NUL-terminated once anything was put
    char *at;
    size_t n, cap;
} zx_text;

void zx_text_put(zx_text *t, const char *fmt, ...) ZX_PRINTF(2, 3);
void zx_text_bytes(zx_text *t, const void *bytes, size_t n);
void zx_text_free(zx_text *t);

// Names come from files: control characters and bytes that aren't UTF-8 become \xNN, so that no
// name can move the cursor or forge a line. Into `mem`; `name` itself where nothing had to change.
const char *zx_text_safe(zx_arena *mem, const char *name);
// `s` as a JSON string, quotes included, appended to t; invalid UTF-8 becomes U+FFFD.
void zx_text_json(zx_text *t, const char *s);

// The one of `names` (n of them) that `name` was probably meant to be: at most a third of its
// letters differ, or one begins with the other; NULL if none is near.
const char *zx_text_nearest(const char *name, const char *const *names, size_t n);
bool zx_text_match(const char *glob, const char *name); // * and ?, the whole name

#define ZX_BYTES_TEXT 32
const char *zx_text_size(uint64_t bytes, char buf[ZX_BYTES_TEXT]); // "38 MiB", "1.21 GiB", "512 B"
// "24GB" (10^9), "24GiB" (2^30), "1.5M", "4096", "4096B"; false if it is none of these or too big.
bool zx_text_parse_size(const char *s, uint64_t *bytes);
const char *zx_text_count(double n, char buf[ZX_BYTES_TEXT]); // "1.6k", "124M"

ZX_END_C

#endif

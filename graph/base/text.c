// text.c - see text.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void reserve(zx_text *t, size_t more)
{
    if (t->n + more + 1 <= t->cap) return;
    size_t cap = t->cap < 256 ? 256 : t->cap;
    while (cap < t->n + more + 1) cap *= 2;
    t->at = realloc(t->at, cap);
    ZX_ASSERT(t->at != NULL);
    t->cap = cap;
}

void zx_text_bytes(zx_text *t, const void *bytes, size_t n)
{
    reserve(t, n);
    if (n > 0) memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = '\0';
}

void zx_text_put(zx_text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ZX_ASSERT(n >= 0);
    reserve(t, (size_t)n);
    vsnprintf(t->at + t->n, (size_t)n + 1, fmt, again);
    va_end(again);
    t->n += (size_t)n;
}

void zx_text_free(zx_text *t)
{
    free(t->at);
    *t = (zx_text){0};
}

// Length of the well-formed UTF-8 sequence at s, 0 if there is none (RFC 3629, table 3-7 of
// Unicode: no overlong forms, no surrogates, nothing above U+10FFFF).
static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) return (s[1] & 0xC0) == 0x80 ? 2 : 0;
    if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        const unsigned lo = s[0] == 0xE0 ? 0xA0 : 0x80, hi = s[0] == 0xED ? 0x9F : 0xBF;
        return s[1] >= lo && s[1] <= hi && (s[2] & 0xC0) == 0x80 ? 3 : 0;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        const unsigned lo = s[0] == 0xF0 ? 0x90 : 0x80, hi = s[0] == 0xF4 ? 0x8F : 0xBF;
        return s[1] >= lo && s[1] <= hi && (s[2] & 0xC0) == 0x80 && (s[3] & 0xC0) == 0x80 ? 4 : 0;
    }
    return 0;
}

// Length of a harmless sequence; 0 for control characters (C1 too, U+0080 to U+009F) and junk.
static size_t harmless_length(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7F) return 0;
    if (s[0] == 0xC2 && s[1] < 0xA0) return 0;
    return utf8_length(s);
}

const char *zx_text_safe(zx_arena *mem, const char *name)
{
    const unsigned char *s = (const unsigned char *)name;
    size_t bad = 0, n = 0;
    for (size_t step; s[n] != 0; n += step ? step : 1) {
        step = harmless_length(s + n);
        if (step == 0) bad++;
    }
    if (bad == 0) return name;
    char *to = ZX_NEW(mem, char, n + 3 * bad + 1);
    size_t w = 0;
    for (size_t i = 0; s[i] != 0;) {
        const size_t step = harmless_length(s + i);
        if (step == 0) {
            w += (size_t)sprintf(to + w, "\\x%02x", s[i]);
            i++;
        } else {
            memcpy(to + w, s + i, step);
            w += step;
            i += step;
        }
    }
    return to;
}

void zx_text_json(zx_text *t, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    zx_text_bytes(t, "\"", 1);
    while (*s != 0) {
        const size_t step = utf8_length(s);
        if (step == 0)
            zx_text_put(t, "\xEF\xBF\xBD");
        else if (*s == '"' || *s == '\\')
            zx_text_put(t, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7F)
            zx_text_put(t, "\\u%04x", *s);
        else
            zx_text_bytes(t, s, step);
        s += step ? step : 1;
    }
    zx_text_bytes(t, "\"", 1);
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// Letters that are inserted, left out, changed or swapped with the next one, regardless of case;
// SIZE_MAX for names of more than 64 characters.
static size_t distance(const char *a, const char *b)
{
    enum { MOST = 64 };
    const size_t n = strlen(a), m = strlen(b);
    if (n > MOST || m > MOST) return SIZE_MAX;
    size_t rows[3][MOST + 1]; // of i - 2, i - 1 and i, in turn
    for (size_t j = 0; j <= m; j++) rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = above[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            if (above[j] + 1 < best) best = above[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            const bool swapped = i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                                 same_letter(a[i - 2], b[j - 1]);
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

// How many letters the shorter one has where the longer one begins with it and is at most twice as
// long: "output" and "out"; else 0.
static size_t common_start(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b), less = n < m ? n : m, more = n < m ? m : n;
    for (size_t i = 0; i < less; i++)
        if (!same_letter(a[i], b[i])) return 0;
    return less >= 3 && more <= 2 * less ? less : 0;
}

const char *zx_text_nearest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL, *longest = NULL;
    size_t least = SIZE_MAX, start = 0;
    const char *letters = name + strspn(name, "-"); // every option begins like every other
    for (size_t i = 0; i < n; i++) {
        const char *other = names[i] + strspn(names[i], "-");
        const size_t d = distance(letters, other), s = common_start(letters, other);
        if (d < least) {
            least = d;
            best = names[i];
        }
        if (s > start) {
            start = s;
            longest = names[i];
        }
    }
    const size_t n_letters = strlen(letters);
    const size_t allowed = n_letters / 3 > 1 ? n_letters / 3 : 1;
    return least <= allowed && 2 * least <= n_letters ? best : longest;
}

bool zx_text_match(const char *glob, const char *name)
{
    const char *star = NULL, *back = NULL; // the last * and the first character it doesn't eat yet
    while (*name != '\0') {
        if (*glob == '*') {
            star = glob++;
            back = name;
        } else if (*glob == '?' || *glob == *name) {
            glob++;
            name++;
        } else if (star != NULL) {
            glob = star + 1;
            name = ++back;
        } else {
            return false;
        }
    }
    while (*glob == '*') glob++;
    return *glob == '\0';
}

const char *zx_text_size(uint64_t bytes, char buf[ZX_BYTES_TEXT])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    size_t u = 0;
    while (x >= 999.5 && u + 1 < ZX_COUNT(unit)) {
        x /= 1024;
        u++;
    }
    const int digits = u == 0 || x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
    snprintf(buf, ZX_BYTES_TEXT, "%.*f %s", digits, x, unit[u]);
    return buf;
}

bool zx_text_parse_size(const char *s, uint64_t *bytes)
{
    static const struct {
        const char *word;
        double factor;
    } units[] = {{"", 1},         {"B", 1},           {"K", 1e3},      {"KB", 1e3},    {"M", 1e6},
                 {"MB", 1e6},     {"G", 1e9},         {"GB", 1e9},     {"T", 1e12},    {"TB", 1e12},
                 {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
    // strtod alone would take signs, spaces, "inf" and hexadecimal.
    if (s[strspn(s, "0123456789.")] == 'x' || (!isdigit((unsigned char)s[0]) && s[0] != '.'))
        return false;
    char *end;
    const unsigned long long whole = strtoull(s, &end, 10);
    if (*end == '\0') { // exact for plain byte counts, whatever their size
        *bytes = whole;
        return strlen(s) <= 19;
    }
    const double x = strtod(s, &end);
    while (*end == ' ') end++;
    for (size_t i = 0; i < ZX_COUNT(units); i++) {
        if (strcasecmp(end, units[i].word) != 0) continue;
        const double total = x * units[i].factor;
        if (!(total >= 0 && total < 0x1p62)) return false;
        *bytes = (uint64_t)total;
        return true;
    }
    return false;
}

const char *zx_text_count(double n, char buf[ZX_BYTES_TEXT])
{
    static const char *const unit[] = {"", "k", "M", "G", "T", "P"};
    size_t u = 0;
    while (n >= 999.5 && u + 1 < ZX_COUNT(unit)) {
        n /= 1000;
        u++;
    }
    snprintf(buf, ZX_BYTES_TEXT, "%.*f%s",
             u == 0 || n >= 99.95 ? 0
             : n >= 9.995         ? 1
                                  : 2,
             n, unit[u]);
    return buf;
}

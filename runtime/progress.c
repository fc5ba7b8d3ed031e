// progress.c - see progress.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *zx_progress_time(double seconds, char buf[ZX_BYTES_TEXT])
{
    static const struct {
        double below, factor;
        const char *unit;
    } rows[] = {{0.9995e-3, 1e6, "us"}, {0.9995, 1e3, "ms"}, {INFINITY, 1, "s"}};
    size_t i = seconds > 0 ? 0 : 1; // nothing is 0 ms
    while (i + 1 < ZX_COUNT(rows) && seconds >= rows[i].below) i++;
    const double x = seconds * rows[i].factor;
    snprintf(buf, ZX_BYTES_TEXT, "%.*f %s",
             x == 0 || x >= 99.95 ? 0
             : x >= 9.995         ? 1
                                  : 2,
             x, rows[i].unit);
    return buf;
}

const char *zx_progress_clock(double seconds, char buf[ZX_BYTES_TEXT])
{
    const uint64_t s = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(buf, ZX_BYTES_TEXT, "%llu:%02u:%02u", (unsigned long long)(s / 3600),
                 (unsigned)(s / 60 % 60), (unsigned)(s % 60));
    else
        snprintf(buf, ZX_BYTES_TEXT, "%u:%02u", (unsigned)(s / 60), (unsigned)(s % 60));
    return buf;
}

// "3.0e-4": %.1e without the exponent's leading zero and plus.
static void put_rate(zx_text *out, double lr)
{
    char buf[32];
    snprintf(buf, sizeof buf, "%.1e", lr);
    char *e = strchr(buf, 'e');
    if (e == NULL || lr == 0) {
        zx_text_put(out, " lr %g", lr);
        return;
    }
    zx_text_put(out, " lr %.*se%d", (int)(e - buf), buf, atoi(e + 1));
}

// Two digits behind the point, fewer for larger numbers, an exponent for small ones.
static void put_short(zx_text *out, double x)
{
    if (isnan(x)) x = fabs(x); // "nan", never "-nan"
    if (x != 0 && fabs(x) < 0.01)
        zx_text_put(out, "%.1e", x);
    else
        zx_text_put(out, "%.*f", fabs(x) >= 99.5 ? 0 : fabs(x) >= 9.95 ? 1 : 2, x);
}

// "1.6k", "152k", "24".
static void put_speed(zx_text *out, double x)
{
    static const char *const units[] = {"", "k", "M", "G"};
    size_t u = 0;
    for (; x >= 999.5 && u + 1 < ZX_COUNT(units); u++) x /= 1000;
    zx_text_put(out, " %.*f%s", x >= 9.95 ? 0 : 1, x, units[u]);
}

static uint32_t columns(const zx_text *out, size_t from) // a character of UTF-8 is one
{
    uint32_t n = 0;
    for (size_t i = from; i < out->n; i++) n += ((unsigned char)out->at[i] & 0xc0) != 0x80;
    return n;
}

// The fields of a line, one behind the other, as long as they fit.
typedef struct fields {
    zx_text *out;
    size_t before; // where the line begins
    size_t end;    // of the last field that fits
    uint32_t width;
    bool full;
} fields;

// What was put since the last call is one field.
static void field(fields *f)
{
    if (f->width > 0 && columns(f->out, f->before) > f->width) f->full = true;
    if (!f->full) f->end = f->out->n;
}

void zx_progress_line(const zx_progress_step *s, uint32_t width, zx_text *out)
{
    enum { WIDE = 100 };
    char buf[ZX_BYTES_TEXT];
    fields f = {out, out->n, out->n, width, false};
    const int digits = snprintf(buf, sizeof buf, "%llu", (unsigned long long)s->steps);
    zx_text_put(out, "step %*llu/%s", digits, (unsigned long long)s->step, buf);
    f.end = out->n;
    zx_text_put(out, " loss %#.4g", isnan(s->loss) ? fabs(s->loss) : s->loss);
    field(&f);
    if (s->eval_loss != 0)
        zx_text_put(out, " eval %#.4g", isnan(s->eval_loss) ? fabs(s->eval_loss) : s->eval_loss);
    field(&f);
    zx_text_put(out, " |g| ");
    put_short(out, s->grad_norm);
    if (s->overflow_scale > 0) zx_text_put(out, " overflow, scale %.9g", s->overflow_scale);
    if (s->skipped) zx_text_put(out, " not finite, skipped");
    if (s->clip_factor > 0 && s->clip_factor < 1) {
        zx_text_put(out, "→");
        put_short(out, s->grad_norm * s->clip_factor);
    }
    field(&f);
    put_rate(out, s->lr);
    field(&f);
    put_speed(out, s->rate);
    zx_text_put(out, " %s", s->unit);
    field(&f);
    zx_text_put(out, " %s", zx_progress_time(s->seconds, buf));
    field(&f);
    if (s->eta >= 0) zx_text_put(out, " eta %s", zx_progress_clock(s->eta, buf));
    field(&f);
    if (width >= WIDE) {
        if (s->exposed_seconds >= 0)
            zx_text_put(out, " exposed %s", zx_progress_time(s->exposed_seconds, buf));
        field(&f);
        if (s->resident_bytes > 0)
            zx_text_put(out, " mem %s", zx_text_size(s->resident_bytes, buf));
        field(&f);
    }
    out->n = f.end;
    out->at[out->n] = '\0';
}

zx_progress_style zx_progress_style_of(int fd)
{
    zx_progress_style style = {0};
    const char *term = getenv("TERM"), *columns = getenv("COLUMNS");
    struct winsize size;
    style.in_place = isatty(fd) == 1 && (term == NULL || strcmp(term, "dumb") != 0);
    const int stated = columns != NULL ? atoi(columns) : 0;
    if (stated >= 20 && stated <= 1000)
        style.width = (uint32_t)stated;
    else if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        style.width = size.ws_col;
    else if (style.in_place)
        style.width = 80;
    return style;
}

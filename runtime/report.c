// report.c - see report.h: fills the page's template, report/page.html.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/report.h"

#include <string.h>

#include "runtime/report_priv.h"

void zx_report_escape(zx_text *out, const char *name)
{
    zx_arena mem = {0};
    for (const char *c = zx_text_safe(&mem, name); *c != '\0'; c++) switch (*c) {
        case '&':
            zx_text_put(out, "&amp;");
            break;
        case '<':
            zx_text_put(out, "&lt;");
            break;
        case '>':
            zx_text_put(out, "&gt;");
            break;
        case '"':
            zx_text_put(out, "&quot;");
            break;
        case '\'':
            zx_text_put(out, "&#39;");
            break;
        default:
            if (strncmp(c, "\xE2\x80\xA8", 3) == 0 || strncmp(c, "\xE2\x80\xA9", 3) == 0) {
                zx_text_put(out, "&#823%c;", c[2] == '\xA8' ? '2' : '3');
                c += 2;
            } else
                zx_text_bytes(out, c, 1);
        }
    zx_arena_free(&mem);
}

// In JSON these only occur within strings, where each may be written as \uXXXX: no text can end the
// script that the data stand in.
void zx_report_json_safe(zx_text *out, const char *json)
{
    for (const char *c = json; *c != '\0';) {
        const size_t n = strcspn(c, "<>&\xE2");
        zx_text_bytes(out, c, n);
        c += n;
        if (*c == '\0') break;
        if (strncmp(c, "\xE2\x80\xA8", 3) == 0 || strncmp(c, "\xE2\x80\xA9", 3) == 0) {
            zx_text_put(out, "\\u202%c", c[2] == '\xA8' ? '8' : '9');
            c += 3;
        } else if (*c == '\xE2') {
            zx_text_bytes(out, c++, 1);
        } else {
            zx_text_put(out, "\\u%04x", (unsigned)*c++);
        }
    }
}

void zx_report_seconds(zx_text *out, double seconds)
{
    static const struct {
        double from, by;
        const char *unit;
    } units[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {1e-6, 1e6, "&micro;s"}, {0, 1e9, "ns"}};
    size_t k = 0;
    if (seconds < 5e-12) { // a rest of rounding
        zx_text_put(out, "0&nbsp;s");
        return;
    }
    while (k + 1 < ZX_COUNT(units) && seconds < units[k].from) k++;
    const double x = seconds * units[k].by;
    const int places = x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2;
    zx_text_put(out, "%.*f&nbsp;%s", places, x, units[k].unit);
}

void zx_report_bytes(zx_text *out, uint64_t bytes)
{
    char b[ZX_BYTES_TEXT];
    zx_text_put(out, "%s", zx_text_size(bytes, b));
}

zx_plan zx_report_measured(const zx_report *r)
{
    zx_plan p = *r->plan;
    if (r->measured_seconds == NULL) return p;
    p.start = r->measured_start;
    p.seconds = r->measured_seconds;
    p.step_seconds = r->measured_step_seconds;
    return p;
}

const char *zx_report_file_text(const char *name)
{
    for (const zx_report_file *f = zx_report_files; f->name != NULL; f++)
        if (strcmp(f->name, name) == 0) return f->text;
    ZX_ASSERT(!"every piece of the page is embedded");
    return "";
}

// ---- what the template's marks stand for
// ------------------------------------------------------------------------

static void put_title(const zx_report *r, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    zx_report_escape(out, r->title);
}
static void put_style(const zx_report *r ZX_UNUSED, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    zx_text_put(out, "%s", zx_report_file_text("style.css"));
}
static void put_script(const zx_report *r ZX_UNUSED, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    static const char *const scripts[] = {"data.js", "chart.js", "view.js", "curve.js", "page.js"};
    for (size_t i = 0; i < ZX_COUNT(scripts); i++)
        zx_text_put(out, "%s", zx_report_file_text(scripts[i]));
}

static void put_badge(const zx_report *r, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    const bool measured = r->measured_seconds != NULL;
    zx_text_put(out, "<span class=\"badge %s\">%s</span> ", measured ? "measured" : "simulated",
                measured ? "MEASURED on rank 0" : "SIMULATED");
    zx_text_put(out, measured ? "beside the prediction for " : "on ");
    zx_report_escape(out, r->machine != NULL ? r->machine : "this host");
}

// A program can tell a picture that can be made again from one that can't (outfile.c).
static void put_kind(const zx_report *r, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    bool measured = r->measured_seconds != NULL;
    for (uint32_t i = 0; i < r->n_policies; i++) measured |= r->policies[i].measured_seconds > 0;
    zx_text_put(out, measured ? "measured" : "predicted");
}

static void put_about(const zx_report *r, zx_arena *mem ZX_UNUSED, zx_text *out)
{
    const zx_plan *p = r->plan;
    zx_text_put(out, "policy <b>");
    zx_report_escape(out, p->policy[0] != '\0' ? p->policy : "zerox");
    zx_text_put(out, "</b> &middot; stage %u &middot; %u rank%s &middot; %u micro-batch%s a rank",
                p->stage, p->ranks, p->ranks == 1 ? "" : "s", p->micro_batches,
                p->micro_batches == 1 ? "" : "es");
}

typedef void put_mark(const zx_report *r, zx_arena *mem, zx_text *out);
static const struct {
    const char *name;
    put_mark *put;
} marks[] = {
    {"title", put_title},
    {"kind", put_kind},
    {"style", put_style},
    {"badge", put_badge},
    {"about", put_about},
    {"verdict", zx_report_verdict},
    {"policies", zx_report_policies},
    {"waterfall", zx_report_waterfall},
    {"errors", zx_report_errors},
    {"data", zx_report_data},
    {"script", put_script},
};

void zx_report_html(const zx_report *r, zx_text *out)
{
    ZX_ASSERT(r->plan->start != NULL && r->plan->seconds != NULL);
    zx_arena mem = {0};
    const char *at = zx_report_file_text("page.html");
    for (const char *mark; (mark = strstr(at, "{{")) != NULL;) {
        zx_text_bytes(out, at, (size_t)(mark - at));
        at = strstr(mark, "}}") + 2;
        for (size_t i = 0; i < ZX_COUNT(marks); i++) {
            const size_t n = strlen(marks[i].name);
            if ((size_t)(at - mark) != n + 4 || strncmp(mark + 2, marks[i].name, n) != 0) continue;
            marks[i].put(r, &mem, out);
        }
    }
    zx_text_put(out, "%s", at);
    zx_arena_free(&mem);
}

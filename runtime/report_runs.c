// report_runs.c - see report_runs.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/report_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/json.h"
#include "proto/mapfile.h"
#include "runtime/report_priv.h"

#define MOST_POINTS 2000 // of a curve: more than a screen has columns

// ---- reading ------------------------------------------------------------------------------------

static double number(const json_t *row, const char *key)
{
    const json_t *v = json_object_get(row, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static void make_columns(zx_run_log *r, uint32_t room, zx_arena *mem)
{
    double **const columns[] = {&r->step,        &r->loss, &r->lr,       &r->grad_norm,
                                &r->clip_factor, &r->rate, &r->eval_loss};
    for (size_t i = 0; i < ZX_COUNT(columns); i++) *columns[i] = ZX_NEW(mem, double, room + 1);
}

static void take_row(zx_run_log *r, const json_t *row)
{
    const double tokens = number(row, "tokens_per_second");
    const uint32_t i = r->n++;
    r->step[i] = number(row, "step");
    r->loss[i] = number(row, "loss");
    r->lr[i] = number(row, "lr");
    r->grad_norm[i] = number(row, "grad_norm");
    r->clip_factor[i] = number(row, "clip_factor");
    r->eval_loss[i] = number(row, "eval_loss");
    r->rate[i] = isnan(tokens) ? number(row, "samples_per_second") : tokens;
    if (!isnan(tokens)) r->rate_unit = "tokens/s";
}

static uint32_t count_lines(const char *at, const char *end)
{
    uint32_t n = 0;
    while (at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        n++;
        at++;
    }
    return n;
}

static zx_status read_rows(zx_run_log *r, const char *at, const char *end, zx_arena *mem,
                           zx_err *err)
{
    const uint32_t lines = count_lines(at, end);
    r->every = 1 + lines / MOST_POINTS;
    make_columns(r, lines, mem);
    for (uint32_t i = 0; i < lines; i++) {
        const char *next = memchr(at, '\n', (size_t)(end - at));
        json_t *row = json_loadb(at, (size_t)(next - at), 0, NULL);
        const bool fine = json_is_object(row) && !isnan(number(row, "step"));
        const bool kept = i % r->every == 0 || i + 1 == lines || !isnan(number(row, "eval_loss"));
        if (fine && kept) take_row(r, row);
        json_decref(row);
        if (!fine) return ZX_FAIL(err, ZX_E_FORMAT, "line %u is no row of a run's log", i + 1);
        at = next + 1;
    }
    r->n_steps = lines;
    return ZX_OK;
}

zx_status zx_run_log_read(const char *path, zx_arena *mem, zx_run_log *out, zx_err *err)
{
    struct stat info;
    zx_mapfile m = {0};
    const char *file = path;
    *out = (zx_run_log){.name = zx_text_safe(mem, path), .rate_unit = "samples/s"};
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        file = zx_arena_printf(mem, "%s/log.jsonl", path);
    ZX_TRY(zx_mapfile_open(&m, file, err));
    const char *bytes = m.size > 0 ? (const char *)m.bytes : "";
    const zx_status st = read_rows(out, bytes, bytes + m.size, mem, err);
    zx_mapfile_close(&m);
    if (st != ZX_OK) zx_err_in(err, "%s", zx_text_safe(mem, file));
    return st;
}

// ---- the page -----------------------------------------------------------------------------------

static void put_column(zx_text *out, const char *name, const double *x, uint32_t n)
{
    zx_text_put(out, ", \"%s\": [", name);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0) zx_text_put(out, ",");
        if (isfinite(x[i]))
            zx_text_put(out, "%.6g", x[i]);
        else
            zx_text_put(out, "null");
    }
    zx_text_put(out, "]");
}

static void put_data(const zx_run_log *runs, uint32_t n, zx_text *out)
{
    zx_text json = {0};
    zx_text_put(&json, "[");
    for (uint32_t i = 0; i < n; i++) {
        const zx_run_log *r = &runs[i];
        zx_text_put(&json, "%s{\"name\": ", i > 0 ? ", " : "");
        zx_text_json(&json, r->name);
        zx_text_put(&json, ", \"steps\": %u, \"every\": %u, \"unit\": \"%s\"", r->n_steps, r->every,
                    r->rate_unit);
        put_column(&json, "step", r->step, r->n);
        put_column(&json, "loss", r->loss, r->n);
        put_column(&json, "eval_loss", r->eval_loss, r->n);
        put_column(&json, "grad_norm", r->grad_norm, r->n);
        put_column(&json, "clip_factor", r->clip_factor, r->n);
        put_column(&json, "lr", r->lr, r->n);
        put_column(&json, "rate", r->rate, r->n);
        zx_text_put(&json, "}");
    }
    zx_text_put(&json, "]");
    zx_report_json_safe(out, json.at);
    zx_text_free(&json);
}

static void put_mark(const char *mark, size_t length, const zx_run_log *runs, uint32_t n,
                     zx_text *out)
{
#define IS(word) (length == sizeof(word) - 1 && memcmp(mark, word, length) == 0)
    if (IS("style")) zx_text_put(out, "%s", zx_report_file_text("style.css"));
    if (IS("script")) zx_text_put(out, "%s", zx_report_file_text("runs.js"));
    if (IS("count")) zx_text_put(out, "%u run%s", n, n == 1 ? "" : "s");
    if (IS("data")) put_data(runs, n, out);
#undef IS
}

void zx_report_runs_html(const zx_run_log *runs, uint32_t n, zx_text *out)
{
    const char *at = zx_report_file_text("runs.html");
    for (const char *mark; (mark = strstr(at, "{{")) != NULL;) {
        zx_text_bytes(out, at, (size_t)(mark - at));
        at = strstr(mark, "}}") + 2;
        put_mark(mark + 2, (size_t)(at - mark) - 4, runs, n, out);
    }
    zx_text_put(out, "%s", at);
}

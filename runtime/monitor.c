// monitor.c - see monitor.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include "runtime/monitor_sink.h"
#include "runtime/rundir.h"

static const struct {
    const char *key;
    enum { REAL, COUNT } kind;
    const char *tag; // NULL: none
    double factor;
} rows[ZX_FIGURE_COUNT] = {
#define PREFIX "Train/Samples/" // what DeepSpeed's tags begin with
#define ZX_FIGURE(id, key, kind, tag, factor, words)                                               \
    {key, kind, sizeof(tag) > 1 ? PREFIX tag : NULL, factor},
#include "runtime/figures.def"
#undef ZX_FIGURE
};

enum { MOST_SINKS = 3 };

struct zx_monitor {
    uint32_t n_sinks, most_watched;
    zx_sink sinks[MOST_SINKS];
    uint64_t last_step;
    zx_scalar *scalars;
    zx_arena *mem;
    zx_text tags; // of watched parameters, each with its NUL
};

// ---- log.jsonl ----------------------------------------------------------------------------------

static void put_number(zx_text *out, const char *begin, const char *key, double v)
{
    if (isfinite(v))
        zx_text_put(out, "%s\"%s\": %.9g", begin, key, v);
    else
        zx_text_put(out, "%s\"%s\": null", begin, key);
}

static void put_watched(zx_text *out, const zx_figures *f)
{
    zx_text_put(out, ", \"watch\": {");
    for (uint32_t i = 0; i < f->n_watched; i++) {
        const zx_watched *w = &f->watched[i];
        zx_text_put(out, "%s", i > 0 ? ", " : "");
        zx_text_json(out, w->name);
        put_number(out, ": {", "weight_norm", w->weight_norm);
        put_number(out, ", ", "grad_norm", w->grad_norm);
        zx_text_put(out, "}");
    }
    zx_text_put(out, "}");
}

void zx_figures_line(const zx_figures *f, zx_text *out)
{
    zx_text_put(out, "{\"step\": %llu", (unsigned long long)f->step);
    for (uint32_t i = 0; i < ZX_FIGURE_COUNT; i++) {
        if (!f->has[i]) continue;
        if (rows[i].kind == COUNT)
            zx_text_put(out, ", \"%s\": %.0f", rows[i].key, f->is[i]);
        else
            put_number(out, ", ", rows[i].key, f->is[i]);
    }
    if (f->n_watched > 0) put_watched(out, f);
    zx_text_put(out, "}\n");
}

static zx_status open_jsonl(zx_sink *s, const zx_monitor_options *o, zx_err *err)
{
    s->n_logs = 1;
    if (o->goes_on) return zx_log_resume(&s->logs[0], s->path, o->before, s->mem, err);
    return zx_log_open(&s->logs[0], s->path, false, err);
}

static zx_status write_jsonl(zx_sink *s, const zx_moment *at, zx_err *err)
{
    s->text.n = 0;
    zx_figures_line(at->figures, &s->text);
    return zx_log_append(&s->logs[0], s->text.at, s->text.n, err);
}

const zx_sink_kind zx_sink_jsonl = {open_jsonl, write_jsonl};

// ---- open and close -----------------------------------------------------------------------------

static zx_status add_sink(zx_monitor *m, const zx_sink_kind *kind, const char *path,
                          uint32_t most_logs, const zx_monitor_options *o, zx_err *err)
{
    if (path == NULL) return ZX_OK;
    zx_sink *s = kind == &zx_sink_jsonl ? &m->sinks[0] : &m->sinks[m->n_sinks++];
    *s = (zx_sink){.kind = kind, .path = path, .mem = m->mem};
    s->logs = ZX_NEW(m->mem, zx_log, most_logs);
    for (uint32_t i = 0; i < most_logs; i++) s->logs[i] = ZX_LOG_CLOSED;
    return kind->open(s, o, err);
}

zx_status zx_monitor_open(const zx_monitor_options *o, zx_arena *mem, zx_monitor **out, zx_err *err)
{
    const uint32_t most = ZX_FIGURE_COUNT + 2 * o->most_watched;
    zx_monitor *m = ZX_NEW(mem, zx_monitor, 1);
    *out = m;
    *m = (zx_monitor){.mem = mem, .most_watched = o->most_watched};
    m->scalars = ZX_NEW(mem, zx_scalar, most);
    m->n_sinks = o->log != NULL; // it has the first place
    ZX_TRY(add_sink(m, &zx_sink_tensorboard, o->tensorboard, 1, o, err));
    ZX_TRY(add_sink(m, &zx_sink_csv, o->csv, most, o, err));
    // Last: it alone changes what the run before has left, so nothing may fail behind it.
    return add_sink(m, &zx_sink_jsonl, o->log, 1, o, err);
}

void zx_monitor_close(zx_monitor *m)
{
    for (uint32_t i = 0; m != NULL && i < m->n_sinks; i++) {
        zx_sink *s = &m->sinks[i];
        for (uint32_t k = 0; k < s->n_logs; k++) zx_log_close(&s->logs[k]);
        zx_text_free(&s->text);
    }
    if (m != NULL) zx_text_free(&m->tags);
}

// ---- a step -------------------------------------------------------------------------------------

// Tags of what is watched lie behind each other in one text; where is known once all are written.
static uint32_t add_watched(zx_monitor *m, const zx_figures *f, uint32_t n)
{
    static const char *const what[2] = {"weight_norm", "grad_norm"};
    m->tags.n = 0;
    for (uint32_t i = 0; i < f->n_watched; i++)
        for (uint32_t k = 0; k < 2; k++) {
            zx_text_put(&m->tags, PREFIX "%s/%s", what[k], f->watched[i].name);
            zx_text_bytes(&m->tags, "", 1);
        }
    const char *at = m->tags.at;
    for (uint32_t i = 0; i < f->n_watched; i++)
        for (uint32_t k = 0; k < 2; k++) {
            const zx_watched *w = &f->watched[i];
            m->scalars[n++] = (zx_scalar){at, k == 0 ? w->weight_norm : w->grad_norm};
            at += strlen(at) + 1;
        }
    return n;
}

static zx_moment make_moment(zx_monitor *m, const zx_figures *f)
{
    struct timespec now;
    uint32_t n = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    for (uint32_t i = 0; i < ZX_FIGURE_COUNT; i++)
        if (f->has[i] && rows[i].tag != NULL)
            m->scalars[n++] = (zx_scalar){rows[i].tag, f->is[i] * rows[i].factor};
    ZX_ASSERT(f->n_watched <= m->most_watched);
    n = add_watched(m, f, n);
    return (zx_moment){.figures = f,
                       .wall_seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec,
                       .n = n,
                       .scalars = m->scalars};
}

zx_status zx_monitor_step(zx_monitor *m, const zx_figures *f, zx_err *err)
{
    const zx_moment at = make_moment(m, f);
    m->last_step = f->step;
    for (uint32_t i = 0; i < m->n_sinks; i++) {
        zx_sink *s = &m->sinks[i];
        zx_err found = {0};
        if (s->lost || s->kind->write(s, &at, &found) == ZX_OK) continue;
        if (s->kind == &zx_sink_jsonl) return zx_err_merge(err, &found);
        s->lost = true;
        s->lost_step = f->step;
        s->why = zx_arena_str(m->mem, found.cause[0]);
    }
    return ZX_OK;
}

const char *zx_monitor_lost(zx_monitor *m)
{
    for (uint32_t i = 0; i < m->n_sinks; i++) {
        zx_sink *s = &m->sinks[i];
        if (!s->lost || s->told) continue;
        s->told = true;
        return s->why;
    }
    return NULL;
}

zx_status zx_monitor_end(const zx_monitor *m, zx_err *err)
{
    for (uint32_t i = 0; i < m->n_sinks; i++) {
        const zx_sink *s = &m->sinks[i];
        if (!s->lost) continue;
        zx_err_hint(err, "room, or another place; log.jsonl has every step");
        ZX_FAIL(err, ZX_E_IO, "%s: steps %llu to %llu are missing there", s->why,
                (unsigned long long)s->lost_step, (unsigned long long)m->last_step);
    }
    return err->code;
}

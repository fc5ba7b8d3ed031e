// cmd_train_monitor.c - the figures of each step of a run: for log.jsonl, the monitors that the
// config asks for, and its breakdowns of a step's time.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/breakdown.h"
#include "runtime/cmd_train.h"
#include "runtime/outfile.h"

static bool is_on(const zx_train *t, const char *key)
{
    return zx_config_get(&t->job.config, key)->b;
}

// ---- before the first step ----------------------------------------------------------------------

static bool matches(const zx_param *p, const char *glob)
{
    if (zx_text_match(glob, p->name)) return true;
    for (uint32_t i = 0; i < p->n_aliases; i++)
        if (zx_text_match(glob, p->aliases[i])) return true;
    return false;
}

static zx_status find_watched(zx_train *t, const char *glob, bool *wanted, zx_err *err)
{
    const zx_graph *g = &t->job.train;
    zx_arena *mem = &t->job.mem;
    bool found = false;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (matches(&g->params[i], glob)) wanted[i] = found = true;
    if (found) return ZX_OK;
    const char **names = ZX_NEW(mem, const char *, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) names[i] = g->params[i].name;
    const char *near = zx_text_nearest(glob, names, g->n_params);
    if (near != NULL)
        zx_err_hint(err, "--watch '%s'", zx_text_safe(mem, near));
    else
        zx_err_hint(err, "zerox check lists the parameters");
    return ZX_FAIL(err, ZX_E_USAGE, "--watch: no parameter is named '%s'", zx_text_safe(mem, glob));
}

static zx_status read_watch(zx_train *t, zx_err *err)
{
    const zx_options *o = t->job.o;
    const zx_option_value *globs = &o->value[ZX_OPT_WATCH];
    const zx_graph *g = &t->job.train;
    zx_arena *mem = &t->job.mem;
    zx_watch *w = &t->watch;
    bool *wanted = ZX_NEW(mem, bool, g->n_params + 1);
    w->every = zx_given_number(o, ZX_OPT_WATCH_EVERY, 1);
    if (globs->n == 0 && zx_given(o, ZX_OPT_WATCH_EVERY))
        return ZX_FAIL(err, ZX_E_USAGE, "--watch-every is for --watch GLOB, which is missing");
    for (uint32_t i = 0; i < globs->n; i++) ZX_TRY(find_watched(t, globs->text[i], wanted, err));
    w->params = ZX_NEW(mem, uint32_t, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++)
        if (wanted[i]) w->params[w->n++] = i;
    w->weights = ZX_NEW(mem, double, w->n + 1);
    w->grads = ZX_NEW(mem, double, w->n + 1);
    w->shown = ZX_NEW(mem, zx_watched, w->n + 1);
    for (uint32_t i = 0; i < w->n; i++)
        w->shown[i].name = zx_text_safe(mem, g->params[w->params[i]].name);
    return ZX_OK;
}

static bool is_profile(const char *path)
{
    char head[sizeof ZX_PROFILER_HEAD] = "";
    FILE *f = fopen(path, "rb");
    const size_t n = f != NULL ? fread(head, 1, sizeof head - 1, f) : 0;
    if (f != NULL) fclose(f);
    return n == sizeof head - 1 && strcmp(head, ZX_PROFILER_HEAD) == 0;
}

static zx_status check_profiler(zx_train *t, zx_err *err)
{
    const zx_config *c = &t->job.config;
    const zx_config_value *path = zx_config_get(c, "flops_profiler.output_file");
    const int64_t step = zx_config_get(c, "flops_profiler.profile_step")->i;
    if (!is_on(t, "flops_profiler.enabled")) return ZX_OK;
    if ((uint64_t)step >= t->steps)
        zx_note(&t->job.notes, &t->job.mem,
                "flops_profiler measures the step after %lld, the run ends before it",
                (long long)step);
    if ((uint64_t)step < t->from.state.steps) return ZX_OK; // it has done so
    if (!path->has || path->text[0] == '\0' || zx_world_rank(t->world) != 0) return ZX_OK;
    const bool own = t->resume != NULL && is_profile(path->text); // written by the run before
    const zx_status st =
        zx_rundir_file(path->text, own || zx_given(t->job.o, ZX_OPT_FORCE), &t->job.mem, err);
    if (st != ZX_OK) zx_err_in(err, "flops_profiler.output_file");
    return st;
}

zx_status zx_train_monitor_check(zx_train *t, zx_err *err)
{
    ZX_TRY(read_watch(t, err));
    return check_profiler(t, err);
}

bool zx_train_breaks_down(const zx_train *t)
{
    return is_on(t, "wall_clock_breakdown") || is_on(t, "flops_profiler.enabled");
}

// DeepSpeed's place: output_path/job_name.
static const char *folder_of(zx_train *t, const char *section)
{
    zx_arena *mem = &t->job.mem;
    const zx_config *c = &t->job.config;
    const zx_config_value *path = zx_config_get(c, zx_arena_printf(mem, "%s.output_path", section));
    const zx_config_value *name = zx_config_get(c, zx_arena_printf(mem, "%s.job_name", section));
    if (!is_on(t, zx_arena_printf(mem, "%s.enabled", section))) return NULL;
    const char *at = path->has && path->text[0] != '\0' ? path->text : ".";
    const char *between = at[strlen(at) - 1] == '/' ? "" : "/";
    return zx_arena_printf(mem, "%s%s%s", at, between, name->text);
}

zx_status zx_train_monitor_open(zx_train *t, zx_err *err)
{
    const zx_monitor_options o = {.log = t->files.log,
                                  .goes_on = t->resume != NULL,
                                  .before = t->before,
                                  .tensorboard = folder_of(t, "tensorboard"),
                                  .csv = folder_of(t, "csv_monitor"),
                                  .most_watched = t->watch.n};
    return zx_monitor_open(&o, &t->job.mem, &t->monitor, err);
}

// ---- a step -------------------------------------------------------------------------------------

static bool watch_due(const zx_train *t)
{
    return t->watch.n > 0 && t->done % t->watch.every == 0;
}

zx_status zx_train_watch(zx_train *t, zx_err *err)
{
    zx_watch *w = &t->watch;
    if (!watch_due(t)) return ZX_OK;
    ZX_TRY(zx_session_norms(t->session, w->n, w->params, w->weights, w->grads, err));
    for (uint32_t i = 0; i < w->n; i++) {
        w->shown[i].weight_norm = w->weights[i];
        w->shown[i].grad_norm = w->grads[i];
    }
    return ZX_OK;
}

double zx_train_clip_factor(const zx_train *t, const zx_step_report *r)
{
    const double over = t->job.clip > 0 ? (r->grad_norm + 1e-6) / t->job.clip : 1; // CONFIG 2.4
    return over > 1 ? 1 / over : 1;
}

static bool break_down(const zx_train *t, zx_breakdown *out)
{
    const double *start, *seconds;
    if (!is_on(t, "wall_clock_breakdown")) return false;
    if (!zx_session_profile(t->session, &start, &seconds)) return false;
    zx_breakdown_make(&t->job.train, &t->plan, seconds, out);
    return true;
}

const char *zx_train_breakdown(zx_train *t, const zx_step_report *r, zx_text *out)
{
    const zx_config_value *every = zx_config_get(&t->job.config, "steps_per_print");
    zx_breakdown b;
    if (every->has && every->i > 0 && t->done % (uint64_t)every->i != 0) return NULL;
    if (!break_down(t, &b)) return NULL;
    zx_text_put(out, "time (ms) | fwd: %.2f | bwd: %.2f", 1e3 * b.forward, 1e3 * b.backward);
    if (t->job.ranks > 1) zx_text_put(out, " | exposed comm: %.2f", 1e3 * r->exposed_seconds);
    zx_text_put(out, " | step: %.2f", 1e3 * b.update);
    return out->at;
}

// A table that can't be written ends no run.
static void profile(zx_train *t, const zx_step_report *r)
{
    const zx_config *c = &t->job.config;
    const zx_config_value *path = zx_config_get(c, "flops_profiler.output_file");
    const double *start, *seconds;
    if (!is_on(t, "flops_profiler.enabled")) return;
    if (t->done != (uint64_t)zx_config_get(c, "flops_profiler.profile_step")->i + 1) return;
    if (!zx_session_profile(t->session, &start, &seconds)) return;
    const zx_profiler o = {
        .title = t->job.model,
        .step = t->done,
        .step_seconds = r->seconds,
        .module_depth = zx_config_get(c, "flops_profiler.module_depth")->i,
        .top_modules = zx_config_get(c, "flops_profiler.top_modules")->i,
        .detailed = is_on(t, "flops_profiler.detailed"),
    };
    zx_text text = {0};
    zx_err lost = {0};
    zx_profiler_text(&o, &t->job.train, &t->plan, seconds, &text);
    if (!path->has || path->text[0] == '\0')
        zx_cmd_put(&text);
    else if (zx_outfile_put(path->text, text.at, text.n, &t->job.mem, &lost) != ZX_OK)
        zx_cmd_say("note: flops_profiler: %s: training goes on without it", lost.cause[0]);
    zx_text_free(&text);
}

static void set_rates(const zx_train *t, const zx_step_report *r, zx_figures *f)
{
    const int64_t tokens = zx_data_tokens(t->job.data);
    const double rate = r->seconds > 0 ? (double)t->job.batch.total / r->seconds : 0;
    if (tokens > 0) zx_figure_set(f, ZX_FIGURE_TOKENS, rate * (double)tokens);
    zx_figure_set(f, ZX_FIGURE_SAMPLES, rate);
}

zx_status zx_train_monitor_step(zx_train *t, const zx_step_report *r, zx_err *err)
{
    zx_figures f = {.step = t->done, .samples = t->state.samples};
    zx_breakdown b;
    zx_figure_set(&f, ZX_FIGURE_LOSS, r->loss);
    zx_figure_set(&f, ZX_FIGURE_GRAD_NORM, r->grad_norm);
    zx_figure_set(&f, ZX_FIGURE_CLIP_FACTOR, zx_train_clip_factor(t, r));
    zx_figure_set(&f, ZX_FIGURE_LR, zx_train_last_rate(t, r));
    zx_figure_set(&f, ZX_FIGURE_STEP_SECONDS, r->seconds);
    zx_figure_set(&f, ZX_FIGURE_COMPUTE_SECONDS, r->compute_seconds);
    zx_figure_set(&f, ZX_FIGURE_EXPOSED_SECONDS, r->exposed_seconds);
    if (break_down(t, &b)) {
        zx_figure_set(&f, ZX_FIGURE_FORWARD_SECONDS, b.forward);
        zx_figure_set(&f, ZX_FIGURE_BACKWARD_SECONDS, b.backward);
        zx_figure_set(&f, ZX_FIGURE_UPDATE_SECONDS, b.update);
    }
    set_rates(t, r, &f);
    if (zx_train_evaluated(t)) {
        zx_figure_set(&f, ZX_FIGURE_EVAL_LOSS, t->eval.loss);
        if (t->eval.of.counted.counts)
            zx_figure_set(&f, ZX_FIGURE_EVAL_PERPLEXITY, exp(t->eval.loss));
        zx_figure_set(&f, ZX_FIGURE_EVAL_SECONDS, t->eval.seconds);
    }
    zx_figure_set(&f, ZX_FIGURE_PEAK_BYTES, (double)r->peak_bytes);
    zx_figure_set(&f, ZX_FIGURE_RESIDENT_BYTES, (double)t->resident_bytes);
    const bool scaled = zx_config_get(&t->job.config, "fp16.enabled")->b;
    if (scaled) zx_figure_set(&f, ZX_FIGURE_LOSS_SCALE, r->loss_scale);
    if (scaled || t->state.skipped_steps > 0)
        zx_figure_set(&f, ZX_FIGURE_SKIPPED, (double)t->state.skipped_steps);
    f.n_watched = watch_due(t) ? t->watch.n : 0;
    f.watched = t->watch.shown;
    ZX_TRY(zx_monitor_step(t->monitor, &f, err));
    profile(t, r);
    return ZX_OK;
}

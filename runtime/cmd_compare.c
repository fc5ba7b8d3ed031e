// cmd_compare.c - zerox compare: one budget, one machine, and the plans of several policies beside
// each other, predicted or executed.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/cmd_machine.h"
#include "runtime/job_policy.h"
#include "runtime/job_preset.h"
#include "runtime/outfile.h"
#include "runtime/report.h"

#define MOST_VALUES 32
#define MOST_STEPS 100000
#define CURVE_POINTS 5

// ---- what is asked ------------------------------------------------------------------------------

// "0.5GB/s"
static bool parse_rate(const char *text, double *out)
{
    char buf[40];
    uint64_t bytes = 0;
    const size_t n = strlen(text);
    if (n < 3 || n >= sizeof buf || strcmp(text + n - 2, "/s") != 0) return false;
    memcpy(buf, text, n - 2);
    buf[n - 2] = '\0';
    if (!zx_text_parse_size(buf, &bytes) || bytes == 0) return false;
    *out = (double)bytes;
    return true;
}

static zx_status read_link(const zx_options *o, zx_compare_ask *ask, zx_err *err)
{
    const char *rate = zx_given_text(o, ZX_OPT_BANDWIDTH), *late = zx_given_text(o, ZX_OPT_LATENCY);
    zx_arena mem = {0};
    zx_status st = ZX_OK;
    if (rate != NULL && !parse_rate(rate, &ask->bandwidth))
        st = ZX_FAIL(err, ZX_E_USAGE, "--bandwidth needs a rate like 0.5GB/s, not '%s'",
                     zx_text_safe(&mem, rate));
    if (st == ZX_OK && late != NULL && !zx_parse_seconds(late, &ask->latency))
        st = ZX_FAIL(err, ZX_E_USAGE, "--latency needs a time like 0.2ms, not '%s'",
                     zx_text_safe(&mem, late));
    zx_arena_free(&mem);
    return st;
}

// "budget=1GB,2GB" or "bandwidth=0.25GB/s,1GB/s"
static zx_status read_sweep(const zx_options *o, zx_arena *mem, zx_compare_ask *ask, zx_err *err)
{
    const char *text = zx_given_text(o, ZX_OPT_SWEEP);
    if (text == NULL) return ZX_OK;
    const size_t word = strcspn(text, "=");
    ask->budgets = word == 6 && strncmp(text, "budget", word) == 0;
    const bool rates = word == 9 && strncmp(text, "bandwidth", word) == 0;
    double *values = ZX_NEW(mem, double, MOST_VALUES);
    ask->values = values;
    ask->typed = ZX_NEW(mem, const char *, MOST_VALUES);
    if ((!ask->budgets && !rates) || text[word] == '\0')
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--sweep is budget=SIZE,SIZE,... or bandwidth=RATE,RATE,..., not '%s'",
                       zx_text_safe(mem, text));
    for (const char *at = text + word; *at != '\0';) {
        at++; // '=' or ','
        const size_t n = strcspn(at, ",");
        const char *one = zx_arena_strn(mem, at, n);
        uint64_t bytes = 0;
        if (ask->n_values == MOST_VALUES)
            return ZX_FAIL(err, ZX_E_USAGE, "--sweep: %d values are the most", MOST_VALUES);
        ask->typed[ask->n_values] = one;
        double *value = &values[ask->n_values++];
        const bool fine = rates ? parse_rate(one, value) : zx_text_parse_size(one, &bytes);
        if (ask->budgets) *value = (double)bytes;
        if (!fine || *value <= 0)
            return ZX_FAIL(err, ZX_E_USAGE, "--sweep: %s needs a %s, not '%s'",
                           rates ? "bandwidth" : "budget",
                           rates ? "rate like 0.5GB/s" : "size like 24GB", zx_text_safe(mem, one));
        at += n;
    }
    return ZX_OK;
}

static zx_status check_execute(const zx_options *o, const zx_compare_ask *ask, zx_err *err)
{
    const char *machine = zx_given_text(o, ZX_OPT_MACHINE);
    if (ask->execute && !zx_job_is_file(o)) {
        zx_err_hint(err, "a model's file (zerox new writes some), or without --execute");
        return ZX_FAIL(err, ZX_E_USAGE, "--execute runs a file: %s is known by name only",
                       o->operand);
    }
    if (!ask->execute) {
        if (!zx_given(o, ZX_OPT_STEPS)) return ZX_OK;
        return ZX_FAIL(err, ZX_E_USAGE, "--steps counts steps that are executed: --execute");
    }
    if (ask->n_values > 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--sweep is simulated: leave --execute out, or execute one value at a time");
    if (machine != NULL && strcmp(machine, "host") != 0 && strcmp(machine, "constants") != 0)
        return ZX_FAIL(err, ZX_E_USAGE, "--execute runs on this host: leave --machine out");
    if (ask->steps < ZX_COMPARE_TIMED || ask->steps > MOST_STEPS)
        return ZX_FAIL(err, ZX_E_USAGE, "--steps %u: %d to %d steps of each policy are timed",
                       ask->steps, ZX_COMPARE_TIMED, MOST_STEPS);
    return ZX_OK;
}

// Predictions are of what plan plans for; steps are executed by cores.
static zx_status open_site(const zx_options *o, const zx_compare_ask *ask, zx_site *site,
                           uint64_t *ranks, zx_err *err)
{
    const zx_backend *backend;
    uint32_t devices;
    if (!ask->execute) {
        if (!zx_job_is_file(o)) return ZX_OK; // of a machine by name
        return zx_cmd_site_open(o, site, ranks, err);
    }
    if (!zx_given(o, ZX_OPT_BACKEND)) return ZX_OK;
    ZX_TRY(zx_backend_choose(zx_given_text(o, ZX_OPT_BACKEND), &backend, &devices, err));
    if (backend == &zx_backend_cpu) return ZX_OK;
    zx_err_hint(err, "--backend cpu, or without --execute, where it predicts");
    return ZX_FAIL(err, ZX_E_UNSUPPORTED, "--execute: steps of policies aren't timed on GPUs yet");
}

static zx_status read_format(const zx_options *o, bool *json, zx_err *err)
{
    const char *given = zx_given_text(o, ZX_OPT_FORMAT);
    *json = given != NULL && strcmp(given, "json") == 0;
    if (given == NULL || *json || strcmp(given, "text") == 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "--format of compare is text or json, not '%s'", given);
}

static zx_status read_ask(const zx_options *o, zx_arena *mem, zx_compare_ask *ask, zx_err *err)
{
    const char *words = zx_given_text(o, ZX_OPT_POLICY);
    const uint64_t steps = zx_given_number(o, ZX_OPT_STEPS, ZX_COMPARE_MOST);
    *ask = (zx_compare_ask){.execute = zx_given(o, ZX_OPT_EXECUTE),
                            .report = zx_given_text(o, ZX_OPT_REPORT),
                            .steps = steps > UINT32_MAX ? UINT32_MAX : (uint32_t)steps};
    ask->least_steps = zx_given(o, ZX_OPT_STEPS) ? ask->steps : ZX_COMPARE_TIMED;
    ZX_TRY(read_format(o, &ask->json, err));
    ZX_TRY(zx_job_policies(words != NULL ? words : "all", NULL, ask->ids, &ask->n, err));
    ZX_TRY(zx_job_check_policies(o, ask->ids, ask->n, err));
    ZX_TRY(read_link(o, ask, err));
    ZX_TRY(read_sweep(o, mem, ask, err));
    return check_execute(o, ask, err);
}

// ---- the job ------------------------------------------------------------------------------------

zx_status zx_compare_open(zx_comparing *k, const zx_options *o, const zx_compare_ask *ask,
                          uint32_t ranks, zx_err *err)
{
    zx_preset_sizes sizes;
    zx_preset_info info;
    const bool file = zx_job_is_file(o);
    k->ask = *ask;
    ZX_TRY(zx_job_check_operand(o, ranks, err));
    const zx_status st = file ? zx_job_open(&k->job, o, ranks, !ask->execute, err)
                              : zx_job_open_named(&k->job, o, ranks, &sizes, &info, err);
    if (st == ZX_E_DATA) {
        const char *model = zx_text_safe(&k->job.mem, k->job.model);
        zx_data_suggest(k->job.data,
                        zx_arena_printf(&k->job.mem, "zerox compare %s --execute", model), err);
    }
    if (st != ZX_OK) return st;
    if (ask->execute) // each policy goes through the schedule from its begin
        ZX_TRY(zx_config_schedule_steps(&k->job.config, ZX_COMPARE_WARM + ask->steps, &k->job.optim,
                                        &k->job.notes, err));
    return zx_job_import(&k->job, false, err);
}

// ---- several budgets, several bandwidths --------------------------------------------------------

static zx_status make_sweep(zx_comparing *k, bool budgets, const double *values,
                            const char *const *typed, uint32_t n, zx_sweep *out, zx_err *err)
{
    const zx_plan_options before = k->options;
    const bool own_limits = k->in.own_limits;
    zx_status st = ZX_OK;
    k->in.own_limits = own_limits && !budgets;
    *out = (zx_sweep){budgets, n, ZX_NEW(&k->job.mem, zx_sweep_point, n)};
    for (uint32_t i = 0; i < n && st == ZX_OK; i++) {
        zx_compare *c = &out->points[i].c;
        out->points[i].value = values[i];
        out->points[i].typed = typed != NULL ? typed[i] : "";
        *c = k->c;
        c->notes = (zx_notes){0}; // of its own
        c->executed = false;
        for (uint32_t m = 0; m < k->c.notes.n; m++)
            zx_note(&c->notes, &k->job.mem, "%s", k->c.notes.text[m]);
        if (budgets) {
            c->budget = k->options.budget = (uint64_t)values[i];
        } else {
            c->bandwidth = values[i];
            zx_machine_link(&k->options.machine, values[i], k->options.machine.latency);
        }
        st = zx_compare_plans(k, c, err);
        zx_compare_rank(c);
    }
    k->options = before;
    k->in.own_limits = own_limits;
    return st;
}

// For the report, where no budgets were asked for: from the least that any plan is found for to
// what the most greedy one takes.
static zx_status make_curve(zx_comparing *k, zx_sweep *out, zx_err *err)
{
    double values[CURVE_POINTS];
    uint64_t least = 0, most = 0;
    ZX_TRY(zx_compare_least(k, &least, err));
    for (uint32_t i = 0; i < k->c.n_rows; i++)
        if (k->c.rows[i].result.plan.arena_bytes > most)
            most = k->c.rows[i].result.plan.arena_bytes;
    if (most < least) most = least;
    for (uint32_t i = 0; i < CURVE_POINTS; i++) {
        const double part = (double)i / (CURVE_POINTS - 1);
        values[i] = (double)least * pow((double)most / (double)least, part);
    }
    values[CURVE_POINTS - 1] = (double)most;
    k->ask.n_values = CURVE_POINTS; // what has no plan keeps its place
    return make_sweep(k, true, values, NULL, CURVE_POINTS, out, err);
}

// ---- what is shown ------------------------------------------------------------------------------

static zx_status write_report(const zx_comparing *k, const zx_sweep *curve, zx_err *err)
{
    const zx_compare *c = &k->c;
    zx_arena mem = {0};
    zx_text page = {0};
    uint32_t here = c->fastest != ZX_NONE ? c->fastest : 0;
    while (here < c->n_rows && c->rows[here].predicted <= 0) here++; // swept, and no plan
    if (here == c->n_rows)
        return ZX_FAIL(err, ZX_E_BUDGET, "%s: there is no plan to draw", k->ask.report);
    zx_report_policy *rows = ZX_NEW(&mem, zx_report_policy, c->n_rows);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const zx_compare_row *r = &c->rows[i];
        rows[i] = (zx_report_policy){.policy = zx_policies[r->id].word,
                                     .form = r->variant != NULL ? "recompute auto"
                                                                : zx_policies[r->id].form,
                                     .predicted_seconds = r->predicted,
                                     .measured_seconds = r->median,
                                     .peak_bytes = r->result.plan.arena_bytes,
                                     .over_bytes = r->over_bytes,
                                     .here = i == here};
    }
    uint32_t n_points = 0, most = 0;
    for (uint32_t p = 0; p < curve->n; p++) most += curve->points[p].c.n_rows;
    zx_report_point *points = ZX_NEW(&mem, zx_report_point, most + 1);
    for (uint32_t p = 0; p < curve->n; p++)
        for (uint32_t i = 0; i < curve->points[p].c.n_rows; i++) {
            const zx_compare_row *r = &curve->points[p].c.rows[i];
            if (r->over_bytes > 0 || r->predicted <= 0) continue;
            points[n_points++] =
                (zx_report_point){r->name, (uint64_t)curve->points[p].value, r->predicted};
        }
    const zx_report report = {
        .title = c->model,
        .machine = c->machine,
        .train = c->rows[here].variant != NULL ? &c->rows[here].variant->train : &k->job.train,
        .plan = &c->rows[here].result.plan,
        .bound = &c->bound,
        .n_policies = c->n_rows,
        .policies = rows,
        .n_points = n_points,
        .points = points,
        .measured_start = k->measured_start != NULL ? k->measured_start[here] : NULL,
        .measured_seconds = k->measured_seconds != NULL ? k->measured_seconds[here] : NULL,
        .measured_step_seconds = k->measured_step != NULL ? k->measured_step[here] : 0,
        .measured_median_seconds = c->rows[here].median,
    };
    zx_report_html(&report, &page);
    const zx_status st = zx_outfile_put(k->ask.report, page.at, page.n, &mem, err);
    if (st == ZX_OK) zx_cmd_wrote(k->ask.report, &mem);
    zx_text_free(&page);
    zx_arena_free(&mem);
    return st;
}

// Of what is compared something has to fit, or the budget is too small.
typedef struct fitting {
    bool any;
    uint64_t least; // of those that don't
    const char *whose;
} fitting;

static void look_for_fits(const zx_compare *c, fitting *f)
{
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const zx_compare_row *r = &c->rows[i];
        if (r->predicted <= 0) continue; // no plan
        f->any |= r->over_bytes == 0;
        if (r->result.plan.arena_bytes >= f->least) continue;
        f->least = r->result.plan.arena_bytes;
        f->whose = r->name;
    }
}

static zx_status check_fits(const zx_comparing *k, const fitting *f, uint64_t budget, zx_err *err)
{
    char size[ZX_BYTES_TEXT], need[ZX_BYTES_TEXT];
    if (f->any) return ZX_OK;
    zx_err_hint(err, "a larger --budget, or more ranks%s",
                k->job.recompute == ZX_RECOMPUTE_NONE ? ", or --recompute full" : "");
    zx_text_size(budget, size);
    if (f->least == UINT64_MAX)
        return ZX_FAIL(err, ZX_E_BUDGET, "there is a plan of no policy within %s a rank", size);
    return ZX_FAIL(err, ZX_E_BUDGET, "nothing fits into %s a rank: the least is %s, by %s", size,
                   zx_text_size(f->least, need), f->whose);
}

zx_status zx_compare_show(zx_comparing *k, zx_err *err)
{
    zx_text out = {0};
    zx_compare_rank(&k->c);
    if (k->ask.json)
        zx_compare_json(&k->c, &out);
    else
        zx_compare_table(&k->c, &out);
    zx_cmd_put(&out);
    fflush(stdout); // before what is said of the report
    zx_text_free(&out);
    if (k->ask.report != NULL) {
        zx_sweep curve = {0};
        zx_err unused = {0};
        if (k->job.ranks == 1 || make_curve(k, &curve, &unused) != ZX_OK) curve.n = 0;
        ZX_TRY(write_report(k, &curve, err));
    }
    if (k->c.differ == NULL) {
        fitting f = {.least = UINT64_MAX};
        look_for_fits(&k->c, &f);
        return check_fits(k, &f, k->c.budget, err);
    }
    zx_err_hint(err, "this is a bug of zerox: please report it with the model and the config");
    return ZX_FAIL(err, ZX_E_DIVERGED, "losses aren't identical: %s", k->c.differ);
}

// ---- simulated ----------------------------------------------------------------------------------

static zx_status sweep(zx_comparing *k, zx_err *err)
{
    zx_sweep s;
    zx_text out = {0};
    ZX_TRY(make_sweep(k, k->ask.budgets, k->ask.values, k->ask.typed, k->ask.n_values, &s, err));
    if (k->ask.json)
        zx_sweep_json(&s, &out);
    else
        zx_sweep_table(&s, &out);
    zx_cmd_put(&out);
    zx_text_free(&out);
    fitting f = {.least = UINT64_MAX};
    uint64_t budget = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        look_for_fits(&s.points[i].c, &f);
        if (s.points[i].c.budget > budget) budget = s.points[i].c.budget;
    }
    if (k->ask.report != NULL) {
        static const zx_sweep none;
        k->c = s.points[s.n - 1].c;
        ZX_TRY(write_report(k, s.budgets ? &s : &none, err));
    }
    return check_fits(k, &f, budget, err);
}

static zx_status simulate(zx_comparing *k, const zx_options *o, const zx_compare_ask *ask,
                          uint32_t ranks, zx_err *err)
{
    zx_status st = zx_compare_open(k, o, ask, ranks, err);
    if (st == ZX_OK) st = zx_compare_prepare(k, err);
    zx_job_say_notes(&k->job);
    if (st != ZX_OK) return st;
    if (ask->n_values > 0) return sweep(k, err);
    ZX_TRY(zx_compare_plans(k, &k->c, err));
    return zx_compare_show(k, err);
}

int zx_cmd_compare(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    zx_compare_ask ask;
    zx_comparing k = {0};
    uint64_t ranks = zx_cmd_ranks(o);
    zx_status st = read_ask(o, &mem, &ask, err);
    if (st == ZX_OK) st = zx_cmd_check_ranks(ranks, ZX_MOST_RANKS, err);
    if (st == ZX_OK) st = open_site(o, &ask, &k.job.site, &ranks, err);
    int code = zx_status_exit(st);
    if (st == ZX_OK && ask.execute)
        code = zx_compare_run(o, &ask, err);
    else if (st == ZX_OK)
        code = zx_status_exit(simulate(&k, o, &ask, (uint32_t)ranks, err));
    zx_job_close(&k.job);
    zx_arena_free(&mem);
    return code;
}

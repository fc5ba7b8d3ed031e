// cmd_plan.c - zerox plan: makes the plan of a training step and shows it; needs no data, no ranks.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/cmd_machine.h"
#include "runtime/cmd_plan.h"
#include "runtime/outfile.h"
#include "runtime/report.h"
#include "sched/trace_json.h"

typedef enum plan_format { FORMAT_TEXT, FORMAT_STATES, FORMAT_JSON, FORMAT_TRACE } plan_format;

static zx_status read_format(const zx_options *o, plan_format *out, zx_err *err)
{
    static const char *const words[] = {"text", "states", "json", "trace"};
    const char *given = zx_given_text(o, ZX_OPT_FORMAT);
    *out = FORMAT_TEXT;
    if (zx_given(o, ZX_OPT_OUTPUT) && (given == NULL || strcmp(given, "trace") != 0))
        return ZX_FAIL(err, ZX_E_USAGE, "-o of plan goes with --format trace");
    if (given == NULL) return ZX_OK;
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        if (strcmp(given, words[i]) == 0) {
            *out = (plan_format)i;
            return ZX_OK;
        }
    return ZX_FAIL(err, ZX_E_USAGE, "--format is text, states, json, trace or decisions, not '%s'",
                   given);
}

// A pattern that matches nothing is an error: an empty answer would look like a plan without
// gathers.
static zx_status check_unit(const zx_job *job, zx_err *err)
{
    const char *glob = zx_given_text(job->o, ZX_OPT_UNIT), *tied = NULL;
    if (glob == NULL) return ZX_OK;
    for (uint32_t i = 0; i < job->train.n_params; i++) {
        const zx_param *p = &job->train.params[i];
        if (zx_text_match(glob, p->name)) return ZX_OK;
        for (uint32_t k = 0; k < p->n_aliases; k++)
            if (zx_text_match(glob, p->aliases[k])) tied = p->name;
    }
    zx_arena *mem = (zx_arena *)(uintptr_t)&job->mem;
    if (tied != NULL) zx_err_hint(err, "--unit '%s': it is tied", zx_text_safe(mem, tied));
    zx_err_hint(err, "zerox check %s lists the parameters", zx_text_safe(mem, job->model));
    return ZX_FAIL(err, ZX_E_USAGE, "--unit: no parameter is named '%s'", zx_text_safe(mem, glob));
}

static void show(const zx_job *job, const zx_plan *plan, plan_format format, zx_text *out)
{
    const char *unit = zx_given_text(job->o, ZX_OPT_UNIT);
    if (format == FORMAT_JSON) {
        zx_explain_json(&job->train, plan, out);
        return;
    }
    if (format == FORMAT_TRACE) {
        zx_trace_json(&job->train, plan, job->model, false, out);
        return;
    }
    if (format == FORMAT_STATES) {
        zx_explain_states(&job->train, plan, unit, out);
        return;
    }
    if (zx_given(job->o, ZX_OPT_INSTRUCTIONS))
        zx_explain_instructions(&job->train, plan, out);
    else
        zx_explain_gathers(&job->train, plan, unit, out);
    zx_explain_summary(&job->train, plan, out);
}

static zx_status put_report(zx_job *job, const zx_plan *plan, zx_err *err)
{
    const char *path = zx_given_text(job->o, ZX_OPT_REPORT);
    if (path == NULL) return ZX_OK;
    zx_text html = {0};
    const zx_report r = {.title = job->model,
                         .machine = zx_given_text(job->o, ZX_OPT_MACHINE),
                         .train = &job->train,
                         .plan = plan};
    zx_report_html(&r, &html);
    const zx_status st = zx_outfile_put(path, html.at, html.n, &job->mem, err);
    zx_text_free(&html);
    return st;
}

int zx_cmd_plan(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    zx_plan plan;
    zx_text out = {0};
    plan_format format = FORMAT_TEXT;
    const uint64_t ranks = zx_cmd_ranks(o);
    zx_status st = zx_cmd_hooks_check(o, err);
    if (st == ZX_OK && zx_given(o, ZX_OPT_POLICY)) return zx_status_exit(zx_cmd_hooks(o, err));
    if (st == ZX_OK) st = read_format(o, &format, err);
    if (st == ZX_OK && ranks > 4096)
        st = ZX_FAIL(err, ZX_E_USAGE, "--ranks %llu is too many", (unsigned long long)ranks);
    if (st == ZX_OK) st = zx_job_open(&job, o, (uint32_t)ranks, true, err);
    if (st == ZX_OK) st = zx_job_import(&job, false, err);
    zx_job_say_notes(&job);
    if (st == ZX_OK) st = check_unit(&job, err);
    if (st == ZX_OK) st = zx_job_plan(&job, &job.mem, &plan, err);
    if (st == ZX_OK) zx_job_say_notes(&job);
    if (st == ZX_OK) {
        const char *path = zx_given_text(o, ZX_OPT_OUTPUT);
        show(&job, &plan, format, &out);
        if (path != NULL)
            st = zx_outfile_put(path, out.at, out.n, &job.mem, err);
        else
            zx_cmd_put(&out);
    }
    if (st == ZX_OK) st = put_report(&job, &plan, err);
    zx_text_free(&out);
    zx_job_close(&job);
    return zx_status_exit(st);
}

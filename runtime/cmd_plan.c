// cmd_plan.c - zerox plan: makes the plan of a training step and shows it; needs no data, no ranks.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/cmd_machine.h"
#include "runtime/cmd_plan.h"
#include "runtime/cmd_plan_auto.h"
#include "runtime/job_certificate.h"
#include "runtime/job_eval.h"
#include "runtime/job_policy.h"
#include "runtime/outfile.h"
#include "runtime/planfile.h"
#include "runtime/report.h"
#include "sched/trace_json.h"

typedef enum plan_format { FORMAT_TEXT, FORMAT_STATES, FORMAT_JSON, FORMAT_TRACE } plan_format;

// What chooses among lines has no effect where all of a plan is written.
static zx_status check_shown(const zx_options *o, plan_format format, const char *word, zx_err *err)
{
    const bool unit = zx_given(o, ZX_OPT_UNIT), all = zx_given(o, ZX_OPT_INSTRUCTIONS);
    if (unit && all)
        return ZX_FAIL(err, ZX_E_USAGE, "--unit: --instructions shows those of all parameters");
    if (unit && format != FORMAT_TEXT && format != FORMAT_STATES) {
        zx_err_hint(err, "--format text or states");
        return ZX_FAIL(err, ZX_E_USAGE, "--unit: --format %s is of all parameters", word);
    }
    if (all && format != FORMAT_TEXT)
        return ZX_FAIL(err, ZX_E_USAGE, "--instructions is of --format text, not %s", word);
    return ZX_OK;
}

static zx_status read_format(const zx_options *o, plan_format *out, zx_err *err)
{
    static const char *const words[] = {"text", "states", "json", "trace"};
    const char *given = zx_given_text(o, ZX_OPT_FORMAT);
    *out = FORMAT_TEXT;
    if (given == NULL) return check_shown(o, *out, "text", err);
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        if (strcmp(given, words[i]) == 0) {
            *out = (plan_format)i;
            return check_shown(o, *out, given, err);
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

typedef struct planned {
    zx_policy_id id;
    zx_policy_result result;
    uint64_t asked;             // the budget that a policy went over
    zx_certificate certificate; // of zerox's own
    zx_robust robust;           // of another policy, where it was asked for
    zx_job_eval eval;           // planned as well, where that is asked for
    zx_plan eval_plan;
} planned;

// What a policy is beside its plan.
static void put_policy(const zx_job *job, const planned *p, zx_text *out)
{
    const zx_policy_result *r = &p->result;
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT];
    if (r->over)
        zx_text_put(out, "OVER by %s: this policy takes no notice of the budget of %s\n",
                    zx_text_size(r->plan.arena_bytes - p->asked, a), zx_text_size(p->asked, b));
    if (r->knobs[0] != '\0') zx_text_put(out, "knobs: %s\n", r->knobs);
    if (r->mended > 0)
        zx_text_put(out,
                    "%u gathered parameters are held for longer than their modules ask: a step "
                    "reads them elsewhere\n",
                    r->mended);
    zx_job_put_types(job, out);
    if (p->id == ZX_POLICY_ZEROX)
        zx_certificate_text(&p->certificate, out);
    else
        zx_robust_text(&p->robust, out);
}

// Members of the plan's JSON beside what the plan is.
static void put_json(const zx_job *job, const planned *p, zx_text *out)
{
    zx_text more = {0};
    zx_text_put(&more, "\"certificate\":");
    if (p->id == ZX_POLICY_ZEROX)
        zx_certificate_json(&p->certificate, &more);
    else
        zx_text_put(&more, "null");
    zx_text_put(&more, ",\n\"robust\":");
    zx_robust_json(p->id == ZX_POLICY_ZEROX ? &p->certificate.robust : &p->robust, &more);
    zx_text_put(&more, ",\n\"evaluation\":");
    zx_job_eval_json(job, &p->eval, &p->eval_plan, &more);
    zx_explain_json(&job->train, &p->result.plan, more.at, out);
    zx_text_free(&more);
}

static void show(const zx_job *job, const planned *p, plan_format format, zx_text *out)
{
    const char *unit = zx_given_text(job->o, ZX_OPT_UNIT);
    const zx_plan *plan = &p->result.plan;
    if (format == FORMAT_JSON) {
        put_json(job, p, out);
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
    zx_plan shown = *plan;
    if (p->result.over) shown.budget = p->asked;
    zx_explain_summary(&shown, zx_job_whose_budget(job, plan), out);
    put_policy(job, p, out);
    if (p->eval.on) zx_job_eval_text(job, &p->eval, &p->eval_plan, plan, out);
}

// -o takes what --format shows, or without it the plan itself.
static zx_status put_shown(zx_job *job, const zx_plan *plan, const zx_text *shown, zx_err *err)
{
    const char *path = zx_given_text(job->o, ZX_OPT_OUTPUT);
    const bool text = path != NULL && zx_given(job->o, ZX_OPT_FORMAT);
    if (!text) zx_cmd_put(shown);
    if (path == NULL) return ZX_OK;
    if (text) {
        ZX_TRY(zx_outfile_put(path, shown->at, shown->n, &job->mem, err));
    } else {
        const char *recompute = zx_variant_word(&job->variant, &job->mem);
        ZX_TRY(zx_plan_save(plan, &job->train, recompute, path, &job->mem, err));
    }
    zx_cmd_wrote(path, &job->mem);
    return ZX_OK;
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
    if (st == ZX_OK) zx_cmd_wrote(path, &job->mem);
    zx_text_free(&html);
    return st;
}

// ---- what is planned ----------------------------------------------------------------------------

// --policy and --form: one row of the table; the first of its word.
static zx_status find_policy(const zx_options *o, zx_policy_id *out, zx_err *err)
{
    const char *word = zx_given_text(o, ZX_OPT_POLICY), *form = zx_given_text(o, ZX_OPT_FORM);
    zx_policy_id ids[ZX_POLICY_COUNT];
    uint32_t n = 0;
    *out = ZX_POLICY_ZEROX;
    if (word == NULL && form != NULL)
        return ZX_FAIL(err, ZX_E_USAGE, "--form needs --policy hooks, or another that it is for");
    if (word == NULL) return zx_job_check_policies(o, out, 1, err);
    if (strchr(word, ',') != NULL || strcmp(word, "all") == 0) {
        zx_err_hint(err, "zerox compare");
        return ZX_FAIL(err, ZX_E_USAGE, "--policy: a plan is of one policy");
    }
    ZX_TRY(zx_job_policies(word, form, ids, &n, err));
    *out = ids[0];
    return zx_job_check_policies(o, ids, n, err);
}

// What only the planner of zerox can do, and what a policy has of its own.
static zx_status check_policy(zx_job *job, zx_policy_id id, zx_err *err)
{
    const zx_policy_row *row = &zx_policies[id];
    const uint32_t stage = (uint32_t)zx_config_get(&job->config, "zero_optimization.stage")->i;
    if (id == ZX_POLICY_ZEROX) return ZX_OK;
    ZX_TRY(zx_job_check_own(job->o, row->word, err));
    if (job->recompute_auto)
        zx_note(&job->notes, &job->mem,
                "--recompute auto: zerox's planner alone decides it, '%s' is shown with none",
                row->word);
    if (stage == row->stage) return ZX_OK;
    if (zx_given(job->o, ZX_OPT_STAGE))
        return ZX_FAIL(err, ZX_E_USAGE, "--stage %u: policy '%s' is of stage %u", stage, row->word,
                       row->stage);
    zx_note(&job->notes, &job->mem,
            "policy '%s' is of ZeRO stage %u: shown as if the config said so", row->word,
            row->stage);
    return ZX_OK;
}

static zx_status make_plan(zx_job *job, planned *p, zx_err *err)
{
    zx_policy_input in;
    zx_plan *plan = &p->result.plan;
    if (p->id == ZX_POLICY_ZEROX) {
        if (p->eval.on) ZX_TRY(zx_job_eval_plan(job, &p->eval, &p->eval_plan, err));
        ZX_TRY(zx_job_plan(job, &job->mem, plan, err));
        return zx_job_certificate(job, &job->planned, plan, &p->certificate, err);
    }
    ZX_TRY(zx_job_policy_input(job, &in, err));
    ZX_TRY(zx_job_policy_plan(job, p->id, &in, &job->mem, &p->result, err));
    p->asked = in.options->budget;
    if (zx_given(job->o, ZX_OPT_JITTER))
        zx_robust_make(&job->train, &in.options->machine, in.times, plan, &p->robust);
    return ZX_OK;
}

static zx_status open_eval(zx_job *job, planned *p, zx_err *err)
{
    const bool own = p->id == ZX_POLICY_ZEROX && !zx_given(job->o, ZX_OPT_MACHINE);
    if (own) return zx_job_eval_open(job, &p->eval, err);
    if (zx_config_get(&job->config, "zerox.eval.data")->has)
        zx_note(&job->notes, &job->mem,
                "zerox.eval has no effect: evaluation is planned by zerox's own planner, for this "
                "host");
    if (!zx_given(job->o, ZX_OPT_EVAL_DATA)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE,
                   "--eval-data: evaluation is planned by zerox's own planner, for this host");
}

int zx_cmd_plan(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    planned p = {0};
    zx_text out = {0};
    plan_format format = FORMAT_TEXT;
    bool decisions = false;
    uint64_t ranks = zx_cmd_ranks(o);
    zx_status st = zx_cmd_decisions_check(o, &decisions, err);
    if (st == ZX_OK && decisions) return zx_status_exit(zx_cmd_decisions(o, err));
    if (st == ZX_OK) st = read_format(o, &format, err);
    if (st == ZX_OK) st = find_policy(o, &p.id, err);
    if (st == ZX_OK) st = zx_cmd_check_ranks(ranks, ZX_MOST_RANKS, err);
    if (st == ZX_OK && zx_given(o, ZX_OPT_AUTO)) return zx_status_exit(zx_cmd_plan_auto(o, err));
    if (st == ZX_OK) st = zx_cmd_site_open(o, &job.site, &ranks, err);
    if (st == ZX_OK) st = zx_job_open(&job, o, (uint32_t)ranks, true, err);
    if (st == ZX_OK && zx_policy_has_hooks(p.id)) zx_cmd_drop_idle_notes(&job.notes);
    if (st == ZX_OK) st = check_policy(&job, p.id, err);
    if (st == ZX_OK) st = zx_job_import(&job, false, err);
    if (st == ZX_OK) st = open_eval(&job, &p, err);
    zx_job_say_notes(&job);
    if (st == ZX_OK) st = check_unit(&job, err);
    if (st == ZX_OK) st = make_plan(&job, &p, err);
    if (st == ZX_OK) zx_job_say_notes(&job);
    if (st == ZX_OK) {
        show(&job, &p, format, &out);
        st = put_shown(&job, &p.result.plan, &out, err);
    }
    if (st == ZX_OK) st = put_report(&job, &p.result.plan, err);
    zx_text_free(&out);
    zx_job_eval_close(&p.eval);
    zx_job_close(&job);
    return zx_status_exit(st);
}

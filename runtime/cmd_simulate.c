// cmd_simulate.c - zerox simulate: what training takes on machines that aren't here, of models too
// large for this one: nothing is read but shapes, nothing runs but the simulator.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "runtime/cmd_machine.h"
#include "runtime/cmd_plan.h"
#include "runtime/job_certificate.h"
#include "runtime/job_preset.h"
#include "runtime/outfile.h"
#include "runtime/simulate.h"
#include "runtime/ways_out.h"
#include "sched/trace_json.h"

#define MOST_RANKS (1 << 20)

typedef enum sim_format { FORMAT_TEXT, FORMAT_JSON, FORMAT_TRACE } sim_format;

typedef struct wanted { // on the command line
    zx_policy_id ids[ZX_POLICY_COUNT];
    uint32_t n;
    sim_format format;
} wanted;

static zx_status read_format(const zx_options *o, sim_format *out, zx_err *err)
{
    static const char *const words[] = {"text", "json", "trace"};
    const char *given = zx_given_text(o, ZX_OPT_FORMAT);
    *out = FORMAT_TEXT;
    if (given == NULL) return ZX_OK;
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        if (strcmp(given, words[i]) == 0) {
            *out = (sim_format)i;
            return ZX_OK;
        }
    return ZX_FAIL(err, ZX_E_USAGE, "--format of simulate is text, json or trace, not '%s'", given);
}

static zx_status read_wanted(const zx_options *o, wanted *out, zx_err *err)
{
    const char *words = zx_given_text(o, ZX_OPT_POLICY), *form = zx_given_text(o, ZX_OPT_FORM);
    ZX_TRY(read_format(o, &out->format, err));
    ZX_TRY(zx_job_policies(words != NULL ? words : "zerox", form, out->ids, &out->n, err));
    const bool several = words != NULL && (strchr(words, ',') != NULL || !strcmp(words, "all"));
    if (!several) out->n = 1; // the first form of it
    if (out->n == 1 && out->ids[0] != ZX_POLICY_ZEROX)
        ZX_TRY(zx_job_check_own(o, zx_policies[out->ids[0]].word, err));
    ZX_TRY(zx_job_check_policies(o, out->ids, out->n, err));
    if (out->n > 1 && out->format == FORMAT_TRACE)
        return ZX_FAIL(err, ZX_E_USAGE, "--format trace is of one policy");
    return ZX_OK;
}

static zx_status open_job(zx_job *job, const zx_options *o, zx_simulated *s, zx_err *err)
{
    const bool preset = !zx_job_is_file(o);
    const uint64_t ranks = zx_cmd_ranks(o);
    zx_preset_info info;
    ZX_TRY(zx_cmd_check_ranks(ranks, MOST_RANKS, err));
    ZX_TRY(zx_job_check_operand(o, (uint32_t)ranks, err));
    if (preset) {
        zx_preset_sizes sizes;
        ZX_TRY(zx_job_open_named(job, o, (uint32_t)ranks, &sizes, &info, err));
        s->sequence = sizes.sequence;
    } else {
        ZX_TRY(zx_job_open(job, o, (uint32_t)ranks, true, err));
    }
    ZX_TRY(zx_job_import(job, false, err));
    s->active = zx_simulated_active(&job->forward, &s->tokens);
    if (preset) { // experts that a token isn't sent to don't work on it
        s->active = info.active_params - info.embedding_params;
        s->tokens = (uint64_t)(job->batch.micro * s->sequence);
    }
    s->unit = s->tokens > 0 ? "tokens" : "samples";
    if (s->tokens == 0) s->tokens = (uint64_t)job->batch.micro;
    s->tokens *= (uint64_t)job->batch.accumulate;
    return ZX_OK;
}

// What its plan was made from goes to `with`.
static zx_status plan_row(zx_job *job, zx_policy_input *in, const zx_simulated_row *row,
                          zx_arena *mem, zx_plan_options *with, zx_policy_result *r, zx_err *err)
{
    if (!row->again) {
        ZX_TRY(zx_job_policy_plan(job, row->id, in, mem, r, err));
        *with = *in->options;
        return ZX_OK;
    }
    *r = (zx_policy_result){0};
    *with = *in->options;
    with->stage = zx_policies[row->id].stage;
    ZX_TRY(zx_job_choose_own(job, with, &job->mem, &r->plan, err));
    snprintf(r->knobs, sizeof r->knobs, "%s", zx_variant_text(&job->variant, mem));
    return ZX_OK;
}

static zx_status certify(zx_job *job, const zx_plan_options *o, const zx_plan *p,
                         zx_simulated_row *row, zx_err *err)
{
    zx_certificate c;
    zx_text text = {0}, json = {0};
    if (row->id != ZX_POLICY_ZEROX) {
        if (zx_given(job->o, ZX_OPT_JITTER))
            zx_robust_make(&job->train, &o->machine, o->times, p, &row->robust);
        return ZX_OK;
    }
    ZX_TRY(zx_job_certificate(job, o, p, &c, err));
    zx_certificate_text(&c, &text);
    zx_certificate_json(&c, &json);
    row->certificate = zx_arena_str(&job->mem, text.at);
    row->certificate_json = zx_arena_str(&job->mem, json.at);
    row->robust = c.robust;
    zx_text_free(&text);
    zx_text_free(&json);
    return ZX_OK;
}

// One policy; in a table one that can't be had is a row, too.
static zx_status run_policy(zx_job *job, zx_policy_input *in, const wanted *w, zx_simulated *s,
                            zx_simulated_row *row, zx_text *trace, zx_err *err)
{
    zx_arena mem = {0};
    zx_policy_result r;
    zx_plan_options with;
    zx_err found = {0};
    zx_status st = plan_row(job, in, row, &mem, &with, &r, &found);
    if (st == ZX_OK) {
        s->budget = with.budget;
        zx_simulated_fill(s, &r, row);
        st = certify(job, &with, &r.plan, row, err);
        if (w->format == FORMAT_TRACE)
            zx_trace_json(&job->train, &r.plan, job->model, false, trace);
    } else if (w->n > 1 && (st == ZX_E_UNSUPPORTED || st == ZX_E_BUDGET)) {
        row->refused = zx_arena_str(&job->mem, found.cause[0]);
        st = ZX_OK;
    } else {
        if (row->id == ZX_POLICY_ZEROX) zx_job_ways_out(job, in->options, &found);
        zx_err_merge(err, &found);
    }
    zx_arena_free(&mem);
    return st;
}

// With --recompute auto zerox alone decides it; beside others it has a row more, with what they
// have.
static void list_rows(const zx_job *job, const wanted *w, zx_simulated *s)
{
    zx_simulated_row *rows = ZX_NEW((zx_arena *)(uintptr_t)&job->mem, zx_simulated_row, w->n + 1);
    bool zerox = false;
    s->rows = rows;
    for (uint32_t i = 0; i < w->n; i++) {
        rows[s->n_rows++].id = w->ids[i];
        zerox |= w->ids[i] == ZX_POLICY_ZEROX;
    }
    if (!job->recompute_auto || !zerox) return;
    if (w->n > 1) rows[s->n_rows++].id = ZX_POLICY_ZEROX;
    rows[s->n_rows - 1].again = true;
}

static zx_status simulate(zx_job *job, const wanted *w, zx_simulated *s, zx_text *out, zx_err *err)
{
    zx_policy_input in;
    s->job = job;
    list_rows(job, w, s);
    ZX_TRY(zx_job_policy_input(job, &in, err));
    if (!job->machine.host)
        zx_note(&job->notes, &job->mem,
                "%s: scratch of its kernels isn't known, and counts as none", job->machine.name);
    s->budget = in.options->budget;
    const zx_variant everybodys = job->variant;
    for (uint32_t i = 0; i < s->n_rows; i++)
        ZX_TRY(run_policy(job, &in, w, s, &s->rows[i], out, err));
    if (s->n_rows > 1) zx_job_take(job, &everybodys);
    if (w->format == FORMAT_TEXT) zx_simulated_text(s, out);
    if (w->format == FORMAT_JSON) zx_simulated_json(s, out);
    return ZX_OK;
}

// Of what is shown something has to fit, or the budget is too small.
static zx_status check_fits(zx_job *job, const zx_simulated *s, zx_err *err)
{
    uint32_t least = ZX_NONE;
    char size[ZX_BYTES_TEXT], need[ZX_BYTES_TEXT];
    for (uint32_t i = 0; i < s->n_rows; i++) {
        const zx_simulated_row *x = &s->rows[i];
        if (x->refused != NULL) continue;
        if (x->over_bytes == 0) return ZX_OK;
        if (least == ZX_NONE || x->peak_bytes < s->rows[least].peak_bytes) least = i;
    }
    zx_err_hint(err, "a larger --budget or --machine%s",
                job->recompute == ZX_RECOMPUTE_NONE ? ", or --recompute full" : "");
    if (least == ZX_NONE)
        return ZX_FAIL(err, ZX_E_BUDGET, "there is a plan of no policy within %s a rank",
                       zx_text_size(s->budget, size));
    return ZX_FAIL(err, ZX_E_BUDGET, "nothing fits into %s a rank: the least is %s, by %s",
                   zx_text_size(s->budget, size), zx_text_size(s->rows[least].peak_bytes, need),
                   zx_policy_name(s->rows[least].id, &job->mem));
}

int zx_cmd_simulate(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    zx_simulated s = {0};
    wanted w = {0};
    zx_text out = {0};
    zx_status st = read_wanted(o, &w, err);
    if (st == ZX_OK) st = open_job(&job, o, &s, err);
    zx_cmd_drop_idle_notes(&job.notes);
    zx_job_say_notes(&job);
    if (st == ZX_OK) st = simulate(&job, &w, &s, &out, err);
    if (st == ZX_OK) zx_job_say_notes(&job);
    const char *path = zx_given_text(o, ZX_OPT_OUTPUT);
    if (st == ZX_OK && path != NULL)
        st = zx_outfile_put(path, out.at, out.n, &job.mem, err);
    else if (st == ZX_OK)
        zx_cmd_put(&out);
    if (st == ZX_OK && path != NULL) zx_cmd_wrote(path, &job.mem);
    if (st == ZX_OK) st = check_fits(&job, &s, err);
    zx_text_free(&out);
    zx_job_close(&job);
    return zx_status_exit(st);
}

// cmd_train_pictures.c - the last step of a run as rank 0 measured it: --report and --profile.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_machine.h"
#include "runtime/cmd_train.h"
#include "runtime/outfile.h"
#include "runtime/report.h"
#include "sched/trace_json.h"

static zx_status put_file(zx_train *t, const char *path, zx_text *text, zx_err *err)
{
    const zx_status st = zx_outfile_put(path, text->at, text->n, &t->job.mem, err);
    zx_text_free(text);
    if (st == ZX_OK) zx_cmd_wrote(path, &t->job.mem);
    return st;
}

zx_status zx_train_pictures(zx_train *t, zx_err *err)
{
    const char *report = zx_given_text(t->job.o, ZX_OPT_REPORT),
               *profile = zx_given_text(t->job.o, ZX_OPT_PROFILE);
    zx_plan measured = t->plan, predicted = t->plan;
    zx_text text = {0};
    if ((report == NULL && profile == NULL) || t->done == 0) return ZX_OK;
    if (!zx_session_profile(t->session, &measured.start, &measured.seconds)) return ZX_OK;
    measured.step_seconds = 0;
    for (uint32_t i = 0; i < measured.n_insns; i++) {
        const double end = measured.start[i] + measured.seconds[i];
        if (end > measured.step_seconds) measured.step_seconds = end;
    }
    if (profile != NULL) {
        zx_trace_json(&t->job.train, &measured, t->job.model, true, &text);
        ZX_TRY(put_file(t, profile, &text, err));
    }
    if (report == NULL) return ZX_OK;
    predicted.start = t->start;
    predicted.seconds = t->seconds;
    if (predicted.start == NULL) { // a plan from a file
        zx_machine machine;
        ZX_TRY(zx_cmd_machine_at(&t->job.site, t->job.o, t->job.ranks, t->job.threads, &t->job.mem,
                                 &t->job.notes, &machine, err));
        zx_plan_simulate(&t->job.train, &machine, NULL, &predicted, &t->job.mem);
    }
    const zx_report r = {
        .title = t->job.model,
        .train = &t->job.train,
        .plan = &predicted,
        .measured_start = measured.start,
        .measured_seconds = measured.seconds,
        .measured_step_seconds = measured.step_seconds,
    };
    zx_report_html(&r, &text);
    return put_file(t, report, &text, err);
}

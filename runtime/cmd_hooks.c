// cmd_hooks.c - zerox plan --policy hooks --format decisions: what DeepSpeed's hooks would do with
// this model and config, decision by decision, from the first micro-batch.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/baseline.h"
#include "runtime/cmd_plan.h"
#include "runtime/job_policy.h"
#include "runtime/outfile.h"

#define MOST_MICRO_BATCHES 1000000

zx_status zx_cmd_decisions_check(const zx_options *o, bool *decisions, zx_err *err)
{
    const char *policy = zx_given_text(o, ZX_OPT_POLICY), *format = zx_given_text(o, ZX_OPT_FORMAT);
    static const struct {
        zx_option_id id;
        const char *word;
    } never[] = {{ZX_OPT_UNIT, "--unit"},
                 {ZX_OPT_INSTRUCTIONS, "--instructions"},
                 {ZX_OPT_BUDGET, "--budget"},
                 {ZX_OPT_NO_OVERLAP, "--no-overlap"},
                 {ZX_OPT_FORM, "--form"},
                 {ZX_OPT_MACHINE, "--machine"},
                 {ZX_OPT_REPORT, "--report"},
                 {ZX_OPT_EVAL_DATA, "--eval-data"},
                 {ZX_OPT_BACKEND, "--backend"},
                 {ZX_OPT_THREADS, "--threads"},
                 {ZX_OPT_OBJECTIVE, "--objective"},
                 {ZX_OPT_PIN, "--pin"},
                 {ZX_OPT_CERTIFY, "--certify"},
                 {ZX_OPT_JITTER, "--jitter"},
                 {ZX_OPT_SAVE_ASYNC, "--save-async"},
                 {ZX_OPT_NO_FUSE, "--no-fuse"},
                 {ZX_OPT_WIRE_DELAY, "--wire-delay"},
                 {ZX_OPT_AUTO, "--auto"}};
    *decisions = format != NULL && strcmp(format, "decisions") == 0;
    if (!*decisions && zx_given(o, ZX_OPT_MICRO_BATCHES)) {
        zx_err_hint(err, "gradient_accumulation_steps of the config");
        return ZX_FAIL(err, ZX_E_USAGE, "--micro-batches needs --policy hooks --format decisions");
    }
    if (!*decisions) return ZX_OK;
    if (policy == NULL || strcmp(policy, "hooks") != 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--format decisions shows what DeepSpeed's hooks decide: --policy hooks");
    for (size_t i = 0; i < ZX_COUNT(never); i++)
        if (zx_given(o, never[i].id))
            return ZX_FAIL(err, ZX_E_USAGE, "%s has no meaning for --format decisions",
                           never[i].word);
    return ZX_OK;
}

void zx_cmd_drop_idle_notes(zx_notes *notes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < notes->n; i++)
        if (strstr(notes->text[i], ": no effect: ") == NULL) notes->text[kept++] = notes->text[i];
    notes->n = kept;
}

static zx_status run(zx_job *job, const zx_hooks *hooks, const zx_hook_limits *limits, uint32_t n,
                     zx_err *err)
{
    zx_coordinator *c = zx_coordinator_make(hooks, limits, &job->mem);
    const char *path = zx_given_text(job->o, ZX_OPT_OUTPUT);
    zx_outfile file = {0};
    zx_text out = {0};
    zx_status st = path == NULL ? ZX_OK : zx_outfile_open(&file, path, &job->mem, err);
    for (uint32_t i = 0; i < n && st == ZX_OK; i++) {
        st = zx_coordinator_run(c, hooks->events, hooks->n_events, err);
        out.n = 0;
        zx_hooks_put(hooks, c, i, &out);
        if (path == NULL)
            zx_cmd_put(&out);
        else if (st == ZX_OK)
            st = zx_outfile_write(&file, out.at, out.n, err);
    }
    if (st == ZX_OK && path != NULL) st = zx_outfile_commit(&file, err);
    if (st == ZX_OK && path != NULL) zx_cmd_wrote(path, &job->mem);
    zx_outfile_drop(&file);
    zx_text_free(&out);
    return st;
}

zx_status zx_cmd_decisions(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    zx_hooks hooks;
    zx_hook_limits limits;
    zx_blocks blocks;
    const uint64_t ranks = zx_given_number(o, ZX_OPT_RANKS, 1),
                   n = zx_given_number(o, ZX_OPT_MICRO_BATCHES, 3);
    zx_status st = zx_cmd_check_ranks(ranks, ZX_MOST_RANKS, err);
    if (st == ZX_OK && n > MOST_MICRO_BATCHES)
        st = ZX_FAIL(err, ZX_E_USAGE, "--micro-batches %llu is too many", (unsigned long long)n);
    if (st == ZX_OK) st = zx_job_open(&job, o, (uint32_t)ranks, true, err);
    zx_cmd_drop_idle_notes(&job.notes);
    if (st == ZX_OK && zx_config_get(&job.config, "zero_optimization.stage")->i != 3)
        zx_note(&job.notes, &job.mem,
                "hooks gather parameters under ZeRO stage 3 only: shown as if "
                "the config said so");
    if (st == ZX_OK) st = zx_job_import(&job, true, err);
    if (st == ZX_OK)
        st = zx_baseline_make(&job, zx_job_recompute_blocks(&job, &blocks), &hooks, &limits, err);
    zx_job_say_notes(&job);
    if (st == ZX_OK) st = run(&job, &hooks, &limits, (uint32_t)n, err);
    zx_job_close(&job);
    return st;
}

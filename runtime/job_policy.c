// job_policy.c - see job_policy.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_policy.h"

#include <string.h>
#include <strings.h>

#include "runtime/baseline.h"
#include "sched/trace.h"

bool zx_policy_has_hooks(zx_policy_id id)
{
    return zx_policies[id].make == zx_policy_hooks || zx_policies[id].make == zx_policy_hooks_tuned;
}

void zx_job_note_hooks(zx_job *job)
{
    for (uint32_t i = 0; i < job->hook_notes.n; i++)
        zx_note(&job->notes, &job->mem, "%s", job->hook_notes.text[i]);
    job->hook_notes.n = 0;
}

// ---- input --------------------------------------------------------------------------------------

// Notes on the modules are kept apart.
static zx_status make_hooks(zx_job *job, zx_hooks *hooks, zx_policy_input *in, zx_err *err)
{
    const zx_notes others = job->notes;
    zx_blocks blocks;
    const zx_blocks *again = zx_job_recompute_blocks(job, &blocks);
    zx_err found = {0};
    job->notes = job->hook_notes;
    const zx_status st = zx_baseline_make(job, again, hooks, &in->limits, &found);
    job->hook_notes = job->notes;
    job->notes = others;
    if (st == ZX_OK) in->hooks = hooks;
    if (st == ZX_E_UNSUPPORTED) in->hooks_why = zx_arena_str(&job->mem, found.cause[0]);
    return st == ZX_OK || st == ZX_E_UNSUPPORTED ? ZX_OK : zx_err_merge(err, &found);
}

zx_status zx_job_policy_input(zx_job *job, zx_policy_input *in, zx_err *err)
{
    zx_plan_options *po = ZX_NEW(&job->mem, zx_plan_options, 1);
    zx_hooks *hooks = ZX_NEW(&job->mem, zx_hooks, 1);
    *in = (zx_policy_input){.train = &job->train, .options = po, .own_limits = job->budget.roomy};
    ZX_TRY(make_hooks(job, hooks, in, err));
    return zx_job_plan_options(job, &job->mem, po, err);
}

zx_status zx_job_policy_plan(zx_job *job, zx_policy_id id, zx_policy_input *in, zx_arena *mem,
                             zx_policy_result *out, zx_err *err)
{
    zx_plan_options po = *in->options;
    zx_policy_input with = *in;
    zx_err found = {0};
    with.options = &po;
    if (zx_policy_has_hooks(id)) zx_job_note_hooks(job);
    zx_status st = zx_policy_plan(id, &with, mem, out, &found);
    if (st != ZX_OK && zx_job_unlimited(job, &po, &found)) {
        st = zx_policy_plan(id, &with, mem, out, &found);
        *(zx_plan_options *)(uintptr_t)in->options = po;
    }
    return st == ZX_OK ? ZX_OK : zx_err_merge(err, &found);
}

// ---- shown --------------------------------------------------------------------------------------

uint64_t zx_job_activation_bytes(const zx_job *job)
{
    const zx_graph *g = &job->train;
    zx_arena mem = {0};
    zx_trace t;
    const zx_plan_options o = {.ranks = 1, .micro_batches = 2, .machine = zx_machine_host(1, 1)};
    uint64_t most = 0;
    int64_t now = 0;
    if (zx_trace_make(g, &o, &mem, &t, NULL) == ZX_OK) {
        int64_t *change = ZX_NEW(&mem, int64_t, t.n_steps + 1);
        bool *is_gradient = ZX_NEW(&mem, bool, t.n_storages + 1);
        for (uint32_t u = 0; u < g->n_params; u++)
            if (g->params[u].grad != ZX_NONE && t.where[g->params[u].grad].kind == ZX_AT_STORAGE)
                is_gradient[t.where[g->params[u].grad].index] = true;
        for (uint32_t i = 0; i < t.n_storages; i++) {
            const zx_storage *s = &t.storages[i];
            if (is_gradient[i]) continue;
            change[s->born] += (int64_t)s->bytes;
            change[s->dies + 1] -= (int64_t)s->bytes;
        }
        for (uint32_t i = 0; i < t.n_steps; i++) {
            now += change[i];
            if ((uint64_t)now > most) most = (uint64_t)now;
        }
    }
    zx_arena_free(&mem);
    return most;
}

void zx_job_put_types(const zx_job *job, zx_text *out)
{
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    const bool half = job->precision != ZX_PREC_F32, again = job->variant.n > 0;
    zx_arena mem = {0};
    char size[ZX_BYTES_TEXT];
    if (!half && !again) return;
    zx_text_put(out, "precision %s", words[job->precision]);
    if (half)
        zx_text_put(out, " with fp32 copies of the parameters, gradients added up in %s",
                    zx_job_accumulate_bytes(job) == 4 ? "fp32" : words[job->precision]);
    if (half && job->ranks > 1)
        zx_text_put(out, " and sent to other ranks in %s", words[job->precision]);
    zx_text_put(out, "; activations at most %s%s%s\n",
                zx_text_size(zx_job_activation_bytes(job), size), again ? ", " : "",
                zx_variant_text(&job->variant, &mem));
    zx_arena_free(&mem);
}

// ---- which --------------------------------------------------------------------------------------

// "as DeepSpeed" is "as-deepspeed" on a command line.
static bool is_form(const char *form, const char *given)
{
    for (; *form != '\0' && *given != '\0'; form++, given++) {
        const char c = *form == ' ' ? '-' : *form;
        if (strncasecmp(&c, given, 1) != 0) return false;
    }
    return *form == *given;
}

static zx_status check_form(const char *form, zx_err *err)
{
    if (form == NULL) return ZX_OK;
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++)
        if (zx_policies[i].form[0] != '\0' && is_form(zx_policies[i].form, form)) return ZX_OK;
    zx_arena mem = {0};
    const zx_status st = ZX_FAIL(err, ZX_E_USAGE,
                                 "--form is schedule-only or as-deepspeed (hooks, hooks-tuned), or "
                                 "once-a-step (ddp, zero1), not '%s'",
                                 zx_text_safe(&mem, form));
    zx_arena_free(&mem);
    return st;
}

// Beside others, a word that has no such form is taken as it is.
static zx_status take_word(const char *word, const char *form, bool alone,
                           bool wanted[ZX_POLICY_COUNT], zx_err *err)
{
    zx_policy_id ids[ZX_POLICY_COUNT];
    uint32_t n = 0, taken = 0;
    ZX_TRY(zx_policy_find(word, ids, &n, err));
    for (uint32_t i = 0; i < n; i++) {
        if (form != NULL && !is_form(zx_policies[ids[i]].form, form)) continue;
        wanted[ids[i]] = true;
        taken++;
    }
    if (taken > 0) return ZX_OK;
    if (alone)
        return ZX_FAIL(err, ZX_E_USAGE, "--form %s: policy '%s' has no such form", form, word);
    for (uint32_t i = 0; i < n; i++) wanted[ids[i]] = true;
    return ZX_OK;
}

zx_status zx_job_policies(const char *words, const char *form, zx_policy_id ids[ZX_POLICY_COUNT],
                          uint32_t *n, zx_err *err)
{
    bool wanted[ZX_POLICY_COUNT] = {false};
    const bool alone = strchr(words, ',') == NULL;
    zx_arena mem = {0};
    zx_text every = {0};
    zx_status st = check_form(form, err);
    *n = 0;
    if (strcmp(words, "all") == 0) {
        for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++)
            zx_text_put(&every, "%s%s", i > 0 ? "," : "", zx_policies[i].word);
        words = every.at;
    }
    for (const char *at = words; st == ZX_OK;) {
        const size_t len = strcspn(at, ",");
        st = take_word(zx_arena_strn(&mem, at, len), form, alone && every.n == 0, wanted, err);
        if (at[len] == '\0') break;
        at += len + 1;
    }
    for (uint32_t i = 0; st == ZX_OK && i < ZX_POLICY_COUNT; i++)
        if (wanted[i]) ids[(*n)++] = (zx_policy_id)i;
    zx_text_free(&every);
    zx_arena_free(&mem);
    return st;
}

// DeepSpeed's limits, which the defaults fill.
static bool reads_limits(zx_policy_id id)
{
    return zx_policy_has_hooks(id) || id == ZX_POLICY_ZERO1 || id == ZX_POLICY_ZERO1_ONCE ||
           id == ZX_POLICY_ZERO2 || id == ZX_POLICY_DEEPCOMPILE;
}

zx_status zx_job_check_policies(const zx_options *o, const zx_policy_id *ids, uint32_t n,
                                zx_err *err)
{
    static const struct {
        zx_option_id id;
        const char *word, *readers;
        bool (*read_by)(zx_policy_id id);
    } only[] = {
        {ZX_OPT_MODULES, "--modules", "hooks or hooks-tuned", zx_policy_has_hooks},
        {ZX_OPT_BASELINE_DEFAULTS, "--baseline-defaults",
         "hooks, hooks-tuned, zero1, zero2 or deepcompile", reads_limits},
    };
    for (size_t i = 0; i < ZX_COUNT(only); i++) {
        uint32_t readers = 0;
        for (uint32_t k = 0; k < n; k++) readers += only[i].read_by(ids[k]);
        if (!zx_given(o, only[i].id) || readers > 0) continue;
        return ZX_FAIL(err, ZX_E_USAGE, "%s is read by --policy %s, not by '%s'", only[i].word,
                       only[i].readers, zx_policies[ids[0]].word);
    }
    return ZX_OK;
}

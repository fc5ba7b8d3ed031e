// cmd_hooks.c - zerox plan --policy hooks --format decisions: what DeepSpeed's hooks would do with
// this model and config, decision by decision, from the first micro-batch.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "proto/mapfile.h"
#include "runtime/cmd_plan.h"
#include "sched/hooks.h"

#define MOST_MICRO_BATCHES 1000000

// The policies that plans are compared with; of those only the decisions of hooks can be had so
// far.
static const char *const policies[] = {"hooks", "hooks-tuned", "ddp",         "zero1", "zero2",
                                       "fsdp",  "fsdp-tuned",  "deepcompile", "zerox"};

zx_status zx_cmd_hooks_check(const zx_options *o, zx_err *err)
{
    const char *policy = zx_given_text(o, ZX_OPT_POLICY), *format = zx_given_text(o, ZX_OPT_FORMAT);
    const bool decisions = format != NULL && strcmp(format, "decisions") == 0;
    static const zx_option_id only_here[] = {ZX_OPT_MICRO_BATCHES, ZX_OPT_MODULES},
                              never_here[] = {ZX_OPT_UNIT, ZX_OPT_INSTRUCTIONS, ZX_OPT_BUDGET,
                                              ZX_OPT_NO_OVERLAP};
    static const char *const only_words[] = {"--micro-batches", "--modules"},
                             *const never_words[] = {"--unit", "--instructions", "--budget",
                                                     "--no-overlap"};
    if (policy == NULL) {
        if (decisions)
            return ZX_FAIL(err, ZX_E_USAGE,
                           "--format decisions shows what a policy decides: --policy hooks");
        for (size_t i = 0; i < ZX_COUNT(only_here); i++)
            if (zx_given(o, only_here[i]))
                return ZX_FAIL(err, ZX_E_USAGE, "%s needs --policy hooks --format decisions",
                               only_words[i]);
        return ZX_OK;
    }
    zx_arena mem = {0};
    bool known = false;
    for (size_t i = 0; i < ZX_COUNT(policies); i++)
        known = known || strcmp(policy, policies[i]) == 0;
    zx_status st = ZX_OK;
    if (!known) {
        const char *near = zx_text_nearest(policy, policies, ZX_COUNT(policies));
        if (near != NULL) zx_err_hint(err, "--policy %s", near);
        st = ZX_FAIL(err, ZX_E_USAGE, "--policy: there is no policy '%s'",
                     zx_text_safe(&mem, policy));
    } else if (strcmp(policy, "hooks") != 0) {
        zx_err_hint(err, "--policy hooks --format decisions, or leave --policy out");
        st = ZX_FAIL(err, ZX_E_USAGE, "--policy %s isn't in this version", policy);
    } else if (!decisions) {
        zx_err_hint(err, "--policy hooks --format decisions");
        st = ZX_FAIL(err, ZX_E_USAGE,
                     "--policy hooks with --format %s isn't in this version: its decisions are",
                     format != NULL ? zx_text_safe(&mem, format) : "text");
    }
    for (size_t i = 0; st == ZX_OK && i < ZX_COUNT(never_here); i++)
        if (zx_given(o, never_here[i]))
            st = ZX_FAIL(err, ZX_E_USAGE, "%s has no meaning for --format decisions",
                         never_words[i]);
    zx_arena_free(&mem);
    return st;
}

// ---- what the hooks are told --------------------------------------------------------------------

// One path a line, in the order of the calls; the root's own line may be there or not.
static zx_status read_calls(zx_job *job, zx_hooks_options *ho, zx_err *err)
{
    const char *path = zx_given_text(job->o, ZX_OPT_MODULES);
    if (path == NULL) return ZX_OK;
    zx_mapfile file;
    ZX_TRY(zx_mapfile_open(&file, path, err));
    const char **calls = NULL;
    uint32_t n = 0, cap = 0;
    for (uint64_t at = 0, len; at < file.size; at += len + 1) {
        const char *line = (const char *)file.bytes + at;
        const char *end = memchr(line, '\n', (size_t)(file.size - at));
        len = end != NULL ? (uint64_t)(end - line) : file.size - at;
        size_t keep = (size_t)len;
        while (keep > 0 && strchr(" \t\r", line[keep - 1]) != NULL && line[keep - 1] != '\0')
            keep--;
        if (keep == 0 || (keep == 6 && memcmp(line, "<root>", 6) == 0)) continue;
        ZX_GROW(&job->mem, calls, n, cap);
        calls[n++] = zx_arena_strn(&job->mem, line, keep);
    }
    zx_mapfile_close(&file);
    if (n == 0) return ZX_FAIL(err, ZX_E_USAGE, "--modules: %s lists no calls of modules", path);
    ho->calls = calls;
    ho->n_calls = n;
    return ZX_OK;
}

static int64_t elements(const zx_job *job, const char *key, int64_t absent)
{
    const zx_config_value *v = zx_config_get(&job->config, key);
    return v->has ? v->i : absent;
}

static zx_hook_limits limits_of(const zx_job *job)
{
    // Where the file is silent: DeepSpeed's own defaults.
    return (zx_hook_limits){
        .prefetch_bucket = elements(job, "zero_optimization.stage3_prefetch_bucket_size", 50000000),
        .max_live = elements(job, "zero_optimization.stage3_max_live_parameters", 1000000000),
        .max_reuse = elements(job, "zero_optimization.stage3_max_reuse_distance", 1000000000),
        .param_persistence =
            elements(job, "zero_optimization.stage3_param_persistence_threshold", 100000),
        .model_persistence =
            elements(job, "zero_optimization.stage3_model_persistence_threshold", INT64_MAX),
        .reduce_bucket = elements(job, "zero_optimization.reduce_bucket_size", 500000000),
        .accumulate = (uint32_t)job->batch.accumulate,
    };
}

static void leaves_of(zx_job *job, zx_hooks_options *ho)
{
    const zx_config *c = &job->config;
    const zx_config_value *names = zx_config_get(c, "zero_optimization.leaf_module.names"),
                          *ends = zx_config_get(c, "zero_optimization.leaf_module.name_suffixes"),
                          *classes = zx_config_get(c, "zero_optimization.leaf_module.classes");
    ho->names = names->texts;
    ho->n_names = names->has ? names->n : 0;
    ho->suffixes = ends->texts;
    ho->n_suffixes = ends->has ? ends->n : 0;
    ho->granularity = elements(job, "zero_optimization.stage3_module_granularity_threshold", 0);
    if (classes->from == ZX_FROM_FILE && classes->n > 0)
        zx_note(&job->notes, &job->mem,
                "leaf_module.classes: a file doesn't name its modules' classes; "
                "leaf_module.names does it");
}

// What has no effect on plans of zerox's own mostly has one here: those notes would mislead.
static void drop_idle_notes(zx_notes *notes)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < notes->n; i++)
        if (strstr(notes->text[i], ": no effect: ") == NULL) notes->text[kept++] = notes->text[i];
    notes->n = kept;
}

static zx_status run(zx_job *job, const zx_hooks *hooks, uint32_t n, zx_err *err)
{
    const zx_hook_limits limits = limits_of(job);
    zx_coordinator *c = zx_coordinator_make(hooks, &limits, &job->mem);
    zx_text out = {0};
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < n && st == ZX_OK; i++) {
        st = zx_coordinator_run(c, hooks->events, hooks->n_events, err);
        out.n = 0;
        zx_hooks_put(hooks, c, i, &out);
        zx_cmd_put(&out);
    }
    zx_text_free(&out);
    return st;
}

zx_status zx_cmd_hooks(const zx_options *o, zx_err *err)
{
    zx_job job = {0};
    zx_hooks_options ho = {0};
    zx_hooks hooks;
    const uint64_t ranks = zx_given_number(o, ZX_OPT_RANKS, 1),
                   n = zx_given_number(o, ZX_OPT_MICRO_BATCHES, 3);
    zx_status st = ZX_OK;
    if (ranks > 4096)
        st = ZX_FAIL(err, ZX_E_USAGE, "--ranks %llu is too many", (unsigned long long)ranks);
    if (st == ZX_OK && n > MOST_MICRO_BATCHES)
        st = ZX_FAIL(err, ZX_E_USAGE, "--micro-batches %llu is too many", (unsigned long long)n);
    if (st == ZX_OK) st = zx_job_open(&job, o, (uint32_t)ranks, true, err);
    drop_idle_notes(&job.notes);
    if (st == ZX_OK && zx_config_get(&job.config, "zero_optimization.stage")->i != 3)
        zx_note(&job.notes, &job.mem,
                "hooks gather parameters under ZeRO stage 3 only: shown as if "
                "the config said so");
    if (st == ZX_OK) st = read_calls(&job, &ho, err);
    if (st == ZX_OK) st = zx_job_import(&job, true, err);
    if (st == ZX_OK) leaves_of(&job, &ho);
    if (st == ZX_OK) st = zx_hooks_make(&job.forward, &ho, &job.mem, &hooks, &job.notes, err);
    zx_job_say_notes(&job);
    if (st == ZX_OK) st = run(&job, &hooks, (uint32_t)n, err);
    zx_job_close(&job);
    return st;
}

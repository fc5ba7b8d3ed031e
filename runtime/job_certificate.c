// job_certificate.c - see job_certificate.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_certificate.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define MOST_LIMITS 4

// ---- what is asked ------------------------------------------------------------------------------

bool zx_job_spares_memory(const zx_job *job)
{
    const char *text = zx_given_text(job->o, ZX_OPT_OBJECTIVE);
    return text != NULL ? strcmp(text, "memory") == 0 : job->budget.roomy;
}

zx_status zx_job_check_objective(zx_job *job, zx_err *err)
{
    const char *text = zx_given_text(job->o, ZX_OPT_OBJECTIVE);
    if (text == NULL || strcmp(text, "time") == 0 || strcmp(text, "memory") == 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "--objective is time or memory, not '%s'",
                   zx_text_safe(&job->mem, text));
}

zx_status zx_job_check_own(const zx_options *o, const char *policy, zx_err *err)
{
    static const struct {
        zx_option_id id;
        const char *word, *why;
    } own[] = {{ZX_OPT_NO_OVERLAP, "--no-overlap", "has its own order"},
               {ZX_OPT_OBJECTIVE, "--objective", "has no objective"},
               {ZX_OPT_PIN, "--pin", "decides itself what stays"},
               {ZX_OPT_CERTIFY, "--certify", "makes no claim that could be certified"}};
    for (size_t i = 0; i < ZX_COUNT(own); i++)
        if (zx_given(o, own[i].id))
            return ZX_FAIL(err, ZX_E_USAGE, "%s: policy '%s' %s", own[i].word, policy, own[i].why);
    return ZX_OK;
}

static zx_status pin(zx_job *job, const char *glob, bool *pinned, zx_err *err)
{
    const zx_graph *g = &job->train;
    const char **names = ZX_NEW(&job->mem, const char *, g->n_params + 1);
    const char *tied = NULL;
    bool found = false;
    for (uint32_t u = 0; u < g->n_params; u++) {
        const zx_param *p = &g->params[u];
        names[u] = p->name;
        for (uint32_t k = 0; k < p->n_aliases; k++)
            if (zx_text_match(glob, p->aliases[k])) tied = p->name;
        if (!zx_text_match(glob, p->name)) continue;
        pinned[u] = found = true;
    }
    if (found) return ZX_OK;
    const char *near = tied != NULL ? tied : zx_text_nearest(glob, names, g->n_params);
    const char *safe = zx_text_safe(&job->mem, glob);
    if (access(job->model, R_OK) == 0)
        zx_err_hint(err, "zerox check %s lists the parameters",
                    zx_text_safe(&job->mem, job->model));
    else // a preset
        zx_err_hint(err, "names as Hugging Face has them: --pin 'model.layers.0.*'");
    if (near == NULL) return ZX_FAIL(err, ZX_E_USAGE, "--pin: no parameter is named '%s'", safe);
    return ZX_FAIL(err, ZX_E_USAGE, "--pin: no parameter is named '%s'; %s '%s'", safe,
                   tied != NULL ? "it is tied to" : "the nearest is",
                   zx_text_safe(&job->mem, near));
}

zx_status zx_job_pins(zx_job *job, zx_arena *mem, const bool **out, zx_err *err)
{
    const zx_option_value *given = &job->o->value[ZX_OPT_PIN];
    *out = NULL;
    if (given->n == 0) return ZX_OK;
    const int64_t stage = zx_config_get(&job->config, "zero_optimization.stage")->i;
    if (job->ranks == 1) return ZX_FAIL(err, ZX_E_USAGE, "--pin: on one rank nothing is gathered");
    if (stage < 3 && job->o->command != ZX_CMD_SIMULATE) // which has its policies' stages
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--pin: at ZeRO stage %d parameters are whole anyway, nothing is gathered",
                       (int)stage);
    bool *pinned = ZX_NEW(mem, bool, job->train.n_params + 1);
    for (uint32_t i = 0; i < given->n; i++) ZX_TRY(pin(job, given->text[i], pinned, err));
    *out = pinned;
    return ZX_OK;
}

// ---- what is said -------------------------------------------------------------------------------

static zx_limit *add(zx_limit *limits, uint32_t *n, const char *what, const zx_plan_options *o)
{
    ZX_ASSERT(*n < MOST_LIMITS);
    limits[*n] = (zx_limit){.what = what, .without = *o};
    return &limits[(*n)++];
}

static const char *pins_text(zx_job *job)
{
    const zx_option_value *given = &job->o->value[ZX_OPT_PIN];
    zx_text t = {0};
    for (uint32_t i = 0; i < given->n; i++)
        zx_text_put(&t, "%s--pin '%s'", i > 0 ? " " : "", zx_text_safe(&job->mem, given->text[i]));
    const char *text = zx_arena_str(&job->mem, t.at);
    zx_text_free(&t);
    return text;
}

static uint32_t find_limits(zx_job *job, const zx_plan_options *o, zx_limit *limits)
{
    zx_arena *mem = &job->mem;
    uint32_t n = 0;
    if (o->ranks == 1) return 0; // nothing is gathered or reduced
    if (o->max_live_elements > 0 && o->stage == 3)
        add(limits, &n,
            zx_arena_printf(mem, "stage3_max_live_parameters %" PRIu64,
                            o->max_live_elements == ZX_LIVE_LEAST ? 0 : o->max_live_elements),
            o)
            ->without.max_live_elements = 0;
    if (o->reduce_bucket_elements > 0)
        add(limits, &n,
            zx_arena_printf(mem, "reduce_bucket_size %" PRIu64, o->reduce_bucket_elements), o)
            ->without.reduce_bucket_elements = 0;
    if (o->no_overlap)
        add(limits, &n, zx_given(job->o, ZX_OPT_NO_OVERLAP) ? "--no-overlap" : "overlap_comm false",
            o)
            ->without.no_overlap = false;
    if (o->pinned != NULL) add(limits, &n, pins_text(job), o)->without.pinned = NULL;
    return n;
}

zx_status zx_job_certificate(zx_job *job, const zx_plan_options *o, const zx_plan *p,
                             zx_certificate *out, zx_err *err)
{
    zx_limit *limits = ZX_NEW(&job->mem, zx_limit, MOST_LIMITS);
    ZX_TRY(zx_certificate_make(&job->train, o, p, &job->mem, out, err));
    if (zx_given(job->o, ZX_OPT_CERTIFY))
        ZX_TRY(zx_certificate_lp(&job->train, o, p, &job->mem, out, err));
    out->limits = limits;
    out->n_limits = find_limits(job, o, limits);
    ZX_TRY(zx_limits_cost(&job->train, p, limits, out->n_limits, err));
    if (zx_given(job->o, ZX_OPT_JITTER))
        zx_robust_make(&job->train, &o->machine, o->times, p, &out->robust);
    return ZX_OK;
}

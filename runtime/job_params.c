// job_params.c - see job_params.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_params.h"

#include <math.h>
#include <string.h>

#include "runtime/cmd.h"

#define KEY "zerox.param_groups"

// ---- reading ------------------------------------------------------------------------------------

static zx_status read_patterns(zx_job *job, const json_t *j, uint32_t at, zx_param_group *out,
                               zx_err *err)
{
    const bool one = json_is_string(j);
    out->n_patterns = one ? 1 : (uint32_t)json_array_size(j);
    const char **patterns = ZX_NEW(&job->mem, const char *, out->n_patterns + 1);
    for (uint32_t i = 0; i < out->n_patterns; i++) {
        patterns[i] = json_string_value(one ? j : json_array_get(j, i));
        if (patterns[i] == NULL) out->n_patterns = 0;
    }
    out->patterns = patterns;
    if (out->n_patterns > 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, KEY "[%u].params must be a name or a list of names", at);
}

static zx_status read_real(const json_t *j, uint32_t at, const char *key, bool *has, double *out,
                           zx_err *err)
{
    *has = true;
    *out = json_is_number(j) ? json_number_value(j) : -1;
    if (isfinite(*out) && *out >= 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, KEY "[%u].%s must be a number, 0 or more", at, key);
}

static zx_status read_member(zx_job *job, uint32_t at, const char *key, const json_t *j,
                             zx_param_group *out, zx_err *err)
{
    static const char *const keys[] = {"params", "max_dims", "lr", "weight_decay"};
    if (strcmp(key, "params") == 0) return read_patterns(job, j, at, out, err);
    if (strcmp(key, "lr") == 0) return read_real(j, at, key, &out->has_lr, &out->lr, err);
    if (strcmp(key, "weight_decay") == 0)
        return read_real(j, at, key, &out->has_decay, &out->weight_decay, err);
    if (strcmp(key, "max_dims") == 0) {
        out->max_dims = json_is_integer(j) ? json_integer_value(j) : -1;
        if (out->max_dims >= 0) return ZX_OK;
        return ZX_FAIL(err, ZX_E_USAGE, KEY "[%u].max_dims must be a whole number, 0 or more", at);
    }
    const char *safe = zx_text_safe(&job->mem, key);
    const char *near = zx_text_nearest(key, keys, ZX_COUNT(keys));
    if (near == NULL)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "unknown key '" KEY "[%u].%s'; a group has params, max_dims, lr and "
                       "weight_decay",
                       at, safe);
    return ZX_FAIL(err, ZX_E_USAGE, "unknown key '" KEY "[%u].%s'; the nearest is '%s'", at, safe,
                   near);
}

static zx_status read_group(zx_job *job, uint32_t at, const json_t *j, zx_param_group *out,
                            zx_err *err)
{
    const char *key;
    json_t *member;
    *out = (zx_param_group){.max_dims = -1};
    if (!json_is_object(j))
        return ZX_FAIL(err, ZX_E_USAGE,
                       KEY "[%u] must be an object like {\"params\": [\"*.bias\"], "
                           "\"weight_decay\": 0}",
                       at);
    json_object_foreach((json_t *)(uintptr_t)j, key, member)
        ZX_TRY(read_member(job, at, key, member, out, err));
    if (out->n_patterns == 0 && out->max_dims < 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       KEY "[%u] says nothing of which parameters: params (names) "
                           "or max_dims is missing",
                       at);
    if (!out->has_lr && !out->has_decay)
        return ZX_FAIL(err, ZX_E_USAGE, KEY "[%u] changes nothing: lr or weight_decay is missing",
                       at);
    if (out->has_lr && !(job->optim.lr > 0))
        return ZX_FAIL(err, ZX_E_USAGE,
                       KEY "[%u].lr needs an optimizer.params.lr above 0: it is "
                           "taken as a multiple of that, whatever the schedule",
                       at);
    return ZX_OK;
}

zx_status zx_job_param_groups(zx_job *job, zx_err *err)
{
    const zx_config_value *v = zx_config_get(&job->config, KEY);
    zx_err found = {0};
    if (!v->has) return ZX_OK;
    if (!json_is_array(v->json)) ZX_FAIL(&found, ZX_E_USAGE, KEY " must be a list of groups");
    job->n_groups = (uint32_t)json_array_size(v->json);
    job->groups = ZX_NEW(&job->mem, zx_param_group, job->n_groups + 1);
    for (uint32_t i = 0; i < job->n_groups; i++)
        read_group(job, i, json_array_get(v->json, i), &job->groups[i], &found);
    if (found.code == ZX_OK) return ZX_OK;
    if (job->config.path != NULL) zx_err_in(&found, "%s", job->config.path);
    return zx_err_merge(err, &found);
}

// ---- names --------------------------------------------------------------------------------------

static bool is_named(const zx_param *p, const char *pattern)
{
    if (zx_text_match(pattern, p->name)) return true;
    for (uint32_t k = 0; k < p->n_aliases; k++)
        if (zx_text_match(pattern, p->aliases[k])) return true;
    return false;
}

// "zerox.freeze: no parameter is named 'wte'; the nearest is 'transformer.wte.weight'".
static void unmatched(zx_job *job, const char *key, const char *pattern, zx_err *err)
{
    const zx_graph *g = &job->forward;
    const char **names = ZX_NEW(&job->mem, const char *, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) names[i] = g->params[i].name;
    const char *near = zx_text_nearest(pattern, names, g->n_params);
    if (near == NULL && g->n_params > 0) near = names[0]; // what names look like here
    if (near == NULL)
        ZX_FAIL(err, ZX_E_USAGE, "%s: no parameter is named '%s'", key,
                zx_text_safe(&job->mem, pattern));
    else
        ZX_FAIL(err, ZX_E_USAGE, "%s: no parameter is named '%s'; the nearest is '%s'", key,
                zx_text_safe(&job->mem, pattern), zx_text_safe(&job->mem, near));
    zx_err_hint(err, "zerox check %s lists the parameters; * stands for any letters",
                zx_text_safe(&job->mem, job->model));
}

static void freeze(zx_job *job, zx_param *params, zx_err *err)
{
    const zx_config_value *v = zx_config_get(&job->config, "zerox.freeze");
    const uint32_t n = job->forward.n_params;
    uint32_t n_frozen = 0;
    for (uint32_t k = 0; k < v->n; k++) {
        bool found = false;
        for (uint32_t i = 0; i < n; i++) {
            if (!is_named(&params[i], v->texts[k])) continue;
            n_frozen += !params[i].frozen;
            params[i].frozen = found = true;
        }
        if (!found) unmatched(job, "zerox.freeze", v->texts[k], err);
    }
    if (n > 0 && n_frozen == n)
        ZX_FAIL(err, ZX_E_USAGE,
                "zerox.freeze: all %u parameters are frozen: nothing is left to "
                "train",
                n);
}

// A frozen parameter has no rate and no decay, so a group of such alone changes nothing.
static bool all_frozen(const zx_job *job, uint32_t k)
{
    const zx_graph *g = &job->forward;
    for (uint32_t i = 0; i < g->n_params; i++)
        if (job->group_of[i] == k && !g->params[i].frozen) return false;
    return true;
}

static bool fits(const zx_graph *g, const zx_param *p, const zx_param_group *x)
{
    if (x->max_dims >= 0 && (int64_t)g->values[p->value].type.shape.rank > x->max_dims)
        return false;
    for (uint32_t k = 0; k < x->n_patterns; k++)
        if (is_named(p, x->patterns[k])) return true;
    return x->n_patterns == 0;
}

// Whole tensors are looked at, never shards, so a group has the same members on any ranks.
static void group(zx_job *job, zx_err *err)
{
    const zx_graph *g = &job->forward;
    if (job->n_groups == 0) return;
    zx_param_rate *rates = ZX_NEW(&job->mem, zx_param_rate, g->n_params + 1);
    job->group_of = ZX_NEW(&job->mem, uint32_t, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) {
        uint32_t k = 0;
        while (k < job->n_groups && !fits(g, &g->params[i], &job->groups[k])) k++;
        job->group_of[i] = k < job->n_groups ? k : ZX_NONE;
        rates[i] = (zx_param_rate){1, job->optim.weight_decay};
        if (k == job->n_groups) continue;
        zx_param_group *x = &job->groups[k];
        x->n_params++;
        if (x->has_lr) rates[i].lr_factor = x->lr / job->optim.lr;
        if (x->has_decay) rates[i].weight_decay = x->weight_decay;
    }
    job->rates = rates;
    for (uint32_t k = 0; k < job->n_groups; k++) {
        const zx_param_group *x = &job->groups[k];
        bool unknown = false;
        for (uint32_t p = 0; p < x->n_patterns; p++) {
            bool found = false;
            for (uint32_t i = 0; i < g->n_params; i++)
                found |= is_named(&g->params[i], x->patterns[p]);
            if (found) continue;
            unknown = true;
            unmatched(job, zx_arena_printf(&job->mem, KEY "[%u].params", k), x->patterns[p], err);
        }
        if (x->n_params == 0 && !unknown)
            ZX_FAIL(err, ZX_E_USAGE,
                    KEY "[%u]: no parameter is left for it: the first group that "
                        "fits counts, and max_dims leaves out what has more dimensions",
                    k);
        else if (x->n_params > 0 && all_frozen(job, k))
            zx_note(&job->notes, &job->mem,
                    KEY "[%u] has no effect: all its parameters are frozen (zerox.freeze)", k);
    }
}

zx_status zx_job_params(zx_job *job, zx_err *err)
{
    const uint32_t n = job->forward.n_params;
    zx_param *params = ZX_NEW(&job->mem, zx_param, n + 1);
    zx_err found = {0};
    if (n > 0) memcpy(params, job->forward.params, n * sizeof *params);
    freeze(job, params, &found);
    job->forward.params = params;
    group(job, &found);
    if (found.code == ZX_OK) return ZX_OK;
    if (job->config.path != NULL) zx_err_in(&found, "%s", job->config.path);
    return zx_err_merge(err, &found);
}

void zx_job_params_text(const zx_job *job, zx_text *out)
{
    const zx_graph *g = &job->forward;
    uint64_t elements = 0;
    uint32_t n_frozen = 0;
    char count[ZX_BYTES_TEXT];
    for (uint32_t i = 0; i < g->n_params; i++) {
        if (!g->params[i].frozen) continue;
        n_frozen++;
        elements += (uint64_t)zx_shape_count(&g->values[g->params[i].value].type.shape);
    }
    if (n_frozen > 0)
        zx_text_put(out, "frozen: %s parameter%s in %u of %u tensors\n",
                    zx_text_count((double)elements, count), elements == 1 ? "" : "s", n_frozen,
                    g->n_params);
    for (uint32_t k = 0; k < job->n_groups; k++) {
        const zx_param_group *x = &job->groups[k];
        zx_text_put(out, "group %u: %u tensor%s, lr %g, weight_decay %g\n", k, x->n_params,
                    x->n_params == 1 ? "" : "s", x->has_lr ? x->lr : job->optim.lr,
                    x->has_decay ? x->weight_decay : job->optim.weight_decay);
    }
}

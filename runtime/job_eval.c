// job_eval.c - see job_eval.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_eval.h"

#include <string.h>

#include "graph/autodiff.h"
#include "runtime/job_targets.h"

// ---- data and graph -----------------------------------------------------------------------------

static zx_status read_options(zx_job *job, zx_job_eval *e, zx_err *err)
{
    const zx_config *c = &job->config;
    const zx_options *o = job->o;
    if (zx_given(o, ZX_OPT_EVAL_EVERY))
        zx_config_set_int(&job->config, "zerox.eval.every",
                          (int64_t)(zx_given_number(o, ZX_OPT_EVAL_EVERY, 0) & INT64_MAX),
                          ZX_FROM_COMMAND);
    e->on = zx_given(o, ZX_OPT_EVAL_DATA) || zx_config_get(c, "zerox.eval.data")->has;
    e->every = (uint64_t)zx_config_get(c, "zerox.eval.every")->i;
    e->patience = (uint32_t)zx_config_get(c, "zerox.early_stop.patience")->i;
    e->min_delta = zx_config_get(c, "zerox.early_stop.min_delta")->r;
    if (e->min_delta < 0)
        return ZX_FAIL(err, ZX_E_USAGE, "zerox.early_stop.min_delta must be 0 or more");
    if (e->min_delta > 0 && e->patience == 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "zerox.early_stop.min_delta needs zerox.early_stop.patience");
    if (e->on && e->patience > 0 && e->every == 0) {
        zx_err_hint(err, "--eval-every N, or zerox.eval.every");
        return ZX_FAIL(err, ZX_E_USAGE,
                       "zerox.early_stop.patience: at the end alone there is nothing left to stop");
    }
    if (e->on) return ZX_OK;
    const char *asked = e->every > 0      ? "zerox.eval.every (--eval-every)"
                        : e->patience > 0 ? "zerox.early_stop.patience"
                                          : NULL;
    if (asked == NULL) return ZX_OK;
    zx_err_hint(err, "--eval-data FILE, or zerox.eval.data in the config");
    return ZX_FAIL(err, ZX_E_USAGE, "%s needs data to evaluate on", asked);
}

static zx_status open_data(zx_job *job, zx_job_eval *e, zx_err *err)
{
    const zx_data_request r = {
        .model = job->model,
        .n_inputs = job->n_inputs,
        .inputs = job->inputs,
        .n_given = job->o->value[ZX_OPT_EVAL_DATA].n,
        .given = job->o->value[ZX_OPT_EVAL_DATA].text,
        .config = &job->config,
        .seed = job->seed,
        .trained = job->data,
    };
    ZX_TRY(zx_data_open(&r, &job->mem, &e->data, &job->notes, err));
    return zx_job_spare_data(job->o, e->data, &job->mem, err);
}

static uint32_t find_param(const zx_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_params; i++)
        if (strcmp(g->params[i].name, name) == 0) return i;
    return ZX_NONE;
}

static uint32_t find_buffer(const zx_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_buffers; i++)
        if (strcmp(g->buffers[i].name, name) == 0) return i;
    return ZX_NONE;
}

static zx_status match_values(zx_job *job, zx_job_eval *e, zx_err *err)
{
    const zx_graph *g = &e->graph, *train = &job->train;
    zx_arena *mem = &job->mem;
    uint32_t *params = ZX_NEW(mem, uint32_t, g->n_params + 1),
             *buffers = ZX_NEW(mem, uint32_t, g->n_buffers + 1);
    for (uint32_t i = 0; i < g->n_params; i++) {
        params[i] = find_param(train, g->params[i].name);
        if (params[i] == ZX_NONE)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "'%s' is a parameter when evaluated and none when trained",
                           zx_text_safe(mem, g->params[i].name));
    }
    for (uint32_t i = 0; i < g->n_buffers; i++) buffers[i] = find_buffer(train, g->buffers[i].name);
    e->params = params;
    e->buffers = buffers;
    return ZX_OK;
}

static zx_status make_graph(zx_job *job, zx_job_eval *e, zx_err *err)
{
    zx_graph plain, counted;
    ZX_TRY(zx_job_import_inference(job, &plain, err));
    ZX_TRY(zx_loss_count(&plain, true, &job->mem, &counted, &e->counted, err));
    ZX_TRY(zx_data_bind_eval(e->data, &plain, job->batch.micro, e->counted.counts,
                             e->counted.ignored, &job->notes, err));
    zx_simplify(&counted, &job->mem, &plain);
    zx_precision_apply(&plain, job->precision, &job->mem, &e->graph);
    return match_values(job, e, err);
}

zx_status zx_job_eval_open(zx_job *job, zx_job_eval *e, zx_err *err)
{
    ZX_TRY(read_options(job, e, err));
    if (!e->on) return ZX_OK;
    zx_status st = open_data(job, e, err);
    if (st == ZX_OK) st = make_graph(job, e, err);
    if (st != ZX_OK) zx_err_in(err, "evaluation");
    return st;
}

void zx_job_eval_complete(zx_job *job, const zx_job_eval *e)
{
    zx_text data = {0};
    if (!e->on) return;
    zx_data_json(e->data, &data);
    zx_config_set_json(&job->config, "zerox.eval.data", json_loads(data.at, 0, NULL),
                       zx_given(job->o, ZX_OPT_EVAL_DATA) ? ZX_FROM_COMMAND : ZX_FROM_FILE);
    zx_text_free(&data);
}

void zx_job_eval_close(zx_job_eval *e)
{
    zx_data_close(e->data);
    e->data = NULL;
}

// ---- plan ---------------------------------------------------------------------------------------

// Where a budget was asked for the least memory, since training could use all of it; else what
// pays.
static zx_status make_plan(zx_job *job, const zx_job_eval *e, zx_plan *plan, zx_err *err)
{
    const zx_graph *g = &e->graph;
    zx_plan_options po;
    ZX_TRY(zx_job_plan_options(job, &job->mem, &po, err));
    uint64_t *work = ZX_NEW(&job->mem, uint64_t, g->n_nodes + 1);
    ZX_TRY(zx_session_work_bytes_at(&job->site, g, job->threads, work, err));
    po.work_bytes = work;
    po.micro_batches = 1;
    po.optimizer_states = 0;
    po.accumulate_bytes = 0;
    po.pinned = NULL;
    po.least = zx_config_get(&job->config, "zerox.budget")->has;
    po.roomy = !po.least;
    return zx_plan_make(g, &po, &job->mem, plan, err);
}

zx_status zx_job_eval_plan(zx_job *job, const zx_job_eval *e, zx_plan *out, zx_err *err)
{
    zx_budget *b = &job->budget;
    char takes[ZX_BYTES_TEXT], has[ZX_BYTES_TEXT];
    zx_status st = make_plan(job, e, out, err);
    if (st == ZX_OK && !b->least && out->arena_bytes >= b->bytes)
        st = ZX_FAIL(err, ZX_E_BUDGET, "it takes %s a rank beside training, the budget is %s",
                     zx_text_size(out->arena_bytes, takes), zx_text_size(b->bytes, has));
    if (st != ZX_OK) {
        zx_err_in(err, "evaluation");
        return st;
    }
    if (!b->least && b->bytes != UINT64_MAX) b->bytes -= out->arena_bytes;
    return ZX_OK;
}

static uint64_t micros_of_rank(const zx_job *job, const zx_job_eval *e)
{
    return (zx_data_micro_batches(e->data) + job->ranks - 1) / job->ranks;
}

void zx_job_eval_json(const zx_job *job, const zx_job_eval *e, const zx_plan *plan, zx_text *out)
{
    if (!e->on) {
        zx_text_put(out, "null");
        return;
    }
    zx_text_put(out,
                "{\"every\":%llu,\"micro_batches\":%llu,\"peak_bytes\":%llu,"
                "\"predicted_seconds\":%.9g}",
                (unsigned long long)e->every, (unsigned long long)micros_of_rank(job, e),
                (unsigned long long)plan->arena_bytes,
                (double)micros_of_rank(job, e) * plan->step_seconds);
}

void zx_job_eval_text(const zx_job *job, const zx_job_eval *e, const zx_plan *plan,
                      const zx_plan *train, zx_text *out)
{
    char peak[ZX_BYTES_TEXT], both[ZX_BYTES_TEXT];
    const uint64_t each = micros_of_rank(job, e);
    zx_text_put(out, "evaluation: ");
    zx_data_describe(e->data, out);
    if (e->every == 1)
        zx_text_put(out, ", after every step\n");
    else if (e->every > 0)
        zx_text_put(out, ", every %llu steps and at the end\n", (unsigned long long)e->every);
    else
        zx_text_put(out, ", at the end\n");
    zx_text_put(out,
                "evaluation's plan: peak %s a rank beside training's, %s together; %llu "
                "micro-batch%s of each rank\n",
                zx_text_size(plan->arena_bytes, peak),
                zx_text_size(plan->arena_bytes + train->arena_bytes, both),
                (unsigned long long)each, each == 1 ? "" : "es");
}

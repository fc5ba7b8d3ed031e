// cmd_train_plan.c - train --plan FILE: a plan that was made before, for this very run.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/cmd_train.h"
#include "runtime/exec.h"
#include "runtime/planfile.h"

#define OTHER(...) ZX_FAIL(err, ZX_E_USAGE, __VA_ARGS__)

static zx_status check_model(zx_job *job, const zx_planfile *f, zx_err *err)
{
    const zx_graph *g = &job->train;
    if (f->plan.n_units != g->n_params)
        return OTHER("made for a model of %u parameters, this one has %u", f->plan.n_units,
                     g->n_params);
    for (uint32_t i = 0; i < g->n_params; i++)
        if (strcmp(f->units[i], g->params[i].name) != 0)
            return OTHER("made for another model: its parameter %u is '%s', this one's is '%s'", i,
                         zx_text_safe(&job->mem, f->units[i]),
                         zx_text_safe(&job->mem, g->params[i].name));
    return ZX_OK;
}

// The bits are the same whatever is recomputed: the file says what, unless the command line does.
static zx_status take_recompute(zx_job *job, const zx_planfile *f, zx_err *err)
{
    zx_variant v;
    if (zx_given(job->o, ZX_OPT_RECOMPUTE) && !job->recompute_auto) return ZX_OK;
    ZX_TRY(zx_variant_read(job, f->recompute, &job->mem, &v, err));
    zx_job_take(job, &v);
    return ZX_OK;
}

static zx_status check_run(zx_job *job, const zx_planfile *f, zx_err *err)
{
    const zx_plan *p = &f->plan;
    const uint32_t states = zx_optim_states(&job->optim);
    char takes[ZX_BYTES_TEXT], budget[ZX_BYTES_TEXT];
    ZX_TRY(check_model(job, f, err));
    ZX_TRY(take_recompute(job, f, err));
    if (p->ranks != job->ranks)
        return OTHER("made for %u rank%s, this run has %u", p->ranks, p->ranks == 1 ? "" : "s",
                     job->ranks);
    if (p->micro_batches != (uint32_t)job->batch.accumulate)
        return OTHER("made for %u micro-batch%s a rank and step, this run accumulates %u",
                     p->micro_batches, p->micro_batches == 1 ? "" : "es",
                     (uint32_t)job->batch.accumulate);
    const uint32_t made = zx_job_accumulate_bytes(job);
    const bool rounds = made != 0; // else each gradient is the only one, in whatever type
    for (uint32_t u = 0; rounds && u < p->n_units; u++)
        if (job->train.params[u].grad != ZX_NONE && p->units[u].grad_bytes != made)
            return OTHER("made for gradients added up in %u bits, this run adds in %u "
                         "(data_types.grad_accum_dtype)",
                         8 * p->units[u].grad_bytes, 8 * made);
    if (p->optimizer_states != states)
        return OTHER("made for an optimizer with %u state%s a parameter, this run's has %u",
                     p->optimizer_states, p->optimizer_states == 1 ? "" : "s", states);
    const uint32_t stage = (uint32_t)zx_config_get(&job->config, "zero_optimization.stage")->i;
    if (!zx_given(job->o, ZX_OPT_STAGE) && p->stage != stage)
        zx_note(&job->notes, &job->mem,
                "the plan of --plan is of ZeRO stage %u, the config says %u", p->stage, stage);
    if (zx_given(job->o, ZX_OPT_STAGE) && p->stage != zx_given_number(job->o, ZX_OPT_STAGE, 0))
        return OTHER("made for ZeRO stage %u, --stage says %u", p->stage,
                     (uint32_t)zx_given_number(job->o, ZX_OPT_STAGE, 0));
    const zx_backend *backend = zx_site_backend(&job->site);
    const bool other = p->graph_hash != zx_graph_hash(&job->train);
    if (other && backend->epilogues) // the graph is this backend's
        zx_err_hint(err, "zerox plan --backend %s makes a plan for GPUs", backend->name);
    if (other)
        return OTHER("made for another train graph: batch, accumulation, recomputation or model "
                     "changed");
    if (!job->budget.least && p->arena_bytes > job->budget.bytes)
        return ZX_FAIL(err, ZX_E_BUDGET, "takes %s a rank, the budget is %s",
                       zx_text_size(p->arena_bytes, takes),
                       zx_text_size(job->budget.bytes, budget));
    return ZX_OK;
}

// Scratch is what this host's kernels want of so many threads: a plan of other threads, or of
// another machine, may have less.
static zx_status check_scratch(zx_job *job, const zx_plan *p, zx_err *err)
{
    const zx_graph *g = &job->train;
    uint64_t *needed = ZX_NEW(&job->mem, uint64_t, g->n_nodes);
    char had[ZX_BYTES_TEXT], needs[ZX_BYTES_TEXT];
    ZX_TRY(zx_session_work_bytes_at(&job->site, g, job->threads, needed, err));
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const zx_plan_step *t = &p->steps[i];
        const uint64_t room = t->work == ZX_NONE ? 0 : p->slots[t->work].bytes;
        if (room < needed[t->node])
            return OTHER("made for other compute threads or another machine: it has %s of scratch "
                         "for %s, here it needs %s",
                         zx_text_size(room, had),
                         zx_exec_node_text(g, &g->nodes[t->node], &job->mem),
                         zx_text_size(needed[t->node], needs));
    }
    return ZX_OK;
}

// The config's wishes of a plan that a plan from a file may not fulfil.
static void note_limits(zx_job *job)
{
    static const char *const limits[] = {"zero_optimization.overlap_comm",
                                         "zero_optimization.stage3_max_live_parameters",
                                         "zero_optimization.reduce_bucket_size", "zerox.recompute",
                                         "activation_checkpointing.number_checkpoints"};
    for (size_t i = 0; i < ZX_COUNT(limits); i++)
        if (zx_config_get(&job->config, limits[i])->from == ZX_FROM_FILE)
            zx_note(&job->notes, &job->mem, "%s: the plan of --plan is taken as it is", limits[i]);
}

zx_status zx_train_load_plan(zx_job *job, const char *path, zx_plan *plan, zx_err *err)
{
    const char *wire = zx_given_text(job->o, ZX_OPT_WIRE_DELAY);
    double delay;
    zx_planfile f;
    if (wire != NULL && !zx_parse_seconds(wire, &delay))
        return ZX_FAIL(err, ZX_E_USAGE, "--wire-delay needs a time like 5ms, not '%s'", wire);
    static const struct {
        zx_option_id id;
        const char *word;
    } planning[] = {{ZX_OPT_NO_OVERLAP, "--no-overlap"},
                    {ZX_OPT_OBJECTIVE, "--objective"},
                    {ZX_OPT_PIN, "--pin"}};
    for (size_t i = 0; i < ZX_COUNT(planning); i++)
        if (zx_given(job->o, planning[i].id))
            return ZX_FAIL(err, ZX_E_USAGE, "%s is for planning, --plan gives a plan",
                           planning[i].word);
    note_limits(job);
    ZX_TRY(zx_plan_load(path, &job->mem, &f, err));
    zx_status st = check_run(job, &f, err);
    if (st == ZX_OK) st = zx_plan_check(&job->train, &f.plan, err);
    if (st == ZX_OK) st = check_scratch(job, &f.plan, err);
    if (st != ZX_OK) {
        zx_err_in(err, "%s", zx_text_safe(&job->mem, path));
        zx_err_hint(err, "zerox plan -o with this run's options makes the plan again");
        return st;
    }
    *plan = f.plan;
    return ZX_OK;
}

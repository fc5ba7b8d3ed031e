// convert_ckpt.c - see convert_ckpt.h. The model is imported and made a training step of, as a run
// does, since only that tells what a checkpoint of it has; it isn't planned, and never run.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert_ckpt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/ckpt.h"
#include "runtime/cmd.h"
#include "runtime/init_from.h"
#include "runtime/job_complete.h"
#include "runtime/job_eval.h"
#include "runtime/outfile.h"
#include "runtime/resume.h"
#include "runtime/rundir.h"
#include "runtime/version.h"

typedef struct making {
    zx_options options; // o with the model as its operand
    zx_job job;
    zx_plan held; // units alone
    zx_init_from from;
    zx_job_eval eval; // where the config has data to evaluate on
    zx_rundir files;
    int lock;
    const char *to;
} making;

// What any plan holds of this graph: a state for each parameter that has a gradient.
static void list_held(making *m)
{
    const zx_graph *g = &m->job.train;
    zx_unit *units = ZX_NEW(&m->job.mem, zx_unit, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) {
        units[i] = (zx_unit){.param = i, .state_slot = {ZX_NONE, ZX_NONE}};
        for (uint32_t k = 0; k < zx_optim_states(&m->job.optim); k++)
            if (g->params[i].grad != ZX_NONE) units[i].state_slot[k] = 0;
    }
    m->held = (zx_plan){.n_units = g->n_params, .units = units};
}

static zx_status open_job(making *m, zx_err *err)
{
    const uint64_t ranks = zx_given_number(&m->options, ZX_OPT_RANKS, 1);
    ZX_TRY(zx_cmd_check_ranks(ranks, ZX_MOST_RANKS, err));
    ZX_TRY(zx_job_open(&m->job, &m->options, (uint32_t)ranks, true, err));
    ZX_TRY(zx_job_import(&m->job, false, err));
    if (zx_config_get(&m->job.config, "zerox.eval.data")->has)
        ZX_TRY(zx_job_eval_open(&m->job, &m->eval, err));
    zx_job_say_notes(&m->job);
    list_held(m);
    return ZX_OK;
}

static zx_status open_weights(making *m, const char *from, zx_err *err)
{
    const zx_init_how how = {.thorough = true, .convert = true};
    ZX_TRY(zx_init_open(from, &m->job.train, &m->held, how, &m->job.mem, &m->from, err));
    zx_cmd_say("%.*s", (int)(m->from.report.n - 1), m->from.report.at); // without its last '\n'
    if (m->from.files.is_ckpt) zx_cmd_say("note: its optimizer states and steps are left out");
    return ZX_OK;
}

static zx_status write_checkpoint(making *m, uint64_t *bytes, zx_err *err)
{
    zx_job *job = &m->job;
    char model[PATH_MAX];
    const char *name;
    zx_ckpt c = {.optimizer = zx_config_get(&job->config, "optimizer.type")->text,
                 .model = realpath(job->model, model) != NULL ? model : job->model,
                 .model_hash = zx_ckpt_model_hash(&job->forward),
                 .stage = (uint32_t)zx_config_get(&job->config, "zero_optimization.stage")->i,
                 .state = {.seed = job->seed}};
    const zx_ckpt_target target = {.folder = m->files.checkpoints};
    const zx_values values = zx_init_values(&m->from);
    zx_ckpt_list(&job->train, &m->held, &job->optim, &job->mem, &c);
    return zx_ckpt_make(&values, job->ranks, &c, &target, &job->mem, &name, bytes, err);
}

// Without threads and steps: those are the run's that begins here.
static zx_status write_config(making *m, zx_err *err)
{
    zx_job *job = &m->job;
    zx_text run = {0}, config = {0};
    char full[PATH_MAX];
    zx_job_complete(job);
    zx_job_eval_complete(job, &m->eval);
    zx_text_put(&run, "\"version\": \"%s\", \"model\": ", ZX_VERSION);
    zx_text_json(&run, realpath(job->model, full) != NULL ? full : job->model);
    zx_text_put(&run, ", \"parameters\": %llu, \"ranks\": %u, ",
                (unsigned long long)job->n_elements, job->ranks);
    zx_resume_record(&m->options, &run);
    zx_text_put(&run, ", \"init\": ");
    zx_text_json(&run, m->from.files.path);
    zx_config_write(&job->config, run.at, &config);
    const zx_status st = zx_outfile_put(m->files.config, config.at, config.n, &job->mem, err);
    zx_text_free(&run);
    zx_text_free(&config);
    return st;
}

// The job, which has an arena, isn't open yet.
static zx_status spare(const char *dir, zx_err *err)
{
    zx_arena mem = {0};
    const zx_status st = zx_rundir_spare(dir, &mem, err);
    zx_arena_free(&mem);
    return st;
}

static zx_status make(making *m, const zx_options *o, zx_err *err)
{
    char size[ZX_BYTES_TEXT];
    uint64_t bytes = 0;
    const bool force = zx_given(o, ZX_OPT_FORCE);
    if (zx_rundir_has(m->to, o->operand))
        return ZX_FAIL(err, ZX_E_USAGE, "%s is in the folder that is written, %s", o->operand,
                       m->to);
    if (!force) ZX_TRY(spare(m->to, err));
    ZX_TRY(open_job(m, err));
    ZX_TRY(open_weights(m, o->operand, err));
    ZX_TRY(zx_rundir_begin(m->to, force, &m->job.mem, &m->files, &m->lock, err));
    zx_status st = write_checkpoint(m, &bytes, err);
    if (st == ZX_OK) st = write_config(m, err);
    if (st != ZX_OK) {
        zx_rundir_undo(m->to, &m->job.mem);
        return st;
    }
    zx_cmd_say("written: %s: a checkpoint of step 0 for %u rank%s, %s; zerox train --resume %s "
               "--steps N goes on from it",
               zx_text_safe(&m->job.mem, m->to), m->job.ranks, m->job.ranks == 1 ? "" : "s",
               zx_text_size(bytes, size), zx_text_safe(&m->job.mem, m->to));
    return ZX_OK;
}

zx_status zx_convert_checkpoint(const zx_options *o, zx_err *err)
{
    making m = {.options = *o, .lock = -1, .to = o->second};
    m.options.operand = zx_given_text(o, ZX_OPT_MODEL);
    const zx_status st = make(&m, o, err);
    zx_init_close(&m.from);
    zx_job_eval_close(&m.eval);
    zx_job_close(&m.job);
    if (m.lock >= 0) close(m.lock);
    return st;
}

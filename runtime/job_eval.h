// job_eval.h - what a job is evaluated on: data that isn't trained on, a forward-only graph, its
// plan.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_EVAL_H
#define ZX_RUNTIME_JOB_EVAL_H

#include "runtime/cmd.h"

typedef struct zx_job_eval {
    bool on;        // --eval-data or zerox.eval.data
    uint64_t every; // steps; 0: at the end only
    zx_data *data;
    zx_graph graph; // forward, in inference form
    zx_counted counted;
    const uint32_t *params, *buffers; // of graph, as job->train has them; ZX_NONE
    uint32_t patience; // evaluations without a better loss that end the run; 0: none do
    double min_delta;
} zx_job_eval;

// After zx_job_import. All but the data are in job->mem. `on` false: there is nothing else.
zx_status zx_job_eval_open(zx_job *job, zx_job_eval *e, zx_err *err);
// Its plan, before training's, which has what it leaves of the budget.
zx_status zx_job_eval_plan(zx_job *job, const zx_job_eval *e, zx_plan *out, zx_err *err);
// Two lines: what is evaluated when, and memory beside `train`.
void zx_job_eval_text(const zx_job *job, const zx_job_eval *e, const zx_plan *plan,
                      const zx_plan *train, zx_text *out);
// The same for programs: an object; `null` where nothing is evaluated.
void zx_job_eval_json(const zx_job *job, const zx_job_eval *e, const zx_plan *plan, zx_text *out);
// The config's zerox.eval.data become what they were found to be, wherever it is read from then.
void zx_job_eval_complete(zx_job *job, const zx_job_eval *e);
void zx_job_eval_close(zx_job_eval *e); // accepts a zeroed one

#endif

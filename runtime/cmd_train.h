// cmd_train.h - a training run as one rank sees it; cmd_train.c opens and closes it,
// cmd_train_steps.c runs its steps.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_TRAIN_H
#define ZX_RUNTIME_CMD_TRAIN_H

#include "runtime/cmd.h"
#include "runtime/log.h"
#include "runtime/progress.h"
#include "runtime/rundir.h"

typedef struct zx_train {
    zx_job job;
    zx_world *world;
    zx_plan plan;
    const double *start, *seconds; // of the plan's instructions as predicted; on rank 0
    zx_session *session;
    uint64_t steps;
    zx_rundir files; // on rank 0
    zx_log log;      // likewise
    // What came out.
    uint64_t done, peak_bytes, resident_bytes;
    double first_loss, last_loss, run_seconds;
} zx_train;

// --plan: reads the plan and checks that it is for this run. On rank 0.
zx_status zx_train_load_plan(zx_job *job, const char *path, zx_plan *plan, zx_err *err);

// Runs the steps: log rows, progress, the first step's gradients. *stopped: a signal ended it.
// E_DIVERGED for a step that wasn't applied, with its first bad node.
zx_status zx_train_steps(zx_train *t, bool *stopped, zx_err *err);

// --report and --profile: the last step as rank 0 measured it. Call on rank 0.
zx_status zx_train_pictures(zx_train *t, zx_err *err);

#endif

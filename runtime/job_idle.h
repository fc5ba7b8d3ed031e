// job_idle.h - what of a command line and a config has nothing to do in this run, said aloud.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_IDLE_H
#define ZX_RUNTIME_JOB_IDLE_H

#include "runtime/cmd.h"

// Each adds notes to the job, of what is merely spare (options_idle.c refuses what contradicts): of
// options, and of the order in which gradients are added up, once the config is read; of what the
// model doesn't have, once it is imported; of what data don't have, once they are bound to it.
void zx_job_note_options(zx_job *job);
void zx_job_note_order(zx_job *job);
void zx_job_note_model(zx_job *job);
void zx_job_note_data(zx_job *job);

#endif

// job_complete.h - a job's configuration as config.json of a run's folder has it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_COMPLETE_H
#define ZX_RUNTIME_JOB_COMPLETE_H

#include "runtime/cmd.h"

// Where data and dimensions came from the command line or were found, the configuration names them
// from here on, and files that it has written by their full names: so that it gives the same run
// without those options and from another place.
void zx_job_complete(zx_job *job);

#endif

// job_targets.h - what a command line names to be written: never over what is read, not even with
// --force, and never two things into one file.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_TARGETS_H
#define ZX_RUNTIME_JOB_TARGETS_H

#include "runtime/data.h"
#include "runtime/options.h"

// Before anything is made: the targets against each other, the model and the files that options
// name, and what must not be lost (zx_outfile_spare). E_USAGE.
zx_status zx_job_check_targets(const zx_options *o, zx_arena *mem, zx_err *err);
// Once data are found: not over them.
zx_status zx_job_spare_data(const zx_options *o, const zx_data *data, zx_arena *mem, zx_err *err);

#endif

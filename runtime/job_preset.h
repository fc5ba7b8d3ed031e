// job_preset.h - models by name beside models as files, of commands that predict.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_JOB_PRESET_H
#define ZX_RUNTIME_JOB_PRESET_H

#include "runtime/cmd.h"

// Whether the operand is a file's name; else it is to be a preset's.
bool zx_job_is_file(const zx_options *o);
// Of a preset or a file: what there isn't, and a machine that is missing, is told of before a
// model is made.
zx_status zx_job_check_operand(const zx_options *o, uint32_t ranks, zx_err *err);
// A preset of the size that --seq and --batch say; *info is of it.
zx_status zx_job_open_named(zx_job *job, const zx_options *o, uint32_t ranks,
                            zx_preset_sizes *sizes, zx_preset_info *info, zx_err *err);

#endif

// job_preset.c - see job_preset.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/job_preset.h"

#include <string.h>
#include <unistd.h>

#include "runtime/cmd_machine.h"

bool zx_job_is_file(const zx_options *o)
{
    const char *name = o->operand;
    const size_t n = strlen(name);
    return strchr(name, '/') != NULL || (n > 5 && strcmp(name + n - 5, ".onnx") == 0) ||
           access(name, F_OK) == 0;
}

zx_status zx_job_check_operand(const zx_options *o, uint32_t ranks, zx_err *err)
{
    const char *name = zx_given_text(o, ZX_OPT_MACHINE), *command = zx_command_word(o->command);
    const bool preset = !zx_job_is_file(o);
    if (preset) ZX_TRY(zx_preset_known(o->operand, err));
    if (name == NULL && preset) {
        zx_err_hint(err, "--machine h100x32; zerox machine --list has the others");
        return ZX_FAIL(err, ZX_E_USAGE, "%s %s: on which --machine?", command, o->operand);
    }
    if (!preset && zx_given(o, ZX_OPT_SEQ)) {
        zx_err_hint(err, "--dim NAME=N; zerox check %s shows the dimensions", o->operand);
        return ZX_FAIL(err, ZX_E_USAGE, "--seq is of a preset, and %s is a file", o->operand);
    }
    if (name == NULL || strcmp(name, "host") == 0) return ZX_OK;
    zx_arena mem = {0};
    zx_notes notes = {0};
    zx_machine m;
    const zx_status st = zx_cmd_machine_of(o, ranks, 1, &mem, &notes, &m, err);
    zx_arena_free(&mem);
    return st;
}

zx_status zx_job_open_named(zx_job *job, const zx_options *o, uint32_t ranks,
                            zx_preset_sizes *sizes, zx_preset_info *info, zx_err *err)
{
    *sizes = (zx_preset_sizes){(int64_t)zx_given_number(o, ZX_OPT_SEQ, 1024),
                               (int64_t)zx_given_number(o, ZX_OPT_BATCH, 1)};
    return zx_job_open_preset(job, o, ranks, sizes, info, err);
}

// convert_ckpt.c - see convert_ckpt.h.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert_ckpt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/ckpt_folder.h"
#include "runtime/cmd.h"
#include "runtime/init_from.h"
#include "runtime/rundir.h"

#define MOST_RANKS 4096

// As a plan lists what a session holds: every parameter whole, with no states beside it.
static zx_plan units_of(const zx_graph *g, zx_arena *mem)
{
    zx_unit *units = ZX_NEW(mem, zx_unit, g->n_params + 1);
    for (uint32_t i = 0; i < g->n_params; i++) {
        units[i].param = i;
        units[i].state_slot[0] = units[i].state_slot[1] = ZX_NONE;
    }
    return (zx_plan){.n_units = g->n_params, .units = units};
}

// Checkpoints that are there already are a user's: only --force lets them go.
static zx_status make_room(const zx_options *o, const char *folder, const char *from, zx_arena *mem,
                           zx_err *err)
{
    const char *own = zx_rundir_fixed(folder, mem), *read = zx_rundir_fixed(from, mem);
    const size_t n = strlen(own);
    if (strncmp(own, read, n) == 0 && (read[n] == '/' || read[n] == '\0'))
        return ZX_FAIL(err, ZX_E_USAGE, "%s is what is converted", zx_text_safe(mem, folder));
    if (access(folder, F_OK) == 0 && !zx_given(o, ZX_OPT_FORCE)) {
        zx_err_hint(err, "--force, or another folder");
        return ZX_FAIL(err, ZX_E_USAGE, "%s exists already", zx_text_safe(mem, folder));
    }
    ZX_TRY(zx_rundir_folder(o->second, mem, err));
    zx_ckpt_folder_clear(folder, mem);
    return zx_ckpt_folder_check(folder, mem, err);
}

static zx_status write_all(zx_job *job, const zx_options *o, uint32_t ranks, zx_init_from *from,
                           zx_err *err)
{
    zx_arena *mem = &job->mem;
    const zx_plan plan = units_of(&job->forward, mem);
    const char *folder = zx_arena_printf(mem, "%s/checkpoints", o->second), *name = NULL;
    char size[ZX_BYTES_TEXT], model[PATH_MAX];
    uint64_t bytes = 0;
    zx_ckpt c = {.ranks = ranks,
                 .optimizer = "none",
                 .model = realpath(job->model, model) != NULL ? model : job->model,
                 .model_hash = zx_ckpt_model_hash(&job->forward)};
    ZX_TRY(zx_init_open(o->operand, "convert", &job->forward, &plan, false, true, mem, from, err));
    zx_ckpt_list(&job->forward, &plan, &job->optim, mem, &c);
    const zx_values values = zx_init_values(from);
    ZX_TRY(make_room(o, folder, from->files.path, mem, err));
    ZX_TRY(zx_ckpt_write(&values, &c, folder, mem, &name, &bytes, err));
    zx_cmd_say("%.*s", (int)strcspn(from->report.at, "\n"), from->report.at);
    if (from->files.is_ckpt) zx_cmd_say("note: optimizer states and the run's place are left out");
    zx_cmd_say("written: %s: %u tensor%s, %s, in %u file%s", zx_text_safe(mem, name), c.n,
               c.n == 1 ? "" : "s", zx_text_size(bytes, size), ranks, ranks == 1 ? "" : "s");
    return ZX_OK;
}

zx_status zx_convert_ckpt(const zx_options *o, zx_err *err)
{
    const uint64_t ranks = zx_given_number(o, ZX_OPT_RANKS, 1);
    zx_options of_model = *o;
    zx_job job = {0};
    zx_init_from from = {0};
    of_model.operand = zx_given_text(o, ZX_OPT_MODEL);
    if (ranks > MOST_RANKS)
        return ZX_FAIL(err, ZX_E_USAGE, "--ranks %llu is too many", (unsigned long long)ranks);
    zx_status st = zx_job_open(&job, &of_model, (uint32_t)ranks, true, err);
    if (st == ZX_OK) st = zx_job_import(&job, true, err);
    if (st == ZX_OK) st = write_all(&job, o, (uint32_t)ranks, &from, err);
    zx_init_close(&from);
    zx_job_close(&job);
    return st;
}

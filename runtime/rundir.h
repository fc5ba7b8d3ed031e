// rundir.h - where a run's files go, checked before the first step.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_RUNDIR_H
#define ZX_RUNTIME_RUNDIR_H

#include <time.h>

#include "graph/base/arena.h"
#include "runtime/options.h"

typedef struct zx_rundir {               // NULL: that file isn't written
    const char *dir;                     // the run's folder
    const char *command, *config, *plan; // in it
    const char *log, *weights, *grads;   // in it, or where --log, --save and --dump-grads say
    const char *checkpoints;             // the folder that they go to, made when there is one
} zx_rundir;

// Makes the folder (and runs/latest) and checks every target; `model` is the model's path. E_IO for
// what can't be written, E_USAGE for files that exist already (without --force; with it a folder
// loses what an earlier run has left there: it never holds files of two). *lock: zx_rundir_lock's.
zx_status zx_rundir_make(const zx_options *o, const char *model, time_t now, zx_arena *mem,
                         zx_rundir *out, int *lock, zx_err *err);
// One process writes into a run's folder at a time, as long as it has *lock open (-1: there are no
// locks on that file system). E_USAGE, naming the process that has it.
zx_status zx_rundir_lock(const char *dir, zx_arena *mem, int *lock, zx_err *err);

// E_USAGE for a folder that has files of a run; which needn't be there at all.
zx_status zx_rundir_spare(const char *dir, zx_arena *mem, zx_err *err);
// A folder of files that don't come from a run: made, locked, without what an earlier run has left
// there (E_USAGE for that without `force`). _undo: its files go, and it, if nothing else is there.
zx_status zx_rundir_begin(const char *dir, bool force, zx_arena *mem, zx_rundir *out, int *lock,
                          zx_err *err);
void zx_rundir_undo(const char *dir, zx_arena *mem);
// Whether `path` lies in the folder, or is it.
bool zx_rundir_has(const char *dir, const char *path);

// Whether a run with these options has a folder.
bool zx_rundir_is_made(const zx_options *o);
// The same files of a run that goes on in its folder `dir`; nothing in it is touched.
zx_status zx_rundir_resume(const zx_options *o, const char *dir, zx_arena *mem, zx_rundir *out,
                           zx_err *err);
// Bytes behind those of a file.
zx_status zx_rundir_append(const char *path, const void *bytes, size_t n, zx_err *err);
// mkdir -p; E_IO where that can't be done or no file can be made in it.
zx_status zx_rundir_folder(const char *path, zx_arena *mem, zx_err *err);

// Whether a file can be written there; E_USAGE for one that exists already, without `force`.
zx_status zx_rundir_file(const char *path, bool force, zx_arena *mem, zx_err *err);
// The same place whatever links on the way to it lead to later: `path` as it is where there are
// none, or nothing is there.
const char *zx_rundir_fixed(const char *path, zx_arena *mem);

// The model's name for people: its file's stem, or its folder's name where the stem is "model".
const char *zx_rundir_model_name(const char *model, zx_arena *mem);

// The command line as a shell would take it back, with a newline.
void zx_rundir_command(const zx_options *o, zx_text *out);

#endif

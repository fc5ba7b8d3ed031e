// ckpt_folder.h - the folder that checkpoints lie in: how one appears in it, all at once, and which
// of the older ones go. On rank 0.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CKPT_FOLDER_H
#define ZX_RUNTIME_CKPT_FOLDER_H

#include "graph/base/arena.h"
#include "graph/base/err.h"

// Makes FOLDER, and sees that something can be made in it.
zx_status zx_ckpt_folder_check(const char *folder, zx_arena *mem, zx_err *err);
// Makes FOLDER and in it an empty step-N.tmp, *made; what a save that was cut off left goes.
zx_status zx_ckpt_folder_begin(const char *folder, uint64_t step, zx_arena *mem, const char **made,
                               zx_err *err);
// step-N.tmp, of which every file is on disk, becomes step-N, and `latest` names it. What is there
// of other steps after `before` is of a run that this one doesn't go on with, and becomes
// step-M.aside. Of those up to `before` the newest keep - 1 stay; keep 0: all.
zx_status zx_ckpt_folder_publish(const char *folder, uint64_t step, uint64_t before, uint64_t keep,
                                 zx_arena *mem, const char **name, zx_err *err);
// Removes a folder of zerox's own files, as far as that goes.
void zx_ckpt_folder_drop(const char *dir, zx_arena *mem);
// All checkpoints of a folder and what lies beside them, for --force.
void zx_ckpt_folder_clear(const char *folder, zx_arena *mem);

// "step-N" and nothing else.
bool zx_ckpt_folder_step(const char *name, uint64_t *step);

#endif

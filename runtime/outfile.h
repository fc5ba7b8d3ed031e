// outfile.h - files that are there whole or not at all: a temporary beside the target, then fsync
// and rename. Devices and pipes are written to as they are.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_OUTFILE_H
#define ZX_RUNTIME_OUTFILE_H

#include "graph/base/arena.h"
#include "graph/base/err.h"

// What may not be written over without --force: whatever could be lost. That is any file but an
// empty one and zerox's own plans and predictions, which the same command makes again; models,
// weights, logs and what a run measured are kept, and so is all that zerox doesn't know. E_USAGE
// with what to do; path NULL: nothing is written. Every command's targets go through here.
zx_status zx_outfile_spare(const char *path, bool force, zx_err *err);

typedef struct zx_outfile { // zeroed is closed
    int fd;
    bool open;
    const char *path, *temporary; // temporary NULL: written in place
} zx_outfile;

zx_status zx_outfile_open(zx_outfile *f, const char *path, zx_arena *mem, zx_err *err);
// E_IO with the system's words; where the disk is full with the bytes that are free.
zx_status zx_outfile_write(zx_outfile *f, const void *bytes, size_t n, zx_err *err);
zx_status zx_outfile_commit(zx_outfile *f, zx_err *err); // the target is now the new file
void zx_outfile_drop(zx_outfile *f); // the temporary goes, the target stays; accepts a closed one

// All of it at once.
zx_status zx_outfile_put(const char *path, const void *bytes, size_t n, zx_arena *mem, zx_err *err);

#endif

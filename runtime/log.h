// log.h - files that grow by whole pieces: a line, a record. What a crash or a full disk leaves is
// whole pieces, too.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_LOG_H
#define ZX_RUNTIME_LOG_H

#include "graph/base/arena.h"
#include "graph/base/err.h"

typedef struct zx_log {
    int fd; // < 0: closed
    const char *path;
} zx_log;
#define ZX_LOG_CLOSED ((zx_log){-1, NULL})
// Opens for appending; what was there is emptied if it is a regular file, unless `keep`.
zx_status zx_log_open(zx_log *log, const char *path, bool keep, zx_err *err);
// Whether a run may go on in it: nothing is there, or rows, or it is no regular file. E_USAGE,
// E_IO.
zx_status zx_log_check(const char *path, zx_err *err);
// Opens for appending behind the rows of the first `steps` steps. What follows them in a regular
// file goes to PATH.cut, behind what is there, so that no row is lost.
zx_status zx_log_resume(zx_log *log, const char *path, uint64_t steps, zx_arena *mem, zx_err *err);
// All of it or nothing: of a file that took a part only, that part is cut off again. E_IO.
zx_status zx_log_append(zx_log *log, const void *bytes, size_t n, zx_err *err);
void zx_log_close(zx_log *log);

#endif

// log.h - log.jsonl: one JSON object a step, appended as one whole line each.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_LOG_H
#define ZX_RUNTIME_LOG_H

#include "graph/base/arena.h"
#include "graph/base/text.h"

typedef struct zx_log_row {
    uint64_t step; // 1-based
    double loss, grad_norm, lr, step_seconds, compute_seconds, exposed_comm_seconds;
    uint64_t peak_bytes, resident_bytes;
    double loss_scale; // that the gradients were made with; 0: there is none
    uint64_t skipped;  // steps so far that changed nothing
} zx_log_row;

// The line with its newline. Floats as %.9g, not finite ones as null.
void zx_log_line(const zx_log_row *row, zx_text *out);

typedef struct zx_log {
    int fd; // < 0: closed
    const char *path;
} zx_log;
#define ZX_LOG_CLOSED ((zx_log){-1, NULL})
// Opens for appending; what was there is emptied if it is a regular file.
zx_status zx_log_open(zx_log *log, const char *path, zx_err *err);
// Opens for appending behind the rows of the first `steps` steps. What follows them in a regular
// file goes to PATH.cut, behind what is there, so that no row is lost.
zx_status zx_log_resume(zx_log *log, const char *path, uint64_t steps, zx_arena *mem, zx_err *err);
zx_status zx_log_write(zx_log *log, const zx_log_row *row, zx_err *err);
void zx_log_close(zx_log *log);

#endif

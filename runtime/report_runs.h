// report_runs.h - the curves of several runs as one HTML file, from what each has left in
// log.jsonl.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_REPORT_RUNS_H
#define ZX_RUNTIME_REPORT_RUNS_H

#include "graph/base/arena.h"
#include "graph/base/text.h"

typedef struct zx_run_log { // what is shown of a run; columns by row, NAN: nothing there
    const char *name;       // as the user has named it
    uint32_t n_steps;       // rows of the file
    uint32_t n, every;      // rows that are kept: every so many, and those with an evaluation
    double *step, *loss, *lr, *grad_norm, *clip_factor, *rate, *eval_loss;
    const char *rate_unit; // "tokens/s" or "samples/s"
} zx_run_log;

// Of a run's folder, or of the log itself. A last line that is cut, as a run leaves it that is
// still going on, is left out. E_IO, E_FORMAT with the line.
zx_status zx_run_log_read(const char *path, zx_arena *mem, zx_run_log *out, zx_err *err);

void zx_report_runs_html(const zx_run_log *runs, uint32_t n, zx_text *out);

#endif

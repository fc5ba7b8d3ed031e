// monitor.h - takes the figures of each step and gives them to every sink that a run has:
// log.jsonl, TensorBoard's event files, CSV. What figures there are is figures.def.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_MONITOR_H
#define ZX_RUNTIME_MONITOR_H

#include "graph/base/arena.h"
#include "graph/base/text.h"

typedef enum zx_figure {
#define ZX_FIGURE(id, key, kind, tag, factor, words) ZX_FIGURE_##id,
#include "runtime/figures.def"
#undef ZX_FIGURE
    ZX_FIGURE_COUNT
} zx_figure;

typedef struct zx_watched { // a parameter whose norms are looked at
    const char *name;
    double weight_norm, grad_norm; // 2-norms after the step; of its gradient before clipping
} zx_watched;

typedef struct zx_figures {
    uint64_t step;    // 1-based
    uint64_t samples; // of all ranks and steps so far: what DeepSpeed's monitors count by
    bool has[ZX_FIGURE_COUNT];
    double is[ZX_FIGURE_COUNT];
    uint32_t n_watched;
    const zx_watched *watched;
} zx_figures;
static inline void zx_figure_set(zx_figures *f, zx_figure what, double value)
{
    f->has[what] = true;
    f->is[what] = value;
}

// The step's line of log.jsonl with its newline. Floats as %.9g, not finite ones as null.
void zx_figures_line(const zx_figures *f, zx_text *out);

typedef struct zx_monitor_options { // each NULL: there is no such sink
    const char *log;                // a file
    bool goes_on;                   // it is a run's that goes on:
    uint64_t before;                // behind the rows of so many steps
    const char *tensorboard, *csv;  // folders, which are made
    uint32_t most_watched;
} zx_monitor_options;

typedef struct zx_monitor zx_monitor;
// E_IO for what can't be made or written. Everything is in mem or closed by zx_monitor_close.
zx_status zx_monitor_open(const zx_monitor_options *o, zx_arena *mem, zx_monitor **out,
                          zx_err *err);
// E_IO: log.jsonl can't be written. Another sink that can't be is given up, and zx_monitor_lost
// tells: a run is worth more than its curves.
zx_status zx_monitor_step(zx_monitor *m, const zx_figures *f, zx_err *err);
// Why a sink was given up since this was asked last; NULL: none was.
const char *zx_monitor_lost(zx_monitor *m);
// E_IO where a sink was given up, with the steps that it lacks.
zx_status zx_monitor_end(const zx_monitor *m, zx_err *err);
void zx_monitor_close(zx_monitor *m); // accepts NULL

#endif

// monitor_sink.h - what a sink of a monitor is to be able to; shared by monitor*.c alone.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_MONITOR_SINK_H
#define ZX_RUNTIME_MONITOR_SINK_H

#include "proto/tfevents.h"
#include "runtime/log.h"
#include "runtime/monitor.h"

typedef struct zx_sink_kind zx_sink_kind;

typedef struct zx_sink {
    const zx_sink_kind *kind;
    const char *path; // file or folder
    zx_arena *mem;
    zx_text text; // of a step
    uint32_t n_logs;
    zx_log *logs; // files that are open
    // Once it was given up:
    bool lost, told;
    uint64_t lost_step; // the first one that it lacks
    const char *why;
} zx_sink;

typedef struct zx_moment { // a step as sinks take it
    const zx_figures *figures;
    double wall_seconds; // since 1970
    uint32_t n;
    const zx_scalar *scalars; // what has a tag
} zx_moment;

struct zx_sink_kind {
    zx_status (*open)(zx_sink *s, const zx_monitor_options *o, zx_err *err);
    zx_status (*write)(zx_sink *s, const zx_moment *at, zx_err *err);
};

extern const zx_sink_kind zx_sink_jsonl, zx_sink_tensorboard, zx_sink_csv;

#endif

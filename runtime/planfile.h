// planfile.h - a plan as a file: what `zerox plan -o` writes, and `train --plan` and `diff` read.
//
// A head (magic, version, checksum, lengths), the plan as one rank sends it to another (plan.h),
// and the names of the graph, of what of it is recomputed and of its parameters. For the zerox that
// wrote it: what is in a plan changes with versions, and the file is refused then.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_PLANFILE_H
#define ZX_RUNTIME_PLANFILE_H

#include "graph/graph.h"
#include "sched/plan.h"

typedef struct zx_planfile {
    zx_plan plan;             // its indices are sound; zx_plan_check proves it for a graph
    const char *graph;        // name of the graph that it was made for
    const char *recompute;    // which parts of it run again: zx_variant_word
    const char *const *units; // names of its parameters, plan.n_units
} zx_planfile;

// Written whole or not at all. E_IO with the system's words.
zx_status zx_plan_save(const zx_plan *p, const zx_graph *train, const char *recompute,
                       const char *path, zx_arena *mem, zx_err *err);
// E_IO for what can't be read; E_FORMAT, with the path, for what isn't a plan of this version or
// isn't what was written. All of it is in `mem`.
zx_status zx_plan_load(const char *path, zx_arena *mem, zx_planfile *out, zx_err *err);

#endif

// trace_json.h - a plan's timeline as Chrome's trace JSON, which Perfetto opens too.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_TRACE_JSON_H
#define ZX_SCHED_TRACE_JSON_H

#include "graph/graph.h"
#include "sched/plan.h"

// One track a stream, arrows from every gather to its first use, memory as counters. Times are the
// plan's start and seconds: predictions, and then all of it is marked SIMULATED, or what rank 0
// measured.
void zx_trace_json(const zx_graph *train, const zx_plan *p, const char *title, bool measured,
                   zx_text *out);

#endif

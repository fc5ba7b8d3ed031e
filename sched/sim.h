// sim.h - what the parts of the simulator share: what each instruction takes by itself.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SIM_H
#define ZX_SCHED_SIM_H

#include "sched/pass.h"

typedef enum zx_sim_kind {
    ZX_SIM_NOTHING, // takes no time of its stream
    ZX_SIM_WAIT,
    ZX_SIM_COMPUTE, // all threads of the rank
    ZX_SIM_MEET,    // the same, begun when all ranks have come to it
    ZX_SIM_MOVE,    // one thread, or an engine of its own
    ZX_SIM_SEND,    // the rank's wire, and one thread beside it
} zx_sim_kind;

typedef struct zx_sim_cost {
    double alone; // seconds of COMPUTE, MOVE, of SEND's wire, with nothing else going on
    double core;  // of the thread beside SEND's wire
    double host;  // until the host has enqueued it
    uint64_t wire_bytes;
    uint8_t kind;
} zx_sim_cost;

// By instruction, into mem.
const zx_sim_cost *zx_sim_costs(const zx_graph *train, const zx_machine *m, const zx_times *times,
                                const zx_plan *p, zx_arena *mem);

static inline bool zx_sim_computes(const zx_sim_cost *c)
{
    return c->kind == ZX_SIM_COMPUTE || c->kind == ZX_SIM_MEET;
}

// Runs a plan by what its instructions take, by rank and instruction; one rank stands for all:
// zx_plan_simulate_ranks without a graph. handoff: seconds until a stream that slept for an event
// goes on. Of the plan only instructions and events are read.
void zx_sim_run(const zx_machine *m, double handoff, const zx_sim_cost *const *cost, uint32_t ranks,
                zx_plan *p, zx_arena *mem);

#endif

// look.h - what a plan does, read back from its instructions alone: each gather with its uses.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_LOOK_H
#define ZX_SCHED_LOOK_H

#include "sched/check.h"

typedef struct zx_gathered {   // a unit that a gather brings (into a flat slot: once unpacked)
    uint32_t unit, slot, insn; // insn: the gather
    uint32_t issue;            // steps executed when it is issued
    uint32_t first, last;      // steps that read it; ZX_NONE: none does
    uint32_t freed;            // steps executed when it is freed; ZX_NONE: it stays
    uint32_t micro;            // of the first use
    uint32_t nth; // of this unit's gathers in that micro-batch, as the last micro-batch has it
    double issued, ready, used, gone; // seconds; 0 where the plan wasn't simulated
    // To the next step that reads the unit, whether gathered again or not; next ZX_NONE: none.
    uint32_t next, reuse_steps;
    uint64_t reuse_elements, reuse_bytes;
    double reuse_seconds;
} zx_gathered;

typedef struct zx_look {
    uint32_t n;
    const zx_gathered *gathers; // as issued
    const uint32_t *exec;       // by step: its instruction
    const double *begins;       // by step, n_steps + 1: seconds
} zx_look;

// The graph may be NULL.
void zx_look_make(const zx_graph *g, const zx_plan *p, zx_arena *mem, zx_look *out);

#endif

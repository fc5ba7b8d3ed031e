// lives.h - how much memory a plan uses when, and for what: read back from its instructions and
// their times, for pictures. Checked plans only.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_LIVES_H
#define ZX_SCHED_LIVES_H

#include "graph/graph.h"
#include "sched/plan.h"

// What comes and goes; the bytes that are held all the time are none of these.
typedef enum zx_use_kind {
    ZX_USE_GATHERED,    // units, whole, and the flat buffers that they go through
    ZX_USE_ACTIVATIONS, // inputs and what forward nodes make
    ZX_USE_GRADIENTS,   // what backward nodes make
    ZX_USE_SCRATCH,
    ZX_USE_COUNT
} zx_use_kind;
extern const char *const zx_use_words[ZX_USE_COUNT];

typedef struct zx_use_point { // from `at` until the next point
    double at;                // seconds
    uint64_t bytes[ZX_USE_COUNT];
} zx_use_point;

typedef struct zx_lives {
    uint32_t n;
    const zx_use_point *points; // in order of time, no two at the same
    uint64_t held;              // bytes of slots that live across steps
    uint64_t most;              // held and the most of all others together
} zx_lives;

// The plan's start and seconds must be there.
void zx_lives_make(const zx_graph *train, const zx_plan *p, zx_arena *mem, zx_lives *out);

// "h.3.attn.weight + 2": the members of a launch, into mem.
const char *zx_launch_name(const zx_graph *train, const zx_plan *p, uint32_t launch, zx_arena *mem);
// Bytes of a launch's units, whole.
uint64_t zx_launch_bytes(const zx_plan *p, uint32_t launch);

#endif

// pass.h - who asked for an instruction, and what all schedules of a trace have in common.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_PASS_H
#define ZX_SCHED_PASS_H

#include "sched/place.h"
#include "sched/trace.h"

typedef enum zx_pass_id {
#define ZX_PASS(name, what) ZX_PASS_##name,
#include "sched/passes.def"
#undef ZX_PASS
    ZX_PASS_COUNT
} zx_pass_id;
extern const char *const zx_pass_names[ZX_PASS_COUNT];

// By storage: the unit whose gradient shard it is made in (one rank, one micro-batch); ZX_NONE.
const uint32_t *zx_made_in(const zx_trace *t, const zx_plan_options *o, zx_arena *mem);
uint64_t zx_unit_padded(const zx_trace *t, const zx_plan_options *o,
                        uint32_t unit); // bytes, aligned

// The held slots, the same for every schedule: bytes up to where the transient ones begin.
uint64_t zx_held_bytes(const zx_trace *t, const zx_plan_options *o);

#endif

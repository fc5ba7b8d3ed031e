// emit.h - what emit.c and emit_insns.c share: a Plan while it is being made of a schedule.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_EMIT_H
#define ZX_SCHED_EMIT_H

#include "sched/schedule.h"

typedef struct zx_emitter {
    const zx_schedule *s;
    const zx_trace *t;
    const zx_plan_options *o;
    zx_arena *mem;
    zx_plan *p;
    zx_insn *insns;
    zx_slot *slots;
    zx_unit *units;
    zx_launch *launches;
    zx_member *members;
    uint32_t cap_insns, cap_slots, cap_launches, cap_members;
    uint32_t *slot_of_storage, *slot_of_const, *slot_of_working, *slot_of_work, *slot_of_span;
    uint32_t bucket;        // its slot; ZX_NONE
    uint32_t *part_of;      // by unit: its latest PART slot; ZX_NONE
    uint32_t *row_of;       // by transfer: its row of the plan's launches
    uint32_t n_rows, *rows; // rows by what they hold: a table of hashes
} zx_emitter;

uint32_t zx_emit_open_launch(zx_emitter *e);
void zx_emit_add_member(zx_emitter *e, uint32_t unit, uint32_t slot, uint32_t part);
uint32_t zx_emit_loss_slot(const zx_emitter *e, uint32_t micro);
void zx_emit_insns(zx_emitter *e);

#endif

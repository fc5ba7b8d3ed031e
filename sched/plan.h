// plan.h - the program a training step is: a flat array of instructions, the same on every rank,
// with an address for every byte. Open data: emit.c writes it, check.c proves it, explain.c prints
// it, sim.c times it, exec.c runs it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_PLAN_H
#define ZX_SCHED_PLAN_H

#include <assert.h>

#include "graph/base/arena.h"
#include "graph/base/text.h"

typedef enum zx_insn_id {
#define ZX_INSN(id, ...) ZX_I_##id,
#include "sched/insns.def"
#undef ZX_INSN
    ZX_INSN_COUNT
} zx_insn_id;

// Streams run at the same time; within one, instructions run in plan order.
typedef enum zx_stream {
    ZX_S_COMPUTE,
    ZX_S_GATHER, // collectives; of a policy with one queue for all, its reduces too
    ZX_S_REDUCE,
    ZX_S_COPY,   // copies into and out of flat buffers of gathers
    ZX_S_BUCKET, // copies of gradients
    ZX_STREAM_COUNT
} zx_stream;

typedef struct zx_insn {
    uint8_t id;     // zx_insn_id
    uint8_t stream; // zx_stream
    uint16_t by;    // the pass that asked for it (row of passes.def), for explain
    uint32_t step;  // trace step it serves; ZX_NONE
    uint32_t a, b, c;
} zx_insn;
static_assert(sizeof(zx_insn) == 20, "instructions are compared and hashed as bytes");

// What a slot holds. Those above ZX_SLOT_HELD live across steps and never share bytes.
typedef enum zx_slot_kind {
    ZX_SLOT_PARAM,   // unit `what`: this rank's shard, or all of it (unit.param_whole)
    ZX_SLOT_GRAD,    // unit `what`: gradient accumulator, shard or whole
    ZX_SLOT_MASTER,  // unit `what`: its f32 copy, shard or whole as the states; 16-bit units only
    ZX_SLOT_STATE,   // unit `what`: an optimizer state, shard or whole
    ZX_SLOT_BUFFER,  // buffer `what`, as committed
    ZX_SLOT_WORKING, // buffer `what`, this rank's working copy
    ZX_SLOT_CONST,   // graph value `what`, filled when the session opens
    ZX_SLOT_HELD,    // (none: the border)
    ZX_SLOT_INPUT,   // graph input `what` (index into graph->inputs)
    ZX_SLOT_UNIT,    // unit `what`, gathered whole
    ZX_SLOT_VALUE,   // graph value `what`: an activation or a gradient
    ZX_SLOT_WORK,    // scratch of trace step `what`
    ZX_SLOT_FLAT,    // launch `what`: a row a rank, its members' shards one after the other
    ZX_SLOT_BUCKET,  // (what: 0) where policies that copy gradients collect them; PARTs lie in it
    ZX_SLOT_PART,    // unit `what`: its gradient's place in the bucket
} zx_slot_kind;

typedef struct zx_slot {
    uint64_t offset,
        bytes; // offset from the start of the rank's reservation, a multiple of ZX_ALIGN
    uint32_t kind, what;
} zx_slot;

// A parameter as the ranks share it: shard r is elements [r*shard, (r+1)*shard), shard =
// ceil(numel/ranks). Slots that hold a whole unit have room for ranks*shard elements; the pad is 0.
typedef struct zx_unit {
    uint32_t param;                                // graph->params
    uint32_t param_slot, grad_slot, state_slot[2]; // ZX_NONE: the optimizer keeps no such state
    uint32_t master_slot;                          // ZX_NONE: the parameter is f32 itself
    uint32_t param_whole, grad_whole, state_whole; // 0: the slot holds this rank's shard
    uint32_t param_bytes, grad_bytes; // of an element: gathered and read by steps; accumulated
    uint32_t unused;                  // 0
    int64_t numel, shard;             // elements
} zx_unit;

typedef struct zx_member { // of a launch
    uint32_t unit;
    uint32_t slot;   // GATHER: where the whole unit lands (its own param_slot in stages 1 and 2).
                     // REDUCE, ALLREDUCE: the slot with this micro-batch's whole gradient
    uint32_t part;   // REDUCE: the PART slot that PACK reads in place of `slot`; ZX_NONE
    uint32_t unused; // 0
    uint64_t at;     // elements, a shard each, of its launch's members before it: its place in a
                     // row of the flat slot
} zx_member;

typedef struct zx_launch {      // one collective
    uint32_t member, n_members; // range of plan->members
    uint32_t flat;              // slot that it goes through; ZX_NONE: every member in place
} zx_launch;

// An execution of a graph node. An output that overwrites an input in place (op.h: ZX_OP_INPLACE,
// and batch normalisation's statistics) has the input's slot. Parameters are read from a
// ZX_SLOT_UNIT slot, or from their param_slot where that is whole; a buffer and its next value are
// both in its ZX_SLOT_WORKING slot. On one rank with one micro-batch a gradient may be made in the
// unit's grad_slot itself; then it is in no REDUCE.
typedef struct zx_plan_step {
    uint32_t node, micro;      // of the train graph; micro-batch of this rank
    uint32_t arg, n_in, n_out; // range of plan->args: slots of the inputs, then of the outputs;
                               // ZX_NONE where omitted or unread
    uint32_t work;             // slot of its scratch; ZX_NONE
} zx_plan_step;

typedef struct zx_plan {
    uint32_t ranks, stage, micro_batches, optimizer_states; // micro_batches: per rank and step
    uint32_t n_insns, n_slots, n_units, n_launches, n_members, n_steps, n_args, n_events;
    const zx_insn *insns;
    const zx_slot *slots;
    const zx_unit *units;
    const zx_launch *launches;
    const zx_member *members;
    const zx_plan_step *steps;
    const uint32_t *args;
    uint64_t graph_hash;  // of the train graph it was made for
    uint64_t arena_bytes; // what one rank reserves: the highest end of any slot, the predicted peak
    uint64_t held_bytes;  // of it, slots that live across steps (without alignment)
    uint64_t budget;      // the bytes it was made for
    char policy[48];      // "zerox", "hooks, as DeepSpeed": policies.def
    // Predictions on the machine it was made for; not part of the hash.
    double step_seconds, compute_seconds, exposed_seconds;
    uint64_t wire_bytes;           // received by one rank in a step; it sends as many
    const double *start, *seconds; // by instruction; NULL: not simulated
} zx_plan;

// Elements of a unit in a slot that holds it whole, or this rank's shard of it.
static inline uint64_t zx_unit_room(const zx_plan *p, const zx_unit *u, uint32_t whole)
{
    return (uint64_t)u->shard * (whole != 0 ? p->ranks : 1);
}

uint64_t zx_plan_hash(const zx_plan *p); // FNV-1a 64 over everything but the predictions
// A plan as one block of bytes and back (rank 0 plans and sends). Unpacking checks every size.
void zx_plan_pack(const zx_plan *p, zx_text *out);
zx_status zx_plan_unpack(const void *bytes, size_t n, zx_arena *mem, zx_plan *out, zx_err *err);

#endif

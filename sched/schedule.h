// schedule.h - what a policy decides: a draft on the line of one optimizer step, which every policy
// makes and one emitter (emit.c) turns into a Plan.
//
// Positions are boundaries: position p lies before trace step p; step t of micro-batch m is step
// m * n_steps + t, the end is n_steps * micro_batches. Acts are enqueued in order of position, at
// one position in the order in which they were added (but frees and drains first). What a gather
// overwrites is done with when compute comes to its gate.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SCHEDULE_H
#define ZX_SCHED_SCHEDULE_H

#include "sched/pass.h"

typedef enum zx_act_kind {
    ZX_ACT_REDUCE, // launch `what` is enqueued: the gradients of its members are whole
    ZX_ACT_BUCKET, // the gradient of flow `what` is copied into its launch's bucket
    ZX_ACT_DRAIN,  // compute waits for reduce launch `what`: its gradients' bytes are given away
    ZX_ACT_FREE,   // hold `what` ends: nobody reads it any more
    ZX_ACT_GATHER, // launch `what` is enqueued
    ZX_ACT_AWAIT,  // compute waits for gather launch `what`; in the copying form it is unpacked
    ZX_ACT_SYNC,   // the host waits for launch `what`: nothing after this is enqueued before
    ZX_ACT_HOOK,   // the host is busy with `what` hooks
} zx_act_kind;

typedef struct zx_act {
    int64_t at;
    uint32_t order; // among those of one position
    uint32_t what;
    uint8_t kind; // zx_act_kind
    uint8_t by;   // zx_pass_id, for explain
} zx_act;

typedef struct zx_hold { // a unit whole on the device: one member of a gather launch
    uint32_t unit, launch;
    int64_t gate;        // from this position on it has its bytes
    int64_t await, gone; // compute may read it from `await` on; it is given up at `gone`
    int64_t first;       // the first step that reads it; -1: none does
    uint32_t span;       // of the schedule's spans
    uint32_t act;        // its FREE; ZX_NONE
} zx_hold;

typedef struct zx_gradient { // a unit's gradient of one micro-batch on its way to the shards
    uint32_t unit, launch, micro;
    int64_t bucketed; // position of its BUCKET act; -1: none
} zx_gradient;

typedef struct zx_transfer { // a launch: members are a range of holds, or of gradients
    uint32_t first, n;
    bool reduce;
    bool flat;   // goes through one flat buffer: copied in, and out of it again
    bool late;   // REDUCE: leaves after gathers that were written down before it at its position
    bool bucket; // REDUCE: gradients are copied into the bucket as they come
    int64_t gate, at; // GATHER: the compute position it waits for; where it is enqueued
    int64_t over;     // AWAIT's or DRAIN's position; -1: none yet
    int64_t unpack;   // flat GATHER: the compute position that its copies out wait for
    uint32_t act;     // its AWAIT or DRAIN; ZX_NONE
    uint32_t span;    // of the flat buffer; ZX_NONE
    uint32_t row;     // of the plan's launches (emit)
} zx_transfer;

typedef struct zx_schedule {
    const zx_trace *trace;
    const zx_plan_options *options;
    zx_arena *mem;
    const uint64_t *unit_bytes; // whole, padded and aligned
    // What the policy is:
    char policy[48];        // "hooks, as DeepSpeed"
    bool one_fifo;          // gathers and reduces leave one after the other, as enqueued
    bool whole_params;      // no gathers: parameters are held whole (stages below 3, one rank)
    bool local;             // gradients are added up locally, reduced once: simulated only
    uint64_t bucket_bytes;  // of the bucket that is held all the time; 0: none
    uint64_t update_launch; // bytes a launch after the update (stages 1, 2)
    // Decisions:
    uint32_t n_acts, n_holds, n_gradients, n_transfers, n_spans;
    uint32_t cap_acts, cap_holds, cap_gradients, cap_transfers, cap_spans;
    zx_act *acts;
    zx_hold *holds;
    zx_gradient *gradients;
    zx_transfer *transfers;
    zx_span *spans;          // bytes that come and go
    uint64_t transient;      // highest end of any span
    uint64_t work;           // pieces of memory that were looked at to find them addresses
    bool part;               // little shall end above, where all of it can't end below
    uint32_t effort;         // of looking, as zx_place means it; 0: as 1
    bool placed;             // spans came with their addresses (the planner's own)
    uint32_t apart;          // so many micro-batches in a row have addresses of their own; 0: none
    uint32_t *grad_row;      // by storage: its row of grad_spans, where it holds gradients that are
                             // reduced, or micro-batches are apart; ZX_NONE
    uint32_t *grad_spans;    // a row a storage: its span in each micro-batch
    uint32_t *now;           // by unit: its open hold; ZX_NONE
    uint32_t *pending;       // by unit: its BUCKET act that no reduce has taken; ZX_NONE
    uint32_t *reads;         // by micro-batch, then trace use: the hold that serves it
    const uint32_t *made_in; // by storage: the unit whose gradient shard it is; ZX_NONE
} zx_schedule;

// ---- writing one down ---------------------------------------------------------------------------

void zx_schedule_start(zx_schedule *s, const zx_trace *t, const zx_plan_options *o, zx_arena *mem);

// One all-gather of units that aren't held: enqueued at `at`, its bytes are its own from `gate` on
// (gate <= at). Returns the launch. flat: one buffer and copies out of it (more than one member).
uint32_t zx_schedule_gather(zx_schedule *s, int64_t at, int64_t gate, const uint32_t *units,
                            uint32_t n, bool flat, zx_pass_id by);
void zx_schedule_await(zx_schedule *s, int64_t at, uint32_t launch); // once a launch; more are fine
// The compute position that a flat launch's copies out may begin at; without it: its await's.
void zx_schedule_unpack(zx_schedule *s, int64_t gate, uint32_t launch);
void zx_schedule_free(zx_schedule *s, int64_t at, uint32_t unit); // the open hold of the unit
// One reduce-scatter (or all-reduce, below stage 2) of gradients of micro-batch `micro`, each of
// which is whole at `at`. bucket: each is copied into the held bucket first, at zx_schedule_bucket.
uint32_t zx_schedule_reduce(zx_schedule *s, int64_t at, uint32_t micro, const uint32_t *units,
                            uint32_t n, bool flat, bool bucket);
void zx_schedule_bucket(zx_schedule *s, int64_t at, uint32_t micro, uint32_t unit); // before it
void zx_schedule_drain(zx_schedule *s, int64_t at, uint32_t launch);
void zx_schedule_sync(zx_schedule *s, int64_t at, uint32_t launch);
void zx_schedule_hooks(zx_schedule *s, int64_t at, uint32_t n);
// The position after which the gradient of a unit is whole, in a micro-batch.
int64_t zx_schedule_grad_at(const zx_schedule *s, uint32_t micro, uint32_t unit);

// Mends and completes what was written down, so that it can be emitted: reads outside a hold
// lengthen the hold before or after them (*mended counts those; none: one is gathered at the use),
// launches that nobody awaits are awaited at their first use, holds that nobody ends end after
// their last use, reduces that nobody drains are drained at the end of their micro-batch. Then
// makes the spans: equal holds of successive micro-batches have the same bytes.
zx_status zx_schedule_finish(zx_schedule *s, uint32_t *mended, zx_err *err);
void zx_schedule_spans(zx_schedule *s); // (part of finish)
// Copying forms: the position at which compute knows that a gradient was copied.
int64_t zx_schedule_copied(const zx_schedule *s, const zx_gradient *x);
// The most bytes that are spoken for at any step, held slots included: no placement takes less.
uint64_t zx_schedule_load(const zx_schedule *s);
void zx_schedule_place(zx_schedule *s, uint64_t budget); // addresses; as little as it can above it
// The same with other addresses in each of `apart` micro-batches in a row, as they come back after
// those: that takes longer, and ends lower mostly.
void zx_schedule_place_apart(zx_schedule *s, uint32_t apart, uint64_t budget);
// By step of a micro-batch: how far addresses of what is there end above `limit`, in any of them.
void zx_schedule_above(const zx_schedule *s, uint64_t limit, uint64_t *above);
// Placed -> Plan, not simulated and not checked.
void zx_schedule_emit(const zx_schedule *s, zx_arena *mem, zx_plan *out);
uint64_t zx_schedule_held(const zx_schedule *s); // bytes of slots that live across steps

#endif

// pass.h - what the planner's passes share: the draft of a plan.
//
// Everything happens on the circle of one micro-batch's steps. A span [from, to] of steps may go on
// into the next micro-batch (to >= n_steps) or begin in the one before (from < 0) where there is
// more than one; it is never longer than the circle.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_PASS_H
#define ZX_SCHED_PASS_H

#include "sched/trace.h"

typedef enum zx_pass_id {
#define ZX_PASS(name, what) ZX_PASS_##name,
#include "sched/passes.def"
#undef ZX_PASS
    ZX_PASS_COUNT
} zx_pass_id;
extern const char *const zx_pass_names[ZX_PASS_COUNT];

// ---- how much memory is spoken for at each step
// -----------------------------------------------------
typedef struct zx_load { // a tree over the steps: add to a span, highest of a span
    uint32_t n, leaves;
    int64_t *most, *add;
} zx_load;
void zx_load_make(zx_load *l, uint32_t n_steps, zx_arena *mem);
void zx_load_copy(zx_load *l, const zx_load *from); // of the same size
void zx_load_add(zx_load *l, int64_t from, int64_t to,
                 int64_t x); // around the circle; to < from: nothing
int64_t zx_load_most(const zx_load *l, int64_t from, int64_t to); // INT64_MIN where to < from

// ---- the draft
// ------------------------------------------------------------------------------------------ A
// stay: the time a gathered unit spends whole on the device.
typedef struct zx_stay {
    uint32_t unit;
    uint32_t use, n_uses; // the uses it serves: the first, and how many around the circle
    int64_t issue;        // step before which its gather is issued
    int64_t want;         // and before which it would be if memory were no object
    int64_t first, last;  // first and last step that reads it
    bool always;          // gathered once, stays for the whole step
    bool wraps;           // reads on in the next micro-batch
    uint32_t launch;      // stays of one launch are next to each other
} zx_stay;

// A gradient on its way from the step that makes it to the shards.
typedef struct zx_flow {
    uint32_t unit;
    int64_t ready;   // the step after which it is whole
    int64_t drained; // the step after which its bytes may be given away; >= ready of its launch
    int64_t want;    // and after which they would be if memory were no object
    uint32_t launch; // flows of one launch are next to each other
} zx_flow;

typedef enum zx_span_kind {
    ZX_SPAN_STORAGE, // index: trace->storages
    ZX_SPAN_STAY,    // a draft's stay; a schedule's unit
    ZX_SPAN_WORK,    // trace step
    ZX_SPAN_FLAT,    // a schedule's transfer
    ZX_SPAN_BUCKET,
} zx_span_kind;
typedef struct zx_span { // bytes that need an address for some of the steps
    uint32_t kind, index;
    int64_t from, to;
    uint32_t repeat; // 0: the same in every micro-batch, around the circle; n: `from` is a position
                     // of the step's line, and the span comes back in the n - 1 next micro-batches
    uint64_t bytes,
        offset; // bytes is a multiple of ZX_ALIGN; offset from the end of the held slots
} zx_span;

// What the search turns. All zero: every gather at its use, every reduce waited for at once.
typedef struct zx_knobs {
    uint64_t limit;   // bytes that may be spoken for at any step, beside the held slots
    double residency; // 0..1: how much of the spare room residency may take
    double eager;     // gathers begin this many times their duration before their use; 0: at it
    uint64_t launch_bytes; // launches are filled up to this; 0: one member each
    uint32_t order;        // of placement
} zx_knobs;

typedef struct zx_draft {
    const zx_trace *trace;
    const zx_plan_options *options;
    zx_arena *mem;
    zx_knobs knobs;
    // Facts, by unit:
    const uint64_t *unit_bytes; // of the whole unit, padded and aligned
    const uint64_t *unit_elements;
    bool gathers;            // stage 3 on several ranks: units are gathered for their uses
    const uint32_t *made_in; // by storage: the unit whose gradient shard it is; ZX_NONE
    // Decisions:
    uint32_t n_stays, n_flows;
    zx_stay *stays;   // in order of `first`
    zx_flow *flows;   // in order of `ready`
    zx_load bytes;    // what storages, scratch, stays and flows take so far
    zx_load elements; // of gathered units
    uint32_t n_spans;
    zx_span *spans;
    uint64_t transient; // highest end of any span
} zx_draft;

// The limit as the load counts; "no limit" leaves room to add to it.
static inline int64_t zx_draft_limit(const zx_draft *d)
{
    return d->knobs.limit > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)d->knobs.limit;
}

// The step at which a stay's launch may begin at the earliest, not to meet itself in the
// micro-batch before; the step until which a gradient may be held at the latest.
int64_t zx_stay_earliest(const zx_draft *d, const zx_stay *s);
int64_t zx_flow_latest(const zx_draft *d, const zx_flow *f);

// Fills the facts and the least decisions; E_BUDGET where stage3_max_live_parameters can't be kept.
zx_status zx_draft_make(const zx_trace *t, const zx_plan_options *o, zx_arena *mem, zx_draft *out,
                        zx_err *err);
// Starts over with other knobs and runs the passes up to emission.
void zx_draft_run(zx_draft *d, const zx_draft *facts, const zx_knobs *knobs);

// By storage: the unit whose gradient shard it is made in (one rank, one micro-batch); ZX_NONE.
const uint32_t *zx_made_in(const zx_trace *t, const zx_plan_options *o, zx_arena *mem);
uint64_t zx_unit_padded(const zx_trace *t, const zx_plan_options *o,
                        uint32_t unit); // bytes, aligned

// First-fit addresses for spans, in one of ZX_PLACE_ORDERS orders: `rounds` times, until the
// highest end, which is returned, is at most `enough`. micro_batches: of the line (spans that
// repeat).
uint64_t zx_place(zx_span *spans, uint32_t n, uint32_t n_steps, uint32_t micro_batches,
                  uint32_t order, int rounds, uint64_t enough, zx_arena *mem);

void zx_pass_residency(zx_draft *d);
void zx_pass_prefetch(zx_draft *d);
void zx_pass_gradients(zx_draft *d);
void zx_pass_place(zx_draft *d);
void zx_pass_stretch(zx_draft *d);
#define ZX_PLACE_ORDERS 4 // values of knobs.order

// The held slots, the same for every draft: bytes up to where the transient ones begin.
uint64_t zx_held_bytes(const zx_trace *t, const zx_plan_options *o);
void zx_emit(const zx_draft *d, zx_arena *mem, zx_plan *out);

#endif

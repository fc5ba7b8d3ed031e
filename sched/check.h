// check.h - what the parts of the checker share: indices (check_bounds.c), static rules (check.c),
// the memory that remembers what its bytes hold (check_memory.c), and the run over the instructions
// (check_run.c).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_CHECK_H
#define ZX_SCHED_CHECK_H

#include "sched/pass.h"

// What an operand column of insns.def says.
typedef enum zx_operand {
    ZX_OPERAND_NONE,
    ZX_OPERAND_SLOT,
    ZX_OPERAND_MICRO,
    ZX_OPERAND_LAUNCH,
    ZX_OPERAND_EVENT,
    ZX_OPERAND_STEP,
    ZX_OPERAND_FLAG,
    ZX_OPERAND_UNIT,
    ZX_OPERAND_BUFFER,
    ZX_OPERAND_MEMBER, // of launch a
    ZX_OPERAND_NUMBER,
} zx_operand;
typedef struct zx_insn_row {
    const char *word;
    uint8_t kind[3]; // zx_operand of a, b, c
} zx_insn_row;
extern const zx_insn_row zx_insn_rows[ZX_INSN_COUNT];
extern const char *const zx_stream_words[ZX_STREAM_COUNT];

// ---- what bytes hold
// ----------------------------------------------------------------------------------
typedef enum zx_holds {
    ZX_HOLDS_NOTHING, // never written, or partly given to somebody else
    ZX_HOLDS_FREED,
    ZX_HOLDS_VALUE,   // graph value `what` (not a view) of micro-batch `version`
    ZX_HOLDS_UNIT,    // unit `what` whole, as gathered: version 0 before its update, 1 after
    ZX_HOLDS_PARAM,   // unit `what` where it lives: version as above; 2: only this rank's shard is
                      // new
    ZX_HOLDS_GRAD,    // the sum of `version` micro-batches' gradients of unit `what`
    ZX_HOLDS_STATE,   // unit `what`
    ZX_HOLDS_BUFFER,  // buffer `what` as committed, before (0) or after (1) this step
    ZX_HOLDS_WORKING, // buffer `what` after `version` micro-batches
    ZX_HOLDS_CONST,   // graph value `what`
    ZX_HOLDS_WORK,    // scratch of step `what`
    ZX_HOLDS_MASTER,  // unit `what`: the f32 copy of its parameter
    ZX_HOLDS_SHARDS,  // this rank's row of gather launch `what`: version as PARAM's
    ZX_HOLDS_ROWS,    // all ranks' rows of it
    ZX_HOLDS_GRADS,   // gradients of reduce launch `what` of micro-batch `version`, in rows
    ZX_HOLDS_PART,    // the gradient of unit `what` of micro-batch `version`, in the bucket
} zx_holds;
typedef struct zx_content {
    uint32_t holds, what, version;
} zx_content;

typedef struct zx_segment { // neighbouring bytes with one history
    uint32_t end;           // index of a border, exclusive
    zx_content content;
    uint32_t writer;                  // instruction; ZX_NONE: before the step
    uint32_t reader[ZX_STREAM_COUNT]; // the last one of each stream since; ZX_NONE
} zx_segment;

typedef struct zx_shadow {
    uint32_t n_borders; // sorted addresses at which slots begin or end
    const uint64_t *borders;
    const uint32_t *lo, *hi; // by slot: its borders; lo == hi: no bytes
    zx_segment *segments;    // by the border they begin at, where `bits` says so
    uint64_t *bits[6];       // a border is set; then which words below aren't zero
    uint32_t n_levels;
} zx_shadow;

typedef struct zx_check {
    const zx_graph *g;
    const zx_plan *p;
    zx_arena *mem;
    zx_err *err;
    const uint32_t *root;                 // by value
    const uint32_t *next_of;              // by value: the buffer that it is the next of; ZX_NONE
    uint32_t *working_slot, *buffer_slot; // by buffer
    const bool *reduces;                  // by launch: gradients go through it, not parameters
    zx_shadow shadow;
    const uint32_t *place; // by instruction: how many of its stream come before
    uint32_t known[ZX_STREAM_COUNT][ZX_STREAM_COUNT]; // what each stream knows to be done of each
} zx_check;

#define ZX_BROKEN(c, ...) ZX_FAIL((c)->err, ZX_E_FORMAT, __VA_ARGS__)

// Names for sentences, into c->mem.
const char *zx_check_insn_text(const zx_check *c, uint32_t insn);
const char *zx_check_content_text(const zx_check *c, const zx_content *x);
const char *zx_check_slot_text(const zx_check *c, uint32_t slot);

// True where instruction `before` is done when `now`, whose stream is being run, begins.
bool zx_check_done(const zx_check *c, uint32_t before, uint32_t now);

void zx_shadow_make(zx_check *c);
// Instruction `insn` reads a slot, which must hold `want` and be written by then.
zx_status zx_shadow_read(zx_check *c, uint32_t insn, uint32_t slot, const zx_content *want);
// Instruction `insn` writes it; everybody who uses the bytes so far must be done. `over` is true
// where it may overwrite what it reads itself.
zx_status zx_shadow_write(zx_check *c, uint32_t insn, uint32_t slot, const zx_content *now,
                          bool over);
// What the slot holds as a whole.
zx_content zx_shadow_look(const zx_check *c, uint32_t slot);

zx_status zx_check_run(zx_check *c);

// Every index is of something that the plan has: then it can be looked at, also without its graph
// (steps' nodes and the buffers that are committed are the graph's, and not looked at).
zx_status zx_plan_bounds(const zx_plan *p, zx_err *err);

#endif

// place.h - addresses for bytes that come and go: spans that share a step share no bytes.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_PLACE_H
#define ZX_SCHED_PLACE_H

#include "graph/base/zx.h"

typedef enum zx_span_kind {
    ZX_SPAN_STORAGE, // index: trace->storages
    ZX_SPAN_STAY,    // unit
    ZX_SPAN_WORK,    // trace step
    ZX_SPAN_FLAT,    // transfer
    ZX_SPAN_BUCKET,
} zx_span_kind;

// Everything happens on the circle of one micro-batch's steps, or on the line of all of them. A
// span [from, to] of the circle may go on into the next micro-batch (to >= n_steps) or begin in the
// one before (from < 0).
typedef struct zx_span { // bytes that need an address for some of the steps
    uint32_t kind, index;
    int64_t from, to;
    uint32_t repeat; // 0: the same in every micro-batch, around the circle; n: `from` is a position
                     // of the step's line, and the span comes back n - 1 times after that
    uint64_t bytes, offset; // offset from the end of the held slots, a multiple of ZX_ALIGN
} zx_span;

typedef struct zx_place_line {
    uint32_t n_steps, micro_batches; // of one; how many
    uint32_t period;                 // micro-batches after which spans come back: 1, the next one
} zx_place_line;

// Gives every span its offset and returns the highest end. Tries until that is at most `enough`,
// and at most as long as `effort` allows (0: one quick try; 1 is what a whole schedule is worth):
// what is tried is counted, never timed, so the same spans get the same addresses. *work: pieces of
// memory that were looked at; NULL: nobody asks.
uint64_t zx_place(zx_span *spans, uint32_t n, zx_place_line line, uint64_t enough, uint32_t effort,
                  uint64_t *work);
// part: where that isn't found, as little as can be found, bytes by steps, ends above `enough`.
uint64_t zx_place_part(zx_span *spans, uint32_t n, zx_place_line line, uint64_t enough,
                       uint32_t effort, bool part, uint64_t *work);

#endif

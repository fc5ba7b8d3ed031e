// place_parts.h - what the files of placement share: spans as pieces of columns.
//
// A column stands for the steps from one start of a span to the next: two spans share a step where
// they share a column. There are two sets of columns. Those of the circle tell when spans of every
// micro-batch meet anybody, those of the line when spans that aren't in every one meet each other.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_PLACE_PARTS_H
#define ZX_SCHED_PLACE_PARTS_H

#include "graph/base/arena.h"
#include "sched/place.h"

typedef struct zx_piece { // columns [lo, hi]
    uint32_t lo, hi;
} zx_piece;

typedef struct zx_columns { // the pieces of span i are [at[i], at[i + 1])
    uint32_t n;
    uint32_t *at;
    zx_piece *pieces;
} zx_columns;

typedef struct zx_placing {
    uint32_t n;
    uint64_t grid;        // a multiple of ZX_ALIGN; addresses are multiples of it
    uint64_t *bytes;      // by span: a multiple of the grid
    uint64_t *steps;      // that it lasts, all micro-batches together
    int64_t *start;       // on the circle
    int64_t *begin, *end; // of the line; of what comes back, on the circle
    bool *always;         // it is in every micro-batch
    zx_columns circle;    // of all spans
    zx_columns line;      // of those that aren't in every micro-batch
    uint64_t *offset;     // the layout at hand
    zx_arena *mem;
    uint64_t work; // so far
} zx_placing;

// place_columns.c
void zx_placing_make(const zx_span *spans, uint32_t n, zx_place_line line, uint64_t grid,
                     zx_arena *mem, zx_placing *out);

// place_grid.c: the most bytes at any step of the line, each span's a multiple of `grid`.
uint64_t zx_placing_load(const zx_span *spans, uint32_t n, zx_place_line line, uint64_t grid,
                         int64_t *change);
// What makes spans easier to lay beside each other, if there is room for it below `enough`: those
// that hardly count lie apart, all others are multiples of a grid. *small: spans up to so many
// bytes lie apart.
void zx_placing_ease(const zx_span *spans, uint32_t n, zx_place_line line, uint64_t enough,
                     zx_arena *mem, uint64_t *small, uint64_t *grid);

// place_fit.c: every span in an order, each by its rule where it is free, below `most`
// if there; false: that takes more than `work`, and offsets are no layout.
typedef enum zx_fit_rule { ZX_FIT_LOWEST, ZX_FIT_TIGHTEST, ZX_FIT_HIGHEST } zx_fit_rule;
typedef struct zx_fitter zx_fitter;
zx_fitter *zx_fitter_make(zx_placing *p);
bool zx_fit(zx_fitter *f, const uint32_t *order, const uint8_t *rules, uint64_t most,
            uint64_t work);

// place_near.c: spans that share a step with one; the list is good until the next call.
typedef struct zx_near zx_near;
zx_near *zx_near_make(zx_placing *p);
const uint32_t *zx_near_find(zx_near *f, uint32_t span, uint32_t *n);

// place_match.c: every span in an order, each in a gap below `most` where a neighbour in address
// ends when it does; where there is none, the lowest that fits. False: that takes more than `work`.
typedef struct zx_matcher zx_matcher;
typedef struct zx_match_rule {
    bool edges;   // to lie at an end of all addresses is as good as to agree
    bool weighed; // how well ends agree counts as much as what is left of a gap
} zx_match_rule;
zx_matcher *zx_matcher_make(zx_placing *p, zx_near *near);
bool zx_match(zx_matcher *m, const uint32_t *order, zx_match_rule rule, uint64_t most,
              uint64_t work);

// place_mend.c: moves what ends above `most`, and what is in its way, until all ends below: true,
// or for as long as `work` allows: false (offsets are as before then).
typedef struct zx_mender zx_mender;
zx_mender *zx_mender_make(zx_placing *p, zx_near *near);
void zx_mender_start(zx_mender *m, uint32_t manner); // anew, in another manner: any number
bool zx_mend(zx_mender *m, uint64_t most, uint64_t work);
// As well as it goes: of all that was tried the least, as bytes by steps, lies above `most`.
void zx_mend_part(zx_mender *m, uint64_t most, uint64_t work);

#endif

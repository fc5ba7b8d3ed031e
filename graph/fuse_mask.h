// fuse_mask.h - the masks that stand between scores and their softmax, as an attention takes them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_FUSE_MASK_H
#define ZX_GRAPH_FUSE_MASK_H

#include "graph/fuse_layout.h"

#define ZX_MASKS 4

typedef enum zx_mask_kind {
    ZX_MASK_ADDED,
    ZX_MASK_SUBTRACTED,
    ZX_MASK_SHOWN,  // where true the score stays
    ZX_MASK_HIDDEN, // where true it goes
} zx_mask_kind;

typedef struct zx_mask {
    uint32_t v;
    zx_mask_kind kind;
    double fill;     // SHOWN, HIDDEN: in place of what is hidden
    bool is_number;  // SHOWN, HIDDEN: `fill` is added, not taken for -inf
    zx_shape scores; // that it is applied to, as they are laid out there
} zx_mask;

typedef struct zx_masks {
    uint32_t n;
    zx_mask of[ZX_MASKS];
    bool causal;
    bool mean;     // where nothing is seen all is seen alike
    int64_t shift; // CAUSAL: key j is seen by query i where j <= i + shift
} zx_masks;

// Finds what of them is causal, or nothing at all, and whether the rest fits an attention of
// this batch. False: it can't be fused.
bool zx_masks_read(zx_match *m, zx_masks *k, int64_t batch);
// What is left as one operand; ZX_NONE where nothing is.
uint32_t zx_masks_build(zx_match *m, const zx_masks *k, int64_t batch);

#endif

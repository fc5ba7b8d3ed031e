// plan_auto.h - what zerox plan --auto found: one global batch, cut and kept in every way, and
// which of the ways to take.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_PLAN_AUTO_H
#define ZX_RUNTIME_PLAN_AUTO_H

#include "graph/base/text.h"

#define ZX_AUTO_NEAR 1.01 // steps this near to the fastest are as good: then memory decides

typedef struct zx_auto_row {   // a way
    int64_t micro, accumulate; // micro * accumulate * ranks is the same in all
    const char *recompute;     // "none", "auto", "full"
    uint32_t stage;
    const char *refused; // why there is no plan; NULL: there is one
    double step;         // seconds, predicted
    double rate;         // tokens or samples a second, over all ranks
    double bound;        // seconds that no schedule is faster than; 0: not known
    uint64_t peak_bytes; // of a rank
    bool given;          // it is what the config says
    bool front;          // none is as fast in less memory, or faster in as much
} zx_auto_row;

typedef struct zx_auto {
    const char *model, *machine, *unit; // unit: "tokens", "samples"
    uint32_t ranks;
    int64_t total;       // samples of a step over all ranks: train_batch_size
    int64_t fixed_batch; // of the model; 0: it takes any
    uint64_t budget;     // bytes of a rank; UINT64_MAX: none
    uint32_t n_rows, cap_rows;
    zx_auto_row *rows;
    uint32_t chosen;  // ZX_NONE: no way has a plan
    int64_t left_out; // micro-batches from this size on weren't tried; 0: all were
} zx_auto;

// Marks the front and chooses: the fastest, or of those near to it the one with the least memory;
// the first of equals.
void zx_auto_judge(zx_auto *a);

void zx_auto_text(const zx_auto *a, zx_text *out);
void zx_auto_json(const zx_auto *a, zx_text *out);

#endif

// schedule_lr.h - the learning rate of every step: DeepSpeed's schedules as functions of how many
// steps were applied, so that a run that goes on needs nothing else to know.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_SCHEDULE_LR_H
#define ZX_RUNTIME_SCHEDULE_LR_H

#include "graph/base/text.h"

typedef enum zx_lr_kind {
    ZX_LR_CONSTANT,
    ZX_LR_WARMUP,        // WarmupLR
    ZX_LR_WARMUP_DECAY,  // WarmupDecayLR
    ZX_LR_WARMUP_COSINE, // WarmupCosineLR
    ZX_LR_ONE_CYCLE,     // OneCycle
    ZX_LR_RANGE_TEST,    // LRRangeTest
    ZX_LR_KINDS
} zx_lr_kind;

typedef struct zx_lr_schedule {
    zx_lr_kind kind;
    double base;            // the optimizer's lr: constant, and of what WarmupCosineLR is a part
    double min, max;        // of a warm-up, of a cycle; LRRangeTest begins at min
    uint64_t warmup, total; // steps; warmup at least 2, as in DeepSpeed
    bool logarithmic;       // the warm-up; false: a straight line
    double from_ratio, to_ratio; // WarmupCosineLR: parts of base at its begin and end
    double first, second;        // OneCycle: steps up and down
    uint64_t first_stairs, second_stairs;
    double decay_steps, decay_rate; // after the cycle: min/(1 + rate steps/decay_steps)
    bool momentum;                  // OneCycle moves beta1 too, and holds beta2 at 0.99
    double min_momentum, max_momentum, momentum_rate;
    double size, rate; // LRRangeTest: min (1 + rate steps/size)
    bool staircase;
} zx_lr_schedule;

// Of the step that comes after `applied` ones; skipped steps don't count.
double zx_lr_at(const zx_lr_schedule *s, uint64_t applied);
// Adam's betas of that step: left as they are where the schedule doesn't move them.
void zx_lr_betas_at(const zx_lr_schedule *s, uint64_t applied, double *beta1, double *beta2);
const char *zx_lr_kind_name(zx_lr_kind kind); // "WarmupLR"; "constant"
// "WarmupDecayLR: 0 to 0.001 in 4 steps (log), then to 0 at step 11".
void zx_lr_describe(const zx_lr_schedule *s, zx_text *out);

#endif

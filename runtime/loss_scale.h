// loss_scale.h - the loss scale of float16: gradients are made multiplied by it, so that small ones
// don't become 0, and divided by it where they are used. DeepSpeed's rule (its DynamicLossScaler),
// but that a gradient is divided by the scale that it was made with.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_LOSS_SCALE_H
#define ZX_RUNTIME_LOSS_SCALE_H

#include "graph/base/zx.h"

typedef struct zx_loss_scale_rule { // fp16.* of a config
    double fixed;                   // > 0: the scale stays this
    double first, least;            // of a dynamic one
    uint32_t window;                // steps without overflow after which it doubles; >= 1
    uint32_t hysteresis;            // overflows, the last of which halves it; >= 1
    bool consecutive;               // a step without overflow restores the hysteresis
} zx_loss_scale_rule;

typedef struct zx_loss_scale { // what a checkpoint keeps
    double scale;              // of the next step
    int64_t iter;              // steps so far
    int64_t last_overflow;     // the last of them that overflowed; -1
    int64_t hysteresis;        // what is left of it
} zx_loss_scale;

zx_loss_scale zx_loss_scale_start(const zx_loss_scale_rule *r);
// After a step. False: it overflowed, and the scale is as small as it may be; s is as it was.
bool zx_loss_scale_update(zx_loss_scale *s, const zx_loss_scale_rule *r, bool overflow);

#endif

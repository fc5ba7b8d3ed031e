// load.h - how much is spoken for at each step: a tree over steps that adds to a span and tells the
// highest of a span, each in log n. Steps are a circle: a span may go around it once.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_LOAD_H
#define ZX_SCHED_LOAD_H

#include "graph/base/arena.h"

typedef struct zx_load {
    uint32_t n, leaves;
    int64_t *most, *add;
} zx_load;
void zx_load_make(zx_load *l, uint32_t n_steps, zx_arena *mem);    // all 0
void zx_load_fill(zx_load *l, const int64_t *values);              // by step
void zx_load_add(zx_load *l, int64_t from, int64_t to, int64_t x); // to < from: nothing
int64_t zx_load_most(const zx_load *l, int64_t from, int64_t to);  // INT64_MIN where to < from

#endif

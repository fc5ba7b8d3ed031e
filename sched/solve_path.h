// solve_path.h - what a solution gathers and reduces, apart from its launches, and launches of it.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SOLVE_PATH_H
#define ZX_SCHED_SOLVE_PATH_H

#include "sched/solve.h"

typedef struct zx_item { // a gather or a reduce
    uint32_t what, micro;
    int64_t at;   // first use; whole
    int64_t gone; // gather: its bytes are free; reduce: they count
    int64_t latest;
    uint64_t bytes, wire;
} zx_item;

typedef struct zx_items {
    uint32_t n;
    zx_item *all;
} zx_items;

typedef struct zx_wanted {
    const zx_problem *p;
    zx_items gather, reduce; // in order of use; of micro-batch and readiness
} zx_wanted;
void zx_wanted_make(const zx_problem *p, const zx_solution *s, zx_arena *mem, zx_wanted *out);

typedef struct zx_sending { // of the next n items
    bool reduce;
    uint32_t n;
} zx_sending;
// Launches in this order, each as early as it may go. False: they wait for each other.
bool zx_wanted_send(const zx_wanted *w, const zx_sending *list, uint32_t n, zx_arena *mem,
                    zx_solution *out);

#endif

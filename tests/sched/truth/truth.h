// truth.h - ground truth for the planner: tiny problems drawn from a seed, and a dumb search
// through everything that could be done about one. Of the planner nothing is used; both are priced
// by the simulator.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_SCHED_TRUTH_H
#define ZX_TESTS_SCHED_TRUTH_H

#include "graph/base/text.h"
#include "sched/problem.h"

#define TRUTH_LINE 16  // steps of a line at most
#define TRUTH_MOVES 16 // launches at most
#define TRUTH_PARTS 32
#define TRUTH_NEVER 1e300 // of what never ends

// A problem: 3 to 7 steps in all, 1 to 6 units to gather, up to 8 reads of them, 0 to 3 gradients;
// the same for a seed.
zx_problem truth_draw(uint32_t seed, zx_arena *mem);
// The shape of training where memory is tight: see draw.c. Two or three units.
zx_problem truth_draw_line(uint32_t seed, zx_arena *mem);
// The least limit that anything fits in: every gather at its use, every reduce waited for at once.
uint64_t truth_least(const zx_problem *p);

// Seconds of a step by the simulator, with what comes after the last reduce; TRUTH_NEVER where
// compute and wire wait for each other.
double truth_price(const zx_problem *p, const zx_solution *s, zx_arena *mem);

// The first rule of problem.h that a solution breaks, in mem; NULL: none.
const char *truth_wrong(const zx_problem *p, const zx_solution *s, zx_arena *mem);

typedef struct truth_found {
    double seconds;      // of the best solution; TRUTH_NEVER: none fits
    zx_solution best;    // in mem
    uint64_t seen, runs; // beginnings of solutions looked at; runs of the simulator
} truth_found;
void truth_search(const zx_problem *p, zx_arena *mem, truth_found *out);

void truth_put_problem(const zx_problem *p, zx_text *out);
void truth_put_solution(const zx_problem *p, const zx_solution *s, zx_text *out);

#endif

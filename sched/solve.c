// solve.c - the planner: turns the knobs of the list scheduler and keeps what is fastest.
//
// Micro-batches in the middle are alike, so knobs are turned on a step of few micro-batches, and
// what they say of a longer one is its last one's period. What is best is then made in full.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

#include <math.h>
#include <stddef.h>

#define FEW 4 // micro-batches that knobs are turned on
#define ROUNDS 2
#define SAME (1 + 1e-6) // times this near are the same: the knob stays where it is

typedef struct solver {
    const zx_problem *p;
    zx_problem few;
    zx_line line;
    zx_arena mem, scratch;
    uint32_t tried;
} solver;

// Seconds of the whole step with these knobs; 1e300: nothing fits.
static double try(solver *s, const zx_turns *t)
{
    double ended[FEW + 1];
    zx_solution x;
    const uint32_t n = s->few.micro_batches;
    const zx_mark mark = zx_arena_mark(&s->scratch);
    double seconds = 1e300;
    s->tried++;
    if (zx_solve_list(&s->line, t, &s->scratch, &x, ended)) {
        seconds = ended[n];
        if (s->p->micro_batches > n)
            seconds += (s->p->micro_batches - n) * (ended[n - 2] - ended[n - 3]);
    }
    zx_arena_rewind(&s->scratch, mark);
    return seconds;
}

typedef struct knob {
    size_t at; // in zx_turns
    uint32_t n;
    bool times; // values multiply what it is now, again and again while that helps
    double value[5];
} knob;

// A launch for which the wire is busy four times as long as a launch costs.
static double good_launch(const zx_problem *p, bool reduce)
{
    const zx_launch_cost none = zx_problem_launch(p, reduce, 0);
    const double large = 1 << 30;
    const zx_launch_cost x = zx_problem_launch(p, reduce, (uint64_t)large);
    const double takes = fmax(x.wire, x.core) - none.wire;
    return takes > 0 ? 4 * none.wire * large / takes : large;
}

static double *value_of(zx_turns *t, const knob *k)
{
    return (double *)(void *)((char *)t + k->at);
}

static double improve(solver *s, zx_turns *best, double seconds, const knob *k)
{
    for (uint32_t i = 0; i < k->n; i++) {
        zx_turns t = *best;
        *value_of(&t, k) = k->times ? *value_of(best, k) * k->value[i] : k->value[i];
        if (*value_of(&t, k) == *value_of(best, k)) continue;
        const double x = try(s, &t);
        if (x * SAME >= seconds) continue;
        seconds = x;
        *best = t;
        if (k->times) i--;
    }
    return seconds;
}

static const knob knobs[] = {
    {offsetof(zx_turns, gather), 4, true, {4, 2, 0.5, 0.25}},
    {offsetof(zx_turns, reduce), 4, true, {4, 2, 0.5, 0.25}},
    {offsetof(zx_turns, spare), 4, false, {0, 0.5, 1, 2}},
    {offsetof(zx_turns, eager), 5, false, {0.5, 1, 2, 4, 1e6}},
    {offsetof(zx_turns, patience), 4, false, {0, 1, 3, 1e9}},
    {offsetof(zx_turns, give), 2, false, {0, 1}},
    {offsetof(zx_turns, ramp), 4, false, {1, 0.25, 0.0625, 1e-9}},
    {offsetof(zx_turns, tail), 4, false, {1, 0.25, 0.0625, 0}},
};

static double turn(solver *s, zx_turns *best)
{
    *best = (zx_turns){.gather = good_launch(s->p, false),
                       .reduce = good_launch(s->p, true),
                       .ramp = 1,
                       .tail = 1,
                       .eager = 2,
                       .patience = 1,
                       .spare = 1};
    double seconds = try(s, best);
    for (int round = 0; round < ROUNDS; round++) {
        const double was = seconds;
        for (uint32_t i = 0; i < ZX_COUNT(knobs); i++)
            seconds = improve(s, best, seconds, &knobs[i]);
        if (seconds * SAME >= was) break;
    }
    return seconds;
}

bool zx_solve_lists(const zx_problem *p, zx_arena *mem, zx_solution *out, uint64_t *least)
{
    solver s = {.p = p, .few = *p};
    if (s.few.micro_batches > FEW) s.few.micro_batches = FEW;
    zx_line_make(&s.line, &s.few, &s.mem);
    *least = s.line.least;
    bool found = s.line.least <= p->limit;
    if (found) {
        zx_turns best;
        turn(&s, &best);
        s.line.p = p;
        found = zx_solve_list(&s.line, &best, mem, out, NULL);
    }
    zx_arena_free(&s.mem);
    zx_arena_free(&s.scratch);
    return found;
}

bool zx_solve(const zx_problem *p, zx_arena *mem, zx_solution *out, uint64_t *least)
{
    const bool found = zx_solve_lists(p, mem, out, least);
    if (!found && *least > p->limit) return false;
    return zx_solve_exact(p, mem, found, out);
}

// solve.c - the planner: turns the knobs of the list scheduler and keeps what is fastest.
//
// Micro-batches in the middle are alike, so knobs are turned on a step of few micro-batches, and
// what they say of a longer one is its last one's period. What is best is then made in full.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define ROUNDS 2
#define LONG 12000      // steps: knobs are turned once
#define SAME (1 + 1e-6) // times this near are the same: the knob stays where it is
#define NEAR 1.02       // times the fastest: beyond that a stand isn't looked at any more
#define KNOWN 512       // tries that are remembered

typedef struct tried { // where knobs stood
    zx_turns at;
    double seconds; // of the whole step; lost: it takes more
    bool lost;
} tried;

typedef struct solver {
    const zx_problem *p;
    zx_problem few;
    zx_line line;
    zx_arena mem, scratch;
    zx_stands *stands;
    tried *known;
    uint32_t n_known;
} solver;

// Keeps the fastest of each kind of launches.
static void remember(zx_stands *s, const zx_turns *t, double seconds)
{
    uint32_t i = 0;
    while (i < s->n && (s->at[i].gather != t->gather || s->at[i].reduce != t->reduce)) i++;
    if (i < s->n && s->seconds[i] <= seconds) return;
    if (i == s->n && s->n < ZX_STANDS) s->n++;
    if (i == ZX_STANDS && s->seconds[--i] <= seconds) return;
    for (; i > 0 && s->seconds[i - 1] > seconds; i--) {
        s->at[i] = s->at[i - 1];
        s->seconds[i] = s->seconds[i - 1];
    }
    s->at[i] = *t;
    s->seconds[i] = seconds;
}

// Runs until it takes more than `most` for sure.
static tried run(solver *s, const zx_turns *t, double most)
{
    zx_race r = {.most = most};
    zx_solution x;
    const uint32_t n = s->few.micro_batches;
    const zx_mark mark = zx_arena_mark(&s->scratch);
    tried it = {*t, 1e300, false};
    if (s->p->micro_batches > n) r.more = s->p->micro_batches - n;
    if (zx_solve_list(&s->line, t, &s->scratch, &x, &r)) {
        it.seconds = r.ended[n];
        if (r.more > 0) it.seconds += r.more * (r.ended[n - 2] - r.ended[n - 3]);
    } else if (r.lost)
        it = (tried){*t, most, true};
    zx_arena_rewind(&s->scratch, mark);
    return it;
}

// Seconds of the whole step with these knobs, if that is less than `most` (nearly); 1e300: it
// isn't, or nothing fits.
static double try(solver *s, const zx_turns *t, double most)
{
    uint32_t i = 0;
    if (!s->stands->one && s->stands->n > 0) most = fmax(most, NEAR * s->stands->seconds[0]);
    while (i < s->n_known && memcmp(&s->known[i].at, t, sizeof *t) != 0) i++;
    const bool known = i < s->n_known && (!s->known[i].lost || s->known[i].seconds >= most);
    const tried it = known ? s->known[i] : run(s, t, most);
    if (i < KNOWN) s->known[i] = it;
    if (i == s->n_known && i < KNOWN) s->n_known++;
    if (it.lost) return 1e300;
    remember(s->stands, t, it.seconds);
    return it.seconds;
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
        const double x = try(s, &t, seconds);
        if (x * SAME >= seconds) continue;
        seconds = x;
        *best = t;
        if (k->times) i--;
    }
    return seconds;
}

static const knob knobs[] = {
    {offsetof(zx_turns, gather), 2, true, {2, 0.5}},
    {offsetof(zx_turns, reduce), 2, true, {2, 0.5}},
    {offsetof(zx_turns, share), 5, false, {1, 0.7, 0.5, 0.35, 0.25}},
    {offsetof(zx_turns, give), 2, false, {0, 1}},
    {offsetof(zx_turns, spare), 4, false, {0, 0.5, 1, 2}},
    {offsetof(zx_turns, patience), 4, false, {0, 1, 3, 1e9}},
    {offsetof(zx_turns, eager), 4, false, {0.5, 2, 4, 1e6}},
    {offsetof(zx_turns, ramp), 4, false, {1, 0.25, 0.0625, 1e-9}},
    {offsetof(zx_turns, tail), 4, false, {1, 0.25, 0.0625, 0}},
    {offsetof(zx_turns, lot), 4, false, {1, 0.5, 0.35, 0.25}},
};

// Parts of the room are worth a try where there are many launches.
#define MANY 1000 // steps of a micro-batch
static bool is_tried(const solver *s, const knob *k)
{
    return s->p->n_steps >= MANY ||
           (k->at != offsetof(zx_turns, share) && k->at != offsetof(zx_turns, lot));
}

// Launches may be worth far more than they cost, where latency counts and room is large, or less:
// the search begins at the best of these.
static const double starts[][2] = {{1, 1}, {4, 2}, {16, 4}, {0.25, 0.25}};

// One knob after the other, each left where it is fastest.
static void descend(solver *s, zx_turns best, double seconds)
{
    for (int round = 0; round < ROUNDS; round++) {
        const double was = seconds;
        for (uint32_t i = 0; i < ZX_COUNT(knobs); i++)
            if (is_tried(s, &knobs[i])) seconds = improve(s, &best, seconds, &knobs[i]);
        if (seconds * SAME >= was) break;
    }
}

static void turn(solver *s)
{
    const double gather = good_launch(s->p, false), reduce = good_launch(s->p, true);
    double seconds = 1e300;
    zx_turns best = {0};
    for (uint32_t i = 0; i < 2 * ZX_COUNT(starts); i++) {
        const zx_turns t = {.gather = starts[i / 2][0] * gather,
                            .reduce = starts[i / 2][1] * reduce,
                            .share = 1,
                            .lot = 1,
                            .ramp = 0.25,
                            .tail = 0.25,
                            .eager = i % 2 == 0 ? 2 : 1e6,
                            .patience = 1,
                            .spare = i % 2 == 0 ? 1 : 2,
                            .give = i % 2};
        const double x = try(s, &t, seconds);
        if (i > 0 && x * SAME >= seconds) continue;
        seconds = x;
        best = t;
    }
    descend(s, best, seconds);
    if (zx_problem_end(&s->few) > LONG) return;
    const zx_turns plain = {gather, reduce, 1, 1, 1, 1, 2, 1, 1, 0}; // another valley
    descend(s, plain, try(s, &plain, 1e300));
}

bool zx_solve_lists(const zx_problem *p, zx_stands *stands, uint32_t use, zx_arena *mem,
                    zx_solution *out, uint64_t *least)
{
    solver s = {.p = p, .few = *p, .stands = stands};
    if (s.few.micro_batches > ZX_FEW) s.few.micro_batches = ZX_FEW;
    zx_line_make(&s.line, &s.few, &s.mem);
    *least = s.line.least;
    bool found = s.line.least <= p->limit;
    if (found) {
        s.known = ZX_NEW(&s.mem, tried, KNOWN);
        if (stands->n == 0) turn(&s);
        s.line.p = p;
        found = zx_solve_list(&s.line, &stands->at[use], mem, out, NULL);
    }
    zx_arena_free(&s.mem);
    zx_arena_free(&s.scratch);
    if (found || *least > p->limit || p->no_overlap) return found;
    zx_problem alone = *p; // with one thing at a time the least does
    zx_stands none = {.one = true};
    alone.no_overlap = true;
    return zx_solve_lists(&alone, &none, 0, mem, out, least);
}

bool zx_solve_stood(const zx_problem *p, zx_stands *stands, uint32_t use, zx_arena *mem,
                    zx_solution *out, uint64_t *least)
{
    const bool fresh = stands->n == 0;
    bool found = zx_solve_lists(p, stands, use, mem, out, least);
    if (!found && *least > p->limit) return false;
    if (use == 0) found = zx_solve_whole(p, stands, fresh, mem, found, out);
    return zx_solve_exact(p, mem, found, out);
}

bool zx_solve(const zx_problem *p, zx_arena *mem, zx_solution *out, uint64_t *least)
{
    zx_stands stands = {.one = true};
    return zx_solve_stood(p, &stands, 0, mem, out, least);
}

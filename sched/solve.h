// solve.h - what the parts of the planner share; its front door is zx_solve (problem.h).
//
// solve_list.c makes a solution by walking through time: whenever the wire is free it decides what
// goes next, by rules that knobs turn. solve.c turns the knobs; price.c times what comes out;
// solve_exact.c searches on from there where a problem is small.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_SOLVE_H
#define ZX_SCHED_SOLVE_H

#include "sched/load.h"
#include "sched/problem.h"

// Seconds of compute before a position of the line; at: n_steps + 1, of the steps before one.
static inline double zx_line_at(const double *at, int64_t n_steps, int64_t position)
{
    return (double)(position / n_steps) * at[n_steps] + at[position % n_steps];
}
double *zx_line_sums(const zx_problem *p, zx_arena *mem); // such an `at`

// ---- time: compute and one wire -----------------------------------------------------------------
typedef struct zx_clock {
    double now, wire; // wire: seconds that it was busy
    double cores, threads, slower;
    bool busy;
    double wire_end, core_left; // of what is on the wire
} zx_clock;
void zx_clock_start(zx_clock *c, const zx_problem *p);
// Goes on to the next of: `work` seconds of compute are done (*work is what is left; 0: compute
// waits), something about the wire changes, `until`. True: the launch on the wire is over.
bool zx_clock_run(zx_clock *c, double *work, double until);
void zx_clock_send(zx_clock *c, zx_launch_cost x); // the wire is free

// By line step: the bytes alive with a solution, into mem.
int64_t *zx_problem_alive(const zx_problem *p, const zx_solution *s, zx_arena *mem);
// zx_problem_price without the bytes alive.
void zx_problem_time(const zx_problem *p, const zx_solution *s, zx_arena *mem, zx_price *out);

// ---- the list scheduler -------------------------------------------------------------------------
typedef struct zx_turns {
    double gather, reduce; // bytes that a launch is filled up to
    double share, lot;     // of the room beside what is alive anyway, that a gather is filled up
                           // to; a reduce
    double ramp;           // the first launch of a step is this part of that, each next one twice
    double tail;           // the same part for reduces after the last gather
    double eager;          // a gather that needs others' room is due this many times its length
                           // before its use
    double patience;       // a reduce goes before a gather that is due later than this many times
                           // the reduce's length
    double spare;          // room is kept for gradients: this many times a reduce's length
    double give; // not 0: what stays without need leaves before compute waits for a reduce
} zx_turns;

// What doesn't change between runs.
typedef struct zx_line {
    const zx_problem *p;
    zx_arena *mem;
    double *at;     // n_steps + 1: seconds of the steps before one
    uint32_t *next; // by read: the next one of the same unit around the circle
    uint64_t *need; // by step: bytes of the units that it reads
    uint64_t least; // bytes that the most crowded step takes alone
} zx_line;
void zx_line_make(zx_line *l, const zx_problem *p, zx_arena *mem);

// A run that stands for one of more micro-batches, and ends early where that can't be fast enough.
#define ZX_FEW 3 // micro-batches of such runs: the first, one in the middle, the last
typedef struct zx_race {
    double most; // seconds of the whole step: beyond that it is lost
    double more; // micro-batches that are left out: the second one stands for them
    bool lost;
    double ended[ZX_FEW + 1]; // by the scheduler's clock: each micro-batch; last, everything
} zx_race;
// False: it got stuck; nothing fits; the race (NULL: there is none) is lost.
bool zx_solve_list(const zx_line *l, const zx_turns *turns, zx_arena *mem, zx_solution *out,
                   zx_race *race);

// Where knobs stood: the fastest, and others nearly as good with other launches, fastest first.
#define ZX_STANDS 4
typedef struct zx_stands {
    uint32_t n; // 0: not turned yet
    bool one;   // only the fastest is asked for
    zx_turns at[ZX_STANDS];
    double seconds[ZX_STANDS];
    bool halved; // faster was a problem of solve_whole.c, with so many parts chosen
    uint32_t part;
    zx_turns half;
} zx_stands;
// What the knobs give, as zx_solve: as they stood in row `use` when something alike was solved;
// where stands->n is 0 they are turned first.
bool zx_solve_lists(const zx_problem *p, zx_stands *stands, uint32_t use, zx_arena *mem,
                    zx_solution *out, uint64_t *least);
// zx_solve in the same way.
bool zx_solve_stood(const zx_problem *p, zx_stands *stands, uint32_t use, zx_arena *mem,
                    zx_solution *out, uint64_t *least);
// Where the line is short: something faster than `s` (if it was found), in its place, in which
// what stays does for the whole step. `fresh`: all of these are tried; else the one that was
// fastest. True: `s` is a solution.
bool zx_solve_whole(const zx_problem *p, zx_stands *stands, bool fresh, zx_arena *mem, bool found,
                    zx_solution *s);
// Where the problem is small: something faster than `s` (if it was found), in its place. True: `s`
// is a solution.
bool zx_solve_exact(const zx_problem *p, zx_arena *mem, bool found, zx_solution *s);

// Other launches of what `s` gathers and reduces, in its place, if that is faster: true. `pinched`:
// smaller ones are tried where there is little room, which takes longer.
bool zx_solve_path(const zx_problem *p, bool pinched, zx_arena *mem, zx_solution *s);

// The same on a line of many micro-batches, found on one of few, with these knobs.
bool zx_solve_steady(const zx_problem *p, const zx_turns *turns, zx_arena *mem, zx_solution *s);

void zx_solution_copy(const zx_solution *s, zx_arena *mem, zx_solution *out);

// Gathers may begin earlier and gradients keep their bytes longer, within the bytes alive at most.
void zx_solution_ease(const zx_problem *p, zx_solution *s);

// Acts, holds and launches of a solution; `s` was started.
struct zx_schedule;
void zx_solution_write(const zx_problem *p, const zx_solution *x, struct zx_schedule *s);

#endif

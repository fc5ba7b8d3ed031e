// bound_parts.h - what the parts of the bound share: a problem's line as sums and capacities, cut
// into slots.
//
// Windows and slots go from the moment at which one step starts to that at which another does: all
// that it reads is whole then. A gather whose launch began before step p starts was issued at p or
// earlier: what is read of it after p is held at step p. A reduce that isn't over when step p
// starts is waited for later: it holds its gradients' bytes at step p (where they aren't in
// `base`); of gradients that become whole after step p none has begun.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_SCHED_BOUND_PARTS_H
#define ZX_SCHED_BOUND_PARTS_H

#include "sched/bound.h"

// Every launch takes at least latency + per_byte * bytes, by each of the lines.
typedef struct zx_bound_rate {
    uint32_t n;
    struct {
        double latency, per_byte;
    } line[2 * ZX_CURVE_POINTS + 2];
    double core; // of one core beside the wire, seconds a byte
} zx_bound_rate;

// Launches of at most `most` bytes, `bytes` in all: seconds of the wire; at least how many. `most`
// 0: their latency doesn't count.
double zx_bound_wire(const zx_bound_rate *r, double bytes, double most);
double zx_bound_launches(double bytes, double most);

typedef struct zx_bound_facts {
    const zx_problem *p;
    zx_arena *mem;
    uint32_t n, micros; // steps of a circle; circles
    double lead;        // seconds of compute before the first step, when gathers may go already
    double *at;         // n + 1: seconds of the steps before
    int64_t *cap;       // by step: bytes for whole units and gradients that wait
    int64_t *hold;      // by step: of them, beside the units that it reads
    int64_t *size;      // by unit
    uint32_t *next;     // by read: reads up to the next one of its unit, around the circle
    // Cuts are steps; slot k goes from the start of step cut[k] to that of step cut[k + 1].
    uint32_t n_cuts;
    uint32_t *cut; // n_cuts + 1; the first is 0, the last n: that of the next circle
    double *gather_most, *reduce_most; // by slot: bytes of a launch that is under way there
    double *share;                     // by gradient: bytes that take room where it waits
    double *spared_at; // by step: gradients that are whole after it, in `base` at it
    double *whole_at;  // the same of those that are whole before it
    double *ready;     // n_cuts + 1: bytes of gradients that are whole at a cut
    double *wired;     // the same on the wire: of some a part takes no room while it waits
    double *spared;    // n_cuts: of them, in `base` at the cut all the same
    double *pend;      // n_cuts: bytes that may be left to reduce, the spared ones too
    // When the last step is over: bytes that may be left of gradients that were whole before; those
    // that are whole only now, and on the wire; of a reduce that is under way from then on.
    double end_pend, end_ready, end_wired, end_most;
    zx_bound_rate gather, reduce;
} zx_bound_facts;

typedef struct zx_bound_view { // what differs between one problem's bound and that of all policies
    double room;               // bytes of whole units that a byte of memory holds
    double lead;
    uint32_t max_cuts; // of a circle; 0: as many as take little time
} zx_bound_view;
void zx_bound_facts_make(const zx_problem *p, const zx_bound_view *v, zx_arena *mem,
                         zx_bound_facts *out);

// Line index x = circle * n_cuts + cut.
static inline double zx_bound_at(const zx_bound_facts *f, uint32_t x)
{
    return f->at[f->n] * (x / f->n_cuts) + f->at[f->cut[x % f->n_cuts]];
}
static inline double zx_bound_ready(const zx_bound_facts *f, uint32_t x)
{
    return f->ready[f->n_cuts] * (x / f->n_cuts) + f->ready[x % f->n_cuts];
}
static inline double zx_bound_wired(const zx_bound_facts *f, uint32_t x)
{
    return f->wired[f->n_cuts] * (x / f->n_cuts) + f->wired[x % f->n_cuts];
}
// What compute and wire take together, from the bytes that have to be moved meanwhile.
double zx_bound_crowd(const zx_bound_facts *f); // compute alone, where it has too few cores
double zx_bound_compute(const zx_bound_facts *f, double compute, double wire, double gathered,
                        double reduced);
// The greater of that and the wire's.
double zx_bound_seconds(const zx_bound_facts *f, double compute, double wire, double gathered,
                        double reduced);

// The linear program's seconds; `most`: of the chain. E_UNSUPPORTED without a solver.
zx_status zx_bound_lp(const zx_problem *p, double most, double *seconds, zx_err *err);
// Launches as wholes (bound_launches.c). Places in the order in which launches are counted:
// `seconds` of compute on the other side of a place, and the bytes that launches may carry up to
// it.
typedef struct zx_bound_stairs {
    uint32_t n;
    const double *seconds, *bytes;
    double total, most; // bytes: of all places; of a launch
    double beside;      // compute's rate while the wire is busy
} zx_bound_stairs;
// What a window with so many seconds of compute takes, if its launches are these; `slow`: seconds
// of compute lost to each of the wire's.
double zx_bound_stairs_seconds(const zx_bound_stairs *s, const zx_bound_rate *r, double compute,
                               double slow);

// Compute beside launches. By size, then by slot: seconds that compute has at most beside a launch
// of at least that size which begins there.
#define ZX_BOUND_SIZES 40
typedef struct zx_bound_beside {
    uint32_t n;
    double size[ZX_BOUND_SIZES];
    double **gather, **reduce;
} zx_bound_beside;
void zx_bound_beside_make(const zx_bound_facts *f, zx_bound_beside *out);

// What a byte of a launch costs at least (bound_layers.c): by share of compute (k of
// ZX_BOUND_SHARES parts), then by the slot in which it begins; before the first step; after the
// last.
#define ZX_BOUND_SHARES 10
typedef struct zx_bound_costs {
    double *gather[ZX_BOUND_SHARES + 1], *reduce[ZX_BOUND_SHARES + 1];
    double first[ZX_BOUND_SHARES + 1], last[ZX_BOUND_SHARES + 1];
} zx_bound_costs;
void zx_bound_costs_make(const zx_bound_facts *f, const zx_bound_beside *b, zx_bound_costs *out);

// The least cost of the bytes of neighbouring slots, which are added on one side.
typedef struct zx_bound_run { // from `bound` to the pile's end no slot costs less
    uint32_t bound;
    double cost;
} zx_bound_run;
typedef struct zx_bound_pile {
    const void *of;
    double (*bytes)(const void *of, uint32_t from, uint32_t to); // at least, between boundaries
    zx_bound_run *runs;                                          // room for all slots
    uint32_t n, at; // at: the boundary up to which slots were added
    double done;
} zx_bound_pile;
void zx_bound_pile_start(zx_bound_pile *p, uint32_t at);
void zx_bound_pile_add(zx_bound_pile *p, double cost, uint32_t to);
double zx_bound_pile_sum(const zx_bound_pile *p);

// What windows take where launches are wholes: the greatest bounds that were found, 0 where none
// was tried. Line indexes; inside[i]: NULL, or by cuts from cut i of any circle on; end: by cuts
// before the end.
typedef struct zx_bound_wholes {
    double *cold, *end, **inside;
    double line; // from the origin to the end
} zx_bound_wholes;
void zx_bound_wholes_make(const zx_bound_facts *f, zx_bound_wholes *out);

void zx_bound_chain(const zx_bound_facts *f, zx_bound *out);
// Seconds of the whole line, from launch to launch (bound_walk.c); fine: in smaller quanta, which
// takes seconds.
double zx_bound_walk(const zx_bound_facts *f, bool fine);

#endif

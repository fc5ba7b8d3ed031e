// bound_layers.c - windows in which launches can't be as large everywhere.
//
// Let a byte of a launch that begins in slot k cost w(k) at least (of the wire's seconds, less what
// compute does beside it: bound_launches.c). Whatever the launches of a window are, their costs
// are at least, for every height h added up, h's width times the bytes of launches that begin where
// w >= h. Of these, in every run of slots between two that are lower, no fewer are gathered (or
// reduced) than in the window that the run is. Runs are kept as a stack while slots are added on
// one side.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound_parts.h"

#include <math.h>

// The least that a byte costs of the wire's seconds, less so much of a share of what compute does
// beside it. A launch that begins while compute waits at a slot's end may be beside the next one.
static double cheapest(const zx_bound_beside *b, const zx_bound_rate *r, double *const *beside,
                       uint32_t slot, uint32_t next, double most, double share, double slower)
{
    double least = INFINITY;
    for (uint32_t m = 0; m < b->n && (m == 0 || b->size[m] < most); m++) {
        const double to = m + 1 < b->n ? fmin(b->size[m + 1], most) : most;
        const double rate = zx_bound_wire(r, to, INFINITY) / to;
        double cost = rate * (1 - share / slower);
        if (m > 0) {
            const double seconds = beside == NULL ? 0 : fmax(beside[m][slot], beside[m][next]);
            cost = fmax(cost, rate - share * seconds / b->size[m]);
        }
        least = fmin(least, cost);
    }
    return isfinite(least) ? fmax(least, 0) : 0;
}

void zx_bound_costs_make(const zx_bound_facts *f, const zx_bound_beside *b, zx_bound_costs *out)
{
    const zx_machine *m = &f->p->machine;
    const double slower = m->cores > 0 ? 1 : 1 + m->interference;
    const uint32_t n = f->n_cuts;
    for (uint32_t s = 0; s <= ZX_BOUND_SHARES; s++) {
        const double share = (double)s / ZX_BOUND_SHARES;
        out->gather[s] = ZX_NEW(f->mem, double, n);
        out->reduce[s] = ZX_NEW(f->mem, double, n);
        // Who waits for the first step's units wakes up when the next launch is under way already.
        out->first[s] =
            cheapest(b, &f->gather, b->gather, 0, 0, fmax((double)f->cap[0], 1), share, slower);
        out->last[s] = cheapest(b, &f->reduce, NULL, 0, 0, fmax(f->end_most, 1), share, slower);
        for (uint32_t k = 0; k < n; k++) {
            const uint32_t next = (k + 1) % n;
            out->gather[s][k] = cheapest(b, &f->gather, b->gather, k, next,
                                         fmax(f->gather_most[k], 1), share, slower);
            out->reduce[s][k] = cheapest(b, &f->reduce, b->reduce, k, next,
                                         fmax(f->reduce_most[k], 1), share, slower);
        }
    }
}

static double bytes_of(const zx_bound_pile *p, uint32_t bound, uint32_t at)
{
    return fmax(0, bound < at ? p->bytes(p->of, bound, at) : p->bytes(p->of, at, bound));
}

void zx_bound_pile_start(zx_bound_pile *p, uint32_t at)
{
    p->n = 0;
    p->at = at;
    p->done = 0;
}

void zx_bound_pile_add(zx_bound_pile *p, double cost, uint32_t to)
{
    uint32_t bound = p->at;
    while (p->n > 0 && p->runs[p->n - 1].cost >= cost) {
        const zx_bound_run *top = &p->runs[--p->n];
        const double below = fmax(cost, p->n > 0 ? p->runs[p->n - 1].cost : 0);
        if (top->cost > below) p->done += (top->cost - below) * bytes_of(p, top->bound, p->at);
        bound = top->bound;
    }
    p->runs[p->n++] = (zx_bound_run){bound, cost};
    p->at = to;
}

double zx_bound_pile_sum(const zx_bound_pile *p)
{
    double sum = p->done;
    for (uint32_t i = p->n; i-- > 0;) {
        const double below = i > 0 ? p->runs[i - 1].cost : 0;
        sum += (p->runs[i].cost - below) * bytes_of(p, p->runs[i].bound, p->at);
    }
    return sum;
}

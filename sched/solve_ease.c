// solve_ease.c - lets a solution wait less exactly: on a real machine nothing takes what was
// predicted, and what was given its bytes at the last moment then makes others wait.
//
// A gather may begin earlier, and a gradient may keep its bytes longer, by what its launch takes,
// as far as there is room below the most bytes that are alive anyway. The order of launches stays,
// so nothing that is predicted takes longer.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

typedef struct easer {
    const zx_problem *p;
    zx_solution *s;
    zx_load load;
    int64_t most, end;
    double *at;    // seconds of the steps before one, of a micro-batch
    int64_t *gone; // by unit: since when its bytes are free
} easer;

static double line_at(const easer *k, int64_t position)
{
    return zx_line_at(k->at, k->p->n_steps, position);
}

static bool has_room(const easer *k, int64_t from, int64_t to, int64_t bytes)
{
    return to <= from || zx_load_most(&k->load, from, to - 1) + bytes <= k->most;
}

// From the first position that is wanted on, the first one from which there is room until `gate`.
static void ease_gather(easer *k, zx_move *x, double takes)
{
    int64_t lo = 0, hi = x->gate, bytes = 0;
    for (uint32_t i = x->first; i < x->first + x->n; i++) {
        const zx_part *a = &k->s->parts[i];
        bytes += (int64_t)k->p->unit_bytes[a->what];
        if (k->gone[a->what] > lo) lo = k->gone[a->what];
        k->gone[a->what] = a->gone;
    }
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2;
        if (line_at(k, mid) >= line_at(k, x->gate) - takes && has_room(k, mid, x->gate, bytes))
            hi = mid;
        else
            lo = mid + 1;
    }
    if (hi >= x->gate) return;
    zx_load_add(&k->load, hi, x->gate - 1, bytes);
    x->gate = hi;
}

static void ease_reduce(easer *k, zx_move *x, double takes)
{
    int64_t lo = x->over, hi = k->end, bytes = 0;
    for (uint32_t i = x->first; i < x->first + x->n; i++) {
        const zx_part *a = &k->s->parts[i];
        const zx_grad *g = &k->p->grads[a->what];
        const int64_t latest = (int64_t)k->p->n_steps * a->micro + g->latest;
        if (latest < hi) hi = latest;
        if (g->storage != ZX_NONE) bytes += (int64_t)g->bytes; // perhaps some that are there anyway
    }
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo + 1) / 2;
        if (line_at(k, mid) <= line_at(k, x->over) + takes && has_room(k, x->over, mid, bytes))
            lo = mid;
        else
            hi = mid - 1;
    }
    if (lo <= x->over) return;
    zx_load_add(&k->load, x->over, lo - 1, bytes);
    x->over = lo;
}

static void find_load(easer *k, zx_arena *mem)
{
    const int64_t *line = zx_problem_alive(k->p, k->s, mem);
    for (int64_t q = 0; q < k->end; q++)
        if (line[q] > k->most) k->most = line[q];
    zx_load_make(&k->load, (uint32_t)k->end, mem);
    zx_load_fill(&k->load, line);
}

void zx_solution_ease(const zx_problem *p, zx_solution *s)
{
    zx_arena mem = {0};
    easer k = {.p = p, .s = s, .end = zx_problem_end(p)};
    if (p->max_live > 0 || p->no_overlap) return;
    find_load(&k, &mem);
    k.at = zx_line_sums(p, &mem);
    k.gone = ZX_NEW(&mem, int64_t, p->n_units + 1);
    for (uint32_t i = 0; i < s->n_moves; i++) {
        zx_move *x = &s->moves[i];
        uint64_t bytes = 0;
        for (uint32_t a = x->first; a < x->first + x->n; a++)
            bytes += p->unit_wire[x->reduce ? p->grads[s->parts[a].what].unit : s->parts[a].what];
        const zx_launch_cost c = zx_problem_launch(p, x->reduce, bytes);
        const double takes = c.wire > c.core ? c.wire : c.core;
        if (x->reduce)
            ease_reduce(&k, x, takes);
        else
            ease_gather(&k, x, takes);
    }
    zx_arena_free(&mem);
}

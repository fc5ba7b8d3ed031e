// solve_steady.c - other launches of a long line, found on one of fewer micro-batches.
//
// Micro-batches in the middle are alike. So launches are found anew (solve_path.c) where there are
// a few of them only, and those of one in the middle are taken for all others: a launch begins with
// the first read at the same step, and goes over the wire where it does there. What is gathered and
// how long it stays is as it was on the long line.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve_path.h"

#define FEW 4 // micro-batches: the first, two in the middle, the last

typedef struct cut { // a launch of the long line
    int64_t at;      // gather: it is of what is read from here on, up to the next one
    int64_t sent;    // the position at which it goes over the wire
    zx_sending x;
} cut;

typedef struct cuts {
    uint32_t n;
    cut *all;
} cuts;

typedef struct steady {
    const zx_problem *p; // of the long line
    zx_problem few;
    zx_solution x; // of that
    int64_t *sent; // by move of x: the furthest gate so far
    uint32_t middle;
    zx_arena *mem;
} steady;

// Which of the few micro-batches stands for one of the line.
static uint32_t like(const steady *k, uint32_t micro)
{
    const uint32_t left = k->p->micro_batches - 1 - micro;
    if (micro == 0) return 0;
    return left < FEW - 2 ? FEW - 1 - left : k->middle;
}

static void find_sent(steady *k)
{
    int64_t most = 0;
    k->sent = ZX_NEW(k->mem, int64_t, k->x.n_moves + 1);
    for (uint32_t i = 0; i < k->x.n_moves; i++) {
        if (k->x.moves[i].gate > most) most = k->x.moves[i].gate;
        k->sent[i] = most;
    }
}

// Launches of one kind, in order, each as far on the line as it is on the line of few.
static void find_cuts(const steady *k, bool reduce, cuts *out)
{
    const int64_t n = k->p->n_steps;
    int64_t at = 0, sent = 0;
    out->all = ZX_NEW(k->mem, cut, (size_t)k->x.n_moves * k->p->micro_batches + 1);
    for (uint32_t m = 0; m < k->p->micro_batches; m++)
        for (uint32_t i = 0; i < k->x.n_moves; i++) {
            const zx_move *x = &k->x.moves[i];
            const uint32_t of = reduce ? k->x.parts[x->first].micro : (uint32_t)(x->over / n);
            const int64_t far = n * ((int64_t)m - like(k, m));
            if (x->reduce != reduce || of != like(k, m)) continue;
            if (x->over + far > at) at = x->over + far;
            if (k->sent[i] + far > sent) sent = k->sent[i] + far;
            out->all[out->n++] = (cut){at, sent, {reduce, x->n}};
        }
}

// Gathers of the line between one cut and the next.
static void count_gathers(const zx_items *list, cuts *c)
{
    uint32_t from = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t to = i + 1 < c->n ? from : list->n;
        while (to < list->n && list->all[to].at < c->all[i + 1].at) to++;
        c->all[i].x.n = to - from;
        from = to;
    }
}

static bool send(const steady *k, const zx_solution *s, zx_solution *out)
{
    zx_wanted w;
    cuts gather = {0}, reduce = {0};
    uint32_t n = 0, i = 0, j = 0;
    zx_wanted_make(k->p, s, k->mem, &w);
    find_cuts(k, false, &gather);
    find_cuts(k, true, &reduce);
    count_gathers(&w.gather, &gather);
    zx_sending *list = ZX_NEW(k->mem, zx_sending, (size_t)gather.n + reduce.n + 1);
    while (i < gather.n || j < reduce.n) {
        const bool first =
            j == reduce.n || (i < gather.n && gather.all[i].sent < reduce.all[j].sent);
        const zx_sending x = first ? gather.all[i++].x : reduce.all[j++].x;
        if (x.n > 0) list[n++] = x;
    }
    return gather.n > 0 && zx_wanted_send(&w, list, n, k->mem, out);
}

static double seconds_of(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    zx_price x;
    zx_problem_time(p, s, mem, &x);
    return x.seconds;
}

bool zx_solve_steady(const zx_problem *p, const zx_turns *turns, zx_arena *mem, zx_solution *s)
{
    zx_arena own = {0};
    zx_line line;
    steady k = {.p = p, .few = *p, .mem = &own};
    bool better = false;
    if (p->micro_batches <= FEW) return false;
    k.few.micro_batches = FEW;
    zx_line_make(&line, &k.few, &own);
    if (zx_solve_list(&line, turns, &own, &k.x, NULL) && zx_solve_path(&k.few, false, &own, &k.x)) {
        double seconds = seconds_of(p, s, &own);
        find_sent(&k);
        for (k.middle = 1; k.middle < FEW - 1; k.middle++) {
            zx_solution x;
            if (!send(&k, s, &x)) continue;
            const double its = seconds_of(p, &x, &own);
            if (its >= seconds * (1 - 1e-9) || zx_problem_wrong(p, &x, &own) != NULL) continue;
            zx_solution_copy(&x, mem, s);
            seconds = its;
            better = true;
        }
    }
    zx_arena_free(&own);
    return better;
}

// price.c - times a solution: compute and the wire, from one position where they meet to the next.
//
// Between two such positions compute is one stretch of seconds. The same rules as in sim.c: where
// cores are shared, compute and what moves a launch's bytes take from each other; else compute is
// slower while the wire is busy. Who finds that it has to wait goes on `handoff` after the event.
// SPDX-License-Identifier: Apache-2.0
#include "sched/solve.h"

#include <stdlib.h>
#include <string.h>

double *zx_line_sums(const zx_problem *p, zx_arena *mem)
{
    double *at = ZX_NEW(mem, double, p->n_steps + 1);
    for (uint32_t q = 0; q < p->n_steps; q++) at[q + 1] = at[q] + p->seconds[q];
    return at;
}

void zx_clock_start(zx_clock *c, const zx_problem *p)
{
    const zx_machine *m = &p->machine;
    *c = (zx_clock){.cores = m->cores,
                    .threads = m->threads,
                    .slower = m->cores > 0 ? 1 : 1 / (1 + m->interference)};
}

// Compute's rate, and that of the thread beside the wire, for as long as nothing changes.
static void rates(const zx_clock *c, bool computes, double *compute, double *core)
{
    *compute = *core = 1;
    if (c->cores <= 0) {
        if (c->busy) *compute = c->slower;
        return;
    }
    const double threads = (computes ? c->threads : 0) + (c->core_left > 0 ? 1 : 0);
    if (threads > c->cores) *compute = *core = c->cores / threads;
}

bool zx_clock_run(zx_clock *c, double *work, double until)
{
    const bool computes = *work > 0;
    double compute, core;
    rates(c, computes, &compute, &core);
    double at = until;
    if (computes && c->now + *work / compute < at) at = c->now + *work / compute;
    bool over = false;
    if (c->busy && c->core_left > 0) {
        const double end = c->now + c->core_left / core;
        if (end <= at) {
            at = end;
            over = c->wire_end <= end;
        }
    } else if (c->busy && c->wire_end <= at) {
        at = c->wire_end;
        over = true;
    }
    const double passed = at - c->now;
    if (computes) {
        *work -= passed * compute;
        if (*work < 1e-15 * at || *work < 0) *work = 0;
    }
    if (c->core_left > 0) {
        c->core_left -= passed * core;
        if (c->core_left < 1e-15 * at || c->core_left < 0) c->core_left = 0;
    }
    c->now = at;
    if (over) c->busy = false;
    return over;
}

void zx_clock_send(zx_clock *c, zx_launch_cost x)
{
    c->busy = true;
    c->wire_end = c->now + x.wire;
    c->core_left = x.core;
    c->wire += x.wire > x.core ? x.wire : x.core;
}

// ---- a solution ---------------------------------------------------------------------------------

typedef struct stop { // a position at which compute and the wire meet
    int64_t at;
    uint32_t move;
    uint32_t kind; // 0: a reduce's gate, 1: its end, 2: a gather's gate, 3: its end
} stop;

typedef struct pricer {
    const zx_problem *p;
    const zx_solution *s;
    zx_clock c;
    uint32_t next, done;  // moves: sent so far; over so far
    int64_t passed;       // gates up to here are open: twice the position, and 1 for a gather's
    double passed_at;     // since when
    double free_at;       // when the wire's stream came to what it waits for
    double exposed, *sum; // sum: seconds of the steps before one, of a micro-batch
    const zx_launch_cost *cost;
} pricer;

static int in_order(const void *a, const void *b)
{
    const stop *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->move < y->move ? -1 : x->move > y->move;
}

// When the next move may begin; 1e300: its gate isn't open.
static double may_begin(const pricer *k)
{
    if (k->c.busy || k->next == k->s->n_moves) return 1e300;
    const zx_move *x = &k->s->moves[k->next];
    if (2 * x->gate + !x->reduce > k->passed) return 1e300;
    return k->free_at >= k->passed_at ? k->free_at : k->passed_at + k->p->handoff;
}

static void step_wire(pricer *k, double *work)
{
    const double begin = may_begin(k);
    if (begin <= k->c.now) {
        zx_clock_send(&k->c, k->cost[k->next++]);
        return;
    }
    if (zx_clock_run(&k->c, work, begin)) {
        k->done++;
        k->free_at = k->c.now;
    }
}

// Runs `work` seconds of compute; the wire goes on beside it.
static void run(pricer *k, double work)
{
    while (work > 0) step_wire(k, &work);
}

// Compute waits for a move. False: it never comes.
static bool await(pricer *k, uint32_t move)
{
    const double from = k->c.now;
    double none = 0;
    if (k->done > move) return true;
    while (k->done <= move) {
        if (!k->c.busy && may_begin(k) > 1e299) return false;
        step_wire(k, &none);
    }
    const double until = k->c.now + k->p->handoff;
    while (k->c.now < until) { // the wire goes on
        const double begin = may_begin(k);
        if (begin <= k->c.now)
            zx_clock_send(&k->c, k->cost[k->next++]);
        else if (zx_clock_run(&k->c, &none, begin < until ? begin : until)) {
            k->done++;
            k->free_at = k->c.now;
        }
    }
    k->exposed += k->c.now - from;
    return true;
}

static double line_at(const pricer *k, int64_t position)
{
    return zx_line_at(k->sum, k->p->n_steps, position);
}

static bool run_stops(pricer *k, const stop *stops, uint32_t n)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        const stop *x = &stops[i];
        if (x->at > at) run(k, line_at(k, x->at) - line_at(k, at));
        at = x->at;
        if (x->kind % 2 == 1) {
            if (!await(k, x->move)) return false;
        } else if (2 * x->at + (x->kind > 0) > k->passed) {
            k->passed = 2 * x->at + (x->kind > 0);
            k->passed_at = k->c.now;
        }
    }
    run(k, line_at(k, zx_problem_end(k->p)) - line_at(k, at));
    return k->s->n_moves == 0 || await(k, k->s->n_moves - 1);
}

static const zx_launch_cost *cost_of(const zx_problem *p, const zx_solution *s, zx_arena *mem,
                                     zx_price *out)
{
    zx_launch_cost *cost = ZX_NEW(mem, zx_launch_cost, s->n_moves + 1);
    for (uint32_t i = 0; i < s->n_moves; i++) {
        const zx_move *x = &s->moves[i];
        uint64_t bytes = 0;
        for (uint32_t a = x->first; a < x->first + x->n; a++)
            bytes += p->unit_wire[x->reduce ? p->grads[s->parts[a].what].unit : s->parts[a].what];
        cost[i] = zx_problem_launch(p, x->reduce, bytes);
        *(x->reduce ? &out->reduced : &out->gathered) += bytes;
    }
    return cost;
}

// Bytes of gradients that share a storage count once.
static void add_gradients(const zx_problem *p, const zx_solution *s, int64_t *change, zx_arena *mem)
{
    const int64_t n = p->n_steps;
    uint32_t most = 0;
    for (uint32_t g = 0; g < p->n_grads; g++)
        if (p->grads[g].storage != ZX_NONE && p->grads[g].storage >= most)
            most = p->grads[g].storage + 1;
    int64_t *until = ZX_NEW(mem, int64_t, (size_t)most + 1);
    for (uint32_t i = 0; i < s->n_moves; i++)
        for (uint32_t a = 0; a < s->moves[i].n && s->moves[i].reduce; a++) {
            const zx_part *x = &s->parts[s->moves[i].first + a];
            const zx_grad *g = &p->grads[x->what];
            if (g->storage == ZX_NONE) continue;
            int64_t from = n * x->micro + g->spare;
            if (until[g->storage] > from) from = until[g->storage];
            if (s->moves[i].over <= from) continue;
            change[from] += (int64_t)g->bytes;
            change[s->moves[i].over] -= (int64_t)g->bytes;
            until[g->storage] = s->moves[i].over;
        }
}

int64_t *zx_problem_alive(const zx_problem *p, const zx_solution *s, zx_arena *mem)
{
    const int64_t end = zx_problem_end(p);
    int64_t *line = ZX_NEW(mem, int64_t, (size_t)end + 2), now = 0;
    for (uint32_t i = 0; i < s->n_moves; i++)
        for (uint32_t a = 0; a < s->moves[i].n && !s->moves[i].reduce; a++) {
            const zx_part *x = &s->parts[s->moves[i].first + a];
            line[s->moves[i].gate] += (int64_t)p->unit_bytes[x->what];
            line[x->gone] -= (int64_t)p->unit_bytes[x->what];
        }
    add_gradients(p, s, line, mem);
    for (int64_t q = 0; q < end; q++) {
        now += line[q];
        line[q] = now + (int64_t)p->base[q % p->n_steps];
    }
    return line;
}

static uint32_t find_stops(const zx_solution *s, stop *stops)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_moves; i++) {
        const zx_move *x = &s->moves[i];
        stops[n++] = (stop){x->gate, i, x->reduce ? 0 : 2};
        stops[n++] = (stop){x->over, i, x->reduce ? 1 : 3};
    }
    if (n > 0) qsort(stops, n, sizeof *stops, in_order);
    return n;
}

void zx_problem_time(const zx_problem *p, const zx_solution *s, zx_arena *mem, zx_price *out)
{
    *out = (zx_price){0};
    pricer k = {.p = p, .s = s, .passed = -1};
    k.cost = cost_of(p, s, mem, out);
    k.sum = zx_line_sums(p, mem);
    stop *stops = ZX_NEW(mem, stop, 2 * (size_t)s->n_moves + 1);
    zx_clock_start(&k.c, p);
    const bool ends = run_stops(&k, stops, find_stops(s, stops));
    out->seconds = ends ? k.c.now + p->after : 1e300;
    out->exposed = k.exposed;
    out->wire = k.c.wire;
}

void zx_problem_price(const zx_problem *p, const zx_solution *s, zx_price *out)
{
    zx_arena mem = {0};
    zx_problem_time(p, s, &mem, out);
    const int64_t *line = zx_problem_alive(p, s, &mem);
    for (int64_t q = 0; q < zx_problem_end(p); q++) {
        if ((uint64_t)line[q] <= out->peak) continue;
        out->peak = (uint64_t)line[q];
        out->peak_at = q;
    }
    zx_arena_free(&mem);
}

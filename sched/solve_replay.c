// solve_replay.c - launches of what a solution gathers and reduces, made in full: what is gathered,
// in which order and how long it stays is as it was.
// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>

#include "sched/solve_path.h"

#define NEVER 1e300

// ---- what there is to send ----------------------------------------------------------------------

static int by_use(const void *a, const void *b)
{
    const zx_item *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->what < y->what ? -1 : x->what > y->what;
}

static int by_ready(const void *a, const void *b)
{
    const zx_item *x = a, *y = b;
    if (x->micro != y->micro) return x->micro < y->micro ? -1 : 1;
    return x->what < y->what ? -1 : x->what > y->what;
}

// The first read of a unit from a position on, and the last before another.
static void find_reads(const zx_problem *p, const uint32_t *const *reads, zx_item *x)
{
    const uint32_t *list = reads[x->what], n = list[0];
    const int64_t from = x->at, until = x->gone;
    int64_t first = -1;
    for (int64_t m = from / p->n_steps; m <= until / p->n_steps; m++)
        for (uint32_t i = 1; i <= n; i++) {
            const int64_t step = m * p->n_steps + list[i];
            if (step < from || step >= until) continue;
            if (first < 0) first = step;
            x->gone = step + 1;
        }
    if (first >= 0) x->at = first;
}

// By unit: how many reads, and their steps.
static const uint32_t *const *list_reads(const zx_problem *p, zx_arena *mem)
{
    uint32_t **list = ZX_NEW(mem, uint32_t *, p->n_units + 1);
    uint32_t *count = ZX_NEW(mem, uint32_t, p->n_units + 1);
    for (uint32_t i = 0; i < p->n_reads; i++) count[p->reads[i].unit]++;
    for (uint32_t u = 0; u < p->n_units; u++) list[u] = ZX_NEW(mem, uint32_t, count[u] + 1);
    for (uint32_t i = 0; i < p->n_reads; i++) {
        uint32_t *x = list[p->reads[i].unit];
        x[++x[0]] = p->reads[i].step;
    }
    return (const uint32_t *const *)list;
}

void zx_wanted_make(const zx_problem *p, const zx_solution *s, zx_arena *mem, zx_wanted *out)
{
    const uint32_t *const *reads = list_reads(p, mem);
    *out = (zx_wanted){.p = p};
    out->gather.all = ZX_NEW(mem, zx_item, s->n_parts + 1);
    out->reduce.all = ZX_NEW(mem, zx_item, s->n_parts + 1);
    for (uint32_t i = 0; i < s->n_moves; i++)
        for (uint32_t a = 0; a < s->moves[i].n; a++) {
            const zx_part *x = &s->parts[s->moves[i].first + a];
            zx_item *y;
            if (s->moves[i].reduce) {
                const zx_grad *g = &p->grads[x->what];
                const int64_t base = (int64_t)p->n_steps * x->micro;
                y = &out->reduce.all[out->reduce.n++];
                *y = (zx_item){x->what,
                               x->micro,
                               base + g->ready,
                               base + g->spare,
                               base + g->latest,
                               g->storage != ZX_NONE ? g->bytes : 0,
                               p->unit_wire[g->unit]};
                continue;
            }
            y = &out->gather.all[out->gather.n++];
            *y = (zx_item){x->what,
                           0,
                           s->moves[i].over,
                           x->gone,
                           0,
                           p->unit_bytes[x->what],
                           p->unit_wire[x->what]};
            find_reads(p, reads, y);
        }
    if (out->gather.n > 0) qsort(out->gather.all, out->gather.n, sizeof(zx_item), by_use);
    if (out->reduce.n > 0) qsort(out->reduce.all, out->reduce.n, sizeof(zx_item), by_ready);
}

// ---- in full ------------------------------------------------------------------------------------

typedef struct replay {
    const zx_wanted *w;
    zx_clock c;
    zx_load load;
    int64_t pos, end, limit, gathered;
    uint32_t i, j, first_open; // gathers and reduces sent; the first reduce that isn't given away
    uint32_t next, done, *gather_of; // launches; by gather: its launch
    uint32_t *launch_of;             // by reduce
    int64_t *after;                  // by reduce: it is given away beyond this position
    bool *open;                      // by reduce: not given away
    uint32_t *last, *move;           // by unit: its last part, and the launch of that
    zx_solution *s;
} replay;

static int64_t pending_at(const replay *r, int64_t q)
{
    const zx_items *x = &r->w->reduce;
    int64_t bytes = 0;
    for (uint32_t a = r->first_open; a < x->n && x->all[a].at <= q; a++)
        if (r->open[a] && x->all[a].gone <= q) bytes += (int64_t)x->all[a].bytes;
    return bytes;
}

static void give_away(replay *r)
{
    for (uint32_t a = r->first_open; a < r->j; a++) {
        if (!r->open[a] || r->launch_of[a] >= r->done || r->pos <= r->after[a]) continue;
        r->open[a] = false;
        r->s->moves[r->launch_of[a]].over = r->pos;
    }
    while (r->first_open < r->j && !r->open[r->first_open]) r->first_open++;
}

static bool can_begin(replay *r)
{
    const zx_items *x = &r->w->gather, *y = &r->w->reduce;
    give_away(r);
    for (uint32_t a = r->first_open; a < y->n && y->all[a].at <= r->pos; a++)
        if (r->open[a] && y->all[a].latest <= r->pos) return false;
    if (zx_load_most(&r->load, r->pos, r->pos) + pending_at(r, r->pos) > r->limit) return false;
    if (r->i < x->n && x->all[r->i].at <= r->pos) return false;
    for (uint32_t a = r->i; a-- > 0 && r->gather_of[a] >= r->done;)
        if (x->all[a].at <= r->pos) return false;
    return true;
}

static bool send_gather(replay *r, uint32_t n)
{
    const zx_items *x = &r->w->gather;
    uint32_t to = r->i;
    uint64_t wire = 0;
    bool fits = r->pos < r->end;
    while (to < r->i + n && fits) {
        const zx_item *g = &x->all[to];
        const int64_t bytes = (int64_t)g->bytes;
        fits = zx_load_most(&r->load, r->pos, g->gone - 1) + bytes <= r->limit;
        if (!fits) break;
        zx_load_add(&r->load, r->pos, g->gone - 1, bytes);
        to++;
    }
    fits = fits && zx_load_most(&r->load, r->pos, r->pos) + pending_at(r, r->pos) <= r->limit;
    if (!fits) {
        while (to-- > r->i)
            zx_load_add(&r->load, r->pos, x->all[to].gone - 1, -(int64_t)x->all[to].bytes);
        return false;
    }
    zx_solution *s = r->s;
    zx_move move = {false, s->n_parts, 0, r->pos, r->end};
    for (; r->i < to; r->i++) {
        const zx_item *g = &x->all[r->i];
        zx_part *was = r->last[g->what] != ZX_NONE ? &s->parts[r->last[g->what]] : NULL;
        if (was != NULL && was->gone >= r->pos) { // it is still there: it stays
            was->gone = g->gone;
            r->gather_of[r->i] = r->move[g->what];
            continue;
        }
        r->gather_of[r->i] = r->move[g->what] = s->n_moves;
        r->last[g->what] = s->n_parts;
        s->parts[s->n_parts++] = (zx_part){g->what, 0, g->gone};
        move.n++;
        wire += g->wire;
        if (g->at < move.over) move.over = g->at;
    }
    if (move.n == 0) return true;
    s->moves[s->n_moves++] = move;
    r->gathered = r->pos;
    zx_clock_send(&r->c, zx_problem_launch(r->w->p, false, wire));
    return true;
}

static bool send_reduce(replay *r, uint32_t n)
{
    const zx_items *x = &r->w->reduce;
    zx_solution *s = r->s;
    uint64_t wire = 0;
    int64_t gate = 0;
    for (uint32_t a = r->j; a < r->j + n; a++) {
        if (x->all[a].at > r->pos) return false;
        if (x->all[a].at > gate) gate = x->all[a].at;
        wire += x->all[a].wire;
    }
    s->moves[s->n_moves] = (zx_move){true, s->n_parts, n, gate, r->end};
    for (uint32_t a = r->j; a < r->j + n; a++) {
        r->launch_of[a] = s->n_moves;
        r->after[a] = r->gathered;
        s->parts[s->n_parts++] = (zx_part){x->all[a].what, x->all[a].micro, 0};
    }
    s->n_moves++;
    r->j += n;
    zx_clock_send(&r->c, zx_problem_launch(r->w->p, true, wire));
    return true;
}

static void start(replay *r, zx_arena *mem)
{
    const zx_problem *p = r->w->p;
    const uint32_t gathers = r->w->gather.n, reduces = r->w->reduce.n;
    r->end = zx_problem_end(p);
    r->gathered = -1;
    r->limit = p->limit > (uint64_t)INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)p->limit;
    int64_t *line = ZX_NEW(mem, int64_t, (size_t)r->end + 1);
    for (int64_t q = 0; q < r->end; q++) line[q] = (int64_t)p->base[q % p->n_steps];
    zx_load_make(&r->load, (uint32_t)r->end, mem);
    zx_load_fill(&r->load, line);
    r->gather_of = ZX_NEW(mem, uint32_t, gathers + 1);
    r->launch_of = ZX_NEW(mem, uint32_t, reduces + 1);
    r->after = ZX_NEW(mem, int64_t, reduces + 1);
    r->open = ZX_NEW(mem, bool, reduces + 1);
    memset(r->open, true, reduces);
    r->last = ZX_NEW(mem, uint32_t, p->n_units + 1);
    r->move = ZX_NEW(mem, uint32_t, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) r->last[u] = ZX_NONE;
    zx_clock_start(&r->c, p);
}

bool zx_wanted_send(const zx_wanted *w, const zx_sending *list, uint32_t n, zx_arena *mem,
                    zx_solution *out)
{
    const zx_problem *p = w->p;
    replay r = {.w = w, .s = out};
    bool running = false;
    double work = 0;
    *out = (zx_solution){0};
    out->moves = ZX_NEW(mem, zx_move, n + 1);
    out->parts = ZX_NEW(mem, zx_part, (size_t)w->gather.n + w->reduce.n + 1);
    start(&r, mem);
    for (;;) {
        while (!running && r.pos < r.end && can_begin(&r)) {
            work = p->seconds[r.pos % p->n_steps];
            running = work > 0;
            if (!running) r.pos++;
        }
        if (!r.c.busy && r.next < n) {
            const zx_sending *x = &list[r.next];
            r.next += x->reduce ? send_reduce(&r, x->n) : send_gather(&r, x->n);
        }
        if (!r.c.busy && !running) {
            if (r.pos < r.end && can_begin(&r)) continue;
            break;
        }
        if (zx_clock_run(&r.c, &work, NEVER)) r.done++;
        if (running && work <= 0) {
            running = false;
            r.pos++;
        }
    }
    return r.pos == r.end && r.next == n && r.done == out->n_moves;
}

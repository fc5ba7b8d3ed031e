// bound_lp.c - the bound as a linear program: the fluid form of all schedules (after Albers, Garg
// and Leonardi's of prefetching and caching), on slots.
//
// A schedule gives a point of the program. In each slot it takes L seconds, gathers g bytes and
// reduces r. Between two reads of a unit, y of its bytes stay and the others are gathered anew.
// At each cut
//
//   D: bytes that are gathered for reads to come.      D' = D + g - what is read and hasn't stayed
//   H: bytes that stay between a read before and one after.   H' = H + begun - ended
//   Q: bytes of gradients that are whole and not yet reduced.  Q' = Q + whole in the slot - r
//
// and bytes have to find room: all of them at the step of the cut (gradients that are in `base`
// there apart), and at every step of a slot what lasts longer than the slot. Within a slot a
// deadline is its end and a release its beginning, so that aggregating loosens, and never tightens.
// L is at least the wire's seconds, and compute's with interference.
//
// Only the first and the last circle are alone: those between are one, their mean. What is linear
// for each is linear for the mean, and its end is its beginning, but for what the last of them
// begins with and the first: (end - begin) * (circles - 2) = begin of the last - end of the first.
//
// The solver isn't believed: whatever its multipliers, they give a bound that is summed up here.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound_parts.h"

#include <math.h>
#include <stdlib.h>

#include "sched/lp.h"

#define MEGA 1e-6 // bytes
#define MILLI 1e3 // seconds
#define SLOTS 600 // in all circles

typedef struct stays { // reads in one slot whose next ones are in another
    uint32_t from, to; // slots; to: n_cuts more where it is in the next circle
    bool at_cut;       // read by the step at which the slot ends
    bool edge;         // read next by the first step of a circle
    double bytes;
} stays;

typedef struct circle {
    double times;                            // circles that it stands for
    bool first, last;                        // begins with nothing; ends the line
    uint32_t begin_d, begin_q, end_d, end_q; // columns
    uint32_t *at;                            // n_cuts + 1
    uint32_t *in, *out; // by class of stays that wrap: columns; ZX_NONE: there are none
    uint32_t *within;   // by class of the others
} circle;

typedef struct modeller {
    const zx_bound_facts *f;
    zx_lp *lp;
    stays *stays; // those that wrap come last
    uint32_t n_stays, n_within;
    double *read; // by slot: bytes of the reads that end a stay
    double edge;  // of them, by the first step of a circle
    double cold;  // bytes of the first step's reads
    zx_bound_wholes whole;
    double most;    // bytes that anything can be
    double seconds; // more than which no slot need take
} modeller;

// ---- stays --------------------------------------------------------------------------------------

static int in_order(const void *a, const void *b)
{
    const stays *x = a, *y = b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to < y->to ? -1 : 1;
    if (x->at_cut != y->at_cut) return x->at_cut ? 1 : -1;
    return x->edge - y->edge;
}

// What the first step of a circle reads belongs to the last slot of the one before.
static stays stay_of(const zx_bound_facts *f, const uint32_t *slot, uint32_t read)
{
    const zx_problem *p = f->p;
    const uint32_t next = read + f->next[read], n = p->n_reads;
    const uint32_t a = p->reads[read].step, b = p->reads[next % n].step;
    const uint32_t from = a == 0 ? f->n : a, to = b == 0 ? f->n : b;
    // In circles from the one to which the first read belongs.
    const uint32_t later = (uint32_t)((next >= n) + (a == 0) - (b == 0));
    return (stays){slot[from], slot[to] + later * f->n_cuts, from == f->cut[slot[from] + 1], b == 0,
                   (double)f->size[p->reads[read].unit] * MEGA};
}

static void find_stays(modeller *k)
{
    const zx_bound_facts *f = k->f;
    const zx_problem *p = f->p;
    uint32_t *slot = ZX_NEW(f->mem, uint32_t, f->n + 1), n = 0;
    for (uint32_t c = 0; c < f->n_cuts; c++)
        for (uint32_t s = f->cut[c] + 1; s <= f->cut[c + 1]; s++) slot[s] = c;
    stays *all = ZX_NEW(f->mem, stays, p->n_reads + 1);
    k->read = ZX_NEW(f->mem, double, f->n_cuts);
    for (uint32_t r = 0; r < p->n_reads; r++) {
        const stays x = stay_of(f, slot, r);
        k->most += x.bytes * f->micros;
        if (p->reads[r].step == 0) k->cold += x.bytes;
        if (x.to != x.from) all[n++] = x;
    }
    if (n > 0) qsort(all, n, sizeof *all, in_order);
    k->stays = ZX_NEW(f->mem, stays, n + 1);
    for (int wraps = 0; wraps < 2; wraps++) {
        for (uint32_t i = 0; i < n; i++) {
            stays *was = k->n_stays > 0 ? &k->stays[k->n_stays - 1] : NULL;
            if ((all[i].to >= f->n_cuts) != wraps) continue;
            if (was != NULL && in_order(was, &all[i]) == 0)
                was->bytes += all[i].bytes;
            else
                k->stays[k->n_stays++] = all[i];
        }
        if (!wraps) k->n_within = k->n_stays;
    }
    for (uint32_t i = 0; i < k->n_stays; i++) {
        k->read[k->stays[i].to % f->n_cuts] += k->stays[i].bytes;
        if (k->stays[i].edge) k->edge += k->stays[i].bytes;
    }
}

// ---- a slot -------------------------------------------------------------------------------------

typedef struct slot { // columns: what happens in it, and what is there at its end
    uint32_t seconds, gather, reduce, d, h, q, wait, over_d, over_q;
    uint32_t at; // when it ends, since the circle began; in the first one, since the origin
    double per_gather, per_reduce;
} slot;

static uint32_t amount(const modeller *k, double most)
{
    return zx_lp_column(k->lp, 0, fmin(most, k->most), 0);
}

static double room_of(const modeller *k, int64_t bytes)
{
    return fmin((double)bytes * MEGA, 4 * k->most);
}

static double rate_of(const zx_bound_rate *r, double most)
{
    return zx_bound_wire(r, fmax(most, 1), INFINITY) / fmax(most, 1) * MILLI / MEGA;
}

// Seconds of a slot: of the wire, and of compute beside it.
static void put_seconds(const modeller *k, const slot *x, double compute)
{
    const zx_bound_facts *f = k->f;
    const zx_machine *m = &f->p->machine;
    const double slow = f->p->no_overlap ? 1 : m->interference / (1 + m->interference);
    zx_lp *lp = k->lp;
    zx_lp_row(lp, 0, INFINITY);
    zx_lp_put(lp, x->seconds, 1);
    zx_lp_put(lp, x->gather, -x->per_gather);
    zx_lp_put(lp, x->reduce, -x->per_reduce);
    if (compute <= 0) return;
    zx_lp_row(lp, compute * (m->cores > 0 ? m->threads / m->cores : 1), INFINITY);
    zx_lp_put(lp, x->seconds, 1);
    if (m->cores <= 0) {
        zx_lp_put(lp, x->gather, -x->per_gather * slow);
        zx_lp_put(lp, x->reduce, -x->per_reduce * slow);
        return;
    }
    zx_lp_put(lp, x->gather, -f->gather.core * MILLI / MEGA / m->cores);
    zx_lp_put(lp, x->reduce, -f->reduce.core * MILLI / MEGA / m->cores);
    zx_lp_row(lp, compute, INFINITY);
    zx_lp_put(lp, x->seconds, 1);
}

// What of the stays begins in a slot, as terms of the row; `at_cut`: only at its end. What ends.
static void put_begun(const modeller *k, const circle *c, uint32_t at, bool at_cut, double factor)
{
    for (uint32_t i = 0; i < k->n_stays; i++) {
        const uint32_t column = i < k->n_within ? c->within[i] : c->out[i - k->n_within];
        if (k->stays[i].from == at && column != ZX_NONE && (k->stays[i].at_cut || !at_cut))
            zx_lp_put(k->lp, column, factor);
    }
}
static void put_ended(const modeller *k, const circle *c, uint32_t at, double factor)
{
    for (uint32_t i = 0; i < k->n_stays; i++) {
        const uint32_t column = i < k->n_within ? c->within[i] : c->in[i - k->n_within];
        if (k->stays[i].to % k->f->n_cuts == at && column != ZX_NONE)
            zx_lp_put(k->lp, column, factor);
    }
}

static void put_flows(const modeller *k, const circle *c, uint32_t at, const slot *was,
                      const slot *x, double read, double ready)
{
    zx_lp *lp = k->lp;
    zx_lp_row(lp, -read, -read); // D' - D - g - stayed = -read
    zx_lp_put(lp, x->d, 1);
    zx_lp_put(lp, was->d, -1);
    zx_lp_put(lp, x->gather, -1);
    put_ended(k, c, at, -1);
    zx_lp_row(lp, 0, 0); // H' - H - begun + ended = 0
    zx_lp_put(lp, x->h, 1);
    zx_lp_put(lp, was->h, -1);
    put_begun(k, c, at, false, -1);
    put_ended(k, c, at, 1);
    zx_lp_row(lp, ready, ready); // Q' - Q + r = ready
    zx_lp_put(lp, x->q, 1);
    zx_lp_put(lp, was->q, -1);
    zx_lp_put(lp, x->reduce, 1);
}

// What lasts longer than the slot has room at every step in it.
static void put_inner_room(const modeller *k, const circle *c, uint32_t at, const slot *was,
                           const slot *x, double read)
{
    const zx_bound_facts *f = k->f;
    zx_lp *lp = k->lp;
    double least = INFINITY;
    for (uint32_t s = f->cut[at] + 1; s < f->cut[at + 1]; s++)
        least = fmin(least, room_of(k, f->hold[s]));
    if (least > 2 * k->most) return;
    zx_lp_row(lp, -INFINITY, read); // D - read that hasn't stayed <= over_d
    zx_lp_put(lp, was->d, 1);
    put_ended(k, c, at, 1);
    zx_lp_put(lp, x->over_d, -1);
    zx_lp_row(lp, -INFINITY, 0); // wait - r <= over_q
    zx_lp_put(lp, was->wait, 1);
    zx_lp_put(lp, x->reduce, -1);
    zx_lp_put(lp, x->over_q, -1);
    zx_lp_row(lp, -INFINITY, least);
    zx_lp_put(lp, was->h, 1);
    put_ended(k, c, at, -1);
    zx_lp_put(lp, x->over_d, 1);
    zx_lp_put(lp, x->over_q, 1);
}

// At the step at which the slot ends, beside what it reads; what stays from there on it reads too.
static void put_end_room(const modeller *k, const circle *c, uint32_t at, const slot *x,
                         double spared)
{
    const zx_bound_facts *f = k->f;
    const double room = room_of(k, f->hold[f->cut[at + 1] % f->n]);
    zx_lp_row(k->lp, -INFINITY, spared); // Q' - spared <= wait
    zx_lp_put(k->lp, x->q, 1);
    zx_lp_put(k->lp, x->wait, -1);
    zx_lp_row(k->lp, -INFINITY, room);
    zx_lp_put(k->lp, x->h, 1);
    put_begun(k, c, at, true, -1);
    zx_lp_put(k->lp, x->d, 1);
    zx_lp_put(k->lp, x->wait, 1);
}

// ---- a circle -----------------------------------------------------------------------------------

static slot add_slot(const modeller *k, double times, double gather_most, double reduce_most)
{
    const zx_bound_facts *f = k->f;
    slot x = {.per_gather = rate_of(&f->gather, gather_most),
              .per_reduce = rate_of(&f->reduce, reduce_most),
              .seconds = zx_lp_column(k->lp, 0, k->seconds, times)};
    x.gather = amount(k, k->seconds / fmax(x.per_gather, 1e-12));
    x.reduce = amount(k, k->seconds / fmax(x.per_reduce, 1e-12));
    x.at = zx_lp_column(k->lp, 0, k->seconds, 0);
    x.d = amount(k, INFINITY);
    x.h = amount(k, INFINITY);
    x.q = amount(k, INFINITY);
    x.wait = amount(k, INFINITY);
    x.over_d = amount(k, INFINITY);
    x.over_q = amount(k, INFINITY);
    return x;
}

// What wraps into a circle: into the first one only what its first step reads.
static void add_wraps(const modeller *k, circle *c)
{
    const uint32_t n = k->n_stays - k->n_within;
    c->in = ZX_NEW(k->f->mem, uint32_t, n + 1);
    c->out = ZX_NEW(k->f->mem, uint32_t, n + 1);
    c->within = ZX_NEW(k->f->mem, uint32_t, k->n_within + 1);
    for (uint32_t i = 0; i < n; i++) {
        const stays *x = &k->stays[k->n_within + i];
        const bool of_first = x->at_cut && x->from == k->f->n_cuts - 1;
        c->in[i] = c->first && !of_first ? ZX_NONE : amount(k, x->bytes);
        if (c->last && x->edge) c->in[i] = ZX_NONE;
        c->out[i] = c->last ? ZX_NONE : amount(k, x->bytes);
    }
    for (uint32_t i = 0; i < k->n_within; i++)
        c->within[i] = c->last && k->stays[i].edge ? ZX_NONE : amount(k, k->stays[i].bytes);
}

// At the start of a circle's first step.
static slot begin_circle(const modeller *k, circle *c, double extra)
{
    const zx_bound_facts *f = k->f;
    slot x = add_slot(k, c->first ? 1 : 0, (double)f->cap[0], 0);
    zx_lp_row(k->lp, 0, 0);
    zx_lp_put(k->lp, x.h, 1);
    for (uint32_t i = 0; i < k->n_stays - k->n_within; i++)
        if (c->in[i] != ZX_NONE) zx_lp_put(k->lp, c->in[i], -1);
    zx_lp_row(k->lp, -INFINITY, room_of(k, f->hold[0])); // H without what the step reads itself
    zx_lp_put(k->lp, x.h, 1);
    for (uint32_t i = 0; i < k->n_stays - k->n_within; i++)
        if (c->in[i] != ZX_NONE && k->stays[k->n_within + i].at_cut &&
            k->stays[k->n_within + i].from == f->n_cuts - 1)
            zx_lp_put(k->lp, c->in[i], -1);
    zx_lp_put(k->lp, x.d, 1);
    zx_lp_put(k->lp, x.wait, 1);
    zx_lp_row(k->lp, -INFINITY, f->spared[0] * MEGA + extra);
    zx_lp_put(k->lp, x.q, 1);
    zx_lp_put(k->lp, x.wait, -1);
    c->begin_d = x.d;
    c->begin_q = x.q;
    if (!c->first) return x;
    zx_lp_row(k->lp, 0, 0); // nothing is to be reduced yet
    zx_lp_put(k->lp, x.q, 1);
    zx_lp_row(k->lp, -k->cold, -k->cold); // D' - g = -read
    zx_lp_put(k->lp, x.d, 1);
    zx_lp_put(k->lp, x.gather, -1);
    put_seconds(k, &x, 0);
    return x;
}

static void add_circle(const modeller *k, circle *c)
{
    const zx_bound_facts *f = k->f;
    const uint32_t n = f->n_cuts;
    const double extra = (f->wired[n] - f->ready[n]) * MEGA * f->micros;
    add_wraps(k, c);
    slot was = begin_circle(k, c, extra);
    c->at = ZX_NEW(f->mem, uint32_t, n + 1);
    c->at[0] = was.at;
    zx_lp_row(k->lp, 0, 0);
    zx_lp_put(k->lp, was.at, 1);
    if (c->first) zx_lp_put(k->lp, was.seconds, -1);
    for (uint32_t at = 0; at < n; at++) {
        const bool end = c->last && at + 1 == n; // of the line: when its last step is over
        const slot x = add_slot(k, c->times, f->gather_most[at], f->reduce_most[at]);
        const double compute = (f->at[f->cut[at + 1]] - f->at[f->cut[at]]) * MILLI;
        const double read = k->read[at] - (end ? k->edge : 0);
        const double ready = f->wired[at + 1] - f->wired[at] - (end ? f->end_wired : 0);
        put_seconds(k, &x, compute);
        put_flows(k, c, at, &was, &x, read, ready * MEGA);
        put_inner_room(k, c, at, &was, &x, read);
        zx_lp_row(k->lp, 0, 0); // at' - at - seconds = 0
        zx_lp_put(k->lp, x.at, 1);
        zx_lp_put(k->lp, was.at, -1);
        zx_lp_put(k->lp, x.seconds, -1);
        c->at[at + 1] = x.at;
        if (!end) put_end_room(k, c, at, &x, f->spared[(at + 1) % n] * MEGA + extra);
        was = x;
    }
    c->end_d = was.d;
    c->end_q = was.q;
}

// ---- the line -----------------------------------------------------------------------------------

static void put_since(const modeller *k, uint32_t to, uint32_t from, double seconds)
{
    if (seconds <= 0) return;
    zx_lp_row(k->lp, seconds * MILLI, INFINITY);
    zx_lp_put(k->lp, to, 1);
    if (from != ZX_NONE) zx_lp_put(k->lp, from, -1);
}

// What windows take where launches are wholes holds here too.
static void put_wholes(const modeller *k, const circle *c)
{
    const uint32_t n = k->f->n_cuts;
    for (uint32_t x = 0; c->first && k->whole.cold != NULL && x < n; x++)
        put_since(k, c->at[x], ZX_NONE, k->whole.cold[x]);
    for (uint32_t i = 0; k->whole.inside != NULL && i < n; i++)
        for (uint32_t d = 1; k->whole.inside[i] != NULL && i + d < n + !c->last; d++)
            put_since(k, c->at[i + d], c->at[i], k->whole.inside[i][d]);
}

// After the last step all that is left is reduced.
static void drain(const modeller *k, const circle *c)
{
    const zx_bound_facts *f = k->f;
    const double per_reduce = rate_of(&f->reduce, f->end_most);
    const uint32_t seconds = zx_lp_column(k->lp, 0, k->seconds, 1);
    zx_lp_row(k->lp, f->end_wired * MEGA * per_reduce, INFINITY);
    zx_lp_put(k->lp, seconds, 1);
    zx_lp_put(k->lp, c->end_q, -per_reduce);
    for (uint32_t d = 1; d <= f->n_cuts; d++) {
        if (k->whole.end == NULL || k->whole.end[d] <= 0) continue;
        put_since(k, c->at[f->n_cuts], c->at[f->n_cuts - d], k->whole.end[d]);
        zx_lp_put(k->lp, seconds, 1);
    }
}

// times * (end - begin) of the mean circle = begin of the last - end of the first; without a mean,
// those two are the same.
static void link(const modeller *k, double times, uint32_t end, uint32_t begin, uint32_t last,
                 uint32_t first)
{
    zx_lp_row(k->lp, 0, 0);
    zx_lp_put(k->lp, last, 1);
    zx_lp_put(k->lp, first, -1);
    if (times <= 0) return;
    zx_lp_put(k->lp, end, -times);
    zx_lp_put(k->lp, begin, times);
}

static void make_line(const modeller *k)
{
    const uint32_t micros = k->f->micros;
    circle c[3] = {{.times = 1, .first = true, .last = micros == 1},
                   {.times = (double)micros - 2},
                   {.times = 1, .last = true}};
    const double times = c[1].times;
    for (uint32_t i = 0; i < 3; i++)
        if (i == 0 || (i == 1 && micros > 2) || (i == 2 && micros > 1)) {
            add_circle(k, &c[i]);
            put_wholes(k, &c[i]);
        }
    drain(k, micros > 1 ? &c[2] : &c[0]);
    if (micros == 1) return;
    link(k, times, c[1].end_d, c[1].begin_d, c[2].begin_d, c[0].end_d);
    link(k, times, c[1].end_q, c[1].begin_q, c[2].begin_q, c[0].end_q);
    for (uint32_t i = 0; i < k->n_stays - k->n_within; i++)
        if (c[2].in[i] != ZX_NONE)
            link(k, times, micros > 2 ? c[1].out[i] : 0, micros > 2 ? c[1].in[i] : 0, c[2].in[i],
                 c[0].out[i]);
}

zx_status zx_bound_lp(const zx_problem *p, double most, double *seconds, zx_err *err)
{
    zx_arena mem = {0};
    zx_bound_facts f;
    zx_lp lp = {.mem = &mem};
    const zx_bound_view v = {.room = 1,
                             .max_cuts = SLOTS / (p->micro_batches < 3 ? p->micro_batches : 3)};
    zx_bound_facts_make(p, &v, &mem, &f);
    modeller k = {.f = &f, .lp = &lp, .seconds = 4 * most * MILLI};
    k.most = (f.wired[f.n_cuts] * f.micros + 1) * MEGA;
    zx_bound_wholes_make(&f, &k.whole);
    find_stays(&k);
    make_line(&k);
    double total = 0;
    const zx_status st = zx_lp_bound(&lp, &total, err);
    *seconds = fmin(total, k.seconds) / MILLI + p->after;
    zx_arena_free(&mem);
    return st;
}

// bound_windows.c - the best chain of windows; see bound.h.
//
// What is gathered from the start of step i on: then, beside what step i reads, units are whole for
// nothing, as many as there is room for; and at every step those leave that are read last, until
// the room is kept (Belady: of intervals that each save a byte, the most that fit are those that
// end first). What is read and isn't whole has been gathered between i and then. A schedule's own
// choice is one of those that this is the best of: at step i it holds what it has of the reads to
// come, and what stays between two reads is held at all steps in between. One scan from i gives all
// windows that begin there. Circles are alike, so scans begin in one of them; when what is held is
// the same at two ends of a circle, all that follow are the same too.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- scans --------------------------------------------------------------------------------------

typedef struct event { // steps up to one that reads or at which a cut is
    uint32_t step;
    uint32_t cut; // ZX_NONE: none
    int64_t room; // at the steps since the event before, without this one's
} event;

// Bytes gathered since a scan began, by cuts from there: up to the start of the cut's step, and
// without what that reads.
typedef struct table {
    uint32_t n;               // cuts that were come to
    double *bytes, *short_of; // n + 1
    double circle;            // what each further circle adds
} table;

typedef struct scan {
    const zx_bound_facts *f;
    event *events;
    uint32_t n_events;
    // By read of the line from the scan's circle on: bytes that are whole for it.
    int64_t *held;
    uint64_t *some; // a bit each: held is not 0
    uint32_t top;   // no read after it has any
    int64_t total;
    int64_t *before; // held, at the last end of a circle
} scan;

static void find_events(scan *s)
{
    const zx_bound_facts *f = s->f;
    int64_t room = INT64_MAX;
    uint32_t k = 0;
    s->events = ZX_NEW(f->mem, event, f->n + 1);
    for (uint32_t t = 0; t < f->n; t++) {
        const bool cut = t == f->cut[k];
        if (!cut && f->p->read_at[t] == f->p->read_at[t + 1]) {
            if (f->cap[t] < room) room = f->cap[t];
            continue;
        }
        s->events[s->n_events++] = (event){t, cut ? k : ZX_NONE, room};
        k += cut;
        room = INT64_MAX;
    }
    // The circle's last steps come before its first event, which is at its first cut.
    s->events[0].room = room;
}

static void put(scan *s, uint32_t read, int64_t bytes)
{
    if (bytes == 0) return;
    s->held[read] = bytes;
    s->total += bytes;
    s->some[read / 64] |= 1ull << read % 64;
    if (read > s->top) s->top = read;
}

static int64_t take(scan *s, uint32_t read)
{
    const int64_t bytes = s->held[read];
    s->held[read] = 0;
    s->total -= bytes;
    s->some[read / 64] &= ~(1ull << read % 64);
    return bytes;
}

// What is read last leaves first.
static void keep(scan *s, int64_t room)
{
    while (s->total > room) {
        uint32_t w = s->top / 64;
        uint64_t bits = s->some[w] << (63 - s->top % 64);
        if (bits != 0)
            s->top -= (uint32_t)__builtin_clzll(bits);
        else {
            while (s->some[--w] == 0) {
            }
            s->top = 64 * w + 63 - (uint32_t)__builtin_clzll(s->some[w]);
        }
        const int64_t over = s->total - room, bytes = take(s, s->top);
        if (bytes > over) put(s, s->top, bytes - over);
    }
}

// All that is read after a step may be whole at it, as far as it has room.
static void begin_anywhere(scan *s, uint32_t step)
{
    const zx_bound_facts *f = s->f;
    const zx_problem *p = f->p;
    const uint32_t from = p->read_at[step + 1], n = p->n_reads;
    bool *seen = ZX_NEW(f->mem, bool, p->n_units + 1);
    for (uint32_t i = p->read_at[step]; i < from; i++) seen[p->reads[i].unit] = true;
    for (uint32_t i = from; i < from + n; i++) {
        const uint32_t u = p->reads[i % n].unit;
        if (!seen[u]) put(s, i, f->size[u]);
        seen[u] = true;
    }
    keep(s, f->hold[step]);
    for (uint32_t i = p->read_at[step]; i < from; i++) // what it reads itself
        put(s, i + f->next[i], f->size[p->reads[i].unit]);
}

// At the end of a circle: whether all is as it was at the last one.
static bool repeats(scan *s, uint32_t from, bool first)
{
    const size_t bytes = s->f->p->n_reads * sizeof *s->held;
    const bool same = !first && memcmp(s->before, s->held + from, bytes) == 0;
    memcpy(s->before, s->held + from, bytes);
    return same;
}

// What is read at an event: how much of it has to be gathered.
static int64_t read_at(scan *s, const event *e, uint32_t base)
{
    const zx_bound_facts *f = s->f;
    const zx_problem *p = f->p;
    const uint32_t from = p->read_at[e->step], to = p->read_at[e->step + 1];
    int64_t missing = 0;
    for (uint32_t r = from; r < to; r++) missing += f->size[p->reads[r].unit] - take(s, base + r);
    keep(s, f->hold[e->step]);
    for (uint32_t r = from; r < to; r++) put(s, base + r + f->next[r], f->size[p->reads[r].unit]);
    return missing;
}

// From a cut through some circles, or from before the first step, when nothing is whole.
static void run_scan(scan *s, uint32_t cut, bool nothing, uint32_t circles, table *out)
{
    const zx_bound_facts *f = s->f;
    const uint32_t reads = f->p->n_reads, all = (circles + 2) * reads;
    const zx_mark mark = zx_arena_mark(f->mem);
    uint32_t e = 0, base = 0;
    while (s->events[e].cut != cut) e++;
    s->held = ZX_NEW(f->mem, int64_t, all + 1);
    s->some = ZX_NEW(f->mem, uint64_t, all / 64 + 2);
    s->before = ZX_NEW(f->mem, int64_t, reads + 1);
    s->top = 0;
    s->total = 0;
    int64_t sum = nothing ? read_at(s, &s->events[0], 0) : 0;
    if (!nothing) begin_anywhere(s, f->cut[cut]);
    *out = (table){.bytes = out->bytes, .short_of = out->short_of, .circle = -1};
    out->bytes[0] = (double)sum;
    do {
        if (++e == s->n_events) {
            e = 0;
            base += reads;
        }
        const event *x = &s->events[e];
        const int64_t so_far = sum;
        keep(s, x->room);
        sum += read_at(s, x, base);
        if (x->cut == ZX_NONE) continue;
        out->short_of[++out->n] = (double)so_far;
        out->bytes[out->n] = (double)sum;
        if (x->cut == cut && repeats(s, base + f->p->read_at[x->step + 1], out->n == f->n_cuts))
            out->circle = out->bytes[out->n] - out->bytes[out->n - f->n_cuts];
    } while (out->circle < 0 && out->n < circles * f->n_cuts);
    zx_arena_rewind(f->mem, mark);
}

// ---- windows ------------------------------------------------------------------------------------

#define CIRCLES 3         // of a scan, at most
#define ORIGIN UINT32_MAX // a window from before the first step

typedef struct windows {
    const zx_bound_facts *f;
    table cold, *from; // from: by cut
    zx_bound_wholes whole;
    double least; // that any circle gathers
    uint32_t end; // the line's index of the end
} windows;

static table new_table(const zx_bound_facts *f, uint32_t circles)
{
    const size_t n = (size_t)circles * f->n_cuts + 1;
    return (table){.bytes = ZX_NEW(f->mem, double, n), .short_of = ZX_NEW(f->mem, double, n)};
}

static void scan_all(windows *w)
{
    const zx_bound_facts *f = w->f;
    const uint32_t k = f->n_cuts, circles = f->micros < CIRCLES ? f->micros : CIRCLES;
    // From nothing the whole line is scanned, unless it is very long.
    const double line = 4e6 / (f->p->n_reads + f->n / 8 + 1);
    const uint32_t cold = f->micros < line ? f->micros : line < circles ? circles : (uint32_t)line;
    scan s = {.f = f};
    if (f->p->n_reads == 0) return;
    find_events(&s);
    w->cold = new_table(f, cold);
    run_scan(&s, 0, true, cold, &w->cold);
    w->from = ZX_NEW(f->mem, table, k);
    for (uint32_t i = 0; i < k; i++) {
        w->from[i] = new_table(f, circles);
        run_scan(&s, i, false, circles, &w->from[i]);
        if (i == 0 || w->from[i].bytes[k] < w->least) w->least = w->from[i].bytes[k];
    }
}

// What is gathered between the starts of two steps (of the end's: all there is to read). Beyond a
// scan, circles go on alike; where they aren't yet alike, each is a window of its own, of which no
// one has less than the least.
static double gathered(const windows *w, uint32_t from, uint32_t to)
{
    const uint32_t k = w->f->n_cuts, d = from == ORIGIN ? to : to - from;
    if (w->f->p->n_reads == 0) return 0;
    const table *t = from == ORIGIN ? &w->cold : &w->from[from % k];
    const double *bytes = to == w->end ? t->short_of : t->bytes;
    if (d <= t->n) return bytes[d];
    const uint32_t circles = (d - t->n + k - 1) / k;
    if (t->circle >= 0) return bytes[d - circles * k] + circles * t->circle;
    return bytes[d - circles * k] + (to == w->end ? circles - 1 : circles) * w->least;
}

typedef struct window {
    double seconds, alone; // of them, compute's before the wire can begin
    double compute, wire, gathered, reduced;
} window;

typedef struct most { // bytes of a launch under way somewhere in a window
    double gather, reduce;
} most;

static void widen(const zx_bound_facts *f, uint32_t slot, most *m)
{
    m->gather = fmax(m->gather, f->gather_most[slot]);
    m->reduce = fmax(m->reduce, f->reduce_most[slot]);
}

// Up to the moment at which the last step is over; `all`: up to that at which all is reduced. The
// step from whose start the window goes is over before any of this can begin: what was issued up to
// it may be whole already, and its gradients aren't.
static window window_of(const windows *w, uint32_t from, uint32_t to, bool all, const most *m)
{
    const zx_bound_facts *f = w->f;
    const bool first = from == ORIGIN;
    window x = {.compute = zx_bound_at(f, to) + f->lead, .gathered = gathered(w, from, to)};
    if (!first) {
        x.alone = f->p->seconds[f->cut[from % f->n_cuts]];
        x.compute = zx_bound_at(f, to) - zx_bound_at(f, from) - x.alone;
    }
    if (all)
        x.reduced = zx_bound_wired(f, to) - (first ? 0 : zx_bound_wired(f, from));
    else {
        const double left = to == w->end ? f->end_ready + f->end_pend : f->pend[to % f->n_cuts];
        x.reduced = zx_bound_ready(f, to) - (first ? 0 : zx_bound_ready(f, from)) - left;
    }
    if (x.reduced < 0) x.reduced = 0;
    x.wire = zx_bound_wire(&f->gather, x.gathered, m->gather) +
             zx_bound_wire(&f->reduce, x.reduced, m->reduce);
    x.seconds =
        x.alone * zx_bound_crowd(f) + zx_bound_seconds(f, x.compute, x.wire, x.gathered, x.reduced);
    return x;
}

// ---- launches as wholes -------------------------------------------------------------------------

#define FROM 16 // of a circle's cuts are tried as a beginning
#define TO 4    // each so many of the cuts after it as an end

static double stairs_of(const windows *w, const zx_bound_stairs *s, const zx_bound_rate *r,
                        double compute)
{
    const zx_machine *m = &w->f->p->machine;
    const double slow = m->cores > 0 ? 0 : m->interference / (1 + m->interference);
    return zx_bound_stairs_seconds(s, r, compute, slow);
}

static double beside(const zx_bound_facts *f)
{
    return f->p->machine.cores > 0 ? 1 : 1 / (1 + f->p->machine.interference);
}

// Gathers up to the start of step x, from that of step `from`, or from the origin. Places are cuts,
// backwards from x: what compute has left there; the bytes that are gathered after the cut before.
static double whole_gathers(const windows *w, uint32_t from, uint32_t x, double room,
                            double *scratch)
{
    const zx_bound_facts *f = w->f;
    const uint32_t n = from == ORIGIN ? x + 1 : x - from;
    const table *t = from == ORIGIN ? &w->cold : &w->from[from];
    double *seconds = scratch, *bytes = scratch + n;
    const double total = t->bytes[from == ORIGIN ? x : x - from];
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t at = x - k;
        seconds[k] = zx_bound_at(f, x) - zx_bound_at(f, at);
        bytes[k] = total - t->bytes[from == ORIGIN ? at : at - from];
    }
    const double alone = from == ORIGIN ? 0 : f->p->seconds[f->cut[from]];
    const double compute = from == ORIGIN ? zx_bound_at(f, x) + f->lead
                                          : zx_bound_at(f, x) - zx_bound_at(f, from) - alone;
    const zx_bound_stairs s = {n, seconds, bytes, total, room, beside(f)};
    return alone + stairs_of(w, &s, &f->gather, compute);
}

// Reduces from the start of step i to the end. Places are cuts, forwards: the compute before what
// becomes whole after the cut, and the bytes that are whole up to it.
static double whole_reduces(const windows *w, uint32_t i, double room, double *scratch)
{
    const zx_bound_facts *f = w->f;
    const uint32_t n = w->end - i + 1;
    const double alone = f->p->seconds[f->cut[i % f->n_cuts]];
    const double since = zx_bound_at(f, i) + alone, before = zx_bound_wired(f, i);
    double *seconds = scratch, *bytes = scratch + n;
    for (uint32_t k = 0; k < n; k++) {
        const uint32_t at = i + k;
        const double its = at < w->end ? f->p->seconds[f->cut[at % f->n_cuts]] : 0;
        seconds[k] = fmax(0, zx_bound_at(f, at) + its - since);
        bytes[k] = zx_bound_wired(f, at) - (at == w->end ? f->end_wired : 0) - before;
    }
    const zx_bound_stairs s = {n,    seconds,  bytes, zx_bound_wired(f, w->end) - before,
                               room, beside(f)};
    return alone + stairs_of(w, &s, &f->reduce, fmax(0, zx_bound_at(f, w->end) - since));
}

// Boundaries of slots: 0 is the origin, x + 1 the start of line step x, end + 2 that all is
// reduced.
static double gathered_between(const void *of, uint32_t from, uint32_t to)
{
    const windows *w = of;
    const uint32_t last = to - 1 < w->end ? to - 1 : w->end;
    if (from > last) return 0;
    return gathered(w, from == 0 ? ORIGIN : from - 1, last);
}

static double reduced_between(const void *of, uint32_t from, uint32_t to)
{
    const windows *w = of;
    const zx_bound_facts *f = w->f;
    const uint32_t x = from - 1, y = to - 1;
    if (x == w->end) return f->end_wired;
    if (y > w->end) return zx_bound_wired(f, w->end) - zx_bound_wired(f, x);
    const double left = y == w->end ? f->end_ready + f->end_pend : f->pend[y % f->n_cuts];
    return zx_bound_ready(f, y) - zx_bound_ready(f, x) - left;
}

typedef struct layers { // of a window that grows at one end; by share of compute
    const windows *w;
    const zx_bound_costs *costs;
    zx_bound_pile gather[ZX_BOUND_SHARES + 1], reduce[ZX_BOUND_SHARES + 1];
} layers;

static void layers_make(const windows *w, const zx_bound_costs *costs, layers *out)
{
    out->w = w;
    out->costs = costs;
    for (uint32_t s = 0; s <= ZX_BOUND_SHARES; s++) {
        out->gather[s] = (zx_bound_pile){.of = w, .bytes = gathered_between};
        out->reduce[s] = (zx_bound_pile){.of = w, .bytes = reduced_between};
        out->gather[s].runs = ZX_NEW(w->f->mem, zx_bound_run, (size_t)w->end + 3);
        out->reduce[s].runs = ZX_NEW(w->f->mem, zx_bound_run, (size_t)w->end + 3);
    }
}

static void layers_start(layers *l, uint32_t boundary)
{
    for (uint32_t s = 0; s <= ZX_BOUND_SHARES; s++) {
        zx_bound_pile_start(&l->gather[s], boundary);
        zx_bound_pile_start(&l->reduce[s], boundary);
    }
}

// The slot between two boundaries, the second of which is the window's new end.
static void layers_add(layers *l, uint32_t from, uint32_t to)
{
    const windows *w = l->w;
    const uint32_t at = from < to ? from : to, slot = (at + w->f->n_cuts - 1) % w->f->n_cuts;
    for (uint32_t s = 0; s <= ZX_BOUND_SHARES; s++) {
        if (at == 0) { // nothing is reduced there
            zx_bound_pile_add(&l->gather[s], l->costs->first[s], to);
            if (from < to) zx_bound_pile_start(&l->reduce[s], to);
        } else if (at > w->end) { // nothing is gathered there
            zx_bound_pile_add(&l->reduce[s], l->costs->last[s], to);
            if (to < from) zx_bound_pile_start(&l->gather[s], to);
        } else {
            zx_bound_pile_add(&l->gather[s], l->costs->gather[s][slot], to);
            zx_bound_pile_add(&l->reduce[s], l->costs->reduce[s][slot], to);
        }
    }
}

static double layers_seconds(const layers *l, double compute)
{
    double best = 0;
    for (uint32_t s = 0; s <= ZX_BOUND_SHARES; s++)
        best = fmax(best, compute * s / ZX_BOUND_SHARES + zx_bound_pile_sum(&l->gather[s]) +
                              zx_bound_pile_sum(&l->reduce[s]));
    return best;
}

// From some cuts to some of those of the next circle's length.
static void find_inside(windows *w, layers *l, double *scratch)
{
    const zx_bound_facts *f = w->f;
    const uint32_t k = f->n_cuts, each = k / FROM + 1;
    w->whole.inside = ZX_NEW(f->mem, double *, k);
    if (f->micros == 1 && k < FROM) return;
    for (uint32_t i = 0; i < k; i += each) {
        most m = {0};
        const uint32_t far = f->micros > 1 ? k : k - 1 - i;
        w->whole.inside[i] = ZX_NEW(f->mem, double, k + 1);
        layers_start(l, i + 1);
        for (uint32_t d = 1; d <= far; d++) {
            widen(f, (i + d - 1) % k, &m);
            layers_add(l, i + d, i + d + 1);
            if (d % TO != 0 || i + d == w->end) continue;
            const window v = window_of(w, i, i + d, false, &m);
            if (v.wire < v.compute / 2) continue;
            double *out = &w->whole.inside[i][d];
            *out = v.alone + layers_seconds(l, v.compute);
            if (v.gathered > 0) *out = fmax(*out, whole_gathers(w, i, i + d, m.gather, scratch));
        }
    }
}

// To the end, from all cuts of the last circle and some of those before.
static void find_end(windows *w, layers *l, double *scratch)
{
    const zx_bound_facts *f = w->f;
    const uint32_t k = f->n_cuts;
    most m = {.reduce = f->end_most};
    w->whole.end = ZX_NEW(f->mem, double, w->end + 1);
    layers_start(l, w->end + 2);
    layers_add(l, w->end + 2, w->end + 1);
    for (uint32_t d = 1; d <= w->end; d++) {
        widen(f, (w->end - d) % k, &m);
        layers_add(l, w->end + 2 - d, w->end + 1 - d);
        if (d > k && d % (4 * TO) != 0) continue;
        const window v = window_of(w, w->end - d, w->end, true, &m);
        w->whole.end[d] = v.alone + layers_seconds(l, v.compute);
        if (d > k || f->p->n_grads == 0) continue;
        w->whole.end[d] = fmax(w->whole.end[d], whole_reduces(w, w->end - d, m.reduce, scratch));
    }
}

// From the origin, to all cuts of the first circle, and to the end. What the updates have the cores
// for isn't limited by room: it isn't counted.
static void find_cold(windows *w, layers *l, double *scratch)
{
    const zx_bound_facts *f = w->f;
    most m = {.gather = (double)f->cap[0]};
    w->whole.cold = ZX_NEW(f->mem, double, f->n_cuts);
    layers_start(l, 0);
    for (uint32_t x = 0; x <= w->end; x++) {
        layers_add(l, x, x + 1);
        if (x > 0) widen(f, (x - 1) % f->n_cuts, &m);
        if (x >= f->n_cuts) continue;
        const window v = window_of(w, ORIGIN, x, false, &m);
        w->whole.cold[x] = layers_seconds(l, v.compute - f->lead);
        if (f->p->n_reads > 0)
            w->whole.cold[x] =
                fmax(w->whole.cold[x], whole_gathers(w, ORIGIN, x, m.gather, scratch));
    }
    layers_add(l, w->end + 1, w->end + 2);
    m.reduce = fmax(m.reduce, f->end_most);
    w->whole.line = layers_seconds(l, window_of(w, ORIGIN, w->end, true, &m).compute - f->lead);
}

static void find_wholes(windows *w)
{
    const zx_bound_facts *f = w->f;
    double *scratch = ZX_NEW(f->mem, double, 2 * (size_t)f->n_cuts + 4);
    zx_bound_beside b;
    zx_bound_costs costs;
    layers l;
    if (f->p->ranks == 1) return;
    zx_bound_beside_make(f, &b);
    zx_bound_costs_make(f, &b, &costs);
    layers_make(w, &costs, &l);
    find_cold(w, &l, scratch);
    find_end(w, &l, scratch);
    if (f->p->n_reads > 0) find_inside(w, &l, scratch);
}

// ---- the chain ----------------------------------------------------------------------------------

typedef struct link { // the best chain up to the start of a step
    double seconds;
    uint32_t from; // its last window's
    window last;
} link;

static void offer(const link *all, uint32_t from, const window *v, link *to)
{
    const double seconds = (from == ORIGIN ? 0 : all[from].seconds) + v->seconds;
    if (to->last.seconds >= 0 && seconds <= to->seconds * (1 + 1e-12)) return;
    *to = (link){seconds, from, *v};
}

// Windows up to x: from each cut of some circles before, and from the origin; to the end, from all.
// Of equal ones the shortest, so that what binds is told apart from what doesn't. `upto`: the most
// on the whole way.
static void extend(const windows *w, link *links, uint32_t x, bool all, most upto)
{
    const zx_bound_facts *f = w->f;
    const uint32_t far = CIRCLES * f->n_cuts, stop = x > far && x < w->end ? x - far : 0;
    most m = {.reduce = all ? f->end_most : 0};
    link *to = &links[x + all];
    *to = (link){.last = {.seconds = -1}};
    for (uint32_t i = x; i-- > stop;) {
        widen(f, i % f->n_cuts, &m);
        window v = window_of(w, i, x, all, &m);
        const double *whole =
            x == w->end || w->whole.inside == NULL ? NULL : w->whole.inside[i % f->n_cuts];
        if (all && w->whole.end != NULL) v.seconds = fmax(v.seconds, w->whole.end[x - i]);
        if (whole != NULL && x - i <= f->n_cuts) v.seconds = fmax(v.seconds, whole[x - i]);
        offer(links, i, &v, to);
    }
    window v = window_of(w, ORIGIN, x, all, &upto);
    if (x < f->n_cuts && w->whole.cold != NULL) v.seconds = fmax(v.seconds, w->whole.cold[x]);
    if (all) v.seconds = fmax(v.seconds, w->whole.line);
    offer(links, ORIGIN, &v, to);
}

// By line index; then for the moment at which the last step is over, and for the end.
static link *make_chain(const windows *w)
{
    const zx_bound_facts *f = w->f;
    link *links = ZX_NEW(f->mem, link, w->end + 2);
    most upto = {.gather = (double)f->cap[0]};
    for (uint32_t x = 0; x <= w->end; x++) {
        if (x > 0) widen(f, (x - 1) % f->n_cuts, &upto);
        extend(w, links, x, false, upto);
    }
    extend(w, links, w->end, true, upto);
    const double late = zx_bound_wire(&f->reduce, f->end_wired, f->end_most);
    const window v = {.seconds = late, .wire = late, .reduced = f->end_wired};
    offer(links, w->end, &v, &links[w->end + 1]);
    return links;
}

// ---- what binds ---------------------------------------------------------------------------------

static int64_t position(const zx_bound_facts *f, uint32_t x)
{
    return (int64_t)(x / f->n_cuts) * f->n + f->cut[x % f->n_cuts];
}

static bool by_wire(const window *v)
{
    return v->wire >= v->seconds * (1 - 1e-9) - v->alone;
}

// Neighbours that the same binds are one; where there are too many, the shortest are left out.
static void put_spans(const windows *w, const link *links, zx_bound *out)
{
    const zx_bound_facts *f = w->f;
    zx_bound_span *spans = ZX_NEW(f->mem, zx_bound_span, w->end + 2);
    uint32_t n = 0;
    for (uint32_t to = w->end + 1; to != ORIGIN; to = links[to].from) {
        const window *v = &links[to].last;
        const int64_t from = links[to].from == ORIGIN ? 0 : position(f, links[to].from);
        if (v->seconds <= 0) continue;
        if (n > 0 && spans[n - 1].wire == by_wire(v)) {
            spans[n - 1].from = from;
            spans[n - 1].seconds += v->seconds;
        } else
            spans[n++] = (zx_bound_span){from, position(f, to > w->end ? w->end : to), by_wire(v),
                                         v->seconds};
    }
    while (n > ZX_BOUND_SPANS) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < n; i++)
            if (spans[i].seconds < spans[least].seconds) least = i;
        memmove(spans + least, spans + least + 1, (n - least - 1) * sizeof *spans);
        n--;
    }
    out->n_spans = n;
    for (uint32_t i = 0; i < n; i++) out->spans[i] = spans[n - 1 - i];
}

// Before compute can go on, and after it has nothing left; they add up where they don't overlap.
static void put_ends(const windows *w, zx_bound *out)
{
    const zx_bound_facts *f = w->f;
    uint32_t until = 0, since = 0;
    most m = {.gather = (double)f->cap[0]};
    for (uint32_t x = 0; x < w->end; x++) {
        if (x > 0) widen(f, (x - 1) % f->n_cuts, &m);
        const window v = window_of(w, ORIGIN, x, false, &m);
        if (v.wire - v.compute <= out->start) continue;
        out->start = v.wire - v.compute;
        until = x;
    }
    m = (most){.reduce = f->end_most};
    for (uint32_t i = w->end; i-- > 0;) {
        widen(f, i % f->n_cuts, &m);
        const window v = window_of(w, i, w->end, true, &m);
        if (v.wire - v.compute <= out->tail) continue;
        out->tail = v.wire - v.compute;
        since = i;
    }
    out->path = zx_bound_at(f, w->end) + f->lead + f->p->after +
                (until <= since ? out->start + out->tail : fmax(out->start, out->tail));
}

static void put_totals(const windows *w, zx_bound *out)
{
    const zx_bound_facts *f = w->f;
    const zx_problem *p = f->p;
    const double part = (double)(p->ranks - 1) / p->ranks, times = p->all_reduce ? 2 : 1;
    most m = {.gather = (double)f->cap[0]};
    double once = 0;
    bool *seen = ZX_NEW(f->mem, bool, p->n_units + 1);
    for (uint32_t k = 0; k < f->n_cuts; k++) widen(f, k, &m);
    for (uint32_t r = 0; r < p->n_reads; r++) {
        if (!seen[p->reads[r].unit]) once += (double)f->size[p->reads[r].unit];
        seen[p->reads[r].unit] = true;
    }
    const window all = window_of(w, ORIGIN, w->end, true, &m);
    const zx_bound_rate *g = &f->gather, *r = &f->reduce;
    out->wire = all.wire + p->after;
    out->compute = zx_bound_compute(f, all.compute, all.wire, all.gathered, all.reduced) + p->after;
    out->moving = g->core * all.gathered + r->core * all.reduced;
    out->launches = (uint32_t)(zx_bound_launches(all.gathered, m.gather) +
                               zx_bound_launches(all.reduced, m.reduce));
    out->latency = all.wire - zx_bound_wire(g, all.gathered, 0) - zx_bound_wire(r, all.reduced, 0);
    out->wire_bytes = (uint64_t)((all.gathered + times * all.reduced) * part);
    out->regather_bytes = (uint64_t)((all.gathered - once) * part);
}

void zx_bound_wholes_make(const zx_bound_facts *f, zx_bound_wholes *out)
{
    windows w = {.f = f, .end = f->n_cuts * f->micros};
    scan_all(&w);
    find_wholes(&w);
    *out = w.whole;
}

void zx_bound_chain(const zx_bound_facts *f, zx_bound *out)
{
    windows w = {.f = f, .end = f->n_cuts * f->micros};
    scan_all(&w);
    find_wholes(&w);
    const link *links = make_chain(&w);
    put_totals(&w, out);
    put_ends(&w, out);
    put_spans(&w, links, out);
    out->chain = links[w.end + 1].seconds + f->p->after;
    out->seconds = out->chain;
}

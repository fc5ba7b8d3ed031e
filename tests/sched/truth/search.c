// search.c - every solution of a tiny problem, the dumb way.
//
// For every choice of what stays between two reads: launches are laid on the wire one after the
// other, each time any subset of the gathers that are left or any subset of the gradients, a
// gather from every position on that it may start at, a reduce until every position up to which
// its bytes may be held. Nothing is assumed about orders, sizes or neighbours. What is left out
// can't be better:
//
// - The simulator is monotone where nobody pays for sleeping (handoff 0): with the same order on
//   the wire, a launch that may start earlier, is shorter or is missing, and a wait that comes
//   later, never make a step longer. Compute that is slowed down by the wire loses for each launch
//   what it would lose at any other time; cores that are shared do the same work. The tests show it
//   on all solutions of smaller problems (test_search.c).
// - So a beginning whose bytes exceed the limit is left (bytes only ever come on top), and so is
// one
//   of which a lower bound of time is no better than the best so far (`bound`).
// - Bytes of a gather are free right after its last read: to hold them on only takes room.
// - A unit is never gathered again by the time it leaves: to keep it takes no more room then.
// - Launches go in their order: one behind a gather with a later gate may as well have that gate.
//   Behind a reduce it may have the gate one position before the reduce's (at the position itself
//   compute may first wait for reduces).
// - A step that reads waits for the whole launch, so for its first read.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/sched/truth/truth.h"

#define MOST 8 // gathers, reduces

typedef struct gather {
    uint32_t unit;
    int64_t first, read, gone; // gates are at `first` or later
} gather;

typedef struct gradient {
    uint32_t grad, micro;
    int64_t ready, spare, latest; // in the line
} gradient;

typedef struct takes { // seconds of a launch
    double alone, core;
} takes;

typedef struct launch {
    bool reduce;
    uint32_t set; // of gathers, of reduces
    int64_t gate, over;
    double end; // it isn't done before
} launch;

typedef struct clock { // compute has come to `at`, and past the waits for reduces there
    int64_t at;
    bool freed;
    double now;
} clock;

typedef struct left { // what a beginning leaves to be done
    uint32_t gathers, reduces;
    int64_t gate, reduced;      // the latest gate of a gather; of a reduce
    uint64_t bytes[TRUTH_LINE]; // alive at least
    uint64_t elements[TRUTH_LINE];
    clock compute;            // at the last gate
    double wire, alone, core; // when the wire is free; that launches took so far
} left;

typedef struct search {
    const zx_problem *p;
    zx_arena *mem;
    truth_found *found;
    int64_t end;
    double seconds[TRUTH_LINE], all; // of compute
    uint32_t n_gathers, n_reduces, n_launches;
    gather gathers[MOST];
    gradient reduces[MOST];
    takes gather_takes[1 << MOST], reduce_takes[1 << MOST]; // by set, in one launch
    launch launches[TRUTH_MOVES];
} search;

static void lay_next(search *s, const left *l);

// ---- a lower bound ------------------------------------------------------------------------------

static void wait_for(const search *s, clock *c, bool reduce)
{
    for (uint32_t i = 0; i < s->n_launches; i++)
        if (s->launches[i].reduce == reduce && s->launches[i].over == c->at)
            c->now = fmax(c->now, s->launches[i].end);
}

// All that compute waits for on its way is laid.
static void come_to(const search *s, clock *c, int64_t to, bool freed)
{
    for (;; c->at++, c->freed = false) {
        if (c->at > to || (c->at == to && (c->freed || !freed))) return;
        if (!c->freed) wait_for(s, c, true);
        c->freed = true;
        if (c->at == to) return;
        wait_for(s, c, false);
        c->now += s->seconds[c->at];
    }
}

static uint32_t gathers_until(const search *s, uint32_t set, int64_t read)
{
    uint32_t of = 0;
    for (uint32_t i = 0; i < s->n_gathers; i++)
        if ((set >> i & 1) != 0 && s->gathers[i].read <= read) of |= 1u << i;
    return of;
}
static uint32_t reduces_until(const search *s, uint32_t set, int64_t latest)
{
    uint32_t of = 0;
    for (uint32_t i = 0; i < s->n_reduces; i++)
        if ((set >> i & 1) != 0 && s->reduces[i].latest <= latest) of |= 1u << i;
    return of;
}
static uint32_t reduces_from(const search *s, uint32_t set, int64_t ready)
{
    uint32_t of = 0;
    for (uint32_t i = 0; i < s->n_reduces; i++)
        if ((set >> i & 1) != 0 && s->reduces[i].ready >= ready) of |= 1u << i;
    return of;
}

// What is left goes over the wire after what is laid, in as many launches as it likes: several take
// no less time than one (latency is paid once, rates don't fall with size). Without interference.
static double bound_line(const search *s, const left *l)
{
    clock c = l->compute;
    const takes *g = s->gather_takes, *r = s->reduce_takes;
    double least = l->wire + g[l->gathers].alone + r[l->reduces].alone;
    for (;; c.at++, c.freed = false) {
        if (!c.freed) {
            const uint32_t whole = reduces_from(s, l->reduces, c.at);
            if (whole != 0) least = fmax(least, fmax(l->wire, c.now) + r[whole].alone);
            const uint32_t due = reduces_until(s, l->reduces, c.at);
            if (due != 0) c.now = fmax(c.now, l->wire + r[due].alone);
            wait_for(s, &c, true);
        }
        if (c.at == s->end) return fmax(least, c.now);
        const uint32_t due = gathers_until(s, l->gathers, c.at);
        if (due != 0) c.now = fmax(c.now, l->wire + g[due].alone);
        wait_for(s, &c, false);
        c.now += s->seconds[c.at];
    }
}

// Compute beside the wire is slower, or shares cores with it.
static double bound(const search *s, const left *l)
{
    const zx_machine *m = &s->p->machine;
    const takes *g = &s->gather_takes[l->gathers], *r = &s->reduce_takes[l->reduces];
    double least = bound_line(s, l);
    if (m->cores > 0)
        least = fmax(least, (s->all * m->threads + l->core + g->core + r->core) / m->cores);
    else
        least = fmax(least, s->all + (l->alone + g->alone + r->alone) * m->interference /
                                         (1 + m->interference));
    return least + s->p->after;
}

static bool fits(const search *s, const left *l)
{
    for (int64_t q = 0; q < s->end; q++)
        if (l->bytes[q] > s->p->limit || (s->p->max_live > 0 && l->elements[q] > s->p->max_live))
            return false;
    return true;
}

// ---- what is found ------------------------------------------------------------------------------

static void write_down(const search *s, zx_arena *mem, zx_solution *out)
{
    zx_move *moves = ZX_NEW(mem, zx_move, TRUTH_MOVES);
    zx_part *parts = ZX_NEW(mem, zx_part, TRUTH_PARTS);
    *out = (zx_solution){.n_moves = s->n_launches, .moves = moves, .parts = parts};
    for (uint32_t i = 0; i < s->n_launches; i++) {
        const launch *x = &s->launches[i];
        moves[i] = (zx_move){x->reduce, out->n_parts, 0, x->gate, x->over};
        for (uint32_t k = 0; k < MOST; k++) {
            if ((x->set >> k & 1) == 0) continue;
            const gather *a = &s->gathers[k];
            const gradient *b = &s->reduces[k];
            parts[out->n_parts++] =
                x->reduce ? (zx_part){b->grad, b->micro, 0} : (zx_part){a->unit, 0, a->gone};
            moves[i].n++;
        }
    }
}

static void finish(search *s)
{
    const zx_mark scratch = zx_arena_mark(s->mem);
    zx_solution made;
    write_down(s, s->mem, &made);
    const double seconds = truth_price(s->p, &made, s->mem);
    zx_arena_rewind(s->mem, scratch);
    s->found->runs++;
    if (seconds >= s->found->seconds) return;
    s->found->seconds = seconds;
    write_down(s, s->mem, &s->found->best);
}

// ---- laying launches on the wire ----------------------------------------------------------------

static void lay(search *s, left *l, launch x)
{
    const takes *t = x.reduce ? &s->reduce_takes[x.set] : &s->gather_takes[x.set];
    s->found->seen++;
    come_to(s, &l->compute, x.gate, !x.reduce);
    l->wire = fmax(l->wire, l->compute.now) + t->alone;
    l->alone += t->alone;
    l->core += t->core;
    x.end = l->wire;
    s->launches[s->n_launches++] = x;
    if (bound(s, l) < s->found->seconds * (1 - 1e-10)) {
        if (l->gathers == 0 && l->reduces == 0)
            finish(s);
        else
            lay_next(s, l);
    }
    s->n_launches--;
}

static void lay_gathers(search *s, const left *l, uint32_t set)
{
    int64_t from = l->gate > l->reduced - 1 ? l->gate : l->reduced - 1, over = s->end;
    for (uint32_t i = 0; i < s->n_gathers; i++) {
        if ((set >> i & 1) == 0) continue;
        if (s->gathers[i].first > from) from = s->gathers[i].first;
        if (s->gathers[i].read < over) over = s->gathers[i].read;
    }
    if (s->p->no_overlap && over > from) from = over;
    if (over < l->reduced) return; // compute waits here for what waits for compute
    for (int64_t gate = from; gate <= over; gate++) {
        left next = *l;
        next.gathers &= ~set;
        next.gate = gate;
        if (gate > 0 && (gathers_until(s, next.gathers, gate - 1) != 0 ||
                         reduces_until(s, next.reduces, gate) != 0))
            return; // what is left comes too late behind this one
        for (uint32_t i = 0; i < s->n_gathers; i++) {
            const gather *a = &s->gathers[i];
            for (int64_t q = gate; q < a->read && (set >> i & 1) != 0; q++) {
                next.bytes[q] += s->p->unit_bytes[a->unit];
                next.elements[q] += s->p->unit_elements[a->unit];
            }
        }
        if (fits(s, &next)) lay(s, &next, (launch){false, set, gate, over, 0});
    }
}

// Whether the bytes of reduce `of` are counted at a step by another one of the same place.
static bool counted(const search *s, uint32_t of, uint32_t set, int64_t q)
{
    const uint32_t storage = s->p->grads[s->reduces[of].grad].storage;
    for (uint32_t i = 0; i <= s->n_launches; i++) {
        const bool self = i == s->n_launches;
        if (!self && (!s->launches[i].reduce || q >= s->launches[i].over)) continue;
        const uint32_t others = self ? set & ((1u << of) - 1) : s->launches[i].set;
        for (uint32_t k = 0; k < s->n_reduces; k++)
            if ((others >> k & 1) != 0 && storage != ZX_NONE && q >= s->reduces[k].spare &&
                s->p->grads[s->reduces[k].grad].storage == storage)
                return true;
    }
    return false;
}

static bool may_share(const search *s, uint32_t set)
{
    uint64_t elements = 0;
    uint32_t n = 0, micro = ZX_NONE;
    for (uint32_t i = 0; i < s->n_reduces; i++) {
        if ((set >> i & 1) == 0) continue;
        if (n++ > 0 && s->reduces[i].micro != micro) return false; // to be written, or added
        micro = s->reduces[i].micro;
        elements += s->p->unit_elements[s->p->grads[s->reduces[i].grad].unit];
    }
    return n == 1 || s->p->max_reduce == 0 || elements <= s->p->max_reduce;
}

static void lay_reduces(search *s, const left *l, uint32_t set)
{
    int64_t gate = 0, latest = s->end;
    for (uint32_t i = 0; i < s->n_reduces; i++) {
        if ((set >> i & 1) == 0) continue;
        if (s->reduces[i].ready > gate) gate = s->reduces[i].ready;
        if (s->reduces[i].latest < latest) latest = s->reduces[i].latest;
    }
    if (!may_share(s, set)) return;
    int64_t from = gate; // compute must have come to all gates before it waits for this one
    if (l->reduced > from) from = l->reduced;
    if (l->gate + 1 > from) from = l->gate + 1;
    if (s->p->no_overlap && latest > gate) latest = gate;
    for (int64_t over = latest; over >= from; over--) {
        left next = *l;
        next.reduces &= ~set;
        if (gate > next.reduced) next.reduced = gate;
        if (gathers_until(s, next.gathers, gate - 1) != 0 ||
            reduces_until(s, next.reduces, gate - 1) != 0)
            return;
        for (uint32_t i = 0; i < s->n_reduces; i++)
            for (int64_t q = s->reduces[i].spare; q < over && (set >> i & 1) != 0; q++)
                if (!counted(s, i, set, q)) next.bytes[q] += s->p->grads[s->reduces[i].grad].bytes;
        if (fits(s, &next)) lay(s, &next, (launch){true, set, gate, over, 0});
    }
}

static void lay_next(search *s, const left *l)
{
    for (uint32_t set = l->gathers & -l->gathers; set != 0; set = (set - l->gathers) & l->gathers)
        lay_gathers(s, l, set);
    for (uint32_t set = l->reduces & -l->reduces; set != 0; set = (set - l->reduces) & l->reduces)
        lay_reduces(s, l, set);
}

// ---- what stays ---------------------------------------------------------------------------------

static uint32_t find_reads(const zx_problem *p, uint32_t unit, int64_t *reads)
{
    uint32_t n = 0;
    for (int64_t q = 0; q < zx_problem_end(p); q++)
        for (uint32_t r = 0; r < p->n_reads; r++)
            if (p->reads[r].unit == unit && p->reads[r].step == q % p->n_steps) reads[n++] = q;
    return n;
}

// The gathers where of all times between two reads of a unit those in `kept` are kept. False: no
// solution has these.
static bool make_gathers(search *s, uint32_t kept)
{
    int64_t reads[TRUTH_LINE];
    uint32_t gap = 0;
    s->n_gathers = 0;
    for (uint32_t u = 0; u < s->p->n_units; u++) {
        const uint32_t n = find_reads(s->p, u, reads);
        const bool pinned = s->p->pinned != NULL && s->p->pinned[u];
        for (uint32_t k = 0; k < n; k++) {
            if (k > 0 && (kept >> gap++ & 1) != 0) {
                s->gathers[s->n_gathers - 1].gone = reads[k] + 1;
                continue;
            }
            if (k > 0 && (pinned || reads[k] == reads[k - 1] + 1)) return false;
            ZX_ASSERT(s->n_gathers < MOST);
            s->gathers[s->n_gathers++] =
                (gather){u, k > 0 ? reads[k - 1] + 2 : 0, reads[k], reads[k] + 1};
        }
        if (pinned && n > 0) s->gathers[s->n_gathers - 1].gone = s->end;
    }
    return true;
}

static void make_reduces(search *s)
{
    const int64_t n = s->p->n_steps;
    for (uint32_t m = 0; m < s->p->micro_batches; m++)
        for (uint32_t g = 0; g < s->p->n_grads; g++) {
            const zx_grad *x = &s->p->grads[g];
            ZX_ASSERT(s->n_reduces < MOST);
            const int64_t latest = x->latest + n * m;
            s->reduces[s->n_reduces++] = (gradient){g, m, x->ready + n * m, x->spare + n * m,
                                                    latest < s->end ? latest : s->end};
        }
}

static takes seconds_of(const search *s, bool reduce, uint64_t bytes)
{
    const zx_machine *m = &s->p->machine;
    const zx_collective what = !reduce            ? ZX_ALL_GATHER
                               : s->p->all_reduce ? ZX_ALL_REDUCE
                                                  : ZX_REDUCE_SCATTER;
    const double wire = zx_wire_seconds(m, what, s->p->ranks, bytes);
    const double core = zx_core_seconds(m, what, s->p->ranks, bytes);
    return m->cores > 0 ? (takes){fmax(wire, core), core} : (takes){wire + core, 0};
}

static void find_seconds(search *s, bool reduce)
{
    const uint32_t n = reduce ? s->n_reduces : s->n_gathers;
    for (uint32_t set = 1; set < 1u << n; set++) {
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < n; i++)
            if ((set >> i & 1) != 0)
                bytes += s->p->unit_wire[reduce ? s->p->grads[s->reduces[i].grad].unit
                                                : s->gathers[i].unit];
        (reduce ? s->reduce_takes : s->gather_takes)[set] = seconds_of(s, reduce, bytes);
    }
}

// The empty beginning. False: it doesn't fit.
static bool start(search *s, uint32_t kept, left *out)
{
    if (!make_gathers(s, kept)) return false;
    find_seconds(s, false);
    *out = (left){
        .gathers = (1u << s->n_gathers) - 1, .reduces = (1u << s->n_reduces) - 1, .gate = -1};
    for (int64_t q = 0; q < s->end; q++) out->bytes[q] = s->p->base[q % s->p->n_steps];
    for (uint32_t i = 0; i < s->n_gathers; i++)
        for (int64_t q = s->gathers[i].read; q < s->gathers[i].gone; q++) {
            out->bytes[q] += s->p->unit_bytes[s->gathers[i].unit];
            out->elements[q] += s->p->unit_elements[s->gathers[i].unit];
        }
    return fits(s, out);
}

void truth_search(const zx_problem *p, zx_arena *mem, truth_found *out)
{
    ZX_ASSERT(p->handoff == 0 && zx_problem_end(p) <= TRUTH_LINE);
    *out = (truth_found){.seconds = TRUTH_NEVER};
    search s = {.p = p, .mem = mem, .found = out, .end = zx_problem_end(p)};
    for (int64_t q = 0; q < s.end; q++) s.all += s.seconds[q] = p->seconds[q % p->n_steps];
    make_reduces(&s);
    find_seconds(&s, true);
    uint32_t gaps = 0;
    for (uint32_t u = 0; u < p->n_units; u++) {
        int64_t reads[TRUTH_LINE];
        const uint32_t n = find_reads(p, u, reads);
        if (n > 0) gaps += n - 1;
    }
    // Those with the least bound first.
    double bounds[1 << MOST];
    for (uint32_t kept = 0; kept < 1u << gaps; kept++) {
        left l;
        bounds[kept] = start(&s, kept, &l) ? bound(&s, &l) : TRUTH_NEVER;
    }
    for (;;) {
        uint32_t best = 0;
        for (uint32_t kept = 0; kept < 1u << gaps; kept++)
            if (bounds[kept] < bounds[best]) best = kept;
        left l;
        if (bounds[best] >= out->seconds * (1 - 1e-10)) return;
        bounds[best] = TRUTH_NEVER;
        if (start(&s, best, &l)) lay_next(&s, &l);
    }
}

// solve_exact.c - small problems: the best solution there is, by branch and bound.
//
// Every choice of what stays between two reads is looked at, that with the least bound first. Then
// time is walked through as in solve_list.c, but where the wire is free every set of gathers that
// has room is tried, every set of gradients that are whole, and to leave the wire free; where a
// reduce is on the wire, also that compute waits for its bytes. The gate of a gather is where
// compute is when it begins. A reduce is over at the next position that compute comes to after it,
// which costs nothing.
//
// First launches are only those in order of use; what they find prunes the rest. Work is counted in
// what is tried, never in seconds: the same problem has the same solution. Times are those of a
// host that never sleeps (handoff 0); what is found is priced as it is.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "sched/solve.h"

#define MOST 8       // gathers; reduces
#define STEPS 48     // of the line
#define MOVES 16     // launches
#define USES 64      // reads of the line
#define WORK 1000000 // steps of the line for each launch tried: 50 ms
#define NEVER 1e300
#define LESS (1 - 1e-10) // what isn't less than this of the best isn't better

typedef struct use {      // a read of the line
    int64_t step, before; // before: the read before it of the unit; -1: none
    uint32_t unit, gap;   // gap: the bit that says whether it stays from there; ZX_NONE: it does
} use;

typedef struct gather {
    uint32_t unit;
    int64_t first, read, gone; // gates are at `first` or later
} gather;

typedef struct reduce { // positions of the line
    uint32_t grad, micro;
    int64_t ready, spare, latest;
    int64_t bytes;
    uint32_t same; // those before it with the same bytes
} reduce;

typedef struct launch {
    bool reduce;
    uint32_t set;
    int64_t gate, over;
} launch;

typedef struct state { // a beginning, up to some moment
    zx_clock c;
    int64_t pos; // compute runs this step (`running`) or has come to it
    double work; // that is left of the step
    bool running;
    bool passed;  // the mark that gathers wait for there
    bool waiting; // the wire is left free until the next position
    bool reduces; // what is on the wire
    uint32_t wire;
    uint32_t to_gather, here; // not sent; over
    uint32_t to_reduce, held; // not sent; bytes not given away
    int64_t extra;            // bytes of gradients at the step before
    uint32_t n;
    launch launches[MOVES];
    int64_t load[STEPS], live[STEPS]; // by step: bytes without gradients; elements of units
} state;

typedef struct exact {
    const zx_problem *p;
    int64_t end, limit, live;
    double seconds[STEPS], slower;
    uint32_t n_uses, n_gaps, n_gathers, n_reduces;
    use uses[USES];
    gather gathers[MOST];
    reduce reduces[MOST];
    // Sets by position: gathers that are read there; up to there.
    uint32_t read_at[STEPS + 1], read_by[STEPS + 1];
    // Reduces that are whole up to there; from there on; that are beyond the base there, until they
    // are over; that are over there at the latest.
    uint32_t whole[STEPS + 1], from[STEPS + 1], spare[STEPS + 1], due[STEPS + 1];
    zx_launch_cost cost[2][1 << MOST]; // by set; wire < 0: not known yet
    bool any;                          // launches in any order
    int64_t left;                      // of WORK
    double best;
    uint32_t n_best;
    launch launches[MOVES];
    gather best_gathers[MOST];
} exact;

static void go(exact *x, state *s);

// ---- launches -----------------------------------------------------------------------------------

static uint32_t unit_of(const exact *x, bool reduces, uint32_t i)
{
    return reduces ? x->p->grads[x->reduces[i].grad].unit : x->gathers[i].unit;
}

static zx_launch_cost cost_of(exact *x, bool reduces, uint32_t set)
{
    zx_launch_cost *c = &x->cost[reduces][set];
    if (c->wire >= 0) return *c;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < MOST; i++)
        if ((set >> i & 1) != 0) bytes += x->p->unit_wire[unit_of(x, reduces, i)];
    *c = zx_problem_launch(x->p, reduces, bytes);
    return *c;
}

// Seconds that the wire is busy at least; none for nothing.
static double takes(exact *x, bool reduces, uint32_t set)
{
    if (set == 0) return 0;
    const zx_launch_cost c = cost_of(x, reduces, set);
    return c.wire > c.core ? c.wire : c.core;
}

static int64_t bytes_held(const exact *x, uint32_t held, int64_t at)
{
    const uint32_t set = held & x->spare[at];
    int64_t bytes = 0;
    for (uint32_t i = 0; i < x->n_reduces; i++)
        if ((set >> i & 1) != 0 && (set & x->reduces[i].same) == 0) bytes += x->reduces[i].bytes;
    return bytes;
}

// Whether gathers of a set may begin at a gate, where gradients take `extra` bytes.
static bool has_room(const exact *x, const state *s, uint32_t set, int64_t gate, int64_t extra)
{
    for (int64_t q = gate; q < x->end; q++, extra = 0) {
        int64_t bytes = s->load[q] + extra, elements = s->live[q];
        bool more = false;
        for (uint32_t i = 0; i < x->n_gathers; i++) {
            const gather *g = &x->gathers[i];
            if ((set >> i & 1) == 0 || g->read <= q) continue;
            bytes += (int64_t)x->p->unit_bytes[g->unit];
            elements += (int64_t)x->p->unit_elements[g->unit];
            more = true;
        }
        if (!more) break;
        if (bytes > x->limit || elements > x->live) return false;
    }
    for (uint32_t i = 0; i < x->n_gathers; i++)
        if ((set >> i & 1) != 0 && (x->gathers[i].first > gate || x->gathers[i].read < gate))
            return false;
    return true;
}

// Micro-batches of a gradient in order, a launch of one of them.
static bool may_leave(const exact *x, const state *s, uint32_t set)
{
    uint64_t elements = 0;
    uint32_t n = 0, micro = ZX_NONE;
    for (uint32_t i = 0; i < x->n_reduces; i++) {
        if ((set >> i & 1) == 0) continue;
        if (n++ > 0 && x->reduces[i].micro != micro) return false;
        micro = x->reduces[i].micro;
        elements += x->p->unit_elements[unit_of(x, true, i)];
        for (uint32_t k = 0; k < i; k++)
            if ((s->to_reduce >> k & 1) != 0 && x->reduces[k].grad == x->reduces[i].grad)
                return false;
    }
    return n == 1 || x->p->max_reduce == 0 || elements <= x->p->max_reduce;
}

// ---- a lower bound ------------------------------------------------------------------------------

// Compute's least seconds for `work`, beside `wire` seconds of launches.
static double beside(const exact *x, double work, double wire)
{
    return work + (1 - x->slower) * wire;
}

static double bound_cores(exact *x, const state *s, double work)
{
    double core = s->c.core_left;
    if (s->to_gather != 0) core += cost_of(x, false, s->to_gather).core;
    if (s->to_reduce != 0) core += cost_of(x, true, s->to_reduce).core;
    return s->c.now + (s->c.threads * work + core) / s->c.cores;
}

// Gathers that can't begin before compute is at a position, which it is at `arrives` or later.
static double bound_late(exact *x, uint32_t read, int64_t from, const double *arrives)
{
    double at = 0;
    for (uint32_t i = 0; i < x->n_gathers; i++) {
        const int64_t first = x->gathers[i].first;
        uint32_t set = 0;
        if ((read >> i & 1) == 0 || first < from) continue;
        for (uint32_t k = 0; k < x->n_gathers; k++)
            if ((read >> k & 1) != 0 && x->gathers[k].first >= first) set |= 1u << k;
        at = fmax(at, arrives[first] + takes(x, false, set));
    }
    return at;
}

// What is left goes in as few launches as there may be: several take no less than one.
static double bound(exact *x, const state *s)
{
    const double now = s->c.now;
    const int64_t from = s->pos + s->running;
    double wire = now, at = now, work = s->running ? s->work : 0, all = work, arrives[STEPS + 1];
    for (int64_t q = from; q < x->end; q++) all += x->seconds[q];
    if (s->c.busy) wire = fmax(s->c.wire_end, now + s->c.core_left);
    const double busy = wire - now;
    at += work;
    if (s->waiting && s->running) wire = at;
    const double left = takes(x, false, s->to_gather) + takes(x, true, s->to_reduce);
    double least = fmax(wire + left, now + beside(x, all, busy + left));
    const uint32_t on_gathers = s->c.busy && !s->reduces ? s->wire : 0;
    const uint32_t on_reduces = s->c.busy && s->reduces ? s->wire : 0;
    for (int64_t q = from;; q++) {
        const uint32_t whole = s->to_reduce & x->from[q], due = s->to_reduce & x->due[q];
        arrives[q] = at;
        if (whole != 0) {
            const double t = takes(x, true, whole);
            least = fmax(least, fmax(fmax(wire, at) + t, at + beside(x, all - work, t)));
        }
        if (due != 0 || (on_reduces & x->due[q]) != 0) at = fmax(at, wire + takes(x, true, due));
        if (q == x->end) break;
        const uint32_t read = s->to_gather & x->read_by[q];
        if ((on_gathers & x->read_at[q]) != 0) at = fmax(at, wire);
        if ((read & x->read_at[q]) != 0) {
            const double t = takes(x, false, read);
            at = fmax(at, fmax(wire + t, now + beside(x, work, busy + t)));
            at = fmax(at, bound_late(x, read, from, arrives));
        }
        at += x->seconds[q];
        work += x->seconds[q];
    }
    least = fmax(least, at);
    if (s->c.cores > 0) least = fmax(least, bound_cores(x, s, all));
    return least + x->p->after;
}

// ---- what is found ------------------------------------------------------------------------------

// A solution of launches; arrays have room.
static void put(const exact *x, const launch *l, uint32_t n, const gather *gathers,
                zx_solution *out)
{
    out->n_moves = out->n_parts = 0;
    for (uint32_t i = 0; i < n; i++) {
        zx_move *move = &out->moves[out->n_moves++];
        *move = (zx_move){l[i].reduce, out->n_parts, 0, l[i].gate, l[i].over};
        for (uint32_t k = 0; k < MOST; k++) {
            if ((l[i].set >> k & 1) == 0) continue;
            zx_part *part = &out->parts[out->n_parts++];
            if (l[i].reduce)
                *part = (zx_part){x->reduces[k].grad, x->reduces[k].micro, 0};
            else
                *part = (zx_part){gathers[k].unit, 0, gathers[k].gone};
            move->n++;
        }
    }
}

static double price(const exact *x, const zx_solution *s)
{
    zx_arena mem = {0};
    zx_price price;
    zx_problem_time(x->p, s, &mem, &price);
    zx_arena_free(&mem);
    return price.seconds;
}

static void finish(exact *x, const state *s)
{
    zx_move moves[MOVES];
    zx_part parts[2 * MOST];
    zx_solution made = {.moves = moves, .parts = parts};
    put(x, s->launches, s->n, x->gathers, &made);
    const double seconds = price(x, &made);
    if (seconds >= x->best * LESS) return;
    x->best = seconds;
    x->n_best = s->n;
    memcpy(x->launches, s->launches, sizeof x->launches);
    memcpy(x->best_gathers, x->gathers, sizeof x->gathers);
}

// ---- what goes next -----------------------------------------------------------------------------

static void send(exact *x, const state *was, bool reduces, uint32_t set, int64_t gate, int64_t over)
{
    if (x->left <= 0) return;
    x->left -= x->end;
    state s = *was;
    s.waiting = false;
    s.reduces = reduces;
    s.wire = set;
    s.launches[s.n++] = (launch){reduces, set, gate, over};
    if (reduces)
        s.to_reduce &= ~set;
    else
        s.to_gather &= ~set;
    for (uint32_t i = 0; i < x->n_gathers && !reduces; i++) {
        const gather *g = &x->gathers[i];
        for (int64_t q = gate; q < g->read && (set >> i & 1) != 0; q++) {
            s.load[q] += (int64_t)x->p->unit_bytes[g->unit];
            s.live[q] += (int64_t)x->p->unit_elements[g->unit];
        }
    }
    if (!reduces && gate == s.pos) s.passed = true;
    zx_clock_send(&s.c, cost_of(x, reduces, set));
    if (bound(x, &s) < x->best * LESS) go(x, &s);
}

// In order: all that are left before the last one of a set.
static bool in_order(uint32_t left, uint32_t set)
{
    const uint32_t rest = left & ~set;
    return rest == 0 || set < (rest & -rest);
}

// What had room at the step before, when the wire was left free, went there.
static void send_gathers(exact *x, const state *s, int64_t gate, int64_t extra)
{
    uint32_t can = 0;
    for (uint32_t i = 0; i < x->n_gathers; i++)
        if ((s->to_gather >> i & 1) != 0 && has_room(x, s, 1u << i, gate, extra)) can |= 1u << i;
    for (uint32_t set = can & -can; set != 0; set = (set - can) & can) {
        if (!x->any && !in_order(s->to_gather, set)) continue;
        if (!has_room(x, s, set, gate, extra)) continue;
        if (s->waiting && (gate < s->pos || has_room(x, s, set, gate - 1, s->extra))) continue;
        int64_t over = x->end;
        for (uint32_t i = 0; i < x->n_gathers; i++)
            if ((set >> i & 1) != 0 && x->gathers[i].read < over) over = x->gathers[i].read;
        send(x, s, false, set, gate, over);
    }
}

static void send_reduces(exact *x, const state *s)
{
    const uint32_t can = s->to_reduce & x->whole[s->pos];
    for (uint32_t set = can & -can; set != 0; set = (set - can) & can) {
        if (!x->any && !in_order(s->to_reduce, set)) continue;
        if (s->waiting && (set & ~x->whole[s->pos - 1]) == 0) continue;
        int64_t gate = 0;
        for (uint32_t i = 0; i < x->n_reduces; i++)
            if ((set >> i & 1) != 0 && x->reduces[i].ready > gate) gate = x->reduces[i].ready;
        if (may_leave(x, s, set)) send(x, s, true, set, gate, -1);
    }
}

// The wire is free. drains: compute waits for reduces, and can't do without.
static void decide(exact *x, const state *s, bool drains)
{
    const bool arrives = !s->running && !s->passed && s->pos > 0;
    if (!drains) send_gathers(x, s, s->pos, bytes_held(x, s->held, s->pos));
    send_reduces(x, s);
    // Ahead of a reduce that compute waits for here.
    if (arrives && (drains || (x->any && (s->to_reduce & x->whole[s->pos]) != 0)))
        send_gathers(x, s, s->pos - 1, s->extra);
    if (drains || (!s->running && (s->to_gather & x->read_by[s->pos]) != 0)) return;
    state t = *s;
    t.passed = t.waiting = true;
    go(x, &t);
}

// ---- time ---------------------------------------------------------------------------------------

static void tick(state *s)
{
    double none = 0;
    if (zx_clock_run(&s->c, s->running ? &s->work : &none, NEVER) && !s->reduces)
        s->here |= s->wire;
}

// Bytes of reduces that are over.
static void give_away(state *s)
{
    for (uint32_t i = 0; i + s->c.busy < s->n; i++) {
        launch *l = &s->launches[i];
        if (!l->reduce || l->over >= 0) continue;
        l->over = s->pos;
        s->held &= ~l->set;
    }
}

// Compute has come to a position. False: it goes on from there in other ways.
static bool arrive(exact *x, state *s)
{
    give_away(s);
    const int64_t extra = bytes_held(x, s->held, s->pos);
    const bool drains = s->load[s->pos] + extra > x->limit || (s->held & x->due[s->pos]) != 0;
    const bool starves = (x->read_by[s->pos] & ~s->here) != 0;
    if (!s->c.busy) {
        decide(x, s, drains);
        return false;
    }
    if (drains || starves) { // until the mark is passed reduces may be over here
        tick(s);
        return true;
    }
    if (s->reduces && x->any && s->to_gather != 0 && x->left > 0) {
        state t = *s;
        x->left -= x->end;
        tick(&t);
        if (bound(x, &t) < x->best * LESS) go(x, &t);
    }
    s->passed = true;
    return true;
}

// False: there is no more to do.
static bool run_out(exact *x, state *s)
{
    give_away(s);
    if (s->c.busy) {
        tick(s);
        return true;
    }
    if (s->held == 0)
        finish(x, s);
    else
        send_reduces(x, s);
    return false;
}

static void end_step(const exact *x, state *s)
{
    s->extra = bytes_held(x, s->held, s->pos);
    s->running = s->passed = false;
    s->pos++;
}

static void go(exact *x, state *s)
{
    for (;;) {
        if (s->pos == x->end) {
            if (!run_out(x, s)) return;
            continue;
        }
        if (!s->running && !s->passed) {
            if (!arrive(x, s)) return;
            continue;
        }
        if (!s->running) {
            if ((x->read_by[s->pos] & ~s->here) == 0) {
                s->running = true;
                s->work = x->seconds[s->pos];
            } else if (s->c.busy)
                tick(s);
            else {
                decide(x, s, false);
                return;
            }
            continue;
        }
        if (s->work > 0) {
            if (!s->c.busy && !s->waiting) {
                decide(x, s, false);
                return;
            }
            tick(s);
        }
        if (s->work <= 0) end_step(x, s);
    }
}

// ---- the problem --------------------------------------------------------------------------------

// All reads of the line. False: too many.
static bool find_uses(exact *x)
{
    const zx_problem *p = x->p;
    uint64_t units = 0, elements = 0, grads = 0, n_units = 0;
    for (uint32_t u = 0; u < p->n_units; u++) units += p->unit_bytes[u];
    for (uint32_t u = 0; u < p->n_units; u++) elements += p->unit_elements[u];
    for (uint32_t g = 0; g < p->n_grads; g++) grads += p->micro_batches * p->grads[g].bytes;
    for (uint32_t m = 0; m < p->micro_batches; m++)
        for (uint32_t r = 0; r < p->n_reads; r++) {
            if (x->n_uses == USES) return false;
            use *u = &x->uses[x->n_uses];
            *u = (use){(int64_t)m * p->n_steps + p->reads[r].step, -1, p->reads[r].unit, ZX_NONE};
            for (uint32_t i = 0; i < x->n_uses; i++)
                if (x->uses[i].unit == u->unit) u->before = x->uses[i].step;
            x->n_uses++;
            if (u->before < 0) n_units++;
            if (u->before < 0 || u->before + 1 == u->step) continue;
            if (p->pinned != NULL && p->pinned[u->unit]) continue;
            bool fits = p->max_live == 0 || elements <= p->max_live; // whatever else is there
            for (int64_t q = u->before + 1; q < u->step; q++)
                fits &= p->base[q % p->n_steps] + units + grads <= p->limit;
            if (!fits) u->gap = x->n_gaps++;
        }
    return n_units + x->n_gaps <= MOST;
}

static void find_reduces(exact *x)
{
    const zx_problem *p = x->p;
    for (uint32_t m = 0; m < p->micro_batches; m++)
        for (uint32_t g = 0; g < p->n_grads; g++) {
            const zx_grad *a = &p->grads[g];
            const int64_t base = (int64_t)m * p->n_steps;
            reduce *r = &x->reduces[x->n_reduces];
            *r = (reduce){g, m, base + a->ready, base + a->spare, base + a->latest, 0, 0};
            if (r->latest > x->end) r->latest = x->end;
            if (a->storage != ZX_NONE) r->bytes = (int64_t)a->bytes;
            for (uint32_t i = 0; i < x->n_reduces && a->storage != ZX_NONE; i++)
                if (p->grads[x->reduces[i].grad].storage == a->storage) r->same |= 1u << i;
            for (int64_t q = 0; q <= x->end; q++) {
                const uint32_t bit = 1u << x->n_reduces;
                if (r->ready <= q) x->whole[q] |= bit;
                if (r->ready >= q) x->from[q] |= bit;
                if (r->latest <= q) x->due[q] |= bit;
                if (r->spare <= q) x->spare[q] |= bit;
            }
            x->n_reduces++;
        }
}

static void forget_costs(exact *x, bool reduces)
{
    for (uint32_t set = 0; set < 1u << MOST; set++) x->cost[reduces][set].wire = -1;
}

static bool make(exact *x, const zx_problem *p)
{
    const uint64_t most = (uint64_t)INT64_MAX / 4;
    *x = (exact){.p = p, .end = zx_problem_end(p), .slower = 1, .left = WORK, .best = NEVER};
    if (p->no_overlap || x->end > STEPS || (uint64_t)p->n_grads * p->micro_batches > MOST)
        return false;
    if (!find_uses(x)) return false;
    x->limit = (int64_t)(p->limit < most ? p->limit : most);
    x->live = (int64_t)(p->max_live > 0 ? p->max_live : most);
    if (p->machine.cores <= 0) x->slower = 1 / (1 + p->machine.interference);
    for (int64_t q = 0; q < x->end; q++) x->seconds[q] = p->seconds[q % p->n_steps];
    find_reduces(x);
    forget_costs(x, true);
    return true;
}

// ---- what stays ---------------------------------------------------------------------------------

static void find_gathers(exact *x, uint32_t stays)
{
    const zx_problem *p = x->p;
    x->n_gathers = 0;
    for (uint32_t i = 0; i < x->n_uses; i++) {
        const use *u = &x->uses[i];
        gather *g = NULL;
        if (u->before < 0 || (u->gap != ZX_NONE && (stays >> u->gap & 1) == 0)) {
            g = &x->gathers[x->n_gathers++];
            *g = (gather){u->unit, u->before < 0 ? 0 : u->before + 2, u->step, 0};
        } else
            for (uint32_t k = 0; k < x->n_gathers; k++)
                if (x->gathers[k].unit == u->unit) g = &x->gathers[k];
        g->gone = p->pinned != NULL && p->pinned[u->unit] ? x->end : u->step + 1;
    }
}

// The beginning of what has these stays; false: it doesn't fit.
static bool begin(exact *x, uint32_t stays, state *s)
{
    const zx_problem *p = x->p;
    find_gathers(x, stays);
    forget_costs(x, false);
    *s = (state){.to_gather = (1u << x->n_gathers) - 1, .to_reduce = (1u << x->n_reduces) - 1};
    s->held = s->to_reduce;
    zx_clock_start(&s->c, p);
    for (int64_t q = 0; q < x->end; q++) {
        x->read_at[q] = x->read_by[q] = 0;
        s->load[q] = (int64_t)p->base[q % p->n_steps];
        for (uint32_t i = 0; i < x->n_gathers; i++) {
            const gather *g = &x->gathers[i];
            if (g->read == q) x->read_at[q] |= 1u << i;
            if (g->read <= q) x->read_by[q] |= 1u << i;
            if (g->read > q || g->gone <= q) continue;
            s->load[q] += (int64_t)p->unit_bytes[g->unit];
            s->live[q] += (int64_t)p->unit_elements[g->unit];
        }
        if (s->load[q] > x->limit || s->live[q] > x->live) return false;
    }
    for (uint32_t i = 0; i < x->n_gathers; i++)
        while (!has_room(x, s, 1u << i, x->gathers[i].first, 0)) x->gathers[i].first++;
    return true;
}

// Every choice, the least bound first, while there is work left.
static void try_all(exact *x)
{
    double bounds[1 << MOST];
    state s;
    for (uint32_t stays = 0; stays < 1u << x->n_gaps; stays++)
        bounds[stays] = begin(x, stays, &s) ? bound(x, &s) : NEVER;
    while (x->left > 0) {
        uint32_t best = 0;
        for (uint32_t stays = 1; stays < 1u << x->n_gaps; stays++)
            if (bounds[stays] <= bounds[best]) best = stays; // of equals what stays longer
        if (bounds[best] >= x->best * LESS) return;
        bounds[best] = NEVER;
        begin(x, best, &s);
        go(x, &s);
    }
}

bool zx_solve_exact(const zx_problem *p, zx_arena *mem, bool found, zx_solution *s)
{
    exact x;
    if (!make(&x, p)) return found;
    if (found) x.best = price(&x, s);
    try_all(&x);
    x.any = true;
    try_all(&x);
    if (x.n_best == 0) return found;
    s->moves = ZX_NEW(mem, zx_move, MOVES);
    s->parts = ZX_NEW(mem, zx_part, 2 * MOST);
    put(&x, x.launches, x.n_best, x.best_gathers, s);
    return true;
}

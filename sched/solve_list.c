// solve_list.c - makes a solution by walking through time, once.
//
// Compute runs the steps; whenever the wire is free it is decided what goes next. All reads of the
// line are looked at in order: `use` is the first one that isn't provided for. What is read before
// it is sure of its bytes; a unit may also stay for its next read after that, as long as nobody
// needs the room more: who is read last leaves first (Belady). A gather begins as early as there is
// room; when it becomes due it takes the room of those that merely stay. Gradients wait until a
// launch of them is full, the memory is needed or nothing else is to be done.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sched/solve.h"

#define NEVER 1e300

typedef struct pending { // a gradient that is whole, until its bytes are given away
    uint32_t grad, micro;
    uint32_t move; // ZX_NONE: not sent yet
    int64_t after; // its bytes are given away at a later position than this one: a gather that goes
                   // before it waits for compute to come there
    bool counted;  // its bytes aren't in the base any more
} pending;

typedef struct stay { // of a unit, until its read at `to`
    int64_t to;
    uint32_t unit;
} stay;

typedef struct lister {
    const zx_line *l;
    const zx_problem *p;
    const zx_turns *turns;
    zx_arena *mem;
    zx_clock c;
    int64_t limit, end;
    zx_load load, live;    // bytes; elements of whole units where they are limited
    const int64_t *spare;  // by step: bytes in `load` that are kept for gradients
    int64_t here, *change; // of `load`: at pos; by position after it: what it differs by
    // compute
    int64_t pos;           // runs, or is about to run
    bool running;          // the step at pos
    double work;           // that is left of it
    bool starved, drained; // waits for a gather; for a reduce
    // reads
    uint64_t use, n_uses;
    int64_t *held, *sure; // by unit: the last step that it stays for; the last it is provided for
    uint32_t *part;       // by unit: of its gather
    uint32_t *move_of;    // by unit: of its gather
    stay *kept;           // what may leave sooner, in order of when it is read last; also what did
    uint32_t n_kept;
    int64_t *kept_to; // by unit: its read in `kept`; -1: it isn't there
    // the wire
    uint32_t launches; // gathers so far
    int64_t gathered;  // gate of the last one
    uint32_t done;     // moves that are over
    pending *pend;
    uint32_t n_pend, cap_pend, n_done; // n_done: gradients of the line that became whole
    int64_t extra;                     // bytes of pending ones beyond the base
    uint32_t looked;                   // `done` when they were looked at
    int64_t look_at, drain_at;         // positions: of the next change; the first that is too late
    double rest;                       // seconds of compute that aren't done
    zx_race *race;                     // NULL: none
    double due;                        // compute's progress before which no gather is tried again,
    int64_t blocked;                   // unless it is beyond this position, where room is missing
    bool stuck;                        // what has to stay can't
    stay *undo;                        // that were ended
    uint32_t n_undo, cap_undo;
    zx_solution *s;
    uint32_t cap_moves, cap_parts;
} lister;

// ---- where things are on the line ---------------------------------------------------------------

static double line_at(const lister *k, int64_t position)
{
    return zx_line_at(k->l->at, k->p->n_steps, position);
}

static double progress(const lister *k)
{
    return line_at(k, k->pos) + (k->running ? k->p->seconds[k->pos % k->p->n_steps] - k->work : 0);
}

static int64_t step_of(const lister *k, uint64_t use)
{
    return (int64_t)(use / k->p->n_reads) * k->p->n_steps + k->p->reads[use % k->p->n_reads].step;
}

static uint32_t unit_of(const lister *k, uint64_t use)
{
    return k->p->reads[use % k->p->n_reads].unit;
}

// The step of the next read of the same unit; -1: none in this optimizer step.
static int64_t next_step(const lister *k, uint64_t use)
{
    const uint64_t n = k->p->n_reads, i = use % n, next = k->l->next[i];
    const uint64_t other = use - i + next + (next <= i ? n : 0);
    return other < k->n_uses ? step_of(k, other) : -1;
}

// ---- room ---------------------------------------------------------------------------------------

static void add(lister *k, int64_t from, int64_t to, uint32_t unit, int sign)
{
    if (to < from) return;
    const int64_t bytes = sign * (int64_t)k->p->unit_bytes[unit];
    zx_load_add(&k->load, from, to, bytes);
    if (to >= k->pos) {
        *(from > k->pos ? &k->change[from] : &k->here) += bytes;
        k->change[to + 1] -= bytes;
    }
    if (k->p->max_live > 0)
        zx_load_add(&k->live, from, to, sign * (int64_t)k->p->unit_elements[unit]);
}

static bool has_room(const lister *k, int64_t from, int64_t to, uint32_t unit)
{
    if (to < from) return true;
    if (zx_load_most(&k->load, from, to) + (int64_t)k->p->unit_bytes[unit] > k->limit) return false;
    return k->p->max_live == 0 ||
           zx_load_most(&k->live, from, to) + (int64_t)k->p->unit_elements[unit] <=
               (int64_t)k->p->max_live;
}

static void end_stay(lister *k, uint32_t unit)
{
    add(k, k->sure[unit] + 1, k->held[unit], unit, -1);
    k->held[unit] = k->sure[unit];
    k->s->parts[k->part[unit]].gone = k->sure[unit] + 1;
}

// Where a stay is in `kept`, or belongs: the first that isn't before it.
static uint32_t kept_at(const lister *k, int64_t to, uint32_t unit)
{
    uint32_t a = 0, b = k->n_kept;
    while (a < b) {
        const uint32_t mid = a + (b - a) / 2;
        const stay *x = &k->kept[mid];
        if (x->to < to || (x->to == to && x->unit < unit))
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

static void forget(lister *k, uint32_t unit)
{
    if (k->kept_to[unit] < 0) return;
    stay *x = &k->kept[kept_at(k, k->kept_to[unit], unit)];
    k->kept_to[unit] = -1;
    k->n_kept--;
    memmove(x, x + 1, (size_t)(&k->kept[k->n_kept] - x) * sizeof *x);
}

static void remember(lister *k, uint32_t unit, int64_t to)
{
    forget(k, unit);
    stay *x = &k->kept[kept_at(k, to, unit)];
    memmove(x + 1, x, (size_t)(&k->kept[k->n_kept] - x) * sizeof *x);
    k->n_kept++;
    *x = (stay){to, unit};
    k->kept_to[unit] = to;
}

// Of those that stay for a read after `beyond` and take room in [from, to]: who is read last.
static uint32_t latest_read(const lister *k, int64_t from, int64_t to, int64_t beyond)
{
    for (uint32_t i = k->n_kept; i-- > 0;) {
        const uint32_t u = k->kept[i].unit;
        const int64_t held = k->kept[i].to;
        if (held <= beyond || held < from) break;
        if (k->held[u] != held || k->sure[u] >= held) continue; // not any more
        if (k->sure[u] >= to || (k->p->pinned != NULL && k->p->pinned[u])) continue;
        return u;
    }
    return ZX_NONE;
}

static void note_undo(lister *k, stay x)
{
    ZX_GROW(k->mem, k->undo, k->n_undo, k->cap_undo);
    k->undo[k->n_undo++] = x;
}

// Ends stays until there is room; false: there is none (what was ended stays noted to be undone).
static bool make_room(lister *k, int64_t from, int64_t to, uint32_t unit, int64_t beyond)
{
    while (!has_room(k, from, to, unit)) {
        const uint32_t u = latest_read(k, from, to, beyond);
        if (u == ZX_NONE) return false;
        note_undo(k, (stay){k->held[u], u});
        end_stay(k, u);
    }
    return true;
}

static void keep(lister *k, uint32_t unit, int64_t to)
{
    add(k, k->held[unit] + 1, to, unit, 1);
    k->held[unit] = to;
    remember(k, unit, to);
}

static void take_back(lister *k, uint32_t from)
{
    while (k->n_undo > from) {
        const stay x = k->undo[--k->n_undo];
        keep(k, x.unit, x.to);
    }
}

// A read is provided for: the unit may stay for its next one.
static void provide(lister *k, uint64_t use)
{
    const uint32_t u = unit_of(k, use);
    const int64_t step = step_of(k, use), next = next_step(k, use);
    if (step > k->sure[u]) k->sure[u] = step;
    k->s->parts[k->part[u]].gone = k->sure[u] + 1;
    if (next < 0 || k->held[u] >= next) return;
    const uint32_t mark = k->n_undo;
    const bool pinned = k->p->pinned != NULL && k->p->pinned[u];
    if (make_room(k, k->held[u] + 1, next, u, pinned ? step : next))
        keep(k, u, next);
    else {
        take_back(k, mark);
        k->stuck |= pinned;
    }
    k->n_undo = mark;
}

// Looks on to the first read that isn't provided for; false: there is none.
static bool find_need(lister *k)
{
    while (k->use < k->n_uses && k->held[unit_of(k, k->use)] >= step_of(k, k->use)) {
        provide(k, k->use);
        k->use++;
    }
    return k->use < k->n_uses;
}

// ---- gathers ------------------------------------------------------------------------------------

typedef struct load_up {         // a launch that is being put together
    uint64_t bytes, wire, until; // until: the read after the last one it provides for
    uint32_t n;                  // members: the last parts of the solution
    uint32_t first;
    int64_t gate;
} load_up;

static void open_part(lister *k, uint32_t unit, int64_t gone)
{
    ZX_GROW(k->mem, k->s->parts, k->s->n_parts, k->cap_parts);
    k->s->parts[k->s->n_parts++] = (zx_part){unit, 0, gone};
}

// Bytes that are really spoken for at the step that runs.
static bool fits_now(const lister *k, int64_t bytes)
{
    return k->here - k->spare[k->pos % k->p->n_steps] + k->extra + bytes <= k->limit;
}

static bool in_launch(const lister *k, const load_up *x, uint32_t unit)
{
    return k->part[unit] != ZX_NONE && k->part[unit] >= x->first && k->part[unit] < x->first + x->n;
}

// The last position in [from, to] without room for a unit.
static int64_t last_full(const lister *k, int64_t from, int64_t to, uint32_t unit)
{
    while (from < to) { // it is in [from, to]
        const int64_t mid = from + (to - from) / 2;
        if (has_room(k, mid + 1, to, unit))
            to = mid;
        else
            from = mid + 1;
    }
    return from;
}

// Adds the reads from x->until on until it is full (true) or there is no room; `force`: others'
// stays end for it.
static bool fill(lister *k, load_up *x, uint64_t target, bool force)
{
    const zx_problem *p = k->p;
    for (; x->until < k->n_uses; x->until++) {
        const uint32_t u = unit_of(k, x->until);
        const int64_t step = step_of(k, x->until);
        if (k->held[u] >= step) continue;
        if (p->no_overlap && step > k->pos) return true;
        const bool here = k->held[u] >= x->gate; // still, from an earlier read or in this launch
        const int64_t from = here ? k->held[u] + 1 : x->gate;
        if (!here && x->n > 0 && (p->no_overlap || x->bytes + p->unit_bytes[u] > target))
            return true;
        k->blocked = k->pos;
        const uint32_t mark = k->n_undo;
        if (force ? !make_room(k, from, step, u, step) : !has_room(k, from, step, u)) {
            k->blocked = last_full(k, from, step, u); // with others gone, if forced
            take_back(k, mark);
            return false;
        }
        if (!here && !fits_now(k, (int64_t)p->unit_bytes[u])) {
            take_back(k, mark);
            return false;
        }
        add(k, from, step, u, 1);
        if (here) {
            if (in_launch(k, x, u)) {
                k->held[u] = k->sure[u] = step;
                k->s->parts[k->part[u]].gone = step + 1;
            } else // it never left
                k->held[u] = step;
            continue;
        }
        k->part[u] = k->s->n_parts;
        k->held[u] = k->sure[u] = step;
        open_part(k, u, step + 1);
        x->bytes += p->unit_bytes[u];
        x->wire += p->unit_wire[u];
        x->n++;
    }
    return true;
}

static void give_up(lister *k, load_up *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        const uint32_t u = k->s->parts[x->first + i].what;
        add(k, x->gate, k->held[u], u, -1);
        k->held[u] = k->sure[u] = -1;
        k->part[u] = ZX_NONE;
    }
    k->s->n_parts = x->first;
}

// Bytes that a launch may have of the room beside what is alive anyway.
static double part_of_room(const lister *k, double part)
{
    const uint32_t q = (uint32_t)((k->pos < k->end ? k->pos : k->end - 1) % k->p->n_steps);
    return part * fmax(0, (double)(k->limit - (int64_t)k->p->base[q]));
}

static uint64_t target_of(const lister *k)
{
    double part = 1;
    if (k->launches < 30) part = k->turns->ramp * (double)(UINT64_C(1) << k->launches);
    const double bytes = k->turns->gather * (part < 1 ? part : 1);
    return (uint64_t)fmin(bytes, part_of_room(k, k->turns->share));
}

static uint32_t open_move(lister *k, zx_move x)
{
    ZX_GROW(k->mem, k->s->moves, k->s->n_moves, k->cap_moves);
    k->s->moves[k->s->n_moves] = x;
    return k->s->n_moves++;
}

// Sends the next gather if it is time; lead: seconds until compute needs it.
static bool try_gather(lister *k, double lead)
{
    const uint64_t target = target_of(k), use = k->use;
    load_up x = {.until = use, .first = k->s->n_parts, .gate = k->pos};
    if (!k->starved && (k->p->no_overlap || (progress(k) < k->due && k->pos <= k->blocked)))
        return false;
    k->n_undo = 0;
    const bool full = fill(k, &x, target, false);
    const double takes = zx_problem_launch(k->p, false, x.wire).wire;
    if (!full || x.n == 0) {
        if (!k->starved && lead > k->turns->eager * takes && lead > 0) {
            k->due = progress(k) + lead - k->turns->eager * takes;
            give_up(k, &x);
            return false;
        }
        fill(k, &x, target, true);
    }
    if (x.n == 0) {
        k->due = NEVER; // it is due, but has to wait for room
        return x.until > use && find_need(k) && try_gather(k, lead); // what never left
    }
    int64_t over = INT64_MAX;
    const uint32_t move = open_move(k, (zx_move){false, x.first, x.n, x.gate, 0});
    for (uint32_t i = 0; i < x.n; i++) k->move_of[k->s->parts[x.first + i].what] = move;
    for (uint64_t i = use; i < x.until; i++) {
        if (in_launch(k, &x, unit_of(k, i)) && step_of(k, i) < over) over = step_of(k, i);
        provide(k, i);
    }
    k->s->moves[move].over = over;
    k->use = x.until;
    k->launches++;
    k->gathered = x.gate;
    k->due = 0;
    k->blocked = -1;
    zx_clock_send(&k->c, zx_problem_launch(k->p, false, x.wire));
    return true;
}

// ---- reduces ------------------------------------------------------------------------------------

static int64_t line_of(const lister *k, const pending *x, int64_t position)
{
    const int64_t at = (int64_t)k->p->n_steps * x->micro + position;
    return at < k->end ? at : k->end;
}

// What the next launch of gradients would carry, up to `target` bytes; whole: no more will come.
static uint32_t next_reduce(const lister *k, double target, uint32_t *first, uint64_t *bytes,
                            bool *whole)
{
    uint32_t n = 0;
    uint64_t elements = 0;
    *bytes = 0;
    *whole = false;
    for (*first = 0; *first < k->n_pend && k->pend[*first].move != ZX_NONE;) ++*first;
    for (uint32_t i = *first; i < k->n_pend; i++) {
        const pending *x = &k->pend[i];
        const uint32_t unit = k->p->grads[x->grad].unit;
        const uint64_t next = elements + k->p->unit_elements[unit];
        if (x->micro != k->pend[*first].micro || (n > 0 && k->p->no_overlap) ||
            (n > 0 && k->p->max_reduce > 0 && next > k->p->max_reduce) ||
            (n > 0 && (double)(*bytes + k->p->unit_wire[unit]) > target)) {
            *whole = true;
            break;
        }
        elements = next;
        *bytes += k->p->unit_wire[unit];
        n++;
    }
    if (n > 0 && k->n_done % k->p->n_grads == 0) *whole = true; // the micro-batch's last
    return n;
}

static void send_reduce(lister *k, uint32_t first, uint32_t n, uint64_t bytes)
{
    zx_move x = {true, k->s->n_parts, n, 0, -1};
    const uint32_t move = k->s->n_moves;
    for (uint32_t i = first; i < first + n; i++) {
        pending *y = &k->pend[i];
        const int64_t ready = line_of(k, y, k->p->grads[y->grad].ready);
        if (ready > x.gate) x.gate = ready;
        y->move = move;
        y->after = k->gathered;
        open_part(k, y->grad, 0);
        k->s->parts[k->s->n_parts - 1].micro = y->micro;
    }
    open_move(k, x);
    zx_clock_send(&k->c, zx_problem_launch(k->p, true, bytes));
}

// ---- what goes next -----------------------------------------------------------------------------

static void decide(lister *k)
{
    const bool need = k->p->n_reads > 0 && find_need(k);
    const bool tail = !need && k->pos / k->p->n_steps + 1 >= k->p->micro_batches;
    uint32_t first;
    uint64_t bytes;
    bool whole;
    const double room = part_of_room(k, k->turns->lot);
    const double target = fmin(k->turns->reduce * (tail ? k->turns->tail : 1), room);
    const uint32_t n = next_reduce(k, target, &first, &bytes, &whole);
    if (n > 0 && (k->drained || k->pos == k->end)) {
        send_reduce(k, first, n, bytes);
        return;
    }
    double lead = NEVER;
    if (need) {
        lead = line_at(k, step_of(k, k->use)) - progress(k);
        if (k->starved) lead = 0;
    }
    if (n > 0 && (whole || k->p->no_overlap) &&
        lead > k->turns->patience * zx_problem_launch(k->p, true, bytes).wire) {
        send_reduce(k, first, n, bytes);
        return;
    }
    if (need && try_gather(k, lead)) return;
    if (n > 0 && (whole || k->starved)) send_reduce(k, first, n, bytes);
}

// ---- compute ------------------------------------------------------------------------------------

// Gives away the bytes of reduces that are over; what was in the base counts extra from now on.
static void look_at_gradients(lister *k)
{
    uint32_t n = 0;
    if (k->looked == k->done && k->pos < k->look_at) return;
    k->looked = k->done;
    k->look_at = k->drain_at = INT64_MAX;
    for (uint32_t i = 0; i < k->n_pend; i++) {
        pending *x = &k->pend[i];
        const zx_grad *g = &k->p->grads[x->grad];
        const int64_t bytes = g->storage != ZX_NONE ? (int64_t)g->bytes : 0;
        const int64_t spare = line_of(k, x, g->spare), latest = line_of(k, x, g->latest);
        const bool over = x->move != ZX_NONE && x->move < k->done;
        if (over && k->pos > x->after) {
            k->s->moves[x->move].over = k->pos;
            if (x->counted) k->extra -= bytes;
            continue;
        }
        if (!x->counted && spare <= k->pos) {
            x->counted = true;
            k->extra += bytes;
        }
        if (!x->counted && spare < k->look_at) k->look_at = spare;
        if (over && x->after + 1 < k->look_at) k->look_at = x->after + 1;
        if (latest < k->drain_at) k->drain_at = latest;
        k->pend[n++] = *x;
    }
    k->n_pend = n;
}

static bool must_drain(lister *k)
{
    if (k->n_pend > 0 && (k->p->no_overlap || k->drain_at <= k->pos)) return true;
    while (!fits_now(k, 0)) {
        if (k->extra > 0 && k->turns->give == 0) return true;
        const uint32_t u = latest_read(k, k->pos, k->pos, k->pos);
        if (u == ZX_NONE) return k->extra > 0;
        end_stay(k, u);
    }
    return false;
}

static bool must_gather(const lister *k)
{
    const zx_problem *p = k->p;
    const uint32_t q = (uint32_t)(k->pos % p->n_steps);
    for (uint32_t i = p->read_at[q]; i < p->read_at[q + 1] && p->n_reads > 0; i++) {
        const uint32_t u = p->reads[i].unit;
        if (k->sure[u] < k->pos || k->move_of[u] >= k->done) return true;
    }
    return false;
}

static void try_begin(lister *k)
{
    look_at_gradients(k);
    k->drained = must_drain(k);
    if (k->drained) return;
    if (k->p->n_reads > 0) find_need(k);
    k->starved = must_gather(k);
    if (k->starved) return;
    k->running = true;
    k->work = k->p->seconds[k->pos % k->p->n_steps];
}

static void finish_step(lister *k)
{
    const zx_problem *p = k->p;
    const int64_t n = p->n_steps;
    const uint32_t micro = (uint32_t)(k->pos / n);
    k->running = false;
    k->here += k->change[++k->pos];
    const int64_t here = k->pos - n * micro; // a position of the circle, 1..n
    while (k->n_done < (micro + 1) * p->n_grads &&
           p->grads[k->n_done - micro * p->n_grads].ready <= here) {
        ZX_GROW(k->mem, k->pend, k->n_pend, k->cap_pend);
        k->pend[k->n_pend++] = (pending){k->n_done % p->n_grads, micro, ZX_NONE, -1, false};
        k->n_done++;
        k->look_at = k->pos;
    }
    if (k->race == NULL) return;
    k->rest -= p->seconds[here - 1];
    if (here == n) k->race->ended[micro] = k->c.now;
}

// Whether the whole step takes too long, by what is known so far of its micro-batches.
static bool is_lost(lister *k)
{
    zx_race *r = k->race;
    if (r == NULL) return false;
    const bool known = r->more > 0 && k->pos >= 2 * (int64_t)k->p->n_steps;
    const double each = known ? r->ended[1] - r->ended[0] : k->l->at[k->p->n_steps];
    r->lost = k->c.now + k->rest + r->more * each > r->most * (1 + 1e-9);
    return r->lost;
}

// ---- all of it ----------------------------------------------------------------------------------

// Room that is kept for gradients, by step.
static const int64_t *find_spare(lister *k)
{
    const zx_problem *p = k->p;
    const int64_t n = p->n_steps;
    int64_t *spare = ZX_NEW(k->mem, int64_t, 2 * (size_t)n + 2);
    if (k->turns->spare > 0) {
        uint64_t all = 0;
        for (uint32_t i = 0; i < p->n_grads; i++) all += p->unit_wire[p->grads[i].unit];
        const double bytes = k->turns->reduce < (double)all ? k->turns->reduce : (double)all;
        const double takes = k->turns->spare * zx_problem_launch(p, true, (uint64_t)bytes).wire;
        for (uint32_t i = 0; i < p->n_grads; i++) {
            const zx_grad *g = &p->grads[i];
            if (g->storage == ZX_NONE || (i > 0 && p->grads[i - 1].storage == g->storage)) continue;
            int64_t to = g->spare;
            const double until = line_at(k, g->spare) + takes;
            while (to < g->latest && to < 2 * n && line_at(k, to) < until) to++;
            spare[g->spare] += (int64_t)g->bytes;
            spare[to] -= (int64_t)g->bytes;
        }
        for (int64_t q = 1; q < 2 * n; q++) spare[q] += spare[q - 1];
        for (int64_t q = 0; q < n; q++) spare[q] += spare[q + n];
    }
    for (int64_t q = 0; q < n; q++) {
        const int64_t most = k->limit - (int64_t)(p->base[q] + k->l->need[q]);
        if (spare[q] > most) spare[q] = most > 0 ? most : 0;
    }
    return spare;
}

static void start(lister *k)
{
    const zx_problem *p = k->p;
    k->end = zx_problem_end(p);
    k->limit = p->limit > (uint64_t)INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)p->limit;
    k->n_uses = (uint64_t)p->n_reads * p->micro_batches;
    k->spare = find_spare(k);
    int64_t *line = ZX_NEW(k->mem, int64_t, (size_t)k->end + 1);
    for (int64_t q = 0; q < k->end; q++)
        line[q] = (int64_t)p->base[q % p->n_steps] + k->spare[q % p->n_steps];
    zx_load_make(&k->load, (uint32_t)k->end, k->mem);
    zx_load_fill(&k->load, line);
    k->here = line[0];
    for (int64_t q = k->end; q-- > 1;) line[q] -= line[q - 1];
    k->change = line;
    k->look_at = k->drain_at = INT64_MAX;
    if (p->max_live > 0) zx_load_make(&k->live, (uint32_t)k->end, k->mem);
    k->held = ZX_NEW(k->mem, int64_t, p->n_units + 1);
    k->sure = ZX_NEW(k->mem, int64_t, p->n_units + 1);
    k->part = ZX_NEW(k->mem, uint32_t, p->n_units + 1);
    k->move_of = ZX_NEW(k->mem, uint32_t, p->n_units + 1);
    k->kept = ZX_NEW(k->mem, stay, p->n_units + 1);
    k->kept_to = ZX_NEW(k->mem, int64_t, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) {
        k->held[u] = k->sure[u] = k->kept_to[u] = -1;
        k->part[u] = k->move_of[u] = ZX_NONE;
    }
    k->blocked = k->gathered = -1;
    zx_clock_start(&k->c, p);
}

bool zx_solve_list(const zx_line *l, const zx_turns *turns, zx_arena *mem, zx_solution *out,
                   zx_race *race)
{
    lister k = {.l = l, .p = l->p, .turns = turns, .mem = mem, .s = out, .race = race};
    *out = (zx_solution){0};
    if (l->least > l->p->limit) return false;
    start(&k);
    k.rest = l->at[l->p->n_steps] * l->p->micro_batches;
    for (;;) {
        while (!k.running && k.pos < k.end) {
            try_begin(&k);
            if (!k.running || k.work > 0) break;
            finish_step(&k);
        }
        if (k.pos == k.end) look_at_gradients(&k);
        if (!k.c.busy) decide(&k);
        if (k.stuck) return false;
        if (!k.c.busy && !k.running) {
            if (k.pos == k.end && k.n_pend == 0) break;
            const bool was = k.drained; // what was decided may have let compute begin
            if (k.pos < k.end) try_begin(&k);
            if (!k.running && (k.pos == k.end || was == k.drained)) return false;
            continue;
        }
        if (zx_clock_run(&k.c, &k.work, NEVER)) k.done++;
        if (!k.running || k.work > 0) continue;
        finish_step(&k);
        if (is_lost(&k)) return false;
    }
    if (race != NULL) race->ended[l->p->micro_batches] = k.c.now;
    return true;
}

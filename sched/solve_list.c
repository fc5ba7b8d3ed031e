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

typedef struct undo { // a stay that was ended
    int64_t to;       // it stayed until then
    uint32_t unit;
} undo;

typedef struct lister {
    const zx_line *l;
    const zx_problem *p;
    const zx_turns *turns;
    zx_arena *mem;
    zx_clock c;
    int64_t limit, end;
    zx_load load, live;   // bytes; elements of whole units where they are limited
    const int64_t *spare; // by step: bytes in `load` that are kept for gradients
    // compute
    int64_t pos;           // runs, or is about to run
    bool running;          // the step at pos
    double work;           // that is left of it
    bool starved, drained; // waits for a gather; for a reduce
    // reads
    uint64_t use, n_uses;
    int64_t *held, *sure;   // by unit: the last step that it stays for; the last it is provided for
    uint32_t *part;         // by unit: of its gather
    uint32_t *move_of;      // by unit: of its gather
    uint32_t *kept, n_kept; // units with held > sure, at some time
    bool *in_kept;
    // the wire
    uint32_t launches; // gathers so far
    int64_t gathered;  // gate of the last one
    uint32_t done;     // moves that are over
    pending *pend;
    uint32_t n_pend, cap_pend, n_done; // n_done: gradients of the line that became whole
    int64_t extra;                     // bytes of pending ones beyond the base
    double due;                        // compute's progress before which no gather is tried again,
    int64_t blocked;                   // unless it is beyond this position, where room is missing
    bool stuck;                        // what has to stay can't
    undo *undo;
    uint32_t n_undo, cap_undo;
    zx_solution *s;
    uint32_t cap_moves, cap_parts;
} lister;

// What stays for the rest of the step is there at every step from its first read on; of several
// micro-batches, in all but the first at every step.
static void need_pinned(zx_line *l)
{
    const zx_problem *p = l->p;
    bool *seen = ZX_NEW(l->mem, bool, p->n_units + 1);
    for (uint32_t i = 0; i < p->n_reads; i++) {
        const zx_read *r = &p->reads[i];
        if (!p->pinned[r->unit] || seen[r->unit]) continue;
        seen[r->unit] = true;
        for (uint32_t q = p->micro_batches > 1 ? 0 : r->step; q < p->n_steps; q++)
            l->need[q] += p->unit_bytes[r->unit];
    }
}

void zx_line_make(zx_line *l, const zx_problem *p, zx_arena *mem)
{
    *l = (zx_line){.p = p, .mem = mem};
    l->at = zx_line_sums(p, mem);
    l->need = ZX_NEW(mem, uint64_t, p->n_steps + 1);
    l->next = ZX_NEW(mem, uint32_t, p->n_reads + 1);
    uint32_t *after = ZX_NEW(mem, uint32_t, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) after[u] = ZX_NONE;
    for (int round = 0; round < 2; round++)
        for (uint32_t i = p->n_reads; i-- > 0;) {
            l->next[i] = after[p->reads[i].unit];
            after[p->reads[i].unit] = i;
        }
    for (uint32_t i = 0; i < p->n_reads; i++)
        if (p->pinned == NULL || !p->pinned[p->reads[i].unit])
            l->need[p->reads[i].step] += p->unit_bytes[p->reads[i].unit];
    if (p->pinned != NULL) need_pinned(l);
    for (uint32_t q = 0; q < p->n_steps; q++)
        if (p->base[q] + l->need[q] > l->least) l->least = p->base[q] + l->need[q];
}

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
    zx_load_add(&k->load, from, to, sign * (int64_t)k->p->unit_bytes[unit]);
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

// Of those that stay for a read after `beyond` and take room in [from, to]: who is read last.
static uint32_t latest_read(lister *k, int64_t from, int64_t to, int64_t beyond)
{
    uint32_t best = ZX_NONE;
    for (uint32_t i = 0; i < k->n_kept; i++) {
        const uint32_t u = k->kept[i];
        if (k->held[u] <= k->sure[u]) { // not any more
            k->in_kept[u] = false;
            k->kept[i--] = k->kept[--k->n_kept];
            continue;
        }
        if (k->held[u] <= beyond) continue;
        if (k->sure[u] >= to || k->held[u] < from) continue;
        if (k->p->pinned != NULL && k->p->pinned[u]) continue;
        if (best == ZX_NONE || k->held[u] > k->held[best] ||
            (k->held[u] == k->held[best] && u > best)) // whatever the order of the list
            best = u;
    }
    return best;
}

static void note_undo(lister *k, undo x)
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
        note_undo(k, (undo){k->held[u], u});
        end_stay(k, u);
    }
    return true;
}

static void keep(lister *k, uint32_t unit, int64_t to)
{
    add(k, k->held[unit] + 1, to, unit, 1);
    k->held[unit] = to;
    if (k->in_kept[unit]) return;
    k->in_kept[unit] = true;
    k->kept[k->n_kept++] = unit;
}

static void take_back(lister *k, uint32_t from)
{
    while (k->n_undo > from) {
        const undo x = k->undo[--k->n_undo];
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
    const int64_t q = k->pos;
    return zx_load_most(&k->load, q, q) - k->spare[q % k->p->n_steps] + k->extra + bytes <=
           k->limit;
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
    const double takes = n > 0 ? zx_problem_launch(k->p, true, bytes).wire : 0;
    if (n > 0 && (whole || k->p->no_overlap) && lead > k->turns->patience * takes) {
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
    for (uint32_t i = 0; i < k->n_pend; i++) {
        pending *x = &k->pend[i];
        const zx_grad *g = &k->p->grads[x->grad];
        const int64_t bytes = g->storage != ZX_NONE ? (int64_t)g->bytes : 0;
        if (x->move != ZX_NONE && x->move < k->done && k->pos > x->after) {
            k->s->moves[x->move].over = k->pos;
            if (x->counted) k->extra -= bytes;
            continue;
        }
        if (!x->counted && line_of(k, x, g->spare) <= k->pos) {
            x->counted = true;
            k->extra += bytes;
        }
        k->pend[n++] = *x;
    }
    k->n_pend = n;
}

static bool must_drain(lister *k)
{
    for (uint32_t i = 0; i < k->n_pend; i++)
        if (k->p->no_overlap ||
            line_of(k, &k->pend[i], k->p->grads[k->pend[i].grad].latest) <= k->pos)
            return true;
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

static void finish_step(lister *k, double *ended)
{
    const zx_problem *p = k->p;
    const int64_t n = p->n_steps;
    const uint32_t micro = (uint32_t)(k->pos / n);
    k->running = false;
    k->pos++;
    const int64_t here = k->pos - n * micro; // a position of the circle, 1..n
    while (k->n_done < (micro + 1) * p->n_grads &&
           p->grads[k->n_done - micro * p->n_grads].ready <= here) {
        ZX_GROW(k->mem, k->pend, k->n_pend, k->cap_pend);
        k->pend[k->n_pend++] = (pending){k->n_done % p->n_grads, micro, ZX_NONE, -1, false};
        k->n_done++;
    }
    if (ended != NULL && here == n) ended[micro] = k->c.now;
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
    if (p->max_live > 0) zx_load_make(&k->live, (uint32_t)k->end, k->mem);
    k->held = ZX_NEW(k->mem, int64_t, p->n_units + 1);
    k->sure = ZX_NEW(k->mem, int64_t, p->n_units + 1);
    k->part = ZX_NEW(k->mem, uint32_t, p->n_units + 1);
    k->move_of = ZX_NEW(k->mem, uint32_t, p->n_units + 1);
    k->kept = ZX_NEW(k->mem, uint32_t, p->n_units + 1);
    k->in_kept = ZX_NEW(k->mem, bool, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) {
        k->held[u] = k->sure[u] = -1;
        k->part[u] = k->move_of[u] = ZX_NONE;
    }
    k->blocked = k->gathered = -1;
    zx_clock_start(&k->c, p);
}

bool zx_solve_list(const zx_line *l, const zx_turns *turns, zx_arena *mem, zx_solution *out,
                   double *ended)
{
    lister k = {.l = l, .p = l->p, .turns = turns, .mem = mem, .s = out};
    *out = (zx_solution){0};
    if (l->least > l->p->limit) return false;
    start(&k);
    for (;;) {
        while (!k.running && k.pos < k.end) {
            try_begin(&k);
            if (!k.running || k.work > 0) break;
            finish_step(&k, ended);
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
        if (k.running && k.work <= 0) finish_step(&k, ended);
    }
    if (ended != NULL) ended[l->p->micro_batches] = k.c.now;
    return true;
}

// bound_walk.c - the bound by walking along the line: what launches cost and what they wait for,
// where they can only be as large as the room that is left.
//
// A schedule is followed from launch to launch. When one begins, compute is in some group of steps;
// y bytes of units that the line still reads, or has read for the last time, are whole or under way
// (y never grows but by what launches bring), and r bytes of gradients have been reduced. For every
// such state the least seconds are found, when the wire is free and when compute has done its
// group: a shortest path. Whatever the units and gradients are, at each step
//
//   needed: y is at least what is read for the first time up to the step,
//   room:   y less what was read for the last time, and the gradients that are whole and not
//           reduced, but for those in `base`, have room,
//   due:    r is at least the bytes of gradients that have to be given away before the step.
//
// A launch that begins in a group has its bytes there already. What it brings is of use only when
// it is over; what compute does meanwhile has to be whole and to have room beside it.
//
// What stays from forward to backward, or from one micro-batch to the next, isn't followed: at the
// turn and where a micro-batch begins y starts again, at anything there is room for.
//
// Within either part a unit may be dropped between two reads and gathered again. It counts as whole
// meanwhile, and y less what is whole may be as much larger than the room as was dropped. What that
// takes of the wire is paid when it is dropped, once until all that is read again has been; the
// clocks are ahead by the most of it. A state says which of some levels has been dropped to.
//
// Bytes are counted in quanta. y and r are rounded up, hence there is a quantum more room; a launch
// takes as long as the quanta that it brings, which may be one more than its bytes ask for, once in
// a part: so much the clocks are ahead. Micro-batches in the middle are walked along until their
// seconds can be told from those before: the path is a shortest one from any beginning, so each
// next one takes at least as much longer as the last did, wherever it began.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound_parts.h"

#include <math.h>

#define NEVER 1e300
#define PARTS 2   // of a micro-batch: up to the turn, and from there
#define DROPS 4   // levels of what was dropped
#define COST 1e8  // launches that are looked at, about
#define MORE 15   // times as many where there is time
#define FINE 48   // quanta in the room that there is, at most
#define CIRCLES 3 // that are walked along before the last one, where there are more

typedef struct group { // of steps; only the first reads, and after the last gradients are whole
    uint32_t step;     // the first
    double seconds;
    double need;        // y at least, to begin
    double room, roomy; // y less r at most: to begin; at the roomiest of its steps
    double done;        // bytes of the part that were read for the last time before
    double open;        // that were read before, and will be by later steps; not by the first one
    double ready,
        whole;     // bytes of gradients of the circle that are whole: before; at its last step
    double due[2]; // r at least, to begin: in the first circle, in others
    // In quanta:
    int32_t needs, rooms, roomiest, before, dues[2], gone[DROPS]; // gone: dropped at most, by level
    // States: y from y0, r from r0 to top, `drops` levels; cells at `at`.
    int32_t y0, ny, r0, nr, top;
    uint32_t drops;
    size_t at;
} group;

typedef struct cell {
    double wire, compute; // when the wire is free; when compute has done the group, with no launch
} cell;

typedef struct walk {
    const zx_bound_facts *f;
    uint32_t n;    // groups of a circle
    uint32_t turn; // the group at which the second part begins; n: there is none
    group *groups;
    double bytes[PARTS];      // read in a part
    double drop[DROPS];       // bytes that are dropped at most
    double quantum;           // bytes
    double *at;               // n + 1: seconds of the groups before one
    int32_t most[PARTS], all; // quanta: y of a part, r of a circle
    double latency_g, byte_g, latency_r, byte_r, beside;
    double ahead[2]; // seconds that clocks are ahead from the start; more with every part
    cell *cells;
    size_t n_cells;
    cell *land[PARTS]; // at the turn, at the circle's end: by r + all
    bool first, last;  // circle
    double best;       // seconds to the end of the line
    // While a group is left: by level and by bytes held, the next group without room for them.
    uint32_t *full[DROPS];
    int32_t least;     // bytes held, that the first entry stands for
    uint32_t unmet[2]; // the next group that y doesn't do for; that r doesn't
} walk;

static double typical_room(const zx_bound_facts *f)
{
    double sum = 0, all = 1;
    for (uint32_t u = 0; u < f->p->n_units; u++) all += (double)f->size[u];
    for (uint32_t s = 0; s < f->n; s++) sum += fmin((double)f->cap[s], all) / f->n;
    return sum / 2;
}

// ---- groups -------------------------------------------------------------------------------------

typedef struct steps { // by step, in bytes: read for the first and last time in its part, ...
    double *first, *last, *ready, *due, *due_later;
} steps;

static void find_reads(const zx_bound_facts *f, uint32_t from, uint32_t to, steps *x, double *bytes)
{
    const zx_problem *p = f->p;
    const zx_mark mark = zx_arena_mark(f->mem);
    uint32_t *ends = ZX_NEW(f->mem, uint32_t, p->n_units + 1); // 1 + the last step
    for (uint32_t s = from; s < to; s++)
        for (uint32_t i = p->read_at[s]; i < p->read_at[s + 1]; i++) {
            const uint32_t u = p->reads[i].unit;
            if (ends[u] == 0) x->first[s] += (double)f->size[u];
            ends[u] = s + 1;
        }
    for (uint32_t u = 0; u < p->n_units; u++) {
        if (ends[u] == 0) continue;
        x->last[ends[u] - 1] += (double)f->size[u];
        *bytes += (double)f->size[u];
    }
    zx_arena_rewind(f->mem, mark);
}

static void find_steps(walk *w, uint32_t turn, steps *x)
{
    const zx_bound_facts *f = w->f;
    const zx_problem *p = f->p;
    double **all[] = {&x->first, &x->last, &x->ready, &x->due, &x->due_later};
    for (uint32_t i = 0; i < ZX_COUNT(all); i++) *all[i] = ZX_NEW(f->mem, double, f->n + 1);
    find_reads(f, 0, turn, x, &w->bytes[0]);
    find_reads(f, turn, f->n, x, &w->bytes[1]);
    for (uint32_t g = 0; g < p->n_grads; g++) {
        const zx_grad *a = &p->grads[g];
        const int64_t later = a->latest - f->n; // in the next circle
        x->ready[a->ready] += f->share[g];
        if (a->latest <= f->n) x->due[a->latest] += f->share[g];
        if (later <= f->n) x->due_later[later > 0 ? later : 0] += f->share[g];
    }
}

static double read_by(const zx_bound_facts *f, uint32_t step)
{
    double bytes = 0;
    for (uint32_t i = f->p->read_at[step]; i < f->p->read_at[step + 1]; i++)
        bytes += (double)f->size[f->p->reads[i].unit];
    return bytes;
}

// Whether more than `same` bytes differ at a step: what is needed, room, gradients.
static bool differs(const group *x, const group *first, double same)
{
    return fabs(x->need - first->need) > same || fabs(x->room - first->room) > same ||
           fabs(x->done - first->done) > same || fabs(x->ready - first->ready) > same ||
           fabs(x->due[1] - first->due[1]) > same;
}

static void find_groups(walk *w, uint32_t turn)
{
    static const double parts[DROPS] = {0, 1.0 / 6, 0.5, 1};
    const zx_bound_facts *f = w->f;
    const double same = typical_room(f) / 40;
    steps at;
    double begun = 0, done = 0, ready = 0, due = 0, later = 0, most = 0;
    find_steps(w, turn, &at);
    w->groups = ZX_NEW(f->mem, group, f->n + 1);
    w->turn = ZX_NONE;
    for (uint32_t s = 0; s < f->n; s++) {
        if (s == turn) begun = done = 0;
        begun += at.first[s];
        ready += at.ready[s];
        due += at.due[s];
        later += at.due_later[s];
        const double room = (double)f->cap[s] + done - ready + f->whole_at[s];
        const group x = {.step = s,
                         .need = begun,
                         .room = room,
                         .roomy = room,
                         .done = done,
                         .open = begun - done - read_by(f, s),
                         .ready = ready,
                         .due = {due, due + later - f->ready[f->n_cuts]}};
        if (s == turn) w->turn = w->n;
        if (s == 0 || s == turn || differs(&x, &w->groups[w->n - 1], same)) w->groups[w->n++] = x;
        group *g = &w->groups[w->n - 1];
        g->seconds += f->p->seconds[s] * zx_bound_crowd(f);
        g->roomy = fmax(g->roomy, room);
        g->open = fmax(g->open, x.open);
        g->whole = ready;
        g->drops = g->open > same ? DROPS : 1;
        most = fmax(most, g->open);
        done += at.last[s];
    }
    if (w->turn == ZX_NONE) w->turn = w->n;
    for (int d = 0; d < DROPS; d++) w->drop[d] = most * parts[d];
}

// ---- quanta -------------------------------------------------------------------------------------

static int32_t part_of(const walk *w, uint32_t g)
{
    return g >= w->turn;
}

// The most that y less r can be while compute waits for room at a group: at the step before.
static double most_before(const walk *w, uint32_t g)
{
    const zx_bound_facts *f = w->f;
    const group *x = &w->groups[g];
    if (g > 0 && g != w->turn) return x[-1].roomy;
    const uint32_t was = g > 0 ? x->step - 1 : f->n - 1;
    return (double)f->cap[was] + f->spared_at[was] - x->ready;
}

static int32_t up(double bytes, double quantum)
{
    return (int32_t)ceil(bytes / quantum - 1e-9);
}
static int32_t down(double bytes, double quantum)
{
    return (int32_t)floor(bytes / quantum + 1e-9);
}

static void count_quanta(const walk *w, group *x)
{
    const double q = w->quantum;
    x->needs = up(x->need, q);
    x->rooms = down(x->room, q) + 1;
    x->roomiest = down(x->roomy, q) + 1;
    x->before = down(most_before(w, (uint32_t)(x - w->groups)), q) + 1;
    for (int i = 0; i < 2; i++) x->dues[i] = w->all > 0 ? up(x->due[i], q) : 0;
    for (int d = 0; d < DROPS; d++) x->gone[d] = up(fmin(w->drop[d], x->open), q);
    if (x->drops == 1) x->gone[0] = up(x->open, q); // hardly anything
    x->top = w->all > 0 ? up(x->whole, q) : 0;
    x->y0 = down(x->done, q);
}

// Cells of all groups with these quanta, and what walking along them costs.
static double lay_out(walk *w, double quantum)
{
    const zx_bound_facts *f = w->f;
    const double grads = f->ready[f->n_cuts];
    double cost = 0;
    w->all = grads > 0 ? up(grads, quantum) : 0;
    w->quantum = grads > 0 ? grads / w->all : quantum;
    for (int k = 0; k < PARTS; k++) w->most[k] = up(w->bytes[k], w->quantum);
    w->n_cells = 0;
    for (uint32_t g = 0; g < w->n; g++) {
        group *x = &w->groups[g];
        count_quanta(w, x);
        double held = x->roomiest > x->before ? x->roomiest : x->before; // at most
        held += 1 + (double)x->gone[x->drops - 1];
        if (g > 0 && g != w->turn) held += (double)x[-1].gone[x[-1].drops - 1];
        double least = x->y0 - held;
        if (least < (f->micros > 1 ? -w->all : 0)) least = f->micros > 1 ? -w->all : 0;
        x->r0 = least > x->top ? x->top : (int32_t)least;
        x->nr = x->top - x->r0 + 1;
        const double most = fmin(held + x->top, w->most[part_of(w, g)]);
        x->ny = most < x->y0 ? 1 : (int32_t)most - x->y0 + 1;
        x->at = w->n_cells;
        w->n_cells += (size_t)x->ny * (size_t)x->nr * x->drops;
        cost += (double)x->ny * x->nr * (x->ny + x->nr + 10) * (x->drops > 1 ? 10 : 1);
    }
    return cost;
}

static void find_quanta(walk *w, double most)
{
    const zx_bound_facts *f = w->f;
    const uint32_t circles = f->micros > CIRCLES ? CIRCLES + 1 : f->micros;
    double hi = fmax(fmax(w->bytes[0], w->bytes[1]), f->ready[f->n_cuts]) + 1;
    double lo = fmin(hi, 2 * typical_room(f) + 1) / FINE;
    while (lo < hi * 0.99) {
        const double mid = sqrt(lo * hi);
        if (lay_out(w, mid) * circles > most)
            lo = mid;
        else
            hi = mid;
    }
    lay_out(w, hi);
}

// ---- states -------------------------------------------------------------------------------------

typedef struct state {
    uint32_t group, drop;
    int32_t y, r;
    cell at;
    bool begun; // compute is in the group
} state;

static cell *cell_of(const walk *w, uint32_t g, int32_t y, int32_t r, uint32_t drop)
{
    const group *x = &w->groups[g];
    const size_t at = (size_t)(y - x->y0) * (size_t)x->nr + (size_t)(r - x->r0);
    return &w->cells[x->at + at * x->drops + drop];
}

static void lower(cell *c, double wire, double compute)
{
    if (wire < c->wire) c->wire = wire;
    if (compute < c->compute) c->compute = compute;
}

// Where nothing is open, what was dropped is back.
static void arrive(const walk *w, uint32_t g, int32_t y, int32_t r, uint32_t drop, double wire,
                   double compute)
{
    const group *x = &w->groups[g];
    if (y < x->y0) y = x->y0;
    if (y >= x->y0 + x->ny) y = x->y0 + x->ny - 1;
    if (r < x->r0) r = x->r0;
    lower(cell_of(w, g, y, r, drop < x->drops ? drop : 0), wire, compute);
}

// Compute is at the end of a part.
static void land(walk *w, uint32_t g, int32_t r, double wire, double compute)
{
    const int part = !(g == w->turn && g < w->n);
    if (part == 0 || !w->last) {
        lower(&w->land[part][r + w->all], wire, compute);
    } else {
        const double left = w->all > r ? w->latency_r + (w->all - r) * w->quantum * w->byte_r : 0;
        w->best = fmin(w->best, fmax(wire, compute) + left);
    }
}

// Whether compute can begin a group; `held`: y less r.
static bool begins(const walk *w, uint32_t g, int32_t y, int32_t r, uint32_t drop, int32_t held)
{
    const group *x = &w->groups[g];
    return y >= x->needs && held <= x->rooms + x->gone[drop] && r >= x->dues[!w->first];
}

// Compute came to a group at `compute`, before the wire is free or just then.
static void come(const walk *w, uint32_t g, int32_t y, int32_t r, uint32_t drop, double wire,
                 double compute)
{
    if (!begins(w, g, y, r, drop < w->groups[g].drops ? drop : 0, y - r)) compute = wire;
    arrive(w, g, y, r, drop, wire, compute + w->groups[g].seconds);
}

static uint32_t end_of(const walk *w, uint32_t g)
{
    return g < w->turn ? w->turn : w->n;
}

typedef struct launch {
    int32_t y, r; // afterwards
    uint32_t drop;
    int32_t held; // meanwhile
    double takes;
} launch;

// What compute does beside a launch, and the state when it is over. `reach`: a group that it comes
// to at least, if nothing is in its way.
static void fly(walk *w, const state *s, const launch *x, uint32_t *reach)
{
    const double over = s->at.wire + x->takes;
    const uint32_t g = s->group, end = end_of(w, g);
    if (!s->begun && !begins(w, g, s->y, s->r, x->drop, x->held)) {
        arrive(w, g, x->y, x->r, x->drop, over, over + w->groups[g].seconds);
        return;
    }
    const double left = s->begun ? s->at.compute - s->at.wire : w->groups[g].seconds;
    const double to = w->at[g + 1] - left + x->takes * w->beside; // in seconds of compute
    if (to < w->at[g + 1]) {
        arrive(w, g, x->y, x->r, x->drop, over, over + w->at[g + 1] - to);
        return;
    }
    uint32_t stop = w->full[x->drop][x->held - w->least];
    if (w->unmet[0] < stop) stop = w->unmet[0];
    if (w->unmet[1] < stop) stop = w->unmet[1];
    if (*reach <= g) *reach = g + 1;
    while (*reach < stop && w->at[*reach + 1] <= to) ++*reach;
    const uint32_t at = *reach < stop ? *reach : stop;
    if (at == end)
        land(w, end, x->r, over, over - (to - w->at[end]));
    else if (at == stop)
        arrive(w, at, x->y, x->r, x->drop, over, over + w->groups[at].seconds);
    else
        arrive(w, at, x->y, x->r, x->drop, over, over + w->at[at + 1] - to);
}

// The wire rests until compute has done its group.
static void rest(walk *w, const state *s)
{
    const uint32_t g = s->group + 1;
    const double at = fmax(s->at.wire, s->at.compute);
    if (!s->begun && !begins(w, s->group, s->y, s->r, s->drop, s->y - s->r)) return;
    if (g == end_of(w, s->group))
        land(w, g, s->r, at, s->at.compute);
    else
        come(w, g, s->y, s->r, s->drop, at, s->at.compute);
}

// Seconds of the wire for dropping `bytes`, at level `to`, where `from` was dropped to before.
static double drop_costs(const walk *w, uint32_t from, uint32_t to, double bytes)
{
    if (from == to && from > 0) return 0;
    const double more = fmax(to > 0 ? w->drop[to - 1] : 0, bytes) - w->drop[from];
    return fmax(0, more) * w->byte_g;
}

// Launches for which as much is dropped.
static void leave_with(walk *w, const state *s, uint32_t drop)
{
    const group *x = &w->groups[s->group];
    int32_t room = x->roomiest, gone = x->gone[drop];
    if (!s->begun && x->before > room) room = x->before;
    if (!s->begun && s->group > 0 && s->group != w->turn && x[-1].gone[drop] > gone)
        gone = x[-1].gone[drop];
    const int32_t most = w->most[part_of(w, s->group)], held = s->y - s->r;
    uint32_t reach = 0;
    for (int32_t k = 1; s->y + k <= most && held + k <= room + gone; k++) {
        const int32_t over = held + k > room ? held + k - room : 0;
        const launch l = {s->y + k, s->r, drop, held + k,
                          w->latency_g + k * w->quantum * w->byte_g +
                              drop_costs(w, s->drop, drop, over * w->quantum)};
        fly(w, s, &l, &reach);
    }
    reach = 0;
    for (int32_t k = 1; s->r + k <= x->top; k++) {
        const launch l = {s->y, s->r + k, drop, held,
                          w->latency_r + k * w->quantum * w->byte_r +
                              drop_costs(w, s->drop, drop, 0)};
        fly(w, s, &l, &reach);
    }
}

static void leave(walk *w, const state *s)
{
    for (uint32_t d = s->drop; d < w->groups[s->group].drops; d++) {
        state now = *s; // where something was dropped without a launch
        leave_with(w, s, d);
        now.drop = d;
        now.at.wire += drop_costs(w, s->drop, d, 0);
        rest(w, &now);
    }
}

// By what is held while a group is left: the next group without room for it.
static void find_full(walk *w, uint32_t g)
{
    const group *x = &w->groups[g];
    const uint32_t end = end_of(w, g);
    w->least = x->y0 - x->top;
    for (uint32_t d = 0; d < x->drops; d++) {
        int32_t held = x->y0 + x->ny - x->r0; // and one more
        for (uint32_t to = g + 1; to < end && held > w->least; to++)
            while (held > w->least && held > w->groups[to].rooms + w->groups[to].gone[d]) {
                w->full[d][held - w->least] = to;
                held--;
            }
        for (; held >= w->least; held--) w->full[d][held - w->least] = end;
    }
}

static void leave_group(walk *w, uint32_t g)
{
    const group *x = &w->groups[g];
    const uint32_t end = end_of(w, g);
    find_full(w, g);
    w->unmet[0] = g + 1;
    for (int32_t y = x->y0; y < x->y0 + x->ny; y++) {
        while (w->unmet[0] < end && w->groups[w->unmet[0]].needs <= y) w->unmet[0]++;
        w->unmet[1] = g + 1;
        for (int32_t r = x->r0; r <= x->top; r++) {
            while (w->unmet[1] < end && w->groups[w->unmet[1]].dues[!w->first] <= r) w->unmet[1]++;
            for (uint32_t d = 0; d < x->drops; d++) {
                state s = {g, d, y, r, *cell_of(w, g, y, r, d), false};
                if (s.at.wire >= NEVER) continue;
                s.begun = s.at.compute - s.at.wire < x->seconds * (1 - 1e-9);
                leave(w, &s);
            }
        }
    }
}

// ---- parts and circles --------------------------------------------------------------------------

// A part begins: y is anything that there is room for.
static void begin_part(const walk *w, uint32_t g, const cell *from, int32_t shift)
{
    const group *x = &w->groups[g];
    for (int32_t r = -w->all; r <= w->all; r++) {
        const cell *c = &from[r + w->all];
        if (c->wire >= NEVER) continue;
        const double at = fmax(c->wire, c->compute) - w->ahead[1];
        int32_t most = (x->roomiest > x->before ? x->roomiest : x->before) + r - shift;
        if (most > w->most[part_of(w, g)]) most = w->most[part_of(w, g)];
        for (int32_t y = 0; y == 0 || y <= most; y++)
            come(w, g, y, r - shift, 0, at, c->compute - w->ahead[1]);
    }
}

static void forget(cell *c, size_t n)
{
    for (size_t i = 0; i < n; i++) c[i] = (cell){NEVER, NEVER};
}

// From where compute is at the circle's beginning; NULL: the line's.
static void walk_circle(walk *w, const cell *from)
{
    const size_t n = 2 * (size_t)w->all + 1;
    forget(w->cells, w->n_cells);
    if (from != NULL)
        begin_part(w, 0, from, w->all);
    else
        arrive(w, 0, 0, 0, 0, -w->ahead[0], w->f->lead + w->groups[0].seconds - w->ahead[0]);
    forget(w->land[0], n);
    forget(w->land[1], n);
    for (uint32_t g = 0; g < w->n; g++) {
        if (g == w->turn) begin_part(w, g, w->land[0], 0);
        leave_group(w, g);
    }
}

// What a circle takes beside the one before, at least, wherever it begins.
static double slowest(const walk *w, const cell *was, const cell *now)
{
    double least = NEVER;
    for (size_t i = 0; i < 2 * (size_t)w->all + 1; i++) {
        if (now[i].wire >= NEVER) continue;
        if (was[i].wire >= NEVER) return 0;
        least = fmin(least, fmin(now[i].wire - was[i].wire, now[i].compute - was[i].compute));
    }
    return fmax(least, 0);
}

static double walk_line(walk *w)
{
    const uint32_t micros = w->f->micros;
    const size_t n = 2 * (size_t)w->all + 1;
    cell *from = ZX_NEW(w->f->mem, cell, n);
    uint32_t done = 0;
    double each = 0;
    for (; done < CIRCLES && done + 1 < micros; done++) {
        w->first = done == 0;
        walk_circle(w, done > 0 ? from : NULL);
        if (done > 0) each = slowest(w, from, w->land[1]);
        for (size_t i = 0; i < n; i++) from[i] = w->land[1][i];
    }
    for (size_t i = 0; i < n; i++) {
        from[i].wire += each * (micros - 1 - done);
        from[i].compute += each * (micros - 1 - done);
    }
    w->first = micros == 1;
    w->last = true;
    walk_circle(w, micros > 1 ? from : NULL);
    return w->best;
}

// ---- all of it ----------------------------------------------------------------------------------

static void choose_line(const zx_bound_rate *r, double typical, double *latency, double *per_byte)
{
    double most = -1;
    for (uint32_t i = 0; i < r->n; i++) {
        const double x = r->line[i].latency + r->line[i].per_byte * typical;
        if (x <= most) continue;
        most = x;
        *latency = r->line[i].latency;
        *per_byte = r->line[i].per_byte;
    }
}

// Bytes that are held in any group, as an index of `full`.
static size_t most_held(const walk *w)
{
    int32_t most = 0;
    for (uint32_t g = 0; g < w->n; g++)
        if (w->groups[g].ny + w->groups[g].nr > most) most = w->groups[g].ny + w->groups[g].nr;
    return (size_t)most;
}

double zx_bound_walk(const zx_bound_facts *f, bool fine)
{
    const zx_machine *m = &f->p->machine;
    const uint32_t turn = f->p->n_grads > 0 ? (uint32_t)f->p->grads[0].ready - 1 : f->n;
    walk w = {.f = f, .best = NEVER, .beside = m->cores > 0 ? 1 : 1 / (1 + m->interference)};
    if (f->p->ranks == 1) return 0;
    choose_line(&f->gather, typical_room(f), &w.latency_g, &w.byte_g);
    choose_line(&f->reduce, typical_room(f), &w.latency_r, &w.byte_r);
    find_groups(&w, turn == 0 ? f->n : turn);
    find_quanta(&w, fine ? MORE * COST : COST);
    w.ahead[1] = w.quantum * w.byte_g;
    w.ahead[0] = w.ahead[1] + w.quantum * w.byte_r + w.drop[DROPS - 1] * w.byte_g;
    w.cells = ZX_NEW(f->mem, cell, w.n_cells);
    w.at = ZX_NEW(f->mem, double, w.n + 1);
    for (uint32_t g = 0; g < w.n; g++) w.at[g + 1] = w.at[g] + w.groups[g].seconds;
    for (int d = 0; d < DROPS; d++) w.full[d] = ZX_NEW(f->mem, uint32_t, most_held(&w) + 2);
    for (int k = 0; k < PARTS; k++) w.land[k] = ZX_NEW(f->mem, cell, 2 * (size_t)w.all + 1);
    const double seconds = walk_line(&w);
    return seconds >= NEVER ? 0 : seconds + f->p->after;
}

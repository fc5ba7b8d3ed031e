// bound_facts.c - a problem's line as sums and capacities, and what launches take at least; see
// bound_parts.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound_parts.h"

#include <math.h>

// ---- launches -----------------------------------------------------------------------------------

typedef struct points {
    uint32_t n;
    double bytes[2 * ZX_CURVE_POINTS + 2], seconds[2 * ZX_CURVE_POINTS + 2];
} points;

static void add_points(points *s, const zx_curve *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t k = s->n;
        while (k > 0 && s->bytes[k - 1] > c->bytes[i]) k--;
        if (k > 0 && s->bytes[k - 1] == c->bytes[i]) continue;
        for (uint32_t j = s->n; j > k; j--) s->bytes[j] = s->bytes[j - 1];
        s->bytes[k] = c->bytes[i];
        s->n++;
    }
}

// Between two points the logarithms are linear: seconds grow as a power of bytes. A power up to 1
// is concave, so that a line below both ends is below all of it; a higher one is convex, and all
// that is said of it is that it grows.
static bool convex(const zx_curve *c, double from, double to)
{
    const double a = zx_curve_seconds(c, from), b = zx_curve_seconds(c, to);
    return a > 0 && log(b / a) > log(to / from) * (1 + 1e-9);
}

static void add_line(zx_bound_rate *r, double latency, double per_byte)
{
    if (!(latency >= 0) || !(per_byte >= 0)) return;
    for (uint32_t i = 0; i < r->n; i++)
        if (latency <= r->line[i].latency * (1 + 1e-9) &&
            per_byte <= r->line[i].per_byte * (1 + 1e-9))
            return;
    if (r->n == ZX_COUNT(r->line)) return;
    r->line[r->n].latency = latency;
    r->line[r->n++].per_byte = per_byte;
}

// The highest line of this slope that is below all points, hence below the curve: before the first
// point it is level, beyond the last one it goes on at `last` or a steeper slope.
static void add_slope(zx_bound_rate *r, const points *s, double slope, double last)
{
    double latency = INFINITY;
    slope = fmin(slope, last);
    for (uint32_t i = 0; i < s->n; i++)
        latency = fmin(latency, s->seconds[i] - slope * s->bytes[i]);
    add_line(r, latency, slope);
}

static void lines_of_curves(const zx_problem *p, bool reduce, zx_bound_rate *r)
{
    const zx_machine *m = &p->machine;
    const bool gathers = !reduce || p->all_reduce;
    points s = {0};
    if (gathers) add_points(&s, &m->gather);
    if (reduce) add_points(&s, &m->reduce);
    if (s.n == 0) return;
    for (uint32_t i = 0; i < s.n; i++)
        s.seconds[i] = zx_problem_launch(p, reduce, (uint64_t)s.bytes[i]).wire;
    for (uint32_t i = s.n; i-- > 1;) // from the top: a level piece leaves the point below it alone
        if ((gathers && convex(&m->gather, s.bytes[i - 1], s.bytes[i])) ||
            (reduce && convex(&m->reduce, s.bytes[i - 1], s.bytes[i])))
            s.seconds[i] = fmin(s.seconds[i], s.seconds[i - 1]);
    const double end = s.bytes[s.n - 1];
    const double last = (zx_problem_launch(p, reduce, (uint64_t)(2 * end)).wire -
                         zx_problem_launch(p, reduce, (uint64_t)end).wire) /
                        end;
    add_slope(r, &s, last, last);
    for (uint32_t i = s.n; i-- > 1;)
        add_slope(r, &s, (s.seconds[i] - s.seconds[i - 1]) / (s.bytes[i] - s.bytes[i - 1]), last);
}

// A launch is over when its wire and its core are; both are lines where a link stands for the wire.
static void find_rate(const zx_problem *p, bool reduce, double moved, zx_bound_rate *r)
{
    const zx_machine *m = &p->machine;
    const uint64_t unit = (uint64_t)p->ranks << 30;
    *r = (zx_bound_rate){0};
    if (p->ranks == 1) return;
    const zx_launch_cost c = zx_problem_launch(p, reduce, unit);
    // What it puts out of a core's cache isn't in it: one launch of all does that once.
    r->core =
        m->cores > 0 ? (c.core - zx_refill_seconds(m, (double)unit)) / (double)unit * moved : 0;
    if (m->wire > 0)
        add_line(r, m->latency, (c.wire - m->latency) / (double)unit);
    else
        lines_of_curves(p, reduce, r);
    if (r->core > 0) add_line(r, 0, r->core);
}

double zx_bound_launches(double bytes, double most)
{
    if (bytes <= 0) return 0;
    return most > 0 && most < bytes ? ceil(bytes / most * (1 - 1e-12)) : 1;
}

double zx_bound_wire(const zx_bound_rate *r, double bytes, double most)
{
    const double n = most > 0 ? zx_bound_launches(bytes, most) : 0;
    double seconds = 0;
    for (uint32_t i = 0; i < r->n; i++)
        seconds = fmax(seconds, r->line[i].latency * n + r->line[i].per_byte * bytes);
    return seconds;
}

double zx_bound_crowd(const zx_bound_facts *f)
{
    const zx_machine *m = &f->p->machine;
    return m->cores > 0 && m->threads > m->cores ? m->threads / m->cores : 1;
}

double zx_bound_compute(const zx_bound_facts *f, double compute, double wire, double gathered,
                        double reduced)
{
    const zx_machine *m = &f->p->machine;
    if (m->cores <= 0)
        return compute + wire * (f->p->no_overlap ? 1 : m->interference / (1 + m->interference));
    const double moving = f->gather.core * gathered + f->reduce.core * reduced;
    return fmax(compute * zx_bound_crowd(f), (compute * m->threads + moving) / m->cores);
}

double zx_bound_seconds(const zx_bound_facts *f, double compute, double wire, double gathered,
                        double reduced)
{
    return fmax(wire, zx_bound_compute(f, compute, wire, gathered, reduced));
}

// ---- room ---------------------------------------------------------------------------------------

#define NO_LIMIT (INT64_MAX / 4)

static void find_room(zx_bound_facts *f, double room)
{
    const zx_problem *p = f->p;
    f->at = ZX_NEW(f->mem, double, f->n + 1);
    f->cap = ZX_NEW(f->mem, int64_t, f->n);
    f->hold = ZX_NEW(f->mem, int64_t, f->n);
    f->size = ZX_NEW(f->mem, int64_t, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++) {
        const uint64_t bytes =
            p->unit_wire[u] < p->unit_bytes[u] ? p->unit_wire[u] : p->unit_bytes[u];
        f->size[u] = (int64_t)(bytes < NO_LIMIT ? bytes : NO_LIMIT);
    }
    for (uint32_t s = 0; s < f->n; s++) {
        const double left = p->limit > p->base[s] ? (double)(p->limit - p->base[s]) * room : 0;
        f->at[s + 1] = f->at[s] + p->seconds[s];
        f->cap[s] = p->limit == UINT64_MAX || left > (double)NO_LIMIT
                        ? NO_LIMIT
                        : (int64_t)left + (left > 0 && room > 1);
        f->hold[s] = f->cap[s];
        for (uint32_t r = p->read_at[s]; r < p->read_at[s + 1]; r++)
            f->hold[s] -= f->size[p->reads[r].unit];
        if (f->hold[s] < 0) f->hold[s] = 0;
    }
}

static void find_next(zx_bound_facts *f)
{
    const zx_problem *p = f->p;
    const uint32_t n = p->n_reads;
    uint32_t *seen = ZX_NEW(f->mem, uint32_t, p->n_units + 1);
    f->next = ZX_NEW(f->mem, uint32_t, n + 1);
    for (uint32_t i = 2 * n; i-- > 0;) {
        const uint32_t u = p->reads[i % n].unit;
        if (i < n) f->next[i] = seen[u] - i;
        seen[u] = i;
    }
}

// ---- cuts ---------------------------------------------------------------------------------------

// So many that chain and scans take some millions of steps in all.
static uint32_t most_cuts(const zx_bound_facts *f)
{
    const double chain = sqrt(6e5 / f->micros), scans = 1.5e6 / (f->p->n_reads + f->n / 8 + 1);
    const double most = fmin(256, fmin(chain, scans));
    return most < 12 ? 12 : (uint32_t)most;
}

// Where enough of the circle's seconds, reads and gradients has gone by, a bit later if need be, at
// a step that reads; everywhere if that is few.
static void find_cuts(zx_bound_facts *f, uint32_t most)
{
    const zx_problem *p = f->p;
    double *weight = ZX_NEW(f->mem, double, f->n), reads = 1, grads = 1, sum = 0;
    for (uint32_t r = 0; r < p->n_reads; r++) reads += (double)f->size[p->reads[r].unit];
    for (uint32_t g = 0; g < p->n_grads; g++) grads += (double)p->unit_wire[p->grads[g].unit];
    for (uint32_t s = 0; s < f->n; s++) {
        weight[s] = 1.0 / f->n + p->seconds[s] / (f->at[f->n] + 1e-30);
        for (uint32_t r = p->read_at[s]; r < p->read_at[s + 1]; r++)
            weight[s] += (double)f->size[p->reads[r].unit] / reads;
    }
    for (uint32_t g = 0; g < p->n_grads; g++)
        weight[p->grads[g].ready - 1] += (double)p->unit_wire[p->grads[g].unit] / grads;
    for (uint32_t s = 0; s < f->n; s++) sum += weight[s];
    f->cut = ZX_NEW(f->mem, uint32_t, most + 2);
    f->n_cuts = 0;
    double gone = 0, due = 0;
    for (uint32_t s = 0; s < f->n; s++) {
        const bool here = p->read_at[s] < p->read_at[s + 1];
        const bool heavy = weight[s] > 2 * sum / most; // where a window had better begin
        if ((s == 0 || f->n <= most || heavy || (gone >= due && here) ||
             gone >= due + sum / most) &&
            f->n_cuts < most) {
            f->cut[f->n_cuts++] = s;
            while (due <= gone) due += sum / most;
        }
        gone += weight[s];
    }
    f->cut[f->n_cuts] = f->n;
}

// The first cut at or after a position; n_cuts: in the next circle.
static uint32_t cut_from(const zx_bound_facts *f, int64_t position)
{
    uint32_t a = 0, b = f->n_cuts;
    while (a < b) {
        const uint32_t mid = a + (b - a) / 2;
        if (f->cut[mid] >= position)
            b = mid;
        else
            a = mid + 1;
    }
    return a;
}

// ---- gradients ----------------------------------------------------------------------------------

// What of a gradient's bytes on the wire takes room where it waits: gradients that share bytes each
// have a part of them.
static double *find_shares(zx_bound_facts *f)
{
    const zx_problem *p = f->p;
    double *share = ZX_NEW(f->mem, double, p->n_grads + 1);
    uint32_t most = 0;
    for (uint32_t g = 0; g < p->n_grads; g++)
        if (p->grads[g].storage != ZX_NONE && p->grads[g].storage >= most)
            most = p->grads[g].storage + 1;
    uint32_t *count = ZX_NEW(f->mem, uint32_t, (size_t)most + 1);
    for (uint32_t g = 0; g < p->n_grads; g++)
        if (p->grads[g].storage != ZX_NONE) count[p->grads[g].storage]++;
    for (uint32_t g = 0; g < p->n_grads; g++) {
        const zx_grad *x = &p->grads[g];
        const uint32_t n = x->storage != ZX_NONE ? count[x->storage] : 1;
        share[g] = fmin((double)p->unit_wire[x->unit], (double)(x->bytes / n));
    }
    return share;
}

// Bytes of gradients by the step at which they are in `base` though they are whole; `ended`: those
// that the step itself ends too.
static double *find_spared(const zx_bound_facts *f, const double *share, bool ended)
{
    double *bytes = ZX_NEW(f->mem, double, f->n + 1);
    for (uint32_t g = 0; g < f->p->n_grads; g++) {
        const zx_grad *x = &f->p->grads[g];
        for (int64_t q = x->ready - ended; q < x->spare && q < x->ready + f->n - 1; q++)
            bytes[q % f->n] += share[g];
    }
    return bytes;
}

// Twice around: what waits at a step has found room at all steps since its bytes count.
static void find_pend(zx_bound_facts *f, const double *share, const double *spared)
{
    const zx_problem *p = f->p;
    double *begin = ZX_NEW(f->mem, double, f->n + 1), wait = (double)NO_LIMIT;
    for (uint32_t g = 0; g < p->n_grads; g++) begin[p->grads[g].spare % f->n] += share[g];
    f->pend = ZX_NEW(f->mem, double, f->n_cuts + 1);
    f->spared = ZX_NEW(f->mem, double, f->n_cuts + 1);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t s = 0, k = 0; s < f->n; s++) {
            wait = fmin(wait + begin[s], (double)f->hold[s]);
            if (s != f->cut[k]) continue;
            f->spared[k] = spared[s];
            f->pend[k++] = wait + spared[s];
        }
    f->end_pend = wait + spared[f->n - 1];
}

// A launch that is under way while compute runs a step holds its bytes at that step; where compute
// waits, a gather does at the step that it waits to run, a reduce at the one that it has run. What
// takes no room may be in any reduce.
static void find_launches(zx_bound_facts *f, const double *spared)
{
    const double extra = f->wired[f->n_cuts] - f->ready[f->n_cuts];
    f->gather_most = ZX_NEW(f->mem, double, f->n_cuts);
    f->reduce_most = ZX_NEW(f->mem, double, f->n_cuts);
    for (uint32_t k = 0; k < f->n_cuts; k++) {
        f->gather_most[k] = (double)f->cap[f->cut[k + 1] % f->n];
        for (uint32_t s = f->cut[k]; s < f->cut[k + 1]; s++) {
            f->gather_most[k] = fmax(f->gather_most[k], (double)f->cap[s]);
            f->reduce_most[k] = fmax(f->reduce_most[k], (double)f->hold[s] + spared[s] + extra);
        }
    }
    f->end_most = (double)f->hold[f->n - 1] + spared[f->n - 1] + extra;
}

static void find_grads(zx_bound_facts *f)
{
    const zx_problem *p = f->p;
    const double *share = f->share = find_shares(f);
    f->ready = ZX_NEW(f->mem, double, f->n_cuts + 1);
    f->wired = ZX_NEW(f->mem, double, f->n_cuts + 1);
    for (uint32_t g = 0; g < p->n_grads; g++) {
        const uint32_t k = cut_from(f, p->grads[g].ready);
        f->ready[k] += share[g];
        f->wired[k] += (double)p->unit_wire[p->grads[g].unit];
        if (p->grads[g].ready < f->n) continue;
        f->end_ready += share[g];
        f->end_wired += (double)p->unit_wire[p->grads[g].unit];
    }
    for (uint32_t k = 0; k < f->n_cuts; k++) {
        f->ready[k + 1] += f->ready[k];
        f->wired[k + 1] += f->wired[k];
    }
    f->whole_at = find_spared(f, share, false);
    find_pend(f, share, f->whole_at);
    f->spared_at = find_spared(f, share, true);
    find_launches(f, f->spared_at);
}

void zx_bound_facts_make(const zx_problem *p, const zx_bound_view *v, zx_arena *mem,
                         zx_bound_facts *f)
{
    *f = (zx_bound_facts){
        .p = p, .mem = mem, .n = p->n_steps, .micros = p->micro_batches, .lead = v->lead};
    find_room(f, v->room);
    find_next(f);
    find_cuts(f, v->max_cuts > 0 ? v->max_cuts : most_cuts(f));
    find_grads(f);
    find_rate(p, false, v->room > 1 ? 1 / v->room : 1, &f->gather);
    find_rate(p, true, 1, &f->reduce);
}

// bound_launches.c - windows in which launches count as wholes: nothing of a gather is there before
// all of it is, and a reduce waits for the last of its gradients.
//
// Gathers, in a window from whose start on a bytes have to be gathered before the start of step y,
// for each y (a grows with y, up to G at the window's end). Let N launches be over in it. Before
// launch r + 1 is over, X bytes have been gathered: compute is before the first step y with a(y) >
// X, so that rest(X) of its seconds come after. From then on the wire is still busy for F seconds
// with the later launches, beside which compute is slower. If the window takes the wire's seconds W
// and y more, rest(X) <= y + F / (1 + interference). For each y that gives the largest last launch,
// with it the largest one before, and so on: how many launches there are at least, N(y). The window
// takes the least of W(N(y)) + y over all y. Whatever order a schedule gathers in, a(y) bounds what
// is there, so in order of use is no assumption.
//
// Reduces are the mirror image: launch r can't begin before as many bytes are whole as it and those
// before it carry.
//
// Larger launches cost less latency and leave less room: while one of b bytes is under way no other
// brings anything, so that compute runs only steps whose units are whole already, beside b, at the
// step where it is when the launch begins: beside(b) seconds at most. A window with C seconds of
// compute then takes T >= sum f(b) over its launches, and T >= C + sum (f(b) - compute beside it);
// hence for any share s of the two T >= (1 - s) C + sum (f(b) - (1 - s) least(f(b) / (1 +
// interference), beside(b))), and of each launch the cheapest size counts, byte for byte, slot by
// slot (bound_layers.c). s = 1 is the wire's bound, s = 0 that of compute and interference.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound_parts.h"

#include <math.h>

#define STAIRS 2000 // launches that are counted at most
#define STEPS 24    // y that are tried

// How many launches there are at least, if y seconds pass beside the wire's.
static double count(const zx_bound_stairs *s, double y, double latency, double per_byte)
{
    double done = 0; // bytes of the launches so far, from the window's end (gathers)
    uint32_t k = 0;
    for (double n = 0;; n++) {
        if (done >= s->total * (1 - 1e-12)) return n;
        if (n >= STAIRS) return n;
        const double free = y + (n * latency + done * per_byte) * s->beside;
        while (k < s->n && s->seconds[k] <= free * (1 + 1e-12)) k++;
        // A launch reaches as far as the first place whose compute doesn't fit.
        double most = k < s->n ? s->bytes[k] : s->total;
        if (most > done + s->most) most = done + s->most;
        if (most <= done) return INFINITY; // not with so few seconds
        done = most;
    }
}

double zx_bound_stairs_seconds(const zx_bound_stairs *s, const zx_bound_rate *r, double compute,
                               double slow)
{
    double best = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        const double latency = r->line[i].latency, per_byte = r->line[i].per_byte;
        const double bytes = s->total * per_byte;
        double least = INFINITY, from = 0;
        if (latency <= 0) continue;
        // y up to all of compute: then there is one launch, or as many as the room asks for.
        for (uint32_t k = 1; k <= STEPS; k++) {
            const double part = (double)k / STEPS, to = compute * part * part;
            const double wire = count(s, to, latency, per_byte) * latency + bytes;
            least = fmin(least, fmax(wire + from, compute + slow * wire));
            from = to;
        }
        if (isfinite(least)) best = fmax(best, least);
    }
    return best;
}

// ---- room beside a launch -----------------------------------------------------------------------

typedef struct run { // of steps of the line, and of the units that they read
    const zx_bound_facts *f;
    uint32_t *count; // by unit: reads in the run
    int64_t bytes;
} run;

static void take_step(run *r, uint32_t step, bool in)
{
    const zx_problem *p = r->f->p;
    const uint32_t s = step % r->f->n;
    for (uint32_t i = p->read_at[s]; i < p->read_at[s + 1]; i++) {
        const uint32_t u = p->reads[i].unit;
        if (in && r->count[u]++ == 0) r->bytes += r->f->size[u];
        if (!in && --r->count[u] == 0) r->bytes -= r->f->size[u];
    }
}

// By slot, the most seconds of steps, from one of its own on, that read no more than what a launch
// leaves there; INFINITY: no end of them.
static void find_beside(const zx_bound_facts *f, double size, const double *spared, double *out)
{
    const zx_mark mark = zx_arena_mark(f->mem);
    run r = {.f = f, .count = ZX_NEW(f->mem, uint32_t, f->p->n_units + 1)};
    uint32_t to = 0; // the run is [g, to)
    for (uint32_t k = 0; k < f->n_cuts; k++)
        for (uint32_t g = f->cut[k]; g < f->cut[k + 1]; g++) {
            const double room =
                (double)f->cap[g] - fmax(0, size - (spared != NULL ? spared[g] : 0));
            if (to < g) to = g;
            while (to > g && (double)r.bytes > room) take_step(&r, --to, false);
            for (; to < g + f->n; to++) {
                take_step(&r, to, true);
                if ((double)r.bytes <= room) continue;
                take_step(&r, to, false);
                break;
            }
            const double end = to < f->n ? f->at[to] : f->at[f->n] + f->at[to - f->n];
            out[k] = fmax(out[k], to == g + f->n ? INFINITY : end - f->at[g]);
            if (to > g) take_step(&r, g, false);
        }
    zx_arena_rewind(f->mem, mark);
}

void zx_bound_beside_make(const zx_bound_facts *f, zx_bound_beside *out)
{
    const double extra = f->wired[f->n_cuts] - f->ready[f->n_cuts];
    double most = 0, *kept = ZX_NEW(f->mem, double, f->n);
    for (uint32_t k = 0; k < f->n_cuts; k++)
        most = fmax(most, fmax(f->gather_most[k], f->reduce_most[k]));
    for (uint32_t s = 0; s < f->n; s++) kept[s] = f->spared_at[s] + extra;
    *out = (zx_bound_beside){0};
    // Of enough sizes, for the time that they take.
    const double sizes = 4e5 / (f->n + f->p->n_reads + 1);
    out->n = sizes > ZX_BOUND_SIZES ? ZX_BOUND_SIZES : sizes < 6 ? 6 : (uint32_t)sizes;
    double all = 1;
    for (uint32_t u = 0; u < f->p->n_units; u++) all += (double)f->size[u];
    most = fmin(most, all); // of a launch
    out->gather = ZX_NEW(f->mem, double *, out->n);
    out->reduce = ZX_NEW(f->mem, double *, out->n);
    for (uint32_t m = 0; m < out->n; m++) {
        out->size[m] = m == 0 ? 0 : most * pow(1.0 / 128, 1 - (double)m / out->n);
        out->gather[m] = ZX_NEW(f->mem, double, f->n_cuts);
        out->reduce[m] = ZX_NEW(f->mem, double, f->n_cuts);
        if (m == 0) continue;
        find_beside(f, out->size[m], NULL, out->gather[m]);
        find_beside(f, out->size[m], kept, out->reduce[m]);
    }
}

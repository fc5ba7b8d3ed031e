// draw.c - tiny problems: three to seven steps that read one to six units, turn-arounds as in
// training or reads in any order, gradients, activations; a machine; and a limit between the least
// that is feasible and the most that matters.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/sched/truth/truth.h"

#define MOST_READS 8     // of the line
#define MOST_GRADS 3     // of a micro-batch; 2 where there are two
#define UNIT_BYTES 65536 // sizes are 1 to 16 of these

typedef struct drawer {
    uint64_t state;
    zx_arena *mem;
    zx_problem *p;
    double *seconds;
    uint64_t *base, *bytes, *wire, *elements;
    zx_read *reads;
    uint32_t *read_at;
    zx_grad *grads;
} drawer;

// ---- dice ---------------------------------------------------------------------------------------

static uint64_t next(drawer *d) // splitmix64
{
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static uint32_t pick(drawer *d, uint32_t from, uint32_t to) // both included
{
    return from + (uint32_t)(next(d) % (to - from + 1));
}
static double between(drawer *d, double from, double to)
{
    return from + (to - from) * (double)(next(d) >> 11) * 0x1p-53;
}
static bool chance(drawer *d, double p)
{
    return between(d, 0, 1) < p;
}

// ---- what is computed ---------------------------------------------------------------------------

static void draw_units(drawer *d)
{
    zx_problem *p = d->p;
    p->n_units = pick(d, 1, 6);
    if (p->n_units * p->micro_batches > MOST_READS) p->n_units = MOST_READS / p->micro_batches;
    const uint32_t most = chance(d, 0.2) ? 3 : 16;
    for (uint32_t u = 0; u < p->n_units; u++) {
        const uint64_t pad = chance(d, 0.5) ? 0 : 64 * p->ranks * pick(d, 1, 8);
        d->bytes[u] = (uint64_t)UNIT_BYTES * pick(d, 1, most);
        d->wire[u] = d->bytes[u] - pad;
        d->elements[u] = d->wire[u] / 4;
    }
}

static bool reads(const drawer *d, uint32_t step, uint32_t unit)
{
    for (uint32_t r = 0; r < d->p->n_reads; r++)
        if (d->reads[r].step == step && d->reads[r].unit == unit) return true;
    return false;
}

static void add_read(drawer *d, uint32_t step, uint32_t unit)
{
    zx_problem *p = d->p;
    if ((p->n_reads + 1) * p->micro_batches > MOST_READS || reads(d, step, unit)) return;
    uint32_t at = p->n_reads++;
    for (; at > 0 && (d->reads[at - 1].step > step ||
                      (d->reads[at - 1].step == step && d->reads[at - 1].unit > unit));
         at--)
        d->reads[at] = d->reads[at - 1];
    d->reads[at] = (zx_read){step, unit};
}

// Forward through the units, and back; or any step any unit.
static void draw_reads(drawer *d)
{
    zx_problem *p = d->p;
    const uint32_t n = p->n_steps, half = n / 2 > 0 ? n / 2 : 1;
    if (chance(d, 0.6)) {
        for (uint32_t u = 0; u < p->n_units; u++) {
            const uint32_t layer = u < half ? u : pick(d, 0, half - 1);
            add_read(d, layer, u);
            if (chance(d, 0.85)) add_read(d, n - 1 - layer, u);
        }
    } else {
        const uint32_t more = pick(d, 0, 4);
        for (uint32_t u = 0; u < p->n_units; u++) add_read(d, pick(d, 0, n - 1), u);
        for (uint32_t i = 0; i < more; i++)
            add_read(d, pick(d, 0, n - 1), pick(d, 0, p->n_units - 1));
    }
    for (uint32_t t = 0, r = 0; t <= n; t++) {
        while (r < p->n_reads && d->reads[r].step < t) r++;
        d->read_at[t] = r;
    }
}

static uint32_t last_read(const drawer *d, uint32_t unit)
{
    uint32_t last = 0;
    for (uint32_t r = 0; r < d->p->n_reads; r++)
        if (d->reads[r].unit == unit) last = d->reads[r].step;
    return last;
}

static zx_grad draw_grad(drawer *d, uint32_t unit)
{
    const zx_problem *p = d->p;
    const int64_t n = p->n_steps;
    zx_grad g = {.unit = unit, .storage = unit, .bytes = d->bytes[unit]};
    if (p->n_grads > 0 && chance(d, 0.08)) { // two units with one gradient
        g = d->grads[p->n_grads - 1];
        g.unit = unit;
        return g;
    }
    g.ready = chance(d, 0.7) ? (int64_t)last_read(d, unit) + 1 : (int64_t)pick(d, 1, (uint32_t)n);
    g.spare = g.ready + (chance(d, 0.7) ? 0 : pick(d, 1, 2));
    if (g.spare > n) g.spare = n;
    const int64_t made = g.ready - 1; // by this step, and by it again in the next micro-batch
    const int64_t most = p->micro_batches > 1 ? n + made : n;
    g.latest = chance(d, 0.5) ? most : (int64_t)pick(d, (uint32_t)g.spare, (uint32_t)most);
    if (chance(d, 0.05)) { // its bytes are something else's, that leaves then
        g.storage = ZX_NONE;
        g.bytes = 0;
        g.spare = g.latest = g.ready;
    }
    for (int64_t t = made; t < g.spare; t++) d->base[t] += g.bytes;
    return g;
}

static void add_grad(drawer *d, zx_grad g)
{
    uint32_t at = d->p->n_grads++;
    for (; at > 0 && (d->grads[at - 1].ready > g.ready ||
                      (d->grads[at - 1].ready == g.ready && d->grads[at - 1].unit > g.unit));
         at--)
        d->grads[at] = d->grads[at - 1];
    d->grads[at] = g;
}

static void draw_grads(drawer *d)
{
    const uint32_t most = MOST_GRADS - (d->p->micro_batches - 1);
    const uint32_t want = pick(d, 0, most < d->p->n_units ? most : d->p->n_units);
    for (uint32_t u = 0, left = want; u < d->p->n_units && left > 0; u++)
        if (chance(d, (double)left / (d->p->n_units - u))) {
            add_grad(d, draw_grad(d, u));
            left--;
        }
}

// Activations grow up to the middle and shrink again, or come and go.
static void draw_steps(drawer *d)
{
    const uint32_t n = d->p->n_steps;
    const double scale = between(d, 0, 8) * UNIT_BYTES;
    const bool hill = chance(d, 0.6);
    for (uint32_t t = 0; t < n; t++) {
        d->seconds[t] = chance(d, 0.05) ? 0 : between(d, 0.2e-3, 2e-3) * (t < n / 2 ? 1 : 2);
        const double part = hill ? (double)(t < n - 1 - t ? t + 1 : n - t) : between(d, 0, 3);
        d->base[t] += (uint64_t)(scale * part / 64) * 64;
    }
}

// ---- the machine --------------------------------------------------------------------------------

// Moving all that is read and reduced takes `ratio` times as long as computing.
static void draw_machine(drawer *d, double least, double most)
{
    zx_problem *p = d->p;
    zx_machine *m = &p->machine;
    double bytes = 0, compute = 0, launches = p->n_reads + p->n_grads;
    for (uint32_t t = 0; t < p->n_steps; t++) compute += p->seconds[t];
    for (uint32_t r = 0; r < p->n_reads; r++) bytes += (double)d->wire[d->reads[r].unit];
    for (uint32_t g = 0; g < p->n_grads; g++) bytes += (double)d->wire[d->grads[g].unit];
    if (compute <= 0) compute = 1e-3;
    const double ratio = exp(between(d, log(0.25), log(3))), wire = ratio * compute;
    const double share = chance(d, 0.2) ? 0 : between(d, least, most); // of it, latency
    const double rate = bytes * (p->ranks - 1) / p->ranks / (wire * (1 - share));
    const double latency = share * wire / launches;
    const uint32_t kind = pick(d, 0, 2);
    m->ranks = p->ranks;
    m->sum = 1e300;
    m->copy = 1e300;
    if (kind == 1) { // a GPU: tables, and compute is slower beside the wire
        m->interference = 0.189;
        const double slower = between(d, 0.8, 1.5);
        for (double size = 4096; m->gather.n < ZX_CURVE_POINTS; size *= 2) {
            const uint32_t i = m->gather.n++;
            m->gather.bytes[i] = m->reduce.bytes[i] = size;
            m->gather.seconds[i] = latency + size * (p->ranks - 1) / p->ranks / rate;
            m->reduce.seconds[i] = m->gather.seconds[i] * slower;
        }
        m->reduce.n = m->gather.n;
        return;
    }
    m->wire = rate;
    m->latency = latency;
    if (kind == 0) return;
    m->threads = pick(d, 1, 2);
    m->cores = m->threads + (chance(d, 0.3) ? 1 : 0);
    m->copy = rate / between(d, 0.1, 1.2);
    m->sum = rate / between(d, 0.1, 1.2);
}

// ---- the limit ----------------------------------------------------------------------------------

uint64_t truth_least(const zx_problem *p)
{
    uint64_t least = 0;
    for (uint32_t t = 0; t < p->n_steps; t++) {
        uint64_t bytes = p->base[t];
        for (uint32_t r = p->read_at[t]; r < p->read_at[t + 1]; r++)
            bytes += p->unit_bytes[p->reads[r].unit];
        if (bytes > least) least = bytes;
    }
    return least;
}

static void draw_limit(drawer *d)
{
    zx_problem *p = d->p;
    const uint64_t least = truth_least(p);
    uint64_t most = 0;
    for (uint32_t t = 0; t < p->n_steps; t++)
        if (p->base[t] > most) most = p->base[t];
    for (uint32_t u = 0; u < p->n_units; u++) most += p->unit_bytes[u];
    for (uint32_t g = 0; g < p->n_grads; g++) most += p->grads[g].bytes;
    const double part = chance(d, 0.1)   ? 0
                        : chance(d, 0.8) ? between(d, 0, 0.5)
                                         : between(d, 0.5, 1);
    p->limit = least + (uint64_t)((double)(most - least) * part);
}

static void open_drawing(drawer *d)
{
    zx_problem *p = d->p;
    p->ranks = 1u << pick(d, 1, 3);
    p->seconds = d->seconds = ZX_NEW(d->mem, double, p->n_steps);
    p->base = d->base = ZX_NEW(d->mem, uint64_t, p->n_steps);
    p->unit_bytes = d->bytes = ZX_NEW(d->mem, uint64_t, MOST_READS);
    p->unit_wire = d->wire = ZX_NEW(d->mem, uint64_t, MOST_READS);
    p->unit_elements = d->elements = ZX_NEW(d->mem, uint64_t, MOST_READS);
    p->reads = d->reads = ZX_NEW(d->mem, zx_read, MOST_READS);
    p->read_at = d->read_at = ZX_NEW(d->mem, uint32_t, p->n_steps + 1);
    p->grads = d->grads = ZX_NEW(d->mem, zx_grad, MOST_GRADS);
}

zx_problem truth_draw(uint32_t seed, zx_arena *mem)
{
    zx_problem p = {.ranks = 2};
    drawer d = {.state = seed, .mem = mem, .p = &p};
    p.micro_batches = chance(&d, 0.15) ? 2 : 1;
    p.n_steps = p.micro_batches > 1 ? 3 : pick(&d, 3, 7);
    open_drawing(&d);
    draw_units(&d);
    draw_reads(&d);
    draw_grads(&d);
    draw_steps(&d);
    draw_machine(&d, 0, 0.6);
    draw_limit(&d);
    if (chance(&d, 0.5)) p.after = between(&d, 0, 0.5e-3);
    return p;
}

// ---- tight lines --------------------------------------------------------------------------------

// Forward through two or three units, and back, where each leaves a gradient of its size; now and
// then twice in a micro-batch, as what is recomputed. Room for one to two and a half of them, and
// launches that cost much beside their bytes.
static void draw_line(drawer *d)
{
    zx_problem *p = d->p;
    const uint32_t n = p->n_steps, most = chance(d, 0.5) ? 1 : 4;
    uint64_t unit = 0;
    for (uint32_t u = 0; u < p->n_units; u++) {
        d->bytes[u] = d->wire[u] = (uint64_t)UNIT_BYTES * (most == 1 ? 4 : pick(d, 1, most));
        d->elements[u] = d->wire[u] / 4;
        if (d->bytes[u] > unit) unit = d->bytes[u];
    }
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t u = t < p->n_units ? t : n - 1 - t;
        d->seconds[t] = between(d, 0.8e-3, 1.2e-3) * (t < n / 2 ? 1 : 2);
        if (u < p->n_units) add_read(d, t, u);
    }
    if (p->micro_batches == 1 && chance(d, 0.2)) add_read(d, n - 1, 1);
    for (uint32_t t = 0, r = 0; t <= n; t++) {
        while (r < p->n_reads && d->reads[r].step < t) r++;
        d->read_at[t] = r;
    }
    for (uint32_t u = 0; u < p->n_units && p->n_grads < MOST_GRADS + 1 - p->micro_batches; u++) {
        const int64_t ready = (int64_t)n - u;
        add_grad(d, (zx_grad){u, u, ready, ready, p->micro_batches > 1 ? n + ready - 1 : n,
                              d->bytes[u]});
        d->base[ready - 1] += d->bytes[u];
    }
    for (uint32_t t = 0; t < n && chance(d, 0.7); t++)
        d->base[t] += (t < n - 1 - t ? t + 1 : n - t) * (uint64_t)UNIT_BYTES / 2;
    d->p->limit = (uint64_t)(between(d, 0, 1.5) * (double)unit / 64) * 64;
}

zx_problem truth_draw_line(uint32_t seed, zx_arena *mem)
{
    zx_problem p = {.ranks = 2};
    drawer d = {.state = seed, .mem = mem, .p = &p};
    p.micro_batches = chance(&d, 0.2) ? 2 : 1;
    p.n_units = p.micro_batches > 1 ? 2 : pick(&d, 2, 3);
    p.n_steps = 2 * p.n_units + (p.micro_batches == 1 && chance(&d, 0.3));
    open_drawing(&d);
    draw_line(&d);
    const uint64_t more = p.limit;
    draw_machine(&d, 0.1, 0.9);
    p.limit = truth_least(&p) + more;
    return p;
}

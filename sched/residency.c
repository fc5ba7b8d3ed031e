// residency.c - pass: decide between which uses a unit stays gathered.
//
// Every gap between two uses of a unit may be bridged: that saves one gather a micro-batch and
// costs the unit's bytes for the steps between. Gaps are taken in the order of what a saved second
// costs, as long as they fit the share of the spare room that this pass may take; a gap without a
// step in it costs nothing and is always taken. What is bridged is one stay.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <stdlib.h>

typedef struct gap {
    uint32_t use; // the one before it
    double price; // byte-seconds held for a second saved
} gap;

static int cheaper(const void *a, const void *b)
{
    const gap *x = a, *y = b;
    if (x->price != y->price) return x->price < y->price ? -1 : 1;
    return x->use < y->use ? -1 : x->use > y->use;
}

// The steps between a use and the next: [from, to], none where to < from.
static void between(const zx_draft *d, uint32_t use, int64_t *from, int64_t *to)
{
    const zx_trace *t = d->trace;
    const zx_use *u = &t->uses[use];
    *from = (int64_t)u->step + 1;
    *to = *from + u->steps - 1;
}

static bool bridge(zx_draft *d, uint32_t use, int64_t most)
{
    const uint32_t unit = d->trace->uses[use].unit;
    const int64_t bytes = (int64_t)d->unit_bytes[unit];
    const int64_t elements = (int64_t)d->unit_elements[unit];
    const uint64_t live = d->options->max_live_elements;
    int64_t from, to;
    between(d, use, &from, &to);
    if (to >= from) {
        if (zx_load_most(&d->bytes, from, to) + bytes > most) return false;
        if (live > 0 && (uint64_t)(zx_load_most(&d->elements, from, to) + elements) > live)
            return false;
    }
    zx_load_add(&d->bytes, from, to, bytes);
    zx_load_add(&d->elements, from, to, elements);
    return true;
}

static void make_stays(zx_draft *d, const bool *bridged)
{
    const zx_trace *t = d->trace;
    bool *joined = ZX_NEW(d->mem, bool, t->n_uses); // the gap before this use is bridged
    for (uint32_t i = 0; i < t->n_uses; i++)
        if (bridged[i]) joined[t->uses[i].next] = true;
    bool *open = ZX_NEW(d->mem, bool, t->graph->n_params); // some use of it begins a stay
    for (uint32_t i = 0; i < t->n_uses; i++) open[t->uses[i].unit] |= !joined[i];
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const uint32_t unit = t->uses[i].unit;
        const bool always = !open[unit];
        if (always ? t->first_use[unit] != i : joined[i]) continue;
        zx_stay *s = &d->stays[d->n_stays++];
        *s = (zx_stay){.unit = unit, .use = i, .n_uses = 1, .always = always, .launch = ZX_NONE};
        s->first = s->last = s->issue = t->uses[i].step;
        for (uint32_t u = i; bridged[u] && t->uses[u].next != i; u = t->uses[u].next) {
            s->last += (int64_t)t->uses[u].steps + 1;
            s->n_uses++;
        }
        s->wraps = !always && s->last >= t->n_steps;
    }
}

void zx_pass_residency(zx_draft *d)
{
    const zx_trace *t = d->trace;
    const zx_machine *m = &d->options->machine;
    d->n_stays = 0;
    if (!d->gathers || t->n_uses == 0) return;
    gap *gaps = ZX_NEW(d->mem, gap, t->n_uses);
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_uses; i++) {
        const zx_use *u = &t->uses[i];
        if (u->next <= i && t->micro_batches == 1) continue; // nothing is gathered after the last
        const double bytes = (double)d->unit_bytes[u->unit];
        const double saved = zx_gather_seconds(m, d->options->ranks, d->unit_bytes[u->unit]);
        gaps[n++] = (gap){i, bytes * u->seconds / (saved + 1e-12)};
    }
    qsort(gaps, n, sizeof *gaps, cheaper);
    const int64_t least = zx_load_most(&d->bytes, 0, (int64_t)t->n_steps - 1);
    const int64_t limit = zx_draft_limit(d);
    int64_t most = 0;
    if (limit > least)
        most = least + (int64_t)(d->knobs.residency * (double)(limit - least));
    else if (d->knobs.residency > 0)
        most = limit;
    bool *bridged = ZX_NEW(d->mem, bool, t->n_uses);
    for (uint32_t i = 0; i < n; i++) bridged[gaps[i].use] = bridge(d, gaps[i].use, most);
    make_stays(d, bridged);
}

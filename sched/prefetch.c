// prefetch.c - pass: which gathers share a launch, and how early it is issued.
//
// Stays that follow one another share a launch until it is full or the later ones would not fit in
// memory at the first one's use. Then the launches are laid on the wire backwards from their
// deadlines: each has to begin `eager` times its duration before its use or the begin of the launch
// after it, whichever is earlier. In order of first use each takes as much of that as fits: an
// earlier need never loses its memory to a later one.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

typedef struct group { // a launch: stays [from, to)
    uint32_t from, to;
    int64_t bytes, elements;
    double start; // when its gather should begin
} group;

static bool fits(const zx_draft *d, int64_t from, int64_t to, int64_t bytes, int64_t elements)
{
    if (to < from) return true;
    const uint64_t live = d->options->max_live_elements;
    return zx_load_most(&d->bytes, from, to) <= zx_draft_limit(d) - bytes &&
           (live == 0 || (uint64_t)(zx_load_most(&d->elements, from, to) + elements) <= live);
}

int64_t zx_stay_earliest(const zx_draft *d, const zx_stay *s)
{
    if (d->trace->micro_batches == 1) return 0;
    return s->last - (int64_t)d->trace->n_steps + 1;
}

static bool joins(zx_draft *d, const group *g, const zx_stay *s, bool unit_is_in)
{
    if (unit_is_in || d->knobs.launch_bytes == 0) return false;
    const int64_t bytes = (int64_t)d->unit_bytes[s->unit];
    const int64_t elements = (int64_t)d->unit_elements[s->unit];
    if ((uint64_t)(g->bytes + bytes) > d->knobs.launch_bytes) return false;
    const int64_t at = d->stays[g->from].first;
    return at >= zx_stay_earliest(d, s) && fits(d, at, s->first - 1, bytes, elements);
}

static uint32_t make_groups(zx_draft *d, group *groups)
{
    uint32_t n = 0;
    uint32_t *in =
        ZX_NEW(d->mem, uint32_t, d->trace->graph->n_params); // its group so far, plus one
    for (uint32_t i = 0; i < d->n_stays; i++) {
        zx_stay *s = &d->stays[i];
        if (s->always) continue;
        const int64_t bytes = (int64_t)d->unit_bytes[s->unit];
        const int64_t elements = (int64_t)d->unit_elements[s->unit];
        // A stay for the whole step in between ends a launch: members are next to each other.
        if (n > 0 && groups[n - 1].to == i && joins(d, &groups[n - 1], s, in[s->unit] == n)) {
            const int64_t at = d->stays[groups[n - 1].from].first;
            zx_load_add(&d->bytes, at, s->first - 1, bytes);
            zx_load_add(&d->elements, at, s->first - 1, elements);
            s->issue = at;
        } else
            groups[n++] = (group){.from = i};
        group *g = &groups[n - 1];
        g->to = i + 1;
        g->bytes += bytes;
        g->elements += elements;
        in[s->unit] = n;
        s->launch = n - 1;
    }
    return n;
}

// When a step begins if nothing waits, also before and after this micro-batch.
static double when(const zx_trace *t, int64_t step)
{
    const int64_t n = t->n_steps;
    const int64_t round = step >= 0 ? step / n : -((-step + n - 1) / n);
    return t->at[step - round * n] + (double)round * t->at[n];
}

static void lay_out(const zx_draft *d, group *groups, uint32_t n)
{
    const zx_trace *t = d->trace;
    const int rounds =
        t->micro_batches > 1 ? 2 : 1; // the second knows what follows this micro-batch
    double after = 1e300;
    for (int r = 0; r < rounds; r++) {
        for (uint32_t k = n; k-- > 0;) {
            group *g = &groups[k];
            const double use = when(t, d->stays[g->from].first);
            const double takes =
                zx_gather_seconds(&d->options->machine, d->options->ranks, (uint64_t)g->bytes);
            g->start = (use < after ? use : after) - takes * d->knobs.eager;
            after = g->start;
        }
        if (n > 0) after = groups[0].start + t->at[t->n_steps];
    }
}

// The last step that begins no later than the launch should, as far as its members' earlier stays
// allow.
static int64_t pick_want(const zx_draft *d, const group *g)
{
    int64_t a = INT64_MIN, b = d->stays[g->from].first;
    for (uint32_t i = g->from; i < g->to; i++) {
        const int64_t e = zx_stay_earliest(d, &d->stays[i]);
        if (e > a) a = e;
    }
    while (a < b) {
        const int64_t mid = a + (b - a + 1) / 2;
        if (when(d->trace, mid) <= g->start)
            a = mid;
        else
            b = mid - 1;
    }
    return b;
}

// The first step from which on the launch fits; launches leave in order.
static int64_t pick_issue(const zx_draft *d, const group *g, int64_t want, int64_t before)
{
    const int64_t first = d->stays[g->from].first;
    int64_t a = want > before ? want : before, b = first;
    while (a < b) {
        const int64_t mid = a + (b - a) / 2;
        if (fits(d, mid, first - 1, g->bytes, g->elements))
            b = mid;
        else
            a = mid + 1;
    }
    return b;
}

void zx_pass_prefetch(zx_draft *d)
{
    if (d->n_stays == 0) return;
    group *groups = ZX_NEW(d->mem, group, d->n_stays);
    const uint32_t n = make_groups(d, groups);
    if (d->knobs.eager <= 0) return;
    lay_out(d, groups, n);
    int64_t before = -(int64_t)d->trace->n_steps;
    for (uint32_t k = 0; k < n; k++) {
        const group *g = &groups[k];
        const int64_t want = pick_want(d, g), issue = pick_issue(d, g, want, before);
        zx_load_add(&d->bytes, issue, d->stays[g->from].first - 1, g->bytes);
        zx_load_add(&d->elements, issue, d->stays[g->from].first - 1, g->elements);
        for (uint32_t i = g->from; i < g->to; i++) {
            d->stays[i].issue = issue;
            d->stays[i].want = want;
        }
        before = issue;
    }
}

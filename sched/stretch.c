// stretch.c - pass: use what placement left idle.
//
// Once every span has an address, the bytes around it are often nobody's for a while. Gathers that
// memory kept late begin earlier, and gradients that compute would have to wait for are held
// longer, as far as they wanted, where that fits below the highest end that there is already: in
// their own bytes, or at another address.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <stdlib.h>

typedef struct stretcher {
    zx_draft *d;
    uint32_t *span_of_stay, *span_of_storage; // ZX_NONE: it has no bytes of its own
    uint32_t *by_offset, *place;              // spans in order of address, and where each is in it
    uint32_t *moved;                          // of the launch that is tried: its spans
    zx_span *was;                             // and what they were before
} stretcher;

// ---- addresses
// --------------------------------------------------------------------------------------------

typedef struct item {
    uint64_t offset;
    uint32_t span;
} item;

static int lower(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->span < y->span ? -1 : x->span > y->span;
}

// Spans begin at most one round before or after one another: no division, this is called a lot.
static bool share_steps(const zx_span *a, const zx_span *b, int64_t n)
{
    int64_t x = b->from - a->from; // how far b begins after a
    while (x < 0) x += n;
    while (x >= n) x -= n;
    return x <= a->to - a->from || n - x <= b->to - b->from;
}

// The lowest address below the highest end where a span fits as it is now.
static bool find_address(const stretcher *k, uint32_t span, uint64_t *offset)
{
    const zx_draft *d = k->d;
    const zx_span *s = &d->spans[span];
    uint64_t at = 0;
    for (uint32_t i = 0; i < d->n_spans; i++) {
        const zx_span *o = &d->spans[k->by_offset[i]];
        if (o->offset >= at + s->bytes) break;
        if (o == s || o->offset + o->bytes <= at || !share_steps(s, o, d->trace->n_steps)) continue;
        at = zx_align_up(o->offset + o->bytes, ZX_ALIGN);
    }
    *offset = at;
    return at + s->bytes <= d->transient;
}

static void set_address(stretcher *k, uint32_t span, uint64_t offset)
{
    zx_span *spans = k->d->spans;
    uint32_t i = k->place[span];
    spans[span].offset = offset;
    for (; i > 0 && spans[k->by_offset[i - 1]].offset > offset; i--)
        k->place[k->by_offset[i] = k->by_offset[i - 1]] = i;
    for (; i + 1 < k->d->n_spans && spans[k->by_offset[i + 1]].offset < offset; i++)
        k->place[k->by_offset[i] = k->by_offset[i + 1]] = i;
    k->place[k->by_offset[i] = span] = i;
}

// The spans of a launch from `from` on (or until `to`), if all find an address; else as they were.
static bool try_spans(stretcher *k, uint32_t n, const int64_t *from, const int64_t *to)
{
    uint32_t done = 0;
    bool good = true;
    for (; done < n && good; done++) {
        zx_span *s = &k->d->spans[k->moved[done]];
        uint64_t offset;
        k->was[done] = *s;
        if (from && *from < s->from) s->from = *from;
        if (to && *to > s->to) s->to = *to;
        good = find_address(k, k->moved[done], &offset);
        if (good) set_address(k, k->moved[done], offset);
    }
    while (!good && done-- > 0) {
        const zx_span was = k->was[done];
        zx_span *s = &k->d->spans[k->moved[done]];
        s->from = was.from;
        s->to = was.to;
        set_address(k, k->moved[done], was.offset);
    }
    return good;
}

// ---- gathers
// ----------------------------------------------------------------------------------------------

static void stretch_stays(stretcher *k)
{
    zx_draft *d = k->d;
    int64_t before = INT64_MIN; // launches leave in order
    for (uint32_t from = 0, to; from < d->n_stays; from = to) {
        to = from + 1;
        if (d->stays[from].always) continue;
        while (to < d->n_stays && d->stays[to].launch == d->stays[from].launch) to++;
        int64_t a = d->stays[from].want > before ? d->stays[from].want : before;
        int64_t b = d->stays[from].issue;
        for (uint32_t i = from; i < to; i++) {
            const int64_t own = zx_stay_earliest(d, &d->stays[i]);
            if (own > a) a = own;
            k->moved[i - from] = k->span_of_stay[i];
        }
        const uint64_t live = d->options->max_live_elements;
        for (int64_t at = a; at < b; at = a + (b - a) / 2) { // the wish first, then by halves
            bool good = true;
            int64_t elements = 0;
            for (uint32_t i = from; i < to; i++)
                elements += (int64_t)d->unit_elements[d->stays[i].unit];
            if (live > 0)
                good = (uint64_t)(zx_load_most(&d->elements, at, b - 1) + elements) <= live;
            if (good && try_spans(k, to - from, &at, NULL)) {
                zx_load_add(&d->elements, at, b - 1, elements);
                b = at;
            } else
                a = at + 1;
        }
        for (uint32_t i = from; i < to; i++) d->stays[i].issue = b;
        before = b;
    }
}

// ---- gradients
// --------------------------------------------------------------------------------------------

static uint32_t span_of_flow(const stretcher *k, const zx_flow *f)
{
    const zx_trace *t = k->d->trace;
    const zx_where w = t->where[t->graph->params[f->unit].grad];
    return w.kind == ZX_AT_STORAGE ? k->span_of_storage[w.index] : ZX_NONE;
}

static void stretch_flows(stretcher *k)
{
    zx_draft *d = k->d;
    for (uint32_t from = 0, to; from < d->n_flows; from = to) {
        int64_t a = d->flows[from].drained, b = d->flows[from].want;
        uint32_t n = 0;
        for (to = from; to < d->n_flows && d->flows[to].launch == d->flows[from].launch; to++) {
            const uint32_t span = span_of_flow(k, &d->flows[to]);
            const int64_t own = zx_flow_latest(d, &d->flows[to]);
            if (own < b) b = own;
            bool known = span == ZX_NONE; // two gradients may be one
            for (uint32_t i = 0; i < n; i++) known |= k->moved[i] == span;
            if (!known) k->moved[n++] = span;
        }
        for (int64_t at = b; at > a; at = a + (b - a + 1) / 2) {
            if (try_spans(k, n, NULL, &at))
                a = at;
            else
                b = at - 1;
        }
        for (uint32_t i = from; i < to; i++)
            if (d->flows[i].drained < a) d->flows[i].drained = a;
    }
}

void zx_pass_stretch(zx_draft *d)
{
    if (d->knobs.eager <= 0 || d->n_spans == 0) return;
    stretcher k = {.d = d};
    k.span_of_stay = ZX_NEW(d->mem, uint32_t, d->n_stays);
    k.span_of_storage = ZX_NEW(d->mem, uint32_t, d->trace->n_storages);
    k.by_offset = ZX_NEW(d->mem, uint32_t, d->n_spans);
    k.place = ZX_NEW(d->mem, uint32_t, d->n_spans);
    k.moved = ZX_NEW(d->mem, uint32_t, d->n_stays + d->n_flows);
    k.was = ZX_NEW(d->mem, zx_span, d->n_stays + d->n_flows);
    item *items = ZX_NEW(d->mem, item, d->n_spans);
    for (uint32_t i = 0; i < d->trace->n_storages; i++) k.span_of_storage[i] = ZX_NONE;
    for (uint32_t i = 0; i < d->n_spans; i++) {
        items[i] = (item){d->spans[i].offset, i};
        if (d->spans[i].kind == ZX_SPAN_STAY) k.span_of_stay[d->spans[i].index] = i;
        if (d->spans[i].kind == ZX_SPAN_STORAGE) k.span_of_storage[d->spans[i].index] = i;
    }
    qsort(items, d->n_spans, sizeof *items, lower);
    for (uint32_t i = 0; i < d->n_spans; i++) k.place[k.by_offset[i] = items[i].span] = i;
    stretch_stays(&k);
    stretch_flows(&k);
    d->transient = 0; // what ended highest may have moved
    for (uint32_t i = 0; i < d->n_spans; i++)
        if (d->spans[i].offset + d->spans[i].bytes > d->transient)
            d->transient = d->spans[i].offset + d->spans[i].bytes;
}

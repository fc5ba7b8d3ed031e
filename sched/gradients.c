// gradients.c - pass: which reduces share a launch, and when a gradient's bytes are given away.
//
// Gradients that become whole one after the other share a launch until it is full or the earlier
// ones would not fit in memory until the last one is there. Then the launches are laid on the wire
// in that order, each `eager` times its duration long; a gradient keeps its bytes until its launch
// should be done, or for as long as that fits: then compute waits for it.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

typedef struct hold { // by storage: until which step it is spoken for
    int64_t until;
} hold;

static bool fits(const zx_draft *d, int64_t from, int64_t to, int64_t bytes)
{
    if (to < from) return true;
    return zx_load_most(&d->bytes, from, to) <= zx_draft_limit(d) - bytes;
}

static const zx_storage *storage_of(const zx_draft *d, const zx_flow *f, uint32_t *index)
{
    const zx_graph *g = d->trace->graph;
    const zx_where w = d->trace->where[g->params[f->unit].grad];
    *index = w.index;
    return w.kind == ZX_AT_STORAGE ? &d->trace->storages[w.index] : NULL;
}

int64_t zx_flow_latest(const zx_draft *d, const zx_flow *f)
{
    const int64_t n = d->trace->n_steps;
    uint32_t i;
    const zx_storage *s = storage_of(d, f, &i);
    const zx_where w = d->trace->where[d->trace->graph->params[f->unit].grad];
    if (w.kind == ZX_AT_UNIT && d->gathers) return f->ready; // the unit leaves after this step
    if (d->trace->micro_batches == 1 || s == NULL) return n - 1;
    return s->born + n - 1;
}

static int64_t bytes_of(const zx_draft *d, const zx_flow *f)
{
    uint32_t i;
    const zx_storage *s = storage_of(d, f, &i);
    return s ? (int64_t)zx_align_up(s->bytes, ZX_ALIGN) : 0;
}

// The bytes until `to`, if they fit (or must).
static bool extend(zx_draft *d, hold *holds, const zx_flow *f, int64_t to, bool must)
{
    uint32_t i;
    const zx_storage *s = storage_of(d, f, &i);
    if (s == NULL || holds[i].until >= to) return true;
    const int64_t bytes = bytes_of(d, f);
    if (!must && !fits(d, holds[i].until + 1, to, bytes)) return false;
    zx_load_add(&d->bytes, holds[i].until + 1, to, bytes);
    holds[i].until = to;
    return true;
}

static void collect(zx_draft *d)
{
    const zx_trace *t = d->trace;
    const uint32_t n_units = t->graph->n_params;
    // Counting sort by `ready`; equal ones in order of units.
    uint32_t *at = ZX_NEW(d->mem, uint32_t, t->n_steps + 1);
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t u = 0; u < n_units; u++) {
            if (t->grad_ready[u] == ZX_NONE) continue;
            const zx_where w = t->where[t->graph->params[u].grad];
            if (w.kind == ZX_AT_STORAGE && d->made_in[w.index] != ZX_NONE) continue;
            if (fill)
                d->flows[at[t->grad_ready[u]]++] =
                    (zx_flow){.unit = u, .ready = t->grad_ready[u], .drained = t->grad_ready[u]};
            else
                at[t->grad_ready[u] + 1]++, d->n_flows++;
        }
        if (!fill)
            for (uint32_t s = 0; s < t->n_steps; s++) at[s + 1] += at[s];
    }
}

static void group(zx_draft *d, hold *holds)
{
    uint32_t n = 0, from = 0;
    uint64_t bytes = 0, elements = 0;
    for (uint32_t i = 0; i < d->n_flows; i++) {
        zx_flow *f = &d->flows[i];
        const uint64_t most = d->options->reduce_bucket_elements;
        bool joins = i > 0 && bytes + d->unit_bytes[f->unit] <= d->knobs.launch_bytes &&
                     (most == 0 || elements + d->unit_elements[f->unit] <= most);
        for (uint32_t k = from; joins && k < i; k++)
            joins = f->ready <= zx_flow_latest(d, &d->flows[k]) &&
                    extend(d, holds, &d->flows[k], f->ready, false);
        if (!joins) {
            n += i > 0;
            from = i;
            bytes = elements = 0;
        }
        bytes += d->unit_bytes[f->unit];
        elements += d->unit_elements[f->unit];
        f->launch = n;
    }
}

static double when(const zx_trace *t, int64_t step)
{
    const int64_t n = t->n_steps;
    return t->at[step % n] + (double)(step / n) * t->at[n];
}

// How long compute may go on before the launch of flows [from, to) has to be waited for.
static int64_t pick_drained(const zx_draft *d, uint32_t from, uint32_t to, double end,
                            int64_t *want)
{
    const int64_t begin = d->flows[to - 1].ready;
    int64_t lo = begin, hi = INT64_MAX, bytes = 0;
    for (uint32_t i = from; i < to; i++) {
        const int64_t l = zx_flow_latest(d, &d->flows[i]);
        if (l < hi) hi = l;
        bytes += bytes_of(d, &d->flows[i]);
    }
    while (lo < hi) { // the first step at whose end the launch is done
        const int64_t mid = lo + (hi - lo) / 2;
        if (when(d->trace, mid + 1) >= end)
            hi = mid;
        else
            lo = mid + 1;
    }
    *want = lo;
    int64_t a = begin, b = lo; // the last one until which it fits
    while (a < b) {
        const int64_t mid = a + (b - a + 1) / 2;
        if (fits(d, begin + 1, mid, bytes))
            a = mid;
        else
            b = mid - 1;
    }
    return a;
}

void zx_pass_gradients(zx_draft *d)
{
    const zx_trace *t = d->trace;
    const zx_plan_options *o = d->options;
    d->n_flows = 0;
    collect(d);
    hold *holds = ZX_NEW(d->mem, hold, t->n_storages);
    for (uint32_t i = 0; i < t->n_storages; i++) holds[i].until = t->storages[i].dies;
    group(d, holds);
    for (uint32_t i = d->n_flows; i-- > 0;) // a launch begins when its last member is whole
        d->flows[i].drained = i + 1 < d->n_flows && d->flows[i].launch == d->flows[i + 1].launch
                                  ? d->flows[i + 1].drained
                                  : d->flows[i].ready;
    if (d->knobs.eager <= 0) return;
    double wire = 0; // when it is free again; the second round knows what the last micro-batch left
    for (int r = t->micro_batches > 1 ? 0 : 1; r < 2; r++) {
        for (uint32_t from = 0, to; from < d->n_flows; from = to) {
            uint64_t bytes = 0;
            for (to = from; to < d->n_flows && d->flows[to].launch == d->flows[from].launch; to++)
                bytes += d->unit_bytes[d->flows[to].unit];
            const double ready = when(t, d->flows[to - 1].ready + 1);
            const double takes = o->stage < 2 ? zx_allreduce_seconds(&o->machine, o->ranks, bytes)
                                              : zx_reduce_seconds(&o->machine, o->ranks, bytes);
            wire = (ready > wire ? ready : wire) + takes * d->knobs.eager;
            if (r == 0) continue;
            int64_t want;
            const int64_t drained = pick_drained(d, from, to, wire, &want);
            for (uint32_t i = from; i < to; i++) {
                d->flows[i].drained = drained;
                d->flows[i].want = want;
                extend(d, holds, &d->flows[i], drained, true);
            }
        }
        wire = wire > t->at[t->n_steps] ? wire - t->at[t->n_steps] : 0;
    }
}

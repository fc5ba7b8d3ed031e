// emit_draft.c - the planner's own draft as a schedule: what happens in every micro-batch of the
// circle, written out on the line of the step.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>

#include "sched/schedule.h"

typedef struct member { // a stay in one gather, and the last step that reads it then
    uint32_t stay;
    int64_t last;
} member;

typedef struct sending { // one gather
    int64_t issue, first;
    uint32_t from, n, index; // range of members; the order in which they were made
} sending;

typedef struct line {
    const zx_draft *d;
    zx_arena *mem;
    zx_schedule *s;
    uint32_t n_members, n_sendings;
    member *members;
    sending *sendings;
    uint32_t *span_of_stay;
} line;

static int by_first(const void *a, const void *b)
{
    const sending *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_issue(const void *a, const void *b)
{
    const sending *x = a, *y = b;
    if (x->issue != y->issue) return x->issue < y->issue ? -1 : 1;
    return by_first(a, b);
}

static void open_sending(line *l, int64_t issue, int64_t first)
{
    l->sendings[l->n_sendings] = (sending){issue, first, l->n_members, 0, l->n_sendings};
    l->n_sendings++;
}

static void add_member(line *l, uint32_t stay, int64_t last)
{
    l->members[l->n_members++] = (member){stay, last};
    l->sendings[l->n_sendings - 1].n++;
}

// The last step of a stay that goes on into a micro-batch that there isn't: within this one.
static int64_t last_here(const line *l, const zx_stay *s)
{
    const zx_trace *t = l->d->trace;
    int64_t end = s->first;
    for (uint32_t u = s->use;; u = t->uses[u].next) {
        const int64_t next = end + (int64_t)t->uses[u].steps + 1;
        if (next >= t->n_steps) return end;
        end = next;
    }
}

static void add_stays(line *l)
{
    const zx_draft *d = l->d;
    const zx_trace *t = d->trace;
    for (uint32_t m = 0; m < t->micro_batches; m++) {
        const int64_t base = (int64_t)t->n_steps * m;
        uint32_t launch = ZX_NONE;
        for (uint32_t i = 0; i < d->n_stays; i++) {
            const zx_stay *s = &d->stays[i];
            if (s->always) continue;
            const int64_t issue = base + s->issue;
            if (s->launch != launch) open_sending(l, issue < 0 ? 0 : issue, base + s->first);
            launch = s->launch;
            const bool cut = s->wraps && m + 1 == t->micro_batches;
            add_member(l, i, base + (cut ? last_here(l, s) : s->last));
        }
    }
}

typedef struct resident { // a unit that is in place already when a micro-batch begins, but the
                          // first
    uint32_t stay;
    int64_t first, last;
} resident;

static int by_read(const void *a, const void *b)
{
    const resident *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->stay < y->stay ? -1 : x->stay > y->stay;
}

// What the first micro-batch gathers beside what every one does.
static void add_residents(line *l)
{
    const zx_draft *d = l->d;
    const zx_trace *t = d->trace;
    const int64_t n = t->n_steps;
    resident *list = ZX_NEW(l->mem, resident, d->n_stays + 1);
    uint32_t count = 0;
    for (uint32_t i = 0; i < d->n_stays; i++) {
        const zx_stay *s = &d->stays[i];
        if (s->always)
            list[count++] = (resident){i, s->first, s->last + n * ((int64_t)t->micro_batches - 1)};
        if (!s->wraps) continue;
        int64_t at = s->first;
        for (uint32_t u = s->use; at < n; u = t->uses[u].next) at += (int64_t)t->uses[u].steps + 1;
        list[count++] = (resident){i, at - n, s->last - n};
    }
    qsort(list, count, sizeof *list, by_read);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t unit = d->stays[list[i].stay].unit;
        if (i == 0 || bytes + d->unit_bytes[unit] > d->knobs.launch_bytes) {
            open_sending(l, -1, list[i].first);
            bytes = 0;
        }
        bytes += d->unit_bytes[unit];
        add_member(l, list[i].stay, list[i].last);
    }
}

static uint64_t bytes_of(const line *l, const sending *x)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < x->n; i++)
        bytes += l->d->unit_bytes[l->d->stays[l->members[x->from + i].stay].unit];
    return bytes;
}

// When residents leave: backwards from their uses, between the launches that leave anyway. Their
// bytes are theirs from the start.
static void time_residents(line *l)
{
    const zx_draft *d = l->d;
    const zx_trace *t = d->trace;
    double after = 1e300;
    qsort(l->sendings, l->n_sendings, sizeof *l->sendings, by_first);
    for (uint32_t i = l->n_sendings; i-- > 0;) {
        sending *x = &l->sendings[i];
        if (x->first >= t->n_steps) continue;
        const double use = t->at[x->first];
        const double takes =
            zx_gather_seconds(&d->options->machine, d->options->ranks, bytes_of(l, x));
        const double start = (use < after ? use : after) - takes * d->knobs.eager;
        after = start;
        if (x->issue >= 0) continue;
        int64_t a = 0, b = x->first;
        while (a < b) {
            const int64_t mid = a + (b - a + 1) / 2;
            if (t->at[mid] <= start)
                a = mid;
            else
                b = mid - 1;
        }
        x->issue = d->knobs.eager > 0 ? a : x->first;
    }
}

static void write_gathers(line *l)
{
    const zx_draft *d = l->d;
    uint32_t *units = ZX_NEW(l->mem, uint32_t, d->n_stays + 1);
    for (uint32_t i = 0; i < l->n_sendings; i++) {
        const sending *x = &l->sendings[i];
        const member *m = &l->members[x->from];
        for (uint32_t k = 0; k < x->n; k++) units[k] = d->stays[m[k].stay].unit;
        const uint32_t hold = l->s->n_holds;
        const uint32_t launch =
            zx_schedule_gather(l->s, x->issue, x->issue, units, x->n, false,
                               x->issue < x->first ? ZX_PASS_prefetch : ZX_PASS_residency);
        zx_schedule_await(l->s, x->first, launch);
        for (uint32_t k = 0; k < x->n; k++) {
            l->s->now[units[k]] = hold + k;
            zx_schedule_free(l->s, m[k].last + 1, units[k]);
            l->s->holds[hold + k].span = l->span_of_stay[m[k].stay];
        }
    }
}

static void write_reduces(line *l)
{
    const zx_draft *d = l->d;
    const zx_trace *t = d->trace;
    uint32_t *units = ZX_NEW(l->mem, uint32_t, d->n_flows + 1);
    for (uint32_t m = 0; m < t->micro_batches; m++) {
        const int64_t base = (int64_t)t->n_steps * m;
        for (uint32_t from = 0, to; from < d->n_flows; from = to) {
            for (to = from; to < d->n_flows && d->flows[to].launch == d->flows[from].launch; to++)
                units[to - from] = d->flows[to].unit;
            const zx_flow *last = &d->flows[to - 1];
            const uint32_t launch =
                zx_schedule_reduce(l->s, base + last->ready + 1, m, units, to - from, false, false);
            zx_schedule_drain(l->s, base + last->drained + 1, launch);
        }
    }
}

// The draft's spans with their addresses; a schedule's holds are of units.
static void copy_spans(line *l)
{
    const zx_draft *d = l->d;
    l->span_of_stay = ZX_NEW(l->mem, uint32_t, d->n_stays + 1);
    l->s->spans = ZX_NEW(l->mem, zx_span, d->n_spans + 1);
    l->s->n_spans = d->n_spans;
    for (uint32_t i = 0; i < d->n_spans; i++) {
        l->s->spans[i] = d->spans[i];
        if (d->spans[i].kind != ZX_SPAN_STAY) continue;
        l->span_of_stay[d->spans[i].index] = i;
        l->s->spans[i].index = d->stays[d->spans[i].index].unit;
    }
    l->s->placed = true;
    l->s->transient = d->transient;
}

void zx_emit(const zx_draft *d, zx_arena *mem, zx_plan *out)
{
    const zx_trace *t = d->trace;
    const size_t most = ((size_t)t->micro_batches + 1) * d->n_stays + 1;
    zx_schedule s;
    zx_schedule_start(&s, t, d->options, mem);
    snprintf(s.policy, sizeof s.policy, "zerox");
    s.update_launch = d->knobs.launch_bytes;
    line l = {.d = d, .mem = mem, .s = &s};
    l.members = ZX_NEW(mem, member, most);
    l.sendings = ZX_NEW(mem, sending, most);
    copy_spans(&l);
    add_stays(&l);
    add_residents(&l);
    time_residents(&l);
    qsort(l.sendings, l.n_sendings, sizeof *l.sendings, by_issue);
    write_gathers(&l);
    write_reduces(&l);
    uint32_t mended;
    zx_err err = {0};
    const zx_status st = zx_schedule_finish(&s, &mended, &err);
    ZX_ASSERT(st == ZX_OK && mended == 0);
    zx_schedule_emit(&s, mem, out);
}

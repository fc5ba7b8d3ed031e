// schedule.c - writing a schedule down, and completing it; see schedule.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/schedule.h"

#include <stdlib.h>
#include <string.h>

static int64_t end_of(const zx_schedule *s)
{
    return (int64_t)s->trace->n_steps * s->trace->micro_batches;
}

static uint32_t put_act(zx_schedule *s, zx_act_kind kind, int64_t at, uint32_t what, zx_pass_id by)
{
    ZX_GROW(s->mem, s->acts, s->n_acts, s->cap_acts);
    s->acts[s->n_acts] = (zx_act){at, s->n_acts, what, (uint8_t)kind, (uint8_t)by};
    return s->n_acts++;
}

void zx_schedule_start(zx_schedule *s, const zx_trace *t, const zx_plan_options *o, zx_arena *mem)
{
    const uint32_t n = t->graph->n_params;
    *s = (zx_schedule){.trace = t, .options = o, .mem = mem};
    uint64_t *bytes = ZX_NEW(mem, uint64_t, n + 1);
    s->now = ZX_NEW(mem, uint32_t, n + 1);
    s->pending = ZX_NEW(mem, uint32_t, n + 1);
    for (uint32_t u = 0; u < n; u++) {
        bytes[u] = zx_unit_padded(t, o, u);
        s->now[u] = s->pending[u] = ZX_NONE;
    }
    s->unit_bytes = bytes;
    s->whole_params = o->stage < 3 || o->ranks == 1;
    s->made_in = zx_made_in(t, o, mem);
}

static zx_transfer *open_transfer(zx_schedule *s, const zx_transfer *x)
{
    ZX_GROW(s->mem, s->transfers, s->n_transfers, s->cap_transfers);
    zx_transfer *t = &s->transfers[s->n_transfers++];
    *t = *x;
    t->over = t->unpack = -1;
    t->act = t->span = t->row = ZX_NONE;
    return t;
}

uint32_t zx_schedule_gather(zx_schedule *s, int64_t at, int64_t gate, const uint32_t *units,
                            uint32_t n, bool flat, zx_pass_id by)
{
    ZX_ASSERT(n > 0 && !s->whole_params && gate <= at);
    const int64_t last = end_of(s) - 1;
    const zx_transfer x = {.first = s->n_holds,
                           .n = n,
                           .flat = flat,
                           .gate = gate < 0      ? 0
                                   : gate < last ? gate
                                                 : last,
                           .at = at};
    const uint32_t launch = s->n_transfers;
    open_transfer(s, &x);
    for (uint32_t i = 0; i < n; i++) {
        ZX_GROW(s->mem, s->holds, s->n_holds, s->cap_holds);
        s->holds[s->n_holds] = (zx_hold){.unit = units[i],
                                         .launch = launch,
                                         .gate = x.gate,
                                         .await = -1,
                                         .gone = -1,
                                         .first = -1,
                                         .span = ZX_NONE,
                                         .act = ZX_NONE};
        s->now[units[i]] = s->n_holds++;
    }
    put_act(s, ZX_ACT_GATHER, at, launch, by);
    return launch;
}

void zx_schedule_await(zx_schedule *s, int64_t at, uint32_t launch)
{
    zx_transfer *x = &s->transfers[launch];
    if (x->over >= 0) return;
    x->over = at;
    x->act = put_act(s, ZX_ACT_AWAIT, at, launch, ZX_PASS_policy);
}

void zx_schedule_unpack(zx_schedule *s, int64_t gate, uint32_t launch)
{
    s->transfers[launch].unpack = gate < 0 ? 0 : gate;
}

void zx_schedule_free(zx_schedule *s, int64_t at, uint32_t unit)
{
    const uint32_t h = s->now[unit];
    ZX_ASSERT(h != ZX_NONE);
    s->now[unit] = ZX_NONE;
    s->holds[h].gone = at;
    s->holds[h].act = put_act(s, ZX_ACT_FREE, at, h, ZX_PASS_policy);
}

int64_t zx_schedule_grad_at(const zx_schedule *s, uint32_t micro, uint32_t unit)
{
    return (int64_t)s->trace->n_steps * micro + s->trace->grad_ready[unit] + 1;
}

void zx_schedule_bucket(zx_schedule *s, int64_t at, uint32_t micro, uint32_t unit)
{
    const int64_t whole = zx_schedule_grad_at(s, micro, unit);
    ZX_ASSERT(s->pending[unit] == ZX_NONE);
    s->pending[unit] = put_act(s, ZX_ACT_BUCKET, at > whole ? at : whole, ZX_NONE, ZX_PASS_policy);
}

uint32_t zx_schedule_reduce(zx_schedule *s, int64_t at, uint32_t micro, const uint32_t *units,
                            uint32_t n, bool flat, bool bucket)
{
    ZX_ASSERT(n > 0);
    const uint32_t launch = s->n_transfers;
    zx_transfer *x = open_transfer(
        s, &(zx_transfer){
               .first = s->n_gradients, .n = n, .reduce = true, .flat = flat, .bucket = bucket});
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t u = units[i];
        if (bucket && s->pending[u] == ZX_NONE) zx_schedule_bucket(s, at, micro, u);
        int64_t ready = zx_schedule_grad_at(s, micro, u), bucketed = -1;
        if (bucket) {
            zx_act *a = &s->acts[s->pending[u]];
            bucketed = ready = a->at;
            a->what = s->n_gradients;
            s->pending[u] = ZX_NONE;
        }
        if (ready > at) at = ready;
        ZX_GROW(s->mem, s->gradients, s->n_gradients, s->cap_gradients);
        s->gradients[s->n_gradients++] = (zx_gradient){u, launch, micro, bucketed};
    }
    x->at = x->gate = at;
    put_act(s, ZX_ACT_REDUCE, at, launch, ZX_PASS_gradients);
    return launch;
}

void zx_schedule_drain(zx_schedule *s, int64_t at, uint32_t launch)
{
    zx_transfer *x = &s->transfers[launch];
    if (x->over >= 0) return;
    x->over = at > x->at ? at : x->at;
    x->act = put_act(s, ZX_ACT_DRAIN, x->over, launch, ZX_PASS_policy);
}

void zx_schedule_sync(zx_schedule *s, int64_t at, uint32_t launch)
{
    put_act(s, ZX_ACT_SYNC, at, launch, ZX_PASS_sync);
}

void zx_schedule_hooks(zx_schedule *s, int64_t at, uint32_t n)
{
    if (n > 0) put_act(s, ZX_ACT_HOOK, at, n, ZX_PASS_policy);
}

// ---- completing ---------------------------------------------------------------------------------

static void set_await(zx_schedule *s, uint32_t launch, int64_t at)
{
    zx_transfer *x = &s->transfers[launch];
    if (x->act == ZX_NONE)
        x->act = put_act(s, ZX_ACT_AWAIT, at, launch, ZX_PASS_policy);
    else
        s->acts[x->act].at = at;
    x->over = at;
}

static void set_gone(zx_schedule *s, uint32_t hold, int64_t at)
{
    zx_hold *h = &s->holds[hold];
    if (h->act == ZX_NONE)
        h->act = put_act(s, ZX_ACT_FREE, at, hold, ZX_PASS_policy);
    else
        s->acts[h->act].at = at;
    h->gone = at;
}

typedef struct by_unit { // holds of each unit in order of when they are awaited
    uint32_t *head, *next;
} by_unit;

typedef struct waiting {
    int64_t at;
    uint32_t hold;
} waiting;

static int by_await(const void *a, const void *b)
{
    const waiting *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->hold < y->hold ? -1 : x->hold > y->hold;
}

// Two holds of a unit may be open at a time: the later one is issued while the other is read.
static by_unit chain_holds(zx_schedule *s)
{
    const uint32_t n = s->trace->graph->n_params;
    by_unit c = {ZX_NEW(s->mem, uint32_t, n + 1), ZX_NEW(s->mem, uint32_t, s->n_holds + 1)};
    waiting *list = ZX_NEW(s->mem, waiting, s->n_holds + 1);
    for (uint32_t u = 0; u < n; u++) c.head[u] = ZX_NONE;
    for (uint32_t i = 0; i < s->n_holds; i++) {
        const zx_transfer *x = &s->transfers[s->holds[i].launch];
        list[i] = (waiting){x->over >= 0 ? x->over : x->at, i};
    }
    qsort(list, s->n_holds, sizeof *list, by_await);
    for (uint32_t i = s->n_holds; i-- > 0;) {
        const uint32_t u = s->holds[list[i].hold].unit;
        c.next[list[i].hold] = c.head[u];
        c.head[u] = list[i].hold;
    }
    return c;
}

// Everything a launch brings is there for its first reader: its await is never later.
static void note_read(zx_schedule *s, uint32_t hold, int64_t p)
{
    zx_hold *h = &s->holds[hold];
    if (h->first < 0) h->first = p;
    zx_transfer *x = &s->transfers[h->launch];
    if (x->over < 0 || x->over > p) set_await(s, h->launch, p);
}

// The hold that serves a read at p, which no hold of the unit spans: the one after is awaited
// sooner where it is issued by then, the one before goes on, or one is gathered for it alone.
static uint32_t mend(zx_schedule *s, uint32_t unit, uint32_t before, uint32_t after, int64_t p)
{
    if (after != ZX_NONE && s->transfers[s->holds[after].launch].at <= p) return after;
    if (before != ZX_NONE) {
        set_gone(s, before, p + 1);
        return before;
    }
    const uint32_t open = s->now[unit];
    zx_schedule_gather(s, p, p, &unit, 1, false, ZX_PASS_policy);
    s->now[unit] = open;
    const uint32_t hold = s->n_holds - 1;
    set_gone(s, hold, p + 1);
    return hold;
}

static void serve_reads(zx_schedule *s, uint32_t *mended)
{
    const zx_trace *t = s->trace;
    const uint32_t n_holds = s->n_holds; // those that mending adds serve one read each
    const by_unit c = chain_holds(s);
    uint32_t *at = ZX_NEW(s->mem, uint32_t, t->graph->n_params + 1); // the hold at hand
    uint32_t *before = ZX_NEW(s->mem, uint32_t, t->graph->n_params + 1);
    for (uint32_t u = 0; u < t->graph->n_params; u++) {
        at[u] = c.head[u];
        before[u] = ZX_NONE;
    }
    for (uint32_t m = 0; m < t->micro_batches; m++)
        for (uint32_t i = 0; i < t->n_uses; i++) {
            const uint32_t u = t->uses[i].unit;
            const int64_t p = (int64_t)t->n_steps * m + t->uses[i].step;
            while (at[u] != ZX_NONE && s->holds[at[u]].gone >= 0 && s->holds[at[u]].gone <= p) {
                before[u] = at[u];
                at[u] = c.next[at[u]];
            }
            uint32_t h = at[u];
            const zx_transfer *x = h == ZX_NONE ? NULL : &s->transfers[s->holds[h].launch];
            if (x == NULL || x->at > p || x->over > p) {
                h = mend(s, u, before[u], h, p);
                ++*mended;
                if (h >= n_holds) before[u] = h;
            }
            note_read(s, h, p);
            s->reads[(size_t)m * t->n_uses + i] = h;
        }
}

// Holds and launches get the ends that nobody stated.
static void end_holds(zx_schedule *s)
{
    const zx_trace *t = s->trace;
    int64_t *last = ZX_NEW(s->mem, int64_t, s->n_holds + 1);
    for (uint32_t m = 0; m < t->micro_batches; m++)
        for (uint32_t i = 0; i < t->n_uses; i++)
            last[s->reads[(size_t)m * t->n_uses + i]] =
                (int64_t)t->n_steps * m + t->uses[i].step + 1;
    for (uint32_t i = 0; i < s->n_transfers; i++) {
        const zx_transfer x = s->transfers[i];
        if (x.over >= 0) continue;
        if (!x.reduce)
            set_await(s, i, x.at < end_of(s) ? x.at : end_of(s) - 1);
        else
            zx_schedule_drain(s, (int64_t)t->n_steps * (s->gradients[x.first].micro + (int64_t)1),
                              i);
    }
    for (uint32_t i = 0; i < s->n_holds; i++) {
        zx_hold *h = &s->holds[i];
        h->await = s->transfers[h->launch].over;
        int64_t gone = h->gone < 0 ? last[i] : h->gone;
        if (gone <= h->await) gone = h->await + 1; // what nobody reads is freed a step later
        if (gone != h->gone || h->act == ZX_NONE) set_gone(s, i, gone);
    }
}

// The position until which a gradient's bytes may be held at the latest: in the next micro-batch it
// is made again.
static int64_t latest(const zx_schedule *s, const zx_gradient *x)
{
    const zx_trace *t = s->trace;
    const zx_where w = t->where[t->graph->params[x->unit].grad];
    const int64_t base = (int64_t)t->n_steps * x->micro;
    if (w.kind == ZX_AT_UNIT && !s->whole_params) return base + t->grad_ready[x->unit] + 1;
    if (w.kind != ZX_AT_STORAGE || t->micro_batches == 1) return base + t->n_steps;
    return base + t->n_steps + t->storages[w.index].born;
}

static void end_reduces(zx_schedule *s)
{
    for (uint32_t i = 0; i < s->n_transfers; i++) {
        zx_transfer *x = &s->transfers[i];
        if (!x->reduce) continue;
        int64_t over = x->over < end_of(s) ? x->over : end_of(s);
        for (uint32_t k = 0; k < x->n && !x->flat; k++) {
            const int64_t own = latest(s, &s->gradients[x->first + k]);
            if (own < over) over = own;
        }
        if (over < x->at) over = x->at;
        x->over = s->acts[x->act].at = over;
    }
}

static zx_status check_reduced(const zx_schedule *s, zx_err *err)
{
    const zx_graph *g = s->trace->graph;
    uint32_t *count = ZX_NEW(s->mem, uint32_t, g->n_params + 1);
    for (uint32_t i = 0; i < s->n_gradients; i++) count[s->gradients[i].unit]++;
    for (uint32_t u = 0; u < g->n_params; u++) {
        uint32_t want = s->local ? 1 : s->trace->micro_batches;
        if (s->trace->grad_ready[u] == ZX_NONE) want = 0;
        const zx_where w = want > 0 ? s->trace->where[g->params[u].grad] : (zx_where){0, 0};
        if (want > 0 && w.kind == ZX_AT_STORAGE && s->made_in[w.index] != ZX_NONE) want = 0;
        if (count[u] != want)
            return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                           "policy '%s' reduces the gradient of '%s' %u times in %u micro-batches",
                           s->policy, g->params[u].name, count[u], want);
    }
    return ZX_OK;
}

// ---- the order of acts --------------------------------------------------------------------------

// At one position: what only reads, then what gives bytes back, then what takes them.
static int class_of(const zx_schedule *s, const zx_act *a)
{
    switch ((zx_act_kind)a->kind) {
    case ZX_ACT_REDUCE:
        if (s->transfers[a->what].late) break;
        return s->transfers[a->what].flat ? 3 : 0;
    case ZX_ACT_DRAIN:
        if (s->transfers[a->what].late && s->transfers[a->what].at == a->at) break;
        // of what is enqueued here only: at the end of all
        return s->transfers[a->what].flat && s->transfers[a->what].at == a->at ? 4 : 1;
    case ZX_ACT_FREE:
        return 2;
    case ZX_ACT_BUCKET:
        return 3;
    case ZX_ACT_GATHER:
    case ZX_ACT_AWAIT:
    case ZX_ACT_SYNC:
    case ZX_ACT_HOOK:
        break;
    }
    return 5;
}

static int in_order(const void *a, const void *b)
{
    const zx_act *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void sort_acts(zx_schedule *s)
{
    const uint32_t n = s->n_acts;
    // An await never comes before its gather, whatever the order in which they were written down.
    for (uint32_t i = 0; i < n; i++) {
        zx_act *a = &s->acts[i];
        a->order += (uint32_t)class_of(s, a) * n;
    }
    if (n > 0) qsort(s->acts, n, sizeof *s->acts, in_order);
}

zx_status zx_schedule_finish(zx_schedule *s, uint32_t *mended, zx_err *err)
{
    const zx_trace *t = s->trace;
    *mended = 0;
    if (!s->whole_params) {
        s->reads = ZX_NEW(s->mem, uint32_t, (size_t)t->n_uses * t->micro_batches + 1);
        serve_reads(s, mended);
    }
    if (!s->whole_params) {
        end_holds(s);
    } else {
        for (uint32_t i = 0; i < s->n_transfers; i++)
            zx_schedule_drain(
                s, (int64_t)t->n_steps * (s->gradients[s->transfers[i].first].micro + (int64_t)1),
                i);
    }
    end_reduces(s);
    ZX_TRY(check_reduced(s, err));
    sort_acts(s);
    if (!s->placed) zx_schedule_spans(s);
    return ZX_OK;
}

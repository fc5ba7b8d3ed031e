// policy_deepcompile.c - policy: DeepSpeed's DeepCompile at stage 3 (deepspeed/compile/passes),
// once its warm-up is over.
//
// Forward and backward are two graphs; in each, a parameter is gathered before its first use and
// released after its last. The prefetch pass walks a graph backwards and takes gathers along, fused
// while that is cheaper, for as long as memory lasts; so each leaves as early as memory allows. The
// selective-gather pass then keeps parameters whole for the whole step, those with the most gather
// time a byte first, until the first that doesn't fit. Gathers land in place; gradients are copied
// into a bucket, of which there are two, and the host waits for the last one after each backward.
//
// Its list scheduler also reorders what is computed ("fast free"); the order of our steps is fixed
// for all policies alike, so that pass has nothing to decide here. What it profiles we know: bytes
// from the trace, times from the machine.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_make.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// Constants of passes/prefetch.py.
#define MOST_FUSED 1e9
#define MOST_BUFFERED 4e9
#define FUSE 1.2
#define GROWS 6   // and how often of more
#define SHRINKS 6 // how often it is told of less memory, since placement took more than it knew

typedef struct part { // a unit in one of the two graphs
    uint32_t unit;
    int64_t first, last; // steps that read it
    int64_t at;          // where it is gathered
    uint32_t group;      // of the graph's groups: those of one launch
} part;

typedef struct event { // a node of the graph, as far as it matters
    int64_t step;
    uint32_t part; // its gather; ZX_NONE: the step itself
    uint64_t peak; // bytes while it executes
} event;

typedef struct half { // the forward graph, or the backward
    int64_t from, to; // its steps
    uint32_t n_parts, n_groups;
    part *parts; // by `first`
} half;

typedef struct maker {
    const zx_trace *t;
    const zx_plan_options *o;
    zx_arena *mem;
    const uint64_t *bytes; // of a whole unit
    uint64_t most;         // bytes it believes it may take
    uint64_t *alive;       // by step: all but gathered parameters, while it executes
    uint64_t *before;      // and right before it
    half half[2];
    bool *kept; // by unit
    uint32_t n_kept;
} maker;

// ---- what a profile would show ------------------------------------------------------------------

// Held slots, activations, scratch; gradients until they are copied; both buckets.
static void count_alive(maker *k, uint64_t bucket_bytes)
{
    const zx_trace *t = k->t;
    uint64_t *comes = ZX_NEW(k->mem, uint64_t, t->n_steps + 1);
    uint64_t *goes = ZX_NEW(k->mem, uint64_t, t->n_steps + 1);
    for (uint32_t i = 0; i < t->n_storages; i++) {
        const uint64_t bytes = zx_align_up(t->storages[i].bytes, ZX_ALIGN);
        comes[t->storages[i].born] += bytes;
        goes[t->storages[i].dies] += bytes;
    }
    uint64_t now = zx_held_bytes(t, k->o) + 2 * bucket_bytes;
    k->alive = ZX_NEW(k->mem, uint64_t, t->n_steps + 1);
    k->before = ZX_NEW(k->mem, uint64_t, t->n_steps + 1);
    for (uint32_t s = 0; s < t->n_steps; s++) {
        k->before[s] = now;
        now += comes[s];
        k->alive[s] = now + zx_align_up(t->work[s], ZX_ALIGN);
        now -= goes[s];
    }
}

static void find_parts(maker *k, half *h)
{
    const zx_trace *t = k->t;
    const uint32_t n = t->graph->n_params;
    uint32_t *at = ZX_NEW(k->mem, uint32_t, n + 1);
    for (uint32_t u = 0; u < n; u++) at[u] = ZX_NONE;
    h->parts = ZX_NEW(k->mem, part, n + 1);
    for (uint32_t i = t->use_at[h->from]; i < t->use_at[h->to]; i++) {
        const zx_use *u = &t->uses[i];
        if (at[u->unit] == ZX_NONE) {
            at[u->unit] = h->n_parts;
            h->parts[h->n_parts++] = (part){.unit = u->unit, .first = u->step, .at = u->step};
        }
        h->parts[at[u->unit]].last = u->step;
    }
}

// By step of the half: bytes of parameters that are whole, or on their way, at that step.
static const uint64_t *count_whole(const maker *k, const half *h)
{
    const int64_t n = h->to - h->from;
    int64_t *change = ZX_NEW(k->mem, int64_t, (size_t)n + 2), now = 0;
    uint64_t *whole = ZX_NEW(k->mem, uint64_t, (size_t)n + 1);
    for (uint32_t i = 0; i < h->n_parts; i++) {
        const part *x = &h->parts[i];
        change[x->at - h->from] += (int64_t)k->bytes[x->unit];
        change[x->last + 1 - h->from] -= (int64_t)k->bytes[x->unit];
    }
    for (int64_t s = 0; s < n; s++) {
        now += change[s];
        whole[s] = (uint64_t)now;
    }
    return whole;
}

// ---- prefetch -----------------------------------------------------------------------------------

static uint32_t list_events(const maker *k, const half *h, event *list)
{
    const uint64_t *whole = count_whole(k, h);
    uint32_t n = 0;
    for (int64_t s = h->from, i = 0; s < h->to; s++) {
        const uint64_t units = whole[s - h->from];
        for (; i < h->n_parts && h->parts[i].first == s; i++)
            list[n++] = (event){s, (uint32_t)i, k->before[s] + units};
        list[n++] = (event){s, ZX_NONE, k->alive[s] + units};
    }
    return n;
}

typedef struct walk { // parts are taken along in order, from the last to the first
    maker *k;
    half *h;
    uint32_t oldest, open, next; // finished groups: parts [open, oldest); current: [next, open)
    uint64_t buffered, current;  // bytes: in all groups, in the current one
} walk;

// The finished groups are parts from `oldest` down; the oldest has the highest indices.
static void emit_oldest(walk *w, int64_t at)
{
    const uint32_t group = w->h->parts[w->oldest - 1].group;
    while (w->oldest > w->open && w->h->parts[w->oldest - 1].group == group) {
        part *x = &w->h->parts[--w->oldest];
        x->at = at;
        w->buffered -= w->k->bytes[x->unit];
    }
}

static void close_current(walk *w)
{
    w->open = w->next;
    w->current = 0;
    w->h->n_groups++;
}

static void take_along(walk *w, uint32_t i)
{
    const maker *k = w->k;
    const uint64_t size = k->bytes[w->h->parts[i].unit];
    const double a = zx_gather_seconds(&k->o->machine, k->o->ranks, w->current);
    const double b = zx_gather_seconds(&k->o->machine, k->o->ranks, size);
    const double both = zx_gather_seconds(&k->o->machine, k->o->ranks, w->current + size);
    const bool fuse =
        FUSE * (a > b ? a : b) > both && (double)w->current + (double)size < MOST_FUSED;
    if (w->next < w->open && !fuse) close_current(w);
    w->next = i;
    w->h->parts[i].group = w->h->n_groups;
    w->current += size;
    w->buffered += size;
}

static void prefetch(maker *k, half *h)
{
    event *list = ZX_NEW(k->mem, event, (size_t)h->n_parts + (size_t)(h->to - h->from) + 1);
    const uint32_t n = list_events(k, h, list);
    walk w = {.k = k, .h = h, .oldest = h->n_parts, .open = h->n_parts, .next = h->n_parts};
    for (uint32_t i = n; i-- > 0;) {
        // What the event before can't have in flight is gathered after this one.
        const int64_t after = list[i].part == ZX_NONE ? list[i].step + 1 : list[i].step;
        const uint64_t peak = list[i > 0 ? i - 1 : 0].peak;
        while (peak + w.buffered > k->most || (double)w.buffered > MOST_BUFFERED) {
            if (w.oldest > w.open)
                emit_oldest(&w, after);
            else if (w.next < w.open)
                close_current(&w);
            else
                break;
        }
        if (list[i].part != ZX_NONE) take_along(&w, list[i].part);
    }
    if (w.next < w.open) close_current(&w);
    while (w.oldest > w.open) emit_oldest(&w, h->from);
}

// ---- selective gather ---------------------------------------------------------------------------

typedef struct candidate {
    uint32_t unit;
    double seconds; // of its gathers in a micro-batch, a byte
} candidate;

static int by_gain(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static void keep_some(maker *k)
{
    const uint32_t n = k->t->graph->n_params;
    uint64_t peak = 0;
    candidate *list = ZX_NEW(k->mem, candidate, n + 1);
    for (uint32_t u = 0; u < n; u++) list[u].unit = u;
    for (int i = 0; i < 2; i++) {
        const half *h = &k->half[i];
        const uint64_t *whole = count_whole(k, h);
        for (int64_t s = h->from; s < h->to; s++)
            if (k->alive[s] + whole[s - h->from] > peak) peak = k->alive[s] + whole[s - h->from];
        for (uint32_t p = 0; p < h->n_parts; p++) {
            const uint64_t bytes = k->bytes[h->parts[p].unit];
            list[h->parts[p].unit].seconds +=
                zx_gather_seconds(&k->o->machine, k->o->ranks, bytes) / (double)bytes;
        }
    }
    qsort(list, n, sizeof *list, by_gain);
    uint64_t left = k->most > peak ? k->most - peak : 0;
    k->kept = ZX_NEW(k->mem, bool, n + 1);
    k->n_kept = 0;
    for (uint32_t i = 0; i < n && list[i].seconds > 0; i++) {
        if (k->bytes[list[i].unit] > left) break;
        left -= k->bytes[list[i].unit];
        k->kept[list[i].unit] = true;
        k->n_kept++;
    }
}

// ---- the schedule -------------------------------------------------------------------------------

static void write_half(zx_schedule *s, const maker *k, const half *h, int64_t base, bool *whole)
{
    uint32_t *units = ZX_NEW(s->mem, uint32_t, h->n_parts + 1);
    for (uint32_t i = 0, to; i < h->n_parts; i = to) {
        uint32_t n = 0;
        for (to = i; to < h->n_parts && h->parts[to].group == h->parts[i].group; to++)
            if (!whole[h->parts[to].unit]) units[n++] = h->parts[to].unit;
        const int64_t at = base + h->parts[i].at;
        if (n > 0) zx_schedule_gather(s, at, at, units, n, false, ZX_PASS_policy);
        for (uint32_t p = i; p < to; p++) {
            const uint32_t u = h->parts[p].unit;
            whole[u] = k->kept[u];
            if (!k->kept[u]) zx_schedule_free(s, base + h->parts[p].last + 1, u);
        }
    }
}

static uint64_t bucket_elements(const zx_policy_input *in, const zx_ready *list, uint32_t n)
{
    uint64_t all = 0, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        all += list[i].elements;
        if (list[i].elements > largest) largest = list[i].elements;
    }
    const uint64_t asked = (uint64_t)in->limits.reduce_bucket;
    const uint64_t bucket = asked > largest ? asked : largest; // grown where one is larger
    return bucket < all ? bucket : all;
}

static void write_down(zx_schedule *s, const zx_policy_input *in, const zx_trace *t,
                       const zx_plan_options *o, uint64_t most, zx_arena *mem,
                       zx_policy_result *out)
{
    uint32_t n;
    zx_schedule_start(s, t, o, mem);
    const zx_ready *list = zx_policy_ready(s, &n);
    const uint64_t bucket = bucket_elements(in, list, n);
    const uint32_t turn = zx_policy_turn(t);
    maker k = {.t = t, .o = o, .mem = mem, .bytes = s->unit_bytes, .most = most};
    k.half[0] = (half){.from = 0, .to = turn};
    k.half[1] = (half){.from = turn, .to = t->n_steps};
    if (!s->whole_params) {
        count_alive(&k, n > 0 ? bucket * (list[0].bytes / list[0].elements) : 0);
        for (int i = 0; i < 2; i++) {
            find_parts(&k, &k.half[i]);
            prefetch(&k, &k.half[i]);
        }
        keep_some(&k);
        snprintf(out->knobs, sizeof out->knobs, "%u of %u parameters kept", k.n_kept,
                 t->graph->n_params);
    }
    bool *whole = ZX_NEW(mem, bool, t->graph->n_params + 1);
    for (uint32_t m = 0; m < o->micro_batches; m++) {
        for (int i = 0; i < 2 && !s->whole_params; i++)
            write_half(s, &k, &k.half[i], (int64_t)t->n_steps * m, whole);
        const uint32_t last = zx_policy_buckets(s, m, list, n, bucket, o->ranks > 1);
        if (last != ZX_NONE) zx_schedule_sync(s, (int64_t)t->n_steps * (m + 1), last);
    }
}

static zx_status make_with(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                           const zx_plan_options *o, uint64_t most, zx_arena *mem,
                           zx_policy_result *out, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    *out = (zx_policy_result){0};
    write_down(&s, in, t, o, most, &scratch, out);
    const zx_status st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

// What fits took less than it thought (it counts both buckets all the time). Where a budget was
// asked for it is told of so much more, for as long as that fits and is faster.
static zx_status use_rest(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                          const zx_plan_options *o, uint64_t most, zx_arena *mem,
                          zx_policy_result *out, zx_err *err)
{
    const uint64_t room = zx_policy_room(o);
    for (int i = 0; !in->own_limits && room != UINT64_MAX && i < GROWS; i++) {
        zx_policy_result r;
        const zx_mark mark = zx_arena_mark(mem);
        most += room - out->plan.arena_bytes;
        ZX_TRY(make_with(id, in, t, o, most, mem, &r, err));
        if (r.plan.arena_bytes > room || r.plan.step_seconds >= out->plan.step_seconds) {
            zx_arena_rewind(mem, mark);
            return ZX_OK;
        }
        *out = r;
    }
    return ZX_OK;
}

// With the bucket of in->limits: the most memory for gathers that fits.
static zx_status make_within(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                             const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                             zx_err *err)
{
    const uint64_t room = zx_policy_room(o);
    uint64_t most = room;
    for (int i = 0;; i++) {
        const zx_mark mark = zx_arena_mark(mem);
        ZX_TRY(make_with(id, in, t, o, most, mem, out, err));
        if (out->plan.arena_bytes <= room) return use_rest(id, in, t, o, most, mem, out, err);
        if (most == 0) return ZX_OK;
        const uint64_t over = (out->plan.arena_bytes - room) << i; // in the end only what it must
        most = most > over && i + 1 < SHRINKS ? most - over : 0;
        zx_arena_rewind(mem, mark);
    }
}

// Whether anything fits with the bucket of in->limits, before placement: each gather at its use.
static zx_status could_fit(const zx_policy_input *in, const zx_trace *t, const zx_plan_options *o,
                           bool *fits, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    zx_policy_result unused;
    uint32_t mended;
    write_down(&s, in, t, o, 0, &scratch, &unused);
    const zx_status st = zx_schedule_finish(&s, &mended, err);
    if (st == ZX_OK) *fits = zx_schedule_load(&s) <= o->budget;
    zx_arena_free(&scratch);
    return st;
}

// Elements of the largest gradient, and of all.
static int64_t largest_gradient(const zx_trace *t, int64_t *all)
{
    const zx_graph *g = t->graph;
    int64_t most = 0;
    *all = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        const int64_t n = zx_shape_count(&g->values[g->params[u].value].type.shape);
        if (!zx_param_trained(g, u)) continue;
        if (n > most) most = n;
        *all += n;
    }
    return most;
}

// Its own bucket leaves no room: the half, the quarter and so on, down to the largest gradient; the
// fastest of those that fit, since the memory that a smaller one leaves is for gathers.
static zx_status make_fitting(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                              const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                              zx_err *err)
{
    zx_policy_input with = *in;
    int64_t *bucket = &with.limits.reduce_bucket, all;
    const int64_t least = largest_gradient(t, &all);
    if (*bucket > all) *bucket = all;
    while (*bucket > least) {
        zx_policy_result r = {0};
        bool fits;
        *bucket = *bucket / 2 > least ? zx_policy_rounded(*bucket / 2) : least;
        ZX_TRY(could_fit(&with, t, o, &fits, err));
        if (!fits) continue;
        const zx_mark mark = zx_arena_mark(mem);
        ZX_TRY(make_within(id, &with, t, o, mem, &r, err));
        if (!r.over && (out->over || r.plan.step_seconds < out->plan.step_seconds)) {
            zx_policy_put_bucket(&r, *bucket);
            *out = r;
        } else {
            zx_arena_rewind(mem, mark);
        }
    }
    return ZX_OK;
}

zx_status zx_policy_deepcompile(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                                const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                                zx_err *err)
{
    ZX_TRY(make_within(id, in, t, o, mem, out, err));
    if (!out->over || in->own_limits || o->ranks == 1) return ZX_OK;
    return make_fitting(id, in, t, o, mem, out, err);
}

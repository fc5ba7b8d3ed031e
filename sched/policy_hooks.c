// policy_hooks.c - policy: DeepSpeed's ZeRO-3 prefetcher. The coordinator (hooks.c) decides; here
// its decisions become a schedule, at the boundaries at which their events happen.
//
// Two forms. "Schedule only" takes the decisions and moves bytes as zerox does, in place. "As
// DeepSpeed" adds what its runtime adds: a launch of several parameters goes through a flat buffer
// and is unpacked by the first that waits for any of it; gradients are copied into a bucket, and
// from there into the buffer of the reduce; the host runs every hook, and waits where DeepSpeed's
// does.
//
// A gradient larger than the bucket is reduced alone, from where it is (DeepSpeed doesn't copy it
// into the bucket either), through a flat buffer as all reduces.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_hooks.h"

#include <string.h>

// The host runs ahead of the device until more than two waits (parameter_coordinator's
// max_ongoing_fetch_events) are unfinished. While it enqueues what one fetch asks for, the device
// may be as far back as the fetch two waits ago: from there on a gather may begin, and its bytes
// are taken. DeepSpeed's allocator would rather take fresh memory than wait.
#define HOST_AHEAD 2
// On the oldest of more than this many unfinished waits, or reduces, the host itself waits.
#define MOST_UNFINISHED 2

typedef struct writer {
    zx_schedule *s;
    const zx_hooks *h;
    const int64_t *at; // by event
    bool copies;       // as DeepSpeed
    int64_t bucket;    // elements
    uint32_t micro;    // of the step
    int64_t base, end; // its positions
    int64_t *freed;    // by unit: where it was given up last
    uint32_t *n_grads; // by unit: gradient hooks of the micro-batch that are still to come
    uint32_t *set;     // room
    uint32_t n_hooks;  // run at `hooks_at`, not written down yet
    int64_t hooks_at;
    // Fetches that waited: positions; waits, one a parameter, and reduces: launches.
    uint32_t n_fetches, n_waits, n_reduces, n_drained, cap_fetches, cap_waits, cap_reduces;
    int64_t *fetches;
    uint32_t *waits, *reduces;
    bool *synced; // by launch
    uint32_t n_synced, cap_synced;
    int64_t grads_at; // of the last gradient: gradients keep their order
    uint32_t *grads, n_grad;
} writer;

// ---- the host -----------------------------------------------------------------------------------

static void put_hooks(writer *w)
{
    zx_schedule_hooks(w->s, w->hooks_at, w->n_hooks);
    w->n_hooks = 0;
}

// One of Python's: before or after a module's forward, an autograd node around its backward, or
// after a gradient is accumulated. Each event is one.
static void run_hook(writer *w, int64_t at)
{
    if (!w->copies) return;
    if (w->hooks_at != at) put_hooks(w);
    w->hooks_at = at;
    w->n_hooks++;
}

static void sync_with(writer *w, int64_t at, uint32_t launch)
{
    while (w->n_synced < w->s->n_transfers) {
        ZX_GROW(w->s->mem, w->synced, w->n_synced, w->cap_synced);
        w->synced[w->n_synced++] = false;
    }
    if (w->synced[launch]) return;
    w->synced[launch] = true;
    zx_schedule_sync(w->s, at, launch);
}

// Where compute may be, at the earliest, while the host is here.
static int64_t behind(const writer *w)
{
    return w->n_fetches < HOST_AHEAD ? w->base : w->fetches[w->n_fetches - HOST_AHEAD];
}

// ---- parameters ---------------------------------------------------------------------------------

static bool has_elements(const writer *w, uint32_t unit)
{
    return w->h->numel[unit] > 0;
}

static void gather(writer *w, int64_t at, const uint32_t *list, uint32_t n_list)
{
    int64_t gate = behind(w);
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_list; i++) {
        if (!has_elements(w, list[i])) continue;
        w->set[n++] = list[i];
        if (w->freed[list[i]] > gate) gate = w->freed[list[i]];
    }
    if (n > 0) zx_schedule_gather(w->s, at, gate, w->set, n, w->copies && n > 1, ZX_PASS_policy);
}

// `counted`: by a fetch, which the host paces itself with.
static void await(writer *w, int64_t at, uint32_t unit, bool counted)
{
    if (!has_elements(w, unit)) return;
    const uint32_t launch = w->s->holds[w->s->now[unit]].launch;
    if (w->copies && counted && w->n_waits > MOST_UNFINISHED)
        sync_with(w, at, w->waits[w->n_waits - MOST_UNFINISHED - 1]);
    if (w->s->transfers[launch].flat && w->s->transfers[launch].over < 0)
        zx_schedule_unpack(w->s, behind(w), launch);
    zx_schedule_await(w->s, at, launch);
    if (!counted) return;
    ZX_GROW(w->s->mem, w->waits, w->n_waits, w->cap_waits);
    w->waits[w->n_waits++] = launch;
}

static void free_unit(writer *w, int64_t at, uint32_t unit)
{
    if (!has_elements(w, unit) || w->s->now[unit] == ZX_NONE) return;
    zx_schedule_free(w->s, at, unit);
    w->freed[unit] = at;
}

// After the optimizer: all that persists, a collective each; then the device is waited for.
static void gather_persistent(writer *w, const uint32_t *list, uint32_t n)
{
    uint32_t last = ZX_NONE;
    for (uint32_t i = 0; i < n; i++)
        if (has_elements(w, list[i]))
            last = zx_schedule_gather(w->s, 0, 0, &list[i], 1, false, ZX_PASS_policy);
    for (uint32_t i = 0; last != ZX_NONE && i <= last; i++) zx_schedule_await(w->s, 0, i);
    if (w->copies && last != ZX_NONE) sync_with(w, 0, last);
}

// ---- gradients ----------------------------------------------------------------------------------

static void add_gradient(writer *w, int64_t at, uint32_t unit)
{
    // A parameter of a leaf has a hook for each call of it; its gradient is whole at the last.
    if (!zx_policy_reduced(w->s, unit) || w->n_grads[unit] == 0 || --w->n_grads[unit] > 0) return;
    const int64_t whole = zx_schedule_grad_at(w->s, w->micro, unit);
    if (whole > at) at = whole;
    if (at > w->grads_at) w->grads_at = at;
    if (w->copies && w->h->numel[unit] <= w->bucket)
        zx_schedule_bucket(w->s, w->grads_at, w->micro, unit);
    w->grads[w->n_grad++] = unit;
}

static void reduce(writer *w, int64_t at)
{
    if (w->n_grad == 0) return;
    if (w->grads_at > at) at = w->grads_at;
    w->grads_at = at;
    if (w->n_reduces - w->n_drained >= MOST_UNFINISHED)
        zx_schedule_drain(w->s, at, w->reduces[w->n_drained++]);
    if (w->copies && w->n_reduces > MOST_UNFINISHED)
        sync_with(w, at, w->reduces[w->n_reduces - MOST_UNFINISHED - 1]);
    const bool bucket = w->copies && w->h->numel[w->grads[0]] <= w->bucket;
    ZX_GROW(w->s->mem, w->reduces, w->n_reduces, w->cap_reduces);
    w->reduces[w->n_reduces++] =
        zx_schedule_reduce(w->s, at, w->micro, w->grads, w->n_grad, w->copies, bucket);
    w->n_grad = 0;
}

// What is trained and had no gradient hook, as where the file hides a gradient's way, follows.
static void reduce_rest(writer *w)
{
    for (uint32_t u = 0; u < w->h->n_params; u++) {
        if (w->n_grads[u] == 0) continue;
        w->n_grads[u] = 1;
        add_gradient(w, w->end, u);
        reduce(w, w->end);
    }
}

// At the end of every micro-batch all reduces are over, and the host waits for them.
static void end_reduces(writer *w)
{
    if (w->copies && w->n_reduces > 0) sync_with(w, w->end, w->reduces[w->n_reduces - 1]);
    while (w->n_drained < w->n_reduces) zx_schedule_drain(w->s, w->end, w->reduces[w->n_drained++]);
    w->n_reduces = w->n_drained = 0;
}

// ---- a micro-batch ------------------------------------------------------------------------------

static int64_t place_of(const writer *w, const zx_decision *d)
{
    if (d->event == ZX_NONE) return w->base;
    return d->event == w->h->n_events ? w->end : w->base + w->at[d->event];
}

static void count_gradients(writer *w, const zx_decision *d, uint32_t n)
{
    for (uint32_t u = 0; u < w->h->n_params; u++)
        w->n_grads[u] = zx_policy_reduced(w->s, u) ? ZX_NONE : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (d[i].kind != ZX_DECIDED_GRAD || w->n_grads[d[i].id] == 0) continue;
        w->n_grads[d[i].id] = w->n_grads[d[i].id] == ZX_NONE ? 1 : w->n_grads[d[i].id] + 1;
    }
}

static void write_micro(writer *w, uint32_t micro, const zx_decision *d, uint32_t n,
                        const uint32_t *lists)
{
    const bool gathers = !w->s->whole_params;
    w->micro = micro;
    w->base = (int64_t)w->s->trace->n_steps * micro;
    w->end = w->base + w->s->trace->n_steps;
    if (w->copies) w->n_fetches = w->n_waits = 0; // the host has waited for the one before
    w->grads_at = w->base;
    count_gradients(w, d, n);
    bool waited = false; // by the fetch at hand
    for (uint32_t i = 0; i < n; i++, d++) {
        const int64_t at = place_of(w, d);
        const bool counted = d->event < w->h->n_events;
        if (d->kind == ZX_DECIDED_FETCH || d->kind == ZX_DECIDED_RELEASE) {
            run_hook(w, at);
            waited = false;
            continue;
        }
        if (d->kind == ZX_DECIDED_GRAD) run_hook(w, at);
        put_hooks(w);
        if (d->kind == ZX_DECIDED_GATHER && gathers) gather(w, at, lists + d->first, d->n);
        if (d->kind == ZX_DECIDED_WAIT && gathers) {
            await(w, at, d->id, counted);
            if (!counted || waited) continue;
            waited = true;
            ZX_GROW(w->s->mem, w->fetches, w->n_fetches, w->cap_fetches);
            w->fetches[w->n_fetches++] = at;
        }
        if (d->kind == ZX_DECIDED_FREE && gathers) free_unit(w, at, d->id);
        if (d->kind == ZX_DECIDED_GRAD) add_gradient(w, at, d->id);
        if (d->kind == ZX_DECIDED_REDUCE) reduce(w, at);
    }
    put_hooks(w);
    reduce_rest(w);
    end_reduces(w);
}

// ---- a step -------------------------------------------------------------------------------------

// What DeepSpeed allocates: as much as all gradients take at most.
static void size_bucket(writer *w)
{
    const zx_graph *g = w->s->trace->graph;
    int64_t all = 0;
    uint64_t size = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (!zx_policy_reduced(w->s, u)) continue;
        const uint64_t own = zx_dtype_bytes(g->values[g->params[u].value].type.dtype);
        all += w->h->numel[u];
        if (own > size) size = own;
    }
    w->s->bucket_bytes =
        zx_align_up((uint64_t)(w->bucket < all ? w->bucket : all) * size, ZX_ALIGN);
}

zx_status zx_hooks_write(zx_schedule *s, const zx_hooks *h, const zx_hook_limits *l,
                         const int64_t *boundaries, bool copies, zx_err *err)
{
    const uint32_t each = s->trace->micro_batches, step = (2 + each - 1) / each;
    zx_hook_limits limits = *l;
    limits.accumulate = each;
    zx_arena tmp = {0};
    zx_coordinator *c = zx_coordinator_make(h, &limits, &tmp);
    writer w = {.s = s,
                .h = h,
                .at = boundaries,
                .copies = copies && s->options->ranks > 1,
                .bucket = l->reduce_bucket,
                .freed = ZX_NEW(&tmp, int64_t, h->n_params + 1),
                .n_grads = ZX_NEW(&tmp, uint32_t, h->n_params + 1),
                .set = ZX_NEW(&tmp, uint32_t, h->n_params + 1),
                .grads = ZX_NEW(&tmp, uint32_t, h->n_params + 1)};
    ZX_ASSERT(h->n_params == s->trace->graph->n_params);
    s->one_fifo = true;
    if (w.copies) size_bucket(&w);
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < (step + 1) * each && st == ZX_OK; i++) {
        uint32_t n;
        const uint32_t *lists;
        st = zx_coordinator_run(c, h->events, h->n_events, err);
        const zx_decision *d = zx_coordinator_decided(c, &n, &lists);
        if (st != ZX_OK) break;
        if (i >= step * each) write_micro(&w, i - step * each, d, n, lists);
        if (i + 1 == step * each && !s->whole_params)
            for (uint32_t k = 0; k < n; k++)
                if (d[k].kind == ZX_DECIDED_REGATHER)
                    gather_persistent(&w, lists + d[k].first, d[k].n);
    }
    zx_arena_free(&tmp);
    return st;
}

static zx_status make_with(zx_policy_id id, const zx_policy_input *in, const zx_hook_limits *l,
                           const int64_t *at, const zx_trace *t, const zx_plan_options *o,
                           zx_arena *mem, zx_policy_result *out, zx_err *err)
{
    zx_arena scratch = {0};
    zx_schedule s;
    zx_schedule_start(&s, t, o, &scratch);
    zx_status st = zx_hooks_write(&s, in->hooks, l, at, id == ZX_POLICY_HOOKS_DS, err);
    if (st == ZX_OK) st = zx_policy_finish(&s, id, in, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

// The largest limits that fit; where none do *out is left as it is.
static zx_status make_fitting(zx_policy_id id, const zx_policy_input *in, const int64_t *at,
                              const zx_trace *t, const zx_plan_options *o, zx_arena *mem,
                              zx_policy_result *out, zx_err *err)
{
    uint64_t room = o->budget;
    for (int i = 0; i < ZX_POLICY_SHRINKS; i++) {
        zx_hook_limits l;
        zx_policy_result r = {0};
        bool fits;
        ZX_TRY(zx_hooks_fit(in, t, o, at, id == ZX_POLICY_HOOKS_DS, room, &l, &fits, err));
        if (!fits) return ZX_OK;
        const zx_mark mark = zx_arena_mark(mem);
        ZX_TRY(make_with(id, in, &l, at, t, o, mem, &r, err));
        if (!r.over) {
            zx_hooks_put_limits(&l, r.knobs, sizeof r.knobs);
            *out = r;
            return ZX_OK;
        }
        room = zx_policy_less(room, &r, o, i);
        zx_arena_rewind(mem, mark);
    }
    return ZX_OK;
}

zx_status zx_policy_hooks(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                          const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                          zx_err *err)
{
    zx_arena scratch = {0};
    const int64_t *at = zx_hooks_boundaries(t, in->hooks, &scratch);
    zx_status st = make_with(id, in, &in->limits, at, t, o, mem, out, err);
    if (st == ZX_OK && out->over && !in->own_limits && o->ranks > 1)
        st = make_fitting(id, in, at, t, o, mem, out, err);
    zx_arena_free(&scratch);
    return st;
}

// policy_hooks_fit.c - the largest limits with which the prefetcher fits in a budget that its own
// ones exceed.
//
// Three parts of the own limits are looked for: of the reduce bucket, of the prefetch bucket, and
// one for what may stay whole (live and reuse). On a ladder by fours every combination that fits,
// while none of its three could be a level higher, is timed; the fastest is taken, and its parts
// are raised, one after the other, as far as they go. Bytes are those that the spans take: where
// placement needs more, it starts over with less room.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_hooks.h"

#include <stdio.h>
#include <string.h>

#define MICRO_BATCHES 2 // of a step that is weighed: they are alike
#define LEVELS 8        // 1, 1/4, ... 1/4096 of the own limit, and nothing
#define RAISES 5        // bisections of a part, once the level is known

typedef enum part { BUCKET, PREFETCH, LIVE, PARTS } part;

typedef struct point {
    double of[PARTS]; // 0..1: of the own limit
} point;

typedef struct fitter {
    const zx_policy_input *in;
    const zx_trace *t; // of the few micro-batches
    const zx_plan_options *o;
    const int64_t *at;
    bool copies;
    uint64_t room;
    zx_hook_limits own;       // where they bind anything: no more than the model has elements
    bool had[LEVELS][LEVELS]; // by level of bucket and live: fits with a larger prefetch bucket
} fitter;

// ---- limits -------------------------------------------------------------------------------------

static int64_t lowered(int64_t own, double of)
{
    return of >= 1 ? own : zx_policy_rounded((int64_t)((double)own * of));
}

static zx_hook_limits limits_at(const fitter *f, const point *p)
{
    zx_hook_limits l = f->own;
    l.reduce_bucket = lowered(l.reduce_bucket, p->of[BUCKET]);
    l.prefetch_bucket = lowered(l.prefetch_bucket, p->of[PREFETCH]);
    l.max_live = lowered(l.max_live, p->of[LIVE]);
    l.max_reuse = lowered(l.max_reuse, p->of[LIVE]);
    return l;
}

static int64_t at_most(int64_t x, int64_t most)
{
    return x < most ? x : most;
}

// The distance of a reuse counts reads twice.
static zx_hook_limits binding(const zx_hooks *h, const zx_hook_limits *given)
{
    zx_hook_limits l = *given;
    int64_t all = 0;
    for (uint32_t i = 0; i < h->n_params; i++) all += h->numel[i];
    l.reduce_bucket = at_most(l.reduce_bucket, all);
    l.prefetch_bucket = at_most(l.prefetch_bucket, all);
    l.max_live = at_most(l.max_live, all);
    l.max_reuse = at_most(l.max_reuse, 2 * all);
    return l;
}

// ---- one combination ----------------------------------------------------------------------------

// Bytes, and seconds where they are asked for.
static zx_status weigh(const fitter *f, const point *p, uint64_t *bytes, double *seconds,
                       zx_err *err)
{
    zx_arena tmp = {0};
    zx_schedule s;
    uint32_t mended;
    const zx_hook_limits l = limits_at(f, p);
    zx_schedule_start(&s, f->t, f->o, &tmp);
    zx_status st = zx_hooks_write(&s, f->in->hooks, &l, f->at, f->copies, err);
    if (st == ZX_OK) st = zx_schedule_finish(&s, &mended, err);
    if (st == ZX_OK) *bytes = zx_schedule_load(&s);
    if (st == ZX_OK && seconds != NULL) {
        zx_plan plan;
        zx_schedule_emit(&s, &tmp, &plan); // addresses don't matter for its time
        zx_plan_simulate(f->in->train, &f->o->machine, f->in->times, &plan, &tmp);
        *seconds = plan.step_seconds;
    }
    zx_arena_free(&tmp);
    return st;
}

static zx_status try(const fitter *f, const point *p, bool *fits, zx_err *err)
{
    uint64_t bytes = 0;
    ZX_TRY(weigh(f, p, &bytes, NULL, err));
    *fits = bytes <= f->room;
    return ZX_OK;
}

// ---- the ladder ---------------------------------------------------------------------------------

static double level(int i)
{
    return i == LEVELS - 1 ? 0 : 1.0 / (double)(UINT64_C(1) << (2 * i));
}

typedef struct best {
    point p;
    double seconds; // < 0: nothing fits
} best;

static zx_status time_it(fitter *f, int bucket, int prefetch, int live, best *b, zx_err *err)
{
    const point p = {{level(bucket), level(prefetch), level(live)}};
    uint64_t bytes;
    double seconds = 0;
    if (f->had[bucket][live]) return ZX_OK;
    f->had[bucket][live] = true;
    ZX_TRY(weigh(f, &p, &bytes, &seconds, err));
    if (b->seconds < 0 || seconds < b->seconds) *b = (best){p, seconds};
    return ZX_OK;
}

// With one prefetch bucket: along the edge of what fits, from the largest reduce bucket on. What
// fits with one of two larger, and the other no smaller, isn't on it.
static zx_status walk_edge(fitter *f, int prefetch, best *b, zx_err *err)
{
    int live = LEVELS - 1;
    for (int bucket = 0; bucket < LEVELS; bucket++) {
        bool fits = true, some = false;
        while (fits && live >= 0) {
            const point p = {{level(bucket), level(prefetch), level(live)}};
            ZX_TRY(try(f, &p, &fits, err));
            some |= fits;
            live -= fits;
        }
        if (some) ZX_TRY(time_it(f, bucket, prefetch, live + 1, b, err));
        if (live < 0) return ZX_OK;
    }
    return ZX_OK;
}

static zx_status raise(const fitter *f, point *p, part a, zx_err *err)
{
    double low = p->of[a], high = low > 0 ? 4 * low : level(LEVELS - 2);
    if (low >= 1) return ZX_OK;
    for (int i = 0; i < RAISES; i++) {
        point to = *p;
        bool fits;
        to.of[a] = low > 0 ? low + (high - low) / 2 : high / 2;
        ZX_TRY(try(f, &to, &fits, err));
        if (fits) low = p->of[a] = to.of[a];
        if (!fits) high = to.of[a];
    }
    return ZX_OK;
}

zx_status zx_hooks_fit(const zx_policy_input *in, const zx_trace *t, const zx_plan_options *o,
                       const int64_t *at, bool copies, uint64_t room, zx_hook_limits *limits,
                       bool *fits, zx_err *err)
{
    zx_trace few = *t;
    zx_plan_options fo = *o;
    if (few.micro_batches > MICRO_BATCHES) few.micro_batches = fo.micro_batches = MICRO_BATCHES;
    fitter f = {.in = in, .t = &few, .o = &fo, .at = at, .copies = copies, .room = room};
    f.own = binding(in->hooks, &in->limits);
    best b = {.seconds = -1};
    for (int prefetch = 0; prefetch < LEVELS; prefetch++) ZX_TRY(walk_edge(&f, prefetch, &b, err));
    *fits = b.seconds >= 0;
    if (!*fits) return ZX_OK;
    for (int a = 0; a < PARTS; a++) ZX_TRY(raise(&f, &b.p, (part)a, err));
    *limits = limits_at(&f, &b.p);
    return ZX_OK;
}

// ---- in words -----------------------------------------------------------------------------------

void zx_hooks_put_limits(const zx_hook_limits *l, char *out, size_t size)
{
    static const char *const names[] = {"prefetch ",        ", live ",    ", reuse ",
                                        ", reduce bucket ", ", persist ", "/"};
    const int64_t x[] = {l->prefetch_bucket, l->max_live,          l->max_reuse,
                         l->reduce_bucket,   l->param_persistence, l->model_persistence};
    zx_text t = {0};
    for (size_t i = 0; i < ZX_COUNT(x) && (i < 5 || x[i] < ZX_POLICY_ANY); i++) {
        zx_text_put(&t, "%s", names[i]);
        zx_policy_put_elements(&t, x[i]);
    }
    snprintf(out, size, "%s (elements)", t.at);
    zx_text_free(&t);
}

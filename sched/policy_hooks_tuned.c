// policy_hooks_tuned.c - policy: the same prefetcher with the best limits that can be found for a
// budget: a coarse grid over all of them, then steps by factors from the best places of it.
//
// Every candidate is the coordinator's own steady micro-batches, written down and timed by the
// simulator; what its spans can't fit in the budget is rejected before. The best ones are placed,
// until one fits. How many are tried follows from the model's size alone, so that the result does.
// SPDX-License-Identifier: Apache-2.0
#include "sched/policy_hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MICRO_BATCHES 2 // of a step that is timed; the whole step is planned for the best
#define WORK 1500000    // steps timed in all, over all candidates
#define FEWEST 40       // candidates, however large the model
#define MOST 600        // and however small
#define CLIMBS 3        // places that are climbed from
#define PLACED 8        // candidates that are placed at most
#define FAR ZX_POLICY_ANY

typedef enum axis { PREFETCH, LIVE, REUSE, BUCKET, PERSIST, PERSIST_ALL, AXES } axis;
typedef struct point {
    int64_t x[AXES];
} point;

typedef struct candidate {
    point p;
    uint64_t decided; // hash of what it decides
    uint64_t load;    // bytes
    double seconds;   // only where it fits
    bool fits;
    uint32_t order;
} candidate;

typedef struct search {
    const zx_policy_input *in;
    const zx_trace *t; // of the few micro-batches
    const zx_plan_options *o;
    const int64_t *at;
    bool copies;
    zx_arena *mem;
    candidate *tried;
    uint32_t n_tried, cap_tried, n_timed, most;
    int64_t all, largest, small; // elements: all, of the largest module, of a norm or bias
} search;

static zx_hook_limits limits_of(const point *p)
{
    return (zx_hook_limits){.prefetch_bucket = p->x[PREFETCH],
                            .max_live = p->x[LIVE],
                            .max_reuse = p->x[REUSE],
                            .reduce_bucket = p->x[BUCKET],
                            .param_persistence = p->x[PERSIST],
                            .model_persistence = p->x[PERSIST_ALL]};
}

// Two digits: what is printed is what was tried.
static int64_t rounded(int64_t x)
{
    int64_t unit = 1;
    if (x >= FAR) return FAR;
    while (x / unit >= 100) unit *= 10;
    return (x + unit / 2) / unit * unit;
}

// ---- one candidate ------------------------------------------------------------------------------

static uint64_t mix(uint64_t h, uint64_t x)
{
    return (h ^ x) * UINT64_C(1099511628211);
}

static uint64_t hash_of(const zx_schedule *s)
{
    uint64_t h = mix(UINT64_C(14695981039346656037), s->bucket_bytes);
    for (uint32_t i = 0; i < s->n_acts; i++) {
        const zx_act *a = &s->acts[i];
        h = mix(mix(mix(h, (uint64_t)a->at), a->what), a->kind);
    }
    for (uint32_t i = 0; i < s->n_transfers; i++)
        h = mix(mix(mix(h, (uint64_t)s->transfers[i].gate), s->transfers[i].n),
                s->transfers[i].bucket);
    for (uint32_t i = 0; i < s->n_holds; i++) h = mix(h, s->holds[i].unit);
    for (uint32_t i = 0; i < s->n_gradients; i++) h = mix(h, s->gradients[i].unit);
    return h;
}

static const candidate *find_same(const search *k, uint64_t decided)
{
    for (uint32_t i = 0; i < k->n_tried; i++)
        if (k->tried[i].decided == decided) return &k->tried[i];
    return NULL;
}

static zx_status time_it(search *k, candidate *c, zx_arena *tmp, zx_err *err)
{
    zx_schedule s;
    uint32_t mended;
    const zx_hook_limits l = limits_of(&c->p);
    zx_schedule_start(&s, k->t, k->o, tmp);
    ZX_TRY(zx_hooks_write(&s, k->in->hooks, &l, k->at, k->copies, err));
    c->decided = hash_of(&s);
    const candidate *same = find_same(k, c->decided);
    if (same != NULL) {
        c->load = same->load;
        c->seconds = same->seconds;
        c->fits = same->fits;
        return ZX_OK;
    }
    k->n_timed++;
    ZX_TRY(zx_schedule_finish(&s, &mended, err));
    c->load = zx_schedule_load(&s);
    c->fits = c->load <= k->o->budget;
    if (!c->fits) return ZX_OK;
    zx_plan plan;
    zx_schedule_emit(&s, tmp, &plan);
    zx_plan_simulate(k->in->train, &k->o->machine, k->in->times, &plan, tmp);
    c->seconds = plan.step_seconds;
    return ZX_OK;
}

// What fits is better than what doesn't; then what is faster, or takes less.
static bool better(const candidate *a, const candidate *b)
{
    if (a->fits != b->fits) return a->fits;
    if (a->fits && a->seconds != b->seconds) return a->seconds < b->seconds;
    return a->load < b->load;
}

static zx_status try(search *k, const point *p, candidate *out, zx_err *err)
{
    candidate c = {.p = *p, .order = k->n_tried};
    for (uint32_t i = 0; i < k->n_tried; i++)
        if (memcmp(&k->tried[i].p, p, sizeof *p) == 0) {
            *out = k->tried[i];
            return ZX_OK;
        }
    zx_arena tmp = {0};
    const zx_status st = time_it(k, &c, &tmp, err);
    zx_arena_free(&tmp);
    ZX_TRY(st);
    ZX_GROW(k->mem, k->tried, k->n_tried, k->cap_tried);
    k->tried[k->n_tried++] = c;
    *out = c;
    return ZX_OK;
}

static bool spent(const search *k)
{
    return k->n_timed >= k->most || k->n_tried >= 4 * k->most;
}

// ---- the grid -----------------------------------------------------------------------------------

typedef struct values {
    uint32_t n;
    int64_t x[5];
} values;

static int by_size(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

// Elements of all parameters, of the largest module's own and of a typical vector: the median.
static void measure(search *k, zx_arena *tmp)
{
    const zx_hooks *h = k->in->hooks;
    int64_t *sizes = ZX_NEW(tmp, int64_t, h->n_params + 1);
    for (uint32_t i = 0; i < h->n_params; i++) {
        sizes[i] = h->numel[i];
        k->all += h->numel[i];
    }
    qsort(sizes, h->n_params, sizeof *sizes, by_size);
    k->small = sizes[h->n_params / 2];
    for (uint32_t m = 0; m < h->n_modules; m++) {
        const zx_module *x = &h->modules[m];
        int64_t own = 0;
        for (uint32_t i = 0; i < (x->leaf ? x->n_all : x->n_own); i++)
            own += h->numel[(x->leaf ? x->all : x->own)[i]];
        if (own > k->largest) k->largest = own;
    }
}

// A few bytes for each axis; the last two belong together (PERSIST_ALL counts only where PERSIST
// takes in all).
static zx_status try_grid(search *k, zx_err *err)
{
    const int64_t all = k->all, big = k->largest;
    const values grid[BUCKET + 1] = {[PREFETCH] = {4, {0, big, all / 16, all}},
                                     [LIVE] = {4, {2 * big, all / 4, all / 2, FAR}},
                                     [REUSE] = {4, {0, all / 8, all / 2, FAR}},
                                     [BUCKET] = {2, {all / 16, all}}};
    const int64_t persist[][2] = {{0, FAR}, {k->small, FAR}, {all, all / 8}, {all, all / 2}};
    uint32_t total = ZX_COUNT(persist);
    for (uint32_t a = 0; a <= BUCKET; a++) total *= grid[a].n;
    // All over the grid, however few are tried: 197 is prime to the total.
    for (uint32_t i = 0; i < total && k->n_timed < k->most * 2 / 3; i++) {
        uint32_t at = (uint32_t)((uint64_t)i * 197 % total);
        point p;
        candidate c;
        for (uint32_t a = 0; a <= BUCKET; a++, at /= grid[a - 1].n)
            p.x[a] = rounded(grid[a].x[at % grid[a].n]);
        p.x[PERSIST] = rounded(persist[at][0]);
        p.x[PERSIST_ALL] = rounded(persist[at][1]);
        ZX_TRY(try(k, &p, &c, err));
    }
    return ZX_OK;
}

// ---- climbing -----------------------------------------------------------------------------------

static point moved(const point *p, axis a, double factor)
{
    point to = *p;
    const double x = (double)p->x[a] * factor;
    to.x[a] = rounded(x >= (double)FAR ? FAR : (int64_t)x);
    return to;
}

static zx_status climb(search *k, const candidate *from, zx_err *err)
{
    static const double factors[] = {2, 0.5, 1.3, 0.77};
    candidate best = *from;
    for (bool on = true; on;) {
        on = false;
        for (uint32_t a = 0; a < AXES; a++)
            for (uint32_t f = 0; f < ZX_COUNT(factors) && !spent(k); f++) {
                candidate c;
                const point p = moved(&best.p, (axis)a, factors[f]);
                if (p.x[a] == best.p.x[a]) continue;
                ZX_TRY(try(k, &p, &c, err));
                if (!better(&c, &best)) continue;
                best = c;
                on = true;
            }
    }
    return ZX_OK;
}

static int best_first(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (better(x, y)) return -1;
    if (better(y, x)) return 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

// The different ones, best first.
static uint32_t ranked(const search *k, candidate *list)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < k->n_tried; i++) list[n++] = k->tried[i];
    qsort(list, n, sizeof *list, best_first);
    for (uint32_t i = 0; i < n; i++) {
        bool had = false;
        for (uint32_t j = 0; j < kept && !had; j++) had = list[j].decided == list[i].decided;
        if (!had) list[kept++] = list[i];
    }
    return kept;
}

// ---- the policy ---------------------------------------------------------------------------------

// The best that fits once it is placed; if none does, the one that takes least. What placement lost
// with one it will lose with others: those that would then be over are passed by.
static zx_status place_best(search *k, const candidate *list, uint32_t n, zx_policy_id id,
                            const zx_trace *t, const zx_plan_options *o, zx_arena *mem,
                            zx_policy_result *out, zx_err *err)
{
    zx_policy_result best = {.over = true};
    zx_status st = ZX_OK;
    uint64_t lost = 0;
    uint32_t placed = 0;
    for (uint32_t i = 0; i < n && placed < PLACED && best.over && st == ZX_OK; i++) {
        zx_arena tmp = {0};
        zx_schedule s;
        zx_policy_result r = {0};
        const zx_hook_limits l = limits_of(&list[i].p);
        if (placed > 0 && list[0].fits && list[i].load + lost > o->budget) continue;
        zx_schedule_start(&s, t, o, &tmp);
        st = zx_hooks_write(&s, k->in->hooks, &l, k->at, k->copies, err);
        if (st == ZX_OK) st = zx_policy_finish(&s, id, k->in, mem, &r, err);
        zx_arena_free(&tmp);
        if (st != ZX_OK) break;
        zx_hooks_put_limits(&l, r.knobs, sizeof r.knobs);
        if (r.plan.arena_bytes > list[i].load + lost) lost = r.plan.arena_bytes - list[i].load;
        if (placed++ == 0 || r.plan.arena_bytes < best.plan.arena_bytes) best = r;
    }
    *out = best;
    return st;
}

static point point_of(const zx_hook_limits *l)
{
    return (point){{l->prefetch_bucket, l->max_live, l->max_reuse, l->reduce_bucket,
                    l->param_persistence, l->model_persistence < FAR ? l->model_persistence : FAR}};
}

// Never worse than what was given, or what of it fits.
static zx_status try_given(search *k, zx_err *err)
{
    candidate c;
    zx_hook_limits fit;
    bool fits;
    const point given = point_of(&k->in->limits);
    ZX_TRY(try(k, &given, &c, err));
    if (c.fits) return ZX_OK;
    ZX_TRY(zx_hooks_fit(k->in, k->t, k->o, k->at, k->copies, k->o->budget, &fit, &fits, err));
    if (!fits) return ZX_OK;
    const point lowered = point_of(&fit);
    return try(k, &lowered, &c, err);
}

static zx_status look_for(search *k, zx_err *err)
{
    ZX_TRY(try_given(k, err));
    ZX_TRY(try_grid(k, err));
    candidate *list = ZX_NEW(k->mem, candidate, k->n_tried);
    const uint32_t n = ranked(k, list);
    for (uint32_t i = 0; i < n && i < CLIMBS; i++) ZX_TRY(climb(k, &list[i], err));
    return ZX_OK;
}

zx_status zx_policy_hooks_tuned(zx_policy_id id, const zx_policy_input *in, const zx_trace *t,
                                const zx_plan_options *o, zx_arena *mem, zx_policy_result *out,
                                zx_err *err)
{
    if (o->ranks == 1) return zx_policy_hooks(id, in, t, o, mem, out, err); // nothing to tune
    zx_arena tmp = {0};
    zx_trace few = *t;
    zx_plan_options fo = *o;
    if (few.micro_batches > MICRO_BATCHES) few.micro_batches = fo.micro_batches = MICRO_BATCHES;
    search k = {.in = in,
                .t = &few,
                .o = &fo,
                .at = zx_hooks_boundaries(t, in->hooks, &tmp),
                .copies = id == ZX_POLICY_TUNED_DS,
                .mem = &tmp};
    k.most = WORK / (few.n_steps * few.micro_batches + 1);
    k.most = k.most < FEWEST ? FEWEST : k.most > MOST ? MOST : k.most;
    measure(&k, &tmp);
    zx_status st = look_for(&k, err);
    if (st == ZX_OK) {
        candidate *list = ZX_NEW(&tmp, candidate, k.n_tried);
        const uint32_t n = ranked(&k, list);
        st = place_best(&k, list, n, id, t, o, mem, out, err);
    }
    zx_arena_free(&tmp);
    return st;
}

// policy_hooks_at.c - where in the executed steps hook events happen: an event has its place among
// the nodes of the file, and an executed step comes from one of them.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "sched/policy_hooks.h"

typedef enum lane { FORWARD, BACKWARD, AGAIN, LANES } lane; // AGAIN: forward, run again in backward

typedef struct run {      // recomputed steps in a row, of one call
    uint32_t least, most; // sources
} run;

typedef struct mapper {
    const zx_trace *t;
    uint32_t n_sources, turn;
    // By source b: the first step of the lane on the far side of b, the step after the last on the
    // near side. Far is >= b forward, < b backward.
    int64_t *first[LANES], *after[LANES];
    run *runs;
    uint32_t n_runs, cap_runs;
} mapper;

static lane lane_of(const zx_node *n)
{
    if (n->phase == ZX_FORWARD) return FORWARD;
    const size_t length = strlen(n->name);
    const bool copy = length >= 6 && strcmp(n->name + length - 6, "/again") == 0;
    return copy ? AGAIN : BACKWARD;
}

// What comes from no node of the file is a loss of ours: behind all.
static run sources_of(const mapper *k, uint32_t step)
{
    const zx_node *n = &k->t->graph->nodes[k->t->node[step]];
    if (n->source == ZX_NONE) return (run){k->n_sources, k->n_sources};
    return (run){n->first_source, n->source};
}

static void spread(int64_t *list, uint32_t n, bool up, bool least)
{
    for (uint32_t i = 1; i < n; i++) {
        const int64_t before = up ? list[i - 1] : list[n - i];
        int64_t *x = up ? &list[i] : &list[n - 1 - i];
        if (least ? before < *x : before > *x) *x = before;
    }
}

static void find_steps(mapper *k, zx_arena *mem)
{
    const zx_trace *t = k->t;
    const uint32_t n = k->n_sources + 2;
    k->turn = zx_policy_turn(t);
    for (uint32_t l = 0; l < LANES; l++) {
        k->first[l] = ZX_NEW(mem, int64_t, n);
        k->after[l] = ZX_NEW(mem, int64_t, n);
        for (uint32_t b = 0; b < n; b++) {
            k->first[l][b] = l == FORWARD ? k->turn : t->n_steps;
            k->after[l][b] = l == FORWARD ? 0 : k->turn;
        }
    }
    lane last = LANES;
    for (uint32_t s = 0; s < t->n_steps; s++) {
        const lane l = lane_of(&t->graph->nodes[t->node[s]]);
        const run b = sources_of(k, s);
        const bool on = l == AGAIN && last == AGAIN && b.most >= k->runs[k->n_runs - 1].most;
        if (l == AGAIN && !on) {
            ZX_GROW(mem, k->runs, k->n_runs, k->cap_runs);
            k->runs[k->n_runs++] = b;
        }
        if (l == AGAIN) k->runs[k->n_runs - 1].most = b.most;
        last = l;
        // Backward, a step on the far side of b + 1 has a source of at most b. A step that does the
        // work of several nodes lies on the far side of each for what comes before it, and on the
        // near side for what comes after.
        int64_t *first = &k->first[l][l == BACKWARD ? b.least + 1 : b.most];
        int64_t *after = &k->after[l][l == BACKWARD ? b.most : b.least + 1];
        if ((int64_t)s < *first) *first = s;
        if ((int64_t)s + 1 > *after) *after = (int64_t)s + 1;
    }
    spread(k->first[FORWARD], n, false, true);
    spread(k->after[FORWARD], n, true, false);
    spread(k->first[BACKWARD], n, true, true);
    spread(k->after[BACKWARD], n, false, false);
}

// The run of a checkpointed call, sources [first, end); NULL: nothing of it is run again.
static const run *run_of(const mapper *k, uint32_t first, uint32_t end)
{
    for (uint32_t i = 0; i < k->n_runs; i++)
        if (k->runs[i].least >= first && k->runs[i].most < end) return &k->runs[i];
    return NULL;
}

// The same within a run; -1: nothing of it lies there.
static int64_t within(const mapper *k, const run *r, const zx_hook *e)
{
    if (r == NULL) return -1;
    int64_t at = -1;
    if (e->kind == ZX_HOOK_FETCH) {
        for (uint32_t b = r->most + 1; b-- > r->least && b >= e->at;)
            if (k->first[AGAIN][b] < k->t->n_steps) at = k->first[AGAIN][b];
    } else {
        for (uint32_t b = r->least; b <= r->most && b < e->at; b++)
            if (k->after[AGAIN][b + 1] > k->turn) at = k->after[AGAIN][b + 1];
    }
    return at;
}

const int64_t *zx_hooks_boundaries(const zx_trace *t, const zx_hooks *h, zx_arena *mem)
{
    mapper k = {.t = t, .n_sources = t->graph->n_sources};
    zx_arena tmp = {0};
    find_steps(&k, &tmp);
    int64_t *at = ZX_NEW(mem, int64_t, h->n_events + 1);
    const run *again = NULL;
    for (uint32_t i = 0; i < h->n_events; i++) {
        const zx_hook *e = &h->events[i];
        const lane l = e->phase == ZX_FORWARD ? FORWARD : BACKWARD;
        if (e->again == ZX_NONE) {
            at[i] = (e->kind == ZX_HOOK_FETCH ? k.first : k.after)[l][e->at];
            continue;
        }
        if (h->events[i - 1].again != e->again) again = run_of(&k, e->at, e->again);
        at[i] = within(&k, again, e);
    }
    // What is fetched before something that happens early is fetched early, too: the modules around
    // a checkpointed call's end, before it is run again.
    int64_t next = t->n_steps;
    for (uint32_t i = h->n_events; i-- > 0;) {
        if (at[i] < 0) continue;
        if (h->events[i].kind == ZX_HOOK_FETCH && next < at[i]) at[i] = next;
        next = at[i];
    }
    for (uint32_t i = 1; i < h->n_events; i++)
        if (at[i] < at[i - 1]) at[i] = at[i - 1];
    zx_arena_free(&tmp);
    return at;
}

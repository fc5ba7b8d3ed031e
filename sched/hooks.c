// hooks.c - DeepSpeed's parameter coordinator: what each hook of a micro-batch makes it gather,
// free and reduce.
//
// The first micro-batch is recorded, gathering on demand and freeing at once; from the second on
// the record says what comes next. Every fetch takes its own entries off a queue of (parameter,
// step) and prefetches further ones, one bucket a hook; a release frees what isn't wanted soon
// again. The order of the tests below is the original's, quirks included: it decides the result.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "sched/hooks.h"

typedef enum status { NOT_AVAILABLE, INFLIGHT, AVAILABLE } status;

#define NEVER INT64_MIN

typedef struct param {
    uint8_t status;           // as set: what is in flight has landed with its launch, see status_of
    bool persist, registered; // registered: in flight, not fetched since
    uint32_t launch;          // that brought it
    uint32_t prev, next;      // in the order of launches, of those registered
    uint32_t n_active;        // modules between their fetch and their release that hold it
    int64_t recent;           // largest step for which it was taken from the queue
    uint64_t mark;            // == c->mark: in the set at hand
    uint64_t bucket;          // == c->n_flushes: its gradient is in the bucket
} param;

typedef struct set {
    const uint32_t *at;
    uint32_t n;
} set;

typedef struct entry { // of the queue
    uint32_t param, step;
} entry;

typedef struct memo { // one remembered answer: what a release of `module` at `step` may free
    uint32_t module, step, first, n, next;
} memo;

struct zx_coordinator {
    const zx_hooks *h;
    zx_hook_limits l;
    zx_arena *mem;
    param *params;
    bool *knows;     // by module: all that it reads; at first, not what others own
    set *active;     // by module: what was fetched for it, until its release
    uint32_t *stack; // modules whose backward fetch ran and whose backward release did not
    uint32_t n_stack;
    uint64_t mark;
    uint8_t mode;
    uint32_t step, n_micro;
    int64_t live; // the original's counter of available elements; forgets and may go negative
    uint32_t *order, n_order, cap_order;
    entry *queue;
    uint32_t n_queue, cap_queue, head;
    uint32_t first, last; // parameters registered in flight; ZX_NONE
    bool *landed;         // by launch
    uint32_t n_launches, cap_launches;
    uint32_t event; // at hand
    uint32_t *set;  // room for the set at hand
    memo *memos;
    uint32_t n_memos, cap_memos, *buckets, n_buckets;
    uint32_t *memo_params, n_memo_params, cap_memo_params;
    uint32_t *bucket, n_bucket; // gradients waiting for a reduce
    int64_t bucket_elements;
    uint64_t n_flushes; // and one more
    zx_decision *decided;
    uint32_t n_decided, cap_decided;
    uint32_t *lists, n_lists, cap_lists;
};

// ---- decisions ----------------------------------------------------------------------------------

static zx_decision *decide(zx_coordinator *c, zx_decision_kind kind, uint32_t id)
{
    ZX_GROW(c->mem, c->decided, c->n_decided, c->cap_decided);
    c->decided[c->n_decided] = (zx_decision){.kind = (uint8_t)kind,
                                             .id = id,
                                             .step = c->step,
                                             .mode = c->mode,
                                             .first = c->n_lists,
                                             .event = c->event,
                                             .elements = c->live};
    return &c->decided[c->n_decided++];
}

static void decide_list(zx_coordinator *c, zx_decision_kind kind, const uint32_t *list, uint32_t n)
{
    zx_decision *d = decide(c, kind, ZX_NONE);
    d->n = n;
    d->elements = 0;
    for (uint32_t i = 0; i < n; i++) {
        d->elements += c->h->numel[list[i]];
        ZX_GROW(c->mem, c->lists, c->n_lists, c->cap_lists);
        c->lists[c->n_lists++] = list[i];
    }
}

// ---- sets of parameters -------------------------------------------------------------------------

static set params_of(const zx_coordinator *c, uint32_t module, bool all_below)
{
    const zx_module *m = &c->h->modules[module];
    return all_below ? (set){m->all, m->n_all} : (set){m->own, m->n_own};
}

static set fetched_with(const zx_coordinator *c, uint32_t module)
{
    const zx_module *m = &c->h->modules[module];
    return c->knows[module] ? params_of(c, module, m->leaf) : (set){m->first, m->n_first};
}

// ---- gather, wait, free -------------------------------------------------------------------------

static status status_of(const zx_coordinator *c, uint32_t id)
{
    const param *p = &c->params[id];
    return p->status == INFLIGHT && c->landed[p->launch] ? AVAILABLE : (status)p->status;
}

// One launch of the parameters marked as in the set, ascending by id.
static void gather(zx_coordinator *c, uint32_t *list, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) // few, and nearly in order
        for (uint32_t k = i; k > 0 && list[k - 1] > list[k]; k--) {
            const uint32_t x = list[k];
            list[k] = list[k - 1];
            list[k - 1] = x;
        }
    for (uint32_t i = 0; i < n; i++) {
        param *p = &c->params[list[i]];
        p->status = INFLIGHT;
        p->registered = true;
        p->launch = c->n_launches;
        p->prev = c->last;
        p->next = ZX_NONE;
        *(c->last == ZX_NONE ? &c->first : &c->params[c->last].next) = list[i];
        c->last = list[i];
        c->live += c->h->numel[list[i]];
    }
    ZX_GROW(c->mem, c->landed, c->n_launches, c->cap_launches);
    c->landed[c->n_launches++] = false;
    decide_list(c, ZX_DECIDED_GATHER, list, n);
}

// The first wait for any member unpacks the whole launch; the others stay registered in flight
// until a fetch of their own.
static void wait_for(zx_coordinator *c, uint32_t id)
{
    param *p = &c->params[id];
    c->landed[p->launch] = true;
    p->registered = false;
    *(p->prev == ZX_NONE ? &c->first : &c->params[p->prev].next) = p->next;
    *(p->next == ZX_NONE ? &c->last : &c->params[p->next].prev) = p->prev;
    decide(c, ZX_DECIDED_WAIT, id);
}

static void try_free(zx_coordinator *c, uint32_t id)
{
    param *p = &c->params[id];
    if (status_of(c, id) != AVAILABLE || p->n_active > 0) return;
    p->status = NOT_AVAILABLE;
    c->live -= c->h->numel[id];
    decide(c, ZX_DECIDED_FREE, id);
}

static void land_all(zx_coordinator *c)
{
    while (c->first != ZX_NONE) {
        const uint32_t id = c->first;
        wait_for(c, id);
        try_free(c, id);
    }
}

static void deactivate(zx_coordinator *c, uint32_t module)
{
    const set s = c->active[module];
    for (uint32_t i = 0; i < s.n; i++) c->params[s.at[i]].n_active--;
    c->active[module] = (set){0};
}

static void activate(zx_coordinator *c, uint32_t module)
{
    const set s = fetched_with(c, module);
    for (uint32_t i = 0; i < s.n; i++) c->params[s.at[i]].n_active++;
    deactivate(c, module); // where it is fetched again
    c->active[module] = s;
}

// In its first forward pass a module reads a parameter of another: it is gathered on the spot,
// which no counter sees, and the module asks for it from now on.
static void read_others(zx_coordinator *c, uint32_t module)
{
    if (c->knows[module]) return;
    c->knows[module] = true;
    const set s = fetched_with(c, module);
    for (uint32_t i = 0; i < s.n; i++)
        if (status_of(c, s.at[i]) == NOT_AVAILABLE) c->params[s.at[i]].status = AVAILABLE;
}

// ---- the trace ----------------------------------------------------------------------------------

static void make_queue(zx_coordinator *c)
{
    c->n_queue = 0;
    for (uint32_t s = 0; s < c->n_order; s++) {
        const set need = fetched_with(c, c->order[s]);
        for (uint32_t i = 0; i < need.n; i++) {
            ZX_GROW(c->mem, c->queue, c->n_queue, c->cap_queue);
            c->queue[c->n_queue++] = (entry){need.at[i], s};
        }
    }
}

static void forget_recent(zx_coordinator *c)
{
    for (uint32_t i = 0; i < c->h->n_params; i++) c->params[i].recent = NEVER;
}

// Before every forward pass. The live counter starts at 0 whatever is still there.
static void reset_step(zx_coordinator *c)
{
    land_all(c);
    if (c->mode == ZX_HOOK_RECORD) {
        c->mode = ZX_HOOK_COMPLETE;
        make_queue(c);
    } else if (c->mode == ZX_HOOK_INVALID) {
        c->mode = ZX_HOOK_RECORD;
        c->n_order = 0;
    }
    forget_recent(c);
    c->head = 0;
    c->step = 0;
    c->live = 0;
}

static void invalidate(zx_coordinator *c)
{
    c->mode = ZX_HOOK_INVALID;
    c->n_order = c->n_queue = c->head = 0;
    forget_recent(c);
    land_all(c);
}

// ---- fetch --------------------------------------------------------------------------------------

// Takes from the queue until a bucket is full. The limit is tested before each parameter, so the
// last one may overshoot it; what is there already costs nothing, and counts as taken all the same.
static void prefetch(zx_coordinator *c)
{
    if (c->l.prefetch_bucket == 0) return;
    const int64_t room = c->l.max_live - c->live;
    const int64_t limit = room < c->l.prefetch_bucket ? room : c->l.prefetch_bucket;
    int64_t elements = 0;
    uint32_t n = 0;
    c->mark++;
    while (c->head < c->n_queue && elements < limit) {
        const entry e = c->queue[c->head++];
        param *p = &c->params[e.param];
        const bool take = status_of(c, e.param) == NOT_AVAILABLE && p->mark != c->mark;
        if (p->recent < (int64_t)e.step) p->recent = e.step;
        if (!take) continue;
        p->mark = c->mark;
        c->set[n++] = e.param;
        elements += c->h->numel[e.param];
    }
    if (elements > 0) gather(c, c->set, n);
}

// Takes the module's own entries from the queue, those that no prefetch has taken. They are counted
// first: the queue must bring exactly them.
static zx_status take_own(zx_coordinator *c, const set *need, zx_err *err)
{
    uint32_t want = 0, got = 0;
    const uint64_t wanted = ++c->mark;
    for (uint32_t i = 0; i < need->n; i++) {
        param *p = &c->params[need->at[i]];
        if (p->recent >= (int64_t)c->step) continue;
        p->mark = wanted;
        want++;
    }
    const uint64_t had = ++c->mark;
    while (c->head < c->n_queue && got < want) {
        const entry e = c->queue[c->head++];
        param *p = &c->params[e.param];
        p->recent = e.step;
        if (p->mark == had) continue; // a second entry of the same
        if (p->mark != wanted) break;
        p->mark = had;
        got++;
    }
    if (got == want) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                   "at step %u the recorded order doesn't bring what the module fetches: DeepSpeed "
                   "stops here with a tracing error",
                   c->step);
}

static zx_status fetch(zx_coordinator *c, uint32_t module, zx_phase phase, zx_err *err)
{
    if (c->mode == ZX_HOOK_COMPLETE && (c->step >= c->n_order || c->order[c->step] != module))
        invalidate(c);
    if (c->mode == ZX_HOOK_RECORD) {
        ZX_GROW(c->mem, c->order, c->n_order, c->cap_order);
        c->order[c->n_order++] = module;
    }
    decide(c, ZX_DECIDED_FETCH, module)->phase = (uint8_t)phase;
    const set need = fetched_with(c, module);
    bool known = phase == ZX_FORWARD;
    for (uint32_t i = 0; i < c->n_stack && !known; i++) known = c->stack[i] == module;
    if (!known) c->stack[c->n_stack++] = module;

    uint32_t n = 0;
    for (uint32_t i = 0; i < need.n; i++)
        if (status_of(c, need.at[i]) == NOT_AVAILABLE) c->set[n++] = need.at[i];
    if (n > 0) gather(c, c->set, n);
    activate(c, module);
    for (uint32_t i = 0; i < need.n; i++)
        if (c->params[need.at[i]].registered) wait_for(c, need.at[i]);
    if (c->mode == ZX_HOOK_COMPLETE) {
        ZX_TRY(take_own(c, &need, err));
        prefetch(c);
    }
    c->step++;
    return ZX_OK;
}

// ---- release ------------------------------------------------------------------------------------

// What a release at this step may free: not what persists, not what was taken from the queue for
// later, not what is used again within the reuse distance. The distance is tested before each
// module and counts all its parameters, repeats too; whether it goes into a module's depth is
// decided by the module that is released.
static uint32_t find_free(zx_coordinator *c, uint32_t module)
{
    const set mine = fetched_with(c, module);
    const bool depth = c->h->modules[module].leaf;
    const uint64_t mark = ++c->mark;
    uint32_t left = 0;
    for (uint32_t i = 0; i < mine.n; i++) {
        param *p = &c->params[mine.at[i]];
        if (p->persist || p->recent > (int64_t)c->step) continue;
        p->mark = mark;
        left++;
    }
    int64_t distance = 0;
    for (uint32_t s = c->step; s < c->n_order && distance < c->l.max_reuse && left > 0; s++) {
        const set next = params_of(c, c->order[s], depth);
        for (uint32_t i = 0; i < next.n; i++) {
            param *p = &c->params[next.at[i]];
            left -= p->mark == mark;
            if (p->mark == mark) p->mark = mark - 1;
            distance += c->h->numel[next.at[i]];
        }
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < mine.n; i++)
        if (c->params[mine.at[i]].mark == mark) c->set[n++] = mine.at[i];
    return n;
}

static uint32_t *memo_bucket(const zx_coordinator *c, uint32_t module, uint32_t step)
{
    return &c->buckets[(module * 2654435761u + step * 40503u) % c->n_buckets];
}

// The same through the memory of all earlier answers, which nothing ever clears.
static uint32_t may_free(zx_coordinator *c, uint32_t module)
{
    uint32_t *at = memo_bucket(c, module, c->step);
    for (uint32_t i = *at; i != ZX_NONE && !c->l.no_memo; i = c->memos[i].next) {
        const memo *m = &c->memos[i];
        if (m->module != module || m->step != c->step) continue;
        if (m->n > 0) memcpy(c->set, c->memo_params + m->first, m->n * sizeof *c->set);
        return m->n;
    }
    const uint32_t n = find_free(c, module);
    ZX_GROW(c->mem, c->memos, c->n_memos, c->cap_memos);
    c->memos[c->n_memos] = (memo){module, c->step, c->n_memo_params, n, *at};
    *at = c->n_memos++;
    for (uint32_t i = 0; i < n; i++) {
        ZX_GROW(c->mem, c->memo_params, c->n_memo_params, c->cap_memo_params);
        c->memo_params[c->n_memo_params++] = c->set[i];
    }
    return n;
}

static void leave_backward(zx_coordinator *c, uint32_t module)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < c->n_stack; i++)
        if (c->stack[i] != module) c->stack[kept++] = c->stack[i];
    c->n_stack = kept;
}

static void release(zx_coordinator *c, uint32_t module, zx_phase phase)
{
    decide(c, ZX_DECIDED_RELEASE, module)->phase = (uint8_t)phase;
    uint32_t n;
    if (c->mode == ZX_HOOK_COMPLETE) {
        n = may_free(c, module);
    } else { // no record to go by: everything, what persists too
        const set all = fetched_with(c, module);
        if (all.n > 0) memcpy(c->set, all.at, all.n * sizeof *c->set);
        n = all.n;
    }
    if (phase == ZX_BACKWARD) leave_backward(c, module);
    deactivate(c, module);
    for (uint32_t i = 0; i < n; i++) try_free(c, c->set[i]);
}

// ---- gradients ----------------------------------------------------------------------------------

static void flush(zx_coordinator *c)
{
    if (c->n_bucket > 0) decide_list(c, ZX_DECIDED_REDUCE, c->bucket, c->n_bucket);
    c->n_bucket = 0;
    c->bucket_elements = 0;
    c->n_flushes++;
}

static zx_status add_gradient(zx_coordinator *c, uint32_t id, zx_err *err)
{
    if (c->bucket_elements + c->h->numel[id] > c->l.reduce_bucket) flush(c);
    if (c->params[id].bucket == c->n_flushes)
        return ZX_FAIL(
            err, ZX_E_UNSUPPORTED,
            "a leaf module is called more than once, and '%s' in it is twice in a bucket "
            "of gradients: DeepSpeed stops here",
            zx_text_safe(c->mem, c->h->params[id]));
    c->params[id].bucket = c->n_flushes;
    decide(c, ZX_DECIDED_GRAD, id);
    c->bucket[c->n_bucket++] = id;
    c->bucket_elements += c->h->numel[id];
    return ZX_OK;
}

// Modules that take no tensor with a gradient never get a backward release: they are let go at the
// end, newest first.
static void let_go(zx_coordinator *c)
{
    while (c->n_stack > 0) {
        const uint32_t module = c->stack[--c->n_stack];
        const set s = fetched_with(c, module);
        deactivate(c, module);
        for (uint32_t i = 0; i < s.n; i++)
            if (!c->params[s.at[i]].persist) try_free(c, s.at[i]);
    }
}

// All is freed, what persists too, and that gathered again at once, a collective each; the counter
// of live elements doesn't see it.
static void optimizer_step(zx_coordinator *c)
{
    for (uint32_t m = 0; m < c->h->n_modules; m++) deactivate(c, m);
    for (uint32_t i = 0; i < c->h->n_params; i++) {
        if (c->params[i].registered) wait_for(c, i);
        try_free(c, i);
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->h->n_params; i++) {
        if (!c->params[i].persist) continue;
        c->params[i].status = AVAILABLE;
        c->set[n++] = i;
    }
    if (n > 0) decide_list(c, ZX_DECIDED_REGATHER, c->set, n);
}

// ---- from outside -------------------------------------------------------------------------------

// Small parameters stay gathered, in the order of ids as long as the model's own limit lets them.
static void choose_persistent(zx_coordinator *c)
{
    int64_t total = 0;
    for (uint32_t i = 0; i < c->h->n_params; i++) {
        const int64_t n = c->h->numel[i];
        if (n > c->l.model_persistence - total || n > c->l.param_persistence) continue;
        c->params[i].persist = true;
        total += n;
    }
}

zx_coordinator *zx_coordinator_make(const zx_hooks *h, const zx_hook_limits *l, zx_arena *mem)
{
    zx_coordinator *c = ZX_NEW(mem, zx_coordinator, 1);
    *c = (zx_coordinator){.h = h, .l = *l, .mem = mem, .mode = ZX_HOOK_INVALID};
    c->params = ZX_NEW(mem, param, h->n_params + 1);
    c->active = ZX_NEW(mem, set, h->n_modules + 1);
    c->knows = ZX_NEW(mem, bool, h->n_modules + 1);
    for (uint32_t i = 0; i < h->n_modules; i++) c->knows[i] = h->modules[i].first == NULL;
    c->stack = ZX_NEW(mem, uint32_t, h->n_modules + 1);
    c->set = ZX_NEW(mem, uint32_t, h->n_params + 1);
    // The parameters of a leaf have a gradient hook for each call of it.
    uint32_t n_grads = 0;
    for (uint32_t i = 0; i < h->n_events; i++) n_grads += h->events[i].kind == ZX_HOOK_GRAD;
    c->bucket = ZX_NEW(mem, uint32_t, n_grads + h->n_params + 1);
    c->n_buckets = 2 * h->n_events + 1;
    c->buckets = ZX_NEW(mem, uint32_t, c->n_buckets);
    for (uint32_t i = 0; i < c->n_buckets; i++) c->buckets[i] = ZX_NONE;
    c->first = c->last = ZX_NONE;
    c->n_flushes = 1;
    choose_persistent(c);
    return c;
}

zx_status zx_coordinator_run(zx_coordinator *c, const zx_hook *events, uint32_t n_events,
                             zx_err *err)
{
    bool trains = false;
    c->n_decided = c->n_lists = 0;
    c->event = ZX_NONE;
    reset_step(c);
    for (uint32_t i = 0; i < n_events; i++) {
        const zx_hook *e = &events[i];
        c->event = i;
        trains = trains || e->phase == ZX_BACKWARD;
        if (e->kind == ZX_HOOK_FETCH)
            ZX_TRY(fetch(c, e->id, (zx_phase)e->phase, err));
        else if (e->kind == ZX_HOOK_RELEASE)
            release(c, e->id, (zx_phase)e->phase);
        else if (e->kind == ZX_HOOK_READ)
            read_others(c, e->id);
        else
            ZX_TRY(add_gradient(c, e->id, err));
    }
    if (!trains) return ZX_OK;
    c->event = n_events;
    flush(c);
    let_go(c);
    if (++c->n_micro % c->l.accumulate == 0) optimizer_step(c);
    return ZX_OK;
}

const zx_decision *zx_coordinator_decided(const zx_coordinator *c, uint32_t *n,
                                          const uint32_t **lists)
{
    *n = c->n_decided;
    *lists = c->lists;
    return c->decided;
}

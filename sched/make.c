// make.c - the planner's search: drafts are cheap to make and to time, so it makes some and keeps
// the best that fits.
//
// The least plan (every gather at its use, every reduce waited for at once) is always kept, so a
// budget is either below it and refused, or met. Beyond it the knobs of pass.h are turned one after
// the other, and the simulator chooses.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <inttypes.h>

typedef struct found { // a draft that was tried
    zx_knobs knobs;
    uint64_t bytes;
    double seconds;
} found;

typedef struct search {
    const zx_graph *g;
    const zx_plan_options *o;
    zx_draft facts, draft;
    zx_arena *scratch; // what one try needs
    uint64_t held;
    found best, smallest;
    uint64_t floor; // smaller ones aren't looked at any more
} search;

#define AS_GOOD 1.001 // times this near are the same; then the smaller plan is better
#define ROOMY 1.05    // without a budget: how much slower than the best is well spent on memory
#define BISECTIONS 7
#define ENOUGH 8 // micro-batches in a try
#define SETTLINGS 6
#define SHRINKS 6 // how often a draft that placement made too big is made again with less

static double seconds_of(search *s)
{
    zx_plan p;
    zx_emit(&s->draft, s->scratch, &p);
    zx_plan_simulate(s->g, &s->o->machine, &p, s->scratch);
    return p.step_seconds;
}

static bool better(const found *a, const found *than)
{
    if (a->seconds > than->seconds * AS_GOOD) return false;
    return a->seconds * AS_GOOD < than->seconds || a->bytes < than->bytes;
}

// Makes the draft for these knobs within `most` bytes of transient memory. Placement may take more
// than the passes counted: then they get less. Knobs with a limit of 0 are left to the stretching.
static bool draft_within(search *s, zx_knobs *k, uint64_t most)
{
    if (k->limit == 0) {
        zx_draft_run(&s->draft, &s->facts, k);
        return s->draft.transient <= most;
    }
    k->limit = most;
    for (int i = 0; i < SHRINKS; i++) {
        zx_draft_run(&s->draft, &s->facts, k);
        if (s->draft.transient <= most) return true;
        const uint64_t over = s->draft.transient - most;
        if (over >= k->limit) return false;
        k->limit = i == 0 ? k->limit - over : k->limit / 8 * 7;
    }
    return false;
}

// Tries knobs within `most` bytes; true if it became the best.
static bool try(search *s, zx_knobs k, uint64_t most)
{
    const zx_mark mark = zx_arena_mark(s->scratch);
    bool best = false;
    if (draft_within(s, &k, most) && s->held + s->draft.transient >= s->floor) {
        const found x = {k, s->held + s->draft.transient, seconds_of(s)};
        best = better(&x, &s->best);
        if (best) s->best = x;
        if (x.bytes < s->smallest.bytes) s->smallest = x;
    }
    zx_arena_rewind(s->scratch, mark);
    return best;
}

static void find_smallest(search *s)
{
    s->smallest.bytes = UINT64_MAX;
    for (uint32_t order = 0; order < ZX_PLACE_ORDERS; order++) {
        const zx_mark mark = zx_arena_mark(s->scratch);
        const zx_knobs k = {.order = order};
        zx_draft_run(&s->draft, &s->facts, &k);
        const uint64_t bytes = s->held + s->draft.transient;
        if (bytes < s->smallest.bytes) s->smallest = (found){k, bytes, seconds_of(s)};
        zx_arena_rewind(s->scratch, mark);
    }
}

// A launch for which the wire is busy four times as long as a launch costs.
static uint64_t good_launch(const zx_plan_options *o)
{
    return (uint64_t)(4 * o->machine.launch_seconds * o->machine.wire);
}

// The best that fits, starting from the smallest.
static void turn_knobs(search *s, uint64_t budget)
{
    const uint64_t most = budget - s->held;
    s->best = s->smallest;
    const uint64_t launch = good_launch(s->o);
    const double eager[] = {1.5, 4, 1e6};
    const double residency[] = {1, 0.5, 0};
    const uint64_t bytes[] = {launch, launch / 4, launch / 16, 0, 8 * launch};
    const bool overlap = !s->o->no_overlap;
    const uint32_t order = s->smallest.knobs.order;
    zx_knobs k = {.limit = most, .residency = 1, .order = order};
    if (overlap) {
        k.eager = eager[0];
        k.launch_bytes = bytes[0];
    }
    try(s, k, most);
    for (uint32_t i = 0; overlap && i < ZX_COUNT(eager); i++)
        try(s, (zx_knobs){.eager = eager[i], .order = order}, most);
    for (uint32_t i = 1; i < ZX_COUNT(residency) && s->facts.gathers; i++) {
        zx_knobs other = k;
        other.residency = residency[i];
        if (try(s, other, most)) k.residency = residency[i];
    }
    for (uint32_t i = 1; overlap && i < ZX_COUNT(eager); i++) {
        zx_knobs other = k;
        other.eager = eager[i];
        if (try(s, other, most)) k.eager = eager[i];
    }
    for (uint32_t i = 1; overlap && i < ZX_COUNT(bytes); i++) {
        zx_knobs other = k;
        other.launch_bytes = bytes[i];
        if (try(s, other, most)) k.launch_bytes = bytes[i];
    }
}

// Turning the knobs for the smallest plan's budget may find a smaller one, and so on. What is left
// in the end is the least budget that is granted, and a plan that takes all of it.
static void settle_least(search *s)
{
    for (int i = 0; i < SETTLINGS; i++) {
        const uint64_t before = s->smallest.bytes;
        turn_knobs(s, before);
        if (s->smallest.bytes == before) return;
    }
    s->floor = s->smallest.bytes;
    turn_knobs(s, s->smallest.bytes);
}

// Without a budget: the least memory that is hardly slower than the best.
static void save_memory(search *s)
{
    const double most_seconds = s->best.seconds * ROOMY;
    uint64_t lo = 0, hi = s->best.bytes - s->held;
    const zx_knobs knobs = s->best.knobs;
    for (int i = 0; i < BISECTIONS && lo < hi; i++) {
        const uint64_t mid = lo + (hi - lo) / 2;
        const zx_mark mark = zx_arena_mark(s->scratch);
        zx_knobs k = knobs; // where they have no limit there is nothing to save
        if (k.limit == 0) return;
        bool good = draft_within(s, &k, mid);
        if (good) {
            const found x = {k, s->held + s->draft.transient, seconds_of(s)};
            good = x.seconds <= most_seconds;
            if (good) s->best = x;
        }
        zx_arena_rewind(s->scratch, mark);
        if (good)
            hi = s->best.bytes - s->held;
        else
            lo = mid + 1;
    }
}

// ---- refusing
// ---------------------------------------------------------------------------------------------

typedef struct share { // of the least plan's bytes
    const char *what, *hint;
    uint64_t bytes;
} share;

static zx_status refuse(search *s, uint64_t least, zx_err *err)
{
    const zx_trace *t = s->facts.trace;
    const zx_graph *g = s->g;
    const zx_draft *d = &s->facts;
    const int64_t most = zx_load_most(&d->bytes, 0, (int64_t)t->n_steps - 1);
    uint32_t at = 0;
    while (zx_load_most(&d->bytes, at, at) < most) at++;
    share shares[] = {
        {"are held parameters, gradients and optimizer states", "more ranks or a higher ZeRO stage",
         s->held},
        {"are activations and gradients", "a smaller train_micro_batch_size_per_gpu", 0},
        {"are gathered parameters", "a larger budget: these have to be whole at once", 0},
        {"is scratch", "a larger budget", t->work[at]},
    };
    for (uint32_t i = 0; i < t->n_storages; i++)
        if (t->storages[i].born <= at && t->storages[i].dies >= at && d->made_in[i] == ZX_NONE)
            shares[1].bytes += t->storages[i].bytes;
    for (uint32_t i = t->use_at[at]; d->gathers && i < t->use_at[at + 1]; i++)
        shares[2].bytes += d->unit_bytes[t->uses[i].unit];
    const share *top = &shares[0];
    for (uint32_t i = 1; i < ZX_COUNT(shares); i++)
        if (shares[i].bytes > top->bytes) top = &shares[i];
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT], c[ZX_BYTES_TEXT];
    zx_arena names = {0};
    const char *node = zx_text_safe(&names, g->nodes[t->node[at]].name);
    const zx_status st =
        ZX_FAIL(err, ZX_E_BUDGET,
                "a rank needs at least %s (%" PRIu64 " bytes), the budget is %s (%" PRIu64
                " bytes): %s of it %s%s%s%s",
                zx_text_size(least, a), least, zx_text_size(s->o->budget, b), s->o->budget,
                zx_text_size(top->bytes, c), top->what, top == &shares[0] ? "" : " at node '",
                top == &shares[0] ? "" : node, top == &shares[0] ? "" : "'");
    zx_arena_free(&names);
    zx_err_hint(err, "--budget min, or %s", top->hint);
    return st;
}

zx_status zx_plan_make(const zx_graph *train, const zx_plan_options *o, zx_arena *mem, zx_plan *out,
                       zx_err *err)
{
    if (o->ranks == 0 || o->micro_batches == 0 || o->stage > 3 || o->optimizer_states > 2)
        return ZX_FAIL(err, ZX_E_USAGE, "%u ranks, %u micro-batches, stage %u: no such plan",
                       o->ranks, o->micro_batches, o->stage);
    zx_status st = ZX_OK;
    zx_arena kept = {0}, scratch = {0};
    zx_trace trace;
    zx_plan_options few = *o; // what is tried: micro-batches are alike
    if (few.micro_batches > ENOUGH) few.micro_batches = ENOUGH;
    search s = {.g = train, .o = &few, .scratch = &scratch};
    st = zx_trace_make(train, &few, &kept, &trace, err);
    if (st == ZX_OK && (uint64_t)trace.n_steps * o->micro_batches >= ZX_NONE / 4)
        st = ZX_FAIL(err, ZX_E_UNSUPPORTED, "%u micro-batches of %u nodes are too many for a plan",
                     o->micro_batches, trace.n_steps);
    if (st == ZX_OK) st = zx_draft_make(&trace, &few, &kept, &s.facts, err);
    if (st == ZX_OK) st = zx_draft_make(&trace, &few, &kept, &s.draft, err);
    if (st != ZX_OK) goto done;
    s.draft.mem = &scratch;
    s.held = zx_held_bytes(&trace, o);
    find_smallest(&s);
    if (o->least || o->budget < s.smallest.bytes) settle_least(&s);
    const uint64_t budget = o->least ? s.smallest.bytes : o->budget;
    if (budget < s.smallest.bytes) {
        st = refuse(&s, s.smallest.bytes, err);
        goto done;
    }
    if (!o->least) turn_knobs(&s, budget);
    if (o->roomy && !o->least) save_memory(&s);

    few.micro_batches = trace.micro_batches = o->micro_batches;
    zx_draft_run(&s.draft, &s.facts, &s.best.knobs);
    zx_emit(&s.draft, mem, out);
    out->budget = budget;
    ZX_ASSERT(out->arena_bytes <= budget);
    zx_plan_simulate(train, &o->machine, out, mem);
    st = zx_plan_check(train, out, err);
    if (st != ZX_OK) zx_err_in(err, "planner");
done:
    zx_arena_free(&kept);
    zx_arena_free(&scratch);
    return st;
}

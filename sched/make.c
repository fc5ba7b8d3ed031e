// make.c - the planner's search: drafts are cheap to make and to time, so it makes many and picks.
//
// Which drafts are made doesn't depend on the budget: the least plan (every gather at its use,
// every reduce waited for at once), what turning the knobs of pass.h finds within its bytes, and
// what it finds within a ladder of limits up to none at all. The simulator times them, and the
// budget only picks: so more memory is never predicted slower, and whoever states no budget chooses
// among all plans that a budget would have given.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"

#include <inttypes.h>

typedef struct found { // a draft that was made
    zx_knobs knobs;
    uint64_t bytes;
    double seconds;
} found;

typedef struct search {
    const zx_graph *g;
    const zx_plan_options *o;
    zx_draft facts, draft;
    zx_arena *kept, *scratch; // what the search keeps, and what one try needs
    uint64_t held;
    found *all;
    uint32_t n, cap;
    uint32_t smallest; // of all: the fewest bytes, and of those the fastest
} search;

#define AS_GOOD 1.001   // turning: times this near are the same; then the smaller plan is better
#define ROOMY 1.05      // without a budget: how much slower than the best is well spent on memory
#define SAME (1 + 1e-9) // with one: equal but for rounding
#define RUNGS 6
#define RUNGS_LARGE 3
#define LARGE 4000 // spans: a try takes time by their square
#define BISECTIONS 6
#define ENOUGH 8 // micro-batches in a try
#define SETTLINGS 6
#define SHRINKS 6 // how often a draft that placement made too big is made again with less

static double seconds_of(search *s)
{
    zx_plan p;
    zx_emit(&s->draft, s->scratch, &p);
    zx_plan_simulate(s->g, &s->o->machine, s->o->times, &p, s->scratch);
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

// Makes and times the draft for knobs within `most` bytes; false: none fits.
static bool try(search *s, zx_knobs k, uint64_t most, found *out)
{
    const zx_mark mark = zx_arena_mark(s->scratch);
    const bool made = draft_within(s, &k, most);
    if (made) {
        *out = (found){k, s->held + s->draft.transient, seconds_of(s)};
        ZX_GROW(s->kept, s->all, s->n, s->cap);
        s->all[s->n] = *out;
        const found *least = &s->all[s->smallest];
        if (out->bytes < least->bytes ||
            (out->bytes == least->bytes && out->seconds < least->seconds))
            s->smallest = s->n;
        s->n++;
    }
    zx_arena_rewind(s->scratch, mark);
    return made;
}

// The same; true if it is better than *best, which it becomes.
static bool improve(search *s, zx_knobs k, uint64_t most, found *best)
{
    found x;
    if (!try(s, k, most, &x) || !better(&x, best)) return false;
    *best = x;
    return true;
}

static void find_smallest(search *s)
{
    found x;
    for (uint32_t order = 0; order < ZX_PLACE_ORDERS; order++)
        try(s, (zx_knobs){.order = order}, UINT64_MAX, &x);
}

static const double eager[] = {1.5, 4, 1e6};
static const double residency[] = {1, 0.5, 0};

// The least plan with what placement left idle put to use.
static void stretch_smallest(search *s)
{
    found x;
    const found least = s->all[s->smallest];
    for (uint32_t i = 0; !s->o->no_overlap && i < ZX_COUNT(eager); i++)
        try(s, (zx_knobs){.eager = eager[i], .order = least.knobs.order}, least.bytes - s->held,
            &x);
}

// A launch for which the wire is busy four times as long as a launch costs.
static uint64_t good_launch(const zx_plan_options *o)
{
    const zx_machine *m = &o->machine;
    if (m->wire > 0) {
        const double rate = m->cores > 0 && m->copy < m->wire ? m->copy : m->wire;
        return (uint64_t)(4 * m->latency * rate);
    }
    const uint32_t last = m->gather.n == 0 ? 0 : m->gather.n - 1;
    const double rate = m->gather.n == 0 ? 0 : m->gather.bytes[last] / m->gather.seconds[last];
    return (uint64_t)(4 * m->gather.seconds[0] * rate);
}

// One knob after the other, each left where the draft within `most` bytes is best.
static found turn_knobs(search *s, uint64_t most)
{
    found best = {.seconds = 1e300, .bytes = UINT64_MAX};
    const uint64_t launch = good_launch(s->o);
    const uint64_t bytes[] = {launch, launch / 4, launch / 16, 0, 8 * launch};
    const bool overlap = !s->o->no_overlap;
    zx_knobs k = {.limit = most, .residency = 1, .order = s->all[s->smallest].knobs.order};
    if (overlap) {
        k.eager = eager[0];
        k.launch_bytes = bytes[0];
    }
    improve(s, k, most, &best);
    for (uint32_t i = 1; i < ZX_COUNT(residency) && s->facts.gathers; i++) {
        zx_knobs other = k;
        other.residency = residency[i];
        if (improve(s, other, most, &best)) k.residency = residency[i];
    }
    for (uint32_t i = 1; overlap && i < ZX_COUNT(eager); i++) {
        zx_knobs other = k;
        other.eager = eager[i];
        if (improve(s, other, most, &best)) k.eager = eager[i];
    }
    for (uint32_t i = 1; overlap && i < ZX_COUNT(bytes); i++) {
        zx_knobs other = k;
        other.launch_bytes = bytes[i];
        if (improve(s, other, most, &best)) k.launch_bytes = bytes[i];
    }
    return best;
}

// Turning the knobs for the smallest plan's bytes may find a smaller one, and so on. What is left
// in the end is the least budget that is granted.
static void settle(search *s)
{
    for (int i = 0; i < SETTLINGS; i++) {
        const uint64_t before = s->all[s->smallest].bytes;
        turn_knobs(s, before - s->held);
        if (s->all[s->smallest].bytes == before) return;
    }
}

// Between the least and all that is of use, denser where memory is short: knobs that were best
// above, and what is more frugal.
static void climb_down(search *s, found top)
{
    const uint64_t least = s->all[s->smallest].bytes;
    const uint64_t rungs = s->draft.n_spans > LARGE ? RUNGS_LARGE : RUNGS;
    if (top.bytes == UINT64_MAX) return;
    for (uint64_t i = rungs - 1; i > 0 && top.bytes > least; i--) {
        const double part = (double)(i * i) / (double)(rungs * rungs);
        const uint64_t most = least + (uint64_t)(part * (double)(top.bytes - least)) - s->held;
        found best = {.seconds = 1e300, .bytes = UINT64_MAX};
        zx_knobs k = top.knobs;
        improve(s, k, most, &best);
        for (uint32_t r = 0; r < ZX_COUNT(residency) && s->facts.gathers; r++) {
            k.residency = residency[r];
            if (k.residency < top.knobs.residency) improve(s, k, most, &best);
        }
        if (best.seconds == 1e300) continue;
        for (uint32_t e = 0; e < ZX_COUNT(eager) && !s->o->no_overlap; e++) {
            k = best.knobs;
            k.eager = eager[e];
            if (k.eager != best.knobs.eager) improve(s, k, most, &best);
        }
        for (uint32_t e = 0; e < 2 && best.knobs.launch_bytes > 0; e++) {
            k = best.knobs;
            k.launch_bytes = e == 0 ? k.launch_bytes / 4 : 0;
            improve(s, k, most, &best);
        }
        top.knobs = best.knobs;
    }
}

// The rule: the best time within the budget, or up to `slack` times it; of those the least memory.
static const found *pick(const search *s, uint64_t budget, double slack)
{
    double best = 1e300;
    const found *least = NULL;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->all[i].bytes <= budget && s->all[i].seconds < best) best = s->all[i].seconds;
    for (uint32_t i = 0; i < s->n; i++) {
        const found *x = &s->all[i];
        if (x->bytes > budget || x->seconds > best * slack) continue;
        if (least == NULL || x->bytes < least->bytes ||
            (x->bytes == least->bytes && x->seconds < least->seconds))
            least = x;
    }
    return least;
}

// What is picked without a budget, with less memory, for as long as it is hardly slower than the
// best.
static void refine(search *s)
{
    const double most_seconds = pick(s, UINT64_MAX, 1)->seconds * ROOMY;
    const found from = *pick(s, UINT64_MAX, ROOMY);
    uint64_t lo = s->all[s->smallest].bytes - s->held, hi = from.bytes - s->held;
    if (from.knobs.limit == 0) return; // there is nothing to save
    for (int i = 0; i < BISECTIONS && lo < hi; i++) {
        const uint64_t mid = lo + (hi - lo) / 2;
        found x;
        if (try(s, from.knobs, mid, &x) && x.seconds <= most_seconds)
            hi = x.bytes - s->held;
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
    zx_err_hint(err, "--budget min, or %s%s", top->hint,
                top == &shares[0] && s->held > s->o->budget ? "; what is held alone is too much"
                                                            : "");
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
    search s = {.g = train, .o = &few, .kept = &kept, .scratch = &scratch};
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
    stretch_smallest(&s);
    settle(&s);
    climb_down(&s, turn_knobs(&s, UINT64_MAX - s.held));
    refine(&s);
    const uint64_t least = s.all[s.smallest].bytes;
    const uint64_t budget = o->least ? least : o->budget;
    if (budget < least) {
        st = refuse(&s, least, err);
        goto done;
    }
    const found *best = pick(&s, budget, o->roomy && !o->least ? ROOMY : SAME);

    few.micro_batches = trace.micro_batches = o->micro_batches;
    zx_draft_run(&s.draft, &s.facts, &best->knobs);
    zx_emit(&s.draft, mem, out);
    out->budget = budget;
    ZX_ASSERT(out->arena_bytes <= budget);
    zx_plan_simulate(train, &o->machine, o->times, out, mem);
    st = zx_plan_check(train, out, err);
    if (st != ZX_OK) zx_err_in(err, "planner");
done:
    zx_arena_free(&kept);
    zx_arena_free(&scratch);
    return st;
}

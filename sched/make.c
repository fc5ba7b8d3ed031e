// make.c - from a train graph to a Plan within a budget: the planner's problem is solved, written
// down as a schedule, given addresses and emitted.
//
// Addresses may take a little more than the bytes alive; then the problem is solved again within
// less. Without a budget it is the least memory that is hardly slower than no limit at all.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "sched/pass.h"
#include "sched/schedule.h"
#include "sched/solve.h"

#define ROOMY 1.05   // without a budget: how much slower than the best is well spent on memory
#define BISECTIONS 7 // of limits, for that
#define NEAR 1.02    // times the fastest: as good where its addresses need less
#define ENOUGH 3     // limits, of which the fastest is taken that has addresses
#define LONG 40000   // steps of a line, for which less is tried
#define SCARCE 2     // times the most crowded step: with more, addresses are always found

typedef struct maker {
    const zx_graph *g;
    const zx_plan_options *o;
    zx_trace t;
    zx_problem p;
    zx_line line;
    bool ease; // solutions are eased
    uint64_t held;
    zx_arena kept, scratch;
} maker;

// ---- within a limit -----------------------------------------------------------------------------

typedef struct found { // a solution with addresses
    zx_schedule s;     // without a policy: there was none
    uint64_t least;    // bytes of the most crowded step
    double seconds;
} found;

static zx_status place(maker *k, const zx_problem *p, zx_stands *stands, uint32_t use,
                       uint64_t limit, found *f, zx_err *err)
{
    zx_solution x;
    zx_price price;
    uint32_t mended;
    zx_schedule *s = &f->s;
    *s = (zx_schedule){0};
    zx_arena_free(&k->scratch);
    if (!zx_solve_stood(p, stands, use, &k->scratch, &x, &f->least)) return ZX_OK;
    zx_problem_time(p, &x, &k->scratch, &price);
    f->seconds = price.seconds;
    if (k->ease) zx_solution_ease(p, &x);
    zx_schedule_start(s, &k->t, k->o, &k->scratch);
    snprintf(s->policy, sizeof s->policy, "zerox");
    zx_solution_write(p, &x, s);
    ZX_TRY(zx_schedule_finish(s, &mended, err));
    ZX_ASSERT(mended == 0);
    zx_schedule_place(s, limit > UINT64_MAX - k->held ? UINT64_MAX : k->held + limit);
    return ZX_OK;
}

// Solves within `limit`, and then within less and less until the addresses stay below it too; with
// the knobs where they were fastest, then where they were next to it. False: they never did; then
// *s has the last try, if there was any.
static zx_status within(maker *k, uint64_t limit, bool quick, zx_schedule *s, bool *fits,
                        zx_err *err)
{
    static const double parts[] = {1, 0.995, 0.99, 0.98, 0.96, 0.94, 0.91, 0.87, 0.8, 0.7, 0};
    zx_problem p = k->p;
    zx_stands stands = {0};
    found f = {0};
    double best = 1e300, first = 0; // first: of the fastest, wherever its addresses end
    uint64_t at = 0;
    uint32_t use = 0, last = 0;
    for (uint32_t i = 0; i < ZX_COUNT(parts); i++) {
        if (best < 1e299 && (quick || i >= ENOUGH || best <= 1.002 * first)) break;
        p.limit = i == 0 ? limit : (uint64_t)(parts[i] * (double)limit);
        if (p.limit < f.least) p.limit = f.least;
        for (uint32_t c = 0; c == 0 || (c < stands.n && !quick); c++) {
            if (stands.n > 0 && stands.seconds[c] > NEAR * stands.seconds[0]) break;
            ZX_TRY(place(k, &p, &stands, c, limit, &f, err));
            last = c;
            if (i == 0 && c == 0) first = f.seconds;
            if (f.s.policy[0] == '\0' || f.s.transient > limit || f.seconds >= best) continue;
            best = f.seconds;
            use = c;
            at = p.limit;
            if (i == 0 && c == 0) break; // the fastest fits
        }
        if (p.limit == f.least) break;
        const double less = (double)limit / (double)(f.s.transient + 1); // what addresses ask for
        while (quick && i + 2 < ZX_COUNT(parts) && parts[i + 1] > parts[i] * less) i++;
    }
    *fits = best < 1e299;
    bool again = *fits && (use != last || at != p.limit);
    if (*fits) p.limit = at;
    if (*fits && !quick && k->p.machine.host) { // real times aren't those that were predicted
        k->ease = true;
        ZX_TRY(place(k, &p, &stands, use, limit, &f, err));
        k->ease = false;
        again = f.s.transient > limit;
    }
    if (again) ZX_TRY(place(k, &p, &stands, use, limit, &f, err));
    *s = f.s;
    return ZX_OK;
}

static double seconds_of(maker *k, const zx_schedule *s)
{
    zx_plan p;
    zx_schedule_emit(s, &k->scratch, &p);
    zx_plan_simulate(k->g, &k->o->machine, k->o->times, &p, &k->scratch);
    return p.step_seconds;
}

// The fewest transient bytes that a plan is found for: solved with hardly a byte to spare, placed
// as well as it goes. Tries until that is at most `enough`; *from: the limit that `within` makes it
// for.
static zx_status find_least(maker *k, uint64_t enough, uint64_t *bytes, uint64_t *from, zx_err *err)
{
    static const double more[] = {1, 1.02, 1.1, 1.5};
    zx_schedule s;
    bool fits;
    const uint64_t none = k->line.least;
    *bytes = UINT64_MAX;
    for (uint32_t i = 0; i < ZX_COUNT(more) && *bytes > enough && *bytes > none; i++) {
        const uint64_t limit = (uint64_t)((double)none * more[i]);
        ZX_TRY(within(k, limit, true, &s, &fits, err));
        if (s.policy[0] == '\0' || s.transient >= *bytes) continue;
        *bytes = s.transient;
        *from = limit;
    }
    if (*bytes == UINT64_MAX) return ZX_FAIL(err, ZX_E_BUDGET, "planner: no schedule fits at all");
    return ZX_OK;
}

// The limit with the least memory that is hardly slower than *limit; 0: the least plan, which is
// made from the limit `from`.
static zx_status find_roomy(maker *k, uint64_t least, uint64_t from, uint64_t *limit, zx_err *err)
{
    zx_schedule s;
    bool fits;
    ZX_TRY(within(k, *limit, true, &s, &fits, err));
    if (!fits) return ZX_OK;
    const double enough = seconds_of(k, &s) * ROOMY;
    uint64_t lo = least, hi = s.transient;
    ZX_TRY(within(k, from, true, &s, &fits, err));
    if (seconds_of(k, &s) <= enough) {
        *limit = 0;
        return ZX_OK;
    }
    for (int i = 0; i < BISECTIONS && lo < hi; i++) {
        const uint64_t mid = lo + (hi - lo) / 2;
        ZX_TRY(within(k, mid, true, &s, &fits, err));
        if (fits && seconds_of(k, &s) <= enough) {
            *limit = mid;
            hi = s.transient < mid ? s.transient : mid;
        } else
            lo = mid + 1;
    }
    return ZX_OK;
}

// ---- refusing -----------------------------------------------------------------------------------

typedef struct share { // of the least plan's bytes
    const char *what, *hint;
    uint64_t bytes;
} share;

static zx_status refuse(maker *k, uint64_t least, zx_err *err)
{
    const zx_trace *t = &k->t;
    const zx_problem *p = &k->p;
    uint32_t at = 0;
    uint64_t most = 0, units = 0;
    for (uint32_t q = 0; q < p->n_steps; q++) {
        uint64_t need = 0;
        for (uint32_t i = p->read_at[q]; i < p->read_at[q + 1]; i++)
            need += p->unit_bytes[p->reads[i].unit];
        if (p->base[q] + need <= most) continue;
        most = p->base[q] + need;
        units = need;
        at = q;
    }
    const share shares[] = {
        {"are held parameters, gradients and optimizer states", "more ranks or a higher ZeRO stage",
         k->held},
        {"are activations and gradients", "a smaller train_micro_batch_size_per_gpu",
         p->base[at] - zx_align_up(t->work[at], ZX_ALIGN)},
        {"are gathered parameters", "a larger budget: these have to be whole at once", units},
        {"is scratch", "a larger budget", t->work[at]},
    };
    const share *top = &shares[0];
    for (uint32_t i = 1; i < ZX_COUNT(shares); i++)
        if (shares[i].bytes > top->bytes) top = &shares[i];
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT], c[ZX_BYTES_TEXT];
    zx_arena names = {0};
    const char *node = zx_text_safe(&names, k->g->nodes[t->node[at]].name);
    const zx_status st =
        ZX_FAIL(err, ZX_E_BUDGET,
                "a rank needs at least %s (%" PRIu64 " bytes), the budget is %s (%" PRIu64
                " bytes): %s of it %s%s%s%s",
                zx_text_size(least, a), least, zx_text_size(k->o->budget, b), k->o->budget,
                zx_text_size(top->bytes, c), top->what, top == &shares[0] ? "" : " at node '",
                top == &shares[0] ? "" : node, top == &shares[0] ? "" : "'");
    zx_arena_free(&names);
    zx_err_hint(err, "--budget min, or %s%s", top->hint,
                top == &shares[0] && k->held > k->o->budget ? "; what is held alone is too much"
                                                            : "");
    return st;
}

// stage3_max_live_parameters that no schedule keeps to.
static zx_status check_live(const maker *k, zx_err *err)
{
    const zx_problem *p = &k->p;
    for (uint32_t q = 0; q < p->n_steps && p->max_live > 0; q++) {
        uint64_t elements = 0;
        for (uint32_t i = p->read_at[q]; i < p->read_at[q + 1]; i++)
            elements += p->unit_elements[p->reads[i].unit];
        if (elements <= p->max_live) continue;
        return ZX_FAIL(err, ZX_E_BUDGET,
                       "stage3_max_live_parameters is %" PRIu64
                       ", but node '%s' alone reads parameters with %" PRIu64 " elements",
                       p->max_live, k->g->nodes[k->t.node[q]].name, elements);
    }
    return ZX_OK;
}

// ---- a plan -------------------------------------------------------------------------------------

static zx_status make(maker *k, zx_arena *mem, zx_plan *out, zx_err *err)
{
    const zx_plan_options *o = k->o;
    uint64_t limit = UINT64_MAX / 4, least = 0, from = 0;
    zx_schedule s;
    bool fits = false;
    if (o->budget != UINT64_MAX) limit = o->budget > k->held ? o->budget - k->held : 0;
    ZX_TRY(check_live(k, err));
    zx_line_make(&k->line, &k->p, &k->kept);
    const bool scarce = o->least || o->roomy || limit / SCARCE < k->line.least;
    if (scarce) ZX_TRY(find_least(k, o->least ? 0 : limit, &least, &from, err));
    if (!o->least && limit < least) return refuse(k, k->held + least, err);
    if (o->roomy && !o->least) ZX_TRY(find_roomy(k, least, from, &limit, err));
    if (!o->least && limit > 0)
        ZX_TRY(within(k, limit, zx_problem_end(&k->p) > LONG, &s, &fits, err));
    if (!fits && !scarce) ZX_TRY(find_least(k, limit, &least, &from, err));
    if (!fits) ZX_TRY(within(k, from, true, &s, &fits, err));
    zx_schedule_emit(&s, mem, out);
    out->budget = o->least ? out->arena_bytes : o->budget;
    snprintf(out->policy, sizeof out->policy, "zerox");
    zx_plan_simulate(k->g, &o->machine, o->times, out, mem);
    const zx_status st = zx_plan_check(k->g, out, err);
    if (st != ZX_OK) zx_err_in(err, "planner");
    return st;
}

zx_status zx_plan_make(const zx_graph *train, const zx_plan_options *o, zx_arena *mem, zx_plan *out,
                       zx_err *err)
{
    if (o->ranks == 0 || o->micro_batches == 0 || o->stage > 3 || o->optimizer_states > 2)
        return ZX_FAIL(err, ZX_E_USAGE, "%u ranks, %u micro-batches, stage %u: no such plan",
                       o->ranks, o->micro_batches, o->stage);
    maker k = {.g = train, .o = o};
    zx_status st = zx_trace_make(train, o, &k.kept, &k.t, err);
    if (st == ZX_OK && (uint64_t)k.t.n_steps * o->micro_batches >= ZX_NONE / 4)
        st = ZX_FAIL(err, ZX_E_UNSUPPORTED, "%u micro-batches of %u nodes are too many for a plan",
                     o->micro_batches, k.t.n_steps);
    if (st == ZX_OK) {
        k.held = zx_held_bytes(&k.t, o);
        zx_problem_make(&k.t, o, &k.kept, &k.p);
        st = make(&k, mem, out, err);
    }
    zx_arena_free(&k.kept);
    zx_arena_free(&k.scratch);
    return st;
}

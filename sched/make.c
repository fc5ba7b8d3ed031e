// make.c - from a train graph to a Plan within a budget: the planner's problem is solved, written
// down as a schedule, given addresses and emitted.
//
// Addresses may take a little more than the bytes alive; then the problem is solved again within
// less: at the steps where they ended too high, or everywhere; and with others in every second
// micro-batch. The fastest that fits is kept. Without a budget it is the least memory that is
// hardly slower than no limit at all.
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
#define GOOD 1.0005  // times the fastest there is, wherever addresses end: no more is tried
#define ROUNDS 6     // of squeezing
#define HALVES 3     // of what was squeezed, that are given back
#define CLOSE 1.05   // times the limit of the least plan: that may be the fastest that fits
#define EVEN 1.003   // times the bytes alive: addresses that end lower are as good as any
#define MARGIN 512   // of the limit: by so much more than was missing steps are squeezed
#define LONG 40000   // steps of a line, for which less is tried
#define SCARCE 2     // times the most crowded step: with more, addresses are always found
// Pieces of memory that placements look at: no more is tried after that, once something fits. A
// step that is solved counts as so many of them. Less for many steps: of a line, of a micro-batch.
#define WORK (UINT64_C(1) << 30)
#define LESS (UINT64_C(1) << 28)
#define MANY_ALL 20000
#define MANY_EACH 5000
#define STEP UINT64_C(2000)
// The last addresses are looked for so much longer than others; spans that share such efforts.
#define EFFORT 16
#define HARD 96000

typedef struct maker {
    const zx_graph *g;
    const zx_plan_options *o;
    zx_trace t;
    zx_problem p;
    zx_line line;
    uint64_t held;
    uint64_t from;                // the limit that the least plan is made for; 0: not looked for
    bool steady;                  // launches of long lines are found anew
    zx_arena kept, best, scratch; // best, scratch: of the best schedule and of the one at hand
} maker;

// ---- within a limit -----------------------------------------------------------------------------

typedef struct found { // a solution with addresses
    zx_schedule s;     // without a policy: there is none
    zx_solution x;
    double seconds;
} found;

typedef struct search {
    maker *k;
    zx_problem p;
    uint64_t limit;  // of addresses
    uint64_t goal;   // that addresses are looked for below: the limit, or less
    uint64_t *base;  // of p: what is taken, and what was missing of addresses there
    uint64_t *above; // by step: what ends above the limit, of the layout at hand
    uint64_t least;  // bytes of the most crowded step
    uint32_t apart;  // so many micro-batches in a row have addresses of their own; 0: none
    bool part;       // of addresses that don't fit as little as can be ends too high
    bool hard;       // addresses are looked for longer
    bool quick;      // less is tried
    found now, best; // best: of those whose addresses fit
    uint64_t *best_base;
    uint32_t best_apart;
    double first;  // seconds of the fastest, wherever its addresses end
    uint64_t work; // of placements
} search;

static bool any(const found *f)
{
    return f->s.policy[0] != '\0';
}

// Addresses for what was solved.
static zx_status lay(search *s, found *f, zx_err *err)
{
    maker *k = s->k;
    uint32_t mended;
    zx_schedule_start(&f->s, &k->t, k->o, &k->scratch);
    snprintf(f->s.policy, sizeof f->s.policy, "zerox");
    zx_solution_write(&s->p, &f->x, &f->s);
    ZX_TRY(zx_schedule_finish(&f->s, &mended, err));
    ZX_ASSERT(mended == 0);
    f->s.part = s->part && !s->hard;
    if (s->hard) f->s.effort = 1 + (f->s.n_spans < HARD / EFFORT ? EFFORT : HARD / f->s.n_spans);
    const uint64_t budget = s->goal > UINT64_MAX - k->held ? UINT64_MAX : k->held + s->goal;
    if (s->apart > 0)
        zx_schedule_place_apart(&f->s, s->apart, budget);
    else
        zx_schedule_place(&f->s, budget);
    s->work += f->s.work;
    return ZX_OK;
}

static bool fits(const search *s)
{
    return any(&s->now) && s->now.s.transient <= s->limit;
}

// What is at hand becomes the best.
static void keep(search *s)
{
    maker *k = s->k;
    const zx_arena was = k->best;
    k->best = k->scratch;
    k->scratch = was;
    s->best = s->now;
    s->best.s.mem = &k->best;
    s->best_apart = s->apart;
    memcpy(s->best_base, s->base, s->p.n_steps * sizeof *s->base);
}

// With knobs as they stand in a row; nothing is placed that isn't faster than what fits. *faster:
// it was.
static zx_status attempt(search *s, zx_stands *stands, uint32_t use, bool *faster, zx_err *err)
{
    maker *k = s->k;
    zx_price price;
    s->now = (found){0};
    *faster = false;
    zx_arena_free(&k->scratch);
    s->work += STEP * (uint64_t)zx_problem_end(&s->p);
    if (!zx_solve_stood(&s->p, stands, use, &k->scratch, &s->now.x, &s->least)) return ZX_OK;
    // Small launches are found where there is room for addresses.
    const bool roomy =
        s->p.micro_batches == 1 && s->p.n_steps <= MANY_EACH && s->limit / SCARCE >= k->line.least;
    if (!s->quick && use == 0) zx_solve_path(&s->p, roomy, &k->scratch, &s->now.x);
    if (k->steady) zx_solve_steady(&s->p, &stands->at[use], &k->scratch, &s->now.x);
    zx_problem_time(&s->p, &s->now.x, &k->scratch, &price);
    s->now.seconds = price.seconds;
    if (s->first == 0) s->first = price.seconds;
    if (any(&s->best) && s->now.seconds >= s->best.seconds) return ZX_OK;
    *faster = true;
    ZX_TRY(lay(s, &s->now, err));
    if (fits(s)) keep(s);
    return ZX_OK;
}

// Less may be alive where addresses end above the limit. False: there is nothing to be had.
static bool squeeze(search *s)
{
    const zx_problem *p = &s->k->p;
    bool some = false;
    if (!any(&s->now) || fits(s)) return false;
    zx_schedule_above(&s->now.s, s->limit, s->above);
    for (uint32_t q = 0; q < p->n_steps; q++) {
        if (s->above[q] == 0) continue;
        const uint64_t taken = s->base[q] + s->k->line.need[q];
        const uint64_t room = s->limit > taken ? s->limit - taken : 0;
        uint64_t more = s->above[q] + s->limit / MARGIN;
        if (more > room) more = room;
        s->base[q] += more;
        some |= more > 0;
    }
    return some;
}

static bool is_good(const search *s)
{
    return any(&s->best) && s->best.seconds <= GOOD * s->first;
}

static bool is_many(const search *s)
{
    return zx_problem_end(&s->p) > MANY_ALL || s->p.n_steps > MANY_EACH;
}

static bool is_done(const search *s)
{
    return is_good(s) || (any(&s->best) && s->work > (is_many(s) ? LESS : WORK));
}

static uint32_t most_apart(const search *s)
{
    return s->k->t.micro_batches > 1 ? 2 : 0;
}

static void restart(search *s)
{
    s->p.limit = s->limit;
    memcpy(s->base, s->k->p.base, s->p.n_steps * sizeof *s->base);
}

// Half as much less may do.
static zx_status attempt_between(search *s, zx_stands *stands, zx_err *err)
{
    const size_t bytes = s->p.n_steps * sizeof *s->base;
    uint64_t *none = s->above; // of what fails; best_base has what fits
    bool faster;
    memcpy(none, s->k->p.base, bytes);
    for (uint32_t round = 0; round < HALVES && !is_good(s); round++) {
        for (uint32_t q = 0; q < s->p.n_steps; q++)
            s->base[q] = none[q] + (s->best_base[q] - none[q]) / 2;
        ZX_TRY(attempt(s, stands, 0, &faster, err));
        if (!faster) break;
        if (!fits(s)) memcpy(none, s->base, bytes);
    }
    return ZX_OK;
}

// Where addresses of what is at hand end too high less is alive, until they don't. Knobs are turned
// again for that.
static zx_status attempt_squeezed(search *s, zx_err *err)
{
    zx_stands stands = {0};
    bool faster = true;
    restart(s);
    for (uint32_t round = 0; round < ROUNDS && faster && squeeze(s); round++) {
        if (s->part ? is_good(s) : is_done(s)) break;
        if (round <= 1) stands = (zx_stands){0};
        ZX_TRY(attempt(s, &stands, 0, &faster, err));
    }
    return s->part && fits(s) ? attempt_between(s, &stands, err) : ZX_OK;
}

// The same where addresses leave as little as can be above the limit: then less is squeezed, though
// at some steps more. For what has many steps, of which little else was tried.
static zx_status attempt_part(search *s, zx_stands *stands, zx_err *err)
{
    bool faster;
    s->apart = 0;
    s->part = true;
    restart(s);
    ZX_TRY(attempt(s, stands, 0, &faster, err));
    if (faster) ZX_TRY(attempt_squeezed(s, err));
    s->part = false;
    return ZX_OK;
}

// Within less and less everywhere, with the knobs where they were fastest, then where they were
// next to it.
static zx_status attempt_less(search *s, zx_stands *stands, bool quick, zx_err *err)
{
    static const double parts[] = {1, 0.995, 0.99, 0.98, 0.96, 0.94, 0.91, 0.87, 0.8, 0.7, 0};
    const uint32_t first = s->k->steady ? 1 : 0; // all of the limit is never enough for a long line
    restart(s);
    for (uint32_t i = first; i < ZX_COUNT(parts) && !is_done(s); i++) {
        bool some = false, faster;
        double less = 1; // what addresses ask for
        s->p.limit = i == 0 ? s->limit : (uint64_t)(parts[i] * (double)s->limit);
        if (s->p.limit < s->least) s->p.limit = s->least;
        for (uint32_t c = 0; c == 0 || (c < stands->n && !quick); c++) {
            if (stands->n > 0 && stands->seconds[c] > NEAR * stands->seconds[0]) break;
            if (i == 0 && c == 0 && stands->n > 0) continue; // was tried before
            ZX_TRY(attempt(s, stands, c, &faster, err));
            some |= faster;
            if (any(&s->now)) less = (double)s->limit / (double)(s->now.s.transient + 1);
            if (is_done(s) || (quick && any(&s->best))) return ZX_OK;
        }
        if (s->p.limit == s->least || (i + 1 >= ENOUGH && any(&s->best) && !some)) break;
        while (quick && i + 2 < ZX_COUNT(parts) && parts[i + 1] > parts[i] * less) i++;
    }
    return ZX_OK;
}

// What is best, to be given other addresses.
static found *again(search *s)
{
    maker *k = s->k;
    found *f = &s->now;
    zx_arena_free(&k->scratch);
    memcpy(s->base, s->best_base, s->p.n_steps * sizeof *s->base);
    *f = (found){.seconds = s->best.seconds};
    zx_solution_copy(&s->best.x, &k->scratch, &f->x);
    return f;
}

// Real times aren't those that were predicted: on this host what is best waits less exactly.
static zx_status ease(search *s, zx_err *err)
{
    found *f = again(s);
    s->apart = s->best_apart;
    zx_solution_ease(&s->p, &f->x);
    ZX_TRY(lay(s, f, err));
    if (fits(s)) keep(s);
    return ZX_OK;
}

static bool is_even(const search *s)
{
    const uint64_t load = zx_schedule_load(&s->best.s) - s->k->held;
    return (double)s->best.s.transient <= EVEN * (double)load;
}

// Addresses that fit may end lower nevertheless.
static zx_status tighten(search *s, zx_err *err)
{
    s->goal = 0;
    s->hard = true;
    for (s->apart = s->best_apart; s->apart <= most_apart(s) && !is_even(s); s->apart += 2) {
        found *f = again(s);
        ZX_TRY(lay(s, f, err));
        if (f->s.transient < s->best.s.transient) keep(s);
    }
    return ZX_OK;
}

static zx_status attempt_all(search *s, bool quick, zx_err *err)
{
    zx_stands stands = {.one = quick};
    bool faster;
    s->quick = quick;
    if (quick) return attempt_less(s, &stands, true, err);
    for (s->apart = 0; s->apart <= most_apart(s) && !is_done(s); s->apart += 2) {
        restart(s);
        ZX_TRY(attempt(s, &stands, 0, &faster, err));
        ZX_TRY(attempt_squeezed(s, err));
    }
    s->apart = 0;
    if (!is_done(s)) ZX_TRY(attempt_less(s, &stands, false, err));
    return is_good(s) || !is_many(s) ? ZX_OK : attempt_part(s, &stands, err);
}

static void open_search(maker *k, uint64_t limit, search *s)
{
    *s = (search){.k = k, .p = k->p, .limit = limit, .goal = k->steady ? 0 : limit};
    s->base = ZX_NEW(&k->kept, uint64_t, k->p.n_steps + 1);
    s->above = ZX_NEW(&k->kept, uint64_t, k->p.n_steps + 1);
    s->best_base = ZX_NEW(&k->kept, uint64_t, k->p.n_steps + 1);
    s->p.base = s->base;
}

// The least plan does where nothing faster fits.
static zx_status attempt_least(search *s, zx_err *err)
{
    maker *k = s->k;
    search x;
    open_search(k, k->from, &x);
    const zx_arena was = k->best;
    k->best = (zx_arena){0};
    s->now = (found){0};
    const zx_status st = attempt_all(&x, true, err);
    const bool last = st == ZX_OK && !any(&x.best) && any(&x.now);
    if (last) keep(&x);
    zx_arena worse = was;
    if (any(&x.best) && x.best.s.transient <= s->limit &&
        (!any(&s->best) || x.best.seconds < s->best.seconds)) {
        s->best = x.best;
        s->best_base = x.best_base;
        s->best_apart = x.best_apart;
    } else {
        worse = k->best;
        k->best = was;
    }
    zx_arena_free(&worse);
    return st;
}

// Solves within `limit`, and within less until the addresses stay below it too. False: they never
// did; then *out has the last try, if there was any.
static zx_status within(maker *k, uint64_t limit, bool quick, zx_schedule *out, bool *fit,
                        zx_err *err)
{
    search s;
    open_search(k, limit, &s);
    ZX_TRY(attempt_all(&s, quick, err));
    const bool close = (double)limit <= CLOSE * (double)k->from;
    if (!quick && close && !is_good(&s)) ZX_TRY(attempt_least(&s, err));
    *fit = any(&s.best);
    if (*fit && !quick && k->p.machine.host) ZX_TRY(ease(&s, err));
    if (*fit && !quick) ZX_TRY(tighten(&s, err));
    *out = *fit ? s.best.s : s.now.s;
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
    uint64_t limit = UINT64_MAX / 4, least = 0;
    zx_schedule s;
    bool fits = false;
    if (o->budget != UINT64_MAX) limit = o->budget > k->held ? o->budget - k->held : 0;
    ZX_TRY(check_live(k, err));
    zx_line_make(&k->line, &k->p, &k->kept);
    const bool scarce = o->least || o->roomy || limit / SCARCE < k->line.least;
    if (scarce) ZX_TRY(find_least(k, o->least ? 0 : limit, &least, &k->from, err));
    if (!o->least && limit < least) return refuse(k, k->held + least, err);
    if (o->roomy && !o->least) ZX_TRY(find_roomy(k, least, k->from, &limit, err));
    k->steady = zx_problem_end(&k->p) > LONG;
    if (!o->least && limit > 0) ZX_TRY(within(k, limit, k->steady, &s, &fits, err));
    k->steady = false; // memory is all that counts from here on
    if (!fits && !scarce) ZX_TRY(find_least(k, limit, &least, &k->from, err));
    if (!fits) ZX_TRY(within(k, k->from, true, &s, &fits, err));
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
    zx_arena_free(&k.best);
    zx_arena_free(&k.scratch);
    return st;
}

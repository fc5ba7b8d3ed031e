// certificate.c - see certificate.h.
//
// What one limit less would give is not estimated: the planner is asked again. What more memory
// would give is said of the bound, which costs nothing.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/certificate.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/blocks.h"
#include "runtime/progress.h"
#include "sched/trace.h"

#define NOTHING 1e-4 // of a step: less isn't told apart from no time at all

// ---- where --------------------------------------------------------------------------------------

// "model.layers.3": how much of it is the list, and which of it.
static size_t list_length(const char *block)
{
    const char *dot = strrchr(block, '.');
    return dot != NULL ? (size_t)(dot - block) : 0;
}
static long index_of(const char *block)
{
    const char *dot = strrchr(block, '.');
    return strtol(dot != NULL ? dot + 1 : block, NULL, 10);
}
static bool same_list(const char *a, const char *b)
{
    const size_t n = list_length(a);
    return n == list_length(b) && strncmp(a, b, n) == 0;
}
// "layers" of "model.layers.3"
static const char *list_word(const char *block, zx_arena *mem)
{
    const size_t n = list_length(block);
    size_t from = n;
    while (from > 0 && block[from - 1] != '.') from--;
    return n > from ? zx_text_safe(mem, zx_arena_strn(mem, block + from, n - from)) : "layers";
}

typedef struct part { // of the step
    const zx_graph *g;
    const zx_plan *p;
    zx_blocks blocks;
} part;

// The block of a step; NULL: outside.
static const char *block_at(const part *k, uint32_t step)
{
    const uint32_t b = k->blocks.of_node[k->p->steps[step].node];
    return b != ZX_NONE ? k->blocks.names[b] : NULL;
}

static const char *step_text(const part *k, uint32_t step, zx_arena *mem)
{
    const char *block = block_at(k, step);
    if (block != NULL)
        return zx_arena_printf(mem, "%s %ld", list_word(block, mem), index_of(block));
    return zx_arena_printf(mem, "'%s'",
                           zx_text_safe(mem, k->g->nodes[k->p->steps[step].node].name));
}

// " forward" where all of it is.
static const char *phase_text(const part *k, uint32_t from, uint32_t to)
{
    bool forward = false, backward = false;
    for (uint32_t i = from; i <= to; i++) {
        const bool back = k->g->nodes[k->p->steps[i].node].phase == ZX_BACKWARD;
        forward |= !back;
        backward |= back;
    }
    return forward && backward ? "" : backward ? " backward" : " forward";
}

// From one block to another; of one list by number, the least first.
static const char *blocks_text(const part *k, uint32_t from, uint32_t to, zx_arena *mem)
{
    const char *first = block_at(k, from), *a = step_text(k, from, mem), *b = step_text(k, to, mem);
    if (!same_list(first, block_at(k, to))) return zx_arena_printf(mem, "%s to %s", a, b);
    long least = index_of(first), most = least;
    for (uint32_t i = from; i <= to; i++) {
        const char *block = block_at(k, i);
        if (block == NULL || !same_list(block, first)) continue;
        if (index_of(block) < least) least = index_of(block);
        if (index_of(block) > most) most = index_of(block);
    }
    return least == most ? a
                         : zx_arena_printf(mem, "%s %ld-%ld", list_word(first, mem), least, most);
}

const char *zx_steps_text(const zx_graph *g, const zx_plan *p, uint32_t from, uint32_t to,
                          zx_arena *mem)
{
    part k = {.g = g, .p = p};
    const uint32_t micro = p->micro_batches > 0 ? p->n_steps / p->micro_batches : p->n_steps;
    if (from > to || to >= p->n_steps || to - from + 1 >= micro) return NULL;
    zx_blocks_make(g, mem, &k.blocks);
    const char *phase = phase_text(&k, from, to);
    uint32_t first = from, last = to;
    while (first < to && block_at(&k, first) == NULL) first++;
    while (last > first && block_at(&k, last) == NULL) last--;
    if (block_at(&k, first) != NULL)
        return zx_arena_printf(mem, "%s%s", blocks_text(&k, first, last, mem), phase);
    const char *a = step_text(&k, from, mem), *b = step_text(&k, to, mem);
    return strcmp(a, b) == 0 ? a : zx_arena_printf(mem, "%s to %s", a, b);
}

// ---- planned again ------------------------------------------------------------------------------

static zx_status plan_again(const zx_graph *train, const zx_plan_options *o, double *seconds,
                            uint64_t *bytes, zx_err *err)
{
    zx_arena mem = {0};
    zx_plan p;
    const zx_status st = zx_plan_make(train, o, &mem, &p, err);
    if (st == ZX_OK) {
        *seconds = p.step_seconds;
        *bytes = p.arena_bytes;
    }
    zx_arena_free(&mem);
    return st;
}

zx_status zx_limits_cost(const zx_graph *train, const zx_plan *p, zx_limit *limits, uint32_t n,
                         zx_err *err)
{
    for (uint32_t i = 0; i < n; i++) {
        // A plan that keeps to the limit is one without it too: where no other is found within the
        // budget, it is this one.
        double seconds = p->step_seconds;
        uint64_t bytes = p->arena_bytes;
        zx_err found = {0};
        const zx_status st = plan_again(train, &limits[i].without, &seconds, &bytes, &found);
        if (st != ZX_OK && st != ZX_E_BUDGET) return zx_err_merge(err, &found);
        limits[i].seconds = p->step_seconds - seconds;
        limits[i].bytes = (int64_t)bytes - (int64_t)p->arena_bytes;
    }
    return ZX_OK;
}

// Of the chain of windows what lasts longest, and the wire before compute: it is what planning is
// about.
static const zx_bound_span *longest_span(const zx_bound *b)
{
    const zx_bound_span *most = NULL;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const zx_bound_span *s = &b->spans[i];
        if (most == NULL || (s->wire && !most->wire) ||
            (s->wire == most->wire && s->seconds > most->seconds))
            most = s;
    }
    return most;
}

static void find_binding(const zx_graph *train, const zx_plan *p, zx_arena *mem, zx_certificate *c)
{
    const zx_bound_span *s = c->bound.kind == ZX_BOUND_WINDOWS ? longest_span(&c->bound) : NULL;
    c->binds = zx_bound_binds(&c->bound);
    if (s == NULL) return;
    c->binds = s->wire ? "wire" : "compute";
    if (s->from >= 0 && s->to > s->from && s->to <= p->n_steps)
        c->where = zx_steps_text(train, p, (uint32_t)s->from, (uint32_t)s->to - 1, mem);
}

static zx_plan_options options_of(const zx_plan_options *o, const zx_plan *p)
{
    zx_plan_options with = *o;
    with.least = false; // the budget of --budget min is what it came to
    with.budget = p->budget;
    return with;
}

zx_status zx_certificate_lp(const zx_graph *train, const zx_plan_options *o, const zx_plan *p,
                            zx_arena *mem, zx_certificate *c, zx_err *err)
{
    const zx_plan_options with = options_of(o, p);
    zx_arena tmp = {0};
    zx_trace t;
    zx_problem problem;
    zx_bound b;
    zx_err found = {0};
    zx_status st = zx_trace_make(train, &with, &tmp, &t, err);
    if (st == ZX_OK) {
        zx_problem_make(&t, &with, &tmp, &problem);
        st = zx_bound_certify(&problem, &b, &found);
        if (st == ZX_OK)
            c->lp = fmax(b.certified, c->bound.seconds);
        else if (st == ZX_E_UNSUPPORTED) {
            c->no_lp = zx_arena_printf(mem, "%s; %s", found.cause[0], found.hint);
            st = ZX_OK;
        } else
            zx_err_merge(err, &found);
    }
    zx_arena_free(&tmp);
    return st;
}

zx_status zx_certificate_make(const zx_graph *train, const zx_plan_options *o, const zx_plan *p,
                              zx_arena *mem, zx_certificate *out, zx_err *err)
{
    zx_plan_options with = options_of(o, p);
    *out = (zx_certificate){.machine = zx_arena_str(mem, o->machine.name),
                            .budgeted = p->budget != UINT64_MAX,
                            .seconds = p->step_seconds};
    ZX_TRY(zx_bound_make(train, &with, o->times, &out->bound, err));
    find_binding(train, p, mem, out);
    if (!out->budgeted || p->budget - p->arena_bytes >= ZX_CERTIFICATE_MORE) return ZX_OK;
    out->more_known = true;
    out->more_saves = out->bound.saved;
    return ZX_OK;
}

// ---- other times --------------------------------------------------------------------------------

#define JITTER 0.1 // standard deviation of an operator's time, of the time itself
#define SLOWER 1.1 // what the slow rank's compute takes
#define DRAWS 40
#define DRAWN_95 38 // of them in order: the 95th percentile

static uint64_t next_random(uint64_t *state) // splitmix64
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

// Near a normal one, of mean 0 and deviation 1, within 6: times never come out below 0.
static double next_normal(uint64_t *state)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(next_random(state) >> 11) * 0x1p-53;
    return sum;
}

typedef struct rerun {
    const zx_graph *g;
    const zx_plan *p;
    zx_machine m;
    zx_times times;
    const double *usual; // seconds by node
    double *node;        // the same as they are simulated: times.node
    double *update;      // by unit; NULL: the machine's model
    zx_arena mem;
} rerun;

static const double *usual_seconds(rerun *k, const zx_times *times)
{
    if (times != NULL && times->node != NULL) return times->node;
    double *seconds = ZX_NEW(&k->mem, double, k->g->n_nodes + 1);
    for (uint32_t i = 0; i < k->g->n_nodes; i++) {
        zx_cost cost;
        if (zx_node_runs(&k->g->nodes[i]))
            seconds[i] = zx_trace_seconds(k->g, &k->g->nodes[i], &k->m, &cost);
    }
    return seconds;
}

static double run_again(rerun *k)
{
    const zx_mark mark = zx_arena_mark(&k->mem);
    zx_plan p = *k->p;
    zx_plan_simulate(k->g, &k->m, &k->times, &p, &k->mem);
    zx_arena_rewind(&k->mem, mark);
    return p.step_seconds;
}

static double jittered(rerun *k)
{
    double seconds[DRAWS];
    uint64_t state = 0;
    for (uint32_t d = 0; d < DRAWS; d++) {
        for (uint32_t i = 0; i < k->g->n_nodes; i++)
            k->node[i] = k->usual[i] * (1 + JITTER * next_normal(&state));
        const double x = run_again(k);
        uint32_t at = d;
        for (; at > 0 && seconds[at - 1] > x; at--) seconds[at] = seconds[at - 1];
        seconds[at] = x;
    }
    return seconds[DRAWN_95 - 1];
}

// Every collective waits for the slow rank, so its own line is the step's.
static double slowed(rerun *k)
{
    for (uint32_t i = 0; i < k->g->n_nodes; i++) k->node[i] = k->usual[i] * SLOWER;
    for (uint32_t u = 0; u < k->p->n_units && k->update != NULL; u++) k->update[u] *= SLOWER;
    k->times.norm *= SLOWER;
    k->times.feed *= SLOWER;
    k->m.memory /= SLOWER;
    k->m.update /= SLOWER;
    k->m.bf16.update /= SLOWER;
    k->m.fp16.update /= SLOWER;
    k->m.norm /= SLOWER;
    k->m.bf16.norm /= SLOWER;
    k->m.fp16.norm /= SLOWER;
    k->m.op_seconds *= SLOWER;
    return run_again(k);
}

void zx_robust_make(const zx_graph *train, const zx_machine *m, const zx_times *times,
                    const zx_plan *p, zx_robust *out)
{
    rerun k = {.g = train, .p = p, .m = *m};
    if (times != NULL) k.times = *times;
    k.usual = usual_seconds(&k, times);
    k.times.node = k.node = ZX_NEW(&k.mem, double, train->n_nodes + 1);
    if (k.times.update != NULL) {
        k.update = ZX_NEW(&k.mem, double, p->n_units + 1);
        memcpy(k.update, k.times.update, p->n_units * sizeof *k.update);
        k.times.update = k.update;
    }
    *out = (zx_robust){.known = true, .jitter = jittered(&k)};
    out->slow_rank = slowed(&k);
    zx_arena_free(&k.mem);
}

// ---- text ---------------------------------------------------------------------------------------

// Rounded up to what is shown, so that "at most" is true.
static double percent_up(double x)
{
    return ceil(x * 1000 - 1e-6) / 10 + 0.0;
}

static double gap_above(const zx_certificate *c, double bound)
{
    return bound > 0 ? (c->seconds - bound) / bound : 0;
}

static bool is_nothing(const zx_certificate *c, double seconds)
{
    return fabs(seconds) < NOTHING * c->seconds;
}

static void put_limit(const zx_certificate *c, const zx_limit *l, zx_text *out)
{
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT];
    zx_text_put(out, "%s costs ", l->what);
    if (is_nothing(c, l->seconds))
        zx_text_put(out, "no time");
    else if (l->seconds < 0) // the planner found less without it: say so
        zx_text_put(out, "no time (without it a plan came out %s slower)",
                    zx_progress_time(-l->seconds, a));
    else
        zx_text_put(out, "%s a step", zx_progress_time(l->seconds, a));
    if (l->bytes != 0)
        zx_text_put(out, " and %s %s", l->bytes > 0 ? "saves" : "takes",
                    zx_text_size((uint64_t)(l->bytes > 0 ? l->bytes : -l->bytes), b));
    zx_text_put(out, "\n");
}

void zx_robust_text(const zx_robust *r, zx_text *out)
{
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT];
    if (!r->known) return;
    zx_text_put(out, "robust: p95 %s under %.0f %% op jitter, %s with one rank %.0f %% slower\n",
                zx_progress_time(r->jitter, a), 100 * JITTER, zx_progress_time(r->slow_rank, b),
                100 * (SLOWER - 1));
}

void zx_certificate_text(const zx_certificate *c, zx_text *out)
{
    char a[ZX_BYTES_TEXT], b[ZX_BYTES_TEXT];
    zx_arena mem = {0};
    zx_text_put(out,
                "step %s predicted; at most %.1f %% above the lower bound for this machine model "
                "(%s), %sop order and recomputation; binding: %s",
                zx_progress_time(c->seconds, a), percent_up(gap_above(c, c->bound.seconds)),
                zx_text_safe(&mem, c->machine), c->budgeted ? "budget, " : "", c->binds);
    if (c->where != NULL) zx_text_put(out, ", %s", c->where);
    if (c->more_known) {
        zx_text_put(out, "; 64 MiB more would save ");
        zx_text_put(
            out, "%s",
            c->more_saves <= 0 || is_nothing(c, c->more_saves)
                ? "nothing"
                : zx_arena_printf(&mem, "%s by the bound", zx_progress_time(c->more_saves, b)));
    }
    zx_text_put(out, "\n");
    if (c->lp > 0)
        zx_text_put(out, "certified: at most %.1f %% above the nearer bound, %s\n",
                    percent_up(gap_above(c, c->lp)), zx_progress_time(c->lp, a));
    if (c->no_lp != NULL) zx_text_put(out, "not certified: %s\n", c->no_lp);
    for (uint32_t i = 0; i < c->n_limits; i++) put_limit(c, &c->limits[i], out);
    zx_robust_text(&c->robust, out);
    zx_arena_free(&mem);
}

void zx_robust_json(const zx_robust *r, zx_text *out)
{
    if (r->known)
        zx_text_put(out,
                    "{\"op_jitter\":%g,\"op_jitter_p95_seconds\":%.9g,\"slow_rank\":%.3g,"
                    "\"slow_rank_seconds\":%.9g}",
                    JITTER, r->jitter, SLOWER, r->slow_rank);
    else
        zx_text_put(out, "null");
}

void zx_certificate_json(const zx_certificate *c, zx_text *out)
{
    zx_text_put(out, "{\"machine\":");
    zx_text_json(out, c->machine);
    zx_text_put(out,
                ",\"step_seconds\":%.9g,\"bound_seconds\":%.9g,\"gap\":%.6g,\"binding\":\"%s\","
                "\"where\":",
                c->seconds, c->bound.seconds, gap_above(c, c->bound.seconds), c->binds);
    if (c->where != NULL)
        zx_text_json(out, c->where);
    else
        zx_text_put(out, "null");
    zx_text_put(out, ",\"lp_bound_seconds\":");
    zx_text_put(out, c->lp > 0 ? "%.9g" : "null", c->lp);
    zx_text_put(out, ",\"more_bytes\":%" PRIu64 ",\"more_saves_seconds\":", ZX_CERTIFICATE_MORE);
    zx_text_put(out, c->more_known ? "%.9g" : "null", c->more_saves);
    zx_text_put(out, ",\n\"limits\":[");
    for (uint32_t i = 0; i < c->n_limits; i++) {
        zx_text_put(out, "%s{\"limit\":", i > 0 ? "," : "");
        zx_text_json(out, c->limits[i].what);
        zx_text_put(out, ",\"costs_seconds\":%.9g,\"saves_bytes\":%" PRId64 "}",
                    c->limits[i].seconds, c->limits[i].bytes);
    }
    zx_text_put(out, "],\"robust\":");
    zx_robust_json(&c->robust, out);
    zx_text_put(out, "}");
}

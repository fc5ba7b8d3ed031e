// bound.c - the bound's front doors; see bound.h.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound.h"

#include <math.h>

#include "sched/bound_parts.h"
#include "sched/pass.h"

#define FEW_CUTS 48
static const zx_bound_view plain = {.room = 1};

static void bound_of(const zx_problem *p, const zx_bound_view *v, zx_bound *out)
{
    zx_arena mem = {0};
    zx_bound_facts f;
    *out = (zx_bound){0};
    zx_bound_facts_make(p, v, &mem, &f);
    zx_bound_chain(&f, out);
    if (v->max_cuts == 0) out->walk = zx_bound_walk(&f, false);
    out->seconds = fmax(out->chain, out->walk);
    zx_arena_free(&mem);
}

// The row that says (nearly) all is named before those that say it in pieces.
static void name_kind(zx_bound *b)
{
    const double most = b->seconds * 0.99;
    b->kind = b->compute >= most && b->compute >= b->wire ? ZX_BOUND_COMPUTE
              : b->wire >= most                           ? ZX_BOUND_WIRE
              : b->path >= most                           ? ZX_BOUND_ENDS
                                                          : ZX_BOUND_WINDOWS;
}

// A difference of two bounds on the same few cuts.
static double saved(const zx_problem *p, const zx_bound_view *v)
{
    zx_problem more = *p;
    zx_bound_view few = *v;
    zx_bound a, b;
    if (p->limit >= UINT64_MAX - ZX_BOUND_MORE) return 0;
    few.max_cuts = p->n_steps < FEW_CUTS ? p->n_steps : FEW_CUTS;
    more.limit += ZX_BOUND_MORE;
    bound_of(p, &few, &a);
    bound_of(&more, &few, &b);
    return fmax(0, a.seconds - b.seconds);
}

static void bound_and_saved(const zx_problem *p, const zx_bound_view *v, zx_bound *out)
{
    bound_of(p, v, out);
    name_kind(out);
    out->saved = saved(p, v);
}

void zx_bound_problem(const zx_problem *p, zx_bound *out)
{
    bound_and_saved(p, &plain, out);
}

static double walk_finely(const zx_problem *p)
{
    zx_arena mem = {0};
    zx_bound_facts f;
    zx_bound_facts_make(p, &plain, &mem, &f);
    const double seconds = zx_bound_walk(&f, true);
    zx_arena_free(&mem);
    return seconds;
}

zx_status zx_bound_certify(const zx_problem *p, zx_bound *out, zx_err *err)
{
    double program, less = 0;
    zx_bound_problem(p, out);
    ZX_TRY(zx_bound_lp(p, out->chain, &program, err));
    out->walk = fmax(out->walk, walk_finely(p));
    out->certified = fmax(program, fmax(out->chain, out->walk));
    if (out->certified <= out->seconds) return ZX_OK;
    out->seconds = out->certified;
    name_kind(out);
    if (program < out->certified) return ZX_OK;
    if (p->limit >= UINT64_MAX - ZX_BOUND_MORE) return ZX_OK;
    zx_problem more = *p;
    more.limit += ZX_BOUND_MORE;
    ZX_TRY(zx_bound_lp(&more, out->chain, &less, err));
    out->saved = fmax(0, program - less);
    return ZX_OK;
}

// ---- of all policies ----------------------------------------------------------------------------

// Seconds of the updates: after the norm, when gathers may be under way again. A policy that holds
// units whole gathers them then.
static double updates(const zx_problem *p, const zx_trace *t, const zx_plan_options *o)
{
    const zx_graph *g = t->graph;
    double seconds = 0;
    for (uint32_t u = 0; u < g->n_params; u++) {
        if (!zx_param_trained(g, u)) continue;
        if (o->times != NULL && o->times->update != NULL) {
            seconds += o->times->update[u];
            continue;
        }
        const uint32_t size = (uint32_t)zx_dtype_bytes(g->values[g->params[u].value].type.dtype);
        const uint32_t sum = o->accumulate_bytes != 0 ? o->accumulate_bytes : size;
        const uint32_t element = zx_update_bytes(size, sum, o->optimizer_states);
        seconds += (double)(p->unit_wire[u] / size / o->ranks) * element / p->machine.update +
                   p->machine.op_seconds;
    }
    return fmin(seconds, p->after);
}

// What policies may do that zerox doesn't: take no notice of a configuration's limits, keep what
// isn't trained whole from step to step. And of all that lies in a reservation, the last needn't
// end where it is aligned.
static void loosen(zx_problem *p, const zx_graph *g, zx_arena *mem)
{
    uint64_t *wire = ZX_NEW(mem, uint64_t, p->n_units + 1);
    for (uint32_t u = 0; u < p->n_units; u++)
        wire[u] = zx_param_trained(g, u) ? p->unit_wire[u] : 0;
    p->unit_wire = wire;
    p->max_live = p->max_reduce = 0;
    p->no_overlap = false;
    if (p->limit > 0 && p->limit < UINT64_MAX - ZX_ALIGN) p->limit += ZX_ALIGN - 1;
}

static bool fits(const zx_problem *p)
{
    for (uint32_t s = 0; s < p->n_steps; s++)
        if (p->base[s] > p->limit) return false;
    return true;
}

// The least of what each stage takes that has room for what it holds. Stage 1 reduces as stage 0
// does, and gathers besides. Stage 2 gathers what is trained once, after the norm, and then has it
// whole: stage 3 without a limit.
static void least_of_stages(const zx_trace *t, const zx_plan_options *o, zx_arena *mem,
                            zx_bound *out)
{
    for (uint32_t stage = 3; stage <= 3; stage--) {
        zx_plan_options mine = *o;
        zx_problem p;
        zx_bound b;
        zx_bound_view v = {.room = 1};
        mine.stage = stage;
        zx_problem_make(t, &mine, mem, &p);
        loosen(&p, t->graph, mem);
        if (stage < 3 && (o->ranks == 1 || !fits(&p))) continue;
        if (stage == 2) {
            mine.stage = 3;
            zx_problem_make(t, &mine, mem, &p);
            loosen(&p, t->graph, mem);
            p.limit = UINT64_MAX;
        }
        if (stage == 3 && o->ranks > 1) v.room = (double)o->ranks / (o->ranks - 1);
        if (stage > 0) v.lead = updates(&p, t, &mine);
        p.after -= v.lead;
        bound_and_saved(&p, &v, &b);
        const uint64_t bytes =
            stage == 3 || b.wire_bytes < out->wire_bytes ? b.wire_bytes : out->wire_bytes;
        if (stage == 3 || b.seconds < out->seconds) *out = b;
        out->wire_bytes = bytes;
    }
}

zx_status zx_bound_make(const zx_graph *train, const zx_plan_options *o, const zx_times *times,
                        zx_bound *out, zx_err *err)
{
    zx_arena mem = {0};
    zx_trace t;
    zx_plan_options mine = *o;
    *out = (zx_bound){0};
    mine.times = times;
    const zx_status st = zx_trace_make(train, &mine, &mem, &t, err);
    if (st == ZX_OK) least_of_stages(&t, &mine, &mem, out);
    zx_arena_free(&mem);
    return st;
}

const char *zx_bound_binds(const zx_bound *b)
{
    static const char *const words[] = {"compute", "wire", "start and tail",
                                        "memory-coupled windows"};
    return words[b->kind];
}

// cmd_compare_plan.c - the plans that are compared, all for the same bytes on the same machine.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/job_policy.h"

// ---- machine and budget -------------------------------------------------------------------------

static void set_machine(zx_comparing *k)
{
    zx_machine *m = &k->options.machine;
    const zx_compare_ask *ask = &k->ask;
    if (ask->bandwidth > 0 || ask->latency > 0) {
        // What the emulated link doesn't limit takes the cores' time alone.
        const double wire = ask->bandwidth > 0 ? ask->bandwidth : ZX_MACHINE_NO_WIRE;
        zx_machine_link(m, wire, ask->latency);
    }
    if (!ask->execute) return;
    // All ranks at work share the cores that there are.
    m->cores = (double)zx_memory_cores() / k->job.ranks;
    m->threads = k->job.threads;
}

zx_status zx_compare_least(const zx_comparing *k, uint64_t *bytes, zx_err *err)
{
    zx_arena mem = {0};
    zx_plan least;
    zx_plan_options o = k->options;
    o.stage = 3;
    o.least = true;
    o.budget = UINT64_MAX;
    const zx_status st = zx_plan_make(&k->job.train, &o, &mem, &least, err);
    if (st == ZX_OK) *bytes = least.arena_bytes;
    zx_arena_free(&mem);
    return st;
}

// The least that the planner finds a plan for is then everybody's budget.
static zx_status set_budget(zx_comparing *k, zx_err *err)
{
    zx_plan_options *o = &k->options;
    o->roomy = false;
    if (o->least) ZX_TRY(zx_compare_least(k, &o->budget, err));
    o->least = false;
    return ZX_OK;
}

uint64_t zx_compare_room(const zx_comparing *k)
{
    uint64_t usable = zx_memory_usable();
    const char *as_if = zx_given_text(k->job.o, ZX_OPT_MEMORY_LEFT);
    if (as_if != NULL) zx_text_parse_size(as_if, &usable);
    return (uint64_t)(ZX_COMPARE_PART * (double)usable / k->job.ranks);
}

// ---- which policies -----------------------------------------------------------------------------

static void keep(zx_compare_ask *ask, bool (*wanted)(const zx_comparing *k, zx_policy_id id),
                 const zx_comparing *k)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ask->n; i++)
        if (wanted(k, ask->ids[i])) ask->ids[n++] = ask->ids[i];
    ask->n = n;
}

static bool is_shown(const zx_comparing *k, zx_policy_id id)
{
    return k->in.hooks != NULL || !zx_policy_has_hooks(id);
}

// With one micro-batch "once a step" is what is done anyway.
static bool is_new(const zx_comparing *k, zx_policy_id id)
{
    return k->options.micro_batches > 1 || zx_policies[id].runs;
}

static zx_status choose(zx_comparing *k, zx_err *err)
{
    zx_compare_ask *ask = &k->ask;
    zx_arena *mem = &k->job.mem;
    const uint32_t n = ask->n;
    if (k->job.ranks == 1) {
        zx_note(&k->c.notes, mem,
                "one rank: nothing is communicated, so there is nothing to compare; this is the "
                "plain step");
        ask->n = 1;
        ask->ids[0] = ZX_POLICY_ZEROX;
        return ZX_OK;
    }
    keep(ask, is_new, k);
    keep(ask, is_shown, k);
    if (ask->n == 0)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "%s: the hook-driven policies need its modules: %s",
                       k->job.model, k->in.hooks_why != NULL ? k->in.hooks_why : "there are none");
    if (k->in.hooks == NULL && ask->n < n && k->in.hooks_why != NULL)
        zx_note(&k->c.notes, mem, "hooks and hooks-tuned are left out: %s", k->in.hooks_why);
    return ZX_OK;
}

static void note_sums(zx_comparing *k)
{
    bool here = false;
    for (uint32_t i = 0; i < k->ask.n; i++) here |= zx_policies[k->ask.ids[i]].stage < 2;
    if (!here || k->options.micro_batches == 1 || k->job.ranks == 1) return;
    zx_note(
        &k->c.notes, &k->job.mem,
        "ddp and zero1 reduce in every micro-batch here, since every policy adds gradients in "
        "the same order; their usual form, once a step, gives other bits and is simulated only");
}

zx_status zx_compare_prepare(zx_comparing *k, zx_err *err)
{
    zx_job *job = &k->job;
    ZX_TRY(zx_job_policy_input(job, &k->in, err));
    k->options = *k->in.options;
    k->in.options = &k->options;
    set_machine(k);
    ZX_TRY(set_budget(k, err));
    const zx_machine *m = &k->options.machine;
    k->c = (zx_compare){.model = job->model,
                        .machine = m->host ? NULL : m->name,
                        .recompute = job->recompute == ZX_RECOMPUTE_FULL     ? "full"
                                     : job->recompute == ZX_RECOMPUTE_BLOCKS ? "named"
                                                                             : "none",
                        .ranks = job->ranks,
                        .threads = job->threads,
                        .micro_batches = k->options.micro_batches,
                        .budget = k->options.budget,
                        .bandwidth = k->ask.bandwidth,
                        .latency = k->ask.latency,
                        .fastest = ZX_NONE};
    ZX_TRY(choose(k, err));
    note_sums(k);
    for (uint32_t i = 0; i < k->ask.n; i++)
        if (zx_policy_has_hooks(k->ask.ids[i])) zx_job_note_hooks(job);
    return ZX_OK;
}

// ---- plans --------------------------------------------------------------------------------------

static const zx_times *times_for(const zx_comparing *k, zx_policy_id id)
{
    const uint32_t kind = zx_compare_kind(zx_policies[id].stage);
    return k->timed[kind] ? &k->times[kind] : NULL;
}

// Where a row has a graph of its own, a node that runs again takes as long as the first time.
static const zx_times *row_times(const zx_comparing *k, const zx_compare_row *r,
                                 const zx_times *times, zx_arena *mem)
{
    zx_plan_options of_row, o = {.times = times};
    if (r->variant == NULL) return times;
    zx_variant_options(&k->job, r->variant, &o, mem, &of_row);
    return of_row.times;
}

static void fill_row(zx_comparing *k, zx_compare_row *r, zx_policy_id id)
{
    const zx_plan *p = &r->result.plan;
    r->id = id;
    r->name = zx_policy_name(id, &k->job.mem);
    r->predicted = p->step_seconds;
    r->predicted_exposed = p->exposed_seconds;
    for (uint32_t i = 0; i < p->n_insns; i++)
        r->collectives += p->insns[i].id == ZX_I_GATHER || p->insns[i].id == ZX_I_REDUCE ||
                          p->insns[i].id == ZX_I_ALLREDUCE;
    if (p->arena_bytes > k->options.budget) r->over_bytes = p->arena_bytes - k->options.budget;
    if (!zx_policies[id].runs)
        r->idle = "";
    else if (k->ask.execute && p->arena_bytes > zx_compare_room(k)) {
        char need[ZX_BYTES_TEXT], have[ZX_BYTES_TEXT];
        r->idle = zx_arena_printf(&k->job.mem, "not executed: takes %s, 0.8 of what is left is %s",
                                  zx_text_size(p->arena_bytes, need),
                                  zx_text_size(zx_compare_room(k), have));
    }
}

static void note_rows(zx_comparing *k, zx_compare *c)
{
    bool heedless = false;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        const zx_compare_row *r = &c->rows[i];
        heedless |= r->over_bytes > 0 && zx_policies[r->id].make == zx_policy_hooks;
    }
    if (heedless)
        zx_note(&c->notes, &k->job.mem,
                "hooks: DeepSpeed's limits count elements and take no notice of memory; what is "
                "over the budget is not ranked");
}

// zerox once more, with whatever it decides to recompute.
static void plan_auto(zx_comparing *k, zx_compare *c)
{
    static const char name[] = "zerox, recompute auto";
    zx_arena *mem = &k->job.mem;
    zx_compare_row *r = &c->rows[c->n_rows];
    zx_variant *v = ZX_NEW(mem, zx_variant, 1);
    zx_plan_options with, o = k->options;
    zx_err found = {0};
    bool here = false;
    for (uint32_t i = 0; i < k->ask.n; i++) here |= k->ask.ids[i] == ZX_POLICY_ZEROX;
    if (!here || !k->job.recompute_auto) return;
    o.stage = zx_policies[ZX_POLICY_ZEROX].stage;
    o.times = times_for(k, ZX_POLICY_ZEROX);
    *r = (zx_compare_row){.id = ZX_POLICY_ZEROX};
    if (zx_job_choose(&k->job, &o, mem, v, &with, &r->result.plan, &found) == ZX_OK) {
        fill_row(k, r, ZX_POLICY_ZEROX);
        snprintf(r->result.knobs, sizeof r->result.knobs, "%s",
                 v->n > 0 ? zx_variant_text(v, mem) : "nothing is recomputed");
    } else {
        zx_note(&c->notes, mem, "%s: no plan: %s", name, found.cause[0]);
        if (k->ask.n_values == 0) return;
        zx_variant_make(&k->job, ZX_RECOMPUTE_NONE, NULL, mem, v, NULL);
    }
    r->name = name;
    r->variant = v;
    c->n_rows++;
}

static bool any_fits(const zx_compare *c)
{
    bool any = false;
    for (uint32_t i = 0; i < c->n_rows; i++)
        any |= c->rows[i].result.plan.n_insns > 0 && c->rows[i].over_bytes == 0;
    return any;
}

// In a budget that nothing has room in, no step has a least time: it is that of any budget then.
static zx_status make_bound(zx_comparing *k, zx_compare *c, zx_err *err)
{
    zx_plan_options o = k->options;
    if (!any_fits(c)) o.budget = UINT64_MAX;
    return zx_bound_make(&k->job.train, &o, k->timed[2] ? &k->times[2] : NULL, &c->bound, err);
}

zx_status zx_compare_plans(zx_comparing *k, zx_compare *c, zx_err *err)
{
    zx_err first = {0};
    c->rows = ZX_NEW(&k->job.mem, zx_compare_row, k->ask.n + 2);
    c->n_rows = 0;
    for (uint32_t i = 0; i < k->ask.n; i++) {
        const zx_policy_id id = k->ask.ids[i];
        zx_compare_row *r = &c->rows[c->n_rows];
        zx_err found = {0};
        k->in.times = times_for(k, id);
        *r = (zx_compare_row){0};
        if (zx_policy_plan(id, &k->in, &k->job.mem, &r->result, &found) != ZX_OK) {
            zx_note(&c->notes, &k->job.mem, "%s: no plan: %s", zx_policy_name(id, &k->job.mem),
                    found.cause[0]);
            if (first.code == ZX_OK) first = found;
            // In a sweep every policy keeps its row.
            if (k->ask.n_values == 0) continue;
            *r = (zx_compare_row){.id = id, .name = zx_policy_name(id, &k->job.mem)};
            c->n_rows++;
            continue;
        }
        fill_row(k, r, id);
        c->n_rows++;
    }
    plan_auto(k, c);
    if (c->n_rows == 0) return zx_err_merge(err, &first);
    note_rows(k, c);
    if (c->n_rows > 0 && !any_fits(c) && k->options.budget != UINT64_MAX)
        zx_note(&c->notes, &k->job.mem,
                "bound: without a budget, as nothing here has room in this one");
    return make_bound(k, c, err);
}

// What a step takes where all ranks take what they took in a turn: operators of any kind's turn,
// updates of the row's own kind's.
static void simulate_turn(const zx_comparing *k, const zx_compare_row *r, uint32_t turn,
                          uint32_t kind, zx_plan *p, zx_arena *mem)
{
    const zx_graph *train = r->variant != NULL ? &r->variant->train : &k->job.train;
    const size_t first = (size_t)turn * k->job.ranks;
    const zx_times *own = k->turns[zx_compare_kind(zx_policies[r->id].stage)] + first;
    zx_times *times = ZX_NEW(mem, zx_times, k->job.ranks);
    for (uint32_t i = 0; i < k->job.ranks; i++) {
        times[i] = *row_times(k, r, &k->turns[kind][first + i], mem);
        times[i].update = own[i].update;
        times[i].norm = own[i].norm;
    }
    zx_plan_simulate_ranks(train, &k->options.machine, times, k->job.ranks, p, mem);
}

static void predict_by_turns(zx_comparing *k, zx_compare_row *r)
{
    double *seconds = ZX_NEW(&k->job.mem, double, (size_t)k->n_turns *ZX_COMPARE_KINDS);
    uint32_t *at = ZX_NEW(&k->job.mem, uint32_t, (size_t)k->n_turns * ZX_COMPARE_KINDS);
    zx_arena scratch = {0};
    uint32_t n = 0, best = 0;
    for (uint32_t i = 0; i < k->n_turns * ZX_COMPARE_KINDS; i++) {
        if (k->turns[i % ZX_COMPARE_KINDS] == NULL) continue;
        const zx_mark mark = zx_arena_mark(&scratch);
        zx_plan p = r->result.plan;
        simulate_turn(k, r, i / ZX_COMPARE_KINDS, i % ZX_COMPARE_KINDS, &p, &scratch);
        at[n] = i;
        seconds[n++] = p.step_seconds;
        zx_arena_rewind(&scratch, mark);
    }
    zx_arena_free(&scratch);
    const double middle = zx_compare_median(seconds, n);
    for (uint32_t i = 1; i < n; i++)
        if (fabs(seconds[i] - middle) < fabs(seconds[best] - middle)) best = i;
    simulate_turn(k, r, at[best] / ZX_COMPARE_KINDS, at[best] % ZX_COMPARE_KINDS, &r->result.plan,
                  &k->job.mem);
    r->predicted = middle;
}

zx_status zx_compare_predict(zx_comparing *k, zx_compare *c, zx_err *err)
{
    for (uint32_t i = 0; i < c->n_rows; i++) {
        zx_compare_row *r = &c->rows[i];
        zx_plan *p = &r->result.plan;
        const zx_graph *train = r->variant != NULL ? &r->variant->train : &k->job.train;
        const zx_times *times = times_for(k, r->id);
        const uint32_t kind = zx_compare_kind(zx_policies[r->id].stage);
        if (k->turns[kind] != NULL) {
            predict_by_turns(k, r);
        } else {
            zx_plan_simulate(train, &k->options.machine, row_times(k, r, times, &k->job.mem), p,
                             &k->job.mem);
            r->predicted = p->step_seconds;
        }
        r->predicted_exposed = p->exposed_seconds;
    }
    return make_bound(k, c, err);
}

bool zx_compare_measured(zx_comparing *k, uint32_t kind, zx_plan *out)
{
    static const struct {
        uint32_t n;
        zx_policy_id ids[3];
    } makers[ZX_COMPARE_KINDS] = {
        {1, {ZX_POLICY_DDP}},
        {1, {ZX_POLICY_ZERO1}},
        {3, {ZX_POLICY_ZEROX, ZX_POLICY_FSDP, ZX_POLICY_DEEPCOMPILE}},
    };
    k->in.times = NULL;
    for (uint32_t i = 0; i < makers[kind].n; i++) {
        zx_policy_result r;
        zx_err unused = {0};
        const zx_policy_id id = makers[kind].ids[i];
        if (zx_policy_plan(id, &k->in, &k->job.mem, &r, &unused) != ZX_OK) continue;
        *out = r.plan;
        if (r.plan.arena_bytes <= zx_compare_room(k)) return true;
    }
    return false;
}

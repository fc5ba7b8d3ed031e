// cmd_compare_run.c - zerox compare --execute: the ranks are started once and run every policy's
// plan, a step of each in turn, on the same data from the same first weights.
//
// Rank 0 makes all plans and sends them. What they are made from is measured before the rounds,
// with communication off; what the predictions are made from, in the rounds: where others have had
// the caches in between and the machine is as busy as it then is. Where policies are opened one by
// one, before the rounds and after them.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_compare.h"

#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/launch.h"
#include "runtime/progress.h"
#include "runtime/stream.h"

#define MEASURED_STEPS 3 // with communication off, each time
#define MOST_PROFILES 1000
#define MOST_PASSES (2 * ZX_COMPARE_KINDS) // before the rounds, and in or after them

typedef struct run_call { // what every rank is handed
    const zx_options *o;
    const zx_compare_ask *ask;
} run_call;

typedef struct lane { // a policy that is executed
    uint32_t row;     // of the comparison; on rank 0
    zx_variant train; // its graph
    zx_plan plan;
    zx_session *session;
    double *losses, *steps, *exposed; // by step; by timed step
} lane;

typedef struct running {
    zx_comparing k;
    zx_world *world;
    bool first, one_by_one, stopped;
    zx_plan measured[ZX_COMPARE_KINDS];
    bool measures[ZX_COMPARE_KINDS];
    uint32_t n_measuring;
    zx_measuring *measuring[ZX_COMPARE_KINDS]; // those that take turns in the rounds
    uint32_t measuring_kind[ZX_COMPARE_KINDS];
    uint32_t n_passes, first_pass; // the first that predictions are made from
    struct pass {
        uint32_t kind;
        zx_times times;
    } passes[MOST_PASSES];
    uint32_t n_lanes, n_losses, timed; // steps whose losses were compared; rounds that are whole
    lane *lanes;
    zx_progress_style style;
    bool open;     // a line stands unfinished on the terminal
    double said;   // when a round was told of
    double known;  // how well medians are known; on rank 0
    double began;  // the first round
    uint64_t each; // bytes a rank takes where all policies are open; on rank 0
} running;

// ---- said ---------------------------------------------------------------------------------------

static void say(running *v, const char *text, bool last)
{
    if (!v->first) return;
    if (!v->style.in_place) {
        zx_cmd_say("%s", text);
        return;
    }
    fprintf(stderr, "\r%.*s\x1b[K%s", (int)v->style.width - 1, text, last ? "\n" : "");
    v->open = !last;
}

static void end_line(running *v)
{
    if (v->open) fputc('\n', stderr);
    v->open = false;
}

// Where lines stay, one a second is enough.
static void say_round(running *v, uint32_t round)
{
    char text[200], of[80], left[ZX_BYTES_TEXT] = "", each[ZX_BYTES_TEXT];
    const uint32_t warm_rounds = v->one_by_one ? 0 : ZX_COMPARE_WARM;
    const bool more = v->timed >= v->k.ask.least_steps; // until medians are known
    const uint32_t all = warm_rounds + v->k.ask.least_steps;
    const double now = zx_seconds(), quiet = more ? 10 : 1;
    if (!v->style.in_place && round > 0 && round + 1 != all && now < v->said + quiet) return;
    v->said = now;
    if (more)
        snprintf(of, sizeof of, "; medians are known to %.1f %%, wanted is %.1f %%", 100 * v->known,
                 100 * ZX_COMPARE_KNOWN);
    else
        snprintf(of, sizeof of, " of %u", all);
    size_t n =
        (size_t)snprintf(text, sizeof text, "round %u%s: a step of each of %u policies%s",
                         round + 1, of, v->n_lanes, round < warm_rounds ? " (warming up)" : "");
    if (v->one_by_one && round > 0 && !more) {
        const double took = (now - v->began) / round;
        snprintf(text + n, sizeof text - n, "; a round takes %s, about %s left",
                 zx_progress_time(took, each), zx_progress_time(took * (all - round), left));
    }
    say(v, text, false);
}

// Opening every policy anew takes long: better known before.
static void say_one_by_one(running *v)
{
    char need[ZX_BYTES_TEXT], have[ZX_BYTES_TEXT], text[300];
    if (!v->first || !v->one_by_one) return;
    snprintf(
        text, sizeof text,
        "all %u policies at once take %s a rank, 0.8 of what is left is %s: each is opened and "
        "warmed up anew in every round, %u rounds; fewer --policies or a smaller --budget are "
        "faster",
        v->n_lanes, zx_text_size(v->each, need), zx_text_size(zx_compare_room(&v->k), have),
        v->k.ask.least_steps);
    end_line(v);
    zx_cmd_say("%s", text);
}

static void say_header(running *v)
{
    zx_job *job = &v->k.job;
    if (!v->first) return;
    zx_cmd_say("zerox compare: %s, %u rank%s x %u thread%s", zx_text_safe(&job->mem, job->model),
               job->ranks, job->ranks == 1 ? "" : "s", job->threads, job->threads == 1 ? "" : "s");
    zx_job_say_notes(&v->k.job);
}

// ---- plans to all ranks -------------------------------------------------------------------------

// Rank 0's `text` to all; the others' is then their own.
static zx_status send_text(running *v, zx_text *text, zx_err *err)
{
    void *bytes = text->at;
    size_t n = text->n;
    ZX_TRY(zx_world_send(v->world, &bytes, &n, err));
    if (!v->first) *text = (zx_text){bytes, n, n};
    return ZX_OK;
}

static zx_status share_plan(running *v, const zx_graph *train, zx_plan *p, zx_err *err)
{
    zx_text packed = {0};
    zx_plan got = {0};
    if (v->first) zx_plan_pack(p, &packed);
    zx_status st = send_text(v, &packed, err);
    if (st == ZX_OK) {
        st = zx_plan_unpack(packed.at, packed.n, &v->k.job.mem, &got, err);
        if (st == ZX_OK) st = zx_plan_check(train, &got, err);
        st = zx_world_agree(v->world, st, err);
    }
    zx_text_free(&packed);
    if (st == ZX_OK && !v->first) *p = got;
    return st;
}

// A few numbers of rank 0's to all.
static zx_status share_numbers(running *v, uint32_t *numbers, uint32_t n, zx_err *err)
{
    zx_text text = {0};
    if (v->first) zx_text_bytes(&text, numbers, n * sizeof *numbers);
    zx_status st = send_text(v, &text, err);
    if (st == ZX_OK && text.n != n * sizeof *numbers)
        st = ZX_FAIL(err, ZX_E_COMM, "rank 0 sent %zu bytes, not %zu", text.n, n * sizeof *numbers);
    if (st == ZX_OK && !v->first) memcpy(numbers, text.at, n * sizeof *numbers);
    zx_text_free(&text);
    return st;
}

// ---- measured with communication off ------------------------------------------------------------

static zx_session_options session_options(const running *v)
{
    const zx_job *job = &v->k.job;
    return (zx_session_options){.world = v->world,
                                .threads = job->threads,
                                .seed = job->seed,
                                .optim = job->optim,
                                .rates = job->rates,
                                .clip = job->clip,
                                .labels = zx_job_labels(job),
                                .feed = zx_data_feed(job->data),
                                .bandwidth = v->k.ask.bandwidth,
                                .latency_seconds = v->k.ask.latency,
                                .profile = v->k.ask.report != NULL};
}

static zx_status share_measured(running *v, zx_err *err)
{
    uint32_t measures[ZX_COMPARE_KINDS] = {0};
    zx_comparing *k = &v->k;
    for (uint32_t i = 0; i < k->ask.n && v->first; i++)
        if (zx_policies[k->ask.ids[i]].runs)
            measures[zx_compare_kind(zx_policies[k->ask.ids[i]].stage)] = 1;
    if (v->first) measures[ZX_COMPARE_KINDS - 1] = 1; // the bound's
    for (uint32_t i = 0; i < ZX_COMPARE_KINDS && v->first; i++)
        measures[i] = measures[i] && zx_compare_measured(k, i, &v->measured[i]);
    ZX_TRY(share_numbers(v, measures, ZX_COMPARE_KINDS, err));
    for (uint32_t i = 0; i < ZX_COMPARE_KINDS; i++) {
        v->measures[i] = measures[i] != 0;
        if (v->measures[i]) ZX_TRY(share_plan(v, &v->k.job.train, &v->measured[i], err));
    }
    return ZX_OK;
}

static double middle(const running *v, size_t member, bool of_kind, uint32_t kind)
{
    double x[MOST_PASSES];
    uint32_t n = 0;
    for (uint32_t i = v->first_pass; i < v->n_passes; i++)
        if (!of_kind || v->passes[i].kind == kind)
            memcpy(&x[n++], (const char *)&v->passes[i].times + member, sizeof *x);
    return zx_compare_median(x, n);
}

// Medians, by element, over passes: a machine that others use drifts. What is updated differs
// from kind to kind, an execution doesn't.
static void combine(running *v)
{
    const zx_graph *g = &v->k.job.train;
    zx_arena *mem = &v->k.job.mem;
    double x[MOST_PASSES], *node = ZX_NEW(mem, double, g->n_nodes + 1);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        uint32_t n = 0;
        for (uint32_t k = v->first_pass; k < v->n_passes; k++) x[n++] = v->passes[k].times.node[i];
        node[i] = zx_compare_median(x, n);
    }
    for (uint32_t kind = 0; kind < ZX_COMPARE_KINDS; kind++) {
        double *update = ZX_NEW(mem, double, g->n_params + 1);
        for (uint32_t i = 0; i < g->n_params && v->measures[kind]; i++) {
            uint32_t n = 0;
            for (uint32_t k = v->first_pass; k < v->n_passes; k++)
                if (v->passes[k].kind == kind) x[n++] = v->passes[k].times.update[i];
            update[i] = zx_compare_median(x, n);
        }
        v->k.timed[kind] = v->measures[kind];
        v->k.times[kind] = (zx_times){.node = node,
                                      .update = update,
                                      .norm = middle(v, offsetof(zx_times, norm), true, kind),
                                      .feed = middle(v, offsetof(zx_times, feed), false, 0),
                                      .copy = middle(v, offsetof(zx_times, copy), false, 0),
                                      .sum = middle(v, offsetof(zx_times, sum), false, 0),
                                      .handoff = middle(v, offsetof(zx_times, handoff), false, 0)};
    }
}

// Seconds of all operators and updates, each once.
static double sum_of(const running *v, const zx_times *t)
{
    const zx_graph *g = &v->k.job.train;
    double sum = t->norm;
    for (uint32_t i = 0; i < g->n_nodes; i++) sum += t->node[i];
    for (uint32_t i = 0; i < g->n_params; i++) sum += t->update[i];
    return sum;
}

// The most that a kind's passes differ by: before the rounds, and in or after them.
static double drift_of(const running *v)
{
    double drift = 0;
    for (uint32_t i = 0; i < v->n_passes; i++)
        for (uint32_t j = i + 1; j < v->n_passes; j++) {
            if (v->passes[i].kind != v->passes[j].kind) continue;
            const double a = sum_of(v, &v->passes[i].times), b = sum_of(v, &v->passes[j].times);
            if (a > 0 && b > 0) drift = fmax(drift, fmax(a, b) / fmin(a, b) - 1);
        }
    return drift;
}

static zx_status measure(running *v, zx_err *err)
{
    zx_comparing *k = &v->k;
    const zx_session_options so = session_options(v);
    for (uint32_t i = 0; i < ZX_COMPARE_KINDS; i++) {
        if (!v->measures[i]) continue;
        struct pass *pass = &v->passes[v->n_passes++];
        pass->kind = i;
        ZX_TRY(zx_session_measure(&k->job.train, &v->measured[i], &so, MEASURED_STEPS, &k->job.mem,
                                  &pass->times, err));
    }
    combine(v);
    return ZX_OK;
}

// Those that take turns in the rounds. Where a round ended before the first turn that counts, what
// was measured before it has to do.
static zx_status open_measuring(running *v, zx_err *err)
{
    const zx_session_options so = session_options(v);
    for (uint32_t i = 0; i < ZX_COMPARE_KINDS; i++) {
        if (!v->measures[i]) continue;
        v->measuring_kind[v->n_measuring] = i;
        zx_measuring **m = &v->measuring[v->n_measuring++];
        ZX_TRY(zx_measuring_open(&v->k.job.train, &v->measured[i], &so, v->k.ask.steps, m, err));
    }
    return ZX_OK;
}

static zx_status read_measuring(running *v, zx_err *err)
{
    if (v->timed == 0) return ZX_OK;
    v->first_pass = v->n_passes;
    for (uint32_t i = 0; i < v->n_measuring; i++) {
        struct pass *pass = &v->passes[v->n_passes++];
        pass->kind = v->measuring_kind[i];
        ZX_TRY(zx_measuring_times(v->measuring[i], &v->k.job.mem, &pass->times, err));
        // Of a round that was broken off there may be one kind's turn and not another's.
        uint32_t n = 0;
        ZX_TRY(
            zx_measuring_turns(v->measuring[i], &v->k.job.mem, &v->k.turns[pass->kind], &n, err));
        if (i == 0 || n < v->k.n_turns) v->k.n_turns = n;
    }
    combine(v);
    return ZX_OK;
}

static void close_measuring(running *v)
{
    for (uint32_t i = 0; i < v->n_measuring; i++) zx_measuring_close(v->measuring[i]);
    v->n_measuring = 0;
}

// ---- lanes --------------------------------------------------------------------------------------

static void make_lanes(running *v)
{
    zx_arena *mem = &v->k.job.mem;
    const uint32_t steps = ZX_COMPARE_WARM + v->k.ask.steps;
    for (uint32_t i = 0; i < v->n_lanes; i++) {
        v->lanes[i].losses = ZX_NEW(mem, double, steps);
        v->lanes[i].steps = ZX_NEW(mem, double, steps);
        v->lanes[i].exposed = ZX_NEW(mem, double, steps);
    }
}

// Rank 0 plans, and decides which are executed and how.
static zx_status plan_on_rank0(running *v, uint32_t numbers[2], zx_err *err)
{
    zx_comparing *k = &v->k;
    uint64_t bytes = 0;
    if (!v->first) return ZX_OK;
    ZX_TRY(zx_compare_plans(k, &k->c, err));
    v->lanes = ZX_NEW(&k->job.mem, lane, k->c.n_rows);
    for (uint32_t i = 0; i < k->c.n_rows; i++) {
        const zx_compare_row *r = &k->c.rows[i];
        if (r->idle != NULL) continue;
        v->lanes[numbers[0]++] = (lane){.row = i,
                                        .train = r->variant != NULL ? *r->variant : k->job.variant,
                                        .plan = r->result.plan};
        bytes += r->result.plan.arena_bytes;
    }
    for (uint32_t i = 0; i < ZX_COMPARE_KINDS; i++)
        if (v->measures[i]) bytes += zx_measuring_bytes(&v->measured[i]);
    numbers[1] = bytes > zx_compare_room(k);
    v->each = bytes;
    if (numbers[0] > 0) return ZX_OK;
    zx_err_hint(err, "a smaller --budget, fewer ranks, or without --execute");
    return ZX_FAIL(err, ZX_E_BUDGET, "none of the plans fits into the memory that is left");
}

static zx_status share_lanes(running *v, zx_err *err)
{
    uint32_t numbers[2] = {0};
    ZX_TRY(zx_world_agree(v->world, plan_on_rank0(v, numbers, err), err));
    ZX_TRY(share_numbers(v, numbers, 2, err));
    v->n_lanes = numbers[0];
    v->one_by_one = numbers[1] != 0;
    if (!v->first) v->lanes = ZX_NEW(&v->k.job.mem, lane, v->n_lanes + 1);
    for (uint32_t i = 0; i < v->n_lanes; i++) {
        lane *l = &v->lanes[i];
        if (!v->first) l->train = v->k.job.variant;
        ZX_TRY(zx_variant_share(&v->k.job, v->world, &v->k.job.mem, &l->train, err));
        ZX_TRY(share_plan(v, &l->train.train, &l->plan, err));
    }
    make_lanes(v);
    return ZX_OK;
}

static zx_status open_lane(running *v, lane *l, zx_err *err)
{
    const zx_session_options so = session_options(v);
    return zx_world_agree(v->world,
                          zx_session_open(&l->train.train, &l->plan, &so, &l->session, err), err);
}

static void close_lanes(running *v)
{
    zx_launch_watch(NULL); // a signal is noted: the rest is quick
    for (uint32_t i = 0; i < v->n_lanes; i++) {
        zx_session_close(v->lanes[i].session);
        v->lanes[i].session = NULL;
    }
}

// ---- rounds -------------------------------------------------------------------------------------

// Who comes i-th in a round: begun one further every other round and backwards in between, so that
// nobody always follows the same.
static uint32_t turn(uint32_t round, uint32_t i, uint32_t n)
{
    if (round % 2 == 1) i = n - 1 - i;
    return (i + round / 2) % n;
}

static zx_status step_lane(running *v, lane *l, uint32_t step, zx_step_report *r, zx_err *err)
{
    const zx_job *job = &v->k.job;
    const uint64_t per_step = (uint64_t)job->ranks * (uint64_t)job->batch.accumulate;
    zx_launch_watch(l->session);
    zx_status st = zx_session_scale(l->session, job->loss_scale.fixed, err);
    const double lr = zx_lr_at(&job->optim.schedule, step);
    if (st == ZX_OK) st = zx_session_step(l->session, step, step * per_step, lr, r, err);
    if (st == ZX_E_DATA) zx_data_explain(job->data, err);
    if (st != ZX_OK) return st;
    v->stopped |= r->stop;
    if (r->applied) return ZX_OK;
    zx_err_hint(err, "a smaller learning rate, or data without such values");
    return ZX_FAIL(err, ZX_E_DIVERGED, "%s: step %u: the loss or the gradient isn't finite",
                   l->plan.policy, step + 1);
}

// The report shows a step as long as the median: whatever step is nearest to that of all so far.
static void keep_profile(running *v, const lane *l, uint32_t round)
{
    zx_comparing *k = &v->k;
    zx_arena *mem = &k->job.mem;
    const double *start, *took;
    if (round >= MOST_PROFILES || !zx_session_profile(l->session, &start, &took)) return;
    if (k->measured_start == NULL) {
        k->measured_start = ZX_NEW(mem, double *, k->c.n_rows);
        k->measured_seconds = ZX_NEW(mem, double *, k->c.n_rows);
        k->measured_step = ZX_NEW(mem, double, k->c.n_rows);
    }
    const size_t bytes = l->plan.n_insns * sizeof *start;
    const double seconds = l->steps[round], kept = k->measured_step[l->row];
    const double middle = zx_compare_median(l->steps, round + 1);
    if (round == 0) {
        k->measured_start[l->row] = ZX_NEW(mem, double, l->plan.n_insns);
        k->measured_seconds[l->row] = ZX_NEW(mem, double, l->plan.n_insns);
    } else if (fabs(seconds - middle) > fabs(kept - middle)) {
        return;
    }
    memcpy(k->measured_start[l->row], start, bytes);
    memcpy(k->measured_seconds[l->row], took, bytes);
    k->measured_step[l->row] = seconds;
}

static void note_step(running *v, lane *l, uint32_t round, const zx_step_report *r)
{
    l->steps[round] = r->seconds;
    l->exposed[round] = r->exposed_seconds;
    if (!v->first) return;
    zx_compare_row *row = &v->k.c.rows[l->row];
    if (r->peak_bytes > row->touched_bytes) row->touched_bytes = r->peak_bytes;
    keep_profile(v, l, round);
}

// Losses of one step, over all policies; the same on every rank.
static void compare_losses(running *v, uint32_t step)
{
    zx_compare *c = &v->k.c;
    if (step >= v->n_losses) v->n_losses = step + 1;
    for (uint32_t i = 1; i < v->n_lanes && c->differ == NULL; i++) {
        const double *a = &v->lanes[0].losses[step], *b = &v->lanes[i].losses[step];
        if (memcmp(a, b, sizeof *a) != 0)
            c->differ =
                zx_arena_printf(&v->k.job.mem, "step %u of '%s' has the loss %.17g, of '%s' %.17g",
                                step + 1, v->lanes[i].plan.policy, *b, v->lanes[0].plan.policy, *a);
    }
}

// All are open: a step of each, and a turn of what is measured.
static zx_status run_round(running *v, uint32_t round, zx_err *err)
{
    const uint32_t n = v->n_lanes + v->n_measuring;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t who = turn(round, i, n);
        zx_step_report r;
        if (who >= v->n_lanes) {
            zx_launch_watch(NULL);
            ZX_TRY(
                zx_measuring_turn(v->measuring[who - v->n_lanes], round >= ZX_COMPARE_WARM, err));
            continue;
        }
        lane *l = &v->lanes[who];
        ZX_TRY(step_lane(v, l, round, &r, err));
        if (v->stopped && i + 1 < n) return ZX_OK; // the round isn't whole
        l->losses[round] = r.loss;
        if (round >= ZX_COMPARE_WARM) note_step(v, l, round - ZX_COMPARE_WARM, &r);
    }
    compare_losses(v, round);
    if (round >= ZX_COMPARE_WARM) v->timed++;
    return ZX_OK;
}

// One after the other is opened, warmed up, timed and closed: from the first weights each time.
static zx_status run_one_by_one(running *v, uint32_t round, zx_err *err)
{
    for (uint32_t i = 0; i < v->n_lanes; i++) {
        lane *l = &v->lanes[turn(round, i, v->n_lanes)];
        zx_step_report r;
        ZX_TRY(open_lane(v, l, err));
        for (uint32_t step = 0; step <= ZX_COMPARE_WARM && !v->stopped; step++) {
            ZX_TRY(step_lane(v, l, step, &r, err));
            l->losses[step] = r.loss;
            if (step == ZX_COMPARE_WARM) note_step(v, l, round, &r);
        }
        zx_launch_watch(NULL);
        zx_session_close(l->session);
        l->session = NULL;
        if (v->stopped) return ZX_OK;
    }
    for (uint32_t step = 0; step <= ZX_COMPARE_WARM; step++) compare_losses(v, step);
    v->timed++;
    return ZX_OK;
}

static double known_of(const running *v)
{
    double known = 0;
    for (uint32_t i = 0; i < v->n_lanes; i++)
        known = fmax(known, zx_compare_off(v->lanes[i].steps, v->timed));
    return known;
}

// Whether another round is worth its time: rank 0 decides, as clocks differ.
static zx_status more_rounds(running *v, bool *more, zx_err *err)
{
    const zx_compare_ask *ask = &v->k.ask;
    *more = !v->stopped && v->timed < ask->steps;
    if (!*more || v->timed < ask->least_steps) return ZX_OK;
    uint32_t on = 0;
    if (v->first) {
        v->known = known_of(v);
        on = v->known > ZX_COMPARE_KNOWN && zx_seconds() < v->began + ZX_COMPARE_SECONDS;
    }
    ZX_TRY(share_numbers(v, &on, 1, err));
    *more = on != 0;
    return ZX_OK;
}

static zx_status run_rounds(running *v, zx_err *err)
{
    for (uint32_t i = 0; i < v->n_lanes && !v->one_by_one; i++)
        ZX_TRY(open_lane(v, &v->lanes[i], err));
    if (!v->one_by_one) ZX_TRY(open_measuring(v, err));
    v->began = zx_seconds();
    bool more = true;
    for (uint32_t round = 0; more; round++) {
        say_round(v, round);
        ZX_TRY(v->one_by_one ? run_one_by_one(v, round, err) : run_round(v, round, err));
        ZX_TRY(more_rounds(v, &more, err));
    }
    return ZX_OK;
}

// ---- a rank -------------------------------------------------------------------------------------

static zx_status check_same(const running *v, zx_err *err)
{
    const zx_job *job = &v->k.job;
    zx_text text = {0};
    uint64_t hash = zx_graph_hash(&job->train);
    zx_config_write(&job->config, "", &text);
    zx_data_json(job->data, &text);
    zx_text_put(&text, " %u steps, link %.17g %.17g", v->k.ask.steps, v->k.ask.bandwidth,
                v->k.ask.latency);
    for (size_t i = 0; i < text.n; i++)
        hash = (hash ^ (unsigned char)text.at[i]) * UINT64_C(1099511628211);
    zx_text_free(&text);
    const zx_status st = zx_world_same(v->world, "the model or the command line", hash, err);
    if (st != ZX_OK) zx_err_hint(err, "start all ranks with the same words");
    return st;
}

static zx_status prepare(running *v, const run_call *call, zx_err *err)
{
    zx_world *w = v->world;
    ZX_TRY(
        zx_world_agree(w, zx_compare_open(&v->k, call->o, call->ask, zx_world_size(w), err), err));
    say_header(v);
    ZX_TRY(check_same(v, err));
    ZX_TRY(zx_world_agree(w, v->first ? zx_compare_prepare(&v->k, err) : ZX_OK, err));
    if (v->first) zx_job_say_notes(&v->k.job);
    say(v, "measuring operators, copies and additions with communication off", false);
    ZX_TRY(share_measured(v, err));
    ZX_TRY(measure(v, err));
    ZX_TRY(zx_world_agree(w, ZX_OK, err)); // all have given back what measuring took
    say(v, "planning", false);
    ZX_TRY(share_lanes(v, err));
    say_one_by_one(v);
    return ZX_OK;
}

// Back to the comparison, on rank 0.
static void hand_over(running *v)
{
    zx_compare *c = &v->k.c;
    c->executed = true;
    c->one_by_one = v->one_by_one;
    c->warm = ZX_COMPARE_WARM;
    c->timed = v->timed;
    c->asked = v->timed > v->k.ask.least_steps ? v->timed : v->k.ask.least_steps;
    c->drift = drift_of(v);
    c->n_losses = v->n_losses;
    c->losses = v->lanes[0].losses;
    for (uint32_t i = 0; i < v->n_lanes; i++) {
        zx_compare_row *r = &c->rows[v->lanes[i].row];
        r->n_steps = v->timed;
        r->steps = v->lanes[i].steps;
        r->exposed = v->lanes[i].exposed;
    }
}

static zx_status run(running *v, const run_call *call, zx_err *err)
{
    ZX_TRY(prepare(v, call, err));
    zx_status st = run_rounds(v, err);
    if (st == ZX_OK && !v->one_by_one) st = read_measuring(v, err);
    close_lanes(v);
    close_measuring(v);
    if (v->first) end_line(v);
    if (st == ZX_OK && v->one_by_one && !v->stopped) {
        say(v, "measuring again", true);
        st = measure(v, err);
    }
    if (st != ZX_OK || !v->first) return st;
    hand_over(v);
    ZX_TRY(zx_compare_predict(&v->k, &v->k.c, err));
    return zx_compare_show(&v->k, err);
}

static int run_rank(void *arg, zx_world *world, zx_err *err)
{
    running *v = calloc(1, sizeof *v);
    if (v == NULL) return zx_status_exit(ZX_FAIL(err, ZX_E_IO, "out of memory"));
    v->world = world;
    v->first = zx_world_rank(world) == 0;
    v->style = zx_progress_style_of(STDERR_FILENO);
    zx_status st = run(v, arg, err);
    if (v->first) end_line(v);
    if (v->first && (fflush(stdout) != 0 || ferror(stdout)) && st == ZX_OK)
        st = ZX_FAIL(err, ZX_E_IO, "cannot write to standard output");
    const bool stopped = v->stopped;
    zx_job_close(&v->k.job);
    free(v);
    if (st != ZX_OK) return zx_status_exit(st);
    const int signal = zx_launch_signal();
    return stopped ? 128 + (signal != 0 ? signal : SIGTERM) : 0;
}

int zx_compare_run(const zx_options *o, const zx_compare_ask *ask, zx_err *err)
{
    zx_who who;
    const uint64_t ranks = zx_given_number(o, ZX_OPT_RANKS, 0);
    const zx_status st = zx_launch_who((uint32_t)ranks, &who, err);
    if (st != ZX_OK) return zx_status_exit(st);
    who.say = zx_cmd_note;
    signal(SIGPIPE, SIG_IGN);
    if (who.note[0] != '\0' && who.rank == 0) zx_cmd_say("note: %s", who.note);
    run_call call = {o, ask};
    return zx_launch_run(&who, run_rank, &call, err);
}

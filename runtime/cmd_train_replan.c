// cmd_train_replan.c - train --replan-after N: after N steps the plan is made again from times that
// were measured in the run's own steps, and the run goes on by it where it is predicted to be
// faster.
//
// Times are those of the last steps before, which run one instruction at a time: nothing takes
// another's cores, and the steps count like all others. Sessions follow each other, the next one
// taking over what the one before holds, so that no more memory is taken than a plan's and once
// more what is held across steps. Plans don't decide values: losses are those of a run without it.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cmd_train.h"
#include "runtime/launch.h"

#define MEASURED 4  // steps, of which the first one warms up where there are more
#define FASTER 1.01 // by less nothing is switched
#define WHY_TEXT 400

typedef struct verdict { // rank 0's, to all
    double was, is; // seconds of a step by the old plan and by the new one; is 0: there is none
    uint32_t taken, unused;
    char why[WHY_TEXT]; // of none
} verdict;

void zx_train_replan_open(zx_train *t)
{
    zx_replan *r = &t->replan;
    r->after = zx_given_number(t->job.o, ZX_OPT_REPLAN_AFTER, 0);
    if (r->after < t->steps) return;
    if (zx_world_rank(t->world) == 0)
        zx_note(&t->job.notes, &t->job.mem,
                "--replan-after %llu: the run ends after %llu steps, nothing is planned again",
                (unsigned long long)r->after, (unsigned long long)t->steps);
    r->after = 0;
}

static uint64_t measured_from(const zx_replan *r)
{
    return r->after > MEASURED ? r->after - MEASURED : 0;
}

bool zx_train_replan_due(const zx_train *t)
{
    const zx_replan *r = &t->replan;
    return r->after > 0 && t->done >= measured_from(r) && t->done <= r->after;
}

void zx_train_close_session(zx_train *t)
{
    if (t->replan.measuring != NULL)
        zx_measuring_close(t->replan.measuring);
    else
        zx_session_close(t->session);
    t->replan.measuring = NULL;
    t->session = NULL;
}

// ---- from one session to the next ---------------------------------------------------------------

static void say_kept(const zx_train *t, const char *why)
{
    if (zx_world_rank(t->world) == 0)
        zx_cmd_say("step %llu: not planned again: %s", (unsigned long long)t->done,
                   zx_text_safe((zx_arena *)(uintptr_t)&t->job.mem, why));
}

// Where a plan can't be run one instruction at a time, or the state doesn't fit twice, the run goes
// on as it is.
static zx_status begin_measuring(zx_train *t, zx_err *err)
{
    zx_session_options so = zx_train_session_options(t);
    zx_measuring *m = NULL;
    zx_err found = {0};
    so.from = t->session;
    const zx_status st = zx_measuring_open(&t->job.train, &t->plan, &so, MEASURED, &m, &found);
    if (st != ZX_OK) {
        zx_measuring_close(m);
        t->replan.after = 0;
        if (st != ZX_E_BUDGET && st != ZX_E_UNSUPPORTED) return zx_err_merge(err, &found);
        say_kept(t, found.cause[0]);
        return ZX_OK;
    }
    zx_session *before = t->session;
    t->replan.measuring = m;
    t->session = zx_measuring_session(m);
    zx_launch_watch(t->session);
    zx_session_close(before);
    return zx_world_agree(t->world, ZX_OK, err); // all have given back its memory
}

// By `plan`, in place of the session that was measured.
static zx_status go_on(zx_train *t, const zx_plan *plan, zx_err *err)
{
    zx_session_options so = zx_train_session_options(t);
    zx_session *next = NULL;
    so.from = t->session;
    ZX_TRY(zx_session_open(&t->job.train, plan, &so, &next, err));
    zx_launch_watch(next);
    zx_train_close_session(t);
    t->session = next;
    return zx_world_agree(t->world, ZX_OK, err);
}

// ---- the plan -----------------------------------------------------------------------------------

// On rank 0: both plans are timed by the simulator from the measured times.
static void judge(zx_train *t, const zx_times *times, zx_plan *plan, verdict *v)
{
    zx_job *job = &t->job;
    zx_plan_options po;
    zx_err found = {0};
    const uint32_t n_notes = job->notes.n; // they were said when it was planned first
    *v = (verdict){0};
    zx_status st = zx_job_plan_options(job, &job->mem, &po, &found);
    job->notes.n = n_notes;
    if (st == ZX_OK) {
        zx_plan before = t->plan;
        po.times = times;
        po.stage = before.stage;
        zx_plan_simulate(&job->train, &po.machine, times, &before, &job->mem);
        v->was = before.step_seconds;
        st = zx_plan_make(&job->train, &po, &job->mem, plan, &found);
    }
    if (st != ZX_OK) {
        snprintf(v->why, sizeof v->why, "%.*s", WHY_TEXT - 1, found.cause[0]);
        return;
    }
    v->is = plan->step_seconds;
    v->taken = v->was > FASTER * v->is;
    if (v->taken && zx_train_certify(t, &po, plan, &found) != ZX_OK) t->certificate = NULL;
}

static zx_status share_verdict(zx_train *t, verdict *v, zx_err *err)
{
    void *bytes = v;
    size_t n = sizeof *v;
    ZX_TRY(zx_world_send(t->world, &bytes, &n, err));
    if (bytes == v) return ZX_OK;
    const bool whole = n == sizeof *v;
    if (whole) memcpy(v, bytes, n);
    free(bytes);
    return whole ? ZX_OK : ZX_FAIL(err, ZX_E_COMM, "rank 0 sent %zu bytes, not %zu", n, sizeof *v);
}

static void say(const zx_train *t, const verdict *v)
{
    char was[ZX_BYTES_TEXT], is[ZX_BYTES_TEXT];
    if (zx_world_rank(t->world) != 0) return;
    if (v->is <= 0) {
        say_kept(t, v->why);
        return;
    }
    zx_progress_time(v->was, was);
    zx_progress_time(v->is, is);
    if (v->taken)
        zx_cmd_say("step %llu: planned again from measured times: %s -> %s predicted",
                   (unsigned long long)t->done, was, is);
    else
        zx_cmd_say("step %llu: planned again from measured times: the plan stays, %s predicted, "
                   "%s by another",
                   (unsigned long long)t->done, was, is);
}

// The report, the run's folder and the summary are of the plan that the run goes on by.
static zx_status take(zx_train *t, const zx_plan *plan, const zx_plan *made, zx_err *err)
{
    char head[80];
    t->plan = *plan;
    if (zx_world_rank(t->world) != 0) return ZX_OK;
    t->start = made->start;
    t->seconds = made->seconds;
    snprintf(head, sizeof head, "from step %llu on, planned again from measured times\n",
             (unsigned long long)t->done + 1);
    return zx_train_write_plan(t, head, err);
}

static zx_status plan_again(zx_train *t, zx_err *err)
{
    zx_times times;
    zx_plan made = {0};
    zx_plan *plan = ZX_NEW(&t->job.mem, zx_plan, 1); // outlives this: the session reads it
    verdict v = {0};
    ZX_TRY(zx_measuring_medians(t->replan.measuring, &t->job.mem, &times, err));
    if (zx_world_rank(t->world) == 0) judge(t, &times, &made, &v);
    ZX_TRY(share_verdict(t, &v, err));
    say(t, &v);
    if (!v.taken) return go_on(t, &t->plan, err);
    zx_text packed = {0};
    if (zx_world_rank(t->world) == 0) zx_plan_pack(&made, &packed);
    zx_status st = zx_train_share_plan(t, &t->job.train, &packed, plan, err);
    zx_text_free(&packed);
    if (st != ZX_OK) return st;
    zx_err found = {0};
    st = go_on(t, plan, &found);
    if (st == ZX_E_BUDGET) { // others use this host's memory by now
        say_kept(t, found.cause[0]);
        return go_on(t, &t->plan, err);
    }
    if (st != ZX_OK) return zx_err_merge(err, &found);
    return zx_world_agree(t->world, take(t, plan, &made, err), err);
}

zx_status zx_train_replan(zx_train *t, zx_err *err)
{
    zx_replan *r = &t->replan;
    const uint64_t from = measured_from(r);
    if (t->done == from) return begin_measuring(t, err);
    ZX_TRY(zx_measuring_note(r->measuring, t->done > from + 1 || r->after == from + 1, err));
    if (t->done < r->after) return ZX_OK;
    r->after = 0;
    return plan_again(t, err);
}

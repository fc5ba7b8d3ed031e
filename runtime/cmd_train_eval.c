// cmd_train_eval.c - the loss on data that isn't trained on: a graph of its own, forward only, with
// a plan and a session of its own, into which the trained values are copied each time. Nothing of
// the training session is touched, so its bits are the same with and without.
//
// Micro-batches are dealt out over the ranks in order and their losses added in that order, so the
// figure doesn't depend on the number of ranks.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <time.h>

#include "runtime/cmd_train.h"
#include "runtime/launch.h"

// ---- before the steps ---------------------------------------------------------------------------

zx_status zx_train_eval_open(zx_train *t, zx_err *err)
{
    return zx_job_eval_open(&t->job, &t->eval.of, err);
}

void zx_train_eval_words(const zx_train *t, zx_text *out)
{
    const zx_eval_run *e = &t->eval;
    if (!e->of.on) return;
    zx_text_put(out, " evaluated %llu %016llx ", (unsigned long long)e->of.every,
                (unsigned long long)zx_graph_hash(&e->of.graph));
    zx_data_json(e->of.data, out);
}

static zx_status plan_on_rank0(zx_train *t, zx_text *packed, zx_err *err)
{
    zx_plan plan;
    if (zx_world_rank(t->world) != 0) return ZX_OK;
    ZX_TRY(zx_job_eval_plan(&t->job, &t->eval.of, &plan, err));
    zx_plan_pack(&plan, packed);
    return ZX_OK;
}

zx_status zx_train_eval_plan(zx_train *t, zx_err *err)
{
    zx_text packed = {0};
    if (!t->eval.of.on) return ZX_OK;
    zx_status st = zx_world_agree(t->world, plan_on_rank0(t, &packed, err), err);
    if (st == ZX_OK) st = zx_train_share_plan(t, &t->eval.of.graph, &packed, &t->eval.plan, err);
    zx_text_free(&packed);
    return st;
}

void zx_train_eval_say(const zx_train *t)
{
    zx_text text = {0};
    if (!t->eval.of.on) return;
    zx_job_eval_text(&t->job, &t->eval.of, &t->eval.plan, &t->plan, &text);
    zx_cmd_say("%.*s", (int)(text.n - 1), text.at); // without its last '\n'
    zx_text_free(&text);
}

// ---- running ------------------------------------------------------------------------------------

zx_status zx_train_eval_session(zx_train *t, zx_err *err)
{
    zx_eval_run *e = &t->eval;
    zx_session_options so = zx_train_session_options(t);
    if (!e->of.on) return ZX_OK;
    so.feed = zx_data_feed(e->of.data);
    so.labels = 0;
    so.clip = 0;
    so.profile = so.dump_grads = false;
    so.values = (zx_values){0}; // they are copied from training
    return zx_session_open(&e->of.graph, &e->plan, &so, &e->session, err);
}

void zx_train_eval_close(zx_train *t)
{
    zx_session_close(t->eval.session);
    t->eval.session = NULL;
    zx_job_eval_close(&t->eval.of);
}

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// A signal stops it between two micro-batches, on all ranks alike.
static zx_status all_micro_batches(zx_train *t, double *sum, double *count, zx_err *err)
{
    zx_eval_run *e = &t->eval;
    const uint32_t ranks = t->job.ranks;
    const uint64_t micros = zx_data_micro_batches(e->of.data);
    for (uint64_t first = 0; first < micros && !e->left; first += ranks) {
        zx_step_report r;
        const zx_status st = zx_session_step(e->session, 0, first, 0, &r, err);
        if (st == ZX_E_DATA) zx_data_explain(e->of.data, err);
        if (st != ZX_OK) return st;
        for (uint32_t k = 0; k < ranks && first + k < micros; k++) {
            double loss, labels;
            zx_session_loss(e->session, k, 0, &loss, &labels);
            *sum += loss;
            *count += labels;
        }
        e->left = r.stop && first + ranks < micros;
    }
    return ZX_OK;
}

static zx_status evaluate(zx_train *t, zx_err *err)
{
    zx_eval_run *e = &t->eval;
    double sum = 0, count = 0;
    const double from = now_seconds();
    ZX_TRY(zx_session_copy(e->session, t->session, e->of.params, e->of.buffers, err));
    zx_launch_watch(e->session);
    const zx_status st = all_micro_batches(t, &sum, &count, err);
    zx_launch_watch(t->session);
    if (st != ZX_OK || e->left) return st;
    if (!(count > 0))
        return ZX_FAIL(err, ZX_E_DATA, "none of the labels counts: all are %lld, which is ignored",
                       (long long)e->of.counted.ignored);
    e->at = t->done;
    e->loss = sum / count;
    e->labels = count;
    e->seconds = now_seconds() - from;
    return ZX_OK;
}

// Whether it was better than all before, in what a checkpoint has: a run that is gone on with stops
// where the whole one does. A loss that isn't finite is never better.
static void judge(const zx_eval_run *e, zx_train_state *s)
{
    const bool better =
        isfinite(e->loss) && (s->eval_best_step == 0 || e->loss < s->eval_best - e->of.min_delta);
    s->eval_worse = better ? 0 : s->eval_worse + 1;
    if (!better) return;
    s->eval_best = e->loss;
    s->eval_best_step = e->at;
}

zx_status zx_train_eval_step(zx_train *t, bool last, bool *enough, zx_err *err)
{
    zx_eval_run *e = &t->eval;
    const bool due = e->of.every > 0 && t->done % e->of.every == 0;
    *enough = false;
    if (!e->of.on || !(last || due)) return ZX_OK;
    const zx_status st = evaluate(t, err);
    if (st != ZX_OK) {
        zx_err_in(err, "evaluation after step %llu", (unsigned long long)t->done);
        return st;
    }
    if (!due) return ZX_OK; // the end of a run isn't one of those that are compared
    t->state.eval_left = e->left;
    if (e->left) return ZX_OK;
    judge(e, &t->state);
    *enough = !last && e->of.patience > 0 && t->state.eval_worse >= e->of.patience;
    return ZX_OK;
}

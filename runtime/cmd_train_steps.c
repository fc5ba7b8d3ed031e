// cmd_train_steps.c - the steps of a run, and what is said and written about each.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/save.h"

static double now_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- memory -------------------------------------------------------------------------------------

// Pss is read after the first, second and last step and about once a second between. Ranks take
// part together, so when the next sample is due follows from what all of them exchanged.
typedef struct sampling {
    uint64_t next, last; // steps done at the next and the latest sample
    double at;           // this rank's clock then
} sampling;

static zx_status sample_memory(zx_train *t, sampling *s, bool last, zx_err *err)
{
    if (t->done > 2 && t->done < s->next && !last) return ZX_OK;
    struct {
        uint64_t pss;
        double seconds;
    } mine, *all = calloc(t->job.ranks, sizeof *all);
    ZX_ASSERT(all != NULL);
    mine.pss = zx_memory_pss();
    mine.seconds = now_seconds() - s->at;
    const zx_status st = zx_world_exchange(t->world, &mine, sizeof mine, all, err);
    double seconds = 0;
    for (uint32_t r = 0; st == ZX_OK && r < t->job.ranks; r++) {
        if (all[r].pss > t->resident_bytes) t->resident_bytes = all[r].pss;
        if (r == 0 || all[r].seconds < seconds) seconds = all[r].seconds;
    }
    free(all);
    const double per_step = seconds / (double)(t->done - s->last > 0 ? t->done - s->last : 1);
    const double due = per_step > 1e-6 ? ceil(1.1 / per_step) : 1e6;
    s->last = t->done;
    s->next = t->done + (due < 1e6 ? (uint64_t)due : 1000000);
    s->at = now_seconds();
    return st;
}

// ---- steps that weren't applied -----------------------------------------------------------------

static bool is_fp16(const zx_train *t)
{
    return t->job.precision == ZX_PREC_F16;
}

// Where no scale shrinks, nothing but the data can make the next step finite: so many steps that
// were skipped one after the other end the run, which else would skip for ever.
#define MOST_SKIPPED 32

// After a step: the scale of the next one. Whether the run goes on: a step that overflowed is left
// out unless the scale can't shrink; any other that isn't finite only where that was asked for.
static bool goes_on(zx_train *t, const zx_step_report *r)
{
    const bool skips =
        is_fp16(t) || strcmp(zx_config_get(&t->job.config, "zerox.on_nan")->text, "skip") == 0;
    const bool scaled = zx_loss_scale_update(&t->loss_scale, &t->job.loss_scale, !r->applied);
    t->state.loss_scale = is_fp16(t) ? t->loss_scale.scale : 0;
    t->state.loss_scale_iter = (uint64_t)t->loss_scale.iter;
    t->state.loss_scale_overflows = (uint64_t)(t->loss_scale.last_overflow + 1);
    t->state.loss_scale_hysteresis = (uint64_t)t->loss_scale.hysteresis;
    t->state.skipped_in_a_row = r->applied ? 0 : t->state.skipped_in_a_row + 1;
    const bool stuck = t->job.loss_scale.fixed > 0 && t->state.skipped_in_a_row >= MOST_SKIPPED;
    return r->applied || (skips && scaled && !stuck);
}

// As the config says, or as the run that goes on here had it.
static void start_scale(zx_train *t)
{
    const zx_train_state *s = &t->state;
    t->loss_scale = zx_loss_scale_start(&t->job.loss_scale);
    if (!is_fp16(t) || t->job.loss_scale.fixed > 0 || !(s->loss_scale > 0)) return;
    t->loss_scale = (zx_loss_scale){.scale = s->loss_scale,
                                    .iter = (int64_t)s->loss_scale_iter,
                                    .last_overflow = (int64_t)s->loss_scale_overflows - 1,
                                    .hysteresis = (int64_t)s->loss_scale_hysteresis};
}

// Which node it was.
static zx_status say_why(zx_train *t, uint64_t step, uint64_t first_micro, zx_err *err)
{
    zx_status st = zx_session_explain_nonfinite(t->session, step, first_micro, err);
    if (st == ZX_OK)
        st = ZX_FAIL(err, ZX_E_DIVERGED, "step %llu: the loss or the gradient isn't finite",
                     (unsigned long long)step + 1);
    if (is_fp16(t) && t->job.loss_scale.fixed > 0)
        zx_err_hint(err,
                    "a smaller fp16.loss_scale than %.9g, or 0, which makes it follow the "
                    "overflows: %u steps in a row overflowed; the weights are those of before",
                    t->loss_scale.scale, MOST_SKIPPED);
    else if (is_fp16(t))
        zx_err_hint(
            err,
            "bf16, which needs no loss scale, or a smaller learning rate: the loss scale is "
            "at fp16.min_loss_scale, %.9g; the weights are those of step %llu",
            t->loss_scale.scale, (unsigned long long)step);
    else if (t->state.skipped_in_a_row >= MOST_SKIPPED)
        zx_err_hint(err,
                    "data without such values, or an earlier checkpoint: zerox.on_nan skipped %u "
                    "steps in a row; the weights are those of before",
                    MOST_SKIPPED);
    else
        zx_err_hint(err,
                    "a smaller learning rate, or data without such values; the weights are "
                    "those of step %llu",
                    (unsigned long long)step);
    return st;
}

// ---- the rate -----------------------------------------------------------------------------------

// Of the step that comes next.
static double next_rate(const zx_train *t)
{
    return zx_lr_at(&t->job.optim.schedule, t->state.applied_steps);
}

double zx_train_last_rate(const zx_train *t, const zx_step_report *r)
{
    return zx_lr_at(&t->job.optim.schedule, t->state.applied_steps - (r->applied ? 1 : 0));
}

// ---- said and written ---------------------------------------------------------------------------

typedef struct showing {
    zx_progress_style style;
    uint64_t every; // steps a line stands for where lines stay
    double started, shown;
    bool open; // a line stands unfinished on the terminal
} showing;

// A file gets this many lines at most, first and last step included; log.jsonl has every step.
#define MOST_LINES 2000

static void start_showing(zx_train *t, showing *v)
{
    *v = (showing){.style = zx_progress_style_of(STDERR_FILENO), .started = now_seconds()};
    v->every = 1 + (t->steps - 1) / (MOST_LINES - 2);
    if (t->steps <= MOST_LINES || v->style.in_place) v->every = 1;
    if (v->every > 1 && zx_world_rank(t->world) == 0)
        zx_cmd_say("note: one line for every %llu steps; %s has them all",
                   (unsigned long long)v->every,
                   t->files.log != NULL ? zx_text_safe(&t->job.mem, t->files.log) : "the log");
}

static void show(zx_train *t, showing *v, const zx_step_report *r, bool last)
{
    const double now = now_seconds();
    if (v->style.in_place && !last && now - v->shown < 0.05) return;
    if (t->done % v->every != 0 && t->done > 1 && !last) return;
    const int64_t tokens = zx_data_tokens(t->job.data);
    const double samples = (double)t->job.batch.total * (double)(tokens > 0 ? tokens : 1);
    const zx_progress_step step = {
        .step = t->done,
        .steps = t->steps,
        .loss = r->loss,
        .grad_norm = r->grad_norm,
        .lr = zx_train_last_rate(t, r),
        .overflow_scale = !r->applied && is_fp16(t) ? t->loss_scale.scale : 0,
        .skipped = !r->applied && !is_fp16(t),
        .rate = r->seconds > 0 ? samples / r->seconds : 0,
        .unit = tokens > 0 ? "tok/s" : "smp/s",
        .seconds = r->seconds,
        .eta = (now - v->started) / (double)(t->done - t->before) * (double)(t->steps - t->done),
        .exposed_seconds = t->job.ranks > 1 ? r->exposed_seconds : -1,
        .resident_bytes = t->resident_bytes,
        .clip_factor = zx_train_clip_factor(t, r),
        .eval_loss = zx_train_evaluated(t) ? t->eval.loss : 0,
    };
    zx_text line = {0};
    if (v->style.in_place) zx_text_put(&line, "\r");
    zx_progress_line(&step, v->style.in_place ? v->style.width - 1 : v->style.width, &line);
    if (v->style.in_place) zx_text_put(&line, "\x1b[K");
    if (!v->style.in_place || last) zx_text_put(&line, "\n");
    fwrite(line.at, 1, line.n, stderr);
    zx_text_free(&line);
    v->shown = now;
    v->open = v->style.in_place && !last;
}

// DeepSpeed's line, where steps_per_print asks for it.
static void show_deepspeed_line(const zx_train *t, showing *v)
{
    const zx_config_value *every = zx_config_get(&t->job.config, "steps_per_print");
    if (!every->has || every->i == 0 || t->done % (uint64_t)every->i != 0) return;
    if (v->open) fputc('\n', stderr);
    v->open = false;
    // DeepSpeed prints after its schedule has gone on: the rate is the next step's.
    const zx_optim *o = &t->job.optim;
    const unsigned long long done = t->done, skipped = t->state.skipped_steps;
    double beta1 = o->beta1, beta2 = o->beta2;
    zx_lr_betas_at(&o->schedule, t->state.applied_steps, &beta1, &beta2);
    if (o->kind != ZX_OPTIM_SGD)
        zx_cmd_say("step=%llu, skipped=%llu, lr=[%.9g], mom=[[%.9g, %.9g]]", done, skipped,
                   next_rate(t), beta1, beta2);
    else
        zx_cmd_say("step=%llu, skipped=%llu, lr=[%.9g], mom=[%.9g]", done, skipped, next_rate(t),
                   o->momentum);
}

static void show_breakdown(zx_train *t, showing *v, const zx_step_report *r)
{
    zx_text text = {0};
    const char *line = zx_train_breakdown(t, r, &text);
    if (line != NULL && v->open) fputc('\n', stderr);
    if (line != NULL) v->open = false;
    if (line != NULL) zx_cmd_say("%s", line);
    zx_text_free(&text);
}

static void show_evaluation(zx_train *t, showing *v, bool enough)
{
    const zx_eval_run *e = &t->eval;
    char time[ZX_BYTES_TEXT], labels[ZX_BYTES_TEXT];
    if (!zx_train_evaluated(t) && !e->left) return;
    if (v->open) fputc('\n', stderr);
    v->open = false;
    if (e->left) {
        zx_cmd_say("evaluation after step %llu: left before its end, as asked to stop",
                   (unsigned long long)t->done);
        return;
    }
    zx_progress_time(e->seconds, time);
    if (e->of.counted.counts)
        zx_cmd_say("evaluation: loss %#.6g, perplexity %#.6g over %s labels, in %s", e->loss,
                   exp(e->loss), zx_text_count(e->labels, labels), time);
    else
        zx_cmd_say("evaluation: loss %#.6g, in %s", e->loss, time);
    if (enough && t->state.eval_best_step == 0)
        zx_cmd_say("stopped early: no evaluation had a finite loss");
    else if (enough)
        zx_cmd_say("stopped early: no evaluation since step %llu had a loss below %#.6g - %g",
                   (unsigned long long)t->state.eval_best_step, t->state.eval_best,
                   e->of.min_delta);
}

static void say_lost_monitors(zx_train *t, showing *v)
{
    for (const char *why; (why = zx_monitor_lost(t->monitor)) != NULL;) {
        if (v->open) fputc('\n', stderr);
        v->open = false;
        zx_cmd_say("note: %s: no more is written there, training goes on", why);
    }
}

// ---- steps --------------------------------------------------------------------------------------

static void account(zx_train *t, const zx_step_report *r, bool on)
{
    t->done++;
    t->peak_bytes = r->peak_bytes;
    if (t->done == t->before + 1) t->first_loss = r->loss;
    if (r->applied || t->done == t->before + 1) t->last_loss = r->loss;
    if (!on) return;
    t->state.steps = t->done;
    t->state.applied_steps += r->applied;
    t->state.skipped_steps += !r->applied;
    t->state.samples += (uint64_t)t->job.batch.total;
}

static zx_status plan_again(zx_train *t, showing *v, zx_err *err)
{
    if (!zx_train_replan_due(t)) return ZX_OK;
    if (v->open) fputc('\n', stderr);
    v->open = false;
    return zx_train_replan(t, err);
}

// After a step that isn't the last: a checkpoint that is due, and one under way that is done.
static zx_status save_between(zx_train *t, showing *v, zx_err *err)
{
    bool written = false;
    const bool due = zx_train_save_due(t, false, false);
    ZX_TRY(zx_train_save_poll(t, &written, err));
    if (!due && !written) return ZX_OK;
    if (v->open) fputc('\n', stderr);
    v->open = false;
    return due ? zx_train_checkpoint(t, false, err) : zx_train_save_settle(t, false, err);
}

zx_status zx_train_steps(zx_train *t, bool *stopped, zx_err *err)
{
    const bool first = zx_world_rank(t->world) == 0;
    showing v;
    start_showing(t, &v);
    start_scale(t);
    sampling s = {.at = v.started};
    zx_status st = ZX_OK, written = ZX_OK;
    zx_err writing = {0};
    bool enough = false;
    *stopped = false;
    if (t->state.eval_left != 0) { // what it would have come to counts for early stop
        st = zx_train_eval_step(t, false, &enough, err);
        *stopped = t->eval.left;
        if (first && st == ZX_OK) show_evaluation(t, &v, enough);
    }
    for (uint64_t step = t->before; st == ZX_OK && step < t->steps && !*stopped && !enough;
         step++) {
        const uint64_t micro = t->state.samples / (uint64_t)t->job.batch.micro;
        zx_step_report r;
        st = plan_again(t, &v, err);
        if (st != ZX_OK) break;
        st = zx_session_scale(t->session, t->loss_scale.scale, err);
        if (st != ZX_OK) break;
        st = zx_session_step(t->session, t->state.applied_steps, micro, next_rate(t), &r, err);
        if (st == ZX_E_DATA) zx_data_explain(t->job.data, err);
        if (st != ZX_OK) break;
        const bool on = goes_on(t, &r);
        account(t, &r, on);
        *stopped = r.stop && step + 1 < t->steps;
        const bool last = step + 1 == t->steps || *stopped || !on;
        st = sample_memory(t, &s, last, err);
        if (st == ZX_OK) st = zx_train_watch(t, err);
        if (st == ZX_OK && on) st = zx_train_eval_step(t, last && !*stopped, &enough, err);
        *stopped |= t->eval.left;
        if (st == ZX_OK && step == 0 && zx_given(t->job.o, ZX_OPT_DUMP_GRADS)) {
            st = zx_save_grads(t->session, t->world, &t->job.train, t->files.grads, err);
            if (st == ZX_OK && first) zx_cmd_wrote(t->files.grads, &t->job.mem);
        }
        if (first && st == ZX_OK && written == ZX_OK) {
            written = zx_train_monitor_step(t, &r, &writing);
            say_lost_monitors(t, &v);
            if (written != ZX_OK) zx_session_ask_stop(t->session); // the others learn of it by that
            show(t, &v, &r, last || enough);
            show_deepspeed_line(t, &v);
            show_breakdown(t, &v, &r);
            show_evaluation(t, &v, enough);
        }
        if (st == ZX_OK && on && !last) st = save_between(t, &v, err);
        if (st == ZX_OK && !on) {
            t->done--;
            st = say_why(t, step, micro, err);
        }
    }
    t->run_seconds = now_seconds() - v.started;
    if (v.open) fputc('\n', stderr);
    if (st != ZX_OK) return st;
    if (written != ZX_OK) zx_err_merge(err, &writing);
    st = zx_world_agree(t->world, written, err);
    zx_err other = {0}; // a checkpoint under way is worth more than the log
    if (st != ZX_OK && st != ZX_E_COMM) zx_train_save_settle(t, false, &other);
    return st;
}

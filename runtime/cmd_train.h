// cmd_train.h - a training run as one rank sees it; cmd_train.c opens and closes it,
// cmd_train_steps.c runs its steps.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_RUNTIME_CMD_TRAIN_H
#define ZX_RUNTIME_CMD_TRAIN_H

#include "runtime/ckpt.h"
#include "runtime/cmd.h"
#include "runtime/init_from.h"
#include "runtime/job_eval.h"
#include "runtime/monitor.h"
#include "runtime/progress.h"
#include "runtime/resume.h"
#include "runtime/rundir.h"

typedef struct zx_replan {   // --replan-after
    uint64_t after;          // steps done when it is planned again; 0: never
    zx_measuring *measuring; // the steps before that run in its session
} zx_replan;

typedef struct zx_saving { // checkpoints of this run
    uint64_t every, keep;  // steps between two, 0: only where it is interrupted; that stay
    uint64_t at;           // steps done at the newest one; 0: there is none
    const char *folder;    // on rank 0; NULL: there is no run's folder
    uint64_t begun;        // steps done at the newest one that was begun
    void *copy;            // --save-async: what is written beside the steps; NULL: at once
    zx_ckpt_saving *under_way;
} zx_saving;

typedef struct zx_watch { // --watch
    uint32_t n;
    uint32_t *params; // of the graph
    uint64_t every;
    double *weights, *grads; // of the last step that was looked at
    zx_watched *shown;
} zx_watch;

typedef struct zx_eval_run { // --eval-data
    zx_job_eval of;
    zx_plan plan;
    zx_session *session;
    // Of the last evaluation:
    uint64_t at; // steps done then; 0: there was none
    double loss, labels, seconds;
    bool left; // it was left before its end: some rank was asked to stop
} zx_eval_run;

typedef struct zx_train {
    zx_job job;
    zx_world *world;
    zx_plan plan;
    const double *start, *seconds; // of the plan's instructions as predicted; on rank 0
    const char *certificate;       // of the plan; on rank 0; NULL: it is a file's
    zx_session *session;
    double timeout_seconds;
    zx_guard *guard; // of calls of CUDA; NULL: none
    uint64_t steps;
    zx_replan replan;
    zx_rundir files;         // on rank 0
    int lock;                // likewise, of the run's folder; -1: none
    zx_monitor *monitor;     // likewise
    const zx_resume *resume; // NULL: a run of its own
    zx_ckpt from;            // what it goes on from
    zx_ckpt_values values;   // of it, as the session's
    zx_init_from init;       // --init
    zx_saving saving;
    zx_train_state state; // between two steps
    uint64_t before;      // steps done when this process began
    zx_watch watch;
    zx_eval_run eval;
    // What came out.
    uint64_t done, peak_bytes, resident_bytes;
    zx_loss_scale loss_scale; // of the next step
    double first_loss, last_loss, run_seconds;
} zx_train;

// --plan: reads the plan and checks that it is for this run. On rank 0.
zx_status zx_train_load_plan(zx_job *job, const char *path, zx_plan *plan, zx_err *err);

// t->certificate, of a plan that was made from `o`. On rank 0.
zx_status zx_train_certify(zx_train *t, const zx_plan_options *o, const zx_plan *plan, zx_err *err);
zx_session_options zx_train_session_options(const zx_train *t);
// What rank 0 has packed (others: nothing) to all, checked by all.
zx_status zx_train_share_plan(zx_train *t, const zx_graph *g, zx_text *packed, zx_plan *out,
                              zx_err *err);
// plan.txt of the run's folder: what is said first, then t->plan. On rank 0.
zx_status zx_train_write_plan(zx_train *t, const char *head, zx_err *err);

// ---- cmd_train_replan.c: planning again from measured times -------------------------------------
// Reads --replan-after, after the steps were counted.
void zx_train_replan_open(zx_train *t);
// Between two steps: whether something is to be done, and maybe said; the same on every rank. Then
// all ranks call zx_train_replan.
bool zx_train_replan_due(const zx_train *t);
zx_status zx_train_replan(zx_train *t, zx_err *err);
void zx_train_close_session(zx_train *t);

// ---- cmd_train_save.c: checkpoints, and going on from one ---------------------------------------
// Finds the checkpoint that --resume goes on from: the newest one that is whole; says which ones
// aren't. All ranks call.
zx_status zx_train_find_checkpoint(zx_train *t, zx_err *err);
// After the plan is there: the checkpoint's tensors are the model's, and where the run stands.
zx_status zx_train_take_checkpoint(zx_train *t, zx_err *err);
// --init: likewise, and what was found is said.
zx_status zx_train_take_init(zx_train *t, zx_err *err);
// What the session begins with.
zx_values zx_train_values(const zx_train *t);
// Reads --save-every, --keep and --save-async.
void zx_train_saving_open(zx_train *t);
zx_status zx_train_saving_reserve(zx_train *t, zx_err *err); // --save-async: the copy's memory
void zx_train_saving_close(zx_train *t);
// After a step. last: of the run; stopped: by a signal. The same on every rank.
bool zx_train_save_due(const zx_train *t, bool last, bool stopped);
// All ranks call. Where it fails the run and the checkpoints before are as they were; if that is
// for the disk's sake and there will be another one (not `last`) it is a warning.
zx_status zx_train_checkpoint(zx_train *t, bool last, zx_err *err);
// Whether the one under way is written on all ranks; then they call zx_train_save_settle, which
// waits for it where it isn't.
zx_status zx_train_save_poll(zx_train *t, bool *written, zx_err *err);
zx_status zx_train_save_settle(zx_train *t, bool last, zx_err *err);

// Runs the steps: log rows, progress, the first step's gradients. *stopped: a signal ended it.
// E_DIVERGED, with the first bad node, for a step that wasn't applied where it isn't to be skipped.
zx_status zx_train_steps(zx_train *t, bool *stopped, zx_err *err);
// The learning rate of the step that was.
double zx_train_last_rate(const zx_train *t, const zx_step_report *r);

// ---- cmd_train_monitor.c: a step's figures, for log.jsonl and monitors
// ---------------------------- Before a session is opened: reads --watch and judges what the config
// asks for. On all ranks.
zx_status zx_train_monitor_check(zx_train *t, zx_err *err);
// Whether instructions have to be timed for what the config asks for.
bool zx_train_breaks_down(const zx_train *t);
zx_status zx_train_monitor_open(zx_train *t, zx_err *err); // on rank 0
// After a step that is counted in t->done, on all ranks: looks at what is watched.
zx_status zx_train_watch(zx_train *t, zx_err *err);
// Gives the step to the monitors, and to the flops profiler if it is its step. On rank 0.
zx_status zx_train_monitor_step(zx_train *t, const zx_step_report *r, zx_err *err);
// "time (ms) | fwd: 1.20 | ..." where it is due; NULL. On rank 0.
const char *zx_train_breakdown(zx_train *t, const zx_step_report *r, zx_text *out);
// What clipping multiplied the step's gradient by; 1: nothing.
double zx_train_clip_factor(const zx_train *t, const zx_step_report *r);

// ---- cmd_train_eval.c: the loss on data that isn't trained on
// ------------------------------------ Before the steps, in this order, on all ranks: data and
// graph; the plan, which leaves the rest of the budget to training; the session.
zx_status zx_train_eval_open(zx_train *t, zx_err *err);
zx_status zx_train_eval_plan(zx_train *t, zx_err *err);
zx_status zx_train_eval_session(zx_train *t, zx_err *err);
void zx_train_eval_words(const zx_train *t, zx_text *out); // what has to be the same on all ranks
void zx_train_eval_say(const zx_train *t);                 // a line of the plan
// After a step that was applied, or the last, on all ranks; last: of the run. *enough: the run is
// to end early.
zx_status zx_train_eval_step(zx_train *t, bool last, bool *enough, zx_err *err);
// Whether the step that was just done was evaluated.
static inline bool zx_train_evaluated(const zx_train *t)
{
    return t->eval.of.on && t->eval.at == t->done;
}
void zx_train_eval_close(zx_train *t);

// --report and --profile: the last step as rank 0 measured it. Call on rank 0.
zx_status zx_train_pictures(zx_train *t, zx_err *err);

#endif

// cmd_train.c - zerox train: each rank imports, rank 0 plans, each rank checks the plan and runs
// it.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_train.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ckpt_folder.h"
#include "runtime/job_certificate.h"
#include "runtime/job_complete.h"
#include "runtime/launch.h"
#include "runtime/outfile.h"
#include "runtime/save.h"
#include "runtime/version.h"

typedef struct train_call { // what zx_cmd_train hands to every rank
    const zx_options *o;
    const zx_resume *resume; // NULL: a run of its own
    const zx_who *who;
    const zx_backend *backend;
    uint32_t devices;
    double timeout_seconds;
} train_call;

// ---- before the first step ----------------------------------------------------------------------

static void say_header(zx_train *t)
{
    zx_job *job = &t->job;
    zx_text text = {0};
    const char *on =
        zx_arena_printf(&job->mem, "x %u thread%s", job->threads, job->threads == 1 ? "" : "s");
    if (job->site.gpu != NULL)
        on = zx_arena_printf(&job->mem, "by %s", zx_site_backend(&job->site)->name);
    zx_cmd_say("zerox %s: %s, %u rank%s %s, ZeRO stage %d", ZX_VERSION,
               zx_text_safe(&job->mem, job->model), job->ranks, job->ranks == 1 ? "" : "s", on,
               (int)zx_config_get(&job->config, "zero_optimization.stage")->i);
    zx_config_describe(&job->config, &text);
    zx_cmd_say("%s", text.at);
    zx_text_free(&text);
    zx_job_say_notes(&t->job);
}

static void say_model(zx_train *t)
{
    const zx_graph *g = &t->job.forward;
    char count[ZX_BYTES_TEXT];
    zx_text data = {0};
    zx_cmd_say("model: %s parameter%s in %u tensor%s, %u buffer%s, %u node%s forward, %u in a step",
               zx_text_count((double)t->job.n_elements, count), t->job.n_elements == 1 ? "" : "s",
               g->n_params, g->n_params == 1 ? "" : "s", g->n_buffers, g->n_buffers == 1 ? "" : "s",
               g->n_nodes, g->n_nodes == 1 ? "" : "s", t->job.train.n_nodes);
    zx_text params = {0};
    zx_job_params_text(&t->job, &params);
    if (params.n > 0) zx_cmd_say("%.*s", (int)params.n - 1, params.at); // without its last '\n'
    zx_text_free(&params);
    zx_data_describe(t->job.data, &data);
    zx_cmd_say("data: %s", data.at != NULL ? data.at : "none");
    zx_text_free(&data);
    zx_text schedule = {0};
    zx_lr_describe(&t->job.optim.schedule, &schedule);
    if (t->job.optim.schedule.kind != ZX_LR_CONSTANT) zx_cmd_say("learning rate: %s", schedule.at);
    zx_text_free(&schedule);
    zx_job_say_notes(&t->job);
}

// The number of steps by --steps, --epochs or one epoch.
static zx_status count_steps(zx_train *t, zx_err *err)
{
    const zx_options *o = t->job.o;
    const uint64_t epoch = zx_data_epoch(t->job.data);
    const uint64_t epochs = zx_given_number(o, ZX_OPT_EPOCHS, 1);
    t->steps = zx_given_number(o, ZX_OPT_STEPS, 0);
    if (t->steps > 0) return ZX_OK;
    if (epoch == 0) {
        zx_err_hint(err, "--steps N");
        return ZX_FAIL(err, ZX_E_USAGE, "every input is generated: there is no epoch to count by");
    }
    if (!zx_mul_u64(epoch, epochs, &t->steps))
        return ZX_FAIL(err, ZX_E_USAGE, "--epochs %llu is too many", (unsigned long long)epochs);
    return ZX_OK;
}

// Another launcher may have started the ranks with different words: what the plan doesn't tell
// apart would train them apart, or leave one waiting for a step that another doesn't take.
static zx_status check_same(const zx_train *t, zx_err *err)
{
    const zx_options *o = t->job.o;
    zx_text text = {0};
    uint64_t hash = zx_graph_hash(&t->job.train);
    zx_config_write(&t->job.config, "", &text);
    zx_data_json(t->job.data, &text);
    zx_text_put(&text, " %llu steps%s%s%s", (unsigned long long)t->steps,
                zx_given(o, ZX_OPT_SHUFFLE) ? " shuffled" : "",
                zx_given(o, ZX_OPT_NO_SAVE) ? " unsaved" : "",
                zx_given(o, ZX_OPT_DUMP_GRADS) ? " dumped" : "");
    zx_text_put(&text, "%s %llu %llu %llu", zx_given(o, ZX_OPT_SAVE_ASYNC) ? " beside" : "",
                (unsigned long long)t->replan.after, (unsigned long long)t->saving.every,
                (unsigned long long)t->from.state.steps);
    zx_text_put(&text, " %llu", (unsigned long long)t->watch.every);
    zx_train_eval_words(t, &text);
    for (uint32_t i = 0; i < t->watch.n; i++) zx_text_put(&text, " %u", t->watch.params[i]);
    for (size_t i = 0; i < text.n; i++)
        hash = (hash ^ (unsigned char)text.at[i]) * UINT64_C(1099511628211);
    zx_text_free(&text);
    const zx_status st = zx_world_same(t->world, "the model or the command line", hash, err);
    if (st != ZX_OK) zx_err_hint(err, "start all ranks with the same words");
    return st;
}

zx_status zx_train_certify(zx_train *t, const zx_plan_options *o, const zx_plan *plan, zx_err *err)
{
    zx_certificate c;
    zx_text text = {0};
    ZX_TRY(zx_job_certificate(&t->job, o, plan, &c, err));
    zx_certificate_text(&c, &text);
    t->certificate = zx_arena_str(&t->job.mem, text.at);
    zx_text_free(&text);
    return ZX_OK;
}

static zx_status plan_on_rank0(zx_train *t, zx_text *packed, zx_err *err)
{
    if (zx_world_rank(t->world) != 0) return ZX_OK;
    zx_plan plan;
    const char *path = zx_given_text(t->job.o, ZX_OPT_PLAN_FILE);
    if (path != NULL) {
        ZX_TRY(zx_train_load_plan(&t->job, path, &plan, err));
    } else {
        ZX_TRY(zx_job_plan(&t->job, &t->job.mem, &plan, err));
        ZX_TRY(zx_train_certify(t, &t->job.planned, &plan, err));
    }
    zx_plan_pack(&plan, packed);
    t->start = plan.start;
    t->seconds = plan.seconds;
    return ZX_OK;
}

// Rank 0 sends; every rank unpacks and checks, and all compare the plan's hash.
zx_status zx_train_share_plan(zx_train *t, const zx_graph *g, zx_text *packed, zx_plan *out,
                              zx_err *err)
{
    size_t n = packed->n;
    void *bytes = packed->at;
    zx_status st = zx_world_send(t->world, &bytes, &n, err);
    if (st == ZX_OK) st = zx_plan_unpack(bytes, n, &t->job.mem, out, err);
    if (st == ZX_OK) st = zx_plan_check(g, out, err);
    st = zx_world_agree(t->world, st, err);
    if (st == ZX_OK) st = zx_world_same(t->world, "plan", zx_plan_hash(out), err);
    if (bytes != packed->at) free(bytes);
    return st;
}

// What rank 0 has decided to recompute (auto, or what a plan's file says) is everybody's graph.
static zx_status share_variant(zx_train *t, zx_err *err)
{
    zx_variant v = t->job.variant;
    ZX_TRY(zx_variant_share(&t->job, t->world, &t->job.mem, &v, err));
    zx_job_take(&t->job, &v);
    return ZX_OK;
}

static zx_status share_plan(zx_train *t, zx_err *err)
{
    zx_text packed = {0};
    ZX_TRY(zx_train_eval_plan(t, err)); // first: training takes what it leaves
    zx_status st = zx_world_agree(t->world, plan_on_rank0(t, &packed, err), err);
    if (st == ZX_OK) st = share_variant(t, err);
    if (st == ZX_OK) st = zx_train_share_plan(t, &t->job.train, &packed, &t->plan, err);
    zx_text_free(&packed);
    return st;
}

static void say_plan(const zx_train *t)
{
    char peak[ZX_BYTES_TEXT], budget[ZX_BYTES_TEXT], step[ZX_BYTES_TEXT], exposed[ZX_BYTES_TEXT],
        outside[ZX_BYTES_TEXT];
    zx_cmd_say("plan: peak %s a rank of %s, predicted step %s%s%s",
               zx_text_size(t->plan.arena_bytes, peak),
               t->plan.budget == UINT64_MAX ? "no limit" : zx_text_size(t->plan.budget, budget),
               zx_progress_time(t->plan.step_seconds, step),
               t->job.ranks > 1 ? ", exposed communication " : "",
               t->job.ranks > 1 ? zx_progress_time(t->plan.exposed_seconds, exposed) : "");
    if (t->certificate != NULL) // without its last '\n'
        zx_cmd_say("%.*s", (int)(strlen(t->certificate) - 1), t->certificate);
    zx_train_eval_say(t);
    zx_cmd_say("outside the plan: %s before the first step",
               zx_text_size(zx_memory_pss(), outside));
}

// The members of zerox.run in config.json: what the command line and the host decided.
static void run_json(const zx_train *t, zx_text *out)
{
    const zx_job *job = &t->job;
    zx_text_put(out, "\"version\": \"%s\", \"model\": ", ZX_VERSION);
    char full[PATH_MAX];
    zx_text_json(out, realpath(job->model, full) != NULL ? full : job->model);
    zx_text_put(out, ", \"parameters\": %llu, \"ranks\": %u, \"threads\": %u, \"steps\": %llu",
                (unsigned long long)job->n_elements, job->ranks, job->threads,
                (unsigned long long)t->steps);
    zx_text_put(out, ", \"shuffle\": %s, ", zx_given(job->o, ZX_OPT_SHUFFLE) ? "true" : "false");
    zx_resume_record(job->o, out);
    if (zx_given(job->o, ZX_OPT_INIT)) {
        zx_text_put(out, ", \"init\": ");
        zx_text_json(out, t->init.files.path);
    }
    zx_text_put(out, ", \"budget_bytes\": %llu, \"planned_peak_bytes\": %llu, \"held_bytes\": %llu",
                (unsigned long long)t->plan.budget, (unsigned long long)t->plan.arena_bytes,
                (unsigned long long)t->plan.held_bytes);
    if (t->eval.of.on)
        zx_text_put(out, ", \"eval_peak_bytes\": %llu",
                    (unsigned long long)t->eval.plan.arena_bytes);
    if (job->variant.n > 0)
        zx_text_put(out, ", \"recomputed\": \"%s\"",
                    zx_variant_text(&job->variant, (zx_arena *)(uintptr_t)&job->mem));
}

zx_status zx_train_write_plan(zx_train *t, const char *head, zx_err *err)
{
    if (t->files.plan == NULL) return ZX_OK;
    zx_text plan = {0};
    zx_text_put(&plan, "%sbudget %llu bytes a rank, peak %llu, held %llu\n", head,
                (unsigned long long)t->plan.budget, (unsigned long long)t->plan.arena_bytes,
                (unsigned long long)t->plan.held_bytes);
    zx_explain_gathers(&t->job.train, &t->plan, NULL, &plan);
    zx_explain_summary(&t->plan, zx_job_whose_budget(&t->job, &t->plan), &plan);
    if (t->certificate != NULL) zx_text_put(&plan, "%s", t->certificate);
    const zx_status st = zx_outfile_put(t->files.plan, plan.at, plan.n, &t->job.mem, err);
    zx_text_free(&plan);
    return st;
}

static zx_status write_files(zx_train *t, zx_err *err)
{
    if (t->files.dir == NULL) return ZX_OK;
    zx_text command = {0}, run = {0}, config = {0};
    zx_arena *mem = &t->job.mem;
    zx_rundir_command(t->job.o, &command);
    zx_job_complete(&t->job);
    zx_job_eval_complete(&t->job, &t->eval.of);
    run_json(t, &run);
    zx_config_write(&t->job.config, run.at, &config);
    zx_status st = t->resume != NULL
                       ? zx_rundir_append(t->files.command, command.at, command.n, err)
                       : zx_outfile_put(t->files.command, command.at, command.n, mem, err);
    if (st == ZX_OK) st = zx_outfile_put(t->files.config, config.at, config.n, mem, err);
    if (st == ZX_OK) st = zx_train_write_plan(t, "", err);
    zx_text_free(&command);
    zx_text_free(&run);
    zx_text_free(&config);
    return st;
}

static zx_status begin_files(zx_train *t, zx_err *err)
{
    ZX_TRY(zx_train_monitor_open(t, err));
    ZX_TRY(write_files(t, err));
    if (t->files.dir != NULL) zx_cmd_say("run: %s", zx_text_safe(&t->job.mem, t->files.dir));
    return ZX_OK;
}

// Of a run that goes on nothing is written before all that may still be refused: see prepare.
static zx_status make_files(zx_train *t, zx_err *err)
{
    zx_job *job = &t->job;
    if (zx_world_rank(t->world) != 0) return ZX_OK;
    if (t->resume != NULL)
        ZX_TRY(zx_rundir_resume(job->o, t->resume->dir, &job->mem, &t->files, err));
    else
        ZX_TRY(zx_rundir_make(job->o, job->model, time(NULL), &job->mem, &t->files, &t->lock, err));
    t->saving.folder = t->files.checkpoints;
    if (t->saving.every > 0) ZX_TRY(zx_ckpt_folder_check(t->saving.folder, &job->mem, err));
    return t->resume == NULL ? begin_files(t, err) : ZX_OK;
}

static bool by_host_memory(const zx_options *o)
{
    const char *comm = zx_given_text(o, ZX_OPT_COMM);
    return comm != NULL && strcmp(comm, "shm") == 0;
}

zx_session_options zx_train_session_options(const zx_train *t)
{
    const zx_job *job = &t->job;
    double delay = 0;
    const char *wire = zx_given_text(job->o, ZX_OPT_WIRE_DELAY);
    if (wire != NULL) zx_parse_seconds(wire, &delay); // its form was checked when planning
    return (zx_session_options){
        .world = t->world,
        .site = job->site,
        .timeout_seconds = t->timeout_seconds,
        .by_host_memory = by_host_memory(job->o),
        .any_order = !zx_config_get(&job->config, "zerox.deterministic")->b,
        .threads = job->threads,
        .seed = job->seed,
        .optim = job->optim,
        .rates = job->rates,
        .clip = job->clip,
        .labels = zx_job_labels(job),
        .feed = zx_data_feed(job->data),
        .latency_seconds = delay,
        .poison = zx_given(job->o, ZX_OPT_POISON),
        .touch = true,
        .dump_grads = zx_given(job->o, ZX_OPT_DUMP_GRADS),
        .profile = zx_given(job->o, ZX_OPT_REPORT) || zx_given(job->o, ZX_OPT_PROFILE) ||
                   zx_train_breaks_down(t),
        .values = zx_train_values(t),
    };
}

static zx_status open_session(zx_train *t, zx_err *err)
{
    const zx_session_options so = zx_train_session_options(t);
    ZX_TRY(zx_session_open(&t->job.train, &t->plan, &so, &t->session, err));
    return zx_train_eval_session(t, err);
}

// By host memory ranks may share a device.
static zx_status open_site(zx_train *t, const train_call *call, zx_err *err)
{
    const uint32_t rank = zx_world_rank(t->world), n = call->devices;
    const bool shared = by_host_memory(call->o) && n > 0;
    ZX_TRY(zx_site_open(&t->job.site, call->backend, shared ? rank % n : rank, t->guard, err));
    t->job.site.devices = n;
    if (shared) t->job.site.share = (zx_world_size(t->world) + n - 1) / n;
    return ZX_OK;
}

static void say_stuck(const zx_err *why)
{
    zx_cmd_fail(why, ZX_CMD_TRAIN);
}
static void give_up(const zx_err *why)
{
    zx_launch_give_up(why, say_stuck);
}

// On cores nothing hangs that way.
static zx_status open_guard(zx_train *t, const train_call *call, zx_err *err)
{
    if (call->backend == &zx_backend_cpu || !(t->timeout_seconds > 0)) return ZX_OK;
    return zx_guard_open(t->timeout_seconds, give_up, &t->guard, err);
}

static zx_status prepare(zx_train *t, const train_call *call, zx_err *err)
{
    zx_world *w = t->world;
    const bool first = zx_world_rank(w) == 0;
    t->timeout_seconds = call->timeout_seconds;
    // A rank whose own device hangs has the time to say so first.
    zx_world_patience(w, 1.25 * call->timeout_seconds);
    zx_status st = open_guard(t, call, err);
    if (st == ZX_OK) st = open_site(t, call, err);
    ZX_TRY(zx_world_agree(w, st, err));
    ZX_TRY(zx_world_agree(w, zx_job_open(&t->job, call->o, zx_world_size(w), false, err), err));
    if (first) say_header(t);
    // Before it is looked at: no other process changes what is found.
    if (first && t->resume != NULL) st = zx_rundir_lock(t->resume->dir, &t->job.mem, &t->lock, err);
    ZX_TRY(zx_world_agree(w, st, err));
    ZX_TRY(zx_train_find_checkpoint(t, err));
    st = zx_job_import(&t->job, false, err);
    if (st == ZX_OK) st = zx_train_eval_open(t, err);
    if (st == ZX_OK) st = count_steps(t, err);
    if (st == ZX_OK)
        st = zx_config_schedule_steps(&t->job.config, t->steps, &t->job.optim, &t->job.notes, err);
    if (st == ZX_OK) zx_train_replan_open(t);
    zx_train_saving_open(t);
    if (st == ZX_OK) st = zx_train_monitor_check(t, err);
    ZX_TRY(zx_world_agree(w, st, err));
    ZX_TRY(check_same(t, err));
    if (first) say_model(t);
    ZX_TRY(share_plan(t, err));
    if (first) zx_job_say_notes(&t->job);
    if (first) say_plan(t);
    ZX_TRY(zx_world_agree(w, zx_train_take_checkpoint(t, err), err));
    ZX_TRY(zx_world_agree(w, zx_train_take_init(t, err), err));
    ZX_TRY(zx_world_agree(w, zx_train_saving_reserve(t, err), err));
    ZX_TRY(zx_world_agree(w, make_files(t, err), err));
    ZX_TRY(zx_world_agree(w, open_session(t, err), err));
    if (first && t->resume != NULL) st = begin_files(t, err);
    return zx_world_agree(w, st, err);
}

// ---- after the last step ------------------------------------------------------------------------

// Of a run that ended as it should or was stopped; a step that failed has the last word.
static void say_summary(const zx_train *t, bool stopped)
{
    char clock[ZX_BYTES_TEXT], step[ZX_BYTES_TEXT], peak[ZX_BYTES_TEXT], mem[ZX_BYTES_TEXT],
        outside[ZX_BYTES_TEXT], what[96];
    const uint64_t made = t->done - t->before;
    if (made == 0) return;
    char skipped[48] = "";
    const unsigned long long done = t->done, steps = t->steps;
    if (t->state.skipped_steps > 0)
        snprintf(skipped, sizeof skipped, ", %llu of them skipped",
                 (unsigned long long)t->state.skipped_steps);
    if (stopped)
        snprintf(what, sizeof what, "interrupted after %llu of %llu steps", done, steps);
    else
        snprintf(what, sizeof what, "done: %llu step%s", done, done == 1 ? "" : "s");
    if (!stopped && made < t->done)
        snprintf(what, sizeof what, "done: %llu steps, %llu of them now", done,
                 (unsigned long long)made);
    // Libraries make their kernels, and threads what they need, in the first step.
    const uint64_t both = t->peak_bytes + (t->eval.of.on ? t->eval.plan.arena_bytes : 0);
    const uint64_t planned = t->job.site.gpu == NULL ? both : 0;
    const uint64_t rest = t->resident_bytes > planned ? t->resident_bytes - planned : 0;
    zx_cmd_say(
        "%s%s in %s (%s each), loss %#.4g -> %#.4g, peak %s as planned%s, resident %s, %s of it "
        "outside the plan",
        what, skipped, zx_progress_clock(t->run_seconds, clock),
        zx_progress_time(t->run_seconds / (double)made, step), t->first_loss,
        isnan(t->last_loss) ? fabs(t->last_loss) : t->last_loss, // "nan", never "-nan"
        zx_text_size(t->peak_bytes, peak), t->peak_bytes == t->plan.arena_bytes ? "" : " (less)",
        zx_text_size(t->resident_bytes, mem), zx_text_size(rest, outside));
}

// Saves what there is, also after a stop or a step that wasn't applied: the weights are whole.
static zx_status save_all(zx_train *t, zx_err *err)
{
    if (zx_given(t->job.o, ZX_OPT_NO_SAVE)) return ZX_OK;
    const zx_config *c = &t->job.config;
    const bool kept =
        zx_config_get(c, "zero_optimization.stage3_gather_16bit_weights_on_model_save")->b;
    ZX_TRY(zx_save_weights(t->session, t->world, &t->job.train, t->files.weights, kept, err));
    if (zx_world_rank(t->world) == 0)
        zx_cmd_say("saved: %s", zx_text_safe(&t->job.mem, t->files.weights));
    return ZX_OK;
}

// A checkpoint that is under way is finished, whatever the last step came to.
static void settle_last(zx_train *t, zx_status *st, zx_err *err)
{
    const zx_status settled = zx_train_save_settle(t, true, err);
    if (*st == ZX_OK) *st = settled;
}

static int train_rank(void *arg, zx_world *world, zx_err *err)
{
    const train_call *call = arg;
    zx_train *t = calloc(1, sizeof *t);
    if (t == NULL) return zx_status_exit(ZX_FAIL(err, ZX_E_IO, "out of memory"));
    t->world = world;
    t->resume = call->resume;
    t->from.fd = t->lock = -1;
    zx_status st = prepare(t, call, err);
    bool stopped = false;
    if (st == ZX_OK) {
        zx_launch_watch(t->session);
        st = zx_train_steps(t, &stopped, err);
        // What a failed step left behind are the weights of the step before: worth keeping, as long
        // as the ranks still hear each other.
        if (st == ZX_OK ||
            (t->done > t->before && st != ZX_E_COMM && !zx_session_lost(t->session))) {
            zx_err saving = {0};
            const zx_status saved = save_all(t, &saving);
            if (saved != ZX_OK) zx_err_merge(err, &saving);
            if (st == ZX_OK) st = saved;
        }
        if (st == ZX_OK && zx_train_save_due(t, true, stopped))
            st = zx_train_checkpoint(t, true, err);
        else if (st == ZX_OK || st == ZX_E_DIVERGED)
            settle_last(t, &st, err);
        if (st == ZX_OK && zx_world_rank(world) == 0) st = zx_train_pictures(t, err);
        if (st == ZX_OK && zx_world_rank(world) == 0) say_summary(t, stopped);
        if (st == ZX_OK && t->monitor != NULL) st = zx_monitor_end(t->monitor, err);
        zx_launch_watch(NULL);
    }
    zx_monitor_close(t->monitor);
    zx_train_eval_close(t);
    zx_train_saving_close(t);
    zx_train_close_session(t);
    zx_ckpt_close(&t->from);
    zx_init_close(&t->init);
    zx_job_close(&t->job);
    zx_guard_close(t->guard);
    if (t->lock >= 0) close(t->lock);
    free(t);
    if (st != ZX_OK) return zx_status_exit(st);
    const int signal = zx_launch_signal();
    return stopped ? 128 + (signal != 0 ? signal : SIGTERM) : 0;
}

static zx_status choose_backend(const zx_options *o, const zx_backend **out, uint32_t *devices,
                                zx_err *err)
{
    const char *comm = zx_given_text(o, ZX_OPT_COMM);
    ZX_TRY(zx_backend_choose(zx_given_text(o, ZX_OPT_BACKEND), out, devices, err));
    if (comm != NULL && strcmp(comm, "nccl") != 0 && strcmp(comm, "shm") != 0) {
        zx_err_hint(err, "nccl or shm");
        return ZX_FAIL(err, ZX_E_USAGE, "--comm: there is no '%s'", comm);
    }
    if (comm != NULL && strcmp(comm, "nccl") == 0 && *out == &zx_backend_cpu)
        return ZX_FAIL(err, ZX_E_USAGE, "--comm nccl is for GPUs: ranks on cores share memory");
    if (*out == &zx_backend_cpu || !zx_given(o, ZX_OPT_REPLAN_AFTER)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                   "--replan-after: times of GPUs aren't measured in a run yet");
}

// Cores may take as long as they like over a step.
static zx_status read_timeout(const zx_options *o, const zx_backend *backend, double *seconds,
                              zx_err *err)
{
    const char *text = zx_given_text(o, ZX_OPT_TIMEOUT);
    *seconds = backend == &zx_backend_cpu ? 0 : 600;
    if (text == NULL || zx_parse_seconds(text, seconds)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "--timeout needs a time below an hour like 30s, not '%s'",
                   text);
}

static int launch(const zx_options *o, const zx_resume *resume, zx_err *err)
{
    zx_who who;
    if (zx_given(o, ZX_OPT_STEPS) && zx_given(o, ZX_OPT_EPOCHS))
        return zx_status_exit(ZX_FAIL(
            err, ZX_E_USAGE, "--steps and --epochs are two ways to say the same; give one"));
    if (zx_given(o, ZX_OPT_SAVE) && zx_given(o, ZX_OPT_NO_SAVE))
        return zx_status_exit(
            ZX_FAIL(err, ZX_E_USAGE, "--save and --no-save contradict each other; give one"));
    const uint64_t ranks = zx_given_number(o, ZX_OPT_RANKS, 0);
    const zx_status few = zx_cmd_check_ranks(ranks, ZX_MOST_RANKS, err);
    if (few != ZX_OK) return zx_status_exit(few);
    const zx_backend *backend;
    uint32_t devices;
    double timeout_seconds = 0;
    zx_status st = choose_backend(o, &backend, &devices, err);
    if (st == ZX_OK) st = read_timeout(o, backend, &timeout_seconds, err);
    if (st == ZX_OK) st = zx_launch_who((uint32_t)ranks, &who, err);
    if (st == ZX_OK && ranks == 0 && devices > 1 && getenv("WORLD_SIZE") == NULL)
        st = zx_launch_who(devices, &who, err); // a rank a device
    if (st != ZX_OK) return zx_status_exit(st);
    who.say = zx_cmd_note;
    signal(SIGPIPE, SIG_IGN); // a run outlives who was looking at it
    if (who.note[0] != '\0' && who.rank == 0) zx_cmd_say("note: %s", who.note);
    train_call call = {o, resume, &who, backend, devices, timeout_seconds};
    return zx_launch_run(&who, train_rank, &call, err);
}

int zx_cmd_train(const zx_options *o, zx_err *err)
{
    zx_arena mem = {0};
    zx_resume resume;
    if (!zx_given(o, ZX_OPT_RESUME)) return launch(o, NULL, err);
    const zx_status st = zx_resume_open(o, &mem, &resume, err);
    const int code = st == ZX_OK ? launch(&resume.options, &resume, err) : zx_status_exit(st);
    zx_arena_free(&mem);
    return code;
}

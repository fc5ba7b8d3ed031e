// cmd_train_save.c - checkpoints of a run: when one is saved, and going on from one.
// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cmd_train.h"

// ---- going on -----------------------------------------------------------------------------------

// One candidate: every rank reads its part of the files.
static zx_status look_at(zx_train *t, const char *dir, zx_err *err)
{
    zx_world *w = t->world;
    zx_status st = zx_ckpt_open(dir, &t->job.mem, &t->from, err);
    ZX_TRY(zx_world_agree(w, st, err));
    st = zx_ckpt_verify(&t->from, zx_world_rank(w), zx_world_size(w), err);
    return zx_world_agree(w, st, err);
}

static void say_next(zx_train *t, uint32_t i, const zx_err *why)
{
    const zx_resume *r = t->resume;
    zx_arena *mem = &t->job.mem;
    if (zx_world_rank(t->world) != 0) return;
    zx_cmd_say("warning: %s can't be gone on from: %s", zx_text_safe(mem, r->at[i]),
               zx_text_safe(mem, why->cause[0]));
    if (i + 1 < r->n)
        zx_cmd_say("warning: trying the one before it, %s", zx_text_safe(mem, r->at[i + 1]));
}

zx_status zx_train_find_checkpoint(zx_train *t, zx_err *err)
{
    const zx_resume *r = t->resume;
    const bool first = zx_world_rank(t->world) == 0;
    if (r == NULL) return ZX_OK;
    for (uint32_t i = 0; first && i < r->n_said; i++)
        zx_cmd_say("note: resumed with %s", r->said[i]);
    if (first && r->leftover != NULL)
        zx_cmd_say("note: %s is what a save that was cut off left; the next save removes it",
                   zx_text_safe(&t->job.mem, r->leftover));
    for (uint32_t i = 0; i < r->n; i++) {
        zx_err found = {0};
        const zx_status st = look_at(t, r->at[i], &found);
        if (st == ZX_OK) return ZX_OK;
        zx_ckpt_close(&t->from);
        const bool damaged = st == ZX_E_FORMAT || st == ZX_E_IO;
        if (!damaged || r->exact || r->n == 1) return zx_err_merge(err, &found);
        say_next(t, i, &found);
    }
    zx_err_hint(err, "--init with weights that are whole, or the run again");
    return ZX_FAIL(err, ZX_E_FORMAT, "none of the %u checkpoints in %s can be gone on from", r->n,
                   zx_text_safe(&t->job.mem, r->folder));
}

static const char *optimizer_name(const zx_train *t)
{
    return zx_config_get(&t->job.config, "optimizer.type")->text;
}

static zx_status check_state(const zx_train *t, zx_err *err)
{
    const zx_train_state *s = &t->from.state;
    const uint64_t micro = (uint64_t)t->job.batch.micro;
    if (s->samples % micro != 0)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "%s: %" PRIu64 " samples were read, which is no whole number of "
                       "micro-batches of %" PRIu64,
                       t->from.dir, s->samples, micro);
    const uint64_t has = zx_data_samples(t->job.data);
    if (s->data_samples != 0 && s->data_samples != has && !zx_given(t->job.o, ZX_OPT_DATA)) {
        zx_err_hint(err,
                    "the data as they were, or --data INPUT=FILE to go on with others: sample "
                    "%" PRIu64 " of them is the next one",
                    has > 0 ? s->samples % has : s->samples);
        return ZX_FAIL(err, ZX_E_DATA,
                       "%s was saved with data of %" PRIu64 " samples, now they have %" PRIu64,
                       t->from.dir, s->data_samples, has);
    }
    if (s->steps >= t->steps) {
        zx_err_hint(err, "--steps %" PRIu64 ", or more: they count from the run's beginning",
                    s->steps + 1);
        return ZX_FAIL(err, ZX_E_USAGE, "%s: the run has done %" PRIu64 " of %" PRIu64 " steps",
                       t->from.dir, s->steps, t->steps);
    }
    if (t->replan.after > 0 && t->replan.after <= s->steps)
        return ZX_FAIL(err, ZX_E_USAGE,
                       "--replan-after %" PRIu64 ": the run has done %" PRIu64 " steps already",
                       t->replan.after, s->steps);
    return ZX_OK;
}

zx_status zx_train_take_checkpoint(zx_train *t, zx_err *err)
{
    zx_ckpt want = {0};
    zx_job *job = &t->job;
    if (t->resume == NULL) return ZX_OK;
    ZX_TRY(check_state(t, err));
    zx_ckpt_list(&job->train, &t->plan, &job->optim, &job->mem, &want);
    const zx_status st = zx_ckpt_match(&t->from, &want, &t->plan, &job->mem, &t->values, err);
    if (st != ZX_OK) {
        zx_err_hint(err, "the run's model and optimizer (%s), or --init for the weights alone",
                    zx_text_safe(&job->mem, t->from.optimizer));
        return st;
    }
    t->state = t->from.state;
    t->state.seed = job->seed;
    t->state.data_samples = zx_data_samples(job->data);
    t->done = t->before = t->saving.at = t->saving.begun = t->state.steps;
    if (zx_world_rank(t->world) != 0) return ZX_OK;
    if (zx_ckpt_model_hash(&job->forward) != t->from.model_hash)
        zx_cmd_say("note: operators or shapes of the model aren't those that %s was saved with",
                   zx_text_safe(&job->mem, t->from.dir));
    if (t->from.state.seed != job->seed && !zx_given(job->o, ZX_OPT_SEED))
        zx_cmd_say("note: the seed is %" PRIu64 ", %s was saved with %" PRIu64
                   ": dropout and shuffling are others from here on",
                   job->seed, zx_text_safe(&job->mem, t->from.dir), t->from.state.seed);
    zx_cmd_say("resumed: %s, step %" PRIu64 " of %" PRIu64, zx_text_safe(&job->mem, t->from.dir),
               t->before, t->steps);
    return ZX_OK;
}

// ---- other weights ------------------------------------------------------------------------------

// With --force the folder that a run writes to loses what is there before its session is opened.
static zx_status check_apart(const zx_options *o, const char *from, zx_err *err)
{
    const char *out = zx_given_text(o, ZX_OPT_OUT);
    if (out == NULL || !zx_rundir_has(out, from)) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "--init %s is in the folder that --out writes to", from);
}

zx_status zx_train_take_init(zx_train *t, zx_err *err)
{
    const zx_options *o = t->job.o;
    const char *from = zx_given_text(o, ZX_OPT_INIT);
    const bool first = zx_world_rank(t->world) == 0, partial = zx_given(o, ZX_OPT_INIT_PARTIAL);
    if (from == NULL && partial)
        return ZX_FAIL(err, ZX_E_USAGE, "--init-partial has no effect without --init");
    if (from == NULL) return ZX_OK;
    ZX_TRY(check_apart(o, from, err));
    from = zx_rundir_fixed(from, &t->job.mem); // runs/latest is this run before it is read
    const zx_status st = zx_init_open(from, &t->job.train, &t->plan,
                                      (zx_init_how){.partial = partial, .thorough = first},
                                      &t->job.mem, &t->init, err);
    if (st == ZX_OK && first) // without its last '\n'
        zx_cmd_say("%.*s", (int)(t->init.report.n - 1), t->init.report.at);
    return st;
}

zx_values zx_train_values(const zx_train *t)
{
    if (t->resume != NULL) return zx_ckpt_session_values(&t->values);
    return zx_given(t->job.o, ZX_OPT_INIT) ? zx_init_values(&t->init) : (zx_values){0};
}

// ---- saving -------------------------------------------------------------------------------------

void zx_train_saving_open(zx_train *t)
{
    const zx_options *o = t->job.o;
    t->saving.every = zx_given_number(o, ZX_OPT_SAVE_EVERY, 0);
    t->saving.keep = zx_given_number(o, ZX_OPT_KEEP, 2);
    t->state.seed = t->job.seed;
    t->state.data_samples = zx_data_samples(t->job.data);
}

void zx_train_saving_close(zx_train *t)
{
    zx_ckpt_give_up(t->saving.under_way);
    free(t->saving.copy);
}

// Of the files of all ranks, whose heads are all as long as the first one's, but for digits.
static uint64_t bytes_of_files(const zx_ckpt *c, uint32_t ranks)
{
    zx_arena mem = {0};
    zx_safe_tensor *pieces = ZX_NEW(&mem, zx_safe_tensor, c->n + 1);
    uint64_t *offsets = ZX_NEW(&mem, uint64_t, c->n + 1), head_bytes = 0, total = 0;
    const void *head = NULL;
    int64_t from;
    for (uint32_t i = 0; i < c->n; i++) {
        const zx_type *t = &c->tensors[i].type;
        pieces[i].name = zx_ckpt_tensor_name(&c->tensors[i], &mem);
        pieces[i].type =
            (zx_type){t->dtype, {1, {zx_ckpt_piece(zx_shape_count(&t->shape), ranks, 0, &from)}}};
    }
    const zx_status st =
        zx_safe_header(c->n, pieces, 0, NULL, &mem, &head, &head_bytes, offsets, &total, NULL);
    zx_arena_free(&mem);
    return zx_ckpt_copy_bytes(c, 1) + (st == ZX_OK ? ranks * head_bytes : 0);
}

static void say_saving(const zx_train *t, const zx_ckpt *c)
{
    char size[ZX_BYTES_TEXT];
    const unsigned long long keep = t->saving.keep, every = t->saving.every;
    zx_cmd_say("checkpoints: every %llu step%s, %s each, the newest %llu stay%s", every,
               every == 1 ? "" : "s", zx_text_size(bytes_of_files(c, t->job.ranks), size), keep,
               keep == 1 ? "s" : "");
}

zx_status zx_train_saving_reserve(zx_train *t, zx_err *err)
{
    zx_ckpt c = {0};
    char size[ZX_BYTES_TEXT];
    const bool none = t->saving.every == 0;
    if (none && zx_given(t->job.o, ZX_OPT_KEEP) && !zx_given(t->job.o, ZX_OPT_RESUME))
        return ZX_FAIL(err, ZX_E_USAGE, "--keep has no effect without --save-every N");
    if (none && !zx_given(t->job.o, ZX_OPT_SAVE_ASYNC)) return ZX_OK;
    if (none) return ZX_FAIL(err, ZX_E_USAGE, "--save-async has no effect without --save-every N");
    zx_ckpt_list(&t->job.train, &t->plan, &t->job.optim, &t->job.mem, &c);
    if (zx_world_rank(t->world) == 0) say_saving(t, &c);
    if (!zx_given(t->job.o, ZX_OPT_SAVE_ASYNC)) return ZX_OK;
    const uint64_t bytes = zx_ckpt_copy_bytes(&c, t->job.ranks);
    t->saving.copy = malloc((size_t)bytes + 1);
    if (t->saving.copy == NULL)
        return ZX_FAIL(err, ZX_E_DEVICE, "--save-async: no memory for a copy of %s",
                       zx_text_size(bytes, size));
    memset(t->saving.copy, 0, (size_t)bytes + 1); // there before the first step
    return ZX_OK;
}

bool zx_train_save_due(const zx_train *t, bool last, bool stopped)
{
    const zx_saving *s = &t->saving;
    if (t->done == s->begun || t->done == t->before) return false; // nothing is new
    if (s->every > 0) return last || stopped || t->done % s->every == 0;
    // Nobody can ask for it any more; and what a run has is what it came to, not where it was
    // interrupted once.
    return (stopped || (last && (s->at > 0 || t->resume != NULL))) && zx_rundir_is_made(t->job.o) &&
           !zx_given(t->job.o, ZX_OPT_NO_SAVE);
}

// What came of a save of a step. A disk that is full is no reason to lose what was trained: the
// checkpoints before are still there, and the next one may find room.
static zx_status judge(zx_train *t, zx_status st, uint64_t step, uint64_t bytes, bool last,
                       zx_err *found, zx_err *err)
{
    char size[ZX_BYTES_TEXT];
    if (st == ZX_OK) return ZX_OK;
    if (st == ZX_E_IO)
        zx_err_hint(found,
                    "room for the %s of a checkpoint beside those that are kept, or a "
                    "smaller --keep",
                    zx_text_size(bytes, size));
    if (st != ZX_E_IO || last) return zx_err_merge(err, found);
    if (zx_world_rank(t->world) == 0)
        zx_cmd_say("warning: no checkpoint of step %" PRIu64 ": %s; try: %s", step,
                   zx_text_safe(&t->job.mem, found->cause[0]),
                   zx_text_safe(&t->job.mem, found->hint));
    return ZX_OK;
}

zx_status zx_train_save_poll(zx_train *t, bool *written, zx_err *err)
{
    *written = false;
    if (t->saving.under_way == NULL) return ZX_OK;
    const bool mine = zx_ckpt_written(t->saving.under_way);
    bool *all = calloc(t->job.ranks, sizeof *all);
    ZX_ASSERT(all != NULL);
    const zx_status st = zx_world_exchange(t->world, &mine, sizeof mine, all, err);
    *written = st == ZX_OK;
    for (uint32_t r = 0; r < t->job.ranks; r++) *written = *written && all[r];
    free(all);
    return st;
}

zx_status zx_train_save_settle(zx_train *t, bool last, zx_err *err)
{
    const char *name = NULL;
    char size[ZX_BYTES_TEXT];
    uint64_t bytes = 0;
    zx_err found = {0};
    zx_ckpt_saving *v = t->saving.under_way;
    if (v == NULL) return ZX_OK;
    const zx_mark mark = zx_arena_mark(&t->job.mem);
    t->saving.under_way = NULL;
    const zx_status st = zx_ckpt_end(v, t->world, &t->job.mem, &name, &bytes, &found);
    if (st == ZX_OK) t->saving.at = t->saving.begun;
    if (st == ZX_OK && zx_world_rank(t->world) == 0)
        zx_cmd_say("checkpoint: %s (%s)", zx_text_safe(&t->job.mem, name),
                   zx_text_size(bytes, size));
    zx_arena_rewind(&t->job.mem, mark);
    return judge(t, st, t->saving.begun, bytes, last, &found, err);
}

zx_status zx_train_checkpoint(zx_train *t, bool last, zx_err *err)
{
    zx_job *job = &t->job;
    ZX_TRY(zx_train_save_settle(t, last, err)); // the one before
    const zx_mark mark = zx_arena_mark(&job->mem);
    zx_err found = {0};
    char model[PATH_MAX]; // the same from wherever it is looked for
    zx_ckpt c = {.optimizer = optimizer_name(t),
                 .model = realpath(job->model, model) != NULL ? model : job->model,
                 .model_hash = zx_ckpt_model_hash(&job->forward),
                 .stage = t->plan.stage,
                 .state = t->state};
    const zx_ckpt_target target = {t->saving.folder, t->saving.keep, t->saving.at};
    void *copy = last ? NULL : t->saving.copy;
    zx_ckpt_list(&job->train, &t->plan, &job->optim, &job->mem, &c);
    const zx_status st =
        zx_ckpt_begin(t->session, t->world, &c, &target, copy, &t->saving.under_way, &found);
    const uint64_t bytes = zx_ckpt_copy_bytes(&c, 1);
    zx_arena_rewind(&job->mem, mark);
    t->saving.begun = t->done;
    if (st != ZX_OK) return judge(t, st, t->done, bytes, last, &found, err);
    return copy != NULL ? ZX_OK : zx_train_save_settle(t, last, err);
}

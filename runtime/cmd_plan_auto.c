// cmd_plan_auto.c - zerox plan --auto: one global batch in every size of micro-batch that divides
// it, recomputed or not, in every ZeRO stage; planned one after the other, for the same machine and
// budget. The model is imported anew for each size of micro-batch.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/cmd_plan_auto.h"

#include <string.h>

#include "runtime/cmd_machine.h"
#include "runtime/outfile.h"
#include "runtime/plan_auto.h"
#include "runtime/simulate.h"
#include "sched/bound.h"

#define STAGES 4
#define MOST_MICRO ((int64_t)1 << 16)

// Those of the graph that import makes come first.
typedef enum how { HOW_NONE, HOW_AUTO, HOW_FULL, HOWS } how;
static const char *const how_words[HOWS] = {"none", "auto", "full"};

typedef struct trying {
    const zx_options *o;
    zx_arena mem;
    zx_auto a;
    zx_site site; // of all jobs
    uint32_t ranks;
    zx_batch given; // as the config has it, or the model
    uint32_t given_stage;
    how given_how;
    bool said;      // the first job's notes were printed
    zx_err refused; // of the first way that has no plan
} trying;

// ---- what is asked ------------------------------------------------------------------------------

static zx_status check_options(const zx_options *o, bool *json, zx_err *err)
{
    static const struct {
        zx_option_id id;
        const char *word;
    } other[] = {{ZX_OPT_POLICY, "--policy"},
                 {ZX_OPT_UNIT, "--unit"},
                 {ZX_OPT_INSTRUCTIONS, "--instructions"},
                 {ZX_OPT_CERTIFY, "--certify"},
                 {ZX_OPT_JITTER, "--jitter"},
                 {ZX_OPT_REPORT, "--report"},
                 {ZX_OPT_EVAL_DATA, "--eval-data"}};
    const char *format = zx_given_text(o, ZX_OPT_FORMAT);
    for (size_t i = 0; i < ZX_COUNT(other); i++)
        if (zx_given(o, other[i].id))
            return ZX_FAIL(err, ZX_E_USAGE, "--auto shows many plans: %s is of one", other[i].word);
    if (zx_given(o, ZX_OPT_OUTPUT) && format == NULL) {
        zx_err_hint(err, "--format text or json for the table in a file; zerox plan -o with a "
                         "row's options for its plan");
        return ZX_FAIL(err, ZX_E_USAGE, "--auto shows many plans: -o without --format is of one");
    }
    *json = format != NULL && strcmp(format, "json") == 0;
    if (format == NULL || *json || strcmp(format, "text") == 0) return ZX_OK;
    return ZX_FAIL(err, ZX_E_USAGE, "--format of plan --auto is text or json, not '%s'", format);
}

// The same command line for another micro-batch. What was given for it on the command line or in
// the config is the global batch by now.
static zx_options with_batch(const trying *t, int64_t micro)
{
    zx_options o = *t->o;
    const int64_t accumulate = t->a.total / t->ranks / micro;
    o.value[ZX_OPT_BATCH] = (zx_option_value){.n = 1, .number = (uint64_t)micro};
    o.value[ZX_OPT_ACCUMULATE] = (zx_option_value){.n = 1, .number = (uint64_t)accumulate};
    return o;
}

// Jobs close their site; this one is all theirs.
static void close_job(zx_job *job)
{
    job->site = (zx_site){0};
    zx_job_close(job);
}

// ---- one way ------------------------------------------------------------------------------------

static zx_auto_row way(const trying *t, int64_t micro, how h, uint32_t stage)
{
    return (zx_auto_row){.micro = micro,
                         .accumulate = t->a.total / t->ranks / micro,
                         .recompute = how_words[h],
                         .stage = stage,
                         .given = micro == t->given.micro && stage == t->given_stage &&
                                  h == t->given_how};
}

static void add_row(trying *t, const zx_auto_row *r)
{
    ZX_GROW(&t->mem, t->a.rows, t->a.n_rows, t->a.cap_rows);
    t->a.rows[t->a.n_rows++] = *r;
}

static void refuse(trying *t, zx_auto_row *r, const zx_err *found)
{
    r->refused = zx_arena_str(&t->mem, found->cause[0]);
    if (t->refused.code == ZX_OK) t->refused = *found;
}

// Whether the same micro-batch and stage has no plan for the same reason already.
static bool is_told(const trying *t, const zx_auto_row *r)
{
    for (uint32_t i = 0; i < t->a.n_rows; i++) {
        const zx_auto_row *x = &t->a.rows[i];
        if (x->micro == r->micro && x->stage == r->stage && x->refused != NULL &&
            strcmp(x->refused, r->refused) == 0)
            return true;
    }
    return false;
}

// `tokens` (or samples) of a step. What auto recomputes may be nothing: that row is there already.
static void plan_row(trying *t, const zx_job *job, const zx_plan_options *po, how h, double tokens)
{
    zx_auto_row r = way(t, job->batch.micro, h, po->stage);
    zx_arena mem = {0};
    zx_variant v = {.train = job->train};
    zx_plan_options with = *po;
    zx_plan plan;
    zx_bound bound;
    zx_err found = {0};
    const zx_status st = h == HOW_AUTO ? zx_job_choose(job, po, &mem, &v, &with, &plan, &found)
                                       : zx_plan_make(&job->train, po, &mem, &plan, &found);
    if (st == ZX_OK) {
        r.step = plan.step_seconds;
        r.peak_bytes = plan.arena_bytes;
        if (r.step > 0) r.rate = tokens / r.step;
        if (zx_bound_make(&v.train, &with, NULL, &bound, NULL) == ZX_OK) r.bound = bound.seconds;
    } else {
        refuse(t, &r, &found);
    }
    if (h != HOW_AUTO || (st == ZX_OK ? v.n > 0 : !is_told(t, &r))) add_row(t, &r);
    zx_arena_free(&mem);
}

// One rank has everything whole in any stage.
static bool is_stage(const trying *t, uint32_t stage)
{
    return (t->ranks > 1 && !zx_given(t->o, ZX_OPT_STAGE)) || stage == t->given_stage;
}

static zx_status plan_stages(trying *t, zx_job *job, how h, zx_err *err)
{
    zx_arena mem = {0};
    zx_plan_options po;
    uint64_t tokens = 0;
    const zx_status st = zx_job_plan_options(job, &mem, &po, err);
    if (st == ZX_OK) {
        zx_simulated_active(&job->forward, &tokens);
        t->a.unit = tokens > 0 ? "tokens" : "samples";
        if (tokens == 0) tokens = (uint64_t)job->batch.micro;
        t->a.budget = po.budget;
        t->a.machine = zx_arena_str(&t->mem, po.machine.name);
        const double all = (double)tokens * (double)job->batch.accumulate * t->ranks;
        for (po.stage = 0; po.stage < STAGES; po.stage++)
            if (is_stage(t, po.stage)) plan_row(t, job, &po, h, all);
    }
    zx_arena_free(&mem);
    return st;
}

// ---- one micro-batch ----------------------------------------------------------------------------

static bool is_how(const trying *t, how h)
{
    return !zx_given(t->o, ZX_OPT_RECOMPUTE) || h == t->given_how;
}

static void refuse_all(trying *t, int64_t micro, how h, const zx_err *found)
{
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        zx_auto_row r = way(t, micro, h, stage);
        if (!is_stage(t, stage)) continue;
        refuse(t, &r, found);
        add_row(t, &r);
    }
}

// A model that nothing of can be recomputed has no such row, and that is no error unless it was
// asked for.
static zx_status plan_hows(trying *t, zx_job *job, zx_err *err)
{
    const uint64_t plain = is_how(t, HOW_NONE) ? zx_graph_hash(&job->train) : 0;
    for (how h = HOW_NONE; h < HOWS; h++) {
        zx_err found = {0};
        zx_status st = ZX_OK;
        if (!is_how(t, h)) continue;
        job->recompute = h == HOW_FULL ? ZX_RECOMPUTE_FULL : ZX_RECOMPUTE_NONE;
        if (h == HOW_FULL) st = zx_job_train_graph(job, &found);
        if (st == ZX_OK && h == HOW_FULL && zx_graph_hash(&job->train) == plain)
            continue; // nothing is kept that could be made again
        if (st == ZX_OK)
            ZX_TRY(plan_stages(t, job, h, err));
        else if (st == ZX_E_UNSUPPORTED && !zx_given(t->o, ZX_OPT_RECOMPUTE))
            zx_note(&job->notes, &job->mem, "recomputation is left out: %s", found.cause[0]);
        else
            refuse_all(t, job->batch.micro, h, &found);
    }
    if (!t->said) zx_job_say_notes(job); // those of other micro-batches are the same
    t->said = true;
    return ZX_OK;
}

// A machine that there isn't is an error; a model that can't be had in this size is a row.
static zx_status try_micro(trying *t, int64_t micro, zx_err *err)
{
    const zx_options o = with_batch(t, micro);
    zx_job job = {.site = t->site};
    zx_err found = {0};
    zx_status st = zx_job_open(&job, &o, t->ranks, true, &found);
    job.recompute = ZX_RECOMPUTE_NONE;
    job.recompute_auto = false;
    if (st == ZX_OK) st = zx_job_import(&job, false, &found);
    if (st == ZX_OK) {
        st = plan_hows(t, &job, err);
    } else {
        for (how h = HOW_NONE; h < HOWS; h++)
            if (is_how(t, h)) refuse_all(t, micro, h, &found);
        st = ZX_OK;
    }
    close_job(&job);
    return st;
}

// ---- all ----------------------------------------------------------------------------------------

// The global batch, and what of it is fixed.
static zx_status open_given(trying *t, zx_err *err)
{
    zx_job job = {.site = t->site};
    zx_status st = zx_job_open(&job, t->o, t->ranks, true, err);
    if (st == ZX_OK) {
        t->given = job.batch;
        t->given_stage = (uint32_t)zx_config_get(&job.config, "zero_optimization.stage")->i;
        t->given_how = job.recompute_auto                   ? HOW_AUTO
                       : job.recompute == ZX_RECOMPUTE_FULL ? HOW_FULL
                                                            : HOW_NONE;
        t->a = (zx_auto){.model = t->o->operand,
                         .machine = "host",
                         .unit = "samples",
                         .ranks = t->ranks,
                         .total = job.batch.total,
                         .fixed_batch = job.fixed_batch,
                         .budget = UINT64_MAX,
                         .chosen = ZX_NONE};
    }
    close_job(&job);
    return st;
}

static bool any_fits(const zx_auto *a, uint32_t from)
{
    for (uint32_t i = from; i < a->n_rows; i++)
        if (a->rows[i].refused == NULL) return true;
    return false;
}

// The next size that divides a rank's samples; 0: there is none.
static int64_t next_micro(int64_t each, int64_t micro)
{
    for (int64_t next = micro + 1; next <= each && next <= MOST_MICRO; next++)
        if (each % next == 0) return next;
    return 0;
}

// Activations grow with the micro-batch: beyond a size of which nothing fits there is nothing.
static zx_status try_all(trying *t, zx_err *err)
{
    const int64_t each = t->a.total / t->ranks;
    if (t->a.fixed_batch > 0) return try_micro(t, t->a.fixed_batch, err);
    for (int64_t micro = 1; micro != 0; micro = next_micro(each, micro)) {
        const uint32_t from = t->a.n_rows;
        ZX_TRY(try_micro(t, micro, err));
        if (any_fits(&t->a, from)) continue;
        t->a.left_out = next_micro(each, micro);
        break;
    }
    return ZX_OK;
}

static zx_status put(const trying *t, bool json, zx_err *err)
{
    const char *path = zx_given_text(t->o, ZX_OPT_OUTPUT);
    zx_arena mem = {0};
    zx_text out = {0};
    zx_status st = ZX_OK;
    if (json)
        zx_auto_json(&t->a, &out);
    else
        zx_auto_text(&t->a, &out);
    if (path != NULL)
        st = zx_outfile_put(path, out.at, out.n, &mem, err);
    else
        zx_cmd_put(&out);
    if (st == ZX_OK && path != NULL) zx_cmd_wrote(path, &mem);
    zx_text_free(&out);
    zx_arena_free(&mem);
    return st;
}

zx_status zx_cmd_plan_auto(const zx_options *o, zx_err *err)
{
    trying t = {.o = o};
    uint64_t ranks = zx_cmd_ranks(o);
    bool json = false;
    zx_status st = check_options(o, &json, err);
    if (st == ZX_OK) st = zx_cmd_site_open(o, &t.site, &ranks, err);
    t.ranks = (uint32_t)ranks;
    if (st == ZX_OK) st = open_given(&t, err);
    if (st == ZX_OK) st = try_all(&t, err);
    if (st == ZX_OK) {
        zx_auto_judge(&t.a);
        if (t.a.chosen == ZX_NONE)
            st = zx_err_merge(err, &t.refused);
        else
            st = put(&t, json, err);
    }
    zx_site_close(&t.site);
    zx_arena_free(&t.mem);
    return st;
}

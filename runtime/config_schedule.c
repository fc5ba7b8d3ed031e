// config_schedule.c - the scheduler section of a config: which parameters each schedule has, what
// follows from the optimizer and from the run, and what is refused by name.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "runtime/config.h"

enum {
    WARMUP = 1 << ZX_LR_WARMUP,
    DECAY = 1 << ZX_LR_WARMUP_DECAY,
    COSINE = 1 << ZX_LR_WARMUP_COSINE,
    CYCLE = 1 << ZX_LR_ONE_CYCLE,
    RANGE = 1 << ZX_LR_RANGE_TEST,
    WARM = WARMUP | DECAY | COSINE
};

// What a parameter's value has to be.
typedef enum bounds { ANY, ABOVE_0, NOT_NEGATIVE, BELOW_1 } bounds;
static const char *const bounds_words[] = {"", "above 0", "0 or more", "0 or more and below 1"};

static const struct {
    const char *key;
    unsigned of; // the schedules that have it
    bool whole;  // an INT of config.def; else a REAL, or a switch
    bounds bounds;
    unsigned required; // by these, where it isn't "auto"
} params[] = {
    {"total_num_steps", DECAY | COSINE, true, ABOVE_0, DECAY | COSINE},
    {"warmup_min_lr", WARMUP | DECAY, false, NOT_NEGATIVE, 0},
    {"warmup_max_lr", WARMUP | DECAY, false, NOT_NEGATIVE, 0},
    {"warmup_num_steps", WARM, true, ABOVE_0, 0},
    {"warmup_type", WARM, false, ANY, 0},
    {"warmup_min_ratio", COSINE, false, NOT_NEGATIVE, 0},
    {"cos_min_ratio", COSINE, false, NOT_NEGATIVE, 0},
    {"cycle_min_lr", CYCLE, false, NOT_NEGATIVE, CYCLE},
    {"cycle_max_lr", CYCLE, false, NOT_NEGATIVE, CYCLE},
    {"cycle_first_step_size", CYCLE, true, ABOVE_0, 0},
    {"cycle_second_step_size", CYCLE, true, NOT_NEGATIVE, 0},
    {"cycle_first_stair_count", CYCLE, true, NOT_NEGATIVE, 0},
    {"cycle_second_stair_count", CYCLE, true, NOT_NEGATIVE, 0},
    {"decay_step_size", CYCLE, true, NOT_NEGATIVE, 0},
    {"decay_lr_rate", CYCLE, false, NOT_NEGATIVE, 0},
    {"cycle_momentum", CYCLE, false, ANY, 0},
    {"cycle_min_mom", CYCLE, false, BELOW_1, 0},
    {"cycle_max_mom", CYCLE, false, BELOW_1, 0},
    {"decay_mom_rate", CYCLE, false, NOT_NEGATIVE, 0},
    {"lr_range_test_min_lr", RANGE, false, NOT_NEGATIVE, 0},
    {"lr_range_test_step_size", RANGE, true, ABOVE_0, 0},
    {"lr_range_test_step_rate", RANGE, false, NOT_NEGATIVE, 0},
    {"lr_range_test_staircase", RANGE, false, ANY, 0},
};

static const char *path_of(const zx_config *c, const char *key)
{
    return zx_arena_printf(c->mem, "scheduler.params.%s", key);
}

static zx_config_value *param(const zx_config *c, const char *key)
{
    return (zx_config_value *)(uintptr_t)zx_config_get(c, path_of(c, key));
}

// ---- what is wrong ------------------------------------------------------------------------------

static bool find_kind(const zx_config *c, zx_lr_kind *kind, zx_err *found)
{
    static const char *const ours[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle",
                                       "LRRangeTest"};
    const zx_config_value *type = zx_config_get(c, "scheduler.type");
    *kind = ZX_LR_CONSTANT;
    if (!type->has) return true;
    for (uint32_t k = 1; k < ZX_LR_KINDS; k++)
        if (strcmp(type->text, zx_lr_kind_name(k)) == 0) *kind = k;
    if (*kind != ZX_LR_CONSTANT) return true;
    const char *near = zx_text_nearest(type->text, ours, ZX_COUNT(ours));
    if (near != NULL)
        zx_err_hint(found, "\"%s\"; docs/CONFIG.md has its parameters", near);
    else
        zx_err_hint(found, "one of the five, or no scheduler for a constant rate");
    ZX_FAIL(found, ZX_E_USAGE,
            "scheduler.type = \"%s\" is not supported: there are WarmupLR, WarmupDecayLR, "
            "WarmupCosineLR, OneCycle and LRRangeTest",
            zx_text_safe(c->mem, type->text));
    return false;
}

static bool within(bounds b, double v)
{
    return b == ANY || (b == ABOVE_0 && v > 0) || (b == NOT_NEGATIVE && v >= 0) ||
           (b == BELOW_1 && v >= 0 && v < 1);
}

static void check(const zx_config *c, zx_lr_kind kind, zx_err *found)
{
    const char *name = zx_lr_kind_name(kind);
    for (size_t i = 0; i < ZX_COUNT(params); i++) {
        const zx_config_value *v = param(c, params[i].key);
        const char *key = path_of(c, params[i].key);
        const bool its = (params[i].of >> kind & 1) != 0;
        const double x = params[i].whole ? (double)v->i : v->r;
        if (v->from == ZX_FROM_FILE && kind == ZX_LR_CONSTANT)
            ZX_FAIL(found, ZX_E_USAGE, "%s needs scheduler.type", key);
        else if (v->from == ZX_FROM_FILE && !its)
            ZX_FAIL(found, ZX_E_USAGE, "%s is no parameter of %s", key, name);
        else if ((params[i].required >> kind & 1) != 0 && v->from == ZX_FROM_DEFAULT)
            ZX_FAIL(found, ZX_E_USAGE, "%s is missing: %s needs it%s", key, name,
                    strcmp(params[i].key, "total_num_steps") == 0
                        ? "; \"auto\" is the number of the run's steps"
                        : "");
        else if (its && v->has && !within(params[i].bounds, x))
            ZX_FAIL(found, ZX_E_USAGE, "%s must be %s, not %g", key, bounds_words[params[i].bounds],
                    x);
    }
    if (kind == ZX_LR_ONE_CYCLE && param(c, "cycle_min_lr")->r > param(c, "cycle_max_lr")->r)
        ZX_FAIL(found, ZX_E_USAGE, "%s is above cycle_max_lr", path_of(c, "cycle_min_lr"));
}

// ---- what follows -------------------------------------------------------------------------------

// What isn't stated is as another number.
static void follow(zx_config_value *v, const zx_config_value *of)
{
    if (v->has) return;
    v->has = true;
    v->i = of->i;
    v->from = ZX_FROM_OTHERS;
}

// Values that only the type and the optimizer know, and parameters that aren't this type's.
static void complete(zx_config *c, zx_lr_kind kind, double lr)
{
    for (size_t i = 0; i < ZX_COUNT(params); i++)
        if ((params[i].of >> kind & 1) == 0) param(c, params[i].key)->has = false;
    zx_config_value *max = param(c, "warmup_max_lr"), *second = param(c, "cycle_second_step_size"),
                    *stairs = param(c, "cycle_second_stair_count");
    if ((kind == ZX_LR_WARMUP || kind == ZX_LR_WARMUP_DECAY) && !max->has) {
        // DeepSpeed's own default for decay is 1e-3, whatever the optimizer's rate.
        const bool own = kind == ZX_LR_WARMUP_DECAY && max->from == ZX_FROM_DEFAULT;
        max->has = true;
        max->r = own ? 1e-3 : lr;
        if (max->from == ZX_FROM_DEFAULT && !own) max->from = ZX_FROM_OTHERS;
    }
    if (kind != ZX_LR_ONE_CYCLE) return;
    follow(second, param(c, "cycle_first_step_size"));
    follow(stairs, param(c, "cycle_first_stair_count"));
}

static uint64_t steps_of(const zx_config *c, const char *key)
{
    return (uint64_t)param(c, key)->i;
}

static zx_lr_schedule read_schedule(const zx_config *c, zx_lr_kind kind, const zx_optim *o)
{
    const bool cycle = kind == ZX_LR_ONE_CYCLE, range = kind == ZX_LR_RANGE_TEST;
    const char *min = cycle ? "cycle_min_lr" : range ? "lr_range_test_min_lr" : "warmup_min_lr";
    const uint64_t warmup = steps_of(c, "warmup_num_steps");
    return (zx_lr_schedule){
        .kind = kind,
        .base = o->lr,
        .min = param(c, min)->r,
        .max = param(c, cycle ? "cycle_max_lr" : "warmup_max_lr")->r,
        .warmup = warmup > 2 ? warmup : 2, // DeepSpeed's: a logarithm of 1 would be divided by
        .total = steps_of(c, "total_num_steps"),
        .logarithmic = strcmp(param(c, "warmup_type")->text, "log") == 0,
        .from_ratio = param(c, "warmup_min_ratio")->r,
        .to_ratio = param(c, "cos_min_ratio")->r,
        .first = (double)steps_of(c, "cycle_first_step_size"),
        .second = (double)steps_of(c, "cycle_second_step_size"),
        .first_stairs = steps_of(c, "cycle_first_stair_count"),
        .second_stairs = steps_of(c, "cycle_second_stair_count"),
        .decay_steps = (double)steps_of(c, "decay_step_size"),
        .decay_rate = param(c, "decay_lr_rate")->r,
        .momentum = param(c, "cycle_momentum")->b && o->kind != ZX_OPTIM_SGD,
        .min_momentum = param(c, "cycle_min_mom")->r,
        .max_momentum = param(c, "cycle_max_mom")->r,
        .momentum_rate = param(c, "decay_mom_rate")->r,
        .size = (double)steps_of(c, "lr_range_test_step_size"),
        .rate = param(c, "lr_range_test_step_rate")->r,
        .staircase = param(c, "lr_range_test_staircase")->b,
    };
}

zx_status zx_config_schedule(zx_config *c, zx_optim *optim, zx_err *err)
{
    zx_lr_kind kind;
    zx_err found = {0};
    optim->schedule = (zx_lr_schedule){.base = optim->lr};
    if (find_kind(c, &kind, &found)) check(c, kind, &found);
    if (found.code != ZX_OK) {
        if (c->path != NULL) zx_err_in(&found, "%s", c->path);
        return zx_err_merge(err, &found);
    }
    complete(c, kind, optim->lr);
    optim->schedule = read_schedule(c, kind, optim);
    return ZX_OK;
}

// ---- what follows from the run ------------------------------------------------------------------

// A config made for another run often has its number of steps.
static void note_total(zx_config *c, const zx_lr_schedule *s, uint64_t steps, zx_notes *notes)
{
    if (s->kind != ZX_LR_WARMUP_DECAY && s->kind != ZX_LR_WARMUP_COSINE) return;
    const char *key = path_of(c, "total_num_steps");
    const unsigned long long total = s->total, run = steps;
    if (s->total < s->warmup)
        zx_note(notes, c->mem, "%s %llu ends within the warm-up of %llu steps", key, total,
                (unsigned long long)s->warmup);
    else if (s->total < steps)
        zx_note(notes, c->mem, "%s is %llu, this run has %llu steps: the last ones are at %g", key,
                total, run, zx_lr_at(s, steps - 1));
}

zx_status zx_config_schedule_steps(zx_config *c, uint64_t steps, zx_optim *optim, zx_notes *notes,
                                   zx_err *err)
{
    enum { MOST_WARMUP = 1000 }; // DeepSpeed's default
    zx_lr_schedule *s = &optim->schedule;
    zx_config_value *total = param(c, "total_num_steps"), *warmup = param(c, "warmup_num_steps");
    const bool has_total = s->kind == ZX_LR_WARMUP_DECAY || s->kind == ZX_LR_WARMUP_COSINE;
    if (has_total && total->from == ZX_FROM_AUTO) {
        s->total = steps;
        total->has = true;
        total->later = false;
        total->i = (int64_t)steps;
    }
    if (warmup->has && warmup->from == ZX_FROM_AUTO) {
        const uint64_t tenth = (steps + 9) / 10, n = tenth < MOST_WARMUP ? tenth : MOST_WARMUP;
        s->warmup = n > 2 ? n : 2;
        warmup->i = (int64_t)n;
        warmup->later = false;
        zx_note(notes, c->mem, "%s: auto: %llu, a tenth of the run's steps, 1000 at most",
                path_of(c, "warmup_num_steps"), (unsigned long long)n);
    }
    note_total(c, s, steps, notes);
    if (s->kind == ZX_LR_ONE_CYCLE && !s->momentum && param(c, "cycle_momentum")->b)
        zx_note(notes, c->mem, "%s has no effect: %s has no betas", path_of(c, "cycle_momentum"),
                zx_config_get(c, "optimizer.type")->text);
    double beta1 = 0, beta2 = 0; // it only grows after the cycle
    zx_lr_betas_at(s, steps - 1, &beta1, &beta2);
    if (beta1 < 1) return ZX_OK;
    zx_err found = {0};
    ZX_FAIL(&found, ZX_E_USAGE, "%s: beta1 would reach %g in %llu steps; it has to stay below 1",
            path_of(c, "decay_mom_rate"), beta1, (unsigned long long)steps);
    if (c->path != NULL) zx_err_in(&found, "%s", c->path);
    return zx_err_merge(err, &found);
}

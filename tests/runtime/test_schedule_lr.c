// test_schedule_lr.c - learning rates and betas of every schedule against sequences of DeepSpeed's
// own classes (tests/data/schedules), what is refused by name, and what follows from the run.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "runtime/config.h"
#include "tests/test.h"

#define LIST(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define MOST 20
static const struct golden {
    const char *name, *json;
    uint32_t steps;
    double lr[MOST], betas[MOST][2];
} goldens[] = {
#define ROW(name, json, steps, rates, betas) {name, json, steps, rates, betas},
#include "tests/data/schedules/schedules.def"
#undef ROW
};

static bool causes_have(const zx_err *err, const char *part)
{
    for (uint32_t i = 0; i < err->n_causes && i < ZX_ERR_KEPT; i++)
        if (strstr(err->cause[i], part) != NULL) return true;
    return false;
}

static zx_status resolve(const char *json, zx_arena *mem, zx_config *c, zx_optim *o, zx_err *err)
{
    zx_notes notes = {0};
    double clip;
    ZX_TRY(zx_config_parse("z", json, strlen(json), false, mem, c, &notes, err));
    ZX_TRY(zx_config_optim(c, o, &clip, err));
    return zx_config_schedule(c, o, err);
}

// Of any step, in any order: nothing is kept between them.
static void golden(void **state)
{
    const struct golden *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_config c;
    zx_optim o;
    assert_zx_ok(resolve(row->json, &mem, &c, &o, &err), &err);
    for (uint32_t k = row->steps; k-- > 0;) {
        double betas[2] = {o.beta1, o.beta2};
        const double lr = zx_lr_at(&o.schedule, k);
        zx_lr_betas_at(&o.schedule, k, &betas[0], &betas[1]);
        if (lr != row->lr[k]) fail_msg("step %u: lr %.17g, not %.17g", k + 1, lr, row->lr[k]);
        for (int b = 0; b < 2; b++)
            if (betas[b] != row->betas[k][b])
                fail_msg("step %u: beta%d %.17g, not %.17g", k + 1, b + 1, betas[b],
                         row->betas[k][b]);
    }
    zx_config_close(&c);
    zx_arena_free(&mem);
}

#define SCHED(type, params) "{\"scheduler\": {\"type\": \"" type "\", \"params\": {" params "}}}"
#define CYCLE "\"cycle_min_lr\": 0.1, \"cycle_max_lr\": 1"
static const struct refusal {
    const char *name, *json, *cause;
} refusals[] = {
    {"a type that there isn't", SCHED("StepLR", ""), "scheduler.type = \"StepLR\" is not"},
    {"a type in other letters", SCHED("warmuplr", ""), "there are WarmupLR"},
    {"parameters without a type", "{\"scheduler\": {\"params\": {\"warmup_num_steps\": 3}}}",
     "scheduler.params.warmup_num_steps needs scheduler.type"},
    {"another schedule's parameter", SCHED("WarmupLR", "\"total_num_steps\": 5"),
     "scheduler.params.total_num_steps is no parameter of WarmupLR"},
    {"no total for decay", SCHED("WarmupDecayLR", ""),
     "scheduler.params.total_num_steps is missing: WarmupDecayLR needs it"},
    {"no total for a cosine", SCHED("WarmupCosineLR", ""), "total_num_steps is missing"},
    {"no rates of a cycle", SCHED("OneCycle", "\"cycle_max_lr\": 1"),
     "scheduler.params.cycle_min_lr is missing: OneCycle needs it"},
    {"a warm-up of 0 steps", SCHED("WarmupLR", "\"warmup_num_steps\": 0"),
     "scheduler.params.warmup_num_steps must be above 0, not 0"},
    {"half a step", SCHED("WarmupLR", "\"warmup_num_steps\": 2.5"), "must be a whole number"},
    {"a total of 0", SCHED("WarmupDecayLR", "\"total_num_steps\": 0"), "must be above 0"},
    {"a way of rising that there isn't", SCHED("WarmupLR", "\"warmup_type\": \"cubic\""),
     "scheduler.params.warmup_type must be one of log|linear"},
    {"a negative rate", SCHED("WarmupLR", "\"warmup_max_lr\": -1"),
     "scheduler.params.warmup_max_lr must be 0 or more, not -1"},
    {"a list of rates", SCHED("WarmupLR", "\"warmup_max_lr\": [1]"), "must be a number"},
    {"no first half", SCHED("OneCycle", CYCLE ", \"cycle_first_step_size\": 0"),
     "cycle_first_step_size must be above 0"},
    {"momentum of 1", SCHED("OneCycle", CYCLE ", \"cycle_max_mom\": 1"),
     "cycle_max_mom must be 0 or more and below 1"},
    {"a cycle upside down", SCHED("OneCycle", "\"cycle_min_lr\": 1, \"cycle_max_lr\": 0.5"),
     "cycle_min_lr is above cycle_max_lr"},
    {"a range test of no steps", SCHED("LRRangeTest", "\"lr_range_test_step_size\": 0"),
     "lr_range_test_step_size must be above 0"},
    {"a schedule that began elsewhere", SCHED("WarmupLR", "\"last_batch_iteration\": 5"),
     "last_batch_iteration = 5 is not supported"},
    {"a misspelt parameter", SCHED("WarmupLR", "\"warmup_steps\": 5"),
     "unknown key 'scheduler.params.warmup_steps'"},
};

static void refused(void **state)
{
    const struct refusal *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_config c;
    zx_optim o;
    assert_int_equal(resolve(row->json, &mem, &c, &o, &err), ZX_E_USAGE);
    if (!causes_have(&err, row->cause)) fail_msg("said: %s", err.cause[0]);
    zx_config_close(&c);
    zx_arena_free(&mem);
}

// Warm-ups of 0, 1 and 2 steps, by logarithm and by a line, in a run of twice the total: refused by
// name, or a rate that is a number from 0 to the highest at every step, and that of the end behind
// it.
static void short_warmups_have_rates(void **state)
{
    (void)state;
    static const char *const types[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
    static const char *const ways[] = {"log", "linear"};
    for (uint32_t i = 0; i < 18; i++) {
        const char *type = types[i / 6], *way = ways[i / 3 % 2];
        const uint32_t warm = i % 3, total = 10;
        char json[256];
        zx_arena mem = {0};
        zx_err err = {0};
        zx_config c;
        zx_optim o;
        snprintf(json, sizeof json,
                 "{\"scheduler\": {\"type\": \"%s\", \"params\": {%s\"warmup_num_steps\": %u, "
                 "\"warmup_type\": \"%s\"}}}",
                 type, i < 6 ? "" : "\"total_num_steps\": 10, ", warm, way);
        const zx_status st = resolve(json, &mem, &c, &o, &err);
        if (st == ZX_OK) {
            for (uint64_t k = 0; k < 2 * total; k++) {
                const double lr = zx_lr_at(&o.schedule, k);
                if (!(lr >= 0 && lr <= 1e-3)) fail_msg("%s: step %d: %g", json, (int)k + 1, lr);
            }
            const double end = zx_lr_at(&o.schedule, total + 1); // the first two steps are alike
            for (uint64_t k = total + 1; k < 2 * total; k++)
                assert_true(zx_lr_at(&o.schedule, k) == end);
            if (i < 6 ? end != 1e-3 : end > 1.001e-7) fail_msg("%s ends at %.17g", json, end);
        } else {
            assert_int_equal(warm, 0);
            assert_true(causes_have(&err, "warmup_num_steps"));
        }
        zx_config_close(&c);
        zx_arena_free(&mem);
    }
}

static const struct run_row {
    const char *name, *json;
    uint64_t steps;
    const char *cause, *note; // NULL: accepted; nothing is said
    double first, last;       // rates of the first and last step, where accepted
    const char *written;      // in the resolved config
} runs[] = {
    {"auto is of the run",
     SCHED("WarmupDecayLR", "\"total_num_steps\": \"auto\", \"warmup_num_steps\": \"auto\", "
                            "\"warmup_max_lr\": \"auto\", \"warmup_min_lr\": \"auto\""),
     40, NULL, "scheduler.params.warmup_num_steps: auto: 4", 0, 1e-3 * 2 / 36,
     "\"total_num_steps\": 40"},
    {"auto of a short run", SCHED("WarmupLR", "\"warmup_num_steps\": \"auto\""), 3, NULL,
     "warmup_num_steps: auto: 1,", 0, 1e-3 * 1, "\"warmup_num_steps\": 1"},
    {"auto of a long run", SCHED("WarmupLR", "\"warmup_num_steps\": \"auto\""), 100000, NULL,
     "warmup_num_steps: auto: 1000,", 0, 1e-3, "\"warmup_max_lr\": 0.001"},
    {"a total shorter than the run",
     SCHED("WarmupDecayLR", "\"total_num_steps\": 4, \"warmup_num_steps\": 2"), 10, NULL,
     "total_num_steps is 4, this run has 10 steps: the last ones are at 0", 0, 0, NULL},
    {"a cosine shorter than the run",
     SCHED("WarmupCosineLR", "\"total_num_steps\": 10, \"warmup_num_steps\": 2"), 20, NULL,
     "total_num_steps is 10, this run has 20 steps: the last ones are at 1e-07", 0, 1e-7, NULL},
    {"a decay of half the run",
     SCHED("WarmupDecayLR", "\"total_num_steps\": 10, \"warmup_num_steps\": 2"), 20, NULL,
     "total_num_steps is 10, this run has 20 steps: the last ones are at 0", 0, 0, NULL},
    {"a warm-up of 1 step, by logarithm",
     SCHED("WarmupLR", "\"warmup_num_steps\": 1, \"warmup_type\": \"log\""), 3, NULL, NULL, 0, 1e-3,
     NULL},
    {"a warm-up of 1 step, by a line",
     SCHED("WarmupLR", "\"warmup_num_steps\": 1, \"warmup_type\": \"linear\""), 3, NULL, NULL, 0,
     1e-3 / 2, NULL},
    {"a total within the warm-up", SCHED("WarmupDecayLR", "\"total_num_steps\": 4"), 4, NULL,
     "ends within the warm-up of 1000 steps", 0, 1e-3 * 0.15904041823988746, NULL},
    {"the optimizer's rate counts for nothing",
     "{\"optimizer\": {\"params\": {\"lr\": 1}}, \"scheduler\": {\"type\": \"LRRangeTest\"}}", 1,
     NULL, "optimizer.params.lr has no effect: the schedule has rates of its own", 1e-3, 1e-3,
     NULL},
    {"but for the rates of groups, which are multiples of it",
     "{\"optimizer\": {\"params\": {\"lr\": 1}}, \"scheduler\": {\"type\": \"LRRangeTest\"}, "
     "\"zerox\": {\"param_groups\": [{\"max_dims\": 1, \"lr\": 2}]}}",
     1, NULL, NULL, 1e-3, 1e-3, NULL},
    {"betas that SGD hasn't",
     "{\"optimizer\": {\"type\": \"SGD\"}, \"scheduler\": {\"type\": \"OneCycle\", \"params\": "
     "{" CYCLE "}}}",
     1, NULL, "cycle_momentum has no effect: SGD has no betas", 0.1, 0.1, NULL},
    {"momentum that would reach 1",
     SCHED("OneCycle",
           CYCLE ", \"cycle_first_step_size\": 2, \"decay_step_size\": 1, \"decay_mom_rate\": 0.1"),
     20, "z: scheduler.params.decay_mom_rate: beta1 would reach", NULL, 0, 0, NULL},
    {"the same in few steps",
     SCHED("OneCycle",
           CYCLE ", \"cycle_first_step_size\": 2, \"decay_step_size\": 1, \"decay_mom_rate\": 0.1"),
     6, NULL, NULL, 0.1, 0.1, "\"cycle_second_step_size\": 2"},
    {"none", "{}", 10, NULL, NULL, 1e-3, 1e-3, "\"optimizer\""},
};

static void run(void **state)
{
    const struct run_row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_text out = {0};
    zx_config c;
    zx_optim o;
    assert_zx_ok(resolve(row->json, &mem, &c, &o, &err), &err);
    zx_config_idle(&c, &notes);
    const zx_status st = zx_config_schedule_steps(&c, row->steps, &o, &notes, &err);
    if (row->cause != NULL) {
        assert_int_equal(st, ZX_E_USAGE);
        if (!causes_have(&err, row->cause)) fail_msg("said: %s", err.cause[0]);
    } else {
        assert_zx_ok(st, &err);
        assert_true(zx_lr_at(&o.schedule, 0) == row->first);
        const double last = zx_lr_at(&o.schedule, row->steps - 1);
        if (fabs(last - row->last) > 1e-12) fail_msg("the last rate is %.17g", last);
        zx_config_write(&c, "", &out);
        if (row->written != NULL && strstr(out.at, row->written) == NULL) fail_msg("%s", out.at);
    }
    bool noted = row->note == NULL && notes.n == 0;
    for (uint32_t i = 0; i < notes.n && row->note != NULL; i++)
        noted |= strstr(notes.text[i], row->note) != NULL;
    if (!noted) fail_msg("noted: %s", notes.n > 0 ? notes.text[0] : "nothing");
    zx_text_free(&out);
    zx_config_close(&c);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(goldens) + ZX_COUNT(refusals) + ZX_COUNT(runs) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(goldens); i++)
        tests[n++] = zx_case(goldens[i].name, golden, &goldens[i]);
    for (size_t i = 0; i < ZX_COUNT(refusals); i++)
        tests[n++] = zx_case(refusals[i].name, refused, &refusals[i]);
    for (size_t i = 0; i < ZX_COUNT(runs); i++) tests[n++] = zx_case(runs[i].name, run, &runs[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(short_warmups_have_rates);
    return cmocka_run_group_tests_name("runtime.schedule_lr", tests, NULL, NULL);
}

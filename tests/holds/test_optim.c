// test_optim.c - schedules, parameter groups, Lion and frozen parameters in whole runs: the same
// bits at every stage and budget, with layers recomputed too; what is frozen stays as it was, costs
// no gradient and no state, and changes no other gradient; the log has each step's rate.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "tests/holds/holds.h"

#define CASES ZX_TEST_DATA "/cases/"
#define CASE(name, input)                                                                          \
    CASES name "/model.onnx --data " input "=" CASES name "/" input                                \
               ".npy --data labels=" CASES name "/labels.npy"
#define BYTES ZX_SOURCE "/models/bytegpt/"
#define GPT2 CASE("gpt2", "input_ids")
#define BYTEGPT                                                                                    \
    BYTES "model.onnx --data input_ids=" BYTES "text.txt --data labels=" BYTES "text.txt:+1"
#define STAGE_3 "\"zero_optimization\": {\"stage\": 3}"

static void config(const char *name, const char *json)
{
    holds_write(name, json, strlen(json));
}

// ---- the same bits ------------------------------------------------------------------------------

#define COSINE                                                                                     \
    "\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": \"auto\", "   \
    "\"warmup_num_steps\": 2, \"warmup_min_ratio\": 0.1}}"
#define CYCLE                                                                                      \
    "\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1e-3, "                \
    "\"cycle_max_lr\": 1e-2, \"cycle_first_step_size\": 2}}"
#define LION                                                                                       \
    "\"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.1}}"
#define GROUPS                                                                                     \
    "\"param_groups\": [{\"params\": \"*lm_head*\", \"lr\": 1e-4}, {\"max_dims\": 1, "             \
    "\"weight_decay\": 0}]"
#define LOW "\"freeze\": [\"*lm_head*\", \"*.wpe.*\", \"*.h.0.*\", \"*.h.1.*\"]"
#define MIDDLE "\"freeze\": [\"*.h.1.*\", \"*.bias\"]"

static const struct same_row {
    const char *name, *args, *json;
    int ranks;
    bool few;
    const char *options[5]; // of the runs that have to agree with the first one
} sames[] = {
    {"Lion, a cosine and groups",
     GPT2,
     "{" STAGE_3 ", " LION ", " COSINE ", \"zerox\": {" GROUPS "}}",
     2,
     true,
     {"--stage 0", "--stage 1 --budget min", "--stage 2", "--budget min --poison"}},
    {"one cycle of rate and beta",
     GPT2,
     "{" STAGE_3 ", " CYCLE "}",
     3,
     false,
     {"--stage 0", "--budget min"}},
    {"the first layers and the tied table are frozen",
     GPT2,
     "{" STAGE_3 ", \"zerox\": {" LOW "}}",
     2,
     true,
     {"--stage 0", "--stage 1", "--stage 2", "--budget min --poison --recompute full"}},
    {"the same in bf16, by Lion",
     GPT2,
     "{" STAGE_3 ", \"bf16\": {\"enabled\": true}, " LION ", \"zerox\": {" LOW ", " GROUPS "}}",
     2,
     false,
     {"--stage 0", "--budget min --recompute full"}},
    {"a layer between and all biases are frozen, dropout",
     BYTEGPT,
     "{" STAGE_3 ", \"train_micro_batch_size_per_gpu\": 8, \"zerox\": {" MIDDLE "}}",
     2,
     false,
     {"--stage 0", "--recompute full", "--recompute auto --budget min"}},
};

static void same(void **state)
{
    const struct same_row *row = *state;
    static holds_row rows[HOLDS_ROWS];
    config("same.json", row->json);
    holds_train("first", "%s --config same.json --ranks %d --steps 4 --force", row->args,
                row->ranks);
    for (size_t i = 0; i < ZX_COUNT(row->options) && row->options[i] != NULL; i++) {
        if (test_few() && i != (size_t)(row - sames)) continue;
        holds_train("other", "%s --config same.json --ranks %d --steps 4 --force %s", row->args,
                    row->ranks, row->options[i]);
        holds_expect_same("first", "other");
        const uint64_t peak = holds_decided("other", "planned_peak_bytes");
        const uint32_t n = holds_log("other", rows);
        for (uint32_t k = 0; k < n; k++) assert_true(rows[k].peak_bytes == peak);
    }
}

// ---- what is frozen -----------------------------------------------------------------------------

static bool is_low(const char *name)
{
    return strstr(name, "lm_head") != NULL || strstr(name, ".wpe.") != NULL ||
           strstr(name, ".h.0.") != NULL || strstr(name, ".h.1.") != NULL;
}

static bool is_zero(const zx_safe_tensor *t)
{
    const uint64_t n = zx_type_bytes(&t->type);
    for (uint64_t i = 0; i < n; i++)
        if (((const char *)t->data)[i] != 0) return false;
    return true;
}

// Frozen: gradient zero, weights those of a run that moves nothing. Others: the gradient of a run
// in which all are trained, bit for bit, and moved.
static void frozen_stays(void **state ZX_UNUSED)
{
    holds_tensors grads, all, still, after;
    config("all.json", "{" STAGE_3 "}");
    config("still.json", "{" STAGE_3 ", \"optimizer\": {\"type\": \"SGD\", \"params\": "
                         "{\"lr\": 0}}}");
    config("low.json", "{" STAGE_3 ", \"zerox\": {" LOW "}}");
    holds_train("all", GPT2 " --config all.json --ranks 2 --steps 1 --dump-grads all.grads");
    holds_train("still", GPT2 " --config still.json --ranks 2 --steps 1");
    holds_train("low", GPT2 " --config low.json --ranks 2 --steps 2 --dump-grads low.grads");
    assert_true(holds_says("low.err", "frozen: 120k parameters in 26 of 52 tensors"));
    holds_open(&grads, "low.grads");
    holds_open(&all, "all.grads");
    holds_open(&still, "still/model.safetensors");
    holds_open(&after, "low/model.safetensors");
    uint32_t n_frozen = 0;
    for (uint32_t i = 0; i < after.file.n; i++) {
        const zx_safe_tensor *w = &after.file.tensors[i];
        const zx_safe_tensor *was = zx_safe_find(&still.file, w->name),
                             *g = zx_safe_find(&grads.file, w->name),
                             *full = zx_safe_find(&all.file, w->name);
        assert_true(was != NULL && g != NULL && full != NULL && !is_zero(full));
        const size_t n = (size_t)zx_type_bytes(&w->type);
        const bool stays = memcmp(w->data, was->data, n) == 0;
        if (stays != is_low(w->name)) fail_msg("%s %s", w->name, stays ? "stays" : "moves");
        if (is_zero(g) != is_low(w->name)) fail_msg("the gradient of %s", w->name);
        if (!is_low(w->name) && memcmp(g->data, full->data, n) != 0)
            fail_msg("the gradient of %s isn't what it is with all trained", w->name);
        n_frozen += is_low(w->name);
    }
    assert_int_equal(n_frozen, 26);
    holds_close(&grads);
    holds_close(&all);
    holds_close(&still);
    holds_close(&after);
}

// In the plan: no gradient, no state, still gathered; nothing runs backward below what is trained.
static void frozen_plan(void **state ZX_UNUSED)
{
    config("all.json", "{" STAGE_3 "}");
    config("low.json", "{" STAGE_3 ", \"zerox\": {" LOW "}}");
    json_t *all = holds_plan(GPT2 " --config all.json --ranks 2 --budget min");
    json_t *low = holds_plan(GPT2 " --config low.json --ranks 2 --budget min");
    const json_t *unit;
    size_t i;
    json_array_foreach(json_object_get(low, "units"), i, unit)
    {
        const bool is = is_low(json_string_value(json_object_get(unit, "name")));
        const bool grad = !json_is_null(json_object_get(unit, "grad_slot"));
        const size_t states = json_array_size(json_object_get(unit, "state_slots"));
        assert_true(grad == !is && states == (is ? 0 : 2));
    }
    const json_int_t held = json_integer_value(json_object_get(low, "held_bytes")),
                     had = json_integer_value(json_object_get(all, "held_bytes"));
    assert_true(held < had * 3 / 4);
    assert_true(json_array_size(json_object_get(low, "steps")) <
                json_array_size(json_object_get(all, "steps")) * 4 / 5);
    json_decref(all);
    json_decref(low);
}

// ---- what is said -------------------------------------------------------------------------------

// log.jsonl and DeepSpeed's line have the rate of the step; resuming it in the middle would need
// nothing but the number of steps.
static void rates_are_logged(void **state ZX_UNUSED)
{
    static const double want[] = {1e-4, 1e-4, 1e-3 * (0.1 + 0.9 * 1), 0.00075};
    config("log.json",
           "{" STAGE_3 ", \"steps_per_print\": 1, " COSINE ", \"zerox\": {" GROUPS "}}");
    holds_train("log", GPT2 " --config log.json --ranks 1 --steps 4");
    size_t n;
    char *log = holds_read("log/log.jsonl", &n), *at = log;
    double lr[4];
    for (int i = 0; i < 4; i++) {
        at = strstr(at, "\"lr\": ");
        assert_non_null(at);
        lr[i] = strtod(at += 6, NULL);
    }
    free(log);
    assert_true(lr[0] == 0 && fabs(lr[1] - want[1]) < 1e-12 && fabs(lr[2] - want[2]) < 1e-12);
    assert_true(lr[3] < lr[2] && lr[3] > 0);
    assert_true(holds_says("log.err", "learning rate: WarmupCosineLR: 0.0001 to 0.001 in 2 steps"));
    assert_true(holds_says("log.err", "step=1, skipped=0, lr=[0.0001], mom=[[0.9, 0.999]]"));
    assert_true(holds_says("log.err", "group 0: 1 tensor, lr 0.0001, weight_decay 0"));
    assert_true(holds_says("log.err", "group 1: 34 tensors, lr 0.001, weight_decay 0"));
    assert_true(holds_says("log/config.json", "\"total_num_steps\": 4"));
    // config.json is a config that gives the same run.
    holds_train("again", GPT2 " --config log/config.json --ranks 1 --steps 4");
    holds_expect_same("log", "again");
}

// One step beside the same one without groups: a rate of 0 holds the table of positions, decay
// moves what has one dimension (and isn't 0) elsewhere, all others get the same bits.
static void groups_act(void **state ZX_UNUSED)
{
    holds_tensors still, plain, grouped;
    config("still.json", "{" STAGE_3 ", \"optimizer\": {\"type\": \"SGD\", \"params\": "
                         "{\"lr\": 0}}}");
    config("plain.json", "{" STAGE_3 "}");
    config("grouped.json", "{" STAGE_3 ", \"zerox\": {\"param_groups\": [{\"params\": \"*.wpe.*\", "
                           "\"lr\": 0}, {\"max_dims\": 1, \"weight_decay\": 0.5}]}}");
    holds_train("still", GPT2 " --config still.json --ranks 2 --steps 1 --force");
    holds_train("plain", GPT2 " --config plain.json --ranks 2 --steps 1 --force");
    holds_train("grouped", GPT2 " --config grouped.json --ranks 2 --steps 1 --force");
    holds_open(&still, "still/model.safetensors");
    holds_open(&plain, "plain/model.safetensors");
    holds_open(&grouped, "grouped/model.safetensors");
    for (uint32_t i = 0; i < grouped.file.n; i++) {
        const zx_safe_tensor *x = &grouped.file.tensors[i],
                             *was = zx_safe_find(&still.file, x->name),
                             *other = zx_safe_find(&plain.file, x->name);
        const size_t n = (size_t)zx_type_bytes(&x->type);
        const bool held = strstr(x->name, ".wpe.") != NULL,
                   decays = x->type.shape.rank <= 1 && !is_zero(was);
        const zx_safe_tensor *want = held ? was : other;
        if ((memcmp(x->data, want->data, n) == 0) == decays) fail_msg("%s", x->name);
    }
    holds_close(&still);
    holds_close(&plain);
    holds_close(&grouped);
}

// Groups have whole tensors' members at every stage, and `check` lists them.
static void groups_are_listed(void **state ZX_UNUSED)
{
    config("groups.json", "{" STAGE_3 ", \"zerox\": {" GROUPS ", " MIDDLE "}}");
    assert_int_equal(holds_zerox("check", "check " GPT2 " --config groups.json"), 0);
    assert_true(holds_says("check.out", "m.transformer.ln_f.weight [64], group 1\n"));
    assert_true(
        holds_says("check.out", "m.transformer.h.1.attn.c_attn.weight [64, 192], frozen\n"));
    assert_true(holds_says("check.out", "m.transformer.h.2.ln_1.bias [64], frozen, group 1\n"));
}

// ---- layers by name -----------------------------------------------------------------------------

static void layers_by_name(void **state ZX_UNUSED)
{
    static const struct {
        const char *json, *recomputed;
    } rows[] = {
        {"\"zerox\": {\"recompute\": [\"*.h.0\", \"*.h.2\"]}", "2 of 4 layers recomputed"},
        {"\"activation_checkpointing\": {\"number_checkpoints\": 3}", "3 of 4 layers recomputed"},
        {"\"zerox\": {\"recompute\": \"*.h.?\", \"freeze\": \"*.h.2.*\"}",
         "4 of 4 layers recomputed"}};
    config("all.json", "{" STAGE_3 "}");
    config("frozen.json", "{" STAGE_3 ", \"zerox\": {\"freeze\": \"*.h.2.*\"}}");
    holds_train("kept", GPT2 " --config all.json --ranks 2 --steps 2");
    holds_train("frozen", GPT2 " --config frozen.json --ranks 2 --steps 2");
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        char json[256];
        snprintf(json, sizeof json, "{" STAGE_3 ", %s}", rows[i].json);
        config("named.json", json);
        holds_train("named", GPT2 " --config named.json --ranks 2 --steps 2 --force");
        holds_expect_same(i == 2 ? "frozen" : "kept", "named");
        if (!holds_says("named/config.json", rows[i].recomputed)) fail_msg("%s", json);
        if (i != 1) continue;
        // config.json is a config that gives the same run.
        holds_train("same", GPT2 " --config named/config.json --ranks 2 --steps 2");
        if (!holds_says("same/config.json", rows[i].recomputed)) fail_msg("%s, again", json);
    }
    // Below all that is trained there is nothing to make again, which is said.
    config("below.json", "{" STAGE_3 ", \"zerox\": {" LOW ", \"recompute\": \"*.h.0\"}}");
    holds_train("below", GPT2 " --config below.json --ranks 2 --steps 1");
    assert_true(holds_says("below.err", "zerox.recompute: nothing that these layers keep"));
    assert_false(holds_says("same.err", "nothing that these layers keep"));
}

// Stopped in the middle of a cycle and gone on with: rates, betas, groups and what is frozen
// follow.
static void resumed(void **state ZX_UNUSED)
{
    static holds_row whole[HOLDS_ROWS], half[HOLDS_ROWS];
    config("resumed.json",
           "{" STAGE_3 ", " LION ", " CYCLE ", \"zerox\": {" GROUPS ", " MIDDLE "}}");
    holds_train("whole", GPT2 " --config resumed.json --ranks 2 --steps 6");
    holds_train("half", GPT2 " --config resumed.json --ranks 2 --steps 3 --save-every 3");
    assert_int_equal(holds_zerox("rest", "train --resume half --steps 6"), 0);
    assert_int_equal(holds_log("whole", whole), 6);
    assert_int_equal(holds_log("half", half), 6);
    for (int i = 0; i < 6; i++)
        assert_true(whole[i].loss == half[i].loss && whole[i].grad_norm == half[i].grad_norm);
}

// Every example of docs/OPTIMIZERS.md trains.
static void documented(void **state ZX_UNUSED)
{
    size_t n;
    uint32_t examples = 0;
    char *doc = holds_read(ZX_SOURCE "/docs/OPTIMIZERS.md", &n), *at = doc;
    while ((at = strstr(at, "```json\n")) != NULL) {
        at += strlen("```json\n");
        char *end = strstr(at, "```");
        assert_non_null(end);
        *end = '\0';
        config("example.json", at);
        holds_train("example", GPT2 " --config example.json --ranks 2 --steps 2 --force");
        at = end + 1;
        examples++;
    }
    assert_true(examples >= 3);
    free(doc);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(sames) + 8];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(sames); i++)
        if (!test_few() || sames[i].few) tests[n++] = zx_case(sames[i].name, same, &sames[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(frozen_stays);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(frozen_plan);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(rates_are_logged);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(groups_act);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(groups_are_listed);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(layers_by_name);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(resumed);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(documented);
    return _cmocka_run_group_tests("optim", tests, n, holds_setup, holds_teardown);
}

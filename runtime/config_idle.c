// config_idle.c - keys that are honoured, but not in this config: another key leaves them nothing
// to do. Each rule is a row; a key that says what holds anyway isn't told of.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <strings.h>

#include "runtime/config.h"
#include "runtime/config_row.h"

#define SCHEDULE(name) "scheduler.params." name
#define OPTIM(name) "optimizer.params." name

static const zx_config_value *get(const zx_config *c, const char *path)
{
    return zx_config_get(c, path);
}

static bool is_word(const zx_config *c, const char *path, const char *word)
{
    const zx_config_value *v = get(c, path);
    return v->has && strcasecmp(v->text, word) == 0;
}

// ---- when ---------------------------------------------------------------------------------------

static bool fp16(const zx_config *c)
{
    return get(c, "fp16.enabled")->b;
}

static bool scale_stays(const zx_config *c)
{
    return fp16(c) && get(c, "fp16.loss_scale")->r > 0;
}

static bool float32(const zx_config *c)
{
    return !fp16(c) && !get(c, "bf16.enabled")->b;
}

static bool wider_wire(const zx_config *c)
{
    return !float32(c) && is_word(c, "communication_data_type", "fp32");
}

static bool below_3(const zx_config *c)
{
    return get(c, "zero_optimization.stage")->i < 3;
}

static bool always_decoupled(const zx_config *c)
{
    return is_word(c, "optimizer.type", "AdamW");
}

static bool decay_stated(const zx_config *c)
{
    return get(c, OPTIM("weight_decay"))->from == ZX_FROM_FILE;
}

static bool l2_decay(const zx_config *c)
{
    return !always_decoupled(c) && !get(c, OPTIM("adam_w_mode"))->b;
}

static bool no_momentum(const zx_config *c)
{
    return !(get(c, OPTIM("momentum"))->r > 0);
}

static bool is_cycle(const zx_config *c)
{
    return is_word(c, "scheduler.type", "OneCycle");
}

static bool beta_rests(const zx_config *c)
{
    return is_cycle(c) && !get(c, SCHEDULE("cycle_momentum"))->b;
}

static bool has_no_beta(const zx_config *c)
{
    return is_cycle(c) && is_word(c, "optimizer.type", "SGD");
}

static bool beta_moves(const zx_config *c)
{
    return is_cycle(c) && get(c, SCHEDULE("cycle_momentum"))->b;
}

static bool no_decay_steps(const zx_config *c)
{
    return is_cycle(c) && get(c, SCHEDULE("decay_step_size"))->i == 0;
}

static bool no_decay_rates(const zx_config *c)
{
    const bool rate = get(c, SCHEDULE("decay_lr_rate"))->r > 0,
               momentum = get(c, SCHEDULE("decay_mom_rate"))->r > 0 && !beta_rests(c);
    return is_cycle(c) && !rate && !momentum;
}

// Whether a group of parameters has a rate of its own, which is a multiple of the optimizer's.
static bool rates_of_groups(const zx_config *c)
{
    const json_t *groups = zx_config_get(c, "zerox.param_groups")->json;
    for (size_t i = 0; i < json_array_size(groups); i++)
        if (json_object_get(json_array_get(groups, i), "lr") != NULL) return true;
    return false;
}

static bool rates_of_schedule(const zx_config *c)
{
    const zx_config_value *max = get(c, SCHEDULE("warmup_max_lr"));
    if (!get(c, "scheduler.type")->has || is_word(c, "scheduler.type", "WarmupCosineLR"))
        return false;
    return !(max->has && max->r == get(c, OPTIM("lr"))->r) && !rates_of_groups(c);
}

// ---- rules --------------------------------------------------------------------------------------

static const struct rule {
    const char *key;
    bool (*when)(const zx_config *);
    const char *why;
} rules[] = {
    {"fp16.initial_scale_power", scale_stays, "fp16.loss_scale stays as it is"},
    {"fp16.loss_scale_window", scale_stays, "fp16.loss_scale stays as it is"},
    {"fp16.hysteresis", scale_stays, "fp16.loss_scale stays as it is"},
    {"fp16.consecutive_hysteresis", scale_stays, "fp16.loss_scale stays as it is"},
    {"fp16.min_loss_scale", scale_stays, "fp16.loss_scale stays as it is"},
    {"zerox.on_nan", fp16, "fp16 skips steps that overflow"},
    {"communication_data_type", wider_wire,
     "gradients travel in the 16 bits that they are made in, and sums over ranks are made in fp32: "
     "the values are the same"},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", float32,
     "the parameters are float32"},
    {"zero_optimization.stage3_max_live_parameters", below_3,
     "parameters are gathered one by one under ZeRO stage 3 alone"},
    {OPTIM("adam_w_mode"), always_decoupled, "AdamW's weight decay is decoupled; Adam has both"},
    {OPTIM("torch_adam"), decay_stated, "it says what weight_decay is where the file doesn't"},
    {OPTIM("torch_adam"), l2_decay, "it says what weight_decay of AdamW is"},
    {OPTIM("dampening"), no_momentum, "the momentum is 0"},
    {OPTIM("betas"), beta_moves, "OneCycle moves beta1 and holds beta2 at 0.99 (cycle_momentum)"},
    {OPTIM("lr"), rates_of_schedule, "the schedule has rates of its own"},
    {SCHEDULE("cycle_min_mom"), beta_rests, "cycle_momentum is false"},
    {SCHEDULE("cycle_max_mom"), beta_rests, "cycle_momentum is false"},
    {SCHEDULE("decay_mom_rate"), beta_rests, "cycle_momentum is false"},
    {SCHEDULE("cycle_min_mom"), has_no_beta, "SGD has no beta1"},
    {SCHEDULE("cycle_max_mom"), has_no_beta, "SGD has no beta1"},
    {SCHEDULE("decay_mom_rate"), has_no_beta, "SGD has no beta1"},
    {SCHEDULE("decay_lr_rate"), no_decay_steps, "decay_step_size is 0"},
    {SCHEDULE("decay_mom_rate"), no_decay_steps, "decay_step_size is 0"},
    {SCHEDULE("decay_step_size"), no_decay_rates, "nothing decays: the rates are 0"},
};

const uint32_t zx_config_n_idle = ZX_COUNT(rules);

static uint32_t row_of(const char *path)
{
    for (uint32_t i = 0; i < zx_config_n_rows; i++)
        if (strcmp(zx_config_rows[i].path, path) == 0) return i;
    ZX_ASSERT(false);
    return ZX_NONE;
}

void zx_config_idle(zx_config *c, zx_notes *notes)
{
    for (size_t k = 0; k < ZX_COUNT(rules); k++) {
        const uint32_t i = row_of(rules[k].key);
        zx_config_value *v = &c->values[i];
        if (v->idle != NULL || zx_config_judge(c, i) != ZX_STATE_TAKEN) continue;
        if (v->from != ZX_FROM_FILE || !v->has || zx_config_is_default(c, i)) continue;
        if (!rules[k].when(c)) continue;
        v->idle = rules[k].why;
        zx_note(notes, c->mem, "%s has no effect: %s", rules[k].key, rules[k].why);
    }
}

// ---- sections -----------------------------------------------------------------------------------

// A section that nobody has switched on or off: "enabled" was forgotten, perhaps.
void zx_config_unswitched(const zx_config *c, const char *name, zx_notes *notes)
{
    for (uint32_t g = 0; g < zx_config_n_rows; g++) {
        const char *dot = strrchr(zx_config_rows[g].path, '.');
        const char *word = dot != NULL ? dot + 1 : "";
        const bool gate = strcmp(word, "enabled") == 0 || strcmp(word, "device") == 0;
        if (!gate || c->values[g].from != ZX_FROM_DEFAULT) continue;
        const size_t n = (size_t)(word - zx_config_rows[g].path);
        for (uint32_t i = 0; i < zx_config_n_rows; i++) {
            if (strncmp(zx_config_rows[i].path, zx_config_rows[g].path, n) != 0) continue;
            if (zx_config_judge(c, i) != ZX_STATE_OFF) continue;
            zx_note(notes, c->mem, "%s: %.*s has no effect: it doesn't say \"%s\"", name,
                    (int)(n - 1), zx_config_rows[g].path, word);
            break;
        }
    }
}

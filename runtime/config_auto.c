// config_auto.c - "auto" in a config: what Hugging Face's Trainer puts in before DeepSpeed sees the
// file, with its own defaults where zerox has no word for them (CONFIG 4.12). A key that it doesn't
// fill in has its default.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/config.h"
#include "runtime/config_row.h"

#define HF(name) "Hugging Face's " name
#define HIDDEN(size) "no bound of the planner's; for --policy hooks by the hidden size h: " size
#define ZERO(name) "zero_optimization." name

static const struct {
    const char *path;
    const char *value; // "": the row's default, or what follows from other keys
    const char *why;
    bool later; // not from keys alone
} autos[] = {
    {"train_batch_size", "", "micro-batch x accumulation x ranks", false},
    {"train_micro_batch_size_per_gpu", "", "the model's fixed batch, else 1", false},
    {"gradient_accumulation_steps", "", "1, or what train_batch_size makes of it", false},
    {"optimizer.params.lr", "5e-5", HF("learning_rate"), false},
    {"optimizer.params.betas", "0.9 0.999", HF("adam_beta1 and adam_beta2"), false},
    {"optimizer.params.eps", "1e-8", HF("adam_epsilon"), false},
    {"optimizer.params.weight_decay", "0", HF("weight_decay"), false},
    {"scheduler.params.total_num_steps", "", "the run's steps", true},
    {"scheduler.params.warmup_num_steps", "", "a tenth of the run's steps, 1000 at most", true},
    {"scheduler.params.warmup_min_lr", "0", "as Hugging Face has it", false},
    {"scheduler.params.warmup_max_lr", "", "optimizer.params.lr", false},
    {"gradient_clipping", "1", HF("max_grad_norm"), false},
    {"fp16.enabled", "false", HF("fp16, off unless asked for"), false},
    {"bf16.enabled", "false", HF("bf16, off unless asked for"), false},
    {"amp.enabled", "false", HF("fp16 backend, which isn't Apex"), false},
    {ZERO("reduce_bucket_size"), "", HIDDEN("h x h"), true},
    {ZERO("stage3_prefetch_bucket_size"), "", HIDDEN("0.9 x h x h"), true},
    {ZERO("stage3_param_persistence_threshold"), "", HIDDEN("10 x h"), true},
};

void zx_config_auto(const zx_config_row *row, zx_arena *mem, zx_config_value *out)
{
    zx_config_row filled = *row;
    const char *why = "the default";
    bool later = false;
    for (size_t i = 0; i < ZX_COUNT(autos); i++) {
        if (strcmp(autos[i].path, row->path) != 0) continue;
        if (autos[i].value[0] != '\0') filled.value = autos[i].value;
        why = autos[i].why;
        later = autos[i].later;
    }
    zx_config_default(&filled, mem, out);
    out->from = ZX_FROM_AUTO;
    out->why = why;
    out->later = later;
}

// test_config.c - DeepSpeed's JSON: what is taken, what is refused by name, the batch triad, the
// optimizer that follows, and the resolved file.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "runtime/config.h"
#include "tests/test.h"

// ---- what is said about a file ------------------------------------------------------------------

static const struct row {
    const char *name, *json;
    const char *cause; // part of one of the causes; NULL: accepted
    const char *note;  // part of a note; NULL: there is none at all
} rows[] = {
    {"an empty object", "{}", NULL, NULL},
    {"comments and trailing commas", "{ // c\n \"steps_per_print\": 5, /* d */ }", NULL, NULL},
    {"not an object", "[1]", "a config is a JSON object", NULL},
    {"a duplicate key", "{\"train_batch_size\": 1, \"train_batch_size\": 2}", "duplicate", NULL},
    {"a misspelt key", "{\"gradient_clipp1ng\": 1}", "the nearest is 'gradient_clipping'", NULL},
    {"a misspelt key inside", "{\"zero_optimization\": {\"stge\": 3}}",
     "unknown key 'zero_optimization.stge'; the nearest is 'zero_optimization.stage'", NULL},
    {"a key at the wrong level", "{\"overlap_comm\": true}",
     "the nearest is 'zero_optimization.overlap_comm'", NULL},
    {"a key beside its section", "{\"optimizer\": {\"lr\": 1}}",
     "the nearest is 'optimizer.params.lr'", NULL},
    {"a dotted key is no path", "{\"fp16.enabled\": false}", "unknown key 'fp16.enabled'", NULL},
    {"a section that isn't one", "{\"fp16\": 3}", "fp16 must be an object, not 3", NULL},
    {"sections may be null", "{\"fp16\": null, \"scheduler\": null}", NULL, NULL},
    {"fp16 that is off is only read",
     "{\"fp16\": {\"enabled\": false, \"loss_scale\": 128, \"fp16_master_weights_and_grads\": "
     "true}}",
     NULL, NULL},
    {"enabled may say auto", "{\"bf16\": {\"enabled\": \"auto\"}}", NULL, NULL},
    {"both names of a key",
     "{\"zero_optimization\": {\"stage3_max_live_parameters\": 1, \"max_live_parameters\": 1}}",
     "same key", NULL},
    {"offload", "{\"zero_optimization\": {\"offload_param\": {\"device\": \"cpu\"}}}",
     "offload_param.device = \"cpu\" is not supported", NULL},
    {"no offload",
     "{\"zero_optimization\": {\"offload_param\": {\"device\": \"none\", \"pin_memory\": false}}}",
     NULL, NULL},
    {"an offload device that there isn't",
     "{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"gpu\"}}}",
     "must be one of none|cpu|nvme", NULL},
    {"cpu_offload", "{\"zero_optimization\": {\"cpu_offload\": true}}",
     "zero_optimization.offload_optimizer.device = \"cpu\" is not supported: offload isn't in this "
     "version; remove zero_optimization.cpu_offload",
     NULL},
    {"cpu_offload_param and its place",
     "{\"zero_optimization\": {\"cpu_offload_param\": true, \"offload_param\": {\"device\": "
     "\"none\"}}}",
     "cpu_offload_param is an old form of zero_optimization.offload_param.device; keep one", NULL},
    {"the older name of 16-bit weights",
     "{\"zero_optimization\": {\"stage3_gather_fp16_weights_on_model_save\": true}}", NULL,
     "it means zero_optimization.stage3_gather_16bit_weights_on_model_save = true"},
    {"an old form that asks for nothing", "{\"zero_optimization\": {\"cpu_offload\": false}}", NULL,
     NULL},
    {"activation checkpointing", "{\"activation_checkpointing\": {\"cpu_checkpointing\": true}}",
     "cpu_checkpointing = true", NULL},
    {"partitioned activations have no effect",
     "{\"activation_checkpointing\": {\"partition_activations\": true}}", NULL,
     "partition_activations"},
    {"the nested spelling of tensor parallelism",
     "{\"tensor_parallel\": {\"tp\": {\"tp_size\": 2}}}", "tensor_parallel.tp.tp_size = 2", NULL},
    {"and another one", "{\"tensor_parallel\": {\"tp_size\": 2}}", "tensor_parallel.tp_size = 2",
     NULL},
    {"tensor parallelism", "{\"tensor_parallel\": {\"autotp_size\": 2}}", "autotp_size = 2", NULL},
    {"sizes of 1 are none",
     "{\"tensor_parallel\": {\"autotp_size\": 1}, \"sequence_parallel_size\": 1}", NULL, NULL},
    {"pipeline stages", "{\"pipeline\": {\"stages\": 2}}", "pipeline.stages = 2", NULL},
    {"automatic pipeline stages", "{\"pipeline\": {\"stages\": \"auto\"}}", NULL, NULL},
    {"sequence parallelism", "{\"sequence_parallel_size\": 4}", "sequence_parallel_size = 4", NULL},
    {"a schedule",
     "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 3}}}", NULL,
     NULL},
    {"elasticity that is off", "{\"elasticity\": {\"enabled\": false, \"min_gpus\": 4}}", NULL,
     NULL},
    {"elasticity", "{\"elasticity\": {\"enabled\": true}}", "elasticity.enabled", NULL},
    {"a nested enabled", "{\"compression_training\": {\"a\": {\"b\": {\"enabled\": true}}}}",
     "compression_training", NULL},
    {"compression that is off", "{\"compression_training\": {\"a\": {\"enabled\": false}}}", NULL,
     NULL},
    {"ZeRO++", "{\"zero_optimization\": {\"zero_quantized_weights\": true}}",
     "zero_quantized_weights = true is not supported: parameters travel as they are; set it to "
     "false",
     NULL},
    {"what DeepSpeed documents but lacks", "{\"zero_optimization\": {\"grad_hooks\": true}}",
     "DeepSpeed documents it", NULL},
    {"max_grad_norm", "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"max_grad_norm\": 1}}}",
     "use gradient_clipping", NULL},
    {"a stage of 3.0", "{\"zero_optimization\": {\"stage\": 3.0}}", NULL, NULL},
    {"a stage of 2.5", "{\"zero_optimization\": {\"stage\": 2.5}}", "must be a whole number", NULL},
    {"stage 5 in quotes", "{\"zero_optimization\": {\"stage\": \"5\"}}",
     "must be 0, 1, 2 or 3, not 5", NULL},
    {"ZeRO that is off, in the old form", "{\"zero_optimization\": false}", NULL, "means stage 0"},
    {"an offload device left to who fills it in",
     "{\"zero_optimization\": {\"offload_param\": {\"device\": \"auto\"}}}", NULL, NULL},
    {"a duplicate key deep inside", "{\"optimizer\": {\"params\": {\"lr\": 1, \"lr\": 2}}}",
     "duplicate", NULL},
    {"shell comments", "{ # c\n \"steps_per_print\": 5 # d\n}", NULL, NULL},
    {"a comment in a text is none", "{\"optimizer\": {\"type\": \"Adam//#/*\"}}", NULL, NULL},
    {"a trailing comma in a list", "{\"optimizer\": {\"params\": {\"betas\": [0.9, 0.95,],},},}",
     NULL, NULL},
    {"two commas", "{\"steps_per_print\": 5,,}", "zero.json:1", NULL},
    {"an unknown key in a plain section", "{\"aio\": {\"blocksize\": 1}}",
     "the nearest is 'aio.block_size'", NULL},
    {"a misspelling of DeepSpeed's own documentation",
     "{\"activation_checkpointing\": {\"partitioned_activations\": true}}",
     "the nearest is 'activation_checkpointing.partition_activations'", NULL},
    {"aio's other name of threads", "{\"aio\": {\"thread_count\": 4}}", NULL,
     "its name is intra_op_parallelism"},
    {"the old name of bf16's check", "{\"bf16\": {\"enabled\": true, \"check_overflow\": true}}",
     "its name is now check_grad_overflow", NULL},
    {"a parameter of an optimizer that isn't there",
     "{\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"freeze_step\": 400}}}",
     "optimizer.params.freeze_step = 400 is not supported: a parameter of 1-bit optimizers", NULL},
    {"1e9 in a field of text", "{\"zerox\": {\"budget\": 1e9}}", NULL, NULL},
    {"integral reals", "{\"zero_optimization\": {\"reduce_bucket_size\": 5e8}}", NULL, NULL},
    {"digits in quotes",
     "{\"zero_optimization\": {\"reduce_bucket_size\": \"500\", \"stage\": \"3\"}}", NULL, NULL},
    {"a real in quotes is no whole number",
     "{\"zero_optimization\": {\"reduce_bucket_size\": \"5e8\"}}", "must be a whole number", NULL},
    {"a fraction", "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 15099494.4}}",
     "must be a whole number, 0 or more, not 15099494.4", NULL},
    {"1e20 is too large", "{\"zero_optimization\": {\"reduce_bucket_size\": 1e20}}", "whole number",
     NULL},
    {"negative", "{\"train_batch_size\": -1}", "0 or more, not -1", NULL},
    {"stage 4", "{\"zero_optimization\": {\"stage\": 4}}", "must be 0, 1, 2 or 3, not 4", NULL},
    {"bools as numbers and words",
     "{\"prescale_gradients\": 0, \"fp16\": {\"enabled\": \"False\"}}", NULL, NULL},
    {"a bool that isn't", "{\"prescale_gradients\": \"no\"}", "must be true or false, not \"no\"",
     NULL},
    {"the old form of ZeRO", "{\"zero_optimization\": true}", NULL, "means stage 1"},
    {"sizes for DeepSpeed's prefetcher",
     "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 1000}}", NULL, "superseded"},
    {"default values say nothing",
     "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 5e7}}", NULL, NULL},
    {"wandb is only said", "{\"wandb\": {\"enabled\": true}}", NULL, "wandb.enabled"},
    {"monitors",
     "{\"tensorboard\": {\"enabled\": true, \"output_path\": \"tb\"}, "
     "\"csv_monitor\": {\"enabled\": true, \"job_name\": \"j\"}}",
     NULL, NULL},
    {"a key of comet's is never shown", "{\"comet\": {\"enabled\": true, \"api_key\": \"secret\"}}",
     NULL, "comet.enabled"},
    {"adding locally", "{\"zerox\": {\"accumulate\": \"local\"}}", "zerox.accumulate = \"local\"",
     NULL},
    {"an unknown key of ours", "{\"zerox\": {\"lss\": 1}}", "unknown key 'zerox.lss'", NULL},
    {"our own keys",
     "{\"zerox\": {\"loss\": {\"kind\": \"cross_entropy\", \"label\": \"y\"}, \"parameters\": "
     "\"w*\","
     " \"batch_norm\": \"as_exported\", \"data\": {\"x\": \"ones\"}, \"dims\": {\"s\": 4}}}",
     NULL, NULL},
    {"a loss that there isn't", "{\"zerox\": {\"loss\": {\"kind\": \"hinge\"}}}",
     "cross_entropy|mse", NULL},
    {"a hostile key", "{\"\\u001b[2J\": 1}", "\\x1b[2J", NULL},
};

static bool causes_have(const zx_err *err, const char *part)
{
    for (uint32_t i = 0; i < err->n_causes && i < ZX_ERR_KEPT; i++)
        if (strstr(err->cause[i], part) != NULL) return true;
    return false;
}

static void test_row(void **state)
{
    const struct row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    const zx_status st =
        zx_config_parse("zero.json", row->json, strlen(row->json), false, &mem, &c, &notes, &err);
    if (row->cause == NULL) {
        assert_zx_ok(st, &err);
        if (row->note == NULL && notes.n > 0) fail_msg("noted: %s", notes.text[0]);
        if (row->note != NULL && (notes.n == 0 || strstr(notes.text[0], row->note) == NULL))
            fail_msg("noted: %s", notes.n > 0 ? notes.text[0] : "nothing");
    } else {
        assert_int_equal(st, ZX_E_USAGE);
        if (!causes_have(&err, row->cause)) fail_msg("said: %s", err.cause[0]);
        assert_non_null(strstr(err.cause[0], "zero.json"));
    }
    zx_config_close(&c);
    zx_arena_free(&mem);
}

static void all_is_said_at_once(void **state)
{
    (void)state;
    static const char json[] =
        "{\"a_a\": 1, \"sparse_gradients\": true, \"train_batch_size\": \"x\","
        " \"zero_optimization\": {\"stage\": 9}}";
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_config_parse("z", json, strlen(json), false, &mem, &c, &notes, &err);
    assert_int_equal(err.n_causes, 4);
    zx_config_close(&c);
    // An unknown key alone passes with a note when that is allowed.
    static const char odd[] = "{\"a_a\": 1}";
    err = (zx_err){0};
    assert_zx_ok(zx_config_parse("z", odd, strlen(odd), true, &mem, &c, &notes, &err), &err);
    assert_int_equal(notes.n, 1);
    assert_non_null(strstr(notes.text[0], "unknown key 'a_a'"));
    zx_config_close(&c);
    // What a section's keys have in common makes none of them near.
    static const char far[] = "{\"optimizer\": {\"params\": {\"learning_rate\": 1}}}";
    err = (zx_err){0};
    zx_config_parse("z", far, strlen(far), false, &mem, &c, &notes, &err);
    assert_string_equal(err.cause[0], "z: unknown key 'optimizer.params.learning_rate'");
    zx_config_close(&c);
    zx_arena_free(&mem);
}

// ---- batch triad --------------------------------------------------------------------------------

static const struct batch_row {
    const char *name, *json;
    uint32_t ranks;
    int64_t graph;   // fixed batch of the model, 0: symbolic
    int64_t want[3]; // total, micro, accumulation; {0}: refused
    const char *cause;
} batches[] = {
    {"all three",
     "{\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 2, "
     "\"gradient_accumulation_steps\": 3}",
     4,
     0,
     {24, 2, 3},
     NULL},
    {"all three, contradictory",
     "{\"train_batch_size\": 25, \"train_micro_batch_size_per_gpu\": 2, "
     "\"gradient_accumulation_steps\": 3}",
     4,
     0,
     {0},
     "train_batch_size 25 is not train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 3 "
     "x ranks 4"},
    {"total and micro",
     "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 4}",
     4,
     0,
     {32, 4, 2},
     NULL},
    {"total and micro that don't divide",
     "{\"train_batch_size\": 30, \"train_micro_batch_size_per_gpu\": 2}",
     4,
     0,
     {0},
     "30 is not"},
    {"total and accumulation",
     "{\"train_batch_size\": 32, \"gradient_accumulation_steps\": 2}",
     4,
     0,
     {32, 4, 2},
     NULL},
    {"micro and accumulation",
     "{\"train_micro_batch_size_per_gpu\": 4, \"gradient_accumulation_steps\": 2}",
     3,
     0,
     {24, 4, 2},
     NULL},
    {"total alone", "{\"train_batch_size\": 32}", 4, 0, {32, 8, 1}, NULL},
    {"total alone that doesn't divide", "{\"train_batch_size\": 33}", 4, 0, {0}, "33 is not"},
    {"total below the model's batch and ranks",
     "{\"train_batch_size\": 10}",
     2,
     8,
     {0},
     "train_batch_size 10 is no multiple of train_micro_batch_size_per_gpu 8 x ranks 2"},
    {"total below accumulation and ranks",
     "{\"train_batch_size\": 6, \"gradient_accumulation_steps\": 4}",
     2,
     0,
     {0},
     "train_batch_size 6 is no multiple of gradient_accumulation_steps 4 x ranks 2"},
    {"total below the ranks", "{\"train_batch_size\": 2}", 4, 0, {0}, "check the batch keys"},
    {"total alone, fixed batch", "{\"train_batch_size\": 64}", 2, 8, {64, 8, 4}, NULL},
    {"micro alone", "{\"train_micro_batch_size_per_gpu\": 5}", 3, 0, {15, 5, 1}, NULL},
    {"accumulation alone", "{\"gradient_accumulation_steps\": 2}", 3, 0, {6, 1, 2}, NULL},
    {"none", "{}", 3, 0, {3, 1, 1}, NULL},
    {"none, fixed batch", "{}", 3, 4, {12, 4, 1}, NULL},
    {"auto is none",
     "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\"}",
     2,
     4,
     {8, 4, 1},
     NULL},
    {"micro against the fixed batch",
     "{\"train_micro_batch_size_per_gpu\": 5}",
     1,
     4,
     {0},
     "the model has a fixed batch of 4"},
    {"zero total",
     "{\"train_batch_size\": 0}",
     1,
     0,
     {0},
     "train_batch_size has to be greater than 0"},
    {"zero micro",
     "{\"train_micro_batch_size_per_gpu\": 0}",
     1,
     0,
     {0},
     "has to be greater than 0"},
    {"zero accumulation",
     "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 0}",
     1,
     0,
     {0},
     "gradient_accumulation_steps has to be greater than 0"},
    {"a product that overflows",
     "{\"train_micro_batch_size_per_gpu\": 4611686018427387904, \"gradient_accumulation_steps\": "
     "4}",
     2,
     0,
     {0},
     "check the batch keys"},
};

static void test_batch(void **state)
{
    const struct batch_row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_batch b;
    assert_zx_ok(zx_config_parse("z", row->json, strlen(row->json), false, &mem, &c, &notes, &err),
                 &err);
    const zx_status st = zx_config_batch(&c, row->ranks, row->graph, &b, &err);
    if (row->cause != NULL) {
        assert_int_equal(st, ZX_E_USAGE);
        if (strstr(err.cause[0], row->cause) == NULL) fail_msg("said: %s", err.cause[0]);
    } else {
        assert_zx_ok(st, &err);
        assert_int_equal(b.total, row->want[0]);
        assert_int_equal(b.micro, row->want[1]);
        assert_int_equal(b.accumulate, row->want[2]);
    }
    zx_config_close(&c);
    zx_arena_free(&mem);
}

// Whatever is given and whatever isn't: what is given stays, and the three numbers fit. A number
// that can't be is told with all of them.
static void every_combination_of_batches(void **state)
{
    (void)state;
    static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps"};
    static const uint32_t ranks[] = {1, 3, 4};
    for (size_t r = 0; r < ZX_COUNT(ranks); r++)
        for (unsigned given = 0; given < 16; given++) { // bit 3: the total is one too many
            const int64_t full[] = {24 + (given >> 3), 2, 12 / ranks[r]};
            char json[256] = "{", says[160];
            zx_arena mem = {0};
            zx_err err = {0};
            zx_notes notes = {0};
            zx_config c;
            zx_batch b;
            if ((given & 9) == 8) continue;
            for (size_t k = 0; k < 3; k++)
                if (given >> k & 1)
                    snprintf(json + strlen(json), sizeof json - strlen(json), "%s\"%s\": %d",
                             json[1] == '\0' ? "" : ", ", keys[k], (int)full[k]);
            strcat(json, "}");
            assert_zx_ok(zx_config_parse("z", json, strlen(json), false, &mem, &c, &notes, &err),
                         &err);
            const bool fits = given < 8 || (given == 9 && ranks[r] == 1); // 25 = 25 x 1 x 1
            const zx_status st = zx_config_batch(&c, ranks[r], 0, &b, &err);
            const int64_t has[] = {b.total, b.micro, b.accumulate};
            if (fits) {
                assert_zx_ok(st, &err);
                assert_int_equal(b.total, b.micro * b.accumulate * ranks[r]);
                assert_true(b.micro > 0 && b.accumulate > 0);
                for (size_t k = 0; k < 3; k++)
                    if (given >> k & 1) assert_int_equal(has[k], full[k]);
                if (!(given & 4) && (given & 3) != 3) assert_int_equal(b.accumulate, 1);
            } else {
                assert_int_equal(st, ZX_E_USAGE);
                snprintf(says, sizeof says, "%s %d is not %s %d x %s %d x ranks %u", keys[0],
                         (int)full[0], keys[1], (int)b.micro, keys[2], (int)b.accumulate, ranks[r]);
                if (strstr(err.cause[0], says) == NULL)
                    fail_msg("%s: no '%s' in: %s", json, says, err.cause[0]);
            }
            zx_config_close(&c);
            zx_arena_free(&mem);
        }
}

// ---- optimizer ----------------------------------------------------------------------------------

#define OPT(type, params) "{\"optimizer\": {\"type\": \"" type "\", \"params\": {" params "}}}"
static const struct optim_row {
    const char *name, *json, *cause;
    zx_optim want;
} optims[] = {
    {"defaults",
     "{}",
     NULL,
     {.lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .decoupled = true,
      .bias_correction = true}},
    {"Adam is AdamW",
     OPT("Adam", "\"weight_decay\": 0.1"),
     NULL,
     {.lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .decoupled = true,
      .bias_correction = true}},
    {"unless adam_w_mode is false",
     OPT("Adam", "\"adam_w_mode\": false"),
     NULL,
     {.lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .decoupled = false,
      .bias_correction = true}},
    {"AdamW always is",
     OPT("adamw", "\"adam_w_mode\": false, \"lr\": \"3e-4\", \"betas\": [0.5, 0.6], \"eps\": 1"),
     NULL,
     {.lr = 3e-4,
      .beta1 = 0.5,
      .beta2 = 0.6,
      .eps = 1,
      .decoupled = true,
      .bias_correction = true}},
    {"torch_adam moves the default decay",
     OPT("AdamW", "\"torch_adam\": true"),
     NULL,
     {.lr = 1e-3,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .weight_decay = 0.01,
      .decoupled = true,
      .bias_correction = true}},
    {"SGD",
     OPT("SGD", "\"lr\": 0.5, \"momentum\": 0.9, \"nesterov\": true, \"weight_decay\": 0.1"),
     NULL,
     {.kind = ZX_OPTIM_SGD,
      .lr = 0.5,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .decoupled = false,
      .bias_correction = true,
      .momentum = 0.9,
      .nesterov = true}},
    {"auto is what Hugging Face puts in",
     OPT("AdamW", "\"lr\": \"auto\", \"betas\": \"auto\", \"torch_adam\": true, "
                  "\"weight_decay\": \"auto\""),
     NULL,
     {.lr = 5e-5,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .eps = 1e-8,
      .decoupled = true,
      .bias_correction = true}},
    {"Lion",
     OPT("Lion", "\"lr\": 1e-4, \"betas\": [0.9, 0.99], \"weight_decay\": 0.1"),
     NULL,
     {.kind = ZX_OPTIM_LION,
      .lr = 1e-4,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .eps = 1e-8,
      .weight_decay = 0.1,
      .decoupled = false,
      .bias_correction = true}},
    {"eps of Lion",
     OPT("Lion", "\"eps\": 1e-8"),
     "optimizer.params.eps is no parameter of Lion",
     {0}},
    {"Lamb", OPT("Lamb", ""), "this version has Adam, AdamW, Lion and SGD", {0}},
    {"momentum of Adam",
     OPT("Adam", "\"momentum\": 0.9"),
     "optimizer.params.momentum is no parameter of Adam",
     {0}},
    {"betas of SGD",
     OPT("SGD", "\"betas\": [0.9, 0.99]"),
     "optimizer.params.betas is no parameter of SGD",
     {0}},
    {"a negative rate", OPT("Adam", "\"lr\": -1"), "optimizer.params.lr must be 0 or more", {0}},
    {"a beta of 1",
     OPT("Adam", "\"betas\": [0.9, 1.0]"),
     "betas must be 0 or more and below 1, not 1",
     {0}},
    {"one beta", OPT("Adam", "\"betas\": [0.9]"), "betas must be two numbers", {0}},
    {"Nesterov without momentum",
     OPT("SGD", "\"nesterov\": true"),
     "nesterov needs a momentum",
     {0}},
    {"negative clipping", "{\"gradient_clipping\": -1}", "gradient_clipping must be 0", {0}},
};

static void test_optim(void **state)
{
    const struct optim_row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_optim o;
    double clip = -1;
    assert_zx_ok(zx_config_parse("z", row->json, strlen(row->json), false, &mem, &c, &notes, &err),
                 &err);
    const zx_status st = zx_config_optim(&c, &o, &clip, &err);
    if (row->cause != NULL) {
        assert_int_equal(st, ZX_E_USAGE);
        if (!causes_have(&err, row->cause)) fail_msg("said: %s", err.cause[0]);
    } else {
        assert_zx_ok(st, &err);
        const zx_optim *w = &row->want;
        assert_true(o.kind == w->kind && o.lr == w->lr && o.beta1 == w->beta1 &&
                    o.beta2 == w->beta2);
        assert_true(o.eps == w->eps && o.weight_decay == w->weight_decay &&
                    o.decoupled == w->decoupled);
        assert_true(o.bias_correction == w->bias_correction && o.momentum == w->momentum);
        assert_true(o.nesterov == w->nesterov && o.dampening == w->dampening && clip == 1);
    }
    zx_config_close(&c);
    zx_arena_free(&mem);
}

// ---- precision ----------------------------------------------------------------------------------

#define BF16 "\"bf16\": {\"enabled\": true}"
#define FP16 "\"fp16\": {\"enabled\": true}"
static const struct precision_row {
    const char *name, *json;
    zx_precision want;
    uint32_t accumulate;
    const char *cause; // NULL: it is taken
} precisions[] = {
    {"nothing is float32", "{}", ZX_PREC_F32, 0, NULL},
    {"fp16", "{" FP16 "}", ZX_PREC_F16, 4, NULL},
    {"bf16 by its alias", "{\"bfloat16\": {\"enabled\": true}}", ZX_PREC_BF16, 4, NULL},
    {"both", "{" BF16 ", " FP16 "}", 0, 0, "both true"},
    {"sums in float32", "{" BF16 ", \"data_types\": {\"grad_accum_dtype\": \"fp32\"}}",
     ZX_PREC_BF16, 4, NULL},
    {"sums in bf16", "{" BF16 ", \"data_types\": {\"grad_accum_dtype\": \"torch.bfloat16\"}}",
     ZX_PREC_BF16, 2, NULL},
    {"sums in the other half", "{" BF16 ", \"data_types\": {\"grad_accum_dtype\": \"half\"}}", 0, 0,
     "grad_accum_dtype = \"fp16\" is not supported: gradients are made in bf16"},
    {"sums of float32 in bf16", "{\"data_types\": {\"grad_accum_dtype\": \"bf16\"}}", 0, 0,
     "gradients are made in fp32"},
    {"float32 stated",
     "{\"data_types\": {\"grad_accum_dtype\": \"fp32\", \"param_dtype\": "
     "\"fp32\"}, \"communication_data_type\": \"float32\"}",
     ZX_PREC_F32, 4, NULL},
    {"parameters of another type", "{" FP16 ", \"data_types\": {\"param_dtype\": \"bf16\"}}", 0, 0,
     "param_dtype = \"bf16\" is not supported: parameters are fp16 here"},
    {"the least scale is above the first",
     "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 4, \"min_loss_scale\": 17}}", 0, 0,
     "fp16.min_loss_scale, 17, is above the first loss scale, 2^4"},
    {"the least scale is the first one",
     "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 4, \"min_loss_scale\": 16}}",
     ZX_PREC_F16, 4, NULL},
    {"a scale that stays has none that is least",
     "{\"fp16\": {\"enabled\": true, \"loss_scale\": 8, \"min_loss_scale\": 131072}}", ZX_PREC_F16,
     4, NULL},
    {"communication in half", "{\"communication_data_type\": \"fp16\"}", 0, 0,
     "communication_data_type = \"fp16\" is not supported"},
    {"communication in what is made", "{" FP16 ", \"communication_data_type\": \"fp16\"}",
     ZX_PREC_F16, 4, NULL},
    {"communication in more", "{" FP16 ", \"communication_data_type\": \"fp32\"}", ZX_PREC_F16, 4,
     NULL},
    {"communication in the other half", "{" FP16 ", \"communication_data_type\": \"bf16\"}", 0, 0,
     "gradients travel as they are made, in fp16 here"},
};

static void test_precision(void **state)
{
    const struct precision_row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_precision got = ZX_PREC_F32;
    uint32_t accumulate = 99;
    assert_zx_ok(zx_config_parse("z", row->json, strlen(row->json), false, &mem, &c, &notes, &err),
                 &err);
    assert_int_equal(notes.n, 0);
    zx_loss_scale_rule scale;
    zx_status st = zx_config_precision(&c, &got, &accumulate, &err);
    if (st == ZX_OK) st = zx_config_loss_scale(&c, &scale, &err);
    if (row->cause != NULL) {
        assert_int_equal(st, ZX_E_USAGE);
        if (!causes_have(&err, row->cause)) fail_msg("said: %s", err.cause[0]);
    } else {
        assert_zx_ok(st, &err);
        assert_int_equal(got, row->want);
        assert_int_equal(accumulate, row->accumulate);
    }
    zx_config_close(&c);
    zx_arena_free(&mem);
}

// ---- resolved -----------------------------------------------------------------------------------

// The resolved file is a config that gives the same values, and says where each came from.
static void resolved_is_a_config(void **state)
{
    (void)state;
    static const char json[] =
        "{\"train_batch_size\": 32, \"optimizer\": {\"params\": {\"lr\": 0.0123}},"
        " \"zero_optimization\": {\"stage\": 2}, \"comet\": {\"api_key\": \"secret\"}}";
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c, again;
    zx_batch b, b2;
    zx_text out = {0};
    assert_zx_ok(zx_config_parse("z", json, strlen(json), false, &mem, &c, &notes, &err), &err);
    assert_zx_ok(zx_config_batch(&c, 2, 0, &b, &err), &err);
    zx_config_set_int(&c, "zerox.seed", 5, ZX_FROM_COMMAND);
    zx_config_write(&c, "\"ranks\": 2", &out);
    assert_null(strstr(out.at, "secret"));
    assert_non_null(strstr(out.at, "\"optimizer.params.lr\": \"file\""));
    assert_non_null(strstr(out.at, "\"optimizer.params.eps\": \"default\""));
    assert_non_null(strstr(out.at, "\"zerox.seed\": \"command line\""));
    assert_non_null(strstr(out.at, "\"lr\": 0.0123,"));
    notes = (zx_notes){0};
    assert_zx_ok(zx_config_parse("again", out.at, out.n, false, &mem, &again, &notes, &err), &err);
    assert_int_equal(notes.n, 0);
    assert_zx_ok(zx_config_batch(&again, 2, 0, &b2, &err), &err);
    assert_memory_equal(&b, &b2, sizeof b);
    assert_int_equal(zx_config_get(&again, "zerox.seed")->i, 5);
    assert_int_equal(zx_config_get(&again, "zero_optimization.stage")->i, 2);
    zx_text_free(&out);
    zx_config_close(&c);
    zx_config_close(&again);
    zx_arena_free(&mem);
}

static void no_file_means_stage_3(void **state)
{
    (void)state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    assert_zx_ok(zx_config_read(NULL, false, &mem, &c, &notes, &err), &err);
    assert_int_equal(zx_config_get(&c, "zero_optimization.stage")->i, 3);
    assert_string_equal(c.dir, ".");
    zx_config_close(&c);
    assert_zx_ok(zx_config_parse("a/b.json", "{}", 2, false, &mem, &c, &notes, &err), &err);
    assert_int_equal(zx_config_get(&c, "zero_optimization.stage")->i, 0);
    assert_string_equal(c.dir, "a");
    zx_config_close(&c);
    assert_int_equal(zx_config_read("/no/such/file.json", false, &mem, &c, &notes, &err), ZX_E_IO);
    zx_config_close(&c);
    zx_arena_free(&mem);
}

// docs/CONFIG.md ends with what `runtime.config --keys` prints.
static void documentation_lists_every_key(void **state)
{
    (void)state;
    static char doc[100000];
    zx_text keys = {0};
    FILE *f = fopen(ZX_SOURCE "/docs/CONFIG.md", "rb");
    assert_non_null(f);
    doc[fread(doc, 1, sizeof doc - 1, f)] = '\0';
    fclose(f);
    zx_config_keys(&keys);
    if (strstr(doc, keys.at) == NULL) fail_msg("docs/CONFIG.md isn't config.def any more");
    zx_text_free(&keys);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--keys") == 0) {
        zx_text keys = {0};
        zx_config_keys(&keys);
        fputs(keys.at, stdout);
        zx_text_free(&keys);
        return 0;
    }
    struct CMUnitTest
        tests[ZX_COUNT(rows) + ZX_COUNT(batches) + ZX_COUNT(optims) + ZX_COUNT(precisions) + 5];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(batches); i++)
        tests[n++] = zx_case(batches[i].name, test_batch, &batches[i]);
    for (size_t i = 0; i < ZX_COUNT(optims); i++)
        tests[n++] = zx_case(optims[i].name, test_optim, &optims[i]);
    for (size_t i = 0; i < ZX_COUNT(precisions); i++)
        tests[n++] = zx_case(precisions[i].name, test_precision, &precisions[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_combination_of_batches);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(all_is_said_at_once);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(resolved_is_a_config);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(no_file_means_stage_3);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(documentation_lists_every_key);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_cli_configs.c - DeepSpeed files as people publish them (tests/data/configs): each trains a
// small model as it is, or is refused for the keys that stand here and for nothing else.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>

#include "tests/runtime/cli.h"

// What this version refuses. What it honours from now on becomes "", here alone.
#define OFFLOAD_OPTIMIZER "zero_optimization.offload_optimizer.device = |"
#define OFFLOAD_PARAM "zero_optimization.offload_param.device = |"
#define OFFLOAD_ACTIVATIONS "activation_checkpointing.cpu_checkpointing = |"
#define COMMS_LOGGER "comms_logger.enabled = |"

static const struct row {
    const char *file;
    const char *refused; // parts of causes, "|" after each; "": it trains
    const char *noted;   // of what train says, or --explain where it is refused; NULL: anything
} rows[] = {
    {"hf_zero2", "", "\"auto\", as Hugging Face fills it: lr, betas, eps, weight_decay, clipping"},
    {"hf_zero2_warmup", "", "learning rate: WarmupLR: 0 to 5e-05 in 2 steps (log)"},
    {"hf_zero3", "", NULL},
    {"hf_zero3_offload", OFFLOAD_OPTIMIZER OFFLOAD_PARAM, NULL},
    {"accelerate_zero3", "", NULL},
    {"accelerate_nvme", OFFLOAD_OPTIMIZER OFFLOAD_PARAM, NULL},
    {"llama_factory_z2", "", "no effect: zero_optimization.round_robin_gradients"},
    {"llama_factory_z3", "", NULL},
    {"axolotl_zero1", "", NULL},
    {"axolotl_zero3_bf16", "", NULL},
    {"bloom", "", NULL},
    {"megatron_gpt", "zero_optimization.elastic_checkpoint = true|prescale_gradients = true|",
     NULL},
    {"megatron_curriculum", "curriculum_learning = {\"enabled\":true,|", "shapes of a step"},
    {"deepspeed_chat", "", NULL},
    {"old_cpu_offload", OFFLOAD_OPTIMIZER OFFLOAD_PARAM,
     "true  means zero_optimization.offload_optimizer.device=cpu"},
    {"old_zero_true", "unknown key 'allgather_size'|", "(as zero_optimization)"},
    {"bert_lamb",
     "optimizer.type = \"Lamb\"|optimizer.params.max_coeff = 0.3|optimizer.params.min_coeff = |"
     "sparse_attention = |",
     "attention is what the graph says"},
    {"bert_onebit",
     "optimizer.type = \"OneBitAdam\"|optimizer.params.freeze_step = 23000|"
     "optimizer.params.cuda_aware = |optimizer.params.comm_backend_name = \"nccl\"|",
     NULL},
    {"cifar10", "", "learning rate: WarmupLR: 0 to 0.001 in 1000 steps (log)"},
    {"apex_amp", "amp.enabled = true|", "Apex isn't supported"},
    {"zeropp",
     "zero_optimization.zero_quantized_weights = true|"
     "zero_optimization.zero_quantized_gradients = true|"
     "zero_optimization.zero_hpz_partition_size = 8|",
     NULL},
    {"autotuning", "", "no effect: autotuning (zerox plans instead of tuning)"},
    {"tutorial_sgd", "", "momentum 0.9"},
    {"monitored", COMMS_LOGGER, "zerox speaks to no network service"},
    {"rlhf_zero3", "", NULL},
    {"checkpointed_activations", OFFLOAD_ACTIVATIONS, "it needs tensor parallelism"},
};

// Parts of `list`, "|" after each, of which every one is in a line of its own that is a cause.
static void refused_for(const char *list, const char *err)
{
    uint32_t wanted = 0, causes = 0;
    for (const char *at = list; *at != '\0'; at = strchr(at, '|') + 1) {
        char part[200];
        snprintf(part, sizeof part, "%.*s", (int)strcspn(at, "|"), at);
        if (strstr(err, part) == NULL) fail_msg("not refused: %s\nsaid: %s", part, err);
        wanted++;
    }
    for (const char *at = err; (at = strstr(at, "zerox: ")) != NULL; at++)
        causes += (at == err || at[-1] == '\n') && strstr(at, ".json: ") != NULL;
    if (causes != wanted) fail_msg("%u causes, not %u: %s", causes, wanted, err);
}

static void test_row(void **state)
{
    const struct row *row = *state;
    static cli_result r;
    char path[300];
    snprintf(path, sizeof path, "%s/configs/%s.json", ZX_TEST_DATA, row->file);
    const char *const train[] = {
        "train",  "tiny.onnx",        "--config",  path,     "--ranks",
        "2",      "--steps",          "1",         "--data", "input_ids=synthetic",
        "--data", "labels=synthetic", "--threads", "1",      "--no-save",
        "--log",  "/dev/null",        NULL};
    const char *const explain[] = {"config", "--explain", path, "--ranks", "2", "tiny.onnx", NULL};
    const int code = row->refused[0] != '\0' ? 2 : 0;
    cli_run(train, &r);
    cli_expect(&r, code, "", code == 0 ? "done: 1 step" : NULL);
    if (code != 0) refused_for(row->refused, r.err);
    if (code == 0) cli_expect(&r, 0, "", row->noted);
    cli_run(explain, &r); // says the same before anything runs
    cli_expect(&r, code, code == 0 ? "would be refused: nothing" : row->noted, NULL);
    if (code != 0) refused_for(row->refused, r.err);
}

static void every_file_has_a_row(void **state)
{
    (void)state;
    uint32_t n = 0;
    DIR *d = opendir(ZX_TEST_DATA "/configs");
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        const char *end = strstr(e->d_name, ".json");
        if (end == NULL) continue;
        bool has = false;
        for (size_t i = 0; i < ZX_COUNT(rows); i++)
            has |= strlen(rows[i].file) == (size_t)(end - e->d_name) &&
                   strncmp(rows[i].file, e->d_name, (size_t)(end - e->d_name)) == 0;
        if (!has) fail_msg("no row runs %s", e->d_name);
        n++;
    }
    closedir(d);
    assert_int_equal(n, ZX_COUNT(rows));
}

static int make_model(void **state)
{
    static cli_result r;
    static const char *const args[] = {"new",        "gpt2",     "-o",      "tiny.onnx", "--set",
                                       "layers=1",   "--set",    "width=8", "--set",     "heads=1",
                                       "--set",      "vocab=16", "--set",   "context=8", "--set",
                                       "sequence=8", NULL};
    if (cli_setup(state) != 0) return 1;
    cli_run(args, &r);
    return r.code;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    size_t n = 0;
    const size_t step = test_few() ? 4 : 1;
    for (size_t i = 0; i < ZX_COUNT(rows); i += step)
        tests[n++] = zx_case(rows[i].file, test_row, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_file_has_a_row);
    return _cmocka_run_group_tests("configs", tests, n, make_model, cli_teardown);
}

// test_program.c - the program over the stand-in: the same bits for every stage and budget, the
// same numbers as on cores, and what it says before the first step. Faults are in test_faults.c.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL ZX_TEST_DATA "/cases/mlp/model.onnx"
#define SECONDS "60" // after which a run is taken for one that hangs

static char folder[] = "/tmp/zerox-cuda-XXXXXX";
static const char *backend = "cuda";

// Runs it and returns its exit code; what it printed is in `said`.
static int run(const char *before, const char *options, char *said, size_t size)
{
    char command[2048], path[128];
    snprintf(path, sizeof path, "%s/said", folder);
    snprintf(command, sizeof command,
             "cd %s && %s timeout -k 1 " SECONDS " " ZX_PROGRAM " train " MODEL
             " --backend %s --force --out run --log log --no-save %s > said 2>&1",
             folder, before, backend, options);
    const int status = system(command);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    said[fread(said, 1, size - 1, f)] = '\0';
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

// ---- the same bits ------------------------------------------------------------------------------

// Loss and norm of every step, as the log has them.
static void read_losses(char *to, size_t size)
{
    char path[128], line[4096];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/log", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    to[0] = '\0';
    while (fgets(line, sizeof line, f) != NULL) {
        const char *keys[] = {"\"loss\"", "\"grad_norm\""};
        for (size_t k = 0; k < ZX_COUNT(keys); k++) {
            const char *at = strstr(line, keys[k]);
            assert_non_null(at);
            n += (size_t)snprintf(to + n, size - n, "%.*s ", (int)strcspn(at, ",}"), at);
            assert_true(n < size);
        }
    }
    fclose(f);
    assert_true(n > 0);
}

#define BF16 ", \"bf16\": {\"enabled\": true}"
#define FP16 ", \"fp16\": {\"enabled\": true}"
// Added up in bf16, too, of two micro-batches.
#define NARROW                                                                                     \
    BF16 ", \"data_types\": {\"grad_accum_dtype\": \"bf16\"}, \"gradient_accumulation_steps\": 2"

static const struct bits_case {
    const char *name;
    const char *config; // further keys
    int ranks;
    const char *before, *options;
    const char *policy; // whose plan is trained; NULL: zerox's own
} same[] = {
    {"stage 0", "", 2, "", "--stage 0", NULL},
    {"stage 1", "", 2, "", "--stage 1", NULL},
    {"stage 2", "", 2, "", "--stage 2", NULL},
    {"least budget", "", 2, "", "--budget min", NULL},
    {"no overlap", "", 2, "", "--no-overlap", NULL},
    {"poisoned", "", 2, "", "--poison", NULL},
    {"by host memory", "", 2, "ZX_STANDIN_DEVICES=1", "--comm shm", NULL},
    {"by host memory, stage 1", "", 2, "ZX_STANDIN_DEVICES=1", "--comm shm --stage 1", NULL},
    {"held up at random", "", 2, "ZX_STANDIN_SEED=7", "--poison", NULL},
    {"policy ddp", "", 2, "", "--plan plan", "ddp"},
    {"policy zero1", "", 2, "", "--plan plan", "zero1"},
    {"policy zero2", "", 2, "", "--plan plan", "zero2"},
    {"policy fsdp", "", 2, "", "--plan plan", "fsdp"},
    {"policy hooks", "", 2, "", "--plan plan", "hooks"},
    {"policy hooks, by host memory", "", 2, "", "--plan plan --comm shm", "hooks"},
    {"policy hooks-tuned", "", 2, "", "--plan plan --poison", "hooks-tuned"},
    {"bf16, stage 0", BF16, 2, "", "--stage 0", NULL},
    {"bf16, stage 2, held up at random", BF16, 2, "ZX_STANDIN_SEED=7", "--stage 2 --poison", NULL},
    {"bf16, by host memory, stage 1", BF16, 2, "ZX_STANDIN_DEVICES=1", "--comm shm --stage 1",
     NULL},
    {"bf16, policy hooks", BF16, 2, "ZX_STANDIN_SEED=8", "--plan plan --poison", "hooks"},
    {"bf16, policy hooks, by host memory", BF16, 2, "", "--plan plan --comm shm", "hooks"},
    {"bf16, NCCL is never asked to add", BF16, 2, "", "--config any.json", NULL},
    {"bf16 sums, stage 1, held up at random", NARROW, 3, "ZX_STANDIN_SEED=9", "--stage 1 --poison",
     NULL},
    {"bf16 sums, by host memory, stage 0", NARROW, 3, "", "--comm shm --stage 0", NULL},
    {"fp16, least budget, held up at random", FP16, 3, "ZX_STANDIN_SEED=7", "--budget min --poison",
     NULL},
    {"fp16, one rank, policy fsdp", FP16, 1, "", "--plan plan", "fsdp"},
};

static void make_plan(const char *policy, int ranks)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s && " ZX_PROGRAM " plan " MODEL
             " --backend cuda --config config.json --ranks %d --policy %s -o plan > said 2>&1",
             folder, ranks, policy);
    assert_int_equal(system(command), 0);
}

// zerox.deterministic says that nothing but the work itself may change a bit.
static void write_config(const char *name, bool deterministic, const char *more)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"deterministic\": %s}%s}",
            deterministic ? "true" : "false", more);
    fclose(f);
}

// The run that others are compared with; rows of a kind lie side by side.
static const char *first_losses(const struct bits_case *k)
{
    static const struct bits_case *of;
    static char first[8192], said[8192];
    char options[256];
    write_config("config.json", true, k->config);
    write_config("any.json", false, k->config);
    if (of != NULL && of->ranks == k->ranks && strcmp(of->config, k->config) == 0) return first;
    of = NULL;
    snprintf(options, sizeof options, "--config config.json --ranks %d --steps 3", k->ranks);
    if (run("", options, said, sizeof said) != 0) fail_msg("%s", said);
    read_losses(first, sizeof first);
    of = k;
    return first;
}

static void bits(void **state)
{
    static char got[8192], said[8192];
    const struct bits_case *k = *state;
    const bool own = strstr(k->options, "--config") != NULL;
    char options[256];
    const char *first = first_losses(k);
    if (k->policy != NULL) make_plan(k->policy, k->ranks);
    snprintf(options, sizeof options, "--ranks %d --steps 3 %s %s", k->ranks,
             own ? "" : "--config config.json", k->options);
    if (run(k->before, options, said, sizeof said) != 0) fail_msg("%s", said);
    read_losses(got, sizeof got);
    assert_string_equal(got, first);
    if (own) assert_non_null(strstr(said, "those of 16 bits are added in rank order"));
}

// ---- as on cores --------------------------------------------------------------------------------

// Losses and norms agree to a few units in the last place of the type, relative to themselves.
static const struct near_case {
    const char *name, *config;
    int ranks;
    double most;
} alike[] = {
    {"float32 as on cores", "", 2, 1e-5},
    {"bf16 as on cores", BF16, 2, 1e-2},
    {"bf16 sums as on cores", NARROW, 3, 1e-2},
    {"fp16 as on cores", FP16, 3, 1e-3},
};

static void near(void **state)
{
    static char texts[2][8192], said[8192];
    const struct near_case *k = *state;
    char options[128], *at[2] = {texts[0], texts[1]};
    write_config("config.json", true, k->config);
    snprintf(options, sizeof options, "--config config.json --ranks %d --steps 5", k->ranks);
    for (int i = 0; i < 2; i++) {
        backend = i == 0 ? "cpu" : "cuda";
        const int code = run("", options, said, sizeof said);
        backend = "cuda";
        if (code != 0) fail_msg("%s", said);
        read_losses(texts[i], sizeof texts[i]);
    }
    int n = 0;
    for (; (at[0] = strchr(at[0], ':')) != NULL; n++) {
        assert_non_null(at[1] = strchr(at[1], ':'));
        const double want = strtod(++at[0], NULL), got = strtod(++at[1], NULL);
        if (!(fabs(got - want) <= k->most * fabs(want))) fail_msg("%g, on cores %g", got, want);
    }
    assert_int_equal(n, 10); // losses and norms
}

// ---- what it says before the first step ---------------------------------------------------------

static const struct word_case {
    const char *name, *before, *options;
    int code;
    const char *words;
} refusals[] = {
    {"no device", "ZX_STANDIN_DEVICES=0", "--steps 1", 1, "no CUDA device"},
    {"more ranks than devices", "ZX_STANDIN_DEVICES=2", "--ranks 3 --steps 1", 2,
     "rank 2 has no device of its own, there are 2"},
    {"a rank a device", "ZX_STANDIN_DEVICES=2", "--steps 1", 0, "2 ranks by cuda"},
    {"times of a run", "", "--steps 3 --ranks 1 --replan-after 1", 3, "--replan-after"},
};

static void refuses(void **state)
{
    static char said[8192];
    const struct word_case *k = *state;
    const int code = run(k->before, k->options, said, sizeof said);
    if (code != k->code || strstr(said, k->words) == NULL)
        fail_msg("exit code %d, want %d and \"%s\":\n%s", code, k->code, k->words, said);
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(same) + ZX_COUNT(alike) + ZX_COUNT(refusals)];
    size_t n = 0;
    char command[64];
    if (mkdtemp(folder) == NULL) return 1;
    setenv("ZX_STANDIN_DEVICES", "3", 1);
    for (size_t i = 0; i < ZX_COUNT(same); i++) tests[n++] = zx_case(same[i].name, bits, &same[i]);
    for (size_t i = 0; i < ZX_COUNT(alike); i++)
        tests[n++] = zx_case(alike[i].name, near, &alike[i]);
    for (size_t i = 0; i < ZX_COUNT(refusals); i++)
        tests[n++] = zx_case(refusals[i].name, refuses, &refusals[i]);
    const int bad = _cmocka_run_group_tests("cuda_standin.program", tests, n, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || bad;
}

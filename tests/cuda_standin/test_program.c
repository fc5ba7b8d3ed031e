// test_program.c - the program over the stand-in: the same bits for every stage and budget, and
// what it says before the first step. Faults are in test_faults.c.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL ZX_TEST_DATA "/cases/mlp/model.onnx"
#define SECONDS "60" // after which a run is taken for one that hangs

static char folder[] = "/tmp/zerox-cuda-XXXXXX";

// Runs it and returns its exit code; what it printed is in `said`.
static int run(const char *before, const char *options, char *said, size_t size)
{
    char command[2048], path[128];
    snprintf(path, sizeof path, "%s/said", folder);
    snprintf(command, sizeof command,
             "cd %s && %s timeout -k 1 " SECONDS " " ZX_PROGRAM " train " MODEL
             " --backend cuda --force --out run --log log --no-save %s > said 2>&1",
             folder, before, options);
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

static const struct bits_case {
    const char *name, *before, *options;
    const char *policy; // whose plan is trained; NULL: zerox's own
} same[] = {
    {"stage 0", "", "--stage 0", NULL},
    {"stage 1", "", "--stage 1", NULL},
    {"stage 2", "", "--stage 2", NULL},
    {"least budget", "", "--budget min", NULL},
    {"no overlap", "", "--no-overlap", NULL},
    {"poisoned", "", "--poison", NULL},
    {"by host memory", "ZX_STANDIN_DEVICES=1", "--comm shm", NULL},
    {"by host memory, stage 1", "ZX_STANDIN_DEVICES=1", "--comm shm --stage 1", NULL},
    {"held up at random", "ZX_STANDIN_SEED=7", "--poison", NULL},
    {"policy ddp", "", "--plan plan", "ddp"},
    {"policy zero1", "", "--plan plan", "zero1"},
    {"policy zero2", "", "--plan plan", "zero2"},
    {"policy fsdp", "", "--plan plan", "fsdp"},
    {"policy hooks", "", "--plan plan", "hooks"},
    {"policy hooks, by host memory", "", "--plan plan --comm shm", "hooks"},
    {"policy hooks-tuned", "", "--plan plan --poison", "hooks-tuned"},
};

static void make_plan(const char *policy)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s && " ZX_PROGRAM " plan " MODEL
             " --backend cuda --ranks 2 --policy %s -o plan > said 2>&1",
             folder, policy);
    assert_int_equal(system(command), 0);
}

// zerox.deterministic says that nothing but the work itself may change a bit.
static void write_config(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"deterministic\": true}}", f);
    fclose(f);
}

#define TRAIN "--config config.json --ranks 2 --steps 3"

static void bits(void **state)
{
    static char first[8192], got[8192], said[8192];
    const struct bits_case *k = *state;
    char options[256];
    write_config();
    if (k->policy != NULL) make_plan(k->policy);
    if (run("", TRAIN, said, sizeof said) != 0) fail_msg("%s", said);
    read_losses(first, sizeof first);
    snprintf(options, sizeof options, TRAIN " %s", k->options);
    if (run(k->before, options, said, sizeof said) != 0) fail_msg("%s", said);
    read_losses(got, sizeof got);
    assert_string_equal(got, first);
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
    {"16 bits", "echo '{\"bf16\": {\"enabled\": true}}' > half.json &&",
     "--config half.json --steps 1", 2, "bf16.enabled = true is not supported on GPUs"},
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
    static struct CMUnitTest tests[ZX_COUNT(same) + ZX_COUNT(refusals)];
    size_t n = 0;
    char command[64];
    if (mkdtemp(folder) == NULL) return 1;
    setenv("ZX_STANDIN_DEVICES", "3", 1);
    for (size_t i = 0; i < ZX_COUNT(same); i++) tests[n++] = zx_case(same[i].name, bits, &same[i]);
    for (size_t i = 0; i < ZX_COUNT(refusals); i++)
        tests[n++] = zx_case(refusals[i].name, refuses, &refusals[i]);
    const int bad = _cmocka_run_group_tests("cuda_standin.program", tests, n, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || bad;
}

// test_program.c - the program over the stand-in: the same bits for every stage and budget, and
// faults of CUDA, cuBLASLt and NCCL, which each end all ranks with a sentence that says where.
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
} same[] = {
    {"stage 0", "", "--stage 0"},
    {"stage 1", "", "--stage 1"},
    {"stage 2", "", "--stage 2"},
    {"least budget", "", "--budget min"},
    {"no overlap", "", "--no-overlap"},
    {"poisoned", "", "--poison"},
    {"by host memory", "ZX_STANDIN_DEVICES=1", "--comm shm"},
    {"by host memory, stage 1", "ZX_STANDIN_DEVICES=1", "--comm shm --stage 1"},
    {"held up at random", "ZX_STANDIN_SEED=7", "--poison"},
};

static void bits(void **state)
{
    static char first[8192], got[8192], said[8192];
    const struct bits_case *k = *state;
    char options[256];
    if (run("", "--ranks 2 --steps 3", said, sizeof said) != 0) fail_msg("%s", said);
    read_losses(first, sizeof first);
    snprintf(options, sizeof options, "--ranks 2 --steps 3 %s", k->options);
    if (run(k->before, options, said, sizeof said) != 0) fail_msg("%s", said);
    read_losses(got, sizeof got);
    assert_string_equal(got, first);
}

// ---- faults -------------------------------------------------------------------------------------

static const struct fault_case {
    const char *name, *fail;
    int ranks, code;
    const char *words[3]; // in what it says
} faults[] = {
    {"a copy", "cudaMemcpyAsync:30:1", 1, 1, {"instruction ", "cudaErrorInvalidValue"}},
    {"a launch", "launch:3:9", 1, 1, {"node '", "cudaErrorInvalidConfiguration"}},
    {"an event", "cudaEventRecord:30:400", 1, 1, {"instruction ", "cudaErrorInvalidResource"}},
    {"a product", "cublasLtMatmul:2:13", 1, 1, {"node '", "CUBLAS_STATUS_EXECUTION_FAILED"}},
    {"a kernel, later", "item:60:700", 1, 1, {"instruction ", "cudaErrorIllegalAddress"}},
    {"memory", "cudaMalloc:1:2", 1, 4, {"the device has", "--budget"}},
    {"a stream", "cudaStreamCreateWithPriority:1:2", 1, 1, {"cudaErrorMemoryAllocation"}},
    {"a device", "cudaSetDevice:1:100", 1, 1, {"CUDA device 0", "cudaErrorNoDevice"}},
    {"one rank's kernel", "item:60:719@1", 2, 1, {"instruction ", "cudaErrorLaunchFailure"}},
    {"one rank's copy", "cudaMemcpyAsync:30:1@0", 2, 1, {"instruction ", "cudaErrorInvalid"}},
    {"a send", "ncclSend:3:3@1", 2, 1, {"instruction ", "ncclSend: internal error"}},
    {"a gather", "ncclAllGather:2:1", 2, 1, {"instruction ", "ncclAllGather: a CUDA call failed"}},
    {"a gather, later", "nccl:2:6@1", 2, 1, {"NCCL: of ", "a remote process exited"}},
    {"joining", "ncclCommInitRank:1:2@1", 2, 1, {"ncclCommInitRank: a system call failed"}},
};

static void fault(void **state)
{
    static char said[8192];
    const struct fault_case *k = *state;
    char before[256], options[64];
    snprintf(before, sizeof before, "ZX_STANDIN_FAIL=%s", k->fail);
    snprintf(options, sizeof options, "--ranks %d --steps 3", k->ranks);
    const int code = run(before, options, said, sizeof said);
    if (code != k->code) fail_msg("exit code %d, want %d:\n%s", code, k->code, said);
    for (size_t i = 0; i < ZX_COUNT(k->words) && k->words[i] != NULL; i++)
        if (strstr(said, k->words[i]) == NULL) fail_msg("no \"%s\" in:\n%s", k->words[i], said);
}

// A rank that is killed in the middle of a run ends the others.
static void killed(void **state ZX_UNUSED)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s; timeout -k 1 " SECONDS " " ZX_PROGRAM " train " MODEL
             " --backend cuda --ranks 3 --steps 100000 --force --out run --no-save > said 2>&1 & "
             "t=$!; while ! grep -q '^ *step\\|^plan' %s/said; do sleep 0.1; done; sleep 0.5; "
             "p=$(pgrep -P $t); kill -9 $(pgrep -P $p | head -n 1); wait $t",
             folder, folder);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 6);
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
    static struct CMUnitTest tests[ZX_COUNT(same) + ZX_COUNT(faults) + ZX_COUNT(refusals) + 1];
    size_t n = 0;
    char command[64];
    if (mkdtemp(folder) == NULL) return 1;
    setenv("ZX_STANDIN_DEVICES", "3", 1);
    for (size_t i = 0; i < ZX_COUNT(same); i++) tests[n++] = zx_case(same[i].name, bits, &same[i]);
    for (size_t i = 0; i < ZX_COUNT(faults); i++)
        tests[n++] = zx_case(faults[i].name, fault, &faults[i]);
    for (size_t i = 0; i < ZX_COUNT(refusals); i++)
        tests[n++] = zx_case(refusals[i].name, refuses, &refusals[i]);
    tests[n++] = zx_case("a rank is killed", killed, NULL);
    const int bad = _cmocka_run_group_tests("cuda_standin.program", tests, n, NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || bad;
}

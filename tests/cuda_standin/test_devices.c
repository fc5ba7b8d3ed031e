// test_devices.c - what the program says of GPUs, and what it plans for them, over the stand-in.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL ZX_TEST_DATA "/cases/mlp/model.onnx"
#define TRAIN "train " MODEL " --steps 1 --force --out run --no-save "
#define BY_FIGURES                                                                                 \
    "planned for stand-in for CUDA 0 by its own figures, assumed: 737 GFLOP/s of products, "       \
    "16.0 GB/s of memory"

static char folder[] = "/tmp/zerox-devices-XXXXXX";

static const struct said_case {
    const char *name, *before, *options;
    int code;
    const char *says[4], *never;
} rows[] = {
    {"listed",
     "",
     "machine",
     0,
     {"host: this host", "GPU 0              stand-in for CUDA 0: memory 1.00 GiB, 1.00 GiB free",
      "16.0 GB/s; compute capability 8.6, 4 SMs at 1 GHz",
      "GPU 1              stand-in for CUDA 1"},
     "GPU 2"},
    {"none",
     "ZX_STANDIN_DEVICES=0",
     "machine",
     0,
     {"GPUs               none: cudaGetDeviceCount: cudaErrorNoDevice"},
     "GPU 0"},
    {"one fails",
     "ZX_STANDIN_FAIL=cudaGetDeviceProperties:2:101",
     "machine",
     0,
     {"GPUs               none: ", "cudaErrorInvalidDevice"},
     "GPU 0"},
    {"none of another machine", "", "machine h100", 0, {"h100x8: each"}, "GPU"},
    {"GPUs as a machine",
     "",
     "machine --backend cuda",
     0,
     {"stand-in for CUDA 0x2: each of its ranks", BY_FIGURES ", 20.0 GB/s between ranks",
      "memory             1.00 GiB", "GPU 1"},
     "threads"},
    {"as many as asked for",
     "",
     "machine --backend cuda --ranks 1",
     0,
     {"stand-in for CUDA 0x1: ", BY_FIGURES ";"},
     NULL},
    {"as a file",
     "",
     "machine --backend cuda --format json",
     0,
     {"\"name\": \"stand-in for CUDA 0x2\"", "\"peak\": 1.024e+12"},
     "GPU 0"},
    {"cores in place of GPUs",
     "",
     "machine --backend cpu",
     0,
     {"host: this host", "GPU 0"},
     "figures"},
    {"they aren't measured",
     "",
     "machine --backend cuda --calibrate",
     3,
     {"--calibrate: GPUs aren't measured", "--backend cpu"},
     NULL},
    {"not there", "ZX_STANDIN_DEVICES=0", "machine --backend cuda", 1, {"no CUDA device"}, NULL},
    {"two machines", "", "machine h100 --backend cuda", 2, {"--machine names another"}, NULL},
    {"a plan for all of them",
     "",
     "plan " MODEL " --backend cuda",
     0,
     {BY_FIGURES ", 20.0 GB/s between ranks", "machine model (stand-in for CUDA 0x2)"},
     "host"},
    {"a plan without a word",
     "",
     "plan " MODEL,
     0,
     {"machine model (stand-in for CUDA 0x2)"},
     NULL},
    {"a plan for one",
     "",
     "plan " MODEL " --ranks 1",
     0,
     {BY_FIGURES ";", "machine model (stand-in for CUDA 0x1)"},
     "between ranks"},
    {"a plan for cores",
     "",
     "plan " MODEL " --backend cpu --threads 1",
     0,
     {"machine model (host)"},
     "CUDA"},
    {"every way to cut a batch for all of them",
     "",
     "plan " MODEL " --auto",
     0,
     {BY_FIGURES, "on stand-in for CUDA 0x2: 2 ranks, ", "* "},
     "host"},
    {"ways for one",
     "",
     "plan " MODEL " --auto --backend cuda --ranks 1",
     0,
     {"on stand-in for CUDA 0x1: 1 rank, "},
     "host"},
    {"ways for cores",
     "",
     "plan " MODEL " --auto --backend cpu --threads 1",
     0,
     {"on host: 1 rank, "},
     "CUDA"},
    {"ways for another machine", "", "plan " MODEL " --auto --machine h100x2", 0, {"h100"}, "CUDA"},
    {"policies on all of them",
     "",
     "compare " MODEL,
     0,
     {BY_FIGURES, "hooks-tuned, schedule only"},
     NULL},
    {"policies on cores",
     "",
     "compare " MODEL " --backend cpu --ranks 2 --threads 1",
     0,
     {"fsdp"},
     "CUDA"},
    {"policies aren't run on them",
     "",
     "compare " MODEL " --execute --backend cuda --ranks 2",
     3,
     {"--execute: steps of policies aren't timed on GPUs yet", "--backend cpu"},
     NULL},
    {"a run on all of them",
     "",
     TRAIN,
     0,
     {"2 ranks by cuda", BY_FIGURES, "machine model (stand-in for CUDA 0x2)"},
     "host"},
    {"a run on cores", "", TRAIN "--backend cpu --threads 1", 0, {"1 rank x 1 thread"}, "CUDA"},
    {"three ranks on two",
     "",
     TRAIN "--comm shm --ranks 3",
     0,
     {"assumed: 369 GFLOP/s of products", "5.00 GB/s between ranks", "a rank of 410 MiB"},
     NULL},
    {"a plan that doesn't fit",
     "ZX_STANDIN_MEMORY=60000",
     TRAIN "--ranks 1",
     4,
     {"the budget is 46.9 KiB"},
     NULL},
};

static void says(void **state)
{
    static char said[32768];
    const struct said_case *k = *state;
    char command[2048], path[128];
    snprintf(path, sizeof path, "%s/said", folder);
    snprintf(command, sizeof command, "cd %s && %s timeout 60 " ZX_PROGRAM " %s > said 2>&1",
             folder, k->before, k->options);
    const int status = system(command);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    fclose(f);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != k->code)
        fail_msg("exit code %d, want %d:\n%s", WEXITSTATUS(status), k->code, said);
    for (size_t i = 0; i < ZX_COUNT(k->says) && k->says[i] != NULL; i++)
        if (strstr(said, k->says[i]) == NULL) fail_msg("no \"%s\" in:\n%s", k->says[i], said);
    if (k->never != NULL && strstr(said, k->never) != NULL)
        fail_msg("\"%s\" in:\n%s", k->never, said);
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(rows)];
    char command[64];
    if (mkdtemp(folder) == NULL) return 1;
    setenv("ZX_STANDIN_DEVICES", "2", 1);
    for (size_t i = 0; i < ZX_COUNT(rows); i++) tests[i] = zx_case(rows[i].name, says, &rows[i]);
    const int bad =
        _cmocka_run_group_tests("cuda_standin.devices", tests, ZX_COUNT(rows), NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || bad;
}

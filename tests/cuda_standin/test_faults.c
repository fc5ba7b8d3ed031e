// test_faults.c - faults of CUDA, cuBLASLt and NCCL, ranks that die and ranks that don't answer, on
// each kind of call, from the start of a run to its saving. Each ends all ranks soon, with the
// library's own words and where it was, and leaves neither a process nor a name in /dev/shm.
//
// Which call is hit is said in per cent of those that a run without faults makes: 0 the first, 100
// the last. Of those that wait and ask (...Query) there are more or fewer each time: only the first
// is certain. ZX_FAULTS=N adds N rows by chance.
// SPDX-License-Identifier: Apache-2.0
#include "tests/left.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define MODEL ZX_TEST_DATA "/cases/mlp/model.onnx"

static char folder[] = "/tmp/zerox-faults-XXXXXX";

typedef struct fault_case {
    const char *name;
    int ranks;
    const char *comm, *call;
    int at;               // per cent
    const char *what;     // an error's number, or kill, stop, hang
    int rank;             // that it happens to
    int code;             // exit code; -1: not 0
    const char *words[3]; // in what it says; "!...": not there
} fault_case;

#define N "nccl"
#define S "shm"
static const fault_case faults[] = {
    // ---- the start
    {"devices", 1, N, "cudaGetDeviceCount", 0, "35", 0, 1, {"cudaErrorInsufficientDriver"}},
    {"a device", 1, N, "cudaSetDevice", 0, "100", 0, 1, {"CUDA device 0", "cudaErrorNoDevice"}},
    {"what it can", 1, N, "cudaGetDeviceProperties", 0, "999", 0, 1, {"cudaErrorUnknown"}},
    {"what it has", 1, N, "cudaDeviceGetAttribute", 0, "999", 0, 1, {"CUDA device 0", "Unknown"}},
    {"what is free", 1, N, "cudaMemGetInfo", 50, "999", 0, 1, {"CUDA device 0: cudaMemGetInfo"}},
    {"the device again", 1, N, "cudaSetDevice", 50, "999", 0, 1, {"CUDA device 0: cudaSetDevice"}},
    {"a stream", 1, N, "cudaStreamCreateWithPriority", 0, "2", 0, 1, {"MemoryAlloc", "--budget"}},
    {"cuBLASLt", 1, N, "cublasLtCreate", 0, "1", 0, 1, {"CUBLAS_STATUS_NOT_INITIALIZED"}},
    {"memory left", 1, N, "cudaMemGetInfo", 100, "999", 0, 1, {"opening", "cudaMemGetInfo"}},
    {"memory", 1, N, "cudaMalloc", 0, "2", 0, 4, {"the device has", "--budget"}},
    {"pinned memory", 1, N, "cudaHostAlloc", 0, "2", 0, 1, {"opening", "--budget"}},
    {"more of it", 1, N, "cudaHostAlloc", 100, "2", 0, 1, {"opening", "--budget"}},
    {"an event made", 1, N, "cudaEventCreateWithFlags", 50, "2", 0, 1, {"opening", "--budget"}},
    {"a choice", 1, N, "cublasLtMatmulAlgoGetHeuristic", 50, "3", 0, 1, {"node '", "--budget"}},
    {"a layout", 1, N, "cublasLtMatrixLayoutCreate", 50, "7", 0, 1, {"node '", "INVALID_VALUE"}},
    {"first values", 1, N, "cudaMemcpyAsync", 0, "1", 0, 1, {"first values: cudaMemcpyAsync"}},
    {"first values, late", 1, N, "item", 0, "719", 0, 1, {"first values: ", "LaunchFailure"}},
    // ---- steps of one rank
    {"a copy", 1, N, "cudaMemcpyAsync", 75, "1", 0, 1, {"instruction ", "cudaErrorInvalidValue"}},
    {"a launch", 1, N, "launch", 0, "9", 0, 1, {"step 1: instruction ", "node '", "Configuration"}},
    {"a launch midway", 1, N, "launch", 50, "701", 0, 1, {"step 2: instruction ", "Resources"}},
    {"the last launch", 1, N, "launch", 100, "9", 0, 1, {"step 3: instruction ", "Configuration"}},
    {"an event", 1, N, "cudaEventRecord", 40, "400", 0, 1, {"instruction ", "ResourceHandle"}},
    {"the last event", 1, N, "cudaEventRecord", 97, "400", 0, 1, {"step 3: instruction "}},
    {"a product",
     1,
     N,
     "cublasLtMatmul",
     0,
     "13",
     0,
     1,
     {"step 1: ", "node '", "EXECUTION_FAILED"}},
    {"the last product", 1, N, "cublasLtMatmul", 100, "14", 0, 1, {"step 3: ", "node '"}},
    {"a fill",
     1,
     N,
     "cudaMemsetAsync",
     50,
     "1",
     0,
     1,
     {"step 2: instruction ", "norm: cudaMemset"}},
    {"an event is asked", 1, N, "cudaEventQuery", 0, "214", 0, 1, {"ECC", "try: another device"}},
    {"a stream is asked", 1, N, "cudaStreamQuery", 0, "700", 0, 1, {"IllegalAddress"}},
    {"a kernel, late", 1, N, "item", 35, "700", 0, 1, {"instruction ", "cudaErrorIllegalAddress"}},
    {"a kernel midway, late", 1, N, "item", 55, "719", 0, 1, {"instruction ", "LAUNCH_BLOCKING=1"}},
    {"memory fails", 1, N, "item", 60, "214", 0, 1, {"instruction ", "cudaErrorECCUncorrectable"}},
    {"the last step, late", 1, N, "item", 85, "716", 0, 1, {"step 3: ", "MisalignedAddress"}},
    {"one at a time", 1, N, "CUDA_LAUNCH_BLOCKING", 45, "700", 0, 1, {"instruction ", "!between"}},
    {"nothing happens", 1, N, "item", 50, "hang", 0, 1, {"instruction ", "nothing has happened"}},
    {"nothing at all", 1, N, "item", 0, "hang", 0, 1, {"first values: nothing has happened"}},
    // ---- saving of one rank
    {"saving", 1, N, "cudaMemcpyAsync", 100, "1", 0, 1, {"reading values back: cudaMemcpyAsync"}},
    {"saving, late", 1, N, "item", 100, "700", 0, 1, {"reading values back: ", "IllegalAddress"}},
    {"saving hangs", 1, N, "item", 100, "hang", 0, 1, {"reading values back: nothing has"}},
    // ---- calls that never come back
    {"a device never opens",
     1,
     N,
     "cublasLtCreate",
     0,
     "hang",
     0,
     1,
     {"CUDA device 0: a call of CUDA hasn't come back for 1 s"}},
    {"memory never comes", 1, N, "cudaMalloc", 0, "hang", 0, 1, {"opening", "hasn't come back"}},
    {"a choice is never made",
     1,
     N,
     "cublasLtMatmulAlgoGetHeuristic",
     50,
     "hang",
     0,
     1,
     {"preparing node '"}},
    {"a copy never returns",
     1,
     N,
     "cudaMemcpyAsync",
     75,
     "hang",
     0,
     1,
     {"instruction ", "hasn't come back for 1 s (--timeout)"}},
    {"a launch never returns",
     1,
     N,
     "launch",
     50,
     "hang",
     0,
     1,
     {"step 2: instruction ", "hasn't come back"}},
    {"saving never returns", 1, N, "cudaMemcpyAsync", 100, "hang", 0, 1, {"reading values back"}},
    {"a rank's call never returns",
     2,
     N,
     "cudaEventRecord",
     50,
     "hang",
     1,
     1,
     {"rank ", "instruction ", "--timeout"}},
    {"a staged copy never returns",
     2,
     S,
     "cudaMemcpyAsync",
     50,
     "hang",
     0,
     1,
     {"rank 0: ", "instruction "}},
    // ---- NCCL
    {"an id", 2, N, "ncclGetUniqueId", 0, "3", 0, 1, {"ncclGetUniqueId: internal error"}},
    {"joining", 2, N, "ncclCommInitRank", 0, "2", 1, 1, {"opening", "a system call failed"}},
    {"joining again", 2, N, "ncclCommInitRank", 100, "1", 0, 1, {"opening", "NCCL_DEBUG"}},
    {"a group", 2, N, "ncclGroupStart", 30, "5", 1, 1, {"instruction ", "invalid usage"}},
    {"a group's end", 2, N, "ncclGroupEnd", 50, "6", 0, 1, {"instruction ", "a remote process"}},
    {"a gather",
     2,
     N,
     "ncclAllGather",
     0,
     "1",
     0,
     1,
     {"gather of '", "ncclAllGather: a CUDA call"}},
    {"the last gather", 2, N, "ncclAllGather", 100, "3", 1, 1, {"rank 1: step 3: instruction "}},
    {"a send", 2, N, "ncclSend", 40, "3", 1, 1, {"reduce of '", "internal error"}},
    {"the last receive", 2, N, "ncclRecv", 100, "2", 0, 1, {"rank 0: step 3: instruction "}},
    {"a collective, late", 2, N, "nccl", 0, "6", 1, 1, {"instruction ", "NCCL: of ", "a remote"}},
    {"the last one, late", 2, N, "nccl", 100, "3", 0, 1, {"step 3: ", "NCCL: of ", "internal"}},
    {"NCCL is asked", 2, N, "ncclCommGetAsyncError", 0, "3", 1, 1, {"ncclCommGetAsyncError"}},
    {"a wait", 2, N, "cudaStreamWaitEvent", 50, "400", 1, 1, {"instruction ", "StreamWaitEvent"}},
    {"a rank's kernel, late", 2, N, "item", 50, "719", 1, 1, {"rank 1: ", "instruction "}},
    {"a rank's copy", 2, N, "cudaMemcpyAsync", 75, "1", 0, 1, {"rank 0: ", "instruction "}},
    {"a rank's saving", 2, N, "cudaMemcpyAsync", 100, "719", 1, 1, {"rank 1: reading values back"}},
    {"rank 0's saving", 2, N, "cudaMemcpyAsync", 100, "719", 0, 1, {"rank 0: reading values back"}},
    {"a call hangs", 2, N, "ncclGroupEnd", 50, "hang", 1, 1, {"instruction ", "--timeout"}},
    {"one of three, late", 3, N, "item", 70, "700", 2, 1, {"rank 2: ", "instruction "}},
    {"nothing on one", 3, N, "item", 50, "hang", 2, 1, {"instruction ", "nothing has happened"}},
    // ---- ranks that die, or stop
    {"dies at the start", 3, N, "cudaGetDeviceProperties", 0, "kill", 2, 6, {"rank 2 was killed"}},
    {"dies with memory", 3, N, "cudaMalloc", 0, "kill", 0, 6, {"rank 0 was killed", "opening"}},
    {"dies joining", 2, N, "ncclCommInitRank", 100, "kill", 1, 6, {"rank 1 was killed", "opening"}},
    {"dies in a step", 3, N, "item", 50, "kill", 1, 6, {"rank 1 was killed", "instruction "}},
    {"dies in the last", 3, N, "launch", 100, "kill", 2, 6, {"rank 2 was killed"}},
    {"dies saving", 3, N, "cudaMemcpyAsync", 100, "kill", 0, 6, {"rank 0 was killed", "reading"}},
    {"stops joining", 2, N, "ncclCommInitRank", 0, "stop", 1, -1, {"opening", "--timeout"}},
    {"stops in a step", 3, N, "item", 50, "stop", 1, -1, {"instruction ", "--timeout"}},
    {"stops saving", 2, N, "cudaMemcpyAsync", 100, "stop", 0, 6, {"rank 0 has not answered"}},
    // ---- through the host's memory
    {"windows", 2, S, "cudaHostRegister", 0, "2", 1, 1, {"opening", "cudaHostRegister"}},
    {"a staged copy", 2, S, "cudaMemcpyAsync", 50, "1", 1, 1, {"rank 1: ", "instruction "}},
    {"a staged sum", 2, S, "launch", 60, "9", 0, 1, {"rank 0: ", "instruction "}},
    {"staged, late", 2, S, "item", 50, "700", 0, 1, {"rank 0: ", "instruction "}},
    {"staged, last step", 3, S, "launch", 100, "719", 2, 1, {"rank 2: step 3: ", "instruction "}},
    {"staged, saving", 3, S, "cudaMemcpyAsync", 100, "719", 2, 1, {"rank 2: reading values back"}},
    {"dies, staged", 3, S, "item", 50, "kill", 0, 6, {"rank 0 was killed", "instruction "}},
    {"stops, staged", 3, S, "item", 50, "stop", 1, 6, {"instruction ", "rank 1 has not answered"}},
    {"nothing, staged", 2, S, "item", 50, "hang", 1, -1, {"instruction ", "--timeout"}},
};
#undef N
#undef S

// ---- one run ------------------------------------------------------------------------------------

static char said[16384];

static pid_t start(int ranks, const char *comm, const char *variable, const char *value)
{
    const pid_t pid = wait_fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    char number[8];
    snprintf(number, sizeof number, "%d", ranks);
    const int out = open("said", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (setenv(variable, value, 1) != 0) _exit(127);
    dup2(open("/dev/null", O_WRONLY), 1);
    dup2(out, 2);
    execl(ZX_PROGRAM, ZX_PROGRAM, "train", MODEL, "--backend", "cuda", "--steps", "3", "--out",
          "run", "--force", "--ranks", number, "--timeout", "1s",
          ranks > 1 ? "--comm" : (char *)NULL, comm, (char *)NULL);
    _exit(127);
}

static int end(pid_t pid)
{
    const int code = wait_end(pid), f = open("said", O_RDONLY);
    assert_true(f >= 0);
    const ssize_t n = read(f, said, sizeof said - 1);
    close(f);
    said[n > 0 ? n : 0] = '\0';
    left_no_process(10);               // ranks end with their launcher
    left_no_shm(pid, "standin-nccl-"); // the stand-in's own, of a rank that was killed joining
    return code;
}

// ---- how many calls a run makes -----------------------------------------------------------------

static void counts_name(int ranks, const char *comm, char to[64])
{
    snprintf(to, 64, "counts.%d%s", ranks, comm);
}

// How often a rank made the call in a run without faults; or (call NULL) the name of the nth kind.
static uint64_t count_of(const fault_case *k, const char *call, uint32_t nth, char name[64])
{
    char path[80], line[128];
    unsigned long long n = 0;
    counts_name(k->ranks, k->comm, path);
    snprintf(path + strlen(path), 8, ".%d", k->rank);
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("no %s", path);
    uint32_t i = 0;
    for (; n == 0 && fgets(line, sizeof line, f) != NULL; i++) {
        name[0] = '\0';
        if (sscanf(line, "%63s %llu", name, &n) != 2) n = 0;
        if (call != NULL ? strcmp(name, call) != 0 : i != nth) n = 0;
    }
    fclose(f);
    return n;
}

static int count_calls(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int c = 0; c < 2; c++) {
            char path[64];
            const char *comm = c == 0 ? "nccl" : "shm";
            counts_name(ranks, comm, path);
            const int code = end(start(ranks, comm, "ZX_STANDIN_COUNTS", path));
            if (code != 0) print_message("exit code %d of a run without faults:\n%s", code, said);
            if (code != 0) return 1;
        }
    return 0;
}

// ---- what must hold -----------------------------------------------------------------------------

static int run(const fault_case *k)
{
    char fail[128], name[64];
    const bool blocking = strcmp(k->call, "CUDA_LAUNCH_BLOCKING") == 0;
    const char *call = blocking ? "item" : k->call;
    const uint64_t n = count_of(k, call, 0, name);
    if (n == 0) fail_msg("a run makes no call of %s", call);
    snprintf(fail, sizeof fail, "%s:%llu:%s@%d", call,
             (unsigned long long)(1 + (n - 1) * (uint64_t)k->at / 100), k->what, k->rank);
    if (blocking) setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    const pid_t pid = start(k->ranks, k->comm, "ZX_STANDIN_FAIL", fail);
    unsetenv("CUDA_LAUNCH_BLOCKING");
    const int code = end(pid);
    if (code == -1) fail_msg("%s: it hung; so far it said:\n%s", fail, said);
    return code;
}

// A cause that says where, and one line of what to try.
static void check_said(const char *fail)
{
    static const char *const places[] = {
        "instruction ",        "node '",       "opening the session", "first values",
        "reading values back", "CUDA device ", "was killed by"};
    uint32_t causes = 0, hints = 0, placed = 0;
    for (char *line = strtok(said, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        causes += strncmp(line, "zerox: ", 7) == 0;
        hints += strncmp(line, "try: ", 5) == 0;
        for (size_t i = 0; i < ZX_COUNT(places) && strncmp(line, "zerox: ", 7) == 0; i++)
            placed += strstr(line, places[i]) != NULL;
    }
    if (causes == 0 || hints != 1 || placed == 0)
        fail_msg("%s: %u causes, %u of them with a place, %u hints", fail, causes, placed, hints);
}

static void fault(void **state)
{
    const fault_case *k = *state;
    const int code = run(k);
    if (k->code < 0 ? code == 0 || code >= 1000 : code != k->code)
        fail_msg("exit code %d, want %d:\n%s", code, k->code, said);
    for (size_t i = 0; i < ZX_COUNT(k->words) && k->words[i] != NULL; i++) {
        const bool absent = k->words[i][0] == '!';
        if ((strstr(said, k->words[i] + absent) != NULL) == absent)
            fail_msg("\"%s\" in:\n%s", k->words[i], said);
    }
    if (strstr(said, "MemoryAllocation") == NULL && strstr(said, "ALLOC_FAILED") == NULL &&
        k->code == 1 && strstr(said, "--budget") != NULL)
        fail_msg("--budget helps nobody here:\n%s", said);
    check_said(k->name);
}

// ---- by chance ----------------------------------------------------------------------------------

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// Another fault each: it ends in time with words, or what it hit came too late to matter.
static void by_chance(void **state)
{
    static const char *const cuda[] = {"1", "2", "214", "700", "719", "999", "kill", "hang"};
    static const char *const blas[] = {"3", "7", "13", "14"};
    static const char *const nccl[] = {"1", "2", "3", "6", "kill"};
    static const char *const item[] = {"214", "700", "719", "kill", "hang"};
    const uint64_t seed = (uint64_t)(uintptr_t)*state;
    uint64_t x = seed * 0x9E3779B97F4A7C15u;
#define PICK(list) list[(x = mix(x + 1)) % ZX_COUNT(list)]
    char name[64];
    fault_case k = {.ranks = 1 + (int)((x = mix(x + 1)) % 3)};
    k.comm = (x = mix(x + 1)) & 1 ? "nccl" : "shm";
    k.rank = (int)((x = mix(x + 1)) % (uint64_t)k.ranks);
    uint32_t kinds = 0;
    while (count_of(&k, NULL, kinds, name) > 0) kinds++;
    count_of(&k, NULL, (uint32_t)((x = mix(x + 1)) % kinds), name);
    k.call = name;
    k.at = (int)((x = mix(x + 1)) % 101);
    k.what = strncmp(name, "cublas", 6) == 0 ? PICK(blas)
             : strncmp(name, "nccl", 4) == 0 ? PICK(nccl)
             : strcmp(name, "item") == 0     ? PICK(item)
                                             : PICK(cuda);
#undef PICK
    if (k.ranks == 1 && strcmp(k.what, "kill") == 0) k.what = "1"; // nobody is left to say it
    if (strcmp(name, "cudaGetDeviceCount") == 0) k.what = "1";     // looked at for a minute
    print_message("%d ranks, %s: %s at %d%%: %s on rank %d\n", k.ranks, k.comm, k.call, k.at,
                  k.what, k.rank);
    const int code = run(&k);
    if (code == 0 && strstr(said, "done: 3 steps") == NULL)
        fail_msg("exit code 0, but not done:\n%s", said);
    if (code >= 1000) fail_msg("killed by signal %d:\n%s", code - 1000, said);
    if (code != 0) check_said(name);
}

static int clear(void **state)
{
    (void)state;
    left_end();
    return system("rm -rf run said") != 0;
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(faults) + 10000];
    const char *more = getenv("ZX_FAULTS");
    const uint64_t by = more != NULL ? strtoull(more, NULL, 10) : 0;
    size_t n = 0;
    char command[64];
    left_begin();
    if (mkdtemp(folder) == NULL || chdir(folder) != 0) return 1;
    setenv("ZX_STANDIN_DEVICES", "3", 1);
    for (size_t i = 0; i < ZX_COUNT(faults); i += test_few() ? 5 : 1)
        tests[n++] = zx_case(faults[i].name, fault, &faults[i]);
    for (uint64_t i = 0; i < by && i < 10000; i++)
        tests[n++] = zx_case("by chance", by_chance, (const void *)(uintptr_t)(i + 1));
    for (size_t i = 0; i < n; i++) tests[i].setup_func = tests[i].teardown_func = clear;
    const int bad = _cmocka_run_group_tests("cuda_standin.faults", tests, n, count_calls, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return chdir("/") != 0 || system(command) != 0 || bad;
}

// test_streams.c - streams and events of the stand-in: what is ordered, what isn't, and errors that
// are asked for. Run with an argument it is its own child that races.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 128 * 8 };

// Two streams: host to a, a + 1 to b on another, b to the host on the first. With `waits` each
// stream waits for what it needs; returns whether the result is right.
static bool ping_pong(bool waits)
{
    float *host = pinned(N * sizeof(float)), *back = pinned(N * sizeof(float));
    float *a = on_device(N * sizeof(float)), *b = on_device(N * sizeof(float));
    cudaStream_t copy = a_stream(), compute = a_stream();
    cudaEvent_t copied = an_event(), added = an_event();
    for (int i = 0; i < N; i++) host[i] = (float)i;
    assert_ok(cudaMemcpyAsync(a, host, N * sizeof(float), cudaMemcpyHostToDevice, copy));
    assert_ok(cudaEventRecord(copied, copy));
    if (waits) assert_ok(cudaStreamWaitEvent(compute, copied, 0));
    assert_ok(probe_add(b, a, 1, N / 128, compute));
    assert_ok(cudaEventRecord(added, compute));
    if (waits) assert_ok(cudaStreamWaitEvent(copy, added, 0));
    assert_ok(cudaMemcpyAsync(back, b, N * sizeof(float), cudaMemcpyDeviceToHost, copy));
    assert_ok(cudaStreamSynchronize(copy));
    bool right = true;
    for (int i = 0; i < N; i++) right &= back[i] == (float)i + 1;
    zx_standin_reset();
    return right;
}

static void waits_order(void **state ZX_UNUSED)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        zx_standin_seed(seed);
        assert_true(ping_pong(true));
    }
}

#if !defined(ZX_STANDIN_TSAN)
static void a_missing_wait_gives_wrong_bytes(void **state ZX_UNUSED)
{
    uint32_t wrong = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        zx_standin_seed(seed);
        wrong += !ping_pong(false);
    }
    assert_true(wrong >= 10);
}
#else
// What the sanitizer says of this program run with `argument`.
static void child_says(const char *argument, const char *want)
{
    char path[512], command[1200], line[512];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    snprintf(command, sizeof command, "TSAN_OPTIONS=halt_on_error=1:exitcode=66 '%s' %s 2>&1", path,
             argument);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    bool found = false;
    while (fgets(line, sizeof line, p) != NULL) found |= strstr(line, want) != NULL;
    const int status = pclose(p);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 66);
    assert_true(found);
}
static void a_missing_wait_is_a_race(void **state ZX_UNUSED)
{
    child_says("wait", "data race");
}
static void a_missing_barrier_is_a_race(void **state ZX_UNUSED)
{
    child_says("barrier", "data race");
}
static void a_missing_synchronize_is_a_race(void **state ZX_UNUSED)
{
    child_says("synchronize", "data race");
}
#endif

static int race(const char *what) // the child
{
    zx_standin_seed(5);
    if (strcmp(what, "wait") == 0) {
        // Once may go by unseen: the sanitizer remembers few accesses, and not across everything.
        for (uint64_t seed = 5; seed < 25; seed++) {
            zx_standin_seed(seed);
            ping_pong(false);
        }
    } else if (strcmp(what, "barrier") == 0) {
        if (probe_wrong(PROBE_NO_BARRIER, on_device(256), 64, a_stream()) != cudaSuccess) return 1;
        if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    } else {
        float *host = pinned(64);
        cudaStream_t s = a_stream();
        if (cudaMemcpyAsync(host, on_device(64), 64, cudaMemcpyDeviceToHost, s) != cudaSuccess)
            return 1;
        usleep(20000);
        host[0] += 1; // done by now, but nobody said so
    }
    zx_standin_reset();
    return 0;
}

// An event is the state of its stream when it was recorded last, and a wait means that record.
static void records(void **state ZX_UNUSED)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        zx_standin_seed(seed);
        float *a = on_device(4 * 128), *b = on_device(4 * 128), got;
        cudaStream_t s = a_stream(), t = a_stream();
        cudaEvent_t e = an_event();
        assert_ok(cudaStreamWaitEvent(t, e, 0)); // never recorded: no wait
        assert_ok(cudaEventQuery(e));
        assert_ok(cudaStreamSynchronize(t));
        assert_ok(cudaMemsetAsync(a, 0, 512, s));
        for (int i = 0; i < 5; i++) { // a += 1 on s; b = a on t, in turns
            assert_ok(probe_add(a, a, 1, 1, s));
            assert_ok(cudaEventRecord(e, s));
            assert_ok(cudaStreamWaitEvent(t, e, 0));
            assert_ok(probe_add(b, a, 0, 1, t));
            assert_ok(cudaEventRecord(e, t));
            assert_ok(cudaStreamWaitEvent(s, e, 0));
        }
        assert_ok(cudaMemcpyAsync(&got, b + 127, sizeof got, cudaMemcpyDeviceToHost, t));
        assert_true(got == 5);
        zx_standin_reset();
    }
}

static void slow(void *ms)
{
    usleep((useconds_t)(1000 * (uintptr_t)ms));
}

static void queries(void **state ZX_UNUSED)
{
    cudaStream_t s = a_stream();
    cudaEvent_t from, to, untimed = an_event();
    float ms = 0;
    assert_ok(cudaEventCreateWithFlags(&from, cudaEventDefault));
    assert_ok(cudaEventCreateWithFlags(&to, cudaEventDefault));
    assert_ok(cudaStreamQuery(s));
    assert_cuda(cudaEventElapsedTime(&ms, from, to), cudaErrorInvalidResourceHandle);
    assert_ok(cudaEventRecord(from, s));
    assert_ok(cudaLaunchHostFunc(s, slow, (void *)(uintptr_t)30));
    assert_ok(cudaEventRecord(to, s));
    assert_ok(cudaEventRecord(untimed, s));
    assert_cuda(cudaStreamQuery(s), cudaErrorNotReady);
    assert_cuda(cudaEventQuery(to), cudaErrorNotReady);
    assert_cuda(cudaEventElapsedTime(&ms, from, to), cudaErrorNotReady);
    assert_cuda(cudaGetLastError(), cudaErrorNotReady); // as CUDA keeps it
    assert_ok(cudaEventSynchronize(to));
    assert_ok(cudaEventElapsedTime(&ms, from, to));
    assert_true(ms >= 29);
    assert_cuda(cudaEventElapsedTime(&ms, from, untimed), cudaErrorInvalidResourceHandle);
}

static void handles(void **state ZX_UNUSED)
{
    cudaStream_t s = a_stream();
    cudaEvent_t e = an_event();
    assert_cuda(cudaStreamCreateWithFlags(&s, cudaStreamDefault), cudaErrorInvalidValue);
    assert_ok(cudaSetDevice(1));
    cudaStream_t other = a_stream();
    assert_cuda(cudaEventRecord(e, other), cudaErrorInvalidResourceHandle);
    assert_ok(cudaStreamWaitEvent(other, e, 0));
    assert_ok(cudaEventDestroy(e));
    assert_cuda(cudaEventRecord(e, s), cudaErrorInvalidResourceHandle);
    assert_ok(cudaStreamDestroy(s));
    assert_cuda(cudaStreamSynchronize(s), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaStreamSynchronize(NULL), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaSetDevice(2), cudaErrorInvalidDevice);
    assert_int_equal(zx_standin_reset(), 1);
}

static void devices(void **state ZX_UNUSED)
{
    int n = 0, major = 0, at = -1;
    struct cudaDeviceProp p;
    assert_ok(cudaGetDeviceCount(&n));
    assert_int_equal(n, 2);
    assert_ok(cudaGetDevice(&at));
    assert_int_equal(at, 0);
    assert_ok(cudaGetDeviceProperties(&p, 1));
    assert_ok(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 1));
    assert_int_equal(major, p.major);
    assert_cuda(cudaGetDeviceProperties(&p, 2), cudaErrorInvalidDevice);
    assert_string_equal(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
    assert_string_equal(cudaGetErrorName((cudaError_t)12345), "cudaErrorUnknown");
}

static void after_fork(void **state ZX_UNUSED)
{
    a_stream();
    const pid_t child = fork();
    if (child == 0) {
        int n;
        _exit(cudaGetDeviceCount(&n) == cudaErrorInitializationError ? 3 : 4);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), 3);
}

// ---- errors that are asked for ------------------------------------------------------------------

static void asked_for(void **state ZX_UNUSED)
{
    void *at = NULL;
    zx_standin_fail("cudaMalloc", 2, cudaErrorMemoryAllocation, -1);
    assert_ok(cudaMalloc(&at, 4));
    assert_cuda(cudaMalloc(&at, 4), cudaErrorMemoryAllocation);
    assert_ok(cudaMalloc(&at, 4)); // not a sticky one
    assert_int_equal(zx_standin_calls("cudaMalloc"), 3);
    assert_true(zx_standin_fail_text("launch:1:701,cudaStreamQuery:1:700@0"));
    cudaStream_t s = a_stream();
    assert_cuda(probe_index(at, s), cudaErrorLaunchOutOfResources);
    assert_ok(cudaSetDevice(1));
    assert_ok(cudaStreamQuery(a_stream()));
    assert_ok(cudaSetDevice(0));
    assert_cuda(cudaStreamQuery(s), cudaErrorIllegalAddress);
    assert_cuda(cudaMalloc(&at, 4), cudaErrorIllegalAddress);
    assert_false(zx_standin_fail_text("cudaMalloc"));
    assert_false(zx_standin_fail_text("cudaMalloc:0:1"));
    assert_false(zx_standin_fail_text("cudaMalloc:1:hung"));
    assert_false(zx_standin_fail_text("cudaMalloc:1:2@0x"));
}

static void asynchronous(void **state ZX_UNUSED)
{
    float *at = on_device(512);
    cudaStream_t s = a_stream();
    cudaEvent_t e = an_event();
    zx_standin_fail("item", 2, cudaErrorLaunchFailure, -1);
    assert_ok(cudaMemsetAsync(at, 0, 512, s));
    assert_ok(cudaStreamSynchronize(s));
    cudaError_t later = probe_add(at, at, 1, 1, s); // the call may be over before it fails
    assert_ok(later);
    later = cudaEventRecord(e, s);
    assert_true(later == cudaSuccess || later == cudaErrorLaunchFailure);
    assert_cuda(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
    assert_cuda(cudaEventSynchronize(e), cudaErrorLaunchFailure);
    assert_cuda(cudaMemsetAsync(at, 0, 4, s), cudaErrorLaunchFailure);
    assert_cuda(cudaFree(at), cudaErrorLaunchFailure);
    assert_cuda(cudaStreamDestroy(s), cudaErrorLaunchFailure);
    assert_cuda(cudaEventDestroy(e), cudaErrorLaunchFailure);
    assert_int_equal(zx_standin_reset(), 0);
    assert_ok(cudaFree(NULL));
}

static void hangs(void **state ZX_UNUSED)
{
    float *at = on_device(512);
    cudaStream_t s = a_stream(), t = a_stream();
    cudaEvent_t e = an_event();
    assert_true(zx_standin_fail_text("item:1:hang"));
    assert_ok(cudaMemsetAsync(at, 0, 512, s));
    usleep(20000);
    assert_ok(cudaEventRecord(e, s));
    assert_ok(cudaStreamWaitEvent(t, e, 0));
    usleep(20000);
    assert_cuda(cudaStreamQuery(s), cudaErrorNotReady);
    assert_cuda(cudaStreamQuery(t), cudaErrorNotReady);
    assert_cuda(cudaEventQuery(e), cudaErrorNotReady);
    assert_int_equal(zx_standin_reset(), 4); // ends
}

int main(int argc, char **argv)
{
    if (argc > 1) return race(argv[1]);
    struct CMUnitTest tests[] = {
        zx_case("waits order streams", waits_order, NULL),
#if defined(ZX_STANDIN_TSAN)
        zx_case("a missing wait is a race", a_missing_wait_is_a_race, NULL),
        zx_case("a missing barrier is a race", a_missing_barrier_is_a_race, NULL),
        zx_case("a missing synchronize is a race", a_missing_synchronize_is_a_race, NULL),
#else
        zx_case("a missing wait gives wrong bytes", a_missing_wait_gives_wrong_bytes, NULL),
#endif
        zx_case("records", records, NULL),
        zx_case("queries", queries, NULL),
        zx_case("handles", handles, NULL),
        zx_case("devices", devices, NULL),
        zx_case("after a fork", after_fork, NULL),
        zx_case("errors that are asked for", asked_for, NULL),
        zx_case("asynchronous errors", asynchronous, NULL),
        zx_case("a stream that hangs", hangs, NULL),
    };
    for (size_t i = 0; i < ZX_COUNT(tests); i++)
        tests[i].setup_func = tests[i].teardown_func = fresh;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

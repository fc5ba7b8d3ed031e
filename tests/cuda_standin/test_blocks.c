// test_blocks.c - kernels on the host: indices, barriers, warps, atomics, and what is wrong with
// some.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/rig.h"

#include <stdio.h>

// Each in the order of numbers, then in others.
static const uint64_t seeds[] = {0, 1, 2, 3};

static void to_host(void *to, const void *from, size_t bytes, cudaStream_t s)
{
    assert_ok(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, s));
    assert_ok(cudaStreamSynchronize(s));
}

static void indices(void **state ZX_UNUSED)
{
    static int got[PROBE_INDEX_COUNT];
    int *x = on_device(sizeof got);
    cudaStream_t s = a_stream();
    for (size_t k = 0; k < ZX_COUNT(seeds); k++) {
        zx_standin_seed(seeds[k]);
        assert_ok(cudaMemsetAsync(x, 0xff, sizeof got, s));
        assert_ok(probe_index(x, s));
        to_host(got, x, sizeof got, s);
        for (int i = 0; i < PROBE_INDEX_COUNT; i++) assert_int_equal(got[i], i);
    }
}

static void static_shared(void **state ZX_UNUSED)
{
    static int x[5 * 256], got[5 * 256];
    int *at = on_device(sizeof x);
    cudaStream_t s = a_stream();
    for (int i = 0; i < 5 * 256; i++) x[i] = 7 * i;
    for (size_t k = 0; k < ZX_COUNT(seeds); k++) {
        zx_standin_seed(seeds[k]);
        assert_ok(cudaMemcpyAsync(at, x, sizeof x, cudaMemcpyHostToDevice, s));
        assert_ok(probe_reverse(at, 5, s));
        to_host(got, at, sizeof got, s);
        for (int i = 0; i < 5 * 256; i++)
            assert_int_equal(got[i], x[i / 256 * 256 + 255 - i % 256]);
    }
}

static void dynamic_shared(void **state ZX_UNUSED)
{
    enum { BLOCKS = 3 };
    static float x[BLOCKS * 1024];
    float got[BLOCKS];
    float *at = on_device(sizeof x), *sums = on_device(sizeof got);
    cudaStream_t s = a_stream();
    for (int i = 0; i < BLOCKS * 1024; i++) x[i] = (float)(i % 37);
    assert_ok(cudaMemcpyAsync(at, x, sizeof x, cudaMemcpyHostToDevice, s));
    const unsigned most = 1024;
    for (unsigned threads = 1; threads <= most; threads *= 4) {
        zx_standin_seed(threads);
        assert_ok(probe_sum(at, sums, BLOCKS, threads, s));
        to_host(got, sums, sizeof got, s);
        for (unsigned b = 0; b < BLOCKS; b++) {
            float want = 0;
            for (unsigned i = 0; i < threads; i++) want += x[b * threads + i];
            assert_true(got[b] == want);
        }
    }
}

static void warps(void **state ZX_UNUSED)
{
    int x[64], got[PROBE_WARP_ROWS][64];
    int *at = on_device(sizeof x);
    void *out = on_device(sizeof got);
    cudaStream_t s = a_stream();
    for (int i = 0; i < 64; i++) x[i] = i * i % 23 - 5;
    for (size_t k = 0; k < ZX_COUNT(seeds); k++) {
        zx_standin_seed(seeds[k]);
        assert_ok(cudaMemcpyAsync(at, x, sizeof x, cudaMemcpyHostToDevice, s));
        assert_ok(probe_warp(at, out, s));
        to_host(got, out, sizeof got, s);
        int positive = 0;
        for (int t = 0; t < 64; t++) positive += x[t] > 0;
        for (int t = 0; t < 64; t++) {
            const int *w = x + t / 32 * 32, l = t % 32;
            int sum = 0, prefix = 0;
            uint32_t ballot = 0;
            for (int i = 0; i < 32; i++) {
                sum += w[i];
                if (i <= l) prefix += w[i];
                ballot |= (uint32_t)(w[i] > 0) << i;
            }
            assert_int_equal(got[PROBE_XOR_SUM][t], sum);
            assert_int_equal(got[PROBE_PREFIX][t], prefix);
            assert_int_equal(got[PROBE_DOWN][t], w[l + 3 < 32 ? l + 3 : l]);
            assert_int_equal(got[PROBE_BROADCAST][t], w[5]);
            assert_int_equal(got[PROBE_HALF_WARP][t], w[l ^ 15]);
            assert_int_equal((uint32_t)got[PROBE_BALLOT][t], ballot);
            assert_int_equal(got[PROBE_ANY_ALL][t], 1);
            assert_int_equal(got[PROBE_COUNT][t], positive + 1000);
        }
    }
}

static void atomics(void **state ZX_UNUSED)
{
    int r[5] = {0};
    float f = 0;
    int *at = on_device(sizeof r);
    float *sum = on_device(sizeof f);
    cudaStream_t s = a_stream();
    assert_ok(cudaMemsetAsync(at, 0, sizeof r, s));
    assert_ok(cudaMemsetAsync(sum, 0, sizeof f, s));
    assert_ok(probe_atomics(at, sum, 4, s));
    to_host(r, at, sizeof r, s);
    to_host(&f, sum, sizeof f, s);
    assert_int_equal(r[0], 255 * 128);
    assert_int_equal(r[1], 255 * 128);
    assert_int_equal(r[2], 255);
    assert_int_equal(r[3], -255);
    assert_int_equal(r[4], 255);
    assert_true(f == 255 * 128);
}

// 100,000 threads with and without barriers take well under a second under any sanitizer.
static void many(void **state ZX_UNUSED)
{
    float *x = on_device(128);
    cudaStream_t s = a_stream();
    assert_ok(cudaMemsetAsync(x, 0, 128, s));
    assert_ok(probe_many(x, 0, s));
    assert_ok(probe_many(x, 1, s));
    assert_ok(cudaStreamSynchronize(s));
}

static const struct wrong_case {
    const char *name;
    int what;
    cudaError_t error;
    const char *says;
} wrongs[] = {
    {"a thread returns before a barrier", PROBE_RETURNS, cudaErrorLaunchFailure,
     "63 of 64 threads wait at"},
    {"threads wait at two barriers", PROBE_ELSEWHERE, cudaErrorLaunchFailure,
     "threads of one block wait at different places"},
    {"a lane returns before a shuffle", PROBE_LANE_RETURNS, cudaErrorLaunchFailure,
     "threads wait at"},
    {"a mask of half a warp", PROBE_MASK, cudaErrorLaunchFailure, "mask 0xffffffff"},
    {"a warp that isn't whole", PROBE_PART_OF_WARP, cudaErrorLaunchFailure, "isn't whole"},
#if !defined(__SANITIZE_ADDRESS__) && !defined(ZX_STANDIN_TSAN) && defined(__x86_64__)
    {"a write behind memory", PROBE_WRITES_BEHIND, cudaErrorIllegalAddress, "touched 0x"},
#endif
};

static void wrong(void **state)
{
    const struct wrong_case *row = *state;
    for (size_t k = 0; k < ZX_COUNT(seeds); k++) {
        zx_standin_reset();
        zx_standin_seed(seeds[k]);
        int *x = on_device(256);
        cudaStream_t s = a_stream();
        assert_ok(probe_wrong(row->what, x, 64, s));
        assert_cuda(cudaStreamSynchronize(s), row->error);
        if (strstr(zx_standin_said(), row->says) == NULL)
            fail_msg("it says: %s", zx_standin_said());
        // The device stays as it is, for every call; the other device is none of it.
        assert_cuda(cudaStreamQuery(s), row->error);
        assert_cuda(probe_index(x, s), row->error);
        assert_cuda(cudaGetLastError(), row->error);
        assert_cuda(cudaGetLastError(), row->error);
        assert_ok(cudaSetDevice(1));
        int *other = on_device(256);
        assert_ok(cudaMemsetAsync(other, 0, 256, a_stream()));
        assert_ok(cudaDeviceSynchronize());
    }
}

#if !defined(__SANITIZE_ADDRESS__) // which says it itself
static void slack(void **state ZX_UNUSED)
{
    int *x = on_device(65 * sizeof(int));
    cudaStream_t s = a_stream();
    assert_ok(probe_wrong(PROBE_WRITES_SLACK, x, 64, s)); // the last one
    assert_ok(cudaStreamSynchronize(s));
    assert_ok(probe_wrong(PROBE_WRITES_SLACK, x, 65, s));
    assert_ok(cudaStreamSynchronize(s));
    assert_cuda(cudaFree(x), cudaErrorIllegalAddress);
}
#endif

static void arguments(void **state ZX_UNUSED)
{
    float local[128] = {0};
    float *x = on_device(512);
    cudaStream_t s = a_stream();
    assert_cuda(probe_add(x, x, 1, 0, s), cudaErrorInvalidConfiguration);
    assert_cuda(probe_add(x, x, 1, 1, NULL), cudaErrorInvalidResourceHandle);
    assert_ok(cudaSetDevice(1));
    assert_cuda(probe_add(x, x, 1, 1, s), cudaErrorInvalidResourceHandle);
    float *other = on_device(512);
    assert_ok(cudaSetDevice(0));
    cudaGetLastError();
    assert_ok(probe_add(x, other, 1, 1, s)); // another device's memory: found where it runs
    assert_cuda(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    zx_standin_reset();
    x = on_device(512);
    s = a_stream();
    assert_ok(probe_add(x, local, 1, 1, s));
    assert_cuda(cudaStreamSynchronize(s), cudaErrorIllegalAddress);
    assert_non_null(strstr(zx_standin_said(), "kernel add_to: pointer argument 1"));
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(wrongs) + 16];
    size_t n = 0;
    tests[n++] = zx_case("indices", indices, NULL);
    tests[n++] = zx_case("static shared memory", static_shared, NULL);
    tests[n++] = zx_case("dynamic shared memory", dynamic_shared, NULL);
    tests[n++] = zx_case("warps", warps, NULL);
    tests[n++] = zx_case("atomics", atomics, NULL);
    tests[n++] = zx_case("many threads", many, NULL);
    tests[n++] = zx_case("arguments", arguments, NULL);
#if !defined(__SANITIZE_ADDRESS__)
    tests[n++] = zx_case("one element behind", slack, NULL);
#endif
    for (size_t i = 0; i < ZX_COUNT(wrongs); i++)
        tests[n++] = zx_case(wrongs[i].name, wrong, &wrongs[i]);
    for (size_t i = 0; i < n; i++) tests[i].setup_func = tests[i].teardown_func = fresh;
    return _cmocka_run_group_tests("cuda_standin.blocks", tests, n, NULL, NULL);
}

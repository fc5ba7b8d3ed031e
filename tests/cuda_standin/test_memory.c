// test_memory.c - memory of the stand-in: bounds, directions, what is read before it was written.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/rig.h"

#include <math.h>
#include <stdlib.h>

// Copies between 64 bytes of each kind of memory.
enum { HOST, PINNED, DEVICE, OTHER_DEVICE, PLACES };
static const struct copy_case {
    const char *name;
    int to, from; // places
    size_t to_at, from_at, bytes;
    enum cudaMemcpyKind kind;
    cudaError_t want;
} copies[] = {
    {"host to device", DEVICE, PINNED, 0, 0, 64, cudaMemcpyHostToDevice, cudaSuccess},
    {"pageable to device", DEVICE, HOST, 0, 0, 64, cudaMemcpyHostToDevice, cudaSuccess},
    {"device to host", PINNED, DEVICE, 32, 0, 32, cudaMemcpyDeviceToHost, cudaSuccess},
    {"device to pageable", HOST, DEVICE, 0, 32, 32, cudaMemcpyDeviceToHost, cudaSuccess},
    {"within a device", DEVICE, DEVICE, 0, 32, 32, cudaMemcpyDeviceToDevice, cudaSuccess},
    {"to another device", OTHER_DEVICE, DEVICE, 0, 0, 64, cudaMemcpyDeviceToDevice, cudaSuccess},
    {"host to host", PINNED, HOST, 0, 0, 64, cudaMemcpyHostToHost, cudaSuccess},
    {"found by address", HOST, DEVICE, 0, 0, 64, cudaMemcpyDefault, cudaSuccess},
    {"nothing", DEVICE, PINNED, 0, 0, 0, cudaMemcpyHostToDevice, cudaSuccess},
    {"nothing at the end", DEVICE, PINNED, 64, 64, 0, cudaMemcpyHostToDevice, cudaSuccess},
    {"one byte too many to", DEVICE, HOST, 1, 0, 64, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
    {"one byte too many from", HOST, DEVICE, 0, 1, 64, cudaMemcpyDeviceToHost,
     cudaErrorInvalidValue},
    {"past pinned memory", DEVICE, PINNED, 0, 1, 64, cudaMemcpyHostToDevice, cudaErrorInvalidValue},
    {"to the device that is the host", HOST, HOST, 0, 0, 64, cudaMemcpyHostToDevice,
     cudaErrorInvalidValue},
    {"from the device that is the host", HOST, PINNED, 0, 0, 64, cudaMemcpyDeviceToHost,
     cudaErrorInvalidValue},
    {"to the host that is a device", DEVICE, DEVICE, 0, 32, 32, cudaMemcpyDeviceToHost,
     cudaErrorInvalidValue},
    {"no direction", DEVICE, PINNED, 0, 0, 64, (enum cudaMemcpyKind)5, cudaErrorInvalidValue},
};

static void copy(void **state)
{
    const struct copy_case *row = *state;
    unsigned char host[64], got[64], want[64];
    void *at[PLACES] = {host, pinned(64), on_device(64), NULL};
    assert_ok(cudaSetDevice(1));
    at[OTHER_DEVICE] = on_device(64);
    assert_ok(cudaSetDevice(0));
    cudaStream_t s = a_stream();
    for (int p = 0; p < PLACES; p++) { // p * 64 + i everywhere
        unsigned char bytes[64];
        for (int i = 0; i < 64; i++) bytes[i] = (unsigned char)(p * 64 + i);
        assert_ok(cudaMemcpyAsync(at[p], bytes, 64, cudaMemcpyDefault, s));
        if (p == row->to) memcpy(want, bytes, 64);
    }
    assert_ok(cudaStreamSynchronize(s));
    assert_cuda(cudaMemcpyAsync((char *)at[row->to] + row->to_at,
                                (char *)at[row->from] + row->from_at, row->bytes, row->kind, s),
                row->want);
    assert_cuda(cudaGetLastError(), row->want);
    assert_ok(cudaGetLastError());
    for (size_t i = 0; row->want == cudaSuccess && i < row->bytes; i++)
        want[row->to_at + i] = (unsigned char)((size_t)row->from * 64 + row->from_at + i);
    assert_ok(cudaMemcpyAsync(got, at[row->to], 64, cudaMemcpyDefault, s));
    assert_ok(cudaStreamSynchronize(s));
    assert_memory_equal(got, want, 64);
}

static void rows(void **state ZX_UNUSED)
{
    unsigned char *host = pinned(60), got[12];
    unsigned char *at = on_device(12);
    cudaStream_t s = a_stream();
    for (int i = 0; i < 60; i++) host[i] = (unsigned char)i;
    assert_cuda(cudaMemcpy2DAsync(at, 4, host, 20, 4, 4, cudaMemcpyHostToDevice, s),
                cudaErrorInvalidValue);
    assert_ok(cudaMemcpy2DAsync(at, 4, host + 16, 20, 4, 3, cudaMemcpyHostToDevice, s));
    assert_ok(cudaMemcpyAsync(got, at, 12, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 12; i++) assert_int_equal(got[i], 16 + i / 4 * 20 + i % 4);
}

static void fills(void **state ZX_UNUSED)
{
    unsigned char got[8], local[8];
    unsigned char *at = on_device(8);
    cudaStream_t s = a_stream();
    assert_ok(cudaMemsetAsync(at, 7, 8, s));
    assert_ok(cudaMemsetAsync(at + 6, 9, 2, s));
    assert_cuda(cudaMemsetAsync(at + 6, 1, 3, s), cudaErrorInvalidValue);
    assert_cuda(cudaMemsetAsync(local, 1, 8, s), cudaErrorInvalidValue);
    assert_ok(cudaMemcpyAsync(got, at, 8, cudaMemcpyDeviceToHost, s));
    assert_memory_equal(got, "\7\7\7\7\7\7\11\11", 8);
}

// Memory that nobody wrote is NaN in every type; freed memory is refused.
static void fresh_and_freed(void **state ZX_UNUSED)
{
    float f[4];
    double d[2];
    float *at = on_device(16), *host = pinned(16);
    cudaStream_t s = a_stream();
    assert_ok(cudaMemcpyAsync(f, at, 16, cudaMemcpyDeviceToHost, s));
    memcpy(d, f, sizeof d);
    assert_true(isnan(f[0]) && isnan(f[3]) && isnan(d[1]) && isnan(host[3]));
    assert_ok(cudaFree(at));
    assert_cuda(cudaMemcpyAsync(f, at, 16, cudaMemcpyDefault, s), cudaErrorInvalidValue);
    assert_cuda(cudaMemcpyAsync(f, at, 16, cudaMemcpyDeviceToHost, s), cudaErrorInvalidValue);
    assert_cuda(cudaFree(at), cudaErrorInvalidValue);
    assert_cuda(cudaFree(host), cudaErrorInvalidValue);
    assert_ok(cudaFreeHost(host));
    assert_ok(cudaFree(NULL));
    assert_int_equal(zx_standin_reset(), 1); // the stream
}

static void capacity(void **state ZX_UNUSED)
{
    size_t available, total;
    void *a = NULL, *b = NULL;
    assert_ok(cudaMemGetInfo(&available, &total));
    assert_int_equal(available, total);
    assert_cuda(cudaMalloc(&a, total + 1), cudaErrorMemoryAllocation);
    assert_null(a);
    a = on_device(1 << 20);
    assert_ok(cudaMemGetInfo(&available, &total));
    assert_int_equal(available, total - (1 << 20));
    assert_cuda(cudaMalloc(&b, available + 1), cudaErrorMemoryAllocation);
    assert_ok(cudaFree(a));
    assert_ok(cudaMalloc(&b, 0));
    assert_null(b);
}

static void registered(void **state ZX_UNUSED)
{
    static float mine[64];
    void *device;
    cudaStream_t s = a_stream();
    float *at = on_device(sizeof mine);
    assert_ok(cudaMemcpyAsync(at, mine, sizeof mine, cudaMemcpyHostToDevice, s));
    assert_int_equal(zx_standin_pageable(), 1);
    assert_ok(cudaHostRegister(mine, sizeof mine, cudaHostRegisterDefault));
    assert_cuda(cudaHostRegister(mine + 1, 4, 0), cudaErrorHostMemoryAlreadyRegistered);
    assert_ok(cudaMemcpyAsync(at, mine, sizeof mine, cudaMemcpyHostToDevice, s));
    assert_int_equal(zx_standin_pageable(), 1);
    assert_cuda(cudaMemcpyAsync(at, mine + 1, sizeof mine, cudaMemcpyHostToDevice, s),
                cudaErrorInvalidValue);
    assert_ok(cudaHostGetDevicePointer(&device, mine, 0));
    assert_ptr_equal(device, mine);
    assert_ok(cudaHostUnregister(mine));
    assert_cuda(cudaHostUnregister(mine), cudaErrorHostMemoryNotRegistered);
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(copies) + 8];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(copies); i++)
        tests[n++] = zx_case(copies[i].name, copy, &copies[i]);
    tests[n++] = zx_case("rows", rows, NULL);
    tests[n++] = zx_case("fills", fills, NULL);
    tests[n++] = zx_case("fresh and freed memory", fresh_and_freed, NULL);
    tests[n++] = zx_case("capacity", capacity, NULL);
    tests[n++] = zx_case("registered memory", registered, NULL);
    for (size_t i = 0; i < n; i++) tests[i].setup_func = tests[i].teardown_func = fresh;
    return _cmocka_run_group_tests("cuda_standin.memory", tests, n, NULL, NULL);
}

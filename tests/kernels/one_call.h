// one_call.h - runs one kernel as a session would, for tests: prepare, scratch, run, release.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_KERNELS_ONE_CALL_H
#define ZX_TESTS_KERNELS_ONE_CALL_H

#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#define MOST_OPERANDS 4
#define GUARD 4096 // bytes past the scratch that must stay as they are

typedef struct one_call {
    zx_arena mem;
    zx_view in[MOST_OPERANDS], out[MOST_OPERANDS]; // data: owned by mem
    uint32_t n_in, n_out;
    zx_attrs attrs;
    uint64_t work_bytes; // set by one_call_run: what prepare asked for
} one_call;

static inline zx_shape shape_of(uint32_t rank, const int64_t *dim)
{
    zx_shape s = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) s.dim[i] = dim[i];
    return s;
}

// Numbers in [-1, 1) that depend on seed and place only.
static inline float some(uint32_t seed, int64_t i)
{
    uint32_t u = seed * 2654435761u + (uint32_t)i * 2246822519u;
    u ^= u >> 15;
    u *= 2654435769u;
    u ^= u >> 13;
    return (float)((double)(u >> 8) / (1 << 23) - 1.0);
}

// A tensor of the call's arena, `skew` * 64 bytes past what the arena would give: kernels' bits
// must not depend on addresses.
static inline zx_view view_make(one_call *c, zx_dtype dtype, zx_shape shape, uint32_t skew)
{
    zx_view v = {.type = {dtype, shape}};
    const size_t bytes = (size_t)zx_type_bytes(&v.type) + 64 * (size_t)skew + 128;
    uintptr_t at = (uintptr_t)ZX_NEW(&c->mem, char, bytes);
    at = (at + 63) / 64 * 64 + 64 * skew;
    v.data = (void *)at;
    return v;
}

static inline void add_input(one_call *c, zx_shape shape, uint32_t seed, uint32_t skew)
{
    zx_view v = view_make(c, ZX_F32, shape, skew);
    const int64_t n = zx_shape_count(&shape);
    for (int64_t i = 0; i < n; i++) ((float *)v.data)[i] = some(seed, i);
    c->in[c->n_in++] = v;
}

static inline void add_output(one_call *c, zx_dtype dtype, zx_shape shape, uint32_t skew)
{
    zx_view v = view_make(c, dtype, shape, skew);
    memset(v.data, 0xA5, (size_t)zx_type_bytes(&v.type)); // whatever was there must not matter
    c->out[c->n_out++] = v;
}

// Runs the kernel `times` times with the same state, dirty scratch and without writing past it.
static inline zx_status one_call_run(one_call *c, const zx_kernel *k, int threads, int times,
                                     zx_err *err)
{
    zx_view in[MOST_OPERANDS], out[MOST_OPERANDS]; // types only
    zx_fault fault = {0};
    zx_call call = {.n_in = c->n_in, .n_out = c->n_out, .attrs = &c->attrs, .threads = threads};
    uint64_t work_bytes = 0;
    void *state = NULL;
    for (uint32_t i = 0; i < MOST_OPERANDS; i++) {
        in[i] = (zx_view){.type = c->in[i].type};
        out[i] = (zx_view){.type = c->out[i].type};
    }
    call.in = in;
    call.out = out;
    if (k->prepare) ZX_TRY(k->prepare(&call, &work_bytes, &state, err));
    c->work_bytes = work_bytes;
    unsigned char *work = aligned_alloc(64, (size_t)zx_align_up(work_bytes, 64) + GUARD);
    assert_non_null(work);
    call.in = c->in;
    call.out = c->out;
    call.work = work;
    call.state = state;
    call.fault = &fault;
    zx_status st = ZX_OK;
    for (int i = 0; i < times && st == ZX_OK; i++) {
        memset(work, 0xFF, (size_t)work_bytes); // NaN
        memset(work + work_bytes, 0x5A, GUARD);
        st = k->run(&call, err);
    }
    for (int i = 0; i < GUARD; i++) assert_int_equal(work[work_bytes + (uint64_t)i], 0x5A);
    assert_int_equal(fault.kind, ZX_FAULT_NONE);
    free(work);
    if (k->release) k->release(state);
    return st;
}

static inline void assert_same_bytes(const zx_view *a, const zx_view *b, const char *what)
{
    if (memcmp(a->data, b->data, (size_t)zx_type_bytes(&a->type)) != 0)
        fail_msg("%s: other bits", what);
}

static inline void assert_near(double got, double want, double tolerance, int64_t at)
{
    if (isnan(want) ? isnan(got) : got == want) return;
    if (!(fabs(got - want) <= tolerance))
        fail_msg("element %lld: %.9g, want %.9g", (long long)at, got, want);
}

#endif

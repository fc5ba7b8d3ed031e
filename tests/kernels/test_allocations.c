// test_allocations.c - what a kernel's run asks the allocator for: nothing of ours, and of oneDNN's
// own only a few small pieces, so that a step never page-faults for them.
// SPDX-License-Identifier: Apache-2.0
#include "tests/allocator.h"
#include "tests/kernels/one_call.h"

static uint64_t n_calls, n_bytes; // while `counting`
static int counting;

#if !TEST_SANITIZED
static void test_allocates(size_t bytes, const void *caller)
{
    (void)caller;
    if (!__atomic_load_n(&counting, __ATOMIC_RELAXED)) return;
    __atomic_fetch_add(&n_calls, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&n_bytes, bytes, __ATOMIC_RELAXED);
}
#endif

static zx_status (*counted_run)(const zx_call *call, zx_err *err);

static zx_status run_counting(const zx_call *call, zx_err *err)
{
    __atomic_store_n(&counting, 1, __ATOMIC_RELAXED);
    const zx_status st = counted_run(call, err);
    __atomic_store_n(&counting, 0, __ATOMIC_RELAXED);
    return st;
}

// What the library may ask for in a run: bookkeeping with AVX-512, copies of blocks on older
// processors.
ZX_UNUSED static uint64_t most_bytes(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return 16384;
#endif
    return 1 << 18;
}

// Counts one run after two that may warm up what the library keeps; `ours`: none at all.
static void expect_little(one_call *c, const zx_kernel *k, bool ours)
{
    for (int threads = 1; threads <= 2; threads++) {
        zx_err err = {0};
        assert_zx_ok(one_call_run(c, k, threads, 2, &err), &err);
        zx_kernel counted = *k;
        counted_run = k->run;
        counted.run = run_counting;
        n_calls = n_bytes = 0;
        assert_zx_ok(one_call_run(c, &counted, threads, 1, &err), &err);
#if !TEST_SANITIZED
#ifdef __clang__
        if (threads > 1) ours = false; // LLVM's OpenMP allocates for a parallel region
#endif
        if (n_calls > (ours ? 0 : 64) || n_bytes > (ours ? 0 : most_bytes()))
            fail_msg("%d threads: %llu allocations, %llu bytes", threads,
                     (unsigned long long)n_calls, (unsigned long long)n_bytes);
#endif
    }
    zx_arena_free(&c->mem);
}

static one_call product(int64_t m, int64_t k, int64_t n, int64_t batch, bool trans_a, bool trans_b)
{
    one_call c = {0};
    const int64_t a[] = {batch, trans_a ? k : m, trans_a ? m : k};
    const int64_t b[] = {batch, trans_b ? n : k, trans_b ? k : n}, y[] = {batch, m, n};
    const int skip = batch == 1;
    const uint32_t rank = skip ? 2 : 3;
    add_input(&c, shape_of(rank, a + skip), 1, 0);
    add_input(&c, shape_of(rank, b + skip), 2, 0);
    add_output(&c, ZX_F32, shape_of(rank, y + skip), 0);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_TRANS_A, trans_a);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_TRANS_B, trans_b);
    return c;
}

static void test_products(void **state)
{
    (void)state;
    one_call calls[] = {
        product(64, 96, 80, 1, 0, 0),  product(64, 96, 80, 1, 1, 0), product(64, 96, 80, 1, 0, 1),
        product(64, 8, 3072, 1, 0, 0), product(32, 16, 32, 6, 0, 1), product(32, 16, 32, 6, 1, 0),
    };
    for (size_t i = 0; i < ZX_COUNT(calls); i++) expect_little(&calls[i], &zx_cpu_matmul, false);
}

static void test_convolutions(void **state)
{
    (void)state;
    static const zx_kernel *const kernels[] = {&zx_cpu_conv, &zx_cpu_conv_grad_x,
                                               &zx_cpu_conv_grad_w};
    const int64_t x[] = {2, 16, 12, 12}, w[] = {32, 16, 3, 3}, y[] = {2, 32, 12, 12};
    const int64_t ones[] = {1, 1, 1, 1};
    for (int kind = 0; kind < 3; kind++) {
        one_call c = {0};
        if (kind != 1) add_input(&c, shape_of(4, x), 1, 0);
        if (kind != 0) add_input(&c, shape_of(4, y), 2, 0);
        if (kind != 2) add_input(&c, shape_of(4, w), 3, 0);
        add_output(&c, ZX_F32, shape_of(4, kind == 0 ? y : kind == 1 ? x : w), 0);
        c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_STRIDES, ones, 2);
        c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_DILATIONS, ones, 2);
        c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_PADS, ones, 4);
        c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_GROUP, 1);
        expect_little(&c, kernels[kind], false);
    }
}

static void test_own_loops(void **state)
{
    (void)state;
    const int64_t x[] = {2, 3, 8, 8}, y[] = {2, 3, 4, 4}, two[] = {2, 2}, ones[] = {1, 1};
    const int64_t none[4] = {0};
    const double scales[] = {1, 1, 0.5, 0.5};
    one_call pool = {0}, resize = {0};
    add_input(&pool, shape_of(4, x), 1, 0);
    add_output(&pool, ZX_F32, shape_of(4, y), 0);
    pool.attrs = zx_attrs_ints(&pool.mem, pool.attrs, ZX_A_KERNEL_SHAPE, two, 2);
    pool.attrs = zx_attrs_ints(&pool.mem, pool.attrs, ZX_A_STRIDES, two, 2);
    pool.attrs = zx_attrs_ints(&pool.mem, pool.attrs, ZX_A_DILATIONS, ones, 2);
    pool.attrs = zx_attrs_ints(&pool.mem, pool.attrs, ZX_A_PADS, none, 4);
    expect_little(&pool, &zx_cpu_avg_pool, true);
    add_input(&resize, shape_of(4, x), 1, 0);
    add_output(&resize, ZX_F32, shape_of(4, y), 0);
    resize.attrs = zx_attrs_floats(&resize.mem, resize.attrs, ZX_A_SCALES, scales, 4);
    resize.attrs = zx_attrs_int(&resize.mem, resize.attrs, ZX_A_MODE, 1);
    expect_little(&resize, &zx_cpu_resize, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_convolutions),
        cmocka_unit_test(test_own_loops),
    };
    return cmocka_run_group_tests_name("allocations", tests, NULL, NULL);
}

// test_products.c - products by cuBLASLt (kernels/cuda/product.h): sums that are added to what is
// there, errors in the library's words, and what the stand-in finds wrong with a call.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <math.h>

#include "kernels/cuda/product.h"
#include "tests/cuda_standin/rig.h"

static cublasLtHandle_t blas;
static struct zx_cuda at;

static int start(void **state)
{
    fresh(state);
    if (blas == NULL) assert_int_equal(cublasLtCreate(&blas), CUBLAS_STATUS_SUCCESS);
    at = (struct zx_cuda){.stream = a_stream(), .blas = blas};
    return 0;
}

static float *numbers(size_t n, float first) // first, first + 1, ...
{
    float here[64], *there = on_device(n * sizeof *there);
    for (size_t i = 0; i < n; i++) here[i] = first + (float)i;
    assert_ok(cudaMemcpyAsync(there, here, n * sizeof *here, cudaMemcpyHostToDevice, at.stream));
    return there;
}
static void expect(const float *there, const float *want, size_t n)
{
    float got[64];
    assert_ok(cudaMemcpyAsync(got, there, n * sizeof *got, cudaMemcpyDeviceToHost, at.stream));
    assert_ok(cudaStreamSynchronize(at.stream));
    for (size_t i = 0; i < n; i++) assert_true(got[i] == want[i]);
}

// [2,3] x [3,2]
static const zx_product small = {
    .m = 2, .k = 3, .n = 2, .a_row = 3, .a_col = 1, .b_row = 2, .b_col = 1, .alpha = 1};

// Twice into the same place: 1 2 3; 4 5 6 by 1 2; 3 4; 5 6 is 22 28; 49 64.
static void added(void **state ZX_UNUSED)
{
    zx_err err = {0};
    zx_cuda_product *p;
    assert_zx_ok(zx_cuda_product_open(&at, &small, ZX_F32, true, &p, &err), &err);
    float *a = numbers(6, 1), *b = numbers(6, 1), *y = numbers(4, 10);
    void *work = on_device((size_t)zx_cuda_product_work(p) + 1);
    for (int k = 0; k < 2; k++)
        assert_zx_ok(zx_cuda_product_run(p, &at, a, b, NULL, y, work, &err), &err);
    expect(y, (const float[]){10 + 44, 11 + 56, 12 + 98, 13 + 128}, 4);
    zx_cuda_product_close(p);
    assert_string_equal(zx_standin_said(), "");
}

// No inner size: y is the bias, and what is added to is left alone.
static void over_nothing(void **state ZX_UNUSED)
{
    zx_err err = {0};
    zx_cuda_product *p;
    zx_product none = {.m = 2,
                       .k = 0,
                       .n = 2,
                       .a_row = 0,
                       .a_col = 1,
                       .b_row = 2,
                       .b_col = 1,
                       .alpha = 1,
                       .bias = true};
    float *c = numbers(2, 5), *y = numbers(4, 1);
    assert_zx_ok(zx_cuda_product_open(&at, &none, ZX_F32, false, &p, &err), &err);
    assert_zx_ok(zx_cuda_product_run(p, &at, NULL, NULL, c, y, NULL, &err), &err);
    expect(y, (const float[]){5, 6, 5, 6}, 4);
    zx_cuda_product_close(p);
    none.bias = false;
    assert_zx_ok(zx_cuda_product_open(&at, &none, ZX_F32, true, &p, &err), &err);
    assert_zx_ok(zx_cuda_product_run(p, &at, NULL, NULL, NULL, y, NULL, &err), &err);
    expect(y, (const float[]){5, 6, 5, 6}, 4);
    zx_cuda_product_close(p);
    assert_string_equal(zx_standin_said(), "");
}

// ---- TF32 ---------------------------------------------------------------------------------------

// 1 + 2^-12 has more bits than TF32 keeps, 1 + 2^-10 as many.
static void rounded(void **state ZX_UNUSED)
{
    static const zx_product one = {
        .m = 1, .k = 1, .n = 2, .a_row = 1, .a_col = 1, .b_row = 2, .b_col = 1, .alpha = 1};
    const float fine = 1 + 0x1p-12f, kept = 1 + 0x1p-10f;
    const float here[] = {fine, kept};
    float *a = numbers(1, 1), *b = on_device(sizeof here), *y = on_device(8);
    assert_ok(cudaMemcpyAsync(b, here, sizeof here, cudaMemcpyHostToDevice, at.stream));
    for (int tf32 = 0; tf32 < 2; tf32++) {
        zx_err err = {0};
        zx_cuda_product *p;
        at.tf32 = tf32 == 1;
        assert_zx_ok(zx_cuda_product_open(&at, &one, ZX_F32, false, &p, &err), &err);
        void *work = on_device((size_t)zx_cuda_product_work(p) + 1);
        assert_zx_ok(zx_cuda_product_run(p, &at, a, b, NULL, y, work, &err), &err);
        expect(y, (const float[]){tf32 == 1 ? 1.0f : fine, kept}, 2);
        zx_cuda_product_close(p);
    }
    assert_string_equal(zx_standin_said(), "");
}

// ---- epilogues ----------------------------------------------------------------------------------

// [2,1] x [1,8]: rows of y are 1..8 and 2..16.
static const zx_product wide = {
    .m = 2, .k = 1, .n = 8, .a_row = 1, .a_col = 1, .b_row = 8, .b_col = 1, .alpha = 1};
static const struct beside_case {
    const char *name;
    zx_cuda_beside beside;
    int64_t n; // columns; 8: cuBLASLt has it
    float sums[8];
    uint32_t n_sums;
} besides[] = {
    {"what the GELU is of is kept", ZX_BESIDE_GELU, 8, {0}, 0},
    {"rows of other sizes aren't", ZX_BESIDE_GELU, 7, {0}, 0},
    {"a slope and sums down", ZX_BESIDE_DGELU_SUM, 8, {3, 6, 9, 12, 15, 18, 21, 24}, 8},
    {"a slope", ZX_BESIDE_DGELU, 8, {0}, 0},
    {"sums of a", ZX_BESIDE_SUM_A, 8, {1, 2}, 2},
    {"sums of b", ZX_BESIDE_SUM_B, 7, {1, 2, 3, 4, 5, 6, 7}, 7},
};
static void done_beside(void **state)
{
    const struct beside_case *k = *state;
    const bool gelu = k->beside == ZX_BESIDE_GELU;
    zx_err err = {0};
    zx_cuda_product *p;
    zx_product product = wide;
    product.n = product.b_row = k->n;
    assert_zx_ok(zx_cuda_product_open_beside(&at, &product, ZX_F32, k->beside, &p, &err), &err);
    const bool has_aux = gelu || k->n_sums == 0 || k->beside == ZX_BESIDE_DGELU_SUM;
    assert_int_equal(p != NULL, k->n == 8 || !has_aux);
    if (p == NULL) return;
    // The slope of the GELU far out is 1, and so is the GELU of x over x.
    float *a = numbers(2, 1), *b = numbers((size_t)k->n, 1), *y = on_device(64);
    float *aux = numbers(16, 50), *sums = on_device(32), got[16];
    void *work = on_device((size_t)zx_cuda_product_work(p) + 1);
    assert_zx_ok(zx_cuda_product_run_beside(p, &at, a, b, NULL, y, aux, sums, work, &err), &err);
    expect(sums, k->sums, k->n_sums);
    if (gelu) expect(aux, (const float[]){1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 6, 8, 10}, 13);
    assert_ok(cudaMemcpyAsync(got, y, sizeof got, cudaMemcpyDeviceToHost, at.stream));
    assert_ok(cudaStreamSynchronize(at.stream));
    assert_true(fabsf(got[0] - (gelu ? 0.841192f : 1.0f)) < 1e-6f);
    assert_true(fabsf(got[2 * k->n - 1] - (float)(2 * k->n)) < 1e-6f);
    zx_cuda_product_close(p);
    assert_string_equal(zx_standin_said(), "");
}

// ---- wrong calls and failing ones ---------------------------------------------------------------

enum { FINE, MISALIGNED, SHORT_Y, HOST_A, SHORT_WORK, Y_IS_A };
static const struct wrong_case {
    const char *name;
    int how;
    const char *fails; // a call that is asked to fail
    unsigned status;   // of cuBLASLt
    bool opens;
    zx_status want;
    const char *said, *words; // by the stand-in, and in the error
} wrongs[] = {
    {"misaligned", MISALIGNED, NULL, 0, true, ZX_E_DEVICE, "aligned", "CUBLAS_STATUS_INVALID"},
    {"y too small", SHORT_Y, NULL, 0, true, ZX_E_DEVICE, "isn't memory", "CUBLAS_STATUS_INVALID"},
    {"a is the host's", HOST_A, NULL, 0, true, ZX_E_DEVICE, "isn't memory", "CUBLAS_STATUS_"},
    {"scratch too small", SHORT_WORK, NULL, 0, true, ZX_E_DEVICE, "workspace", "CUBLAS_STATUS_"},
    {"y is an operand", Y_IS_A, NULL, 0, true, ZX_E_DEVICE, "overlaps", "CUBLAS_STATUS_INVALID"},
    {"a call fails", FINE, "cublasLtMatmul", 13, true, ZX_E_DEVICE, "",
     "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED: the device failed to execute"},
    {"no algorithm", FINE, "cublasLtMatmulAlgoGetHeuristic", 15, false, ZX_E_UNSUPPORTED, "",
     "CUBLAS_STATUS_NOT_SUPPORTED"},
    {"no memory", FINE, "cublasLtMatrixLayoutCreate", 3, false, ZX_E_DEVICE, "",
     "CUBLAS_STATUS_ALLOC_FAILED"},
};

static void wrong(void **state)
{
    const struct wrong_case *k = *state;
    zx_err err = {0};
    zx_cuda_product *p = NULL;
    _Alignas(64) float host[8] = {0};
    float *a = numbers(16, 1), *b = numbers(16, 1);
    float *y = on_device(k->how == SHORT_Y ? 8 : 64);
    if (k->fails != NULL) zx_standin_fail(k->fails, 1, (cudaError_t)k->status, -1);
    zx_status st = zx_cuda_product_open(&at, &small, ZX_F32, false, &p, &err);
    assert_int_equal(st == ZX_OK, k->opens);
    if (st == ZX_OK) {
        assert_true(zx_cuda_product_work(p) > 0);
        const size_t bytes = (size_t)zx_cuda_product_work(p);
        void *work = on_device(k->how == SHORT_WORK ? bytes / 2 : bytes);
        if (k->how == MISALIGNED) a++;
        if (k->how == Y_IS_A) y = a;
        st = zx_cuda_product_run(p, &at, k->how == HOST_A ? host : a, b, NULL, y, work, &err);
    }
    assert_int_equal(st, k->want);
    assert_non_null(strstr(err.cause[0], k->words));
    assert_non_null(strstr(zx_standin_said(), k->said));
    zx_cuda_product_close(p);
}

// An asynchronous error of the device is that of whatever is asked for next.
static void fails_later(void **state ZX_UNUSED)
{
    zx_err err = {0};
    zx_cuda_product *p;
    assert_zx_ok(zx_cuda_product_open(&at, &small, ZX_F32, false, &p, &err), &err);
    float *a = numbers(6, 1), *b = numbers(6, 1), *y = numbers(4, 0);
    void *work = on_device((size_t)zx_cuda_product_work(p) + 1);
    assert_zx_ok(zx_cuda_product_run(p, &at, a, b, NULL, y, work, &err), &err);
    expect(y, (const float[]){22, 28, 49, 64}, 4);
    zx_standin_fail("item", 1, cudaErrorLaunchFailure, -1);
    assert_zx_ok(zx_cuda_product_run(p, &at, a, b, NULL, y, work, &err), &err);
    assert_cuda(cudaStreamSynchronize(at.stream), cudaErrorLaunchFailure);
    assert_int_equal(zx_cuda_product_run(p, &at, a, b, NULL, y, work, &err), ZX_E_DEVICE);
    zx_cuda_product_close(p);
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(wrongs) + ZX_COUNT(besides) + 4];
    size_t n = 0;
    tests[n++] = zx_case("added to what is there", added, NULL);
    tests[n++] = zx_case("over nothing", over_nothing, NULL);
    tests[n++] = zx_case("a device that fails later", fails_later, NULL);
    tests[n++] = zx_case("TF32", rounded, NULL);
    for (size_t i = 0; i < ZX_COUNT(besides); i++)
        tests[n++] = zx_case(besides[i].name, done_beside, &besides[i]);
    for (size_t i = 0; i < ZX_COUNT(wrongs); i++)
        tests[n++] = zx_case(wrongs[i].name, wrong, &wrongs[i]);
    for (size_t i = 0; i < n; i++) tests[i].setup_func = start;
    return _cmocka_run_group_tests("cuda_standin.products", tests, n, NULL, fresh);
}

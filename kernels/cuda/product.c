// product.c - see product.h.
//
// cuBLASLt's matrices are stored by columns; a matrix stored by rows is its transpose there. So
// y = a b is asked for as yT = bT aT: operands change places, a bias along y's rows is one along
// columns, and what is transposed in one view is as it lies in the other.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/product.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

// As much as cuBLASLt's own default is on large devices; split sums want it.
#define MOST_WORK ((uint64_t)32 << 20)

struct zx_cuda_product {
    zx_product p;
    uint64_t size, y_size; // bytes of an element
    float beta;
    zx_cuda_beside beside;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulAlgo_t algo;
    uint64_t work_bytes;
    bool nothing_to_add; // no inner size: sums over nothing
};

static zx_status check(cublasStatus_t s, const char *what, zx_err *err)
{
    if (s == CUBLAS_STATUS_SUCCESS) return ZX_OK;
    const bool refused = s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_ARCH_MISMATCH;
    if (err != NULL)
        zx_err_hint(err, s == CUBLAS_STATUS_ALLOC_FAILED
                             ? "a smaller --budget, or fewer ranks on a device"
                             : "CUBLASLT_LOG_LEVEL=1 before the command, where cuBLASLt says more; "
                               "--backend cpu");
    return ZX_FAIL(err, refused ? ZX_E_UNSUPPORTED : ZX_E_DEVICE, "%.*s: %s: %s",
                   (int)strcspn(what, "("), what, cublasLtGetStatusName(s),
                   cublasLtGetStatusString(s));
}
#define CHECK(call) ZX_TRY(check(call, #call, err))

static cudaDataType type_of(zx_dtype t)
{
    return t == ZX_F16 ? CUDA_R_16F : t == ZX_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The innermost batch dimension is cuBLASLt's, those outside of it are a call each.
static uint32_t outer(const zx_product *p)
{
    return p->n_batch == 0 ? 0 : p->n_batch - 1;
}

// How every address that a call is given is aligned: as ZX_ALIGN, moved by outer dimensions.
static uint32_t alignment(const zx_product *p, uint64_t size)
{
    uint64_t bits = ZX_ALIGN, y = (uint64_t)(p->m * p->n) * size;
    if (p->n_batch > 1) y *= (uint64_t)p->batch[p->n_batch - 1];
    for (uint32_t i = 0; i < outer(p); i++)
        bits |= (uint64_t)p->a_batch[i] * size | (uint64_t)p->b_batch[i] * size | y;
    return (uint32_t)(bits & (~bits + 1));
}

static zx_status set_batch(cublasLtMatrixLayout_t l, int32_t batch, int64_t stride, zx_err *err)
{
    CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                           sizeof batch));
    CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                           sizeof stride));
    return ZX_OK;
}

// rows x columns as they are multiplied, by strides of which one is 1. *turned: cuBLASLt is to
// transpose what it sees.
static zx_status make_operand(cublasLtMatrixLayout_t *out, zx_dtype type, int64_t rows,
                              int64_t columns, int64_t row, int64_t column, int32_t *turned,
                              zx_err *err)
{
    const bool plain = column == 1 && row >= columns; // stored by rows: its transpose over there
    *turned = plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    if (plain)
        CHECK(
            cublasLtMatrixLayoutCreate(out, type_of(type), (uint64_t)columns, (uint64_t)rows, row));
    else
        CHECK(cublasLtMatrixLayoutCreate(out, type_of(type), (uint64_t)rows, (uint64_t)columns,
                                         column));
    return ZX_OK;
}

// ---- what is done beside: over there y is yT, its rows our columns, and a and b change places
// -----

static uint32_t epilogue_of(const zx_cuda_product *o)
{
    switch (o->beside) {
    case ZX_BESIDE_GELU:
        return o->p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case ZX_BESIDE_DGELU:
        return CUBLASLT_EPILOGUE_DGELU;
    case ZX_BESIDE_DGELU_SUM:
        return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    case ZX_BESIDE_SUM_A:
        return CUBLASLT_EPILOGUE_BGRADB;
    case ZX_BESIDE_SUM_B:
        return CUBLASLT_EPILOGUE_BGRADA;
    case ZX_BESIDE_NOTHING:
        break;
    }
    return o->p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}
static bool has_sums(const zx_cuda_product *o)
{
    return o->beside == ZX_BESIDE_DGELU_SUM || o->beside == ZX_BESIDE_SUM_A ||
           o->beside == ZX_BESIDE_SUM_B;
}
static bool has_row(const zx_cuda_product *o)
{
    return o->p.bias || has_sums(o);
}
static bool has_aux(const zx_cuda_product *o)
{
    return o->beside == ZX_BESIDE_GELU || o->beside == ZX_BESIDE_DGELU ||
           o->beside == ZX_BESIDE_DGELU_SUM;
}

static zx_status make_layouts(zx_cuda_product *o, zx_dtype type, zx_dtype y_type, bool tf32,
                              zx_err *err)
{
    const zx_product *p = &o->p;
    const uint32_t last = p->n_batch - 1;
    int32_t a_turned, b_turned;
    ZX_TRY(make_operand(&o->a, type, p->m, p->k, p->a_row, p->a_col, &a_turned, err));
    ZX_TRY(make_operand(&o->b, type, p->k, p->n, p->b_row, p->b_col, &b_turned, err));
    CHECK(cublasLtMatrixLayoutCreate(&o->y, type_of(y_type), (uint64_t)p->n, (uint64_t)p->m, p->n));
    if (p->n_batch > 0) {
        const int32_t batch = (int32_t)p->batch[last];
        ZX_TRY(set_batch(o->a, batch, p->a_batch[last], err));
        ZX_TRY(set_batch(o->b, batch, p->b_batch[last], err));
        ZX_TRY(set_batch(o->y, batch, p->m * p->n, err));
    }
    CHECK(cublasLtMatmulDescCreate(
        &o->desc, tf32 && type == ZX_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
        CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(o->desc, CUBLASLT_MATMUL_DESC_TRANSA, &b_turned,
                                         sizeof b_turned));
    CHECK(cublasLtMatmulDescSetAttribute(o->desc, CUBLASLT_MATMUL_DESC_TRANSB, &a_turned,
                                         sizeof a_turned));
    const uint32_t epilogue = epilogue_of(o);
    CHECK(cublasLtMatmulDescSetAttribute(o->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                         sizeof epilogue));
    if (!has_aux(o)) return ZX_OK;
    CHECK(cublasLtMatmulDescSetAttribute(o->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n,
                                         sizeof p->n));
    return ZX_OK;
}

// Which algorithms there are depends on how these pointers are aligned: any aligned ones will do.
// `row`: the bias that is added, or where sums go.
static zx_status set_pointers(const zx_cuda_product *o, const void *row, const void *aux,
                              zx_err *err)
{
    if (has_row(o))
        CHECK(cublasLtMatmulDescSetAttribute(o->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &row,
                                             sizeof row));
    if (has_aux(o))
        CHECK(cublasLtMatmulDescSetAttribute(o->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                             &aux, sizeof aux));
    return ZX_OK;
}

static zx_status ask(zx_cuda_product *o, const struct zx_cuda *at, cublasLtMatmulPreference_t want,
                     zx_err *err)
{
    static const cublasLtMatmulPreferenceAttributes_t aligned[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t most = MOST_WORK;
    const uint32_t align = alignment(&o->p, o->size);
    cublasLtMatmulHeuristicResult_t found;
    int n = 0;
    CHECK(cublasLtMatmulPreferenceSetAttribute(want, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &most, sizeof most));
    for (size_t i = 0; i < ZX_COUNT(aligned); i++)
        CHECK(cublasLtMatmulPreferenceSetAttribute(want, aligned[i], &align, sizeof align));
    const void *aligned_at = (const void *)(uintptr_t)4096;
    ZX_TRY(set_pointers(o, aligned_at, aligned_at, err));
    CHECK(cublasLtMatmulAlgoGetHeuristic(at->blas, o->desc, o->b, o->a, o->y, o->y, want, 1, &found,
                                         &n));
    if (n == 0 || found.state != CUBLAS_STATUS_SUCCESS)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "cuBLASLt has no algorithm for it");
    o->algo = found.algo;
    o->work_bytes = found.workspaceSize;
    return ZX_OK;
}

static zx_status choose(zx_cuda_product *o, const struct zx_cuda *at, zx_err *err)
{
    cublasLtMatmulPreference_t want;
    CHECK(cublasLtMatmulPreferenceCreate(&want));
    const zx_status st = ask(o, at, want, err);
    cublasLtMatmulPreferenceDestroy(want);
    return st;
}

static bool is_empty(const zx_product *p)
{
    bool empty = p->m == 0 || p->n == 0;
    for (uint32_t i = 0; i < p->n_batch; i++) empty = empty || p->batch[i] == 0;
    return empty;
}

static zx_status open_product(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                              zx_dtype y_type, bool add, zx_cuda_beside beside,
                              zx_cuda_product **out, zx_err *err)
{
    if (p->n_batch > 0 && p->batch[p->n_batch - 1] > INT32_MAX)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "more than 2^31 products in one");
    zx_cuda_product *o = calloc(1, sizeof *o);
    if (o == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory");
    o->p = *p;
    o->size = zx_dtype_bytes(type);
    o->y_size = zx_dtype_bytes(y_type);
    o->beta = add ? 1 : 0;
    o->beside = beside;
    o->nothing_to_add = p->k == 0;
    zx_status st = ZX_OK;
    if (!o->nothing_to_add) st = make_layouts(o, type, y_type, at->tf32, err);
    if (!o->nothing_to_add && st == ZX_OK) st = choose(o, at, err);
    if (st == ZX_OK)
        *out = o;
    else
        zx_cuda_product_close(o);
    return st;
}

zx_status zx_cuda_product_open(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                               bool add, zx_cuda_product **out, zx_err *err)
{
    return zx_cuda_product_open_to(at, p, type, type, add, out, err);
}

zx_status zx_cuda_product_open_to(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                                  zx_dtype y_type, bool add, zx_cuda_product **out, zx_err *err)
{
    *out = NULL;
    ZX_ASSERT(y_type == type || p->n_batch == 0);
    return is_empty(p) ? ZX_OK
                       : open_product(at, p, type, y_type, add, ZX_BESIDE_NOTHING, out, err);
}

zx_status zx_cuda_product_open_beside(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                                      zx_cuda_beside beside, zx_cuda_product **out, zx_err *err)
{
    const zx_cuda_product as = {.p = *p, .beside = beside};
    zx_err none = {0};
    *out = NULL;
    if (is_empty(p) || p->k == 0 || p->n_batch > 0 || (has_aux(&as) && p->n % 8 != 0)) return ZX_OK;
    const zx_status st = open_product(at, p, type, type, false, beside, out, &none);
    return st == ZX_OK || st == ZX_E_UNSUPPORTED ? ZX_OK : zx_err_merge(err, &none);
}

void zx_cuda_product_close(zx_cuda_product *o)
{
    if (o == NULL) return;
    if (o->a != NULL) cublasLtMatrixLayoutDestroy(o->a);
    if (o->b != NULL) cublasLtMatrixLayoutDestroy(o->b);
    if (o->y != NULL) cublasLtMatrixLayoutDestroy(o->y);
    if (o->desc != NULL) cublasLtMatmulDescDestroy(o->desc);
    free(o);
}

uint64_t zx_cuda_product_work(const zx_cuda_product *p)
{
    return p == NULL ? 0 : p->work_bytes;
}

// An inner size of 0: y is the row c, again and again, or 0.
static zx_status run_nothing(const zx_cuda_product *o, const struct zx_cuda *at, const void *c,
                             char *y, zx_err *err)
{
    const zx_product *p = &o->p;
    int64_t rows = p->m;
    for (uint32_t i = 0; i < p->n_batch; i++) rows *= p->batch[i];
    const size_t row = (size_t)p->n * o->y_size;
    if (o->beta == 0 && !p->bias)
        return zx_cuda_check(cudaMemsetAsync(y, 0, (size_t)rows * row, at->stream), "MatMul", err);
    if (!p->bias) return ZX_OK;
    if (o->beta != 0)
        return ZX_FAIL(err, ZX_E_UNSUPPORTED, "a product over nothing with a bias is added");
    for (int64_t i = 0; i < rows; i++)
        ZX_TRY(zx_cuda_check(
            cudaMemcpyAsync(y + (size_t)i * row, c, row, cudaMemcpyDeviceToDevice, at->stream),
            "MatMul", err));
    return ZX_OK;
}

zx_status zx_cuda_product_run_beside(const zx_cuda_product *o, const struct zx_cuda *at,
                                     const void *a, const void *b, const void *c, void *y,
                                     void *aux, void *sums, void *work, zx_err *err)
{
    if (o == NULL) return ZX_OK;
    const zx_product *p = &o->p;
    if (o->nothing_to_add) return run_nothing(o, at, c, y, err);
    const float alpha = (float)p->alpha;
    const uint32_t n = outer(p);
    int64_t calls = 1, inner = p->m * p->n;
    for (uint32_t i = 0; i < n; i++) calls *= p->batch[i];
    if (p->n_batch > 0) inner *= p->batch[n];
    ZX_TRY(set_pointers(o, has_sums(o) ? sums : c, aux, err));
    for (int64_t k = 0; k < calls; k++) {
        int64_t rest = k, x = 0, w = 0;
        for (uint32_t i = n; i-- > 0; rest /= p->batch[i]) {
            x += rest % p->batch[i] * p->a_batch[i];
            w += rest % p->batch[i] * p->b_batch[i];
        }
        char *to = (char *)y + (uint64_t)(k * inner) * o->y_size;
        const cublasStatus_t s = cublasLtMatmul(
            at->blas, o->desc, &alpha, (const char *)b + (uint64_t)w * o->size, o->b,
            (const char *)a + (uint64_t)x * o->size, o->a, &o->beta, to, o->y, to, o->y, &o->algo,
            o->work_bytes > 0 ? work : NULL, o->work_bytes, at->stream);
        ZX_TRY(check(s, "cublasLtMatmul", err));
    }
    return ZX_OK;
}

zx_status zx_cuda_product_run(const zx_cuda_product *o, const struct zx_cuda *at, const void *a,
                              const void *b, const void *c, void *y, void *work, zx_err *err)
{
    return zx_cuda_product_run_beside(o, at, a, b, c, y, NULL, NULL, work, err);
}

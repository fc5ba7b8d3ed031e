// blas.c - the stand-in's cuBLASLt: descriptors that are checked against each other, algorithms
// that fit one problem alone, products as plain loops.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <math.h>
#include <stdio.h>

#include "tests/cuda_standin/half.h"
#include "tests/cuda_standin/inside.h"

struct cublasLtContext {
    int device;
};
struct zx_standin_matmul_desc {
    cublasComputeType_t compute;
    int32_t trans_a, trans_b;
    uint32_t epilogue;
    void *bias, *aux;
    int64_t aux_ld;
};
struct zx_standin_layout {
    cudaDataType type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    int64_t stride;
};
struct zx_standin_preference {
    uint64_t workspace;
    uint32_t align[4];
};

static const struct {
    cublasStatus_t status;
    const char *name, *words;
} rows[] = {
#define X(name, number, words) {name, #name, words},
    ZX_STANDIN_BLAS_STATUSES(X)
#undef X
};
static size_t row_of(cublasStatus_t s)
{
    size_t i = 0;
    while (i < sizeof rows / sizeof rows[0] - 1 && rows[i].status != s) i++;
    return i;
}
const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return rows[row_of(status)].name;
}
const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return rows[row_of(status)].words;
}

// To begin a call with, as SI_BEGIN.
#define BEGIN()                                                                                    \
    do {                                                                                           \
        const uint32_t e_ = si_begin_library(__func__, CUBLAS_STATUS_EXECUTION_FAILED);            \
        if (e_ != 0) return (cublasStatus_t)e_;                                                    \
    } while (0)
#define WRONG(...) (si_wrong(cudaSuccess, "cublasLt: " __VA_ARGS__), CUBLAS_STATUS_INVALID_VALUE)

// ---- descriptors --------------------------------------------------------------------------------

static cublasStatus_t make(void *to, const void *what, size_t bytes)
{
    void *at = malloc(bytes);
    if (at == NULL) return CUBLAS_STATUS_ALLOC_FAILED;
    memcpy(at, what, bytes);
    memcpy(to, &at, sizeof at);
    return CUBLAS_STATUS_SUCCESS;
}
// Of a handle, a descriptor, a layout or a preference.
static cublasStatus_t drop(void *at)
{
    free(at);
    return at != NULL ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    BEGIN();
    const struct cublasLtContext c = {si_current()};
    return make(handle, &c, sizeof c);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return drop(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType scale)
{
    BEGIN();
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_FAST_TF32)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
    const struct zx_standin_matmul_desc d = {.compute = compute,
                                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return make(desc, &d, sizeof d);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return drop(desc);
}

// A value of `want` bytes into *to, if it has as many.
static cublasStatus_t set(void *to, size_t want, const void *value, size_t bytes)
{
    if (value == NULL || bytes != want)
        return WRONG("an attribute of %zu bytes was given as %zu", want, bytes);
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    BEGIN();
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&desc->trans_a, sizeof desc->trans_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&desc->trans_b, sizeof desc->trans_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&desc->epilogue, sizeof desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&desc->bias, sizeof desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&desc->aux, sizeof desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&desc->aux_ld, sizeof desc->aux_ld, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t n_rows, uint64_t columns, int64_t ld)
{
    BEGIN();
    const struct zx_standin_layout l = {type, n_rows, columns, ld, 1, 0};
    if (ld < (int64_t)n_rows) return WRONG("a leading dimension below the rows");
    return make(layout, &l, sizeof l);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return drop(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes)
{
    BEGIN();
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return set(&layout->batch, sizeof layout->batch, value, bytes);
    return set(&layout->stride, sizeof layout->stride, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    BEGIN();
    const struct zx_standin_preference p = {.align = {256, 256, 256, 256}};
    return make(preference, &p, sizeof p);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return drop(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    BEGIN();
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, sizeof preference->workspace, value, bytes);
    const int i = (int)what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    if (i < 0 || i > 3) return CUBLAS_STATUS_INVALID_VALUE;
    return set(&preference->align[i], sizeof preference->align[i], value, bytes);
}

// ---- algorithms ---------------------------------------------------------------------------------

enum { OF_A = 1, OF_B, OF_D };

typedef struct problem { // what is queued: everything by value
    struct zx_standin_matmul_desc desc;
    struct zx_standin_layout a, b, c, d;
    float alpha, beta;
    const void *at_a, *at_b, *at_c;
    void *at_d, *work;
    uint64_t work_bytes;
    uint64_t k;
} problem;

static size_t bytes_of(cudaDataType t)
{
    return t == CUDA_R_32F ? 4 : 2;
}
// Whether the layouts fit each other; *k is the inner size.
static bool fits(const struct zx_standin_matmul_desc *o, const struct zx_standin_layout *a,
                 const struct zx_standin_layout *b, const struct zx_standin_layout *c,
                 const struct zx_standin_layout *d, uint64_t *k)
{
    const uint64_t m = o->trans_a ? a->columns : a->rows, n = o->trans_b ? b->rows : b->columns;
    *k = o->trans_a ? a->rows : a->columns;
    return *k == (o->trans_b ? b->columns : b->rows) && d->rows == m && d->columns == n &&
           c->rows == m && c->columns == n && a->type == b->type && c->type == d->type &&
           a->batch == d->batch && b->batch == d->batch && c->batch == d->batch && m > 0 && n > 0 &&
           *k > 0 && d->batch > 0;
}

// ---- epilogues ----------------------------------------------------------------------------------

static const struct epilogue {
    uint32_t id;
    bool adds_bias, has_aux, writes_aux; // else reads it
    int sums;                            // 0 none, else over what
} epilogues[] = {
    {CUBLASLT_EPILOGUE_DEFAULT, false, false, false, 0},
    {CUBLASLT_EPILOGUE_BIAS, true, false, false, 0},
    {CUBLASLT_EPILOGUE_GELU_AUX, false, true, true, 0},
    {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, true, true, true, 0},
    {CUBLASLT_EPILOGUE_DGELU, false, true, false, 0},
    {CUBLASLT_EPILOGUE_DGELU_BGRAD, false, true, false, OF_D},
    {CUBLASLT_EPILOGUE_BGRADA, false, false, false, OF_A},
    {CUBLASLT_EPILOGUE_BGRADB, false, false, false, OF_B},
};
static const struct epilogue *epilogue_of(const struct zx_standin_matmul_desc *d) // NULL: unknown
{
    for (size_t i = 0; i < sizeof epilogues / sizeof epilogues[0]; i++)
        if (epilogues[i].id == d->epilogue) return &epilogues[i];
    return NULL;
}
static const char *what_of_epilogue(const problem *p) // is wrong; NULL: nothing
{
    const struct epilogue *e = epilogue_of(&p->desc);
    if (e == NULL) return "an epilogue that isn't known";
    if (e->id > CUBLASLT_EPILOGUE_BIAS && p->d.batch > 1) return "an epilogue of many products";
    if (!e->has_aux) return NULL;
    if (p->desc.aux_ld % 8 != 0 || p->desc.aux_ld < (int64_t)p->d.rows ||
        (uintptr_t)p->desc.aux % 16 != 0)
        return "the auxiliary matrix isn't aligned";
    return NULL;
}
static uint64_t bias_bytes(const problem *p)
{
    const struct epilogue *e = epilogue_of(&p->desc);
    const uint64_t n = e->sums == OF_B ? p->d.columns : p->d.rows;
    return e->adds_bias || e->sums != 0 ? n * bytes_of(p->d.type) : 0;
}
static uint64_t aux_bytes(const problem *p)
{
    const uint64_t n = (p->d.columns - 1) * (uint64_t)p->desc.aux_ld + p->d.rows;
    return epilogue_of(&p->desc)->has_aux ? n * bytes_of(p->d.type) : 0;
}
static uint64_t key_of(const problem *p)
{
    const uint64_t words[] = {p->d.rows,
                              (uint64_t)p->desc.compute,
                              p->d.columns,
                              p->k,
                              (uint64_t)p->d.batch,
                              (uint64_t)p->a.ld,
                              (uint64_t)p->b.ld,
                              (uint64_t)p->d.ld,
                              (uint64_t)(p->desc.trans_a << 1 | p->desc.trans_b),
                              p->desc.epilogue,
                              (uint64_t)p->a.type,
                              (uint64_t)p->d.type};
    uint64_t h = 0;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) h = si_mix(h ^ words[i]);
    return h;
}

enum { KEY, WORK, ALIGN }; // of an algorithm's data

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    BEGIN();
    *found = 0;
    problem p = {.desc = *desc, .a = *a, .b = *b, .c = *c, .d = *d};
    if (handle == NULL || wanted < 1 || !fits(desc, a, b, c, d, &p.k))
        return WRONG("the layouts don't fit each other");
    if (what_of_epilogue(&p) != NULL) return CUBLAS_STATUS_NOT_SUPPORTED;
    uint32_t align = 256;
    for (int i = 0; i < 4; i++)
        if (preference->align[i] < align) align = preference->align[i];
    const uint64_t want = (d->rows * d->columns * bytes_of(d->type) + 255) / 256 * 256;
    const uint64_t work = want <= preference->workspace ? want : 0; // there is one without, too
    results[0] = (cublasLtMatmulHeuristicResult_t){
        .algo = {.data = {[KEY] = key_of(&p), [WORK] = work, [ALIGN] = align}},
        .workspaceSize = work};
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

// ---- products -----------------------------------------------------------------------------------

static float get(const void *at, cudaDataType t, uint64_t i)
{
    if (t == CUDA_R_32F) return ((const float *)at)[i];
    const uint16_t bits = ((const uint16_t *)at)[i];
    return t == CUDA_R_16F ? si_from_f16(bits) : si_from_bf16(bits);
}
static void put(void *at, cudaDataType t, uint64_t i, float x)
{
    if (t == CUDA_R_32F)
        ((float *)at)[i] = x;
    else
        ((uint16_t *)at)[i] = t == CUDA_R_16F ? si_to_f16(x) : si_to_bf16(x);
}

static uint64_t reach(const struct zx_standin_layout *l) // bytes from the first element on
{
    const uint64_t one = (l->columns - 1) * (uint64_t)l->ld + l->rows;
    return ((uint64_t)(l->batch - 1) * (uint64_t)l->stride + one) * bytes_of(l->type);
}

// An operand's elements as they are multiplied: TF32 has 10 bits behind the point.
static float *factors(const problem *p, const void *at, const struct zx_standin_layout *l)
{
    const uint64_t n = reach(l) / bytes_of(l->type);
    const bool rounds = p->desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && l->type == CUDA_R_32F;
    float *x = malloc(n * sizeof *x);
    if (x == NULL) abort();
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        x[i] = get(at, l->type, i);
        if (!rounds || !isfinite(x[i])) continue;
        memcpy(&bits, &x[i], sizeof bits);
        bits += 0xfffu + (bits >> 13 & 1u);
        bits &= ~0x1fffu;
        memcpy(&x[i], &bits, sizeof x[i]);
    }
    return x;
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x)
{
    const double t = tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
    const double inner = 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + (fabs(x) > 100 ? 0 : 0.5 * x * (1 - t * t) * inner);
}
// What becomes of y, which is to be element (i, j) of D.
static double finish(const problem *p, uint64_t i, uint64_t j, double y)
{
    const struct epilogue *e = epilogue_of(&p->desc);
    const uint64_t at = i + j * (uint64_t)p->desc.aux_ld;
    if (e->adds_bias) y += (double)get(p->desc.bias, p->d.type, i);
    if (!e->has_aux) return y;
    if (!e->writes_aux) return y * gelu_slope((double)get(p->desc.aux, p->d.type, at));
    put(p->desc.aux, p->d.type, at, (float)y);
    return gelu(y);
}

#define TILE 256
// Column j of matrix `at` of the batch, TILE rows at a time, in the order of k.
static void column(const problem *p, const float *x, const float *w, uint64_t at, uint64_t j)
{
    const uint64_t a_row = p->desc.trans_a ? (uint64_t)p->a.ld : 1;
    const uint64_t a_k = p->desc.trans_a ? 1 : (uint64_t)p->a.ld;
    const uint64_t b_k = p->desc.trans_b ? (uint64_t)p->b.ld : 1;
    const uint64_t a = at * (uint64_t)p->a.stride;
    const uint64_t b = at * (uint64_t)p->b.stride + j * (p->desc.trans_b ? 1 : (uint64_t)p->b.ld);
    const uint64_t c = at * (uint64_t)p->c.stride + j * (uint64_t)p->c.ld;
    const uint64_t d = at * (uint64_t)p->d.stride + j * (uint64_t)p->d.ld;
    for (uint64_t from = 0; from < p->d.rows; from += TILE) {
        const uint64_t n = p->d.rows - from < TILE ? p->d.rows - from : TILE;
        double sum[TILE] = {0};
        for (uint64_t k = 0; k < p->k; k++) {
            const double y = (double)w[b + k * b_k];
            const float *f = x + a + from * a_row + k * a_k;
            if (a_row == 1)
                for (uint64_t i = 0; i < n; i++) sum[i] += y * (double)f[i];
            else
                for (uint64_t i = 0; i < n; i++) sum[i] += y * (double)f[i * a_row];
        }
        for (uint64_t i = 0; i < n; i++) {
            double y = (double)p->alpha * sum[i];
            if (p->beta != 0) y += (double)p->beta * (double)get(p->at_c, p->c.type, c + from + i);
            put(p->at_d, p->d.type, d + from + i, (float)finish(p, from + i, j, y));
        }
    }
}

// The sums of an epilogue, into the bias.
static void add_up(const problem *p)
{
    const int of = epilogue_of(&p->desc)->sums;
    const struct zx_standin_layout *l = of == OF_A ? &p->a : of == OF_B ? &p->b : &p->d;
    const void *at = of == OF_A ? p->at_a : of == OF_B ? p->at_b : p->at_d;
    const bool turned = of == OF_A   ? p->desc.trans_a != 0
                        : of == OF_B ? p->desc.trans_b == 0 // columns of B stay, rows of A and D do
                                     : false;
    const uint64_t n = turned ? l->columns : l->rows, terms = turned ? l->rows : l->columns;
    for (uint64_t i = 0; of != 0 && i < n; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < terms; k++) {
            const uint64_t row = turned ? k : i, column = turned ? i : k;
            sum += (double)get(at, l->type, row + column * (uint64_t)l->ld);
        }
        put(p->desc.bias, p->d.type, i, (float)sum);
    }
}

// All that it reads and writes; NULL: it is on the stream's device and whole.
static const char *what_is_wrong(const problem *p, int device)
{
    const struct {
        const char *word;
        const void *at;
        uint64_t bytes;
    } parts[] = {{"A", p->at_a, reach(&p->a)},
                 {"B", p->at_b, reach(&p->b)},
                 {"C", p->beta != 0 ? p->at_c : p->at_d, reach(&p->c)},
                 {"D", p->at_d, reach(&p->d)},
                 {"the bias", bias_bytes(p) > 0 ? p->desc.bias : p->at_d, bias_bytes(p)},
                 {"the auxiliary matrix", aux_bytes(p) > 0 ? p->desc.aux : p->at_d, aux_bytes(p)},
                 {"the workspace", p->work_bytes > 0 ? p->work : p->at_d, p->work_bytes}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const si_range r = si_find(parts[i].at, parts[i].bytes);
        if (r.kind != SI_DEVICE || r.device != device || !r.inside) return parts[i].word;
    }
    return NULL;
}

static void run(cudaStream_t s, void *args)
{
    const problem *p = args;
    const char *wrong = what_is_wrong(p, s->device);
    if (wrong != NULL) {
        si_stick(s->device, cudaErrorIllegalAddress, "cublasLtMatmul: %s isn't memory of device %d",
                 wrong, s->device);
        return;
    }
    SI_READS(p->at_a, reach(&p->a));
    SI_READS(p->at_b, reach(&p->b));
    if (p->beta != 0) SI_READS(p->at_c, reach(&p->c));
    const struct epilogue *e = epilogue_of(&p->desc);
    if (e->adds_bias) SI_READS(p->desc.bias, bias_bytes(p));
    if (e->sums != 0) SI_WRITES(p->desc.bias, bias_bytes(p));
    if (e->has_aux && e->writes_aux) SI_WRITES(p->desc.aux, aux_bytes(p));
    if (e->has_aux && !e->writes_aux) SI_READS(p->desc.aux, aux_bytes(p));
    SI_WRITES(p->at_d, reach(&p->d));
    if (p->work_bytes > 0) {
        SI_WRITES(p->work, p->work_bytes);
        si_poison(p->work, p->work_bytes);
    }
    float *const a = factors(p, p->at_a, &p->a), *const b = factors(p, p->at_b, &p->b);
    for (uint64_t at = 0; at < (uint64_t)p->d.batch; at++)
        for (uint64_t j = 0; j < p->d.columns; j++) column(p, a, b, at, j);
    free(a);
    free(b);
    add_up(p);
}

static bool meet(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes)
{
    const char *x = a, *y = b;
    return x < y + b_bytes && y < x + a_bytes;
}
static bool is_aligned(const problem *p, uint64_t align)
{
    return ((uintptr_t)p->at_a | (uintptr_t)p->at_b | (uintptr_t)p->at_d) % align == 0 &&
           (uintptr_t)p->work % 16 == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    BEGIN();
    problem p = {*desc, *a_layout, *b_layout, *c_layout, *d_layout, 0, 0,
                 a,     b,         c,         d,         workspace, 0, 0};
    memcpy(&p.alpha, alpha, sizeof p.alpha);
    memcpy(&p.beta, beta, sizeof p.beta);
    if (handle == NULL || si_stream(stream) == NULL) return WRONG("no handle or no stream");
    if (handle->device != stream->device)
        return WRONG("the handle is of device %d, the stream of %d", handle->device,
                     stream->device);
    if (!fits(desc, a_layout, b_layout, c_layout, d_layout, &p.k))
        return WRONG("the layouts don't fit each other");
    if (what_of_epilogue(&p) != NULL) return WRONG("%s", what_of_epilogue(&p));
    if (algo == NULL || algo->data[KEY] != key_of(&p))
        return WRONG("the algorithm is that of another product");
    if (workspace_bytes < algo->data[WORK])
        return WRONG("%zu bytes of workspace, the algorithm wants %llu", workspace_bytes,
                     (unsigned long long)algo->data[WORK]);
    p.work_bytes = algo->data[WORK];
    if (!is_aligned(&p, algo->data[ALIGN]))
        return WRONG("operands aren't aligned to %llu bytes as the algorithm wants",
                     (unsigned long long)algo->data[ALIGN]);
    if (meet(d, reach(&p.d), a, reach(&p.a)) || meet(d, reach(&p.d), b, reach(&p.b)) ||
        meet(d, reach(&p.d), p.desc.aux, aux_bytes(&p)))
        return WRONG("D overlaps A, B or the auxiliary matrix");
    const char *wrong = what_is_wrong(&p, stream->device);
    if (wrong != NULL) return WRONG("%s isn't memory of device %d", wrong, stream->device);
    si_enqueue_work(stream, run, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

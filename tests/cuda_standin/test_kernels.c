// test_kernels.c - CUDA kernels beside those that rows of cases.def run: optimizers' steps and the
// arithmetic of collectives against the CPU's; faults, which stop nothing and are kept.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/rig.h"

#include <math.h>

#include "graph/op.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda.h"
#include "tests/op_text.h"

#define N 5000

static struct zx_cuda at;

static int start(void **state)
{
    fresh(state);
    at = (struct zx_cuda){.stream = a_stream(), .processors = 4};
    return 0;
}

static void *upload(const void *x, size_t bytes)
{
    void *there = on_device(bytes + 1);
    if (bytes > 0) assert_ok(cudaMemcpyAsync(there, x, bytes, cudaMemcpyHostToDevice, at.stream));
    return there;
}
static void download(void *to, const void *there, size_t bytes)
{
    assert_ok(cudaMemcpyAsync(to, there, bytes, cudaMemcpyDeviceToHost, at.stream));
    assert_ok(cudaStreamSynchronize(at.stream));
}
static void fill(float *x, size_t n, uint32_t seed) // in [-1, 1)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)seed * 0x1p-31f;
    }
}
static void near(const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-6f * fabsf(want[i]) + 1e-7f))
            fail_msg("element %zu: %.9g, CPU %.9g", i, (double)got[i], (double)want[i]);
}

// ---- optimizers ---------------------------------------------------------------------------------

static float p[N], g[N], m[N], v[N], got[N];

static void start_values(void)
{
    fill(p, N, 1);
    fill(g, N, 2);
    fill(m, N, 3);
    fill(v, N, 4);
    for (size_t i = 0; i < N; i++) v[i] = fabsf(v[i]);
}

static void adam(void **state)
{
    const zx_adam_args *a = *state;
    zx_err err = {0};
    start_values();
    float *const dp = upload(p, sizeof p), *const dg = upload(g, sizeof g),
                 *const dm = upload(m, sizeof m), *const dv = upload(v, sizeof v);
    // In two cuts: every element alone.
    assert_zx_ok(zx_cuda_adam(dp, dg, dm, dv, 1001, a, &at, &err), &err);
    assert_zx_ok(zx_cuda_adam(dp + 1001, dg + 1001, dm + 1001, dv + 1001, N - 1001, a, &at, &err),
                 &err);
    assert_zx_ok(zx_cuda_adam(dp, dg, dm, dv, 0, a, &at, &err), &err);
    zx_cpu_adam(p, g, m, v, N, a, 1);
    download(got, dp, sizeof got);
    near(got, p, N);
    download(got, dm, sizeof got);
    near(got, m, N);
    download(got, dv, sizeof got);
    near(got, v, N);
}

static void sgd(void **state)
{
    const zx_sgd_args *a = *state;
    zx_err err = {0};
    start_values();
    float *const dp = upload(p, sizeof p), *const dg = upload(g, sizeof g),
                 *const dm = upload(m, sizeof m);
    assert_zx_ok(zx_cuda_sgd(dp, dg, a->momentum != 0 ? dm : NULL, N, a, &at, &err), &err);
    zx_cpu_sgd(p, g, a->momentum != 0 ? m : NULL, N, a, 1);
    download(got, dp, sizeof got);
    near(got, p, N);
    download(got, dm, sizeof got);
    near(got, m, N);
}

static void lion(void **state)
{
    const zx_lion_args *a = *state;
    zx_err err = {0};
    start_values();
    float *const dp = upload(p, sizeof p), *const dg = upload(g, sizeof g),
                 *const dm = upload(m, sizeof m);
    assert_zx_ok(zx_cuda_lion(dp, dg, dm, N, a, &at, &err), &err);
    zx_cpu_lion(p, g, m, N, a, 1);
    download(got, dp, sizeof got);
    near(got, p, N);
    download(got, dm, sizeof got);
    near(got, m, N);
}

// ---- parameters of 16 bits ----------------------------------------------------------------------

static uint16_t low[N], g16[N];

typedef struct mixed_row {
    const char *name;
    zx_dtype type;
    bool g_too; // the gradient has 16 bits as well
    const zx_adam_args *adam;
    const zx_sgd_args *sgd;
    const zx_lion_args *lion;
} mixed_row;

// Elements [from, from + n) of both.
static void step_mixed(const mixed_row *row, float *const there[4], uint16_t *low_there,
                       const void *g_there, int64_t from, int64_t n)
{
    const size_t size = row->g_too ? sizeof(uint16_t) : sizeof(float);
    const zx_mixed x = {.low_type = row->type,
                        .g_type = row->g_too ? row->type : ZX_F32,
                        .low = low_there + from,
                        .g = (const char *)g_there + (size_t)from * size};
    zx_mixed y = x;
    zx_err err = {0};
    y.low = low + from;
    y.g = row->g_too ? (const void *)(g16 + from) : g + from;
    float *const dp = there[0] + from, *const dm = there[1] + from, *const dv = there[2] + from;
    if (row->adam != NULL) {
        assert_zx_ok(zx_cuda_adam_mixed(dp, &x, dm, dv, n, row->adam, &at, &err), &err);
        zx_cpu_adam_mixed(p + from, &y, m + from, v + from, n, row->adam, 1);
    } else if (row->lion != NULL) {
        assert_zx_ok(zx_cuda_lion_mixed(dp, &x, dm, n, row->lion, &at, &err), &err);
        zx_cpu_lion_mixed(p + from, &y, m + from, n, row->lion, 1);
    } else {
        assert_zx_ok(zx_cuda_sgd_mixed(dp, &x, dm, n, row->sgd, &at, &err), &err);
        zx_cpu_sgd_mixed(p + from, &y, m + from, n, row->sgd, 1);
    }
}

// The float32 copy as the CPU has it; the parameter is that of the device, rounded.
static void mixed(void **state)
{
    static uint16_t want[N];
    const mixed_row *row = *state;
    start_values();
    zx_cpu_narrow(row->type, g, g16, N);
    memset(low, 0xff, sizeof low);
    float *const there[] = {upload(p, sizeof p), upload(m, sizeof m), upload(v, sizeof v), NULL};
    uint16_t *const low_there = upload(low, sizeof low);
    const void *g_there = row->g_too ? upload(g16, sizeof g16) : upload(g, sizeof g);
    step_mixed(row, there, low_there, g_there, 0, 1001);
    step_mixed(row, there, low_there, g_there, 1001, N - 1001);
    download(got, there[0], sizeof got);
    near(got, p, N);
    zx_cpu_narrow(row->type, got, want, N);
    download(low, low_there, sizeof low);
    assert_memory_equal(low, want, sizeof low);
    download(got, there[1], sizeof got);
    near(got, m, N);
    download(got, there[2], sizeof got);
    near(got, v, N);
}

// ---- collectives' arithmetic --------------------------------------------------------------------

// Of 16 bits, added in float32, kept so or rounded once: the CPU's bits.
static void sums_of_16(void **state)
{
    const zx_dtype type = *(const zx_dtype *)*state, kinds[] = {ZX_F32, type};
    static float wide[3 * N], out[N];
    static uint16_t from[3 * N];
    const void *const ranks[] = {from, from + N, from + 2 * N};
    zx_err err = {0};
    fill(wide, 3 * N, 5);
    zx_cpu_narrow(type, wide, from, 3 * N);
    for (uint32_t n = 1; n <= 3; n++)
        for (int k = 0; k < 4; k++) {
            const zx_dtype kept = kinds[k / 2];
            const bool add = k % 2 != 0;
            const size_t bytes = N * (size_t)zx_dtype_bytes(kept);
            fill(out, N, 6);
            if (kept != ZX_F32) zx_cpu_narrow(kept, wide + N, out, N);
            void *const there = upload(from, sizeof from), *const to = upload(out, bytes);
            assert_zx_ok(zx_cuda_sum_ranks_of(kept, to, type, there, N, n, N, add, &at, &err),
                         &err);
            zx_cpu_sum_ranks_of(kept, out, type, ranks, n, N, add, 1);
            download(got, to, bytes);
            assert_memory_equal(got, out, bytes);
        }
}

static void squares_of_16(void **state)
{
    const zx_dtype type = *(const zx_dtype *)*state;
    enum { COUNT = 2 * 4096 + 7 };
    static float x[COUNT];
    static uint16_t half[COUNT];
    zx_err err = {0};
    double result;
    fill(x, COUNT, 7);
    zx_cpu_narrow(type, x, half, COUNT);
    void *const there = upload(half, sizeof half);
    void *const work = on_device((size_t)zx_cuda_square_work(COUNT) + 1);
    double *const sum = on_device(sizeof *sum);
    assert_zx_ok(zx_cuda_square_sum_of(type, there, COUNT, work, sum, &at, &err), &err);
    download(&result, sum, sizeof result);
    const double want = zx_cpu_square_sum_of(type, half, COUNT, 1);
    assert_true(fabs(result - want) <= 1e-12 * want);
}

// In rank order, and what is there is added to last: the CPU's bits.
static void sums(void **state ZX_UNUSED)
{
    static float from[3 * N], out[N];
    const float *const ranks[] = {from, from + N, from + 2 * N};
    zx_err err = {0};
    fill(from, 3 * N, 5);
    for (uint32_t n = 1; n <= 3; n++)
        for (int add = 0; add < 2; add++) {
            fill(out, N, 6);
            float *const there = upload(from, sizeof from), *const to = upload(out, sizeof out);
            assert_zx_ok(zx_cuda_sum_ranks(to, there, N, n, N, add, &at, &err), &err);
            zx_cpu_sum_ranks(out, ranks, n, N, add, 1);
            download(got, to, sizeof got);
            assert_memory_equal(got, out, sizeof out);
        }
}

static void squares(void **state ZX_UNUSED)
{
    static float x[3 * 4096 + 1];
    static const int64_t sizes[] = {0, 1, 4096, 4097, 3 * 4096 + 1};
    zx_err err = {0};
    fill(x, ZX_COUNT(x), 7);
    float *const there = upload(x, sizeof x);
    double *const sum = on_device(sizeof *sum);
    for (size_t i = 0; i < ZX_COUNT(sizes); i++) {
        double result;
        void *const work = on_device((size_t)zx_cuda_square_work(sizes[i]) + 1);
        assert_zx_ok(zx_cuda_square_sum(there, sizes[i], work, sum, &at, &err), &err);
        download(&result, sum, sizeof result);
        const double want = zx_cpu_square_sum(x, sizes[i], 1);
        assert_true(fabs(result - want) <= 1e-12 * want);
    }
}

static void nonfinite(void **state ZX_UNUSED)
{
    static const struct {
        int64_t nan, inf, n, first_nan, first;
    } rows[] = {{-1, -1, N, -1, -1},
                {4999, 7, N, 4999, 7},
                {0, -1, N, 0, 0},
                {3000, 4000, N, 3000, 3000},
                {-1, -1, 0, -1, -1}};
    zx_err err = {0};
    int64_t *const first = on_device(sizeof *first), result;
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        fill(p, N, 8);
        if (rows[i].nan >= 0) p[rows[i].nan] = NAN;
        if (rows[i].nan == 3000) p[3001] = NAN;
        if (rows[i].inf >= 0) p[rows[i].inf] = -INFINITY;
        float *const there = upload(p, sizeof p);
        assert_zx_ok(zx_cuda_find_nonfinite(there, rows[i].n, false, first, &at, &err), &err);
        download(&result, first, sizeof result);
        assert_int_equal(result, rows[i].first_nan);
        assert_zx_ok(zx_cuda_find_nonfinite(there, rows[i].n, true, first, &at, &err), &err);
        download(&result, first, sizeof result);
        assert_int_equal(result, rows[i].first);
    }
}

// ---- faults -------------------------------------------------------------------------------------

typedef struct fault_row {
    const char *name;
    zx_op_id op;
    const char *in, *attrs, *out; // f32 operands are 1, integers as listed
    zx_fault_kind kind;
    int64_t a, b;
    const char *want; // of the first output; "": not looked at
} fault_row;

static const fault_row faults[] = {
    {"a label too large", ZX_OP_CROSS_ENTROPY, "f32[2,3] i64[2]:=1,3", "REDUCTION=0",
     "f32[2] f32[2]", ZX_FAULT_LABEL, 3, 3, "1.0986123,0"},
    {"a negative label", ZX_OP_CROSS_ENTROPY, "f32[1,2000] i32[1]:=-1", "REDUCTION=2",
     "f32[] f32[1]", ZX_FAULT_LABEL, -1, 2000, "0"},
    {"an ignored label is none", ZX_OP_CROSS_ENTROPY, "f32[2,3] i64[2]:=1,-1",
     "REDUCTION=1 IGNORE_INDEX=-1", "f32[] f32[2]", ZX_FAULT_NONE, 0, 0, "1.0986123"},
    {"no gradient of a wrong label", ZX_OP_CROSS_ENTROPY_GRAD, "f32[] f32[1,2] i64[1]:=5 f32[1]",
     "REDUCTION=2", "f32[1,2]", ZX_FAULT_LABEL, 5, 2, "0,0"},
    {"a wrong label of NLLLoss", ZX_OP_NLL_LOSS, "f32[2,3] i64[2]:=7,0", "REDUCTION=2", "f32[]",
     ZX_FAULT_LABEL, 7, 3, "-1"},
    {"a row that isn't there", ZX_OP_GATHER, "f32[2,3] i64[2]:=1,2", "AXIS=0", "f32[2,3]",
     ZX_FAULT_INDEX, 2, 2, "1,1,1,0,0,0"},
    {"its gradient goes nowhere", ZX_OP_GATHER_GRAD, "f32[2,1] i64[2]:=-3,-2", "AXIS=0 SHAPE=2,1",
     "f32[2,1]", ZX_FAULT_INDEX, -3, 2, "1,0"},
    {"an element that isn't there", ZX_OP_GATHER_ELEMENTS, "f32[2,2] i32[1,2]:=0,2", "AXIS=0",
     "f32[1,2]", ZX_FAULT_INDEX, 2, 2, "1,0"},
    {"nor is it written", ZX_OP_SCATTER_ELEMENTS, "f32[3] i64[2]:=0,-4 f32[2]",
     "AXIS=0 REDUCTION=1", "f32[3]", ZX_FAULT_INDEX, -4, 3, "2,1,1"},
    {"a tuple that points outside", ZX_OP_GATHER_ND, "f32[2,2] i64[1,2]:=0,9", "", "f32[1]",
     ZX_FAULT_INDEX, 9, 2, "0"},
    {"a division by zero", ZX_OP_DIV, "i64[2]:=6,7 i64[2]:=3,0", "", "i64[2]", ZX_FAULT_DIVIDE, 7,
     0, "2,0"},
    {"a remainder by zero", ZX_OP_MOD, "i32[2]:=6,7 i32[2]:=4,0", "", "i32[2]", ZX_FAULT_DIVIDE, 7,
     0, "2,0"},
    {"a position beyond the caches", ZX_OP_ROTARY_EMBEDDING,
     "f32[1,1,2,2] f32[3,1] f32[3,1] i64[1,2]:=3,0", "", "f32[1,1,2,2]", ZX_FAULT_INDEX, 3, 3,
     "1,1,0,2"},
};

// Element i of what is written after "=", or 1.
static double element(const char *list, int64_t i)
{
    const char *at_ = list;
    if (list[0] == '\0') return 1;
    if (*at_ == '=') at_++;
    for (; i > 0; at_++) i -= *at_ == ',';
    return strtod(at_, NULL);
}
static size_t bytes_of(const zx_type *t)
{
    return (size_t)zx_type_bytes(t);
}
static void put(void *x, zx_dtype t, int64_t i, double value)
{
    if (t == ZX_F32)
        ((float *)x)[i] = (float)value;
    else if (t == ZX_I64)
        ((int64_t *)x)[i] = (int64_t)value;
    else
        ((int32_t *)x)[i] = (int32_t)value;
}
static double look(const void *x, zx_dtype t, int64_t i)
{
    return t == ZX_F32   ? (double)((const float *)x)[i]
           : t == ZX_I64 ? (double)((const int64_t *)x)[i]
                         : ((const int32_t *)x)[i];
}

static void faulty(void **state)
{
    static char here[16384];
    const fault_row *row = *state;
    const zx_kernel *k = zx_cuda_kernel(row->op);
    zx_arena mem = {0};
    zx_err err = {0};
    op_arg args[8];
    zx_view in[8] = {{0}}, out[2] = {{0}};
    zx_fault fault = {0};
    void *kernel_state = NULL;
    uint64_t work_bytes = 0;
    const zx_attrs attrs = op_text_attrs(row->attrs, &mem);
    const uint32_t n_in = op_text_args(row->in, args, 8);
    for (uint32_t i = 0; i < n_in; i++) {
        for (int64_t e = 0; e < zx_shape_count(&args[i].type.shape); e++)
            put(here, args[i].type.dtype, e, element(args[i].fill, e));
        in[i] = (zx_view){upload(here, bytes_of(&args[i].type)), args[i].type};
        assert_ok(cudaStreamSynchronize(at.stream)); // `here` is used again
    }
    const char *text = row->out;
    for (uint32_t i = 0; i < zx_ops[row->op].n_out; i++) {
        out[i].type = op_text_type(&text);
        out[i].data = on_device(bytes_of(&out[i].type));
        while (*text == ' ') text++;
    }
    zx_call c = {.op = row->op,
                 .n_in = n_in,
                 .n_out = zx_ops[row->op].n_out,
                 .in = in,
                 .out = out,
                 .attrs = &attrs,
                 .threads = 1,
                 .cuda = &at};
    if (k->prepare != NULL) assert_zx_ok(k->prepare(&c, &work_bytes, &kernel_state, &err), &err);
    c.work = on_device((size_t)work_bytes + 1);
    c.fault = upload(&fault, sizeof fault);
    assert_zx_ok(k->run(&c, &err), &err);
    download(&fault, c.fault, sizeof fault);
    assert_int_equal(fault.kind, row->kind);
    assert_int_equal(fault.a, row->a);
    assert_int_equal(fault.b, row->b);
    download(here, out[0].data, bytes_of(&out[0].type));
    for (int64_t i = 0; i < zx_shape_count(&out[0].type.shape); i++)
        if (fabs(look(here, out[0].type.dtype, i) - element(row->want, i)) > 1e-6)
            fail_msg("element %lld: %.9g, want %.9g", (long long)i,
                     look(here, out[0].type.dtype, i), element(row->want, i));
    assert_string_equal(zx_standin_said(), "");
    zx_arena_free(&mem);
}

int main(void)
{
    static const zx_adam_args adamw = {0.9, 0.999, 0.01f, 1e-8f, 0.1f, 0.1f, 0.001f, true, 0.5f};
    static const zx_adam_args l2 = {0.9, 0.95, 0.01f, 1e-6f, 0.1f, 1, 1, false, 1};
    static const zx_sgd_args plain = {0.1f, 0, 0, 0.01f, false, true, 0.5f};
    static const zx_sgd_args first = {0.1f, 0.9f, 0.5f, 0.01f, false, true, 1};
    static const zx_lion_args lions = {0.9, 0.99, 0.01f, 0.1f, 0.5f};
    static const zx_sgd_args nesterov = {0.1f, 0.9f, 0, 0.01f, true, false, 0.25f};
    static const mixed_row mixed_rows[] = {
        {"adamw, bf16", ZX_BF16, false, &adamw, NULL, NULL},
        {"adamw, fp16 with its gradient", ZX_F16, true, &adamw, NULL, NULL},
        {"adam, bf16 with its gradient", ZX_BF16, true, &l2, NULL, NULL},
        {"lion, fp16", ZX_F16, false, NULL, NULL, &lions},
        {"lion, bf16 with its gradient", ZX_BF16, true, NULL, NULL, &lions},
        {"sgd, bf16", ZX_BF16, false, NULL, &plain, NULL},
        {"sgd, Nesterov, fp16 with its gradient", ZX_F16, true, NULL, &nesterov, NULL},
    };
    static zx_dtype types[] = {ZX_BF16, ZX_F16};
    static struct CMUnitTest tests[13 + ZX_COUNT(mixed_rows) + ZX_COUNT(faults)];
    size_t n = 0;
    tests[n++] = zx_case("adamw", adam, &adamw);
    tests[n++] = zx_case("adam, L2", adam, &l2);
    tests[n++] = zx_case("lion", lion, &lions);
    tests[n++] = zx_case("sgd", sgd, &plain);
    tests[n++] = zx_case("sgd, first step with momentum", sgd, &first);
    tests[n++] = zx_case("sgd, Nesterov", sgd, &nesterov);
    for (size_t i = 0; i < ZX_COUNT(mixed_rows); i++)
        tests[n++] = zx_case(mixed_rows[i].name, mixed, &mixed_rows[i]);
    tests[n++] = zx_case("sums over ranks", sums, NULL);
    tests[n++] = zx_case("sums of bf16", sums_of_16, &types[0]);
    tests[n++] = zx_case("sums of fp16", sums_of_16, &types[1]);
    tests[n++] = zx_case("square sums of bf16", squares_of_16, &types[0]);
    tests[n++] = zx_case("square sums of fp16", squares_of_16, &types[1]);
    tests[n++] = zx_case("square sums", squares, NULL);
    tests[n++] = zx_case("what isn't finite", nonfinite, NULL);
    for (size_t i = 0; i < ZX_COUNT(faults); i++)
        tests[n++] = zx_case(faults[i].name, faulty, &faults[i]);
    for (size_t i = 0; i < n; i++) {
        tests[i].setup_func = start;
        tests[i].teardown_func = fresh;
    }
    return _cmocka_run_group_tests("cuda_standin.kernels", tests, n, NULL, NULL);
}

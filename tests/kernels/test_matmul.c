// test_matmul.c - MATMUL against sums in double, for the shapes that models and corners have.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

typedef struct row {
    const char *name;
    uint32_t a_rank, b_rank;
    int64_t a[5], b[5]; // as stored
    bool trans_a, trans_b, bias;
    double alpha; // 0: the attribute is left out
} row;

static const row rows[] = {
    {"one by one", 2, 2, {1, 1}, {1, 1}, 0, 0, 0, 0},
    {"odd sizes", 2, 2, {7, 5}, {5, 3}, 0, 0, 0, 0},
    {"a transposed", 2, 2, {5, 7}, {5, 3}, 1, 0, 0, 0},
    {"b transposed", 2, 2, {7, 5}, {3, 5}, 0, 1, 0, 0},
    {"both transposed", 2, 2, {5, 7}, {3, 5}, 1, 1, 0, 0},
    {"bias", 2, 2, {7, 5}, {5, 3}, 0, 0, 1, 0},
    {"scaled", 2, 2, {7, 5}, {5, 3}, 0, 0, 0, 0.125},
    {"scaled, bias is not", 2, 2, {7, 5}, {5, 3}, 0, 0, 1, -3.5},
    {"scaled, batched, bias is not", 3, 3, {4, 7, 5}, {4, 5, 3}, 0, 0, 1, -3.5},
    {"a vector by a matrix", 2, 2, {1, 257}, {257, 65}, 0, 0, 0, 0},
    {"a matrix by a vector", 2, 2, {129, 257}, {257, 1}, 0, 0, 0, 0},
    {"outer product", 2, 2, {65, 1}, {1, 129}, 0, 0, 0, 0},
    {"blocks and tails", 2, 2, {131, 200}, {200, 97}, 0, 0, 1, 0},
    {"weight gradient", 2, 2, {200, 131}, {200, 97}, 1, 0, 0, 0},
    {"input gradient", 2, 2, {131, 97}, {200, 97}, 0, 1, 0, 0},
    {"vocabulary", 2, 2, {16, 64}, {1031, 64}, 0, 1, 0, 0},
    {"wide b, reordered", 2, 2, {64, 5}, {5, 3079}, 0, 0, 1, 0},
    {"wide b, reordered, a transposed", 2, 2, {9, 66}, {9, 3072}, 1, 0, 0, 0.5},
    {"shared out by columns", 2, 2, {70, 150}, {150, 650}, 0, 0, 1, 0},
    {"shared out by rows, a transposed", 2, 2, {150, 650}, {150, 263}, 1, 0, 0, 0},
    {"shared out, b transposed, scaled", 2, 2, {97, 150}, {1031, 150}, 0, 1, 1, 0.5},
    {"long sums", 2, 2, {9, 5003}, {5003, 11}, 0, 0, 0, 0},
    {"batch, same on both", 3, 3, {6, 9, 4}, {6, 4, 5}, 0, 0, 0, 0},
    {"attention", 4, 4, {2, 3, 33, 16}, {2, 3, 33, 16}, 0, 1, 0, 0.25},
    {"attention's gradient", 4, 4, {2, 3, 33, 17}, {2, 3, 33, 16}, 1, 0, 0, 0},
    {"one matrix for a batch", 3, 2, {6, 9, 4}, {4, 5}, 0, 0, 1, 0},
    {"one matrix for a batch, a transposed", 3, 2, {6, 4, 9}, {4, 5}, 1, 0, 0, 0},
    {"a batch for one matrix", 2, 3, {9, 4}, {6, 4, 5}, 0, 0, 0, 0},
    {"ones broadcast", 4, 4, {2, 1, 9, 4}, {1, 3, 4, 5}, 0, 0, 0, 0},
    {"ones broadcast, transposed", 4, 4, {1, 3, 4, 9}, {2, 1, 5, 4}, 1, 1, 0, 0},
    {"grouped heads", 5, 5, {2, 2, 3, 9, 4}, {2, 2, 1, 4, 5}, 0, 0, 0, 0},
    {"three kinds of batch", 5, 4, {2, 3, 1, 6, 4}, {3, 5, 4, 7}, 0, 0, 0, 0},
    {"no rows", 2, 2, {0, 5}, {5, 3}, 0, 0, 0, 0},
    {"no columns", 2, 2, {7, 5}, {5, 0}, 0, 0, 0, 0},
    {"empty sums are zero", 2, 2, {7, 0}, {0, 3}, 0, 0, 0, 0},
    {"empty sums are the bias", 2, 2, {7, 0}, {0, 3}, 0, 0, 1, 2.0},
    {"no batch", 3, 3, {0, 7, 5}, {0, 5, 3}, 0, 0, 0, 0},
    {"no batch against one", 3, 3, {0, 7, 5}, {1, 5, 3}, 0, 0, 0, 0},
};

static zx_shape result_of(const row *r)
{
    const zx_shape a = shape_of(r->a_rank, r->a), b = shape_of(r->b_rank, r->b);
    zx_shape y = {.rank = a.rank > b.rank ? a.rank : b.rank};
    for (uint32_t i = 0; i < y.rank; i++) {
        const int64_t da = i < y.rank - a.rank ? 1 : a.dim[i - (y.rank - a.rank)];
        const int64_t db = i < y.rank - b.rank ? 1 : b.dim[i - (y.rank - b.rank)];
        y.dim[i] = da == 1 ? db : da;
    }
    y.dim[y.rank - 2] = a.dim[a.rank - (r->trans_a ? 1 : 2)];
    y.dim[y.rank - 1] = b.dim[b.rank - (r->trans_b ? 2 : 1)];
    return y;
}

static one_call call_of(const row *r, uint32_t skew)
{
    one_call c = {0};
    const zx_shape y = result_of(r);
    add_input(&c, shape_of(r->a_rank, r->a), 1, skew);
    add_input(&c, shape_of(r->b_rank, r->b), 2, 3 * skew);
    if (r->bias) add_input(&c, shape_of(1, &y.dim[y.rank - 1]), 3, 5 * skew);
    add_output(&c, ZX_F32, y, 7 * skew);
    if (r->trans_a) c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_TRANS_A, 1);
    if (r->trans_b) c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_TRANS_B, 1);
    if (r->alpha != 0) c.attrs = zx_attrs_float(&c.mem, c.attrs, ZX_A_ALPHA, r->alpha);
    return c;
}

// Element `place` of operand `v` for the batch of result element `at`.
static int64_t matrix_at(const zx_shape *v, const zx_shape *y, int64_t at)
{
    int64_t batch = at / (y->dim[y->rank - 1] * y->dim[y->rank - 2]);
    int64_t from = 0, step = v->dim[v->rank - 1] * v->dim[v->rank - 2];
    for (uint32_t i = 2; i < y->rank; i++) {
        const int64_t size = y->dim[y->rank - 1 - i], coordinate = batch % size;
        batch /= size;
        if (i >= v->rank) continue;
        const int64_t own = v->dim[v->rank - 1 - i];
        if (own != 1) from += coordinate * step;
        step *= own;
    }
    return from;
}

// The sum for element `at`, and a bound on what float rounding may do to it.
static double want_at(const row *r, const one_call *c, int64_t at, double *bound)
{
    const zx_shape *a = &c->in[0].type.shape, *b = &c->in[1].type.shape, *y = &c->out[0].type.shape;
    const int64_t m = y->dim[y->rank - 2], n = y->dim[y->rank - 1], i = at / n % m, j = at % n;
    const int64_t depth = a->dim[a->rank - (r->trans_a ? 2 : 1)];
    const float *x = (const float *)c->in[0].data + matrix_at(a, y, at);
    const float *w = (const float *)c->in[1].data + matrix_at(b, y, at);
    const double alpha = r->alpha != 0 ? r->alpha : 1.0;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < depth; k++) {
        const double left = (double)x[r->trans_a ? k * m + i : i * depth + k];
        const double right = (double)w[r->trans_b ? j * depth + k : k * n + j];
        sum += left * right;
        size += fabs(left * right);
    }
    const double bias = r->bias ? (double)((const float *)c->in[2].data)[j] : 0.0;
    *bound = 2e-6 * (fabs(alpha) * size + fabs(bias));
    return alpha * sum + bias;
}

static void test_row(void **state)
{
    const row *r = *state;
    for (int threads = 1; threads <= 6; threads += threads == 1 ? 1 : 2) { // 4, 6: a grid of pieces
        zx_err err = {0};
        one_call c = call_of(r, 0), again = call_of(r, 1);
        assert_zx_ok(one_call_run(&c, &zx_cpu_matmul, threads, 1, &err), &err);
        const int64_t n = zx_shape_count(&c.out[0].type.shape);
        for (int64_t i = 0; i < n; i++) {
            double bound;
            const double want = want_at(r, &c, i, &bound);
            assert_near((double)((const float *)c.out[0].data)[i], want, bound, i);
        }
        assert_zx_ok(one_call_run(&again, &zx_cpu_matmul, threads, 2, &err), &err);
        assert_same_bytes(&c.out[0], &again.out[0], "elsewhere, twice");
        zx_arena_free(&c.mem);
        zx_arena_free(&again.mem);
    }
}

// The same product in the types that only constants have; inputs are multiples of 1/16 and sums
// small, so that every type holds them exactly.
static void test_folding_types(void **state)
{
    (void)state;
    static const zx_dtype types[] = {ZX_F64, ZX_F16, ZX_BF16};
    const int64_t a[] = {3, 4}, b[] = {4, 2}, y[] = {3, 2};
    // Values i/4 - 1 as f16 and bf16 bits for i = 0..7.
    static const uint16_t f16[] = {0xBC00, 0xBA00, 0xB800, 0xB400, 0, 0x3400, 0x3800, 0x3A00};
    static const uint16_t bf16[] = {0xBF80, 0xBF40, 0xBF00, 0xBE80, 0, 0x3E80, 0x3F00, 0x3F40};
    for (size_t t = 0; t < ZX_COUNT(types); t++) {
        one_call c = {0};
        zx_err err = {0};
        c.in[0] = view_make(&c, types[t], shape_of(2, a), 0);
        c.in[1] = view_make(&c, types[t], shape_of(2, b), 0);
        c.n_in = 2;
        add_output(&c, types[t], shape_of(2, y), 0);
        for (int v = 0; v < 2; v++) {
            for (int i = 0; i < (v ? 8 : 12); i++) {
                const int k = (i * 5 + v * 3) % 8;
                if (types[t] == ZX_F64) ((double *)c.in[v].data)[i] = k / 4.0 - 1;
                if (types[t] == ZX_F16) ((uint16_t *)c.in[v].data)[i] = f16[k];
                if (types[t] == ZX_BF16) ((uint16_t *)c.in[v].data)[i] = bf16[k];
            }
        }
        assert_zx_ok(one_call_run(&c, &zx_cpu_matmul, 2, 2, &err), &err);
        for (int i = 0; i < 6; i++) {
            double want = 0, got = 0;
            for (int k = 0; k < 4; k++)
                want +=
                    ((i / 2 * 4 + k) * 5 % 8 / 4.0 - 1) * (((k * 2 + i % 2) * 5 + 3) % 8 / 4.0 - 1);
            const uint16_t bits = ((const uint16_t *)c.out[0].data)[i];
            if (types[t] == ZX_F64) got = ((const double *)c.out[0].data)[i];
            if (types[t] == ZX_BF16) {
                const uint32_t wide = (uint32_t)bits << 16;
                float f;
                memcpy(&f, &wide, sizeof f);
                got = (double)f;
            }
            if (types[t] == ZX_F16)
                got = (bits & 0x8000 ? -1 : 1) *
                      ldexp(1 + (bits & 0x3FF) / 1024.0, (bits >> 10 & 31) - 15);
            if (types[t] == ZX_F16 && (bits & 0x7FFF) == 0) got = 0;
            assert_near(got, want, 0, i);
        }
        zx_arena_free(&c.mem);
    }
}

static void test_not_finite(void **state)
{
    (void)state;
    zx_err err = {0};
    const row r = {"", 2, 2, {20, 40}, {40, 24}, 0, 0, 0, 0};
    one_call c = call_of(&r, 0);
    ((float *)c.in[0].data)[3 * 40 + 7] = NAN;
    ((float *)c.in[1].data)[5 * 24 + 2] = INFINITY;
    assert_zx_ok(one_call_run(&c, &zx_cpu_matmul, 2, 1, &err), &err);
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < 24; j++) {
            const float y = ((const float *)c.out[0].data)[i * 24 + j];
            assert_int_equal(isnan(y) != 0, i == 3);
            if (i != 3) assert_int_equal(isinf(y) != 0, j == 2);
        }
    }
    zx_arena_free(&c.mem);
}

static void test_integers_are_refused(void **state)
{
    (void)state;
    zx_err err = {0};
    one_call c = {0};
    const int64_t d[] = {2, 2};
    c.in[0] = c.in[1] = view_make(&c, ZX_I64, shape_of(2, d), 0);
    c.n_in = 2;
    add_output(&c, ZX_I64, shape_of(2, d), 0);
    assert_int_equal(one_call_run(&c, &zx_cpu_matmul, 1, 1, &err), ZX_E_UNSUPPORTED);
    assert_string_equal(err.cause[0], "MatMul of int64 is not supported");
    zx_arena_free(&c.mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 3] = {
        cmocka_unit_test(test_folding_types),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_integers_are_refused),
    };
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i + 3] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests_name("matmul", tests, NULL, NULL);
}

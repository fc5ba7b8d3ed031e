// test_conv.c - CONV, CONV_GRAD_X and CONV_GRAD_W against one scatter loop in double.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

typedef struct row {
    const char *name;
    int spatial;
    int64_t n, channels, filters, group;
    int64_t x[3], k[3], stride[3], pad[6], dilation[3];
    bool bias;
    int64_t extra[3]; // rows of x that no window reaches: what ConvTranspose calls output padding
} row;

static const row rows[] = {
    {"1 to 1, one tap", 2, 1, 1, 1, 1, {4, 4}, {1, 1}, {1, 1}, {0}, {1, 1}, 0, {0}},
    {"3x3, padded", 2, 2, 3, 5, 1, {9, 7}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {0}},
    {"16 to 32 channels", 2, 2, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {0}},
    {"stride 2, a column is left over",
     2,
     2,
     16,
     8,
     1,
     {9, 10},
     {3, 3},
     {2, 2},
     {1, 1, 1, 1},
     {1, 1},
     0,
     {0}},
    {"patches", 2, 3, 3, 20, 1, {16, 16}, {8, 8}, {8, 8}, {0}, {1, 1}, 1, {0}},
    {"asymmetric pads", 2, 2, 4, 6, 1, {7, 8}, {3, 2}, {2, 1}, {0, 1, 2, 0}, {1, 1}, 1, {0}},
    {"dilated", 2, 2, 5, 6, 1, {11, 12}, {3, 3}, {1, 2}, {2, 1, 2, 1}, {2, 3}, 1, {0}},
    {"two groups", 2, 2, 6, 4, 2, {6, 6}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {0}},
    {"groups of 16", 2, 2, 32, 32, 2, {6, 6}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1, {0}},
    {"depthwise", 2, 2, 24, 24, 24, {8, 8}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 0, {0}},
    {"depthwise, stride 2, 5x5",
     2,
     2,
     7,
     7,
     7,
     {9, 9},
     {5, 5},
     {2, 2},
     {2, 2, 2, 2},
     {1, 1},
     1,
     {0}},
    {"depth multiplier", 2, 2, 4, 12, 4, {6, 5}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1, {0}},
    {"pointwise", 2, 2, 33, 17, 1, {7, 5}, {1, 1}, {1, 1}, {0}, {1, 1}, 1, {0}},
    {"pointwise, stride 2", 2, 2, 16, 32, 1, {7, 7}, {1, 1}, {2, 2}, {0}, {1, 1}, 0, {0}},
    {"kernel larger than the plane",
     2,
     1,
     3,
     4,
     1,
     {2, 3},
     {5, 5},
     {1, 1},
     {2, 2, 2, 2},
     {1, 1},
     1,
     {0}},
    {"pad wider than the kernel",
     2,
     1,
     2,
     2,
     1,
     {3, 3},
     {2, 2},
     {1, 1},
     {3, 2, 3, 3},
     {1, 1},
     1,
     {0}},
    {"output padding", 2, 2, 4, 3, 1, {5, 6}, {2, 2}, {3, 3}, {0}, {1, 1}, 0, {2, 1}},
    {"output padding of a whole stride",
     2,
     2,
     4,
     3,
     1,
     {8, 6},
     {2, 2},
     {3, 3},
     {0},
     {1, 1},
     0,
     {3, 1}},
    {"all at once, by the library",
     2,
     2,
     32,
     32,
     2,
     {11, 12},
     {3, 2},
     {2, 1},
     {1, 2, 3, 0},
     {2, 3},
     1,
     {0}},
    {"1-D", 1, 2, 5, 7, 1, {19}, {4}, {3}, {1, 2}, {2}, 1, {0}},
    {"1-D, grouped", 1, 2, 8, 8, 4, {19}, {5}, {1}, {2, 2}, {1}, 1, {0}},
    {"3-D", 3, 2, 3, 4, 1, {5, 6, 7}, {3, 2, 3}, {1, 2, 1}, {1, 0, 1, 0, 1, 1}, {1, 1, 2}, 1, {0}},
    {"3-D, groups", 3, 1, 4, 6, 2, {4, 4, 4}, {2, 2, 2}, {2, 1, 1}, {0}, {1, 1, 1}, 0, {0}},
    {"no images", 2, 0, 3, 4, 1, {5, 5}, {3, 3}, {1, 1}, {0}, {1, 1}, 1, {0}},
    {"no filters", 2, 2, 3, 0, 1, {5, 5}, {3, 3}, {1, 1}, {0}, {1, 1}, 0, {0}},
    {"no channels: the bias alone", 2, 2, 0, 4, 1, {5, 5}, {3, 3}, {1, 1}, {0}, {1, 1}, 1, {0}},
};

static zx_shape x_of(const row *r)
{
    zx_shape s = {(uint32_t)r->spatial + 2, {r->n, r->channels}};
    for (int i = 0; i < r->spatial; i++) s.dim[2 + i] = r->x[i];
    return s;
}

static zx_shape w_of(const row *r)
{
    zx_shape s = {(uint32_t)r->spatial + 2, {r->filters, r->channels / r->group}};
    for (int i = 0; i < r->spatial; i++) s.dim[2 + i] = r->k[i];
    return s;
}

static zx_shape y_of(const row *r)
{
    zx_shape s = {(uint32_t)r->spatial + 2, {r->n, r->filters}};
    for (int i = 0; i < r->spatial; i++) {
        const int64_t reach = (r->k[i] - 1) * r->dilation[i] + 1;
        s.dim[2 + i] =
            (r->x[i] - r->extra[i] + r->pad[i] + r->pad[i + r->spatial] - reach) / r->stride[i] + 1;
    }
    return s;
}

enum { FORWARD, GRAD_X, GRAD_W };
static const zx_kernel *const kernels[] = {&zx_cpu_conv, &zx_cpu_conv_grad_x, &zx_cpu_conv_grad_w};

static one_call call_of(const row *r, int kind, uint32_t skew)
{
    one_call c = {0};
    const uint32_t d = (uint32_t)r->spatial;
    if (kind != GRAD_X) add_input(&c, x_of(r), 1, skew);
    if (kind != FORWARD) add_input(&c, y_of(r), 4, 2 * skew);
    if (kind != GRAD_W) add_input(&c, w_of(r), 2, 3 * skew);
    if (kind == FORWARD && r->bias) add_input(&c, shape_of(1, &r->filters), 3, 5 * skew);
    const zx_shape out = kind == FORWARD ? y_of(r) : kind == GRAD_X ? x_of(r) : w_of(r);
    add_output(&c, ZX_F32, out, 7 * skew);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_STRIDES, r->stride, d);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_PADS, r->pad, 2 * d);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_DILATIONS, r->dilation, d);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_GROUP, r->group);
    if (kind != FORWARD) c.attrs = zx_attrs_shape(&c.mem, c.attrs, ZX_A_SHAPE, &out);
    return c;
}

// Place of coordinates (first, second, p) in a tensor of shape s; -1: outside.
static int64_t place(const zx_shape *s, int64_t first, int64_t second, const int64_t p[3])
{
    int64_t at = first * s->dim[1] + second;
    for (uint32_t i = 2; i < s->rank; i++) {
        if (p[i - 2] < 0 || p[i - 2] >= s->dim[i]) return -1;
        at = at * s->dim[i] + p[i - 2];
    }
    return at;
}

// The sums of one kind, in double, over all (image, filter, output place, channel, tap); `size`
// gets the sums of absolute values.
static void want_of(const row *r, int kind, const one_call *c, double *sum, double *size)
{
    const zx_shape x = x_of(r), w = w_of(r), y = y_of(r);
    const int64_t outs = zx_shape_span(&y, 2, y.rank), taps = zx_shape_span(&w, 2, w.rank);
    const float *in0 = c->in[0].data, *in1 = c->in[1].data;
    if (kind == FORWARD && r->bias)
        for (int64_t i = 0; i < zx_shape_count(&y); i++)
            sum[i] = (double)((const float *)c->in[2].data)[i / outs % r->filters];
    for (int64_t i = 0; i < zx_shape_count(&y); i++) {
        const int64_t n = i / outs / r->filters, f = i / outs % r->filters;
        for (int64_t t = 0; t < w.dim[1] * taps; t++) {
            int64_t o[3] = {0}, k[3] = {0}, p[3] = {0}, rest_o = i % outs, rest_k = t % taps;
            for (int d = r->spatial - 1; d >= 0; d--) {
                o[d] = rest_o % y.dim[2 + d];
                rest_o /= y.dim[2 + d];
                k[d] = rest_k % r->k[d];
                rest_k /= r->k[d];
                p[d] = o[d] * r->stride[d] + k[d] * r->dilation[d] - r->pad[d];
            }
            const int64_t channel = f / (r->filters / r->group) * w.dim[1] + t / taps;
            const int64_t at_x = place(&x, n, channel, p), at_w = f * w.dim[1] * taps + t;
            if (at_x < 0) continue;
            const int64_t to = kind == FORWARD ? i : kind == GRAD_X ? at_x : at_w;
            const double left = (double)in0[kind == GRAD_X ? i : at_x];
            const double right = (double)in1[kind == GRAD_W ? i : at_w];
            sum[to] += left * right;
            size[to] += fabs(left * right);
        }
    }
}

static void test_row(void **state)
{
    const row *r = *state;
    for (int kind = FORWARD; kind <= GRAD_W; kind++) {
        for (int threads = 1; threads <= 2; threads++) {
            zx_err err = {0};
            one_call c = call_of(r, kind, 0), again = call_of(r, kind, 1);
            assert_zx_ok(one_call_run(&c, kernels[kind], threads, 1, &err), &err);
#if !defined(ZX_NAIVE) && defined(__x86_64__)
            // Blocked layouts need scratch, own loops don't: the library did take it.
            if (__builtin_cpu_supports("avx2") && r->channels >= 16 && r->filters >= 16)
                assert_true(c.work_bytes > 0);
#endif
            const int64_t n = zx_shape_count(&c.out[0].type.shape);
            double *sum = ZX_NEW(&c.mem, double, (size_t)n + 1),
                   *size = ZX_NEW(&c.mem, double, (size_t)n + 1);
            want_of(r, kind, &c, sum, size);
            for (int64_t i = 0; i < n; i++)
                assert_near((double)((const float *)c.out[0].data)[i], sum[i], 2e-6 * (size[i] + 1),
                            i);
            assert_zx_ok(one_call_run(&again, kernels[kind], threads, 2, &err), &err);
            assert_same_bytes(&c.out[0], &again.out[0], "elsewhere, twice");
            zx_arena_free(&c.mem);
            zx_arena_free(&again.mem);
        }
    }
}

// Own loops, in the type that only constants have.
static void test_double(void **state)
{
    (void)state;
    const row *r = &rows[7];
    for (int kind = FORWARD; kind <= GRAD_W; kind++) {
        zx_err err = {0};
        one_call c = call_of(r, kind, 0), wide = c;
        for (uint32_t v = 0; v < c.n_in; v++) {
            wide.in[v] = view_make(&wide, ZX_F64, c.in[v].type.shape, 0);
            for (int64_t i = 0; i < zx_shape_count(&c.in[v].type.shape); i++)
                ((double *)wide.in[v].data)[i] = (double)((const float *)c.in[v].data)[i];
        }
        wide.out[0] = view_make(&wide, ZX_F64, c.out[0].type.shape, 0);
        assert_zx_ok(one_call_run(&wide, kernels[kind], 2, 1, &err), &err);
        const int64_t n = zx_shape_count(&c.out[0].type.shape);
        double *sum = ZX_NEW(&wide.mem, double, (size_t)n),
               *size = ZX_NEW(&wide.mem, double, (size_t)n);
        want_of(r, kind, &c, sum, size);
        for (int64_t i = 0; i < n; i++)
            assert_near(((const double *)wide.out[0].data)[i], sum[i], 1e-13 * (size[i] + 1), i);
        zx_arena_free(&wide.mem);
    }
}

// A NaN reaches exactly the outputs whose windows hold it.
static void test_not_finite(void **state)
{
    (void)state;
    zx_err err = {0};
    const row r = {"", 2, 1, 16, 16, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 0, {0}};
    one_call c = call_of(&r, FORWARD, 0);
    ((float *)c.in[0].data)[2 * 36 + 0 * 6 + 4] = NAN;
    assert_zx_ok(one_call_run(&c, &zx_cpu_conv, 2, 1, &err), &err);
    for (int i = 0; i < 16 * 36; i++) {
        const int h = i / 6 % 6, w = i % 6;
        assert_int_equal(isnan(((const float *)c.out[0].data)[i]) != 0, h <= 1 && w >= 3);
    }
    zx_arena_free(&c.mem);
}

static void test_misfits(void **state)
{
    (void)state;
    zx_err err = {0};
    one_call c = call_of(&rows[7], FORWARD, 0);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_GROUP, 4);
    assert_int_equal(one_call_run(&c, &zx_cpu_conv, 1, 1, &err), ZX_E_SHAPE);
    assert_string_equal(err.cause[0], "convolution: 4 groups do not divide 6 and 4 channels");
    zx_arena_free(&c.mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 3] = {
        cmocka_unit_test(test_double),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_misfits),
    };
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i + 3] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests_name("conv", tests, NULL, NULL);
}

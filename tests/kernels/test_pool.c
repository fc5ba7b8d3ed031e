// test_pool.c - pooling against loops over padded planes, resizing against figures from ONNX
// Runtime, and all gradients as the transposes of their forwards.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

// ---- pooling
// --------------------------------------------------------------------------------------
typedef struct row {
    const char *name;
    uint32_t spatial;
    int64_t x[3], y[3], k[3], stride[3], pad[6], dilation[3];
    bool count_pads;
} row;

static const row rows[] = {
    {"2x2", 2, {6, 4}, {3, 2}, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {"3x3, stride 2, padded", 2, {7, 8}, {4, 4}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 0},
    {"the pads count", 2, {7, 8}, {4, 4}, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}, 1},
    {"asymmetric pads", 2, {5, 6}, {5, 3}, {2, 3}, {1, 2}, {0, 1, 1, 0}, {1, 1}, 1},
    {"dilated", 2, {7, 9}, {3, 5}, {3, 3}, {1, 1}, {0}, {2, 2}, 0},
    {"dilated and padded", 2, {5, 5}, {5, 5}, {3, 2}, {1, 1}, {2, 1, 2, 1}, {2, 2}, 1},
    {"rounded up: the last window hangs over", 2, {5, 5}, {3, 3}, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
    {"rounded up past the pads, which count",
     2,
     {6, 6},
     {4, 4},
     {3, 3},
     {2, 2},
     {1, 1, 1, 1},
     {1, 1},
     1},
    {"whole plane", 2, {5, 3}, {1, 1}, {5, 3}, {1, 1}, {0}, {1, 1}, 0},
    {"1-D", 1, {11}, {5}, {3}, {2}, {0}, {1}, 0},
    {"3-D", 3, {4, 5, 6}, {2, 3, 3}, {2, 3, 2}, {2, 1, 2}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, 0},
    {"overlapping 3-D",
     3,
     {3, 4, 4},
     {3, 4, 4},
     {3, 3, 3},
     {1, 1, 1},
     {1, 1, 1, 1, 1, 1},
     {1, 1, 1},
     0},
    {"empty plane", 2, {0, 4}, {0, 2}, {2, 2}, {2, 2}, {0}, {1, 1}, 0},
};
enum { IMAGES = 2, CHANNELS = 3, PLANES = IMAGES * CHANNELS };

static zx_shape planes_of(const row *r, const int64_t *d)
{
    zx_shape s = {r->spatial + 2, {IMAGES, CHANNELS}};
    for (uint32_t i = 0; i < r->spatial; i++) s.dim[2 + i] = d[i];
    return s;
}

static one_call pool_call(const row *r, const int64_t *from, const int64_t *to, uint32_t skew)
{
    one_call c = {0};
    const zx_shape out = planes_of(r, to);
    const uint32_t d = r->spatial;
    add_input(&c, planes_of(r, from), 1, skew);
    add_output(&c, ZX_F32, out, 2 * skew);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_KERNEL_SHAPE, r->k, d);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_STRIDES, r->stride, d);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_PADS, r->pad, 2 * d);
    c.attrs = zx_attrs_ints(&c.mem, c.attrs, ZX_A_DILATIONS, r->dilation, d);
    if (r->count_pads) c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_COUNT_INCLUDE_PAD, 1);
    c.attrs = zx_attrs_shape(&c.mem, c.attrs, ZX_A_SHAPE, &out);
    return c;
}

static int64_t span(const int64_t *d, uint32_t n)
{
    int64_t count = 1;
    for (uint32_t i = 0; i < n; i++) count *= d[i];
    return count;
}

// Tap t of output o: its place in the plane; -1: padding; -2: past the padding.
static int64_t cell(const row *r, int64_t o, int64_t t)
{
    int64_t at = 0, step = 1;
    bool pad = false;
    for (uint32_t i = r->spatial; i-- > 0;) {
        const int64_t p = o % r->y[i] * r->stride[i] + t % r->k[i] * r->dilation[i] - r->pad[i];
        o /= r->y[i];
        t /= r->k[i];
        if (p >= r->x[i] + r->pad[i + r->spatial]) return -2;
        if (p < 0 || p >= r->x[i]) pad = true;
        at += p * step;
        step *= r->x[i];
    }
    return pad ? -1 : at;
}

static void test_max(void **state)
{
    const row *r = *state;
    const int64_t in = span(r->x, r->spatial), out = span(r->y, r->spatial),
                  taps = span(r->k, r->spatial);
    for (int threads = 1; threads <= 2; threads++) {
        zx_err err = {0};
        one_call c = pool_call(r, r->x, r->y, 0);
        add_output(&c, ZX_I32, planes_of(r, r->y), 0);
        float *x = c.in[0].data;
        for (int64_t i = 0; i < PLANES * in; i++) x[i] = roundf(x[i] * 4); // many ties
        if (in > 4) x[in + 3] = NAN;
        if (in > 4) x[in + 4] = NAN;
        assert_zx_ok(one_call_run(&c, &zx_cpu_max_pool, threads, 2, &err), &err);
        one_call g = pool_call(r, r->y, r->x, 1);
        g.in[1] = c.out[1];
        g.n_in = 2;
        assert_zx_ok(one_call_run(&g, &zx_cpu_max_pool_grad, threads, 2, &err), &err);
        float *dx = ZX_NEW(&c.mem, float, (size_t)(PLANES * in + 1));
        for (int64_t i = 0; i < PLANES * out; i++) {
            const float *plane = x + i / out * in;
            int64_t best = -1;
            for (int64_t t = 0; t < taps; t++) {
                const int64_t at = cell(r, i % out, t);
                if (at < 0) continue;
                if (best < 0 || plane[at] > plane[best] ||
                    (isnan(plane[at]) && !isnan(plane[best])))
                    best = at;
            }
            assert_int_equal(((const int32_t *)c.out[1].data)[i], best);
            assert_near((double)((const float *)c.out[0].data)[i], (double)plane[best], 0, i);
            dx[i / out * in + best] += ((const float *)g.in[0].data)[i];
        }
        for (int64_t i = 0; i < PLANES * in; i++)
            assert_near((double)((const float *)g.out[0].data)[i], (double)dx[i], 0, i);
        zx_arena_free(&c.mem);
        zx_arena_free(&g.mem);
    }
}

static void test_average(void **state)
{
    const row *r = *state;
    const int64_t in = span(r->x, r->spatial), out = span(r->y, r->spatial),
                  taps = span(r->k, r->spatial);
    for (int threads = 1; threads <= 2; threads++) {
        zx_err err = {0};
        one_call c = pool_call(r, r->x, r->y, 0), g = pool_call(r, r->y, r->x, 1);
        assert_zx_ok(one_call_run(&c, &zx_cpu_avg_pool, threads, 2, &err), &err);
        assert_zx_ok(one_call_run(&g, &zx_cpu_avg_pool_grad, threads, 2, &err), &err);
        double *dx = ZX_NEW(&c.mem, double, (size_t)(PLANES * in + 1));
        for (int64_t i = 0; i < PLANES * out; i++) {
            double sum = 0, counted = 0;
            for (int64_t t = 0; t < taps; t++) {
                const int64_t at = cell(r, i % out, t);
                counted += at >= 0 || (at == -1 && r->count_pads);
                if (at >= 0) sum += (double)((const float *)c.in[0].data)[i / out * in + at];
            }
            assert_near((double)((const float *)c.out[0].data)[i], sum / counted, 1e-6, i);
            for (int64_t t = 0; t < taps; t++) {
                const int64_t at = cell(r, i % out, t);
                if (at >= 0)
                    dx[i / out * in + at] += (double)((const float *)g.in[0].data)[i] / counted;
            }
        }
        for (int64_t i = 0; i < PLANES * in; i++)
            assert_near((double)((const float *)g.out[0].data)[i], dx[i], 1e-6, i);
        zx_arena_free(&c.mem);
        zx_arena_free(&g.mem);
    }
}

// ---- resizing
// ------------------------------------------------------------------------------------- x is ((7 *
// i) % 11 - 5) / 4; y as ONNX Runtime 1.x computes it (six digits).
typedef struct resize_row {
    const char *name;
    uint32_t rank;
    int64_t x[5], y[5];
    double scales[5]; // 0: the ratio of the sizes
    int64_t mode, coord, nearest;
    double cubic; // 0: the attribute is left out
    double want[24];
} resize_row;

static const resize_row resize_rows[] = {
    {"nearest, twice, asymmetric, floor",
     4,
     {1, 1, 2, 3},
     {1, 1, 4, 6},
     {0},
     0,
     3,
     2,
     0,
     {-1.25, -1.25, 0.5,  0.5,  -0.5,  -0.5,  -1.25, -1.25, 0.5,  0.5,  -0.5,  -0.5,
      1.25,  1.25,  0.25, 0.25, -0.75, -0.75, 1.25,  1.25,  0.25, 0.25, -0.75, -0.75}},
    {"nearest, 5 to 3, half pixel, prefer floor",
     4,
     {1, 1, 1, 5},
     {1, 1, 1, 3},
     {0},
     0,
     0,
     0,
     0,
     {-1.25, -0.5, 0.25}},
    {"nearest, 5 to 3, asymmetric, ceil",
     4,
     {1, 1, 1, 5},
     {1, 1, 1, 3},
     {0},
     0,
     3,
     3,
     0,
     {-1.25, -0.5, 0.25}},
    {"nearest, a third that float can't hold",
     3,
     {1, 1, 9},
     {1, 1, 3},
     {1, 1, 0.3333333432674408},
     0,
     3,
     2,
     0,
     {-1.25, 1.25, 1}},
    {"nearest, 4 to 6, prefer ceil",
     3,
     {1, 1, 4},
     {1, 1, 6},
     {0},
     0,
     0,
     1,
     0,
     {-1.25, 0.5, 0.5, -0.5, 1.25, 1.25}},
    {"linear, twice, half pixel",
     4,
     {1, 1, 2, 3},
     {1, 1, 4, 6},
     {1, 1, 2, 2},
     1,
     0,
     0,
     0,
     {-1.25,    -0.8125, 0.0625,  0.25,    -0.25, -0.5,     -0.625,   -0.359375,
      0.171875, 0.1875,  -0.3125, -0.5625, 0.625, 0.546875, 0.390625, 0.0625,
      -0.4375,  -0.6875, 1.25,    1.0,     0.5,   0.0,      -0.5,     -0.75}},
    {"linear, 4 to 7, corners",
     3,
     {1, 1, 4},
     {1, 1, 7},
     {0},
     1,
     2,
     0,
     0,
     {-1.25, -0.375, 0.5, 0.0, -0.5, 0.375, 1.25}},
    {"linear, 5 to 3, asymmetric",
     3,
     {1, 1, 5},
     {1, 1, 3},
     {0},
     1,
     3,
     0,
     0,
     {-1.25, -0.166667, 0.916667}},
    {"linear, to one place, PyTorch's half pixel",
     4,
     {1, 1, 3, 3},
     {1, 1, 5, 1},
     {0},
     1,
     1,
     0,
     0,
     {-1.25, -0.25, 1.25, 1.1, 1.0}},
    {"linear, symmetric",
     3,
     {1, 1, 5},
     {1, 1, 3},
     {1, 1, 0.7},
     1,
     4,
     0,
     0,
     {-0.25, -0.5, 0.821429}},
    {"cubic, 4 to 7",
     4,
     {1, 1, 4, 1},
     {1, 1, 7, 1},
     {0},
     2,
     0,
     0,
     0,
     {-1.42363, -0.592201, 0.446064, 0.0, -0.446064, 0.592201, 1.42363}},
    {"cubic, two axes, corners, -0.5",
     4,
     {1, 1, 3, 4},
     {1, 1, 4, 6},
     {0},
     2,
     2,
     0,
     -0.5,
     {-1.25,     -0.0859998, 0.432,    -0.432,   0.0860006,   1.25,        -0.101852, -0.426518,
      -0.339556, 0.480667,   0.660518, 0.462963, -0.00925952, -0.333926,   -0.230666, 0.638444,
      0.370147,  -0.462964,  -1.0,     0.164,    0.726,       -0.00599948, -0.698,    -1.25}},
    {"linear, two axes of three",
     5,
     {1, 1, 2, 2, 2},
     {1, 1, 3, 2, 4},
     {0},
     1,
     0,
     0,
     0,
     {-1.25, -0.8125,  0.0625,   0.5,    -0.5, -0.0625, 0.8125,  1.25,
      -0.5,  -0.40625, -0.21875, -0.125, 0.25, 0.34375, 0.53125, 0.625,
      0.25,  0.0,      -0.5,     -0.75,  1.0,  0.75,    0.25,    0.0}},
    {"linear, planes, from one row",
     4,
     {2, 2, 1, 3},
     {2, 2, 3, 2},
     {0},
     1,
     0,
     0,
     0,
     {-0.8125, -0.25, -0.8125, -0.25, -0.8125, -0.25, 1.0, -0.5, 1.0, -0.5, 1.0, -0.5,
      0.75,    -0.75, 0.75,    -0.75, 0.75,    -0.75, 0.5, -1.0, 0.5, -1.0, 0.5, -1.0}},
    {"same size", 4, {1, 1, 2, 2}, {1, 1, 2, 2}, {0}, 1, 0, 0, 0, {-1.25, 0.5, -0.5, 1.25}},
    {"linear, aligned corners are the last ones, whatever the scale",
     3,
     {1, 1, 4},
     {1, 1, 3},
     {1, 1, 0.8},
     1,
     2,
     0,
     0,
     {-1.25, 0, 1.25}},
};

static one_call resize_call(const resize_row *r, const int64_t *from, const int64_t *to,
                            uint32_t skew)
{
    one_call c = {0};
    double scales[5];
    const zx_shape out = shape_of(r->rank, to);
    for (uint32_t i = 0; i < r->rank; i++)
        scales[i] = r->scales[i] > 0 ? r->scales[i] : (double)r->y[i] / (double)r->x[i];
    add_input(&c, shape_of(r->rank, from), 1, skew);
    add_output(&c, ZX_F32, out, 2 * skew);
    c.attrs = zx_attrs_shape(&c.mem, c.attrs, ZX_A_SHAPE, &out);
    c.attrs = zx_attrs_floats(&c.mem, c.attrs, ZX_A_SCALES, scales, r->rank);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_MODE, r->mode);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_COORD, r->coord);
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_NEAREST, r->nearest);
    if (r->cubic != 0) c.attrs = zx_attrs_float(&c.mem, c.attrs, ZX_A_ALPHA, r->cubic);
    return c;
}

static void test_resize(void **state)
{
    const resize_row *r = *state;
    for (int threads = 1; threads <= 2; threads++) {
        zx_err err = {0};
        one_call c = resize_call(r, r->x, r->y, 0), g = resize_call(r, r->y, r->x, 1);
        const int64_t in = span(r->x, r->rank), out = span(r->y, r->rank);
        float *x = c.in[0].data;
        for (int64_t i = 0; i < in; i++) x[i] = (float)(7 * i % 11 - 5) / 4;
        assert_zx_ok(one_call_run(&c, &zx_cpu_resize, threads, 2, &err), &err);
        for (int64_t i = 0; i < out; i++)
            assert_near((double)((const float *)c.out[0].data)[i], r->want[i], 5e-6, i);
        // The gradient is the transpose: column k of the forward's matrix is the response to a one.
        assert_zx_ok(one_call_run(&g, &zx_cpu_resize_grad, threads, 2, &err), &err);
        for (int64_t k = 0; k < in; k++) {
            double want = 0;
            for (int64_t i = 0; i < in; i++) x[i] = i == k ? 1.0f : 0.0f;
            assert_zx_ok(one_call_run(&c, &zx_cpu_resize, threads, 1, &err), &err);
            for (int64_t i = 0; i < out; i++)
                want += (double)((const float *)c.out[0].data)[i] *
                        (double)((const float *)g.in[0].data)[i];
            assert_near((double)((const float *)g.out[0].data)[k], want, 1e-6, k);
        }
        zx_arena_free(&c.mem);
        zx_arena_free(&g.mem);
    }
}

// f64 and f16 go through the same tables; these values are exact in both.
static void test_folding_types(void **state)
{
    (void)state;
    const resize_row *r = &resize_rows[5];
    static const uint16_t half[] = {0xBD00, 0x3800, 0xB800, 0x3D00, 0x3400, 0xBA00}; // x
    zx_err err = {0};
    one_call c = resize_call(r, r->x, r->y, 0);
    c.in[0] = view_make(&c, ZX_F16, shape_of(r->rank, r->x), 0);
    memcpy(c.in[0].data, half, sizeof half);
    c.out[0] = view_make(&c, ZX_F16, shape_of(r->rank, r->y), 0);
    assert_zx_ok(one_call_run(&c, &zx_cpu_resize, 1, 1, &err), &err);
    assert_int_equal(((const uint16_t *)c.out[0].data)[0], 0xBD00);
    assert_int_equal(((const uint16_t *)c.out[0].data)[1], 0xBA80); // -0.8125
    assert_int_equal(((const uint16_t *)c.out[0].data)[7], 0xB5C0); // -0.359375
    c.in[0] = view_make(&c, ZX_F64, shape_of(r->rank, r->x), 0);
    for (int64_t i = 0; i < 6; i++) ((double *)c.in[0].data)[i] = (double)(7 * i % 11 - 5) / 4;
    c.out[0] = view_make(&c, ZX_F64, shape_of(r->rank, r->y), 0);
    assert_zx_ok(one_call_run(&c, &zx_cpu_resize, 1, 1, &err), &err);
    for (int64_t i = 0; i < 24; i++)
        assert_near(((const double *)c.out[0].data)[i], r->want[i], 0, i);
    zx_arena_free(&c.mem);
}

static void test_misfits(void **state)
{
    (void)state;
    zx_err err = {0};
    const row wide = {"", 1, {65536}, {65536}, {1}, {0}, {0}, {1}, 0};
    one_call c = pool_call(&wide, wide.x, wide.y, 0);
    assert_int_equal(one_call_run(&c, &zx_cpu_max_pool, 1, 1, &err), ZX_E_SHAPE);
    assert_string_equal(err.cause[0], "pooling: kernel, strides, dilations must be positive");
    zx_arena_free(&c.mem);
}

int main(void)
{
    enum { N = ZX_COUNT(rows), R = ZX_COUNT(resize_rows) };
    struct CMUnitTest tests[2 * N + R + 2] = {
        cmocka_unit_test(test_folding_types),
        cmocka_unit_test(test_misfits),
    };
    for (size_t i = 0; i < N; i++) {
        tests[2 + 2 * i] = zx_case(rows[i].name, test_max, &rows[i]);
        tests[3 + 2 * i] = zx_case(rows[i].name, test_average, &rows[i]);
    }
    for (size_t i = 0; i < R; i++)
        tests[2 + 2 * N + i] = zx_case(resize_rows[i].name, test_resize, &resize_rows[i]);
    return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}

// test_vmath.c - vector math against the C library's in double: errors in units of the last place,
// special values, and the same bits from the kernels' vector loops as from one number alone.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

#include <float.h>

#include "graph/op.h"
#include "kernels/cpu/vmath.h"

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static const struct math_case {
    const char *name;
    float (*f)(float);
    double (*want)(double);
    zx_op_id op; // its kernel; ZX_OP_COUNT: has none
    double lo, hi;
    double ulps; // most error, with a little room over what was measured
} cases[] = {
    {"exp", vm_exp, exp, ZX_OP_EXP, -104, 88.7, 1.1},
    {"exp near 0", vm_exp, exp, ZX_OP_EXP, -1, 1, 1.1},
    {"expm1", vm_expm1, expm1, ZX_OP_COUNT, -20, 80, 1.8},
    {"expm1 near 0", vm_expm1, expm1, ZX_OP_COUNT, -0.5, 0.5, 1.8},
    {"log", vm_log, log, ZX_OP_LOG, 1e-30, 10, 0.9},
    {"log near 1", vm_log, log, ZX_OP_LOG, 0.5, 2, 0.9},
    {"log of subnormals", vm_log, log, ZX_OP_LOG, 1e-44, 1e-38, 0.9},
    {"log of large", vm_log, log, ZX_OP_LOG, 1, 3e38, 0.9},
    {"log1p", vm_log1p, log1p, ZX_OP_COUNT, 0, 1, 1.4},
    {"tanh", vm_tanh, tanh, ZX_OP_TANH, -10, 10, 1.5},
    {"tanh near 0", vm_tanh, tanh, ZX_OP_TANH, -0.7, 0.7, 1.5},
    {"erf", vm_erf, erf, ZX_OP_ERF, -5, 5, 1.4},
    {"erf near 0", vm_erf, erf, ZX_OP_ERF, -1, 1, 1.4},
    {"sigmoid", vm_sigmoid, sigmoid, ZX_OP_SIGMOID, -87, 100, 2.4},
    {"sin", vm_sin, sin, ZX_OP_SIN, -10, 10, 1.7},
    {"sin of large", vm_sin, sin, ZX_OP_SIN, 1e5, 1.04e6, 1.7},
    {"cos", vm_cos, cos, ZX_OP_COS, -10, 10, 1.7},
    {"cos of large", vm_cos, cos, ZX_OP_COS, -1.04e6, -1e5, 1.7},
};

// |y - want| in units of the last place of `want` as a float.
static double ulps(float y, double want)
{
    int exponent;
    frexp(fmax(fabs(want), (double)FLT_MIN), &exponent);
    return fabs((double)y - want) / ldexp(1, exponent - 24);
}

#define POINTS 300000

static void accuracy(void **state)
{
    const struct math_case *row = *state;
    double worst = 0;
    float at = 0;
    for (int i = 0; i <= POINTS; i++) {
        const float x = (float)(row->lo + (row->hi - row->lo) * i / POINTS);
        const double e = ulps(row->f(x), row->want((double)x));
        if (!(e <= worst)) { // NaN too
            worst = e;
            at = x;
        }
    }
    if (!(worst <= row->ulps)) fail_msg("%.3f ulp at %.9g", worst, (double)at);
}

// A kernel's loop has a wide body and a tail, compiled for several processors: every length and
// place gives what the function gives for one number, compiled here for the plainest processor.
static void same_bits(void **state)
{
    const struct math_case *row = *state;
    enum { N = 200, PAD = 24 };
    float x[N + PAD], y[N + PAD];
    if (row->op == ZX_OP_COUNT) return;
    for (int i = 0; i < N + PAD; i++)
        x[i] = (float)(row->lo + (row->hi - row->lo) * (double)(some(7, i) + 1) / 2);
    for (int skew = 0; skew < PAD; skew++)
        for (int n = 1; n <= N; n += n < 40 ? 1 : 37) {
            const zx_view in = {x + skew, {ZX_F32, shape_of(1, (int64_t[]){n})}};
            const zx_view out = {y + PAD - 1 - skew, in.type};
            const zx_attrs none = {0};
            const zx_call call = {.op = row->op,
                                  .n_in = 1,
                                  .n_out = 1,
                                  .in = &in,
                                  .out = &out,
                                  .attrs = &none,
                                  .threads = 1};
            zx_err err = {0};
            assert_zx_ok(zx_cpu_kernel(row->op)->run(&call, &err), &err);
            for (int i = 0; i < n; i++) {
                const float want = row->f(x[skew + i]), got = ((const float *)out.data)[i];
                if (memcmp(&want, &got, sizeof got) != 0)
                    fail_msg("%.9g at %d of %d: %.9g, alone %.9g", (double)x[skew + i], i, n,
                             (double)got, (double)want);
            }
        }
}

static void special_values(void **state ZX_UNUSED)
{
    assert_true(vm_exp(0) == 1 && vm_exp(-0.0f) == 1);
    assert_true(vm_exp(INFINITY) == INFINITY && vm_exp(-INFINITY) == 0 && isnan(vm_exp(NAN)));
    assert_true(vm_exp(88.8f) == INFINITY && vm_exp(-104) == 0 && vm_exp(-103) > 0);
    assert_true(vm_expm1(0) == 0 && vm_expm1(-INFINITY) == -1 && vm_expm1(INFINITY) == INFINITY);
    assert_true(vm_log(0) == -INFINITY && vm_log(1) == 0 && vm_log(INFINITY) == INFINITY);
    assert_true(isnan(vm_log(-1)) && isnan(vm_log(-INFINITY)) && isnan(vm_log(NAN)));
    assert_true(vm_tanh(INFINITY) == 1 && vm_tanh(-INFINITY) == -1 && isnan(vm_tanh(NAN)));
    assert_true(vm_erf(INFINITY) == 1 && vm_erf(-INFINITY) == -1 && isnan(vm_erf(NAN)));
    assert_true(vm_sigmoid(INFINITY) == 1 && vm_sigmoid(-INFINITY) == 0);
    assert_true(isnan(vm_sigmoid(NAN)) && isnan(vm_sin(NAN)) && isnan(vm_cos(NAN)));
    assert_true(vm_log1p(0) == 0 && vm_log1p(INFINITY) == INFINITY);
}

// Past what the vector loop can do the kernel asks the C library, element by element.
static void sines_of_huge_numbers(void **state ZX_UNUSED)
{
    const float huge[5] = {1e30f, 0.5f, -3.5e7f, INFINITY, NAN};
    float x[700], y[700];
    for (int i = 0; i < 700; i++) x[i] = i % 140 < 5 ? huge[i % 140] : some(3, i);
    const zx_view in = {x, {ZX_F32, shape_of(1, (int64_t[]){700})}}, out = {y, in.type};
    const zx_attrs none = {0};
    const zx_op_id ops[2] = {ZX_OP_SIN, ZX_OP_COS};
    for (int k = 0; k < 2; k++) {
        const zx_call call = {.op = ops[k],
                              .n_in = 1,
                              .n_out = 1,
                              .in = &in,
                              .out = &out,
                              .attrs = &none,
                              .threads = 1};
        zx_err err = {0};
        assert_zx_ok(zx_cpu_kernel(ops[k])->run(&call, &err), &err);
        for (int i = 0; i < 700; i++) {
            const double want = k == 0 ? sin((double)x[i]) : cos((double)x[i]);
            if (isnan(want) ? !isnan(y[i]) : ulps(y[i], want) > 1.7)
                fail_msg("%.9g: %.9g", (double)x[i], (double)y[i]);
        }
    }
}

int main(void)
{
    enum { ROWS = ZX_COUNT(cases) };
    struct CMUnitTest tests[2 * ROWS + 2];
    for (uint32_t i = 0; i < ROWS; i++) {
        tests[i] = zx_case(cases[i].name, accuracy, &cases[i]);
        tests[ROWS + i] = zx_case(cases[i].name, same_bits, &cases[i]);
    }
    tests[2 * ROWS] = (struct CMUnitTest)cmocka_unit_test(special_values);
    tests[2 * ROWS + 1] = (struct CMUnitTest)cmocka_unit_test(sines_of_huge_numbers);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

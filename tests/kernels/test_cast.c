// test_cast.c - conversions between element types: every two-byte float, rounding, saturation.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

#include "graph/op.h"

// One element of `from` cast to `to`, both as doubles (integers of the rows are exact in double).
static double cast_one(zx_dtype from, zx_dtype to, const void *x, void *y)
{
    const zx_shape one = {0};
    const zx_view in = {(void *)(uintptr_t)x, {from, one}}, out = {y, {to, one}};
    const zx_attrs none = {0};
    zx_call call = {.op = ZX_OP_CAST,
                    .n_in = 1,
                    .n_out = 1,
                    .in = &in,
                    .out = &out,
                    .attrs = &none,
                    .threads = 1};
    zx_err err = {0};
    double back;
    assert_zx_ok(zx_cpu_cast.run(&call, &err), &err);
    const zx_view wide = {&back, {ZX_F64, one}};
    call.in = &out;
    call.out = &wide;
    assert_zx_ok(zx_cpu_cast.run(&call, &err), &err);
    return back;
}

static const struct cast_case {
    const char *name;
    double x; // of type f64
    zx_dtype to;
    double want;
} cases[] = {
    {"f64 to i64 truncates", 2.9, ZX_I64, 2},
    {"f64 to i64 truncates towards 0", -2.9, ZX_I64, -2},
    {"i64 saturates above", 1e30, ZX_I64, 0x1p63},
    {"i64 saturates below", -1e30, ZX_I64, -0x1p63},
    {"i64 of NaN", NAN, ZX_I64, 0},
    {"i32 saturates", 3e9, ZX_I32, 2147483647},
    {"i32 saturates below", -INFINITY, ZX_I32, -2147483648.0},
    {"i8 saturates", 200, ZX_I8, 127},
    {"i8 saturates below", -200, ZX_I8, -128},
    {"u8 saturates", 256, ZX_U8, 255},
    {"u8 of a negative", -1.5, ZX_U8, 0},
    {"u32", 4e9, ZX_U32, 4e9},
    {"u64 above the signed ones", 1e19, ZX_U64, 1e19},
    {"u64 saturates", 1e30, ZX_U64, 0x1p64},
    {"bool of a half", 0.5, ZX_BOOL, 1},
    {"bool of NaN", NAN, ZX_BOOL, 1},
    {"bool of -0", -0.0, ZX_BOOL, 0},
    {"f32 rounds", 1 + 0x1p-24 + 0x1p-50, ZX_F32, 1 + 0x1p-23},
    {"f32 overflows", 1e39, ZX_F32, INFINITY},
    {"f16: a tie goes to even below", 1 + 0x1p-11, ZX_F16, 1},
    {"f16: a tie goes to even above", 1 + 3 * 0x1p-11, ZX_F16, 1 + 4 * 0x1p-11},
    {"f16: just over a tie", 1 + 0x1p-11 + 0x1p-40, ZX_F16, 1 + 0x1p-10},
    {"f16: the largest", 65519.99, ZX_F16, 65504},
    {"f16: rounds to infinity", 65520, ZX_F16, INFINITY},
    {"f16: negative infinity", -1e300, ZX_F16, -INFINITY},
    {"f16: subnormal", 0x1.8p-24, ZX_F16, 0x1p-23},
    {"f16: the smallest", 0x1.000001p-25, ZX_F16, 0x1p-24},
    {"f16: half the smallest is a tie", 0x1p-25, ZX_F16, 0},
    {"bf16: a tie goes to even below", 1 + 0x1p-8, ZX_BF16, 1},
    {"bf16: a tie goes to even above", 1 + 3 * 0x1p-8, ZX_BF16, 1 + 4 * 0x1p-8},
    {"bf16: just over a tie", 1 + 0x1p-8 + 0x1p-45, ZX_BF16, 1 + 0x1p-7},
    {"bf16: overflows", 3.4e38, ZX_BF16, INFINITY},
    {"bf16: small", 0x1p-133, ZX_BF16, 0x1p-133},
};

static void from_double(void **state)
{
    const struct cast_case *row = *state;
    uint64_t y = 0;
    const double got = cast_one(ZX_F64, row->to, &row->x, &y);
    assert_near(got, row->want, 0, 0);
}

static void integers_wrap(void **state ZX_UNUSED)
{
    const int64_t x = 0x1234567890abcdf0;
    uint64_t y = 0;
    assert_true(cast_one(ZX_I64, ZX_I8, &x, &y) == -16);
    assert_true(cast_one(ZX_I64, ZX_U8, &x, &y) == 0xf0);
    assert_true(cast_one(ZX_I64, ZX_I32, &x, &y) == (double)(int32_t)0x90abcdf0u);
    assert_true(cast_one(ZX_I64, ZX_BOOL, &x, &y) == 1);
    const int32_t minus = -1;
    assert_true(cast_one(ZX_I32, ZX_I64, &minus, &y) == -1);
    assert_true(cast_one(ZX_I32, ZX_F32, &minus, &y) == -1);
    const int64_t odd = ((int64_t)1 << 24) + 1; // no float32: a tie
    assert_true(cast_one(ZX_I64, ZX_F32, &odd, &y) == 0x1p24);
}

// Every number of 16 bits survives the way to f64 and back; NaNs stay NaNs.
static void halves_round_trip(void **state)
{
    const zx_dtype t = (zx_dtype)(uintptr_t)*state;
    for (uint32_t u = 0; u < 0x10000; u++) {
        const uint16_t x = (uint16_t)u;
        double wide = 0;
        uint16_t back = 0;
        cast_one(t, ZX_F64, &x, &wide);
        cast_one(ZX_F64, t, &wide, &back);
        const bool nan = t == ZX_F16 ? (u & 0x7fff) > 0x7c00 : (u & 0x7fff) > 0x7f80;
        if (nan ? !isnan(wide) : x != back) fail_msg("%04x: %g, %04x", u, wide, back);
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + 3];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, from_double, &cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(integers_wrap);
    tests[n++] = zx_case("every float16", halves_round_trip, (const void *)(uintptr_t)ZX_F16);
    tests[n++] = zx_case("every bfloat16", halves_round_trip, (const void *)(uintptr_t)ZX_BF16);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

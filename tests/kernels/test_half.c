// test_half.c - 16 bits: conversions against those of one number, and what is added up, updated and
// multiplied in them against the same in float32 or double.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "kernels/cpu/common.h"
#include "tests/kernels/one_call.h"

static const zx_dtype types[] = {ZX_F16, ZX_BF16};
enum { N = 5003 };

static uint32_t seed = 1;
static float drawn(void) // in [-1, 1)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) * 0x1p-23f - 1;
}

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static void all_numbers_widen(void **state ZX_UNUSED)
{
    static uint16_t h[1 << 16], back[1 << 16];
    static float x[1 << 16];
    for (uint32_t i = 0; i < ZX_COUNT(h); i++) h[i] = (uint16_t)i;
    for (uint32_t t = 0; t < ZX_COUNT(types); t++) {
        zx_cpu_widen(types[t], h, x, ZX_COUNT(h));
        zx_cpu_narrow(types[t], x, back, ZX_COUNT(h));
        for (uint32_t i = 0; i < ZX_COUNT(h); i++) {
            const float want = types[t] == ZX_F16 ? zx_f16_to_f32(h[i]) : zx_bf16_to_f32(h[i]);
            if (bits_of(x[i]) != bits_of(want)) fail_msg("%04x widens to %a", i, (double)x[i]);
            if (isnan(want))
                assert_true(
                    isnan(types[t] == ZX_F16 ? zx_f16_to_f32(back[i]) : zx_bf16_to_f32(back[i])));
            else
                assert_int_equal(back[i], h[i]);
        }
    }
}

// Numbers of all exponents, and those halfway between two of 16 bits and beside them.
static void numbers_narrow(void **state ZX_UNUSED)
{
    for (uint32_t t = 0; t < ZX_COUNT(types); t++)
        for (uint32_t k = 0; k < 1u << 20; k++) {
            const uint32_t u = k << 12 | (k & 1 ? 0xfff : 0) | (k % 3 == 0 ? 1 : 0);
            float x;
            uint16_t y;
            memcpy(&x, &u, sizeof x);
            if (isnan(x)) continue;
            zx_cpu_narrow(types[t], &x, &y, 1);
            const uint16_t want =
                types[t] == ZX_F16 ? zx_f64_to_f16((double)x) : zx_f64_to_bf16((double)x);
            if (y != want) fail_msg("%a: %04x, not %04x", (double)x, y, want);
        }
}

static float widened(zx_dtype t, uint16_t h)
{
    return t == ZX_F16 ? zx_f16_to_f32(h) : zx_bf16_to_f32(h);
}

// Gradients of three ranks, written and added, kept as float32 or as they are.
static void sums_are_float32(void **state ZX_UNUSED)
{
    static uint16_t from[3][N], kept16[N];
    static float kept[N], wide[N];
    const void *list[3] = {from[0], from[1], from[2]};
    for (uint32_t t = 0; t < ZX_COUNT(types); t++)
        for (int add = 0; add < 2; add++) {
            for (int r = 0; r < 3; r++)
                for (int i = 0; i < N; i++) {
                    const float x = drawn();
                    zx_cpu_narrow(types[t], &x, &from[r][i], 1);
                }
            for (int i = 0; i < N; i++) kept[i] = 0.25f * drawn();
            memcpy(wide, kept, sizeof wide);
            zx_cpu_narrow(types[t], kept, kept16, N);
            zx_cpu_sum_ranks_of(ZX_F32, kept, types[t], list, 3, N, add != 0, 2);
            for (int i = 0; i < N; i++) {
                float sum = widened(types[t], from[0][i]);
                sum += widened(types[t], from[1][i]);
                sum += widened(types[t], from[2][i]);
                assert_true(kept[i] == (add ? wide[i] + sum : sum));
            }
            static uint16_t before[N];
            memcpy(before, kept16, sizeof before);
            zx_cpu_sum_ranks_of(types[t], kept16, types[t], list, 3, N, add != 0, 2);
            for (int i = 0; i < N; i++) {
                float sum = widened(types[t], from[0][i]);
                sum += widened(types[t], from[1][i]);
                sum += widened(types[t], from[2][i]);
                if (add) sum = widened(types[t], before[i]) + sum;
                uint16_t want;
                zx_cpu_narrow(types[t], &sum, &want, 1);
                assert_int_equal(kept16[i], want);
            }
            double squares = 0;
            for (int i = 0; i < N; i++) {
                const double x = (double)widened(types[t], kept16[i]);
                squares += x * x;
            }
            const double got = zx_cpu_square_sum_of(types[t], kept16, N, 2);
            assert_true(fabs(got - squares) <= 1e-12 * squares);
        }
}

// A parameter's copy is updated as a float32 parameter is, and the parameter is it, rounded.
static void updates_are_float32(void **state ZX_UNUSED)
{
    static float p[2][N], m[2][N], v[2][N], g[N];
    static uint16_t low[N], g16[N];
    const zx_adam_args a = {.beta1 = 0.9,
                            .beta2 = 0.95,
                            .lr = 0.01f,
                            .eps = 1e-8f,
                            .weight_decay = 0.1f,
                            .correction1 = 0.1f,
                            .correction2 = 0.05f,
                            .decoupled = true,
                            .grad_scale = 1.0f / 128};
    const zx_sgd_args sgd = {.lr = 0.1f, .momentum = 0.9f, .grad_scale = 1};
    for (uint32_t t = 0; t < ZX_COUNT(types); t++)
        for (int kind = 0; kind < 4; kind++) { // Adam and SGD; the gradient in 16 bits too
            for (int i = 0; i < N; i++) {
                p[0][i] = p[1][i] = drawn();
                m[0][i] = m[1][i] = drawn();
                v[0][i] = v[1][i] = drawn() + 1;
                g[i] = drawn();
            }
            zx_cpu_narrow(types[t], g, g16, N);
            zx_cpu_widen(types[t], g16, g, N);
            const zx_mixed x = {.low_type = types[t],
                                .g_type = kind < 2 ? ZX_F32 : types[t],
                                .low = low,
                                .g = kind < 2 ? (const void *)g : g16};
            if (kind % 2 == 0) {
                zx_cpu_adam(p[0], g, m[0], v[0], N, &a, 1);
                zx_cpu_adam_mixed(p[1], &x, m[1], v[1], N, &a, 2);
            } else {
                zx_cpu_sgd(p[0], g, m[0], N, &sgd, 1);
                zx_cpu_sgd_mixed(p[1], &x, m[1], N, &sgd, 2);
            }
            assert_memory_equal(p[0], p[1], sizeof p[0]);
            assert_memory_equal(m[0], m[1], sizeof m[0]);
            assert_memory_equal(v[0], v[1], sizeof v[0]);
            for (int i = 0; i < N; i++) {
                uint16_t want;
                zx_cpu_narrow(types[t], &p[1][i], &want, 1);
                assert_int_equal(low[i], want);
            }
        }
}

// NaN and infinity among numbers.
static void bad_numbers_are_found(void **state ZX_UNUSED)
{
    static uint16_t x[N];
    static const struct {
        zx_dtype type;
        uint16_t inf, nan;
    } bad[] = {{ZX_F16, 0xfc00, 0x7e00}, {ZX_BF16, 0x7f80, 0xffc0}};
    for (uint32_t t = 0; t < ZX_COUNT(bad); t++) {
        memset(x, 0x3b, sizeof x);
        assert_int_equal(zx_cpu_find_nonfinite_of(bad[t].type, x, N, true), -1);
        x[N - 2] = bad[t].inf;
        assert_int_equal(zx_cpu_find_nonfinite_of(bad[t].type, x, N, true), N - 2);
        assert_int_equal(zx_cpu_find_nonfinite_of(bad[t].type, x, N, false), -1);
        x[1] = bad[t].nan;
        assert_int_equal(zx_cpu_find_nonfinite_of(bad[t].type, x, N, false), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_numbers_widen),     cmocka_unit_test(numbers_narrow),
        cmocka_unit_test(sums_are_float32),      cmocka_unit_test(updates_are_float32),
        cmocka_unit_test(bad_numbers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

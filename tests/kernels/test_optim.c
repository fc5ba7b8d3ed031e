// test_optim.c - optimizer steps in closed form, and the same bits however a tensor is cut.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

enum { N = 40000, STEPS = 5 };
static float p[N], g[N], m[N], v[N], p2[N], m2[N], v2[N];

static void fill(void)
{
    for (int i = 0; i < N; i++) {
        p[i] = some(1, i);
        m[i] = v[i] = 0;
    }
}
static void fill_gradient(uint32_t step)
{
    for (int i = 0; i < N; i++) g[i] = some(2 + step, i) / 8;
}

static const struct adam_case {
    const char *name;
    float weight_decay;
    bool decoupled, corrected;
    float grad_scale;
} adam_cases[] = {
    {"AdamW", 0.1f, true, true, 1},        {"Adam with L2", 0.1f, false, true, 1},
    {"no decay", 0, true, true, 1},        {"no bias correction", 0.01f, true, false, 1},
    {"clipped", 0.01f, true, true, 0.25f},
};

// Five steps against the textbook in double.
static void adam(void **state)
{
    const struct adam_case *row = *state;
    const double b1 = 0.9, b2 = 0.999, lr = (double)1e-3f, eps = (double)1e-8f;
    const double wd = (double)row->weight_decay;
    double x[64], mx[64] = {0}, vx[64] = {0};
    fill();
    for (int i = 0; i < 64; i++) x[i] = (double)p[i];
    for (uint32_t t = 1; t <= STEPS; t++) {
        const double c1 = row->corrected ? 1 - pow(b1, t) : 1;
        const double c2 = row->corrected ? 1 - pow(b2, t) : 1;
        const zx_adam_args args = {.lr = 1e-3f,
                                   .beta1 = b1,
                                   .beta2 = b2,
                                   .eps = 1e-8f,
                                   .weight_decay = row->weight_decay,
                                   .correction1 = (float)c1,
                                   .correction2 = (float)c2,
                                   .decoupled = row->decoupled,
                                   .grad_scale = row->grad_scale};
        fill_gradient(t);
        zx_cpu_adam(p, g, m, v, N, &args, 2);
        for (int i = 0; i < 64; i++) {
            double d = (double)g[i] * (double)row->grad_scale;
            if (!row->decoupled) d += wd * x[i];
            mx[i] = b1 * mx[i] + (1 - b1) * d;
            vx[i] = b2 * vx[i] + (1 - b2) * d * d;
            x[i] -= lr * (mx[i] / c1 / (sqrt(vx[i] / c2) + eps) + (row->decoupled ? wd * x[i] : 0));
        }
    }
    for (int i = 0; i < 64; i++) {
        assert_near((double)p[i], x[i], 4e-7, i);
        assert_near((double)m[i], mx[i], 1e-7, i);
        assert_near((double)v[i], vx[i], 1e-8, i);
    }
}

// The first step moves every weight by lr against the gradient's sign.
static void adam_first_step(void **state ZX_UNUSED)
{
    const zx_adam_args args = {.lr = 0.01f,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .correction1 = (float)0.1,
                               .correction2 = (float)0.001,
                               .decoupled = true,
                               .grad_scale = 1};
    fill();
    fill_gradient(0);
    memcpy(p2, p, sizeof p);
    zx_cpu_adam(p, g, m, v, N, &args, 1);
    for (int i = 0; i < N; i++)
        if (g[i] != 0) assert_near((double)(p[i] - p2[i]), g[i] > 0 ? -0.01 : 0.01, 2e-7, i);
}

// Shards of ranks and threads give what the whole gives.
static void any_cut(void **state ZX_UNUSED)
{
    static const int64_t cuts[] = {0, 1, 18, 4096 + 7, 12345, N};
    const zx_adam_args adam_args = {.lr = 1e-3f,
                                    .beta1 = 0.9,
                                    .beta2 = 0.95,
                                    .eps = 1e-8f,
                                    .weight_decay = 0.1f,
                                    .correction1 = 0.5f,
                                    .correction2 = 0.3f,
                                    .decoupled = true,
                                    .grad_scale = 0.7f};
    const zx_sgd_args sgd_args = {0.1f, 0.9f, 0.1f, 0.01f, true, false, 0.7f};
    const zx_lion_args lion_args = {0.9, 0.99, 0.01f, 0.1f, 0.7f};
    enum { ADAM, SGD, LION, KINDS };
    fill();
    fill_gradient(3);
    for (int i = 0; i < N; i++) {
        m[i] = some(8, i);
        v[i] = fabsf(some(9, i));
    }
    for (int kind = ADAM; kind < KINDS; kind++) {
        memcpy(p2, p, sizeof p);
        memcpy(m2, m, sizeof m);
        memcpy(v2, v, sizeof v);
        for (uint32_t c = 0; c + 1 < ZX_COUNT(cuts); c++) {
            const int64_t at = cuts[c], n = cuts[c + 1] - cuts[c];
            if (kind == LION)
                zx_cpu_lion(p2 + at, g + at, m2 + at, n, &lion_args, 1);
            else if (kind == SGD)
                zx_cpu_sgd(p2 + at, g + at, m2 + at, n, &sgd_args, 1);
            else
                zx_cpu_adam(p2 + at, g + at, m2 + at, v2 + at, n, &adam_args, 1);
        }
        if (kind == LION)
            zx_cpu_lion(p, g, m, N, &lion_args, 3);
        else if (kind == SGD)
            zx_cpu_sgd(p, g, m, N, &sgd_args, 3);
        else
            zx_cpu_adam(p, g, m, v, N, &adam_args, 3);
        assert_memory_equal(p, p2, sizeof p);
        assert_memory_equal(m, m2, sizeof m);
        assert_memory_equal(v, v2, sizeof v);
    }
}

static const struct sgd_case {
    const char *name;
    float momentum, dampening, weight_decay;
    bool nesterov;
} sgd_cases[] = {
    {"plain SGD", 0, 0, 0, false},      {"weight decay", 0, 0, 0.1f, false},
    {"momentum", 0.9f, 0, 0, false},    {"momentum, dampened and decayed", 0.9f, 0.5f, 0.1f, false},
    {"Nesterov", 0.9f, 0, 0.01f, true},
};

// PyTorch's SGD: the first step sets the buffer to the gradient, whatever the dampening.
static void sgd(void **state)
{
    const struct sgd_case *row = *state;
    const double lr = (double)0.1f, mu = (double)row->momentum;
    double x[64], buf[64] = {0};
    fill();
    for (int i = 0; i < N; i++)
        m[i] = NAN; // what the buffer held before the first step is not read
    for (int i = 0; i < 64; i++) x[i] = (double)p[i];
    for (uint32_t t = 1; t <= STEPS; t++) {
        const zx_sgd_args args = {
            0.1f, row->momentum, row->dampening, row->weight_decay, row->nesterov, t == 1, 1};
        fill_gradient(t);
        zx_cpu_sgd(p, g, row->momentum != 0 ? m : NULL, N, &args, 2);
        for (int i = 0; i < 64; i++) {
            double d = (double)g[i] + (double)row->weight_decay * x[i];
            if (mu != 0) {
                buf[i] = t == 1 ? d : mu * buf[i] + (1 - (double)row->dampening) * d;
                d = row->nesterov ? d + mu * buf[i] : buf[i];
            }
            x[i] -= lr * d;
        }
    }
    for (int i = 0; i < 64; i++) assert_near((double)p[i], x[i], 4e-7, i);
}

static const struct lion_case {
    const char *name;
    double beta1, beta2;
    float weight_decay, grad_scale;
} lion_cases[] = {
    {"Lion", 0.9, 0.99, 0, 1},
    {"Lion, decayed and clipped", 0.95, 0.98, 0.1f, 0.25f},
};

// Five steps against the formula in double. An element whose sign is a matter of rounding is left
// out; one that never has a gradient stays.
static void lion(void **state)
{
    const struct lion_case *row = *state;
    const double lr = (double)1e-3f, wd = (double)row->weight_decay;
    double x[64], mx[64] = {0};
    bool unsure[64] = {false};
    fill();
    p[5] = 0;
    for (int i = 0; i < 64; i++) x[i] = (double)p[i];
    for (uint32_t t = 1; t <= STEPS; t++) {
        const zx_lion_args args = {row->beta1, row->beta2, 1e-3f, row->weight_decay,
                                   row->grad_scale};
        fill_gradient(t);
        g[5] = 0;
        zx_cpu_lion(p, g, m, N, &args, 2);
        for (int i = 0; i < 64; i++) {
            const double d = (double)g[i] * (double)row->grad_scale;
            const double c = row->beta1 * mx[i] + (1 - row->beta1) * d;
            unsure[i] = unsure[i] || (fabs(c) < 1e-9 && c != 0);
            x[i] -= lr * (wd * x[i] + (c > 0) - (c < 0));
            mx[i] = row->beta2 * mx[i] + (1 - row->beta2) * d;
        }
    }
    assert_true(p[5] == 0);
    for (int i = 0; i < 64; i++) {
        assert_near((double)m[i], mx[i], 1e-7, i);
        if (!unsure[i]) assert_near((double)p[i], x[i], 4e-7, i);
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(adam_cases) + ZX_COUNT(sgd_cases) + ZX_COUNT(lion_cases) + 2];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(adam_cases); i++)
        tests[n++] = zx_case(adam_cases[i].name, adam, &adam_cases[i]);
    for (uint32_t i = 0; i < ZX_COUNT(sgd_cases); i++)
        tests[n++] = zx_case(sgd_cases[i].name, sgd, &sgd_cases[i]);
    for (uint32_t i = 0; i < ZX_COUNT(lion_cases); i++)
        tests[n++] = zx_case(lion_cases[i].name, lion, &lion_cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(adam_first_step);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(any_cut);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

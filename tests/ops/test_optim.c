// test_optim.c - optimizer steps against their formulas in double. What is compared is how far a
// weight moved, not where it is: an update that is wrong by 1e-5 of itself hides in a weight.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <math.h>

#include "kernels/cpu/cpu.h"

#define N 37
#define STEPS 5

static float gradient(int step, int i)
{
    return sinf((float)(step * 7 + i * 3) + 0.5f) * expf((float)(i % 9) - 6);
}

static void moved(float before, float after, double want, const char *what, int step, int i)
{
    // Half an ulp of the weight is lost when the update is added to it; a moment of which little is
    // left after its terms cancelled has lost some of its digits.
    if (fabs(after - before - want) > 1e-6 * fabs(want) + 6e-8 * fabs(before) + 1e-10)
        fail_msg("%s: step %d moves element %d by %.9g, not %.9g", what, step, i, after - before,
                 want);
}

static const struct adam_case {
    const char *name;
    double beta1, beta2, eps, weight_decay;
    bool decoupled, correct;
    float scale;
} adams[] = {
    {"AdamW", 0.9, 0.999, 1e-8, 0.01, true, true, 1},
    {"Adam with L2", 0.9, 0.999, 1e-8, 0.1, false, true, 1},
    {"no correction", 0.9, 0.95, 1e-6, 0, true, false, 1},
    {"clipped", 0.8, 0.9, 1e-8, 0.1, true, true, 0.25f},
};

static void adam(void **state)
{
    const struct adam_case *c = *state;
    float p[N], m[N] = {0}, v[N] = {0};
    double wm[N] = {0}, wv[N] = {0};
    for (int i = 0; i < N; i++) p[i] = (float)(i % 5) * 1e-3f; // small: updates show
    for (int t = 1; t <= STEPS; t++) {
        float g[N], before[N];
        const double c1 = c->correct ? 1 - pow(c->beta1, t) : 1;
        const double c2 = c->correct ? 1 - pow(c->beta2, t) : 1;
        const zx_adam_args a = {.beta1 = c->beta1,
                                .beta2 = c->beta2,
                                .lr = 1e-3f,
                                .eps = (float)c->eps,
                                .weight_decay = (float)c->weight_decay,
                                .correction1 = (float)c1,
                                .correction2 = (float)c2,
                                .decoupled = c->decoupled,
                                .grad_scale = c->scale};
        for (int i = 0; i < N; i++) {
            g[i] = gradient(t, i);
            before[i] = p[i];
        }
        zx_cpu_adam(p, g, m, v, N, &a, 1 + t % 2);
        for (int i = 0; i < N; i++) {
            const double l2 = c->decoupled ? 0 : c->weight_decay;
            const double wd = c->decoupled ? c->weight_decay : 0;
            const double d = (double)g[i] * c->scale + l2 * before[i];
            wm[i] = c->beta1 * wm[i] + (1 - c->beta1) * d;
            wv[i] = c->beta2 * wv[i] + (1 - c->beta2) * d * d;
            const double update = wm[i] / c1 / (sqrt(wv[i] / c2) + c->eps) + wd * before[i];
            moved(before[i], p[i], -1e-3 * update, c->name, t, i);
        }
    }
}

static const struct sgd_case {
    const char *name;
    double momentum, dampening, weight_decay;
    bool nesterov;
} sgds[] = {
    {"plain SGD", 0, 0, 0, false},     {"SGD with decay", 0, 0, 0.1, false},
    {"momentum", 0.9, 0, 0.01, false}, {"momentum, dampened", 0.9, 0.5, 0, false},
    {"Nesterov", 0.9, 0, 0.01, true},
};

static void sgd(void **state)
{
    const struct sgd_case *c = *state;
    float p[N], m[N] = {0};
    double wm[N] = {0};
    for (int i = 0; i < N; i++) p[i] = (float)(i % 5) * 1e-3f;
    for (int t = 1; t <= STEPS; t++) {
        float g[N], before[N];
        const zx_sgd_args a = {.lr = 0.1f,
                               .momentum = (float)c->momentum,
                               .dampening = (float)c->dampening,
                               .weight_decay = (float)c->weight_decay,
                               .nesterov = c->nesterov,
                               .first = t == 1,
                               .grad_scale = 0.5f};
        for (int i = 0; i < N; i++) {
            g[i] = gradient(t, i);
            before[i] = p[i];
        }
        zx_cpu_sgd(p, g, c->momentum > 0 ? m : NULL, N, &a, 2);
        for (int i = 0; i < N; i++) {
            double d = 0.5 * (double)g[i] + c->weight_decay * before[i];
            wm[i] = t == 1 ? d : c->momentum * wm[i] + (1 - c->dampening) * d;
            if (c->momentum > 0) d = c->nesterov ? d + c->momentum * wm[i] : wm[i];
            moved(before[i], p[i], -0.1 * d, c->name, t, i);
        }
    }
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(adams) + ZX_COUNT(sgds)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(adams); i++)
        tests[n++] = zx_case(adams[i].name, adam, &adams[i]);
    for (size_t i = 0; i < ZX_COUNT(sgds); i++) tests[n++] = zx_case(sgds[i].name, sgd, &sgds[i]);
    return cmocka_run_group_tests_name("ops.optim", tests, NULL, NULL);
}

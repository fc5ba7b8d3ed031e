// optim.c - optimizer steps over a shard: every element alone, so the same bits for any cut.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <math.h>

typedef struct step {
    float *p, *m, *v;
    const float *g;
    const zx_adam_args *adam;
    const zx_sgd_args *sgd;
    const zx_lion_args *lion;
} step;

// Three divisions of each element would take longer than its bytes: see zx_adam_numbers.
static inline void adam_some(float *restrict p, const float *restrict g, float *restrict m,
                             float *restrict v, int64_t n, zx_adam_numbers a)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float x = p[i], d = g[i] * a.scale + a.l2 * x;
        const float mi = a.b1 * m[i] + a.r1 * d, vi = a.b2 * v[i] + a.r2 * (d * d);
        m[i] = mi;
        v[i] = vi;
        p[i] = x - (a.rate * mi / (sqrtf(vi * a.part) + a.eps) + a.decay * x);
    }
}

ZX_CLONES static void adam_loop(float *restrict p, const float *restrict g, float *restrict m,
                                float *restrict v, int64_t n, zx_adam_numbers a)
{
    int64_t i = 0;
    for (; i + ZX_LINE <= n; i += ZX_LINE) {
        __builtin_prefetch(p + i + ZX_AHEAD, 1);
        __builtin_prefetch(m + i + ZX_AHEAD, 1);
        __builtin_prefetch(v + i + ZX_AHEAD, 1);
        __builtin_prefetch(g + i + ZX_AHEAD, 0);
        adam_some(p + i, g + i, m + i, v + i, ZX_LINE, a);
    }
    adam_some(p + i, g + i, m + i, v + i, n - i, a);
}

static void adam_range(void *ctx, int64_t from, int64_t to)
{
    const step *s = ctx;
    adam_loop(s->p + from, s->g + from, s->m + from, s->v + from, to - from,
              zx_adam_numbers_of(s->adam));
}

void zx_cpu_adam(float *p, const float *g, float *m, float *v, int64_t n, const zx_adam_args *a,
                 int threads)
{
    step s = {.p = p, .g = g, .m = m, .v = v, .adam = a};
    zx_split(threads, n, 1024, ZX_GRAIN, adam_range, &s);
}

// g += wd p; then with momentum: m = momentum m + (1-dampening) g (first step: m = g), and g
// becomes g + momentum m (Nesterov) or m; p -= lr g.
ZX_CLONES static void sgd_loop(float *restrict p, const float *restrict g, int64_t n,
                               const zx_sgd_args *a)
{
    const float lr = a->lr, wd = a->weight_decay, scale = a->grad_scale;
    ZX_SIMD for (int64_t i = 0; i < n; i++) p[i] = p[i] - lr * (g[i] * scale + wd * p[i]);
}
ZX_CLONES static void sgd_momentum_loop(float *restrict p, const float *restrict g,
                                        float *restrict m, int64_t n, const zx_sgd_args *a)
{
    const float lr = a->lr, wd = a->weight_decay, scale = a->grad_scale;
    const float keep = a->momentum, mix = 1.0f - a->dampening;
    const bool first = a->first;
    const float of_g = a->nesterov ? 1.0f : 0.0f, of_m = a->nesterov ? a->momentum : 1.0f;
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float d = g[i] * scale + wd * p[i];
        const float mi = first ? d : keep * m[i] + mix * d;
        m[i] = mi;
        p[i] = p[i] - lr * (of_g * d + of_m * mi);
    }
}

static void sgd_range(void *ctx, int64_t from, int64_t to)
{
    const step *s = ctx;
    if (s->m && s->sgd->momentum != 0.0f)
        sgd_momentum_loop(s->p + from, s->g + from, s->m + from, to - from, s->sgd);
    else
        sgd_loop(s->p + from, s->g + from, to - from, s->sgd);
}

void zx_cpu_sgd(float *p, const float *g, float *m, int64_t n, const zx_sgd_args *a, int threads)
{
    step s = {.p = p, .g = g, .m = m, .sgd = a};
    zx_split(threads, n, 1024, ZX_GRAIN, sgd_range, &s);
}

ZX_CLONES static void lion_loop(float *restrict p, const float *restrict g, float *restrict m,
                                int64_t n, zx_lion_numbers a)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float d = g[i] * a.scale, c = a.b1 * m[i] + a.r1 * d;
        const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
        m[i] = a.b2 * m[i] + a.r2 * d;
        p[i] = p[i] - (a.lr * sign + a.decay * p[i]);
    }
}

static void lion_range(void *ctx, int64_t from, int64_t to)
{
    const step *s = ctx;
    lion_loop(s->p + from, s->g + from, s->m + from, to - from, zx_lion_numbers_of(s->lion));
}

void zx_cpu_lion(float *p, const float *g, float *m, int64_t n, const zx_lion_args *a, int threads)
{
    step s = {.p = p, .g = g, .m = m, .lion = a};
    zx_split(threads, n, 1024, ZX_GRAIN, lion_range, &s);
}

// ---- parameters of 16 bits ----------------------------------------------------------------------
#define MIXED 4096 // elements at a time: what was just made is still near when it is rounded

typedef struct mixed_step {
    const step *of;
    const zx_mixed *x;
} mixed_step;

static void mixed_range(void *ctx, int64_t from, int64_t to)
{
    const mixed_step *j = ctx;
    const step *s = j->of;
    const zx_mixed *x = j->x;
    float wide[MIXED];
    for (int64_t at = from; at < to; at += MIXED) {
        const int64_t n = zx_min_i64(MIXED, to - at);
        const float *g = x->g_type == ZX_F32 ? (const float *)x->g + at : wide;
        if (g == wide) zx_cpu_widen(x->g_type, (const uint16_t *)x->g + at, wide, n);
        if (s->adam != NULL)
            adam_loop(s->p + at, g, s->m + at, s->v + at, n, zx_adam_numbers_of(s->adam));
        else if (s->lion != NULL)
            lion_loop(s->p + at, g, s->m + at, n, zx_lion_numbers_of(s->lion));
        else if (s->m != NULL && s->sgd->momentum != 0.0f)
            sgd_momentum_loop(s->p + at, g, s->m + at, n, s->sgd);
        else
            sgd_loop(s->p + at, g, n, s->sgd);
        zx_cpu_narrow(x->low_type, s->p + at, (uint16_t *)x->low + at, n);
    }
}

void zx_cpu_adam_mixed(float *p, const zx_mixed *x, float *m, float *v, int64_t n,
                       const zx_adam_args *a, int threads)
{
    const step s = {.p = p, .m = m, .v = v, .adam = a};
    mixed_step j = {&s, x};
    zx_split(threads, n, 1024, ZX_GRAIN, mixed_range, &j);
}

void zx_cpu_sgd_mixed(float *p, const zx_mixed *x, float *m, int64_t n, const zx_sgd_args *a,
                      int threads)
{
    const step s = {.p = p, .m = m, .sgd = a};
    mixed_step j = {&s, x};
    zx_split(threads, n, 1024, ZX_GRAIN, mixed_range, &j);
}

void zx_cpu_lion_mixed(float *p, const zx_mixed *x, float *m, int64_t n, const zx_lion_args *a,
                       int threads)
{
    const step s = {.p = p, .m = m, .lion = a};
    mixed_step j = {&s, x};
    zx_split(threads, n, 1024, ZX_GRAIN, mixed_range, &j);
}

// schedule_lr.c - see schedule_lr.h. Arithmetic is DeepSpeed's, operation for operation, so that a
// sequence has its bits.
//
// DeepSpeed counts from -1: its i is -1 at the first step, and one more after each that is applied.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule_lr.h"

#include <math.h>

#define PI 3.141592653589793

// ---- warm-ups -----------------------------------------------------------------------------------

// How far a warm-up is, where it isn't over: i < warmup.
static double warm(const zx_lr_schedule *s, double i)
{
    const double n = (double)s->warmup;
    return s->logarithmic ? 1.0 / log(n) * log(i + 1) : i / n;
}

static double warmup_at(const zx_lr_schedule *s, double i)
{
    const double n = (double)s->warmup, total = (double)s->total;
    double part = 1;
    if (i < 0) return s->min;
    if (i < n)
        part = warm(s, i);
    else if (s->kind == ZX_LR_WARMUP_DECAY)
        part = fmax(0.0, (total - i) / fmax(1.0, total - n));
    return s->min + (s->max - s->min) * part;
}

static double cosine_at(const zx_lr_schedule *s, double i)
{
    const double n = (double)s->warmup, total = (double)s->total;
    if (i < 0) return 0;
    if (i < n) return s->base * (s->from_ratio + warm(s, i) * (1.0 - s->from_ratio));
    const double done = fmin(1.0, (i - n + 1) / fmax(1.0, total - n));
    const double ratio = (1 + cos(PI * done)) / 2;
    return s->base * fmax(0.0, s->to_ratio + (1.0 - s->to_ratio) * ratio);
}

// ---- one cycle ----------------------------------------------------------------------------------

// 0 at the cycle's ends, 1 between its halves.
static double cycle_height(const zx_lr_schedule *s, double i)
{
    const double at = i + 1, size = s->first + s->second, ratio = s->first / size;
    const double x = 1.0 + at / size - floor(1 + at / size);
    const bool rises = x <= ratio;
    const uint64_t stairs = rises ? s->first_stairs : s->second_stairs;
    if (stairs == 0) return rises ? x / ratio : (x - 1) / (ratio - 1);
    const double in = fmod(at, size),
                 n = (double)stairs; // whole steps: x may be just below a stair
    return floor(in <= s->first ? in * n / s->first : (size - in) * n / s->second) / n;
}

static bool in_cycle(const zx_lr_schedule *s, double i)
{
    return i < s->first + s->second;
}

// 1 + rate times how often decay_steps went by since the cycle.
static double decayed(const zx_lr_schedule *s, double rate, double i)
{
    if (s->decay_steps == 0 || rate == 0) return 1;
    return 1 + rate * ((i - (s->first + s->second) + 1) / s->decay_steps);
}

static double cycle_at(const zx_lr_schedule *s, double i)
{
    if (in_cycle(s, i)) return s->min + (s->max - s->min) * cycle_height(s, i);
    return s->min / decayed(s, s->decay_rate, i);
}

static double momentum_at(const zx_lr_schedule *s, double i)
{
    if (i < 0) return s->min_momentum; // as DeepSpeed begins; the next one is counted from max
    if (in_cycle(s, i))
        return s->max_momentum - (s->max_momentum - s->min_momentum) * cycle_height(s, i);
    return s->max_momentum * decayed(s, s->momentum_rate, i);
}

// ---- all ----------------------------------------------------------------------------------------

static double range_at(const zx_lr_schedule *s, double i)
{
    const double k = (i + 1) / s->size;
    return s->min * (1 + s->rate * (s->staircase ? floor(k) : k));
}

double zx_lr_at(const zx_lr_schedule *s, uint64_t applied)
{
    const double i = (double)applied - 1;
    switch (s->kind) {
    case ZX_LR_WARMUP:
    case ZX_LR_WARMUP_DECAY:
        return warmup_at(s, i);
    case ZX_LR_WARMUP_COSINE:
        return cosine_at(s, i);
    case ZX_LR_ONE_CYCLE:
        return cycle_at(s, i);
    case ZX_LR_RANGE_TEST:
        return range_at(s, i);
    default:
        return s->base;
    }
}

void zx_lr_betas_at(const zx_lr_schedule *s, uint64_t applied, double *beta1, double *beta2)
{
    if (s->kind != ZX_LR_ONE_CYCLE || !s->momentum) return;
    *beta1 = momentum_at(s, (double)applied - 1);
    *beta2 = 0.99;
}

const char *zx_lr_kind_name(zx_lr_kind kind)
{
    static const char *const names[ZX_LR_KINDS] = {"constant",       "WarmupLR", "WarmupDecayLR",
                                                   "WarmupCosineLR", "OneCycle", "LRRangeTest"};
    return names[kind];
}

static unsigned long long whole(double steps)
{
    return (unsigned long long)steps;
}

void zx_lr_describe(const zx_lr_schedule *s, zx_text *out)
{
    zx_text_put(out, "%s", zx_lr_kind_name(s->kind));
    const char *how = s->logarithmic ? "log" : "linear";
    const unsigned long long warmup = s->warmup, total = s->total;
    switch (s->kind) {
    case ZX_LR_WARMUP:
        zx_text_put(out, ": %g to %g in %llu steps (%s)", s->min, s->max, warmup, how);
        return;
    case ZX_LR_WARMUP_DECAY:
        zx_text_put(out, ": %g to %g in %llu steps (%s), then to %g at step %llu", s->min, s->max,
                    warmup, how, s->min, total + 2);
        return;
    case ZX_LR_WARMUP_COSINE:
        zx_text_put(out, ": %g to %g in %llu steps (%s), then along a cosine to %g at step %llu",
                    s->base * s->from_ratio, s->base, warmup, how, s->base * s->to_ratio,
                    total + 1);
        return;
    case ZX_LR_ONE_CYCLE:
        zx_text_put(out, ": %g to %g in %llu steps, back in %llu", s->min, s->max, whole(s->first),
                    whole(s->second));
        if (s->decay_steps > 0 && s->decay_rate > 0) zx_text_put(out, ", then down");
        if (s->momentum) zx_text_put(out, "; beta1 %g to %g", s->max_momentum, s->min_momentum);
        return;
    case ZX_LR_RANGE_TEST:
        zx_text_put(out, ": from %g, %g times that more every %llu steps%s", s->min, s->rate,
                    whole(s->size), s->staircase ? ", all at once" : "");
        return;
    default:
        zx_text_put(out, ": %g", s->base);
    }
}

// vmath.h - exp, log, tanh, erf and their like in float32, branch-free, for loops that the compiler
// turns into vectors. Errors are a few units in the last place; NaN gives NaN.
//
// The polynomials are weighted minimax fits (Lawson's iteration on 4000 Chebyshev points). Only
// plain IEEE additions, multiplications and divisions are used, so a vector's body and its tail
// agree.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_VMATH_H
#define ZX_KERNELS_CPU_VMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t vm_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float vm_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline float vm_abs(float x)
{
    return vm_float(vm_bits(x) & 0x7fffffffu);
}
static inline float vm_copysign(float x, float sign)
{
    return vm_float((vm_bits(x) & 0x7fffffffu) | (vm_bits(sign) & 0x80000000u));
}

#define VM_LN2_HI 0x1.62e4p-1f // 15 bits: products with |n| < 256 are exact
#define VM_LN2_LO 0x1.7f7d1cp-20f
#define VM_LOG2E 0x1.715476p+0f
#define VM_ROUND 12582912.0f // 1.5 * 2^23: adding it leaves the nearest integer in the low bits

// x = n ln2 + r with |r| <= ln2/2 (1 + 2^-20): returns n; *tail = e^r - 1 - r.
static inline int32_t vm_reduce(float x, float *r, float *tail)
{
    const float shifted = x * VM_LOG2E + VM_ROUND;
    const float n = shifted - VM_ROUND;
    const float f = (x - n * VM_LN2_HI) - n * VM_LN2_LO;
    float p = 1.39517151e-3f;
    p = p * f + 8.36959854e-3f;
    p = p * f + 4.16661873e-2f;
    p = p * f + 1.66665122e-1f;
    p = p * f + 0.5f;
    *r = f;
    *tail = f * f * p;
    return (int32_t)(vm_bits(shifted) - vm_bits(VM_ROUND));
}
static inline float vm_pow2(int32_t n) // -126 <= n <= 127
{
    return vm_float((uint32_t)(n + 127) << 23);
}
static inline float vm_clamp(float x, float lo, float hi)
{
    const float y = x < lo ? lo : x;
    return y > hi ? hi : y;
}

static inline float vm_exp(float x)
{
    float r, tail;
    const int32_t n = vm_reduce(vm_clamp(x, -104.0f, 89.0f), &r, &tail);
    const int32_t half = n >> 1; // in two factors: results reach from 2^-150 to infinity
    const uint32_t a = (uint32_t)half + 127u, b = (uint32_t)n - (uint32_t)half + 127u;
    return (1.0f + (r + tail)) * vm_float(a << 23) * vm_float(b << 23);
}

static inline float vm_expm1(float x)
{
    float r, tail;
    const int32_t n = vm_reduce(vm_clamp(x, -60.0f, 89.0f), &r, &tail);
    // n = 128 would overflow the factor: scale by 2^(n-1), then twice
    const float s = vm_float(((uint32_t)n + 126u) << 23);
    return (s * (r + tail) + (s - 0.5f)) * 2.0f;
}

static inline float vm_log(float x)
{
    const float big = x < 0x1p-126f ? x * 0x1p23f : x; // subnormals become normal
    const float fix = x < 0x1p-126f ? -23.0f : 0.0f;
    const uint32_t u = vm_bits(big) + (0x3f800000u - 0x3f3504f3u);
    const float e = (float)((int32_t)(u >> 23) - 127) + fix;
    const float f = vm_float((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f; // in [sqrt(1/2), sqrt(2)) - 1
    float q = 6.91514686e-2f;
    q = q * f - 1.17896959e-1f;
    q = q * f + 1.18730165e-1f;
    q = q * f - 1.23843700e-1f;
    q = q * f + 1.42186552e-1f;
    q = q * f - 1.66692495e-1f;
    q = q * f + 2.00022265e-1f;
    q = q * f - 2.49999866e-1f;
    q = q * f + 3.33333105e-1f;
    const float ff = f * f;
    float y = (q * f * ff + e * VM_LN2_LO) - 0.5f * ff;
    y = e * VM_LN2_HI + (f + y);
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN; // also for NaN
}

// log(1 + x) for 0 <= x: the rounding of 1 + x is made good.
static inline float vm_log1p(float x)
{
    const float u = 1.0f + x;
    const float y = vm_log(u) - ((u - 1.0f) - x) / u;
    return x == INFINITY ? x : y;
}

static inline float vm_tanh(float x)
{
    const float z = x * x, a = vm_abs(x);
    float p = -5.7170256e-3f;
    p = p * z + 2.06505693e-2f;
    p = p * z - 5.37434928e-2f;
    p = p * z + 1.33314908e-1f;
    p = p * z - 3.33332837e-1f;
    const float small = x + x * (z * p);
    const float large = 1.0f - 2.0f / (vm_exp(a + a) + 1.0f);
    return a < 0.625f ? small : vm_copysign(large, x);
}

static inline float vm_erf(float x)
{
    const float z = x * x, a = vm_abs(x);
    float p = 8.18508706e-5f;
    p = p * z - 8.09770194e-4f;
    p = p * z + 5.1969518e-3f;
    p = p * z - 2.68577058e-2f;
    p = p * z + 1.12836637e-1f;
    p = p * z - 3.76126319e-1f;
    const float small = x + x * (z * p + 1.28379167e-1f);
    const float t = a > 4.0f ? 4.0f : a; // erf(4) rounds to 1
    float q = 1.97183996e-4f;            // log(erfc(t)) on [0.9, 4]
    q = q * t - 3.05562816e-3f;
    q = q * t + 2.22771633e-2f;
    q = q * t - 1.04037508e-1f;
    q = q * t - 6.37059569e-1f;
    q = q * t - 1.12774968f;
    q = q * t - 1.77475566e-4f;
    const float large = 1.0f - vm_exp(q);
    return a < 0.925f ? small : vm_copysign(large, x);
}

// sin and cos of r in [-pi/4, pi/4].
static inline float vm_sin_small(float r)
{
    const float z = r * r;
    float p = 2.71823706e-6f;
    p = p * z - 1.98393274e-4f;
    p = p * z + 8.33332911e-3f;
    p = p * z - 1.66666672e-1f;
    return r + r * (z * p);
}
static inline float vm_cos_small(float r)
{
    const float z = r * r;
    float p = 2.44377261e-5f;
    p = p * z - 1.38873619e-3f;
    p = p * z + 4.16666456e-2f;
    return (1.0f - 0.5f * z) + z * z * p;
}
// sin of q quarter turns and r more.
static inline float vm_sin_quarters(uint32_t q, float r)
{
    const float y = q & 1 ? vm_cos_small(r) : vm_sin_small(r);
    return vm_float(vm_bits(y) ^ (q & 2) << 30);
}
// Right for |x| <= VM_TRIG_MOST; the caller asks the C library beyond.
#define VM_TRIG_MOST 0x1p20f
static inline float vm_trig(float x, uint32_t quarters)
{
    const double shifted = (double)x * 0.63661977236758134 + 0x1.8p52; // 2/pi; rounds to an integer
    const double n = shifted - 0x1.8p52;
    uint64_t u;
    memcpy(&u, &shifted, sizeof u);
    // pi/2 in two parts, the first of 33 bits: n times it is exact
    const double r = ((double)x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34;
    return vm_sin_quarters((uint32_t)u + quarters, (float)r);
}
static inline float vm_sin(float x)
{
    return vm_trig(x, 0);
}
static inline float vm_cos(float x)
{
    return vm_trig(x, 1);
}

static inline float vm_sigmoid(float x)
{
    return 1.0f / (1.0f + vm_exp(-x));
}

#endif

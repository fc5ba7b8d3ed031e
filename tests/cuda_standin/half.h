// half.h - numbers of two bytes to and from float, for the stand-in's libraries.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_HALF_H
#define ZX_STANDIN_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float si_from_bf16(uint16_t bits)
{
    const uint32_t u = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}
static inline uint16_t si_to_bf16(float x) // to nearest, ties to even
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (x != x) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
static inline float si_from_f16(uint16_t bits)
{
    const uint32_t rest = (uint32_t)(bits & 0x7fffu) << 13, sign = (uint32_t)(bits & 0x8000u) << 16;
    const uint32_t exponent = rest >> 23;
    const uint32_t u = sign | (exponent == 31 ? rest + (224u << 23) : rest + (112u << 23));
    float x;
    memcpy(&x, &u, sizeof x);
    if (exponent != 0) return x;
    x = (float)(bits & 1023u) * 0x1p-24f; // subnormal
    return sign != 0 ? -x : x;
}
static inline uint16_t si_to_f16(float x) // to nearest, ties to even
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const float a = fabsf(x);
    if (x != x) return 0x7fff;
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7c00);
    int e = a < 0x1p-14f ? -14 : ilogbf(a);            // the unit in the last place is 2^(e-10)
    const float steps = nearbyintf(ldexpf(a, 10 - e)); // up to 2048, which is the next power
    return (uint16_t)(sign | (((unsigned)(e + 14) << 10) + (unsigned)steps));
}

#endif

// cuda_fp16.h - numbers of two bytes: IEEE half, in memory and to and from float.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_CUDA_FP16_H
#define ZX_STANDIN_CUDA_FP16_H

#include <cuda_runtime.h>

struct alignas(2) __half {
    unsigned short bits;
};
typedef __half half;

static inline float __half2float(__half h)
{
    const unsigned e = h.bits >> 10 & 31u, m = h.bits & 1023u;
    const unsigned sign = (unsigned)(h.bits >> 15) << 31;
    if (e == 31) return __uint_as_float(sign | 0x7f800000u | m << 13);
    if (e == 0) { // m * 2^-24
        const float x = (float)m * 0x1p-24f;
        return sign ? -x : x;
    }
    return __uint_as_float(sign | (e + 112) << 23 | m << 13);
}
static inline __half __float2half_rn(float x) // to nearest, ties to even
{
    const unsigned u = __float_as_uint(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    unsigned r;
    if (a > 0x7f800000u)
        r = 0x7fffu;
    else if (a >= 0x477ff000u) // 65520 and above
        r = 0x7c00u;
    else if (a < 0x38800000u) // below 2^-14: a multiple of 2^-24, rounded by the addition
        r = __float_as_uint(__uint_as_float(a) + 0.5f) - 0x3f000000u;
    else
        r = (a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13;
    return __half{(unsigned short)(sign | r)};
}
static inline __half __float2half(float x)
{
    return __float2half_rn(x);
}

#endif

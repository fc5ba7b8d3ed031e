// cuda_bf16.h - numbers of two bytes: bfloat16, in memory and to and from float.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_CUDA_BF16_H
#define ZX_STANDIN_CUDA_BF16_H

#include <cuda_runtime.h>

struct alignas(2) __nv_bfloat16 {
    unsigned short bits;
};

static inline float __bfloat162float(__nv_bfloat16 h)
{
    return __uint_as_float((unsigned)h.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float x) // to nearest, ties to even
{
    const unsigned u = __float_as_uint(x);
    if (x != x) return __nv_bfloat16{0x7fff};
    return __nv_bfloat16{(unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16)};
}
static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __float2bfloat16_rn(x);
}

#endif

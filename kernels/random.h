// random.h - the counter-based generator, on the CPU and on GPUs alike; see kernels/cpu/random.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_RANDOM_H
#define ZX_KERNELS_RANDOM_H

#include "kernels/kernel.h"

#define ZX_PHILOX_M0 0xd2511f53u
#define ZX_PHILOX_M1 0xcd9e8d57u
#define ZX_PHILOX_W0 0x9e3779b9u
#define ZX_PHILOX_W1 0xbb67ae85u

// Mixes 64 bits so that every bit of the result depends on every bit of x (SplitMix64's last
// steps).
static inline uint64_t zx_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Philox4x32-10 of the counter (low half `block`, high half `stream`) under `key`.
ZX_BOTH static inline void zx_philox(uint64_t key, uint64_t block, uint64_t stream, uint32_t w[4])
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)c0 * ZX_PHILOX_M0, b = (uint64_t)c2 * ZX_PHILOX_M1;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += ZX_PHILOX_W0;
        k1 += ZX_PHILOX_W1;
    }
    w[0] = c0;
    w[1] = c1;
    w[2] = c2;
    w[3] = c3;
}

// ---- Dropout ------------------------------------------------------------------------------------
// Groups of 64 elements take the words of 16 blocks: element 64 g + 16 k + b is word k of block
// 16 g + b. An element is kept, times `scale`, where its word is at least `threshold`.
#define ZX_GROUP 64
typedef struct zx_dropout {
    uint64_t key, stream;
    uint32_t threshold;
    float scale;
} zx_dropout;
static inline zx_dropout zx_dropout_of(const zx_call *call)
{
    const double ratio = zx_attr_float(call->attrs, ZX_A_RATIO, 0.5);
    const zx_rng none = {0, 0, 0}, *rng = call->rng ? call->rng : &none;
    zx_dropout d;
    d.key = zx_mix(rng->seed ^ zx_mix(rng->step ^ zx_mix(rng->micro)));
    d.stream = (uint64_t)zx_attr_int(call->attrs, ZX_A_KEY, 0);
    d.threshold = ratio < 1 ? (uint32_t)(ratio * 0x1p32) : UINT32_MAX;
    d.scale = ratio < 1 ? (float)(1.0 / (1.0 - ratio)) : 0.0f;
    return d;
}

#endif

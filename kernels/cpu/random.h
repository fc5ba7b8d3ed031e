// random.h - the counter-based generator; see random.c.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_RANDOM_H
#define ZX_KERNELS_CPU_RANDOM_H

#include "kernels/cpu/common.h"

#define ZX_PHILOX_M0 0xd2511f53u
#define ZX_PHILOX_M1 0xcd9e8d57u
#define ZX_PHILOX_W0 0x9e3779b9u
#define ZX_PHILOX_W1 0xbb67ae85u

// Philox4x32-10 of the counter (low half `block`, high half `stream`) under `key`.
static inline void zx_philox(uint64_t key, uint64_t block, uint64_t stream, uint32_t w[4])
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

#endif

// hash.c - see hash.h.
// SPDX-License-Identifier: Apache-2.0
#include "graph/base/hash.h"

#include <string.h>

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)

static inline uint64_t turn(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static inline uint64_t word(const unsigned char *at, size_t n) // little-endian, as every host here
{
    uint64_t x = 0;
    memcpy(&x, at, n);
    return x;
}

static inline uint64_t round_of(uint64_t lane, uint64_t x)
{
    return turn(lane + x * P2, 31) * P1;
}

static void stripe(zx_hash *h, const unsigned char *at)
{
    for (size_t k = 0; k < 4; k++) h->lane[k] = round_of(h->lane[k], word(at + 8 * k, 8));
}

void zx_hash_start(zx_hash *h)
{
    memset(h, 0, sizeof *h);
    h->lane[0] = P1 + P2;
    h->lane[1] = P2;
    h->lane[3] = 0 - P1;
}

void zx_hash_bytes(zx_hash *h, const void *bytes, size_t n)
{
    const unsigned char *at = (const unsigned char *)bytes;
    const size_t had = (size_t)(h->total % 32);
    if (n == 0) return;
    h->total += n;
    if (had + n < 32) {
        memcpy(h->tail + had, at, n);
        return;
    }
    if (had > 0) {
        memcpy(h->tail + had, at, 32 - had);
        stripe(h, h->tail);
        at += 32 - had;
        n -= 32 - had;
    }
    for (; n >= 32; at += 32, n -= 32) stripe(h, at);
    memcpy(h->tail, at, n);
}

uint64_t zx_hash_end(const zx_hash *h)
{
    static const int turns[4] = {1, 7, 12, 18};
    uint64_t x = P5;
    if (h->total >= 32) {
        x = 0;
        for (size_t k = 0; k < 4; k++) x += turn(h->lane[k], turns[k]);
        for (size_t k = 0; k < 4; k++) x = (x ^ round_of(0, h->lane[k])) * P1 + P4;
    }
    x += h->total;
    const unsigned char *at = h->tail;
    size_t n = (size_t)(h->total % 32);
    for (; n >= 8; at += 8, n -= 8) x = turn(x ^ round_of(0, word(at, 8)), 27) * P1 + P4;
    for (; n >= 4; at += 4, n -= 4) x = turn(x ^ word(at, 4) * P1, 23) * P2 + P3;
    for (; n > 0; at++, n--) x = turn(x ^ *at * P5, 11) * P1;
    x = (x ^ (x >> 33)) * P2;
    x = (x ^ (x >> 29)) * P3;
    return x ^ (x >> 32);
}

uint64_t zx_hash_of(const void *bytes, size_t n)
{
    zx_hash h;
    zx_hash_start(&h);
    zx_hash_bytes(&h, bytes, n);
    return zx_hash_end(&h);
}

// random.c - numbers as functions of a key and an index: Dropout and first values of parameters.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011): ten rounds turn a 128-bit counter under a 64-bit key into four 32-bit numbers. Nothing is
// carried from element to element, so any rank makes any part alone.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"
#include "kernels/cpu/vmath.h"
#include "kernels/random.h"

#include <math.h>
#include <string.h>

// ---- words for elements -------------------------------------------------------------------------
// Of a group's blocks (random.h): the words of 16 neighbours come out of one vector.
ZX_CLONES static void group_words(uint64_t key, uint64_t stream, uint64_t group,
                                  uint32_t *restrict words)
{
    uint32_t c0[16], c1[16], c2[16], c3[16]; // zx_philox with 16 counters side by side
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (uint32_t b = 0; b < 16; b++) {
        c0[b] = (uint32_t)(group * 16) + b; // no carry: 16 divides 2^32
        c1[b] = (uint32_t)(group * 16 >> 32);
        c2[b] = (uint32_t)stream;
        c3[b] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        ZX_SIMD for (int b = 0; b < 16; b++)
        {
            const uint64_t x = (uint64_t)c0[b] * ZX_PHILOX_M0, y = (uint64_t)c2[b] * ZX_PHILOX_M1;
            c0[b] = (uint32_t)(y >> 32) ^ c1[b] ^ k0;
            c1[b] = (uint32_t)y;
            c2[b] = (uint32_t)(x >> 32) ^ c3[b] ^ k1;
            c3[b] = (uint32_t)x;
        }
        k0 += ZX_PHILOX_W0;
        k1 += ZX_PHILOX_W1;
    }
    memcpy(words, c0, sizeof c0);
    memcpy(words + 16, c1, sizeof c1);
    memcpy(words + 32, c2, sizeof c2);
    memcpy(words + 48, c3, sizeof c3);
}

// ---- Dropout ------------------------------------------------------------------------------------
typedef struct dropout_job {
    const float *x;
    float *y;
    zx_dropout d;
} dropout_job;

ZX_CLONES static void keep_some(const float *x, float *y, int64_t n, const uint32_t *word,
                                uint32_t threshold, float scale)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) y[i] = word[i] >= threshold ? x[i] * scale : 0.0f;
}

static void dropout_range(void *ctx, int64_t from, int64_t to) // `from` is a multiple of ZX_GROUP
{
    const dropout_job *j = ctx;
    uint32_t words[ZX_GROUP];
    for (int64_t at = from; at < to; at += ZX_GROUP) {
        group_words(j->d.key, j->d.stream, (uint64_t)at / ZX_GROUP, words);
        keep_some(j->x + at, j->y + at, zx_min_i64(ZX_GROUP, to - at), words, j->d.threshold,
                  j->d.scale);
    }
}

static zx_status dropout(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    dropout_job j = {call->in[0].data, call->out[0].data, zx_dropout_of(call)};
    zx_split(call->threads, zx_count(&call->in[0]), ZX_GROUP, ZX_GRAIN / 2, dropout_range, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_dropout = {.run = dropout};

// ---- first values -------------------------------------------------------------------------------
uint64_t zx_cpu_init_key(uint64_t seed, const char *name)
{
    uint64_t h = zx_mix(seed);
    for (const char *c = name; *c; c++) h = zx_mix(h ^ (uint8_t)*c);
    return h;
}

#define NORMAL 1u // streams of a key
#define UNIFORM 2u

// Box-Muller on words 0 and 1, and on 2 and 3: a radius from one, an angle from the other.
ZX_CLONES static void group_normal(const uint32_t *words, float *z)
{
    for (int pair = 0; pair < ZX_GROUP; pair += 32) {
        ZX_SIMD for (int i = pair; i < pair + 16; i++)
        {
            // u in (0, 1); the smallest are made finer, so that tails reach 6.7 deviations, not 5.9
            const float u = ((float)(int32_t)(words[i] >> 8) + 0.5f) * 0x1p-24f;
            const float fine = ((float)(int32_t)(words[i] & 0xff) + 0.5f) * 0x1p-32f;
            const float r = sqrtf(-2.0f * vm_log(words[i] < 256 ? fine : u));
            const uint32_t angle = words[i + 16]; // in 2^-32 turns
            const uint32_t quarters = (angle + 0x20000000u) >> 30;
            const float rest = (float)(int32_t)(angle - (quarters << 30)) * 0x1.921fb6p-30f;
            z[i] = r * vm_sin_quarters(quarters + 1, rest);
            z[i + 16] = r * vm_sin_quarters(quarters, rest);
        }
    }
}

ZX_CLONES static void put_normal(float *x, const float *z, int64_t n, double mean, double dev)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) x[i] = (float)(mean + dev * (double)z[i]);
}

void zx_cpu_init_normal(float *x, uint64_t key, uint64_t from, int64_t n, double mean, double dev)
{
    uint32_t words[ZX_GROUP];
    float z[ZX_GROUP];
    for (int64_t i = 0; i < n;) {
        const uint64_t at = from + (uint64_t)i;
        const int64_t skip = (int64_t)(at % ZX_GROUP), m = zx_min_i64(ZX_GROUP - skip, n - i);
        group_words(key, NORMAL, at / ZX_GROUP, words);
        group_normal(words, z);
        put_normal(x + i, z + skip, m, mean, dev);
        i += m;
    }
}

// In [lo, hi): where rounding reaches hi, the number before it.
ZX_CLONES static void put_uniform(float *x, const uint32_t *words, int64_t n, double lo, double hi)
{
    const float most = lo < hi ? nextafterf((float)hi, (float)lo) : (float)hi;
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float v = (float)(lo + (hi - lo) * ((double)words[i] * 0x1p-32));
        x[i] = v > most ? most : v;
    }
}

void zx_cpu_init_uniform(float *x, uint64_t key, uint64_t from, int64_t n, double lo, double hi)
{
    uint32_t words[ZX_GROUP];
    for (int64_t i = 0; i < n;) {
        const uint64_t at = from + (uint64_t)i;
        const int64_t skip = (int64_t)(at % ZX_GROUP), m = zx_min_i64(ZX_GROUP - skip, n - i);
        group_words(key, UNIFORM, at / ZX_GROUP, words);
        put_uniform(x + i, words + skip, m, lo, hi);
        i += m;
    }
}

// random.c - numbers as functions of a key and an index: Dropout and first values of parameters.
//
// The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// 2011): ten rounds turn a 128-bit counter under a 64-bit key into four 32-bit numbers. Nothing is
// carried from element to element, so any rank makes any part alone.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/random.h"

#include <math.h>
#include <string.h>

// Mixes 64 bits so that every bit of the result depends on every bit of x (SplitMix64's last
// steps).
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// ---- Dropout
// -------------------------------------------------------------------------------------------
// Element i uses word i % 4 of block i / 4; kept where that is at least ratio * 2^32. `first` is
// the first block.
ZX_CLONES static void random_words(uint64_t key, uint64_t stream, uint64_t first, int64_t blocks,
                                   uint32_t *restrict w0, uint32_t *restrict w1,
                                   uint32_t *restrict w2, uint32_t *restrict w3)
{
    ZX_SIMD for (int64_t b = 0; b < blocks; b++)
    {
        uint32_t w[4];
        zx_philox(key, first + (uint64_t)b, stream, w);
        w0[b] = w[0];
        w1[b] = w[1];
        w2[b] = w[2];
        w3[b] = w[3];
    }
}

typedef struct dropout_job {
    const float *x;
    float *y;
    uint64_t key, stream, threshold; // threshold in [0, 2^32]
    float scale;
} dropout_job;

#define CHUNK 256 // elements a turn; a multiple of 4

static void dropout_range(void *ctx, int64_t from, int64_t to) // `from` is a multiple of 4
{
    const dropout_job *j = ctx;
    uint32_t w[4][CHUNK / 4];
    for (int64_t at = from; at < to; at += CHUNK) {
        const int64_t n = zx_min_i64(CHUNK, to - at);
        random_words(j->key, j->stream, (uint64_t)at / 4, (n + 3) / 4, w[0], w[1], w[2], w[3]);
        for (int64_t i = 0; i < n; i++)
            j->y[at + i] = w[i & 3][i >> 2] >= j->threshold ? j->x[at + i] * j->scale : 0.0f;
    }
}

static zx_status dropout(const zx_call *call, zx_err *err)
{
    const double ratio = zx_attr_float(call->attrs, ZX_A_RATIO, 0.5);
    const zx_rng none = {0}, *rng = call->rng ? call->rng : &none;
    ZX_TRY(zx_need_f32(call, err));
    const dropout_job j = {
        .x = call->in[0].data,
        .y = call->out[0].data,
        .key = mix(rng->seed ^ mix(rng->step ^ mix(rng->micro))),
        .stream = (uint64_t)zx_attr_int(call->attrs, ZX_A_KEY, 0),
        .threshold = (uint64_t)(ratio * 0x1p32),
        .scale = ratio < 1 ? (float)(1.0 / (1.0 - ratio)) : 0.0f,
    };
    zx_split(call->threads, zx_count(&call->in[0]), CHUNK, ZX_GRAIN / 2, dropout_range,
             (void *)(uintptr_t)&j);
    return ZX_OK;
}
const zx_kernel zx_cpu_dropout = {.run = dropout};

// ---- first values
// --------------------------------------------------------------------------------------
uint64_t zx_cpu_init_key(uint64_t seed, const char *name)
{
    uint64_t h = mix(seed);
    for (const char *c = name; *c; c++) h = mix(h ^ (uint8_t)*c);
    return h;
}

#define NORMAL 1u // streams of a key
#define UNIFORM 2u

// Block b makes elements 2b and 2b + 1: two uniform numbers of 53 bits, one angle (Box-Muller).
static void normal_pair(uint64_t key, uint64_t b, double out[2])
{
    uint32_t w[4];
    zx_philox(key, b, NORMAL, w);
    const uint64_t hi = (uint64_t)w[0] << 32 | w[1], lo = (uint64_t)w[2] << 32 | w[3];
    const double u = ((double)(hi >> 11) + 0.5) * 0x1p-53; // in (0, 1)
    const double v = (double)(lo >> 11) * 0x1p-53;
    const double r = sqrt(-2.0 * log(u)), angle = 2.0 * ZX_PI * v;
    out[0] = r * cos(angle);
    out[1] = r * sin(angle);
}

void zx_cpu_init_normal(float *x, uint64_t key, uint64_t from, int64_t n, double mean, double dev)
{
    double z[2] = {0, 0};
    for (int64_t i = 0; i < n; i++) {
        const uint64_t at = from + (uint64_t)i;
        if (i == 0 || (at & 1) == 0) normal_pair(key, at / 2, z);
        x[i] = (float)(mean + dev * z[at & 1]);
    }
}

void zx_cpu_init_uniform(float *x, uint64_t key, uint64_t from, int64_t n, double lo, double hi)
{
    uint32_t w[4] = {0, 0, 0, 0};
    const float end = nextafterf((float)hi, (float)lo); // rounding must not reach hi
    for (int64_t i = 0; i < n; i++) {
        const uint64_t at = from + (uint64_t)i;
        if (i == 0 || (at & 3) == 0) zx_philox(key, at / 4, UNIFORM, w);
        const float v = (float)(lo + (hi - lo) * ((double)w[at & 3] * 0x1p-32));
        x[i] = v >= (float)hi && lo < hi ? end : v;
    }
}

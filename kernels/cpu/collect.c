// collect.c - the arithmetic of collectives: sums over ranks, the global norm, what isn't finite.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

// ---- sums over ranks ----------------------------------------------------------------------------
struct sum_job {
    float *out;
    const float *const *from;
    uint32_t n_from;
    bool add;
};

#define BLOCK 1024 // elements; 4 KiB

ZX_CLONES static void add_block(float *sum, const float *x, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) sum[i] += x[i];
}
ZX_CLONES static void add_two(float *sum, const float *a, const float *b, int64_t n)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

// The block's sum is made aside: `out` may be one of the operands.
static void sum_range(void *ctx, int64_t from, int64_t to)
{
    const struct sum_job *j = ctx;
    float sum[BLOCK];
    for (int64_t at = from; at < to; at += BLOCK) {
        const int64_t n = zx_min_i64(BLOCK, to - at);
        const float *first = j->from[0] + at;
        if (j->n_from > 1) {
            add_two(sum, first, j->from[1] + at, n);
            for (uint32_t r = 2; r < j->n_from; r++) add_block(sum, j->from[r] + at, n);
            first = sum;
        }
        if (j->add)
            add_block(j->out + at, first, n);
        else
            memmove(j->out + at, first, (size_t)n * sizeof(float));
    }
}

void zx_cpu_sum_ranks(float *out, const float *const *from, uint32_t n_from, int64_t n, bool add,
                      int threads)
{
    struct sum_job j = {out, from, n_from, add};
    ZX_ASSERT(n_from > 0);
    zx_split(threads, n, BLOCK, 4 * ZX_GRAIN, sum_range, &j);
}

typedef struct typed_sum {
    zx_dtype kept, made;
    void *out;
    const void *const *from;
    uint32_t n_from;
    bool add;
} typed_sum;

static void load_block(zx_dtype t, const void *x, int64_t at, int64_t n, float *to)
{
    if (t == ZX_F32)
        memcpy(to, (const float *)x + at, (size_t)n * sizeof *to);
    else
        zx_cpu_widen(t, (const uint16_t *)x + at, to, n);
}

static void typed_range(void *ctx, int64_t from, int64_t to)
{
    const typed_sum *j = ctx;
    float aside[BLOCK], other[BLOCK];
    for (int64_t at = from; at < to; at += BLOCK) {
        const int64_t n = zx_min_i64(BLOCK, to - at);
        // Operands are of another type than the result, so this can't be one of them.
        float *sum = j->kept == ZX_F32 && !j->add ? (float *)j->out + at : aside;
        load_block(j->made, j->from[0], at, n, sum);
        for (uint32_t r = 1; r < j->n_from; r++) {
            load_block(j->made, j->from[r], at, n, other);
            add_block(sum, other, n);
        }
        if (j->kept == ZX_F32 && j->add) add_block((float *)j->out + at, sum, n);
        if (j->kept == ZX_F32) continue;
        if (j->add) {
            load_block(j->kept, j->out, at, n, other);
            add_block(other, sum, n);
            sum = other;
        }
        zx_cpu_narrow(j->kept, sum, (uint16_t *)j->out + at, n);
    }
}

void zx_cpu_sum_ranks_of(zx_dtype kept, void *out, zx_dtype made, const void *const *from,
                         uint32_t n_from, int64_t n, bool add, int threads)
{
    ZX_ASSERT(n_from > 0 && (made != ZX_F32 || kept == ZX_F32));
    if (made == ZX_F32) {
        zx_cpu_sum_ranks(out, (const float *const *)from, n_from, n, add, threads);
        return;
    }
    typed_sum j = {kept, made, out, from, n_from, add};
    zx_split(threads, n, BLOCK, 4 * ZX_GRAIN, typed_range, &j);
}

// ---- square sums --------------------------------------------------------------------------------
#define SQUARE_BLOCK 4096
#define BLOCKS 1024 // in one turn: their sums are kept on the stack

struct square_job {
    zx_dtype type;
    const void *x;
    int64_t n;
    double *sum;
};

static void square_blocks(void *ctx, int64_t from, int64_t to)
{
    const struct square_job *j = ctx;
    float wide[SQUARE_BLOCK];
    for (int64_t b = from; b < to; b++) {
        const int64_t at = b * SQUARE_BLOCK, n = zx_min_i64(SQUARE_BLOCK, j->n - at);
        const float *x = j->type == ZX_F32 ? (const float *)j->x + at : wide;
        if (j->type != ZX_F32) load_block(j->type, j->x, at, n, wide);
        j->sum[b] = zx_row_sum_square(x, n);
    }
}

double zx_cpu_square_sum_of(zx_dtype t, const void *x, int64_t n, int threads)
{
    double total = 0, sum[BLOCKS];
    const unsigned char *bytes = x;
    for (int64_t at = 0; at < n; at += (int64_t)BLOCKS * SQUARE_BLOCK) {
        struct square_job j = {t, bytes + at * zx_dtype_bytes(t), n - at, sum};
        const int64_t blocks = zx_min_i64(BLOCKS, (n - at + SQUARE_BLOCK - 1) / SQUARE_BLOCK);
        zx_split(threads, blocks, 1, 8, square_blocks, &j);
        for (int64_t b = 0; b < blocks; b++) total += sum[b];
    }
    return total;
}

double zx_cpu_square_sum(const float *x, int64_t n, int threads)
{
    return zx_cpu_square_sum_of(ZX_F32, x, n, threads);
}

// ---- what isn't finite --------------------------------------------------------------------------
int64_t zx_cpu_find_nonfinite(const float *x, int64_t n, bool inf)
{
    const uint32_t limit = inf ? 0x7f7fffffu : 0x7f800000u;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t m = zx_min_i64(BLOCK, n - at);
        if (!zx_any_above(x + at, m, limit)) continue;
        for (int64_t i = 0; i < m; i++)
            if (zx_any_above(x + at + i, 1, limit)) return at + i;
    }
    return -1;
}

int64_t zx_cpu_find_nonfinite_of(zx_dtype t, const void *x, int64_t n, bool inf)
{
    float wide[BLOCK];
    if (t == ZX_F32) return zx_cpu_find_nonfinite(x, n, inf);
    for (int64_t at = 0; at < n && zx_is_16(t); at += BLOCK) {
        const int64_t m = zx_min_i64(BLOCK, n - at);
        load_block(t, x, at, m, wide);
        const int64_t found = zx_cpu_find_nonfinite(wide, m, inf);
        if (found >= 0) return at + found;
    }
    return -1;
}

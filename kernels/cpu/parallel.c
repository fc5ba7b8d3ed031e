// parallel.c - how kernels use threads: one loop over ranges that are fixed by size and thread
// count. Every OpenMP region of our own kernels is here.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

void zx_split(int threads, int64_t n, int64_t align, int64_t grain, zx_range_fn *fn, void *ctx)
{
    if (n <= 0) return;
    if (threads <= 1 || n < grain || n <= align) {
        fn(ctx, 0, n);
        return;
    }
    // All threads, or one: a team of another size would make the runtime end and start threads.
    const int64_t pieces = (n + align - 1) / align;
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        const int64_t from = pieces / threads * t + zx_min_i64(t, pieces % threads);
        const int64_t to = from + pieces / threads + (t < pieces % threads ? 1 : 0);
        if (from < to) fn(ctx, from * align, zx_min_i64(to * align, n));
    }
}

static void zero_range(void *ctx, int64_t from, int64_t to)
{
    memset((char *)ctx + from, 0, (size_t)(to - from));
}

void zx_fill_zero(void *to, uint64_t bytes, int threads)
{
    zx_split(threads, (int64_t)bytes, 4096, 4 * ZX_GRAIN, zero_range, to);
}

// ---- column sums --------------------------------------------------------------------------------
// Rows are cut into blocks, each block and tile of columns is a task, and the blocks' sums are
// added in order. So a tall narrow matrix has work for every thread and the order never depends on
// them.
#define TILE ZX_COLUMNS_TILE
#define MOST_BLOCKS 64

static int64_t row_blocks(int64_t rows)
{
    return zx_max_i64(1, zx_min_i64(MOST_BLOCKS, rows / 32));
}

uint64_t zx_columns_work(int64_t rows, int64_t cols, uint32_t n_sums)
{
    return (uint64_t)row_blocks(rows) * (uint64_t)cols * n_sums * sizeof(double);
}

struct columns_job {
    const zx_columns *c;
    double *work; // [blocks][n_sums][cols]
    int64_t blocks, tiles;
};

static void columns_tasks(void *ctx, int64_t from, int64_t to)
{
    const struct columns_job *job = ctx;
    const zx_columns *c = job->c;
    for (int64_t task = from; task < to; task++) {
        const int64_t block = task / job->tiles, col = task % job->tiles * TILE;
        const int64_t n = zx_min_i64(TILE, c->cols - col);
        double *sum[4];
        for (uint32_t k = 0; k < c->n_sums; k++) {
            sum[k] = job->work + (block * (int64_t)c->n_sums + k) * c->cols + col;
            memset(sum[k], 0, (size_t)n * sizeof(double));
        }
        c->add(c->ctx, c->rows * block / job->blocks, c->rows * (block + 1) / job->blocks, col, n,
               sum);
    }
}

static void columns_combine(void *ctx, int64_t from, int64_t to)
{
    const struct columns_job *job = ctx;
    const int64_t width = job->c->cols * (int64_t)job->c->n_sums;
    for (int64_t b = 1; b < job->blocks; b++)
        for (int64_t j = from; j < to; j++) job->work[j] += job->work[b * width + j];
}

const double *zx_columns_run(const zx_columns *c, void *work, int threads)
{
    struct columns_job job = {c, work, row_blocks(c->rows), (c->cols + TILE - 1) / TILE};
    ZX_ASSERT(c->n_sums <= 4);
    const bool small = c->rows * c->cols < ZX_GRAIN;
    zx_split(small ? 1 : threads, job.blocks * job.tiles, 1, 2, columns_tasks, &job);
    zx_split(small ? 1 : threads, c->cols * (int64_t)c->n_sums, 8, ZX_GRAIN / 8, columns_combine,
             &job);
    return work;
}

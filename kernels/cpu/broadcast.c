// broadcast.c - NumPy's broadcasting as a walk over runs, and copies between strided tensors.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

struct walk {
    const zx_broadcast *b;
    zx_run_fn *fn;
    void *ctx;
};

static void walk_range(void *ctx, int64_t from, int64_t to)
{
    const struct walk *w = ctx;
    const zx_broadcast *b = w->b;
    const uint32_t last = b->rank - 1;
    int64_t index[ZX_MAX_RANK], pos[3] = {0}, rest = from;
    for (uint32_t d = b->rank; d-- > 0;) {
        index[d] = rest % b->dim[d];
        rest /= b->dim[d];
        for (int k = 0; k < 3; k++) pos[k] += index[d] * b->stride[k][d];
    }
    for (int64_t at = from; at < to;) {
        const int64_t n = zx_min_i64(b->dim[last] - index[last], to - at);
        w->fn(w->ctx, at, pos, n);
        at += n;
        // The run ended with the last dim (or all is done): step the dims outside it.
        for (int k = 0; k < 3; k++) pos[k] -= index[last] * b->stride[k][last];
        index[last] = 0;
        for (uint32_t d = last; d-- > 0;) {
            for (int k = 0; k < 3; k++) pos[k] += b->stride[k][d];
            if (++index[d] < b->dim[d]) break;
            for (int k = 0; k < 3; k++) pos[k] -= b->stride[k][d] * b->dim[d];
            index[d] = 0;
        }
    }
}

void zx_broadcast_runs(const zx_broadcast *b, int threads, zx_run_fn *fn, void *ctx)
{
    struct walk w = {b, fn, ctx};
    zx_split(threads, b->count, 64, ZX_GRAIN, walk_range, &w);
}

// ---- strided copies -----------------------------------------------------------------------------
// One tile: [rows][cols] elements of a type, strides in elements.
#define TILE_COPY(type)                                                                            \
    static void tile_##type(const zx_move *m, int64_t x0, int64_t y0, int64_t rows, int64_t cols)  \
    {                                                                                              \
        const int64_t xr = m->xs[m->rank - 2], yr = m->ys[m->rank - 2];                            \
        const int64_t xc = m->xs[m->rank - 1], yc = m->ys[m->rank - 1];                            \
        const type *x = (const type *)m->x + x0;                                                   \
        type *y = (type *)m->y + y0;                                                               \
        for (int64_t i = 0; i < rows; i++, x += xr, y += yr) {                                     \
            if (xc == 1 && yc == 1) {                                                              \
                memcpy(y, x, (size_t)cols * sizeof(type));                                         \
            } else if (xc == 0 && yc == 1) {                                                       \
                const type v = *x;                                                                 \
                for (int64_t j = 0; j < cols; j++) y[j] = v;                                       \
            } else if (yc == 1) {                                                                  \
                for (int64_t j = 0; j < cols; j++) y[j] = x[j * xc];                               \
            } else {                                                                               \
                for (int64_t j = 0; j < cols; j++) y[j * yc] = x[j * xc];                          \
            }                                                                                      \
        }                                                                                          \
    }
TILE_COPY(uint8_t)
TILE_COPY(uint16_t)
TILE_COPY(uint32_t)
TILE_COPY(uint64_t)

struct move_job {
    const zx_move *m;
    int64_t row_tile, col_tile, row_tiles, col_tiles;
};

static void move_range(void *ctx, int64_t from, int64_t to)
{
    const struct move_job *job = ctx;
    const zx_move *m = job->m;
    const int64_t rows = m->dim[m->rank - 2], cols = m->dim[m->rank - 1];
    for (int64_t task = from; task < to; task++) {
        int64_t rest = task;
        const int64_t col = rest % job->col_tiles * job->col_tile;
        rest /= job->col_tiles;
        const int64_t row = rest % job->row_tiles * job->row_tile;
        rest /= job->row_tiles;
        int64_t x0 = row * m->xs[m->rank - 2] + col * m->xs[m->rank - 1];
        int64_t y0 = row * m->ys[m->rank - 2] + col * m->ys[m->rank - 1];
        for (uint32_t d = m->rank - 2; d-- > 0;) {
            const int64_t i = rest % m->dim[d];
            rest /= m->dim[d];
            x0 += i * m->xs[d];
            y0 += i * m->ys[d];
        }
        const int64_t n_rows = zx_min_i64(job->row_tile, rows - row);
        const int64_t n_cols = zx_min_i64(job->col_tile, cols - col);
        switch (m->bytes) {
        case 1:
            tile_uint8_t(m, x0, y0, n_rows, n_cols);
            break;
        case 2:
            tile_uint16_t(m, x0, y0, n_rows, n_cols);
            break;
        case 4:
            tile_uint32_t(m, x0, y0, n_rows, n_cols);
            break;
        default:
            tile_uint64_t(m, x0, y0, n_rows, n_cols);
            break;
        }
    }
}

void zx_move_run(zx_move m, int threads)
{
    int64_t count = 1;
    for (uint32_t d = 0; d < m.rank; d++) count *= m.dim[d];
    if (count == 0) return;
    zx_move_merge(&m);
    zx_move_put_reads_second(&m);
    const int64_t rows = m.dim[m.rank - 2], cols = m.dim[m.rank - 1];
    const bool across = m.xs[m.rank - 1] > 1 || m.xs[m.rank - 1] < 0;
    struct move_job job = {.m = &m};
    // Across: tiles of 16x64 elements keep both sides' cache lines. Along: about 16 KiB a task.
    job.col_tile = across ? 64 : 4096;
    job.row_tile = across ? 16 : zx_max_i64(1, 4096 / zx_min_i64(cols, 4096));
    job.row_tiles = (rows + job.row_tile - 1) / job.row_tile;
    job.col_tiles = (cols + job.col_tile - 1) / job.col_tile;
    const int64_t tasks = count / rows / cols * job.row_tiles * job.col_tiles;
    zx_split(count < ZX_GRAIN ? 1 : threads, tasks, 1, 2, move_range, &job);
}

// broadcast.c - NumPy's broadcasting as a walk over runs, and copies between strided tensors.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/common.h"

#include <string.h>

void zx_strides(const zx_shape *s, int64_t stride[ZX_MAX_RANK])
{
    int64_t n = 1;
    for (uint32_t i = s->rank; i-- > 0;) {
        stride[i] = n;
        n *= s->dim[i];
    }
}

void zx_broadcast_make(zx_broadcast *b, const zx_shape *result, const zx_view *operand, uint32_t n)
{
    int64_t stride[3][ZX_MAX_RANK] = {{0}};
    *b = (zx_broadcast){.count = zx_shape_count(result)};
    for (uint32_t k = 0; k < n; k++) {
        const zx_shape *s = &operand[k].type.shape;
        int64_t own[ZX_MAX_RANK];
        zx_strides(s, own);
        for (uint32_t i = 0; i < s->rank; i++)
            if (s->dim[i] != 1) stride[k][result->rank - s->rank + i] = own[i];
    }
    // From the outermost dim: drop ones, and merge a dim into the one outside it where every
    // operand's strides run on.
    for (uint32_t i = 0; i < result->rank; i++) {
        if (result->dim[i] == 1) continue;
        bool merge = b->rank > 0;
        for (uint32_t k = 0; merge && k < n; k++)
            merge = b->stride[k][b->rank - 1] == stride[k][i] * result->dim[i];
        if (!merge) b->rank++;
        const uint32_t at = b->rank - 1;
        b->dim[at] = (merge ? b->dim[at] : 1) * result->dim[i];
        for (uint32_t k = 0; k < n; k++) b->stride[k][at] = stride[k][i];
    }
    if (b->rank == 0) {
        b->rank = 1;
        b->dim[0] = 1;
    }
}

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
// Drops dims of one and merges neighbours that run on in both tensors.
static void merge_dims(zx_move *m)
{
    uint32_t r = 0;
    for (uint32_t i = 0; i < m->rank; i++) {
        if (m->dim[i] == 1) continue;
        if (r > 0 && m->xs[r - 1] == m->xs[i] * m->dim[i] && m->ys[r - 1] == m->ys[i] * m->dim[i]) {
            m->dim[r - 1] *= m->dim[i];
        } else {
            m->dim[r] = m->dim[i];
            r++;
        }
        m->xs[r - 1] = m->xs[i];
        m->ys[r - 1] = m->ys[i];
    }
    m->rank = r;
    while (m->rank < 2) { // a tile needs two dims: put ones outside
        for (uint32_t i = m->rank; i > 0; i--) {
            m->dim[i] = m->dim[i - 1];
            m->xs[i] = m->xs[i - 1];
            m->ys[i] = m->ys[i - 1];
        }
        m->dim[0] = 1;
        m->xs[0] = m->ys[0] = 0;
        m->rank++;
    }
}

// The dim along which x is read in steps of one goes next to the last, so that a tile of the last
// two dims holds whole cache lines of both tensors.
static void put_reads_second(zx_move *m)
{
    const uint32_t to = m->rank - 2;
    if (m->xs[m->rank - 1] == 1 || m->xs[m->rank - 1] == 0) return;
    for (uint32_t d = 0; d < to; d++) {
        if (m->xs[d] != 1) continue;
        const int64_t dim = m->dim[d], xs = m->xs[d], ys = m->ys[d];
        m->dim[d] = m->dim[to], m->xs[d] = m->xs[to], m->ys[d] = m->ys[to];
        m->dim[to] = dim, m->xs[to] = xs, m->ys[to] = ys;
        return;
    }
}

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
    merge_dims(&m);
    put_reads_second(&m);
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

// move.cuh - copies between strided tensors, of any element type.
//
// Where both tensors run along the last dim, threads write neighbours, 16 bytes each where sizes
// and addresses allow it. Where x runs along another dim, tiles of 32 x 32 go through shared memory
// so that reads and writes are both of neighbours.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_MOVE_CUH
#define ZX_KERNELS_CUDA_MOVE_CUH

#include "kernels/cuda/common.cuh"

template <class I> struct zx_places { // the dims of a zx_move; I: unsigned, for divisions
    uint32_t rank;
    I dim[ZX_MAX_RANK];
    int64_t xs[ZX_MAX_RANK], ys[ZX_MAX_RANK];
};
template <class I> static inline zx_places<I> zx_places_of(const zx_move *m)
{
    zx_places<I> p;
    p.rank = m->rank;
    for (uint32_t d = 0; d < ZX_MAX_RANK; d++) {
        p.dim[d] = d < m->rank ? (I)m->dim[d] : 1;
        p.xs[d] = m->xs[d];
        p.ys[d] = m->ys[d];
    }
    return p;
}

template <class T, class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    zx_move_along(const T *x, T *y, int64_t n, zx_places<I> p)
{
    ZX_FOR_EACH(i, n)
    {
        I rest = (I)i;
        int64_t from = 0, to = 0;
        for (uint32_t d = p.rank - 1; d > 0; d--) {
            const I q = rest / p.dim[d];
            const int64_t pos = (int64_t)(rest - q * p.dim[d]);
            from += pos * p.xs[d];
            to += pos * p.ys[d];
            rest = q;
        }
        y[to + (int64_t)rest * p.ys[0]] = x[from + (int64_t)rest * p.xs[0]];
    }
}

#define ZX_TILE 32
#define ZX_TILE_ROWS 8 // threads of a block: 32 x 8
// x runs along the last dim but one, y along the last.
template <class T, class I>
__global__ void __launch_bounds__(ZX_TILE *ZX_TILE_ROWS)
    zx_move_across(const T *x, T *y, zx_places<I> p, I row_tiles, I col_tiles)
{
    __shared__ T tile[ZX_TILE][ZX_TILE + 1];
    const uint32_t r = p.rank - 2, c = p.rank - 1;
    I rest = blockIdx.x;
    const I col = rest % col_tiles * ZX_TILE;
    rest /= col_tiles;
    const I row = rest % row_tiles * ZX_TILE;
    rest /= row_tiles;
    int64_t from = 0, to = 0;
    for (uint32_t d = r; d-- > 0;) {
        const int64_t pos = (int64_t)(rest % p.dim[d]);
        rest /= p.dim[d];
        from += pos * p.xs[d];
        to += pos * p.ys[d];
    }
    for (unsigned k = threadIdx.y; k < ZX_TILE; k += ZX_TILE_ROWS)
        if (row + threadIdx.x < p.dim[r] && col + k < p.dim[c])
            tile[k][threadIdx.x] =
                x[from + (int64_t)(row + threadIdx.x) + (int64_t)(col + k) * p.xs[c]];
    __syncthreads();
    for (unsigned k = threadIdx.y; k < ZX_TILE; k += ZX_TILE_ROWS)
        if (row + k < p.dim[r] && col + threadIdx.x < p.dim[c])
            y[to + (int64_t)(row + k) * p.ys[r] + (int64_t)(col + threadIdx.x)] =
                tile[threadIdx.x][k];
}

// Twice as large elements, half as many, where everything is even.
static inline bool zx_move_widen(zx_move *m)
{
    const uint32_t last = m->rank - 1, twice = 2 * m->bytes;
    if (m->xs[last] != 1 || m->ys[last] != 1 || m->dim[last] % 2 != 0) return false;
    if ((uintptr_t)m->x % twice != 0 || (uintptr_t)m->y % twice != 0) return false;
    for (uint32_t d = 0; d < last; d++)
        if (m->xs[d] % 2 != 0 || m->ys[d] % 2 != 0) return false;
    for (uint32_t d = 0; d < last; d++) m->xs[d] /= 2, m->ys[d] /= 2;
    m->dim[last] /= 2;
    m->bytes = twice;
    return true;
}

template <class T, class I> static cudaError_t zx_move_as(const zx_call *c, const zx_move *m)
{
    const zx_places<I> p = zx_places_of<I>(m);
    const uint32_t row = m->rank - 2, col = m->rank - 1;
    int64_t n = 1;
    for (uint32_t d = 0; d < m->rank; d++) n *= m->dim[d];
    if (m->xs[col] == 1 || m->xs[row] != 1 || m->ys[col] != 1)
        return zx_launch_each(c, n, (zx_move_along<T, I>), (const T *)m->x, (T *)m->y, n, p);
    const int64_t rows = (m->dim[row] + ZX_TILE - 1) / ZX_TILE;
    const int64_t cols = (m->dim[col] + ZX_TILE - 1) / ZX_TILE;
    const int64_t tiles = n / m->dim[row] / m->dim[col] * rows * cols;
    return zx_launch((zx_move_across<T, I>), (unsigned)tiles, dim3(ZX_TILE, ZX_TILE_ROWS), 0,
                     c->cuda->stream, (const T *)m->x, (T *)m->y, p, (I)rows, (I)cols);
}

// Queues it. The copies of a call don't overlap.
static inline cudaError_t zx_move_run(const zx_call *c, zx_move m)
{
    int64_t n = 1;
    for (uint32_t d = 0; d < m.rank; d++) n *= m.dim[d];
    if (n == 0) return cudaSuccess;
    zx_move_merge(&m);
    zx_move_put_reads_second(&m);
    while (m.bytes < 16 && zx_move_widen(&m)) continue;
    const auto as = [&](auto zero) {
        using T = decltype(zero);
        return n <= UINT32_MAX ? zx_move_as<T, uint32_t>(c, &m) : zx_move_as<T, uint64_t>(c, &m);
    };
    return m.bytes == 16 ? as(uint4()) : zx_of_bytes(m.bytes, as);
}

#endif

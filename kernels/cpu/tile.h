// tile.h - products of tiles that stay in cache, for kernels that make a large product piece by
// piece, and what lies between such products: copies, and passes over a tile of scores.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_TILE_H
#define ZX_KERNELS_CPU_TILE_H

#include "kernels/cpu/common.h"

// a matrix by its strides, in elements
typedef struct zx_tile {
    const float *x;
    int64_t row, col;
} zx_tile;

#define ZX_TILE_LINE 16 // floats of a cache line

// How far apart rows of n numbers lie in scratch: an odd number of cache lines, so that a column of
// them lies in all sets of a cache.
static inline int64_t zx_tile_row(int64_t n)
{
    return ((n + ZX_TILE_LINE - 1) / ZX_TILE_LINE | 1) * ZX_TILE_LINE;
}

// c [m,n] = a [m,k] b [k,n] (or += that). b's columns are neighbours, and its rows can be read up
// to a multiple of ZX_TILE_LINE columns; c's are neighbours too, rows c_row apart. An element is
// summed over k in order, whatever m and n are; processors that multiply and add in one instruction
// round once there.
void zx_tile_product(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                     float *c, int64_t c_row, bool add);
// What a processor's instructions are used for; the best that this one has; the product by those of
// a level up to that.
typedef enum zx_tile_level { ZX_TILE_ANY, ZX_TILE_256, ZX_TILE_512 } zx_tile_level;
zx_tile_level zx_tile_best(void);
void zx_tile_product_at(zx_tile_level level, int64_t m, int64_t n, int64_t k, zx_tile a,
                        const float *b, int64_t b_row, float *c, int64_t c_row, bool add);
// y [rows,cols] = x scale; y [cols,rows] = the transpose of x [rows,cols].
void zx_tile_copy(int64_t rows, int64_t cols, const float *x, int64_t x_row, float scale, float *y,
                  int64_t y_row);
void zx_tile_transpose(int64_t rows, int64_t cols, const float *x, int64_t x_row, float *y,
                       int64_t y_row);

// ---- a tile of scores [m,n] ---------------------------------------------------------------------
// most[r] = the greatest of row r, -inf for n = 0; NaNs are passed over.
void zx_scores_most(int64_t m, int64_t n, const float *s, int64_t s_row, float *most);
// s = e^(s - shift[r]), which has to be at most 0, up to rounding: 0 below 2^-125; sum[r] of that.
void zx_scores_exp(int64_t m, int64_t n, float *s, int64_t s_row, const float *shift, float *sum);
// p = e^(p - shift[r]) and d = p (d - delta[r]); both have rows p_row apart.
void zx_scores_slope(int64_t m, int64_t n, float *p, float *d, int64_t p_row, const float *shift,
                     const float *delta);
// What a level makes of them.
typedef struct zx_scores_passes {
    void (*most)(int64_t m, int64_t n, const float *s, int64_t s_row, float *most);
    void (*exp)(int64_t m, int64_t n, float *s, int64_t s_row, const float *shift, float *sum);
    void (*slope)(int64_t m, int64_t n, float *p, float *d, int64_t p_row, const float *shift,
                  const float *delta);
} zx_scores_passes;
const zx_scores_passes *zx_scores_at(zx_tile_level level);

#endif

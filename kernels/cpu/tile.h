// tile.h - products of tiles that stay in cache, for kernels that make a large product piece by
// piece.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_TILE_H
#define ZX_KERNELS_CPU_TILE_H

#include "kernels/cpu/common.h"

// a matrix by its strides, in elements
typedef struct zx_tile {
    const float *x;
    int64_t row, col;
} zx_tile;

// c [m,n] = a [m,k] b [k,n] (or += that). b's columns are neighbours; so are c's, whose rows are
// c_row apart. An element is summed over k in order, whatever m and n are; processors that multiply
// and add in one instruction round once there.
void zx_tile_product(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                     float *c, int64_t c_row, bool add);
// What a processor's instructions are used for; the best that this one has; the product by those of
// a level up to that.
typedef enum zx_tile_level { ZX_TILE_ANY, ZX_TILE_256, ZX_TILE_512 } zx_tile_level;
zx_tile_level zx_tile_best(void);
void zx_tile_product_at(zx_tile_level level, int64_t m, int64_t n, int64_t k, zx_tile a,
                        const float *b, int64_t b_row, float *c, int64_t c_row, bool add);
// y [cols,rows] = the transpose of x [rows,cols].
void zx_tile_transpose(int64_t rows, int64_t cols, const float *x, int64_t x_row, float *y,
                       int64_t y_row);

#endif

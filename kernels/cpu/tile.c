// tile.c - see tile.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/tile.h"

#define ROWS 4  // of a block of c that is summed at once
#define COLS 32 // likewise

// Bounds that the compiler knows let it keep the sums in registers.
ZX_CLONES static void full_block(int64_t k, zx_tile a, const float *b, int64_t b_row, float *c,
                                 int64_t c_row, bool add)
{
    float s0[COLS] = {0}, s1[COLS] = {0}, s2[COLS] = {0}, s3[COLS] = {0};
    for (int64_t i = 0; i < k; i++) {
        const float *p = a.x + i * a.col, *q = b + i * b_row;
        const float a0 = p[0], a1 = p[a.row], a2 = p[2 * a.row], a3 = p[3 * a.row];
        ZX_SIMD for (int j = 0; j < COLS; j++)
        {
            s0[j] += a0 * q[j];
            s1[j] += a1 * q[j];
            s2[j] += a2 * q[j];
            s3[j] += a3 * q[j];
        }
    }
    ZX_SIMD for (int j = 0; j < COLS; j++)
    {
        c[j] = add ? c[j] + s0[j] : s0[j];
        c[c_row + j] = add ? c[c_row + j] + s1[j] : s1[j];
        c[2 * c_row + j] = add ? c[2 * c_row + j] + s2[j] : s2[j];
        c[3 * c_row + j] = add ? c[3 * c_row + j] + s3[j] : s3[j];
    }
}

ZX_CLONES static void edge_block(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b,
                                 int64_t b_row, float *c, int64_t c_row, bool add)
{
    for (int64_t r = 0; r < m; r++) {
        float s[COLS] = {0};
        for (int64_t i = 0; i < k; i++) {
            const float x = a.x[r * a.row + i * a.col];
            ZX_SIMD for (int64_t j = 0; j < n; j++) s[j] += x * b[i * b_row + j];
        }
        for (int64_t j = 0; j < n; j++) c[r * c_row + j] = add ? c[r * c_row + j] + s[j] : s[j];
    }
}

void zx_tile_product(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                     float *c, int64_t c_row, bool add)
{
    for (int64_t j = 0; j < n; j += COLS) // b's columns stay in the first cache for all of a's rows
        for (int64_t i = 0; i < m; i += ROWS) {
            const int64_t rows = zx_min_i64(ROWS, m - i), cols = zx_min_i64(COLS, n - j);
            const zx_tile from = {a.x + i * a.row, a.row, a.col};
            float *to = c + i * c_row + j;
            if (rows == ROWS && cols == COLS)
                full_block(k, from, b + j, b_row, to, c_row, add);
            else
                edge_block(rows, cols, k, from, b + j, b_row, to, c_row, add);
        }
}

void zx_tile_transpose(int64_t rows, int64_t cols, const float *x, int64_t x_row, float *y,
                       int64_t y_row)
{
    enum { SIDE = 16 };
    for (int64_t i = 0; i < rows; i += SIDE)
        for (int64_t j = 0; j < cols; j += SIDE)
            for (int64_t r = i; r < zx_min_i64(rows, i + SIDE); r++)
                for (int64_t c = j; c < zx_min_i64(cols, j + SIDE); c++)
                    y[c * y_row + r] = x[r * x_row + c];
}

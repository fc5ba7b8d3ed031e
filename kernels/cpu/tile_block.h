// tile_block.h - one processor's product of tiles; tile.c includes it once for each, with
//   NAME(word)  its functions
//   TARGET      the attribute that lets the compiler use the processor's instructions
//   LANES       floats of one of its vectors
//   ROWS        rows of a block of c that is summed at once, two vectors wide
// SPDX-License-Identifier: Apache-2.0
#define COLS (2 * LANES)

typedef float NAME(lanes) __attribute__((vector_size(4 * LANES)));
typedef float NAME(loose) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

// Constant `rows` lets the compiler keep the sums in registers.
TARGET static inline __attribute__((always_inline)) void NAME(sum)(int64_t rows, int64_t k,
                                                                   zx_tile a, const float *b,
                                                                   int64_t b_row, float *c,
                                                                   int64_t c_row, bool add)
{
    NAME(lanes) s[ROWS][2];
    for (int64_t r = 0; r < rows; r++) s[r][0] = s[r][1] = (NAME(lanes)){0};
    for (int64_t i = 0; i < k; i++) {
        const float *p = a.x + i * a.col, *q = b + i * b_row;
        const NAME(lanes) left = *(const NAME(loose) *)q, right = *(const NAME(loose) *)(q + LANES);
        _Pragma("GCC unroll 8") for (int64_t r = 0; r < rows; r++)
        {
            s[r][0] += p[r * a.row] * left;
            s[r][1] += p[r * a.row] * right;
        }
    }
    _Pragma("GCC unroll 8") for (int64_t r = 0; r < rows; r++)
    {
        NAME(loose) *left = (NAME(loose) *)(c + r * c_row);
        NAME(loose) *right = (NAME(loose) *)(c + r * c_row + LANES);
        if (add) {
            s[r][0] += *left;
            s[r][1] += *right;
        }
        *left = s[r][0];
        *right = s[r][1];
    }
}

TARGET static void NAME(block)(int64_t k, zx_tile a, const float *b, int64_t b_row, float *c,
                               int64_t c_row, bool add)
{
    NAME(sum)(ROWS, k, a, b, b_row, c, c_row, add);
}
TARGET static void NAME(row)(int64_t k, zx_tile a, const float *b, int64_t b_row, float *c,
                             bool add)
{
    NAME(sum)(1, k, a, b, b_row, c, 0, add);
}

// n < COLS columns of a row.
TARGET static void NAME(edge)(int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                              float *c, bool add)
{
    float s[COLS] = {0};
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++) s[j] += a.x[i * a.col] * b[i * b_row + j];
    for (int64_t j = 0; j < n; j++) c[j] = add ? s[j] + c[j] : s[j];
}

// b's columns stay in the first cache for all of a's rows.
static void NAME(product)(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                          float *c, int64_t c_row, bool add)
{
    for (int64_t j = 0; j < n; j += COLS) {
        const bool full = n - j >= COLS;
        for (int64_t i = 0, rows; i < m; i += rows) {
            const zx_tile from = {a.x + i * a.row, a.row, a.col};
            float *to = c + i * c_row + j;
            rows = full && m - i >= ROWS ? ROWS : 1;
            if (rows > 1)
                NAME(block)(k, from, b + j, b_row, to, c_row, add);
            else if (full)
                NAME(row)(k, from, b + j, b_row, to, add);
            else
                NAME(edge)(n - j, k, from, b + j, b_row, to, add);
        }
    }
}
#undef COLS
#undef LANES
#undef ROWS
#undef NAME
#undef TARGET

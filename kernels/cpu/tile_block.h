// tile_block.h - one processor's product of tiles; tile.c includes it once for each, with
//   NAME(word)  its functions
//   TARGET      the attribute that lets the compiler use the processor's instructions
//   LANES       floats of one of its vectors
//   VECTORS     of a row of a block of c that is summed at once, 2 or 4; a block has up to 6 rows
// SPDX-License-Identifier: Apache-2.0

typedef float NAME(lanes) __attribute__((vector_size(4 * LANES)));
typedef float NAME(loose) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

TARGET static inline __attribute__((always_inline)) void NAME(put)(float *c, NAME(lanes) s,
                                                                   bool add)
{
    NAME(loose) *to = (NAME(loose) *)c;
    if (add) s += *to;
    *to = s;
}

// Constant `rows` and `vectors` let the compiler keep the sums in registers. Of the last vector
// only `last` numbers are c's.
TARGET static inline __attribute__((always_inline)) void
NAME(sum)(int64_t rows, int64_t vectors, int64_t k, zx_tile a, const float *b, int64_t b_row,
          float *c, int64_t c_row, int64_t last, bool add)
{
    NAME(lanes) s[6][VECTORS];
    UNROLL for (int64_t r = 0; r < rows; r++) UNROLL for (int64_t v = 0; v < vectors; v++) s[r][v] =
        (NAME(lanes)){0};
    for (int64_t i = 0; i < k; i++) {
        const float *p = a.x + i * a.col, *q = b + i * b_row;
        NAME(lanes) right[VECTORS];
        UNROLL for (int64_t v = 0; v < vectors; v++) right[v] =
            *(const NAME(loose) *)(q + v * LANES);
        UNROLL for (int64_t r = 0; r < rows; r++)
        {
            UNROLL for (int64_t v = 0; v < vectors; v++) s[r][v] += p[r * a.row] * right[v];
        }
    }
    UNROLL for (int64_t r = 0; r < rows; r++)
    {
        float *to = c + r * c_row;
        UNROLL for (int64_t v = 0; v + 1 < vectors; v++) NAME(put)(to + v * LANES, s[r][v], add);
        to += (vectors - 1) * LANES;
        if (last == LANES) {
            NAME(put)(to, s[r][vectors - 1], add);
        } else {
            four part[LANES / 4];
            memcpy(part, &s[r][vectors - 1], sizeof part);
            put_some(to, part, last, add);
        }
    }
}

#define BLOCK(R, V)                                                                                \
    TARGET static void NAME(block##R##V)(int64_t k, zx_tile a, const float *b, int64_t b_row,      \
                                         float *c, int64_t c_row, int64_t last, bool add)          \
    {                                                                                              \
        NAME(sum)(R, V, k, a, b, b_row, c, c_row, last, add);                                      \
    }
#define BLOCKS(V) BLOCK(1, V) BLOCK(2, V) BLOCK(3, V) BLOCK(4, V) BLOCK(5, V) BLOCK(6, V)
#define NAMES(V)                                                                                   \
    {                                                                                              \
        NAME(block1##V), NAME(block2##V), NAME(block3##V), NAME(block4##V), NAME(block5##V),       \
            NAME(block6##V)                                                                        \
    }
BLOCKS(1)
BLOCKS(2)
#if VECTORS == 4
BLOCKS(3)
BLOCKS(4)
#endif

// b's columns stay in the first cache for all of a's rows.
static void NAME(product)(int64_t m, int64_t n, int64_t k, zx_tile a, const float *b, int64_t b_row,
                          float *c, int64_t c_row, bool add)
{
    static void (*const blocks[VECTORS][6])(int64_t, zx_tile, const float *, int64_t, float *,
                                            int64_t, int64_t, bool) = {
        NAMES(1),
        NAMES(2),
#if VECTORS == 4
        NAMES(3),
        NAMES(4)
#endif
    };
    for (int64_t j = 0, vectors; j < n; j += vectors * LANES) {
        vectors = share((n - j + LANES - 1) / LANES, VECTORS);
        const int64_t last = zx_min_i64(LANES, n - j - (vectors - 1) * LANES);
        for (int64_t i = 0, rows; i < m; i += rows) {
            rows = share(m - i, 6);
            blocks[vectors - 1][rows - 1](k, (zx_tile){a.x + i * a.row, a.row, a.col}, b + j, b_row,
                                          c + i * c_row + j, c_row, last, add);
        }
    }
}
#undef BLOCK
#undef BLOCKS
#undef NAMES
#undef LANES
#undef VECTORS
#undef NAME
#undef TARGET

// attention.cuh - what attention and its gradient share: operands by their strides, tiles of rows
// in shared memory, the scores of a tile and their mask.
//
// A block of 128 threads has a tile: 16 groups of 8 threads. A thread has R rows, 16 apart, and J
// columns, 8 apart, of what is a product of two tiles; and of what is added up for its rows every
// eighth number, C of them. So the sums of a row are within 8 lanes of a warp, and a float that is
// read from shared memory serves R or J products. R and J are as large as a block's shared memory
// allows: heads of up to ZX_HEAD numbers want 64 KiB at least.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_ATTENTION_CUH
#define ZX_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/rows.cuh"

#define ZX_HEAD 256
#define ZX_TEAM 128 // threads
#define ZX_GROUPS 16
#define ZX_LANES 8
#define ZX_LEAST_SHARED 65536 // bytes that a block of every device gets where it asks

// ---- operands -----------------------------------------------------------------------------------
// [batch, heads, rows, size] by its strides: the dims may lie in two orders.
typedef struct zx_heads {
    int64_t n, rows, size; // heads, rows and numbers of one
    int64_t of_batch, of_head, of_row;
} zx_heads;
static __device__ inline int64_t zx_head_at(const zx_heads &h, int64_t batch, int64_t head)
{
    return batch * h.of_batch + head * h.of_head;
}

typedef struct zx_attention {
    int64_t batch;
    zx_heads q, k, v, y;
    int64_t q_first, k_first, v_first; // elements into their operand
    float scale, cap;
    bool causal, mean; // of all values, where a row is masked as a whole: not 0
    int64_t shift;     // key j is seen by query i where j <= i + shift
    bool has_mask, is_bool;
    int64_t mask[4]; // strides: batch, head, query, key; 0 where it is repeated
} zx_attention;

static inline zx_heads zx_heads_of(const zx_view *v, int64_t n)
{
    const int64_t *d = v->type.shape.dim;
    const zx_heads apart = {d[1], d[2], d[3], d[1] * d[2] * d[3], d[2] * d[3], d[3]};
    const zx_heads beside = {n, d[1], d[2] / n, d[1] * d[2], d[2] / n, d[2]};
    return v->type.shape.rank == 4 ? apart : beside;
}
// q, k, v are the inputs from `first` on, or side by side in one of them. y: a result or its
// gradient. mask: its input.
static inline zx_attention zx_attention_of(const zx_call *c, uint32_t first, bool packed,
                                           const zx_view *y, uint32_t mask)
{
    const int64_t nq = zx_attr_int(c->attrs, ZX_A_HEADS, 1);
    const int64_t nkv = zx_attr_int(c->attrs, ZX_A_KV_HEADS, 1);
    const zx_view *in = &c->in[first];
    const int64_t *d = in->type.shape.dim;
    zx_attention a;
    a.batch = d[0];
    a.q_first = a.k_first = a.v_first = 0;
    if (packed) {
        const int64_t size = d[2] / (nq + 2 * nkv);
        const zx_heads q = {nq, d[1], size, d[1] * d[2], size, d[2]};
        a.q = a.k = a.v = q;
        a.k.n = a.v.n = nkv;
        a.k_first = nq * size;
        a.v_first = (nq + nkv) * size;
    } else {
        a.q = zx_heads_of(&in[0], nq);
        a.k = zx_heads_of(&in[1], nkv);
        a.v = zx_heads_of(&in[2], nkv);
    }
    a.y = zx_heads_of(y, a.q.n);
    a.scale = (float)zx_attr_float(c->attrs, ZX_A_SCALE, 1);
    a.cap = (float)zx_attr_float(c->attrs, ZX_A_SOFTCAP, 0);
    a.causal = zx_attr_int(c->attrs, ZX_A_CAUSAL, 0) != 0;
    a.mean = zx_attr_int(c->attrs, ZX_A_MODE, 0) != 0;
    a.shift = zx_attr_int(c->attrs, ZX_A_K, 0);
    a.has_mask = zx_has(c, mask);
    a.is_bool = a.has_mask && c->in[mask].type.dtype == ZX_BOOL;
    for (int k = 0; k < 4; k++) a.mask[k] = 0;
    if (!a.has_mask) return a;
    const zx_shape *s = &c->in[mask].type.shape;
    int64_t stride[ZX_MAX_RANK];
    zx_strides(s, stride);
    for (uint32_t k = 0; k < s->rank; k++)
        if (s->dim[k] != 1) a.mask[4 - s->rank + k] = stride[k];
    return a;
}
static inline const void *zx_mask_of(const zx_call *c, uint32_t mask)
{
    return zx_has(c, mask) ? c->in[mask].data : NULL;
}
static inline zx_status zx_attention_check(const zx_attention *a, zx_err *err)
{
    if (a->q.size <= ZX_HEAD && a->v.size <= ZX_HEAD) return ZX_OK;
    return ZX_FAIL(err, ZX_E_UNSUPPORTED,
                   "no CUDA kernel for attention with heads of %lld and %lld"
                   " numbers: at most %d",
                   (long long)a->q.size, (long long)a->v.size, ZX_HEAD);
}

// ---- tiles --------------------------------------------------------------------------------------
// Scores, or their slopes: a tile's columns, and one more so that rows begin in other banks. All
// that is shared is asked for at the launch: with memory beside it 48 KiB would be the most.
template <int J> using zx_scores = float[J * ZX_LANES + 1];

// Tiles of R and J for sums of C numbers a thread, with the bytes that a launch wants.
typedef struct zx_tiles {
    int r, j, c;
    size_t bytes;
} zx_tiles;
// The large ones (`rows` of R and 4 J, for heads of more than 128 half as many), or where a block
// doesn't get the memory that they want, `few`. `bytes_of` says what tiles of R and J want.
template <class Bytes>
static inline zx_tiles zx_tiles_for(const zx_attention &a, const zx_call *c, int rows,
                                    zx_tiles few, Bytes bytes_of)
{
    const size_t most = c->cuda->shared_bytes > 0 ? c->cuda->shared_bytes : ZX_LEAST_SHARED;
    const int64_t size = a.q.size > a.v.size ? a.q.size : a.v.size;
    const bool wide = size > 128;
    zx_tiles t = {wide ? rows / 2 : rows, 4, wide ? 32 : size > 64 ? 16 : 8, 0};
    t.bytes = bytes_of(a, t.r, t.j);
    if (t.bytes <= most) return t;
    t = wide ? few : zx_tiles{rows / 2, 4, 16, 0};
    t.bytes = bytes_of(a, t.r, t.j);
    return t;
}
// A row's floats in shared memory: whole quads, and one more so that rows begin in other banks.
static __device__ __host__ inline int zx_tile_row(int64_t size)
{
    return (int)((size + 3) / 4 * 4 + 4);
}
// Rows [first, first + n) of x, zeros behind `rows` and behind a row's end.
static __device__ inline void zx_tile_load(float *tile, const float *x, int64_t first, int n,
                                           int64_t rows, int64_t size, int64_t of_row)
{
    const int wide = zx_tile_row(size), used = wide - 4;
    for (int i = (int)threadIdx.x; i < n * used; i += ZX_TEAM) {
        const int r = i / used, c = i % used;
        tile[r * wide + c] = first + r < rows && c < size ? x[(first + r) * of_row + c] : 0.0f;
    }
}
// s[i][j] = the product of row group + 16 i of a with row lane + 8 j of b: sums of ZX_RUN products,
// added up.
#define ZX_RUN 32
template <int R, int J>
static __device__ inline void zx_tile_product(const float *a, const float *b, int64_t size,
                                              float (&s)[R][J])
{
    const int wide = zx_tile_row(size), end = wide - 4;
    const int group = (int)threadIdx.x / ZX_LANES, lane = (int)threadIdx.x % ZX_LANES;
    ZX_EVERY(i, R)
    ZX_EVERY(j, J) s[i][j] = 0.0f;
    for (int from = 0; from < end; from += ZX_RUN) {
        float part[R][J];
        ZX_EVERY(i, R)
        ZX_EVERY(j, J) part[i][j] = 0.0f;
        for (int d = from; d < end && d < from + ZX_RUN; d += 4) {
            float4 of_a[R], of_b[J];
            ZX_EVERY(i, R)
            of_a[i] = *(const float4 *)&a[(group + ZX_GROUPS * i) * wide + d];
            ZX_EVERY(j, J)
            of_b[j] = *(const float4 *)&b[(lane + ZX_LANES * j) * wide + d];
            ZX_EVERY(i, R)
            ZX_EVERY(j, J)
            {
                part[i][j] += of_a[i].x * of_b[j].x;
                part[i][j] += of_a[i].y * of_b[j].y;
                part[i][j] += of_a[i].z * of_b[j].z;
                part[i][j] += of_a[i].w * of_b[j].w;
            }
        }
        ZX_EVERY(i, R)
        ZX_EVERY(j, J) s[i][j] += part[i][j];
    }
}
// sum[i][c] += weights row group + 16 i times the rows of x, numbers lane + 8 c.
template <int J, int R, int C>
static __device__ inline void zx_tile_add(const zx_scores<J> *weights, const float *x, int64_t size,
                                          float (&sum)[R][C])
{
    const int wide = zx_tile_row(size);
    const int group = (int)threadIdx.x / ZX_LANES, lane = (int)threadIdx.x % ZX_LANES;
    for (int j = 0; j < J * ZX_LANES; j++) {
        float w[R];
        ZX_EVERY(i, R) w[i] = weights[group + ZX_GROUPS * i][j];
        ZX_EVERY(c, C)
        {
            const int at = lane + ZX_LANES * c;
            const float v = at < size ? x[j * wide + at] : 0.0f;
            ZX_EVERY(i, R) sum[i][c] += w[i] * v;
        }
    }
}
// Writes the sums of rows [first, first + 16 R).
template <int R, int C>
static __device__ inline void zx_tile_store(float *y, int64_t first, int64_t rows, int64_t size,
                                            int64_t of_row, const float (&sum)[R][C])
{
    const int group = (int)threadIdx.x / ZX_LANES, lane = (int)threadIdx.x % ZX_LANES;
    ZX_EVERY(i, R)
    {
        const int64_t row = first + group + ZX_GROUPS * i;
        ZX_EVERY(c, C)
        if (row < rows && lane + ZX_LANES * c < size)
            y[row * of_row + lane + ZX_LANES * c] = sum[i][c];
    }
}
static __device__ inline float zx_lanes_sum(float x) // over the 8 threads of a group
{
    for (int with = 1; with < ZX_LANES; with *= 2) x += zx_shuffle_xor(x, with);
    return x;
}
static __device__ inline float zx_lanes_max(float x) // NaNs are passed over
{
    for (int with = 1; with < ZX_LANES; with *= 2) {
        const float other = zx_shuffle_xor(x, with);
        x = other > x ? other : x;
    }
    return x;
}

// ---- scores -------------------------------------------------------------------------------------
static __device__ inline int64_t zx_keys_of(const zx_attention &a, int64_t query)
{
    const int64_t seen = query + a.shift + 1;
    return a.causal && seen < a.k.rows ? (seen > 0 ? seen : 0) : a.k.rows;
}
// A product of query and key as a score: scaled, capped (*capped: so far), masked. *open: whether
// the mask lets it through.
static __device__ inline float zx_score(const zx_attention &a, const void *mask, int64_t batch,
                                        int64_t head, int64_t query, int64_t key, float product,
                                        float *capped, bool *open)
{
    float s = product * a.scale;
    if (a.cap > 0) s = a.cap * tanhf(s / a.cap);
    *capped = s;
    *open = query < a.q.rows && key < zx_keys_of(a, query);
    if (*open && a.has_mask) {
        const int64_t at =
            batch * a.mask[0] + head * a.mask[1] + query * a.mask[2] + key * a.mask[3];
        if (a.is_bool) {
            *open = ((const uint8_t *)mask)[at] != 0;
        } else {
            const float m = ((const float *)mask)[at];
            s += m;
            *open = m != -INFINITY;
        }
    }
    return *open ? s : -INFINITY;
}

#endif

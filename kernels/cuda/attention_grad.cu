// attention_grad.cu - attention's gradient, float32: the scores of tiles of up to 32 queries and 32
// keys are made again from q, k and the rows' log-sum-exp, p = e^(s - lse), ds = p (dy v' - dy.y).
//
// Two kernels, so that each sum is one block's: dq goes over the keys, dk and dv over the queries
// of all heads that share the keys, in order. Scratch is dy.y of each query.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention.cuh"

namespace
{

// ---- dy.y: added in the order of zx_tile_product, so that a row with one key has no slope at all
// -
__global__ void __launch_bounds__(ZX_BLOCK)
    dots(const float *dy, const float *y, float *delta, int64_t rows, zx_attention a)
{
    ZX_FOR_EACH(row, rows)
    {
        const int64_t query = row % a.q.rows, head = row / a.q.rows % a.q.n;
        const int64_t at = zx_head_at(a.y, row / a.q.rows / a.q.n, head) + query * a.y.of_row;
        float sum = 0.0f;
        for (int64_t from = 0; from < a.y.size; from += ZX_RUN) {
            float part = 0.0f;
            for (int64_t i = from; i < a.y.size && i < from + ZX_RUN; i++)
                part += dy[at + i] * y[at + i];
            sum += part;
        }
        delta[row] = sum;
    }
}

// ---- slopes -------------------------------------------------------------------------------------
// p of a query and a key, and *ds: their score's gradient, times the scale. `dp` is dy v'.
static __device__ inline float slope(const zx_attention &a, const void *mask, int64_t batch,
                                     int64_t head, int64_t query, int64_t key, float product,
                                     float dp, float lse, float delta, float *ds)
{
    float capped;
    bool open;
    const float s = zx_score(a, mask, batch, head, query, key, product, &capped, &open);
    *ds = 0.0f;
    if (query >= a.q.rows || key >= a.k.rows) return 0.0f;
    if (lse == -INFINITY) return a.mean ? 1.0f / (float)a.k.rows : 0.0f; // masked as a whole
    if (key >= zx_keys_of(a, query)) return 0.0f;
    const float p = expf(s - lse), t = capped / a.cap;
    *ds = p * (dp - delta) * a.scale;
    if (a.cap > 0) *ds *= 1.0f - t * t;
    return p;
}

// What is known of a query: its log-sum-exp and dy.y.
typedef struct known {
    float lse, delta;
} known;
static __device__ inline known known_of(const zx_attention &a, const float *lses,
                                        const float *delta, int64_t batch, int64_t head,
                                        int64_t query)
{
    known k = {0.0f, 0.0f};
    if (query >= a.q.rows) return k;
    const int64_t at = (batch * a.q.n + head) * a.q.rows + query;
    k.lse = lses[at];
    k.delta = delta[at];
    return k;
}

// ---- dq: a block has 16 or 32 queries of a
// head----------------------------------------------------
template <int ROWS, int J, int C>
__global__ void __launch_bounds__(ZX_TEAM)
    grad_queries(const float *dy, const float *q, const float *k, const float *v, const float *lses,
                 const float *deltas, const void *mask, float *dq, zx_attention a, int64_t tiles)
{
    constexpr int TILE = ROWS * ZX_GROUPS, COLUMNS = J * ZX_LANES;
    ZX_SHARED(float, shared);
    const int of_q = zx_tile_row(a.q.size), of_v = zx_tile_row(a.v.size);
    float *const tq = shared, *const tk = tq + TILE * of_q;
    float *const tdy = tk + COLUMNS * of_q, *const tv = tdy + TILE * of_v;
    zx_scores<J> *const ds = (zx_scores<J> *)(tv + COLUMNS * of_v);
    const int64_t head = blockIdx.x / tiles % a.q.n, batch = blockIdx.x / tiles / a.q.n;
    const int64_t first = blockIdx.x % tiles * TILE, kv = head / (a.q.n / a.k.n);
    const int group = (int)threadIdx.x / ZX_LANES, lane = (int)threadIdx.x % ZX_LANES;
    const int64_t end = first + TILE < a.q.rows ? first + TILE : a.q.rows;
    const int64_t keys = zx_keys_of(a, end - 1);
    float sum[ROWS][C];
    known of_row[ROWS];
    ZX_EVERY(i, ROWS)
    {
        of_row[i] = known_of(a, lses, deltas, batch, head, first + group + ZX_GROUPS * i);
        ZX_EVERY(c, C) sum[i][c] = 0.0f;
    }
    k += zx_head_at(a.k, batch, kv);
    v += zx_head_at(a.v, batch, kv);
    zx_tile_load(tq, q + zx_head_at(a.q, batch, head), first, TILE, a.q.rows, a.q.size, a.q.of_row);
    zx_tile_load(tdy, dy + zx_head_at(a.y, batch, head), first, TILE, a.q.rows, a.v.size,
                 a.y.of_row);
    for (int64_t at = 0; at < keys; at += COLUMNS) {
        float s[ROWS][J], dp[ROWS][J];
        __syncthreads();
        zx_tile_load(tk, k, at, COLUMNS, a.k.rows, a.q.size, a.k.of_row);
        zx_tile_load(tv, v, at, COLUMNS, a.v.rows, a.v.size, a.v.of_row);
        __syncthreads();
        zx_tile_product(tq, tk, a.q.size, s);
        zx_tile_product(tdy, tv, a.v.size, dp);
        ZX_EVERY(i, ROWS)
        ZX_EVERY(j, J)
        slope(a, mask, batch, head, first + group + ZX_GROUPS * i, at + lane + ZX_LANES * j,
              s[i][j], dp[i][j], of_row[i].lse, of_row[i].delta,
              &ds[group + ZX_GROUPS * i][lane + ZX_LANES * j]);
        __syncwarp(); // a row's slopes are of this warp
        zx_tile_add<J>(ds, tk, a.q.size, sum);
    }
    zx_tile_store(dq + zx_head_at(a.q, batch, head), first, a.q.rows, a.q.size, a.q.of_row, sum);
}

// ---- dk and dv: a block has 16 or 32 keys of a head----------------------------------------
template <int ROWS, int J, int C>
__global__ void __launch_bounds__(ZX_TEAM)
    grad_keys(const float *dy, const float *q, const float *k, const float *v, const float *lses,
              const float *deltas, const void *mask, float *dk, float *dv, zx_attention a,
              int64_t tiles)
{
    constexpr int TILE = ROWS * ZX_GROUPS, COLUMNS = J * ZX_LANES;
    ZX_SHARED(float, shared);
    const int of_q = zx_tile_row(a.q.size), of_v = zx_tile_row(a.v.size);
    float *const tk = shared, *const tq = tk + TILE * of_q;
    float *const tv = tq + COLUMNS * of_q, *const tdy = tv + TILE * of_v;
    zx_scores<J> *const p = (zx_scores<J> *)(tdy + COLUMNS * of_v), *const ds = p + TILE;
    const int64_t kv = blockIdx.x / tiles % a.k.n, batch = blockIdx.x / tiles / a.k.n;
    const int64_t first = blockIdx.x % tiles * TILE, shared_by = a.q.n / a.k.n;
    const int group = (int)threadIdx.x / ZX_LANES, lane = (int)threadIdx.x % ZX_LANES;
    // Queries before the first that sees one of these keys have nothing to give.
    const int64_t before = a.causal && first > a.shift ? first - a.shift : 0;
    float of_k[ROWS][C], of_v_sum[ROWS][C];
    ZX_EVERY(i, ROWS)
    ZX_EVERY(c, C) of_k[i][c] = of_v_sum[i][c] = 0.0f;
    zx_tile_load(tk, k + zx_head_at(a.k, batch, kv), first, TILE, a.k.rows, a.q.size, a.k.of_row);
    zx_tile_load(tv, v + zx_head_at(a.v, batch, kv), first, TILE, a.v.rows, a.v.size, a.v.of_row);
    for (int64_t head = kv * shared_by; head < (kv + 1) * shared_by; head++)
        for (int64_t at = before / COLUMNS * COLUMNS; at < a.q.rows; at += COLUMNS) {
            float s[ROWS][J], dp[ROWS][J];
            __syncthreads();
            zx_tile_load(tq, q + zx_head_at(a.q, batch, head), at, COLUMNS, a.q.rows, a.q.size,
                         a.q.of_row);
            zx_tile_load(tdy, dy + zx_head_at(a.y, batch, head), at, COLUMNS, a.q.rows, a.v.size,
                         a.y.of_row);
            __syncthreads();
            zx_tile_product(tk, tq, a.q.size, s);
            zx_tile_product(tv, tdy, a.v.size, dp);
            ZX_EVERY(j, J)
            {
                const int column = lane + ZX_LANES * j;
                const known of = known_of(a, lses, deltas, batch, head, at + column);
                ZX_EVERY(i, ROWS)
                {
                    const int row = group + ZX_GROUPS * i;
                    p[row][column] = slope(a, mask, batch, head, at + column, first + row, s[i][j],
                                           dp[i][j], of.lse, of.delta, &ds[row][column]);
                }
            }
            __syncwarp();
            zx_tile_add<J>(ds, tq, a.q.size, of_k);
            zx_tile_add<J>(p, tdy, a.v.size, of_v_sum);
        }
    if (dk != NULL)
        zx_tile_store(dk + zx_head_at(a.k, batch, kv), first, a.k.rows, a.q.size, a.k.of_row, of_k);
    if (dv != NULL)
        zx_tile_store(dv + zx_head_at(a.v, batch, kv), first, a.v.rows, a.v.size, a.v.of_row,
                      of_v_sum);
}

// ---- launches: dy, [q, k, v or one of all], y, lse, [mask] --------------------------------------
zx_attention operands_of(const zx_call *c, bool packed)
{
    return zx_attention_of(c, 1, packed, &c->in[0], packed ? 4 : 6);
}
size_t bytes_of(const zx_attention &a, int r, int j)
{
    const size_t tile = (size_t)r * ZX_GROUPS, columns = (size_t)j * ZX_LANES;
    const size_t rows = (size_t)(zx_tile_row(a.q.size) + zx_tile_row(a.v.size));
    return ((tile + columns) * rows + 2 * tile * (columns + 1)) * sizeof(float);
}

zx_status prepare(const zx_call *c, bool packed, uint64_t *work_bytes, zx_err *err)
{
    const zx_attention a = operands_of(c, packed);
    *work_bytes = (uint64_t)(a.batch * a.q.n * a.q.rows) * sizeof(float);
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    return zx_attention_check(&a, err);
}
cudaError_t launch(const zx_call *c, bool packed)
{
    const zx_attention a = operands_of(c, packed);
    const uint32_t y = packed ? 2 : 4;
    const float *dy = (const float *)c->in[0].data, *q = (const float *)c->in[1].data;
    const float *k = packed ? q + a.k_first : (const float *)c->in[2].data;
    const float *v = packed ? q + a.v_first : (const float *)c->in[3].data;
    float *dq = (float *)c->out[0].data, *delta = (float *)c->work;
    float *dk = packed ? dq + a.k_first : (float *)c->out[1].data;
    float *dv = packed ? dq + a.v_first : (float *)c->out[2].data;
    const float *lses = (const float *)c->in[y + 1].data;
    const void *mask = zx_mask_of(c, y + 2);
    const zx_tiles t = zx_tiles_for(a, c, 2, {1, 1, 32, 0}, bytes_of);
    const int64_t rows = a.batch * a.q.n * a.q.rows, tile = t.r * ZX_GROUPS;
    const int64_t q_tiles = (a.q.rows + tile - 1) / tile, k_tiles = (a.k.rows + tile - 1) / tile;
    const int64_t q_blocks = a.batch * a.q.n * q_tiles, k_blocks = a.batch * a.k.n * k_tiles;
    cudaStream_t s = c->cuda->stream;
    cudaError_t e = zx_launch_each(c, rows, dots, dy, (const float *)c->in[y].data, delta, rows, a);
    const auto queries = [&](auto kernel) {
        return zx_launch(kernel, (unsigned)q_blocks, ZX_TEAM, t.bytes, s, dy, q, k, v, lses,
                         (const float *)delta, mask, dq, a, q_tiles);
    };
    const auto keys = [&](auto kernel) {
        return zx_launch(kernel, (unsigned)k_blocks, ZX_TEAM, t.bytes, s, dy, q, k, v, lses,
                         (const float *)delta, mask, dk, dv, a, k_tiles);
    };
    if (e == cudaSuccess && dq != NULL && q_blocks > 0)
        e = t.c == 8                ? queries(grad_queries<2, 4, 8>)
            : t.c == 16 && t.r == 2 ? queries(grad_queries<2, 4, 16>)
            : t.c == 16             ? queries(grad_queries<1, 4, 16>)
            : t.j == 4              ? queries(grad_queries<1, 4, 32>)
                                    : queries(grad_queries<1, 1, 32>);
    if (e == cudaSuccess && (dk != NULL || dv != NULL) && k_blocks > 0)
        e = t.c == 8                ? keys(grad_keys<2, 4, 8>)
            : t.c == 16 && t.r == 2 ? keys(grad_keys<2, 4, 16>)
            : t.c == 16             ? keys(grad_keys<1, 4, 16>)
            : t.j == 4              ? keys(grad_keys<1, 4, 32>)
                                    : keys(grad_keys<1, 1, 32>);
    return e;
}

zx_status prepare_apart(const zx_call *c, uint64_t *work_bytes, void **, zx_err *err)
{
    return prepare(c, false, work_bytes, err);
}
zx_status prepare_packed(const zx_call *c, uint64_t *work_bytes, void **, zx_err *err)
{
    return prepare(c, true, work_bytes, err);
}
zx_status run_apart(const zx_call *c, zx_err *err)
{
    return zx_cuda_check(launch(c, false), "attention_grad", err);
}
zx_status run_packed(const zx_call *c, zx_err *err)
{
    return zx_cuda_check(launch(c, true), "packed_attention_grad", err);
}

} // namespace

const zx_kernel zx_cuda_attention_grad = {prepare_apart, NULL, run_apart};
const zx_kernel zx_cuda_packed_attention_grad = {prepare_packed, NULL, run_packed};

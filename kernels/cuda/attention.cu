// attention.cu - attention, float32, without the scores ever being in memory: a block has up to 64
// queries of a head and goes over the keys up to 32 at a time, with the softmax's maximum and sum
// carried along.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention.cuh"

namespace
{

template <int ROWS, int J, int C>
__global__ void __launch_bounds__(ZX_TEAM)
    attend(const float *q, const float *k, const float *v, const void *mask, float *y, float *lses,
           zx_attention a, int64_t tiles)
{
    constexpr int QUERIES = ROWS * ZX_GROUPS, COLUMNS = J * ZX_LANES;
    ZX_SHARED(float, shared);
    float *const tq = shared, *const tk = tq + QUERIES * zx_tile_row(a.q.size);
    float *const tv = tk + COLUMNS * zx_tile_row(a.q.size);
    zx_scores<J> *const weights = (zx_scores<J> *)(tv + COLUMNS * zx_tile_row(a.v.size));
    const int64_t head = blockIdx.x / tiles % a.q.n, batch = blockIdx.x / tiles / a.q.n;
    const int64_t first = blockIdx.x % tiles * QUERIES, kv = head / (a.q.n / a.k.n);
    const int group = (int)threadIdx.x / ZX_LANES, lane = (int)threadIdx.x % ZX_LANES;
    q += zx_head_at(a.q, batch, head);
    k += zx_head_at(a.k, batch, kv);
    v += zx_head_at(a.v, batch, kv);
    y += zx_head_at(a.y, batch, head);
    const int64_t last = first + QUERIES < a.q.rows ? first + QUERIES : a.q.rows;
    const int64_t keys = zx_keys_of(a, last - 1);
    float sum[ROWS][C], most[ROWS], total[ROWS];
    bool any[ROWS]; // the mask leaves the row a key
    ZX_EVERY(i, ROWS)
    {
        ZX_EVERY(c, C) sum[i][c] = 0.0f;
        most[i] = -INFINITY;
        total[i] = 0.0f;
        any[i] = false;
    }
    zx_tile_load(tq, q, first, QUERIES, a.q.rows, a.q.size, a.q.of_row);
    for (int64_t at = 0; at < keys; at += COLUMNS) {
        float s[ROWS][J];
        __syncthreads();
        zx_tile_load(tk, k, at, COLUMNS, a.k.rows, a.q.size, a.k.of_row);
        zx_tile_load(tv, v, at, COLUMNS, a.v.rows, a.v.size, a.v.of_row);
        __syncthreads();
        zx_tile_product(tq, tk, a.q.size, s);
        ZX_EVERY(i, ROWS)
        {
            const int64_t query = first + group + ZX_GROUPS * i;
            float high = most[i], part = 0.0f;
            ZX_EVERY(j, J)
            {
                float capped;
                bool open;
                s[i][j] = zx_score(a, mask, batch, head, query, at + lane + ZX_LANES * j, s[i][j],
                                   &capped, &open);
                any[i] = any[i] || open;
                high = s[i][j] > high ? s[i][j] : high;
            }
            high = zx_lanes_max(high);
            const float shift = high == -INFINITY ? 0.0f : high; // not -inf + inf
            const float kept = most[i] == -INFINITY ? 1.0f : expf(most[i] - shift);
            ZX_EVERY(j, J)
            {
                const float p = expf(s[i][j] - shift);
                weights[group + ZX_GROUPS * i][lane + ZX_LANES * j] = p;
                part += p;
            }
            total[i] = total[i] * kept + zx_lanes_sum(part);
            ZX_EVERY(c, C) sum[i][c] *= kept;
            most[i] = high;
        }
        __syncwarp(); // a row's weights are of this warp
        zx_tile_add<J>(weights, tv, a.v.size, sum);
    }
    ZX_EVERY(i, ROWS)
    {
        const int64_t query = first + group + ZX_GROUPS * i;
        const bool out = zx_lanes_max(any[i] ? 1.0f : 0.0f) == 0.0f;
        // Scores that became -inf by themselves are undefined.
        const float part = out ? 0.0f : most[i] == -INFINITY ? NAN : 1.0f / total[i];
        ZX_EVERY(c, C) sum[i][c] = out ? 0.0f : sum[i][c] * part;
        if (out && a.mean && query < a.q.rows) {
            for (int64_t j = 0; j < keys; j++) ZX_EVERY(c, C)
            if (lane + ZX_LANES * c < a.v.size)
                sum[i][c] += v[j * a.v.of_row + lane + ZX_LANES * c];
            ZX_EVERY(c, C)
            if (keys > 0) sum[i][c] /= (float)keys;
        }
        if (lane == 0 && query < a.q.rows && lses != NULL)
            lses[(batch * a.q.n + head) * a.q.rows + query] =
                out                    ? -INFINITY
                : most[i] == -INFINITY ? NAN
                                       : (float)((double)most[i] + log((double)total[i]));
    }
    zx_tile_store(y, first, a.q.rows, a.v.size, a.y.of_row, sum);
}

// ---- launches -----------------------------------------------------------------------------------

size_t bytes_of(const zx_attention &a, int r, int j)
{
    const size_t queries = (size_t)r * ZX_GROUPS, columns = (size_t)j * ZX_LANES;
    const size_t of_q = (size_t)zx_tile_row(a.q.size), of_v = (size_t)zx_tile_row(a.v.size);
    return ((queries + columns) * of_q + columns * of_v + queries * (columns + 1)) * sizeof(float);
}

zx_status prepare(const zx_call *c, bool packed, zx_err *err)
{
    const zx_attention a = zx_attention_of(c, 0, packed, &c->out[0], packed ? 1 : 3);
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    return zx_attention_check(&a, err);
}
zx_status run(const zx_call *c, bool packed, zx_err *err)
{
    const uint32_t mask = packed ? 1 : 3;
    const zx_attention a = zx_attention_of(c, 0, packed, &c->out[0], mask);
    const float *q = (const float *)c->in[0].data;
    const float *k = packed ? q + a.k_first : (const float *)c->in[1].data;
    const float *v = packed ? q + a.v_first : (const float *)c->in[2].data;
    const zx_tiles t = zx_tiles_for(a, c, 4, {1, 2, 32, 0}, bytes_of);
    const int64_t queries = t.r * ZX_GROUPS, tiles = (a.q.rows + queries - 1) / queries;
    const int64_t blocks = a.batch * a.q.n * tiles;
    if (blocks == 0 || a.v.size == 0) return ZX_OK;
    const auto launch = [&](auto kernel) {
        return zx_launch(kernel, (unsigned)blocks, ZX_TEAM, t.bytes, c->cuda->stream, q, k, v,
                         zx_mask_of(c, mask), (float *)c->out[0].data, (float *)c->out[1].data, a,
                         tiles);
    };
    return zx_cuda_check(t.c == 8                ? launch(attend<4, 4, 8>)
                         : t.c == 16 && t.r == 4 ? launch(attend<4, 4, 16>)
                         : t.c == 16             ? launch(attend<2, 4, 16>)
                         : t.r == 2              ? launch(attend<2, 4, 32>)
                                                 : launch(attend<1, 2, 32>),
                         "attention", err);
}

zx_status prepare_apart(const zx_call *c, uint64_t *, void **, zx_err *err)
{
    return prepare(c, false, err);
}
zx_status prepare_packed(const zx_call *c, uint64_t *, void **, zx_err *err)
{
    return prepare(c, true, err);
}
zx_status run_apart(const zx_call *c, zx_err *err)
{
    return run(c, false, err);
}
zx_status run_packed(const zx_call *c, zx_err *err)
{
    return run(c, true, err);
}

} // namespace

const zx_kernel zx_cuda_attention = {prepare_apart, NULL, run_apart};
const zx_kernel zx_cuda_packed_attention = {prepare_packed, NULL, run_packed};

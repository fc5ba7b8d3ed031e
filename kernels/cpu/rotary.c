// rotary.c - RotaryEmbedding, float32: pairs of each head's numbers turned by their position's
// angles.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "kernels/cpu/index.h"

typedef struct rotary_job {
    const zx_call *call;
    int64_t heads, rows, size, half; // `half` pairs of a head's `size` numbers are turned
    bool rows_first;                 // [B, T, H, D], not [B, H, T, D]
    bool pairs;                      // neighbours, not halves
    float sign;                      // of the angle
    const float *x, *cos, *sin;
    float *y;
    const zx_view *positions; // [batch or 1, rows]; NULL: the caches are laid out so
    bool one_batch;           // of positions, or caches
    int64_t cached;           // positions
} rotary_job;

ZX_CLONES static void turn_halves(const float *x, float *y, const float *cos, const float *sin,
                                  int64_t n, float sign)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float a = x[i], b = x[n + i], s = sign * sin[i];
        y[i] = a * cos[i] - b * s;
        y[n + i] = a * s + b * cos[i];
    }
}
ZX_CLONES static void turn_pairs(const float *x, float *y, const float *cos, const float *sin,
                                 int64_t n, float sign)
{
    ZX_SIMD for (int64_t i = 0; i < n; i++)
    {
        const float a = x[2 * i], b = x[2 * i + 1], s = sign * sin[i];
        y[2 * i] = a * cos[i] - b * s;
        y[2 * i + 1] = a * s + b * cos[i];
    }
}

// The row of the caches; -1: a position outside them.
static int64_t cache_row(const rotary_job *j, int64_t batch, int64_t row)
{
    const int64_t at = (j->one_batch ? 0 : batch) * j->rows + row;
    if (j->positions == NULL) return at;
    const int64_t p = zx_index_at(j->positions, at);
    if (p >= 0 && p < j->cached) return p;
    zx_fault_set(j->call->fault, ZX_FAULT_INDEX, p, j->cached);
    return -1;
}

static void rotate(void *ctx, int64_t from, int64_t to)
{
    const rotary_job *j = ctx;
    for (int64_t i = from; i < to; i++) {
        const int64_t batch = i / (j->heads * j->rows);
        const int64_t row = j->rows_first ? i / j->heads % j->rows : i % j->rows;
        const int64_t at = cache_row(j, batch, row);
        const float *x = j->x + i * j->size;
        float *y = j->y + i * j->size;
        if (at >= 0) {
            const float *cos = j->cos + at * j->half, *sin = j->sin + at * j->half;
            (j->pairs ? turn_pairs : turn_halves)(x, y, cos, sin, j->half, j->sign);
        }
        const int64_t done = at >= 0 ? 2 * j->half : 0;
        if (x != y) memcpy(y + done, x + done, (size_t)(j->size - done) * sizeof *y);
    }
}

static zx_status rotary_embedding(const zx_call *call, zx_err *err)
{
    ZX_TRY(zx_need_f32(call, err));
    const zx_shape *s = &call->in[0].type.shape, *cache = &call->in[1].type.shape;
    rotary_job j = {.call = call,
                    .rows_first = s->rank == 3,
                    .pairs = zx_attr_int(call->attrs, ZX_A_INTERLEAVED, 0) != 0,
                    .sign = zx_attr_int(call->attrs, ZX_A_REVERSE, 0) != 0 ? -1.0f : 1.0f,
                    .half = cache->dim[cache->rank - 1],
                    .x = call->in[0].data,
                    .cos = call->in[1].data,
                    .sin = call->in[2].data,
                    .y = call->out[0].data,
                    .positions = zx_has(call, 3) ? &call->in[3] : NULL,
                    .cached = cache->dim[0]};
    j.heads = s->rank == 3 ? zx_attr_int(call->attrs, ZX_A_HEADS, 1) : s->dim[1];
    j.rows = s->rank == 3 ? s->dim[1] : s->dim[2];
    j.size = s->dim[s->rank - 1] / (s->rank == 3 ? j.heads : 1);
    j.one_batch = (j.positions ? &j.positions->type.shape : cache)->dim[0] == 1;
    const int64_t lines = s->dim[0] * j.heads * j.rows;
    zx_split(call->threads, lines, 1, ZX_GRAIN / (j.size + 1) + 2, rotate, &j);
    return ZX_OK;
}
const zx_kernel zx_cpu_rotary_embedding = {.run = rotary_embedding};

// rotary.cu - RotaryEmbedding, float32: pairs of each head's numbers turned by their position's
// angles, a thread a pair.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/any.cuh"

namespace
{

typedef struct turns {
    int64_t heads, rows, size, half; // `half` pairs of a head's `size` numbers are turned
    bool rows_first;                 // [B, T, H, D], not [B, H, T, D]
    bool pairs;                      // neighbours, not halves
    bool one_batch;                  // of positions, or caches
    float sign;                      // of the angle
    int64_t cached;                  // positions
} turns;

// The row of the caches; -1: a position outside them. positions: [batch or 1, rows]; NULL: the
// caches are laid out so.
static __device__ inline int64_t cache_row(const turns &t, int64_t line, zx_dtype ti,
                                           const void *positions, zx_fault *fault)
{
    const int64_t batch = t.one_batch ? 0 : line / (t.heads * t.rows);
    const int64_t row = t.rows_first ? line / t.heads % t.rows : line % t.rows;
    const int64_t at = batch * t.rows + row;
    if (positions == NULL) return at;
    const int64_t p = zx_index_at(ti, positions, at);
    if (p >= 0 && p < t.cached) return p;
    zx_fault_device(fault, ZX_FAULT_INDEX, p, t.cached);
    return -1;
}

__global__ void __launch_bounds__(ZX_BLOCK)
    turn(const float *x, const float *cosines, const float *sines, zx_dtype ti,
         const void *positions, float *y, int64_t n, turns t, zx_fault *fault)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t line = i / t.half, k = i - line * t.half;
        const int64_t at = cache_row(t, line, ti, positions, fault);
        const int64_t first = line * t.size + (t.pairs ? 2 * k : k);
        const int64_t second = first + (t.pairs ? 1 : t.half);
        const float a = x[first], b = x[second];
        const float c = at < 0 ? 1.0f : cosines[at * t.half + k];
        const float s = at < 0 ? 0.0f : t.sign * sines[at * t.half + k];
        y[first] = a * c - b * s;
        y[second] = a * s + b * c;
    }
}
// What isn't turned.
__global__ void __launch_bounds__(ZX_BLOCK)
    keep(const float *x, float *y, int64_t n, int64_t size, int64_t from)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t line = i / (size - from), at = line * size + from + i % (size - from);
        y[at] = x[at];
    }
}

zx_status run(const zx_call *c, zx_err *err)
{
    const zx_shape *s = &c->in[0].type.shape, *cache = &c->in[1].type.shape;
    const zx_view *positions = zx_has(c, 3) ? &c->in[3] : NULL;
    const bool rows_first = s->rank == 3;
    turns t;
    t.rows_first = rows_first;
    t.heads = rows_first ? zx_attr_int(c->attrs, ZX_A_HEADS, 1) : s->dim[1];
    t.rows = rows_first ? s->dim[1] : s->dim[2];
    t.size = s->dim[s->rank - 1] / (rows_first ? t.heads : 1);
    t.half = cache->dim[cache->rank - 1];
    t.pairs = zx_attr_int(c->attrs, ZX_A_INTERLEAVED, 0) != 0;
    t.one_batch = (positions != NULL ? &positions->type.shape : cache)->dim[0] == 1;
    t.sign = zx_attr_int(c->attrs, ZX_A_REVERSE, 0) != 0 ? -1.0f : 1.0f;
    t.cached = cache->dim[0];
    const int64_t lines = s->dim[0] * t.heads * t.rows, rest = t.size - 2 * t.half;
    const float *x = (const float *)c->in[0].data;
    float *y = (float *)c->out[0].data;
    ZX_TRY(zx_cuda_check(zx_launch_each(c, lines * t.half, turn, x, (const float *)c->in[1].data,
                                        (const float *)c->in[2].data,
                                        positions ? positions->type.dtype : ZX_I64,
                                        (const void *)(positions ? positions->data : NULL), y,
                                        lines * t.half, t, c->fault),
                         "rotary_embedding", err));
    if (x == y || rest == 0) return ZX_OK;
    return zx_cuda_check(
        zx_launch_each(c, lines * rest, keep, x, y, lines * rest, t.size, 2 * t.half),
        "rotary_embedding", err);
}

} // namespace

const zx_kernel zx_cuda_rotary_embedding = {zx_prepare_f32, NULL, run};

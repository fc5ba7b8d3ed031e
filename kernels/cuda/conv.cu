// conv.cu - convolution and its two gradients as plain sums, float32: a thread an element of y or
// dx, a block an element of dw. Groups, strides, dilations and 1 to 3 spatial dims as they come; no
// library, and not fast: a product of matrices it isn't.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/naive.h"
#include "kernels/cuda/rows.cuh"

namespace
{

static __device__ inline int64_t volume(const int64_t d[3])
{
    return d[0] * d[1] * d[2];
}
static __device__ inline void split(int64_t at, const int64_t box[3], int64_t pos[3])
{
    pos[0] = at / (box[1] * box[2]);
    pos[1] = at / box[2] % box[1];
    pos[2] = at % box[2];
}
// Where in its plane of x tap k of output o reads; -1: in the padding.
static __device__ inline int64_t input_of(const zx_conv &g, const int64_t o[3], const int64_t k[3])
{
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t x = o[i] * g.stride[i] + k[i] * g.dilation[i] - g.before[i];
        if (x < 0 || x >= g.x[i]) return -1;
        at = at * g.x[i] + x;
    }
    return at;
}
// Where in its plane of y the output is whose tap k reads x; -1: there is none.
static __device__ inline int64_t output_of(const zx_conv &g, const int64_t x[3], const int64_t k[3])
{
    int64_t at = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t y = x[i] + g.before[i] - k[i] * g.dilation[i];
        if (y < 0 || y % g.stride[i] != 0 || y / g.stride[i] >= g.y[i]) return -1;
        at = at * g.y[i] + y / g.stride[i];
    }
    return at;
}

// Channels m of y and c of x are those of one group.
__global__ void __launch_bounds__(ZX_BLOCK)
    conv(const float *x, const float *w, const float *bias, float *y, int64_t n, zx_conv g)
{
    const int64_t in = volume(g.x), out = volume(g.y), window = volume(g.k);
    ZX_FOR_EACH(i, n)
    {
        const int64_t plane = i / out, filters = g.groups * g.m, f = plane % filters;
        const float *from = x + (plane / filters * g.groups + f / g.m) * g.c * in;
        const float *of = w + f * g.c * window;
        int64_t o[3], k[3];
        float sum = bias != NULL ? bias[f] : 0.0f;
        split(i - plane * out, g.y, o);
        for (int64_t tap = 0; tap < window; tap++) {
            split(tap, g.k, k);
            const int64_t at = input_of(g, o, k);
            for (int64_t c = 0; at >= 0 && c < g.c; c++)
                sum += from[c * in + at] * of[c * window + tap];
        }
        y[i] = sum;
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    conv_grad_x(const float *dy, const float *w, float *dx, int64_t n, zx_conv g)
{
    const int64_t in = volume(g.x), out = volume(g.y), window = volume(g.k);
    ZX_FOR_EACH(i, n)
    {
        const int64_t plane = i / in, channels = g.groups * g.c;
        const int64_t group = plane % channels / g.c, c = plane % g.c;
        const float *from = dy + (plane / channels * g.groups + group) * g.m * out;
        const float *of = w + (group * g.m * g.c + c) * window;
        int64_t x[3], k[3];
        float sum = 0;
        split(i - plane * in, g.x, x);
        for (int64_t tap = 0; tap < window; tap++) {
            split(tap, g.k, k);
            const int64_t at = output_of(g, x, k);
            for (int64_t m = 0; at >= 0 && m < g.m; m++)
                sum += from[m * out + at] * of[m * g.c * window + tap];
        }
        dx[i] = sum;
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    conv_grad_w(const float *x, const float *dy, float *dw, zx_conv g)
{
    const int64_t in = volume(g.x), out = volume(g.y), window = volume(g.k);
    const int64_t p = blockIdx.x / window, f = p / g.c, c = f / g.m * g.c + p % g.c;
    int64_t o[3], k[3];
    double sum = 0;
    split(blockIdx.x % window, g.k, k);
    for (int64_t i = threadIdx.x; i < g.n * out; i += ZX_BLOCK) {
        const int64_t n = i / out, at_y = i - n * out;
        split(at_y, g.y, o);
        const int64_t at = input_of(g, o, k);
        if (at >= 0)
            sum += (double)x[(n * g.groups * g.c + c) * in + at] *
                   (double)dy[(n * g.groups * g.m + f) * out + at_y];
    }
    sum = zx_team_sum<ZX_BLOCK>(sum);
    if (threadIdx.x == 0) dw[blockIdx.x] = (float)sum;
}

// ---- launches: which of in[0], in[1], out[0] are x, w, y ----------------------------------------
zx_status shape_of(const zx_call *c, zx_conv *g, zx_err *err)
{
    const zx_view *const v[] = {&c->in[0], &c->in[1], &c->out[0]};
    const int x = c->op == ZX_K_CONV_GRAD_X ? 2 : 0;
    const int w = c->op == ZX_K_CONV_GRAD_W ? 2 : 1, y = 3 - x - w;
    ZX_TRY(zx_conv_of(c->attrs, &v[x]->type.shape, &v[w]->type.shape, &v[y]->type.shape, g, err));
    g->bias = c->op == ZX_K_CONV && zx_has(c, 2);
    return ZX_OK;
}
zx_status prepare(const zx_call *c, uint64_t *, void **, zx_err *err)
{
    zx_conv g;
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    return shape_of(c, &g, err);
}
zx_status run(const zx_call *c, zx_err *err)
{
    const float *a = (const float *)c->in[0].data, *b = (const float *)c->in[1].data;
    float *to = (float *)c->out[0].data;
    const int64_t n = zx_count(&c->out[0]);
    zx_conv g;
    cudaError_t e = cudaSuccess;
    ZX_TRY(shape_of(c, &g, err));
    if (c->op == ZX_K_CONV)
        e = zx_launch_each(c, n, conv, a, b, (const float *)(g.bias ? c->in[2].data : NULL), to, n,
                           g);
    else if (c->op == ZX_K_CONV_GRAD_X)
        e = zx_launch_each(c, n, conv_grad_x, a, b, to, n, g);
    else if (n > 0)
        e = zx_launch(conv_grad_w, (unsigned)n, ZX_BLOCK, 0, c->cuda->stream, a, b, to, g);
    return zx_cuda_check(e, "conv", err);
}

} // namespace

const zx_kernel zx_cuda_conv = {prepare, NULL, run};
const zx_kernel zx_cuda_conv_grad_x = {prepare, NULL, run};
const zx_kernel zx_cuda_conv_grad_w = {prepare, NULL, run};

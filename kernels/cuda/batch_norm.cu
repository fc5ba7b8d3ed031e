// batch_norm.cu - BatchNormalization in training form and its gradient, float32. x is
// [N][C][inner]: a block has a channel.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

typedef struct channels {
    int64_t c, inner, count; // count: elements of a channel
    double epsilon, momentum;
    bool unbiased;
} channels;
channels channels_of(const zx_call *c, const zx_shape *s)
{
    channels z;
    z.c = s->dim[1];
    z.inner = zx_shape_span(s, 2, s->rank);
    z.count = s->dim[0] * z.inner;
    z.epsilon = zx_attr_float(c->attrs, ZX_A_EPSILON, 1e-5);
    z.momentum = zx_attr_float(c->attrs, ZX_A_MOMENTUM, 0.9);
    z.unbiased = zx_attr_int(c->attrs, ZX_A_UNBIASED, 0) != 0;
    return z;
}
// Where element i of the block's channel lies.
static __device__ inline int64_t place(const channels &z, int64_t i)
{
    const int64_t b = i / z.inner;
    return (b * z.c + blockIdx.x) * z.inner + (i - b * z.inner);
}
#define EACH(i, z) for (int64_t i = threadIdx.x; i < (z).count; i += ZX_BLOCK)

__global__ void __launch_bounds__(ZX_BLOCK)
    batch_norm(const float *x, const float *scale, const float *bias, const float *old_mean,
               const float *old_var, float *y, float *new_mean, float *new_var, float *means,
               float *invs, channels z)
{
    const int64_t c = blockIdx.x;
    double sum = 0, deviation = 0;
    EACH(i, z) sum += (double)x[place(z, i)];
    const double mean = zx_team_sum<ZX_BLOCK>(sum) / (double)z.count;
    EACH(i, z)
    {
        const double d = (double)x[place(z, i)] - mean;
        deviation += d * d;
    }
    deviation = zx_team_sum<ZX_BLOCK>(deviation);
    const double var = deviation / (double)z.count;
    const float inv = (float)(1.0 / sqrt(var + z.epsilon));
    const float factor = inv * scale[c], plus = bias[c], m = (float)mean;
    EACH(i, z) y[place(z, i)] = (x[place(z, i)] - m) * factor + plus;
    if (threadIdx.x > 0) return;
    const double kept = z.unbiased ? deviation / (double)(z.count - 1) : var;
    if (new_mean != NULL)
        new_mean[c] = (float)((double)old_mean[c] * z.momentum + mean * (1 - z.momentum));
    if (new_var != NULL)
        new_var[c] = (float)((double)old_var[c] * z.momentum + kept * (1 - z.momentum));
    if (means != NULL) means[c] = m;
    if (invs != NULL) invs[c] = inv;
}

// With h = (x - mean) inv: dbias = sum dy; dscale = sum dy h; dx = scale inv (dy - dbias/m - h
// dscale/m).
__global__ void __launch_bounds__(ZX_BLOCK)
    batch_norm_grad(const float *dy, const float *x, const float *scale, const float *means,
                    const float *invs, float *dx, float *dscale, float *dbias, channels z)
{
    const int64_t c = blockIdx.x;
    const float mean = means[c], inv = invs[c], factor = scale[c] * inv;
    double of_g = 0, of_h = 0;
    EACH(i, z)
    {
        const int64_t at = place(z, i);
        of_g += (double)dy[at];
        of_h += (double)dy[at] * (double)((x[at] - mean) * inv);
    }
    of_g = zx_team_sum<ZX_BLOCK>(of_g);
    of_h = zx_team_sum<ZX_BLOCK>(of_h);
    const float g_avg = (float)(of_g / (double)z.count), h_avg = (float)(of_h / (double)z.count);
    if (dx != NULL) EACH(i, z)
        {
            const int64_t at = place(z, i);
            dx[at] = factor * ((dy[at] - g_avg) - (x[at] - mean) * inv * h_avg);
        }
    if (threadIdx.x > 0) return;
    if (dscale != NULL) dscale[c] = (float)of_h;
    if (dbias != NULL) dbias[c] = (float)of_g;
}

const float *in(const zx_call *c, uint32_t i)
{
    return (const float *)c->in[i].data;
}
float *out(const zx_call *c, uint32_t i)
{
    return (float *)c->out[i].data;
}
zx_status run(const zx_call *c, zx_err *err)
{
    const channels z = channels_of(c, &c->in[0].type.shape);
    if (z.c == 0) return ZX_OK;
    return zx_cuda_check(zx_launch(batch_norm, (unsigned)z.c, ZX_BLOCK, 0, c->cuda->stream,
                                   in(c, 0), in(c, 1), in(c, 2), in(c, 3), in(c, 4), out(c, 0),
                                   out(c, 1), out(c, 2), out(c, 3), out(c, 4), z),
                         "batch_norm", err);
}
zx_status run_grad(const zx_call *c, zx_err *err)
{
    const channels z = channels_of(c, &c->in[1].type.shape);
    if (z.c == 0) return ZX_OK;
    return zx_cuda_check(zx_launch(batch_norm_grad, (unsigned)z.c, ZX_BLOCK, 0, c->cuda->stream,
                                   in(c, 0), in(c, 1), in(c, 2), in(c, 3), in(c, 4), out(c, 0),
                                   out(c, 1), out(c, 2), z),
                         "batch_norm_grad", err);
}

} // namespace

const zx_kernel zx_cuda_batch_norm = {zx_prepare_f32, NULL, run};
const zx_kernel zx_cuda_batch_norm_grad = {zx_prepare_f32, NULL, run_grad};

// norm.cu - LayerNormalization and RMSNormalization with their gradients, float32.
//
// x is [rows][n]: a warp or a block has a row. Statistics are made in double, the variance in a
// second pass over the row. The gradients of scale and bias are sums down the columns: a block has
// 32 of them and a piece of the rows, whose parts are added in order.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

typedef struct sizes {
    int64_t rows, n;
    double epsilon;
} sizes;
sizes sizes_of(const zx_call *c, const zx_view *x)
{
    const zx_shape *s = &x->type.shape;
    const uint32_t axis = (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, s->rank - 1);
    const sizes z = {zx_shape_span(s, 0, axis), zx_shape_span(s, axis, s->rank),
                     zx_attr_float(c->attrs, ZX_A_EPSILON, 1e-5)};
    return z;
}
const float *input(const zx_call *c, uint32_t i)
{
    return zx_has(c, i) ? (const float *)c->in[i].data : NULL;
}

// ---- forward ------------------------------------------------------------------------------------
// Without a mean for RMS. scale, bias, means and invs may be NULL.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    norm_rows(const float *x, const float *scale, const float *bias, float *y, float *means,
              float *invs, sizes z, bool centred)
{
    const int64_t row = zx_team_row<N>(), n = z.n;
    if (row >= z.rows) return; // a warp as a whole: blocks have a row each
    x += row * n;
    y += row * n;
    double sum = 0, mean = 0, deviation = 0;
    for (int64_t i = zx_team_place<N>(); centred && i < n; i += N) sum += (double)x[i];
    if (centred) mean = zx_team_sum<N>(sum) / (double)n;
    for (int64_t i = zx_team_place<N>(); i < n; i += N) {
        const double d = (double)x[i] - mean;
        deviation += d * d;
    }
    const double var = zx_team_sum<N>(deviation) / (double)n;
    const float inv = (float)(1.0 / sqrt(var + z.epsilon)), m = (float)mean;
    for (int64_t i = zx_team_place<N>(); i < n; i += N) {
        const float h = (x[i] - m) * inv;
        y[i] = (scale != NULL ? h * scale[i] : h) + (bias != NULL ? bias[i] : 0.0f);
    }
    if (zx_team_place<N>() != 0) return;
    if (means != NULL) means[row] = m;
    if (invs != NULL) invs[row] = inv;
}

zx_status layer_norm(const zx_call *c, zx_err *err)
{
    const sizes z = sizes_of(c, &c->in[0]);
    const cudaError_t e = zx_launch_rows(c, z.rows, z.n, norm_rows, input(c, 0), input(c, 1),
                                         input(c, 2), (float *)c->out[0].data,
                                         (float *)c->out[1].data, (float *)c->out[2].data, z, true);
    return zx_cuda_check(e, "layer_norm", err);
}
zx_status rms_norm(const zx_call *c, zx_err *err)
{
    const sizes z = sizes_of(c, &c->in[0]);
    const cudaError_t e =
        zx_launch_rows(c, z.rows, z.n, norm_rows, input(c, 0), input(c, 1), (const float *)NULL,
                       (float *)c->out[0].data, (float *)NULL, (float *)c->out[1].data, z, false);
    return zx_cuda_check(e, "rms_norm", err);
}

// ---- backward -----------------------------------------------------------------------------------
// With g = dy * scale and h = (x - mean) * inv: dx = inv * (g - avg(g) - h * avg(g h)), without
// avg(g) for RMS;  dscale = sum dy h;  dbias = sum dy.
template <int N>
__global__ void __launch_bounds__(ZX_BLOCK)
    grad_rows(const float *dy, const float *x, const float *means, const float *invs,
              const float *scale, float *dx, sizes z)
{
    const int64_t row = zx_team_row<N>(), n = z.n;
    if (row >= z.rows) return;
    dy += row * n;
    x += row * n;
    dx += row * n;
    const float mean = means != NULL ? means[row] : 0.0f, inv = invs[row];
    double of_g = 0, of_h = 0;
    for (int64_t i = zx_team_place<N>(); i < n; i += N) {
        const double g = (double)(scale != NULL ? dy[i] * scale[i] : dy[i]);
        of_g += g;
        of_h += g * (double)((x[i] - mean) * inv);
    }
    const float g_avg = means != NULL ? (float)(zx_team_sum<N>(of_g) / (double)n) : 0.0f;
    const float h_avg = (float)(zx_team_sum<N>(of_h) / (double)n);
    for (int64_t i = zx_team_place<N>(); i < n; i += N) {
        const float g = scale != NULL ? dy[i] * scale[i] : dy[i];
        dx[i] = inv * ((g - g_avg) - (x[i] - mean) * inv * h_avg);
    }
}

#define SIDE 32 // columns of a block
#define LINES (ZX_BLOCK / SIDE)
// parts [pieces][2][n]: sums of dy h and of dy.
__global__ void __launch_bounds__(ZX_BLOCK)
    grad_columns(const float *dy, const float *x, const float *means, const float *invs,
                 double *parts, sizes z, int64_t length)
{
    __shared__ double scale_part[LINES][SIDE], bias_part[LINES][SIDE];
    const unsigned line = threadIdx.x / SIDE, side = threadIdx.x % SIDE;
    const int64_t col = (int64_t)blockIdx.x * SIDE + side;
    const int64_t from = (int64_t)blockIdx.y * length;
    const int64_t to = min((long long)z.rows, (long long)(from + length));
    double scale = 0, bias = 0;
    for (int64_t r = from + line; col < z.n && r < to; r += LINES) {
        const float d = dy[r * z.n + col], mean = means != NULL ? means[r] : 0.0f;
        scale += (double)(d * ((x[r * z.n + col] - mean) * invs[r]));
        bias += (double)d;
    }
    scale_part[line][side] = scale;
    bias_part[line][side] = bias;
    __syncthreads();
    if (line > 0 || col >= z.n) return;
    for (int k = 1; k < LINES; k++) {
        scale += scale_part[k][side];
        bias += bias_part[k][side];
    }
    parts[(int64_t)blockIdx.y * 2 * z.n + col] = scale;
    parts[((int64_t)blockIdx.y * 2 + 1) * z.n + col] = bias;
}
__global__ void __launch_bounds__(ZX_BLOCK)
    join_columns(const double *parts, int64_t pieces, int64_t n, float *dscale, float *dbias)
{
    ZX_FOR_EACH(i, n)
    {
        double scale = 0, bias = 0;
        for (int64_t p = 0; p < pieces; p++) {
            scale += parts[p * 2 * n + i];
            bias += parts[(p * 2 + 1) * n + i];
        }
        if (dscale != NULL) dscale[i] = (float)scale;
        if (dbias != NULL) dbias[i] = (float)bias;
    }
}

// How many pieces the rows are cut into: by the shape alone.
int64_t pieces_of(const sizes *z)
{
    const int64_t blocks = (z->n + SIDE - 1) / SIDE, wanted = (z->rows + 63) / 64;
    const int64_t room = blocks > 0 ? 1024 / blocks : 1;
    const int64_t pieces = wanted < room ? wanted : room;
    return pieces > 1 ? pieces : 1;
}
zx_status prepare_grad(const zx_call *c, uint64_t *work_bytes, void **state, zx_err *err)
{
    const sizes z = sizes_of(c, &c->in[1]);
    *work_bytes = (uint64_t)pieces_of(&z) * 2 * (uint64_t)z.n * sizeof(double);
    return zx_prepare_f32(c, work_bytes, state, err);
}
cudaError_t launch_grad(const zx_call *c, const float *means, uint32_t inv, float *dscale,
                        float *dbias)
{
    const sizes z = sizes_of(c, &c->in[1]);
    const float *dy = input(c, 0), *x = input(c, 1), *invs = input(c, inv);
    float *dx = (float *)c->out[0].data;
    double *parts = (double *)c->work;
    cudaError_t e = cudaSuccess;
    if (dx != NULL)
        e = zx_launch_rows(c, z.rows, z.n, grad_rows, dy, x, means, invs, input(c, inv + 1), dx, z);
    if (e != cudaSuccess || (dscale == NULL && dbias == NULL) || z.n == 0) return e;
    const int64_t pieces = pieces_of(&z), length = (z.rows + pieces - 1) / pieces;
    e = zx_launch(grad_columns, dim3((unsigned)((z.n + SIDE - 1) / SIDE), (unsigned)pieces),
                  ZX_BLOCK, 0, c->cuda->stream, dy, x, means, invs, parts, z, length);
    if (e != cudaSuccess) return e;
    return zx_launch_each(c, z.n, join_columns, (const double *)parts, pieces, z.n, dscale, dbias);
}
zx_status layer_norm_grad(const zx_call *c, zx_err *err)
{
    return zx_cuda_check(
        launch_grad(c, input(c, 2), 3, (float *)c->out[1].data, (float *)c->out[2].data),
        "layer_norm_grad", err);
}
zx_status rms_norm_grad(const zx_call *c, zx_err *err)
{
    return zx_cuda_check(launch_grad(c, NULL, 2, (float *)c->out[1].data, NULL), "rms_norm_grad",
                         err);
}

} // namespace

const zx_kernel zx_cuda_layer_norm = {zx_prepare_f32, NULL, layer_norm};
const zx_kernel zx_cuda_layer_norm_grad = {prepare_grad, NULL, layer_norm_grad};
const zx_kernel zx_cuda_rms_norm = {zx_prepare_f32, NULL, rms_norm};
const zx_kernel zx_cuda_rms_norm_grad = {prepare_grad, NULL, rms_norm_grad};

// optim.cu - optimizer steps over a shard, every element alone, so the same bits for any cut; and
// what plan instructions other than EXEC compute: sums over ranks, square sums, what isn't finite.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/rows.cuh"

namespace
{

zx_call call_on(const struct zx_cuda *cuda) // for launches that have no node
{
    zx_call c = zx_call();
    c.cuda = cuda;
    return c;
}

// ---- optimizers ---------------------------------------------------------------------------------
__global__ void __launch_bounds__(ZX_BLOCK)
    adam(float *p, const float *g, float *m, float *v, int64_t n, zx_adam_numbers a)
{
    ZX_FOR_EACH(i, n)
    {
        const float x = p[i], d = g[i] * a.scale + a.l2 * x;
        const float mi = a.b1 * m[i] + a.r1 * d, vi = a.b2 * v[i] + a.r2 * (d * d);
        m[i] = mi;
        v[i] = vi;
        p[i] = x - (a.rate * mi / (sqrtf(vi * a.part) + a.eps) + a.decay * x);
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    sgd(float *p, const float *g, float *m, int64_t n, zx_sgd_args a)
{
    const float of_g = m == NULL || a.nesterov ? 1.0f : 0.0f;
    const float of_m = m == NULL ? 0.0f : a.nesterov ? a.momentum : 1.0f;
    ZX_FOR_EACH(i, n)
    {
        const float d = g[i] * a.grad_scale + a.weight_decay * p[i];
        float mi = 0;
        if (m != NULL) m[i] = mi = a.first ? d : a.momentum * m[i] + (1.0f - a.dampening) * d;
        p[i] = p[i] - a.lr * (of_g * d + of_m * mi);
    }
}

__global__ void __launch_bounds__(ZX_BLOCK)
    lion(float *p, const float *g, float *m, int64_t n, zx_lion_numbers a)
{
    ZX_FOR_EACH(i, n)
    {
        const float d = g[i] * a.scale, c = a.b1 * m[i] + a.r1 * d;
        const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
        m[i] = a.b2 * m[i] + a.r2 * d;
        p[i] = p[i] - (a.lr * sign + a.decay * p[i]);
    }
}

// ---- collectives' arithmetic --------------------------------------------------------------------
__global__ void __launch_bounds__(ZX_BLOCK)
    sum_ranks(float *out, const float *from, int64_t stride, uint32_t ranks, int64_t n, bool add)
{
    ZX_FOR_EACH(i, n)
    {
        float sum = from[i];
        for (uint32_t r = 1; r < ranks; r++) sum += from[(int64_t)r * stride + i];
        out[i] = add ? out[i] + sum : sum;
    }
}

#define SQUARES 4096 // elements of a part
__global__ void __launch_bounds__(ZX_BLOCK) square_parts(const float *x, int64_t n, double *parts)
{
    const int64_t from = (int64_t)blockIdx.x * SQUARES;
    const int64_t to = min((long long)n, (long long)(from + SQUARES));
    double sum = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += ZX_BLOCK) sum += (double)x[i] * (double)x[i];
    sum = zx_team_sum<ZX_BLOCK>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
__global__ void __launch_bounds__(ZX_BLOCK) add_parts(const double *parts, int64_t n, double *sum)
{
    double s = 0;
    for (int64_t i = threadIdx.x; i < n; i += ZX_BLOCK) s += parts[i];
    s = zx_team_sum<ZX_BLOCK>(s);
    if (threadIdx.x == 0) *sum = s;
}

// The least index wins, in whatever order blocks come.
__global__ void __launch_bounds__(ZX_BLOCK)
    find(const float *x, int64_t n, unsigned limit, unsigned long long *first)
{
    ZX_FOR_EACH(i, n)
    if ((__float_as_uint(x[i]) & 0x7fffffffu) > limit) atomicMin(first, (unsigned long long)i);
}

} // namespace

zx_status zx_cuda_adam(float *p, const float *g, float *m, float *v, int64_t n,
                       const zx_adam_args *a, const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    return zx_cuda_check(zx_launch_each(&c, n, adam, p, g, m, v, n, zx_adam_numbers_of(a)), "adam",
                         err);
}
zx_status zx_cuda_sgd(float *p, const float *g, float *m, int64_t n, const zx_sgd_args *a,
                      const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    float *kept = a->momentum != 0.0f ? m : NULL;
    return zx_cuda_check(zx_launch_each(&c, n, sgd, p, g, kept, n, *a), "sgd", err);
}
zx_status zx_cuda_lion(float *p, const float *g, float *m, int64_t n, const zx_lion_args *a,
                       const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    return zx_cuda_check(zx_launch_each(&c, n, lion, p, g, m, n, zx_lion_numbers_of(a)), "lion",
                         err);
}

zx_status zx_cuda_sum_ranks(float *out, const float *from, int64_t stride, uint32_t ranks,
                            int64_t n, bool add, const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    return zx_cuda_check(zx_launch_each(&c, n, sum_ranks, out, from, stride, ranks, n, add),
                         "sum_ranks", err);
}
uint64_t zx_cuda_square_work(int64_t n)
{
    return (uint64_t)((n + SQUARES - 1) / SQUARES) * sizeof(double);
}
zx_status zx_cuda_square_sum(const float *x, int64_t n, void *work, double *sum,
                             const struct zx_cuda *cuda, zx_err *err)
{
    const int64_t parts = (n + SQUARES - 1) / SQUARES;
    if (n > 0)
        ZX_TRY(zx_cuda_check(zx_launch(square_parts, (unsigned)parts, ZX_BLOCK, 0, cuda->stream, x,
                                       n, (double *)work),
                             "square_sum", err));
    return zx_cuda_check(
        zx_launch(add_parts, 1, ZX_BLOCK, 0, cuda->stream, (const double *)work, parts, sum),
        "square_sum", err);
}
zx_status zx_cuda_find_nonfinite(const float *x, int64_t n, bool inf, int64_t *first,
                                 const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    ZX_TRY(zx_cuda_check(cudaMemsetAsync(first, 0xff, sizeof *first, cuda->stream),
                         "find_nonfinite", err)); // -1
    return zx_cuda_check(zx_launch_each(&c, n, find, x, n, inf ? 0x7f7fffffu : 0x7f800000u,
                                        (unsigned long long *)first),
                         "find_nonfinite", err);
}

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
// Gradients of type G; `low` gets the new parameters rounded to L, in the same pass. It is NULL
// where they have no copy in 16 bits.
template <class L> static __device__ inline void put(float *p, L *low, int64_t i, float x)
{
    p[i] = x;
    if (low != NULL) low[i] = zx_from_float<L>(x);
}
template <class G, class L>
__global__ void __launch_bounds__(ZX_BLOCK)
    adam(float *p, const G *g, float *m, float *v, L *low, int64_t n, zx_adam_numbers a)
{
    ZX_FOR_EACH(i, n)
    {
        const float x = p[i], d = zx_to_float(g[i]) * a.scale + a.l2 * x;
        const float mi = a.b1 * m[i] + a.r1 * d, vi = a.b2 * v[i] + a.r2 * (d * d);
        m[i] = mi;
        v[i] = vi;
        put(p, low, i, x - (a.rate * mi / (sqrtf(vi * a.part) + a.eps) + a.decay * x));
    }
}
template <class G, class L>
__global__ void __launch_bounds__(ZX_BLOCK)
    sgd(float *p, const G *g, float *m, L *low, int64_t n, zx_sgd_args a)
{
    const float of_g = m == NULL || a.nesterov ? 1.0f : 0.0f;
    const float of_m = m == NULL ? 0.0f : a.nesterov ? a.momentum : 1.0f;
    ZX_FOR_EACH(i, n)
    {
        const float d = zx_to_float(g[i]) * a.grad_scale + a.weight_decay * p[i];
        float mi = 0;
        if (m != NULL) m[i] = mi = a.first ? d : a.momentum * m[i] + (1.0f - a.dampening) * d;
        put(p, low, i, p[i] - a.lr * (of_g * d + of_m * mi));
    }
}

template <class G, class L>
__global__ void __launch_bounds__(ZX_BLOCK)
    lion(float *p, const G *g, float *m, L *low, int64_t n, zx_lion_numbers a)
{
    ZX_FOR_EACH(i, n)
    {
        const float d = zx_to_float(g[i]) * a.scale, c = a.b1 * m[i] + a.r1 * d;
        const float sign = c > 0.0f ? 1.0f : c < 0.0f ? -1.0f : 0.0f;
        m[i] = a.b2 * m[i] + a.r2 * d;
        put(p, low, i, p[i] - (a.lr * sign + a.decay * p[i]));
    }
}

// ---- collectives' arithmetic --------------------------------------------------------------------
template <class K, class M>
__global__ void __launch_bounds__(ZX_BLOCK)
    sum_ranks(K *out, const M *from, int64_t stride, uint32_t ranks, int64_t n, bool add)
{
    ZX_FOR_EACH(i, n)
    {
        float sum = zx_to_float(from[i]);
        for (uint32_t r = 1; r < ranks; r++) sum += zx_to_float(from[(int64_t)r * stride + i]);
        out[i] = zx_from_float<K>(add ? zx_to_float(out[i]) + sum : sum);
    }
}

#define SQUARES 4096 // elements of a part
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK) square_parts(const T *x, int64_t n, double *parts)
{
    const int64_t from = (int64_t)blockIdx.x * SQUARES;
    const int64_t to = min((long long)n, (long long)(from + SQUARES));
    double sum = 0;
    for (int64_t i = from + threadIdx.x; i < to; i += ZX_BLOCK) {
        const double v = (double)zx_to_float(x[i]);
        sum += v * v;
    }
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

// ---- optimizers ---------------------------------------------------------------------------------
namespace
{

// What f answers for zeros of the types of the gradient and of what is rounded: the gradient is
// f32, or as that is.
template <class F> auto of_mixed(const zx_mixed *x, F f)
{
    return zx_of_float(x->low_type,
                       [&](auto low) { return x->g_type == ZX_F32 ? f(0.0f, low) : f(low, low); });
}
zx_mixed plain(const float *g) // of a parameter of float32
{
    zx_mixed x;
    x.low_type = x.g_type = ZX_F32;
    x.low = NULL;
    x.g = g;
    return x;
}

} // namespace

zx_status zx_cuda_adam_mixed(float *p, const zx_mixed *x, float *m, float *v, int64_t n,
                             const zx_adam_args *a, const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    const cudaError_t e = of_mixed(x, [&](auto g, auto low) {
        using G = decltype(g);
        using L = decltype(low);
        return zx_launch_each(&c, n, (adam<G, L>), p, (const G *)x->g, m, v, (L *)x->low, n,
                              zx_adam_numbers_of(a));
    });
    return zx_cuda_check(e, "adam", err);
}
zx_status zx_cuda_sgd_mixed(float *p, const zx_mixed *x, float *m, int64_t n, const zx_sgd_args *a,
                            const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    float *kept = a->momentum != 0.0f ? m : NULL;
    const cudaError_t e = of_mixed(x, [&](auto g, auto low) {
        using G = decltype(g);
        using L = decltype(low);
        return zx_launch_each(&c, n, (sgd<G, L>), p, (const G *)x->g, kept, (L *)x->low, n, *a);
    });
    return zx_cuda_check(e, "sgd", err);
}
zx_status zx_cuda_lion_mixed(float *p, const zx_mixed *x, float *m, int64_t n,
                             const zx_lion_args *a, const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    const cudaError_t e = of_mixed(x, [&](auto g, auto low) {
        using G = decltype(g);
        using L = decltype(low);
        return zx_launch_each(&c, n, (lion<G, L>), p, (const G *)x->g, m, (L *)x->low, n,
                              zx_lion_numbers_of(a));
    });
    return zx_cuda_check(e, "lion", err);
}

zx_status zx_cuda_adam(float *p, const float *g, float *m, float *v, int64_t n,
                       const zx_adam_args *a, const struct zx_cuda *cuda, zx_err *err)
{
    const zx_mixed x = plain(g);
    return zx_cuda_adam_mixed(p, &x, m, v, n, a, cuda, err);
}
zx_status zx_cuda_sgd(float *p, const float *g, float *m, int64_t n, const zx_sgd_args *a,
                      const struct zx_cuda *cuda, zx_err *err)
{
    const zx_mixed x = plain(g);
    return zx_cuda_sgd_mixed(p, &x, m, n, a, cuda, err);
}
zx_status zx_cuda_lion(float *p, const float *g, float *m, int64_t n, const zx_lion_args *a,
                       const struct zx_cuda *cuda, zx_err *err)
{
    const zx_mixed x = plain(g);
    return zx_cuda_lion_mixed(p, &x, m, n, a, cuda, err);
}

// ---- sums ---------------------------------------------------------------------------------------

zx_status zx_cuda_sum_ranks_of(zx_dtype kept, void *out, zx_dtype made, const void *from,
                               int64_t stride, uint32_t ranks, int64_t n, bool add,
                               const struct zx_cuda *cuda, zx_err *err)
{
    const zx_call c = call_on(cuda);
    ZX_ASSERT(kept == ZX_F32 || kept == made);
    const cudaError_t e = zx_of_float(made, [&](auto x) {
        using M = decltype(x);
        if (kept == ZX_F32)
            return zx_launch_each(&c, n, (sum_ranks<float, M>), (float *)out, (const M *)from,
                                  stride, ranks, n, add);
        return zx_launch_each(&c, n, (sum_ranks<M, M>), (M *)out, (const M *)from, stride, ranks, n,
                              add);
    });
    return zx_cuda_check(e, "sum_ranks", err);
}
zx_status zx_cuda_sum_ranks(float *out, const float *from, int64_t stride, uint32_t ranks,
                            int64_t n, bool add, const struct zx_cuda *cuda, zx_err *err)
{
    return zx_cuda_sum_ranks_of(ZX_F32, out, ZX_F32, from, stride, ranks, n, add, cuda, err);
}
uint64_t zx_cuda_square_work(int64_t n)
{
    return (uint64_t)((n + SQUARES - 1) / SQUARES) * sizeof(double);
}
zx_status zx_cuda_square_sum_of(zx_dtype t, const void *x, int64_t n, void *work, double *sum,
                                const struct zx_cuda *cuda, zx_err *err)
{
    const int64_t parts = (n + SQUARES - 1) / SQUARES;
    if (n > 0) {
        const cudaError_t e = zx_of_float(t, [&](auto of) {
            using T = decltype(of);
            return zx_launch((square_parts<T>), (unsigned)parts, ZX_BLOCK, 0, cuda->stream,
                             (const T *)x, n, (double *)work);
        });
        ZX_TRY(zx_cuda_check(e, "square_sum", err));
    }
    return zx_cuda_check(
        zx_launch(add_parts, 1, ZX_BLOCK, 0, cuda->stream, (const double *)work, parts, sum),
        "square_sum", err);
}
zx_status zx_cuda_square_sum(const float *x, int64_t n, void *work, double *sum,
                             const struct zx_cuda *cuda, zx_err *err)
{
    return zx_cuda_square_sum_of(ZX_F32, x, n, work, sum, cuda, err);
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

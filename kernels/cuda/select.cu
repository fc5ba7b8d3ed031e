// select.cu - Cast, Where, Clip and its gradient: elementwise ops that choose or convert.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/any.cuh"
#include "kernels/cuda/broadcast.cuh"

namespace
{

// ---- Cast ---------------------------------------------------------------------------------------
template <class X, class Y>
__global__ void __launch_bounds__(ZX_BLOCK) cast_floats(const X *x, Y *y, int64_t n)
{
    ZX_FOR_EACH(i, n) y[i] = zx_from_float<Y>(zx_to_float(x[i]));
}
template <class C>
__global__ void __launch_bounds__(ZX_BLOCK)
    cast_any(zx_dtype tx, const void *x, zx_dtype ty, void *y, int64_t n)
{
    ZX_FOR_EACH(i, n) zx_put<C>(ty, y, i, zx_get<C>(tx, x, i));
}
bool computed_in_float(zx_dtype t)
{
    return t == ZX_F32 || t == ZX_F16 || t == ZX_BF16;
}

cudaError_t cast(const zx_call *c)
{
    const zx_dtype tx = c->in[0].type.dtype, ty = c->out[0].type.dtype;
    const int64_t n = zx_count(&c->in[0]);
    const void *x = c->in[0].data;
    void *y = c->out[0].data;
    if (n == 0) return cudaSuccess;
    if (tx == ty)
        return cudaMemcpyAsync(y, x, (size_t)zx_type_bytes(&c->in[0].type),
                               cudaMemcpyDeviceToDevice, c->cuda->stream);
    if (computed_in_float(tx) && computed_in_float(ty))
        return zx_of_float(tx, [&](auto from) {
            return zx_of_float(ty, [&](auto to) {
                using X = decltype(from);
                using Y = decltype(to);
                return zx_launch_each(c, n, (cast_floats<X, Y>), (const X *)x, (Y *)y, n);
            });
        });
    return zx_of_class(tx, [&](auto zero) {
        return zx_launch_each(c, n, cast_any<decltype(zero)>, tx, x, ty, y, n);
    });
}
zx_status run_cast(const zx_call *call, zx_err *err)
{
    return zx_cuda_check(cast(call), "cast", err);
}

// ---- Where --------------------------------------------------------------------------------------
template <class T, class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    where(const uint8_t *yes, const T *a, const T *b, T *y, int64_t n, zx_walk<I> w)
{
    ZX_FOR_EACH(i, n)
    {
        I at[3];
        zx_walk_at(w, (I)i, at);
        y[i] = yes[at[0]] ? a[at[1]] : b[at[2]];
    }
}
zx_status run_where(const zx_call *c, zx_err *err)
{
    const cudaError_t e = zx_of_walk(c, 3, [&](auto w, int64_t n) {
        return zx_of_bytes(zx_dtype_bytes(c->in[1].type.dtype), [&](auto zero) {
            using T = decltype(zero);
            using I = typename decltype(w)::index;
            return zx_launch_each(c, n, (where<T, I>), (const uint8_t *)c->in[0].data,
                                  (const T *)c->in[1].data, (const T *)c->in[2].data,
                                  (T *)c->out[0].data, n, w);
        });
    });
    return zx_cuda_check(e, "where", err);
}

// ---- Clip ---------------------------------------------------------------------------------------
template <class C>
__global__ void __launch_bounds__(ZX_BLOCK)
    clip(zx_dtype t, const void *x, const void *lo, const void *hi, void *y, int64_t n)
{
    ZX_FOR_EACH(i, n)
    {
        C v = zx_get<C>(t, x, i);
        if (lo != NULL && v < zx_get<C>(t, lo, 0)) v = zx_get<C>(t, lo, 0);
        if (hi != NULL && v > zx_get<C>(t, hi, 0)) v = zx_get<C>(t, hi, 0);
        zx_put<C>(t, y, i, v);
    }
}
__global__ void __launch_bounds__(ZX_BLOCK)
    clip_grad(const float *dy, const float *x, const float *lo, const float *hi, float *dx,
              int64_t n)
{
    ZX_FOR_EACH(i, n)
    {
        const bool inside = (lo == NULL || x[i] >= *lo) && (hi == NULL || x[i] <= *hi);
        dx[i] = inside && x[i] == x[i] ? dy[i] : 0.0f;
    }
}
const void *limit(const zx_call *c, uint32_t i)
{
    return zx_has(c, i) ? c->in[i].data : NULL;
}
zx_status run_clip(const zx_call *c, zx_err *err)
{
    const zx_dtype t = c->in[0].type.dtype;
    const int64_t n = zx_count(&c->in[0]);
    const cudaError_t e = zx_of_class(t, [&](auto zero) {
        return zx_launch_each(c, n, clip<decltype(zero)>, t, (const void *)c->in[0].data,
                              limit(c, 1), limit(c, 2), c->out[0].data, n);
    });
    return zx_cuda_check(e, "clip", err);
}
zx_status run_clip_grad(const zx_call *c, zx_err *err)
{
    const int64_t n = zx_count(&c->in[0]);
    const cudaError_t e = zx_launch_each(c, n, clip_grad, (const float *)c->in[0].data,
                                         (const float *)c->in[1].data, (const float *)limit(c, 2),
                                         (const float *)limit(c, 3), (float *)c->out[0].data, n);
    return zx_cuda_check(e, "clip_grad", err);
}

} // namespace

const zx_kernel zx_cuda_cast = {NULL, NULL, run_cast};
const zx_kernel zx_cuda_where = {NULL, NULL, run_where};
const zx_kernel zx_cuda_clip = {NULL, NULL, run_clip};
const zx_kernel zx_cuda_clip_grad = {zx_prepare_f32, NULL, run_clip_grad};

// pad.cu - Pad, of any dtype, and its gradient.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common.cuh"

namespace
{

enum { CONSTANT, REFLECT, EDGE, WRAP }; // MODE

typedef struct sides {
    uint32_t rank;
    int mode;
    int64_t x[ZX_MAX_RANK], y[ZX_MAX_RANK], before[ZX_MAX_RANK], stride[ZX_MAX_RANK]; // of x
} sides;
sides sides_of(const zx_call *c, const zx_shape *x, const zx_shape *y, int mode)
{
    const int64_t *pads = zx_attr_ints(c->attrs, ZX_A_PADS, NULL);
    sides s;
    s.rank = x->rank;
    s.mode = (int)zx_attr_int(c->attrs, ZX_A_MODE, mode);
    zx_strides(x, s.stride);
    for (uint32_t d = 0; d < x->rank; d++) {
        s.x[d] = x->dim[d];
        s.y[d] = y->dim[d];
        s.before[d] = pads[d];
    }
    return s;
}

// Which element of a dim of n elements a padded position i (< 0 or >= n outside) shows; -1: none.
static __device__ inline int64_t source_of(int64_t i, int64_t n, int mode)
{
    if (i >= 0 && i < n) return i;
    if (mode == CONSTANT) return -1;
    if (n == 1 || mode == EDGE) return i < 0 ? 0 : n - 1;
    if (mode == WRAP) return (i % n + n) % n;
    const int64_t period = 2 * (n - 1); // reflect, as often as it takes
    const int64_t k = (i % period + period) % period;
    return k < n ? k : period - k;
}

// value: a scalar, or NULL for 0.
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK)
    pad(const T *x, const T *value, T *y, int64_t n, sides s)
{
    ZX_FOR_EACH(i, n)
    {
        int64_t rest = i, at = 0;
        bool inside = true;
        for (uint32_t d = s.rank; d-- > 0; rest /= s.y[d]) {
            const int64_t from = source_of(rest % s.y[d] - s.before[d], s.x[d], s.mode);
            inside = inside && from >= 0;
            at += from * s.stride[d];
        }
        y[i] = inside ? x[at] : value != NULL ? *value : T();
    }
}
zx_status run_pad(const zx_call *c, zx_err *err)
{
    const zx_view *x = &c->in[0], *y = &c->out[0];
    const sides s = sides_of(c, &x->type.shape, &y->type.shape, CONSTANT);
    const int64_t n = zx_count(y);
    if (s.mode != CONSTANT && n > 0 && zx_count(x) == 0)
        return ZX_FAIL(err, ZX_E_SHAPE, "Pad can't repeat elements of an empty tensor");
    const cudaError_t e = zx_of_bytes(zx_dtype_bytes(x->type.dtype), [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, pad<T>, (const T *)x->data,
                              (const T *)(zx_has(c, 1) ? c->in[1].data : NULL), (T *)y->data, n, s);
    });
    return zx_cuda_check(e, "pad", err);
}

// The next padded position after i that shows element k of dim d; s.y[d]: there is none.
static __device__ inline int64_t next_shown(const sides &s, uint32_t d, int64_t k, int64_t i)
{
    do i++;
    while (i < s.y[d] && source_of(i - s.before[d], s.x[d], s.mode) != k);
    return i;
}
// A thread an element: adds the dy that show it, in row-major order.
__global__ void __launch_bounds__(ZX_BLOCK) pad_grad(const float *dy, float *dx, int64_t n, sides s)
{
    ZX_FOR_EACH(i, n)
    {
        int64_t own[ZX_MAX_RANK], pos[ZX_MAX_RANK], rest = i;
        float sum = 0;
        for (uint32_t d = s.rank; d-- > 0; rest /= s.x[d]) {
            own[d] = rest % s.x[d];
            pos[d] = next_shown(s, d, own[d], -1);
        }
        for (bool more = true; more;) {
            int64_t at = 0;
            for (uint32_t d = 0; d < s.rank; d++) at = at * s.y[d] + pos[d];
            sum += dy[at];
            more = false;
            for (uint32_t d = s.rank; d-- > 0 && !more;) {
                pos[d] = next_shown(s, d, own[d], pos[d]);
                more = pos[d] < s.y[d];
                if (!more) pos[d] = next_shown(s, d, own[d], -1);
            }
        }
        dx[i] = sum;
    }
}
zx_status run_pad_grad(const zx_call *c, zx_err *err)
{
    const zx_view *dy = &c->in[0], *dx = &c->out[0];
    const sides s = sides_of(c, &dx->type.shape, &dy->type.shape, REFLECT);
    const int64_t n = zx_count(dx);
    return zx_cuda_check(
        zx_launch_each(c, n, pad_grad, (const float *)dy->data, (float *)dx->data, n, s),
        "pad_grad", err);
}

} // namespace

const zx_kernel zx_cuda_pad = {NULL, NULL, run_pad};
const zx_kernel zx_cuda_pad_grad = {zx_prepare_f32, NULL, run_pad_grad};

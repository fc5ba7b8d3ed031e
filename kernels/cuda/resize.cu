// resize.cu - Resize and its gradient, float32, one axis after the other by kernels/resize.h: a
// thread an element of what a pass makes.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/common.cuh"
#include "kernels/resize.h"

namespace
{

__global__ void __launch_bounds__(ZX_BLOCK)
    up(const float *x, float *y, int64_t n, zx_resize_axis a, int taps)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t row = i / a.inner, o = row % a.big;
        const float *from = x + row / a.big * a.small * a.inner + i % a.inner;
        const zx_tap t = zx_resize_tap(&a, o);
        float sum = taps == 1 ? from[t.index[0] * a.inner] : 0.0f;
        for (int k = 0; k < taps && taps > 1; k++) {
            const float w = (float)t.weight[k];
            if (w != 0.0f) sum += w * from[t.index[k] * a.inner]; // 0 times infinity isn't NaN
        }
        y[i] = sum;
    }
}

// The first output that lies beyond x.
static __device__ inline int64_t first_beyond(const zx_resize_axis &a, double x)
{
    int64_t from = 0, to = a.big;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        if (zx_resize_place(&a, middle) > x)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}
// Adds what the outputs that read an input send back, in their order. Taps are within 3 of where an
// output lies; those outside the axis read its ends.
__global__ void __launch_bounds__(ZX_BLOCK)
    down(const float *dy, float *dx, int64_t n, zx_resize_axis a, int taps)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t row = i / a.inner, at = row % a.small;
        const float *from = dy + row / a.small * a.big * a.inner + i % a.inner;
        const int64_t begin = at == 0 ? 0 : first_beyond(a, (double)at - 3);
        const int64_t end = at == a.small - 1 ? a.big : first_beyond(a, (double)at + 3);
        float sum = 0;
        for (int64_t o = begin; o < end; o++) {
            const zx_tap t = zx_resize_tap(&a, o);
            for (int k = 0; k < taps; k++)
                if (t.index[k] == at && (float)t.weight[k] != 0.0f)
                    sum += (float)t.weight[k] * from[o * a.inner];
        }
        dx[i] = sum;
    }
}

zx_status make(const zx_call *c, zx_resize *r, zx_err *err)
{
    const bool grad = c->op == ZX_K_RESIZE_GRAD;
    const zx_shape *x = &(grad ? c->out[0] : c->in[0]).type.shape;
    return zx_resize_make(c, x, &(grad ? c->in[0] : c->out[0]).type.shape, r, err);
}
uint64_t between_of(const zx_resize *r)
{
    return zx_align_up(r->between * sizeof(float), ZX_ALIGN);
}
zx_status prepare(const zx_call *c, uint64_t *work_bytes, void **, zx_err *err)
{
    zx_resize r;
    ZX_TRY(zx_prepare_f32(c, NULL, NULL, err));
    ZX_TRY(make(c, &r, err));
    *work_bytes = zx_resize_work(&r, between_of(&r));
    return ZX_OK;
}
zx_status run(const zx_call *c, zx_err *err)
{
    const bool grad = c->op == ZX_K_RESIZE_GRAD;
    const size_t bytes = (size_t)zx_type_bytes(&c->out[0].type);
    const float *from = (const float *)c->in[0].data;
    zx_resize r;
    ZX_TRY(make(c, &r, err));
    if (bytes == 0) return ZX_OK;
    if (r.n == 0)
        return zx_cuda_check(
            cudaMemcpyAsync(c->out[0].data, from, bytes, cudaMemcpyDeviceToDevice, c->cuda->stream),
            "resize", err);
    for (uint32_t i = 0; i < r.n; i++) {
        const zx_resize_axis a = r.list[grad ? r.n - 1 - i : i];
        const int64_t n = a.outer * (grad ? a.small : a.big) * a.inner;
        unsigned char *work = (unsigned char *)c->work + (i % 2) * between_of(&r);
        float *to = (float *)(i + 1 == r.n ? c->out[0].data : work);
        ZX_TRY(zx_cuda_check(grad ? zx_launch_each(c, n, down, from, to, n, a, r.n_taps)
                                  : zx_launch_each(c, n, up, from, to, n, a, r.n_taps),
                             "resize", err));
        from = to;
    }
    return ZX_OK;
}

} // namespace

const zx_kernel zx_cuda_resize = {prepare, NULL, run};
const zx_kernel zx_cuda_resize_grad = {prepare, NULL, run};

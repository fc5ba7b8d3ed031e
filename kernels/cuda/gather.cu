// gather.cu - Gather, GatherElements, GatherND: reading through indices, of any dtype. What an
// index outside its dim (a fault) would have read is 0.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/index.cuh"

namespace
{

// ---- Gather -------------------------------------------------------------------------------------
typedef struct rows {
    int64_t n, n_indices; // rows of the table, and those that are taken of it
    int64_t run;          // elements of a row
} rows;

template <class T, class I>
__global__ void __launch_bounds__(ZX_BLOCK)
    gather(const T *x, zx_dtype ti, const void *index, T *y, int64_t n, rows r, zx_fault *fault)
{
    ZX_FOR_EACH(i, n)
    {
        const I row = (I)i / (I)r.run, column = (I)i - row * (I)r.run;
        const I o = row / (I)r.n_indices, k = row - o * (I)r.n_indices;
        const int64_t at = zx_index_of(ti, index, (int64_t)k, r.n, fault);
        y[i] = at < 0 ? T() : x[((int64_t)o * r.n + at) * r.run + (int64_t)column];
    }
}

// The largest elements that a row is made of whole.
uint32_t width_of(int64_t run_bytes, const void *x, const void *y)
{
    const uintptr_t all = (uintptr_t)run_bytes | (uintptr_t)x | (uintptr_t)y | 16;
    return (uint32_t)(all & (~all + 1));
}

cudaError_t launch_gather(const zx_call *c)
{
    const zx_view *x = &c->in[0], *index = &c->in[1], *y = &c->out[0];
    const zx_axis a = zx_axis_of(&x->type.shape, (uint32_t)zx_attr_int(c->attrs, ZX_A_AXIS, 0));
    const int64_t bytes = a.inner * (int64_t)zx_dtype_bytes(x->type.dtype);
    const uint32_t width = width_of(bytes, x->data, y->data);
    const int64_t run = bytes / width, n_indices = zx_count(index);
    const int64_t n = a.outer * n_indices * run;
    const rows r = {a.n, n_indices, run};
    const auto as = [&](auto zero) {
        using T = decltype(zero);
        const T *from = (const T *)x->data;
        T *to = (T *)y->data;
        const void *at = index->data;
        return n <= UINT32_MAX ? zx_launch_each(c, n, (gather<T, uint32_t>), from,
                                                index->type.dtype, at, to, n, r, c->fault)
                               : zx_launch_each(c, n, (gather<T, uint64_t>), from,
                                                index->type.dtype, at, to, n, r, c->fault);
    };
    return width == 16 ? as(uint4()) : zx_of_bytes(width, as);
}
zx_status run_gather(const zx_call *c, zx_err *err)
{
    return zx_cuda_check(launch_gather(c), "gather", err);
}

// ---- GatherElements -----------------------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK)
    gather_elements(const T *x, zx_dtype ti, const void *index, T *y, int64_t n, zx_elements e,
                    zx_fault *fault)
{
    ZX_FOR_EACH(i, n)
    {
        int64_t rest = i, at = 0;
        for (uint32_t d = e.rank; d-- > 0; rest /= e.dim[d])
            if (d != e.axis) at += rest % e.dim[d] * e.stride[d];
        const int64_t k = zx_index_of(ti, index, i, e.n, fault);
        y[i] = k < 0 ? T() : x[at + k * e.stride[e.axis]];
    }
}
zx_status run_elements(const zx_call *c, zx_err *err)
{
    const int64_t n = zx_count(&c->in[1]);
    const zx_elements elements = zx_elements_of(c, &c->in[0].type.shape);
    const cudaError_t e = zx_of_bytes(zx_dtype_bytes(c->in[0].type.dtype), [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, gather_elements<T>, (const T *)c->in[0].data,
                              c->in[1].type.dtype, (const void *)c->in[1].data, (T *)c->out[0].data,
                              n, elements, c->fault);
    });
    return zx_cuda_check(e, "gather_elements", err);
}

// ---- GatherND -----------------------------------------------------------------------------------
template <class T>
__global__ void __launch_bounds__(ZX_BLOCK) gather_nd(const T *x, zx_dtype ti, const void *index,
                                                      T *y, int64_t n, zx_tuples t, zx_fault *fault)
{
    ZX_FOR_EACH(i, n)
    {
        const int64_t k = i / t.run, at = zx_tuple_at(t, ti, index, k, fault);
        y[i] = at < 0 ? T() : x[at + (i - k * t.run)];
    }
}
zx_status run_nd(const zx_call *c, zx_err *err)
{
    const zx_tuples t = zx_tuples_of(c, &c->in[0].type.shape);
    const int64_t n = t.count * t.run;
    const cudaError_t e = zx_of_bytes(zx_dtype_bytes(c->in[0].type.dtype), [&](auto zero) {
        using T = decltype(zero);
        return zx_launch_each(c, n, gather_nd<T>, (const T *)c->in[0].data, c->in[1].type.dtype,
                              (const void *)c->in[1].data, (T *)c->out[0].data, n, t, c->fault);
    });
    return zx_cuda_check(e, "gather_nd", err);
}

} // namespace

const zx_kernel zx_cuda_gather = {NULL, NULL, run_gather};
const zx_kernel zx_cuda_gather_elements = {NULL, NULL, run_elements};
const zx_kernel zx_cuda_gather_nd = {NULL, NULL, run_nd};

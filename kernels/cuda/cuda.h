// cuda.h - the CUDA kernels: which there are, and what a call of one is given.
//
// A zx_cuda_X is a zx_kernel as zx_cpu_X is, called with the same zx_call but: data of views, work
// and fault are device memory (fault may be pinned memory of the host); call->cuda says where to
// run. `run` queues on that stream and returns; it neither waits nor allocates. `prepare` runs with
// that device current and may allocate. attrs, rng, state are host memory, read before `run`
// returns.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_H
#define ZX_KERNELS_CUDA_H

#include <cuda_runtime.h>

#include "kernels/kernel.h"
#include "kernels/optim.h"

ZX_BEGIN_C

struct zx_cuda { // zx_call.cuda
    int device;
    cudaStream_t stream;
    int processors;               // multiprocessors of the device
    struct cublasLtContext *blas; // a cublasLtHandle_t of the device
    size_t shared_bytes; // the most shared memory that a block gets where it asks; 0: 64 KiB
    bool tf32; // products of float32 round their operands to 10 bits, and run on tensor cores
};

// The kernels there are, by the last column of ops.def. What isn't here has no CUDA kernel.
#define ZX_CUDA_KERNELS(X)                                                                         \
    X(unary)                                                                                       \
    X(is_nan)                                                                                      \
    X(is_inf)                                                                                      \
    X(matmul)                                                                                      \
    X(matmul_gelu)                                                                                 \
    X(matmul_dgelu)                                                                                \
    X(matmul_sum)                                                                                  \
    X(unary_grad)                                                                                  \
    X(binary)                                                                                      \
    X(compare)                                                                                     \
    X(pow_grad_x)                                                                                  \
    X(cast)                                                                                        \
    X(where)                                                                                       \
    X(clip)                                                                                        \
    X(clip_grad)                                                                                   \
    X(copy)                                                                                        \
    X(transpose)                                                                                   \
    X(expand)                                                                                      \
    X(slice)                                                                                       \
    X(slice_scatter)                                                                               \
    X(concat)                                                                                      \
    X(pad)                                                                                         \
    X(pad_grad)                                                                                    \
    X(gather)                                                                                      \
    X(gather_elements)                                                                             \
    X(gather_nd)                                                                                   \
    X(gather_grad)                                                                                 \
    X(gather_nd_grad)                                                                              \
    X(scatter_nd)                                                                                  \
    X(scatter_add_elements)                                                                        \
    X(scatter_elements)                                                                            \
    X(reduce)                                                                                      \
    X(sum_to)                                                                                      \
    X(reduce_pick_grad)                                                                            \
    X(reduce_prod_grad)                                                                            \
    X(reduce_l2_grad)                                                                              \
    X(softmax)                                                                                     \
    X(softmax_grad)                                                                                \
    X(layer_norm)                                                                                  \
    X(layer_norm_grad)                                                                             \
    X(rms_norm)                                                                                    \
    X(rms_norm_grad)                                                                               \
    X(batch_norm)                                                                                  \
    X(batch_norm_grad)                                                                             \
    X(glu)                                                                                         \
    X(glu_grad)                                                                                    \
    X(rotary_embedding)                                                                            \
    X(cross_entropy)                                                                               \
    X(cross_entropy_grad)                                                                          \
    X(nll_loss)                                                                                    \
    X(nll_loss_grad)                                                                               \
    X(dropout)                                                                                     \
    X(cum_sum)                                                                                     \
    X(arg)                                                                                         \
    X(top_k)                                                                                       \
    X(one_hot)                                                                                     \
    X(trilu)                                                                                       \
    X(max_pool)                                                                                    \
    X(avg_pool)                                                                                    \
    X(max_pool_grad)                                                                               \
    X(avg_pool_grad)                                                                               \
    X(conv)                                                                                        \
    X(conv_grad_x)                                                                                 \
    X(conv_grad_w)                                                                                 \
    X(attention)                                                                                   \
    X(packed_attention)                                                                            \
    X(attention_grad)                                                                              \
    X(packed_attention_grad)                                                                       \
    X(linear_cross_entropy)                                                                        \
    X(linear_cross_entropy_grad)                                                                   \
    X(resize)                                                                                      \
    X(resize_grad)
#define X(name) extern const zx_kernel zx_cuda_##name;
ZX_CUDA_KERNELS(X)
#undef X

// The kernel of an op (zx_op_id), or NULL.
const zx_kernel *zx_cuda_kernel(uint32_t op);
// The same for operands of f16 and bf16, too: where the kernel has no form for them it works on
// copies in float32, in scratch (widen.cu).
const zx_kernel *zx_cuda_kernel_of_any(uint32_t op);

// ---- what plan instructions other than EXEC compute, as kernels/cpu/cpu.h has it: all pointers
// are device memory, the work is queued on cuda->stream.
// ----------------------------------------------
zx_status zx_cuda_adam(float *p, const float *g, float *m, float *v, int64_t n,
                       const zx_adam_args *a, const struct zx_cuda *cuda, zx_err *err);
// m may be NULL without momentum.
zx_status zx_cuda_sgd(float *p, const float *g, float *m, int64_t n, const zx_sgd_args *a,
                      const struct zx_cuda *cuda, zx_err *err);
zx_status zx_cuda_lion(float *p, const float *g, float *m, int64_t n, const zx_lion_args *a,
                       const struct zx_cuda *cuda, zx_err *err);
// Of a parameter of 16 bits: p is its float32 copy, x the rest, in device memory too.
zx_status zx_cuda_adam_mixed(float *p, const zx_mixed *x, float *m, float *v, int64_t n,
                             const zx_adam_args *a, const struct zx_cuda *cuda, zx_err *err);
zx_status zx_cuda_sgd_mixed(float *p, const zx_mixed *x, float *m, int64_t n, const zx_sgd_args *a,
                            const struct zx_cuda *cuda, zx_err *err);
zx_status zx_cuda_lion_mixed(float *p, const zx_mixed *x, float *m, int64_t n,
                             const zx_lion_args *a, const struct zx_cuda *cuda, zx_err *err);
// out[i] = from[i] + from[stride + i] + ..., of `ranks` operands in order; added to what out held
// if `add`. out may be one of the operands.
zx_status zx_cuda_sum_ranks(float *out, const float *from, int64_t stride, uint32_t ranks,
                            int64_t n, bool add, const struct zx_cuda *cuda, zx_err *err);
// The same where what is added is of type `made` and the sums, made in float32, are kept as `kept`:
// both one type, or sums of 16 bits kept in f32. `stride` is in elements.
zx_status zx_cuda_sum_ranks_of(zx_dtype kept, void *out, zx_dtype made, const void *from,
                               int64_t stride, uint32_t ranks, int64_t n, bool add,
                               const struct zx_cuda *cuda, zx_err *err);
// *sum = the sum of squares, in double, over fixed parts of 4096 elements. work:
// zx_cuda_square_work(n) bytes.
uint64_t zx_cuda_square_work(int64_t n);
zx_status zx_cuda_square_sum(const float *x, int64_t n, void *work, double *sum,
                             const struct zx_cuda *cuda, zx_err *err);
zx_status zx_cuda_square_sum_of(zx_dtype t, const void *x, int64_t n, void *work, double *sum,
                                const struct zx_cuda *cuda, zx_err *err);
// *first = index of the first element that is NaN (or, with `inf`, infinite); -1: none.
zx_status zx_cuda_find_nonfinite(const float *x, int64_t n, bool inf, int64_t *first,
                                 const struct zx_cuda *cuda, zx_err *err);

// ZX_OK, or E_DEVICE with CUDA's own words: "unary: cudaErrorInvalidValue: invalid argument".
zx_status zx_cuda_check(cudaError_t e, const char *what, zx_err *err);

ZX_END_C

#endif

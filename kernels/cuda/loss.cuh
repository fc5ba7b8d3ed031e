// loss.cuh - what losses over labels share: the classes of lines, and the sums over lines, which
// are one block's, in double.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_LOSS_CUH
#define ZX_KERNELS_CUDA_LOSS_CUH

#include "kernels/cuda/any.cuh"
#include "kernels/cuda/rows.cuh"

namespace
{

enum { REDUCTION_NONE, REDUCTION_MEAN, REDUCTION_SUM };

typedef struct lines {
    int64_t count, classes, inner;
    zx_dtype label_type;
    int64_t ignore, reduction;
    bool has_ignore;
    double smoothing;
} lines;
inline lines lines_of(const zx_call *c, const zx_shape *scores, const zx_view *labels)
{
    const zx_axis a = zx_axis_of(scores, 1);
    const zx_attr *ignore = zx_attr_find(c->attrs, ZX_A_IGNORE_INDEX);
    lines l;
    l.count = a.outer * a.inner;
    l.classes = a.n;
    l.inner = a.inner;
    l.label_type = labels->type.dtype;
    l.has_ignore = ignore != NULL;
    l.ignore = ignore != NULL ? ignore->i[0] : 0;
    l.reduction = zx_attr_int(c->attrs, ZX_A_REDUCTION, REDUCTION_MEAN);
    l.smoothing = zx_attr_float(c->attrs, ZX_A_SMOOTHING, 0);
    return l;
}

// The class of a line; -1: ignored, or wrong.
static __device__ inline int64_t class_of(const lines &l, const void *labels, int64_t line,
                                          zx_fault *fault)
{
    const int64_t y = zx_index_at(l.label_type, labels, line);
    if (l.has_ignore && y == l.ignore) return -1;
    if (y >= 0 && y < l.classes) return y;
    if (fault != NULL) zx_fault_device(fault, ZX_FAULT_LABEL, y, l.classes);
    return -1;
}
static __device__ inline double weight_of(const float *weights, int64_t y)
{
    return weights != NULL ? (double)weights[y] : 1.0;
}
static __device__ inline int64_t start_of(const lines &l, int64_t line)
{
    return line / l.inner * l.classes * l.inner + line % l.inner;
}

// ---- sums over lines: one block -----------------------------------------------------------------
// The weights of the valid labels.
static __device__ inline double divisor_of(const lines &l, const void *labels, const float *weights)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < l.count; i += ZX_BLOCK) {
        const int64_t y = class_of(l, labels, i, NULL);
        if (y >= 0) sum += weight_of(weights, y);
    }
    return zx_team_sum<ZX_BLOCK>(sum);
}
__global__ void __launch_bounds__(ZX_BLOCK)
    put_divisor(lines l, const void *labels, const float *weights, double *divisor)
{
    const double sum = divisor_of(l, labels, weights);
    if (threadIdx.x == 0) *divisor = sum;
}
__global__ void __launch_bounds__(ZX_BLOCK)
    put_loss(lines l, const void *labels, const float *weights, const double *of_line, float *loss)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < l.count; i += ZX_BLOCK) sum += of_line[i];
    sum = zx_team_sum<ZX_BLOCK>(sum);
    if (l.reduction == REDUCTION_MEAN) sum /= divisor_of(l, labels, weights);
    if (threadIdx.x == 0) *loss = (float)sum;
}
__global__ void __launch_bounds__(ZX_BLOCK) put_losses(lines l, const double *of_line, float *loss)
{
    ZX_FOR_EACH(i, l.count) loss[i] = (float)of_line[i];
}
// Queues the sum of the lines' losses, or the losses.
inline cudaError_t finish(const zx_call *c, const lines &l, const void *labels,
                          const float *weights, const double *of_line)
{
    float *loss = (float *)c->out[0].data;
    if (l.reduction == REDUCTION_NONE)
        return zx_launch_each(c, l.count, put_losses, l, of_line, loss);
    return zx_launch(put_loss, 1, ZX_BLOCK, 0, c->cuda->stream, l, labels, weights, of_line, loss);
}
// Queues the divisor of a mean.
inline cudaError_t divide(const zx_call *c, const lines &l, const void *labels,
                          const float *weights, double *divisor)
{
    if (l.reduction != REDUCTION_MEAN) return cudaSuccess;
    return zx_launch(put_divisor, 1, ZX_BLOCK, 0, c->cuda->stream, l, labels, weights, divisor);
}

} // namespace

#endif

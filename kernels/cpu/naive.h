// naive.h - products and convolutions as plain loops, and the numbers that both these loops and the
// calls of oneDNN start from. They serve the types that only constant folding meets, shapes that
// the library refuses, sizes of 0, and builds without the library (ZX_NAIVE).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_NAIVE_H
#define ZX_KERNELS_CPU_NAIVE_H

#include "kernels/kernel.h"

ZX_BEGIN_C

// ---- MATMUL
// ---------------------------------------------------------------------------------------
// y[batch][i][j] = alpha * sum_k a[batch][i][k] * b[batch][k][j] + c[j]. Strides are in elements;
// a batch stride of 0 repeats the operand. y is C order.
typedef struct zx_product {
    uint32_t n_batch; // after joining neighbours that move alike
    int64_t batch[ZX_MAX_RANK], a_batch[ZX_MAX_RANK], b_batch[ZX_MAX_RANK];
    int64_t m, k, n;
    int64_t a_row, a_col, b_row, b_col;
    double alpha;
    bool bias;
} zx_product;

zx_product zx_product_of(const zx_call *call);
void zx_naive_matmul(const zx_call *call); // f32, f64

// ---- CONV, CONV_GRAD_X, CONV_GRAD_W -------------------------------------------------------------
// Channels m (of y) and c (of x) are those of one group. Three spatial dims, missing ones in front
// with size 1.
typedef struct zx_conv {
    int64_t n, groups, m, c;
    int spatial;
    int64_t x[3], y[3], k[3], stride[3], dilation[3], before[3], after[3];
    bool bias;
} zx_conv;

// E_SHAPE where the sizes contradict each other.
zx_status zx_conv_of(const zx_attrs *attrs, const zx_shape *x, const zx_shape *w, const zx_shape *y,
                     zx_conv *out, zx_err *err);
void zx_naive_conv(const zx_call *call, const zx_conv *g); // these three: f32, f64
void zx_naive_conv_grad_x(const zx_call *call, const zx_conv *g);
void zx_naive_conv_grad_w(const zx_call *call, const zx_conv *g);

// ---- f16 and bf16
// -----------------------------------------------------------------------------------
// E_UNSUPPORTED, naming the op's word, unless the call's floats are all f32, f64, f16 or bf16.
zx_status zx_floats_check(const zx_call *call, const char *word, zx_err *err);
// True where a call has to go through f32.
bool zx_is_half(const zx_call *call);
// Scratch for f32 copies of all operands of a half call.
uint64_t zx_half_bytes(const zx_call *call);
// Runs `run` on f32 copies in `work` (zx_half_bytes of it) and rounds what it wrote.
zx_status zx_half_run(const zx_call *call, void *work,
                      zx_status (*run)(const zx_call *call, zx_err *err), zx_err *err);

ZX_END_C

#endif

// dnnl_util.h - the oneDNN primitives of one node: made once by a kernel's prepare, then only run.
//
// The one place that knows what differs between oneDNN 2 and 3. A zx_dnnl is a short program: each
// step is a primitive whose operands are either outside (tensors of the node, handed to
// zx_dnnl_run) or inside the node's scratch (layouts that the library prefers, and its own
// scratchpad).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_DNNL_UTIL_H
#define ZX_KERNELS_CPU_DNNL_UTIL_H

#ifndef ZX_NAIVE

#include "kernels/kernel.h"

ZX_BEGIN_C

#define ZX_DNNL_RANK 10 // batch dims of a product and two more

typedef struct zx_dnnl zx_dnnl;

// An operand in outside memory, f32 or bf16; sums are f32. `any`: the library may choose another
// layout to compute in; then the program reorders from or to this one.
typedef struct zx_dnnl_tensor {
    int rank;                                        // 0: absent
    int64_t dim[ZX_DNNL_RANK], stride[ZX_DNNL_RANK]; // strides in elements
    bool any, bf16;
    uint32_t outside; // index into zx_dnnl_run's pointers
} zx_dnnl_tensor;
// C order over `dim`.
zx_dnnl_tensor zx_dnnl_plain(int rank, const int64_t *dim, bool any, uint32_t outside);

typedef enum zx_dnnl_conv_kind {
    ZX_DNNL_FORWARD,
    ZX_DNNL_GRAD_X,
    ZX_DNNL_GRAD_W
} zx_dnnl_conv_kind;
typedef struct zx_dnnl_window { // of a convolution's spatial dims
    int64_t stride[3], dilation[3], before[3], after[3];
} zx_dnnl_window;

// Each makes a program for `threads` threads: y = alpha * a*b + c, added to what y holds if `add`;
// or one of a convolution's three products, which reads two of x, w, y and writes the third.
// E_UNSUPPORTED where the library has nothing for it (the caller falls back on its own loops).
zx_status zx_dnnl_matmul(const zx_dnnl_tensor *a, const zx_dnnl_tensor *b, const zx_dnnl_tensor *c,
                         const zx_dnnl_tensor *y, float alpha, bool add, int threads, zx_dnnl **out,
                         zx_err *err);
zx_status zx_dnnl_conv(zx_dnnl_conv_kind kind, const zx_dnnl_tensor *x, const zx_dnnl_tensor *w,
                       const zx_dnnl_tensor *b, const zx_dnnl_tensor *y,
                       const zx_dnnl_window *window, int threads, zx_dnnl **out, zx_err *err);

// Whether the processor multiplies bf16: else float32 copies are faster than what the library does.
bool zx_dnnl_has_bf16(void);

uint64_t zx_dnnl_work_bytes(const zx_dnnl *d);
// Runs the program with the number of threads that it was made for: a library failure becomes a
// fault of the call. Allocates nothing of ours.
zx_status zx_dnnl_run(const zx_dnnl *d, void *const *outside, const zx_call *call, zx_err *err);
void zx_dnnl_free(zx_dnnl *d); // accepts NULL

ZX_END_C

#endif
#endif

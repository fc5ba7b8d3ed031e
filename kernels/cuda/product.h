// product.h - matrix products by cuBLASLt, for the kernels that are made of them.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CUDA_PRODUCT_H
#define ZX_KERNELS_CUDA_PRODUCT_H

#include "kernels/cpu/naive.h"
#include "kernels/cuda/cuda.h"

ZX_BEGIN_C

// y = alpha * a * b + c (a row, added to each of y's), or, with `add`, y += that. Operands as
// zx_product says, all of one type (f32, f16, bf16), sums in f32.
typedef struct zx_cuda_product zx_cuda_product;

// What the product does beside (kernels/cuda/epilogue.c), as cuBLASLt's epilogues have it:
typedef enum zx_cuda_beside {
    ZX_BESIDE_NOTHING,
    ZX_BESIDE_GELU,      // y is the GELU by tanh of what it would be, which goes to `aux`
    ZX_BESIDE_DGELU,     // y times the slope of that GELU at `aux`
    ZX_BESIDE_DGELU_SUM, // and the sums of the columns of that to `sums`
    ZX_BESIDE_SUM_A,     // the sums of a [M], or of b [N], over the inner dim to `sums`
    ZX_BESIDE_SUM_B,
} zx_cuda_beside;

// The algorithm is chosen here, by sizes, layouts and types alone. *out is NULL where y is empty.
// E_UNSUPPORTED: cuBLASLt has none.
zx_status zx_cuda_product_open(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                               bool add, zx_cuda_product **out, zx_err *err);
// Where y and c are `y_type`: f32, of operands of 16 bits; no batches.
zx_status zx_cuda_product_open_to(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                                  zx_dtype y_type, bool add, zx_cuda_product **out, zx_err *err);
// The same with something beside. *out is NULL where there is no such product: batches, no
// elements, rows of `aux` that aren't a multiple of 8, or cuBLASLt has none.
zx_status zx_cuda_product_open_beside(const struct zx_cuda *at, const zx_product *p, zx_dtype type,
                                      zx_cuda_beside beside, zx_cuda_product **out, zx_err *err);
void zx_cuda_product_close(zx_cuda_product *p);          // accepts NULL
uint64_t zx_cuda_product_work(const zx_cuda_product *p); // bytes of scratch; of NULL 0
// Queues it. Addresses are multiples of ZX_ALIGN; y is neither a nor b.
zx_status zx_cuda_product_run(const zx_cuda_product *p, const struct zx_cuda *at, const void *a,
                              const void *b, const void *c, void *y, void *work, zx_err *err);
// aux is like y.
zx_status zx_cuda_product_run_beside(const zx_cuda_product *p, const struct zx_cuda *at,
                                     const void *a, const void *b, const void *c, void *y,
                                     void *aux, void *sums, void *work, zx_err *err);

ZX_END_C

#endif

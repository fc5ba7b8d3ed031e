// cpu.h - the CPU kernels, one for each name in the kernel column of ops.def, and the arithmetic
// that plan instructions other than EXEC need.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_CPU_H
#define ZX_KERNELS_CPU_H

#include "kernels/kernel.h"
#include "kernels/optim.h"

#define ZX_OP(id, word, lo, hi, outs, flags, infer, grad, cost, kern)                              \
    extern const zx_kernel zx_cpu_##kern;
#include "graph/ops.def"
#undef ZX_OP

// The kernel of an op (zx_op_id), never NULL.
const zx_kernel *zx_cpu_kernel(uint32_t op);
// The same on operands of 16 bits too, of one type or with float32 among them: what has no kernel
// of its own for them computes on float32 copies in its scratch, and rounds once (widen.c).
const zx_kernel *zx_cpu_kernel_of_any(uint32_t op);

// ---- f16 and bf16: exact into float32, rounded to nearest even out of it
// --------------------------
void zx_cpu_widen(zx_dtype t, const void *x, float *y, int64_t n);
void zx_cpu_narrow(zx_dtype t, const float *x, void *y, int64_t n);

// ---- optimizers: one shard, elementwise, so the same bits for any cut
// -----------------------------
// CONFIG 2.6: m=b1 m+(1-b1)g; v=b2 v+(1-b2)g^2; p -= lr*((m/c1)/(sqrt(v/c2)+eps) + wd*p).
void zx_cpu_adam(float *p, const float *g, float *m, float *v, int64_t n, const zx_adam_args *a,
                 int threads);
// PyTorch's SGD; m may be NULL without momentum.
void zx_cpu_sgd(float *p, const float *g, float *m, int64_t n, const zx_sgd_args *a, int threads);
void zx_cpu_lion(float *p, const float *g, float *m, int64_t n, const zx_lion_args *a, int threads);
void zx_cpu_adam_mixed(float *p, const zx_mixed *x, float *m, float *v, int64_t n,
                       const zx_adam_args *a, int threads);
void zx_cpu_sgd_mixed(float *p, const zx_mixed *x, float *m, int64_t n, const zx_sgd_args *a,
                      int threads);
void zx_cpu_lion_mixed(float *p, const zx_mixed *x, float *m, int64_t n, const zx_lion_args *a,
                       int threads);

// ---- collectives' arithmetic: the order of sums is the order of `from`
// ---------------------------- out[i] = from[0][i] + from[1][i] + ..., added to what out held (held
// + (sum)) if `add`.
void zx_cpu_sum_ranks(float *out, const float *const *from, uint32_t n_from, int64_t n, bool add,
                      int threads);
// The same where what is added is of type `made` and the sums, made in float32, are kept as `kept`.
void zx_cpu_sum_ranks_of(zx_dtype kept, void *out, zx_dtype made, const void *const *from,
                         uint32_t n_from, int64_t n, bool add, int threads);
// Sum of squares in double over fixed blocks of 4096 elements, blocks added in order: the same bits
// for any number of threads.
double zx_cpu_square_sum(const float *x, int64_t n, int threads);
double zx_cpu_square_sum_of(zx_dtype t, const void *x, int64_t n, int threads);
// Index of the first element that is NaN (or, with `inf`, infinite); -1: none.
int64_t zx_cpu_find_nonfinite(const float *x, int64_t n, bool inf);
int64_t zx_cpu_find_nonfinite_of(zx_dtype t, const void *x, int64_t n, bool inf); // no float: none

// ---- first values: elements [from, from + n) of a tensor, see zx_init in graph.h
// --------------------
void zx_cpu_init_normal(float *x, uint64_t key, uint64_t from, int64_t n, double mean, double dev);
void zx_cpu_init_uniform(float *x, uint64_t key, uint64_t from, int64_t n, double lo, double hi);
uint64_t zx_cpu_init_key(uint64_t seed, const char *name);

#endif

// kernel.h - what a backend hands to a kernel, and what a kernel is.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_KERNELS_KERNEL_H
#define ZX_KERNELS_KERNEL_H

#include "graph/base/attr.h"
#include "graph/base/tensor.h"

#if defined(__CUDACC__) // what GPUs compute too
#define ZX_BOTH __host__ __device__
#else
#define ZX_BOTH
#endif

ZX_BEGIN_C

typedef struct zx_view { // a contiguous tensor in C order
    void *data;          // NULL: an omitted input, or an output that nobody reads
    zx_type type;
} zx_view;

// What a kernel may find wrong with values. The first fault of a rank is kept; the step goes on (no
// rank ever returns early past a collective) and the result is not used.
#define ZX_FAULT_MAP(X)                                                                            \
    X(NONE, "")                                                                                    \
    X(LABEL, "label %lld is outside the %lld classes")                                             \
    X(INDEX, "index %lld is outside a dimension of %lld")                                          \
    X(DIVIDE, "integer division of %lld by %lld")                                                  \
    X(LIBRARY, "library call failed with status %lld (%lld)")
typedef enum zx_fault_kind {
#define X(name, text) ZX_FAULT_##name,
    ZX_FAULT_MAP(X)
#undef X
        ZX_FAULT_COUNT
} zx_fault_kind;

typedef struct zx_fault { // zeroed: none
    uint32_t kind;        // zx_fault_kind
    uint32_t step;        // set by the executor
    int64_t a, b;         // the two numbers in the sentence
} zx_fault;
// Keeps the fault if it is the first; may be called from several threads of a kernel.
void zx_fault_set(zx_fault *f, zx_fault_kind kind, int64_t a, int64_t b);

typedef struct zx_rng {         // what random kernels draw from, beside KEY and the element's index
    uint64_t seed, step, micro; // micro: index of the micro-batch over all ranks and steps' halves
} zx_rng;

typedef struct zx_call {
    uint32_t op; // zx_op_id; kernels that serve several rows look here
    uint32_t n_in, n_out;
    const zx_view *in;
    const zx_view *out;
    const zx_attrs *attrs;
    int threads;       // OpenMP threads to use, >= 1: num_threads(call->threads) on every pragma
    void *work;        // work_bytes of scratch, 64-byte aligned
    const void *state; // what prepare made
    const zx_rng *rng;
    zx_fault *fault;
    const struct zx_cuda *cuda; // where a CUDA kernel runs (kernels/cuda/cuda.h); NULL: the CPU's
} zx_call;

// A kernel is pure: outputs are a function of inputs, attributes, rng and threads alone, with the
// same bits at any address. Inputs may be unaligned only while constants are folded: kernels that
// need alignment are never called with such views (folding copies first).
typedef struct zx_kernel {
    // Once a node, with types but no data: says how much scratch `run` needs and may make *state.
    // NULL: neither. Everything that allocates belongs here.
    zx_status (*prepare)(const zx_call *call, uint64_t *work_bytes, void **state, zx_err *err);
    void (*release)(void *state); // NULL where prepare makes no state
    zx_status (*run)(const zx_call *call, zx_err *err);
} zx_kernel;

ZX_END_C

#endif

// naive.h - every operator once more, in double and as plainly as can be, to test kernels against.
// Written from the comments of graph/ops.def and the ONNX standard, never from the kernels.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_OPS_NAIVE_H
#define ZX_TESTS_OPS_NAIVE_H

#include <math.h>

#include "graph/op.h"

typedef struct naive_tensor { // any element type, its values as doubles
    zx_type type;
    double *x; // NULL: omitted
} naive_tensor;

typedef struct naive_call {
    zx_op_id op;
    const zx_attrs *attrs;
    uint32_t n_in, n_out;
    const naive_tensor *in; // those past n_in are omitted
    const naive_tensor *out;
} naive_call;

typedef void naive_fn(const naive_call *c);
// NULL for rows that only gradients use: they are tested against central differences.
naive_fn *naive_of(zx_op_id op);

// clang-format off
#define NAIVE_MAP(X)                                                                               \
    X(unary) X(binary) X(where) X(clip) X(cast) X(reshape) X(transpose) X(expand) X(slice)         \
    X(slice_scatter) X(concat) X(pad) X(cum_sum) X(trilu) X(gather) X(gather_elements)             \
    X(scatter_add_elements) X(gather_nd) X(scatter_elements) X(scatter_nd) X(one_hot) X(top_k)     \
    X(arg) X(reduce) X(sum_to) X(matmul) X(conv) X(conv_grad_x) X(conv_grad_w) X(max_pool)         \
    X(avg_pool) X(resize) X(layer_norm) X(batch_norm) X(softmax) X(cross_entropy) X(nll_loss)  \
    X(attention) X(packed_attention) X(rotary_embedding) X(linear_cross_entropy) X(glu)        \
    X(matmul_gelu) X(matmul_dgelu) X(matmul_sum)
// clang-format on
#define X(name) naive_fn naive_##name;
NAIVE_MAP(X)
#undef X

// ---- indices ------------------------------------------------------------------------------------

static inline int64_t naive_count(const naive_tensor *t)
{
    return zx_shape_count(&t->type.shape);
}
// The index of element `flat` in C order.
static inline void naive_index(const zx_shape *s, int64_t flat, int64_t *index)
{
    for (uint32_t d = s->rank; d-- > 0;) {
        index[d] = flat % s->dim[d];
        flat /= s->dim[d];
    }
}
static inline int64_t naive_flat(const zx_shape *s, const int64_t *index)
{
    int64_t flat = 0;
    for (uint32_t d = 0; d < s->rank; d++) flat = flat * s->dim[d] + index[d];
    return flat;
}
// Where element `index` of a tensor of shape `whole` comes from in one that broadcasts to it.
static inline int64_t naive_from(const zx_shape *s, const zx_shape *whole, const int64_t *index)
{
    int64_t flat = 0;
    const uint32_t shift = whole->rank - s->rank;
    for (uint32_t d = 0; d < s->rank; d++)
        flat = flat * s->dim[d] + (s->dim[d] == 1 ? 0 : index[d + shift]);
    return flat;
}
static inline int64_t naive_wrap(double index, int64_t n) // negative ones count from the end
{
    return (int64_t)index + (index < 0 ? n : 0);
}

#endif

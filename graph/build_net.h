// build_net.h - the words in which build_*.c write networks down.
//
// A net is written from the input to the loss. The module that is open (`zx_net_enter`) names the
// weights, the nodes and the values that are made in it: "transformer.h.0.attn/softmax".
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_GRAPH_BUILD_NET_H
#define ZX_GRAPH_BUILD_NET_H

#include "graph/build_model.h"
#include "proto/onnx_write.h"

#define ZX_NET_DEPTH 8

typedef struct zx_net {
    zx_onnx_out out;
    zx_arena *mem;
    uint64_t seed;
    uint32_t depth;
    const char *path[ZX_NET_DEPTH]; // of the open modules; path[0] is ""
    Onnx__NodeProto *node;          // the last one made, for its attributes
} zx_net;

typedef struct zx_new_sizes { // what is built: options over a preset, checked
    int64_t layers, width, heads, kv_heads, hidden, vocab, context, sequence, inputs, batch;
    double theta, epsilon; // of the rotary embedding, of norms
    bool tied;             // the head's weight is the embedding's
} zx_new_sizes;

void zx_net_open(zx_net *n, zx_arena *mem, const char *name, uint64_t seed);
void zx_net_enter(zx_net *n, const char *module); // below the module that is open; may be "h.0"
void zx_net_leave(zx_net *n);

// A node in the open module; inputs as far as they are given. Returns its output's name.
const char *zx_net_op(zx_net *n, const char *op, const char *role, const char *a, const char *b,
                      const char *c);
// The same with an integer attribute.
const char *zx_net_op_int(zx_net *n, const char *op, const char *role, const char *a, const char *b,
                          const char *attribute, int64_t v);
// The same with any number of inputs and outputs; out[] holds the outputs' roles, and then names.
void zx_net_node(zx_net *n, const char *op, const char *role, uint32_t n_in, const char *const *in,
                 uint32_t n_out, const char **out);
// The same, but the outputs are named as they are given (an output of the graph).
void zx_net_named(zx_net *n, const char *op, const char *role, uint32_t n_in, const char *const *in,
                  uint32_t n_out, const char *const *out);
// Parts of `sizes` along the last axis into out[].
void zx_net_split(zx_net *n, const char *const *roles, const char *x, uint32_t parts,
                  const int64_t *sizes, const char **out);
const char *zx_net_reshape(zx_net *n, const char *role, const char *x, uint32_t rank,
                           const int64_t *shape);
const char *zx_net_transpose(zx_net *n, const char *role, const char *x, uint32_t rank,
                             const int64_t *perm);

// Constants: equal ones are one.
const char *zx_net_ints(zx_net *n, uint32_t count, const int64_t *v); // [count]
const char *zx_net_int(zx_net *n, int64_t v);                         // a scalar
const char *zx_net_float(zx_net *n, float v);                         // a scalar

// A weight of the open module: normal numbers around 0, or all of one value.
const char *zx_net_normal(zx_net *n, const char *name, uint32_t rank, const int64_t *dims,
                          double deviation);
const char *zx_net_filled(zx_net *n, const char *name, int64_t size, float value);

// x [.., in] through the transpose of `weight` [out, in], as a linear layer without bias does.
const char *zx_net_linear(zx_net *n, const char *x, const char *weight);

// Causal attention: q [B, T, heads*D], k and v [B, T, kv_heads*D] to [B, T, heads*D]. Operator set
// 23.
const char *zx_net_attention(zx_net *n, const char *role, const char *q, const char *k,
                             const char *v, const zx_new_sizes *s);

// The length of the sequence's positions 0, 1, ... as int64 [T], from the shape of input_ids.
const char *zx_net_positions(zx_net *n);
// What is added to scores [.., T, T]: 0 where a position may look, else the most negative number.
const char *zx_net_causal_mask(zx_net *n, const char *positions);
// Inputs input_ids and labels [batch, sequence].
void zx_net_token_inputs(zx_net *n, const zx_new_sizes *s);
// The mean cross-entropy of logits [.., classes] and "labels"; the graph's output "loss".
void zx_net_loss(zx_net *n, const char *logits, int64_t classes);
// The same of hidden states [batch, sequence, C] through `weight` [classes, C], in zerox's own
// operator, in which the logits never exist as a whole.
void zx_net_linear_loss(zx_net *n, const char *x, const char *weight);

// The families.
typedef void zx_new_build_fn(zx_net *n, const zx_new_sizes *s);
zx_new_build_fn zx_new_gpt2, zx_new_llama, zx_new_mlp;

#endif

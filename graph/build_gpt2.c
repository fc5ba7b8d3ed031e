// build_gpt2.c - GPT-2 (Radford et al. 2019): norms before each part, learned positions, tanh GELU,
// the embedding also as the head. Names, shapes and first values as published weights have them.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/build_net.h"

#define DEVIATION 0.02

static const char *layer_norm(zx_net *n, const char *module, const char *x, const zx_new_sizes *s)
{
    zx_net_enter(n, module);
    const char *weight = zx_net_filled(n, "weight", s->width, 1.0f);
    const char *bias = zx_net_filled(n, "bias", s->width, 0.0f);
    const char *y = zx_net_op(n, "LayerNormalization", "layer_norm", x, weight, bias);
    zx_onnx_node_int(&n->out, n->node, "axis", -1);
    zx_onnx_node_float(&n->out, n->node, "epsilon", (float)s->epsilon);
    zx_net_leave(n);
    return y;
}

// x [B, T, in] to [B, T, out]; the weight is [in, out], as GPT-2's are.
static const char *projection(zx_net *n, const char *module, const char *x, int64_t in, int64_t out,
                              double deviation)
{
    zx_net_enter(n, module);
    const char *weight = zx_net_normal(n, "weight", 2, (const int64_t[]){in, out}, deviation);
    const char *y = zx_net_op(n, "MatMul", "matmul", x, weight, NULL);
    y = zx_net_op(n, "Add", "add_bias", y, zx_net_filled(n, "bias", out, 0.0f), NULL);
    zx_net_leave(n);
    return y;
}

static const char *attention(zx_net *n, const char *x, const char *mask, const zx_new_sizes *s,
                             double residual_deviation)
{
    const int64_t c = s->width, d = c / s->heads;
    const int64_t by_head[] = {0, 0, s->heads, d}, merged[] = {0, 0, c};
    const int64_t heads_first[] = {0, 2, 1, 3}, transposed[] = {0, 2, 3, 1};
    const char *qkv[3];
    zx_net_enter(n, "attn");
    x = projection(n, "c_attn", x, c, 3 * c, DEVIATION);
    zx_net_split(n, (const char *const[]){"q", "k", "v"}, x, 3, (const int64_t[]){c, c, c}, qkv);
    const char *q = zx_net_reshape(n, "q_by_head", qkv[0], 4, by_head);
    const char *k = zx_net_reshape(n, "k_by_head", qkv[1], 4, by_head);
    const char *v = zx_net_reshape(n, "v_by_head", qkv[2], 4, by_head);
    q = zx_net_transpose(n, "q_heads", q, 4, heads_first); // [B, H, T, D]
    k = zx_net_transpose(n, "k_heads", k, 4, transposed);  // [B, H, D, T]
    v = zx_net_transpose(n, "v_heads", v, 4, heads_first);
    const char *scores = zx_net_op(n, "MatMul", "scores", q, k, NULL); // [B, H, T, T]
    scores = zx_net_op(n, "Mul", "scores_scaled", scores,
                       zx_net_float(n, (float)(1.0 / sqrt((double)d))), NULL);
    scores = zx_net_op(n, "Add", "scores_masked", scores, mask, NULL);
    const char *weights = zx_net_op_int(n, "Softmax", "softmax", scores, NULL, "axis", -1);
    x = zx_net_op(n, "MatMul", "context", weights, v, NULL);
    x = zx_net_transpose(n, "context_tokens", x, 4, heads_first);
    x = zx_net_reshape(n, "context_merged", x, 3, merged);
    x = projection(n, "c_proj", x, c, c, residual_deviation);
    zx_net_leave(n);
    return x;
}

static const char *feed_forward(zx_net *n, const char *x, const zx_new_sizes *s,
                                double residual_deviation)
{
    zx_net_enter(n, "mlp");
    x = projection(n, "c_fc", x, s->width, s->hidden, DEVIATION);
    zx_net_enter(n, "act");
    x = zx_net_op(n, "Gelu", "gelu", x, NULL, NULL);
    zx_onnx_node_text(&n->out, n->node, "approximate", "tanh");
    zx_net_leave(n);
    x = projection(n, "c_proj", x, s->hidden, s->width, residual_deviation);
    zx_net_leave(n);
    return x;
}

static const char *table(zx_net *n, const char *module, const char *weight, const char *indices)
{
    zx_net_enter(n, module);
    const char *x = zx_net_op_int(n, "Gather", "embedding", weight, indices, "axis", 0);
    zx_net_leave(n);
    return x;
}

void zx_new_gpt2(zx_net *n, const zx_new_sizes *s)
{
    // What is added to the residual stream 2L times starts smaller, so that the sum does not grow.
    const double residual = DEVIATION / sqrt(2.0 * (double)s->layers);
    zx_net_token_inputs(n, s);
    zx_net_enter(n, "transformer");
    const char *wte =
        zx_net_normal(n, "wte.weight", 2, (const int64_t[]){s->vocab, s->width}, DEVIATION);
    const char *wpe =
        zx_net_normal(n, "wpe.weight", 2, (const int64_t[]){s->context, s->width}, DEVIATION);
    const char *positions = zx_net_positions(n);
    const char *mask = zx_net_causal_mask(n, positions);
    const char *tokens = table(n, "wte", wte, "input_ids");
    const char *places = table(n, "wpe", wpe, positions);
    const char *x = zx_net_op(n, "Add", "embeddings", tokens, places, NULL); // [B, T, C] + [T, C]
    for (int64_t i = 0; i < s->layers; i++) {
        zx_net_enter(n, zx_arena_printf(n->mem, "h.%d", (int)i));
        const char *y = attention(n, layer_norm(n, "ln_1", x, s), mask, s, residual);
        x = zx_net_op(n, "Add", "residual_1", x, y, NULL);
        y = feed_forward(n, layer_norm(n, "ln_2", x, s), s, residual);
        x = zx_net_op(n, "Add", "residual_2", x, y, NULL);
        zx_net_leave(n);
    }
    x = layer_norm(n, "ln_f", x, s);
    zx_net_leave(n);
    zx_net_enter(n, "lm_head");
    if (!s->tied)
        wte = zx_net_normal(n, "weight", 2, (const int64_t[]){s->vocab, s->width}, DEVIATION);
    x = zx_net_linear(n, x, wte);
    zx_net_leave(n);
    zx_net_loss(n, x, s->vocab);
}

// preset_gpt3.c - GPT-3 (Brown et al. 2020) and larger ones of its form: GPT-2's modules with fused
// attention. Dropout has probability 0; its modules are there, since hooks see them.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/preset_net.h"

#define DEVIATION 0.02

static const char *layer_norm(zx_net *n, const char *module, const char *x, const zx_new_sizes *s)
{
    zx_net_enter(n, module);
    const char *weight = zx_net_filled(n, "weight", s->width, 1.0f);
    x = zx_net_op(n, "LayerNormalization", "layer_norm", x, weight,
                  zx_net_filled(n, "bias", s->width, 0.0f));
    zx_onnx_node_int(&n->out, n->node, "axis", -1);
    zx_onnx_node_float(&n->out, n->node, "epsilon", (float)s->epsilon);
    zx_net_leave(n);
    return x;
}

static const char *dropout(zx_net *n, const char *module, const char *x)
{
    zx_net_enter(n, module);
    x = zx_net_op(n, "Identity", "dropout", x, NULL, NULL);
    zx_net_leave(n);
    return x;
}

// x [B, T, in] to [B, T, out] by one product of matrices that adds the bias; the weight is [in,
// out], as GPT-2's are.
static const char *projection(zx_net *n, const char *module, const char *x, int64_t in, int64_t out,
                              double deviation, const zx_new_sizes *s)
{
    zx_net_enter(n, module);
    const char *weight = zx_net_normal(n, "weight", 2, (const int64_t[]){in, out}, deviation);
    x = zx_net_reshape(n, "rows", x, 2, (const int64_t[]){-1, in});
    x = zx_net_op(n, "Gemm", "addmm", x, weight, zx_net_filled(n, "bias", out, 0.0f));
    x = zx_net_reshape(n, "tokens", x, 3, (const int64_t[]){s->batch, s->sequence, out});
    zx_net_leave(n);
    return x;
}

static const char *attention(zx_net *n, const char *x, const zx_new_sizes *s, double residual)
{
    const int64_t c = s->width;
    const char *qkv[3];
    zx_net_enter(n, "attn");
    x = projection(n, "c_attn", x, c, 3 * c, DEVIATION, s);
    zx_net_split(n, (const char *const[]){"q", "k", "v"}, x, 3, (const int64_t[]){c, c, c}, qkv);
    x = zx_net_attention(n, "attention", qkv[0], qkv[1], qkv[2], s);
    x = dropout(n, "attn_dropout", x);
    x = dropout(n, "resid_dropout", projection(n, "c_proj", x, c, c, residual, s));
    zx_net_leave(n);
    return x;
}

static const char *feed_forward(zx_net *n, const char *x, const zx_new_sizes *s, double residual)
{
    zx_net_enter(n, "mlp");
    x = projection(n, "c_fc", x, s->width, s->hidden, DEVIATION, s);
    zx_net_enter(n, "act");
    x = zx_net_op(n, "Gelu", "gelu", x, NULL, NULL);
    zx_onnx_node_text(&n->out, n->node, "approximate", "tanh");
    zx_net_leave(n);
    x = dropout(n, "dropout", projection(n, "c_proj", x, s->hidden, s->width, residual, s));
    zx_net_leave(n);
    return x;
}

static const char *table(zx_net *n, const char *module, int64_t rows, const char *indices,
                         const zx_new_sizes *s, const char **weight)
{
    zx_net_enter(n, module);
    *weight = zx_net_normal(n, "weight", 2, (const int64_t[]){rows, s->width}, DEVIATION);
    const char *x = zx_net_op_int(n, "Gather", "embedding", *weight, indices, "axis", 0);
    zx_net_leave(n);
    return x;
}

void zx_preset_gpt(zx_net *n, const zx_preset *p)
{
    const zx_new_sizes *s = &p->s;
    // What is added to the residual stream 2L times starts smaller, so that the sum does not grow.
    const double residual = DEVIATION / sqrt(2.0 * (double)s->layers);
    const char *wte, *wpe;
    zx_net_token_inputs(n, s);
    zx_net_enter(n, "transformer");
    const char *positions = zx_net_positions(n);
    const char *x = table(n, "wte", s->vocab, "input_ids", s, &wte);
    x = zx_net_op(n, "Add", "embeddings", x, table(n, "wpe", s->context, positions, s, &wpe), NULL);
    x = dropout(n, "drop", x);
    for (int64_t i = 0; i < s->layers; i++) {
        zx_net_enter(n, zx_arena_printf(n->mem, "h.%d", (int)i));
        const char *y = attention(n, layer_norm(n, "ln_1", x, s), s, residual);
        x = zx_net_op(n, "Add", "residual_1", x, y, NULL);
        y = feed_forward(n, layer_norm(n, "ln_2", x, s), s, residual);
        x = zx_net_op(n, "Add", "residual_2", x, y, NULL);
        zx_net_leave(n);
    }
    x = layer_norm(n, "ln_f", x, s);
    zx_net_leave(n);
    zx_net_enter(n, "lm_head");
    zx_net_linear_loss(n, x, wte); // the table is the head, too
    zx_net_leave(n);
}

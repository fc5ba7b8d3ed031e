// preset_llama.c - Llama 3, and what Mixtral has in common with it: RMS norms, rotary positions,
// grouped-query attention, and a gated feed-forward part or experts of that form.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/preset_net.h"

#define DEVIATION 0.02

typedef struct rotary { // constants of all layers, each [B, T, D/2]
    const char *cosines, *sines;
} rotary;

static const char *rms_norm(zx_net *n, const char *module, const char *x, const zx_new_sizes *s)
{
    zx_net_enter(n, module);
    const char *weight = zx_net_filled(n, "weight", s->width, 1.0f);
    x = zx_net_op_int(n, "RMSNormalization", "rms_norm", x, weight, "axis", -1);
    zx_onnx_node_float(&n->out, n->node, "epsilon", (float)s->epsilon);
    zx_net_leave(n);
    return x;
}

const char *zx_preset_linear(zx_net *n, const char *module, const char *x, int64_t in, int64_t out)
{
    zx_net_enter(n, module);
    x = zx_net_linear(n, x, zx_net_normal(n, "weight", 2, (const int64_t[]){out, in}, DEVIATION));
    zx_net_leave(n);
    return x;
}

// Angles position / theta^(2i/D) for i in 0 .. D/2.
static rotary rotary_tables(zx_net *n, const zx_new_sizes *s)
{
    const int64_t d = s->width / s->heads, first = 0, last = 1;
    const int64_t tables[] = {s->batch, s->sequence, d / 2};
    const zx_type type = {ZX_F32, {1, {d / 2}}};
    const char *positions = zx_net_positions(n);
    zx_net_enter(n, "rotary_emb");
    float *frequencies = ZX_NEW(n->mem, float, (size_t)d / 2);
    for (int64_t i = 0; i < d / 2; i++)
        frequencies[i] = (float)pow(s->theta, -2.0 * (double)i / (double)d);
    const char *inverse =
        zx_onnx_initializer(&n->out, "model.rotary_emb.inv_freq", &type, frequencies);
    const char *p =
        zx_net_op_int(n, "Cast", "positions_float", positions, NULL, "to", zx_dtypes[ZX_F32].onnx);
    p = zx_net_op(n, "Unsqueeze", "positions_column", p, zx_net_ints(n, 1, &last), NULL);
    inverse =
        zx_net_op(n, "Unsqueeze", "frequencies_row", inverse, zx_net_ints(n, 1, &first), NULL);
    const char *angles = zx_net_op(n, "Mul", "angles", p, inverse, NULL);
    const char *shape = zx_net_ints(n, 3, tables);
    rotary r = {.cosines = zx_net_op(n, "Cos", "cos", angles, NULL, NULL)};
    r.cosines = zx_net_op(n, "Expand", "cos_tables", r.cosines, shape, NULL);
    r.sines = zx_net_op(n, "Sin", "sin", angles, NULL, NULL);
    r.sines = zx_net_op(n, "Expand", "sin_tables", r.sines, shape, NULL);
    zx_net_leave(n);
    return r;
}

static const char *rotate(zx_net *n, const char *role, const char *x, const rotary *r,
                          int64_t heads)
{
    x = zx_net_op(n, "RotaryEmbedding", role, x, r->cosines, r->sines);
    zx_onnx_node_int(&n->out, n->node, "num_heads", heads);
    return x;
}

static const char *attention(zx_net *n, const char *x, const rotary *r, const zx_new_sizes *s)
{
    const int64_t c = s->width, kv = c / s->heads * s->kv_heads;
    zx_net_enter(n, "self_attn");
    const char *q = zx_preset_linear(n, "q_proj", x, c, c);
    const char *k = zx_preset_linear(n, "k_proj", x, c, kv);
    const char *v = zx_preset_linear(n, "v_proj", x, c, kv);
    q = rotate(n, "q_rotated", q, r, s->heads);
    k = rotate(n, "k_rotated", k, r, s->kv_heads);
    x = zx_net_attention(n, "attention", q, k, v, s);
    x = zx_preset_linear(n, "o_proj", x, c, c);
    zx_net_leave(n);
    return x;
}

// SiLU is one node in the operators of runtimes; the standard has one from operator set 24 on.
const char *zx_preset_gated(zx_net *n, const char *x, const char *gate, const char *up,
                            const zx_new_sizes *s)
{
    const char *y = zx_preset_linear(n, gate, x, s->width, s->hidden);
    zx_net_enter(n, "act_fn");
    y = zx_net_op(n, "QuickGelu", "silu", y, NULL, NULL);
    zx_onnx_node_domain(&n->out, n->node, "com.microsoft", 1);
    zx_onnx_node_float(&n->out, n->node, "alpha", 1.0f);
    zx_net_leave(n);
    return zx_net_op(n, "Mul", "gated", y, zx_preset_linear(n, up, x, s->width, s->hidden), NULL);
}

static const char *feed_forward(zx_net *n, const char *x, const zx_new_sizes *s)
{
    zx_net_enter(n, "mlp");
    x = zx_preset_gated(n, x, "gate_proj", "up_proj", s);
    x = zx_preset_linear(n, "down_proj", x, s->hidden, s->width);
    zx_net_leave(n);
    return x;
}

void zx_preset_llama(zx_net *n, const zx_preset *p)
{
    const zx_new_sizes *s = &p->s;
    const int64_t table[] = {s->vocab, s->width};
    zx_net_token_inputs(n, s);
    zx_net_enter(n, "model");
    zx_net_enter(n, "embed_tokens");
    const char *embedding = zx_net_normal(n, "weight", 2, table, DEVIATION);
    const char *x = zx_net_op_int(n, "Gather", "embedding", embedding, "input_ids", "axis", 0);
    zx_net_leave(n);
    const rotary r = rotary_tables(n, s);
    for (int64_t i = 0; i < s->layers; i++) {
        zx_net_enter(n, zx_arena_printf(n->mem, "layers.%d", (int)i));
        const char *y = attention(n, rms_norm(n, "input_layernorm", x, s), &r, s);
        x = zx_net_op(n, "Add", "residual_1", x, y, NULL);
        y = rms_norm(n, "post_attention_layernorm", x, s);
        y = p->experts > 0 ? zx_preset_experts(n, y, p) : feed_forward(n, y, s);
        x = zx_net_op(n, "Add", "residual_2", x, y, NULL);
        zx_net_leave(n);
    }
    x = rms_norm(n, "norm", x, s);
    zx_net_leave(n);
    zx_net_enter(n, "lm_head");
    zx_net_linear_loss(n, x, s->tied ? embedding : zx_net_normal(n, "weight", 2, table, DEVIATION));
    zx_net_leave(n);
}

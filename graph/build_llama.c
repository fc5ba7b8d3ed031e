// build_llama.c - Llama (Touvron et al. 2023): RMS norms, rotary positions, grouped-query attention
// and SwiGLU, from primitive operators that every ONNX tool knows.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "graph/build_net.h"

#define DEVIATION 0.02

typedef struct rotary { // constants of all layers, each [T, D]
    const char *cosines, *sines, *mask;
} rotary;

// x / sqrt(mean(x^2) + epsilon) * weight
static const char *rms_norm(zx_net *n, const char *module, const char *x, const zx_new_sizes *s)
{
    const int64_t last = -1;
    zx_net_enter(n, module);
    const char *weight = zx_net_filled(n, "weight", s->width, 1.0f);
    const char *y = zx_net_op(n, "Pow", "squares", x, zx_net_float(n, 2.0f), NULL);
    y = zx_net_op_int(n, "ReduceMean", "mean", y, zx_net_ints(n, 1, &last), "keepdims", 1);
    y = zx_net_op(n, "Add", "mean_epsilon", y, zx_net_float(n, (float)s->epsilon), NULL);
    y = zx_net_op(n, "Sqrt", "root", y, NULL, NULL);
    y = zx_net_op(n, "Reciprocal", "inverse_root", y, NULL, NULL);
    y = zx_net_op(n, "Mul", "normalized", x, y, NULL);
    y = zx_net_op(n, "Mul", "scaled", weight, y, NULL);
    zx_net_leave(n);
    return y;
}

static const char *linear(zx_net *n, const char *module, const char *x, int64_t in, int64_t out)
{
    zx_net_enter(n, module);
    x = zx_net_linear(n, x, zx_net_normal(n, "weight", 2, (const int64_t[]){out, in}, DEVIATION));
    zx_net_leave(n);
    return x;
}

// Angles position / theta^(2i/D) for i in 0 .. D/2, twice beside each other.
static rotary rotary_tables(zx_net *n, const zx_new_sizes *s)
{
    const int64_t d = s->width / s->heads, first = 0, last = 1;
    const zx_type type = {ZX_F32, {1, {d / 2}}};
    const char *positions = zx_net_positions(n);
    rotary r = {.mask = zx_net_causal_mask(n, positions)};
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
    const char *half = zx_net_op(n, "Mul", "half_angles", p, inverse, NULL);
    const char *angles = zx_net_op_int(n, "Concat", "angles", half, half, "axis", -1);
    r.cosines = zx_net_op(n, "Cos", "cos", angles, NULL, NULL);
    r.sines = zx_net_op(n, "Sin", "sin", angles, NULL, NULL);
    zx_net_leave(n);
    return r;
}

// x * cos + (-x2, x1) * sin, where x1 and x2 are the halves of each head. x is [B, H, T, D].
static const char *rotate(zx_net *n, const char *which, const char *x, const rotary *r, int64_t d)
{
    char *const roles[] = {"low", "high", "negated", "swapped", "by_cos", "by_sin", "rotated"};
    const char *role[ZX_COUNT(roles)], *half[2];
    for (uint32_t i = 0; i < ZX_COUNT(roles); i++)
        role[i] = zx_arena_printf(n->mem, "%s_%s", which, roles[i]);
    zx_net_split(n, role, x, 2, (const int64_t[]){d / 2, d / 2}, half);
    const char *y = zx_net_op(n, "Neg", role[2], half[1], NULL, NULL);
    y = zx_net_op_int(n, "Concat", role[3], y, half[0], "axis", -1);
    y = zx_net_op(n, "Mul", role[5], y, r->sines, NULL);
    x = zx_net_op(n, "Mul", role[4], x, r->cosines, NULL);
    return zx_net_op(n, "Add", role[6], x, y, NULL);
}

// Each head of keys or values serves `times` heads of queries: [B, K, T, D] to [B, H, T, D].
static const char *repeat_heads(zx_net *n, const char *which, const char *x, const zx_new_sizes *s)
{
    const int64_t times = s->heads / s->kv_heads, d = s->width / s->heads, after = 2;
    if (times == 1) return x;
    const char *role = zx_arena_printf(n->mem, "%s_groups", which);
    x = zx_net_op(n, "Unsqueeze", role, x, zx_net_ints(n, 1, &after), NULL);
    role = zx_arena_printf(n->mem, "%s_expanded", which);
    x = zx_net_op(n, "Expand", role, x, zx_net_ints(n, 5, (const int64_t[]){1, 1, times, 1, 1}),
                  NULL);
    role = zx_arena_printf(n->mem, "%s_repeated", which);
    return zx_net_reshape(n, role, x, 4, (const int64_t[]){0, s->heads, -1, d});
}

static const char *heads_of(zx_net *n, const char *which, const char *x, int64_t heads, int64_t d)
{
    const char *role = zx_arena_printf(n->mem, "%s_by_head", which);
    x = zx_net_reshape(n, role, x, 4, (const int64_t[]){0, 0, heads, d});
    role = zx_arena_printf(n->mem, "%s_heads", which);
    return zx_net_transpose(n, role, x, 4, (const int64_t[]){0, 2, 1, 3});
}

static const char *attention(zx_net *n, const char *x, const rotary *r, const zx_new_sizes *s)
{
    const int64_t c = s->width, d = c / s->heads, kv = s->kv_heads * d;
    zx_net_enter(n, "self_attn");
    const char *q = heads_of(n, "q", linear(n, "q_proj", x, c, c), s->heads, d);
    const char *k = heads_of(n, "k", linear(n, "k_proj", x, c, kv), s->kv_heads, d);
    const char *v = heads_of(n, "v", linear(n, "v_proj", x, c, kv), s->kv_heads, d);
    q = rotate(n, "q", q, r, d);
    k = repeat_heads(n, "k", rotate(n, "k", k, r, d), s);
    v = repeat_heads(n, "v", v, s);
    k = zx_net_transpose(n, "k_transposed", k, 4, (const int64_t[]){0, 1, 3, 2});
    const char *scores = zx_net_op(n, "MatMul", "scores", q, k, NULL); // [B, H, T, T]
    scores = zx_net_op(n, "Mul", "scores_scaled", scores,
                       zx_net_float(n, (float)(1.0 / sqrt((double)d))), NULL);
    scores = zx_net_op(n, "Add", "scores_masked", scores, r->mask, NULL);
    const char *weights = zx_net_op_int(n, "Softmax", "softmax", scores, NULL, "axis", -1);
    x = zx_net_op(n, "MatMul", "context", weights, v, NULL);
    x = zx_net_transpose(n, "context_tokens", x, 4, (const int64_t[]){0, 2, 1, 3});
    x = zx_net_reshape(n, "context_merged", x, 3, (const int64_t[]){0, 0, c});
    x = linear(n, "o_proj", x, c, c);
    zx_net_leave(n);
    return x;
}

// down(silu(gate(x)) * up(x))
static const char *feed_forward(zx_net *n, const char *x, const zx_new_sizes *s)
{
    zx_net_enter(n, "mlp");
    const char *gate = linear(n, "gate_proj", x, s->width, s->hidden);
    zx_net_enter(n, "act_fn");
    const char *y = zx_net_op(n, "Sigmoid", "sigmoid", gate, NULL, NULL);
    y = zx_net_op(n, "Mul", "silu", gate, y, NULL);
    zx_net_leave(n);
    y = zx_net_op(n, "Mul", "gated", y, linear(n, "up_proj", x, s->width, s->hidden), NULL);
    y = linear(n, "down_proj", y, s->hidden, s->width);
    zx_net_leave(n);
    return y;
}

void zx_new_llama(zx_net *n, const zx_new_sizes *s)
{
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
        y = feed_forward(n, rms_norm(n, "post_attention_layernorm", x, s), s);
        x = zx_net_op(n, "Add", "residual_2", x, y, NULL);
        zx_net_leave(n);
    }
    x = rms_norm(n, "norm", x, s);
    zx_net_leave(n);
    zx_net_enter(n, "lm_head");
    x = zx_net_linear(n, x, s->tied ? embedding : zx_net_normal(n, "weight", 2, table, DEVIATION));
    zx_net_leave(n);
    zx_net_loss(n, x, s->vocab);
}

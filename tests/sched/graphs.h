// graphs.h - small train graphs for the planner's tests, written with the builder.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_SCHED_GRAPHS_H
#define ZX_TESTS_SCHED_GRAPHS_H

#include "graph/autodiff.h"
#include "tests/test.h"

static inline zx_type f32(uint32_t rank, int64_t a, int64_t b)
{
    return (zx_type){ZX_F32, {rank, {a, b}}};
}

static inline uint32_t add_param(zx_builder *b, const char *name, uint32_t rank, int64_t x,
                                 int64_t y)
{
    const zx_type type = f32(rank, x, y);
    const zx_param p = {.name = name};
    return zx_build_param(b, &type, &p);
}

static inline void differentiate(zx_builder *b, uint32_t loss, zx_arena *mem, zx_graph *train)
{
    zx_graph forward, both;
    zx_err err = {0};
    zx_builder_done(b, &forward);
    forward.loss = loss;
    assert_zx_ok(zx_autodiff(&forward, 1.0, mem, &both, &err), &err);
    zx_simplify(&both, mem, train);
}

static inline uint32_t mean_of(zx_builder *b, uint32_t x)
{
    int64_t axes[ZX_MAX_RANK];
    const uint32_t rank = zx_shape_of(b, x)->rank;
    for (uint32_t d = 0; d < rank; d++) axes[d] = d;
    zx_attrs attrs = zx_attrs_ints(b->mem, (zx_attrs){0}, ZX_A_AXES, axes, rank);
    attrs = zx_attrs_int(b->mem, attrs, ZX_A_KEEPDIMS, 0);
    return zx_build1(b, ZX_OP_REDUCE_MEAN, attrs, 1, x);
}

// x [rows, width] through `layers` of Gelu(x W + b), then the mean of squares.
static inline void make_mlp(zx_arena *mem, uint32_t layers, int64_t rows, int64_t width,
                            zx_graph *train)
{
    zx_builder b;
    zx_builder_start(&b, mem, "mlp");
    const zx_type in = f32(2, rows, width);
    uint32_t x = zx_build_input(&b, "x", &in);
    for (uint32_t i = 0; i < layers; i++) {
        const uint32_t w =
            add_param(&b, zx_arena_printf(mem, "layers.%u.weight", i), 2, width, width);
        const uint32_t c = add_param(&b, zx_arena_printf(mem, "layers.%u.bias", i), 1, width, 0);
        b.at_name = zx_arena_printf(mem, "layers.%u/product", i);
        x = zx_build1(&b, ZX_OP_MATMUL, (zx_attrs){0}, 3, x, w, c);
        b.at_name = zx_arena_printf(mem, "layers.%u/gelu", i);
        x = zx_build1(&b, ZX_OP_GELU, (zx_attrs){0}, 1, x);
    }
    b.at_name = "loss";
    x = mean_of(&b, zx_build1(&b, ZX_OP_MUL, (zx_attrs){0}, 2, x, x));
    differentiate(&b, x, mem, train);
}

static inline uint32_t add_norm(zx_builder *b, const char *name, uint32_t x, int64_t width)
{
    const uint32_t w = add_param(b, zx_arena_printf(b->mem, "%s.weight", name), 1, width, 0);
    const uint32_t c = add_param(b, zx_arena_printf(b->mem, "%s.bias", name), 1, width, 0);
    const uint32_t in[3] = {x, w, c};
    uint32_t out[3];
    zx_err err = {0};
    zx_attrs attrs = zx_attrs_int(b->mem, (zx_attrs){0}, ZX_A_AXIS, zx_shape_of(b, x)->rank - 1);
    attrs = zx_attrs_float(b->mem, attrs, ZX_A_EPSILON, 1e-5);
    assert_zx_ok(zx_build_node(b, ZX_OP_LAYER_NORM, in, 3, attrs, NULL, out, &err), &err);
    return out[0];
}

static inline uint32_t add_linear(zx_builder *b, const char *name, uint32_t x, int64_t from,
                                  int64_t to)
{
    const uint32_t w = add_param(b, zx_arena_printf(b->mem, "%s.weight", name), 2, from, to);
    const uint32_t c = add_param(b, zx_arena_printf(b->mem, "%s.bias", name), 1, to, 0);
    return zx_build1(b, ZX_OP_MATMUL, (zx_attrs){0}, 3, x, w, c);
}

// One third of the joined projection, as [batch, heads, tokens, width / heads].
static inline uint32_t add_heads(zx_builder *b, uint32_t qkv, int64_t third, const int64_t s[4])
{
    const int64_t width = s[2] * s[3];
    const zx_shape part = {3, {s[0], s[1], width}}, four = {4, {s[0], s[1], s[2], s[3]}};
    const int64_t starts[3] = {0, 0, third * width}, steps[3] = {1, 1, 1}, perm[4] = {0, 2, 1, 3};
    zx_attrs attrs = zx_attrs_shape(b->mem, (zx_attrs){0}, ZX_A_SHAPE, &part);
    attrs = zx_attrs_ints(b->mem, attrs, ZX_A_STARTS, starts, 3);
    attrs = zx_attrs_ints(b->mem, attrs, ZX_A_STEPS, steps, 3);
    return zx_build_transpose(
        b, zx_build_reshape(b, zx_build1(b, ZX_OP_SLICE, attrs, 1, qkv), &four), perm);
}

// GPT-2 with a tied head: `tokens` tokens in `batch` rows.
static inline void make_gpt(zx_arena *mem, uint32_t layers, int64_t width, int64_t heads,
                            int64_t vocabulary, int64_t batch, int64_t tokens, zx_graph *train)
{
    zx_builder builder, *b = &builder;
    zx_err err = {0};
    zx_builder_start(b, mem, "gpt");
    const zx_type ids = {ZX_I64, {2, {batch, tokens}}};
    const zx_shape rows = {2, {batch * tokens, vocabulary}}, labels_shape = {1, {batch * tokens}};
    const int64_t s[4] = {batch, tokens, heads, width / heads}, perm[4] = {0, 2, 1, 3};
    const zx_shape joined = {3, {batch, tokens, width}};
    const uint32_t x_ids = zx_build_input(b, "input_ids", &ids),
                   labels = zx_build_input(b, "labels", &ids);
    const uint32_t wte = add_param(b, "wte.weight", 2, vocabulary, width);
    const uint32_t wpe = add_param(b, "wpe.weight", 2, tokens, width);
    b->at_name = "embed";
    uint32_t x =
        zx_build1(b, ZX_OP_GATHER, zx_attrs_int(mem, (zx_attrs){0}, ZX_A_AXIS, 0), 2, wte, x_ids);
    x = zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x, wpe);
    for (uint32_t i = 0; i < layers; i++) {
        const char *h = zx_arena_printf(mem, "h.%u", i);
        b->at_name = zx_arena_printf(mem, "%s.attn", h);
        uint32_t y = add_norm(b, zx_arena_printf(mem, "%s.ln_1", h), x, width);
        y = add_linear(b, zx_arena_printf(mem, "%s.attn.c_attn", h), y, width, 3 * width);
        const uint32_t q = add_heads(b, y, 0, s), k = add_heads(b, y, 1, s),
                       v = add_heads(b, y, 2, s);
        zx_attrs attrs = zx_attrs_int(mem, (zx_attrs){0}, ZX_A_TRANS_B, 1);
        y = zx_build1(b, ZX_OP_MATMUL, zx_attrs_float(mem, attrs, ZX_A_ALPHA, 0.125), 2, q, k);
        y = zx_build1(b, ZX_OP_SOFTMAX, zx_attrs_int(mem, (zx_attrs){0}, ZX_A_AXIS, 3), 1, y);
        y = zx_build1(b, ZX_OP_MATMUL, (zx_attrs){0}, 2, y, v);
        y = zx_build_reshape(b, zx_build_transpose(b, y, perm), &joined);
        y = add_linear(b, zx_arena_printf(mem, "%s.attn.c_proj", h), y, width, width);
        x = zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x, y);
        b->at_name = zx_arena_printf(mem, "%s.mlp", h);
        y = add_norm(b, zx_arena_printf(mem, "%s.ln_2", h), x, width);
        y = add_linear(b, zx_arena_printf(mem, "%s.mlp.c_fc", h), y, width, 4 * width);
        y = zx_build1(b, ZX_OP_GELU, (zx_attrs){0}, 1, y);
        y = add_linear(b, zx_arena_printf(mem, "%s.mlp.c_proj", h), y, 4 * width, width);
        x = zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x, y);
    }
    b->at_name = "head";
    x = add_norm(b, "ln_f", x, width);
    x = zx_build1(b, ZX_OP_MATMUL, zx_attrs_int(mem, (zx_attrs){0}, ZX_A_TRANS_B, 1), 2, x, wte);
    const uint32_t in[2] = {zx_build_reshape(b, x, &rows),
                            zx_build_reshape(b, labels, &labels_shape)};
    uint32_t out[2];
    zx_attrs attrs = zx_attrs_int(mem, (zx_attrs){0}, ZX_A_REDUCTION, 1);
    assert_zx_ok(zx_build_node(b, ZX_OP_CROSS_ENTROPY, in, 2, attrs, NULL, out, &err), &err);
    differentiate(b, out[0], mem, train);
}

// A machine of round numbers; adding and copying cost nothing.
ZX_UNUSED static inline zx_machine test_machine(double flops, double memory, double op_seconds,
                                                double wire, double latency)
{
    return (zx_machine){.name = "test",
                        .flops = flops,
                        .flops_16 = flops,
                        .memory = memory,
                        .op_seconds = op_seconds,
                        .copy = 1e300,
                        .sum = 1e300,
                        .update = 1e300,
                        .wire = wire,
                        .latency = latency};
}

#endif

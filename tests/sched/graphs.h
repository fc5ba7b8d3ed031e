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

#endif

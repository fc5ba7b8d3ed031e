// random_graph.h - random small train graphs with everything in them that planning has to get
// right: tied, frozen, unused and empty parameters, views, buffers, constants, gradients that are
// shared or not made by a step of their own.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_SCHED_RANDOM_GRAPH_H
#define ZX_TESTS_SCHED_RANDOM_GRAPH_H

#include "tests/sched/graphs.h"

typedef struct rng {
    uint64_t state;
} rng;

static inline uint32_t draw(rng *r, uint32_t below)
{
    r->state = r->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((r->state >> 33) % below);
}

#define ROWS 5
#define WIDTH 7

typedef struct random_graph {
    zx_builder b;
    rng r;
    uint32_t n_weights, n_vectors, n_values;
    uint32_t weights[64], vectors[64], values[256]; // [WIDTH, WIDTH], [WIDTH], [ROWS, WIDTH]
} random_graph;

static inline uint32_t pick_value(random_graph *g)
{
    // Mostly a recent one, so that graphs are deep.
    const uint32_t back = draw(&g->r, 4) == 0 ? draw(&g->r, g->n_values) : draw(&g->r, 2);
    return g->values[back < g->n_values ? g->n_values - 1 - back : 0];
}

static inline uint32_t pick_param(random_graph *g, bool vector)
{
    uint32_t *n = vector ? &g->n_vectors : &g->n_weights;
    uint32_t *list = vector ? g->vectors : g->weights;
    if (*n > 0 && draw(&g->r, 4) == 0) return list[draw(&g->r, *n)]; // tied
    const char *name = zx_arena_printf(g->b.mem, "h.%u.%s", *n, vector ? "bias" : "weight");
    list[*n] = add_param(&g->b, name, vector ? 1 : 2, WIDTH, vector ? 0 : WIDTH);
    return list[(*n)++];
}

static inline void add_value(random_graph *g, uint32_t v)
{
    g->values[g->n_values++] = v;
}

static inline void add_batch_norm(random_graph *g)
{
    zx_builder *b = &g->b;
    const zx_type type = f32(1, WIDTH, 0);
    const zx_buffer mean = {.name = zx_arena_printf(b->mem, "mean.%u", b->g.n_buffers)};
    const zx_buffer var = {.name = zx_arena_printf(b->mem, "var.%u", b->g.n_buffers)};
    const uint32_t at = b->g.n_buffers;
    uint32_t in[5] = {pick_value(g), pick_param(g, true), pick_param(g, true)}, out[5];
    in[3] = zx_build_buffer(b, &type, &mean);
    in[4] = zx_build_buffer(b, &type, &var);
    zx_err err = {0};
    assert_zx_ok(zx_build_node(b, ZX_OP_BATCH_NORM, in, 5, (zx_attrs){0}, NULL, out, &err), &err);
    b->buffers[at].next = out[1];
    b->buffers[at + 1].next = out[2];
    add_value(g, out[0]);
}

static inline void add_random_node(random_graph *g)
{
    zx_builder *b = &g->b;
    const uint32_t x = pick_value(g);
    const zx_shape twisted = {3, {WIDTH, 1, ROWS}}, straight = {2, {ROWS, WIDTH}};
    switch (draw(&g->r, 12)) {
    case 0:
    case 1:
        add_value(g, zx_build1(b, ZX_OP_MATMUL, (zx_attrs){0}, 3, x, pick_param(g, false),
                               pick_param(g, true)));
        break;
    case 2:
        add_value(g,
                  zx_build1(b, ZX_OP_MATMUL, zx_attrs_int(b->mem, (zx_attrs){0}, ZX_A_TRANS_B, 1),
                            2, x, pick_param(g, false)));
        break;
    case 3:
        add_value(g, zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x, pick_value(g)));
        break;
    case 4:
        add_value(g, zx_build1(b, ZX_OP_MUL, (zx_attrs){0}, 2, x, pick_value(g)));
        break;
    case 5:
        add_value(g, zx_build1(b, ZX_OP_GELU, (zx_attrs){0}, 1, x));
        break;
    case 6:
        add_value(g, zx_build1(b, ZX_OP_TANH, (zx_attrs){0}, 1, x));
        break;
    case 7:
        add_value(g, zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x, pick_param(g, true)));
        break;
    case 8: // views there and back
        add_value(g, zx_build_reshape(b, zx_build_reshape(b, x, &twisted), &straight));
        break;
    case 9:
        add_batch_norm(g);
        break;
    case 10: // no gradient goes through it: what only it reads is frozen
        add_value(g, zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x,
                               zx_build1(b, ZX_OP_SIGN, (zx_attrs){0}, 1, pick_param(g, true))));
        break;
    default:
        add_value(g, zx_build1(b, ZX_OP_ADD, (zx_attrs){0}, 2, x, zx_build_scalar(b, ZX_F32, 0.5)));
    }
}

static inline void make_random(zx_arena *mem, uint64_t seed, zx_graph *train)
{
    random_graph g = {.r = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1}};
    zx_builder_start(&g.b, mem, "random");
    const zx_type in = f32(2, ROWS, WIDTH);
    add_value(&g, zx_build_input(&g.b, "x", &in));
    if (draw(&g.r, 2)) add_value(&g, zx_build_input(&g.b, "y", &in));
    if (draw(&g.r, 3) == 0) zx_build_input(&g.b, "unused", &in);
    if (draw(&g.r, 3) == 0) add_param(&g.b, "unused.weight", 2, 3, 5);
    const uint32_t n = 1 + draw(&g.r, 14);
    for (uint32_t i = 0; i < n; i++) {
        g.b.at_name = zx_arena_printf(mem, "node.%u", i);
        add_random_node(&g);
    }
    g.b.at_name = "loss";
    uint32_t x = zx_build1(&g.b, ZX_OP_MUL, (zx_attrs){0}, 2, g.values[g.n_values - 1],
                           add_param(&g.b, "head.scale", 1, WIDTH, 0)); // something is trained
    if (draw(&g.r, 4) == 0) { // an empty parameter, joined to the end
        const uint32_t empty = add_param(&g.b, "empty", 2, ROWS, 0);
        x = zx_build1(&g.b, ZX_OP_CONCAT, zx_attrs_int(mem, (zx_attrs){0}, ZX_A_AXIS, 1), 2, x,
                      empty);
    }
    if (draw(&g.r, 4) == 0) { // two parameters with one gradient
        const uint32_t p = add_param(&g.b, "twin.0", 1, 3, 0),
                       q = add_param(&g.b, "twin.1", 1, 3, 0);
        const uint32_t sum = mean_of(&g.b, zx_build1(&g.b, ZX_OP_ADD, (zx_attrs){0}, 2, p, q));
        x = zx_build1(&g.b, ZX_OP_ADD, (zx_attrs){0}, 2, mean_of(&g.b, x), sum);
    } else if (draw(&g.r, 4) == 0) { // one whose gradient is a constant, or nearly
        const uint32_t p = add_param(&g.b, "scalar", 0, 0, 0);
        x = zx_build1(&g.b, ZX_OP_ADD, (zx_attrs){0}, 2, mean_of(&g.b, x), p);
    } else
        x = mean_of(&g.b, x);
    differentiate(&g.b, x, mem, train);
}

#endif

// check_plans.h - good plans for the tests of the checker, and a row of their tables: how one is
// broken, and the sentence that comes out.
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_TESTS_SCHED_CHECK_PLANS_H
#define ZX_TESTS_SCHED_CHECK_PLANS_H

#include "graph/precision.h"
#include "tests/sched/edit.h"
#include "tests/sched/graphs.h"

#define drop edit_drop
#define insert edit_insert
#define move edit_move

ZX_UNUSED static uint32_t find(const edit *e, zx_insn_id id, uint32_t nth)
{
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == id && nth-- == 0) return i;
    fail_msg("no such instruction");
    return 0;
}

// The nth wait of a stream.
ZX_UNUSED static uint32_t find_wait(const edit *e, zx_stream stream, uint32_t nth)
{
    for (uint32_t i = 0; i < e->p.n_insns; i++)
        if (e->insns[i].id == ZX_I_WAIT && e->insns[i].stream == stream && nth-- == 0) return i;
    fail_msg("no such wait");
    return 0;
}

ZX_UNUSED static uint32_t find_slot(const edit *e, zx_slot_kind kind, uint32_t nth)
{
    for (uint32_t i = 0; i < e->p.n_slots; i++)
        if (e->slots[i].kind == kind && nth-- == 0) return i;
    fail_msg("no such slot");
    return 0;
}

ZX_UNUSED static void none(edit *e)
{
    (void)e;
}

// Stage 3 and 2 on two ranks; one rank, one micro-batch; stage 3 and 2 through flat slots, the
// former with a bucket and one queue for all collectives.
enum { SHARDED, SPREAD, ALONE, FLAT, FLAT_SPREAD, HALF }; // HALF: of 16 bits

typedef struct check_case {
    const char *name;
    int plan;
    void (*break_it)(edit *e);
    const char *want; // part of the sentence; NULL: the plan is good
} check_case;

// Two layers, a batch norm with its buffers, a view, and a last node that nobody needs.
static void make_graph(zx_arena *mem, zx_graph *train)
{
    zx_builder b;
    zx_err err = {0};
    zx_builder_start(&b, mem, "net");
    const zx_type in = f32(2, 4, 16), channel = f32(1, 16, 0);
    uint32_t x = zx_build_input(&b, "x", &in);
    for (uint32_t i = 0; i < 2; i++) {
        const char *name = zx_arena_printf(mem, "layers.%u", i);
        const uint32_t w = add_param(&b, zx_arena_printf(mem, "%s.weight", name), 2, 16, 16);
        const uint32_t c = add_param(&b, zx_arena_printf(mem, "%s.bias", name), 1, 16, 0);
        b.at_name = zx_arena_printf(mem, "%s/product", name);
        x = zx_build1(&b, ZX_OP_MATMUL, (zx_attrs){0}, 3, x, w, c);
        b.at_name = zx_arena_printf(mem, "%s/gelu", name);
        x = zx_build1(&b, ZX_OP_GELU, (zx_attrs){0}, 1, x);
    }
    const zx_buffer mean = {.name = "running_mean"}, var = {.name = "running_var"};
    const uint32_t args[5] = {
        x, add_param(&b, "bn.weight", 1, 16, 0), add_param(&b, "bn.bias", 1, 16, 0),
        zx_build_buffer(&b, &channel, &mean), zx_build_buffer(&b, &channel, &var)};
    uint32_t out[5];
    b.at_name = "bn";
    assert_zx_ok(zx_build_node(&b, ZX_OP_BATCH_NORM, args, 5, (zx_attrs){0}, NULL, out, &err),
                 &err);
    b.buffers[0].next = out[1];
    b.buffers[1].next = out[2];
    b.at_name = "view";
    const zx_shape flat = {1, {64}};
    x = zx_build_reshape(&b, out[0], &flat);
    b.at_name = "loss";
    zx_graph both;
    differentiate(&b, mean_of(&b, zx_build1(&b, ZX_OP_MUL, (zx_attrs){0}, 2, x, x)), mem, &both);
    zx_builder_continue(&b, mem, &both);
    b.at_name = "unread";
    zx_build1(&b, ZX_OP_TANH, (zx_attrs){0}, 1, both.inputs[0]);
    zx_builder_done(&b, train);
}

static void start_edit(edit *e, int which, zx_arena *mem, zx_graph *g)
{
    zx_err err = {0};
    if (which == HALF) {
        zx_graph *whole = ZX_NEW(mem, zx_graph, 1);
        make_graph(mem, whole);
        zx_precision_apply(whole, ZX_PREC_BF16, mem, g);
    } else
        make_graph(mem, g);
    const zx_plan_options o = {.ranks = which == ALONE ? 1 : 2,
                               .stage = which == SPREAD || which == FLAT_SPREAD ? 2 : 3,
                               .micro_batches = which == ALONE ? 1 : 2,
                               .optimizer_states = 2,
                               .machine = zx_machine_host(1, 1),
                               .least = which == SHARDED ||
                                        which == FLAT, // gathers and frees everywhere
                               .budget = UINT64_MAX};
    zx_plan p;
    assert_zx_ok(zx_plan_make(g, &o, mem, &p, &err), &err);
    edit_start(e, g, &p, mem);
    const edit_flat one = {.bucket = true, .one_queue = true}, two = {0};
    if (which == FLAT || which == FLAT_SPREAD) edit_flatten(e, which == FLAT ? &one : &two);
}

ZX_UNUSED static void test_check(void **state)
{
    const check_case *k = *state;
    zx_arena mem = {0};
    zx_graph g;
    zx_err err = {0};
    edit e;
    start_edit(&e, k->plan, &mem, &g);
    k->break_it(&e);
    const zx_status st = zx_plan_check(&g, &e.p, &err);
    if (k->want == NULL)
        assert_zx_ok(st, &err);
    else if (st == ZX_OK)
        fail_msg("accepted");
    else if (strstr(err.cause[0], k->want) == NULL)
        fail_msg("%s", err.cause[0]);
    zx_arena_free(&mem);
}

#endif

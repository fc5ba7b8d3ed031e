// test_sim.c - the simulator on plans by hand: streams, the one wire, and what is exposed.
// SPDX-License-Identifier: Apache-2.0
#include "sched/sched.h"
#include "tests/sched/graphs.h"

// One unit of 64 bytes on two ranks; a wire of 32 bytes a second, so a gather or reduce takes a
// second; a node that takes 3 seconds.
typedef struct bench {
    zx_arena mem;
    zx_graph g;
    zx_plan p;
    zx_machine m;
    zx_insn insns[16];
    zx_unit unit;
    zx_slot slot;
    zx_launch launch;
    zx_member member;
    zx_plan_step step;
} bench;

static void start(bench *b)
{
    *b = (bench){0};
    zx_builder builder;
    zx_builder_start(&builder, &b->mem, "one");
    const zx_type in = f32(1, 16, 0);
    zx_build1(&builder, ZX_OP_TANH, (zx_attrs){0}, 1, zx_build_input(&builder, "x", &in));
    zx_builder_done(&builder, &b->g);
    b->m = test_machine(1e300, 1e300, 3.0, 32, 0);
    b->unit =
        (zx_unit){.shard = 8, .numel = 16, .param_bytes = 4, .grad_bytes = 4, .grad_slot = ZX_NONE};
    b->launch = (zx_launch){0, 1};
    b->p = (zx_plan){.ranks = 2,
                     .stage = 3,
                     .micro_batches = 1,
                     .n_units = 1,
                     .n_slots = 1,
                     .n_launches = 1,
                     .n_members = 1,
                     .n_steps = 1,
                     .n_events = 8};
    b->p.insns = b->insns;
    b->p.units = &b->unit;
    b->p.slots = &b->slot;
    b->p.launches = &b->launch;
    b->p.members = &b->member;
    b->p.steps = &b->step;
}

static void put(bench *b, zx_insn_id id, zx_stream stream, uint32_t a, uint32_t c)
{
    b->insns[b->p.n_insns++] = (zx_insn){(uint8_t)id, (uint8_t)stream, 0, ZX_NONE, a, ZX_NONE, c};
}
static void gather(bench *b, uint32_t event)
{
    put(b, ZX_I_GATHER, ZX_S_GATHER, 0, event);
}
static void reduce(bench *b, uint32_t event)
{
    put(b, ZX_I_REDUCE, ZX_S_REDUCE, 0, event);
}
static void wait(bench *b, zx_stream stream, uint32_t event)
{
    put(b, ZX_I_WAIT, stream, event, ZX_NONE);
}
static void mark(bench *b, uint32_t event)
{
    put(b, ZX_I_MARK, ZX_S_COMPUTE, ZX_NONE, event);
}
static void exec(bench *b)
{
    put(b, ZX_I_EXEC, ZX_S_COMPUTE, 0, ZX_NONE);
}

static void waited_for_at_once(bench *b)
{
    gather(b, 0);
    wait(b, ZX_S_COMPUTE, 0);
    exec(b);
}
static void behind_compute(bench *b)
{
    gather(b, 0);
    exec(b);
    wait(b, ZX_S_COMPUTE, 0);
    exec(b);
}
static void one_wire(bench *b)
{
    gather(b, 0);
    reduce(b, 1);
    wait(b, ZX_S_COMPUTE, 0);
    wait(b, ZX_S_COMPUTE, 1);
}
static void ready_first_goes_first(bench *b)
{
    // The gather may go after one node, the reduce at once.
    exec(b);
    mark(b, 0);
    wait(b, ZX_S_GATHER, 0);
    gather(b, 1);
    reduce(b, 2);
    wait(b, ZX_S_COMPUTE, 2);
    exec(b);
    wait(b, ZX_S_COMPUTE, 1);
}
static void in_order_within_a_stream(bench *b)
{
    // The second gather could go at once, but the first one waits for a node.
    exec(b);
    mark(b, 0);
    wait(b, ZX_S_GATHER, 0);
    gather(b, 1);
    gather(b, 2);
    wait(b, ZX_S_COMPUTE, 2);
}

static const struct sim_case {
    const char *name;
    void (*make)(bench *b);
    double step, compute, exposed;
    uint64_t wire;
} cases[] = {
    {"waited for at once", waited_for_at_once, 4, 3, 1, 32},
    {"behind compute", behind_compute, 6, 6, 0, 32},
    {"one wire for both", one_wire, 2, 0, 2, 64},
    {"who is ready first goes first", ready_first_goes_first, 6, 6, 0, 64},
    {"in order within a stream", in_order_within_a_stream, 5, 3, 2, 64},
};

static void test_simulate(void **state)
{
    const struct sim_case *k = *state;
    bench b;
    start(&b);
    k->make(&b);
    zx_plan_simulate(&b.g, &b.m, NULL, &b.p, &b.mem);
    assert_true(b.p.step_seconds == k->step);
    assert_true(b.p.compute_seconds == k->compute);
    assert_true(b.p.exposed_seconds == k->exposed);
    assert_true(b.p.wire_bytes == k->wire);
    zx_arena_free(&b.mem);
}

static void test_machines(void **state ZX_UNUSED)
{
    const zx_machine one = zx_machine_host(1, 1), four = zx_machine_host(1, 4);
    assert_true(four.flops == 4 * one.flops);
    assert_true(four.memory > one.memory && four.memory < 4 * one.memory);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + 1] = {cmocka_unit_test(test_machines)};
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[i + 1] = zx_case(cases[i].name, test_simulate, &cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

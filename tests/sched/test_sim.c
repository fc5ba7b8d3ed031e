// test_sim.c - the simulator on plans by hand, with exact times: one row a rule.
// SPDX-License-Identifier: Apache-2.0
#include "sched/pass.h"
#include "tests/sched/graphs.h"

// One unit of 64 bytes on two ranks; a wire of 32 bytes a second, so a gather or reduce takes a
// second; a node that takes 3 seconds. Where cores move bytes: 64 a second.
typedef struct bench {
    zx_arena mem;
    zx_graph g;
    zx_plan p;
    zx_machine m;
    zx_insn insns[32];
    zx_unit unit;
    zx_slot slot;
    zx_launch launch;
    zx_member member;
    zx_plan_step step;
    zx_times times;
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
    b->slot = (zx_slot){0, 64, ZX_SLOT_INPUT, 0};
    b->unit = (zx_unit){.shard = 8,
                        .numel = 16,
                        .param_bytes = 4,
                        .grad_bytes = 4,
                        .grad_slot = ZX_NONE,
                        .master_slot = ZX_NONE};
    b->launch = (zx_launch){0, 1, ZX_NONE};
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
    b->insns[b->p.n_insns++] = (zx_insn){(uint8_t)id, (uint8_t)stream, 0, ZX_NONE, a, 0, c};
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
static void hooks(bench *b, uint32_t n)
{
    put(b, ZX_I_HOOK, ZX_S_COMPUTE, n, ZX_NONE);
}
static void sync(bench *b, uint32_t event)
{
    for (uint32_t s = 0; s < ZX_STREAM_COUNT; s++) {
        wait(b, (zx_stream)s, event);
        b->insns[b->p.n_insns - 1].by = ZX_PASS_sync;
    }
}
static void cores(bench *b, double n, uint32_t threads)
{
    b->m.cores = n;
    b->m.threads = threads;
    b->m.copy = 64;
}

// ---- streams and the wire -----------------------------------------------------------------------

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
static void another_goes_meanwhile(bench *b)
{
    // The gather may go after one node, the reduce at once.
    exec(b);
    mark(b, 0);
    wait(b, ZX_S_GATHER, 0);
    gather(b, 1);
    reduce(b, 2);
    wait(b, ZX_S_COMPUTE, 2);
    exec(b);
}
static void ready_first_goes_first(bench *b)
{
    another_goes_meanwhile(b);
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
static void ties_by_position(bench *b)
{
    reduce(b, 0);
    gather(b, 1);
    wait(b, ZX_S_COMPUTE, 1);
}
static void issued_first_goes_first(bench *b)
{
    // While the first gather (0 to 1) is on the wire, the second one comes (at 1), and before it
    // the reduce (at 0.5), which stands behind it in the plan: the reduce goes 1 to 2.
    b->times.feed = 0.5;
    gather(b, 0);
    put(b, ZX_I_FEED, ZX_S_COMPUTE, 0, ZX_NONE);
    mark(b, 1);
    gather(b, 2);
    wait(b, ZX_S_REDUCE, 1);
    reduce(b, 3);
    wait(b, ZX_S_COMPUTE, 2);
}
static void all_reduces_go_twice(bench *b)
{
    b->m.latency = 0.5;
    put(b, ZX_I_ALLREDUCE, ZX_S_REDUCE, 0, 0);
}
static void tables(bench *b)
{
    b->m.wire = 0;
    b->m.gather = (zx_curve){1, {64}, {2}};
    b->m.reduce = (zx_curve){1, {64}, {5}};
    b->m.sum = 1; // is in the table
    gather(b, 0);
    reduce(b, 1);
}
static void adding_is_part_of_the_reduce(bench *b)
{
    b->m.sum = 32;
    reduce(b, 0);
}

// ---- the host -----------------------------------------------------------------------------------

static void host_keeps_up(bench *b)
{
    b->m.host_seconds = 1;
    exec(b);
    exec(b);
}
static void host_is_slower(bench *b)
{
    b->m.host_seconds = 4;
    exec(b);
    exec(b);
}
static void host_is_busy_with_hooks(bench *b)
{
    b->m.hook_seconds = 1;
    hooks(b, 5);
    exec(b);
}
static void marks_cost_the_host_nothing(bench *b)
{
    b->m.host_seconds = 4;
    mark(b, 0);
    wait(b, ZX_S_GATHER, 0);
    exec(b);
    mark(b, 1);
}
// The gather goes at 0, the host sees its end at 1 and has enqueued the node at 2.
static void host_waits(bench *b)
{
    b->m.host_seconds = 1;
    gather(b, 0);
    sync(b, 0);
    exec(b);
}
static void host_runs_ahead(bench *b)
{
    b->m.host_seconds = 1;
    gather(b, 0);
    wait(b, ZX_S_COMPUTE, 0);
    exec(b);
}
static void host_waits_without_cost(bench *b)
{
    // The second gather is held back though its stream is free.
    exec(b);
    mark(b, 0);
    sync(b, 0);
    gather(b, 1);
}

// ---- cores --------------------------------------------------------------------------------------

static void node_beside_gather(bench *b)
{
    gather(b, 0);
    exec(b);
    wait(b, ZX_S_COMPUTE, 0);
}
static void one_core_is_shared(bench *b)
{
    cores(b, 1, 1);
    node_beside_gather(b); // moving takes 0 to 2 in place of 1, the node 1 longer
}
static void own_shards_are_there(bench *b)
{
    cores(b, 1, 1);
    b->launch.flat = 0; // the rank's own row was packed into it: half of the bytes is left to move
    node_beside_gather(b);
}
static void two_cores_are_enough(bench *b)
{
    cores(b, 2, 1);
    node_beside_gather(b);
}
static void two_threads_and_a_mover(bench *b)
{
    cores(b, 2, 2);
    node_beside_gather(b); // at 2/3 until the mover has done its second, at 1.5
}
static void the_wire_is_not_shared(bench *b)
{
    cores(b, 1, 1);
    b->m.wire = 8; // 4 seconds, the mover's second is over at 2
    node_beside_gather(b);
}
static void adding_takes_a_core(bench *b)
{
    cores(b, 1, 1);
    b->m.sum = 32;
    reduce(b, 0);
    exec(b);
    wait(b, ZX_S_COMPUTE, 0);
}
static void all_reduces_add_and_copy(bench *b)
{
    cores(b, 1, 1);
    b->m.wire = 1e300;
    b->m.sum = 32;
    put(b, ZX_I_ALLREDUCE, ZX_S_REDUCE, 0, 0); // 64 / 32 + 32 / 64
}
static void more_threads_than_cores(bench *b)
{
    cores(b, 1, 2);
    exec(b);
}
static void packing(bench *b)
{
    b->m.copy = 64;
    put(b, ZX_I_PACK, ZX_S_COPY, 0, 0);
    gather(b, 1);
    put(b, ZX_I_UNPACK, ZX_S_COPY, 0, 2);
    exec(b);
}
static void packing_takes_a_core(bench *b)
{
    packing(b);
    cores(b, 1, 1); // of 0.5 to pack, 1 to move, 1 to unpack
}
static void packing_takes_its_cache(bench *b)
{
    packing_takes_a_core(b);
    b->m.cache = 48; // of 64, 64 and 128: 0.75 each time
}
static void a_cache_for_all(bench *b)
{
    packing_takes_a_core(b);
    b->m.cache = 1024; // all come back: 1, 1 and 2
}
static void engines_have_no_cache(bench *b)
{
    packing(b);
    b->m.cache = 48;
}
static void packing_of_a_reduce(bench *b)
{
    b->m.copy = 64;
    put(b, ZX_I_BUCKET, ZX_S_BUCKET, 0, 0);
    put(b, ZX_I_PACK, ZX_S_BUCKET, 0, 1);
    wait(b, ZX_S_REDUCE, 1);
    reduce(b, 2);
}

// ---- the rest -----------------------------------------------------------------------------------

static void interference(bench *b)
{
    b->m.interference = 1;
    node_beside_gather(b);
}
static void measured_nodes(bench *b)
{
    static const double node[] = {5};
    b->times.node = node;
    exec(b);
}
static void measured_updates(bench *b)
{
    static const double update[] = {7};
    b->times.update = update;
    put(b, ZX_I_UPDATE, ZX_S_COMPUTE, 0, ZX_NONE);
}
static void measured_norm(bench *b)
{
    b->times.norm = 2;
    b->m.wire = 0; // the word to all others: the least gather
    b->m.gather = (zx_curve){1, {64}, {0.5}};
    put(b, ZX_I_NORM, ZX_S_COMPUTE, ZX_NONE, ZX_NONE);
}
static void measured_copies(bench *b)
{
    cores(b, 1, 1);
    b->m.wire = 1e300;
    b->m.sum = 64;
    b->times.copy = b->times.sum = 16;
    gather(b, 0);
    wait(b, ZX_S_REDUCE, 0);
    reduce(b, 1);
}
static void who_slept(bench *b)
{
    b->times.handoff = 0.5;
    waited_for_at_once(b);
}
static void nobody_slept(bench *b)
{
    b->times.handoff = 0.5;
    behind_compute(b);
}
static void updates_of_16_bits(bench *b)
{
    // Gradient 4; master and two states read and written: 24; the parameter written: 2.
    b->unit.master_slot = 0;
    b->unit.param_bytes = 2;
    b->p.optimizer_states = 2;
    b->m.update = 8 * 30;
    b->m.op_seconds = 0;
    put(b, ZX_I_UPDATE, ZX_S_COMPUTE, 0, ZX_NONE);
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
    {"issued at once: in plan order", ties_by_position, 2, 0, 2, 64},
    {"issued first goes first", issued_first_goes_first, 3, 0.5, 2.5, 96},
    {"an all-reduce: the bytes twice, one latency", all_reduces_go_twice, 2.5, 0, 0, 64},
    {"tables", tables, 7, 0, 0, 64},
    {"without cores adding is a part of the reduce", adding_is_part_of_the_reduce, 3, 0, 0, 32},
    {"a host that keeps up is not seen", host_keeps_up, 6, 6, 0, 0},
    {"a slow host sets the pace", host_is_slower, 8, 6, 0, 0},
    {"hooks keep the host busy", host_is_busy_with_hooks, 5, 3, 0, 0},
    {"marks and waits cost the host nothing", marks_cost_the_host_nothing, 4, 3, 0, 0},
    {"the host waits", host_waits, 5, 3, 1, 32},
    {"the host runs on into the next step", host_runs_ahead, 4, 3, 1, 32},
    {"the host waits though it costs nothing", host_waits_without_cost, 4, 3, 0, 32},
    {"one core for compute and a mover", one_core_is_shared, 4, 3, 0, 32},
    {"a gather's own shard is in the flat slot", own_shards_are_there, 3.5, 3, 0, 32},
    {"two cores for them", two_cores_are_enough, 3, 3, 0, 32},
    {"two threads and a mover on two cores", two_threads_and_a_mover, 3.5, 3, 0, 32},
    {"the wire goes on when the mover is done", the_wire_is_not_shared, 4, 3, 0, 32},
    {"adding takes a core", adding_takes_a_core, 5, 3, 0, 32},
    {"an all-reduce adds and copies", all_reduces_add_and_copy, 2.5, 0, 0, 64},
    {"more threads than cores", more_threads_than_cores, 6, 6, 0, 0},
    {"engines pack and unpack", packing, 3, 3, 0, 32},
    {"cores pack and unpack", packing_takes_a_core, 5.5, 3, 0, 32},
    {"what they move takes their cache", packing_takes_its_cache, 7.75, 3, 0, 32},
    {"at most as many bytes as are moved", a_cache_for_all, 9.5, 3, 0, 32},
    {"engines take nobody's cache", engines_have_no_cache, 3, 3, 0, 32},
    {"a reduce packs all of it", packing_of_a_reduce, 3, 0, 0, 32},
    {"interference", interference, 3.5, 3, 0, 32},
    {"measured: nodes", measured_nodes, 5, 5, 0, 0},
    {"measured: updates", measured_updates, 7, 7, 0, 0},
    {"measured: the norm's own work", measured_norm, 2.5, 2.5, 0, 0},
    {"measured: copies and sums", measured_copies, 8, 0, 0, 64},
    {"measured: who slept goes on later", who_slept, 4.5, 3, 1.5, 32},
    {"measured: who didn't sleep goes on", nobody_slept, 6, 6, 0, 32},
    {"updates of 16-bit parameters", updates_of_16_bits, 1, 1, 0, 0},
};

static bool near(double a, double b)
{
    return a - b < 1e-9 && b - a < 1e-9;
}

static void test_simulate(void **state)
{
    const struct sim_case *k = *state;
    bench b;
    start(&b);
    k->make(&b);
    zx_plan_simulate(&b.g, &b.m, &b.times, &b.p, &b.mem);
    if (!near(b.p.step_seconds, k->step) || !near(b.p.compute_seconds, k->compute) ||
        !near(b.p.exposed_seconds, k->exposed))
        fail_msg("step %.9g, compute %.9g, exposed %.9g; want %.9g, %.9g, %.9g", b.p.step_seconds,
                 b.p.compute_seconds, b.p.exposed_seconds, k->step, k->compute, k->exposed);
    assert_int_equal(b.p.wire_bytes, k->wire);
    zx_arena_free(&b.mem);
}

// ---- ranks with times of their own --------------------------------------------------------------

static void alone(bench *b)
{
    exec(b);
    exec(b);
}
static void after_compute(bench *b)
{
    exec(b);
    mark(b, 0);
    wait(b, ZX_S_GATHER, 0);
    gather(b, 1);
    wait(b, ZX_S_COMPUTE, 1);
    exec(b);
}
static void they_meet(bench *b)
{
    exec(b);
    put(b, ZX_I_NORM, ZX_S_COMPUTE, ZX_NONE, ZX_NONE);
    exec(b);
}

// A node takes 3 seconds on rank 0, 5 on rank 1. last: when rank 0's last instruction began.
static const struct ranks_case {
    const char *name;
    void (*make)(bench *b);
    double step, exposed, last;
} ranks_cases[] = {
    {"ranks: nobody waits before the end", alone, 10, 0, 3},
    {"ranks: a gather begins when the last has come", after_compute, 11, 3, 6},
    {"ranks: a gather at the start is nobody's", waited_for_at_once, 6, 1, 1},
    {"ranks: who waits for a rank doesn't hold the wire", another_goes_meanwhile, 10, 0, 3},
    {"ranks: they meet at the norm", they_meet, 10, 0, 5},
};

static void test_ranks(void **state)
{
    const struct ranks_case *k = *state;
    const double node[2] = {3, 5};
    bench b;
    start(&b);
    k->make(&b);
    const zx_times times[2] = {{.node = &node[0]}, {.node = &node[1]}};
    zx_plan_simulate_ranks(&b.g, &b.m, times, 2, &b.p, &b.mem);
    const double last = b.p.start[b.p.n_insns - 1];
    if (!near(b.p.step_seconds, k->step) || !near(b.p.exposed_seconds, k->exposed) ||
        !near(last, k->last))
        fail_msg("step %.9g, exposed %.9g, last %.9g; want %.9g, %.9g, %.9g", b.p.step_seconds,
                 b.p.exposed_seconds, last, k->step, k->exposed, k->last);
    zx_arena_free(&b.mem);
}

// The third step is told, from its begin on: by then the host is ahead.
static void test_times(void **state ZX_UNUSED)
{
    bench b;
    start(&b);
    cores(&b, 1, 1);
    b.m.host_seconds = 1;
    gather(&b, 0);
    exec(&b);
    zx_plan_simulate(&b.g, &b.m, NULL, &b.p, &b.mem);
    assert_true(near(b.p.start[0], 0) && near(b.p.seconds[0], 2));
    assert_true(near(b.p.start[1], 0) && near(b.p.seconds[1], 4));
    zx_arena_free(&b.mem);
}

// A plan that waits for what never happens ends all the same.
static void test_stuck(void **state ZX_UNUSED)
{
    bench b;
    start(&b);
    b.m.host_seconds = 1;
    exec(&b);
    sync(&b, 7);
    exec(&b);
    zx_plan_simulate(&b.g, &b.m, NULL, &b.p, &b.mem);
    assert_true(near(b.p.start[2], 0) && near(b.p.seconds[6], 0));
    zx_arena_free(&b.mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + ZX_COUNT(ranks_cases) + 2] = {
        cmocka_unit_test(test_times), cmocka_unit_test(test_stuck)};
    size_t n = 2;
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[n++] = zx_case(cases[i].name, test_simulate, &cases[i]);
    for (size_t i = 0; i < ZX_COUNT(ranks_cases); i++)
        tests[n++] = zx_case(ranks_cases[i].name, test_ranks, &ranks_cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

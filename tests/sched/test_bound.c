// test_bound.c - the bound: its bytes and seconds as counted by hand, and no policy's plan that is
// simulated below it.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "sched/bound.h"
#include "sched/policy.h"
#include "tests/sched/random_graph.h"

#define NO_BUDGET UINT64_MAX

static zx_plan_options options(uint32_t ranks, uint32_t micros, uint64_t budget)
{
    return (zx_plan_options){.ranks = ranks,
                             .stage = 3,
                             .micro_batches = micros,
                             .optimizer_states = 2,
                             .machine = zx_machine_host(1, 1),
                             .budget = budget};
}

static zx_bound bound(const zx_graph *g, const zx_plan_options *o, const zx_times *times)
{
    zx_bound b;
    zx_err err = {0};
    assert_zx_ok(zx_bound_make(g, o, times, &b, &err), &err);
    return b;
}

// ---- by hand ------------------------------------------------------------------------------------

// 4 layers of a 16x16 weight and a bias of 16: 4352 bytes in all, of which the other of 2 ranks has
// ALL. Backward reads the weights of the last three again: TURN.
#define ALL 2176
#define TURN (3 * 512)
static const struct bytes_row {
    const char *name;
    uint32_t ranks, micros;
    uint64_t budget, wire, again;
} bytes_rows[] = {
    {"one rank", 1, 2, NO_BUDGET, 0, 0},
    {"all stays: reduced each time, gathered once", 2, 1, NO_BUDGET, 2 * ALL, 0},
    {"three micro-batches", 2, 3, NO_BUDGET, 4 * ALL, 0},
    {"nothing stays", 2, 1, 1, 2 * ALL + TURN, TURN},
    {"nothing stays from one micro-batch to the next either", 2, 3, 1, 4 * ALL + 3 * TURN + 2 * ALL,
     3 * TURN + 2 * ALL},
};

static void test_bytes(void **state)
{
    const struct bytes_row *row = *state;
    zx_arena mem = {0};
    zx_graph g;
    make_mlp(&mem, 4, 4, 16, &g);
    const zx_plan_options o = options(row->ranks, row->micros, row->budget);
    const zx_bound b = bound(&g, &o, NULL);
    assert_int_equal(b.wire_bytes, row->wire);
    assert_int_equal(b.regather_bytes, row->again);
    zx_arena_free(&mem);
}

// A second for each execution, and nothing else takes any time beside the wire.
static void test_seconds(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    make_mlp(&mem, 4, 4, 16, &g);
    zx_plan_options o = options(2, 2, NO_BUDGET);
    double *node = ZX_NEW(&mem, double, g.n_nodes), *update = ZX_NEW(&mem, double, g.n_params);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g.n_nodes; i++)
        if ((zx_ops[g.nodes[i].op].flags & ZX_OP_VIEW) == 0) {
            node[i] = 1;
            n++;
        }
    const zx_times times = {
        .node = node, .update = update, .norm = 1e-12, .feed = 1e-12, .copy = 1e30, .sum = 1e30};
    zx_machine_link(&o.machine, 1e9, 0);
    zx_bound b = bound(&g, &o, &times);
    assert_true(b.seconds > 2 * n - 1e-3 && b.seconds < 2 * n + 1e-3);
    assert_string_equal(zx_bound_binds(&b), "compute"); // all but the last reduce
    // 2 * 2176 bytes each way to reduce, 2176 to gather.
    zx_machine_link(&o.machine, 1.7, 0);
    b = bound(&g, &o, &times);
    assert_true(b.wire > 3839.9 && b.wire < 3840.1);
    assert_string_equal(zx_bound_binds(&b), "wire");
    // Bytes that cores move: a core of each, shared with compute.
    o.machine.cores = o.machine.threads = 2;
    const zx_times slow = {.node = node,
                           .update = update,
                           .norm = 1e-12,
                           .feed = 1e-12,
                           .copy = 2176. / 10,
                           .sum = 2176. / 10};
    zx_machine_link(&o.machine, 1e12, 0);
    b = bound(&g, &o, &slow);
    assert_true(b.moving > 49.99 && b.moving < 50.01);
    assert_true(b.seconds > 2 * n + 24.99 && b.seconds < 2 * n + 25.01);
    assert_string_equal(zx_bound_binds(&b), "compute");
    zx_arena_free(&mem);
}

// ---- no plan is below it ------------------------------------------------------------------------

enum { MLP, GPT, RANDOM };
#define N_RANDOM 5

static void make_graph(uint32_t which, zx_arena *mem, zx_graph *g)
{
    if (which == MLP)
        make_mlp(mem, 3, 4, 40, g);
    else if (which == GPT)
        make_gpt(mem, 4, 24, 2, 17, 2, 5, g);
    else
        make_random(mem, which, g);
}

static const struct machine_row {
    const char *name, *machine; // NULL: this host
    double wire, latency;
    uint32_t threads;
} machine_rows[] = {
    {"no link", NULL, 0, 0, 1},
    {"a slow link", NULL, 1e6, 0, 2},
    {"a link with latency", NULL, 1e9, 2e-3, 1},
    {"GPUs in nodes", "h100", 0, 0, 0},
    {"GPUs behind a link", "a100", 1e9, 1e-4, 0},
};

static uint32_t compare(const zx_graph *g, const struct machine_row *row, zx_plan_options *o)
{
    uint32_t n = 0;
    zx_arena mem = {0};
    zx_err err = {0};
    o->machine = zx_machine_host(o->ranks, row->threads);
    if (row->machine != NULL)
        assert_zx_ok(zx_machine_find(row->machine, o->ranks, &o->machine, &err), &err);
    if (row->wire > 0) zx_machine_link(&o->machine, row->wire, row->latency);
    const zx_bound b = bound(g, o, NULL);
    const zx_policy_input in = {
        .train = g, .options = o, .hooks_why = "built", .limits = {.reduce_bucket = 300}};
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++) {
        zx_policy_result r;
        if (!zx_policies[i].runs) continue; // they add in another order
        if (zx_policy_plan((zx_policy_id)i, &in, &mem, &r, &err) != ZX_OK || r.over) continue;
        n++;
        if (r.plan.step_seconds < b.seconds * (1 - 1e-9) || r.plan.wire_bytes < b.wire_bytes)
            fail_msg("%s on %s, %u ranks, %u micro-batches: %g s with %llu bytes, bound %g s "
                     "(compute %g, wire %g, path %g) with %llu",
                     zx_policy_name((zx_policy_id)i, &mem), g->name, o->ranks, o->micro_batches,
                     r.plan.step_seconds, (unsigned long long)r.plan.wire_bytes, b.seconds,
                     b.compute, b.wire, b.path, (unsigned long long)b.wire_bytes);
    }
    zx_arena_free(&mem);
    return n;
}

static uint64_t least(const zx_graph *g, const zx_plan_options *o)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_plan p;
    zx_plan_options mine = *o;
    mine.least = true;
    mine.budget = NO_BUDGET;
    assert_zx_ok(zx_plan_make(g, &mine, &mem, &p, &err), &err);
    zx_arena_free(&mem);
    return p.arena_bytes;
}

static void test_none_below(void **state)
{
    const struct machine_row *row = *state;
    uint32_t n = 0;
    for (uint32_t which = 0; which < RANDOM + (test_few() ? 1 : N_RANDOM); which++) {
        zx_arena mem = {0};
        zx_graph g;
        make_graph(which, &mem, &g);
        for (uint32_t ranks = 1; ranks <= 4; ranks++) {
            if ((which + ranks + (row - machine_rows)) % 3 != 0) continue;
            zx_plan_options o = options(ranks, 1 + which % 3, NO_BUDGET);
            n += compare(&g, row, &o);
            const uint64_t bytes = least(&g, &o);
            for (uint64_t part = 100; part <= 160; part += test_few() ? 60 : 30) {
                o.budget = bytes * part / 100;
                n += compare(&g, row, &o);
            }
        }
        zx_arena_free(&mem);
    }
    assert_true(n > (test_few() ? 20 : 80));
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(bytes_rows) + ZX_COUNT(machine_rows) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(bytes_rows); i++)
        tests[n++] = zx_case(bytes_rows[i].name, test_bytes, &bytes_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(machine_rows); i++)
        tests[n++] = zx_case(machine_rows[i].name, test_none_below, &machine_rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_seconds);
    return _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
}

// test_held.c - memory, as the kernel counts it: what a rank holds in each stage, what it occupies
// while it trains, and that a step allocates nothing.
// SPDX-License-Identifier: Apache-2.0
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "graph/autodiff.h"
#include "runtime/memory.h"
#include "runtime/session.h"
#include "tests/allocator.h"
#include "tests/runtime/ranks.h"

#define SIDE 2048 // of the one weight: 16 MiB, an odd column more to be cut unevenly
#define MIB ((double)(1 << 20))

// ---- counting allocations -----------------------------------------------------------------------

static _Atomic uint64_t n_allocations;

#if !TEST_SANITIZED
static void test_allocates(size_t bytes, const void *caller)
{
    (void)bytes;
    (void)caller;
    atomic_fetch_add(&n_allocations, 1);
}
#endif

// ---- a rank -------------------------------------------------------------------------------------

static const struct held_case {
    const char *name;
    uint32_t ranks, stage;
    double whole, sharded; // bytes a parameter: held by every rank, divided by the ranks
} cases[] = {
    {"1 rank, stage 0", 1, 0, 16, 0},  {"1 rank, stage 3", 1, 3, 0, 16},
    {"2 ranks, stage 0", 2, 0, 16, 0}, {"2 ranks, stage 1", 2, 1, 8, 8},
    {"2 ranks, stage 2", 2, 2, 4, 12}, {"2 ranks, stage 3", 2, 3, 0, 16},
    {"3 ranks, stage 3", 3, 3, 0, 16}, {"4 ranks, stage 2", 4, 2, 4, 12},
};

typedef struct figures {   // of a rank, in memory shared with the test
    double planned, peak;  // bytes
    double held, resident; // growth of Pss: before the first step, after some
    double allocations;    // in the later steps
} figures;

typedef struct rank_call {
    const struct held_case *c;
    figures *of; // by rank
} rank_call;

// mean(relu(x · w)) with x [1, SIDE], w [SIDE, SIDE + 1].
static void build(zx_arena *mem, zx_graph *out)
{
    zx_builder b;
    zx_builder_start(&b, mem, "held");
    zx_type t = {.dtype = ZX_F32, .shape = {.rank = 2, .dim = {1, SIDE}}};
    const uint32_t x = zx_build_input(&b, "x", &t);
    t.shape.dim[0] = SIDE;
    t.shape.dim[1] = SIDE + 1;
    const zx_param p = {.name = "w", .init = {.kind = ZX_INIT_FILL, .a = 0.01}};
    const uint32_t w = zx_build_param(&b, &t, &p);
    const zx_attrs none = {0};
    uint32_t y = zx_build1(&b, ZX_OP_MATMUL, none, 2, x, w);
    y = zx_build1(&b, ZX_OP_RELU, none, 1, y);
    const int64_t all[] = {0, 1};
    zx_attrs a = zx_attrs_ints(mem, none, ZX_A_AXES, all, 2);
    a = zx_attrs_int(mem, a, ZX_A_KEEPDIMS, 0);
    b.g.loss = zx_build1(&b, ZX_OP_REDUCE_MEAN, a, 1, y);
    zx_builder_done(&b, out);
}

static void fill(const void *self, uint32_t input, uint64_t micro, void *to)
{
    (void)self;
    (void)input;
    for (int i = 0; i < SIDE; i++) ((float *)to)[i] = (float)((micro + (uint64_t)i) % 7);
}

static int steps(zx_session *s, figures *f, zx_err *err)
{
    zx_step_report r = {0};
    for (uint64_t k = 0; k < 6; k++) {
        if (k == 2) f->allocations = -(double)atomic_load(&n_allocations);
        EXPECT(zx_session_step(s, k, k * 8, 0.001, &r, err) == ZX_OK && r.applied);
    }
    f->allocations += (double)atomic_load(&n_allocations);
    f->peak = (double)r.peak_bytes;
    return 0;
}

static int one_rank(zx_world *w, void *arg)
{
    const rank_call *call = arg;
    figures *f = &call->of[zx_world_rank(w)];
    zx_arena mem = {0};
    zx_graph forward, train;
    zx_plan plan;
    zx_session *s = NULL;
    zx_err err = {0};
    const zx_optim adam = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .bias_correction = true};
    build(&mem, &forward);
    EXPECT(zx_autodiff(&forward, 0.5, &mem, &train, &err) == ZX_OK);
    uint64_t *work = ZX_NEW(&mem, uint64_t, train.n_nodes);
    EXPECT(zx_session_work_bytes(&train, 1, work, &err) == ZX_OK);
    const zx_plan_options po = {.ranks = call->c->ranks,
                                .stage = call->c->stage,
                                .micro_batches = 2,
                                .optimizer_states = 2,
                                .work_bytes = work,
                                .machine = zx_machine_host(1, 1),
                                .budget = UINT64_MAX};
    EXPECT(zx_plan_make(&train, &po, &mem, &plan, &err) == ZX_OK);
    const zx_session_options so = {
        .world = w, .threads = 1, .optim = adam, .feed = {fill, NULL}, .seed = 1};
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    const double before = (double)zx_memory_pss();
    EXPECT(zx_session_open(&train, &plan, &so, &s, &err) == ZX_OK);
    f->held = (double)zx_memory_pss() - before;
    f->planned = (double)plan.held_bytes;
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    EXPECT(steps(s, f, &err) == 0);
    EXPECT(f->peak == (double)plan.arena_bytes);
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    f->resident = (double)zx_memory_pss() - before;
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    zx_session_close(s);
    zx_arena_free(&mem);
    return 0;
}

static void held(void **state)
{
    const struct held_case *c = *state;
    figures *of = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(of != MAP_FAILED);
    rank_call call = {c, of};
    run_processes(c->ranks, one_rank, &call);
    const double n = (double)SIDE * (SIDE + 1), due = c->whole * n + c->sharded * n / c->ranks;
    for (uint32_t r = 0; r < c->ranks; r++) {
        print_message(
            "rank %u: held %.1f MiB planned, %.1f measured, %.1f due; peak %.1f, resident "
            "%.1f; %.0f allocations in 4 steps\n",
            r, of[r].planned / MIB, of[r].held / MIB, due / MIB, of[r].peak / MIB,
            of[r].resident / MIB, of[r].allocations);
        assert_true(of[r].planned > 0.98 * due && of[r].planned < 1.02 * due);
#if !TEST_SANITIZED
        // Pages of programs that others run too come and go: half a MiB. The kernels' own state and
        // the threads' stacks come on top.
        assert_true(of[r].held > 0.98 * due - MIB / 2 && of[r].held < 1.02 * due + 2 * MIB);
        assert_true(of[r].resident < of[r].peak + 4 * MIB);
#ifdef ZX_NAIVE
        assert_true(of[r].allocations == 0);
#else
        // The library makes a few small ones a call: 2 products in each of 2 micro-batches here.
        assert_true(of[r].allocations <= 4 * 2 * 2 * 8);
#endif
#endif
    }
    munmap(of, 4096);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases)];
    for (size_t i = 0; i < ZX_COUNT(cases); i++) tests[i] = zx_case(cases[i].name, held, &cases[i]);
    return cmocka_run_group_tests_name("held", tests, NULL, NULL);
}

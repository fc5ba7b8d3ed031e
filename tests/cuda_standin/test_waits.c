// test_waits.c - a wait that a plan lacks is found twice: the checker refuses the plan, and where
// it runs nevertheless, over the stand-in, weights, losses or norms come out wrong sooner or later.
// Under ThreadSanitizer it is a race; a plan that has all of them has none.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/backend.h"
#include "sched/check.h"
#include "tests/cuda_standin/standin.h"
#include "tests/runtime/small.h"

extern const zx_backend zx_backend_cuda;

#define RANKS 2
#define SEEDS 60 // runs, of which one at least has to come out wrong
#define PLANT "ZX_WAITS_PLANT"

typedef struct planted {
    run_options o;
    uint32_t wait; // which of the plan's instructions is left out; ZX_NONE: none
    run_result *result;
} planted;

// What a session has checked changes under it: only so does such a plan run.
static int steps(zx_world *w, const planted *k, const zx_graph *train, zx_plan *plan, zx_site *site,
                 zx_arena *mem, run_result *mine)
{
    zx_insn *insns = zx_arena_copy(mem, plan->insns, plan->n_insns * sizeof *insns);
    zx_session *s = NULL;
    plan->insns = insns;
    const zx_session_options so = {.world = w,
                                   .site = *site,
                                   .threads = 1,
                                   .optim = *k->o.optim,
                                   .feed = {k->o.feed, &k->o},
                                   .poison = true,
                                   .timeout_seconds = 60};
    EXPECT(zx_session_open(train, plan, &so, &s, &mine->err) == ZX_OK);
    if (k->wait != ZX_NONE) insns[k->wait].id = ZX_I_HOOK;
    for (uint32_t i = 0; i < k->o.steps; i++)
        mine->status[i] = zx_session_step(s, i, i * RANKS, k->o.lr, &mine->report[i], &mine->err);
    small_read(s, train, ZX_READ_PARAM, mine->weight, &mine->n_weights, &mine->err);
    zx_session_close(s);
    return 0;
}

static int make(const run_options *o, const zx_site *site, zx_arena *mem, zx_graph *train,
                zx_plan *plan, zx_err *err)
{
    zx_graph forward;
    build_small(mem, &o->graph, &forward);
    EXPECT(zx_autodiff(&forward, 1.0 / o->of, mem, train, err) == ZX_OK);
    uint64_t *work = ZX_NEW(mem, uint64_t, train->n_nodes + 1);
    EXPECT(zx_session_work_bytes_at(site, train, 1, work, err) == ZX_OK);
    const zx_plan_options po = {.ranks = RANKS,
                                .stage = 3,
                                .micro_batches = o->micros,
                                .optimizer_states = zx_optim_states(o->optim),
                                .work_bytes = work,
                                .machine = zx_machine_host(1, 1),
                                .budget = UINT64_MAX,
                                .least = true};
    EXPECT(zx_plan_make(train, &po, mem, plan, err) == ZX_OK);
    return 0;
}

static int rank(zx_world *w, void *arg)
{
    const planted *k = arg;
    zx_arena mem = {0};
    zx_graph train;
    zx_plan plan;
    zx_site site;
    run_result *mine = ZX_NEW(&mem, run_result, 1);
    int bad = zx_site_open(&site, &zx_backend_cuda, zx_world_rank(w), NULL, &mine->err) != ZX_OK;
    if (bad == 0) bad = make(&k->o, &site, &mem, &train, &plan, &mine->err);
    if (bad == 0) bad = steps(w, k, &train, &plan, &site, &mem, mine);
    if (bad != 0) fprintf(stderr, "%s\n", mine->err.cause[0]);
    zx_site_close(&site);
    if (zx_world_rank(w) == 0) *k->result = *mine;
    zx_arena_free(&mem);
    return bad;
}

static void run(planted *k, uint64_t seed)
{
    zx_standin_seed(seed);
    memset(k->result, 0, sizeof *k->result);
    run_threads(RANKS, rank, k);
    zx_standin_reset();
}

static run_options options(void)
{
    const run_options o = {.ranks = RANKS, .steps = 2};
    return filled(&o);
}

#if !defined(ZX_STANDIN_TSAN)
// Whether a run's weights, losses or norms are other bits. A gradient that is reduced too late for
// the norm may still come in time for the update.
static bool differs(const run_result *a, const run_result *b, uint32_t steps)
{
    bool same = memcmp(a->weight, b->weight, sizeof a->weight) == 0;
    for (uint32_t i = 0; i < steps; i++)
        same = same && a->status[i] == b->status[i] &&
               memcmp(&a->report[i].loss, &b->report[i].loss, sizeof(double)) == 0 &&
               memcmp(&a->report[i].grad_norm, &b->report[i].grad_norm, sizeof(double)) == 0;
    return !same;
}

#define LET_GO 0
static bool shows(planted *k, const run_result *good)
{
    static run_result got;
    uint64_t seed = 1;
    k->result = &got;
    do run(k, seed);
    while (!differs(&got, good, k->o.steps) && ++seed <= SEEDS);
    return seed <= SEEDS;
}

static void run_planted(const char *wait ZX_UNUSED)
{
}
#else
#define LET_GO 1 // of a race the sanitizer knows the last few accesses alone
// A race ends the process, so that it is another one: it is told what to plant.
static bool shows(const planted *k, const run_result *good ZX_UNUSED)
{
    char number[16];
    snprintf(number, sizeof number, "%u", k->wait);
    const pid_t pid = wait_fork();
    if (pid != 0) return wait_end(pid) == 66; // the sanitizer's own exit code
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 2);
    setenv(PLANT, number, 1);
    execl("/proc/self/exe", "waits", (char *)NULL);
    _exit(127);
}

static void run_planted(const char *wait)
{
    static run_result got;
    planted k = {.o = options(), .wait = (uint32_t)atoi(wait), .result = &got};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) run(&k, seed);
}
#endif

// The plan that all ranks make.
static void plan_here(const run_options *o, zx_arena *mem, zx_graph *train, zx_plan *plan)
{
    static zx_err err;
    zx_site site;
    assert_zx_ok(zx_site_open(&site, &zx_backend_cuda, 0, NULL, &err), &err);
    assert_int_equal(make(o, &site, mem, train, plan, &err), 0);
    zx_site_close(&site);
    zx_standin_reset();
}

// Whether the checker misses the wait; a wait may be there for order's sake alone.
static bool refuses(const zx_graph *train, const zx_plan *plan, uint32_t wait, zx_arena *mem)
{
    zx_plan without = *plan;
    zx_insn *insns = zx_arena_copy(mem, plan->insns, plan->n_insns * sizeof *insns);
    zx_err err = {0};
    insns[wait].id = ZX_I_HOOK;
    without.insns = insns;
    return zx_plan_check(train, &without, &err) != ZX_OK && err.code != ZX_E_USAGE;
}

// Whether the event that is waited for has something of this step before it. Else it is there for
// the step before, and the host has seen to that: between steps it waits for all streams.
static bool within_step(const zx_plan *plan, uint32_t wait)
{
    bool something[ZX_STREAM_COUNT] = {false};
    for (uint32_t i = 0; i < plan->n_insns; i++) {
        const zx_insn *in = &plan->insns[i];
        const bool works = in->id != ZX_I_WAIT && in->id != ZX_I_MARK && in->id != ZX_I_FREE;
        something[in->stream] = something[in->stream] || works;
        if (in->id != ZX_I_UPDATE && in->id != ZX_I_COMMIT && in->c == plan->insns[wait].a)
            return something[in->stream];
    }
    return false;
}

static void every_wait_is_missed(void **state ZX_UNUSED)
{
    static run_result good;
    zx_arena mem = {0};
    zx_graph train;
    zx_plan plan;
    planted k = {.o = options(), .wait = ZX_NONE, .result = &good};
    uint32_t waits = 0, refused = 0, wrong = 0;
    run(&k, 0);
    assert_true(good.n_weights > 0 && good.status[1] == ZX_OK);
    plan_here(&k.o, &mem, &train, &plan);
    for (k.wait = 0; k.wait < plan.n_insns; k.wait++) {
        if (plan.insns[k.wait].id != ZX_I_WAIT) continue;
        waits++;
        if (!refuses(&train, &plan, k.wait, &mem) || !within_step(&plan, k.wait)) continue;
        refused++;
        if (shows(&k, &good))
            wrong++;
        else
            print_message(
                "instruction %u, a wait of the %s stream: nothing went wrong in %d runs\n", k.wait,
                zx_stream_words[plan.insns[k.wait].stream], SEEDS);
    }
    print_message("%u waits, the checker misses %u, of which %u show\n", waits, refused, wrong);
    assert_true(refused >= 5 && wrong + LET_GO >= refused);
    zx_arena_free(&mem);
}

static void no_wait_is_missed(void **state ZX_UNUSED)
{
    static run_result good, got;
    planted k = {.o = options(), .wait = ZX_NONE, .result = &good};
    run(&k, 0);
    k.result = &got;
    for (uint64_t seed = 1; seed <= 10; seed++) {
        run(&k, seed);
        assert_memory_equal(got.weight, good.weight, sizeof good.weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        zx_case("nothing is missed", no_wait_is_missed, NULL),
        zx_case("every wait is missed", every_wait_is_missed, NULL),
    };
    setenv("ZX_STANDIN_DELAY", "2000", 1); // longer than what a kernel takes here
    const char *plant = getenv(PLANT);
    if (plant != NULL) run_planted(plant);
    if (plant != NULL) return 0;
    return _cmocka_run_group_tests("cuda_standin.waits", tests, ZX_COUNT(tests), NULL, NULL);
}

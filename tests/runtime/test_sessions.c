// test_sessions.c - several sessions of one world, times of instructions, and what is measured
// for the simulator.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>

#include "tests/runtime/small.h"

// ---- a rank with its graph and plans ------------------------------------------------------------

typedef struct rank_parts {
    zx_arena mem;
    zx_graph forward, train;
    zx_err err;
} rank_parts;

static zx_status make_parts(rank_parts *p, const run_options *o)
{
    *p = (rank_parts){0};
    build_small(&p->mem, &o->graph, &p->forward);
    return zx_autodiff(&p->forward, 1.0 / o->of, &p->mem, &p->train, &p->err);
}

static zx_status make_plan(rank_parts *p, const run_options *o, zx_plan *plan)
{
    ZX_TRY(small_plan(&p->train, o, &p->mem, plan, &p->err));
    if (o->flat != FLAT_NOT) flatten(plan, o->flat, &p->mem);
    return ZX_OK;
}

static zx_session_options options_of(const run_options *o, zx_world *w)
{
    return (zx_session_options){.world = w,
                                .threads = o->threads,
                                .seed = 11,
                                .optim = *o->optim,
                                .feed = {o->feed, o},
                                .bandwidth = o->bandwidth,
                                .latency_seconds = o->latency};
}

// ---- several at once ----------------------------------------------------------------------------

enum { MOST_OPEN = 3, STEPS = 3 };
static const run_options open_rows[MOST_OPEN] = {
    {.ranks = 2, .micros = 2},
    {.ranks = 2, .micros = 2, .stage = STAGE_1, .flat = FLAT_ROWS},
    {.ranks = 2, .micros = 2, .least = true, .latency = 1e-4},
};

static int n_threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    while (d != NULL && readdir(d) != NULL) n++;
    if (d != NULL) closedir(d);
    return n;
}

// Opened together, steps interleaved, closed in an order of each rank's own.
static int interleaved(zx_world *w, void *arg)
{
    run_result *results = arg;
    rank_parts p;
    zx_plan plan[MOST_OPEN];
    zx_session *s[MOST_OPEN];
    run_options o[MOST_OPEN];
    run_result *mine = calloc(MOST_OPEN, sizeof *mine);
    for (int i = 0; i < MOST_OPEN; i++) o[i] = filled(&open_rows[i]);
    EXPECT(make_parts(&p, &o[0]) == ZX_OK);
    for (int i = 0; i < MOST_OPEN; i++) {
        EXPECT(make_plan(&p, &o[i], &plan[i]) == ZX_OK);
        const zx_session_options so = options_of(&o[i], w);
        EXPECT(zx_session_open(&p.train, &plan[i], &so, &s[i], &p.err) == ZX_OK);
    }
    for (uint32_t k = 0; k < STEPS; k++)
        for (int i = 0; i < MOST_OPEN; i++)
            EXPECT(zx_session_step(s[i], k, k * 4, o[i].lr, &mine[i].report[k], &p.err) == ZX_OK);
    for (int i = 0; i < MOST_OPEN; i++)
        EXPECT(small_read(s[i], &p.train, ZX_READ_PARAM, mine[i].weight, &mine[i].n_weights,
                          &p.err) == 0);
    if (zx_world_rank(w) == 0) memcpy(results, mine, MOST_OPEN * sizeof *mine);
    for (int i = 0; i < MOST_OPEN; i++)
        zx_session_close(s[zx_world_rank(w) == 0 ? i : MOST_OPEN - 1 - i]);
    zx_arena_free(&p.mem);
    free(mine);
    return 0;
}

static void sessions_interleaved(void **state)
{
    (void)state;
    static run_result alone, together[MOST_OPEN];
    run_options first = open_rows[0];
    first.steps = STEPS;
    run_small(&first, &alone);
    run_threads(2, interleaved, together);
    for (int i = 0; i < MOST_OPEN; i++) {
        for (uint32_t k = 0; k < STEPS; k++)
            assert_true(together[i].report[k].loss == alone.report[k].loss);
        assert_memory_equal(together[i].weight, alone.weight, sizeof alone.weight);
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// The least share of a core that the process takes in some moments: a busy machine may wake it up,
// or be late, in one, and gives a thread that spins more than this in any of them.
static double idle_share(void)
{
    double least = 1;
    for (int i = 0; i < 4; i++) {
        const double before = cpu_seconds(), from = wait_now();
        usleep(100000);
        least = fmin(least, (cpu_seconds() - before) / (wait_now() - from));
    }
    return least;
}

// A thread that was joined may be listed a moment longer.
static bool threads_become(int n)
{
    for (wait_limit w = {0}; n_threads() != n;)
        if (!wait_again(&w)) return false;
    return true;
}

// Streams beside compute that a plan uses: each has a thread.
static int busy_streams(const zx_plan *p)
{
    int n = 0;
    bool used[ZX_STREAM_COUNT] = {false};
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const uint32_t k = p->insns[i].stream;
        n += k != ZX_S_COMPUTE && !used[k];
        used[k] = true;
    }
    return n;
}

// A session that isn't in a step takes no core; a closed one leaves no thread.
static int idle(zx_world *w, void *arg)
{
    (void)arg;
    const run_options row = {.ranks = 2, .flat = FLAT_BUCKET}, o = filled(&row);
    rank_parts p;
    zx_plan plan;
    zx_session *s;
    zx_step_report r;
    EXPECT(make_parts(&p, &o) == ZX_OK && make_plan(&p, &o, &plan) == ZX_OK);
    EXPECT(zx_world_agree(w, ZX_OK, &p.err) == ZX_OK);
    const int threads = n_threads(), streams = busy_streams(&plan);
    const zx_session_options so = options_of(&o, w);
    EXPECT(streams >= 3); // collectives, copies of gathers, copies of gradients
    for (int i = 0; i < 2; i++) {
        EXPECT(zx_session_open(&p.train, &plan, &so, &s, &p.err) == ZX_OK);
        EXPECT(zx_session_step(s, 0, 0, 0.01, &r, &p.err) == ZX_OK);
        EXPECT(n_threads() >= threads + 2 * streams); // of two ranks
        EXPECT(zx_world_agree(w, ZX_OK, &p.err) == ZX_OK);
        EXPECT(idle_share() < 0.15);
        EXPECT(zx_world_agree(w, ZX_OK, &p.err) == ZX_OK);
        zx_session_close(s);
        EXPECT(zx_world_agree(w, ZX_OK, &p.err) == ZX_OK);
        EXPECT(threads_become(threads));
        EXPECT(zx_world_agree(w, ZX_OK, &p.err) == ZX_OK);
    }
    zx_arena_free(&p.mem);
    return 0;
}

static void idle_sessions_sleep(void **state)
{
    (void)state;
    run_threads(2, idle, NULL);
}

// ---- times --------------------------------------------------------------------------------------

static double rule_seconds(const zx_plan *p, const run_options *o, const zx_insn *in)
{
    double bytes = 0;
    const zx_launch *l = &p->launches[in->a];
    for (uint32_t i = l->member; i < l->member + l->n_members; i++)
        bytes += (double)zx_unit_room(p, &p->units[p->members[i].unit], 1) * sizeof(float);
    const double passes = in->id == ZX_I_ALLREDUCE ? 2 : 1;
    return o->latency + passes * (p->ranks - 1) / p->ranks * bytes / o->bandwidth;
}

static bool on_wire(const zx_insn *in)
{
    return in->id == ZX_I_GATHER || in->id == ZX_I_REDUCE || in->id == ZX_I_ALLREDUCE;
}

// The instruction that sets an event.
static uint32_t setter(const zx_plan *p, uint32_t event)
{
    for (uint32_t i = 0; i < p->n_insns; i++)
        if (p->insns[i].id != ZX_I_WAIT && p->insns[i].c == event) return i;
    return ZX_NONE;
}

// What is on the wire is there as long as the rule says and alone; streams run in order; the step
// is as long as all of that.
static int expect_times(const zx_plan *p, const run_options *o, const double *start,
                        const double *seconds, const zx_step_report *r)
{
    double end[ZX_STREAM_COUNT] = {0}, wire = 0;
    const double within = 1e-9;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        const zx_insn *in = &p->insns[i];
        EXPECT(start[i] >= 0 && seconds[i] >= 0 && start[i] + seconds[i] <= r->seconds + within);
        // A stream's next instruction begins after it, but for the moment an event takes.
        if (!on_wire(in)) EXPECT(start[i] + seconds[i] >= end[in->stream]);
        if (on_wire(in)) EXPECT(start[i] >= end[in->stream] - within);
        end[in->stream] = start[i] + seconds[i];
        if (in->id == ZX_I_WAIT) EXPECT(end[in->stream] >= start[setter(p, in->a)] - within);
        if (!on_wire(in)) continue;
        const double due = rule_seconds(p, o, in);
        EXPECT(seconds[i] >= due - within);
        wire += due;
        for (uint32_t k = 0; k < i; k++)
            if (on_wire(&p->insns[k]))
                EXPECT(start[k] >= start[i] + due - within ||
                       start[i] >= start[k] + rule_seconds(p, o, &p->insns[k]) - within);
    }
    EXPECT(wire > 0 && r->seconds >= wire);
    return 0;
}

static int profiled(zx_world *w, void *arg)
{
    const run_options o = filled(arg);
    rank_parts p;
    zx_plan plan;
    zx_session *s;
    zx_step_report r;
    const double *start = NULL, *seconds = NULL;
    EXPECT(make_parts(&p, &o) == ZX_OK && make_plan(&p, &o, &plan) == ZX_OK);
    zx_session_options so = options_of(&o, w);
    EXPECT(zx_session_open(&p.train, &plan, &so, &s, &p.err) == ZX_OK);
    EXPECT(!zx_session_profile(s, &start, &seconds));
    zx_session_close(s);
    so.profile = true;
    EXPECT(zx_session_open(&p.train, &plan, &so, &s, &p.err) == ZX_OK);
    for (uint32_t k = 0; k < 2; k++) {
        EXPECT(zx_session_step(s, k, k * 8, 0.01, &r, &p.err) == ZX_OK);
        EXPECT(zx_session_profile(s, &start, &seconds));
        EXPECT(expect_times(&plan, &o, start, seconds, &r) == 0);
    }
    zx_session_close(s);
    zx_arena_free(&p.mem);
    return 0;
}

static const struct profile_case {
    const char *name;
    run_options o;
} profile_cases[] = {
    {"times: 2 ranks", {.ranks = 2, .micros = 2, .bandwidth = 1e6, .latency = 3e-4}},
    {"times: 3 ranks, rows", {.ranks = 3, .flat = FLAT_ROWS, .bandwidth = 1e6, .latency = 3e-4}},
    {"times: all-reduces",
     {.ranks = 2, .micros = 2, .stage = STAGE_0, .bandwidth = 1e6, .latency = 3e-4}},
};

static void times(void **state)
{
    const struct profile_case *c = *state;
    run_threads(c->o.ranks, profiled, (void *)(uintptr_t)&c->o);
}

// Between steps of another session, as in a round; more than are asked for are not kept.
static bool turns(rank_parts *p, const zx_plan *plan, const zx_session_options *so, zx_times *out)
{
    zx_measuring *m = NULL;
    zx_session *other = NULL;
    zx_session_options o = *so;
    zx_step_report r;
    o.latency_seconds = 0;
    bool fine = zx_session_open(&p->train, plan, &o, &other, &p->err) == ZX_OK &&
                zx_measuring_open(&p->train, plan, so, 2, &m, &p->err) == ZX_OK;
    for (uint32_t k = 0; k < 4 && fine; k++)
        fine = zx_session_step(other, k, k * 4, 1e-3, &r, &p->err) == ZX_OK && r.applied &&
               zx_measuring_turn(m, k > 0, &p->err) == ZX_OK;
    fine = fine && zx_measuring_times(m, &p->mem, out, &p->err) == ZX_OK;
    zx_measuring_close(m);
    zx_session_close(other);
    return fine;
}

static int measured(zx_world *w, void *arg)
{
    const run_options row = {.ranks = 2, .micros = 2, .latency = 3600}, o = filled(&row);
    rank_parts p;
    zx_plan plan;
    zx_times t;
    double all[2 * 6];
    EXPECT(make_parts(&p, &o) == ZX_OK && make_plan(&p, &o, &plan) == ZX_OK);
    const zx_session_options so = options_of(&o, w);
    if (arg == NULL)
        EXPECT(zx_session_measure(&p.train, &plan, &so, 3, &p.mem, &t, &p.err) == ZX_OK);
    else
        EXPECT(turns(&p, &plan, &so, &t));
    double sum = 0, updates = 0;
    for (uint32_t n = 0; n < p.train.n_nodes; n++) {
        const bool runs = (zx_ops[p.train.nodes[n].op].flags & ZX_OP_VIEW) == 0;
        EXPECT(runs ? t.node[n] > 0 && t.node[n] < 1 : t.node[n] == 0);
        sum += t.node[n];
    }
    for (uint32_t u = 0; u < plan.n_units; u++) {
        const bool trained = p.train.params[u].grad != ZX_NONE && plan.units[u].numel > 0;
        EXPECT(trained ? t.update[u] > 0 : t.update[u] == 0);
        updates += t.update[u];
    }
    EXPECT(t.norm > 0 && t.feed > 0 && t.copy > 1e6 && t.sum > 1e6);
    const double mine[6] = {sum, updates, t.norm, t.feed, t.copy, t.sum};
    EXPECT(zx_world_exchange(w, mine, sizeof mine, all, &p.err) == ZX_OK);
    EXPECT(memcmp(all, all + 6, sizeof mine) == 0);
    zx_arena_free(&p.mem);
    return 0;
}

static void measured_for_the_simulator(void **state)
{
    (void)state;
    run_threads(2, measured, NULL);
    int in_turns = 1;
    run_threads(2, measured, &in_turns);
}

// ---- precision ----------------------------------------------------------------------------------

static int sixteen(zx_world *w, void *arg)
{
    (void)arg;
    const run_options row = {.ranks = 2}, o = filled(&row);
    const zx_session_options so = options_of(&o, w);
    rank_parts p;
    zx_plan plan;
    zx_session *s = NULL;
    EXPECT(make_parts(&p, &o) == ZX_OK && make_plan(&p, &o, &plan) == ZX_OK);
    zx_value *values = zx_arena_copy(&p.mem, p.train.values, p.train.n_values * sizeof *values);
    p.train.values = values;
    values[p.train.params[0].value].type.dtype = ZX_F16;
    values[p.train.params[2].value].type.dtype = ZX_BF16;
    EXPECT(zx_session_open(&p.train, &plan, &so, &s, &p.err) == ZX_E_UNSUPPORTED && s == NULL);
    EXPECT(strcmp(p.err.cause[0],
                  "parameter 'w2' is bfloat16: they are float32, or of one type of 16 bits") == 0);
    zx_arena_free(&p.mem);
    return 0;
}

static void two_kinds_of_sixteen_bits_are_refused(void **state)
{
    (void)state;
    run_threads(2, sixteen, NULL);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(profile_cases) + 4];
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(sessions_interleaved);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(idle_sessions_sleep);
    for (size_t i = 0; i < ZX_COUNT(profile_cases); i++)
        tests[n++] = zx_case(profile_cases[i].name, times, &profile_cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(measured_for_the_simulator);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(two_kinds_of_sixteen_bits_are_refused);
    return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}

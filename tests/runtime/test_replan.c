// test_replan.c - a run that goes on in another session: by another plan, or measured on the way,
// it computes the same bits as one that stays in its first.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/small.h"

enum { STEPS = 6, SWITCH = 2, MEASURED = 3 }; // steps before each

static const struct go_on_case {
    const char *name;
    run_options before, after; // what their plans are made by
} go_on_cases[] = {
    {"stage 3, dropout and a buffer",
     {.ranks = 2, .micros = 2, .graph = {.dropout = 0.3, .buffer = true}},
     {.least = true, .no_overlap = true}},
    {"from the least memory to more", {.ranks = 3, .least = true}, {.least = false}},
    {"stage 1, a link", {.ranks = 2, .stage = STAGE_1, .latency = 1e-4}, {.no_overlap = true}},
    {"one rank, poisoned", {.micros = 3, .poison = true}, {.least = true}},
    {"the same plan", {.ranks = 2}, {.ranks = 2}},
};

typedef struct go_on_call {
    const struct go_on_case *c;
    run_result *result;
} go_on_call;

typedef struct going { // on one rank
    zx_arena mem;
    zx_graph forward, train;
    zx_plan plan[2];
    zx_session_options so;
    zx_session *s;
    zx_measuring *m;
    run_result mine;
} going;

static int prepare(going *g, zx_world *w, const run_options *o, const run_options *after)
{
    run_options second = *o;
    second.least = after->least;
    second.no_overlap = after->no_overlap;
    if (after->stage != 0) second.stage = after->stage;
    build_small(&g->mem, &o->graph, &g->forward);
    EXPECT(zx_autodiff(&g->forward, 1.0 / o->of, &g->mem, &g->train, &g->mine.err) == ZX_OK);
    EXPECT(small_plan(&g->train, o, &g->mem, &g->plan[0], &g->mine.err) == ZX_OK);
    EXPECT(small_plan(&g->train, &second, &g->mem, &g->plan[1], &g->mine.err) == ZX_OK);
    g->so = (zx_session_options){.world = w,
                                 .threads = o->threads,
                                 .seed = 11,
                                 .optim = *o->optim,
                                 .feed = {o->feed, o},
                                 .latency_seconds = o->latency,
                                 .poison = o->poison};
    EXPECT(zx_session_open(&g->train, &g->plan[0], &g->so, &g->s, &g->mine.err) == ZX_OK);
    return 0;
}

static int begin_measuring(going *g)
{
    g->so.from = g->s;
    EXPECT(zx_measuring_open(&g->train, &g->plan[0], &g->so, 2, &g->m, &g->mine.err) == ZX_OK);
    zx_session_close(g->s);
    g->s = zx_measuring_session(g->m);
    return 0;
}

static int end_measuring(going *g)
{
    zx_session *next;
    zx_times t;
    double all[3 * 8];
    EXPECT(zx_measuring_medians(g->m, &g->mem, &t, &g->mine.err) == ZX_OK);
    const double some[3] = {t.node[0], t.update[0], t.norm};
    EXPECT(zx_world_exchange(g->so.world, some, sizeof some, all, &g->mine.err) == ZX_OK);
    for (uint32_t r = 0; r < zx_world_size(g->so.world); r++)
        EXPECT(memcmp(some, all + 3 * r, sizeof some) == 0);
    for (uint32_t n = 0; n < g->train.n_nodes; n++) {
        const bool runs = (zx_ops[g->train.nodes[n].op].flags & ZX_OP_VIEW) == 0;
        EXPECT(runs ? t.node[n] > 0 && t.node[n] < 1 : t.node[n] == 0);
    }
    g->so.from = g->s;
    EXPECT(zx_session_open(&g->train, &g->plan[1], &g->so, &next, &g->mine.err) == ZX_OK);
    zx_measuring_close(g->m);
    g->m = NULL;
    g->s = next;
    return 0;
}

static int going_on(zx_world *w, void *arg)
{
    const go_on_call *c = arg;
    const run_options o = filled(&c->c->before);
    going *g = calloc(1, sizeof *g);
    run_result *mine = &g->mine;
    EXPECT(prepare(g, w, &o, &c->c->after) == 0);
    for (uint32_t k = 0; k < STEPS; k++) {
        if (k == SWITCH) EXPECT(begin_measuring(g) == 0);
        EXPECT(zx_session_step(g->s, k, k * o.ranks * o.micros, o.lr, &mine->report[k],
                               &mine->err) == ZX_OK);
        if (g->m != NULL) EXPECT(zx_measuring_note(g->m, k > SWITCH, &mine->err) == ZX_OK);
        if (k == SWITCH + MEASURED - 1) EXPECT(end_measuring(g) == 0);
    }
    EXPECT(small_read(g->s, &g->train, ZX_READ_PARAM, mine->weight, &mine->n_weights, &mine->err) ==
           0);
    if (o.graph.buffer)
        EXPECT(zx_session_read(g->s, ZX_READ_BUFFER, 0, 0, HIDDEN, mine->buffer, &mine->err) ==
               ZX_OK);
    if (zx_world_rank(w) == 0) *c->result = *mine;
    zx_session_close(g->s);
    zx_arena_free(&g->mem);
    free(g);
    return 0;
}

static void same_bits(void **state)
{
    const struct go_on_case *c = *state;
    static run_result stays, goes_on;
    run_options o = c->before;
    o.steps = STEPS;
    run_small(&o, &stays);
    memset(&goes_on, 0, sizeof goes_on);
    go_on_call call = {c, &goes_on};
    run_threads(filled(&c->before).ranks, going_on, &call);
    for (uint32_t k = 0; k < STEPS; k++) {
        assert_true(stays.report[k].applied && goes_on.report[k].applied);
        assert_memory_equal(&stays.report[k].loss, &goes_on.report[k].loss, sizeof(double));
        assert_memory_equal(&stays.report[k].grad_norm, &goes_on.report[k].grad_norm,
                            sizeof(double));
    }
    assert_true(stays.n_weights > 0 && stays.n_weights == goes_on.n_weights);
    assert_memory_equal(stays.weight, goes_on.weight, sizeof stays.weight);
    assert_memory_equal(stays.buffer, goes_on.buffer, sizeof stays.buffer);
}

// Another stage holds other shards.
static int refused(zx_world *w, void *arg)
{
    (void)arg;
    const run_options row = {.ranks = 2}, o = filled(&row), other = {.stage = STAGE_1};
    going *g = calloc(1, sizeof *g);
    zx_session *next = NULL;
    EXPECT(prepare(g, w, &o, &other) == 0);
    g->so.from = g->s;
    EXPECT(zx_session_open(&g->train, &g->plan[1], &g->so, &next, &g->mine.err) == ZX_E_DEVICE);
    EXPECT(next == NULL && strstr(g->mine.err.cause[0], "holds another state") != NULL);
    EXPECT(zx_session_step(g->s, 0, 0, o.lr, &g->mine.report[0], &g->mine.err) == ZX_OK);
    zx_session_close(g->s);
    zx_arena_free(&g->mem);
    free(g);
    return 0;
}

static void another_stage_is_refused(void **state)
{
    (void)state;
    run_threads(2, refused, NULL);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(go_on_cases) + 1];
    for (size_t i = 0; i < ZX_COUNT(go_on_cases); i++)
        tests[i] = zx_case(go_on_cases[i].name, same_bits, &go_on_cases[i]);
    tests[ZX_COUNT(go_on_cases)] = (struct CMUnitTest)cmocka_unit_test(another_stage_is_refused);
    return cmocka_run_group_tests_name("replan", tests, NULL, NULL);
}

// test_wire.c - the emulated link: who is served when, by the rule alone; and collectives over it,
// which are never faster than the rule says and can't lock ranks up.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm.h"
#include "runtime/comm_wire.h"
#include "tests/runtime/ranks.h"

#define G ZX_S_GATHER
#define R ZX_S_REDUCE

// ---- the rule -----------------------------------------------------------------------------------

// Two ranks. Each issue is of one of them; then streams ask for their turn, in this order.
static const struct rule_case {
    const char *name;
    struct {
        zx_stream s;
        uint32_t position;
        double at, seconds;
    } issue[4];
    struct {
        zx_stream s;
        double from, until;
    } turn[2];
} rule_cases[] = {
    {"one at a time",
     {{G, 3, 1, 2}, {G, 3, 1, 2}, {R, 5, 1.5, 1}, {R, 5, 2, 1}},
     {{G, 1, 3}, {R, 3, 4}}},
    {"asked in another order",
     {{G, 3, 1, 2}, {G, 3, 1, 2}, {R, 5, 1.5, 1}, {R, 5, 2, 1}},
     {{R, 3, 4}, {G, 1, 3}}},
    {"the last rank's issue counts",
     {{G, 3, 0, 2}, {G, 3, 5, 2}, {R, 5, 4, 2}, {R, 5, 1, 2}},
     {{G, 6, 8}, {R, 4, 6}}},
    {"at the same moment: by position",
     {{G, 9, 1, 2}, {G, 9, 0, 2}, {R, 4, 0, 1}, {R, 4, 1, 1}},
     {{G, 2, 4}, {R, 1, 2}}},
    {"the wire is idle between",
     {{G, 3, 1, 2}, {G, 3, 1, 2}, {R, 5, 10, 1}, {R, 5, 9, 1}},
     {{R, 10, 11}, {G, 1, 3}}},
    {"what one rank has not issued holds nothing",
     {{G, 3, 1, 2}, {R, 5, 3, 1}, {R, 5, 2, 1}, {.seconds = 0}},
     {{R, 3, 4}, {R, 3, 4}}},
};

static void rule(void **state)
{
    const struct rule_case *c = *state;
    zx_err err = {0};
    zx_wire *w = calloc(1, (size_t)zx_wire_bytes());
    assert_non_null(w);
    assert_zx_ok(zx_wire_start(w, 2, &err), &err);
    for (size_t i = 0; i < ZX_COUNT(c->issue) && c->issue[i].seconds > 0; i++)
        assert_true(zx_wire_issue(w, c->issue[i].s, 1, c->issue[i].position, c->issue[i].at,
                                  c->issue[i].seconds));
    for (size_t i = 0; i < ZX_COUNT(c->turn); i++) {
        double from, until;
        assert_true(zx_wire_turn(w, c->turn[i].s, &from, &until));
        if (from != c->turn[i].from || until != c->turn[i].until)
            fail_msg("stream %d: %g to %g, due %g to %g", (int)c->turn[i].s, from, until,
                     c->turn[i].from, c->turn[i].until);
    }
    free(w);
}

static void a_stream_comes_again(void **state)
{
    (void)state;
    zx_err err = {0};
    zx_wire *w = calloc(1, (size_t)zx_wire_bytes());
    assert_non_null(w);
    assert_zx_ok(zx_wire_start(w, 1, &err), &err);
    for (uint32_t k = 1; k <= 3; k++) {
        double from, until, at;
        assert_true(zx_wire_issue(w, G, k, 7, 0.5 * k, 1)); // sooner than the wire is free
        assert_true(zx_wire_eligible(w, G, &at) && at == 0.5 * k);
        assert_true(zx_wire_turn(w, G, &from, &until));
        assert_true(from == k - 0.5 && until == k + 0.5);
    }
    free(w);
}

// ---- collectives over it ------------------------------------------------------------------------

enum { SHARD = 5000, MOST_TIMES = 16 };

// One unit in four slots: shard, gathered, gradient, its sum.
typedef struct tiny {
    zx_slot slot[4];
    zx_unit unit;
    zx_member member[2];
    zx_launch launch[2]; // gather, reduce
    zx_plan plan;
} tiny;

static void make_tiny(tiny *t, uint32_t ranks)
{
    const uint64_t shard = SHARD * sizeof(float), whole = shard * ranks;
    *t = (tiny){.slot = {{0, shard, ZX_SLOT_PARAM, 0},
                         {65536, whole, ZX_SLOT_UNIT, 0},
                         {2 * 65536, whole, ZX_SLOT_VALUE, 0},
                         {3 * 65536, shard, ZX_SLOT_GRAD, 0}},
                .unit = {.param_slot = 0,
                         .grad_slot = 3,
                         .numel = (int64_t)SHARD * ranks,
                         .shard = SHARD,
                         .param_bytes = sizeof(float),
                         .grad_bytes = sizeof(float)},
                .member = {{0, 1, ZX_NONE, 0, 0}, {0, 2, ZX_NONE, 0, 0}},
                .launch = {{0, 1, ZX_NONE}, {1, 1, ZX_NONE}}};
    t->plan = (zx_plan){.ranks = ranks,
                        .n_slots = 4,
                        .n_units = 1,
                        .n_launches = 2,
                        .n_members = 2,
                        .slots = t->slot,
                        .units = &t->unit,
                        .launches = t->launch,
                        .members = t->member};
}

typedef struct rank_link {
    zx_world *w;
    tiny t;
    unsigned char *base[MOST_RANKS];
    zx_comm *comm;
    double seconds; // that a collective is due to take
} rank_link;

static zx_status open_link(rank_link *l, zx_world *w, double bandwidth, double latency)
{
    zx_err err = {0};
    const uint32_t n = zx_world_size(w);
    l->w = w;
    make_tiny(&l->t, n);
    ZX_TRY(zx_world_reserve(w, 4 * 65536, l->base, &err));
    const double bytes = sizeof(float) * (double)SHARD * n;
    l->seconds = latency + (n - 1) * bytes / n / bandwidth;
    const zx_comm_args a = {.plan = &l->t.plan,
                            .base = l->base,
                            .patience = {.world = w},
                            .board_bytes = 64,
                            .bandwidth = bandwidth,
                            .latency_seconds = latency};
    return zx_comm_shm.open(&a, &l->comm, &err);
}

typedef struct stream_call {
    rank_link *l;
    zx_stream s;
    int n;
    bool ok;
    zx_sent sent[MOST_TIMES];
    double back[MOST_TIMES];
} stream_call;

static void *send_all(void *arg)
{
    stream_call *c = arg;
    const bool gather = c->s == G;
    c->ok = true;
    for (int k = 0; k < c->n && c->ok; k++) {
        zx_sent *t = &c->sent[k];
        *t = (zx_sent){.position = gather ? 1 : 2, .timed = true, .issued = zx_seconds()};
        c->ok = gather ? zx_comm_shm.gather(c->l->comm, G, &c->l->t.launch[0], t)
                       : zx_comm_shm.reduce(c->l->comm, R, &c->l->t.launch[1], k > 0, t);
        c->back[k] = zx_seconds();
    }
    return NULL;
}

// Both streams at once, each with a thread of its own.
static bool send_both(stream_call *a, stream_call *b)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, send_all, b) != 0) return false;
    send_all(a);
    pthread_join(thread, NULL);
    return a->ok && b->ok;
}

// The figures of two streams, as the other ranks have them too.
typedef struct agreed {
    double issued[2][MOST_TIMES], from[2][MOST_TIMES];
} agreed;

static int never_faster(zx_world *w, void *arg)
{
    (void)arg;
    rank_link *l = calloc(1, sizeof *l);
    zx_err err = {0};
    EXPECT(open_link(l, w, 20e6, 0.5e-3) == ZX_OK); // 1 ms of bytes where two share
    stream_call c[2] = {{.l = l, .s = G, .n = 6}, {.l = l, .s = R, .n = 4}};
    EXPECT(send_both(&c[0], &c[1]));
    agreed mine = {0}, all[MOST_RANKS];
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < c[s].n; k++) {
            const zx_sent *t = &c[s].sent[k];
            mine.issued[s][k] = t->issued;
            mine.from[s][k] = t->from;
            EXPECT(t->until >= t->from + l->seconds * (1 - 1e-12) && c[s].back[k] >= t->until);
            EXPECT(k == 0 || t->from >= c[s].sent[k - 1].from + l->seconds * (1 - 1e-12));
        }
    for (int a = 0; a < c[0].n; a++) // one wire
        for (int b = 0; b < c[1].n; b++) {
            const double x = c[0].sent[a].from, y = c[1].sent[b].from;
            EXPECT(fmax(x, y) >= fmin(x, y) + l->seconds * (1 - 1e-12));
        }
    EXPECT(zx_world_exchange(w, &mine, sizeof mine, all, &err) == ZX_OK);
    for (uint32_t r = 0; r < zx_world_size(w); r++) {
        EXPECT(memcmp(all[r].from, mine.from, sizeof mine.from) == 0); // the same everywhere
        for (int s = 0; s < 2; s++)
            for (int k = 0; k < c[s].n; k++) EXPECT(mine.from[s][k] >= all[r].issued[s][k]);
    }
    zx_comm_shm.close(l->comm);
    free(l);
    return 0;
}

static void never_faster_than_the_rule(void **state)
{
    (void)state;
    run_threads(2, never_faster, NULL);
    run_threads(3, never_faster, NULL);
    run_processes(2, never_faster, NULL);
}

// Rank 0 issues both at once; the others come to the gather only when their reduces are over.
static int orders_differ(zx_world *w, void *arg)
{
    (void)arg;
    rank_link *l = calloc(1, sizeof *l);
    EXPECT(open_link(l, w, 200e6, 0.2e-3) == ZX_OK);
    stream_call g = {.l = l, .s = G, .n = 3}, r = {.l = l, .s = R, .n = 3};
    if (zx_world_rank(w) == 0) {
        EXPECT(send_both(&g, &r));
    } else {
        send_all(&r);
        send_all(&g);
        EXPECT(g.ok && r.ok);
    }
    for (int k = 0; k < 3; k++) EXPECT(g.sent[0].from >= r.sent[k].from + l->seconds * 0.999);
    zx_comm_shm.close(l->comm);
    free(l);
    return 0;
}

static void ranks_come_in_different_orders(void **state)
{
    (void)state;
    run_threads(2, orders_differ, NULL);
    run_threads(3, orders_differ, NULL);
}

// A rank that gives up ends the others' waits, also those for a slow link.
static int one_gives_up(zx_world *w, void *arg)
{
    (void)arg;
    rank_link *l = calloc(1, sizeof *l);
    EXPECT(open_link(l, w, 0, 3600) == ZX_OK);
    stream_call g = {.l = l, .s = G, .n = 1};
    if (zx_world_rank(w) == 1) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, send_all, &g) == 0);
        EXPECT(zx_sleep_until(zx_seconds() + 0.05, w));
        zx_world_abort(w);
        pthread_join(thread, NULL);
    } else {
        send_all(&g);
    }
    EXPECT(!g.ok);
    zx_comm_shm.close(l->comm);
    free(l);
    return 0;
}

static void a_wait_for_the_link_ends(void **state)
{
    (void)state;
    run_threads(2, one_gives_up, NULL);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rule_cases) + 4];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rule_cases); i++)
        tests[n++] = zx_case(rule_cases[i].name, rule, &rule_cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_stream_comes_again);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(never_faster_than_the_rule);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(ranks_come_in_different_orders);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_wait_for_the_link_ends);
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}

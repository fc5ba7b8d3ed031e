// test_mutations.c - good plans are spoilt in every way of mutate.h; the checker has to flag each,
// or the plan that it lets through trains to the same bits all the same, with freed bytes poisoned.
//
// 500 mutations; ZX_MUTATIONS=50000 (make check-long) in the environment for more, and
// ZX_MUTATION_SEED=N for the one of a seed that was told.
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include "graph/import.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"
#include "sched/policy.h"
#include "tests/runtime/small.h"
#include "tests/sched/mutate.h"

#define STEPS 2
#define MICROS 2         // of the policies' plans
#define MOST_VALUES 6000 // parameters and buffers

// ---- plans to spoil -----------------------------------------------------------------------------

static const struct base {
    const char *name;
    run_options o;
    bool flatten;
    edit_flat flat;
} bases[] = {
    {"1 rank", {0}, false, {0}},
    {"1 rank, 3 micro-batches, stage 0", {.micros = 3, .stage = STAGE_0}, false, {0}},
    {"2 ranks", {.ranks = 2, .micros = 2, .graph = {.buffer = true}}, false, {0}},
    {"2 ranks, least memory", {.ranks = 2, .micros = 3, .least = true}, false, {0}},
    {"2 ranks, stage 0", {.ranks = 2, .micros = 2, .stage = STAGE_0}, false, {0}},
    {"3 ranks, stage 1", {.ranks = 3, .stage = STAGE_1, .graph = {.dropout = 0.3}}, false, {0}},
    {"2 ranks, stage 2", {.ranks = 2, .micros = 2, .stage = STAGE_2}, false, {0}},
    {"3 ranks, least memory",
     {.ranks = 3, .micros = 2, .least = true, .graph = {.buffer = true, .dropout = 0.3}},
     false,
     {0}},
    {"3 ranks, no overlap", {.ranks = 3, .no_overlap = true}, false, {0}},
    {"2 ranks, flat", {.ranks = 2, .micros = 2, .least = true}, true, {0}},
    {"2 ranks, flat, bucket, one queue",
     {.ranks = 2, .micros = 3, .graph = {.buffer = true}},
     true,
     {.bucket = true, .one_queue = true}},
    {"3 ranks, stage 1, flat, bucket",
     {.ranks = 3, .micros = 2, .stage = STAGE_1},
     true,
     {.bucket = true}},
    {"2 ranks, stage 0, flat, one queue",
     {.ranks = 2, .stage = STAGE_0},
     true,
     {.one_queue = true}},
};

#define N_BASES (ZX_COUNT(bases) + ZX_POLICY_COUNT)

typedef struct outcome { // of training by a plan, on rank 0
    zx_status status[STEPS];
    double loss[STEPS], norm[STEPS];
    bool applied[STEPS];
    uint32_t n;
    float value[MOST_VALUES];
    zx_err err;
} outcome;

typedef struct spoilt { // a plan to spoil
    const char *name;   // NULL: there is none
    zx_arena mem;
    zx_onnx_file file; // of a policy's: its weights lie there
    zx_graph train;
    run_options o; // of a base
    uint32_t ranks, micros;
    zx_feed feed;
    edit good;
    outcome want;
} spoilt;

// ---- executing ----------------------------------------------------------------------------------

typedef struct shot {
    const spoilt *b;
    const zx_plan *p, *tampered; // tampered: rank 1's; NULL: as all others'
    double latency;
    outcome *result; // rank 0's
    zx_status opened[MOST_RANKS];
} shot;

static int read_all(zx_session *s, const zx_graph *g, zx_read_kind kind, outcome *to)
{
    for (uint32_t i = 0; i < (kind == ZX_READ_PARAM ? g->n_params : g->n_buffers); i++) {
        const uint32_t v = kind == ZX_READ_PARAM ? g->params[i].value : g->buffers[i].value;
        const int64_t n = zx_shape_count(&g->values[v].type.shape);
        EXPECT(g->values[v].type.dtype == ZX_F32 && to->n + n <= MOST_VALUES);
        EXPECT(zx_session_read(s, kind, i, 0, n, to->value + to->n, &to->err) == ZX_OK);
        to->n += (uint32_t)n;
    }
    return 0;
}

static int shot_rank(zx_world *w, void *arg)
{
    shot *k = arg;
    const spoilt *b = k->b;
    outcome *mine = calloc(1, sizeof *mine);
    zx_session *s = NULL;
    const zx_session_options so = {.world = w,
                                   .threads = 1,
                                   .seed = 11,
                                   .optim = small_adamw,
                                   .feed = b->feed,
                                   .latency_seconds = k->latency,
                                   .poison = true};
    const uint32_t rank = zx_world_rank(w);
    const zx_plan *p = rank == 1 && k->tampered != NULL ? k->tampered : k->p;
    int bad = 0;
    k->opened[rank] = zx_session_open(&b->train, p, &so, &s, &mine->err);
    for (uint32_t i = 0; k->opened[rank] == ZX_OK && i < STEPS; i++) {
        zx_step_report r;
        mine->status[i] =
            zx_session_step(s, i, (uint64_t)i * b->ranks * b->micros, 0.01, &r, &mine->err);
        mine->loss[i] = r.loss;
        mine->norm[i] = r.grad_norm;
        mine->applied[i] = r.applied;
    }
    if (k->opened[rank] == ZX_OK)
        bad = read_all(s, &b->train, ZX_READ_PARAM, mine) ||
              read_all(s, &b->train, ZX_READ_BUFFER, mine);
    if (rank == 0) *k->result = *mine;
    zx_session_close(s);
    free(mine);
    return bad;
}

// False: a rank wouldn't open it.
static bool execute(const spoilt *b, const zx_plan *p, double latency, outcome *out)
{
    shot k = {.b = b, .p = p, .latency = latency, .result = out};
    run_threads(b->ranks, shot_rank, &k);
    return k.opened[0] == ZX_OK;
}

static bool same_result(const outcome *a, const outcome *b)
{
    for (uint32_t k = 0; k < STEPS; k++)
        if (a->status[k] != ZX_OK || b->status[k] != ZX_OK || !a->applied[k] || !b->applied[k])
            return false;
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0 && a->n == b->n &&
           memcmp(a->value, b->value, a->n * sizeof(float)) == 0;
}

// ---- the good plans -----------------------------------------------------------------------------

// The plan as it is, or through flat slots, gives what the plan gave.
static void start_base(spoilt *b, const zx_plan *p, const edit_flat *flat)
{
    static outcome got;
    zx_err err = {0};
    edit_start(&b->good, &b->train, p, &b->mem);
    assert_zx_ok(zx_plan_check(&b->train, p, &err), &err);
    assert_true(execute(b, p, 0, &b->want));
    if (flat == NULL) return;
    edit_flatten(&b->good, flat);
    assert_zx_ok(zx_plan_check(&b->train, &b->good.p, &err), &err);
    if (!execute(b, &b->good.p, 0, &got)) fail_msg("%s: %s", b->name, got.err.cause[0]);
    if (!same_result(&b->want, &got)) fail_msg("%s: not the same bits", b->name);
}

static void make_base(const struct base *from, spoilt *b)
{
    zx_graph forward;
    zx_plan plan;
    zx_err err = {0};
    b->o = filled(&from->o);
    b->name = from->name;
    b->ranks = b->o.ranks;
    b->micros = b->o.micros;
    b->feed = (zx_feed){small_fill, &b->o};
    build_small(&b->mem, &b->o.graph, &forward);
    assert_zx_ok(zx_autodiff(&forward, 1.0 / b->o.of, &b->mem, &b->train, &err), &err);
    assert_zx_ok(small_plan(&b->train, &b->o, &b->mem, &plan, &err), &err);
    start_base(b, &plan, from->flatten ? &from->flat : NULL);
}

static void fill_words(const void *self, uint32_t input, uint64_t micro, void *to)
{
    const zx_graph *g = self;
    int64_t *x = to;
    const int64_t n = zx_shape_count(&g->values[g->inputs[input]].type.shape);
    for (int64_t i = 0; i < n; i++) x[i] = ((int64_t)micro * 7 + i * i + input) % 40;
}

// Of a policy, for a model whose file says which modules it has; within little memory every other
// one. Policies that are simulated only leave no plan.
static void make_policy(zx_policy_id id, spoilt *b)
{
    const zx_import_options io = {.eval = &zx_cpu_eval};
    const zx_hooks_options ho = {0};
    zx_notes notes = {0};
    zx_graph forward, both;
    zx_hooks hooks;
    zx_policy_result r;
    zx_err err = {0};
    if (!zx_policies[id].runs) return;
    b->name = zx_policy_name(id, &b->mem);
    b->ranks = 2 + id % 2;
    b->micros = MICROS;
    assert_zx_ok(zx_onnx_open(&b->file, ZX_TEST_DATA "/hooks/plain.onnx", &b->mem, &err), &err);
    assert_zx_ok(zx_import(&b->file, &io, &b->mem, &forward, &notes, &err), &err);
    assert_zx_ok(zx_autodiff(&forward, 1.0 / (b->ranks * MICROS), &b->mem, &both, &err), &err);
    zx_simplify(&both, &b->mem, &b->train);
    assert_zx_ok(zx_hooks_make(&forward, &ho, &b->mem, &hooks, &notes, &err), &err);
    uint64_t *work = ZX_NEW(&b->mem, uint64_t, b->train.n_nodes + 1);
    assert_zx_ok(zx_session_work_bytes(&b->train, 1, work, &err), &err);
    const bool tight = id != ZX_POLICY_ZEROX && id / 2 % 2 == 1;
    const zx_plan_options o = {.ranks = b->ranks,
                               .micro_batches = MICROS,
                               .optimizer_states = 2,
                               .work_bytes = work,
                               .machine = zx_machine_host(b->ranks, 1),
                               .budget = tight ? 1 : UINT64_MAX};
    const zx_policy_input in = {.train = &b->train,
                                .options = &o,
                                .hooks = &hooks,
                                .limits = {600, 1500, 1200, 32, INT64_MAX, 1000, MICROS, false}};
    assert_zx_ok(zx_policy_plan(id, &in, &b->mem, &r, &err), &err);
    b->feed = (zx_feed){fill_words, &b->train};
    start_base(b, &r.plan, NULL);
}

// ---- spoiling -----------------------------------------------------------------------------------

typedef struct count {
    uint32_t flagged, harmless, refused; // refused: when opened (scratch that is too short)
} count;

static char now[256]; // what is being done, for the handler

static void gave_up(int signal)
{
    static const char hang[] = "hangs: ", crash[] = "crashes: ";
    const char *what = signal == SIGALRM ? hang : crash;
    if (write(2, what, strlen(what)) < 0 || write(2, now, strlen(now)) < 0) _exit(3);
    _exit(2);
}

static bool unchanged(const edit *a, const edit *b)
{
    return zx_plan_hash(&a->p) == zx_plan_hash(&b->p);
}

static void spoil(const spoilt *b, uint32_t kind, uint64_t seed, count *n)
{
    static outcome got;
    zx_arena mem = {0};
    zx_err err = {0};
    edit e;
    rng r = {seed * UINT64_C(0x9e3779b97f4a7c15) + 1};
    edit_start(&e, &b->train, &b->good.p, &mem);
    if (!mutations[kind].make(&e, &r) || unchanged(&e, &b->good)) goto done;
    if (draw(&r, 8) == 0) // now and then a second one, which may hide the first
        mutations[draw(&r, ZX_COUNT(mutations))].make(&e, &r);
    snprintf(now, sizeof now, "%s, of '%s', seed %llu\n", mutations[kind].name, b->name,
             (unsigned long long)seed);
    if (zx_plan_check(&b->train, &e.p, &err) != ZX_OK) {
        n->flagged++;
        goto done;
    }
    alarm(HANG_SECONDS);
    // Once as it comes, once with transfers that are late.
    for (int k = 0; k < 2; k++) {
        if (!execute(b, &e.p, k == 0 ? 0 : 2e-4, &got)) {
            n->refused++;
            break;
        }
        if (!same_result(&b->want, &got)) fail_msg("let through, but not the same bits: %s", now);
        n->harmless += k == 1;
    }
    alarm(0);
done:
    zx_arena_free(&mem);
}

static uint32_t total(const count *n)
{
    return n->flagged + n->harmless + n->refused;
}

static void add(count *to, const count *n)
{
    to->flagged += n->flagged;
    to->harmless += n->harmless;
    to->refused += n->refused;
}

// Kinds and plans in turn, so that every kind meets every plan.
static void test_mutations(void **state ZX_UNUSED)
{
    static spoilt made[N_BASES];
    const char *asked = getenv("ZX_MUTATIONS"), *only = getenv("ZX_MUTATION_SEED");
    const uint64_t due = asked != NULL ? strtoull(asked, NULL, 10) : 500;
    static count by_kind[ZX_COUNT(mutations)];
    count all = {0};
    struct sigaction on = {.sa_handler = gave_up};
    sigaction(SIGALRM, &on, NULL);
    for (uint32_t i = 0; i < N_BASES; i++)
        if (i < ZX_COUNT(bases))
            make_base(&bases[i], &made[i]);
        else
            make_policy((zx_policy_id)(i - ZX_COUNT(bases)), &made[i]);
    for (uint64_t seed = only ? strtoull(only, NULL, 10) : 0; total(&all) < due; seed++) {
        const uint32_t kind = (uint32_t)(seed % ZX_COUNT(mutations));
        const uint32_t base = (uint32_t)((kind + seed / ZX_COUNT(mutations)) % N_BASES);
        count n = {0};
        if (made[base].name != NULL) spoil(&made[base], kind, seed, &n);
        add(&by_kind[kind], &n);
        add(&all, &n);
        if (only) break;
    }
    uint32_t rules = 0;
    print_message("%-40s %8s %8s %8s\n", "mutations", "flagged", "harmless", "refused");
    for (size_t k = 0; k < ZX_COUNT(mutations); k++) {
        const count *n = &by_kind[k];
        if (n->flagged > 0) rules |= mutations[k].rules;
        print_message("%-40s %8u %8u %8u\n", mutations[k].name, n->flagged, n->harmless,
                      n->refused);
    }
    print_message("%-40s %8u %8u %8u\n", "all", all.flagged, all.harmless, all.refused);
    for (size_t i = 0; i < N_BASES; i++) {
        zx_onnx_close(&made[i].file);
        zx_arena_free(&made[i].mem);
    }
    if (only) return;
    for (uint32_t rule = 1; rule <= 10; rule++)
        if ((rules & RULE(rule)) == 0) fail_msg("nothing was flagged that breaks rule %u", rule);
}

// ---- another plan on rank 1 ---------------------------------------------------------------------

// Each is a good plan by itself; that it isn't rank 0's is found before the first collective.
static void another_order(edit *e)
{
    uint32_t i = 0;
    while (i < e->p.n_launches && e->launches[i].n_members < 2) i++;
    assert_true(i < e->p.n_launches);
    zx_member *m = &e->members[e->launches[i].member];
    const zx_member first = m[0];
    m[0] = m[1];
    m[1] = first;
    m[0].at = 0;
    m[1].at = (uint64_t)e->units[m[0].unit].shard;
}
static void one_hook_more(edit *e)
{
    edit_insert(e, 0, (zx_insn){ZX_I_HOOK, ZX_S_COMPUTE, 0, ZX_NONE, 1, ZX_NONE, ZX_NONE});
}
static void one_wait_more(edit *e)
{
    edit_insert(e, e->p.n_insns,
                (zx_insn){ZX_I_WAIT, ZX_S_COMPUTE, 0, ZX_NONE, 0, ZX_NONE, ZX_NONE});
}
static void another_budget(edit *e)
{
    e->p.budget = e->p.arena_bytes;
}

static const struct tamper_case {
    const char *name;
    void (*tamper)(edit *e);
} tampers[] = {
    {"rank 1 has another order in a launch", another_order},
    {"rank 1 has one hook more", one_hook_more},
    {"rank 1 has one wait more", one_wait_more},
    {"rank 1 has another budget", another_budget},
};

static void test_tampered(void **state)
{
    const struct tamper_case *c = *state;
    static const struct base from = {"3 ranks", {.ranks = 3, .stage = STAGE_2}, false, {0}};
    static spoilt b;
    static outcome got;
    zx_err err = {0};
    edit e;
    memset(&b, 0, sizeof b);
    make_base(&from, &b);
    edit_start(&e, &b.train, &b.good.p, &b.mem);
    c->tamper(&e);
    assert_zx_ok(zx_plan_check(&b.train, &e.p, &err), &err);
    shot k = {.b = &b, .p = &b.good.p, .tampered = &e.p, .result = &got};
    memset(&got, 0, sizeof got);
    run_threads(3, shot_rank, &k);
    for (uint32_t r = 0; r < 3; r++) assert_int_equal(k.opened[r], ZX_E_COMM);
    if (strncmp(got.err.cause[0], "the plan differs between ranks: ", 32) != 0 ||
        strstr(got.err.cause[0], "on rank 1") == NULL)
        fail_msg("%s", got.err.cause[0]);
    zx_arena_free(&b.mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(tampers) + 1];
    for (size_t i = 0; i < ZX_COUNT(tampers); i++)
        tests[i] = zx_case(tampers[i].name, test_tampered, &tampers[i]);
    tests[ZX_COUNT(tampers)] = (struct CMUnitTest)cmocka_unit_test(test_mutations);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

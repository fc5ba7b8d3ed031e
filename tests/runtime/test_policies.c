// test_policies.c - every policy's plan, executed under poison: the same losses, norms (of what is
// replicated, persists or is sharded) and weights, bit for bit, on the same number of ranks.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "graph/autodiff.h"
#include "graph/import.h"
#include "graph/precision.h"
#include "proto/onnx_file.h"
#include "runtime/eval.h"
#include "runtime/session.h"
#include "sched/policy.h"
#include "tests/runtime/ranks.h"

enum { MICROS = 2, STEPS = 3, MOST_WEIGHTS = 5000, WORDS = 40 };

typedef struct outcome {
    double loss[STEPS], norm[STEPS];
    uint32_t n;
    float weight[MOST_WEIGHTS];
} outcome;

typedef struct job { // the same for all ranks; only read by them, but for rank 0's outcome
    const zx_graph *g;
    const zx_plan *plan;
    outcome *out;
} job;

static const zx_optim adam = {.kind = ZX_OPTIM_ADAM,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .eps = 1e-8,
                              .weight_decay = 0.01,
                              .decoupled = true,
                              .bias_correction = true};

typedef struct row {
    const char *name;
    uint32_t ranks;
    zx_precision precision;
    uint32_t sums; // bytes of an element that gradients are added up in; 0: as they are
} row;
static row rows[] = {
    {"1 rank", 1, ZX_PREC_F32, 0},
    {"2 ranks", 2, ZX_PREC_F32, 0},
    {"3 ranks", 3, ZX_PREC_F32, 0},
    {"2 ranks in bf16", 2, ZX_PREC_BF16, 4},
    {"3 ranks in fp16, sums too", 3, ZX_PREC_F16, 0},
};

typedef struct fixture { // a model whose file says which modules it has
    zx_arena mem;
    zx_onnx_file file;
    zx_graph train;
    zx_hooks hooks;
    zx_err err;
} fixture;

static void open_model(fixture *f, uint32_t seeds, zx_precision precision)
{
    const zx_import_options io = {.eval = &zx_cpu_eval};
    const zx_hooks_options ho = {0};
    zx_notes notes = {0};
    zx_graph forward, both, single;
    *f = (fixture){0};
    const char *path = ZX_TEST_DATA "/hooks/plain.onnx";
    assert_zx_ok(zx_onnx_open(&f->file, path, &f->mem, &f->err), &f->err);
    assert_zx_ok(zx_import(&f->file, &io, &f->mem, &forward, &notes, &f->err), &f->err);
    assert_zx_ok(zx_autodiff(&forward, 1.0 / seeds, &f->mem, &both, &f->err), &f->err);
    zx_simplify(&both, &f->mem, &single);
    zx_precision_apply(&single, precision, &f->mem, &f->train);
    assert_zx_ok(zx_hooks_make(&forward, &ho, &f->mem, &f->hooks, &notes, &f->err), &f->err);
}

static void close_model(fixture *f)
{
    zx_onnx_close(&f->file);
    zx_arena_free(&f->mem);
}

static void make_plan(fixture *f, zx_policy_id id, const row *r, uint64_t budget, zx_arena *mem,
                      zx_plan *out)
{
    uint64_t *work = ZX_NEW(mem, uint64_t, f->train.n_nodes + 1);
    assert_zx_ok(zx_session_work_bytes(&f->train, 1, work, &f->err), &f->err);
    const zx_plan_options o = {.ranks = r->ranks,
                               .accumulate_bytes = r->sums,
                               .micro_batches = MICROS,
                               .optimizer_states = zx_optim_states(&adam),
                               .work_bytes = work,
                               .machine = zx_machine_host(r->ranks, 1),
                               .budget = budget};
    const zx_policy_input in = {.train = &f->train,
                                .options = &o,
                                .hooks = &f->hooks,
                                .limits = {600, 1500, 1200, 32, INT64_MAX, 1000, MICROS, false}};
    zx_policy_result result;
    assert_zx_ok(zx_policy_plan(id, &in, mem, &result, &f->err), &f->err);
    *out = result.plan;
}

static void feed(const void *self, uint32_t input, uint64_t micro, void *to)
{
    const zx_graph *g = self;
    const zx_type *type = &g->values[g->inputs[input]].type;
    int64_t *x = to;
    for (int64_t i = 0; i < zx_shape_count(&type->shape); i++)
        x[i] = ((int64_t)micro * 7 + i * i + input) % WORDS;
}

static int run_rank(zx_world *w, void *arg)
{
    const job *j = arg;
    const zx_graph *g = j->g;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_session *s = NULL;
    outcome *mine = ZX_NEW(&mem, outcome, 1);
    const zx_session_options so = {
        .world = w, .threads = 1, .optim = adam, .clip = 0.5, .feed = {feed, g}, .poison = true};
    EXPECT(zx_session_open(g, j->plan, &so, &s, &err) == ZX_OK);
    for (uint32_t k = 0; k < STEPS; k++) {
        const uint64_t micro = (uint64_t)k * MICROS * j->plan->ranks;
        zx_step_report report;
        EXPECT(zx_session_step(s, k, micro, 0.01, &report, &err) == ZX_OK);
        EXPECT(report.applied);
        mine->loss[k] = report.loss;
        mine->norm[k] = report.grad_norm;
    }
    for (uint32_t u = 0; u < g->n_params; u++) {
        const int64_t n = zx_shape_count(&g->values[g->params[u].value].type.shape);
        EXPECT(mine->n + n <= MOST_WEIGHTS);
        EXPECT(zx_session_read(s, ZX_READ_PARAM, u, 0, n, mine->weight + mine->n, &err) == ZX_OK);
        mine->n += (uint32_t)n;
    }
    if (zx_world_rank(w) == 0) *j->out = *mine;
    zx_session_close(s);
    zx_arena_free(&mem);
    return 0;
}

static void test_same_bits(void **state)
{
    const row *r = *state;
    const uint32_t ranks = r->ranks;
    fixture f;
    open_model(&f, ranks * MICROS, r->precision);
    outcome *first = ZX_NEW(&f.mem, outcome, 1), *out = ZX_NEW(&f.mem, outcome, 1);
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++)
        for (uint32_t tight = 0; tight < 2; tight++) {
            if (!zx_policies[i].runs || (tight && i == ZX_POLICY_ZEROX)) continue; // that refuses
            zx_arena mem = {0};
            zx_plan plan;
            const char *name = zx_policy_name((zx_policy_id)i, &f.mem);
            make_plan(&f, (zx_policy_id)i, r, tight ? 1 : UINT64_MAX, &mem, &plan);
            job j = {&f.train, &plan, out};
            memset(out, 0, sizeof *out);
            run_threads(ranks, run_rank, &j);
            if (first->n == 0) *first = *out;
            for (uint32_t k = 0; k < STEPS; k++)
                if (memcmp(&out->loss[k], &first->loss[k], sizeof(double)) != 0 ||
                    memcmp(&out->norm[k], &first->norm[k], sizeof(double)) != 0)
                    fail_msg("%s: step %u has loss %.17g, not %.17g, norm %.17g, not %.17g", name,
                             k, out->loss[k], first->loss[k], out->norm[k], first->norm[k]);
            assert_int_equal(out->n, first->n);
            if (memcmp(out->weight, first->weight, out->n * sizeof(float)) != 0)
                fail_msg("%s: other weights", name);
            zx_arena_free(&mem);
        }
    assert_true(first->n == 4624 && first->loss[STEPS - 1] != first->loss[0]);
    assert_true(first->norm[0] > 0.5); // clipped
    close_model(&f);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_same_bits, &rows[i]);
    return _cmocka_run_group_tests("policies", tests, ZX_COUNT(rows), NULL, NULL);
}

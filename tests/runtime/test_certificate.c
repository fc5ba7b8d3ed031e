// test_certificate.c - parts of a step by name, and a plan under other times.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/certificate.h"
#include "tests/sched/graphs.h"

#define MICRO 2

typedef struct fixture {
    zx_arena mem;
    zx_graph g;
    zx_plan_options o;
    zx_plan p;
} fixture;

static void start(fixture *f)
{
    zx_err err = {0};
    *f = (fixture){0};
    make_mlp(&f->mem, 12, 32, 64, &f->g);
    f->o = (zx_plan_options){.ranks = 2,
                             .stage = 3,
                             .micro_batches = MICRO,
                             .optimizer_states = 2,
                             .machine = zx_machine_host(2, 1),
                             .budget = UINT64_MAX};
    zx_machine_link(&f->o.machine, 1e9, 1e-4);
    assert_zx_ok(zx_plan_make(&f->g, &f->o, &f->mem, &f->p, &err), &err);
}

static const char *name_at(const fixture *f, uint32_t step)
{
    return f->g.nodes[f->p.steps[step].node].name;
}

// The first step whose node has a name; ends the test where there is none.
static uint32_t step_of(const fixture *f, const char *name)
{
    for (uint32_t i = 0; i < f->p.n_steps; i++)
        if (strcmp(name_at(f, i), name) == 0) return i;
    fail_msg("no step '%s'", name);
    return 0;
}

static const struct row {
    const char *name;
    const char *from, *to; // nodes; to: NULL: the step at `from` alone
    const char *want;
} rows[] = {
    {"one layer", "layers.3/product", "layers.3/gelu", "layers 3 forward"},
    {"one step of it", "layers.3/product", NULL, "layers 3 forward"},
    {"a range, by number", "layers.3/product", "layers.10/gelu", "layers 3-10 forward"},
    {"up to what is no layer", "layers.9/gelu", "loss", "layers 9-11 forward"},
    {"what is no layer alone", "loss", NULL, "'loss'"},
};

static void test_row(void **state)
{
    const struct row *k = *state;
    fixture f;
    start(&f);
    const uint32_t from = step_of(&f, k->from), to = k->to != NULL ? step_of(&f, k->to) : from;
    assert_string_equal(zx_steps_text(&f.g, &f.p, from, to, &f.mem), k->want);
    zx_arena_free(&f.mem);
}

static void all_of_it_has_no_name(void **state ZX_UNUSED)
{
    fixture f;
    start(&f);
    const uint32_t n = f.p.n_steps / MICRO;
    assert_null(zx_steps_text(&f.g, &f.p, 0, n - 1, &f.mem));
    assert_null(zx_steps_text(&f.g, &f.p, 3, f.p.n_steps, &f.mem));
    assert_non_null(zx_steps_text(&f.g, &f.p, 0, n - 2, &f.mem));
    zx_arena_free(&f.mem);
}

// Forward and backward through the last layers: their numbers go up and down again.
static void around_the_loss(void **state ZX_UNUSED)
{
    fixture f;
    start(&f);
    const uint32_t from = step_of(&f, "layers.8/product");
    uint32_t to = ZX_NONE;
    for (uint32_t i = from; i < f.p.n_steps / MICRO; i++)
        if (strncmp(name_at(&f, i), "layers.8/", 9) == 0) to = i;
    assert_true(to != ZX_NONE && f.g.nodes[f.p.steps[to].node].phase == ZX_BACKWARD);
    assert_string_equal(zx_steps_text(&f.g, &f.p, from, to, &f.mem), "layers 8-11");
    zx_arena_free(&f.mem);
}

// Where planning again finds nothing within the budget, the plan at hand is one without the limit.
static void a_limit_that_costs_nothing(void **state ZX_UNUSED)
{
    fixture f;
    zx_err err = {0};
    start(&f);
    zx_limit limits[] = {{.what = "tight", .without = f.o, .seconds = 1, .bytes = 1},
                         {.what = "no plan", .without = f.o}};
    limits[0].without.budget = 1;
    limits[1].without.stage = 4;
    assert_zx_ok(zx_limits_cost(&f.g, &f.p, limits, 1, &err), &err);
    assert_true(limits[0].seconds == 0 && limits[0].bytes == 0);
    assert_int_equal(zx_limits_cost(&f.g, &f.p, limits, 2, &err), ZX_E_USAGE);
    assert_int_equal(err.n_causes, 1);
    zx_arena_free(&f.mem);
}

// With times that were measured it is they that are drawn anew.
static void measured_times(void **state ZX_UNUSED)
{
    fixture f;
    zx_robust model, measured;
    start(&f);
    double *node = ZX_NEW(&f.mem, double, f.g.n_nodes),
           *update = ZX_NEW(&f.mem, double, f.p.n_units);
    for (uint32_t i = 0; i < f.g.n_nodes; i++) node[i] = 1;
    for (uint32_t u = 0; u < f.p.n_units; u++) update[u] = 2;
    const zx_times times = {.node = node, .update = update};
    zx_robust_make(&f.g, &f.o.machine, NULL, &f.p, &model);
    zx_robust_make(&f.g, &f.o.machine, &times, &f.p, &measured);
    const double alone = f.p.n_steps + 2.0 * f.p.n_units; // seconds, beside which nothing counts
    assert_true(model.known && model.slow_rank < 1);
    assert_true(measured.slow_rank > 1.1 * alone && measured.slow_rank < 1.101 * alone);
    assert_true(measured.jitter > alone && measured.jitter < 1.05 * alone);
    assert_true(node[0] == 1 && update[0] == 2);
    zx_arena_free(&f.mem);
}

// Of equal seconds and bytes nothing is said that isn't so.
static void words(void **state ZX_UNUSED)
{
    zx_text out = {0};
    const zx_limit limits[] = {{.what = "a", .seconds = 0.0031, .bytes = 12 << 20},
                               {.what = "b", .seconds = 1e-6, .bytes = -(1 << 20)},
                               {.what = "c", .seconds = -0.002, .bytes = 0}};
    const zx_certificate c = {.machine = "h100x32",
                              .budgeted = true,
                              .seconds = 0.812,
                              .bound = {.seconds = 0.8072},
                              .binds = "wire",
                              .where = "layers 3-9",
                              .more_known = true,
                              .more_saves = 0.0041,
                              .lp = 0.8101,
                              .n_limits = 3,
                              .limits = limits,
                              .robust = {true, 0.834, 0.901}};
    zx_certificate_text(&c, &out);
    assert_string_equal(
        out.at,
        "step 812 ms predicted; at most 0.6 % above the lower bound for this machine model "
        "(h100x32), budget, op order and recomputation; binding: wire, layers 3-9; 64 MiB more "
        "would save 4.10 ms by the bound\n"
        "certified: at most 0.3 % above the nearer bound, 810 ms\n"
        "a costs 3.10 ms a step and saves 12.0 MiB\n"
        "b costs no time and takes 1.00 MiB\n"
        "c costs no time (without it a plan came out 2.00 ms slower)\n"
        "robust: p95 834 ms under 10 % op jitter, 901 ms with one rank 10 % slower\n");
    zx_text_free(&out);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 5];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(all_of_it_has_no_name);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(around_the_loss);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(measured_times);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_limit_that_costs_nothing);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(words);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

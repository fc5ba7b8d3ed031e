// test_diff.c - two plans side by side.
// SPDX-License-Identifier: Apache-2.0
#include "sched/diff.h"
#include "tests/sched/edit.h"
#include "tests/sched/graphs.h"

typedef struct fixture {
    zx_arena mem;
    zx_graph g;
    edit a, b;
    const char *units[64];
    zx_text out;
} fixture;

static void start(fixture *f)
{
    zx_plan p;
    zx_err err = {0};
    *f = (fixture){0};
    make_mlp(&f->mem, 3, 4, 16, &f->g);
    const zx_plan_options o = {.ranks = 2,
                               .stage = 3,
                               .micro_batches = 2,
                               .optimizer_states = 2,
                               .machine = zx_machine_host(1, 1),
                               .least = true,
                               .budget = UINT64_MAX};
    assert_zx_ok(zx_plan_make(&f->g, &o, &f->mem, &p, &err), &err);
    edit_start(&f->a, &f->g, &p, &f->mem);
    edit_start(&f->b, &f->g, &p, &f->mem);
    for (uint32_t i = 0; i < p.n_units; i++) f->units[i] = f->g.params[i].name;
}

static bool differ(fixture *f, const char *const *units_b)
{
    const zx_diff_side a = {&f->a.p, "left.plan", f->units}, b = {&f->b.p, "right.plan", units_b};
    f->out.n = 0;
    return zx_plan_diff(&a, &b, &f->out);
}

static uint32_t find(const edit *e, zx_insn_id id)
{
    uint32_t i = 0;
    while (e->insns[i].id != id) i++;
    return i;
}

static void nothing(fixture *f)
{
    (void)f;
}
static void other_policy(fixture *f)
{
    snprintf(f->b.p.policy, sizeof f->b.p.policy, "hooks\n");
}
static void other_seconds(fixture *f)
{
    f->a.p.step_seconds = 0.25;
    f->b.p.step_seconds = 0.125;
}
static void one_gather_less(fixture *f)
{
    edit_drop(&f->b, find(&f->b, ZX_I_GATHER));
}
static void other_address(fixture *f)
{
    f->b.slots[3].offset += 64;
}
static void other_ranks(fixture *f)
{
    f->b.p.ranks = 4;
}
static void shorter(fixture *f)
{
    f->b.p.n_insns--;
}
// The first gather's launch under another number.
static void other_number(fixture *f)
{
    zx_plan *p = &f->b.p;
    zx_launch *launches = ZX_NEW(&f->mem, zx_launch, p->n_launches + 1);
    zx_insn *in = &f->b.insns[find(&f->b, ZX_I_GATHER)];
    memcpy(launches, p->launches, p->n_launches * sizeof *launches);
    launches[p->n_launches] = launches[in->a];
    in->a = p->n_launches++;
    p->launches = launches;
}
static void other_units(fixture *f)
{
    f->b.p.n_units--;
}

static const struct diff_case {
    const char *name;
    void (*change)(fixture *f);
    const char *want[3];
} cases[] = {
    {"equal plans", nothing, {NULL}},
    {"another policy",
     other_policy,
     {"* policy         zerox                     hooks\\x0a\n",
      "the instructions are the same\n"}},
    {"another prediction",
     other_seconds,
     {"* step           250.000 ms                125.000 ms\n"}},
    {"one gather less",
     one_gather_less,
     {"* gathers ", "layers.0.bias\n", "left.plan: gather: gather 'layers.0.weight'"}},
    {"another address", other_address, {"1 slots differ; the first is slot 3: "}},
    {"other ranks", other_ranks, {"* ranks          2                         4\n"}},
    {"one ends earlier", shorter, {"the first instruction that differs is", "right.plan: ends\n"}},
    {"another number",
     other_number,
     {"the first instruction that differs is",
      "(the same in words: slots or launches have other numbers)\n"}},
    {"another model", other_units, {"of two models: 6 and 5 parameters\n"}},
};

static void test_diff(void **state)
{
    const struct diff_case *c = *state;
    fixture f;
    start(&f);
    c->change(&f);
    assert_int_equal(differ(&f, f.units), c->want[0] != NULL);
    for (size_t i = 0; i < 3 && c->want[i] != NULL; i++)
        if (strstr(f.out.at, c->want[i]) == NULL) fail_msg("no '%s' in:\n%s", c->want[i], f.out.at);
    zx_text_free(&f.out);
    zx_arena_free(&f.mem);
}

static void test_names(void **state ZX_UNUSED)
{
    fixture f;
    const char *other[64];
    start(&f);
    memcpy(other, f.units, sizeof other);
    other[2] = "b\x1b[2J";
    f.b.p.stage = 2;
    assert_true(differ(&f, other));
    if (strstr(f.out.at, "parameter 2 is 'layers.1.weight' and 'b\\x1b[2J'") == NULL)
        fail_msg("%s", f.out.at);
    zx_text_free(&f.out);
    zx_arena_free(&f.mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(cases) + 1];
    for (size_t i = 0; i < ZX_COUNT(cases); i++)
        tests[i] = zx_case(cases[i].name, test_diff, &cases[i]);
    tests[ZX_COUNT(cases)] = (struct CMUnitTest)cmocka_unit_test(test_names);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

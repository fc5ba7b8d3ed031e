// test_policy.c - other policies' plans: each is proved on 1 to 3 ranks with 1 to 3 micro-batches;
// collectives and bytes as counted by hand; what each holds at most, within a budget and over it.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/look.h"
#include "sched/policy.h"
#include "tests/sched/random_graph.h"

#define NO_BUDGET UINT64_MAX

static zx_plan_options options(uint32_t ranks, uint32_t micros)
{
    return (zx_plan_options){.ranks = ranks,
                             .stage = 3,
                             .micro_batches = micros,
                             .optimizer_states = 2,
                             .machine = zx_machine_host(1, 1),
                             .budget = NO_BUDGET};
}

static zx_policy_input input(const zx_graph *train, const zx_plan_options *o, int64_t bucket)
{
    return (zx_policy_input){.train = train,
                             .options = o,
                             .hooks_why = "built, not imported",
                             .limits = {.reduce_bucket = bucket}};
}

static void plan(zx_policy_id id, const zx_graph *g, const zx_plan_options *o, int64_t bucket,
                 zx_arena *mem, zx_policy_result *out)
{
    zx_err err = {0};
    const zx_policy_input in = input(g, o, bucket);
    if (zx_policy_plan(id, &in, mem, out, &err) != ZX_OK)
        fail_msg("%s, %u ranks, %u micro-batches: %s", zx_policy_name(id, mem), o->ranks,
                 o->micro_batches, err.cause[0]);
}

static bool asks_hooks(zx_policy_id id)
{
    return strncmp(zx_policies[id].word, "hooks", 5) == 0;
}

// ---- every policy on every graph ----------------------------------------------------------------

enum { MLP, GPT, RANDOM };
#define N_RANDOM 24

static void make_graph(uint32_t which, zx_arena *mem, zx_graph *g)
{
    if (which == MLP)
        make_mlp(mem, 3, 4, 9, g);
    else if (which == GPT)
        make_gpt(mem, 3, 12, 2, 17, 2, 5, g);
    else
        make_random(mem, which, g);
}

static void prove(zx_policy_id id, const zx_graph *g, uint32_t ranks, uint32_t micros,
                  uint64_t budget)
{
    zx_arena mem = {0};
    zx_policy_result r;
    zx_err err = {0};
    zx_plan_options o = options(ranks, micros);
    o.budget = budget;
    plan(id, g, &o, 150, &mem, &r);
    assert_string_equal(r.plan.policy, zx_policy_name(id, &mem));
    assert_int_equal(r.plan.ranks, ranks);
    assert_int_equal(r.plan.stage, zx_policies[id].stage);
    assert_int_equal(r.over, r.plan.arena_bytes > budget);
    assert_true(r.plan.budget >= r.plan.arena_bytes && r.plan.budget >= budget);
    assert_true(r.plan.step_seconds > 0);
    if (zx_policies[id].runs) assert_zx_ok(zx_plan_check(g, &r.plan, &err), &err);
    zx_arena_free(&mem);
}

static void test_proved(void **state)
{
    const zx_policy_row *row = *state;
    const zx_policy_id id = (zx_policy_id)(row - zx_policies);
    for (uint32_t which = 0; which < RANDOM + N_RANDOM; which++) {
        zx_arena mem = {0};
        zx_graph g;
        make_graph(which, &mem, &g);
        for (uint32_t ranks = 1; ranks <= 3; ranks++)
            for (uint32_t micros = 1; micros <= 3; micros++) {
                if (which >= RANDOM && (which + ranks + micros) % 3 != 0) continue;
                prove(id, &g, ranks, micros, NO_BUDGET);
                if (id != ZX_POLICY_ZEROX) prove(id, &g, ranks, micros, 1); // zerox refuses it
            }
        zx_arena_free(&mem);
    }
}

// ---- by hand ------------------------------------------------------------------------------------

// 4 layers of a 16x16 weight and a bias of 16, 272 elements each: 4352 bytes in all, 2 ranks, 2
// micro-batches. An all-gather or reduce-scatter of S bytes receives S/2, an all-reduce S.
#define ALL 4352
static const struct count_row {
    const char *name;
    zx_policy_id id;
    int64_t bucket; // elements
    uint32_t gathers, reduces, allreduces;
    uint64_t wire;
} count_rows[] = {
    {"ddp: one bucket", ZX_POLICY_DDP, 0, 0, 0, 2, 2 * ALL},
    {"ddp once a step", ZX_POLICY_DDP_ONCE, 0, 0, 0, 1, ALL},
    {"zero1: two layers a bucket, parameters gathered after the update", ZX_POLICY_ZERO1, 544, 1, 0,
     4, 2 * ALL + ALL / 2},
    {"zero1: one element short of two layers", ZX_POLICY_ZERO1, 543, 1, 0, 6, 2 * ALL + ALL / 2},
    {"zero1 once a step", ZX_POLICY_ZERO1_ONCE, 544, 1, 0, 2, ALL + ALL / 2},
    {"zero2", ZX_POLICY_ZERO2, 544, 1, 4, 0, 2 * ALL / 2 + ALL / 2},
    {"zero2: each larger than the bucket", ZX_POLICY_ZERO2, 1, 1, 16, 0, 2 * ALL / 2 + ALL / 2},
    {"fsdp: a layer for forward, again for backward", ZX_POLICY_FSDP, 0, 16, 8, 0,
     4 * ALL / 2 + 2 * ALL / 2},
    {"deepcompile: all fits, so all is kept", ZX_POLICY_DEEPCOMPILE, 544, 1, 4, 0,
     ALL / 2 + 2 * ALL / 2},
};

static uint32_t count(const zx_plan *p, zx_insn_id id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) n += p->insns[i].id == id;
    return n;
}

static void test_counts(void **state)
{
    const struct count_row *row = *state;
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result r;
    make_mlp(&mem, 4, 4, 16, &g);
    zx_plan_options o = options(2, 2);
    plan(row->id, &g, &o, row->bucket, &mem, &r);
    assert_int_equal(count(&r.plan, ZX_I_REDUCE), row->reduces);
    assert_int_equal(count(&r.plan, ZX_I_ALLREDUCE), row->allreduces);
    assert_int_equal(count(&r.plan, ZX_I_GATHER), row->gathers);
    assert_int_equal(r.plan.wire_bytes, row->wire);
    assert_false(r.over);
    zx_arena_free(&mem);
}

// DDP's first bucket is closed at 1 MiB, the others at 25 MiB.
static void test_ddp_buckets(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result r;
    make_mlp(&mem, 8, 1, 1400, &g); // 7.48 MiB a weight
    const zx_plan_options o = options(2, 1);
    plan(ZX_POLICY_DDP, &g, &o, 0, &mem, &r);
    // 1; 2 to 5; the rest: biases are of no account.
    assert_int_equal(count(&r.plan, ZX_I_ALLREDUCE), 3);
    zx_arena_free(&mem);
}

// ---- fsdp ---------------------------------------------------------------------------------------

// Bytes of units that are whole or on their way, by step; the flat buffers aren't counted.
static uint64_t *whole_bytes(const zx_graph *g, const zx_plan *p, zx_arena *mem)
{
    zx_look look;
    zx_look_make(g, p, mem, &look);
    uint64_t *bytes = ZX_NEW(mem, uint64_t, p->n_steps + 1);
    for (uint32_t i = 0; i < look.n; i++)
        for (uint32_t s = look.gathers[i].issue; s < look.gathers[i].freed && s < p->n_steps; s++)
            bytes[s] += p->slots[look.gathers[i].slot].bytes;
    return bytes;
}

static uint64_t unit_bytes(const zx_graph *g, const zx_plan *p, const char *glob)
{
    uint64_t bytes = 0;
    for (uint32_t u = 0; u < p->n_units; u++)
        if (zx_text_match(glob, g->params[u].name))
            bytes += zx_unit_room(p, &p->units[u], 1) * p->units[u].param_bytes;
    return bytes;
}

// In the middle of forward and of backward the root is there, the block at work and the next one;
// never more.
static void test_fsdp_peak(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result r;
    make_gpt(&mem, 5, 12, 2, 17, 2, 5, &g);
    const zx_plan_options o = options(2, 2);
    plan(ZX_POLICY_FSDP, &g, &o, 0, &mem, &r);
    const uint64_t block = unit_bytes(&g, &r.plan, "h.1.*"), all = unit_bytes(&g, &r.plan, "*");
    const uint64_t root = all - 5 * block;
    const uint64_t *bytes = whole_bytes(&g, &r.plan, &mem);
    uint64_t most = 0;
    for (uint32_t i = 0; i < r.plan.n_steps; i++) {
        assert_true(bytes[i] >= root);
        if (bytes[i] > most) most = bytes[i];
    }
    assert_int_equal(most, root + 2 * block);
    // Root, and each block twice.
    assert_int_equal(count(&r.plan, ZX_I_GATHER), 2 * (1 + 2 * 5));
    assert_int_equal(count(&r.plan, ZX_I_UNPACK), 2 * (1 + 2 * 5));
    assert_int_equal(count(&r.plan, ZX_I_REDUCE), 2 * (1 + 5));
    assert_true(r.plan.arena_bytes >= r.plan.held_bytes + most);
    zx_arena_free(&mem);
}

// A model without blocks: a group for each module at the top that has parameters.
static void test_fsdp_modules(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g;
    zx_policy_result r;
    zx_builder_start(&b, &mem, "two");
    const zx_type in = f32(2, 4, 16);
    uint32_t x = zx_build_input(&b, "x", &in);
    b.at_name = "fc1/product";
    x = add_linear(&b, "fc1", x, 16, 32);
    b.at_name = "act";
    x = zx_build1(&b, ZX_OP_GELU, (zx_attrs){0}, 1, x);
    b.at_name = "fc2/product";
    x = add_linear(&b, "fc2", x, 32, 16);
    b.at_name = "loss";
    differentiate(&b, mean_of(&b, x), &mem, &g);
    const zx_plan_options o = options(2, 1);
    plan(ZX_POLICY_FSDP, &g, &o, 0, &mem, &r);
    assert_string_equal(r.knobs, "no blocks: one unit a module");
    assert_int_equal(count(&r.plan, ZX_I_GATHER), 4);
    assert_int_equal(count(&r.plan, ZX_I_REDUCE), 2);
    zx_arena_free(&mem);
}

// Tuned: never slower than what it searches among, within the budget if one of them is, else least.
static void test_fsdp_tuned(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result plain, tuned, tight;
    make_gpt(&mem, 6, 64, 2, 17, 2, 8, &g);
    zx_plan_options o = options(2, 2);
    zx_machine_link(&o.machine, 1e9, 1e-4);
    plan(ZX_POLICY_FSDP, &g, &o, 0, &mem, &plain);
    plan(ZX_POLICY_FSDP_TUNED, &g, &o, 0, &mem, &tuned);
    assert_true(tuned.plan.step_seconds < plain.plan.step_seconds);
    assert_true(tuned.plan.arena_bytes > plain.plan.arena_bytes);
    assert_non_null(strstr(tuned.knobs, "blocks a unit"));
    o.budget = plain.plan.arena_bytes;
    plan(ZX_POLICY_FSDP_TUNED, &g, &o, 0, &mem, &tight);
    assert_false(tight.over);
    assert_true(tight.plan.step_seconds <= plain.plan.step_seconds);
    o.budget = 1;
    plan(ZX_POLICY_FSDP_TUNED, &g, &o, 0, &mem, &tight);
    assert_true(tight.over && tight.plan.arena_bytes <= plain.plan.arena_bytes);
    zx_arena_free(&mem);
}

// ---- deepcompile --------------------------------------------------------------------------------

static uint32_t gathers_of(const zx_plan *p, uint32_t unit)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_insns; i++) {
        if (p->insns[i].id != ZX_I_GATHER) continue;
        const zx_launch *l = &p->launches[p->insns[i].a];
        for (uint32_t k = l->member; k < l->member + l->n_members; k++)
            n += p->members[k].unit == unit;
    }
    return n;
}

// Each parameter is gathered once where it is kept, else at most twice a micro-batch; where there
// is no room for more than what is read, all are. The budget is kept if the least fits. (Between
// the ends more memory doesn't always mean fewer gathers: prefetch may take it.)
static void test_deepcompile_budgets(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result r;
    make_gpt(&mem, 6, 64, 2, 17, 2, 8, &g);
    zx_plan_options o = options(2, 3);
    plan(ZX_POLICY_DEEPCOMPILE, &g, &o, 1000, &mem, &r);
    const uint64_t most = r.plan.arena_bytes;
    assert_string_equal(r.knobs, "76 of 76 parameters kept");
    o.budget = 1;
    plan(ZX_POLICY_DEEPCOMPILE, &g, &o, 1000, &mem, &r);
    const uint64_t least = r.plan.arena_bytes;
    assert_true(r.over && least < most);
    assert_string_equal(r.knobs, "0 of 76 parameters kept");
    uint32_t gathers[9], some = 0;
    for (uint64_t i = 0; i <= 8; i++) {
        o.budget = least + (most - least) * i / 2;
        plan(ZX_POLICY_DEEPCOMPILE, &g, &o, 1000, &mem, &r);
        assert_false(r.over);
        uint32_t all = 0, kept = 0;
        for (uint32_t u = 0; u < g.n_params; u++) {
            const uint32_t n = gathers_of(&r.plan, u);
            assert_true(n >= 1 && n <= 2 * o.micro_batches);
            all += n;
            kept += n == 1;
        }
        assert_int_equal(kept, (uint32_t)strtoul(r.knobs, NULL, 10));
        some += kept > 0 && kept < g.n_params;
        gathers[i] = all;
    }
    assert_true(some > 0);
    assert_int_equal(gathers[8], g.n_params);
    assert_true(gathers[0] > 4 * g.n_params); // biases aren't read by backward
    zx_arena_free(&mem);
}

// Prefetch: where memory is short, gathers leave later, and none leaves after its first use.
static void test_deepcompile_prefetch(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result r;
    make_gpt(&mem, 6, 64, 2, 17, 2, 8, &g);
    zx_plan_options o = options(2, 1);
    zx_machine_link(&o.machine, 1e8, 1e-5); // little is gained by fusing
    double ahead[2];
    for (int k = 0; k < 2; k++) {
        zx_look look;
        uint64_t sum = 0;
        if (k == 1) o.budget = 1;
        plan(ZX_POLICY_DEEPCOMPILE, &g, &o, 1000, &mem, &r);
        zx_look_make(&g, &r.plan, &mem, &look);
        for (uint32_t i = 0; i < look.n; i++) {
            assert_true(look.gathers[i].issue <= look.gathers[i].first);
            sum += look.gathers[i].first - look.gathers[i].issue;
        }
        ahead[k] = (double)sum / look.n;
    }
    assert_true(ahead[0] > 10);
    assert_true(ahead[1] == 0); // over already: nothing is taken along
    zx_arena_free(&mem);
}

// ---- limits that exceed the budget --------------------------------------------------------------

static void plan_within(zx_policy_id id, const zx_graph *g, uint64_t budget, bool own_limits,
                        zx_arena *mem, zx_policy_result *out)
{
    zx_err err = {0};
    zx_plan_options o = options(2, 2);
    o.budget = budget;
    zx_policy_input in = input(g, &o, 1000000000);
    in.own_limits = own_limits;
    assert_zx_ok(zx_policy_plan(id, &in, mem, out, &err), &err);
}

// A bucket of all gradients doesn't fit: the largest that does, named; where nobody asked for a
// budget, or nothing fits, its own.
static const struct lowered_row {
    const char *name;
    zx_policy_id id;
    uint32_t part; // of what its own bucket needs, in percent
} lowered_rows[] = {
    {"zero2", ZX_POLICY_ZERO2, 95},
    {"deepcompile", ZX_POLICY_DEEPCOMPILE, 80},
};

static void test_lowered(void **state)
{
    const struct lowered_row *row = *state;
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result own, kept, low, none;
    make_gpt(&mem, 6, 64, 2, 17, 2, 8, &g);
    plan_within(row->id, &g, 1, true, &mem, &own);
    const uint64_t budget = own.plan.arena_bytes * row->part / 100;
    plan_within(row->id, &g, budget, true, &mem, &kept);
    assert_true(kept.over && strstr(kept.knobs, "reduce bucket") == NULL);
    plan_within(row->id, &g, budget, false, &mem, &low);
    assert_false(low.over);
    assert_true(low.plan.arena_bytes <= budget);
    const char *knob = strstr(low.knobs, "reduce bucket ");
    assert_non_null(knob);
    const double bucket = strtod(knob + strlen("reduce bucket "), NULL);
    assert_true(bucket > 1000 && bucket < 400000);
    // Nothing fits.
    plan_within(row->id, &g, 1, false, &mem, &none);
    assert_true(none.over && none.plan.arena_bytes == own.plan.arena_bytes);
    assert_string_equal(none.knobs, own.knobs);
    zx_arena_free(&mem);
}

// A bucket a tenth larger doesn't fit.
static void test_largest_bucket(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result own, low, larger;
    make_gpt(&mem, 6, 64, 2, 17, 2, 8, &g);
    plan_within(ZX_POLICY_ZERO2, &g, 1, true, &mem, &own);
    const uint64_t budget = own.plan.arena_bytes * 95 / 100;
    plan_within(ZX_POLICY_ZERO2, &g, budget, false, &mem, &low);
    const double bucket = strtod(low.knobs + strlen("reduce bucket "), NULL);
    zx_plan_options o = options(2, 2);
    plan(ZX_POLICY_ZERO2, &g, &o, (int64_t)(1.1 * bucket), &mem, &larger);
    assert_true(larger.plan.arena_bytes > budget);
    zx_arena_free(&mem);
}

// Within a budget that was asked for DeepCompile gets what its own count leaves unused.
static void test_deepcompile_rest(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_policy_result all, least, count, rest;
    uint32_t faster = 0;
    make_gpt(&mem, 6, 64, 2, 17, 2, 8, &g);
    plan_within(ZX_POLICY_DEEPCOMPILE, &g, NO_BUDGET, true, &mem, &all);
    plan_within(ZX_POLICY_DEEPCOMPILE, &g, 1, true, &mem, &least);
    for (uint64_t i = 1; i < 8; i++) {
        const uint64_t more = all.plan.arena_bytes - least.plan.arena_bytes;
        const uint64_t budget = least.plan.arena_bytes + more * i / 8;
        plan_within(ZX_POLICY_DEEPCOMPILE, &g, budget, true, &mem, &count);
        plan_within(ZX_POLICY_DEEPCOMPILE, &g, budget, false, &mem, &rest);
        assert_false(rest.over);
        assert_true(rest.plan.step_seconds <= count.plan.step_seconds);
        faster += rest.plan.step_seconds < count.plan.step_seconds;
    }
    assert_true(faster > 0);
    zx_arena_free(&mem);
}

// ---- the table ----------------------------------------------------------------------------------

static const struct find_row {
    const char *name, *word, *want; // names of the rows, or the message
    uint32_t n;
} find_rows[] = {
    {"one row", "fsdp", "fsdp", 1},
    {"two forms", "hooks", "hooks, schedule only|hooks, as DeepSpeed", 2},
    {"once a step", "zero1", "zero1|zero1, once a step", 2},
    {"mistyped", "hoks", "unknown policy 'hoks'; the nearest is 'hooks'", 0},
    {"nothing like it", "xyzzy",
     "unknown policy 'xyzzy': there are ddp, zero1, zero2, hooks, hooks-tuned, fsdp, fsdp-tuned, "
     "deepcompile, zerox",
     0},
};

static void test_find(void **state)
{
    const struct find_row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_policy_id id[ZX_POLICY_COUNT];
    uint32_t n;
    const zx_status st = zx_policy_find(row->word, id, &n, &err);
    assert_int_equal(n, row->n);
    if (row->n == 0) {
        assert_int_equal(st, ZX_E_USAGE);
        assert_string_equal(err.cause[0], row->want);
        return;
    }
    assert_int_equal(st, ZX_OK);
    zx_text all = {0};
    for (uint32_t i = 0; i < n; i++)
        zx_text_put(&all, "%s%s", i > 0 ? "|" : "", zx_policy_name(id[i], &mem));
    assert_string_equal(all.at, row->want);
    zx_text_free(&all);
    zx_arena_free(&mem);
}

static void test_no_modules(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    make_mlp(&mem, 2, 4, 9, &g);
    const zx_plan_options o = options(2, 1);
    const zx_policy_input in = input(&g, &o, 100);
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++) {
        zx_policy_result r;
        zx_err err = {0};
        if (!asks_hooks((zx_policy_id)i)) continue;
        assert_int_equal(zx_policy_plan((zx_policy_id)i, &in, &mem, &r, &err), ZX_E_UNSUPPORTED);
        assert_string_equal(err.cause[0],
                            zx_arena_printf(&mem,
                                            "mlp: policy '%s' needs the modules that the hooks sit "
                                            "on: built, not imported",
                                            zx_policy_name((zx_policy_id)i, &mem)));
    }
    zx_arena_free(&mem);
}

// The planner's own policy is the planner, and refuses what nothing fits in.
static void test_zerox(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_graph g;
    zx_plan p;
    zx_policy_result r;
    zx_err err = {0};
    make_gpt(&mem, 3, 12, 2, 17, 2, 5, &g);
    zx_plan_options o = options(2, 2);
    assert_zx_ok(zx_plan_make(&g, &o, &mem, &p, &err), &err);
    plan(ZX_POLICY_ZEROX, &g, &o, 100, &mem, &r);
    assert_int_equal(zx_plan_hash(&p), zx_plan_hash(&r.plan));
    o.budget = 1;
    const zx_policy_input in = input(&g, &o, 100);
    assert_int_equal(zx_policy_plan(ZX_POLICY_ZEROX, &in, &mem, &r, &err), ZX_E_BUDGET);
    zx_arena_free(&mem);
}

int main(void)
{
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(test_ddp_buckets),         cmocka_unit_test(test_fsdp_peak),
        cmocka_unit_test(test_fsdp_modules),        cmocka_unit_test(test_fsdp_tuned),
        cmocka_unit_test(test_deepcompile_budgets), cmocka_unit_test(test_deepcompile_prefetch),
        cmocka_unit_test(test_no_modules),          cmocka_unit_test(test_zerox),
        cmocka_unit_test(test_largest_bucket),      cmocka_unit_test(test_deepcompile_rest),
    };
    struct CMUnitTest tests[ZX_COUNT(plain) + ZX_POLICY_COUNT + ZX_COUNT(count_rows) +
                            ZX_COUNT(lowered_rows) + ZX_COUNT(find_rows)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(count_rows); i++)
        tests[n++] = zx_case(count_rows[i].name, test_counts, &count_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(find_rows); i++)
        tests[n++] = zx_case(find_rows[i].name, test_find, &find_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(lowered_rows); i++)
        tests[n++] = zx_case(lowered_rows[i].name, test_lowered, &lowered_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(plain); i++) tests[n++] = plain[i];
    zx_arena names = {0};
    for (uint32_t i = 0; i < ZX_POLICY_COUNT; i++)
        if (!asks_hooks((zx_policy_id)i)) // theirs is in test_policy_hooks.c
            tests[n++] =
                zx_case(zx_policy_name((zx_policy_id)i, &names), test_proved, &zx_policies[i]);
    const int failed = _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
    zx_arena_free(&names);
    return failed;
}

// test_explain.c - plans as people and programs see them.
// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"
#include "sched/look.h"
#include "tests/sched/edit.h"
#include "tests/sched/graphs.h"

static uint32_t lines(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

typedef struct fixture {
    zx_arena mem;
    zx_graph g;
    zx_plan p;
    zx_text out;
} fixture;

static void start(fixture *f, uint32_t stage, uint32_t micro_batches)
{
    zx_err err = {0};
    *f = (fixture){0};
    make_gpt(&f->mem, 12, 64, 4, 300, 2, 16, &f->g);
    zx_machine machine = zx_machine_host(1, 1);
    machine.cores = 0; // bytes are moved by engines: gathering again costs compute nothing
    machine.wire = 4e9;
    const zx_plan_options o = {.ranks = 2,
                               .stage = stage,
                               .micro_batches = micro_batches,
                               .optimizer_states = 2,
                               .machine = machine,
                               .budget = UINT64_MAX,
                               .roomy = true};
    assert_zx_ok(zx_plan_make(&f->g, &o, &f->mem, &f->p, &err), &err);
}

static void stop(fixture *f)
{
    zx_text_free(&f->out);
    zx_arena_free(&f->mem);
}

static void has(const fixture *f, const char *what)
{
    if (strstr(f->out.at, what) == NULL) fail_msg("no '%s' in:\n%s", what, f->out.at);
}

// Gathers that a line of the table stands for: "h.{0..11}.ln_{1..2}.bias x96" says 96,
// "h.{0..6}.ln_{1..2}.weight" 14; 0: no gathers' line.
static uint64_t gathers_of(const char *line)
{
    uint64_t n = 1;
    const char *at = line;
    if (strncmp(at, "h.", 2) != 0 && strncmp(at, "w", 1) != 0 && strncmp(at, "ln_f", 4) != 0 &&
        strncmp(at, "lm_head", 7) != 0)
        return 0;
    for (; *at != ' ' && *at != '\n'; at++) {
        unsigned from, to;
        if (sscanf(at, "{%u..%u}", &from, &to) == 2) n *= to - from + 1;
    }
    if (at[0] == ' ' && at[1] == 'x') n = strtoull(at + 2, NULL, 10);
    return n;
}

// Every gather is in one of few lines; which layers share one is the planner's business.
static void test_folded(void **state ZX_UNUSED)
{
    fixture f;
    start(&f, 3, 4);
    zx_look look;
    zx_look_make(&f.g, &f.p, &f.mem, &look);
    zx_explain_gathers(&f.g, &f.p, NULL, &f.out);
    zx_explain_summary(&f.p, NULL, &f.out);
    assert_true(lines(f.out.at) <= 40);
    has(&f, "h.{0..11}.");
    has(&f, "- until the next use -");
    has(&f, " F "); // used forward first, and again backward
    has(&f, " B ");
    uint64_t n = 0;
    for (const char *at = f.out.at, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        if (end - at > 128) fail_msg("%d columns: %.*s", (int)(end - at), (int)(end - at), at);
        n += gathers_of(at);
    }
    assert_int_equal(n, look.n);
    stop(&f);
}

static void test_summary(void **state ZX_UNUSED)
{
    static const struct {
        double seconds;
        const char *want;
    } rows[] = {
        {0, "predicted step 0 ms:"},           {2.5e-4, "predicted step 250 us:"},
        {0.0269, "predicted step 26.9 ms:"},   {0.99949, "predicted step 999 ms:"},
        {0.99951, "predicted step 1.00 s:"},   {1.4, "predicted step 1.40 s:"},
        {59.96, "predicted step 60.0 s:"},     {61, "predicted step 1 min 1 s:"},
        {3599.6, "predicted step 1 h 0 min:"}, {18960, "predicted step 5 h 16 min:"},
        {86399, "predicted step 1 d 0 h:"},    {300000, "predicted step 3 d 11 h:"},
    };
    fixture f;
    start(&f, 3, 1);
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        f.out.n = 0;
        f.p.step_seconds = rows[i].seconds;
        zx_explain_summary(&f.p, NULL, &f.out);
        has(&f, rows[i].want);
    }
    has(&f, " (parameters ");
    has(&f, ", gradients ");
    has(&f, ", optimizer states ");
    has(&f, " whole at once) and ");
    stop(&f);
    start(&f, 3, 1);
    f.p.n_insns = 0;
    zx_explain_summary(&f.p, NULL, &f.out);
    has(&f, "\nnothing on the wire\n");
    stop(&f);
}

// A pattern shows every gather of what it matches; together they are all gathers.
static void test_glob(void **state ZX_UNUSED)
{
    fixture f;
    start(&f, 3, 2);
    zx_look look;
    zx_look_make(&f.g, &f.p, &f.mem, &look);
    zx_explain_gathers(&f.g, &f.p, "h.3.*", &f.out);
    uint32_t want = 4; // the legend and the heads
    for (uint32_t i = 0; i < look.n; i++)
        want += strncmp(f.g.params[look.gathers[i].unit].name, "h.3.", 4) == 0;
    assert_int_equal(lines(f.out.at), want);
    assert_null(strstr(f.out.at, "h.4."));
    stop(&f);
}

// What the table says of one gather agrees with the instructions.
static void test_look(void **state ZX_UNUSED)
{
    fixture f;
    start(&f, 3, 2);
    zx_look look;
    zx_look_make(&f.g, &f.p, &f.mem, &look);
    assert_true(look.n > 0);
    for (uint32_t i = 0; i < look.n; i++) {
        const zx_gathered *x = &look.gathers[i];
        assert_true(x->issue <= x->first && x->first <= x->last && x->last < x->freed);
        assert_true(x->issued <= x->ready && x->ready <= x->used + 1e-12);
        if (x->next == ZX_NONE) continue;
        assert_int_equal(x->reuse_steps, x->next - x->last - 1);
        assert_true(x->reuse_bytes <= 4 * x->reuse_elements);
    }
    stop(&f);
}

static void test_stages(void **state ZX_UNUSED)
{
    fixture f;
    start(&f, 2, 1);
    zx_explain_gathers(&f.g, &f.p, NULL, &f.out);
    has(&f, "every rank holds whole parameters (stage 2, 2 ranks)");
    has(&f, "units are gathered after their update");
    zx_explain_states(&f.g, &f.p, "wpe.*", &f.out);
    has(&f, "wpe.weight\n  AVAILABLE");
    stop(&f);
}

// The states of a parameter follow one another without a gap.
static void test_states(void **state ZX_UNUSED)
{
    fixture f;
    start(&f, 3, 2);
    zx_explain_states(&f.g, &f.p, "h.5.mlp.c_fc.weight", &f.out);
    has(&f, "h.5.mlp.c_fc.weight\n");
    uint32_t before = 0, n = 0;
    for (const char *at = f.out.at; (at = strstr(at, "steps ")) != NULL; n++) {
        unsigned from, to;
        assert_int_equal(sscanf(at, "steps %u..%u", &from, &to), 2);
        assert_int_equal(from, before);
        assert_true(to >= from);
        before = to;
        at += 6;
    }
    assert_int_equal(before, f.p.n_steps);
    assert_true(n >= 3);
    has(&f, "NOT_AVAILABLE");
    has(&f, "INFLIGHT");
    stop(&f);
}

static void test_instructions(void **state ZX_UNUSED)
{
    fixture f;
    start(&f, 3, 1);
    zx_explain_instructions(&f.g, &f.p, &f.out);
    assert_int_equal(lines(f.out.at), f.p.n_insns + 2);
    has(&f, "at: place in the plan; ms: when it is predicted to begin");
    has(&f, "gather   prefetch   gather     l");
    has(&f, "MatMul 'h.0.mlp'");
    stop(&f);
}

static void test_json(void **state ZX_UNUSED)
{
    fixture f;
    zx_err err = {0};
    start(&f, 3, 2);
    f.g.name = "hostile \x1b[2J \"name\"";
    zx_explain_json(&f.g, &f.p, NULL, &f.out);
    assert_null(strchr(f.out.at, '\x1b'));
    json_t *json;
    has(&f, "\"policy\":\"zerox\"");
    assert_zx_ok(zx_json_parse("plan", f.out.at, f.out.n, &json, &err), &err);
    assert_int_equal(json_array_size(json_object_get(json, "instructions")), f.p.n_insns);
    assert_int_equal(json_array_size(json_object_get(json, "steps")), f.p.n_steps);
    json_decref(json);
    stop(&f);
}

// A gather through a flat slot brings its units once it is unpacked; the rest is as it was.
static void test_flat(void **state ZX_UNUSED)
{
    fixture f;
    zx_look before, look;
    zx_err err = {0};
    edit e;
    start(&f, 3, 2);
    zx_look_make(&f.g, &f.p, &f.mem, &before);
    edit_start(&e, &f.g, &f.p, &f.mem);
    edit_flatten(&e, &(edit_flat){.bucket = true});
    assert_zx_ok(zx_plan_check(&f.g, &e.p, &err), &err);
    zx_look_make(&f.g, &e.p, &f.mem, &look);
    assert_int_equal(look.n, before.n);
    for (uint32_t i = 0; i < look.n; i++) {
        const zx_gathered *x = &look.gathers[i], *y = &before.gathers[i];
        assert_true(x->unit == y->unit && x->slot == y->slot && x->issue == y->issue);
        assert_true(x->first == y->first && x->freed == y->freed && x->next == y->next);
        assert_int_equal(e.insns[x->insn].id, ZX_I_GATHER);
    }
    zx_explain_summary(&e.p, NULL, &f.out);
    assert_memory_equal(f.out.at, "policy: flat\npeak ", 18);
    has(&f, " copies into and out of flat buffers and the bucket\n");
    f.out.n = 0;
    zx_explain_instructions(&f.g, &e.p, &f.out);
    assert_int_equal(lines(f.out.at), e.p.n_insns + 2);
    has(&f, " copy     ");
    has(&f, " bucket   ");
    has(&f, " unpack     l");
    has(&f, " through s");
    has(&f, " member 0 e");
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folded),       cmocka_unit_test(test_summary),
        cmocka_unit_test(test_glob),         cmocka_unit_test(test_look),
        cmocka_unit_test(test_stages),       cmocka_unit_test(test_states),
        cmocka_unit_test(test_instructions), cmocka_unit_test(test_json),
        cmocka_unit_test(test_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

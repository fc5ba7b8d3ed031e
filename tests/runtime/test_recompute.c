// test_recompute.c - what `auto` decides to recompute, against every subset of a model's layers;
// and what it decided as a word.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/build_model.h"
#include "runtime/cmd.h"
#include "tests/test.h"

enum { LAYERS = 4, SUBSETS = 1 << LAYERS };

typedef struct fixture {
    char path[64];
    zx_arena mem;
    zx_options options;
    zx_job job;
    zx_plan_options o;   // of the graph without recomputation
    uint64_t none, full; // the least budgets, on its machine
} fixture;

static fixture fixed, *const f = &fixed;

static zx_status plan_of(uint32_t subset, const zx_plan_options *o, zx_plan *plan, zx_arena *mem,
                         zx_err *err)
{
    bool again[LAYERS];
    zx_variant v;
    zx_plan_options with;
    for (uint32_t i = 0; i < LAYERS; i++) again[i] = (subset >> i & 1) != 0;
    ZX_TRY(zx_variant_make(&f->job, ZX_RECOMPUTE_BLOCKS, again, mem, &v, err));
    zx_variant_options(&f->job, &v, o, mem, &with);
    return zx_plan_make(&v.train, &with, mem, plan, err);
}

static uint64_t least_of(uint32_t subset, const zx_machine *machine)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_plan plan;
    zx_plan_options o = f->o;
    o.least = true;
    o.machine = *machine;
    assert_zx_ok(plan_of(subset, &o, &plan, &mem, &err), &err);
    const uint64_t bytes = plan.arena_bytes;
    zx_arena_free(&mem);
    return bytes;
}

static int setup(void **state ZX_UNUSED)
{
    zx_err err = {0};
    zx_text bytes = {0};
    const zx_new_options sizes = {
        .layers = LAYERS, .width = 64, .vocab = 64, .context = 64, .sequence = 64, .batch = 2};
    snprintf(f->path, sizeof f->path, "/tmp/zerox-recompute-%d.onnx", (int)getpid());
    assert_zx_ok(zx_new_model("gpt2", NULL, &sizes, &bytes, &err), &err);
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.at, 1, bytes.n, file), bytes.n);
    fclose(file);
    zx_text_free(&bytes);
    static char zerox[] = "zerox", plan[] = "plan", ranks[] = "--ranks", two[] = "2",
                recompute[] = "--recompute", as_asked[] = "auto";
    char *const argv[] = {zerox, plan, f->path, ranks, two, recompute, as_asked, NULL};
    assert_zx_ok(zx_options_parse(7, argv, &f->mem, &f->options, &err), &err);
    assert_zx_ok(zx_job_open(&f->job, &f->options, 2, true, &err), &err);
    assert_true(f->job.recompute_auto);
    assert_zx_ok(zx_job_import(&f->job, false, &err), &err);
    assert_zx_ok(zx_job_plan_options(&f->job, &f->mem, &f->o, &err), &err);
    f->o.roomy = false;
    f->none = least_of(0, &f->o.machine);
    f->full = least_of(SUBSETS - 1, &f->o.machine);
    return f->full < f->none ? 0 : 1;
}

static int teardown(void **state ZX_UNUSED)
{
    unlink(f->path);
    zx_job_close(&f->job);
    zx_arena_free(&f->mem);
    return 0;
}

// ---- the choice ---------------------------------------------------------------------------------

static const struct choice_case {
    const char *name;
    double budget; // 0: the least with all recomputed (whose addresses fit it alone); 1: with none
    double wire;   // bytes a second; 0: ranks share memory
    uint32_t fewest, most; // layers
    bool least, roomy;     // --budget min; no budget was asked for
    bool few;              // also where few rows are asked for
} choices[] = {
    {"memory is loose", 20, 0, 0, 0, false, false},
    {"what just fits", 1, ZX_MACHINE_NO_WIRE, 0, 0, false, false},
    {"a layer must", 0.95, ZX_MACHINE_NO_WIRE, 1, 1, false, false},
    {"some must", 0.5, ZX_MACHINE_NO_WIRE, 1, 3, false, false, true},
    {"all but the last must", 0.02, ZX_MACHINE_NO_WIRE, LAYERS - 1, LAYERS - 1, false, false},
    {"a slow wire, tight", 0.3, 2e7, 1, LAYERS, false, false, true},
    {"a slow wire, nothing must", 1.1, 2e7, 0, LAYERS, false, false},
    {"a slow wire, loose", 20, 2e7, 0, 0, false, false},
    {"the least budget", 0, 0, 1, LAYERS, true, false, true},
    {"nobody asked for a budget", 1, 2e7, 0, 0, false, true, true},
};

static zx_plan_options options_of(const struct choice_case *row)
{
    zx_plan_options o = f->o;
    o.least = row->least;
    o.roomy = row->roomy;
    if (row->wire > 0) zx_machine_link(&o.machine, row->wire, 1e-5);
    // The plan of fewest bytes is found among those for a machine: addresses depend on the order.
    const uint64_t none = least_of(0, &o.machine), full = least_of(SUBSETS - 1, &o.machine);
    o.budget = full + (uint64_t)(row->budget * (double)(none - full));
    return o;
}

// No subset (few: every third, nothing and all of it) is faster by more than a percent; of --budget
// min none takes fewer bytes.
static void test_choice(void **state)
{
    const struct choice_case *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_variant v;
    zx_plan plan;
    zx_plan_options with, o = options_of(row);
    assert_zx_ok(zx_job_choose(&f->job, &o, &mem, &v, &with, &plan, &err), &err);
    if (v.n < row->fewest || v.n > row->most) fail_msg("%u layers are recomputed", v.n);
    for (uint32_t i = 0; i + 1 < v.n_parts; i++) // the first ones are kept longest
        assert_true(v.again[i] || !v.again[i + 1]);
    assert_zx_ok(zx_plan_check(&v.train, &plan, &err), &err);
    assert_true(o.least || plan.arena_bytes <= o.budget);
    for (uint32_t subset = 0; subset < SUBSETS && !o.roomy; subset += test_few() ? 3 : 1) {
        zx_arena scratch = {0};
        zx_plan other;
        zx_err unused = {0};
        if (plan_of(subset, &o, &other, &scratch, &unused) == ZX_OK) {
            const bool better = o.least ? other.arena_bytes < plan.arena_bytes
                                        : other.step_seconds * 1.01 < plan.step_seconds;
            if (better)
                fail_msg("layers %x: %.9g s, %llu bytes; chosen were %u: %.9g s, %llu", subset,
                         other.step_seconds, (unsigned long long)other.arena_bytes, v.n,
                         plan.step_seconds, (unsigned long long)plan.arena_bytes);
        }
        zx_arena_free(&scratch);
    }
    zx_arena_free(&mem);
}

static void nothing_fits(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_variant v;
    zx_plan plan;
    zx_plan_options with, o = f->o;
    o.budget = f->full - 1;
    assert_int_equal(zx_job_choose(&f->job, &o, &mem, &v, &with, &plan, &err), ZX_E_BUDGET);
    assert_non_null(strstr(err.cause[0], "with all recomputed that can be: a rank needs"));
    char least[32];
    snprintf(least, sizeof least, "%llu", (unsigned long long)f->full);
    assert_non_null(strstr(err.cause[0], least));
    zx_arena_free(&mem);
}

// A node that runs again takes as long, and as much scratch, as the first time.
static void options_of_a_variant(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_variant v;
    const uint32_t n = f->job.plain.n_nodes;
    double *node = ZX_NEW(&mem, double, n);
    uint64_t *work = ZX_NEW(&mem, uint64_t, n);
    for (uint32_t i = 0; i < n; i++) {
        node[i] = i;
        work[i] = i;
    }
    const zx_times times = {.node = node};
    zx_plan_options with, o = f->o;
    o.times = &times;
    o.work_bytes = work;
    assert_zx_ok(zx_variant_make(&f->job, ZX_RECOMPUTE_FULL, NULL, &mem, &v, &err), &err);
    zx_variant_options(&f->job, &v, &o, &mem, &with);
    assert_true(v.train.n_nodes > n);
    for (uint32_t i = 0; i < v.train.n_nodes; i++) {
        const char *name = f->job.plain.nodes[(uint32_t)with.times->node[i]].name;
        assert_int_equal(strncmp(v.train.nodes[i].name, name, strlen(name)), 0);
        assert_int_equal(with.work_bytes[i], (uint64_t)with.times->node[i]);
    }
    zx_arena_free(&mem);
}

// ---- as a word ----------------------------------------------------------------------------------

static const struct word_case {
    const char *word, *text; // text NULL: refused
} words[] = {
    {"none", ""},
    {"full", "recomputed by layer"},
    {"1000", "1 of 4 layers recomputed"},
    {"0101", "2 of 4 layers recomputed"},
    {"0000", ""},
    {"", NULL},
    {"100", NULL},
    {"10000", NULL},
    {"1002", NULL},
    {"auto", NULL},
};

static void test_word(void **state)
{
    const struct word_case *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_variant v;
    const zx_status st = zx_variant_read(&f->job, row->word, &mem, &v, &err);
    assert_int_equal(st, row->text == NULL ? ZX_E_USAGE : ZX_OK);
    if (row->text != NULL) {
        assert_string_equal(zx_variant_word(&v, &mem), row->word);
        assert_string_equal(zx_variant_text(&v, &mem), row->text);
    }
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(choices) + ZX_COUNT(words) + 2];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(choices); i++)
        if (!test_few() || choices[i].few)
            tests[n++] = zx_case(choices[i].name, test_choice, &choices[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(nothing_fits);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(options_of_a_variant);
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        tests[n++] = zx_case(words[i].word, test_word, &words[i]);
    return _cmocka_run_group_tests("recompute", tests, n, setup, teardown);
}

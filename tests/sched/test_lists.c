// test_lists.c - the list scheduler where room changes along the line: launches as large as there
// is room for, beside the bound.
// SPDX-License-Identifier: Apache-2.0
#include "sched/bound.h"
#include "sched/solve.h"
#include "tests/test.h"

#define UNITS 520
#define STEPS (2 * UNITS)

// Forward through units of 2 bytes, a step each, and back, where each leaves its gradient.
// Activations of a byte stay from a forward step to its backward one; a byte takes the wire a
// second, a launch `latency` besides.
typedef struct line {
    zx_problem p;
    double seconds[STEPS];
    uint64_t base[STEPS], bytes[UNITS];
    zx_read reads[STEPS];
    uint32_t read_at[STEPS + 1];
    zx_grad grads[UNITS];
} line;

static void make_line(line *l, uint32_t units, uint64_t limit, double seconds, double latency)
{
    const uint32_t steps = 2 * units;
    *l = (line){0};
    for (uint32_t s = 0; s < steps; s++) {
        const uint32_t u = s < units ? s : steps - 1 - s;
        l->seconds[s] = seconds;
        l->bytes[u] = 2;
        l->base[s] = u + 1 + (s >= units ? 2 : 0); // its gradient is made there
        l->reads[s] = (zx_read){s, u};
        l->read_at[s + 1] = s + 1;
        if (s >= units)
            l->grads[s - units] = (zx_grad){.unit = u,
                                            .storage = u,
                                            .ready = s + 1,
                                            .spare = s + 1,
                                            .latest = steps,
                                            .bytes = 2};
    }
    l->p = (zx_problem){.n_steps = steps,
                        .micro_batches = 1,
                        .ranks = 2,
                        .seconds = l->seconds,
                        .base = l->base,
                        .limit = limit,
                        .n_units = units,
                        .n_reads = steps,
                        .n_grads = units,
                        .reads = l->reads,
                        .read_at = l->read_at,
                        .grads = l->grads,
                        .unit_bytes = l->bytes,
                        .unit_wire = l->bytes,
                        .unit_elements = l->bytes};
    l->p.machine = (zx_machine){.ranks = 2,
                                .wire = 0.5,
                                .latency = latency,
                                .sum = 1e30,
                                .copy = 1e30,
                                .interference = 0.2};
}

static const struct row {
    const char *name;
    uint64_t limit;
    double seconds, latency, most; // most: times the bound
} rows[] = {
    {"wire binds, launches cost much", 540, 1, 40, 1.15},
    {"wire binds, launches cost little", 540, 1, 10, 1.05},
    {"both bind", 530, 2, 20, 1.125},
    {"hardly any room at the turn", 550, 1, 40, 1.12},
};

static void test_row(void **state)
{
    const struct row *r = *state;
    zx_arena mem = {0};
    static line l;
    zx_stands stands = {0};
    zx_solution s;
    zx_price price;
    zx_bound b;
    uint64_t least;
    make_line(&l, UNITS, r->limit, r->seconds, r->latency);
    assert_true(zx_solve_lists(&l.p, &stands, 0, &mem, &s, &least));
    assert_null(zx_problem_wrong(&l.p, &s, &mem));
    zx_problem_price(&l.p, &s, &price);
    zx_bound_problem(&l.p, &b);
    print_message("%.1f s, bound %.1f: %.3f\n", price.seconds, b.seconds,
                  price.seconds / b.seconds);
    assert_true(price.seconds >= b.seconds && price.seconds <= r->most * b.seconds);
    zx_arena_free(&mem);
}

// ---- other launches -----------------------------------------------------------------------------

// Of what is gathered and reduced one at a time.
static const struct path_row {
    const char *name;
    uint64_t limit;
    double seconds, latency, most; // most: times the bound
} path_rows[] = {
    {"other launches: they cost much", 3000, 1, 40, 1.02},
    {"other launches: they cost little", 3000, 1, 10, 1.02},
    {"other launches: hardly any room at the turn", 540, 1, 40, 1.05},
};

static const zx_turns single = {.gather = 1,
                                .reduce = 1,
                                .share = 1,
                                .lot = 1,
                                .ramp = 1,
                                .tail = 1,
                                .eager = 2,
                                .patience = 1};

static void test_path(void **state)
{
    const struct path_row *r = *state;
    zx_arena mem = {0};
    static line l;
    zx_line ahead;
    zx_solution s;
    zx_price before, after;
    zx_bound b;
    make_line(&l, UNITS, r->limit, r->seconds, r->latency);
    zx_line_make(&ahead, &l.p, &mem);
    assert_true(zx_solve_list(&ahead, &single, &mem, &s, NULL));
    zx_problem_price(&l.p, &s, &before);
    assert_true(zx_solve_path(&l.p, true, &mem, &s));
    assert_null(zx_problem_wrong(&l.p, &s, &mem));
    zx_problem_price(&l.p, &s, &after);
    zx_bound_problem(&l.p, &b);
    print_message("%.1f s, then %.1f, bound %.1f: %.3f\n", before.seconds, after.seconds, b.seconds,
                  after.seconds / b.seconds);
    assert_true(after.gathered == before.gathered && after.reduced == before.reduced);
    assert_true(after.seconds >= b.seconds && after.seconds <= r->most * b.seconds);
    zx_arena_free(&mem);
}

// ---- found on fewer micro-batches ---------------------------------------------------------------

#define SHORT 40 // units

static const struct steady_row {
    const char *name;
    uint32_t micro_batches;
    uint64_t limit;
    double seconds, latency;
    bool found;
    double most; // times what is found on all of the line
} steady_rows[] = {
    {"found on four of five micro-batches", 5, 250, 1, 10, true, 1.01},
    {"found on four of twelve", 12, 124, 1, 10, true, 1.01},
    {"twelve: units are gathered again", 12, 116, 1, 20, true, 1.01},
    {"twelve: again and again", 12, 108, 1, 20, true, 1.01},
    {"four are few themselves", 4, 250, 1, 10, false, 0},
};

static void test_steady(void **state)
{
    const struct steady_row *r = *state;
    zx_turns four = single; // bytes, two units
    four.gather = four.reduce = 4;
    zx_arena mem = {0};
    static line l;
    zx_line ahead;
    zx_solution s, all;
    zx_price before, after, best;
    make_line(&l, SHORT, r->limit, r->seconds, r->latency);
    l.p.micro_batches = r->micro_batches;
    zx_line_make(&ahead, &l.p, &mem);
    assert_true(zx_solve_list(&ahead, &four, &mem, &s, NULL));
    zx_solution_copy(&s, &mem, &all);
    zx_problem_price(&l.p, &s, &before);
    assert_int_equal(zx_solve_steady(&l.p, &four, &mem, &s), r->found);
    assert_null(zx_problem_wrong(&l.p, &s, &mem));
    zx_problem_price(&l.p, &s, &after);
    if (r->found) {
        zx_solve_path(&l.p, true, &mem, &all);
        zx_problem_price(&l.p, &all, &best);
        print_message("%.1f s, then %.1f; on all of the line %.1f: %.3f\n", before.seconds,
                      after.seconds, best.seconds, after.seconds / best.seconds);
        assert_true(after.seconds < before.seconds);
        assert_true(after.seconds <= r->most * best.seconds);
    }
    assert_true(after.gathered <= before.gathered && after.reduced == before.reduced);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(path_rows) + ZX_COUNT(steady_rows)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(path_rows); i++)
        tests[n++] = zx_case(path_rows[i].name, test_path, &path_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(steady_rows); i++)
        tests[n++] = zx_case(steady_rows[i].name, test_steady, &steady_rows[i]);
    return _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
}

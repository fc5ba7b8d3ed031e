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

static void make_line(line *l, uint64_t limit, double seconds, double latency)
{
    *l = (line){0};
    for (uint32_t s = 0; s < STEPS; s++) {
        const uint32_t u = s < UNITS ? s : STEPS - 1 - s;
        l->seconds[s] = seconds;
        l->bytes[u] = 2;
        l->base[s] = u + 1 + (s >= UNITS ? 2 : 0); // its gradient is made there
        l->reads[s] = (zx_read){s, u};
        l->read_at[s + 1] = s + 1;
        if (s >= UNITS)
            l->grads[s - UNITS] = (zx_grad){.unit = u,
                                            .storage = u,
                                            .ready = s + 1,
                                            .spare = s + 1,
                                            .latest = STEPS,
                                            .bytes = 2};
    }
    l->p = (zx_problem){.n_steps = STEPS,
                        .micro_batches = 1,
                        .ranks = 2,
                        .seconds = l->seconds,
                        .base = l->base,
                        .limit = limit,
                        .n_units = UNITS,
                        .n_reads = STEPS,
                        .n_grads = UNITS,
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
    make_line(&l, r->limit, r->seconds, r->latency);
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
};

static void test_path(void **state)
{
    static const zx_turns single = {.gather = 1,
                                    .reduce = 1,
                                    .share = 1,
                                    .lot = 1,
                                    .ramp = 1,
                                    .tail = 1,
                                    .eager = 2,
                                    .patience = 1};
    const struct path_row *r = *state;
    zx_arena mem = {0};
    static line l;
    zx_line ahead;
    zx_solution s;
    zx_price before, after;
    zx_bound b;
    make_line(&l, r->limit, r->seconds, r->latency);
    zx_line_make(&ahead, &l.p, &mem);
    assert_true(zx_solve_list(&ahead, &single, &mem, &s, NULL));
    zx_problem_price(&l.p, &s, &before);
    assert_true(zx_solve_path(&l.p, &mem, &s));
    assert_null(zx_problem_wrong(&l.p, &s, &mem));
    zx_problem_price(&l.p, &s, &after);
    zx_bound_problem(&l.p, &b);
    print_message("%.1f s, then %.1f, bound %.1f: %.3f\n", before.seconds, after.seconds, b.seconds,
                  after.seconds / b.seconds);
    assert_true(after.gathered == before.gathered && after.reduced == before.reduced);
    assert_true(after.seconds >= b.seconds && after.seconds <= r->most * b.seconds);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(path_rows)];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, test_row, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(path_rows); i++)
        tests[n++] = zx_case(path_rows[i].name, test_path, &path_rows[i]);
    return _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
}

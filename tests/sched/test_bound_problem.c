// test_bound_problem.c - the bound of problems by hand, and of random ones: no solution is below
// it, and the linear program isn't either.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <string.h>

#include "sched/bound.h"
#include "tests/test.h"

// ---- problems -----------------------------------------------------------------------------------

#define STEPS 12
#define UNITS 6

// Two ranks behind a link: a byte takes a second, and a launch `latency` besides.
typedef struct toy {
    zx_problem p;
    double seconds[STEPS];
    uint64_t base[STEPS], bytes[UNITS];
    zx_read reads[STEPS * UNITS];
    uint32_t read_at[STEPS + 1];
    zx_grad grads[UNITS];
} toy;

static void start(toy *t, uint32_t steps, uint32_t units, uint32_t micros, uint64_t limit)
{
    *t = (toy){0};
    t->p = (zx_problem){.n_steps = steps,
                        .micro_batches = micros,
                        .ranks = 2,
                        .seconds = t->seconds,
                        .base = t->base,
                        .limit = limit,
                        .n_units = units,
                        .reads = t->reads,
                        .read_at = t->read_at,
                        .grads = t->grads,
                        .unit_bytes = t->bytes,
                        .unit_wire = t->bytes,
                        .unit_elements = t->bytes};
    t->p.machine = (zx_machine){.ranks = 2, .wire = 0.5, .sum = 1e30, .copy = 1e30};
}

static void read_unit(toy *t, uint32_t step, uint32_t unit)
{
    t->reads[t->p.n_reads++] = (zx_read){step, unit};
    for (uint32_t s = step + 1; s <= t->p.n_steps; s++) t->read_at[s] = t->p.n_reads;
}

static void add_grad(toy *t, uint32_t unit, int64_t ready)
{
    t->grads[t->p.n_grads] = (zx_grad){.unit = unit,
                                       .storage = t->p.n_grads,
                                       .ready = ready,
                                       .spare = ready,
                                       .latest = 2 * t->p.n_steps,
                                       .bytes = t->bytes[unit]};
    t->p.n_grads++;
}

// Forward through `units` units of 2 bytes, a step each, and backward through them again; each
// backward step ends a gradient.
static void make_stack(toy *t, uint32_t units, uint32_t micros, uint64_t limit, double seconds)
{
    start(t, 2 * units, units, micros, limit);
    for (uint32_t u = 0; u < units; u++) t->bytes[u] = 2;
    for (uint32_t s = 0; s < 2 * units; s++) {
        const uint32_t u = s < units ? s : 2 * units - 1 - s;
        t->seconds[s] = seconds;
        read_unit(t, s, u);
        if (s >= units) add_grad(t, u, s + 1);
    }
}

// ---- by hand ------------------------------------------------------------------------------------

static const struct hand_row {
    const char *name;
    uint32_t units, micros;
    uint64_t limit;
    double compute, interference, latency;
    double seconds, wire_bytes;
    const char *binds;
    double certified; // by the linear program
} hand_rows[] = {
    // Gathers take 2 s each, so do reduces.
    {"all stays: wire alone", 3, 1, UINT64_MAX, 0, 0, 0, 12, 6, "wire", 12},
    {"all stays: first gather, compute, last reduce", 3, 1, UINT64_MAX, 10, 0, 0, 64, 6,
     "start and tail", 64},
    {"interference: wire beside compute costs a third of itself", 3, 1, UINT64_MAX, 10, 0.5, 0, 64,
     6, "compute", 2 + 60 + 8.0 / 3 + 2},
    // Room for one unit: the last one stays around the turn, where its gradient takes no room yet.
    {"room for one: every gather and reduce is waited for", 3, 1, 2, 1, 0, 0, 5 * 2 + 3 * 2 + 6, 8,
     "memory-coupled windows", 22},
    {"room for two: one of three is gathered again", 3, 1, 4, 0, 0, 0, 14, 7, "wire", 14},
    {"two micro-batches: unit 0 stays too", 3, 2, 2, 0, 0, 0, 9 * 2 + 6 * 2, 15, "wire", 30},
    {"a launch holds its bytes: latency for each", 3, 1, 2, 0, 0, 1, 5 * 3 + 3 * 3, 8, "wire", 24},
};

static void test_hand(void **state)
{
    const struct hand_row *row = *state;
    toy t;
    zx_bound b;
    make_stack(&t, row->units, row->micros, row->limit, row->compute);
    t.p.machine.interference = row->interference;
    t.p.machine.latency = row->latency;
    zx_bound_problem(&t.p, &b);
    assert_float_equal(b.seconds, row->seconds, 1e-9);
    assert_float_equal((double)b.wire_bytes, row->wire_bytes, 0);
    assert_string_equal(zx_bound_binds(&b), row->binds);
    zx_err err = {0};
    if (zx_bound_certify(&t.p, &b, &err) == ZX_E_UNSUPPORTED) return;
    assert_float_equal(b.certified, row->certified, 1e-6);
}

// ---- from launch to launch
// -----------------------------------------------------------------------

// Where every launch waits for room, windows know little of what one after the other takes.
static const struct walk_row {
    const char *name;
    uint32_t units, micros;
    uint64_t limit;
    double latency, least, planned; // planned: seconds that there is a solution with
} walk_rows[] = {
    {"room for two: a launch each", 4, 1, 4, 2, 37.5, 38},
    {"room for two, six units", 6, 1, 4, 1, 49, 50},
    {"room for two, three micro-batches", 4, 3, 4, 2, 102, 106},
    {"room for three", 5, 1, 6, 1, 34, 37},
};

static void test_walk(void **state)
{
    const struct walk_row *row = *state;
    toy t;
    zx_bound b;
    make_stack(&t, row->units, row->micros, row->limit, 1);
    t.p.machine.latency = row->latency;
    zx_bound_problem(&t.p, &b);
    assert_true(b.walk >= row->least && b.walk <= row->planned);
    assert_true(b.chain < row->least && b.seconds >= b.walk);
    const double rough = b.walk;
    zx_err err = {0};
    if (zx_bound_certify(&t.p, &b, &err) == ZX_OK)
        assert_true(b.walk >= rough && b.walk <= row->planned && b.certified >= b.walk);
    t.p.limit = UINT64_MAX;
    zx_bound_problem(&t.p, &b);
    assert_true(b.walk <= b.chain * (1 + 1e-9));
}

// ---- no solution is below it --------------------------------------------------------------------

static uint64_t draw(uint64_t *seed, uint64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % n;
}

static void make_random(toy *t, uint64_t *seed)
{
    const uint32_t units = 1 + (uint32_t)draw(seed, 5), steps = 2 + (uint32_t)draw(seed, 8);
    const uint32_t micros = 1 + (uint32_t)draw(seed, 4);
    start(t, steps, units, micros, 0);
    uint64_t most = 0;
    for (uint32_t u = 0; u < units; u++) t->bytes[u] = 2 * (1 + draw(seed, 5));
    for (uint32_t s = 0; s < steps; s++) {
        uint64_t bytes = t->base[s] = draw(seed, 8);
        t->seconds[s] = (double)draw(seed, 6);
        for (uint32_t u = 0; u < units; u++) {
            if (draw(seed, 3) > 0) continue;
            read_unit(t, s, u);
            bytes += t->bytes[u];
        }
        if (bytes > most) most = bytes;
    }
    for (uint32_t s = 1; s <= steps; s++)
        for (uint32_t u = 0; u < units; u++) {
            bool has = draw(seed, 6) > 0;
            for (uint32_t g = 0; g < t->p.n_grads; g++) has |= t->grads[g].unit == u;
            if (has) continue;
            add_grad(t, u, s);
            zx_grad *g = &t->grads[t->p.n_grads - 1];
            g->spare += (int64_t)draw(seed, steps - s + 1);
            g->latest = steps + (int64_t)draw(seed, s);
            if (g->latest < g->spare) g->latest = g->spare;
            if (draw(seed, 8) == 0 && t->p.n_grads > 1) g->storage = t->p.n_grads - 2;
            if (draw(seed, 8) == 0) g->bytes = 0;
        }
    t->p.limit = most + 2 + draw(seed, 14);
    zx_machine *m = &t->p.machine;
    m->latency = (double)draw(seed, 3);
    m->interference = 0.25 * (double)draw(seed, 3);
    if (draw(seed, 3) == 0) {
        m->cores = m->threads = 1 + (uint32_t)draw(seed, 2);
        m->copy = m->sum = 4;
    }
    t->p.after = (double)draw(seed, 3);
    t->p.no_overlap = false;
}

static void test_random(void **state ZX_UNUSED)
{
    uint64_t seed = 5;
    uint32_t n = 0;
    const uint32_t instances = test_few() ? 200 : 800;
    double worst = 0, sum = 0;
    for (uint32_t i = 0; i < instances; i++) {
        toy t;
        zx_arena mem = {0};
        zx_solution s;
        zx_price price;
        zx_bound b;
        zx_err err = {0};
        uint64_t least;
        make_random(&t, &seed);
        if (zx_solve(&t.p, &mem, &s, &least) && zx_problem_wrong(&t.p, &s, &mem) == NULL) {
            zx_problem_price(&t.p, &s, &price);
            if (i % 4 != 0 || zx_bound_certify(&t.p, &b, &err) == ZX_E_UNSUPPORTED)
                zx_bound_problem(&t.p, &b);
            if (price.seconds < b.seconds * (1 - 1e-9))
                fail_msg("instance %u: planned %g s, bound %g s (chain %g, program %g)", i,
                         price.seconds, b.seconds, b.chain, b.certified);
            if (b.seconds <= 0) continue;
            worst = fmax(worst, price.seconds / b.seconds);
            sum += price.seconds / b.seconds;
            n++;
        }
        zx_arena_free(&mem);
    }
    assert_true(n > instances / 4 * 3);
    print_message("%u solved, mean ratio %g, worst %g\n", n, sum / n, worst);
    assert_true(sum / n < 1.15);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(hand_rows) + ZX_COUNT(walk_rows) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(hand_rows); i++)
        tests[n++] = zx_case(hand_rows[i].name, test_hand, &hand_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(walk_rows); i++)
        tests[n++] = zx_case(walk_rows[i].name, test_walk, &walk_rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(test_random);
    return _cmocka_run_group_tests("tests", tests, n, NULL, NULL);
}

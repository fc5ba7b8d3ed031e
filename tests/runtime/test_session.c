// test_session.c - training on ranks that are threads: the same bits whatever the stage and the
// plan, the same numbers whatever the ranks, and what happens when a value or a label is bad.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include "tests/runtime/small.h"

static run_result got, want; // too much for some stacks

static const zx_optim sgd = {.kind = ZX_OPTIM_SGD};
static const zx_optim momentum = {.kind = ZX_OPTIM_SGD, .momentum = 0.9, .nesterov = true};

static void expect_same_bits(const run_result *a, const run_result *b, uint32_t steps)
{
    for (uint32_t k = 0; k < steps; k++) {
        assert_memory_equal(&a->report[k].loss, &b->report[k].loss, sizeof(double));
        assert_memory_equal(&a->report[k].grad_norm, &b->report[k].grad_norm, sizeof(double));
        assert_int_equal(a->report[k].applied, b->report[k].applied);
    }
    assert_int_equal(a->n_weights, b->n_weights);
    assert_memory_equal(a->weight, b->weight, sizeof a->weight);
    assert_memory_equal(a->grad, b->grad, sizeof a->grad);
    assert_memory_equal(a->buffer, b->buffer, sizeof a->buffer);
}

static void expect_close(const char *what, const float *a, const float *b, uint32_t n,
                         double within)
{
    for (uint32_t i = 0; i < n; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= within))
            fail_msg("%s[%u] is %.9g, %.9g was due", what, i, (double)a[i], (double)b[i]);
}

static void expect_trained(const run_options *o, const run_result *r)
{
    for (uint32_t k = 0; k < filled(o).steps; k++) {
        assert_int_equal(r->status[k], ZX_OK);
        assert_true(r->report[k].applied && isfinite(r->report[k].loss));
        assert_true(r->report[k].grad_norm > 0);
        assert_int_equal(r->report[k].peak_bytes, r->arena_bytes);
    }
}

// ---- same ranks: same bits ----------------------------------------------------------------------

static const struct same_case {
    const char *name;
    run_options first, second;
} same_cases[] = {
    {"1 rank: stage 0 as 3", {.stage = STAGE_0, .dump = true}, {.dump = true}},
    {"1 rank: accumulation, stage 0 as 3", {.stage = STAGE_0, .micros = 3}, {.micros = 3}},
    {"2 ranks: stage 0 as 3",
     {.ranks = 2, .stage = STAGE_0, .dump = true},
     {.ranks = 2, .dump = true}},
    {"2 ranks: stage 1 as 3",
     {.ranks = 2, .stage = STAGE_1, .micros = 2},
     {.ranks = 2, .micros = 2}},
    {"2 ranks: stage 2 as 3",
     {.ranks = 2, .stage = STAGE_2, .micros = 2},
     {.ranks = 2, .micros = 2}},
    {"3 ranks: stage 0 as 3",
     {.ranks = 3, .stage = STAGE_0, .micros = 2},
     {.ranks = 3, .micros = 2}},
    {"3 ranks: stage 1 as 2", {.ranks = 3, .stage = STAGE_1}, {.ranks = 3, .stage = STAGE_2}},
    {"4 ranks: stage 0 as 3",
     {.ranks = 4, .stage = STAGE_0, .dump = true},
     {.ranks = 4, .dump = true}},
    {"clipped: stage 0 as 3",
     {.ranks = 2, .stage = STAGE_0, .clip = 0.1},
     {.ranks = 2, .clip = 0.1}},
    {"momentum: stage 1 as 3",
     {.ranks = 3, .stage = STAGE_1, .optim = &momentum},
     {.ranks = 3, .optim = &momentum}},
    {"plain SGD: stage 0 as 3",
     {.ranks = 2, .stage = STAGE_0, .optim = &sgd},
     {.ranks = 2, .optim = &sgd}},
    {"the least budget", {.ranks = 2, .micros = 2}, {.ranks = 2, .micros = 2, .least = true}},
    {"no overlap", {.ranks = 3, .micros = 2}, {.ranks = 3, .micros = 2, .no_overlap = true}},
    {"freed slots poisoned",
     {.ranks = 2, .micros = 3},
     {.ranks = 2, .micros = 3, .poison = true, .least = true}},
    {"a slow wire", {.ranks = 2}, {.ranks = 2, .latency = 0.002}},
    {"a narrow wire",
     {.ranks = 3, .micros = 2},
     {.ranks = 3, .micros = 2, .bandwidth = 2e6, .latency = 5e-5}},
    {"a narrow wire, all-reduces",
     {.ranks = 2, .stage = STAGE_0, .micros = 2},
     {.ranks = 2, .stage = STAGE_0, .micros = 2, .bandwidth = 2e6}},
    {"serially", {.ranks = 2, .micros = 2}, {.ranks = 2, .micros = 2, .serial = true}},
    {"serially, a bucket",
     {.ranks = 3},
     {.ranks = 3, .serial = true, .flat = FLAT_BUCKET, .latency = 1e-4}},
    {"2 ranks: rows", {.ranks = 2, .dump = true}, {.ranks = 2, .dump = true, .flat = FLAT_ROWS}},
    {"2 ranks: a bucket",
     {.ranks = 2, .micros = 3, .dump = true},
     {.ranks = 2, .micros = 3, .dump = true, .poison = true, .flat = FLAT_BUCKET}},
    {"3 ranks: rows, the least budget",
     {.ranks = 3, .micros = 2},
     {.ranks = 3, .micros = 2, .poison = true, .least = true, .flat = FLAT_ROWS}},
    {"3 ranks: a bucket, no overlap",
     {.ranks = 3, .micros = 2},
     {.ranks = 3, .micros = 2, .no_overlap = true, .flat = FLAT_BUCKET}},
    {"stage 0: a bucket",
     {.ranks = 3, .micros = 2},
     {.ranks = 3, .micros = 2, .stage = STAGE_0, .flat = FLAT_BUCKET}},
    {"stage 1: rows",
     {.ranks = 3, .micros = 2},
     {.ranks = 3, .micros = 2, .stage = STAGE_1, .flat = FLAT_ROWS}},
    {"stage 2: a bucket over a narrow wire",
     {.ranks = 2},
     {.ranks = 2, .stage = STAGE_2, .flat = FLAT_BUCKET, .bandwidth = 2e6, .latency = 5e-5}},
    {"dropout and a buffer: stage 0 as 3",
     {.ranks = 2, .micros = 2, .stage = STAGE_0, .graph = {.dropout = 0.3, .buffer = true}},
     {.ranks = 2, .micros = 2, .graph = {.dropout = 0.3, .buffer = true}}},
    {"2 threads: stage 0 as 3",
     {.ranks = 2, .threads = 2, .stage = STAGE_0, .micros = 2},
     {.ranks = 2, .threads = 2, .micros = 2}},
    {"a run again", {.ranks = 4, .micros = 2}, {.ranks = 4, .micros = 2}},
};

static void same_bits(void **state)
{
    const struct same_case *c = *state;
    run_small(&c->first, &want);
    expect_trained(&c->first, &want);
    run_small(&c->second, &got);
    expect_trained(&c->second, &got);
    expect_same_bits(&got, &want, filled(&c->first).steps);
}

// ---- processes ----------------------------------------------------------------------------------

// First of all, while this process hasn't started any OpenMP thread.
static void processes_as_threads(void **state)
{
    (void)state;
    static const run_options rows[] = {
        {.ranks = 2, .micros = 2, .dump = true, .graph = {.dropout = 0.2, .buffer = true}},
        {.ranks = 3, .micros = 2, .stage = STAGE_1, .dump = true},
        {.ranks = 4, .stage = STAGE_0, .clip = 0.1, .graph = {.buffer = true}},
    };
    run_result *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        run_small_processes(&rows[i], shared);
        expect_trained(&rows[i], shared);
        run_small(&rows[i], &got);
        expect_same_bits(shared, &got, 3);
    }
    munmap(shared, sizeof *shared);
}

static void dies_in_the_feed(const void *self, uint32_t input, uint64_t micro, void *to)
{
    if (micro == 7) raise(SIGKILL); // 2 ranks x 2: rank 1's, in the second step
    small_fill(self, input, micro, to);
}

static int loses_a_peer(zx_world *w, void *arg)
{
    run_options o = *(const run_options *)arg;
    run_result *r = calloc(1, sizeof *r);
    const run_call c = {&o, r};
    o.feed = dies_in_the_feed;
    EXPECT(small_rank(w, (void *)(uintptr_t)&c) != 0); // can't read the weights any more
    EXPECT(r->status[0] == ZX_OK && r->status[1] == ZX_E_COMM && r->status[2] == ZX_E_COMM);
    EXPECT(strcmp(r->err.cause[0], "rank 1 died (connection closed)") == 0);
    free(r);
    return 0;
}

static void a_rank_dies_in_a_step(void **state)
{
    (void)state;
    for (uint32_t stage = STAGE_0; stage <= STAGE_3; stage++) {
        const run_options row = {.ranks = 2, .micros = 2, .stage = stage}, o = filled(&row);
        char name[64];
        pid_t pid[2];
        socket_name(name);
        for (uint32_t r = 0; r < 2; r++)
            pid[r] = start_process(name, r, 2, loses_a_peer, (void *)(uintptr_t)&o);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(wait_end(pid[r]), r == 1 ? 1000 + SIGKILL : 0);
    }
}

// ---- the order of sums --------------------------------------------------------------------------

// One micro-batch's gradient with the seed of a step of `of` of them.
static void gradient_of(uint64_t micro, uint32_t of, float *g)
{
    static run_result one;
    const run_options o = {.steps = 1, .first = micro, .of = of, .dump = true};
    run_small(&o, &one);
    memcpy(g, one.grad, sizeof one.grad);
}

// Over ranks in rank order, then onto the accumulator in micro-batch order: exactly.
static void sums_are_in_rank_order(void **state)
{
    (void)state;
    enum { RANKS = 3, MICROS = 2 };
    static float g[RANKS * MICROS][MOST_WEIGHTS];
    const run_options o = {.ranks = RANKS, .micros = MICROS, .steps = 1, .dump = true};
    for (uint32_t m = 0; m < RANKS * MICROS; m++) gradient_of(m, RANKS * MICROS, g[m]);
    run_small(&o, &got);
    uint32_t order_matters = 0;
    for (uint32_t i = 0; i < got.n_grads; i++) {
        const float first = (g[0][i] + g[1][i]) + g[2][i], second = (g[3][i] + g[4][i]) + g[5][i];
        const float due = first + second, other = ((g[2][i] + g[1][i]) + g[0][i]) + second;
        assert_memory_equal(&got.grad[i], &due, sizeof due);
        order_matters += other != due;
    }
    assert_true(order_matters > 0);
}

// ---- other ranks: the same training -------------------------------------------------------------

static const struct ranks_case {
    const char *name;
    run_options o; // as good as 1 rank that does all its micro-batches
} ranks_cases[] = {
    {"2 ranks x 6", {.ranks = 2, .micros = 6, .dump = true}},
    {"3 ranks x 4", {.ranks = 3, .micros = 4, .dump = true}},
    {"4 ranks x 3", {.ranks = 4, .micros = 3, .dump = true}},
    {"6 ranks x 2, more ranks than some units have elements",
     {.ranks = 6, .micros = 2, .dump = true}},
    {"dropout doesn't depend on the ranks",
     {.ranks = 3, .micros = 4, .dump = true, .graph = {.dropout = 0.5}}},
    {"stage 1, 4 ranks x 3", {.ranks = 4, .micros = 3, .dump = true, .stage = STAGE_1}},
};

static void same_training(void **state)
{
    const struct ranks_case *c = *state;
    run_options alone = c->o;
    alone.ranks = 1;
    alone.micros = 12;
    run_small(&alone, &want);
    expect_trained(&alone, &want);
    run_small(&c->o, &got);
    expect_trained(&c->o, &got);
    for (uint32_t k = 0; k < filled(&c->o).steps; k++) {
        assert_true(fabs(got.report[k].loss - want.report[k].loss) < 1e-5);
        assert_true(fabs(got.report[k].grad_norm - want.report[k].grad_norm) < 1e-5);
    }
    expect_close("weight", got.weight, want.weight, want.n_weights, 2e-5);
    expect_close("gradient", got.grad, want.grad, want.n_grads, 1e-6);
}

// ---- closed forms -------------------------------------------------------------------------------

// SGD without anything: w1 = w0 - lr * factor * g, where g is what was dumped.
static void sgd_follows_the_gradient(double clip)
{
    run_options o = {
        .ranks = 2, .steps = 1, .optim = &sgd, .clip = clip, .lr = 0.01, .untrained = true};
    run_small(&o, &want);
    o.untrained = false;
    o.dump = true;
    run_small(&o, &got);
    double squares = 0;
    for (uint32_t i = 0; i < got.n_grads; i++) squares += (double)got.grad[i] * (double)got.grad[i];
    const double norm = sqrt(squares);
    assert_true(fabs(norm - got.report[0].grad_norm) < 1e-6);
    double factor = clip > 0 ? clip / (norm + 1e-6) : 1;
    if (factor > 1) factor = 1;
    for (uint32_t i = 0; i < got.n_weights; i++)
        want.weight[i] -= (float)(o.lr * factor * (double)got.grad[i]);
    expect_close("weight", got.weight, want.weight, got.n_weights, 1e-7);
}

static void not_clipped(void **state)
{
    (void)state;
    sgd_follows_the_gradient(0);
}

static void clipped(void **state)
{
    (void)state;
    sgd_follows_the_gradient(0.05);
}

static void clipping_that_is_wide_enough(void **state)
{
    (void)state;
    sgd_follows_the_gradient(1000);
}

// The running mean starts at 1: after a micro-batch (1 + mean)/2. Ranks average; the mean of what
// each rank's micro-batches give one after the other.
static void buffers_average(void **state)
{
    (void)state;
    const run_options o = {.ranks = 2, .micros = 1, .steps = 1, .graph = {.buffer = true}};
    const run_options first = {.micros = 1, .steps = 1, .graph = {.buffer = true}};
    run_small(&first, &want); // micro-batch 0 alone
    run_small(&o, &got);
    bool moved = false, differs = false;
    for (uint32_t i = 0; i < HIDDEN; i++) {
        moved = moved || fabsf(got.buffer[i] - 1) > 1e-3f;
        differs = differs || got.buffer[i] != want.buffer[i];
    }
    assert_true(moved && differs);
    // Two micro-batches on one rank: b2 = ((1 + m0)/2 + m1)/2 = b0/2 + m1/2, and on two ranks
    // (b0 + b1)/2 with b1 = (1 + m1)/2, hence b2 = mean - 1/4 + ... : m1 = 2 b1 - 1.
    const run_options two = {.micros = 2, .steps = 1, .graph = {.buffer = true}};
    static run_result seq;
    run_small(&two, &seq);
    for (uint32_t i = 0; i < HIDDEN; i++) {
        const float b0 = want.buffer[i], b1 = 2 * got.buffer[i] - b0, m1 = 2 * b1 - 1;
        assert_true(fabsf(seq.buffer[i] - (b0 + m1) / 2) < 1e-5f);
    }
}

// ---- memory -------------------------------------------------------------------------------------

static void held_bytes_follow_the_stage(void **state)
{
    (void)state;
    for (uint32_t stage = 0; stage <= 3; stage++) {
        const run_options o = {.ranks = 2, .stage = STAGE_0 + stage, .steps = 1};
        run_small(&o, &got);
        const double n = got.n_weights;
        const double whole = stage == 0 ? 16 : stage == 1 ? 8 : stage == 2 ? 4 : 0;
        const double due = whole * n + (16 - whole) * n / 2;
        // One element of pad in odd units, and the unused ones keep no state.
        assert_true(fabs((double)got.held_bytes - due) <= 16 * 6);
    }
}

static void a_planted_slot_is_caught(void **state)
{
    (void)state;
    const run_options o = {.ranks = 2, .planted = true};
    run_small(&o, &got);
    assert_non_null(strstr(got.err.cause[0], "slot"));
}

// ---- bad values ---------------------------------------------------------------------------------

static void a_label_out_of_range(void **state)
{
    (void)state;
    // Micro-batch 5 of 3 ranks x 2: rank 2's second, in the first step.
    const run_options o = {
        .ranks = 3, .micros = 2, .steps = 1, .bad_label = 5, .graph = {.buffer = true}};
    const run_options before = {
        .ranks = 3, .micros = 2, .untrained = true, .graph = {.buffer = true}};
    run_small(&before, &want);
    run_small(&o, &got);
    assert_int_equal(got.status[0], ZX_E_DATA);
    assert_string_equal(got.err.cause[0],
                        "small: node 'loss': SoftmaxCrossEntropyLoss: label 99 is "
                        "outside the 3 classes (micro-batch 5, rank 2)");
    assert_memory_equal(got.weight, want.weight, sizeof want.weight); // untouched
    assert_memory_equal(got.buffer, want.buffer, sizeof want.buffer);
}

static void a_number_that_is_not_finite(void **state)
{
    (void)state;
    const run_options good = {
        .ranks = 2, .micros = 2, .steps = 1, .graph = {.buffer = true, .blow_up = true}};
    run_options o = good;
    o.steps = 2;
    o.bad_number = 4 + 3; // second step, rank 1's second micro-batch
    run_small(&good, &want);
    run_small(&o, &got);
    assert_int_equal(got.status[1], ZX_OK);
    assert_true(got.report[0].applied && !got.report[1].applied);
    assert_memory_equal(got.weight, want.weight, sizeof want.weight);
    assert_memory_equal(got.buffer, want.buffer, sizeof want.buffer);
    // x/0 of both signs: the mean of the batch is the first NaN after the infinities.
    assert_string_equal(got.why.cause[0],
                        "small: step 2: NaN first in node 'mean': ReduceMean, tensor "
                        "'mean', micro-batch 7 (rank 1)");
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(same_cases) + ZX_COUNT(ranks_cases) + 11];
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(processes_as_threads);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_rank_dies_in_a_step);
    for (size_t i = 0; i < ZX_COUNT(same_cases); i++)
        tests[n++] = zx_case(same_cases[i].name, same_bits, &same_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(ranks_cases); i++)
        tests[n++] = zx_case(ranks_cases[i].name, same_training, &ranks_cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(sums_are_in_rank_order);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(not_clipped);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(clipped);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(clipping_that_is_wide_enough);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(buffers_average);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(held_bytes_follow_the_stage);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_planted_slot_is_caught);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_label_out_of_range);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_number_that_is_not_finite);
    return cmocka_run_group_tests_name("session", tests, NULL, NULL);
}

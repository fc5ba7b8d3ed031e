// test_passes.c - what each pass decides on circles small enough to see: rows sit on boundaries.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "sched/pass.h"
#include "tests/sched/graphs.h"

// A draft by hand: steps of one second, units of 64 bytes, a wire of 64 bytes a second.
#define STEPS 8
typedef struct bench {
    zx_arena mem;
    zx_graph g;
    zx_trace t;
    zx_plan_options o;
    zx_draft d;
    zx_param params[4];
    zx_value values[8];
    zx_use uses[8];
    uint32_t use_at[STEPS + 1], first_use[4], ready[4];
    double at[STEPS + 1];
    uint64_t unit_bytes[4], unit_elements[4];
    zx_where where[8];
    zx_storage storages[4];
    uint32_t made_in[4];
} bench;

// Units 0..3 with their gradients as values 4..7 in storages 0..3, never born.
static void start(bench *b, uint32_t micro_batches, double launch_seconds)
{
    *b = (bench){0};
    b->o = (zx_plan_options){.ranks = 2, .stage = 3, .micro_batches = micro_batches};
    // A gather of 64 bytes receives 32 from the other rank.
    b->o.machine = test_machine(1, 1, 0, 32, launch_seconds);
    for (uint32_t u = 0; u < 4; u++) {
        b->values[u] =
            (zx_value){.name = "p", .type = f32(1, 16, 0), .role = ZX_R_PARAM, .index = u};
        b->values[4 + u] = (zx_value){.name = "g", .type = f32(1, 16, 0), .role = ZX_R_MADE};
        b->params[u] = (zx_param){.value = u, .name = "p", .grad = 4 + u};
        b->unit_bytes[u] = 64;
        b->unit_elements[u] = 16;
        b->first_use[u] = b->ready[u] = ZX_NONE;
        b->where[4 + u] = (zx_where){ZX_AT_STORAGE, u};
        b->made_in[u] = ZX_NONE;
    }
    for (uint32_t s = 0; s <= STEPS; s++) b->at[s] = s;
    b->g = (zx_graph){.n_params = 4, .params = b->params, .n_values = 8, .values = b->values};
    b->t = (zx_trace){.graph = &b->g,
                      .n_steps = STEPS,
                      .micro_batches = micro_batches,
                      .at = b->at,
                      .uses = b->uses,
                      .use_at = b->use_at,
                      .first_use = b->first_use,
                      .where = b->where,
                      .storages = b->storages,
                      .grad_ready = b->ready,
                      .work = ZX_NEW(&b->mem, uint64_t, STEPS)};
    b->d = (zx_draft){.trace = &b->t,
                      .options = &b->o,
                      .mem = &b->mem,
                      .unit_bytes = b->unit_bytes,
                      .unit_elements = b->unit_elements,
                      .gathers = true,
                      .made_in = b->made_in,
                      .stays = ZX_NEW(&b->mem, zx_stay, 16),
                      .flows = ZX_NEW(&b->mem, zx_flow, 16),
                      .spans = ZX_NEW(&b->mem, zx_span, 64)};
    zx_load_make(&b->d.bytes, STEPS, &b->mem);
    zx_load_make(&b->d.elements, STEPS, &b->mem);
}

// Uses in order of steps; the distances that residency looks at.
static void set_uses(bench *b, const uint32_t (*list)[2], uint32_t n)
{
    b->t.n_uses = n;
    for (uint32_t i = 0; i < n; i++) {
        b->uses[i] = (zx_use){.step = list[i][0], .unit = list[i][1]};
        if (b->first_use[list[i][1]] == ZX_NONE) b->first_use[list[i][1]] = i;
        zx_load_add(&b->d.bytes, list[i][0], list[i][0], 64);
        zx_load_add(&b->d.elements, list[i][0], list[i][0], 16);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (i + 1) % n;
        while (b->uses[k].unit != b->uses[i].unit) k = (k + 1) % n;
        b->uses[i].next = k;
        const uint32_t to = b->uses[k].step + (k <= i ? STEPS : 0);
        b->uses[i].steps = to - b->uses[i].step - 1;
        b->uses[i].seconds = b->uses[i].steps;
    }
}

// ---- load
// -------------------------------------------------------------------------------------------------

static void test_load(void **state ZX_UNUSED)
{
    // Against an array, with spans that go around.
    zx_arena mem = {0};
    zx_load l;
    int64_t plain[13] = {0};
    zx_load_make(&l, 13, &mem);
    uint64_t r = 1;
    for (int k = 0; k < 3000; k++) {
        r = r * UINT64_C(6364136223846793005) + 1;
        const int64_t from = (int64_t)(r >> 40) % 30 - 15, n = (int64_t)(r >> 33) % 15 - 1;
        const int64_t x = (int64_t)(r >> 50) % 9 - 4;
        int64_t most = INT64_MIN;
        for (int64_t i = 0; i < n && i < 13; i++) {
            int64_t *at = &plain[((from + i) % 13 + 13) % 13];
            if (k % 2) *at += x;
            if (*at > most) most = *at;
        }
        if (k % 2) zx_load_add(&l, from, from + n - 1, x);
        assert_true(zx_load_most(&l, from, from + n - 1) == most);
    }
    zx_arena_free(&mem);
}

// ---- residency
// --------------------------------------------------------------------------------------------

// Two units forward and back: 0 at steps 0 and 7, 1 at steps 3 and 4, 2 at 1 and 6.
static const uint32_t there_and_back[6][2] = {{0, 0}, {1, 2}, {3, 1}, {4, 1}, {6, 2}, {7, 0}};

static const struct residency_case {
    const char *name;
    uint32_t micro_batches;
    uint64_t limit, live;
    double residency;
    const char *want; // stays: unit:first-last, always, in order
} residency_cases[] = {
    {"neighbours cost nothing", 1, 0, 0, 0, "0:0-0 2:1-1 1:3-4 2:6-6 0:7-7 "},
    {"room for no more than the uses take", 1, 64, 0, 1, "0:0-0 2:1-1 1:3-4 2:6-6 0:7-7 "},
    {"room for one more takes the shorter gap", 1, 128, 0, 1, "0:0-0 2:1-6 1:3-4 0:7-7 "},
    {"one byte less", 1, 127, 0, 1, "0:0-0 2:1-1 1:3-4 2:6-6 0:7-7 "},
    {"room for all", 1, 192, 0, 1, "0:0-7 2:1-6 1:3-4 "},
    {"half of the room", 1, 192, 0, 0.5, "0:0-0 2:1-6 1:3-4 0:7-7 "},
    {"the live limit counts elements", 1, 192, 32, 1, "0:0-0 2:1-6 1:3-4 0:7-7 "},
    {"no step between two micro-batches costs nothing", 2, 0, 0, 0, "2:1-1 1:3-4 2:6-6 0:7-8 "},
    {"shorter gaps first, around the circle too", 2, 128, 0, 1, "2:always 1:3-4 0:7-8 "},
    {"all stay for the whole step", 2, 192, 0, 1, "0:always 2:always 1:always "},
};

static void test_residency(void **state)
{
    const struct residency_case *k = *state;
    bench b;
    start(&b, k->micro_batches, 0);
    set_uses(&b, there_and_back, 6);
    b.o.max_live_elements = k->live;
    b.d.knobs = (zx_knobs){.limit = k->limit, .residency = k->residency};
    zx_pass_residency(&b.d);
    zx_text got = {0};
    zx_text_put(&got, "%s", "");
    for (uint32_t i = 0; i < b.d.n_stays; i++) {
        const zx_stay *s = &b.d.stays[i];
        if (s->always)
            zx_text_put(&got, "%u:always ", s->unit);
        else
            zx_text_put(&got, "%u:%d-%d ", s->unit, (int)s->first, (int)s->last);
    }
    assert_string_equal(got.at, k->want);
    zx_text_free(&got);
    zx_arena_free(&b.mem);
}

// ---- prefetch
// ---------------------------------------------------------------------------------------------

// Units 0 and 1 at step 5, unit 2 at step 6.
static const uint32_t late[3][2] = {{5, 0}, {5, 1}, {6, 2}};

static const struct prefetch_case {
    const char *name;
    uint64_t limit, launch_bytes, live;
    double launch_seconds, eager;
    uint32_t want_launch[3];
    int64_t want_issue[3];
} prefetch_cases[] = {
    // Each gather takes a second and a launch. Step 5 needs two units: 128 bytes.
    {"not eager: at the use", 999, 0, 0, 0, 0, {0, 1, 2}, {5, 5, 6}},
    {"one second each, one after the other", 999, 0, 0, 0, 1, {0, 1, 2}, {3, 4, 5}},
    {"twice as eager", 999, 0, 0, 0, 2, {0, 1, 2}, {0, 2, 4}},
    {"the memory lasts for two", 191, 0, 0, 0, 2, {0, 1, 2}, {0, 2, 6}},
    {"an earlier need keeps its memory", 128, 0, 0, 0, 1, {0, 1, 2}, {3, 4, 6}},
    {"one byte less", 127, 0, 0, 0, 1, {0, 1, 2}, {3, 5, 6}},
    {"the live limit counts elements", 999, 0, 32, 0, 1, {0, 1, 2}, {3, 4, 6}},
    {"two share a launch", 999, 128, 0, 0, 1, {0, 0, 1}, {3, 3, 5}},
    {"three do where there is room", 999, 192, 0, 0, 1, {0, 0, 0}, {2, 2, 2}},
    {"a third would not fit at step 5", 128, 192, 0, 0, 1, {0, 0, 1}, {3, 3, 6}},
    {"the cost of a launch counts", 999, 0, 0, 0.5, 1, {0, 1, 2}, {1, 3, 4}},
};

static void test_prefetch(void **state)
{
    const struct prefetch_case *k = *state;
    bench b;
    start(&b, 1, k->launch_seconds);
    set_uses(&b, late, 3);
    b.o.max_live_elements = k->live;
    zx_pass_residency(&b.d); // knobs are all zero: each use by itself
    b.d.knobs = (zx_knobs){.limit = k->limit, .eager = k->eager, .launch_bytes = k->launch_bytes};
    zx_pass_prefetch(&b.d);
    assert_int_equal(b.d.n_stays, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(b.d.stays[i].launch, k->want_launch[i]);
        assert_int_equal(b.d.stays[i].issue, k->want_issue[i]);
    }
    zx_arena_free(&b.mem);
}

// ---- gradients
// --------------------------------------------------------------------------------------------

static const struct gradient_case {
    const char *name;
    uint32_t micro_batches;
    uint64_t limit, launch_bytes, bucket;
    double eager;
    uint32_t ready[3];
    uint32_t want_launch[3];
    int64_t want_drained[3];
} gradient_cases[] = {
    // Each reduce takes a second.
    {"not eager: waited for at once", 1, 999, 0, 0, 0, {1, 2, 5}, {0, 1, 2}, {1, 2, 5}},
    {"one second each", 1, 999, 0, 0, 1, {1, 2, 5}, {0, 1, 2}, {2, 3, 6}},
    {"the wire is busy", 1, 999, 0, 0, 2, {1, 2, 5}, {0, 1, 2}, {3, 5, 7}},
    {"no memory to wait in", 1, 64, 0, 0, 1, {1, 2, 5}, {0, 1, 2}, {1, 3, 6}},
    {"together until the last is there", 1, 999, 128, 0, 1, {1, 2, 5}, {0, 0, 1}, {4, 4, 6}},
    {"a bucket of exactly two", 1, 999, 999, 32, 1, {1, 2, 5}, {0, 0, 1}, {4, 4, 6}},
    {"a bucket of one element less", 1, 999, 999, 31, 1, {1, 2, 5}, {0, 1, 2}, {2, 3, 6}},
    {"larger than the bucket: alone", 1, 999, 999, 15, 1, {1, 2, 5}, {0, 1, 2}, {2, 3, 6}},
    {"the step's end is the end", 1, 999, 0, 0, 4, {5, 6, 7}, {0, 1, 2}, {7, 7, 7}},
    {"over the boundary of two micro-batches", 2, 999, 0, 0, 2, {5, 6, 7}, {0, 1, 2}, {7, 9, 11}},
};

static void test_gradients(void **state)
{
    const struct gradient_case *k = *state;
    bench b;
    start(&b, k->micro_batches, 0);
    b.t.n_storages = 3;
    for (uint32_t u = 0; u < 3; u++) {
        b.ready[u] = k->ready[u];
        b.storages[u] = (zx_storage){.bytes = 64,
                                     .value = 4 + u,
                                     .input = ZX_NONE,
                                     .born = k->ready[u],
                                     .dies = k->ready[u]};
        zx_load_add(&b.d.bytes, k->ready[u], k->ready[u], 64);
    }
    b.o.reduce_bucket_elements = k->bucket;
    b.d.knobs = (zx_knobs){.limit = k->limit, .eager = k->eager, .launch_bytes = k->launch_bytes};
    zx_pass_gradients(&b.d);
    assert_int_equal(b.d.n_flows, 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(b.d.flows[i].launch, k->want_launch[i]);
        assert_int_equal(b.d.flows[i].drained, k->want_drained[i]);
    }
    zx_arena_free(&b.mem);
}

// ---- place
// ------------------------------------------------------------------------------------------------

static const struct place_case {
    const char *name;
    uint32_t spans[4][3]; // born, dies, bytes; 0 bytes: none
    uint64_t want;        // highest end
} place_cases[] = {
    {"one after the other share bytes", {{0, 1, 64}, {2, 3, 64}}, 64},
    {"a common step keeps them apart", {{0, 2, 64}, {2, 3, 64}}, 128},
    {"the peak is exact, addresses are aligned", {{0, 2, 64}, {2, 3, 4}}, 68},
    {"a small one goes under a large one", {{0, 3, 128}, {4, 5, 256}, {0, 5, 64}}, 320},
    {"nothing comes and goes", {{0, 0, 0}}, 0},
};

static void test_place(void **state)
{
    const struct place_case *k = *state;
    for (uint32_t order = 0; order < ZX_PLACE_ORDERS; order++) {
        bench b;
        start(&b, 1, 0);
        b.d.knobs.order = order;
        b.t.n_storages = 4;
        for (uint32_t i = 0; i < 4; i++)
            b.storages[i] = (zx_storage){.bytes = k->spans[i][2],
                                         .input = ZX_NONE,
                                         .born = k->spans[i][0],
                                         .dies = k->spans[i][1]};
        zx_pass_place(&b.d);
        if (order == 0) assert_int_equal(b.d.transient, k->want);
        for (uint32_t i = 0; i < b.d.n_spans; i++) {
            const zx_span *x = &b.d.spans[i];
            assert_int_equal(x->offset % ZX_ALIGN, 0);
            assert_true(x->offset + x->bytes <= b.d.transient);
            for (uint32_t j = 0; j < i; j++) {
                const zx_span *y = &b.d.spans[j];
                assert_true(x->to < y->from || y->to < x->from ||
                            x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset);
            }
        }
        zx_arena_free(&b.mem);
    }
}

// ---- stretch
// ----------------------------------------------------------------------------------------------

// A unit read at step 5 that wants to leave at step 3, and a gradient made at step 0 that wants to
// stay until step 2; memory for neither. The other storages decide what lies idle.
static const struct stretch_case {
    const char *name;
    uint32_t others[2][3]; // born, dies, bytes; 0 bytes: none
    int64_t want_issue, want_drained;
    uint64_t want_end;
} stretch_cases[] = {
    {"nobody else", {{0}}, 3, 2, 64},
    {"until a step before", {{3, 3, 64}}, 4, 2, 64},
    {"until the step after", {{1, 1, 64}}, 3, 0, 64},
    {"between two", {{1, 1, 64}, {4, 4, 64}}, 5, 0, 64},
    {"at another address", {{3, 3, 64}, {7, 7, 128}}, 3, 2, 128},
};

static void test_stretch(void **state)
{
    const struct stretch_case *k = *state;
    static const uint32_t use[1][2] = {{5, 0}};
    bench b;
    start(&b, 1, 0);
    set_uses(&b, use, 1);
    b.t.n_storages = 3;
    b.ready[3] = 0;
    b.where[7] = (zx_where){ZX_AT_STORAGE, 2};
    for (uint32_t i = 0; i < 2; i++)
        b.storages[i] = (zx_storage){.bytes = k->others[i][2],
                                     .input = ZX_NONE,
                                     .born = k->others[i][0],
                                     .dies = k->others[i][1]};
    b.storages[2] = (zx_storage){.bytes = 64, .input = ZX_NONE};
    zx_load_add(&b.d.bytes, 0, 0, 64);
    b.d.knobs.eager = 2;
    zx_pass_residency(&b.d);
    zx_pass_prefetch(&b.d);
    zx_pass_gradients(&b.d);
    zx_pass_place(&b.d);
    assert_int_equal(b.d.stays[0].issue, 5);
    assert_int_equal(b.d.flows[0].drained, 0);
    zx_pass_stretch(&b.d);
    assert_int_equal(b.d.stays[0].issue, k->want_issue);
    assert_int_equal(b.d.flows[0].drained, k->want_drained);
    assert_int_equal(b.d.transient, k->want_end);
    zx_arena_free(&b.mem);
}

int main(void)
{
    struct CMUnitTest tests[1 + ZX_COUNT(stretch_cases) + ZX_COUNT(residency_cases) +
                            ZX_COUNT(prefetch_cases) + ZX_COUNT(gradient_cases) +
                            ZX_COUNT(place_cases)] = {cmocka_unit_test(test_load)};
    size_t n = 1;
    for (size_t i = 0; i < ZX_COUNT(residency_cases); i++)
        tests[n++] = zx_case(residency_cases[i].name, test_residency, &residency_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(prefetch_cases); i++)
        tests[n++] = zx_case(prefetch_cases[i].name, test_prefetch, &prefetch_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(gradient_cases); i++)
        tests[n++] = zx_case(gradient_cases[i].name, test_gradients, &gradient_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(place_cases); i++)
        tests[n++] = zx_case(place_cases[i].name, test_place, &place_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(stretch_cases); i++)
        tests[n++] = zx_case(stretch_cases[i].name, test_stretch, &stretch_cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

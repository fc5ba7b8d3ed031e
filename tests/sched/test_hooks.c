// test_hooks.c - the hook-driven baseline: totals of runs of DeepSpeed, and the coordinator's
// quirks one by one.
// SPDX-License-Identifier: Apache-2.0
#include "tests/sched/hooks_model.h"

// ---- totals of further runs of the same model ---------------------------------------------------

static const char *const blocks[] = {"blocks.0", "blocks.1", "blocks.2"}, *const suffixes[] = {
                                                                              "s.0", ".1", "s.2"};

// Elements gathered, launches and the largest live count at a fetch, in the third micro-batch; how
// many fetches it has.
static const struct total_row {
    const char *name;
    zx_hooks_options o;
    zx_hook_limits l;
    int64_t elements, live;
    uint32_t launches, fetches;
} totals[] = {
    {"no prefetch, nothing kept", {0}, {0, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, 9248, 0, 24, 38},
    {"no prefetch, reuse within 1200",
     {0},
     {0, LOTS, 1200, 0, INT64_MAX, 5000, 1, false},
     8608,
     640,
     23,
     38},
    {"prefetch", {0}, {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false}, 5840, 4624, 6, 38},
    {"small ones persist",
     {0},
     {600, LOTS, 1200, 32, INT64_MAX, 5000, 2, false},
     5504,
     4352,
     6,
     38},
    {"few may live", {0}, {600, 1500, 0, 0, INT64_MAX, 600, 1, false}, 8048, 1776, 13, 38},
    {"blocks as leaves",
     {.n_names = 3, .names = blocks},
     {600, 1500, 0, 0, INT64_MAX, 5000, 1, false},
     8576,
     1760,
     14,
     14},
    {"leaves by their names' ends",
     {.n_suffixes = 3, .suffixes = suffixes},
     {600, 1500, 0, 0, INT64_MAX, 5000, 1, false},
     8576,
     1760,
     14,
     14},
    {"leaves by granularity",
     {.granularity = 288},
     {600, 1500, 0, 0, INT64_MAX, 5000, 1, false},
     8576,
     1760,
     14,
     14},
    {"the root is a leaf by granularity",
     {.granularity = 289},
     {600, 1500, 0, 0, INT64_MAX, 5000, 1, false},
     9248,
     0,
     2,
     2},
    {"blocks run again, leaving early",
     {.n_again = 3, .again = blocks},
     {0, LOTS, 0, 0, INT64_MAX, 5000, 1, false},
     10976,
     528,
     30,
     53},
    {"no module is that fine",
     {.granularity = 10},
     {600, 1500, 0, 0, INT64_MAX, 600, 1, false},
     8048,
     1776,
     13,
     38},
};

static void test_totals(void **state)
{
    const struct total_row *r = *state;
    fixture f;
    open_model(&f, "plain", &r->o);
    zx_coordinator *c = zx_coordinator_make(&f.h, &r->l, &f.mem);
    for (uint32_t i = 0; i < 3; i++)
        assert_zx_ok(zx_coordinator_run(c, f.h.events, f.h.n_events, &f.err), &f.err);
    uint32_t n, launches = 0, fetches = 0;
    const uint32_t *lists;
    const zx_decision *d = zx_coordinator_decided(c, &n, &lists);
    int64_t elements = 0, live = 0;
    for (uint32_t i = 0; i < n; i++) {
        launches += d[i].kind == ZX_DECIDED_GATHER;
        fetches += d[i].kind == ZX_DECIDED_FETCH;
        if (d[i].kind == ZX_DECIDED_GATHER) elements += d[i].elements;
        if (d[i].kind == ZX_DECIDED_FETCH && d[i].elements > live) live = d[i].elements;
    }
    assert_int_equal(elements, r->elements);
    assert_int_equal(launches, r->launches);
    assert_int_equal(live, r->live);
    assert_int_equal(fetches, r->fetches);
    close_model(&f);
}

// ---- the coordinator ----------------------------------------------------------------------------
//
// Modules a, b, c.. with parameters of the same letters, of the sizes given ("r" has none, "z"
// holds d in its depth); a stream is written as above, with '<' before a backward fetch and '>'
// before a backward release.

static const char *const letters[] = {"a", "b", "c", "d", "r", "z"};
static const uint32_t singles[] = {0, 1, 2, 3}, all_of[] = {0, 1, 2, 3};

static const struct quirk_row {
    const char *name;
    int64_t numel[4];
    zx_hook_limits l;
    const char *stream;
    uint32_t micro; // the one that is looked at
    const char
        *want; // "[ab]": a gather; "~a": a free; "{ab}": a reduce; "+a5": a fetch, live before
    bool leaf; // z is a leaf
} quirks[] = {
    {"recording frees at once, what persists too",
     {1, 2, 3, 4},
     {9, 99, 99, 1, 99, 99, 1, false},
     "+a -a +b -b <b >b <a >a",
     0,
     "+a0[a]~a +b0[b]~b +b0[b]~b +a0[a]~a",
     false},
    {"the last of a prefetch overshoots",
     {1, 2, 9, 4},
     {3, 99, 0, 0, 99, 99, 1, false},
     "+r -r +a -a +b -b +c -c +d -d <d",
     1,
     "+r0[ab] +a3[c]~a +b11[d]~b +c13~c +d4~d +d0[d]~d",
     false},
    {"demand before prefetch, in two launches",
     {1, 2, 3, 4},
     {2, 99, 0, 0, 99, 99, 1, false},
     "+a -a +b -b +c -c <c >c",
     1,
     "+a0[a][b]~a +b2[c]~b +c3~c +c0[c]~c",
     false},
    {"what is there is skipped, and counts as taken",
     {1, 2, 3, 4},
     {9, 99, 0, 0, 99, 99, 1, false},
     "+a -a +r -r <a >a",
     1,
     "+a0[a] +r1 +a1~a",
     false},
    {"taken for the very next event is not taken for later",
     {1, 2, 3, 4},
     {9, 99, 0, 0, 99, 99, 1, false},
     "+a -a <a >a",
     1,
     "+a0[a]~a +a0[a]~a",
     false},
    {"no more than may live",
     {5, 2, 3, 4},
     {9, 6, 0, 0, 99, 99, 1, false},
     "+a +b -b -a +c -c <c >c",
     1,
     "+a0[a][b] +b7~b~a +c0[c]~c +c0[c]~c",
     false},
    {"reuse is tested before a module is counted",
     {1, 2, 3, 4},
     {0, 99, 3, 0, 99, 99, 1, false},
     "+a -a +b -b +c -c +a -a <a >a",
     1,
     "+a0[a]~a +b0[b]~b +c0[c]~c +a0[a] +a1~a",
     false},
    {"within the distance it is kept",
     {1, 2, 3, 4},
     {0, 99, 6, 0, 99, 99, 1, false},
     "+a -a +b -b +c -c +a -a <a >a",
     1,
     "+a0[a] +b1[b]~b +c1[c]~c +a1 +a1~a",
     false},
    {"a model's limit passes over a large one",
     {3, 5, 2, 1},
     {0, 99, 0, 5, 6, 99, 3, false},
     "+a -a +b -b +c -c +d -d <d >d",
     1,
     "+a0[a] +b3[b]~b +c3[c] +d5[d] +d6",
     false},
    {"what persists is back after the step, uncounted",
     {1, 2, 3, 4},
     {9, 99, 0, 1, 99, 99, 1, false},
     "+a -a +b -b <b >b <a >a",
     2,
     "+a0[b] +b2~b +b0[b]~b +a0~a",
     false},
    {"what never gets a release goes at the end, newest first",
     {1, 2, 3, 4},
     {0, 99, 0, 0, 99, 99, 1, false},
     "+a -a +b -b <b <a",
     1,
     "+a0[a]~a +b0[b]~b +b0[b] +a2[a]~a~b",
     false},
    {"but what persists stays",
     {1, 2, 3, 4},
     {0, 99, 0, 1, 99, 99, 3, false},
     "+a -a <a",
     1,
     "+a0 +a0",
     false},
    {"a second fetch of a module counts once",
     {1, 2, 3, 4},
     {0, 99, 0, 0, 99, 99, 1, false},
     "+a -a <a <a >a",
     1,
     "+a0[a]~a +a0[a] +a1~a",
     false},
    {"a bucket is flushed before it overflows",
     {1, 2, 3, 4},
     {0, 99, 0, 0, 99, 3, 1, false},
     "+r <r a b c d",
     1,
     "+r0 +r0 a b{ab} c{c} d{d}",
     false},
    {"a gradient larger than the bucket goes alone",
     {1, 9, 3, 4},
     {0, 99, 0, 0, 99, 3, 1, false},
     "+r <r a b c",
     1,
     "+r0 +r0 a{a} b{b} c{c}",
     false},
    {"a module that isn't a leaf doesn't see into one",
     {1, 2, 3, 4},
     {0, 99, 99, 0, 99, 99, 1, false},
     "+d -d +z -z <z",
     1,
     "+d0[d]~d +z0[abcd] +z10~a~b~c~d",
     true},
    {"a leaf sees into all",
     {1, 2, 3, 4},
     {0, 99, 99, 0, 99, 99, 1, false},
     "+z -z +d -d <d >d",
     1,
     "+z0[abcd]~a~b~c +d4 +d4~d",
     true},
};

static zx_hook read_event(const char *w)
{
    zx_hook e = {.kind = ZX_HOOK_GRAD, .phase = ZX_BACKWARD};
    if (strchr("+<", w[0])) e.kind = ZX_HOOK_FETCH;
    if (strchr("->", w[0])) e.kind = ZX_HOOK_RELEASE;
    if (strchr("+-", w[0])) e.phase = ZX_FORWARD;
    const char letter = e.kind == ZX_HOOK_GRAD ? w[0] : w[1];
    for (uint32_t i = 0; i < ZX_COUNT(letters); i++)
        if (letters[i][0] == letter) e.id = i;
    return e;
}

static void put_decisions(const zx_coordinator *c, zx_text *t)
{
    uint32_t n;
    const uint32_t *lists;
    const zx_decision *d = zx_coordinator_decided(c, &n, &lists);
    for (uint32_t i = 0; i < n; i++, d++) {
        if (d->kind == ZX_DECIDED_FETCH)
            zx_text_put(t, "%s+%s%lld", t->n > 0 ? " " : "", letters[d->id],
                        (long long)d->elements);
        if (d->kind == ZX_DECIDED_FREE) zx_text_put(t, "~%s", letters[d->id]);
        if (d->kind == ZX_DECIDED_GRAD) zx_text_put(t, " %s", letters[d->id]);
        if (d->kind != ZX_DECIDED_GATHER && d->kind != ZX_DECIDED_REDUCE) continue;
        zx_text_put(t, d->kind == ZX_DECIDED_GATHER ? "[" : "{");
        for (uint32_t k = 0; k < d->n; k++) zx_text_put(t, "%s", letters[lists[d->first + k]]);
        zx_text_put(t, d->kind == ZX_DECIDED_GATHER ? "]" : "}");
    }
}

static void test_quirk(void **state)
{
    const struct quirk_row *r = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_text t = {0};
    zx_module modules[ZX_COUNT(letters)] = {0};
    zx_hook events[40];
    uint32_t n = 0;
    for (uint32_t i = 0; i < ZX_COUNT(letters); i++) {
        modules[i] = (zx_module){.path = letters[i], .hooked = true};
        if (i < 4) modules[i].own = modules[i].all = &singles[i];
        if (i < 4) modules[i].n_own = modules[i].n_all = 1;
    }
    modules[5].leaf = r->leaf;
    modules[5].all = all_of;
    modules[5].n_all = 4;
    for (const char *s = r->stream; *s != '\0'; s += strcspn(s, " "), s += *s == ' ')
        events[n++] = read_event(s);
    const zx_hooks h = {.n_modules = ZX_COUNT(letters),
                        .n_params = 4,
                        .n_events = n,
                        .modules = modules,
                        .params = letters,
                        .numel = r->numel,
                        .events = events};
    zx_coordinator *c = zx_coordinator_make(&h, &r->l, &mem);
    for (uint32_t i = 0; i <= r->micro; i++)
        assert_zx_ok(zx_coordinator_run(c, events, n, &err), &err);
    put_decisions(c, &t);
    assert_string_equal(t.at, r->want);
    zx_text_free(&t);
    zx_arena_free(&mem);
}

// An evaluation comes first and is recorded; the first backward pass then contradicts the record,
// and a whole micro-batch goes into a new one. What releases decided before is still believed,
// unless told not to: then a module of which the backward use was taken is kept.
static void test_evaluation_first(void **state ZX_UNUSED)
{
    static const zx_hook_mode first[] = {ZX_HOOK_RECORD, ZX_HOOK_COMPLETE, ZX_HOOK_RECORD,
                                         ZX_HOOK_COMPLETE},
                              last[] = {ZX_HOOK_RECORD, ZX_HOOK_INVALID, ZX_HOOK_RECORD,
                                        ZX_HOOK_COMPLETE};
    const zx_hooks_options o = {0};
    for (int no_memo = 0; no_memo < 2; no_memo++) {
        fixture f;
        open_model(&f, "plain", &o);
        const zx_hook_limits l = {600, LOTS, 0, 0, INT64_MAX, 5000, 1, no_memo};
        zx_coordinator *c = zx_coordinator_make(&f.h, &l, &f.mem);
        const zx_decision *d = NULL;
        uint32_t n = 0;
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t n_events = i == 0 ? f.h.n_forward : f.h.n_events;
            const uint32_t *lists;
            assert_zx_ok(zx_coordinator_run(c, f.h.events, n_events, &f.err), &f.err);
            d = zx_coordinator_decided(c, &n, &lists);
            assert_int_equal(d[0].mode, first[i]);
            uint32_t k = n;
            while (d[k - 1].kind != ZX_DECIDED_FETCH) k--;
            assert_int_equal(d[k - 1].mode, last[i]);
        }
        bool freed = false;
        for (uint32_t i = 0; i < n; i++) {
            if (d[i].kind != ZX_DECIDED_RELEASE || d[i].step != 7 ||
                strcmp(f.h.modules[d[i].id].path, "blocks.0.fc2") != 0)
                continue;
            freed = d[i + 1].kind == ZX_DECIDED_FREE;
        }
        assert_int_equal(freed, no_memo == 0);
        close_model(&f);
    }
}

// A forward pass that follows the record is no contradiction; what it prefetched for a backward
// pass that never came is freed before the next.
static void test_unused_prefetch(void **state ZX_UNUSED)
{
    const zx_hooks_options o = {0};
    const zx_hook_limits l = {600, LOTS, 0, 0, INT64_MAX, 5000, 1, false};
    fixture f;
    open_model(&f, "plain", &o);
    zx_coordinator *c = zx_coordinator_make(&f.h, &l, &f.mem);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t n_events = i == 2 ? f.h.n_forward : f.h.n_events;
        assert_zx_ok(zx_coordinator_run(c, f.h.events, n_events, &f.err), &f.err);
    }
    uint32_t n;
    const uint32_t *lists;
    const zx_decision *d = zx_coordinator_decided(c, &n, &lists);
    // What had been gathered again for backward use and not been fetched: the 5 of the last launch.
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(d[i].kind, i % 2 == 0 ? ZX_DECIDED_WAIT : ZX_DECIDED_FREE);
        assert_int_equal(d[i].event, ZX_NONE);
    }
    assert_int_equal(d[10].kind, ZX_DECIDED_FETCH);
    assert_int_equal(d[10].mode, ZX_HOOK_COMPLETE);
    assert_int_equal(d[10].elements, 0);
    assert_int_equal(d[10].event, 0);
    close_model(&f);
}

// What an evaluation leaves gathered isn't counted by the next micro-batch, yet subtracted when
// freed.
static void test_below_zero(void **state ZX_UNUSED)
{
    const zx_hooks_options o = {0};
    const zx_hook_limits l = {0, LOTS, LOTS, 0, INT64_MAX, 5000, 1, false};
    fixture f;
    open_model(&f, "plain", &o);
    zx_coordinator *c = zx_coordinator_make(&f.h, &l, &f.mem);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t n_events = i == 2 ? f.h.n_forward : f.h.n_events;
        assert_zx_ok(zx_coordinator_run(c, f.h.events, n_events, &f.err), &f.err);
    }
    uint32_t n;
    const uint32_t *lists;
    const zx_decision *d = zx_coordinator_decided(c, &n, &lists);
    int64_t least = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_not_equal(d[i].kind, ZX_DECIDED_GATHER); // all is still there
        if (d[i].kind == ZX_DECIDED_FETCH && d[i].elements < least) least = d[i].elements;
    }
    assert_int_equal(least, -(4624 - 640)); // before the embedding's backward
    close_model(&f);
}

#define ROWS(table, run)                                                                           \
    for (size_t i = 0; i < ZX_COUNT(table); i++) tests[n++] = zx_case(table[i].name, run, &table[i])

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(totals) + ZX_COUNT(quirks) + 3];
    size_t n = 0;
    ROWS(totals, test_totals);
    ROWS(quirks, test_quirk);
    tests[n++] = zx_case("an evaluation comes first", test_evaluation_first, NULL);
    tests[n++] = zx_case("a forward pass alone", test_unused_prefetch, NULL);
    tests[n++] = zx_case("the counter goes below 0", test_below_zero, NULL);
    return _cmocka_run_group_tests("hooks", tests, n, NULL, NULL);
}

// test_ckpt_made.c - checkpoints of no session: on any number of ranks, most of which may have
// nothing, what is read is what there was; where something fails there is a whole one or none.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/ckpt_runs.h"

enum { MOST_MADE = 1000 };
static const int64_t made_counts[] = {MOST_MADE, 0, 1, 3, 7, 10, 13 * 8};

static float made_value(uint32_t unit, int64_t at)
{
    return (float)(at * 7 + unit) + 0.25f;
}
static bool made_has(const void *self, zx_held what)
{
    (void)self;
    return what.kind == ZX_HELD_PARAM;
}
static zx_status made_read(const void *self, zx_held what, int64_t from, int64_t n, void *to,
                           zx_err *err)
{
    (void)self;
    (void)err;
    for (int64_t i = 0; i < n; i++) ((float *)to)[i] = made_value(what.index, from + i);
    return ZX_OK;
}

// A parameter of each count and a state of it, which is zero.
static zx_status make_one(uint32_t ranks, zx_err *err)
{
    zx_arena mem = {0};
    zx_ckpt_tensor t[2 * ZX_COUNT(made_counts)];
    char names[ZX_COUNT(made_counts)][8];
    for (uint32_t i = 0; i < ZX_COUNT(made_counts); i++) {
        const zx_type type = {ZX_F32, {.rank = 1, .dim = {made_counts[i]}}};
        snprintf(names[i], sizeof names[i], "w%u", i);
        t[2 * i] = (zx_ckpt_tensor){
            .part = "parameter", .name = names[i], .type = type, .held = {ZX_HELD_PARAM, i}};
        t[2 * i + 1] = (zx_ckpt_tensor){
            .part = "momentum", .name = names[i], .type = type, .held = {ZX_HELD_STATE_0, i}};
    }
    const zx_ckpt c = {.n = ZX_COUNT(t),
                       .tensors = t,
                       .model = "made",
                       .optimizer = "SGD",
                       .state = {.samples = 77, .seed = UINT64_C(1) << 62}};
    const zx_ckpt_target target = {.folder = folder};
    const zx_values values = {made_has, made_read, NULL};
    const char *name;
    uint64_t bytes;
    const zx_status st = zx_ckpt_make(&values, ranks, &c, &target, &mem, &name, &bytes, err);
    zx_arena_free(&mem);
    return st;
}

// Of 768 ranks most have nothing, or the one element that is left.
static void test_made(void **state)
{
    static const uint32_t ranks[] = {1, 2, 3, 4, 768};
    (void)state;
    for (size_t k = 0; k < ZX_COUNT(ranks); k++) {
        zx_arena mem = {0};
        zx_ckpt c;
        zx_err err = {0};
        float x[MOST_MADE];
        empty_folder();
        assert_zx_ok(make_one(ranks[k], &err), &err);
        assert_int_equal(newest_whole(folder), 0);
        assert_zx_ok(zx_ckpt_open(path_of(folder, "step-0"), &mem, &c, &err), &err);
        assert_int_equal(c.ranks, ranks[k]);
        for (uint32_t i = 0; i < c.n; i++) {
            const int64_t n = zx_shape_count(&c.tensors[i].type.shape);
            assert_zx_ok(zx_ckpt_read(&c, i, 0, n, x, &err), &err);
            for (int64_t e = 0; e < n; e++)
                assert_true(x[e] == (i % 2 == 0 ? made_value(i / 2, e) : 0));
        }
        zx_ckpt_close(&c);
        zx_arena_free(&mem);
    }
}

// Whatever fails, there is a whole checkpoint or none.
static void test_made_fault(void **state)
{
    (void)state;
    for (int how = FAIL; how <= KILL; how++)
        for (int k = 1, code = 0; code < 100; k += test_few() ? 5 : 1) {
            empty_folder();
            const pid_t pid = wait_fork();
            if (pid == 0) {
                zx_err err = {0};
                faults.how = (fault)how;
                faults.left = k;
                faults.armed = true;
                const zx_status st = make_one(2, &err);
                _exit(faults.left > 0 ? 100 : st == ZX_OK ? 0 : 1);
            }
            int status = 0;
            assert_int_equal(waitpid(pid, &status, 0), pid);
            code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
            assert_true(WIFEXITED(status) || how == KILL);
            const uint64_t is = newest_whole(folder);
            if (is != 0 && (is != UINT64_MAX || (WIFEXITED(status) && code != 1)))
                fail_msg("call %d: step %lld, exit code %d", k, (long long)is, code);
            if (code == 1 && is != 0 && access(path_of(folder, "step-0"), F_OK) == 0)
                fail_msg("call %d: a checkpoint that nothing names stays", k);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made),
                                       cmocka_unit_test(test_made_fault)};
    return cmocka_run_group_tests_name("ckpt_made", tests, make_folder, remove_folder);
}

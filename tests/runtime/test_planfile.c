// test_planfile.c - plans as files: back as they were, and what isn't one is refused with a
// sentence, whatever its bytes.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "runtime/planfile.h"
#include "tests/runtime/small.h"

typedef struct fixture {
    zx_arena mem;
    zx_graph train;
    zx_plan plan;
    char path[64];
    char *bytes; // of the file
    size_t n;
} fixture;

static void start(fixture *f)
{
    const run_options asked = {.ranks = 2, .micros = 2}, o = filled(&asked);
    zx_graph forward;
    zx_err err = {0};
    *f = (fixture){0};
    build_small(&f->mem, &o.graph, &forward);
    assert_zx_ok(zx_autodiff(&forward, 0.25, &f->mem, &f->train, &err), &err);
    assert_zx_ok(small_plan(&f->train, &o, &f->mem, &f->plan, &err), &err);
    snprintf(f->path, sizeof f->path, "/tmp/zerox-test-%d.plan", (int)getpid());
    assert_zx_ok(zx_plan_save(&f->plan, &f->train, "full", f->path, &f->mem, &err), &err);
    FILE *file = fopen(f->path, "rb");
    assert_non_null(file);
    f->bytes = zx_arena_alloc(&f->mem, 1, 1 << 20, 8);
    f->n = fread(f->bytes, 1, 1 << 20, file);
    fclose(file);
}

static void stop(fixture *f)
{
    unlink(f->path);
    zx_arena_free(&f->mem);
}

static zx_status load(fixture *f, const char *bytes, size_t n, zx_planfile *out, zx_err *err)
{
    *err = (zx_err){0};
    unlink(f->path); // or what is overwritten is flushed
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
    return zx_plan_load(f->path, &f->mem, out, err);
}

static void test_round(void **state ZX_UNUSED)
{
    fixture f;
    zx_planfile got;
    zx_err err = {0};
    start(&f);
    assert_zx_ok(zx_plan_load(f.path, &f.mem, &got, &err), &err);
    assert_true(zx_plan_hash(&got.plan) == zx_plan_hash(&f.plan));
    assert_string_equal(got.plan.policy, "zerox");
    assert_true(got.plan.step_seconds == f.plan.step_seconds);
    assert_true(got.plan.wire_bytes == f.plan.wire_bytes);
    assert_string_equal(got.graph, "small");
    assert_string_equal(got.recompute, "full");
    for (uint32_t i = 0; i < f.train.n_params; i++)
        assert_string_equal(got.units[i], f.train.params[i].name);
    assert_zx_ok(zx_plan_check(&f.train, &got.plan, &err), &err);
    stop(&f);
}

// The head's checksum over what follows it, as planfile.c has it.
static void seal(char *bytes, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 40; i < n; i++) h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    memcpy(bytes + 16, &h, sizeof h);
}

static void test_refused(void **state ZX_UNUSED)
{
    fixture f;
    zx_planfile got;
    zx_err err;
    start(&f);
    for (size_t n = 0; n < f.n; n += n < 64 ? 1 : 97) // cut short anywhere
        if (load(&f, f.bytes, n, &got, &err) == ZX_OK || strstr(err.cause[0], f.path) == NULL)
            fail_msg("%zu bytes: %s", n, err.cause[0]);
    assert_non_null(strstr(err.cause[0], "cut short or added to"));
    assert_int_equal(load(&f, f.bytes, f.n + 1, &got, &err), ZX_E_FORMAT);
    char *copy = zx_arena_copy(&f.mem, f.bytes, f.n + 1);
    for (size_t i = 40; i < f.n; i += 13) { // one byte is another
        copy[i] ^= 4;
        assert_int_equal(load(&f, copy, f.n, &got, &err), ZX_E_FORMAT);
        assert_non_null(strstr(err.cause[0], "checksum"));
        copy[i] ^= 4;
    }
    copy[8] = 9;
    assert_int_equal(load(&f, copy, f.n, &got, &err), ZX_E_FORMAT);
    assert_non_null(strstr(err.cause[0], "a plan file of version 9"));
    stop(&f);
}

// With a good checksum: refused, or a plan whose indices are sound, which the checker then judges.
static void test_hostile(void **state ZX_UNUSED)
{
    fixture f;
    zx_planfile got;
    zx_err err;
    uint64_t r = 7;
    uint32_t loaded = 0, good = 0;
    start(&f);
    for (int k = 0; k < 3000; k++) {
        char *copy = zx_arena_copy(&f.mem, f.bytes, f.n);
        for (int i = 0; i < 1 + k % 3; i++) {
            r = r * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            copy[8 + (r >> 33) % (f.n - 8)] = (char)(r >> 20);
        }
        seal(copy, f.n);
        if (load(&f, copy, f.n, &got, &err) != ZX_OK) continue;
        loaded++;
        good += zx_plan_check(&f.train, &got.plan, &err) == ZX_OK;
    }
    assert_true(loaded > 100 && good < loaded);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

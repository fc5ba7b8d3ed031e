// test_trace.c - what the trace says about small graphs: storages, uses, distances, and what it
// refuses.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "sched/pass.h"
#include "tests/sched/graphs.h"

typedef struct fixture {
    zx_arena mem;
    zx_graph g;
    zx_trace t;
    zx_plan_options o;
} fixture;

static zx_status trace(fixture *f, zx_err *err)
{
    f->o = (zx_plan_options){.ranks = 2, .stage = 3, .micro_batches = 2};
    f->o.machine = test_machine(1e300, 1e300, 1.0, 1, 0); // a second a step
    return zx_trace_make(&f->g, &f->o, &f->mem, &f->t, err);
}

static uint32_t product(zx_builder *b, uint32_t x, uint32_t y)
{
    return zx_build1(b, ZX_OP_MUL, (zx_attrs){0}, 2, x, y);
}

// x * a * b * a, then the mean: a is read at steps 0 and 2, b at step 1. No gradients.
static void make_line(fixture *f)
{
    zx_builder b;
    zx_builder_start(&b, &f->mem, "line");
    const zx_type in = f32(2, 3, 4);
    uint32_t x = zx_build_input(&b, "x", &in);
    const uint32_t p = add_param(&b, "a", 1, 4, 0), q = add_param(&b, "b", 2, 3, 4);
    x = product(&b, product(&b, product(&b, x, p), q), p);
    x = mean_of(&b, x);
    zx_builder_done(&b, &f->g);
    f->g.loss = x;
}

static void test_uses(void **state ZX_UNUSED)
{
    fixture f = {0};
    zx_err err = {0};
    make_line(&f);
    assert_zx_ok(trace(&f, &err), &err);
    assert_int_equal(f.t.n_steps, 4);
    assert_int_equal(f.t.n_uses, 3);
    const zx_use want[3] = {
        // step, unit, next; then between: steps, seconds, bytes of distinct others, elements
        {0, 0, 2, 1, 1.0, 48, 12},
        {1, 1, 1, 3, 3.0, 16, 8}, // around the circle: a twice, its bytes once
        {2, 0, 0, 1, 1.0, 0, 0},
    };
    for (uint32_t i = 0; i < 3; i++) {
        const zx_use *u = &f.t.uses[i];
        assert_int_equal(u->step, want[i].step);
        assert_int_equal(u->unit, want[i].unit);
        assert_int_equal(u->next, want[i].next);
        assert_int_equal(u->steps, want[i].steps);
        assert_true(u->seconds == want[i].seconds);
        assert_int_equal(u->bytes, want[i].bytes);
        assert_int_equal(u->elements, want[i].elements);
    }
    zx_arena_free(&f.mem);
}

static void test_in_place(void **state ZX_UNUSED)
{
    fixture f = {0};
    zx_err err = {0};
    make_line(&f);
    assert_zx_ok(trace(&f, &err), &err);
    // The input, the chain of products in place, and the loss.
    assert_int_equal(f.t.n_storages, 3);
    assert_int_equal(f.t.storages[1].born, 0);
    assert_int_equal(f.t.storages[1].dies, 3);
    assert_int_equal(f.t.storages[1].bytes, 48);
    assert_int_equal(f.t.storages[2].born, 3);
    zx_arena_free(&f.mem);
}

static void test_views(void **state ZX_UNUSED)
{
    fixture f = {0};
    zx_err err = {0};
    zx_builder b;
    zx_builder_start(&b, &f.mem, "view");
    const zx_type in = f32(2, 3, 4);
    const zx_shape flat = {1, {12}};
    const uint32_t x = zx_build_input(&b, "x", &in);
    const uint32_t y = zx_build1(&b, ZX_OP_TANH, (zx_attrs){0}, 1, x);
    const uint32_t v = zx_build_reshape(&b, y, &flat);
    const uint32_t z = zx_build1(&b, ZX_OP_EXP, (zx_attrs){0}, 1, v);
    const uint32_t loss =
        mean_of(&b, product(&b, z, v)); // y lives until here, so Exp isn't in place
    zx_builder_done(&b, &f.g);
    f.g.loss = loss;
    assert_zx_ok(trace(&f, &err), &err);
    assert_int_equal(f.t.n_steps, 4);
    assert_int_equal(f.t.root[v], y);
    assert_int_equal(f.t.where[v].index, f.t.where[y].index);
    assert_int_not_equal(f.t.where[z].index, f.t.where[y].index);
    assert_int_equal(f.t.storages[f.t.where[y].index].dies, 2);
    zx_arena_free(&f.mem);
}

// A buffer that becomes running statistics; `again` reads it once more afterwards.
static void make_buffer(fixture *f, bool again)
{
    zx_builder b;
    zx_err err = {0};
    zx_builder_start(&b, &f->mem, "buffer");
    const zx_type in = f32(2, 3, 4), channel = f32(1, 4, 0);
    const zx_buffer mean = {.name = "mean"}, var = {.name = "var"};
    const uint32_t x = zx_build_input(&b, "x", &in);
    const uint32_t args[5] = {x, add_param(&b, "scale", 1, 4, 0), add_param(&b, "bias", 1, 4, 0),
                              zx_build_buffer(&b, &channel, &mean),
                              zx_build_buffer(&b, &channel, &var)};
    uint32_t out[5];
    assert_zx_ok(zx_build_node(&b, ZX_OP_BATCH_NORM, args, 5, (zx_attrs){0}, NULL, out, &err),
                 &err);
    b.buffers[0].next = out[1];
    b.buffers[1].next = out[2];
    const uint32_t y = again ? product(&b, out[0], args[3]) : out[0];
    const uint32_t loss = mean_of(&b, y);
    zx_builder_done(&b, &f->g);
    f->g.loss = loss;
}

static void test_buffers(void **state ZX_UNUSED)
{
    fixture f = {0};
    zx_err err = {0};
    make_buffer(&f, false);
    assert_zx_ok(trace(&f, &err), &err);
    for (uint32_t b = 0; b < 2; b++) {
        assert_int_equal(f.t.where[f.g.buffers[b].next].kind, ZX_AT_BUFFER);
        assert_int_equal(f.t.where[f.g.buffers[b].next].index, b);
    }
    zx_arena_free(&f.mem);
}

static void test_refused(void **state ZX_UNUSED)
{
    fixture f = {0};
    zx_err err = {0};
    make_buffer(&f, true);
    assert_int_equal(trace(&f, &err), ZX_E_UNSUPPORTED);
    assert_non_null(strstr(err.cause[0], "buffer 'mean' is read again after node"));
    err = (zx_err){0};
    f.g.loss = ZX_NONE;
    assert_int_equal(trace(&f, &err), ZX_E_UNSUPPORTED);
    assert_non_null(strstr(err.cause[0], "no loss"));
    zx_arena_free(&f.mem);
}

static void test_unread(void **state ZX_UNUSED)
{
    fixture f = {0};
    zx_err err = {0};
    zx_builder b;
    zx_builder_start(&b, &f.mem, "unread");
    const zx_type in = f32(2, 3, 4);
    const uint32_t x = zx_build_input(&b, "x", &in);
    zx_build_input(&b, "unused", &in);
    add_param(&b, "unused", 1, 4, 0);
    add_param(&b, "empty", 2, 3, 0);
    const uint32_t args[1] = {x};
    uint32_t out[3];
    assert_zx_ok(zx_build_node(&b, ZX_OP_LAYER_NORM, args, 1,
                               zx_attrs_int(&f.mem, (zx_attrs){0}, ZX_A_AXIS, 1), NULL, out, &err),
                 &err);
    const uint32_t loss = mean_of(&b, out[0]);
    zx_builder_done(&b, &f.g);
    f.g.loss = loss;
    assert_zx_ok(trace(&f, &err), &err);
    assert_int_equal(f.t.where[out[1]].kind, ZX_AT_NOWHERE);
    assert_int_equal(f.t.input_at[1], ZX_NONE);
    assert_int_equal(f.t.n_uses, 0);
    assert_int_equal(f.t.first_use[0], ZX_NONE);
    zx_arena_free(&f.mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uses),    cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_views),   cmocka_unit_test(test_buffers),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_unread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

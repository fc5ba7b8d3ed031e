// test_gather.c - a lookup's gradient added into a sum: as the indices say, in place or not, with
// any number of threads.
// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/one_call.h"

enum { TABLE = 37, WIDTH = 129, LOOKUPS = 300 };

static one_call lookups(bool into_a_sum, bool in_place)
{
    one_call c = {0};
    const int64_t dy[] = {LOOKUPS, WIDTH}, table[] = {TABLE, WIDTH}, n = LOOKUPS;
    add_input(&c, shape_of(2, dy), 1, 0);
    c.in[c.n_in] = view_make(&c, ZX_I64, shape_of(1, &n), 0);
    int64_t *index = c.in[c.n_in++].data;
    for (int i = 0; i < LOOKUPS; i++)
        index[i] = (i * 11 + i / 7) % TABLE - (i % 3 == 0 ? TABLE : 0);
    if (into_a_sum) add_input(&c, shape_of(2, table), 2, 0);
    add_output(&c, ZX_F32, shape_of(2, table), 1);
    if (in_place) c.out[0] = c.in[2];
    c.attrs = zx_attrs_int(&c.mem, c.attrs, ZX_A_AXIS, 0);
    return c;
}

static void rows_are_added(void **state ZX_UNUSED)
{
    static float want[TABLE * WIDTH];
    for (int way = 0; way < 9; way++) {
        const bool sum = way >= 3, in_place = way >= 6;
        one_call c = lookups(sum, in_place);
        const float *dy = c.in[0].data;
        const int64_t *index = c.in[1].data;
        zx_err err = {0};
        for (int64_t i = 0; i < TABLE * WIDTH; i++) want[i] = sum ? some(2, i) : 0;
        for (int r = 0; r < LOOKUPS; r++)
            for (int k = 0; k < WIDTH; k++)
                want[(index[r] < 0 ? index[r] + TABLE : index[r]) * WIDTH + k] += dy[r * WIDTH + k];
        assert_zx_ok(one_call_run(&c, &zx_cpu_gather_grad, way % 3 + 1, 1, &err), &err);
        if (memcmp(want, c.out[0].data, sizeof want) != 0)
            fail_msg("%d threads, %s: other bits", way % 3 + 1, in_place ? "in place" : "beside");
        zx_arena_free(&c.mem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_added)};
    return cmocka_run_group_tests_name("gather", tests, NULL, NULL);
}

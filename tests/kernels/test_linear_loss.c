// test_linear_loss.c - a linear layer's loss made some rows at a time is what it is for those rows
// by themselves, put together, and in bf16 what it is in float32. So many classes that 64 rows are
// taken at once.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <math.h>

#include "graph/op.h"
#include "kernels/cpu/cpu.h"

enum { ROWS = 150, WIDTH = 3, CLASSES = 270000 };

static float some(uint64_t i)
{
    return (float)(i * 2654435761u >> 8 & 1023) / 512 - 1;
}

static zx_view view(zx_arena *mem, zx_dtype t, uint32_t rank, int64_t a, int64_t b)
{
    zx_view v = {NULL, {t, {rank, {a, b}}}};
    v.data = zx_arena_alloc(mem, (size_t)zx_type_bytes(&v.type) + 1, 1, ZX_ALIGN);
    return v;
}

typedef struct loss {
    zx_view in[5], out[4];
} loss;

// Operands 1, 2 and 4 rounded to bf16; in it if `half`, results too.
static void round_operands(loss *l, bool half, zx_arena *mem)
{
    static const uint32_t which[] = {1, 2, 4};
    for (uint32_t k = 0; k < 3; k++) {
        zx_view *v = &l->in[which[k]];
        const int64_t *d = v->type.shape.dim, n = zx_shape_count(&v->type.shape);
        const zx_view h = view(mem, ZX_BF16, v->type.shape.rank, d[0], d[1]);
        zx_cpu_narrow(ZX_BF16, v->data, h.data, n);
        zx_cpu_widen(ZX_BF16, h.data, v->data, n);
        if (half) *v = h;
    }
    for (uint32_t o = 1; o < 4 && half; o++) l->out[o].type.dtype = ZX_BF16;
}

typedef enum type { F32, ROUNDED, HALF } type;

// Rows [from, from + n) of the same operands.
static void run(loss *l, int64_t from, int64_t n, bool backward, type t, zx_arena *mem)
{
    zx_attrs attrs = zx_attrs_int(mem, (zx_attrs){0}, ZX_A_REDUCTION, 2);
    attrs = zx_attrs_int(mem, attrs, ZX_A_IGNORE_INDEX, -1);
    const zx_op_id op = backward ? ZX_OP_LINEAR_CROSS_ENTROPY_GRAD : ZX_OP_LINEAR_CROSS_ENTROPY;
    l->in[0] = view(mem, ZX_F32, 0, 0, 0);
    l->in[1] = view(mem, ZX_F32, 2, n, WIDTH);
    l->in[2] = view(mem, ZX_F32, 2, CLASSES, WIDTH);
    l->in[3] = view(mem, ZX_I64, 1, n, 0);
    l->in[4] = view(mem, ZX_F32, 1, CLASSES, 0);
    *(float *)l->in[0].data = 0.5f;
    for (int64_t i = 0; i < n * WIDTH; i++)
        ((float *)l->in[1].data)[i] = some((uint64_t)(from * WIDTH + i));
    for (uint64_t i = 0; i < CLASSES * WIDTH; i++) ((float *)l->in[2].data)[i] = some(7 * i + 1);
    for (uint64_t i = 0; i < CLASSES; i++) ((float *)l->in[4].data)[i] = some(3 * i);
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)l->in[3].data)[i] = (from + i) % 5 == 0 ? -1 : (from + i) * 1013 % CLASSES;
    l->out[0] = view(mem, ZX_F32, 0, 0, 0);
    l->out[1] = backward ? view(mem, ZX_F32, 2, n, WIDTH) : view(mem, ZX_F32, 1, n, 0);
    l->out[2] = view(mem, ZX_F32, 2, CLASSES, WIDTH);
    l->out[3] = view(mem, ZX_F32, 1, CLASSES, 0);
    if (t != F32) round_operands(l, t == HALF, mem);
    zx_fault fault = {0};
    zx_err err = {0};
    uint64_t work = 0;
    void *state = NULL;
    const zx_kernel *k = t == HALF ? zx_cpu_kernel_of_any(op) : zx_cpu_kernel(op);
    zx_call call = {.op = op,
                    .n_in = backward ? 5 : 4,
                    .n_out = backward ? 4 : 2,
                    .in = backward ? l->in : l->in + 1,
                    .out = l->out,
                    .attrs = &attrs,
                    .threads = 2,
                    .fault = &fault};
    assert_zx_ok(k->prepare(&call, &work, &state, &err), &err);
    if (t == F32) assert_true(work < (uint64_t)66 * CLASSES * sizeof(float) + ((uint64_t)16 << 20));
    call.work = zx_arena_alloc(mem, (size_t)work, 1, ZX_ALIGN);
    call.state = state;
    assert_zx_ok(k->run(&call, &err), &err);
    assert_int_equal(fault.kind, ZX_FAULT_NONE);
    k->release(state);
}

static float at(const zx_view *v, int64_t i)
{
    return ((const float *)v->data)[i];
}

static void pieces(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    loss whole, forward, part[3];
    run(&whole, 0, ROWS, true, F32, &mem);
    run(&forward, 0, ROWS, false, F32, &mem);
    for (int p = 0; p < 3; p++) run(&part[p], 64 * p, p < 2 ? 64 : ROWS - 128, true, F32, &mem);
    double sum = 0;
    for (int p = 0; p < 3; p++) sum += (double)at(&part[p].out[0], 0);
    assert_true(fabs(sum - (double)at(&whole.out[0], 0)) < 1e-6 * sum);
    assert_true(fabs(sum - (double)at(&forward.out[0], 0)) < 1e-6 * sum);
    for (int64_t i = 0; i < ROWS * WIDTH; i++) {
        const double want = (double)at(&part[i / (64 * WIDTH)].out[1], i % (64 * WIDTH));
        if (!(fabs((double)at(&whole.out[1], i) - want) <= 1e-6)) fail_msg("dx[%d]", (int)i);
    }
    for (uint32_t o = 2; o < 4; o++)
        for (int64_t i = 0; i < CLASSES * (o == 2 ? WIDTH : 1); i++) {
            double want = 0;
            for (int p = 0; p < 3; p++) want += (double)at(&part[p].out[o], i);
            if (!(fabs((double)at(&whole.out[o], i) - want) <= 1e-6))
                fail_msg("output %u[%d] is %g, its parts' sum %g", o, (int)i,
                         (double)at(&whole.out[o], i), want);
        }
    zx_arena_free(&mem);
}

// Gradients of the scores are rounded to 8 bits before they are multiplied, and so are results.
static void halves(void **state ZX_UNUSED)
{
    zx_arena mem = {0};
    loss single, half;
    run(&single, 0, ROWS, true, ROUNDED, &mem);
    run(&half, 0, ROWS, true, HALF, &mem);
    const double want = (double)at(&single.out[0], 0);
    assert_true(fabs((double)at(&half.out[0], 0) - want) <= 1e-5 * want);
    for (uint32_t o = 1; o < 4; o++) {
        const int64_t n = zx_shape_count(&single.out[o].type.shape);
        double most = 0, worst = 0;
        for (int64_t i = 0; i < n; i++) {
            float x;
            zx_cpu_widen(ZX_BF16, (const uint16_t *)half.out[o].data + i, &x, 1);
            most = fmax(most, fabs((double)at(&single.out[o], i)));
            const double off = fabs((double)x - (double)at(&single.out[o], i));
            if (!(off <= worst)) worst = off;
        }
        if (!(worst <= 0.008 * most)) fail_msg("output %u: off by %g of %g", o, worst, most);
    }
    zx_arena_free(&mem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(pieces), cmocka_unit_test(halves)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

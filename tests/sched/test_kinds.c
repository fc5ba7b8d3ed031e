// test_kinds.c - what operators of a host take by the rate of their kind: amounts, which operators
// are of a kind, and how that goes with products and memory.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "sched/trace.h"
#include "tests/op_text.h"
#include "tests/test.h"

// A node of `op` alone; its seconds on a machine.
static double seconds_of(uint32_t op, const char *inputs, const char *attrs, const zx_machine *m)
{
    zx_arena mem = {0};
    zx_builder b;
    zx_graph g;
    zx_err err = {0};
    zx_cost cost;
    op_arg args[8];
    uint32_t in[8], out[8];
    const uint32_t n = op_text_args(inputs, args, 8);
    zx_builder_start(&b, &mem, "one");
    for (uint32_t i = 0; i < n; i++) in[i] = zx_build_input(&b, "x", &args[i].type);
    assert_zx_ok(
        zx_build_node(&b, (zx_op_id)op, in, n, op_text_attrs(attrs, &mem), NULL, out, &err), &err);
    zx_builder_done(&b, &g);
    const double seconds = zx_trace_seconds(&g, &g.nodes[g.n_nodes - 1], m, &cost);
    zx_arena_free(&mem);
    return seconds;
}

#define QKV "f32[2,100,48]"
static const struct amount_case {
    const char *name;
    uint32_t op;
    const char *inputs, *attrs;
    uint32_t kind; // ZX_NONE: of none
    double amount;
} amounts[] = {
    {"elements", ZX_OP_GELU, "f32[3,5]", "", ZX_KIND_GELU, 15},
    {"by its mode", ZX_OP_GELU, "f32[3,5]", "MODE=1", ZX_KIND_GELU_TANH, 15},
    {"another operator's", ZX_OP_EXP, "f32[3,5]", "", ZX_KIND_SILU, 15},
    {"another's, by its mode", ZX_OP_GLU, "f32[3,5] f32[3,5]", "MODE=1", ZX_KIND_GELU, 15},
    {"elements of what is read", ZX_OP_AVG_POOL, "f32[1,2,4,4]",
     "KERNEL_SHAPE=4,4 STRIDES=4,4 PADS=0,0,0,0 DILATIONS=1,1 SHAPE=1,2,1,1", ZX_KIND_AVG_POOL, 32},
    {"looks at elements", ZX_OP_MAX_POOL, "f32[1,2,4,4]",
     "KERNEL_SHAPE=4,4 STRIDES=4,4 PADS=0,0,0,0 DILATIONS=1,1 SHAPE=1,2,1,1", ZX_KIND_MAX_POOL,
     2 * 16},
    {"bytes", ZX_OP_MATMUL, "f32[3,5] f32[5,7]", "", ZX_KIND_MATMUL, 4 * (15 + 35 + 21)},
    {"scores", ZX_OP_PACKED_ATTENTION, QKV, "HEADS=4 KV_HEADS=4", ZX_KIND_ATTENTION,
     2 * 4 * 100 * (100 + 50)},
    {"scores below the diagonal, in tiles", ZX_OP_PACKED_ATTENTION, QKV,
     "HEADS=4 KV_HEADS=4 CAUSAL=1", ZX_KIND_ATTENTION, 2 * 4 * 100 * (82 + 50)},
    {"scores of one tile", ZX_OP_PACKED_ATTENTION, "f32[2,60,48]", "HEADS=4 KV_HEADS=4 CAUSAL=1",
     ZX_KIND_ATTENTION, 2 * 4 * 60 * (60 + 50)},
    {"scores with other keys", ZX_OP_ATTENTION, "f32[2,4,10,8] f32[2,2,30,8] f32[2,2,30,8]", "",
     ZX_KIND_ATTENTION, 2 * 4 * 10 * (30 + 60)},
    {"scores of rows of heads", ZX_OP_ATTENTION, "f32[2,10,32] f32[2,30,32] f32[2,30,32]",
     "HEADS=4 KV_HEADS=4", ZX_KIND_ATTENTION, 2 * 4 * 10 * (30 + 60)},
    {"scores of a gradient", ZX_OP_ATTENTION_GRAD,
     "f32[2,4,10,8] f32[2,4,10,8] f32[2,4,30,8] f32[2,4,30,8] f32[2,4,10,8] f32[2,4,10]", "",
     ZX_KIND_ATTENTION_GRAD, 2 * 4 * 10 * (30 + 60)},
    {"classes", ZX_OP_LINEAR_CROSS_ENTROPY, "f32[9,3] f32[5,3] i64[9]", "REDUCTION=1",
     ZX_KIND_LINEAR_CROSS_ENTROPY, 9 * (5 + 256)},
    {"classes beside each other", ZX_OP_LINEAR_CROSS_ENTROPY_GRAD, "f32[] f32[9,3] f32[3,5] i64[9]",
     "REDUCTION=1 TRANS_B=0", ZX_KIND_LINEAR_CROSS_ENTROPY_GRAD, 9 * (5 + 256)},
    {"of no kind", ZX_OP_ADD, "f32[3,5] f32[3,5]", "", ZX_NONE, 0},
};

// Nothing but this kind takes time.
static void test_amount(void **state)
{
    const struct amount_case *k = *state;
    zx_machine m = {.flops = 1e300, .flops_16 = 1e300, .memory = 1e300, .cores = 1, .threads = 1};
    for (uint32_t i = 0; i < ZX_KIND_COUNT; i++) m.rates[i] = i == k->kind ? 0.5 : 1e300;
    const double seconds = seconds_of(k->op, k->inputs, k->attrs, &m);
    if (fabs(seconds - 2 * k->amount) > 1e-9 * k->amount + 1e-200)
        fail_msg("%g seconds in place of %g", seconds, 2 * k->amount);
    m.rates[k->kind != ZX_NONE ? k->kind : 0] = 0; // unknown
    assert_true(seconds_of(k->op, k->inputs, k->attrs, &m) < 1e-200);
    m.rates[k->kind != ZX_NONE ? k->kind : 0] = 0.5;
    m.cores = 0; // no host
    assert_true(seconds_of(k->op, k->inputs, k->attrs, &m) < 1e-200);
}

// A product [2,3] x [3,4]: 48 operations, 26 numbers.
static const struct sum_case {
    const char *name;
    double flops, memory, rate, seconds;
} sums[] = {
    {"its kind comes on top of products", 48, 1e300, 104, 2.25},
    {"memory is the longer", 48, 26, 104, 4.25},
    {"a kind without a rate", 48, 1e300, 0, 1.25},
};

static void test_sum(void **state)
{
    const struct sum_case *k = *state;
    zx_machine m = {.flops = k->flops, .flops_16 = 1e300, .memory = k->memory};
    m.cores = m.threads = 1;
    m.op_seconds = 0.25;
    m.rates[ZX_KIND_MATMUL] = k->rate;
    assert_true(seconds_of(ZX_OP_MATMUL, "f32[2,3] f32[3,4]", "", &m) == k->seconds);
}

// An addition of 3 x 100 bytes; 200 of a cache of 1600 are found there.
static const struct near_case {
    const char *name;
    double near, cache, cores, seconds;
} nears[] = {
    {"all of it lies near", 100, 2400, 1, 3},
    {"what is left doesn't", 100, 1600, 1, 2 + 10},
    {"unknown how fast", 0, 1600, 1, 30},
    {"slower than the rest", 5, 1600, 1, 30},
    {"no host", 100, 2400, 0, 30},
};

static void test_near(void **state)
{
    const struct near_case *k = *state;
    zx_machine m = {.flops = 1e300, .flops_16 = 1e300, .memory = 10, .near = k->near};
    m.cache = k->cache;
    m.cores = k->cores;
    assert_true(seconds_of(ZX_OP_ADD, "f32[25] f32[25]", "", &m) == k->seconds);
}

// Of 48 operations and, in 16 bits, 52 bytes, whose kind takes 1/2 s; float32 rates say otherwise.
static const struct low_case {
    const char *name;
    uint32_t op;
    const char *inputs, *attrs;
    double seconds;
} lows[] = {
    {"bf16: products by neither turned", ZX_OP_MATMUL, "bf16[2,3] bf16[3,4]", "", 48 / 4.0 + 0.5},
    {"bf16: by b turned", ZX_OP_MATMUL, "bf16[2,3] bf16[4,3]", "TRANS_B=1", 48 / 8.0 + 0.5},
    {"bf16: of a turned", ZX_OP_MATMUL, "bf16[3,2] bf16[3,4]", "TRANS_A=1", 48 / 2.0 + 0.5},
    {"fp16 has its own", ZX_OP_MATMUL, "f16[2,3] f16[3,4]", "", 48 / 16.0 + 0.5},
    {"float32 too", ZX_OP_MATMUL, "f32[2,3] f32[3,4]", "", 48 / 32.0 + 104},
    {"bf16: elementwise", ZX_OP_ADD, "bf16[25] bf16[25]", "", 150 / 4.0},
    {"float32: elementwise", ZX_OP_ADD, "f32[25] f32[25]", "", 300 / 100.0},
};

static void test_low(void **state)
{
    const struct low_case *k = *state;
    zx_machine m = {.flops = 32, .flops_16 = 1, .memory = 100, .cores = 1, .threads = 1};
    const bool moves = k->op == ZX_OP_ADD;
    m.bf16 = (zx_rates_16){.flops = 4, .flops_nt = 8, .flops_tn = 2, .memory = moves ? 4 : 1e300};
    m.fp16 = (zx_rates_16){.flops = 16, .memory = 1e300};
    m.rates[ZX_KIND_MATMUL] = 1;
    m.bf16.rates[ZX_KIND_MATMUL] = m.fp16.rates[ZX_KIND_MATMUL] = 104;
    if (moves) m.flops = 1e300;
    const double seconds = seconds_of(k->op, k->inputs, k->attrs, &m);
    if (fabs(seconds - k->seconds) > 1e-9) fail_msg("%g seconds", seconds);
    m.cores = 0; // no host: all is of flops_16
    if (k->inputs[0] != 'f' || k->inputs[1] == '1')
        assert_true(seconds_of(k->op, k->inputs, k->attrs, &m) == (moves ? 25 : 48));
}

// Adding and updates are those of the gradients' type, and products without a rate flops_16.
static void test_type(void **state ZX_UNUSED)
{
    zx_machine m = {.flops = 2, .flops_16 = 1, .sum = 1, .update = 2, .cores = 1, .threads = 1};
    m.bf16 = (zx_rates_16){.flops = 4, .sum = 5, .update = 6};
    m.memory = 1e300;
    assert_true(zx_machine_in(&m, ZX_BF16).sum == 5 && zx_machine_in(&m, ZX_BF16).update == 6);
    assert_true(zx_machine_in(&m, ZX_F16).sum == 1 && zx_machine_in(&m, ZX_F32).update == 2);
    assert_true(seconds_of(ZX_OP_MATMUL, "f16[2,3] f16[3,4]", "", &m) == 48);
    assert_true(seconds_of(ZX_OP_MATMUL, "bf16[2,3] bf16[4,3]", "TRANS_B=1", &m) == 12);
}

int main(void)
{
    struct CMUnitTest
        tests[ZX_COUNT(amounts) + ZX_COUNT(sums) + ZX_COUNT(nears) + ZX_COUNT(lows) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(amounts); i++)
        tests[n++] = zx_case(amounts[i].name, test_amount, &amounts[i]);
    for (size_t i = 0; i < ZX_COUNT(sums); i++)
        tests[n++] = zx_case(sums[i].name, test_sum, &sums[i]);
    for (size_t i = 0; i < ZX_COUNT(nears); i++)
        tests[n++] = zx_case(nears[i].name, test_near, &nears[i]);
    for (size_t i = 0; i < ZX_COUNT(lows); i++)
        tests[n++] = zx_case(lows[i].name, test_low, &lows[i]);
    tests[n++] = zx_case("the type of gradients", test_type, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

// test_dropout.c - which elements Dropout keeps: a function of seed, step, global micro-batch and
// node, whatever the ranks and the plan.
//
// Six elements, three a node, each with its own place in the loss: element k of micro-batch m adds
// 2^(4k+m) where it is kept, so that the loss of a step of 4 micro-batches, times 4, is the mask of
// all of them. The gradient of what goes into a node shows the mask of the backward pass.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>

enum { ELEMENTS = 6, EACH = 3, MICROS = 4, STEPS = 12 };

static void make_files(void)
{
    const int64_t xs[] = {1, EACH}, ks[] = {EACH};
    const float half = 0.5f, ones[EACH] = {1, 1, 1};
    const uint8_t yes = 1;
    float places[2][EACH];
    for (int k = 0; k < ELEMENTS; k++) places[k / EACH][k % EACH] = (float)pow(2, 4 * k - 1);
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    zx_onnx_initializer(&n.out, "half", &(zx_type){.dtype = ZX_F32}, &half);
    zx_onnx_initializer(&n.out, "yes", &(zx_type){.dtype = ZX_BOOL}, &yes);
    for (int i = 0; i < 2; i++) {
        const char *const p[] = {"p0", "p1"}, *const w[] = {"w0", "w1"};
        const char *const in[] = {"in0", "in1"}, *const y[] = {"y0", "y1"};
        const char *const z[] = {"z0", "z1"}, *const sum[] = {"sum0", "sum1"};
        holds_net_floats(&n, p[i], "PARAMETER", 1, ks, ones);
        holds_net_floats(&n, w[i], NULL, 1, ks, places[i]);
        holds_net_node(&n, "Mul", in[i], p[i], "x", NULL);
        holds_net_node(&n, "Dropout", y[i], in[i], "half", "yes"); // kept: times 2
        holds_net_node(&n, "Mul", z[i], y[i], w[i], NULL);
        zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceSum", sum[i], z[i], NULL, NULL),
                         "keepdims", 0);
    }
    holds_net_node(&n, "Add", "loss", "sum0", "sum1", NULL);
    holds_net_done(&n, "loss", "mask.onnx");
    float x[STEPS * MICROS][EACH];
    for (int m = 0; m < STEPS * MICROS; m++)
        for (int k = 0; k < EACH; k++) x[m][k] = (float)(1 << m % MICROS);
    holds_npy("x.npy", ZX_F32, 2, (const int64_t[]){STEPS * MICROS, EACH}, x);
}

typedef struct masks { // bit 4k+m of a step: element k of micro-batch m was kept
    uint32_t forward[STEPS], backward;
} masks;

static void read_masks(const char *name, masks *out)
{
    holds_row log[HOLDS_ROWS];
    assert_int_equal(holds_log(name, log), STEPS);
    for (int s = 0; s < STEPS; s++) {
        const double bits = log[s].loss * MICROS;
        assert_true(bits >= 0 && bits < 0x1p24 && bits == floor(bits));
        out->forward[s] = (uint32_t)bits;
    }
    holds_tensors g; // element k: sum over m of 2^m 2^(4k) / 4 where kept
    float of[ELEMENTS];
    holds_open(&g, "%s.grads.safetensors", name);
    holds_floats(&g, "p0", EACH, of);
    holds_floats(&g, "p1", EACH, of + EACH);
    holds_close(&g);
    out->backward = 0;
    for (int k = 0; k < ELEMENTS; k++) out->backward |= (uint32_t)(of[k] * MICROS);
}

static void run(const char *name, int ranks, int stage, int seed, const char *options, masks *out)
{
    char config[512];
    const int n = snprintf(config, sizeof config,
                           "{\"gradient_accumulation_steps\": %d, \"optimizer\": {\"type\": "
                           "\"SGD\", \"params\": {\"lr\": 0}}, "
                           "\"zero_optimization\": {\"stage\": %d}}",
                           MICROS / ranks, stage);
    holds_write("mask.json", config, (size_t)n);
    holds_train(name,
                "mask.onnx --config mask.json --data x=x.npy --ranks %d --steps %d --seed %d "
                "--dump-grads %s.grads.safetensors %s",
                ranks, STEPS, seed, name, options);
    read_masks(name, out);
}

static const struct row {
    const char *name;
    int ranks, stage;
    const char *options;
} rows[] = {
    {"1 rank x 4, stage 0", 1, 0, ""},
    {"1 rank x 4, 2 threads", 1, 3, "--threads 2"},
    {"1 rank x 4, the least budget", 1, 3, "--budget min"},
    {"2 ranks x 2", 2, 3, ""},
    {"2 ranks x 2, stage 1", 2, 1, ""},
    {"2 ranks x 2, the least budget", 2, 3, "--budget min"},
    {"2 ranks x 2, no overlap", 2, 2, "--no-overlap"},
    {"4 ranks", 4, 3, ""},
    {"4 ranks, stage 0", 4, 0, ""},
};

static masks first; // 1 rank x 4, stage 3

static void same_masks(void **state)
{
    const struct row *r = *state;
    char name[32];
    masks m;
    snprintf(name, sizeof name, "mask-%d", (int)(r - rows));
    run(name, r->ranks, r->stage, 1, r->options, &m);
    assert_memory_equal(&m, &first, sizeof m);
}

static void backward_as_forward(void **state)
{
    (void)state;
    assert_int_equal(first.backward, first.forward[0]);
}

static uint32_t ones_of(uint32_t x)
{
    uint32_t n = 0;
    for (; x != 0; x &= x - 1) n++;
    return n;
}

// About half of 288; steps, micro-batches, nodes and seeds have masks of their own.
static void masks_differ(void **state)
{
    (void)state;
    uint32_t kept = 0, by_micro[MICROS] = {0}, by_node[2] = {0};
    for (int s = 0; s < STEPS; s++) {
        kept += ones_of(first.forward[s]);
        for (int t = 0; t < s; t++) assert_true(first.forward[s] != first.forward[t]);
        for (int m = 0; m < MICROS; m++) {
            const uint32_t of = first.forward[s] >> m & 0x111111u;
            by_micro[m] = by_micro[m] * 31 + of;
            by_node[0] = by_node[0] * 31 + (of & 0x111u);
            by_node[1] = by_node[1] * 31 + (of >> 12);
        }
    }
    assert_true(kept > 144 - 40 && kept < 144 + 40);
    for (int m = 0; m < MICROS; m++)
        for (int o = 0; o < m; o++) assert_true(by_micro[m] != by_micro[o]);
    assert_true(by_node[0] != by_node[1]);
    masks other;
    run("mask-seed", 1, 3, 2, "", &other);
    assert_memory_not_equal(other.forward, first.forward, sizeof other.forward);
}

// ---- a whole model: rounding apart, the split of a step's micro-batches doesn't matter
// -----------

static void splits_agree(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 4};
    holds_row log[3][HOLDS_ROWS];
    for (int i = 0; i < 3; i++) {
        char name[32], config[256];
        const int n = snprintf(config, sizeof config,
                               "{\"gradient_accumulation_steps\": %d, \"zero_optimization\": "
                               "{\"stage\": 3}}",
                               MICROS / ranks[i]);
        holds_write("byte.json", config, (size_t)n);
        snprintf(name, sizeof name, "byte-%d", ranks[i]);
        holds_train(name,
                    ZX_SOURCE "/models/bytegpt/model.onnx --config byte.json --ranks %d --steps 3 "
                              "--data input_ids=" ZX_SOURCE "/models/bytegpt/text.txt "
                              "--data labels=" ZX_SOURCE "/models/bytegpt/text.txt:+1",
                    ranks[i]);
        assert_int_equal(holds_log(name, log[i]), 3);
    }
    for (int i = 1; i < 3; i++)
        for (int s = 0; s < 3; s++) {
            const double loss = log[i][s].loss / log[0][s].loss - 1;
            const double norm = log[i][s].grad_norm / log[0][s].grad_norm - 1;
            if (!(fabs(loss) < 2e-6 && fabs(norm) < 2e-5))
                fail_msg("%d ranks, step %d: loss off by %.1e, norm by %.1e", ranks[i], s + 1, loss,
                         norm);
        }
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    make_files();
    run("mask", 1, 3, 1, "", &first);
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 3];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, same_masks, &rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(backward_as_forward);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(masks_differ);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(splits_agree);
    return cmocka_run_group_tests_name("dropout", tests, setup, holds_teardown);
}

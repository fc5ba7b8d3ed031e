// test_running.c - running statistics, by hand: a rank applies its own micro-batches in order to a
// copy; at the end of the step the copies are averaged.
//
// x [4, 3] -> BatchNormalization -> mean of squares. Nothing but the data decides the statistics.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>

enum { MICRO = 4, CHANNELS = 3, MICROS = 24, STEPS = 2, MOST_RANKS = 4 };
static const float first_mean[CHANNELS] = {0.5f, -1, 2}, first_var[CHANNELS] = {1, 0.25f, 3};

typedef struct statistics {
    double mean[CHANNELS], var[CHANNELS];
} statistics;

static float input_of(int micro, int sample, int channel)
{
    return (float)(channel + 1) * sinf((float)(13 * micro + 5 * sample + 3 * channel)) +
           0.25f * (float)(micro % 5);
}

// ---- models
// --------------------------------------------------------------------------------------

static void make_model(const char *path, bool training, double momentum, bool stated)
{
    const int64_t xs[] = {-1, CHANNELS}, c[] = {CHANNELS};
    const float scale[CHANNELS] = {1, 2, 0.5f}, bias[CHANNELS] = {0.125f, 0, -1};
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    holds_net_floats(&n, "scale", stated ? "PARAMETER" : NULL, 1, c, scale);
    holds_net_floats(&n, "bias", stated ? "PARAMETER" : NULL, 1, c, bias);
    holds_net_floats(&n, "running_mean", stated ? "BUFFER" : NULL, 1, c, first_mean);
    holds_net_floats(&n, "running_var", stated ? "BUFFER" : NULL, 1, c, first_var);
    const char *const in[] = {"x", "scale", "bias", "running_mean", "running_var"};
    const char *const out[] = {"y", "next_mean", "next_var"};
    Onnx__NodeProto *bn =
        zx_onnx_node(&n.out, "BatchNormalization", "bn", 5, in, training ? 3 : 1, out);
    zx_onnx_node_float(&n.out, bn, "momentum", (float)momentum);
    if (training) zx_onnx_node_int(&n.out, bn, "training_mode", 1);
    holds_net_node(&n, "Mul", "square", "y", "y", NULL);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceMean", "loss", "square", NULL, NULL),
                     "keepdims", 0);
    holds_net_done(&n, "loss", path);
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    make_model("inference.onnx", false, 0.9, true);
    make_model("unstated.onnx", false, 0.7, false);
    make_model("training.onnx", true, 0.75, true);
    static float x[MICROS][MICRO][CHANNELS];
    for (int m = 0; m < MICROS; m++)
        for (int i = 0; i < MICRO; i++)
            for (int c = 0; c < CHANNELS; c++) x[m][i][c] = input_of(m, i, c);
    holds_npy("x.npy", ZX_F32, 2, (const int64_t[]){MICROS * MICRO, CHANNELS}, x);
    return 0;
}

// ---- by hand
// -------------------------------------------------------------------------------------

static void apply(statistics *s, int micro, double momentum, bool unbiased)
{
    for (int c = 0; c < CHANNELS; c++) {
        double mean = 0, squares = 0;
        for (int i = 0; i < MICRO; i++) mean += (double)input_of(micro, i, c) / MICRO;
        for (int i = 0; i < MICRO; i++) squares += pow((double)input_of(micro, i, c) - mean, 2);
        s->mean[c] = momentum * s->mean[c] + (1 - momentum) * mean;
        s->var[c] =
            momentum * s->var[c] + (1 - momentum) * squares / (unbiased ? MICRO - 1 : MICRO);
    }
}

static void step(statistics *s, int step, int ranks, int accumulate, double momentum, bool unbiased)
{
    statistics mean = {{0}, {0}};
    for (int r = 0; r < ranks; r++) {
        statistics copy = *s;
        for (int a = 0; a < accumulate; a++)
            apply(&copy, (step * accumulate + a) * ranks + r, momentum, unbiased);
        for (int c = 0; c < CHANNELS; c++) {
            mean.mean[c] += copy.mean[c] / ranks;
            mean.var[c] += copy.var[c] / ranks;
        }
    }
    *s = mean;
}

static const struct row {
    const char *name, *model;
    double momentum;
    bool unbiased, as_exported;
    int ranks, accumulate, stage;
    const char *options;
} rows[] = {
    {"inference form: unbiased", "inference", 0.9, true, false, 1, 1, 3, ""},
    {"one rank, 3 micro-batches in order", "inference", 0.9, true, false, 1, 3, 3, ""},
    {"2 ranks", "inference", 0.9, true, false, 2, 1, 3, ""},
    {"2 ranks x 3", "inference", 0.9, true, false, 2, 3, 3, "--budget min"},
    {"3 ranks x 2, stage 0", "inference", 0.9, true, false, 3, 2, 0, ""},
    {"4 ranks, no overlap", "inference", 0.9, true, false, 4, 1, 3, "--no-overlap"},
    {"a file that states nothing", "unstated", 0.7, true, false, 2, 2, 1, ""},
    {"training form: population", "training", 0.75, false, false, 1, 2, 3, ""},
    {"training form, 3 ranks x 2", "training", 0.75, false, false, 3, 2, 2, ""},
    {"as exported: nothing moves", "inference", 1, true, true, 2, 1, 3, ""},
};

static void by_hand(void **state)
{
    const struct row *r = *state;
    char name[32], config[512];
    snprintf(name, sizeof name, "running-%d", (int)(r - rows));
    const int n = snprintf(config, sizeof config,
                           "{\"train_micro_batch_size_per_gpu\": %d, "
                           "\"gradient_accumulation_steps\": %d, "
                           "\"zero_optimization\": {\"stage\": %d}%s}",
                           MICRO, r->accumulate, r->stage,
                           r->as_exported ? ", \"zerox\": {\"batch_norm\": \"as_exported\"}" : "");
    holds_write("running.json", config, (size_t)n);
    holds_train(name, "%s.onnx --data x=x.npy --config running.json --ranks %d --steps %d %s",
                r->model, r->ranks, STEPS, r->options);
    statistics want;
    for (int c = 0; c < CHANNELS; c++) {
        want.mean[c] = (double)first_mean[c];
        want.var[c] = (double)first_var[c];
    }
    for (int s = 0; s < STEPS && !r->as_exported; s++)
        step(&want, s, r->ranks, r->accumulate, r->momentum, r->unbiased);
    holds_tensors saved;
    float mean[CHANNELS], var[CHANNELS], scale[CHANNELS];
    holds_open(&saved, "%s/model.safetensors", name);
    holds_floats(&saved, "running_mean", CHANNELS, mean);
    holds_floats(&saved, "running_var", CHANNELS, var);
    holds_floats(&saved, "scale", CHANNELS, scale);
    holds_close(&saved);
    for (int c = 0; c < CHANNELS; c++) {
        if (!(fabs((double)mean[c] - want.mean[c]) <= 1e-6 * fmax(1, fabs(want.mean[c]))))
            fail_msg("mean of %d is %.9g, %.9g was due", c, (double)mean[c], want.mean[c]);
        if (!(fabs((double)var[c] - want.var[c]) <= 1e-6 * fmax(1, want.var[c])))
            fail_msg("variance of %d is %.9g, %.9g was due", c, (double)var[c], want.var[c]);
    }
    assert_true(scale[0] != 1); // trained
}

// Of one value there is no unbiased variance; saving NaN would be no answer.
static void one_value_a_channel(void **state)
{
    (void)state;
    assert_int_equal(holds_zerox("one", "train inference.onnx --data x=x.npy --steps 1 --out one"),
                     3);
    assert_true(holds_says("one.err", "node 'bn'"));
    assert_true(holds_says("one.err", "a larger micro-batch"));
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    for (size_t i = 0; i < ZX_COUNT(rows); i++) tests[i] = zx_case(rows[i].name, by_hand, &rows[i]);
    tests[ZX_COUNT(rows)] = (struct CMUnitTest)cmocka_unit_test(one_value_a_channel);
    return cmocka_run_group_tests_name("running", tests, setup, holds_teardown);
}

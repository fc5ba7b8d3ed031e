// test_eval.c - evaluation: every sample counts once on any number of ranks, nothing is dropped,
// and training doesn't notice.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>

#define DIGITS ZX_SOURCE "/models/digits/model.onnx" // batches of 32, normalised by batch
#define MLP ZX_TEST_DATA "/cases/mlp/model.onnx"     // batches of 32
#define EVAL " --eval-data x=ex.npy --eval-data labels=ey.npy"

enum { EVEN = 64, REST = 6, SAMPLES = EVEN + REST };

// Samples from number `first` on of a .npy file as a file of their own.
static void cut(const char *from, int first, const char *to, zx_dtype t, uint32_t rank,
                const int64_t *dims)
{
    size_t n, each = zx_dtype_bytes(t);
    char *bytes = holds_read(from, &n);
    for (uint32_t i = 0; i < rank; i++) each *= (size_t)dims[i];
    const size_t head = 10 + (size_t)((unsigned char)bytes[8] | (unsigned char)bytes[9] << 8) +
                        (size_t)first * each / (size_t)dims[0];
    assert_true(head + each <= n);
    char *data = malloc(each); // aligned
    assert_non_null(data);
    memcpy(data, bytes + head, each);
    holds_npy(to, t, rank, dims, data);
    free(data);
    free(bytes);
}

static int make_files(void **state)
{
    if (holds_setup(state) != 0) return 1;
    static const struct {
        const char *x, *labels;
        int first, n;
    } parts[] = {{"ex.npy", "ey.npy", 0, SAMPLES},
                 {"ex64.npy", "ey64.npy", 0, EVEN},
                 {"ex6.npy", "ey6.npy", EVEN, REST}};
    for (size_t i = 0; i < ZX_COUNT(parts); i++) {
        const int64_t xs[] = {parts[i].n, 8, 8};
        cut(ZX_TEST_DATA "/cases/mlp/x.npy", parts[i].first, parts[i].x, ZX_F32, 3, xs);
        cut(ZX_TEST_DATA "/cases/mlp/labels.npy", parts[i].first, parts[i].labels, ZX_I64, 1, xs);
    }
    int64_t none[REST];
    for (int i = 0; i < REST; i++) none[i] = -100;
    holds_npy("none.npy", ZX_I64, 1, (const int64_t[]){REST}, none);
    static const struct {
        const char *x, *labels;
        int first, n;
    } digits[] = {{"bn45.x.npy", "bn45.y.npy", 0, 45},
                  {"bn32.x.npy", "bn32.y.npy", 0, 32},
                  {"bn13.x.npy", "bn13.y.npy", 32, 13}};
    for (size_t i = 0; i < ZX_COUNT(digits); i++) {
        const int64_t xs[] = {digits[i].n, 1, 8, 8};
        cut(ZX_SOURCE "/models/digits/x.npy", digits[i].first, digits[i].x, ZX_F32, 4, xs);
        cut(ZX_SOURCE "/models/digits/labels.npy", digits[i].first, digits[i].labels, ZX_I64, 1,
            xs);
    }
    static const struct {
        const char *path, *text;
    } configs[] = {
        {"c.json", "{\"zero_optimization\": {\"stage\": 3}}"},
        {"still.json", "{\"optimizer\": {\"type\": \"SGD\", "
                       "\"params\": {\"lr\": 0}}, \"zero_optimization\": {\"stage\": 3}}"},
        {"stop.json", "{\"optimizer\": {\"type\": \"SGD\", "
                      "\"params\": {\"lr\": 0}}, \"zerox\": {\"eval\": {\"every\": 2}, "
                      "\"early_stop\": {\"patience\": 2, \"min_delta\": 0.001}}}"},
        {"d.json", "{\"zero_optimization\": {\"stage\": 3}, \"optimizer\": {\"type\": \"SGD\", "
                   "\"params\": {\"lr\": 0}}}"},
        {"over.json", "{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 40}}"},
        {"patience.json", "{\"zerox\": {\"early_stop\": {\"patience\": 2}}}"},
    };
    for (size_t i = 0; i < ZX_COUNT(configs); i++)
        holds_write(configs[i].path, configs[i].text, strlen(configs[i].text));
    return 0;
}

// The first and the last value of a key in NAME/log.jsonl, and in how many rows it is.
static double both_logged(const char *name, const char *key, double *first, uint32_t *rows)
{
    char path[128];
    double last = NAN;
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    *rows = 0;
    for (json_t *j; (j = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; json_decref(j)) {
        const json_t *v = json_object_get(j, key);
        if (v == NULL) continue;
        last = json_number_value(v);
        if (++*rows == 1) *first = last;
    }
    fclose(f);
    return last;
}

static double logged(const char *name, const char *key, uint32_t *rows)
{
    double first;
    return both_logged(name, key, &first, rows);
}

static double first_logged(const char *name, const char *key)
{
    double first = NAN;
    uint32_t rows;
    both_logged(name, key, &first, &rows);
    return first;
}

static void near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * fabs(b))) fail_msg("%.9g, not %.9g", a, b);
}

static double evaluated(const char *name, const char *x, const char *labels, int ranks, int stage)
{
    uint32_t n;
    holds_train(name,
                MLP " --config still.json --steps 1 --threads 1 --ranks %d --stage %d --eval-data "
                    "x=%s --eval-data labels=%s",
                ranks, stage, x, labels);
    const double loss = logged(name, "eval_loss", &n);
    assert_int_equal(n, 1);
    return loss;
}

static void every_sample_counts_once(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int ranks, stage;
    } rows[] = {{"e2", 2, 3}, {"e3", 3, 3}, {"e3s0", 3, 0}, {"e2s2", 2, 2}};
    uint32_t n;
    const double all = evaluated("e1", "ex.npy", "ey.npy", 1, 3);
    for (size_t i = 0; i < ZX_COUNT(rows); i++) // no step changes a weight
        near(evaluated(rows[i].name, "ex.npy", "ey.npy", rows[i].ranks, rows[i].stage), all, 1e-12);
    const double even = evaluated("e64", "ex64.npy", "ey64.npy", 2, 3),
                 rest = evaluated("e6", "ex6.npy", "ey6.npy", 2, 3);
    near(SAMPLES * all, EVEN * even + REST * rest, 1e-6);
    holds_train("batch",
                MLP " --config still.json --steps 1 --threads 1 --ranks 2 --data x=ex64.npy "
                    "--data labels=ey64.npy");
    near(even, logged("batch", "loss", &n), 1e-6);
    near(logged("e64", "eval_perplexity", &n), exp(even), 1e-6);
    assert_true(holds_says("e1.err", " eval "));
    assert_true(holds_says("e1.err", "; 70 samples, at the end"));
    assert_true(holds_says("e1.err", " over 70 labels, in "));
}

// With a model whose batches are normalised: evaluation is by the running statistics, which it
// doesn't move, and which are those that were trained.
static void training_does_not_notice(void **state)
{
    (void)state;
    uint32_t n;
    holds_train("with", DIGITS " --config c.json --steps 5 --ranks 2 --threads 1 --eval-every 2 "
                               "--eval-data x=bn45.x.npy --eval-data labels=bn45.y.npy");
    holds_train("without", DIGITS " --config c.json --steps 5 --ranks 2 --threads 1");
    holds_expect_same("with", "without");
    logged("with", "eval_loss", &n);
    assert_int_equal(n, 3); // steps 2, 4 and 5
    // By running statistics samples don't depend on those beside them. A step without a learning
    // rate moves nothing but the statistics.
    static const char *const names[] = {"bn45", "bn32", "bn13"};
    double loss[3];
    for (int i = 0; i < 3; i++) {
        holds_train(names[i],
                    DIGITS " --config still.json --steps 2 --threads 1 --eval-every 1 --eval-data "
                           "x=%s.x.npy --eval-data labels=%s.y.npy",
                    names[i], names[i]);
        loss[i] = logged(names[i], "eval_loss", &n);
    }
    near(45 * loss[0], 32 * loss[1] + 13 * loss[2], 1e-6);
    assert_true(fabs(first_logged("bn45", "eval_loss") - loss[0]) > 1e-6); // the statistics moved
}

// A loss of dropped values, of which half are gone in training.
static void nothing_is_dropped(void **state)
{
    (void)state;
    const int64_t xs[] = {2, 3}, ks[] = {3};
    const float half = 0.5f, ones[3] = {1, 2, 3};
    const uint8_t yes = 1;
    uint32_t n;
    holds_net net;
    holds_net_begin(&net);
    holds_net_input(&net, "x", ZX_F32, 2, xs);
    zx_onnx_initializer(&net.out, "half", &(zx_type){.dtype = ZX_F32}, &half);
    zx_onnx_initializer(&net.out, "yes", &(zx_type){.dtype = ZX_BOOL}, &yes);
    holds_net_floats(&net, "p", "PARAMETER", 1, ks, ones);
    holds_net_node(&net, "Mul", "y", "x", "p", NULL);
    holds_net_node(&net, "Dropout", "z", "y", "half", "yes");
    zx_onnx_node_int(&net.out, holds_net_node(&net, "ReduceMean", "loss", "z", NULL, NULL),
                     "keepdims", 0);
    holds_net_done(&net, "loss", "drop.onnx");
    float x[6][3];
    for (int i = 0; i < 18; i++) x[i / 3][i % 3] = (float)(1 + i / 3);
    holds_npy("dx.npy", ZX_F32, 2, (const int64_t[]){6, 3}, x);
    holds_npy("d5.npy", ZX_F32, 2, (const int64_t[]){5, 3}, x);
    holds_train("drop", "drop.onnx --data x=dx.npy --eval-data x=dx.npy --steps 1 "
                        "--ranks 2 --config d.json");
    assert_true(fabs(logged("drop", "eval_loss", &n) - 7) < 1e-6); // mean of x is 3.5, of p 2
    logged("drop", "eval_perplexity", &n);
    assert_int_equal(n, 0); // it is no mean over labels
    // 5 samples don't fill micro-batches of 2, and there are no labels to leave one out by.
    assert_int_equal(holds_zerox("five",
                                 "train drop.onnx --config d.json --data x=dx.npy --eval-data "
                                 "x=d5.npy --steps 1 --out five"),
                     3);
    assert_true(holds_says("five.err", "5 samples for evaluation don't fill micro-batches of 2"));
}

// Bytes as labels: none of them is -100.
static void what_fills_up_has_to_be_told_apart(void **state)
{
    (void)state;
    const int64_t xs[] = {2, 3}, ys[] = {2}, ks[] = {3};
    const float ones[3] = {1, 1, 1}, x[6][3] = {{0}};
    const uint8_t y[6] = {0, 1, 2, 0, 1, 2};
    holds_net net;
    holds_net_begin(&net);
    holds_net_input(&net, "x", ZX_F32, 2, xs);
    holds_net_input(&net, "y", ZX_U8, 1, ys);
    holds_net_floats(&net, "p", "PARAMETER", 1, ks, ones);
    holds_net_node(&net, "Mul", "scores", "x", "p", NULL);
    zx_onnx_node_int(&net.out, holds_net_node(&net, "Cast", "labels", "y", NULL, NULL), "to", 7);
    holds_net_node(&net, "SoftmaxCrossEntropyLoss", "loss", "scores", "labels", NULL);
    holds_net_done(&net, "loss", "bytes.onnx");
    holds_npy("bx.npy", ZX_F32, 2, (const int64_t[]){6, 3}, x);
    holds_npy("by.npy", ZX_U8, 1, (const int64_t[]){6}, y);
    holds_npy("bx5.npy", ZX_F32, 2, (const int64_t[]){5, 3}, x);
    holds_npy("by5.npy", ZX_U8, 1, (const int64_t[]){5}, y);
#define BYTES "bytes.onnx --config d.json --steps 1 --data x=bx.npy --data y=by.npy "
    holds_train("b6", BYTES "--eval-data x=bx.npy --eval-data y=by.npy");
    assert_int_equal(
        holds_zerox("b5", "train " BYTES "--out b5 --eval-data x=bx5.npy --eval-data y=by5.npy"),
        3);
    assert_true(holds_says("b5.err", "the labels 'y' (uint8) can't be -100"));
}

static void it_stops_early(void **state)
{
    (void)state;
    uint32_t n;
    holds_train("stop", MLP " --config stop.json --steps 40 --ranks 2 --threads 1" EVAL);
    logged("stop", "loss", &n);
    assert_int_equal(n, 6); // the first evaluation is the best one, two more are not better
    assert_true(
        holds_says("stop.err", "stopped early: no evaluation since step 2 had a loss below"));
    assert_true(holds_says("stop.err", "done: 6 steps"));
    // So it does if it is gone on with in between; the evaluation at the end of a part is none
    // more.
    holds_train("stop2",
                MLP " --config stop.json --steps 3 --ranks 2 --threads 1 --save-every 2" EVAL);
    assert_int_equal(holds_zerox("on", "train --resume stop2 --steps 5"), 0);
    assert_int_equal(holds_zerox("on", "train --resume stop2 --steps 40"), 0);
    logged("stop2", "loss", &n);
    assert_int_equal(n, 6);
    assert_true(holds_says("on.err", "stopped early: no evaluation since step 2 had a loss below"));
}

// The last step of a run may be one that is left out.
static void the_end_is_evaluated(void **state)
{
    (void)state;
    uint32_t n;
    holds_train("over", MLP " --config over.json --steps 1 --threads 1" EVAL);
    assert_true(holds_says("over.err", ", 1 of them skipped"));
    logged("over", "eval_loss", &n);
    assert_int_equal(n, 1);
}

static void memory_is_shared_with_training(void **state)
{
    (void)state;
    const uint64_t budget = 600000;
    holds_train("mem", MLP " --config c.json --steps 1 --ranks 2 --threads 1 --budget 600000" EVAL);
    assert_true(holds_decided("mem", "planned_peak_bytes") +
                    holds_decided("mem", "eval_peak_bytes") <=
                budget);
    assert_true(holds_says("mem.err", "evaluation's plan: peak "));
    assert_int_equal(holds_zerox("tight", "train " MLP " --config c.json --steps 1 --budget 20000 "
                                          "--out tight" EVAL),
                     4);
    assert_true(holds_says("tight.err", "evaluation"));
    assert_int_equal(holds_zerox("plan",
                                 "plan " MLP " --config c.json --ranks 2 --threads 1 --budget "
                                 "600000" EVAL),
                     0);
    assert_true(holds_says("plan.out", "evaluation's plan: peak "));
    assert_int_equal(holds_zerox("auto", "plan " MLP " --auto" EVAL), 2);
}

static const struct refused {
    const char *name, *args, *says;
    int code;
} refusals[] = {
    {"r1", "--eval-every 2", "needs data to evaluate on", 2},
    {"r2", "--config patience.json", "zerox.early_stop.patience needs data", 2},
    {"r6", "--config patience.json" EVAL, "at the end alone there is nothing left to stop", 2},
    {"r7", "--eval-data x=ex6.npy --eval-data labels=none.npy", "none of the labels counts", 3},
    {"r3", "--eval-data x=ex.npy", "no data for 'labels'", 3},
    {"r4", "--eval-data x=ones --eval-data labels=zeros", "have to come from files", 3},
    {"r5", "--eval-data q=ex.npy", "the model has no input 'q'", 2},
};

static void what_lacks_something_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ZX_COUNT(refusals); i++) {
        char err[16];
        const int code = holds_zerox(refusals[i].name, "train " MLP " --steps 1 --out %s %s",
                                     refusals[i].name, refusals[i].args);
        snprintf(err, sizeof err, "%s.err", refusals[i].name);
        if (code != refusals[i].code || !holds_says(err, refusals[i].says))
            fail_msg("%s: exit code %d, or another message", refusals[i].args, code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_counts_once),
        cmocka_unit_test(training_does_not_notice),
        cmocka_unit_test(nothing_is_dropped),
        cmocka_unit_test(what_fills_up_has_to_be_told_apart),
        cmocka_unit_test(it_stops_early),
        cmocka_unit_test(the_end_is_evaluated),
        cmocka_unit_test(memory_is_shared_with_training),
        cmocka_unit_test(what_lacks_something_is_refused),
    };
    return cmocka_run_group_tests(tests, make_files, holds_teardown);
}

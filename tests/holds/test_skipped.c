// test_skipped.c - steps that aren't finite: in fp16 they are skipped and the loss scale halves,
// else only where zerox.on_nan asks for it; and a step that was skipped has changed nothing.
//
// x [micro, 4] MatMul w [4, 1], mean of squares. A run with skipped steps ends with the weights of
// one that never had them.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu.h"
#include "tests/holds/holds.h"

#include <math.h>

enum { MICRO = 4, WIDTH = 4, STEPS = 5, BAD = 2 }; // step BAD has NaN in its data

static void write_samples(const char *path, int ranks, bool same, bool nan, int left_out)
{
    static float x[STEPS * 2 * MICRO * WIDTH];
    int n = 0;
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < ranks * MICRO * WIDTH && s != left_out; i++)
            x[n++] = nan && s == BAD && i == 5 ? NAN : sinf((float)(i + (same ? 0 : 31 * s)));
    holds_npy(path, ZX_F32, 2, (const int64_t[]){n / WIDTH, WIDTH}, x);
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    const int64_t xs[] = {-1, WIDTH}, ws[] = {WIDTH, 1};
    const float w[WIDTH] = {0.5f, -1, 0.25f, 2};
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    holds_net_floats(&n, "w", "PARAMETER", 2, ws, w);
    holds_net_node(&n, "MatMul", "y", "x", "w", NULL);
    holds_net_node(&n, "Mul", "square", "y", "y", NULL);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceMean", "loss", "square", NULL, NULL),
                     "keepdims", 0);
    holds_net_done(&n, "loss", "net.onnx");
    return 0;
}

static void write_config(const char *path, const char *precision)
{
    char text[400];
    const int n = snprintf(text, sizeof text,
                           "{\"train_micro_batch_size_per_gpu\": %d, \"zero_optimization\": "
                           "{\"stage\": 3}, \"optimizer\": {\"params\": {\"lr\": 0.1}}, %s}",
                           MICRO, precision);
    holds_write(path, text, (size_t)n);
}

static void expect_same_weights(const char *a, const char *b)
{
    char path[100];
    size_t n[2];
    snprintf(path, sizeof path, "%s/model.safetensors", a);
    char *first = holds_read(path, &n[0]);
    snprintf(path, sizeof path, "%s/model.safetensors", b);
    char *second = holds_read(path, &n[1]);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(first, second, n[0]);
    free(first);
    free(second);
}

// Losses and norms of log.jsonl; norms that aren't finite are infinite here.
static uint32_t read_log(const char *name, double loss[STEPS], double norm[STEPS])
{
    char path[100];
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    uint32_t n = 0;
    for (json_t *row; n < STEPS && (row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL;
         n++) {
        const json_t *x = json_object_get(row, "grad_norm");
        loss[n] = json_number_value(json_object_get(row, "loss"));
        norm[n] = json_is_number(x) ? json_number_value(x) : INFINITY;
        json_decref(row);
    }
    fclose(f);
    return n;
}

static void nan_is_skipped(void **state)
{
    const int ranks = *(const int *)*state;
    char name[2][32];
    write_samples("bad.npy", ranks, false, true, -1);
    write_samples("good.npy", ranks, false, false, BAD);
    for (int half = 0; half < 2; half++) {
        snprintf(name[0], sizeof name[0], "skip-%d-%d", ranks, half);
        snprintf(name[1], sizeof name[1], "never-%d-%d", ranks, half);
        write_config("skip.json",
                     half ? "\"bf16\": {\"enabled\": true}, \"zerox\": {\"on_nan\": \"skip\"}"
                          : "\"zerox\": {\"on_nan\": \"skip\"}");
        holds_train(name[0], "net.onnx --config skip.json --data x=bad.npy --ranks %d", ranks);
        holds_train(name[1], "net.onnx --config skip.json --data x=good.npy --ranks %d", ranks);
        expect_same_weights(name[0], name[1]);
        char said[64];
        snprintf(said, sizeof said, "%s.err", name[0]);
        assert_true(holds_says(said, "|g| nan not finite, skipped"));
        assert_true(holds_says(said, "5 steps, 1 of them skipped"));
        snprintf(said, sizeof said, "%s/log.jsonl", name[0]);
        assert_true(holds_says(said, "\"skipped\": 1}"));
        assert_false(holds_says(said, "\"skipped\": 2"));
    }
}

// What was trained so far is evaluated at the end, also where the last step was skipped.
static void the_end_is_evaluated(void **state ZX_UNUSED)
{
    write_samples("bad.npy", 1, false, true, -1);
    write_samples("good.npy", 1, false, false, BAD);
    write_config("skip.json", "\"zerox\": {\"on_nan\": \"skip\"}");
    holds_train("end",
                "net.onnx --config skip.json --data x=bad.npy --eval-data x=good.npy --ranks 1 "
                "--steps %d",
                BAD + 1);
    assert_true(holds_says("end.err", "3 steps, 1 of them skipped"));
    assert_true(holds_says("end.err", "evaluation: loss "));
}

static void nan_stops(void **state ZX_UNUSED)
{
    write_samples("bad.npy", 1, false, true, -1);
    write_config("stop.json", "\"bf16\": {\"enabled\": true}");
    assert_int_equal(
        holds_zerox("stop",
                    "train net.onnx --config stop.json --data x=bad.npy --ranks 1 --out stop"),
        5);
    assert_true(holds_says("stop.err", "step 3: NaN first in node"));
    assert_true(holds_says("stop.err", "input 'x'"));
    assert_true(holds_says("stop.err", "the weights are those of step 2"));
}

// Of the same samples in every step, so that only the number of applied steps counts.
static void overflow_halves_the_scale(void **state)
{
    const int ranks = *(const int *)*state;
    double loss[STEPS], norm[STEPS];
    char name[2][32], said[64], text[300];
    write_samples("same.npy", ranks, true, false, -1);
    snprintf(name[0], sizeof name[0], "dynamic-%d", ranks);
    snprintf(name[1], sizeof name[1], "fixed-%d", ranks);
    write_config("dynamic.json",
                 "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 18, \"hysteresis\": 1}");
    holds_train(name[0], "net.onnx --config dynamic.json --data x=same.npy --ranks %d", ranks);
    const uint32_t n = read_log(name[0], loss, norm);
    uint32_t skipped = 0;
    while (skipped < n && !isfinite(norm[skipped])) skipped++;
    assert_true(skipped > 0 && skipped < n);
    for (uint32_t i = skipped; i < n; i++) assert_true(isfinite(norm[i]));
    for (uint32_t i = 1; i <= skipped; i++) assert_true(loss[i] == loss[0]);
    snprintf(said, sizeof said, "%s.err", name[0]);
    assert_true(holds_says(said, " overflow, scale 131072 lr"));
    snprintf(text, sizeof text, "%u steps, %u of them skipped", n, skipped);
    assert_true(holds_says(said, text));
    snprintf(text, sizeof text, "\"fp16\": {\"enabled\": true, \"loss_scale\": %.0f}",
             ldexp(1, 18 - (int)skipped));
    write_config("fixed.json", text);
    holds_train(name[1], "net.onnx --config fixed.json --data x=same.npy --ranks %d --steps %u",
                ranks, n - skipped);
    expect_same_weights(name[0], name[1]);
}

static void the_least_scale_ends_it(void **state ZX_UNUSED)
{
    write_samples("same.npy", 1, true, false, -1);
    write_config("least.json", "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 30, "
                               "\"hysteresis\": 1, \"min_loss_scale\": 536870912}");
    assert_int_equal(
        holds_zerox("least",
                    "train net.onnx --config least.json --data x=same.npy --ranks 1 --out least"),
        5);
    assert_true(holds_says("least.err", "overflow, scale 536870912"));
    assert_true(holds_says("least.err", "step 2: infinity first in node"));
    assert_true(holds_says("least.err", "fp16.min_loss_scale, 536870912"));
}

// Infinity in one rank's samples alone: all ranks skip the same steps, the scale falls as
// DeepSpeed's does, no weight changes, and what wasn't finite first is named.
static void one_rank_overflows(void **state)
{
    const int hysteresis = *(const int *)*state, last = hysteresis + 4; // 16, (16,) 8, 4, 2, 1
    const float first[WIDTH] = {0.5f, -1, 0.25f, 2};
    float x[6 * 2 * MICRO * WIDTH], w[WIDTH];
    char text[300], name[2][32], said[64];
    holds_tensors t;
    for (size_t i = 0; i < ZX_COUNT(x); i++) x[i] = 1;
    for (int s = 0; s < 6; s++) x[(s * 2 + 1) * MICRO * WIDTH + 5] = INFINITY; // rank 1's
    holds_npy("inf.npy", ZX_F32, 2, (const int64_t[]){6 * 2 * MICRO, WIDTH}, x);
    snprintf(text, sizeof text,
             "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 4, \"min_loss_scale\": 1, "
             "\"hysteresis\": %d}",
             hysteresis);
    write_config("inf.json", text);
    snprintf(name[0], sizeof name[0], "inf-%d", hysteresis);
    snprintf(name[1], sizeof name[1], "end-%d", hysteresis);
    holds_train(name[0], "net.onnx --config inf.json --data x=inf.npy --ranks 2 --steps %d",
                last - 1);
    holds_open(&t, "%s/model.safetensors", name[0]);
    holds_floats(&t, "w", WIDTH, w);
    holds_close(&t);
    assert_memory_equal(w, first, sizeof w);
    snprintf(said, sizeof said, "%s/log.jsonl", name[0]);
    FILE *f = fopen(said, "r");
    assert_non_null(f);
    for (int s = 1; s < last; s++) {
        json_t *row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(row);
        const double scale = json_number_value(json_object_get(row, "loss_scale")),
                     want = s < hysteresis ? 16 : ldexp(16, hysteresis - s);
        if (scale != want) fail_msg("step %d: scale %g, %g was due", s, scale, want);
        assert_int_equal(json_integer_value(json_object_get(row, "skipped")), s);
        json_decref(row);
    }
    fclose(f);
    assert_int_equal(holds_zerox(name[1],
                                 "train net.onnx --config inf.json --data x=inf.npy --ranks 2 "
                                 "--steps %d --out %s",
                                 last + 1, name[1]),
                     5);
    snprintf(said, sizeof said, "%s.err", name[1]);
    snprintf(text, sizeof text, "step %d: infinity first in node", last);
    if (!holds_says(said, text)) fail_msg("%s: %s", text, holds_read(said, &(size_t){0}));
    assert_true(holds_says(said, "input 'x'"));
    assert_true(holds_says(said, "fp16.min_loss_scale, 1;"));
}

// Where no scale shrinks, a run doesn't skip for ever: also if it was gone on with in between.
static void what_only_skips_ends(void **state ZX_UNUSED)
{
    write_samples("same.npy", 1, true, false, -1);
    write_samples("bad.npy", 1, false, true, -1);
    write_config("stuck.json", "\"fp16\": {\"enabled\": true, \"loss_scale\": 1073741824}");
    holds_train("stuck", "net.onnx --config stuck.json --data x=same.npy --ranks 1 --steps 31 "
                         "--save-every 31");
    assert_true(holds_says("stuck.err", "31 steps, 31 of them skipped"));
    assert_int_equal(holds_zerox("stays", "train --resume stuck --steps 40"), 5);
    assert_true(holds_says("stays.err", "step 32: infinity first in node"));
    assert_true(holds_says("stays.err", "32 steps in a row overflowed"));
    // More than so many, but not in a row.
    write_config("skip.json", "\"zerox\": {\"on_nan\": \"skip\"}");
    holds_train("some", "net.onnx --config skip.json --data x=bad.npy --ranks 1 --steps %d",
                33 * STEPS);
    assert_true(holds_says("some.err", "165 steps, 33 of them skipped"));
}

// The scale, when it was last halved and what is left of the hysteresis are in a checkpoint.
static void a_run_that_goes_on_has_its_scale(void **state ZX_UNUSED)
{
    double loss[2][STEPS], norm[2][STEPS];
    write_samples("same.npy", 2, true, false, -1);
    write_config("going.json", "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 19, "
                               "\"loss_scale_window\": 1}");
    const char *run = "net.onnx --config going.json --data x=same.npy --ranks 2 --save-every 3";
    holds_train("whole", "%s --steps 5", run);
    holds_train("cut", "%s --steps 3", run);
    assert_int_equal(holds_zerox("rest", "train --resume cut --steps 5"), 0);
    expect_same_weights("whole", "cut");
    const uint32_t n = read_log("whole", loss[0], norm[0]);
    assert_int_equal(n, STEPS);
    assert_int_equal(read_log("cut", loss[1], norm[1]), n);
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_true(holds_says("cut.err", " overflow, scale "));
    size_t bytes[2];
    char *a = holds_read("whole/checkpoints/step-5/manifest.json", &bytes[0]),
         *b = holds_read("cut/checkpoints/step-5/manifest.json", &bytes[1]);
    const char *x = strstr(a, "\"loss_scale\""), *y = strstr(b, "\"loss_scale\"");
    assert_non_null(x);
    assert_non_null(y);
    assert_memory_equal(x, y, strcspn(x, "}"));
    free(a);
    free(b);
}

// In step 1 the scale falls from 2 to 1, where it has to stay; then the plan is made again, and the
// next session takes over the constant that the scale is in.
ZX_UNUSED static void a_plan_made_again_has_its_scale(void **state ZX_UNUSED)
{
    double loss[2][STEPS], norm[2][STEPS];
    float x[STEPS * MICRO * WIDTH];
    for (size_t i = 0; i < ZX_COUNT(x); i++) x[i] = i % WIDTH == WIDTH - 1 ? 100 : 1;
    holds_npy("large.npy", ZX_F32, 2, (const int64_t[]){STEPS * MICRO, WIDTH}, x);
    write_config("large.json",
                 "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 1, \"hysteresis\": 1}");
    const char *run = "net.onnx --config large.json --data x=large.npy --ranks 1 --steps 3";
    holds_train("large", "%s", run);
    holds_train("again", "%s --replan-after 1", run);
    assert_true(holds_says("again.err", "3 steps, 1 of them skipped"));
    assert_int_equal(read_log("large", loss[0], norm[0]), 3);
    assert_int_equal(read_log("again", loss[1], norm[1]), 3);
    assert_true(!isfinite(norm[0][0]) && isfinite(norm[0][1]));
    assert_memory_equal(loss[0], loss[1], 3 * sizeof **loss);
    assert_memory_equal(norm[0], norm[1], 3 * sizeof **norm);
}

// What is saved: float32 copies, or the parameters as steps read them, which are those rounded.
static void weights_are_saved(void **state ZX_UNUSED)
{
    float copy[WIDTH];
    holds_tensors t;
    write_samples("same.npy", 1, true, false, -1);
    write_config("copies.json", "\"bf16\": {\"enabled\": true}");
    holds_train("copies", "net.onnx --config copies.json --data x=same.npy --ranks 1");
    holds_train("kept", "net.onnx --config copies.json --data x=same.npy --stage 0 --ranks 1");
    expect_same_weights("copies", "kept");
    char text[400];
    const int n =
        snprintf(text, sizeof text,
                 "{\"train_micro_batch_size_per_gpu\": %d, \"zero_optimization\": {\"stage\": 3, "
                 "\"stage3_gather_16bit_weights_on_model_save\": true}, \"optimizer\": "
                 "{\"params\": {\"lr\": 0.1}}, \"bf16\": {\"enabled\": true}}",
                 MICRO);
    holds_write("halves.json", text, (size_t)n);
    holds_train("halves", "net.onnx --config halves.json --data x=same.npy --ranks 1");
    holds_open(&t, "copies/model.safetensors");
    holds_floats(&t, "w", WIDTH, copy);
    holds_close(&t);
    holds_open(&t, "halves/model.safetensors");
    const zx_safe_tensor *w = zx_safe_find(&t.file, "w");
    assert_non_null(w);
    assert_int_equal(w->type.dtype, ZX_BF16);
    for (int i = 0; i < WIDTH; i++) {
        uint16_t h, want;
        memcpy(&h, (const char *)w->data + 2 * i, sizeof h);
        zx_cpu_narrow(ZX_BF16, &copy[i], &want, 1);
        assert_int_equal(h, want);
    }
    holds_close(&t);
}

int main(void)
{
    static int one = 1, two = 2;
    struct CMUnitTest tests[] = {
        zx_case("NaN is skipped", nan_is_skipped, &one),
        zx_case("NaN is skipped, 2 ranks", nan_is_skipped, &two),
        zx_case("the end is evaluated", the_end_is_evaluated, NULL),
        zx_case("NaN stops", nan_stops, NULL),
        zx_case("overflow halves the scale", overflow_halves_the_scale, &one),
        zx_case("overflow halves the scale, 2 ranks", overflow_halves_the_scale, &two),
        zx_case("a run that goes on has its scale", a_run_that_goes_on_has_its_scale, NULL),
#ifndef ZX_ON_GPUS // where no plan is made again
        zx_case("a plan made again has its scale", a_plan_made_again_has_its_scale, NULL),
#endif
        zx_case("the least scale ends it", the_least_scale_ends_it, NULL),
        zx_case("one rank overflows", one_rank_overflows, &one),
        zx_case("one rank overflows, one time is borne", one_rank_overflows, &two),
        zx_case("what only skips ends", what_only_skips_ends, NULL),
        zx_case("what is saved", weights_are_saved, NULL),
    };
    return _cmocka_run_group_tests("skipped", tests, ZX_COUNT(tests), setup, holds_teardown);
}

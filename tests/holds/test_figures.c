// test_figures.c - what is told of a step is of the whole step: norms of single parameters,
// averages over labels, steps of an epoch; on any number of ranks.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>
#include <sys/stat.h>

#define SIZES "model: 121k parameters in 28 tensors"
#define DYNAMIC ZX_TEST_DATA "/cases/gpt2_dynamic/model.onnx"
#define DIGITS ZX_SOURCE "/models/digits/model.onnx"

enum { ROWS = 12, LENGTH = 32 };

static void write_text(const char *path, const char *text)
{
    holds_write(path, text, strlen(text));
}

// Labels of which rows have 1, 7, 3, 5 and so on left, the rest is ignored.
static int make_files(void **state)
{
    static int64_t ids[ROWS][LENGTH], labels[ROWS][LENGTH];
    static const int left[] = {1, 7, 3, 5, 30, 2};
    if (holds_setup(state) != 0) return 1;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < LENGTH; k++) {
            ids[i][k] = (i * 7 + k * 3) % 50;
            labels[i][k] = k < left[i % 6] ? (i + k) % 50 : -100;
        }
    holds_npy("ids.npy", ZX_I64, 2, (const int64_t[]){ROWS, LENGTH}, ids);
    holds_npy("labels.npy", ZX_I64, 2, (const int64_t[]){ROWS, LENGTH}, labels);
    return 0;
}

// Four samples a step, cut in every way.
static const struct cut {
    const char *name;
    int ranks, accumulate, micro;
} cuts[] = {{"t114", 1, 1, 4}, {"t221", 2, 2, 1}, {"t141", 1, 4, 1}, {"t212", 2, 1, 2}};

static void run_cut(const struct cut *c, const char *average, const char *out)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d, "
             "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}, "
             "\"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"loss_average\": \"%s\"}}",
             c->micro, c->accumulate, average);
    write_text("cut.json", config);
    holds_train(out,
                DYNAMIC " --config cut.json --steps 2 --threads 1 --ranks %d --data "
                        "input_ids=ids.npy --data labels=labels.npy --dump-grads %s.st",
                c->ranks, out);
}

static double farthest(const char *a, const char *b, const char *tensor)
{
    holds_tensors x, y;
    static float u[1 << 16], v[1 << 16];
    double most = 0, size = 0;
    holds_open(&x, "%s", a);
    holds_open(&y, "%s", b);
    const zx_safe_tensor *t = zx_safe_find(&x.file, tensor);
    assert_non_null(t);
    const uint32_t n = (uint32_t)zx_shape_count(&t->type.shape);
    assert_true(n <= ZX_COUNT(u));
    holds_floats(&x, tensor, n, u);
    holds_floats(&y, tensor, n, v);
    for (uint32_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)u[i] - (double)v[i]));
        size = fmax(size, fabs((double)u[i]));
    }
    holds_close(&x);
    holds_close(&y);
    return size > 0 ? most / size : 0;
}

static void tokens_are_averaged_over_the_whole_step(void **state)
{
    (void)state;
    static holds_row first[HOLDS_ROWS], other[HOLDS_ROWS];
    for (size_t i = 0; i < (test_few() ? 2 : ZX_COUNT(cuts)); i++) {
        run_cut(&cuts[i], "tokens", cuts[i].name);
        assert_int_equal(holds_log(cuts[i].name, i == 0 ? first : other), 2);
        for (int s = 0; s < 2 && i > 0; s++)
            if (fabs(first[s].loss - other[s].loss) > 2e-6 * first[s].loss ||
                fabs(first[s].grad_norm - other[s].grad_norm) > 2e-5 * first[s].grad_norm)
                fail_msg("%s, step %d: loss %.9g, not %.9g, norm %.9g, not %.9g", cuts[i].name,
                         s + 1, other[s].loss, first[s].loss, other[s].grad_norm,
                         first[s].grad_norm);
    }
    assert_true(farthest("t114.st", "t221.st", "m.lm_head.weight") < 1e-5);
    // Means of means are another number here.
    run_cut(&cuts[1], "micro_batches", "means");
    holds_log("means", other);
    assert_true(fabs(first[0].loss - other[0].loss) > 1e-3 * first[0].loss);
    // Where nothing is accumulated over one rank both are the same mean.
    run_cut(&cuts[0], "micro_batches", "mean");
    holds_log("mean", other);
    assert_true(fabs(first[0].loss - other[0].loss) < 1e-6 * first[0].loss);
    assert_true(fabs(first[0].grad_norm - other[0].grad_norm) < 1e-5 * first[0].grad_norm);
}

// ---- --watch ------------------------------------------------------------------------------------

static double watched(const char *name, const char *param, const char *key)
{
    char path[128];
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    json_t *row = json_load_file(path, JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(row);
    const json_t *v = json_object_get(json_object_get(json_object_get(row, "watch"), param), key);
    if (!json_is_number(v)) fail_msg("%s: no %s of %s", path, key, param);
    const double x = json_number_value(v);
    json_decref(row);
    return x;
}

static double norm_of(const char *path, const char *tensor)
{
    static float x[1 << 16];
    holds_tensors t;
    double squares = 0;
    holds_open(&t, "%s", path);
    const zx_safe_tensor *at = zx_safe_find(&t.file, tensor);
    assert_non_null(at);
    const uint32_t n = (uint32_t)zx_shape_count(&at->type.shape);
    assert_true(n <= ZX_COUNT(x));
    holds_floats(&t, tensor, n, x);
    for (uint32_t i = 0; i < n; i++) squares += (double)x[i] * (double)x[i];
    holds_close(&t);
    return sqrt(squares);
}

static void near(double a, double b, double tolerance, const char *what)
{
    if (!(fabs(a - b) <= tolerance * fabs(b))) fail_msg("%s: %.9g, not %.9g", what, a, b);
}

static void norms_are_of_whole_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int ranks, stage;
    } rows[] = {{"w3", 3, 3}, {"w3s1", 3, 1}, {"w1", 1, 3}};
    static const char *const params[] = {"m.fc.weight", "m.stem.0.weight"};
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        const char *name = rows[i].name;
        char grads[64], weights[64];
        holds_train(name,
                    DIGITS " --steps 1 --threads 1 --ranks %d --stage %d --watch 'm.fc.*' --watch "
                           "'*stem.0.w*' --dump-grads %s.st",
                    rows[i].ranks, rows[i].stage, name);
        snprintf(grads, sizeof grads, "%s.st", name);
        snprintf(weights, sizeof weights, "%s/model.safetensors", name);
        for (size_t k = 0; k < ZX_COUNT(params); k++) {
            near(watched(name, params[k], "grad_norm"), norm_of(grads, params[k]), 1e-6, params[k]);
            near(watched(name, params[k], "weight_norm"), norm_of(weights, params[k]), 1e-6,
                 params[k]);
            if (i == 1) // the same bits in every stage
                near(watched(name, params[k], "grad_norm"), watched("w3", params[k], "grad_norm"),
                     0, params[k]);
        }
    }
    assert_int_equal(
        holds_zerox("nothing", "train " DIGITS " --steps 1 --watch 'm.fx.*' --out nothing"), 2);
    assert_true(holds_says("nothing.err", "--watch: no parameter is named 'm.fx.*'"));
    holds_train("every", DIGITS " --steps 4 --threads 1 --watch '*.bias' --watch-every 2");
    assert_false(holds_says("every/log.jsonl", "{\"step\": 1, \"watch\""));
    size_t n;
    uint32_t times = 0;
    char *log = holds_read("every/log.jsonl", &n);
    for (const char *at = log; (at = strstr(at, "\"watch\": {")) != NULL; at++) times++;
    assert_int_equal(times, 2);
    free(log);
}

// A parameter of 16 bits that isn't trained has no float32 copy.
static void norms_are_of_frozen_halves(void **state)
{
    (void)state;
    static const char *const param = "m.transformer.wpe.weight";
    write_text("frozen.json", "{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": "
                              "true}, \"zerox\": {\"freeze\": \"*.wpe.*\"}}");
    for (int stage = 1; stage <= 3; stage += 2) {
        holds_train("frozen",
                    DYNAMIC " --config frozen.json --steps 1 --threads 1 --ranks 3 --stage %d "
                            "--watch '*.wpe.*' --data input_ids=ids.npy --data labels=labels.npy "
                            "--force",
                    stage);
        near(watched("frozen", param, "weight_norm"), norm_of("frozen/model.safetensors", param),
             1e-6, param);
        assert_true(watched("frozen", param, "grad_norm") == 0);
    }
}

// ---- epochs -------------------------------------------------------------------------------------

static void epochs_are_whole_steps(void **state)
{
    (void)state;
    static holds_row rows[HOLDS_ROWS];
    write_text("epoch.json",
               "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 2, "
               "\"zero_optimization\": {\"stage\": 3}}");
    // 12 samples in steps of 2 x 2: 3 an epoch; of 2 x 3, and of 1 x 5 a rest is left out.
    holds_train("epochs", DYNAMIC " --config epoch.json --epochs 2 --threads 1 --ranks 2 --data "
                                  "input_ids=ids.npy --data labels=labels.npy");
    assert_int_equal(holds_log("epochs", rows), 6);
    write_text("epoch.json",
               "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 5, "
               "\"zero_optimization\": {\"stage\": 3}}");
    holds_train("rest",
                DYNAMIC " --config epoch.json --epochs 2 --threads 1 --ranks 1 --shuffle --data "
                        "input_ids=ids.npy --data labels=labels.npy");
    assert_int_equal(holds_log("rest", rows), 4);
    assert_true(holds_says("rest.err", "2 of 12 samples are left out of every epoch"));
    // Nobody waits for ranks that have fewer: what doesn't fill a step of all is left out on all.
    static const struct {
        const char *name, *accumulate, *ranks, *says;
        uint32_t steps;
    } uneven[] = {
        {"uneven", "2", "4", "4 of 12 samples are left out of every epoch", 2},
        {"uneven5", "1", "5", "2 of 12 samples are left out of every epoch", 4},
    };
    for (size_t i = 0; i < ZX_COUNT(uneven); i++) {
        char text[256], file[32];
        snprintf(text, sizeof text,
                 "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": %s, "
                 "\"zero_optimization\": {\"stage\": 3}}",
                 uneven[i].accumulate);
        write_text("epoch.json", text);
        snprintf(text, sizeof text,
                 DYNAMIC " --config epoch.json --epochs 2 --threads 1 --ranks %s --data "
                         "input_ids=ids.npy --data labels=labels.npy",
                 uneven[i].ranks);
        holds_train(uneven[i].name, text);
        assert_int_equal(holds_log(uneven[i].name, rows), uneven[i].steps);
        snprintf(file, sizeof file, "%s.err", uneven[i].name);
        assert_true(holds_says(file, uneven[i].says));
        // Sizes are the model's, not those of a rank's shards.
        assert_true(holds_says("rest.err", SIZES) && holds_says(file, SIZES));
    }
}

// ---- sizes
// ---------------------------------------------------------------------------------------

static double size_of(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0) fail_msg("no %s", path);
    return (double)info.st_size;
}

// What checkpoints will take is said before the first step, of all ranks together.
static void checkpoints_are_as_large_as_was_said(void **state)
{
    (void)state;
    static const int ranks[] = {1, 4};
    write_text("sizes.json", "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": "
                             "{\"stage\": 3}, \"zerox\": {\"freeze\": [\"*.h.0.*\"]}}");
    for (size_t i = 0; i < ZX_COUNT(ranks); i++) {
        char name[32], path[128];
        double said = 0, there = 0;
        snprintf(name, sizeof name, "sizes%d", ranks[i]);
        holds_train(name,
                    DYNAMIC " --config sizes.json --steps 1 --save-every 1 --threads 1 --ranks %d "
                            "--data input_ids=ids.npy --data labels=labels.npy",
                    ranks[i]);
        snprintf(path, sizeof path, "%s.err", name);
        char *err = holds_read(path, &(size_t){0});
        const char *at = strstr(err, "\ncheckpoints: every 1 step, ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "\ncheckpoints: every 1 step, %lf MiB each", &said), 1);
        assert_true(at < strstr(err, "\nstep 1/1"));
        assert_non_null(strstr(err, "frozen: 50.0k parameters in 12 of 28 tensors\n"));
        free(err);
        for (int r = 0; r < ranks[i]; r++) {
            snprintf(path, sizeof path, "%s/checkpoints/step-1/rank-%05d-of-%05d.safetensors", name,
                     r, ranks[i]);
            there += size_of(path);
        }
        if (fabs(said * 1048576 - there) > 0.01 * there)
            fail_msg("%s: %g MiB, not %g", name, there / 1048576, said);
    }
}

// Every parameter is gathered once and its gradient reduced once, half of each over the wire.
static void the_wire_has_the_type_that_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *types, *says;
        double bytes;
    } rows[] = {
        {"\"zerox\": {\"budget\": \"64MiB\"}", NULL, 4},
        {"\"zerox\": {\"budget\": \"64MiB\"}, \"bf16\": {\"enabled\": true}",
         "gradients added up in fp32 and sent to other ranks in bf16;", 2},
        {"\"zerox\": {\"budget\": \"64MiB\"}, \"bf16\": {\"enabled\": true}, "
         "\"communication_data_type\": \"fp32\"",
         "gradients added up in fp32 and sent to other ranks in bf16;", 2},
        {"\"zerox\": {\"budget\": \"64MiB\"}, \"fp16\": {\"enabled\": true}, "
         "\"communication_data_type\": \"fp16\"",
         "gradients added up in fp32 and sent to other ranks in fp16;", 2},
    };
    double elements = 0;
    holds_tensors model;
    holds_open(&model, "sizes1/model.safetensors");
    for (uint32_t i = 0; i < model.file.n; i++)
        elements += (double)zx_shape_count(&model.file.tensors[i].type.shape);
    holds_close(&model);
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"zero_optimization\": {\"stage\": 3}, %s}", rows[i].types);
        write_text("types.json", text);
        json_t *plan = holds_plan(DYNAMIC " --config types.json --ranks 2 --dim batch=2");
        const double bytes = json_number_value(json_object_get(plan, "wire_bytes"));
        json_decref(plan);
        if (bytes != rows[i].bytes * elements)
            fail_msg("%s: %g bytes of %g elements", text, bytes, elements);
        if (rows[i].says == NULL) continue;
        holds_zerox("types", "plan " DYNAMIC " --config types.json --ranks 2 --dim batch=2");
        assert_true(holds_says("types.out", rows[i].says));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_averaged_over_the_whole_step),
        cmocka_unit_test(norms_are_of_whole_parameters),
        cmocka_unit_test(norms_are_of_frozen_halves),
        cmocka_unit_test(epochs_are_whole_steps),
        cmocka_unit_test(checkpoints_are_as_large_as_was_said),
        cmocka_unit_test(the_wire_has_the_type_that_is_said),
    };
    return cmocka_run_group_tests(tests, make_files, holds_teardown);
}

// test_cases.c - real exporter output, trained by the program and compared with what PyTorch
// computed from the same weights and samples in float64 (tests/data/cases/README.md).
//
// A row is one run of `zerox train`: a case, ranks, accumulation, stage, budget. Losses, gradient
// norms, the first step's gradients and the final weights must agree to 2e-5; where PyTorch's own
// float32 runs stray further, to four times their largest gap. In 16 bits losses alone are
// compared.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/safetensors.h"

#define TOLERANCE 2e-5
#ifndef ZX_CASES_ON
#define ZX_CASES_ON "" // options: what computes
#endif

typedef struct run {
    const char *name, *model;
    int ranks, accumulate, stage;
    const char *extra;  // further options; NULL
    const char *type;   // of 16 bits; NULL: float32
    double loss;        // then losses agree to this, and nothing else is compared
    const char *resume; // half of the steps are another run's, gone on with by these; NULL
} run;

// A float32 run.
#define RUN(name, model, ranks, accumulate, stage, extra)                                          \
    {                                                                                              \
        name, model, ranks, accumulate, stage, extra, NULL, 0, NULL                                \
    }
#define ALL(m)                                                                                     \
    RUN(m " 1 rank", m, 1, 1, 3, NULL), RUN(m " 2 ranks", m, 2, 1, 3, NULL),                       \
        RUN(m " 3 ranks", m, 3, 1, 3, NULL), RUN(m " 4 ranks", m, 4, 1, 3, NULL),                  \
        RUN(m " accumulate 2", m, 1, 2, 3, NULL), RUN(m " accumulate 3", m, 1, 3, 3, NULL),        \
        RUN(m " 2 ranks accumulate 2", m, 2, 2, 3, NULL), RUN(m " stage 0", m, 2, 1, 0, NULL),     \
        RUN(m " stage 1", m, 2, 1, 1, NULL), RUN(m " stage 2", m, 2, 2, 2, NULL),                  \
        RUN(m " least budget", m, 2, 2, 3, "--budget min"),                                        \
        RUN(m " recomputed, least budget", m, 2, 2, 3, "--recompute full --budget min")
// fp16 with a loss scale of 128.
#define HALF(m)                                                                                    \
    {m " bf16", m, 1, 1, 3, NULL, "bf16", 0.01, NULL},                                             \
        {m " bf16, 2 ranks, accumulate 2", m, 2, 2, 3, "--budget min", "bf16", 0.01, NULL},        \
    {                                                                                              \
        m " fp16", m, 1, 1, 3, NULL, "fp16", 0.005, NULL                                           \
    }

#define HALVES(m, then)                                                                            \
    {                                                                                              \
        m " saved at half, then " then, m, 2, 2, 3, NULL, NULL, 0, then                            \
    }

static const run runs[] = {
    ALL("mlp"),
    ALL("gpt2"),
    ALL("gpt2_dynamic"),
    ALL("gpt2_default_export"),
    ALL("gpt2_hf_loss"),
    ALL("llama"),
    ALL("bert"),
    ALL("vit"),
    ALL("convnet"),
    HALF("gpt2"),
    HALF("llama"),
    HALVES("gpt2", "--ranks 4 --stage 1"),
    HALVES("llama", "--ranks 1 --stage 0"),
    HALVES("bert", "--ranks 2 --stage 2 --recompute full"),
    HALVES("convnet", "--ranks 4 --stage 3 --budget min"),
    {"llama bf16 saved at half, then on 1 rank", "llama", 2, 2, 3, NULL, "bf16", 0.01, "--ranks 1"},
    {"bert bf16, 3 ranks, stage 1", "bert", 3, 1, 1, NULL, "bf16", 0.01, NULL},
    {"gpt2 bf16, 3 ranks, recomputed", "gpt2", 3, 1, 3, "--recompute full --budget min", "bf16",
     0.01, NULL},
    {"llama fp16, 3 ranks, stage 2", "llama", 3, 1, 2, NULL, "fp16", 0.005, NULL},
    {"vit fp16, 2 ranks, stage 0", "vit", 2, 1, 0, NULL, "fp16", 0.005, NULL},
    {"convnet bf16, 2 ranks, accumulate 2", "convnet", 2, 2, 3, NULL, "bf16", 0.01, NULL},
};

static json_t *load(const char *model)
{
    char path[512];
    snprintf(path, sizeof path, ZX_TEST_DATA "/cases/%s/expected.json", model);
    json_error_t e;
    json_t *j = json_load_file(path, 0, &e);
    if (j == NULL) fail_msg("%s: %s", path, e.text);
    return j;
}

static json_t *expected_run(json_t *e, int micro_batches)
{
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(e, "runs"), i, r)
    {
        if (json_integer_value(json_object_get(r, "micro_batches_per_step")) == micro_batches)
            return r;
    }
    fail_msg("no reference run with %d micro-batches", micro_batches);
    return NULL;
}

static void shell(const char *command, const char *folder)
{
    char tail[600];
    const int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    snprintf(tail, sizeof tail, "tail -c 1500 %s/said", folder);
    if (system(tail) != 0) print_message("(it said nothing)\n");
    fail_msg("zerox ended with status %d", status);
}

static void train(const run *k, json_t *e, size_t steps, const char *folder)
{
    char path[600], command[8192];
    snprintf(path, sizeof path, "%s/zero.json", folder);
    json_t *config =
        json_pack("{s:O, s:i, s:O, s:O, s:{s:i}}", "train_micro_batch_size_per_gpu",
                  json_object_get(e, "samples_per_micro_batch"), "gradient_accumulation_steps",
                  k->accumulate, "optimizer", json_object_get(e, "optimizer"), "gradient_clipping",
                  json_object_get(e, "gradient_clipping"), "zero_optimization", "stage", k->stage);
    assert_non_null(config);
    if (k->type != NULL)
        json_object_set_new(config, k->type,
                            strcmp(k->type, "fp16") == 0
                                ? json_pack("{s:b, s:i}", "enabled", 1, "loss_scale", 128)
                                : json_pack("{s:b}", "enabled", 1));
    assert_int_equal(json_dump_file(config, path, 0), 0);
    json_decref(config);
    const char *cases = ZX_TEST_DATA "/cases", *more = getenv("ZX_CASES_OPTIONS");
    size_t n = (size_t)snprintf(
        command, sizeof command,
        ZX_PROGRAM " train %s/%s/model.onnx --config %s --steps %zu --ranks %d --log %s/log.jsonl "
                   "--dump-grads %s/grads.safetensors --save %s/out " ZX_CASES_ON " %s %s",
        cases, k->model, path, k->resume != NULL ? steps / 2 : steps, k->ranks, folder, folder,
        folder, k->extra ? k->extra : "", more != NULL ? more : "");
    if (k->resume != NULL)
        n += (size_t)snprintf(command + n, sizeof command - n, " --save-every 100 --out %s/run",
                              folder);
    const char *name;
    json_t *unused;
    json_object_foreach(json_object_get(e, "inputs"), name, unused)
    {
        n += (size_t)snprintf(command + n, sizeof command - n, " --data %s=%s/%s/%s.npy", name,
                              cases, k->model, name);
    }
    snprintf(command + n, sizeof command - n, " > %s/said 2>&1", folder);
    shell(command, folder);
    if (k->resume == NULL) return;
    snprintf(command, sizeof command,
             ZX_PROGRAM " train --resume %s/run --steps %zu %s > %s/said 2>&1", folder, steps,
             k->resume, folder);
    shell(command, folder);
}

static double relative(double x, double want)
{
    return isfinite(x) ? fabs(x - want) / fmax(1e-3, fabs(want)) : INFINITY;
}

static void compare_log(const char *folder, const json_t *want, double tolerance)
{
    char path[600];
    snprintf(path, sizeof path, "%s/log.jsonl", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const json_t *loss = json_object_get(want, "loss"), *norm = json_object_get(want, "grad_norm");
    size_t rows = 0;
    json_t *row;
    while ((row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL) {
        const double l = relative(json_number_value(json_object_get(row, "loss")),
                                  json_number_value(json_array_get(loss, rows)));
        const double g = relative(json_number_value(json_object_get(row, "grad_norm")),
                                  json_number_value(json_array_get(norm, rows)));
        if (!(l <= tolerance)) fail_msg("step %zu: loss is off by %.1e", rows + 1, l);
        if (!(g <= tolerance) && tolerance == TOLERANCE)
            fail_msg("step %zu: gradient norm is off by %.1e", rows + 1, g);
        rows++;
        json_decref(row);
    }
    fclose(f);
    assert_int_equal(rows, json_array_size(loss));
}

// The tensor `name` of the file, or one that it is tied to.
static const zx_safe_tensor *find_tied(const zx_safe_file *f, const json_t *tied, const char *name)
{
    const zx_safe_tensor *t = zx_safe_find(f, name);
    size_t i, j;
    json_t *group, *other;
    json_array_foreach(tied, i, group)
    {
        bool mine = false;
        json_array_foreach(group, j, other) mine = mine || !strcmp(json_string_value(other), name);
        if (!mine) continue;
        json_array_foreach(group, j, other) if (t == NULL) t =
            zx_safe_find(f, json_string_value(other));
    }
    return t;
}

static double tensor_error(const zx_safe_tensor *t, const json_t *want)
{
    const size_t n = (size_t)zx_shape_count(&t->type.shape);
    float *x = malloc(n * sizeof *x + 1);
    assert_non_null(x);
    memcpy(x, t->data, n * sizeof *x);
    double squares = 0;
    for (size_t i = 0; i < n; i++) squares += (double)x[i] * x[i];
    const double norm = json_number_value(json_object_get(want, "norm"));
    double worst = fabs(sqrt(squares) - norm);
    const json_t *head = json_object_get(want, "head");
    for (size_t i = 0; i < json_array_size(head) && i < n; i++)
        worst = fmax(worst, fabs(x[i] - json_number_value(json_array_get(head, i))));
    if (!isfinite(squares)) worst = INFINITY;
    free(x);
    const double gap = json_number_value(json_object_get(want, "float32_gap"));
    return worst / fmax(1e-6, norm) * fmin(1.0, TOLERANCE / fmax(1e-30, 4 * gap));
}

static void compare_tensors(const char *kind, const char *path, const json_t *e, const json_t *want,
                            bool all_named)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_safe_file f;
    assert_zx_ok(zx_safe_open(&f, path, &mem, &err), &err);
    const json_t *tied = json_object_get(e, "tied");
    int64_t elements = 0;
    const char *name;
    const json_t *w;
    json_object_foreach((json_t *)(uintptr_t)want, name, w)
    {
        const zx_safe_tensor *t = find_tied(&f, tied, name);
        if (t == NULL && !all_named && strcmp(name, "m.transformer.wpe.weight") == 0) continue;
        if (t == NULL || t->type.dtype != ZX_F32) fail_msg("%s: %s is missing", kind, name);
        elements += zx_shape_count(&t->type.shape);
        const double off = tensor_error(t, w);
        if (!(off <= TOLERANCE)) fail_msg("%s: %s is off by %.1e", kind, name, off);
    }
    if (all_named && strcmp(kind, "gradient") == 0)
        assert_int_equal(elements, json_integer_value(json_object_get(e, "n_parameters")));
    zx_safe_close(&f);
    zx_arena_free(&mem);
}

static void test_run(void **state)
{
    const run *k = *state;
    json_t *e = load(k->model);
    const json_t *want = expected_run(e, k->ranks * k->accumulate);
    char folder[] = "/tmp/zerox-case-XXXXXX", path[600];
    assert_non_null(mkdtemp(folder));
    train(k, e, json_array_size(json_object_get(want, "loss")), folder);
    compare_log(folder, want, k->type != NULL ? k->loss : TOLERANCE);
    // The optimizing exporter folds the position embedding into a constant of another name.
    const bool all_named = strcmp(k->model, "gpt2_default_export") != 0;
    snprintf(path, sizeof path, "%s/grads.safetensors", folder);
    if (k->type == NULL)
        compare_tensors("gradient", path, e, json_object_get(want, "first_step_grad"), all_named);
    snprintf(path, sizeof path, "%s/out/model.safetensors", folder);
    if (k->type == NULL)
        compare_tensors("weight", path, e, json_object_get(want, "final_weight"), all_named);
    snprintf(path, sizeof path, "rm -rf %s", folder);
    assert_int_equal(system(path), 0);
    json_decref(e);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(runs)];
    size_t n = 0;
    const char *rows = getenv("ZX_ROWS"); // a glob of * and ?
    if (rows != NULL) cmocka_set_test_filter(rows);
    // 5 and a model's 12 runs have no divisor in common: every kind of run, of two models or three.
    for (size_t i = 0; i < ZX_COUNT(runs); i += test_few() ? 5 : 1)
        tests[n++] = zx_case(runs[i].name, test_run, &runs[i]);
    return _cmocka_run_group_tests("cases", tests, n, NULL, NULL);
}

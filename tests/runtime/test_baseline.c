// test_baseline.c - the limits that the hook-driven baseline gets from a config, by either set of
// defaults, and the hidden size that one of them goes by.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/baseline.h"
#include "runtime/eval.h"
#include "tests/graph/onnx_text.h"

#define MANY 1000000000

static const struct limit_row {
    const char *name, *json;
    zx_baseline defaults;
    int64_t hidden;
    zx_hook_limits want;
} limits[] = {
    {"DeepSpeed's own",
     "{}",
     ZX_BASELINE_RAW,
     4096,
     {50000000, MANY, MANY, 100000, INT64_MAX, 500000000, 3, false}},
    {"Hugging Face's",
     "{}",
     ZX_BASELINE_HF,
     4096,
     {15099494, MANY, MANY, 40960, INT64_MAX, 16777216, 3, false}},
    {"no hidden size is known",
     "{}",
     ZX_BASELINE_HF,
     0,
     {50000000, MANY, MANY, 100000, INT64_MAX, 500000000, 3, false}},
    {"what is said counts",
     "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 1, \"stage3_max_live_parameters\": "
     "2, \"stage3_max_reuse_distance\": 3, \"stage3_param_persistence_threshold\": 4, "
     "\"stage3_model_persistence_threshold\": 5, \"reduce_bucket_size\": 6}}",
     ZX_BASELINE_HF,
     4096,
     {1, 2, 3, 4, 5, 6, 3, false}},
    {"auto is filled by the hidden size",
     "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": \"auto\", \"reduce_bucket_size\": "
     "\"auto\"}}",
     ZX_BASELINE_HF,
     10,
     {90, MANY, MANY, 100, INT64_MAX, 100, 3, false}},
    {"whatever the defaults of what is silent",
     "{\"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}}",
     ZX_BASELINE_RAW,
     10,
     {50000000, MANY, MANY, 100000, INT64_MAX, 100, 3, false}},
    {"auto without a hidden size",
     "{\"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}}",
     ZX_BASELINE_RAW,
     0,
     {50000000, MANY, MANY, 100000, INT64_MAX, 500000000, 3, false}},
};

static void test_limits(void **state)
{
    const struct limit_row *r = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_hook_limits got;
    assert_zx_ok(zx_config_parse("c.json", r->json, strlen(r->json), false, &mem, &c, &notes, &err),
                 &err);
    zx_baseline_limits(&c, r->defaults, r->hidden, 3, &got);
    assert_int_equal(got.prefetch_bucket, r->want.prefetch_bucket);
    assert_int_equal(got.max_live, r->want.max_live);
    assert_int_equal(got.max_reuse, r->want.max_reuse);
    assert_int_equal(got.param_persistence, r->want.param_persistence);
    assert_int_equal(got.model_persistence, r->want.model_persistence);
    assert_int_equal(got.reduce_bucket, r->want.reduce_bucket);
    assert_int_equal(got.accumulate, r->want.accumulate);
    assert_false(got.no_memo);
    zx_config_close(&c);
    zx_arena_free(&mem);
}

#define NORM(y, x, w) #y " = LayerNormalization(" #x ", " #w ") axis=-1;"

static const struct hidden_row {
    const char *name, *model;
    int64_t want;
} hiddens[] = {
    {"the norms' most frequent",
     "in x f32[2,3];init a f32[3] 1 2 3;init b f32[3] 1 2 3;init c f32[2] 1 1;init m f32[3,2] 1 2 "
     "3 "
     "4 5 6;" NORM(p, x, a) NORM(q, p, b) "r = MatMul(q, m);" NORM(y, r, c),
     3},
    {"the larger of two as frequent",
     "in x f32[2,3];init a f32[3] 1 2 3;init c f32[2] 1 1;init m f32[3,2] 1 2 3 4 5 6;" NORM(
         p, x, a) "r = MatMul(p, m);" NORM(y, r, c),
     3},
    {"vectors, where there are no norms",
     "in x f32[2,3];init a f32[3] 1 2 3;init m f32[3,2] 1 2 3 4 5 6;p = Mul(x, a);y = MatMul(p, "
     "m);",
     3},
    {"neither", "in x f32[2,3];init m f32[3,2] 1 2 3 4 5 6;y = MatMul(x, m);", 0},
};

static void test_hidden(void **state)
{
    const struct hidden_row *r = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_onnx_file file;
    zx_graph g;
    const zx_import_options o = {.eval = &zx_cpu_eval};
    const char *text = zx_arena_printf(&mem, "%sl = ReduceMean(y) keepdims=0;out l f32", r->model);
    assert_zx_ok(ot_open(&mem, text, NULL, 0, &file, &err), &err);
    assert_zx_ok(zx_import(&file, &o, &mem, &g, &notes, &err), &err);
    assert_int_equal(zx_baseline_hidden(&g), r->want);
    zx_onnx_close(&file);
    zx_arena_free(&mem);
}

#define ROWS(table, run)                                                                           \
    for (size_t i = 0; i < ZX_COUNT(table); i++) tests[n++] = zx_case(table[i].name, run, &table[i])

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(limits) + ZX_COUNT(hiddens)];
    size_t n = 0;
    ROWS(limits, test_limits);
    ROWS(hiddens, test_hidden);
    return _cmocka_run_group_tests("baseline", tests, n, NULL, NULL);
}

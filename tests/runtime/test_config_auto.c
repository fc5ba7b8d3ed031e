// test_config_auto.c - what a config leaves open: the batch keys in all combinations, and "auto".
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/config.h"
#include "runtime/config_row.h"
#include "tests/test.h"

// ---- batches ------------------------------------------------------------------------------------

// All that can be given of the three keys, for 1, 3 and 4 ranks: 24 samples a step, 2 a
// micro-batch.
static void every_triad(void **state)
{
    (void)state;
    static const int64_t of_ranks[] = {1, 3, 4};
    static const char *const keys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps"};
    for (unsigned given = 0; given < 8; given++)
        for (size_t k = 0; k < 2 * ZX_COUNT(of_ranks); k++) {
            const int64_t w = of_ranks[k / 2], all[] = {24, 2, 24 / 2 / w};
            const bool wrong = k % 2 != 0 && (given & 1) != 0; // 25 samples: nothing divides them
            const int64_t total = (given & 1) ? all[0] : all[1] * all[2] * w;
            const int64_t m = (given & 2)  ? all[1]
                              : given == 5 ? 24 / w / all[2]
                              : given == 1 ? 24 / w
                                           : 1;
            const int64_t g = (given & 4) ? all[2] : given == 3 ? 24 / 2 / w : 1;
            zx_arena mem = {0};
            zx_err err = {0};
            zx_notes notes = {0};
            zx_config c;
            zx_batch b;
            zx_text json = {0};
            for (unsigned i = 0; i < 3; i++)
                if (given & (1u << i))
                    zx_text_put(&json, "%s\"%s\": %lld", json.n > 0 ? ", " : "{", keys[i],
                                (long long)(all[i] + (wrong && i == 0)));
            zx_text_put(&json, "%s}", json.n > 0 ? "" : "{");
            assert_zx_ok(zx_config_parse("z", json.at, json.n, false, &mem, &c, &notes, &err),
                         &err);
            c.whose_ranks = " (of the test)";
            const zx_status st = zx_config_batch(&c, (uint32_t)w, 0, &b, &err);
            if (wrong && !(given == 1 && w == 1)) {
                assert_int_equal(st, ZX_E_USAGE);
                if (!strstr(err.cause[0],
                            zx_arena_printf(&mem, "ranks %lld (of the test)", (long long)w)))
                    fail_msg("said: %s", err.cause[0]);
            } else if (!wrong) {
                assert_zx_ok(st, &err);
                if (b.micro != m || b.accumulate != g || b.total != m * g * w)
                    fail_msg("%s, %lld ranks: %lld x %lld", json.at, (long long)w,
                             (long long)b.micro, (long long)b.accumulate);
                if ((given & 1) && b.total != total)
                    fail_msg("%s: %lld", json.at, (long long)b.total);
            }
            zx_text_free(&json);
            zx_config_close(&c);
            zx_arena_free(&mem);
        }
}

// ---- "auto" -------------------------------------------------------------------------------------

static const struct auto_row {
    const char *key, *json, *value, *from, *why;
} autos[] = {
#define AUTO_PARAM(key) "{\"optimizer\": {\"params\": {\"" key "\": \"auto\"}}}"
    {"optimizer.params.lr", AUTO_PARAM("lr"), "5e-05", "auto", "learning_rate"},
    {"optimizer.params.betas", AUTO_PARAM("betas"), "[0.9, 0.999]", "auto", "adam_beta1"},
    {"optimizer.params.eps", AUTO_PARAM("eps"), "1e-08", "auto", "adam_epsilon"},
    {"optimizer.params.weight_decay", AUTO_PARAM("weight_decay"), "0", "auto", "weight_decay"},
    {"optimizer.params.momentum", AUTO_PARAM("momentum"), "0", "auto", "the default"},
    {"gradient_clipping", "{\"gradient_clipping\": \"auto\"}", "1", "auto", "max_grad_norm"},
    {"fp16.enabled", "{\"fp16\": {\"enabled\": \"auto\"}}", "false", "auto", "fp16"},
    {"bf16.enabled", "{\"bf16\": {\"enabled\": \"auto\"}}", "false", "auto", "bf16"},
    {"zero_optimization.reduce_bucket_size",
     "{\"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}}", "null", "auto", "h x h"},
    {"zero_optimization.stage3_prefetch_bucket_size",
     "{\"zero_optimization\": {\"stage3_prefetch_bucket_size\": \"auto\"}}", "50000000", "auto",
     "0.9 x h x h"},
    {"train_micro_batch_size_per_gpu", "{\"train_micro_batch_size_per_gpu\": \"auto\"}", "1",
     "auto", "the model's fixed batch, else 1"},
    {"gradient_accumulation_steps",
     "{\"gradient_accumulation_steps\": \"auto\", \"train_batch_size\": 8, "
     "\"train_micro_batch_size_per_gpu\": 2}",
     "2", "other keys", "train_batch_size / micro-batch / ranks"},
    {"train_batch_size", "{\"train_batch_size\": \"auto\", \"gradient_accumulation_steps\": 3}",
     "6", "other keys", "1 x 3 x 2 ranks"},
    {"zerox.recompute", "{\"zerox\": {\"recompute\": \"auto\"}}", "\"auto\"", "file", ""},
};

static void test_auto(void **state)
{
    const struct auto_row *row = *state;
    zx_arena mem = {0};
    zx_err err = {0};
    zx_notes notes = {0};
    zx_config c;
    zx_batch batch;
    zx_text value = {0};
    assert_zx_ok(zx_config_parse("z", row->json, strlen(row->json), false, &mem, &c, &notes, &err),
                 &err);
    assert_zx_ok(zx_config_batch(&c, 2, 0, &batch, &err), &err);
    const zx_config_value *v = zx_config_get(&c, row->key);
    uint32_t i = 0;
    while (strcmp(zx_config_rows[i].path, row->key) != 0) i++;
    zx_config_put_value(&value, &zx_config_rows[i], v);
    assert_string_equal(value.at, row->value);
    assert_string_equal(zx_config_from_text(v->from), row->from);
    if (strstr(v->why != NULL ? v->why : "", row->why) == NULL) fail_msg("why: %s", v->why);
    zx_text_free(&value);
    zx_config_close(&c);
    zx_arena_free(&mem);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(autos) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(autos); i++)
        tests[n++] = zx_case(autos[i].key, test_auto, &autos[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(every_triad);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

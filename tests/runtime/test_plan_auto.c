// test_plan_auto.c - of several ways to cut a batch: which lie on the front of time against memory,
// and which is recommended.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/plan_auto.h"
#include "tests/test.h"

enum { MOST = 4 };
typedef struct way {
    double step;
    uint64_t peak; // 0: it has no plan
} way;

static const struct judge_case {
    const char *name;
    way ways[MOST];
    const char *front; // by way
    uint32_t chosen;
} judge_cases[] = {
    {"the fastest", {{3, 10}, {2, 20}, {1, 30}}, "+++", 2},
    {"slower in as much memory isn't on the front", {{3, 10}, {3.5, 10}, {1, 30}}, "+-+", 2},
    {"as fast in more isn't either", {{3, 10}, {3, 11}, {1, 30}}, "+-+", 2},
    {"of equals both are, and the first is taken", {{1, 30}, {1, 30}, {3, 10}}, "+++", 0},
    {"within 1 % memory decides", {{1.00, 30}, {1.009, 20}, {1.02, 10}}, "+++", 1},
    {"what has no plan is none of them", {{0, 0}, {1, 30}, {2, 40}}, "-+-", 1},
    {"none has a plan", {{0, 0}, {0, 0}, {0, 0}}, "---", ZX_NONE},
};

static void judge(void **state)
{
    const struct judge_case *c = *state;
    zx_auto_row rows[3] = {0};
    zx_auto a = {.n_rows = 3, .rows = rows};
    for (uint32_t i = 0; i < 3; i++)
        rows[i] = (zx_auto_row){.step = c->ways[i].step,
                                .peak_bytes = c->ways[i].peak,
                                .refused = c->ways[i].peak == 0 ? "too little memory" : NULL};
    zx_auto_judge(&a);
    assert_int_equal(a.chosen, c->chosen);
    for (uint32_t i = 0; i < 3; i++) assert_int_equal(rows[i].front, c->front[i] == '+');
}

static void has(const zx_text *out, const char *what)
{
    if (strstr(out->at, what) == NULL) fail_msg("no '%s' in: %s", what, out->at);
}

static void test_shown(void **state)
{
    (void)state;
    zx_auto_row rows[2] = {{.micro = 2,
                            .accumulate = 3,
                            .recompute = "none",
                            .stage = 2,
                            .step = 0.5,
                            .rate = 24,
                            .bound = 0.4,
                            .peak_bytes = 1 << 20,
                            .given = true},
                           {.micro = 6,
                            .accumulate = 1,
                            .recompute = "full",
                            .stage = 3,
                            .refused = "a rank needs more"}};
    zx_auto a = {.model = "m.onnx",
                 .machine = "host",
                 .unit = "samples",
                 .ranks = 2,
                 .total = 12,
                 .budget = 2 << 20,
                 .n_rows = 2,
                 .rows = rows,
                 .left_out = 7};
    zx_text text = {0}, json = {0};
    zx_auto_judge(&a);
    zx_auto_text(&a, &text);
    has(&text, "m.onnx on host: 2 ranks, 12 samples a step, budget 2.00 MiB a rank\n");
    has(&text, "*+      2           3       none      2     500 ms         24   1.00 MiB"
               "      25.0 %  as the config says\n");
    has(&text, "\n        6           1       full      3    no plan\n");
    has(&text, "\nno plan: 6 x 1, recompute full, stage 3: a rank needs more\n");
    has(&text, "micro-batches of 7 and more weren't tried");
    has(&text, "\nin the config: {\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, "
               "\"gradient_accumulation_steps\": 3, \"zero_optimization\": {\"stage\": 2}");
    zx_auto_json(&a, &json);
    has(&json, "{\"micro\": 2, \"accumulate\": 3, \"recompute\": \"none\", \"stage\": 2, "
               "\"feasible\": true, \"pareto\": true, \"recommended\": true, \"given\": true, "
               "\"step_seconds\": 0.5, \"per_second\": 24, \"bound_seconds\": 0.4, "
               "\"peak_bytes\": 1048576, \"refused\": null}");
    has(&json, "\"step_seconds\": null, \"per_second\": null, \"bound_seconds\": null, "
               "\"peak_bytes\": null, \"refused\": \"a rank needs more\"}");
    zx_text_free(&text);
    zx_text_free(&json);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(judge_cases) + 1];
    for (size_t i = 0; i < ZX_COUNT(judge_cases); i++)
        tests[i] = zx_case(judge_cases[i].name, judge, &judge_cases[i]);
    tests[ZX_COUNT(judge_cases)] = (struct CMUnitTest)cmocka_unit_test(test_shown);
    return cmocka_run_group_tests_name("plan_auto", tests, NULL, NULL);
}

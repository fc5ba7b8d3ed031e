// test_replan.c - planning again in the middle of a run changes nothing but its time: losses, norms
// and weights are those of a run without it.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#define RUN                                                                                        \
    "m.onnx --ranks 2 --threads 1 --config two.json --data input_ids=synthetic "                   \
    "--data labels=synthetic --wire-delay 3ms --steps 8"

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    static const char two[] = "{\"zero_optimization\": {\"stage\": 3}, "
                              "\"gradient_accumulation_steps\": 2}";
    holds_write("two.json", two, sizeof two - 1);
    if (holds_zerox("new", "new llama --preset tiny -o m.onnx") != 0) return 1;
    // Waits for every launch at once: planned again, a step is shorter on any machine.
    if (holds_zerox("plan", "plan m.onnx --ranks 2 --threads 1 --config two.json --wire-delay 3ms "
                            "--no-overlap -o slow.plan") != 0)
        return 1;
    holds_train("plain", RUN);
    return 0;
}

static const struct row {
    const char *name, *run, *args;
    const char *says, *plan; // on stderr; in plan.txt; NULL
} rows[] = {
    {"another plan", "other", "--plan slow.plan --replan-after 5",
     "step 5: planned again from measured times: ", "from step 6 on, planned again"},
    {"its own plan", "own", "--replan-after 6",
     "step 6: planned again from measured times: ", NULL},
    {"after the first step", "first", "--plan slow.plan --replan-after 1 --report r.html",
     " predicted", "from step 2 on, planned again"},
    {"gradients of the first step are there", "dumped",
     "--plan slow.plan --replan-after 2 --dump-grads g.safetensors", " -> ", NULL},
    {"layers are recomputed by either plan", "recomputed", "--recompute full --replan-after 3",
     "step 3: planned again from measured times: ", NULL},
    {"as the budget asks for", "auto", "--recompute auto --budget 3MB --replan-after 3",
     "step 3: planned again from measured times: ", NULL},
    {"before the end there is nothing left to plan", "late", "--replan-after 8",
     "note: --replan-after 8: the run ends after 8 steps, nothing is planned again", NULL},
};

static void test_row(void **state)
{
    const struct row *r = *state;
    char path[64];
    holds_train(r->run, RUN " %s", r->args);
    holds_expect_same("plain", r->run);
    snprintf(path, sizeof path, "%s.err", r->run);
    if (!holds_says(path, r->says)) fail_msg("'%s' isn't said", r->says);
    snprintf(path, sizeof path, "%s/plan.txt", r->run);
    if (r->plan != NULL) assert_true(holds_says(path, r->plan));
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, setup, holds_teardown);
}

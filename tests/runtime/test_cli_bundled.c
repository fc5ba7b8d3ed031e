// test_cli_bundled.c - the bundled models train as their README says: in their own folder, with
// nothing but a model and a configuration on the command line.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/cli.h"

#include <jansson.h>

static const struct row {
    const char *name;
    double first_at_least, last_at_most; // losses: before anything is learnt, and after an epoch
} rows[] = {
    {"bytegpt", 5.3, 4.6}, // ln 256 = 5.55
    {"digits", 2.1, 1.0},  // ln 10 = 2.30
};

static void test_row(void **state)
{
    const struct row *k = *state;
    char command[512];
    snprintf(command, sizeof command, "cp -r %s/models/%s . && rm -rf %s/runs", ZX_SOURCE, k->name,
             k->name);
    assert_int_equal(system(command), 0);
    assert_int_equal(chdir(k->name), 0);
    static cli_result r;
    const char *const args[] = {"train", "model.onnx", "--config", "zero3.json", NULL};
    cli_run(args, &r);
    cli_expect(&r, 0, "", "saved: ");
    FILE *f = fopen("runs/latest/log.jsonl", "r");
    assert_non_null(f);
    double first = 0, last = 0;
    json_t *step;
    for (int n = 0; (step = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)) != NULL; n++) {
        last = json_number_value(json_object_get(step, "loss"));
        if (n == 0) first = last;
        json_decref(step);
    }
    fclose(f);
    if (!(first >= k->first_at_least)) fail_msg("the first loss is %g", first);
    if (!(last <= k->last_at_most)) fail_msg("the last loss is %g", last);
    assert_true(access("runs/latest/model.safetensors", F_OK) == 0);
    assert_int_equal(chdir(".."), 0);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows)];
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[i] = zx_case(rows[i].name, test_row, &rows[i]);
    return cmocka_run_group_tests(tests, cli_setup, cli_teardown);
}

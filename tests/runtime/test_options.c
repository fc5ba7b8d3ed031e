// test_options.c - the command line: what is understood, and what is said about the rest.
// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "runtime/options.h"
#include "tests/test.h"

static const struct row {
    const char *name;
    const char *argv[12];
    const char *cause; // NULL: understood
    const char *hint;
} rows[] = {
    {"a model and a config", {"train", "m.onnx", "--config", "c.json"}, NULL, NULL},
    {"an argument after =", {"train", "m.onnx", "--ranks=2"}, NULL, NULL},
    {"the launcher's names",
     {"train", "m.onnx", "--num_gpus", "2", "--deepspeed_config", "c", "--local_rank=3"},
     NULL,
     NULL},
    {"compare's words for plan", {"plan", "m.onnx", "--policies", "fsdp", "--json"}, NULL, NULL},
    {"for simulate",
     {"simulate", "llama3-8b", "--policies", "fsdp", "--json", "--machine", "h100"},
     NULL,
     NULL},
    {"and theirs for compare",
     {"compare", "m.onnx", "--policy", "fsdp", "--format", "json"},
     NULL,
     NULL},
    {"--json twice over", {"plan", "m.onnx", "--json", "--format", "json"}, NULL, NULL},
    {"two formats",
     {"plan", "m.onnx", "--json", "--format", "trace"},
     "--json is --format json, and --format trace was given too",
     NULL},
    {"options first", {"plan", "--ranks", "2", "m.onnx"}, NULL, NULL},
    {"after -- nothing is an option", {"train", "--", "--odd.onnx"}, NULL, NULL},
    {"new lists without a family", {"new", "--list"}, NULL, NULL},
    {"a list with a preset",
     {"new", "--list", "--preset", "digits"},
     "--list prints all there is: --preset has no effect beside it",
     "'zerox new --help'"},
    {"a list with a family", {"new", "mlp", "--list"}, "mlp has no effect beside it", NULL},
    {"a list of machines, measured",
     {"machine", "--list", "--calibrate"},
     "--calibrate has no effect",
     NULL},
    {"a schema for some ranks", {"config", "--schema", "--ranks", "2"}, "--ranks has no eff", NULL},
    {"a schema, and its help", {"config", "--schema", "--help"}, NULL, NULL},
    {"misspelt",
     {"train", "m.onnx", "--step", "3"},
     "the nearest is '--steps'",
     "'zerox train --help'"},
    {"nothing near", {"train", "m.onnx", "--qqqqqqqqq"}, "unknown option '--qqqqqqqqq'", NULL},
    {"of another command", {"check", "m.onnx", "--steps", "3"}, "check has no option", NULL},
    {"no argument left", {"train", "m.onnx", "--steps"}, "--steps needs an argument: N", NULL},
    {"a flag with an argument", {"train", "m.onnx", "--shuffle=yes"}, "takes no argument", NULL},
    {"zero ranks", {"train", "m.onnx", "--ranks", "0"}, "whole number of at least 1", NULL},
    {"a negative number", {"train", "m.onnx", "--seed", "-1"}, "needs a whole number", NULL},
    {"too large a number",
     {"train", "m.onnx", "--seed", "99999999999999999999"},
     "whole number",
     NULL},
    {"no model", {"train", "--ranks", "2"}, "train needs a MODEL.onnx", NULL},
    {"two models", {"train", "a.onnx", "b.onnx"}, "one MODEL.onnx is enough", NULL},
    {"ops takes nothing", {"ops", "m.onnx"}, "ops takes no 'm.onnx'", NULL},
    {"a misspelt command", {"trian", "m.onnx"}, "the nearest is 'train'", "'zerox --help'"},
    {"no command", {NULL}, "no command given", "'zerox --help'"},
    {"control characters are shown", {"train", "m.onnx", "--x\033[2J"}, "\\x1b[2J", NULL},
};

static void test_row(void **state)
{
    const struct row *row = *state;
    char *argv[14] = {(char *)(uintptr_t) "zerox"};
    int argc = 1;
    for (size_t i = 0; i < ZX_COUNT(row->argv) && row->argv[i] != NULL; i++)
        argv[argc++] = (char *)(uintptr_t)row->argv[i];
    zx_arena mem = {0};
    zx_err err = {0};
    zx_options o;
    const zx_status st = zx_options_parse(argc, argv, &mem, &o, &err);
    if (row->cause == NULL) {
        assert_zx_ok(st, &err);
    } else {
        assert_int_equal(st, ZX_E_USAGE);
        if (strstr(err.cause[0], row->cause) == NULL) fail_msg("said: %s", err.cause[0]);
        assert_null(strstr(err.cause[0], "zerox")); // what prints it says who speaks
        if (row->hint != NULL) assert_string_equal(err.hint, row->hint);
    }
    zx_arena_free(&mem);
}

static void values_are_kept(void **state)
{
    (void)state;
    char *argv[] = {"zerox",  "train", "m.onnx", "--data", "a=1",       "--data",     "b=2",
                    "--seed", "7",     "--seed", "8",      "--shuffle", "--num-gpus", "3"};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_options o;
    assert_zx_ok(zx_options_parse(ZX_COUNT(argv), argv, &mem, &o, &err), &err);
    assert_int_equal(o.command, ZX_CMD_TRAIN);
    assert_string_equal(o.operand, "m.onnx");
    assert_int_equal(o.value[ZX_OPT_DATA].n, 2);
    assert_string_equal(o.value[ZX_OPT_DATA].text[1], "b=2");
    assert_int_equal(zx_given_number(&o, ZX_OPT_SEED, 0), 8);
    assert_int_equal(zx_given_number(&o, ZX_OPT_RANKS, 1), 3);
    assert_true(zx_given(&o, ZX_OPT_SHUFFLE));
    assert_false(zx_given(&o, ZX_OPT_STEPS));
    assert_null(zx_given_text(&o, ZX_OPT_CONFIG));
    zx_arena_free(&mem);
}

static void short_words_are_the_long_ones(void **state)
{
    (void)state;
    char *argv[] = {"zerox", "compare", "m.onnx", "--json", "--policies", "fsdp,zerox"};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_options o;
    assert_zx_ok(zx_options_parse(ZX_COUNT(argv), argv, &mem, &o, &err), &err);
    assert_string_equal(zx_given_text(&o, ZX_OPT_FORMAT), "json");
    assert_string_equal(zx_given_text(&o, ZX_OPT_POLICY), "fsdp,zerox");
    zx_arena_free(&mem);
}

static void an_argument_may_be_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *argv[6];
        const char *run, *model;
    } rows[] = {{{"zerox", "train", "--resume"}, NULL, NULL},
                {{"zerox", "train", "--resume", "--steps", "3"}, NULL, NULL},
                {{"zerox", "train", "--resume", "runs/a", "m.onnx"}, "runs/a", "m.onnx"},
                {{"zerox", "train", "--resume=runs/a"}, "runs/a", NULL},
                {{"zerox", "train", "m.onnx", "--resume", "runs/a"}, "runs/a", "m.onnx"}};
    for (size_t i = 0; i < ZX_COUNT(rows); i++) {
        int n = 0;
        while (n < 6 && rows[i].argv[n] != NULL) n++;
        zx_arena mem = {0};
        zx_err err = {0};
        zx_options o;
        char *const *argv = (char *const *)(uintptr_t)rows[i].argv;
        assert_zx_ok(zx_options_parse(n, argv, &mem, &o, &err), &err);
        assert_true(zx_given(&o, ZX_OPT_RESUME));
        const char *run = zx_given_text(&o, ZX_OPT_RESUME);
        assert_true(run == rows[i].run || (run != NULL && strcmp(run, rows[i].run) == 0));
        assert_true((o.operand == NULL) == (rows[i].model == NULL));
        zx_arena_free(&mem);
    }
}

static void help_lists_a_commands_options_only(void **state)
{
    (void)state;
    zx_text out = {0};
    zx_options_help(ZX_CMD_PLAN, &out);
    assert_non_null(strstr(out.at, "--instructions"));
    assert_non_null(strstr(out.at, "--config, --deepspeed_config FILE"));
    assert_null(strstr(out.at, "--save DIR"));
    assert_null(strstr(out.at, "--wire-delay"));
    for (const char *line = out.at; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_in_range(strcspn(line, "\n"), 0, 100);
    zx_text_free(&out);
    zx_options_help(ZX_CMD_NONE, &out);
    assert_non_null(strstr(out.at, "train MODEL.onnx"));
    zx_text_free(&out);
}

static void small_texts(void **state)
{
    (void)state;
    uint64_t n;
    size_t at;
    double s;
    assert_true(zx_parse_name_count("a=b=12", &at, &n));
    assert_int_equal(at, 3);
    assert_int_equal(n, 12);
    assert_false(zx_parse_name_count("=12", &at, &n));
    assert_false(zx_parse_name_count("a=0", &at, &n));
    assert_false(zx_parse_name_count("a=1x", &at, &n));
    assert_false(zx_parse_u64("", &n));
    assert_true(zx_parse_seconds("5ms", &s));
    assert_true(s > 0.00499 && s < 0.00501);
    assert_false(zx_parse_seconds("5", &s));
    assert_false(zx_parse_seconds("-1s", &s));
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 5];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, test_row, &rows[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(values_are_kept);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(short_words_are_the_long_ones);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(an_argument_may_be_left_out);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(help_lists_a_commands_options_only);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(small_texts);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

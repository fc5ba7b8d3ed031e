// test_cli_models.c - models and data that ask for a choice or must be refused, seen from outside.
// SPDX-License-Identifier: Apache-2.0
#include "proto/onnx_write.h"
#include "tests/runtime/cli.h"

#define DYNAMIC ZX_TEST_DATA "/cases/gpt2_dynamic/model.onnx"
#define HF_LOSS ZX_TEST_DATA "/cases/gpt2_hf_loss/model.onnx"

// ---- small models -------------------------------------------------------------------------------

// x [N, 4] · w [4, 3] + b [3] -> logits, then what `tail` adds to "logits".
typedef void tail_fn(zx_onnx_out *o);

static void write_model(const char *path, tail_fn *tail)
{
    static const int64_t x_dims[2] = {-1, 4}, y_dims[2] = {-1, 3};
    static const char *const symbols[2] = {"N", NULL};
    static const float w[12] = {0.5f, -1,    0.25f, 0.1f, -0.2f, 0.3f,
                                1,    0.75f, -0.5f, 0.2f, 0.4f,  0.6f};
    static const float bias[3] = {0.5f, -0.25f, 0.125f};
    zx_arena mem = {0};
    zx_err err = {0};
    zx_text bytes = {0};
    zx_onnx_out o;
    zx_onnx_begin(&o, &mem, "small");
    zx_onnx_input(&o, "x", ZX_F32, 2, x_dims, symbols);
    const zx_type w_type = {ZX_F32, {2, {4, 3}}}, b_type = {ZX_F32, {1, {3}}};
    const char *const in[3] = {"x", zx_onnx_initializer(&o, "w", &w_type, w),
                               zx_onnx_initializer(&o, "b", &b_type, bias)};
    const char *const out[1] = {"logits"};
    zx_onnx_node(&o, "Gemm", "fc", 3, in, 1, out);
    if (tail != NULL)
        tail(&o);
    else
        zx_onnx_output(&o, "logits", ZX_F32, 2, y_dims, symbols);
    assert_zx_ok(zx_onnx_pack(&o, &bytes, &err), &err);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes.at, 1, bytes.n, f), bytes.n);
    fclose(f);
    zx_text_free(&bytes);
    zx_arena_free(&mem);
}

static void add(zx_onnx_out *o, const char *op, const char *name, const char *from, const char *to)
{
    const char *const in[1] = {from}, *const out[1] = {to};
    Onnx__NodeProto *n = zx_onnx_node(o, op, name, 1, in, 1, out);
    if (strncmp(op, "Reduce", 6) == 0) zx_onnx_node_int(o, n, "keepdims", 0);
}

static void tail_unknown(zx_onnx_out *o)
{
    add(o, "Frobnicate", "one\033[2J\nzerox: forged", "logits", "a");
    add(o, "Grumble", "two", "a", "c");
    add(o, "ReduceMean", "mean", "c", "y");
    zx_onnx_output(o, "y", ZX_F32, 0, NULL, NULL);
}

static void tail_log(zx_onnx_out *o) // of numbers below zero
{
    add(o, "Log", "the log", "logits", "a");
    add(o, "ReduceMean", "mean", "a", "y");
    zx_onnx_output(o, "y", ZX_F32, 0, NULL, NULL);
}

static void tail_not_differentiable(zx_onnx_out *o)
{
    const char *const in[2] = {"logits", "logits"}, *const out[1] = {"a"};
    Onnx__NodeProto *cast;
    zx_onnx_node(o, "Equal", "same", 2, in, 1, out);
    const char *const in2[1] = {"a"}, *const out2[1] = {"c"};
    cast = zx_onnx_node(o, "Cast", "back", 1, in2, 1, out2);
    zx_onnx_node_int(o, cast, "to", 1);
    add(o, "ReduceMean", "mean", "c", "y");
    zx_onnx_output(o, "y", ZX_F32, 0, NULL, NULL);
}

static int make_files(void **state)
{
    if (cli_setup(state) != 0) return 1;
    write_model("plain.onnx", NULL);
    write_model("unknown.onnx", tail_unknown);
    write_model("log.onnx", tail_log);
    write_model("flat.onnx", tail_not_differentiable);
    cli_write("ce.json", "{\"train_micro_batch_size_per_gpu\": 5, \"zerox\": {\"loss\": {\"kind\": "
                         "\"cross_entropy\"},"
                         " \"data\": {\"x\": \"synthetic\", \"labels\": \"synthetic\"}}}");
    cli_write("mse.json",
              "{\"train_micro_batch_size_per_gpu\": 2, \"zerox\": {\"loss\": {\"kind\": \"mse\","
              " \"prediction\": \"logits\", \"label\": \"t\"}}}");
    cli_write("far.json",
              "{\"zerox\": {\"loss\": {\"kind\": \"mse\", \"prediction\": \"lgits\"}}}");
    cli_write("dims.json", "{\"zerox\": {\"dims\": {\"seq\": 16}}}");
    cli_write("text.txt",
              "It was the best of times, it was the worst of times, it was the age of wisdom, "
              "it was the age of foolishness, it was the epoch of belief, it was the epoch of "
              "incredulity, it was the season of light, it was the season of darkness.");
    return 0;
}

// ---- rows
// -----------------------------------------------------------------------------------------

#define QUIET "--log", "/dev/null", "--save", "save", "--force", "--threads", "1"

static const struct row {
    const char *name;
    const char *args[CLI_ARGS];
    int code;
    const char *out, *err, *not_err;
} rows[] = {
    {"all unknown operators at once",
     {"train", "unknown.onnx", "--data", "x=ones", QUIET},
     3,
     NULL,
     "Grumble",
     NULL},
    {"names can't forge lines",
     {"train", "unknown.onnx", "--data", "x=ones", QUIET},
     3,
     NULL,
     "one\\x1b[2J\\x0azerox: forged",
     "\033"},
    {"one thing to try",
     {"train", "unknown.onnx", "--data", "x=ones", QUIET},
     3,
     NULL,
     "\ntry: ",
     NULL},
    {"check lists them as well", {"check", "unknown.onnx"}, 3, NULL, "Frobnicate", NULL},
    {"no loss", {"train", "plain.onnx", "--data", "x=ones", QUIET}, 3, NULL, "loss", NULL},
    {"check of a model without a loss",
     {"check", "plain.onnx"},
     3,
     "loss: none",
     "there is no loss",
     NULL},
    {"a loss from the config",
     {"train", "plain.onnx", "--config", "ce.json", "--steps", "2", QUIET},
     0,
     "",
     "step 2/2 loss",
     NULL},
    {"a loss and its label from the config",
     {"train", "plain.onnx", "--config", "mse.json", "--data", "x=synthetic", "--data", "t=zeros",
      "--steps", "2", QUIET},
     0,
     "",
     "step 2/2 loss",
     NULL},
    {"a loss of nothing",
     {"train", "plain.onnx", "--config", "far.json", "--data", "x=ones", "--data", "labels=ones",
      QUIET},
     2,
     NULL,
     "lgits",
     NULL},
    {"the label of the config's loss has no data",
     {"train", "plain.onnx", "--config", "mse.json", "--data", "x=ones", QUIET},
     3,
     NULL,
     "no data for 't'",
     NULL},
    {"no gradient through a comparison",
     {"train", "flat.onnx", "--data", "x=ones", "--steps", "1", QUIET},
     3,
     NULL,
     "there is nothing to train",
     NULL},
    {"an open dimension",
     {"train", DYNAMIC, "--data", "text.txt", QUIET},
     2,
     NULL,
     "try: --dim seq=",
     NULL},
    {"tokens and labels from one file",
     {"train", DYNAMIC, "--data", "text.txt", "--dim", "seq=16", "--steps", "2", QUIET},
     0,
     "",
     "labels: text.txt:+1 (the graph doesn't shift its labels)",
     NULL},
    {"dims from the config",
     {"train", DYNAMIC, "--data", "text.txt", "--config", "dims.json", "--steps", "1", QUIET},
     0,
     "",
     "step 1/1",
     NULL},
    {"a graph that shifts labels gets a copy",
     {"train", HF_LOSS, "--data", "text.txt", "--dim", "seq=16", "--steps", "2", QUIET},
     0,
     "",
     "labels: copy:input_ids (the graph shifts its labels itself)",
     NULL},
    {"check says so too",
     {"check", HF_LOSS},
     0,
     "labels: the graph shifts them itself",
     NULL,
     NULL},
    {"synthetic labels lie below the classes",
     {"train", DYNAMIC, "--data", "input_ids=synthetic", "--data", "labels=synthetic", "--dim",
      "seq=8", "--steps", "3", QUIET},
     0,
     "",
     "done: 3 steps",
     NULL},
    {"only generated data and no number of steps",
     {"train", DYNAMIC, "--data", "input_ids=synthetic", "--data", "labels=zeros", "--dim", "seq=8",
      QUIET},
     2,
     NULL,
     "try: --steps N",
     NULL},
    {"a remainder is said",
     {"train", DYNAMIC, "--data", "text.txt", "--dim", "seq=8", "--ranks", "3", QUIET},
     0,
     "",
     " left out of every epoch",
     NULL},
    {"more data than there is",
     {"train", DYNAMIC, "--data", "text.txt", "--dim", "seq=8", "--ranks", "2", "--epochs", "2",
      QUIET},
     0,
     "",
     "epoch",
     NULL},
    {"too few samples",
     {"train", DYNAMIC, "--data", "text.txt", "--dim", "seq=64", "--ranks", "4", QUIET},
     3,
     NULL,
     "samples are less than one step",
     NULL},
};

static void test_row(void **state)
{
    const struct row *row = *state;
    cli_result r;
    cli_run(row->args, &r);
    cli_expect(&r, row->code, row->out, row->err);
    if (row->not_err != NULL && strstr(r.err, row->not_err) != NULL) fail_msg("said: %s", r.err);
}

// Every sentence of an error stands on one line that begins with the program's name.
static void causes_are_lines(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {"check", "unknown.onnx", NULL};
    cli_run(args, &r);
    uint32_t causes = 0, hints = 0;
    for (const char *line = r.err; *line != '\0'; line += strcspn(line, "\n") + 1) {
        causes += strncmp(line, "zerox: ", 7) == 0;
        hints += strncmp(line, "try: ", 5) == 0;
    }
    assert_int_equal(causes, 2);
    assert_int_equal(hints, 1);
}

static void not_finite_names_step_and_node(void **state)
{
    (void)state;
    cli_result r;
    const char *const args[] = {"train",   "log.onnx", "--data", "x=const:-3", "--steps", "3",
                                "--ranks", "2",        "--out",  "nan",        NULL};
    cli_run(args, &r);
    cli_expect(&r, 5, "", "step 1: NaN first in node 'the log'");
    assert_int_equal(cli_lines("nan/log.jsonl"), 1);
    char row[2000];
    cli_read("nan/log.jsonl", row, sizeof row);
    assert_non_null(strstr(row, "\"loss\": null"));
    assert_false(cli_exists("nan/model.safetensors")); // nothing was trained
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 2];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, test_row, &rows[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(causes_are_lines);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(not_finite_names_step_and_node);
    return cmocka_run_group_tests(tests, make_files, cli_teardown);
}

// test_data.c - data that doesn't fit its model: refused before the first step where that can be
// seen, and at the step where it is met otherwise.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/bad/bad.h"
#include "tests/bad/models.h"

#define M "train $IN/m.onnx "
#define X M "--data labels=$IN/labels.npy --data x="
#define Y M "--data x=$IN/x.npy --data labels="
#define G "train " ZX_TEST_DATA "/cases/gpt2_dynamic/model.onnx --dim seq=8 "

static const bad_row rows[] = {
    // x is float32 [2, 4], labels int64 [2].
    {"no such file", 1, X "gone.npy", NULL, {"gone.npy"}, 0},
    {"a folder", 1, X "$IN", NULL, {"folder"}, 0},
    {"a folder that is called .npy", 1, X "$IN/folder.npy", NULL, {"folder.npy"}, 0},
    {"a device", 1, X "/dev/zero", NULL, {"/dev/zero"}, 0},
    {"a pipe", 1, X "$IN/pipe.npy", NULL, {"pipe.npy"}, 0},
    {"nothing", 3, X "$IN/empty.npy", NULL, {"empty.npy"}, 0},
    {"prose", 3, X "$IN/prose.npy", NULL, {"prose.npy"}, 0},
    {"a cut header", 3, X "$IN/header.npy", NULL, {"header.npy"}, 0},
    {"cut data", 3, X "$IN/cut.npy", NULL, {"cut.npy"}, 0},
    {"a header longer than the file", 3, X "$IN/longer.npy", NULL, {"longer.npy"}, 0},
    {"a shape of 2^63 elements", 3, X "$IN/huge.npy", NULL, {"huge.npy"}, 0},
    {"a shape of 2^64 elements", 3, X "$IN/overflow.npy", NULL, {"overflow.npy"}, 0},
    {"a shape of -12 rows", 3, X "$IN/negative.npy", NULL, {"negative.npy"}, 0},
    {"Python objects", 3, X "$IN/object.npy", NULL, {"object.npy"}, 0},
    {"columns first", 3, X "$IN/fortran.npy", NULL, {"fortran.npy"}, 0},
    {"bytes in the other order", 3, X "$IN/big.npy", NULL, {"big.npy"}, 0},
    {"another width", 3, X "$IN/wide.npy", NULL, {"[2, 4]", "[12, 5]"}, 0},
    {"another rank", 3, X "$IN/flat.npy", NULL, {"[2, 4]", "[12]"}, 0},
    {"no dimensions", 3, X "$IN/scalar.npy", NULL, {"scalar.npy"}, 0},
    {"doubles", 3, X "$IN/doubles.npy", NULL, {"float32", "float64"}, 0},
    {"integers for floats", 3, X "$IN/integers.npy", NULL, {"float32", "int64"}, 0},
    {"floats for labels", 3, Y "$IN/flat.npy", NULL, {"labels", "int64", "float32"}, 0},
    {"no samples", 3, X "$IN/none.npy", NULL, {"none.npy", "no samples"}, 0},
    {"other sample counts", 3, X "$IN/eleven.npy", NULL, {"11", "12"}, 0},
    {"fewer than a step", 3, M "--ranks 7", NULL, {"12 samples", "14"}, 0},
    {"tokens for floats", 3, X "$IN/prose.txt", NULL, {"float32", "tokens"}, 0},
    {"an empty source", 2, X "", NULL, {"empty"}, 0},
    {"a constant that is none", 2, X "const:one", NULL, {"const:one"}, 0},
    {"a constant without end", 2, X "const:1e999", NULL, {"const:1e999"}, 0},
    {"a fraction of a class", 3, Y "const:0.5", NULL, {"0.5"}, 0},
    {"a class beyond 2^63", 3, Y "const:1e30", NULL, {"1e+30"}, 0},
    {"a copy of itself", 2, X "copy:x", NULL, {"'x' is a copy of itself"}, 0},
    {"copies of each other",
     2,
     M "--data x=copy:labels --data labels=copy:x",
     NULL,
     {"copy of itself"},
     0},
    {"a copy of nothing", 2, X "copy:y", NULL, {"copy:y"}, 0},
    {"a copy that doesn't fit", 3, X "copy:labels", NULL, {"'x'", "int64"}, 0},
    {"floats made up, copied into labels",
     3,
     M "--data x=synthetic --data labels=copy:x",
     NULL,
     {"'labels' is int64: copy:x gives float32"},
     0},
    {"an input that isn't there", 2, M "--data label=ones", NULL, {"'label'", "labels"}, 0},
    {"an input twice", 2, X "ones --data x=zeros", NULL, {"'x'", "twice"}, 0},
    {"which input isn't said", 2, M "--data $IN/prose.txt", NULL, {"try: --data"}, 0},
    {"a source of no file for any input", 2, G "--data ones", NULL, {"input's name"}, 0},
    {"windows that begin somewhere else",
     2,
     "train $IN/m.onnx --data x=$IN/x.npy:+9999",
     NULL,
     {"there is no suffix ':+9999'; known are :+1 and :u32", "FILE:+1"},
     0},
    {"tokens of another type",
     2,
     "train $IN/m.onnx --data x=gone.bin:u64",
     NULL,
     {"there is no suffix ':u64'; known are :+1 and :u32"},
     0},
    {"a colon in a name that isn't there",
     1,
     X "gone:file.bin",
     NULL,
     {"cannot open gone:file.bin"},
     0},
    {"windows of .npy", 2, X "$IN/x.npy:+1", NULL, {":+1"}, 0},
    {"a name that forges a line", 1, X "a\nzerox:\x1b[2J", NULL, {"a\\x0azerox:\\x1b[2J"}, 0},
    {"only generated data", 2, M "--data x=ones --data labels=ones", NULL, {"--steps N"}, 0},
    // Labels are one of 3 classes, tokens of 256.
    {"a label beyond the classes",
     3,
     Y "$IN/far.npy --steps 4",
     NULL,
     {"input 'labels': sample 3 of ", "far.npy is label 3; the model has 3 classes"},
     0},
    {"a label of -1", 3, Y "const:-1 --steps 1", NULL, {"'ce'", "label -1"}, BAD_LEAVES},
    {"a label of 2^40",
     3,
     Y "const:1099511627776 --steps 1",
     NULL,
     {"'ce'", "label 1099511627776"},
     BAD_LEAVES},
    {"a token beyond the table",
     3,
     G "--data $IN/tokens.bin --steps 1",
     NULL,
     {"60000", "256"},
     BAD_LEAVES},
    {"tokens that are fewer than a window", 3, G "--data $IN/short.txt", NULL, {"short.txt"}, 0},
    {"no tokens", 3, G "--data $IN/empty.txt", NULL, {"empty.txt"}, 0},
    {"half a token", 3, G "--data $IN/odd.bin", NULL, {"odd.bin", "15 bytes"}, 0},
    {"a header that promises more", 3, G "--data $IN/promise.bin", NULL, {"promise.bin"}, 0},
    {"a header that promises -1", 3, G "--data $IN/minus.bin", NULL, {"minus.bin"}, 0},
    // What no number can repair: the step and the first bad node are named.
    {"NaN among the samples",
     5,
     X "$IN/nan.npy --steps 2",
     NULL,
     {"step 1: NaN first in node 'ce'"},
     BAD_LEAVES},
    {"labels that are all ignored",
     5,
     "train $IN/ignores.onnx --data x=$IN/x.npy --data labels=ones --steps 1",
     NULL,
     {"NaN first in node 'ce'", "it ignores all that it has there"},
     BAD_LEAVES},
    {"infinity among the samples",
     5,
     X "$IN/inf.npy --steps 2",
     NULL,
     {"step 1: ", "node '"},
     BAD_LEAVES},
    {"samples so large that products overflow",
     5,
     X "const:3e38 --steps 2",
     NULL,
     {"step 1: NaN first in node 'ce'"},
     BAD_LEAVES},
};

// ---- weights after a bad step -------------------------------------------------------------------

// The third step meets NaN: the file holds the weights of the second, bit for bit.
static void weights_are_those_of_the_step_before(void **state)
{
    (void)state;
    static const char *const ranks[] = {"1", "3"};
    for (size_t i = 0; i < ZX_COUNT(ranks); i++) {
        bad_result r;
        char args[512];
        bad_clear();
        // The rows of a step: 2 samples a rank.
        snprintf(args, sizeof args,
                 M "--data x=$IN/late%s.npy --ranks %s --steps 5 --out bad --config $IN/plain.json",
                 ranks[i], ranks[i]);
        bad_run(args, &r);
        bad_expect(&r, 5, "step 3: NaN first in node 'ce'");
        bad_expect(&r, 5, "the weights are those of step 2");
        bad_format(&r);
        bad_nothing_left(false);
        snprintf(args, sizeof args,
                 M
                 "--data x=$IN/late%s.npy --ranks %s --steps 2 --out good --config $IN/plain.json",
                 ranks[i], ranks[i]);
        bad_run(args, &r);
        bad_expect(&r, 0, NULL);
        size_t n = 0, m = 0;
        char *bad = bad_read("bad/model.safetensors", &n),
             *good = bad_read("good/model.safetensors", &m);
        assert_non_null(bad);
        assert_non_null(good);
        assert_int_equal(n, m);
        assert_memory_equal(bad, good, n);
        free(bad);
        free(good);
        char *log = bad_read("bad/log.jsonl", NULL);
        assert_non_null(log);
        assert_non_null(strstr(log, "\"step\": 3, \"loss\": null"));
        free(log);
        bad_clear();
    }
}

// ---- files --------------------------------------------------------------------------------------

static void raw_npy(const char *name, const char *dict, size_t claimed, size_t data)
{
    char bytes[1024] = "\x93NUMPY\x01";
    const size_t n = strlen(dict);
    bytes[8] = (char)(claimed & 255);
    bytes[9] = (char)(claimed >> 8);
    memcpy(bytes + 10, dict, n);
    bad_write(name, bytes, 10 + n + data);
}

static void tokens(const char *name, int32_t magic, int32_t count, size_t n)
{
    char bytes[1024 + 256] = {0};
    const int32_t head[3] = {magic, 1, count};
    memcpy(bytes, head, sizeof head);
    bad_write(name, bytes, 1024 + n);
}

static void ignore_1(zx_onnx_out *o)
{
    zx_onnx_node_int(o, model_node(o, "ce"), "ignore_index", 1);
}

static int setup(void **state)
{
    if (bad_setup(state) != 0) return 1;
    model_data();
    model_write("m.onnx", "", NULL);
    model_write("ignores.onnx", "", ignore_1);
    float x[12 * 5] = {0};
    const double doubles[12 * 4] = {0};
    int64_t integers[12 * 4] = {0};
    bad_text("empty.npy", "");
    bad_text("empty.txt", "");
    bad_text("prose.npy", "It was the best of times, it was the worst of times.");
    bad_text("prose.txt", "It was the best of times, it was the worst of times.");
    bad_text("short.txt", "1234567");
    bad_write("header.npy", "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fort", 30);
    bad_npy("cut.npy", "<f4", "12, 4", x, 12 * 4 * 4 - 1);
    raw_npy("longer.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 4), }\n", 60000,
            192);
    bad_npy("huge.npy", "<f4", "2305843009213693952, 4", x, sizeof x);
    bad_npy("overflow.npy", "<f4", "4294967296, 4294967296", x, sizeof x);
    bad_npy("negative.npy", "<f4", "-12, 4", x, sizeof x);
    bad_npy("object.npy", "|O", "12, 4", doubles, sizeof doubles);
    bad_npy("big.npy", ">f4", "12, 4", x, 192);
    raw_npy("fortran.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (12, 4), }   \n", 64,
            192);
    bad_npy("wide.npy", "<f4", "12, 5", x, 240);
    bad_npy("flat.npy", "<f4", "12,", x, 48);
    bad_npy("scalar.npy", "<f4", "", x, 4);
    bad_npy("doubles.npy", "<f8", "12, 4", doubles, sizeof doubles);
    bad_npy("integers.npy", "<i8", "12, 4", integers, sizeof integers);
    bad_npy("none.npy", "<f4", "0, 4", x, 0);
    bad_npy("eleven.npy", "<f4", "11, 4", x, 176);
    integers[3] = 3;
    bad_npy("far.npy", "<i8", "12,", integers, 96);
    x[3] = NAN;
    bad_npy("nan.npy", "<f4", "12, 4", x, 192);
    x[3] = INFINITY;
    bad_npy("inf.npy", "<f4", "12, 4", x, 192);
    float late[36 * 4];
    for (int i = 0; i < 36 * 4; i++) late[i] = (float)(i % 7) * 0.25f - 0.5f;
    late[4 * 4 + 1] = NAN; // step 3 of 2 samples
    bad_npy("late1.npy", "<f4", "12, 4", late, 192);
    late[4 * 4 + 1] = 0;
    late[15 * 4] = NAN; // step 3 of 6 samples
    bad_npy("late3.npy", "<f4", "36, 4", late, sizeof late);
    bad_text("plain.json", "{\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"data\": "
                           "{\"labels\": \"zeros\"}}}");
    const uint16_t ids[64] = {1, 2, 60000};
    bad_write("tokens.bin", ids, sizeof ids);
    bad_write("odd.bin", ids, 15);
    tokens("promise.bin", 20240520, 1000, 100);
    tokens("minus.bin", 20240520, -1, 100);
    char command[256];
    snprintf(command, sizeof command, "mkdir %s && mkfifo %s", bad_path("folder.npy"),
             bad_path("pipe.npy"));
    return system(command);
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + 1];
    size_t n = 0;
    for (; n < ZX_COUNT(rows); n++) tests[n] = zx_case(rows[n].name, bad_row_test, &rows[n]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(weights_are_those_of_the_step_before);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}

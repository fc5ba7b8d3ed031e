// test_checkpoints.c - what users of sharded training lost in checkpoints: frozen and tied weights,
// the rate after a pause, states of a model that was exported again, memory for putting it
// together.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define CASES ZX_TEST_DATA "/cases/"
#define DATA "--data input_ids=synthetic --data labels=synthetic "
#define SYNTHETIC DATA "--threads 1 "

static void config(const char *path, const char *json)
{
    holds_write(path, json, strlen(json));
}

static void resume(const char *name, const char *args)
{
    const int code = holds_zerox(name, "train --resume %s", args);
    if (code == 0) return;
    char path[80];
    snprintf(path, sizeof path, "%s.err", name);
    fail_msg("exit code %d: %s", code, holds_read(path, &(size_t){0}));
}

static void expect_same_bytes(const char *a, const char *b)
{
    size_t n, m;
    char *x = holds_read(a, &n), *y = holds_read(b, &m);
    if (n != m || memcmp(x, y, n) != 0) fail_msg("%s and %s differ", a, b);
    free(x);
    free(y);
}

// ---- small models -------------------------------------------------------------------------------

enum { IN = 3, OUT = 5 };

// x · w + b, the initialisers in one order or the other; the bias by this name, of so many.
static void make_model(const char *path, bool turned, const char *bias, int64_t columns)
{
    const int64_t xs[] = {2, IN}, ws[] = {IN, OUT}, bs[] = {columns};
    float w[IN * OUT], b[OUT] = {1, 2, 3, 4, 5};
    for (int i = 0; i < IN * OUT; i++) w[i] = sinf((float)i);
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    if (turned) holds_net_floats(&n, bias, "PARAMETER", 1, bs, b);
    holds_net_floats(&n, "w", "PARAMETER", 2, ws, w);
    if (!turned) holds_net_floats(&n, bias, "PARAMETER", 1, bs, b);
    holds_net_node(&n, "MatMul", "xw", "x", "w", NULL);
    holds_net_node(&n, "Add", "y", "xw", bias, NULL);
    holds_net_node(&n, "Mul", "yy", "y", "y", NULL);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceMean", "loss", "yy", NULL, NULL), "keepdims",
                     0);
    holds_net_done(&n, "loss", path);
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    make_model("m.onnx", false, "b", OUT);
    make_model("turned.onnx", true, "b", OUT);
    make_model("renamed.onnx", false, "bias", OUT);
    make_model("shaped.onnx", false, "b", 1);
    config("c.json", "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.1}}, \"zerox\": "
                     "{\"data\": {\"x\": \"synthetic\"}}}");
    return 0;
}

// ---- states by name -----------------------------------------------------------------------------

static void exported_again(void **state)
{
    static const struct {
        const char *model, *says[2]; // of a refusal
    } others[] = {
        {"renamed.onnx",
         {"it has no parameter 'bias'", "it has a parameter 'b', which the run doesn't have"}},
        {"shaped.onnx",
         {"parameter 'b' is float32 [5] there, the model's is float32 [1]", "exp_avg_sq 'b' is"}},
    };
    (void)state;
    holds_train("whole", "m.onnx --config c.json --threads 1 --ranks 2 --steps 4");
    holds_train("part", "m.onnx --config c.json --threads 1 --ranks 2 --steps 2 --save-every 2");
    for (size_t i = 0; i < ZX_COUNT(others); i++) {
        assert_int_equal(holds_zerox("other", "train %s --resume part --steps 4", others[i].model),
                         3);
        for (int k = 0; k < 2; k++)
            if (!holds_says("other.err", others[i].says[k]))
                fail_msg("%s isn't said: %s", others[i].says[k],
                         holds_read("other.err", &(size_t){0}));
    }
    assert_int_equal(holds_zerox("other", "train turned.onnx --resume part --steps 4"), 0);
    holds_row a[HOLDS_ROWS], b[HOLDS_ROWS];
    assert_int_equal(holds_log("whole", a), 4);
    assert_int_equal(holds_log("part", b), 4);
    for (int i = 0; i < 4; i++) assert_true(a[i].loss == b[i].loss);
    float w[2][IN * OUT], bias[2][OUT];
    for (int i = 0; i < 2; i++) {
        holds_tensors t;
        holds_open(&t, "%s/model.safetensors", i == 0 ? "whole" : "part");
        holds_floats(&t, "w", IN * OUT, w[i]);
        holds_floats(&t, "b", OUT, bias[i]);
        holds_close(&t);
    }
    assert_memory_equal(w[0], w[1], sizeof w[0]);
    assert_memory_equal(bias[0], bias[1], sizeof bias[0]);
}

// ---- the rate -----------------------------------------------------------------------------------

enum { STEPS = 8 };

static const char *const schedules[] = {
    "\"WarmupLR\", \"params\": {\"warmup_num_steps\": 3, \"warmup_max_lr\": 0.1}",
    "\"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 3, \"warmup_max_lr\": 0.1, "
    "\"total_num_steps\": 7}",
    "\"WarmupCosineLR\", \"params\": {\"warmup_num_steps\": 3, \"total_num_steps\": 7}",
    "\"OneCycle\", \"params\": {\"cycle_min_lr\": 0.01, \"cycle_max_lr\": 0.1, "
    "\"cycle_first_step_size\": 3, \"cycle_second_step_size\": 3, \"decay_step_size\": 2, "
    "\"decay_lr_rate\": 0.5}",
};

static void read_rates(const char *name, double rates[STEPS])
{
    char path[80];
    snprintf(path, sizeof path, "%s/log.jsonl", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i < STEPS; i++) {
        json_t *row = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
        if (row == NULL) fail_msg("%s: no step %d", name, i + 1);
        rates[i] = json_number_value(json_object_get(row, "lr"));
        json_decref(row);
    }
    fclose(f);
}

// Gone on with in the warm-up, at its end, in the decay and behind it: the rates of the run that
// wasn't interrupted, and so its bits.
static void rates_go_on(void **state)
{
    static const int stops[] = {2, 3, 5, 7};
    const char *schedule = *state;
    char text[600], args[80];
    double whole[STEPS], rates[STEPS];
    snprintf(text, sizeof text,
             "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.1}}, \"scheduler\": "
             "{\"type\": %s}, \"zerox\": {\"data\": {\"x\": \"synthetic\"}}}",
             schedule);
    config("rates.json", text);
    holds_train("rates",
                "m.onnx --config rates.json --threads 1 --force --steps %d --keep 9 "
                "--save-every 1",
                STEPS);
    read_rates("rates", whole);
    assert_true(whole[1] != whole[4] && whole[4] > 0);
    holds_zerox("copy", "convert rates whole.safetensors --force");
    for (size_t i = 0; i < ZX_COUNT(stops); i++) {
        snprintf(args, sizeof args, "rates/checkpoints/step-%d", stops[i]);
        resume("rates", args);
        read_rates("rates", rates);
        assert_memory_equal(rates, whole, sizeof rates);
        expect_same_bytes("whole.safetensors", "rates/model.safetensors");
    }
}

// ---- frozen, in 16 bits -------------------------------------------------------------------------

static bool is_bf16(const zx_safe_tensor *t)
{
    for (int64_t i = 0; i < zx_shape_count(&t->type.shape); i++) {
        uint16_t low;
        memcpy(&low, t->data + 4 * i, sizeof low); // little-endian
        if (low != 0) return false;
    }
    return true;
}

// A checkpoint has what is frozen, in float32 as everything is; a model whose own values are others
// gets it back to the bit.
static void frozen_comes_back(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        config("frozen.json", half ? "{\"bf16\": {\"enabled\": true}, \"optimizer\": {\"type\": "
                                     "\"AdamW\"}, \"zerox\": {\"freeze\": [\"*.h.0.*\"]}}"
                                   : "{\"optimizer\": {\"type\": \"AdamW\"}, \"zerox\": "
                                     "{\"freeze\": [\"*.h.0.*\"]}}");
        assert_int_equal(holds_zerox("new", "new gpt2 --preset tiny --force -o f.onnx"), 0);
        holds_train("unbroken", "f.onnx --config frozen.json " SYNTHETIC "--ranks 2 --steps 3 "
                                "--force");
        holds_train("frozen", "f.onnx --config frozen.json " SYNTHETIC "--ranks 2 --steps 2 "
                              "--save-every 2 --force");
        assert_int_equal(holds_zerox("new", "new gpt2 --preset tiny --seed 9 --force -o f.onnx"),
                         0);
        resume("frozen", "frozen --steps 3");
        holds_expect_same("unbroken", "frozen");
        assert_int_equal(holds_zerox("out", "convert frozen frozen.safetensors --force"), 0);
        holds_tensors t;
        uint32_t halves = 0;
        holds_open(&t, "frozen.safetensors");
        for (uint32_t i = 0; i < t.file.n; i++) {
            const zx_safe_tensor *x = &t.file.tensors[i];
            assert_int_equal(x->type.dtype, ZX_F32);
            if (strstr(x->name, ".h.0.") != NULL && strstr(x->name, ".weight") != NULL &&
                x->type.shape.rank == 2) {
                assert_true(is_bf16(x) == (half == 1));
                halves++;
            } else if (x->type.shape.rank == 2) {
                assert_false(is_bf16(x)); // the float32 copy that is trained
            }
        }
        assert_int_equal(halves, 4);
        holds_close(&t);
    }
}

// ---- tied ---------------------------------------------------------------------------------------

// Sharded, put together, made a checkpoint again, gone on with: one tensor under both names.
static void tied_stays_tied(void **state)
{
#define TIED CASES "gpt2/model.onnx"
    static const char *const names[] = {"m.lm_head.weight", "m.transformer.wte.weight"};
    (void)state;
    holds_train("tied", TIED " " SYNTHETIC "--ranks 2 --steps 1 --save-every 1");
    assert_int_equal(holds_zerox("one", "convert tied one.safetensors"), 0);
    assert_int_equal(
        holds_zerox("start", "convert one.safetensors start --model " TIED " --ranks 3 " DATA), 0);
    resume("start", "start --steps 5");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(holds_zerox("by", "show start --tensor %s", names[i]), 0);
        assert_true(holds_says("by.out", "parameter m.lm_head.weight  float32 [256, 64]"));
        assert_true(holds_says("by.out", "exp_avg m.lm_head.weight") == (i == 0));
        assert_int_equal(holds_zerox("by", "show start/model.safetensors --tensor %s", names[i]),
                         0);
    }
    holds_tensors t;
    holds_open(&t, "start/model.safetensors");
    assert_non_null(zx_safe_find(&t.file, names[0]));
    assert_null(zx_safe_find(&t.file, names[1]));
    holds_close(&t);
#undef TIED
}

// ---- folders ------------------------------------------------------------------------------------

// One rank makes them, however many there are and whoever started them.
static void many_ranks_one_folder(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        char name[40], path[100];
        snprintf(name, sizeof name, "deep%d", i);
        assert_int_equal(mkdir(name, 0777), 0);
        snprintf(name, sizeof name, "deep%d/a/b", i);
        assert_int_equal(holds_zerox("deep",
                                     "train m.onnx --config c.json --threads 1 --ranks 8 --steps 1 "
                                     "--save-every 1 --out %s/run",
                                     name),
                         0);
        snprintf(path, sizeof path, "%s/run/checkpoints/step-1/rank-00007-of-00008.safetensors",
                 name);
        assert_int_equal(access(path, F_OK), 0);
    }
    holds_launched("deep.run", 8,
                   "m.onnx --config c.json --threads 1 --steps 1 --save-every 1 --force");
    assert_int_equal(access("deep.run/checkpoints/step-1/rank-00007-of-00008.safetensors", F_OK),
                     0);
}

// ---- memory -------------------------------------------------------------------------------------

// 33 MiB of weights into four ranks' files and back, in a process that may have 24 MiB of its own.
static void put_together_in_little_memory(void **state)
{
    (void)state;
#if TEST_SANITIZED
    skip();
#endif
    config("sgd.json", "{\"optimizer\": {\"type\": \"SGD\"}}");
    assert_int_equal(holds_zerox("new", "new mlp --set width=2048 --set layers=3 -o large.onnx"),
                     0);
    holds_train("large", "large.onnx --config sgd.json --threads 1 --steps 1 --data x=synthetic "
                         "--data labels=synthetic");
#define LITTLE "ulimit -d 24576 && " ZX_PROGRAM " convert "
    assert_int_equal(system(LITTLE "large/model.safetensors small --model large.onnx --config "
                                   "sgd.json --ranks 4 2>small.err"),
                     0);
    assert_int_equal(system(LITTLE "small back.safetensors 2>small.err"), 0);
#undef LITTLE
    expect_same_bytes("large/model.safetensors", "back.safetensors");
}

int main(void)
{
    struct CMUnitTest tests[16];
    size_t n = 0;
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(exported_again);
    for (size_t i = 0; i < ZX_COUNT(schedules); i += test_few() ? 2 : 1)
        tests[n++] = zx_case(schedules[i], rates_go_on, schedules[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(frozen_comes_back);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(tied_stays_tied);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(many_ranks_one_folder);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(put_together_in_little_memory);
    return _cmocka_run_group_tests("checkpoints", tests, n, setup, holds_teardown);
}

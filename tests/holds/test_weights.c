// test_weights.c - weights from one kind of file into another and into a run: what show says of
// them, convert writes and --init begins with is to the bit what was saved, and names that don't
// fit are told.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>
#include <unistd.h>

enum { IN = 3, OUT = 4 };

// x [2,3] · w + b, batch norm's statistics as buffers, and a tied pair: t is read twice.
static void make_model(const char *path, float scale)
{
    const int64_t xs[] = {2, IN}, ws[] = {IN, OUT}, bs[] = {OUT};
    float w[IN * OUT], b[OUT] = {1, 2, 3, 4};
    for (int i = 0; i < IN * OUT; i++) w[i] = scale * (float)(i - 5);
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    holds_net_floats(&n, "fc.weight", "PARAMETER", 2, ws, w);
    holds_net_floats(&n, "fc.bias", "PARAMETER", 1, bs, b);
    holds_net_node(&n, "MatMul", "xw", "x", "fc.weight", NULL);
    holds_net_node(&n, "Add", "y", "xw", "fc.bias", NULL);
    holds_net_node(&n, "Mul", "yy", "y", "y", NULL);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceMean", "loss", "yy", NULL, NULL), "keepdims",
                     0);
    holds_net_done(&n, "loss", path);
}

static void write_safe(const char *path, uint32_t n, const zx_safe_tensor *tensors)
{
    zx_arena mem = {0};
    zx_err err = {0};
    const void *header;
    uint64_t bytes, total, offsets[8];
    assert_zx_ok(zx_safe_header(n, tensors, 0, NULL, &mem, &header, &bytes, offsets, &total, &err),
                 &err);
    char *all = calloc(1, (size_t)total);
    memcpy(all, header, (size_t)bytes);
    for (uint32_t i = 0; i < n; i++)
        memcpy(all + offsets[i], tensors[i].data, (size_t)zx_type_bytes(&tensors[i].type));
    holds_write(path, all, (size_t)total);
    free(all);
    zx_arena_free(&mem);
}

static zx_safe_tensor tensor(const char *name, zx_dtype t, uint32_t rank, const void *data)
{
    return (zx_safe_tensor){
        name, {t, {.rank = rank, .dim = {rank == 2 ? IN : OUT, rank == 2 ? OUT : 0}}}, data};
}

static const float weights[IN * OUT] = {0.5f, -1, 2, 4, 0.25f, 3, -2, 1, 8, 0, 1.5f, -0.5f};
static const float biases[OUT] = {1, 0, -1, 2};
static const uint16_t half_biases[OUT] = {0x3c00, 0, 0xbc00, 0x4000};
static const uint16_t brain_biases[OUT] = {0x3f80, 0, 0xbf80, 0x4000};

static void make_files(void)
{
    const zx_safe_tensor w = tensor("fc.weight", ZX_F32, 2, weights),
                         b = tensor("fc.bias", ZX_F32, 1, biases);
    static const char config[] =
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0}}, "
        "\"zero_optimization\": {\"stage\": 3}, \"zerox\": {\"data\": {\"x\": \"ones\"}}}";
    static const char index[] =
        "{\"metadata\": {\"total_size\": 64}, \"weight_map\": {"
        "\"fc.weight\": \"a.safetensors\", \"fc.bias\": \"b.safetensors\"}}";
    static const char wrong[] = "{\"weight_map\": {\"fc.weight\": \"a.safetensors\", "
                                "\"fc.bias\": \"a.safetensors\"}}";
    static const char out[] = "{\"weight_map\": {\"fc.weight\": \"../a.safetensors\"}}";
    make_model("m.onnx", 1);
    holds_write("c.json", config, sizeof config - 1);
    holds_write("index.json", index, sizeof index - 1);
    holds_write("wrong.json", wrong, sizeof wrong - 1);
    holds_write("out.json", out, sizeof out - 1);
    holds_write("pickle.pt", "PK\x03\x04 and more of it", 20);
    write_safe("f32.safetensors", 2, (zx_safe_tensor[]){w, b});
    write_safe("f16.safetensors", 2,
               (zx_safe_tensor[]){tensor("fc.bias", ZX_F16, 1, half_biases), w});
    write_safe("bf16.safetensors", 2,
               (zx_safe_tensor[]){w, tensor("fc.bias", ZX_BF16, 1, brain_biases)});
    write_safe("a.safetensors", 1, (zx_safe_tensor[]){w});
    write_safe("b.safetensors", 1, (zx_safe_tensor[]){b});
    write_safe("named.safetensors", 2, (zx_safe_tensor[]){w, tensor("fc.bais", ZX_F32, 1, biases)});
    write_safe("shape.safetensors", 2,
               (zx_safe_tensor[]){tensor("fc.weight", ZX_F32, 1, weights), b});
    char *whole = holds_read("f32.safetensors", &(size_t){0});
    holds_write("cut.safetensors", whole, 200); // of its last tensor there is a part
    free(whole);
    static const char learns[] =
        "{\"train_batch_size\": 12, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
        "0.1}}, \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": "
        "\"auto\", \"warmup_num_steps\": \"auto\"}}, \"zerox\": {\"seed\": 5, \"data\": {\"x\": "
        "\"synthetic\"}, \"eval\": {\"data\": {\"x\": \"held.npy\"}}}}";
    static const float x[12 * IN];
    holds_npy("held.npy", ZX_F32, 2, (const int64_t[]){12, IN},
              x); // beside the config, not the run
    holds_write("learns.json", learns, sizeof learns - 1);
    write_safe("ints.safetensors", 2, (zx_safe_tensor[]){w, tensor("fc.bias", ZX_I32, 1, biases)});
}

#define TRAIN "train m.onnx --config c.json --threads 1 --ranks 2 --steps 1 "

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    make_files();
    holds_train("run", "m.onnx --config c.json --threads 1 --ranks 3 --steps 2 --save-every 1 "
                       "--init f32.safetensors");
    holds_train("alone", "m.onnx --config c.json --threads 1 --steps 1 --init f32.safetensors");
    return 0;
}

static void expect(const char *name, const char *says)
{
    char path[80];
    snprintf(path, sizeof path, "%s.err", name);
    char *err = holds_read(path, &(size_t){0});
    snprintf(path, sizeof path, "%s.out", name);
    char *out = holds_read(path, &(size_t){0});
    if (strstr(err, says) == NULL && strstr(out, says) == NULL)
        fail_msg("'%s' isn't said: %s%s", says, out, err);
    free(out);
    free(err);
}

// The weights of `path` are those of make_files (lr is 0).
static void expect_weights(const char *path)
{
    holds_tensors t;
    float w[IN * OUT], b[OUT];
    holds_open(&t, "%s", path);
    holds_floats(&t, "fc.weight", IN * OUT, w);
    holds_floats(&t, "fc.bias", OUT, b);
    assert_memory_equal(w, weights, sizeof w);
    assert_memory_equal(b, biases, sizeof b);
    holds_close(&t);
}

// ---- --init -------------------------------------------------------------------------------------

static const struct init_row {
    const char *name, *from;
    int code;
    const char *says;
} init_rows[] = {
    {"one file", "f32.safetensors", 0, "init: f32.safetensors: 2 of the model's 2 tensors\n"},
    {"halves become float32", "f16.safetensors", 0, "1 of them turned into float32"},
    {"bfloat16 too", "bf16.safetensors", 0, "1 of them turned into float32"},
    {"an index", "index.json", 0, "init: index.json: 2 of the model's 2 tensors"},
    {"a run's newest checkpoint", "run", 0, "init: run/checkpoints/step-2: 2 of the model's 2"},
    {"a checkpoint", "run/checkpoints/step-1", 0, "step-1: 2 of the model's 2 tensors"},
    {"another name", "named.safetensors", 3,
     "it has no parameter 'fc.bias'; the nearest that is left over is 'fc.bais'"},
    {"left over", "named.safetensors", 3, "it has 'fc.bais', which the model doesn't have"},
    {"only in part", "b.safetensors", 3, "it has no parameter 'fc.weight'"},
    {"another shape", "shape.safetensors", 3,
     "'fc.weight' is float32 [4] there, the model's is float32 [3, 4]"},
    {"whole numbers", "ints.safetensors", 3,
     "'fc.bias' is int32 [4] there, the model's is float32"},
    {"nothing there", "gone.safetensors", 1, "gone.safetensors"},
    {"an index that is wrong", "wrong.json", 3, "it names 2 tensors, its files have 1 of them"},
    {"an index that leads elsewhere", "out.json", 3, "tensor 'fc.weight' is in no file beside it"},
    {"a pickle", "pickle.pt", 3, "zero_to_fp32.py --safe_serialization"},
};

static void test_init(void **state)
{
    const struct init_row *r = *state;
    const int code = holds_zerox("init", TRAIN "--out init --force --init %s", r->from);
    expect("init", r->says);
    assert_int_equal(code, r->code);
    if (code == 0) expect_weights("init/model.safetensors");
}

static void init_in_part(void **state)
{
    (void)state;
    assert_int_equal(holds_zerox("part", TRAIN "--out part --init a.safetensors --init-partial"),
                     0);
    expect("part", "init: parameter 'fc.bias' isn't there: its own first values");
    holds_tensors t;
    float b[OUT];
    holds_open(&t, "part/model.safetensors");
    holds_floats(&t, "fc.bias", OUT, b);
    holds_close(&t);
    for (int i = 0; i < OUT; i++) assert_true(b[i] == (float)(i + 1));
    assert_int_equal(holds_zerox("part2", TRAIN "--out part2 --init run/model.safetensors "
                                                "--init-partial --stage 0"),
                     0);
    expect_weights("part2/model.safetensors");
    assert_int_equal(holds_zerox("part3", TRAIN "--out run --force --init run"), 2);
    expect("part3", "is in the folder that --out writes to");
    assert_int_equal(holds_zerox("part4", TRAIN "--out part4 --init-partial"), 2);
}

// runs/latest is another run's before these weights are read.
static void init_from_the_latest(void **state)
{
    (void)state;
    assert_int_equal(holds_zerox("late", TRAIN "--save-every 1"), 0);
    assert_int_equal(holds_zerox("late2", TRAIN "--init runs/latest"), 0);
    assert_true(access("runs/latest/checkpoints", F_OK) != 0);
}

// ---- show ---------------------------------------------------------------------------------------

static const struct word_row {
    const char *name, *args;
    int code;
    const char *says;
} word_rows[] = {
    {"of a file", "show f32.safetensors", 0,
     "fc.weight  float32 [3, 4]  norm 10.0902  min -2  max 8\n"
     "fc.bias  float32 [4]  norm 2.44949  min -1  max 2\n2 tensors, 16 elements\n"},
    {"first values", "show f16.safetensors --tensor *.bias", 0,
     "fc.bias  float16 [4]  norm 2.44949  min -1  max 2\n  first: 1 0 -1 2\n1 tensor"},
    {"of a run", "show run", 0, "saved on 3 ranks, ZeRO stage 3, optimizer AdamW, model /"},
    {"where it stands", "show run", 0,
     "\nsteps 2, applied_steps 2, skipped_steps 0, samples 12, seed 0\n"},
    {"states", "show run/checkpoints --tensor fc.bias", 0,
     "exp_avg_sq fc.bias  float32 [4]  norm "},
    {"parameters", "show run/checkpoints/step-1", 0,
     "parameter fc.weight  float32 [3, 4]  norm 10.0902  min -2  max 8\n"},
    {"no such tensor", "show run --tensor fc.weigth", 2,
     "has no tensor 'fc.weigth'; the nearest is"},
    {"nothing there", "show gone", 1, "gone"},
    // ---- convert
    {"a run without checkpoints knows its model", "convert alone alone.onnx", 0,
     "m.onnx with 2 tensors"},
    {"into which model", "convert f32.safetensors new.onnx", 2, "doesn't say which model it is of"},
    {"over the model", "convert f32.safetensors m.onnx --model m.onnx", 2, "is the model itself"},
    {"into another model", "convert named.safetensors n.onnx --model m.onnx", 3,
     "m.onnx: there is no initializer 'fc.bais'"},
    {"of another shape", "convert shape.safetensors n.onnx --model m.onnx", 3,
     "'fc.weight' is float32 [3, 4] there, and float32 [4] in the weights"},
    {"no model", "convert run n.onnx --model f32.safetensors", 3, "f32.safetensors"},
    {"into what isn't one file", "convert run w.bin", 2, "w.bin is no .safetensors file"},
    {"shards into a file", "convert run w.safetensors --shard-size 5GB", 2, "has to be a folder"},
    {"what is there", "convert run f32.safetensors", 2, "f32.safetensors exists already"},
    {"into itself", "convert f32.safetensors f32.safetensors --force", 2, "is what is converted"},
    // ---- convert into a checkpoint
    {"a checkpoint of what", "convert run folder", 2, "with --model MODEL.onnx for a checkpoint"},
    {"a name is missing", "convert named.safetensors no --model m.onnx", 3,
     "named.safetensors: it has no parameter 'fc.bias'; the nearest that is left over is "
     "'fc.bais'"},
    {"and one is left over", "convert named.safetensors no --model m.onnx", 3,
     "it has 'fc.bais', which the model doesn't have"},
    {"of another shape", "convert shape.safetensors no --model m.onnx", 3,
     "'fc.weight' is float32 [4] there, the model's is float32 [3, 4]"},
    {"of another type", "convert ints.safetensors no --model m.onnx", 3,
     "'fc.bias' is int32 [4] there, the model's is float32"},
    {"cut off", "convert cut.safetensors no --model m.onnx", 3, "cut.safetensors: "},
    {"not there", "convert gone.safetensors no --model m.onnx", 1, "gone.safetensors"},
    {"of a model that isn't there", "convert f32.safetensors no --model gone.onnx", 1, "gone.onnx"},
    {"a config that isn't one", "convert f32.safetensors no --model m.onnx --config out.json", 2,
     "unknown key 'weight_map'"},
    {"into a run", "convert f32.safetensors run --model m.onnx", 2, "is there already"},
    {"into where it comes from", "convert run run --model m.onnx --force", 2,
     "run is in the folder that is written, run"},
    {"into a file", "convert f32.safetensors m.onnx/no --model m.onnx", 1, "m.onnx"},
    {"ranks of one file", "convert run w.safetensors --ranks 2", 2,
     "--ranks is for a checkpoint, not for w.safetensors"},
    {"a model of one file", "convert run w.safetensors --model m.onnx", 2,
     "--model is for TO.onnx or the folder of a checkpoint"},
};

static void test_word(void **state)
{
    const struct word_row *r = *state;
    const int code = holds_zerox("word", "%s", r->args);
    expect("word", r->says);
    assert_int_equal(code, r->code);
    assert_int_not_equal(access("no", F_OK), 0); // what fails leaves nothing behind
}

// A file that may not grow, as on a full disk: said, and nothing is left of any kind of TO.
static void no_room(void **state)
{
    static const char *const into[] = {"no --model m.onnx", "no.safetensors", "no.onnx",
                                       "no --shard-size 5GB"};
    (void)state;
    for (size_t i = 0; i < ZX_COUNT(into); i++) {
        char line[400];
        snprintf(
            line, sizeof line,
            "{ ulimit -f 0; " ZX_PROGRAM
            " convert run %s; echo code $?; } 2>&1 | cat >room.err; cp room.err room.out; rmdir "
            "no 2>room.none; test -z \"$(ls -d no* 2>room.none)\"",
            into[i]);
        const int status = system(line);
        expect("room", "cannot write no");
        expect("room", "File too large");
        expect("room", "code 1\n");
        if (status != 0) fail_msg("%s: something is left", into[i]);
    }
}

// Weights alone as a run that has done no step: going on from there is beginning with them.
static void into_checkpoint(void **state)
{
    static const char *const from[] = {"f32.safetensors", "index.json", "bf16.safetensors",
                                       "run/checkpoints/step-1"};
    (void)state;
    holds_train("begun", "m.onnx --config learns.json --threads 1 --ranks 3 --steps 4 --init "
                         "f32.safetensors");
    for (size_t i = 0; i < ZX_COUNT(from); i++) {
        assert_int_equal(holds_zerox("made0",
                                     "convert %s made --model m.onnx --config learns.json "
                                     "--ranks 3 --force",
                                     from[i]),
                         0);
        expect("made0", ": 2 of the model's 2 tensors");
        assert_int_equal(holds_zerox("back", "convert made back.safetensors --force"), 0);
        expect_weights("back.safetensors");
    }
    assert_int_equal(holds_zerox("made1", "show made --tensor fc.bias"), 0);
    expect("made1", "\nsteps 0, applied_steps 0, skipped_steps 0, samples 0, seed 5\n");
    assert_int_equal(holds_zerox("onnx", "convert made of_made.onnx"), 0); // it says of which model
    expect("made1", "exp_avg_sq fc.bias  float32 [4]  norm 0  min 0  max 0\n");
    assert_true(access("made/checkpoints/step-0/rank-00002-of-00003.safetensors", F_OK) == 0);
    assert_int_equal(holds_zerox("made2", "train --resume made --steps 4 --threads 1"), 0);
    expect("made2", "resumed: made/checkpoints/step-0, step 0 of 4");
    expect("made2", "checkpoint: made/checkpoints/step-4"); // so that it can be gone on with
    holds_expect_same("begun", "made");
    // What was there goes by force, with files of other ranks.
    assert_int_equal(holds_zerox("made3", "convert hf1 made --model m.onnx --force --ranks 2"), 0);
    assert_true(access("made/checkpoints/step-0/rank-00000-of-00003.safetensors", F_OK) != 0);
    assert_true(access("made/checkpoints/step-4", F_OK) != 0);
    assert_int_equal(remove("made/config.json"), 0); // weights alone can be begun with
    assert_int_equal(holds_zerox("made4", "train --resume made"), 2);
    expect("made4", "zerox train MODEL.onnx --init made");
}

static void convert(void **state)
{
    size_t n, m;
    (void)state;
    assert_int_equal(holds_zerox("one", "convert run one.safetensors"), 0);
    char *a = holds_read("one.safetensors", &n), *b = holds_read("run/model.safetensors", &m);
    assert_true(n == m && memcmp(a, b, n) == 0); // as the run itself has saved them
    free(a);
    free(b);
    for (int k = 0; k < 2; k++) { // all in one, each in its own
        const char *const sizes[] = {"1KiB", "20"};
        assert_int_equal(holds_zerox("hf", "convert run hf%d --shard-size %s", k, sizes[k]), 0);
        assert_int_equal(holds_zerox("again", "convert hf%d again%d.safetensors", k, k), 0);
        char path[40];
        snprintf(path, sizeof path, "again%d.safetensors", k);
        expect_weights(path);
    }
    expect_weights("hf0/model-00001-of-00001.safetensors");
    assert_true(access("hf1/model-00002-of-00002.safetensors", F_OK) == 0);
    // Nothing that is read is written to: a shard by its index, a checkpoint, a shard among others.
    static const char *const onto[] = {
        "hf1 hf1/model-00002-of-00002.safetensors",
        "run/checkpoints/step-2 run/checkpoints/step-2/rank-00000-of-00003.safetensors",
        "hf0/model-00001-of-00001.safetensors hf0 --shard-size 1KiB"};
    for (size_t i = 0; i < ZX_COUNT(onto); i++) {
        assert_int_equal(holds_zerox("onto", "convert %s --force", onto[i]), 2);
        expect("onto", "is what is converted");
    }
    assert_true(holds_says("hf1/model.safetensors.index.json", "\"total_size\": 64"));
    assert_true(holds_says("hf1/model.safetensors.index.json",
                           "\"fc.bias\": \"model-00002-of-00002.safetensors\""));
}

// Into the model itself, small tensors and large ones, and tied ones.
static void into_onnx(void **state)
{
    (void)state;
    assert_int_equal(holds_zerox("into", "convert run new.onnx --model m.onnx"), 0);
    holds_train("of_new", "new.onnx --config c.json --threads 1 --steps 1");
    expect_weights("of_new/model.safetensors");
    static const struct {
        const char *model, *data; // a tied table; running statistics
    } cases[] = {{"gpt2", "input_ids"}, {"convnet", "x"}};
    for (size_t i = 0; i < ZX_COUNT(cases); i++) {
        char dir[400], data[1200];
        snprintf(dir, sizeof dir, ZX_TEST_DATA "/cases/%s", cases[i].model);
        snprintf(data, sizeof data, "--threads 1 --data %s=%s/%s.npy --data labels=%s/labels.npy",
                 cases[i].data, dir, cases[i].data, dir);
        holds_train("g", "%s/model.onnx %s --steps 2 --save-every 2 --force", dir, data);
        assert_int_equal(holds_zerox("into", "convert g trained.onnx --force"), 0);
        holds_train("g1", "%s/model.onnx %s --steps 2 --init g --force", dir, data);
        holds_train("g2", "trained.onnx %s --steps 2 --force", data);
        holds_expect_same("g1", "g2");
        assert_int_equal(holds_zerox("into",
                                     "convert g/model.safetensors gs --force --model "
                                     "%s/model.onnx %s",
                                     dir, strstr(data, "--data")),
                         0);
        assert_int_equal(holds_zerox("gs", "train --resume gs --threads 1 --steps 2"), 0);
        holds_expect_same("g1", "gs");
    }
}

// Weights that nodes make, then ones that lie in another file: both times beside the new model.
static void beside_onnx(void **state)
{
#define SMALL "--threads 1 --data input_ids=synthetic --data labels=synthetic --force "
    size_t n, m;
    (void)state;
    assert_int_equal(holds_zerox("new", "new gpt2 --preset tiny --force -o n.onnx"), 0);
    holds_train("n", "n.onnx " SMALL "--steps 2 --save-every 2");
    assert_int_equal(holds_zerox("into", "convert n b1.onnx"), 0);
    expect("into", "written: b1.onnx and its values in .data beside it: ");
    assert_int_equal(holds_zerox("into", "convert n b2.onnx --model b1.onnx"), 0);
    char *a = holds_read("b1.onnx.data", &n), *b = holds_read("b2.onnx.data", &m);
    assert_true(n == m && memcmp(a, b, n) == 0);
    free(a);
    free(b);
    holds_train("init", "n.onnx " SMALL "--steps 1 --init n");
    holds_train("of_b1", "b1.onnx " SMALL "--steps 1");
    holds_train("of_b2", "b2.onnx " SMALL "--steps 1");
    holds_expect_same("init", "of_b1");
    holds_expect_same("init", "of_b2");
    assert_int_equal(remove("b2.onnx"), 0);
    assert_int_equal(holds_zerox("into", "convert n b2.onnx"), 2);
    expect("into", "b2.onnx.data exists already");
    assert_int_equal(rename("b1.onnx", "other.onnx"), 0); // whose values are in b1.onnx.data
    assert_int_equal(holds_zerox("into", "convert n b1.onnx --model other.onnx --force"), 2);
    expect("into", "b1.onnx.data has values of the model itself");
    assert_int_equal(holds_zerox("into", "new gpt2 --preset tiny --set width=32 --force -o w.onnx"),
                     0);
    assert_int_equal(holds_zerox("into", "convert n c.onnx --model w.onnx"), 3);
    expect("into", "there, and float32 [");
    assert_int_not_equal(access("c.onnx.data", F_OK), 0);
#undef SMALL
}

// A tied tensor is stored once, and both names find it, whichever file is in between.
static void tied(void **state)
{
    (void)state;
    assert_int_equal(holds_zerox("new", "new gpt2 --preset tiny -o t.onnx"), 0);
#define TIED "t.onnx --threads 1 --ranks 2 --data input_ids=synthetic --data labels=synthetic "
    holds_train("tied", TIED "--steps 1 --save-every 1");
    assert_int_equal(holds_zerox("tied1", "convert tied tied.safetensors"), 0);
    size_t n, m;
    char *a = holds_read("tied.safetensors", &n), *b = holds_read("tied/model.safetensors", &m);
    assert_true(n == m && memcmp(a, b, n) == 0);
    free(a);
    free(b);
    holds_train("tied2", TIED "--steps 1 --init tied.safetensors");
    holds_train("tied3", TIED "--steps 1 --init tied");
    holds_expect_same("tied2", "tied3");
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(init_rows) + ZX_COUNT(word_rows) + 8];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(init_rows); i += test_few() ? 2 : 1)
        tests[n++] = zx_case(init_rows[i].name, test_init, &init_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(word_rows); i++)
        tests[n++] = zx_case(word_rows[i].name, test_word, &word_rows[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(init_in_part);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(init_from_the_latest);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(convert);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(into_checkpoint);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(no_room);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(tied);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(into_onnx);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(beside_onnx);
    return _cmocka_run_group_tests("tests", tests, n, setup, holds_teardown);
}

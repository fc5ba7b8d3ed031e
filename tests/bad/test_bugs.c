// test_bugs.c - models of the kinds that public bug reports of sharded training are about: tied,
// unused, empty and odd-sized tensors, ignored labels, repeated indices. Trained on 1 to 5 ranks
// under every stage, with the same samples in a step, they come to the same weights.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/safetensors.h"
#include "tests/bad/bad.h"
#include "tests/bad/models.h"

// ---- the same samples, cut differently ----------------------------------------------------------

static const struct cut {
    const char *options;
    int accumulate; // 60 micro-batches of 2 samples fill no fewer than one step of all of these
} cuts[] = {
    {"--ranks 1 --stage 0", 30},          {"--ranks 1 --stage 3 --budget min", 30},
    {"--ranks 2 --stage 3", 15},          {"--ranks 3 --stage 3", 10},
    {"--ranks 3 --stage 1", 10},          {"--ranks 5 --stage 2", 6},
    {"--ranks 5 --stage 3", 6},           {"--ranks 3 --stage 3 --no-overlap --budget min", 10},
    {"--ranks 3 --stage 3 --poison", 10},
};

static void ignore_1(zx_onnx_out *o)
{
    zx_onnx_node_int(o, model_node(o, "ce"), "ignore_index", 1);
}
static void ignore_minus_100(zx_onnx_out *o)
{
    zx_onnx_node_int(o, model_node(o, "ce"), "ignore_index", -100);
}
static void hostile_names(zx_onnx_out *o) // a parameter's name is kept as it is, a path or not
{
    static char long_name[301];
    memset(long_name, 'n', 300);
    model_tensor(o, "w")->name = model_node(o, "fc")->input[1] =
        model_string(o, "../../x/w:0 \xc3\xa4");
    model_tensor(o, "b")->name = model_node(o, "fc")->input[2] = model_string(o, long_name);
}

static const struct model_row {
    const char *name, *text;
    model_break *change;
    const char *optimizer; // of the config
    uint32_t parameters;   // tensors that are saved
} models[] = {
#define SGD "\"SGD\", \"params\": {\"lr\": 0.05, \"momentum\": 0.9}"
#define ADAM "\"AdamW\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}"
    {"a matrix and its bias", "", NULL, SGD, 2},
    {"the same under AdamW", "", NULL, ADAM, 2},
    // Nothing of 13 and 8 divides by 3 or 5; the table is read by rows and as a whole.
    {"a tied table",
     "e:f32[13,8]=~; g:f32[8]=1; z:f32[8]=0; p:f32[8,8]=~; a=Gather(e,labels); "
     "n=LayerNormalization(a,g,z); q=MatMul(n,p); t=Transpose(e){perm=[1 0]}; h=MatMul(q,t)",
     NULL, SGD, 4},
    {"biases of 5 and 7 elements, fewer than ranks and more",
     "u:f32[3,7]=~; c:f32[7]=~; v:f32[7,5]=~; d:f32[5]=~; y:f32[5,3]=~; m=MatMul(logits,u); "
     "o=Add(m,c); r=Relu(o); k=MatMul(r,v); l=Add(k,d); h=MatMul(l,y)",
     NULL, SGD, 7},
    {"a bias of 2 elements on 5 ranks",
     "u:f32[3,2]=~; c:f32[2]=~; v:f32[2,3]=~; m=MatMul(logits,u); o=Add(m,c); h=MatMul(o,v)", NULL,
     ADAM, 5},
    {"tensors without elements",
     "z:f32[3,0]; y:f32[0]; m=MatMul(logits,z); k=Add(m,y); h=Concat(logits,k){axis=1}", NULL, SGD,
     2},
    {"a weight that is used three times",
     "u:f32[3,3]=~; a=MatMul(logits,u); r=Tanh(a); c=MatMul(r,u); s=Tanh(c); h=MatMul(s,u)", NULL,
     SGD, 3},
    {"a weight whose branch is dead",
     "u:f32[3,3]=~; v:f32[3,3]=~; dead=MatMul(logits,u); h=MatMul(logits,v)", NULL, ADAM, 3},
    {"a weight read by a slice and whole",
     "u:f32[6,3]=~; a:i64[1]=1; z:i64[1]=4; k:i64[1]=0; s=Slice(u,a,z,k); q=MatMul(logits,s); "
     "t=Transpose(u){perm=[1 0]}; g=MatMul(q,t); h=MatMul(g,u)",
     NULL, SGD, 3},
    {"a table read at one row again and again",
     "u:f32[4,3]=~; i:i64[6]=0,-1,-1,3,0,0; s=Gather(u,i); m=ReduceMean(s,k); k:i64[1]=0; "
     "h=Add(logits,m)",
     NULL, SGD, 3},
    {"an ignored class", "", ignore_1, SGD, 2},
    {"an ignored label that never comes", "", ignore_minus_100, SGD, 2},
    // The text ends the optimizer and begins the next key.
    {"a frozen matrix and norm beside a trained pair",
     "u:f32[3,8]=~; g:f32[8]=1; z:f32[8]=0; a:f32[8,2]=~; c:f32[2,8]=~; v:f32[8,3]=~; "
     "k=MatMul(logits,u); n=LayerNormalization(k,g,z); q=MatMul(n,a); r=MatMul(q,c); s=Add(n,r); "
     "h=MatMul(s,v)",
     NULL, SGD "}, \"zerox\": {\"freeze\": [\"w\", \"b\", \"u\", \"g\", \"z\", \"v\"]", 8},
    {"names that are paths", "", hostile_names, SGD, 2},
    {"a row that is masked out as a whole",
     "m:f32[2,3]=0,0,0,-inf; z:f32[]=0; s=Add(logits,m); p=Softmax(s); k=IsNaN(p); "
     "h=Where(k,z,p)",
     NULL, SGD, 2},
    {"a column that is masked out as a whole",
     "m:f32[2,3]=0,-inf,0,0,-inf,0; z:f32[]=0; s=Add(logits,m); p=Softmax(s){axis=0}; "
     "k=IsNaN(p); h=Where(k,z,p)",
     NULL, SGD, 2},
    {"a mask that shuts the gradient out",
     "n=Sqrt(logits); c:f32[]=0; k=Greater(logits,c); one:f32[2,3]=1; s=Where(k,logits,one); "
     "q=Sqrt(s); h=Where(k,q,logits)",
     NULL, SGD, 3}, // the ones as well
};

static void run(const struct cut *cut, const char *folder)
{
    bad_result r;
    char args[512], config[512];
    snprintf(config, sizeof config, "config-%d.json", cut->accumulate);
    snprintf(args, sizeof args,
             "train $IN/m.onnx --data x=$IN/many.npy --data labels=$IN/classes.npy --config $IN/%s "
             "--steps 3 --threads 1 --out %s %s",
             config, folder, cut->options);
    bad_run(args, &r);
    bad_expect(&r, 0, "done: 3 steps");
}

static void close_weights(const char *a_path, const char *b_path, uint32_t parameters)
{
    zx_arena mem = {0};
    zx_err err = {0};
    zx_safe_file a, b;
    assert_zx_ok(zx_safe_open(&a, a_path, &mem, &err), &err);
    assert_zx_ok(zx_safe_open(&b, b_path, &mem, &err), &err);
    assert_int_equal(a.n, parameters);
    assert_int_equal(b.n, parameters);
    for (uint32_t i = 0; i < a.n; i++) {
        const zx_safe_tensor *x = &a.tensors[i], *y = zx_safe_find(&b, x->name);
        assert_non_null(y);
        assert_true(zx_shape_equal(&x->type.shape, &y->type.shape));
        double far = 0, size = 0;
        for (int64_t k = 0; k < zx_shape_count(&x->type.shape); k++) {
            float p, q;
            memcpy(&p, x->data + 4 * k, 4);
            memcpy(&q, y->data + 4 * k, 4);
            assert_true(isfinite(p) && isfinite(q));
            far = fmax(far, fabs((double)p - (double)q));
            size = fmax(size, fabs((double)p));
        }
        if (far > 1e-5 * (size + 0.1)) fail_msg("'%s' is %g off %g", x->name, far, size);
    }
    zx_safe_close(&a);
    zx_safe_close(&b);
    zx_arena_free(&mem);
}

static void close_losses(const char *a_path, const char *b_path)
{
    char *a = bad_read(a_path, NULL), *b = bad_read(b_path, NULL);
    assert_non_null(a);
    assert_non_null(b);
    const char *p = a, *q = b;
    for (int step = 0; step < 3; step++) {
        double x[2], y[2];
        p = strstr(p, "\"loss\": ");
        q = strstr(q, "\"loss\": ");
        assert_true(p != NULL && q != NULL);
        assert_int_equal(sscanf(p, "\"loss\": %lf, \"grad_norm\": %lf", &x[0], &x[1]), 2);
        assert_int_equal(sscanf(q, "\"loss\": %lf, \"grad_norm\": %lf", &y[0], &y[1]), 2);
        for (int i = 0; i < 2; i++)
            if (fabs(x[i] - y[i]) > 1e-5 * (fabs(x[i]) + 0.01))
                fail_msg("step %d: %g and %g", step + 1, x[i], y[i]);
        p++;
        q++;
    }
    free(a);
    free(b);
}

// Saved after a step on 3 ranks and gone on with on 2: whatever a model's tensors are like, they
// and their states, or that they have none, are in a checkpoint.
static void saved_and_gone_on_with(const struct model_row *row)
{
    bad_result r;
    bad_run(
        "train $IN/m.onnx --data x=$IN/many.npy --data labels=$IN/classes.npy --config "
        "$IN/config-10.json --steps 1 --threads 1 --ranks 3 --stage 3 --save-every 1 --out half",
        &r);
    bad_expect(&r, 0, "done: 1 step");
    bad_run("train --resume half --steps 3 --ranks 2 --stage 1", &r);
    bad_expect(&r, 0, "done: 3 steps");
    close_weights("cut0/model.safetensors", "half/model.safetensors", row->parameters);
    close_losses("cut0/log.jsonl", "half/log.jsonl");
}

static void same_everywhere(void **state)
{
    const struct model_row *row = *state;
    bad_clear();
    model_write("m.onnx", row->text, row->change);
    for (int accumulate = 6; accumulate <= 30; accumulate++) {
        if (30 % accumulate != 0) continue;
        char name[64], config[512];
        snprintf(name, sizeof name, "config-%d.json", accumulate);
        snprintf(config, sizeof config,
                 "{\"optimizer\": {\"type\": %s}, \"gradient_accumulation_steps\": %d, "
                 "\"gradient_clipping\": 0.7}",
                 row->optimizer, accumulate);
        bad_text(name, config);
    }
    for (size_t i = 0; i < ZX_COUNT(cuts); i++) {
        char a[64], b[64], folder[32];
        snprintf(folder, sizeof folder, "cut%zu", i);
        // Few: every model in two cuts, every cut with some model.
        if (test_few() && i > 0 && (size_t)(row - models) % (ZX_COUNT(cuts) - 1) != i - 1) continue;
        run(&cuts[i], folder);
        if (i == 0) continue;
        snprintf(a, sizeof a, "cut0/model.safetensors");
        snprintf(b, sizeof b, "%s/model.safetensors", folder);
        close_weights(a, b, row->parameters);
        snprintf(b, sizeof b, "%s/log.jsonl", folder);
        close_losses("cut0/log.jsonl", b);
    }
    if (row->text[0] != '\0' || row->change == hostile_names) saved_and_gone_on_with(row);
    bad_nothing_left(false);
    bad_clear();
}

// ---- single reports -----------------------------------------------------------------------------

// 32-bit offsets: external data beyond 4 GiB, in a file that has holes for the rest.
static void far_external(zx_onnx_out *o)
{
    model_external(o, "w", "far.bin", "4294971392", "48");
}

static void data_beyond_4_gib(void **state)
{
    (void)state;
    static const float w[12] = {0.5f, -1,    0.25f, 0.1f, -0.2f, 0.3f,
                                1,    0.75f, -0.5f, 0.2f, 0.4f,  0.6f};
    bad_result r;
    model_write("m.onnx", "", NULL);
    bad_run("train $IN/m.onnx --steps 2 --out near", &r);
    bad_expect(&r, 0, NULL);
    const int fd = open(bad_path("far.bin"), O_WRONLY | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, w, sizeof w, (off_t)4294971392), sizeof w);
    assert_int_equal(ftruncate(fd, (off_t)5 << 30), 0);
    close(fd);
    model_write("m.onnx", "", far_external);
    bad_run("train $IN/m.onnx --steps 2 --out far --ranks 2", &r);
    bad_expect(&r, 0, NULL);
    bad_run("train $IN/m.onnx --steps 2 --out far1", &r);
    bad_expect(&r, 0, NULL);
    close_weights("near/model.safetensors", "far1/model.safetensors", 2);
    unlink(bad_path("far.bin"));
    bad_clear();
}

// Runs that begin in the same second have folders of their own; ports and sockets aren't in each
// other's way.
static void several_runs_at_once(void **state)
{
    (void)state;
    pid_t pid[5];
    model_write("m.onnx", "", NULL);
    for (size_t i = 0; i < ZX_COUNT(pid); i++) {
        pid[i] = fork();
        if (pid[i] != 0) continue;
        const int null = open("/dev/null", O_RDWR);
        dup2(null, 1);
        dup2(null, 2);
        execl(ZX_PROGRAM, ZX_PROGRAM, "train", bad_path("m.onnx"), "--steps", "3", "--ranks", "2",
              (char *)NULL);
        _exit(127);
    }
    for (size_t i = 0; i < ZX_COUNT(pid); i++) {
        int status = 0;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(system("test $(ls -d runs/m-*/ | wc -l) = 5 && "
                            "test $(ls runs/m-*/model.safetensors | wc -l) = 5 && "
                            "test $(cat runs/m-*/log.jsonl | wc -l) = 15 && "
                            "test -d runs/latest && test -L runs/latest && "
                            "! ls -A runs | grep -q '^[.]'"),
                     0);
    bad_clear();
}

// The same two samples again and again: the loss goes down to nothing much.
static void one_batch_is_learnt(void **state)
{
    (void)state;
    static const float x[2][4] = {{1, -0.5f, 0.25f, 0}, {-1, 0.5f, 1, 2}};
    static const int64_t labels[2] = {2, 0};
    bad_result r;
    model_write("m.onnx",
                "e:f32[13,8]=~; g:f32[8]=1; z:f32[8]=0; p:f32[8,8]=~; v:f32[3,13]=~; "
                "k=MatMul(logits,v); a=MatMul(k,e); n=LayerNormalization(a,g,z); q=MatMul(n,p); "
                "t=Transpose(e){perm=[1 0]}; h=MatMul(q,t)",
                NULL);
    bad_npy("two.npy", "<f4", "2, 4", x, sizeof x);
    bad_npy("their.npy", "<i8", "2,", labels, sizeof labels);
    bad_text("learn.json", "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}}, "
                           "\"zero_optimization\": {\"stage\": 3}}");
    bad_run("train $IN/m.onnx --data x=$IN/two.npy --data labels=$IN/their.npy --config "
            "$IN/learn.json --steps 100 --threads 1 --out learnt",
            &r);
    bad_expect(&r, 0, "done: 100 steps");
    char *log = bad_read("learnt/log.jsonl", NULL);
    double first = 0, last = 0;
    uint32_t n = 0;
    for (const char *at = log; (at = strstr(at, "\"loss\": ")) != NULL; at++, n++) {
        last = strtod(at + 8, NULL);
        if (n == 0) first = last;
    }
    free(log);
    assert_int_equal(n, 100);
    if (!(first > 0.5 && last < 0.05)) fail_msg("loss %g -> %g", first, last);
    bad_clear();
}

// What is said about sizes is said of whole tensors and once, however many ranks hold parts.
static void sizes_are_of_whole_tensors(void **state)
{
    (void)state;
    static const char *const args[] = {"train $IN/m.onnx --steps 1 --out a",
                                       "train $IN/m.onnx --steps 1 --out b --ranks 5"};
    model_write("m.onnx", "u:f32[3,7]=~; v:f32[7,3]=~; m=MatMul(logits,u); h=MatMul(m,v)", NULL);
    for (size_t i = 0; i < ZX_COUNT(args); i++) {
        bad_result r;
        bad_run(args[i], &r);
        bad_expect(&r, 0, "model: 57 parameters in 4 tensors");
        const char *first = strstr(r.err, "model: ");
        assert_null(strstr(first + 1, "model: "));
        first = strstr(r.err, "optimizer AdamW");
        assert_non_null(first);
        assert_null(strstr(first + 1, "optimizer AdamW"));
    }
    struct stat a, b;
    assert_int_equal(stat("a/model.safetensors", &a), 0);
    assert_int_equal(stat("b/model.safetensors", &b), 0);
    assert_int_equal(a.st_size, b.st_size);
    bad_clear();
}

static int setup(void **state)
{
    enum { N = 180 };
    static float x[N * 4];
    static int64_t labels[N];
    if (bad_setup(state) != 0) return 1;
    model_data();
    for (int i = 0; i < N * 4; i++) x[i] = (float)(i * i % 23) * 0.125f - 1.25f;
    for (int i = 0; i < N; i++) labels[i] = i % 3; // of two, one counts at least where 1 is ignored
    bad_npy("many.npy", "<f4", "180, 4", x, sizeof x);
    bad_npy("classes.npy", "<i8", "180,", labels, sizeof labels);
    return 0;
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(data_beyond_4_gib),
        cmocka_unit_test(several_runs_at_once),
        cmocka_unit_test(sizes_are_of_whole_tensors),
        cmocka_unit_test(one_batch_is_learnt),
    };
    struct CMUnitTest tests[ZX_COUNT(models) + ZX_COUNT(others)];
    for (size_t i = 0; i < ZX_COUNT(models); i++)
        tests[i] = zx_case(models[i].name, same_everywhere, &models[i]);
    memcpy(tests + ZX_COUNT(models), others, sizeof others);
    return cmocka_run_group_tests(tests, setup, bad_teardown);
}

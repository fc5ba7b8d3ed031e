// test_closed.c - runs whose every number can be written down: a loss that is linear in its
// parameters, with every optimizer, clipped and not, on 1 to 4 ranks; and labels that don't count.
//
// The loss of a sample is w.x + 3 b + t.p + t.q + sum(concat(e, v)): w of 5 elements, b of one (so
// that ranks hold nothing of it), t read in two places, e of none; u isn't read at all. So the
// gradient of a step is the mean of its samples, whatever the parameters are.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <math.h>

enum { SAMPLES = 24, W = 5, T = 4, U = 3, V = 8, STEPS = 3 };

typedef struct params {
    double w[W], b[1], t[T], v[V];
} params;
#define N_TRAINED ((int)(sizeof(params) / sizeof(double)))

static const float first_w[W] = {0.5f, -1.25f, 2.0f, 0.125f, -0.75f}, first_b[1] = {0.25f},
                   first_t[T] = {1.0f, -0.5f, 0.375f, 3.0f}, first_u[U] = {7.0f, 8.0f, 9.0f},
                   first_v[V] = {1, 2, 3, 4, 5, 6, 7, 8};
static float x[SAMPLES][W], p[SAMPLES][T], q[SAMPLES][T];

static void make_files(void)
{
    const int64_t xs[] = {-1, W}, ps[] = {-1, T}, one[] = {1}, es[] = {V, 0}, vs[] = {V, 1};
    const int64_t w[] = {W}, t[] = {T}, u[] = {U};
    const float three = 3;
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    holds_net_input(&n, "p", ZX_F32, 2, ps);
    holds_net_input(&n, "q", ZX_F32, 2, ps);
    holds_net_floats(&n, "w", "PARAMETER", 1, w, first_w);
    holds_net_floats(&n, "b", "PARAMETER", 1, one, first_b);
    holds_net_floats(&n, "t", "PARAMETER", 1, t, first_t);
    holds_net_floats(&n, "u", "PARAMETER", 1, u, first_u);
    holds_net_floats(&n, "e", "PARAMETER", 2, es, first_u);
    holds_net_floats(&n, "v", "PARAMETER", 2, vs, first_v);
    holds_net_floats(&n, "three", NULL, 0, NULL, &three);
    holds_net_node(&n, "Mul", "wx", "w", "x", NULL);
    holds_net_node(&n, "Mul", "tp", "t", "p", NULL);
    holds_net_node(&n, "Mul", "tq", "t", "q", NULL);
    holds_net_node(&n, "Mul", "b3", "b", "three", NULL);
    Onnx__NodeProto *concat = holds_net_node(&n, "Concat", "ev", "e", "v", NULL);
    zx_onnx_node_int(&n.out, concat, "axis", 1);
    static const char *const terms[] = {"wx", "tp", "tq", "b3", "ev"};
    const char *sum = NULL;
    for (size_t i = 0; i < ZX_COUNT(terms); i++) {
        const char *s = zx_arena_printf(&n.mem, "sum_%s", terms[i]);
        zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceSum", s, terms[i], NULL, NULL),
                         "keepdims", 0);
        if (sum != NULL) {
            const char *more = zx_arena_printf(&n.mem, "with_%s", terms[i]);
            holds_net_node(&n, "Add", more, sum, s, NULL);
            s = more;
        }
        sum = s;
    }
    holds_net_done(&n, sum, "linear.onnx");
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < W; k++) x[i][k] = sinf((float)(7 * i + 3 * k));
        for (int k = 0; k < T; k++) p[i][k] = cosf((float)(5 * i + 2 * k));
        for (int k = 0; k < T; k++) q[i][k] = 2 * sinf((float)(i + 11 * k));
    }
    holds_npy("x.npy", ZX_F32, 2, (const int64_t[]){SAMPLES, W}, x);
    holds_npy("p.npy", ZX_F32, 2, (const int64_t[]){SAMPLES, T}, p);
    holds_npy("q.npy", ZX_F32, 2, (const int64_t[]){SAMPLES, T}, q);
}

// ---- by hand -----------------------------------------------------------------------------------

static void first_params(params *y)
{
    for (int k = 0; k < W; k++) y->w[k] = (double)first_w[k];
    for (int k = 0; k < T; k++) y->t[k] = (double)first_t[k];
    for (int k = 0; k < V; k++) y->v[k] = (double)first_v[k];
    y->b[0] = (double)first_b[0];
}

static double loss_of(const params *y, int sample)
{
    double sum = 3 * y->b[0];
    for (int k = 0; k < W; k++) sum += y->w[k] * (double)x[sample][k];
    for (int k = 0; k < T; k++) sum += y->t[k] * ((double)p[sample][k] + (double)q[sample][k]);
    for (int k = 0; k < V; k++) sum += y->v[k];
    return sum;
}

// The mean of `count` samples' gradients.
static void gradient_of(int from, int count, params *g)
{
    *g = (params){.b = {3}};
    for (int k = 0; k < V; k++) g->v[k] = 1;
    for (int i = from; i < from + count; i++) {
        for (int k = 0; k < W; k++) g->w[k] += (double)x[i][k] / count;
        for (int k = 0; k < T; k++) g->t[k] += ((double)p[i][k] + (double)q[i][k]) / count;
    }
}

static double norm_of(const params *g)
{
    const double *d = (const double *)g;
    double squares = 0;
    for (int i = 0; i < N_TRAINED; i++) squares += d[i] * d[i];
    return sqrt(squares);
}

// An optimizer as PyTorch documents it.
typedef struct rule {
    const char *json; // the optimizer section
    bool adam, decoupled, corrected, nesterov;
    double lr, decay, momentum, dampening, beta1, beta2, eps;
} rule;

static void update(const rule *r, int t, const double *g, double *y, double *m, double *v)
{
    for (int i = 0; i < N_TRAINED; i++) {
        double d = g[i] + (r->decoupled ? 0 : r->decay * y[i]);
        if (r->adam) {
            m[i] = r->beta1 * m[i] + (1 - r->beta1) * d;
            v[i] = r->beta2 * v[i] + (1 - r->beta2) * d * d;
            const double c1 = r->corrected ? 1 - pow(r->beta1, t) : 1;
            const double c2 = r->corrected ? 1 - pow(r->beta2, t) : 1;
            if (r->decoupled) y[i] *= 1 - r->lr * r->decay;
            y[i] -= r->lr * (m[i] / c1) / (sqrt(v[i] / c2) + r->eps);
            continue;
        }
        if (r->momentum != 0) {
            m[i] = t == 1 ? d : r->momentum * m[i] + (1 - r->dampening) * d;
            d = r->nesterov ? d + r->momentum * m[i] : m[i];
        }
        y[i] -= r->lr * d;
    }
}

// ---- rows --------------------------------------------------------------------------------------

#define ADAM_OF(type, more) "{\"type\": \"" type "\", \"params\": {\"lr\": 0.05" more "}}"
static const rule adamw = {
    .json = ADAM_OF("AdamW", ", \"betas\": [0.8, 0.95], \"eps\": 1e-3, \"weight_decay\": 0.1"),
    .adam = true,
    .decoupled = true,
    .corrected = true,
    .lr = 0.05,
    .decay = 0.1,
    .beta1 = 0.8,
    .beta2 = 0.95,
    .eps = 1e-3};
static const rule adam_is_adamw = {.json = ADAM_OF("Adam", ", \"weight_decay\": 0.1"),
                                   .adam = true,
                                   .decoupled = true,
                                   .corrected = true,
                                   .lr = 0.05,
                                   .decay = 0.1,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8};
static const rule adam_l2 = {
    .json = ADAM_OF("Adam", ", \"adam_w_mode\": false, \"weight_decay\": 0.1, \"eps\": 1e-2"),
    .adam = true,
    .corrected = true,
    .lr = 0.05,
    .decay = 0.1,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-2};
static const rule adam_uncorrected = {
    .json = ADAM_OF("Adam", ", \"bias_correction\": false, \"eps\": 0.1"),
    .adam = true,
    .decoupled = true,
    .lr = 0.05,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 0.1};
static const rule sgd = {.json = "{\"type\": \"SGD\", \"params\": {\"lr\": 0.1}}", .lr = 0.1};
static const rule sgd_decay = {
    .json = "{\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"weight_decay\": 0.2}}",
    .lr = 0.1,
    .decay = 0.2};
static const rule momentum = {
    .json = "{\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, "
            "\"dampening\": 0.3}}",
    .lr = 0.1,
    .momentum = 0.9,
    .dampening = 0.3};
static const rule nesterov = {
    .json = "{\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, "
            "\"nesterov\": true, \"weight_decay\": 0.2}}",
    .lr = 0.1,
    .momentum = 0.9,
    .nesterov = true,
    .decay = 0.2};

static const struct row {
    const char *name;
    const rule *rule;
    double clip; // 0: none, < 0: not in the file, which means 1
    int ranks, accumulate, stage;
    const char *options;
} rows[] = {
    {"AdamW", &adamw, 0, 1, 1, 3, ""},
    {"AdamW, 2 ranks", &adamw, 0, 2, 1, 3, ""},
    {"AdamW, 4 ranks x 2", &adamw, 0, 4, 2, 3, ""},
    {"AdamW, 3 ranks, stage 0", &adamw, 0, 3, 1, 0, ""},
    {"AdamW clipped, 4 ranks, stage 1", &adamw, 0.5, 4, 1, 1, ""},
    {"Adam is AdamW, 4 ranks, stage 2", &adam_is_adamw, 0, 4, 2, 2, ""},
    {"Adam with L2, 2 ranks", &adam_l2, 0, 2, 2, 3, ""},
    {"Adam uncorrected, 3 ranks", &adam_uncorrected, 0, 3, 2, 3, "--budget min"},
    {"SGD, not clipped", &sgd, 0, 2, 1, 3, ""},
    {"SGD, clipped", &sgd, 0.25, 2, 1, 3, ""},
    {"SGD, clipped, 4 ranks x 2, stage 0", &sgd, 0.25, 4, 2, 0, ""},
    {"SGD, clipped by what is usual", &sgd, -1, 3, 1, 1, ""},
    {"SGD, clipping that is wide enough", &sgd, 1000, 3, 1, 2, ""},
    {"SGD with decay, clipped", &sgd_decay, 0.25, 3, 2, 3, "--no-overlap"},
    {"momentum with dampening", &momentum, 0, 2, 2, 1, ""},
    {"momentum clipped, 4 ranks", &momentum, 2, 4, 2, 3, "--budget min"},
    {"Nesterov, 3 ranks", &nesterov, 0, 3, 2, 2, ""},
    {"Nesterov clipped, 1 rank x 4", &nesterov, 1, 1, 4, 3, ""},
};

static void near(const char *what, int i, double is, double want)
{
    if (!(fabs(is - want) <= 2e-6 * fmax(1, fabs(want))))
        fail_msg("%s[%d] is %.9g, %.9g was due", what, i, is, want);
}

static void near_all(const holds_tensors *f, const char *name, int n, const double *want)
{
    float is[V];
    holds_floats(f, name, (uint32_t)n, is);
    for (int i = 0; i < n; i++) near(name, i, (double)is[i], want[i]);
}

static void expect_params(const holds_tensors *f, const params *want)
{
    near_all(f, "w", W, want->w);
    near_all(f, "b", 1, want->b);
    near_all(f, "t", T, want->t);
    near_all(f, "v", V, want->v);
    const zx_safe_tensor *e = zx_safe_find(&f->file, "e"); // empty, and there in its shape
    assert_non_null(e);
    assert_true(e->type.shape.rank == 2 && e->type.shape.dim[0] == V && e->type.shape.dim[1] == 0);
    assert_int_equal(f->file.n, 6);
}

static void train(const struct row *r, const char *name)
{
    char clip[64] = "", config[1024];
    if (r->clip >= 0) snprintf(clip, sizeof clip, "\"gradient_clipping\": %g, ", r->clip);
    const int n = snprintf(config, sizeof config,
                           "{%s\"train_micro_batch_size_per_gpu\": 1, "
                           "\"gradient_accumulation_steps\": %d, \"optimizer\": %s, "
                           "\"zero_optimization\": {\"stage\": %d}}",
                           clip, r->accumulate, r->rule->json, r->stage);
    holds_write("linear.json", config, (size_t)n);
    holds_train(name,
                "linear.onnx --config linear.json --ranks %d --steps %d --dump-grads "
                "%s.grads.safetensors %s",
                r->ranks, STEPS, name, r->options);
}

static void by_hand(void **state)
{
    const struct row *r = *state;
    char name[32];
    snprintf(name, sizeof name, "linear-%d", (int)(r - rows));
    train(r, name);
    holds_row log[HOLDS_ROWS];
    assert_int_equal(holds_log(name, log), STEPS);
    const int each = r->ranks * r->accumulate;
    params y, g, m = {.w = {0}}, v = {.w = {0}};
    first_params(&y);
    for (int s = 0; s < STEPS; s++) {
        double loss = 0;
        for (int i = 0; i < each; i++) loss += loss_of(&y, s * each + i) / each;
        gradient_of(s * each, each, &g);
        const double norm = norm_of(&g);
        near("loss", s, log[s].loss, loss);
        near("norm", s, log[s].grad_norm, norm);
        if (s == 0) {
            holds_tensors dumped; // before clipping
            holds_open(&dumped, "%s.grads.safetensors", name);
            const float none[U] = {0};
            float u[U];
            expect_params(&dumped, &g);
            holds_floats(&dumped, "u", U, u);
            assert_memory_equal(u, none, sizeof u);
            holds_close(&dumped);
        }
        const double most = r->clip < 0 ? 1 : r->clip;
        const double clip = most > 0 ? fmax(1, (norm + 1e-6) / most) : 1;
        for (int i = 0; i < N_TRAINED; i++) ((double *)&g)[i] /= clip;
        update(r->rule, s + 1, (double *)&g, (double *)&y, (double *)&m, (double *)&v);
    }
    holds_tensors saved;
    holds_open(&saved, "%s/model.safetensors", name);
    expect_params(&saved, &y);
    float u[U];
    holds_floats(&saved, "u", U, u); // kept as it was, by weight decay too
    assert_memory_equal(u, first_u, sizeof u);
    holds_close(&saved);
}

// ---- clipping in every type ---------------------------------------------------------------------

// The gradient of a sum of c * x is x: 3 and 4, of which each of two ranks holds one.
#define FP16(scale) "\"fp16\": {\"enabled\": true, \"loss_scale\": " scale "}, "
#define BF16(more) "\"bf16\": {\"enabled\": true}, " more
static const struct clipped_row {
    const char *name, *type;
    double most;
    float x[2], want[2], norm;
} clipped_rows[] = {
    {"float32, clipped", "", 1, {3, 4}, {0.6f, 0.8f}, 5},
    {"float32, wide enough", "", 10, {3, 4}, {3, 4}, 5},
    {"float32, nothing to clip", "", 1, {0, 0}, {0, 0}, 0},
    {"scale 1024, clipped", FP16("1024"), 1, {3, 4}, {0.6f, 0.8f}, 5},
    {"scale 1024, wide enough", FP16("1024"), 10, {3, 4}, {3, 4}, 5},
    {"scale 1024, nothing to clip", FP16("1024"), 1, {0, 0}, {0, 0}, 0},
    {"bf16, clipped", BF16(""), 1, {3, 4}, {0.6f, 0.8f}, 5},
    // 98304 is infinite in fp16, and a number of bf16: nothing is reduced in fp16 without being
    // asked.
    {"bf16, beyond fp16", BF16(""), 0, {98304, 0}, {98304, 0}, 98304},
    {"bf16 summed in fp32, beyond fp16",
     BF16("\"communication_data_type\": \"fp32\", "),
     0,
     {98304, 0},
     {98304, 0},
     98304},
};

static void is_clipped(void **state)
{
    const struct clipped_row *r = *state;
    const int64_t cs[] = {2}, xs[] = {-1, 2};
    const float zero[2] = {0};
    float x[2][2], is[2];
    char config[512], name[32];
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "x", ZX_F32, 2, xs);
    holds_net_floats(&n, "c", "PARAMETER", 1, cs, zero);
    holds_net_node(&n, "Mul", "cx", "c", "x", NULL);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "ReduceSum", "loss", "cx", NULL, NULL), "keepdims",
                     0);
    holds_net_done(&n, "loss", "sum.onnx");
    for (int i = 0; i < 2; i++) memcpy(x[i], r->x, sizeof x[i]);
    holds_npy("sum.npy", ZX_F32, 2, (const int64_t[]){2, 2}, x);
    const int length = snprintf(config, sizeof config,
                                "{%s\"gradient_clipping\": %g, \"train_micro_batch_size_per_gpu\": "
                                "1, \"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1}}, "
                                "\"zero_optimization\": {\"stage\": 3}}",
                                r->type, r->most);
    holds_write("sum.json", config, (size_t)length);
    snprintf(name, sizeof name, "sum-%d", (int)(r - clipped_rows));
    holds_train(name, "sum.onnx --config sum.json --data x=sum.npy --ranks 2 --steps 1");
    holds_row log[HOLDS_ROWS];
    assert_int_equal(holds_log(name, log), 1);
    near("norm", 0, log[0].grad_norm, (double)r->norm);
    holds_tensors saved;
    holds_open(&saved, "%s/model.safetensors", name);
    holds_floats(&saved, "c", 2, is);
    for (int i = 0; i < 2; i++) near("c", i, (double)is[i], -(double)r->want[i]);
    holds_close(&saved);
}

// ---- labels that don't count
// ---------------------------------------------------------------------

enum { MICRO = 4, IN = 3, CLASSES = 3, MICROS = 4, LABELLED = MICRO * MICROS };
static const float first_c[CLASSES][IN] = {{0.5f, -1, 0.25f}, {1, 0.75f, -0.5f}, {-0.25f, 0, 1}};
static const int64_t labels[LABELLED] = {0, 1,    2,    1, -100, -100, -100, 2,
                                         1, -100, -100, 0, -100, 2,    2,    0};

static float input_of(int sample, int k)
{
    return 2 * sinf((float)(3 * sample + 5 * k + 1));
}

static void make_labelled(void)
{
    const int64_t z[] = {-1, IN}, l[] = {-1}, c[] = {CLASSES, IN};
    holds_net n;
    holds_net_begin(&n);
    holds_net_input(&n, "z", ZX_F32, 2, z);
    holds_net_input(&n, "labels", ZX_I64, 1, l);
    holds_net_floats(&n, "c", NULL, 2, c, &first_c[0][0]);
    zx_onnx_node_int(&n.out, holds_net_node(&n, "Gemm", "logits", "z", "c", NULL), "transB", 1);
    Onnx__NodeProto *loss =
        holds_net_node(&n, "SoftmaxCrossEntropyLoss", "loss", "logits", "labels", NULL);
    zx_onnx_node_int(&n.out, loss, "ignore_index", -100);
    holds_net_done(&n, "loss", "labelled.onnx");
    float data[LABELLED][IN];
    for (int i = 0; i < LABELLED; i++)
        for (int k = 0; k < IN; k++) data[i][k] = input_of(i, k);
    holds_npy("z.npy", ZX_F32, 2, (const int64_t[]){LABELLED, IN}, data);
    holds_npy("labels.npy", ZX_I64, 1, (const int64_t[]){LABELLED}, labels);
}

// The mean over the micro-batch's valid labels, each micro-batch with the same weight.
static double labelled_by_hand(double g[CLASSES][IN])
{
    double total = 0;
    memset(g, 0, sizeof(double[CLASSES][IN]));
    for (int m = 0; m < MICROS; m++) {
        int valid = 0;
        for (int i = 0; i < MICRO; i++) valid += labels[m * MICRO + i] >= 0;
        for (int i = m * MICRO; i < (m + 1) * MICRO; i++) {
            if (labels[i] < 0) continue;
            double e[CLASSES], sum = 0;
            for (int c = 0; c < CLASSES; c++) {
                double logit = 0;
                for (int k = 0; k < IN; k++)
                    logit += (double)first_c[c][k] * (double)input_of(i, k);
                sum += e[c] = exp(logit);
            }
            total -= log(e[labels[i]] / sum) / valid / MICROS;
            for (int c = 0; c < CLASSES; c++)
                for (int k = 0; k < IN; k++)
                    g[c][k] +=
                        (e[c] / sum - (c == labels[i])) * (double)input_of(i, k) / valid / MICROS;
        }
    }
    return total;
}

static const struct split {
    const char *name;
    int ranks, accumulate;
} splits[] = {
    {"labels that don't count: 1 rank x 4", 1, 4},
    {"labels that don't count: 2 ranks x 2", 2, 2},
    {"labels that don't count: 4 ranks", 4, 1},
};

static void mean_of_means(void **state)
{
    const struct split *s = *state;
    char name[32], config[512];
    snprintf(name, sizeof name, "labelled-%d", s->ranks);
    const int n = snprintf(config, sizeof config,
                           "{\"train_micro_batch_size_per_gpu\": %d, "
                           "\"gradient_accumulation_steps\": %d, \"gradient_clipping\": 0, "
                           "\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1}}, "
                           "\"zero_optimization\": {\"stage\": 3}}",
                           MICRO, s->accumulate);
    holds_write("labelled.json", config, (size_t)n);
    holds_train(name,
                "labelled.onnx --config labelled.json --ranks %d --data z=z.npy "
                "--data labels=labels.npy --steps 1",
                s->ranks);
    holds_row log[HOLDS_ROWS];
    double g[CLASSES][IN];
    const double loss = labelled_by_hand(g);
    holds_log(name, log);
    near("loss", 0, log[0].loss, loss);
    holds_tensors saved;
    float c[CLASSES * IN];
    holds_open(&saved, "%s/model.safetensors", name);
    holds_floats(&saved, "c", CLASSES * IN, c);
    holds_close(&saved);
    for (int i = 0; i < CLASSES * IN; i++)
        near("c", i, (double)c[i], (double)(&first_c[0][0])[i] - (&g[0][0])[i]);
}

// One tensor under one of its names; the other names are in the file's metadata.
static void a_tied_tensor_is_saved_once(void **state)
{
    (void)state;
#define TIED ZX_TEST_DATA "/cases/gpt2_dynamic/"
    holds_train("tied", TIED "model.onnx --data input_ids=" TIED "input_ids.npy --data labels=" TIED
                             "labels.npy --steps 1 --ranks 2");
    holds_tensors f;
    holds_open(&f, "tied/model.safetensors");
    const char *const names[] = {"m.transformer.wte.weight", "m.lm_head.weight"};
    const bool first_there = zx_safe_find(&f.file, names[0]) != NULL;
    const char *here = names[!first_there], *other = names[first_there], *said = NULL;
    assert_non_null(zx_safe_find(&f.file, here));
    assert_null(zx_safe_find(&f.file, other));
    for (uint32_t i = 0; i < f.file.n_meta; i++)
        if (strcmp(f.file.meta[i][0], other) == 0) said = f.file.meta[i][1];
    assert_non_null(said);
    assert_string_equal(said, here);
    holds_close(&f);
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    make_files();
    make_labelled();
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(rows) + ZX_COUNT(clipped_rows) + ZX_COUNT(splits) + 1];
    size_t n = 0;
    for (size_t i = 0; i < ZX_COUNT(rows); i++)
        tests[n++] = zx_case(rows[i].name, by_hand, &rows[i]);
    for (size_t i = 0; i < ZX_COUNT(clipped_rows); i++)
        tests[n++] = zx_case(clipped_rows[i].name, is_clipped, &clipped_rows[i]);
    for (size_t i = 0; i < ZX_COUNT(splits); i++)
        tests[n++] = zx_case(splits[i].name, mean_of_means, &splits[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(a_tied_tensor_is_saved_once);
    return cmocka_run_group_tests_name("closed", tests, setup, holds_teardown);
}

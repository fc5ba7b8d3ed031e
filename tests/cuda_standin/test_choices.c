// test_choices.c - the program over the stand-in: what a config and options choose on GPUs changes
// results within rounding, and where it has none to choose, not at all.
// SPDX-License-Identifier: Apache-2.0
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64

static char folder[] = "/tmp/zerox-cuda-XXXXXX";

typedef struct outcome { // losses and norms of the steps; the first step's gradients, as saved
    double x[MOST];
    size_t n, gradient_bytes;
    char said[8192], gradients[1 << 20];
} outcome;

static void read_log(outcome *o)
{
    static const char *const keys[] = {"\"loss\":", "\"grad_norm\":"};
    char path[128], line[4096];
    snprintf(path, sizeof path, "%s/log", folder);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    o->n = 0;
    while (fgets(line, sizeof line, f) != NULL)
        for (size_t k = 0; k < ZX_COUNT(keys); k++) {
            const char *at = strstr(line, keys[k]);
            assert_non_null(at);
            assert_true(o->n < MOST);
            o->x[o->n++] = strtod(at + strlen(keys[k]), NULL);
        }
    fclose(f);
    assert_true(o->n > 0);
}

// Another policy's plan for three ranks, at p.
static void make_plan(const char *model, const char *policy)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s && rm -f p && " ZX_PROGRAM " plan " ZX_TEST_DATA "/cases/%s/model.onnx "
             "--backend cuda --ranks 3 --policy %s -o p > said 2>&1",
             folder, model, policy);
    assert_int_equal(system(command), 0);
}

static void train(const char *model, const char *config, int accumulate, const char *options,
                  outcome *o)
{
    char command[2048], path[128];
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"gradient_accumulation_steps\": %d, \"zerox\": {%s}}\n", accumulate, config);
    fclose(f);
    snprintf(command, sizeof command,
             "cd %s && timeout -k 1 60 " ZX_PROGRAM " train " ZX_TEST_DATA "/cases/%s/model.onnx "
             "--config config.json --steps 3 --force --out run --log log --no-save "
             "--dump-grads gradients %s > said 2>&1",
             folder, model, options);
    const int status = system(command);
    snprintf(path, sizeof path, "%s/said", folder);
    f = fopen(path, "r");
    assert_non_null(f);
    o->said[fread(o->said, 1, sizeof o->said - 1, f)] = '\0';
    fclose(f);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("%s", o->said);
    read_log(o);
    snprintf(path, sizeof path, "%s/gradients", folder);
    f = fopen(path, "r");
    assert_non_null(f);
    o->gradient_bytes = fread(o->gradients, 1, sizeof o->gradients, f);
    assert_true(o->gradient_bytes > 0 && o->gradient_bytes < sizeof o->gradients);
    fclose(f);
}

static const struct choice {
    const char *name, *model, *options; // of both runs
    const char *config, *option;        // of the second
    double most;                        // that a loss or norm may be off, of it
    bool differs;
    const char *words;  // in what the second says
    const char *policy; // whose plan is p; NULL: none
    int accumulate;
} choices[] = {
    {"NCCL's order", "mlp", "--backend cuda --ranks 3", "\"deterministic\": false", "", 1e-5, true,
     "", NULL, 1},
    {"NCCL's order, stage 1", "mlp", "--backend cuda --ranks 3 --stage 1",
     "\"deterministic\": false", "", 1e-5, true, "", NULL, 1},
    {"NCCL's order, added to what is there", "mlp", "--backend cuda --ranks 3 ",
     "\"deterministic\": false", "", 1e-5, true, "", NULL, 2},
    {"NCCL's order, stage 0, added", "mlp", "--backend cuda --ranks 3 --stage 0 ",
     "\"deterministic\": false", "", 1e-5, true, "", NULL, 2},
    {"NCCL's order, statistics", "convnet", "--backend cuda --ranks 3", "\"deterministic\": false",
     "", 1e-4, true, "", NULL, 1},
    {"NCCL's order, flat", "mlp", "--backend cuda --ranks 3 --plan p", "\"deterministic\": false",
     "", 1e-5, true, "", "fsdp", 1},
    {"NCCL's order, by buckets", "mlp", "--backend cuda --ranks 3 --plan p",
     "\"deterministic\": false", "", 1e-5, true, "", "hooks", 1},
    {"two ranks have one order", "mlp", "--backend cuda --ranks 2", "\"deterministic\": false", "",
     0, false, "", NULL, 1},
    {"rank order by host memory", "mlp", "--backend cuda --ranks 3 --comm shm",
     "\"deterministic\": false", "", 0, false,
     "zerox.deterministic changes no gradients here: by --comm shm they", NULL, 1},
    {"rank order on cores", "mlp", "--backend cpu --ranks 3", "\"deterministic\": false", "", 0,
     false, "zerox.deterministic changes no gradients here: on cores they", NULL, 1},
    {"TF32", "mlp", "--backend cuda --ranks 1", "\"matmul_precision\": \"high\"", "", 1e-2, true,
     "", NULL, 1},
    {"no TF32 on cores", "mlp", "--backend cpu --ranks 1", "\"matmul_precision\": \"high\"", "", 0,
     false, "zerox.matmul_precision has no effect", NULL, 1},
    {"epilogues", "gpt2", "--backend cuda --ranks 1", "", "--no-fuse epilogue", 1e-5, true, "",
     NULL, 1},
    {"no epilogues on cores", "gpt2", "--backend cpu --ranks 1", "", "--no-fuse epilogue", 0, false,
     "", NULL, 1},
};

static void choose(void **state)
{
    static outcome a, b;
    const struct choice *k = *state;
    char options[256];
    if (k->policy != NULL) make_plan(k->model, k->policy);
    train(k->model, "", k->accumulate, k->options, &a);
    snprintf(options, sizeof options, "%s %s", k->options, k->option);
    train(k->model, k->config, k->accumulate, options, &b);
    assert_int_equal(a.n, b.n);
    for (size_t i = 0; i < a.n; i++) {
        if (!(fabs(a.x[i] - b.x[i]) <= k->most * fabs(a.x[i])))
            fail_msg("%.17g, without %.17g", b.x[i], a.x[i]);
    }
    assert_int_equal(a.gradient_bytes, b.gradient_bytes);
    assert_int_equal(memcmp(a.gradients, b.gradients, a.gradient_bytes) != 0, k->differs);
    if (strstr(b.said, k->words) == NULL) fail_msg("no \"%s\" in:\n%s", k->words, b.said);
}

int main(void)
{
    static struct CMUnitTest tests[ZX_COUNT(choices)];
    char command[64];
    if (mkdtemp(folder) == NULL) return 1;
    setenv("ZX_STANDIN_DEVICES", "3", 1);
    for (size_t i = 0; i < ZX_COUNT(choices); i++)
        tests[i] = zx_case(choices[i].name, choose, &choices[i]);
    const int bad =
        _cmocka_run_group_tests("cuda_standin.choices", tests, ZX_COUNT(tests), NULL, NULL);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) != 0 || bad;
}

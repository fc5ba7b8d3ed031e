// test_memory.c - what a rank holds, in its plan and in the pages that it really occupies; that a
// step stays within its plan; and how much a process has beside it.
//
// Held by float32 Adam for N parameters on W ranks: stage 0 16 N bytes, stage 1 8 N + 8 N/W,
// stage 2 4 N + 12 N/W, stage 3 16 N/W.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <sys/mman.h>
#include <unistd.h>

#include "runtime/cmd.h"
#include "tests/runtime/ranks.h"

#define CASES ZX_TEST_DATA "/cases"
#define MIB 1048576.0

static double due(uint32_t stage, double n, double ranks)
{
    const double whole = stage == 0 ? 16 : stage == 1 ? 8 : stage == 2 ? 4 : 0;
    return whole * n + (16 - whole) * n / ranks;
}

// ---- in the plan -------------------------------------------------------------------------------

static const struct held_case {
    const char *name, *model;
    bool fine; // every tensor is much larger than a slot's alignment
} held_cases[] = {
    {"gpt2 medium", "medium.onnx --dim sequence=16", true},
    {"gpt2_dynamic", CASES "/gpt2_dynamic/model.onnx --dim seq=32", false},
    {"convnet", CASES "/convnet/model.onnx", false},
};

// Bytes of a plan's slots of one kind; *slots counts them.
static double slots_of(const json_t *plan, const char *kind, uint32_t *slots)
{
    double bytes = 0;
    size_t i;
    const json_t *s;
    json_array_foreach(json_object_get(plan, "slots"), i, s)
    {
        if (strcmp(json_string_value(json_object_get(s, "kind")), kind) != 0) continue;
        bytes += (double)json_integer_value(json_object_get(s, "bytes"));
        ++*slots;
    }
    return bytes;
}

static void held_in_the_plan(void **state)
{
    const struct held_case *c = *state;
    for (uint32_t stage = 0; stage <= 3; stage++)
        for (uint32_t ranks = 1; ranks <= 4; ranks++) {
            json_t *plan = holds_plan("%s --stage %u --ranks %u", c->model, stage, ranks);
            double n = 0;
            size_t i;
            const json_t *u;
            json_array_foreach(json_object_get(plan, "units"), i, u) n +=
                (double)json_integer_value(json_object_get(u, "elements"));
            uint32_t slots = 0;
            const double mine = slots_of(plan, "param", &slots) + slots_of(plan, "grad", &slots) +
                                slots_of(plan, "state", &slots);
            const double want = due(stage, n, ranks), room = 0.02 * want + 64.0 * slots;
            // Pads at most: fewer bytes than the formula's would be a lie.
            if (!(mine >= want && mine <= want + (c->fine ? 0.02 * want : room)))
                fail_msg("stage %u, %u ranks: %.0f bytes, due %.0f", stage, ranks, mine, want);
            const double held = (double)json_integer_value(json_object_get(plan, "held_bytes"));
            const double others = slots_of(plan, "buffer", &slots) +
                                  slots_of(plan, "working", &slots) +
                                  slots_of(plan, "const", &slots);
            assert_true(held == mine + others);
            json_decref(plan);
        }
}

// ---- measured ----------------------------------------------------------------------------------

// A command line as a job of one rank, up to its plan.
typedef struct rank_job {
    zx_arena mem;
    zx_options options;
    zx_job job;
    zx_plan plan;
    zx_err err;
} rank_job;

static zx_status open_job(rank_job *r, const char *line, uint32_t ranks)
{
    char *argv[32] = {(char *)(uintptr_t) "zerox"};
    int argc = 1;
    char *text = (char *)(uintptr_t)zx_arena_str(&r->mem, line);
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    ZX_TRY(zx_options_parse(argc, argv, &r->mem, &r->options, &r->err));
    ZX_TRY(zx_job_open(&r->job, &r->options, ranks, false, &r->err));
    ZX_TRY(zx_job_import(&r->job, false, &r->err));
    return zx_job_plan(&r->job, &r->job.mem, &r->plan, &r->err);
}

static zx_status open_session(rank_job *r, zx_world *w, zx_session **s)
{
    const zx_session_options so = {.world = w,
                                   .threads = 1,
                                   .seed = 1,
                                   .optim = r->job.optim,
                                   .feed = zx_data_feed(r->job.data)};
    return zx_session_open(&r->job.train, &r->plan, &so, s, &r->err);
}

static void close_job(rank_job *r)
{
    zx_job_close(&r->job);
    zx_arena_free(&r->mem);
    free(r);
}

// Pages of this process that no file is behind: what a reservation consists of. Files' pages are
// left out because other programs' use of the same libraries changes what is ours of them.
static double own_pages(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double all = -1, anon = -1, shmem = -1, kb;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "Pss: %lf", &kb) == 1) all = kb;
        if (sscanf(line, "Pss_Anon: %lf", &kb) == 1) anon = kb;
        if (sscanf(line, "Pss_Shmem: %lf", &kb) == 1) shmem = kb;
    }
    if (f != NULL) fclose(f);
    return 1024 * (anon >= 0 && shmem >= 0 ? anon + shmem : all);
}

typedef struct growth_call {
    const char *line;
    uint32_t ranks;
    double *growth, *elements; // of each rank, in memory shared with the test
} growth_call;

static zx_status together(zx_world *w, rank_job *r)
{
    return zx_world_agree(w, ZX_OK, &r->err);
}

static int measure(zx_world *w, void *arg)
{
    const growth_call *c = arg;
    rank_job *r = calloc(1, sizeof *r);
    zx_session *s = NULL;
    EXPECT(open_job(r, c->line, c->ranks) == ZX_OK);
    EXPECT(together(w, r) == ZX_OK);
    const double before = own_pages();
    EXPECT(together(w, r) == ZX_OK);
    const zx_status opened = open_session(r, w, &s);
    if (opened != ZX_OK) fprintf(stderr, "%s\n", r->err.cause[0]);
    EXPECT(opened == ZX_OK);
    EXPECT(together(w, r) == ZX_OK);
    c->growth[zx_world_rank(w)] = own_pages() - before;
    c->elements[zx_world_rank(w)] = (double)r->job.n_elements;
    EXPECT(together(w, r) == ZX_OK);
    zx_session_close(s);
    close_job(r);
    return 0;
}

static const struct growth_case {
    const char *name;
    uint32_t stage, ranks;
} growth_cases[] = {
    {"measured: 1 rank", 3, 1},           {"measured: stage 0, 2 ranks", 0, 2},
    {"measured: stage 1, 2 ranks", 1, 2}, {"measured: stage 2, 2 ranks", 2, 2},
    {"measured: stage 3, 2 ranks", 3, 2}, {"measured: stage 1, 3 ranks", 1, 3},
    {"measured: stage 2, 3 ranks", 2, 3}, {"measured: stage 3, 3 ranks", 3, 3},
};

static void held_in_memory(void **state)
{
    const struct growth_case *g = *state;
    if (TEST_SANITIZED) skip();
    char line[512];
    snprintf(line, sizeof line,
             "train medium.onnx --data input_ids=synthetic --data labels=synthetic "
             "--dim sequence=8 --threads 1 --ranks %u --stage %u --budget 1GB",
             g->ranks, g->stage);
    double *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    growth_call c = {line, g->ranks, shared, shared + MOST_RANKS};
    run_processes(g->ranks, measure, &c);
    for (uint32_t r = 0; r < g->ranks; r++) {
        const double want = due(g->stage, c.elements[r], g->ranks);
        print_message("rank %u: %.2f MiB, due %.2f\n", r, c.growth[r] / MIB, want / MIB);
        // Kernels' tables and two threads are opened along with it: within the 2 %.
        if (!(c.growth[r] >= 0.98 * want && c.growth[r] <= 1.02 * want))
            fail_msg("rank %u: %.2f MiB, due %.2f", r, c.growth[r] / MIB, want / MIB);
    }
    munmap(shared, 4096);
}

// ---- a slot that lies where it mustn't
// -----------------------------------------------------------

typedef void plant_fn(zx_plan *p, zx_slot *slots);

static void nothing(zx_plan *p, zx_slot *slots)
{
    (void)p;
    (void)slots;
}
static uint32_t some_value(const zx_plan *p, const zx_slot *slots)
{
    for (uint32_t i = 0; i < p->n_slots; i++)
        if (slots[i].kind == ZX_SLOT_VALUE) return i;
    fail_msg("no slot of an activation");
    return 0;
}
static void past_the_end(zx_plan *p, zx_slot *slots)
{
    slots[some_value(p, slots)].offset = p->arena_bytes;
}
static void across_the_end(zx_plan *p, zx_slot *slots)
{
    const uint32_t i = some_value(p, slots);
    slots[i].offset = (p->arena_bytes - slots[i].bytes + 64) / 64 * 64;
}
static void around_the_end(zx_plan *p, zx_slot *slots)
{
    slots[some_value(p, slots)].offset = UINT64_MAX / 64 * 64;
}
static void too_short(zx_plan *p, zx_slot *slots)
{
    (void)slots;
    p->arena_bytes -= 64;
}
static void too_long(zx_plan *p, zx_slot *slots)
{
    (void)slots;
    p->arena_bytes += 64;
}
static void held_too_low(zx_plan *p, zx_slot *slots)
{
    (void)slots;
    p->held_bytes -= 64;
}

static const struct plant_case {
    const char *name;
    plant_fn *plant;
    bool later; // once the session is open
    zx_status status;
    const char *says;
} plant_cases[] = {
    {"planted: nothing", nothing, false, ZX_OK, ""},
    {"planted: a slot past the peak", past_the_end, false, ZX_E_FORMAT, "ends after"},
    {"planted: a slot that reaches past it", across_the_end, false, ZX_E_FORMAT, "ends after"},
    {"planted: a slot whose end overflows", around_the_end, false, ZX_E_FORMAT, "ends after"},
    {"planted: a peak below the highest slot", too_short, false, ZX_E_FORMAT, "ends after"},
    {"planted: a peak above it", too_long, false, ZX_E_FORMAT, "the slots end at"},
    {"planted: fewer held bytes", held_too_low, false, ZX_E_FORMAT, "the slots end at"},
    {"planted: later, measured by the step", too_short, true, ZX_E_DEVICE, "the step touched"},
};

static int with_a_plant(zx_world *w, void *arg)
{
    const struct plant_case *c = arg;
    rank_job *r = calloc(1, sizeof *r);
    zx_session *s = NULL;
    const char *line = "train tiny.onnx --data input_ids=synthetic --data labels=synthetic "
                       "--threads 1 --ranks 2 --budget 1GB";
    EXPECT(open_job(r, line, 2) == ZX_OK);
    zx_slot *slots = zx_arena_copy(&r->mem, r->plan.slots, r->plan.n_slots * sizeof *r->plan.slots);
    r->plan.slots = slots;
    if (!c->later) c->plant(&r->plan, slots);
    zx_status st = open_session(r, w, &s);
    if (st == ZX_OK) {
        if (c->later) c->plant(&r->plan, slots);
        zx_step_report report;
        st = zx_session_step(s, 0, 0, 1e-3, &report, &r->err);
        EXPECT(c->later || report.peak_bytes == r->plan.arena_bytes);
    } else {
        EXPECT(!c->later);
    }
    if (st != c->status) fprintf(stderr, "%s: %s\n", zx_status_text(st), r->err.cause[0]);
    EXPECT(st == c->status);
    EXPECT(strstr(r->err.cause[0], c->says) != NULL);
    zx_session_close(s);
    close_job(r);
    return 0;
}

static void planted(void **state)
{
    run_threads(2, with_a_plant, *state);
}

// ---- beside the plan ---------------------------------------------------------------------------

static const struct beside_case {
    const char *name, *model, *data, *options;
} beside_cases[] = {
    {"beside: gpt2 medium", "medium.onnx", "--data input_ids=synthetic --data labels=synthetic",
     "--dim sequence=64 --ranks 1"},
    {"beside: gpt2 medium, 2 ranks", "medium.onnx",
     "--data input_ids=synthetic --data labels=synthetic", "--dim sequence=64 --ranks 2 --stage 3"},
    {"beside: stage 0, the least budget", "medium.onnx",
     "--data input_ids=synthetic --data labels=synthetic",
     "--dim sequence=64 --ranks 2 --stage 0 --budget min"},
    {"beside: convnet", CASES "/convnet/model.onnx",
     "--data x=" CASES "/convnet/x.npy --data labels=" CASES "/convnet/labels.npy",
     "--ranks 3 --config 32.json"},
    {"beside: vit", CASES "/vit/model.onnx",
     "--data x=" CASES "/vit/x.npy --data labels=" CASES "/vit/labels.npy", "--ranks 2"},
};

static double size_of(const char *path)
{
    size_t n;
    free(holds_read(path, &n));
    return (double)n;
}

// All pages of the model's and the data's files may be resident: they are small here.
static void beside_the_plan(void **state)
{
    const struct beside_case *c = *state;
    if (TEST_SANITIZED) skip();
    static holds_row rows[HOLDS_ROWS];
    static uint32_t runs;
    char name[32];
    snprintf(name, sizeof name, "beside-%u", runs++);
    holds_train(name, "%s %s %s --steps 3 --no-save", c->model, c->data, c->options);
    const uint32_t n = holds_log(name, rows);
    double files = size_of(c->model);
    if (strstr(c->data, ".npy") != NULL) files += 1 * MIB;
    for (uint32_t i = 0; i < n; i++) {
        const double beside = (double)rows[i].resident_bytes - (double)rows[i].peak_bytes;
        if (!(beside <= 64 * MIB + files) || rows[i].resident_bytes == 0)
            fail_msg("step %u: %.1f MiB beside the plan's %.1f", i + 1, beside / MIB,
                     (double)rows[i].peak_bytes / MIB);
    }
    print_message("%.1f MiB beside the plan's %.1f\n",
                  ((double)rows[n - 1].resident_bytes - (double)rows[n - 1].peak_bytes) / MIB,
                  (double)rows[n - 1].peak_bytes / MIB);
}

// 100 MiB of weights in the file: mapped, never copied but into the plan's slots.
static void weights_are_not_copied(void **state)
{
    (void)state;
    if (TEST_SANITIZED) skip();
    enum { WIDTH = 5120 };
    const int64_t dims[] = {WIDTH, WIDTH}, x_dims[] = {1, WIDTH};
    float *w = malloc(sizeof *w * WIDTH * WIDTH);
    assert_non_null(w);
    for (size_t i = 0; i < (size_t)WIDTH * WIDTH; i++) w[i] = (float)(i % 1001) * 1e-6f;
    holds_net net;
    holds_net_begin(&net);
    holds_net_input(&net, "x", ZX_F32, 2, x_dims);
    holds_net_floats(&net, "w", NULL, 2, dims, w);
    free(w);
    holds_net_node(&net, "MatMul", "y", "x", "w", NULL);
    holds_net_node(&net, "Mul", "square", "y", "y", NULL);
    Onnx__NodeProto *mean = holds_net_node(&net, "ReduceMean", "loss", "square", NULL, NULL);
    zx_onnx_node_int(&net.out, mean, "keepdims", 0);
    holds_net_done(&net, "loss", "large.onnx");
    const char *config = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 1e-3}}, "
                         "\"zero_optimization\": {\"stage\": 3}}";
    holds_write("sgd.json", config, strlen(config));
    static holds_row rows[HOLDS_ROWS];
    holds_train("large", "large.onnx --config sgd.json --data x=synthetic --steps 2 --no-save");
    const uint32_t n = holds_log("large", rows);
    const double file = size_of("large.onnx");
    for (uint32_t i = 0; i < n; i++) {
        const double beside = (double)rows[i].resident_bytes - (double)rows[i].peak_bytes;
        print_message("%.1f MiB beside the plan's %.1f, file %.1f\n", beside / MIB,
                      (double)rows[i].peak_bytes / MIB, file / MIB);
        if (!(beside <= 64 * MIB + file)) fail_msg("%.1f MiB beside the plan", beside / MIB);
    }
    remove("large.onnx");
}

// Of a large file of tokens only the windows that were fed are in memory.
static void data_is_not_read_whole(void **state)
{
    (void)state;
    if (TEST_SANITIZED) skip();
    static holds_row rows[HOLDS_ROWS];
    FILE *f = fopen("tokens.bin", "wb");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), 300 << 20), 0);
    fclose(f);
    holds_train("tokens", "tiny.onnx --data tokens.bin --steps 4 --ranks 2 --no-save");
    const uint32_t n = holds_log("tokens", rows);
    for (uint32_t i = 0; i < n; i++) {
        const double beside = (double)rows[i].resident_bytes - (double)rows[i].peak_bytes;
        if (!(beside <= 64 * MIB)) fail_msg("%.1f MiB beside the plan", beside / MIB);
    }
    remove("tokens.bin");
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    const char *config = "{\"train_micro_batch_size_per_gpu\": 32, "
                         "\"zero_optimization\": {\"stage\": 3}}";
    holds_write("32.json", config, strlen(config));
    return holds_zerox("new", "new gpt2 --preset medium --set batch=1 --set sequence=0 "
                              "-o medium.onnx") ||
           holds_zerox("new", "new gpt2 --preset tiny --set batch=1 -o tiny.onnx");
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(held_cases) + ZX_COUNT(growth_cases) + ZX_COUNT(plant_cases) +
                            ZX_COUNT(beside_cases) + 2];
    size_t n = 0;
    // First of all, while this process hasn't started any OpenMP thread.
    for (size_t i = 0; i < ZX_COUNT(growth_cases); i++)
        tests[n++] = zx_case(growth_cases[i].name, held_in_memory, &growth_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(held_cases); i++)
        tests[n++] = zx_case(held_cases[i].name, held_in_the_plan, &held_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(plant_cases); i++)
        tests[n++] = zx_case(plant_cases[i].name, planted, &plant_cases[i]);
    for (size_t i = 0; i < ZX_COUNT(beside_cases); i++)
        tests[n++] = zx_case(beside_cases[i].name, beside_the_plan, &beside_cases[i]);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(weights_are_not_copied);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(data_is_not_read_whole);
    return cmocka_run_group_tests_name("memory", tests, setup, holds_teardown);
}

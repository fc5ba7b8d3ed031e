// test_steady.c - a training step that isn't the first waits for no page and asks no allocator:
// page faults of the whole process are counted, and what calls the allocator from our own code.
//
// The libraries underneath may allocate a little of their own (tests/kernels/test_allocations.c
// says how much). A fault may come from outside, when the machine takes a page of a library away:
// so one step of several has to be free of them.
// SPDX-License-Identifier: Apache-2.0
#include "tests/holds/holds.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "runtime/cmd.h"
#include "tests/allocator.h"
#include "tests/runtime/ranks.h"

// ---- the allocator ------------------------------------------------------------------------------

static int counting;
static uint64_t n_ours, n_others;
static const void *last_ours; // who asked, for the message

#if !TEST_SANITIZED
// Libraries that compute or start threads; the C library's own callers are taken for ours.
static bool is_other(const void *caller)
{
    static const char *const words[] = {"libdnnl", "libstdc++", "libgomp", "libomp", "ld-linux"};
    Dl_info at;
    if (dladdr(caller, &at) == 0 || at.dli_fname == NULL) return true; // code made at run time
    for (size_t i = 0; i < ZX_COUNT(words); i++)
        if (strstr(at.dli_fname, words[i]) != NULL) return true;
    return false;
}

static void test_allocates(size_t bytes, const void *caller)
{
    (void)bytes;
    if (!__atomic_load_n(&counting, __ATOMIC_RELAXED)) return;
    const bool other = is_other(caller);
    __atomic_fetch_add(other ? &n_others : &n_ours, 1, __ATOMIC_RELAXED);
    if (!other) last_ours = caller;
}

#endif

// ---- runs ---------------------------------------------------------------------------------------

enum { WARM = 2, COUNTED = 5 };

static const struct steady_case {
    const char *name, *more; // of the command line
    uint32_t ranks, threads;
} steady_cases[] = {
    {"1 rank, 2 threads", "--stage 3", 1, 2},
    {"2 ranks, stage 0", "--stage 0", 2, 1},
    {"2 ranks, stage 3", "--stage 3", 2, 1},
    {"2 ranks, stage 3, accumulation 3", "--stage 3 --config three.json", 2, 1},
};

typedef struct found { // by one rank
    double seconds[WARM + COUNTED];
    long faults[WARM + COUNTED], without; // without: of the first step, memory coming by and by
    uint64_t ours, others, pages;
    const void *who;
} found;

typedef struct run_call {
    const struct steady_case *row;
    found *found; // by rank, in memory that is shared
} run_call;

static zx_status open_job(zx_job *job, zx_options *o, zx_plan *plan, const struct steady_case *row,
                          zx_arena *mem, zx_err *err)
{
    char *argv[32] = {(char *)(uintptr_t) "zerox"};
    int argc = 1;
    char *text = (char *)(uintptr_t)zx_arena_printf( // cut into words in place
        mem,
        "train medium.onnx --data input_ids=synthetic --data "
        "labels=synthetic --dim sequence=32 --budget 1GB --threads %u --ranks %u %s",
        row->threads, row->ranks, row->more);
    for (char *save = NULL, *word = strtok_r(text, " ", &save); word != NULL;
         word = strtok_r(NULL, " ", &save))
        argv[argc++] = word;
    ZX_TRY(zx_options_parse(argc, argv, mem, o, err));
    ZX_TRY(zx_job_open(job, o, row->ranks, false, err));
    ZX_TRY(zx_job_import(job, false, err));
    return zx_job_plan(job, &job->mem, plan, err);
}

static long faults_so_far(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_minflt + u.ru_majflt;
}

// Steps with all memory there, or one where it comes by and by.
static int steps(zx_world *w, const zx_job *job, const zx_plan *plan, bool touch, found *f)
{
    const struct zx_session_options so = {.world = w,
                                          .threads = job->threads,
                                          .seed = 1,
                                          .optim = job->optim,
                                          .clip = 1,
                                          .feed = zx_data_feed(job->data),
                                          .touch = touch};
    zx_session *s = NULL;
    zx_step_report report;
    zx_err err = {0};
    const zx_status opened = zx_session_open(&job->train, plan, &so, &s, &err);
    if (opened != ZX_OK) fprintf(stderr, "%s\n", err.cause[0]);
    EXPECT(opened == ZX_OK);
    const uint64_t micros = (uint64_t)zx_world_size(w) * plan->micro_batches;
    for (uint32_t i = 0; i < (touch ? WARM + COUNTED : 1); i++) {
        const long before = faults_so_far();
        __atomic_store_n(&counting, touch && i >= WARM, __ATOMIC_RELAXED);
        const zx_status st = zx_session_step(s, i, i * micros, 1e-3, &report, &err);
        __atomic_store_n(&counting, 0, __ATOMIC_RELAXED);
        *(touch ? &f->faults[i] : &f->without) = faults_so_far() - before;
        if (touch) f->seconds[i] = report.seconds;
        EXPECT(st == ZX_OK && report.applied);
    }
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    zx_session_close(s);
    return 0;
}

static int train(zx_world *w, void *arg)
{
    const run_call *c = arg;
    found *f = &c->found[zx_world_rank(w)];
    zx_arena mem = {0};
    zx_job job = {0};
    zx_options o = {0};
    zx_plan plan;
    zx_err err = {0};
    EXPECT(open_job(&job, &o, &plan, c->row, &mem, &err) == ZX_OK);
    EXPECT(zx_world_agree(w, ZX_OK, &err) == ZX_OK);
    f->pages = plan.arena_bytes / 4096;
    EXPECT(steps(w, &job, &plan, false, f) == 0);
    EXPECT(steps(w, &job, &plan, true, f) == 0);
    f->ours = n_ours;
    f->others = n_others;
    f->who = last_ours;
    zx_job_close(&job);
    zx_arena_free(&mem);
    return 0;
}

static void expect_steady(const found *f)
{
    long least = f->faults[WARM], most = 0;
    double fastest = f->seconds[1];
    for (uint32_t i = WARM; i < WARM + COUNTED; i++) {
        if (f->faults[i] < least) least = f->faults[i];
        if (f->faults[i] > most) most = f->faults[i];
    }
    for (uint32_t i = 1; i < WARM + COUNTED; i++)
        if (f->seconds[i] < fastest) fastest = f->seconds[i];
    print_message("%llu pages; faults: first step %ld (%ld by and by), steady %ld to %ld; "
                  "first step %.0f ms, least %.0f ms; allocations in %d steps: %llu, others %llu\n",
                  (unsigned long long)f->pages, f->faults[0], f->without, least, most,
                  1e3 * f->seconds[0], 1e3 * fastest, COUNTED, (unsigned long long)f->ours,
                  (unsigned long long)f->others);
    if (f->ours != 0) fail_msg("allocations of ours, one from %p", f->who);
    if (least != 0) fail_msg("every step has page faults");
    // What a first step may still meet: code, stacks, entries for the other ranks' pages.
    if (f->faults[0] > 64 + f->without / 2) fail_msg("the first step makes the plan's pages");
}

static void steady(void **state)
{
    run_call c = {.row = *state};
    if (TEST_SANITIZED) skip();
    const size_t bytes = MOST_RANKS * sizeof *c.found;
    c.found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true((void *)c.found != MAP_FAILED);
    run_processes(c.row->ranks, train, &c);
    for (uint32_t r = 0; r < c.row->ranks; r++) expect_steady(&c.found[r]);
    munmap(c.found, bytes);
}

// A lone process's memory is another kind.
static void steady_threads(void **state)
{
    found f = {0};
    run_call c = {.row = *state, .found = &f};
    if (TEST_SANITIZED) skip();
    n_ours = n_others = 0;
    run_threads(1, train, &c);
    expect_steady(&f);
}

static int setup(void **state)
{
    if (holds_setup(state) != 0) return 1;
    const char *config = "{\"gradient_accumulation_steps\": 3, \"zero_optimization\": "
                         "{\"stage\": 3}}";
    holds_write("three.json", config, strlen(config));
    return holds_zerox("new", "new gpt2 --preset medium --set batch=1 --set sequence=0 "
                              "-o medium.onnx");
}

int main(void)
{
    struct CMUnitTest tests[ZX_COUNT(steady_cases) + 1];
    size_t n = 0;
    // Processes first, while this one hasn't started any OpenMP thread.
    for (size_t i = 0; i < ZX_COUNT(steady_cases); i++)
        tests[n++] = zx_case(steady_cases[i].name, steady, &steady_cases[i]);
    tests[n++] = zx_case("a lone process", steady_threads, &steady_cases[0]);
    return cmocka_run_group_tests_name("steady", tests, setup, holds_teardown);
}

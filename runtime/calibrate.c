// calibrate.c - measures this host, all ranks at work at the same time, as they are in a step.
//
// Work of all kinds is done in turn, round after round, in pieces of a millisecond or less: so all
// figures are of the same moments, and caches are as others leave them. Of each work the fastest
// eighth of the pieces counts, so that other load doesn't while ranks slow each other down in
// every piece. Figures have three digits: more would be noise.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/calibrate.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/cpu.h"
#include "runtime/calibrate_op.h"
#include "runtime/memory.h"
#include "runtime/stream.h"
#include "sched/trace.h"

#define PIECES 256    // that are looked at, of one kind of work
#define LASTS 2.4     // seconds of all work, or
#define ROUNDS 8      // as many rounds as this where others use the cores,
#define MOST_LASTS 4  // but no more seconds than this
#define TIMED 2       // pieces of a work in a round, after one that only warms up
#define MOST_TEAMS 16 // ranks that work at the same time
#define ELEMENTS (1 << 20)
#define ARRAYS 5
#define FAR ((size_t)256 << 20) // bytes of all arrays of all teams, so that caches keep little
#define MEETINGS 100
#define SPINS 2000      // as sessions have it
#define SMALL_RUNS 100  // of the least operator of one thread, in a piece
#define SHARED 16384    // elements of the least operator that several threads share
#define LEAST_OP 0.5e-6 // of an execution, beside its kernel
#define LEAST_PART 0.02 // of a kind's time that isn't its products'

// What is done in each type; kinds come after that, then what is done once.
enum {
    PRODUCT,
    PRODUCT_NT, // of 16 bits
    PRODUCT_TN,
    ADD,
    NEAR,
    SUM,
    UPDATE,
    NORM,
    KINDS,
    OF_A_TYPE = KINDS + ZX_KIND_COUNT
};
static const zx_dtype types[] = {ZX_F32, ZX_BF16, ZX_F16};
#define TYPES 3
#define WORK(type, what) ((type) * (uint32_t)OF_A_TYPE + (uint32_t)(what))
enum { COPY = TYPES * OF_A_TYPE, SMALL, WORKS };

typedef struct team team;
typedef double work_fn(team *t, uint32_t work); // does a piece; returns how much that was

typedef struct shared {
    uint32_t ranks, threads;
    bool over; // written by the first team, between barriers
    pthread_barrier_t meet;
} shared;

struct team { // one rank
    shared *all;
    bool first;           // says when the last round was
    float *array[ARRAYS]; // of as many floats, a multiple of ELEMENTS
    size_t floats;
    zx_bench_room room; // array[1] and array[4]
    int64_t labels[ZX_BENCH_LABELS];
    zx_bench_op op[WORKS]; // of works that are an operator
    uint32_t turn;
    double sum; // that nobody reads
    double amount[WORKS], seconds[WORKS][PIECES];
    uint32_t n[WORKS]; // pieces
    zx_status st;
    zx_err err;
};

// ---- pieces -------------------------------------------------------------------------------------

static void run_op(team *t, uint32_t work)
{
    if (t->st == ZX_OK) t->st = zx_bench_run(&t->op[work], t->turn++, &t->err);
}

static double run_product(team *t, uint32_t work)
{
    run_op(t, work);
    return t->op[work].cost.flops;
}

static double run_add(team *t, uint32_t work)
{
    run_op(t, work);
    return t->op[work].cost.bytes;
}

static double run_near(team *t, uint32_t work)
{
    if (t->st == ZX_OK) t->st = zx_bench_run(&t->op[work], 0, &t->err);
    return t->op[work].cost.bytes;
}

static double run_kind(team *t, uint32_t work)
{
    run_op(t, work);
    return t->op[work].amount;
}

// One that threads share: one of them has just written what they read, as in many a step.
static double run_small(team *t, uint32_t work)
{
    const int runs = t->all->threads > 1 ? 1 : SMALL_RUNS;
    zx_bench_op *op = &t->op[work];
    for (int i = 0; i < runs && t->st == ZX_OK; i++) t->st = zx_bench_run(op, 0, &t->err);
    return runs;
}

// Where the pieces of the last rounds weren't.
static size_t far_place(team *t)
{
    return t->turn++ % (t->floats / ELEMENTS) * ELEMENTS;
}

static double run_copy(team *t, uint32_t work ZX_UNUSED)
{
    memcpy(t->array[0], t->array[1], sizeof(float) * ELEMENTS);
    return sizeof(float) * (double)ELEMENTS;
}

static double run_norm(team *t, uint32_t work)
{
    const zx_dtype type = types[work / OF_A_TYPE];
    t->sum = zx_cpu_square_sum_of(type, t->array[1] + far_place(t), ELEMENTS, (int)t->all->threads);
    return (double)zx_dtype_bytes(type) * ELEMENTS;
}

// Of 16 bits the sums are float32.
static double run_sum(team *t, uint32_t work)
{
    const void *from[MOST_TEAMS];
    const zx_dtype type = types[work / OF_A_TYPE];
    const uint32_t n = t->all->ranks < MOST_TEAMS ? t->all->ranks : MOST_TEAMS;
    const int64_t elements = ELEMENTS / (int64_t)n, bytes = zx_dtype_bytes(type);
    for (uint32_t r = 0; r < n; r++) from[r] = (unsigned char *)t->array[1] + r * elements * bytes;
    zx_cpu_sum_ranks_of(ZX_F32, t->array[0], type, from, n, elements, true, 1);
    return (double)bytes * (double)elements * n;
}

static double run_update(team *t, uint32_t work)
{
    static const zx_adam_args args = {.beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .lr = 1e-3F,
                                      .eps = 1e-8F,
                                      .correction1 = 1,
                                      .correction2 = 1,
                                      .grad_scale = 1};
    const zx_dtype type = types[work / OF_A_TYPE];
    const size_t at = far_place(t);
    const int threads = (int)t->all->threads;
    float *p = t->array[0] + at, *g = t->array[1] + at, *m = t->array[2] + at;
    float *v = t->array[3] + at;
    const zx_mixed mixed = {type, ZX_F32, t->array[4] + at, g};
    if (type == ZX_F32)
        zx_cpu_adam(p, g, m, v, ELEMENTS, &args, threads);
    else
        zx_cpu_adam_mixed(p, &mixed, m, v, ELEMENTS, &args, threads);
    return (double)zx_update_bytes((uint32_t)zx_dtype_bytes(type), sizeof *g, 2) * ELEMENTS;
}

static work_fn *const typed[KINDS] = {
    [PRODUCT] = run_product, [PRODUCT_NT] = run_product, [PRODUCT_TN] = run_product,
    [ADD] = run_add,         [NEAR] = run_near,          [SUM] = run_sum,
    [UPDATE] = run_update,   [NORM] = run_norm,
};

static work_fn *work_of(uint32_t work)
{
    const uint32_t what = work % OF_A_TYPE;
    if (work == COPY) return run_copy;
    if (work == SMALL) return run_small;
    if (work < OF_A_TYPE && (what == PRODUCT_NT || what == PRODUCT_TN)) return NULL;
    return what < KINDS ? typed[what] : run_kind;
}

// ---- a team -------------------------------------------------------------------------------------

static void open_arrays(team *t)
{
    const size_t teams = t->all->ranks < MOST_TEAMS ? t->all->ranks : MOST_TEAMS;
    t->floats = FAR / sizeof(float) / ARRAYS / teams / ELEMENTS * ELEMENTS;
    if (t->floats * sizeof(float) < ZX_BENCH_LEAST) t->floats = ZX_BENCH_LEAST / sizeof(float);
    for (int i = 0; i < ARRAYS; i++) {
        t->array[i] = aligned_alloc(ZX_ALIGN, sizeof(float) * t->floats);
        if (t->array[i] == NULL) {
            t->st = ZX_FAIL(&t->err, ZX_E_DEVICE, "no memory to calibrate in");
            return;
        }
        zx_bench_fill(t->array[i], t->floats);
    }
    t->room = (zx_bench_room){t->array[1], t->array[4], t->floats * sizeof(float), t->labels};
}

static zx_status open_ops_in(team *t, uint32_t type)
{
    static const int64_t one[] = {1};
    static const zx_attr turned[] = {{ZX_A_TRANS_A, 1, one, NULL}, {ZX_A_TRANS_B, 1, one, NULL}};
    static const zx_attrs plain = {0}, nt = {1, &turned[1]}, tn = {1, &turned[0]};
    const struct {
        uint32_t what, op;
        const zx_attrs *attrs;
        zx_shape x, y;
    } ops[] = {
        {PRODUCT, ZX_OP_MATMUL, &plain, {2, {256, 768}}, {2, {768, 768}}},
        {PRODUCT_NT, ZX_OP_MATMUL, &nt, {2, {256, 768}}, {2, {768, 768}}},
        {PRODUCT_TN, ZX_OP_MATMUL, &tn, {2, {256, 768}}, {2, {256, 768}}},
        {ADD, ZX_OP_ADD, &plain, {2, {1024, ELEMENTS / 1024}}, {2, {1024, ELEMENTS / 1024}}},
        {NEAR, ZX_OP_ADD, &plain, {2, {128, 128}}, {2, {128, 128}}},
    };
    const int threads = (int)t->all->threads;
    for (size_t i = 0; i < ZX_COUNT(ops); i++) {
        const uint32_t work = WORK(type, ops[i].what);
        if (work_of(work) != NULL)
            ZX_TRY(zx_bench_open(&t->op[work], ops[i].op, types[type], ops[i].attrs, &t->room,
                                 &ops[i].x, &ops[i].y, threads, &t->err));
    }
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++)
        ZX_TRY(zx_bench_open_kind(&t->op[WORK(type, KINDS + k)], k, types[type], &t->room, threads,
                                  &t->err));
    return ZX_OK;
}

static zx_status open_ops(team *t)
{
    static const zx_attrs none = {0};
    const int threads = (int)t->all->threads;
    const zx_shape small = {2, {1, threads > 1 ? SHARED : 16}};
    for (uint32_t type = 0; type < TYPES; type++) ZX_TRY(open_ops_in(t, type));
    return zx_bench_open(&t->op[SMALL], ZX_OP_ADD, ZX_F32, &none, &t->room, &small, &small, threads,
                         &t->err);
}

static void close_team(team *t)
{
    for (uint32_t w = 0; w < WORKS; w++) zx_bench_close(&t->op[w]);
    for (int i = 0; i < ARRAYS; i++) free(t->array[i]);
}

static void write_operands(team *t, uint32_t work)
{
    for (uint32_t i = 0; i < t->op[work].call.n_in; i++) {
        float *x = t->op[work].in[i].data;
        for (int64_t k = 0; k < SHARED; k++) x[k] = (float)(k % 13) / 16;
    }
}

// A team that has failed still meets the others.
static void do_work(team *t, uint32_t work)
{
    work_fn *run = work_of(work);
    if (run == NULL) return;
    pthread_barrier_wait(&t->all->meet);
    if (t->st != ZX_OK) return;
    run(t, work);
    for (int i = 0; i < TIMED; i++) {
        if (work == SMALL && t->all->threads > 1) write_operands(t, work);
        const double from = zx_seconds();
        t->amount[work] = run(t, work);
        t->seconds[work][t->n[work]++ % PIECES] = zx_seconds() - from;
    }
}

static void *run_team(void *arg)
{
    team *t = arg;
    open_arrays(t);
    if (t->st == ZX_OK) t->st = open_ops(t);
    const double from = zx_seconds();
    uint32_t rounds = 0;
    do {
        for (uint32_t w = 0; w < WORKS; w++) do_work(t, w);
        pthread_barrier_wait(&t->all->meet);
        const double passed = zx_seconds() - from;
        rounds++;
        if (t->first) t->all->over = passed > (rounds < ROUNDS ? MOST_LASTS : LASTS);
        pthread_barrier_wait(&t->all->meet);
    } while (!t->all->over);
    close_team(t);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// ---- meeting ------------------------------------------------------------------------------------

typedef struct meeter {
    zx_word *words; // one a rank, a line of its own each
    const uint32_t *n;
    uint32_t rank;
    zx_patience patience;
    double seconds; // of two meetings, as a collective has
} meeter;
#define WORD_OF(words, r) (&(words)[(size_t)(r) * (ZX_ALIGN / sizeof(zx_word))])

static void *run_meetings(void *arg)
{
    meeter *m = arg;
    double seconds[MEETINGS];
    for (uint32_t i = 0; i < MEETINGS; i++) {
        const double from = zx_seconds();
        zx_word_set(WORD_OF(m->words, m->rank), i + 1);
        for (uint32_t r = 0; r < *m->n; r++)
            if (r != m->rank) zx_word_wait(WORD_OF(m->words, r), i + 1, &m->patience, ZX_NO_PEER);
        seconds[i] = zx_seconds() - from;
    }
    qsort(seconds, MEETINGS, sizeof *seconds, by_value);
    m->seconds = 2 * seconds[MEETINGS / 2];
    return NULL;
}

// ---- threads ------------------------------------------------------------------------------------

typedef struct starter {
    void *(*run)(void *);
    void *item;
    pthread_mutex_t *gate;
} starter;

static void *wait_and_run(void *arg)
{
    const starter *s = arg;
    pthread_mutex_lock(s->gate);
    pthread_mutex_unlock(s->gate);
    return s->run(s->item);
}

// Runs `run` on the first of n items of `size` bytes here and on the others in threads of their
// own; *n becomes the number that could be started, before any begins.
static void run_all(void *(*run)(void *), void *items, size_t size, uint32_t *n,
                    pthread_barrier_t *meet)
{
    pthread_t threads[MOST_TEAMS];
    starter starters[MOST_TEAMS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    uint32_t started = 1;
    pthread_mutex_lock(&gate);
    for (; started < *n; started++) {
        starters[started] = (starter){run, (unsigned char *)items + started * size, &gate};
        if (pthread_create(&threads[started], NULL, wait_and_run, &starters[started]) != 0) break;
    }
    *n = started;
    if (meet != NULL) pthread_barrier_init(meet, NULL, started);
    pthread_mutex_unlock(&gate);
    run(items);
    for (uint32_t i = 1; i < started; i++) pthread_join(threads[i], NULL);
    if (meet != NULL) pthread_barrier_destroy(meet);
    pthread_mutex_destroy(&gate);
}

static double meeting_seconds(uint32_t ranks, uint32_t threads)
{
    meeter meeters[MOST_TEAMS] = {{0}};
    uint32_t n = ranks < MOST_TEAMS ? ranks : MOST_TEAMS;
    zx_word *words = aligned_alloc(ZX_ALIGN, (size_t)MOST_TEAMS * ZX_ALIGN);
    if (n < 2 || words == NULL) {
        free(words);
        return 0;
    }
    memset(words, 0, (size_t)MOST_TEAMS * ZX_ALIGN);
    const bool roomy = (uint64_t)ranks * (threads + 2) <= zx_memory_cores();
    for (uint32_t r = 0; r < n; r++)
        meeters[r] = (meeter){words, &n, r, {.spins = roomy ? SPINS : 0}, 0};
    run_all(run_meetings, meeters, sizeof *meeters, &n, NULL);
    free(words);
    return meeters[0].seconds;
}

// ---- all of it ----------------------------------------------------------------------------------

static double three_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.3g", x);
    return strtod(text, NULL);
}

// Seconds of a work's amount: the fastest eighth of a team's pieces, of what threads only meet for
// the fastest one; and of the teams, which do the same, the median.
static double seconds_of(team *teams, uint32_t n, uint32_t work)
{
    double x[MOST_TEAMS];
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t pieces = teams[i].n[work] < PIECES ? teams[i].n[work] : PIECES;
        qsort(teams[i].seconds[work], pieces, sizeof *x, by_value);
        x[i] = teams[i].seconds[work][work == SMALL ? 0 : pieces / 8];
    }
    qsort(x, n, sizeof *x, by_value);
    return x[n / 2] > 1e-9 ? x[n / 2] : 1e-9;
}

static double rate_of(team *teams, uint32_t n, uint32_t work)
{
    return three_digits(teams->amount[work] / seconds_of(teams, n, work));
}

// Amounts a second beside products, as zx_trace_seconds adds them.
static double kind_rate_of(team *teams, uint32_t n, uint32_t work, const zx_machine *m)
{
    const zx_bench_op *op = &teams->op[work];
    const double seconds = seconds_of(teams, n, work);
    const double beside = seconds + LEAST_OP - m->op_seconds - zx_bench_products(op, m);
    return three_digits(op->amount / fmax(beside, LEAST_PART * seconds));
}

static void say_16(team *teams, uint32_t n, uint32_t type, zx_rates_16 *r, zx_machine *m)
{
    r->flops = rate_of(teams, n, WORK(type, PRODUCT));
    r->flops_nt = rate_of(teams, n, WORK(type, PRODUCT_NT));
    r->flops_tn = rate_of(teams, n, WORK(type, PRODUCT_TN));
    r->memory = rate_of(teams, n, WORK(type, ADD));
    r->near = rate_of(teams, n, WORK(type, NEAR));
    r->sum = rate_of(teams, n, WORK(type, SUM));
    r->update = rate_of(teams, n, WORK(type, UPDATE));
    r->norm = rate_of(teams, n, WORK(type, NORM));
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++)
        r->rates[k] = kind_rate_of(teams, n, WORK(type, KINDS + k), m);
}

static void say(team *teams, uint32_t n, zx_machine *out)
{
    out->flops = rate_of(teams, n, PRODUCT);
    out->memory = rate_of(teams, n, ADD);
    out->near = rate_of(teams, n, NEAR);
    out->copy = rate_of(teams, n, COPY);
    out->sum = rate_of(teams, n, SUM);
    out->update = rate_of(teams, n, UPDATE);
    out->norm = rate_of(teams, n, NORM);
    const double small = seconds_of(teams, n, SMALL) / teams->amount[SMALL];
    const double moves = teams->op[SMALL].cost.bytes / out->memory;
    out->op_seconds = three_digits(LEAST_OP + (out->threads > 1 ? fmax(small - moves, 0) : small));
    for (uint32_t k = 0; k < ZX_KIND_COUNT; k++)
        out->rates[k] = kind_rate_of(teams, n, KINDS + k, out);
    say_16(teams, n, 1, &out->bf16, out);
    say_16(teams, n, 2, &out->fp16, out);
    out->flops_16 = out->bf16.flops;
}

zx_status zx_calibrate(uint32_t ranks, uint32_t threads, zx_machine *out, zx_err *err)
{
    const uint32_t cores = zx_memory_cores();
    uint32_t n = cores / threads < ranks ? cores / threads : ranks; // more would share cores twice
    if (n < 1) n = 1;
    if (n > MOST_TEAMS) n = MOST_TEAMS;
    shared all = {.ranks = ranks, .threads = threads};
    team *teams = calloc(n, sizeof *teams);
    if (teams == NULL) return ZX_FAIL(err, ZX_E_DEVICE, "no memory to calibrate in");
    for (uint32_t i = 0; i < n; i++) teams[i].all = &all;
    teams->first = true;
    run_all(run_team, teams, sizeof *teams, &n, &all.meet);
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < n && st == ZX_OK; i++)
        if (teams[i].st != ZX_OK) st = zx_err_merge(err, &teams[i].err);
    *out = zx_machine_host(ranks, threads);
    snprintf(out->name, sizeof out->name, "host %ux%u", ranks, threads);
    if (st == ZX_OK) say(teams, n, out);
    out->cores = (double)cores / ranks;
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE); // 0 or less where it isn't known
    out->cache = cache > 0 ? (double)cache : 0;
    out->latency = three_digits(meeting_seconds(ranks, threads));
    free(teams);
    return st;
}

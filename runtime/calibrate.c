// calibrate.c - measures this host, all ranks at work at the same time, as they are in a step.
//
// Each kind of work is done in pieces of a few milliseconds for a fixed time; the fastest tenth
// counts, so that other load doesn't while ranks slow each other down in every piece. Figures have
// three digits: more would be noise.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/calibrate.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "graph/op.h"
#include "kernels/cpu/cpu.h"
#include "runtime/memory.h"
#include "runtime/stream.h"

#define PIECES 64     // that are looked at, of one kind of work
#define EACH 0.2      // seconds of one kind of work
#define MOST_TEAMS 16 // ranks that work at the same time
#define ELEMENTS (1 << 20)
#define ARRAYS 4
#define ROWS 256 // a product: [ROWS, WIDTH] x [WIDTH, WIDTH]
#define WIDTH 768
#define MEETINGS 100
#define SPINS 2000      // as sessions have it
#define LEAST_OP 0.5e-6 // of an execution, beside its kernel

typedef struct prepared { // a kernel on views, ready to run again and again
    const zx_kernel *kernel;
    zx_call call;
    zx_view in[2], out;
    void *state;
} prepared;

typedef struct team team;
typedef double work_fn(team *t); // does a piece; returns how much that was

typedef struct shared {
    uint32_t ranks, threads;
    pthread_barrier_t meet;
} shared;

struct team { // one rank
    shared *all;
    float *array[ARRAYS];
    prepared product, add, small;
    double rate[5], op_seconds;
    zx_status st;
    zx_err err;
};

// ---- pieces -------------------------------------------------------------------------------------

static double run_product(team *t)
{
    t->st = t->product.kernel->run(&t->product.call, &t->err);
    return 2.0 * ROWS * WIDTH * WIDTH;
}

static double run_add(team *t)
{
    t->st = t->add.kernel->run(&t->add.call, &t->err);
    return 3.0 * sizeof(float) * ELEMENTS;
}

static double run_small(team *t)
{
    for (int i = 0; i < 100; i++) t->st = t->small.kernel->run(&t->small.call, &t->err);
    return 100;
}

static double run_copy(team *t)
{
    memcpy(t->array[0], t->array[1], sizeof(float) * ELEMENTS);
    return sizeof(float) * (double)ELEMENTS;
}

static double run_sum(team *t)
{
    const float *from[MOST_TEAMS];
    const uint32_t n = t->all->ranks < MOST_TEAMS ? t->all->ranks : MOST_TEAMS;
    const int64_t elements = ELEMENTS / (int64_t)n;
    for (uint32_t r = 0; r < n; r++) from[r] = t->array[1] + r * elements;
    zx_cpu_sum_ranks(t->array[0], from, n, elements, true, 1);
    return sizeof(float) * (double)elements * n;
}

static double run_update(team *t)
{
    static const zx_adam_args args = {.beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .lr = 1e-3F,
                                      .eps = 1e-8F,
                                      .correction1 = 1,
                                      .correction2 = 1,
                                      .grad_scale = 1};
    zx_cpu_adam(t->array[0], t->array[1], t->array[2], t->array[3], ELEMENTS, &args,
                (int)t->all->threads);
    return 7.0 * sizeof(float) * ELEMENTS;
}

// ---- a team -------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// How much a second, by the fastest tenth of the pieces; the first one only warms up.
static double rate_of(team *t, work_fn *work)
{
    double seconds[PIECES], amount = 1;
    int n = 0;
    pthread_barrier_wait(&t->all->meet);
    if (t->st != ZX_OK) return 1;
    work(t);
    const double until = zx_seconds() + EACH;
    do {
        const double from = zx_seconds();
        amount = work(t);
        seconds[n++ % PIECES] = zx_seconds() - from;
    } while (zx_seconds() < until);
    if (n > PIECES) n = PIECES;
    qsort(seconds, (size_t)n, sizeof *seconds, by_value);
    const double fast = seconds[n / 10];
    return amount / (fast > 1e-9 ? fast : 1e-9);
}

static zx_view view_of(float *data, int64_t rows, int64_t columns)
{
    return (zx_view){data, {ZX_F32, {2, {rows, columns}}}};
}

static void prepare(team *t, prepared *p, uint32_t op, zx_view a, zx_view b, zx_view out)
{
    static const zx_attrs none = {0};
    uint64_t bytes = 0;
    p->in[0] = a;
    p->in[1] = b;
    p->out = out;
    p->kernel = zx_cpu_kernel(op);
    p->call = (zx_call){.op = op,
                        .n_in = 2,
                        .n_out = 1,
                        .in = p->in,
                        .out = &p->out,
                        .attrs = &none,
                        .threads = (int)t->all->threads};
    if (t->st != ZX_OK || p->kernel->prepare == NULL) return;
    t->st = p->kernel->prepare(&p->call, &bytes, &p->state, &t->err);
    p->call.state = p->state;
    if (t->st != ZX_OK || bytes == 0) return;
    p->call.work = aligned_alloc(ZX_ALIGN, (size_t)zx_align_up(bytes, ZX_ALIGN));
    if (p->call.work == NULL) t->st = ZX_FAIL(&t->err, ZX_E_DEVICE, "no memory to calibrate in");
}

static void release(prepared *p)
{
    if (p->kernel != NULL && p->kernel->release != NULL) p->kernel->release(p->state);
    free(p->call.work);
}

static void open_team(team *t)
{
    for (int i = 0; i < ARRAYS; i++) {
        t->array[i] = aligned_alloc(ZX_ALIGN, sizeof(float) * ELEMENTS);
        if (t->array[i] == NULL) {
            t->st = ZX_FAIL(&t->err, ZX_E_DEVICE, "no memory to calibrate in");
            return;
        }
        for (int k = 0; k < ELEMENTS; k++) t->array[i][k] = (float)(k % 13) / 16;
    }
    float *const *x = t->array;
    prepare(t, &t->product, ZX_OP_MATMUL, view_of(x[0], ROWS, WIDTH), view_of(x[1], WIDTH, WIDTH),
            view_of(x[2], ROWS, WIDTH));
    prepare(t, &t->add, ZX_OP_ADD, view_of(x[0], 1024, ELEMENTS / 1024),
            view_of(x[1], 1024, ELEMENTS / 1024), view_of(x[2], 1024, ELEMENTS / 1024));
    prepare(t, &t->small, ZX_OP_ADD, view_of(x[0], 1, 16), view_of(x[1], 1, 16),
            view_of(x[2], 1, 16));
}

static void close_team(team *t)
{
    release(&t->product);
    release(&t->add);
    release(&t->small);
    for (int i = 0; i < ARRAYS; i++) free(t->array[i]);
}

static void *run_team(void *arg)
{
    static work_fn *const works[] = {run_product, run_add, run_copy, run_sum, run_update};
    team *t = arg;
    open_team(t);
    for (size_t i = 0; i < ZX_COUNT(works); i++) t->rate[i] = rate_of(t, works[i]);
    t->op_seconds = LEAST_OP + 1 / rate_of(t, run_small);
    close_team(t);
    return NULL;
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

// The median team's: they do the same.
static double median_of(const team *teams, uint32_t n, size_t which)
{
    double x[MOST_TEAMS];
    for (uint32_t i = 0; i < n; i++)
        x[i] = which < ZX_COUNT(teams->rate) ? teams[i].rate[which] : teams[i].op_seconds;
    qsort(x, n, sizeof *x, by_value);
    return three_digits(x[n / 2]);
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
    run_all(run_team, teams, sizeof *teams, &n, &all.meet);
    zx_status st = ZX_OK;
    for (uint32_t i = 0; i < n && st == ZX_OK; i++)
        if (teams[i].st != ZX_OK) st = zx_err_merge(err, &teams[i].err);
    *out = zx_machine_host(ranks, threads);
    snprintf(out->name, sizeof out->name, "host %ux%u", ranks, threads);
    out->flops = out->flops_16 = median_of(teams, n, 0);
    out->memory = median_of(teams, n, 1);
    out->copy = median_of(teams, n, 2);
    out->sum = median_of(teams, n, 3);
    out->update = median_of(teams, n, 4);
    out->op_seconds = median_of(teams, n, 5);
    out->cores = (double)cores / ranks;
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE); // 0 or less where it isn't known
    out->cache = cache > 0 ? (double)cache : 0;
    out->latency = three_digits(meeting_seconds(ranks, threads));
    free(teams);
    return st;
}

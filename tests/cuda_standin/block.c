// block.c - runs a kernel's blocks one after the other on a stream's thread.
//
// A block's threads run one after the other on one fiber; a thread that comes to a barrier leaves
// its fiber there, and the next goes on on another. So a kernel without barriers is a plain loop,
// and one that only shuffles has a warp's worth of fibers. Under ThreadSanitizer every thread of a
// block has a fiber of its own, ordered against the others by barriers alone: what a missing
// __syncthreads() leaves open is reported.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"
#include "tests/cuda_standin/fiber.h"
#include "tests/cuda_standin/sanitizer.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <ucontext.h>

#define MOST 1024 // threads of a block
#define FULL 0xffffffffu

typedef struct index3 {
    unsigned x, y, z;
} index3;
// What kernels read; in device.h these have the names of CUDA.
extern __thread index3 zx_standin_thread, zx_standin_block, zx_standin_block_dim,
    zx_standin_grid_dim;
__thread index3 zx_standin_thread, zx_standin_block, zx_standin_block_dim, zx_standin_grid_dim;
void zx_standin_syncthreads(const char *file, int line);
int zx_standin_syncthreads_count(int yes, const char *file, int line);
void *zx_standin_shared(void);
const uint64_t *zx_standin_exchange(unsigned mask, uint64_t mine, const char *file, int line);
unsigned zx_standin_lane(void);

typedef struct lane {
    si_fiber fiber;
    uint32_t thread; // that runs on it, of the block
} lane;

typedef struct gate { // where some threads meet
    uint32_t arrived, phase;
    const char *file;
    int line;
    char order[2]; // addresses for ThreadSanitizer, by phase
} gate;

struct si_worker {
    si_fiber host;
    lane *lanes[MOST];
    uint32_t n_lanes, n_started; // fibers there are; that this block took
    lane *idle[MOST], *ready[MOST], *waiting[MOST];
    uint32_t n_idle, ready_from, ready_to, n_waiting; // ready: a ring
    lane *current;
    const zx_standin_kernel *k;
    uint32_t n, next, done; // threads of the block; first that hasn't begun; that ended
    uint32_t turn;          // order of warps
    bool back;              // order of lanes and warps
    char start, end;        // addresses for ThreadSanitizer
    gate block;
    uint32_t yes[2];
    struct {
        gate gate;
        lane *waiting[32];
        uint64_t slot[2][32];
    } warps[MOST / 32];
    void *shared;
    cudaError_t failed;
    char *why;
    size_t why_size;
    stack_t signal_stack;
};
static _Thread_local si_worker *here;

static void set_thread(const si_worker *w, uint32_t t)
{
    const uint32_t *b = w->k->block;
    zx_standin_thread = (index3){t % b[0], t / b[0] % b[1], t / (b[0] * b[1])};
}

// The t-th thread to begin, in this block's order: warps stay together.
static uint32_t in_turn(const si_worker *w, uint32_t t)
{
    const uint32_t whole = w->n / 32 * 32;
    if (w->turn > 0 && t < whole) t = (t + 32 * w->turn) % whole;
    return w->back ? w->n - 1 - t : t;
}

// ---- who runs next ------------------------------------------------------------------------------

static void enter(void);

static lane *fresh(si_worker *w)
{
    if (w->n_idle > 0) return w->idle[--w->n_idle];
    if (w->n_started == w->n_lanes) {
        lane *l = calloc(1, sizeof *l);
        if (l == NULL || !si_fiber_open(&l->fiber, enter)) abort();
        w->lanes[w->n_lanes++] = l;
    }
    return w->lanes[w->n_started++];
}
// Leaves the current fiber, which is waited for or idle, for one that can run.
static void leave(si_worker *w)
{
    lane *self = w->current, *to = NULL;
    if (w->ready_from != w->ready_to)
        to = w->ready[w->ready_from++ % MOST];
    else if (w->next < w->n)
        to = fresh(w);
    if (to == self) return; // it was idle and begins anew
    w->current = to;
    si_fiber_switch(&self->fiber, to == NULL ? &w->host : &to->fiber, false);
}
static void wait(si_worker *w)
{
    lane *self = w->current;
    leave(w);
    set_thread(w, self->thread);
}
static void release(si_worker *w, lane *const *waiting, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) w->ready[w->ready_to++ % MOST] = waiting[i];
}

static void enter(void) // what a fiber does: threads, one after the other
{
    si_worker *w = here;
    si_fiber_arrived();
    for (;;) {
        lane *self = w->current;
        do {
            self->thread = in_turn(w, w->next++);
            set_thread(w, self->thread);
            SI_ACQUIRE(&w->start);
            w->k->thread(w->k->args);
            SI_RELEASE(&w->end);
            w->done++;
#if defined(ZX_STANDIN_TSAN)
            break;
#endif
        } while (w->ready_from == w->ready_to && w->next < w->n);
#if !defined(ZX_STANDIN_TSAN)
        w->idle[w->n_idle++] = self;
#endif
        leave(w);
    }
}

// Ends the kernel: its fibers stay where they are.
__attribute__((format(printf, 3, 4))) static void fail(si_worker *w, cudaError_t e, const char *fmt,
                                                       ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->why, w->why_size, fmt, args);
    va_end(args);
    w->failed = e;
    lane *self = w->current;
    w->current = NULL;
    si_fiber_switch(&self->fiber, &w->host, true);
    abort(); // nobody comes back
}

static void sites_must_match(si_worker *w, gate *g, const char *file, int line, const char *what)
{
    if (g->arrived == 0) {
        g->file = file;
        g->line = line;
    } else if (g->line != line || strcmp(g->file, file) != 0) {
        fail(w, cudaErrorLaunchFailure,
             "threads of one %s wait at different places: %s:%d and %s:%d", what, g->file, g->line,
             file, line);
    }
}

// ---- what kernels call --------------------------------------------------------------------------

int zx_standin_syncthreads_count(int yes, const char *file, int line)
{
    si_worker *w = here;
    gate *g = &w->block;
    const uint32_t phase = g->phase & 1;
    sites_must_match(w, g, file, line, "block");
    SI_RELEASE(&g->order[phase]);
    w->yes[phase] += yes != 0;
    if (++g->arrived == w->n) {
        g->arrived = 0;
        g->phase++;
        w->yes[phase ^ 1] = 0;
        release(w, w->waiting, w->n_waiting);
        w->n_waiting = 0;
    } else {
        w->waiting[w->n_waiting++] = w->current;
        wait(w);
    }
    SI_ACQUIRE(&g->order[phase]);
    return (int)w->yes[phase];
}
void zx_standin_syncthreads(const char *file, int line)
{
    zx_standin_syncthreads_count(0, file, line);
}

unsigned zx_standin_lane(void)
{
    return here->current->thread % 32;
}
void *zx_standin_shared(void)
{
    return here->shared;
}

const uint64_t *zx_standin_exchange(unsigned mask, uint64_t mine, const char *file, int line)
{
    si_worker *w = here;
    const uint32_t t = w->current->thread, warp = t / 32;
    gate *g = &w->warps[warp].gate;
    const uint32_t phase = g->phase & 1;
    if (mask != FULL || warp * 32 + 32 > w->n)
        fail(w, cudaErrorLaunchFailure, "%s:%d: %s", file, line,
             mask != FULL ? "warps are used as a whole here: mask 0xffffffff"
                          : "the block's last warp isn't whole");
    sites_must_match(w, g, file, line, "warp");
    SI_RELEASE(&g->order[phase]);
    w->warps[warp].slot[phase][t % 32] = mine;
    if (g->arrived == 31) {
        release(w, w->warps[warp].waiting, 31);
        g->arrived = 0;
        g->phase++;
    } else {
        w->warps[warp].waiting[g->arrived++] = w->current;
        wait(w);
    }
    SI_ACQUIRE(&g->order[phase]);
    return w->warps[warp].slot[phase];
}

// ---- faults -------------------------------------------------------------------------------------

#if defined(__x86_64__) && defined(__linux__) && !defined(SI_ASAN) && !defined(ZX_STANDIN_TSAN)
static struct sigaction before;
static _Thread_local void *fault_at;

static void faulted(void)
{
    fail(here, cudaErrorIllegalAddress, "thread %u,%u,%u of block %u,%u,%u touched %p",
         zx_standin_thread.x, zx_standin_thread.y, zx_standin_thread.z, zx_standin_block.x,
         zx_standin_block.y, zx_standin_block.z, fault_at);
}
// A fault in a kernel becomes the device's error: the fiber goes on in faulted(). Others are none
// of ours.
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    if (here == NULL || here->current == NULL) {
        sigaction(SIGSEGV, &before, NULL);
        return;
    }
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    fault_at = info->si_addr;
    r[REG_RSP] = (greg_t)(uintptr_t)si_fiber_top(&here->current->fiber) - 8;
    r[REG_RIP] = (greg_t)(uintptr_t)faulted;
}
static void watch(si_worker *w) // for each stream: others (CMocka) set handlers meanwhile
{
    static si_lock lock;
    struct sigaction now, ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&ours.sa_mask);
    si_lock_take(&lock);
    sigaction(SIGSEGV, NULL, &now);
    if (now.sa_sigaction != on_fault) {
        before = now;
        sigaction(SIGSEGV, &ours, NULL);
    }
    si_lock_give(&lock);
    w->signal_stack = (stack_t){.ss_sp = malloc(65536), .ss_size = 65536};
    if (w->signal_stack.ss_sp != NULL) sigaltstack(&w->signal_stack, NULL);
}
static void unwatch(si_worker *w)
{
    const stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    free(w->signal_stack.ss_sp);
}
#else // sanitizers report faults themselves
static void watch(si_worker *w)
{
    (void)w;
}
static void unwatch(si_worker *w)
{
    (void)w;
}
#endif

// ---- blocks -------------------------------------------------------------------------------------

si_worker *si_worker_open(void)
{
    si_worker *w = calloc(1, sizeof *w);
    if (w == NULL) abort();
    si_fiber_of_thread(&w->host);
    watch(w);
    here = w;
    return w;
}
static void drop_fibers(si_worker *w)
{
    for (uint32_t i = 0; i < w->n_lanes; i++) {
        si_fiber_close(&w->lanes[i]->fiber);
        free(w->lanes[i]);
    }
    w->n_lanes = 0;
}
void si_worker_close(si_worker *w)
{
    here = NULL;
    drop_fibers(w);
    unwatch(w);
    free(w->host.context);
    free(w);
}

static void run_block(si_worker *w)
{
    w->n_started = w->n_idle = w->ready_from = w->ready_to = w->n_waiting = 0;
    w->next = w->done = 0;
    w->yes[0] = w->yes[1] = 0;
    SI_RELEASE(&w->start);
    if (w->shared != NULL) si_poison(w->shared, w->k->shared_bytes);
    w->current = fresh(w);
    si_fiber_switch(&w->host, &w->current->fiber, false);
    SI_ACQUIRE(&w->end);
    if (w->failed != cudaSuccess || w->done == w->n) return;
    w->failed = cudaErrorLaunchFailure;
    const gate *g = &w->block;
    for (uint32_t i = 0; g->arrived == 0 && i < MOST / 32; i++)
        if (w->warps[i].gate.arrived > 0) g = &w->warps[i].gate;
    snprintf(w->why, w->why_size,
             "block %u,%u,%u: %u of %u threads wait at %s:%d for others that have returned",
             zx_standin_block.x, zx_standin_block.y, zx_standin_block.z, w->n - w->done, w->n,
             g->file, g->line);
}

static void *shared_memory(size_t bytes) // ends where it ends, for the address sanitizer
{
    void *at = NULL;
    if (bytes > 0 && posix_memalign(&at, 128, bytes) != 0) abort();
    return at;
}

cudaError_t si_kernel_run(si_worker *w, const zx_standin_kernel *k, uint64_t order, char *why,
                          size_t size)
{
    const uint64_t blocks = (uint64_t)k->grid[0] * k->grid[1] * k->grid[2];
    const uint64_t first = order == 0 ? 0 : si_mix(order) % blocks;
    w->k = k;
    w->n = k->block[0] * k->block[1] * k->block[2];
    w->back = order != 0 && (si_mix(order + 1) & 1);
    w->turn = order == 0 || w->n < 64 ? 0 : (uint32_t)(si_mix(order + 2) % (w->n / 32));
    w->failed = cudaSuccess;
    w->why = why;
    w->why_size = size;
    w->shared = shared_memory(k->shared_bytes);
    w->block = (gate){0};
    memset(w->warps, 0, sizeof w->warps);
    zx_standin_block_dim = (index3){k->block[0], k->block[1], k->block[2]};
    zx_standin_grid_dim = (index3){k->grid[0], k->grid[1], k->grid[2]};
    for (uint64_t i = 0; i < blocks && w->failed == cudaSuccess; i++) {
        const uint64_t b = (i + first) % blocks;
        zx_standin_block =
            (index3){(unsigned)(b % k->grid[0]), (unsigned)(b / k->grid[0] % k->grid[1]),
                     (unsigned)(b / k->grid[0] / k->grid[1])};
        run_block(w);
    }
    if (w->failed != cudaSuccess) drop_fibers(w);
    free(w->shared);
    w->shared = NULL;
    return w->failed;
}

// error.c - errors of the stand-in: last ones, those that stay with a device, those that a test
// asks for; counts of calls.
// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_standin/inside.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define MOST 64
// Beside errors' numbers: what happens to the stream or the process.
#define HANG UINT32_MAX
#define KILL (UINT32_MAX - 1)
#define STOP (UINT32_MAX - 2)

static struct {
    si_lock lock;
    struct {
        char call[40];
        uint64_t n;
    } counts[MOST];
    uint32_t n_counts;
    struct {
        char call[40];
        uint64_t nth;
        uint32_t error; // cudaError_t, or one of the above
        int device;
    } faults[MOST];
    uint32_t n_faults;
    char said[400];
    _Atomic uint32_t sticky[SI_DEVICES]; // cudaError_t
    _Atomic uint32_t aborts;             // of communicators, so far
    pid_t pid;                           // that made the first call
    bool read;                           // the environment was
} all;
static _Thread_local cudaError_t last;

static const struct {
    cudaError_t error;
    const char *name, *words;
    bool sticky;
} rows[] = {
#define X(name, number, words, sticky) {name, #name, words, sticky},
    ZX_STANDIN_ERRORS(X)
#undef X
};
#define N_ROWS (sizeof rows / sizeof rows[0])

static size_t row_of(cudaError_t e)
{
    size_t i = 0;
    while (i < N_ROWS - 1 && rows[i].error != e) i++; // the last is cudaErrorUnknown
    return i;
}
const char *cudaGetErrorName(cudaError_t e)
{
    return rows[row_of(e)].name;
}
const char *cudaGetErrorString(cudaError_t e)
{
    return rows[row_of(e)].words;
}

cudaError_t cudaPeekAtLastError(void)
{
    const cudaError_t stuck = si_stuck(si_current());
    return stuck != cudaSuccess ? stuck : last;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t e = cudaPeekAtLastError();
    last = cudaSuccess;
    return e;
}

cudaError_t si_return(cudaError_t e)
{
    if (e != cudaSuccess) last = e;
    return e;
}

static void say(const char *fmt, va_list args)
{
    char text[400];
    vsnprintf(text, sizeof text, fmt, args);
    si_lock_take(&all.lock);
    if (all.said[0] == '\0') memcpy(all.said, text, sizeof text);
    si_lock_give(&all.lock);
    if (si_get()->say) fprintf(stderr, "CUDA stand-in: %s\n", text);
}
cudaError_t si_wrong(cudaError_t e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
    return si_return(e);
}
void si_stick(int device, cudaError_t e, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    say(fmt, args);
    va_end(args);
    uint32_t none = cudaSuccess;
    atomic_compare_exchange_strong(&all.sticky[device], &none, e);
}
cudaError_t si_stuck(int device)
{
    return (cudaError_t)atomic_load(&all.sticky[device]);
}
const char *zx_standin_said(void)
{
    return all.said;
}

// ---- faults to come -----------------------------------------------------------------------------

static void add_fault(const char *call, size_t call_length, uint64_t nth, uint32_t error,
                      int device)
{
    si_lock_take(&all.lock);
    if (all.n_faults < MOST && call_length < sizeof all.faults[0].call) {
        memset(&all.faults[all.n_faults], 0, sizeof all.faults[0]);
        memcpy(all.faults[all.n_faults].call, call, call_length);
        all.faults[all.n_faults].nth = nth;
        all.faults[all.n_faults].error = error;
        all.faults[all.n_faults].device = device;
        all.n_faults++;
    }
    si_lock_give(&all.lock);
}
void zx_standin_fail(const char *call, uint64_t nth, cudaError_t error, int device)
{
    add_fault(call, strlen(call), nth, error, device);
}

static const struct {
    const char *word; // four letters
    uint32_t error;
} fates[] = {{"hang", HANG}, {"kill", KILL}, {"stop", STOP}};

bool zx_standin_fail_text(const char *text)
{
    while (*text != '\0') {
        char *end;
        const size_t name = strcspn(text, ":");
        if (text[name] == '\0' || name == 0) return false;
        const unsigned long long nth = strtoull(text + name + 1, &end, 10);
        if (nth == 0 || *end != ':') return false;
        const char *p = end + 1;
        uint32_t error = 0;
        for (size_t i = 0; i < sizeof fates / sizeof fates[0]; i++)
            if (strncmp(p, fates[i].word, 4) == 0) error = fates[i].error;
        if (error != 0)
            end = (char *)(uintptr_t)p + 4;
        else
            error = (uint32_t)strtoul(p, &end, 10);
        if (end == p) return false;
        int device = -1;
        if (*end == '@') device = (int)strtol(end + 1, &end, 10);
        if (*end != ',' && *end != '\0') return false;
        add_fault(text, name, nth, error, device);
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

// The fault that this call runs into, or cudaSuccess. The lock is held.
static uint32_t count_down(const char *call, int device)
{
    uint32_t found = cudaSuccess;
    for (uint32_t i = 0; i < all.n_faults; i++) {
        if (strcmp(all.faults[i].call, call) != 0 || all.faults[i].nth == 0 ||
            (all.faults[i].device >= 0 && all.faults[i].device != device))
            continue;
        if (--all.faults[i].nth == 0 && found == cudaSuccess) found = all.faults[i].error;
    }
    return found;
}

static void count(const char *call)
{
    uint32_t i = 0;
    while (i < all.n_counts && strcmp(all.counts[i].call, call) != 0) i++;
    if (i == MOST) return;
    if (i == all.n_counts) snprintf(all.counts[all.n_counts++].call, 40, "%s", call);
    all.counts[i].n++;
}
uint64_t zx_standin_calls(const char *call)
{
    uint64_t n = 0;
    si_lock_take(&all.lock);
    for (uint32_t i = 0; i < all.n_counts; i++)
        if (strcmp(all.counts[i].call, call) == 0) n = all.counts[i].n;
    si_lock_give(&all.lock);
    return n;
}

// How often what was called, a line each, in a file a device: ZX_STANDIN_COUNTS.0.
static void write_counts(void)
{
    const char *to = getenv("ZX_STANDIN_COUNTS");
    char path[300];
    if (to == NULL || all.pid != getpid()) return;
    snprintf(path, sizeof path, "%s.%d", to, si_current());
    FILE *f = fopen(path, "w");
    if (f == NULL) return;
    for (uint32_t i = 0; i < all.n_counts; i++)
        fprintf(f, "%s %llu\n", all.counts[i].call, (unsigned long long)all.counts[i].n);
    fclose(f);
}

static void read_environment(void) // before the first call is counted
{
    const char *text = getenv("ZX_STANDIN_FAIL");
    si_lock_take(&all.lock);
    const bool first = !all.read;
    all.read = true;
    if (first) all.pid = getpid();
    si_lock_give(&all.lock);
    if (first && getenv("ZX_STANDIN_COUNTS") != NULL) atexit(write_counts);
    if (first && text != NULL && !zx_standin_fail_text(text))
        fprintf(stderr, "CUDA stand-in: ZX_STANDIN_FAIL=%s is not understood\n", text);
}

// What is no error: the process dies, or stops and may go on; else 0 or the number.
static uint32_t suffer(uint32_t fault)
{
    if (fault == KILL || fault == STOP) kill(getpid(), fault == KILL ? SIGKILL : SIGSTOP);
    return fault == KILL || fault == STOP ? 0 : fault;
}

// A call that doesn't come back, but from a library whose communicators are aborted.
static void wait_for_abort(bool library)
{
    const uint32_t before = atomic_load(&all.aborts);
    while (!library || atomic_load(&all.aborts) == before) usleep(1000);
}
void si_aborted(void)
{
    atomic_fetch_add(&all.aborts, 1);
}

cudaError_t si_begin(const char *call)
{
    const int device = si_current();
    read_environment();
    if (all.pid != getpid())
        return si_wrong(cudaErrorInitializationError,
                        "%s: called after fork() by a process whose parent used CUDA", call);
    si_lock_take(&all.lock);
    count(call);
    uint32_t fault = count_down(call, device);
    si_lock_give(&all.lock);
    fault = suffer(fault);
    if (fault == HANG) wait_for_abort(false);
    if (fault != cudaSuccess) {
        const cudaError_t e = (cudaError_t)fault;
        if (rows[row_of(e)].sticky) atomic_store(&all.sticky[device], e);
        return si_return(e);
    }
    return si_return(si_stuck(device));
}

uint32_t si_begin_library(const char *call, uint32_t stuck)
{
    read_environment();
    if (all.pid != getpid()) return stuck;
    si_lock_take(&all.lock);
    count(call);
    uint32_t fault = count_down(call, si_current());
    si_lock_give(&all.lock);
    fault = suffer(fault);
    if (fault == HANG) {
        wait_for_abort(true);
        return stuck;
    }
    return fault != 0 ? fault : si_stuck(si_current()) != cudaSuccess ? stuck : 0;
}

uint32_t si_library_fault(const char *what, int device)
{
    si_lock_take(&all.lock);
    count(what);
    const uint32_t fault = count_down(what, device);
    si_lock_give(&all.lock);
    return suffer(fault);
}

cudaError_t si_item_fault(int device, bool *hang)
{
    si_lock_take(&all.lock);
    count("item");
    uint32_t fault = count_down("item", device);
    si_lock_give(&all.lock);
    fault = suffer(fault);
    *hang = fault == HANG;
    return *hang ? cudaSuccess : (cudaError_t)fault;
}

void si_error_reset(void)
{
    si_lock_take(&all.lock);
    memset(all.counts, 0, sizeof all.counts);
    all.n_counts = all.n_faults = 0;
    all.said[0] = '\0';
    for (int d = 0; d < SI_DEVICES; d++) atomic_store(&all.sticky[d], cudaSuccess);
    si_lock_give(&all.lock);
    last = cudaSuccess;
}

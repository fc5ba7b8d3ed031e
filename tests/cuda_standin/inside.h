// inside.h - what the stand-in's files share. They are compiled without ThreadSanitizer: a lock or
// a queue of the stand-in must not look as if it ordered what only events and waits order. The
// edges that CUDA promises are told to the sanitizer one by one (SI_RELEASE, SI_ACQUIRE).
// SPDX-License-Identifier: Apache-2.0
#ifndef ZX_STANDIN_INSIDE_H
#define ZX_STANDIN_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_standin/include/standin_launch.h"
#include "tests/cuda_standin/standin.h"

#if defined(ZX_STANDIN_TSAN) // the compiler's own macro is off in these files
void __tsan_acquire(void *at);
void __tsan_release(void *at);
#define SI_ACQUIRE(at) __tsan_acquire(at)
#define SI_RELEASE(at) __tsan_release(at)
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
// What lies behind the stand-in's locks is its own: C library calls on it are no races.
#define SI_OWN_BEGIN()                                                                             \
    (AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__))
#define SI_OWN_END()                                                                               \
    (AnnotateIgnoreReadsEnd(__FILE__, __LINE__), AnnotateIgnoreWritesEnd(__FILE__, __LINE__))
void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes);
#define SI_READS(at, bytes) __tsan_read_range((void *)(uintptr_t)(at), (bytes))
#define SI_WRITES(at, bytes) __tsan_write_range((void *)(uintptr_t)(at), (bytes))
#else
#define SI_ACQUIRE(at) ((void)(at))
#define SI_RELEASE(at) ((void)(at))
#define SI_OWN_BEGIN() ((void)0)
#define SI_OWN_END() ((void)0)
#define SI_READS(at, bytes) ((void)(at))
#define SI_WRITES(at, bytes) ((void)(at))
#endif

#define SI_DEVICES 16
#define SI_POISON 0x7ff4 // of 16 bits: a NaN as f64, f32, bf16 and f16, a large number as integer

// ---- lock.c: futexes ----------------------------------------------------------------------------
typedef struct si_lock {
    _Atomic uint32_t held; // 0 free, 1 held, 2 held and waited for
} si_lock;
void si_lock_take(si_lock *l);
void si_lock_give(si_lock *l);
// Sleeps while *word is `seen`, some milliseconds at most.
void si_sleep_while(_Atomic uint32_t *word, uint32_t seen);
void si_wake(_Atomic uint32_t *word);
double si_seconds(void);
uint64_t si_mix(uint64_t x); // SplitMix64 of x

// ---- error.c ------------------------------------------------------------------------------------
// To begin a call with: counts it; an error that it must return at once, or cudaSuccess.
cudaError_t si_begin(const char *call);
#define SI_BEGIN()                                                                                 \
    do {                                                                                           \
        const cudaError_t begin_ = si_begin(__func__);                                             \
        if (begin_ != cudaSuccess) return begin_;                                                  \
    } while (0)
// The same in a library's numbers, of which 0 is success: `stuck` where CUDA itself has failed.
uint32_t si_begin_library(const char *call, uint32_t stuck);
uint32_t si_library_fault(const char *what, int device); // that an item of it is asked to have
void si_aborted(void);                // a communicator was: calls that hang come back
cudaError_t si_return(cudaError_t e); // kept for cudaGetLastError where it is an error
// The same with words: what was wrong with the call.
__attribute__((format(printf, 2, 3))) cudaError_t si_wrong(cudaError_t e, const char *fmt, ...);
// An asynchronous error of a device, which stays.
__attribute__((format(printf, 3, 4))) void si_stick(int device, cudaError_t e, const char *fmt,
                                                    ...);
cudaError_t si_stuck(int device); // cudaSuccess: it isn't
// Before an item of a stream: an error to give, or *hang.
cudaError_t si_item_fault(int device, bool *hang);
void si_error_reset(void);

// ---- device.c -----------------------------------------------------------------------------------
typedef struct si_settings { // read from the environment once
    int devices;
    uint64_t memory;
    uint64_t seed;
    uint32_t delay_us;
    bool say, blocking; // blocking: launches are waited for
} si_settings;
si_settings *si_get(void);
int si_current(void); // this thread's device

// ---- memory.c -----------------------------------------------------------------------------------
typedef enum si_kind { SI_PAGEABLE, SI_DEVICE, SI_PINNED } si_kind;
typedef struct si_range { // what is known of [at, at + bytes)
    si_kind kind;
    int device;  // of device memory
    bool inside; // it lies in one allocation as a whole; pageable: unknown, taken for true
} si_range;
si_range si_find(const void *at, uint64_t bytes);
uint32_t si_memory_reset(void); // gives everything back; how much there was
void si_poison(void *at, uint64_t bytes);

// ---- stream.c, item.c ---------------------------------------------------------------------------
typedef struct si_record { // one cudaEventRecord
    _Atomic uint32_t refs, done;
    double at;
} si_record;
void si_record_drop(si_record *r);

typedef enum si_what {
    SI_DO_COPY,
    SI_DO_SET,
    SI_DO_KERNEL,
    SI_DO_RECORD,
    SI_DO_WAIT,
    SI_DO_CALL,
    SI_DO_WORK,
    SI_DO_STOP
} si_what;
typedef struct si_item {
    struct si_item *next;
    si_what what;
    void *to;
    const void *from;
    void *staged;                               // owned copy of pageable memory, or arguments
    uint64_t bytes, to_pitch, from_pitch, rows; // rows 1 but of 2D copies
    int byte;
    si_record *record;
    cudaHostFn_t call;
    void (*work)(cudaStream_t s, void *args); // of a library; args are `staged`
    zx_standin_kernel kernel;                 // args and pointers within `staged`
} si_item;

typedef struct si_worker si_worker;
struct CUstream_st {
    uint32_t magic;
    int device;
    uint32_t serial;
    si_lock lock;
    si_item *first, *last;
    _Atomic uint32_t queued, done; // items, counted
    _Atomic uint32_t end;          // the thread ends, whatever is queued
    pthread_t thread;
    si_worker *worker;        // fibers of its thread
    struct CUstream_st *next; // of all that there ever were
};
cudaStream_t si_stream(cudaStream_t s); // NULL where it isn't one
// The stream, or return with the error. The default stream's rules of order are none to lean on.
#define SI_STREAM(s)                                                                               \
    do {                                                                                           \
        if (si_stream(s) == NULL)                                                                  \
            return si_wrong(cudaErrorInvalidResourceHandle, "%s: %s", __func__,                    \
                            (s) == NULL ? "the default stream isn't used here"                     \
                                        : "the stream was destroyed");                             \
    } while (0)
void si_enqueue(cudaStream_t s, si_item *item); // takes the item
void si_enqueue_work(cudaStream_t s, void (*work)(cudaStream_t, void *), const void *args,
                     size_t bytes); // args are copied
cudaError_t si_wait_for(cudaStream_t s, uint32_t count);
void si_wait_device(int device); // all streams of it
void si_item_run(cudaStream_t s, si_item *item, uint64_t order);
void si_item_free(si_item *item);
void si_item_reset(void);
uint32_t si_stream_reset(void);
uint32_t si_event_reset(void);

// ---- block.c ------------------------------------------------------------------------------------
si_worker *si_worker_open(void); // on the thread that is to run kernels
void si_worker_close(si_worker *w);
// Runs all blocks. `order` picks the order of blocks and threads; 0: as they are numbered. On an
// error, why[0..size) says what happened.
cudaError_t si_kernel_run(si_worker *w, const zx_standin_kernel *k, uint64_t order, char *why,
                          size_t size);

#endif
